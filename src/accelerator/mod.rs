//! Accelerators: what the host asks of a component that knows the machine's devices.
//!
//! An [`Accelerator`] says what an address is, and copies to, from and on devices; `host::accelerator` puts it
//! behind the host's table, and `host::components` has the list of them.

#![forbid(unsafe_code)]

mod cuda;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::cuda::{Allocation, Context, Device, Driver, Error, Place, Result, Transfer, host_pages};
pub use cuda::{Cuda, kernel_driver};

/// Something that is counted for the user.
pub struct Counter {
    /// Its name, behind the component's.
    pub name: &'static CStr,
    /// What is counted.
    pub help: &'static CStr,
    /// How often so far.
    pub count: AtomicU64,
}

impl Counter {
    /// Nothing yet.
    pub const fn new(name: &'static CStr, help: &'static CStr) -> Self {
        Self { name, help, count: AtomicU64::new(0) }
    }

    fn add(&self, more: usize) {
        self.count.fetch_add(more as u64, Ordering::Relaxed);
    }
}

/// A kind of device.
pub trait Accelerator: Sync + 'static {
    /// The component's name.
    const NAME: &'static CStr;
    /// Its streams. They come to life with their first copy: the host makes some before the program has chosen
    /// a device.
    type Stream: Default + Send + Sync;
    /// Its marks in streams, which come to life when they are first set.
    type Event: Default + Send + Sync;

    /// The one of this process.
    fn the() -> &'static Self;
    /// What is counted.
    fn counters() -> &'static [&'static Counter];

    /// Whether there may be devices. `named` says that the user has asked for this accelerator by its name.
    fn is_there(&self, named: bool) -> bool;
    /// Whether the program has begun to use devices, as far as can be seen without a question to the driver.
    fn is_in_use(&self) -> bool;
    /// What an address is.
    fn place(&self, address: usize) -> Result<Place>;
    /// Begins a copy behind those of the stream.
    fn begin(&self, transfer: Transfer, stream: &Self::Stream) -> Result<()>;
    /// Sets an event to where a stream is.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;
    /// Whether the stream has come to the event; so it has if it was never set.
    fn is_reached(&self, event: &Self::Event) -> Result<bool>;
    /// Makes a copy; the ranges may overlap.
    fn copy(&self, transfer: Transfer) -> Result<()>;
    /// Allocates on a device, or on that in use.
    fn allocate(&self, device: Option<i32>, len: usize) -> Result<Allocation>;
    /// What is needed to take an allocation back: the driver, and the context of an address.
    fn owner(&self, address: usize) -> Result<(&'static Driver, Context)>;
    /// Where the allocation that an address lies in begins, and its length.
    fn range(&self, address: usize) -> Result<(usize, usize)>;
    /// The number of that allocation.
    fn buffer_id(&self, address: usize) -> Result<u64>;
    /// Pins memory of the host's, now or as soon as there is a device to pin it for.
    fn register(&self, start: usize, len: usize) -> Result<()>;
    /// Takes that back.
    fn unregister(&self, start: usize) -> Result<()>;
    /// The device in use on this thread.
    fn device(&self) -> Result<i32>;
    /// Domain, bus, device and function of a device on the PCI bus.
    fn pci(&self, device: i32) -> Result<[u16; 4]>;
    /// Whether a device can reach the memory of another.
    fn reaches(&self, device: i32, other: i32) -> Result<bool>;
    /// Gives everything back: the host ends.
    fn end(&self);
}
