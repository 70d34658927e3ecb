//! What is under way to a peer, and what has arrived from it.
//!
//! Sequence numbers count segments from 0 in 64 bits: they never wrap. A retransmitted segment
//! keeps its number; which of its transmissions arrived, the stamps tell. One whose data must be cut
//! anew is withdrawn: when the receiver has said that it has not taken it and will not, its number goes
//! again as a void, and its data in segments with numbers of their own.

use super::interface::Channel;
use super::time::Instant;
use crate::wire::usnic::{Bitmap, Kind};
use std::collections::{BTreeSet, VecDeque};

/// Most segments between the oldest unacknowledged and the newest.
pub(super) const WINDOW: u64 = 4096;

const WORDS: usize = WINDOW as usize / 64;

/// Where a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// On its way, as far as is known.
    InFlight,
    /// On the list of those to be sent again.
    Lost,
    /// Acknowledged, though others below are not.
    Arrived,
}

/// A packet that was sent and is not acknowledged in sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Whose part it is; [`Segment::NOBODY`]: a void of our own; or a [copy's](Self::copy).
    pub(super) operation: u32,
    pub(super) kind: Kind,
    pub(super) channel: Channel,
    pub(super) state: State,
    /// How often it was sent again.
    pub(super) resends: u8,
    /// Sent again because later ones had arrived.
    pub(super) fast: bool,
    /// The first that was cut from data that may have been too long for the path.
    pub(super) recut: bool,
    /// Bytes of payload.
    pub(super) len: u32,
    /// Bytes that it counts in flight.
    pub(super) charge: u32,
    /// Where in the operation's bytes.
    pub(super) offset: u64,
    /// Number of its last transmission among those of the channel.
    pub(super) transmission: u64,
    pub(super) sent: Instant,
}

impl Segment {
    pub(super) const NOBODY: u32 = u32::MAX;
    /// Above the place of a copy.
    const COPY: u32 = 1 << 31;

    /// What stands for the place of a copy where that of an operation would be.
    #[inline(always)]
    pub(super) const fn copied(place: u32) -> u32 {
        place | Self::COPY
    }

    /// It and the place of its copy, if it is one that was sent once and not found to be lost.
    #[inline(always)]
    pub(super) fn as_plain_copy(&self) -> Option<(Self, u32)> {
        let is_plain = self.state == State::InFlight && self.resends == 0;
        Some((*self, self.copy().filter(|_| is_plain)?))
    }

    /// The place of the copy that it is sent from.
    #[inline(always)]
    pub(super) const fn copy(&self) -> Option<u32> {
        Self::copy_at(self.operation)
    }

    /// The place of the copy that stands where that of an operation would be, if it is one.
    #[inline(always)]
    pub(super) const fn copy_at(place: u32) -> Option<u32> {
        if place & Self::COPY != 0 && place != Self::NOBODY { Some(place & !Self::COPY) } else { None }
    }

    /// It, as what is not under way any more.
    #[inline(always)]
    pub(super) const fn landed(&self) -> Landed {
        Landed { count: 1, bytes: self.charge as u64 }
    }

    /// Whether it was sent once, with data cut as it mostly is, and is under way.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.state == State::InFlight && self.resends == 0 && !self.recut && self.kind != Kind::Withdraw
    }

    /// Whether it left with the other, and is as plain.
    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        self.is_plain()
            && (self.operation, self.kind, self.channel, self.sent)
                == (other.operation, other.kind, other.channel, other.sent)
    }
}

/// Segments that are not under way any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) count: u64,
    /// As they were counted in flight.
    pub(super) bytes: u64,
}

/// [Plain](Segment::is_plain) segments of one operation that follow each other and were sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The last of them.
    pub(super) last: Segment,
    pub(super) count: u64,
    /// Bytes of payload of the longest.
    pub(super) longest: u32,
    /// Bytes that they count in flight.
    pub(super) charge: u64,
}

/// The segments under way to one peer: a ring that grows on demand.
#[derive(Debug, Default)]
pub(super) struct SendWindow {
    base: u64,
    ring: VecDeque<Segment>,
}

impl SendWindow {
    /// The oldest number not acknowledged in sequence.
    #[inline]
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// The number that the next segment gets.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, seq: u64) -> Option<&Segment> {
        self.ring.get(seq.checked_sub(self.base)? as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, seq: u64) -> Option<&mut Segment> {
        self.ring.get_mut(seq.checked_sub(self.base)? as usize)
    }

    /// The segment under way, when there is one and no other.
    #[inline(always)]
    pub(super) fn only(&self) -> Option<&Segment> {
        if self.ring.len() == 1 { self.ring.front() } else { None }
    }

