//! Reductions on device memory: the component `hawser` of the host's framework for operations.
//!
//! The host's operations are loops on the CPU (`ompi/mca/op`), and it runs them on whatever buffers a program
//! gave, or keeps itself: device memory among them would be touched by the CPU, which ends the process. Here each
//! function of each operation is replaced by one that asks where its buffers are. Those in host memory go straight
//! to the function that was there before, also if that is another component's; device memory is staged through
//! host memory, piece by piece. So every reduction is served, blocking or not, with one buffer or three:
//! collectives on any transport, accumulation into windows, `MPI_Reduce_local`.
//!
//! It is not there without an accelerator: then nothing is replaced. On 4.1, which has none, it is there where the
//! host's copies are looked at ([`unaware`]), and it is what begins that; where copies are refused, so are operations.
//! Operations of the user's own are for [`user_operation`].
//!
//! It is also what has the host tell when memory goes ([`released`]): an accelerator is begun before the host can.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::Own;
use super::accelerator::Devices;
use super::sys::{OP_TYPES, Op, OpComponent, OpModule};
use super::user_operation;
use crate::accelerator::Cuda;
use crate::error::say;
use crate::host::abi::Abi;
use crate::host::component::{self, Framework};
use crate::host::copy_hook;
use crate::host::foreign;
use crate::host::guard::{guard, guard_early};
use crate::host::object::{self, Initialize, Instance, OwnClass};
use crate::host::released;
use crate::host::symbols::Loaded;
use crate::host::sys::{Class, Datatype, Object};
use crate::host::v4_1::devices as unaware;

/// What it is called in messages.
const COMPONENT: &str = "op_hawser";

/// `OMPI_ERR_NOT_AVAILABLE`
const NOT_AVAILABLE: c_int = -16;

/// Above whatever computes.
const PRIORITY: c_int = 100;

/// Bytes of a buffer that are staged at once.
const PIECE: usize = 1 << 20;

/// `MCA_ACCELERATOR_NO_DEVICE_ID`
const NO_DEVICE: c_int = -1;
/// `MCA_ACCELERATOR_TRANSFER_UNSPEC`
const ANY_WAY: c_int = 0;

impl Devices {
    /// Copies, whatever is where, or ends the process: an operation cannot fail, and must not be wrong.
    ///
    /// # Safety
    /// Both are so many bytes, of the host's memory or of a device's, and do not overlap.
    pub(super) unsafe fn copy(self, to: *mut c_void, from: *const c_void, len: usize) {
        // SAFETY: as the caller says.
        let code = unsafe { (self.mem_copy)(NO_DEVICE, NO_DEVICE, to, from, len, ANY_WAY) };
        if code != 0 {
            say(format_args!(
                "a reduction cannot copy {len} bytes between device and host memory (error {code}); \
                 the process is ended, because the result would be wrong"
            ));
            std::process::abort();
        }
    }
}

/// The function of an operation for one type of elements: source, target, how many, their datatype, the module
/// that the function is of.
type Reduce2 = unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut *mut c_void, *mut OpModule);

/// The same with two sources, and a target that is only written.
type Reduce3 = unsafe extern "C" fn(
    *const c_void,
    *const c_void,
    *mut c_void,
    *mut c_int,
    *mut *mut c_void,
    *mut OpModule,
);

/// The function that was there before, and the module that it is of.
#[derive(Clone, Copy)]
struct Previous<F> {
    function: Option<F>,
    module: *mut OpModule,
}

impl<F> Previous<F> {
    const NONE: Self = Self { function: None, module: ptr::null_mut() };
}

/// A module: what the host knows of it first.
#[repr(C)]
struct Module {
    head: OpModule,
    devices: Devices,
    /// Types that this host's operations know: its arrays have so many places.
    types: usize,
    /// Bytes of an element, by type; 0 for a type that this host does not have.
    sizes: [usize; OP_TYPES],
    previous: [Previous<Reduce2>; OP_TYPES],
    previous3: [Previous<Reduce3>; OP_TYPES],
}

// SAFETY: `OpModule` is first and begins with the object; plain numbers and pointers besides.
unsafe impl Instance for Module {}

