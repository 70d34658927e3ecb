//! `libcuda.so.1`, where the program has loaded it: hawser never loads or initialises the driver. Until the
//! program has, there is no device memory to be found.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::sys::{self, Address, Code};

/// Why a call to the driver failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The program has not loaded the driver.
    NotLoaded,
    /// No memory left, on the device or for pinning.
    OutOfMemory,
    /// The program has not initialised the driver, or this is a child of a process that has.
    NotInitialized,
    /// The process ends, and the driver with it.
    Deinitialized,
    /// There is no device.
    NoDevice,
    /// The address is not on a device, or not registered.
    NotOnDevice,
    /// What was named is not there: an address, a stream or a context that has gone.
    Gone(i32),
    /// Any other of the driver's codes.
    Driver(i32),
}

/// The result of a call to the driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn of(code: Code) -> Self {
        match code {
            sys::OUT_OF_MEMORY => Self::OutOfMemory,
            sys::NOT_INITIALIZED => Self::NotInitialized,
            sys::DEINITIALIZED => Self::Deinitialized,
            sys::NO_DEVICE => Self::NoDevice,
            sys::INVALID_VALUE | sys::INVALID_CONTEXT | sys::INVALID_HANDLE | sys::CONTEXT_IS_DESTROYED => {
                Self::Gone(code)
            }
            code => Self::Driver(code),
        }
    }

    /// The driver's number.
    pub fn number(self) -> Option<i32> {
        match self {
            Self::NotLoaded | Self::NotOnDevice => None,
            Self::OutOfMemory => Some(sys::OUT_OF_MEMORY),
            Self::NotInitialized => Some(sys::NOT_INITIALIZED),
            Self::Deinitialized => Some(sys::DEINITIALIZED),
            Self::NoDevice => Some(sys::NO_DEVICE),
            Self::Gone(code) | Self::Driver(code) => Some(code),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.number()) {
            (_, Some(code)) => write!(f, "CUDA error {code}"),
            (Self::NotLoaded, None) => f.write_str("libcuda.so.1 is not loaded"),
            (_, None) => f.write_str("not on a device"),
        }
    }
}

impl std::error::Error for Error {}

/// A code as a result.
pub(super) fn checked(code: Code) -> Result<()> {
    if code == sys::SUCCESS { Ok(()) } else { Err(Error::of(code)) }
}

/// Declares the driver's functions: first those which have to be there, then those without which only some memory
/// cannot be shared. Where a function was changed long ago, the name that `cuda.h` gives it ends in `_v2`: the plain
/// name is the old one, with other types.
macro_rules! functions {
    ($($field:ident: $type:ty = $symbol:literal,)* ; $($option:ident: $option_type:ty = $option_symbol:literal,)*) => {
        /// The driver's entry points.
        pub struct Driver {
            $(pub(super) $field: $type,)*
            $(pub(super) $option: Option<$option_type>,)*
        }

        impl Driver {
            /// Takes all from where `symbol` finds them, or names the first that is missing.
            ///
            /// # Safety
            /// What `symbol` finds under a name is the driver's function of that name.
            unsafe fn find(
                symbol: impl Fn(&CStr) -> Option<NonNull<c_void>>,
            ) -> std::result::Result<Self, &'static CStr> {
                Ok(Self {
                    $($field: {
                        let address = symbol($symbol).ok_or($symbol)?;
                        // SAFETY: the driver's function of this name, by the promise of the caller, and it has this signature
                        // in every driver since the name is there (CUDA driver API, function of that name); both are pointers.
                        unsafe { std::mem::transmute_copy::<NonNull<c_void>, $type>(&address) }
                    },)*
                    $($option: symbol($option_symbol).map(|address| {
                        // SAFETY: the driver's function of this name, by the promise of the caller, and it has this signature
                        // in every driver since the name is there (CUDA driver API, function of that name); both are pointers.
                        unsafe { std::mem::transmute_copy::<NonNull<c_void>, $option_type>(&address) }
                    }),)*
                })
            }
        }
    };
}

