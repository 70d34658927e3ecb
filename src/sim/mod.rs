//! Nodes, links and faults in virtual time.
//!
//! Several engines, each behind two receive buffers, over a network that loses, delays, repeats,
//! reorders, corrupts and queues. Everything follows from one seed: a run that fails is repeated
//! by its seed. Time passes only in [`Network::step`].
//!
//! A node takes its turn when something has arrived for it or its time has come: it hands in what
//! its buffers hold, takes events, and sends. Each datagram costs it time, so that what arrives
//! faster than it works fills its buffers.

mod block;
pub mod flows;
pub mod fuzz;
pub mod link;
mod numbers;
mod random;
mod switch;
pub mod traffic;
mod turn;
mod wires;

pub use block::Block;
pub use random::Random;
pub use switch::{Port, PortId};
pub use wires::{Agenda, Arrival, Fates, Path, Wires};

use crate::config;
use crate::engine::time::Instant;
use crate::engine::{Channel, EndpointId, Engine, Event, Identity, Peer};
use crate::wire::usnic::SHORT_HEADER_LEN;
use std::collections::{HashMap, VecDeque};

/// A network to be.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// What everything follows from.
    pub seed: u64,
    /// What happens to datagrams.
    pub path: Path,
    /// Parameters of the engines.
    pub config: config::Usnic,
    /// What the engines are told that a receive buffer holds.
    pub receive_capacity: usize,
    /// What each of the two receive buffers of a node holds; a datagram that finds no room is lost.
    pub receive_buffer: usize,
    /// What a datagram sent or received costs a node, nanoseconds.
    pub work: u64,
    /// Whether nodes are told when datagrams came to their buffers, not only when they read them.
    pub stamps: bool,
    /// Whether short packets that a node sends one behind the other share datagrams.
    pub shares: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            nodes: 2,
            seed: 1,
            path: Path::default(),
            config: config::Usnic { max_datagram: 1472, ..config::Usnic::default() },
            receive_capacity: 1 << 20,
            receive_buffer: 1 << 20,
            work: 500,
            stamps: true,
            shares: false,
        }
    }
}

enum What {
    Reaches { port: PortId, from: usize, to: usize, channel: Channel, bytes: Vec<u8> },
    Arrives { to: usize, channel: Channel, bytes: Vec<u8> },
    Turn { node: usize },
}

/// A delivered fragment, or what else an engine reports.
#[derive(Debug)]
pub enum Happened {
    /// A fragment has come.
    Delivered {
        /// To whom.
        node: usize,
        /// From whom.
        from: usize,
        /// Its tag.
        tag: u8,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// An event of another kind.
    Event {
        /// Whose.
        node: usize,
        /// Which.
        event: Event,
    },
}

/// An engine and its buffers.
pub struct Node {
    /// The engine.
    pub engine: Engine<Block>,
    /// It takes no turns.
    pub stopped: bool,
    /// Datagrams that wait, and since when.
    buffers: [VecDeque<(Instant, Vec<u8>)>; 2],
    filled: [usize; 2],
    /// What was joined last could not be taken in: no more than two are joined, since copies take time.
    is_refused: bool,
    busy: Instant,
    /// When the last turn was over.
    free: Instant,
    turn_at: Option<Instant>,
    incarnation: u32,
    /// It looks at its buffers only so often, nanoseconds.
    period: u64,
    /// Packets that share a datagram, and to whom it goes.
    row: Option<(usize, Vec<u8>)>,
}

impl Node {
    /// When it looks at its buffers again, having done so now.
    fn next_look(&self, now: Instant) -> Instant {
        match self.period {
            0 => now,
            period => Instant::from_nanos((now.nanos() / period + 1) * period),
        }
    }

    /// Since when something waits in its buffers.
    fn oldest(&self) -> Option<Instant> {
        self.buffers.iter().filter_map(|buffer| buffer.front()).map(|(at, _)| *at).min()
    }
}

/// Nodes and what is between them.
pub struct Network {
    /// What it was made from.
    pub setup: Setup,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// What is between them.
    pub wires: Wires,
    /// What has happened and was not looked at.
    pub happened: VecDeque<Happened>,
    now: Instant,
    agenda: Agenda<What>,
    names: HashMap<u64, usize>,
    /// Those of protected packets.
    numbers: numbers::Numbers,
}

/// Bytes that leave in one run.
const RUN: usize = 65_487;
/// Datagrams that are joined at the most.
const JOINED: usize = 16;

fn key_of(node: usize, incarnation: u32) -> [u8; 16] {
    let mut key = [node as u8; 16];
    key[..4].copy_from_slice(&incarnation.to_le_bytes());
    key[4..8].copy_from_slice(&(node as u32).to_le_bytes());
    key
}

const fn name_of(node: usize) -> u64 {
    0xCAFE_0000_0000 + node as u64
}

impl Network {
    /// The nodes know nobody yet.
    pub fn new(setup: Setup) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let exposed = if setup.config.protect_payload { usize::MAX } else { SHORT_HEADER_LEN };
        let mut network = Self {
            nodes: Vec::new(),
            wires: Wires::new(setup.path.clone(), exposed, setup.nodes, setup.seed),
            happened: VecDeque::new(),
            now,
            agenda: Agenda::new(),
            numbers: numbers::Numbers::default(),
            names: (0..setup.nodes).map(|node| (name_of(node), node)).collect(),
            setup,
        };
        for node in 0..network.setup.nodes {
            let fresh = network.fresh(node, 1);
            network.nodes.push(fresh);
        }
        network
    }

