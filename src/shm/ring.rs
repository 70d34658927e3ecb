//! A ring of bytes from one process to another: one writer, one reader.
//!
//! It lies in the writer's segment. An entry is one word, its header, and the payload behind it; the header is
//! written last, so that one line of the cache brings both. Behind an entry there is always a header of zero:
//! the reader waits on it and needs nothing else. No entry goes around the end of the ring: a header of its own
//! kind sends the reader to the start.
//!
//! The reader says now and then how far it has come, in bytes since the ring was made: what lies before may be
//! overwritten. It says so after every [`QUANTUM`], and the longest entry fits a ring of which less than that
//! is not yet said to be free: nobody ever waits for the other to say more.
//!
//! The writer keeps to the first [`SMALL`] bytes as long as the reader follows, so that a ring that carries
//! little takes little memory, and little of a cache.
//!
//! Neither believes the other. The reader checks the kind, the length and where an entry ends; the writer,
//! that the reader has not gone back or ahead of it. Whoever sees a lie has done with the ring.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::link::Lent;

/// Bytes of a ring with its two control words.
pub(super) const STRIDE: usize = 256 << 10;
/// The control words stand on lines of their own: how far the reader has come, and whether it looks by itself.
const CONTROL: usize = 128;
const READ_AT: usize = 0;
const POLLED_AT: usize = 64;
/// Bytes of entries.
pub(super) const CAPACITY: usize = STRIDE - CONTROL;
/// Entries begin at multiples of this.
pub(super) const ALIGN: usize = 32;
/// Bytes of a header.
const HEADER: usize = 8;
/// Longest payload.
pub const LONGEST: usize = 64 << 10;
/// The reader says how far it has come when it has come so far since it last did.
pub(super) const QUANTUM: usize = 4 << 10;
/// A ring whose reader follows is used up to here.
pub(super) const SMALL: usize = 32 << 10;

const _: () = {
    assert!(CAPACITY.is_multiple_of(ALIGN) && QUANTUM < SMALL && SMALL < CAPACITY);
    // An entry, another that did not fit before the end, and what the reader has not said.
    assert!(2 * (LONGEST + 2 * ALIGN) + QUANTUM < CAPACITY);
};

/// The orderings that make a ring safe; `ring_model` tries them out against all others.
pub(super) mod order {
    use std::sync::atomic::Ordering;

    /// The writer's store of a header: what it says is written before.
    /// SYNC POINT: header (acquired by `TAKE`)
    pub(crate) const PUBLISH: Ordering = Ordering::Release;
    /// The reader's load of a header.
    pub(crate) const TAKE: Ordering = Ordering::Acquire;
    /// The reader's store of how far it has come: it has read everything before.
    /// SYNC POINT: read (acquired by `REUSE`)
    pub(crate) const FREE: Ordering = Ordering::Release;
    /// The writer's load of that.
    pub(crate) const REUSE: Ordering = Ordering::Acquire;
}

/// What is wrong with what a peer has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// A header of no kind.
    Kind,
    /// A payload longer than any, or beyond the end.
    Length,
    /// A way back to the start from the start.
    Skip,
    /// The reader is where it cannot be.
    Read,
    /// A place of the inbox.
    Inbox,
}

/// What a header says. Zero is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A payload of so many bytes follows, for a tag.
    Data { tag: u8, len: usize },
    /// The next entry is at the start.
    Skip,
}

/// The lowest half of a header, but for the tag: improbable in what is no header.
const DATA: u32 = 0x00A5_C300;
const SKIP: u32 = 0x005A_3C00;

impl Header {
    #[inline]
    pub(super) const fn to_word(self) -> u64 {
        match self {
            Self::Data { tag, len } => (len as u64) << 32 | (DATA | tag as u32) as u64,
            Self::Skip => SKIP as u64,
        }
    }

    /// Reads a word that is not zero.
    #[inline]
    pub(super) const fn parse(word: u64) -> Result<Self, Corrupt> {
        let (low, len) = (word as u32, (word >> 32) as usize);
        if low & !0xFF == DATA {
            if len > LONGEST {
                return Err(Corrupt::Length);
            }
            Ok(Self::Data { tag: low as u8, len })
        } else if word == SKIP as u64 {
            Ok(Self::Skip)
        } else {
            Err(Corrupt::Kind)
        }
    }
}

/// Bytes of an entry with so much payload.
#[inline]
pub(super) const fn span(len: usize) -> usize {
    (HEADER + len).next_multiple_of(ALIGN)
}

/// The memory of a ring.
///
/// INVARIANT: `STRIDE` bytes at an address that is a multiple of 64, readable and writable, which `_keep` keeps.
struct Memory {
    start: *mut u8,
    _keep: Arc<dyn Send + Sync>,
}

