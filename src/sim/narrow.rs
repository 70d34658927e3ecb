//! Paths that become narrower or wider while data is under way: nothing is lost, taken twice or changed.

use super::stories::{Pair, Sent};
use super::traffic::{Game, Load};
use super::*;
use crate::engine::{Access, Fragment, Registration};
use crate::wire::usnic::Kind;
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;
/// Each begins an operation and gives the memory in which its bytes are in the end.
const KINDS: [fn(&mut Network, u64, usize) -> Block; 3] = [send, put, get];

fn contents(cookie: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(cookie as u8 as u64);
    (0..len).map(|_| random.number() as u8).collect()
}

fn pair(path: Path, seed: u64) -> Network {
    Network::new(Setup { path, seed, ..Setup::default() })
}

/// From now on both ways carry datagrams of this length at most, and say nothing.
fn narrow(network: &mut Network, width: usize) {
    for (from, to) in [(0, 1), (1, 0)] {
        let path = Path { width, ..network.wires.path(from, to).clone() };
        network.wires.set_path(from, to, path);
    }
}

/// The network has said so to both.
fn report(network: &mut Network, width: usize) {
    let now = network.now();
    for (from, to) in [(0, 1), (1, 0)] {
        let endpoint = network.endpoint(from, to);
        network.nodes[from].engine.handle_too_big(endpoint, width, now);
    }
}

fn send(network: &mut Network, cookie: u64, len: usize) -> Block {
    let endpoint = network.endpoint(0, 1);
    let bytes = Block::new(contents(cookie, len));
    let pieces = [Some(bytes.slice(0, len / 3)), Some(bytes.slice(len / 3, len - len / 3))];
    let fragment = Fragment { tag: cookie as u8, pieces, cookie, priority: false, awaited: true };
    network.send(0, endpoint, fragment).expect("sent");
    bytes
}

/// Memory of a node, known to the other one.
fn memory(network: &mut Network, node: usize, bytes: Vec<u8>) -> (Block, Registration) {
    let block = Block::new(bytes);
    let registration = network.nodes[node].engine.register(block.clone(), Access::BOTH);
    (block, registration)
}

fn put(network: &mut Network, cookie: u64, len: usize) -> Block {
    let (block, remote) = memory(network, 1, vec![0; len]);
    let (endpoint, now) = (network.endpoint(0, 1), network.now());
    let local = Block::new(contents(cookie, len));
    network.nodes[0].engine.put(endpoint, local, remote, 0, cookie, now).expect("asked");
    network.nudge(0);
    block
}

fn get(network: &mut Network, cookie: u64, len: usize) -> Block {
    let (_, remote) = memory(network, 0, contents(cookie, len));
    let (endpoint, now, block) = (network.endpoint(1, 0), network.now(), Block::new(vec![0; len]));
    network.nodes[1].engine.get(endpoint, block.clone(), remote, 0, cookie, now).expect("asked");
    network.nudge(1);
    block
}

/// What is done, in order; what is delivered is what was sent, once each.
fn done(network: &mut Network) -> Vec<u64> {
    let (mut done, mut delivered) = (Vec::new(), BTreeSet::new());
    for happened in network.happened.drain(..) {
        match happened {
            Happened::Event { event: Event::Done { cookie, outcome }, .. } => {
                outcome.expect("it arrives");
                done.push(cookie);
            }
            Happened::Event { event: Event::Silent { .. }, .. } => {}
            Happened::Event { event, .. } => panic!("{event:?}"),
            Happened::Delivered { node, tag, bytes, .. } => {
                assert!(node == 1 && delivered.insert(tag), "{tag} is delivered twice");
                assert!(bytes == contents(u64::from(tag), bytes.len()), "{tag} is not intact");
            }
        }
    }
    let missing = done.iter().filter(|cookie| !delivered.contains(&(**cookie as u8))).count();
    assert!(missing == 0 || delivered.is_empty(), "{done:?} are done, {delivered:?} delivered");
    done
}

fn run(network: &mut Network, nanos: u64) {
    let until = network.now().plus(nanos);
    while network.step(until) {}
}

fn counted(network: &Network, count: fn(&crate::engine::Counters) -> u64) -> u64 {
    network.nodes.iter().map(|node| count(&node.engine.counters())).sum()
}

