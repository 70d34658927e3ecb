//! Connections that only one side still knows: the other learns it, soon, and only from who may say so.

use super::endings::{SECOND, block, lossy, run, send, story};
use super::*;
use crate::engine::Fragment;
use crate::error::Error;
use crate::wire::usnic::{Kind, Packet};

pub(super) const MILLI: u64 = SECOND / 1000;

fn pair(path: Path, protect_payload: bool) -> Network {
    let config = config::Usnic { max_datagram: 1472, protect_payload, ..config::Usnic::default() };
    Network::new(Setup { path, config, ..Setup::default() })
}

/// Both have heard each other.
pub(super) fn acquainted(path: Path, protect: bool) -> Network {
    let mut network = pair(path, protect);
    for from in [0, 1, 0] {
        send(&mut network, from, 1 - from, 10, 9).expect("sent");
        run(&mut network, SECOND);
    }
    assert_eq!(story(&mut network).len(), 6);
    network
}

pub(super) fn forget(network: &mut Network, node: usize) {
    let endpoint = network.endpoint(node, 1 - node);
    network.nodes[node].engine.forget(endpoint);
    network.nudge(node);
}

#[test]
fn who_was_forgotten_learns_it_within_a_few_round_trips() {
    for (len, protect) in [(10, false), (1_400, false), (100_000, false), (10, true), (100_000, true)] {
        let mut network = acquainted(lossy(0), protect);
        forget(&mut network, 0);
        send(&mut network, 1, 0, len, 1).expect("sent");
        run(&mut network, 50 * MILLI);
        assert_eq!(story(&mut network), ["1 done 1 Err(Unreachable)", "1 lost"], "{len} bytes, {protect}");
        assert_eq!(send(&mut network, 1, 0, 5, 2), Err(Error::Unreachable));
    }
}

#[test]
fn who_was_forgotten_learns_it_though_much_is_lost() {
    for seed in 0..50 {
        let mut network = acquainted(lossy(0), seed % 2 == 0);
        network.wires.random = Random::new(seed);
        network.wires.set_path(0, 1, lossy(400_000));
        network.wires.set_path(1, 0, lossy(400_000));
        forget(&mut network, 0);
        send(&mut network, 1, 0, 20_000, 1).expect("sent");
        run(&mut network, 60 * SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Err(Unreachable)", "1 lost"], "seed {seed}");
    }
}

#[test]
fn who_was_given_up_learns_it() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        let (endpoint, now) = (network.endpoint(0, 1), network.now());
        network.nodes[0].engine.give_up(endpoint, now);
        send(&mut network, 1, 0, 10, 1).expect("sent");
        run(&mut network, 50 * MILLI);
        let mut seen = story(&mut network);
        seen.sort();
        assert_eq!(seen, ["0 lost", "1 done 1 Err(Unreachable)", "1 lost"]);
    }
}

#[test]
fn who_holds_half_a_message_of_somebody_who_has_forgotten_it_learns_it() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        send(&mut network, 0, 1, 500_000, 1).expect("sent");
        run(&mut network, 200_000);
        forget(&mut network, 0);
        run(&mut network, 5 * SECOND);
        assert_eq!(story(&mut network), ["0 done 1 Err(Unreachable)", "1 lost"], "{protect}");
    }
}

#[test]
fn who_was_never_answered_and_then_forgotten_learns_it() {
    for protect in [false, true] {
        let mut network = pair(lossy(0), protect);
        network.wires.cut.push((0, 1));
        let registration = network.nodes[0].engine.register(block(10), crate::engine::Access::BOTH);
        let (to, now) = (network.endpoint(1, 0), network.now());
        send(&mut network, 1, 0, 10, 1).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["0 gets 10"]);
        forget(&mut network, 0);
        network.wires.cut.clear();
        let into = Block::new(vec![0; 10]);
        network.nodes[1].engine.get(to, into, registration, 0, 2, now).expect("asked");
        run(&mut network, 5 * SECOND);
        // The first has arrived, and the other is of no connection that node 0 knows.
        assert_eq!(story(&mut network), ["1 done 1 Ok(())", "1 done 2 Err(Unreachable)", "1 lost"]);
    }
}