// SAFETY: an address that is valid on every thread, and a promise about who writes where, which whoever makes
// the two ends gives.
unsafe impl Send for Memory {}

impl Memory {
    #[inline(always)]
    fn control(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at == READ_AT || at == POLLED_AT);
        // SAFETY: inside, by the invariant, and aligned: `at` is one of the two constants.
        unsafe { AtomicU64::from_ptr(self.start.wrapping_add(at).cast()) }
    }

    /// The header at an offset.
    #[inline(always)]
    fn header(&self, offset: usize) -> &AtomicU64 {
        assert!(offset <= CAPACITY - HEADER);
        debug_assert!(offset.is_multiple_of(ALIGN));
        // SAFETY: inside, as just checked; all offsets are multiples of `ALIGN`, so that it is aligned.
        unsafe { AtomicU64::from_ptr(self.start.wrapping_add(CONTROL + offset).cast()) }
    }

    /// So many bytes of payload behind the header at an offset.
    #[inline(always)]
    fn payload(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + HEADER + len <= CAPACITY);
        self.start.wrapping_add(CONTROL + offset + HEADER)
    }
}

/// The end that writes.
pub struct Sender {
    memory: Memory,
    /// Where the next entry goes.
    offset: usize,
    /// The same, in bytes since the ring was made.
    position: u64,
    /// How far the reader had come when it was last asked.
    read: u64,
    /// Bytes that are used.
    bound: usize,
    /// The reader looks by itself.
    is_polled: bool,
}

impl Sender {
    /// # Safety
    /// `STRIDE` bytes at a multiple of 64, zero, readable and writable as long as `keep` lives, and no other sender
    /// of this process writes there.
    pub(super) unsafe fn new(start: *mut u8, keep: Arc<dyn Send + Sync>) -> Self {
        let memory = Memory { start, _keep: keep };
        Self { memory, offset: 0, position: 0, read: 0, bound: SMALL, is_polled: false }
    }

    /// Writes an entry; false when there is no room yet. At most [`LONGEST`] bytes.
    ///
    /// # Errors
    /// When the reader is where it cannot be.
    #[inline]
    pub fn push(&mut self, tag: u8, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        let len = pieces[0].len() + pieces[1].len();
        assert!(len <= LONGEST, "longer than any entry");
        let fits = self.offset + span(len) + ALIGN <= self.bound;
        if !(if fits { self.has_room(span(len))? } else { self.turn(len)? }) {
            // From the next turn on there is more.
            self.bound = CAPACITY;
            return Ok(false);
        }
        let offset = self.offset;
        let end = offset + span(len);
        let mut to = self.memory.payload(offset, len);
        for piece in pieces {
            if !piece.is_empty() {
                // SAFETY: readable by the promise of whoever lent it; the room is inside the ring (`payload`), and
                // the writer's alone until a header says otherwise. Lent memory is the host's, not a ring's.
                unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len()) };
            }
            to = to.wrapping_add(piece.len());
        }
        self.memory.header(end).store(0, Ordering::Relaxed);
        self.memory.header(offset).store(Header::Data { tag, len }.to_word(), order::PUBLISH);
        self.advance(end);
        Ok(true)
    }

    /// The same with bytes of our own.
    ///
    /// # Errors
    /// When the reader is where it cannot be.
    pub fn push_bytes(&mut self, tag: u8, bytes: &[u8]) -> Result<bool, Corrupt> {
        // SAFETY: readable until the call returns, which only reads them.
        let piece = unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        self.push(tag, [piece, Lent::EMPTY])
    }

    /// Whether the reader looks at the ring without being rung for. Once it does, it always will.
    #[inline]
    pub fn is_polled(&mut self) -> bool {
        if !self.is_polled {
            self.is_polled = self.memory.control(POLLED_AT).load(Ordering::Relaxed) == 1;
        }
        self.is_polled
    }

    /// Whether so many bytes, and the empty header behind them, lie where the reader has done with everything.
    #[inline]
    fn has_room(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        let needed = self.position + (bytes + ALIGN) as u64;
        if needed <= self.read + CAPACITY as u64 {
            return Ok(true);
        }
        // SYNC POINT: read (released in `Receiver::release`)
        let read = self.memory.control(READ_AT).load(order::REUSE);
        if read < self.read || read > self.position {
            return Err(Corrupt::Read);
        }
        self.read = read;
        Ok(needed <= read + CAPACITY as u64)
    }

    /// Goes back to the start, or beyond the small part, for an entry that does not fit before the bound.
    #[cold]
    fn turn(&mut self, len: usize) -> Result<bool, Corrupt> {
        let rest = CAPACITY - self.offset;
        if self.has_room(rest + span(len))? {
            self.memory.header(0).store(0, Ordering::Relaxed);
            self.memory.header(self.offset).store(Header::Skip.to_word(), order::PUBLISH);
            self.advance(CAPACITY);
            self.offset = 0;
            return Ok(true);
        }
        self.bound = CAPACITY;
        if self.offset + span(len) + ALIGN <= CAPACITY { self.has_room(span(len)) } else { Ok(false) }
    }

    fn advance(&mut self, to: usize) {
        self.position += (to - self.offset) as u64;
        self.offset = to;
    }
}

