//! The datagrams of the usnic protocol: what a packet says, as bytes and as values.
//!
//! Answers to `btl_usnic_frag.h` of Open MPI, whose header says who sends, which sequence number,
//! which acknowledgement. This one has a version, incarnations, wide sequence numbers, a keyed tag
//! and, for PUT and GET, names of registrations in place of addresses; it does not interoperate
//! with the C component. All numbers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 0 | version |
//! | 1 | [`Kind`]; its highest bit: the header is a long one |
//! | 2 | [`Flags`] |
//! | 3 | tag of the PML |
//! | 4..6 | bytes of payload |
//! | 6..8 | credit: largest segments that the sender of this packet has room for |
//! | 8..16 | keyed tag; of a protected packet, its number |
//! | 16..20 | stamp: the sender's clock in µs |
//! | 20..24 | echo: the stamp of the newest packet acknowledged, later by the time it was held; 0: none |
//! | 24..32 | sequence number; in an `Ack` the first one that the bitmap speaks of |
//! | 32..40 | acknowledgement: every segment below has arrived |
//! | 40..44 | the receiver's slot for the sender; 0: not known yet |
//! | 44..46 | connection: how often the sender has connected to the receiver, from 1 |
//! | 46..48 | 0 |
//! | 48..56 | long: name of the sender's process |
//! | 56..60 | long: incarnation of the sender's process |
//! | 60..64 | long: the sender's slot for the receiver |
//! | 48.. or 64.. | extension by kind, then the payload; then, of a protected packet, a tag of 16 bytes |
//!
//! The long header introduces its sender. Who has been called by its own slot knows that the receiver knows
//! it, and sends short ones from then on, but for protected packets.
//!
//! A [`Kind::Reset`] comes from a process that does not know the connection any more, and is short. It repeats what
//! the packet that it answers says of the connection: slot and connection are those of its receiver, the sequence
//! number is the slot that the receiver took for the sender's (0: none), and the acknowledgement, where the flag says
//! so, is how far the receiver's segments had arrived. Its tag is as that of a packet in the other direction would be
//! whose long header named the sender with that slot, but under the key that the *sender* published: nobody who knows
//! the connection needs to be asked for it. Where packets are protected, it is not, and the key is derived from that
//! one for this alone ([`protection`](super::protection::Secret::reset_key)).
//!
//! The tag is SipHash-1-3, under the key that the *receiver* published, over what is the same in all packets
//! of a connection in this direction (bytes 40 to 63 of the long header, sent or not), then the stamps (16 to
//! 23), the acknowledgement, the extension, filled up with zeros to whole words, but for its second one, the
//! sequence number, that second word, if there is one, and at last the bytes 1 to 7. So the state after the first
//! part is kept, and a packet costs its own words ([`Tagging`]), one of a run only the last three. A protected packet is encrypted and
//! authenticated as a whole instead: [`protection`](super::protection). Behind a whole fragment another packet may
//! follow in its datagram ([`coalesced`](super::coalesced)); other bytes behind a packet are padding of the link and mean
//! nothing.
//!
//! Panic contract: [`Packet::parse`] never panics, whatever the bytes; everything it returns is
//! within the bytes it was given.

mod emit;
mod parse;

pub use self::emit::{Header, INLINE};
pub use self::parse::Packet;
pub use super::bitmap::{BITMAP_BITS, Bitmap};
pub use super::kind::Kind;
pub use super::tagging::Tagging;
use std::ops::Range;

/// The version that this file speaks.
pub const VERSION: u8 = 3;
/// Bytes of the long header without extension.
pub const HEADER_LEN: usize = 64;
/// Bytes of the short header without extension.
pub const SHORT_HEADER_LEN: usize = 48;
/// Bytes of the longest header with its extension.
pub const MAX_HEADER_LEN: usize = 96;
/// Longest payload that the length field can say.
pub const MAX_PAYLOAD: usize = u16::MAX as usize;

/// Bytes of a key.
pub const KEY_LEN: usize = super::siphash::KEY_LEN;
/// A key under which packets to its publisher are tagged.
pub type Key = [u8; KEY_LEN];

