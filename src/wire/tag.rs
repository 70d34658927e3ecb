//! The 64 tag bits of a message of the OFI MTL.
//!
//! MPI matches on communicator, source and tag; libfabric matches on 64 bits and, where the
//! provider can, on the sender's address. Three layouts share them out, and two bits mark the
//! synchronous send protocol. Answers to Open MPI's `ompi/mca/mtl/ofi/mtl_ofi_types.h`: the bits
//! are the same, so that a job may mix hawser with the C component.
//!
//! | layout | communicator | source | protocol | MPI tag |
//! |---|---|---|---|---|
//! | [`Full`] | 63..34 | in the completion's data | 33..32 | 31..0 |
//! | [`One`] | 63..52 | 51..34 | 33..32 | 31..0 |
//! | [`Two`] | 63..40 | 39..22 | 21..20 | 19..0 |
//!
//! A provider may reserve the highest bits (`mem_tag_format`); the communicator then has fewer.

/// One way to lay out communicator, source and tag.
pub trait Layout: Copy + Send + Sync + 'static {
    /// Bits of the MPI tag, its sign included.
    const TAG_BITS: u32;
    /// Bits of the source rank; 0 when it travels in the completion's data.
    const SOURCE_BITS: u32;

    /// Bits of the communicator id when the provider reserves none.
    const CONTEXT_BITS: u32 = 64 - 2 - Self::TAG_BITS - Self::SOURCE_BITS;
    /// Set on a synchronous send.
    const SYNC: u64 = 1 << Self::TAG_BITS;
    /// Set on the answer to one.
    const ACK: u64 = 2 << Self::TAG_BITS;
    /// The bits of the MPI tag.
    const TAG_MASK: u64 = Self::SYNC - 1;
    /// Where the source begins.
    const SOURCE_SHIFT: u32 = Self::TAG_BITS + 2;
    /// The bits of the source.
    const SOURCE_MASK: u64 = ((1 << Self::SOURCE_BITS) - 1) << Self::SOURCE_SHIFT;
    /// Where the communicator begins.
    const CONTEXT_SHIFT: u32 = 64 - Self::CONTEXT_BITS;
    /// Whether the source travels in the completion's data and the peer's address is matched.
    const DIRECTED: bool = Self::SOURCE_BITS == 0;
    /// Greatest MPI tag.
    const MAX_TAG: i32 = (Self::TAG_MASK >> 1) as i32;
    /// Greatest source rank.
    const MAX_SOURCE: i64 = if Self::DIRECTED { i32::MAX as i64 } else { (1 << Self::SOURCE_BITS) - 1 };

    /// The bits of a message from `source`.
    #[inline]
    fn send(context: u32, source: i32, tag: i32) -> u64 {
        let bits = (u64::from(context) << Self::CONTEXT_SHIFT) | (tag as u32 as u64 & Self::TAG_MASK);
        if Self::DIRECTED { bits } else { bits | ((source as u64) << Self::SOURCE_SHIFT) & Self::SOURCE_MASK }
    }

    /// The bits that a receive asks for, and those it does not look at.
    #[inline]
    fn receive(context: u32, source: Selector, tag: Selector) -> Pattern {
        let mut ignore = Self::SYNC;
        // The highest tag bit stays significant: an internal (negative) tag never meets a wildcard.
        ignore |= if tag.is_any() { Self::TAG_MASK >> 1 } else { 0 };
        ignore |= if source.is_any() { Self::SOURCE_MASK } else { 0 };
        Pattern { bits: Self::send(context, source.or_zero(), tag.or_zero()), ignore }
    }

    /// The MPI tag, its sign restored.
    #[inline]
    fn tag(bits: u64) -> i32 {
        ((bits as u32) << (32 - Self::TAG_BITS)) as i32 >> (32 - Self::TAG_BITS)
    }

    /// The source rank, given the completion's data.
    #[inline]
    fn source(bits: u64, data: u64) -> i32 {
        if Self::DIRECTED { data as i32 } else { ((bits & Self::SOURCE_MASK) >> Self::SOURCE_SHIFT) as i32 }
    }

    /// The bits of the answer that `me` gives to the synchronous message `bits`.
    #[inline]
    fn ack(bits: u64, me: i32) -> u64 {
        let bits = (bits & !Self::SYNC) | Self::ACK;
        if Self::DIRECTED { bits } else { (bits & !Self::SOURCE_MASK) | ((me as u64) << Self::SOURCE_SHIFT) }
    }
}

/// A rank or a tag that a receive asks for, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector(pub i32);

impl Selector {
    /// `MPI_ANY_SOURCE` and `MPI_ANY_TAG`.
    pub const ANY: Self = Self(-1);

