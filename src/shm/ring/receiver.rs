//! The end of a ring that reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::tail::Whole;
use super::{
    ALIGN, CAPACITY, COPIES_AT, Corrupt, FOUND, GONE_AT, Header, LONGEST, Memory, POLLED, POLLED_AT, QUANTUM,
    READ_AT, order, span,
};
use crate::link::Lent;

/// An entry that has arrived. Its bytes lie in the ring, where the sender could still write to them.
pub struct Arrival {
    /// Tag of the receiver's callback.
    pub tag: u8,
    /// Its payload, until it is [released](Receiver::release).
    pub bytes: Lent,
    /// The end of the payload was left out.
    pub is_cut: bool,
}

impl Arrival {
    /// The payload with its end, where that was left out.
    #[inline]
    pub fn whole(&self) -> Whole {
        Whole::of(self.bytes)
    }
}

/// What is next in a ring.
pub enum Next {
    /// Nothing yet.
    Nothing,
    /// An entry, whose bytes lie in the ring until it is [passed](Receiver::pass).
    Entry(Lent),
    /// Something else, right or wrong, that is to be [taken](Receiver::take).
    Other,
}

/// The end that reads.
pub struct Receiver {
    memory: Memory,
    /// Where the next entry is.
    offset: usize,
    /// From this offset on the sender is to hear how far we have come.
    say_at: usize,
    /// Bytes of the turns that are over. With an offset, that is a position: bytes since the ring was made.
    turns: u64,
    /// Entries that are taken and not released.
    held: u32,
    /// The sender rings no more.
    is_polled: bool,
}

impl Receiver {
    /// # Safety
    /// `STRIDE` bytes at a multiple of 64, readable and writable as long as `keep` lives.
    pub(in super::super) unsafe fn new(start: *mut u8, keep: Arc<dyn Send + Sync>) -> Self {
        let memory = Memory { start, _keep: keep };
        Self { memory, offset: 0, say_at: QUANTUM, turns: 0, held: 0, is_polled: false }
    }

    /// Tells the sender that it need not ring for this ring any more.
    pub fn poll_from_now_on(&mut self) {
        self.is_polled = true;
        self.memory.control(POLLED_AT).store(POLLED, Ordering::Relaxed);
    }

    /// Whether the sender has been told that.
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Tells the sender that there is a reader.
    pub fn found(&self) {
        let word = self.memory.control(POLLED_AT);
        // SYNC POINT: found (acquired in `Sender::is_found`): who sees this sees what was claimed before.
        let _ = word.compare_exchange(0, FOUND, Ordering::Release, Ordering::Relaxed);
    }

    /// Copies from or to the private memory of the writer, as an entry has said, which is the writer's to say until it has
    /// [gone](super::Sender::go); `None` where it has.
    #[inline]
    pub fn copy<R>(&self, copy: impl FnOnce() -> R) -> Option<R> {
        let copies = self.memory.control(COPIES_AT);
        copies.store(1, order::MEET);
        let is_there = self.memory.control(GONE_AT).load(order::MEET) == 0;
        let copied = is_there.then(copy);
        // SYNC POINT: copied (acquired in `Sender::is_copied`)
        copies.store(0, Ordering::Release);
        copied
    }

    /// Where the next entry is, in bytes since the ring was made.
    pub fn position(&self) -> u64 {
        self.turns + self.offset as u64
    }

    /// Whether entries are taken and not released: somebody reads where they lie.
    pub fn is_held(&self) -> bool {
        self.held != 0
    }

