//! How much may be under way, and how fast it goes out.
//!
//! Loss alone does not mean congestion: wires and filters lose packets at random, and a window
//! halved at every loss would crawl at 5 %. What tells them apart is delay: before a queue
//! overflows it is full, and round trips are longer than the shortest known. So once per round
//! trip:
//!
//! * losses while the queue is long: the window shrinks to three quarters;
//! * very many losses (an eighth, and four at least): it shrinks with them, whatever the delay;
//!   so short queues overflow a little, never much;
//! * else it grows if it was used up: doubling at first, every second round, so that the round
//!   between shows whether a queue begins to grow; then by a sixteenth, and segment by segment near
//!   where it last had to shrink.
//!
//! The shortest round trip of each round counts, not the average: the machine's scheduler delays
//! some packets of every round by milliseconds.
//!
//! The shortest round trip is one through an empty queue, and a busy sender never sees the queue
//! empty again. So every few seconds the window closes for a moment and lets it run dry.
//!
//! Pacing starts only where the path has shown that it needs it, by losses or by long round trips;
//! elsewhere acknowledgements keep the time. Even paced, a burst of packets goes out at once.

use super::Instant;
use super::time::MICRO;

/// Windows are kept in such fractions of a segment.
const UNIT: u64 = 16;
/// Never fewer segments.
const LEAST: u64 = 16;
/// A queue is long when the round trip is longer than the shortest by half of it, and by this.
const DELAY: u64 = 250 * MICRO;
/// Round trips that need pacing, losses or not.
const LONG: u64 = 250 * MICRO;
/// Rounds without loss after which pacing ends.
const CALM: u32 = 32;
/// Rounds for which the window closes to let the queue run dry: the first is still full.
const DRY: u32 = 3;
/// Segments that may leave at once, paced or not: as many as one offloaded send holds.
const BURST: u64 = 64;

/// Congestion window and pacing of one peer.
#[derive(Debug)]
pub(super) struct Congestion {
    window: u64,
    /// Where it last had to shrink; 0: nowhere near.
    ceiling: u64,
    most: u64,
    starting: bool,
    /// Starting, the window has just been doubled: what follows shows what that meant.
    doubled: bool,
    /// Rounds that the window stays closed.
    dry: u32,
    limited: bool,
    delivered: u64,
    lost: u64,
    /// The shortest round trip of this round.
    least: u64,
    round: Instant,
    calm: u32,
    /// When the next segment would leave if all left evenly.
    next: Instant,
}

/// What the end of a round meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Steady,
    Shrunk,
}

impl Congestion {
    /// At most `most` segments.
    pub(super) fn new(most: u64, now: Instant) -> Self {
        Self {
            window: LEAST.min(most) * UNIT,
            ceiling: 0,
            most: most * UNIT,
            starting: true,
            doubled: false,
            dry: 0,
            limited: false,
            delivered: 0,
            lost: 0,
            least: u64::MAX,
            round: now,
            calm: CALM,
            next: now,
        }
    }

    /// Segments that may be under way.
    #[inline]
    pub(super) fn window(&self) -> u64 {
        if self.dry > 0 { LEAST.min(self.window / UNIT) } else { self.window / UNIT }
    }

    /// Lets the queue run dry, to see how short a round trip can be.
    #[cold]
    pub(super) fn run_dry(&mut self) {
        self.dry = DRY;
    }

    /// The window was used up.
    #[inline]
    pub(super) fn note_limited(&mut self) {
        self.limited = true;
    }

    #[inline]
    pub(super) fn note_round_trip(&mut self, sample: u64) {
        self.least = self.least.min(sample);
    }

    #[inline]
    pub(super) fn note_lost(&mut self) {
        self.lost += 1;
    }

    /// A segment sent at `sent` has arrived. A round ends when one of its own does.
    #[inline]
    pub(super) fn note_arrived(&mut self, sent: Instant, now: Instant, shortest: u64) -> Outcome {
        self.delivered += 1;
        if sent < self.round || now == self.round {
            return Outcome::Steady;
        }
        self.round = now;
        if self.lost == 0 && !self.limited {
            // Nothing was lost and the window was not used up: it stays as it is.
            self.calm = self.calm.saturating_add(1);
            (self.delivered, self.least) = (0, u64::MAX);
            self.dry = self.dry.saturating_sub(1);
            return Outcome::Steady;
        }
        self.end_round(shortest)
    }

    #[inline(never)]
    fn end_round(&mut self, shortest: u64) -> Outcome {
        let (lost, total) = (self.lost, self.lost + self.delivered);
        let delay = if self.least == u64::MAX { 0 } else { self.least.saturating_sub(shortest) };
        let queued = delay > DELAY.max(shortest / 2);
        let rising = delay > (DELAY / 2).max(shortest / 8);
        let before = self.window;
        let full = self.limited;
        self.calm = if lost > 0 { 0 } else { self.calm.saturating_add(1) };
        (self.delivered, self.lost, self.limited, self.least) = (0, 0, false, u64::MAX);
        self.dry = self.dry.saturating_sub(1);
        let outcome = if lost > 0 && queued || lost >= 4 && lost * 8 > total {
            self.ceiling = before;
            self.starting = false;
            let smaller = if queued { before * 3 / 4 } else { before - before * lost / total / 2 };
            self.window = smaller;
            Outcome::Shrunk
        } else {
            if full && self.dry == 0 {
                self.grow(queued, rising);
            }
            Outcome::Steady
        };
        self.window = self.window.clamp((LEAST * UNIT).min(self.most), self.most);
        outcome
    }

