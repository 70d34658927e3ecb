//! Messages over UCX (`ompi/mca/pml/ucx`).
//!
//! That component gives the program's buffers to UCX. A UCX without support for CUDA, as distributions build it, touches
//! them with the processor, and its libraries are not the host's, whose copies are looked at. So the functions of
//! the component that take a buffer are replaced before the host chooses it: by functions that look at the buffer, and call
//! the component's. A UCX that has loaded its own support for CUDA is given what it can take.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::host::copy_hook;
use crate::host::copy_hook::refusal::{self, Why};
use crate::host::guard::guard;
use crate::host::symbols::Loaded;
use crate::host::sys::Datatype;

/// What the user reads of the entries.
const NAME: &str = "ucx";

/// What stood in the component's table.
static KEPT: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// Replaces the functions of the component, if the process has it by now. They stay: without copies that are looked at,
/// they find nothing.
pub(super) fn put_in() {
    if KEPT.iter().any(|kept| kept.load(Ordering::Relaxed) != 0) {
        return;
    }
    let Some(component) = Loaded::find(c"mca_pml_ucx.so") else { return };
    let Ok(table) = component.symbol(c"ompi_pml_ucx") else { return };
    let table = table.as_ptr().cast::<*const ()>();
    for (entry, ours) in OURS.0.into_iter().enumerate() {
        let place = table.wrapping_add(PLACES[entry]);
        // SAFETY: an entry of the component's table (`mca_pml_base_module_t`), which it begins with.
        let stands = unsafe { place.read() };
        KEPT[entry].store(stands.expose_provenance(), Ordering::Relaxed);
        // SAFETY: the same entry, which the host has not copied yet: a function of the same arguments, which calls what
        // stood there.
        unsafe { place.write(ours) };
    }
}

/// Refuses what only a device may touch, unless UCX knows devices.
///
/// # Safety
/// A datatype of the host's.
unsafe fn look(given: *const c_void, count: usize, of: *const Datatype) {
    // SAFETY: as the caller says.
    let offset = unsafe { (*of).true_lb };
    // SAFETY: as the caller says.
    let size = unsafe { (*of).size };
    let is_empty = count == 0 || size == 0;
    if !is_empty && copy_hook::is_for_devices(given.wrapping_byte_offset(offset).addr()) && !knows_devices() {
        refusal::end(Why::Ucx);
    }
}

/// Whether UCX has loaded its module for CUDA. It does so, if it has one, before anything is sent.
fn knows_devices() -> bool {
    Loaded::find(c"libuct_cuda.so.0").is_some()
}

/// Addresses of functions, which any thread may have.
struct Table([*const (); ENTRIES]);

// SAFETY: functions, which are never written.
unsafe impl Sync for Table {}

type Pointer = *mut c_void;

/// The functions with a buffer of the caller's: their place in the table, and what follows buffer, count and datatype.
macro_rules! functions {
    ($($entry:literal $place:literal $name:ident ( $($argument:ident: $type:ty),* );)*) => {
        const PLACES: [usize; ENTRIES] = [$($place),*];

        static OURS: Table = Table([$($name as *const ()),*]);

        $(
            unsafe extern "C" fn $name(given: Pointer, count: usize, of: *const Datatype $(, $argument: $type)*) -> c_int {
                // SAFETY: the host's datatype.
                guard(NAME, stringify!($name), || unsafe { look(given, count, of) });
                let theirs = ptr::with_exposed_provenance::<c_void>(KEPT[$entry].load(Ordering::Relaxed));
                // SAFETY: what stood in the place of this function in the component's table: of the same arguments.
                let theirs = unsafe {
                    std::mem::transmute::<
                        *const c_void,
                        unsafe extern "C" fn(Pointer, usize, *const Datatype $(, $type)*) -> c_int,
                    >(theirs)
                };
                // SAFETY: what the host has called with.
                unsafe { theirs(given, count, of $(, $argument)*) }
            }
        )*
    };
}

/// How many there are.
const ENTRIES: usize = 8;

functions! {
    0 6 receive_init(source: c_int, tag: c_int, communicator: Pointer, request: Pointer);
    1 7 begin_to_receive(source: c_int, tag: c_int, communicator: Pointer, request: Pointer);
    2 8 receive(source: c_int, tag: c_int, communicator: Pointer, status: Pointer);
    3 9 send_init(to: c_int, tag: c_int, mode: c_int, communicator: Pointer, request: Pointer);
    4 10 begin_to_send(to: c_int, tag: c_int, mode: c_int, communicator: Pointer, request: Pointer);
    5 11 send(to: c_int, tag: c_int, mode: c_int, communicator: Pointer);
    6 17 begin_to_receive_matched(message: Pointer, request: Pointer);
    7 18 receive_matched(message: Pointer, status: Pointer);
}
