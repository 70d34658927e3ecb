//! The functions in a matching transport's table, written once for every version and transport. Each says
//! which contract its arguments keep, and then calls safe code.
//!
//! Those of the short path are two functions each. The first holds nothing but that path, so that it saves no
//! registers for what it does not do, and keeps its arguments [`Aside`] for the second.

use std::ffi::c_int;

use super::MtlAbi;
use super::argument::{Blocking, Cancelled, ClaimedMessage, Posted, Procs, Received, Sends, Sent};
use super::aside::Aside;
use super::messages;
use super::module::Shell;
use crate::error::{Error, Result};
use crate::host::abi::{Communicator, Convertor};
use crate::host::entry::{self, Array, InOut, Module, Out};
use crate::host::guard::guard;
use crate::host::sys::{self, Message, MtlModule, MtlRequest, Status};
use crate::mtl::{AtOnce, Matcher, Progress, Selector, Upcalls};

/// The module of an entry with its arguments.
type Entry<A, M, T> = entry::Entry<Shell<A, M>, T>;

const SUCCESS: c_int = 0;

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
fn result(result: Result<()>) -> c_int {
    result.map_or_else(code, |()| SUCCESS)
}

/// `MCA_PML_BASE_SEND_SYNCHRONOUS`
const SYNCHRONOUS: c_int = 0;

pub(super) unsafe extern "C" fn send<A: MtlAbi, M: Matcher<A>, S: Sends>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
) -> c_int {
    if mode == SYNCHRONOUS {
        // SAFETY: what the host passed, and nothing of it was used.
        return unsafe { send_slowly::<A, M, S>(module, comm, dest, tag, conv, mode) };
    }
    let sent = Aside::keep((module, comm, dest, tag, conv), || {
        // SAFETY: the contract of `mtl_send`: through the module's own table, with the communicator and the
        // convertor of a blocking send.
        let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Blocking::<S>::new(conv))) };
        entry.run("send", |shell, (comm, view)| {
            shell.matcher.send_at_once(comm, dest, tag, view).then_some(SUCCESS).ok_or(())
        })
    });
    sent.unwrap_or_else(|((), (module, comm, dest, tag, conv))| {
        // SAFETY: what the host passed; nothing was done with it, and nothing of it is used any more.
        unsafe { send_slowly::<A, M, S>(module, comm, dest, tag, conv, !SYNCHRONOUS) }
    })
}

/// # Safety
/// The contract of `mtl_send`.
#[inline(never)]
unsafe extern "C" fn send_slowly<A: MtlAbi, M: Matcher<A>, S: Sends>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
) -> c_int {
    // SAFETY: the contract of `mtl_send`: through the module's own table, with the communicator and the
    // convertor of a blocking send.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Blocking::<S>::new(conv))) };
    entry.run("send", |shell, (comm, view)| {
        result(shell.matcher.send(comm, dest, tag, view, mode == SYNCHRONOUS))
    })
}

pub(super) unsafe extern "C" fn isend<A: MtlAbi, M: Matcher<A>, S: Sends>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
    _blocking: bool,
    request: *mut MtlRequest,
) -> c_int {
    if mode == SYNCHRONOUS {
        // SAFETY: what the host passed, and nothing of it was used.
        return unsafe { isend_slowly::<A, M, S>(module, comm, dest, tag, conv, mode, request) };
    }
    let sent = Aside::keep((module, comm, dest, tag, conv), || {
        // SAFETY: the contract of `mtl_isend`: through the module's own table, with the communicator, the
        // convertor and the request of a send, which the host keeps until it is completed.
        let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Sent::<S>::new(Posted { conv, request }))) };
        entry.run("isend", |shell, (comm, place)| {
            shell.matcher.isend_at_once(comm, dest, tag, place).then_some(SUCCESS).ok_or(())
        })
    });
    sent.unwrap_or_else(|((), (module, comm, dest, tag, conv))| {
        // SAFETY: what the host passed; nothing was done with it, and nothing of it is used any more.
        unsafe { isend_slowly::<A, M, S>(module, comm, dest, tag, conv, !SYNCHRONOUS, request) }
    })
}

