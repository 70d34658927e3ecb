//! The timers of one peer in one table, but for that of probes, which follows from what was last sent; and when the
//! engine comes to look at them.
//!
//! It comes by two ways. The [wheel](super::wheel) has one timer for each peer that needs any, for the earliest of its
//! own. The acknowledgement's is set by nearly every packet and stopped by the next one, and all wait equally long:
//! peers that are owed one stand in [a line](super::ack_queue). Nobody is taken out of either; whoever comes and
//! finds nothing due sees to the next time.

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
    /// What has arrived is acknowledged at the latest (RFC 9000, 13.2.1).
    AckDelay,
}

const COUNT: usize = 4;
/// The first so many are the wheel's.
const ON_WHEEL: usize = Timer::AckDelay as usize;

/// That of a timer that is not set.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When each is due.
#[derive(Debug)]
pub(super) struct Timers {
    due: [Instant; COUNT],
    /// When the wheel comes.
    armed: Instant,
    /// When the line comes. One that stands there for another time, of an earlier connection, does not count.
    standing: Instant,
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { due: [NEVER; COUNT], armed: NEVER, standing: NEVER }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.due[timer as usize] = at;
    }

    /// Sets it, unless it is due before that already.
    pub(super) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        self.due[timer as usize] = self.due[timer as usize].min(at);
    }

    #[inline(always)]
    pub(super) fn stop(&mut self, timer: Timer) {
        self.due[timer as usize] = NEVER;
    }

    #[inline(always)]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.due[timer as usize] != NEVER
    }

    #[inline]
    pub(super) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.is_set(timer) && self.due[timer as usize] <= now
    }

    /// When it is due, if it is set.
    pub(super) fn due(&self, timer: Timer) -> Option<Instant> {
        self.is_set(timer).then_some(self.due[timer as usize])
    }

    /// The earliest of the wheel's and of `probe`.
    #[inline]
    pub(super) fn earliest(&self, probe: Option<Instant>) -> Option<Instant> {
        let wheel = &self.due[..ON_WHEEL];
        let at = wheel.iter().fold(probe.unwrap_or(NEVER), |earliest, at| earliest.min(*at));
        (at != NEVER).then_some(at)
    }

    /// Those of the peer's next connection: the wheel comes when it would have come.
    pub(super) const fn renewed(&self) -> Self {
        Self { armed: self.armed, ..Self::new() }
    }

    /// Whether the wheel comes by then.
    #[inline(always)]
    pub(super) fn is_armed_by(&self, at: Instant) -> bool {
        self.armed <= at
    }

    /// The wheel is to come at `at`; whether it has to be told, since it does not come before.
    #[inline]
    pub(super) fn arm(&mut self, at: Instant) -> bool {
        let is_later = self.armed > at;
        if is_later {
            self.armed = at;
        }
        is_later
    }

    /// The wheel has come, for `at`.
    pub(super) fn note_wheel(&mut self, at: Instant) {
        if self.armed == at {
            self.armed = NEVER;
        }
    }

    /// The line is to come at `at`; whether the peer has to be put there, since it does not stand there yet.
    #[inline(always)]
    pub(super) fn stand(&mut self, at: Instant) -> bool {
        let is_new = self.standing == NEVER;
        if is_new {
            self.standing = at;
        }
        is_new
    }

    /// The line has come to who stood there for `at`; whether that is this peer.
    pub(super) fn note_line(&mut self, at: Instant) -> bool {
        let is_ours = self.standing == at;
        if is_ours {
            self.standing = NEVER;
        }
        is_ours
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
        timers.set(Timer::AckDelay, at(2));
        assert_eq!((timers.earliest(None), timers.due(Timer::AckDelay)), (Some(at(6)), Some(at(2))));
    }

    #[test]
    fn the_wheel_is_told_of_what_is_due_before_it_comes() {
        let at = Instant::from_nanos;
        let mut timers = Timers::new();
        assert!(!timers.is_armed_by(at(9)) && timers.arm(at(7)) && !timers.arm(at(8)) && timers.arm(at(5)));
        assert!(timers.is_armed_by(at(5)) && !timers.is_armed_by(at(4)));
        timers.note_wheel(at(7));
        assert!(!timers.arm(at(6)), "it comes once more, at 5");
        timers.note_wheel(at(5));
        assert!(timers.arm(at(6)));
    }
}
