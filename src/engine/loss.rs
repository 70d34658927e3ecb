//! What is lost, and what is done when nothing is heard.
//!
//! [`LossDetection`](super::loss_detection::LossDetection) finds which segments are lost. Silence loses nothing: it makes us
//! ask again, with the oldest segment, then with two, at times that double. The answer tells what else is missing. So a stopped
//! process, or a full queue, never causes more than a few packets of resends.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{Channel, End, EndpointId, Event, Memory};
use super::life::{Evidence, Verdict, is_silent_for_too_long};
use super::loss_detection::Delays;
use super::operation::Job;
use super::packet::Notice;
use super::pending_ack::PendingAck;
use super::probe::Carries;
use super::send_window::{Segment, State};
use super::slab::Key;
use super::time::Instant;
use super::timers::Timer;
use crate::error::Error;
use crate::wire::usnic::Kind;

/// How often a peer must have been asked in vain before its silence is told.
const ASKED: u32 = 3;

impl<M: Memory> Engine<M> {
    /// Puts what must be lost by now on the list of resends.
    pub(super) fn detect_loss(&mut self, index: u32) {
        let now = self.clock.now();
        let ack_delay = self.limits.ack_delay;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.timers.stop(Timer::Loss);
        let send = &mut endpoint.send;
        let delays = Delays {
            same_channel: send.rtt.loss_delay(),
            other_channel: 2 * send.rtt.probe_timeout(ack_delay),
        };
        let mut lost = Vec::new();
        if let Some(at) = send.detection.find(&send.window, delays, now, &mut lost) {
            endpoint.timers.set_earlier(Timer::Loss, at);
        }
        for seq in lost {
            self.lose(index, seq);
        }
        self.arm(index);
    }

