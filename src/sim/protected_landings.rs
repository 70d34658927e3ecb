//! Protected data that lands where it is guessed to belong: it is decrypted there, each packet by itself, and what is not
//! genuine costs that packet.

use super::protected::Pair;
use super::protected_runs::{contents, give_joined, memory, payload};
use super::turn::land;
use super::*;
use crate::wire::protection::TAG_LEN;

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
