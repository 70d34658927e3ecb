//! The functions in a byte transport's table, written once for every version.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use super::component::{Own, retire};
use super::parcel::{Ending, LONGEST, Parcel};
use super::peers::meet;
use super::shell::{Handle, OPERATION, Operation, ProcRef, Shell, code, endpoint, handle, status};
use super::sys::{
    BtlConvertor, BtlEndpoint, BtlModule, BtlProc, BtlRegistration, Descriptor, Failed, Segment, Transferred,
};
use super::{BtlAbi, map};
use crate::btl::Lent;
use crate::btl::usnic::{Access, Fragment, Registration};
use crate::error::{Error, Result};
use crate::host::guard::guard;
use crate::host::services::Services;

/// Flags of a descriptor (`opal/mca/btl/btl.h`).
mod flag {
    /// The transport frees it.
    pub(super) const OWNERSHIP: u32 = 0x2;
    /// Its callback runs even if it was sent at once.
    pub(super) const ALWAYS_CALLBACK: u32 = 0x4;
    /// It is urgent.
    pub(super) const PRIORITY: u32 = 0x1;
}

/// # Safety
/// `module` is a module that `component` made for this version, alive.
#[inline]
unsafe fn shell<'a, A>(module: *mut BtlModule) -> &'a Shell<A> {
    // SAFETY: the promise above; the table is the shell's first field.
    unsafe { &*module.cast::<Shell<A>>() }
}

pub(super) unsafe extern "C" fn add_procs<A: BtlAbi>(
    module: *mut BtlModule,
    count: usize,
    procs: *mut *mut BtlProc,
    endpoints: *mut *mut BtlEndpoint,
    reachable: *mut c_void,
) -> c_int {
    guard("btl_usnic", "add_procs", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        for index in 0..count {
            // SAFETY: the host passes `count` processes.
            let proc = unsafe { procs.add(index) };
            // SAFETY: as above.
            let found = reach::<A>(shell, unsafe { proc.read() });
            // SAFETY: the host passes room for `count` endpoints.
            let slot = unsafe { endpoints.add(index) };
            // SAFETY: as above.
            unsafe { slot.write(found.unwrap_or(ptr::null_mut())) };
            if found.is_some() && !reachable.is_null() {
                // SAFETY: the host's bitmap.
                unsafe { (Own::host().bitmap_set)(reachable, index as c_int) };
            }
        }
        map::note_call::<A>();
        code::SUCCESS
    })
}

/// The endpoint for a process; `None` when it cannot be reached through this module.
fn reach<A: BtlAbi>(shell: &Shell<A>, proc: *mut BtlProc) -> Option<*mut BtlEndpoint> {
    let found = meet::<A>(shell, proc)?;
    shell.procs.with(|procs| procs.insert(found, ProcRef(proc)));
    Some(handle(found))
}

