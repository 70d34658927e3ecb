//! Nodes, links and faults in virtual time.
//!
//! Several engines, each behind two receive buffers, over a network that loses, delays, repeats,
//! reorders, corrupts and queues. Everything follows from one seed: a run that fails is repeated
//! by its seed. Time passes only in [`Network::step`].
//!
//! A node takes its turn when something has arrived for it or its time has come: it hands in what
//! its buffers hold, takes events, and sends. Each datagram costs it time, so that what arrives
//! faster than it works fills its buffers.

pub mod flows;
pub mod fuzz;
pub mod link;
mod numbers;
mod switch;
pub mod traffic;
mod wires;

pub use switch::{Port, PortId};
pub use wires::{Agenda, Arrival, Fates, Path, Wires};

use crate::config;
use crate::engine::time::Instant;
use crate::engine::{
    AWAY, Channel, EndpointId, Engine, Event, Fragment, Header, Identity, Memory, Peer, Received, Transmit,
};
use crate::error::Result;
use crate::wire::usnic::SHORT_HEADER_LEN;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Numbers that look random and follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// Happens so often in a million times.
    pub fn happens(&mut self, in_a_million: u32) -> bool {
        in_a_million > 0 && self.number() % 1_000_000 < u64::from(in_a_million)
    }
}

/// Bytes that may be shared: the simulator's memory.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Rc<RefCell<Vec<u8>>>,
    start: usize,
    len: usize,
}

impl Block {
    /// A block of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { bytes: Rc::new(RefCell::new(bytes)), start: 0, len }
    }

    /// A part of it.
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "outside of the block");
        Self { bytes: Rc::clone(&self.bytes), start: self.start + start, len }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.borrow()[self.start..self.start + self.len].to_vec()
    }

    /// How many hold on to the bytes.
    pub fn holders(&self) -> usize {
        Rc::strong_count(&self.bytes)
    }
}

