//! Protected packets: on their way out they are encrypted into whatever carries them, on their way in decrypted
//! before anything of them is believed.

use super::core::{Engine, SLOT_BITS};
use super::endpoint::Phase;
use super::interface::{EndpointId, Event, Memory, Piece, Received, Transmit};
use super::landing::Landing;
use super::protection::{Opener, Refusal};
use super::time::Instant;
use crate::wire::protection::{PacketKey, Sealed, Sender, TAG_LEN};
use crate::wire::run::{Joined, Lead};
use crate::wire::usnic::{self, Flags, Packet, Repr};

/// A datagram that is about to be encrypted, under a number that is used once.
#[must_use]
pub struct Seal<'a, M> {
    number: u64,
    key: &'a PacketKey,
    header: &'a [u8],
    pieces: [Option<Piece<M>>; 2],
}

impl<M: Memory> Seal<'_, M> {
    /// Bytes of the datagram.
    pub fn len(&self) -> usize {
        let carried: usize = self.pieces.iter().flatten().map(|piece| piece.len).sum();
        self.header.len() + carried + TAG_LEN
    }

    /// Never: there is always a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the datagram, of [`len`](Self::len) bytes, behind what is in `to`: each byte of the user's memory is
    /// read once.
    pub fn write(self, to: &mut Vec<u8>) {
        let start = to.len();
        to.reserve(self.len());
        to.extend_from_slice(self.header);
        self.pieces.iter().flatten().for_each(|piece| piece.memory.append(piece.offset, piece.len, to));
        to.extend_from_slice(&[0; TAG_LEN]);
        self.key.seal(self.number, self.header.len(), &mut to[start..]);
    }
}

/// The datagram of a [`Transmit`], or those of a run, one after the other.
#[must_use]
pub struct Seals<'a, M> {
    number: u64,
    key: &'a PacketKey,
    /// Those of the datagrams that are left, and the bytes of each.
    headers: &'a [u8],
    header: usize,
    /// What is left.
    pieces: [Option<Piece<M>>; 2],
    /// Bytes behind each header; the last has what is left.
    payload: usize,
}

impl<'a, M: Memory> Iterator for Seals<'a, M> {
    type Item = Seal<'a, M>;

    fn next(&mut self) -> Option<Seal<'a, M>> {
        let (header, rest) = self.headers.split_at_checked(self.header).filter(|(it, _)| !it.is_empty())?;
        (self.headers, self.number) = (rest, self.number + 1);
        let mut room = self.payload;
        let pieces = self.pieces.each_mut().map(|piece| {
            let taken = piece.as_mut()?.take(room)?;
            room -= taken.len;
            Some(taken)
        });
        Some(Seal { number: self.number - 1, key: self.key, header, pieces })
    }
}

impl<M: Memory> Engine<M> {
    /// Whether packets are protected: then each [`Transmit`] goes through [`protect`](Self::protect).
    #[inline]
    pub fn is_protected(&self) -> bool {
        self.limits.protect
    }

    /// Numbers a datagram, or a run of them, for one transmission. `None` if it must not be sent: its peer is gone,
    /// or the numbers of the connection are used up, which ends it.
    pub fn protect<'a>(&'a mut self, transmit: &'a Transmit<M>) -> Option<Seals<'a, M>> {
        let EndpointId(key) = transmit.endpoint;
        let count = 1 + transmit.following as u64;
        if !self.endpoints.get_mut(key)?.protection.as_mut()?.sealer.prepare(count) {
            self.end_exhausted(key.index);
            return None;
        }
        let (number, key) = self.endpoints.get_mut(key)?.protection.as_mut()?.sealer.take(count)?;
        let first = &*transmit.header;
        let ((headers, header), payload) = match transmit.following {
            0 => ((first, first.len()), usize::MAX),
            _ => (self.pass.headers.bytes(), self.pass.headers.payload()),
        };
        Some(Seals { number, key, headers, header, pieces: transmit.pieces.clone(), payload })
    }

    /// As after so many packets that so many numbers are left of the phase.
    #[cfg(test)]
    pub(crate) fn leave_numbers(&mut self, endpoint: EndpointId, left: u64) {
        let protection = self.endpoints.get_mut(endpoint.0).and_then(|at| at.protection.as_mut());
        protection.expect("a protected connection").sealer.leave(left);
    }

    /// [`handle_run`](Self::handle_run) where packets are protected: what is done with has been decrypted where it
    /// is. One that is not genuine ends a run, and is done with too.
    pub fn handle_protected_run(
        &mut self,
        bytes: &mut [u8],
        size: usize,
        arrived: Option<Instant>,
        now: Instant,
    ) -> usize {
        self.begin_arrival(arrived, now);
        self.open_run(bytes, size, None).unwrap_or(0)
    }

