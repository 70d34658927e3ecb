//! Whose a component is: its parameters are one set for the whole process, and so are its modules.

use parking_lot::Mutex;

/// Who opens components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Open MPI, which has loaded this library.
    Host,
    /// A program, by the library's own C functions.
    Program,
}

/// The components that somebody has.
static TAKEN: Mutex<Vec<(&str, User)>> = Mutex::new(Vec::new());

/// Takes a component for a user; false while it is another's. Taking twice is taking once.
pub fn take(component: &'static str, user: User) -> bool {
    let mut taken = TAKEN.lock();
    let owner = taken.iter().find(|(name, _)| *name == component).map(|(_, owner)| *owner);
    if owner.is_none() {
        taken.push((component, user));
    }
    owner.is_none_or(|owner| owner == user)
}

/// Gives it back.
pub fn give(component: &'static str, user: User) {
    TAKEN.lock().retain(|taken| *taken != (component, user));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_one_user_at_a_time() {
        assert!(take("test_user", User::Host) && take("test_user", User::Host));
        assert!(!take("test_user", User::Program) && take("test_other", User::Program));
        give("test_user", User::Program);
        assert!(!take("test_user", User::Program), "not theirs to give back");
        give("test_user", User::Host);
        assert!(take("test_user", User::Program) && !take("test_user", User::Host));
        give("test_user", User::Program);
        give("test_other", User::Program);
    }
}
