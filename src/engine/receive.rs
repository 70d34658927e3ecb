//! From datagrams to fragments.
//!
//! The common datagram is a whole fragment, the one expected, of a peer well known. It is checked
//! and handed up; what it acknowledges, and what it is owed, is looked at in the next call of the
//! engine: by then the user has it. One datagram at a time can wait like that, and not longer than
//! the user's call of progress: [`Engine::settle`].

use super::assembler::{Chunk, Placed, Unplaced};
use super::controller::Outcome;
use super::core::{Engine, SLOT_BITS};
use super::counters::Count;
use super::endpoint::{Endpoint, Phase};
use super::interface::{EndpointId, Event, Memory, Received};
use super::packet::{AckInfo, Deferred};
use super::receive_window::{ReceiveWindow, Verdict};
use super::slab::Key;
use super::time::Instant;
use crate::wire::run::Payload;
use crate::wire::usnic::{Body, Flags, Malformed, Packet, Repr, Sender, Tagging, connection_id};

/// Whether the sender has withdrawn the segment, so that nothing but a void may come in its place.
fn is_kept_out(received: &ReceiveWindow, repr: &Repr) -> bool {
    received.is_withdrawn(repr.seq) && !matches!(repr.body, Body::Void | Body::Withdraw)
}

/// How a datagram ends that is not of a connected peer.
pub(super) enum Stranger {
    Stale,
    Unknown,
    /// It takes a connection for alive that is over here, and is told so. How far its segments had come is known
    /// perhaps.
    Over(Option<u64>),
}

impl Endpoint {
    /// What a peer is told that was given up and sends on.
    fn given_up(&self) -> Stranger {
        Stranger::Over(Some(self.receive.window.next()))
    }
}

impl<M: Memory> Engine<M> {
    /// The place that a slot on the wire names.
    #[inline(always)]
    pub(super) fn place_of_slot(&self, slot: u32) -> Option<u32> {
        (slot & ((1 << SLOT_BITS) - 1)).checked_sub(1)
    }

    /// Takes a datagram in. Whatever its bytes are, the worst is that it is dropped and counted.
    ///
    /// `arrived` is when it came to this host, by the clock of `now` and not after that, where somebody
    /// noted it; else it counts as come when it is read, unless [`Self::note_away`] says otherwise.
    #[inline]
    pub fn handle_datagram(&mut self, bytes: &[u8], arrived: Option<Instant>, now: Instant) -> Received {
        self.begin_arrival(arrived, now);
        self.counters.num_total_recvs.add(1);
        if let Some(packet) = Packet::parse_fragment(bytes)
            && let Some(endpoint) = self.take_expected(&packet)
        {
            return Received::Deliver { endpoint, tag: packet.repr.tag, payload: packet.payload() };
        }
        self.handle_any(bytes)
    }

    /// Whether what was handed in last, and was [`Received::Nothing`], was no packet or not genuine. A datagram has one
    /// author: what follows in it is not worth looking at.
    pub const fn has_refused(&self) -> bool {
        self.reception.has_refused
    }

    /// What is handled next came at `arrived`.
    #[inline(always)]
    pub(super) fn begin_arrival(&mut self, arrived: Option<Instant>, now: Instant) {
        self.settle(now);
        self.reception.arrival = self.clock.arrival(arrived);
    }

    /// Takes a fragment in if it is the common one: the one expected, of a peer well known. Nothing
    /// has changed when it is not, or not genuine.
    #[inline(always)]
    fn take_expected(&mut self, packet: &Packet<'_>) -> Option<EndpointId> {
        let repr = &packet.repr;
        let (key, endpoint) = self.expected_from(repr)?;
        if !packet.is_genuine_fragment(&endpoint.ids.received_tags) {
            return None;
        }
        if !endpoint.ids.is_introduced {
            endpoint.introduce();
        }
        endpoint.receive.window.accept(repr.seq);
        self.counters.num_frag_recvs.add(1);
        self.counters.num_fast_recvs.add(1);
        self.reception.deferred = Some(Deferred {
            index: key.index,
            info: AckInfo::of(repr, self.reception.arrival),
            at: self.clock.now(),
            answered: false,
        });
        Some(EndpointId(key))
    }

