//! The entry points of a matching transport, written once for every host version and tag layout.
//!
//! A module is a [`Shell`]: the host's table, and behind it the transport. The host gives the
//! table's address back with every call; only shared references are made from it.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::abi::{Abi, Communicator, Convertor};
use super::foreign::Opaque;
use super::guard::guard;
use super::handles::{Comm, Conv, Proc, Req, is_receive};
use super::sys::{self, Message, MtlModule, MtlRequest, Status};
use super::{messages, services};
use crate::error::Error;
use crate::fabric::{Loan, Operation, Place, Route, Standing, View};
use crate::mtl::Upcalls;
use crate::mtl::ofi::{Body, Ofi};
use crate::wire::tag::{Layout, Selector};

/// The host's table, which the host may write, and the transport behind it.
#[repr(C)]
pub(super) struct Shell<A: Abi> {
    pub(super) module: Opaque<MtlModule>,
    pub(super) ofi: Ofi<A>,
    pub(super) progress: unsafe extern "C" fn() -> c_int,
    pub(super) progressing: AtomicBool,
}

/// The shell that the argument-less progress function serves; one process has at most one.
pub(super) static ACTIVE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The transport behind a table.
///
/// # Safety
/// `module` is the first field of a live [`Shell`] of this version.
#[inline]
unsafe fn shell<'a, A: Abi>(module: *mut MtlModule) -> &'a Shell<A> {
    // SAFETY: the caller has the table of a live shell, whose address is the shell's. What the host writes
    // is opaque, so that sharing the rest is right.
    unsafe { &*module.cast::<Shell<A>>() }
}

/// What nearly every entry gets: its module, and a communicator.
///
/// # Safety
/// The host's module and a live communicator.
#[inline]
unsafe fn on<'a, A: Abi>(module: *mut MtlModule, comm: *mut Communicator) -> (&'a Shell<A>, Comm<A>) {
    // SAFETY: the caller has the table of a live shell.
    let shell = unsafe { shell::<A>(module) };
    // SAFETY: the caller has a live communicator.
    (shell, unsafe { Comm::new(comm) })
}

/// A request of the host's with its convertor, and the transport's memory behind it.
///
/// # Safety
/// A live convertor and a live request head, both kept with what lies behind the head, and the memory
/// that the convertor describes lent, until the request is completed.
#[inline]
unsafe fn requested<A: Abi>(conv: *mut Convertor, route: Route, request: *mut MtlRequest) -> Place<Body<A>> {
    // SAFETY: the caller keeps the request head and what lies behind it.
    let behind = unsafe { behind::<A>(request) };
    // SAFETY: a live convertor.
    let conv = unsafe { Conv::<A>::new(conv) };
    // SAFETY: a live request head.
    let request = unsafe { Req::new(request) };
    // SAFETY: the caller keeps the convertor and lends its memory until the request is completed.
    let loan = unsafe { Loan::new(conv, route, request) };
    // SAFETY: the caller keeps what lies behind the head until the request is completed; the host's free lists align requests to 8 bytes.
    unsafe { Place::new(behind, loan) }
}

/// The host's code: `OMPI_*` of `ompi/include/ompi/constants.h`.
pub(super) fn code(error: Error) -> c_int {
    match error {
        Error::OutOfResource => -2,
        Error::BadParameter => -5,
        Error::Unsupported => -8,
        Error::Unreachable => -12,
        Error::NotFound => -13,
        Error::MessageTooBig | Error::Fabric(_) | Error::System(_) => -1,
        // A code that the host would take for success is still an error.
        Error::Host(code) => code.min(-1),
    }
}

#[inline]
fn result(result: crate::error::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => code(error),
    }
}

/// The transport's memory behind the host's request head.
///
/// # Safety
/// A live request head with as much memory behind it as the module asked for.
#[inline]
unsafe fn behind<A: Abi>(request: *mut MtlRequest) -> NonNull<Operation<Body<A>>> {
    // SAFETY: what lies behind the head is in bounds of the same allocation.
    let behind = unsafe { request.add(1) };
    // SAFETY: the head is live, hence not null.
    unsafe { NonNull::new_unchecked(behind.cast()) }
}

