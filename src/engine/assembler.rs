//! Chunks back into fragments.
//!
//! Memory is promised to a fragment when its first chunk arrives, and not more than the bounds
//! say. A chunk without room is dropped and not acknowledged: it comes again. So that this always
//! ends well, what arrives ahead of a hole may use only half of the memory: the hole may hide a
//! fragment that must be whole before the window moves on, and that one then finds room.

use super::coverage::Coverage;
use super::interface::Buffer;
use crate::wire::run::Payload;
use std::collections::HashMap;
use std::ops::Deref;

/// What a fragment takes up besides its bytes.
const OVERHEAD: usize = 256;
/// Buffers kept for the next fragment.
const SPARE: usize = 16;
/// Bytes of a buffer, at least: what is tiny shares a size, so that one serves for another.
const LEAST: usize = 256;
/// Bytes kept for the next fragment, at most.
const SPARE_BYTES: usize = 16 << 20;

/// A fragment of which some chunks have arrived.
#[derive(Debug)]
struct Assembly {
    tag: u8,
    size: u32,
    bytes: Vec<u8>,
    arrived: Coverage,
}

/// The fragments of one peer of which some chunks have arrived.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The one that the last chunk belonged to, as the next one mostly does.
    current: Option<(u32, Assembly)>,
    others: HashMap<u32, Assembly>,
    used: usize,
}

/// Memory for all peers: its bounds, and buffers to use again.
#[derive(Debug)]
pub(super) struct Pool {
    spare: Vec<Vec<u8>>,
    used: usize,
    per_peer: usize,
    total: usize,
}

/// A chunk as it arrived, or several that follow each other.
pub(super) struct Chunk<'a> {
    pub(super) tag: u8,
    pub(super) fragment: u32,
    pub(super) size: u32,
    pub(super) offset: u32,
    pub(super) payload: Payload<'a>,
    /// It is not the one expected: others before it are missing.
    pub(super) early: bool,
}

/// What became of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// The fragment is whole.
    Whole { tag: u8, buffer: Buffer },
    /// The first of its fragment.
    Begun,
    /// One of several.
    Partly,
}

/// Why a chunk has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// No memory now.
    Full,
    /// It contradicts itself or the others.
    Bad,
}

