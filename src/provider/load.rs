//! How libfabric comes by the provider: `fi_prov_ini`, `fi_provider(7)`.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use parking_lot::Mutex;

use super::argument::{Out, text};
use super::errno::Errno;
use super::guard::{guard, guard_or};
use super::library::Library;
use super::sys::{self, fi_fabric_attr, fi_info, fi_provider, fid_fabric};
use super::{fabric, info};
use crate::error::panic::install;

/// What it is asked for by.
pub(super) const NAME: &std::ffi::CStr = c"gni";

/// The newest interface that is known here. libfabric passes a provider over that knows less than a program asks for.
const INTERFACE: u32 = sys::version(2, 6);

/// Our own version, which tells two providers of one name apart.
pub(super) const OWN: u32 = sys::version(0, 1);

/// What libfabric keeps of us, and writes to.
struct Provider(UnsafeCell<fi_provider>);

// SAFETY: never read or written here once it is made; the libfabric that has it writes under its own lock.
unsafe impl Send for Provider {}

/// One for each libfabric that has called, for good.
#[expect(clippy::vec_box, reason = "libfabric holds their addresses")]
static PROVIDERS: Mutex<Vec<Box<Provider>>> = Mutex::new(Vec::new());

/// Called by libfabric once it has loaded the library as a provider. Whose call it is says the return address.
///
/// # Safety
/// Called by libfabric.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rdi, [rsp]", "jmp {}", sym offer);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x0, x30", "b {}", sym offer);
}

/// Elsewhere nobody can tell whose call it is, and there is no provider.
///
/// # Safety
/// Called by libfabric.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    offer(ptr::null())
}

/// The provider for the libfabric that has called from this address; null if we do not know it.
extern "C" fn offer(caller: *const c_void) -> *mut fi_provider {
    if !cfg!(test) {
        install();
    }
    guard_or("fi_prov_ini", ptr::null_mut(), || {
        let Some(library) = Library::of_caller(caller) else { return ptr::null_mut() };
        library.keep();
        crate::sync::fork::count_children();
        let provider = Box::new(Provider(UnsafeCell::new(fi_provider {
            version: OWN,
            fi_version: INTERFACE,
            context: Default::default(),
            name: NAME.as_ptr(),
            getinfo: Some(getinfo),
            fabric: Some(open),
            cleanup: Some(cleanup),
        })));
        let raw = provider.0.get();
        PROVIDERS.lock().push(provider);
        raw
    })
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    list: *mut *mut fi_info,
) -> c_int {
    guard("fi_getinfo", || {
        // SAFETY: the contract of `fi_getinfo(3)`: a variable of the caller's.
        let list = unsafe { Out::new(list) }?;
        list.write(ptr::null_mut());
        // SAFETY: the same: NULL, or a text.
        let node = unsafe { text(node) };
        // SAFETY: the same.
        let service = unsafe { text(service) };
        // SAFETY: the same: NULL, or hints that libfabric has made, or that are as long as its own.
        let wanted = unsafe { info::Wanted::read(hints) }?;
        let library = Library::kept().ok_or(Errno::NODATA)?;
        list.write(info::answer(library, version, node, service, flags, wanted.as_ref())?);
        Ok(())
    })
}

unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    to: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    guard("fi_fabric", || {
        // SAFETY: the contract of `fi_fabric(3)`.
        unsafe { fabric::open(attr, to, context) }
    })
}

/// Nothing: what is open stays, and what is static is not ours to end while the process does.
unsafe extern "C" fn cleanup() {}
