//! A matching transport: messages with tags, for which receives are posted.
//!
//! It is known before how many messages come: so many receives are posted, and none is left when the last has come. As
//! many as fit are posted at a time, each with memory of its own.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::rc::Rc;

use hawser::capi::abi::{Endpoint, Peer};
use hawser::capi::code::{
    HAWSER_ERR_CANCELLED, HAWSER_ERR_CLOSED, HAWSER_ERR_SYSTEM, HAWSER_ERR_TRUNCATED, HAWSER_ERR_UNREACHABLE,
    HAWSER_SUCCESS,
};
use hawser::capi::mtl::abi::{Envelope, Mtl, MtlComponent, Request};

use crate::block::Block;
use crate::inbox::{ANSWER, Inbox, WHOLE, grow};
use crate::transport::{Base, Taken};

/// The context of all messages.
const CONTEXT: u32 = 1;
/// Bytes for a window of messages, where one message is not longer.
const ROOM: usize = 64 << 20;
/// Receives that are posted for answers: there are two in a window.
const ANSWERS: usize = 2;
/// Bytes of an answer, at most.
const ANSWER_BYTES: usize = 1;

/// Why there are neither PUTs nor GETs.
pub(crate) const REFUSAL: &str = "at all: a matching transport has messages only";
/// Why a device cannot be chosen.
pub(crate) const NO_MODULES: &str = "-d: a matching transport has no modules to choose from; --set mtl_ofi_provider_include=NAME takes a provider";

/// Bytes for what comes, where messages are so long.
pub(crate) fn room(longest: usize, window: u32) -> usize {
    longest.saturating_mul(window as usize).min(ROOM).max(longest)
}

/// What is to come before the next [`Matching::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coming {
    pub(crate) messages: u64,
    pub(crate) answers: u64,
    /// Messages that may come before one is answered.
    pub(crate) window: u32,
}

/// The receives of one tag.
struct Lane {
    tag: u8,
    /// What has come.
    inbox: Rc<Inbox>,
    /// Where nothing is posted.
    free: RefCell<Vec<usize>>,
    /// Receives that are still to be posted.
    left: Cell<u64>,
    /// Bytes of each.
    bytes: Cell<usize>,
}

/// The memory of one receive, by its place in the lane.
struct Slot {
    lane: Rc<Lane>,
    at: usize,
}

/// The receives of one tag, with what their callbacks are handed.
struct Receives {
    lane: Rc<Lane>,
    /// They stay where they are, because hawser has the addresses.
    slots: Box<[Slot]>,
}

/// The component with its module, which reaches the other side.
pub(crate) struct Matching {
    component: &'static MtlComponent,
    module: Mtl,
    to: Endpoint,
    messages: Receives,
    answers: Receives,
    /// Where answers come.
    small: Block,
}

impl Receives {
    /// Those of a tag, up to so many at a time.
    fn new(tag: u8, inbox: &Rc<Inbox>, most: usize) -> Self {
        let lane = Rc::new(Lane::new(tag, inbox));
        let slots = (0..most).map(|at| Slot { lane: Rc::clone(&lane), at }).collect();
        Self { lane, slots }
    }
}

