//! What must not be done more often than it is needed, counted.

use super::stories::{Pair, Sent};
use super::*;
use crate::engine::{Access, Fragment};
use crate::wire::run::tests::COMPARED;
use crate::wire::usnic::Kind;

const MICRO: u64 = 1_000;

fn run(network: &mut Network, nanos: u64) {
    let until = network.now().plus(nanos);
    while network.step(until) {}
}

/// Sends a short fragment whose end nobody awaits.
fn send_tiny(network: &mut Network, from: usize, to: usize) {
    let endpoint = network.endpoint(from, to);
    let bytes = Some(Block::new(vec![7; 40]));
    let fragment = Fragment { tag: 1, pieces: [bytes, None], cookie: 0, priority: false, awaited: false };
    network.send(from, endpoint, fragment).expect("sent");
}

/// How many of a thousand tiny messages to each of the others leave at once, where those have sent something
/// long ago or never.
fn sent_at_once(nodes: usize, have_sent: bool, pause: u64) -> u64 {
    let config = config::Usnic { max_datagram: 1472, ..config::Usnic::default() };
    let mut network = Network::new(Setup { nodes, config, ..Setup::default() });
    for to in (1..nodes).flat_map(|to| [to; 50]) {
        send_tiny(&mut network, 0, to);
        run(&mut network, 50 * MICRO);
        if have_sent {
            send_tiny(&mut network, to, 0);
            run(&mut network, 50 * MICRO);
        }
    }
    run(&mut network, pause);
    let before = network.nodes[0].engine.counters().num_fast_sends;
    for _ in 0..1000 {
        (1..nodes).for_each(|to| send_tiny(&mut network, 0, to));
        run(&mut network, 50 * MICRO);
    }
    network.nodes[0].engine.counters().num_fast_sends - before
}

#[test]
fn who_sends_one_way_sends_at_once() {
    assert_eq!(sent_at_once(2, false, 0), 1_000, "the peer only acknowledges");
    assert_eq!(sent_at_once(2, true, 100_000 * MICRO), 1_000, "it has sent something long ago");
    assert_eq!(sent_at_once(3, false, 0), 2_000);
    // A grant that changes is settled by the packets that tell it.
    let talkative = [0, 100_000 * MICRO].map(|pause| sent_at_once(3, true, pause));
    assert!(talkative.iter().all(|sent| *sent > 1_900), "{talkative:?}");
}

/// Hands datagrams to node 1 as a module does that gets them joined.
fn hand_in_joined(pair: &mut Pair, sent: &[Sent]) {
    let size = sent[0].bytes().len();
    let joined: Vec<u8> = sent.iter().flat_map(|sent| sent.bytes().to_vec()).collect();
    let mut rest = &joined[..];
    while !rest.is_empty() {
        let taken = pair.engines[1].handle_run(rest, size, None, pair.now);
        if taken == 0 {
            let _ = pair.engines[1].handle_datagram(&rest[..size.min(rest.len())], None, pair.now);
        }
        rest = &rest[(taken.max(1) * size).min(rest.len())..];
    }
}

/// Headers that are compared while the datagrams of a fragment are handed in, the first missing or none.
fn compared(missing: usize) -> (u64, usize) {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 60_000, 1);
    let sent: Vec<_> = pair.take(0).into_iter().filter(|sent| sent.kind() == Kind::Chunk).collect();
    let before = COMPARED.get();
    hand_in_joined(&mut pair, &sent[missing..]);
    (COMPARED.get() - before, sent.len())
}

#[test]
fn joined_datagrams_are_not_compared_while_one_before_them_is_missing() {
    let (all, count) = compared(0);
    assert_eq!((all, count > 30), (count as u64 - 1, true), "each is compared with the one before");
    assert_eq!(compared(1), (0, count));
}

#[test]
fn a_packet_that_is_refused_is_counted_once() {
    let mut pair = Pair::new();
    pair.warm();
    let gone = pair.engines[1].register(Block::new(vec![0; 20_000]), Access::BOTH);
    pair.engines[1].deregister(gone);
    let (to, now) = (pair.ids[0], pair.now);
    pair.engines[0].put(to, Block::new(vec![1; 20_000]), gone, 0, 1, now).expect("sent");
    let sent = pair.take(0);
    hand_in_joined(&mut pair, &sent);
    assert_eq!(pair.engines[1].counters().num_refused_recvs, sent.len() as u64);
}