static CLASS: OwnClass = OwnClass::new();

/// One of a reduction's buffers.
struct Buffer {
    start: *mut u8,
    is_read: bool,
    is_written: bool,
    /// Host memory for a piece; none for a buffer that is there itself. Aligned for every type.
    room: Option<Vec<u128>>,
}

impl Buffer {
    fn new(devices: Devices, start: *const c_void, is_read: bool, is_written: bool, piece: usize) -> Self {
        let room = devices.have(start).then(|| vec![0; piece.div_ceil(size_of::<u128>())]);
        Self { start: start.cast::<u8>().cast_mut(), is_read, is_written, room }
    }
}

/// Runs a reduction piece by piece on host memory.
///
/// # Safety
/// The buffers have `count` elements of `size` bytes each.
unsafe fn stage<const N: usize>(
    devices: Devices,
    mut buffers: [Buffer; N],
    size: usize,
    count: usize,
    mut run: impl FnMut([*mut c_void; N], c_int),
) {
    let at_once = (PIECE / size).max(1);
    for first in (0..count).step_by(at_once) {
        let elements = at_once.min(count - first);
        let (offset, len) = (first * size, elements * size);
        let places = buffers.each_mut().map(|buffer| {
            let there = buffer.start.wrapping_add(offset).cast::<c_void>();
            let Some(room) = &mut buffer.room else { return there };
            let here = room.as_mut_ptr().cast::<c_void>();
            if buffer.is_read {
                // SAFETY: elements of the buffer, which is a device's, and room for as many here.
                unsafe { devices.copy(here, there, len) };
            }
            here
        });
        run(places, c_int::try_from(elements).expect("a part of a number of this type"));
        for (buffer, here) in buffers.iter().zip(places) {
            if buffer.is_written && buffer.room.is_some() {
                let there = buffer.start.wrapping_add(offset).cast();
                // SAFETY: elements of the buffer, which is a device's, and as many here.
                unsafe { devices.copy(there, here, len) };
            }
        }
    }
}

/// Elements in a call, and the bytes of the longest piece.
///
/// # Safety
/// The host's variable.
unsafe fn extent(count: *mut c_int, size: usize) -> (usize, usize) {
    // SAFETY: a variable of the host's.
    let count = usize::try_from(unsafe { *count }).unwrap_or(0);
    (count, PIECE.max(size).min(count.saturating_mul(size)))
}

/// `target = source op target`
unsafe extern "C" fn reduce2<const TYPE: usize>(
    source: *const c_void,
    target: *mut c_void,
    count: *mut c_int,
    datatype: *mut *mut c_void,
    module: *mut OpModule,
) {
    // SAFETY: the host calls a function with the module that it is of, which is alive, and not written any more.
    let module = unsafe { &*module.cast::<Module>() };
    let (devices, size, previous) = (module.devices, module.sizes[TYPE], module.previous[TYPE]);
    let Some(function) = previous.function else { return };
    guard(COMPONENT, "reduce", || {
        if !devices.have(source) && !devices.have(target) {
            // SAFETY: what the host called with, for the function that was there before and its own module.
            return unsafe { function(source, target, count, datatype, previous.module) };
        }
        // SAFETY: the host's variable.
        let (elements, piece) = unsafe { extent(count, size) };
        let buffers = [
            Buffer::new(devices, source, true, false, piece),
            Buffer::new(devices, target, true, true, piece),
        ];
        let run = |[source, target]: [*mut c_void; 2], mut count: c_int| {
            // SAFETY: host memory with so many elements, for the function and its own module.
            unsafe { function(source, target, &raw mut count, datatype, previous.module) };
        };
        // SAFETY: the host's buffers have so many elements of this type.
        unsafe { stage(devices, buffers, size, elements, run) };
    });
}

