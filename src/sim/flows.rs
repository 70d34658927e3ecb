//! Messages whose times are measured: from the call that sends one to its delivery.
//!
//! A [`Flow`] sends messages of one size from one node to another; several run at once, over
//! whatever the test has put between the nodes.

use super::{Block, Happened, Network};
use crate::engine::{Event, Fragment, Instant};
use std::collections::HashMap;

/// Messages from one node to another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: usize,
    /// To whom.
    pub to: usize,
    /// Bytes of a message, 8 at least.
    pub len: usize,
    /// How many; a flow of [`Flow::ENDLESS`] ends with the others.
    pub messages: u32,
    /// Messages that have not been delivered, at most.
    pub depth: u32,
    /// Nanoseconds between a delivery and the next message.
    pub pause: u64,
    /// Nanoseconds that the receiver computes, away from its buffers, when a message is sent; the
    /// message's time counts from the end of that.
    pub stall: u64,
}

impl Flow {
    /// Goes on as long as there are other flows.
    pub const ENDLESS: u32 = u32::MAX;

    /// One message after the other, without pauses.
    pub const fn new(from: usize, to: usize, len: usize, messages: u32) -> Self {
        Self { from, to, len, messages, depth: 1, pause: 0, stall: 0 }
    }
}

/// How long the messages of a flow took, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<u64>);

impl Times {
    /// The time that so many in a hundred do not exceed; 0 without any.
    pub fn percentile(&self, percent: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(0)
    }

    /// The time in the middle.
    pub fn median(&self) -> u64 {
        self.percentile(50)
    }

    /// The longest.
    pub fn worst(&self) -> u64 {
        self.percentile(100)
    }

    /// Messages that were delivered.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

struct State {
    flow: Flow,
    begun: u32,
    next_at: Instant,
    under_way: HashMap<u32, Instant>,
    times: Times,
}

/// Flows that run at once.
pub struct Flows(Vec<State>);

impl Flows {
    /// They begin when they [run](Self::run).
    pub fn new(network: &Network, flows: impl IntoIterator<Item = Flow>) -> Self {
        let begin = |flow: Flow| {
            assert!(flow.len >= 8 && flow.depth > 0, "a message says which it is");
            let next_at = network.now();
            State { flow, begun: 0, next_at, under_way: HashMap::new(), times: Times::default() }
        };
        Self(flows.into_iter().map(begin).collect())
    }

    /// How long the messages of a flow took that have been delivered so far.
    pub fn times(&self, flow: usize) -> &Times {
        &self.0[flow].times
    }

    /// Sends until all flows with an end are over, at most so many nanoseconds. `false`: they are not.
    ///
    /// # Panics
    /// If something is delivered that was not sent, or twice, or changed, or if an operation fails.
    pub fn run(&mut self, network: &mut Network, nanos: u64) -> bool {
        let end = network.now().plus(nanos);
        loop {
            let wait = (0..self.0.len()).filter_map(|flow| self.send(network, flow)).min();
            if self.is_over() {
                return true;
            }
            let until = wait.unwrap_or(end).min(end);
            if !network.step(until) && until == end {
                return false;
            }
            self.take(network);
        }
    }

    fn is_over(&self) -> bool {
        self.0.iter().all(|state| {
            let State { flow, begun, under_way, .. } = state;
            flow.messages == Flow::ENDLESS || *begun == flow.messages && under_way.is_empty()
        })
    }

    /// Sends what may be sent now; when there is more, if that is known.
    fn send(&mut self, network: &mut Network, which: usize) -> Option<Instant> {
        let state = &mut self.0[which];
        let Flow { from, to, len, messages, depth, stall, .. } = state.flow;
        while state.begun < messages && state.under_way.len() < depth as usize {
            if network.now() < state.next_at {
                return Some(state.next_at);
            }
            let number = state.begun;
            state.begun += 1;
            state.under_way.insert(number, network.now().plus(stall));
            if stall > 0 {
                network.stall(to, stall);
            }
            let endpoint = network.endpoint(from, to);
            let pieces = [Some(Block::new(contents(which, number, len))), None];
            let fragment = Fragment {
                tag: which as u8,
                pieces,
                cookie: (which as u64) << 32 | u64::from(number),
                priority: false,
                awaited: true,
            };
            network.send(from, endpoint, fragment).expect("the peer is there");
        }
        None
    }

