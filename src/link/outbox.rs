//! [`Outbox`]: one channel's datagrams that wait for the kernel.
//!
//! Headers and short datagrams are copied into one arena when they are posted, so that the short path
//! ends in one piece of memory; longer pieces are only noted, and copied if the kernel is busy. Short datagrams
//! of a run are one entry: they lie one behind the other, and leave in one message where the kernel cuts it.

use super::{AddressId, Lent};
use crate::error::{Result, room};

/// Datagrams that an outbox holds.
pub(super) const ENTRIES: usize = 256;

/// Bytes that it holds, unless it is one datagram.
const BYTES: usize = 1 << 20;

/// Datagrams up to this length are copied when they are posted: that is cheaper than a list of pieces,
/// and those to one peer are one piece for the kernel. (Over veth with MTU 1500, messages of 16 KiB to 1 MiB were
/// later by 8 to 19 % with two pieces for each datagram.)
pub(super) const SHORT: usize = 2048;

/// Datagrams in one offloaded message (`UDP_MAX_SEGMENTS` of the oldest kernels).
pub(super) const SEGMENTS: usize = 64;

/// Bytes that an offloaded message surely carries: an IPv6 packet less its headers.
const MESSAGE: usize = 65535 - 48;

/// By how many datagrams of a run the memory that they carry is asked for ahead. On the machine that it was tried
/// on two are enough: 8 % less for both sides of a stream whose memory is in no near cache.
const AHEAD: usize = 2;

/// Pieces that are noted; a datagram with more is copied.
const PIECES: usize = 3;

/// One datagram, or several of one size that lie one behind the other; their last may be shorter.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) to: AddressId,
    order: u32,
    start: usize,
    head: usize,
    len: usize,
    /// Bytes of each datagram but the last.
    size: usize,
    count: usize,
    pieces: [Lent; PIECES],
    /// It was there when the kernel was busy.
    kept: bool,
}

impl Entry {
    /// Bytes in all.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the first datagram.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many datagrams it is.
    #[inline]
    pub(super) fn datagrams(&self) -> usize {
        if self.len == self.size { 1 } else { self.len.div_ceil(self.size) }
    }

    /// Whether all of its datagrams have one size.
    #[inline]
    pub(super) fn is_even(&self) -> bool {
        self.len == self.size || self.len.is_multiple_of(self.size)
    }

    /// Bytes of the head.
    #[inline]
    pub(super) fn head_len(&self) -> usize {
        self.head
    }

    /// The memory behind the head.
    #[inline]
    pub(super) fn pieces(&self) -> &[Lent] {
        &self.pieces[..self.count]
    }
}

/// Datagrams in the order in which they were posted.
pub(super) struct Outbox {
    entries: Vec<Entry>,
    /// Entries at the front that are gone.
    gone: usize,
    /// Datagrams in all entries.
    datagrams: usize,
    arena: Vec<u8>,
    bytes: usize,
    order: u32,
    mixed: bool,
}

