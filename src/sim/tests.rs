//! What the engine promises, over networks that do their worst.

use super::traffic::{Game, Load};
use super::*;

fn play(setup: Setup, load: Load) -> (Network, Game) {
    let mut network = Network::new(setup);
    let mut game = Game::new(&mut network, load);
    if let Err(missing) = game.run(&mut network, 120_000_000_000) {
        panic!("seed {}: {missing}; {:?}\n{}", network.setup.seed, network.fates, network.describe());
    }
    (network, game)
}

#[test]
fn fragments_of_every_size_arrive() {
    let (network, game) = play(Setup::default(), Load::default());
    assert_eq!((game.failed, game.completed), (0, 200));
    assert_eq!(network.fates.overrun, 0);
}

/// A path that does everything bad at once, as much as the seed says.
fn hostile(seed: u64) -> Path {
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
fn rest(network: &mut Network) {
    let until = network.now().plus(10_000_000_000);
    while network.step(until) {}
}
