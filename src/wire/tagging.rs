//! Keyed tags of packets whose beginning is the same for a whole connection.
//!
//! A tag is SipHash-1-3 of a sequence of whole words and seven bytes more. The first words are those that a
//! connection keeps; what remains of them is the state that [`Tagging`] holds, so that a packet costs only its
//! own. Which words these are, [`super::usnic`] says; those in which the packets of a run differ come last, so that
//! what they have in common is absorbed once too.
//!
//! It refuses what is left of earlier processes and connections, strays, and forgers who do not see the traffic. Such a
//! forger has neither the key nor a tag made with it, and what is dropped in silence tells him nothing: he has to
//! guess 64 bits. The rounds that the conservative SipHash-2-4 has more are a margin against the analysis of many tags
//! whose packets are known. But who has those sees the traffic, and needs no tag of his own making: the data behind a
//! genuine header is not under it. Against him there is [`protection`](super::protection) of whole packets. So the margin
//! would buy nothing, and costs twelve rounds for a short packet in place of seven. Nor is there a known way to make tags of
//! SipHash-1-3 without the key; Rust and Python hash what strangers choose with it.

use super::siphash::{KEY_LEN, SipHash13};

/// Words that a connection keeps.
const KEPT: usize = 3;
/// Words of each packet's own.
const OWN: usize = 3;
/// Which word of an extension has the offset, where there is one.
const OFFSET: usize = 1;
/// Bytes of the last word.
const LAST: usize = 7;

/// What the tags of all packets of a connection in one direction begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagging(SipHash13);

impl Tagging {
    /// Under the receiver's key.
    pub(super) fn begin(key: &[u8; KEY_LEN], kept: [u64; KEPT]) -> Self {
        Self(kept.into_iter().fold(SipHash13::new(key), SipHash13::absorb))
    }

    /// The tag of a packet without an extension.
    #[inline(always)]
    pub(super) fn of(&self, stamps: u64, seq: u64, ack: u64, last: u64) -> u64 {
        self.0.absorb(stamps).absorb(ack).absorb(seq).finish(last | length(0))
    }

    /// The tag of a packet with an extension.
    #[inline]
    pub(super) fn of_more(&self, own: [u64; OWN], extension: &[u8], last: u64) -> u64 {
        let [stamps, seq, ack] = own;
        let run = self.of_run(stamps, ack, extension);
        match words(extension).nth(OFFSET) {
            Some(offset) => run.of(seq, offset, last),
            None => run.before.absorb(seq).finish(last | run.length),
        }
    }

    /// The tags of packets that differ in nothing but the sequence number, the offset and the last word.
    #[inline(always)]
    pub(super) fn of_run(&self, stamps: u64, ack: u64, extension: &[u8]) -> RunTagging {
        let shared = words(extension).enumerate().filter(|(at, _)| *at != OFFSET).map(|(_, word)| word);
        let before = shared.fold(self.0.absorb(stamps).absorb(ack), SipHash13::absorb);
        RunTagging { before, length: length(extension.len().next_multiple_of(8)) }
    }
}

/// What the tags of all packets of a run begin with.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunTagging {
    before: SipHash13,
    length: u64,
}

impl RunTagging {
    /// The tag of one of them.
    #[inline(always)]
    pub(super) fn of(&self, seq: u64, offset: u64, last: u64) -> u64 {
        self.before.absorb(seq).absorb(offset).finish(last | self.length)
    }
}

/// The words of an extension, the last one filled up with zeros.
#[inline(always)]
fn words(extension: &[u8]) -> impl Iterator<Item = u64> {
    extension.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    })
}

/// The length of all that is under a tag, with so many bytes besides the words, where SipHash has it.
const fn length(more: usize) -> u64 {
    (((KEPT + OWN) * 8 + LAST + more) as u64 % 256) << 56
}
