//! [`Context`]: the short path. Tagged sends and receives, and the completions they end in.
//!
//! The entry points are copied out of the provider's tables once, so that a post is one indirect
//! call. Completions are read in batches into a queue of our own and handed out one at a time, with
//! nothing borrowed while the host runs: progress may nest, and the inner one goes on where the
//! outer one was.
//!
//! Where the domain takes one call at a time, [`Turn`] makes them so: it is the cell of the completions that
//! were read, so that a poll takes one cell and not two.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::cushion::Cushion;
use super::loan::{Memory, Payload, Piece, Source};
use super::objects::{Domain, Object, Ready, table};
use super::operation::{Id, Lease, Standing, Work};
use super::{Address, PostError, posted, sys};
use crate::error::{Error, Result};
use crate::sync::EngineCell;

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

/// What the provider did not take, and why.
pub struct Unposted<T> {
    /// What was to be posted.
    pub given: T,
    /// Why it is not.
    pub error: PostError,
}

/// How posting went; an operation that is not taken comes back.
pub type Post<W> = std::result::Result<(), Unposted<Lease<W>>>;

type Recv = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *mut c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
type Send =
    unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize;
type SendData = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
type Inject = unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, u64, u64) -> isize;
type InjectData = unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, u64, u64, u64) -> isize;
type RecvPieces = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const libc::iovec,
    *mut *mut c_void,
    usize,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
type Message = unsafe extern "C" fn(*mut sys::fid_ep, *const sys::fi_msg_tagged, u64) -> isize;
type Read = unsafe extern "C" fn(*mut sys::fid_cq, *mut c_void, usize) -> isize;
type ReadError = unsafe extern "C" fn(*mut sys::fid_cq, *mut sys::fi_cq_err_entry, u64) -> isize;
type Cancel = unsafe extern "C" fn(*mut sys::fid, *mut c_void) -> isize;

// Stand-ins for entries that a provider leaves out, so that the short path need not ask.
unsafe extern "C" fn no_send_data(
    _: *mut sys::fid_ep,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: u64,
    _: u64,
    _: u64,
    _: *mut c_void,
) -> isize {
    -(sys::FI_ENOSYS as isize)
}

unsafe extern "C" fn no_inject_data(
    _: *mut sys::fid_ep,
    _: *const c_void,
    _: usize,
    _: u64,
    _: u64,
    _: u64,
) -> isize {
    -(sys::FI_ENOSYS as isize)
}

#[derive(Clone, Copy)]
struct Entries {
    recv: Recv,
    send: Send,
    send_data: SendData,
    inject: Inject,
    inject_data: InjectData,
    recv_message: Option<Message>,
    read: Read,
    read_error: ReadError,
    cancel: Option<Cancel>,
}

/// Completions that were read and not yet handed out.
#[derive(Default)]
pub(super) struct Inbox {
    entries: Box<[MaybeUninit<sys::fi_cq_tagged_entry>]>,
    /// So many at once are all that there was: 1; nothing is learned where only one is read at a time: 0.
    alone: isize,
    next: usize,
    filled: usize,
    asker: Option<Asker>,
}

/// An operation that is ready to be a peek.
///
/// INVARIANT: from `posted` of a lease of the context that has this inbox, and not with the provider.
#[derive(Clone, Copy)]
struct Asker {
    context: NonNull<c_void>,
    id: Id,
}

/// The completions of a context; also the right to call, where a domain takes one call at a time
/// (`FI_THREAD_DOMAIN`). How many threads there will be is not known when a domain is opened.
pub(super) type Turn = EngineCell<Inbox>;

// SAFETY: the raw pointers in the entries are contexts, which any thread may turn into leases.
unsafe impl std::marker::Send for Inbox {}

/// What a call that is not made comes to: the operation goes back to who gave it.
const BARRED: isize = -(sys::FI_EAGAIN as isize);

/// Bars nothing.
static NEVER: AtomicBool = AtomicBool::new(false);

/// One transmit and one receive queue with the completion queue of both.
pub struct Context<W: Work> {
    tx: *mut sys::fid_ep,
    rx: *mut sys::fid_ep,
    cq: *mut sys::fid_cq,
    entries: Entries,
    inbox: Arc<Turn>,
    /// The inbox is also the right to call.
    takes_turns: bool,
    // Closed in this order: endpoints before their queue, contexts before their endpoint.
    _tx: Arc<Object>,
    _rx: Arc<Object>,
    _queue: Object,
    _parent: Option<Arc<Object>>,
    /// Behind what is received into it, in the order of closing.
    cushion: Option<(Cushion, RecvPieces)>,
    _state: PhantomData<Lease<W>>,
}

