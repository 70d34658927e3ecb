//! Registered memory, and the PUTs and GETs that use it.

use std::ffi::{c_int, c_void};

use super::entry::Entry;
use super::module::{code, endpoint, status};
use super::sys::{BtlEndpoint, BtlModule, BtlRegistration, Transferred};
use super::{BtlAbi, Listed};
use crate::btl::{Access, Cookie, EndpointId, Lent, Registration};
use crate::error::Result;
use crate::sync::EngineCell;

/// A registration handle, as its bytes travel through the host.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Handle {
    /// The registration, as the transport writes it.
    token: [u8; 32],
    /// Address of the first byte.
    base: u64,
}

/// The token of memory that no peer may reach: no registration's, for its access is none.
const PRIVATE: [u8; 32] = [0; 32];

/// A PUT or GET under way.
pub(super) struct Operation {
    pub(super) endpoint: *mut BtlEndpoint,
    local: *mut c_void,
    handle: *mut BtlRegistration,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
}

// SAFETY: the host's own values, which any of its threads may pass back to it.
unsafe impl Send for Operation {}

impl Operation {
    /// Tells the host that it has ended.
    pub(super) fn complete(&self, module: *mut BtlModule, status: c_int) {
        if let Some(callback) = self.callback {
            // SAFETY: the host's callback, with what it gave us for it.
            unsafe {
                callback(module, self.endpoint, self.local, self.handle, self.context, self.data, status);
            }
        }
    }
}

/// Marks the cookie of a transfer; those of fragments are aligned.
const TRANSFER: Cookie = 1;

/// Whether a cookie is a transfer's.
#[inline]
pub(super) fn is_transfer(cookie: Cookie) -> bool {
    cookie & TRANSFER != 0
}

/// All that are under way; their cookies are their places.
pub(super) struct Transfers(EngineCell<State>);

#[derive(Default)]
struct State {
    places: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Transfers {
    pub(super) fn new() -> Self {
        Self(EngineCell::new(State::default()))
    }

    fn put(&self, operation: Operation) -> Cookie {
        let place = self.0.with(|state| {
            let place = state.free.pop().unwrap_or_else(|| {
                state.places.push(None);
                state.places.len() - 1
            });
            state.places[place] = Some(operation);
            place
        });
        (place as Cookie) << 1 | TRANSFER
    }

    /// The transfer of a cookie, which has ended; `None` when there is none.
    pub(super) fn take(&self, cookie: Cookie) -> Option<Operation> {
        let place = (cookie >> 1) as usize;
        self.0.with(|state| {
            let operation = state.places.get_mut(place)?.take()?;
            state.free.push(place);
            Some(operation)
        })
    }

    /// Whether there are any to an endpoint, or to whomever.
    fn any(&self, to: Option<EndpointId>) -> bool {
        self.0.with(|state| {
            let mut under_way = state.places.iter().flatten();
            under_way.any(|operation| to.is_none_or(|to| endpoint(operation.endpoint) == to))
        })
    }
}

/// What a PUT and a GET have in common: starts `start` with the local memory, the registration and the
/// offset in it, and the cookie.
///
/// # Safety
/// As for [`Entry::of`]; `remote` is the handle that the peer's `register_mem` made, as its bytes have come;
/// the host leaves `size` bytes of local memory to us until the callback has run.
unsafe fn transfer<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    entry: &str,
    operation: Operation,
    remote: (u64, *const BtlRegistration),
    size: usize,
    start: impl FnOnce(&T, EndpointId, Lent, (Registration, u64), Cookie) -> Result<()>,
) -> c_int {
    // SAFETY: the caller says of `module` what `of` asks for.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run(entry, |shell| {
        // SAFETY: the bytes of a handle, which the caller may read for the time of the call, at any address.
        let handle = unsafe { remote.1.cast::<Handle>().read_unaligned() };
        let (Some(registration), Some(offset)) =
            (Registration::from_bytes(&handle.token), remote.0.checked_sub(handle.base))
        else {
            return code::ERROR;
        };
        let to = endpoint(operation.endpoint);
        // SAFETY: the host leaves the memory to us until the completion callback has run.
        let local = unsafe { Lent::new(operation.local.cast(), size) };
        let cookie = shell.transfers.put(operation);
        let outcome = start(&shell.core, to, local, (registration, offset), cookie);
        if outcome.is_err() {
            shell.transfers.take(cookie);
        }
        status(outcome)
    })
}

