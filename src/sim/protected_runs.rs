//! Runs of protected packets: each keeps its own number and tag, and is taken or dropped by itself.

use super::protected::{Pair, after_a_talk};
use super::tests::{hostile, play, rest};
use super::traffic::Load;
use super::*;
use crate::engine::{Access, Counters, Memory, Registration};
use crate::wire::protection::{PHASE_BITS, phase};
use crate::wire::run::tests::COMPARED;
use crate::wire::usnic::{Kind, Packet};

/// Bytes of what is sent: the last packet is shorter than the others.
const LEN: usize = 20_001;
/// Bytes of a datagram that is as long as it can be.
const SIZE: usize = 1472;

pub(super) fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.number() as u8).collect()
}

fn kind(bytes: &[u8]) -> Kind {
    Packet::parse(bytes).expect("a packet").repr.body.kind()
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"))
}

/// What is to be moved from node 0 to node 1, and where it is in the end.
enum Moved {
    Fragment,
    Memory(Block),
}

/// Begins it, and gives the packets that it is.
type Begin = fn(&mut Pair, &[u8]) -> (Moved, Vec<Vec<u8>>);

const KINDS: [(Kind, Begin); 3] = [(Kind::Chunk, send), (Kind::Put, put), (Kind::GetData, get)];

fn send(pair: &mut Pair, bytes: &[u8]) -> (Moved, Vec<Vec<u8>>) {
    pair.send(0, bytes);
    (Moved::Fragment, pair.take(0))
}

pub(super) fn memory(pair: &mut Pair, node: usize, bytes: Vec<u8>) -> (Block, Registration) {
    let block = Block::new(bytes);
    let registration = pair.engines[node].register(block.clone(), Access::BOTH);
    (block, registration)
}

fn put(pair: &mut Pair, bytes: &[u8]) -> (Moved, Vec<Vec<u8>>) {
    let (block, remote) = memory(pair, 1, vec![0; LEN]);
    let (id, now) = (pair.ids[0], pair.now);
    pair.engines[0].put(id, Block::new(bytes.to_vec()), remote, 0, 2, now).expect("asked");
    (Moved::Memory(block), pair.take(0))
}

fn get(pair: &mut Pair, bytes: &[u8]) -> (Moved, Vec<Vec<u8>>) {
    let (_, remote) = memory(pair, 0, bytes.to_vec());
    let (id, now, block) = (pair.ids[1], pair.now, Block::new(vec![0; LEN]));
    pair.engines[1].get(id, block.clone(), remote, 0, 3, now).expect("asked");
    for request in pair.take(1) {
        let _ = pair.give(0, &request);
    }
    (Moved::Memory(block), pair.take(0))
}

impl Moved {
    /// Whether the bytes are there, all of them and once.
    fn is_whole(&self, pair: &Pair, bytes: &[u8]) -> bool {
        match self {
            Self::Fragment => pair.delivered == [(1, bytes.to_vec())],
            Self::Memory(block) => block.to_vec() == bytes,
        }
    }
}

/// Hands datagrams that came joined to an engine, as a module does; how many each call was done with.
pub(super) fn give_joined(pair: &mut Pair, to: usize, sent: &[Vec<u8>]) -> Vec<usize> {
    let (mut joined, size) = (sent.concat(), sent[0].len());
    let (mut rest, mut calls) = (&mut joined[..], Vec::new());
    while !rest.is_empty() {
        let (engine, now) = (&mut pair.engines[to], pair.now);
        let done = if rest.len() > size { engine.handle_protected_run(rest, size, None, now) } else { 0 };
        if done == 0 {
            let _ = pair.give(to, &rest[..size.min(rest.len())]);
        }
        calls.push(done);
        let len = (done.max(1) * size).min(rest.len());
        rest = &mut rest[len..];
    }
    pair.hear(to);
    calls
}

/// Two that know each other and have room for a run.
fn warm() -> Pair {
    let mut pair = after_a_talk();
    for _ in 0..4 {
        pair.send(0, &vec![1; LEN]);
        pair.send(1, &vec![1; LEN]);
        pair.settle();
    }
    pair.delivered.clear();
    pair
}

#[test]
fn a_run_is_sealed_and_opened_together_and_its_last_packet_may_be_shorter() {
    for (expected, begin) in KINDS {
        let mut pair = warm();
        let bytes = contents(1, LEN);
        let (moved, sent) = begin(&mut pair, &bytes);
        assert!(sent.len() > 10 && sent.iter().all(|packet| kind(packet) == expected));
        assert!(sent.windows(2).all(|two| number(&two[0]) + 1 == number(&two[1])), "numbered together");
        let (last, others) = sent.split_last().expect("some");
        assert!(last.len() < SIZE && others.iter().all(|packet| packet.len() > SIZE - 8));
        let before = pair.engines[1].counters();
        assert_eq!(give_joined(&mut pair, 1, &sent), [sent.len()], "{expected:?}");
        assert!(moved.is_whole(&pair, &bytes), "{expected:?}");
        // Who waits for its end has asked, with the last packet, and is answered at once.
        let answer = pair.take_now(1);
        assert_eq!(answer.len(), usize::from(expected != Kind::GetData), "{expected:?}");
        answer.iter().for_each(|bytes| _ = pair.give(0, bytes));
        let after = pair.engines[1].counters();
        assert_eq!(after.num_total_recvs - before.num_total_recvs, sent.len() as u64);
        pair.settle();
        let facts = pair.engines[0].peer(pair.ids[0]).expect("known");
        assert_eq!((facts.unacknowledged, facts.in_flight), (0, 0));
        assert_eq!(pair.engines[0].counters().num_resends, 0);
    }
}

