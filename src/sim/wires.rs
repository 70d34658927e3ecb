//! What is between nodes: datagrams are lost, delayed, repeated, overtaken, changed and queued here,
//! and [`Agenda`] says what happens when.

use super::Random;
use crate::engine::Channel;
use crate::engine::time::Instant;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

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
    /// Bytes of a datagram that may be changed: past these only a tag over the payload would notice,
    /// and links have checksums.
    exposed: usize,
    /// When each node's way out is free again.
    free: Vec<Instant>,
    /// Memory of datagrams that are gone.
    spare: Vec<Vec<u8>>,
}

/// When a datagram arrives, and as what.
pub type Arrival = (Instant, Vec<u8>);

impl Wires {
    /// The network of this many nodes.
    pub fn new(path: Path, exposed: usize, nodes: usize, seed: u64) -> Self {
        Self {
            fates: Fates::default(),
            cut: Vec::new(),
            lossy: None,
            random: Random::new(seed),
            path,
            exposed,
            free: vec![Instant::ORIGIN; nodes],
            spare: Vec::new(),
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
        let path = self.path.clone();
        let mut at = now;
        if path.rate > 0 {
            let free = self.free[from];
            let waits = free.nanos().saturating_sub(at.nanos());
            if waits.saturating_mul(path.rate) / 1_000_000_000 > path.queue {
                self.fates.overflowed += 1;
                self.discard(bytes);
                return [None, None];
            }
            let takes = bytes.len() as u64 * 1_000_000_000 / path.rate;
            at = free.max(at).plus(takes);
            self.free[from] = at;
        }
        let lossy = self.lossy.is_none_or(|lossy| lossy == channel);
        if lossy && self.random.happens(path.loss) || self.cut.contains(&(from, to)) {
            self.fates.lost += 1;
            self.discard(bytes);
            return [None, None];
        }
        let mut twice = None;
        if self.random.happens(path.duplication) {
            self.fates.duplicated += 1;
            let again = at.plus(path.delay + self.random.below(path.lateness));
            twice = Some((again, bytes.clone()));
        }
        if self.random.happens(path.corruption) {
            self.fates.corrupted += 1;
            let end = bytes.len().min(self.exposed);
            let bit = self.random.below(end as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        at = at.plus(path.delay);
        if self.random.happens(path.reordering) {
            self.fates.delayed += 1;
            at = at.plus(self.random.below(path.lateness));
        }
        [twice, Some((at, bytes))]
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
