//! The performance variables of a byte transport: for each counter one value per module, and `devices`,
//! which says how many modules there are and what they are called.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use super::component::shells;
use super::sys::BtlPvar;
use super::{BtlAbi, Listed};
use crate::host::foreign;
use crate::host::guard::guard;
use crate::host::services::{EnumValue, Services};

/// Values of `opal/mca/base/mca_base_pvar.h` and `mca_base_var.h`.
mod kind {
    pub(super) const STATE: i32 = 0;
    pub(super) const HIGH_WATERMARK: i32 = 4;
    pub(super) const COUNTER: i32 = 6;
    pub(super) const INT: i32 = 0;
    pub(super) const UNSIGNED_LONG_LONG: i32 = 3;
    pub(super) const READONLY: i32 = 0x080;
    pub(super) const CONTINUOUS: i32 = 0x100;
    /// `OPAL_INFO_LVL_4`
    pub(super) const LEVEL: i32 = 3;
}

/// Registers everything, once there are modules.
pub(super) fn register<A: BtlAbi, T: Listed>(names: &[String]) {
    if T::COUNTERS.is_empty() || names.is_empty() {
        return;
    }
    let registry = T::registry();
    let _ = registry.values.compare_exchange(0, names.len(), Ordering::AcqRel, Ordering::Acquire);
    let texts: Vec<CString> =
        names.iter().map(|name| CString::new(name.as_str()).unwrap_or_default()).collect();
    let mut values: Vec<EnumValue> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| EnumValue { value: index as c_int, name: text.as_ptr() })
        .collect();
    values.push(EnumValue { value: 0, name: ptr::null() });
    let title = CString::new(T::COMPONENT).unwrap_or_default();
    let mut devices = ptr::null_mut();
    // SAFETY: a table ended by a null name, and a variable of ours; the host keeps a copy of the texts.
    unsafe { (Services::host().enum_create)(title.as_ptr(), values.as_ptr(), &raw mut devices) };
    registry.names.store(devices, Ordering::Release);
    let variable = |name: &str, help: &str, class, kind, values, read, index| {
        add::<T>(&Variable { name, help, class, kind, values, read, index });
    };
    variable(
        "devices",
        "Modules (network interfaces) in use",
        kind::STATE,
        kind::INT,
        devices,
        device::<T> as *mut c_void,
        0,
    );
    for (index, &(name, help)) in T::COUNTERS.iter().enumerate() {
        let class = if name.starts_with("max_") { kind::HIGH_WATERMARK } else { kind::COUNTER };
        let read = value::<A, T> as *mut c_void;
        variable(name, help.trim(), class, kind::UNSIGNED_LONG_LONG, ptr::null_mut(), read, index);
    }
}

struct Variable<'a> {
    name: &'a str,
    help: &'a str,
    class: c_int,
    kind: c_int,
    values: *mut c_void,
    /// A function of the host's type `mca_base_get_value_fn_t`.
    read: *mut c_void,
    /// For that function.
    index: usize,
}

fn add<T: Listed>(variable: &Variable<'_>) {
    let (Ok(name), Ok(help)) = (CString::new(variable.name), CString::new(variable.help)) else { return };
    let component = CString::new(T::name()).unwrap_or_default();
    // SAFETY: the host copies the texts; `read` and `bound` have the types that it expects of them, and
    // the last argument is only a number for them.
    unsafe {
        (Services::host().pvar_register)(
            c"opal".as_ptr(),
            c"btl".as_ptr(),
            component.as_ptr(),
            name.as_ptr(),
            help.as_ptr(),
            kind::LEVEL,
            variable.class,
            variable.kind,
            variable.values,
            0,
            kind::READONLY | kind::CONTINUOUS,
            variable.read,
            ptr::null_mut(),
            bound::<T> as *mut c_void,
            ptr::without_provenance_mut(variable.index),
        )
    };
}

/// How many values a variable has, when it is bound (`mca_base_notify_fn_t`).
unsafe extern "C" fn bound<T: Listed>(
    _: *mut BtlPvar,
    event: c_int,
    _: *mut c_void,
    count: *mut c_int,
) -> c_int {
    /// `MCA_BASE_PVAR_HANDLE_BIND`
    const BIND: c_int = 0;
    guard(T::COMPONENT, "pvar bound", || {
        if event == BIND {
            let values = T::registry().values.load(Ordering::Acquire);
            // SAFETY: with this event the host passes the variable for the number of values.
            unsafe { foreign::write(count, values as c_int) };
        }
        0
    })
}

/// The values of a counter (`mca_base_get_value_fn_t`): 0 for a module that this session lacks.
unsafe extern "C" fn value<A: BtlAbi, T: Listed>(
    pvar: *const BtlPvar,
    values: *mut c_void,
    _: *mut c_void,
) -> c_int {
    guard(T::COMPONENT, "pvar value", || {
        // SAFETY: the host passes the live variable that it reads, one that `add` registered.
        let index = unsafe { (*pvar).context }.addr();
        let _held = T::registry().hold();
        let counts = shells::<A, T>().map(|shell| shell.core.counter(index)).chain(std::iter::repeat(0));
        let room = T::registry().values.load(Ordering::Acquire);
        // SAFETY: the handle has room for as many values as `bound` said when it was made, which is `room`:
        // that never changes again.
        unsafe { foreign::write_all(values.cast::<u64>(), counts.take(room)) };
        0
    })
}

/// The numbers of the modules, whose names the enumeration has (`mca_base_get_value_fn_t`).
unsafe extern "C" fn device<T: Listed>(_: *const BtlPvar, values: *mut c_void, _: *mut c_void) -> c_int {
    guard(T::COMPONENT, "pvar device", || {
        let room = T::registry().values.load(Ordering::Acquire);
        // SAFETY: the handle has room for as many values as `bound` said when it was made, which is `room`:
        // that never changes again.
        unsafe { foreign::write_all(values.cast::<c_int>(), 0..room as c_int) };
        0
    })
}
