//! The short path: a small message by the first queue, where nothing waits and nothing else is to be said. Who says that nothing is
//! in the way is [`Peers::free`](super::peers::Peers::free); what does not fit goes by the other path, and is all found out there.

use std::sync::Arc;

use super::connection::Connection;
use super::line::{AT, Number};
use super::peers::Peers;
use super::sides::Sides;
use super::state::{State, Step};
use crate::btl::{EndpointId, Lent};
use crate::sync::Visit;

/// What the host is to read.
pub(super) struct Message {
    pub(super) from: EndpointId,
    pub(super) tag: u8,
    pub(super) bytes: Lent,
    pub(super) buffer: Buffer,
}

/// Where it lies, by the [number](Number) of the receive, which says it all; or nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffer(u64);

impl Buffer {
    /// No receive has this number.
    pub(super) const NONE: Self = Self(0);

    #[inline]
    const fn at(self) -> u32 {
        self.0 as u32 & AT
    }

    /// Takes it.
    pub(super) const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::NONE)
    }
}

/// Sends a short message, if nothing is in its way.
pub(super) struct Send {
    pub(super) to: EndpointId,
    pub(super) tag: u8,
    pub(super) pieces: [Lent; 2],
}

impl Visit<State> for Send {
    type Out = bool;

    #[inline(always)]
    fn visit(self, state: &mut State) -> bool {
        state.send_short(self.to, self.tag, self.pieces)
    }
}

/// Takes the next short message, if one is the next of all that is to be done, after the host has read this one.
pub(super) struct Take<'a>(pub(super) &'a mut Buffer);

impl Visit<State> for Take<'_> {
    type Out = Option<Message>;

    #[inline(always)]
    fn visit(self, state: &mut State) -> Option<Message> {
        let message = state.next_short(self.0);
        if message.is_some() && *self.0 != Buffer::NONE {
            state.release_short(self.0.take());
        }
        message
    }
}

/// Begins a pass; whether there is anything to be done in it.
pub(super) struct Begin;

impl Visit<State> for Begin {
    type Out = bool;

    #[inline(always)]
    fn visit(self, state: &mut State) -> bool {
        state.begin_pass()
    }
}

/// What is to be done next.
pub(super) enum Next {
    Short(Message),
    Step(Step),
    /// The pass is over.
    Nothing,
}

impl State {
    /// What is to be done next, after the host has read a short message.
    #[inline(never)]
    pub(super) fn advance(&mut self, mut read: Buffer) -> Next {
        let message = self.next_short(&mut read);
        if read != Buffer::NONE {
            self.release_short(read);
        }
        if let Some(message) = message {
            return Next::Short(message);
        }
        if self.news.is_empty() && self.next == self.came && !self.has_mail() {
            if !self.poll() {
                self.end_pass();
                if self.news.is_empty() {
                    return Next::Nothing;
                }
            } else if let Some(message) = self.next_short(&mut { Buffer::NONE }) {
                return Next::Short(message);
            }
        }
        self.next().map_or(Next::Nothing, Next::Step)
    }

    /// The next completion, if it is of a short message. If the one that was read before is of the same peer, its buffer is given
    /// back on the way.
    #[inline(always)]
    fn next_short(&mut self, read: &mut Buffer) -> Option<Message> {
        if self.next == self.came || !self.news.is_empty() {
            return None;
        }
        let completion = self.batch.get(self.next).filter(|completion| completion.is_success())?;
        let number = completion.id();
        let connection = self.peers.free_for(number)?;
        let (receives, credit, most) = connection.sides.first().receiving()?;
        let came = receives.take_short(number as u32 & AT, completion.len(), credit, most)?;
        connection.signs.heard = self.ticked;
        self.next += 1;
        let counters = &*self.desk.counters;
        counters.num_recvs.add(1);
        counters.recv_bytes.add(came.bytes.len() as u64);
        if Number::are_beside(read.0, number) {
            let free = receives.release(read.at());
            *read = Buffer::NONE;
            if free > 0 {
                let posted = connection.post_again(0, free, self.desk.credits);
                self.posted(Number::place(number) as u32, posted);
            }
        } else {
            self.reading += 1;
        }
        if came.is_owed {
            self.touch(Number::place(number) as u32);
        }
        Some(Message {
            from: Peers::id(Number::place(number) as u32),
            tag: came.tag,
            bytes: came.bytes,
            buffer: Buffer(number),
        })
    }

    /// The host has read a short message.
    #[inline(never)]
    pub(super) fn release_short(&mut self, buffer: Buffer) {
        self.reading -= 1;
        let connection = self.peers.free_for(buffer.0);
        match connection.and_then(|connection| connection.sides.first().receives.as_mut()) {
            Some(receives) => {
                let count = receives.release(buffer.at());
                if count > 0 {
                    self.post_again(Number::place(buffer.0) as u32, 0, count);
                }
            }
            None => self.release_late(Number::from_raw(buffer.0)),
        }
    }

    /// The same of one whose peer has changed since it was read.
    #[cold]
    fn release_late(&mut self, number: Number) {
        let attempt = self.present(number.peer, number.attempt).map(|connection| connection.attempt);
        if let Some(attempt) = attempt {
            self.release_private(number.peer, attempt, 0, number.at);
        }
    }

    /// Sends a short message at once, if nothing is in its way.
    #[inline(always)]
    pub(super) fn send_short(&mut self, to: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        let Some(connection) = self.peers.free(to.index()) else { return false };
        let Connection { sides, short, has_news, .. } = connection;
        let is_sent = !*has_news && sides.first().send_short(short, tag, pieces);
        if is_sent {
            let counters = &*self.desk.counters;
            counters.num_short_sends.add(1);
            counters.send_bytes.add((pieces[0].len() + pieces[1].len()) as u64);
        }
        is_sent
    }

    /// The host may be reading messages of queue pairs that go: their buffers stay until it has.
    pub(super) fn keep_what_is_read(&mut self, sides: &Sides) {
        if self.reading > 0 {
            let slabs = sides.iter().filter_map(|side| side.receives.as_ref());
            self.kept.extend(slabs.map(|receives| Arc::clone(receives.buffers.slab())));
        }
    }
}