/// All of one kind are under way when the path becomes narrow. What was one datagram becomes several.
#[test]
fn what_is_under_way_when_the_path_becomes_narrow_goes_on_in_shorter_segments() {
    for reported in [true, false] {
        for (kind, begin) in KINDS.into_iter().enumerate() {
            for len in [1_300, 1_408, 5_000, 200_000] {
                let mut network = pair(Path::default(), 1);
                begin(&mut network, 0, 100_000);
                run(&mut network, SECOND);
                assert_eq!(done(&mut network), [0]);
                narrow(&mut network, 1_250);
                let blocks: Vec<Block> = (1..=5).map(|cookie| begin(&mut network, cookie, len)).collect();
                run(&mut network, 15_000);
                if reported {
                    report(&mut network, 1_250);
                }
                run(&mut network, 2 * SECOND);
                let mut over = done(&mut network);
                over.sort_unstable();
                for (block, cookie) in blocks.iter().zip(1..) {
                    assert!(block.to_vec() == contents(cookie, len), "kind {kind}, {len} bytes");
                }
                assert_eq!(over, [1, 2, 3, 4, 5], "kind {kind}, {len} bytes: {}", network.describe());
                assert!(counted(&network, |counters| counters.num_withdrawals) > 0, "{}", network.describe());
                // It is known by now: nothing more is too long.
                let dropped = network.wires.fates.too_long;
                if len > 5_000 || reported {
                    begin(&mut network, 6, 100_000);
                    run(&mut network, SECOND);
                    assert_eq!((done(&mut network), network.wires.fates.too_long), (vec![6], dropped));
                }
                assert_eq!(network.nodes[0].engine.outstanding().0, 0, "something leaks");
                assert_eq!(network.nodes[1].engine.outstanding().0, 0, "something leaks");
            }
        }
    }
}

/// The width of the path changes again and again, reported or not, over a network that loses, doubles and
/// reorders. The game checks that each fragment comes once and whole, and each PUT and GET.
#[test]
fn every_fragment_put_and_get_is_exact_whatever_the_width_of_the_path_does() {
    let mut withdrawn = [0; 2];
    for seed in 1..=85 {
        let mut random = Random::new(seed ^ 0x3A11);
        let path = Path {
            loss: random.below(100_000) as u32,
            duplication: random.below(100_000) as u32,
            reordering: random.below(300_000) as u32,
            lateness: 1 + random.below(3_000_000),
            delay: 1_000 + random.below(200_000),
            ..Path::default()
        };
        let longest = [1_472, 8_972][random.below(2) as usize];
        let config = config::Usnic {
            max_datagram: longest,
            protect_payload: seed > 60,
            window: [4, 64, 4096][random.below(3) as usize],
            reassembly_per_peer: 1 << 18,
            reassembly_total: 1 << 19,
            ..config::Usnic::default()
        };
        let setup = Setup { seed, path, config, receive_capacity: 1 << 19, ..Setup::default() };
        let mut network = Network::new(setup);
        let load = Load {
            operations: 150,
            depth: 1 + random.below(30) as u32,
            shortest: random.below(2) * 1_000,
            longest: [2_500, 60_000][random.below(2) as usize],
            puts: random.below(2) * 20,
            gets: random.below(2) * 20,
            even: random.below(2) == 0,
            ..Load::default()
        };
        let mut game = Game::new(&mut network, load);
        for _ in 0..40 {
            let width = [1_200, 1_300, 2_000, longest][random.below(4) as usize];
            narrow(&mut network, width);
            if random.below(2) == 0 {
                report(&mut network, width);
            }
            // Now and then long enough for the next probe.
            let span = [200_000, 2_000_000, 601 * SECOND]
                [usize::from(random.below(5) > 1) + usize::from(random.below(12) == 0)];
            let _ = game.run(&mut network, span);
        }
        narrow(&mut network, longest);
        if let Err(missing) = game.run(&mut network, 120 * SECOND) {
            panic!("seed {seed}: {missing}; {:?}\n{}", network.wires.fates, network.describe());
        }
        run(&mut network, 10 * SECOND);
        assert_eq!((game.failed, game.completed), (0, 300), "seed {seed}");
        for node in &network.nodes {
            assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}: something leaks");
        }
        withdrawn[0] += counted(&network, |counters| counters.num_withdrawals);
        withdrawn[1] += counted(&network, |counters| counters.num_withdrawn_recvs);
    }
    assert!(withdrawn[0] > 100 && withdrawn[1] > 0, "{withdrawn:?}: too few, or none that came after all");
}

