//! How a connection ends: nothing more is posted, what has arrived is delivered, the queue pairs go, and only then is what
//! their device may have used anybody else's: buffers, credits, and the host's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{Connection, Entry};
use super::short::{Buffer, Next};
use super::state::{State, Step};
use crate::btl::{Cookie, EndpointId};
use crate::engine::cm::{self, Attempt, Dialect};
use crate::error::Error;

/// Queue pairs that are on their way out.
pub(super) struct Departing {
    place: u32,
    gone: Vec<Arc<AtomicBool>>,
    /// What was under way, by queue.
    entries: Vec<(usize, Entry)>,
    /// They were seen to have gone, when the completion queues were last empty.
    is_over: bool,
    /// One side had said that nothing follows, and nobody has cut it short.
    was_agreed: bool,
}

impl Departing {
    fn of(place: u32, connection: Connection, was_agreed: bool) -> Self {
        let mut it = Self { place, gone: Vec::new(), entries: Vec::new(), is_over: false, was_agreed };
        for (queue, mut side) in connection.sides.into_iter().enumerate() {
            it.gone.push(side.line.gone());
            it.entries.extend(side.slots.abandon().map(|entry| (queue, entry)));
        }
        it
    }

    fn has_gone(&self) -> bool {
        // SYNC POINT: line-gone (released in `Gone::drop`)
        self.gone.iter().all(|gone| gone.load(Ordering::Acquire))
    }
}

impl State {
    /// The completion queues are empty: lets go of what is to go, and of what has gone.
    #[cold]
    pub(super) fn let_go(&mut self) {
        // Of attempts that came to nothing, too, which the connection thread has ended by itself.
        for (at, room) in std::mem::replace(&mut self.vacated, self.desk.port.vacated()) {
            self.desk.port.give_back(at, room);
        }
        for (place, attempt) in std::mem::take(&mut self.leaving) {
            if self.unheard.is_err() && self.flush(place, attempt) {
                // What has been taken until now is read first.
                self.leaving.push((place, attempt));
            } else {
                self.detach(place, attempt);
            }
        }
        for mut departing in std::mem::take(&mut self.departing) {
            if departing.is_over {
                // Since then, the completion queues have been empty once more.
                self.finish(departing);
                continue;
            }
            departing.is_over = departing.has_gone();
            self.departing.push(departing);
        }
    }

    /// Has the device take nothing more for an attempt: its peer would be told that it has arrived, and nobody would read it.
    /// Whether it did until now.
    fn flush(&mut self, place: u32, attempt: Attempt) -> bool {
        let present = self.at(place).and_then(|peer| peer.connection.as_mut());
        let Some(connection) = present.filter(|it| it.attempt == attempt && !it.is_flushed) else {
            return false;
        };
        connection.is_flushed = true;
        // One that does not any more has gone.
        connection.sides.iter().for_each(|side| _ = side.line.pair.flush());
        true
    }

    /// Gives the queue pairs of an attempt back to the connection thread.
    fn detach(&mut self, place: u32, attempt: Attempt) {
        let Some(peer) = self.at(place) else { return };
        let connection = peer.connection.take_if(|connection| connection.attempt == attempt);
        peer.departing += usize::from(connection.is_some());
        let was_agreed = peer.has_said_bye || peer.says_bye && !peer.is_cut;
        if let Some(connection) = connection {
            self.keep_what_is_read(&connection.sides);
            for side in connection.sides.iter() {
                self.lines.remove(&side.line.pair.number());
            }
            self.departing.push(Departing::of(place, connection, was_agreed));
        }
        if let Some(peer) = self.at(place) {
            peer.machine.handle_let_go(attempt);
            if peer.machine.state() == cm::State::Closed {
                peer.part();
            }
        }
        self.drive(place);
    }

