//! `libibverbs.so.1` and `librdmacm.so.1`, opened once and kept for the life of the process.
//!
//! Both have functions in several versions under one name, the older with other structures: each is looked up with
//! its version (`dlvsym(3)`). The calls that post and poll are no symbols at all; they are in a context's table.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::{outcome, sys};
use crate::error::Result;

/// Why verbs cannot be used here, in words for people.
#[derive(Clone, Debug)]
pub struct MissingLibrary(pub String);

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shelf {
    Verbs,
    Cm,
}

impl Shelf {
    const fn file(self) -> &'static CStr {
        match self {
            Self::Verbs => c"libibverbs.so.1",
            Self::Cm => c"librdmacm.so.1",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Verbs => "libibverbs1",
            Self::Cm => "librdmacm1",
        }
    }
}

/// Declares the functions with library and version: first those which have to be there.
macro_rules! functions {
    ($($field:ident: $type:ty = $shelf:ident $symbol:literal $version:literal,)* ;
     $($option:ident: $option_type:ty = $option_shelf:ident $option_symbol:literal $option_version:literal,)*) => {
        /// The entry points of both libraries.
        pub struct Library {
            $(pub(super) $field: $type,)*
            $(pub(super) $option: Option<$option_type>,)*
        }

        impl Library {
            /// Takes all from where `symbol` finds them, or names the first that is missing.
            ///
            /// # Safety
            /// What `symbol` finds under a name and a version is the function of that name in that version.
            unsafe fn find(
                symbol: impl Fn(Shelf, &CStr, &CStr) -> Option<NonNull<c_void>>,
            ) -> std::result::Result<Self, (Shelf, &'static CStr, &'static CStr)> {
                Ok(Self {
                    $($field: {
                        let address = symbol(Shelf::$shelf, $symbol, $version)
                            .ok_or((Shelf::$shelf, $symbol, $version))?;
                        // SAFETY: the function of this name and version, by the promise of the caller, and the version fixes its
                        // signature (`<infiniband/verbs.h>`, `<rdma/rdma_cma.h>`); both are pointers.
                        unsafe { std::mem::transmute_copy::<NonNull<c_void>, $type>(&address) }
                    },)*
                    $($option: symbol(Shelf::$option_shelf, $option_symbol, $option_version).map(|address| {
                        // SAFETY: the function of this name and version, by the promise of the caller, and the version fixes its
                        // signature (`<infiniband/verbs.h>`, `<rdma/rdma_cma.h>`); both are pointers.
                        unsafe { std::mem::transmute_copy::<NonNull<c_void>, $option_type>(&address) }
                    }),)*
                })
            }
        }
    };
}

type Id = *mut sys::rdma_cm_id;
type Address = *const libc::sockaddr;

