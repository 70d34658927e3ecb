//! The performance variables of the usnic BTL: for each counter one value per module, under the
//! original's names, and `devices`, which says how many modules there are and what they are called.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::BtlAbi;
use super::component::modules;
use super::shell::Shell;
use super::sys::BtlPvar;
use crate::btl::usnic::COUNTERS;
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

/// Modules that there were when the variables were registered: a bound variable has so many values.
static MODULES: AtomicUsize = AtomicUsize::new(0);

/// The names of the modules; the host keeps a copy.
static DEVICES: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Registers everything, once there are modules.
pub(super) fn register<A: BtlAbi>(names: &[String]) {
    MODULES.store(names.len(), Ordering::Release);
    let texts: Vec<CString> =
        names.iter().map(|name| CString::new(name.as_str()).unwrap_or_default()).collect();
    let mut values: Vec<EnumValue> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| EnumValue { value: index as c_int, name: text.as_ptr() })
        .collect();
    values.push(EnumValue { value: 0, name: ptr::null() });
    let mut devices = ptr::null_mut();
    // SAFETY: a table ended by a null name; the host keeps a copy.
    unsafe { (Services::host().enum_create)(c"btl_usnic".as_ptr(), values.as_ptr(), &raw mut devices) };
    DEVICES.store(devices, Ordering::Release);
    add(
        "devices",
        "Modules (network interfaces) in use",
        kind::STATE,
        kind::INT,
        devices,
        device as *mut c_void,
        0,
    );
    for (index, &(name, help)) in COUNTERS.iter().enumerate() {
        let class = if name.starts_with("max_") { kind::HIGH_WATERMARK } else { kind::COUNTER };
        let read = value::<A> as *mut c_void;
        add(name, help.trim(), class, kind::UNSIGNED_LONG_LONG, ptr::null_mut(), read, index);
    }
}

fn add(
    name: &str,
    help: &str,
    class: c_int,
    kind: c_int,
    values: *mut c_void,
    read: *mut c_void,
    index: usize,
) {
    let (Ok(name), Ok(help)) = (CString::new(name), CString::new(help)) else { return };
    // SAFETY: the host copies the texts; the callbacks have the signatures that it expects, and the
    // last argument is a number for them.
    unsafe {
        (Services::host().pvar_register)(
            c"opal".as_ptr(),
            c"btl".as_ptr(),
            c"usnic".as_ptr(),
            name.as_ptr(),
            help.as_ptr(),
            kind::LEVEL,
            class,
            kind,
            values,
            0,
            kind::READONLY | kind::CONTINUOUS,
            read,
            ptr::null_mut(),
            bound as *mut c_void,
            ptr::without_provenance_mut(index),
        )
    };
}

/// How many values a variable has, when it is bound.
unsafe extern "C" fn bound(_: *mut BtlPvar, event: c_int, _: *mut c_void, count: *mut c_int) -> c_int {
    /// `MCA_BASE_PVAR_HANDLE_BIND`
    const BIND: c_int = 0;
    guard("btl_usnic", "pvar bound", || {
        if event == BIND && !count.is_null() {
            // SAFETY: not null: the host's variable for the number of values.
            unsafe { count.write(MODULES.load(Ordering::Acquire) as c_int) };
        }
        0
    })
}

/// The values of a counter.
unsafe extern "C" fn value<A: BtlAbi>(pvar: *const BtlPvar, values: *mut c_void, _: *mut c_void) -> c_int {
    guard("btl_usnic", "pvar value", || {
        // SAFETY: a variable that we registered.
        let index = unsafe { (*pvar).context }.addr();
        for module in 0..MODULES.load(Ordering::Acquire) {
            let count = modules().get(module).map_or(0, |&module| {
                // SAFETY: a live module of this version.
                let shell = unsafe { &*module.cast::<Shell<A>>() };
                shell.core.counters().value(index).unwrap_or(0)
            });
            // SAFETY: the host has room for as many values as `bound` said.
            let slot = unsafe { values.cast::<u64>().add(module) };
            // SAFETY: as above.
            unsafe { slot.write(count) };
        }
        0
    })
}

/// The numbers of the modules, whose names the enumeration has.
unsafe extern "C" fn device(_: *const BtlPvar, values: *mut c_void, _: *mut c_void) -> c_int {
    guard("btl_usnic", "pvar device", || {
        for module in 0..MODULES.load(Ordering::Acquire) {
            // SAFETY: the host has room for as many values as `bound` said.
            let slot = unsafe { values.cast::<c_int>().add(module) };
            // SAFETY: as above.
            unsafe { slot.write(module as c_int) };
        }
        0
    })
}
