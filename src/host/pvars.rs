//! Performance variables: the transport's counters, shown through MPI_T.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::params::Name;
use super::services::Services;
use crate::mtl::ofi::COUNTERS;

/// Values of `opal/mca/base/mca_base_pvar.h` and `mca_base_var.h`.
const CLASS_COUNTER: c_int = 6;
const UNSIGNED_LONG_LONG: c_int = 3;
const READONLY: c_int = 0x080;
const CONTINUOUS: c_int = 0x100;
/// `OPAL_INFO_LVL_4`
const LEVEL: c_int = 3;

/// Registers the counters under a component's name.
pub(super) fn register(name: Name) {
    for counter in COUNTERS {
        let count: *mut c_void = counter.count.as_ptr().cast();
        // SAFETY: literals, no callbacks, and a static number of the stated type that the host reads.
        unsafe {
            (Services::host().pvar_register)(
                c"ompi".as_ptr(),
                c"mtl".as_ptr(),
                name.text().as_ptr(),
                counter.name.as_ptr(),
                counter.help.as_ptr(),
                LEVEL,
                CLASS_COUNTER,
                UNSIGNED_LONG_LONG,
                ptr::null_mut(),
                0,
                READONLY | CONTINUOUS,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                count,
            )
        };
    }
}
