//! Memory: what is copied, what is allocated on a device, what of the host's is pinned.

use super::context::Context;
use super::library::{Driver, Result, checked};
use super::sys;

/// Bytes of a piece that takes the way through host memory.
const DETOUR: usize = 1 << 20;

/// A copy that is to be made.
///
/// INVARIANT: the memory it is made from may be read and the memory it is made to may be written, by who has to
/// (the processor, the device, or the driver for both), for as long as the copy takes; nobody else uses the
/// latter meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    to: *mut u8,
    from: *const u8,
    len: usize,
}

// SAFETY: addresses; that their memory may be used holds on every thread, by the invariant.
unsafe impl Send for Transfer {}

impl Transfer {
    /// # Safety
    /// As the invariant of the type says.
    pub unsafe fn new(to: *mut u8, from: *const u8, len: usize) -> Self {
        Self { to, from, len }
    }

    /// Where it is made to.
    pub fn to(&self) -> usize {
        self.to.addr()
    }

    /// Where it is made from.
    pub fn from(&self) -> usize {
        self.from.addr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.len == 0 || self.to.cast_const() == self.from
    }

    /// Whether both ranges share bytes.
    pub fn overlaps(&self) -> bool {
        self.to().abs_diff(self.from()) < self.len
    }

    /// Makes the copy with the processor: both ranges are the host's.
    pub fn by_processor(&self) {
        // SAFETY: readable and writable, by the invariant; both may overlap.
        unsafe { std::ptr::copy(self.from, self.to, self.len) };
    }

    /// Makes the copy by way of host memory: `step` makes the copies to it and from it, which are over when it
    /// returns.
    ///
    /// # Errors
    /// The first of `step`.
    pub fn by_way_of_host(&self, mut step: impl FnMut(Self) -> Result<()>) -> Result<()> {
        let mut room = vec![0_u8; self.len.min(DETOUR)];
        for offset in (0..self.len).step_by(DETOUR) {
            let len = (self.len - offset).min(DETOUR);
            step(Self { to: room.as_mut_ptr(), from: self.from.wrapping_add(offset), len })?;
            step(Self { to: self.to.wrapping_add(offset), from: room.as_ptr(), len })?;
        }
        Ok(())
    }

    /// The copy of some of the bytes.
    pub(super) fn part(&self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.len && len <= self.len - offset, "a part of the copy");
        Self { to: self.to.wrapping_add(offset), from: self.from.wrapping_add(offset), len }
    }

    /// The ranges' pieces of at most so many bytes, in an order in which none is overwritten before it was read, if
    /// each is read whole before it is written.
    pub(super) fn pieces(&self, most: usize) -> impl Iterator<Item = (sys::Address, sys::Address, usize)> {
        let (to, from, len) = (self.to() as u64, self.from() as u64, self.len);
        let count = len.div_ceil(most);
        (0..count).map(move |index| {
            let index = if to < from { index } else { count - 1 - index };
            let at = index * most;
            (to + at as u64, from + at as u64, most.min(len - at))
        })
    }
}

/// Memory of a device that is ours.
pub struct Allocation {
    driver: &'static Driver,
    context: Context,
    address: sys::Address,
}

impl Allocation {
    /// Allocates in a context.
    pub fn new(driver: &'static Driver, context: Context, len: usize) -> Result<Self> {
        let _entered = driver.enter(context)?;
        let mut address = 0;
        // SAFETY: the callee writes one address.
        checked(unsafe { (driver.memory_allocate)(&raw mut address, len) })?;
        Ok(Self { driver, context, address })
    }

    /// Its address.
    pub(super) fn address(&self) -> sys::Address {
        self.address
    }

    /// Lets go of it: the receiver of the address frees it, with [`adopt`](Self::adopt).
    pub fn into_address(self) -> usize {
        let address = self.address;
        std::mem::forget(self);
        address as usize
    }

    /// Takes hold again of what was let go of.
    ///
    /// # Safety
    /// Allocated in this context, and nobody uses it any more.
    pub unsafe fn adopt(driver: &'static Driver, context: Context, address: usize) -> Self {
        Self { driver, context, address: address as u64 }
    }

    /// Frees it, and says how that went.
    pub fn free(self) -> Result<()> {
        let freed = self.give_back();
        std::mem::forget(self);
        freed
    }

    fn give_back(&self) -> Result<()> {
        let _entered = self.driver.enter(self.context)?;
        // SAFETY: allocated in this context, ours alone, and given back once.
        checked(unsafe { (self.driver.memory_free)(self.address) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Where the context has gone, the memory has gone with it.
        let _ = self.give_back();
    }
}

/// Memory of the host's that is pinned, so that devices reach it without a detour.
pub struct Registration {
    driver: &'static Driver,
    context: Context,
    life: u64,
    start: usize,
}

impl Registration {
    /// Pins a range, for all contexts.
    pub fn new(driver: &'static Driver, context: Context, start: usize, len: usize) -> Result<Self> {
        let _entered = driver.enter(context)?;
        let address = std::ptr::without_provenance_mut(start);
        // SAFETY: the driver looks at the pages and refuses what is not the host's; it does not touch the bytes.
        checked(unsafe { (driver.host_register)(address, len, sys::REGISTER_PORTABLE) })?;
        Ok(Self { driver, context, life: driver.life(context), start })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Where the context has gone, nothing is pinned for it any more.
        let Ok(_entered) = self.driver.enter_in(self.context, self.life) else { return };
        let address = std::ptr::without_provenance_mut(self.start);
        // SAFETY: registered, and given back once. Copies that use it are over: who registers unregisters.
        unsafe { (self.driver.host_unregister)(address) };
    }
}
