//! Places of a send queue, counted exactly: what is posted, what asks for a completion, and what a completion ends.
//!
//! A send queue ends its work in order, so that one completion stands for all before it, but for what the peer answers: reads, and
//! atomic operations. Linux' siw tells of a message as soon as it has gone, while the answer to a read before it is still to come.
//! What is answered ends by its own completion, or by that of another that was posted behind it and is answered.
//!
//! Not every request asks for a completion. What is answered always does; and one does before the queue could be full of others,
//! since a request that never asks keeps its place for good.

use std::collections::VecDeque;

use crate::error::{Result, room};

/// Requests are numbered with so many bits: more than a queue has places.
const NUMBERS: u32 = 0xF_FFFF;

/// What is under way in one send queue.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// What is to be done when a request has ended, by its number. Of most there is nothing.
    entries: VecDeque<(u32, T)>,
    /// So many of them, the first, wait for answers: what was posted behind them is over. They keep their places.
    late: u32,
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
        Ok(Self { entries, late: 0, depth, first: 0, next: 0, asks_at: most_silent, most_silent })
    }

    /// Whether there is a place.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.depth
    }

    /// Requests under way, as far as is known.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.first) + self.late
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

    /// The request of this number has completed, and all before it that it [stands for](self); false when there is none of this
    /// number.
    #[inline]
    pub(super) fn complete(
        &mut self,
        number: u32,
        is_answered: impl Fn(&T) -> bool,
        mut each: impl FnMut(T),
    ) -> bool {
        let late = self.late as usize;
        if let Some(at) = self.entries.range(..late).position(|(own, _)| own & NUMBERS == number) {
            self.late -= at as u32 + 1;
            self.entries.drain(..=at).for_each(|(_, entry)| each(entry));
            return true;
        }
        let count = (number.wrapping_sub(self.first) & NUMBERS) + 1;
        if count > self.next.wrapping_sub(self.first) {
            return false;
        }
        let last = self.first.wrapping_add(count - 1);
        self.first = last.wrapping_add(1);
        let is_over = |(own, _): &(u32, T)| own.wrapping_sub(last).cast_signed() <= 0;
        let over = late + self.entries.range(late..).take_while(|entry| is_over(entry)).count();
        let is_answer = |(own, entry): &(u32, T)| *own == last && is_answered(entry);
        if over > late && is_answer(&self.entries[over - 1]) {
            self.late = 0;
            self.entries.drain(..over).for_each(|(_, entry)| each(entry));
            return true;
        }
        let mut at = late;
        for _ in late..over {
            if is_answered(&self.entries[at].1) {
                at += 1;
            } else {
                self.entries.remove(at).into_iter().for_each(|(_, entry)| each(entry));
            }
        }
        self.late = at as u32;
        true
    }

    /// Everything under way ends, for nothing of the queue will complete any more.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = T> {
        (self.first, self.late) = (self.next, 0);
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
        assert!(slots.complete(1, |_| false, |entry| ended.push(entry)));
        assert_eq!((ended, slots.len()), (vec!['a', 'b'], 1));
        assert!(!slots.complete(1, |_| false, |_| panic!("twice")));
        assert!(!slots.complete(3, |_| false, |_| panic!("not posted")));
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
        assert!(slots.complete(0, |_| false, |entry| ended.push(entry)));
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

    /// Of what is in capital letters the peer answers.
    fn ended(slots: &mut Slots<char>, number: u32) -> Option<String> {
        let mut ended = String::new();
        slots.complete(number, char::is_ascii_uppercase, |entry| ended.push(entry)).then_some(ended)
    }

    #[test]
    fn what_is_answered_is_over_when_it_is_answered_and_not_when_what_was_posted_behind_it_has_gone() {
        let mut slots = Slots::new(16).expect("memory");
        (slots.first, slots.next, slots.asks_at) = (NUMBERS - 1, NUMBERS - 1, NUMBERS + 2);
        for entry in "aBcDeFg".chars() {
            slots.push(Some(entry), true);
        }
        let number = |at: u32| (NUMBERS - 1 + at) & NUMBERS;
        let mut over = |at: u32| (ended(&mut slots, number(at)), slots.len());
        assert_eq!(over(4), (Some("ace".to_owned()), 4), "the reads before it are not");
        assert_eq!(over(2), (None, 4), "twice");
        assert_eq!(over(1), (Some("B".to_owned()), 3));
        assert_eq!(over(1), (None, 3), "twice");
        assert_eq!(over(5), (Some("DF".to_owned()), 1), "the answers come in order");
        assert_eq!(over(6), (Some("g".to_owned()), 0));
    }

    #[test]
    fn what_waits_for_an_answer_keeps_its_place_and_ends_with_the_queue() {
        let mut slots = Slots::new(3).expect("memory");
        for entry in "AbC".chars() {
            slots.push(Some(entry), true);
        }
        assert_eq!((ended(&mut slots, 1), slots.len(), slots.has_room()), (Some("b".to_owned()), 2, true));
        slots.push(Some('d'), true);
        assert_eq!((ended(&mut slots, 3), slots.len()), (Some("d".to_owned()), 2));
        slots.push(None, true);
        assert!(!slots.has_room());
        assert_eq!(ended(&mut slots, 2), Some("AC".to_owned()));
        slots.push(Some('E'), true);
        slots.push(Some('f'), true);
        assert_eq!((ended(&mut slots, 6), slots.len()), (Some("f".to_owned()), 1));
        assert_eq!((slots.abandon().collect::<String>(), slots.len()), ("E".to_owned(), 0));
        assert_eq!((ended(&mut slots, 5), slots.next().0), (None, 7));
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
                    assert!(slots.complete(number, |_: &i32| false, |_| ()));
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
