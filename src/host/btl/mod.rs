//! Byte transports behind the host's tables, written once for every version and every transport.
//!
//! `sys` holds the layouts, which 4.1 and 5.0 share; `entry` the functions in the module's table, `transfer`
//! and `atomic` those for registered memory, `argument` what they are passed, as Rust values; `descriptor` the
//! descriptors, `convertor` the host's convertors, `module` a module with what
//! belongs to it and what its transport tells the host, `component` what happens before there is a
//! module, `services` what a transport may ask at any time, `params` and `pvars` what users set and see.
//! Nothing here knows any one transport.

mod argument;
mod atomic;
mod component;
mod convertor;
mod descriptor;
mod entry;
#[cfg(test)]
mod fake;
mod module;
mod params;
mod pvars;
mod services;
pub mod sys;
mod taken;
mod transfer;

pub(super) use component::{Registry, component};
pub(super) use services::Own;

use std::ffi::{c_int, c_void};

use super::abi::{Abi, Patience};
use super::construct::Slot;
use crate::btl::Transport;
use crate::error::Result;

/// What differs between the versions for byte transports.
///
/// # Safety
/// `receive` calls the callback with exactly the version's signature.
pub(super) unsafe trait BtlAbi: Abi {
    /// Version of the framework's interface.
    const TYPE_VERSION: [c_int; 3];
    /// What the error callback is told about a lost peer: whether the job must end.
    const LOSS: i32;
    /// What the error callback is told when device memory for a peer may be registered and got
    /// (`MCA_BTL_ERROR_FLAGS_ADD_ACCELERATOR_IPC`); none where the host does not know it.
    const DEVICES_REACHED: Option<c_int> = None;

    /// What the module's flags say of a device's RDMA where it has atomic operations, besides the transport's own: that a completion
    /// means the memory of the peer (`MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION`), where the host asks.
    const REMOTE_COMPLETION: u32 = 0;

    /// Whether this build's module table has two more fields before its last ones
    /// (`OPAL_CUDA_GDR_SUPPORT`).
    fn has_gdr_fields() -> bool {
        false
    }

    /// Hands a received fragment to the host's callback.
    ///
    /// # Safety
    /// The callback is registered for the tag; the segment is readable for the time of the call.
    unsafe fn receive(
        module: *mut sys::BtlModule,
        endpoint: *mut sys::BtlEndpoint,
        tag: u8,
        message: sys::ActiveMessage,
        segment: sys::Segment,
    );

    /// Publishes something to the job.
    fn publish_under(key: &'static std::ffi::CStr, bytes: &[u8]) -> Result<()>;
    /// What a process published; the name is in the host's own form, job first.
    fn published_under(key: &'static std::ffi::CStr, name: u64, patience: Patience) -> Result<Vec<u8>>;
    /// The name of the host that a process runs on, if the runtime knows it.
    ///
    /// # Safety
    /// A live process of the host's.
    unsafe fn host_name(proc: *const sys::BtlProc) -> Option<String>;
}

/// A byte transport of the list in [`components`](super::components): its statics, which cannot be in
/// generic code.
pub(super) trait Listed: Transport {
    /// Its modules.
    fn registry() -> &'static Registry;
    /// Its exported component structure.
    fn slot() -> &'static Slot;

    /// The component's name without the framework's.
    fn name() -> &'static str {
        Self::COMPONENT.strip_prefix("btl_").unwrap_or(Self::COMPONENT)
    }
}

/// What the runtime calls a host that it does not know.
pub(super) const NOBODY: &str = "unknown";

/// The receive callback of 4.1.
pub(super) type Receive41 = unsafe extern "C" fn(*mut sys::BtlModule, u8, *mut sys::Descriptor, *mut c_void);
/// The receive callback of 5.0.
pub(super) type Receive50 =
    unsafe extern "C" fn(*mut sys::BtlModule, *const super::v5_0::sys::ReceiveDescriptor);
