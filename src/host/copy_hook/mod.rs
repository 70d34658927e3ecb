//! Copies of the host's own code, of which it does not know that they may be of device memory.
//!
//! The host copies with `memcpy` and `memmove`, and compares with `memcmp`, wherever it takes buffers for the processor's. In the libraries of the
//! host (and in no other) the slots of these functions lead here: where one side is on a device, the driver makes the
//! copy, or, on a host whose user has not asked for that, the job ends with a line that says why ([`refusal`]); else
//! the processor copies, as before. What is surely the host's is known in a few nanoseconds, and for other addresses the
//! driver is asked, if the program has loaded it.

mod files;
pub(super) mod refusal;
mod slots;

pub(super) use slots::{Replacement, Slots};

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::guard::guard;
use crate::accelerator::{Accelerator, Error, Place, Result, Transfer};
use crate::error::say;

/// What the user reads of the entries.
const NAME: &str = "copy_hook";

/// The slots of the functions that copy.
static COPIES: Slots = Slots::new();

unsafe extern "C" {
    fn __memcpy_chk(to: *mut c_void, from: *const c_void, len: usize, room: usize) -> *mut c_void;
    fn __memmove_chk(to: *mut c_void, from: *const c_void, len: usize, room: usize) -> *mut c_void;
}

/// Has the copies of the libraries of these names be looked at; also of those that were loaded since the last call.
pub(super) fn put_in<T: Accelerator>(is_wanted: impl Fn(&str) -> bool) {
    let replacements: [Replacement; 9] = [
        (c"memcpy", (copy::<T> as *const ()).expose_provenance()),
        (c"memmove", (shift::<T> as *const ()).expose_provenance()),
        (c"__memcpy_chk", (checked_copy::<T> as *const ()).expose_provenance()),
        (c"__memmove_chk", (checked_shift::<T> as *const ()).expose_provenance()),
        (c"memcmp", (compare::<T> as *const ()).expose_provenance()),
        (c"readv", (read::<T> as *const ()).expose_provenance()),
        (c"writev", (write::<T> as *const ()).expose_provenance()),
        (c"process_vm_readv", (read_process::<T> as *const ()).expose_provenance()),
        (c"process_vm_writev", (write_process::<T> as *const ()).expose_provenance()),
    ];
    // SAFETY: each does what the C library's does, which it calls for host memory; this library is never unloaded.
    unsafe { COPIES.put(is_wanted, &replacements) };
}

/// The slot of the function that loads components.
static LOADS: Slots = Slots::new();