    /// Whether every value will do.
    #[inline]
    pub fn is_any(self) -> bool {
        self == Self::ANY
    }

    #[inline]
    fn or_zero(self) -> i32 {
        if self.is_any() { 0 } else { self.0 }
    }
}

/// What a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bits asked for.
    pub bits: u64,
    /// The bits not looked at.
    pub ignore: u64,
}

/// `ofi_tag_full`: the source is not in the tag at all.
#[derive(Clone, Copy, Debug)]
pub struct Full;
/// `ofi_tag_1`: whole tags, few communicators.
#[derive(Clone, Copy, Debug)]
pub struct One;
/// `ofi_tag_2`: many communicators, short tags.
#[derive(Clone, Copy, Debug)]
pub struct Two;

impl Layout for Full {
    const TAG_BITS: u32 = 32;
    const SOURCE_BITS: u32 = 0;
}
impl Layout for One {
    const TAG_BITS: u32 = 32;
    const SOURCE_BITS: u32 = 18;
}
impl Layout for Two {
    const TAG_BITS: u32 = 20;
    const SOURCE_BITS: u32 = 18;
}

/// Greatest communicator id in `context_bits` bits when the provider's `mem_tag_format` reserves
/// its leading zero bits; `None` when fewer than eight bits are left.
pub fn max_context(context_bits: u32, mem_tag_format: u64) -> Option<u32> {
    let bits = context_bits.saturating_sub(mem_tag_format.leading_zeros());
    (bits >= 8).then(|| (1_u32 << bits.min(31)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_c_component() {
        assert_eq!((Full::SYNC, Full::ACK, Full::TAG_MASK), (1 << 32, 2 << 32, 0xFFFF_FFFF));
        assert_eq!((One::SYNC, One::ACK), (1 << 32, 2 << 32));
        assert_eq!((Two::SYNC, Two::ACK, Two::TAG_MASK), (0x10_0000, 0x20_0000, 0xF_FFFF));
        assert_eq!((Full::CONTEXT_BITS, One::CONTEXT_BITS, Two::CONTEXT_BITS), (30, 12, 24));
        assert_eq!((Full::MAX_TAG, One::MAX_TAG, Two::MAX_TAG), (i32::MAX, i32::MAX, 524_287));
        assert_eq!(One::SOURCE_MASK, 0x000F_FFFC_0000_0000);
        assert_eq!(Two::SOURCE_MASK, 0x0000_00FF_FFC0_0000);
        assert_eq!(Full::send(1, 7, 5), (1 << 34) | 5);
        assert_eq!(One::send(1, 7, 5), (1 << 52) | (7 << 34) | 5);
        assert_eq!(Two::send(1, 7, 5), (1 << 40) | (7 << 22) | 5);
    }

    fn round_trip<L: Layout>() {
        for source in [0, 1, 262_143_i64.min(L::MAX_SOURCE) as i32] {
            for tag in [0, 1, -2, -300, L::MAX_TAG] {
                let bits = L::send(9, source, tag);
                assert_eq!((L::tag(bits), L::source(bits, source as u64)), (tag, source));
                let want = L::receive(9, Selector(source), Selector(tag));
                assert_eq!((bits ^ want.bits) & !want.ignore, 0);
                assert_eq!(
                    ((bits | L::SYNC) ^ want.bits) & !want.ignore,
                    0,
                    "a synchronous send matches too"
                );
                assert_ne!(
                    (L::ack(bits | L::SYNC, source) ^ want.bits) & !want.ignore,
                    0,
                    "an answer never does"
                );
                let any = L::receive(9, Selector::ANY, Selector::ANY);
                assert_eq!(
                    (bits ^ any.bits) & !any.ignore == 0,
                    tag >= 0,
                    "wildcards never meet internal tags"
                );
            }
        }
    }

    #[test]
    fn values_survive_the_layout() {
        round_trip::<Full>();
        round_trip::<One>();
        round_trip::<Two>();
    }

    #[test]
    fn an_answer_names_its_sender_where_the_tag_can() {
        let bits = One::send(3, 5, 7) | One::SYNC;
        assert_eq!(One::ack(bits, 2), One::send(3, 2, 7) | One::ACK);
        assert_eq!(Full::ack(Full::send(3, 5, 7) | Full::SYNC, 2), Full::send(3, 0, 7) | Full::ACK);
    }

    #[test]
    fn reserved_bits_shrink_the_communicator() {
        assert_eq!(max_context(30, 0xAAAA_AAAA_AAAA_AAAA), Some((1 << 30) - 1));
        assert_eq!(max_context(12, 0x5555_5555_5555_5555), Some((1 << 11) - 1));
        assert_eq!(max_context(12, u64::MAX >> 5), None);
    }
}
