//! The host's accelerator framework: whether this machine has devices, and which one a buffer is on.

use std::ffi::{c_int, c_void};

use super::Own;
use crate::accelerator::Accelerator;
use crate::fabric::{Device, Interface};
use crate::host::accelerator as devices;
use crate::host::btl::sys::BtlModule;
use crate::host::copy_hook::refusal;
use crate::host::symbols::Loaded;
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
    pub(super) check_addr: devices::CheckAddress,
    pub(super) mem_copy: devices::Copy,
}

impl Devices {
    /// None before the host has selected one.
    pub(super) fn selected() -> Option<Self> {
        let functions = Own::host().accelerator.get();
        Some(Self { check_addr: functions.check_addr?, mem_copy: functions.mem_copy? })
    }

    /// Those of an accelerator of ours, where the host knows none.
    pub(super) fn of<T: Accelerator>() -> Self {
        let (check_addr, mem_copy) = devices::functions::<T>();
        Self { check_addr, mem_copy }
    }

    /// The same, but what would have to be copied is refused.
    pub(super) fn refused<T: Accelerator>() -> Self {
        unsafe extern "C" fn refuse(
            _: c_int,
            _: c_int,
            _: *mut c_void,
            _: *const c_void,
            _: usize,
            _: c_int,
        ) -> c_int {
            refusal::end(refusal::Why::Copy)
        }
        Self { mem_copy: refuse, ..Self::of::<T>() }
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

/// Has messages of a process to itself be sent, and not put or got.
///
/// HOST: what 5.0.7's own transport for these puts and gets, it copies with the processor, wherever the memory is: a
/// message from the host's memory to a device's ends the process (`btl_self.c`). What is sent, the matching layer
/// copies, which knows better, once and no slower. Who calls us is that layer, before it reads these flags.
pub(in crate::host) fn send_to_self() {
    /// `MCA_BTL_FLAGS_PUT`, `MCA_BTL_FLAGS_GET`
    const TRANSFERS: u32 = 0x2 | 0x4;
    let Some(library) = Loaded::find(c"libopen-pal.so.80") else { return };
    // A host that has it as a component of its own keeps it as it is.
    let Ok(module) = library.symbol(c"mca_btl_self") else { return };
    let module = module.cast::<BtlModule>().as_ptr();
    // SAFETY: the host's module, which stays; it is set up, and nobody else writes it.
    let flags = unsafe { &raw mut (*module).flags };
    // SAFETY: a number in it.
    let before = unsafe { flags.read() };
    // SAFETY: the same.
    unsafe { flags.write(before & !TRANSFERS) };
}
