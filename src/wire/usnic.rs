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
//! | 1 | [`Kind`] |
//! | 2 | [`Flags`] |
//! | 3 | tag of the PML |
//! | 4..6 | bytes of payload |
//! | 6..8 | connection: how often the sender has connected to the receiver, from 1 |
//! | 8..16 | keyed tag; of a protected packet, its number |
//! | 16..24 | name of the sender's process |
//! | 24..28 | incarnation of the sender's process |
//! | 28..32 | the receiver's slot for the sender; 0: not known yet |
//! | 32..36 | the sender's slot for the receiver |
//! | 36..40 | stamp: the sender's clock in µs |
//! | 40..44 | echo: the stamp of the newest packet acknowledged, later by the time it was held; 0: none |
//! | 44..48 | credit: largest segments that the sender of this packet has room for |
//! | 48..56 | sequence number; in an `Ack` the first one that the bitmap speaks of |
//! | 56..64 | acknowledgement: every segment below has arrived |
//! | 64.. | extension by kind, then the payload; then, of a protected packet, a tag of 16 bytes |
//!
//! The keyed tag is SipHash-2-4 over every other byte of header and extension, under the key that the
//! *receiver* published. A protected packet is encrypted and authenticated as a whole instead:
//! [`protection`](super::protection). Bytes behind either are padding of the link and mean nothing.
//!
//! Panic contract: [`Packet::parse`] never panics, whatever the bytes; everything it returns is
//! within the bytes it was given.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::ops::{Deref, Range};

/// The version that this file speaks.
pub const VERSION: u8 = 2;
/// Bytes of the header without extension.
pub const HEADER_LEN: usize = 64;
/// Bytes of the longest header with its extension.
pub const MAX_HEADER_LEN: usize = 96;
/// Sequence numbers that one bitmap can speak of.
pub const BITMAP_BITS: u64 = 256;
/// Longest payload that the length field can say.
pub const MAX_PAYLOAD: usize = u16::MAX as usize;

/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// A key under which packets to its publisher are tagged.
pub type Key = [u8; KEY_LEN];

const TAG: Range<usize> = 8..16;
/// Where the number of a protected packet is.
pub(super) const NUMBER: Range<usize> = TAG;

/// What kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Only an acknowledgement.
    Ack = 1,
    /// A whole fragment.
    Fragment = 2,
    /// A piece of a fragment.
    Chunk = 3,
    /// Data for a registration of the receiver.
    Put = 4,
    /// Asks for data from a registration of the receiver.
    GetRequest = 5,
    /// The data asked for.
    GetData = 6,
    /// A GET that was being served has come to nothing.
    Refused = 7,
    /// Nothing: it stands where a cancelled segment stood.
    Void = 8,
    /// The sender is done.
    Close = 9,
    /// Answers a `Close`.
    CloseAck = 10,
    /// Answers a packet of a PUT or GET that is not possible, each time that it comes.
    Reject = 11,
    /// Asks whether the segment with this number has arrived. If it has not, it is not to be taken any
    /// more: its data is about to be sent anew in other segments.
    Withdraw = 12,
    /// Answers a `Withdraw` of a segment that has not arrived, each time that it comes.
    Withdrawn = 13,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Ack,
            2 => Self::Fragment,
            3 => Self::Chunk,
            4 => Self::Put,
            5 => Self::GetRequest,
            6 => Self::GetData,
            7 => Self::Refused,
            8 => Self::Void,
            9 => Self::Close,
            10 => Self::CloseAck,
            11 => Self::Reject,
            12 => Self::Withdraw,
            13 => Self::Withdrawn,
            _ => return None,
        })
    }

    /// Whether packets of the kind have a sequence number and are acknowledged.
    pub const fn is_sequenced(self) -> bool {
        !matches!(self, Self::Ack | Self::Close | Self::CloseAck | Self::Reject | Self::Withdrawn)
    }
}

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

/// Which of the sequence numbers from `seq` on have arrived; bit 0 of word 0 is `seq` itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: [u64; 4],
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
        self.words == [0; 4]
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
    fn len(&self) -> usize {
        self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)
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
        }
    }
}

/// Bytes of the header of a packet of this kind, extension and all; an `Ack`'s without bitmap.
#[inline]
pub const fn header_len(kind: Kind) -> usize {
    HEADER_LEN
        + match kind {
            Kind::Chunk => 12,
            Kind::Put => 24,
            Kind::GetRequest => 32,
            Kind::GetData => 16,
            Kind::Refused | Kind::Reject | Kind::Withdrawn => 8,
            Kind::Ack | Kind::Fragment | Kind::Void | Kind::Close | Kind::CloseAck | Kind::Withdraw => 0,
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
    /// Name of the sender's process.
    pub name: u64,
    /// Incarnation of the sender's process.
    pub incarnation: u32,
    /// The receiver's slot for the sender; 0: not known yet.
    pub receiver_slot: u32,
    /// The sender's slot for the receiver.
    pub sender_slot: u32,
    /// The sender's clock, µs.
    pub stamp: u32,
    /// The receiver's clock when the newest packet acknowledged was sent, less the time it was held.
    pub echo: u32,
    /// Largest segments that the sender of this packet has room for.
    pub credit: u32,
    /// Sequence number.
    pub seq: u64,
    /// Every segment below has arrived.
    pub ack: u64,
    /// The extension.
    pub body: Body,
}

/// A header as it goes on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; MAX_HEADER_LEN],
    len: u8,
}

