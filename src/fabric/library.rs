//! `libfabric.so.1`, opened once and kept for the life of the process.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::info::{Hints, InfoList};
use super::sys;
use crate::error::{Error, Result};

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const sys::fi_info,
    *mut *mut sys::fi_info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut sys::fi_info);
type DupInfo = unsafe extern "C" fn(*const sys::fi_info) -> *mut sys::fi_info;
type OpenFabric =
    unsafe extern "C" fn(*mut sys::fi_fabric_attr, *mut *mut sys::fid_fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library's entry points.
#[derive(Clone, Copy)]
pub struct Library {
    pub(super) getinfo: GetInfo,
    pub(super) freeinfo: FreeInfo,
    pub(super) dupinfo: DupInfo,
    pub(super) fabric: OpenFabric,
    version: Version,
    strerror: StrError,
}

/// Why libfabric cannot be used, in words for people.
#[derive(Clone, Debug)]
pub struct MissingLibrary(pub String);

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The oldest libfabric whose structures begin as the bindings say.
const OLDEST: (u32, u32) = (1, 9);

impl Library {
    /// The library, opened on first use.
    pub fn open() -> std::result::Result<&'static Self, MissingLibrary> {
        static LIBRARY: OnceLock<std::result::Result<Library, MissingLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> std::result::Result<Self, MissingLibrary> {
        let name = c"libfabric.so.1";
        // SAFETY: a literal name; the library's own initialisers are libfabric's business.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY: `dlerror` returns null or a string that lives until the next dl call.
            let text = unsafe { libc::dlerror() };
            let text = if text.is_null() {
                "no reason given".into()
            } else {
                // SAFETY: not null, hence a string.
                unsafe { CStr::from_ptr(text) }.to_string_lossy()
            };
            return Err(MissingLibrary(format!(
                "libfabric.so.1 cannot be loaded ({text}); install libfabric, Debian's package is libfabric1"
            )));
        };
        let symbol = |name: &CStr| {
            // SAFETY: a live handle and a literal name.
            let address = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
            NonNull::new(address).ok_or_else(|| {
                MissingLibrary(format!(
                    "libfabric.so.1 has no {}; it is not a libfabric",
                    name.to_string_lossy()
                ))
            })
        };
        macro_rules! entry {
            ($name:literal, $type:ty) => {{
                let address = symbol($name)?;
                // SAFETY: the symbol of this name has this signature in every libfabric 1.x and 2.x (man page of the same name).
                unsafe { std::mem::transmute_copy::<NonNull<c_void>, $type>(&address) }
            }};
        }
        let library = Self {
            getinfo: entry!(c"fi_getinfo", GetInfo),
            freeinfo: entry!(c"fi_freeinfo", FreeInfo),
            dupinfo: entry!(c"fi_dupinfo", DupInfo),
            fabric: entry!(c"fi_fabric", OpenFabric),
            version: entry!(c"fi_version", Version),
            strerror: entry!(c"fi_strerror", StrError),
        };
        if library.version() < OLDEST {
            let (major, minor) = library.version();
            return Err(MissingLibrary(format!(
                "libfabric {major}.{minor} is too old; hawser needs {}.{} or newer",
                OLDEST.0, OLDEST.1
            )));
        }
        Ok(library)
    }

    /// Major and minor version of the library in use.
    pub fn version(&self) -> (u32, u32) {
        // SAFETY: takes no argument and touches no state.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xFFFF)
    }

    /// The interface version to ask for: what the library has, at most 1.18.
    pub fn api_version(&self) -> u32 {
        let (major, minor) = self.version().min((1, 18));
        (major << 16) | minor
    }

    /// libfabric's text for a positive error code.
    pub fn describe(&self, code: i32) -> String {
        // SAFETY: any code has a text; the text is a string that lives until the next call.
        let text = unsafe { (self.strerror)(-code) };
        if text.is_null() {
            return format!("libfabric error {code}");
        }
        // SAFETY: not null, hence a string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// An empty description of what is wanted.
    pub fn hints(&'static self) -> Result<Hints> {
        // SAFETY: null asks for a fresh, zeroed structure with all its parts.
        let raw = unsafe { (self.dupinfo)(std::ptr::null()) };
        NonNull::new(raw).map(|raw| Hints::own(self, raw)).ok_or(Error::OutOfResource)
    }

    /// The endpoints that satisfy `hints`, best first. An empty list is [`Error::NotFound`].
    pub fn info(&'static self, hints: &Hints) -> Result<InfoList> {
        let mut list = std::ptr::null_mut();
        // SAFETY: hints are alive; the library writes one owned list, or nothing on failure.
        let code = unsafe {
            (self.getinfo)(
                self.api_version(),
                std::ptr::null(),
                std::ptr::null(),
                0,
                hints.as_ptr(),
                &raw mut list,
            )
        };
        match (code, NonNull::new(list)) {
            (0, Some(list)) => Ok(InfoList::own(self, list)),
            (0, None) => Err(Error::NotFound),
            (code, _) if code == -(sys::FI_ENODATA as i32) => Err(Error::NotFound),
            (code, _) => Err(Error::Fabric(-code)),
        }
    }

    /// `text` as libfabric keeps it: on the C heap, freed by `fi_freeinfo`.
    pub(super) fn c_string(text: &str) -> Result<*mut c_char> {
        let text = CString::new(text).map_err(|_| Error::BadParameter)?;
        // SAFETY: a zero-ended string.
        let copy = unsafe { libc::strdup(text.as_ptr()) };
        if copy.is_null() { Err(Error::OutOfResource) } else { Ok(copy) }
    }
}
