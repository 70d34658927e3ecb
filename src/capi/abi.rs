//! What C sees: handles, the caller's table, the tables of components and modules. Nothing here does anything.
//!
//! Tables and structures grow at their ends; `size` says how much of them is there. A change of what is there is
//! another [`HAWSER_ABI`].

use std::ffi::{c_char, c_void};

/// The version of the structures and tables of this header.
pub const HAWSER_ABI: u32 = 1;

/// A level of `hawser_host.log`: something does not work.
pub const HAWSER_LOG_ERROR: u32 = 0;
/// Something that the user should know.
pub const HAWSER_LOG_WARNING: u32 = 1;
/// What is chosen and why.
pub const HAWSER_LOG_INFO: u32 = 2;

/// One thread calls hawser.
pub const HAWSER_THREAD_SINGLE: u32 = 0;
/// Any threads do, at any time.
pub const HAWSER_THREAD_MULTIPLE: u32 = 3;

/// The value of a parameter is an integer.
pub const HAWSER_KIND_INT: u32 = 0;
/// It is an integer that is not negative.
pub const HAWSER_KIND_UNSIGNED: u32 = 1;
/// It is a text.
pub const HAWSER_KIND_TEXT: u32 = 2;
/// It is true or false, or a number that stands for that.
pub const HAWSER_KIND_BOOL: u32 = 3;

/// Of a send: the callback is always called, and not before the peer has the message or its transport has
/// taken it.
pub const HAWSER_AWAITED: u32 = 1;
/// Of a send: it may overtake what was sent before.
pub const HAWSER_PRIORITY: u32 = 2;

/// Of registered memory: peers may get it.
pub const HAWSER_READ: u32 = 1;
/// Of registered memory: peers may put there.
pub const HAWSER_WRITE: u32 = 2;

/// Of a module: it sends.
pub const HAWSER_CAN_SEND: u32 = 1;
/// It puts. This may go when a peer is added that does not let it.
pub const HAWSER_CAN_PUT: u32 = 2;
/// It gets. This may go when a peer is added that does not let it.
pub const HAWSER_CAN_GET: u32 = 4;
/// It gets from the memory of CUDA devices, and to it.
pub const HAWSER_CAN_DEVICES: u32 = 16;

/// Bytes of a hawser_remote.
pub const HAWSER_REMOTE_BYTES: usize = 256;

/// A module: one network interface, or the shared memory of the node. From `module_at`; borrowed from its
/// component until `finalize` or `close`. All zeros are none, here and in the handles below.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Btl {
    /// Opaque.
    pub id: u64,
}

/// A peer as a module reaches it. Borrowed from the module until `del_peers` or `finalize`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Opaque.
    pub id: u64,
}

/// Something to send. Owned by whoever has it from `alloc` or `prepare_src`, until `send` takes it or `free`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Opaque.
    pub id: u64,
}

/// Memory that is open to peers. Owned by whoever has registered it, until `deregister_memory` or `finalize`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Opaque.
    pub id: u64,
}

/// The name of registered memory for peers: plain bytes, which any means may carry. What is not of
/// `memory_key` is refused as far as that can be seen; peers that put and get are trusted with the memory
/// that is open to them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Remote {
    /// Opaque.
    pub bytes: [u8; HAWSER_REMOTE_BYTES],
}

/// A process to reach.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its name, as its own `hawser_host.name` says it.
    pub name: u64,
    /// The node that it runs on, for messages to people; NULL: not known.
    pub node: *const c_char,
}

/// A parameter, as `declare` is told of it. All texts are borrowed for the time of the call.
#[repr(C)]
pub struct Parameter {
    /// Bytes of this structure.
    pub size: usize,
    /// Its whole name: `btl_smcuda_eager_limit`.
    pub name: *const c_char,
    /// What it does.
    pub help: *const c_char,
    /// Its value where nothing is said; NULL: none.
    pub default_value: *const c_char,
    /// HAWSER_KIND_*
    pub kind: u32,
    /// For whom: 1 for every user to 9 for developers.
    pub level: u32,
}

/// Publishes a record of this process to the others: `length` bytes under a key, borrowed for the call.
/// Returns HAWSER_SUCCESS or an error. The record is to be had by `lookup` before the peers are added.
pub type Publish = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        bytes: *const c_void,
        length: usize,
    ) -> i32,
