//! SipHash over words, with a state that can be kept and gone on from.
//!
//! What many messages begin with is absorbed once: each of them costs only its own words. A crate's hasher
//! buffers bytes and counts them, which costs a short message more than its hashing.
//!
//! Answers to "SipHash: a fast short-input PRF" (Aumasson and Bernstein, 2012).

/// Bytes of a key.
pub(super) const KEY_LEN: usize = 16;

/// The state after some words of SipHash-`C`-`D`: so many rounds for each word, and at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SipHash<const C: usize, const D: usize>([u64; 4]);

/// The fast member of the family.
pub(super) type SipHash13 = SipHash<1, 3>;
/// The conservative one.
pub(super) type SipHash24 = SipHash<2, 4>;

impl<const C: usize, const D: usize> SipHash<C, D> {
    #[inline]
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Self {
        let whole = u128::from_le_bytes(*key);
        let (low, high) = (whole as u64, (whole >> 64) as u64);
        Self([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(self) -> Self {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        d = d.rotate_left(21) ^ a;
        b = b.rotate_left(17) ^ c;
        Self([a, b, c.rotate_left(32), d])
    }

    #[inline(always)]
    fn rounds<const N: usize>(self) -> Self {
        (0..N).fold(self, |state, _| state.round())
    }

    /// With one more word.
    #[inline(always)]
    pub(super) fn absorb(mut self, word: u64) -> Self {
        self.0[3] ^= word;
        self = self.rounds::<C>();
        self.0[0] ^= word;
        self
    }

    /// The hash. `last` holds the last bytes, seven at most, and in its highest byte the length of all.
    #[inline(always)]
    pub(super) fn finish(self, last: u64) -> u64 {
        let mut state = self.absorb(last);
        state.0[2] ^= 0xFF;
        let [a, b, c, d] = state.rounds::<D>().0;
        a ^ b ^ c ^ d
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip::{SipHasher13, SipHasher24};
    use std::hash::Hasher;

    fn hash<const C: usize, const D: usize>(key: &[u8; KEY_LEN], bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        let new = SipHash::<C, D>::new(key);
        let begun = words.iter().fold(new, |hash, word| hash.absorb(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = bytes.len() as u8;
        begun.finish(u64::from_le_bytes(last))
    }

    #[test]
    fn the_reference_vectors_hold() {
        // `vectors_sip64` of the reference implementation: key 00 to 0f, messages 00, 00 01, and so on.
        let key: [u8; KEY_LEN] = std::array::from_fn(|at| at as u8);
        let message: Vec<u8> = (0..64).collect();
        let expected: [(usize, [u8; 8]); 5] = [
            (0, [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]),
            (1, [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74]),
            (2, [0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d]),
            (8, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]),
            (15, [0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1]),
        ];
        for (len, bytes) in expected {
            assert_eq!(hash::<2, 4>(&key, &message[..len]), u64::from_le_bytes(bytes), "of {len} bytes");
        }
    }

    #[test]
    fn both_are_the_siphash_of_others() {
        let key = *b"sixteen bytes...";
        let bytes: Vec<u8> = (0..600_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for len in 0..bytes.len() {
            let mut others = (SipHasher13::new_with_key(&key), SipHasher24::new_with_key(&key));
            others.0.write(&bytes[..len]);
            others.1.write(&bytes[..len]);
            assert_eq!(hash::<1, 3>(&key, &bytes[..len]), others.0.finish());
            assert_eq!(hash::<2, 4>(&key, &bytes[..len]), others.1.finish());
        }
    }
}
