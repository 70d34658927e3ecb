//! What completions say: messages that have come, work that is over, queue pairs that do not work any more. Every length,
//! number and limit of a peer's is checked; what is none counts, and ends that peer's connection.

use std::sync::Arc;

use super::connection::{Broken, Entry};
use super::line::{Number, Work};
use super::peer::Item;
use super::state::{Delivered, State, Step};
use crate::btl::Lent;
use crate::engine::cm::{Arrival, Attempt, Dialect, Reason};
use crate::verbs::{Remote, Status};
use crate::wire::verbs::{Control, HEADER, Header, LONGEST_CONTROL};

impl State {
    /// One completion of the batch; what the host is to read, if it is a message.
    #[inline]
    pub(super) fn complete(&mut self, at: usize) -> Option<Step> {
        let completion = &self.batch[at];
        let number = Number::from_raw(completion.id());
        let (is_success, len, line) = (completion.is_success(), completion.len(), completion.qp_number());
        match number.work {
            Work::Send => self.sent(number, is_success, at),
            Work::Receive | Work::Shared if is_success && self.desk.port.dialect == Dialect::Openib => {
                return match number.work {
                    Work::Shared => self.received_shared_openib(number, line, len),
                    _ => self.received_openib(number, len),
                };
            }
            Work::Receive if is_success => return self.received(number, len),
            Work::Shared if is_success => return self.received_shared(number, line, len),
            Work::Cts if is_success => {
                self.desk.counters.num_cts_received.add(1);
                if let Some(peer) = self.at(number.peer) {
                    peer.machine.handle_cts(Attempt(u32::from(number.attempt)));
                }
                self.drive(number.peer);
            }
            Work::Shared => {
                self.has_due = true;
                // Its buffer is free, and was lent to whoever ends now.
                if let Some(shared) = &mut self.desk.shared[usize::from(number.queue)] {
                    shared.release(number.at);
                    shared.lender.lose();
                }
                let known = self.lines.get(&line).copied();
                if let Some((place, attempt, _)) = known {
                    self.came_back(place, attempt, self.batch[at].status());
                }
            }
            Work::Receive | Work::Cts => self.failed(number, at),
        }
        None
    }

    /// Work of a present queue pair has failed.
    #[cold]
    fn failed(&mut self, number: Number, at: usize) {
        let status = self.batch[at].status();
        if status == Status::NotReady {
            self.desk.counters.num_rnr.add(1);
        }
        let attempt = self.present(number.peer, number.attempt).map(|connection| connection.attempt);
        if let Some(attempt) = attempt {
            self.came_back(number.peer, attempt, status);
        }
    }

    /// What was posted has come back undone. Whoever has disconnected it may have said why.
    fn came_back(&mut self, place: u32, attempt: Attempt, status: Status) {
        let why = match status {
            Status::Timeout => Reason::Unreachable,
            Status::Flushed | Status::Aborted => Reason::Disconnected,
            _ => Reason::Broken,
        };
        self.read_mail();
        self.broken(place, attempt, why);
    }

    /// Something that was posted is over, and all before it.
    #[inline]
    fn sent(&mut self, number: Number, is_success: bool, at: usize) {
        if !is_success {
            self.failed(number, at);
            return;
        }
        let ticked = self.ticked();
        let Self { desk, peers, news, .. } = self;
        let Some(peer) = peers.get_mut(number.peer as usize) else { return };
        let Some(connection) = &mut peer.connection else { return };
        if !connection.is_of(number.attempt) {
            return;
        }
        connection.signs.moved = ticked;
        let queue = usize::from(number.queue);
        let Some(side) = connection.sides.get_mut(queue) else { return };
        let (mut reads, mut is_answered) = (0, false);
        let pool = &mut desk.pools[queue];
        side.slots.complete(number.at, Entry::is_answered, |entry| {
            let cookie = match entry {
                Entry::Buffer { at, cookie } => {
                    pool.give(at);
                    cookie
                }
                Entry::Copied(cookie) => Some(cookie),
                Entry::Part { cookie, is_read, .. } => {
                    reads += usize::from(is_read);
                    cookie
                }
                Entry::Probe { is_read } => {
                    reads += usize::from(is_read);
                    is_answered = true;
                    None
                }
            };
            news.extend(cookie.map(|cookie| Step::Done(cookie, Ok(()))));
        });
        connection.reads -= reads;
        if reads > 0 || !desk.port.is_iwarp() {
            connection.signs.heard = ticked;
        }
        if is_answered {
            connection.signs.probed = None;
        }
        if !peer.is_idle() || peer.is_draining {
            self.touch(number.peer);
        }
    }

