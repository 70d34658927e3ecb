//! [`Abi`]: what the entry points need to know of one host version.

use std::sync::atomic::AtomicUsize;

use super::mtl::Comm;
use super::sys::ProcessName;
use crate::error::Result;
use crate::fabric::Device;

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

/// How long is waited for what a process publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As long as the runtime does.
    Waits,
    /// Not at all: the runtime's server on this node has it, or has not.
    Immediate,
}

/// Where a version's communicators have what all versions' have: offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub struct CommunicatorFields {
    /// The id that tags carry: an `u32`.
    pub context_id: usize,
    /// The rank of this process: an `i32`.
    pub rank: usize,
    /// The pointer to the remote group, or the local one: a [`GroupHead`](super::sys::GroupHead).
    pub remote_group: usize,
}

/// One version of the host.
///
/// # Safety
/// The layouts of [`sys`](super::sys) are this version's, and so are the offsets of
/// [`COMMUNICATOR`](Self::COMMUNICATOR).
pub unsafe trait Abi: Copy + Send + Sync + 'static {
    /// Whether this version hands out buffers in device memory, described by its accelerator framework.
    const DEVICE: bool;
    /// Whether this version makes communicators whose short id differs from member to member.
    const GROUP_COMMUNICATORS: bool;
    /// Where its communicators have their fields.
    const COMMUNICATOR: CommunicatorFields;

    /// Whether the machine has such devices.
    fn has_devices() -> bool;
    /// The device that holds the memory at an address; `None` where libfabric has no name for it.
    fn device(address: *const u8) -> Option<Device>;
    /// Whether only a device may touch what is at an address.
    fn is_out_of_reach(address: *const u8) -> bool;
    /// Major, minor and release number of the host that is running.
    fn version() -> (i32, i32, i32);
    /// The default of `mtl_ofi_provider_exclude` in the host's own component.
    fn default_exclude() -> &'static str;
    /// What the runtime knows about this process.
    fn facts() -> ProcessFacts;
    /// Publishes the endpoint's name to the job.
    fn publish(name: &[u8]) -> Result<()>;
    /// The name of the endpoint that a process published.
    fn published(name: ProcessName) -> Result<Vec<u8>>;

    /// Whether a communicator's short id is the same at all its members.
    fn is_global(comm: Comm<Self>) -> bool;
    /// A communicator's long id.
    fn extended_id(comm: Comm<Self>) -> [u64; 2];
    /// The transport's own slot in a communicator, where this version has one.
    fn note<'a>(comm: Comm<Self>) -> Option<&'a AtomicUsize>;

    /// Whether the host that is running only places the convertors of blocking sends and of sends with thin
    /// requests ([`Route::Placed`](crate::fabric::Route::Placed)), and does not prepare them.
    fn places_thin_sends() -> bool;
}
