//! Entries whose end is not written, because it is zeros.
//!
//! A host's announcement of a long message ends with a handle of its memory, which has room for what opens memory of a
//! device: zeros, for memory of the host's. The lines of a cache that they would fill are most of those that such a
//! message has, and each takes its time from one processor to another. So the writer leaves them out, and says so
//! in the header; the reader puts them back, in memory of its own.

use crate::link::Lent;

/// Zeros that are left out, in bytes; never fewer.
pub const TAIL: usize = 152;
/// Longest payload that they are left out of, with them.
pub(super) const WHOLE: usize = 384;
/// The longest that is left.
pub(super) const REST: usize = WHOLE - TAIL;

/// What is left of a payload without the zeros that it ends with; `None` where it is written as it is.
#[inline]
pub(super) fn cut(payload: Lent) -> Option<Lent> {
    if !(TAIL..=WHOLE).contains(&payload.len()) {
        return None;
    }
    let rest = payload.len() - TAIL;
    let mut tail = [0; TAIL];
    payload.read(rest, &mut tail);
    (tail == [0; TAIL]).then(|| payload.slice(0, rest))
}

/// A payload with its end.
#[repr(align(64))]
pub struct Whole {
    bytes: [u8; WHOLE],
    len: usize,
}

impl Whole {
    /// What has arrived, of which the end was left out.
    #[inline]
    pub(super) fn of(rest: Lent) -> Self {
        let mut bytes = [0; WHOLE];
        let len = rest.len().min(REST);
        rest.slice(0, len).read(0, &mut bytes[..len]);
        Self { bytes, len: len + TAIL }
    }

    /// All of it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lend(bytes: &[u8]) -> Lent {
        // SAFETY: outlives each test, which only reads it.
        unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) }
    }

    #[test]
    fn what_is_cut_is_whole_again() {
        for len in [TAIL, TAIL + 1, 248, WHOLE] {
            let mut payload = vec![9_u8; len];
            payload[len - TAIL..].fill(0);
            let rest = cut(lend(&payload)).expect("ends with zeros");
            assert_eq!(rest.len(), len - TAIL);
            assert_eq!(Whole::of(rest).bytes(), payload);
        }
    }

    #[test]
    fn nothing_but_zeros_is_cut_and_nothing_of_another_length() {
        for at in [1, TAIL / 2, TAIL] {
            let mut payload = vec![0_u8; 300];
            payload[300 - at] = 1;
            assert!(cut(lend(&payload)).is_none(), "one before the end by {at}");
        }
        for len in [0, TAIL - 1, WHOLE + 1] {
            assert!(cut(lend(&vec![0; len])).is_none(), "{len}");
        }
    }
}
