//! From fragments to segments to datagrams.
//!
//! One pass of [`Engine::poll_transmit`] first sends again what was lost, on the data channel and
//! bounded, as it was or cut anew, then what is new, each endpoint in its turn, and at last
//! acknowledgements that found nothing to ride on. The priority queue overtakes the data queue, but never shuts it out.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{Channel, Cookie, EndpointId, Fragment, Memory, Piece, Transmit};
use super::operation::{Job, Operation};
use super::packet::{Outgoing, WholeFragment};
use super::send_half::Blocked;
use super::send_window::{Segment, State};
use super::slab::Key;
use super::time::Instant;
use super::timers::Timer;
use crate::error::{Error, Result};
use crate::wire::usnic::{Body, Flags, HEADER_LEN, Kind, header_len};
use std::collections::VecDeque;

/// Tiny segments that may go before one of the data queue.
const RUN: u32 = 16;

impl<M: Memory> Engine<M> {
    /// Sends a fragment. [`Event::Done`](super::Event::Done) says when all of it has arrived.
    pub fn send(&mut self, endpoint: EndpointId, fragment: Fragment<M>, now: Instant) -> Result<()> {
        self.settle(now);
        let split = fragment.pieces[0].as_ref().map_or(0, Memory::len);
        let total = split + fragment.pieces[1].as_ref().map_or(0, Memory::len);
        if total > self.pool.longest() {
            return Err(Error::MessageTooBig);
        }
        self.counters.pml_module_sends.add(1);
        let is_early = self.limits.meets_again && self.meet_parted(endpoint);
        let Fragment { tag, pieces, cookie, priority, awaited } = fragment;
        let job = Job::Send { tag, pieces, split: split as u64, fragment: 0, awaited };
        self.queue(endpoint, job, total as u64, Some(cookie), priority)?;
        if is_early {
            self.keep(endpoint);
        }
        Ok(())
    }

    /// Puts an operation on its queue.
    #[inline(never)]
    pub(super) fn enqueue(
        &mut self,
        endpoint: EndpointId,
        job: Job<M>,
        total: u64,
        cookie: Option<Cookie>,
        priority: bool,
    ) -> Result<Key> {
        self.queue(endpoint, job, total, cookie, priority)
    }

    #[inline(always)]
    fn queue(
        &mut self,
        endpoint: EndpointId,
        job: Job<M>,
        total: u64,
        cookie: Option<Cookie>,
        priority: bool,
    ) -> Result<Key> {
        let index = endpoint.0.index;
        let ours = cookie.is_none();
        let takes = |phase| match phase {
            Phase::Open | Phase::Parting => true,
            Phase::Draining => ours,
            Phase::Closing | Phase::Lingering | Phase::Dead => false,
        };
        let at = self.endpoints.get_mut(endpoint.0).filter(|at| takes(at.phase));
        let at = at.ok_or(Error::Unreachable)?;
        let operation = Operation::new(index, cookie, job, total);
        let tiny = operation.is_tiny(self.limits.max_tiny.min(at.peer.max_datagram));
        let kind = operation.next_cut(at.send.path.width()).kind;
        let small = kind != Kind::Chunk && kind != Kind::Put && kind != Kind::GetData;
        let key = self.operations.insert_with(|key| Operation { raw: key.raw(), ..operation });
        at.send.queues[usize::from(!(tiny || priority && small))].push_back(key.index);
        if !at.ready {
            at.ready = true;
            self.lists.ready.push_back(index);
        }
        Ok(key)
    }