impl Outbox {
    /// An empty one.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            entries: room::vector(ENTRIES)?,
            gone: 0,
            datagrams: 0,
            arena: room::vector(ENTRIES * 256)?,
            bytes: 0,
            order: 0,
            mixed: false,
        })
    }

    /// Appends a datagram; `false` if there is no room.
    #[inline]
    pub(super) fn push(&mut self, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        let len = pieces.iter().fold(header.len(), |len, piece| len.saturating_add(piece.len()));
        if self.datagrams == ENTRIES || (self.bytes > 0 && self.bytes.saturating_add(len) > BYTES) {
            return false;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(header);
        let mut entry = Entry {
            to,
            order: self.order,
            start,
            head: header.len(),
            len,
            size: len,
            count: 0,
            pieces: [Lent::EMPTY; 3],
            kept: false,
        };
        if len <= SHORT || pieces.len() > PIECES {
            copy(&mut self.arena, pieces);
            entry.head = len;
        } else {
            entry.pieces[..pieces.len()].copy_from_slice(pieces);
            entry.count = pieces.len();
        }
        self.append(entry);
        true
    }

    #[inline]
    fn append(&mut self, entry: Entry) {
        self.mixed |= self.entries.last().is_some_and(|last| last.to != entry.to);
        let datagrams = entry.datagrams();
        // A place in the order for each, should they be split.
        self.order = self.order.wrapping_add(datagrams as u32);
        self.bytes += entry.len;
        self.datagrams += datagrams;
        self.entries.push(entry);
    }

    /// Appends datagrams of headers of `head` bytes, each with the next `payload` bytes of the pieces, the last with
    /// what is left; `false` if there is no room for all, or they are not short.
    pub(super) fn push_run(
        &mut self,
        to: AddressId,
        headers: &[u8],
        head: usize,
        payload: usize,
        mut pieces: [Lent; 2],
    ) -> bool {
        let (count, step) = (headers.len() / head.max(1), head + payload);
        let bytes = pieces.iter().fold(headers.len(), |len, piece| len.saturating_add(piece.len()));
        let is_full = self.datagrams + count > ENTRIES || self.bytes.saturating_add(bytes) > BYTES;
        let is_run = (1..=SEGMENTS).contains(&count) && bytes > (count - 1) * step && bytes <= count * step;
        if step > SHORT || bytes > MESSAGE || is_full || !is_run {
            return false;
        }
        let start = self.arena.len();
        self.arena.reserve(bytes);
        for header in headers.chunks_exact(head) {
            self.arena.extend_from_slice(header);
            pieces[0].will_read(AHEAD * payload, payload);
            copy(&mut self.arena, &Lent::take(&mut pieces, payload));
        }
        self.append(Entry {
            to,
            order: self.order,
            start,
            head: bytes,
            len: bytes,
            size: step.min(bytes),
            count: 0,
            pieces: [Lent::EMPTY; PIECES],
            kept: false,
        });
        true
    }

    /// Appends a datagram of `len` bytes that `write` appends; `false`, and nothing is written, if there is no room.
    pub(super) fn push_written(
        &mut self,
        to: AddressId,
        len: usize,
        write: &mut dyn FnMut(&mut Vec<u8>),
    ) -> bool {
        if self.datagrams == ENTRIES || (self.bytes > 0 && self.bytes.saturating_add(len) > BYTES) {
            return false;
        }
        let start = self.arena.len();
        write(&mut self.arena);
        // INVARIANT: an entry is within the arena, whatever was written.
        self.arena.resize(start + len, 0);
        let pieces = [Lent::EMPTY; PIECES];
        self.append(Entry {
            to,
            order: self.order,
            start,
            head: len,
            len,
            size: len,
            count: 0,
            pieces,
            kept: false,
        });
        true
    }

    /// Datagrams that wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries().iter().map(Entry::datagrams).sum()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == self.gone
    }

    /// What waits.
    #[inline]
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries[self.gone..]
    }

    /// The bytes of an entry that lie here: its header, or all of it.
    #[inline]
    pub(super) fn head(&self, entry: &Entry) -> &[u8] {
        &self.arena[entry.start..entry.start + entry.head]
    }

    /// Copies an entry out; `to` has its length.
    pub(super) fn read(&self, entry: &Entry, to: &mut [u8]) {
        let (head, mut rest) = to.split_at_mut(entry.head);
        head.copy_from_slice(self.head(entry));
        for piece in entry.pieces() {
            let (here, behind) = rest.split_at_mut(piece.len());
            piece.read(0, here);
            rest = behind;
        }
    }

    /// Brings datagrams to the same peer together. Each peer's stay in order.
    pub(super) fn sort(&mut self) {
        if std::mem::take(&mut self.mixed) {
            // All were posted before the next one, whichever stands first after an earlier sort.
            let next = self.order;
            self.entries[self.gone..]
                .sort_unstable_by_key(|entry| (entry.to.index, entry.order.wrapping_sub(next)));
        }
    }

    /// Takes the first `count` entries out.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        self.gone += count;
        if self.gone == self.entries.len() {
            self.entries.clear();
            self.arena.clear();
            (self.gone, self.datagrams, self.bytes, self.mixed) = (0, 0, 0, false);
        }
    }

    /// Makes each datagram of the first entry an entry: they cannot leave in one message.
    #[cold]
    pub(super) fn split_first(&mut self) {
        let Some(&run) = self.entries().first().filter(|run| run.datagrams() > 1) else { return };
        let each = (0..run.datagrams()).map(move |at| {
            let mut one = run;
            let len = run.size.min(run.len - at * run.size);
            (one.start, one.head, one.len, one.size) = (run.start + at * run.size, len, len, len);
            one.order = run.order.wrapping_add(at as u32);
            one
        });
        // There is room: no more entries than datagrams.
        self.entries.splice(self.gone..=self.gone, each);
    }

    /// Copies what waits, so that no lent memory is needed any longer. Returns how many datagrams
    /// wait for the first time.
    #[cold]
    pub(super) fn keep(&mut self) -> usize {
        let mut kept = 0;
        self.entries.drain(..std::mem::take(&mut self.gone));
        self.bytes = self.entries.iter().map(|entry| entry.len).sum();
        self.datagrams = self.len();
        // What is gone makes room: the arena is written anew once half of it is waste.
        if self.arena.len() > 2 * self.bytes {
            let mut arena = Vec::with_capacity(self.arena.capacity());
            for entry in &mut self.entries {
                let start = arena.len();
                arena.extend_from_slice(&self.arena[entry.start..entry.start + entry.head]);
                entry.start = start;
            }
            self.arena = arena;
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.kept) {
            entry.kept = true;
            kept += entry.datagrams();
            if entry.count == 0 {
                continue;
            }
            let start = self.arena.len();
            self.arena.extend_from_within(entry.start..entry.start + entry.head);
            copy(&mut self.arena, &entry.pieces[..entry.count]);
            (entry.start, entry.head, entry.count) = (start, entry.len, 0);
        }
        kept
    }
}