    #[inline]
    pub(super) fn push(&mut self, segment: Segment) -> u64 {
        self.ring.push_back(segment);
        self.base + self.ring.len() as u64 - 1
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Segment> {
        let segment = self.ring.pop_front()?;
        self.base += 1;
        Some(segment)
    }

    /// Takes the segments below `end` out that were sent together with one that has just been.
    #[inline]
    pub(super) fn pop_run(&mut self, first: Segment, end: u64) -> Run {
        let mut run = Run { last: first, count: 1, longest: first.len, charge: u64::from(first.charge) };
        let most = end.saturating_sub(self.base) as usize;
        for next in self.ring.iter().take(most).take_while(|next| next.is_like(&first)) {
            run.count += 1;
            run.longest = run.longest.max(next.len);
            run.charge += u64::from(next.charge);
            run.last.transmission = next.transmission;
        }
        if run.count > 1 {
            self.base += run.count - 1;
            self.ring.drain(..run.count as usize - 1);
        }
        run
    }

    /// The segments with their numbers, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Segment)> {
        self.ring.iter().enumerate().map(|(at, segment)| (self.base + at as u64, segment))
    }

    /// Drops all; the numbers go on behind them.
    pub(super) fn clear(&mut self) {
        self.base = self.next();
        self.ring.clear();
    }

    /// Gives memory back that a busy time has left.
    pub(super) fn shrink(&mut self) {
        self.ring.shrink_to(0);
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Segment>()
    }
}

/// The transmissions of one channel in their order, to tell which have been overtaken.
#[derive(Debug, Default)]
pub(super) struct Order {
    first: u64,
    seqs: VecDeque<u64>,
    /// One more than the newest transmission known to have arrived; 0: none.
    arrived: u64,
}

impl Order {
    /// Notes that `seq` is being sent, and numbers the transmission.
    #[inline]
    pub(super) fn push(&mut self, seq: u64) -> u64 {
        self.seqs.push_back(seq);
        self.first + self.seqs.len() as u64 - 1
    }

    /// The oldest transmission, and what was sent in it.
    #[inline]
    pub(super) fn front(&self) -> Option<(u64, u64)> {
        self.seqs.front().map(|seq| (self.first, *seq))
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        if self.seqs.pop_front().is_some() {
            self.first += 1;
        }
    }

    #[inline]
    pub(super) fn note_arrival(&mut self, transmission: u64) {
        self.arrived = self.arrived.max(transmission + 1);
    }

    /// How many later transmissions the newest arrived one is ahead of this one; 0: it is not.
    #[inline]
    pub(super) fn overtaken(&self, transmission: u64) -> u64 {
        self.arrived.saturating_sub(transmission + 1)
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.first += self.seqs.len() as u64;
        self.seqs.clear();
    }

    pub(super) fn shrink(&mut self) {
        self.seqs.shrink_to(0);
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.seqs.capacity() * size_of::<u64>()
    }
}

/// What a sequence number means to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    New,
    Duplicate,
    /// Below the window: acknowledged long ago.
    Below,
    /// Above the window: no honest sender sends it yet.
    Above,
}

/// What has arrived from one peer: everything below `next`, and some above.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    next: u64,
    /// One more than the highest that has arrived.
    end: u64,
    /// Ring of bits for `next ..`; made when the first segment comes out of order.
    bits: Option<Box<[u64; WORDS]>>,
    /// Numbers that have not arrived and that only a void may still take; all within the window.
    withdrawn: BTreeSet<u64>,
}

impl ReceiveWindow {
    /// The number expected.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether something has arrived above a hole.
    #[inline]
    pub(super) const fn has_gap(&self) -> bool {
        self.end > self.next
    }

