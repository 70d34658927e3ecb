//! Every entry from C runs inside [`guard`]: a panic becomes a code, and what it happened in is not used again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::code::{HAWSER_ERR_INTERNAL, Outcome};
use crate::error::panic::{install, run, tell};

/// What a panic makes unusable.
pub(super) trait Poison {
    /// Nothing but its end is left.
    fn poison(&self);
}

/// Poisons what it is about, unless it is forgotten.
struct Fuse<'a, P: Poison>(&'a P);

impl<P: Poison> Drop for Fuse<'_, P> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

/// Runs something in which a panic makes `what` unusable.
#[inline]
pub(super) fn fused<P: Poison, R>(what: &P, body: impl FnOnce() -> R) -> R {
    let fuse = Fuse(what);
    let result = body();
    std::mem::forget(fuse);
    result
}

/// Has panics speak through the guards, from the first function that a program calls.
pub(super) fn listen() {
    if !cfg!(test) {
        install();
    }
}

/// Runs the body of an entry. `component` is what people read: that of the C functions begins with `hawser_`.
#[inline]
pub(super) fn guard(component: &str, entry: &str, body: impl FnOnce() -> Outcome) -> i32 {
    stop(component, entry, || run(component, entry, body))
}

/// The same of a body that has what [`run`] is about further in, where a panic makes something unusable.
#[inline]
pub(super) fn stop(component: &str, entry: &str, body: impl FnOnce() -> Outcome) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code) | Err(code)) => code,
        Err(payload) => {
            tell(component, entry, payload, "it answers nothing else any more");
            HAWSER_ERR_INTERNAL
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Thing(Cell<bool>);

    impl Poison for Thing {
        fn poison(&self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_panic_is_a_code_and_poisons() {
        let thing = Thing(Cell::new(false));
        assert_eq!(guard("test", "good", || fused(&thing, || Ok(3))), 3);
        assert_eq!(guard("test", "bad", || fused(&thing, || Err(-3))), -3);
        assert!(!thing.0.get(), "an error is none");
        assert_eq!(guard("test", "worst", || fused(&thing, || panic!("no {}", "way"))), HAWSER_ERR_INTERNAL);
        assert!(thing.0.get());
    }
}
