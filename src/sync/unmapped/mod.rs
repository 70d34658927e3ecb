//! What the process unmaps, told before it goes.
//!
//! Whoever keeps something of memory that is not his, as that a device may use it, has to forget it when that is unmapped: the
//! next mapping at the same address is other memory. Somebody has to tell, and the process has no means of its own for that:
//! the host has, whose hooks change the first instructions of `munmap` and its like. [`gone`] is what they call. What is told
//! stands in a `log`, from which each who keeps something [reads](Reader) on before he uses any of it; `watch` sees to it that
//! it is still told, for others change the same instructions.
//!
//! The loader has a `munmap` of its own, so that of libraries nothing is told, and others may have an `sbrk` of theirs: whose memory
//! is a library's, or the heap's, asks [`goes_untold`]. Nor is it of whoever calls the kernel himself, as an allocator might that is no part of the C library, or
//! of a mapped file that is cut short. HOST: of an `mremap` that moves other memory over some with `MREMAP_FIXED`, the hooks tell what
//! is moved away, and not what it comes to lie over.

mod heap;
mod log;
mod watch;

pub use log::News;
pub use watch::{PAGE, Proof, Watch, library, prove};

use log::Log;

static LOG: Log = Log::new();
static WATCH: Watch = Watch::new();

/// This memory goes, or may. Called from within `munmap`, on any thread, whatever locks it holds: nothing here allocates,
/// waits or panics.
pub fn gone(start: usize, len: usize) {
    let Some(last) = len.checked_sub(1).map(|len| start.saturating_add(len) / PAGE) else { return };
    let first = start / PAGE;
    WATCH.gone(&(first..=last));
    LOG.note(first * PAGE, last.saturating_add(1).saturating_mul(PAGE));
}

/// [`gone`] is called from now on, somebody says: tries it. Whether it is so.
pub fn begin() -> bool {
    WATCH.begin();
    heap::look();
    WATCH.is_trusted() || WATCH.try_out(|| prove(&WATCH)) == Some(true)
}

/// It is not any more.
pub fn end() {
    WATCH.end();
}

/// Whether it still is.
#[inline]
pub fn is_told() -> bool {
    WATCH.is_told()
}

/// Whether what is at an address may be unmapped without a word.
pub fn goes_untold(address: usize) -> bool {
    watch::is_of_a_library_that_may_go(address) || heap::goes_untold(address)
}

/// Where somebody has read up to.
pub struct Reader(u64);

impl Reader {
    /// What is told from now on.
    #[expect(clippy::new_without_default, reason = "it depends on when it is made")]
    pub fn new() -> Self {
        Self(LOG.end())
    }

    /// All that was told since the last time.
    pub fn read(&mut self, heard: impl FnMut(News)) {
        LOG.read(&mut self.0, heard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_go() {
        let mut reader = Reader::new();
        gone(3 * PAGE + 1, PAGE);
        gone(77, 0);
        gone(usize::MAX - 5, usize::MAX);
        let mut told = Vec::new();
        reader.read(|news| told.push(news));
        // Other tests of this process tell nothing here.
        let end = (usize::MAX / PAGE + 1).saturating_mul(PAGE);
        let last = News::Range(usize::MAX / PAGE * PAGE, end);
        assert_eq!(told, [News::Range(3 * PAGE, 5 * PAGE), last]);
        reader.read(|_| unreachable!("nothing more is told"));
    }

    #[test]
    fn what_the_program_itself_has_is_not_unloaded() {
        static DATA: u8 = 1;
        heap::look();
        assert!(!goes_untold(std::ptr::from_ref(&DATA).addr()), "the program's data");
        assert!(!goes_untold(Box::new(1).as_ref() as *const i32 as usize), "the heap");
        assert!(goes_untold(libc::gnu_get_libc_version as *const () as usize), "a library's");
    }
}
