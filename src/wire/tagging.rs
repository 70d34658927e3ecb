//! Keyed tags of packets whose beginning is the same for a whole connection.
//!
//! A tag is SipHash-2-4 of a sequence of whole words and seven bytes more. The first words are those that a
//! connection keeps; what remains of them is the state that [`Tagging`] holds, so that a packet costs only its
//! own. Which words these are, [`super::usnic`] says.

use super::siphash::{KEY_LEN, SipHash};

/// Words that a connection keeps.
const KEPT: usize = 3;
/// Words of each packet's own.
const OWN: usize = 3;
/// Bytes of the last word.
const LAST: usize = 7;

/// What the tags of all packets of a connection in one direction begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagging(SipHash);

impl Tagging {
    /// Under the receiver's key.
    pub(super) fn begin(key: &[u8; KEY_LEN], kept: [u64; KEPT]) -> Self {
        Self(kept.into_iter().fold(SipHash::new(key), SipHash::absorb))
    }

    /// The tag of a packet without anything else under it.
    #[inline(never)]
    pub(super) fn of(&self, first: u64, second: u64, third: u64, last: u64) -> u64 {
        self.0.absorb(first).absorb(second).absorb(third).finish(last | length(0))
    }

    /// The tag of a packet with an extension and perhaps a payload under the tag, which `feed` hands over piece
    /// by piece.
    pub(super) fn of_more(
        &self,
        own: [u64; OWN],
        extension: &[u8],
        feed: impl FnOnce(&mut dyn FnMut(&[u8])),
        last: u64,
    ) -> u64 {
        let mut words = Words { hash: own.into_iter().fold(self.0, SipHash::absorb), bytes: 0, word: 0 };
        words.write(extension);
        words.fill();
        feed(&mut |bytes| words.write(bytes));
        words.fill();
        words.hash.finish(last | length(words.bytes))
    }
}

/// The length of all that is under a tag, with so many bytes besides the words, where SipHash has it.
const fn length(more: usize) -> u64 {
    (((KEPT + OWN) * 8 + LAST + more) as u64 % 256) << 56
}

/// Bytes on their way to be absorbed in words.
struct Words {
    hash: SipHash,
    /// In all.
    bytes: usize,
    /// Those that make no word yet.
    word: u64,
}

impl Words {
    fn write(&mut self, mut bytes: &[u8]) {
        while !self.bytes.is_multiple_of(8)
            && let [first, rest @ ..] = bytes
        {
            self.push(*first);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.hash = self.hash.absorb(u64::from_le_bytes(*word));
        }
        self.bytes += words.len() * 8;
        rest.iter().for_each(|byte| self.push(*byte));
    }

    fn push(&mut self, byte: u8) {
        self.word |= u64::from(byte) << (self.bytes % 8 * 8);
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            self.hash = self.hash.absorb(std::mem::take(&mut self.word));
        }
    }

    /// Zeros up to a whole word.
    fn fill(&mut self) {
        while !self.bytes.is_multiple_of(8) {
            self.push(0);
        }
    }
}
