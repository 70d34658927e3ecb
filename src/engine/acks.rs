//! Acknowledgements: those that go to peers, and what theirs mean. When they are sent, `pending_ack` decides;
//! those at once still wait for the end of the pass, so that a burst is answered once.
//!
//! The notes have a duplicate acknowledgement send the hole again at once. Two channels overtake
//! each other all the time, so a hole counts as lost when three later segments *of its channel*
//! have arrived; then it is sent again at once.

use super::ack_queue::AckQueue;
use super::clock::Clock;
use super::controller::Outcome;
use super::core::Engine;
use super::counters::LiveCounters;
use super::delay_bound::leaves_host;
use super::endpoint::{Endpoint, Phase};
use super::flow::{Asking, LEAST_CREDIT};
use super::interface::{Channel, Event, Memory, Transmit};
use super::operation::{Job, Operation};
use super::packet::{AckInfo, Outgoing, Piggyback};
use super::pending_ack::{Arrived, When};
use super::receive_half::ReceiveHalf;
use super::send_half::SendHalf;
use super::send_window::{Landed, Run, Segment, State};
use super::slab::Slab;
use super::time::{Instant, MICRO};
use super::timers::Timer;
use crate::wire::usnic::{Bitmap, Body, Flags, Kind, MAX_HEADER_LEN, header_len};
use std::collections::VecDeque;

/// What has waited here for so long before it was read is acknowledged at once.
const WAITED: u64 = 10 * MICRO;
/// A stamp older than this may be newer: the clock of stamps has gone round.
const ROUND: u64 = 1 << 31;

impl Endpoint {
    /// What a packet says besides; it settles the pending acknowledgement, as far as it can.
    #[inline]
    pub(super) fn piggyback(&mut self, credit: u64, now: Instant, acks: &mut AckQueue) -> Piggyback {
        acks.note_settled(&mut self.timers);
        let (echo, retransmission) = self.receive.ack.take(self.receive.window.has_gap(), now);
        let flags = Flags::ACKNOWLEDGES.with(Flags::ACKS_RETRANSMISSION, retransmission);
        Piggyback { flags, echo, credit: credit as u16, ack: self.receive.window.next() }
    }

    /// The common acknowledgement: of the only segment under way, a copy sent once, by a packet newer than all before,
    /// with nothing left to do. What has become of the window; nothing has changed when it was not that.
    #[inline(always)]
    pub(super) fn acknowledge_only(
        &mut self,
        info: &AckInfo,
        at: Instant,
        clock: &Clock,
        most: u64,
    ) -> Option<Outcome> {
        let Self { send, receive, timers, .. } = self;
        let (segment, place) = send.window.only().and_then(Segment::as_plain_copy)?;
        let is_newer =
            receive.newest_stamp.is_some_and(|(stamp, _)| info.stamp.wrapping_sub(stamp) as i32 > 0);
        let has_more = !send.withdrawn.is_empty() || send.has_queued();
        if info.ack != send.window.next() || !is_newer || has_more || self.phase != Phase::Open {
            return None;
        }
        receive.newest_stamp = Some((info.stamp, at));
        self.life.last_heard = clock.running();
        send.probe.note_heard();
        send.credit.set(u64::from(info.credit), most, info.arrival.at());
        if info.echo != 0 {
            send.note_echo(info, Some(segment.sent), clock.resumed(), at);
        }
        send.note_landed(segment.charge);
        let least = send.rtt.min();
        let outcome = send.congestion.note_arrived(segment.landed(), segment.sent, at, least);
        send.copies.discard(place);
        send.window.clear();
        send.detection.note_arrival(segment.channel, segment.transmission, segment.sent);
        send.detection.forget();
        if !send.lost.is_empty() {
            send.lost.clear();
        }
        send.probe.note_acknowledged(at);
        timers.stop(Timer::Pacing);
        timers.stop(Timer::Loss);
        Some(outcome)
    }

