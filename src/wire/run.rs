//! Runs: packets of one piece of data that follow each other, as one thing.
//!
//! Long data leaves in many packets of one length, whose headers differ in the sequence number and the
//! offset alone, and arrives like that where the kernel joins what came together (`UDP_SEGMENT` and
//! `UDP_GRO` of udp(7)). On the wire there are no runs: each packet stands for itself, with its own tag.
//! The last one may be shorter, and may ask for an acknowledgement where the others do not; none but the
//! first says something in `echo`. Protected packets are runs as well: what differs besides are their numbers.
//!
//! Panic contract: as in [`super::usnic`]; nothing here panics, whatever the bytes.

use super::protection::TAG_LEN;
use super::tagging::RunTagging;
use super::usnic::{Flags, Header, Kind, MAX_HEADER_LEN, Packet, Repr, Tagging, is_kind};

/// Where in the header these are.
const FLAGS: usize = 2;
const LENGTH: usize = 4;
const TAG: usize = 8;
const STAMPS: usize = 16;
const ECHO: usize = 20;
const SEQ: usize = 24;
const ACK: usize = 32;
/// Where in the extension the offset is, in all kinds that have one.
const OFFSET: usize = 8;

/// Packets of a run, at most: what one offloaded message carries.
pub const LONGEST: usize = 64;

/// Whether packets of the kind carry a piece of something longer.
pub const fn is_piece(kind: Kind) -> bool {
    matches!(kind, Kind::Chunk | Kind::Put | Kind::GetData)
}

/// The numbers in which the headers of a run differ.
#[derive(Clone, Copy)]
struct Steps {
    seq: u64,
    offset: u64,
    payload: u64,
    is_wide: bool,
}

impl Steps {
    /// Those of a header, followed by packets of as much payload.
    fn of(header: &[u8], extension: usize) -> Option<Self> {
        let &[_, kind, _, _, low, high] = header.first_chunk()?;
        let long = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let is_wide = !is_kind(kind, Kind::Chunk);
        let offset = if is_wide {
            long(extension + OFFSET)?
        } else {
            u64::from(u32::from_le_bytes(*header.get(extension + OFFSET..)?.first_chunk()?))
        };
        Some(Self { seq: long(SEQ)?, offset, payload: u64::from(u16::from_le_bytes([low, high])), is_wide })
    }

    /// On to the next packet. The offset of a hostile one may wrap.
    #[inline(always)]
    fn step(&mut self) {
        self.seq = self.seq.wrapping_add(1);
        self.offset = self.offset.wrapping_add(self.payload);
        if !self.is_wide {
            self.offset &= u64::from(u32::MAX);
        }
    }

    /// Writes them where they are in a header.
    #[inline(always)]
    fn put(&self, header: &mut [u8], extension: usize) {
        if let Some(seq) = header.get_mut(SEQ..).and_then(<[u8]>::first_chunk_mut) {
            *seq = self.seq.to_le_bytes();
        }
        let Some(offset) = header.get_mut(extension + OFFSET..) else { return };
        if let Some(offset) = offset.first_chunk_mut::<8>() {
            *offset = self.offset.to_le_bytes();
        } else if let Some(offset) = offset.first_chunk_mut::<4>() {
            *offset = (self.offset as u32).to_le_bytes();
        }
    }
}

/// The header of a first packet as the others of its run have it, but for their [`Steps`].
fn followed(header: &mut [u8]) {
    if let [_, _, flags, ..] = header {
        *flags &= !Flags::ASKS.bits();
    }
    if let Some(echo) = header.get_mut(ECHO..ECHO + 4) {
        echo.fill(0);
    }
}