functions! {
    device_count: unsafe extern "C" fn(*mut c_int) -> Code = c"cuDeviceGetCount",
    device_pci: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code = c"cuDeviceGetPCIBusId",
    device_reaches: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code = c"cuDeviceCanAccessPeer",
    primary_retain: unsafe extern "C" fn(*mut sys::Context, c_int) -> Code = c"cuDevicePrimaryCtxRetain",
    primary_release: unsafe extern "C" fn(c_int) -> Code = c"cuDevicePrimaryCtxRelease_v2",
    context_current: unsafe extern "C" fn(*mut sys::Context) -> Code = c"cuCtxGetCurrent",
    context_device: unsafe extern "C" fn(*mut c_int) -> Code = c"cuCtxGetDevice",
    context_push: unsafe extern "C" fn(sys::Context) -> Code = c"cuCtxPushCurrent_v2",
    context_pop: unsafe extern "C" fn(*mut sys::Context) -> Code = c"cuCtxPopCurrent_v2",
    pointer_attribute: unsafe extern "C" fn(*mut c_void, c_int, Address) -> Code = c"cuPointerGetAttribute",
    pointer_attributes: unsafe extern "C" fn(c_uint, *const c_int, *const *mut c_void, Address) -> Code = c"cuPointerGetAttributes",
    pointer_set: unsafe extern "C" fn(*const c_void, c_int, Address) -> Code = c"cuPointerSetAttribute",
    memory_range: unsafe extern "C" fn(*mut Address, *mut usize, Address) -> Code = c"cuMemGetAddressRange_v2",
    memory_allocate: unsafe extern "C" fn(*mut Address, usize) -> Code = c"cuMemAlloc_v2",
    memory_free: unsafe extern "C" fn(Address) -> Code = c"cuMemFree_v2",
    host_register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code = c"cuMemHostRegister_v2",
    host_unregister: unsafe extern "C" fn(*mut c_void) -> Code = c"cuMemHostUnregister",
    copy: unsafe extern "C" fn(Address, Address, usize, sys::Stream) -> Code = c"cuMemcpyAsync",
    stream_create: unsafe extern "C" fn(*mut sys::Stream, c_uint) -> Code = c"cuStreamCreate",
    stream_destroy: unsafe extern "C" fn(sys::Stream) -> Code = c"cuStreamDestroy_v2",
    stream_synchronize: unsafe extern "C" fn(sys::Stream) -> Code = c"cuStreamSynchronize",
    event_create: unsafe extern "C" fn(*mut sys::Event, c_uint) -> Code = c"cuEventCreate",
    event_destroy: unsafe extern "C" fn(sys::Event) -> Code = c"cuEventDestroy_v2",
    event_record: unsafe extern "C" fn(sys::Event, sys::Stream) -> Code = c"cuEventRecord",
    event_query: unsafe extern "C" fn(sys::Event) -> Code = c"cuEventQuery",
    ;
    // What may be missing.
    context_flags: unsafe extern "C" fn(*mut c_uint) -> Code = c"cuCtxGetFlags",
    context_flags_set: unsafe extern "C" fn(c_uint) -> Code = c"cuCtxSetFlags",
    context_id: unsafe extern "C" fn(sys::Context, *mut u64) -> Code = c"cuCtxGetId",
    device_uuid: unsafe extern "C" fn(*mut sys::Uuid, c_int) -> Code = c"cuDeviceGetUuid_v2",
    device_uuid_of_whole: unsafe extern "C" fn(*mut sys::Uuid, c_int) -> Code = c"cuDeviceGetUuid",
    primary_state: unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> Code = c"cuDevicePrimaryCtxGetState",
    ipc_handle: unsafe extern "C" fn(*mut sys::IpcHandle, Address) -> Code = c"cuIpcGetMemHandle",
    ipc_open: unsafe extern "C" fn(*mut Address, sys::IpcHandle, c_uint) -> Code = c"cuIpcOpenMemHandle_v2",
    ipc_close: unsafe extern "C" fn(Address) -> Code = c"cuIpcCloseMemHandle",
    range_reserve: unsafe extern "C" fn(*mut Address, usize, usize, Address, u64) -> Code = c"cuMemAddressReserve",
    range_free: unsafe extern "C" fn(Address, usize) -> Code = c"cuMemAddressFree",
    physical_map: unsafe extern "C" fn(Address, usize, usize, sys::Physical, u64) -> Code = c"cuMemMap",
    physical_unmap: unsafe extern "C" fn(Address, usize) -> Code = c"cuMemUnmap",
    physical_access: unsafe extern "C" fn(Address, usize, *const sys::Access, usize) -> Code = c"cuMemSetAccess",
    physical_retain: unsafe extern "C" fn(*mut sys::Physical, *mut c_void) -> Code = c"cuMemRetainAllocationHandle",
    physical_release: unsafe extern "C" fn(sys::Physical) -> Code = c"cuMemRelease",
    physical_export: unsafe extern "C" fn(*mut c_void, sys::Physical, c_int, u64) -> Code = c"cuMemExportToShareableHandle",
    physical_import: unsafe extern "C" fn(*mut sys::Physical, *mut c_void, c_int) -> Code = c"cuMemImportFromShareableHandle",
    pool_export: unsafe extern "C" fn(*mut c_void, sys::Pool, c_int, u64) -> Code = c"cuMemPoolExportToShareableHandle",
    pool_import: unsafe extern "C" fn(*mut sys::Pool, *mut c_void, c_int, u64) -> Code = c"cuMemPoolImportFromShareableHandle",
    pool_access: unsafe extern "C" fn(sys::Pool, *const sys::Access, usize) -> Code = c"cuMemPoolSetAccess",
    pool_destroy: unsafe extern "C" fn(sys::Pool) -> Code = c"cuMemPoolDestroy",
    pool_pointer_export: unsafe extern "C" fn(*mut sys::PoolPointer, Address) -> Code = c"cuMemPoolExportPointer",
    pool_pointer_import: unsafe extern "C" fn(*mut Address, sys::Pool, *mut sys::PoolPointer) -> Code = c"cuMemPoolImportPointer",
}

