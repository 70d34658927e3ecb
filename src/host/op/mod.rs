//! Operations on buffers in device memory (`ompi/mca/op/op.h`).
//!
//! The host's functions compute with the processor, and a device's memory is not the processor's: a reduction of
//! such buffers ends the process. This component puts a function in front of each of them that looks where the
//! buffers lie, brings what is on a device to the host, in pieces, and takes the result back. So it serves all
//! that reduces: collectives of any kind, `MPI_Accumulate`, `MPI_Reduce_local`. It offers itself only where the
//! host has an accelerator. Operations that the program has made itself are called as they are.

mod stage;

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use super::accelerator::AcceleratorAbi;
use super::component::{self, Framework};
use super::guard::{guard, guard_early};
use super::sys::{Datatype, Object};
use super::v5_0::accelerator;
use super::v5_0::sys::{Op, OpComponent, OpModule, Reduce, ReduceInto};

const NAME: &str = "op";
const SUCCESS: c_int = 0;
/// `OMPI_ERR_NOT_AVAILABLE`
const NOT_AVAILABLE: c_int = -16;
/// Above all others, so that it is in front of them: the host takes the greatest last, and cuts at 100.
const PRIORITY: c_int = 100;
/// `OMPI_OP_BASE_TYPE_MAX`
const TYPES: usize = 43;
/// `OMPI_OP_FLAGS_INTRINSIC`
const INTRINSIC: u32 = 1;
/// More references than the host gives back.
///
/// HOST: 5.0.7 releases the wrong module for functions into a third array (`op_base_op_select.c`), and may so
/// release one too often. Modules are small and few, and stay.
const REFERENCES: i32 = 1 << 20;

/// The component structure.
pub(super) fn component<A: AcceleratorAbi>() -> OpComponent {
    let framework = Framework { project: "ompi", name: "op", version: [1, 0, 0] };
    let mut component = OpComponent::EMPTY;
    component.base = component::base::<A>(&framework, c"hawser");
    component.init = Some(init::<A>);
    component.query_op = Some(query);
    component
}

unsafe extern "C" fn init<A: AcceleratorAbi>(_progress_threads: bool, _threads: bool) -> c_int {
    guard_early(NAME, "init", NOT_AVAILABLE, || if A::has_devices() { SUCCESS } else { NOT_AVAILABLE })
}

/// A module, with what it is in front of.
#[repr(C)]
struct Shell {
    /// The host's table; first, so that its address is the module's.
    table: OpModule,
    before: [(Reduce, *mut OpModule); TYPES],
    before_into: [(ReduceInto, *mut OpModule); TYPES],
}

unsafe extern "C" fn query(op: *mut Op, priority: *mut c_int) -> *mut OpModule {
    guard_early(NAME, "query", ptr::null_mut(), || {
        // SAFETY: the host's operation, which it is about to fill in.
        if unsafe { (*op).flags } & INTRINSIC == 0 {
            return ptr::null_mut();
        }
        let shell = Box::leak(Box::new(Shell {
            table: OpModule {
                object: Object { class: accelerator::op_class(), references: REFERENCES, _pad0: [0; 4] },
                enable: Some(enable),
                op,
                functions: [None; TYPES],
                functions_into: [None; TYPES],
            },
            before: [(None, ptr::null_mut()); TYPES],
            before_into: [(None, ptr::null_mut()); TYPES],
        }));
        // SAFETY: a variable of the host's.
        unsafe { priority.write(PRIORITY) };
        ptr::from_mut(shell).cast()
    })
}

/// The host has filled the operation in but for us: what is there is what we are in front of.
unsafe extern "C" fn enable(module: *mut OpModule, op: *mut Op) -> c_int {
    guard_early(NAME, "enable", NOT_AVAILABLE, || {
        // SAFETY: the host passes the module that `query` leaked, and nobody else uses it meanwhile.
        let shell = unsafe { &mut *module.cast::<Shell>() };
        // SAFETY: the host's operation, which it fills in on this thread alone.
        let op = unsafe { &*op };
        for index in 0..TYPES {
            // None stays none: it says that the operation is not defined for the type.
            shell.before[index] = (op.functions[index], op.modules[index]);
            shell.table.functions[index] = op.functions[index].and(REDUCE[index]);
            shell.before_into[index] = (op.functions_into[index], op.modules_into[index]);
            shell.table.functions_into[index] = op.functions_into[index].and(REDUCE_INTO[index]);
            for before in [op.modules[index], op.modules_into[index]] {
                if let Some(before) = NonNull::new(before) {
                    // SAFETY: a live module of the host's; we keep it for as long as our own, which is for ever. The host
                    // counts references without threads here.
                    unsafe { (*before.as_ptr()).object.references += 1 };
                }
            }
        }
        SUCCESS
    })
}

