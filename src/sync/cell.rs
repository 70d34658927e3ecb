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
//!
//! The owner reads two words: its `door`, which says at once that it is the owner and not inside, and the
//! `bars`, of which the one that takes the bias away is the first. Users of a cell may put up bars of
//! their own, for a short path that looks at them without looking twice ([`EngineCell::with_unless`]).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::barrier;

/// Shared state with one borrower at a time.
pub struct EngineCell<T> {
    /// The mark of the owner, with `INSIDE` while it has the state by this way; 0 without an owner. Only the
    /// owner writes here.
    door: AtomicUsize,
    /// What keeps the owner from going in by its door: `REVOKED`, and what users put up.
    bars: AtomicU32,
    /// The thread that may go in by the door, or one of the constants below.
    owner: AtomicUsize,
    /// When nobody owns the cell: the mark of the thread that has the state, with `INSIDE`, or of the one that
    /// had it last.
    holder: AtomicUsize,
    state: UnsafeCell<T>,
}

/// What is done with the state on a short path. Unlike a closure, it can be told to be a part of its caller.
pub trait Visit<T> {
    /// What comes of it.
    type Out;

    /// Does it.
    fn visit(self, state: &mut T) -> Self::Out;
}

/// Nobody has come yet.
pub(super) const UNUSED: usize = 0;
/// The bias is being taken away.
pub(super) const REVOKING: usize = 2;
/// There is no bias: `holder` is a lock.
pub(super) const SHARED: usize = 4;

/// No thread, in `door` and `holder`.
pub(super) const NOBODY: usize = 0;
/// The thread of the mark has the state. Marks are even.
pub(super) const INSIDE: usize = 1;

/// The bar of those who take the bias away.
pub(super) const REVOKED: u32 = 1;

/// The orderings that keep one from coming in while another is inside, or from not seeing what it has written; `cell_model`
/// tries them out. Those that are not named here order nothing that they do not.
pub(super) mod order {
    use std::sync::atomic::Ordering;

    /// Of who gives the state back.
    /// SYNC POINT: engine-cell (acquired by `OUT` and `TAKE`)
    pub(crate) const LEAVE: Ordering = Ordering::Release;
    /// Of an owner that has found its door taken away: the last that is written there.
    pub(crate) const GONE: Ordering = Ordering::Release;
    /// Of who waits until the owner is out.
    pub(crate) const OUT: Ordering = Ordering::Acquire;
    /// Of who has seen the owner out, and says that the cell is everybody's.
    /// SYNC POINT: engine-cell shared (acquired by `SHARED` and `SETTLED`)
    pub(crate) const SHARE: Ordering = Ordering::Release;
    /// Of who looks whether it is.
    pub(crate) const SHARED: Ordering = Ordering::Acquire;
    /// Of who looks again before it takes the bias away.
    pub(crate) const SETTLED: Ordering = Ordering::Acquire;
    /// Of who takes the lock.
    pub(crate) const TAKE: Ordering = Ordering::Acquire;
}

/// What a user of a cell puts up before the owner's door: one of 31, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bars(u32);

impl Bars {
    /// None.
    pub const NONE: Self = Self(0);

    /// One of the first 31.
    pub const fn number(number: u32) -> Self {
        assert!(number < 31);
        Self(REVOKED << 1 << number)
    }

    /// These and those.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

// INVARIANT: never two at once. `holder` is taken only after `owner` was seen to be SHARED, which is
// stored after the bar REVOKED, a barrier in all threads, and the sight of a door without INSIDE in this
// order; an owner that wrote INSIDE before the barrier is seen and waited for, and one that wrote it later
// sees the bar and leaves without the state. Nobody becomes owner after that.
// SAFETY: the state is lent by `with`, `try_with`, `with_unless`, `visit` and `admit` only, to the thread whose mark is in
// `door` or `holder` with INSIDE: one at a time, by the invariant.
unsafe impl<T: Send> Sync for EngineCell<T> {}

/// Gives the state back, also when the closure panics.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody else writes to it while it says that this thread is inside.
        let mark = self.0.load(Ordering::Relaxed) & !INSIDE;
        self.0.store(mark, order::LEAVE);
    }
}

