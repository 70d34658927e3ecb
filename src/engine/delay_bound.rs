//! [`DelayBound`]: a congestion window that bounds the queue, after Swift and BBR.
//!
//! Loss alone does not mean congestion: wires and filters lose packets at random, and a window
//! halved at every loss would crawl at 5 %. Delay does: a queue grows before it overflows, and
//! whoever sends a small message waits behind it. So once per round trip:
//!
//! * when the queue is longer than its bound, the window shrinks by as much as would bring it
//!   there, at most to half, and no further than what the path delivers in its least round trip:
//!   less than that leaves the wire idle;
//! * when much more is lost than the path loses anyhow, the window shrinks with the losses, whatever
//!   the delay: the queue is too short for delay to show. What the path loses anyhow is what it
//!   still loses when the window has been shrinking for some rounds;
//! * else it grows if it was used up: doubling at first, every second round, so that the round
//!   between shows whether a queue begins to grow; then by a sixteenth; by half, every second round,
//!   when there has been no queue for some.
//!
//! Many that send to one have a window of less than a segment each. It shrinks and grows like any
//! other; the pacer spreads it.
//!
//! The shortest round trip of a round's second half counts, not the average: the machine's scheduler delays
//! some packets of every round by milliseconds. The least of all is one through an empty queue, and
//! a busy sender might never see the queue empty again. So every few seconds the window closes for
//! a moment.

use super::controller::{Controller, Outcome};
use super::send_window::Landed;
use super::time::{Instant, MICRO};

/// The window before anything is known, in segments, and once it is known that the path is long: so many queues
/// as there are senders fill at once.
const INITIAL: u64 = 4;
const INITIAL_LONG: u64 = 32;
const LONG: u64 = 1_000 * MICRO;
/// No window is smaller: one segment in so many round trips.
const LEAST_TRIPS: u64 = 16;
/// The window while the least round trip is sought, in segments, and for how many rounds: in the first the queue
/// is still there.
const SEEKING: u64 = 4;
const SEEK: u32 = 3;
/// The bound of the queue, in time, where both ends read what comes at once. A sender that comes late to
/// read what was acknowledged sends as much at once as the wire takes meanwhile: its queue may be longer by
/// that, or the wire would be idle.
const QUEUE: u64 = 38 * MICRO;
/// How late acknowledgements may have been read where nobody knows: a process that shares its processor
/// is often late by as much, which cannot be told from a queue of the network.
const UNKNOWN: u64 = 112 * MICRO;
/// What has waited longer than this between two looks at the link is no sample of the network, where it is
/// not known when it came; in nanoseconds.
pub const AWAY: u64 = QUEUE / 2;
/// Where datagrams may be longer than any frame of a network, they do not leave the host: nobody else
/// waits in the queue, and it is that of a process which does not read. There no window has fewer
/// segments than this.
const LONGEST_FRAME: usize = 16 << 10;
const OWN_QUEUE: u64 = 20_000 * MICRO;
const OWN_LEAST: u64 = 16;
/// That many segments may wait if they make the round trip at most five times as long: others overtake
/// what is lost then, and who has little of a path that others fill is not driven from it, where their
/// bound is higher or they see less of the queue.
const FEW: u64 = 8;
const FEW_TRIPS: u64 = 4;
/// Rounds without a queue after which the window grows faster.
const EMPTY: u32 = 4;
/// Segments after which losses are judged.
const JUDGED: u64 = 32;
/// Rounds over which the best rate is remembered, and judgements over which the least loss is; at
/// least, and at most twice as many.
const RATES: u32 = 8;
const LOSSES: u32 = 4;

/// The greatest of the last values, or the least.
#[derive(Clone, Copy, Debug)]
struct Recent {
    values: [u64; 2],
    count: u32,
    span: u32,
}

impl Recent {
    const fn new(span: u32) -> Self {
        Self { values: [0; 2], count: 0, span }
    }

    fn note(&mut self, value: u64, choose: fn(u64, u64) -> u64) {
        if self.count == self.span {
            (self.values, self.count) = ([value, self.values[0]], 0);
        }
        self.values[0] = if self.count == 0 { value } else { choose(self.values[0], value) };
        self.count += 1;
    }
}

/// What part of the segments is lost, in 1024ths.
#[derive(Debug)]
struct Losses {
    lost: u64,
    total: u64,
    smoothed: u64,
    least: Recent,
}

