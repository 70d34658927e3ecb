//! Memory for messages, and what is written there.

use std::ptr::NonNull;

/// Memory that peers and the transport read and write at any time.
///
/// INVARIANT: `length` bytes from `start` on are this program's until its end.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    start: NonNull<u8>,
    length: usize,
}

impl Block {
    /// So many zeros, which nobody frees: who uses them is gone only when the process is.
    pub(crate) fn new(length: usize) -> Self {
        let bytes = Box::leak(vec![0_u8; length].into_boxed_slice());
        Self { start: NonNull::from(bytes).cast(), length }
    }

    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// So many bytes from a place on, which are within the block.
    #[inline]
    pub(crate) fn part(self, at: usize, length: usize) -> *mut u8 {
        assert!(at <= self.length && length <= self.length - at, "within the block");
        self.start.as_ptr().wrapping_add(at)
    }

    /// Writes the bytes of a message, by a number. Of two numbers below 256 every byte is another.
    pub(crate) fn fill(self, number: u64, length: usize) {
        for at in 0..length {
            // SAFETY: within the block, which is ours by the invariant.
            unsafe { self.part(at, 1).write_volatile(pattern(number, at)) };
        }
    }

    /// Whether they are those.
    pub(crate) fn is_filled(self, number: u64, length: usize) -> bool {
        // SAFETY: within the block, which is ours by the invariant.
        (0..length).all(|at| unsafe { self.part(at, 1).read_volatile() } == pattern(number, at))
    }
}

/// The byte of a message at a place.
pub(crate) fn pattern(number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31).wrapping_add(at as u64 * 7).wrapping_add(at as u64 >> 8)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_one_message_are_no_others() {
        let block = Block::new(600);
        for number in 0..3 {
            block.fill(number, 600);
            for other in 0..3 {
                assert!([1, 600].iter().all(|length| block.is_filled(other, *length) == (other == number)));
            }
        }
    }

    #[test]
    #[should_panic(expected = "within the block")]
    fn what_lies_outside_is_never_touched() {
        Block::new(8).part(usize::MAX, 2);
    }
}
