//! The host's accelerator framework: whether this machine has devices, and which one a buffer is on.

use std::ffi::{c_int, c_void};

use super::Own;
use crate::fabric::{Device, Interface};
use crate::host::sys::Component;

/// What the component that the host has selected is called.
fn with_selected<R>(look: impl FnOnce(&[u8]) -> R) -> R {
    let component: Component = Own::host().accelerator_component.get();
    look(component.name.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Whether buffers may be in device memory: the host always selects a component, and `null` where
/// there is no device.
pub(super) fn is_there() -> bool {
    with_selected(|name| !matches!(name, b"" | b"null"))
}

/// The device that an address is on; `None` when libfabric has no name for it.
pub(super) fn device_of(address: *const u8) -> Option<Device> {
    let interface = with_selected(|name| match name {
        b"cuda" => Some(Interface::Cuda),
        b"rocm" => Some(Interface::Rocr),
        b"ze" => Some(Interface::Ze),
        _ => None,
    })?;
    number_of(address.cast()).map(|number| Device { interface, number })
}

/// The number of the device that holds the memory, or of the one in use where the host does not know.
fn number_of(address: *const c_void) -> Option<i32> {
    let functions = Own::host().accelerator.get();
    let mut number: c_int = -1;
    let mut flags = 0_u64;
    // SAFETY: takes any address; the callee writes both numbers.
    let found = unsafe { (functions.check_addr?)(address, &raw mut number, &raw mut flags) };
    // HOST: the stock component registers every buffer under the device in use (mtl_ofi.h, 5.0.7).
    if found <= 0 || number < 0 {
        // SAFETY: the callee writes one number.
        let code = unsafe { (functions.get_device?)(&raw mut number) };
        if code != 0 {
            return None;
        }
    }
    (number >= 0).then_some(number)
}
