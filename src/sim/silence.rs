//! Long messages that are asked for after a silence: a request, an answer when its receiver looks at it, and then the
//! data, as a message longer than the eager limit travels.

use super::*;
use crate::engine::Fragment;

const MILLI: u64 = 1_000_000;
const REQUEST: usize = 64;
const LONG: usize = 1 << 20;

fn send(network: &mut Network, from: usize, to: usize, len: usize) {
    let endpoint = network.endpoint(from, to);
    let bytes = Some(Block::new(vec![from as u8; len]));
    let awaited = len == LONG;
    let fragment = Fragment { tag: 1, pieces: [bytes, None], cookie: 0, priority: !awaited, awaited };
    network.send(from, endpoint, fragment).expect("sent");
}

/// What node 0 sends to node 1 when that is back from a stall: when it has come, whole.
fn exchange(network: &mut Network, stall: u64) -> u64 {
    network.happened.clear();
    if stall > 0 {
        network.stall(1, stall);
    }
    let back = network.now().plus(stall);
    send(network, 0, 1, REQUEST);
    loop {
        assert!(network.step(back.plus(1_000 * MILLI)), "{}", network.describe());
        while let Some(happened) = network.happened.pop_front() {
            match happened {
                Happened::Delivered { node: 1, from: 0, bytes, .. } if bytes.len() == LONG => {
                    return network.now().since(back);
                }
                Happened::Delivered { node: 1, from: 0, .. } => send(network, 1, 0, REQUEST),
                Happened::Delivered { node: 0, from: 1, .. } => send(network, 0, 1, LONG),
                _ => {}
            }
        }
    }
}

/// The times in the middle of exchanges without a stall, and after one of 100 ms; the others send to node 1 now and
/// then.
fn medians(nodes: usize) -> [u64; 2] {
    let path = Path { delay: 20_000, rate: 5_000_000_000, queue: 1 << 20, ..Path::default() };
    let mut network =
        Network::new(Setup { nodes, path, receive_capacity: 8 << 20, work: 100, ..Setup::default() });
    network.setup.receive_buffer = 8 << 20;
    [0, 100 * MILLI].map(|stall| {
        let mut times: Vec<u64> = (0..60)
            .map(|_| {
                for from in 2..nodes {
                    send(&mut network, from, 1, REQUEST);
                }
                exchange(&mut network, stall)
            })
            .collect();
        times.drain(..30);
        times.sort_unstable();
        times[times.len() / 2]
    })
}

#[test]
fn a_message_that_is_asked_for_after_a_stall_takes_no_longer() {
    for nodes in [2, 4] {
        let [at_once, stalled] = medians(nodes);
        assert!(
            stalled <= at_once + at_once / 20,
            "{nodes} nodes: {stalled} ns after a stall, else {at_once}"
        );
    }
}
