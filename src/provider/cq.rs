//! The completion queue, `fi_cq(3)`: what has ended, and how.
//!
//! It has places for so many entries. An operation that this side starts takes a place then ([`Queue::reserve`]), so that
//! what ends always finds one: the queue is never overrun, and a program that does not read is told `-FI_EAGAIN`. There
//! are places besides that only what comes from peers may take ([`Queue::reserve_arrival`]): operations end by what comes,
//! so that those that are under way must never be what nothing can come for.

use super::argument::Foreign;
use super::errno::{Errno, Outcome};

/// How much of a completion a program wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What its caller gave for the operation.
    Context,
    /// That, flags and length.
    Message,
    /// That, buffer and data.
    Data,
    /// That and the tag.
    Tagged,
}

/// An operation that has ended well. All formats of libfabric's entries are how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// What its caller gave for it.
    pub context: Foreign,
    /// What it was (`FI_SEND | FI_TAGGED` …).
    pub flags: u64,
    /// Bytes that were received.
    pub length: usize,
    /// Where they are, of a buffer for several messages.
    pub buffer: Foreign,
    /// What came with it outside the message.
    pub data: u64,
    /// The tag that it came with.
    pub tag: u64,
    /// Who has sent it, in the address vector of the endpoint.
    pub source: u64,
}

/// An operation that has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is known of it.
    pub of: Completion,
    /// Bytes that did not fit.
    pub overflow: usize,
    /// Why, a positive code.
    pub code: i32,
    /// The same, as whoever found it says it.
    pub detail: i32,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It ended well.
    Done(Completion),
    /// It did not.
    Failed(Box<Failure>),
}

/// A place that an operation has in a queue until it ends.
#[derive(Debug)]
#[must_use = "what is reserved is given back by an entry, or by `release`"]
pub struct Place(());

/// Reads that find something at once, of which one makes progress besides.
const DUE: u32 = 16;

/// The entries, and the places that are promised.
#[derive(Debug)]
pub struct Queue {
    entries: Fifo,
    reserved: usize,
    capacity: usize,
    /// Places besides, for arrivals.
    arrivals: usize,
    /// Somebody got none, and waits until there is one.
    is_wanted: bool,
    /// Reads that have found something since progress was made.
    found: u32,
}

impl Queue {
    /// With so many places, and some for arrivals.
    pub fn new(capacity: usize) -> Self {
        let arrivals = capacity.div_ceil(4);
        let entries = Fifo::new(capacity + arrivals);
        Self { entries, reserved: 0, capacity, arrivals, is_wanted: false, found: 0 }
    }

    /// Takes a place for an operation that this side starts.
    ///
    /// # Errors
    /// `FI_EAGAIN`: all are taken, until some entries are read.
    #[inline(always)]
    pub fn reserve(&mut self) -> Outcome<Place> {
        self.reserve_of(self.capacity)
    }

    /// Takes a place for what comes next from a peer.
    ///
    /// # Errors
    /// `FI_EAGAIN`: all are taken, until some entries are read.
    #[inline]
    pub fn reserve_arrival(&mut self) -> Outcome<Place> {
        self.reserve_of(self.capacity + self.arrivals)
    }

    #[inline(always)]
    fn reserve_of(&mut self, places: usize) -> Outcome<Place> {
        if self.entries.len() + self.reserved >= places {
            self.is_wanted = true;
            return Err(Errno::AGAIN);
        }
        // Most queues of a program that opens many are never used.
        self.entries.make_room();
        self.reserved += 1;
        Ok(Place(()))
    }

    /// Puts an entry into a place.
    #[inline(always)]
    pub fn put(&mut self, _place: Place, entry: Entry) {
        self.reserved -= 1;
        self.entries.push(entry);
    }

    /// Gives a place back: the operation ends without an entry.
    #[inline]
    pub fn release(&mut self, _place: Place) {
        self.reserved -= 1;
    }

