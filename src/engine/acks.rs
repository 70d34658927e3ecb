//! Acknowledgements: what is owed to peers, and what theirs mean.
//!
//! Every packet to a peer carries one. One of its own is sent when 50 µs have passed and nothing
//! else went there; at once, when something came again (an acknowledgement must have been lost),
//! when there is a hole (it carries a bitmap of what is there), when the sender asks, as it does at
//! the end of what is not tiny and somebody waits for, or when a good part of the room that it was
//! given has been used. Those at once still wait for the end of the pass, so that a burst is answered
//! once.
//!
//! The notes have a duplicate acknowledgement send the hole again at once. Two channels overtake
//! each other all the time, so a hole counts as lost when three later segments *of its channel*
//! have arrived; then it is sent again at once.

use super::controller::Outcome;
use super::core::Engine;
use super::counters::LiveCounters;
use super::delay_bound::leaves_host;
use super::endpoint::{Endpoint, IDLE, LEAST_CREDIT, Phase, Settled};
use super::interface::{Channel, Event, Memory, Transmit};
use super::operation::{Job, Operation};
use super::packet::{AckInfo, Outgoing, Piggyback};
use super::slab::Slab;
use super::time::{Instant, MICRO, MILLI};
use super::window::{Order, Segment, State};
use crate::wire::usnic::{BITMAP_BITS, Bitmap, Body, Flags, Kind, MAX_HEADER_LEN, header_len};
use std::collections::VecDeque;

/// Arrivals that are acknowledged at once, together.
const MANY: u64 = 64;
/// What has waited here for so long before it was read is acknowledged at once.
const WAITED: u64 = 10 * MICRO;
/// How long a promise of room counts after it has been reduced, and two round trips.
const PROMISED: u64 = 2 * MILLI;
/// A stamp older than this may be newer: the clock of stamps has gone round.
const ROUND: u64 = 1 << 31;

impl Endpoint {
    /// What a packet says besides; it settles what is owed, as far as it can.
    #[inline]
    pub(super) fn piggyback(&mut self, credit: u64, now: Instant) -> Piggyback {
        let echo = self.owed.echo.take().map_or(0, |echo| echo.held(now));
        self.owed.due = None;
        self.owed.arrived = 0;
        // A hole takes a bitmap to describe.
        self.owed.now &= self.received.has_gap() || self.owed.again;
        let again = std::mem::take(&mut self.owed.heard_again);
        let flags = Flags::ACKNOWLEDGES.with(Flags::HEARD_AGAIN, again);
        Piggyback { flags, echo, credit: credit as u32, ack: self.received.next() }
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
        let (credit, now) = (self.grant(index), self.now);
        Some(self.endpoints.at_mut(index)?.piggyback(credit, now))
    }

    /// An explicit acknowledgement whose time has come.
    pub(super) fn poll_ack(&mut self) -> Option<Transmit<M>> {
        while let Some(&(at, index)) = self.owed_later.front() {
            let due = self.endpoints.at(index).is_some_and(|endpoint| endpoint.owed.due == Some(at));
            if due && at > self.now {
                break;
            }
            self.owed_later.pop_front();
            if due {
                self.owe_now(index);
            }
        }
        while let Some(&index) = self.owed_now.front() {
            let owes = |endpoint: &&mut Endpoint| endpoint.owed.now && endpoint.phase != Phase::Dead;
            let Some(endpoint) = self.endpoints.at_mut(index).filter(owes) else {
                self.owed_now.pop_front();
                continue;
            };
            endpoint.owed.again = false;
            let received = &endpoint.received;
            let above = received.next() + 1;
            let (first, bitmap, more) = match endpoint.owed.fresh {
                _ if !received.has_gap() => (received.next(), Bitmap::default(), None),
                Some((low, high)) if high >= low.max(above) + BITMAP_BITS => {
                    let first = low.max(above);
                    (first, received.bitmap(first), Some((first + BITMAP_BITS, high)))
                }
                Some((_, high)) => {
                    let first = above.max((high + 1).saturating_sub(BITMAP_BITS));
                    (first, received.bitmap(first), None)
                }
                None => (above, received.bitmap(above), None),
            };
            endpoint.owed.fresh = more;
            let piggyback = self.piggyback(index)?;
            if more.is_none() {
                self.owed_now.pop_front();
                if let Some(endpoint) = self.endpoints.at_mut(index) {
                    endpoint.owed.now = false;
                }
            }
            self.counters.num_ack_sends.add(1);
            let body = Body::Ack(bitmap);
            let said = Outgoing { seq: first, body, ..Outgoing::default() };
            return self.seal(index, Channel::Priority, [None, None], &said, &piggyback);
        }
        None
    }

