//! A module as the host holds it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::argument::{AllPrepared, ThinPlaced};
use super::{MtlAbi, entry};
use crate::fabric::Operation;
use crate::host::entry::Module;
use crate::host::foreign::Opaque;
use crate::host::services;
use crate::host::sys::MtlModule;
use crate::mtl::Matcher;

/// The host's table, which the host may write, and the transport behind it: the table first, so that its
/// address is the module's.
#[repr(C)]
pub(super) struct Shell<A, M> {
    table: Opaque<MtlModule>,
    pub(super) matcher: M,
    progress: unsafe extern "C" fn() -> c_int,
    /// Whether the host calls that.
    progressing: AtomicBool,
    abi: PhantomData<fn() -> A>,
}

/// The module that the argument-less progress function serves: the host uses one matching transport.
///
/// INVARIANT: null, or the only module that the host has: there is no other until this one has come back.
static ACTIVE: AtomicPtr<MtlModule> = AtomicPtr::new(ptr::null_mut());

/// Whether the host has a module.
pub(super) fn is_in_use() -> bool {
    !ACTIVE.load(Ordering::Relaxed).is_null()
}

// SAFETY: the table is the first field, opaque, and a module is boxed before the host gets its address.
unsafe impl<A: MtlAbi, M: Matcher<A>> Module for Shell<A, M> {
    type Table = MtlModule;
    const NAME: &'static str = "mtl";
}

impl<A: MtlAbi, M: Matcher<A>> Shell<A, M> {
    /// The table, but for the limits, and for a host that only places some convertors.
    const TABLE: MtlModule = {
        let mut table = MtlModule::EMPTY;
        table.request_size = size_of::<Operation<M::Work>>();
        table.flags = A::FLAGS;
        table.add_procs = Some(entry::add_procs::<A, M>);
        table.del_procs = Some(entry::del_procs::<A, M>);
        table.finalize = Some(entry::finalize::<A, M>);
        table.send = Some(entry::send::<A, M, AllPrepared>);
        table.isend = Some(entry::isend::<A, M, AllPrepared>);
        table.irecv = Some(entry::irecv::<A, M>);
        table.iprobe = Some(entry::iprobe::<A, M>);
        table.imrecv = Some(entry::imrecv::<A, M>);
        table.improbe = Some(entry::improbe::<A, M>);
        table.cancel = Some(entry::cancel::<A, M>);
        table.add_comm = Some(entry::add_comm::<A, M>);
        table.del_comm = Some(entry::del_comm::<A, M>);
        table
    };

    pub(super) fn new(matcher: M) -> Self {
        let limits = matcher.limits();
        let mut table = Self::TABLE;
        if A::places_thin_sends() {
            table.send = Some(entry::send::<A, M, ThinPlaced>);
            table.isend = Some(entry::isend::<A, M, ThinPlaced>);
        }
        table.max_contextid = i32::try_from(limits.max_context).unwrap_or(i32::MAX);
        table.max_tag = limits.max_tag;
        Self {
            table: Opaque::new(table),
            matcher,
            progress: entry::progress::<A, M>,
            progressing: AtomicBool::new(false),
            abi: PhantomData,
        }
    }

    /// Hands the module over to the host, which gives it back to `finalize`; null if it has one already.
    pub(super) fn into_raw(self: Box<Self>) -> *mut MtlModule {
        // The address of all of it, and not of the table: `active` makes the whole of it again.
        let module = Box::into_raw(self);
        // SYNC POINT: active (acquired in `active`)
        let active =
            ACTIVE.compare_exchange(ptr::null_mut(), module.cast(), Ordering::AcqRel, Ordering::Relaxed);
        if active.is_err() {
            // SAFETY: just made of a box, and nobody has been given it.
            drop(unsafe { Box::from_raw(module) });
            return ptr::null_mut();
        }
        module.cast()
    }

    /// Takes a module back from the host.
    ///
    /// # Safety
    /// [`into_raw`](Self::into_raw) of this type has handed it out, and nobody uses it any more.
    pub(super) unsafe fn from_raw(module: *mut MtlModule) -> Box<Self> {
        ACTIVE.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: `into_raw` made it from a box of this type, and the caller says that nobody uses it.
        unsafe { Box::from_raw(module.cast::<Self>()) }
    }

    /// The module that progress serves.
    ///
    /// # Safety
    /// Called by the host for a module of this version and transport, and not beside its `finalize`.
    #[inline]
    pub(super) unsafe fn active<'a>() -> Option<&'a Self> {
        // SYNC POINT: active (released in `into_raw`)
        let active = ACTIVE.load(Ordering::Acquire);
        // SAFETY: null, or a live module by the invariant, and of this type by the caller's promise.
        unsafe { active.cast::<Self>().as_ref() }
    }

    /// Lets the host call our progress from now on; only now it is certain that it uses the module.
    /// Returns the host's code.
    pub(super) fn begin_progress(&self) -> c_int {
        if self.progressing.swap(true, Ordering::AcqRel) {
            return 0;
        }
        services::register_progress(self.progress)
    }

    /// Ends that.
    pub(super) fn end_progress(&self) {
        if self.progressing.load(Ordering::Acquire) {
            services::unregister_progress(self.progress);
        }
    }
}
