//! How connections end: closed, lost, replaced; and operations that are cut short.

use super::traffic::{Game, Load};
use super::*;
use crate::engine::{Access, End, Fragment};
use crate::error::{Error, Result};

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) fn block(len: usize) -> Block {
    Block::new((0..len).map(|at| at as u8).collect())
}

pub(super) fn pair(path: Path, peer_timeout: u64) -> Network {
    let peer_timeout = std::time::Duration::from_nanos(peer_timeout);
    let config = config::Usnic { max_datagram: 1472, peer_timeout, ..config::Usnic::default() };
    Network::new(Setup { path, config, ..Setup::default() })
}

pub(super) fn send(network: &mut Network, from: usize, to: usize, len: usize, cookie: u64) -> Result<()> {
    let endpoint = network.endpoint(from, to);
    let fragment =
        Fragment { tag: 1, pieces: [Some(block(len)), None], cookie, priority: false, awaited: true };
    let now = network.now();
    let sent = network.nodes[from].engine.send(endpoint, fragment, now);
    network.nudge(from);
    sent
}

pub(super) fn run(network: &mut Network, nanos: u64) {
    let until = network.now().plus(nanos);
    while network.step(until) {}
}

/// What has happened since, in few words.
pub(super) fn story(network: &mut Network) -> Vec<String> {
    let words = |happened: Happened| match happened {
        Happened::Delivered { node, bytes, .. } => format!("{node} gets {}", bytes.len()),
        Happened::Event { node, event } => match event {
            Event::Done { cookie, outcome } => format!("{node} done {cookie} {outcome:?}"),
            Event::Lost { .. } => format!("{node} lost"),
            Event::Closed { .. } => format!("{node} closed"),
            Event::Silent { .. } => format!("{node} hears nothing"),
            Event::Deliver { .. } | Event::Over { .. } => String::from("?"),
        },
    };
    // Silence is told again and again; who wants to know looks for it.
    network.happened.drain(..).map(words).filter(|words| !words.ends_with("hears nothing")).collect()
}

/// How often a node has said that it hears nothing; all else that has happened is forgotten.
fn silences(network: &mut Network) -> usize {
    let silent =
        |happened: &Happened| matches!(happened, Happened::Event { event: Event::Silent { .. }, .. });
    network.happened.drain(..).filter(silent).count()
}

/// Ten microseconds for a kilobyte, so that there is a middle to be interrupted in.
pub(super) fn lossy(loss: u32) -> Path {
    Path { loss, rate: 100_000_000, ..Path::default() }
}

#[test]
fn a_peer_that_dies_is_lost_in_time_and_once() {
    let mut network = pair(lossy(0), SECOND);
    send(&mut network, 0, 1, 10, 1).expect("sent");
    run(&mut network, SECOND);
    assert_eq!(story(&mut network), ["1 gets 10", "0 done 1 Ok(())"]);
    network.nodes[1].stopped = true;
    let endpoint = network.endpoint(0, 1);
    send(&mut network, 0, 1, 100_000, 2).expect("sent");
    send(&mut network, 0, 1, 5, 3).expect("sent");
    run(&mut network, SECOND / 2);
    assert_eq!(story(&mut network), [""; 0]);
    run(&mut network, 2 * SECOND);
    let lost = ["0 done 2 Err(Unreachable)", "0 done 3 Err(Unreachable)", "0 lost"];
    let mut seen = story(&mut network);
    seen[..2].sort();
    assert_eq!(seen, lost);
    assert_eq!(send(&mut network, 0, 1, 5, 4), Err(Error::Unreachable));
    assert!(!network.nodes[0].engine.peer(endpoint).expect("still known").alive);
    network.nodes[0].engine.forget(endpoint);
    assert_eq!(network.nodes[0].engine.peer(endpoint), None);
    run(&mut network, SECOND);
    assert_eq!(story(&mut network), [""; 0]);
    assert_eq!(network.nodes[0].engine.outstanding(), (0, 0));
}