impl Buffer {
    pub(super) fn charge(&self) -> usize {
        self.len + OVERHEAD
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Pool {
    pub(super) const fn new(per_peer: usize, total: usize) -> Self {
        Self { spare: Vec::new(), used: 0, per_peer, total }
    }

    /// Longest fragment that always finds room in the end.
    pub(super) fn longest(&self) -> usize {
        (self.per_peer.min(self.total) / 2).saturating_sub(OVERHEAD).min(u32::MAX as usize)
    }

    fn take(&mut self, size: usize) -> Vec<u8> {
        let size = size.max(LEAST);
        match self.spare.iter().position(|bytes| bytes.len() >= size && bytes.len() / 4 <= size) {
            Some(at) => self.spare.swap_remove(at),
            None => vec![0; size],
        }
    }

    /// A whole fragment, copied. It counts until [`Self::release`].
    pub(super) fn hold(&mut self, bytes: &[u8]) -> Buffer {
        let len = bytes.len();
        let mut to = self.take(len);
        to[..len].copy_from_slice(bytes);
        self.used += len + OVERHEAD;
        Buffer { bytes: to, len }
    }

    /// The fragment was handed out: its memory counts no more.
    pub(super) fn release(&mut self, charge: usize) {
        self.used = self.used.saturating_sub(charge);
    }

    pub(super) fn recycle(&mut self, buffer: Buffer) {
        let (fresh, mut kept) = (buffer.bytes, self.spare.iter().map(Vec::len).sum::<usize>());
        // What costs least to make anew makes room.
        if self.spare.len() == SPARE
            && let Some((at, len)) = self.spare.iter().map(Vec::len).enumerate().min_by_key(|(_, len)| *len)
            && len < fresh.len()
            && kept - len + fresh.len() <= SPARE_BYTES
        {
            self.spare.swap_remove(at);
            kept -= len;
        }
        if self.spare.len() < SPARE && kept + fresh.len() <= SPARE_BYTES {
            self.spare.push(fresh);
        }
    }

    #[cfg(test)]
    pub(super) const fn used(&self) -> usize {
        self.used
    }
}

impl Assembler {
    pub(super) fn is_empty(&self) -> bool {
        self.current.is_none() && self.others.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.current.is_some()) + self.others.len()
    }

    /// Makes the fragment the current one; whether some of it has arrived.
    #[inline]
    fn turn_to(&mut self, fragment: u32) -> bool {
        match &self.current {
            Some((current, _)) if *current == fragment => true,
            _ => self.exchange(fragment),
        }
    }

    #[inline(never)]
    fn exchange(&mut self, fragment: u32) -> bool {
        let wanted = self.others.remove(&fragment).map(|assembly| (fragment, assembly));
        let is_there = wanted.is_some();
        if let Some((other, assembly)) = std::mem::replace(&mut self.current, wanted) {
            self.others.insert(other, assembly);
        }
        is_there
    }

    /// Puts a chunk in its place. Fragments that are not whole yet count in `pool`, and whole ones
    /// until [`Pool::release`].
    pub(super) fn place(&mut self, chunk: &Chunk<'_>, pool: &mut Pool) -> Result<Placed, Unplaced> {
        let (start, size) = (chunk.offset as usize, chunk.size as usize);
        let Some(end) = start.checked_add(chunk.payload.len()).filter(|end| *end <= size) else {
            return Err(Unplaced::Bad);
        };
        if chunk.payload.is_empty() || size > pool.longest() {
            return Err(Unplaced::Bad);
        }
        let mut begun = false;
        if !self.turn_to(chunk.fragment) {
            let charge = size + OVERHEAD;
            let share = if chunk.early { 2 } else { 1 };
            if self.used + charge > pool.per_peer / share || pool.used + charge > pool.total / share {
                return Err(Unplaced::Full);
            }
            self.used += charge;
            pool.used += charge;
            begun = true;
            let fresh = Assembly {
                tag: chunk.tag,
                size: chunk.size,
                bytes: pool.take(size),
                arrived: Coverage::default(),
            };
            self.current = Some((chunk.fragment, fresh));
        }
        let Some((_, assembly)) = &mut self.current else {
            return Err(Unplaced::Bad);
        };
        if assembly.size != chunk.size
            || assembly.tag != chunk.tag
            || !assembly.arrived.insert(start as u64, end as u64)
        {
            return Err(Unplaced::Bad);
        }
        let place = &mut assembly.bytes[start..end];
        chunk.payload.parts().for_each(|(at, part)| place[at..at + part.len()].copy_from_slice(part));
        if !assembly.arrived.covers(size as u64) {
            return Ok(if begun { Placed::Begun } else { Placed::Partly });
        }
        match self.current.take() {
            Some((_, Assembly { tag, bytes, .. })) => {
                self.used -= size + OVERHEAD;
                Ok(Placed::Whole { tag, buffer: Buffer { bytes, len: size } })
            }
            None => Err(Unplaced::Bad),
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        pool.release(self.used);
        self.used = 0;
        (self.current, self.others) = (None, HashMap::new());
    }

    pub(super) fn shrink(&mut self) {
        self.others.shrink_to(0);
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.used + self.others.capacity() * (size_of::<Assembly>() + 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk<'a>(fragment: u32, size: u32, offset: u32, bytes: &'a [u8]) -> Chunk<'a> {
        Chunk { tag: 7, fragment, size, offset, payload: Payload::one(bytes), early: false }
    }

    #[test]
    fn chunks_in_any_order_make_the_fragment() {
        let mut pool = Pool::new(10_000, 10_000);
        let mut assembler = Assembler::default();
        assert_eq!(assembler.place(&chunk(1, 6, 4, b"ef"), &mut pool), Ok(Placed::Begun));
        assert_eq!(assembler.place(&chunk(1, 6, 0, b"ab"), &mut pool), Ok(Placed::Partly));
        let Ok(Placed::Whole { tag: 7, buffer }) = assembler.place(&chunk(1, 6, 2, b"cd"), &mut pool) else {
            panic!("not whole")
        };
        assert_eq!(&buffer[..], b"abcdef");
        assert!(assembler.is_empty() && pool.used() == buffer.charge());
        pool.release(buffer.charge());
        pool.recycle(buffer);
        assert_eq!((pool.used(), pool.spare.len(), assembler.used), (0, 1, 0));
        assert_eq!(assembler.place(&chunk(2, 5, 0, b"x"), &mut pool), Ok(Placed::Begun));
        assert_eq!(pool.spare.len(), 0);
    }

    #[test]
    fn tiny_buffers_share_a_size_and_make_room_for_longer_ones() {
        let mut pool = Pool::new(1 << 24, 1 << 24);
        let give_back = |pool: &mut Pool, len: usize, count: usize| {
            let held: Vec<_> = (0..count).map(|_| pool.hold(&vec![1; len])).collect();
            held.into_iter().for_each(|buffer| pool.recycle(buffer));
        };
        let mut tiny = 1..=2 * SPARE;
        give_back(&mut pool, 8, 2 * SPARE);
        assert_eq!(pool.spare.len(), SPARE);
        assert!(tiny.all(|len| pool.hold(&vec![1; len]).bytes.len() == LEAST), "one serves for another");
        assert_eq!(pool.spare.len(), 0);
        give_back(&mut pool, 8, SPARE);
        give_back(&mut pool, 100_000, SPARE);
        assert!(pool.spare.iter().all(|bytes| bytes.len() == 100_000), "the short ones have made room");
        give_back(&mut pool, 8, SPARE);
        assert!(pool.spare.iter().all(|bytes| bytes.len() == 100_000), "and do not push longer ones out");
        give_back(&mut pool, 4 << 20, SPARE);
        assert!(pool.spare.iter().map(Vec::len).sum::<usize>() <= SPARE_BYTES);
        assert!(pool.spare.iter().any(|bytes| bytes.len() == 4 << 20));
    }

    #[test]
    fn contradictions_are_bad() {
        let mut pool = Pool::new(10_000, 10_000);
        let mut assembler = Assembler::default();
        assert_eq!(assembler.place(&chunk(1, 6, 0, b"abc"), &mut pool), Ok(Placed::Begun));
        let other_tag = Chunk { tag: 8, ..chunk(1, 6, 3, b"d") };
        for bad in [
            chunk(1, 7, 3, b"d"),
            other_tag,
            chunk(1, 6, 2, b"xx"),
            chunk(1, 6, 0, b"abcdef"),
            chunk(1, 6, 4, b"xyz"),
            chunk(1, 6, u32::MAX, b"x"),
            chunk(2, 0, 0, b""),
            chunk(2, 9, 3, b""),
            chunk(2, u32::MAX, 0, b"x"),
        ] {
            assert_eq!(assembler.place(&bad, &mut pool), Err(Unplaced::Bad));
        }
        assert_eq!(assembler.len(), 1);
        assembler.clear(&mut pool);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn memory_is_bounded_and_what_is_expected_finds_room() {
        let mut pool = Pool::new(4 * (1000 + OVERHEAD), 6 * (1000 + OVERHEAD));
        let mut assemblers = [Assembler::default(), Assembler::default()];
        let early = |fragment| Chunk { early: true, ..chunk(fragment, 1000, 10, b"x") };
        assert_eq!(assemblers[0].place(&early(1), &mut pool), Ok(Placed::Begun));
        assert_eq!(assemblers[0].place(&early(2), &mut pool), Ok(Placed::Begun));
        assert_eq!(assemblers[0].place(&early(3), &mut pool), Err(Unplaced::Full), "half of the peer's");
        assert_eq!(assemblers[1].place(&early(3), &mut pool), Ok(Placed::Begun));
        assert_eq!(assemblers[1].place(&early(4), &mut pool), Err(Unplaced::Full), "half of all");
        for fragment in 10..12 {
            assert_eq!(assemblers[0].place(&chunk(fragment, 1000, 0, b"x"), &mut pool), Ok(Placed::Begun));
        }
        assert_eq!(assemblers[0].place(&chunk(13, 1000, 0, b"x"), &mut pool), Err(Unplaced::Full));
        assert_eq!(assemblers[0].place(&chunk(1, 1000, 0, b"x"), &mut pool), Ok(Placed::Partly));
    }
}
