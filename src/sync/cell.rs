//! [`EngineCell`]: the only maker of `&mut` to shared state.
//!
//! The host re-enters us (its progress nests, its callbacks send), so a `&mut` that lives across a
//! host call would be aliased. `with` lends it to a closure that has no host in scope.
//!
//! How many threads will come cannot be known when a cell is made: the host may be told of threads at
//! any time (`MPI_Init_thread`, sessions, `MPI_T_init_thread`), and its own variables say different
//! things of it. So a cell assumes nothing. It is *biased*: the first thread that comes becomes its
//! owner and takes it with plain loads and stores; an atomic exchange would cost twenty times as much
//! (7 ns). When another thread comes, once in the life of a cell, it takes the bias away, and from then on
//! the cell is a spin lock for everybody.
//!
//! That is Dekker's algorithm with the expensive half on the side of the one who revokes: the owner says
//! that it is inside and then looks whether it is still the owner; the other takes the ownership away,
//! has the kernel put a memory barrier into every running thread (`membarrier(2)`), and then looks
//! whether the owner is inside. One of them sees the other.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::barrier;

/// Shared state with one borrower at a time.
pub struct EngineCell<T> {
    /// The thread that may take the cell by `inside`, or one of the constants below.
    owner: AtomicUsize,
    /// The owner while it has the state; 0 otherwise. Only the owner writes here.
    inside: AtomicUsize,
    /// When nobody owns the cell: the thread that has the state; 0 if none has.
    holder: AtomicUsize,
    state: UnsafeCell<T>,
}

/// Nobody has come yet.
const UNUSED: usize = 0;
/// The bias is being taken away.
const REVOKED: usize = 1;
/// There is no bias: `holder` is a lock.
const SHARED: usize = 2;

/// No thread, in `inside` and `holder`.
const NONE: usize = 0;

// INVARIANT: never both at once. `holder` is taken only after `owner` was seen to be SHARED, which is
// stored after REVOKED, a barrier in all threads, and the sight of an empty `inside` in this order; an
// owner that wrote `inside` before the barrier is seen and waited for, and one that wrote it later sees
// that it is the owner no more and leaves without the state. Nobody becomes owner after that.
// SAFETY: the state is lent by `with` and `try_with` only, to the thread that `inside` or `holder` names:
// one at a time, by the invariant.
unsafe impl<T: Send> Sync for EngineCell<T> {}

/// Gives the state back, also when the closure panics.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        // SYNC POINT: engine-cell (acquired in `lock` and `revoke`)
        self.0.store(NONE, Ordering::Release);
    }
}

/// A number that no other living thread has. A later thread may have it again when this one has ended;
/// what this one did has then happened before.
#[inline(always)]
fn this_thread() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        let pointer: usize;
        // SAFETY: the ABI's thread pointer: the first word of the thread's control block holds its own
        // address, and a thread keeps its block. Reads that one word, and touches nothing else.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    {
        thread_local! {
            static MARK: u64 = const { 0 };
        }
        MARK.with(|mark| std::ptr::from_ref(mark).addr())
    }
}

impl<T> EngineCell<T> {
    /// A cell that nobody has used yet.
    pub const fn new(state: T) -> Self {
        Self {
            owner: AtomicUsize::new(UNUSED),
            inside: AtomicUsize::new(NONE),
            holder: AtomicUsize::new(NONE),
            state: UnsafeCell::new(state),
        }
    }

