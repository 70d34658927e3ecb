//! Protected data that lands where it is guessed to belong: it is decrypted there, each packet by itself, and what is not
//! genuine costs that packet.

use super::protected::{Pair, sealed};
use super::protected_runs::{contents, give_joined, memory, number, payload};
use super::turn::land;
use super::*;
use crate::engine::Fragment;
use crate::wire::protection::TAG_LEN;
use crate::wire::usnic::{Body, Packet, Repr};

/// Bytes of a datagram.
const WIDE: usize = 8972;
/// Bytes of a GET: the last packet is shorter than the others.
const LEN: usize = 60_001;

/// Two that know each other, one of which knows how the other's data comes.
fn warm() -> Pair {
    let mut pair = Pair::over(WIDE);
    for _ in 0..4 {
        pair.send(0, &vec![1; LEN]);
        pair.send(1, &vec![1; LEN]);
        pair.settle();
    }
    let (block, sent) = get(&mut pair, &contents(9, LEN));
    // In two parts: how data comes is learnt while there is more to come.
    let (first, rest) = sent.split_at(sent.len() / 2);
    give_joined(&mut pair, 1, first);
    give_joined(&mut pair, 1, rest);
    pair.settle();
    assert!(block.to_vec() == contents(9, LEN));
    pair.delivered.clear();
    pair
}

/// Node 1 asks for memory of node 0: where it is to be, and the packets that bring it.
fn get(pair: &mut Pair, bytes: &[u8]) -> (Block, Vec<Vec<u8>>) {
    let (_, remote) = memory(pair, 0, bytes.to_vec());
    let (id, now, block) = (pair.ids[1], pair.now, Block::new(vec![0; bytes.len()]));
    pair.engines[1].get(id, block.clone(), remote, 0, 3, now).expect("asked");
    for request in pair.take(1) {
        let _ = pair.give(0, &request);
    }
    (block, pair.take(0))
}

/// Lets packets that came joined land at node 1; how many it is done with.
fn land_joined(pair: &mut Pair, sent: &[Vec<u8>]) -> Option<usize> {
    let (joined, size, now) = (sent.concat(), sent[0].len(), pair.now);
    land(&mut pair.engines[1], &joined, size, None, now)
}

