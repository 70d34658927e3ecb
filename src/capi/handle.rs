//! Handles: numbers that C keeps. What one names is looked up in a table, so that a stale, a foreign or an
//! invented one is a code, and never memory.
//!
//! A handle is a place and which of those that had the place it is: its *generation*, which tables count for as
//! long as the process lives. The place says the kind of thing, the transport, and the module. None is 0.

use super::code::{HAWSER_ERR_MEMORY, HAWSER_ERR_STALE, Outcome};

/// Modules of one transport at a time.
pub(super) const MODULES: usize = 32;
/// Transports that handles tell apart.
pub(super) const TRANSPORTS: usize = 16;
/// The first that is a matching one.
pub(super) const MATCHING: usize = 8;
/// Things of one kind in one module.
const PLACES: usize = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 20;
const MODULE_BITS: u32 = MODULES.trailing_zeros();
const TRANSPORT_BITS: u32 = TRANSPORTS.trailing_zeros();

const _: () = assert!(INDEX_BITS + MODULE_BITS + TRANSPORT_BITS + 3 == 32);

/// The generation with which a process begins: no number that a program has by chance is a handle.
pub(super) const FIRST: u32 = 0x6877_0001;

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Module,
    Endpoint,
    Fragment,
    Memory,
    /// A PUT or GET, which C has no handle of.
    Operation,
    /// A send or receive of a matching transport.
    Request,
    /// A message that a matched probe has claimed.
    Message,
}

/// How many kinds there are whose generations a place of modules keeps.
pub(super) const KINDS: usize = 7;

/// Which module of which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) transport: usize,
    pub(super) module: usize,
}

/// What a handle says, before anybody has looked whether it is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) generation: u32,
    pub(super) index: usize,
}

impl Place {
    /// The lower half of a handle of something in this place.
    const fn bits(self, kind: Kind) -> u32 {
        let module = (self.transport << MODULE_BITS | self.module) as u32;
        (kind as u32) << (TRANSPORT_BITS + MODULE_BITS + INDEX_BITS) | module << INDEX_BITS
    }

    /// A handle.
    #[inline]
    pub(super) const fn handle(self, kind: Kind, key: Key) -> u64 {
        (key.generation as u64) << 32 | self.bits(kind) as u64 | key.index as u64
    }

    /// What a handle says, if it is of this kind and place.
    #[inline]
    pub(super) const fn key(self, kind: Kind, handle: u64) -> Option<Key> {
        if handle as u32 & !(PLACES as u32 - 1) != self.bits(kind) {
            return None;
        }
        Some(Key { generation: (handle >> 32) as u32, index: handle as usize & (PLACES - 1) })
    }

    /// Which module of this transport a handle names.
    #[inline]
    pub(super) const fn of_module(transport: usize, handle: u64) -> Option<(Self, u32)> {
        let place = Self { transport, module: handle as usize >> INDEX_BITS & (MODULES - 1) };
        match place.key(Kind::Module, handle) {
            Some(Key { generation, index: 0 }) => Some((place, generation)),
            _ => None,
        }
    }
}

/// Things of one kind of one module.
pub(super) struct Table<V> {
    entries: Vec<Entry<V>>,
    free: Vec<u32>,
    /// Of the next thing; never 0.
    generation: u32,
}

struct Entry<V> {
    generation: u32,
    value: Option<V>,
}

/// The generation behind one.
pub(super) const fn next(generation: u32) -> u32 {
    if generation == u32::MAX { 1 } else { generation + 1 }
}

