//! [`Lent`]: memory of somebody else, as an address and a length, never as a reference.

use std::fmt;
use std::ptr;

/// Bytes that the processor fetches at once.
const CACHE_LINE: usize = 64;

/// Bytes of a part that has others behind it: of a packet.
const LONG: usize = 512;

/// Bytes that are asked for ahead. The processor goes on by itself, but not beyond a page.
const MOST: usize = 2048;

/// Memory lent by its owner until the operation that uses it has completed.
#[derive(Clone, Copy)]
pub struct Lent {
    start: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; the promise of `new` holds on every thread.
unsafe impl Send for Lent {}
// SAFETY: a shared `Lent` only tells its two numbers; the bytes are only ever copied, by calls whose order
// whoever lends them sees to.
unsafe impl Sync for Lent {}

impl Lent {
    /// No bytes.
    pub const EMPTY: Self = Self { start: ptr::null_mut(), len: 0 };

    /// # Safety
    /// `start` is valid for reads of `len` bytes, and for writes if anybody is to
    /// [`write`](Self::write), until the operation that the memory is lent to has completed. No
    /// reference to the bytes is used while they are read or written.
    #[inline]
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for a call that reads the memory itself.
    #[inline]
    pub fn as_ptr(self) -> *const u8 {
        self.start
    }

