//! Pages that the driver has said are not its own, for as long as they stay mapped.
//!
//! Memory that a program maps apart, as `malloc` does for large arrays, can become a device's: it is unmapped, and the
//! driver puts memory of a device there. So an answer of the driver's holds until then and no longer, and is kept only where
//! somebody tells before memory goes. That somebody is the host, whose hooks change the first instructions of `munmap` and
//! its like ([`gone`] is what they call). Others do the same to the same functions, libfabric and UCX among them,
//! and then nothing is told any more: therefore
//!
//! * whether it is told is tried, with a page of our own, before the first answer is kept;
//! * the instructions at the begin of `munmap` are looked at with each answer: other ones, and all is forgotten for
//!   good;
//! * nothing is kept where these functions are not the C library's own, as under a sanitizer: its `free` would unmap
//!   without them.
//!
//! What is kept is one page, that of the address: whoever has been told that it goes has unmapped a buffer in
//! use. A page is kept when it is asked about for the second time in a row of its place, so that a copy which passes
//! through a large array once costs nothing, and only if the processor can read it: of addresses that are
//! reserved for devices the driver knows nothing before something is mapped there.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Length of a page.
const PAGE: usize = 4096;

/// Places for pages; a power of two.
const PLACES: usize = 1024;

/// Answers, and whether they may be kept.
struct Pages {
    /// Numbers of pages that are the host's; in a place without one, that of the first page, which is nobody's.
    kept: [AtomicUsize; PLACES],
    /// Numbers of pages that were asked about.
    asked: [AtomicUsize; PLACES],
    /// The instructions that tell when memory goes, once that is proven; null before, and when they are others.
    code: AtomicPtr<AtomicU64>,
    /// What they were then.
    word: AtomicU64,
    /// The page by which it is tried.
    tried: AtomicUsize,
    /// Somebody has said that we are told.
    is_begun: AtomicBool,
}

static PAGES: Pages = Pages::new();

/// From now on [`gone`] is called before memory goes, as far as the caller knows.
pub fn begin() {
    PAGES.is_begun.store(true, Ordering::Release);
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
    PAGES.not_the_drivers(address, prove);
}

fn place_of(page: usize) -> usize {
    (page ^ (page / PLACES)) % PLACES
}

impl Pages {
    const fn new() -> Self {
        Self {
            kept: [const { AtomicUsize::new(0) }; PLACES],
            asked: [const { AtomicUsize::new(0) }; PLACES],
            code: AtomicPtr::new(ptr::null_mut()),
            word: AtomicU64::new(0),
            tried: AtomicUsize::new(0),
            is_begun: AtomicBool::new(false),
        }
    }

    #[inline]
    fn is_known(&self, address: usize) -> bool {
        let page = address / PAGE;
        self.kept[place_of(page)].load(Ordering::Relaxed) == page && self.is_told()
    }

    /// Whether the instructions that tell are what they were.
    #[inline]
    fn is_told(&self) -> bool {
        let code = self.code.load(Ordering::Acquire);
        // SAFETY: null, or eight aligned bytes that stay: `trust` is called with nothing else. Who changes instructions
        // writes such a word as a whole, or what is read is neither and not equal.
        unsafe { code.as_ref() }
            .is_some_and(|code| code.load(Ordering::Relaxed) == self.word.load(Ordering::Relaxed))
    }

    /// We are told as long as these bytes are what they are now.
    fn trust(&self, code: &'static AtomicU64) {
        self.word.store(code.load(Ordering::Relaxed), Ordering::Relaxed);
        self.code.store(ptr::from_ref(code).cast_mut(), Ordering::Release);
    }

    #[cold]
    fn not_the_drivers(&self, address: usize, prove: fn(&Self) -> Option<&'static AtomicU64>) {
        if !self.is_begun.load(Ordering::Acquire) {
            return;
        }
        let is_proven = !self.code.load(Ordering::Acquire).is_null();
        if is_proven && !self.is_told() {
            return self.end();
        }
        let page = address / PAGE;
        let place = place_of(page);
        if page == 0 || self.asked[place].swap(page, Ordering::Relaxed) != page {
            return;
        }
        if !is_proven {
            match prove(self) {
                Some(code) => self.trust(code),
                None => return self.end(),
            }
        }
        if is_readable(address) {
            self.kept[place].store(page, Ordering::Relaxed);
            // It may have ended meanwhile on another thread.
            if self.code.load(Ordering::Acquire).is_null() {
                self.kept[place].store(0, Ordering::Relaxed);
            }
        }
    }

