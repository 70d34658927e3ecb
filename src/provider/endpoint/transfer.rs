//! Messages, tagged and not, as C wants them sent and received.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::argument::{Foreign, array};
use super::super::errno::{Errno, Outcome};
use super::super::offer::{INJECT, MAX_MESSAGE};
use super::super::sys::{self, iovec};
use super::super::traffic::buffer::Buffer;
use super::super::traffic::{Look, Order, Plain, Short, ShortWant, Want, Work};
use super::Endpoint;
use super::work::Ticket;
use crate::link::Lent;
use crate::wire::gni::mailbox::Label;

/// Where a message lies, as C says it.
#[derive(Clone, Copy)]
pub(in super::super) enum Memory {
    One(*const c_void, usize),
    Many(*const iovec, usize),
}

impl Memory {
    /// Memory in one piece that is there.
    ///
    /// # Safety
    /// As [`buffer`](Self::buffer).
    #[inline(always)]
    pub(super) unsafe fn one(self) -> Option<Lent> {
        let Self::One(start, length) = self else { return None };
        // SAFETY: the contract, where there is any.
        (!start.is_null()).then(|| unsafe { Lent::new(start.cast_mut().cast(), length) })
    }

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

/// What has a way of its own.
const NOT_SHORT: u64 = sys::FI_DELIVERY_COMPLETE | sys::FI_FENCE | sys::FI_TRIGGER;

impl Endpoint {
    /// Sends a message from memory in one piece, if nothing else is to be seen to; whether it has gone.
    #[inline(always)]
    pub(super) fn send_short(
        &self,
        bytes: Lent,
        destination: u64,
        label: Label,
        context: *mut c_void,
        manner: Manner<'_>,
    ) -> bool {
        let Ok(ready) = self.ready() else { return false };
        let Ok(flags) = manner.flags(&self.transmit_flags, OF_SENDS) else { return false };
        let is_injected = manner.is_injected() || flags & sys::FI_INJECT != 0;
        if flags & NOT_SHORT != 0 || is_injected && bytes.len() > INJECT {
            return false;
        }
        let is_selective = ready.transmit.as_ref().map(|direction| direction.is_selective);
        let Ok(destination) = self.destination(destination) else { return false };
        let wants = manner.wants(flags, is_selective);
        let message = Plain::new(Foreign(context), label, bytes, wants);
        self.domain.traffic.admit(Short { slot: ready.slot, destination, message })
    }

    #[inline(never)]
    pub(super) fn send(
        &self,
        buffer: Buffer,
        destination: u64,
        label: Label,
        context: *mut c_void,
        manner: Manner<'_>,
    ) -> Outcome<()> {
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
        self.domain.traffic.with(|traffic| traffic.send(ready.slot, order))
    }

    /// Posts a receive of a tagged message into memory in one piece, if nothing else is to be seen to.
    #[inline(always)]
    pub(super) fn receive_short(
        &self,
        memory: Lent,
        source: u64,
        (tag, ignore): (u64, u64),
        context: *mut c_void,
    ) -> bool {
        let Ok(ready) = self.ready() else { return false };
        let flags = self.receive_flags.load(Ordering::Relaxed);
        if self.shares_receives || flags & sys::FI_TRIGGER != 0 {
            return false;
        }
        let is_selective = ready.receive.as_ref().is_some_and(|direction| direction.is_selective);
        let wants = !is_selective || flags & sys::FI_COMPLETION != 0;
        let (slot, context) = (ready.slot, Foreign(context));
        self.domain.traffic.admit(ShortWant { slot, context, source, tag, ignore, memory, wants })
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

    #[inline(never)]
    pub(super) fn receive(
        &self,
        buffer: Buffer,
        source: u64,
        tag: Option<(u64, u64)>,
        context: *mut c_void,
    ) -> Outcome<()> {
        let flags = self.receive_flags.load(Ordering::Relaxed);
        let flags = if tag.is_some() { flags & !sys::FI_MULTI_RECV } else { flags };
        let (slot, want) = self.want(buffer, source, tag, context, flags)?;
        if flags & sys::FI_TRIGGER != 0 {
            return self.defer(slot, context, Work::Receive(want));
        }
        self.domain.traffic.with(|traffic| traffic.receive(slot, want))
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
        let want = Want { wants, instead: Some(ticket.instead()), ..want };
        self.queue(slot, ticket, Work::Receive(want)).map(|()| 0)
    }

    pub(super) fn receive_with(
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
            return self.defer(slot, context, Work::Receive(want)).map(|()| 0);
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

/// The data that goes with a message of these flags.
pub(super) fn data_of(data: u64, flags: u64) -> Option<u64> {
    (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(data)
}