/// What the tags of the others begin with.
fn run_tagging(tagging: &Tagging, followed: &[u8], extension: usize) -> Option<RunTagging> {
    let long = |at: usize| Some(u64::from_le_bytes(*followed.get(at..)?.first_chunk()?));
    Some(tagging.of_run(long(STAMPS)?, long(ACK)?, followed.get(extension..)?))
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
    pub fn write(&mut self, first: &Header, more: usize, last: usize, flags: Flags, tagging: &Tagging) {
        let (mut model, extension) = (*first, first.extension());
        followed(model.bytes_mut());
        let Some(tags) = run_tagging(tagging, &model, extension) else { return };
        let tag = |steps: &Steps, begin: u64| tags.of(steps.seq, steps.offset, begin >> 8);
        self.write_each(first, model, more, (last, flags), tag);
    }

    /// The same of packets that are going to be protected: without tags.
    pub fn write_untagged(&mut self, first: &Header, more: usize, last: usize, flags: Flags) {
        let mut model = *first;
        followed(model.bytes_mut());
        self.write_each(first, model, more, (last, flags), |_, _| 0);
    }

    /// `tag` has the steps of each, and the eight bytes that its header begins with.
    #[inline(always)]
    fn write_each(
        &mut self,
        first: &Header,
        mut model: Header,
        more: usize,
        (last, flags): (usize, Flags),
        tag: impl Fn(&Steps, u64) -> u64,
    ) {
        self.bytes.clear();
        self.bytes.extend_from_slice(first);
        self.len = first.len();
        let extension = first.extension();
        let bytes = model.bytes_mut();
        let Some(mut steps) = Steps::of(bytes, extension) else { return };
        self.payload = steps.payload as usize;
        self.bytes.reserve(more * bytes.len());
        for at in 1..=more {
            steps.step();
            steps.put(bytes, extension);
            if at == more {
                bytes[FLAGS] |= flags.bits();
                bytes[LENGTH..LENGTH + 2].copy_from_slice(&(last as u16).to_le_bytes());
            }
            let Some(begin) = bytes.first_chunk_mut::<16>() else { return };
            let word = u64::from_le_bytes(begin[..8].try_into().unwrap_or_default());
            begin[TAG..].copy_from_slice(&tag(&steps, word).to_le_bytes());
            self.bytes.extend_from_slice(bytes);
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
    /// Bytes that each carries but the last.
    each: usize,
    count: usize,
    len: usize,
}

impl<'a> Payload<'a> {
    /// That of one packet.
    #[inline]
    pub const fn one(bytes: &'a [u8]) -> Self {
        let len = bytes.len();
        Self { bytes, step: len, header: 0, each: len, count: 1, len }
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

    /// Bytes that each carries but the last.
    #[inline]
    pub const fn each(&self) -> usize {
        self.each
    }

    /// Packets.
    #[inline]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The bytes, with where in the whole they belong.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let Self { bytes, step, header, each, count, len } = *self;
        (0..count).filter_map(move |at| {
            let (start, part) = (at * step + header, each.min(len - at * each));
            bytes.get(start..start + part).map(|part| (at * each, part))
        })
    }
}

/// The first of datagrams that were joined, if others of a run can follow it.
#[derive(Clone, Copy, Debug)]
pub struct Lead<'a> {
    bytes: &'a [u8],
    size: usize,
    header: usize,
    /// Bytes behind the payload.
    trailer: usize,
    extension: usize,
    repr: Repr,
}

/// The packets at the front of datagrams that were joined.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    bytes: &'a [u8],
    /// Bytes of a datagram.
    size: usize,
    header: usize,
    /// Bytes behind the payload of each.
    trailer: usize,
    /// Where in the header the extension begins.
    extension: usize,
    count: usize,
    /// What the first one says.
    pub first: Repr,
    /// Whether the last one asks for an acknowledgement.
    pub asks: bool,
}

impl<'a> Lead<'a> {
    /// That of `bytes`, which are datagrams of `size` bytes, of which the last may have fewer.
    #[inline]
    pub fn parse(bytes: &'a [u8], size: usize) -> Option<Self> {
        let packet = Packet::parse(bytes.get(..size)?).ok()?;
        let repr = packet.repr;
        let (header, extension) = (packet.payload().start, packet.extension());
        let trailer = if repr.flags.has(Flags::PROTECTED) { TAG_LEN } else { 0 };
        let fills = header + usize::from(repr.length) + trailer == size && repr.length > 0;
        if !is_piece(repr.body.kind()) || !fills {
            return None;
        }
        Some(Self { bytes, size, header, trailer, extension, repr })
    }