/// # Safety
/// The contract of `mtl_isend`.
#[inline(never)]
unsafe extern "C" fn isend_slowly<A: MtlAbi, M: Matcher<A>, S: Sends>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    dest: c_int,
    tag: c_int,
    conv: *mut Convertor,
    mode: c_int,
    request: *mut MtlRequest,
) -> c_int {
    // SAFETY: the contract of `mtl_isend`: through the module's own table, with the communicator, the
    // convertor and the request of a send, which the host keeps until it is completed.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Sent::<S>::new(Posted { conv, request }))) };
    entry.run("isend", |shell, (comm, place)| {
        result(shell.matcher.isend(comm, dest, tag, place, mode == SYNCHRONOUS))
    })
}

pub(super) unsafe extern "C" fn irecv<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    if Selector(tag).is_any() {
        // SAFETY: what the host passed, and nothing of it was used.
        return unsafe { irecv_any_tag::<A, M>(module, comm, source, tag, conv, request) };
    }
    // SAFETY: what the host passed, and nothing of it was used.
    unsafe { irecv_shortly::<A, M, false>(module, comm, source, tag, conv, request) }
}

/// As [`irecv`], of any tag: apart, because what is not looked at is a constant in each.
///
/// # Safety
/// The contract of `mtl_irecv`.
#[inline(never)]
unsafe extern "C" fn irecv_any_tag<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    // SAFETY: what the host passed, and nothing of it was used.
    unsafe { irecv_shortly::<A, M, true>(module, comm, source, tag, conv, request) }
}

/// # Safety
/// The contract of `mtl_irecv`. The tag is any if it is said to be.
#[inline(always)]
unsafe fn irecv_shortly<A: MtlAbi, M: Matcher<A>, const ANY_TAG: bool>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    let posted = Aside::keep((module, comm, source, tag, conv, request), || {
        // SAFETY: the contract of `mtl_irecv`: through the module's own table, with the communicator, the
        // convertor and the request of a receive, which the host keeps until it is completed.
        let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Received(Posted { conv, request }))) };
        entry.run("irecv", |shell, (comm, place)| {
            let tag = if ANY_TAG { Selector::ANY } else { Selector(tag) };
            match shell.matcher.irecv_at_once(comm, Selector(source), tag, place) {
                AtOnce::Posted => Ok(SUCCESS),
                not => Err(not == AtOnce::Refused),
            }
        })
    });
    posted.unwrap_or_else(|(refused, (module, comm, source, tag, conv, request))| {
        if refused {
            // SAFETY: what the host passed; nothing is posted of it, and nothing of it is used any more.
            unsafe { irecv_again::<A, M>(module, comm, source, tag, conv, request) }
        } else {
            // SAFETY: what the host passed; nothing is posted of it, and nothing of it is used any more.
            unsafe { irecv_slowly::<A, M>(module, comm, source, tag, conv, request) }
        }
    })
}

/// # Safety
/// The contract of `mtl_irecv`.
#[inline(never)]
unsafe extern "C" fn irecv_again<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    // SAFETY: the contract of `mtl_irecv`: through the module's own table, with the communicator, the
    // convertor and the request of a receive, which the host keeps until it is completed.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Received(Posted { conv, request }))) };
    entry.run("irecv", |shell, (comm, place)| {
        result(shell.matcher.irecv_again(comm, Selector(source), Selector(tag), place))
    })
}

/// # Safety
/// The contract of `mtl_irecv`.
#[inline(never)]
unsafe extern "C" fn irecv_slowly<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    conv: *mut Convertor,
    request: *mut MtlRequest,
) -> c_int {
    // SAFETY: the contract of `mtl_irecv`: through the module's own table, with the communicator, the
    // convertor and the request of a receive, which the host keeps until it is completed.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Received(Posted { conv, request }))) };
    entry.run("irecv", |shell, (comm, place)| {
        result(shell.matcher.irecv(comm, Selector(source), Selector(tag), place))
    })
}

