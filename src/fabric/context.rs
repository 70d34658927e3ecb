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
use std::sync::atomic::{AtomicBool, Ordering};

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
    next: usize,
    filled: usize,
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
        let inbox =
            Inbox { entries: (0..ready.batch).map(|_| MaybeUninit::uninit()).collect(), next: 0, filled: 0 };
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
    pub(super) fn cushioned(self, cushion: Option<Cushion>) -> Self {
        Self { cushion: cushion.zip(table!(self.rx, tagged).recvv), ..self }
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
        let given = if let Some(cushion) = &self.cushion {
            // SAFETY: the memory is that of the loan, which the operation holds.
            unsafe { self.recv_cushioned(cushion, barred, to, from, bits, ignore, lease) }
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

    /// Posts a receive with the cushion behind it.
    ///
    /// # Safety
    /// `to` is memory that the operation holds.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "those of `fi_trecv(3)`")]
    unsafe fn recv_cushioned(
        &self,
        (cushion, receive): &(Cushion, RecvPieces),
        barred: &AtomicBool,
        to: Piece,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<W>,
    ) -> Post<W> {
        let pieces = cushion.behind(to);
        let pieces = if to.len == 0 { &pieces[1..] } else { &pieces[..] };
        let (first, count) = (pieces.as_ptr(), pieces.len());
        // SAFETY: the endpoint is open; the pieces are read during the call. Their memory stays until
        // completion: the operation holds its own by the promise above, the context its cushion.
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
        if let Some(cushion) = self.cushion.as_ref().filter(|_| descriptor.is_null()) {
            // SAFETY: the memory is what the operation says that it holds.
            return unsafe { self.recv_cushioned(cushion, &NEVER, to, from, bits, ignore, lease) };
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
        if let (Some(cancel), Some(context)) = (self.entries.cancel, operation.context(self.rx.addr())) {
            // SAFETY: the endpoint is open, and the operation was posted there; one that has completed in the
            // meantime is ignored (`fi_cancel(3)`).
            self.call(|| unsafe { cancel(self.rx.cast(), context) });
        }
    }

    /// The next completion, and whether there may be more. Nothing is borrowed once it returns, so
    /// the caller may run the host, which may poll again and goes on where this left off.
    #[inline(always)]
    pub fn poll(&self) -> std::result::Result<(Completion<W>, bool), Pause> {
        let found = self.inbox.try_with(|inbox| {
            let (at, more) = if inbox.next == inbox.filled {
                // SAFETY: the queue is open; the buffer has room for as many entries of its format.
                let read = unsafe {
                    (self.entries.read)(self.cq, inbox.entries.as_mut_ptr().cast(), inbox.entries.len())
                };
                if read <= 0 {
                    return Err(if read == -(sys::FI_EAGAIN as isize) || read == 0 {
                        Pause::Empty
                    } else {
                        Pause::Error(read)
                    });
                }
                // A batch that was not full has drained the queue; one alone leaves nothing to come back for.
                if read == 1 && inbox.entries.len() > 1 {
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

    /// The error behind [`Pause::Error`].
    #[cold]
    pub fn failure(&self, code: isize) -> Trouble<W> {
        if code != -(sys::FI_EAVAIL as isize) {
            return Trouble::Queue(i32::try_from(-code).unwrap_or(i32::MAX));
        }
        let mut room = ErrorEntry::default();
        // SAFETY: the queue is open; the entry has room for what any known version writes.
        let read = self.call(|| unsafe { (self.entries.read_error)(self.cq, (&raw mut room).cast(), 0) });
        let _ = room.appended;
        match read {
            1.. => Trouble::Operation(Failure {
                // SAFETY: every operation posted here was posted with a lease of this `W`, and completes once.
                lease: NonNull::new(room.entry.op_context).map(|context| unsafe { Lease::back(context) }),
                code: room.entry.err,
                len: room.entry.len,
                data: room.entry.data,
                tag: room.entry.tag,
            }),
            _ if read == 0 || read == -(sys::FI_EAGAIN as isize) => Trouble::Gone,
            _ => Trouble::Queue(i32::try_from(-read).unwrap_or(i32::MAX)),
        }
    }
}

/// Ends the process when dropped: bytes that are lent for the span of a call are still with the provider.
struct StillPosted;

impl Drop for StillPosted {
    fn drop(&mut self) {
        std::process::abort();
    }
}
