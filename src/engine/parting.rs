//! A peer that ends the connection while we have something for it.
//!
//! Whoever has ended a connection goes on to receive until the other side answers: that says that nothing more of it is under
//! way. Where peers [meet again](Engine::meet_again), the answer waits for that; what has not begun by then, and what is sent
//! meanwhile, is held back for the next connection, which begins behind the answer. Otherwise the end is that of a job, and is
//! answered at once: what comes behind it is acknowledged and is nobody's.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{EndpointId, Memory};
use super::operation::Job;
use super::packet::Notice;
use crate::wire::usnic::Repr;

impl<M: Memory> Engine<M> {
    /// The peer ends the connection.
    pub(super) fn handle_close(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if !std::mem::replace(&mut endpoint.remote_closed, true) {
            self.fail_gets(index);
            self.begin_parting(index);
        }
        let meets_again = self.limits.meets_again;
        let is_early = self.endpoints.at(index).is_some_and(|endpoint| {
            endpoint.phase == Phase::Parting || endpoint.phase == Phase::Draining && !endpoint.is_drained()
        });
        if !(meets_again && is_early) {
            self.notify(index, Notice::CloseAck);
        }
    }

    /// What is under way is finished first.
    fn begin_parting(&mut self, index: u32) {
        if self.limits.meets_again && self.endpoints.at(index).is_some_and(|it| it.phase == Phase::Open) {
            self.hold(index);
            if let Some(endpoint) = self.endpoints.at_mut(index).filter(|endpoint| !endpoint.is_drained()) {
                endpoint.phase = Phase::Parting;
            }
        }
    }

    /// All that was under way has arrived.
    pub(super) fn finish_parting(&mut self, index: u32) {
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.phase = Phase::Open;
        }
        self.notify(index, Notice::CloseAck);
    }

    /// Holds back what has not begun.
    fn hold(&mut self, index: u32) {
        let Self { endpoints, operations, .. } = self;
        let Some(endpoint) = endpoints.at_mut(index) else { return };
        for (queue, places) in endpoint.send.queues.iter_mut().enumerate() {
            places.retain(|place| {
                let Some(operation) = operations.at_mut(*place) else { return false };
                if matches!(operation.job, Job::Nothing) {
                    // It was cancelled.
                    operation.queued = false;
                    if operation.open == 0 {
                        operations.remove(*place);
                    }
                    return false;
                }
                // The peer has closed its memory.
                let is_get = matches!(operation.job, Job::Get { .. });
                let has_begun = is_get || operation.cut > 0 || operation.cookie.is_none();
                if !has_begun {
                    endpoint.held.push((queue, *place));
                }
                has_begun
            });
        }
    }

    /// What was held back is sent in this connection.
    pub(super) fn release(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        for (queue, place) in std::mem::take(&mut endpoint.held) {
            endpoint.send.queues[queue].push_back(place);
        }
        self.check_ready(index);
    }

    /// Nothing more is said in a connection that the peer has ended: the next one begins when the last packet has left, which
    /// may yet be encrypted, if there is something for it.
    pub(super) fn follow(&mut self, index: u32) {
        if self.endpoints.at(index).is_some_and(|endpoint| !endpoint.held.is_empty()) {
            self.notify(index, Notice::Next);
        }
    }

    /// The next connection begins, if there is something for it.
    pub(super) fn go_on(&mut self, index: u32) {
        if self.endpoints.at(index).is_none_or(|endpoint| endpoint.held.is_empty()) {
            return;
        }
        match self.renew(index) {
            Ok(()) => self.note_parted(index),
            Err(_) => self.lose_peer(index),
        }
    }

    /// The next connection has begun here: the peer hears of it by what is sent.
    fn note_parted(&mut self, index: u32) {
        if let Some(fresh) = self.endpoints.at_mut(index) {
            fresh.ids.has_parted = true;
        }
    }

    /// Something is to be sent to a peer. Where that has ended the connection, and all of that has arrived, the next one begins
    /// here. Whether it has to [wait](Self::keep) for that.
    pub(super) fn meet_parted(&mut self, endpoint: EndpointId) -> bool {
        let index = endpoint.0.index;
        let Some(endpoint) = self.endpoints.get(endpoint.0).filter(|endpoint| endpoint.remote_closed) else {
            return false;
        };
        if endpoint.phase == Phase::Parting {
            return true;
        }
        if endpoint.phase != Phase::Open || !endpoint.is_drained() || endpoint.is_waiting() {
            return false;
        }
        if !endpoint.held.is_empty() || endpoint.notices.contains(&Notice::CloseAck) {
            return true;
        }
        // Where there is no memory for that, the peer is told of this one that it is over.
        if self.renew(index).is_ok() {
            self.note_parted(index);
        }
        false
    }

    /// What was put on a queue last is for the next connection.
    pub(super) fn keep(&mut self, endpoint: EndpointId) {
        self.hold(endpoint.0.index);
    }

    /// The peer lives, but knows the connection no more: what was under way has ended. Whoever [meets](Engine::meet_again) peers
    /// again begins anew with what is sent next, if there is nothing of which the user believes that it arrives; otherwise the
    /// peer is lost.
    pub(super) fn part(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if !self.limits.meets_again || endpoint.send.owes_copies() {
            return self.lose_peer(index);
        }
        self.hold(index);
        let held = self.endpoints.at_mut(index).map(|endpoint| std::mem::take(&mut endpoint.held));
        self.fail_all(index);
        self.strip(index);
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.held = held.unwrap_or_default();
            (endpoint.phase, endpoint.remote_closed) = (Phase::Open, true);
        }
        self.go_on(index);
    }

    /// Something new has come of a connection that is over here: its sender hears that nobody has it.
    pub(super) fn disown(&mut self, index: u32, repr: &Repr) {
        let Some(endpoint) = self.endpoints.at(index) else { return };
        let (sender, received) = (endpoint.peer_name(), endpoint.receive.window.next());
        self.answer_over(repr, &sender, Some(received));
    }
}