pub(super) unsafe extern "C" fn del_procs<A: BtlAbi>(
    module: *mut BtlModule,
    count: usize,
    _procs: *mut *mut BtlProc,
    endpoints: *mut *mut BtlEndpoint,
) -> c_int {
    guard("btl_usnic", "del_procs", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        let closing: Vec<_> = (0..count)
            .map(|index| {
                // SAFETY: the host passes `count` endpoints.
                let slot = unsafe { endpoints.add(index) };
                // SAFETY: as above.
                unsafe { slot.read() }
            })
            .filter(|endpoint| !endpoint.is_null())
            .map(endpoint)
            .collect();
        shell.procs.with(|procs| procs.retain(|endpoint, _| !closing.contains(endpoint)));
        shell.leaving.store(true, Ordering::Release);
        shell.core.close(&closing, shell);
        shell.leaving.store(false, Ordering::Release);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn finalize<A: BtlAbi>(module: *mut BtlModule) -> c_int {
    guard("btl_usnic", "finalize", || {
        map::end::<A>();
        retire(module);
        // SAFETY: the host passes its module, for the last time.
        let shell = unsafe { Box::from_raw(module.cast::<Shell<A>>()) };
        shell.core.print_last();
        drop(shell);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn alloc<A: BtlAbi>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    _order: u8,
    size: usize,
    flags: u32,
) -> *mut Descriptor {
    guard("btl_usnic", "alloc", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        shell.pool.take(size.min(LONGEST), flags).map_or(ptr::null_mut(), |parcel| parcel.as_ptr().cast())
    })
}

pub(super) unsafe extern "C" fn free<A: BtlAbi>(
    module: *mut BtlModule,
    descriptor: *mut Descriptor,
) -> c_int {
    guard("btl_usnic", "free", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: the host frees what it was handed, once it has been sent or will not be.
        shell.pool.give(unsafe { Parcel::around(descriptor) });
        code::SUCCESS
    })
}

/// Flags of a convertor (`opal/datatype/opal_convertor.h`, `opal_datatype.h`).
mod convertor {
    pub(super) const CONTIGUOUS: u32 = 0x10;
    pub(super) const NO_GAPS: u32 = 0x20;
    pub(super) const HOMOGENEOUS: u32 = 0x0008_0000;
    pub(super) const DEVICE: u32 = 0x0040_0000;
}

/// Whether the data must be packed (`opal_convertor_need_buffers`).
///
/// # Safety
/// A live convertor.
unsafe fn needs_packing(conv: *mut BtlConvertor) -> bool {
    // SAFETY: the promise above.
    let BtlConvertor { flags, count, .. } = unsafe { &*conv };
    if flags & convertor::HOMOGENEOUS == 0 || flags & convertor::DEVICE != 0 {
        return true;
    }
    !(flags & convertor::NO_GAPS != 0 || *count == 1 && flags & convertor::CONTIGUOUS != 0)
}

/// Packs up to `len` bytes to `start`, or, with a null `start`, finds where they lie. Returns where
/// and how many.
///
/// # Safety
/// A live, prepared convertor; null, or `len` writable bytes.
unsafe fn pack(conv: *mut BtlConvertor, start: *mut u8, len: usize) -> Result<(*mut u8, usize)> {
    let mut vector = libc::iovec { iov_base: start.cast(), iov_len: len };
    let (mut count, mut max) = (1_u32, len);
    // SAFETY: the promise above.
    let code = unsafe { (Services::host().pack)(conv.cast(), &raw mut vector, &raw mut count, &raw mut max) };
    if code < 0 { Err(Error::Host(code)) } else { Ok((vector.iov_base.cast(), max)) }
}

pub(super) unsafe extern "C" fn prepare_src<A: BtlAbi>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    conv: *mut BtlConvertor,
    _order: u8,
    reserve: usize,
    size: *mut usize,
    flags: u32,
) -> *mut Descriptor {
    guard("btl_usnic", "prepare_src", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: the host's variable.
        let wanted = unsafe { size.read() };
        // SAFETY: a live convertor.
        let packed = unsafe { needs_packing(conv) };
        let in_place = !packed && wanted > shell.copy_limit;
        let room = if in_place { reserve } else { (reserve + wanted).min(LONGEST) };
        let Some(parcel) = shell.pool.take(room, flags) else { return ptr::null_mut() };
        let block = Parcel::block(parcel);
        let target = if in_place {
            (ptr::null_mut(), wanted)
        } else {
            // SAFETY: the block has `room` bytes, at least the reserve.
            (unsafe { block.add(reserve) }, room - reserve)
        };
        let done = if wanted == 0 {
            Ok((target.0, 0))
        } else {
            // SAFETY: a live convertor; null or the rest of the block.
            unsafe { pack(conv, target.0, target.1) }
        };
        let Ok((start, len)) = done else {
            shell.pool.give(parcel);
            return ptr::null_mut();
        };
        let raw = parcel.as_ptr();
        // SAFETY: the parcel is ours until it is returned.
        let parts = unsafe { &mut *raw };
        if in_place {
            parts.segments =
                [Segment { start: block, len: reserve as u64 }, Segment { start, len: len as u64 }];
            parts.descriptor.segment_count = 2;
        } else {
            parts.segments[0].len = (reserve + len) as u64;
        }
        // SAFETY: the host's variable.
        unsafe { size.write(len) };
        raw.cast()
    })
}

/// The memory of a segment of a descriptor.
///
/// # Safety
/// The memory stays as it is until the engine ends the operation.
unsafe fn lent(segment: Segment) -> Option<Lent> {
    // SAFETY: the promise above.
    (segment.len != 0).then(|| unsafe { Lent::new(segment.start, segment.len as usize) })
}

