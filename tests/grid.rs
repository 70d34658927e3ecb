//! Many datagrams over many kinds of path. `HAWSER_SIM_DATAGRAMS` says how many at least, ten
//! million when it says nothing; `HAWSER_SIM_SEED` repeats one run. A failure names its seed.

use hawser::config;
use hawser::sim::traffic::{Game, Load};
use hawser::sim::{Network, Path, Random, Setup};

/// Ten virtual minutes.
const LONGEST: u64 = 600_000_000_000;

/// One of the cells of the grid, filled in by the dice.
fn cell(seed: u64) -> (Setup, Load) {
    let mut random = Random::new(seed);
    let one = |random: &mut Random, choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let path = Path {
        loss: one(&mut random, &[0, 0, 1_000, 10_000, 50_000, 100_000, 200_000, 300_000]) as u32,
        reordering: one(&mut random, &[0, 0, 10_000, 100_000, 500_000]) as u32,
        lateness: one(&mut random, &[1_000, 50_000, 500_000, 5_000_000]),
        duplication: one(&mut random, &[0, 0, 10_000, 100_000]) as u32,
        corruption: one(&mut random, &[0, 0, 1_000, 50_000]) as u32,
        delay: one(&mut random, &[500, 10_000, 50_000, 1_000_000]),
        rate: one(&mut random, &[0, 0, 12_500_000, 125_000_000, 1_250_000_000]),
        queue: one(&mut random, &[50_000, 150_000, 1_000_000]),
        ..Path::default()
    };
    let max_datagram = one(&mut random, &[256, 1_472, 1_472, 8_972]) as usize;
    let capacity = max_datagram << one(&mut random, &[4, 7, 10]);
    let setup = Setup {
        seed,
        nodes: one(&mut random, &[2, 2, 3, 5, 8]) as usize,
        path,
        config: config::Usnic {
            max_datagram,
            window: one(&mut random, &[2, 16, 4096, 4096]) as usize,
            protect_payload: random.below(4) == 0,
            reassembly_per_peer: 1 << 20,
            reassembly_total: 2 << 20,
            ..config::Usnic::default()
        },
        receive_capacity: capacity,
        receive_buffer: capacity,
        work: one(&mut random, &[100, 500, 3_000]),
        stamps: seed.is_multiple_of(2),
        shares: seed.is_multiple_of(3),
    };
    let longest = one(&mut random, &[64, 700, 5_000, 100_000]);
    let load = Load {
        operations: (6_000_000 / (longest * setup.nodes as u64)).clamp(100, 3_000) as u32,
        depth: one(&mut random, &[1, 4, 32]) as u32,
        shortest: 0,
        longest,
        puts: one(&mut random, &[0, 0, 30]),
        gets: one(&mut random, &[0, 0, 30]),
        to_one: random.below(5) == 0,
        even: random.below(2) == 0,
    };
    (setup, load)
}

/// Datagrams of one run.
fn run(seed: u64) -> u64 {
    let (setup, load) = cell(seed);
    let mut network = Network::new(setup);
    let mut game = Game::new(&mut network, load);
    if let Err(missing) = game.run(&mut network, LONGEST) {
        panic!("seed {seed}: {missing}\n{:?}\n{}", network.setup, network.describe());
    }
    assert_eq!((game.failed, game.lost.len()), (0, 0), "seed {seed}");
    let until = network.now() + std::time::Duration::from_secs(10);
    while network.step(until) {}
    for node in &network.nodes {
        assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}: something leaks");
        assert!(!node.engine.is_expecting(), "seed {seed}: it waits for nothing");
    }
    network.wires.fates.sent
}

#[test]
fn everything_arrives_once_and_intact_over_a_grid_of_paths() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("HAWSER_SIM_SEED") {
        println!("seed {seed}: {} datagrams", run(seed));
        return;
    }
    let wanted = number("HAWSER_SIM_DATAGRAMS").unwrap_or(10_000_000);
    let first = number("HAWSER_SIM_FIRST").unwrap_or(1);
    let (mut seed, mut datagrams) = (first, 0);
    while datagrams < wanted {
        let result = std::panic::catch_unwind(|| run(seed));
        match result {
            Ok(sent) => datagrams += sent,
            Err(panic) => {
                eprintln!("repeat it with HAWSER_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
        seed += 1;
    }
    println!("{datagrams} datagrams in {} runs", seed - first);
}
