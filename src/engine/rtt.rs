//! Round-trip times, and the time after which no answer means something (RFC 6298, RFC 9002).

use super::time::{Instant, MICRO, MILLI};

/// How long the shortest round trip is remembered, at least.
const MEMORY: u64 = 5_000 * MILLI;
/// What answers take longer than a round trip, at most: who reads later than that computes, or sleeps, and a
/// loss is not to be found so late.
const LATE: u64 = MILLI;
/// Longer samples say that somebody slept, not how long the path is.
const LONGEST: u64 = 1_000 * MILLI;

/// What is known of the round trips to one peer, in nanoseconds.
#[derive(Debug)]
pub(super) struct Rtt {
    smoothed: u64,
    latest: u64,
    /// The same with the time that answers took at the ends, as far as a timeout allows for it.
    answer: u64,
    /// Of the answers.
    variation: u64,
    /// The shortest of this span of time and of the one before.
    least: [u64; 2],
    /// Of both; 0: not measured.
    min: u64,
    since: Instant,
    initial: u64,
}

impl Rtt {
    /// `initial` is the timeout before the first sample.
    pub(super) const fn new(initial: u64, now: Instant) -> Self {
        Self {
            smoothed: 0,
            latest: 0,
            answer: 0,
            variation: 0,
            least: [u64::MAX; 2],
            min: 0,
            since: now,
            initial,
        }
    }

    /// A packet was under way for `sample`, there and back; from its leaving to the reading of its answer,
    /// `answer` has passed, if that is known. Whether the shortest is about to be forgotten, and should be looked for again.
    #[inline(always)]
    pub(super) fn sample(&mut self, sample: u64, answer: Option<u64>, now: Instant) -> bool {
        let sample = sample.clamp(MICRO, LONGEST);
        let usual = self.answer.saturating_sub(self.smoothed);
        let answer = answer.map_or(sample + usual, |answer| answer.clamp(sample, sample + LATE));
        self.latest = sample;
        if self.smoothed == 0 {
            (self.smoothed, self.answer) = (sample, answer);
            self.variation = sample / 2;
        } else {
            self.variation = (3 * self.variation + self.answer.abs_diff(answer)) / 4;
            self.answer = (7 * self.answer + answer) / 8;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        let old = now.since(self.since) > MEMORY;
        if old {
            self.least = [u64::MAX, self.least[0]];
            self.since = now;
        }
        self.least[0] = self.least[0].min(sample);
        self.min = self.least[0].min(self.least[1]);
        old
    }

    /// 0: not measured.
    #[inline]
    pub(super) const fn smoothed(&self) -> u64 {
        self.smoothed
    }

    /// The shortest of late; 0: not measured.
    #[inline]
    pub(super) const fn min(&self) -> u64 {
        self.min
    }

    /// No timeout is shorter.
    pub(super) const fn least_probe_timeout(initial: u64) -> u64 {
        initial / 10
    }

    /// After how long without an answer a peer is asked again, the first time.
    #[inline]
    pub(super) fn probe_timeout(&self, ack_delay: u64) -> u64 {
        if self.smoothed == 0 {
            return self.initial;
        }
        (self.answer + (4 * self.variation).max(100 * MICRO) + ack_delay)
            .max(Self::least_probe_timeout(self.initial))
    }

    /// How much later than its overtaker a segment may be before it counts as lost.
    #[inline]
    pub(super) fn loss_delay(&self) -> u64 {
        let longest = self.smoothed.max(self.latest);
        (longest + longest / 8).max(250 * MICRO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_samples() {
        let start = Instant::ORIGIN;
        let mut rtt = Rtt::new(5 * MILLI, start);
        assert_eq!((rtt.probe_timeout(0), rtt.smoothed(), rtt.min()), (5 * MILLI, 0, 0));
        rtt.sample(20 * MILLI, None, start);
        assert_eq!(rtt.probe_timeout(0), 60 * MILLI);
        (0..100).for_each(|_| _ = rtt.sample(20 * MILLI, None, start));
        assert!(rtt.probe_timeout(0) < 21 * MILLI);
        (0..200).for_each(|_| _ = rtt.sample(20 * MICRO, None, start));
        assert_eq!(rtt.probe_timeout(50 * MICRO), 500 * MICRO, "not shorter than a tenth of the initial one");
    }

    #[test]
    fn a_timeout_allows_for_ends_that_read_late_and_not_for_those_that_compute() {
        let timeout = |late: u64| {
            let mut rtt = Rtt::new(5 * MILLI, Instant::ORIGIN);
            (0..200).for_each(|_| _ = rtt.sample(600 * MICRO, Some(600 * MICRO + late), Instant::ORIGIN));
            assert_eq!((rtt.smoothed(), rtt.min()), (600 * MICRO, 600 * MICRO), "not the network's");
            rtt.probe_timeout(0)
        };
        assert_eq!(timeout(200 * MICRO), timeout(0) + 200 * MICRO);
        assert_eq!(timeout(300 * MILLI), timeout(0) + LATE);
    }

    #[test]
    fn the_shortest_is_forgotten_in_the_end() {
        let mut rtt = Rtt::new(5 * MILLI, Instant::ORIGIN);
        rtt.sample(MILLI, None, Instant::ORIGIN);
        for second in 1..=20 {
            rtt.sample(9 * MILLI, None, Instant::from_nanos(second * 1_000 * MILLI));
            assert_eq!(rtt.min(), if second < 12 { MILLI } else { 9 * MILLI });
        }
    }

    #[test]
    fn a_sleep_does_not_spoil_the_estimate() {
        let mut rtt = Rtt::new(5 * MILLI, Instant::ORIGIN);
        rtt.sample(20 * MICRO, None, Instant::ORIGIN);
        rtt.sample(30_000 * MILLI, None, Instant::ORIGIN);
        (0..60).for_each(|_| _ = rtt.sample(20 * MICRO, None, Instant::ORIGIN));
        assert!(rtt.probe_timeout(0) < 5 * MILLI);
    }
}