/// `target = first op second`
unsafe extern "C" fn reduce3<const TYPE: usize>(
    first: *const c_void,
    second: *const c_void,
    target: *mut c_void,
    count: *mut c_int,
    datatype: *mut *mut c_void,
    module: *mut OpModule,
) {
    // SAFETY: the host calls a function with the module that it is of, which is alive, and not written any more.
    let module = unsafe { &*module.cast::<Module>() };
    let (devices, size, previous) = (module.devices, module.sizes[TYPE], module.previous3[TYPE]);
    let Some(function) = previous.function else { return };
    guard(COMPONENT, "reduce", || {
        if !devices.have(first) && !devices.have(second) && !devices.have(target) {
            // SAFETY: what the host called with, for the function that was there before and its own module.
            return unsafe { function(first, second, target, count, datatype, previous.module) };
        }
        // SAFETY: the host's variable.
        let (elements, piece) = unsafe { extent(count, size) };
        let buffers = [
            Buffer::new(devices, first, true, false, piece),
            Buffer::new(devices, second, true, false, piece),
            Buffer::new(devices, target, false, true, piece),
        ];
        let run = |[first, second, target]: [*mut c_void; 3], mut count: c_int| {
            // SAFETY: host memory with so many elements, for the function and its own module.
            unsafe { function(first, second, target, &raw mut count, datatype, previous.module) };
        };
        // SAFETY: the host's buffers have so many elements of this type.
        unsafe { stage(devices, buffers, size, elements, run) };
    });
}

/// A function for each type: the datatype that comes with a call may be a derived one, and says nothing of it.
macro_rules! for_each_type {
    ($function:ident: $($type:literal)*) => { [$($function::<$type>),*] };
    ($function:ident) => {
        for_each_type!($function: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
            28 29 30 31 32 33 34 35 36 37 38 39 40 41 42)
    };
}

static REDUCE2: [Reduce2; OP_TYPES] = for_each_type!(reduce2);
static REDUCE3: [Reduce3; OP_TYPES] = for_each_type!(reduce3);

/// What of the host's is needed for modules.
struct Host {
    initialize: Initialize,
    module_class: *mut Class,
    /// How many types its operations know.
    types: usize,
    /// The place of a datatype's functions, by the number of the datatype; negative for one that has none.
    op_types: *const c_int,
    /// The datatypes by number, and how many there are.
    datatypes: *const *const Datatype,
    numbers: usize,
}

impl Host {
    /// `None` where this host is not as expected.
    fn find<A: Abi>() -> Option<Self> {
        let (initialize, module_class, op_types, datatypes, numbers) = if A::DEVICE {
            let own = Own::host();
            let (op_types, datatypes) = (own.op_types.address(), own.predefined_types.address());
            (own.class_initialize, own.op_module_class.address(), op_types.cast(), datatypes.cast(), 52)
        } else {
            let host = Loaded::find(c"libmpi.so.40")?;
            let found = |name| Some(host.symbol(name).ok()?.as_ptr());
            let initialize = found(c"opal_class_initialize")?;
            // SAFETY: the host's function of this name, which is of this type in all versions.
            let initialize = unsafe { std::mem::transmute::<*mut c_void, Initialize>(initialize) };
            let op_types = found(c"ompi_op_ddt_map")?.cast();
            let datatypes = found(c"ompi_datatype_basicDatatypes")?.cast();
            (initialize, found(c"ompi_op_base_module_t_class")?.cast(), op_types, datatypes, 49)
        };
        // SAFETY: a class of the host's, which stays.
        let size = unsafe { (*module_class).size };
        let types = size.checked_sub(std::mem::offset_of!(OpModule, fns))? / (2 * size_of::<Reduce2>());
        (types <= OP_TYPES).then_some(Self { initialize, module_class, types, op_types, datatypes, numbers })
    }

    /// Bytes from element to element, by type.
    fn sizes(&self) -> [usize; OP_TYPES] {
        let mut sizes = [0; OP_TYPES];
        for number in 0..self.numbers {
            // SAFETY: so many numbers are there.
            let index = unsafe { self.op_types.wrapping_add(number).read() };
            // SAFETY: so many datatypes are there.
            let datatype = unsafe { self.datatypes.wrapping_add(number).read() };
            let index = usize::try_from(index).ok().filter(|index| *index < self.types);
            let Some(size) = index.and_then(|index| sizes.get_mut(index)) else { continue };
            if !datatype.is_null() {
                // SAFETY: a datatype of the host's own, which is there as long as the process.
                let lb = unsafe { (*datatype).lb };
                // SAFETY: a datatype of the host's own, which is there as long as the process.
                let ub = unsafe { (*datatype).ub };
                *size = usize::try_from(ub - lb).unwrap_or(0);
            }
        }
        sizes
    }
}