/// `MCA_PML_BASE_SEND_SYNCHRONOUS`
const SYNCHRONOUS: c_int = 0;

pub(super) unsafe extern "C" fn send<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
) -> c_int {
    guard("mtl", "send", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // whoever called MPI holds the communicator.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        // SAFETY: a live convertor.
        let conv = unsafe { Conv::<A>::new(conv) };
        // SAFETY: a blocking send has no request.
        let route = unsafe { A::route(None) };
        // SAFETY: the host keeps the convertor and lends its memory until this returns.
        let view = unsafe { View::new(conv, route) };
        result(shell.ofi.send::<L>(comm, dest, tag, view, mode == SYNCHRONOUS))
    })
}

pub(super) unsafe extern "C" fn isend<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
    _blocking: bool,
    request: *mut MtlRequest,
) -> c_int {
    guard("mtl", "isend", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // whoever called MPI holds the communicator.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        // SAFETY: a live request of a send.
        let route = unsafe { A::route(Some(request)) };
        // SAFETY: the host keeps convertor, request and what lies behind it until the request is completed.
        let place = unsafe { requested::<A>(conv, route, request) };
        result(shell.ofi.isend::<L>(comm, dest, tag, place, mode == SYNCHRONOUS))
    })
}

pub(super) unsafe extern "C" fn irecv<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    guard("mtl", "irecv", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // whoever called MPI holds the communicator.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        // SAFETY: the host keeps convertor, request and what lies behind it until the request is completed.
        let place = unsafe { requested::<A>(conv, Route::Prepared, request) };
        result(shell.ofi.irecv::<L>(comm, Selector(source), Selector(tag), place))
    })
}

pub(super) unsafe extern "C" fn iprobe<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> c_int {
    guard("mtl", "iprobe", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // whoever called MPI holds the communicator.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        let found = match shell.ofi.iprobe::<L>(comm, Selector(source), Selector(tag)) {
            Ok(found) => found,
            Err(error) => return code(error),
        };
        // SAFETY: the host passes the address of a flag.
        unsafe { flag.write(c_int::from(found.is_some())) };
        if let Some(envelope) = found {
            // SAFETY: null or a status of the host's.
            unsafe { messages::write_status(status, envelope) };
        }
        0
    })
}

pub(super) unsafe extern "C" fn improbe<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    matched: *mut c_int,
    message: *mut *mut Message,
    status: *mut Status,
) -> c_int {
    guard("mtl", "improbe", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // whoever called MPI holds the communicator.
        let (shell, handle) = unsafe { on::<A>(module, comm) };
        let found = match shell.ofi.improbe::<L>(handle, Selector(source), Selector(tag)) {
            Ok(found) => found,
            Err(error) => return code(error),
        };
        // SAFETY: the host passes the address of a flag.
        unsafe { matched.write(c_int::from(found.is_some())) };
        let made = match found {
            None => messages::null(),
            Some(claim) => {
                // SAFETY: null or a status of the host's.
                unsafe { messages::write_status(status, claim.envelope) };
                messages::new(comm, claim.envelope, claim.message)
            }
        };
        // SAFETY: the host passes the address of a handle.
        unsafe { message.write(made) };
        0
    })
}

pub(super) unsafe extern "C" fn imrecv<A: Abi, L: Layout>(
    module: *mut MtlModule,
    conv: *mut Convertor,
    message: *mut *mut Message,
    request: *mut MtlRequest,
) -> c_int {
    guard("mtl", "imrecv", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: a message that `improbe` made.
        let Some(claim) = (unsafe { messages::take(message) }) else { return code(Error::BadParameter) };
        // SAFETY: the host keeps convertor, request and what lies behind it until the request is completed.
        let place = unsafe { requested::<A>(conv, Route::Prepared, request) };
        result(shell.ofi.imrecv::<L>(claim, place))
    })
}

pub(super) unsafe extern "C" fn cancel<A: Abi, L: Layout>(
    module: *mut MtlModule,
    request: *mut MtlRequest,
    _flag: c_int,
) -> c_int {
    guard("mtl", "cancel", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: a live request.
        if unsafe { is_receive(request) } {
            // SAFETY: a live request.
            let place = unsafe { behind::<A>(request) };
            // SAFETY: every receive entry installs or vacates what lies behind the request, which stays for
            // the time of this call.
            shell.ofi.cancel::<L>(&unsafe { Standing::at(place) });
        }
        0
    })
}