    /// Queue pairs have gone, and nothing of them comes any more.
    fn finish(&mut self, departing: Departing) {
        let Departing { place, entries, was_agreed, .. } = departing;
        self.has_due = true;
        // A later attempt has an account of its own.
        if self.at(place).is_none_or(|peer| peer.connection.is_none()) {
            for shared in self.desk.shared.iter_mut().flatten() {
                shared.lender.close(place as usize);
            }
        }
        let mut peer = self.peers.get_mut(place as usize);
        for (queue, entry) in entries {
            let (cookie, is_message) = match entry {
                Entry::Buffer { at, cookie } => {
                    self.desk.pools[queue].give(at);
                    (cookie, true)
                }
                Entry::Copied(cookie) => (Some(cookie), true),
                Entry::Part { cookie, .. } => (cookie, false),
                Entry::Probe { .. } => (None, false),
            };
            match (cookie, &mut peer) {
                (None, _) => {}
                (Some(cookie), Some(peer)) if !was_agreed && !peer.is_closed => peer.dead.push(cookie),
                // What a peer that has ended did not serve was not done; messages to it are nobody's any more.
                (Some(cookie), _) => {
                    let outcome =
                        if was_agreed && is_message { self.unheard } else { Err(Error::Unreachable) };
                    self.news.push_back(Step::Done(cookie, outcome));
                }
            }
        }
        if let Some(peer) = peer {
            peer.departing -= 1;
            if peer.departing == 0 && peer.connection.is_none() {
                self.give_up(place);
            }
        }
    }

    /// The host closes an endpoint: what waits is still sent, and then a last word.
    pub(super) fn begin_close(&mut self, id: EndpointId) {
        // Openib has no word for it.
        let says_so = self.desk.port.dialect == Dialect::Own;
        let Some(peer) = self.peer(id) else { return };
        if peer.says_bye {
            return;
        }
        (peer.says_bye, peer.owes_bye) = (true, says_so);
        peer.is_draining = true;
        peer.machine.hurry();
        let place = id.index() as u32;
        self.touch(place);
        self.drive(place);
    }

    /// Whether what waited has been sent and has arrived, or never will.
    pub(super) fn is_drained(&mut self, id: EndpointId) -> bool {
        let Some(peer) = self.peer(id) else { return true };
        if peer.failure.is_some() {
            return peer.departing == 0;
        }
        if peer.has_parted() {
            // Nobody waits for what is not closed at the other side any more.
            let cookies = peer.drop_pending();
            self.news.extend(cookies.into_iter().map(|cookie| Step::Done(cookie, self.unheard)));
            return true;
        }
        // Between two attempts what waits is not lost.
        let can_be_told = peer.connected().is_some() || peer.machine.is_half_connected();
        let is_quiet = peer.is_quiet() && !(peer.owes_bye && can_be_told);
        if !is_quiet {
            self.touch(id.index() as u32);
        }
        is_quiet
    }

    /// Whether the peer, too, has done with the connection: it has heard that nothing follows, and what it had sent until then is here.
    pub(super) fn has_heard(&self, id: EndpointId) -> bool {
        let peer = self.place(id).and_then(|place| self.peers.get(place as usize));
        peer.is_none_or(|peer| peer.has_said_bye || !peer.can_say())
    }

    /// The endpoint is nobody's any more. What has not been sent is not: cookies. What is under way, and was waited for in
    /// vain, ends in error when the queue pairs have gone.
    pub(super) fn end_close(&mut self, id: EndpointId) -> Vec<Cookie> {
        let Some(peer) = self.peer(id) else { return Vec::new() };
        (peer.is_open, peer.is_closed) = (false, true);
        peer.is_cut = !peer.is_quiet();
        let mut cookies = peer.drop_pending();
        // Nobody would tell of what was under way on queue pairs that have gone before.
        cookies.append(&mut peer.dead);
        peer.machine.close();
        self.drive(id.index() as u32);
        cookies
    }

    /// Those that the host has not closed: of a process of another job it does not tell that it has done with it.
    pub(super) fn unclosed(&self) -> Vec<EndpointId> {
        self.peers.iter().filter(|peer| !peer.says_bye).map(|peer| peer.id).collect()
    }

    /// Does what there is to do when no host listens any more.
    pub(super) fn pass_silently(&mut self) {
        if !self.begin_pass() {
            return;
        }
        let mut read = Buffer::NONE;
        loop {
            match self.advance(read.take()) {
                Next::Short(message) => read = message.buffer,
                Next::Step(Step::Deliver { buffer, .. }) => self.release(buffer),
                Next::Step(_) => {}
                Next::Nothing => break,
            }
        }
    }

    /// Whether nothing is left of any peer.
    pub(super) fn is_empty(&self) -> bool {
        self.departing.is_empty() && self.leaving.is_empty() && self.peers.iter().next().is_none()
    }
}