    /// Whose packet it is if it is the one expected of a peer well known, which calls us by our slot alone.
    #[inline(always)]
    pub(super) fn expected_from(&mut self, repr: &Repr) -> Option<(Key, &mut Endpoint)> {
        let index = (repr.receiver_slot & ((1 << SLOT_BITS) - 1)).wrapping_sub(1);
        let (key, endpoint) = self.endpoints.entry_mut(index)?;
        let known = repr.sender.is_none()
            && connection_id(repr.receiver_slot, repr.connection) == endpoint.ids.received
            && !(repr.flags.has(Flags::PROTECTED) | self.limits.protect);
        let expected = known && endpoint.phase == Phase::Open && endpoint.receive.window.is_plain(repr.seq);
        expected.then_some((key, endpoint))
    }

    /// Takes any datagram in.
    #[inline(never)]
    fn handle_any(&mut self, bytes: &[u8]) -> Received {
        self.reception.has_refused = false;
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(malformed) => {
                self.counter_of(malformed).add(1);
                self.reception.has_refused = true;
                return Received::Nothing;
            }
        };
        let repr = &packet.repr;
        if repr.body == Body::Reset {
            self.reception.has_refused = !self.handle_reset(&packet);
            return Received::Nothing;
        }
        if repr.flags.has(Flags::PROTECTED) | self.limits.protect {
            return self.handle_protected(&packet);
        }
        let named = repr.sender.zip(repr.tagging(&self.identity.key)).or_else(|| self.introduced(repr));
        let Some((sender, tagging)) = named else {
            self.counters.num_nameless_recvs.add(1);
            self.reception.has_refused = true;
            return Received::Nothing;
        };
        if !packet.is_genuine(&tagging) {
            self.counters.num_crc_errors.add(1);
            self.reception.has_refused = true;
            return Received::Nothing;
        }
        match self.find(repr, &sender) {
            Ok(index) => self.take_in(index, &packet, bytes),
            Err(received) => received,
        }
    }

    /// The endpoint of a genuine packet, or what becomes of it where there is none.
    #[inline(always)]
    pub(super) fn find(&mut self, repr: &Repr, sender: &Sender) -> std::result::Result<u32, Received> {
        match self.locate(repr, sender) {
            Ok(index) => Ok(index),
            Err(Stranger::Stale) => {
                self.counters.num_stale_recvs.add(1);
                Err(Received::Nothing)
            }
            Err(Stranger::Over(received)) => {
                self.counters.num_stale_recvs.add(1);
                self.answer_over(repr, sender, received);
                Err(Received::Nothing)
            }
            Err(Stranger::Unknown) => {
                self.counters.num_unk_recvs.add(1);
                Err(Received::Unknown { name: sender.name, incarnation: sender.incarnation })
            }
        }
    }

    /// Takes a genuine packet in.
    #[inline(always)]
    pub(super) fn take_in(&mut self, index: u32, packet: &Packet<'_>, bytes: &[u8]) -> Received {
        let repr = &packet.repr;
        if let Some(endpoint) = self.endpoints.at_mut(index)
            && repr.body == Body::Fragment
            && endpoint.receive.window.is_plain(repr.seq)
            && endpoint.phase == Phase::Open
        {
            endpoint.receive.window.accept(repr.seq);
            self.counters.num_frag_recvs.add(1);
            self.counters.num_fast_recvs.add(1);
            self.reception.deferred = Some(Deferred {
                index,
                info: AckInfo::of(repr, self.reception.arrival),
                at: self.clock.now(),
                answered: false,
            });
            return Received::Deliver { endpoint: self.id(index), tag: repr.tag, payload: packet.payload() };
        }
        self.handle_packet(index, packet, bytes)
    }

    fn counter_of(&self, malformed: Malformed) -> &Count {
        match malformed {
            Malformed::Short => &self.counters.num_short_recvs,
            Malformed::Version => &self.counters.num_version_recvs,
            Malformed::Kind => &self.counters.num_kind_recvs,
            Malformed::Flags => &self.counters.num_flags_recvs,
            Malformed::Length => &self.counters.num_length_recvs,
        }
    }

    /// The book-keeping of a datagram that was handed up.
    #[inline(never)]
    pub(super) fn finish(&mut self) {
        let Some(&Deferred { index, info, at, answered }) = self.reception.deferred.as_ref() else { return };
        let Some((key, endpoint)) = self.endpoints.entry_mut(index) else { return self.finish_any() };
        if endpoint.receive.has_gap || !endpoint.receive.share.is_active() {
            return self.finish_any();
        }
        if info.flags.has(Flags::ACKNOWLEDGES) {
            match endpoint.acknowledge_only(&info, at, &self.clock, self.limits.window) {
                Some(Outcome::Steady) => {}
                Some(Outcome::Shrunk) => self.counters.num_congestion_events.add(1),
                None => return self.finish_any(),
            }
        }
        self.reception.deferred = None;
        if answered {
            endpoint.receive.last_data = at;
        } else {
            let when = endpoint.note_expected(&info, at);
            self.acks.note(when, &mut endpoint.timers, key, at, self.limits.ack_delay);
        }
    }

    /// The same where it is more than the common one.
    #[inline(never)]
    fn finish_any(&mut self) {
        let Some(Deferred { index, info, at, answered }) = self.reception.deferred.take() else { return };
        if info.flags.has(Flags::ACKNOWLEDGES) {
            self.handle_ack(index, &info, None, at);
        }
        if !answered {
            self.note_data(index, &info, at, true);
        } else if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.receive.last_data = at;
        }
    }

    /// Who it is that sends a short header, if it is anybody, and what its tags begin with.
    fn introduced(&self, repr: &Repr) -> Option<(Sender, Tagging)> {
        let endpoint = self.endpoints.at(self.place_of_slot(repr.receiver_slot)?)?;
        let named = connection_id(repr.receiver_slot, repr.connection) == endpoint.ids.received;
        named.then(|| (endpoint.peer_name(), endpoint.ids.received_tags))
    }

    /// Whose packet it is: by our slot for the sender, or by name while it does not know that.
    pub(super) fn locate(&mut self, repr: &Repr, sender: &Sender) -> std::result::Result<u32, Stranger> {
        let name = (sender.name, sender.incarnation);
        if sender.slot == 0 || repr.connection == 0 {
            return Err(Stranger::Stale);
        }
        let over = Stranger::Over(self.closed.received(name, repr.connection));
        let index = if repr.receiver_slot != 0 {
            self.place_of_slot(repr.receiver_slot).ok_or(Stranger::Stale)?
        } else {
            match self.names.get(&name) {
                Some(index) => *index,
                None if self.closed.is_over(name, repr.connection) => return Err(over),
                None => return Err(Stranger::Unknown),
            }
        };
        let Some(endpoint) = self.endpoints.at_mut(index) else { return Err(over) };
        let ours = repr.receiver_slot == 0 || repr.receiver_slot == endpoint.ids.own_slot;
        if !ours || (endpoint.peer.name, endpoint.peer.incarnation) != name {
            return Err(over);
        }
        if endpoint.ids.peer_connection == repr.connection && endpoint.ids.peer_slot == sender.slot {
            if repr.receiver_slot != 0 && !self.limits.protect {
                endpoint.introduce();
            }
            return if endpoint.phase == Phase::Dead { Err(endpoint.given_up()) } else { Ok(index) };
        }
        let later = |than: u16| repr.connection.wrapping_sub(than) as i16 > 0;
        if endpoint.ids.peer_connection == 0 {
            if endpoint.ids.earlier != 0 && !later(endpoint.ids.earlier) {
                // It is late; or the peer has taken our new connection for the other half of its old one.
                let is_joined = repr.receiver_slot != 0 && !endpoint.ids.has_parted;
                return if is_joined { self.reconnected(index, repr, sender) } else { Err(over) };
            }
            // It was closed before anything was heard: who comes now begins anew.
            if endpoint.phase == Phase::Lingering && self.limits.meets_again {
                self.remove(index);
                return Err(Stranger::Unknown);
            }
            endpoint.ids.peer_connection = repr.connection;
            endpoint.ids.peer_slot = sender.slot;
            endpoint.used = true;
            if repr.receiver_slot != 0 && !self.limits.protect {
                endpoint.introduce();
            }
            endpoint.note_names(&self.identity);
            return if endpoint.phase == Phase::Dead { Err(endpoint.given_up()) } else { Ok(index) };
        }
        // Whatever is of a later connection says that the one that we know is over, also if it names our slot:
        // then what we had heard of the earlier one was late, and the peer has heard us in the later one.
        if !later(endpoint.ids.peer_connection) {
            return Err(Stranger::Stale);
        }
        self.reconnected(index, repr, sender)
    }

    /// Everything but the common case.
    fn handle_packet(&mut self, index: u32, packet: &Packet<'_>, bytes: &[u8]) -> Received {
        let (repr, now) = (&packet.repr, self.clock.now());
        let info = &AckInfo::of(repr, self.reception.arrival);
        let Some(endpoint) = self.endpoints.at_mut(index) else {
            return Received::Nothing;
        };
        if endpoint.phase == Phase::Lingering {
            self.answer_late(index, repr);
            return Received::Nothing;
        }
        if repr.flags.has(Flags::ACKNOWLEDGES) {
            let bitmap = if let Body::Ack(bitmap) = &repr.body { Some(bitmap) } else { None };
            self.handle_ack(index, info, bitmap, now);
        }
        match repr.body {
            Body::Ack(_) => {
                self.counters.num_ack_recvs.add(1);
                return Received::Nothing;
            }
            Body::Close => {
                self.handle_close(index);
                return Received::Nothing;
            }
            Body::CloseAck => {
                self.handle_close_ack(index);
                return Received::Nothing;
            }
            Body::Reject { operation } => {
                self.handle_refused(index, operation);
                return Received::Nothing;
            }
            Body::Withdrawn { segment } => {
                self.handle_withdrawn(index, segment);
                return Received::Nothing;
            }
            _ => {}
        }
        let Some(endpoint) = self.endpoints.at_mut(index) else {
            return Received::Nothing;
        };
        let (next, early) = (endpoint.receive.window.next(), repr.seq != endpoint.receive.window.next());
        match endpoint.receive.window.judge(repr.seq) {
            Verdict::New if is_kept_out(&endpoint.receive.window, repr) => {
                self.counters.num_withdrawn_recvs.add(1);
                return Received::Nothing;
            }
            Verdict::New => {}
            Verdict::Duplicate => {
                self.counters.num_dup_recvs.add(1);
                self.note_data(index, info, now, false);
                return Received::Nothing;
            }
            Verdict::Below => {
                self.counters.num_oow_low_recvs.add(1);
                self.note_data(index, info, now, false);
                return Received::Nothing;
            }
            Verdict::Above => {
                self.counters.num_oow_high_recvs.add(1);
                self.note_data(index, info, now, false);
                return Received::Nothing;
            }
        }
        let payload = Payload::one(&bytes[packet.payload()]);
        let mut received = Received::Nothing;
        let taken = match repr.body {
            Body::Fragment => {
                self.counters.num_frag_recvs.add(1);
                received =
                    Received::Deliver { endpoint: self.id(index), tag: repr.tag, payload: packet.payload() };
                true
            }
            Body::Chunk { fragment, size, offset } => {
                let chunk = Chunk { tag: repr.tag, fragment, size, offset, payload, early };
                let placed = self.place_chunk(index, &chunk);
                match placed {
                    Ok(()) => {}
                    Err(Unplaced::Full) => {
                        self.counters.num_reassembly_full.add(1);
                        // Its sender hears that somebody is there, and asks on with what else is under way.
                        self.note_data(index, info, now, false);
                    }
                    Err(Unplaced::Bad) => self.counters.num_badfrag_recvs.add(1),
                }
                placed.is_ok()
            }
            Body::Put { registration, generation, offset, operation } => {
                self.handle_put(index, (registration, generation), offset, operation, payload)
            }
            Body::GetRequest { registration, generation, offset, length, operation } => {
                self.handle_get(index, (registration, generation), offset, length, operation)
            }
            Body::GetData { operation, offset } => {
                self.handle_get_data(index, operation, offset, payload);
                true
            }
            Body::Refused { operation } => {
                self.handle_refused(index, operation);
                true
            }
            Body::Withdraw => {
                self.handle_withdraw(index, repr.seq);
                false
            }
            Body::Void
            | Body::Ack(_)
            | Body::Close
            | Body::CloseAck
            | Body::Reject { .. }
            | Body::Withdrawn { .. }
            | Body::Reset => true,
        };
        if taken {
            self.counters.max_rcvd_window_size.raise(repr.seq - next);
            if let Some(endpoint) = self.endpoints.at_mut(index) {
                match repr.body {
                    Body::Void => endpoint.receive.window.accept_void(repr.seq),
                    _ => endpoint.receive.window.accept(repr.seq),
                }
            }
            self.note_data(index, info, now, true);
        }
        received
    }

    /// Puts a chunk, or several that follow each other, in its place, if it may be acknowledged.
    pub(super) fn place_chunk(&mut self, index: u32, chunk: &Chunk<'_>) -> std::result::Result<(), Unplaced> {
        let endpoint = self.endpoints.at_mut(index).ok_or(Unplaced::Bad)?;
        let before = endpoint.receive.assembler.len();
        let placed = endpoint.receive.assembler.place(chunk, &mut self.pool);
        let after = endpoint.receive.assembler.len();
        self.expected = (self.expected + after as u64).saturating_sub(before as u64);
        if before == 0 && after > 0 {
            self.arm(index);
        }
        if let Placed::Whole { tag, buffer } = placed? {
            let endpoint = self.id(index);
            self.events.push_back(Event::Deliver { endpoint, tag, buffer });
        }
        self.counters.num_chunk_recvs.add(chunk.payload.count() as u64);
        Ok(())
    }
}
