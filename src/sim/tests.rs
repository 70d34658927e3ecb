//! What the engine promises, over networks that do their worst.

use super::traffic::{Game, Load};
use super::*;
use crate::engine::{Counters, Fragment};

pub(super) fn play(setup: Setup, load: Load) -> (Network, Game) {
    let mut network = Network::new(setup);
    let mut game = Game::new(&mut network, load);
    if let Err(missing) = game.run(&mut network, 120_000_000_000) {
        panic!("seed {}: {missing}; {:?}\n{}", network.setup.seed, network.wires.fates, network.describe());
    }
    (network, game)
}

#[test]
fn fragments_of_every_size_arrive() {
    let (network, game) = play(Setup::default(), Load::default());
    assert_eq!((game.failed, game.completed), (0, 200));
    assert_eq!(network.wires.fates.overrun, 0);
}

/// A path that does everything bad at once, as much as the seed says.
pub(super) fn hostile(seed: u64) -> Path {
    let mut random = Random::new(seed ^ 0xFA7E);
    Path {
        loss: random.below(300_000) as u32,
        duplication: random.below(50_000) as u32,
        corruption: random.below(50_000) as u32,
        reordering: random.below(300_000) as u32,
        lateness: 1 + random.below(3_000_000),
        delay: 1_000 + random.below(1_000_000),
        rate: if random.below(3) == 0 { 10_000_000 + random.below(1_000_000_000) } else { 0 },
        queue: 20_000 + random.below(1_000_000),
        ..Path::default()
    }
}

/// Seeds to try: the one in `HAWSER_SIM_SEED`, else this many.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("HAWSER_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=count).collect(),
    }
}

#[test]
fn every_fragment_put_and_get_is_exact_over_any_path() {
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let setup = Setup {
            seed,
            nodes: 2 + random.below(7) as usize,
            path: hostile(seed),
            config: config::Usnic {
                max_datagram: [256, 1472, 8972, 65_507][random.below(4) as usize],
                window: [4, 64, 4096][random.below(3) as usize],
                protect_payload: random.below(2) == 0,
                reassembly_per_peer: 1 << 18,
                reassembly_total: 1 << 19,
                ..config::Usnic::default()
            },
            receive_capacity: 1 << (17 + random.below(6)),
            ..Setup::default()
        };
        let load = Load {
            operations: 60,
            depth: 1 + random.below(30) as u32,
            longest: [100, 5_000, 100_000][random.below(3) as usize],
            puts: random.below(2) * 20,
            gets: random.below(2) * 20,
            ..Load::default()
        };
        let operations = setup.nodes as u64 * 60;
        let (mut network, game) = play(setup, load);
        assert_eq!((game.failed, game.completed), (0, operations), "seed {seed}");
        rest(&mut network);
        for node in &network.nodes {
            assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}: something leaks");
        }
    }
}

/// Lets the last acknowledgements travel.
pub(super) fn rest(network: &mut Network) {
    let until = network.now().plus(10_000_000_000);
    while network.step(until) {}
}

#[test]
fn without_loss_no_receiver_is_overrun() {
    for (nodes, to_one, max_datagram) in
        [(2, false, 1472), (8, false, 1472), (8, true, 1472), (8, true, 8972), (5, true, 256)]
    {
        for seed in seeds(6) {
            let buffer = 24 * max_datagram * (1 + seed as usize % 3);
            let setup = Setup {
                seed,
                nodes,
                config: config::Usnic { max_datagram, ..config::Usnic::default() },
                receive_capacity: buffer,
                receive_buffer: buffer,
                work: 300 + seed * 700,
                ..Setup::default()
            };
            let load = Load { operations: 200, depth: 16, longest: 60_000, to_one, ..Load::default() };
            let (network, game) = play(setup, load);
            // A slow receiver is asked whether it lives; that is all that may be sent twice.
            let of = |count: fn(&Counters) -> u64| -> u64 {
                network.nodes.iter().map(|node| count(&node.engine.counters())).sum()
            };
            let (resends, probes) = (of(|c| c.num_resends), of(|c| c.num_probes));
            assert!(
                resends <= 2 * probes && network.wires.fates.overrun <= probes,
                "seed {seed}, {nodes} nodes: {}",
                network.describe()
            );
            assert!(resends * 1000 <= of(|c| c.num_total_sends), "seed {seed}: {resends}");
            assert_eq!(game.failed, 0);
        }
    }
}