impl Deref for Header {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Header").field(&Packet::parse(self).map(|packet| packet.repr)).finish()
    }
}

/// A hasher that has read the header but for the place of the tag, fed in words, so that nothing is
/// buffered.
#[inline(always)]
fn hasher(key: &Key, fixed: &[u8; HEADER_LEN], extension: &[u8]) -> SipHasher24 {
    let mut hasher = SipHasher24::new_with_key(key);
    for (at, word) in fixed.as_chunks::<8>().0.iter().enumerate() {
        if at != TAG.start / 8 {
            hasher.write_u64(u64::from_ne_bytes(*word));
        }
    }
    let (words, rest) = extension.as_chunks::<8>();
    words.iter().for_each(|word| hasher.write_u64(u64::from_ne_bytes(*word)));
    match rest.first_chunk::<4>() {
        Some(half) if rest.len() == 4 => hasher.write_u32(u32::from_ne_bytes(*half)),
        _ if rest.is_empty() => {}
        _ => hasher.write(rest),
    }
    hasher
}

/// The tag over a header alone.
#[inline(never)]
fn tag(key: &Key, fixed: &[u8; HEADER_LEN], extension: &[u8]) -> u64 {
    if extension.is_empty() {
        hasher(key, fixed, &[]).finish()
    } else {
        hasher(key, fixed, extension).finish()
    }
}

impl Header {
    /// The fixed part, and the extension.
    #[inline]
    fn parts(&self) -> (&[u8; HEADER_LEN], &[u8]) {
        let extension = usize::from(self.len) - HEADER_LEN;
        match self.bytes.split_first_chunk() {
            Some((fixed, rest)) => (fixed, &rest[..extension]),
            None => (&[0; HEADER_LEN], &[]),
        }
    }

    /// Its bytes, to be changed before it is sealed.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }

    /// Writes the keyed tag.
    #[inline(always)]
    pub fn seal(&mut self, key: &Key) {
        let (fixed, extension) = self.parts();
        let tag = tag(key, fixed, extension);
        self.bytes[TAG].copy_from_slice(&tag.to_le_bytes());
    }
}

impl Repr {
    #[inline(always)]
    fn read(fixed: &[u8; HEADER_LEN], flags: Flags, length: u16, body: Body) -> Self {
        Self {
            flags: Flags(flags.0 & !(7 << Flags::WORDS_SHIFT)),
            tag: fixed[3],
            length,
            connection: u16::from_le_bytes([fixed[6], fixed[7]]),
            name: long(fixed, 16),
            incarnation: word(fixed, 24),
            receiver_slot: word(fixed, 28),
            sender_slot: word(fixed, 32),
            stamp: word(fixed, 36),
            echo: word(fixed, 40),
            credit: word(fixed, 44),
            seq: long(fixed, 48),
            ack: long(fixed, 56),
            body,
        }
    }

    /// The header, without its tag.
    #[inline(always)]
    pub fn emit(&self) -> Header {
        let mut bytes = [0; MAX_HEADER_LEN];
        let kind = self.body.kind();
        let mut len = header_len(kind);
        let mut flags = self.flags.0 & !(7 << Flags::WORDS_SHIFT);
        match self.body {
            Body::Ack(bitmap) => {
                let words = bitmap.len();
                for (index, word) in bitmap.words[..words].iter().enumerate() {
                    put(&mut bytes, HEADER_LEN + index * 8, word.to_le_bytes());
                }
                flags |= (words as u8) << Flags::WORDS_SHIFT;
                len += words * 8;
            }
            Body::Chunk { fragment, size, offset } => {
                put(&mut bytes, 64, fragment.to_le_bytes());
                put(&mut bytes, 68, size.to_le_bytes());
                put(&mut bytes, 72, offset.to_le_bytes());
            }
            Body::Put { registration, generation, offset, operation } => {
                put(&mut bytes, 64, registration.to_le_bytes());
                put(&mut bytes, 68, generation.to_le_bytes());
                put(&mut bytes, 72, offset.to_le_bytes());
                put(&mut bytes, 80, operation.to_le_bytes());
            }
            Body::GetRequest { registration, generation, offset, length, operation } => {
                put(&mut bytes, 64, registration.to_le_bytes());
                put(&mut bytes, 68, generation.to_le_bytes());
                put(&mut bytes, 72, offset.to_le_bytes());
                put(&mut bytes, 80, length.to_le_bytes());
                put(&mut bytes, 88, operation.to_le_bytes());
            }
            Body::GetData { operation, offset } => {
                put(&mut bytes, 64, operation.to_le_bytes());
                put(&mut bytes, 72, offset.to_le_bytes());
            }
            Body::Refused { operation } | Body::Reject { operation } => {
                put(&mut bytes, 64, operation.to_le_bytes());
            }
            Body::Withdrawn { segment } => put(&mut bytes, 64, segment.to_le_bytes()),
            Body::Fragment | Body::Void | Body::Close | Body::CloseAck | Body::Withdraw => {}
        }
        let (length, connection) = (self.length.to_le_bytes(), self.connection.to_le_bytes());
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut first = [VERSION, kind as u8, flags, self.tag, 0, 0, 0, 0];
        first[4..6].copy_from_slice(&length);
        first[6..].copy_from_slice(&connection);
        // Whole words, since the tag is over words: they are read right after they are written.
        let fixed = [
            u64::from_le_bytes(first),
            0,
            self.name,
            pair(self.incarnation, self.receiver_slot),
            pair(self.sender_slot, self.stamp),
            pair(self.echo, self.credit),
            self.seq,
            self.ack,
        ];
        for (at, word) in fixed.into_iter().enumerate() {
            put(&mut bytes, at * 8, word.to_le_bytes());
        }
        Header { bytes, len: len as u8 }
    }
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8; MAX_HEADER_LEN], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// A datagram that has the form of a packet; whether it is genuine, [`Packet::is_genuine`] says, or of a
/// protected one its key.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    header: usize,
    /// What it says.
    pub repr: Repr,
}

