//! Requests: sends and receives from their begin to their callback, with the memory that the matcher has of each.
//!
//! A request may end before the function that begins it has returned, in this thread or in another: it is kept then, for
//! that function to see. What is being cancelled keeps its memory until that is over, so that no other request is
//! cancelled in its place.

use std::collections::VecDeque;
use std::ptr::NonNull;

use super::abi::Matched;
use crate::capi::code::{HAWSER_ERR_STALE, HAWSER_ERR_UNSUPPORTED, Outcome};
use crate::capi::handle::{FIRST, Key, Table};
use crate::capi::host::Context;
use crate::mtl;

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) status: i32,
    /// Of a receive.
    pub(super) envelope: Option<mtl::Envelope>,
}

/// A callback that is owed.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) key: Key,
    pub(super) callback: Matched,
    pub(super) context: Context,
    pub(super) end: End,
}

/// What the caller says of a request.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) callback: Matched,
    pub(super) context: Context,
    /// The only peer that it is about.
    pub(super) with: Option<i32>,
    pub(super) is_receive: bool,
}

/// Memory of the matcher's for one operation.
///
/// INVARIANT: a boxed slice of so many words, nobody else's, initialised, and never moved.
struct Memory {
    start: NonNull<u64>,
    words: usize,
}

// SAFETY: an address of memory that is nobody else's.
unsafe impl Send for Memory {}

impl Memory {
    fn new(words: usize) -> Self {
        let memory = NonNull::from(Box::leak(vec![0_u64; words].into_boxed_slice()));
        Self { start: memory.cast(), words }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let memory = NonNull::slice_from_raw_parts(self.start, self.words);
        // SAFETY: leaked in `new` with this length, and this is its end.
        drop(unsafe { Box::from_raw(memory.as_ptr()) });
    }
}

enum State {
    /// The function that begins it has not returned.
    Beginning,
    /// It has ended before that.
    Early(End),
    Open,
    /// It has ended, and somebody cancels it.
    Ended,
}

struct Open {
    memory: Memory,
    wish: Wish,
    state: State,
    /// Calls that cancel it.
    cancels: u32,
}

