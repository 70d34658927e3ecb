//! Protected payload: what somebody who sees all the traffic can do to it, which is nothing.

use super::tests::{hostile, play, rest};
use super::traffic::Load;
use super::*;
use crate::engine::{Fragment, Received};
use crate::wire::protection::{Secret, Sender, TAG_LEN, phase};
use crate::wire::usnic::{Body, Flags, Key, Packet, Repr};

const MICRO: u64 = 1_000;

/// A packet as its sender would protect it, for who has published `key`.
pub(super) fn sealed(key: &Key, number: u64, repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let header =
        Repr { flags: repr.flags.with(Flags::PROTECTED, true), length: payload.len() as u16, ..*repr }.emit();
    let stated = repr.sender.expect("a long header");
    let sender = Sender { name: stated.name, incarnation: stated.incarnation, connection: repr.connection };
    let mut bytes = [&header[..], payload, &[0; TAG_LEN]].concat();
    let key = Secret::new(key).packet_key(&sender, phase(number)).expect("a key");
    assert!(key.seal(number, header.len(), &mut bytes));
    bytes
}

fn config(max_datagram: usize) -> config::Usnic {
    config::Usnic { max_datagram, protect_payload: true, ..config::Usnic::default() }
}

/// Two engines that know each other, and everything that was ever on the wire, with where it went to.
pub(super) struct Pair {
    pub(super) engines: [Engine<Block>; 2],
    pub(super) ids: [EndpointId; 2],
    pub(super) now: Instant,
    /// Bytes of a run, at most.
    pub(super) run_room: usize,
    wire: Vec<(usize, Vec<u8>)>,
    pub(super) delivered: Vec<(usize, Vec<u8>)>,
    lost: usize,
}

const KEYS: [Key; 2] = [[1; 16], [2; 16]];

fn peer(at: usize, max_datagram: usize) -> Peer {
    Peer { name: at as u64, incarnation: 1, key: KEYS[at], max_datagram }
}

impl Pair {
    fn new() -> Self {
        Self::over(1472)
    }