/// The libraries of 4.1: its own, its components, which are libraries apart, and what several of these share.
pub(super) fn is_of_4_1(name: &str) -> bool {
    ["libopen-pal.so.40", "libmpi.so.40", "libmca_common_", "mca_"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// What becomes of a copy with a device on one side, where the host knows no devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The driver makes it.
    Copies,
    /// It is refused, unless the processor may touch the memory, too.
    Refuses,
}

/// What tells a device's address.
type Tells = fn(usize) -> bool;

/// What tells one, where the host knows no devices and its copies are looked at: of memory that the driver
/// copies, and of memory that only a device may touch.
static TELLS: OnceLock<[Tells; 2]> = OnceLock::new();

/// Whether that is so now.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether copies are refused.
static REFUSES: AtomicBool = AtomicBool::new(false);

/// What else is put in with each library.
static BESIDES: OnceLock<fn()> = OnceLock::new();

fn put_in_all<T: Accelerator>() {
    put_in::<T>(is_of_4_1);
    files::put_in::<T>();
    if let Some(besides) = BESIDES.get() {
        besides();
    }
}

/// The same for all libraries of a host whose components are loaded one by one, also for those that come later. What
/// else is to be put in is so each time.
pub(super) fn put_in_everywhere<T: Accelerator>(answer: Answer, besides: fn()) {
    REFUSES.store(answer == Answer::Refuses, Ordering::Relaxed);
    BESIDES.get_or_init(|| besides);
    let loads = [(c"dlopen", (load::<T> as *const ()).expose_provenance())];
    // SAFETY: it does what the C library's does; this library is never unloaded.
    unsafe { LOADS.put(|name| name.starts_with("libopen-pal.so.40"), &loads) };
    put_in_all::<T>();
    TELLS.get_or_init(|| [is_device::<T>, is_unmanaged::<T>]);
    ON.store(!COPIES.is_empty(), Ordering::Relaxed);
}

unsafe extern "C" fn load<T: Accelerator>(name: *const c_char, mode: c_int) -> *mut c_void {
    // SAFETY: as the host calls it.
    let library = unsafe { libc::dlopen(name, mode) };
    guard(NAME, "load", put_in_all::<T>);
    library
}

/// Whether the copies of a host that knows no devices are looked at: then nothing touches what is on one by mistake.
#[inline]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether the host's copies are the driver's where a device is on one side.
pub(super) fn is_copying() -> bool {
    is_on() && !is_refusing()
}

/// Whether copies with a device on one side are refused.
pub(super) fn is_refusing() -> bool {
    REFUSES.load(Ordering::Relaxed)
}

/// Whether an address is a device's, of which such a host does not know, and is to be left to the host's own copies.
#[inline]
pub(super) fn is_hidden_device(address: usize) -> bool {
    is_on() && tells(0, address)
}

/// Whether only a device may touch what is at an address, of which such a host does not know.
#[inline]
pub(super) fn is_for_devices(address: usize) -> bool {
    is_on() && tells(1, address)
}

/// Asks the driver; out of the way of those who need not.
#[cold]
#[inline(never)]
fn tells(which: usize, address: usize) -> bool {
    TELLS.get().is_some_and(|tells| tells[which](address))
}

/// Puts back what was there before.
pub(super) fn take_back() {
    ON.store(false, Ordering::Relaxed);
    REFUSES.store(false, Ordering::Relaxed);
    LOADS.take_back();
    files::take_back();
    COPIES.take_back();
}

/// Whether the processor is to leave memory alone. What it may touch, too, the driver still copies better.
#[inline]
fn is_device<T: Accelerator>(address: usize) -> bool {
    match T::the().place(address) {
        Ok(Place::Device(device)) => !(device.is_managed && is_refusing()),
        Ok(Place::Host) => false,
        Err(error) => {
            cannot_tell(error);
            false
        }
    }
}

/// The driver does not say where an address is: it is taken for the host's. Should it be a device's, the processor is
/// going to be stopped there, and whoever sees that reads why.
#[cold]
fn cannot_tell(error: Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        say(format_args!(
            "the driver does not say whether a buffer is on a device ({error}); it is taken for host memory, and where it is \
             not, this process ends with a segmentation fault"
        ));
    }
}

fn is_unmanaged<T: Accelerator>(address: usize) -> bool {
    matches!(T::the().place(address), Ok(Place::Device(device)) if !device.is_managed)
}

/// Ends the job if copies are refused: called where one would have to be made.
#[cold]
fn refuse_or_go_on() {
    if is_refusing() {
        refusal::end(refusal::Why::Copy);
    }
}

#[inline]
fn touches_device<T: Accelerator>(to: *mut c_void, from: *const c_void, len: usize) -> bool {
    len != 0 && (is_device::<T>(to.addr()) || is_device::<T>(from.addr()))
}

/// Makes a copy, or ends the process: who has called cannot be told that it failed, and would go on with what is wrong.
///
/// # Safety
/// As for `memmove`, of memory of the host's or of a device's.
#[cold]
unsafe fn by_driver<T: Accelerator>(to: *mut c_void, from: *const c_void, len: usize) {
    guard(NAME, "copy", || {
        refuse_or_go_on();
        // SAFETY: as the caller says.
        let transfer = unsafe { Transfer::new(to.cast(), from.cast(), len) };
        made(T::the().copy(transfer), len);
    });
}

