//! Runs: packets of one piece of data that follow each other, as one thing.
//!
//! Long data leaves in many packets of one length, whose headers differ in the sequence number and the
//! offset alone, and arrives like that where the kernel joins what came together (`UDP_SEGMENT` and
//! `UDP_GRO` of udp(7)). On the wire there are no runs: each packet stands for itself, with its own tag.
//! The last one may be shorter, and may ask for an acknowledgement where the others do not; none but the
//! first says something in `echo`.
//!
//! Panic contract: as in [`super::usnic`]; nothing here panics, whatever the bytes.

use super::usnic::{Flags, HEADER_LEN, Header, Key, Kind, MAX_HEADER_LEN, Packet, Repr, header_len};

/// Where in the header these are; the offset is at one place in all kinds that have one.
const FLAGS: usize = 2;
const LENGTH: usize = 4;
const ECHO: usize = 40;
const SEQ: usize = 48;
const OFFSET: usize = 72;

/// Packets of a run, at most: what one offloaded message carries.
pub const LONGEST: usize = 64;

/// Whether packets of the kind carry a piece of something longer.
pub const fn is_piece(kind: Kind) -> bool {
    matches!(kind, Kind::Chunk | Kind::Put | Kind::GetData)
}

/// Adds to a number in the header, which wraps as the offset of a hostile packet may.
fn add<const WIDE: bool>(bytes: &mut [u8], at: usize, more: u64) {
    let Some(field) = bytes.get_mut(at..) else { return };
    if WIDE {
        if let Some(field) = field.first_chunk_mut::<8>() {
            *field = u64::from_le_bytes(*field).wrapping_add(more).to_le_bytes();
        }
    } else if let Some(field) = field.first_chunk_mut::<4>() {
        *field = u32::from_le_bytes(*field).wrapping_add(more as u32).to_le_bytes();
    }
}

/// The headers of a run, one behind the other.
#[derive(Debug, Default)]
pub struct Headers {
    bytes: Vec<u8>,
    len: usize,
    payload: usize,
}

impl Headers {
    /// Of a packet and `more` that follow it with as much payload as it has, but for the last, which has `last`
    /// bytes and may be flagged. The first is sealed already.
    pub fn write(&mut self, first: &Header, more: usize, last: usize, flags: Flags, key: &Key) {
        let Some(fixed) = first.first_chunk::<HEADER_LEN>() else { return };
        let is_wide = fixed[1] != Kind::Chunk as u8;
        self.len = first.len();
        self.payload = usize::from(u16::from_le_bytes([fixed[LENGTH], fixed[LENGTH + 1]]));
        self.bytes.clear();
        self.bytes.extend_from_slice(first);
        let mut next = *first;
        next.bytes_mut()[FLAGS] &= !Flags::ASKS.bits();
        next.bytes_mut()[ECHO..ECHO + 4].fill(0);
        for at in 1..=more {
            let payload = self.payload as u64;
            let bytes = next.bytes_mut();
            add::<true>(bytes, SEQ, 1);
            if is_wide {
                add::<true>(bytes, OFFSET, payload);
            } else {
                add::<false>(bytes, OFFSET, payload);
            }
            if at == more {
                bytes[FLAGS] |= flags.bits();
                bytes[LENGTH..LENGTH + 2].copy_from_slice(&(last as u16).to_le_bytes());
            }
            next.seal(key);
            self.bytes.extend_from_slice(&next);
        }
    }

    /// Their bytes, and the length of each.
    #[inline]
    pub fn bytes(&self) -> (&[u8], usize) {
        (&self.bytes, self.len)
    }

    /// Bytes behind each header; the last has what is left.
    #[inline]
    pub fn payload(&self) -> usize {
        self.payload
    }
}

/// What several packets carry, or one, in order.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    /// From one datagram to the next.
    step: usize,
    header: usize,
    count: usize,
    len: usize,
}