    /// [`handle_landed`](Self::handle_landed) where packets are protected: the first one is where it was guessed to be.
    #[inline(never)]
    pub(super) fn handle_protected_landed(
        &mut self,
        bytes: &mut [u8],
        size: usize,
        landing: &Landing<M>,
        arrived: Option<Instant>,
        now: Instant,
    ) -> usize {
        self.begin_arrival(arrived, now);
        self.open_run(bytes, size, Some(landing)).unwrap_or(0)
    }

    fn open_run(&mut self, bytes: &mut [u8], size: usize, landing: Option<&Landing<M>>) -> Option<usize> {
        let fits = |at: usize, datagram: &[u8]| landing.is_none_or(|there| there.fits(at, datagram.len()));
        if !fits(0, bytes.get(..size)?) {
            return None;
        }
        let lead = Lead::parse(bytes, size)?;
        let (header, (index, stated)) = (lead.header(), self.protected_from(lead.repr())?);
        let own = self.protection.as_ref()?;
        let opener = self.endpoints.at_mut(index)?.protection.as_mut()?.opener.as_mut()?;
        let mut open = |at: usize, datagram: &mut [u8]| match landing {
            None => opener.open_in_place(&own.secret, header, datagram).err(),
            Some(there) => {
                opener.open_apart(&own.secret, header, datagram, |open| there.change(at, open)).err()
            }
        };
        let mut refusal = open(0, bytes.get_mut(..size)?);
        let mut count = usize::from(refusal.is_none());
        let (mut all, mut asks) = (1, false);
        // The others are not looked at before the first is known to be genuine.
        if count > 0
            && let Some(run) = Lead::parse(bytes, size).and_then(Lead::run)
        {
            (all, asks) = (run.count(), run.asks);
            for (at, datagram) in bytes.chunks_mut(size).enumerate().take(all).skip(1) {
                if !fits(at, datagram) {
                    break;
                }
                refusal = open(at, datagram);
                if refusal.is_some() {
                    break;
                }
                count += 1;
            }
        }
        let done = count + usize::from(refusal.is_some());
        self.counters.num_total_recvs.add(done as u64);
        if count > 0 {
            let run = Lead::parse(bytes, size)?.together(count, asks && count == all);
            self.take_opened_run(index, &stated, &run, landing.is_some());
        }
        if let Some(refusal) = refusal {
            self.note_refusal(refusal, Some(index));
        }
        Some(done)
    }

    /// Takes in packets that are genuine and decrypted, and whose data may be `in_place`.
    fn take_opened_run(&mut self, index: u32, stated: &usnic::Sender, run: &Joined<'_>, in_place: bool) {
        self.landings.in_place = in_place;
        if run.count() == 1 || self.take_together(index, run).is_none() {
            for datagram in run.datagrams() {
                // Each has to be told anew where its data is.
                self.landings.in_place = in_place;
                if let Ok(packet) = Packet::parse(datagram) {
                    let _ = self.take_opened(&packet, stated, None, datagram);
                }
            }
        }
        self.landings.in_place = false;
    }

    /// Whose packet it is, if it claims to be the one expected of a peer that we know and that knows us.
    fn protected_from(&self, repr: &Repr) -> Option<(u32, usnic::Sender)> {
        let stated = repr.sender.filter(|_| repr.flags.has(Flags::PROTECTED))?;
        let index = self.opener_of(repr, &stated)?;
        let endpoint = self.endpoints.at(index)?;
        let known = repr.receiver_slot == endpoint.ids.own_slot && stated.slot == endpoint.ids.peer_slot;
        let expected = endpoint.phase == Phase::Open && endpoint.receive.window.is_plain(repr.seq);
        (known && expected).then_some((index, stated))
    }

    /// Takes a datagram in where it is protected, or we are.
    #[inline(never)]
    pub(super) fn handle_protected(&mut self, packet: &Packet<'_>) -> Received {
        if !(packet.repr.flags.has(Flags::PROTECTED) && self.limits.protect) {
            self.counters.num_flags_recvs.add(1);
            self.reception.has_refused = true;
            return Received::Nothing;
        }
        // Its sender always says who it is.
        let Some(stated) = packet.repr.sender else {
            self.counters.num_flags_recvs.add(1);
            self.reception.has_refused = true;
            return Received::Nothing;
        };
        let Some(sealed) = Sealed::of(packet) else {
            self.counters.num_length_recvs.add(1);
            self.reception.has_refused = true;
            return Received::Nothing;
        };
        let Some(mut own) = self.protection.take() else { return Received::Nothing };
        let mut opened = std::mem::take(&mut own.opened);
        let (start, end) = (packet.payload().start, packet.payload().end);
        if opened.len() < end {
            opened.resize(end, 0);
        }
        let repr = &packet.repr;
        let known = self.opener_of(repr, &stated);
        let mut fresh = None;
        let opener = match known.and_then(|index| self.endpoints.at_mut(index)?.protection.as_mut()) {
            Some(protection) => protection.opener.as_mut(),
            None => None,
        };
        let opener = match opener {
            Some(opener) => opener,
            None => fresh.insert(Opener::new(Sender {
                name: stated.name,
                incarnation: stated.incarnation,
                connection: repr.connection,
            })),
        };
        let outcome = opener.open(&own.secret, &sealed, &mut opened[start..end]);
        self.protection = Some(own);
        let received = match outcome {
            Ok(()) => self.take_opened(packet, &stated, fresh, &opened[..end]),
            Err(refusal) => {
                self.note_refusal(refusal, known);
                Received::Nothing
            }
        };
        if let Some(own) = &mut self.protection {
            own.opened = opened;
        }
        received
    }

