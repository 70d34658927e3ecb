//! Whether it is still told when memory goes.
//!
//! Others change the same functions as the host, libfabric and UCX among them, and then nothing is told any more. Therefore it
//! is tried, with a page of our own, before anything relies on it; and the instructions at the begin of `munmap` and of its like are
//! looked at with each use of what was kept: other ones in any, and it is not told. Nothing is told where these functions are not the C
//! library's own, as under a sanitizer: its `free` would unmap without them.

use std::ffi::{CStr, c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Length of a page.
pub const PAGE: usize = 4096;

/// The functions by which memory goes: who changes one of them may leave it untold.
const WATCHED: [&CStr; 7] = [c"munmap", c"mmap", c"mremap", c"shmdt", c"madvise", c"brk", c"sbrk"];

/// So many of them, from the first, there must be.
const NEEDED: usize = 4;

/// The first instructions of each, and what they are.
type Codes = [Option<(&'static AtomicU64, u64)>; WATCHED.len()];

/// What somebody tells, as long as he does.
pub struct Watch {
    /// It is proven that somebody tells, and has not ended since.
    is_proven: AtomicBool,
    /// The first instructions of the [`WATCHED`], of those that there are.
    codes: [AtomicPtr<AtomicU64>; WATCHED.len()],
    /// What they were when it was proven.
    words: [AtomicU64; WATCHED.len()],
    /// Somebody tries it: one thread alone, or one would take another's page for its own.
    is_tried: AtomicBool,
    /// The page by which it is tried.
    tried: AtomicUsize,
    /// Somebody may tell.
    is_begun: AtomicBool,
}

/// Whether it is told when memory goes.
pub enum Proof {
    /// As long as these instructions are these.
    Told(Codes),
    /// Perhaps later.
    NotYet,
    /// It ought to be, and is not.
    Never,
}

#[cfg(test)]
impl Proof {
    /// Told, as long as these instructions alone are these.
    pub fn told_by(code: &'static AtomicU64, word: u64) -> Self {
        let mut codes = [None; WATCHED.len()];
        codes[0] = Some((code, word));
        Self::Told(codes)
    }
}

impl Watch {
    /// Nobody tells.
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Self {
            is_proven: AtomicBool::new(false),
            codes: [const { AtomicPtr::new(ptr::null_mut()) }; WATCHED.len()],
            words: [const { AtomicU64::new(0) }; WATCHED.len()],
            is_tried: AtomicBool::new(false),
            tried: AtomicUsize::new(0),
            is_begun: AtomicBool::new(false),
        }
    }

    /// Somebody may tell from now on.
    pub fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
    }

    /// Whether somebody may.
    pub fn has_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// Whether it was proven that somebody tells, and has not ended since. On all threads in one order with [`end`](Self::end).
    pub fn is_trusted(&self) -> bool {
        self.is_proven.load(Ordering::SeqCst)
    }

    /// Whether that is so, and the instructions that tell are what they were.
    #[inline]
    pub fn is_told(&self) -> bool {
        self.is_proven.load(Ordering::Acquire)
            && self.codes.iter().zip(&self.words).all(|(code, word)| {
                // SAFETY: null, or eight aligned bytes that stay: `trust` is called with nothing else. Who changes
                // instructions writes such a word as a whole, or what is read is neither and not equal.
                unsafe { code.load(Ordering::Relaxed).as_ref() }
                    .is_none_or(|code| code.load(Ordering::Relaxed) == word.load(Ordering::Relaxed))
            })
    }

    /// We are told as long as these bytes are these, unless it has ended meanwhile.
    fn trust(&self, codes: Codes) {
        for (at, found) in codes.into_iter().enumerate() {
            let (code, word) =
                found.map_or((ptr::null_mut(), 0), |(code, word)| (ptr::from_ref(code).cast_mut(), word));
            self.words[at].store(word, Ordering::Relaxed);
            self.codes[at].store(code, Ordering::Relaxed);
        }
        self.is_proven.store(true, Ordering::SeqCst);
        if !self.is_begun.load(Ordering::SeqCst) {
            self.is_proven.store(false, Ordering::SeqCst);
        }
    }

    /// Tries whether it is told. `None`: it is not known yet, or another thread tries.
    #[cold]
    pub fn try_out(&self, prove: impl FnOnce() -> Proof) -> Option<bool> {
        if self.is_tried.swap(true, Ordering::AcqRel) {
            return None;
        }
        let proof = prove();
        self.is_tried.store(false, Ordering::Release);
        match proof {
            Proof::Told(codes) => {
                self.trust(codes);
                Some(true)
            }
            Proof::NotYet => None,
            Proof::Never => Some(false),
        }
    }

    /// These pages go. Called from within `munmap`.
    pub fn gone(&self, pages: &RangeInclusive<usize>) {
        if pages.contains(&self.tried.load(Ordering::Relaxed)) {
            self.tried.store(0, Ordering::Relaxed);
        }
    }

    /// Nobody tells any more.
    pub fn end(&self) {
        self.is_begun.store(false, Ordering::SeqCst);
        self.is_proven.store(false, Ordering::SeqCst);
    }
}

/// Unmaps a page to see whether it is told.
#[cold]
pub fn prove(watch: &Watch) -> Proof {
    // Elsewhere the first instructions of all who change them are the same.
    if !cfg!(target_arch = "x86_64") {
        return Proof::Never;
    }
    let codes = WATCHED.map(|name| function(name).map(|code| (code, code.load(Ordering::Relaxed))));
    if codes[..NEEDED].iter().any(Option::is_none) {
        return Proof::Never;
    }
    let Ok(mapping) = memmap2::MmapMut::map_anon(PAGE) else { return Proof::NotYet };
    watch.tried.store(mapping.as_ptr().addr() / PAGE, Ordering::Relaxed);
    drop(mapping);
    if watch.tried.swap(0, Ordering::Relaxed) == 0 { Proof::Told(codes) } else { Proof::Never }
}

/// What `_dl_find_object(3)` says of an address (`dlfcn.h` of glibc 2.35).
#[repr(C)]
struct Object {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    map: *mut c_void,
    frames: *mut c_void,
    reserved: [u64; 7],
}

type Find = unsafe extern "C" fn(*mut c_void, *mut Object) -> c_int;

/// That function, where there is one. It takes no lock, as `dladdr` does that of the loader, which a thread may have for long: it
/// runs what a library wants done when it is loaded.
fn find() -> Option<Find> {
    static FIND: OnceLock<Option<Find>> = OnceLock::new();
    *FIND.get_or_init(|| {
        // SAFETY: a zero-ended name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: null, or the C library's function of this name, which has this type.
        unsafe { std::mem::transmute::<*mut c_void, Option<Find>>(found) }
    })
}

/// Where the program or library begins that an address lies in: its code or its data.
pub fn library(address: usize) -> Option<usize> {
    if let Some(find) = find() {
        // SAFETY: plain numbers and pointers; zero is a value of each.
        let mut object: Object = unsafe { std::mem::zeroed() };
        // SAFETY: any address; the callee fills the structure in, which is as long as it is there.
        let code = unsafe { find(ptr::without_provenance_mut(address), &raw mut object) };
        return (code == 0).then(|| object.start.addr());
    }
    // SAFETY: plain numbers and pointers; zero is a value of each.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address; the callee fills the structure in.
    (unsafe { libc::dladdr(ptr::without_provenance(address), &raw mut about) } != 0)
        .then(|| about.dli_fbase.addr())
}

/// Whether an address is in what the loader has mapped, and may unmap, with instructions of its own: in a library, that is, and
/// not in the program.
pub(super) fn is_of_a_library_that_may_go(address: usize) -> bool {
    // SAFETY: takes a number.
    let of_program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    library(address).is_some_and(|found| library(of_program) != Some(found))
}

/// The first instructions of a function of the C library's, unless the process calls another one by this name.
pub(super) fn function(name: &CStr) -> Option<&'static AtomicU64> {
    // SAFETY: a zero-ended name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let own = library((libc::gnu_get_libc_version as *const ()).addr())?;
    let code = found.cast::<AtomicU64>();
    if library(found.addr())? != own || !code.is_aligned() {
        return None;
    }
    // SAFETY: aligned, and the begin of a function, which is longer, in a library that stays.
    unsafe { code.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_this_process_nobody_tells() {
        let watch = Watch::new();
        watch.begin();
        assert_eq!(watch.try_out(|| prove(&watch)), Some(false));
        assert!(!watch.is_trusted() && !watch.is_told());
    }

    #[test]
    fn it_is_told_as_long_as_the_instructions_are_these() {
        static CODES: [AtomicU64; WATCHED.len()] = [const { AtomicU64::new(5) }; WATCHED.len()];
        for (at, changed) in CODES.iter().enumerate() {
            let watch = Watch::new();
            watch.begin();
            let told = || Proof::Told(CODES.each_ref().map(|code| Some((code, 5))));
            assert_eq!(watch.try_out(told), Some(true));
            assert!(watch.is_told());
            changed.store(6, Ordering::Relaxed);
            assert!(!watch.is_told() && watch.is_trusted(), "{:?}", WATCHED[at]);
            changed.store(5, Ordering::Relaxed);
            watch.end();
            assert!(!watch.is_trusted() && !watch.is_told());
            assert_eq!(watch.try_out(told), Some(true));
            assert!(!watch.is_told(), "it had ended before");
        }
    }

    #[test]
    fn what_there_is_not_does_not_change() {
        static CODE: AtomicU64 = AtomicU64::new(5);
        let watch = Watch::new();
        watch.begin();
        assert_eq!(watch.try_out(|| Proof::told_by(&CODE, 5)), Some(true));
        assert!(watch.is_told());
        CODE.store(6, Ordering::Relaxed);
        assert!(!watch.is_told());
    }

    #[test]
    fn the_functions_are_found_in_the_c_library() {
        for name in WATCHED {
            assert!(function(name).is_some(), "{name:?}");
        }
        assert!(function(c"no_such_function").is_none());
    }
}
