//! [`Fifo`]: entries in the order in which operations have ended.
//!
//! They lie in a table that is as long as there were ever entries at a time, up to its limit, and begins anew whenever it is
//! empty: who reads what has come before more does uses one line of the cache. What failed is kept beside it, because it is
//! longer; its place in the table says only that there is something.

use std::collections::VecDeque;

use super::super::argument::Foreign;
use super::{Completion, Entry, Failure};

#[derive(Debug)]
pub(super) struct Fifo {
    table: Vec<Completion>,
    /// Entries at a time, at most.
    limit: usize,
    /// Where the first is, and how many there are. Behind the end of a table as long as the limit follows its beginning.
    first: usize,
    length: usize,
    /// Entries that were taken.
    taken: u64,
    /// Failures, and how many entries were before each.
    failures: VecDeque<(u64, Box<Failure>)>,
}

/// What is where nothing has been put yet.
const NOTHING: Completion = Completion {
    context: Foreign::NULL,
    flags: 0,
    length: 0,
    buffer: Foreign::NULL,
    data: 0,
    tag: 0,
    source: 0,
};

impl Fifo {
    pub(super) fn new(limit: usize) -> Self {
        Self { table: Vec::new(), limit, first: 0, length: 0, taken: 0, failures: VecDeque::new() }
    }

    /// Makes room for all, once.
    #[inline(always)]
    pub(super) fn make_room(&mut self) {
        if self.table.capacity() == 0 {
            self.table.reserve_exact(self.limit);
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// # Panics
    /// If there are as many as may be.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Done(completion) => self.put(completion),
            Entry::Failed(failure) => {
                let of = failure.of;
                self.failures.push_back((self.taken + self.length as u64, failure));
                self.put(of);
            }
        }
    }

    #[inline(always)]
    fn put(&mut self, completion: Completion) {
        if self.length == 0 {
            self.first = 0;
        }
        let mut at = self.first + self.length;
        if at >= self.table.len() {
            at = self.further();
        }
        let Completion { context, flags, length, buffer, data, tag, source } = completion;
        // One by one, so that they are not put together elsewhere, and wait there until all have come to the cache.
        let place = &mut self.table[at];
        place.context = context;
        place.flags = flags;
        place.length = length;
        place.buffer = buffer;
        place.data = data;
        place.tag = tag;
        place.source = source;
        self.length += 1;
    }

    /// Where the next is that would be behind the table: there is one more place, or it is at the beginning.
    #[cold]
    #[inline(never)]
    fn further(&mut self) -> usize {
        assert!(self.length < self.limit, "an entry without a place");
        let length = self.table.len();
        if length < self.limit {
            self.table.push(NOTHING);
            return length;
        }
        self.first + self.length - self.limit
    }

    /// The first, if it has ended well.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<&Completion> {
        if self.length == 0 || self.is_failed() { None } else { self.table.get(self.first) }
    }

    /// Whether the first is a failure.
    #[inline(always)]
    pub(super) fn is_failed(&self) -> bool {
        self.failures.front().is_some_and(|(before, _)| *before == self.taken)
    }

    /// Drops the first.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.first += 1;
        if self.first == self.table.len() {
            self.first = 0;
        }
        self.length -= 1;
        self.taken += 1;
    }

    /// Takes the first, if it is a failure.
    pub(super) fn pop_failed(&mut self) -> Option<Failure> {
        if !self.is_failed() {
            return None;
        }
        let (_, failure) = self.failures.pop_front()?;
        self.pop();
        Some(*failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(tag: u64) -> Completion {
        Completion { tag, ..NOTHING }
    }

    #[test]
    fn a_table_of_any_length_is_a_queue() {
        const LIMIT: usize = 7;
        let mut fifo = Fifo::new(LIMIT);
        let mut model: VecDeque<(u64, bool)> = VecDeque::new();
        let (mut random, mut next) = (1_u64, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = random >> 33;
            if model.len() < LIMIT && dice % 16 < 8 {
                let has_failed = dice % 5 == 0;
                let failure = Failure { of: done(next), overflow: 0, code: 1, detail: 1 };
                fifo.make_room();
                fifo.push(if has_failed {
                    Entry::Failed(Box::new(failure))
                } else {
                    Entry::Done(done(next))
                });
                model.push_back((next, has_failed));
                next += 1;
            } else if let Some((tag, has_failed)) = model.pop_front() {
                assert_eq!(fifo.is_failed(), has_failed);
                assert_eq!(fifo.first().map(|completion| completion.tag), (!has_failed).then_some(tag));
                assert_eq!(fifo.pop_failed().map(|failure| failure.of.tag), has_failed.then_some(tag));
                if !has_failed {
                    fifo.pop();
                }
            }
            assert_eq!(
                (fifo.len(), fifo.first().is_none()),
                (model.len(), model.front().is_none_or(|first| first.1))
            );
            assert!(fifo.table.len() <= LIMIT);
        }
    }

    #[test]
    fn a_table_is_as_long_as_it_was_ever_needed() {
        let mut fifo = Fifo::new(1000);
        fifo.make_room();
        for tag in 0..1000 {
            fifo.push(Entry::Done(done(tag)));
            fifo.push(Entry::Done(done(tag)));
            fifo.pop();
            fifo.pop();
        }
        assert_eq!(fifo.table.len(), 2);
    }

    #[test]
    fn room_is_made_once() {
        let mut fifo = Fifo::new(300);
        assert_eq!(fifo.table.capacity(), 0);
        fifo.make_room();
        let capacity = fifo.table.capacity();
        (0..300).for_each(|tag| fifo.push(Entry::Done(done(tag))));
        assert_eq!(fifo.table.capacity(), capacity);
    }
}