    /// Puts a segment on the list of resends.
    fn lose(&mut self, index: u32, seq: u64) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let Some(segment) = endpoint.send.window.get_mut(seq) else { return };
        if segment.state != State::InFlight {
            return;
        }
        segment.state = State::Lost;
        segment.fast = true;
        let charge = segment.charge;
        endpoint.send.note_landed(charge);
        // In the order of their loss, so that each is sent again in the end, however little room
        // there is.
        endpoint.send.lost.push_back(seq);
        endpoint.send.congestion.note_lost();
        self.check_ready(index);
    }

    /// What must be done when time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
        while let Some((at, key)) = self.timers.pop(self.clock.now()) {
            if let Some(endpoint) = self.endpoints.get_mut(key) {
                endpoint.timers.note_wheel(at);
                self.handle_timer(key);
            }
        }
    }

    fn handle_timer(&mut self, key: Key) {
        let (index, now) = (key.index, self.clock.now());
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if endpoint.timers.is_due(Timer::Pacing, now) {
            endpoint.timers.stop(Timer::Pacing);
            self.check_ready(index);
        }
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.timers.is_due(Timer::Loss, now)) {
            self.detect_loss(index);
        }
        self.handle_probe_timeout(index);
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.timers.is_due(Timer::Close, now)) {
            self.advance_close(index);
        }
        let Some(endpoint) = self.endpoints.get_mut(key) else { return };
        if endpoint.send.window.is_empty() && !endpoint.send.has_queued() {
            endpoint.shrink();
            self.operations.trim();
        }
        self.arm(index);
    }

    /// Asks a peer that has been silent for too long, or gives it up.
    fn handle_probe_timeout(&mut self, index: u32) {
        let (now, running) = (self.clock.now(), self.clock.running());
        let (ack_delay, most) = (self.limits.ack_delay, self.limits.retransmit_max);
        let timeout = self.limits.peer_timeout;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if matches!(endpoint.phase, Phase::Lingering | Phase::Dead) {
            return;
        }
        if endpoint.send.in_flight == 0 {
            if endpoint.is_waiting() && endpoint.deadline(ack_delay, most).is_some_and(|at| at <= now) {
                self.ask_for_the_rest(index);
            }
            return;
        }
        if endpoint.probe_due(ack_delay, most) > now {
            return;
        }
        if is_silent_for_too_long(
            endpoint.life.last_heard,
            running,
            endpoint.send.probe.unanswered(),
            timeout,
        ) {
            endpoint.life.end = Some(End::Silent);
            self.lose_peer(index);
            return;
        }
        let quiet_since = endpoint.life.last_heard.max(endpoint.life.silence_reported);
        let reports =
            endpoint.send.probe.unanswered() >= ASKED && running.since(quiet_since) >= self.limits.silence;
        if reports {
            endpoint.life.silence_reported = running;
        }
        endpoint.send.probe.note_timeout(now);
        self.check_ready(index);
        self.consider_introduction(index);
        if reports {
            let endpoint = self.id(index);
            self.events.push_back(Event::Silent { endpoint });
        }
    }

    /// The segment that the next probe sends, and whether it was sent before. Neither the window nor the peer's
    /// credit nor the pacer has a say in it (RFC 9002, 6.2.4 and 7.5): without an answer none of them will ever
    /// open again.
    pub(super) fn next_probe(&mut self, index: u32) -> Option<(u64, bool)> {
        let endpoint = self.endpoints.at_mut(index)?;
        let (carries, probed) = endpoint.send.probe.take()?;
        if carries == Carries::Withdrawn
            && let Some(seq) = self.next_recut(index, true)
        {
            return Some((seq, false));
        }
        let endpoint = self.endpoints.at_mut(index)?;
        let waits = |segment: &Segment| match segment.state {
            State::InFlight => segment.sent < probed,
            State::Lost => true,
            State::Arrived => false,
        };
        let found = {
            let mut waiting = endpoint.send.window.iter().filter(|(_, segment)| waits(segment));
            let next = match carries {
                Carries::Oldest | Carries::Next => waiting.next(),
                Carries::Withdrawn | Carries::SentLongestAgo => {
                    waiting.min_by_key(|(_, segment)| segment.sent)
                }
            };
            next.map(|(seq, segment)| (seq, segment.state, segment.charge))
        };
        let Some((seq, state, charge)) = found else {
            endpoint.send.probe.cancel();
            return None;
        };
        if state == State::InFlight {
            endpoint.send.note_landed(charge);
        }
        if let Some(segment) = endpoint.send.window.get_mut(seq) {
            (segment.state, segment.fast) = (State::Lost, false);
        }
        self.counters.num_probes.add(u64::from(carries == Carries::Oldest));
        self.counters.num_timeout_retrans.add(1);
        Some((seq, true))
    }

    /// Nothing of ours is under way, and the peer owes us something. Who owes the answer to a GET has to acknowledge
    /// that it is there. Who owes the rest of a message asks us, unless it knows the connection no more: it is told
    /// who we are, and its silence proves nothing.
    fn ask_for_the_rest(&mut self, index: u32) {
        let (now, running) = (self.clock.now(), self.clock.running());
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if endpoint.gets.open > 0 {
            endpoint.life.last_heard = running;
            self.push_keepalive(index);
        } else {
            endpoint.send.probe.note_sent(now);
            self.notify(index, Notice::Introduction);
        }
    }

    /// A segment with nothing in it, to be acknowledged.
    fn push_keepalive(&mut self, index: u32) {
        let now = self.clock.now();
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
            charge: endpoint.send.charge(crate::wire::usnic::HEADER_LEN),
            offset: 0,
            transmission: 0,
            sent: now,
        };
        let seq = endpoint.send.window.push(segment);
        endpoint.send.lost.push_back(seq);
        self.expected += 1;
        self.check_ready(index);
    }

    /// The peer's host says that nobody listens where it was. What that means, `life` says. A
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
        let running = self.clock.running();
        let Some(index) = self.place(endpoint) else { return };
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.life.last_heard = running;
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
        evidence: impl FnOnce(&mut Evidence, Instant, Instant) -> Verdict,
    ) {
        self.settle(now);
        let running = self.clock.running();
        let Some(index) = self.place(endpoint) else { return };
        let Some(peer) = self.endpoints.at_mut(index) else { return };
        let verdict = evidence(&mut peer.life.evidence, peer.life.last_heard, running);
        match (peer.phase, verdict) {
            (Phase::Closing, _) => self.handle_close_ack(index),
            (Phase::Lingering | Phase::Dead, _) | (_, Verdict::Wait) => {}
            (Phase::Open | Phase::Draining | Phase::Parting, Verdict::Ended(end)) => {
                peer.life.end = Some(end);
                self.lose_peer(index);
            }
            (Phase::Open | Phase::Draining | Phase::Parting, Verdict::Ask) => {
                self.events.push_back(Event::Silent { endpoint })
            }
        }
    }

    /// The peer does not answer any more.
    pub(super) fn lose_peer(&mut self, index: u32) {
        self.fail_all(index);
        self.strip(index);
        let (id, running) = (self.id(index), self.clock.running());
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        (endpoint.phase, endpoint.life.lost) = (Phase::Dead, running);
        endpoint.timers.stop(Timer::Close);
        endpoint.receive.ack = PendingAck::default();
        self.counters.num_lost_peers.add(1);
        self.events.push_back(Event::Lost { endpoint: id });
    }

    /// The places of all operations with the endpoint: what is under way, what waits for its turn, and
    /// the GETs that wait for their data. One may be named more than once.
    fn operations_of(&mut self, index: u32) -> Vec<u32> {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return Vec::new() };
        let open = |segment: &Segment| {
            segment.state != State::Arrived
                && segment.operation != Segment::NOBODY
                && segment.copy().is_none()
        };
        let under_way = endpoint.send.window.iter().filter(|(_, segment)| open(segment));
        let mut places: Vec<u32> = under_way.map(|(_, segment)| segment.operation).collect();
        places.extend(endpoint.send.queues.iter().flatten());
        places.extend(endpoint.held.drain(..).map(|(_, place)| place));
        places.extend(endpoint.send.withdrawn.iter().map(|data| data.operation));
        let getting = endpoint.gets.operations.take().into_iter();
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
            endpoint.gets.serving = 0;
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
                    endpoint.gets.open -= 1;
                    self.expected = self.expected.saturating_sub(1);
                }
                Job::Serve { .. } => endpoint.gets.serving -= 1,
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
