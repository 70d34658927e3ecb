//! How much may be under way, and how fast it goes out.
//!
//! A [`Controller`] sets the congestion window; the one that is used bounds the queue
//! ([`DelayBound`]). [`Congestion`] adds a [`Pacer`], which spreads the window over a round trip
//! where the path has shown that it needs it: by losses, by long round trips, or by a window of few
//! segments. Elsewhere acknowledgements keep the time. Even paced, a burst goes out at once.

use super::controller::{Controller, Outcome};
use super::delay_bound::DelayBound;
use super::pacer::Pacer;
use super::send_window::Landed;
use super::time::{Instant, MICRO};

/// Round trips that need pacing, losses or not.
const LONG: u64 = 250 * MICRO;
/// Windows that need pacing, in segments.
const FEW: u64 = 4;
/// Rounds without loss after which pacing ends.
const LOSSLESS: u32 = 32;
/// Segments that may leave at once, paced or not: as many as one offloaded send holds.
const BURST: u64 = 64;
/// As many may at least, in windows that hold them.
const LEAST_BURST: u64 = 8;

/// Congestion window and pacing of one peer.
#[derive(Debug)]
pub(super) struct Congestion<C = DelayBound> {
    /// Bytes of the longest datagram.
    segment: u64,
    controller: C,
    pacer: Pacer,
}

impl Congestion {
    /// At most `most` segments, in datagrams of at most `longest` bytes.
    pub(super) fn new(most: u64, longest: usize, now: Instant) -> Self {
        let controller = DelayBound::new(most, longest, now);
        Self { segment: longest as u64, controller, pacer: Pacer::new(now) }
    }
}

impl<C: Controller> Congestion<C> {
    /// Bytes that may be under way; one segment may always be.
    #[inline]
    pub(super) fn window(&self) -> u64 {
        self.controller.window()
    }

    /// Whether nothing was lost of late, and the window is as large as where nobody waits.
    #[inline(always)]
    pub(super) fn is_clear(&self) -> bool {
        self.controller.lossless_rounds() >= LOSSLESS && self.window() >= FEW * self.segment
    }

    /// The least round trip is about to be forgotten, and should be looked for again.
    #[cold]
    pub(super) fn seek_least_round_trip(&mut self) {
        self.controller.seek_least_round_trip();
    }

    /// The window was used up.
    #[inline]
    pub(super) fn note_limited(&mut self) {
        self.controller.note_limited();
    }

    #[inline]
    pub(super) fn note_round_trip(&mut self, sample: u64, late: Option<u64>) {
        self.controller.note_round_trip(sample, late);
    }

    #[inline]
    pub(super) fn note_lost(&mut self) {
        self.controller.note_lost();
    }

    /// Segments sent at `sent` have arrived.
    #[inline]
    pub(super) fn note_arrived(
        &mut self,
        arrived: Landed,
        sent: Instant,
        now: Instant,
        shortest: u64,
    ) -> Outcome {
        self.controller.note_arrived(arrived, sent, now, shortest)
    }

    /// Whether segments may have to wait for each other's sake.
    #[inline(always)]
    pub(super) fn is_paced(&self, shortest: u64) -> bool {
        shortest >= LONG || !self.is_clear()
    }

    /// The share of a round trip that so many bytes take, in nanoseconds: a little less than the window needs. The
    /// least round trip counts: one that has grown says that others wait, not that the path is slow.
    #[inline]
    fn share(&self, bytes: u64, shortest: u64) -> u64 {
        let window = self.controller.window();
        let (gain, of) = match (window < self.segment, self.controller.is_starting()) {
            (true, _) => (1, 1),
            (false, true) => (2, 1),
            (false, false) => (5, 4),
        };
        shortest.saturating_mul(bytes * of) / (window * gain).max(1)
    }

