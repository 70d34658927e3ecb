//! [`Clock`]: the time of a link's world.

/// A clock that never goes back, from its making on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: u64,
}

impl Clock {
    /// A clock that begins now.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self { origin: monotonic() }
    }

    /// Nanoseconds since its making.
    #[inline]
    pub fn nanos(&self) -> u64 {
        monotonic() - self.origin
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, by `clock_gettime(2)`: the standard library's clock is the same one
/// behind checks that cost as much as the reading.
#[inline]
fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the callee fills the structure in; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
