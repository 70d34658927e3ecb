//! What is lost, and what is done when nothing is heard.
//!
//! A segment is lost when three later ones of its channel have arrived, or one has and some time
//! has passed (RFC 9002), or one of the other channel has and much time has passed. Silence loses
//! nothing: it makes us ask again, with the oldest segment, then with two, at times that double.
//! The answer tells what else is missing. So a stopped process, or a full queue, never causes more
//! than a few packets of resends.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{Channel, EndpointId, Event, Memory};
use super::life::{Evidence, Verdict, is_silent_for_too_long};
use super::operation::Job;
use super::packet::PendingAck;
use super::slab::Key;
use super::time::Instant;
use super::window::{Segment, State};
use crate::error::Error;
use crate::wire::usnic::Kind;

/// How often a peer must have been asked in vain before its silence is told.
const ASKED: u32 = 3;

/// Packets that ask a peer at a time: one the first time, then two.
const fn probes(backoff: u32) -> u32 {
    if backoff > 1 { 2 } else { 1 }
}

impl<M: Memory> Engine<M> {
    /// Puts what must be lost by now on the list of resends.
    pub(super) fn detect_loss(&mut self, index: u32) {
        let now = self.now;
        let ack_delay = self.limits.ack_delay;
        let mut lost = std::mem::take(&mut self.scratch);
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.loss_at = None;
        for channel in [Channel::Priority, Channel::Data] {
            while let Some((transmission, seq)) = endpoint.order[channel as usize].front() {
                let current = |segment: &&Segment| {
                    segment.state == State::InFlight
                        && segment.transmission == transmission
                        && segment.channel == channel
                };
                let Some(segment) = endpoint.window.get(seq).filter(current) else {
                    endpoint.order[channel as usize].pop();
                    continue;
                };
                let overtaken = endpoint.order[channel as usize].overtaken(transmission);
                let expires = if overtaken >= endpoint.reordering.threshold() {
                    now
                } else if overtaken > 0 {
                    segment.sent.plus(endpoint.rtt.patience())
                } else if segment.sent < endpoint.newest_arrival {
                    segment.sent.plus(2 * endpoint.rtt.timeout(ack_delay))
                } else {
                    break;
                };
                if expires > now {
                    let earlier = endpoint.loss_at.is_none_or(|at| at > expires);
                    endpoint.loss_at = if earlier { Some(expires) } else { endpoint.loss_at };
                    break;
                }
                endpoint.order[channel as usize].pop();
                lost.push(seq);
            }
        }
        for seq in lost.drain(..) {
            self.lose(index, seq);
        }
        self.scratch = lost;
        self.arm(index);
    }