    fn take(&mut self, network: &mut Network) {
        let now = network.now();
        while let Some(happened) = network.happened.pop_front() {
            match happened {
                Happened::Delivered { bytes, .. } => {
                    let (head, _) = bytes.as_chunks::<4>();
                    let [which, number] = [0, 1].map(|at| u32::from_le_bytes(head[at]));
                    let state = &mut self.0[which as usize];
                    let begun = state.under_way.remove(&number).expect("sent, and not delivered before");
                    assert!(bytes == contents(which as usize, number, state.flow.len), "not intact");
                    state.times.0.push(now.since(begun));
                    state.next_at = now.plus(state.flow.pause);
                }
                Happened::Event { event: Event::Done { outcome, .. }, .. } => outcome.expect("it arrives"),
                Happened::Event { event: Event::Lost { .. }, node } => panic!("node {node} lost a peer"),
                Happened::Event { .. } => {}
            }
        }
    }
}

fn contents(flow: usize, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&(flow as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{Path, Port, Setup};
    use super::*;

    fn network(nodes: usize, path: Path) -> Network {
        Network::new(Setup { nodes, path, ..Setup::default() })
    }

    #[test]
    fn a_message_takes_as_long_as_its_path() {
        let mut network = network(2, Path { delay: 40_000, ..Path::default() });
        network.wires.set_path(1, 0, Path { delay: 1_000_000, ..Path::default() });
        let mut flows = Flows::new(&network, [Flow::new(0, 1, 64, 20), Flow::new(1, 0, 64, 20)]);
        assert!(flows.run(&mut network, 1_000_000_000));
        assert_eq!((flows.times(0).count(), flows.times(1).count()), (20, 20));
        assert!((40_000..50_000).contains(&flows.times(0).median()), "{}", flows.times(0).median());
        assert!((1_000_000..1_010_000).contains(&flows.times(1).median()), "each direction has its own");
    }

    #[test]
    fn who_shares_a_port_shares_its_rate() {
        let mut network = network(3, Path::default());
        let port = network.wires.add_port(Port::new(10_000_000, 1 << 20));
        [1, 2].into_iter().for_each(|from| network.wires.lead_through(from, 0, port));
        let start = network.now();
        let mut flows = Flows::new(&network, [1, 2].map(|from| Flow::new(from, 0, 500_000, 1)));
        assert!(flows.run(&mut network, 10_000_000_000));
        let took = (network.now() - start).as_nanos() as u64;
        let bytes = network.wires.port(port).bytes;
        assert!(bytes > 1_000_000 && took >= bytes * 99, "{bytes} bytes in {took}");
    }

    #[test]
    fn what_is_longer_than_the_path_is_wide_arrives_in_fragments_only() {
        let mut network = network(2, Path { width: 1_372, ..Path::default() });
        let mut flows = Flows::new(&network, [Flow::new(0, 1, 900, 5)]);
        assert!(flows.run(&mut network, 1_000_000_000));
        assert_eq!(network.wires.fates.too_long, 0);
        let mut flows = Flows::new(&network, [Flow::new(0, 1, 100_000, 5)]);
        assert!(flows.run(&mut network, 1_000_000_000), "a black hole: {}", network.describe());
        let dropped = network.wires.fates.too_long;
        assert!(dropped > 0);
        let mut flows = Flows::new(&network, [Flow::new(0, 1, 100_000, 5)]);
        assert!(flows.run(&mut network, 1_000_000_000));
        assert_eq!(network.wires.fates.too_long, dropped, "by now it is known");
    }

    #[test]
    fn a_path_probe_into_a_black_hole_costs_nothing_but_time() {
        let mut network = network(2, Path { width: 1_372, ..Path::default() });
        let (endpoint, now) = (network.endpoint(0, 1), network.now());
        network.nodes[0].engine.handle_too_big(endpoint, 1_372, now);
        let mut flows = Flows::new(&network, [Flow::new(0, 1, 100_000, 5)]);
        assert!(flows.run(&mut network, 1_000_000_000));
        assert_eq!(network.wires.fates.too_long, 0, "the network has said so");
        let later = network.now().plus(700_000_000_000);
        while network.step(later) {}
        // What is short is no probe.
        for (len, dropped) in [(64, 0), (100_000, 1), (100_000, 1)] {
            let mut flows = Flows::new(&network, [Flow::new(0, 1, len, 5)]);
            assert!(flows.run(&mut network, 1_000_000_000), "{}", network.describe());
            assert_eq!(network.wires.fates.too_long, dropped);
        }
    }

    #[test]
    fn a_stalled_node_leaves_its_buffers_alone() {
        let mut network = network(2, Path::default());
        let mut flows = Flows::new(&network, [Flow { stall: 30_000_000, ..Flow::new(0, 1, 64, 3) }]);
        let start = network.now();
        assert!(flows.run(&mut network, 1_000_000_000));
        assert!((network.now() - start).as_millis() >= 90);
        assert!(flows.times(0).worst() < 1_000_000, "counted from the end of the stall");
    }

    #[test]
    fn a_receiver_that_computes_does_not_make_a_path_narrow() {
        for stall in [0, 2_000_000, 20_000_000] {
            let mut network = network(2, Path { delay: 10_000, ..Path::default() });
            let mut flows = Flows::new(&network, [Flow { stall, ..Flow::new(0, 1, 1300, 10) }]);
            assert!(flows.run(&mut network, 10_000_000_000));
            let before = network.nodes[0].engine.counters().num_chunk_sends;
            let mut flows = Flows::new(&network, [Flow::new(0, 1, 100_000, 1)]);
            assert!(flows.run(&mut network, 1_000_000_000));
            let longest = network.setup.config.max_datagram;
            let chunks = network.nodes[0].engine.counters().num_chunk_sends - before;
            assert!(chunks <= 100_000_u64.div_ceil(longest as u64 - 100), "{chunks} after {stall}");
        }
    }
}
