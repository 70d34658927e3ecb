//! [`Cq`]: the queue with what programs wait for it by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::domain::Domain;
use super::super::errno::{Errno, Outcome};
use super::super::object::Object;
use super::super::sys::{self, CqAttr, fid_cq};
use super::super::wait::{Manner, Wait};
use super::super::wait_set::{Member, WaitSet};
use super::{Completion, Entry, Failure, Format, Place, Queue};
use crate::sync::{EngineCell, Visit};

/// Places that a queue has at least: a program with a short one, which sends much before it reads, is not stopped by it.
const LEAST: usize = 8192;
/// Places that a program may ask for.
const MOST: usize = 1 << 22;

/// A completion queue.
pub struct Cq {
    pub(super) domain: Arc<Domain>,
    pub(super) format: Format,
    /// A waiting read waits for as many as it says, not for one.
    pub(super) has_threshold: bool,
    pub(super) wait: Wait,
    is_signalled: AtomicBool,
    queue: EngineCell<Queue>,
    /// Whose sleepers are woken.
    set: OnceLock<Arc<WaitSet>>,
}

// SAFETY: `fid_cq` is libfabric's structure of the class, and `entry::open` opens those.
unsafe impl Object for Cq {
    type Head = fid_cq;
    const CLASS: usize = sys::FI_CLASS_CQ;
}

/// An entry in its place.
struct Put(Place, Entry);

impl Visit<Queue> for Put {
    type Out = ();

    #[inline(always)]
    fn visit(self, queue: &mut Queue) {
        queue.put(self.0, self.1);
    }
}

/// The same, and the place for the next, if there is any.
struct PutAgain(Place, Entry);

impl Visit<Queue> for PutAgain {
    type Out = Option<Place>;

    #[inline(always)]
    fn visit(self, queue: &mut Queue) -> Option<Place> {
        queue.put(self.0, self.1);
        queue.reserve_arrival().ok()
    }
}

impl Cq {
    pub(in super::super) fn new(domain: Arc<Domain>, attr: &CqAttr) -> Outcome<Self> {
        let format = match attr.format {
            0 | 1 => Format::Context,
            2 => Format::Message,
            3 => Format::Data,
            4 => Format::Tagged,
            _ => return Err(Errno::INVAL),
        };
        if attr.flags & !sys::FI_AFFINITY != 0 || attr.size > MOST {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            wait: Wait::of_member(attr.wait_obj, || domain.descriptor().map(Some))?,
            domain,
            format,
            has_threshold: attr.wait_cond == sys::FI_CQ_COND_THRESHOLD,
            is_signalled: AtomicBool::new(false),
            queue: EngineCell::new(Queue::new(attr.size.max(LEAST))),
            set: OnceLock::new(),
        })
    }

    /// It is in a wait set from now on.
    pub(super) fn join(self: &Arc<Self>, set: Arc<WaitSet>) -> Outcome<()> {
        set.add(Member::Queue(Arc::downgrade(self)), &self.wait)?;
        let _ = self.set.set(set);
        Ok(())
    }

    /// What it was opened of.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Takes a place for an operation that this side starts.
    ///
    /// # Errors
    /// `FI_EAGAIN`: all are taken, until some entries are read.
    #[inline]
    pub fn reserve(&self) -> Outcome<Place> {
        self.queue.with(Queue::reserve)
    }

    /// Takes a place for what comes next from a peer.
    ///
    /// # Errors
    /// `FI_EAGAIN`: all are taken, until some entries are read.
    #[inline]
    pub fn reserve_arrival(&self) -> Outcome<Place> {
        self.queue.with(Queue::reserve_arrival)
    }

    /// The operation with this place has ended.
    #[inline(always)]
    pub fn put(&self, place: Place, entry: Entry) {
        self.queue.admit(Put(place, entry));
        self.wait.notify();
    }

    /// The same, and takes a place for what comes next, if there is any.
    #[inline(always)]
    pub fn put_again(&self, place: Place, entry: Entry) -> Option<Place> {
        let next = self.queue.admit(PutAgain(place, entry));
        self.wait.notify();
        next
    }

    /// The operation with this place, if it has one, has ended without an entry.
    #[inline]
    pub fn release_some(&self, place: Option<Place>) {
        if let Some(place) = place {
            self.queue.with(|queue| queue.release(place));
        }
    }

    /// Reads what there is. Where there is nothing progress is made, if nobody else makes it.
    #[inline(always)]
    pub(in super::super) fn read(&self, most: usize, take: impl FnMut(usize, &Completion)) -> Outcome<usize> {
        let (is_empty, is_due) = self.queue.with(|queue| {
            let is_empty = queue.is_empty();
            (is_empty, is_empty || most == 0 || queue.is_due())
        });
        if is_due && self.domain.progress().is_idle() && is_empty {
            return Err(Errno::AGAIN);
        }
        let (outcome, is_wanted) = self.queue.with(|queue| {
            let outcome = queue.read(most, take);
            (outcome, outcome.is_ok() && queue.is_wanted())
        });
        if is_wanted {
            self.domain.rouse();
        }
        outcome
    }

    pub(in super::super) fn read_failed(&self) -> Outcome<Failure> {
        let (failure, is_wanted) = self.queue.with(|queue| {
            let failure = queue.read_failed()?;
            Ok::<_, Errno>((failure, queue.is_wanted()))
        })?;
        if is_wanted {
            self.domain.rouse();
        }
        Ok(failure)
    }

    /// Whether there is something to be read.
    pub(in super::super) fn has_entries(&self) -> bool {
        self.queue.with(|queue| !queue.is_empty())
    }

    /// Entries that can be read, for tests.
    #[cfg(test)]
    pub(in super::super) fn len(&self) -> usize {
        self.queue.with(|queue| queue.len())
    }

    /// Reads when there are so many, or a failure; waits for that.
    pub(super) fn read_within(
        &self,
        most: usize,
        least: usize,
        timeout: i32,
        mut take: impl FnMut(usize, &Completion),
    ) -> Outcome<usize> {
        let look = || {
            if self.is_signalled.swap(false, Ordering::AcqRel) {
                return Some(Err(Errno::CANCELED));
            }
            self.queue.with(|queue| {
                (queue.len() >= least.max(1) || queue.is_failed()).then(|| queue.read(most, &mut take))
            })
        };
        let found = self.wait.until(timeout, || self.domain.arm(), || self.domain.progress_all(), look)?;
        if self.queue.with(Queue::is_wanted) {
            self.domain.rouse();
        }
        // The time is over: what there is, is read.
        found.unwrap_or_else(|| self.queue.with(|queue| queue.read(most, take)))
    }

    /// Ends one waiting read, now or later.
    pub(super) fn signal(&self) -> Outcome<()> {
        if self.wait.manner() == Manner::Never {
            return Err(Errno::NOSYS);
        }
        self.is_signalled.store(true, Ordering::Release);
        self.wait.ring();
        self.wait.notify();
        Ok(())
    }

    /// Whether a program may sleep on the descriptor.
    pub(in super::super) fn try_wait(&self) -> Outcome<()> {
        let is_signalled = || self.is_signalled.load(Ordering::Acquire);
        self.wait
            .try_wait(|| self.domain.arm(), || is_signalled() || self.queue.with(|queue| !queue.is_empty()))
    }
}