#[test]
fn without_a_timeout_nobody_is_ever_lost() {
    let mut network = pair(lossy(0), 0);
    network.nodes[1].stopped = true;
    send(&mut network, 0, 1, 100_000, 1).expect("sent");
    run(&mut network, 100 * SECOND);
    assert_eq!(story(&mut network), [""; 0]);
    assert!(network.wires.fates.sent < 600, "asks seldom: {:?}", network.wires.fates);
    network.wake(1);
    run(&mut network, 2 * SECOND);
    assert_eq!(story(&mut network), ["1 gets 100000", "0 done 1 Ok(())"]);
}

#[test]
fn silence_is_told_once_in_a_twentieth_of_the_timeout() {
    for (timeout, period) in [(60, 3), (0, 3), (10, 1), (200, 10)] {
        let mut network = pair(lossy(0), timeout * SECOND);
        send(&mut network, 0, 1, 10, 1).expect("sent");
        run(&mut network, 30 * SECOND);
        assert_eq!(silences(&mut network), 0, "nothing is awaited");
        network.nodes[1].stopped = true;
        send(&mut network, 0, 1, 100_000, 2).expect("sent");
        run(&mut network, 3 * period * SECOND + 2 * SECOND);
        assert_eq!(silences(&mut network), if period == 1 { 4 } else { 3 }, "{timeout} s");
    }
}

#[test]
fn a_peer_that_is_said_to_live_is_not_lost_and_asked_no_more_often() {
    let mut network = pair(lossy(0), 5 * SECOND);
    network.nodes[1].stopped = true;
    send(&mut network, 0, 1, 100_000, 1).expect("sent");
    let endpoint = network.endpoint(0, 1);
    for _ in 0..60 {
        run(&mut network, SECOND);
        let now = network.now();
        network.nodes[0].engine.handle_alive(endpoint, now);
    }
    assert_eq!(story(&mut network), [""; 0]);
    assert!(network.wires.fates.sent < 400, "asks seldom: {:?}", network.wires.fates);
    run(&mut network, 6 * SECOND);
    assert_eq!(story(&mut network), ["0 done 1 Err(Unreachable)", "0 lost"], "when nobody says it any more");
}

#[test]
fn a_peer_that_is_said_to_have_ended_is_lost_when_it_is_said_again() {
    let mut network = pair(lossy(0), 0);
    network.nodes[1].stopped = true;
    send(&mut network, 0, 1, 100_000, 1).expect("sent");
    let endpoint = network.endpoint(0, 1);
    for lost in [false, false, true] {
        let now = network.now();
        network.nodes[0].engine.handle_ended(endpoint, now);
        network.nudge(0);
        run(&mut network, SECOND / 3);
        let seen = story(&mut network);
        assert_eq!(seen.contains(&"0 lost".to_owned()), lost, "{seen:?}");
        let known = network.nodes[0].engine.peer(endpoint).expect("still known");
        assert_eq!(known.end, lost.then_some(End::Said));
    }
}

#[test]
fn who_was_said_to_have_ended_but_is_heard_again_is_not_lost() {
    let mut network = pair(lossy(0), 0);
    let endpoint = network.endpoint(0, 1);
    for cookie in 0..5 {
        send(&mut network, 0, 1, 10, cookie).expect("sent");
        let now = network.now();
        network.nodes[0].engine.handle_ended(endpoint, now);
        run(&mut network, SECOND);
    }
    assert!(!story(&mut network).contains(&"0 lost".to_owned()));
}

#[test]
fn a_peer_that_is_given_up_is_lost_once() {
    let mut network = pair(lossy(0), 0);
    network.nodes[1].stopped = true;
    send(&mut network, 0, 1, 100_000, 1).expect("sent");
    let (endpoint, now) = (network.endpoint(0, 1), network.now());
    for _ in 0..2 {
        network.nodes[0].engine.give_up(endpoint, now);
    }
    network.nudge(0);
    run(&mut network, SECOND);
    assert_eq!(story(&mut network), ["0 done 1 Err(Unreachable)", "0 lost"]);
}