impl Losses {
    /// What is lost anyhow.
    fn usual(&self) -> u64 {
        self.least.values[0].min(self.least.values[1])
    }

    /// Notes a round; the losses in 1024ths when they are far beyond what is usual here.
    fn note(&mut self, lost: u64, delivered: u64) -> Option<u64> {
        self.lost += lost;
        self.total += lost + delivered;
        if self.total < JUDGED {
            return None;
        }
        let ratio = self.lost * 1024 / self.total;
        let heavy = self.lost >= 4 && ratio > 128 + self.usual() * 3 / 2;
        self.smoothed = (3 * self.smoothed + ratio) / 4;
        self.least.note(self.smoothed, u64::min);
        (self.lost, self.total) = (0, 0);
        heavy.then_some(ratio)
    }
}

/// Congestion window of one peer.
#[derive(Debug)]
pub(super) struct DelayBound {
    /// Bytes of the longest datagram.
    segment: u64,
    window: u64,
    least_window: u64,
    most: u64,
    starting: bool,
    /// The window has just grown fast.
    leapt: bool,
    /// Rounds for which it still seeks the least round trip.
    seeking: u32,
    limited: bool,
    /// Bytes and segments that have arrived in this round, and segments that were lost.
    delivered: u64,
    arrived: u64,
    lost: u64,
    /// The shortest round trip of the second half of this round: a window that has just grown takes
    /// a while to make a queue.
    least: u64,
    /// How late acknowledgements were read in this round, at most.
    /// `None`: not known.
    late: Option<u64>,
    round: Instant,
    /// When the first half is over.
    half: Instant,
    /// The longest queue that is wanted on a short path, in time.
    queue: u64,
    /// Bytes delivered in a millisecond, at best.
    rates: Recent,
    losses: Losses,
    lossless: u32,
    /// Rounds without a queue.
    empty: u32,
}

/// Whether datagrams of at most this length may be those of a network.
pub(super) const fn leaves_host(longest: usize) -> bool {
    longest <= LONGEST_FRAME
}

/// The longest queue that is wanted, in time; on a short path it is `queue`. `rate` is in bytes a millisecond,
/// `few` bytes may always wait; `usual` are the usual losses in 1024ths: what is lost takes round trips to repair,
/// and the wire needs work meanwhile.
fn bound(queue: u64, shortest: u64, rate: u64, few: u64, usual: u64) -> u64 {
    let few = (few * 1_000 * MICRO / rate.max(1)).min(FEW_TRIPS * shortest);
    let bound = queue.max(shortest / 4).max(few);
    bound + bound * usual * 4 / 1024
}

impl DelayBound {
    /// At most `most` segments, in datagrams of at most `longest` bytes.
    pub(super) fn new(most: u64, longest: usize, now: Instant) -> Self {
        let segment = longest as u64;
        let most = most * segment;
        let (queue, least_window, initial) = if leaves_host(longest) {
            (QUEUE, segment / LEAST_TRIPS, INITIAL * segment)
        } else {
            (OWN_QUEUE, OWN_LEAST * segment, OWN_LEAST * segment)
        };
        Self {
            segment,
            window: initial.min(most),
            least_window: least_window.min(most),
            most,
            starting: true,
            leapt: false,
            seeking: 0,
            limited: false,
            delivered: 0,
            arrived: 0,
            lost: 0,
            least: u64::MAX,
            late: None,
            round: now,
            half: now,
            queue,
            rates: Recent::new(RATES),
            losses: Losses { lost: 0, total: 0, smoothed: 0, least: Recent::new(LOSSES) },
            lossless: u32::MAX,
            empty: 0,
        }
    }