>;
/// Looks up what a process has published under a key. `*length` is the room in `buffer` and becomes the
/// length of the record. Returns HAWSER_SUCCESS; HAWSER_ERR_TOO_LONG where there is too little room, and says
/// in `*length` how much it wants; or HAWSER_ERR_NOT_FOUND.
/// Peers are looked up when they are added, and those that were not, or were deleted, when they send.
pub type Lookup = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_char,
        name: u64,
        buffer: *mut c_void,
        length: *mut usize,
    ) -> i32,
>;
/// The value of a parameter as text, or NULL for its default. The text is borrowed until the next call.
/// Numbers are read as Open MPI reads them: `12`, `0x10`, `8k`, `1G`.
pub type Value = Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char) -> *const c_char>;
/// Told of each parameter that there is.
pub type Declare = Option<unsafe extern "C" fn(context: *mut c_void, parameter: *const Parameter)>;
/// Told one line for people, without an end of line; HAWSER_LOG_*.
pub type Log = Option<unsafe extern "C" fn(context: *mut c_void, level: u32, line: *const c_char)>;

/// What the caller gives: who it is, and its functions. Copied by `open`; the caller keeps `context`, and
/// what the functions use, until `close`. The functions are called by threads that are in a function of
/// hawser's, never by others; they may call everything but `open`, `init`, `finalize` and `close`, and
/// return: no exceptions, no longjmp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Host {
    /// Bytes of this structure: `sizeof(struct hawser_host)`.
    pub size: usize,
    /// HAWSER_ABI
    pub abi: u32,
    /// How many threads will call, HAWSER_THREAD_*. Nothing is cheaper for less; a wrong promise does no
    /// harm.
    pub threads: u32,
    /// The name of this process, unique among those that talk: the number of its job in the lower half, its
    /// rank in the upper. Those of one job on one node share helpers.
    pub name: u64,
    /// The name of this node, for messages to people; NULL: not known. Copied.
    pub node: *const c_char,
    /// For the functions.
    pub context: *mut c_void,
    /// Must be there.
    pub publish: Publish,
    /// Must be there.
    pub lookup: Lookup,
    /// NULL: all parameters have their defaults.
    pub parameter: Value,
    /// NULL: nobody wants to know.
    pub declare: Declare,
    /// NULL: lines go to standard error.
    pub log: Log,
    /// Not 0: say what is chosen and why.
    pub verbose: u32,
    /// 0
    pub reserved: u32,
}

/// A message has arrived. The bytes are borrowed for the time of the call; another process may be able to
/// write there meanwhile: copy first what is to be believed. It may be called in any function of the module
/// that makes progress: `progress`, `flush`, `del_peers`, `finalize`. Every function may be called in it but
/// those that end what it was called from: `finalize` and `close` return HAWSER_ERR_BUSY, or
/// HAWSER_ERR_STATE where they have been called already. A callback that makes
/// progress may be called back in it, and that one again; where a thousand calls of a module lie in one another,
/// `progress` and `flush` return HAWSER_ERR_BUSY, too. So in the other callbacks.
pub type Received = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        module: Btl,
        endpoint: Endpoint,
        tag: u8,
        bytes: *const c_void,
        length: usize,
    ),
>;
/// A send, PUT or GET has ended: what it used is the caller's again. HAWSER_SUCCESS, or why it has failed.
pub type Completed =
    Option<unsafe extern "C" fn(context: *mut c_void, module: Btl, endpoint: Endpoint, status: i32)>;
/// A peer is lost: its process has ended, or does what none should. What was under way to it ends with an
/// error; the endpoint is the caller's to delete.
pub type Lost =
    Option<unsafe extern "C" fn(context: *mut c_void, module: Btl, endpoint: Endpoint, name: u64)>;

/// What a module is good for. The caller sets `size`; so much is filled in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BtlLimits {
    /// Bytes of this structure: `sizeof(struct hawser_btl_limits)`.
    pub size: usize,
    /// Longest message that should be sent without asking the receiver, in bytes.
    pub eager: usize,
    /// Data that should go with the announcement of a longer one, in bytes.
    pub rndv_eager: usize,
    /// Longest fragment, in bytes.
    pub max_send: usize,
    /// HAWSER_CAN_*
    pub flags: u32,
    /// Modules of lower value are not worth using beside this one.
    pub exclusivity: u32,
    /// Rank by latency; lower is better.
    pub latency: u32,
    /// Mbit/s
    pub bandwidth: u32,
    /// The network interface, or what else it is; ends with zero.
    pub device: [c_char; 64],
}

