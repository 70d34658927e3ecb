//! A memory barrier of two unequal halves between processes, `membarrier(2)`.
//!
//! Of two processes, one stores A, calls [`light`] and loads B; the other stores B, calls [`heavy`] and loads A. At least
//! one of them sees what the other has stored, if the first is [in it](join), and the second was told that the kernel
//! has done it.

use std::sync::atomic::{Ordering, compiler_fence, fence};

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` (`linux/membarrier.h`)
const GLOBAL_EXPEDITED: i32 = 1 << 1;
/// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED`
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

fn membarrier(command: i32) -> bool {
    // SAFETY: takes numbers only, and changes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Has the heavy half of others reach the threads of this process from now on. Whether the kernel has both halves: Linux
/// 4.16 has them, a sandbox may refuse them.
pub fn join() -> bool {
    !cfg!(miri) && membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED)
}

/// The half that costs nothing: it only keeps the compiler from exchanging the two accesses.
#[inline(always)]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The other half; whether the kernel has done it. It is a barrier of this thread in any case.
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    let is_done = !cfg!(miri) && membarrier(GLOBAL_EXPEDITED);
    fence(Ordering::SeqCst);
    is_done
}
