//! The functions of an accelerator's table (`opal/mca/accelerator/accelerator.h`).
//!
//! The host's numbers of devices are ours; -1 is "none in particular". Which device a buffer is on is asked of
//! the buffer and not taken from these arguments, which the host mostly fills with -1, and neither is the kind of
//! a copy: it could be wrong, and the answer costs little beside a copy.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{NAME, NOT_AVAILABLE, SUCCESS, Table, object};
use crate::accelerator::{Accelerator, Allocation, Error, Place, Result, Transfer};
use crate::host::foreign;
use crate::host::guard::guard;
use crate::host::v5_0::accelerator::send_to_self;
use crate::host::v5_0::sys::{Accelerator as Module, AcceleratorObject, PciAttributes};

/// `OPAL_ERROR`
const ERROR: c_int = -1;
/// `OPAL_ERR_OUT_OF_RESOURCE`
const OUT_OF_RESOURCE: c_int = -2;
/// `OPAL_ERR_RESOURCE_BUSY`
const RESOURCE_BUSY: c_int = -4;
/// `OPAL_ERR_BAD_PARAM`
const BAD_PARAM: c_int = -5;
/// `MCA_ACCELERATOR_NO_DEVICE_ID`
const NO_DEVICE: c_int = -1;
/// `MCA_ACCELERATOR_FLAGS_UNIFIED_MEMORY`
const UNIFIED_MEMORY: u64 = 1;

impl<T: Accelerator> Table<T> {
    /// The table.
    pub(super) const MODULE: &'static Module = &Module {
        check_addr: Some(check_addr::<T>),
        create_stream: Some(create_stream::<T>),
        create_event: Some(create_event::<T>),
        record_event: Some(record_event::<T>),
        query_event: Some(query_event::<T>),
        mem_copy_async: Some(mem_copy_async::<T>),
        mem_copy: Some(mem_copy::<T>),
        mem_move: Some(mem_copy::<T>),
        mem_alloc: Some(mem_alloc::<T>),
        mem_release: Some(mem_release::<T>),
        get_address_range: Some(get_address_range::<T>),
        host_register: Some(host_register::<T>),
        host_unregister: Some(host_unregister::<T>),
        get_device: Some(get_device::<T>),
        get_device_pci_attr: Some(get_device_pci_attr::<T>),
        device_can_access_peer: Some(device_can_access_peer::<T>),
        get_buffer_id: Some(get_buffer_id::<T>),
    };
}

/// What says where memory is (`opal_accelerator_base_module_check_addr_fn_t`).
pub(in crate::host) type CheckAddress = unsafe extern "C" fn(*const c_void, *mut c_int, *mut u64) -> c_int;
/// What copies (`opal_accelerator_base_module_memcpy_fn_t`).
pub(in crate::host) type Copy =
    unsafe extern "C" fn(c_int, c_int, *mut c_void, *const c_void, usize, c_int) -> c_int;

/// Both, for who works without the host's framework.
pub(in crate::host) fn functions<T: Accelerator>() -> (CheckAddress, Copy) {
    (check_addr::<T>, mem_copy::<T>)
}

/// The host's code for an error.
fn code(error: Error) -> c_int {
    match error {
        Error::OutOfMemory => OUT_OF_RESOURCE,
        Error::NotLoaded | Error::NotInitialized | Error::NoDevice => NOT_AVAILABLE,
        Error::NotOnDevice => BAD_PARAM,
        Error::Deinitialized | Error::Gone(_) | Error::Driver(_) => ERROR,
    }
}

/// The host's code for a result, after the value was written where it belongs.
fn written<V>(result: Result<V>, write: impl FnOnce(V)) -> c_int {
    match result {
        Ok(value) => {
            write(value);
            SUCCESS
        }
        Err(error) => code(error),
    }
}

unsafe extern "C" fn check_addr<T: Accelerator>(
    address: *const c_void,
    device: *mut c_int,
    flags: *mut u64,
) -> c_int {
    guard(NAME, "check_addr", || {
        let (found, number, properties) = match T::the().place(address.addr()) {
            Ok(Place::Host) => (0, NO_DEVICE, 0),
            Ok(Place::Device(on)) => (1, on.ordinal, if on.is_managed { UNIFIED_MEMORY } else { 0 }),
            Err(_) => (ERROR, NO_DEVICE, 0),
        };
        // SAFETY: null, or a variable of the host's, for the time of the call.
        unsafe { foreign::write(device, number) };
        // SAFETY: null, or a variable of the host's, for the time of the call.
        unsafe { foreign::write(flags, properties) };
        found
    })
}