pub(super) unsafe extern "C" fn put<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    endpoint: *mut BtlEndpoint,
    local: *mut c_void,
    remote_address: u64,
    handle: *mut BtlRegistration,
    remote: *mut BtlRegistration,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let operation = Operation { endpoint, local, handle, callback, context, data };
    // SAFETY: the contract of `btl_put`: its own module, a handle of the peer's, and memory that is ours
    // until the callback.
    unsafe { transfer::<A, T>(module, "put", operation, (remote_address, remote), size, T::put) }
}

pub(super) unsafe extern "C" fn get<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    endpoint: *mut BtlEndpoint,
    local: *mut c_void,
    remote_address: u64,
    handle: *mut BtlRegistration,
    remote: *mut BtlRegistration,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let operation = Operation { endpoint, local, handle, callback, context, data };
    // SAFETY: the contract of `btl_get`: its own module, a handle of the peer's, and memory that is ours
    // until the callback.
    unsafe { transfer::<A, T>(module, "get", operation, (remote_address, remote), size, T::get) }
}

/// What a peer may do with registered memory (`MCA_BTL_REG_FLAG_*`); `None`: nothing.
fn access(flags: u32) -> Option<Access> {
    const REMOTE_READ: u32 = 0x2;
    const REMOTE_WRITE: u32 = 0x4;
    match (flags & REMOTE_READ != 0, flags & REMOTE_WRITE != 0) {
        (true, false) => Some(Access::READ),
        (false, true) => Some(Access::WRITE),
        (true, true) => Some(Access::BOTH),
        (false, false) => None,
    }
}

pub(super) unsafe extern "C" fn register_mem<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut BtlRegistration {
    let register = |core: &T, access| {
        // SAFETY: the contract of `btl_register_mem`: the host keeps the memory until `deregister_mem`.
        let memory = unsafe { Lent::new(base.cast(), size) };
        core.register(memory, access).map_or(PRIVATE, |registration| registration.to_bytes())
    };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("register_mem", |shell| {
        let token = access(flags).map_or(PRIVATE, |access| register(&shell.core, access));
        Box::into_raw(Box::new(Handle { token, base: base.addr() as u64 })).cast()
    })
}

pub(super) unsafe extern "C" fn deregister_mem<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    registration: *mut BtlRegistration,
) -> c_int {
    // SAFETY: the contract of `btl_deregister_mem`: what `register_mem` boxed comes back once.
    let handle = unsafe { Box::from_raw(registration.cast::<Handle>()) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("deregister_mem", |shell| {
        if handle.token != PRIVATE
            && let Some(registration) = Registration::from_bytes(&handle.token)
        {
            shell.core.deregister(registration);
        }
        code::SUCCESS
    })
}

/// Waits for the transfers to one endpoint; without one, for all.
pub(super) unsafe extern "C" fn flush<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
) -> c_int {
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("flush", |shell| {
        let to = (!target.is_null()).then(|| endpoint(target));
        while shell.transfers.any(to) {
            shell.core.progress(shell);
        }
        code::SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::super::module::handle;
    use super::*;

    fn to(endpoint: EndpointId) -> Operation {
        let none = std::ptr::null_mut();
        Operation {
            endpoint: handle(endpoint),
            local: none,
            handle: none,
            callback: None,
            context: none,
            data: none,
        }
    }

    #[test]
    fn a_transfer_is_taken_once_and_only_its_own_endpoint_waits() {
        let transfers = Transfers::new();
        let (one, other) = (EndpointId::from_raw(1 << 32 | 1), EndpointId::from_raw(1 << 32 | 2));
        let cookie = transfers.put(to(one));
        assert!(is_transfer(cookie));
        assert!(transfers.any(None) && transfers.any(Some(one)) && !transfers.any(Some(other)));
        assert!(transfers.take(cookie).is_some() && transfers.take(cookie).is_none());
        assert!(!transfers.any(None));
        assert_eq!(transfers.put(to(other)), cookie, "places are used again");
        assert!(transfers.take(cookie + 2).is_none(), "a cookie of nobody");
    }

    /// Memory without a remote flag is nobody else's.
    #[test]
    fn access_is_what_the_flags_say() {
        assert_eq!(access(0x1), None);
        assert_eq!(access(0x2), Some(Access::READ));
        assert_eq!(access(0x4 | 0x1), Some(Access::WRITE));
        assert_eq!(access(0x6), Some(Access::BOTH));
    }
}
