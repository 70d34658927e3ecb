//! What C sees of matching transports, behind what [`abi`](crate::capi::abi) has for all. Nothing here does anything.

use std::ffi::{c_char, c_void};

use crate::capi::abi::{Endpoint, Host, Peer};

/// Of a matching send: it is over when the receiver has begun to receive it, and not before.
pub const HAWSER_SYNCHRONOUS: u32 = 4;

/// Of a receive or a probe: any tag.
pub const HAWSER_ANY_TAG: i32 = -1;

/// A module of a matching transport. From `init`; borrowed from its component until `finalize` or `close`. All zeros
/// are none, here and in the handles below.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtl {
    /// Opaque.
    pub id: u64,
}

/// A send or receive that has begun. Borrowed from its module until its callback is called.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Opaque.
    pub id: u64,
}

/// A message that `improbe` has taken out of matching. Owned by whoever has it, until `imrecv` takes it: it must be
/// received.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Opaque.
    pub id: u64,
}

/// What is known of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Bytes of this structure: `sizeof(struct hawser_envelope)`. Who passes one sets it.
    pub size: usize,
    /// Bytes of the message; of a receive: those that it has written.
    pub length: usize,
    /// Who has sent it; zeros for a process that is not added.
    pub source: Endpoint,
    /// The rank of that process, as the message says it: the upper half of its name.
    pub rank: i32,
    /// The tag.
    pub tag: i32,
}

/// A send or receive has ended: what it used is the caller's again, and its handle is stale. HAWSER_SUCCESS, or why it
/// has failed: HAWSER_ERR_TRUNCATED, HAWSER_ERR_CANCELLED, HAWSER_ERR_UNREACHABLE, HAWSER_ERR_SYSTEM (the network has
/// failed; as a rule the peer is lost), HAWSER_ERR_CLOSED. The envelope is that of a receive, borrowed for the time of
/// the call, and NULL for a send; of one that is cancelled or has failed it says nothing. It may be called in any
/// function of the module, and in `progress` and `close`, by any thread that is there. Every function may be called in
/// it but those that end what it was called from: `finalize` and `close` return HAWSER_ERR_BUSY, or
/// HAWSER_ERR_STATE where they have been called already. A callback that makes
/// progress may be called back in it, and that one again; where a thousand calls of the module lie in one another,
/// `progress`, `send`, `isend` and the probes return HAWSER_ERR_BUSY, too, and nothing has happened.
pub type Matched = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        module: Mtl,
        request: Request,
        status: i32,
        envelope: *const Envelope,
    ),
>;

/// What a module can match. The caller sets `size`; so much is filled in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MtlLimits {
    /// Bytes of this structure: `sizeof(struct hawser_mtl_limits)`.
    pub size: usize,
    /// Greatest context id.
    pub max_context: u32,
    /// Greatest tag.
    pub max_tag: i32,
    /// Greatest rank of a process: the upper half of its name.
    pub max_rank: i32,
    /// 0
    pub reserved: u32,
}

