//! Probes: whether a message is there (`FI_PEEK`), and the receive of one that a probe has claimed
//! (`fi_tagged(3)`).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::completion::{Asker, ErrorEntry, Inbox, Trouble};
use super::context::{Context, Post, Unposted};
use super::loan::{Memory, Piece};
use super::operation::{Id, Lease, Work};
use super::{Address, PostError, posted, sys};
use crate::sync::Bars;

/// What came of a peek in one call ([`Context::peek_at_once`]).
pub enum Peek<W: Work> {
    /// No message is there.
    Nothing,
    /// One is: what was asked for is filled in.
    Found,
    /// It was not asked: [`peek`](Context::peek) it is.
    Unasked,
    /// The provider has failed, with a positive code.
    Failed(i32),
    /// The answer will come later. It counts among the pending, and that is the caller's now.
    Pending(Box<Late<W>>),
}

/// A message that a peek is for, and what it learns of it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The sender, or any.
    pub from: Address,
    /// The tag bits asked for, then the message's.
    pub bits: u64,
    /// The tag bits that are not looked at.
    pub ignore: u64,
    /// Bytes of the message.
    pub len: usize,
    /// Data that travelled outside the tag.
    pub data: u64,
}

/// A peek that is not answered at once.
pub struct Late<W: Work> {
    /// The answer will be this operation's completion.
    pub which: Id,
    /// What came instead.
    pub trouble: Option<Trouble<W>>,
}

impl<W: Work> Context<W> {
    /// Asks whether a message is there (`FI_PEEK`); `claim` takes it out of matching for [`take`](Self::take).
    #[inline]
    pub fn peek(&self, from: Address, bits: u64, ignore: u64, claim: bool, lease: Lease<W>) -> Post<W> {
        let flags =
            u64::from(sys::FI_PEEK) | u64::from(sys::FI_COMPLETION) | if claim { sys::FI_CLAIM } else { 0 };
        self.receive_message(&[Piece::EMPTY.into()], ptr::null_mut(), from, bits, ignore, flags, lease)
    }

    /// Asks whether a message is there, and reads the answer, in one turn, unless one of these bars is up, which is
    /// looked at when it is our turn. An answer that does not come at once adds to `pending` within the turn.
    #[inline(never)]
    pub fn peek_at_once(&self, bars: Bars, pending: &AtomicU32, wanted: &mut Wanted) -> Peek<W> {
        let Some(ask) = self.entries.recv_message else { return Peek::Unasked };
        let flags = u64::from(sys::FI_PEEK) | u64::from(sys::FI_COMPLETION);
        let nowhere = libc::iovec::from(Piece::EMPTY);
        let asked = self.inbox.try_with(|inbox| {
            let Some(asker) = inbox.asker else { return Peek::Unasked };
            if !inbox.is_empty() || self.inbox.has_bar(bars, Ordering::Relaxed) {
                return Peek::Unasked;
            }
            let message = sys::fi_msg_tagged {
                msg_iov: (&raw const nowhere).cast(),
                desc: ptr::null_mut(),
                iov_count: 1,
                addr: wanted.from.0,
                tag: wanted.bits,
                ignore: wanted.ignore,
                context: asker.context.as_ptr(),
                data: 0,
            };
            // SAFETY: the endpoint is open; the message is read during the call, and names no memory; the asker
            // is not with the provider, and stays: it is taken out of the inbox below where it is posted longer.
            let code = unsafe { ask(self.rx, &raw const message, flags) };
            match posted(code) {
                Ok(()) => self.answer_at_once(inbox, asker, pending, wanted),
                Err(PostError::TryAgain) => Peek::Unasked,
                Err(PostError::Refused(code)) => missed(code),
            }
        });
        asked.unwrap_or(Peek::Unasked)
    }

