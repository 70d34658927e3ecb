//! The host tells when memory goes, so that what is known of it is not kept for longer (`opal/memoryhooks/memory.h`).
//!
//! It can where it has its hooks in place, as it has for UCX, libfabric and its own cache of registered memory. They are not
//! asked for: the host writes them over the first instructions of `munmap` and its like, no matter who is within, and a
//! thread that returns from the kernel then finds others.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::services;
use crate::accelerator::host_pages;

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// From now on it tells, as soon as that is asked for and it can.
pub(super) fn begin() {
    host_pages::begin(|| {
        IS_REGISTERED.load(Ordering::Relaxed)
            || services::register_release(gone) && !IS_REGISTERED.swap(true, Ordering::Relaxed)
    });
}

/// No longer.
pub(super) fn end() {
    host_pages::end();
    if IS_REGISTERED.swap(false, Ordering::Relaxed) {
        services::unregister_release(gone);
    }
}

/// Whoever unmaps calls this, on any thread and with whatever locks: nothing here allocates, waits or panics.
unsafe extern "C" fn gone(start: *mut c_void, len: usize, _: *mut c_void, is_allocators: bool) {
    // HOST: 4.1.4 and 5.0.7 look for the length of a segment of System V in the list of mappings, and tell that of its first
    // mapping alone, or none. All of it lies from here upwards.
    host_pages::gone(start.addr(), if is_allocators { len } else { usize::MAX });
}
