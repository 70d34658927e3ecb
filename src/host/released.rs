//! The host tells when memory goes, so that what is known of it is not kept for longer (`opal/memoryhooks/memory.h`).
//!
//! It can where it has its hooks in place, as it has for UCX, libfabric and its own cache of registered memory. It writes them
//! over the first instructions of `munmap` and its like, no matter who is within: a thread that returns from the kernel then
//! finds others. So nobody asks for them who can do without: what is known of pages is known where they are there anyway
//! ([`begin`]). A byte transport that keeps memory registered cannot do without, and [asks](ask) when it is opened, within
//! `MPI_Init`, before it has threads of its own. That is what the host's own transports do at that point: what another thread of
//! the program risks, one that unmaps just then, it risks with them as well.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::services;
use crate::accelerator::host_pages;
use crate::btl::Telling;
use crate::sync::unmapped;

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// What is known of pages goes by it.
static IS_FOR_PAGES: AtomicBool = AtomicBool::new(false);
/// The hooks were asked for, for registered memory.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

fn register() -> bool {
    IS_REGISTERED.load(Ordering::Relaxed)
        || services::register_release(gone) && !IS_REGISTERED.swap(true, Ordering::Relaxed)
}

/// Unless somebody still goes by it.
fn unregister() {
    let is_used = IS_FOR_PAGES.load(Ordering::Relaxed) || IS_ASKED_FOR.load(Ordering::Relaxed);
    if !is_used && IS_REGISTERED.swap(false, Ordering::Relaxed) {
        services::unregister_release(gone);
    }
}

/// From now on it tells of pages, as soon as that is asked for and it can.
pub(super) fn begin() {
    IS_FOR_PAGES.store(true, Ordering::Relaxed);
    host_pages::begin(register);
}

/// No longer.
pub(super) fn end() {
    host_pages::end();
    IS_FOR_PAGES.store(false, Ordering::Relaxed);
    unregister();
}

/// Has it tell of registered memory from now on, with hooks that it puts in place for that, unless the user does not want
/// memory to stay registered (`mpi_leave_pinned` 0; of itself the host decides the same way, `mca_rcache_base_module_create`).
pub(super) fn ask() -> Telling {
    let wanted = services::leaves_pinned();
    if wanted == Some(false) {
        return Telling::Unwanted;
    }
    if IS_ASKED_FOR.swap(true, Ordering::Relaxed) {
        return Telling::Begun;
    }
    if services::open_memory_hooks() {
        if register() && unmapped::begin() {
            return Telling::Begun;
        }
        unmapped::end();
        services::close_memory_hooks();
    }
    IS_ASKED_FOR.store(false, Ordering::Relaxed);
    unregister();
    Telling::Impossible { is_wanted: wanted == Some(true) }
}

/// No longer, if it was asked for.
pub(super) fn ask_no_more() {
    if IS_ASKED_FOR.swap(false, Ordering::Relaxed) {
        unmapped::end();
        unregister();
        services::close_memory_hooks();
    }
}

/// Whoever unmaps calls this, on any thread and with whatever locks: nothing here allocates, waits or panics.
unsafe extern "C" fn gone(start: *mut c_void, len: usize, _: *mut c_void, is_allocators: bool) {
    // HOST: 4.1.4 and 5.0.7 look for the length of a segment of System V in the list of mappings, and tell that of its first
    // mapping alone, or none. All of it lies from here upwards.
    let len = if is_allocators { len } else { usize::MAX };
    host_pages::gone(start.addr(), len);
    unmapped::gone(start.addr(), len);
}