impl<V> Table<V> {
    /// An empty table, which goes on where the last one in its place has ended.
    pub(super) const fn new(generation: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), generation }
    }

    /// Where the next table in this place goes on.
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Keeps something.
    #[inline]
    pub(super) fn insert(&mut self, value: V) -> Outcome<Key> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => self.grow()?,
        };
        let generation = self.generation;
        self.generation = next(generation);
        self.entries[index] = Entry { generation, value: Some(value) };
        Ok(Key { generation, index })
    }

    /// One more place, and room for it among those that are free.
    #[cold]
    fn grow(&mut self) -> Outcome<usize> {
        let index = self.entries.len();
        if index == PLACES {
            return Err(HAWSER_ERR_MEMORY);
        }
        self.entries.try_reserve(1).map_err(|_| HAWSER_ERR_MEMORY)?;
        self.free.try_reserve(index + 1).map_err(|_| HAWSER_ERR_MEMORY)?;
        self.entries.push(Entry { generation: 0, value: None });
        Ok(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Outcome<&mut V> {
        match self.entries.get_mut(key.index) {
            Some(Entry { generation, value: Some(value) }) if *generation == key.generation => Ok(value),
            _ => Err(HAWSER_ERR_STALE),
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Outcome<V> {
        self.get_mut(key)?;
        let value = self.entries[key.index].value.take().ok_or(HAWSER_ERR_STALE)?;
        self.free.push(key.index as u32);
        Ok(value)
    }

    /// All that is kept.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// All that is kept, taken out. The table goes on with what comes next.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Key, V)> + use<V> {
        let entries = std::mem::replace(self, Self::new(self.generation)).entries;
        entries.into_iter().enumerate().filter_map(|(index, Entry { generation, value })| {
            value.map(|value| (Key { generation, index }, value))
        })
    }

    /// The same, of a table that ends.
    pub(super) fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().filter_map(|entry| entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { transport: 1, module: 3 };

    #[test]
    fn a_handle_is_of_one_kind_one_module_and_one_life() {
        let mut table = Table::new(1);
        let first = table.insert('a').expect("room");
        let handle = HERE.handle(Kind::Fragment, first);
        assert_eq!(HERE.key(Kind::Fragment, handle), Some(first));
        assert_eq!(HERE.key(Kind::Memory, handle), None);
        for other in [Place { transport: 2, ..HERE }, Place { module: 4, ..HERE }] {
            assert_eq!(other.key(Kind::Fragment, handle), None);
        }
        assert_eq!((table.remove(first), table.remove(first)), (Ok('a'), Err(HAWSER_ERR_STALE)));
        let second = table.insert('b').expect("room");
        assert!(second.index == first.index && table.get_mut(first).is_err());
        assert_eq!(table.get_mut(second), Ok(&mut 'b'));
        let mut later = Table::new(table.generation());
        let third = later.insert('c').expect("room");
        assert!(later.get_mut(first).is_err() && later.get_mut(second).is_err());
        assert!(third.index == first.index && later.drain().eq([(third, 'c')]));
        let fourth = later.insert('d').expect("room");
        assert!(
            later.get_mut(third).is_err() && fourth.index == third.index && later.into_values().eq(['d'])
        );
    }

    #[test]
    fn a_module_is_found_by_its_handle_alone() {
        let handle = HERE.handle(Kind::Module, Key { generation: 9, index: 0 });
        assert_eq!(Place::of_module(1, handle), Some((HERE, 9)));
        assert_eq!((Place::of_module(2, handle), Place::of_module(1, handle | 1)), (None, None));
        assert_eq!(Place::of_module(1, HERE.handle(Kind::Endpoint, Key { generation: 9, index: 0 })), None);
        assert_eq!((next(1), next(u32::MAX)), (2, 1));
    }

    #[test]
    fn a_table_that_is_full_says_so() {
        let mut table = Table::new(1);
        (0..PLACES).for_each(|_| _ = table.insert(()).expect("room"));
        assert_eq!(table.insert(()), Err(HAWSER_ERR_MEMORY));
        table.remove(Key { generation: 8, index: 7 }).expect("the eighth");
        assert_eq!(table.insert(()), Ok(Key { generation: PLACES as u32 + 1, index: 7 }));
    }
}
