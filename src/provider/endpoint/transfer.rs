//! The tables of messages, tagged and not.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::argument::{Foreign, array, copy};
use super::super::errno::{Errno, Outcome};
use super::super::guard::size;
use super::super::nosys::size::{eight, five, four, seven, six, three};
use super::super::object::body;
use super::super::offer::{INJECT, MAX_MESSAGE};
use super::super::sys::{self, fi_msg, fi_msg_tagged, fi_ops_msg, fi_ops_tagged, fid_ep, iovec};
use super::super::traffic::buffer::Buffer;
use super::super::traffic::{Look, Order, Want, Work};
use super::Endpoint;
use super::work::Ticket;
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

/// Where a message lies, as C says it.
#[derive(Clone, Copy)]
pub(in super::super) enum Memory {
    One(*const c_void, usize),
    Many(*const iovec, usize),
}

impl Memory {
    /// # Safety
    /// What is named is there until the operation has ended.
    #[inline(always)]
    pub(in super::super) unsafe fn buffer(self) -> Outcome<Buffer> {
        match self {
            Self::One(start, length) => {
                if start.is_null() && length != 0 {
                    return Err(Errno::INVAL);
                }
                // SAFETY: the contract.
                Ok(unsafe { Buffer::new(start.cast(), length) })
            }
            Self::Many(start, count) => {
                // SAFETY: the contract: so many pieces.
                let pieces = unsafe { array(start, count) }?;
                if pieces.iter().any(|piece| piece.iov_base.is_null() && piece.iov_len != 0) {
                    return Err(Errno::INVAL);
                }
                // SAFETY: the contract.
                unsafe { Buffer::of_pieces(pieces) }
            }
        }
    }
}

impl Memory {
    /// The same of what is received into: where there is none, however long, is room for messages without bytes.
    ///
    /// # Safety
    /// As [`buffer`](Self::buffer).
    #[inline(always)]
    pub(in super::super) unsafe fn room(self) -> Outcome<Buffer> {
        match self {
            Self::One(start, _) if start.is_null() => Ok(Buffer::NONE),
            // SAFETY: the contract.
            memory => unsafe { memory.buffer() },
        }
    }
}

/// What a call says of how an operation ends.
#[derive(Clone, Copy)]
pub(super) enum Manner<'a> {
    /// As the endpoint's flags say.
    Usual,
    /// Without an entry, and the memory is free at once.
    Injected,
    /// As these flags say.
    Flags(u64),
    /// The same of work that is queued.
    Queued(u64, &'a Ticket),
}

impl<'a> Manner<'a> {
    /// Without an entry, and the memory is free at once.
    #[inline(always)]
    pub(super) fn is_injected(self) -> bool {
        matches!(self, Self::Injected)
    }

    /// The flags that go with it, of those that are known, where it names none those `usual` ones.
    #[inline(always)]
    pub(super) fn flags(self, usual: &AtomicU64, known: u64) -> Outcome<u64> {
        match self {
            Manner::Usual => Ok(usual.load(Ordering::Relaxed)),
            Manner::Injected => Ok(0),
            Manner::Flags(flags) if flags & !known == 0 => Ok(flags),
            Manner::Queued(flags, _) if flags & !known == 0 && flags & sys::FI_TRIGGER == 0 => Ok(flags),
            Manner::Flags(_) | Manner::Queued(..) => Err(Errno::BADFLAGS),
        }
    }