/// The functions of a module: messages are matched as MPI matches them. A message has a context (as a communicator has:
/// who receives in another does not see it), a source and a tag; a receive asks for a context, for one source or any
/// (an endpoint of zeros), and for one tag or any (HAWSER_ANY_TAG). Of two messages from one process to another that
/// both match a receive, the first that was sent is received first. Buffers are one piece of host memory.
///
/// All may be called by any thread at any time. A handle that is not the module's is HAWSER_ERR_STALE; NULL where
/// something must be, a context or a tag out of its range, and a length that nothing has, are HAWSER_ERR_ARGUMENT;
/// nothing has happened then.
#[repr(C)]
pub struct MtlModule {
    /// Bytes of this structure.
    pub size: usize,
    /// HAWSER_ABI
    pub abi: u32,
    /// 0
    pub reserved: u32,
    /// Fills in what the module can match.
    pub limits: unsafe extern "C" fn(module: Mtl, limits: *mut MtlLimits) -> i32,
    /// Makes peers known, by what they have published; this process may be one of them. `endpoints` has room for as
    /// many, and gets zeros for those that are not reached. A peer that was added before has the same endpoint again.
    /// Two peers of one rank, or a rank that is too great, are HAWSER_ERR_ARGUMENT.
    pub add_peers:
        unsafe extern "C" fn(module: Mtl, count: usize, peers: *const Peer, endpoints: *mut Endpoint) -> i32,
    /// Forgets peers. HAWSER_ERR_BUSY while a send to one of them, or a receive or a probe from one of them alone, is
    /// under way, in another thread or in the call whose callback asks for it. Nothing happens then, nor if one of the
    /// handles is stale; zeros are passed over. Other threads make no progress meanwhile, unless the peers have heard of
    /// the receipt of all that they sent with HAWSER_SYNCHRONOUS.
    pub del_peers: unsafe extern "C" fn(module: Mtl, count: usize, endpoints: *const Endpoint) -> i32,
    /// The name of the process behind an endpoint.
    pub peer_name: unsafe extern "C" fn(module: Mtl, endpoint: Endpoint, name: *mut u64) -> i32,
    /// Sends, and returns when the memory is the caller's again: it makes progress meanwhile, so that callbacks are
    /// called, and waits for as long as it takes; if the peer's process is stopped, until that goes on. Nobody ends it
    /// before: who must not wait so long takes `isend`. `flags` are HAWSER_SYNCHRONOUS.
    pub send: unsafe extern "C" fn(
        module: Mtl,
        to: Endpoint,
        context_id: u32,
        tag: i32,
        data: *const c_void,
        length: usize,
        flags: u32,
    ) -> i32,
    /// Starts a send. HAWSER_SUCCESS: the memory is borrowed, and nobody writes there, until the callback, which must
    /// be there, tells the end, once, and not before this returns in this thread. HAWSER_DONE: it is over, the memory is
    /// the caller's again, nothing follows, and the request is zeros. An error: nothing was sent. HAWSER_ERR_AGAIN: there
    /// has been no room for some passes of progress, as before the peer has taken the connection, or while its process
    /// is stopped; make progress, and send it again.
    pub isend: unsafe extern "C" fn(
        module: Mtl,
        to: Endpoint,
        context_id: u32,
        tag: i32,
        data: *const c_void,
        length: usize,
        flags: u32,
        callback: Matched,
        context: *mut c_void,
        request: *mut Request,
    ) -> i32,
    /// Starts a receive into so many bytes, which are borrowed, and nobody touches, until the callback, which must be
    /// there, tells the end, once, and not before this returns in this thread. A message that is longer is cut short:
    /// HAWSER_ERR_TRUNCATED.
    pub irecv: unsafe extern "C" fn(
        module: Mtl,
        from: Endpoint,
        context_id: u32,
        tag: i32,
        data: *mut c_void,
        length: usize,
        callback: Matched,
        context: *mut c_void,
        request: *mut Request,
    ) -> i32,
    /// Whether a message is there that nobody has received: HAWSER_SUCCESS, and the envelope says which;
    /// HAWSER_ERR_NOT_FOUND: there is none. Makes progress now and then.
    pub iprobe: unsafe extern "C" fn(
        module: Mtl,
        from: Endpoint,
        context_id: u32,
        tag: i32,
        envelope: *mut Envelope,
    ) -> i32,
    /// As `iprobe`; and the message that is found is nobody else's to receive. It is the caller's, until `imrecv`.
    pub improbe: unsafe extern "C" fn(
        module: Mtl,
        from: Endpoint,
        context_id: u32,
        tag: i32,
        envelope: *mut Envelope,
        message: *mut Message,
    ) -> i32,
    /// Starts the receive of such a message, as `irecv` does. From here on the message is not the caller's, unless this
    /// returns HAWSER_ERR_ARGUMENT, HAWSER_ERR_STALE or HAWSER_ERR_MEMORY.
    pub imrecv: unsafe extern "C" fn(
        module: Mtl,
        message: Message,
        data: *mut c_void,
        length: usize,
        callback: Matched,
        context: *mut c_void,
        request: *mut Request,
    ) -> i32,
    /// Gives a receive up, if it has matched nothing yet: its callback tells HAWSER_ERR_CANCELLED then, and in any case
    /// how it has ended, perhaps in this call. A send is HAWSER_ERR_UNSUPPORTED; what has ended is HAWSER_ERR_STALE.
    pub cancel: unsafe extern "C" fn(module: Mtl, request: Request) -> i32,
    /// The value of a counter; hawser-ofi(7) names them. They count for the whole process, Open MPI's use included.
    pub counter: unsafe extern "C" fn(module: Mtl, name: *const c_char, value: *mut u64) -> i32,
    /// Ends the module. Who wants to be sure that its last messages have arrived sends them synchronously, or hears of
    /// it before. Callbacks that are still owed are called with HAWSER_ERR_CLOSED before it returns; all handles are
    /// stale then. HAWSER_ERR_BUSY while another call of the module runs.
    pub finalize: unsafe extern "C" fn(module: Mtl) -> i32,
}

/// The functions of a component: `open`, `register_parameters`, `init`, then its module's, and `close`.
/// Another order is HAWSER_ERR_STATE. It may be open in a process in which Open MPI has the component, too: both have
/// an endpoint of their own.
#[repr(C)]
pub struct MtlComponent {
    /// Bytes of this structure.
    pub size: usize,
    /// HAWSER_ABI
    pub abi: u32,
    /// 0
    pub reserved: u32,
    /// `ofi`
    pub name: *const c_char,
    /// The functions of its module.
    pub module: &'static MtlModule,
    /// Takes the component, and copies the caller's table.
    pub open: unsafe extern "C" fn(host: *const Host) -> i32,
    /// Tells `declare` the parameters, and asks `parameter` for their values.
    pub register_parameters: unsafe extern "C" fn() -> i32,
    /// Opens the module, and publishes how it is reached. HAWSER_ERR_NOT_AVAILABLE, and one line in the log, where
    /// there is no libfabric, or no provider of its that can do this.
    pub init: unsafe extern "C" fn(module: *mut Mtl) -> i32,
    /// Sends, receives and calls back what is due. Returns how much happened, or an error.
    pub progress: unsafe extern "C" fn() -> i32,
    /// Ends the module if it is left, as `finalize` does, and gives the component back. It may be opened again.
    pub close: unsafe extern "C" fn() -> i32,
}

// SAFETY: constants and functions; the name is a literal.
unsafe impl Sync for MtlComponent {}