unsafe extern "C" fn register<A: Abi>() -> c_int {
    guard_early(COMPONENT, "register", NOT_AVAILABLE, || {
        if !A::DEVICE {
            unaware::register();
        }
        0
    })
}

unsafe extern "C" fn close<A: Abi>() -> c_int {
    guard_early(COMPONENT, "close", 0, || {
        user_operation::end();
        released::end();
        if !A::DEVICE {
            unaware::end();
        }
        0
    })
}

unsafe extern "C" fn init<A: Abi>(_progress_threads: bool, _threads: bool) -> c_int {
    guard_early(COMPONENT, "init", NOT_AVAILABLE, || {
        if !A::DEVICE {
            unaware::begin();
        }
        if !has_devices::<A>() {
            return NOT_AVAILABLE;
        }
        released::begin();
        user_operation::begin(devices::<A>);
        0
    })
}

fn has_devices<A: Abi>() -> bool {
    if A::DEVICE { A::has_devices() } else { copy_hook::is_on() }
}

/// How to find out where buffers are.
fn devices<A: Abi>() -> Option<Devices> {
    match (A::DEVICE, copy_hook::is_refusing()) {
        (true, _) => Devices::selected(),
        (false, false) => Some(Devices::of::<Cuda>()),
        (false, true) => Some(Devices::refused::<Cuda>()),
    }
}

/// A module for an operation of the host's. What it replaces is not known before [`enable`].
unsafe extern "C" fn query<A: Abi>(op: *mut Op, priority: *mut c_int) -> *mut OpModule {
    guard_early(COMPONENT, "query", ptr::null_mut(), || {
        let (Some(devices), Some(host)) = (devices::<A>(), Host::find::<A>()) else { return ptr::null_mut() };
        let module = Module {
            head: OpModule {
                object: Object::EMPTY,
                enable: Some(enable),
                op,
                fns: [None; OP_TYPES],
                fns3: [None; OP_TYPES],
            },
            devices,
            types: host.types,
            sizes: host.sizes(),
            previous: [Previous::NONE; OP_TYPES],
            previous3: [Previous::NONE; OP_TYPES],
        };
        let class = CLASS.get(c"hawser_op_module_t", host.module_class, end, size_of::<Module>());
        // SAFETY: the host's variable.
        unsafe { foreign::write(priority, PRIORITY) };
        // SAFETY: of the class's size, which is derived from the host's own.
        let made = unsafe { object::make(module, class, host.initialize) };
        made.map_or(ptr::null_mut(), |module| module.cast().as_ptr())
    })
}

/// The functions of lower priority are all there: takes their places.
unsafe extern "C" fn enable(module: *mut OpModule, op: *mut Op) -> c_int {
    guard_early(COMPONENT, "enable", NOT_AVAILABLE, || {
        let object = module.cast();
        // SAFETY: a module that `query` has made, which nobody else uses yet.
        let Module { head, types, sizes, previous, previous3, .. } = unsafe { &mut *module.cast::<Module>() };
        // The arrays lie one behind the other, and are as long as this host has types.
        let entries = (&raw mut head.fns).cast::<*const ()>();
        let place_of = |array: usize, place: usize| array * *types + place;
        // SAFETY: the operation that is being made.
        let theirs = unsafe { &raw const (*op).fns }.cast::<*mut c_void>();
        let mut given_up_in_error = 0;
        for place in (0..*types).filter(|place| sizes[*place] != 0) {
            // SAFETY: one of four arrays, of as many places; nobody writes them meanwhile.
            let entry = |array: usize| unsafe { theirs.wrapping_add(place_of(array, place)).read() };
            // SAFETY: one of two arrays of the module, of as many places.
            let put = |array: usize, ours: *const ()| unsafe {
                entries.wrapping_add(place_of(array, place)).write(ours);
            };
            // SAFETY: null, or a function of two buffers.
            let function = unsafe { std::mem::transmute::<*mut c_void, Option<Reduce2>>(entry(0)) };
            if let Some(function) = function {
                previous[place] = keep(function, entry(1).cast());
                put(0, REDUCE2[place] as *const ());
            }
            // SAFETY: null, or a function of three buffers.
            let function = unsafe { std::mem::transmute::<*mut c_void, Option<Reduce3>>(entry(2)) };
            if let Some(function) = function {
                previous3[place] = keep(function, entry(3).cast());
                put(1, REDUCE3[place] as *const ());
                given_up_in_error += usize::from(!entry(0).is_null());
            }
        }
        // HOST: when `ompi_op_base_op_select` of 4.1.4 and 5.0.7 replaces the function for three buffers, it gives up the
        // module of that for two, which is this one by then. As many users more make up for it; where a host is
        // right, the module stays to the end of the process.
        for _ in 0..given_up_in_error {
            // SAFETY: this module, alive.
            unsafe { object::retain(object) };
        }
        0
    })
}