    /// Lends the state to `f`; waits while another thread has it.
    ///
    /// # Panics
    /// When this thread has it already: `f` of an outer call is still running, and has called out.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let me = this_thread();
        let taken = if self.enter(me) { &self.inside } else { self.lock(me) };
        self.lend(taken, f)
    }

    /// Lends the state to `f`, or returns `None` when somebody has it.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = this_thread();
        let taken = if self.enter(me) { &self.inside } else { self.try_lock(me)? };
        Some(self.lend(taken, f))
    }

    /// `taken` is `inside` or `holder`, and says that this thread has the state.
    #[inline(always)]
    fn lend<R>(&self, taken: &AtomicUsize, f: impl FnOnce(&mut T) -> R) -> R {
        let _leave = Leave(taken);
        // SAFETY: this thread took the state, and not twice: no other `&mut` exists until `_leave` drops.
        f(unsafe { &mut *self.state.get() })
    }

    /// The owner's way in.
    #[inline(always)]
    fn enter(&self, me: usize) -> bool {
        if self.owner.load(Ordering::Relaxed) != me || self.inside.load(Ordering::Relaxed) != NONE {
            return false;
        }
        self.inside.store(me, Ordering::Relaxed);
        barrier::light();
        if self.owner.load(Ordering::Relaxed) == me {
            return true;
        }
        self.inside.store(NONE, Ordering::Release);
        false
    }

    /// Everybody else's way in, and the owner's first.
    #[cold]
    #[inline(never)]
    fn lock(&self, me: usize) -> &AtomicUsize {
        let mut spins = 0;
        loop {
            if let Some(taken) = self.try_lock(me) {
                return taken;
            }
            let has = |word: &AtomicUsize| word.load(Ordering::Relaxed) == me;
            assert!(!has(&self.inside) && !has(&self.holder), "engine borrowed twice");
            pause(&mut spins);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock(&self, me: usize) -> Option<&AtomicUsize> {
        if self.owner.load(Ordering::Acquire) != SHARED {
            if self.own(me) {
                return self.enter(me).then_some(&self.inside);
            }
            if !self.revoke(me) {
                return None;
            }
        }
        // SYNC POINT: engine-cell (released in `Leave::drop`)
        let taken = self.holder.compare_exchange(NONE, me, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(&self.holder)
    }

    /// Makes the first thread that comes the owner; whether this thread is it now.
    fn own(&self, me: usize) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != UNUSED {
            return owner == me;
        }
        // Without the kernel's help nobody may own anything.
        let first = if barrier::is_available() { me } else { SHARED };
        let won = self.owner.compare_exchange(UNUSED, first, Ordering::AcqRel, Ordering::Relaxed);
        won.is_ok() && first == me
    }

    /// Takes the bias away, and waits until the owner is out; false when this thread is the owner and
    /// inside.
    fn revoke(&self, me: usize) -> bool {
        if self.inside.load(Ordering::Relaxed) == me {
            return false;
        }
        let owner = self.owner.load(Ordering::Acquire);
        if owner == SHARED {
            return true;
        }
        if owner != REVOKED {
            let _ = self.owner.compare_exchange(owner, REVOKED, Ordering::AcqRel, Ordering::Acquire);
        }
        // Also when another thread took it away: it must not be relied on that its barrier is over.
        barrier::heavy();
        let mut spins = 0;
        // SYNC POINT: engine-cell (released in `Leave::drop`)
        while self.inside.load(Ordering::Acquire) != NONE {
            pause(&mut spins);
        }
        self.owner.store(SHARED, Ordering::Release);
        true
    }
}

/// One turn of a waiting loop: what is waited for takes less than a microsecond, unless its thread is not
/// running.
fn pause(spins: &mut u32) {
    *spins = spins.wrapping_add(1);
    if spins.is_multiple_of(64) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    /// A cell with an owner, and one that several threads have used.
    fn cells() -> [EngineCell<u64>; 2] {
        let cells = [EngineCell::new(1), EngineCell::new(1)];
        cells.iter().for_each(|cell| cell.with(|_| ()));
        std::thread::scope(|s| s.spawn(|| cells[1].with(|_| ())).join()).expect("no panic");
        assert_eq!(cells[1].owner.load(Ordering::Relaxed), SHARED);
        cells
    }

    #[test]
    fn a_nested_borrow_is_a_bug_and_says_so() {
        for cell in cells() {
            let nested = catch_unwind(AssertUnwindSafe(|| cell.with(|_| cell.with(|n| *n += 1))));
            let text = *nested.expect_err("refused").downcast::<&str>().expect("a text");
            assert_eq!(text, "engine borrowed twice");
            assert_eq!(cell.with(|n| *n), 1, "it is given back");
        }
    }

    #[test]
    fn a_nested_try_is_refused() {
        for cell in cells() {
            assert_eq!(cell.with(|_| cell.try_with(|n| *n)), None);
            assert_eq!(cell.try_with(|n| *n), Some(1));
        }
    }

    #[test]
    fn a_panic_gives_the_state_back() {
        for cell in cells() {
            let caught = catch_unwind(AssertUnwindSafe(|| cell.with(|_| panic!("inside"))));
            assert!(caught.is_err());
            assert_eq!(cell.with(|n| *n), 1);
        }
    }

    /// What safe code can make, a static, must be sound whoever calls it.
    #[test]
    fn a_cell_in_a_static_lends_one_borrow_at_a_time() {
        static CELL: EngineCell<[u64; 2]> = EngineCell::new([0; 2]);
        let most: u64 = if cfg!(miri) { 100 } else { 50_000 };
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..most {
                        CELL.with(|both| {
                            assert_eq!(both[0], both[1]);
                            both[0] += 1;
                            std::hint::spin_loop();
                            both[1] += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(CELL.with(|both| *both), [4 * most; 2]);
    }

    /// The moment at which a second and a third thread come, many times.
    #[test]
    fn threads_that_come_later_are_waited_for() {
        let rounds = if cfg!(miri) { 10 } else { 3_000 };
        for round in 0..rounds {
            let cell = EngineCell::new([0_u64; 2]);
            let begin = Barrier::new(3);
            let over = AtomicBool::new(false);
            let work = |count: u64| {
                for _ in 0..count {
                    cell.with(|both| {
                        both[0] += 1;
                        assert_eq!(both[0], both[1] + 1, "somebody else is inside");
                        both[1] += 1;
                    });
                }
            };
            std::thread::scope(|s| {
                s.spawn(|| {
                    work(1);
                    begin.wait();
                    while !over.load(Ordering::Acquire) {
                        work(1);
                    }
                });
                let late: Vec<_> = (0..2)
                    .map(|_| {
                        s.spawn(|| {
                            begin.wait();
                            for _ in 0..round % 64 {
                                std::hint::spin_loop();
                            }
                            work(20);
                        })
                    })
                    .collect();
                let ended: Vec<_> = late.into_iter().map(|thread| thread.join()).collect();
                over.store(true, Ordering::Release);
                assert!(ended.iter().all(Result::is_ok));
            });
            assert!(cell.with(|both| both[0] == both[1] && both[0] >= 41));
        }
    }

    /// A thread that comes while the owner is inside waits until the owner is out, and the owner still
    /// notices that it calls itself.
    #[test]
    fn the_owner_is_waited_for_and_does_not_wait_for_itself() {
        let cell = EngineCell::new(0);
        let (inside, tried) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                inside.wait();
                tried.store(true, Ordering::Release);
                cell.with(|n| std::mem::replace(n, 9))
            });
            cell.with(|n| {
                inside.wait();
                while !tried.load(Ordering::Acquire) || cell.owner.load(Ordering::Relaxed) == this_thread() {
                    std::thread::yield_now();
                }
                assert_eq!(cell.try_with(|n| *n), None);
                assert!(catch_unwind(AssertUnwindSafe(|| cell.with(|n| *n += 1))).is_err());
                *n = 7;
            });
            assert_eq!(other.join().expect("no panic"), 7);
        });
        assert_eq!(cell.with(|n| *n), 9);
    }

    #[test]
    fn a_thread_is_told_from_others_that_live() {
        let here = this_thread();
        assert!(here > SHARED && here == this_thread());
        std::thread::scope(|s| {
            let there = s.spawn(this_thread).join().expect("no panic");
            assert_ne!(here, there);
        });
    }
}
