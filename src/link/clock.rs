//! [`Clock`]: the time of a link's world. [`Arrivals`]: what the kernel's time stamps are by that clock.

/// A clock that never goes back, from its making on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: u64,
}

impl Clock {
    /// A clock that begins now.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self { origin: read(libc::CLOCK_MONOTONIC) }
    }

    /// Nanoseconds since its making.
    #[inline]
    pub fn nanos(&self) -> u64 {
        read(libc::CLOCK_MONOTONIC) - self.origin
    }
}

/// Nanoseconds of a clock that always exists, by `clock_gettime(2)`: the standard library's clocks are the
/// same ones behind checks that cost as much as the reading.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the callee fills the structure in, which is valid for writes.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How long the distance of the two clocks is taken for granted, nanoseconds.
const GRANTED: u64 = 1_000_000;
/// Readings further apart than this had something between them, and say nothing.
const APART: u64 = 5_000;
/// The distance changes by no more than the error of two readings, unless the time of day was set.
const SAME: u64 = 2 * APART;

/// When datagrams came, by a [`Clock`], from the stamps that the kernel gives them by the time of day
/// (`SO_TIMESTAMPNS`, `socket(7)`).
///
/// The time of day may be set at any time, forward or back; between that, both clocks run alike
/// (`CLOCK_MONOTONIC` is slewed as well). So their distance is looked at again and again, and while it has
/// just changed no stamp is believed.
#[derive(Debug)]
pub struct Arrivals {
    clock: Clock,
    /// The time of day at the origin of the clock, wrapping.
    distance: u64,
    looked: Option<u64>,
    believed: bool,
}

impl Arrivals {
    /// For that clock.
    pub const fn new(clock: Clock) -> Self {
        Self { clock, distance: 0, looked: None, believed: false }
    }

    /// What time it is by the clock.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.nanos()
    }

    /// When a datagram came with this stamp that is handled at `now`, in nanoseconds of the clock; `None`
    /// where that cannot be told.
    #[inline]
    pub fn at(&mut self, stamp: u64, now: u64) -> Option<u64> {
        if self.looked.is_none_or(|looked| now.saturating_sub(looked) > GRANTED) {
            self.look(now);
        }
        self.place(stamp, now)
    }

    #[cold]
    fn look(&mut self, now: u64) {
        let before = self.clock.nanos();
        let day = read(libc::CLOCK_REALTIME);
        let after = self.clock.nanos();
        self.note(before, day, after, now);
    }

    /// Takes note of readings: the clock, the time of day, the clock again.
    fn note(&mut self, before: u64, day: u64, after: u64, now: u64) {
        let is_first = self.looked.replace(now).is_none();
        if after.saturating_sub(before) > APART {
            // Sooner the next time; what is known holds as long.
            self.looked = if is_first { None } else { self.looked };
            return;
        }
        let distance = day.wrapping_sub(before);
        let change = (distance.wrapping_sub(self.distance) as i64).unsigned_abs();
        self.believed = is_first || change <= SAME;
        self.distance = distance;
    }

    /// What the stamp is by the clock. It is not later than `now` by more than the error of the distance, unless
    /// `now` is an old reading, of a thread that was at something else since: a time between would be too
    /// early by as much, which makes a path look shorter than it is for seconds.
    #[inline]
    fn place(&self, stamp: u64, now: u64) -> Option<u64> {
        let at = stamp.wrapping_sub(self.distance);
        (self.believed && (at as i64) >= 0 && at <= now.saturating_add(SAME)).then_some(at.min(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of day at the clock's origin.
    const DAY: u64 = 1_700_000_000_000_000_000;
    const MILLI: u64 = 1_000_000;

    #[test]
    fn it_goes_forward_from_nothing() {
        let clock = Clock::new();
        let mut last = clock.nanos();
        for _ in 0..1000 {
            let now = clock.nanos();
            assert!(now >= last);
            last = now;
        }
    }

    fn arrivals() -> Arrivals {
        let mut arrivals = Arrivals::new(Clock { origin: 0 });
        arrivals.note(MILLI, DAY + MILLI, MILLI + 40, MILLI);
        arrivals
    }

    #[test]
    fn a_stamp_is_a_time_of_the_clock() {
        // It has run for a while: what was before it began has no time by it, and a reading errs by as much as `APART`.
        let clock = Clock { origin: Clock::new().origin - MILLI };
        let mut arrivals = Arrivals::new(clock);
        let before = clock.nanos();
        let stamp = read(libc::CLOCK_REALTIME);
        let after = clock.nanos();
        let at = (0..1000).find_map(|_| arrivals.at(stamp, clock.nanos())).expect("read undisturbed");
        assert!(at + APART >= before && at <= after + APART, "{before} {at} {after}");
        let arrivals = self::arrivals();
        assert_eq!(arrivals.place(DAY + 700_000, MILLI), Some(700_000));
        assert_eq!(arrivals.place(DAY + MILLI + 300, MILLI), Some(MILLI), "made while the clock was read");
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let arrivals = arrivals();
        for stamp in [0, 1, DAY - 1, DAY + MILLI + 2 * SAME, DAY + 3 * MILLI, u64::MAX] {
            assert_eq!(arrivals.place(stamp, MILLI), None, "{stamp}");
        }
        assert_eq!(Arrivals::new(Clock { origin: 0 }).place(DAY, MILLI), None, "nothing is known yet");
    }

    #[test]
    fn a_time_of_day_that_is_set_gives_no_arrivals_until_it_holds() {
        for set in [DAY + 50 * MILLI, DAY - 50 * MILLI] {
            let mut arrivals = arrivals();
            let stamp = set + 2 * MILLI - 100;
            arrivals.note(2 * MILLI, set + 2 * MILLI, 2 * MILLI + 40, 2 * MILLI);
            assert_eq!(arrivals.place(stamp, 2 * MILLI), None);
            arrivals.note(3 * MILLI, set + 3 * MILLI, 3 * MILLI + 40, 3 * MILLI);
            assert_eq!(arrivals.place(stamp + MILLI, 3 * MILLI), Some(3 * MILLI - 100));
        }
    }

    #[test]
    fn a_reading_that_was_interrupted_changes_nothing() {
        let mut arrivals = arrivals();
        arrivals.note(2 * MILLI, DAY + 9 * MILLI, 9 * MILLI, 9 * MILLI);
        assert_eq!(arrivals.place(DAY + 8 * MILLI, 9 * MILLI), Some(8 * MILLI));
        let mut fresh = Arrivals::new(Clock { origin: 0 });
        fresh.note(2 * MILLI, DAY + 9 * MILLI, 9 * MILLI, 9 * MILLI);
        assert_eq!((fresh.place(DAY + MILLI, 9 * MILLI), fresh.looked), (None, None), "looked at again");
    }
}
