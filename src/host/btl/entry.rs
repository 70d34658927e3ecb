//! The functions in a byte transport's table, written once for every version and transport. Each says
//! which contract its arguments keep, and then calls safe code.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use super::argument::{HandedOut, Header, Prepared, Procs, Reachable};
use super::component::shells;
use super::convertor::Convertor;
use super::descriptor::{Ending, FragRef, LONGEST};
use super::module::{Shell, code, endpoint, handle, status};
use super::services::Runtime;
use super::sys::{BtlConvertor, BtlEndpoint, BtlModule, BtlProc, Descriptor, Failed, Segment};
use super::{BtlAbi, Listed};
use crate::btl::{Fragment, Host, Lent, Sending};
use crate::error::Error;
use crate::host::entry::{self, Array, InOut, OutOrNull, Room};
use crate::host::guard::guard;

/// The module of an entry with its arguments.
pub(super) type Entry<A, T, V> = entry::Entry<Shell<A, T>, V>;

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
    let arguments = (Procs(Array(procs, count)), Room(endpoints, count), Reachable(reachable, count));
    // SAFETY: the contract of `btl_add_procs`: through the module's own table, with `count` processes that the
    // host keeps until `del_procs`, room for an endpoint of each, and, if at all, a bitmap with a bit for each.
    let entry = unsafe { Entry::<A, T, _>::of(module, arguments) };
    entry.run("add_procs", |shell, (procs, endpoints, mut reachable)| {
        let host = Runtime::<A, T>::new();
        let all: Vec<&Shell<A, T>> = shells::<A, T>().collect();
        let cores: Vec<&T> = all.iter().map(|shell| &shell.core).collect();
        let own = all.iter().position(|other| ptr::eq(*other, shell));
        for (index, (peer, endpoint)) in procs.into_iter().zip(endpoints).enumerate() {
            let found = own.and_then(|own| T::reach(&cores, own, &peer, &host));
            if let Some(found) = found {
                shell.peers.with(|peers| peers.add(found, peer));
                reachable.set(index);
            }
            endpoint.write(found.map_or(ptr::null_mut(), handle));
        }
        T::reached(&cores, &host);
        // HOST: the BML copies the flags for each peer behind this call (`mca_bml_r2_add_procs`, 4.1 and 5.0).
        shell.refresh_flags();
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn del_procs<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    count: usize,
    _procs: *mut *mut BtlProc,
    endpoints: *mut *mut BtlEndpoint,
) -> c_int {
    // SAFETY: the contract of `btl_del_procs`: through the module's own table, with `count` endpoints.
    let entry = unsafe { Entry::<A, T, _>::of(module, (Array(endpoints, count),)) };
    entry.run("del_procs", |shell, (endpoints,)| {
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
        shell.core.end_module(&Runtime::<A, T>::new());
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
    // SAFETY: the contract of `btl_alloc`: through the module's own table.
    let entry = unsafe { Entry::<A, T, _>::of(module, ()) };
    entry.run("alloc", |shell, ()| {
        shell.pool.take(size.min(LONGEST), flags).map_or(ptr::null_mut(), FragRef::descriptor)
    })
}

pub(super) unsafe extern "C" fn free<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: the contract of `btl_free`: through the module's own table; what it has handed out comes back,
    // once it has been sent or will not be.
    let entry = unsafe { Entry::<A, T, _>::of(module, (HandedOut(descriptor),)) };
    entry.run("free", |shell, (frag,)| {
        shell.pool.give(frag);
        code::SUCCESS
    })
}

pub(super) unsafe extern "C" fn prepare_src<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    conv: *mut BtlConvertor,
    _order: u8,
    reserve: usize,
    size: *mut usize,
    flags: u32,
) -> *mut Descriptor {
    // SAFETY: the contract of `btl_prepare_src`: through the module's own table, with a prepared convertor and
    // the variable that says how much is wanted and takes how much it is.
    let entry = unsafe { Entry::<A, T, _>::of(module, (Prepared(conv), InOut(size))) };
    entry.run("prepare_src", |shell, (conv, size)| {
        let (Some(conv), Some(size)) = (conv, size) else { return ptr::null_mut() };
        if T::HAS_DEVICES && *size != 0 {
            if let Some(address) = conv.on_device() {
                shell.core.sends_from_device(endpoint(target), address, shell);
            } else if !A::DEVICE && shell.refuses(endpoint(target), conv.start()) {
                return ptr::null_mut();
            }
        }
        let prepared = prepare(shell, conv, reserve, *size, flags);
        prepared.map_or(ptr::null_mut(), |(frag, len)| {
            *size = len;
            frag.descriptor()
        })
    })
}

/// A fragment of `reserve` bytes for the host's header and up to `wanted` of a convertor's, and how many
/// these are.
fn prepare<A: BtlAbi, T: Listed>(
    shell: &Shell<A, T>,
    conv: Convertor<'_>,
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

pub(super) unsafe extern "C" fn send<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    target: *mut BtlEndpoint,
    descriptor: *mut Descriptor,
    tag: u8,
) -> c_int {
    // SAFETY: the contract of `btl_send`: through the module's own table, with a descriptor that it has handed
    // out, and whose memory the host leaves alone until the send has ended.
    let entry = unsafe { Entry::<A, T, _>::of(module, (HandedOut(descriptor),)) };
    entry.run("send", |shell, (frag,)| {
        let flags = frag.flags();
        let pieces = frag.pieces();
        let owned = flags & flag::OWNERSHIP != 0;
        let at_once = owned && pieces[1].is_none() && flags & flag::ALWAYS_CALLBACK == 0;
        // What is over at once is told of by what this returns.
        let is_silent = at_once && !T::QUEUES_FOR_CALLS && !shell.pool.is_full();
        let ending = match (owned, is_silent) {
            (_, true) => Ending::Silent,
            (true, false) => Ending::CallbackAndFree,
            (false, _) => Ending::Callback,
        };
        frag.note(target, ending);
        let fragment = Fragment {
            tag,
            pieces,
            cookie: frag.cookie(),
            priority: flags & flag::PRIORITY != 0,
            awaited: !(is_silent || at_once && T::QUEUES_FOR_CALLS),
        };
        match shell.core.send(endpoint(target), fragment) {
            Ok(sending) => {
                let is_over = sending == Sending::Over;
                if is_over {
                    shell.over(frag);
                }
                c_int::from(is_silent || is_over)
            }
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
    let arguments = (Prepared(conv), Header(header, header_size), OutOrNull(left));
    // SAFETY: the contract of `btl_sendi`: through the module's own table, with a convertor that is prepared if
    // there is a payload, the header's bytes, and null or a variable for a descriptor.
    let entry = unsafe { Entry::<A, T, _>::of(module, arguments) };
    entry.run("sendi", |shell, (conv, header, left)| {
        if T::HAS_DEVICES
            && !A::DEVICE
            && payload_size != 0
            && conv.is_some_and(|conv| shell.refuses(endpoint(target), conv.start()))
        {
            return code::ERROR;
        }
        // Contiguous data is sent from where it lies.
        let found = match (T::HAS_SEND_NOW, payload_size) {
            (false, _) => None,
            (true, 0) => Some(Lent::EMPTY),
            (true, _) => conv.and_then(|conv| conv.contiguous(payload_size)),
        };
        if let Some(data) = found
            && shell.core.send_now(endpoint(target), tag, [header, data])
        {
            return code::SUCCESS;
        }
        if T::HAS_DEVICES
            && found.is_none()
            && let Some(address) = conv.and_then(Convertor::on_device)
        {
            shell.core.sends_from_device(endpoint(target), address, shell);
        }
        let whole = header.len().checked_add(payload_size);
        let Some(frag) = whole.and_then(|whole| shell.pool.take(whole, flags)) else {
            if let Some(left) = left {
                left.write(ptr::null_mut());
            }
            return code::OUT_OF_RESOURCE;
        };
        if T::QUEUES_FOR_CALLS || shell.pool.is_full() {
            // HOST: success says that the message has left (`mca_pml_ob1_send_inline`, 4.1 and 5.0). The host sends what has not,
            // or what has to wait, by a descriptor, of which it can be told.
            match left {
                Some(left) => {
                    left.write(frag.descriptor());
                }
                None => shell.pool.give(frag),
            }
            return code::OUT_OF_RESOURCE;
        }
        let block = frag.block();
        // SAFETY: bytes of the host's, and the beginning of our block, which is as long at least.
        unsafe { block.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        let mut outcome = Ok(());
        if payload_size != 0 {
            let payload = block.wrapping_add(header.len());
            let packed = match found {
                Some(data) => {
                    // SAFETY: the host's data, and room in the block for both.
                    unsafe { payload.copy_from_nonoverlapping(data.as_ptr(), payload_size) };
                    Some(Ok((payload, payload_size)))
                }
                // SAFETY: the block has room for both.
                None => conv.map(|conv| unsafe { conv.pack(payload, payload_size) }),
            };
            // What the convertor did not fill would be another message's bytes.
            outcome = match packed {
                Some(Ok((_, len))) if len == payload_size => Ok(()),
                Some(Ok(_)) | None => Err(Error::OutOfResource),
                Some(Err(error)) => Err(error),
            };
        }
        frag.note(target, Ending::Silent);
        if outcome.is_ok() {
            let (pieces, cookie) = (frag.pieces(), frag.cookie());
            let fragment = Fragment { tag, pieces, cookie, priority: true, awaited: false };
            outcome = shell.core.send(endpoint(target), fragment).map(|sending| {
                if sending == Sending::Over {
                    shell.over(frag);
                }
            });
        }
        if outcome.is_err() {
            match left {
                Some(left) => {
                    left.write(frag.descriptor());
                }
                None => shell.pool.give(frag),
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
    // SAFETY: the contract of `btl_dump`: through the module's own table.
    let entry = unsafe { Entry::<A, T, _>::of(module, ()) };
    entry.run("dump", |shell, ()| {
        let endpoint = (!target.is_null()).then(|| endpoint(target));
        let host = Runtime::<A, T>::new();
        shell.core.describe(endpoint).iter().for_each(|line| host.say(line));
    });
}

pub(super) unsafe extern "C" fn register_error<A: BtlAbi, T: Listed>(
    module: *mut BtlModule,
    callback: Failed,
) -> c_int {
    // SAFETY: the contract of `btl_register_error`: through the module's own table.
    let entry = unsafe { Entry::<A, T, _>::of(module, ()) };
    entry.run("register_error", |shell, ()| {
        let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void);
        shell.failed.store(callback, Ordering::Release);
        code::SUCCESS
    })
}