/// A function that was there before; its module is kept.
fn keep<F>(function: F, module: *mut OpModule) -> Previous<F> {
    if !module.is_null() {
        // SAFETY: a module of an operation's, alive.
        unsafe { object::retain(module.cast()) };
    }
    Previous { function: Some(function), module }
}

/// The destructor of a module: those that were kept are not used any more.
unsafe extern "C" fn end(module: *mut c_void) {
    guard(COMPONENT, "end", || {
        // SAFETY: a module that `query` has made, which nobody uses any more.
        let module = unsafe { &*module.cast::<Module>() };
        let kept = module.previous.iter().map(|previous| previous.module);
        for kept in kept.chain(module.previous3.iter().map(|previous| previous.module)) {
            if !kept.is_null() {
                // SAFETY: kept by `keep` and alive since; all modules are `malloc`'s.
                unsafe { object::release(kept.cast()) };
            }
        }
    });
}

/// The component structure. A host without accelerators has the framework too: there the component declines.
pub(in crate::host) fn component<A: Abi>() -> OpComponent {
    let framework = Framework { project: "ompi", name: "op", version: [1, 0, 0] };
    let mut base = component::base::<A>(&framework, c"hawser");
    base.register = Some(register::<A>);
    base.close = Some(close::<A>);
    OpComponent::new(base, init::<A>, query::<A>)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use parking_lot::Mutex;

    use super::super::accelerator::UNIFIED;
    use super::*;

    /// Numbers on a device: there they are stored inverted, so that whoever touches them there gets it wrong.
    const COUNT: usize = (PIECE / 4) * 2 + 3;
    static DEVICE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    /// Addresses of the device: none that this process has.
    const BASE: usize = 0x7000 << 48;
    /// Another range, which the CPU may touch.
    const MANAGED: u64 = UNIFIED;

    unsafe extern "C" fn check_addr(address: *const c_void, device: *mut c_int, flags: *mut u64) -> c_int {
        // SAFETY: the caller's variable.
        unsafe { *device = 0 };
        // SAFETY: the caller's variable.
        unsafe { *flags = 0 };
        c_int::from(address.addr() >= BASE)
    }

    unsafe extern "C" fn managed(_: *const c_void, device: *mut c_int, flags: *mut u64) -> c_int {
        // SAFETY: the caller's variable.
        unsafe { *device = 0 };
        // SAFETY: the caller's variable.
        unsafe { *flags = MANAGED };
        1
    }

    unsafe extern "C" fn mem_copy(
        _: c_int,
        _: c_int,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        _: c_int,
    ) -> c_int {
        let mut device = DEVICE.lock();
        let place = |address: usize| (address - BASE) / 4;
        if to.addr() >= BASE {
            // SAFETY: as many bytes of the caller's.
            let here = unsafe { slice::from_raw_parts(from.cast::<u32>(), len / 4) };
            device[place(to.addr())..][..len / 4].iter_mut().zip(here).for_each(|(to, from)| *to = !from);
        } else {
            // SAFETY: as many bytes of the caller's.
            let here = unsafe { slice::from_raw_parts_mut(to.cast::<u32>(), len / 4) };
            here.iter_mut().zip(&device[place(from.addr())..]).for_each(|(to, from)| *to = !from);
        }
        0
    }

    const DEVICES: Devices = Devices { check_addr, mem_copy };

    /// Three arrays on the device: `n`, `2n`, and rubbish.
    fn fill() {
        let numbers = |factor: u32| (0..COUNT as u32).map(move |n| !(n * factor));
        *DEVICE.lock() = numbers(1).chain(numbers(2)).chain(numbers(7)).collect();
    }

    fn on_device(array: usize) -> *const c_void {
        ptr::without_provenance(BASE + array * COUNT * 4)
    }

    fn buffer(start: *const c_void, is_read: bool, is_written: bool) -> Buffer {
        Buffer::new(DEVICES, start, is_read, is_written, PIECE.min(COUNT * 4))
    }

    /// One test, because there is one device.
    #[test]
    fn buffers_of_a_device_are_staged_piece_by_piece() {
        fill();
        let mut calls = 0;
        let sum = |[source, target]: [*mut c_void; 2], count: c_int| {
            calls += 1;
            // SAFETY: host memory, by what is tested.
            let source = unsafe { slice::from_raw_parts(source.cast::<u32>(), count as usize) };
            // SAFETY: host memory, by what is tested.
            let target = unsafe { slice::from_raw_parts_mut(target.cast::<u32>(), count as usize) };
            target.iter_mut().zip(source).for_each(|(target, source)| *target += source);
        };
        // SAFETY: so many elements.
        unsafe {
            let buffers = [buffer(on_device(0), true, false), buffer(on_device(1), true, true)];
            stage(DEVICES, buffers, 4, COUNT, sum);
        }
        assert_eq!(calls, 3, "two whole pieces, and three numbers");
        let thrice = (0..COUNT as u32).map(|n| !(3 * n));
        let device = DEVICE.lock()[COUNT..2 * COUNT].to_vec();
        assert!(device.into_iter().eq(thrice), "the target is the sum");

        fill();
        let host: Vec<u32> = (0..COUNT as u32).map(|n| n * 10).collect();
        let difference = |[first, second, target]: [*mut c_void; 3], count: c_int| {
            // SAFETY: host memory, by what is tested.
            let first = unsafe { slice::from_raw_parts(first.cast::<u32>(), count as usize) };
            // SAFETY: host memory, by what is tested.
            let second = unsafe { slice::from_raw_parts(second.cast::<u32>(), count as usize) };
            // SAFETY: host memory, by what is tested.
            let target = unsafe { slice::from_raw_parts_mut(target.cast::<u32>(), count as usize) };
            let pairs = first.iter().zip(second);
            target.iter_mut().zip(pairs).for_each(|(target, (first, second))| *target = second - first);
        };
        // SAFETY: so many elements.
        unsafe {
            let buffers = [
                buffer(on_device(1), true, false),
                buffer(host.as_ptr().cast(), true, false),
                buffer(on_device(2), false, true),
            ];
            assert!(buffers[1].room.is_none(), "host memory is used where it is");
            stage(DEVICES, buffers, 4, COUNT, difference);
        }
        let eight = (0..COUNT as u32).map(|n| !(8 * n));
        let device = DEVICE.lock()[2 * COUNT..].to_vec();
        assert!(device.into_iter().eq(eight));
    }

    #[test]
    fn managed_memory_is_left_where_it_is() {
        let number = 1_u32;
        let devices = Devices { check_addr: managed, mem_copy };
        assert!(!devices.have(ptr::from_ref(&number).cast()));
    }

    #[test]
    fn a_piece_is_no_longer_than_the_buffers() {
        let mut count: c_int = 3;
        // SAFETY: a variable.
        assert_eq!(unsafe { extent(&raw mut count, 16) }, (3, 48));
        count = c_int::MAX;
        // SAFETY: a variable.
        assert_eq!(unsafe { extent(&raw mut count, 16) }, (c_int::MAX as usize, PIECE));
        count = -1;
        // SAFETY: a variable.
        assert_eq!(unsafe { extent(&raw mut count, 16) }, (0, 0));
    }
}
