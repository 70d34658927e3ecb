//! [`Clock`]: the time of a link's world.

use std::time::Instant;

/// A clock that never goes back, from its making on.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since its making.
    #[inline]
    pub fn nanos(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
