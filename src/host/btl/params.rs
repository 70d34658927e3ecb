//! Registers a transport's tables of parameters with the host.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use super::Listed;
use super::services::Own;
use crate::btl::Kind;
use crate::host::params::var;
use crate::host::services::Services;

/// Registers everything. Called by every tool that lists parameters: nothing else may happen here.
pub(super) fn register<T: Listed>() -> c_int {
    let component = CString::new(T::name()).unwrap_or_default();
    let add = |name: &CStr, help: &CStr, kind, values, level, storage: *mut c_void| {
        // SAFETY: all texts are zero-ended and copied; the storage is static and of the stated type.
        unsafe {
            (Services::host().var_register)(
                c"opal".as_ptr(),
                c"btl".as_ptr(),
                component.as_ptr(),
                name.as_ptr(),
                help.as_ptr(),
                kind,
                values,
                0,
                0,
                level,
                var::SCOPE_READONLY,
                storage,
            )
        };
    };
    let parameters = T::parameters();
    for number in parameters.numbers {
        number.value.store(number.default, Ordering::Relaxed);
        let (kind, names) = match number.kind {
            Kind::Signed => (var::INT, ptr::null_mut()),
            Kind::Unsigned => (var::UNSIGNED_INT, ptr::null_mut()),
            Kind::Flags => (var::UNSIGNED_INT, Own::flag_names()),
        };
        let storage = number.value.as_ptr().cast();
        add(number.name, number.help, kind, names, number.level, storage);
    }
    for text in parameters.texts {
        // The host copies the default before it returns.
        let default = text.default.map_or(ptr::null_mut(), |default| default.as_ptr().cast_mut());
        text.value.store(default, Ordering::Relaxed);
        let storage = text.value.as_ptr().cast();
        add(text.name, text.help, var::STRING, ptr::null_mut(), text.level, storage);
    }
    0
}
