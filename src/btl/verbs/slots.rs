//! Places of a send queue, counted exactly: what is posted, what asks for a completion, and what a completion ends.
//!
//! A send queue ends its work in order, so that one completion stands for all before it. Not every request asks for one;
//! but one does before the queue could be full of others, since a request that never asks keeps its place for good.

use std::collections::VecDeque;

/// Requests are numbered with so many bits: more than a queue has places.
const NUMBERS: u32 = 0xF_FFFF;

/// What is under way in one send queue.
#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: VecDeque<T>,
    depth: usize,
    /// The number of the first entry.
    first: u32,
    /// Requests in a row that have not asked.
    silent: usize,
}

impl<T> Slots<T> {
    /// Of a queue with so many places.
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: VecDeque::with_capacity(depth), depth, first: 0, silent: 0 }
    }

    /// Whether there is a place.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.depth
    }

    /// Requests under way, as far as is known.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What was posted last, and is under way.
    pub(super) fn last(&self) -> Option<&T> {
        self.entries.back()
    }

    /// The number that the next request has, and whether it must ask for a completion even if nobody waits for one.
    #[inline]
    pub(super) fn next(&self) -> (u32, bool) {
        let number = self.first.wrapping_add(self.entries.len() as u32) & NUMBERS;
        (number, self.silent + 1 >= (self.depth / 4).max(1))
    }

    /// The next request has been posted. There was room for it.
    #[inline]
    pub(super) fn push(&mut self, entry: T, asks: bool) {
        debug_assert!(self.has_room());
        self.silent = if asks { 0 } else { self.silent + 1 };
        self.entries.push_back(entry);
    }

    /// The request of this number has completed, and all before it; false when there is none of this number.
    #[inline]
    pub(super) fn complete(&mut self, number: u32, mut each: impl FnMut(T)) -> bool {
        let count = (number.wrapping_sub(self.first) & NUMBERS) as usize + 1;
        if count > self.entries.len() {
            return false;
        }
        self.first = number.wrapping_add(1) & NUMBERS;
        self.entries.drain(..count).for_each(&mut each);
        true
    }

    /// Everything under way ends, for nothing of the queue will complete any more.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = T> {
        self.first = self.first.wrapping_add(self.entries.len() as u32) & NUMBERS;
        self.silent = 0;
        std::mem::take(&mut self.entries).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_stands_for_all_before_it() {
        let mut slots = Slots::new(8);
        for (entry, asks) in [('a', false), ('b', true), ('c', false)] {
            slots.push(entry, asks);
        }
        let mut ended = Vec::new();
        assert!(slots.complete(1, |entry| ended.push(entry)));
        assert_eq!((ended, slots.len()), (vec!['a', 'b'], 1));
        assert!(!slots.complete(1, |_| panic!("twice")) && !slots.complete(3, |_| panic!("not posted")));
        assert_eq!(slots.abandon().collect::<Vec<_>>(), ['c']);
        assert_eq!(slots.next().0, 3);
    }

    /// A queue in which nobody ever waits for a completion does not stop.
    #[test]
    fn a_full_queue_always_has_something_that_completes() {
        for depth in 1..70 {
            let mut slots = Slots::new(depth);
            slots.first = NUMBERS - 5;
            let mut asked = VecDeque::new();
            for entry in 0..1_000 {
                if !slots.has_room() {
                    let number = asked.pop_front().expect("one that asked");
                    assert!(slots.complete(number, |_: i32| ()));
                    assert!(slots.has_room());
                }
                let (number, must) = slots.next();
                if must {
                    asked.push_back(number);
                }
                slots.push(entry, must);
            }
        }
    }
}
