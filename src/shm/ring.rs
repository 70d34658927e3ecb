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
//! The writer keeps to the first [`SMALL`] bytes as long as the reader follows, and again once it does, so that a ring
//! that carries little takes little memory, and little of a cache.
//!
//! What ends with zeros, as a host's announcement of a long message does, can go [without them](tail).
//!
//! Neither believes the other. The reader checks the kind, the length and where an entry ends; the writer,
//! that the reader has not gone back or ahead of it. Whoever sees a lie has done with the ring.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tail::{self, REST, Whole};
use crate::link::Lent;

/// Bytes of a ring with its two control words.
pub(super) const STRIDE: usize = 256 << 10;
/// The control words stand on lines of their own: how far the reader has come, and whether it looks by itself.
const CONTROL: usize = 128;
const READ_AT: usize = 0;
const POLLED_AT: usize = 64;
/// What the second says: nobody has found the ring (0), its reader looks there by itself, or when the bell rings.
const POLLED: u64 = 1;
const FOUND: u64 = 2;
/// Bytes of entries.
pub(super) const CAPACITY: usize = STRIDE - CONTROL;
/// Entries begin at multiples of this.
pub const ALIGN: usize = 32;
/// Bytes that go from one processor to another at once.
const LINE: usize = 64;
/// Pieces up to here are copied without a call.
const SHORT: usize = 32;
/// Bytes of a header.
const HEADER: usize = 8;
/// Longest payload.
pub const LONGEST: usize = 64 << 10;
/// The reader says how far it has come when it has come so far since it last did.
pub(super) const QUANTUM: usize = 4 << 10;
/// A ring whose reader follows is used up to here: two entries of 4 KiB, so that both directions stay in the nearest cache.
/// With 32 KiB a message of 512 bytes over the provider gni took a tenth longer.
pub(super) const SMALL: usize = (8 << 10) + 256;

const _: () = {
    assert!(ALIGN.is_power_of_two() && CAPACITY.is_multiple_of(ALIGN) && QUANTUM < SMALL && SMALL < CAPACITY);
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
    /// The same, of a payload whose end is left out.
    Cut { tag: u8, len: usize },
    /// The next entry is at the start.
    Skip,
}

/// The lowest half of a header, but for the tag: improbable in what is no header.
const DATA: u32 = 0x00A5_C300;
const CUT: u32 = 0x00C3_A500;
const SKIP: u32 = 0x005A_3C00;