impl<'a> Payload<'a> {
    /// That of one packet.
    #[inline]
    pub const fn one(bytes: &'a [u8]) -> Self {
        Self { bytes, step: bytes.len(), header: 0, count: 1, len: bytes.len() }
    }

    /// Bytes in all.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets.
    #[inline]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The bytes, with where in the whole they belong.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let Self { bytes, step, header, count, len } = *self;
        let each = step - header;
        (0..count).filter_map(move |at| {
            let (start, part) = (at * step + header, each.min(len - at * each));
            bytes.get(start..start + part).map(|part| (at * each, part))
        })
    }
}

/// The packets at the front of datagrams that were joined.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    bytes: &'a [u8],
    /// Bytes of a datagram.
    size: usize,
    header: usize,
    count: usize,
    /// What the first one says.
    pub first: Repr,
    /// Whether the last one asks for an acknowledgement.
    pub asks: bool,
}

impl<'a> Joined<'a> {
    /// The packets at the front of `bytes` that are a run, if there are at least two: datagrams of `size` bytes,
    /// of which the last may have fewer. Whether they are genuine, [`Self::genuine`] says.
    pub fn parse(bytes: &'a [u8], size: usize) -> Option<Self> {
        let packet = Packet::parse(bytes.get(..size)?).ok()?;
        let repr = packet.repr;
        let header = header_len(repr.body.kind());
        let fills = header + usize::from(repr.length) == size && repr.length > 0;
        if !is_piece(repr.body.kind()) || repr.flags.has(Flags::PROTECTED) || !fills {
            return None;
        }
        let (first, rest) = bytes.split_at(size);
        let mut model = [0; MAX_HEADER_LEN];
        let model = model.get_mut(..header)?;
        model.copy_from_slice(first.get(..header)?);
        model[FLAGS] &= !Flags::ASKS.bits();
        model[ECHO..ECHO + 4].fill(0);
        let is_wide = repr.body.kind() != Kind::Chunk;
        let (mut count, mut asks) = (1, repr.flags.has(Flags::ASKS));
        for datagram in rest.chunks(size).take(LONGEST - 1) {
            let Some(next) = datagram.get(..header).filter(|_| datagram.len() > header) else { break };
            add::<true>(model, SEQ, 1);
            if is_wide {
                add::<true>(model, OFFSET, u64::from(repr.length));
            } else {
                add::<false>(model, OFFSET, u64::from(repr.length));
            }
            let length = ((datagram.len() - header) as u16).to_le_bytes();
            // INVARIANT: `model` and `next` are of one length, that of the header.
            let is_next = next[LENGTH..LENGTH + 2] == length
                && next[..FLAGS] == model[..FLAGS]
                && next[FLAGS] & !Flags::ASKS.bits() == model[FLAGS]
                && next[FLAGS + 1] == model[FLAGS + 1]
                && next[LENGTH + 2..LENGTH + 4] == model[LENGTH + 2..LENGTH + 4]
                && next[16..] == model[16..];
            if !is_next {
                break;
            }
            count += 1;
            asks |= next[FLAGS] & Flags::ASKS.bits() != 0;
            if asks || datagram.len() < size {
                break;
            }
        }
        (count > 1).then_some(Self { bytes, size, header, count, first: repr, asks })
    }

    /// Those at the front whose tags only a holder of `key` can make, if there are at least two.
    pub fn genuine(mut self, key: &Key) -> Option<Self> {
        let packets = self.bytes.chunks(self.size).take(self.count);
        let is_genuine =
            |datagram: &&[u8]| Packet::parse(datagram).is_ok_and(|packet| packet.is_genuine(key));
        let genuine = packets.take_while(is_genuine).count();
        if genuine < self.count {
            (self.count, self.asks) = (genuine, false);
        }
        (genuine > 1).then_some(self)
    }

    /// Packets.
    #[inline]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// What they carry.
    #[inline]
    pub fn payload(&self) -> Payload<'a> {
        let len = self.bytes.len().min(self.count * self.size) - self.count * self.header;
        Payload { bytes: self.bytes, step: self.size, header: self.header, count: self.count, len }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
