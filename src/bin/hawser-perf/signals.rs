//! Signals that ask the program to end, by its own hand: what the transport has made elsewhere is taken away then.
//!
//! The second one ends it at once.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Those signals, and their names.
const SIGNALS: [(c_int, &str); 3] =
    [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")];

/// The one that has come; 0: none.
static COME: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: c_int) {
    COME.store(signal, Ordering::Relaxed);
}

/// From here on they are only noted, but for those that whoever has started the program wants ignored.
#[expect(clippy::disallowed_methods, reason = "the process is this program's own")]
pub(crate) fn listen() {
    for (signal, _) in SIGNALS {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks alone, with room for the answer.
        unsafe { libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) };
        // SAFETY: written by the call above, and zeros are an action, too.
        let mut action = unsafe { before.assume_init() };
        if action.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        action.sa_sigaction = note as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // SAFETY: an action whose function takes the number alone and does nothing but store it.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

/// Whether nobody has asked yet.
///
/// # Errors
/// The signal that has.
#[inline]
pub(crate) fn check() -> Result<(), String> {
    match COME.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(asked(signal)),
    }
}

#[cold]
fn asked(signal: c_int) -> String {
    let name = SIGNALS.iter().find(|(known, _)| *known == signal).map_or("a signal", |(_, name)| name);
    format!("ended by {name}")
}
