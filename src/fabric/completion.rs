//! Completions: read in batches into a queue of our own, the [`Inbox`], and handed out one at a time, with
//! nothing borrowed while the host runs: progress may nest, and the inner one goes on where the outer one
//! was.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use super::context::Context;
use super::cushion::Pieces;
use super::operation::{Id, Lease, LoanOf, Work};
use super::sys;
use crate::sync::{Bars, EngineCell};

/// An operation that ended well.
pub struct Completion<W: Work> {
    /// The operation.
    pub lease: Lease<W>,
    /// Bytes received.
    pub len: usize,
    /// Data that travelled outside the tag.
    pub data: u64,
    /// The message's tag bits.
    pub tag: u64,
}

/// An operation that failed.
pub struct Failure<W: Work> {
    /// The operation; `None` when the provider names none.
    pub lease: Option<Lease<W>>,
    /// Positive `fi_errno(3)` code.
    pub code: i32,
    /// Bytes received all the same.
    pub len: usize,
    /// Data that travelled outside the tag.
    pub data: u64,
    /// The message's tag bits.
    pub tag: u64,
}

/// What [`Context::poll_at_once`] came to. Which it is is a number of its own.
#[repr(u8)]
pub enum Alone<W: Work> {
    /// Nothing has ended.
    Nothing,
    /// One receive of the host's has, and nothing else.
    One {
        /// What was lent to it.
        loan: LoanOf<W>,
        /// Bytes received.
        len: usize,
        /// Data that travelled outside the tag.
        data: u64,
        /// The message's tag bits.
        tag: u64,
    },
    /// [`Context::poll`] it is.
    More,
}

/// Why [`Context::poll`] has no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nothing more for now.
    Empty,
    /// The queue reports an error: [`Context::failure`] says which.
    Error(isize),
}

/// What [`Context::failure`] found.
pub enum Trouble<W: Work> {
    /// Another thread took it.
    Gone,
    /// An operation failed.
    Operation(Failure<W>),
    /// The queue itself failed, with a positive code: nothing more will come from it.
    Queue(i32),
}

/// The most completions that are read at once.
pub(super) const MOST: usize = 100;

/// Completions that were read and not yet handed out.
pub(super) struct Inbox {
    pub(super) entries: [sys::fi_cq_tagged_entry; MOST],
    /// So many are read at once.
    batch: usize,
    /// So many at once are all that there was: 1; nothing is learned where only one is read at a time: no number.
    alone: isize,
    /// The next of those, and so many are left.
    next: usize,
    left: usize,
    /// The last read gave all that it could.
    full: bool,
    pub(super) asker: Option<Asker>,
    pub(super) pieces: Pieces,
}

/// An operation that is ready to be a peek.
///
/// INVARIANT: from `posted` of a lease of the context that has this inbox, and not with the provider.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) context: NonNull<c_void>,
    pub(super) id: Id,
}

impl Default for Inbox {
    /// Nobody's.
    fn default() -> Self {
        let entries = [sys::fi_cq_tagged_entry::default(); MOST];
        Self {
            entries,
            batch: 0,
            alone: isize::MIN,
            next: 0,
            left: 0,
            full: false,
            asker: None,
            pieces: Pieces::default(),
        }
    }
}

impl Inbox {
    /// For so many completions at once.
    pub(super) fn new(batch: usize) -> Self {
        let alone = if batch > 1 { 1 } else { isize::MIN };
        Self { batch: batch.min(MOST), alone, ..Self::default() }
    }

    /// Whether all that was read is handed out.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Notes that so many completions were read.
    pub(super) fn fill(&mut self, read: usize) {
        (self.next, self.left, self.full) = (0, read, read == self.batch);
    }

    /// Keeps so many completions that were read for [`Context::poll`].
    #[cold]
    fn keep<W: Work>(&mut self, read: isize) -> Alone<W> {
        match usize::try_from(read) {
            Ok(read @ 1..) => self.fill(read),
            Ok(_) => return Alone::Nothing,
            Err(_) if read == -(sys::FI_EAGAIN as isize) => return Alone::Nothing,
            // An error stays in the queue until it is read as such.
            Err(_) => {}
        }
        Alone::More
    }

    /// Whether no context has it.
    pub(super) fn is_free(&self) -> bool {
        self.batch == 0
    }
}

/// The completions of a context; also the right to call, where a domain takes one call at a time
/// (`FI_THREAD_DOMAIN`). How many threads there will be is not known when a domain is opened.
pub(super) type Turn = EngineCell<Inbox>;

// SAFETY: the raw pointers in the entries are contexts, which any thread may turn into leases; those of the pieces
// are used for a receive that is posted, by whoever has the inbox.
unsafe impl std::marker::Send for Inbox {}

/// The error entry with room for fields that newer libraries append (88 bytes in 2.1).
#[derive(Default)]
#[repr(C)]
pub(super) struct ErrorEntry {
    pub(super) entry: sys::fi_cq_err_entry,
    appended: [u64; 4],
}