/// Every tenth minute one segment tries whether the path has become wide; into a hole or not, nothing is
/// lost, and a path that is wide again is used.
#[test]
fn the_probe_of_every_tenth_minute_costs_a_segment_and_finds_a_wide_path() {
    let mut network = pair(Path::default(), 3);
    report(&mut network, 1_300);
    narrow(&mut network, 1_300);
    for round in 0..3 {
        run(&mut network, 601 * SECOND);
        send(&mut network, round, 100_000);
        run(&mut network, SECOND);
        assert_eq!((done(&mut network), network.wires.fates.too_long), (vec![round], round + 1));
        assert_eq!(counted(&network, |counters| counters.num_withdrawals), round + 1);
    }
    narrow(&mut network, usize::MAX);
    let chunks = |network: &Network| counted(network, |counters| counters.num_chunk_sends);
    run(&mut network, 601 * SECOND);
    send(&mut network, 3, 100_000);
    run(&mut network, SECOND);
    let before = chunks(&network);
    send(&mut network, 4, 100_000);
    run(&mut network, SECOND);
    assert_eq!(done(&mut network), [3, 4]);
    // The short header, and what a chunk's has besides.
    assert_eq!(chunks(&network) - before, 100_000_u64.div_ceil(1_472 - 48 - 12));
}

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..count {
            let mut order = order.clone();
            order.insert(at, count - 1);
            all.push(order);
        }
    }
    all
}

/// The path becomes too narrow for the one segment that is under way from the first: what it asks, in time.
fn ask_after_narrowing(pair: &mut Pair) -> Vec<Sent> {
    let (id, now) = (pair.ids[0], pair.now);
    pair.engines[0].handle_too_big(id, 1_250, now);
    pair.now = pair.engines[0].next_timeout().expect("it waits");
    let asks = pair.take(0);
    assert_eq!((asks.len(), asks[0].kind()), (1, Kind::Withdraw));
    asks
}

/// A segment that is withdrawn comes after all: before the question whether it has, or after it, and then before,
/// between and behind the segments that its data goes on in, each of which may come twice.
#[test]
fn a_segment_that_comes_after_it_was_withdrawn_is_not_taken() {
    // The segment, the void, and its data in two parts.
    for order in orders(4) {
        for twice in 0..5 {
            let mut pair = Pair::new();
            pair.warm();
            let before = pair.engines[1].counters();
            pair.send(0, 1_300, 7);
            let whole = pair.take(0);
            let asks = ask_after_narrowing(&mut pair);
            pair.give(1, &asks);
            let answers = pair.take(1);
            assert_eq!((answers.len(), answers[0].kind()), (1, Kind::Withdrawn));
            pair.give(0, &answers);
            pair.give(0, &answers);
            let others = pair.take(0);
            assert_eq!(
                others.iter().map(Sent::kind).collect::<Vec<_>>(),
                [Kind::Void, Kind::Chunk, Kind::Chunk]
            );
            let all = [whole, others].concat();
            for at in order.iter().copied().chain((twice < 4).then_some(twice)) {
                pair.give(1, &all[at..=at]);
            }
            assert_eq!(pair.delivered[1], [vec![7; 1_300]], "{order:?} and {twice} again");
            pair.settle();
            assert_eq!((pair.delivered[1].len(), &pair.done[0]), (1, &vec![7]));
            let counters = pair.engines[1].counters();
            let late = order.iter().position(|at| *at == 0) < order.iter().position(|at| *at == 1);
            assert_eq!(counters.num_withdrawn_recvs - before.num_withdrawn_recvs, u64::from(late));
            assert_eq!((counters.num_badfrag_recvs, counters.num_frag_recvs), (0, before.num_frag_recvs));
        }
    }
}

