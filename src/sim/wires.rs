//! What is between nodes: datagrams are lost, delayed, repeated, overtaken, changed and queued here,
//! and [`Agenda`] says what happens when.
//!
//! Between two nodes lies a [`Path`]: the same one everywhere, or one of its own for a direction.
//! A direction may lead through the port of a switch, which it shares with others.

use super::Random;
use super::switch::{Port, PortId, leave};
use crate::engine::Channel;
use crate::engine::time::Instant;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

/// What happens to datagrams between any two nodes, each direction for itself.
#[derive(Clone, Debug)]
pub struct Path {
    /// Lost, in a million.
    pub loss: u32,
    /// Sent twice, in a million.
    pub duplication: u32,
    /// One bit turned over, in a million.
    pub corruption: u32,
    /// Late by up to [`Self::lateness`], in a million.
    pub reordering: u32,
    /// See there; nanoseconds.
    pub lateness: u64,
    /// Way there, nanoseconds.
    pub delay: u64,
    /// Bytes a second of a node's way out; 0: no bound.
    pub rate: u64,
    /// Bytes that may wait for the way out; what comes then is dropped.
    pub queue: u64,
    /// Longest datagram that it carries; a longer one vanishes without a word.
    pub width: usize,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            loss: 0,
            duplication: 0,
            corruption: 0,
            reordering: 0,
            lateness: 100_000,
            delay: 10_000,
            rate: 0,
            queue: u64::MAX,
            width: usize::MAX,
        }
    }
}

/// What happened to datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Sent by nodes.
    pub sent: u64,
    /// Handed to nodes.
    pub arrived: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Dropped by a full queue.
    pub overflowed: u64,
    /// Longer than the path is wide.
    pub too_long: u64,
    /// Dropped by a full receive buffer.
    pub overrun: u64,
    /// Made two of.
    pub duplicated: u64,
    /// Changed on the way.
    pub corrupted: u64,
    /// Overtaken on purpose.
    pub delayed: u64,
}

/// The network between nodes.
#[derive(Debug)]
pub struct Wires {
    /// What happened to datagrams.
    pub fates: Fates,
    /// Directions that lose everything: from, to.
    pub cut: Vec<(usize, usize)>,
    /// The channel of which alone datagrams are lost (`None`: both).
    pub lossy: Option<Channel>,
    /// The dice.
    pub random: Random,
    path: Path,
    /// Paths of directions that differ: from, to.
    own: HashMap<(usize, usize), Path>,
    ports: Vec<Port>,
    /// Which port a direction leads through: from, to.
    through: HashMap<(usize, usize), PortId>,
    /// Bytes of a datagram that may be changed: past these only a tag over the payload would notice,
    /// and links have checksums.
    exposed: usize,
    /// When each node's way out is free again.
    free: Vec<Instant>,
    /// Memory of datagrams that are gone.
    spare: Vec<Vec<u8>>,
}

/// When a datagram comes to its next stop, and as what.
#[derive(Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// The datagram.
    pub bytes: Vec<u8>,
    /// Where: at this port, which [`Wires::pass`] takes it through, or at its end.
    pub port: Option<PortId>,
}

impl Wires {
    /// The network of this many nodes.
    pub fn new(path: Path, exposed: usize, nodes: usize, seed: u64) -> Self {
        Self {
            fates: Fates::default(),
            cut: Vec::new(),
            lossy: None,
            random: Random::new(seed),
            path,
            own: HashMap::new(),
            ports: Vec::new(),
            through: HashMap::new(),
            exposed,
            free: vec![Instant::ORIGIN; nodes],
            spare: Vec::new(),
        }
    }

    /// One direction gets a path of its own, from now on.
    pub fn set_path(&mut self, from: usize, to: usize, path: Path) {
        self.own.insert((from, to), path);
    }

    /// The path of a direction.
    pub fn path(&self, from: usize, to: usize) -> &Path {
        self.own.get(&(from, to)).unwrap_or(&self.path)
    }