#[test]
fn who_has_nothing_else_under_way_than_what_has_arrived_has_nothing_to_complain_of() {
    for (len, protect) in [(10, false), (2_000, false), (10, true)] {
        let mut network = acquainted(lossy(0), protect);
        network.wires.cut.push((0, 1));
        send(&mut network, 1, 0, len, 1).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), [format!("0 gets {len}")]);
        forget(&mut network, 0);
        network.wires.cut.clear();
        run(&mut network, 10 * SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Ok(())"], "{len} bytes, {protect}");
        assert_eq!(network.nodes[1].engine.next_timeout(), None);
        let (endpoint, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.close(endpoint, now);
        network.nudge(1);
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 closed"]);
    }
}

#[test]
fn closing_towards_who_has_forgotten_takes_a_few_round_trips() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        forget(&mut network, 0);
        let (endpoint, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.close(endpoint, now);
        network.nudge(1);
        run(&mut network, 20 * MILLI);
        assert_eq!(story(&mut network), ["1 closed"]);
    }
}

/// A reset on its way from node 0 to node 1, which has not read it.
fn reset(network: &mut Network, protect: bool) -> Vec<u8> {
    *network = acquainted(lossy(0), protect);
    forget(network, 0);
    send(network, 1, 0, 10, 1).expect("sent");
    loop {
        let now = network.now().plus(MILLI);
        let node = &mut network.nodes[1];
        node.engine.handle_timeout(now);
        let mut bytes = Vec::new();
        let Some(transmit) = node.engine.poll_transmit(now) else {
            network.step(now);
            continue;
        };
        if protect {
            node.engine.protect(&transmit).expect("numbers").for_each(|seal| seal.write(&mut bytes));
        } else {
            bytes.extend_from_slice(&transmit.header);
            bytes.resize(transmit.len(), 1);
        }
        let _ = network.nodes[0].engine.handle_datagram(&bytes, None, now);
        if let Some(Event::Over { reset, .. }) = network.nodes[0].engine.poll_event() {
            assert!(reset.len() <= bytes.len(), "no longer than what it answers");
            return reset.to_vec();
        }
    }
}

#[test]
fn nobody_without_the_key_ends_a_connection() {
    for protect in [false, true] {
        let mut network = pair(lossy(0), protect);
        let genuine = reset(&mut network, protect);
        assert_eq!(Packet::parse(&genuine).map(|packet| packet.repr.body.kind()), Ok(Kind::Reset));
        let now = network.now();
        let engine = &mut network.nodes[1].engine;
        for bit in 0..genuine.len() * 8 {
            let mut forged = genuine.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let _ = engine.handle_datagram(&forged, None, now);
        }
        assert_eq!((engine.counters().num_reset_recvs, engine.counters().num_lost_peers), (0, 0));
        let _ = engine.handle_datagram(&genuine, None, now);
        assert_eq!((engine.counters().num_reset_recvs, engine.counters().num_lost_peers), (1, 1));
    }
}

#[test]
fn a_reset_ends_no_later_connection() {
    for protect in [false, true] {
        let mut network = pair(lossy(0), protect);
        let earlier = reset(&mut network, protect);
        forget(&mut network, 1);
        run(&mut network, SECOND);
        for round in 0..3 {
            let now = network.now();
            let _ = network.nodes[1].engine.handle_datagram(&earlier, None, now);
            let _ = network.nodes[0].engine.handle_datagram(&earlier, None, now);
            story(&mut network);
            send(&mut network, 1, 0, 10, round).expect("sent");
            run(&mut network, SECOND);
            assert_eq!(story(&mut network), ["0 gets 10".to_owned(), format!("1 done {round} Ok(())")]);
        }
    }
}

#[test]
fn whoever_asks_often_is_told_seldom() {
    let mut network = acquainted(lossy(0), false);
    let (endpoint, now) = (network.endpoint(0, 1), network.now());
    network.nodes[0].engine.give_up(endpoint, now);
    let (to, now) = (network.endpoint(1, 0), network.now());
    let fragment =
        Fragment { tag: 1, pieces: [Some(block(10)), None], cookie: 1, priority: false, awaited: true };
    network.nodes[1].engine.send(to, fragment, now).expect("sent");
    let transmit = network.nodes[1].engine.poll_transmit(now).expect("a datagram");
    let bytes = [&transmit.header[..], &block(10).to_vec()].concat();
    let engine = &mut network.nodes[0].engine;
    for micros in 0..10_000 {
        let _ = engine.handle_datagram(&bytes, None, now.plus(micros * 1_000));
    }
    assert_eq!(engine.counters().num_reset_sends, 10, "one in a millisecond");
}
