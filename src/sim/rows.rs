//! Rows of short messages whose sender computes afterwards: nobody sends for it what it has left behind.

use super::*;
use crate::engine::Fragment;

const MILLI: u64 = 1_000_000;
/// As many as a program may send in a row.
const ROW: usize = 1_000;

fn network(nodes: usize, path: Path) -> Network {
    Network::new(Setup { nodes, path, ..Setup::default() })
}

fn run(network: &mut Network, nanos: u64) {
    let until = network.now().plus(nanos);
    while network.step(until) {}
}

fn send(network: &mut Network, from: usize, to: usize, len: usize) {
    let endpoint = network.endpoint(from, to);
    let bytes = Some(Block::new(vec![7; len]));
    let fragment = Fragment { tag: 1, pieces: [bytes, None], cookie: 0, priority: false, awaited: false };
    network.send(from, endpoint, fragment).expect("sent");
}

/// How many messages of a row of such a length arrive at node 1 while node 0, which sends them, computes. The others
/// send to node 1 too.
fn arrive(network: &mut Network, len: usize) -> usize {
    for from in (2..network.nodes.len()).chain([0]) {
        for _ in 0..20 {
            send(network, from, 1, 8);
            run(network, MILLI / 10);
        }
    }
    for silence in [5 * MILLI, 20 * MILLI, 2_000 * MILLI] {
        run(network, silence);
        network.happened.clear();
        (0..ROW).for_each(|_| send(network, 0, 1, len));
        network.nodes[0].stopped = true;
        run(network, 50 * MILLI);
        let delivered = |it: &&Happened| matches!(it, Happened::Delivered { node: 1, from: 0, .. });
        let arrived = network.happened.iter().filter(delivered).count();
        network.wake(0);
        run(network, 1_000 * MILLI);
        let all = network.happened.iter().filter(delivered).count();
        assert_eq!(all, ROW, "when it comes back the rest follows");
        if arrived < ROW {
            return arrived;
        }
    }
    ROW
}

#[test]
fn a_row_of_short_messages_arrives_though_its_sender_computes() {
    assert_eq!(arrive(&mut network(2, Path::default()), 24), ROW);
    assert_eq!(arrive(&mut network(2, Path { delay: 2 * MILLI, ..Path::default() }), 24), ROW, "a long path");
    let slow = Path { rate: 125_000_000, queue: 150_000, ..Path::default() };
    assert_eq!(arrive(&mut network(2, slow), 24), ROW, "a slow one");
    assert_eq!(arrive(&mut network(40, Path::default()), 24), ROW, "one of many that send there");
}

#[test]
fn a_row_ends_where_it_would_take_too_much_of_what_is_not_known() {
    let arrived = arrive(&mut network(2, Path::default()), 600);
    assert!((150..250).contains(&arrived), "{arrived} of 128 KiB");
}

#[test]
fn where_packets_are_lost_window_and_credit_bound_a_row() {
    let mut network = network(2, Path { loss: 100_000, delay: 100_000, ..Path::default() });
    let endpoint = network.endpoint(0, 1);
    for _ in 0..20 {
        send(&mut network, 0, 1, 100_000);
        run(&mut network, 50 * MILLI);
    }
    (0..ROW).for_each(|_| send(&mut network, 0, 1, 24));
    let facts = network.nodes[0].engine.peer(endpoint).expect("known");
    let most = facts.congestion_window * 1472 / (24 + SHORT_HEADER_LEN);
    assert!(facts.in_flight <= most + 1, "{facts:?}");
    assert!(facts.in_flight >= 8, "{facts:?}");
    run(&mut network, 5_000 * MILLI);
    let delivered = network.happened.iter().filter(|it| matches!(it, Happened::Delivered { .. })).count();
    assert_eq!(delivered, ROW + 20);
}
