//! The tables of messages, tagged and not, and the functions in them.

use std::ffi::c_void;

use super::super::argument::copy;
use super::super::errno::Outcome;
use super::super::guard::size;
use super::super::nosys::size::{eight, five, four, seven, six, three};
use super::super::object::body;
use super::super::sys::{fi_msg, fi_msg_tagged, fi_ops_msg, fi_ops_tagged, fid_ep, iovec};
use super::Endpoint;
use super::transfer::{Manner, Memory, data_of, plain, tagged};
use crate::wire::gni::mailbox::Label;

/// The tables of an object: which of the two it does.
pub(super) struct Tables(pub(super) fi_ops_msg, pub(super) fi_ops_tagged);

const fn tables(sends: bool, receives: bool) -> Tables {
    Tables(
        fi_ops_msg {
            size: size_of::<fi_ops_msg>(),
            recv: Some(if receives { recv } else { six }),
            recvv: Some(if receives { recvv } else { six }),
            recvmsg: Some(if receives { recvmsg } else { three }),
            send: Some(if sends { send } else { six }),
            sendv: Some(if sends { sendv } else { six }),
            sendmsg: Some(if sends { sendmsg } else { three }),
            inject: Some(if sends { inject } else { four }),
            senddata: Some(if sends { senddata } else { seven }),
            injectdata: Some(if sends { injectdata } else { five }),
        },
        fi_ops_tagged {
            size: size_of::<fi_ops_tagged>(),
            recv: Some(if receives { trecv } else { eight }),
            recvv: Some(if receives { trecvv } else { eight }),
            recvmsg: Some(if receives { trecvmsg } else { three }),
            send: Some(if sends { tsend } else { seven }),
            sendv: Some(if sends { tsendv } else { seven }),
            sendmsg: Some(if sends { tsendmsg } else { three }),
            inject: Some(if sends { tinject } else { five }),
            senddata: Some(if sends { tsenddata } else { eight }),
            injectdata: Some(if sends { tinjectdata } else { six }),
        },
    )
}

pub(super) static BOTH: Tables = tables(true, true);
pub(super) static SENDS: Tables = tables(true, false);
pub(super) static RECEIVES: Tables = tables(false, true);
pub(super) static NEITHER: Tables = tables(false, false);

/// Sends from where C says. Who calls this does so in a guard of its own: what only one calls is compiled as a part of it, for
/// the arguments that it has. What it calls where there is no short way answers in registers: a place for an answer is read by
/// a load that is wider than the store just before, and waits for all stores of the short way, to the peer's ring too.
///
/// # Safety
/// The contract of `fi_msg(3)` and `fi_tagged(3)`.
#[inline(always)]
unsafe fn send_from(
    ep: *mut fid_ep,
    memory: Memory,
    destination: u64,
    label: Label,
    context: *mut c_void,
    manner: Manner<'_>,
) -> Outcome<usize> {
    // SAFETY: the contract: an endpoint.
    let endpoint = unsafe { body::<Endpoint>(ep) }?;
    // SAFETY: the contract: it is readable until the operation has ended.
    if let Some(bytes) = unsafe { memory.one() }
        && endpoint.send_short(bytes, destination, label, context, manner)
    {
        return Ok(0);
    }
    // SAFETY: the same.
    let buffer = unsafe { memory.buffer() }?;
    endpoint.send(buffer, destination, label, context, manner).map(|()| 0)
}

/// Receives to where C says; called likewise.
///
/// # Safety
/// The contract of `fi_msg(3)` and `fi_tagged(3)`.
#[inline(always)]
unsafe fn receive_to(
    ep: *mut fid_ep,
    memory: Memory,
    source: u64,
    tag: Option<(u64, u64)>,
    context: *mut c_void,
) -> Outcome<usize> {
    // SAFETY: the contract: an endpoint.
    let endpoint = unsafe { body::<Endpoint>(ep) }?;
    // SAFETY: the contract: it is writable until the operation has ended.
    let buffer = unsafe { memory.room() }?;
    endpoint.receive(buffer, source, tag, context).map(|()| 0)
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    destination: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe {
            send_from(ep, Memory::One(buffer, length), destination, plain(None), context, Manner::Usual)
        }
    })
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    destination: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe {
            send_from(ep, Memory::Many(pieces, count), destination, plain(None), context, Manner::Usual)
        }
    })
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    destination: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe {
            send_from(ep, Memory::One(buffer, length), destination, plain(Some(data)), context, Manner::Usual)
        }
    })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    destination: u64,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe {
            send_from(
                ep,
                Memory::One(buffer, length),
                destination,
                plain(None),
                std::ptr::null_mut(),
                Manner::Injected,
            )
        }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe {
            send_from(
                ep,
                Memory::One(buffer, length),
                destination,
                plain(Some(data)),
                std::ptr::null_mut(),
                Manner::Injected,
            )
        }
    })
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    source: u64,
    context: *mut c_void,
) -> isize {
    size("fi_recv", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe { receive_to(ep, Memory::One(buffer, length), source, None, context) }
    })
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    source: u64,
    context: *mut c_void,
) -> isize {
    size("fi_recv", || {
        // SAFETY: the contract of `fi_msg(3)`.
        unsafe { receive_to(ep, Memory::Many(pieces, count), source, None, context) }
    })
}