/// Functions of one type of number, told apart by its place in the host's tables: nothing else says which of the
/// host's functions is meant.
macro_rules! by_type {
    ($($index:literal)*) => {
        const REDUCE: [Reduce; TYPES] = [$(Some(reduce::<$index>)),*];
        const REDUCE_INTO: [ReduceInto; TYPES] = [$(Some(reduce_into::<$index>)),*];
    };
}
by_type!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42);

/// What the host passes with two or three arrays.
#[derive(Clone, Copy)]
struct Call {
    count: c_int,
    datatype: *mut *mut Datatype,
    /// Bytes from one element to the next.
    stride: usize,
}

impl Call {
    /// # Safety
    /// A count, and a datatype, of the host's.
    unsafe fn of(count: *mut c_int, datatype: *mut *mut Datatype) -> Self {
        // SAFETY: as the caller says.
        let number = unsafe { count.read() };
        // SAFETY: as the caller says.
        let of = unsafe { datatype.read() };
        // SAFETY: a live datatype.
        let ub = unsafe { (*of).ub };
        // SAFETY: a live datatype.
        let lb = unsafe { (*of).lb };
        Self { count: number, datatype, stride: (ub - lb).unsigned_abs() }
    }
}

unsafe extern "C" fn reduce<const TYPE: usize>(
    input: *const c_void,
    result: *mut c_void,
    count: *mut c_int,
    datatype: *mut *mut Datatype,
    module: *mut OpModule,
) {
    // SAFETY: the host passes the module that the function is of, which stays.
    let shell = unsafe { &*module.cast::<Shell>() };
    let (before, theirs) = shell.before[TYPE];
    let Some(before) = before else { return };
    if !accelerator::is_on_device(input) && !accelerator::is_on_device(result) {
        // SAFETY: as the host calls us.
        unsafe { before(input, result, count, datatype, theirs) };
        return;
    }
    guard(NAME, "reduce", || {
        // SAFETY: the host's count and datatype.
        let call = unsafe { Call::of(count, datatype) };
        let body = |arrays: [*mut c_void; 2], mut count: c_int| {
            // SAFETY: so many elements of the host's arrays, or of copies of them.
            unsafe { before(arrays[0], arrays[1], &raw mut count, call.datatype, theirs) };
        };
        // SAFETY: two arrays of so many elements; the second is read and written.
        unsafe { stage::through_host(call, [input.cast_mut(), result], true, body) };
    });
}

unsafe extern "C" fn reduce_into<const TYPE: usize>(
    first: *const c_void,
    second: *const c_void,
    result: *mut c_void,
    count: *mut c_int,
    datatype: *mut *mut Datatype,
    module: *mut OpModule,
) {
    // SAFETY: the host passes the module that the function is of, which stays.
    let shell = unsafe { &*module.cast::<Shell>() };
    let (before, theirs) = shell.before_into[TYPE];
    let Some(before) = before else { return };
    if ![first, second, result.cast_const()].into_iter().any(accelerator::is_on_device) {
        // SAFETY: as the host calls us.
        unsafe { before(first, second, result, count, datatype, theirs) };
        return;
    }
    guard(NAME, "reduce_into", || {
        // SAFETY: the host's count and datatype.
        let call = unsafe { Call::of(count, datatype) };
        let body = |arrays: [*mut c_void; 3], mut count: c_int| {
            // SAFETY: so many elements of the host's arrays, or of copies of them.
            unsafe { before(arrays[0], arrays[1], arrays[2], &raw mut count, call.datatype, theirs) };
        };
        // SAFETY: three arrays of so many elements; the third is written.
        unsafe { stage::through_host(call, [first.cast_mut(), second.cast_mut(), result], false, body) };
    });
}
