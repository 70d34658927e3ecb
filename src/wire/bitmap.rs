//! What an acknowledgement says of what came out of order.

/// Words of a bitmap.
const WORDS: usize = 4;
/// Sequence numbers that one bitmap can speak of.
pub const BITMAP_BITS: u64 = 64 * WORDS as u64;

/// Which of the sequence numbers from `seq` on have arrived; bit 0 of word 0 is `seq` itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    pub(super) words: [u64; WORDS],
}

impl Bitmap {
    /// Says that number `seq + at` has arrived; numbers too far off cannot be said.
    #[inline]
    pub fn set(&mut self, at: u64) {
        if at < BITMAP_BITS {
            self.words[(at / 64) as usize] |= 1 << (at % 64);
        }
    }

    /// Whether `seq + at` is said to have arrived.
    pub fn has(&self, at: u64) -> bool {
        at < BITMAP_BITS && self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The distances said to have arrived, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(index as u64 * 64 + u64::from(bit))
            })
        })
    }

    /// Words that are needed to say it.
    pub(super) fn len(&self) -> usize {
        self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_says_what_was_set() {
        let mut bitmap = Bitmap::default();
        assert!(bitmap.is_empty());
        let said = [0, 1, 62, 63, 64, 127, 128, 255];
        said.into_iter().for_each(|at| bitmap.set(at));
        bitmap.set(256);
        assert_eq!(bitmap.iter().collect::<Vec<_>>(), said);
        assert!((0..300).all(|at| bitmap.has(at) == said.contains(&at)));
    }
}