    /// Whether the sender of what has come waits for its acknowledgement: it says so, or has waited since it came and has
    /// no other to tell it how the network is.
    #[inline(always)]
    fn is_urgent(&self, packet: &AckInfo, at: Instant) -> bool {
        packet.flags.has(Flags::ASKS)
            || leaves_host(self.peer.max_datagram) && packet.read_late(at).is_some_and(|late| late > WAITED)
    }

    /// Notes that the segment that was expected has come, of a peer that has a share of the receive buffer, and when it is
    /// acknowledged. Nothing is missing, and was not before.
    #[inline(always)]
    pub(super) fn note_expected(&mut self, packet: &AckInfo, at: Instant) -> When {
        let is_urgent = self.is_urgent(packet, at);
        let ReceiveHalf { ack, share, last_data, .. } = &mut self.receive;
        ack.note_packet(packet, at);
        *last_data = at;
        ack.note_in_order(share.promised(), self.peer.max_datagram as u64, is_urgent)
    }
}

impl SendHalf {
    /// A packet newer than all before says which of ours it answers.
    /// The oldest segment under way was `sent` then, if it was sent once and is what the packet answers.
    #[inline(always)]
    fn note_echo(&mut self, info: &AckInfo, sent: Option<Instant>, resumed: Instant, at: Instant) {
        let Some(arrived) = info.arrival.at() else { return };
        let sample = arrived.stamp().wrapping_sub(info.echo);
        let trip = u64::from(sample) * MICRO;
        // A packet that waited while we slept says nothing about the path.
        if (sample as i32) < 0 || at.since(resumed) < trip {
            return;
        }
        if self.rtt.sample(trip, sent.map(|sent| at.since(sent)), at) {
            self.congestion.seek_least_round_trip();
        }
        self.congestion.note_round_trip(trip.max(MICRO), info.read_late(at));
    }
}

/// What an arrival changes besides its endpoint.
struct Ledger<'a, M> {
    operations: &'a mut Slab<Operation<M>>,
    counters: &'a LiveCounters,
    events: &'a mut VecDeque<Event>,
    expected: &'a mut u64,
}

impl<M: Memory> Engine<M> {
    /// What a packet to the endpoint says besides.
    pub(super) fn piggyback(&mut self, index: u32) -> Option<Piggyback> {
        let (credit, now) = (self.grant(index), self.clock.now());
        Some(self.endpoints.at_mut(index)?.piggyback(credit, now, &mut self.acks))
    }

    /// An explicit acknowledgement whose time has come.
    pub(super) fn poll_ack(&mut self) -> Option<Transmit<M>> {
        let now = self.clock.now();
        while let Some((at, key)) = self.acks.pop(now) {
            let Some(endpoint) = self.endpoints.get_mut(key) else { continue };
            let is_due = self.acks.note_turn(&mut endpoint.timers, at, key, now);
            if is_due && endpoint.receive.ack.hasten() {
                self.acks.immediate.push_back(key.index);
            }
        }
        while let Some(&index) = self.acks.immediate.front() {
            let is_due =
                |endpoint: &&mut Endpoint| endpoint.receive.ack.immediate && endpoint.phase != Phase::Dead;
            let Some(endpoint) = self.endpoints.at_mut(index).filter(is_due) else {
                self.acks.immediate.pop_front();
                continue;
            };
            let ReceiveHalf { window, ack, .. } = &mut endpoint.receive;
            let has_gap = window.has_gap();
            let first = ack.begin_bitmap(window.next(), has_gap);
            let bitmap = if has_gap { window.bitmap(first) } else { Bitmap::default() };
            let more = ack.has_unreported();
            let piggyback = self.piggyback(index)?;
            if !more {
                self.acks.immediate.pop_front();
                if let Some((key, endpoint)) = self.endpoints.entry_mut(index) {
                    endpoint.receive.ack.immediate = false;
                    let when = endpoint.receive.ack.repeat();
                    self.acks.note(when, &mut endpoint.timers, key, now, self.limits.ack_delay);
                }
            }
            self.counters.num_ack_sends.add(1);
            let body = Body::Ack(bitmap);
            let packet = Outgoing { seq: first, body, ..Outgoing::default() };
            return self.seal(index, Channel::Priority, [None, None], &packet, &piggyback);
        }
        None
    }

