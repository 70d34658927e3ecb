//! The end of a connection.
//!
//! Close when all has been sent and acknowledged, and wait for the answer; ask again a few times.
//! Whoever has closed stays for a while to acknowledge what the peer still sends, since its last
//! acknowledgement may have been lost. What is left then is a number: how often the two have been
//! connected. By it, datagrams of an earlier connection are known as such for good.

use super::core::Engine;
use super::endpoint::{Endpoint, Phase};
use super::interface::{Channel, EndpointId, Event, Memory, Transmit};
use super::operation::{Job, Operation};
use super::packet::{Notice, Outgoing};
use super::receive_window::Verdict;
use super::time::{Instant, MILLI};
use super::timers::Timer;
use crate::error::Error;
use crate::wire::usnic::{Body, Repr};

/// How often a closed peer is told, at most.
const CLOSES: u32 = 8;
/// The same where peers may be busy with something else, and are waited for.
const PATIENT: u32 = 13;
/// How long a closed connection still answers.
const LINGER: u64 = 2_000 * MILLI;
/// How many closed connections still answer.
const LINGERING: usize = 256;
/// So often a peer is told before it is told by whom.
const TOLD: u32 = 2;

impl<M: Memory> Engine<M> {
    /// Ends a connection in good order: what is queued is sent first, then the peer is told.
    /// [`Event::Closed`] follows in any case but that of [`Event::Lost`] before it.
    pub fn close(&mut self, endpoint: EndpointId, now: Instant) {
        self.settle(now);
        let Some(index) = self.place(endpoint) else { return };
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.notices.contains(&Notice::Next)) {
            self.go_on(index);
        }
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        match endpoint.phase {
            Phase::Open | Phase::Parting => {
                endpoint.phase = Phase::Draining;
                if !endpoint.held.is_empty() {
                    // The peer receives in this connection until it is answered.
                    endpoint.notices.retain(|notice| *notice != Notice::CloseAck);
                    self.release(index);
                }
                let Some(endpoint) = self.endpoints.at(index) else { return };
                if endpoint.is_drained() {
                    self.advance_close(index);
                }
            }
            Phase::Dead => {
                let id = self.id(index);
                self.remove(index);
                self.events.push_back(Event::Closed { endpoint: id });
            }
            Phase::Draining | Phase::Closing | Phase::Lingering => {}
        }
    }

    /// Ends a connection at once and without a word. What was under way ends as unreachable.
    pub fn forget(&mut self, endpoint: EndpointId) {
        self.settle(self.clock.now());
        let Some(index) = self.place(endpoint) else { return };
        self.fail_all(index);
        self.remove(index);
    }

    /// The next step of closing: all is drained, or the peer has been silent for too long.
    pub(super) fn advance_close(&mut self, index: u32) {
        let now = self.clock.now();
        let most = if self.limits.meets_again { PATIENT } else { CLOSES };
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.timers.stop(Timer::Close);
        match endpoint.phase {
            Phase::Draining if !endpoint.used || endpoint.remote_closed => {
                if self.limits.meets_again && endpoint.remote_closed {
                    self.notify(index, Notice::CloseAck);
                }
                self.finish_close(index);
            }
            Phase::Closing if endpoint.closes >= most => self.finish_close(index),
            Phase::Draining | Phase::Closing => {
                endpoint.phase = Phase::Closing;
                let wait = endpoint.send.rtt.probe_timeout(self.limits.ack_delay) << endpoint.closes;
                endpoint.timers.set(Timer::Close, now.plus(wait.min(self.limits.retransmit_max)));
                endpoint.closes += 1;
                self.notify(index, Notice::Close);
                self.arm(index);
            }
            Phase::Lingering => self.remove(index),
            Phase::Parting => self.finish_parting(index),
            Phase::Open | Phase::Dead => {}
        }
    }

    /// Whether that was the last that was under way in a connection that ends: then the end goes on.
    #[inline]
    pub(super) fn check_drained(&mut self, index: u32) {
        let ends = |endpoint: &Endpoint| matches!(endpoint.phase, Phase::Draining | Phase::Parting);
        if self.endpoints.at(index).is_some_and(|endpoint| ends(endpoint) && endpoint.is_drained()) {
            self.advance_close(index);
        }
    }

    /// Nothing is said any more but to who asks. What is still under way ends as unreachable.
    pub(super) fn finish_close(&mut self, index: u32) {
        let id = self.id(index);
        self.fail_all(index);
        self.strip(index);
        let now = self.clock.now();
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.phase = Phase::Lingering;
        endpoint.timers.set(Timer::Close, now.plus(LINGER));
        self.events.push_back(Event::Closed { endpoint: id });
        self.lists.lingering.push_back(id.0);
        self.arm(index);
        if self.lists.lingering.len() > LINGERING
            && let Some(oldest) = self.lists.lingering.pop_front()
            && self.endpoints.get(oldest).is_some()
        {
            self.remove(oldest.index);
        }
    }

    /// Sees to it that a packet without a sequence number is sent.
    pub(super) fn notify(&mut self, index: u32, notice: Notice) {
        if let Some(endpoint) = self.endpoints.at_mut(index)
            && !endpoint.notices.contains(&notice)
        {
            endpoint.notices.push(notice);
            self.lists.notices.push_back(index);
        }
    }

    /// A peer that has closed sends no more data.
    pub(super) fn fail_gets(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        for key in endpoint.gets.operations.take() {
            let open = |operation: &Operation<M>| matches!(operation.job, Job::Get { .. });
            if self.operations.get(key).is_some_and(open) {
                self.fail(key.index, Error::Unreachable);
            }
        }
    }

    pub(super) fn handle_close_ack(&mut self, index: u32) {
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.phase == Phase::Closing) {
            self.finish_close(index);
        }
    }

    /// A packet for a connection that we have closed. What comes is acknowledged, that the peer may end
    /// in good order, but not where peers meet again: there its sender hears that nobody has it. Memory is not reached any more,
    /// and who wants it hears so.
    pub(super) fn answer_late(&mut self, index: u32, repr: &Repr) {
        match repr.body {
            Body::Close => self.handle_close(index),
            Body::Put { operation, .. } | Body::GetRequest { operation, .. } => self.reject(index, operation),
            body if body.kind().is_sequenced() => {
                let Some(endpoint) = self.endpoints.at_mut(index) else { return };
                if endpoint.receive.window.judge(repr.seq) == Verdict::New {
                    if self.limits.meets_again {
                        return self.disown(index, repr);
                    }
                    match body {
                        // A PUT, perhaps, which has not been done.
                        Body::Withdraw => return self.handle_withdraw(index, repr.seq),
                        Body::Void => endpoint.receive.window.accept_void(repr.seq),
                        _ if endpoint.receive.window.is_withdrawn(repr.seq) => return,
                        _ => endpoint.receive.window.accept(repr.seq),
                    }
                    let receive = &mut endpoint.receive;
                    if receive.has_gap && !receive.window.has_gap() {
                        receive.has_gap = false;
                        self.expected = self.expected.saturating_sub(1);
                    }
                }
                self.notify(index, Notice::Ack);
            }
            _ => {}
        }
    }

    /// The next packet without a sequence number.
    pub(super) fn poll_notice(&mut self) -> Option<Transmit<M>> {
        while let Some(index) = self.lists.notices.pop_front() {
            let Some(endpoint) = self.endpoints.at_mut(index) else { continue };
            if endpoint.notices.is_empty() {
                continue;
            }
            let notice = endpoint.notices.remove(0);
            if notice == Notice::Next {
                self.go_on(index);
                continue;
            }
            let (phase, closes) = (endpoint.phase, endpoint.closes);
            let next = endpoint.receive.window.next();
            let above = next + 1;
            let (seq, body) = match notice {
                Notice::Close if phase == Phase::Closing => (next, Body::Close),
                Notice::CloseAck if phase != Phase::Dead => (next, Body::CloseAck),
                Notice::Ack if phase == Phase::Lingering => {
                    (above, Body::Ack(endpoint.receive.window.bitmap(above)))
                }
                Notice::Introduction if matches!(phase, Phase::Open | Phase::Draining | Phase::Parting) => {
                    (above, Body::Ack(endpoint.receive.window.bitmap(above)))
                }
                Notice::Reject(operation) if phase != Phase::Dead => (next, Body::Reject { operation }),
                Notice::Withdrawn(segment) if phase != Phase::Dead => (next, Body::Withdrawn { segment }),
                _ => continue,
            };
            let piggyback = self.piggyback(index)?;
            let introduces = notice == Notice::Introduction || body == Body::Close && closes > TOLD;
            let packet = Outgoing { seq, body, introduces, ..Outgoing::default() };
            if notice == Notice::CloseAck && phase == Phase::Open {
                self.follow(index);
            }
            return self.seal(index, Channel::Priority, [None, None], &packet, &piggyback);
        }
        None
    }
}
