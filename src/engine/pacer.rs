//! Spreads segments over time: each takes its share of a round trip on average, bursts apart.

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

    /// When the next segment may leave, if segments may leave by so many nanoseconds before their time; `None`:
    /// now.
    #[inline]
    pub(super) fn wait(&self, now: Instant, burst: u64) -> Option<Instant> {
        let ahead = self.next.since(now);
        // What has to wait waits until half a burst may go, so that bursts stay worth a call.
        (ahead > burst).then(|| now.plus((ahead - burst / 2).max(MICRO)))
    }

    /// How many segments that take `share` nanoseconds each may leave now, one after the other.
    #[inline]
    pub(super) fn allows(&self, now: Instant, share: u64, burst: u64) -> u64 {
        let ahead = self.next.since(now);
        burst.checked_sub(ahead).map_or(0, |rest| rest / share.max(1) + 1)
    }

    /// Segments leave that take so many nanoseconds.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, share: u64) {
        self.next = self.next.max(now).plus(share);
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
            match pacer.wait(now, 80 * MICRO) {
                None => {
                    pacer.note_sent(now, 10 * MICRO);
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
        assert_eq!(pacer.wait(now, 0), None);
        pacer.note_sent(now, 300 * MICRO);
        assert_eq!(pacer.wait(now, 0), Some(now.plus(300 * MICRO)));
        assert_eq!(pacer.wait(now.plus(300 * MICRO), 0), None);
    }

    #[test]
    fn several_are_allowed_when_each_is() {
        let mut now = Instant::from_nanos(1_000_000);
        let (mut one_by_one, mut together) = (Pacer::new(now), Pacer::new(now));
        for step in 0..50 {
            now = now.plus(step % 7 * 9 * MICRO);
            let allowed = together.allows(now, 10 * MICRO, 80 * MICRO);
            together.note_sent(now, 10 * MICRO * allowed);
            let mut left = 0;
            while one_by_one.wait(now, 80 * MICRO).is_none() {
                one_by_one.note_sent(now, 10 * MICRO);
                left += 1;
            }
            assert_eq!(left, allowed, "in step {step}");
        }
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pacer = Pacer::new(Instant::ORIGIN);
        let now = Instant::from_nanos(1_000_000_000);
        (0..3).for_each(|_| pacer.note_sent(now, 100 * MICRO));
        assert!(pacer.wait(now, 100 * MICRO).is_some());
    }
}