    /// The endpoint that has the keys of a packet's sender. Nothing is believed yet, and nothing changes.
    fn opener_of(&self, repr: &Repr, stated: &usnic::Sender) -> Option<u32> {
        let index = match repr.receiver_slot {
            0 => *self.names.get(&(stated.name, stated.incarnation))?,
            slot => (slot & ((1 << SLOT_BITS) - 1)).checked_sub(1)?,
        };
        let endpoint = self.endpoints.at(index)?;
        let (name, incarnation) = (endpoint.peer.name, endpoint.peer.incarnation);
        let is_it = (name, incarnation, endpoint.ids.peer_connection)
            == (stated.name, stated.incarnation, repr.connection)
            && repr.connection != 0;
        is_it.then_some(index)
    }

    fn note_refusal(&mut self, refusal: Refusal, from: Option<u32>) {
        self.reception.has_refused = true;
        match refusal {
            Refusal::Replayed => self.counters.num_replay_recvs.add(1),
            Refusal::Forged => self.counters.num_crc_errors.add(1),
            Refusal::Exhausted => {
                self.counters.num_crc_errors.add(1);
                if let Some(index) = from {
                    self.end_exhausted(index);
                }
            }
        }
    }

    /// Nothing can be protected any more between us and a peer.
    #[cold]
    fn end_exhausted(&mut self, index: u32) {
        let phase = self.endpoints.at(index).map(|endpoint| endpoint.phase);
        if matches!(phase, Some(Phase::Open | Phase::Parting | Phase::Draining | Phase::Closing)) {
            self.lose_peer(index);
        }
    }

    /// Takes in what is genuine. What the user is to have is no part of the datagram: it is an event.
    fn take_opened(
        &mut self,
        packet: &Packet<'_>,
        stated: &usnic::Sender,
        fresh: Option<Opener>,
        bytes: &[u8],
    ) -> Received {
        let index = match self.find(&packet.repr, stated) {
            Ok(index) => index,
            Err(received) => return received,
        };
        if let Some(opener) = fresh
            && let Some(protection) = self.endpoints.at_mut(index).and_then(|at| at.protection.as_mut())
        {
            protection.opener = Some(opener);
        }
        match self.take_in(index, packet, bytes) {
            Received::Deliver { endpoint, tag, payload } => {
                let buffer = self.pool.hold(&bytes[payload]);
                self.events.push_back(Event::Deliver { endpoint, tag, buffer });
                Received::Nothing
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::interface::{Fragment, Identity, Peer};
    use super::*;
    use crate::config;
    use crate::error::Error;

    #[derive(Clone)]
    struct Eight;

    impl Memory for Eight {
        fn len(&self) -> usize {
            8
        }
        fn read(&self, _: usize, to: &mut [u8]) {
            to.fill(8);
        }
        fn write(&self, _: usize, _: &[u8]) {}
    }

    #[test]
    fn a_connection_ends_with_its_numbers() {
        let config = config::Usnic { protect_payload: true, ..config::Usnic::default() };
        let now = Instant::from_nanos(1_000_000);
        let identity = Identity { name: 1, incarnation: 1, key: [1; 16] };
        let mut engine = Engine::new(&config, identity, 1 << 20, now).expect("memory");
        let peer = Peer { name: 2, incarnation: 1, key: [2; 16], max_datagram: 1472 };
        let endpoint = engine.connect(peer, now).expect("connected");
        let fragment =
            || Fragment { tag: 1, pieces: [Some(Eight), None], cookie: 9, priority: false, awaited: true };
        engine.send(endpoint, fragment(), now).expect("sent");
        let transmit = engine.poll_transmit(now).expect("a datagram");
        let seals: Vec<_> = engine.protect(&transmit).expect("a number").map(|seal| seal.len()).collect();
        assert_eq!(seals, [transmit.len() + TAG_LEN]);
        let at = engine.endpoints.get_mut(endpoint.0).and_then(|at| at.protection.as_mut());
        at.expect("protected").sealer.exhaust();
        for _ in 0..2 {
            assert!(engine.protect(&transmit).is_none(), "its number would be of another packet");
        }
        let outcome = Err(Error::Unreachable);
        assert_eq!(engine.poll_event(), Some(Event::Done { cookie: 9, outcome }));
        assert_eq!(engine.poll_event(), Some(Event::Lost { endpoint }));
        assert_eq!(engine.poll_event(), None);
        assert_eq!(engine.send(endpoint, fragment(), now), outcome);
    }
}