    /// A round in which the window was used up or something was lost is over.
    #[inline(never)]
    fn end_round(&mut self, took: u64, shortest: u64) -> Outcome {
        let queue = if self.least == u64::MAX { 0 } else { self.least.saturating_sub(shortest) };
        self.rates.note(self.delivered * 1_000 * MICRO / took.max(1), u64::max);
        let rate = self.rates.values[0].max(self.rates.values[1]);
        let heavy = self.losses.note(self.lost, self.arrived);
        let late = self.late.unwrap_or(UNKNOWN);
        let bound = bound(self.queue + late, shortest, rate, FEW * self.segment, self.losses.usual());
        self.lossless = if self.lost > 0 { 0 } else { self.lossless.saturating_add(1) };
        self.empty = if queue < bound / 4 { self.empty.saturating_add(1) } else { 0 };
        let before = self.window;
        if queue > bound {
            self.starting = false;
            let filled = rate.saturating_mul(shortest + late) / (1_000 * MICRO);
            let there = before.saturating_mul(shortest + bound) / (shortest + queue);
            self.window = there.max(before / 2).max(filled.min(before));
        }
        if let Some(ratio) = heavy {
            self.starting = false;
            self.window -= self.window * ratio / 2048;
        }
        if self.window == before && self.limited && self.seeking == 0 && queue <= bound {
            self.grow(queue, bound, shortest);
        }
        self.seeking = self.seeking.saturating_sub(1);
        self.window = self.window.clamp(self.least_window, self.most);
        if self.window < before { Outcome::Shrunk } else { Outcome::Steady }
    }

    /// Grows fast only every second round, so that the one between shows what that meant.
    fn grow(&mut self, queue: u64, bound: u64, shortest: u64) {
        self.starting &= queue < bound / 2;
        let fast = self.starting || self.empty >= EMPTY;
        self.leapt = fast && !self.leapt;
        let more = match (self.starting, fast, self.leapt) {
            (true, _, true) if shortest >= LONG => {
                self.window.max((INITIAL_LONG * self.segment).saturating_sub(self.window))
            }
            (true, _, true) => self.window,
            (false, true, true) => self.window / 2,
            (_, true, false) => 0,
            _ => (self.window / 16).max(self.segment.min(self.window / 4)).max(1),
        };
        self.window += more;
    }
}

impl Controller for DelayBound {
    #[inline]
    fn window(&self) -> u64 {
        if self.seeking > 0 { self.window.min(SEEKING * self.segment) } else { self.window }
    }

    #[inline]
    fn note_limited(&mut self) {
        self.limited = true;
    }

    #[inline]
    fn note_round_trip(&mut self, sample: u64, late: Option<u64>) {
        self.least = self.least.min(sample);
        if let Some(late) = late {
            self.late = Some(self.late.map_or(late, |most| most.max(late)));
        }
    }

    #[inline]
    fn note_lost(&mut self) {
        self.lost += 1;
    }

    /// A round ends when a segment sent in it arrives.
    #[inline(always)]
    fn note_arrived(&mut self, arrived: Landed, sent: Instant, now: Instant, shortest: u64) -> Outcome {
        self.arrived += arrived.count;
        self.delivered += arrived.bytes;
        if sent < self.round || now == self.round {
            if now >= self.half {
                (self.least, self.half) = (u64::MAX, Instant::from_nanos(u64::MAX));
            }
            return Outcome::Steady;
        }
        let took = now.since(self.round);
        (self.round, self.half) = (now, now.plus(took / 2));
        let outcome = if self.lost == 0 && !self.limited {
            // Nothing was lost and the window was not used up: it stays as it is.
            self.lossless = self.lossless.saturating_add(1);
            self.seeking = self.seeking.saturating_sub(1);
            Outcome::Steady
        } else {
            self.end_round(took, shortest)
        };
        (self.delivered, self.arrived, self.lost) = (0, 0, 0);
        (self.limited, self.least, self.late) = (false, u64::MAX, None);
        outcome
    }

    #[cold]
    fn seek_least_round_trip(&mut self) {
        self.seeking = SEEK;
    }

    #[inline]
    fn is_starting(&self) -> bool {
        self.starting
    }

