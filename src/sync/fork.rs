//! Whether this is the process that made something, or a child of it.
//!
//! A child of fork(2) has one thread, locks as they were, and none of the memory that is shared with peers: what its
//! parent has made is of no use there.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks that lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A number that is another one in each child. Children of before the first call are taken for their parents.
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has children counted from now on.
pub fn count_children() {
    static ONCE: Once = Once::new();
    // SAFETY: the function only counts, which may be done after fork(2), and the library stays loaded (`nodelete`).
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(count)) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_number_than_its_parent() {
        count_children();
        let before = generation();
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(generation() == before)) };
        }
        let mut status = 1;
        // SAFETY: a variable of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, generation()), (0, before));
    }
}
