//! A memory barrier of two unequal halves: what is frequent pays nothing, and what is rare has the kernel
//! put a barrier into every thread of the process that is running (`membarrier(2)`).
//!
//! Of two threads, one stores A, calls [`light`] and loads B; the other stores B, calls [`heavy`] and
//! loads A. At least one of them sees what the other has stored.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` (`linux/membarrier.h`)
const PRIVATE_EXPEDITED: i32 = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

fn membarrier(command: i32) -> bool {
    // SAFETY: takes numbers only, and changes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel has the heavy half: Linux 4.14 has it, a sandbox may refuse it.
pub(super) fn is_available() -> bool {
    /// Asked once, or a few times at once: 1 for yes, 2 for no.
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    match ANSWER.load(Ordering::Relaxed) {
        0 => {
            let has = !cfg!(miri) && membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
            ANSWER.store(if has { 1 } else { 2 }, Ordering::Relaxed);
            has
        }
        answer => answer == 1,
    }
}

/// The half that costs nothing: it only keeps the compiler from exchanging the two accesses.
#[inline(always)]
pub(super) fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The other half. Only where [it is available](is_available).
///
/// # Panics
/// When the kernel takes back what it has granted: going on would be unsound.
#[cold]
pub(super) fn heavy() {
    // A child process begins without the registration on some kernels.
    let done = membarrier(PRIVATE_EXPEDITED)
        || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
    assert!(done, "the system no longer grants membarrier(2), which it did before");
}
