//! One-sided communication (`ompi/mca/osc`), which 4.1 has for the processor's memory alone.
//!
//! Its components for windows read and write buffers in many ways of which a look at copies sees only some: atomic
//! instructions, and single numbers. So a window in the memory of a device is refused when it is made or attached, and
//! a buffer when it is given to any of the functions that a component has for windows. These are replaced in each
//! window that is made: by functions that look at the buffers, and call the component's.

use std::array;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::sys::Window;
use crate::host::copy_hook::refusal::{self, Why};
use crate::host::copy_hook::{self, Slots};
use crate::host::guard::guard;
use crate::host::symbols::Loaded;
use crate::host::sys::Class;

/// What the user reads of the entries.
const NAME: &str = "one_sided";

/// `MPI_WIN_FLAVOR_CREATE`: of memory that the program has.
const OF_THE_PROGRAMS: c_int = 1;

/// Chooses a component: window, base, size, unit, communicator, information, flavour, model (`ompi_osc_base_select`).
type Select = unsafe extern "C" fn(
    *mut Window,
    *mut *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    c_int,
    *mut c_int,
) -> c_int;

/// The slot of the function that chooses.
static SLOTS: Slots = Slots::new();

/// The host's.
static SELECT: AtomicUsize = AtomicUsize::new(0);

/// Sets of functions that can be kept: a component has one, or a few. Windows of more are left as they are.
const MOST: usize = 8;

/// Those that stood in windows; 0 where there is none.
static KEPT: [[AtomicUsize; ENTRIES]; MOST] = [const { [const { AtomicUsize::new(0) }; ENTRIES] }; MOST];

/// Held while functions are replaced.
static REPLACING: Mutex<()> = Mutex::new(());

/// Begins: windows that are made from now on are looked at. Where this host is not as expected, it is left as it is.
pub(super) fn begin() {
    let Some(host) = Loaded::find(c"libmpi.so.40") else { return };
    let (Ok(select_theirs), Ok(class)) =
        (host.symbol(c"ompi_osc_base_select"), host.symbol(c"ompi_win_t_class"))
    else {
        return;
    };
    // SAFETY: a class of the host's, which stays.
    if unsafe { (*class.cast::<Class>().as_ptr()).size } != size_of::<Window>() {
        return;
    }
    SELECT.store(select_theirs.as_ptr().expose_provenance(), Ordering::Relaxed);
    let replacements = [(c"ompi_osc_base_select", (select as *const ()).expose_provenance())];
    // SAFETY: it calls the host's function of the name; this library is never unloaded.
    unsafe { SLOTS.put(|name| name.starts_with("libmpi.so.40"), &replacements) };
}

/// Ends. Windows that there are keep what looks at their buffers.
pub(super) fn end() {
    SLOTS.take_back();
}

/// Refuses what only a device may touch.
fn look(given: *const c_void) {
    if copy_hook::is_for_devices(given.addr()) {
        refusal::end(Why::OneSided);
    }
}

unsafe extern "C" fn select(
    window: *mut Window,
    base: *mut *mut c_void,
    size: usize,
    unit: c_int,
    communicator: *mut c_void,
    information: *mut c_void,
    flavour: c_int,
    model: *mut c_int,
) -> c_int {
    guard(NAME, "select", || {
        if flavour == OF_THE_PROGRAMS && size != 0 {
            // SAFETY: the host's variable.
            look(unsafe { base.read() });
        }
    });
    let theirs = ptr::with_exposed_provenance::<c_void>(SELECT.load(Ordering::Relaxed));
    // SAFETY: the host's function of this name.
    let theirs = unsafe { std::mem::transmute::<*const c_void, Select>(theirs) };
    // SAFETY: what the host has called with.
    let code = unsafe { theirs(window, base, size, unit, communicator, information, flavour, model) };
    if code == 0 {
        guard(NAME, "select", || {
            // SAFETY: the host's window, which has its component now.
            let module = unsafe { (*window).module };
            // SAFETY: the functions of a window that nobody uses yet.
            unsafe { replace(module) };
        });
    }
    code
}

/// Has a window's functions look at the buffers that they are given.
///
/// # Safety
/// The table of a window (`ompi_osc_base_module_t`), which nobody else writes.
unsafe fn replace(module: *mut *const ()) {
    let _alone = REPLACING.lock();
    // SAFETY: the table is longer than the greatest of these places.
    let place = |entry: usize| unsafe { module.add(PLACES[entry]) };
    let stand: [usize; ENTRIES] = array::from_fn(|entry| {
        // SAFETY: an entry of the table.
        unsafe { place(entry).read() }.expose_provenance()
    });
    let Some(ours) = keep(&KEPT, &stand) else { return };
    for (entry, (ours, theirs)) in ours.into_iter().zip(stand).enumerate() {
        if theirs != 0 {
            // SAFETY: an entry of the table, for a function of the same arguments, which calls what stood there.
            unsafe { place(entry).write(ours) };
        }
    }
}

