//! What functions return: one list of numbers, each with one meaning for ever.

use std::ffi::{CStr, c_char};

use crate::error::Error;

/// It is done, or under way, as the function says.
pub const HAWSER_SUCCESS: i32 = 0;
/// It is over already, and nothing more is said of it.
pub const HAWSER_DONE: i32 = 1;
/// An argument is NULL, misaligned or out of its range.
pub const HAWSER_ERR_ARGUMENT: i32 = -1;
/// A handle of nothing: it has ended, was consumed, is another module's, or never was one.
pub const HAWSER_ERR_STALE: i32 = -2;
/// The function's turn has not come, or is over: the component is not open, or the module is being finalized, or this is
/// a child of fork(2) of the process that has opened it.
pub const HAWSER_ERR_STATE: i32 = -3;
/// Somebody else is at it: another call of the same module is running (a callback ends what it was called from, or
/// too many lie in one another), or Open MPI has the component in this process.
pub const HAWSER_ERR_BUSY: i32 = -4;
/// There is no room now; make progress and try again.
pub const HAWSER_ERR_AGAIN: i32 = -5;
/// The peer is lost, or was never reached.
pub const HAWSER_ERR_UNREACHABLE: i32 = -6;
/// More bytes than the transport carries at once, or than were registered.
pub const HAWSER_ERR_TOO_LONG: i32 = -7;
/// What was asked for is not there.
pub const HAWSER_ERR_NOT_FOUND: i32 = -8;
/// The transport cannot do this, or not with this peer or this memory.
pub const HAWSER_ERR_UNSUPPORTED: i32 = -9;
/// Memory or handles are used up. Where not even a few bytes are to be had, the process ends, with SIGABRT.
pub const HAWSER_ERR_MEMORY: i32 = -10;
/// There is nothing here that the component could use; the log says why.
pub const HAWSER_ERR_NOT_AVAILABLE: i32 = -11;
/// A parameter has no value that it may have; the log says which.
pub const HAWSER_ERR_PARAMETER: i32 = -12;
/// The time is up, and it is not over.
pub const HAWSER_ERR_TIMEOUT: i32 = -13;
/// The system refuses something.
pub const HAWSER_ERR_SYSTEM: i32 = -14;
/// The module has ended first.
pub const HAWSER_ERR_CLOSED: i32 = -15;
/// A bug in hawser, told on standard error; the module answers HAWSER_ERR_POISONED from now on.
pub const HAWSER_ERR_INTERNAL: i32 = -16;
/// There was HAWSER_ERR_INTERNAL before; only finalize and close are left.
pub const HAWSER_ERR_POISONED: i32 = -17;
/// A structure of another version of this interface, or shorter than it says.
pub const HAWSER_ERR_ABI: i32 = -18;
/// A function of the caller's has failed.
pub const HAWSER_ERR_HOST: i32 = -19;
/// The memory was not registered for this.
pub const HAWSER_ERR_ACCESS: i32 = -20;
/// The message was longer than the room for it, which has its beginning.
pub const HAWSER_ERR_TRUNCATED: i32 = -21;
/// It was cancelled, and nothing has come of it.
pub const HAWSER_ERR_CANCELLED: i32 = -22;

/// What an entry makes of its arguments: a value, or the code of what is wrong.
pub(super) type Outcome<V = i32> = Result<V, i32>;

/// Every code with its text.
const TEXTS: [(i32, &CStr); 24] = [
    (HAWSER_SUCCESS, c"success"),
    (HAWSER_DONE, c"over already"),
    (HAWSER_ERR_ARGUMENT, c"an argument is NULL, misaligned or out of its range"),
    (HAWSER_ERR_STALE, c"a handle of nothing"),
    (HAWSER_ERR_STATE, c"not in this state"),
    (HAWSER_ERR_BUSY, c"in use"),
    (HAWSER_ERR_AGAIN, c"no room now; make progress and try again"),
    (HAWSER_ERR_UNREACHABLE, c"the peer is not reached"),
    (HAWSER_ERR_TOO_LONG, c"too many bytes"),
    (HAWSER_ERR_NOT_FOUND, c"not found"),
    (HAWSER_ERR_UNSUPPORTED, c"not supported"),
    (HAWSER_ERR_MEMORY, c"out of memory or handles"),
    (HAWSER_ERR_NOT_AVAILABLE, c"nothing that the component could use; the log says why"),
    (HAWSER_ERR_PARAMETER, c"a parameter is out of its range; the log says which"),
    (HAWSER_ERR_TIMEOUT, c"the time is up"),
    (HAWSER_ERR_SYSTEM, c"the system refuses"),
    (HAWSER_ERR_CLOSED, c"the module has ended"),
    (HAWSER_ERR_INTERNAL, c"a bug in hawser"),
    (HAWSER_ERR_POISONED, c"unusable after a bug in hawser"),
    (HAWSER_ERR_ABI, c"a structure of another version"),
    (HAWSER_ERR_HOST, c"a function of the caller's has failed"),
    (HAWSER_ERR_ACCESS, c"the memory was not registered for this"),
    (HAWSER_ERR_TRUNCATED, c"the message was longer than the room for it"),
    (HAWSER_ERR_CANCELLED, c"cancelled"),
];

/// The text of a code.
pub(super) fn text(code: i32) -> *const c_char {
    let found = TEXTS.iter().find(|(known, _)| *known == code);
    found.map_or(c"no code of hawser's", |(_, text)| text).as_ptr()
}

/// The code of a failure of a transport's.
pub(super) fn of(error: Error) -> i32 {
    match error {
        Error::OutOfResource => HAWSER_ERR_AGAIN,
        Error::Unreachable => HAWSER_ERR_UNREACHABLE,
        Error::MessageTooBig => HAWSER_ERR_TOO_LONG,
        Error::NotFound => HAWSER_ERR_NOT_FOUND,
        Error::BadParameter => HAWSER_ERR_ARGUMENT,
        Error::Unsupported => HAWSER_ERR_UNSUPPORTED,
        Error::Fabric(_) | Error::System(_) => HAWSER_ERR_SYSTEM,
        Error::Host(_) => HAWSER_ERR_HOST,
    }
}

/// The status that a callback is told.
pub(super) fn status(outcome: crate::error::Result<()>) -> i32 {
    outcome.map_or_else(of, |()| HAWSER_SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that were compiled yesterday have these numbers in them.
    #[test]
    fn codes_have_one_text_and_one_number_each_for_ever() {
        assert_eq!(TEXTS.map(|(code, _)| code)[..2], [0, 1]);
        assert!(TEXTS[2..].iter().map(|(code, _)| -code).eq(1..=22));
        let is_own = |(at, text): (usize, &(i32, &CStr))| !TEXTS[..at].iter().any(|other| other.1 == text.1);
        assert!(TEXTS.iter().enumerate().all(is_own));
        // SAFETY: texts of the table, or the one for all others, which end with zero and live for ever.
        let [known, unknown] = [-2, 77].map(|code| unsafe { CStr::from_ptr(text(code)) });
        assert_eq!((known, unknown), (c"a handle of nothing", c"no code of hawser's"));
    }
}