pub(super) unsafe extern "C" fn send<A: BtlAbi>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    descriptor: *mut Descriptor,
    tag: u8,
) -> c_int {
    guard("btl_usnic", "send", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: a descriptor that we handed out.
        let parcel = unsafe { Parcel::around(descriptor) };
        let raw = parcel.as_ptr();
        // SAFETY: the host holds the descriptor and does not touch it while it is sent.
        let parts = unsafe { &*raw };
        let (flags, count) = (parts.descriptor.flags, parts.descriptor.segment_count);
        let owned = flags & flag::OWNERSHIP != 0;
        let at_once = owned && count == 1 && flags & flag::ALWAYS_CALLBACK == 0;
        parts.endpoint.set(target);
        parts.ending.set(match (owned, at_once) {
            (_, true) => Ending::Silent,
            (true, false) => Ending::CallbackAndFree,
            (false, _) => Ending::Callback,
        });
        // The second segment is only there when the count says so.
        let second = if count > 1 { parts.segments[1] } else { Segment { start: ptr::null_mut(), len: 0 } };
        // SAFETY: the block lives until the engine has ended the send; so does the host's memory.
        let first = unsafe { lent(parts.segments[0]) };
        // SAFETY: as above.
        let pieces = [first, unsafe { lent(second) }];
        let cookie = raw.expose_provenance() as u64;
        let fragment =
            Fragment { tag, pieces, cookie, priority: flags & flag::PRIORITY != 0, awaited: !at_once };
        match shell.core.send(endpoint(target), fragment) {
            Ok(()) => c_int::from(at_once),
            Err(error) => status(Err(error)),
        }
    })
}

pub(super) unsafe extern "C" fn sendi<A: BtlAbi>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    conv: *mut BtlConvertor,
    header: *mut c_void,
    header_size: usize,
    payload_size: usize,
    _order: u8,
    flags: u32,
    tag: u8,
    left: *mut *mut Descriptor,
) -> c_int {
    guard("btl_usnic", "sendi", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: null, or the host's variable.
        let left = unsafe { left.as_mut() };
        let Some(parcel) = shell.pool.take(header_size + payload_size, flags) else {
            if let Some(left) = left {
                *left = ptr::null_mut();
            }
            return code::OUT_OF_RESOURCE;
        };
        let block = Parcel::block(parcel);
        // SAFETY: `header_size` bytes of the host's, and the beginning of our block.
        unsafe { block.copy_from_nonoverlapping(header.cast(), header_size) };
        let mut outcome = Ok(());
        if payload_size != 0 {
            // SAFETY: the block has room for both.
            let room = unsafe { block.add(header_size) };
            // SAFETY: a live convertor, and room for what it packs.
            outcome = unsafe { pack(conv, room, payload_size) }.map(|_| ());
        }
        let raw = parcel.as_ptr();
        // SAFETY: ours until the engine ends the send.
        let parts = unsafe { &*raw };
        parts.endpoint.set(target);
        parts.ending.set(Ending::Silent);
        if outcome.is_ok() {
            // SAFETY: the block lives until the engine has ended the send.
            let pieces = unsafe { [lent(parts.segments[0]), None] };
            let cookie = raw.expose_provenance() as u64;
            outcome = shell
                .core
                .send(endpoint(target), Fragment { tag, pieces, cookie, priority: true, awaited: false });
        }
        if outcome.is_err() {
            match left {
                Some(left) => *left = raw.cast(),
                None => shell.pool.give(parcel),
            }
        }
        status(outcome)
    })
}