/// An even number that no other living thread has, and none of the constants above. A later thread may have
/// it again when this one has ended; what this one did has then happened before.
#[inline(always)]
pub(super) fn this_thread() -> usize {
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

/// Whether this is the number of the thread that asks. That costs less than to have the number.
#[inline(always)]
fn is_this_thread(number: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        // SAFETY: compares with that one word of the thread's control block, and touches nothing else.
        unsafe {
            std::arch::asm!(
                "cmp {}, fs:0",
                "jne {}",
                in(reg) number,
                label { return false },
                options(nomem, nostack)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    {
        number == this_thread()
    }
}

impl<T> EngineCell<T> {
    /// A cell that nobody has used yet.
    pub const fn new(state: T) -> Self {
        Self {
            door: AtomicUsize::new(NOBODY),
            bars: AtomicU32::new(0),
            owner: AtomicUsize::new(UNUSED),
            holder: AtomicUsize::new(NOBODY),
            state: UnsafeCell::new(state),
        }
    }

    /// The state itself, when nobody can come any more.
    pub fn into_inner(self) -> T {
        self.state.into_inner()
    }

    /// Lends the state to `f`; waits while another thread has it.
    ///
    /// # Panics
    /// When this thread has it already: `f` of an outer call is still running, and has called out.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let taken = if self.enter(Bars::NONE) { &self.door } else { self.lock(this_thread()) };
        self.lend(taken, f)
    }

    /// Lends the state to `f`, or returns `None` when somebody has it. It waits for nobody: in a child of fork(2), not for
    /// a thread of its parent that had it.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let taken = if self.enter(Bars::NONE) { &self.door } else { self.try_lock(this_thread(), false)? };
        Some(self.lend(taken, f))
    }

    /// Lends the state to `f` if this thread owns the cell, nobody has it, and none of these bars is up. That
    /// costs least; all else is `None` at once, and `with` must follow.
    #[inline(always)]
    pub fn with_unless<R>(&self, bars: Bars, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.enter(bars).then(|| self.lend(&self.door, f))
    }

    /// The same for a visit, on a path where a call would cost.
    #[inline(always)]
    pub fn visit<V: Visit<T>>(&self, visit: V) -> Option<V::Out> {
        if !self.enter(Bars::NONE) {
            return None;
        }
        let _leave = Leave(&self.door);
        // SAFETY: as in `lend`.
        Some(visit.visit(unsafe { &mut *self.state.get() }))
    }

    /// Lends the state to a visit as [`with`](Self::with) does to a closure.
    ///
    /// # Panics
    /// As `with`.
    #[inline(always)]
    pub fn admit<V: Visit<T>>(&self, visit: V) -> V::Out {
        let taken = if self.enter(Bars::NONE) { &self.door } else { self.lock(this_thread()) };
        let _leave = Leave(taken);
        // SAFETY: as in `lend`.
        visit.visit(unsafe { &mut *self.state.get() })
    }

    /// Puts bars up, or takes them away.
    pub fn bar(&self, bars: Bars, up: bool, order: Ordering) {
        if up {
            self.bars.fetch_or(bars.0, order);
        } else {
            self.bars.fetch_and(!bars.0, order);
        }
    }

    /// Door, bars, owner and holder, as they are.
    #[cfg(test)]
    pub(super) fn words(&self) -> [usize; 4] {
        let Self { door, bars, owner, holder, .. } = self;
        let bars = bars.load(Ordering::Relaxed) as usize;
        let [door, owner, holder] = [door, owner, holder].map(|word| word.load(Ordering::Relaxed));
        [door, bars, owner, holder]
    }

    /// Whether any of these bars is up.
    #[inline(always)]
    pub fn has_bar(&self, bars: Bars, order: Ordering) -> bool {
        self.bars.load(order) & bars.0 != 0
    }

    /// `taken` is `door` or `holder`, and says that this thread has the state.
    #[inline(always)]
    fn lend<R>(&self, taken: &AtomicUsize, f: impl FnOnce(&mut T) -> R) -> R {
        let _leave = Leave(taken);
        // SAFETY: this thread took the state, and not twice: no other `&mut` exists until `_leave` drops.
        f(unsafe { &mut *self.state.get() })
    }

    /// The owner's way in.
    #[inline(always)]
    fn enter(&self, bars: Bars) -> bool {
        if !is_this_thread(self.door.load(Ordering::Relaxed)) {
            return false;
        }
        self.door.store(self.door.load(Ordering::Relaxed) | INSIDE, Ordering::Relaxed);
        barrier::light();
        let bars = Bars(REVOKED).and(bars);
        if !self.has_bar(bars, Ordering::Relaxed) {
            return true;
        }
        self.step_back();
        false
    }

    /// The owner has found a bar behind its door.
    #[cold]
    #[inline(never)]
    fn step_back(&self) {
        drop(Leave(&self.door));
        if self.has_bar(Bars(REVOKED), Ordering::Relaxed) {
            // Nobody is owner any more.
            self.door.store(NOBODY, order::GONE);
        }
    }

    /// Everybody else's way in, and the owner's first.
    #[cold]
    #[inline(never)]
    fn lock(&self, me: usize) -> &AtomicUsize {
        let mut spins = 0;
        loop {
            if let Some(taken) = self.try_lock(me, true) {
                return taken;
            }
            let has = |word: &AtomicUsize| word.load(Ordering::Relaxed) == me | INSIDE;
            assert!(!has(&self.door) && !has(&self.holder), "engine borrowed twice");
            pause(&mut spins);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_lock(&self, me: usize, waits: bool) -> Option<&AtomicUsize> {
        if self.owner.load(order::SHARED) != SHARED {
            if self.own(me) {
                return self.enter(Bars::NONE).then_some(&self.door);
            }
            if !self.revoke(me, waits) {
                return None;
            }
        }
        let last = self.holder.load(Ordering::Relaxed);
        if last & INSIDE != 0 {
            return None;
        }
        let taken = self.holder.compare_exchange(last, me | INSIDE, order::TAKE, Ordering::Relaxed);
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
        if won.is_err() || first != me {
            return false;
        }
        // Whoever takes this away in between puts its bar up first, which is seen behind the door.
        self.door.store(me, Ordering::Relaxed);
        true
    }

    /// Takes the bias away, and waits until the owner is out; false when this thread is the owner and
    /// inside, or, for one that does not wait, when another is. Whoever comes next then begins anew.
    fn revoke(&self, me: usize, waits: bool) -> bool {
        if self.door.load(Ordering::Relaxed) == me | INSIDE {
            return false;
        }
        let owner = self.owner.load(order::SETTLED);
        if owner == SHARED {
            return true;
        }
        if owner != REVOKING {
            let _ = self.owner.compare_exchange(owner, REVOKING, Ordering::AcqRel, Ordering::Acquire);
        }
        self.bars.fetch_or(REVOKED, Ordering::AcqRel);
        // Also when another thread took it away: it must not be relied on that its barrier is over.
        barrier::heavy();
        let mut spins = 0;
        while self.door.load(order::OUT) & INSIDE != 0 {
            if !waits {
                return false;
            }
            pause(&mut spins);
        }
        self.owner.store(SHARED, order::SHARE);
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
    fn who_tries_waits_for_no_owner() {
        let (cell, inside, told) = (EngineCell::new(1), Barrier::new(2), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                cell.with(|state| {
                    inside.wait();
                    told.wait();
                    *state += 1;
                });
                cell.with(|state| *state += 1);
            });
            inside.wait();
            assert_eq!((cell.try_with(|_| ()), cell.try_with(|_| ())), (None, None));
            told.wait();
            cell.with(|state| *state += 1);
        });
        assert_eq!((cell.try_with(|state| *state), cell.owner.load(Ordering::Relaxed)), (Some(4), SHARED));
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

    struct More(bool);

    impl Visit<u64> for More {
        type Out = u64;

        fn visit(self, state: &mut u64) -> u64 {
            *state += 1;
            assert!(!self.0, "inside");
            *state
        }
    }

    #[test]
    fn a_visit_is_the_owners_alone_and_gives_the_state_back() {
        let [own, shared] = cells();
        assert_eq!((own.visit(More(false)), shared.visit(More(false))), (Some(2), None));
        assert_eq!(own.with(|_| own.visit(More(false))), None, "it is lent");
        assert!(catch_unwind(AssertUnwindSafe(|| own.visit(More(true)))).is_err());
        assert_eq!((own.visit(More(false)), shared.with(|n| *n)), (Some(4), 1));
        std::thread::scope(|s| s.spawn(|| assert_eq!(own.visit(More(false)), None)).join())
            .expect("no panic");
    }

    #[test]
    fn a_visit_is_admitted_whoever_asks_and_gives_the_state_back() {
        struct Count;
        impl Visit<u64> for Count {
            type Out = u64;
            fn visit(self, state: &mut u64) -> u64 {
                *state += 1;
                *state
            }
        }
        for cell in cells() {
            let before = cell.with(|state| *state);
            assert_eq!(cell.admit(Count), before + 1);
            std::thread::scope(|scope| {
                let there = scope.spawn(|| cell.admit(Count));
                assert_eq!(there.join().expect("no panic"), before + 2);
            });
            assert_eq!((cell.admit(Count), cell.try_with(|state| *state)), (before + 3, Some(before + 3)));
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

    #[test]
    fn the_short_way_in_is_the_owners_alone_while_no_bar_is_up() {
        const FIRST: Bars = Bars::number(0);
        const LAST: Bars = Bars::number(30);
        let cell = EngineCell::new(1);
        let short = |bars| cell.with_unless(bars, |n| *n);
        assert_eq!(short(Bars::NONE), None, "nobody owns it yet");
        assert_eq!((cell.with(|n| *n), short(Bars::NONE)), (1, Some(1)));
        assert_eq!(cell.with(|_| short(Bars::NONE)), None, "it is lent");
        assert_eq!(cell.with_unless(Bars::NONE, |_| cell.try_with(|n| *n)), Some(None), "it is lent");
        cell.bar(LAST, true, Ordering::Relaxed);
        assert!(cell.has_bar(FIRST.and(LAST), Ordering::Relaxed) && !cell.has_bar(FIRST, Ordering::Relaxed));
        assert_eq!([FIRST, LAST, FIRST.and(LAST)].map(short), [Some(1), None, None]);
        assert_eq!(cell.with(|n| *n), 1, "bars are for those who look for them");
        cell.bar(LAST, false, Ordering::Relaxed);
        assert_eq!(short(FIRST.and(LAST)), Some(1));
        std::thread::scope(|s| s.spawn(|| assert_eq!(short(Bars::NONE), None)).join()).expect("no panic");
        assert_eq!(short(Bars::NONE), Some(1), "who only tried has taken nothing away");
        std::thread::scope(|s| s.spawn(|| cell.with(|_| ())).join()).expect("no panic");
        assert_eq!(short(Bars::NONE), None, "it is everybody's");
        assert_eq!(cell.with(|n| *n), 1);
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
            let step = |both: &mut [u64; 2]| {
                both[0] += 1;
                assert_eq!(both[0], both[1] + 1, "somebody else is inside");
                both[1] += 1;
            };
            let work = |count: u64| {
                for n in 0..count {
                    // By the short way where there is one, and by the other now and then all the same.
                    if n == 7 || cell.with_unless(Bars::NONE, step).is_none() {
                        cell.with(step);
                    }
                }
            };
            std::thread::scope(|s| {
                s.spawn(|| {
                    work(1);
                    begin.wait();
                    while !over.load(Ordering::Acquire) {
                        work(9);
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
        assert!(is_this_thread(here) && !is_this_thread(here | INSIDE) && !is_this_thread(NOBODY));
        assert!(here > SHARED && here & INSIDE == 0 && here == this_thread());
        std::thread::scope(|s| {
            let there = s.spawn(this_thread).join().expect("no panic");
            assert_ne!(here, there);
            assert!(
                !is_this_thread(there) && !s.spawn(move || is_this_thread(here)).join().expect("no panic")
            );
        });
    }
}
