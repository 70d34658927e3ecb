//! Data that goes again in other segments than before.
//!
//! A segment keeps its number and its length as long as the path may carry it. One that the path has
//! become too narrow for ([`Path`](super::path::Path)) is *withdrawn*: instead of it goes the question
//! whether it has arrived. If it has, that is acknowledged as ever. If it has not, the receiver keeps its
//! place free for a void, says so each time that it is asked, and drops the segment should it still come.
//! Only then the data goes again, cut for the path as it is, in segments of new numbers and before anything
//! that was not sent yet. So no byte is ever under way in two segments that could both be taken: what is
//! delivered, written and counted once stays so, however late and in what order anything arrives.
//!
//! The data of a segment goes on counting as one open segment of its operation until the last part of it has
//! been cut: an operation is not over before.

use super::core::Engine;
use super::endpoint::Endpoint;
use super::interface::{Channel, Memory};
use super::operation::{Job, Withdrawn};
use super::packet::Notice;
use super::rdma::NOTICES;
use super::time::Instant;
use super::window::{Segment, State};
use crate::wire::usnic::{HEADER_LEN, Kind, header_len};

impl Endpoint {
    /// Withdraws a segment that is about to be sent again, if it is too long, or if its number is needed:
    /// when withdrawn data waits for room in the window, which the receiver may not be able to make
    /// before it has that data. Whether it is withdrawn now and was not before.
    fn withdraw(&mut self, seq: u64, most: u64) -> bool {
        let needed = !self.withdrawn.is_empty() && self.window.len() as u64 >= most;
        let charge = self.charge(HEADER_LEN);
        let Some(segment) = self.window.get_mut(seq) else { return false };
        if segment.len == 0 || segment.kind == Kind::Withdraw {
            return false;
        }
        let len = header_len(segment.kind) + segment.len as usize;
        if self.path.is_too_long(len, segment.sent, segment.resends, self.backoff > 1) {
            self.path.note_too_long(len);
        } else if !(needed && segment.resends > 0) {
            return false;
        }
        (segment.kind, segment.charge) = (Kind::Withdraw, charge);
        true
    }
}

impl<M: Memory> Engine<M> {
    /// Withdraws a segment that is about to be sent again, if that must be.
    pub(super) fn consider_withdrawal(&mut self, index: u32, seq: u64) {
        let most = self.limits.window;
        if self.endpoints.at_mut(index).is_some_and(|endpoint| endpoint.withdraw(seq, most)) {
            self.counters.num_withdrawals.add(1);
        }
    }

    /// The peer withdraws a segment that has not arrived.
    pub(super) fn handle_withdraw(&mut self, index: u32, seq: u64) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if endpoint.notices.len() >= NOTICES || !endpoint.received.withdraw(seq) {
            return;
        }
        if !std::mem::replace(&mut endpoint.gapped, true) {
            self.expected += 1;
        }
        self.notify(index, Notice::Withdrawn(seq));
    }

    /// The peer has not taken a segment that we have withdrawn, and will not.
    pub(super) fn handle_withdrawn(&mut self, index: u32, seq: u64) {
        let now = self.now;
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let asked =
            |segment: &&mut Segment| segment.kind == Kind::Withdraw && segment.state != State::Arrived;
        let Some(segment) = endpoint.window.get_mut(seq).filter(asked) else { return };
        let Segment { operation, offset, len, .. } = *segment;
        if segment.state == State::InFlight {
            endpoint.in_flight -= 1;
            endpoint.in_flight_bytes -= u64::from(segment.charge);
        }
        (segment.kind, segment.len, segment.operation) = (Kind::Void, 0, Segment::NOBODY);
        segment.state = State::Lost;
        endpoint.lost.push_back(seq);
        let end = offset + u64::from(len);
        endpoint.withdrawn.push_back(Withdrawn { operation, start: offset, end, untouched: true });
        // That is an answer, as good as an acknowledgement.
        (endpoint.backoff, endpoint.probes, endpoint.active) = (0, 0, now);
        self.check_ready(index);
        self.arm(index);
    }

    /// Cuts the next segment from withdrawn data, when one may be sent; its number.
    pub(super) fn next_recut(&mut self, index: u32) -> Option<u64> {
        let now = self.now;
        let endpoint = self.endpoints.at_mut(index)?;
        while let Some(&data) = endpoint.withdrawn.front() {
            let place = data.operation;
            let Some(operation) = self.operations.at_mut(place) else {
                endpoint.withdrawn.pop_front();
                continue;
            };
            if matches!(operation.job, Job::Nothing) {
                // It was cancelled meanwhile.
                endpoint.withdrawn.pop_front();
                operation.open = operation.open.saturating_sub(1);
                if operation.open == 0 && !operation.queued {
                    self.operations.remove(place);
                }
                continue;
            }
            let cut = operation.recut(&data, endpoint.path.recut_width(data.untouched));
            let datagram = header_len(cut.kind) + cut.len as usize;
            let charge = endpoint.charge(datagram);
            if endpoint.window.len() as u64 >= self.limits.window || !endpoint.has_room(charge, now) {
                if endpoint.paced_until.is_some() {
                    self.arm(index);
                }
                return None;
            }
            if let Job::Send { fragment: fragment @ 0, .. } = &mut operation.job
                && cut.kind == Kind::Chunk
            {
                *fragment = endpoint.next_fragment;
                endpoint.next_fragment = endpoint.next_fragment.wrapping_add(1).max(1);
            }
            if data.start + cut.len >= data.end {
                endpoint.withdrawn.pop_front();
            } else if let Some(rest) = endpoint.withdrawn.front_mut() {
                operation.open += 1;
                (rest.start, rest.untouched) = (rest.start + cut.len, false);
            }
            if endpoint.window.is_empty() {
                endpoint.heard = Instant::from_nanos(now.nanos().saturating_sub(self.slept));
            }
            self.expected += 1;
            let seq = endpoint.window.push(Segment {
                operation: place,
                kind: cut.kind,
                channel: Channel::Data,
                state: State::Lost,
                resends: 0,
                fast: false,
                recut: data.untouched && endpoint.path.is_suspected(),
                len: cut.len as u32,
                charge,
                offset: data.start,
                transmission: 0,
                sent: now,
            });
            self.counters.max_sent_window_size.raise(endpoint.window.len() as u64);
            return Some(seq);
        }
        None
    }
}
