//! Time as an argument: engines have no clock, they are told.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a clock that never runs backwards; where it starts does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The first one that a clock can show.
    pub const ORIGIN: Self = Self(0);

    /// So many nanoseconds after the origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since `earlier`; 0 when that is later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// So many nanoseconds later.
    #[inline]
    pub const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// What a packet's stamp says: microseconds, wrapping.
    #[inline]
    pub(crate) const fn stamp(self) -> u32 {
        (self.0 / 1000) as u32
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.plus(nanos(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.since(earlier))
    }
}

/// A duration in nanoseconds; five centuries are the most.
#[inline]
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// Microseconds in nanoseconds.
pub(crate) const MICRO: u64 = 1_000;
/// Milliseconds in nanoseconds.
pub(crate) const MILLI: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_runs_backwards() {
        let late = Instant::from_nanos(u64::MAX);
        assert_eq!(late + Duration::from_secs(1), late);
        assert_eq!(Instant::ORIGIN - late, Duration::ZERO);
        assert_eq!((late - Instant::ORIGIN).as_nanos(), u128::from(u64::MAX));
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
