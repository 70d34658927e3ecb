//! Pages that the driver has said are not its own, for as long as they stay mapped.
//!
//! Memory that a program maps apart, as `malloc` does for large arrays, can become a device's: it is unmapped, and the
//! driver puts memory of a device there. So an answer of the driver's holds until then and no longer, and is kept only where
//! somebody tells before memory goes. That somebody is the host, whose hooks change the first instructions of `munmap` and
//! its like ([`gone`] is what they call); whether they do is its own matter, for it is no small thing to a process with
//! threads. Others do the same to the same functions, and then nothing is told any more: therefore it is tried before the
//! first answer is kept, and [looked at](Watch) with each answer, and all is forgotten for good when it is so no more.
//!
//! What is kept is one page, that of the address: whoever has been told that it goes has unmapped a buffer in
//! use. A page is kept when it is asked about for the second time before long, so that a copy which passes through a large
//! array once costs nothing, and only if the processor can read it: of addresses that are
//! reserved for devices the driver knows nothing before something is mapped there. The data of libraries is not kept:
//! who unloads one has the loader unmap it, which has instructions of its own for that.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::unmapped::{self, PAGE, Proof, Watch};

/// Places that a page may be in.
const WAYS: usize = 4;
/// Sets of such places.
const SETS: usize = 256;

type Set = [AtomicUsize; WAYS];

/// Answers, and whether they may be kept.
struct Pages {
    /// Numbers of pages that are the host's; in a place without one, that of the first page, which is nobody's.
    kept: [Set; SETS],
    /// Numbers of pages that were asked about last; with all bits inverted those of pages that are never kept.
    asked: [Set; SETS],
    /// Where the next goes in a set that is full.
    turn: AtomicUsize,
    /// Whether it is told when pages go.
    watch: Watch,
}

static PAGES: Pages = Pages::new();

/// Has [`gone`] called from then on before memory goes, if that can be had now.
type Asks = fn() -> bool;

static ASKS: OnceLock<Asks> = OnceLock::new();

/// From now on it may be asked for that [`gone`] is called: the first who has says how.
pub fn begin(asks: Asks) {
    ASKS.get_or_init(|| asks);
    PAGES.begin();
}

/// This memory goes, or may: nothing about it is kept. Called from within `munmap`, on any thread, whatever locks it
/// holds.
pub fn gone(start: usize, len: usize) {
    PAGES.gone(start, len);
}

/// That ends.
pub fn end() {
    PAGES.end();
}

/// Whether the page of an address is known to be the host's. A call of its own, so that who knows already pays nothing.
#[inline(never)]
pub(super) fn is_known(address: usize) -> bool {
    PAGES.is_known(address)
}

/// The driver has said that an address is not its own.
pub(super) fn not_the_drivers(address: usize) {
    PAGES.not_the_drivers(
        address,
        || ASKS.get().is_some_and(|asks| asks()),
        |pages| unmapped::prove(&pages.watch),
    );
}

/// The set of a page. Buffers lie at great powers of two from each other: all bits count (Knuth's multiplicative hash).
#[inline]
fn set_of(page: usize) -> usize {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SETS.ilog2())
}

fn holds(set: &Set, page: usize) -> bool {
    set.iter().any(|place| place.load(Ordering::Relaxed) == page)
}

impl Pages {
    const fn new() -> Self {
        Self {
            kept: [const { [const { AtomicUsize::new(0) }; WAYS] }; SETS],
            asked: [const { [const { AtomicUsize::new(0) }; WAYS] }; SETS],
            turn: AtomicUsize::new(0),
            watch: Watch::new(),
        }
    }

    fn begin(&self) {
        self.watch.begin();
    }

    #[inline]
    fn is_known(&self, address: usize) -> bool {
        let page = address / PAGE;
        holds(&self.kept[set_of(page)], page) && self.watch.is_told()
    }

