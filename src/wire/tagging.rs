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

    /// The tag of a packet with an extension.
    #[inline]
    pub(super) fn of_more(&self, own: [u64; OWN], extension: &[u8], last: u64) -> u64 {
        let mut hash = own.into_iter().fold(self.0, SipHash::absorb);
        let (words, rest) = extension.as_chunks::<8>();
        for word in words {
            hash = hash.absorb(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            hash = hash.absorb(u64::from_le_bytes(word));
        }
        hash.finish(last | length(extension.len().next_multiple_of(8)))
    }
}

/// The length of all that is under a tag, with so many bytes besides the words, where SipHash has it.
const fn length(more: usize) -> u64 {
    (((KEPT + OWN) * 8 + LAST + more) as u64 % 256) << 56
}