    /// Notes that a segment has come, new or again, and what that owes its sender.
    #[inline(never)]
    pub(super) fn note_data(&mut self, index: u32, packet: &AckInfo, at: Instant, is_new: bool) {
        let Some((key, endpoint)) = self.endpoints.entry_mut(index) else { return };
        let unit = endpoint.peer.max_datagram as u64;
        let is_urgent = endpoint.is_urgent(packet, at);
        let ReceiveHalf { window, ack, share, has_gap: had_gap, is_listed, last_data, .. } =
            &mut endpoint.receive;
        if !share.is_active() {
            self.budget.join(share, unit);
            if !std::mem::replace(is_listed, true) {
                self.lists.sharers.push_back(index);
            }
        }
        if is_new {
            ack.note_packet(packet, at)
        } else {
            ack.note_duplicate(packet, at)
        }
        *last_data = at;
        let has_gap = window.has_gap();
        let arrived = Arrived {
            seq: packet.seq,
            is_new,
            next: window.next(),
            has_gap,
            had_gap: *had_gap,
            is_urgent,
            promised: share.promised(),
            unit,
        };
        if has_gap != std::mem::replace(had_gap, has_gap) {
            self.expected = if has_gap { self.expected + 1 } else { self.expected.saturating_sub(1) };
        }
        let when = ack.note_segment(&arrived);
        self.acks.note(when, &mut endpoint.timers, key, at, self.limits.ack_delay);
    }

    /// How many segments the endpoint may send us now: its share of the receive buffer, as far as
    /// the others have not been promised it already.
    #[inline(always)]
    pub(super) fn grant(&mut self, index: u32) -> u64 {
        self.review_next();
        let known = self.endpoints.len();
        match self.endpoints.at(index).and_then(|endpoint| endpoint.settled_grant(&self.budget, known)) {
            Some(segments) => segments,
            None => self.grant_anew(index),
        }
    }

    #[inline(never)]
    fn grant_anew(&mut self, index: u32) -> u64 {
        let (peers, most, now) = (self.endpoints.len(), self.limits.window.max(2), self.clock.now());
        let Some(endpoint) = self.endpoints.at_mut(index) else { return LEAST_CREDIT };
        let round_trip = endpoint.send.rtt.smoothed();
        let asking = Asking { unit: endpoint.peer.max_datagram as u64, most, peers, round_trip, now };
        self.budget.grant(&mut endpoint.receive.share, asking)
    }

    /// Looks whether the next one of those that share the receive buffer still uses its room.
    #[inline(always)]
    pub(super) fn review_next(&mut self) {
        if self.lists.sharers.len() > 1
            && let Some(next) = self.lists.sharers.pop_front()
            && self.review(next)
        {
            self.lists.sharers.push_back(next);
        }
    }

    /// Takes the room back from an endpoint that has long been silent. Whether it still stands in line.
    fn review(&mut self, index: u32) -> bool {
        let (now, resumed) = (self.clock.now(), self.clock.resumed());
        let Some(endpoint) = self.endpoints.at_mut(index) else { return false };
        let silent = now.since(endpoint.receive.last_data.max(resumed));
        endpoint.receive.is_listed = self.budget.review(&mut endpoint.receive.share, silent);
        endpoint.receive.is_listed
    }

    /// What the peer's packet acknowledges.
    #[inline(never)]
    pub(super) fn handle_ack(&mut self, index: u32, info: &AckInfo, bitmap: Option<&Bitmap>, at: Instant) {
        self.acknowledge(index, info, bitmap, at);
    }