impl Lane {
    fn new(tag: u8, inbox: &Rc<Inbox>) -> Self {
        Self {
            tag,
            inbox: Rc::clone(inbox),
            free: RefCell::default(),
            left: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// So many receives are to be posted, of so many bytes, up to `most` at a time.
    fn begin(&self, count: u64, bytes: usize, most: usize) {
        let most = usize::try_from(count).unwrap_or(most).min(most);
        self.free.replace((0..most).rev().collect());
        self.left.set(count);
        self.bytes.set(bytes);
    }

    /// Where the next receive is to be posted.
    fn take(&self) -> Option<usize> {
        let left = self.left.get().checked_sub(1)?;
        let at = self.free.borrow_mut().pop()?;
        self.left.set(left);
        Some(at)
    }

    /// It could not be posted.
    fn put_back(&self, at: usize) {
        self.left.set(self.left.get() + 1);
        self.free.borrow_mut().push(at);
    }

    /// A receive has ended.
    fn end(&self, at: usize, status: i32, length: usize) {
        self.free.borrow_mut().push(at);
        if !ended(&self.inbox, status) {
            return;
        }
        match self.tag {
            WHOLE if length == self.bytes.get() => grow(&self.inbox.messages),
            ANSWER => grow(&self.inbox.answers),
            _ => self.inbox.is_wrong.set(true),
        }
    }
}

/// Takes note of how a send or receive has ended. Returns whether it has come to its end.
fn ended(inbox: &Inbox, status: i32) -> bool {
    grow(&inbox.stir);
    match status {
        HAWSER_SUCCESS => return true,
        HAWSER_ERR_TRUNCATED => inbox.is_wrong.set(true),
        HAWSER_ERR_UNREACHABLE | HAWSER_ERR_SYSTEM => inbox.is_lost.set(true),
        // The end of this side.
        HAWSER_ERR_CLOSED | HAWSER_ERR_CANCELLED => {}
        _ => inbox.failure.set(Some(status)),
    }
    false
}

/// A receive has ended ([`hawser::capi::mtl::abi::Matched`]).
unsafe extern "C" fn received(
    context: *mut c_void,
    _: Mtl,
    _: Request,
    status: i32,
    envelope: *const Envelope,
) {
    // SAFETY: posted with a slot of a transport, which outlives its module.
    let slot = unsafe { &*context.cast::<Slot>() };
    // SAFETY: NULL, or a structure that lives for the call.
    let length = unsafe { envelope.as_ref() }.map_or(0, |envelope| envelope.length);
    slot.lane.end(slot.at, status, length);
}

/// A send has ended ([`hawser::capi::mtl::abi::Matched`]).
unsafe extern "C" fn sent(context: *mut c_void, _: Mtl, _: Request, status: i32, _: *const Envelope) {
    // SAFETY: sent with the inbox of a transport, which outlives its module.
    let inbox = unsafe { &*context.cast::<Inbox>() };
    inbox.sends.set(inbox.sends.get() - 1);
    ended(inbox, status);
}

impl Matching {
    /// With messages that come to this inbox, so many of which are under way at a time.
    pub(crate) fn new(component: &'static MtlComponent, inbox: &Rc<Inbox>, window: u32) -> Self {
        Self {
            component,
            module: Mtl { id: 0 },
            to: Endpoint { id: 0 },
            messages: Receives::new(WHOLE, inbox, window as usize),
            answers: Receives::new(ANSWER, inbox, ANSWERS),
            small: Block::new(ANSWERS * ANSWER_BYTES),
        }
    }

    /// Opens the module.
    pub(crate) fn start(&mut self, base: &Base) -> Result<(), String> {
        // SAFETY: a handle to write to.
        let code = unsafe { (self.component.init)(&raw mut self.module) };
        base.check("does not start", code).map(drop)
    }

    /// Makes the other side known.
    pub(crate) fn join(&mut self, base: &Base, name: u64, device: Option<&str>) -> Result<(), String> {
        if device.is_some() {
            return Err(NO_MODULES.to_owned());
        }
        let peer = Peer { name, node: std::ptr::null() };
        let table = self.component.module;
        // SAFETY: one peer, and room for one endpoint.
        let code = unsafe { (table.add_peers)(self.module, 1, &raw const peer, &raw mut self.to) };
        base.check("does not take the other side", code)?;
        if self.to.id == 0 {
            let said = base.caller.said();
            return Err(format!(
                "the other side is not reached{}{said}; both sides need the same provider of libfabric, and -v says which each has",
                if said.is_empty() { "" } else { ": " },
            ));
        }
        Ok(())
    }

    /// So much is to come: receives are posted.
    pub(crate) fn begin(&self, base: &Base, bytes: usize, coming: Coming) -> Result<(), String> {
        let room = base.incoming.length().checked_div(bytes).unwrap_or(usize::MAX);
        let most = room.min(coming.window as usize).min(self.messages.slots.len());
        self.messages.lane.begin(coming.messages, bytes, most);
        self.answers.lane.begin(coming.answers, ANSWER_BYTES, ANSWERS);
        self.post(base)
    }

    /// Posts the receives that there is room for.
    #[inline]
    pub(crate) fn post(&self, base: &Base) -> Result<(), String> {
        self.post_in(base, &self.messages, base.incoming)?;
        self.post_in(base, &self.answers, self.small)
    }

    #[inline]
    fn post_in(&self, base: &Base, receives: &Receives, block: Block) -> Result<(), String> {
        let lane = &receives.lane;
        while let Some(at) = lane.take() {
            let length = lane.bytes.get();
            let memory = block.part(at * length, length);
            let slot: *const Slot = &raw const receives.slots[at];
            let mut request = Request { id: 0 };
            let tag = i32::from(lane.tag);
            // SAFETY: `length` bytes of a block that is never freed, which no other receive has; a function of its type,
            // with a slot that lives until `close`; a handle to write to.
            let code = unsafe {
                (self.component.module.irecv)(
                    self.module,
                    self.to,
                    CONTEXT,
                    tag,
                    memory.cast(),
                    length,
                    Some(received),
                    slot.cast_mut().cast(),
                    &raw mut request,
                )
            };
            if base.taken("posts no receive", code)? == Taken::NotNow {
                lane.put_back(at);
                break;
            }
        }
        Ok(())
    }

    /// Sends the first bytes of `outgoing` as a message.
    #[inline]
    pub(crate) fn send(&self, base: &Base, tag: u8, length: usize) -> Result<Option<usize>, String> {
        let (data, context) = (base.outgoing.part(0, length), Rc::as_ptr(&base.inbox));
        let mut request = Request { id: 0 };
        // SAFETY: `length` bytes of a block that is never freed and is written only when no send is under way; a function
        // of its type, with the inbox; a handle to write to.
        let code = unsafe {
            (self.component.module.isend)(
                self.module,
                self.to,
                CONTEXT,
                i32::from(tag),
                data.cast(),
                length,
                0,
                Some(sent),
                context.cast_mut().cast::<c_void>(),
                &raw mut request,
            )
        };
        let taken = base.taken("does not send", code)?;
        if taken == Taken::UnderWay {
            grow(&base.inbox.sends);
        }
        Ok((taken != Taken::NotNow).then_some(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(tag: u8) -> Lane {
        Lane::new(tag, &Rc::default())
    }

    #[test]
    fn as_many_receives_are_posted_as_messages_come() {
        let lane = lane(WHOLE);
        lane.begin(5, 8, 2);
        assert_eq!([lane.take(), lane.take(), lane.take()], [Some(0), Some(1), None]);
        for at in [1, 0, 1] {
            lane.end(at, HAWSER_SUCCESS, 8);
            assert_eq!(lane.take(), Some(at));
        }
        lane.put_back(1);
        assert_eq!(lane.take(), Some(1), "it was not posted");
        lane.end(0, HAWSER_SUCCESS, 8);
        lane.end(1, HAWSER_SUCCESS, 8);
        assert_eq!((lane.take(), lane.inbox.messages.get()), (None, 5));
        lane.begin(1, 8, 64);
        assert_eq!([lane.take(), lane.take()], [Some(0), None]);
    }

    #[test]
    fn what_has_not_come_whole_is_no_message() {
        for (status, length) in [(HAWSER_SUCCESS, 7), (HAWSER_ERR_TRUNCATED, 8)] {
            let lane = lane(WHOLE);
            lane.begin(1, 8, 1);
            lane.end(0, status, length);
            assert_eq!((lane.inbox.messages.get(), lane.inbox.is_wrong.get()), (0, true));
        }
        for status in [HAWSER_ERR_UNREACHABLE, HAWSER_ERR_SYSTEM, HAWSER_ERR_CLOSED] {
            let lane = lane(ANSWER);
            lane.begin(1, 1, 1);
            lane.end(0, status, 0);
            assert_eq!(
                (lane.inbox.answers.get(), lane.inbox.is_lost.get()),
                (0, status != HAWSER_ERR_CLOSED)
            );
        }
        let lane = lane(ANSWER);
        lane.end(0, HAWSER_SUCCESS, 1);
        assert_eq!(lane.inbox.answers.get(), 1);
    }

    #[test]
    fn a_window_has_room_where_it_is_not_too_much() {
        assert_eq!([room(8, 64), room(1 << 20, 64), room(1 << 20, 4096)], [512, ROOM, ROOM]);
        assert_eq!(room(256 << 20, 64), 256 << 20, "one message has, always");
    }
}
