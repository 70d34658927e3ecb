//! What happens when one of our entry points panics: no unwinding ever reaches C.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Says which entry point panicked and ends the process: MPI cannot roll back.
struct Entry(&'static str);

impl Drop for Entry {
    fn drop(&mut self) {
        eprintln!("hawser: a bug: {} panicked; the process is ended", self.0);
        std::process::abort();
    }
}

/// Runs the body of an entry point. Costs nothing unless it panics.
#[inline(always)]
pub(super) fn guard<R>(name: &'static str, body: impl FnOnce() -> R) -> R {
    let entry = Entry(name);
    let result = body();
    std::mem::forget(entry);
    result
}

/// Runs the body of an entry point that may still decline: a panic becomes `declined`.
pub(super) fn guard_early<R>(name: &'static str, declined: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        eprintln!("hawser: a bug: {name} panicked; the component is not offered");
        declined
    })
}