    /// The answer to a peek that was posted with the inbox's asker, while the inbox was empty.
    #[inline(always)]
    fn answer_at_once(
        &self,
        inbox: &mut Inbox,
        asker: Asker,
        pending: &AtomicU32,
        wanted: &mut Wanted,
    ) -> Peek<W> {
        let read = self.read(inbox);
        if read == -(sys::FI_EAVAIL as isize) {
            let mut room = ErrorEntry::default();
            let found = self.read_error(&mut room);
            if found == 1 && room.entry.op_context == asker.context.as_ptr() {
                return missed(room.entry.err);
            }
            return self.not_at_once(inbox, asker, pending, Some(self.trouble(found, &room)));
        }
        let entry = &inbox.entries[0];
        if read == 1 && entry.op_context == asker.context.as_ptr() {
            (wanted.bits, wanted.len, wanted.data) = (entry.tag, entry.len, entry.data);
            return Peek::Found;
        }
        if let Ok(read @ 1..) = usize::try_from(read) {
            inbox.fill(read);
        }
        self.not_at_once(inbox, asker, pending, None)
    }

    /// The peek is still posted.
    #[cold]
    fn not_at_once(
        &self,
        inbox: &mut Inbox,
        asker: Asker,
        pending: &AtomicU32,
        trouble: Option<Trouble<W>>,
    ) -> Peek<W> {
        inbox.asker = None;
        pending.fetch_add(1, Ordering::SeqCst);
        Peek::Pending(Box::new(Late { which: asker.id, trouble }))
    }

    /// Looks at something while no [`peek_at_once`](Self::peek_at_once) is under way.
    pub fn in_turn<R>(&self, look: impl FnOnce() -> R) -> R {
        self.inbox.with(|_| look())
    }

    /// Keeps an operation ready for [`peek_at_once`](Self::peek_at_once), where none is.
    pub fn keep_asker(&self, lease: Lease<W>) {
        let surplus = self.inbox.with(|inbox| {
            if inbox.asker.is_some() {
                return Some(lease);
            }
            let id = lease.id();
            // Posted at 0, where no object is: it does not end with its endpoint, but with the context, which has it.
            inbox.asker = Some(Asker { context: lease.posted(0), id });
            None
        });
        drop(surplus);
    }

    /// Receives the message that [`peek`](Self::peek) claimed with this operation, into what it holds.
    pub fn take(&self, from: Address, bits: u64, ignore: u64, mut lease: Lease<W>) -> Post<W> {
        let Memory { piece: to, mut descriptor } = lease.landing();
        let descriptors = if descriptor.is_null() { ptr::null_mut() } else { &raw mut descriptor };
        let cushion = self.cushion.as_ref().filter(|_| descriptors.is_null());
        let pieces = cushion.map(|(cushion, _)| cushion.behind(to));
        let pieces = match &pieces {
            None => &[to.into()],
            Some(both) if to.len == 0 => &both[1..],
            Some(both) => &both[..],
        };
        let flags = sys::FI_CLAIM | u64::from(sys::FI_COMPLETION);
        self.receive_message(pieces, descriptors, from, bits, ignore, flags, lease)
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the fields of one structure")]
    fn receive_message(
        &self,
        pieces: &[libc::iovec],
        descriptors: *mut *mut c_void,
        peer: Address,
        tag: u64,
        ignore: u64,
        flags: u64,
        lease: Lease<W>,
    ) -> Post<W> {
        let Some(receive) = self.entries.recv_message else {
            return Err(Unposted { given: lease, error: PostError::Refused(sys::FI_ENOSYS as i32) });
        };
        let mut message = sys::fi_msg_tagged {
            msg_iov: pieces.as_ptr().cast(),
            desc: descriptors,
            iov_count: pieces.len(),
            addr: peer.0,
            tag,
            ignore,
            context: ptr::null_mut(),
            data: 0,
        };
        self.give(lease, |context| {
            message.context = context;
            // SAFETY: the endpoint is open; the message is read during the call; the memory that its pieces
            // name is the operation's, which holds it until it completes, or the cushion's.
            unsafe { receive(self.rx, &raw const message, flags) }
        })
    }
}

impl<W: Work> Drop for Context<W> {
    fn drop(&mut self) {
        if let Some(asker) = self.inbox.with(|inbox| inbox.asker.take()) {
            // SAFETY: from `posted` of a lease of this `W`, and not with the provider, by the invariant.
            drop(unsafe { Lease::<W>::back(asker.context) });
        }
    }
}

/// What a peek without a message comes to.
#[inline(always)]
fn missed<W: Work>(code: i32) -> Peek<W> {
    if code == sys::FI_ENOMSG as i32 { Peek::Nothing } else { Peek::Failed(code) }
}