/// Hands over an object.
///
/// # Safety
/// Null, or a variable of the host's.
unsafe fn hand_over(
    variable: *mut *mut AcceleratorObject,
    make: impl FnOnce() -> Option<ptr::NonNull<AcceleratorObject>>,
) -> c_int {
    if variable.is_null() {
        return BAD_PARAM;
    }
    let object = make();
    // SAFETY: not null, hence a variable of the host's.
    unsafe { variable.write(object.map_or(ptr::null_mut(), ptr::NonNull::as_ptr)) };
    if object.is_some() { SUCCESS } else { OUT_OF_RESOURCE }
}

unsafe extern "C" fn create_stream<T: Accelerator>(
    _device: c_int,
    stream: *mut *mut AcceleratorObject,
) -> c_int {
    guard(NAME, "create_stream", || {
        send_to_self();
        // SAFETY: as the caller says.
        unsafe { hand_over(stream, object::stream::<T>) }
    })
}

unsafe extern "C" fn create_event<T: Accelerator>(
    _device: c_int,
    event: *mut *mut AcceleratorObject,
) -> c_int {
    // SAFETY: as the caller says.
    guard(NAME, "create_event", || unsafe { hand_over(event, object::event::<T>) })
}

unsafe extern "C" fn record_event<T: Accelerator>(
    _device: c_int,
    event: *mut AcceleratorObject,
    stream: *mut AcceleratorObject,
) -> c_int {
    guard(NAME, "record_event", || {
        // SAFETY: the host passes an event that `create_event` made, and keeps it for the time of the call.
        let event = unsafe { object::inside::<T::Event>(event) };
        // SAFETY: the host passes a stream that `create_stream` made, and keeps it for the time of the call.
        let stream = unsafe { object::inside::<T::Stream>(stream) };
        let (Some(event), Some(stream)) = (event, stream) else { return BAD_PARAM };
        written(T::the().record(event, stream), |()| ())
    })
}

unsafe extern "C" fn query_event<T: Accelerator>(_device: c_int, event: *mut AcceleratorObject) -> c_int {
    guard(NAME, "query_event", || {
        // SAFETY: the host passes an event that `create_event` made, and keeps it for the time of the call.
        let Some(event) = (unsafe { object::inside::<T::Event>(event) }) else { return BAD_PARAM };
        match T::the().is_reached(event) {
            Ok(true) => SUCCESS,
            Ok(false) => RESOURCE_BUSY,
            Err(error) => code(error),
        }
    })
}

/// A copy, or the code for one that is not.
///
/// # Safety
/// As [`Transfer`]'s invariant says, unless a range is null or there is nothing to copy.
unsafe fn transfer(to: *mut c_void, from: *const c_void, len: usize) -> std::result::Result<Transfer, c_int> {
    if len == 0 {
        return Err(SUCCESS);
    }
    if to.is_null() || from.is_null() {
        return Err(BAD_PARAM);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { Transfer::new(to.cast(), from.cast(), len) })
}

unsafe extern "C" fn mem_copy_async<T: Accelerator>(
    _to_device: c_int,
    _from_device: c_int,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    stream: *mut AcceleratorObject,
    _kind: c_int,
) -> c_int {
    guard(NAME, "mem_copy_async", || {
        // SAFETY: the host passes a stream that `create_stream` made, and keeps it for the time of the call.
        let Some(stream) = (unsafe { object::inside::<T::Stream>(stream) }) else { return BAD_PARAM };
        // SAFETY: the ranges are so long, and the host leaves them alone until it has seen an event behind the copy.
        match unsafe { transfer(to, from, len) } {
            Ok(transfer) => written(T::the().begin(transfer, stream), |()| ()),
            Err(code) => code,
        }
    })
}

/// A copy; of ranges that overlap, too.
unsafe extern "C" fn mem_copy<T: Accelerator>(
    _to_device: c_int,
    _from_device: c_int,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    _kind: c_int,
) -> c_int {
    // SAFETY: the ranges are so long, and nobody else uses them during the call.
    guard(NAME, "mem_copy", || match unsafe { transfer(to, from, len) } {
        Ok(transfer) => written(T::the().copy(transfer), |()| ()),
        Err(code) => code,
    })
}

