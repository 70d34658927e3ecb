//! [`Standing`]: an operation that may be posted, as others than who posted it see it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::operation::{Id, Operation, Slot, Work};

/// An operation that may be posted, to be cancelled.
pub struct Standing<'a, W: Work> {
    slot: Slot<W>,
    which: Id,
    alive: PhantomData<&'a ()>,
}

impl<W: Work> Standing<'_, W> {
    /// The one in memory of the host's.
    ///
    /// # Safety
    /// A [`Place`](super::Place) of this memory was [installed](super::Place::install) or
    /// [vacated](super::Place::vacate), and the memory stays for the lifetime.
    pub unsafe fn at(at: NonNull<Operation<W>>) -> Self {
        // SAFETY: the memory of a place, which stays.
        let slot = unsafe { Slot::new(at) };
        Self::of(slot, slot.host_id())
    }

    /// The one of this name, if it lies in this slot, which stays for the lifetime.
    pub(super) fn of(slot: Slot<W>, which: Id) -> Self {
        Self { slot, which, alive: PhantomData }
    }

    /// Which operation.
    pub fn id(&self) -> Id {
        self.which
    }

    /// Notes that it was given up, if it is still the same.
    pub fn give_up(&self) {
        self.slot.give_up(self.which);
    }

    /// What the provider knows the operation by, if it is posted at the object of this address, and it is still
    /// the same.
    pub(super) fn context(&self, at: usize) -> Option<*mut c_void> {
        self.slot.posted_as(self.which, at)
    }
}
