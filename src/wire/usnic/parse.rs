//! Packets as they are read.

use std::ops::Range;

use super::{
    Bitmap, Body, Flags, HEADER_LEN, Kind, LONG, Malformed, Repr, SHORT_HEADER_LEN, Sender, TAG, Tagging,
    VERSION, extension_at, extension_len, half, long, tag, word,
};

impl Repr {
    #[inline(always)]
    fn read(fixed: &[u8; SHORT_HEADER_LEN], sender: Option<Sender>, flags: Flags, body: Body) -> Self {
        Self {
            flags: Flags(flags.0 & !(7 << Flags::WORDS_SHIFT)),
            tag: fixed[3],
            length: half(fixed, 4),
            credit: half(fixed, 6),
            stamp: word(fixed, 16),
            echo: word(fixed, 20),
            seq: long(fixed, 24),
            ack: long(fixed, 32),
            receiver_slot: word(fixed, 40),
            connection: half(fixed, 44),
            sender,
            body,
        }
    }
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
        let Some(fixed) = bytes.first_chunk::<SHORT_HEADER_LEN>() else {
            return Err(Malformed::Short);
        };
        if fixed[0] != VERSION {
            return Err(Malformed::Version);
        }
        let kind = Kind::parse(fixed[1] & !LONG).ok_or(Malformed::Kind)?;
        let flags = Flags(fixed[2]);
        let words = flags.words();
        if words > if kind == Kind::Ack { 4 } else { 0 } {
            return Err(Malformed::Flags);
        }
        let begin = extension_at(fixed[1]);
        let header = begin + extension_len(kind) + words * 8;
        let Some(rest) = bytes.get(begin..header) else {
            return Err(Malformed::Short);
        };
        let sender = (begin == HEADER_LEN).then(|| Sender {
            name: long(bytes, 48),
            incarnation: word(bytes, 56),
            slot: word(bytes, 60),
        });
        let length = half(fixed, 4);
        if half(fixed, 46) != 0 {
            return Err(Malformed::Flags);
        }
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
                | Kind::Reset
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
            Kind::Reset => Body::Reset,
        };
        let repr = Repr::read(fixed, sender, flags, body);
        Ok(Self { bytes, header, repr })
    }

    /// The packet that `bytes` are, when it is a whole fragment with a short header and no more than that under its
    /// tag: the common one, read with a few compares. [`Self::is_genuine_fragment`] says whether it is genuine.
    #[inline(always)]
    pub fn parse_fragment(bytes: &'a [u8]) -> Option<Self> {
        let fixed = bytes.first_chunk::<SHORT_HEADER_LEN>()?;
        let flags = Flags(fixed[2]);
        if [fixed[0], fixed[1]] != [VERSION, Kind::Fragment as u8]
            || flags.0 & (7 << Flags::WORDS_SHIFT | Flags::PROTECTED.0) != 0
            || usize::from(half(fixed, 4)) > bytes.len() - SHORT_HEADER_LEN
            || half(fixed, 46) != 0
        {
            return None;
        }
        Some(Self { bytes, header: SHORT_HEADER_LEN, repr: Repr::read(fixed, None, flags, Body::Fragment) })
    }

    /// Whether the tag is the one that only a holder of the key of `tagging` can make. Protected packets have none.
    #[inline(always)]
    pub fn is_genuine(&self, tagging: &Tagging) -> bool {
        let Some(fixed) = self.bytes.first_chunk() else { return false };
        tag(tagging, fixed, &self.bytes[self.extension()..self.header]) == long(fixed, TAG.start)
    }

    /// The datagram.
    pub(in crate::wire) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// As [`Self::is_genuine`], of [a fragment](Self::parse_fragment).
    #[inline(always)]
    pub fn is_genuine_fragment(&self, tagging: &Tagging) -> bool {
        let Some(fixed) = self.bytes.first_chunk() else { return false };
        tag(tagging, fixed, &[]) == long(fixed, TAG.start)
    }

    /// Where in the datagram the extension begins.
    #[inline(always)]
    pub(in crate::wire) const fn extension(&self) -> usize {
        if self.repr.sender.is_some() { HEADER_LEN } else { SHORT_HEADER_LEN }
    }

    /// Where in the datagram the payload is.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.header..self.header + usize::from(self.repr.length)
    }
}