const TAG: Range<usize> = 8..16;
/// Beside the kind: the header is a long one.
const LONG: u8 = 0x80;

/// How a header says that its packet is a fragment.
pub(super) struct Forms {
    pub(super) short: u8,
    pub(super) long: u8,
}
pub(super) const FRAGMENT: Forms = Forms { short: Kind::Fragment as u8, long: Kind::Fragment as u8 | LONG };

/// Whether the byte of a header says so.
pub(super) const fn is_kind(byte: u8, kind: Kind) -> bool {
    byte & !LONG == kind as u8
}

/// Where the extension of a header begins, by the byte of its kind.
#[inline(always)]
const fn extension_at(kind: u8) -> usize {
    if kind & LONG == 0 { SHORT_HEADER_LEN } else { HEADER_LEN }
}
/// Where the number of a protected packet is.
pub(super) const NUMBER: Range<usize> = TAG;

/// The flag bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// `ack`, `echo` and `credit` mean something.
    pub const ACKNOWLEDGES: Self = Self(1);
    /// The packet is protected.
    pub const PROTECTED: Self = Self(2);
    /// The sender asks for an acknowledgement at once: it has nothing more, or no room for more.
    pub const ASKS: Self = Self(4);
    /// The packet was sent before.
    pub const RETRANSMISSION: Self = Self(8);
    /// Among what is acknowledged is a packet that was sent before.
    pub const ACKS_RETRANSMISSION: Self = Self(0x80);
    /// Bits 4 to 6: words of the bitmap.
    const WORDS_SHIFT: u32 = 4;

    /// Whether all of `other` is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With `other` set where `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }

    /// The byte on the wire.
    #[inline]
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    const fn words(self) -> usize {
        (self.0 >> Self::WORDS_SHIFT & 7) as usize
    }
}

/// What the extension says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// See [`Kind::Ack`]: which segments from `seq` on have arrived.
    Ack(Bitmap),
    /// See [`Kind::Fragment`].
    Fragment,
    /// See [`Kind::Chunk`].
    Chunk {
        /// Which fragment.
        fragment: u32,
        /// Bytes of the whole fragment.
        size: u32,
        /// Where the payload belongs.
        offset: u32,
    },
    /// See [`Kind::Put`].
    Put {
        /// Which registration of the receiver.
        registration: u32,
        /// Which use of its place in the table.
        generation: u32,
        /// Where in it the payload belongs.
        offset: u64,
        /// The sender's name of the operation.
        operation: u64,
    },
    /// See [`Kind::GetRequest`].
    GetRequest {
        /// Which registration of the receiver.
        registration: u32,
        /// Which use of its place in the table.
        generation: u32,
        /// From where in it.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The sender's name of the operation.
        operation: u64,
    },
    /// See [`Kind::GetData`].
    GetData {
        /// The receiver's name of the operation.
        operation: u64,
        /// Where in what was asked for the payload belongs.
        offset: u64,
    },
    /// See [`Kind::Refused`].
    Refused {
        /// The receiver's name of the operation.
        operation: u64,
    },
    /// See [`Kind::Void`].
    Void,
    /// See [`Kind::Close`].
    Close,
    /// See [`Kind::CloseAck`].
    CloseAck,
    /// See [`Kind::Reject`].
    Reject {
        /// The receiver's name of the operation.
        operation: u64,
    },
    /// See [`Kind::Withdraw`].
    Withdraw,
    /// See [`Kind::Withdrawn`].
    Withdrawn {
        /// Sequence number of the receiver's segment.
        segment: u64,
    },
    /// See [`Kind::Reset`].
    Reset,
}

impl Body {
    /// The kind of packet with this extension.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Ack(_) => Kind::Ack,
            Self::Fragment => Kind::Fragment,
            Self::Chunk { .. } => Kind::Chunk,
            Self::Put { .. } => Kind::Put,
            Self::GetRequest { .. } => Kind::GetRequest,
            Self::GetData { .. } => Kind::GetData,
            Self::Refused { .. } => Kind::Refused,
            Self::Void => Kind::Void,
            Self::Close => Kind::Close,
            Self::CloseAck => Kind::CloseAck,
            Self::Reject { .. } => Kind::Reject,
            Self::Withdraw => Kind::Withdraw,
            Self::Withdrawn { .. } => Kind::Withdrawn,
            Self::Reset => Kind::Reset,
        }
    }
}

