//! Operations that a program has made itself (`MPI_Op_create`, `ompi/op/op.c`), on memory of devices.
//!
//! Such an operation is a function of the program's, which computes with the processor. The host calls it with whatever
//! buffers it has. So the program's function is kept here when the operation is made, and the host gets one of ours in
//! its place: that brings what is on a device to host memory, calls the program's, and takes the result back. Where
//! both buffers are the host's, it only passes the call on.
//!
//! What is called from Fortran gets the number of a datatype. Such an operation is known by who makes it: another of the
//! host's libraries, which calls `PMPI_Op_create`.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::accelerator::Devices;
use super::sys::Op;
use crate::host::copy_hook::Slots;
use crate::host::guard::guard;
use crate::host::symbols::Loaded;
use crate::host::sys::Datatype;

/// What the user reads of the entries.
const NAME: &str = "user_operation";

/// The host's library, up to the version.
const MPI: &str = "libmpi.so.40";

/// That which Fortran programs call.
const FORTRAN: &str = "libmpi_mpifh.so.40";

/// Functions that can be kept; those of more operations get the buffers as they are.
const MOST: usize = 64;

/// Makes an operation: whether it commutes, and its function (`ompi_op_create_user`).
type Create = unsafe extern "C" fn(bool, *mut c_void) -> *mut Op;

/// Makes one for the program: its function, whether it commutes, and the variable that it is written to (`MPI_Op_create`).
type PublicCreate = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut Op) -> c_int;

/// The datatype of a number (`MPI_Type_f2c`).
type FromNumber = unsafe extern "C" fn(c_int) -> *const Datatype;

/// A function of the program's (`MPI_User_function`): source, target, how many elements, of which datatype.
///
/// HOST: the bindings for C++ (4.1) and Java make an operation of a function of their own, and have the host pass it one
/// argument more, or three (`ompi_op_set_cxx_callback`, `ompi_op_set_java_callback`). That is said only when the
/// operation is there, so all are passed on. What calls with fewer leaves any value in their places, at which a
/// function that takes fewer does not look.
type Function =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut *mut c_void, usize, usize, usize);

/// The slot of the function that makes operations.
static SLOTS: Slots = Slots::new();

/// The host's functions: what makes operations, what does so for the program, and the datatype of a number.
static HOST: OnceLock<[usize; 3]> = OnceLock::new();

thread_local! {
    /// Whether Fortran is making an operation.
    static IS_FORTRANS: Cell<bool> = const { Cell::new(false) };
}

/// How to find out where buffers are.
static FIND: OnceLock<fn() -> Option<Devices>> = OnceLock::new();

/// The program's functions, those of Fortran apart; 0 where there is none.
static FUNCTIONS: [[AtomicUsize; MOST]; 2] = [const { [const { AtomicUsize::new(0) }; MOST] }; 2];

/// Begins: operations that the program makes from now on are looked at.
pub(super) fn begin(find: fn() -> Option<Devices>) {
    let Some(host) = Loaded::find(c"libmpi.so.40") else { return };
    let found = |name| Some(host.symbol(name).ok()?.as_ptr().expose_provenance());
    let (Some(create_theirs), Some(public), Some(from_number)) =
        (found(c"ompi_op_create_user"), found(c"PMPI_Op_create"), found(c"PMPI_Type_f2c"))
    else {
        return;
    };
    HOST.get_or_init(|| [create_theirs, public, from_number]);
    FIND.get_or_init(|| find);
    let replacements = [(c"ompi_op_create_user", (create as *const ()).expose_provenance())];
    // SAFETY: it calls the host's function of the name; this library is never unloaded.
    unsafe { SLOTS.put(|name| name.starts_with(MPI), &replacements) };
    let replacements = [(c"PMPI_Op_create", (create_fortrans as *const ()).expose_provenance())];
    // SAFETY: it calls the host's function of the name; this library is never unloaded.
    unsafe { SLOTS.put(|name| name.starts_with(FORTRAN), &replacements) };
}

/// Ends. Operations that there are keep their functions.
pub(super) fn end() {
    SLOTS.take_back();
}

/// One of the host's functions; they are found before any of their places is taken.
fn theirs(number: usize) -> *const c_void {
    ptr::with_exposed_provenance(HOST.get().map_or(0, |host| host[number]))
}

unsafe extern "C" fn create(commutes: bool, function: *mut c_void) -> *mut Op {
    let kept = || keep(&FUNCTIONS[usize::from(IS_FORTRANS.get())], function.expose_provenance());
    let place = guard(NAME, "create", kept);
    let calls = if IS_FORTRANS.get() { &FORTRAN_CALLS } else { &CALLS };
    let ours = place.map_or(function, |place| calls[place] as *mut c_void);
    // SAFETY: null, or the host's function of this name.
    let create = unsafe { std::mem::transmute::<*const c_void, Option<Create>>(theirs(0)) };
    let Some(create) = create else { return ptr::null_mut() };
    // SAFETY: what the host has called with, or a function that does the same.
    unsafe { create(commutes, ours) }
}

