//! Packets as they are written.

use std::ops::Deref;

use super::{
    Body, Flags, HEADER_LEN, Key, Kind, LONG, MAX_HEADER_LEN, Packet, Repr, SHORT_HEADER_LEN, TAG, Tagging,
    VERSION, connection_id, extension_at, extension_len, pair, tag,
};

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

/// What a packet with a short header carries of which the engine has a copy.
pub const INLINE: usize = MAX_HEADER_LEN - SHORT_HEADER_LEN;

impl Header {
    /// Nothing yet.
    pub const EMPTY: Self = Self { bytes: [0; MAX_HEADER_LEN], len: 0 };

    /// Makes it the whole datagram of a fragment with a short header: tagged, and with what it carries.
    #[inline(always)]
    pub fn put_fragment(&mut self, repr: &Repr, tagging: &Tagging, payload: &[u8; INLINE]) {
        let [first, _, rest @ ..] = repr.words(Kind::Fragment as u8, repr.flags.0);
        let [stamps, seq, ack, connection_id] = rest;
        let tag = tagging.of(stamps, seq, ack, first >> 8);
        for (at, word) in [first, tag, stamps, seq, ack, connection_id].into_iter().enumerate() {
            put(&mut self.bytes, at * 8, word.to_le_bytes());
        }
        put(&mut self.bytes, SHORT_HEADER_LEN, *payload);
        self.len = (SHORT_HEADER_LEN + INLINE.min(usize::from(repr.length))) as u8;
    }

    /// Adds what the packet carries, as far as there is room.
    pub fn append(&mut self, payload: &[u8]) {
        let room = &mut self.bytes[usize::from(self.len)..];
        let len = payload.len().min(room.len());
        room[..len].copy_from_slice(&payload[..len]);
        self.len += len as u8;
    }

    /// Where its extension begins.
    #[inline(always)]
    pub(in crate::wire) const fn extension(&self) -> usize {
        extension_at(self.bytes[1])
    }

    /// The fixed part, and the extension.
    #[inline(always)]
    fn parts(&self) -> (&[u8; SHORT_HEADER_LEN], &[u8]) {
        match self.bytes.first_chunk() {
            Some(fixed) => (fixed, &self.bytes[self.extension()..usize::from(self.len)]),
            None => (&[0; SHORT_HEADER_LEN], &[]),
        }
    }

    /// Its bytes, to be changed before it is sealed.
    #[inline]
    pub(in crate::wire) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }

    /// Writes the keyed tag.
    #[inline(always)]
    pub fn seal(&mut self, tagging: &Tagging) {
        let (fixed, extension) = self.parts();
        let tag = tag(tagging, fixed, extension);
        self.bytes[TAG].copy_from_slice(&tag.to_le_bytes());
    }
}

impl Repr {
    /// What its tag begins with, under this key, when it says who sends.
    pub fn tagging(&self, key: &Key) -> Option<Tagging> {
        self.sender.map(|sender| Tagging::new(key, self.receiver_slot, self.connection, &sender))
    }

    /// The fixed part, without the tag. Whole words, since the tag is over words: they are read right after they are
    /// written.
    #[inline(always)]
    fn words(&self, form: u8, flags: u8) -> [u64; SHORT_HEADER_LEN / 8] {
        let small = u32::from_le_bytes([VERSION, form, flags, self.tag]);
        [
            pair(small, u32::from(self.length) | u32::from(self.credit) << 16),
            0,
            pair(self.stamp, self.echo),
            self.seq,
            self.ack,
            connection_id(self.receiver_slot, self.connection),
        ]
    }

    /// The header, without its tag.
    #[inline(always)]
    pub fn emit(&self) -> Header {
        let mut bytes = [0; MAX_HEADER_LEN];
        let kind = self.body.kind();
        let begin = if self.sender.is_some() { HEADER_LEN } else { SHORT_HEADER_LEN };
        let mut len = begin + extension_len(kind);
        let mut flags = self.flags.0 & !(7 << Flags::WORDS_SHIFT);
        match self.body {
            Body::Ack(bitmap) => {
                let words = bitmap.len();
                for (index, word) in bitmap.words[..words].iter().enumerate() {
                    put(&mut bytes, begin + index * 8, word.to_le_bytes());
                }
                flags |= (words as u8) << Flags::WORDS_SHIFT;
                len += words * 8;
            }
            Body::Chunk { fragment, size, offset } => {
                put(&mut bytes, begin, fragment.to_le_bytes());
                put(&mut bytes, begin + 4, size.to_le_bytes());
                put(&mut bytes, begin + 8, offset.to_le_bytes());
            }
            Body::Put { registration, generation, offset, operation } => {
                put(&mut bytes, begin, registration.to_le_bytes());
                put(&mut bytes, begin + 4, generation.to_le_bytes());
                put(&mut bytes, begin + 8, offset.to_le_bytes());
                put(&mut bytes, begin + 16, operation.to_le_bytes());
            }
            Body::GetRequest { registration, generation, offset, length, operation } => {
                put(&mut bytes, begin, registration.to_le_bytes());
                put(&mut bytes, begin + 4, generation.to_le_bytes());
                put(&mut bytes, begin + 8, offset.to_le_bytes());
                put(&mut bytes, begin + 16, length.to_le_bytes());
                put(&mut bytes, begin + 24, operation.to_le_bytes());
            }
            Body::GetData { operation, offset } => {
                put(&mut bytes, begin, operation.to_le_bytes());
                put(&mut bytes, begin + 8, offset.to_le_bytes());
            }
            Body::Refused { operation } | Body::Reject { operation } => {
                put(&mut bytes, begin, operation.to_le_bytes());
            }
            Body::Withdrawn { segment } => put(&mut bytes, begin, segment.to_le_bytes()),
            Body::Fragment | Body::Void | Body::Close | Body::CloseAck | Body::Withdraw | Body::Reset => {}
        }
        let mut form = kind as u8;
        if let Some(sender) = &self.sender {
            form |= LONG;
            put(&mut bytes, 48, sender.name.to_le_bytes());
            put(&mut bytes, 56, pair(sender.incarnation, sender.slot).to_le_bytes());
        }
        for (at, word) in self.words(form, flags).into_iter().enumerate() {
            put(&mut bytes, at * 8, word.to_le_bytes());
        }
        Header { bytes, len: len as u8 }
    }
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8; MAX_HEADER_LEN], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