    /// The next datagram to send; `None` ends the pass.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<M>> {
        self.settle(now);
        let quiet = !self.lists.has_packets()
            && self.acks.immediate.is_empty()
            && !self.acks.is_due(self.clock.now());
        if quiet {
            self.end_pass();
            return None;
        }
        self.poll_fragment()
    }

    /// The common datagram: a whole tiny fragment that leaves for the first time, with nothing to be
    /// done before. All else is left to [`Self::poll_work`].
    #[inline(never)]
    fn poll_fragment(&mut self) -> Option<Transmit<M>> {
        let (now, known) = (self.clock.now(), self.endpoints.len());
        let first = self.lists.notices.is_empty() && self.lists.resending.is_empty();
        let in_turn = !self.pass.turn.is_over();
        let Some(&index) = self.lists.ready.front().filter(|_| first && in_turn) else {
            return self.poll_work();
        };
        let Some((key, endpoint)) = self.endpoints.entry_mut(index) else { return self.poll_work() };
        let Some(&place) = endpoint.send.queues[0].front() else { return self.poll_work() };
        let Some(operation) = self.operations.at_mut(place) else { return self.poll_work() };
        let Job::Send { tag, ref pieces, split, .. } = operation.job else { return self.poll_work() };
        let total = operation.total;
        let datagram = HEADER_LEN + total as usize;
        let charge = endpoint.send.charge_short(datagram, now);
        if endpoint.send.pass != self.pass.number {
            (endpoint.send.pass, endpoint.send.sent_in_pass) = (self.pass.number, 0);
        }
        let may_go = datagram <= self.limits.max_tiny.min(endpoint.peer.max_datagram)
            && (endpoint.send.tiny_run < RUN || endpoint.send.queues[1].is_empty())
            && (endpoint.send.window.len() as u64) < self.limits.window
            && endpoint.send.sent_in_pass < self.limits.send_credits
            && endpoint.send.may_send_short(charge, now).is_ok();
        let credit = endpoint.settled_grant(&self.budget, known);
        let Some(credit) = credit.filter(|_| may_go) else { return self.poll_work() };
        let piece = |memory: &Option<M>, len: u64| {
            let memory = memory.as_ref().filter(|_| len > 0)?.clone();
            Some(Piece { memory, offset: 0, len: len as usize })
        };
        let pieces = [piece(&pieces[0], split), piece(&pieces[1], total - split)];
        (operation.cut, operation.whole, operation.queued) = (total, true, false);
        operation.open += 1;
        endpoint.send.sent_in_pass += 1;
        pop_front(&mut endpoint.send.queues[0]);
        endpoint.send.tiny_run += 1;
        if endpoint.send.has_queued() {
            self.pass.turn.note_sent(1, datagram);
        } else {
            endpoint.ready = false;
            self.pass.turn.begin();
            pop_front(&mut self.lists.ready);
        }
        self.transmit_whole(key, WholeFragment { place, tag, len: total as u32, charge, credit, pieces })
    }

    /// The datagram of a whole fragment that leaves now for the first time, on the priority channel.
    #[inline(always)]
    pub(super) fn transmit_whole(&mut self, key: Key, whole: WholeFragment<M>) -> Option<Transmit<M>> {
        let WholeFragment { place, tag, len, charge, credit, pieces } = whole;
        let (index, now) = (key.index, self.clock.now());
        let endpoint = self.endpoints.at_mut(index)?;
        if endpoint.send.window.is_empty() {
            endpoint.life.last_heard = self.clock.running();
        }
        let seq = endpoint.send.window.next();
        let channel = Channel::Priority;
        endpoint.send.window.push(Segment {
            operation: place,
            kind: Kind::Fragment,
            channel,
            state: State::InFlight,
            resends: 0,
            fast: false,
            recut: false,
            len,
            charge,
            offset: 0,
            transmission: endpoint.send.detection.note_sent(channel, seq),
            sent: now,
        });
        self.counters.max_sent_window_size.raise(endpoint.send.window.len() as u64);
        self.counters.num_frag_sends.add(1);
        self.counters.num_total_sends.add(1);
        let piggyback = endpoint.note_sent(charge, credit, now, &mut self.acks);
        if let Some(at) = endpoint.arm_departed(now, &self.limits) {
            self.timers.set(at, key);
        }
        let flags = Flags::default().with(Flags::ASKS, endpoint.send.is_full_for_short());
        let packet =
            Outgoing { flags, tag, length: len as u16, seq, body: Body::Fragment, introduces: false };
        let header = endpoint.seal(&self.identity, &self.limits, now, &packet, &piggyback);
        self.review_next();
        Some(Transmit { endpoint: EndpointId(key), channel, header, pieces, following: 0 })
    }

    #[inline(never)]
    fn poll_work(&mut self) -> Option<Transmit<M>> {
        if !self.lists.notices.is_empty()
            && let Some(notice) = self.poll_notice()
        {
            return Some(notice);
        }
        if !self.lists.resending.is_empty()
            && let Some(resend) = self.poll_resend()
        {
            return Some(resend);
        }
        while let Some(&index) = self.lists.ready.front() {
            if self.pass.turn.is_over() {
                self.pass.turn.begin();
                self.lists.ready.rotate_left(1);
                continue;
            }
            if let Some(seq) = self.next_segment(index) {
                let mut transmit = self.transmit(index, seq, false)?;
                if self.pass.run_room > 0 {
                    self.extend(index, seq, &mut transmit);
                }
                return Some(transmit);
            }
            self.end_turn();
            if let Some(endpoint) = self.endpoints.at_mut(index) {
                endpoint.ready = false;
                if endpoint.timers.is_set(Timer::Pacing) {
                    self.arm(index);
                }
            }
            self.check_drained(index);
        }
        if !self.lists.notices.is_empty()
            && let Some(notice) = self.poll_notice()
        {
            return Some(notice);
        }
        if let Some(ack) = self.poll_ack() {
            return Some(ack);
        }
        self.end_pass();
        None
    }

    /// The endpoint at the head of the list has nothing more that may go.
    #[inline]
    fn end_turn(&mut self) {
        self.pass.turn.begin();
        self.lists.ready.pop_front();
    }

    #[inline]
    fn end_pass(&mut self) {
        self.pass.begin();
        while let Some(index) = self.lists.out_of_send_credits.pop() {
            self.check_ready(index);
        }
    }

    /// A segment that was lost, unless too many have been sent again in this pass.
    #[inline(never)]
    fn poll_resend(&mut self) -> Option<Transmit<M>> {
        while self.pass.resent < self.limits.resends
            && let Some(index) = self.lists.resending.pop_front()
        {
            let next = self.next_probe(index);
            let next = next.or_else(|| self.next_resend(index).map(|seq| (seq, true)));
            let next = next.or_else(|| self.next_recut(index, false).map(|seq| (seq, false)));
            if let Some((seq, again)) = next {
                self.lists.resending.push_back(index);
                self.pass.resent += 1;
                if again {
                    self.counters.num_resends.add(1);
                    let endpoint = self.endpoints.at(index);
                    let segment = endpoint.and_then(|endpoint| endpoint.send.window.get(seq));
                    self.counters
                        .num_fast_retrans
                        .add(u64::from(segment.is_some_and(|segment| segment.fast)));
                    self.consider_withdrawal(index, seq);
                }
                return self.transmit(index, seq, again);
            }
            if let Some(endpoint) = self.endpoints.at_mut(index) {
                endpoint.resending = false;
            }
            self.check_drained(index);
        }
        None
    }

    /// A segment to be sent again has to wait.
    pub(super) fn wait(&mut self, index: u32, blocked: Blocked) {
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.note_blocked(blocked);
        }
        if matches!(blocked, Blocked::Pacing(_)) {
            self.arm(index);
        }
    }

    /// The number of a lost segment that may be sent again now.
    fn next_resend(&mut self, index: u32) -> Option<u64> {
        let now = self.clock.now();
        let endpoint = self.endpoints.at_mut(index)?;
        while let Some(&seq) = endpoint.send.lost.front() {
            match endpoint.send.window.get(seq) {
                Some(segment) if segment.state == State::Lost => {
                    let charge = segment.charge;
                    if let Err(blocked) = endpoint.send.may_send(charge, now) {
                        self.wait(index, blocked);
                        return None;
                    }
                    endpoint.send.lost.pop_front();
                    return Some(seq);
                }
                // It has arrived after all.
                _ => _ = endpoint.send.lost.pop_front(),
            }
        }
        None
    }

    /// Cuts the next segment of the endpoint whose turn it is, when it may send one; its number.
    #[inline(always)]
    fn next_segment(&mut self, index: u32) -> Option<u64> {
        let (now, pass) = (self.clock.now(), self.pass.number);
        let endpoint = self.endpoints.at_mut(index)?;
        if endpoint.send.pass != pass {
            (endpoint.send.pass, endpoint.send.sent_in_pass) = (pass, 0);
        }
        loop {
            let behind = endpoint.send.tiny_run >= RUN && !endpoint.send.queues[1].is_empty();
            let queue = usize::from(behind || endpoint.send.queues[0].is_empty());
            let &place = endpoint.send.queues[queue].front()?;
            let Some(operation) = self.operations.at_mut(place) else {
                endpoint.send.queues[queue].pop_front();
                continue;
            };
            if matches!(operation.job, Job::Nothing) {
                operation.queued = false;
                let over = operation.open == 0;
                endpoint.send.queues[queue].pop_front();
                if over {
                    self.operations.remove(place);
                }
                continue;
            }
            if endpoint.send.window.len() as u64 >= self.limits.window {
                return None;
            }
            let cut = operation.next_cut(endpoint.send.path.width());
            let datagram = header_len(cut.kind) + cut.len as usize;
            let tiny = queue == 0 && datagram <= self.limits.max_tiny;
            let (charge, may_send) = if tiny {
                let charge = endpoint.send.charge_short(datagram, now);
                (charge, endpoint.send.may_send_short(charge, now))
            } else {
                let charge = endpoint.send.charge(datagram);
                (charge, endpoint.send.may_send(charge, now))
            };
            if let Err(blocked) = may_send {
                endpoint.note_blocked(blocked);
                return None;
            }
            if endpoint.send.sent_in_pass >= self.limits.send_credits {
                self.lists.out_of_send_credits.push(index);
                return None;
            }
            endpoint.send.sent_in_pass += 1;
            let cut = match endpoint.send.path.probe_due(now).map(|len| operation.next_cut(len)) {
                Some(longer) if longer.len > cut.len => {
                    endpoint.send.path.note_probe(now);
                    longer
                }
                _ => cut,
            };
            if let (Job::Send { fragment, .. }, Kind::Chunk, 0) =
                (&mut operation.job, cut.kind, operation.cut)
            {
                *fragment = endpoint.send.next_fragment;
                endpoint.send.next_fragment = endpoint.send.next_fragment.wrapping_add(1).max(1);
            }
            let segment = Segment {
                operation: place,
                kind: cut.kind,
                channel: if tiny { Channel::Priority } else { Channel::Data },
                state: State::Lost,
                resends: 0,
                fast: false,
                recut: false,
                len: cut.len as u32,
                charge,
                offset: operation.cut,
                transmission: 0,
                sent: now,
            };
            operation.cut += cut.len;
            operation.open += 1;
            operation.whole = operation.cut >= operation.total;
            if operation.whole {
                operation.queued = false;
                endpoint.send.queues[queue].pop_front();
            }
            endpoint.send.tiny_run = if queue == 0 { endpoint.send.tiny_run + 1 } else { 0 };
            self.pass.turn.note_sent(1, datagram);
            if operation.whole && !endpoint.send.has_queued() {
                endpoint.ready = false;
                self.pass.turn.begin();
                self.lists.ready.pop_front();
            }
            if endpoint.send.window.is_empty() {
                endpoint.life.last_heard = self.clock.running();
            }
            if !tiny {
                self.expected += 1;
            }
            let seq = endpoint.send.window.push(segment);
            self.counters.max_sent_window_size.raise(endpoint.send.window.len() as u64);
            return Some(seq);
        }
    }
}

/// Drops the first of what is mostly one.
#[inline(always)]
fn pop_front(queue: &mut VecDeque<u32>) {
    if queue.len() == 1 {
        queue.clear();
    } else {
        queue.pop_front();
    }
}
