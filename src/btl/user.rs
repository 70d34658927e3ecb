//! Whose a component is: its parameters are one set for the whole process, and so are its modules.
//!
//! That is in one atomic word, and not behind a lock: a child of fork(2) that opens a component would wait for ever for a lock
//! that a thread of its parent had.

use std::sync::atomic::{AtomicU8, Ordering};

/// Who opens components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum User {
    /// Open MPI, which has loaded this library.
    Host = 1,
    /// A program, by the library's own C functions.
    Program = 2,
}

/// Nobody has the component.
const NOBODY: u8 = 0;

/// What says who has a component.
#[derive(Debug)]
pub struct Seat(AtomicU8);

impl Seat {
    /// Nobody has it.
    #[expect(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self(AtomicU8::new(NOBODY))
    }

    /// Takes the component for a user; false while it is another's. Taking twice is taking once.
    pub fn take(&self, user: User) -> bool {
        let taken = self.0.compare_exchange(NOBODY, user as u8, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(user as u8)
    }

    /// Gives it back, if it is this user's.
    pub fn give(&self, user: User) {
        let _ = self.0.compare_exchange(user as u8, NOBODY, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_one_user_at_a_time() {
        let (seat, other) = (Seat::new(), Seat::new());
        assert!(seat.take(User::Host) && seat.take(User::Host));
        assert!(!seat.take(User::Program) && other.take(User::Program));
        seat.give(User::Program);
        assert!(!seat.take(User::Program), "not theirs to give back");
        seat.give(User::Host);
        assert!(seat.take(User::Program) && !seat.take(User::Host));
    }
}
