//! The performance variables of a byte transport: for each counter one value per module, and `devices`,
//! which says how many modules there are and what they are called.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::Ordering;

use super::component::places;
use super::module::Shell;
use super::sys::BtlPvar;
use super::{BtlAbi, Listed, params};
use crate::host::foreign;
use crate::host::guard::guard;
use crate::host::params::Names;
use crate::host::pvars::{self, Class, Functions, Source, Variable};

/// Registers everything, once there are modules.
pub(super) fn register<A: BtlAbi, T: Listed>(names: &[String]) {
    if T::COUNTERS.is_empty() || names.is_empty() {
        return;
    }
    let registry = T::registry();
    let _ = registry.values.compare_exchange(0, names.len(), Ordering::AcqRel, Ordering::Acquire);
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let names: Vec<CString> = names.iter().map(|name| text(name)).collect();
    let values: Vec<_> = (0..).zip(names.iter().map(CString::as_c_str)).collect();
    let component = text(T::name());
    let add = |name: &str, help: &str, class, names, functions| {
        let (name, help, source) = (text(name), text(help), Source::Functions(functions));
        pvars::register(
            params::owner(&component),
            &Variable { name: &name, help: &help, class, names, source },
        );
    };
    let devices = Names::new(&text(T::COMPONENT), &values);
    // SAFETY: `device` writes `int`s, the value of a state, as many as `bound` says.
    let functions = unsafe { Functions::new(device::<T>, bound::<T>, 0) };
    add("devices", "Modules (network interfaces) in use", Class::State, devices, functions);
    for (index, &(name, help)) in T::COUNTERS.iter().enumerate() {
        let class = if name.starts_with("max_") { Class::HighWatermark } else { Class::Counter };
        // SAFETY: `value` writes `unsigned long long`s, the value of these, as many as `bound` says.
        let functions = unsafe { Functions::new(value::<A, T>, bound::<T>, index) };
        add(name, help.trim(), class, Names::NONE, functions);
    }
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
        let count = |shell: Option<&Shell<A, T>>| shell.map_or(0, |shell| shell.core.counter(index));
        let counts = places::<A, T>().map(count).chain(std::iter::repeat(0));
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
