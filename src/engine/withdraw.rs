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
use super::interface::{Channel, Memory};
use super::operation::{Job, Withdrawn};
use super::packet::Notice;
use super::rdma::NOTICES;
use super::send_window::{Segment, State};
use crate::wire::usnic::{Kind, header_len};

impl<M: Memory> Engine<M> {
    /// Withdraws a segment that is about to be sent again, if that must be.
    pub(super) fn consider_withdrawal(&mut self, index: u32, seq: u64) {
        let most = self.limits.window;
        if self.endpoints.at_mut(index).is_some_and(|endpoint| endpoint.send.withdraw(seq, most)) {
            self.counters.num_withdrawals.add(1);
        }
    }

    /// The peer withdraws a segment that has not arrived.
    pub(super) fn handle_withdraw(&mut self, index: u32, seq: u64) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if endpoint.notices.len() >= NOTICES || !endpoint.receive.window.withdraw(seq) {
            return;
        }
        if !std::mem::replace(&mut endpoint.receive.has_gap, true) {
            self.expected += 1;
        }
        self.notify(index, Notice::Withdrawn(seq));
    }

    /// The peer has not taken a segment that we have withdrawn, and will not.
    pub(super) fn handle_withdrawn(&mut self, index: u32, seq: u64) {
        let now = self.clock.now();
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let asked =
            |segment: &&mut Segment| segment.kind == Kind::Withdraw && segment.state != State::Arrived;
        let Some(segment) = endpoint.send.window.get_mut(seq).filter(asked) else { return };
        let Segment { operation, offset, len, charge, state, .. } = *segment;
        (segment.kind, segment.len, segment.operation) = (Kind::Void, 0, Segment::NOBODY);
        segment.state = State::Lost;
        if state == State::InFlight {
            endpoint.send.note_landed(charge);
        }
        endpoint.send.lost.push_back(seq);
        let end = offset + u64::from(len);
        endpoint.send.withdrawn.push_back(Withdrawn { operation, start: offset, end, untouched: true });
        // That is an answer, as good as an acknowledgement.
        endpoint.send.probe.note_acknowledged(now);
        self.check_ready(index);
        self.arm(index);
    }

    /// Cuts the next segment from withdrawn data, when one may be sent; its number. `probes`: it asks the peer, and
    /// waits for no room but among the numbers.
    pub(super) fn next_recut(&mut self, index: u32, probes: bool) -> Option<u64> {
        let now = self.clock.now();
        let endpoint = self.endpoints.at_mut(index)?;
        while let Some(&data) = endpoint.send.withdrawn.front() {
            let place = data.operation;
            let Some(operation) = self.operations.at_mut(place) else {
                endpoint.send.withdrawn.pop_front();
                continue;
            };
            if matches!(operation.job, Job::Nothing) {
                // It was cancelled meanwhile.
                endpoint.send.withdrawn.pop_front();
                operation.open = operation.open.saturating_sub(1);
                if operation.open == 0 && !operation.queued {
                    self.operations.remove(place);
                }
                continue;
            }
            let cut = operation.recut(&data, endpoint.send.path.recut_width(data.untouched));
            let datagram = header_len(cut.kind) + cut.len as usize;
            let whole = header_len(cut.kind) + (data.end - data.start) as usize;
            let charge = endpoint.send.charge(datagram);
            if endpoint.send.window.len() as u64 >= self.limits.window {
                return None;
            }
            if let Err(blocked) = endpoint.send.may_send(charge, now)
                && !probes
            {
                self.wait(index, blocked);
                return None;
            }
            if let Job::Send { fragment: fragment @ 0, .. } = &mut operation.job
                && cut.kind == Kind::Chunk
            {
                *fragment = endpoint.send.next_fragment;
                endpoint.send.next_fragment = endpoint.send.next_fragment.wrapping_add(1).max(1);
            }
            if data.start + cut.len >= data.end {
                endpoint.send.withdrawn.pop_front();
            } else if let Some(rest) = endpoint.send.withdrawn.front_mut() {
                operation.open += 1;
                (rest.start, rest.untouched) = (rest.start + cut.len, false);
            }
            if endpoint.send.window.is_empty() {
                endpoint.life.last_heard = self.clock.running();
            }
            self.expected += 1;
            let seq = endpoint.send.window.push(Segment {
                operation: place,
                kind: cut.kind,
                channel: Channel::Data,
                state: State::Lost,
                resends: 0,
                fast: false,
                recut: data.untouched && endpoint.send.path.is_suspected(whole),
                len: cut.len as u32,
                charge,
                offset: data.start,
                transmission: 0,
                sent: now,
            });
            self.counters.max_sent_window_size.raise(endpoint.send.window.len() as u64);
            return Some(seq);
        }
        None
    }
}