    /// One more than the highest that has arrived.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    fn bit(&self, seq: u64) -> bool {
        self.bits.as_ref().is_some_and(|bits| bits[(seq % WINDOW / 64) as usize] >> (seq % 64) & 1 == 1)
    }

    #[inline]
    pub(super) fn judge(&self, seq: u64) -> Verdict {
        match seq.checked_sub(self.next) {
            None => Verdict::Below,
            Some(0) => Verdict::New,
            Some(ahead) if ahead >= WINDOW => Verdict::Above,
            Some(_) if self.bit(seq) => Verdict::Duplicate,
            Some(_) => Verdict::New,
        }
    }

    /// Whether `seq` is the one expected and nothing has overtaken it.
    #[inline]
    pub(super) const fn is_plain(&self, seq: u64) -> bool {
        seq == self.next && self.end <= self.next
    }

    /// The sender withdraws a segment: whether it can, since it has not arrived.
    pub(super) fn withdraw(&mut self, seq: u64) -> bool {
        if self.judge(seq) != Verdict::New {
            return false;
        }
        self.withdrawn.insert(seq);
        // It is a hole now, also where nothing has arrived above it.
        self.end = self.end.max(seq + 1);
        true
    }

    /// Whether a segment was withdrawn, and only a void may take its place.
    #[inline]
    pub(super) fn is_withdrawn(&self, seq: u64) -> bool {
        self.withdrawn.contains(&seq)
    }

    /// A void takes the place of a segment, withdrawn or not.
    pub(super) fn accept_void(&mut self, seq: u64) {
        self.withdrawn.remove(&seq);
        self.accept(seq);
    }

    /// Notes the arrival of a new segment.
    #[inline(always)]
    pub(super) fn accept(&mut self, seq: u64) {
        if seq == self.next {
            self.next += 1;
            if self.end < self.next {
                self.end = self.next;
                return;
            }
            self.advance();
        } else {
            self.end = self.end.max(seq + 1);
            let bits = self.bits.get_or_insert_with(|| Box::new([0; WORDS]));
            bits[(seq % WINDOW / 64) as usize] |= 1 << (seq % 64);
        }
    }

    /// Notes the arrival of so many segments, the first of which [is the one expected](Self::is_plain).
    #[inline]
    pub(super) fn accept_run(&mut self, count: u64) {
        self.next += count;
        self.end = self.next;
    }

    #[inline(never)]
    fn advance(&mut self) {
        let Some(bits) = &mut self.bits else { return };
        while self.next < self.end {
            let word = &mut bits[(self.next % WINDOW / 64) as usize];
            let bit = 1 << (self.next % 64);
            if *word & bit == 0 {
                break;
            }
            *word &= !bit;
            self.next += 1;
        }
    }

    /// The bitmap from `first` on.
    pub(super) fn bitmap(&self, first: u64) -> Bitmap {
        let mut bitmap = Bitmap::default();
        let end = self.end.min(first + crate::wire::usnic::BITMAP_BITS);
        (first..end).filter(|seq| self.bit(*seq)).for_each(|seq| bitmap.set(seq - first));
        bitmap
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.bits.as_ref().map_or(0, |bits| size_of_val(&**bits)) + self.withdrawn.len() * 8
    }
}