impl<'a> Packet<'a> {
    /// The packet that `bytes` are.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some(fixed) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::Short);
        };
        if fixed[0] != VERSION {
            return Err(Malformed::Version);
        }
        let kind = Kind::parse(fixed[1]).ok_or(Malformed::Kind)?;
        let flags = Flags(fixed[2]);
        let words = flags.words();
        if words > if kind == Kind::Ack { 4 } else { 0 } {
            return Err(Malformed::Flags);
        }
        let header = header_len(kind) + words * 8;
        let Some(rest) = bytes.get(HEADER_LEN..header) else {
            return Err(Malformed::Short);
        };
        let length = u16::from_le_bytes([fixed[4], fixed[5]]);
        let bare = matches!(
            kind,
            Kind::Ack
                | Kind::GetRequest
                | Kind::Refused
                | Kind::Void
                | Kind::Close
                | Kind::CloseAck
                | Kind::Reject
                | Kind::Withdraw
                | Kind::Withdrawn
        );
        if usize::from(length) > bytes.len() - header || bare && length != 0 {
            return Err(Malformed::Length);
        }
        let body = match kind {
            Kind::Ack => {
                let mut bitmap = Bitmap::default();
                for (word, bytes) in bitmap.words.iter_mut().zip(rest.chunks_exact(8)) {
                    *word = long(bytes, 0);
                }
                Body::Ack(bitmap)
            }
            Kind::Fragment => Body::Fragment,
            Kind::Chunk => {
                Body::Chunk { fragment: word(rest, 0), size: word(rest, 4), offset: word(rest, 8) }
            }
            Kind::Put => Body::Put {
                registration: word(rest, 0),
                generation: word(rest, 4),
                offset: long(rest, 8),
                operation: long(rest, 16),
            },
            Kind::GetRequest => Body::GetRequest {
                registration: word(rest, 0),
                generation: word(rest, 4),
                offset: long(rest, 8),
                length: long(rest, 16),
                operation: long(rest, 24),
            },
            Kind::GetData => Body::GetData { operation: long(rest, 0), offset: long(rest, 8) },
            Kind::Refused => Body::Refused { operation: long(rest, 0) },
            Kind::Void => Body::Void,
            Kind::Close => Body::Close,
            Kind::CloseAck => Body::CloseAck,
            Kind::Reject => Body::Reject { operation: long(rest, 0) },
            Kind::Withdraw => Body::Withdraw,
            Kind::Withdrawn => Body::Withdrawn { segment: long(rest, 0) },
        };
        let repr = Repr::read(fixed, flags, length, body);
        Ok(Self { bytes, header, repr })
    }

    /// The packet that `bytes` are, when it is a whole fragment: the common one, read with a few compares.
    #[inline(always)]
    pub fn parse_fragment(bytes: &'a [u8]) -> Option<Self> {
        let fixed = bytes.first_chunk::<HEADER_LEN>()?;
        let (flags, length) = (Flags(fixed[2]), u16::from_le_bytes([fixed[4], fixed[5]]));
        if [fixed[0], fixed[1]] != [VERSION, Kind::Fragment as u8]
            || flags.words() != 0
            || usize::from(length) > bytes.len() - HEADER_LEN
        {
            return None;
        }
        Some(Self { bytes, header: HEADER_LEN, repr: Repr::read(fixed, flags, length, Body::Fragment) })
    }

    /// Whether the keyed tag is the one that only a holder of `key` can make. Protected packets have none.
    #[inline(always)]
    pub fn is_genuine(&self, key: &Key) -> bool {
        let Some(fixed) = self.bytes.first_chunk() else { return false };
        let extension = &self.bytes[HEADER_LEN..self.header];
        tag(key, fixed, extension) == long(fixed, TAG.start)
    }

    /// The datagram.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where in the datagram the payload is.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.header..self.header + usize::from(self.repr.length)
    }
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