// SAFETY: the pointers are to objects that the context holds and that any thread may use; the leases
// that go through it may go to another thread.
unsafe impl<W: Work> std::marker::Send for Context<W> {}
// SAFETY: the entry points may be called by several threads at once if the domain's threading level is
// `FI_THREAD_SAFE` (`fi_domain(3)`), and are called in turn otherwise; a lease comes out once, in whichever
// thread, and is `Send`; the inbox is reached through its cell.
unsafe impl<W: Work> Sync for Context<W> {}

/// The error entry with room for fields that newer libraries append (88 bytes in 2.1).
#[derive(Default)]
#[repr(C)]
pub(super) struct ErrorEntry {
    pub(super) entry: sys::fi_cq_err_entry,
    appended: [u64; 4],
}

impl<W: Work> Context<W> {
    pub(super) fn new(
        tx: Arc<Object>,
        rx: Arc<Object>,
        queue: Object,
        parent: Option<Arc<Object>>,
        domain: &Domain,
        ready: &Ready,
    ) -> Result<Self> {
        let (tx_ep, rx_ep): (*mut sys::fid_ep, *mut sys::fid_ep) = (tx.as_ptr(), rx.as_ptr());
        let cq: *mut sys::fid_cq = queue.as_ptr();
        let (send, recv) = (table!(tx_ep, tagged), table!(rx_ep, tagged));
        let (queue_ops, rx_ops) = (table!(cq, ops), table!(rx_ep, ops));
        // Tables only grow at their end; `size` says how much of one the provider filled in.
        if send.size.min(recv.size) < size_of::<sys::fi_ops_tagged>() {
            return Err(Error::Unsupported);
        }
        let entries = Entries {
            recv: recv.recv.ok_or(Error::Unsupported)?,
            send: send.send.ok_or(Error::Unsupported)?,
            send_data: send.senddata.unwrap_or(no_send_data),
            inject: send.inject.ok_or(Error::Unsupported)?,
            inject_data: send.injectdata.unwrap_or(no_inject_data),
            recv_message: recv.recvmsg,
            read: queue_ops.read.ok_or(Error::Unsupported)?,
            read_error: queue_ops.readerr.ok_or(Error::Unsupported)?,
            cancel: rx_ops.cancel,
        };
        let inbox = Inbox {
            entries: (0..ready.batch).map(|_| MaybeUninit::uninit()).collect(),
            alone: isize::from(ready.batch > 1),
            ..Inbox::default()
        };
        let inbox = match domain.turn() {
            None => Arc::new(Turn::new(inbox)),
            Some(turn) => {
                // One inbox, one context.
                let before = turn.with(|kept| kept.entries.is_empty().then(|| *kept = inbox));
                before.ok_or(Error::Unsupported)?;
                Arc::clone(turn)
            }
        };
        Ok(Self {
            tx: tx_ep,
            rx: rx_ep,
            cq,
            entries,
            inbox,
            takes_turns: domain.turn().is_some(),
            cushion: None,
            _tx: tx,
            _rx: rx,
            _queue: queue,
            _parent: parent,
            _state: PhantomData,
        })
    }

    /// The same, safe from messages that are longer than their receive.
    pub(super) fn cushioned(mut self, cushion: Option<Cushion>) -> Self {
        self.cushion = cushion.zip(table!(self.rx, tagged).recvv);
        self
    }

    /// Whether messages can be probed for (`FI_PEEK`); some layered providers cannot.
    pub fn can_probe(&self) -> bool {
        self.entries.recv_message.is_some()
    }

