//! Host services that are the same in every version.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::symbols::symbols;

type Progress = unsafe extern "C" fn() -> c_int;

symbols! {
    /// Functions and objects of the host, in the forms that 4.1 and 5.0 share.
    pub(super) struct Services {
        progress: unsafe extern "C" fn() = c"opal_progress",
        progress_register: unsafe extern "C" fn(Progress) -> c_int = c"opal_progress_register",
        progress_unregister: unsafe extern "C" fn(Progress) -> c_int = c"opal_progress_unregister",
        pack: unsafe extern "C" fn(*mut c_void, *mut libc::iovec, *mut u32, *mut usize) -> c_int = c"opal_convertor_pack",
        unpack: unsafe extern "C" fn(*mut c_void, *mut libc::iovec, *mut u32, *mut usize) -> c_int = c"opal_convertor_unpack",
        var_register: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *const c_char, *const c_char, c_int, *mut c_void, c_int, c_int, c_int, c_int, *mut c_void) -> c_int = c"mca_base_var_register",
        var_find: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, *const c_char) -> c_int = c"mca_base_var_find",
        var_get_value: unsafe extern "C" fn(c_int, *mut *const c_void, *mut c_int, *mut *const c_char) -> c_int = c"mca_base_var_get_value",
        var_synonym: unsafe extern "C" fn(c_int, *const c_char, *const c_char, *const c_char, *const c_char, c_int) -> c_int = c"mca_base_var_register_synonym",
        enum_create: unsafe extern "C" fn(*const c_char, *const EnumValue, *mut *mut c_void) -> c_int = c"mca_base_var_enum_create",
        output: unsafe extern "C" fn(c_int, *const c_char, ...) = c"opal_output",
        proc_for_name: unsafe extern "C" fn(u64) -> *mut c_void = c"ompi_proc_for_name",
        message_null: *mut c_void = c"ompi_message_null",
        thread_multiple: *const bool = c"ompi_mpi_thread_multiple",
    }
}

/// `mca_base_var_enum_value_t`
#[repr(C)]
pub(super) struct EnumValue {
    pub(super) value: c_int,
    pub(super) name: *const c_char,
}

static SERVICES: OnceLock<Services> = OnceLock::new();

impl Services {
    pub(super) fn install(self) {
        let _ = SERVICES.set(self);
    }

    /// The host's services.
    ///
    /// # Panics
    /// When called without a host: no entry point is reachable then.
    #[inline]
    pub(super) fn host() -> &'static Self {
        SERVICES.get().expect("entry points run only after a host was recognised")
    }
}

/// Says something to the user through the host's output, on one line.
pub(super) fn say(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // SAFETY: stream 0 is always open; the format takes one string.
    unsafe { (Services::host().output)(0, c"hawser: %s".as_ptr(), text.as_ptr()) };
}