/// Wherever the number, payload or tag of one is changed, those before it are taken, it is counted once, and those behind it are taken
/// too; nothing of it is seen.
#[test]
fn one_forged_packet_in_a_run_costs_that_packet() {
    for (expected, begin) in KINDS {
        for (at, place) in (0..15).zip([8, 12, 101, 1000, SIZE - 17, SIZE - 9].into_iter().cycle()) {
            let mut pair = warm();
            let bytes = contents(2, LEN);
            let (moved, sent) = begin(&mut pair, &bytes);
            let (count, mut forged) = (sent.len(), sent.clone());
            let place = place.min(sent[at].len() - 1);
            forged[at][place] ^= 4;
            let before = pair.engines[1].counters();
            let calls = give_joined(&mut pair, 1, &forged);
            assert!(calls[0] > at || at + 1 == count, "{expected:?}, {at}: {calls:?}");
            let after = pair.engines[1].counters();
            // A changed number may be one that has come before.
            let dropped = |counters: &Counters| counters.num_crc_errors + counters.num_replay_recvs;
            assert_eq!(dropped(&after) - dropped(&before), 1, "{expected:?}, {at}, byte {place}");
            assert_eq!(after.num_total_recvs - before.num_total_recvs, count as u64);
            assert_eq!(pair.delivered, []);
            if let Moved::Memory(block) = &moved {
                let (each, seen) = (payload(&sent[0]), block.to_vec());
                let missing = at * each..(at * each + payload(&sent[at]));
                assert_eq!(seen[..missing.start], bytes[..missing.start], "those before it");
                assert_eq!(seen[missing.clone()], vec![0; missing.len()], "nothing of it");
                assert_eq!(seen[missing.end..], bytes[missing.end..], "those behind it");
            }
            let _ = pair.give(1, &sent[at]);
            assert!(moved.is_whole(&pair, &bytes), "{expected:?}, {at}: it alone was missing");
        }
    }
}

/// Bytes that a packet carries.
pub(super) fn payload(packet: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([packet[4], packet[5]]))
}

/// Every byte of every header, one bit at a time: nothing is believed that its sender has not said.
#[test]
fn no_byte_of_a_run_can_be_changed() {
    for (expected, begin) in KINDS {
        let mut pair = warm();
        let bytes = contents(3, LEN);
        let (moved, sent) = begin(&mut pair, &bytes);
        let header = sent[0].len() - payload(&sent[0]) - 16;
        let taken = |pair: &Pair| {
            let counters = pair.engines[1].counters();
            (counters.num_chunk_recvs, counters.num_put_recvs, counters.num_get_data_recvs)
        };
        let before = taken(&pair);
        for at in 0..header {
            // All are changed: not one of them may be taken.
            let mut forged = sent[..3].to_vec();
            forged.iter_mut().for_each(|packet| packet[at] ^= 0x10);
            give_joined(&mut pair, 1, &forged);
            assert_eq!(taken(&pair), before, "{expected:?}, byte {at}");
        }
        assert!(!moved.is_whole(&pair, &bytes));
        assert_eq!(give_joined(&mut pair, 1, &sent), [sent.len()], "the genuine ones are as new as before");
        assert!(moved.is_whole(&pair, &bytes));
    }
}

#[test]
fn the_packets_behind_one_that_is_not_genuine_are_not_looked_at() {
    let mut pair = warm();
    let (_, sent) = send(&mut pair, &contents(4, LEN));
    let mut forged = sent.clone();
    forged.iter_mut().for_each(|packet| packet[SIZE / 2] ^= 1);
    let before = COMPARED.get();
    let calls = give_joined(&mut pair, 1, &forged[..sent.len() - 1]);
    assert_eq!((COMPARED.get() - before, calls.iter().max()), (0, Some(&1)));
    give_joined(&mut pair, 1, &sent);
    assert_eq!(COMPARED.get() - before, sent.len() as u64 - 1);
}

#[test]
fn a_run_that_comes_twice_is_taken_once() {
    for (expected, begin) in KINDS {
        let mut pair = warm();
        let bytes = contents(5, LEN);
        let (moved, sent) = begin(&mut pair, &bytes);
        give_joined(&mut pair, 1, &sent);
        assert!(moved.is_whole(&pair, &bytes));
        let (before, believed) = (pair.engines[1].counters(), pair.believed(1));
        if let Moved::Memory(block) = &moved {
            block.write(0, &[0; LEN]);
        }
        give_joined(&mut pair, 1, &sent);
        let replays = pair.engines[1].counters().num_replay_recvs - before.num_replay_recvs;
        assert_eq!((replays, pair.believed(1)), (sent.len() as u64, believed), "{expected:?}");
        if let Moved::Memory(block) = &moved {
            assert_eq!(block.to_vec(), vec![0; LEN], "a replay writes nothing");
        }
    }
}