/// Bytes of the longest header of a packet of this kind, extension and all; an `Ack`'s without bitmap.
#[inline]
pub const fn header_len(kind: Kind) -> usize {
    HEADER_LEN + extension_len(kind)
}

/// The same where the sender is known, and not named.
#[inline]
pub const fn short_header_len(kind: Kind) -> usize {
    SHORT_HEADER_LEN + extension_len(kind)
}

#[inline]
const fn extension_len(kind: Kind) -> usize {
    match kind {
        Kind::Chunk => 12,
        Kind::Put => 24,
        Kind::GetRequest => 32,
        Kind::GetData => 16,
        Kind::Refused | Kind::Reject | Kind::Withdrawn => 8,
        Kind::Ack
        | Kind::Fragment
        | Kind::Void
        | Kind::Close
        | Kind::CloseAck
        | Kind::Withdraw
        | Kind::Reset => 0,
    }
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its header.
    Short,
    /// Another version.
    Version,
    /// No kind of packet.
    Kind,
    /// Flags that mean nothing, or not with this kind.
    Flags,
    /// It claims more payload than there is, or has payload where none may be.
    Length,
}

/// What a long header says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Name of its process.
    pub name: u64,
    /// Incarnation of its process.
    pub incarnation: u32,
    /// Its slot for the receiver.
    pub slot: u32,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Flags; those of the bitmap are made when the packet is written.
    pub flags: Flags,
    /// Tag of the PML.
    pub tag: u8,
    /// Bytes of payload.
    pub length: u16,
    /// How often the sender has connected to the receiver.
    pub connection: u16,
    /// The receiver's slot for the sender; 0: not known yet.
    pub receiver_slot: u32,
    /// Who sends; `None`: the header is short.
    pub sender: Option<Sender>,
    /// The sender's clock, µs.
    pub stamp: u32,
    /// The receiver's clock when the newest packet acknowledged was sent, less the time it was held.
    pub echo: u32,
    /// Largest segments that the sender of this packet has room for.
    pub credit: u16,
    /// Sequence number.
    pub seq: u64,
    /// Every segment below has arrived.
    pub ack: u64,
    /// The extension.
    pub body: Body,
}

/// The receiver's slot and the connection: by both together it finds the connection, as by the connection ID of RFC 9000,
/// 5.1.
#[inline(always)]
pub const fn connection_id(receiver_slot: u32, connection: u16) -> u64 {
    receiver_slot as u64 | (connection as u64) << 32
}

impl Tagging {
    /// Under the receiver's key, for packets of this sender.
    pub fn new(key: &Key, receiver_slot: u32, connection: u16, sender: &Sender) -> Self {
        let life = u64::from(sender.incarnation) | u64::from(sender.slot) << 32;
        Self::begin(key, [connection_id(receiver_slot, connection), sender.name, life])
    }
}

/// The words of a header that are under its tag and not the same in all of a connection; the last one without
/// the version.
#[inline(always)]
fn own_words(fixed: &[u8; SHORT_HEADER_LEN]) -> ([u64; 3], u64) {
    ([long(fixed, 16), long(fixed, 24), long(fixed, 32)], long(fixed, 0) >> 8)
}

/// The tag over a header alone.
#[inline(always)]
fn tag(tagging: &Tagging, fixed: &[u8; SHORT_HEADER_LEN], extension: &[u8]) -> u64 {
    let (words, last) = own_words(fixed);
    if extension.is_empty() {
        let [first, second, third] = words;
        tagging.of(first, second, third, last)
    } else {
        tagging.of_more(words, extension, last)
    }
}

/// Two numbers as they stand in one word.
#[inline(always)]
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u16::from_le_bytes(*half))
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

#[inline]
fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |long| u64::from_le_bytes(*long))
}

#[cfg(test)]
#[path = "usnic_tests.rs"]
mod tests;