    /// With datagrams of so many bytes.
    pub(super) fn over(width: usize) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let identity = |at: usize| Identity { name: at as u64, incarnation: 1, key: KEYS[at] };
        let mut engines =
            [0, 1].map(|at| Engine::new(&config(width), identity(at), 1 << 20, now).expect("memory"));
        let ids = [0, 1].map(|at| engines[at].connect(peer(1 - at, width), now).expect("connected"));
        Self { engines, ids, now, run_room: RUN, wire: Vec::new(), delivered: Vec::new(), lost: 0 }
    }

    pub(super) fn send(&mut self, from: usize, bytes: &[u8]) {
        let memory = Block::new(bytes.to_vec());
        let fragment =
            Fragment { tag: 1, pieces: [Some(memory), None], cookie: 1, priority: false, awaited: true };
        let sent = self.engines[from].send_at_once(self.ids[from], fragment, self.now).expect("sent");
        assert!(sent.is_none(), "protected packets leave with the pass");
    }

    /// What an engine sends now; it is on the wire.
    pub(super) fn take(&mut self, from: usize) -> Vec<Vec<u8>> {
        self.now = self.now.plus(100 * MICRO);
        self.take_now(from)
    }

    /// The same without a wait.
    pub(super) fn take_now(&mut self, from: usize) -> Vec<Vec<u8>> {
        self.engines[from].handle_timeout(self.now);
        let mut sent = Vec::new();
        while let Some(transmit) = self.engines[from].poll_transmit_run(self.run_room, self.now) {
            for seal in self.engines[from].protect(&transmit).expect("a number") {
                let (len, mut bytes) = (seal.len(), Vec::new());
                seal.write(&mut bytes);
                assert_eq!(bytes.len(), len);
                sent.push(bytes);
            }
        }
        for bytes in &sent {
            self.wire.push((1 - from, bytes.clone()));
        }
        sent
    }

    pub(super) fn give(&mut self, to: usize, bytes: &[u8]) -> Received {
        let received = self.engines[to].handle_datagram(bytes, None, self.now);
        self.hear(to);
        received
    }

    /// Takes what has happened at one of them.
    pub(super) fn hear(&mut self, to: usize) {
        while let Some(event) = self.engines[to].poll_event() {
            match event {
                Event::Deliver { buffer, .. } => {
                    self.delivered.push((to, buffer.to_vec()));
                    self.engines[to].recycle(buffer);
                }
                Event::Lost { .. } => self.lost += 1,
                _ => {}
            }
        }
    }

    /// Lets all arrive, there and back, until nobody has anything to say.
    pub(super) fn settle(&mut self) {
        loop {
            let mut busy = false;
            for from in [0, 1] {
                for bytes in self.take(from) {
                    let _ = self.give(1 - from, &bytes);
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// What an engine has believed: everything but the counts of what it dropped.
    pub(super) fn believed(&self, at: usize) -> u64 {
        let counters = self.engines[at].counters();
        let dropped = counters.num_short_recvs
            + counters.num_version_recvs
            + counters.num_kind_recvs
            + counters.num_flags_recvs
            + counters.num_length_recvs
            + counters.num_crc_errors
            + counters.num_replay_recvs;
        counters.num_total_recvs - dropped
    }
}

/// Messages of all kinds and lengths in both directions.
pub(super) fn after_a_talk() -> Pair {
    let mut pair = Pair::new();
    for round in 0..20_u8 {
        pair.send(0, &[round; 8]);
        pair.send(1, &vec![round; 700 * usize::from(round)]);
        pair.settle();
    }
    assert_eq!(pair.delivered.len(), 40);
    pair.delivered.clear();
    pair
}

#[test]
fn nothing_of_the_payload_is_on_the_wire() {
    let mut pair = Pair::new();
    let secret: Vec<u8> = (0..16).map(|at| b"sixteen letters!"[at]).collect();
    for len in [1, 4, 90, 300] {
        pair.send(0, &secret.repeat(len));
        pair.settle();
        assert_eq!(pair.delivered.pop(), Some((1, secret.repeat(len))));
    }
    assert!(pair.wire.len() > 8);
    for (_, bytes) in &pair.wire {
        assert!(!bytes.windows(8).any(|window| secret.windows(8).any(|part| part == window)));
    }
}

#[test]
fn every_changed_bit_of_every_kind_of_packet_is_noticed() {
    let mut pair = Pair::new();
    pair.send(0, &[5; 40]);
    let fragment = pair.take(0).pop().expect("a fragment");
    pair.send(0, &[6; 3_000]);
    let chunk = pair.take(0).pop().expect("a chunk");
    let mut dropped = 0;
    for bytes in [fragment, chunk] {
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pair.give(1, &changed), Received::Nothing, "bit {bit}");
            dropped += 1;
        }
    }
    assert_eq!((pair.believed(1), pair.delivered.len()), (0, 0), "{dropped} were dropped");
    assert_eq!(pair.engines[1].counters().num_total_recvs, dropped);
    // Acknowledgements, which need no number of ours, and nothing of which is payload.
    let mut pair = after_a_talk();
    pair.send(0, &[5; 8]);
    let fragment = pair.take(0).pop().expect("a fragment");
    let _ = pair.give(1, &fragment);
    pair.now = pair.now.plus(1_000 * MICRO);
    let ack = pair.take(1).pop().expect("an acknowledgement");
    assert!(matches!(Packet::parse(&ack).expect("a packet").repr.body, Body::Ack(_)));
    let before = (pair.believed(0), pair.engines[0].peer(pair.ids[0]));
    for bit in 0..ack.len() * 8 {
        let mut changed = ack.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(pair.give(0, &changed), Received::Nothing, "bit {bit}");
    }
    assert_eq!((pair.believed(0), pair.engines[0].peer(pair.ids[0])), before);
    let _ = pair.give(0, &ack);
    assert_eq!(pair.believed(0), before.0 + 1);
}

#[test]
fn what_comes_twice_is_taken_once_whatever_it_is() {
    let mut pair = after_a_talk();
    let wire = pair.wire.clone();
    let before = [0, 1].map(|at| (pair.believed(at), pair.engines[at].peer(pair.ids[at])));
    for (to, bytes) in wire.iter().chain(wire.iter().rev()) {
        assert_eq!(pair.give(*to, bytes), Received::Nothing);
    }
    let after = [0, 1].map(|at| (pair.believed(at), pair.engines[at].peer(pair.ids[at])));
    assert_eq!((before, pair.delivered.len()), (after, 0));
    let replays: u64 = pair.engines.iter().map(|engine| engine.counters().num_replay_recvs).sum();
    assert_eq!(replays, 2 * wire.len() as u64);
    assert!((0..2).all(|at| pair.take(at).is_empty()), "nobody answers");
}

#[test]
fn what_is_reflected_to_its_sender_is_dropped() {
    let mut pair = after_a_talk();
    let before = [0, 1].map(|at| pair.believed(at));
    for (to, bytes) in pair.wire.clone() {
        assert_eq!(pair.give(1 - to, &bytes), Received::Nothing);
    }
    assert_eq!((before, pair.delivered.len()), ([0, 1].map(|at| pair.believed(at)), 0));
}

/// A packet is good for one connection between two lives of two processes.
#[test]
fn what_is_moved_elsewhere_is_dropped() {
    let mut pair = after_a_talk();
    let wire: Vec<Vec<u8>> =
        pair.wire.iter().filter(|(to, _)| *to == 1).map(|(_, bytes)| bytes.clone()).collect();
    // Its header says another sender, incarnation, connection or slot.
    for at in [40, 44, 45, 48, 56, 60] {
        for bytes in &wire {
            let mut moved = bytes.clone();
            moved[at] ^= 2;
            assert_eq!(pair.give(1, &moved), Received::Nothing, "byte {at}");
        }
    }
    let counters = pair.engines[1].counters();
    let dropped = counters.num_crc_errors + counters.num_replay_recvs;
    assert_eq!((dropped, pair.delivered.len()), (6 * wire.len() as u64, 0));
    // The receiver has begun another life, with another key.
    let identity = Identity { name: 1, incarnation: 2, key: [3; 16] };
    let mut reborn = Engine::<Block>::new(&config(1472), identity, 1 << 20, pair.now).expect("memory");
    reborn.connect(peer(0, 1472), pair.now).expect("connected");
    for bytes in &wire {
        assert_eq!(reborn.handle_datagram(bytes, None, pair.now), Received::Nothing);
    }
    assert_eq!(reborn.counters().num_crc_errors, wire.len() as u64);
    // The sender has connected anew: what is of the earlier connection is not taken for the later one.
    pair.engines[0].forget(pair.ids[0]);
    pair.engines[1].forget(pair.ids[1]);
    pair.ids = [0, 1].map(|at| pair.engines[at].connect(peer(1 - at, 1472), pair.now).expect("connected"));
    let stale = pair.engines[1].counters().num_stale_recvs;
    for bytes in &wire {
        assert_eq!(pair.give(1, bytes), Received::Nothing);
    }
    assert_eq!(pair.engines[1].counters().num_stale_recvs - stale, wire.len() as u64);
    pair.send(0, b"anew");
    pair.settle();
    assert_eq!(pair.delivered, [(1, b"anew".to_vec())]);
}

#[test]
fn a_stranger_is_told_of_only_if_it_has_the_key() {
    let now = Instant::from_nanos(5);
    let identity = Identity { name: 1, incarnation: 1, key: KEYS[1] };
    let mut engine = Engine::<Block>::new(&config(1472), identity, 1 << 20, now).expect("memory");
    let mut pair = Pair::new();
    pair.send(0, b"hello");
    let hello = pair.take(0).pop().expect("a packet");
    for bit in 0..hello.len() * 8 {
        let mut forged = hello.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(engine.handle_datagram(&forged, None, now), Received::Nothing);
    }
    let unknown = Received::Unknown { name: 0, incarnation: 1 };
    for _ in 0..3 {
        assert_eq!(engine.handle_datagram(&hello, None, now), unknown, "as often as it asks");
    }
    engine.connect(peer(0, 1472), now).expect("connected");
    assert_eq!(engine.handle_datagram(&hello, None, now), Received::Nothing);
    assert!(matches!(engine.poll_event(), Some(Event::Deliver { buffer, .. }) if &buffer[..] == b"hello"));
    assert_eq!(engine.handle_datagram(&hello, None, now), Received::Nothing);
    assert_eq!((engine.poll_event(), engine.counters().num_replay_recvs), (None, 1));
}

#[test]
fn each_transmission_of_the_same_data_has_its_own_number() {
    let mut pair = Pair::new();
    pair.send(0, &[9; 500]);
    let first = pair.take(0).pop().expect("a packet");
    let again = loop {
        pair.now = pair.now.plus(20_000 * MICRO);
        if let Some(again) = pair.take(0).pop() {
            break again;
        }
    };
    assert_ne!((&first[8..16], &first[64..]), (&again[8..16], &again[64..]));
    let _ = (pair.give(1, &again), pair.give(1, &first));
    assert_eq!(pair.delivered, [(1, vec![9; 500])]);
}

/// The simulator stops at a number that comes a second time: here over losses, resends, closings, new
/// connections between the same two, and new lives.
#[test]
fn numbers_never_repeat() {
    for seed in 1..=12 {
        let setup = Setup { seed, nodes: 3, path: hostile(seed), config: config(1472), ..Setup::default() };
        let load = Load { operations: 150, longest: 20_000, puts: 20, gets: 20, ..Load::default() };
        let (mut network, game) = play(setup, load);
        assert_eq!(game.failed, 0, "seed {seed}");
        rest(&mut network);
        for _ in 0..6 {
            let now = network.now();
            for node in 0..3 {
                for to in (0..3).filter(|to| *to != node) {
                    let endpoint = network.endpoint(node, to);
                    network.nodes[node].engine.forget(endpoint);
                }
            }
            for node in 0..3 {
                let endpoint = network.endpoint(node, (node + 1) % 3);
                let memory = Block::new(vec![1; 5_000]);
                let pieces = [Some(memory), None];
                let fragment = Fragment { tag: 1, pieces, cookie: 1, priority: false, awaited: true };
                network.send(node, endpoint, fragment).expect("sent");
            }
            let until = now.plus(3_000_000_000);
            while network.step(until) {}
            network.restart(seed as usize % 3);
        }
        let sent: u64 = network.nodes.iter().map(|node| node.engine.counters().num_resends).sum();
        assert!(network.numbers.connections() > 15 && sent > 0, "seed {seed}");
    }
}

#[test]
fn a_path_carries_what_protection_adds() {
    for max_datagram in [256, 1472, 8972, 65_507] {
        let setup = Setup { config: config::Usnic { max_datagram, ..config(1472) }, ..Setup::default() };
        let (network, game) = play(setup, Load { longest: 100_000, ..Load::default() });
        assert_eq!((game.failed, network.wires.fates.overrun), (0, 0), "{max_datagram}");
        let longest = network.numbers.longest;
        assert!(longest + 8 > max_datagram, "of {max_datagram} bytes only {longest} are used");
    }
}