/// The functions of a module. All may be called by any thread at any time. A handle that is not the module's
/// is HAWSER_ERR_STALE; NULL where something must be is HAWSER_ERR_ARGUMENT; nothing has happened then.
#[repr(C)]
pub struct BtlModule {
    /// Bytes of this structure.
    pub size: usize,
    /// HAWSER_ABI
    pub abi: u32,
    /// 0
    pub reserved: u32,
    /// Fills in what the module is good for.
    pub limits: unsafe extern "C" fn(module: Btl, limits: *mut BtlLimits) -> i32,
    /// Makes peers known: `endpoints` has room for as many, and gets zeros for those that are not reached
    /// through this module. A peer that was added before has the same endpoint again. HAWSER_ERR_BUSY, and
    /// nothing has happened, while one of them is being deleted: in what `del_peers` calls back, for example.
    pub add_peers:
        unsafe extern "C" fn(module: Btl, count: usize, peers: *const Peer, endpoints: *mut Endpoint) -> i32,
    /// Ends connections. What is queued is sent first, for a quarter of a second at most; all that is still
    /// under way ends with an error. Nothing happens if one of the handles is stale; zeros are passed over.
    /// The peers are to be done with this process, too: what they still get from its memory may end only when they
    /// delete it, or when it ends. Who is deleted and keeps its own endpoint meets this process again when that adds it
    /// again: what it sends before it has heard of that arrives then, or ends with an error, if it is awaited. Over `usnic` and
    /// `verbs` this waits until the peers have heard, for two seconds at most. A device of iWARP is not told of arrival: what
    /// one sends by it that has not heard by then may be in vain, whatever its callback says.
    pub del_peers: unsafe extern "C" fn(module: Btl, count: usize, endpoints: *const Endpoint) -> i32,
    /// The name of the process behind an endpoint.
    pub peer_name: unsafe extern "C" fn(module: Btl, endpoint: Endpoint, name: *mut u64) -> i32,
    /// Sets the function for messages with a tag, or takes it away (NULL); what comes without one is dropped.
    /// Tags 0x22 and 0xFF are hawser's. Peers that have not been added may send, too: their endpoints are
    /// new. One that was deleted may be heard only when it has been added again.
    pub register_receive:
        unsafe extern "C" fn(module: Btl, tag: u8, callback: Received, context: *mut c_void) -> i32,
    /// Sets the function for lost peers, or takes it away (NULL).
    pub register_error: unsafe extern "C" fn(module: Btl, callback: Lost, context: *mut c_void) -> i32,
    /// A fragment of so many bytes, up to `max_send`: the caller writes them to `*memory` before `send`.
    pub alloc: unsafe extern "C" fn(
        module: Btl,
        length: usize,
        fragment: *mut Fragment,
        memory: *mut *mut c_void,
    ) -> i32,
    /// A fragment of so many bytes for a header, which the caller writes to `*memory`, and of data that lies
    /// elsewhere. Data is borrowed: nobody writes there before the send has ended. Data on a device is
    /// HAWSER_ERR_UNSUPPORTED.
    pub prepare_src: unsafe extern "C" fn(
        module: Btl,
        header: usize,
        data: *const c_void,
        length: usize,
        fragment: *mut Fragment,
        memory: *mut *mut c_void,
    ) -> i32,
    /// Gives back a fragment that is not going to be sent.
    pub free: unsafe extern "C" fn(module: Btl, fragment: Fragment) -> i32,
    /// Sends a fragment, now or as soon as it can be; `flags` are HAWSER_AWAITED, HAWSER_PRIORITY.
    /// HAWSER_SUCCESS: the callback, if it is not NULL, tells the end, once, and not before this returns.
    /// HAWSER_DONE: it is over, and nothing follows; never of one that is awaited. Either way the fragment is
    /// hawser's. On an error it stays the caller's; HAWSER_ERR_AGAIN: make progress and send it again.
    pub send: unsafe extern "C" fn(
        module: Btl,
        endpoint: Endpoint,
        fragment: Fragment,
        tag: u8,
        flags: u32,
        callback: Completed,
        context: *mut c_void,
    ) -> i32,
    /// Sends a header and data, both of which may be empty, from where they lie; when this returns they are
    /// the caller's again. HAWSER_ERR_AGAIN: there is no room, and nothing was sent.
    pub sendi: unsafe extern "C" fn(
        module: Btl,
        endpoint: Endpoint,
        tag: u8,
        header: *const c_void,
        header_length: usize,
        data: *const c_void,
        length: usize,
    ) -> i32,
    /// Writes to a peer's memory: what it has registered, from an offset on. HAWSER_SUCCESS: the memory here is borrowed
    /// until the callback (which may be NULL; `flush` tells, too). HAWSER_DONE: it is over, and nothing follows. The memory
    /// here need not be registered.
    pub put: unsafe extern "C" fn(
        module: Btl,
        endpoint: Endpoint,
        local: *const c_void,
        length: usize,
        remote: *const Remote,
        offset: u64,
        callback: Completed,
        context: *mut c_void,
    ) -> i32,
    /// Reads a peer's memory, as `put` writes it. Either may be a device's where the module has
    /// HAWSER_CAN_DEVICES.
    pub get: unsafe extern "C" fn(
        module: Btl,
        endpoint: Endpoint,
        local: *mut c_void,
        length: usize,
        remote: *const Remote,
        offset: u64,
        callback: Completed,
        context: *mut c_void,
    ) -> i32,
    /// Opens memory to peers, HAWSER_READ, HAWSER_WRITE or both. It is borrowed until `deregister_memory`.
    pub register_memory: unsafe extern "C" fn(
        module: Btl,
        address: *mut c_void,
        length: usize,
        access: u32,
        memory: *mut Memory,
    ) -> i32,
    /// Opens memory of a CUDA device, for one peer to read. Where the program has not loaded the CUDA driver,
    /// or the address is host memory: HAWSER_ERR_UNSUPPORTED.
    pub register_device: unsafe extern "C" fn(
        module: Btl,
        endpoint: Endpoint,
        address: *mut c_void,
        length: usize,
        memory: *mut Memory,
    ) -> i32,
    /// The name of registered memory, for peers.
    pub memory_key: unsafe extern "C" fn(module: Btl, memory: Memory, remote: *mut Remote) -> i32,
    /// Closes memory again. A PUT or GET that is under way may still touch it: end those first.
    pub deregister_memory: unsafe extern "C" fn(module: Btl, memory: Memory) -> i32,
    /// Makes progress until all that this process has sent, put and got with an endpoint is over (with all,
    /// if it is zeros), or so many milliseconds are: HAWSER_ERR_TIMEOUT.
    pub flush: unsafe extern "C" fn(module: Btl, endpoint: Endpoint, milliseconds: u32) -> i32,
    /// Says in the log what there is to say about an endpoint, or the module (zeros).
    pub dump: unsafe extern "C" fn(module: Btl, endpoint: Endpoint) -> i32,
    /// The value of a counter; the manual page of the transport names them.
    pub counter: unsafe extern "C" fn(module: Btl, name: *const c_char, value: *mut u64) -> i32,
    /// Ends the module, its connections first, as `del_peers` does. Callbacks that are still owed are called
    /// with HAWSER_ERR_CLOSED before it returns; all handles are stale then. HAWSER_ERR_BUSY while another
    /// call of the module runs.
    pub finalize: unsafe extern "C" fn(module: Btl) -> i32,
}