    fn fresh(&self, node: usize, incarnation: u32) -> Node {
        let identity = Identity { name: name_of(node), incarnation, key: key_of(node, incarnation) };
        let capacity = self.setup.receive_capacity;
        Node {
            engine: Engine::new(&self.setup.config, identity, capacity, self.now).expect("memory"),
            stopped: false,
            buffers: [VecDeque::new(), VecDeque::new()],
            filled: [0; 2],
            is_refused: false,
            busy: self.now,
            free: self.now,
            turn_at: None,
            incarnation,
            period: 0,
            row: None,
        }
    }

    /// What time it is.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The dice.
    pub const fn random(&mut self) -> &mut Random {
        &mut self.wires.random
    }

    /// The process dies, and another takes its place; nobody is told.
    pub fn restart(&mut self, node: usize) {
        let incarnation = self.nodes[node].incarnation + 1;
        self.nodes[node] = self.fresh(node, incarnation);
    }

    /// How another node addresses this one.
    pub fn address(&self, node: usize) -> Peer {
        let incarnation = self.nodes[node].incarnation;
        Peer {
            name: name_of(node),
            incarnation,
            key: key_of(node, incarnation),
            max_datagram: self.setup.config.max_datagram,
        }
    }

    /// The endpoint of one node for another; connects when it has to.
    pub fn endpoint(&mut self, node: usize, to: usize) -> EndpointId {
        let (peer, now) = (self.address(to), self.now);
        self.nodes[node].engine.connect(peer, now).expect("it connects")
    }

    /// Which node an endpoint leads to.
    pub fn node_of(&self, node: usize, endpoint: EndpointId) -> Option<usize> {
        let facts = self.nodes[node].engine.peer(endpoint)?;
        self.names.get(&facts.name).copied()
    }

    /// The node shall take a turn soon: it was asked for something.
    pub fn nudge(&mut self, node: usize) {
        let at = self.now.max(self.nodes[node].busy);
        self.turn_at(node, at);
    }

    fn turn_at(&mut self, node: usize, at: Instant) {
        if self.nodes[node].turn_at.is_none_or(|already| already > at) {
            self.nodes[node].turn_at = Some(at);
            self.agenda.enter(at, What::Turn { node });
        }
    }

    /// The node takes no turns for so many nanoseconds: its program computes. What comes meanwhile
    /// waits in its buffers.
    pub fn stall(&mut self, node: usize, nanos: u64) {
        let until = self.now.plus(nanos);
        self.nodes[node].busy = self.nodes[node].busy.max(until);
        self.turn_at(node, until);
    }

    /// From now on the node looks at its buffers only every so many nanoseconds, and then until they are
    /// empty: its program computes, and calls now and then. 0: whenever there is something to do.
    pub fn look_every(&mut self, node: usize, nanos: u64) {
        self.nodes[node].period = nanos;
    }

    /// Lets a stopped node go on.
    pub fn wake(&mut self, node: usize) {
        self.nodes[node].stopped = false;
        self.nudge(node);
    }

    /// The next thing happens; `false`: nothing will, or not before `until`, and it is then.
    pub fn step(&mut self, until: Instant) -> bool {
        let Some((at, what)) = self.agenda.next(until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(at);
        match what {
            What::Reaches { port, from, to, channel, bytes } => {
                let delay = self.wires.path(from, to).delay;
                if let Some(arrival) = self.wires.pass(port, delay, bytes, self.now) {
                    self.enter(from, to, channel, arrival);
                }
            }
            What::Arrives { to, channel, bytes } => self.arrive(to, channel, bytes),
            What::Turn { node } => {
                if self.nodes[node].turn_at == Some(at) {
                    self.nodes[node].turn_at = None;
                    self.turn(node);
                }
            }
        }
        true
    }

    /// Every connection with something under way, and what its node has counted, for people.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for to in 0..self.nodes.len() {
                let peer = self.address(to);
                let endpoint = node.engine.endpoint_of(peer.name, peer.incarnation);
                if let Some(facts) = endpoint.and_then(|endpoint| node.engine.peer(endpoint))
                    && (facts.unacknowledged > 0 || facts.queued > 0)
                {
                    text += &format!("{index} to {to}: {facts:?}\n");
                }
            }
            let counted: Vec<String> = node
                .engine
                .counters()
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            text += &format!(
                "{index}: {}, next {:?} at {:?}\n",
                counted.join(", "),
                node.engine.next_timeout(),
                self.now
            );
        }
        text
    }
}

#[cfg(test)]
mod acknowledgements;
#[cfg(test)]
mod apart;
#[cfg(test)]
mod coalesced;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod landed;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod narrow;
#[cfg(test)]
mod parted;
#[cfg(test)]
mod protected;
#[cfg(test)]
mod protected_landings;
#[cfg(test)]
mod protected_runs;
#[cfg(test)]
mod reconnection;
#[cfg(test)]
mod renewal;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
