//! The libfabric that has called us: its functions, never linked.
//!
//! A process may hold several, under any file name, and with symbols that nobody else sees (`RTLD_LOCAL`). The one that
//! asked for the provider is where the return address of that call lies; its symbols are looked up there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use parking_lot::Mutex;

use super::sys::{self, fi_info};

type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);
type Version = unsafe extern "C" fn() -> u32;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions of one libfabric.
#[derive(Clone, Copy)]
pub(super) struct Library {
    pub(super) dupinfo: DupInfo,
    pub(super) freeinfo: FreeInfo,
    strerror: StrError,
    version: u32,
}

/// The oldest libfabric whose structures are at least as long as `sys` says.
const OLDEST: u32 = sys::version(1, 17);

/// The newest of those that have called.
static CALLER: Mutex<Option<Library>> = Mutex::new(None);

impl Library {
    /// The one that has called from this address; `None` if that is none, or one that is too old.
    pub(super) fn of_caller(address: *const c_void) -> Option<Self> {
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: any address may be asked about; the structure is filled in where the answer is not 0.
        if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: filled in.
        let found = unsafe { found.assume_init() };
        Self::open(found.dli_fname)
    }

    /// The one in an object that is loaded already.
    fn open(file: *const c_char) -> Option<Self> {
        // SAFETY: NULL, or the loader's own text. Nothing is loaded: no code of others runs.
        let handle = NonNull::new(unsafe { libc::dlopen(file, libc::RTLD_NOW | libc::RTLD_NOLOAD) })?;
        let symbol = |name: &CStr| {
            // SAFETY: a live handle and a literal name.
            NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
        };
        macro_rules! entry {
            ($name:literal, $type:ty) => {{
                let address = symbol($name)?;
                // SAFETY: the symbol of this name has this signature in every libfabric (man page of the same name).
                unsafe { std::mem::transmute_copy::<NonNull<c_void>, $type>(&address) }
            }};
        }
        let version = entry!(c"fi_version", Version);
        // SAFETY: takes no argument and touches no state.
        let version = unsafe { version() };
        let library = Self {
            dupinfo: entry!(c"fi_dupinfo", DupInfo),
            freeinfo: entry!(c"fi_freeinfo", FreeInfo),
            strerror: entry!(c"fi_strerror", StrError),
            version,
        };
        (version >= OLDEST).then_some(library)
    }

    /// Keeps it, unless a newer one has called: what that one makes is long enough for both.
    pub(super) fn keep(self) {
        let mut kept = CALLER.lock();
        if kept.is_none_or(|kept| kept.version < self.version) {
            *kept = Some(self);
        }
    }

    /// The one that is kept.
    pub(super) fn kept() -> Option<Self> {
        *CALLER.lock()
    }

    /// Its text for a positive code, which lives as long as it.
    pub(super) fn describe(self, code: c_int) -> *const c_char {
        // SAFETY: any code has a text.
        unsafe { (self.strerror)(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libfabric_is_none() {
        assert!(Library::of_caller(std::ptr::null()).is_none());
        let address = libc::strlen as *const c_void;
        assert!(Library::of_caller(address).is_none(), "the C library");
    }
}
