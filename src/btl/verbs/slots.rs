//! Places of a send queue, counted exactly: what is posted, what asks for a completion, and what a completion ends.
//!
//! A send queue ends its work in order, so that one completion stands for all before it. Not every request asks for one;
//! but one does before the queue could be full of others, since a request that never asks keeps its place for good.

use std::collections::VecDeque;

use crate::error::{Result, room};

/// Requests are numbered with so many bits: more than a queue has places.
const NUMBERS: u32 = 0xF_FFFF;

/// What is under way in one send queue.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// What is to be done when a request has ended, by its number. Of most there is nothing.
    entries: VecDeque<(u32, T)>,
    depth: u32,
    /// The numbers of the first request under way, and of the next one.
    first: u32,
    next: u32,
    /// The number of the request that must ask, if none before it does.
    asks_at: u32,
    /// So many in a row need not.
    most_silent: u32,
}

impl<T> Slots<T> {
    /// Of a queue with so many places.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub(super) fn new(depth: u32) -> Result<Self> {
        let most_silent = (depth / 4).max(1) - 1;
        let entries = room::vector(depth as usize)?.into();
        Ok(Self { entries, depth, first: 0, next: 0, asks_at: most_silent, most_silent })
    }

    /// Whether there is a place.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.depth
    }

    /// Requests under way, as far as is known.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// What is to be done when the request that was posted last has ended, if it is under way.
    pub(super) fn last(&self) -> Option<&T> {
        let (number, entry) = self.entries.back()?;
        (number.wrapping_add(1) == self.next).then_some(entry)
    }

    /// The number that the next request has, and whether it must ask for a completion even if nobody waits for one.
    #[inline]
    pub(super) fn next(&self) -> (u32, bool) {
        (self.next & NUMBERS, self.next == self.asks_at)
    }

    /// The next request has been posted. There was room for it.
    #[inline]
    pub(super) fn push(&mut self, entry: Option<T>, asks: bool) {
        debug_assert!(self.has_room());
        debug_assert!(asks || self.next != self.asks_at);
        if asks {
            self.asks_at = self.next.wrapping_add(1).wrapping_add(self.most_silent);
        }
        if let Some(entry) = entry {
            self.entries.push_back((self.next, entry));
        }
        self.next = self.next.wrapping_add(1);
    }

    /// The next request is posted, and nothing is to be done when it has ended: its number, and whether it must ask for a
    /// completion. There is room for it.
    #[inline]
    pub(super) fn take(&mut self) -> (u32, bool) {
        let (number, must) = self.next();
        self.push(None, must);
        (number, must)
    }

    /// What was just taken has not been posted.
    pub(super) fn put_back(&mut self, asks: bool) {
        self.next = self.next.wrapping_sub(1);
        if asks {
            self.asks_at = self.next;
        }
    }

    /// The request of this number has completed, and all before it; false when there is none of this number.
    #[inline]
    pub(super) fn complete(&mut self, number: u32, mut each: impl FnMut(T)) -> bool {
        let count = (number.wrapping_sub(self.first) & NUMBERS) + 1;
        if count > self.len() {
            return false;
        }
        let first = self.first.wrapping_add(count);
        self.first = first;
        let is_over = |(number, _): &(u32, T)| number.wrapping_sub(first).cast_signed() < 0;
        while self.entries.front().is_some_and(is_over) {
            self.entries.pop_front().into_iter().for_each(|(_, entry)| each(entry));
        }
        true
    }

    /// Everything under way ends, for nothing of the queue will complete any more.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = T> {
        self.first = self.next;
        self.asks_at = self.next.wrapping_add(self.most_silent);
        std::mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_completion_stands_for_all_before_it() {
        let mut slots = Slots::new(8).expect("memory");
        for (entry, asks) in [('a', false), ('b', true), ('c', false)] {
            slots.push(Some(entry), asks);
        }
        let mut ended = Vec::new();
        assert!(slots.complete(1, |entry| ended.push(entry)));
        assert_eq!((ended, slots.len()), (vec!['a', 'b'], 1));
        assert!(!slots.complete(1, |_| panic!("twice")) && !slots.complete(3, |_| panic!("not posted")));
        assert_eq!(slots.abandon().collect::<Vec<_>>(), ['c']);
        assert_eq!(slots.next().0, 3);
        assert_eq!((slots.len(), slots.last()), (0, None));
    }

    #[test]
    fn a_request_of_which_nothing_is_to_be_done_has_its_place_and_is_the_last_one() {
        let mut slots = Slots::new(3).expect("memory");
        (slots.first, slots.next, slots.asks_at) = (u32::MAX, u32::MAX, 1);
        slots.push(Some('a'), false);
        slots.push(None, false);
        assert_eq!((slots.len(), slots.last()), (2, None));
        slots.push(Some('c'), true);
        assert_eq!((slots.has_room(), slots.last()), (false, Some(&'c')));
        let mut ended = Vec::new();
        assert!(slots.complete(0, |entry| ended.push(entry)));
        assert_eq!((ended, slots.len(), slots.last()), (vec!['a'], 1, Some(&'c')));
    }

    #[test]
    fn what_is_put_back_has_never_been_there() {
        let mut slots = Slots::<()>::new(8).expect("memory");
        let mut asked = Vec::new();
        for _ in 0..8 {
            let (number, must) = slots.take();
            slots.put_back(must);
            assert_eq!(slots.take(), (number, must));
            asked.push(must);
        }
        assert_eq!(asked, [false, true].repeat(4));
        assert!(!slots.has_room());
    }

    /// A queue in which nobody ever waits for a completion does not stop.
    #[test]
    fn a_full_queue_always_has_something_that_completes() {
        for depth in 1..70 {
            let mut slots = Slots::new(depth).expect("memory");
            let start = NUMBERS - 5;
            (slots.first, slots.next, slots.asks_at) = (start, start, start + slots.most_silent);
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
                slots.push((entry % 3 == 0).then_some(entry), must);
            }
        }
    }
}