#[inline]
pub(super) fn copy(arena: &mut Vec<u8>, pieces: &[Lent]) {
    pieces.iter().for_each(|piece| piece.append_to(arena));
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AddressId = AddressId { index: 0, generation: 0 };
    const B: AddressId = AddressId { index: 1, generation: 0 };

    fn lend(bytes: &mut [u8]) -> Lent {
        // SAFETY: the tests keep the bytes until the outbox is done with them.
        unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn whole(outbox: &Outbox, entry: &Entry) -> Vec<u8> {
        let mut bytes = vec![0; entry.len()];
        outbox.read(entry, &mut bytes);
        bytes
    }

    #[test]
    fn short_datagrams_lie_in_one_piece() {
        let mut outbox = Outbox::new().expect("memory");
        assert!(outbox.push(A, b"head", &[lend(&mut [1; 10]), lend(&mut [2; 20])]));
        let entry = outbox.entries()[0];
        assert_eq!((entry.len(), entry.pieces().len()), (34, 0));
        assert_eq!(outbox.head(&entry), [&b"head"[..], &[1; 10], &[2; 20]].concat());
    }

    #[test]
    fn a_run_is_one_entry_that_can_be_split() {
        let mut outbox = Outbox::new().expect("memory");
        let (mut first, mut second) = (*b"abcde", *b"fgh");
        let pieces = [lend(&mut first), lend(&mut second)];
        assert!(outbox.push(A, b"gone", &[]));
        assert!(outbox.push_run(A, b"1:2:3:", 2, 3, pieces));
        assert!(outbox.push_run(A, b"4:", 2, 5, [pieces[0], Lent::EMPTY]));
        outbox.advance(1);
        let all: Vec<_> = outbox.entries().iter().map(|entry| whole(&outbox, entry)).collect();
        assert_eq!(all, [&b"1:abc2:def3:gh"[..], b"4:abcde"]);
        let [run, one] = outbox.entries() else { panic!("not two") };
        assert_eq!((run.size(), run.datagrams(), run.is_even()), (5, 3, false));
        assert_eq!((one.size(), one.datagrams(), one.is_even()), (7, 1, true));
        assert_eq!((outbox.len(), outbox.keep()), (4, 4));
        outbox.split_first();
        let all: Vec<_> = outbox.entries().iter().map(|entry| whole(&outbox, entry)).collect();
        assert_eq!(all, [&b"1:abc"[..], b"2:def", b"3:gh", b"4:abcde"]);
        assert!(outbox.entries().iter().all(|entry| entry.datagrams() == 1 && entry.size() == entry.len()));
        outbox.split_first();
        assert_eq!(
            (outbox.len(), outbox.entries().len(), outbox.datagrams),
            (4, 4, 4),
            "nothing to be split"
        );
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let mut outbox = Outbox::new().expect("memory");
        let (mut first, mut second) = (*b"abcde", *b"fgh");
        let pieces = [lend(&mut first), lend(&mut second)];
        assert!(outbox.push_run(A, b"1:2:3:", 2, 3, pieces));
        assert_eq!((outbox.bytes, outbox.arena.len(), outbox.mixed), (14, 14, false));
        assert!(outbox.push_run(B, b"4:", 2, 9, [lend(&mut second), Lent::EMPTY]) && outbox.mixed);
        assert!(
            !outbox.push_run(B, b"5:", 2, 2, [lend(&mut second), Lent::EMPTY]),
            "more than they can carry"
        );
        assert!(!outbox.push_run(B, b"6:", 2, SHORT, [Lent::EMPTY; 2]), "not short");
        assert!(
            !outbox.push_run(B, b"6:7:8:", 2, 3, [pieces[1], Lent::EMPTY]),
            "only the last may be shorter"
        );
        assert!(!outbox.push_run(B, b"", 2, 3, [Lent::EMPTY; 2]), "none");
        let mut long = vec![0; SEGMENTS * 1000];
        let run = |outbox: &mut Outbox, count: usize, payload: usize, bytes: &mut [u8]| {
            let all = lend(&mut bytes[..count * payload]);
            outbox.push_run(A, &vec![0; count * 76], 76, payload, [all, Lent::EMPTY])
        };
        assert!(!run(&mut outbox, SEGMENTS + 1, 100, &mut long), "more than a message has");
        assert!(!run(&mut outbox, SEGMENTS, 1000, &mut long), "longer than a message");
        for _ in 0..3 {
            assert!(run(&mut outbox, SEGMENTS, 100, &mut long));
        }
        assert!(!run(&mut outbox, SEGMENTS, 100, &mut long), "no room");
        assert!(run(&mut outbox, ENTRIES - 4 - 3 * SEGMENTS, 100, &mut long));
        assert_eq!((outbox.len(), outbox.entries().len()), (ENTRIES, 6));
        assert!(!outbox.push(A, b"7:", &[]) && !run(&mut outbox, 1, 100, &mut long), "no room");
    }

    #[test]
    fn what_is_written_here_lies_in_one_piece_however_long() {
        let mut outbox = Outbox::new().expect("memory");
        let mut memory = vec![7; 5000];
        assert!(outbox.push(A, b"one", &[lend(&mut memory)]));
        assert!(outbox.push_written(A, 9000, &mut |bytes| bytes.extend([5; 9000])));
        assert!(outbox.push(B, b"two", &[]));
        let entry = outbox.entries()[1];
        assert_eq!((entry.len(), entry.pieces().len(), outbox.head(&entry)), (9000, 0, &[5; 9000][..]));
        outbox.advance(1);
        assert_eq!(outbox.keep(), 2);
        let all: Vec<_> = outbox.entries().iter().map(|entry| whole(&outbox, entry)).collect();
        assert_eq!(all, [vec![5; 9000], b"two".to_vec()]);
        let mut written = 0;
        while outbox.push_written(A, 60_000, &mut |_| written += 1) {}
        assert_eq!((written + 2, written), (outbox.len(), (BYTES - 9003) / 60_000), "as much as has room");
    }

    #[test]
    fn kept_datagrams_need_no_lent_memory() {
        let mut outbox = Outbox::new().expect("memory");
        let mut memory = vec![7; 5000];
        assert!(outbox.push(A, b"gone", &[lend(&mut memory)]));
        assert!(outbox.push(A, b"one", &[lend(&mut memory)]));
        assert!(outbox.push(A, b"two", &[]));
        outbox.advance(1);
        assert_eq!(outbox.keep(), 2);
        memory.fill(8);
        assert!(outbox.push(A, b"new", &[lend(&mut memory)]));
        assert_eq!(outbox.keep(), 1);
        drop(memory);
        let all: Vec<_> = outbox.entries().iter().map(|entry| whole(&outbox, entry)).collect();
        let with = |head: &[u8], fill| [head, &[fill; 5000]].concat();
        assert_eq!(all, [with(b"one", 7), b"two".to_vec(), with(b"new", 8)]);
        assert_eq!(outbox.keep(), 0);
    }

    #[test]
    fn the_arena_stays_within_twice_what_waits() {
        let mut outbox = Outbox::new().expect("memory");
        let mut memory = vec![1; 4000];
        for _ in 0..1000 {
            while outbox.push(A, b"head", &[lend(&mut memory)]) {}
            outbox.advance(3);
            outbox.keep();
        }
        assert!(outbox.arena.len() <= 3 << 20, "{}", outbox.arena.len());
    }

    #[test]
    fn room_is_bounded_in_number_and_in_bytes() {
        let mut outbox = Outbox::new().expect("memory");
        let pushed = (0..1000).take_while(|_| outbox.push(A, b"x", &[])).count();
        assert_eq!(pushed, ENTRIES);
        outbox.advance(ENTRIES);
        let mut memory = vec![0; 60_000];
        let pushed = (0..1000).take_while(|_| outbox.push(A, b"x", &[lend(&mut memory)])).count();
        assert_eq!(pushed, BYTES / 60_001);
        outbox.advance(pushed);
        assert!(outbox.is_empty() && outbox.arena.is_empty());
    }

    #[test]
    fn a_run_that_was_split_stays_in_order() {
        let mut outbox = Outbox::new().expect("memory");
        outbox.order = u32::MAX - 30;
        let mut memory: Vec<u8> = (0..60).flat_map(|n| [n; 4]).collect();
        assert!(outbox.push_run(B, &[9; 60 * 2], 2, 4, [lend(&mut memory), Lent::EMPTY]));
        outbox.split_first();
        outbox.keep();
        for round in 0..2_u8 {
            for n in 60..65 {
                assert!(outbox.push(A, b"other", &[]) && outbox.push(B, &[round, 0, n + 5 * round], &[]));
            }
            // What waits on is sorted again, with what has come since.
            outbox.sort();
            outbox.keep();
        }
        let of_b = outbox.entries().iter().filter(|entry| entry.to == B);
        let all: Vec<u8> = of_b.map(|entry| outbox.head(entry)[2]).collect();
        assert_eq!(all, (0..70).collect::<Vec<u8>>());
    }

    #[test]
    fn sorting_keeps_each_peers_order() {
        let mut outbox = Outbox::new().expect("memory");
        outbox.order = u32::MAX - 4;
        for n in 0..10_u8 {
            outbox.push(if n % 3 == 0 { B } else { A }, &[n], &[]);
        }
        outbox.sort();
        let all: Vec<u8> = outbox.entries().iter().map(|entry| outbox.head(entry)[0]).collect();
        assert_eq!(all, [1, 2, 4, 5, 7, 8, 0, 3, 6, 9]);
    }
}