impl Header {
    #[inline]
    pub(super) const fn to_word(self) -> u64 {
        match self {
            Self::Data { tag, len } => (len as u64) << 32 | (DATA | tag as u32) as u64,
            Self::Cut { tag, len } => (len as u64) << 32 | (CUT | tag as u32) as u64,
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
        } else if low & !0xFF == CUT {
            if len > REST {
                return Err(Corrupt::Length);
            }
            Ok(Self::Cut { tag: low as u8, len })
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
    (HEADER + len + ALIGN - 1) & !(ALIGN - 1)
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
    /// Entries that end up to here need no question: the reader has done with all that lies there, and with the
    /// header behind it.
    limit: usize,
    /// Bytes of the turns that are over. With an offset, that is a position: bytes since the ring was made.
    turns: u64,
    /// The position of the reader when it was last asked.
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
        let limit = SMALL - ALIGN;
        Self { memory, offset: 0, limit, turns: 0, read: 0, bound: SMALL, is_polled: false }
    }

    /// Writes an entry; false when there is no room yet. At most [`LONGEST`] bytes.
    ///
    /// # Errors
    /// When the reader is where it cannot be.
    #[inline(always)]
    pub fn push(&mut self, tag: u8, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        self.write(|len| Header::Data { tag, len }, pieces)
    }

    /// The same of what may end with zeros, which are left out where that pays.
    ///
    /// # Errors
    /// When the reader is where it cannot be.
    #[inline]
    pub fn push_cut(&mut self, tag: u8, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        match tail::cut(pieces[0]).filter(|_| pieces[1].is_empty()) {
            Some(rest) => self.write(|len| Header::Cut { tag, len }, [rest, Lent::EMPTY]),
            None => self.push(tag, pieces),
        }
    }

    #[inline(always)]
    fn write(&mut self, header: impl Fn(usize) -> Header, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        let len = pieces[0].len().saturating_add(pieces[1].len());
        assert!(len <= LONGEST, "longer than any entry");
        if self.offset + span(len) > self.limit && !self.make_room(len)? {
            return Ok(false);
        }
        let offset = self.offset;
        let end = offset + span(len);
        let [head, data] = pieces;
        let to = self.memory.payload(offset, len);
        let behind = to.wrapping_add(head.len());
        // What lies on the lines behind that of the header is written first: the reader looks at that line all the time,
        // and takes it away from who is not done with it.
        let near = (LINE - (offset + HEADER) % LINE).saturating_sub(head.len()).min(data.len());
        if data.len() > SHORT && near < data.len() {
            let (from, to) = (data.as_ptr().wrapping_add(near), behind.wrapping_add(near));
            // SAFETY: the end of a piece that is readable by the promise of whoever lent it; the room is inside the ring
            // (`payload`), and the writer's alone until a header says otherwise. Lent memory is the host's, not a ring's.
            unsafe { ptr::copy_nonoverlapping(from, to, data.len() - near) };
            // SAFETY: its beginning, likewise.
            unsafe { copy(data.as_ptr(), behind, near) };
        } else {
            // SAFETY: all of it, likewise.
            unsafe { copy(data.as_ptr(), behind, data.len()) };
        }
        // SAFETY: the other piece, likewise, and the room before the first.
        unsafe { copy(head.as_ptr(), to, head.len()) };
        self.memory.header(end).store(0, Ordering::Relaxed);
        self.memory.header(offset).store(header(len).to_word(), order::PUBLISH);
        self.offset = end;
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
    #[inline(always)]
    pub fn is_polled(&mut self) -> bool {
        if !self.is_polled {
            self.is_polled = self.memory.control(POLLED_AT).load(Ordering::Relaxed) == POLLED;
        }
        self.is_polled
    }

    /// Whether a reader has found the ring.
    pub fn is_found(&self) -> bool {
        // SYNC POINT: found (released in `Receiver::found`)
        self.memory.control(POLLED_AT).load(Ordering::Acquire) != 0
    }

    /// Whether anything was ever written.
    pub fn has_written(&self) -> bool {
        self.position() != 0
    }

    /// Finds room for an entry beyond the limit.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, len: usize) -> Result<bool, Corrupt> {
        let fits = self.offset + span(len) + ALIGN <= self.bound;
        if !(if fits { self.has_room(span(len))? } else { self.turn(len)? }) {
            // From the next turn on there is more.
            self.bound = CAPACITY;
            return Ok(false);
        }
        if self.bound != SMALL {
            self.ask()?;
            if self.position() <= self.read + QUANTUM as u64 {
                self.bound = SMALL;
            }
        }
        let free = (self.read + CAPACITY as u64 - self.turns) as usize;
        self.limit = free.min(self.bound).saturating_sub(ALIGN);
        Ok(true)
    }

    /// Bytes that were written since the ring was made: a multiple of [`ALIGN`].
    pub fn position(&self) -> u64 {
        self.turns + self.offset as u64
    }

    /// Whether so many bytes, and the empty header behind them, lie where the reader has done with everything.
    fn has_room(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        let needed = self.position() + (bytes + ALIGN) as u64;
        if needed <= self.read + CAPACITY as u64 {
            return Ok(true);
        }
        self.ask()?;
        Ok(needed <= self.read + CAPACITY as u64)
    }

    /// Looks how far the reader says that it has come.
    fn ask(&mut self) -> Result<(), Corrupt> {
        // SYNC POINT: read (released in `Receiver::say`)
        let read = self.memory.control(READ_AT).load(order::REUSE);
        if read < self.read || read > self.position() {
            return Err(Corrupt::Read);
        }
        self.read = read;
        Ok(())
    }

    /// Goes back to the start, or beyond the small part, for an entry that does not fit before the bound.
    fn turn(&mut self, len: usize) -> Result<bool, Corrupt> {
        let rest = CAPACITY - self.offset;
        if self.has_room(rest + span(len))? {
            self.memory.header(0).store(0, Ordering::Relaxed);
            self.memory.header(self.offset).store(Header::Skip.to_word(), order::PUBLISH);
            self.turns += CAPACITY as u64;
            self.offset = 0;
            return Ok(true);
        }
        self.bound = CAPACITY;
        if self.offset + span(len) + ALIGN <= CAPACITY { self.has_room(span(len)) } else { Ok(false) }
    }
}

/// Copies so many bytes, few of them without a call.
///
/// # Safety
/// `from` is readable for so many bytes, `to` writable, and they are not the same memory.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // The host's header of a message is the usual case.
    if (8..=16).contains(&len) {
        // SAFETY: at least eight bytes; the rest is the caller's promise.
        unsafe { copy_ends::<u64>(from, to, len) }
    } else if len > SHORT {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, to, len) }
    } else if len > 16 {
        // SAFETY: more than sixteen bytes; the rest is the caller's promise.
        unsafe { copy_ends::<[u64; 2]>(from, to, len) }
    } else if len >= 4 {
        // SAFETY: at least four bytes, and less than eight; the rest is the caller's promise.
        unsafe { copy_ends::<u32>(from, to, len) }
    } else if len >= 2 {
        // SAFETY: at least two bytes; the rest is the caller's promise.
        unsafe { copy_ends::<u16>(from, to, len) }
    } else if len == 1 {
        // SAFETY: one byte; the rest is the caller's promise.
        unsafe { copy_ends::<u8>(from, to, len) }
    }
}

/// Copies as many bytes as a word has from both ends, which may be the same ones in part: all, when there are up to
/// two words of them.
///
/// # Safety
/// As for [`copy`], and there are as many bytes as in a word.
#[inline(always)]
unsafe fn copy_ends<W: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let behind = len - size_of::<W>();
    // SAFETY: a word of readable bytes, as the caller says; words are numbers.
    let first = unsafe { from.cast::<W>().read_unaligned() };
    // SAFETY: the last word of these bytes.
    let last = unsafe { from.wrapping_add(behind).cast::<W>().read_unaligned() };
    // SAFETY: the same of bytes that the caller may write.
    unsafe { to.cast::<W>().write_unaligned(first) };
    // SAFETY: the last word of these.
    unsafe { to.wrapping_add(behind).cast::<W>().write_unaligned(last) };
}

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
    pub(super) unsafe fn new(start: *mut u8, keep: Arc<dyn Send + Sync>) -> Self {
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

    /// An entry of so many bytes is next.
    #[inline(always)]
    fn arrived(&mut self, tag: u8, len: usize, is_cut: bool) -> Result<Arrival, Corrupt> {
        let end = self.offset + span(len);
        if end + ALIGN > CAPACITY {
            return Err(Corrupt::Length);
        }
        let start = self.memory.payload(self.offset, len);
        self.offset = end;
        self.held += 1;
        // SAFETY: inside the ring, which is mapped as long as an entry of it is held; the sender leaves it
        // alone until it is released. Nobody writes to it here.
        Ok(Arrival { tag, bytes: unsafe { Lent::new(start, len) }, is_cut })
    }

    /// An entry is done with. They end in any order: the sender hears when none is held. Whether it has now.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        self.held = self.held.saturating_sub(1);
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