    #[inline(always)]
    pub(super) fn ticket(self) -> Option<&'a Ticket> {
        match self {
            Self::Queued(_, ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Whether an operation has an entry when it ends well, where it goes to such a queue, if there is one.
    #[inline(always)]
    pub(super) fn wants(self, flags: u64, is_selective: Option<bool>) -> bool {
        let is_asked = flags & sys::FI_COMPLETION != 0;
        match self {
            Self::Injected => false,
            Self::Queued(..) => is_asked && is_selective.is_some(),
            Self::Usual | Self::Flags(_) => {
                is_selective.is_some_and(|is_selective| !is_selective || is_asked)
            }
        }
    }
}

/// What `fi_sendmsg(3)` knows.
const OF_SENDS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE
    | sys::FI_MORE
    | sys::FI_FENCE
    | sys::FI_TRIGGER
    | sys::FI_REMOTE_CQ_DATA;

/// What `fi_recvmsg(3)` knows, besides what is done instead of receiving.
pub(in super::super) const OF_RECEIVES: u64 =
    sys::FI_COMPLETION | sys::FI_MORE | sys::FI_REMOTE_CQ_DATA | sys::FI_MULTI_RECV;

impl Endpoint {
    #[inline(always)]
    pub(super) fn send(
        &self,
        buffer: Buffer,
        destination: u64,
        label: Label,
        context: *mut c_void,
        manner: Manner<'_>,
    ) -> Outcome<usize> {
        let ready = self.ready()?;
        let flags = manner.flags(&self.transmit_flags, OF_SENDS)?;
        let is_silent = manner.is_injected();
        let is_injected = is_silent || flags & sys::FI_INJECT != 0;
        let length = buffer.length();
        if length > if is_injected { INJECT } else { MAX_MESSAGE } {
            return Err(if is_injected { Errno::INVAL } else { Errno(libc::EMSGSIZE) });
        }
        let is_selective = ready.transmit.as_ref().map(|direction| direction.is_selective);
        let destination = self.destination(destination)?;
        let order = Order {
            context: Foreign(context),
            destination,
            label,
            buffer,
            wants: manner.wants(flags, is_selective),
            is_injected,
            is_silent,
            is_answered: flags & sys::FI_DELIVERY_COMPLETE != 0,
            is_fenced: flags & sys::FI_FENCE != 0,
            instead: manner.ticket().map(Ticket::instead),
        };
        if let Some(ticket) = manner.ticket() {
            return self.queue(ready.slot, ticket, Work::Send(order));
        }
        if flags & sys::FI_TRIGGER != 0 {
            return self.defer(ready.slot, context, Work::Send(order));
        }
        self.domain.traffic.with(|traffic| traffic.send(ready.slot, order))?;
        Ok(0)
    }

    #[inline(always)]
    fn want(
        &self,
        buffer: Buffer,
        source: u64,
        tag: Option<(u64, u64)>,
        context: *mut c_void,
        flags: u64,
    ) -> Outcome<(u32, Want)> {
        let ready = self.ready()?;
        if self.shares_receives {
            // They are posted where they are shared.
            return Err(Errno::OPBADSTATE);
        }
        let is_selective = ready.receive.as_ref().is_some_and(|direction| direction.is_selective);
        let wants = !is_selective || flags & sys::FI_COMPLETION != 0;
        let many = match flags & sys::FI_MULTI_RECV {
            0 => None,
            // Tagged messages have no such receives, and memory in pieces has none.
            _ if tag.is_some() => return Err(Errno::BADFLAGS),
            _ if buffer.whole().is_none() => return Err(Errno::INVAL),
            _ => Some(self.least.load(Ordering::Relaxed)),
        };
        Ok((ready.slot, Want { context: Foreign(context), source, tag, buffer, wants, many, instead: None }))
    }

    #[inline(always)]
    fn receive(
        &self,
        buffer: Buffer,
        source: u64,
        tag: Option<(u64, u64)>,
        context: *mut c_void,
    ) -> Outcome<usize> {
        let flags = self.receive_flags.load(Ordering::Relaxed);
        let flags = if tag.is_some() { flags & !sys::FI_MULTI_RECV } else { flags };
        let (slot, want) = self.want(buffer, source, tag, context, flags)?;
        if flags & sys::FI_TRIGGER != 0 {
            return self.defer(slot, context, Work::Receive(want));
        }
        self.domain.traffic.with(|traffic| traffic.receive(slot, want))?;
        Ok(0)
    }

    /// Posts a receive when its time has come.
    pub(super) fn receive_queued(
        &self,
        buffer: Buffer,
        (source, tag): (u64, Option<(u64, u64)>),
        context: *mut c_void,
        (flags, ticket): (u64, &Ticket),
    ) -> Outcome<usize> {
        const NOT_LATER: u64 = sys::FI_MULTI_RECV | sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD;
        if flags & NOT_LATER != 0 {
            return Err(Errno::NOSYS);
        }
        if flags & !OF_RECEIVES != 0 {
            return Err(Errno::BADFLAGS);
        }
        let (slot, want) = self.want(buffer, source, tag, context, flags)?;
        let wants = flags & sys::FI_COMPLETION != 0;
        self.queue(slot, ticket, Work::Receive(Want { wants, instead: Some(ticket.instead()), ..want }))
    }

    fn receive_with(
        &self,
        buffer: Buffer,
        source: u64,
        tag: Option<(u64, u64)>,
        context: *mut c_void,
        flags: u64,
    ) -> Outcome<usize> {
        let (slot, want) = self.want(buffer, source, tag, context, flags)?;
        let what = flags & (sys::FI_PEEK | sys::FI_CLAIM | sys::FI_DISCARD);
        const PEEK: u64 = sys::FI_PEEK;
        const PEEK_AND_CLAIM: u64 = sys::FI_PEEK | sys::FI_CLAIM;
        const PEEK_AND_DISCARD: u64 = sys::FI_PEEK | sys::FI_DISCARD;
        const CLAIM: u64 = sys::FI_CLAIM;
        const CLAIM_AND_DISCARD: u64 = sys::FI_CLAIM | sys::FI_DISCARD;
        let known = if what == 0 { OF_RECEIVES | sys::FI_TRIGGER } else { what | OF_RECEIVES };
        if flags & !known != 0 || what != 0 && want.many.is_some() {
            return Err(Errno::BADFLAGS);
        }
        if flags & sys::FI_TRIGGER != 0 {
            return self.defer(slot, context, Work::Receive(want));
        }
        self.domain.traffic.with(|traffic| match what {
            0 => traffic.receive(slot, want),
            PEEK => traffic.look(slot, want, Look::Peek),
            PEEK_AND_CLAIM => traffic.look(slot, want, Look::Claim),
            PEEK_AND_DISCARD => traffic.look(slot, want, Look::Discard),
            CLAIM => traffic.redeem(slot, want, false),
            CLAIM_AND_DISCARD => traffic.redeem(slot, want, true),
            _ => Err(Errno::BADFLAGS),
        })?;
        Ok(0)
    }
}

/// A message without a tag.
pub(super) const fn plain(data: Option<u64>) -> Label {
    Label { tag: None, data }
}

/// One with a tag.
pub(super) const fn tagged(tag: u64, data: Option<u64>) -> Label {
    Label { tag: Some(tag), data }
}

/// Sends from where C says.
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
) -> isize {
    size("fi_send", || {
        // SAFETY: the contract: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the contract: it is readable until the operation has ended.
        let buffer = unsafe { memory.buffer() }?;
        endpoint.send(buffer, destination, label, context, manner)
    })
}

/// Receives to where C says.
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
) -> isize {
    size("fi_recv", || {
        // SAFETY: the contract: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(ep) }?;
        // SAFETY: the contract: it is writable until the operation has ended.
        let buffer = unsafe { memory.room() }?;
        endpoint.receive(buffer, source, tag, context)
    })
}

