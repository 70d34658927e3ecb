//! Registered memory, and the PUTs and GETs that use it.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::entry::Entry;
use super::module::{self, Shell, code, endpoint, status};
use super::sys::{BtlEndpoint, BtlModule, BtlRegistration, Transferred};
use super::{BtlAbi, Listed};
use crate::btl::{
    Access, Atomics, Cookie, EndpointId, Host, Lent, PIECE, Piece, Registration, Sending, Upcalls,
};
use crate::error::Result;
use crate::host::entry::Arguments;
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

/// The same, of a transport that has devices: as long as any handle of its may be.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LongHandle {
    head: Handle,
    /// What the transport says of device memory; zeros of the host's.
    piece: Piece,
}

impl LongHandle {
    /// What is registered there, and where an address of the peer's lies in it.
    pub(super) fn remote(&self, address: u64) -> Option<(Registration, u64)> {
        Some((Registration::from_bytes(&self.head.token)?, address.checked_sub(self.head.base)?))
    }
}

/// What travels of a handle of a transport that [tells keys only](crate::btl::Transport::has_bare_keys).
pub(super) type BareKeys = [u32; 2];

/// A handle of such a transport: what travels, and behind it what does not.
#[repr(C)]
#[derive(Clone, Copy)]
struct BareHandle {
    keys: BareKeys,
    head: Handle,
}

/// What says of a handle that its memory is the host's.
const OF_HOST: Piece = [0; PIECE];

/// `MCA_BTL_REG_HANDLE_MAX_SIZE` of ob1.
const _: () = assert!(size_of::<LongHandle>() <= 256);

/// The token of memory that no peer may reach: no registration's, for its access is none.
const PRIVATE: [u8; 32] = [0; 32];

/// A PUT or GET under way.
pub(super) struct Operation {
    pub(super) endpoint: *mut BtlEndpoint,
    pub(super) local: *mut c_void,
    handle: *mut BtlRegistration,
    callback: Transferred,
    context: *mut c_void,
    data: *mut c_void,
}

// SAFETY: the host's own values, which any of its threads may pass back to it.
unsafe impl Send for Operation {}

impl Operation {
    /// One to an endpoint, with local memory and its handle, and what the host wants to be called with.
    pub(super) const fn new(
        endpoint: *mut BtlEndpoint,
        (local, handle): (*mut c_void, *mut BtlRegistration),
        callback: Transferred,
        context: *mut c_void,
        data: *mut c_void,
    ) -> Self {
        Self { endpoint, local, handle, callback, context, data }
    }

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

    pub(super) fn put(&self, operation: Operation) -> Cookie {
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

/// What the host calls through one type of function.
pub(super) trait Direction {
    /// The name of the entry.
    const ENTRY: &'static str;
    /// Whether it may be from and to the memory of devices.
    const DEVICES: bool;
    /// Starts it.
    fn start<T: Listed>(
        core: &T,
        to: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending>;
}

/// To a peer's memory.
pub(super) struct Put;
/// From there.
pub(super) struct Get;

impl Direction for Put {
    const ENTRY: &'static str = "put";
    const DEVICES: bool = false;

    fn start<T: Listed>(
        core: &T,
        to: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        core.put(to, local, remote, cookie)
    }
}

impl Direction for Get {
    const ENTRY: &'static str = "get";
    const DEVICES: bool = true;

    fn start<T: Listed>(
        core: &T,
        to: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        core.get(to, local, remote, cookie)
    }
}

/// The bytes of a handle that the peer's `register_mem` made, at any address, and how many they are.
pub(super) struct Copied(pub(super) *const BtlRegistration, pub(super) usize);

impl<A: BtlAbi, T: Listed> Arguments<Shell<A, T>> for Copied {
    type Values<'a> = LongHandle;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        if self.1 == size_of::<BareKeys>() {
            // SAFETY: the bytes of a handle, which has so many in this module, readable for the time of the call.
            let [key, _] = unsafe { self.0.cast::<BareKeys>().read_unaligned() };
            let access = Access::BOTH.and(Access::ATOMIC);
            // No device has such a key: nothing is registered there.
            let length = if key == 0 { 0 } else { u64::MAX };
            let whole = Registration { id: 0, generation: 0, length, access, key };
            return LongHandle { head: Handle { token: whole.to_bytes(), base: 0 }, piece: OF_HOST };
        }
        if T::HAS_DEVICES {
            // SAFETY: the bytes of a handle, which is as long in every module of this transport, readable for the time of
            // the call; any bytes are one.
            return unsafe { self.0.cast::<LongHandle>().read_unaligned() };
        }
        // SAFETY: the same of a handle that is shorter.
        let head = unsafe { self.0.cast::<Handle>().read_unaligned() };
        LongHandle { head, piece: OF_HOST }
    }
}

/// Memory that the host leaves to us until an operation's callback has run, or a registration has ended.
pub(super) struct Left(pub(super) *mut c_void, pub(super) usize);

impl<S> Arguments<S> for Left {
    type Values<'a> = Lent;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: left to us for as long as the transport has it.
        unsafe { Lent::new(self.0.cast(), self.1) }
    }
}