    fn owe_now(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if !endpoint.owed.now {
            endpoint.owed.now = true;
            self.owed_now.push_back(index);
        }
    }

    /// Notes that a segment has come, new or again, and what that owes its sender.
    #[inline(never)]
    pub(super) fn note_data(&mut self, index: u32, heard: &AckInfo, at: Instant, new: bool) {
        self.note(index, heard, at, new);
    }

    /// The same, for the common packet.
    #[inline(always)]
    pub(super) fn note(&mut self, index: u32, heard: &AckInfo, at: Instant, new: bool) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if !endpoint.sharing {
            // From now on it is one of those that share the receive buffer.
            endpoint.sharing = true;
            let least = LEAST_CREDIT * endpoint.peer.max_datagram as u64;
            endpoint.granted = [least; 2];
            self.granted += least;
            self.sharing += 1;
            if !std::mem::replace(&mut endpoint.listed, true) {
                self.sharers.push_back(index);
            }
        }
        let heard_again = endpoint.owed.heard_again;
        heard.leave_echo(at, &mut endpoint.owed);
        if !new {
            // An earlier transmission had arrived.
            endpoint.owed.heard_again = heard_again;
        }
        endpoint.last_data = at;
        let (gap, was_gapped) = (endpoint.received.has_gap(), endpoint.gapped);
        if gap != was_gapped {
            self.expected = if gap { self.expected + 1 } else { self.expected.saturating_sub(1) };
            endpoint.gapped = gap;
        }
        let owed = &mut endpoint.owed;
        if new {
            owed.arrived += 1;
            if gap && heard.seq >= endpoint.received.next() {
                let seq = heard.seq;
                owed.fresh = Some(owed.fresh.map_or((seq, seq), |(low, high)| (low.min(seq), high.max(seq))));
            }
        } else {
            owed.again = true;
        }
        let many = owed.arrived >= LEAST_CREDIT && {
            let segments = endpoint.granted[0] / endpoint.peer.max_datagram as u64;
            owed.arrived >= (segments / 4).clamp(LEAST_CREDIT, MANY)
        };
        // Its sender may be waiting since it came, and has no other to tell it how the network is.
        let waited =
            leaves_host(endpoint.peer.max_datagram) && heard.read_late(at).is_some_and(|late| late > WAITED);
        if !new || gap || was_gapped || many || waited || heard.flags.has(Flags::ASKS) {
            self.owe_now(index);
        } else if owed.due.is_none() && !owed.now {
            let due = at.plus(self.limits.ack_delay);
            owed.due = Some(due);
            self.owed_later.push_back((due, index));
        }
    }

    /// How many segments the endpoint may send us now: its share of the receive buffer, as far as
    /// the others have not been promised it already.
    #[inline(always)]
    pub(super) fn grant(&mut self, index: u32) -> u64 {
        self.review_next();
        let (sharers, endpoints) = (self.sharing, self.endpoints.len());
        if let Some(endpoint) = self.endpoints.at(index)
            && let Some(credit) = endpoint.settled.credit(endpoint, self.granted, sharers, endpoints)
        {
            return credit;
        }
        self.grant_anew(index)
    }

    #[inline(never)]
    fn grant_anew(&mut self, index: u32) -> u64 {
        // Whoever is silent may speak up with what it may send unasked.
        let known = self.endpoints.len();
        let silent = known.saturating_sub(self.sharing) as u64;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return LEAST_CREDIT };
        if !endpoint.sharing {
            return LEAST_CREDIT;
        }
        let unit = endpoint.peer.max_datagram as u64;
        let held = endpoint.granted[0].max(endpoint.granted[1]);
        let whole = self.limits.receive_capacity;
        let capacity = whole - (silent * LEAST_CREDIT * unit).min(whole / 2);
        let free = capacity.saturating_sub(self.granted);
        let share = capacity / self.sharing.max(1) as u64;
        let segments = (share.min(held + free) / unit).clamp(LEAST_CREDIT, self.limits.window.max(2));
        // What was promised before may still be on its way here, for a while.
        let promised = segments * unit;
        if promised < endpoint.granted[0] {
            endpoint.promised_until = self.now.plus(PROMISED + 2 * endpoint.rtt.smoothed());
        }
        let past = if self.now > endpoint.promised_until { promised } else { held };
        let total = self.granted - held + promised.max(past);
        if endpoint.granted == [promised, past] && promised == past && total == self.granted {
            let (sharers, endpoints) = (self.sharing, known);
            endpoint.settled = Settled { total, sharers, endpoints, granted: promised, segments };
        }
        endpoint.granted = [promised, past];
        self.granted = total;
        segments
    }

    /// Looks whether the next one of those that share the receive buffer still uses its room.
    #[inline(always)]
    pub(super) fn review_next(&mut self) {
        if self.sharers.len() > 1
            && let Some(next) = self.sharers.pop_front()
            && self.review(next)
        {
            self.sharers.push_back(next);
        }
    }

    /// Takes the room back from an endpoint that has long been silent: it has stopped using it.
    /// Whether it still stands in line.
    fn review(&mut self, index: u32) -> bool {
        let now = self.now;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return false };
        if endpoint.sharing && now.since(endpoint.last_data) > 3 * IDLE && now.since(self.woken) > 3 * IDLE {
            endpoint.sharing = false;
            self.granted = self.granted.saturating_sub(endpoint.granted[0].max(endpoint.granted[1]));
            endpoint.granted = [0; 2];
            self.sharing -= 1;
        }
        endpoint.listed = endpoint.sharing;
        endpoint.sharing
    }

    /// What the peer's packet acknowledges.
    #[inline(never)]
    pub(super) fn handle_ack(&mut self, index: u32, heard: &AckInfo, bitmap: Option<&Bitmap>, at: Instant) {
        self.acknowledge(index, heard, bitmap, at);
    }

    /// The same, for the common packet.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, index: u32, heard: &AckInfo, bitmap: Option<&Bitmap>, at: Instant) {
        let awake = self.awake();
        let (woken, most) = (self.woken, self.limits.window);
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if heard.ack > endpoint.window.next() {
            self.counters.num_bad_acks.add(1);
            return;
        }
        let newer = endpoint.stamp.is_none_or(|(stamp, when)| {
            (heard.stamp.wrapping_sub(stamp) as i32) > 0 || at.since(when) > ROUND * MICRO / 2
        });
        let same = endpoint.stamp.is_some_and(|(stamp, _)| stamp == heard.stamp);
        if newer {
            endpoint.stamp = Some((heard.stamp, at));
            endpoint.heard = awake;
            endpoint.asked = 0;
        }
        let credit = endpoint.credit;
        if newer || same {
            endpoint.credit = u64::from(heard.credit).clamp(LEAST_CREDIT, most.max(LEAST_CREDIT));
        }
        if heard.ack < endpoint.window.base() {
            self.counters.num_old_dup_acks.add(1);
            return;
        }
        // All but the first packets of a run say nothing that is new.
        let is_echo = heard.ack == endpoint.window.base() && heard.echo == 0 && bitmap.is_none();
        if is_echo && endpoint.credit == credit && endpoint.phase == Phase::Open {
            return;
        }
        let arrived = heard.arrival.at().filter(|_| heard.echo != 0 && newer);
        let sample = arrived.map(|arrived| arrived.stamp().wrapping_sub(heard.echo));
        // A packet that waited while we slept says nothing about the path.
        if let Some(sample) = sample.filter(|sample| *sample as i32 >= 0)
            && let trip = u64::from(sample) * MICRO
            && at.since(woken) >= trip
        {
            let oldest = endpoint.window.get(endpoint.window.base()).filter(|oldest| oldest.resends == 0);
            let answer = oldest.filter(|_| heard.ack > endpoint.window.base());
            if endpoint.rtt.sample(trip, answer.map(|oldest| at.since(oldest.sent)), at) {
                endpoint.congestion.run_dry();
            }
            endpoint.congestion.note_round_trip(trip.max(MICRO), heard.read_late(at));
        }
        let heard_again = heard.flags.has(Flags::HEARD_AGAIN);
        let mut news = false;
        let before = endpoint.window.base();
        let mut ledger = Ledger {
            operations: &mut self.operations,
            counters: &self.counters,
            events: &mut self.events,
            expected: &mut self.expected,
        };
        while endpoint.window.base() < heard.ack {
            let Some(segment) = endpoint.window.pop() else { break };
            news = true;
            if segment.state != State::Arrived {
                ledger.note_arrival(endpoint, &segment, at, heard_again);
            }
        }
        if let Some(bitmap) = bitmap {
            for ahead in bitmap.iter() {
                let Some(seq) = heard.seq.checked_add(ahead) else { break };
                let segment = endpoint.window.get_mut(seq);
                if let Some(segment) = segment.filter(|segment| segment.state != State::Arrived) {
                    let copy = *segment;
                    segment.state = State::Arrived;
                    news = true;
                    ledger.note_arrival(endpoint, &copy, at, heard_again);
                }
            }
            if heard.ack == before && !endpoint.window.is_empty() {
                self.counters.num_dup_acks.add(1);
            }
        }
        // With the hole filled, what is known to have arrived above it is through.
        while endpoint.window.get(endpoint.window.base()).is_some_and(|it| it.state == State::Arrived) {
            endpoint.window.pop();
        }
        if news {
            (endpoint.backoff, endpoint.probes) = (0, 0);
            endpoint.active = at;
            endpoint.paced_until = None;
            if endpoint.window.is_empty() {
                endpoint.order.iter_mut().for_each(Order::clear);
                endpoint.lost.clear();
                endpoint.loss_at = None;
                let waits = endpoint.has_queued() && !endpoint.ready || !endpoint.withdrawn.is_empty();
                if !waits && endpoint.phase == Phase::Open {
                    return;
                }
            } else {
                self.detect_loss(index);
            }
        }
        self.check_ready(index);
        if let Some(endpoint) = self.endpoints.at(index)
            && endpoint.phase == Phase::Draining
            && endpoint.is_drained()
        {
            self.advance_close(index);
        }
    }
}

