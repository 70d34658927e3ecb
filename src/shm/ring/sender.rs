//! The end of a ring that writes.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    ALIGN, CAPACITY, COPIES_AT, Corrupt, GONE_AT, HEADER, Header, LINE, LONGEST, Memory, POLLED, POLLED_AT,
    QUANTUM, READ_AT, SHORT, SMALL, order, span, tail,
};
use crate::link::Lent;

/// The end that writes.
pub struct Sender {
    pub(super) memory: Memory,
    /// Where the next entry goes.
    pub(super) offset: usize,
    /// Entries that end up to here need no question: the reader has done with all that lies there, and with the
    /// header behind it.
    limit: usize,
    /// Bytes of the turns that are over. With an offset, that is a position: bytes since the ring was made.
    turns: u64,
    /// The position of the reader when it was last asked.
    read: u64,
    /// Bytes that are used.
    pub(super) bound: usize,
    /// The reader looks by itself.
    is_polled: bool,
}

impl Sender {
    /// # Safety
    /// `STRIDE` bytes at a multiple of 64, zero, readable and writable as long as `keep` lives, and no other sender
    /// of this process writes there.
    pub(in super::super) unsafe fn new(start: *mut u8, keep: Arc<dyn Send + Sync>) -> Self {
        let memory = Memory { start, _keep: keep };
        let limit = SMALL - ALIGN;
        Self { memory, offset: 0, limit, turns: 0, read: 0, bound: SMALL, is_polled: false }
    }

    /// The writer is gone: what its private memory held for the reader is something else from now on, once nobody [copies
    /// there](Self::is_copied). The reader begins no copy any more.
    pub fn go(&self) {
        self.memory.control(GONE_AT).store(1, order::MEET);
    }

    /// Whether the reader copies from or to the private memory of the writer, who has [gone](Self::go). It may be dead, or lie.
    pub fn is_copied(&self) -> bool {
        // SYNC POINT: copied (released in `Receiver::copy`): what was copied is there.
        self.memory.control(COPIES_AT).load(order::MEET) != 0
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
        let [head, data] = pieces;
        let len = head.len().saturating_add(data.len());
        let Some(to) = self.place(len)? else { return Ok(false) };
        self.write_data(to, head.len(), data);
        // SAFETY: readable by the promise of whoever lent it; the room is that before the data. Lent memory is the host's, not a
        // ring's.
        unsafe { copy(head.as_ptr(), to, head.len()) };
        self.publish(header(len).to_word(), len);
        Ok(true)
    }

    /// Writes an entry of a word, little-endian, and of what follows it.
    ///
    /// # Errors
    /// When the reader is where it cannot be.
    #[inline(always)]
    pub fn push_word(&mut self, tag: u8, word: u64, data: Lent) -> Result<bool, Corrupt> {
        const WORD: usize = size_of::<u64>();
        let len = WORD.saturating_add(data.len());
        let Some(to) = self.place(len)? else { return Ok(false) };
        self.write_data(to, WORD, data);
        // SAFETY: room for a word before the data, behind a header, which is aligned; the writer's alone until a header says
        // otherwise.
        unsafe { to.cast::<u64>().write(word.to_le()) };
        self.publish(Header::Data { tag, len }.to_word(), len);
        Ok(true)
    }

    /// Where the payload of the next entry goes, if there is room for so many bytes. The empty header behind it is written first:
    /// where its line is another one, that may be in the reader's cache, and whatever is written after it waits for it. So between
    /// what is written to the line of the entry's own header, where the reader looks all the time, nothing is waited for.
    #[inline(always)]
    fn place(&mut self, len: usize) -> Result<Option<*mut u8>, Corrupt> {
        assert!(len <= LONGEST, "longer than any entry");
        if self.offset + span(len) > self.limit && !self.make_room(len)? {
            return Ok(None);
        }
        self.memory.header(self.offset + span(len)).store(0, Ordering::Relaxed);
        Ok(Some(self.memory.payload(self.offset, len)))
    }

    /// Writes what stands behind so many bytes of the payload that goes `to` there.
    #[inline(always)]
    fn write_data(&self, to: *mut u8, head: usize, data: Lent) {
        let behind = to.wrapping_add(head);
        // What lies on the lines behind that of the header is written first: the reader looks at that line all the time,
        // and takes it away from who is not done with it.
        let near = (LINE - (self.offset + HEADER) % LINE).saturating_sub(head).min(data.len());
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
    }

    /// The payload is there, and the empty header behind it: the reader may see the entry.
    #[inline(always)]
    fn publish(&mut self, header: u64, len: usize) {
        self.memory.header(self.offset).store(header, order::PUBLISH);
        self.offset += span(len);
        // The line behind the one at which the reader looks now: it comes while he reads this entry.
        let next = (self.offset + LINE) & !(LINE - 1);
        if next <= self.limit {
            self.memory.will_write(next);
        }
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

    /// Asks for the lines of the next entry, if that is as long as the last, which had so many bytes of payload. The reader has
    /// them, of what was there before, and is to have read that.
    #[inline(never)]
    pub fn prepare(&self, len: usize) {
        let (bytes, last) = (span(len), self.offset.saturating_sub(span(len)));
        let (from, to) = if self.offset + bytes + ALIGN <= self.bound {
            // The line at which he looks is left to him.
            (self.offset + LINE, self.offset + bytes)
        } else {
            // At the start; and he reads the last.
            (0, bytes.min(last))
        };
        (from & !(LINE - 1)..to & !(LINE - 1)).step_by(LINE).for_each(|at| self.memory.will_write(at));
    }
}

/// Copies so many bytes, few of them without a call.
///
/// # Safety
/// `from` is readable for so many bytes, `to` writable, and they are not the same memory.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
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