unsafe extern "C" fn mem_alloc<T: Accelerator>(
    device: c_int,
    address: *mut *mut c_void,
    len: usize,
) -> c_int {
    guard(NAME, "mem_alloc", || {
        if address.is_null() {
            return BAD_PARAM;
        }
        // SAFETY: not null, hence a variable of the host's.
        let put = |start| unsafe { address.write(ptr::without_provenance_mut(start)) };
        put(0);
        if len == 0 {
            return SUCCESS;
        }
        let device = (device != NO_DEVICE).then_some(device);
        written(T::the().allocate(device, len).map(Allocation::into_address), put)
    })
}

unsafe extern "C" fn mem_release<T: Accelerator>(_device: c_int, address: *mut c_void) -> c_int {
    guard(NAME, "mem_release", || {
        if address.is_null() {
            return SUCCESS;
        }
        let freed = T::the().owner(address.addr()).and_then(|(driver, context)| {
            // SAFETY: the host passes what `mem_alloc` gave it, once; the context is the allocation's own.
            unsafe { Allocation::adopt(driver, context, address.addr()) }.free()
        });
        written(freed, |()| ())
    })
}

unsafe extern "C" fn get_address_range<T: Accelerator>(
    _device: c_int,
    address: *const c_void,
    base: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    guard(NAME, "get_address_range", || {
        written(T::the().range(address.addr()), |(start, bytes)| {
            // SAFETY: null, or a variable of the host's, for the time of the call.
            unsafe { foreign::write(base, ptr::without_provenance_mut(start)) };
            // SAFETY: null, or a variable of the host's, for the time of the call.
            unsafe { foreign::write(len, bytes) };
        })
    })
}

unsafe extern "C" fn host_register<T: Accelerator>(
    _device: c_int,
    address: *mut c_void,
    len: usize,
) -> c_int {
    guard(NAME, "host_register", || {
        if address.is_null() {
            return BAD_PARAM;
        }
        written(T::the().register(address.addr(), len), |()| ())
    })
}

unsafe extern "C" fn host_unregister<T: Accelerator>(_device: c_int, address: *mut c_void) -> c_int {
    guard(NAME, "host_unregister", || written(T::the().unregister(address.addr()), |()| ()))
}

unsafe extern "C" fn get_device<T: Accelerator>(device: *mut c_int) -> c_int {
    guard(NAME, "get_device", || {
        if device.is_null() {
            return BAD_PARAM;
        }
        let found = T::the().device();
        // SAFETY: not null, hence a variable of the host's.
        unsafe { device.write(found.unwrap_or(NO_DEVICE)) };
        written(found, |_| ())
    })
}

unsafe extern "C" fn get_device_pci_attr<T: Accelerator>(device: c_int, place: *mut PciAttributes) -> c_int {
    guard(NAME, "get_device_pci_attr", || {
        if place.is_null() {
            return BAD_PARAM;
        }
        written(T::the().pci(device), |[domain, bus, number, function]| {
            let found =
                PciAttributes { domain, bus: bus as u8, device: number as u8, function: function as u8 };
            // SAFETY: not null, hence a variable of the host's.
            unsafe { place.write(found) };
        })
    })
}

unsafe extern "C" fn device_can_access_peer<T: Accelerator>(
    access: *mut c_int,
    device: c_int,
    other: c_int,
) -> c_int {
    guard(NAME, "device_can_access_peer", || {
        if access.is_null() {
            return BAD_PARAM;
        }
        written(T::the().reaches(device, other), |can| {
            // SAFETY: not null, hence a variable of the host's.
            unsafe { access.write(c_int::from(can)) };
        })
    })
}

unsafe extern "C" fn get_buffer_id<T: Accelerator>(
    _device: c_int,
    address: *const c_void,
    id: *mut u64,
) -> c_int {
    guard(NAME, "get_buffer_id", || {
        if id.is_null() {
            return BAD_PARAM;
        }
        // SAFETY: not null, hence a variable of the host's.
        written(T::the().buffer_id(address.addr()), |number| unsafe { id.write(number) })
    })
}
