//! Segments as they leave: what a datagram says of its segment, and what rides on it.

use super::ack_queue::AckQueue;
use super::copies::COPIED;
use super::core::Engine;
use super::endpoint::Endpoint;
use super::interface::{Channel, EndpointId, Identity, Memory, Piece, Transmit};
use super::limits::Limits;
use super::operation::Job;
use super::packet::{Outgoing, Piggyback};
use super::send_window::State;
use super::time::Instant;
use crate::wire::usnic::{Body, Flags, Header, Kind, Repr};

impl<M: Memory> Engine<M> {
    /// The datagram of a segment that leaves now.
    #[inline(always)]
    pub(super) fn transmit(&mut self, index: u32, seq: u64, again: bool) -> Option<Transmit<M>> {
        let now = self.clock.now();
        let credit = self.grant(index);
        let (key, endpoint) = self.endpoints.entry_mut(index)?;
        let segment = endpoint.send.window.get_mut(seq)?;
        if again && segment.channel == Channel::Priority {
            segment.channel = Channel::Data;
            self.expected += 1;
        }
        let copy = segment.copy();
        let operation = self.operations.at(segment.operation);
        let (body, tag, length, pieces, last) = match operation {
            Some(operation) if segment.kind == Kind::Withdraw && !matches!(operation.job, Job::Nothing) => {
                (Body::Withdraw, 0, 0, [None, None], false)
            }
            Some(operation) if !matches!(operation.job, Job::Nothing) => (
                operation.body(segment.kind, segment.offset),
                operation.tag(),
                segment.len as u16,
                operation.pieces(segment.offset, u64::from(segment.len)),
                operation.is_awaited()
                    && segment.channel == Channel::Data
                    && operation.whole
                    && segment.offset + u64::from(segment.len) == operation.total,
            ),
            None if copy.is_some() => {
                let tag =
                    copy.and_then(|place| endpoint.send.copies.get(place)).map_or(0, |copied| copied.tag);
                (Body::Fragment, tag, segment.len as u16, [None, None], false)
            }
            _ => {
                (segment.kind, segment.len) = (Kind::Void, 0);
                self.counters.num_void_sends.add(1);
                (Body::Void, 0, 0, [None, None], false)
            }
        };
        match (again, segment.kind) {
            (false, Kind::Fragment) => self.counters.num_frag_sends.add(1),
            (false, Kind::Chunk) => self.counters.num_chunk_sends.add(1),
            _ => {}
        }
        segment.resends = segment.resends.saturating_add(u8::from(again));
        segment.state = State::InFlight;
        segment.sent = now;
        let channel = segment.channel;
        segment.transmission = endpoint.send.detection.note_sent(channel, seq);
        let charge = segment.charge;
        let piggyback = endpoint.note_sent(charge, credit, now, &mut self.acks);
        if let Some(at) = endpoint.arm_departed(now, &self.limits) {
            self.timers.set(at, key);
        }
        let asks = last || endpoint.send.is_full();
        let flags = Flags::default().with(Flags::ASKS, asks).with(Flags::RETRANSMISSION, again);
        let packet = Outgoing { flags, tag, length, seq, body, introduces: false };
        let mut header = endpoint.seal(&self.identity, &self.limits, now, &packet, &piggyback);
        if let Some(copied) = copy.and_then(|place| endpoint.send.copies.get(place)) {
            header.append(&copied.bytes[..usize::from(length).min(COPIED)]);
        }
        self.counters.num_total_sends.add(1);
        Some(Transmit { endpoint: EndpointId(key), channel, header, pieces, following: 0 })
    }

    /// A packet without a segment of ours.
    #[inline(never)]
    pub(super) fn seal(
        &mut self,
        index: u32,
        channel: Channel,
        pieces: [Option<Piece<M>>; 2],
        packet: &Outgoing,
        piggyback: &Piggyback,
    ) -> Option<Transmit<M>> {
        let (key, endpoint) = self.endpoints.entry_mut(index)?;
        let header = endpoint.seal(&self.identity, &self.limits, self.clock.now(), packet, piggyback);
        self.counters.num_total_sends.add(1);
        Some(Transmit { endpoint: EndpointId(key), channel, header, pieces, following: 0 })
    }
}

impl Endpoint {
    /// Notes that a segment leaves now, and what rides on it.
    #[inline(always)]
    pub(super) fn note_sent(
        &mut self,
        charge: u32,
        credit: u64,
        now: Instant,
        acks: &mut AckQueue,
    ) -> Piggyback {
        self.send.note_sent(charge, now);
        self.used = true;
        self.piggyback(credit, now, acks)
    }

    /// The time at which a timer must be set after a segment has left, when none is that comes in
    /// time. All that the peer had to be looked at for before, it will be; what is new is the wait
    /// for an answer.
    #[inline(always)]
    pub(super) fn arm_departed(&mut self, now: Instant, limits: &Limits) -> Option<Instant> {
        let soon = now.plus(limits.least_probe_timeout);
        if self.timers.is_armed_by(soon) { None } else { self.arm(limits) }
    }

    /// Completes a header, and tags it unless the packet is going to be protected as a whole.
    #[inline(always)]
    pub(super) fn seal(
        &self,
        identity: &Identity,
        limits: &Limits,
        now: Instant,
        packet: &Outgoing,
        piggyback: &Piggyback,
    ) -> Header {
        let mut header = Repr {
            flags: piggyback.flags.with(packet.flags, true).with(Flags::PROTECTED, limits.protect),
            tag: packet.tag,
            length: packet.length,
            connection: self.ids.connection,
            receiver_slot: self.ids.peer_slot,
            sender: (packet.introduces || !self.ids.is_introduced).then(|| self.own_name(identity)),
            stamp: now.stamp(),
            echo: piggyback.echo,
            credit: piggyback.credit,
            seq: packet.seq,
            ack: piggyback.ack,
            body: packet.body,
        }
        .emit();
        if !limits.protect {
            header.seal(&self.ids.sent_tags);
        }
        header
    }
}
