//! A process that ends a connection, whose peer has kept it and sends: what is sent begins the next one.

use super::endings::{SECOND, block, lossy, run, send, story};
use super::forgotten::{MILLI, acquainted, forget};
use super::renewal::close;
use super::*;
use crate::engine::Fragment;
use crate::error::Result;
use crate::wire::usnic::Header;

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

/// Who has forgotten the connection answers the next question with that.
#[test]
fn whoever_was_forgotten_is_told_by_the_first_that_it_sends_and_heard_from_the_second_on() {
    for protect in [false, true] {
        let mut network = pair(protect);
        forget(&mut network, 0);
        send(&mut network, 1, 0, 10, 1).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Err(Unreachable)"]);
        send(&mut network, 1, 0, 10, 2).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["0 gets 10", "1 done 2 Ok(())"]);
        assert!(nobody_is_lost(&network));
    }
}

#[test]
fn who_is_forgotten_with_something_under_way_or_half_received_hears_and_is_heard_again() {
    for (protect, sender) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let mut network = pair(protect);
        send(&mut network, sender, 1 - sender, 500_000, 1).expect("sent");
        run(&mut network, 200_000);
        forget(&mut network, 0);
        send(&mut network, 0, 1, 10, 2).expect("sent");
        run(&mut network, 5 * SECOND);
        let mut seen = story(&mut network);
        seen.sort();
        let mut wanted =
            [format!("{sender} done 1 Err(Unreachable)"), "0 done 2 Ok(())".into(), "1 gets 10".into()];
        wanted.sort();
        assert_eq!(seen, wanted, "{protect}, {sender}");
        send(&mut network, 1, 0, 3_000, 3).expect("sent");
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["0 gets 3000", "1 done 3 Ok(())"]);
        assert!(nobody_is_lost(&network));
    }
}

/// Of what is copied its sender has heard that it is over: it is told that the peer is lost.
#[test]
fn who_is_forgotten_with_copies_under_way_loses_the_peer() {
    let mut network = pair(false);
    let (kept, now) = (network.endpoint(1, 0), network.now());
    let fragment =
        Fragment { tag: 1, pieces: [Some(block(10)), None], cookie: 7, priority: false, awaited: false };
    let mut datagram = Header::EMPTY;
    assert!(network.nodes[1].engine.send_copy(kept, &fragment, now, &mut datagram));
    forget(&mut network, 0);
    network.nudge(1);
    run(&mut network, 5 * SECOND);
    assert_eq!(story(&mut network), ["1 lost"]);
}

/// It was closed before anything was heard of it.
#[test]
fn a_connection_that_was_never_used_swallows_nothing() {
    for protect in [false, true] {
        let mut network = pair(protect);
        for _ in 0..2 {
            close(&mut network, 0);
            run(&mut network, 50 * MILLI);
            network.endpoint(0, 1);
        }
        close(&mut network, 0);
        run(&mut network, MILLI);
        story(&mut network);
        for cookie in 1..4 {
            send(&mut network, 1, 0, 10, cookie).expect("sent");
            run(&mut network, 50 * MILLI);
            assert_eq!(story(&mut network), ["0 gets 10".into(), format!("1 done {cookie} Ok(())")]);
        }
        assert!(nobody_is_lost(&network));
    }
}

