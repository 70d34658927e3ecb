//! [`Watched`]: what others than who has an operation may see of it, whenever they look: all of it is read and
//! written as one does what others may look at.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where an operation is posted, and which one it is.
pub(super) struct Watched {
    /// Where the operation is posted: the address of the provider's object; 0 when it is not.
    posted_at: AtomicUsize,
    /// `GIVEN_UP` or not, and how often this memory of a pool was an operation, counted in `ONE_MORE`; memory of the
    /// host's always counts 0.
    marks: AtomicUsize,
}

/// The host gave the operation up.
const GIVEN_UP: usize = 1;
const ONE_MORE: usize = 2;

impl Watched {
    /// Nothing has been here yet.
    pub(super) const fn new() -> Self {
        Self { posted_at: AtomicUsize::new(0), marks: AtomicUsize::new(0) }
    }

    /// Notes that nothing is posted, and nothing given up, in memory of the host's.
    #[inline(always)]
    pub(super) fn vacate(&self) {
        self.posted_at.store(0, Ordering::Relaxed);
        self.marks.store(0, Ordering::Relaxed);
    }

    /// Begins an operation in memory of the host's that nobody knows of before it is posted.
    #[inline(always)]
    pub(super) fn begin_posted(&self, at: usize) {
        self.marks.store(0, Ordering::Relaxed);
        self.post(at);
    }

    /// Counts one operation more, in memory of a pool's. Nothing is posted where no lease is: a lease that came back
    /// has said so.
    #[inline]
    pub(super) fn begin(&self) {
        self.marks.store(self.generation().wrapping_add(ONE_MORE), Ordering::Relaxed);
    }

    /// Which operation of this memory's it is, or was last.
    #[inline]
    pub(super) fn generation(&self) -> usize {
        self.marks.load(Ordering::Relaxed) & !GIVEN_UP
    }

    /// Notes that the operation of this number was given up, if it still is the one. Another is none of its business.
    pub(super) fn give_up(&self, generation: usize) {
        let same = |marks| (marks & !GIVEN_UP == generation).then_some(marks | GIVEN_UP);
        let _ = self.marks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, same);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & GIVEN_UP != 0
    }

    /// Notes where it is posted.
    #[inline(always)]
    pub(super) fn post(&self, at: usize) {
        // SYNC POINT: posted (acquired in `is_posted`)
        self.posted_at.store(at, Ordering::Release);
    }

    /// Notes that it is posted no more.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.posted_at.store(0, Ordering::Relaxed);
    }

    /// Whether the operation of this number is posted at the object of this address.
    pub(super) fn is_posted(&self, generation: usize, at: usize) -> bool {
        // SYNC POINT: posted (released in `post`): the marks are of the operation that is posted, or of a later.
        let posted_at = self.posted_at.load(Ordering::Acquire);
        at != 0 && posted_at == at && self.generation() == generation
    }
}