    #[inline]
    fn lossless_rounds(&self) -> u32 {
        self.lossless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1472;
    const ONE: Landed = Landed { count: 1, bytes: SEGMENT };

    /// A path with an own rate, an own length and a queue without end; times in microseconds.
    struct Wire {
        controller: DelayBound,
        now: Instant,
        base: u64,
        /// Segments in 100 µs.
        rate: u64,
    }

    impl Wire {
        fn new(base: u64, rate: u64) -> Self {
            let now = Instant::from_nanos(1_000_000);
            Self { controller: DelayBound::new(4096, SEGMENT as usize, now), now, base, rate }
        }

        /// The queue that a window makes, in microseconds.
        fn queue(&self) -> u64 {
            (self.controller.window * 100 / SEGMENT / self.rate).saturating_sub(self.base)
        }

        /// A round trip of a window used up, of which a share of the segments is lost.
        fn round(&mut self, lost_percent: u64) -> Outcome {
            let window = (self.controller.window() / SEGMENT).max(1);
            let trip = (self.base + self.queue()) * MICRO;
            let sent = self.now;
            self.now = self.now.plus(trip);
            let lost = window * lost_percent / 100;
            self.controller.note_limited();
            self.controller.note_round_trip(trip, Some(0));
            (0..lost).for_each(|_| self.controller.note_lost());
            self.controller.arrived += window - lost - 1;
            self.controller.delivered += (window - lost - 1) * SEGMENT;
            self.controller.note_arrived(ONE, sent, self.now, self.base * MICRO)
        }
    }

    #[test]
    fn the_queue_stays_at_its_bound_and_the_wire_busy() {
        for (base, rate) in [(34, 85), (100, 8), (10_000, 8), (20, 400)] {
            let mut wire = Wire::new(base, rate);
            (0..100).for_each(|_| _ = wire.round(0));
            for _ in 0..200 {
                wire.round(0);
                let longest = bound(QUEUE, base * MICRO, rate * 10 * SEGMENT, FEW * SEGMENT, 0) / MICRO;
                let queue = wire.queue();
                assert!(queue <= longest * 3 / 2, "{queue} µs at {base} µs");
                assert!(wire.controller.window * 100 / SEGMENT >= base * rate * 9 / 10, "idle at {base} µs");
            }
        }
    }

    #[test]
    fn random_loss_does_not_shrink_the_window() {
        for percent in [5, 10, 30] {
            let mut wire = Wire::new(10_000, 8);
            (0..150).for_each(|_| _ = wire.round(percent));
            let window = wire.controller.window / SEGMENT;
            assert!(window >= 700, "{window} of 800 segments at {percent} %");
        }
    }

    #[test]
    fn massive_loss_without_delay_shrinks_it() {
        let mut wire = Wire::new(100, 1_000_000);
        (0..14).for_each(|_| _ = wire.round(0));
        let before = wire.controller.window;
        assert_eq!(wire.round(50), Outcome::Shrunk);
        assert!(wire.controller.window <= before * 4 / 5);
    }

    #[test]
    fn a_window_may_be_a_part_of_a_segment_and_comes_back() {
        let mut wire = Wire::new(100, 1);
        wire.controller.window = 64 * SEGMENT;
        wire.rate = 1;
        let mut least = u64::MAX;
        for _ in 0..60 {
            // Others fill the queue.
            let sent = wire.now;
            wire.now = wire.now.plus(1_000 * MICRO);
            wire.controller.note_limited();
            wire.controller.note_round_trip(1_000 * MICRO, Some(0));
            wire.controller.note_arrived(ONE, sent, wire.now, 100 * MICRO);
            least = least.min(wire.controller.window);
        }
        assert!((SEGMENT / LEAST_TRIPS..SEGMENT).contains(&least), "{least}");
        wire.rate = 1_000;
        (0..60).for_each(|_| _ = wire.round(0));
        assert!(wire.controller.window > 64 * SEGMENT);
    }

    #[test]
    fn a_stall_costs_half_the_window_at_most_and_not_the_wire() {
        let mut wire = Wire::new(34, 85);
        (0..100).for_each(|_| _ = wire.round(0));
        let sent = wire.now;
        wire.now = wire.now.plus(300_000 * MICRO);
        wire.controller.note_limited();
        wire.controller.note_round_trip(300_000 * MICRO, Some(0));
        assert_eq!(wire.controller.note_arrived(ONE, sent, wire.now, 34 * MICRO), Outcome::Shrunk);
        assert!(wire.controller.window * 100 / SEGMENT >= 34 * 85 * 4 / 5, "the wire is still filled");
    }

    #[test]
    fn the_least_round_trip_is_sought_with_a_small_window() {
        let mut wire = Wire::new(34, 85);
        (0..50).for_each(|_| _ = wire.round(0));
        let before = wire.controller.window;
        wire.controller.seek_least_round_trip();
        let mut queues = Vec::new();
        for _ in 0..SEEK {
            assert_eq!(wire.controller.window(), SEEKING * SEGMENT);
            queues.push(wire.queue());
            wire.round(0);
        }
        assert!(queues.iter().all(|&queue| queue * MICRO <= QUEUE), "the bound holds meanwhile: {queues:?}");
        assert!(wire.controller.window() >= before / 2);
    }
}