/// The data that goes with a message of these flags.
pub(super) fn data_of(data: u64, flags: u64) -> Option<u64> {
    (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    destination: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { send_from(ep, Memory::One(buffer, length), destination, plain(None), context, Manner::Usual) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    destination: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { send_from(ep, Memory::Many(pieces, count), destination, plain(None), context, Manner::Usual) }
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
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe {
        send_from(ep, Memory::One(buffer, length), destination, plain(Some(data)), context, Manner::Usual)
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    destination: u64,
) -> isize {
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
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
) -> isize {
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
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    source: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { receive_to(ep, Memory::One(buffer, length), source, None, context) }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    source: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the contract of `fi_msg(3)`.
    unsafe { receive_to(ep, Memory::Many(pieces, count), source, None, context) }
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
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe {
        send_from(ep, Memory::One(buffer, length), destination, tagged(tag, None), context, Manner::Usual)
    }
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
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe {
        send_from(ep, Memory::Many(pieces, count), destination, tagged(tag, None), context, Manner::Usual)
    }
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
}

unsafe extern "C" fn tinject(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    destination: u64,
    tag: u64,
) -> isize {
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
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    destination: u64,
    tag: u64,
) -> isize {
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
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe { receive_to(ep, Memory::One(buffer, length), source, Some((tag, ignore)), context) }
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
    // SAFETY: the contract of `fi_tagged(3)`.
    unsafe { receive_to(ep, Memory::Many(pieces, count), source, Some((tag, ignore)), context) }
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
        endpoint.send(buffer, message.addr, label, message.context, Manner::Flags(flags))
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
        endpoint.send(buffer, message.addr, label, message.context, Manner::Flags(flags))
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
