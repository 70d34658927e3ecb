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

/// `MCA_ACCELERATOR_FLAGS_UNIFIED_MEMORY`: the CPU may touch it.
pub(super) const UNIFIED: u64 = 0x1;

/// Where buffers are and how they are copied, of the accelerator that the host has selected.
#[derive(Clone, Copy)]
pub(super) struct Devices {
    pub(super) check_addr: unsafe extern "C" fn(*const c_void, *mut c_int, *mut u64) -> c_int,
    pub(super) mem_copy:
        unsafe extern "C" fn(c_int, c_int, *mut c_void, *const c_void, usize, c_int) -> c_int,
}

impl Devices {
    /// None before the host has selected one.
    pub(super) fn selected() -> Option<Self> {
        let functions = Own::host().accelerator.get();
        Some(Self { check_addr: functions.check_addr?, mem_copy: functions.mem_copy? })
    }

    /// Whether only a device may touch it.
    pub(super) fn have(self, address: *const c_void) -> bool {
        let (mut device, mut flags) = (-1, 0_u64);
        // SAFETY: takes any address; the callee writes both numbers.
        let found = unsafe { (self.check_addr)(address, &raw mut device, &raw mut flags) };
        found > 0 && flags & UNIFIED == 0
    }
}

/// Whether only a device may touch what is at an address.
pub(super) fn is_out_of_reach(address: *const u8) -> bool {
    Devices::selected().is_some_and(|devices| devices.have(address.cast()))
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
