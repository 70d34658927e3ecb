//! The functions in a byte transport's table, written once for every version and transport. Each makes
//! Rust values of what C passes and then calls safe code.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering;

use super::component::shells;
use super::descriptor::{Ending, FragRef, LONGEST};
use super::module::{Shell, code, endpoint, handle, status};
use super::services::{Own, ProcRef, Runtime};
use super::sys::{BtlConvertor, BtlEndpoint, BtlModule, BtlProc, Descriptor, Failed, Segment};
use super::{BtlAbi, Listed};
use crate::btl::{Fragment, Host, Lent};
use crate::error::{Error, Result};
use crate::host::foreign;
use crate::host::guard::guard;
use crate::host::services::Services;

/// The module of an entry.
pub(super) struct Entry<A, T>(*mut BtlModule, PhantomData<fn() -> (A, T)>);

impl<A: BtlAbi, T: Listed> Entry<A, T> {
    /// # Safety
    /// `module` was made for this version and transport, and is alive until the entry returns: the host
    /// calls these functions only through the table of the module that it passes, and none after
    /// `finalize`.
    #[inline]
    pub(super) unsafe fn of(module: *mut BtlModule) -> Self {
        Self(module, PhantomData)
    }

    /// Runs the body of the entry, and stops panics.
    #[inline]
    pub(super) fn run<R>(self, entry: &str, body: impl FnOnce(&Shell<A, T>) -> R) -> R {
        guard(T::COMPONENT, entry, || {
            // SAFETY: made for `A` and `T` and alive, by the promise of `of`.
            body(unsafe { Shell::at(self.0) })
        })
    }
}

/// Flags of a descriptor (`opal/mca/btl/btl.h`).
mod flag {
    /// The transport frees it.
    pub(super) const OWNERSHIP: u32 = 0x2;
    /// Its callback runs even if it was sent at once.
    pub(super) const ALWAYS_CALLBACK: u32 = 0x4;
    /// It is urgent.
    pub(super) const PRIORITY: u32 = 0x1;
}