/// PUT or GET.
pub(super) unsafe extern "C" fn transfer<A: BtlAbi, T: Listed, D: Direction>(
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
    let operation = Operation::new(endpoint, (local, handle), callback, context, data);
    // SAFETY: the contract of `btl_put` and `btl_get`: through the module's own table, which is read only.
    let length = unsafe { (*module).registration_handle_size };
    // SAFETY: as above, with a handle of the
    // peer's, as its bytes have come, and memory that is ours until the callback has run.
    let entry = unsafe { Entry::<A, T, _>::of(module, (Copied(remote, length), Left(local, size))) };
    entry.run(D::ENTRY, |shell, (remote, local)| {
        let piece = remote.piece;
        let on_device = shell.is_on_device(local) || piece != OF_HOST;
        // HOST: ob1 asks for a GET into device memory of any transport that has GET (`pml_ob1_recvreq.c`, 5.0), and
        // has the message sent in fragments when that fails.
        if on_device && !(T::HAS_DEVICES && D::DEVICES) {
            return code::ERROR;
        }
        let Some((registration, offset)) = remote.remote(remote_address) else { return code::ERROR };
        let to = module::endpoint(operation.endpoint);
        let cookie = shell.transfers.put(operation);
        let outcome = if on_device {
            shell
                .core
                .get_device(to, local, (registration, offset, piece), cookie)
                .map(|()| Sending::UnderWay)
        } else {
            D::start(&shell.core, to, local, (registration, offset), cookie)
        };
        match outcome {
            Ok(Sending::UnderWay) => {}
            // HOST: callbacks may run before the call returns: the host's own shared memory has them do that
            // (`mca_btl_vader_get_cma`, 4.1; `mca_btl_sm_get`, 5.0).
            Ok(Sending::Over) => shell.transferred(cookie, Ok(())),
            Err(error) => {
                shell.transfers.take(cookie);
                shell.gives_up(to, local.as_ptr());
                return status(Err(error));
            }
        }
        code::SUCCESS
    })
}

/// What a peer may do with registered memory (`MCA_BTL_REG_FLAG_*`), of what the transport has; `None`: nothing.
fn access(flags: u32, has_atomics: bool) -> Option<Access> {
    const REMOTE_READ: u32 = 0x2;
    const REMOTE_WRITE: u32 = 0x4;
    const REMOTE_ATOMIC: u32 = 0x8;
    let rights = [
        (flags & REMOTE_READ != 0, Access::READ),
        (flags & REMOTE_WRITE != 0, Access::WRITE),
        (flags & REMOTE_ATOMIC != 0 && has_atomics, Access::ATOMIC),
    ];
    rights.into_iter().filter_map(|(is_asked, right)| is_asked.then_some(right)).reduce(Access::and)
}

pub(super) unsafe extern "C" fn register_mem<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut BtlRegistration {
    // SAFETY: the contract of `btl_register_mem`: through the module's own table, with memory that the host
    // keeps until `deregister_mem`.
    let entry = unsafe { Entry::<A, T, _>::of(module, (Left(base, size),)) };
    entry.run("register_mem", |shell, (memory,)| {
        let (registration, piece) = if shell.is_on_device(memory) {
            match access(flags, false) {
                _ if !T::HAS_DEVICES => return ptr::null_mut(),
                // HOST: ob1 asks for a handle of what it gets into, and needs one (`mca_pml_ob1_recv_request_get_frag`, 4.1
                // and 5.0). Peers write there by other ways.
                None | Some(Access::WRITE) => (None, OF_HOST),
                Some(Access::READ) => match shell.core.register_device(endpoint(target), memory, shell) {
                    Some((registration, piece)) => (Some(registration), piece),
                    None => return ptr::null_mut(),
                },
                Some(_) => return ptr::null_mut(),
            }
        } else {
            let has_atomics = T::HAS_ATOMICS && shell.core.limits().atomics != Atomics::None;
            (access(flags, has_atomics).and_then(|access| shell.core.register(memory, access)), OF_HOST)
        };
        // HOST: where there is no room to register more, the receiver is refused, and has what it asked for copied after three
        // tries (`mca_pml_ob1_recv_request_get_frag`). Without a handle it would ask for pieces instead, for each of which
        // both sides register memory: with little room they wait for each other for ever (`mca_pml_ob1_send_request_start_rndv`,
        // 4.1 and 5.0).
        let token = registration.map_or(PRIVATE, |registration| registration.to_bytes());
        let head = Handle { token, base: base.addr() as u64 };
        if shell.core.has_bare_keys() {
            let key = registration.map_or(0, |registration| registration.key);
            Box::into_raw(Box::new(BareHandle { keys: [key; 2], head })).cast()
        } else if T::HAS_DEVICES {
            Box::into_raw(Box::new(LongHandle { head, piece })).cast()
        } else {
            Box::into_raw(Box::new(head)).cast()
        }
    })
}