    /// A message has come by a private queue.
    #[inline]
    fn received(&mut self, number: Number, len: usize) -> Option<Step> {
        let (place, queue) = (number.peer, usize::from(number.queue));
        let connection = self.present(place, number.attempt)?;
        let attempt = connection.attempt;
        let receives = connection.sides.get_mut(queue)?.receives.as_mut()?;
        let whole = receives.buffers.bytes(number.at, len);
        let whole = whole.map(|bytes| (bytes, Arc::clone(receives.buffers.slab())));
        let is_within = receives.window.arrive().is_ok();
        // It may know of no buffer now, and there are some.
        let is_owed = receives.window.news().is_some();
        let Some((bytes, slab)) = whole.filter(|_| is_within) else {
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        if is_owed {
            self.touch(place);
        }
        let buffer = Delivered::Private { place, attempt, queue: number.queue, at: number.at, _keep: slab };
        self.handle(place, attempt, queue, bytes, buffer)
    }

    /// A message has come by a shared queue.
    #[inline]
    fn received_shared(&mut self, number: Number, line: u32, len: usize) -> Option<Step> {
        let queue = usize::from(number.queue);
        let known = self.lines.get(&line).copied().filter(|(_, _, of)| *of == number.queue);
        let shared = self.desk.shared.get_mut(queue)?.as_mut()?;
        let Some((place, attempt, _)) = known else {
            // Of a queue pair that has gone.
            self.has_due = true;
            shared.lender.lose();
            shared.release(number.at);
            self.desk.counters.num_dropped.add(1);
            return None;
        };
        let buffer = Delivered::Shared { place, queue: number.queue, at: number.at };
        let bytes = shared.lent(number.at, len);
        let wants = bytes.and_then(header).is_some_and(|header| header.wants);
        let is_within = shared.lender.arrive(place as usize, wants).is_ok();
        if !is_within {
            shared.lender.lose();
        }
        match bytes.filter(|_| is_within) {
            Some(bytes) => self.handle(place, attempt, queue, bytes, buffer),
            None => {
                self.has_due = true;
                if let Some(shared) = &mut self.desk.shared[queue] {
                    shared.release(number.at);
                }
                self.break_off(place, Broken::Corrupt);
                None
            }
        }
    }

    /// A message of a peer's.
    #[inline]
    fn handle(
        &mut self,
        place: u32,
        attempt: Attempt,
        queue: usize,
        bytes: Lent,
        buffer: Delivered,
    ) -> Option<Step> {
        let ticked = self.ticked();
        let Some(header) = header(bytes) else {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        let Self { desk, peers, .. } = self;
        let peer = peers.get_mut(place as usize)?;
        let arrival = peer.machine.handle_arrival(attempt, queue as u8);
        let connection = peer.connection.as_mut()?;
        connection.signs.heard = ticked;
        let (id, of) = (peer.id, usize::from(header.queue));
        let closed = peer.is_closed.then_some(peer.name);
        let raised = match connection.sides.get_mut(of) {
            Some(side) => {
                side.credit.raise_short(header.limit, desk.most(of)).map(|is_new| side.has_asked &= !is_new)
            }
            None => Err(super::credit::Beyond),
        };
        let is_connected = connection.is_connected;
        let waits = !peer.is_idle();
        if raised.is_err() {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        }
        let is_about_credit = header.wants || header.tag.is_none();
        self.has_due |= is_about_credit;
        if waits || is_about_credit {
            self.touch(place);
        }
        if arrival == Arrival::Drop {
            self.desk.counters.num_dropped.add(1);
            self.release(buffer);
            return None;
        }
        let Some(tag) = header.tag else {
            let len = header.length as usize;
            let mut copy = [0; LONGEST_CONTROL];
            let control = copy.get_mut(..len).and_then(|copy| {
                bytes.read(HEADER, copy);
                Control::parse(copy)
            });
            self.release(buffer);
            let is_known = control.is_some_and(|control| self.control(place, queue, control));
            if !is_known {
                self.break_off(place, Broken::Corrupt);
            }
            self.drive(place);
            return None;
        };
        self.desk.counters.num_recvs.add(1);
        self.desk.counters.recv_bytes.add(u64::from(header.length));
        if !is_connected {
            self.drive(place);
        }
        let bytes = bytes.slice(HEADER, header.length as usize);
        if let Some(name) = closed {
            self.inherit(name, tag, bytes);
            self.release(buffer);
            return None;
        }
        Some(Step::Deliver { from: id, tag, bytes, buffer })
    }

    /// A message of our own; whether it is one that the peer may send.
    fn control(&mut self, place: u32, by: usize, control: Control) -> bool {
        let Self { desk, peers, .. } = self;
        let Some(peer) = peers.get_mut(place as usize) else { return true };
        let credits = desk.port.queues.credits();
        let Some(connection) = &mut peer.connection else { return true };
        let count = connection.sides.len();
        let owed = peer.pending[credits].iter().filter_map(|item| match item {
            Item::Control(Control::Return { queue, .. }) => Some(*queue),
            _ => None,
        });
        let shared = (0..count as u8).filter(|queue| desk.shared[usize::from(*queue)].is_some());
        let standing = Standing {
            is_by_credits: by == credits,
            has_greeted: connection.remote.is_some(),
            shared: mask(shared),
            owed: mask(owed),
        };
        if !standing.allows(&control) {
            return false;
        }
        match control {
            Control::Open => true,
            Control::Hello { address, key, limits } => {
                connection.remote = Some(Remote { address, key });
                (0..count).all(|queue| connection.raise(queue, limits[queue], desk.most(queue)).is_ok())
            }
            Control::Ask { queue } => {
                if let Some(shared) = &mut desk.shared[usize::from(queue)] {
                    shared.lender.ask(place as usize);
                }
                true
            }
            Control::Recall { queue, keep } => {
                // What has been written here since it last had something to send.
                if connection.read_word(usize::from(queue), desk.most(usize::from(queue))).is_err() {
                    return false;
                }
                let side = &mut connection.sides[usize::from(queue)];
                let given = side.credit.give_back(keep);
                side.has_asked = false;
                let control = Control::Return { queue, count: given };
                peer.pending[credits].push_back(Item::Control(control));
                true
            }
            Control::Return { queue, count } => {
                let shared = desk.shared[usize::from(queue)].as_mut();
                shared.is_none_or(|shared| shared.lender.take_back(place as usize, count).is_ok())
            }
            Control::Bye => {
                (peer.has_said_bye, peer.is_draining) = (true, true);
                let attempt = connection.attempt;
                peer.machine.handle_parted(attempt);
                self.touch(place);
                true
            }
        }
    }
}

/// What a peer has said and is owed when it says something.
#[derive(Clone, Copy)]
struct Standing {
    /// It says it by the queue that is for control.
    is_by_credits: bool,
    /// It has said where limits are to be written.
    has_greeted: bool,
    /// Queues that are shared.
    shared: u16,
    /// Queues of which credits are going to be given back to it.
    owed: u16,
}

/// Queues, of which there are no more than 16, as bits.
fn mask(queues: impl Iterator<Item = u8>) -> u16 {
    queues.fold(0, |mask, queue| mask | 1_u16.unbounded_shl(u32::from(queue)))
}

impl Standing {
    /// Whether it may say this now.
    fn allows(self, control: &Control) -> bool {
        let is_in = |mask: u16, queue: u8| mask & 1_u16.unbounded_shl(u32::from(queue)) != 0;
        match *control {
            Control::Open => !self.is_by_credits,
            _ if !self.is_by_credits => false,
            Control::Hello { address, .. } => !self.has_greeted && address.is_multiple_of(8),
            // It has greeted before it says anything else.
            _ if !self.has_greeted => false,
            Control::Ask { queue } | Control::Return { queue, .. } => is_in(self.shared, queue),
            // It waits for what it has asked for before it asks again: nobody makes us keep answers without end.
            Control::Recall { queue, .. } => is_in(self.shared, queue) && !is_in(self.owed, queue),
            Control::Bye => true,
        }
    }
}

/// What stands in front of a message.
#[inline]
fn header(bytes: Lent) -> Option<Header> {
    let mut head = [0; HEADER];
    if bytes.len() < HEADER {
        return None;
    }
    bytes.read(0, &mut head);
    Header::parse(&head, bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::verbs::QUEUES;

    const GREETED: Standing =
        Standing { is_by_credits: true, has_greeted: true, shared: 0b1010, owed: 0b1000 };

    const fn hello(address: u64) -> Control {
        Control::Hello { address, key: 1, limits: [0; QUEUES] }
    }

    /// One of each kind that is about a queue.
    const fn about(queue: u8) -> [Control; 3] {
        [Control::Ask { queue }, Control::Return { queue, count: 1 }, Control::Recall { queue, keep: 1 }]
    }

    #[test]
    fn a_peer_greets_once_and_first_and_where_words_can_be_written() {
        let new = Standing { has_greeted: false, ..GREETED };
        assert!(new.allows(&hello(64)) && !new.allows(&hello(68)) && !GREETED.allows(&hello(64)));
        for control in [Control::Bye].into_iter().chain(about(1)) {
            assert_eq!((new.allows(&control), GREETED.allows(&control)), (false, true), "{control:?}");
        }
    }

    #[test]
    fn what_is_for_control_comes_by_its_queue_and_what_opens_a_queue_by_that() {
        let elsewhere = Standing { is_by_credits: false, ..GREETED };
        for control in [hello(64), Control::Bye].into_iter().chain(about(1)) {
            assert!(!elsewhere.allows(&control), "{control:?}");
            assert!(!Standing { has_greeted: false, ..elsewhere }.allows(&control), "{control:?}");
        }
        assert!(elsewhere.allows(&Control::Open) && !GREETED.allows(&Control::Open));
    }

    #[test]
    fn credits_are_only_asked_for_and_given_back_of_shared_queues_and_once_at_a_time() {
        let allowed = |queue| about(queue).map(|control| GREETED.allows(&control));
        assert_eq!(allowed(1), [true; 3]);
        assert_eq!(allowed(3), [true, true, false], "the last answer has not gone yet");
        for queue in [0, 2, 4, 15, 16, 255] {
            assert_eq!(allowed(queue), [false; 3], "{queue}");
        }
        assert_eq!(mask([3, 1, 3, 16, 255].into_iter()), 0b1010);
    }
}
