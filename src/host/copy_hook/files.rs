//! Files of a host that knows no devices.
//!
//! The kernel reads and writes them for the host, and reaches the processor's memory alone. That it did not is lost on
//! the way: 4.1 says to the program that all went well, with 0 bytes, and a nonblocking call of it ends the process by a
//! signal. So a buffer that only a device may touch is refused before the kernel is asked, whatever becomes of copies.

use std::ffi::{c_int, c_void};

use super::refusal::{self, Why};
use super::{Accelerator, NAME, Replacement, Slots, guard, is_unmanaged};

/// The slots of the functions that read and write.
static FILES: Slots = Slots::new();

/// Whether a component of this name gives the program's buffers to the kernel for files (`fbtl/posix`, `io/romio`).
fn is_of_files(name: &str) -> bool {
    ["mca_fbtl_posix", "mca_io_romio"].iter().any(|begin| name.starts_with(begin))
}

/// Has the components that are there by now be looked at. They are loaded with the first file.
pub(super) fn put_in<T: Accelerator>() {
    let replacements: [Replacement; 12] = [
        (c"read", (read::<T> as *const ()).expose_provenance()),
        (c"write", (write::<T> as *const ()).expose_provenance()),
        (c"pread", (read_at::<T> as *const ()).expose_provenance()),
        (c"pread64", (read_at::<T> as *const ()).expose_provenance()),
        (c"pwrite", (write_at::<T> as *const ()).expose_provenance()),
        (c"pwrite64", (write_at::<T> as *const ()).expose_provenance()),
        (c"preadv", (read_ranges::<T> as *const ()).expose_provenance()),
        (c"preadv64", (read_ranges::<T> as *const ()).expose_provenance()),
        (c"pwritev", (write_ranges::<T> as *const ()).expose_provenance()),
        (c"pwritev64", (write_ranges::<T> as *const ()).expose_provenance()),
        (c"aio_read", (begin_to_read::<T> as *const ()).expose_provenance()),
        (c"aio_write", (begin_to_write::<T> as *const ()).expose_provenance()),
    ];
    // SAFETY: each does what the C library's does, which it calls; this library is never unloaded.
    unsafe { FILES.put(is_of_files, &replacements) };
}

/// Puts back what was there before.
pub(super) fn take_back() {
    FILES.take_back();
}

/// Refuses what only a device may touch.
fn look<T: Accelerator>(given: *const c_void, len: usize) {
    if len != 0 && is_unmanaged::<T>(given.addr()) {
        refusal::end(Why::File);
    }
}

/// # Safety
/// So many ranges of the caller's.
unsafe fn look_at_ranges<T: Accelerator>(ranges: *const libc::iovec, count: c_int) {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: one of so many.
        let range = unsafe { ranges.wrapping_add(index).read() };
        look::<T>(range.iov_base, range.iov_len);
    }
}

/// Functions that look at a buffer, or at ranges of them, and call the C library's.
macro_rules! looking {
    ($($name:ident($($argument:ident: $of:ty),*) looks by $look:expr, calls $theirs:path;)*) => {
        $(
            unsafe extern "C" fn $name<T: Accelerator>(file: c_int, $($argument: $of),*) -> isize {
                guard(NAME, stringify!($name), || $look);
                // SAFETY: as the host calls it; these are not a device's.
                unsafe { $theirs(file, $($argument),*) }
            }
        )*
    };
}

looking! {
    read(to: *mut c_void, len: usize) looks by look::<T>(to, len), calls libc::read;
    write(from: *const c_void, len: usize) looks by look::<T>(from, len), calls libc::write;
    read_at(to: *mut c_void, len: usize, at: libc::off_t) looks by look::<T>(to, len), calls libc::pread;
    write_at(from: *const c_void, len: usize, at: libc::off_t) looks by look::<T>(from, len), calls libc::pwrite;
    read_ranges(ranges: *const libc::iovec, count: c_int, at: libc::off_t)
        // SAFETY: as the host calls it.
        looks by unsafe { look_at_ranges::<T>(ranges, count) }, calls libc::preadv;
    write_ranges(ranges: *const libc::iovec, count: c_int, at: libc::off_t)
        // SAFETY: as the host calls it.
        looks by unsafe { look_at_ranges::<T>(ranges, count) }, calls libc::pwritev;
}

/// # Safety
/// What the host begins, which it leaves alone meanwhile.
unsafe fn look_at_begun<T: Accelerator>(begun: *const libc::aiocb) {
    // SAFETY: as the caller says.
    let start = unsafe { (*begun).aio_buf };
    // SAFETY: as the caller says.
    let len = unsafe { (*begun).aio_nbytes };
    look::<T>(start, len);
}

unsafe extern "C" fn begin_to_read<T: Accelerator>(what: *mut libc::aiocb) -> c_int {
    // SAFETY: as the host calls it.
    guard(NAME, "begin_to_read", || unsafe { look_at_begun::<T>(what) });
    // SAFETY: as the host calls it; the buffer is not a device's.
    unsafe { libc::aio_read(what) }
}

unsafe extern "C" fn begin_to_write<T: Accelerator>(what: *mut libc::aiocb) -> c_int {
    // SAFETY: as the host calls it.
    guard(NAME, "begin_to_write", || unsafe { look_at_begun::<T>(what) });
    // SAFETY: as the host calls it; the buffer is not a device's.
    unsafe { libc::aio_write(what) }
}
