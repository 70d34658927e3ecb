//! [`EngineCell`]: the only maker of `&mut` to shared state.
//!
//! The host re-enters us (its progress nests, its callbacks send), so a `&mut` that lives across a
//! host call would be aliased. `with` lends it to a closure that has no host in scope. In a
//! single-threaded process the cost is one flag; with `MPI_THREAD_MULTIPLE` the flag is a lock.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared state with one borrower at a time.
pub struct EngineCell<T> {
    held: AtomicBool,
    threaded: bool,
    state: UnsafeCell<T>,
}

// SAFETY: with `threaded` the flag is taken by compare-and-swap, so one thread at a time reaches
// the state. Without it the host has promised to call from one thread at a time.
unsafe impl<T: Send> Sync for EngineCell<T> {}

/// Gives the state back, also when the closure panics.
struct Release<'a>(&'a AtomicBool);

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC POINT: engine-cell (acquired in `with` and `try_with`)
        self.0.store(false, Ordering::Release);
    }
}

impl<T> EngineCell<T> {
    /// `threaded` says whether several threads may come at once.
    pub const fn new(state: T, threaded: bool) -> Self {
        Self { held: AtomicBool::new(false), threaded, state: UnsafeCell::new(state) }
    }

    /// Whether several threads may come at once.
    pub const fn is_threaded(&self) -> bool {
        self.threaded
    }

    /// Lends the state to `f`.
    ///
    /// # Panics
    /// In a single-threaded process when `f` of an outer call is still running: `f` called out.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if self.threaded {
            self.acquire();
        } else {
            assert!(!self.held.load(Ordering::Relaxed), "engine borrowed twice");
            self.held.store(true, Ordering::Relaxed);
        }
        let _release = Release(&self.held);
        // SAFETY: the flag is ours, so no other `&mut` exists until `_release` drops.
        f(unsafe { &mut *self.state.get() })
    }

    /// Lends the state to `f`, or returns `None` when another thread has it.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.threaded {
            // SYNC POINT: engine-cell (released in `Release::drop`)
            if self.held.swap(true, Ordering::Acquire) {
                return None;
            }
        } else if self.held.load(Ordering::Relaxed) {
            return None;
        } else {
            self.held.store(true, Ordering::Relaxed);
        }
        let _release = Release(&self.held);
        // SAFETY: the flag is ours, so no other `&mut` exists until `_release` drops.
        Some(f(unsafe { &mut *self.state.get() }))
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0_u32;
        while self.held.load(Ordering::Relaxed) {
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    #[inline]
    fn acquire(&self) {
        // SYNC POINT: engine-cell (released in `Release::drop`)
        while self.held.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "borrowed twice")]
    fn a_nested_borrow_is_a_bug_and_says_so() {
        let cell = EngineCell::new(1, false);
        cell.with(|_| cell.with(|n| *n += 1));
    }

    #[test]
    fn a_nested_try_is_refused() {
        for threaded in [false, true] {
            let cell = EngineCell::new(1, threaded);
            assert_eq!(cell.with(|_| cell.try_with(|n| *n)), None);
            assert_eq!(cell.try_with(|n| *n), Some(1));
        }
    }

    #[test]
    fn a_panic_gives_the_state_back() {
        let cell = EngineCell::new(1, false);
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cell.with(|_| panic!("inside"))));
        assert!(caught.is_err());
        assert_eq!(cell.with(|n| *n), 1);
    }

    #[test]
    fn threads_take_turns() {
        let cell = EngineCell::new(0_u64, true);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        cell.with(|n| *n += 1);
                    }
                });
            }
        });
        assert_eq!(cell.with(|n| *n), 40_000);
    }
}
