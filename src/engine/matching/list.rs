//! Lists that run through the entries of a slab, so that an entry leaves the middle of one in constant time.
//!
//! An entry stands in several lists at a time: it has a pair of links for each of its *lanes*.

use crate::engine::slab::{Key, Slab};

/// A place where nothing is ever kept.
const NONE: u32 = u32::MAX;

/// The neighbours of an entry in one lane.
#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
}

/// The ends of a list, by place in the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// The oldest entry; a place where nothing is, if there is none.
    #[inline]
    pub(super) const fn first(self) -> u32 {
        self.first
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// An entry with its links. They come first: behind a value they would be put in their place together with the bytes that fill it
/// up, by a load that fits none of the stores just before, and waits until these are in the cache.
#[derive(Debug)]
#[repr(C)]
struct Node<T, const LANES: usize> {
    links: [Links; LANES],
    value: T,
}

/// Entries that stand in lists. Who inserts one enters it in lists, and takes it out of them before it goes.
#[derive(Debug)]
pub(super) struct Nodes<T, const LANES: usize>(Slab<Node<T, LANES>>);

impl<T, const LANES: usize> Nodes<T, LANES> {
    pub(super) const fn new() -> Self {
        Self(Slab::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, value: T) -> Key {
        self.0.insert(Node { links: [Links { previous: NONE, next: NONE }; LANES], value })
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        self.0.remove(index).map(|node| node.value)
    }

    /// Like [`Self::remove`], of what is not looked at any more.
    #[inline(always)]
    pub(super) fn discard(&mut self, index: u32)
    where
        T: Copy,
    {
        self.0.forget(index);
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.0.get(key).map(|node| &node.value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.0.get_mut(key).map(|node| &mut node.value)
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&T> {
        self.0.at(index).map(|node| &node.value)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.0.at_mut(index).map(|node| &mut node.value)
    }

    /// The key of what is kept at `index` now.
    #[inline]
    pub(super) fn key(&self, index: u32) -> Option<Key> {
        self.0.key(index)
    }

    #[inline]
    fn links(&mut self, lane: usize, index: u32) -> Option<&mut Links> {
        self.0.at_mut(index).map(|node| &mut node.links[lane])
    }

    /// Enters an entry at the end.
    #[inline]
    pub(super) fn push(&mut self, lane: usize, list: &mut List, index: u32) {
        let previous = std::mem::replace(&mut list.last, index);
        if let Some(links) = self.links(lane, index) {
            *links = Links { previous, next: NONE };
        }
        match self.links(lane, previous) {
            Some(links) => links.next = index,
            None => list.first = index,
        }
    }

    /// Takes an entry out of the list that it stands in.
    #[inline(always)]
    pub(super) fn unlink(&mut self, lane: usize, list: &mut List, index: u32) {
        let Some(&mut Links { previous, next }) = self.links(lane, index) else { return };
        match self.links(lane, previous) {
            Some(links) => links.next = next,
            None => list.first = next,
        }
        match self.links(lane, next) {
            Some(links) => links.previous = previous,
            None => list.last = previous,
        }
    }

    /// Whether the entry is neither the first nor the last of its list.
    #[inline]
    pub(super) fn is_between(&self, lane: usize, index: u32) -> bool {
        self.0.at(index).is_some_and(|node| {
            let Links { previous, next } = node.links[lane];
            previous != NONE && next != NONE
        })
    }

    /// The entry behind this one; a place where nothing is, if this is the last.
    #[inline]
    pub(super) fn next(&self, lane: usize, index: u32) -> u32 {
        self.0.at(index).map_or(NONE, |node| node.links[lane].next)
    }

    /// The entries of a list, oldest first, with their places.
    pub(super) fn iter(&self, lane: usize, list: List) -> impl Iterator<Item = (u32, &T)> {
        let mut next = list.first;
        std::iter::from_fn(move || {
            let index = next;
            let node = self.0.at(index)?;
            next = node.links[lane].next;
            Some((index, &node.value))
        })
    }

    /// Places of the table, taken or not.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.0.places()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_leaves_one_list_and_stays_in_the_other() {
        let mut nodes = Nodes::<char, 2>::new();
        let (mut all, mut some) = (List::EMPTY, List::EMPTY);
        let keys = ['a', 'b', 'c', 'd'].map(|letter| nodes.insert(letter));
        for key in keys {
            nodes.push(0, &mut all, key.index);
        }
        for key in [keys[3], keys[0], keys[1]] {
            nodes.push(1, &mut some, key.index);
        }
        let text = |nodes: &Nodes<char, 2>, lane, list| -> String {
            nodes.iter(lane, list).map(|(_, letter)| *letter).collect()
        };
        assert_eq!((text(&nodes, 0, all), text(&nodes, 1, some)), ("abcd".into(), "dab".into()));
        assert!(nodes.is_between(0, keys[1].index) && !nodes.is_between(1, keys[1].index));
        for (gone, left) in [(1, "acd"), (0, "cd"), (3, "c"), (2, "")] {
            nodes.unlink(0, &mut all, keys[gone].index);
            assert_eq!((text(&nodes, 0, all), text(&nodes, 1, some)), (left.into(), "dab".into()));
        }
        assert!(all.is_empty() && nodes.len() == 4);
        nodes.push(0, &mut all, keys[2].index);
        assert_eq!((all.first(), nodes.next(0, all.first())), (keys[2].index, NONE));
    }
}
