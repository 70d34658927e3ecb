//! A process that ends a connection and connects anew, while its peer still has the old one: it is heard at once, or it is
//! told before long that it is not.

use super::endings::{SECOND, block, lossy, run, send, story};
use super::forgotten::{MILLI, acquainted, forget};
use super::*;
use crate::error::Error;

/// Closes a connection in good order, as far as nobody is in the way.
pub(super) fn close(network: &mut Network, node: usize) {
    let (endpoint, now) = (network.endpoint(node, 1 - node), network.now());
    network.nodes[node].engine.close(endpoint, now);
    network.nudge(node);
}

fn sorted(network: &mut Network) -> Vec<String> {
    let mut seen = story(network);
    seen.sort();
    seen
}

/// What remains of the two once both have closed.
fn close_both(network: &mut Network) {
    for node in [0, 1] {
        close(network, node);
    }
    run(network, 10 * SECOND);
    assert_eq!(sorted(network), ["0 closed", "1 closed"]);
    for node in &network.nodes {
        assert_eq!((node.engine.outstanding(), node.engine.next_timeout()), ((0, 0), None));
        assert!(!node.engine.is_expecting());
    }
}

#[test]
fn who_has_closed_and_connects_anew_is_heard_by_whoever_keeps_the_old_connection() {
    for (len, protect) in [(10, false), (100_000, false), (10, true), (100_000, true)] {
        let mut network = acquainted(lossy(0), protect);
        let kept = network.endpoint(1, 0);
        for round in 0..5 {
            close(&mut network, 0);
            run(&mut network, 50 * MILLI);
            assert_eq!(story(&mut network), ["0 closed"]);
            send(&mut network, 0, 1, len, round).expect("sent");
            run(&mut network, 50 * MILLI);
            assert_eq!(story(&mut network), [format!("1 gets {len}"), format!("0 done {round} Ok(())")]);
            assert_eq!(network.endpoint(1, 0), kept);
            send(&mut network, 1, 0, len, round).expect("sent");
            run(&mut network, 50 * MILLI);
            assert_eq!(story(&mut network), [format!("0 gets {len}"), format!("1 done {round} Ok(())")]);
        }
        assert!(network.nodes.iter().all(|node| node.engine.counters().num_lost_peers == 0));
        close_both(&mut network);
    }
}

#[test]
fn whoever_keeps_a_connection_that_was_forgotten_has_lost_nothing_if_nothing_was_under_way() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 2_000, 1).expect("sent");
        run(&mut network, 50 * MILLI);
        assert_eq!(story(&mut network), ["1 gets 2000", "0 done 1 Ok(())"]);
        close_both(&mut network);
    }
}

#[test]
fn who_connects_anew_again_and_again_is_heard_though_much_is_lost_and_late() {
    for seed in 0..60 {
        let mut network = acquainted(lossy(0), seed % 2 == 0);
        network.wires.random = Random::new(seed);
        let path = Path { reordering: 200_000, duplication: 100_000, ..lossy(200_000) };
        network.wires.set_path(0, 1, path.clone());
        network.wires.set_path(1, 0, path);
        for round in 0..6 {
            close(&mut network, 0);
            run(&mut network, 20 * SECOND);
            assert_eq!(story(&mut network), ["0 closed"], "seed {seed}");
            send(&mut network, 0, 1, 5_000, round).expect("sent");
            if round % 2 == 0 {
                run(&mut network, 10 * SECOND);
            }
            send(&mut network, 1, 0, 3_000, round).expect("sent");
            run(&mut network, 20 * SECOND);
            let mut seen = sorted(&mut network);
            if round % 2 == 0 {
                let done = [0, 1].map(|node| format!("{node} done {round} Ok(())"));
                assert_eq!(seen, [&done[0], "0 gets 3000", &done[1], "1 gets 5000"], "seed {seed}");
                continue;
            }
            // That both send at once, one of them to whom it knew before, is another question: each send ends.
            seen.retain(|word| word.contains("done"));
            assert_eq!(seen.len(), 2, "seed {seed}: {}", network.describe());
            break;
        }
    }
}

#[test]
fn what_had_arrived_before_is_done_and_the_peer_is_heard_then() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        network.wires.cut.push((0, 1));
        send(&mut network, 1, 0, 2_000, 1).expect("sent");
        run(&mut network, 100 * MILLI);
        assert_eq!(story(&mut network), ["0 gets 2000"]);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 2).expect("sent");
        network.wires.cut.clear();
        run(&mut network, SECOND);
        let seen = sorted(&mut network);
        assert_eq!(seen, ["0 done 2 Ok(())", "1 done 1 Ok(())", "1 gets 10"], "{protect}");
        close_both(&mut network);
    }
}