impl Memory for Block {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.len, "read outside of the block");
        let start = self.start + offset;
        to.copy_from_slice(&self.bytes.borrow()[start..start + to.len()]);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.len, "write outside of the block");
        let start = self.start + offset;
        self.bytes.borrow_mut()[start..start + from.len()].copy_from_slice(from);
    }
}

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
            engine: Engine::new(&self.setup.config, identity, capacity, self.now),
            stopped: false,
            buffers: [VecDeque::new(), VecDeque::new()],
            filled: [0; 2],
            is_refused: false,
            busy: self.now,
            free: self.now,
            turn_at: None,
            incarnation,
            period: 0,
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

    fn arrive(&mut self, to: usize, channel: Channel, bytes: Vec<u8>) {
        let node = &mut self.nodes[to];
        let filled = &mut node.filled[channel as usize];
        if *filled + bytes.len() > self.setup.receive_buffer {
            self.wires.fates.overrun += 1;
            self.wires.discard(bytes);
            return;
        }
        *filled += bytes.len();
        node.buffers[channel as usize].push_back((self.now, bytes));
        self.nudge(to);
    }

    fn turn(&mut self, index: usize) {
        if self.nodes[index].stopped {
            return;
        }
        if self.now < self.nodes[index].busy {
            self.turn_at(index, self.nodes[index].busy);
            return;
        }
        let node = &mut self.nodes[index];
        // Since it had time, a datagram has waited so long for a turn.
        if node.oldest().is_some_and(|oldest| self.now.since(oldest.max(node.free)) > AWAY) {
            node.engine.note_away(self.now);
        }
        let (mut cost, mut handed_in) = (0, 0);
        for channel in [Channel::Priority, Channel::Data] {
            for _ in 0..64 {
                if channel == Channel::Data {
                    let joined = self.hand_in_joined(index);
                    cost += self.setup.work * joined;
                    handed_in += joined;
                }
                let node = &mut self.nodes[index];
                let Some((came, bytes)) = node.buffers[channel as usize].pop_front() else { break };
                node.filled[channel as usize] -= bytes.len();
                cost += self.setup.work;
                handed_in += 1;
                self.hand_in(index, came, &bytes);
                self.wires.discard(bytes);
            }
        }
        let (now, node) = (self.now, &mut self.nodes[index]);
        node.free = now.plus(cost);
        if node.oldest().is_none() {
            node.engine.note_drained();
        }
        // After a single one the rest may be left to the next turn, and the user may send before.
        if handed_in == 1 && self.nodes[index].engine.has_deferred() && self.wires.random.below(2) == 0 {
            self.nodes[index].busy = now.plus(cost);
            self.nudge(index);
            return;
        }
        self.nodes[index].engine.handle_timeout(now);
        while let Some(event) = self.nodes[index].engine.poll_event() {
            self.report(index, event);
        }
        while let Some(transmit) = self.nodes[index].engine.poll_transmit_run(RUN, now) {
            cost += self.setup.work * (1 + transmit.following as u64);
            self.hand_out(index, &transmit);
        }
        let node = &mut self.nodes[index];
        node.free = now.plus(cost);
        let waits = node.oldest().is_some();
        node.busy = if waits { node.free } else { node.free.max(node.next_look(now)) };
        let next = if waits { Some(node.busy) } else { node.engine.next_timeout() };
        if let Some(next) = next {
            let at = next.max(node.busy).max(now.plus(1));
            self.turn_at(index, at);
        }
    }

    /// Sends a fragment, at once if it may leave at once.
    pub fn send(&mut self, node: usize, endpoint: EndpointId, fragment: Fragment<Block>) -> Result<()> {
        let now = self.now;
        let (cookie, mut header) = (fragment.cookie, Header::EMPTY);
        if self.nodes[node].engine.send_copy(endpoint, &fragment, now, &mut header) {
            let pieces = [None, None];
            let transmit = Transmit { endpoint, channel: Channel::Priority, header, pieces, following: 0 };
            self.hand_out(node, &transmit);
            self.report(node, Event::Done { cookie, outcome: Ok(()) });
        } else if let Some(transmit) = self.nodes[node].engine.send_at_once(endpoint, fragment, now)? {
            self.hand_out(node, &transmit);
        }
        self.nudge(node);
        Ok(())
    }

    fn hand_out(&mut self, index: usize, transmit: &Transmit<Block>) {
        if self.nodes[index].engine.is_protected() {
            self.hand_out_protected(index, transmit);
            return;
        }
        let mut carried = Vec::new();
        for piece in transmit.pieces.iter().flatten() {
            let start = carried.len();
            carried.resize(start + piece.len, 0);
            piece.memory.read(piece.offset, &mut carried[start..]);
        }
        if transmit.following == 0 {
            self.hand_out_one(index, transmit, &transmit.header, &carried);
            return;
        }
        let headers = self.nodes[index].engine.headers();
        let ((headers, len), payload) = (headers.bytes(), headers.payload());
        let headers: Vec<Vec<u8>> = headers.chunks_exact(len).map(<[u8]>::to_vec).collect();
        assert_eq!(headers.len(), 1 + transmit.following);
        assert_eq!(carried.len().div_ceil(payload), headers.len(), "each carries something");
        for (header, carried) in headers.iter().zip(carried.chunks(payload)) {
            self.hand_out_one(index, transmit, header, carried);
        }
    }

    fn hand_out_protected(&mut self, index: usize, transmit: &Transmit<Block>) {
        let Some(seals) = self.nodes[index].engine.protect(transmit) else { return };
        let mut all = Vec::new();
        for seal in seals {
            let (len, mut bytes) = (seal.len(), self.wires.blank());
            seal.write(&mut bytes);
            assert_eq!(bytes.len(), len, "a datagram has another length than it was said to have");
            all.push(bytes);
        }
        assert_eq!(all.len(), 1 + transmit.following);
        for bytes in all {
            self.numbers.note(index, self.nodes[index].incarnation, &bytes);
            self.dispatch(index, transmit, bytes);
        }
    }

    fn hand_out_one(&mut self, index: usize, transmit: &Transmit<Block>, header: &[u8], carried: &[u8]) {
        let mut bytes = self.wires.blank();
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(carried);
        self.dispatch(index, transmit, bytes);
    }

    fn dispatch(&mut self, index: usize, transmit: &Transmit<Block>, bytes: Vec<u8>) {
        assert!(bytes.len() <= self.setup.config.max_datagram, "a datagram is too long");
        match self.node_of(index, transmit.endpoint) {
            Some(to) => self.put_on_wire((index, to), transmit.channel, bytes),
            // It is closed, and only lingers; the packet itself says who is meant.
            None => self.post_late(index, transmit.endpoint, transmit.channel, bytes),
        }
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

    fn post_late(&mut self, index: usize, endpoint: EndpointId, channel: Channel, bytes: Vec<u8>) {
        if let Some(peer) = self.nodes[index].engine.peer_name(endpoint)
            && let Some(&to) = self.names.get(&peer)
        {
            self.post(index, to, channel, bytes);
        }
    }

    /// Joins datagrams that wait one behind the other, as a kernel does, and hands them in; how many were taken.
    fn hand_in_joined(&mut self, index: usize) -> u64 {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let waiting = &node.buffers[Channel::Data as usize];
        let Some((came, first)) = waiting.front() else { return 0 };
        let (came, size, most) = (*came, first.len(), if node.is_refused { 2 } else { JOINED });
        let mut joined = Vec::new();
        for (_, bytes) in waiting.iter().take(most).filter(|_| size > 0) {
            if bytes.len() > size {
                break;
            }
            joined.extend_from_slice(bytes);
            if bytes.len() < size {
                break;
            }
        }
        if joined.len() <= size {
            return 0;
        }
        let arrived = self.setup.stamps.then_some(came);
        let taken = if node.engine.is_protected() {
            node.engine.handle_protected_run(&mut joined, size, arrived, now)
        } else {
            node.engine.handle_run(&joined, size, arrived, now)
        };
        node.is_refused = taken == 0;
        for _ in 0..taken {
            if let Some((_, bytes)) = node.buffers[Channel::Data as usize].pop_front() {
                node.filled[Channel::Data as usize] -= bytes.len();
                self.wires.discard(bytes);
            }
        }
        self.wires.fates.arrived += taken as u64;
        taken as u64
    }

    fn hand_in(&mut self, index: usize, came: Instant, bytes: &[u8]) {
        self.wires.fates.arrived += 1;
        let (now, arrived) = (self.now, self.setup.stamps.then_some(came));
        let mut received = self.nodes[index].engine.handle_datagram(bytes, arrived, now);
        if let Received::Unknown { name, incarnation } = received {
            let known = self.names.get(&name).copied();
            let Some(from) = known.filter(|from| self.nodes[*from].incarnation == incarnation) else {
                return;
            };
            let _ = self.endpoint(index, from);
            received = self.nodes[index].engine.handle_datagram(bytes, arrived, now);
        }
        if let Received::Deliver { endpoint, tag, payload } = received {
            let from = self.node_of(index, endpoint).expect("known");
            let bytes = bytes[payload].to_vec();
            self.happened.push_back(Happened::Delivered { node: index, from, tag, bytes });
        }
    }

    fn report(&mut self, index: usize, event: Event) {
        if let Event::Deliver { endpoint, tag, buffer } = event {
            let bytes = buffer.to_vec();
            if let Some(from) = self.node_of(index, endpoint) {
                self.happened.push_back(Happened::Delivered { node: index, from, tag, bytes });
            }
            self.nodes[index].engine.recycle(buffer);
        } else if let Event::Over { name, reset, .. } = &event {
            if let Some(&to) = self.names.get(name) {
                self.post(index, to, Channel::Priority, reset.to_vec());
            }
        } else {
            self.happened.push_back(Happened::Event { node: index, event });
        }
    }

    /// Puts a datagram on its way.
    pub fn post(&mut self, from: usize, to: usize, channel: Channel, bytes: Vec<u8>) {
        self.put_on_wire((from, to), channel, bytes);
    }

    fn put_on_wire(&mut self, (from, to): (usize, usize), channel: Channel, bytes: Vec<u8>) {
        for arrival in self.wires.carry(from, to, channel, bytes, self.now).into_iter().flatten() {
            self.enter(from, to, channel, arrival);
        }
    }

    fn enter(&mut self, from: usize, to: usize, channel: Channel, arrival: Arrival) {
        let Arrival { at, bytes, port } = arrival;
        let what = match port {
            Some(port) => What::Reaches { port, from, to, channel, bytes },
            None => What::Arrives { to, channel, bytes },
        };
        self.agenda.enter(at, what);
    }
}

#[cfg(test)]
mod costs;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod narrow;
#[cfg(test)]
mod protected;
#[cfg(test)]
mod protected_runs;
#[cfg(test)]
mod reconnection;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