impl<M> Ledger<'_, M> {
    /// A segment is known to have arrived, in sequence or not.
    #[inline(always)]
    fn note_arrival(&mut self, endpoint: &mut Endpoint, segment: &Segment, at: Instant, heard_again: bool) {
        if segment.state == State::InFlight {
            endpoint.in_flight -= 1;
            endpoint.in_flight_bytes -= u64::from(segment.charge);
        }
        let least = endpoint.rtt.least();
        let hasty = segment.resends > 0 && (!heard_again || at.since(segment.sent) < least);
        if segment.channel == Channel::Data {
            *self.expected = self.expected.saturating_sub(1);
            endpoint.took_longest |= segment.len as usize + MAX_HEADER_LEN >= endpoint.path.width();
            if segment.kind != Kind::Withdraw {
                let len = header_len(segment.kind) + segment.len as usize;
                endpoint.path.note_arrived(len, segment.sent);
            }
            if segment.recut {
                endpoint.path.note_recut_arrived(at);
            }
        }
        if hasty || segment.state == State::Lost {
            // It was the earlier transmission that arrived.
            if hasty {
                self.counters.num_spurious_retrans.add(1);
            }
            if segment.fast || segment.state == State::Lost {
                endpoint.reordering.note_spurious();
            }
        } else {
            if segment.resends > 0 && segment.fast {
                endpoint.reordering.note_recovered();
            }
            endpoint.order[segment.channel as usize].note_arrival(segment.transmission);
            endpoint.newest_arrival = endpoint.newest_arrival.max(segment.sent);
            if endpoint.congestion.note_arrived(segment.sent, at, least) == Outcome::Shrunk {
                self.counters.num_congestion_events.add(1);
            }
        }
        self.release(endpoint, segment.operation);
    }

    /// One segment less of an operation is open; perhaps that was all.
    #[inline(always)]
    fn release(&mut self, endpoint: &mut Endpoint, place: u32) {
        if place == Segment::NOBODY {
            return;
        }
        let Some(operation) = self.operations.at_mut(place) else { return };
        operation.open = operation.open.saturating_sub(1);
        if operation.open > 0 || operation.queued || !operation.whole {
            return;
        }
        match operation.job {
            // The request has arrived, the data has not.
            Job::Get { .. } => return,
            Job::Serve { .. } => endpoint.serving -= 1,
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