    /// By how much segments may leave before their time.
    #[inline]
    fn burst(&self, shortest: u64) -> u64 {
        let (window, segment) = (self.controller.window(), self.segment);
        if window < 2 * segment {
            return 0;
        }
        let bytes = (window / 4).max((LEAST_BURST * segment).min(window)).min(BURST * segment);
        self.share(bytes, shortest)
    }

    /// When the next segment may leave; `None`: now.
    #[inline(always)]
    pub(super) fn wait(&self, now: Instant, shortest: u64) -> Option<Instant> {
        if self.is_paced(shortest) { self.pacer.wait(now, self.burst(shortest)) } else { None }
    }

    /// How many segments of so many bytes may leave now as far as the pacer goes.
    #[inline]
    pub(super) fn allows(&self, bytes: u64, now: Instant, shortest: u64) -> u64 {
        if !self.is_paced(shortest) {
            return u64::MAX;
        }
        self.pacer.allows(now, self.share(bytes, shortest), self.burst(shortest))
    }

    /// So many bytes leave.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, shortest: u64, bytes: u64) {
        if self.is_paced(shortest) {
            self.pacer.note_sent(now, self.share(bytes, shortest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1472;

    /// A controller that says what a test wants.
    #[derive(Debug)]
    struct Fixed {
        window: u64,
        lossless: u32,
    }

    impl Controller for Fixed {
        fn window(&self) -> u64 {
            self.window
        }
        fn note_limited(&mut self) {}
        fn note_round_trip(&mut self, _: u64, _: Option<u64>) {}
        fn note_lost(&mut self) {
            self.lossless = 0;
        }
        fn note_arrived(&mut self, _: Landed, _: Instant, _: Instant, _: u64) -> Outcome {
            Outcome::Steady
        }
        fn seek_least_round_trip(&mut self) {}
        fn is_starting(&self) -> bool {
            false
        }
        fn lossless_rounds(&self) -> u32 {
            self.lossless
        }
    }

    fn fixed(window: u64) -> Congestion<Fixed> {
        let controller = Fixed { window, lossless: LOSSLESS };
        Congestion { segment: SEGMENT, controller, pacer: Pacer::new(Instant::ORIGIN) }
    }

    #[test]
    fn pacing_costs_nothing_until_it_is_needed() {
        let now = Instant::from_nanos(1_000_000);
        let mut congestion = fixed(64 * SEGMENT);
        for _ in 0..1000 {
            congestion.note_sent(now, 20 * MICRO, SEGMENT);
        }
        assert_eq!(congestion.wait(now, 20 * MICRO), None);
        congestion.note_lost();
        let mut left = 0;
        while congestion.wait(now, 100 * MICRO).is_none() {
            congestion.note_sent(now, 100 * MICRO, SEGMENT);
            left += 1;
        }
        assert!((16..=18).contains(&left), "{left} leave at once");
        let later = congestion.wait(now, 100 * MICRO).expect("paced");
        assert!(later > now && congestion.wait(later, 100 * MICRO).is_none());
    }

    #[test]
    fn a_window_of_less_than_a_segment_is_one_now_and_then() {
        let now = Instant::from_nanos(1_000_000);
        let mut congestion = fixed(SEGMENT / 4);
        assert_eq!(congestion.wait(now, 100 * MICRO), None);
        congestion.note_sent(now, 100 * MICRO, SEGMENT);
        assert_eq!(congestion.wait(now, 100 * MICRO), Some(now.plus(400 * MICRO)));
    }

    #[test]
    fn a_window_follows_in_one_round_trip() {
        let start = Instant::from_nanos(1_000_000);
        let mut congestion = fixed(1_000 * SEGMENT);
        congestion.note_lost();
        let (mut now, mut left) = (start, 0);
        while left < 1_000 {
            match congestion.wait(now, 10_000 * MICRO) {
                None => {
                    congestion.note_sent(now, 10_000 * MICRO, SEGMENT);
                    left += 1;
                }
                Some(until) => now = until,
            }
        }
        assert!((7_000..8_000).contains(&(now.since(start) / MICRO)), "with a fifth to spare: {now:?}");
    }
}