/// Keeps a set of functions; answers what is to stand in their places. `None` where there is no room, or
/// where these are ours.
fn keep(kept: &[[AtomicUsize; ENTRIES]; MOST], stand: &[usize; ENTRIES]) -> Option<[*const (); ENTRIES]> {
    if OURS.0.iter().any(|ours| ours[1].addr() == stand[1]) {
        return None;
    }
    let is_same = |set: &[AtomicUsize; ENTRIES]| {
        set.iter().zip(stand).all(|(kept, stands)| kept.load(Ordering::Relaxed) == *stands)
    };
    let is_free = |set: &[AtomicUsize; ENTRIES]| set.iter().all(|kept| kept.load(Ordering::Relaxed) == 0);
    let kind = kept.iter().position(|set| is_free(set) || is_same(set))?;
    for (kept, stands) in kept[kind].iter().zip(stand) {
        kept.store(*stands, Ordering::Relaxed);
    }
    Some(OURS.0[kind])
}

/// The functions of a window with a buffer of the caller's: their place in the table
/// (`ompi_osc_base_module_3_0_0_t`), their arguments, and which of these are buffers, with how much each has.
macro_rules! functions {
    ($($entry:literal $place:literal $name:ident ( $($argument:ident: $type:ty),* $(,)? )
        looks at $(($buffer:ident, $count:expr)),*;)*) => {
        const PLACES: [usize; ENTRIES] = [$($place),*];

        $(
            unsafe extern "C" fn $name<const KIND: usize>($($argument: $type),*) -> c_int {
                guard(NAME, stringify!($name), || {
                    $(if $count != 0 {
                        look($buffer);
                    })*
                });
                let theirs = KEPT[KIND][$entry].load(Ordering::Relaxed);
                let theirs = ptr::with_exposed_provenance::<c_void>(theirs);
                // SAFETY: what stood in the place of this function in the table of a window: of the same arguments.
                let theirs = unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(theirs)
                };
                // SAFETY: what the host has called with.
                unsafe { theirs($($argument),*) }
            }
        )*

        /// Ours, for what is kept at a place.
        const fn ours<const KIND: usize>() -> [*const (); ENTRIES] {
            [$($name::<KIND> as *const ()),*]
        }
    };
}

/// How many there are.
const ENTRIES: usize = 11;

/// Addresses of functions, which any thread may have.
struct Table([[*const (); ENTRIES]; MOST]);

// SAFETY: functions, which are never written.
unsafe impl Sync for Table {}

static OURS: Table = Table([
    ours::<0>(),
    ours::<1>(),
    ours::<2>(),
    ours::<3>(),
    ours::<4>(),
    ours::<5>(),
    ours::<6>(),
    ours::<7>(),
]);

type Pointer = *mut c_void;

functions! {
    0 1 attach(window: *mut Window, base: Pointer, size: usize) looks at (base, size);
    1 4 put(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int, there_of: Pointer,
        window: *mut Window) looks at (origin, count);
    2 5 get(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int, there_of: Pointer,
        window: *mut Window) looks at (origin, count);
    3 6 accumulate(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int,
        there_of: Pointer, op: Pointer, window: *mut Window) looks at (origin, count);
    4 7 compare_and_swap(origin: Pointer, compare: Pointer, result: Pointer, of: Pointer, target: c_int, at: isize,
        window: *mut Window) looks at (origin, 1), (compare, 1), (result, 1);
    5 8 fetch_and_op(origin: Pointer, result: Pointer, of: Pointer, target: c_int, at: isize, op: Pointer,
        window: *mut Window) looks at (origin, 1), (result, 1);
    6 9 get_accumulate(origin: Pointer, count: c_int, of: Pointer, result: Pointer, results: c_int, result_of: Pointer,
        target: c_int, at: isize, there: c_int, there_of: Pointer, op: Pointer, window: *mut Window)
        looks at (origin, count), (result, results);
    7 10 rput(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int, there_of: Pointer,
        window: *mut Window, request: Pointer) looks at (origin, count);
    8 11 rget(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int, there_of: Pointer,
        window: *mut Window, request: Pointer) looks at (origin, count);
    9 12 raccumulate(origin: Pointer, count: c_int, of: Pointer, target: c_int, at: isize, there: c_int,
        there_of: Pointer, op: Pointer, window: *mut Window, request: Pointer) looks at (origin, count);
    10 13 rget_accumulate(origin: Pointer, count: c_int, of: Pointer, result: Pointer, results: c_int,
        result_of: Pointer, target: c_int, at: isize, there: c_int, there_of: Pointer, op: Pointer,
        window: *mut Window, request: Pointer) looks at (origin, count), (result, results);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_functions_is_kept_once_and_ours_are_never() {
        let kept = [const { [const { AtomicUsize::new(0) }; ENTRIES] }; MOST];
        let set = |first: usize| array::from_fn(|entry| first + entry);
        let first = keep(&kept, &set(1000)).expect("room");
        assert_eq!(keep(&kept, &set(1000)), Some(first));
        assert!(keep(&kept, &first.map(|ours| ours.addr())).is_none(), "a window is looked at once");
        for number in 1..MOST {
            let other = keep(&kept, &set(1000 * (number + 1))).expect("room");
            assert!(other.iter().zip(&first).all(|(one, other)| one != other));
        }
        assert_eq!(keep(&kept, &set(1)), None, "no room");
        assert_eq!(keep(&kept, &set(1000)), Some(first));
    }
}