fn made(copied: Result<()>, len: usize) {
    if let Err(error) = copied {
        say(format_args!(
            "a copy of {len} bytes to or from a device fails ({error}); the process is ended, because the result \
             would be wrong"
        ));
        std::process::abort();
    }
}

/// Functions that take the places of those which copy: each as it is, and as it is where the compiler knows the room
/// that there is.
macro_rules! copies {
    ($($plain:ident: $copies:path, $checked:ident: $checks:path;)*) => {
        $(
            unsafe extern "C" fn $plain<T: Accelerator>(
                to: *mut c_void,
                from: *const c_void,
                len: usize,
            ) -> *mut c_void {
                if touches_device::<T>(to, from, len) {
                    // SAFETY: as the host calls the C library's function.
                    unsafe { by_driver::<T>(to, from, len) };
                    return to;
                }
                // SAFETY: as the host calls it; both are host memory.
                unsafe { $copies(to, from, len) }
            }

            unsafe extern "C" fn $checked<T: Accelerator>(
                to: *mut c_void,
                from: *const c_void,
                len: usize,
                room: usize,
            ) -> *mut c_void {
                if len <= room && touches_device::<T>(to, from, len) {
                    // SAFETY: as the host calls the C library's function.
                    unsafe { by_driver::<T>(to, from, len) };
                    return to;
                }
                // SAFETY: as the host calls it; it ends the process where there is no room.
                unsafe { $checks(to, from, len, room) }
            }
        )*
    };
}

copies! {
    copy: libc::memcpy, checked_copy: __memcpy_chk;
    shift: libc::memmove, checked_shift: __memmove_chk;
}

/// The same for who copies here in the host's place.
///
/// # Safety
/// As for `memcpy`, of memory of the host's or of a device's.
pub(super) unsafe fn move_bytes<T: Accelerator>(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller says.
    unsafe { copy::<T>(to.cast(), from.cast(), len) };
}

/// What is on a device is brought here to be compared.
unsafe extern "C" fn compare<T: Accelerator>(one: *const c_void, other: *const c_void, len: usize) -> c_int {
    let sides = [one, other];
    if len == 0 || !sides.iter().any(|side| is_device::<T>(side.addr())) {
        // SAFETY: as the host calls it; both are host memory.
        return unsafe { libc::memcmp(one, other, len) };
    }
    guard(NAME, "compare", || {
        refuse_or_go_on();
        let [one, other] = sides.map(|side| {
            let mut room = vec![0_u8; len];
            // SAFETY: so many bytes of the caller's, and room for them.
            let transfer = unsafe { Transfer::new(room.as_mut_ptr(), side.cast(), len) };
            made(T::the().copy(transfer), len);
            room
        });
        one.cmp(&other) as c_int
    })
}