#[test]
fn whoever_was_stopped_itself_loses_nobody() {
    let mut network = pair(lossy(0), SECOND);
    for (stopped, other) in [(0, 1), (1, 0)] {
        send(&mut network, stopped, other, 200_000, 1).expect("sent");
        run(&mut network, 200_000);
        network.nodes[stopped].stopped = true;
        run(&mut network, 30 * SECOND);
        network.wake(stopped);
        run(&mut network, SECOND);
        let end = [format!("{other} gets 200000"), format!("{stopped} done 1 Ok(())")];
        assert_eq!(story(&mut network), end);
    }
}

#[test]
fn a_get_from_a_dead_peer_ends() {
    let mut network = pair(lossy(0), SECOND);
    let registration = network.nodes[1].engine.register(block(500_000), Access::READ);
    let endpoint = network.endpoint(0, 1);
    let now = network.now();
    let into = Block::new(vec![0; 500_000]);
    network.nodes[0].engine.get(endpoint, into.clone(), registration, 0, 7, now).expect("asked");
    network.nudge(0);
    run(&mut network, 150_000);
    network.nodes[1].stopped = true;
    run(&mut network, 5 * SECOND);
    assert_eq!(story(&mut network), ["0 done 7 Err(Unreachable)", "0 lost"]);
    assert_eq!(into.holders(), 1, "the memory is let go");
}

#[test]
fn a_new_life_of_a_process_is_another_peer() {
    let mut network = pair(lossy(50_000), SECOND);
    send(&mut network, 0, 1, 50_000, 1).expect("sent");
    send(&mut network, 1, 0, 50_000, 1).expect("sent");
    run(&mut network, SECOND);
    story(&mut network);
    let old = network.endpoint(0, 1);
    send(&mut network, 0, 1, 500_000, 2).expect("sent");
    run(&mut network, 300_000);
    network.restart(1);
    send(&mut network, 1, 0, 70_000, 3).expect("sent");
    run(&mut network, SECOND / 2);
    assert_eq!(story(&mut network), ["0 gets 70000", "1 done 3 Ok(())"]);
    send(&mut network, 0, 1, 90_000, 4).expect("sent");
    assert_ne!(network.endpoint(0, 1), old);
    run(&mut network, 5 * SECOND);
    let mut seen = story(&mut network);
    seen.sort();
    assert_eq!(seen, ["0 done 2 Err(Unreachable)", "0 done 4 Ok(())", "0 lost", "1 gets 90000"]);
    assert!(network.nodes[1].engine.counters().num_crc_errors > 0, "the old life had another key");
}