pub(super) unsafe extern "C" fn add_procs<A: Abi>(
    module: *mut MtlModule,
    count: usize,
    procs: *mut *mut sys::Proc,
) -> c_int {
    guard("mtl", "add_procs", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`.
        let shell = unsafe { shell::<A>(module) };
        for index in 0..count {
            // SAFETY: the host passes `count` processes.
            let proc = unsafe { procs.add(index) };
            // SAFETY: one of the host's `count` pointers, which it leaves alone until this returns.
            let proc = unsafe { proc.read() };
            // SAFETY: the host adds processes that it holds, and takes them away before it lets them go.
            let proc = unsafe { Proc::<A>::new(proc) };
            if let Err(error) = shell.ofi.add_peer(proc) {
                A::notice(
                    "peer unreachable",
                    &format!(
                        "a peer cannot be reached: its endpoint's name is unknown or refused ({error}); every process must use this transport and the same provider"
                    ),
                );
                return code(error);
            }
        }
        0
    })
}

pub(super) unsafe extern "C" fn del_procs<A: Abi>(
    module: *mut MtlModule,
    count: usize,
    procs: *mut *mut sys::Proc,
) -> c_int {
    guard("mtl", "del_procs", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`.
        let shell = unsafe { shell::<A>(module) };
        for index in 0..count {
            // SAFETY: the host passes `count` pointers.
            let raw = unsafe { procs.add(index) };
            // SAFETY: one of the host's `count` pointers, which it leaves alone until this returns.
            let raw = unsafe { raw.read() };
            if !raw.is_null() {
                // SAFETY: not null, hence live.
                let proc = unsafe { Proc::<A>::new(raw) };
                // The peer is forgotten whether or not the provider could remove its address.
                let _ = shell.ofi.remove_peer(proc);
            }
        }
        0
    })
}

pub(super) unsafe extern "C" fn add_comm<A: Abi, L: Layout>(
    module: *mut MtlModule,
    comm: *mut Communicator,
) -> c_int {
    guard("mtl", "add_comm", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // the communicator is alive while it is added and until this has returned.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        // Only now is it certain that the host uses the module: before, its progress would be in vain.
        if !shell.progressing.swap(true, Ordering::AcqRel) {
            let registered = services::register_progress(shell.progress);
            if registered != 0 {
                return registered;
            }
        }
        result(shell.ofi.add_comm::<L>(comm))
    })
}

pub(super) unsafe extern "C" fn del_comm<A: Abi>(module: *mut MtlModule, comm: *mut Communicator) -> c_int {
    guard("mtl", "del_comm", || {
        // SAFETY: `module` is the table that `init` gave out, first in its shell and alive until `finalize`;
        // the communicator is alive while it is added and until this has returned.
        let (shell, comm) = unsafe { on::<A>(module, comm) };
        shell.ofi.remove_comm(comm);
        0
    })
}

pub(super) unsafe extern "C" fn finalize<A: Abi>(module: *mut MtlModule) -> c_int {
    guard("mtl", "finalize", || {
        // SAFETY: `module` is the table that `init` gave out, first in its boxed shell; the host's last call with
        // it gives it back.
        let shell = unsafe { Box::from_raw(module.cast::<Shell<A>>()) };
        if shell.progressing.load(Ordering::Acquire) {
            services::unregister_progress(shell.progress);
        }
        ACTIVE.store(ptr::null_mut(), Ordering::Release);
        0
    })
}

pub(super) unsafe extern "C" fn progress<A: Abi, L: Layout>() -> c_int {
    guard("mtl", "progress", || {
        let active = ACTIVE.load(Ordering::Relaxed);
        if active.is_null() {
            return 0;
        }
        // SAFETY: set to a live shell of this version before registration, reset after it is taken back.
        let shell = unsafe { &*active.cast::<Shell<A>>() };
        shell.ofi.advance::<L>() as c_int
    })
}