pub(super) unsafe extern "C" fn iprobe<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> c_int {
    // SAFETY: the contract of `mtl_iprobe`: through the module's own table, with a communicator, a flag to
    // be written, and a status if one is wanted.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Out(flag), InOut(status))) };
    entry.run("iprobe", |shell, (comm, flag, status)| {
        let found = match shell.matcher.iprobe(comm, Selector(source), Selector(tag)) {
            Ok(found) => found,
            Err(error) => return code(error),
        };
        flag.write(c_int::from(found.is_some()));
        if let (Some(envelope), Some(status)) = (found, status) {
            messages::write_status(status, envelope);
        }
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn improbe<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
    source: c_int,
    tag: c_int,
    matched: *mut c_int,
    message: *mut *mut Message,
    status: *mut Status,
) -> c_int {
    // SAFETY: the contract of `mtl_improbe`: through the module's own table, with a communicator, a flag and
    // a message handle to be written, and a status if one is wanted.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm, Out(matched), Out(message), InOut(status))) };
    entry.run("improbe", |shell, (comm, matched, message, status)| {
        let found = match shell.matcher.improbe(comm, Selector(source), Selector(tag)) {
            Ok(found) => found,
            Err(error) => return code(error),
        };
        matched.write(c_int::from(found.is_some()));
        let made = found.map_or_else(messages::null, |claim| {
            if let Some(status) = status {
                messages::write_status(status, claim.envelope);
            }
            messages::new(comm.as_ptr(), claim)
        });
        message.write(made);
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn imrecv<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    conv: *mut Convertor,
    message: *mut *mut Message,
    request: *mut MtlRequest,
) -> c_int {
    let arguments = (ClaimedMessage(message), Received(Posted { conv, request }));
    // SAFETY: the contract of `mtl_imrecv`: through the module's own table, with the handle of a message that
    // `improbe` made, and the convertor and the request of a receive, which the host keeps until it is
    // completed.
    let entry = unsafe { Entry::<A, M, _>::of(module, arguments) };
    entry.run("imrecv", |shell, (message, place)| match message {
        Some(message) => result(shell.matcher.imrecv(message, place)),
        None => code(Error::BadParameter),
    })
}

pub(super) unsafe extern "C" fn cancel<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    request: *mut MtlRequest,
    _flag: c_int,
) -> c_int {
    // SAFETY: the contract of `mtl_cancel`: through the module's own table, with an open request that was
    // passed to `isend`, `irecv` or `imrecv`.
    let entry = unsafe { Entry::<A, M, _>::of(module, (Cancelled(request),)) };
    entry.run("cancel", |shell, (receive,)| {
        if let Some(receive) = receive {
            shell.matcher.cancel(&receive);
        }
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn add_procs<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    count: usize,
    procs: *mut *mut sys::Proc,
) -> c_int {
    // SAFETY: the contract of `mtl_add_procs`: through the module's own table, with `count` processes that the
    // host keeps until it takes them away with `del_procs`.
    let entry = unsafe { Entry::<A, M, _>::of(module, (Procs(Array(procs, count)),)) };
    entry.run("add_procs", |shell, (procs,)| {
        for proc in procs {
            if let Err(error) = shell.matcher.add_peer(proc) {
                A::notice(
                    "peer unreachable",
                    &format!(
                        "a peer cannot be reached: its endpoint's name is unknown or refused ({error}); every process must use this transport and the same provider"
                    ),
                );
                return code(error);
            }
        }
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn del_procs<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    count: usize,
    procs: *mut *mut sys::Proc,
) -> c_int {
    // SAFETY: the contract of `mtl_del_procs`: through the module's own table, with `count` processes, which
    // the host keeps until this has returned.
    let entry = unsafe { Entry::<A, M, _>::of(module, (Procs(Array(procs, count)),)) };
    entry.run("del_procs", |shell, (procs,)| {
        procs.into_iter().for_each(|proc| shell.matcher.remove_peer(proc));
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn add_comm<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
) -> c_int {
    // SAFETY: the contract of `mtl_add_comm`: through the module's own table, with a communicator that stays
    // until its `del_comm` has returned.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm,)) };
    entry.run("add_comm", |shell, (comm,)| match shell.begin_progress() {
        SUCCESS => result(shell.matcher.add_comm(comm)),
        refused => refused,
    })
}

pub(super) unsafe extern "C" fn del_comm<A: MtlAbi, M: Matcher<A>>(
    module: *mut MtlModule,
    comm: *mut Communicator,
) -> c_int {
    // SAFETY: the contract of `mtl_del_comm`: through the module's own table, with a communicator that stays
    // until this has returned.
    let entry = unsafe { Entry::<A, M, _>::of(module, (comm,)) };
    entry.run("del_comm", |shell, (comm,)| {
        shell.matcher.remove_comm(comm);
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn finalize<A: MtlAbi, M: Matcher<A>>(module: *mut MtlModule) -> c_int {
    guard(Shell::<A, M>::NAME, "finalize", || {
        // SAFETY: through the module's own table, for the last time: `init` has handed it out, and now it
        // comes back.
        let shell = unsafe { Shell::<A, M>::from_raw(module) };
        shell.end_progress();
        SUCCESS
    })
}

pub(super) unsafe extern "C" fn progress<A: MtlAbi, M: Matcher<A>>() -> c_int {
    let at_once = guard(Shell::<A, M>::NAME, "progress", || {
        // SAFETY: the host calls it from `add_comm` of a module of this type until that module's `finalize`,
        // and only one is in use.
        let active = unsafe { Shell::<A, M>::active() };
        active.map_or(Progress::Unknown, |shell| shell.matcher.progress_at_once())
    });
    match at_once {
        Progress::One => 1,
        // SAFETY: as the host called this.
        Progress::Idle => unsafe { idle::<A, M>() },
        // SAFETY: as the host called this.
        Progress::Unknown => unsafe { progress_slowly::<A, M>() },
    }
}

/// # Safety
/// The contract of `opal_progress_callback_t`, of a module of this type.
#[inline(never)]
unsafe extern "C" fn idle<A: MtlAbi, M: Matcher<A>>() -> c_int {
    guard(Shell::<A, M>::NAME, "progress", || {
        // SAFETY: the host calls it from `add_comm` of a module of this type until that module's `finalize`,
        // and only one is in use.
        let active = unsafe { Shell::<A, M>::active() };
        active.map_or(0, |shell| shell.matcher.idle() as c_int)
    })
}

/// # Safety
/// The contract of `opal_progress_callback_t`, of a module of this type.
#[inline(never)]
unsafe extern "C" fn progress_slowly<A: MtlAbi, M: Matcher<A>>() -> c_int {
    guard(Shell::<A, M>::NAME, "progress", || {
        // SAFETY: the host calls it from `add_comm` of a module of this type until that module's `finalize`,
        // and only one is in use.
        let active = unsafe { Shell::<A, M>::active() };
        active.map_or(0, |shell| shell.matcher.progress() as c_int)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host may fail with a code that it takes for success itself.
    #[test]
    fn no_error_travels_as_success() {
        let failures = [-7, -1, 0, 1, 7].map(|code| result(Err(Error::Host(code))));
        assert_eq!(failures, [-7, -1, -1, -1, -1]);
        let others = [
            Error::OutOfResource,
            Error::BadParameter,
            Error::Unsupported,
            Error::Unreachable,
            Error::NotFound,
            Error::MessageTooBig,
            Error::Fabric(0),
            Error::System(0),
        ];
        assert!(others.into_iter().all(|error| result(Err(error)) < SUCCESS));
        assert_eq!(result(Ok(())), SUCCESS);
    }
}