/// A replay that comes before the run has been taken as a whole: the part that came alone is not taken again.
#[test]
fn a_packet_that_came_before_its_run_is_taken_once() {
    let mut pair = warm();
    let bytes = contents(6, LEN);
    let (moved, sent) = send(&mut pair, &bytes);
    let _ = pair.give(1, &sent[0]);
    let _ = pair.give(1, &sent[5]);
    give_joined(&mut pair, 1, &sent);
    let counters = pair.engines[1].counters();
    assert_eq!((counters.num_replay_recvs, counters.num_dup_recvs), (2, 0));
    assert!(moved.is_whole(&pair, &bytes));
}

#[test]
fn a_run_whose_place_is_gone_is_refused_packet_by_packet() {
    let mut pair = warm();
    let (block, remote) = memory(&mut pair, 1, vec![0; LEN]);
    pair.engines[1].deregister(remote);
    let (id, now) = (pair.ids[0], pair.now);
    pair.engines[0].put(id, Block::new(contents(7, LEN)), remote, 0, 2, now).expect("asked");
    let sent = pair.take(0);
    let before = pair.engines[1].counters();
    give_joined(&mut pair, 1, &sent);
    let after = pair.engines[1].counters();
    assert_eq!(after.num_refused_recvs - before.num_refused_recvs, sent.len() as u64, "once each");
    assert_eq!(after.num_total_recvs - before.num_total_recvs, sent.len() as u64);
    assert_eq!((after.num_replay_recvs, block.to_vec()), (before.num_replay_recvs, vec![0; LEN]));
}

/// The numbers of a run are all of one phase: what is left of the one before stays unused. Runs of two phases
/// that come joined are opened with the keys of each.
#[test]
fn a_run_never_spans_two_keys_but_what_comes_joined_may() {
    for (expected, begin) in KINDS {
        let mut pair = warm();
        pair.engines[0].leave_numbers(pair.ids[0], 3);
        let bytes = contents(8, LEN);
        let (moved, sent) = begin(&mut pair, &bytes);
        let first = number(&sent[0]);
        assert_eq!(first % (1 << PHASE_BITS), 0, "{expected:?}: the next phase");
        assert!(sent.iter().all(|packet| phase(number(packet)) == phase(first)));
        assert_eq!(give_joined(&mut pair, 1, &sent), [sent.len()]);
        assert!(moved.is_whole(&pair, &bytes), "{expected:?}");
    }
    let mut pair = warm();
    pair.engines[0].leave_numbers(pair.ids[0], 3);
    let bytes = contents(9, LEN);
    pair.send(0, &bytes);
    pair.run_room = 3 * SIZE;
    let sent = pair.take(0);
    let phases: Vec<u64> = sent.iter().map(|packet| phase(number(packet))).collect();
    assert!(phases[0] == phases[2] && phases[2] + 1 == phases[3] && sent.len() > 6, "{phases:?}");
    assert_eq!(give_joined(&mut pair, 1, &sent), [sent.len()], "one run of both phases");
    assert_eq!(pair.delivered, [(1, bytes)]);
}

/// Over networks that lose, double, change and reorder, what is taken in runs and what is not is the same. The
/// simulator watches the numbers.
#[test]
fn runs_do_not_mind_what_happens_to_some_of_their_packets() {
    let (mut runs, mut landed) = (0, 0);
    for seed in 1..=40 {
        let mut random = Random::new(seed ^ 0x5EA1);
        let max_datagram = [1472, 8972][random.below(2) as usize];
        let config = config::Usnic {
            max_datagram,
            protect_payload: true,
            window: [64, 4096][random.below(2) as usize],
            reassembly_per_peer: 1 << 19,
            reassembly_total: 1 << 20,
            ..config::Usnic::default()
        };
        let path = if seed % 4 == 0 { Path { loss: 10_000, ..Path::default() } } else { hostile(seed) };
        let setup = Setup { seed, nodes: 2 + random.below(3) as usize, path, config, ..Setup::default() };
        let load = Load {
            operations: 80,
            depth: 1 + random.below(10) as u32,
            shortest: 5_000,
            longest: 100_000,
            puts: random.below(2) * 30,
            gets: random.below(2) * 30,
            ..Load::default()
        };
        let operations = setup.nodes as u64 * 80;
        let before = COMPARED.get();
        let (mut network, game) = play(setup, load);
        runs += COMPARED.get() - before;
        assert_eq!((game.failed, game.completed), (0, operations), "seed {seed}");
        rest(&mut network);
        for node in &network.nodes {
            assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}: something leaks");
            landed += node.engine.counters().num_landed_recvs;
        }
    }
    assert!(runs > 10_000, "only {runs} packets came in runs");
    assert!(landed > 20, "only {landed} landed where they belong");
}