/// An entry that has arrived. Its bytes lie in the ring, where the sender could still write to them.
pub struct Arrival {
    /// Tag of the receiver's callback.
    pub tag: u8,
    /// Its payload, until it is [released](Receiver::release).
    pub bytes: Lent,
}

/// The end that reads.
pub struct Receiver {
    memory: Memory,
    /// Where the next entry is.
    offset: usize,
    /// The same, in bytes since the ring was made.
    position: u64,
    /// How far the sender knows that we have come.
    said: u64,
    /// Entries that are taken and not released.
    held: u32,
}

impl Receiver {
    /// # Safety
    /// `STRIDE` bytes at a multiple of 64, readable and writable as long as `keep` lives.
    pub(super) unsafe fn new(start: *mut u8, keep: Arc<dyn Send + Sync>) -> Self {
        Self { memory: Memory { start, _keep: keep }, offset: 0, position: 0, said: 0, held: 0 }
    }

    /// Tells the sender that it need not ring for this ring any more.
    pub fn poll_from_now_on(&self) {
        self.memory.control(POLLED_AT).store(1, Ordering::Relaxed);
    }

    /// Whether there is anything, right or wrong.
    pub fn has_next(&self) -> bool {
        self.memory.header(self.offset).load(Ordering::Relaxed) != 0
    }

    /// The next entry, if it is there. It stays where it is until it is released.
    ///
    /// # Errors
    /// When the sender has written what no sender writes. The ring must not be looked at again.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Arrival>, Corrupt> {
        // SYNC POINT: header (released in `Sender::push`)
        let mut word = self.memory.header(self.offset).load(order::TAKE);
        if word == 0 {
            return Ok(None);
        }
        let mut header = Header::parse(word)?;
        if header == Header::Skip {
            if self.offset == 0 {
                return Err(Corrupt::Skip);
            }
            self.position += (CAPACITY - self.offset) as u64;
            self.offset = 0;
            word = self.memory.header(0).load(order::TAKE);
            if word == 0 {
                return Ok(None);
            }
            header = Header::parse(word)?;
        }
        let Header::Data { tag, len } = header else { return Err(Corrupt::Skip) };
        let end = self.offset + span(len);
        if end + ALIGN > CAPACITY {
            return Err(Corrupt::Length);
        }
        let start = self.memory.payload(self.offset, len);
        self.position += span(len) as u64;
        self.offset = end;
        self.held += 1;
        // SAFETY: inside the ring, which is mapped as long as any peer of this process is known; the sender leaves it
        // alone until it is released. Nobody writes to it here.
        Ok(Some(Arrival { tag, bytes: unsafe { Lent::new(start, len) } }))
    }

    /// An entry is done with. They end in any order: the sender hears when none is held.
    #[inline]
    pub fn release(&mut self) {
        self.held = self.held.saturating_sub(1);
        if self.held == 0 && self.position - self.said >= QUANTUM as u64 {
            self.said = self.position;
            // SYNC POINT: read (acquired in `Sender::has_room`)
            self.memory.control(READ_AT).store(self.position, order::FREE);
        }
    }
}

/// What a hostile peer can do to a ring, for tests.
#[cfg(test)]
pub(crate) mod forge {
    use super::*;

    /// Writes a word where a header is.
    pub(crate) fn header(sender: &Sender, offset: usize, word: u64) {
        sender.memory.header(offset).store(word, Ordering::Release);
    }

    /// The same where the next entry goes.
    pub(crate) fn next(sender: &Sender, word: u64) {
        header(sender, sender.offset, word);
    }

    /// Says how far the reader has come.
    pub(crate) fn read(sender: &Sender, position: u64) {
        sender.memory.control(READ_AT).store(position, Ordering::Release);
    }

    /// How much of the ring is used, and where the next entry goes.
    pub(crate) fn bound(sender: &Sender) -> (usize, usize) {
        (sender.bound, sender.offset)
    }
}