#[test]
fn a_run_is_opened_where_it_has_landed_to_its_last_and_shorter_packet() {
    let mut pair = warm();
    let bytes = contents(1, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    let header = sent[0].len() - payload(&sent[0]) - TAG_LEN;
    assert!(sent.len() > 5 && sent[0].len() > WIDE - 8 && sent[sent.len() - 1].len() < sent[0].len());
    assert!(payload(&sent[0]) + header + TAG_LEN == sent[0].len());
    let before = pair.engines[1].counters();
    assert_eq!(land_joined(&mut pair, &sent), Some(sent.len()));
    assert!(block.to_vec() == bytes);
    let after = pair.engines[1].counters();
    assert_eq!(after.num_landed_recvs - before.num_landed_recvs, sent.len() as u64);
    assert_eq!(after.num_total_recvs - before.num_total_recvs, sent.len() as u64);
    pair.settle();
    let facts = pair.engines[0].peer(pair.ids[0]).expect("known");
    assert_eq!((facts.unacknowledged, facts.in_flight), (0, 0));
}

/// They come one by one, each to the end of what has come before.
#[test]
fn packets_land_alone_too() {
    let mut pair = warm();
    let bytes = contents(2, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    for packet in &sent {
        assert_eq!(land_joined(&mut pair, std::slice::from_ref(packet)), Some(1));
    }
    assert!(block.to_vec() == bytes);
}

/// Wherever one is changed, those before it are taken where they are, it is counted once and done with, and those behind it are
/// as they were sent. It alone has to come again, and what it has left in its place is written over.
#[test]
fn one_forged_packet_costs_that_packet_and_leaves_nothing() {
    for (at, place) in (0..6).zip([8, 101, 1000, WIDE - 17, WIDE - 9, 8]) {
        let mut pair = warm();
        let bytes = contents(3, LEN);
        let (block, sent) = get(&mut pair, &bytes);
        let mut forged = sent.clone();
        forged[at][place] ^= 4;
        let before = pair.engines[1].counters();
        assert_eq!(land_joined(&mut pair, &forged), Some(at + 1), "{at}");
        let after = pair.engines[1].counters();
        let landed = after.num_landed_recvs - before.num_landed_recvs;
        let dropped = after.num_crc_errors + after.num_replay_recvs;
        let dropped_before = before.num_crc_errors + before.num_replay_recvs;
        assert_eq!((landed, dropped - dropped_before), (at as u64, 1), "{at}, byte {place}");
        let each = payload(&sent[0]);
        assert!(block.to_vec()[..at * each] == bytes[..at * each], "those before it");
        if at + 1 < sent.len() {
            give_joined(&mut pair, 1, &sent[at + 1..]);
        }
        let _ = pair.give(1, &sent[at]);
        assert!(block.to_vec() == bytes, "{at}: it alone was missing");
    }
}

/// What comes twice finds another place next in turn; where it does not, because nothing else of it was taken, it is known by its
/// number.
#[test]
fn what_comes_again_writes_over_nothing_that_has_come() {
    let mut pair = warm();
    let bytes = contents(4, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    assert_eq!(land_joined(&mut pair, &sent[..3]), Some(3));
    let believed = pair.believed(1);
    assert_eq!(land_joined(&mut pair, &sent[..3]), Some(0), "another place is next");
    let each = payload(&sent[0]);
    assert!(block.to_vec()[..3 * each] == bytes[..3 * each]);
    give_joined(&mut pair, 1, &sent[..3]);
    assert_eq!(pair.believed(1), believed);
    give_joined(&mut pair, 1, &sent[3..]);
    assert!(block.to_vec() == bytes);
}

/// A packet that ends before its place does, though its header says that it is the one: its tag would be in the memory.
#[test]
fn a_packet_that_is_shorter_than_its_place_is_not_taken_there() {
    let mut pair = warm();
    let bytes = contents(5, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    let mut cut = sent[0].clone();
    cut.truncate(cut.len() - 100);
    let length = (payload(&sent[0]) - 100) as u16;
    cut[4..6].copy_from_slice(&length.to_le_bytes());
    let before = pair.engines[1].counters();
    assert_eq!(land_joined(&mut pair, std::slice::from_ref(&cut)), Some(0));
    let after = pair.engines[1].counters();
    assert_eq!(after.num_total_recvs, before.num_total_recvs, "it is handed in again");
    give_joined(&mut pair, 1, &sent);
    assert!(block.to_vec() == bytes);
}

/// The last of a run is short, and the memory goes on behind it, as only an odd peer sends.
#[test]
fn a_shorter_packet_that_ends_a_run_and_not_the_memory_is_handed_in_anew() {
    let mut pair = warm();
    let bytes = contents(8, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    let (each, repr) = (payload(&sent[0]), Packet::parse(&sent[1]).expect("a packet").repr);
    let short = sealed(&[2; 16], number(&sent[1]) + 1_000, &repr, &bytes[each..2 * each - 100]);
    let before = pair.engines[1].counters();
    assert_eq!(land_joined(&mut pair, &[sent[0].clone(), short.clone()]), Some(1));
    let _ = pair.give(1, &short);
    let after = pair.engines[1].counters();
    let dropped =
        (after.num_crc_errors - before.num_crc_errors, after.num_replay_recvs - before.num_replay_recvs);
    assert_eq!(dropped, (0, 0));
    assert!(block.to_vec()[..2 * each - 100] == bytes[..2 * each - 100]);
}

#[test]
fn nothing_is_guessed_while_something_before_is_missing() {
    let mut pair = warm();
    let bytes = contents(6, LEN);
    pair.send(0, b"late");
    let late = pair.take(0);
    let (block, sent) = get(&mut pair, &bytes);
    assert_eq!(land_joined(&mut pair, &sent[..3]), Some(0), "the hole is not known yet");
    give_joined(&mut pair, 1, &sent[..3]);
    assert!(pair.engines[1].landing().is_none(), "now it is");
    late.iter().for_each(|packet| _ = pair.give(1, packet));
    assert!(pair.engines[1].landing().is_some());
    assert_eq!(land_joined(&mut pair, &sent[3..]), Some(sent.len() - 3));
    assert!(block.to_vec() == bytes);
}

/// What an engine sends now.
fn sent_by(engine: &mut Engine<Block>, now: Instant) -> Vec<Vec<u8>> {
    engine.handle_timeout(now);
    let mut sent = Vec::new();
    while let Some(transmit) = engine.poll_transmit(now) {
        for seal in engine.protect(&transmit).expect("a number") {
            let mut bytes = Vec::new();
            seal.write(&mut bytes);
            sent.push(bytes);
        }
    }
    sent
}

/// A genuine peer that sends what another one was asked for, to just where that is wanted.
#[test]
fn what_another_peer_sends_in_its_place_is_nobodys_and_written_over() {
    let mut pair = warm();
    // Of node 1, and of the liar.
    let keys = [[2; 16], [3; 16]];
    let config = config::Usnic { max_datagram: WIDE, protect_payload: true, ..config::Usnic::default() };
    let identity = Identity { name: 2, incarnation: 1, key: keys[1] };
    let mut liar = Engine::<Block>::new(&config, identity, 1 << 20, pair.now).expect("memory");
    let peer = |name, key| Peer { name, incarnation: 1, key, max_datagram: WIDE };
    let to_victim = liar.connect(peer(1, keys[0]), pair.now).expect("connected");
    let to_liar = pair.engines[1].connect(peer(2, keys[1]), pair.now).expect("connected");
    let hello = || {
        let pieces = [Some(Block::new(vec![1; 8])), None];
        Fragment { tag: 1, pieces, cookie: 1, priority: false, awaited: true }
    };
    let mut last = Vec::new();
    for _ in 0..3 {
        liar.send(to_victim, hello(), pair.now).expect("sent");
        pair.now = pair.now.plus(100_000);
        for packet in sent_by(&mut liar, pair.now) {
            let _ = pair.give(1, &packet);
            if matches!(Packet::parse(&packet).expect("a packet").repr.body, Body::Fragment) {
                last = packet;
            }
        }
        let now = pair.now;
        pair.engines[1].send(to_liar, hello(), now).expect("sent");
        for packet in pair.take(1) {
            let _ = liar.handle_datagram(&packet, None, pair.now);
        }
        while liar.poll_event().is_some() {}
    }
    let bytes = contents(7, LEN);
    let (block, sent) = get(&mut pair, &bytes);
    let wanted = Packet::parse(&sent[0]).expect("a packet").repr;
    let own = Packet::parse(&last).expect("a packet").repr;
    assert_ne!(own.receiver_slot, 0, "they know each other");
    let lie = Repr { body: wanted.body, seq: own.seq + 1, ..own };
    let lie = sealed(&keys[0], number(&last) + 1_000, &lie, &vec![0x66; payload(&sent[0])]);
    let before = pair.engines[1].counters();
    assert_eq!(land_joined(&mut pair, &[lie]), Some(1));
    // One by one: nothing but the end of the last landing says that they have not landed.
    sent.iter().for_each(|packet| _ = pair.give(1, packet));
    let after = pair.engines[1].counters();
    assert_eq!(after.num_stray_data_recvs - before.num_stray_data_recvs, 1);
    assert_eq!(after.num_landed_recvs, before.num_landed_recvs);
    assert!(block.to_vec() == bytes);
}
