//! What happens when one of our entry points panics: no unwinding ever reaches C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry point. If it panics, says which one it was and ends the process: MPI
/// cannot roll back. Costs nothing otherwise.
macro_rules! guard {
    ($name:literal, $body:expr) => {{
        struct Entry;

        impl Drop for Entry {
            fn drop(&mut self) {
                $crate::error::say(format_args!(concat!(
                    "a bug: ",
                    $name,
                    " panicked; the process is ended"
                )));
                std::process::abort();
            }
        }

        let entry = Entry;
        // A closure, because the body may return early.
        let body = || $body;
        let result = body();
        std::mem::forget(entry);
        result
    }};
}

pub(super) use guard;

/// Runs the body of an entry point that may still decline: a panic becomes `declined`.
pub(super) fn guard_early<R>(name: &'static str, declined: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        crate::error::say(format_args!("a bug: {name} panicked; the component is not offered"));
        declined
    })
}