#[test]
fn memory_is_reached_anew_by_whoever_has_kept_the_connection() {
    for protect in [false, true] {
        let mut network = pair(protect);
        let registration = network.nodes[0].engine.register(block(5_000), crate::engine::Access::BOTH);
        close(&mut network, 0);
        run(&mut network, 50 * MILLI);
        story(&mut network);
        let (kept, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.put(kept, block(5_000), registration, 0, 1, now).expect("begun");
        network.nudge(1);
        run(&mut network, SECOND);
        assert_eq!(story(&mut network), ["1 done 1 Ok(())"], "{protect}");
    }
}

/// Numbers of connections that no packet has carried are not used up: the peer would take them for those of the past.
#[test]
fn who_is_deleted_again_and_again_without_a_word_between_is_still_heard() {
    let mut network = pair(false);
    for _ in 0..40_000 {
        close(&mut network, 0);
        network.endpoint(0, 1);
    }
    network.nudge(0);
    run(&mut network, 10 * SECOND);
    story(&mut network);
    send(&mut network, 0, 1, 10, 1).expect("sent");
    run(&mut network, SECOND);
    assert_eq!(story(&mut network), ["1 gets 10", "0 done 1 Ok(())"]);
}

/// Messages of [`stream`].
const MANY: usize = 300;

/// The length says which it is.
fn length(number: usize) -> usize {
    if number.is_multiple_of(7) { 20_000 + number } else { 10 + number }
}

/// One sends all the time; the other closes whenever it has heard so many, and wants it again. How often each has come, and how it
/// has ended.
fn stream(network: &mut Network, every: usize) -> Vec<(usize, Result<()>)> {
    let (mut came, mut done) = (vec![0; MANY], vec![None; MANY]);
    let (mut sent, mut heard, mut closed, mut is_closing) = (0, 0, 0, false);
    for _ in 0..2_000_000 {
        if sent < MANY {
            send(network, 1, 0, length(sent), sent as u64).expect("sent");
            sent += 1;
        }
        run(network, 50_000);
        for happened in network.happened.split_off(0) {
            match happened {
                Happened::Delivered { node: 0, bytes, .. } => {
                    let number = bytes.len() % 20_000;
                    let number = if bytes.len() < 20_000 { number - 10 } else { number };
                    came[number] += 1;
                    heard += 1;
                }
                Happened::Event { node: 1, event: Event::Done { cookie, outcome } } => {
                    assert_eq!(done[cookie as usize].replace(outcome), None);
                }
                Happened::Event { node: 0, event: Event::Closed { .. } } => {
                    is_closing = false;
                    network.endpoint(0, 1);
                }
                other => assert!(matches!(other, Happened::Event { event: Event::Silent { .. }, .. })),
            }
        }
        if !is_closing && heard / every > closed {
            (closed, is_closing) = (heard / every, true);
            close(network, 0);
        }
        if done.iter().all(Option::is_some) {
            break;
        }
    }
    came.into_iter().zip(done.into_iter().map(|outcome| outcome.expect("over"))).collect()
}

#[test]
fn whoever_sends_all_the_time_to_who_closes_it_again_and_again_loses_nothing() {
    for (protect, every) in [(false, 7), (false, 20), (true, 20)] {
        let mut network = pair(protect);
        let all = stream(&mut network, every);
        let wrong: Vec<_> = all.iter().enumerate().filter(|(_, it)| **it != (1, Ok(()))).collect();
        assert!(wrong.is_empty(), "{protect}, {every}: {wrong:?}");
        run(&mut network, SECOND);
        assert!(story(&mut network).iter().all(|words| words == "0 closed"), "the last time, perhaps");
        assert_eq!(network.nodes[1].engine.outstanding(), (0, 0));
        assert!(nobody_is_lost(&network));
    }
}

#[test]
fn what_is_lost_on_the_way_to_who_closes_again_and_again_is_never_told_to_have_arrived() {
    for seed in 0..40 {
        let mut network = pair(seed % 2 == 0);
        network.wires.random = Random::new(seed);
        let path = Path { reordering: 200_000, duplication: 100_000, ..lossy(200_000) };
        network.wires.set_path(0, 1, path.clone());
        network.wires.set_path(1, 0, path);
        for (number, (came, outcome)) in stream(&mut network, 20).into_iter().enumerate() {
            assert!(came == 1 || came == 0 && outcome.is_err(), "seed {seed}, {number}: {came}, {outcome:?}");
        }
        assert!(nobody_is_lost(&network));
    }
}

/// It is not asked for by anybody any more: it is still sent, as what is queued.
#[test]
fn who_closes_while_the_other_ends_the_connection_sends_first_what_was_held_back() {
    for protect in [false, true] {
        let mut network = pair(protect);
        for number in 0..20 {
            send(&mut network, 1, 0, length(number), number as u64).expect("sent");
        }
        run(&mut network, 200_000);
        close(&mut network, 0);
        run(&mut network, 100_000);
        close(&mut network, 1);
        run(&mut network, SECOND);
        let seen = story(&mut network);
        let count = |words: &str| seen.iter().filter(|line| line.contains(words)).count();
        assert_eq!((count("Ok(())"), count("0 gets"), count("closed")), (20, 20, 2), "{protect}: {seen:?}");
        assert_eq!((seen.len(), network.nodes[1].engine.outstanding()), (42, (0, 0)));
    }
}
