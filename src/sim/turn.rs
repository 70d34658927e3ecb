//! A node's turn: it hands in what has arrived, tells what has happened, and hands out what it sends.

use super::{Arrival, Block, Happened, JOINED, Network, RUN, What};
use crate::engine::time::Instant;
use crate::engine::{AWAY, Channel, EndpointId, Engine, Event, Fragment, Header, Memory, Received, Transmit};
use crate::error::Result;
use crate::link::COALESCED;
use crate::wire::coalesced::{can_be_followed, first_len};

impl Network {
    pub(super) fn arrive(&mut self, to: usize, channel: Channel, bytes: Vec<u8>) {
        let node = &mut self.nodes[to];
        let filled = &mut node.filled[channel as usize];
        if *filled + bytes.len() > self.setup.receive_buffer {
            self.wires.fates.overrun += 1;
            self.wires.discard(bytes);
            return;
        }
        *filled += bytes.len();
        node.buffers[channel as usize].push_back((self.now, bytes));
        self.nudge(to);
    }

    pub(super) fn turn(&mut self, index: usize) {
        self.send_row(index);
        if self.nodes[index].stopped {
            return;
        }
        if self.now < self.nodes[index].busy {
            self.turn_at(index, self.nodes[index].busy);
            return;
        }
        let node = &mut self.nodes[index];
        // Since it had time, a datagram has waited so long for a turn.
        if node.oldest().is_some_and(|oldest| self.now.since(oldest.max(node.free)) > AWAY) {
            node.engine.note_away(self.now);
        }
        let (mut cost, mut handed_in) = (0, 0);
        for channel in [Channel::Priority, Channel::Data] {
            for _ in 0..64 {
                if channel == Channel::Data {
                    let joined = self.hand_in_joined(index);
                    cost += self.setup.work * joined;
                    handed_in += joined;
                }
                let node = &mut self.nodes[index];
                let Some((came, bytes)) = node.buffers[channel as usize].pop_front() else { break };
                node.filled[channel as usize] -= bytes.len();
                cost += self.setup.work;
                handed_in += 1;
                self.hand_in(index, came, &bytes);
                self.wires.discard(bytes);
            }
        }
        let (now, node) = (self.now, &mut self.nodes[index]);
        node.free = now.plus(cost);
        if node.oldest().is_none() {
            node.engine.note_drained();
        }
        // After a single one the rest may be left to the next turn, and the user may send before.
        if handed_in == 1 && self.nodes[index].engine.has_deferred() && self.wires.random.below(2) == 0 {
            self.nodes[index].busy = now.plus(cost);
            self.nudge(index);
            return;
        }
        self.nodes[index].engine.handle_timeout(now);
        while let Some(event) = self.nodes[index].engine.poll_event() {
            self.report(index, event);
        }
        while let Some(transmit) = self.nodes[index].engine.poll_transmit_run(RUN, now) {
            cost += self.setup.work * (1 + transmit.following as u64);
            self.hand_out(index, &transmit);
        }
        self.send_row(index);
        let node = &mut self.nodes[index];
        node.free = now.plus(cost);
        let waits = node.oldest().is_some();
        node.busy = if waits { node.free } else { node.free.max(node.next_look(now)) };
        let next = if waits { Some(node.busy) } else { node.engine.next_timeout() };
        if let Some(next) = next {
            let at = next.max(node.busy).max(now.plus(1));
            self.turn_at(index, at);
        }
    }

    /// Sends a fragment, at once if it may leave at once.
    pub fn send(&mut self, node: usize, endpoint: EndpointId, fragment: Fragment<Block>) -> Result<()> {
        let now = self.now;
        let (cookie, mut header) = (fragment.cookie, Header::EMPTY);
        if self.nodes[node].engine.send_copy(endpoint, &fragment, now, &mut header) {
            let pieces = [None, None];
            let transmit = Transmit { endpoint, channel: Channel::Priority, header, pieces, following: 0 };
            self.hand_out(node, &transmit);
            self.report(node, Event::Done { cookie, outcome: Ok(()) });
        } else if let Some(transmit) = self.nodes[node].engine.send_at_once(endpoint, fragment, now)? {
            self.hand_out(node, &transmit);
        }
        self.nudge(node);
        Ok(())
    }

