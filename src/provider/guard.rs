//! Every entry from C runs inside a guard: a panic becomes `-FI_EOTHER` and one line on standard error.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::errno::{Errno, Outcome};
use crate::error::panic::{run, tell};

/// What people read.
const TITLE: &str = "gni";

/// Runs the body of an entry; `otherwise` is what a panic makes of it.
#[inline(always)]
pub(super) fn guard_or<R>(entry: &str, otherwise: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(|| run(TITLE, entry, body))) {
        Ok(result) => result,
        Err(payload) => {
            tell(TITLE, entry, payload, "the call has failed");
            otherwise
        }
    }
}

/// Runs the body of an entry that answers 0 or an error.
#[inline]
pub(super) fn guard(entry: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    count(entry, || body().map(|()| 0))
}

/// Runs the body of an entry that answers a small number or an error.
#[inline]
pub(super) fn count(entry: &str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    match guard_or(entry, Err(Errno::OTHER), body) {
        Ok(number) => number,
        Err(Errno(code)) => -code,
    }
}

/// Runs the body of an entry that answers a size or an error.
#[inline(always)]
pub(super) fn size(entry: &str, body: impl FnOnce() -> Outcome<usize>) -> isize {
    match guard_or(entry, Err(Errno::OTHER), body) {
        Ok(size) => size as isize,
        Err(Errno(code)) => -(code as isize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_negative_and_a_panic_is_one() {
        assert_eq!(guard("good", || Ok(())), 0);
        assert_eq!(guard("bad", || Err(Errno::INVAL)), -libc::EINVAL);
        assert_eq!(guard("worst", || panic!("no {}", "way")), -256);
        assert_eq!(size("good", || Ok(3)), 3);
        assert_eq!(size("worst", || panic!("no")), -256);
        assert_eq!(guard_or("worst", 7, || panic!("no")), 7);
    }
}
