//! How operations end: places in queues, entries and counters.

use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::cntr::Counter;
use super::super::cq::{Completion, Entry, Failure};
use super::super::names::NOBODY;
use super::super::sys;
use super::buffer::Buffer;
use super::context::{Context, Receive, Share};
use crate::engine::slab::Key;
use crate::link::Lent;
use crate::wire::gni::mailbox::Label;

/// What counts an operation instead of its endpoint: of queued work a counter, or nothing.
#[derive(Clone)]
pub struct Instead(pub Option<Arc<Counter>>);

/// What counts an operation.
#[inline(always)]
pub(super) fn counted<'a>(
    instead: Option<&'a Instead>,
    own: Option<&'a Arc<Counter>>,
) -> Option<&'a Arc<Counter>> {
    match instead {
        None => own,
        Some(Instead(counter)) => counter.as_ref(),
    }
}

/// Whether there is no entry for how an operation ends, well or not.
#[inline(always)]
pub(super) fn is_quiet(instead: Option<&Instead>, wants: bool) -> bool {
    instead.is_some() && !wants
}

/// What a receive has met.
pub(super) struct Received {
    pub(super) peer: u32,
    pub(super) label: Label,
    pub(super) length: usize,
    /// Bytes that there was room for.
    pub(super) room: usize,
    /// 0, or why it has failed.
    pub(super) code: i32,
}

/// `FI_ETRUNC`.
const TRUNCATED: i32 = 265;

/// What a completion says of a message that was sent.
#[inline(always)]
pub(super) fn sent(context: Foreign, label: Label) -> Completion {
    let kind = if label.tag.is_some() { sys::FI_TAGGED } else { sys::FI_MSG };
    Completion {
        context,
        flags: sys::FI_SEND | kind,
        length: 0,
        buffer: Foreign::NULL,
        data: 0,
        tag: label.tag.unwrap_or(0),
        source: NOBODY,
    }
}

impl Context {
    /// Sees to it that there is a place for what is received next; false when there is none.
    #[inline(always)]
    pub(super) fn has_place(&mut self) -> bool {
        self.place.is_some() || self.find_place()
    }

    #[cold]
    #[inline(never)]
    fn find_place(&mut self) -> bool {
        let Some(direction) = self.ends.as_ref().and_then(|ends| ends.receive.as_ref()) else { return true };
        self.place = direction.cq.reserve_arrival().ok();
        self.place.is_some()
    }