    /// Puts a segment on the list of resends.
    fn lose(&mut self, index: u32, seq: u64) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let Some(segment) = endpoint.window.get_mut(seq) else { return };
        if segment.state != State::InFlight {
            return;
        }
        segment.state = State::Lost;
        segment.fast = true;
        endpoint.in_flight -= 1;
        endpoint.in_flight_bytes -= u64::from(segment.charge);
        // In the order of their loss, so that each is sent again in the end, however little room
        // there is.
        endpoint.lost.push_back(seq);
        endpoint.congestion.note_lost();
        self.counters.num_fast_retrans.add(1);
        self.check_ready(index);
    }

    /// What must be done when time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
        while let Some((at, key)) = self.timers.pop(self.now) {
            if let Some(endpoint) = self.endpoints.get_mut(key) {
                if endpoint.armed == Some(at) {
                    endpoint.armed = None;
                }
                self.handle_timer(key);
            }
        }
    }

    fn handle_timer(&mut self, key: Key) {
        let (index, now) = (key.index, self.now);
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if due(endpoint.paced_until) {
            endpoint.paced_until = None;
            self.check_ready(index);
        }
        if self.endpoints.at(index).is_some_and(|endpoint| due(endpoint.loss_at)) {
            self.detect_loss(index);
        }
        self.ask(index);
        if self.endpoints.at(index).is_some_and(|endpoint| due(endpoint.close_at)) {
            self.advance_close(index);
        }
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        if endpoint.window.is_empty() && !endpoint.has_queued() {
            endpoint.shrink();
            self.operations.trim();
        }
        self.arm(index);
    }

    /// Asks a peer that has been silent for too long, or gives it up.
    fn ask(&mut self, index: u32) {
        let (now, awake) = (self.now, self.awake());
        let (ack_delay, most) = (self.limits.ack_delay, self.limits.retransmit_max);
        let timeout = self.limits.peer_timeout;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if matches!(endpoint.phase, Phase::Lingering | Phase::Dead) {
            return;
        }
        if endpoint.in_flight == 0 {
            if endpoint.is_waiting() && endpoint.deadline(ack_delay, most).is_some_and(|at| at <= now) {
                endpoint.heard = awake;
                self.push_void(index);
            }
            return;
        }
        let silent = endpoint.active.plus(endpoint.patience(ack_delay, most)) <= now;
        if !silent {
            return;
        }
        if is_silent_for_too_long(endpoint.heard, awake, endpoint.asked, timeout) {
            self.lose_peer(index);
            return;
        }
        let quiet_since = endpoint.heard.max(endpoint.told);
        let tells = endpoint.asked >= ASKED && awake.since(quiet_since) >= self.limits.silence;
        if tells {
            endpoint.told = awake;
        }
        endpoint.asked += 1;
        endpoint.backoff = (endpoint.backoff + 1).min(20);
        endpoint.active = now;
        endpoint.probes = probes(endpoint.backoff);
        endpoint.probed = now;
        self.check_ready(index);
        if tells {
            let endpoint = self.id(index);
            self.events.push_back(Event::Silent { endpoint });
        }
    }

    /// The segment that the next probe sends again: the oldest that nobody has acknowledged, the
    /// second time the one after it. Neither the window nor the peer's credit nor the pacer has a say
    /// in it (RFC 9002, 6.2.4 and 7.5): without an answer none of them will ever open again.
    pub(super) fn next_probe(&mut self, index: u32) -> Option<u64> {
        let endpoint = self.endpoints.at_mut(index)?;
        let is_first = endpoint.probes == probes(endpoint.backoff);
        endpoint.probes = endpoint.probes.checked_sub(1)?;
        let probed = endpoint.probed;
        let waits = |segment: &Segment| match segment.state {
            State::InFlight => segment.sent < probed,
            State::Lost => true,
            State::Arrived => false,
        };
        let Some((seq, segment)) = endpoint.window.iter().find(|(_, segment)| waits(segment)) else {
            endpoint.probes = 0;
            return None;
        };
        if segment.state == State::InFlight {
            let charge = u64::from(segment.charge);
            endpoint.in_flight -= 1;
            endpoint.in_flight_bytes -= charge;
        }
        if let Some(segment) = endpoint.window.get_mut(seq) {
            (segment.state, segment.fast) = (State::Lost, false);
        }
        self.counters.num_probes.add(u64::from(is_first));
        self.counters.num_timeout_retrans.add(1);
        Some(seq)
    }

    /// A segment with nothing in it, to be acknowledged.
    fn push_void(&mut self, index: u32) {
        let now = self.now;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let segment = Segment {
            operation: Segment::NOBODY,
            kind: Kind::Void,
            channel: Channel::Data,
            state: State::Lost,
            resends: 0,
            fast: false,
            recut: false,
            len: 0,
            charge: endpoint.charge(crate::wire::usnic::HEADER_LEN),
            offset: 0,
            transmission: 0,
            sent: now,
        };
        let seq = endpoint.window.push(segment);
        endpoint.lost.push_back(seq);
        self.expected += 1;
        self.check_ready(index);
    }

    /// The network says that nobody listens where the peer was. What that means, `life` says. A
    /// peer that was about to close has just been faster than its last words.
    pub fn handle_gone(&mut self, endpoint: EndpointId, now: Instant) {
        let long = self.limits.refusal_timeout;
        self.weigh(endpoint, now, |evidence, heard, now| evidence.handle_refused(heard, now, long));
    }

    /// Somebody of the peer's node says that its process has ended.
    pub fn handle_ended(&mut self, endpoint: EndpointId, now: Instant) {
        self.weigh(endpoint, now, Evidence::handle_ended);
    }

    /// The agent of the peer's node says that the peer's process lives, though it answers nothing. So
    /// the peer is not lost yet; it is asked as seldom as before.
    pub fn handle_alive(&mut self, endpoint: EndpointId, now: Instant) {
        self.settle(now);
        let awake = self.awake();
        let Some(index) = self.place(endpoint) else { return };
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.heard = awake;
        }
    }

    /// Gives a peer up: it cannot be reached.
    pub fn give_up(&mut self, endpoint: EndpointId, now: Instant) {
        self.settle(now);
        let Some(index) = self.place(endpoint) else { return };
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.phase != Phase::Dead) {
            self.lose_peer(index);
        }
    }

    /// Hears what others say about a peer.
    fn weigh(
        &mut self,
        endpoint: EndpointId,
        now: Instant,
        word: impl FnOnce(&mut Evidence, Instant, Instant) -> Verdict,
    ) {
        self.settle(now);
        let awake = self.awake();
        let Some(index) = self.place(endpoint) else { return };
        let Some(peer) = self.endpoints.at_mut(index) else { return };
        let verdict = word(&mut peer.evidence, peer.heard, awake);
        match (peer.phase, verdict) {
            (Phase::Closing, _) => self.handle_close_ack(index),
            (Phase::Open | Phase::Draining, Verdict::Ended) => self.lose_peer(index),
            (Phase::Open | Phase::Draining, Verdict::Ask) => {
                self.events.push_back(Event::Silent { endpoint })
            }
            (Phase::Open | Phase::Draining | Phase::Lingering | Phase::Dead, _) => {}
        }
    }

    /// The peer does not answer any more.
    pub(super) fn lose_peer(&mut self, index: u32) {
        self.fail_all(index);
        self.strip(index);
        let id = self.id(index);
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.phase = Phase::Dead;
        endpoint.close_at = None;
        endpoint.owed = PendingAck::default();
        self.counters.num_lost_peers.add(1);
        self.events.push_back(Event::Lost { endpoint: id });
    }

    /// The places of all operations with the endpoint: what is under way, what waits for its turn, and
    /// the GETs that wait for their data. One may be named more than once.
    fn operations_of(&mut self, index: u32) -> Vec<u32> {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return Vec::new() };
        let open =
            |segment: &Segment| segment.state != State::Arrived && segment.operation != Segment::NOBODY;
        let under_way = endpoint.window.iter().filter(|(_, segment)| open(segment));
        let mut places: Vec<u32> = under_way.map(|(_, segment)| segment.operation).collect();
        places.extend(endpoint.queues.iter().flatten());
        places.extend(endpoint.withdrawn.iter().map(|data| data.operation));
        let getting = endpoint.getting.take().into_iter();
        places.extend(getting.filter(|key| self.operations.get(*key).is_some()).map(|key| key.index));
        places
    }

    /// Every operation with the endpoint ends.
    pub(super) fn fail_all(&mut self, index: u32) {
        for place in self.operations_of(index) {
            if let Some(Some(cookie)) = self.operations.remove(place).map(|operation| operation.cookie) {
                self.counters.pml_send_callbacks.add(1);
                self.events.push_back(Event::Done { cookie, outcome: Err(Error::Unreachable) });
            }
        }
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.serving = 0;
        }
    }

    /// Ends one operation. What is under way of it mostly arrives; what does not is sent again as a
    /// void, so that the sequence stays whole.
    pub(super) fn fail(&mut self, place: u32, error: Error) {
        let Some(operation) = self.operations.at_mut(place) else { return };
        let index = operation.endpoint;
        let job = std::mem::replace(&mut operation.job, Job::Nothing);
        operation.whole = true;
        let cookie = operation.cookie.take();
        let over = operation.open == 0 && !operation.queued;
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            match job {
                Job::Get { .. } => {
                    endpoint.gets -= 1;
                    self.expected = self.expected.saturating_sub(1);
                }
                Job::Serve { .. } => endpoint.serving -= 1,
                _ => {}
            }
        }
        if over {
            self.operations.remove(place);
        }
        if let Some(cookie) = cookie {
            self.counters.pml_send_callbacks.add(1);
            self.events.push_back(Event::Done { cookie, outcome: Err(error) });
        }
    }
}
