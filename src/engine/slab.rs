//! Things behind handles: an index and a generation, so that a handle outlives its thing safely.

use crate::error::{Error, Result};

/// Where a thing is kept, and which of those kept there in turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// One number for both.
    pub(crate) const fn raw(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`Self::raw`] made.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self { index: raw as u32, generation: (raw >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Things behind keys. Places are used again, last freed first; generations start at 1.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// The generation of a place that is new: no key of one that was given back is ever valid again.
    first: u32,
    /// Calls of [`Self::trim`] since it has last looked at the table.
    trims: usize,
}

/// A table of so many places is not made smaller.
const SMALL: usize = 64;
/// Places looked at for each call of [`Slab::trim`].
const STEPS: usize = 16_384;

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), first: 1, trims: 0 }
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]
    pub(crate) fn reserve(&mut self) -> Result<()> {
        let room = if self.free.is_empty() { self.entries.try_reserve(1) } else { Ok(()) };
        room.map_err(|_| Error::OutOfResource)
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let (key, place) = self.vacancy();
        *place = Some(value);
        key
    }

    /// Keeps what `make` makes for the key that it gets.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        let (key, place) = self.vacancy();
        *place = Some(make(key));
        key
    }

    /// A free place, and the key of what is kept there.
    #[inline(always)]
    fn vacancy(&mut self) -> (Key, &mut Option<T>) {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let entry = &mut self.entries[index as usize];
        // So there is nothing to be dropped, and what is made is made in its place.
        let None = entry.value else { unreachable!("a free place is empty") };
        (Key { index, generation: entry.generation }, &mut entry.value)
    }

    /// A place more.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        let index = self.entries.len() as u32;
        self.entries.push(Entry { generation: self.first, value: None });
        index
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index);
        Some(value)
    }

    /// Like [`Self::remove`], without moving what goes; whether it was there.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) -> bool {
        let Some(entry) = self.entries.get_mut(index as usize).filter(|entry| entry.value.is_some()) else {
            return false;
        };
        entry.value = None;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index);
        true
    }

    /// Like [`Self::discard`], of what has nothing to be dropped; what it has stays for ever.
    #[inline(always)]
    pub(crate) fn forget(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize).filter(|entry| entry.value.is_some()) else {
            return;
        };
        std::mem::forget(entry.value.take());
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index);
    }

    /// What is kept at `index` now, with its key.
    #[inline]
    pub(crate) fn entry_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let entry = self.entries.get_mut(index as usize)?;
        let key = Key { index, generation: entry.generation };
        entry.value.as_mut().map(|value| (key, value))
    }

    /// The key of what is kept at `index` now.
    #[inline]
    pub(crate) fn key(&self, index: u32) -> Option<Key> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref().map(|_| Key { index, generation: entry.generation })
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// Gives places at the end of the table back that a busy time has left, and sees to it that the
    /// others there fall free in time. It looks at [`STEPS`] places for each call, on the average.
    pub(crate) fn trim(&mut self) {
        self.trims += 1;
        let places = self.entries.len();
        if places <= SMALL || self.len() > places / 4 || self.trims < places / STEPS {
            return;
        }
        self.trims = 0;
        while let Some(last) = self.entries.pop_if(|entry| entry.value.is_none()) {
            self.first = self.first.max(last.generation);
        }
        let places = self.entries.len();
        self.free.retain(|index| (*index as usize) < places);
        // The lowest is used first.
        self.free.sort_unstable_by(|one, other| other.cmp(one));
        self.entries.shrink_to(places.max(SMALL));
        self.free.shrink_to(SMALL);
    }

    /// Places of the table, taken or not.
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Everything kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }

    /// Indices of everything kept.
    pub(crate) fn indices(&self) -> Vec<u32> {
        let kept = |(index, entry): (usize, &Entry<T>)| entry.value.as_ref().map(|_| index as u32);
        self.entries.iter().enumerate().filter_map(kept).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// Keys of some of a slab's things, gathered as they come. Nobody says when one goes: those that are
/// gone are dropped when there are many, so that entering one takes constant time on the average.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    keys: Vec<Key>,
    live: usize,
}

impl Roster {
    /// Enters a key of the slab.
    pub(crate) fn enter<T>(&mut self, key: Key, of: &Slab<T>) {
        if self.keys.len() >= SMALL + 2 * self.live {
            self.keys.retain(|key| of.get(*key).is_some());
            self.live = self.keys.len();
        }
        self.keys.push(key);
    }

    /// Takes all out, also keys of things that are gone.
    pub(crate) fn take(&mut self) -> Vec<Key> {
        self.live = 0;
        std::mem::take(&mut self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_made_is_there_for_the_next() {
        let mut slab = Slab::new();
        for _ in 0..100 {
            slab.reserve().expect("memory");
            let capacity = slab.entries.capacity();
            let key = slab.insert(());
            assert_eq!(slab.entries.capacity(), capacity);
            if key.index % 3 == 0 {
                slab.remove(key.index);
            }
        }
    }

    #[test]
    fn a_key_does_not_find_the_next_tenant() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first.index), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!(slab.key(first.index), Some(second));
        assert_eq!(Key::from_raw(second.raw()), second);
        assert_eq!((slab.remove(second.index), slab.remove(second.index)), (Some('b'), None));
        assert!(slab.len() == 0 && slab.indices().is_empty());
    }

    #[test]
    fn what_is_forgotten_leaves_its_place_to_the_next() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        slab.forget(first.index);
        slab.forget(first.index);
        assert_eq!((slab.get(first), slab.len()), (None, 0));
        let second = slab.insert('b');
        assert!(second.index == first.index && second != first);
    }

    #[test]
    fn a_table_shrinks_and_old_keys_stay_invalid() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..100_000).map(|value| slab.insert(value)).collect();
        for key in &keys[..99_999] {
            slab.remove(key.index);
        }
        (0..10).for_each(|_| slab.trim());
        assert_eq!((slab.places(), slab.get(keys[99_999])), (100_000, Some(&99_999)), "the last is in use");
        assert_eq!(slab.insert(7).index, 0, "what is used next is at the other end");
        slab.remove(keys[99_999].index);
        (0..10).for_each(|_| slab.trim());
        assert_eq!((slab.places(), slab.len()), (1, 1));
        let again: Vec<Key> = (0..1000).map(|value| slab.insert(value)).collect();
        assert!(again.iter().all(|key| !keys.contains(key)), "no old key finds a new tenant");
        assert!(keys.iter().all(|key| slab.get(*key).is_none()));
    }

    #[test]
    fn a_roster_names_those_that_live_and_stays_small() {
        let mut slab = Slab::new();
        let mut roster = Roster::default();
        let lasting = slab.insert(0);
        roster.enter(lasting, &slab);
        for value in 1..10_000 {
            let key = slab.insert(value);
            roster.enter(key, &slab);
            slab.remove(key.index);
            assert!(roster.keys.len() <= 2 * SMALL);
        }
        let live: Vec<Key> = roster.take().into_iter().filter(|key| slab.get(*key).is_some()).collect();
        assert_eq!((live, roster.take()), (vec![lasting], vec![]));
    }
}
