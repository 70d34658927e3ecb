//! The timers of one peer in one table, but for that of probes, which follows from what was last sent, and that of
//! its acknowledgement, which nearly every packet sets and the next one stops: [`DelayedAcks`] keeps those of all peers.
//!
//! [`DelayedAcks`]: super::delayed_acks::DelayedAcks

use super::time::Instant;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A segment that was overtaken is lost by then (RFC 9002, 6.1.2).
    Loss,
    /// The pacer lets the next segment leave.
    Pacing,
    /// The next step of closing.
    Close,
}

const COUNT: usize = 3;

/// That of a timer that is not set.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When each is due.
#[derive(Debug)]
pub(super) struct Timers([Instant; COUNT]);

impl Timers {
    pub(super) const fn new() -> Self {
        Self([NEVER; COUNT])
    }

    #[inline]
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    /// Sets it, unless it is due before that already.
    pub(super) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = self.0[timer as usize].min(at);
    }

    #[inline]
    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = NEVER;
    }

    #[inline]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] != NEVER
    }

    #[inline]
    pub(super) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.is_set(timer) && self.0[timer as usize] <= now
    }

    /// The earliest of them and of `probe`.
    #[inline]
    pub(super) fn earliest(&self, probe: Option<Instant>) -> Option<Instant> {
        let at = self.0.iter().fold(probe.unwrap_or(NEVER), |earliest, at| earliest.min(*at));
        (at != NEVER).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_those_that_are_set_counts() {
        let at = Instant::from_nanos;
        let mut timers = Timers::new();
        assert_eq!((timers.earliest(None), timers.earliest(Some(at(9)))), (None, Some(at(9))));
        timers.set(Timer::Pacing, at(7));
        timers.set(Timer::Close, at(5));
        timers.set(Timer::Loss, at(6));
        assert_eq!((timers.earliest(None), timers.earliest(Some(at(4)))), (Some(at(5)), Some(at(4))));
        timers.stop(Timer::Close);
        assert!(!timers.is_set(Timer::Close) && !timers.is_due(Timer::Close, NEVER));
        assert!(timers.is_due(Timer::Loss, at(6)) && !timers.is_due(Timer::Pacing, at(6)));
        assert_eq!(timers.earliest(None), Some(at(6)));
    }
}