    fn hand_out(&mut self, index: usize, transmit: &Transmit<Block>) {
        if self.nodes[index].engine.is_protected() {
            self.hand_out_protected(index, transmit);
            return;
        }
        let mut carried = Vec::new();
        for piece in transmit.pieces.iter().flatten() {
            let start = carried.len();
            carried.resize(start + piece.len, 0);
            piece.memory.read(piece.offset, &mut carried[start..]);
        }
        if transmit.following == 0 {
            self.hand_out_one(index, transmit, &transmit.header, &carried);
            return;
        }
        let headers = self.nodes[index].engine.headers();
        let ((headers, len), payload) = (headers.bytes(), headers.payload());
        let headers: Vec<Vec<u8>> = headers.chunks_exact(len).map(<[u8]>::to_vec).collect();
        assert_eq!(headers.len(), 1 + transmit.following);
        assert_eq!(carried.len().div_ceil(payload), headers.len(), "each carries something");
        for (header, carried) in headers.iter().zip(carried.chunks(payload)) {
            self.hand_out_one(index, transmit, header, carried);
        }
    }

    fn hand_out_protected(&mut self, index: usize, transmit: &Transmit<Block>) {
        let Some(seals) = self.nodes[index].engine.protect(transmit) else { return };
        let mut all = Vec::new();
        for seal in seals {
            let (len, mut bytes) = (seal.len(), self.wires.blank());
            seal.write(&mut bytes);
            assert_eq!(bytes.len(), len, "a datagram has another length than it was said to have");
            all.push(bytes);
        }
        assert_eq!(all.len(), 1 + transmit.following);
        for bytes in all {
            self.numbers.note(index, self.nodes[index].incarnation, &bytes);
            self.dispatch(index, transmit, bytes);
        }
    }

    fn hand_out_one(&mut self, index: usize, transmit: &Transmit<Block>, header: &[u8], carried: &[u8]) {
        let mut bytes = self.wires.blank();
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(carried);
        self.dispatch(index, transmit, bytes);
    }

    fn dispatch(&mut self, index: usize, transmit: &Transmit<Block>, bytes: Vec<u8>) {
        assert!(bytes.len() <= self.setup.config.max_datagram, "a datagram is too long");
        match self.node_of(index, transmit.endpoint) {
            Some(to)
                if self.setup.shares && transmit.channel == Channel::Priority && can_be_followed(&bytes) =>
            {
                self.share(index, to, transmit.endpoint, &bytes);
            }
            Some(to) => {
                self.send_row(index);
                self.put_on_wire((index, to), transmit.channel, bytes);
            }
            // It is closed, and only lingers; the packet itself says who is meant.
            None => self.post_late(index, transmit.endpoint, transmit.channel, bytes),
        }
    }

    /// Puts a packet behind others to the same node, as long as there is room.
    fn share(&mut self, index: usize, to: usize, endpoint: EndpointId, packet: &[u8]) {
        let longest = self.nodes[index].engine.longest_datagram(endpoint).min(COALESCED);
        let fits = |(of, row): &(usize, Vec<u8>)| *of == to && row.len() + packet.len() <= longest;
        if !self.nodes[index].row.as_ref().is_some_and(fits) {
            self.send_row(index);
        }
        let blank = self.wires.blank();
        self.nodes[index].row.get_or_insert((to, blank)).1.extend_from_slice(packet);
    }

    /// Sends what shares a datagram.
    fn send_row(&mut self, index: usize) {
        if let Some((to, bytes)) = self.nodes[index].row.take() {
            assert!(bytes.len() <= self.setup.config.max_datagram, "a datagram is too long");
            self.put_on_wire((index, to), Channel::Priority, bytes);
        }
    }

    fn post_late(&mut self, index: usize, endpoint: EndpointId, channel: Channel, bytes: Vec<u8>) {
        if let Some(peer) = self.nodes[index].engine.peer_name(endpoint)
            && let Some(&to) = self.names.get(&peer)
        {
            self.post(index, to, channel, bytes);
        }
    }

    /// Joins datagrams that wait one behind the other, as a kernel does, and hands them in; how many were taken.
    fn hand_in_joined(&mut self, index: usize) -> u64 {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let waiting = &node.buffers[Channel::Data as usize];
        let Some((came, first)) = waiting.front() else { return 0 };
        let (came, size, most) = (*came, first.len(), if node.is_refused { 2 } else { JOINED });
        let mut joined = Vec::new();
        for (_, bytes) in waiting.iter().take(most).filter(|_| size > 0) {
            if bytes.len() > size {
                break;
            }
            joined.extend_from_slice(bytes);
            if bytes.len() < size {
                break;
            }
        }
        if joined.len() <= size {
            return 0;
        }
        let arrived = self.setup.stamps.then_some(came);
        let taken = if let Some(taken) = land(&mut node.engine, &joined, size, arrived, now) {
            taken
        } else if node.engine.is_protected() {
            node.engine.handle_protected_run(&mut joined, size, arrived, now)
        } else {
            node.engine.handle_run(&joined, size, arrived, now)
        };
        node.is_refused = taken == 0;
        for _ in 0..taken {
            if let Some((_, bytes)) = node.buffers[Channel::Data as usize].pop_front() {
                node.filled[Channel::Data as usize] -= bytes.len();
                self.wires.discard(bytes);
            }
        }
        self.wires.fates.arrived += taken as u64;
        taken as u64
    }