    /// What it says.
    #[inline]
    pub const fn repr(&self) -> &Repr {
        &self.repr
    }

    /// Bytes of the header of each.
    #[inline]
    pub const fn header(&self) -> usize {
        self.header
    }

    /// It and the next ones, `count` in all, of which is known that they are a run.
    pub const fn together(self, count: usize, asks: bool) -> Joined<'a> {
        let Self { bytes, size, header, trailer, extension, repr } = self;
        Joined { bytes, size, header, trailer, extension, count, first: repr, asks }
    }

    /// The packets at the front that are a run, if there are at least two. Whether they are genuine,
    /// [`Joined::genuine`] says, or of protected ones their key.
    pub fn run(self) -> Option<Joined<'a>> {
        let Self { bytes, size, header, trailer, extension, repr } = self;
        let (first, rest) = bytes.split_at_checked(size)?;
        let mut model = [0; MAX_HEADER_LEN];
        let model = model.get_mut(..header)?;
        model.copy_from_slice(first.get(..header)?);
        followed(model);
        let mut steps = Steps::of(model, extension)?;
        let (mut count, mut asks) = (1, repr.flags.has(Flags::ASKS));
        for datagram in rest.chunks(size).take(LONGEST - 1) {
            let bare = header + trailer;
            let Some(next) = datagram.get(..header).filter(|_| datagram.len() > bare) else { break };
            #[cfg(test)]
            tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
            steps.step();
            steps.put(model, extension);
            let length = ((datagram.len() - bare) as u16).to_le_bytes();
            // INVARIANT: `model` and `next` are of one length, that of the header.
            let is_next = next[LENGTH..LENGTH + 2] == length
                && next[..FLAGS] == model[..FLAGS]
                && next[FLAGS] & !Flags::ASKS.bits() == model[FLAGS]
                && next[FLAGS + 1] == model[FLAGS + 1]
                && next[LENGTH + 2..LENGTH + 4] == model[LENGTH + 2..LENGTH + 4]
                && next[STAMPS..] == model[STAMPS..];
            if !is_next {
                break;
            }
            count += 1;
            asks |= next[FLAGS] & Flags::ASKS.bits() != 0;
            if asks || datagram.len() < size {
                break;
            }
        }
        (count > 1).then_some(Joined { bytes, size, header, trailer, extension, count, first: repr, asks })
    }
}

impl<'a> Joined<'a> {
    /// Those at the front whose tags only a holder of the key of `tagging` can make, if there are at least two.
    pub fn genuine(mut self, tagging: &Tagging) -> Option<Self> {
        let (first, rest) = self.bytes.split_at_checked(self.size)?;
        if !Packet::parse(first).is_ok_and(|packet| packet.is_genuine(tagging)) {
            return None;
        }
        let mut model = [0; MAX_HEADER_LEN];
        let model = model.get_mut(..self.header)?;
        model.copy_from_slice(first.get(..self.header)?);
        followed(model);
        let mut steps = Steps::of(model, self.extension)?;
        let tags = run_tagging(tagging, model, self.extension)?;
        let mut genuine = 1;
        for datagram in rest.chunks(self.size).take(self.count - 1) {
            steps.step();
            let (words, _) = datagram.as_chunks::<8>();
            let [begin, tag, ..] = words else { break };
            let tag = u64::from_le_bytes(*tag);
            if tags.of(steps.seq, steps.offset, u64::from_le_bytes(*begin) >> 8) != tag {
                break;
            }
            genuine += 1;
        }
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
        let &Self { size, header, trailer, count, .. } = self;
        let bare = header + trailer;
        let len = self.bytes.len().min(count * size) - count * bare;
        Payload { bytes: self.bytes, step: size, header, each: size - bare, count, len }
    }

    /// The datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.size).take(self.count)
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
pub(crate) mod tests;