pub(super) unsafe extern "C" fn add_procs<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    count: usize,
    procs: *mut *mut BtlProc,
    endpoints: *mut *mut BtlEndpoint,
    reachable: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `btl_add_procs`: `count` processes.
    let procs = unsafe { foreign::copied(procs, count) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("add_procs", |shell| {
        let host = Runtime::<A, T>::new();
        let all: Vec<&Shell<A, T>> = shells::<A, T>().collect();
        let cores: Vec<&T> = all.iter().map(|shell| &shell.core).collect();
        let own = all.iter().position(|other| ptr::eq(*other, shell));
        let reach = |(index, proc)| {
            // SAFETY: one of the processes that the running call is about.
            let peer = unsafe { ProcRef::<A>::new(proc) };
            let found = own.and_then(|own| T::reach(&cores, own, &peer, &host));
            let Some(found) = found else { return ptr::null_mut() };
            shell.peers.with(|peers| peers.add(found, peer));
            // SAFETY: the bitmap of the running call, which has a bit for each process.
            unsafe { Own::mark(reachable, index) };
            handle(found)
        };
        // SAFETY: the contract of `btl_add_procs`: room for `count` endpoints.
        unsafe { foreign::write_all(endpoints, procs.into_iter().enumerate().map(reach)) };
        T::reached(&cores, &host);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn del_procs<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    count: usize,
    _procs: *mut *mut BtlProc,
    endpoints: *mut *mut BtlEndpoint,
) -> c_int {
    // SAFETY: the contract of `btl_del_procs`: `count` endpoints.
    let endpoints = unsafe { foreign::copied(endpoints, count) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("del_procs", |shell| {
        let closing: Vec<_> =
            endpoints.into_iter().filter(|handle| !handle.is_null()).map(endpoint).collect();
        shell.peers.with(|peers| peers.delete(&closing));
        shell.core.close(&closing, shell);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn finalize<A: BtlAbi, T: Listed>(module: *mut BtlModule) -> c_int {
    guard(T::COMPONENT, "finalize", || {
        let cores: Vec<&T> = shells::<A, T>().map(|shell| &shell.core).collect();
        T::end(&cores, &Runtime::<A, T>::new());
        T::registry().retire(module);
        // SAFETY: called through the module's own table, for the last time; nobody finds it in the
        // registry any more.
        let shell = unsafe { Shell::<A, T>::from_raw(module) };
        shell.core.end_module();
        drop(shell);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn alloc<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    _order: u8,
    size: usize,
    flags: u32,
) -> *mut Descriptor {
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("alloc", |shell| {
        shell.pool.take(size.min(LONGEST), flags).map_or(ptr::null_mut(), FragRef::descriptor)
    })
}

pub(super) unsafe extern "C" fn free<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: the contract of `btl_free`: what was handed out comes back, once it has been sent or will
    // not be.
    let frag = unsafe { FragRef::around(descriptor) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("free", |shell| {
        shell.pool.give(frag);
        code::SUCCESS
    })
}

/// A convertor that the host has prepared for a send.
#[derive(Clone, Copy)]
struct Convertor(*mut BtlConvertor);

/// Flags of a convertor (`opal/datatype/opal_convertor.h`, `opal_datatype.h`).
mod convertor {
    pub(super) const CONTIGUOUS: u32 = 0x10;
    pub(super) const NO_GAPS: u32 = 0x20;
    pub(super) const HOMOGENEOUS: u32 = 0x0008_0000;
    pub(super) const DEVICE: u32 = 0x0040_0000;
}

impl Convertor {
    /// # Safety
    /// A live, prepared convertor, for as long as this is used.
    unsafe fn new(raw: *mut BtlConvertor) -> Self {
        Self(raw)
    }

    /// Whether the data must be packed (`opal_convertor_need_buffers`).
    fn needs_packing(self) -> bool {
        // SAFETY: live, by the promise of `new`; the host does not touch it during the call.
        let flags = unsafe { (*self.0).flags };
        // SAFETY: live, by the promise of `new`; the host does not touch it during the call.
        let count = unsafe { (*self.0).count };
        if flags & convertor::HOMOGENEOUS == 0 || flags & convertor::DEVICE != 0 {
            return true;
        }
        !(flags & convertor::NO_GAPS != 0 || count == 1 && flags & convertor::CONTIGUOUS != 0)
    }

    /// Packs up to `len` bytes to `start`, or, with a null `start`, finds where they lie. Returns where
    /// and how many.
    ///
    /// # Safety
    /// Null, or `len` writable bytes.
    unsafe fn pack(self, start: *mut u8, len: usize) -> Result<(*mut u8, usize)> {
        let mut vector = libc::iovec { iov_base: start.cast(), iov_len: len };
        let (mut count, mut max) = (1_u32, len);
        // SAFETY: a live, prepared convertor by the promise of `new`, and one vector of `len` bytes that
        // the caller may write.
        let code =
            unsafe { (Services::host().pack)(self.0.cast(), &raw mut vector, &raw mut count, &raw mut max) };
        if code < 0 { Err(Error::Host(code)) } else { Ok((vector.iov_base.cast(), max)) }
    }
}

pub(super) unsafe extern "C" fn prepare_src<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    _endpoint: *mut BtlEndpoint,
    conv: *mut BtlConvertor,
    _order: u8,
    reserve: usize,
    size: *mut usize,
    flags: u32,
) -> *mut Descriptor {
    // SAFETY: the contract of `btl_prepare_src`: a prepared convertor.
    let conv = unsafe { Convertor::new(conv) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("prepare_src", |shell| {
        // SAFETY: the contract of `btl_prepare_src`: the variable that says how much is wanted.
        let wanted = unsafe { size.read() };
        let prepared = prepare(shell, conv, reserve, wanted, flags);
        let Some((frag, len)) = prepared else { return ptr::null_mut() };
        // SAFETY: the same variable, which takes how much it is.
        unsafe { size.write(len) };
        frag.descriptor()
    })
}

/// A fragment of `reserve` bytes for the host's header and up to `wanted` of a convertor's, and how many
/// these are.
fn prepare<A: BtlAbi, T: Listed>(
    shell: &Shell<A, T>,
    conv: Convertor,
    reserve: usize,
    wanted: usize,
    flags: u32,
) -> Option<(FragRef, usize)> {
    let in_place = wanted > shell.copy_limit && !conv.needs_packing();
    let room = if in_place { reserve } else { reserve.checked_add(wanted)?.min(LONGEST) };
    if reserve > room {
        return None;
    }
    let frag = shell.pool.take(room, flags)?;
    let block = frag.block();
    let (target, room) =
        if in_place { (ptr::null_mut(), wanted) } else { (block.wrapping_add(reserve), room - reserve) };
    let packed = if wanted == 0 {
        Ok((target, 0))
    } else {
        // SAFETY: null, or the rest of the block, which is `room` bytes.
        unsafe { conv.pack(target, room) }
    };
    let Ok((start, len)) = packed else {
        shell.pool.give(frag);
        return None;
    };
    if in_place {
        let header = Segment { start: block, len: reserve as u64 };
        frag.set_segments(&[header, Segment { start, len: len as u64 }]);
    } else {
        frag.set_segments(&[Segment { start: block, len: (reserve + len) as u64 }]);
    }
    Some((frag, len))
}

/// The memory of a segment of a descriptor.
///
/// # Safety
/// The memory stays as it is until the transport ends the operation.
#[inline]
unsafe fn lent(segment: Segment) -> Option<Lent> {
    // SAFETY: the caller leaves the segment's memory as it is until the transport ends the operation.
    (segment.len != 0).then(|| unsafe { Lent::new(segment.start, segment.len as usize) })
}

pub(super) unsafe extern "C" fn send<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    descriptor: *mut Descriptor,
    tag: u8,
) -> c_int {
    // SAFETY: the contract of `btl_send`: a descriptor that this module handed out.
    let frag = unsafe { FragRef::around(descriptor) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("send", |shell| {
        let (flags, segments) = frag.wishes();
        let owned = flags & flag::OWNERSHIP != 0;
        let at_once = owned && segments[1].len == 0 && flags & flag::ALWAYS_CALLBACK == 0;
        let ending = match (owned, at_once) {
            (_, true) => Ending::Silent,
            (true, false) => Ending::CallbackAndFree,
            (false, _) => Ending::Callback,
        };
        frag.note(target, ending);
        let fragment = Fragment {
            tag,
            // SAFETY: the block is the fragment's, and the host leaves its own memory alone, until
            // the transport has ended the send.
            pieces: segments.map(|segment| unsafe { lent(segment) }),
            cookie: frag.cookie(),
            priority: flags & flag::PRIORITY != 0,
            awaited: !at_once,
        };
        match shell.core.send(endpoint(target), fragment) {
            Ok(()) => c_int::from(at_once),
            Err(error) => status(Err(error)),
        }
    })
}

pub(super) unsafe extern "C" fn sendi<A: BtlAbi, T: Listed>(
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
    // SAFETY: the contract of `btl_sendi`: a prepared convertor, if there is a payload.
    let conv = unsafe { Convertor::new(conv) };
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("sendi", |shell| {
        let whole = header_size.checked_add(payload_size);
        let Some(frag) = whole.and_then(|whole| shell.pool.take(whole, flags)) else {
            // SAFETY: the contract of `btl_sendi`: null, or a variable for a descriptor.
            unsafe { foreign::write(left, ptr::null_mut()) };
            return code::OUT_OF_RESOURCE;
        };
        let block = frag.block();
        // SAFETY: `header_size` bytes of the host's, and the beginning of our block.
        unsafe { block.copy_from_nonoverlapping(header.cast(), header_size) };
        let mut outcome = Ok(());
        if payload_size != 0 {
            // SAFETY: the block has room for both.
            let packed = unsafe { conv.pack(block.wrapping_add(header_size), payload_size) };
            // What the convertor did not fill would be another message's bytes.
            outcome = match packed {
                Ok((_, len)) if len == payload_size => Ok(()),
                Ok(_) => Err(Error::OutOfResource),
                Err(error) => Err(error),
            };
        }
        frag.note(target, Ending::Silent);
        if outcome.is_ok() {
            let (_, segments) = frag.wishes();
            // SAFETY: the block is the fragment's until the transport has ended the send.
            let pieces = segments.map(|segment| unsafe { lent(segment) });
            let cookie = frag.cookie();
            let fragment = Fragment { tag, pieces, cookie, priority: true, awaited: false };
            outcome = shell.core.send(endpoint(target), fragment);
        }
        if outcome.is_err() {
            if left.is_null() {
                shell.pool.give(frag);
            } else {
                // SAFETY: not null, hence the host's variable for a descriptor.
                unsafe { left.write(frag.descriptor()) };
            }
        }
        status(outcome)
    })
}

pub(super) unsafe extern "C" fn dump<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    _verbose: c_int,
) {
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("dump", |shell| {
        let endpoint = (!target.is_null()).then(|| endpoint(target));
        let host = Runtime::<A, T>::new();
        shell.core.describe(endpoint).iter().for_each(|line| host.say(line));
    });
}

pub(super) unsafe extern "C" fn register_error<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    callback: Failed,
) -> c_int {
    // SAFETY: called through the module's own table.
    let own = unsafe { Entry::<A, T>::of(module) };
    own.run("register_error", |shell| {
        let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void);
        shell.failed.store(callback, Ordering::Release);
        code::SUCCESS
    })
}
