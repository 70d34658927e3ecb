//! Which registrations there are, and which of them serve for a range of memory: a table that does nothing but remember.
//!
//! A registration is *held* by whoever has asked for it, any number of times. One that nobody holds any more may be *kept*,
//! because the same memory is often used again; what is kept is bounded, by number and by bytes, and what was used longest
//! ago goes first. Memory that is gone takes what covers it along: nothing finds that again, and it ends as soon as nobody
//! holds it.
//!
//! INVARIANT: of those that are found and have the same rights, none lies within another: in the order of their first
//! addresses they are in the order of their ends. So the one that begins last before an address is the one that reaches
//! furthest, and a search looks at one entry for each set of rights.

use std::collections::BTreeMap;

/// What may be done with registered memory, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights(u8);

impl Rights {
    /// It is read from here, for which no right is needed.
    pub(super) const NONE: Self = Self(0);
    /// What arrives is written there.
    pub(super) const FILLED: Self = Self(1);
    /// Peers read it.
    pub(super) const READ: Self = Self(2);
    /// Peers write it.
    pub(super) const WRITTEN: Self = Self(4);
    /// Peers' atomic operations change it.
    pub(super) const CHANGED: Self = Self(8);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn allow(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All sets.
    fn all() -> impl Iterator<Item = Self> {
        (0..SETS as u8).map(Self)
    }
}

const SETS: usize = 16;

/// From the first address up to the second.
pub(super) type Span = (usize, usize);

/// What is kept of what nobody holds, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Given up for others.
    pub(super) evictions: u64,
    /// Given up because memory was gone.
    pub(super) invalidations: u64,
}

struct Entry<M> {
    span: Span,
    rights: Rights,
    holders: usize,
    /// It is in the order of its rights.
    is_found: bool,
    /// It may be kept when nobody holds it.
    may_stay: bool,
    /// Its place in the order of use, while it is kept and nobody holds it.
    turn: Option<u64>,
    memory: M,
}

/// What tells registrations apart: whoever has the table gives them numbers.
pub(super) type Key = u64;

/// All of a port.
pub(super) struct Cache<M> {
    bounds: Bounds,
    entries: BTreeMap<Key, Entry<M>>,
    /// Of each set of rights, by the first address: the end, and the key.
    found: [BTreeMap<usize, (usize, Key)>; SETS],
    /// Those that are kept, by when they were used.
    idle: BTreeMap<u64, Key>,
    idle_bytes: usize,
    turn: u64,
    /// What has ended: whoever has the table ends it when he has let go of the table.
    ended: Vec<(Key, M)>,
    tally: Tally,
}

impl<M> Cache<M> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            entries: BTreeMap::new(),
            found: Default::default(),
            idle: BTreeMap::new(),
            idle_bytes: 0,
            turn: 0,
            ended: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// One that covers a range and has these rights. Whoever finds it uses it now.
    pub(super) fn find(&mut self, span: Span, rights: Rights) -> Option<(Key, &M)> {
        let key = self.covering(span, rights)?;
        let entry = self.entries.get_mut(&key)?;
        if let Some(turn) = &mut entry.turn {
            self.turn += 1;
            self.idle.remove(turn);
            self.idle.insert(self.turn, key);
            *turn = self.turn;
        }
        Some((key, &entry.memory))
    }

    fn covering(&self, (start, end): Span, rights: Rights) -> Option<Key> {
        let covers = |set: Rights| {
            let (_, &(reach, key)) = self.found[usize::from(set.0)].range(..=start).next_back()?;
            (reach >= end).then_some(key)
        };
        Rights::all().filter(|set| set.allow(rights)).find_map(covers)
    }

    /// One more holds it.
    pub(super) fn hold(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.holders += 1;
        if let Some(turn) = entry.turn.take() {
            self.idle.remove(&turn);
            self.idle_bytes -= entry.span.1 - entry.span.0;
        }
    }

    /// A new one, which one holds. It is found unless another serves for all that it does, and those that it serves for are
    /// not found any more.
    pub(super) fn insert(&mut self, span: Span, rights: Rights, key: Key, may_stay: bool, memory: M) {
        debug_assert!(!self.entries.contains_key(&key));
        let is_found = self.covering(span, rights).is_none();
        if is_found {
            for set in Rights::all().filter(|set| rights.allow(*set)) {
                let within = self.found[usize::from(set.0)].range(span.0..).map(|(_, &within)| within);
                let within: Vec<Key> =
                    within.take_while(|(end, _)| *end <= span.1).map(|(_, key)| key).collect();
                within.into_iter().for_each(|key| self.lose(key));
            }
            self.found[usize::from(rights.0)].insert(span.0, (span.1, key));
        }
        let entry = Entry { span, rights, holders: 1, is_found, may_stay, turn: None, memory };
        self.entries.insert(key, entry);
    }

    /// One holds it no longer.
    pub(super) fn release(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders != 0 || entry.turn.is_some() {
            return;
        }
        let bytes = entry.span.1 - entry.span.0;
        // What is longer than all that may be kept would take everything else along.
        if !(entry.is_found && entry.may_stay) || bytes > self.bounds.bytes {
            return self.remove(key);
        }
        self.turn += 1;
        entry.turn = Some(self.turn);
        self.idle.insert(self.turn, key);
        self.idle_bytes += bytes;
        while (self.idle.len() > self.bounds.count || self.idle_bytes > self.bounds.bytes)
            && self.evict(|_| true).is_some()
        {}
    }

    /// Bytes of what nobody holds.
    pub(super) fn idle_bytes(&self) -> usize {
        self.idle_bytes
    }

    /// Gives up what was used longest ago of what nobody holds and `may` go: its bytes, if there is any.
    pub(super) fn evict(&mut self, may: impl Fn(&M) -> bool) -> Option<usize> {
        let mut idle = self.idle.values().filter_map(|key| Some((*key, self.entries.get(key)?)));
        let (key, (start, end)) =
            idle.find(|(_, entry)| may(&entry.memory)).map(|(key, entry)| (key, entry.span))?;
        self.tally.evictions += 1;
        self.remove(key);
        Some(end - start)
    }

    /// This memory is gone.
    pub(super) fn forget(&mut self, (start, end): Span) {
        for set in 0..SETS {
            let before = self.found[set].range(..end).rev().map(|(_, &before)| before);
            let hit: Vec<Key> = before.take_while(|(end, _)| *end > start).map(|(_, key)| key).collect();
            self.tally.invalidations += hit.len() as u64;
            hit.into_iter().for_each(|key| self.lose(key));
        }
    }

    /// Any memory may be gone.
    pub(super) fn forget_all(&mut self) {
        self.forget((0, usize::MAX));
    }

    /// Nothing more is kept of what nobody holds.
    pub(super) fn keep_none(&mut self) {
        self.bounds = Bounds { count: 0, bytes: 0 };
        self.forget_all();
    }

    /// What has ended since the last time.
    pub(super) fn take_ended(&mut self) -> Vec<(Key, M)> {
        std::mem::take(&mut self.ended)
    }

    /// It is not found any more, and ends if nobody holds it.
    fn lose(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if entry.holders == 0 {
            return self.remove(key);
        }
        if std::mem::take(&mut entry.is_found) {
            self.found[usize::from(entry.rights.0)].remove(&entry.span.0);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else { return };
        if let Some(turn) = entry.turn {
            self.idle.remove(&turn);
            self.idle_bytes -= entry.span.1 - entry.span.0;
        }
        if entry.is_found {
            self.found[usize::from(entry.rights.0)].remove(&entry.span.0);
        }
        self.ended.push((key, entry.memory));
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
