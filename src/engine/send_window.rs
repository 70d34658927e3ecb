//! What is under way to a peer: its segments, and the order in which they were sent.
//!
//! Sequence numbers count segments from 0 in 64 bits: they never wrap. A retransmitted segment
//! keeps its number; which of its transmissions arrived, the stamps tell. One whose data must be cut
//! anew is withdrawn: when the receiver has said that it has not taken it and will not, its number goes
//! again as a void, and its data in segments with numbers of their own.

use super::interface::Channel;
use super::time::Instant;
use crate::wire::usnic::Kind;
use std::collections::VecDeque;

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
///
/// Those of segments whose numbers follow each other are one stretch: mostly there is no other.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The oldest, and the number that the next one gets.
    first: u64,
    next: u64,
    /// The newest stretch; without any left, it ends where the next one goes on.
    newest: Stretch,
    /// Those before it, the oldest first. None is empty.
    earlier: VecDeque<Stretch>,
    /// One more than the newest transmission known to have arrived; 0: none.
    arrived: u64,
}

/// Transmissions of segments whose numbers follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    seq: u64,
    end: u64,
}

impl Order {
    /// Notes that `seq` is being sent, and numbers the transmission.
    #[inline]
    pub(super) fn push(&mut self, seq: u64) -> u64 {
        if seq != self.newest.end {
            self.begin(seq);
        }
        self.newest.end += 1;
        self.next += 1;
        self.next - 1
    }

    /// Begins another stretch.
    #[inline(never)]
    fn begin(&mut self, seq: u64) {
        if self.newest.seq < self.newest.end {
            self.earlier.push_back(self.newest);
        }
        self.newest = Stretch { seq, end: seq };
    }

    /// The oldest transmission, and what was sent in it.
    #[inline]
    pub(super) fn front(&self) -> Option<(u64, u64)> {
        let oldest = self.earlier.front().unwrap_or(&self.newest);
        (!self.is_empty()).then_some((self.first, oldest.seq))
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        if self.is_empty() {
            return;
        }
        self.first += 1;
        let Some(oldest) = self.earlier.front_mut() else {
            self.newest.seq += 1;
            return;
        };
        oldest.seq += 1;
        if oldest.seq == oldest.end {
            self.earlier.pop_front();
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
        self.first == self.next
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.first = self.next;
        self.newest.seq = self.newest.end;
        if !self.earlier.is_empty() {
            self.earlier.clear();
        }
    }

    pub(super) fn shrink(&mut self) {
        self.earlier.shrink_to(0);
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.earlier.capacity() * size_of::<Stretch>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