unsafe extern "C" fn create_fortrans(function: *mut c_void, commutes: c_int, made: *mut *mut Op) -> c_int {
    // SAFETY: null, or the host's function of this name.
    let create = unsafe { std::mem::transmute::<*const c_void, Option<PublicCreate>>(theirs(1)) };
    let Some(create) = create else { return -1 };
    IS_FORTRANS.set(true);
    // SAFETY: what the host has called with.
    let code = unsafe { create(function, commutes, made) };
    IS_FORTRANS.set(false);
    code
}

/// The place of a function; `None` where there is none left. The same function has the same one.
fn keep(functions: &[AtomicUsize; MOST], function: usize) -> Option<usize> {
    if function == 0 {
        return None;
    }
    functions.iter().position(|place| {
        let taken = place.compare_exchange(0, function, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(function)
    })
}

/// Calls the function that is kept at a place, with host memory.
unsafe extern "C" fn call<const PLACE: usize, const IS_FORTRANS: bool>(
    source: *mut c_void,
    target: *mut c_void,
    count: *mut c_int,
    datatype: *mut *mut c_void,
    first: usize,
    second: usize,
    third: usize,
) {
    let function = FUNCTIONS[usize::from(IS_FORTRANS)][PLACE].load(Ordering::Relaxed);
    let function = ptr::with_exposed_provenance(function);
    // SAFETY: null, or what the program has made an operation of.
    let function = unsafe { std::mem::transmute::<*const c_void, Option<Function>>(function) };
    let Some(function) = function else { return };
    let staged = guard(NAME, "call", || {
        let find_datatype = || match IS_FORTRANS {
            // SAFETY: a number of the host's.
            true => datatype_of(unsafe { datatype.cast::<c_int>().read() }),
            // SAFETY: a variable of the host's.
            false => unsafe { datatype.cast::<*const Datatype>().read() },
        };
        // SAFETY: what the host calls an operation with.
        unsafe { Staged::new(source, target, count, find_datatype) }
    });
    let Some(mut staged) = staged else {
        // SAFETY: what the host has called with.
        return unsafe { function(source, target, count, datatype, first, second, third) };
    };
    let [here, there] = staged.places();
    // SAFETY: as many elements of the same values, in host memory.
    unsafe { function(here, there, count, datatype, first, second, third) };
    guard(NAME, "call", || staged.take_back());
}

/// The datatype that Fortran has a number for; null for a number of none.
fn datatype_of(number: c_int) -> *const Datatype {
    // SAFETY: null, or the host's function of this name.
    let find = unsafe { std::mem::transmute::<*const c_void, Option<FromNumber>>(theirs(2)) };
    // SAFETY: takes any number.
    find.map_or(ptr::null(), |find| unsafe { find(number) })
}

macro_rules! calls {
    ($is_fortrans:literal: $($place:literal)*) => { [$(call::<$place, $is_fortrans>),*] };
    ($is_fortrans:literal) => {
        calls!($is_fortrans: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
            33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
}

static CALLS: [Function; MOST] = calls!(false);
static FORTRAN_CALLS: [Function; MOST] = calls!(true);

/// Where data lies, from the address of a buffer on: the first byte, and how many there are.
fn span(count: usize, datatype: &Datatype) -> Option<(isize, usize)> {
    let &Datatype { true_lb, true_ub, lb, ub, .. } = datatype;
    let last = ub.checked_sub(lb)?.checked_mul(isize::try_from(count.checked_sub(1)?).ok()?)?;
    let low = true_lb.min(true_lb.checked_add(last)?);
    let high = true_ub.max(true_ub.checked_add(last)?);
    let len = usize::try_from(high.checked_sub(low)?).ok().filter(|len| *len != 0)?;
    Some((low, len))
}

/// A buffer as the program's function sees it.
struct Side {
    /// What the host has given.
    given: *mut c_void,
    /// Host memory for what is on a device.
    room: Option<Vec<u128>>,
}

impl Side {
    /// How far the data are behind an address at which any type may lie, on the device as here.
    fn shift(&self, low: isize) -> usize {
        self.given.wrapping_byte_offset(low).addr() % size_of::<u128>()
    }

    /// Where the data are here.
    fn data(&mut self, low: isize) -> Option<*mut c_void> {
        let shift = self.shift(low);
        self.room.as_mut().map(|room| room.as_mut_ptr().wrapping_byte_add(shift).cast())
    }

    /// What stands for the buffer's address.
    fn place(&mut self, low: isize) -> *mut c_void {
        let given = self.given;
        self.data(low).map_or(given, |data| data.wrapping_byte_offset(low.wrapping_neg()))
    }
}

/// Buffers of which one at least is on a device.
struct Staged {
    devices: Devices,
    low: isize,
    len: usize,
    sides: [Side; 2],
}

impl Staged {
    /// Brings here what is on a device; `None` where nothing is.
    ///
    /// # Safety
    /// What the host calls an operation with; the datatype is alive for the time of the call, or null.
    unsafe fn new(
        source: *mut c_void,
        target: *mut c_void,
        count: *mut c_int,
        datatype: impl FnOnce() -> *const Datatype,
    ) -> Option<Self> {
        let devices = FIND.get()?()?;
        let on_device = [source, target].map(|buffer| devices.have(buffer));
        if !on_device.contains(&true) {
            return None;
        }
        // SAFETY: a variable of the host's.
        let count = usize::try_from(unsafe { count.read() }).ok()?;
        // SAFETY: null, or a datatype of the host's, alive for the time of the call.
        let (low, len) = span(count, unsafe { datatype().as_ref() }?)?;
        let side = |given, is_device: bool| Side {
            given,
            room: is_device.then(|| vec![0; len.div_ceil(size_of::<u128>()) + 1]),
        };
        let sides = [side(source, on_device[0]), side(target, on_device[1])];
        let mut staged = Self { devices, low, len, sides };
        for side in &mut staged.sides {
            let from = side.given.wrapping_byte_offset(low);
            if let Some(data) = side.data(low) {
                // SAFETY: the data of a buffer, which is a device's, and room for them here.
                unsafe { devices.copy(data, from, len) };
            }
        }
        Some(staged)
    }

    /// What the program's function is called with.
    fn places(&mut self) -> [*mut c_void; 2] {
        let low = self.low;
        self.sides.each_mut().map(|side| side.place(low))
    }

    /// Takes the result to where it belongs.
    fn take_back(&mut self) {
        let (devices, low, len) = (self.devices, self.low, self.len);
        let [_, target] = &mut self.sides;
        let to = target.given.wrapping_byte_offset(low);
        if let Some(data) = target.data(low) {
            // SAFETY: the data of the buffer, which is a device's, and as many here.
            unsafe { devices.copy(to, data, len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datatype(true_lb: isize, true_ub: isize, lb: isize, ub: isize) -> Datatype {
        // SAFETY: plain numbers.
        let mut datatype = unsafe { std::mem::zeroed::<Datatype>() };
        (datatype.true_lb, datatype.true_ub, datatype.lb, datatype.ub) = (true_lb, true_ub, lb, ub);
        datatype
    }

    #[test]
    fn data_lie_from_the_first_to_the_last_byte_of_all_elements() {
        assert_eq!(span(3, &datatype(0, 4, 0, 4)), Some((0, 12)));
        assert_eq!(span(3, &datatype(4, 8, 0, 16)), Some((4, 36)), "with a gap in front and between");
        assert_eq!(span(3, &datatype(0, 4, 0, -8)), Some((-16, 20)), "the other way round");
        assert_eq!(span(2, &datatype(-8, 4, -8, 8)), Some((-8, 28)));
        assert_eq!(span(0, &datatype(0, 4, 0, 4)), None);
        assert_eq!(span(1, &datatype(0, 0, 0, 4)), None, "of no data");
        assert_eq!(span(usize::MAX, &datatype(0, 4, 0, 4)), None);
        assert_eq!(span(3, &datatype(isize::MIN, isize::MAX, 0, 4)), None);
    }

    #[test]
    fn what_stands_for_a_buffer_is_aligned_as_the_buffer() {
        for (address, low) in [(0x7000_usize, 0), (0x7004, 4), (0x7000, 4), (0x7008, -8), (0x7001, 2)] {
            let given = ptr::without_provenance_mut(address);
            let mut side = Side { given, room: Some(vec![0; 4]) };
            let (place, data) = (side.place(low), side.data(low).expect("on a device"));
            assert_eq!(place.addr() % 16, address % 16);
            assert_eq!(place.wrapping_byte_offset(low), data);
        }
        let given = ptr::without_provenance_mut(0x7000);
        assert_eq!(Side { given, room: None }.place(4), given, "host memory is used where it is");
    }

    #[test]
    fn a_function_is_kept_once() {
        let functions = [const { AtomicUsize::new(0) }; MOST];
        let keep = |function| keep(&functions, function);
        let first = keep(0x1000).expect("room");
        assert_eq!(keep(0x1000), Some(first));
        let others: Vec<_> = (1..MOST).map(|at| keep(0x1000 + at).expect("room")).collect();
        assert!(!others.contains(&first));
        assert_eq!((keep(1), keep(0x1000), keep(0)), (None, Some(first), None));
    }
}
