//! The host's performance variables (`opal/mca/base/mca_base_pvar.h`): how they are registered.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;

use super::btl::sys::BtlPvar;
use super::params::{Names, Owner};
use super::services::Services;

/// What kind of value it is.
#[derive(Clone, Copy)]
pub(super) enum Class {
    /// The state of something, named.
    State,
    /// The greatest value so far.
    HighWatermark,
    /// How often something has happened.
    Counter,
}

impl Class {
    /// The class and the type of its value: all are `unsigned long long` but states, which are `int`.
    fn numbers(self) -> (c_int, c_int) {
        const INT: c_int = 0;
        const UNSIGNED_LONG_LONG: c_int = 3;
        match self {
            Self::State => (0, INT),
            Self::HighWatermark => (4, UNSIGNED_LONG_LONG),
            Self::Counter => (6, UNSIGNED_LONG_LONG),
        }
    }
}

/// Reads the values of a variable into an array of the host's.
pub(super) type Read = unsafe extern "C" fn(*const BtlPvar, *mut c_void, *mut c_void) -> c_int;
/// Hears of what becomes of a handle.
pub(super) type Notify = unsafe extern "C" fn(*mut BtlPvar, c_int, *mut c_void, *mut c_int) -> c_int;

/// Where the values are.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// In a number that the host reads itself.
    Number(&'static AtomicU64),
    /// With functions.
    Functions(Functions),
}

/// Functions that read a variable; they find the index in it.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    read: Read,
    notify: Notify,
    index: usize,
}

impl Functions {
    /// # Safety
    /// `read` writes what the variable's class has, as many values as `notify` says when a handle is bound.
    pub(super) unsafe fn new(read: Read, notify: Notify, index: usize) -> Self {
        Self { read, notify, index }
    }
}

/// A variable to be registered.
pub(super) struct Variable<'a> {
    pub(super) name: &'a CStr,
    pub(super) help: &'a CStr,
    pub(super) class: Class,
    pub(super) names: Names,
    pub(super) source: Source,
}

/// Registers a variable, to be read only and counted all the time.
pub(super) fn register(owner: Owner<'_>, variable: &Variable<'_>) {
    const READONLY: c_int = 0x080;
    const CONTINUOUS: c_int = 0x100;
    /// `OPAL_INFO_LVL_4`
    const LEVEL: c_int = 3;
    let (class, kind) = variable.class.numbers();
    let none = ptr::null_mut();
    let (read, notify, context) = match variable.source {
        Source::Number(number) => (none, none, number.as_ptr().cast()),
        Source::Functions(Functions { read, notify, index }) => {
            (read as *mut c_void, notify as *mut c_void, ptr::without_provenance_mut(index))
        }
    };
    // SAFETY: the texts are zero-ended and copied. Without functions, the context is a number that lives for
    // ever, of the type that is stated, which the host reads. Functions have the types that the host
    // expects, and write what belongs there, by the promise of `Functions::new`; the context is for them.
    unsafe {
        (Services::host().pvar_register)(
            owner.project.as_ptr(),
            owner.framework.as_ptr(),
            owner.component.as_ptr(),
            variable.name.as_ptr(),
            variable.help.as_ptr(),
            LEVEL,
            class,
            kind,
            variable.names.as_ptr(),
            0,
            READONLY | CONTINUOUS,
            read,
            none,
            notify,
            context,
        )
    };
}