#[test]
fn acknowledgements_alone_may_be_lost() {
    for seed in seeds(10) {
        let path = Path { loss: 500_000, ..Path::default() };
        let mut network = Network::new(Setup { seed, path, ..Setup::default() });
        network.wires.lossy = Some(Channel::Priority);
        let load =
            Load { operations: 100, shortest: 2_000, longest: 30_000, to_one: true, ..Load::default() };
        let mut game = Game::new(&mut network, load);
        game.run(&mut network, 120_000_000_000).unwrap_or_else(|missing| panic!("seed {seed}: {missing}"));
        let resends = network.nodes[1].engine.counters().num_resends;
        assert!(resends < 200, "seed {seed}: {resends} resends of segments that had all arrived");
    }
}

#[test]
fn a_path_that_opens_again_loses_nothing() {
    for seed in seeds(10) {
        let mut network = Network::new(Setup { seed, ..Setup::default() });
        let load = Load { operations: 50, longest: 60_000, ..Load::default() };
        let mut game = Game::new(&mut network, load);
        let _ = game.run(&mut network, 300_000);
        network.wires.cut = vec![(0, 1)];
        let _ = game.run(&mut network, 2_000_000_000);
        network.wires.cut = vec![(0, 1), (1, 0)];
        let _ = game.run(&mut network, 2_000_000_000);
        network.wires.cut = vec![];
        game.run(&mut network, 10_000_000_000).unwrap_or_else(|missing| panic!("seed {seed}: {missing}"));
        assert_eq!((game.failed, game.completed), (0, 100));
    }
}

/// How long each of so many messages of 1 MB takes from the moment at which the receiver is there, the
/// receiver having been away for so long before.
fn steps(away: u64, count: usize) -> Vec<u64> {
    let path = Path { delay: 10_000, rate: 1_250_000_000, queue: 1 << 20, ..Path::default() };
    let config = config::Usnic { max_datagram: 8_972, ..config::Usnic::default() };
    let mut network = Network::new(Setup { path, config, work: 200, ..Setup::default() });
    let memory = Block::new(vec![7; 1 << 20]);
    let endpoint = network.endpoint(0, 1);
    let mut times = Vec::new();
    for cookie in 0..count as u64 {
        network.nodes[1].stopped = away > 0;
        let fragment =
            Fragment { tag: 1, pieces: [Some(memory.clone()), None], cookie, priority: false, awaited: true };
        network.send(0, endpoint, fragment).expect("sent");
        let back = network.now().plus(away);
        while network.step(back) {}
        network.wake(1);
        let is_delivery = |happened: &Happened| matches!(happened, Happened::Delivered { .. });
        while !network.happened.iter().any(is_delivery) {
            let until = network.now().plus(60_000_000_000);
            assert!(network.step(until), "{}", network.describe());
        }
        times.push((network.now() - back).as_nanos() as u64);
        let rest = network.now().plus(1_000_000);
        while network.step(rest) {}
        network.happened.clear();
    }
    times
}

#[test]
fn a_receiver_that_was_away_does_not_slow_the_sender_down() {
    let median = |times: &[u64]| {
        let mut sorted = times[5..].to_vec();
        sorted.sort_unstable();
        (sorted[sorted.len() / 2], sorted[sorted.len() - 1])
    };
    let (usual, _) = median(&steps(0, 25));
    for away in [1_000_000, 50_000_000, 300_000_000] {
        let (median, worst) = median(&steps(away, 25));
        assert!(median <= 2 * usual && worst <= 4 * usual, "{away}: {median}, {worst}, not {usual} ns");
    }
}