#[test]
fn closing_sends_what_is_queued_first() {
    for loss in [0, 50_000, 300_000] {
        let mut network = pair(lossy(loss), 0);
        send(&mut network, 0, 1, 100_000, 1).expect("sent");
        let (endpoint, now) = (network.endpoint(0, 1), network.now());
        network.nodes[0].engine.close(endpoint, now);
        assert_eq!(send(&mut network, 0, 1, 1, 2), Err(Error::Unreachable), "too late");
        run(&mut network, 20 * SECOND);
        assert_eq!(story(&mut network), ["1 gets 100000", "0 done 1 Ok(())", "0 closed"]);
        assert_eq!(network.nodes[0].engine.peer(endpoint), None);
        let (endpoint, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.close(endpoint, now);
        network.nudge(1);
        run(&mut network, 20 * SECOND);
        assert_eq!(story(&mut network), ["1 closed"]);
        for node in &network.nodes {
            assert_eq!((node.engine.outstanding(), node.engine.next_timeout()), ((0, 0), None));
        }
    }
}

#[test]
fn both_may_close_at_once() {
    for seed in 0..40 {
        let mut network = pair(lossy(200_000), 0);
        network.wires.random = Random::new(seed);
        for node in 0..2 {
            send(&mut network, node, 1 - node, 10_000, 1).expect("sent");
        }
        run(&mut network, 1_000_000 * seed);
        for node in 0..2 {
            let (endpoint, now) = (network.endpoint(node, 1 - node), network.now());
            network.nodes[node].engine.close(endpoint, now);
            network.nudge(node);
        }
        run(&mut network, 60 * SECOND);
        let mut seen = story(&mut network);
        seen.sort();
        seen.retain(|word| !word.contains("gets"));
        assert_eq!(seen, ["0 closed", "0 done 1 Ok(())", "1 closed", "1 done 1 Ok(())"], "seed {seed}");
        assert!(network.nodes.iter().all(|node| node.engine.next_timeout().is_none()));
    }
}

#[test]
fn closing_towards_the_dead_ends() {
    let mut network = pair(lossy(0), 0);
    send(&mut network, 0, 1, 10, 1).expect("sent");
    run(&mut network, SECOND);
    network.nodes[1].stopped = true;
    let (endpoint, now) = (network.endpoint(0, 1), network.now());
    network.nodes[0].engine.close(endpoint, now);
    network.nudge(0);
    run(&mut network, 10 * SECOND);
    assert_eq!(story(&mut network), ["1 gets 10", "0 done 1 Ok(())", "0 closed"]);
}

#[test]
fn the_same_processes_may_connect_again_and_again() {
    let mut network = pair(Path { reordering: 200_000, duplication: 100_000, ..lossy(100_000) }, 0);
    for round in 0..30 {
        for node in 0..2 {
            send(&mut network, node, 1 - node, 3_000 * (node + 1), round).expect("sent");
        }
        run(&mut network, 3 * SECOND);
        let mut seen = story(&mut network);
        seen.sort();
        let done = [format!("0 done {round} Ok(())"), format!("1 done {round} Ok(())")];
        assert_eq!(seen, [&done[0], "0 gets 6000", &done[1], "1 gets 3000"]);
        for node in 0..2 {
            let (endpoint, now) = (network.endpoint(node, 1 - node), network.now());
            network.nodes[node].engine.close(endpoint, now);
            network.nudge(node);
        }
        run(&mut network, if round % 2 == 0 { SECOND } else { 10 * SECOND });
        let mut seen = story(&mut network);
        seen.sort();
        assert_eq!(seen, ["0 closed", "1 closed"]);
    }
}

#[test]
fn two_that_reject_everything_of_each_other_come_to_an_end() {
    for loss in [0, 100_000] {
        let mut network = pair(lossy(loss), 0);
        let (len, each) = (5000, 60);
        let gone = [0, 1].map(|node| {
            let engine = &mut network.nodes[node].engine;
            let registration = engine.register(block(len), Access::BOTH);
            engine.deregister(registration);
            registration
        });
        for node in 0..2 {
            let (endpoint, now) = (network.endpoint(node, 1 - node), network.now());
            let engine = &mut network.nodes[node].engine;
            for cookie in 0..each {
                engine.put(endpoint, block(len), gone[1 - node], 0, cookie, now).expect("asked");
                engine.get(endpoint, block(len), gone[1 - node], 0, each + cookie, now).expect("asked");
            }
            network.nudge(node);
        }
        run(&mut network, 60 * SECOND);
        let seen = story(&mut network);
        assert_eq!(seen.len() as u64, 4 * each, "{}", network.describe());
        assert!(seen.iter().all(|word| word.ends_with("Err(NotFound)")), "{seen:?}");
        assert!(network.nodes.iter().all(|node| node.engine.outstanding() == (0, 0)));
    }
}

#[test]
fn forgetting_ends_everything_at_once() {
    let mut network = pair(lossy(0), 0);
    send(&mut network, 0, 1, 1_000_000, 1).expect("sent");
    run(&mut network, 300_000);
    let endpoint = network.endpoint(0, 1);
    network.nodes[0].engine.forget(endpoint);
    network.nudge(0);
    run(&mut network, SECOND / 4);
    assert_eq!(story(&mut network), ["0 done 1 Err(Unreachable)"]);
    assert!(!network.nodes[0].engine.is_expecting());
    assert_eq!(send(&mut network, 0, 1, 10, 2), Ok(()), "connected anew");
    run(&mut network, SECOND);
    // The other side learns that the old connection is over, and connects anew when it hears more.
    let seen = story(&mut network);
    assert!(seen.contains(&String::from("1 lost")), "{seen:?}");
    let (peer, node) = (network.address(0), &mut network.nodes[1]);
    let old = node.engine.endpoint_of(peer.name, peer.incarnation).expect("dead but known");
    node.engine.forget(old);
    run(&mut network, 3 * SECOND);
    assert_eq!(story(&mut network), ["1 gets 10", "0 done 2 Ok(())"]);
}

#[test]
fn idle_endpoints_are_small_and_quiet() {
    let mut network = pair(lossy(10_000), 0);
    let load = Load { operations: 200, ..Load::default() };
    let mut game = Game::new(&mut network, load);
    game.run(&mut network, 100 * SECOND).expect("over");
    run(&mut network, 10 * SECOND);
    for node in 0..2 {
        let endpoint = network.endpoint(node, 1 - node);
        let footprint = network.nodes[node].engine.footprint(endpoint);
        assert!((500..4096).contains(&footprint), "{footprint} bytes");
        let engine = &network.nodes[node].engine;
        assert!(!engine.is_expecting() && engine.next_timeout().is_none());
    }
}

#[test]
fn a_put_to_who_has_closed_is_done_or_has_failed() {
    const LEN: usize = 3000;
    for (loss, after) in [(0, 100_000), (0, 0), (100_000, 0), (100_000, 300_000), (300_000, 100_000)] {
        let mut network = pair(lossy(loss), 0);
        let target = Block::new(vec![0; 50 * LEN]);
        let registration = network.nodes[1].engine.register(target.clone(), Access::BOTH);
        let (endpoint, now) = (network.endpoint(0, 1), network.now());
        for cookie in 0..50 {
            let (local, at) = (Block::new(vec![cookie as u8 + 1; LEN]), cookie * LEN as u64);
            network.nodes[0].engine.put(endpoint, local, registration, at, cookie, now).expect("asked");
        }
        network.nudge(0);
        run(&mut network, after);
        let (back, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.close(back, now);
        network.nudge(1);
        run(&mut network, SECOND);
        let seen = story(&mut network);
        let written = target.to_vec();
        let there =
            |cookie: usize| written[cookie * LEN..][..LEN].iter().all(|byte| *byte == cookie as u8 + 1);
        let done: Vec<usize> =
            (0..50).filter(|cookie| seen.contains(&format!("0 done {cookie} Ok(())"))).collect();
        assert!(done.iter().all(|cookie| there(*cookie)), "{done:?} of {seen:?}");
        assert_eq!(seen.len(), 51, "each ends, and the connection: {seen:?}");
    }
}

#[test]
fn what_is_asked_of_who_has_closed_ends() {
    for loss in [0, 300_000] {
        for (seed, after) in
            (0..20).flat_map(|seed| [(seed, 15_000), (seed, SECOND / 1000), (seed, 3 * SECOND)])
        {
            let mut network = Network::new(Setup { seed, ..pair(lossy(loss), 0).setup });
            let registration = network.nodes[1].engine.register(block(1000), Access::BOTH);
            let (to, back, now) = (network.endpoint(0, 1), network.endpoint(1, 0), network.now());
            network.nodes[0].engine.put(to, block(10), registration, 0, 0, now).expect("asked");
            network.nudge(0);
            run(&mut network, SECOND);
            assert_eq!(story(&mut network), ["0 done 0 Ok(())"]);
            let now = network.now();
            network.nodes[1].engine.close(back, now);
            network.nudge(1);
            run(&mut network, after);
            let now = network.now();
            let engine = &mut network.nodes[0].engine;
            let put = engine.put(to, block(10), registration, 0, 1, now);
            let get = engine.get(to, Block::new(vec![0; 10]), registration, 0, 2, now);
            network.nudge(0);
            run(&mut network, 10 * SECOND);
            let seen = story(&mut network);
            for (cookie, asked) in [(1, put), (2, get)] {
                let done = seen.iter().any(|word| word.starts_with(&format!("0 done {cookie} ")));
                assert!(
                    done || asked == Err(Error::Unreachable),
                    "{cookie}, seed {seed}: {asked:?}, {seen:?}"
                );
            }
        }
    }
}
