//! Connections that only one side still knows.
//!
//! A process may be forgotten by its peer: given up, or closed without having heard of it. Its packets then name
//! nobody there, and the shortest do not even say who sends them, so that nobody can tell whether they are genuine.
//! So who has asked in vain *introduces* itself: in the place of a second probe leaves a packet with a long header. Who
//! knows nothing of that connection, or has given it up, answers with a `Reset`, the stateless reset of RFC 9000,
//! 10.3: made from the packet alone, under the key that its sender has published, and so only by it and those
//! of the job. It names the connection of the one that asked, which is never used again, so that nobody can use
//! it a second time; it is never longer than what it answers; and few leave.
//!
//! What had arrived before the end, it says too: who has nothing else under way has nothing to complain of.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{Event, Memory};
use super::packet::{AckInfo, Notice};
use crate::wire::usnic::{Body, Flags, Packet, Repr, Sender, Tagging};

impl<M: Memory> Engine<M> {
    /// A peer that does not answer is asked again: perhaps it does not know who asks.
    pub(super) fn consider_introduction(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index).filter(|endpoint| endpoint.ids.is_introduced)
        else {
            return;
        };
        if endpoint.send.probe.introduces() {
            self.notify(index, Notice::Introduction);
        }
    }

    /// Tells the sender of a genuine packet that its connection is over; `received` is how far its segments
    /// had come, if that is known.
    #[cold]
    pub(super) fn answer_over(&mut self, repr: &Repr, sender: &Sender, received: Option<u64>) {
        if !self.closed.may_reset(self.clock.now()) {
            return;
        }
        let key = match &self.protection {
            Some(protection) => protection.secret.reset_key(),
            None => Some(self.identity.key),
        };
        let Some(key) = key else { return };
        let own = Sender {
            name: self.identity.name,
            incarnation: self.identity.incarnation,
            slot: repr.receiver_slot,
        };
        let mut reset = Repr {
            flags: Flags::default().with(Flags::ACKNOWLEDGES, received.is_some()),
            tag: 0,
            length: 0,
            connection: repr.connection,
            receiver_slot: sender.slot,
            sender: None,
            stamp: self.clock.now().stamp(),
            echo: 0,
            credit: 0,
            seq: u64::from(repr.receiver_slot),
            ack: received.unwrap_or(0),
            body: Body::Reset,
        }
        .emit();
        reset.seal(&Tagging::new(&key, sender.slot, repr.connection, &own));
        self.counters.num_reset_sends.add(1);
        let &Sender { name, incarnation, .. } = sender;
        self.events.push_back(Event::Over { name, incarnation, reset: Box::new(reset) });
    }

    /// Somebody says that it does not know one of our connections any more. Whether it is who it says.
    #[cold]
    pub(super) fn handle_reset(&mut self, packet: &Packet<'_>) -> bool {
        let repr = &packet.repr;
        let Some(index) = self.place_of_slot(repr.receiver_slot) else { return false };
        let Some(endpoint) = self.endpoints.at(index) else { return false };
        let is_current = repr.sender.is_none()
            && repr.receiver_slot == endpoint.ids.own_slot
            && repr.connection == endpoint.ids.connection
            && repr.seq == u64::from(endpoint.ids.peer_slot);
        if !is_current {
            self.counters.num_stale_recvs.add(1);
            return false;
        }
        let key = match &endpoint.protection {
            Some(protection) => protection.sealer.reset_key(),
            None => Some(endpoint.peer.key),
        };
        let tagging =
            key.map(|key| Tagging::new(&key, repr.receiver_slot, repr.connection, &endpoint.peer_name()));
        if !tagging.is_some_and(|tagging| packet.is_genuine(&tagging)) {
            self.counters.num_crc_errors.add(1);
            return false;
        }
        self.counters.num_reset_recvs.add(1);
        if matches!(endpoint.phase, Phase::Open | Phase::Draining | Phase::Parting)
            && repr.flags.has(Flags::ACKNOWLEDGES)
        {
            let info = AckInfo::of(repr, self.reception.arrival);
            self.handle_ack(index, &info, None, self.clock.now());
        }
        self.end_by_reset(index);
        true
    }

    /// The peer does not know the connection any more.
    fn end_by_reset(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        match endpoint.phase {
            Phase::Closing => self.handle_close_ack(index),
            Phase::Open if endpoint.is_drained() && !endpoint.is_waiting() => endpoint.remote_closed = true,
            Phase::Open | Phase::Parting => self.part(index),
            Phase::Draining => self.lose_peer(index),
            Phase::Lingering | Phase::Dead => {}
        }
    }
}