/// The functions of a component: `open`, `register_parameters`, `init`, then its modules', and `close`.
/// Another order is HAWSER_ERR_STATE. A component has one user in a process.
#[repr(C)]
pub struct BtlComponent {
    /// Bytes of this structure.
    pub size: usize,
    /// HAWSER_ABI
    pub abi: u32,
    /// 0
    pub reserved: u32,
    /// `smcuda`, `usnic`, `verbs`
    pub name: *const c_char,
    /// The functions of its modules.
    pub module: &'static BtlModule,
    /// Takes the component, and copies the caller's table. HAWSER_ERR_BUSY where Open MPI has it in this
    /// process.
    pub open: unsafe extern "C" fn(host: *const Host) -> i32,
    /// Tells `declare` the parameters, and asks `parameter` for their values.
    pub register_parameters: unsafe extern "C" fn() -> i32,
    /// Opens the modules, publishes how they are reached, and says how many there are.
    pub init: unsafe extern "C" fn(count: *mut usize) -> i32,
    /// A module, counted from 0. HAWSER_ERR_NOT_FOUND: there are not so many, or it has ended.
    pub module_at: unsafe extern "C" fn(index: usize, module: *mut Btl) -> i32,
    /// Receives, calls back, and does what is due, in all modules. Returns how much happened, or an error.
    pub progress: unsafe extern "C" fn() -> i32,
    /// Ends the modules that are left, as `finalize` does, and gives the component back. It may be opened
    /// again.
    pub close: unsafe extern "C" fn() -> i32,
}

// SAFETY: constants and functions; the name is a literal.
unsafe impl Sync for BtlComponent {}