    /// Whether somebody is to hear that there is a place.
    #[inline(always)]
    pub fn is_wanted(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted)
    }

    /// Whether progress is to be made before what there is is read: many reads have found something.
    #[inline(always)]
    pub fn is_due(&mut self) -> bool {
        self.found = (self.found + 1) % DUE;
        self.found == 0
    }

    /// Entries that can be read.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Whether the first entry is a failure, which is read in its own way.
    pub fn is_failed(&self) -> bool {
        self.entries.is_failed()
    }

    /// Hands up to so many completions to `take`, in order, up to the first failure.
    ///
    /// # Errors
    /// `FI_EAGAIN`: there is nothing. `FI_EAVAIL`: a failure is the first.
    #[inline(always)]
    pub fn read(&mut self, most: usize, mut take: impl FnMut(usize, &Completion)) -> Outcome<usize> {
        let mut count = 0;
        while count < most
            && let Some(completion) = self.entries.first()
        {
            take(count, completion);
            count += 1;
            self.entries.pop();
        }
        match count {
            0 if self.is_failed() => Err(Errno::AVAIL),
            0 => Err(Errno::AGAIN),
            count => Ok(count),
        }
    }

    /// Takes the failure that is the first.
    ///
    /// # Errors
    /// `FI_EAGAIN`: it is none.
    pub fn read_failed(&mut self) -> Outcome<Failure> {
        self.entries.pop_failed().ok_or(Errno::AGAIN)
    }
}

mod entry;
#[cfg(test)]
mod entry_tests;
mod fifo;
mod object;

pub(super) use entry::open;
use fifo::Fifo;
pub use object::Cq;

#[cfg(test)]
mod tests {
    use super::*;

    fn done(tag: u64) -> Completion {
        let nothing = Foreign::NULL;
        Completion { context: nothing, flags: 0, length: 0, buffer: nothing, data: 0, tag, source: 0 }
    }

    fn tags(queue: &mut Queue, most: usize) -> Outcome<Vec<u64>> {
        let mut tags = Vec::new();
        let count = queue.read(most, |index, completion| {
            assert_eq!(index, tags.len());
            tags.push(completion.tag);
        })?;
        assert_eq!(count, tags.len());
        Ok(tags)
    }

    #[test]
    fn a_place_is_taken_from_posting_to_reading() {
        let mut queue = Queue::new(2);
        let (one, two) = (queue.reserve().expect("a place"), queue.reserve().expect("a place"));
        assert_eq!(queue.reserve().err(), Some(Errno::AGAIN));
        queue.put(one, Entry::Done(done(1)));
        assert_eq!(queue.reserve().err(), Some(Errno::AGAIN), "not read yet");
        assert_eq!(tags(&mut queue, 9), Ok(vec![1]));
        let three = queue.reserve().expect("a place");
        queue.release(two);
        queue.put(three, Entry::Done(done(3)));
        assert_eq!(tags(&mut queue, 9), Ok(vec![3]));
        assert_eq!((queue.reserved, queue.len()), (0, 0));
    }

    #[test]
    fn what_is_started_leaves_places_for_what_comes() {
        let mut queue = Queue::new(4);
        let started: Vec<Place> = (0..4).map(|_| queue.reserve().expect("a place")).collect();
        assert_eq!(queue.reserve().err(), Some(Errno::AGAIN));
        let come = queue.reserve_arrival().expect("a place");
        assert_eq!(queue.reserve_arrival().err(), Some(Errno::AGAIN));
        queue.put(come, Entry::Done(done(1)));
        assert_eq!(queue.reserve_arrival().err(), Some(Errno::AGAIN), "not read yet");
        assert_eq!(tags(&mut queue, 9), Ok(vec![1]));
        assert_eq!(queue.reserve().err(), Some(Errno::AGAIN), "those are for arrivals");
        let come = queue.reserve_arrival().expect("a place");
        started.into_iter().chain([come]).for_each(|place| queue.release(place));
        assert_eq!(queue.reserved, 0);
    }

    #[test]
    fn a_failure_stops_a_read_at_its_place() {
        let mut queue = Queue::new(8);
        let failure = Failure { of: done(2), overflow: 5, code: 265, detail: 265 };
        let entries = [
            Entry::Done(done(0)),
            Entry::Done(done(1)),
            Entry::Failed(Box::new(failure)),
            Entry::Done(done(3)),
        ];
        for entry in entries {
            let place = queue.reserve().expect("a place");
            queue.put(place, entry);
        }
        assert_eq!(queue.read_failed(), Err(Errno::AGAIN));
        assert_eq!(tags(&mut queue, 1), Ok(vec![0]));
        assert_eq!(tags(&mut queue, 9), Ok(vec![1]));
        assert_eq!(tags(&mut queue, 9), Err(Errno::AVAIL));
        assert_eq!(queue.read_failed(), Ok(failure));
        assert_eq!(tags(&mut queue, 9), Ok(vec![3]));
        assert_eq!(tags(&mut queue, 9), Err(Errno::AGAIN));
    }
}