functions! {
    device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut sys::ibv_device = Verbs c"ibv_get_device_list" c"IBVERBS_1.1",
    device_list_free: unsafe extern "C" fn(*mut *mut sys::ibv_device) = Verbs c"ibv_free_device_list" c"IBVERBS_1.1",
    device_name: unsafe extern "C" fn(*mut sys::ibv_device) -> *const c_char = Verbs c"ibv_get_device_name" c"IBVERBS_1.1",
    device_guid: unsafe extern "C" fn(*mut sys::ibv_device) -> u64 = Verbs c"ibv_get_device_guid" c"IBVERBS_1.1",
    device_open: unsafe extern "C" fn(*mut sys::ibv_device) -> *mut sys::ibv_context = Verbs c"ibv_open_device" c"IBVERBS_1.1",
    device_close: unsafe extern "C" fn(*mut sys::ibv_context) -> c_int = Verbs c"ibv_close_device" c"IBVERBS_1.1",
    query_device: unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_device_attr) -> c_int = Verbs c"ibv_query_device" c"IBVERBS_1.1",
    query_port: unsafe extern "C" fn(*mut sys::ibv_context, u8, *mut sys::ibv_port_attr) -> c_int = Verbs c"ibv_query_port" c"IBVERBS_1.1",
    query_gid: unsafe extern "C" fn(*mut sys::ibv_context, u8, c_int, *mut sys::ibv_gid) -> c_int = Verbs c"ibv_query_gid" c"IBVERBS_1.1",
    async_event: unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_async_event) -> c_int = Verbs c"ibv_get_async_event" c"IBVERBS_1.1",
    async_ack: unsafe extern "C" fn(*mut sys::ibv_async_event) = Verbs c"ibv_ack_async_event" c"IBVERBS_1.1",
    pd_create: unsafe extern "C" fn(*mut sys::ibv_context) -> *mut sys::ibv_pd = Verbs c"ibv_alloc_pd" c"IBVERBS_1.1",
    pd_destroy: unsafe extern "C" fn(*mut sys::ibv_pd) -> c_int = Verbs c"ibv_dealloc_pd" c"IBVERBS_1.1",
    mr_create: unsafe extern "C" fn(*mut sys::ibv_pd, *mut c_void, usize, c_int) -> *mut sys::ibv_mr = Verbs c"ibv_reg_mr" c"IBVERBS_1.1",
    mr_destroy: unsafe extern "C" fn(*mut sys::ibv_mr) -> c_int = Verbs c"ibv_dereg_mr" c"IBVERBS_1.1",
    cq_create: unsafe extern "C" fn(*mut sys::ibv_context, c_int, *mut c_void, *mut c_void, c_int) -> *mut sys::ibv_cq = Verbs c"ibv_create_cq" c"IBVERBS_1.1",
    cq_destroy: unsafe extern "C" fn(*mut sys::ibv_cq) -> c_int = Verbs c"ibv_destroy_cq" c"IBVERBS_1.1",
    srq_create: unsafe extern "C" fn(*mut sys::ibv_pd, *mut sys::ibv_srq_init_attr) -> *mut sys::ibv_srq = Verbs c"ibv_create_srq" c"IBVERBS_1.1",
    srq_modify: unsafe extern "C" fn(*mut sys::ibv_srq, *mut sys::ibv_srq_attr, c_int) -> c_int = Verbs c"ibv_modify_srq" c"IBVERBS_1.1",
    srq_destroy: unsafe extern "C" fn(*mut sys::ibv_srq) -> c_int = Verbs c"ibv_destroy_srq" c"IBVERBS_1.1",
    qp_modify: unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_qp_attr, c_int) -> c_int = Verbs c"ibv_modify_qp" c"IBVERBS_1.1",
    fork_init: unsafe extern "C" fn() -> c_int = Verbs c"ibv_fork_init" c"IBVERBS_1.1",
    channel_create: unsafe extern "C" fn() -> *mut sys::rdma_event_channel = Cm c"rdma_create_event_channel" c"RDMACM_1.0",
    channel_destroy: unsafe extern "C" fn(*mut sys::rdma_event_channel) = Cm c"rdma_destroy_event_channel" c"RDMACM_1.0",
    event_next: unsafe extern "C" fn(*mut sys::rdma_event_channel, *mut *mut sys::rdma_cm_event) -> c_int = Cm c"rdma_get_cm_event" c"RDMACM_1.0",
    event_ack: unsafe extern "C" fn(*mut sys::rdma_cm_event) -> c_int = Cm c"rdma_ack_cm_event" c"RDMACM_1.0",
    id_create: unsafe extern "C" fn(*mut sys::rdma_event_channel, *mut Id, *mut c_void, c_int) -> c_int = Cm c"rdma_create_id" c"RDMACM_1.0",
    id_destroy: unsafe extern "C" fn(Id) -> c_int = Cm c"rdma_destroy_id" c"RDMACM_1.0",
    id_bind: unsafe extern "C" fn(Id, Address) -> c_int = Cm c"rdma_bind_addr" c"RDMACM_1.0",
    id_resolve_address: unsafe extern "C" fn(Id, Address, Address, c_int) -> c_int = Cm c"rdma_resolve_addr" c"RDMACM_1.0",
    id_resolve_route: unsafe extern "C" fn(Id, c_int) -> c_int = Cm c"rdma_resolve_route" c"RDMACM_1.0",
    id_create_qp: unsafe extern "C" fn(Id, *mut sys::ibv_pd, *mut sys::ibv_qp_init_attr) -> c_int = Cm c"rdma_create_qp" c"RDMACM_1.0",
    id_destroy_qp: unsafe extern "C" fn(Id) = Cm c"rdma_destroy_qp" c"RDMACM_1.0",
    id_connect: unsafe extern "C" fn(Id, *mut sys::rdma_conn_param) -> c_int = Cm c"rdma_connect" c"RDMACM_1.0",
    id_listen: unsafe extern "C" fn(Id, c_int) -> c_int = Cm c"rdma_listen" c"RDMACM_1.0",
    id_accept: unsafe extern "C" fn(Id, *mut sys::rdma_conn_param) -> c_int = Cm c"rdma_accept" c"RDMACM_1.0",
    id_reject: unsafe extern "C" fn(Id, *const c_void, u8) -> c_int = Cm c"rdma_reject" c"RDMACM_1.0",
    id_disconnect: unsafe extern "C" fn(Id) -> c_int = Cm c"rdma_disconnect" c"RDMACM_1.0",
    id_option: unsafe extern "C" fn(Id, c_int, c_int, *mut c_void, usize) -> c_int = Cm c"rdma_set_option" c"RDMACM_1.0",
    ;
    mr_create_at: unsafe extern "C" fn(*mut sys::ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut sys::ibv_mr = Verbs c"ibv_reg_mr_iova2" c"IBVERBS_1.8",
    gid_table: unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_gid_entry, usize, u32, usize) -> isize = Verbs c"_ibv_query_gid_table" c"IBVERBS_1.11",
    fork_state: unsafe extern "C" fn() -> c_uint = Verbs c"ibv_is_fork_initialized" c"IBVERBS_1.13",
}