impl<W: Work> Context<W> {
    /// The next completion, and whether there may be more. Nothing is borrowed once it returns, so
    /// the caller may run the host, which may poll again and goes on where this left off.
    #[inline(always)]
    pub fn poll(&self) -> std::result::Result<(Completion<W>, bool), Pause> {
        let found = self.inbox.try_with(|inbox| {
            if inbox.is_empty() {
                let read = self.read(inbox);
                match usize::try_from(read) {
                    Ok(read @ 1..) => inbox.fill(read),
                    Ok(_) => return Err(Pause::Empty),
                    Err(_) if read == -(sys::FI_EAGAIN as isize) => return Err(Pause::Empty),
                    Err(_) => return Err(Pause::Error(read)),
                }
            }
            let at = inbox.next;
            (inbox.next, inbox.left) = (at + 1, inbox.left - 1);
            // A batch that was not full has drained the queue.
            let more = inbox.left != 0 || inbox.full;
            let Some(entry) = inbox.entries.get(at) else { return Err(Pause::Empty) };
            // A completion without a context belongs to nobody; no provider makes one, since every
            // operation that completes was posted with one.
            let lease = self.came_back(entry.op_context).ok_or(Pause::Empty)?;
            Ok((Completion { lease, len: entry.len, data: entry.data, tag: entry.tag }, more))
        });
        found.unwrap_or(Err(Pause::Empty))
    }

    /// The short path of a poll: where this thread has the inbox at once, none of these bars is up, and what has
    /// ended is one receive of the host's alone, which is accepted and lies in its place whole.
    #[inline(always)]
    pub fn poll_at_once(&self, bars: Bars, accept: impl FnOnce(&W, u64) -> bool) -> Alone<W> {
        let found = self.inbox.with_unless(bars, |inbox| {
            if !inbox.is_empty() {
                return Alone::More;
            }
            let read = self.read(inbox);
            if read != inbox.alone {
                return inbox.keep(read);
            }
            let entry = &inbox.entries[0];
            let (len, data, tag) = (entry.len, entry.data, entry.tag);
            let accept = |body: &W| accept(body, tag);
            let Some(context) = NonNull::new(entry.op_context) else { return inbox.keep(read) };
            // SAFETY: as `came_back`: what the queue has just given.
            if !unsafe { Lease::<W>::is_in_place(context, len, accept) } {
                return inbox.keep(read);
            }
            // SAFETY: this is the only time, and it is in place.
            let loan = unsafe { Lease::<W>::back_in_place(context) };
            Alone::One { loan, len, data, tag }
        });
        found.unwrap_or(Alone::More)
    }

    /// The operation behind the context of a completion, if it has one.
    #[inline(always)]
    fn came_back(&self, context: *mut c_void) -> Option<Lease<W>> {
        // SAFETY: every operation posted here was posted with a lease of this `W`, and completes once: this is only
        // asked of what the queue has just given.
        NonNull::new(context).map(|context| unsafe { Lease::back(context) })
    }

    /// Reads completions into the inbox, over what is there (`fi_cq_read(3)`). Only in our turn.
    #[inline(always)]
    pub(super) fn read(&self, inbox: &mut Inbox) -> isize {
        let (room, count) = (inbox.entries.as_mut_ptr(), inbox.batch);
        // SAFETY: the queue is open; the buffer has room for so many entries of its format.
        unsafe { (self.entries.read)(self.cq, room.cast(), count) }
    }

    /// Reads the error that is next in the queue (`fi_cq_readerr(3)`). Only in our turn.
    #[inline(always)]
    pub(super) fn read_error(&self, room: &mut ErrorEntry) -> isize {
        // SAFETY: the queue is open; the entry has room for what any known version writes.
        unsafe { (self.entries.read_error)(self.cq, ptr::from_mut(room).cast(), 0) }
    }

    /// The error behind [`Pause::Error`].
    #[cold]
    pub fn failure(&self, code: isize) -> Trouble<W> {
        if code != -(sys::FI_EAVAIL as isize) {
            return Trouble::Queue(i32::try_from(-code).unwrap_or(i32::MAX));
        }
        let mut room = ErrorEntry::default();
        // In turn: nothing ends while somebody has the inbox.
        let found = self.inbox.with(|_| self.read_error(&mut room));
        self.trouble(found, &room)
    }

    /// What was read of the queue's errors.
    #[cold]
    pub(super) fn trouble(&self, found: isize, room: &ErrorEntry) -> Trouble<W> {
        let _ = room.appended;
        match found {
            // Completions were lost, nobody knows whose (`fi_cq(3)`).
            1.. if room.entry.err == sys::FI_EOVERRUN as i32 => Trouble::Queue(room.entry.err),
            1.. => Trouble::Operation(Failure {
                lease: self.came_back(room.entry.op_context),
                code: room.entry.err,
                len: room.entry.len,
                data: room.entry.data,
                tag: room.entry.tag,
            }),
            _ if found == 0 || found == -(sys::FI_EAGAIN as isize) => Trouble::Gone,
            _ => Trouble::Queue(i32::try_from(-found).unwrap_or(i32::MAX)),
        }
    }
}