    /// The same, for the common packet.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, index: u32, info: &AckInfo, bitmap: Option<&Bitmap>, at: Instant) {
        let running = self.clock.running();
        let (resumed, most) = (self.clock.resumed(), self.limits.window);
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if info.ack > endpoint.send.window.next() {
            self.counters.num_bad_acks.add(1);
            return;
        }
        let newer = endpoint.receive.newest_stamp.is_none_or(|(stamp, when)| {
            (info.stamp.wrapping_sub(stamp) as i32) > 0 || at.since(when) > ROUND * MICRO / 2
        });
        let same = endpoint.receive.newest_stamp.is_some_and(|(stamp, _)| stamp == info.stamp);
        if newer {
            endpoint.receive.newest_stamp = Some((info.stamp, at));
            endpoint.life.last_heard = running;
            endpoint.send.probe.note_heard();
        }
        let mut is_credit_news = false;
        if newer || same {
            is_credit_news = endpoint.send.credit.set(u64::from(info.credit), most, info.arrival.at());
        }
        if info.ack < endpoint.send.window.base() {
            self.counters.num_old_dup_acks.add(1);
            return;
        }
        // All but the first packets of a run say nothing that is new.
        let is_echo = info.ack == endpoint.send.window.base() && info.echo == 0 && bitmap.is_none();
        if is_echo && !is_credit_news && endpoint.phase == Phase::Open {
            return;
        }
        if info.echo != 0 && newer {
            let oldest = endpoint.send.window.get(endpoint.send.window.base());
            let answered = oldest.filter(|it| it.resends == 0 && info.ack > endpoint.send.window.base());
            let sent = answered.map(|oldest| oldest.sent);
            endpoint.send.note_echo(info, sent, resumed, at);
        }
        let acks_retransmission = info.flags.has(Flags::ACKS_RETRANSMISSION);
        let mut news = false;
        let before = endpoint.send.window.base();
        let mut ledger = Ledger {
            operations: &mut self.operations,
            counters: &self.counters,
            events: &mut self.events,
            expected: &mut self.expected,
        };
        while endpoint.send.window.base() < info.ack {
            let Some(segment) = endpoint.send.window.pop() else { break };
            news = true;
            if segment.is_plain() {
                let run = endpoint.send.window.pop_run(segment, info.ack);
                ledger.note_run(endpoint, &run, at);
            } else if segment.state != State::Arrived {
                ledger.note_arrival(endpoint, &segment, at, acks_retransmission);
            }
        }
        if let Some(bitmap) = bitmap {
            for ahead in bitmap.iter() {
                let Some(seq) = info.seq.checked_add(ahead) else { break };
                let segment = endpoint.send.window.get_mut(seq);
                if let Some(segment) = segment.filter(|segment| segment.state != State::Arrived) {
                    let copy = *segment;
                    segment.state = State::Arrived;
                    news = true;
                    ledger.note_arrival(endpoint, &copy, at, acks_retransmission);
                }
            }
            if info.ack == before && !endpoint.send.window.is_empty() {
                self.counters.num_dup_acks.add(1);
            }
        }
        // With the hole filled, what is known to have arrived above it is through.
        while endpoint
            .send
            .window
            .get(endpoint.send.window.base())
            .is_some_and(|it| it.state == State::Arrived)
        {
            endpoint.send.window.pop();
        }
        if news {
            endpoint.send.probe.note_acknowledged(at);
            endpoint.timers.stop(Timer::Pacing);
            if endpoint.send.window.is_empty() {
                endpoint.send.detection.forget();
                endpoint.send.lost.clear();
                endpoint.timers.stop(Timer::Loss);
                let waits =
                    endpoint.send.has_queued() && !endpoint.ready || !endpoint.send.withdrawn.is_empty();
                if !waits && endpoint.phase == Phase::Open {
                    return;
                }
            } else {
                self.detect_loss(index);
            }
        }
        self.check_ready(index);
        self.check_drained(index);
    }
}

