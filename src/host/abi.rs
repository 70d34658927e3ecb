//! [`Abi`]: what the entry points need to know of one host version.

use std::ffi::c_int;

use crate::error::Result;
use crate::mtl::{Envelope, Route, Upcalls};

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
/// The raw types are the host's own structures, with its layouts, and `module` is filled in with
/// functions of exactly its field types.
pub unsafe trait Abi: Upcalls {
    /// `mca_mtl_base_module_t`
    type RawModule;
    /// `ompi_communicator_t`
    type RawComm;
    /// `ompi_proc_t`
    type RawProc;
    /// `opal_convertor_t`
    type RawConv;
    /// `mca_mtl_request_t`
    type RawReq;
    /// `ompi_message_t`
    type RawMessage;
    /// `ompi_status_public_t`
    type RawStatus;

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
    unsafe fn comm(raw: *mut Self::RawComm) -> Self::Comm;
    /// # Safety
    /// A live process of the host.
    unsafe fn proc(raw: *mut Self::RawProc) -> Self::Proc;
    /// # Safety
    /// A live convertor that stays where it is until the operation completes.
    unsafe fn conv(raw: *mut Self::RawConv) -> Self::Conv;
    /// # Safety
    /// A live request head.
    unsafe fn req(raw: *mut Self::RawReq) -> Self::Req;
    /// How the host prepared the convertor of a send with this request; `None` for a blocking one.
    ///
    /// # Safety
    /// A live request head of a send, if any.
    unsafe fn route(request: Option<*mut Self::RawReq>) -> Route;
    /// Whether the request is a receive's.
    ///
    /// # Safety
    /// A live request head.
    unsafe fn is_receive(request: *mut Self::RawReq) -> bool;

    /// Writes the outcome of a probe.
    ///
    /// # Safety
    /// Null, or a status of the host's.
    unsafe fn write_status(status: *mut Self::RawStatus, envelope: Envelope);
    /// Makes the message of a matched probe, which the transport knows by a number.
    ///
    /// # Safety
    /// A live communicator.
    unsafe fn new_message(comm: *mut Self::RawComm, envelope: Envelope, claim: u64) -> *mut Self::RawMessage;
    /// Takes that number out of a message, gives the message back and puts `MPI_MESSAGE_NULL` in its place.
    ///
    /// # Safety
    /// A message that [`new_message`](Self::new_message) made.
    unsafe fn take_message(message: *mut *mut Self::RawMessage) -> Option<u64>;
    /// The message that stands for none: `MPI_MESSAGE_NULL`.
    fn null_message() -> *mut Self::RawMessage;
}