    /// Whether calls of several threads go one after the other: what is looked at in a call is then as it
    /// is until the call is over.
    pub fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// Calls the provider, when it is our turn.
    #[inline(always)]
    fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        if self.takes_turns { self.inbox.with(|_| call()) } else { call() }
    }

    /// Gives an operation to the provider with `call`; back it comes if that is refused.
    #[inline(always)]
    fn give(&self, lease: Lease<W>, call: impl FnOnce(*mut c_void) -> isize) -> Post<W> {
        let context = lease.posted(self.rx.addr());
        posted(self.call(|| call(context.as_ptr()))).map_err(|error| {
            // SAFETY: just given, and not taken: a provider that refuses keeps nothing.
            let given = unsafe { Lease::back(context) };
            Unposted { given, error }
        })
    }

    /// Posts a receive into the loan as it lies (`fi_trecv(3)`), on the short path, unless `barred`, which is
    /// looked at when it is our turn. Whatever is in the way, the operation comes back, for
    /// [`recv`](Self::recv).
    #[inline(always)]
    pub fn recv_in_place(
        &self,
        barred: &AtomicBool,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> std::result::Result<(), Lease<W>> {
        let Some(to) = lease.lent_landing() else { return Err(lease) };
        let given = if let Some((cushion, receive)) = &self.cushion {
            if to.len == 0 {
                return self.recv_nothing(barred, from, bits, ignore, lease);
            }
            // SAFETY: the memory is that of the loan, which the operation holds, and the context's cushion.
            unsafe { self.recv_pieces(*receive, barred, &cushion.behind(to), from, bits, ignore, lease) }
        } else {
            let (start, none) = (to.start.cast(), ptr::null_mut());
            // SAFETY: the endpoint is open. The memory is lent until the loan's request is completed, which
            // takes the loan, which the operation holds until it completes.
            self.give(lease, |context| unsafe {
                if barred.load(Ordering::Relaxed) {
                    return BARRED;
                }
                (self.entries.recv)(self.rx, start, to.len, none, from.0, bits, ignore, context)
            })
        };
        given.map_err(|unposted| unposted.given)
    }

    /// As [`recv_in_place`](Self::recv_in_place), of a message without bytes, into the cushion alone.
    #[inline(never)]
    fn recv_nothing(
        &self,
        barred: &AtomicBool,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> std::result::Result<(), Lease<W>> {
        let Some((cushion, receive)) = &self.cushion else { return Err(lease) };
        let pieces = &cushion.behind(Piece::EMPTY)[1..];
        // SAFETY: the memory is the context's cushion.
        let given = unsafe { self.recv_pieces(*receive, barred, pieces, from, bits, ignore, lease) };
        given.map_err(|unposted| unposted.given)
    }

    /// Posts a receive into several pieces of memory (`fi_trecvv(3)`).
    ///
    /// # Safety
    /// Each piece is memory that the operation or the context holds.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "those of `fi_trecvv(3)`")]
    unsafe fn recv_pieces(
        &self,
        receive: RecvPieces,
        barred: &AtomicBool,
        pieces: &[libc::iovec],
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> Post<W> {
        let (first, count) = (pieces.as_ptr(), pieces.len());
        // SAFETY: the endpoint is open; the pieces are read during the call. Their memory stays until
        // completion, by the promise above: the context closes its endpoint before its own memory goes.
        self.give(lease, |context| unsafe {
            if barred.load(Ordering::Relaxed) {
                return BARRED;
            }
            receive(self.rx, first, ptr::null_mut(), count, from.0, bits, ignore, context)
        })
    }

    /// Posts a receive into the memory that the operation holds (`fi_trecv(3)`).
    #[inline]
    pub fn recv(&self, from: Address, bits: u64, ignore: u64, mut lease: Lease<W>) -> Post<W> {
        let Memory { piece: to, descriptor } = lease.landing();
        if let Some((cushion, receive)) = self.cushion.as_ref().filter(|_| descriptor.is_null()) {
            let pieces = cushion.behind(to);
            let pieces = if to.len == 0 { &pieces[1..] } else { &pieces[..] };
            // SAFETY: the memory is what the operation says that it holds, and the context's cushion.
            return unsafe { self.recv_pieces(*receive, &NEVER, pieces, from, bits, ignore, lease) };
        }
        let start = to.start.cast();
        // SAFETY: the endpoint is open; the operation holds the memory, and the registration that a
        // descriptor is of, until it completes.
        self.give(lease, |context| unsafe {
            (self.entries.recv)(self.rx, start, to.len, descriptor, from.0, bits, ignore, context)
        })
    }

    /// Whether a second piece of memory lies behind every receive. The pieces of one receive are of one
    /// kind, so that none goes to a device then.
    pub fn is_cushioned(&self) -> bool {
        self.cushion.is_some()
    }

    /// A message was so many bytes longer than its receive.
    pub fn overran(&self, len: usize) {
        if let Some((cushion, _)) = &self.cushion {
            cushion.shake_out(len);
        }
    }

    /// Posts a send of the message that the operation holds (`fi_tsend(3)`, `fi_tsenddata(3)`).
    pub fn send(&self, to: Address, bits: u64, data: Option<u64>, lease: Lease<W>) -> Post<W> {
        let memory = lease.source();
        // SAFETY: the operation holds the memory, and the registration that a descriptor is of, until it
        // completes.
        self.give(lease, |context| unsafe { self.post_send(&memory, to, bits, data, context) })
    }

    /// Sends a message that is lent for the span of this call: `wait` brings the operation back when it has
    /// completed.
    pub fn send_within(
        &self,
        message: &Source<'_>,
        to: Address,
        bits: u64,
        data: Option<u64>,
        lease: Lease<W>,
        mut wait: impl FnMut(Id) -> Lease<W>,
    ) -> std::result::Result<Lease<W>, Unposted<Lease<W>>> {
        let id = lease.id();
        let memory = message.memory();
        // SAFETY: this function does not return or unwind before the operation has completed: its lease is
        // the only one of that name. The message is lent, and its registration kept, for as long.
        self.give(lease, |context| unsafe { self.post_send(&memory, to, bits, data, context) })?;
        let posted = StillPosted;
        let mut lease = wait(id);
        while lease.id() != id {
            drop(lease);
            lease = wait(id);
        }
        std::mem::forget(posted);
        Ok(lease)
    }

    /// # Safety
    /// The memory, and what its descriptor is of, stay until the operation behind `context` completes.
    #[inline]
    unsafe fn post_send(
        &self,
        memory: &Memory,
        to: Address,
        bits: u64,
        data: Option<u64>,
        context: *mut c_void,
    ) -> isize {
        let (start, len, descriptor) = (memory.piece.start.cast(), memory.piece.len, memory.descriptor);
        match data {
            // SAFETY: the endpoint is open; the memory stays by the promise above.
            None => unsafe { (self.entries.send)(self.tx, start, len, descriptor, to.0, bits, context) },
            // SAFETY: the endpoint is open; the memory stays by the promise above.
            Some(data) => unsafe {
                (self.entries.send_data)(self.tx, start, len, descriptor, data, to.0, bits, context)
            },
        }
    }

    /// Sends bytes that are free again at once and complete silently (`fi_tinject(3)`).
    #[inline(always)]
    pub fn inject(
        &self,
        bytes: Payload<'_>,
        to: Address,
        bits: u64,
        data: Option<u64>,
    ) -> std::result::Result<(), PostError> {
        let (start, len) = (bytes.piece.start.cast(), bytes.piece.len);
        posted(self.call(|| match data {
            // SAFETY: the endpoint is open; the bytes are lent, and read during the call only.
            None => unsafe { (self.entries.inject)(self.tx, start, len, to.0, bits) },
            // SAFETY: the endpoint is open; the bytes are lent, and read during the call only.
            Some(data) => unsafe { (self.entries.inject_data)(self.tx, start, len, data, to.0, bits) },
        }))
    }

    /// Asks whether a message is there (`FI_PEEK`); `claim` takes it out of matching for [`take`](Self::take).
    #[inline]
    pub fn peek(&self, from: Address, bits: u64, ignore: u64, claim: bool, lease: Lease<W>) -> Post<W> {
        let flags =
            u64::from(sys::FI_PEEK) | u64::from(sys::FI_COMPLETION) | if claim { sys::FI_CLAIM } else { 0 };
        self.receive_message(&[Piece::EMPTY.into()], ptr::null_mut(), from, bits, ignore, flags, lease)
    }

    /// Asks whether a message is there, and reads the answer, in one turn, unless `barred`, which is looked at
    /// when it is our turn. An answer that does not come at once adds to `pending` within the turn.
    #[inline(never)]
    pub fn peek_at_once(&self, barred: &AtomicBool, pending: &AtomicU32, wanted: &mut Wanted) -> Peek<W> {
        let Some(ask) = self.entries.recv_message else { return Peek::Unasked };
        let flags = u64::from(sys::FI_PEEK) | u64::from(sys::FI_COMPLETION);
        let nowhere = libc::iovec::from(Piece::EMPTY);
        let asked = self.inbox.try_with(|inbox| {
            let Some(asker) = inbox.asker else { return Peek::Unasked };
            if inbox.next != inbox.filled || barred.load(Ordering::Relaxed) {
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
        if read == 1
            // SAFETY: the provider has just written one entry.
            && let entry = unsafe { inbox.entries[0].assume_init_ref() }
            && entry.op_context == asker.context.as_ptr()
        {
            (wanted.bits, wanted.len, wanted.data) = (entry.tag, entry.len, entry.data);
            return Peek::Found;
        }
        if let Ok(read @ 1..) = usize::try_from(read) {
            (inbox.next, inbox.filled) = (0, read);
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

    /// Posts a send of the buffer that the operation holds, outside tag matching (`fi_send(3)`).
    pub fn send_untagged(&self, to: Address, lease: Lease<W>) -> Post<W> {
        let Some(send) = table!(self.tx, msg).send else {
            return Err(Unposted { given: lease, error: PostError::Refused(sys::FI_ENOSYS as i32) });
        };
        let Memory { piece, descriptor } = lease.source();
        // SAFETY: the endpoint is open; the operation holds the memory, and the registration that a
        // descriptor is of, until it completes.
        self.give(lease, |context| unsafe {
            send(self.tx, piece.start.cast(), piece.len, descriptor, to.0, context)
        })
    }

    /// Posts a receive into the buffer that the operation holds, outside tag matching, from anybody (`fi_recv(3)`).
    pub fn recv_untagged(&self, mut lease: Lease<W>) -> Post<W> {
        let Some(recv) = table!(self.rx, msg).recv else {
            return Err(Unposted { given: lease, error: PostError::Refused(sys::FI_ENOSYS as i32) });
        };
        let Memory { piece, descriptor } = lease.landing();
        let from = Address::ANY.0;
        // SAFETY: the endpoint is open; the operation holds the memory, and the registration that a
        // descriptor is of, until it completes.
        self.give(lease, |context| unsafe {
            recv(self.rx, piece.start.cast(), piece.len, descriptor, from, context)
        })
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

    /// Asks the provider to give an operation up, if it is posted here; it then fails with `FI_ECANCELED`, or
    /// completes.
    pub fn cancel(&self, operation: &Standing<'_, W>) {
        let Some(cancel) = self.entries.cancel else { return };
        // While somebody has the inbox no operation ends, so that none can take the place of this one.
        self.inbox.with(|_| {
            if let Some(context) = operation.context(self.rx.addr()) {
                // SAFETY: the endpoint is open, and the operation is posted there; one whose completion is already
                // in the queue is ignored (`fi_cancel(3)`).
                unsafe { cancel(self.rx.cast(), context) };
            }
        });
    }

    /// The next completion, and whether there may be more. Nothing is borrowed once it returns, so
    /// the caller may run the host, which may poll again and goes on where this left off.
    #[inline(always)]
    pub fn poll(&self) -> std::result::Result<(Completion<W>, bool), Pause> {
        let found = self.inbox.try_with(|inbox| {
            let (at, more) = if inbox.next == inbox.filled {
                let read = self.read(inbox);
                if read <= 0 {
                    return Err(if read == -(sys::FI_EAGAIN as isize) || read == 0 {
                        Pause::Empty
                    } else {
                        Pause::Error(read)
                    });
                }
                // A batch that was not full has drained the queue; one alone leaves nothing to come back for.
                if read == inbox.alone {
                    (0, false)
                } else {
                    (inbox.next, inbox.filled) = (1, read as usize);
                    (0, true)
                }
            } else {
                inbox.next += 1;
                let more = inbox.next < inbox.filled || inbox.filled == inbox.entries.len();
                (inbox.next - 1, more)
            };
            // INVARIANT: `at` < what the provider wrote last <= entries.len().
            // SAFETY: by the invariant, in bounds.
            let entry = unsafe { inbox.entries.get_unchecked(at) };
            // SAFETY: by the invariant, written.
            let entry = unsafe { entry.assume_init_ref() };
            // A completion without a context belongs to nobody; no provider makes one, since every
            // operation that completes was posted with one.
            let context = NonNull::new(entry.op_context).ok_or(Pause::Empty)?;
            // SAFETY: every operation posted here was posted with a lease of this `W`, and completes once.
            let lease = unsafe { Lease::back(context) };
            Ok((Completion { lease, len: entry.len, data: entry.data, tag: entry.tag }, more))
        });
        found.unwrap_or(Err(Pause::Empty))
    }

    /// Reads completions into the inbox, over what is there (`fi_cq_read(3)`). Only in our turn.
    #[inline(always)]
    fn read(&self, inbox: &mut Inbox) -> isize {
        let (room, count) = (inbox.entries.as_mut_ptr(), inbox.entries.len());
        // SAFETY: the queue is open; the buffer has room for as many entries of its format.
        unsafe { (self.entries.read)(self.cq, room.cast(), count) }
    }

    /// Reads the error that is next in the queue (`fi_cq_readerr(3)`). Only in our turn.
    #[inline(always)]
    fn read_error(&self, room: &mut ErrorEntry) -> isize {
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
    fn trouble(&self, found: isize, room: &ErrorEntry) -> Trouble<W> {
        let _ = room.appended;
        match found {
            1.. => Trouble::Operation(Failure {
                // SAFETY: every operation posted here was posted with a lease of this `W`, and completes once.
                lease: NonNull::new(room.entry.op_context).map(|context| unsafe { Lease::back(context) }),
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

/// Ends the process when dropped: bytes that are lent for the span of a call are still with the provider.
struct StillPosted;

impl Drop for StillPosted {
    fn drop(&mut self) {
        std::process::abort();
    }
}