    /// A place in a set: one that is empty, or else each in turn.
    fn place<'a>(&self, set: &'a Set) -> &'a AtomicUsize {
        let empty = set.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        empty.unwrap_or_else(|| &set[self.turn.fetch_add(1, Ordering::Relaxed) % WAYS])
    }

    /// Where nobody tells, little is done here: nothing takes a lock.
    #[cold]
    fn not_the_drivers(&self, address: usize, asks: Asks, prove: fn(&Self) -> Proof) {
        if !self.watch.has_begun() {
            return;
        }
        if !self.watch.is_trusted() {
            if !asks() {
                return;
            }
            match self.watch.try_out(|| prove(self)) {
                Some(true) => {}
                Some(false) => return self.end(),
                None => return,
            }
        }
        if !self.watch.is_told() {
            return self.end();
        }
        let page = address / PAGE;
        let (asked, kept) = (&self.asked[set_of(page)], &self.kept[set_of(page)]);
        if page == 0 || holds(asked, !page) {
            return;
        }
        let Some(place) = asked.iter().find(|place| place.load(Ordering::Relaxed) == page) else {
            self.place(asked).store(page, Ordering::Relaxed);
            return;
        };
        if is_a_librarys(address) || !is_readable(address) {
            place.store(!page, Ordering::Relaxed);
            return;
        }
        // Should it be driven out, it has to be asked about twice again.
        place.store(0, Ordering::Relaxed);
        let place = self.place(kept);
        // It may have ended meanwhile on another thread: either that empties this place, or it is seen here.
        place.store(page, Ordering::SeqCst);
        if !self.watch.is_trusted() {
            place.store(0, Ordering::Relaxed);
        }
    }

    fn gone(&self, start: usize, len: usize) {
        let Some(last) = len.checked_sub(1).map(|len| start.saturating_add(len) / PAGE) else { return };
        let pages = start / PAGE..=last;
        self.watch.gone(&pages);
        if !self.watch.is_trusted() {
            return;
        }
        let forget = |kept: &AtomicUsize| {
            if pages.contains(&kept.load(Ordering::Relaxed)) {
                kept.store(0, Ordering::Relaxed);
            }
        };
        if last - start / PAGE < SETS {
            pages.clone().for_each(|page| self.kept[set_of(page)].iter().for_each(forget));
        } else {
            self.kept.as_flattened().iter().for_each(forget);
        }
    }

    fn end(&self) {
        self.watch.end();
        for place in self.kept.as_flattened().iter().chain(self.asked.as_flattened()) {
            place.store(0, Ordering::SeqCst);
        }
    }
}

/// Whether an address is in what the loader has mapped, and may unmap.
fn is_a_librarys(address: usize) -> bool {
    unmapped::library(address).is_some()
}