unsafe extern "C" fn tsend(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    destination: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe {
            send_from(ep, Memory::One(buffer, length), destination, tagged(tag, None), context, Manner::Usual)
        }
    })
}

unsafe extern "C" fn tsendv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    destination: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe {
            send_from(ep, Memory::Many(pieces, count), destination, tagged(tag, None), context, Manner::Usual)
        }
    })
}

unsafe extern "C" fn tsenddata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    destination: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe {
            send_from(
                ep,
                Memory::One(buffer, length),
                destination,
                tagged(tag, Some(data)),
                context,
                Manner::Usual,
            )
        }
    })
}

unsafe extern "C" fn tinject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    destination: u64,
    tag: u64,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe {
            send_from(
                ep,
                Memory::One(buffer, length),
                destination,
                tagged(tag, None),
                std::ptr::null_mut(),
                Manner::Injected,
            )
        }
    })
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
    tag: u64,
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe {
            send_from(
                ep,
                Memory::One(buffer, length),
                destination,
                tagged(tag, Some(data)),
                std::ptr::null_mut(),
                Manner::Injected,
            )
        }
    })
}

unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    source: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    size("fi_recv", || {
        let memory = Memory::One(buffer, length);
        // SAFETY: the contract of `fi_tagged(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: it is writable until the operation has ended.
        if let Some(memory) = unsafe { memory.one() }
            && endpoint.receive_short(memory, source, (tag, ignore), context)
        {
            return Ok(0);
        }
        // SAFETY: the same.
        unsafe { receive_to(ep, memory, source, Some((tag, ignore)), context) }
    })
}

unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    source: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    size("fi_recv", || {
        // SAFETY: the contract of `fi_tagged(3)`.
        unsafe { receive_to(ep, Memory::Many(pieces, count), source, Some((tag, ignore)), context) }
    })
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    size("fi_sendmsg", || {
        // SAFETY: the contract of `fi_msg(3)`: a message.
        let message = unsafe { copy(message) }?;
        // SAFETY: the same: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: so many pieces, which are readable until the operation has ended.
        let buffer = unsafe { Memory::Many(message.msg_iov, message.iov_count).buffer() }?;
        let label = plain(data_of(message.data, flags));
        endpoint.send(buffer, message.addr, label, message.context, Manner::Flags(flags)).map(|()| 0)
    })
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    size("fi_recvmsg", || {
        // SAFETY: the contract of `fi_msg(3)`: a message.
        let message = unsafe { copy(message) }?;
        // SAFETY: the same: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: so many pieces, which are writable until the operation has ended.
        let buffer = unsafe { Memory::Many(message.msg_iov, message.iov_count).buffer() }?;
        endpoint.receive_with(buffer, message.addr, None, message.context, flags)
    })
}

unsafe extern "C" fn tsendmsg(ep: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    size("fi_tsendmsg", || {
        // SAFETY: the contract of `fi_tagged(3)`: a message.
        let message = unsafe { copy(message) }?;
        // SAFETY: the same: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: so many pieces, which are readable until the operation has ended.
        let buffer = unsafe { Memory::Many(message.msg_iov, message.iov_count).buffer() }?;
        let label = tagged(message.tag, data_of(message.data, flags));
        endpoint.send(buffer, message.addr, label, message.context, Manner::Flags(flags)).map(|()| 0)
    })
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, message: *const fi_msg_tagged, flags: u64) -> isize {
    size("fi_trecvmsg", || {
        // SAFETY: the contract of `fi_tagged(3)`: a message.
        let message = unsafe { copy(message) }?;
        // SAFETY: the same: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the same: so many pieces, which are writable until the operation has ended.
        let buffer = unsafe { Memory::Many(message.msg_iov, message.iov_count).buffer() }?;
        endpoint.receive_with(
            buffer,
            message.addr,
            Some((message.tag, message.ignore)),
            message.context,
            flags,
        )
    })
}
