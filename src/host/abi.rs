//! [`Abi`]: what the entry points need to know of one host version.

use std::ffi::c_int;

use super::sys::{Message, MtlRequest, Proc, Status};
use crate::error::Result;
use crate::mtl::{Envelope, Route, Upcalls};

/// `ompi_communicator_t`: an address here; each version has its own fields.
#[repr(C)]
pub struct Communicator {
    _opaque: [u8; 0],
}

/// `opal_convertor_t`: an address here; the fields that are used are a
/// [`ConvertorHead`](super::sys::ConvertorHead), and each version has its own length.
#[repr(C)]
pub struct Convertor {
    _opaque: [u8; 0],
}

/// What the runtime knows about this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFacts {
    /// Rank among the processes of the job on this node.
    pub local_rank: usize,
    /// About how many processes the job has.
    pub universe: usize,
}

/// One version of the host.
///
/// # Safety
/// The layouts of [`sys`](super::sys) are this version's, and so are those that its functions read.
pub unsafe trait Abi: Upcalls {
    /// Whether this version hands out buffers in device memory, described by its accelerator framework.
    const DEVICE: bool;

    /// Whether this version makes communicators whose short id differs from member to member.
    const GROUP_COMMUNICATORS: bool;

    /// Whether the machine has such devices.
    fn has_devices() -> bool;
    /// Major, minor and release number of the host that is running.
    fn version() -> (i32, i32, i32);
    /// The default of `mtl_ofi_provider_exclude` in the host's own component.
    fn default_exclude() -> &'static str;
    /// What the runtime knows about this process.
    fn facts() -> ProcessFacts;
    /// Whether the user has asked for `MPI_THREAD_MULTIPLE` so far: what to expect, and no promise. Sessions
    /// do not show here, and more may be asked for later, or less by `MPI_T_init_thread`.
    fn threads() -> bool;
    /// Publishes the endpoint's name to the job.
    fn publish(name: &[u8]) -> Result<()>;
    /// Registers a progress function.
    fn register_progress(progress: unsafe extern "C" fn() -> c_int) -> c_int;
    /// Takes it back.
    fn unregister_progress(progress: unsafe extern "C" fn() -> c_int) -> c_int;

    /// # Safety
    /// A live communicator of the host.
    unsafe fn comm(raw: *mut Communicator) -> Self::Comm;
    /// # Safety
    /// A live process of the host.
    unsafe fn proc(raw: *mut Proc) -> Self::Proc;
    /// # Safety
    /// A live convertor that stays where it is until the operation completes.
    unsafe fn conv(raw: *mut Convertor) -> Self::Conv;
    /// # Safety
    /// A live request head.
    unsafe fn req(raw: *mut MtlRequest) -> Self::Req;
    /// How the host prepared the convertor of a send with this request; `None` for a blocking one.
    ///
    /// # Safety
    /// A live request head of a send, if any.
    unsafe fn route(request: Option<*mut MtlRequest>) -> Route;
    /// Whether the request is a receive's.
    ///
    /// # Safety
    /// A live request head.
    unsafe fn is_receive(request: *mut MtlRequest) -> bool;

    /// Writes the outcome of a probe.
    ///
    /// # Safety
    /// Null, or a status of the host's.
    unsafe fn write_status(status: *mut Status, envelope: Envelope);
    /// Makes the message of a matched probe, which the transport knows by a number.
    ///
    /// # Safety
    /// A live communicator.
    unsafe fn new_message(comm: *mut Communicator, envelope: Envelope, claim: u64) -> *mut Message;
    /// Takes that number out of a message, gives the message back and puts `MPI_MESSAGE_NULL` in its place.
    ///
    /// # Safety
    /// A message that [`new_message`](Self::new_message) made.
    unsafe fn take_message(message: *mut *mut Message) -> Option<u64>;
    /// The message that stands for none: `MPI_MESSAGE_NULL`.
    fn null_message() -> *mut Message;
}