    /// A receive has ended, for which there is the place of whatever is next.
    #[inline(always)]
    pub(super) fn received(&mut self, receive: &Receive, message: &Received) {
        let source = self.source(message.peer);
        let (buffer, many) = self.give_back(receive);
        let Some(ends) = &self.ends else { return };
        let kind = if receive.is_tagged { sys::FI_TAGGED } else { sys::FI_MSG };
        let data = message.label.data.map_or(0, |_| sys::FI_REMOTE_CQ_DATA);
        let completion = Completion {
            context: receive.context,
            flags: sys::FI_RECV | kind | data | many,
            length: message.length.min(message.room),
            buffer,
            data: message.label.data.unwrap_or(0),
            tag: message.label.tag.unwrap_or(0),
            source,
        };
        let overflow = message.length.saturating_sub(message.room);
        let code = match message.code {
            0 if overflow != 0 => TRUNCATED,
            code => code,
        };
        if let Some(counter) = counted(receive.instead.as_deref(), ends.receives.as_ref()) {
            if code == 0 { counter.add(1) } else { counter.add_failed(1) }
        }
        if code != 0 && !is_quiet(receive.instead.as_deref(), receive.wants) {
            return self.enter_failed(Failure { of: completion, overflow, code, detail: code });
        }
        if receive.wants || many != 0 {
            return self.enter(Entry::Done(completion));
        }
        if let Some(direction) = &ends.receive {
            direction.cq.release_some(self.place.take());
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_failed(&mut self, failure: Failure) {
        self.enter(Entry::Failed(Box::new(failure)));
    }

    /// An entry for what has come.
    #[inline(always)]
    pub(super) fn enter(&mut self, entry: Entry) {
        let Some(direction) = self.ends.as_ref().and_then(|ends| ends.receive.as_ref()) else { return };
        let place = self.place.take();
        if !self.owed.is_empty() {
            // Entries are in the order in which messages have come.
            direction.cq.release_some(place);
            self.owed.push_back(entry);
            return;
        }
        match place {
            Some(place) => self.place = direction.cq.put_again(place, entry),
            None => self.owed.push_back(entry),
        }
    }

    /// What a message has of the memory of a receive for several is its own no more: where it is, and, with the last one,
    /// that all of the memory is free again.
    #[inline(always)]
    fn give_back(&mut self, receive: &Receive) -> (Foreign, u64) {
        let key = match receive.share {
            Share::Own => return (Foreign::NULL, 0),
            Share::Many(_) => return (Foreign::NULL, sys::FI_MULTI_RECV),
            Share::Of(key) => key,
        };
        let start = receive.buffer.whole().map_or(std::ptr::null(), Lent::as_ptr);
        let buffer = Foreign(start.cast_mut().cast());
        let Some(Receive { share: Share::Many(many), .. }) = self.receives.get_mut(key) else {
            return (buffer, 0);
        };
        many.pending -= 1;
        if many.pending != 0 || !many.is_spent {
            return (buffer, 0);
        }
        self.receives.remove(key.index);
        (buffer, sys::FI_MULTI_RECV)
    }

    /// A part of the memory of a receive for several messages, for one of so many bytes.
    pub(super) fn cut(&mut self, key: Key, length: usize) -> Option<Receive> {
        let Self { receives, untagged, .. } = self;
        let whole = receives.get_mut(key)?;
        let memory = whole.buffer.whole()?;
        let Share::Many(many) = &mut whole.share else { return None };
        let part = memory.slice(many.used, length.min(memory.len() - many.used));
        many.used += part.len();
        many.pending += 1;
        if memory.len() - many.used < many.least.max(1) {
            many.is_spent = true;
            many.id.take().and_then(|id| untagged.withdraw(id));
        }
        let (context, wants) = (whole.context, whole.wants);
        Some(Receive {
            context,
            buffer: Buffer::of(part),
            wants,
            is_tagged: false,
            share: Share::Of(key),
            instead: None,
        })
    }

    /// A receive that has met no message ends so.
    pub(super) fn ended(&mut self, receive: &Receive, code: i32) {
        let message = Received { peer: u32::MAX, label: Label::default(), length: 0, room: 0, code };
        self.received(receive, &message);
    }

    /// A message has been sent, or not.
    pub(super) fn sent(&mut self, key: Key, code: i32) {
        if self.sends.get(key).is_none() {
            return;
        }
        let (Some(outgoing), Some(ends)) = (self.sends.remove(key.index), &self.ends) else { return };
        if let Some(counter) = counted(outgoing.instead.as_deref(), ends.sends.as_ref()) {
            if code == 0 { counter.add(1) } else { counter.add_failed(1) }
        }
        let Some(direction) = &ends.transmit else { return };
        if is_quiet(outgoing.instead.as_deref(), outgoing.wants) {
            return;
        }
        let of = sent(outgoing.context, outgoing.label);
        match (code, outgoing.place) {
            (0, Some(place)) if outgoing.wants => direction.cq.put(place, Entry::Done(of)),
            (0, place) => direction.cq.release_some(place),
            (code, Some(place)) => {
                direction
                    .cq
                    .put(place, Entry::Failed(Box::new(Failure { of, overflow: 0, code, detail: code })));
            }
            (code, None) => {
                if let Ok(place) = direction.cq.reserve() {
                    direction
                        .cq
                        .put(place, Entry::Failed(Box::new(Failure { of, overflow: 0, code, detail: code })));
                }
            }
        }
    }

    /// Puts failures into places that have become free.
    pub(super) fn settle(&mut self) {
        while !self.owed.is_empty() && self.has_place() {
            let direction = self.ends.as_ref().and_then(|ends| ends.receive.as_ref());
            let (Some(entry), Some(direction)) = (self.owed.pop_front(), direction) else { return };
            if let Some(place) = self.place.take() {
                direction.cq.put(place, entry);
            }
        }
    }

    /// Whether there are such failures.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }
}