/// What another process has is read to host memory, and taken to the device from there. The kernel knows only the
/// processor's memory.
unsafe extern "C" fn read_process<T: Accelerator>(
    process: libc::pid_t,
    to: *const libc::iovec,
    to_count: libc::c_ulong,
    from: *const libc::iovec,
    from_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> isize {
    if to_count == 1 {
        // SAFETY: one, which the caller has.
        let place = unsafe { to.read() };
        if is_device::<T>(place.iov_base.addr()) {
            return guard(NAME, "read", || {
                refuse_or_go_on();
                let mut room = vec![0_u8; place.iov_len];
                let here = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
                // SAFETY: room for so many bytes, and as the host calls it otherwise.
                let read =
                    unsafe { libc::process_vm_readv(process, &raw const here, 1, from, from_count, flags) };
                if let Ok(len @ 1..) = usize::try_from(read) {
                    // SAFETY: so many bytes were read, and the caller has room for them, on a device.
                    let transfer = unsafe { Transfer::new(place.iov_base.cast(), room.as_ptr(), len) };
                    made(T::the().copy(transfer), len);
                }
                read
            });
        }
    }
    // SAFETY: as the host calls it.
    unsafe { libc::process_vm_readv(process, to, to_count, from, from_count, flags) }
}

/// The same for what is written to another process.
unsafe extern "C" fn write_process<T: Accelerator>(
    process: libc::pid_t,
    from: *const libc::iovec,
    from_count: libc::c_ulong,
    to: *const libc::iovec,
    to_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> isize {
    if from_count == 1 {
        // SAFETY: one, which the caller has.
        let place = unsafe { from.read() };
        if is_device::<T>(place.iov_base.addr()) {
            return guard(NAME, "write", || {
                refuse_or_go_on();
                let mut room = vec![0_u8; place.iov_len];
                // SAFETY: so many bytes of the caller's, and room for them.
                let transfer = unsafe { Transfer::new(room.as_mut_ptr(), place.iov_base.cast(), room.len()) };
                made(T::the().copy(transfer), room.len());
                let here = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
                // SAFETY: so many bytes, and as the host calls it otherwise.
                unsafe { libc::process_vm_writev(process, &raw const here, 1, to, to_count, flags) }
            });
        }
    }
    // SAFETY: as the host calls it.
    unsafe { libc::process_vm_writev(process, from, from_count, to, to_count, flags) }
}

/// Bytes of a device's memory that are read or written at once.
const PIECE: usize = 1 << 20;

/// The ranges before the first one on a device; or that one alone, with host memory for its begin.
///
/// # Safety
/// So many ranges of the caller's.
unsafe fn beginning<T: Accelerator>(
    ranges: *const libc::iovec,
    count: c_int,
) -> (c_int, Option<(libc::iovec, Vec<u8>)>) {
    for index in 0..count {
        // SAFETY: one of so many.
        let range = unsafe { ranges.wrapping_add(index as usize).read() };
        if range.iov_len != 0 && is_device::<T>(range.iov_base.addr()) {
            refuse_or_go_on();
            let room = (index == 0).then(|| (range, vec![0; range.iov_len.min(PIECE)]));
            return (index, room);
        }
    }
    (count, None)
}

/// Whoever writes to a socket goes on where the kernel has stopped: it may stop after a piece.
unsafe extern "C" fn write<T: Accelerator>(to: c_int, ranges: *const libc::iovec, count: c_int) -> isize {
    let (count, staged) = guard(NAME, "write", || {
        // SAFETY: as the host calls it.
        let (count, staged) = unsafe { beginning::<T>(ranges, count) };
        let staged = staged.map(|(range, mut room)| {
            // SAFETY: the begin of a range of the caller's, and room for it.
            let transfer = unsafe { Transfer::new(room.as_mut_ptr(), range.iov_base.cast(), room.len()) };
            made(T::the().copy(transfer), room.len());
            room
        });
        (count, staged)
    });
    match staged {
        // SAFETY: so many bytes.
        Some(room) => unsafe { libc::write(to, room.as_ptr().cast(), room.len()) },
        // SAFETY: as the host calls it; these are host memory.
        None => unsafe { libc::writev(to, ranges, count) },
    }
}

/// The same for what is read.
unsafe extern "C" fn read<T: Accelerator>(from: c_int, ranges: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: as the host calls it.
    let (count, staged) = guard(NAME, "read", || unsafe { beginning::<T>(ranges, count) });
    let Some((range, mut room)) = staged else {
        // SAFETY: as the host calls it; these are host memory.
        return unsafe { libc::readv(from, ranges, count) };
    };
    // SAFETY: room for so many bytes.
    let read = unsafe { libc::read(from, room.as_mut_ptr().cast(), room.len()) };
    if let Ok(len @ 1..) = usize::try_from(read) {
        guard(NAME, "read", || {
            // SAFETY: so many bytes were read, and the caller has room for them, on a device.
            let transfer = unsafe { Transfer::new(range.iov_base.cast(), room.as_ptr(), len) };
            made(T::the().copy(transfer), len);
        });
    }
    read
}
