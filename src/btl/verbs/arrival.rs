//! What completions say: messages that have come, work that is over, queue pairs that do not work any more. Every length,
//! number and limit of a peer's is checked; what is none counts, and ends that peer's connection.

use super::connection::{Broken, Entry};
use super::line::{Number, Work};
use super::peer::Item;
use super::state::{Delivered, State, Step};
use crate::btl::Lent;
use crate::engine::cm::{Arrival, Attempt};
use crate::verbs::{Completion, Remote, Status};
use crate::wire::verbs::{Control, HEADER, Header, LONGEST_CONTROL};

impl State {
    /// One completion; what the host is to read, if it is a message.
    #[inline]
    pub(super) fn complete(&mut self, completion: &Completion) -> Option<Step> {
        let number = Number::from_raw(completion.id());
        let is_success = completion.is_success();
        match number.work {
            Work::Send => self.sent(number, is_success, completion),
            Work::Receive if is_success => return self.received(number, completion.len()),
            Work::Shared if is_success => {
                return self.received_shared(number, completion.qp_number(), completion.len());
            }
            Work::Cts if is_success => {
                self.desk.counters.num_cts_received.add(1);
                if let Some(peer) = self.at(number.peer) {
                    peer.machine.handle_cts(Attempt(u32::from(number.attempt)));
                }
                self.drive(number.peer);
            }
            Work::Shared => {
                // Its buffer is free, and was lent to whoever ends now.
                if let Some(shared) = &mut self.desk.shared[usize::from(number.queue)] {
                    shared.release(number.at);
                    shared.lender.lose();
                }
                let known = self.lines.get(&completion.qp_number()).copied();
                if let Some((place, attempt, _)) = known {
                    self.broken(place, attempt);
                }
            }
            Work::Receive | Work::Cts => self.failed(number, completion),
        }
        None
    }

    /// Work of a present queue pair has failed.
    #[cold]
    fn failed(&mut self, number: Number, completion: &Completion) {
        if completion.status() == Status::NotReady {
            self.desk.counters.num_rnr.add(1);
        }
        let attempt = self.present(number.peer, number.attempt).map(|connection| connection.attempt);
        if let Some(attempt) = attempt {
            self.broken(number.peer, attempt);
        }
    }

    /// Something that was posted is over, and all before it.
    #[inline]
    fn sent(&mut self, number: Number, is_success: bool, completion: &Completion) {
        if !is_success {
            self.failed(number, completion);
            return;
        }
        let ticked = self.ticked();
        let Self { desk, peers, news, .. } = self;
        let Some(peer) = peers.get_mut(number.peer as usize).and_then(Option::as_mut) else { return };
        let Some(connection) = &mut peer.connection else { return };
        if (connection.attempt.0 & super::line::ATTEMPT) as u16 != number.attempt {
            return;
        }
        connection.heard = ticked;
        let queue = usize::from(number.queue);
        let Some(side) = connection.sides.get_mut(queue) else { return };
        let (mut reads, mut is_answered) = (0, false);
        let pool = &mut desk.pools[queue];
        side.slots.complete(number.at, |entry| {
            let cookie = match entry {
                Entry::Buffer { at, cookie } => {
                    pool.give(at);
                    cookie
                }
                Entry::Copied(cookie) => cookie,
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
        if is_answered {
            connection.probed = None;
        }
        if !peer.is_idle() || peer.is_draining {
            self.touch(number.peer);
        }
    }

    /// A message has come by a private queue.
    #[inline]
    fn received(&mut self, number: Number, len: usize) -> Option<Step> {
        let queue = usize::from(number.queue);
        let size = self.desk.port.queues.all().get(queue)?.size;
        let connection = self.present(number.peer, number.attempt)?;
        let attempt = connection.attempt;
        let Some((bytes, slab)) = connection.received(queue, number.at, len, size) else {
            self.break_off(number.peer, Broken::Corrupt);
            return None;
        };
        let window = connection.sides[queue].window.as_mut()?;
        if window.arrive().is_err() {
            self.break_off(number.peer, Broken::Corrupt);
            return None;
        }
        let (place, at) = (number.peer, number.at);
        let buffer = Delivered::Private { place, attempt, queue: number.queue, at, _keep: slab };
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
        self.touch(place);
        let ticked = self.ticked();
        let Some(header) = header(bytes) else {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        let Self { desk, peers, .. } = self;
        let peer = peers.get_mut(place as usize).and_then(Option::as_mut)?;
        let arrival = peer.machine.handle_arrival(attempt, queue as u8);
        let connection = peer.connection.as_mut()?;
        connection.heard = ticked;
        let of = usize::from(header.queue);
        let raised = match connection.sides.get_mut(of) {
            Some(side) => {
                side.credit.raise_short(header.limit, desk.most(of)).map(|is_new| side.has_asked &= !is_new)
            }
            None => Err(super::credit::Beyond),
        };
        let id = peer.id;
        if raised.is_err() {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        }
        if arrival == Arrival::Drop {
            self.desk.counters.num_dropped.add(1);
            self.release(buffer);
            return None;
        }
        if header.tag == 0 {
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
        }
        self.desk.counters.num_recvs.add(1);
        self.desk.counters.recv_bytes.add(u64::from(header.length));
        if self.at(place).is_some_and(|peer| peer.connection.as_ref().is_some_and(|it| !it.is_connected)) {
            self.drive(place);
        }
        let bytes = bytes.slice(HEADER, header.length as usize);
        Some(Step::Deliver { from: id, tag: header.tag, bytes, buffer })
    }

    /// A message of our own; whether it is one that the peer may send.
    fn control(&mut self, place: u32, by: usize, control: Control) -> bool {
        let Self { desk, peers, .. } = self;
        let Some(peer) = peers.get_mut(place as usize).and_then(Option::as_mut) else { return true };
        let credits = desk.port.queues.credits();
        if (by == credits) == (control == Control::Open) {
            return false;
        }
        let Some(connection) = &mut peer.connection else { return true };
        let count = connection.sides.len();
        let is_shared = |queue: u8| desk.shared.get(usize::from(queue)).is_some_and(Option::is_some);
        match control {
            Control::Open => true,
            Control::Hello { address, key, limits } => {
                if connection.remote.is_some() || !address.is_multiple_of(8) {
                    return false;
                }
                connection.remote = Some(Remote { address, key });
                (0..count).all(|queue| connection.raise(queue, limits[queue], desk.most(queue)).is_ok())
            }
            Control::Ask { queue } if is_shared(queue) => {
                if let Some(shared) = &mut desk.shared[usize::from(queue)] {
                    shared.lender.ask(place as usize);
                }
                true
            }
            Control::Recall { queue, keep } if is_shared(queue) => {
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
            Control::Return { queue, count } if is_shared(queue) => {
                let shared = desk.shared[usize::from(queue)].as_mut();
                shared.is_none_or(|shared| shared.lender.take_back(place as usize, count).is_ok())
            }
            Control::Bye => {
                peer.has_said_bye = true;
                true
            }
            Control::Ask { .. } | Control::Recall { .. } | Control::Return { .. } => false,
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