/// A segment is withdrawn of a peer that has closed: when its void has come, nothing more is waited for.
#[test]
fn who_has_closed_waits_for_nothing_when_the_void_has_come() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 1_300, 7);
    pair.take(0);
    let now = pair.now;
    pair.engines[1].close(pair.ids[1], now);
    let closes = pair.take(1);
    pair.hand(0, &closes);
    let answers = pair.take(0);
    pair.hand(1, &answers);
    pair.engines[0].handle_too_big(pair.ids[0], 1_250, now);
    pair.now = pair.engines[0].next_timeout().expect("it waits");
    let asks = pair.take(0);
    assert!(asks.iter().any(|sent| sent.kind() == Kind::Withdraw));
    pair.hand(1, &asks);
    assert!(pair.engines[1].is_expecting(), "a hole");
    let answers = pair.take(1);
    pair.hand(0, &answers);
    let others = pair.take(0);
    assert_eq!(others[0].kind(), Kind::Void);
    pair.hand(1, &others);
    assert!(!pair.engines[1].is_expecting());
}

/// The segment had arrived; only what acknowledged it was lost.
#[test]
fn a_segment_that_has_arrived_is_acknowledged_and_not_withdrawn() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 1_300, 7);
    let whole = pair.take(0);
    pair.give(1, &whole);
    pair.take(1);
    let asks = ask_after_narrowing(&mut pair);
    pair.give(1, &asks);
    let answers = pair.take(1);
    assert_eq!(answers[0].kind(), Kind::Ack);
    pair.give(0, &answers);
    assert_eq!((pair.delivered[1].len(), &pair.done[0]), (1, &vec![7]));
    pair.settle();
    assert_eq!(pair.engines[0].counters().num_void_sends, 0);
}

/// All places in the window are taken by segments that the receiver has no memory for, and the data that would
/// make room waits for a place.
#[test]
fn a_full_window_makes_room_for_withdrawn_data() {
    let longest = 20_000;
    let config = config::Usnic {
        max_datagram: 1_472,
        window: 8,
        reassembly_per_peer: 2 * longest + 600,
        reassembly_total: 2 * longest + 600,
        ..config::Usnic::default()
    };
    for seed in 1..=40 {
        let path = Path { loss: 50_000, reordering: 200_000, ..Path::default() };
        let mut network = Network::new(Setup { path, config: config.clone(), seed, ..Setup::default() });
        let endpoint = network.endpoint(0, 1);
        for cookie in 0..30 {
            let bytes = Block::new(contents(cookie, longest - cookie as usize * 500));
            let priority = cookie % 3 == 0;
            let fragment =
                Fragment { tag: cookie as u8, pieces: [Some(bytes), None], cookie, priority, awaited: true };
            network.send(0, endpoint, fragment).expect("sent");
        }
        for width in [1_472, 1_200, 1_472, 1_250, 1_472, 1_200] {
            narrow(&mut network, width);
            report(&mut network, width);
            run(&mut network, 1_000_000);
        }
        run(&mut network, 30 * SECOND);
        let mut over = done(&mut network);
        over.sort_unstable();
        assert_eq!(over, (0..30).collect::<Vec<_>>(), "seed {seed}: {}", network.describe());
    }
}

/// The receiver has no memory for the oldest segment before it has data that was withdrawn, and so got later
/// numbers; and what is under way without room for it fills the congestion window.
#[test]
fn a_receiver_without_memory_gets_the_data_that_makes_room() {
    let longest = 20_000;
    let config = config::Usnic {
        max_datagram: 8_972,
        reassembly_per_peer: 2 * longest + 600,
        reassembly_total: 2 * longest + 600,
        ..config::Usnic::default()
    };
    for (loss, seed) in [0, 50_000].into_iter().flat_map(|loss| (1..=12).map(move |seed| (loss, seed))) {
        let path = Path { loss, reordering: 200_000, lateness: 1_000_000, delay: 50_000, ..Path::default() };
        let mut network = Network::new(Setup { path, config: config.clone(), seed, ..Setup::default() });
        for cookie in 0..60 {
            send(&mut network, cookie, longest - cookie as usize * 100);
        }
        for width in [8_972, 1_200, 8_972, 1_250, 8_972, 1_200] {
            narrow(&mut network, width);
            report(&mut network, width);
            run(&mut network, 1_000_000);
        }
        for (from, to) in [(0, 1), (1, 0)] {
            network.wires.set_path(from, to, Path { width: 1_200, ..Path::default() });
        }
        run(&mut network, 120 * SECOND);
        let mut over = done(&mut network);
        over.sort_unstable();
        assert_eq!(over, (0..60).collect::<Vec<_>>(), "loss {loss}, seed {seed}: {}", network.describe());
    }
}