/// The driver, once it was found. It is then kept loaded.
static FOUND: AtomicPtr<Driver> = AtomicPtr::new(ptr::null_mut());
/// How many libraries had ever been loaded when it was last looked for, and not there; 0 when it never was.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// When it was last looked for, and not there, in ticks.
static ABSENT: AtomicU64 = AtomicU64::new(0);
/// In so many ticks, a few microseconds, nobody loads the driver, initialises it and is given memory: that takes a
/// thousand times as long.
const SOON: u64 = 1 << 12;

/// Where the processor's counter is. To ask the loader takes a lock, and several times as long.
#[inline]
fn ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter; every processor of this kind has it.
    return Some(unsafe { std::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Whether something is so short after it that nothing can have changed. The counters of two processors may differ.
#[inline]
fn is_soon(now: u64, after: u64) -> bool {
    now.wrapping_sub(after) < SOON
}

impl Driver {
    /// The driver, if the program has loaded it.
    #[inline]
    pub fn loaded() -> Option<&'static Self> {
        // SYNC POINT: the driver's entry points
        let found = FOUND.load(Ordering::Acquire);
        // SAFETY: null, or what `look` leaked, which is never written again.
        unsafe { found.as_ref() }.or_else(|| {
            let now = ticks();
            if now.is_some_and(|now| is_soon(now, ABSENT.load(Ordering::Relaxed))) {
                None
            } else {
                Self::look(now)
            }
        })
    }

    /// Looks for it, if any library was loaded since the last time.
    #[cold]
    fn look(now: Option<u64>) -> Option<&'static Self> {
        let loads = libraries_ever_loaded();
        if LOOKED.load(Ordering::Relaxed) == loads {
            // By a time before the look: it holds from then on.
            ABSENT.store(now.unwrap_or(0), Ordering::Relaxed);
            return None;
        }
        // SAFETY: a literal name; with RTLD_NOLOAD nothing is loaded and no code runs.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        let Some(handle) = NonNull::new(handle) else {
            LOOKED.store(loads, Ordering::Relaxed);
            return None;
        };
        let symbol = |name: &CStr| {
            // SAFETY: a live handle, which is never closed, and a literal name.
            NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
        };
        // SAFETY: the driver's library, by its name.
        match unsafe { Self::find(symbol) } {
            Ok(driver) => {
                let driver = Box::leak(Box::new(driver));
                // SYNC POINT: the driver's entry points
                FOUND.store(driver, Ordering::Release);
                Some(driver)
            }
            Err(name) => {
                LOOKED.store(loads, Ordering::Relaxed);
                crate::error::say(format_args!(
                    "libcuda.so.1 has no {}: the driver is too old, and device memory is not recognised",
                    name.to_string_lossy()
                ));
                None
            }
        }
    }

    /// Whether there is a device; `None` while the program has not initialised the driver.
    pub fn has_device(&self) -> Option<bool> {
        let mut count = 0;
        // SAFETY: the callee writes one number.
        match checked(unsafe { (self.device_count)(&raw mut count) }) {
            Ok(()) => Some(count > 0),
            Err(Error::NotInitialized) => None,
            Err(_) => Some(false),
        }
    }

    /// How many devices the program sees.
    pub fn devices(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the callee writes one number.
        checked(unsafe { (self.device_count)(&raw mut count) })?;
        Ok(count)
    }

    /// Domain, bus, device and function of a device on the PCI bus.
    pub fn pci(&self, device: i32) -> Result<[u16; 4]> {
        let mut text = [0_u8; 32];
        // SAFETY: the callee writes at most as many bytes as it is told, zero-ended.
        checked(unsafe { (self.device_pci)(text.as_mut_ptr().cast(), text.len() as c_int, device) })?;
        pci(&text).ok_or(Error::Driver(sys::INVALID_VALUE))
    }

    /// Whether a device can reach the memory of another.
    pub fn reaches(&self, device: i32, other: i32) -> Result<bool> {
        if device == other {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: the callee writes one number.
        checked(unsafe { (self.device_reaches)(&raw mut can, device, other) })?;
        Ok(can != 0)
    }

    /// A driver of a test's own.
    #[cfg(test)]
    pub(super) fn fake(symbol: impl Fn(&CStr) -> Option<NonNull<c_void>>) -> &'static Self {
        // SAFETY: the test's functions have the signatures of those that they play.
        let driver = unsafe { Self::find(symbol) };
        Box::leak(Box::new(driver.unwrap_or_else(|name| panic!("the fake has no {name:?}"))))
    }
}

