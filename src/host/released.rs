//! The host tells when memory goes, so that what is known of it is not kept for longer (`opal/memoryhooks/memory.h`).
//!
//! Its own cache of registered memory lives by this, too: `--mca memory ^patcher` switches it off for all.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::services;
use crate::accelerator::host_pages;

static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// From now on. While the host begins, and after its hooks do.
pub(super) fn begin() {
    if !IS_BEGUN.load(Ordering::Relaxed) && services::register_release(gone) {
        IS_BEGUN.store(true, Ordering::Relaxed);
        host_pages::begin();
    }
}

/// No longer.
pub(super) fn end() {
    if IS_BEGUN.swap(false, Ordering::Relaxed) {
        host_pages::end();
        services::unregister_release(gone);
    }
}

/// Whoever unmaps calls this, on any thread and with whatever locks: nothing here allocates, waits or panics.
unsafe extern "C" fn gone(start: *mut c_void, len: usize, _: *mut c_void, _: bool) {
    host_pages::gone(start.addr(), len);
}
