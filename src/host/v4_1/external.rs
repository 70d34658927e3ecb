//! Data in the format that all machines share (external32; `ompi_datatype_external.c`).
//!
//! The host turns the bytes of each element around one by one, where a look at copies does not see it. So
//! `MPI_Pack_external` and `MPI_Unpack_external` are looked at themselves, whatever becomes of copies.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::host::copy_hook::refusal::{self, Why};
use crate::host::copy_hook::{self, Slots};
use crate::host::guard::guard;
use crate::host::symbols::Loaded;
use crate::host::sys::Datatype;

/// What the user reads of the entries.
const NAME: &str = "external";

/// Format, buffer, how many, of which datatype, where to, room there, position (`ompi_datatype_pack_external`).
type Pack = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    c_int,
    *const Datatype,
    *mut c_void,
    isize,
    *mut isize,
) -> c_int;

/// Format, where from, length, position, buffer, how many, of which datatype (`ompi_datatype_unpack_external`).
type Unpack = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    isize,
    *mut isize,
    *mut c_void,
    c_int,
    *const Datatype,
) -> c_int;

/// The slots of both functions.
static SLOTS: Slots = Slots::new();

/// The host's.
static PACK: AtomicUsize = AtomicUsize::new(0);
static UNPACK: AtomicUsize = AtomicUsize::new(0);

/// Begins. Where this host is not as expected, it is left as it is.
pub(super) fn begin() {
    let Some(host) = Loaded::find(c"libmpi.so.40") else { return };
    let (Ok(pack_theirs), Ok(unpack_theirs)) =
        (host.symbol(c"ompi_datatype_pack_external"), host.symbol(c"ompi_datatype_unpack_external"))
    else {
        return;
    };
    PACK.store(pack_theirs.as_ptr().expose_provenance(), Ordering::Relaxed);
    UNPACK.store(unpack_theirs.as_ptr().expose_provenance(), Ordering::Relaxed);
    let replacements = [
        (c"ompi_datatype_pack_external", (pack as *const ()).expose_provenance()),
        (c"ompi_datatype_unpack_external", (unpack as *const ()).expose_provenance()),
    ];
    // SAFETY: each calls the host's function of the name; this library is never unloaded.
    unsafe { SLOTS.put(|name| name.starts_with("libmpi.so.40"), &replacements) };
}

/// Ends.
pub(super) fn end() {
    SLOTS.take_back();
}

/// Refuses what only a device may touch: elements of a datatype, or what they are packed to.
///
/// # Safety
/// A datatype of the host's.
unsafe fn look(
    elements: *const c_void,
    count: c_int,
    of: *const Datatype,
    packed: *const c_void,
    len: isize,
) {
    // SAFETY: as the caller says.
    let offset = unsafe { (*of).true_lb };
    // SAFETY: as the caller says.
    let size = unsafe { (*of).size };
    if count == 0 || size == 0 || len == 0 {
        return;
    }
    if [elements.wrapping_byte_offset(offset), packed]
        .into_iter()
        .any(|side| copy_hook::is_for_devices(side.addr()))
    {
        refusal::end(Why::External);
    }
}

unsafe extern "C" fn pack(
    format: *const c_char,
    from: *const c_void,
    count: c_int,
    of: *const Datatype,
    to: *mut c_void,
    room: isize,
    position: *mut isize,
) -> c_int {
    // SAFETY: the host's datatype.
    guard(NAME, "pack", || unsafe { look(from, count, of, to, room) });
    let theirs = ptr::with_exposed_provenance::<c_void>(PACK.load(Ordering::Relaxed));
    // SAFETY: the host's function of this name.
    let theirs = unsafe { std::mem::transmute::<*const c_void, Pack>(theirs) };
    // SAFETY: what the host has called with.
    unsafe { theirs(format, from, count, of, to, room, position) }
}

unsafe extern "C" fn unpack(
    format: *const c_char,
    from: *const c_void,
    len: isize,
    position: *mut isize,
    to: *mut c_void,
    count: c_int,
    of: *const Datatype,
) -> c_int {
    // SAFETY: the host's datatype.
    guard(NAME, "unpack", || unsafe { look(to, count, of, from, len) });
    let theirs = ptr::with_exposed_provenance::<c_void>(UNPACK.load(Ordering::Relaxed));
    // SAFETY: the host's function of this name.
    let theirs = unsafe { std::mem::transmute::<*const c_void, Unpack>(theirs) };
    // SAFETY: what the host has called with.
    unsafe { theirs(format, from, len, position, to, count, of) }
}