    /// Whether there is anything, right or wrong.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.memory.header(self.offset).load(Ordering::Relaxed) != 0
    }

    /// The tag of the next entry, which stays to be taken; `None` where there is none, or what no sender writes.
    pub fn next_tag(&self) -> Option<u8> {
        let parse = |offset| Header::parse(self.memory.header(offset).load(Ordering::Relaxed));
        let header = match parse(self.offset).ok()? {
            Header::Skip => parse(0).ok()?,
            header => header,
        };
        match header {
            Header::Data { tag, .. } | Header::Cut { tag, .. } => Some(tag),
            Header::Skip => None,
        }
    }

    /// The next entry, if it is there. It stays where it is until it is released.
    ///
    /// # Errors
    /// When the sender has written what no sender writes. The ring must not be looked at again.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Arrival>, Corrupt> {
        // SYNC POINT: header (released in `Sender::push`)
        let word = self.memory.header(self.offset).load(order::TAKE);
        if word == 0 {
            return Ok(None);
        }
        match Header::parse(word)? {
            Header::Data { tag, len } => self.arrived(tag, len, false).map(Some),
            Header::Cut { tag, len } => self.arrived(tag, len, true).map(Some),
            Header::Skip => self.turn(),
        }
    }

    /// The way back to the start.
    #[cold]
    #[inline(never)]
    fn turn(&mut self) -> Result<Option<Arrival>, Corrupt> {
        if self.offset == 0 {
            return Err(Corrupt::Skip);
        }
        self.turns += CAPACITY as u64;
        self.say_at = self.say_at.saturating_sub(CAPACITY);
        self.offset = 0;
        // SYNC POINT: header (released in `Sender::push`)
        let word = self.memory.header(0).load(order::TAKE);
        if word == 0 {
            return Ok(None);
        }
        match Header::parse(word)? {
            Header::Data { tag, len } => self.arrived(tag, len, false).map(Some),
            Header::Cut { tag, len } => self.arrived(tag, len, true).map(Some),
            Header::Skip => Err(Corrupt::Skip),
        }
    }

    /// What is next, for who has a short way for whole entries of this tag. It stays.
    #[inline(always)]
    pub fn next(&self, tag: u8) -> Next {
        // SYNC POINT: header (released in `Sender::push`)
        let word = self.memory.header(self.offset).load(order::TAKE);
        if word == 0 {
            return Next::Nothing;
        }
        let len = (word >> 32) as usize;
        let is_it = word as u32 == (Header::Data { tag, len: 0 }).to_word() as u32;
        if !is_it || len > LONGEST || self.beyond(len) > CAPACITY {
            return Next::Other;
        }
        let start = self.memory.payload(self.offset, len);
        // SAFETY: inside the ring, which is mapped as long as this lives; the sender leaves it alone until it is passed. Nobody
        // writes to it here.
        Next::Entry(unsafe { Lent::new(start, len) })
    }

    /// The [next](Self::next) entry, of so many bytes, is done with where it lies. Whether the sender hears of it now.
    ///
    /// # Panics
    /// If no such entry fits.
    #[inline(always)]
    pub fn pass(&mut self, len: usize) -> bool {
        assert!(self.beyond(len) <= CAPACITY);
        self.offset += span(len);
        self.said()
    }

    /// Where the empty header behind the next entry ends, if it is of so many bytes.
    #[inline(always)]
    fn beyond(&self, len: usize) -> usize {
        self.offset + span(len) + ALIGN
    }

    /// An entry of so many bytes is next.
    #[inline(always)]
    fn arrived(&mut self, tag: u8, len: usize, is_cut: bool) -> Result<Arrival, Corrupt> {
        if self.beyond(len) > CAPACITY {
            return Err(Corrupt::Length);
        }
        let start = self.memory.payload(self.offset, len);
        self.offset += span(len);
        self.held += 1;
        // SAFETY: inside the ring, which is mapped as long as an entry of it is held; the sender leaves it
        // alone until it is released. Nobody writes to it here.
        Ok(Arrival { tag, bytes: unsafe { Lent::new(start, len) }, is_cut })
    }

    /// An entry is done with. They end in any order: the sender hears when none is held. Whether it has now.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        self.held = self.held.saturating_sub(1);
        self.said()
    }

    /// Says how far we have come, if that is due; whether it was.
    #[inline(always)]
    fn said(&mut self) -> bool {
        let is_said = self.held == 0 && self.offset >= self.say_at;
        if is_said {
            self.say();
        }
        is_said
    }

    /// Says how far we have come.
    #[inline(never)]
    fn say(&mut self) {
        self.say_at = self.offset + QUANTUM;
        // SYNC POINT: read (acquired in `Sender::has_room`)
        self.memory.control(READ_AT).store(self.turns + self.offset as u64, order::FREE);
    }
}