#[test]
fn who_has_lost_something_to_the_old_connection_has_time_to_connect_anew_and_the_other_is_told_then() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        network.wires.cut.push((1, 0));
        send(&mut network, 1, 0, 2_000, 1).expect("sent");
        run(&mut network, 100 * MILLI);
        forget(&mut network, 0);
        network.wires.cut.clear();
        send(&mut network, 0, 1, 10, 2).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Err(Unreachable)", "1 lost"], "{protect}");
        run(&mut network, 2 * SECOND);
        assert_eq!(story(&mut network), [""; 0], "it may connect anew");
        run(&mut network, 7 * SECOND);
        assert_eq!(story(&mut network), ["0 done 2 Err(Unreachable)", "0 lost"], "{protect}");
        assert_eq!(send(&mut network, 0, 1, 10, 3), Err(Error::Unreachable));
        // Both give it up, and have each other again.
        close_both(&mut network);
        for node in [0, 1] {
            send(&mut network, node, 1 - node, 10, 4).expect("sent");
            run(&mut network, SECOND);
            let done = [format!("{} gets 10", 1 - node), format!("{node} done 4 Ok(())")];
            assert_eq!(story(&mut network), done);
        }
    }
}

#[test]
fn who_was_given_up_before_it_connects_anew_is_told() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        let (endpoint, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.give_up(endpoint, now);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 1).expect("sent");
        run(&mut network, 10 * SECOND);
        assert_eq!(story(&mut network), ["1 lost", "0 done 1 Err(Unreachable)", "0 lost"]);
    }
}

#[test]
fn who_is_closing_a_connection_is_done_when_the_peer_connects_anew() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        network.wires.cut.push((1, 0));
        close(&mut network, 1);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 1).expect("sent");
        run(&mut network, MILLI);
        network.wires.cut.clear();
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 closed", "1 gets 10", "0 done 1 Ok(())"], "{protect}");
    }
}

#[test]
fn what_is_queued_when_the_peer_connects_anew_ends_as_it_has_ended_there() {
    for (protect, cut, outcome) in [
        (false, (0, 1), "Ok(())"),
        (true, (0, 1), "Ok(())"),
        (false, (1, 0), "Err(Unreachable)"),
        (true, (1, 0), "Err(Unreachable)"),
    ] {
        let mut network = acquainted(lossy(0), protect);
        network.wires.cut.push(cut);
        send(&mut network, 1, 0, 2_000, 1).expect("sent");
        close(&mut network, 1);
        run(&mut network, 10 * MILLI);
        story(&mut network);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 2).expect("sent");
        network.wires.cut.clear();
        run(&mut network, SECOND);
        let seen = story(&mut network);
        assert!(seen.contains(&format!("1 done 1 {outcome}")), "{protect}: {seen:?}");
        assert_eq!(seen.contains(&String::from("1 lost")), outcome != "Ok(())", "{protect}: {seen:?}");
    }
}

/// The path between the two is narrower than they are: that is known also of the connection that follows.
#[test]
fn the_width_of_the_path_is_still_known() {
    for protect in [false, true] {
        let mut network = acquainted(lossy(0), protect);
        let (kept, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.handle_too_big(kept, 1_300, now);
        let width = |network: &Network| network.nodes[1].engine.longest_datagram(kept);
        let (before, whole) = (width(&network), network.setup.config.max_datagram);
        assert!(before < whole);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 1).expect("sent");
        run(&mut network, 50 * MILLI);
        assert_eq!(story(&mut network), ["1 gets 10", "0 done 1 Ok(())"]);
        assert!(width(&network).abs_diff(before) < 64 && width(&network) < whole, "{}", width(&network));
    }
}

/// What a process has lent stays lent, and its memory is reached by whoever connects anew.
#[test]
fn memory_is_reached_from_the_connection_that_follows() {
    let mut network = acquainted(lossy(0), false);
    let target = Block::new(vec![0; 5_000]);
    let registration = network.nodes[1].engine.register(target.clone(), crate::engine::Access::BOTH);
    close(&mut network, 0);
    run(&mut network, 50 * MILLI);
    let (to, now) = (network.endpoint(0, 1), network.now());
    network.nodes[0].engine.put(to, block(5_000), registration, 0, 1, now).expect("asked");
    network.nudge(0);
    run(&mut network, 50 * MILLI);
    assert_eq!(story(&mut network), ["0 closed", "0 done 1 Ok(())"]);
    assert_eq!(target.to_vec(), block(5_000).to_vec());
}
