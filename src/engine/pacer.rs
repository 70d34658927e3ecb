//! Spreads segments over time: one after each interval on average, bursts apart.

use super::time::{Instant, MICRO};

/// When the next segment would leave if all left evenly.
#[derive(Debug)]
pub(super) struct Pacer {
    next: Instant,
}

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { next: now }
    }

    /// When the next segment may leave, if so many nanoseconds lie between segments and so many may
    /// leave before their time; `None`: now.
    #[inline]
    pub(super) fn wait(&self, now: Instant, interval: u64, burst: u64) -> Option<Instant> {
        let ahead = self.next.since(now);
        let burst = burst.saturating_mul(interval);
        // What has to wait waits until half a burst may go, so that bursts stay worth a call.
        (ahead > burst).then(|| now.plus((ahead - burst / 2).max(MICRO)))
    }

    /// How many segments may leave now, one after the other.
    #[inline]
    pub(super) fn allows(&self, now: Instant, interval: u64, burst: u64) -> u64 {
        let (ahead, interval) = (self.next.since(now), interval.max(1));
        burst.saturating_mul(interval).checked_sub(ahead).map_or(0, |rest| rest / interval + 1)
    }

    /// So many segments leave.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, interval: u64, count: u64) {
        self.next = self.next.max(now).plus(interval.saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_evenly() {
        let mut now = Instant::from_nanos(1_000_000);
        let mut pacer = Pacer::new(now);
        let (start, mut left) = (now, 0);
        while left < 1_000 {
            match pacer.wait(now, 10 * MICRO, 8) {
                None => {
                    pacer.note_sent(now, 10 * MICRO, 1);
                    left += 1;
                    assert!(left != 9 || now == start, "the first nine go at once");
                }
                Some(until) => {
                    assert!(left >= 9 && until > now);
                    now = until;
                }
            }
        }
        let took = now.since(start);
        assert!((9_850 * MICRO..=10_000 * MICRO).contains(&took), "{took}");
    }

    #[test]
    fn without_a_burst_each_waits_for_its_time() {
        let now = Instant::from_nanos(5);
        let mut pacer = Pacer::new(now);
        assert_eq!(pacer.wait(now, 300 * MICRO, 0), None);
        pacer.note_sent(now, 300 * MICRO, 1);
        assert_eq!(pacer.wait(now, 300 * MICRO, 0), Some(now.plus(300 * MICRO)));
        assert_eq!(pacer.wait(now.plus(300 * MICRO), 300 * MICRO, 0), None);
    }

    #[test]
    fn several_are_allowed_when_each_is() {
        let mut now = Instant::from_nanos(1_000_000);
        let (mut one_by_one, mut together) = (Pacer::new(now), Pacer::new(now));
        for step in 0..50 {
            now = now.plus(step % 7 * 9 * MICRO);
            let allowed = together.allows(now, 10 * MICRO, 8);
            together.note_sent(now, 10 * MICRO, allowed);
            let mut left = 0;
            while one_by_one.wait(now, 10 * MICRO, 8).is_none() {
                one_by_one.note_sent(now, 10 * MICRO, 1);
                left += 1;
            }
            assert_eq!(left, allowed, "in step {step}");
        }
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pacer = Pacer::new(Instant::ORIGIN);
        let now = Instant::from_nanos(1_000_000_000);
        (0..3).for_each(|_| pacer.note_sent(now, 100 * MICRO, 1));
        assert!(pacer.wait(now, 100 * MICRO, 1).is_some());
    }
}
