//! What an engine knows of time: what it was told last, and when nobody told it anything.
//!
//! A process that is stopped, or computes, calls nobody. What it did not hear meanwhile says nothing about its
//! peers, and what waited in the link meanwhile nothing about the network.

use super::packet::Arrival;
use super::time::{Instant, MILLI};

/// Called so much later than was wanted, we slept.
const SUSPENDED: u64 = 100 * MILLI;
/// How long it takes to read what has waited while nobody looked, at the most.
const BACKLOG: u64 = 10 * MILLI;

/// The time of one engine.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    /// How long nobody called, in all.
    suspended: u64,
    /// When somebody did again.
    resumed: Instant,
    /// What is read before that may have come while nobody looked, where the link has not noted when.
    backlog_until: Instant,
}

impl Clock {
    pub(super) const fn new(now: Instant) -> Self {
        Self { now, suspended: 0, resumed: Instant::ORIGIN, backlog_until: Instant::ORIGIN }
    }

    /// What it was told last.
    #[inline(always)]
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// When somebody called again after such a time.
    #[inline(always)]
    pub(super) const fn resumed(&self) -> Instant {
        self.resumed
    }

    /// The clock without the times at which nobody called.
    #[inline(always)]
    pub(super) const fn running(&self) -> Instant {
        Instant::from_nanos(self.now.nanos().saturating_sub(self.suspended))
    }

    /// Whether `now` is so much later that nobody may have called for long.
    #[inline(always)]
    pub(super) const fn is_leap(&self, now: Instant) -> bool {
        now.since(self.now) > SUSPENDED
    }

    /// It is `now`, unless it is later already.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// It is going to be `now`, and we had wanted to be called at `wanted`. Perhaps nobody had to call before: only
    /// what is past that time was sleep.
    pub(super) fn note_leap(&mut self, wanted: Instant, now: Instant) {
        let late = now.since(wanted.max(self.now));
        if late > SUSPENDED {
            self.suspended = self.suspended.saturating_add(late);
            self.resumed = now;
        }
    }

    /// The link was not looked at for long before `now`.
    pub(super) const fn note_away(&mut self, now: Instant) {
        self.backlog_until = now.plus(BACKLOG);
    }

    /// Nothing waits in the link.
    #[inline(always)]
    pub(super) const fn note_drained(&mut self) {
        self.backlog_until = Instant::ORIGIN;
    }

    /// When what is read now came, if the link has noted it as `noted`.
    #[inline(always)]
    pub(super) fn arrival(&self, noted: Option<Instant>) -> Arrival {
        match noted {
            Some(at) => Arrival::Noted(at),
            None if self.now >= self.backlog_until => Arrival::Read(self.now),
            None => Arrival::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * MILLI)
    }

    #[test]
    fn only_what_is_past_the_time_that_was_wanted_is_sleep() {
        let mut clock = Clock::new(at(10));
        assert!(!clock.is_leap(at(110)) && clock.is_leap(at(111)));
        clock.note_leap(at(950), at(1_000));
        clock.advance(at(1_000));
        assert_eq!((clock.running(), clock.resumed()), (at(1_000), Instant::ORIGIN));
        clock.note_leap(at(1_500), at(3_000));
        clock.advance(at(3_000));
        assert_eq!((clock.running(), clock.resumed()), (at(1_500), at(3_000)));
        clock.note_leap(at(7), at(4_000));
        clock.advance(at(4_000));
        assert_eq!(clock.running(), at(1_500), "a time that was over when it was last told it");
        clock.advance(at(5));
        assert_eq!(clock.now(), at(4_000), "it never runs backwards");
    }

    #[test]
    fn what_waited_while_nobody_looked_came_nobody_knows_when() {
        let mut clock = Clock::new(at(10));
        assert_eq!(clock.arrival(None), Arrival::Read(at(10)));
        clock.note_away(at(10));
        assert_eq!(clock.arrival(None), Arrival::Unknown);
        assert_eq!(clock.arrival(Some(at(3))), Arrival::Noted(at(3)));
        clock.note_drained();
        assert_eq!(clock.arrival(None), Arrival::Read(at(10)));
        clock.note_away(at(10));
        clock.advance(at(20));
        assert_eq!(clock.arrival(None), Arrival::Read(at(20)), "reading never catches up");
    }
}