/// What a PUT and a GET have in common: starts `transfer` with the local memory, the registration
/// and the offset in it.
unsafe fn transfer<A: BtlAbi>(
    module: *mut BtlModule,
    operation: Operation,
    remote_address: u64,
    remote: *mut BtlRegistration,
    size: usize,
    start: impl FnOnce(&Shell<A>, Lent, (Registration, u64), u64) -> Result<()>,
) -> c_int {
    // SAFETY: the host passes its module.
    let shell = unsafe { shell::<A>(module) };
    // SAFETY: the host passes the handle that the peer made; it may lie at any address.
    let remote = unsafe { remote.cast::<Handle>().read_unaligned() };
    let (Some(registration), Some(offset)) =
        (Registration::from_bytes(&remote.token), remote_address.checked_sub(remote.base))
    else {
        return code::ERROR;
    };
    // SAFETY: the host leaves the memory alone until the callback.
    let local = unsafe { Lent::new(operation.local.cast(), size) };
    let raw = Box::into_raw(Box::new(operation));
    shell.transfers.fetch_add(1, Ordering::AcqRel);
    let outcome = start(shell, local, (registration, offset), raw.expose_provenance() as u64 | OPERATION);
    if outcome.is_err() {
        shell.transfers.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: refused, so the box is still ours.
        drop(unsafe { Box::from_raw(raw) });
    }
    status(outcome)
}

macro_rules! transfers {
    ($($name:ident = $text:literal),*) => {$(
        pub(super) unsafe extern "C" fn $name<A: BtlAbi>(
            module: *mut BtlModule,
            target: *mut BtlEndpoint,
            local: *mut c_void,
            remote_address: u64,
            local_handle: *mut BtlRegistration,
            remote_handle: *mut BtlRegistration,
            size: usize,
            _flags: c_int,
            _order: c_int,
            callback: Transferred,
            context: *mut c_void,
            data: *mut c_void,
        ) -> c_int {
            guard("btl_usnic", $text, || {
                let operation = Operation { endpoint: target, local, handle: local_handle, callback, context, data };
                // SAFETY: the host's arguments, as they came.
                unsafe {
                    transfer::<A>(module, operation, remote_address, remote_handle, size, |shell, local, remote, cookie| {
                        shell.core.$name(endpoint(target), local, remote, cookie)
                    })
                }
            })
        }
    )*};
}

transfers!(put = "put", get = "get");

/// What a peer may do with registered memory (`MCA_BTL_REG_FLAG_*`).
mod access {
    pub(super) const REMOTE_READ: u32 = 0x2;
    pub(super) const REMOTE_WRITE: u32 = 0x4;
}

pub(super) unsafe extern "C" fn register_mem<A: BtlAbi>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut BtlRegistration {
    guard("btl_usnic", "register_mem", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        let access = match (flags & access::REMOTE_READ != 0, flags & access::REMOTE_WRITE != 0) {
            (true, false) => Access::READ,
            (false, true) => Access::WRITE,
            (true, true) => Access::BOTH,
            // Memory that only we use is not named to anybody; READ does no harm.
            (false, false) => Access::READ,
        };
        // SAFETY: the host keeps the memory until it takes the registration back.
        let memory = unsafe { Lent::new(base.cast(), size) };
        let token = shell.core.register(memory, access).to_bytes();
        Box::into_raw(Box::new(Handle { token, base: base.addr() as u64 })).cast()
    })
}

pub(super) unsafe extern "C" fn deregister_mem<A: BtlAbi>(
    module: *mut BtlModule,
    registration: *mut BtlRegistration,
) -> c_int {
    guard("btl_usnic", "deregister_mem", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        // SAFETY: boxed by `register_mem`, and given back once.
        let registration = unsafe { Box::from_raw(registration.cast::<Handle>()) };
        if let Some(registration) = Registration::from_bytes(&registration.token) {
            shell.core.deregister(registration);
        }
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn flush<A: BtlAbi>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
) -> c_int {
    guard("btl_usnic", "flush", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        while shell.transfers.load(Ordering::Acquire) != 0 {
            shell.core.progress(shell);
        }
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn dump<A: BtlAbi>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    _verbose: c_int,
) {
    guard("btl_usnic", "dump", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        let endpoint = (!target.is_null()).then(|| endpoint(target));
        for line in shell.core.describe(endpoint) {
            crate::host::services::say(&line);
        }
    });
}

pub(super) unsafe extern "C" fn register_error<A: BtlAbi>(module: *mut BtlModule, callback: Failed) -> c_int {
    guard("btl_usnic", "register_error", || {
        // SAFETY: the host passes its module.
        let shell = unsafe { shell::<A>(module) };
        let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void);
        shell.failed.store(callback, Ordering::Release);
        code::SUCCESS
    })
}