impl<M> Ledger<'_, M> {
    /// A segment is known to have arrived, in sequence or not.
    #[inline(always)]
    fn note_arrival(
        &mut self,
        endpoint: &mut Endpoint,
        segment: &Segment,
        at: Instant,
        acks_retransmission: bool,
    ) {
        if segment.state == State::InFlight {
            endpoint.send.note_landed(segment.charge);
        }
        let least = endpoint.send.rtt.min();
        let hasty = segment.resends > 0 && (!acks_retransmission || at.since(segment.sent) < least);
        if segment.channel == Channel::Data {
            *self.expected = self.expected.saturating_sub(1);
            endpoint.took_longest |= segment.len as usize + MAX_HEADER_LEN >= endpoint.send.path.width();
            if segment.kind != Kind::Withdraw {
                let len = header_len(segment.kind) + segment.len as usize;
                endpoint.send.path.note_arrived(len, segment.sent);
            }
            if segment.recut {
                endpoint.send.path.note_recut_arrived(at);
            }
        }
        if hasty || segment.state == State::Lost {
            // It was the earlier transmission that arrived.
            if hasty {
                self.counters.num_spurious_retrans.add(1);
            }
            if segment.fast || segment.state == State::Lost {
                endpoint.send.detection.note_spurious();
            }
        } else {
            if segment.resends > 0 && segment.fast {
                endpoint.send.detection.note_recovered();
            }
            endpoint.send.detection.note_arrival(segment.channel, segment.transmission, segment.sent);
            if endpoint.send.congestion.note_arrived(segment.landed(), segment.sent, at, least)
                == Outcome::Shrunk
            {
                self.counters.num_congestion_events.add(1);
            }
        }
        self.release(endpoint, segment.operation, 1);
    }

    /// The same for segments of one operation that were sent together, once each.
    #[inline(always)]
    fn note_run(&mut self, endpoint: &mut Endpoint, run: &Run, at: Instant) {
        let &Run { last: ref segment, count, longest, charge } = run;
        let landed = Landed { count, bytes: charge };
        endpoint.send.note_landed_together(landed);
        if segment.channel == Channel::Data {
            *self.expected = self.expected.saturating_sub(count);
            endpoint.took_longest |= longest as usize + MAX_HEADER_LEN >= endpoint.send.path.width();
            endpoint.send.path.note_arrived(header_len(segment.kind) + longest as usize, segment.sent);
        }
        endpoint.send.detection.note_arrival(segment.channel, segment.transmission, segment.sent);
        let least = endpoint.send.rtt.min();
        if endpoint.send.congestion.note_arrived(landed, segment.sent, at, least) == Outcome::Shrunk {
            self.counters.num_congestion_events.add(1);
        }
        self.release(endpoint, segment.operation, count as u32);
    }

    /// So many segments less of an operation are open; perhaps that was all.
    #[inline(always)]
    fn release(&mut self, endpoint: &mut Endpoint, place: u32, count: u32) {
        if place == Segment::NOBODY {
            return;
        }
        if let Some(copy) = Segment::copy_at(place) {
            return endpoint.send.copies.discard(copy);
        }
        let Some(operation) = self.operations.at_mut(place) else { return };
        operation.open = operation.open.saturating_sub(count);
        if operation.open > 0 || operation.queued || !operation.whole {
            return;
        }
        match operation.job {
            // The request has arrived, the data has not.
            Job::Get { .. } => return,
            Job::Serve { .. } => endpoint.gets.serving -= 1,
            Job::Send { .. } | Job::Put { .. } | Job::Refuse { .. } | Job::Nothing => {}
        }
        let cookie = operation.cookie;
        self.operations.discard(place);
        if let Some(cookie) = cookie {
            self.counters.pml_send_callbacks.add(1);
            self.events.push_back(Event::Done { cookie, outcome: Ok(()) });
        }
    }
}