/// Which bytes of a whole have arrived: all below `first`, and ranges in ascending order that do not
/// touch.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    first: u64,
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Notes the bytes from `start` to `end`; `false`, and nothing noted, when some were there.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        if start <= self.first {
            return self.extend(start, end);
        }
        let at = match self.ranges.last() {
            None => 0,
            Some(last) if last.1 <= start => self.ranges.len(),
            Some(_) => self.ranges.partition_point(|range| range.1 <= start),
        };
        if self.ranges.get(at).is_some_and(|range| range.0 < end) {
            return false;
        }
        let joins_next = self.ranges.get(at).is_some_and(|range| range.0 == end);
        let joins_last = at > 0 && self.ranges[at - 1].1 == start;
        match (joins_last, joins_next) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = end,
            (false, true) => self.ranges[at].0 = start,
            (false, false) => self.ranges.insert(at, (start, end)),
        }
        true
    }

    /// The common case: the bytes follow what has arrived in order, which takes no memory to note.
    #[inline]
    fn extend(&mut self, start: u64, end: u64) -> bool {
        let next = self.ranges.first().copied();
        if start < self.first || next.is_some_and(|next| next.0 < end) {
            return false;
        }
        self.first = end;
        if let Some(next) = next.filter(|next| next.0 == end) {
            self.first = next.1;
            self.ranges.remove(0);
        }
        true
    }

    /// Whether all bytes below `len` have arrived.
    pub(super) fn covers(&self, len: u64) -> bool {
        self.first == len && self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_is_new_once() {
        let mut window = ReceiveWindow::default();
        let mut seen = BTreeSet::new();
        let mut random = 1_u64;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ahead = (random >> 33) % if random >> 62 == 0 { 5000 } else { 7 };
            let seq = (window.next() + ahead).saturating_sub(2);
            let verdict = window.judge(seq);
            let expected = if seq < window.next() {
                Verdict::Below
            } else if seq >= window.next() + WINDOW {
                Verdict::Above
            } else if seen.contains(&seq) {
                Verdict::Duplicate
            } else {
                Verdict::New
            };
            assert_eq!(verdict, expected);
            if verdict == Verdict::New {
                assert!(seen.insert(seq));
                window.accept(seq);
            }
            assert!(!seen.contains(&window.next()));
        }
        assert!(window.next() > 10_000 && (0..window.next()).all(|seq| seen.contains(&seq)));
        let bitmap = window.bitmap(window.next());
        assert!((0..256).all(|at| bitmap.has(at) == seen.contains(&(window.next() + at))));
    }

    #[test]
    fn a_withdrawn_number_is_a_hole_that_a_void_fills() {
        let mut window = ReceiveWindow::default();
        window.accept(0);
        assert!(
            !window.withdraw(0) && !window.withdraw(1 + WINDOW),
            "it has arrived, and it is no number yet"
        );
        assert!(window.withdraw(1) && window.withdraw(1), "each time that it is asked");
        assert!(window.has_gap() && !window.is_plain(1), "nothing but a void may take it");
        assert!(window.is_withdrawn(1) && !window.is_withdrawn(2));
        assert!(window.withdraw(3));
        window.accept(2);
        assert_eq!((window.next(), window.judge(3)), (1, Verdict::New));
        assert!(!window.bitmap(2).has(1), "a hole is no arrival");
        window.accept_void(1);
        assert_eq!((window.next(), window.has_gap()), (3, true));
        window.accept_void(3);
        assert_eq!((window.next(), window.has_gap(), window.withdrawn.len()), (4, false, 0));
        assert!(window.is_plain(4) && !window.withdraw(3));
    }

    #[test]
    fn only_what_left_together_is_taken_out_together() {
        let plain = Segment {
            operation: 5,
            kind: Kind::Chunk,
            channel: Channel::Data,
            state: State::InFlight,
            resends: 0,
            fast: false,
            recut: false,
            len: 100,
            charge: 10,
            offset: 0,
            transmission: 40,
            sent: Instant::from_nanos(7),
        };
        let different = [
            Segment { operation: 6, ..plain },
            Segment { kind: Kind::Put, ..plain },
            Segment { channel: Channel::Priority, ..plain },
            Segment { sent: Instant::from_nanos(8), ..plain },
            Segment { state: State::Lost, ..plain },
            Segment { state: State::Arrived, ..plain },
            Segment { resends: 1, ..plain },
            Segment { recut: true, ..plain },
        ];
        for other in different {
            let mut window = SendWindow::default();
            let last = Segment { len: 30, charge: 4, transmission: 42, ..plain };
            for segment in [plain, Segment { transmission: 41, ..plain }, last, other] {
                window.push(segment);
            }
            let first = window.pop().expect("pushed");
            let run = window.pop_run(first, 4);
            assert_eq!(
                (run.count, run.longest, run.charge, run.last.transmission),
                (3, 100, 24, 42),
                "{other:?}"
            );
            assert_eq!((window.base(), window.len()), (3, 1));
        }
        let mut window = SendWindow::default();
        (0..4).for_each(|_| _ = window.push(plain));
        let first = window.pop().expect("pushed");
        assert_eq!(
            (window.pop_run(first, 3).count, window.base()),
            (3, 3),
            "not beyond what is acknowledged"
        );
        let last = window.pop().expect("pushed");
        assert_eq!((window.pop_run(last, 3).count, window.base(), window.len()), (1, 4, 0));
        assert!(!Segment { kind: Kind::Withdraw, ..plain }.is_plain());
    }

    #[test]
    fn coverage_counts_each_byte_once() {
        let mut coverage = Coverage::default();
        assert!(coverage.insert(10, 20) && coverage.insert(30, 40) && coverage.insert(20, 30));
        assert!(!coverage.insert(5, 11) && !coverage.insert(39, 50) && !coverage.insert(12, 13));
        assert!(!coverage.insert(0, 100) && !coverage.covers(40));
        assert!(coverage.insert(0, 10) && coverage.covers(40) && !coverage.covers(41));
        assert!(coverage.insert(7, 7) && Coverage::default().covers(0));
    }

    #[test]
    fn only_later_transmissions_overtake() {
        let mut order = Order::default();
        let numbers: Vec<u64> = (0..5).map(|seq| order.push(seq)).collect();
        order.note_arrival(numbers[3]);
        assert_eq!(numbers.map_overtaken(&order), [3, 2, 1, 0, 0]);
        order.pop();
        assert_eq!(order.front(), Some((1, 1)));
        order.clear();
        assert_eq!((order.push(9), order.front()), (5, Some((5, 9))));
    }

    trait Overtaken {
        fn map_overtaken(&self, order: &Order) -> Vec<u64>;
    }

    impl Overtaken for Vec<u64> {
        fn map_overtaken(&self, order: &Order) -> Vec<u64> {
            self.iter().map(|number| order.overtaken(*number)).collect()
        }
    }
}