    fn grow(&mut self, queued: bool, rising: bool) {
        if self.starting {
            self.starting = !rising;
            self.doubled = self.starting && !self.doubled;
            if self.doubled {
                self.window *= 2;
            }
            return;
        }
        let near = self.ceiling > 0 && self.window >= self.ceiling * 7 / 8;
        self.window += if near || queued { UNIT } else { (self.window / 16).max(UNIT) };
        if self.window > self.ceiling * 9 / 8 {
            self.ceiling = 0;
        }
    }

    /// Nanoseconds between segments, where they are paced: a little less than the window needs.
    #[inline]
    fn interval(&self, smoothed: u64, shortest: u64) -> Option<u64> {
        if self.calm >= CALM && shortest < LONG {
            return None;
        }
        let gain = if self.starting { 2 * UNIT } else { 5 * UNIT / 4 };
        Some(smoothed * UNIT * UNIT / (self.window * gain).max(1))
    }

    #[inline]
    fn burst(&self) -> u64 {
        (self.window() / 4).clamp(8, BURST)
    }

    /// When the next segment may leave; `None`: now.
    #[inline]
    pub(super) fn wait(&self, now: Instant, smoothed: u64, shortest: u64) -> Option<Instant> {
        let interval = self.interval(smoothed, shortest)?;
        let burst = self.burst() * interval;
        let ahead = self.next.since(now);
        // What has to wait waits until half a burst may go, so that bursts stay worth a call.
        (ahead > burst).then(|| now.plus((ahead - burst / 2).max(MICRO)))
    }

    /// A segment leaves.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, smoothed: u64, shortest: u64) {
        if let Some(interval) = self.interval(smoothed, shortest) {
            self.next = self.next.max(now).plus(interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::time::MILLI;

    /// One round trip of a window used up, with so many segments lost.
    fn round(congestion: &mut Congestion, now: &mut Instant, trip: u64, lost: u64) -> Outcome {
        let sent = *now;
        *now = now.plus(trip);
        congestion.note_limited();
        congestion.note_round_trip(trip);
        (0..lost).for_each(|_| congestion.note_lost());
        (1..congestion.window() - lost).for_each(|_| congestion.delivered += 1);
        congestion.note_arrived(sent, *now, 100 * MICRO)
    }

    #[test]
    fn random_loss_does_not_shrink_the_window() {
        let mut now = Instant::from_nanos(1);
        let mut congestion = Congestion::new(4096, now);
        for _ in 0..40 {
            let lost = congestion.window() / 20;
            assert_eq!(round(&mut congestion, &mut now, 110 * MICRO, lost), Outcome::Steady);
        }
        assert_eq!(congestion.window(), 4096);
    }

    #[test]
    fn loss_from_a_long_queue_shrinks_it() {
        let mut now = Instant::from_nanos(1);
        let mut congestion = Congestion::new(4096, now);
        (0..7).for_each(|_| _ = round(&mut congestion, &mut now, 100 * MICRO, 0));
        assert_eq!(congestion.window(), 256);
        assert_eq!(round(&mut congestion, &mut now, MILLI, 1), Outcome::Shrunk);
        assert_eq!(congestion.window(), 192);
        assert_eq!(round(&mut congestion, &mut now, 100 * MICRO, 0), Outcome::Steady);
        assert_eq!(congestion.window(), 204, "faster below the ceiling");
        (0..2).for_each(|_| _ = round(&mut congestion, &mut now, 100 * MICRO, 0));
        assert_eq!(congestion.window(), 230);
        round(&mut congestion, &mut now, 100 * MICRO, 0);
        assert_eq!(congestion.window(), 231, "carefully near it");
    }

    #[test]
    fn massive_loss_shrinks_it_whatever_the_delay() {
        let mut now = Instant::from_nanos(1);
        let mut congestion = Congestion::new(4096, now);
        (0..7).for_each(|_| _ = round(&mut congestion, &mut now, 100 * MICRO, 0));
        assert_eq!(round(&mut congestion, &mut now, 100 * MICRO, 64), Outcome::Shrunk);
        assert!(congestion.window() < 230);
        for _ in 0..100 {
            let lost = congestion.window() / 2;
            round(&mut congestion, &mut now, 100 * MICRO, lost);
        }
        assert_eq!(congestion.window(), LEAST);
    }

    #[test]
    fn pacing_costs_nothing_until_it_is_needed() {
        let mut now = Instant::from_nanos(1);
        let mut congestion = Congestion::new(4096, now);
        for _ in 0..1000 {
            congestion.note_sent(now, 20 * MICRO, 20 * MICRO);
        }
        assert_eq!(congestion.wait(now, 20 * MICRO, 20 * MICRO), None);
        round(&mut congestion, &mut now, 100 * MICRO, 1);
        let mut left = 0;
        while congestion.wait(now, 100 * MICRO, 100 * MICRO).is_none() {
            congestion.note_sent(now, 100 * MICRO, 100 * MICRO);
            left += 1;
        }
        assert!((8..=16).contains(&left), "{left} leave at once");
        let later = congestion.wait(now, 100 * MICRO, 100 * MICRO).expect("paced");
        assert!(later > now && congestion.wait(later, 100 * MICRO, 100 * MICRO).is_none());
    }
}