    /// Adds a port that directions can be led through.
    pub fn add_port(&mut self, port: Port) -> PortId {
        self.ports.push(port);
        PortId(self.ports.len() - 1)
    }

    /// A port and what it has counted.
    pub fn port(&self, port: PortId) -> &Port {
        &self.ports[port.0]
    }

    /// Leads a direction through a port, behind the sender's way out.
    pub fn lead_through(&mut self, from: usize, to: usize, port: PortId) {
        self.through.insert((from, to), port);
    }

    /// A datagram has come to a port: when it arrives at its end, unless the port drops it.
    pub fn pass(&mut self, port: PortId, delay: u64, bytes: Vec<u8>, now: Instant) -> Option<Arrival> {
        match self.ports[port.0].pass(bytes.len(), now) {
            Some(left) => Some(Arrival { at: left.plus(delay), bytes, port: None }),
            None => {
                self.fates.overflowed += 1;
                self.discard(bytes);
                None
            }
        }
    }

    /// An empty datagram.
    pub fn blank(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes
    }

    /// Takes a datagram back that nobody needs any more.
    pub fn discard(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    /// Carries a datagram: it arrives not at all, once or twice.
    pub fn carry(
        &mut self,
        from: usize,
        to: usize,
        channel: Channel,
        mut bytes: Vec<u8>,
        now: Instant,
    ) -> [Option<Arrival>; 2] {
        self.fates.sent += 1;
        let path = self.path(from, to).clone();
        let mut at = now;
        if bytes.len() > path.width {
            self.fates.too_long += 1;
            self.discard(bytes);
            return [None, None];
        }
        if path.rate > 0 {
            match leave(&mut self.free[from], path.rate, path.queue, bytes.len(), now) {
                Some(left) => at = left,
                None => {
                    self.fates.overflowed += 1;
                    self.discard(bytes);
                    return [None, None];
                }
            }
        }
        let lossy = self.lossy.is_none_or(|lossy| lossy == channel);
        if lossy && self.random.happens(path.loss) || self.cut.contains(&(from, to)) {
            self.fates.lost += 1;
            self.discard(bytes);
            return [None, None];
        }
        // Behind a port the datagram has all of its way still before it.
        let port = self.through.get(&(from, to)).copied();
        let delay = if port.is_some() { 0 } else { path.delay };
        let mut twice = None;
        if self.random.happens(path.duplication) {
            self.fates.duplicated += 1;
            let at = at.plus(delay + self.random.below(path.lateness));
            twice = Some(Arrival { at, bytes: bytes.clone(), port });
        }
        if self.random.happens(path.corruption) {
            self.fates.corrupted += 1;
            let end = bytes.len().min(self.exposed);
            let bit = self.random.below(end as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        at = at.plus(delay);
        if self.random.happens(path.reordering) {
            self.fates.delayed += 1;
            at = at.plus(self.random.below(path.lateness));
        }
        [twice, Some(Arrival { at, bytes, port })]
    }
}

struct Entry<W> {
    at: Instant,
    order: u64,
    what: W,
}

impl<W> PartialEq for Entry<W> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<W> Eq for Entry<W> {}

impl<W> PartialOrd for Entry<W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<W> Ord for Entry<W> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What will happen, and when; of what happens at the same time, what was entered first.
pub struct Agenda<W> {
    order: u64,
    entries: BinaryHeap<Reverse<Entry<W>>>,
}

impl<W> Agenda<W> {
    /// Nothing will happen.
    pub const fn new() -> Self {
        Self { order: 0, entries: BinaryHeap::new() }
    }

    /// This will.
    pub fn enter(&mut self, at: Instant, what: W) {
        self.order += 1;
        self.entries.push(Reverse(Entry { at, order: self.order, what }));
    }

    /// The next thing, if it happens until then.
    pub fn next(&mut self, until: Instant) -> Option<(Instant, W)> {
        self.entries.peek().filter(|Reverse(entry)| entry.at <= until)?;
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<W> Default for Agenda<W> {
    fn default() -> Self {
        Self::new()
    }
}