    fn hand_in(&mut self, index: usize, came: Instant, bytes: &[u8]) {
        self.wires.fates.arrived += 1;
        let (now, arrived) = (self.now, self.setup.stamps.then_some(came));
        if land(&mut self.nodes[index].engine, bytes, bytes.len(), arrived, now) == Some(1) {
            return;
        }
        let (mut first, mut rest) = bytes.split_at(first_len(bytes, COALESCED));
        while self.hand_in_packet(index, arrived, first) && !rest.is_empty() {
            (first, rest) = rest.split_at(first_len(rest, COALESCED));
        }
    }

    /// Hands one packet in; whether what follows it in its datagram is worth looking at.
    fn hand_in_packet(&mut self, index: usize, arrived: Option<Instant>, bytes: &[u8]) -> bool {
        let now = self.now;
        let mut received = self.nodes[index].engine.handle_datagram(bytes, arrived, now);
        if let Received::Unknown { name, incarnation } = received {
            let known = self.names.get(&name).copied();
            let Some(from) = known.filter(|from| self.nodes[*from].incarnation == incarnation) else {
                return true;
            };
            let _ = self.endpoint(index, from);
            received = self.nodes[index].engine.handle_datagram(bytes, arrived, now);
        }
        if let Received::Deliver { endpoint, tag, payload } = received {
            let from = self.node_of(index, endpoint).expect("known");
            let bytes = bytes[payload].to_vec();
            self.happened.push_back(Happened::Delivered { node: index, from, tag, bytes });
            return true;
        }
        !self.nodes[index].engine.has_refused()
    }

    fn report(&mut self, index: usize, event: Event) {
        if let Event::Deliver { endpoint, tag, buffer } = event {
            let bytes = buffer.to_vec();
            if let Some(from) = self.node_of(index, endpoint) {
                self.happened.push_back(Happened::Delivered { node: index, from, tag, bytes });
            }
            self.nodes[index].engine.recycle(buffer);
        } else if let Event::Over { name, reset, .. } = &event {
            if let Some(&to) = self.names.get(name) {
                self.post(index, to, Channel::Priority, reset.to_vec());
            }
        } else {
            self.happened.push_back(Happened::Event { node: index, event });
        }
    }

    /// Puts a datagram on its way.
    pub fn post(&mut self, from: usize, to: usize, channel: Channel, bytes: Vec<u8>) {
        self.put_on_wire((from, to), channel, bytes);
    }

    fn put_on_wire(&mut self, (from, to): (usize, usize), channel: Channel, bytes: Vec<u8>) {
        for arrival in self.wires.carry(from, to, channel, bytes, self.now).into_iter().flatten() {
            self.enter(from, to, channel, arrival);
        }
    }

    pub(super) fn enter(&mut self, from: usize, to: usize, channel: Channel, arrival: Arrival) {
        let Arrival { at, bytes, port } = arrival;
        let what = match port {
            Some(port) => What::Reaches { port, from, to, channel, bytes },
            None => What::Arrives { to, channel, bytes },
        };
        self.agenda.enter(at, what);
    }
}

/// Lets datagrams land where the engine guesses that they belong, as a kernel does that has no idea what they are; how many
/// it has taken, unless there is no guess.
pub(super) fn land(
    engine: &mut Engine<Block>,
    joined: &[u8],
    size: usize,
    arrived: Option<Instant>,
    now: Instant,
) -> Option<usize> {
    let landing = engine.landing()?;
    let (step, mut left) = (landing.header + landing.payload + landing.trailer, joined.to_vec());
    let places = (landing.header..joined.len()).step_by(step);
    for (place, offset) in places.zip((landing.offset..landing.memory.len()).step_by(landing.payload)) {
        let here = landing.payload.min(joined.len() - place).min(landing.memory.len() - offset);
        landing.memory.write(offset, &joined[place..place + here]);
        left[place..place + here].fill(0xA5);
    }
    let is_even = size == step || size == joined.len() && size < step;
    let taken = if is_even {
        engine.handle_landed(&mut left, size, &landing, arrived, now)
    } else {
        engine.note_missed_landing();
        0
    };
    // What is not taken is fetched back from there.
    let places = (landing.header..joined.len()).step_by(step).skip(taken);
    let offsets = (landing.offset..landing.memory.len()).step_by(landing.payload).skip(taken);
    for (place, offset) in places.zip(offsets) {
        let here = landing.payload.min(joined.len() - place).min(landing.memory.len() - offset);
        let mut back = vec![0; here];
        landing.memory.read(offset, &mut back);
        assert!(back == joined[place..place + here], "the engine has written over it");
    }
    Some(taken)
}
