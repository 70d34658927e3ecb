//! Data of GETs that lands where it is guessed to belong, over networks that lose, repeat and reorder.

use super::endings::{SECOND, pair, run};
use super::*;
use crate::engine::{Access, Memory};
use crate::wire::usnic::{HEADER_LEN, SHORT_HEADER_LEN};

const WIDE: usize = 8972;

fn wide(nodes: usize, seed: u64, path: Path) -> Network {
    network(nodes, seed, path, false)
}

fn network(nodes: usize, seed: u64, path: Path, protect_payload: bool) -> Network {
    let config = config::Usnic { max_datagram: WIDE, protect_payload, ..config::Usnic::default() };
    Network::new(Setup { nodes, seed, path, config, ..Setup::default() })
}

fn random_block(random: &mut Random, len: usize) -> Block {
    Block::new((0..len).map(|_| random.number() as u8).collect())
}

/// Has node 0 read memory of all others, several at a time, and everything that it has read; how many segments have landed.
fn read_all(network: &mut Network, count: usize, most: usize) -> u64 {
    let (mut random, nodes) = (Random::new(count as u64), network.nodes.len());
    let mut wanted = Vec::new();
    for cookie in 0..count {
        let from = 1 + cookie % (nodes - 1);
        let len = 1 + random.below(most as u64) as usize;
        let source = random_block(&mut random, len);
        let remote = network.nodes[from].engine.register(source.clone(), Access::READ);
        let endpoint = network.endpoint(0, from);
        // What stands around it must stay.
        let around = random_block(&mut random, source.len() + 200);
        let (into, before) = (around.slice(100, source.len()), around.to_vec());
        let now = network.now();
        network.nodes[0].engine.get(endpoint, into, remote, 0, cookie as u64, now).expect("asked");
        network.nudge(0);
        run(network, random.below(2_000_000));
        wanted.push((source, around, before));
    }
    run(network, 20 * SECOND);
    for (cookie, (source, around, before)) in wanted.into_iter().enumerate() {
        let (seen, len) = (around.to_vec(), source.len());
        assert!(seen[100..100 + len] == source.to_vec(), "GET {cookie} of {len} bytes");
        assert!(seen[..100] == before[..100] && seen[100 + len..] == before[100 + len..], "beside it");
    }
    assert!(network.nodes.iter().all(|node| node.engine.outstanding().0 == 0));
    let counters = network.nodes[0].engine.counters();
    assert!(counters.num_landed_recvs <= counters.num_get_data_recvs, "{counters:?}");
    counters.num_landed_recvs
}

#[test]
fn what_is_read_is_whole_wherever_its_data_has_landed() {
    for (loss, reordering) in [(0, 0), (10_000, 0), (50_000, 50_000), (200_000, 100_000)] {
        for seed in 1..8 {
            for protected in [false, true] {
                let (duplication, corruption) = (loss / 4, loss / 8);
                let rate = 500_000_000;
                let path = Path { loss, reordering, duplication, corruption, rate, ..Path::default() };
                let landed = read_all(&mut network(2, seed, path, protected), 40, 400_000);
                // Protected data lands only where nothing before it is missing.
                let least = if loss <= 100_000 { 101 } else { u64::from(!protected) };
                assert!(landed >= least, "{landed} at a loss of {loss}, protected: {protected}");
            }
        }
    }
}

#[test]
fn several_senders_at_once_cost_guesses_and_no_bytes() {
    for seed in 1..8 {
        for protected in [false, true] {
            let path = Path { loss: 5_000, rate: 500_000_000, ..Path::default() };
            assert!(read_all(&mut network(4, seed, path, protected), 60, 300_000) > 0);
        }
    }
}

#[test]
fn short_datagrams_are_never_guessed() {
    let mut network = pair(Path::default(), 0);
    assert_eq!(read_all(&mut network, 10, 100_000), 0);
}

/// In the middle of a GET: where its data goes on is known, and what is not that data is told from it.
#[test]
fn only_what_was_guessed_is_taken_from_where_it_landed() {
    let mut network = wide(2, 1, Path { rate: 100_000_000, ..Path::default() });
    let mut random = Random::new(7);
    let source = random_block(&mut random, 1_000_000);
    let remote = network.nodes[1].engine.register(source.clone(), Access::READ);
    let (endpoint, into) = (network.endpoint(0, 1), Block::new(vec![0; 1_000_000]));
    let now = network.now();
    assert!(network.nodes[0].engine.landing().is_none(), "nothing is under way");
    network.nodes[0].engine.get(endpoint, into.clone(), remote, 0, 1, now).expect("asked");
    network.nudge(0);
    while network.nodes[0].engine.landing().is_none() {
        let until = network.now().plus(SECOND);
        assert!(network.step(until), "data comes");
    }
    let now = network.now();
    let engine = &mut network.nodes[0].engine;
    let landing = engine.landing().expect("a guess");
    assert_eq!(landing.header + landing.payload, WIDE - (HEADER_LEN - SHORT_HEADER_LEN));
    // No packet at all; it has landed, and is told from what was guessed.
    let before = engine.counters();
    let mut noise = vec![0x5A; landing.header + landing.payload];
    let size = noise.len();
    assert_eq!(engine.handle_landed(&mut noise, size, &landing, None, now), 0);
    assert_eq!(engine.counters().num_landed_recvs, before.num_landed_recvs);
    // A wrong guess costs the next one, and another more.
    assert!(engine.landing().is_none());
    assert!(engine.landing().is_some());
    engine.note_missed_landing();
    assert!((0..2).all(|_| engine.landing().is_none()));
    assert!(engine.landing().is_some());
    engine.end_landings();
    assert!(engine.landing().is_none());
    run(&mut network, 10 * SECOND);
    assert!(into.to_vec() == source.to_vec());
    let engine = &mut network.nodes[0].engine;
    assert!(engine.landing().is_none() && engine.counters().num_get_data_recvs > 100, "all else goes on");
}