/// Whether the processor can read what is at an address.
fn is_readable(address: usize) -> bool {
    let mut byte = 0_u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: 1 };
    // SAFETY: takes nothing.
    let this = unsafe { libc::getpid() };
    // SAFETY: room for a byte; what cannot be read is an error and no fault.
    unsafe { libc::process_vm_readv(this, &raw const here, 1, &raw const there, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    const PLACES: usize = WAYS * SETS;

    /// Instructions that tell.
    fn told(_: &Pages) -> Proof {
        Proof::told_by(Box::leak(Box::new(AtomicU64::new(0xc3))), 0xc3)
    }

    fn begun() -> Box<Pages> {
        let pages = Box::new(Pages::new());
        pages.begin();
        pages
    }

    fn ask(pages: &Pages, address: usize) {
        pages.not_the_drivers(address, || true, told);
    }

    fn keep(pages: &Pages, address: usize) {
        ask(pages, address);
        ask(pages, address);
    }

    fn memory(len: usize) -> (memmap2::MmapMut, usize) {
        let memory = memmap2::MmapMut::map_anon(len).expect("a mapping");
        let start = memory.as_ptr().addr();
        (memory, start)
    }

    #[test]
    fn a_page_is_known_from_the_second_answer_until_it_goes() {
        let (_memory, start) = memory(3 * PAGE);
        let pages = begun();
        ask(&pages, start + PAGE);
        assert!(!pages.is_known(start + PAGE), "asked about once");
        ask(&pages, start + PAGE + 77);
        assert!(pages.is_known(start + PAGE) && pages.is_known(start + 2 * PAGE - 1));
        assert!(!pages.is_known(start) && !pages.is_known(start + 2 * PAGE), "its neighbours");
        pages.gone(start, PAGE);
        pages.gone(start + 2 * PAGE, PAGE);
        pages.gone(start + PAGE, 0);
        assert!(pages.is_known(start + PAGE), "others went");
        pages.gone(start + 2 * PAGE - 1, 1);
        assert!(!pages.is_known(start + PAGE));
        keep(&pages, start + PAGE);
        pages.gone(0, usize::MAX);
        assert!(!pages.is_known(start + PAGE), "all went");
        keep(&pages, start + PAGE);
        pages.gone(start, (PLACES + 3) * PAGE);
        assert!(!pages.is_known(start + PAGE), "more went than there are places");
    }

    #[test]
    fn what_passes_through_an_array_does_not_drive_out_what_is_used() {
        let (_memory, start) = memory(4 * PLACES * PAGE);
        let pages = begun();
        keep(&pages, start);
        (0..4 * PLACES).for_each(|page| ask(&pages, start + page * PAGE));
        assert!(pages.is_known(start));
        assert_eq!((1..4 * PLACES).filter(|page| pages.is_known(start + page * PAGE)).count(), 0);
    }

    #[test]
    fn what_nobody_can_read_is_not_kept() {
        let (memory, start) = memory(PAGE);
        // SAFETY: a page of ours, which nothing refers to.
        assert_eq!(unsafe { libc::mprotect(memory.as_ptr().cast_mut().cast(), PAGE, libc::PROT_NONE) }, 0);
        let pages = begun();
        keep(&pages, start);
        assert!(!pages.is_known(start), "reserved addresses");
        assert!(holds(&pages.asked[set_of(start / PAGE)], !(start / PAGE)), "it is looked at once");
        keep(&pages, usize::MAX);
        assert!(!pages.is_known(usize::MAX));
    }

    #[test]
    fn the_data_of_libraries_is_not_kept() {
        static DATA: AtomicU64 = AtomicU64::new(1);
        let pages = begun();
        let start = ptr::from_ref(&DATA).addr();
        (0..4).for_each(|_| ask(&pages, start));
        assert!(!pages.is_known(start), "the loader unmaps it untold");
    }

    #[test]
    fn it_is_tried_by_one_thread_alone() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        fn tries(pages: &Pages) -> Proof {
            TRIES.fetch_add(1, Ordering::Relaxed);
            // As another thread would meanwhile.
            let (_memory, start) = memory(PAGE);
            (0..2).for_each(|_| pages.not_the_drivers(start, || true, |_| panic!("a second try")));
            told(pages)
        }
        let (_memory, start) = memory(PAGE);
        let pages = begun();
        (0..3).for_each(|_| pages.not_the_drivers(start, || true, tries));
        assert!(pages.is_known(start));
        assert_eq!(TRIES.load(Ordering::Relaxed), 1);
        pages.end();
        pages.begin();
        keep(&pages, start);
        assert!(pages.is_known(start), "begun anew, it is tried anew");
    }

    #[test]
    fn nothing_is_kept_unless_somebody_tells() {
        let (_memory, start) = memory(PAGE);
        let pages = Box::new(Pages::new());
        keep(&pages, start);
        assert!(!pages.is_known(start), "nobody has said so");
        let pages = begun();
        (0..3).for_each(|_| pages.not_the_drivers(start, || true, |_| Proof::Never));
        assert!(!pages.is_known(start) && !pages.watch.has_begun(), "it is not so");
        let pages = begun();
        (0..3).for_each(|_| pages.not_the_drivers(start, || true, |pages| unmapped::prove(&pages.watch)));
        assert!(!pages.is_known(start), "in this process nobody tells");
    }

    #[test]
    fn who_cannot_tell_yet_is_asked_again() {
        let (_memory, start) = memory(PAGE);
        let pages = begun();
        (0..5).for_each(|_| pages.not_the_drivers(start, || false, |_| panic!("not tried")));
        (0..5).for_each(|_| pages.not_the_drivers(start, || true, |_| Proof::NotYet));
        assert!(!pages.is_known(start));
        let untouched =
            |places: &[Set]| places.as_flattened().iter().all(|place| place.load(Ordering::Relaxed) == 0);
        assert!(untouched(&pages.asked), "nothing is looked at meanwhile");
        keep(&pages, start);
        assert!(pages.is_known(start));
    }

    #[test]
    fn who_proves_it_after_the_end_has_proven_nothing() {
        let (_memory, start) = memory(PAGE);
        let pages = begun();
        let late = |pages: &Pages| {
            pages.end();
            told(pages)
        };
        pages.not_the_drivers(start, || true, late);
        assert!(!pages.watch.is_trusted());
        pages.begin();
        keep(&pages, start);
        assert!(pages.is_known(start));
    }

    #[test]
    fn pages_at_great_powers_of_two_from_each_other_are_known_together() {
        let (_memory, start) = memory(8 << 21);
        let pages = begun();
        for _ in 0..2 {
            (0..8).for_each(|at| ask(&pages, start + (at << 21)));
        }
        assert!((0..8).all(|at| pages.is_known(start + (at << 21))));
    }

    #[test]
    fn it_is_over_for_good_when_the_instructions_are_others() {
        static CODE: AtomicU64 = AtomicU64::new(5);
        let (_memory, start) = memory(PAGE);
        let pages = begun();
        (0..2).for_each(|_| pages.not_the_drivers(start, || true, |_| Proof::told_by(&CODE, 5)));
        assert!(pages.is_known(start));
        CODE.store(6, Ordering::Relaxed);
        assert!(!pages.is_known(start), "somebody else has changed them");
        ask(&pages, start);
        CODE.store(5, Ordering::Relaxed);
        assert!(!pages.is_known(start), "meanwhile memory may have gone");
        keep(&pages, start);
        assert!(!pages.is_known(start));
        pages.begin();
        keep(&pages, start);
        assert!(pages.is_known(start), "begun anew");
        pages.end();
        assert!(!pages.is_known(start), "and ended");
    }

    #[test]
    fn a_page_that_goes_while_others_are_kept_is_never_known_after() {
        let (_memory, start) = memory(PAGE);
        let (_others, other) = memory(PLACES * PAGE);
        let pages = begun();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (0..PLACES).for_each(|page| keep(&pages, other + page * PAGE));
                }
            });
            for _ in 0..10_000 {
                keep(&pages, start);
                pages.gone(start, PAGE);
                assert!(!pages.is_known(start));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