impl<A: BtlAbi, T: Listed> Shell<A, T> {
    /// Whether only a device may touch memory: the host says so, or, where it does not know, a transport that does, or
    /// else what looks at the host's copies.
    fn is_on_device(&self, memory: Lent) -> bool {
        if T::HAS_DEVICES && !A::DEVICE {
            self.core.is_on_device(memory.as_ptr())
        } else {
            A::is_out_of_reach(memory.as_ptr())
        }
    }

    /// Whether data is a device's that the host would have the processor send. Then the user has been told, and the
    /// host has been asked to end the job.
    #[inline]
    pub(super) fn refuses(&self, to: EndpointId, data: *const u8) -> bool {
        // The host may have learned to copy it.
        let refuses = self.core.is_on_device(data) && !A::is_out_of_reach(data);
        if refuses {
            let what = match self.gets() {
                true => "short messages and data with gaps cannot be sent from it",
                false => "nothing can be sent from it",
            };
            self.end_job(to, what);
        }
        refuses
    }

    /// A message has not been copied to where the host would now have the processor write it: that must not be
    /// a device's.
    pub(super) fn gives_up(&self, from: EndpointId, local: *const u8) {
        if !A::DEVICE && T::HAS_DEVICES && self.core.is_on_device(local) && !A::is_out_of_reach(local) {
            self.end_job(from, "a message to it could not be copied by the device");
        }
    }

    /// Whether messages are copied in one step.
    fn gets(&self) -> bool {
        /// `MCA_BTL_FLAGS_GET`
        const GET: u32 = 0x4;
        self.core.limits().flags & GET != 0
    }

    #[cold]
    fn end_job(&self, with: EndpointId, what: &str) {
        let (major, minor, _) = A::version();
        let what_goes = match self.gets() {
            true => format!(
                "Messages in one piece that are longer than {}_eager_limit go from devices and to them",
                T::COMPONENT
            ),
            false => format!(
                "None goes from one here, because messages are not copied in one step (the parameter {}_flags, or a \
                 system that does not let processes read each other's memory)",
                T::COMPONENT
            ),
        };
        let line = format!(
            "{}: a buffer lies in the memory of a CUDA device, of which this Open MPI {major}.{minor} does not know, and {what}. {what_goes}; \
             --mca op_hawser_copy_hook 1 has messages of all kinds, collectives and reductions take such buffers, and \
             everything does with Open MPI 5.0 and hawser's accelerator component (hawser-accelerator(7))",
            T::COMPONENT
        );
        self.host().notice("device memory refused", &line);
        self.fail_job(with);
    }
}

/// What `register_mem` has made, coming back once, and how many bytes of it travel.
struct Returned(*mut BtlRegistration, usize);

impl<A: BtlAbi, T: Listed> Arguments<Shell<A, T>> for Returned {
    type Values<'a> = LongHandle;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        if self.1 == size_of::<BareKeys>() {
            // SAFETY: boxed by `register_mem` of the same module, in this form, and never used again.
            let BareHandle { head, .. } = *unsafe { Box::from_raw(self.0.cast::<BareHandle>()) };
            return LongHandle { head, piece: OF_HOST };
        }
        if T::HAS_DEVICES {
            // SAFETY: boxed by `register_mem` of the same transport, in this form, and never used again.
            return *unsafe { Box::from_raw(self.0.cast::<LongHandle>()) };
        }
        // SAFETY: boxed by `register_mem` of the same transport, in this form, and never used again.
        let head = *unsafe { Box::from_raw(self.0.cast::<Handle>()) };
        LongHandle { head, piece: OF_HOST }
    }
}

pub(super) unsafe extern "C" fn deregister_mem<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    registration: *mut BtlRegistration,
) -> c_int {
    // SAFETY: the contract of `btl_deregister_mem`: through the module's own table, which is read only.
    let length = unsafe { (*module).registration_handle_size };
    // SAFETY: as above, with what its `register_mem` has made, for the last time.
    let entry = unsafe { Entry::<A, T, _>::of(module, (Returned(registration, length),)) };
    entry.run("deregister_mem", |shell, (LongHandle { head: handle, piece },)| {
        if piece != OF_HOST {
            shell.core.deregister_device(&piece);
        } else if handle.token != PRIVATE
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
    // SAFETY: the contract of `btl_flush`: through the module's own table.
    let entry = unsafe { Entry::<A, T, _>::of(module, ()) };
    entry.run("flush", |shell, ()| {
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
        assert_eq!(access(0x1, true), None);
        assert_eq!(access(0x2, true), Some(Access::READ));
        assert_eq!(access(0x4 | 0x1, true), Some(Access::WRITE));
        assert_eq!(access(0x6, true), Some(Access::BOTH));
        assert_eq!(access(0xF, false), Some(Access::BOTH));
        assert_eq!(access(0xF, true), Some(Access::BOTH.and(Access::ATOMIC)));
        assert_eq!((access(0x8, true), access(0x9, false)), (Some(Access::ATOMIC), None));
    }
}