    /// The same, for a call that writes to it.
    #[inline]
    pub fn as_mut_ptr(self) -> *mut u8 {
        self.start
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the part is not inside.
    #[inline]
    pub fn slice(self, offset: usize, len: usize) -> Self {
        self.check(offset, len);
        Self { start: self.start.wrapping_add(offset), len }
    }

    /// Takes so many bytes off the front of two that follow each other, or what is left of them.
    #[inline]
    pub fn take(from: &mut [Self; 2], len: usize) -> [Self; 2] {
        let first = from[0].len.min(len);
        let second = from[1].len.min(len - first);
        let taken = [from[0].slice(0, first), from[1].slice(0, second)];
        from[0] = from[0].slice(first, from[0].len - first);
        from[1] = from[1].slice(second, from[1].len - second);
        taken
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn read(self, offset: usize, to: &mut [u8]) {
        let from = self.slice(offset, to.len()).start;
        // SAFETY: inside, as just checked; readable by the promise of `new`, which also says that `to`
        // is no reference to the same bytes.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Appends all of it to `to`.
    #[inline]
    pub fn append_to(self, to: &mut Vec<u8>) {
        if self.len == 0 {
            return;
        }
        to.reserve(self.len);
        let room = to.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: readable by the promise of `new`, which also says that the vector, a reference, is not
        // the same bytes; the room has just been reserved.
        unsafe { ptr::copy_nonoverlapping(self.start, room, self.len) };
        // SAFETY: these bytes have just been written.
        unsafe { to.set_len(to.len() + self.len) };
    }

    /// Asks the processor for a part that is going to be read, or for what there is of it.
    #[inline]
    pub(super) fn will_read(self, offset: usize, len: usize) {
        self.lines(offset, len).for_each(prefetch::<false>);
    }

    /// The same of a part that is going to be written.
    #[inline]
    fn will_write(self, offset: usize, len: usize) {
        self.lines(offset, len).for_each(prefetch::<true>);
    }

    #[inline]
    fn lines(self, offset: usize, len: usize) -> impl Iterator<Item = *const u8> {
        let end = self.len.min(offset.saturating_add(len));
        (offset..end).step_by(CACHE_LINE).map(move |at| self.start.wrapping_add(at).cast_const())
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn write(self, offset: usize, from: &[u8]) {
        let to = self.slice(offset, from.len()).start;
        // What belongs behind it mostly follows.
        if from.len() >= LONG {
            self.will_write(offset + from.len(), from.len().min(MOST));
        }
        // SAFETY: inside, as just checked; writable by the promise of `new`, which also says that
        // `from` is no reference to the same bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    /// Has bytes of it changed where they are.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn change<R>(self, offset: usize, len: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = self.slice(offset, len).start;
        if len == 0 {
            return change(&mut []);
        }
        // SAFETY: inside, as just checked; readable and writable by the promise of `new`, which also says that nobody has a
        // reference to the bytes meanwhile.
        change(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Copies the bytes of other lent memory into it.
    ///
    /// # Panics
    /// If there is no room for them at the offset.
    #[inline]
    pub fn copy(self, offset: usize, from: Self) {
        if from.len == 0 {
            return;
        }
        let to = self.slice(offset, from.len).start;
        // SAFETY: inside, as just checked; readable and writable by the promises of `new`. Either may be a part of the other.
        unsafe { ptr::copy(from.start, to, from.len) }
    }

    #[inline]
    fn check(self, offset: usize, len: usize) {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            outside(offset, len, self.len);
        }
    }
}

/// A copy of bytes that were lent.
#[derive(Debug)]
pub struct Copied(Vec<u8>);

impl Copied {
    /// Of these.
    pub fn of(bytes: Lent) -> Self {
        let mut copy = Vec::with_capacity(bytes.len());
        bytes.append_to(&mut copy);
        Self(copy)
    }

    /// All of it. It is there as long as this is, wherever this is moved to.
    pub fn lent(&mut self) -> Lent {
        // SAFETY: bytes of our own, of which nobody makes a reference.
        unsafe { Lent::new(self.0.as_mut_ptr(), self.0.len()) }
    }
}

/// Asks the processor for the bytes at an address, where there is a way to ask.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const TO_WRITE: bool>(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
    if TO_WRITE {
        // SAFETY: a prefetch changes nothing that a program can see, and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) };
    } else {
        // SAFETY: a prefetch changes nothing that a program can see, and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch<const TO_WRITE: bool>(_: *const u8) {}

/// By value: what may be said costs nothing where nothing is said.
#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, of: usize) -> ! {
    panic!("{len} bytes at {offset} of {of} lent bytes");
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_written_where_they_lie() {
        let mut bytes = *b"0123456789";
        // SAFETY: outlives the lent memory, and is not touched before its last use.
        let all = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        let part = all.slice(3, 4);
        let mut copy = [0; 2];
        part.read(1, &mut copy);
        assert_eq!(&copy, b"45");
        let mut vector = vec![b'x'];
        part.append_to(&mut vector);
        Lent::EMPTY.append_to(&mut vector);
        assert_eq!(vector, b"x3456");
        part.write(2, b"ab");
        assert_eq!(part.change(0, 2, |bytes| std::mem::replace(&mut bytes[1], b'c')), b'4');
        Lent::EMPTY.change(0, 0, |bytes| assert!(bytes.is_empty()));
        assert_eq!(&bytes, b"0123cab789");
    }

    #[test]
    fn what_follows_each_other_is_taken_off_the_front() {
        let (mut first, mut second) = (*b"abcde", *b"fgh");
        let lend = |bytes: &mut [u8]| {
            // SAFETY: both outlive the lent memory, and are not touched before its last use.
            unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) }
        };
        let mut rest = [lend(&mut first), lend(&mut second)];
        let mut next = |len| {
            let mut bytes = Vec::new();
            Lent::take(&mut rest, len).into_iter().for_each(|part| part.append_to(&mut bytes));
            bytes
        };
        assert_eq!((next(3), next(4)), (b"abc".to_vec(), b"defg".to_vec()));
        assert_eq!((next(4), next(1)), (b"h".to_vec(), Vec::new()));
    }

    #[test]
    fn what_is_asked_for_ahead_changes_nothing() {
        let mut bytes = vec![7_u8; 3 * LONG];
        // SAFETY: outlives the lent memory, and is not touched before its last use.
        let all = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        for (offset, len) in [(0, 8), (100, 10 * LONG), (3 * LONG, 1), (usize::MAX, usize::MAX)] {
            all.will_read(offset, len);
            all.will_write(offset, len);
        }
        all.write(2 * LONG, &[8; LONG]);
        all.write(0, &[9; LONG]);
        assert!(bytes.chunks(LONG).map(|part| part[0]).eq([9, 7, 8]));
        assert!(bytes.chunks(LONG).all(|part| part.iter().all(|byte| *byte == part[0])));
    }

    #[test]
    fn nothing_outside_is_reached() {
        let mut bytes = [0_u8; 8];
        // SAFETY: outlives the lent memory.
        let all = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        for (offset, len) in [(9, 0), (8, 1), (0, 9), (usize::MAX, 2), (1, usize::MAX)] {
            assert!(std::panic::catch_unwind(|| all.slice(offset, len)).is_err(), "{offset} {len}");
            assert!(std::panic::catch_unwind(|| all.change(offset, len, |_| ())).is_err(), "{offset} {len}");
        }
        assert!(all.slice(8, 0).is_empty());
        Lent::EMPTY.read(0, &mut []);
    }
}