/// The requests of a module.
pub(super) struct Requests {
    table: Table<Open>,
    /// Memory that no request uses.
    free: Vec<Memory>,
    /// Words of the memory of one.
    words: usize,
    /// What has ended before it was known.
    owed: VecDeque<Owed>,
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self { table: Table::new(FIRST), free: Vec::new(), words: 0, owed: VecDeque::new() }
    }

    /// A matcher begins, whose operations have so many words.
    pub(super) fn start(&mut self, words: usize) {
        self.words = words;
    }

    /// Begins one: which, and where its operation may lie.
    #[inline]
    pub(super) fn begin(&mut self, wish: Wish) -> Outcome<(Key, NonNull<u64>)> {
        let memory = self.free.pop().unwrap_or_else(|| Memory::new(self.words));
        let start = memory.start;
        let key = self.table.insert(Open { memory, wish, state: State::Beginning, cancels: 0 })?;
        Ok((key, start))
    }

    /// It could not begin: the matcher has forgotten it.
    #[cold]
    pub(super) fn forget(&mut self, key: Key) {
        if let Ok(open) = self.table.remove(key) {
            self.free.push(open.memory);
        }
    }

    /// It has begun. What is owed, if it is over already.
    #[inline]
    pub(super) fn begun(&mut self, key: Key) -> Outcome<Option<Owed>> {
        let open = self.table.get_mut(key)?;
        let State::Early(end) = open.state else {
            open.state = State::Open;
            return Ok(None);
        };
        self.remove(key, end).map(Some)
    }

    /// Has the callback wait for progress.
    pub(super) fn postpone(&mut self, owed: Owed) {
        self.owed.push_back(owed);
    }

    /// The next that waits.
    #[inline]
    pub(super) fn next_owed(&mut self) -> Option<Owed> {
        self.owed.pop_front()
    }

    /// The matcher has ended one. What is owed, unless it has not even begun for the caller.
    #[inline]
    pub(super) fn end(&mut self, key: Key, end: End) -> Option<Owed> {
        let open = self.table.get_mut(key).ok()?;
        match open.state {
            State::Beginning => {
                open.state = State::Early(end);
                None
            }
            State::Open if open.cancels == 0 => self.remove(key, end).ok(),
            State::Open => {
                open.state = State::Ended;
                let Wish { callback, context, .. } = open.wish;
                Some(Owed { key, callback, context, end })
            }
            State::Early(_) | State::Ended => None,
        }
    }

    #[inline]
    fn remove(&mut self, key: Key, end: End) -> Outcome<Owed> {
        let Open { memory, wish: Wish { callback, context, .. }, .. } = self.table.remove(key)?;
        self.free.push(memory);
        Ok(Owed { key, callback, context, end })
    }

    /// Begins to cancel a receive. Where its operation may lie, until [`cancelled`](Self::cancelled).
    pub(super) fn cancel(&mut self, key: Key) -> Outcome<NonNull<u64>> {
        let open = self.table.get_mut(key)?;
        if !matches!(open.state, State::Open) {
            return Err(HAWSER_ERR_STALE);
        }
        if !open.wish.is_receive {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        open.cancels += 1;
        Ok(open.memory.start)
    }

    /// That is over.
    pub(super) fn cancelled(&mut self, key: Key) {
        let Ok(open) = self.table.get_mut(key) else { return };
        open.cancels -= 1;
        if open.cancels == 0 && matches!(open.state, State::Ended) {
            self.forget(key);
        }
    }

    /// Whether any is about one of these peers alone.
    pub(super) fn any_with(&self, ranks: &[i32]) -> bool {
        self.table.values().filter_map(|open| open.wish.with).any(|rank| ranks.contains(&rank))
    }

    /// The matcher has ended: everything that is still owed. The memory is given back, unless the matcher may still use
    /// it.
    pub(super) fn close(&mut self, is_unused: bool, status: i32) -> Vec<Owed> {
        let mut owed: Vec<Owed> = self.owed.drain(..).collect();
        for (key, open) in self.table.drain() {
            let Open { memory, wish: Wish { callback, context, .. }, state, .. } = open;
            if !is_unused {
                std::mem::forget(memory);
            }
            if matches!(state, State::Open) {
                owed.push(Owed { key, callback, context, end: End { status, envelope: None } });
            }
        }
        self.free.clear();
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: End = End { status: 0, envelope: None };

    fn wish(is_receive: bool) -> Wish {
        Wish { callback: None, context: Context(std::ptr::null_mut()), with: Some(3), is_receive }
    }

    fn requests() -> Requests {
        let mut requests = Requests::new();
        requests.start(4);
        requests
    }

    #[test]
    fn one_that_ends_before_it_has_begun_is_seen_by_who_begins_it() {
        let mut requests = requests();
        let (early, _) = requests.begin(wish(true)).expect("room");
        assert!(requests.end(early, DONE).is_none() && requests.end(early, DONE).is_none());
        assert_eq!(requests.cancel(early), Err(HAWSER_ERR_STALE));
        assert!(requests.begun(early).expect("kept").is_some_and(|owed| owed.end == DONE));
        assert!(requests.begun(early).is_err() && requests.end(early, DONE).is_none());
        let (late, _) = requests.begin(wish(true)).expect("room");
        assert!(requests.begun(late).expect("kept").is_none());
        assert!(requests.end(late, DONE).is_some() && requests.end(late, DONE).is_none());
    }

    #[test]
    fn what_is_cancelled_keeps_its_memory_until_that_is_over() {
        let mut requests = requests();
        let (first, memory) = requests.begin(wish(true)).expect("room");
        requests.begun(first).expect("kept");
        assert_eq!((requests.cancel(first), requests.cancel(first)), (Ok(memory), Ok(memory)));
        assert!(requests.end(first, DONE).is_some());
        assert_eq!(requests.cancel(first), Err(HAWSER_ERR_STALE), "it has ended");
        let (second, other) = requests.begin(wish(true)).expect("room");
        assert_ne!(other, memory);
        requests.forget(second);
        requests.cancelled(first);
        assert_eq!(requests.begin(wish(true)).expect("room").1, other);
        requests.cancelled(first);
        assert_eq!(requests.begin(wish(true)).expect("room").1, memory);
    }

    #[test]
    fn a_send_is_not_cancelled() {
        let mut requests = requests();
        let (send, _) = requests.begin(wish(false)).expect("room");
        requests.begun(send).expect("kept");
        assert_eq!(requests.cancel(send), Err(HAWSER_ERR_UNSUPPORTED));
        assert!(requests.any_with(&[2, 3]) && !requests.any_with(&[2]));
    }

    #[test]
    fn at_the_end_each_is_owed_once() {
        for is_unused in [true, false] {
            let mut requests = requests();
            let keys: Vec<Key> = (0..3).map(|_| requests.begin(wish(true)).expect("room").0).collect();
            keys.iter().for_each(|key| _ = requests.begun(*key));
            requests.cancel(keys[0]).expect("a receive");
            let owed = requests.end(keys[0], DONE).expect("its callback");
            requests.postpone(owed);
            let all = requests.close(is_unused, -1);
            assert_eq!(all.iter().map(|owed| owed.end.status).collect::<Vec<_>>(), [0, -1, -1]);
            assert!(requests.close(is_unused, -1).is_empty());
            assert!(keys.iter().all(|key| requests.end(*key, DONE).is_none()));
        }
    }
}