/// How many libraries the process has loaded so far, those included that have gone.
fn libraries_ever_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: the loader passes a structure that is alive during the call.
        let loads = unsafe { (*info).dlpi_adds };
        // SAFETY: the number that was passed with this function.
        unsafe { count.cast::<u64>().write(loads) };
        // That of one library says it of all.
        1
    }
    let mut count = 0_u64;
    // SAFETY: the function writes the number that is passed with it, and nothing after the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// `0000:3b:00.0`, zero-ended, as four numbers.
fn pci(text: &[u8]) -> Option<[u16; 4]> {
    let text = CStr::from_bytes_until_nul(text).ok()?.to_str().ok()?;
    let mut parts = text.split([':', '.']).map(|part| u16::from_str_radix(part, 16).ok());
    let place = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_driver_has_none() {
        assert!(Driver::loaded().is_none());
        assert!(Driver::loaded().is_none(), "nor at the second look");
    }

    #[test]
    fn what_was_not_there_just_now_is_not() {
        assert!(is_soon(5, 5) && is_soon(5 + SOON - 1, 5) && is_soon(1, u64::MAX));
        assert!(!is_soon(5 + SOON, 5), "it may be there by now");
        assert!(!is_soon(4, 5), "another processor's counter");
        assert!(!is_soon(1 << 40, 0), "never looked for");
    }

    #[test]
    fn loaded_libraries_are_counted() {
        let before = libraries_ever_loaded();
        assert!(before > 0);
        assert_eq!(libraries_ever_loaded(), before);
    }

    #[test]
    fn a_driver_that_lacks_a_function_is_refused() {
        // SAFETY: nothing is found.
        let refused = unsafe { Driver::find(|_| None) };
        assert_eq!(refused.err(), Some(c"cuDeviceGetCount"));
    }

    #[test]
    fn places_on_the_bus_are_read() {
        assert_eq!(pci(b"0000:3b:00.0\0"), Some([0, 0x3B, 0, 0]));
        assert_eq!(pci(b"0001:AF:1f.7\0rest"), Some([1, 0xAF, 0x1F, 7]));
        for wrong in [&b""[..], b"0000:3b:00\0", b"0000:3b:00.0.1\0", b"x:y:z.w\0", b"0000:3b:00.0"] {
            assert_eq!(pci(wrong), None);
        }
    }

    #[test]
    fn errors_keep_the_drivers_number() {
        for code in [1, 2, 3, 4, 100, 201, 400, 600, 700, 709] {
            assert_eq!(Error::of(code).number(), Some(code));
        }
        assert_eq!(Error::NotLoaded.to_string(), "libcuda.so.1 is not loaded");
        assert_eq!(Error::of(700).to_string(), "CUDA error 700");
    }
}
