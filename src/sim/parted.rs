//! A process that ends a connection, whose peer has kept it and sends: what is sent begins the next one.

use super::endings::{SECOND, lossy, run, send, story};
use super::forgotten::{MILLI, acquainted, forget};
use super::renewal::close;
use super::*;

/// Both have heard each other, and send anew to whoever has ended the connection.
fn pair(protect: bool) -> Network {
    let mut network = acquainted(lossy(0), protect);
    network.nodes.iter_mut().for_each(|node| node.engine.meet_again());
    network
}

fn nobody_is_lost(network: &Network) -> bool {
    network.nodes.iter().all(|node| node.engine.counters().num_lost_peers == 0)
}

#[test]
fn who_keeps_a_connection_that_has_ended_and_sends_is_heard_and_answered() {
    for (len, protect) in [(10, false), (100_000, false), (10, true), (100_000, true)] {
        for connects in [false, true] {
            let mut network = pair(protect);
            let kept = network.endpoint(1, 0);
            for round in 0..5 {
                close(&mut network, 0);
                run(&mut network, 50 * MILLI);
                assert_eq!(story(&mut network), ["0 closed"]);
                if connects {
                    network.endpoint(0, 1);
                }
                for from in [1, 0] {
                    send(&mut network, from, 1 - from, len, round).expect("sent");
                    run(&mut network, 50 * MILLI);
                    let done = [format!("{} gets {len}", 1 - from), format!("{from} done {round} Ok(())")];
                    assert_eq!(story(&mut network), done, "{protect}, {connects}, {round}");
                }
                assert_eq!(network.endpoint(1, 0), kept);
            }
            assert!(nobody_is_lost(&network));
        }
    }
}

/// The end of the old connection is told and answered while the next one has begun, in every order.
#[test]
fn whoever_sends_at_the_moment_of_the_end_is_heard() {
    for protect in [false, true] {
        for moment in 0..60 {
            let mut network = pair(protect);
            close(&mut network, 0);
            run(&mut network, moment * 5_000);
            send(&mut network, 1, 0, 10, 1).expect("sent");
            run(&mut network, SECOND);
            let seen = story(&mut network);
            assert!(seen.contains(&String::from("1 done 1 Ok(())")), "{protect}, {moment}: {seen:?}");
            assert!(seen.contains(&String::from("0 closed")), "{protect}, {moment}: {seen:?}");
            assert!(seen.contains(&String::from("0 gets 10")), "{protect}, {moment}: {seen:?}");
            send(&mut network, 1, 0, 20, 2).expect("sent");
            run(&mut network, SECOND);
            assert_eq!(story(&mut network), ["0 gets 20", "1 done 2 Ok(())"], "{protect}, {moment}");
            assert!(nobody_is_lost(&network), "{protect}, {moment}");
        }
    }
}

#[test]
fn both_are_heard_though_both_send_at_once_and_much_is_lost_late_and_doubled() {
    for seed in 0..80 {
        let mut network = pair(seed % 2 == 0);
        network.wires.random = Random::new(seed);
        let path = Path { reordering: 200_000, duplication: 100_000, ..lossy(200_000) };
        network.wires.set_path(0, 1, path.clone());
        network.wires.set_path(1, 0, path);
        for round in 0..6 {
            close(&mut network, 0);
            run(&mut network, 20 * SECOND);
            assert_eq!(story(&mut network), ["0 closed"], "seed {seed}");
            let first = (seed + round) as usize % 2;
            for (from, len) in [(first, 3_000), (1 - first, 5_000)] {
                send(&mut network, from, 1 - from, len, round).expect("sent");
            }
            run(&mut network, 20 * SECOND);
            let mut seen = story(&mut network);
            seen.sort();
            let mut wanted = [
                format!("{first} done {round} Ok(())"),
                format!("{} done {round} Ok(())", 1 - first),
                format!("{first} gets 5000"),
                format!("{} gets 3000", 1 - first),
            ];
            wanted.sort();
            assert_eq!(seen, wanted, "seed {seed}, round {round}: {}", network.describe());
        }
        assert!(nobody_is_lost(&network));
    }
}

/// Who has forgotten the connection, with nothing under way, answers the next question with that.
#[test]
fn whoever_was_forgotten_is_told_by_the_first_that_it_sends_and_heard_from_the_second_on() {
    for protect in [false, true] {
        let mut network = pair(protect);
        forget(&mut network, 0);
        send(&mut network, 1, 0, 10, 1).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Err(Unreachable)", "1 lost"]);
        close(&mut network, 1);
        run(&mut network, SECOND);
        story(&mut network);
        send(&mut network, 1, 0, 10, 2).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["0 gets 10", "1 done 2 Ok(())"]);
    }
}
