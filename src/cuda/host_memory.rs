//! Addresses that cannot be a device's, whatever the program does: known without asking the driver.
//!
//! Every message's buffer is looked at, and the driver needs 50 ns and more for its answer. That cannot just be
//! kept: memory that was mapped for the host may be unmapped, and the same addresses be mapped for a device a
//! moment later. What needs no keeping are the ranges which the process holds by their nature, so that nothing
//! else can be mapped there:
//!
//! * the first page, which is nobody's: null, and the numbers that stand for something (`MPI_IN_PLACE`);
//! * the heap, from its begin to where it ends *now* (`__curbrk`): the kernel moves that end only where nothing
//!   else is mapped, and the memory beyond it is not claimed;
//! * the data of the program itself, which stays as long as the process does;
//! * this thread's stack, from the frame of this very function upwards.
//!
//! Pinning changes none of these: pinned memory is the host's. The rest, such as large arrays that `malloc`
//! maps apart, is the driver's to tell, if the program has loaded it at all; what it has told is kept page by page where
//! somebody says when memory goes ([`host_pages`]).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::host_pages;

/// Length of the first page.
const PAGE: usize = 4096;

/// How far a stack may reach down from its end to be taken for one: below that, the kernel may put other
/// things under the first thread's, whose size has no limit of its own.
const DEEPEST: usize = 8 << 20;

/// Ranges that stay what they are.
struct Fixed {
    /// Where the heap begins.
    heap: usize,
    /// Where the C library keeps the address at which it ends now.
    end: Option<&'static AtomicUsize>,
    data: Range<usize>,
}

impl Fixed {
    /// Where the heap ends now; 0 where nobody knows.
    fn end_of_heap(&self) -> usize {
        self.end.map_or(0, |end| end.load(Ordering::Relaxed))
    }
}

thread_local! {
    /// Where this thread's stack may reach down to, and where it ends; 0 before it was looked for.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether an address is the host's, and known to be without asking anybody.
#[inline]
pub fn is_surely_host(address: usize) -> bool {
    let fixed = fixed();
    (address >= fixed.heap && address < fixed.end_of_heap())
        || fixed.data.contains(&address)
        || on_this_stack(address)
        || address < PAGE
        || host_pages::is_known(address)
}

fn fixed() -> &'static Fixed {
    static FIXED: OnceLock<Fixed> = OnceLock::new();
    FIXED.get_or_init(|| Fixed {
        heap: fs::read_to_string("/proc/self/stat").ok().and_then(|text| heap(&text)).unwrap_or(usize::MAX),
        end: end(),
        data: data(),
    })
}

/// What `sbrk(0)` answers, which in some releases of the C library asks the kernel: 120 ns.
fn end() -> Option<&'static AtomicUsize> {
    // SAFETY: a literal name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__curbrk".as_ptr()) };
    // SAFETY: null, or the C library's variable of this name: an address, which `brk(2)` writes as a whole, in a library
    // that stays.
    unsafe { address.cast::<AtomicUsize>().as_ref() }
}

/// Where the heap begins, as `proc_pid_stat(5)` says it: field 47.
fn heap(stat: &str) -> Option<usize> {
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let begin = rest.split_ascii_whitespace().nth(47 - 3)?.parse().ok()?;
    (begin != 0).then_some(begin)
}

/// The data of the program: what the loader names first, and never unloads.
fn data() -> Range<usize> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a structure that is alive during the call.
        let info = unsafe { &*info };
        // SAFETY: so many headers of the program, which stay.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let is_data =
            |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0;
        if let Some(header) = headers.iter().find(is_data) {
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            // SAFETY: the range that was passed with this function.
            unsafe { found.cast::<Range<usize>>().write(start..start + header.p_memsz as usize) };
        }
        1
    }
    let mut found = 0..0_usize;
    // SAFETY: the function writes the range that is passed with it, and nothing after the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

#[inline]
fn on_this_stack(address: usize) -> bool {
    let here = 0_u8;
    let here = (&raw const here).addr();
    let (mut low, mut end) = STACK.get();
    if end == 0 {
        (low, end) = stack();
        STACK.set((low, end));
    }
    // A program may run on a stack of its own making: then nothing is known of what lies above.
    here >= low && address >= here && address < end
}

/// Where this thread's stack may reach down to, and where it ends.
#[cold]
fn stack() -> (usize, usize) {
    const NONE: (usize, usize) = (usize::MAX, usize::MAX);
    // SAFETY: plain numbers and pointers; zero is a value of each.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes nothing.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: this thread is alive; the callee fills the attributes in.
    if unsafe { libc::pthread_getattr_np(this, &raw mut attributes) } != 0 {
        return NONE;
    }
    let (mut start, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: filled in; the callee writes an address and a length.
    let code = unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut len) };
    // SAFETY: filled in, and not used any more.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    if code != 0 {
        return NONE;
    }
    let end = start.addr() + len;
    (start.addr().max(end.saturating_sub(DEEPEST)), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of_heap() -> usize {
        // SAFETY: with 0 it only reads where the heap ends.
        unsafe { libc::sbrk(0) }.addr()
    }

    #[test]
    fn what_the_process_holds_by_nature_is_known() {
        let local = [0_u8; 64];
        assert!(is_surely_host((&raw const local).addr()), "the stack");
        assert!(is_surely_host(0) && is_surely_host(1), "null, and in place");
        let fixed = fixed();
        assert!(!fixed.data.is_empty());
        assert!(is_surely_host(fixed.data.start) && is_surely_host(fixed.data.end - 1), "the program's data");
        assert!(fixed.heap < end_of_heap());
        assert_eq!(fixed.end_of_heap(), end_of_heap());
        assert!(is_surely_host(fixed.heap) && is_surely_host(end_of_heap() - 1), "the heap");
    }

    #[test]
    fn what_could_become_a_devices_is_not() {
        let mapped = memmap2::MmapMut::map_anon(1 << 20).expect("a mapping");
        assert!(!is_surely_host(mapped.as_ptr().addr()), "a mapping");
        assert!(!is_surely_host(end_of_heap()), "beyond the heap");
        let local = 0_u8;
        let local = (&raw const local).addr();
        let elsewhere = std::thread::spawn(move || is_surely_host(local));
        assert!(!elsewhere.join().expect("no panic"), "the stack of another thread, which may end");
        assert!(!is_surely_host(stack().1), "beyond the stack");
        assert!(!is_surely_host(usize::MAX));
    }

    #[test]
    fn the_begin_of_the_heap_is_read() {
        let numbers = (3..=52).map(|field| (field * 1000).to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(heap(&format!("1 (a) (b) {numbers}\n")), Some(47_000));
        assert_eq!(
            (heap("1 (a) S 1 2"), heap(""), heap(&format!("1 (a) {}", "0 ".repeat(50)))),
            (None, None, None)
        );
    }
}