    fn gone(&self, start: usize, len: usize) {
        let Some(last) = len.checked_sub(1).map(|len| start.saturating_add(len) / PAGE) else { return };
        let pages = start / PAGE..=last;
        if pages.contains(&self.tried.load(Ordering::Relaxed)) {
            self.tried.store(0, Ordering::Relaxed);
        }
        if self.code.load(Ordering::Relaxed).is_null() {
            return;
        }
        let forget = |kept: &AtomicUsize| {
            if pages.contains(&kept.load(Ordering::Relaxed)) {
                kept.store(0, Ordering::Relaxed);
            }
        };
        if last - start / PAGE < PLACES {
            pages.clone().for_each(|page| forget(&self.kept[place_of(page)]));
        } else {
            self.kept.iter().for_each(forget);
        }
    }

    fn end(&self) {
        self.is_begun.store(false, Ordering::Release);
        self.code.store(ptr::null_mut(), Ordering::Release);
        for place in self.kept.iter().chain(&self.asked) {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Unmaps a page, and has the instructions of `munmap` if that was told.
#[cold]
fn prove(pages: &Pages) -> Option<&'static AtomicU64> {
    let code = function(c"munmap")?;
    if [c"mmap", c"mremap", c"shmdt"].into_iter().any(|name| function(name).is_none()) {
        return None;
    }
    let mapping = memmap2::MmapMut::map_anon(PAGE).ok()?;
    pages.tried.store(mapping.as_ptr().addr() / PAGE, Ordering::Relaxed);
    drop(mapping);
    (pages.tried.swap(0, Ordering::Relaxed) == 0).then_some(code)
}

/// The first instructions of a function of the C library's, unless the process calls another one by this name.
fn function(name: &CStr) -> Option<&'static AtomicU64> {
    // SAFETY: a zero-ended name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let library = |address| {
        // SAFETY: plain numbers and pointers; zero is a value of each.
        let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address; the callee fills the structure in.
        (unsafe { libc::dladdr(address, &raw mut about) } != 0).then_some(about.dli_fbase)
    };
    let own = library(libc::gnu_get_libc_version as *const () as *const _)?;
    let code = found.cast::<AtomicU64>();
    if library(found)? != own || !code.is_aligned() {
        return None;
    }
    // SAFETY: aligned, and the begin of a function, which is longer, in a library that stays.
    unsafe { code.as_ref() }
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
    use super::*;

    /// Instructions that tell.
    fn told(_: &Pages) -> Option<&'static AtomicU64> {
        Some(Box::leak(Box::new(AtomicU64::new(0xc3))))
    }

    fn begun() -> Box<Pages> {
        let pages = Box::new(Pages::new());
        pages.is_begun.store(true, Ordering::Relaxed);
        pages
    }

    fn ask(pages: &Pages, address: usize) {
        pages.not_the_drivers(address, told);
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
        keep(&pages, usize::MAX);
        assert!(!pages.is_known(usize::MAX));
    }

    #[test]
    fn nothing_is_kept_unless_somebody_tells() {
        let (_memory, start) = memory(PAGE);
        let pages = Box::new(Pages::new());
        keep(&pages, start);
        assert!(!pages.is_known(start), "nobody has said so");
        let pages = begun();
        (0..3).for_each(|_| pages.not_the_drivers(start, |_| None));
        assert!(!pages.is_known(start) && !pages.is_begun.load(Ordering::Relaxed), "it is not so");
        let pages = begun();
        (0..3).for_each(|_| pages.not_the_drivers(start, prove));
        assert!(!pages.is_known(start), "in this process nobody tells");
    }

    #[test]
    fn it_is_over_for_good_when_the_instructions_are_others() {
        static CODE: AtomicU64 = AtomicU64::new(5);
        let (_memory, start) = memory(PAGE);
        let pages = begun();
        (0..2).for_each(|_| pages.not_the_drivers(start, |_| Some(&CODE)));
        assert!(pages.is_known(start));
        CODE.store(6, Ordering::Relaxed);
        assert!(!pages.is_known(start), "somebody else has changed them");
        ask(&pages, start);
        CODE.store(5, Ordering::Relaxed);
        assert!(!pages.is_known(start), "meanwhile memory may have gone");
        keep(&pages, start);
        assert!(!pages.is_known(start));
        pages.is_begun.store(true, Ordering::Relaxed);
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

    #[test]
    fn the_functions_are_found_in_the_c_library() {
        for name in [c"munmap", c"mmap", c"mremap", c"shmdt"] {
            assert!(function(name).is_some(), "{name:?}");
        }
        assert!(function(c"no_such_function").is_none());
    }
}
