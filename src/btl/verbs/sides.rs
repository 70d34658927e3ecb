//! The queue pairs of a peer, by queue. There is always the first.

use std::ops::{Index, IndexMut};

use super::side::Side;

/// All of them.
pub(super) struct Sides {
    first: Side,
    others: Vec<Side>,
}

impl Sides {
    /// The first, and those that follow it.
    pub(super) const fn new(first: Side, others: Vec<Side>) -> Self {
        Self { first, others }
    }

    /// How many there are.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The first.
    #[inline(always)]
    pub(super) const fn first(&mut self) -> &mut Side {
        &mut self.first
    }

    /// The one of a queue.
    #[inline]
    pub(super) fn get_mut(&mut self, queue: usize) -> Option<&mut Side> {
        match queue.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other),
        }
    }

    /// All, by queue.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The same, to keep.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Side> {
        std::iter::once(self.first).chain(self.others)
    }
}

impl Index<usize> for Sides {
    type Output = Side;

    #[inline]
    fn index(&self, queue: usize) -> &Side {
        match queue.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other],
        }
    }
}

impl IndexMut<usize> for Sides {
    #[inline]
    fn index_mut(&mut self, queue: usize) -> &mut Side {
        match queue.checked_sub(1) {
            None => &mut self.first,
            Some(other) => &mut self.others[other],
        }
    }
}
