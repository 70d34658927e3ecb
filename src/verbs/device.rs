//! The devices of this machine (`ibv_get_device_list(3)`).

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::Context;
use super::library::Library;
use super::{last_error, sys};
use crate::error::Result;

/// What carries the work of a device's queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand, or RoCE, which is InfiniBand's transport over Ethernet.
    Infiniband,
    /// iWARP: over TCP. A local completion says nothing about the peer there, a receive needs a piece, and there are
    /// neither atomics nor immediate data.
    Iwarp,
    /// Any other.
    Other,
}

impl Transport {
    fn of(device: &sys::ibv_device) -> Self {
        match device.transport_type {
            sys::IBV_TRANSPORT_IB => Self::Infiniband,
            sys::IBV_TRANSPORT_IWARP => Self::Iwarp,
            _ => Self::Other,
        }
    }
}

/// Whether the kernel has an RDMA device, as its own list says: asked without loading a library.
pub fn is_any() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// All devices that the kernel lists, those of other networks included.
pub struct Devices {
    library: &'static Library,
    list: NonNull<*mut sys::ibv_device>,
    count: usize,
}

// SAFETY: a list that nobody changes until it is freed; the library counts references to its devices atomically.
unsafe impl Send for Devices {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Devices {}

impl Devices {
    /// The devices as they are now.
    ///
    /// # Errors
    /// [`Error::System`](crate::error::Error::System) or [`Error::Unsupported`](crate::error::Error::Unsupported),
    /// where the kernel knows nothing of such devices.
    pub fn list(library: &'static Library) -> Result<Self> {
        let mut count = 0;
        // SAFETY: one number is written; the list is ours, or null on failure.
        let list = unsafe { (library.device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(last_error)?;
        Ok(Self { library, list, count: usize::try_from(count).unwrap_or(0) })
    }

    /// Each device.
    pub fn iter(&self) -> impl Iterator<Item = Device<'_>> {
        (0..self.count).filter_map(|index| {
            // SAFETY: inside the list.
            let entry = unsafe { self.list.as_ptr().add(index) };
            // SAFETY: an entry of the list, which lives as long as it.
            let raw = unsafe { entry.read() };
            NonNull::new(raw).map(|raw| Device { devices: self, raw })
        })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: the list that the library gave, freed once; contexts hold their devices by themselves.
        unsafe { (self.library.device_list_free)(self.list.as_ptr()) };
    }
}

/// One device of a list.
#[derive(Clone, Copy)]
pub struct Device<'a> {
    devices: &'a Devices,
    raw: NonNull<sys::ibv_device>,
}

impl Device<'_> {
    /// What the kernel calls it, as `mlx5_0`.
    pub fn name(&self) -> String {
        name_of(self.devices.library, self.raw)
    }

    /// Its number, as it is written: the first byte first. 0 where there is none.
    pub fn guid(&self) -> [u8; 8] {
        // SAFETY: a device of a list that is alive.
        unsafe { (self.devices.library.device_guid)(self.raw.as_ptr()) }.to_ne_bytes()
    }

    /// What carries its work.
    pub fn transport(&self) -> Transport {
        transport_of(self.raw)
    }

    /// Opens it by itself. Connections need the context of an [`Id`](super::Id) instead.
    pub fn open(&self) -> Result<Arc<Context>> {
        // SAFETY: a device of a list that is alive; the context is ours, or null on failure.
        let raw = unsafe { (self.devices.library.device_open)(self.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        // SAFETY: just opened, and nobody else has it.
        Ok(unsafe { Context::own(self.devices.library, raw) })
    }
}

/// The name of a device that is alive.
pub(super) fn name_of(library: &Library, device: NonNull<sys::ibv_device>) -> String {
    // SAFETY: a device that is alive.
    let name = unsafe { (library.device_name)(device.as_ptr()) };
    if ptr::eq(name, ptr::null()) {
        return String::new();
    }
    // SAFETY: not null, hence a string that lives as long as the device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The transport of a device that is alive.
pub(super) fn transport_of(device: NonNull<sys::ibv_device>) -> Transport {
    // SAFETY: a device that is alive; the library has written the field before it handed it out, and leaves it.
    Transport::of(unsafe { device.as_ref() })
}
