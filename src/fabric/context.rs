//! [`Context`]: the short path. Tagged sends and receives, and the completions they end in.
//!
//! The entry points are copied out of the provider's tables once, so that a post is one indirect
//! call. Completions are read in batches into a queue of our own and handed out one at a time, with
//! nothing borrowed while the host runs: progress may nest, and the inner one goes on where the
//! outer one was.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::cushion::Cushion;
use super::objects::{Object, Ready, table};
use super::operation::Lease;
use super::registration::Descriptor;
use super::{Address, PostError, posted, sys};
use crate::error::{Error, Result};
use crate::sync::EngineCell;

/// Bytes to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    start: *const u8,
    len: usize,
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self { start: ptr::null(), len: 0 };

    /// # Safety
    /// The bytes stay readable and unchanged until the operation that they are given to completes.
    #[inline]
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { start, len }
    }

    pub(super) fn start(&self) -> *const u8 {
        self.start
    }

    /// Bytes that outlive the operation they are given to, because its state holds them.
    pub fn held(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len() }
    }

    /// Their number.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Where bytes are to be received.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    start: *mut u8,
    len: usize,
}

impl Landing {
    /// No bytes.
    pub const EMPTY: Self = Self { start: ptr::null_mut(), len: 0 };

    /// # Safety
    /// The bytes stay writable, and nobody looks at them, until the operation completes.
    #[inline]
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes that outlive the operation they are given to, because its state holds them.
    pub fn held(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// Their number.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// An operation that ended well.
pub struct Completion<T> {
    /// The operation.
    pub lease: Lease<T>,
    /// Bytes received.
    pub len: usize,
    /// Data that travelled outside the tag.
    pub data: u64,
    /// The message's tag bits.
    pub tag: u64,
}

/// An operation that failed.
pub struct Failure<T> {
    /// The operation; `None` when the provider names none.
    pub lease: Option<Lease<T>>,
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
pub enum Trouble<T> {
    /// Another thread took it.
    Gone,
    /// An operation failed.
    Operation(Failure<T>),
    /// The queue itself failed, with a positive code: nothing more will come from it.
    Queue(i32),
}

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

struct Inbox {
    entries: Box<[MaybeUninit<sys::fi_cq_tagged_entry>]>,
    next: usize,
    filled: usize,
}

// SAFETY: the raw pointers in the entries are contexts, which any thread may turn into leases.
unsafe impl std::marker::Send for Inbox {}

/// One transmit and one receive queue with the completion queue of both.
pub struct Context<T> {
    tx: *mut sys::fid_ep,
    rx: *mut sys::fid_ep,
    cq: *mut sys::fid_cq,
    entries: Entries,
    inbox: EngineCell<Inbox>,
    cushion: Option<(Cushion, RecvPieces)>,
    // Closed in this order: endpoints before their queue, contexts before their endpoint.
    _tx: Arc<Object>,
    _rx: Arc<Object>,
    _queue: Object,
    _parent: Option<Arc<Object>>,
    _state: PhantomData<Lease<T>>,
}

// SAFETY: the pointers are to objects that the context holds; which calls may overlap was told to
// the provider as its threading level, and the inbox is guarded.
unsafe impl<T> std::marker::Send for Context<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Context<T> {}

/// The error entry with room for fields that newer libraries append (88 bytes in 2.1).
#[derive(Default)]
#[repr(C)]
pub(super) struct ErrorEntry {
    pub(super) entry: sys::fi_cq_err_entry,
    appended: [u64; 4],
}

impl<T> Context<T> {
    pub(super) fn new(
        tx: Arc<Object>,
        rx: Arc<Object>,
        queue: Object,
        parent: Option<Arc<Object>>,
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
        Ok(Self {
            tx: tx_ep,
            rx: rx_ep,
            cq,
            entries,
            inbox: EngineCell::new(inbox),
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

    /// Posts a receive (`fi_trecv(3)`).
    #[inline]
    pub fn recv(
        &self,
        to: Landing,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        if let Some((cushion, receive)) = &self.cushion {
            let pieces = cushion.behind(to.start, to.len);
            let pieces = if to.is_empty() { &pieces[1..] } else { &pieces[..] };
            let (first, count) = (pieces.as_ptr(), pieces.len());
            // SAFETY: the endpoint is open; the pieces are read during the call; `Landing` and `Lease`
            // promise their memory until completion, the context its cushion.
            return posted(unsafe {
                receive(self.rx, first, ptr::null_mut(), count, from.0, bits, ignore, lease.context())
            });
        }
        // SAFETY: the endpoint is open; `Landing` and `Lease` promise their memory until completion.
        posted(unsafe {
            (self.entries.recv)(
                self.rx,
                to.start.cast(),
                to.len,
                ptr::null_mut(),
                from.0,
                bits,
                ignore,
                lease.context(),
            )
        })
    }

    /// Posts a receive into device memory. Only without a cushion: the pieces of one receive are of one kind.
    pub fn recv_device(
        &self,
        to: Landing,
        through: Descriptor,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        debug_assert!(!self.is_cushioned());
        let (start, descriptor) = (to.start.cast(), through.as_ptr());
        // SAFETY: the endpoint is open; `Landing` and `Lease` promise their memory until completion, and
        // the operation's state holds what the descriptor belongs to.
        posted(unsafe {
            (self.entries.recv)(self.rx, start, to.len, descriptor, from.0, bits, ignore, lease.context())
        })
    }

    /// Whether a second piece of memory lies behind every receive.
    pub fn is_cushioned(&self) -> bool {
        self.cushion.is_some()
    }

    /// A message was so many bytes longer than its receive.
    pub fn overran(&self, len: usize) {
        if let Some((cushion, _)) = &self.cushion {
            cushion.shake_out(len);
        }
    }

    /// Posts a send (`fi_tsend(3)`, `fi_tsenddata(3)`), of device memory with its descriptor.
    #[inline]
    pub fn send(
        &self,
        bytes: Payload,
        through: Option<Descriptor>,
        to: Address,
        bits: u64,
        data: Option<u64>,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        let start = bytes.start.cast();
        let descriptor = through.map_or(ptr::null_mut(), Descriptor::as_ptr);
        posted(match data {
            // SAFETY: the endpoint is open; `Payload` and `Lease` promise their memory until completion, and
            // the operation's state holds what a descriptor belongs to.
            None => unsafe {
                (self.entries.send)(self.tx, start, bytes.len, descriptor, to.0, bits, lease.context())
            },
            // SAFETY: as above.
            Some(data) => unsafe {
                (self.entries.send_data)(
                    self.tx,
                    start,
                    bytes.len,
                    descriptor,
                    data,
                    to.0,
                    bits,
                    lease.context(),
                )
            },
        })
    }

    /// Sends bytes that are free again at once and complete silently (`fi_tinject(3)`).
    #[inline]
    pub fn inject(
        &self,
        bytes: Payload,
        to: Address,
        bits: u64,
        data: Option<u64>,
    ) -> std::result::Result<(), PostError> {
        let start = bytes.start.cast();
        posted(match data {
            // SAFETY: the endpoint is open; the bytes are read during the call only.
            None => unsafe { (self.entries.inject)(self.tx, start, bytes.len, to.0, bits) },
            // SAFETY: as above.
            Some(data) => unsafe { (self.entries.inject_data)(self.tx, start, bytes.len, data, to.0, bits) },
        })
    }

    /// Asks whether a message is there (`FI_PEEK`); `claim` takes it out of matching for [`take`](Self::take).
    pub fn peek(
        &self,
        from: Address,
        bits: u64,
        ignore: u64,
        claim: bool,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        let flags =
            u64::from(sys::FI_PEEK) | u64::from(sys::FI_COMPLETION) | if claim { sys::FI_CLAIM } else { 0 };
        let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let message = self.message(&[piece], ptr::null_mut(), from, bits, ignore, lease);
        self.receive_message(&message, flags)
    }

    /// Receives the message that [`peek`](Self::peek) claimed under the same lease, into device memory with its
    /// descriptor (and then [without a cushion](Self::recv_device)).
    pub fn take(
        &self,
        to: Landing,
        through: Option<Descriptor>,
        from: Address,
        bits: u64,
        ignore: u64,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        let piece = libc::iovec { iov_base: to.start.cast(), iov_len: to.len };
        let mut descriptor = through.map_or(ptr::null_mut(), Descriptor::as_ptr);
        let descriptors = if descriptor.is_null() { ptr::null_mut() } else { &raw mut descriptor };
        let pieces = self.cushion.as_ref().map(|(cushion, _)| cushion.behind(to.start, to.len));
        let pieces = match &pieces {
            None => &[piece],
            Some(both) if to.is_empty() => &both[1..],
            Some(both) => &both[..],
        };
        let message = self.message(pieces, descriptors, from, bits, ignore, lease);
        self.receive_message(&message, sys::FI_CLAIM | u64::from(sys::FI_COMPLETION))
    }

    /// Posts a send outside tag matching (`fi_send(3)`).
    pub fn send_untagged(
        &self,
        bytes: Payload,
        to: Address,
        lease: Lease<T>,
    ) -> std::result::Result<(), PostError> {
        let Some(send) = table!(self.tx, msg).send else {
            return Err(PostError::Refused(sys::FI_ENOSYS as i32));
        };
        // SAFETY: the endpoint is open; `Payload` and `Lease` promise their memory until completion.
        posted(unsafe {
            send(self.tx, bytes.start.cast(), bytes.len, ptr::null_mut(), to.0, lease.context())
        })
    }

    /// Posts a receive outside tag matching, from anybody (`fi_recv(3)`).
    pub fn recv_untagged(&self, to: Landing, lease: Lease<T>) -> std::result::Result<(), PostError> {
        let Some(recv) = table!(self.rx, msg).recv else {
            return Err(PostError::Refused(sys::FI_ENOSYS as i32));
        };
        let from = Address::ANY.0;
        // SAFETY: the endpoint is open; `Landing` and `Lease` promise their memory until completion.
        posted(unsafe { recv(self.rx, to.start.cast(), to.len, ptr::null_mut(), from, lease.context()) })
    }

    fn message(
        &self,
        pieces: &[libc::iovec],
        descriptors: *mut *mut c_void,
        peer: Address,
        tag: u64,
        ignore: u64,
        lease: Lease<T>,
    ) -> sys::fi_msg_tagged {
        sys::fi_msg_tagged {
            msg_iov: pieces.as_ptr().cast(),
            desc: descriptors,
            iov_count: pieces.len(),
            addr: peer.0,
            tag,
            ignore,
            context: lease.context(),
            data: 0,
        }
    }

    fn receive_message(
        &self,
        message: &sys::fi_msg_tagged,
        flags: u64,
    ) -> std::result::Result<(), PostError> {
        let Some(receive) = self.entries.recv_message else {
            return Err(PostError::Refused(sys::FI_ENOSYS as i32));
        };
        // SAFETY: the endpoint is open; the message is read during the call; buffers are promised until completion.
        posted(unsafe { receive(self.rx, ptr::from_ref(message), flags) })
    }

    /// Asks the provider to give a receive up; it then fails with `FI_ECANCELED`, or completes.
    pub fn cancel(&self, lease: Lease<T>) {
        if let Some(cancel) = self.entries.cancel {
            // SAFETY: the endpoint is open; an unknown context is ignored (`fi_cancel(3)`).
            unsafe { cancel(self.rx.cast(), lease.context()) };
        }
    }

    /// The next completion, and whether there may be more. Nothing is borrowed once it returns, so
    /// the caller may run the host, which may poll again and goes on where this left off.
    #[inline(always)]
    pub fn poll(&self) -> std::result::Result<(Completion<T>, bool), Pause> {
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
            // SAFETY: every operation posted here was posted with a lease of this `T`.
            let lease = unsafe { Lease::from_context(context) };
            Ok((Completion { lease, len: entry.len, data: entry.data, tag: entry.tag }, more))
        });
        found.unwrap_or(Err(Pause::Empty))
    }

    /// The error behind [`Pause::Error`].
    #[cold]
    pub fn failure(&self, code: isize) -> Trouble<T> {
        if code != -(sys::FI_EAVAIL as isize) {
            return Trouble::Queue(i32::try_from(-code).unwrap_or(i32::MAX));
        }
        let mut room = ErrorEntry::default();
        // SAFETY: the queue is open; the entry has room for what any known version writes.
        let read = unsafe { (self.entries.read_error)(self.cq, (&raw mut room).cast(), 0) };
        let _ = room.appended;
        match read {
            1.. => Trouble::Operation(Failure {
                // SAFETY: every operation posted here was posted with a lease of this `T`.
                lease: NonNull::new(room.entry.op_context)
                    .map(|context| unsafe { Lease::from_context(context) }),
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
