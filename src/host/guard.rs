//! Every entry from C runs inside [`guard`] or [`guard_early`]: no unwinding ever reaches C, and the
//! user hears which entry it was, what happened and where to report it.
//!
//! Nothing is paid where nothing panics: the landing pads lie outside the short path.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::panic::{run, tell};

pub(super) use crate::error::panic::install;

/// Runs the body of an entry of a component. If it panics, says so and ends the process: MPI cannot
/// roll back.
#[inline]
pub(super) fn guard<R>(component: &str, entry: &str, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(|| run(component, entry, body))) {
        Ok(result) => result,
        Err(payload) => end(component, entry, payload),
    }
}

/// Runs the body of an entry that may still decline: a panic becomes `declined`.
pub(super) fn guard_early<R>(component: &str, entry: &str, declined: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(|| run(component, entry, body))).unwrap_or_else(|payload| {
        tell(component, entry, payload, "the component is not used");
        declined
    })
}

#[cold]
fn end(component: &str, entry: &str, payload: Box<dyn Any + Send>) -> ! {
    tell(component, entry, payload, "the process is ended, because MPI cannot go on");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_an_early_entry_declines() {
        assert_eq!(guard_early("test", "open", -16, || panic!("no {}", "way")), -16);
        assert_eq!(guard_early("test", "open", -16, || 0), 0);
    }
}