/// What a child that the program forks may do to memory that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forks {
    /// The kernel copies such pages for the child (Linux 5.12 and later): nothing had to be done.
    Copied,
    /// libibverbs keeps such pages from children: a child must not touch them.
    Hidden,
}

/// Opens one of the libraries.
fn open(shelf: Shelf) -> std::result::Result<NonNull<c_void>, MissingLibrary> {
    let name = shelf.file();
    // SAFETY: a literal name; the library's own initialisers are its business.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: `dlerror` returns null or a string that lives until the next dl call.
        let text = unsafe { libc::dlerror() };
        let text = if text.is_null() {
            "no reason given".into()
        } else {
            // SAFETY: not null, hence a string.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        MissingLibrary(format!(
            "{} cannot be loaded ({text}); install it, Debian's package is {}",
            name.to_string_lossy(),
            shelf.package()
        ))
    })
}

impl Library {
    /// Both libraries, opened on first use.
    pub fn load() -> std::result::Result<&'static Self, MissingLibrary> {
        static LIBRARY: OnceLock<std::result::Result<Library, MissingLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(Self::look).as_ref().map_err(Clone::clone)
    }

    fn look() -> std::result::Result<Self, MissingLibrary> {
        let verbs = open(Shelf::Verbs)?;
        let cm = open(Shelf::Cm)?;
        let symbol = |shelf, name: &CStr, version: &CStr| {
            let handle = match shelf {
                Shelf::Verbs => verbs,
                Shelf::Cm => cm,
            };
            // SAFETY: a live handle, which is never closed, and literal strings.
            NonNull::new(unsafe { libc::dlvsym(handle.as_ptr(), name.as_ptr(), version.as_ptr()) })
        };
        // SAFETY: the two libraries, by their names.
        unsafe { Self::find(symbol) }.map_err(missing)
    }

    /// Sees to it that a child that the program forks takes no registered page away from its parent; to be asked before
    /// anything is registered (`ibv_fork_init(3)`). Where the kernel does that, nothing is done.
    ///
    /// # Errors
    /// [`Error::System`](crate::error::Error::System), `EINVAL`: somebody else in the process has registered memory
    /// before; forks are not safe.
    pub fn prepare_forks(&self) -> Result<Forks> {
        // SAFETY: takes no argument; the library guards its own state.
        let state = || self.fork_state.map(|state| unsafe { state() });
        if state() == Some(sys::IBV_FORK_UNNEEDED) {
            return Ok(Forks::Copied);
        }
        // SAFETY: as above.
        outcome(unsafe { (self.fork_init)() })?;
        Ok(Forks::Hidden)
    }
}

/// The line for a library without a function.
fn missing((shelf, name, version): (Shelf, &CStr, &CStr)) -> MissingLibrary {
    MissingLibrary(format!(
        "{} has no {} of version {}; it is too old, or another library of that name",
        shelf.file().to_string_lossy(),
        name.to_string_lossy(),
        version.to_string_lossy()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn never() {
        unreachable!("nothing is called");
    }

    /// All symbols but one.
    fn without(name: &'static CStr) -> std::result::Result<Library, MissingLibrary> {
        let found = |_, asked: &CStr, _: &CStr| {
            (asked != name).then(|| NonNull::new(never as *mut c_void).expect("a function"))
        };
        // SAFETY: nothing of it is called.
        unsafe { Library::find(found) }.map_err(missing)
    }

    #[test]
    fn a_missing_function_is_named_with_its_library_and_version() {
        let why = without(c"rdma_accept").err().expect("it is missing").to_string();
        assert_eq!(
            why,
            "librdmacm.so.1 has no rdma_accept of version RDMACM_1.0; it is too old, or another library of that name"
        );
        let why = without(c"ibv_reg_mr").err().expect("it is missing").to_string();
        assert!(why.starts_with("libibverbs.so.1 has no ibv_reg_mr of version IBVERBS_1.1;"), "{why}");
    }

    #[test]
    fn what_only_newer_versions_have_may_be_missing() {
        for name in [c"ibv_reg_mr_iova2", c"_ibv_query_gid_table", c"ibv_is_fork_initialized"] {
            assert!(without(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_package() {
        match Library::load() {
            Ok(library) => assert!(Library::load().is_ok_and(|again| std::ptr::eq(library, again))),
            Err(why) => {
                let why = why.to_string();
                assert!(why.contains("libibverbs1") || why.contains("librdmacm1"), "{why}");
                assert!(!why.contains('\n'), "{why}");
            }
        }
    }
}
