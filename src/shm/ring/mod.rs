//! A ring of bytes from one process to another: one writer, one reader.
//!
//! It lies in the writer's segment. An entry is one word, its header, and the payload behind it; the header is
//! written last, so that one line of the cache brings both. Behind an entry there is always a header of zero,
//! which is written first: the reader waits on it and needs nothing else. No entry goes around the end of the ring:
//! a header of its own kind sends the reader to the start.
//!
//! The reader says now and then how far it has come, in bytes since the ring was made: what lies before may be
//! overwritten. It says so after every [`QUANTUM`], and the longest entry fits a ring of which less than that
//! is not yet said to be free: nobody ever waits for the other to say more.
//!
//! The writer keeps to the first [`SMALL`] bytes as long as the reader follows, and again once it does, so that a ring
//! that carries little takes little memory, and little of a cache.
//!
//! What ends with zeros, as a host's announcement of a long message does, can go [without them](super::tail).
//!
//! Neither believes the other. The reader checks the kind, the length and where an entry ends; the writer,
//! that the reader has not gone back or ahead of it. Whoever sees a lie has done with the ring.

#[cfg(test)]
pub(crate) mod forge;
mod receiver;
mod sender;

pub use receiver::{Arrival, Next, Receiver};
pub use sender::{Sender, copy};

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::tail::{self, REST};

/// Bytes of a ring with its two control words.
pub(super) const STRIDE: usize = 256 << 10;
/// The control words that are looked at often stand on lines of their own: how far the reader has come, and whether it looks by
/// itself. Beside the second: whether the writer is gone, so that nobody may copy from or to its private memory any more, and
/// whether the reader does just now.
const CONTROL: usize = 128;
const READ_AT: usize = 0;
const POLLED_AT: usize = 64;
const GONE_AT: usize = 72;
const COPIES_AT: usize = 80;
/// What the second says: nobody has found the ring (0), its reader looks there by itself, or when the bell rings.
const POLLED: u64 = 1;
const FOUND: u64 = 2;
/// Bytes of entries.
pub(super) const CAPACITY: usize = STRIDE - CONTROL;
/// Entries begin at multiples of this.
pub const ALIGN: usize = 32;
/// Entries that a ring holds at most.
pub const ENTRIES: usize = CAPACITY / ALIGN;
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
    /// Not of the model, which has entries only: the reader says that it copies, and looks whether the writer is gone; the writer says that it is, and looks whether the
    /// reader copies. Each store comes before the load behind it, so that one of both sees the other.
    pub(crate) const MEET: Ordering = Ordering::SeqCst;
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
        debug_assert!([READ_AT, POLLED_AT, GONE_AT, COPIES_AT].contains(&at));
        // SAFETY: inside, by the invariant, and aligned: `at` is one of the four constants.
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

    /// Asks the processor for the line at an offset, to write there: mostly the reader has it. What `_mm_prefetch` knows would ask
    /// for it to read there, unless the library were for newer processors only.
    #[inline(always)]
    fn will_write(&self, offset: usize) {
        let at = self.start.wrapping_add(CONTROL + offset);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: changes nothing that a program can see, and never faults, whatever the address; a processor of 64 bits that
            // does not know it passes over it.
            unsafe {
                std::arch::asm!(
                    "prefetchw byte ptr [{}]",
                    in(reg) at.addr(),
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }

    /// So many bytes of payload behind the header at an offset.
    #[inline(always)]
    fn payload(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + HEADER + len <= CAPACITY);
        self.start.wrapping_add(CONTROL + offset + HEADER)
    }
}
