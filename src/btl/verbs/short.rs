//! The short path: a small message by the first queue, where nothing waits and nothing else is to be said. Who says that nothing is
//! in the way is [`Peers::free`](super::peers::Peers::free); what does not fit goes by the other path, and is all found out there.

use std::num::NonZero;
use std::sync::Arc;

use super::connection::Connection;
use super::line::Number;
use super::peers::Peers;
use super::state::{State, Step};
use crate::btl::{EndpointId, Lent};

/// What the host is to read.
pub(super) struct Message {
    pub(super) from: EndpointId,
    pub(super) tag: u8,
    pub(super) bytes: Lent,
    pub(super) buffer: Buffer,
}

/// Where it lies, by the [number](Number) of the receive, which says it all.
#[derive(Clone, Copy)]
pub(super) struct Buffer(NonZero<u64>);

/// What is to be done next.
pub(super) enum Next {
    Short(Message),
    Step(Step),
    /// The pass is over.
    Nothing,
}

impl State {
    /// What is to be done next.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> Next {
        if self.news.is_empty() {
            if self.next == self.came && !self.has_mail() && !self.poll() {
                self.end_pass();
                if self.news.is_empty() {
                    return Next::Nothing;
                }
            } else if let Some(message) = self.next_short() {
                return Next::Short(message);
            }
        }
        self.next().map_or(Next::Nothing, Next::Step)
    }

    /// The next completion, if it is of a short message.
    #[inline(always)]
    fn next_short(&mut self) -> Option<Message> {
        let all = self.batch.get(..self.came)?;
        let completion = all.get(self.next).filter(|completion| completion.is_success())?;
        let number = NonZero::new(completion.id())?;
        let (place, attempt, at) = Number::first_receive(number.get())?;
        let connection = self.peers.free(place as usize).filter(|it| it.is_of(attempt))?;
        let came = connection.sides.first_mut()?.take_short(at, completion.len())?;
        connection.heard = self.ticked;
        self.next += 1;
        self.reading += 1;
        self.desk.counters.num_recvs.add(1);
        self.desk.counters.recv_bytes.add(came.bytes.len() as u64);
        if came.is_owed {
            self.touch(place);
        }
        Some(Message { from: Peers::id(place), tag: came.tag, bytes: came.bytes, buffer: Buffer(number) })
    }

    /// The host has read a short message.
    #[inline(always)]
    pub(super) fn release_short(&mut self, buffer: Buffer) {
        self.reading -= 1;
        let Some((place, attempt, at)) = Number::first_receive(buffer.0.get()) else { return };
        let connection = self.peers.free(place as usize).filter(|it| it.is_of(attempt));
        match connection.and_then(|connection| connection.sides.first_mut()?.receives.as_mut()) {
            Some(receives) => {
                let count = receives.release(at);
                if count > 0 {
                    self.post_again(place, 0, count);
                }
            }
            None => self.release_late(place, attempt, at),
        }
    }

    /// The same of one whose peer has changed since it was read.
    #[cold]
    fn release_late(&mut self, place: u32, attempt: u16, at: u32) {
        let attempt = self.present(place, attempt).map(|connection| connection.attempt);
        if let Some(attempt) = attempt {
            self.release_private(place, attempt, 0, at);
        }
    }

    /// Sends a short message at once, if nothing is in its way.
    #[inline(always)]
    pub(super) fn send_short(&mut self, to: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        let Some(connection) = self.peers.free(to.index()) else { return false };
        let Connection { sides, scratch, has_news, .. } = connection;
        let is_sent =
            !*has_news && sides.first_mut().is_some_and(|side| side.send_short(scratch, tag, pieces));
        if is_sent {
            self.desk.counters.num_short_sends.add(1);
            self.desk.counters.send_bytes.add((pieces[0].len() + pieces[1].len()) as u64);
        }
        is_sent
    }

    /// The host may be reading messages of queue pairs that go: their buffers stay until it has.
    pub(super) fn keep_what_is_read(&mut self, sides: &[super::side::Side]) {
        if self.reading > 0 {
            let slabs = sides.iter().filter_map(|side| side.receives.as_ref());
            self.kept.extend(slabs.map(|receives| Arc::clone(receives.buffers.slab())));
        }
    }
}
