//! The functions in the tables, once for every transport: what C passes is made into values, and safe code is called.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

use super::abi::{Envelope, Matched, Message, Mtl, MtlComponent, MtlLimits, MtlModule, Request};
use super::component::{Inside, Listed};
use super::module::{Module, Posted, Target};
use crate::capi::abi::{Endpoint, HAWSER_ABI, Host, Peer};
use crate::capi::argument::{Out, array, bytes, check_room, name as name_of, sized};
use crate::capi::code::{HAWSER_SUCCESS, Outcome};
use crate::capi::guard::{fused, guard, listen, stop};
use crate::capi::host::{Caller, Context};
use crate::error::panic::run;

/// The tables of a transport.
pub(super) struct Tables<T>(PhantomData<T>);

impl<T: Listed> Tables<T> {
    const MODULE: MtlModule = MtlModule {
        size: size_of::<MtlModule>(),
        abi: HAWSER_ABI,
        reserved: 0,
        limits: limits::<T>,
        add_peers: add_peers::<T>,
        del_peers: del_peers::<T>,
        peer_name: peer_name::<T>,
        send: send::<T>,
        isend: isend::<T>,
        irecv: irecv::<T>,
        iprobe: iprobe::<T>,
        improbe: improbe::<T>,
        imrecv: imrecv::<T>,
        cancel: cancel::<T>,
        counter: counter::<T>,
        finalize: finalize::<T>,
    };

    pub(super) const COMPONENT: MtlComponent = MtlComponent {
        size: size_of::<MtlComponent>(),
        abi: HAWSER_ABI,
        reserved: 0,
        name: T::NAME.as_ptr(),
        module: &Self::MODULE,
        open: open::<T>,
        register_parameters: register_parameters::<T>,
        init: init::<T>,
        progress: progress::<T>,
        close: close::<T>,
    };
}

/// Runs the body of a function of a module.
#[inline]
fn within<T: Listed>(module: Mtl, entry: &str, body: impl FnOnce(&Inside<T>) -> Outcome) -> i32 {
    stop(T::TITLE, entry, || {
        let inside = T::component().enter(module)?;
        fused(T::component().desk(), || run(T::TITLE, entry, || body(&inside)))
    })
}

/// Runs the body of one that may make progress, and so call back.
#[inline]
fn within_shallow<T: Listed>(module: Mtl, entry: &str, body: impl FnOnce(&Inside<T>) -> Outcome) -> i32 {
    within::<T>(module, entry, |module| {
        module.may_call_back()?;
        body(module)
    })
}

unsafe extern "C" fn open<T: Listed>(host: *const Host) -> i32 {
    listen();
    guard(T::TITLE, "open", || {
        // SAFETY: the contract of `open`: NULL, or the caller's table.
        let caller = unsafe { Caller::copy(host) }?;
        T::component().open(caller)
    })
}

unsafe extern "C" fn register_parameters<T: Listed>() -> i32 {
    stop(T::TITLE, "register_parameters", || T::component().register())
}

unsafe extern "C" fn init<T: Listed>(module: *mut Mtl) -> i32 {
    stop(T::TITLE, "init", || {
        // SAFETY: the contract of `init`: NULL, or a variable of the caller's.
        let module = unsafe { Out::new(module) }?;
        module.write(T::component().init()?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn progress<T: Listed>() -> i32 {
    stop(T::TITLE, "progress", || T::component().progress())
}

unsafe extern "C" fn close<T: Listed>() -> i32 {
    guard(T::TITLE, "close", || T::component().close())
}

unsafe extern "C" fn limits<T: Listed>(module: Mtl, limits: *mut MtlLimits) -> i32 {
    within::<T>(module, "limits", |module| {
        // SAFETY: the contract of `limits`: NULL, or room for as much as the caller's size says.
        let size = unsafe { sized(limits) }?;
        // SAFETY: the same; it is long enough.
        let limits = unsafe { Out::new(limits) }?;
        let found = module.limits();
        limits.write(MtlLimits {
            size,
            max_context: found.max_context,
            max_tag: found.max_tag,
            max_rank: found.max_source,
            reserved: 0,
        });
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn add_peers<T: Listed>(
    module: Mtl,
    count: usize,
    peers: *const Peer,
    endpoints: *mut Endpoint,
) -> i32 {
    within::<T>(module, "add_peers", |module| {
        // SAFETY: the contract of `add_peers`: so many peers.
        let peers = unsafe { array(peers, count) }?;
        check_room(endpoints, count)?;
        let names: Vec<u64> = peers.iter().map(|peer| peer.name).collect();
        for (index, endpoint) in module.add(&names)?.into_iter().enumerate() {
            let room = endpoints.wrapping_add(index);
            // SAFETY: the contract of `add_peers`: inside the caller's room, which is aligned and nobody else's.
            unsafe { room.write(endpoint) };
        }
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn del_peers<T: Listed>(module: Mtl, count: usize, endpoints: *const Endpoint) -> i32 {
    within::<T>(module, "del_peers", |module| {
        // SAFETY: the contract of `del_peers`: so many endpoints.
        let endpoints = unsafe { array(endpoints, count) }?;
        module.delete(endpoints)
    })
}

unsafe extern "C" fn peer_name<T: Listed>(module: Mtl, endpoint: Endpoint, name: *mut u64) -> i32 {
    within::<T>(module, "peer_name", |_| {
        // SAFETY: the contract of `peer_name`: NULL, or a variable of the caller's.
        let name = unsafe { Out::new(name) }?;
        name.write(T::component().desk().name_at(endpoint)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn send<T: Listed>(
    module: Mtl,
    to: Endpoint,
    context_id: u32,
    tag: i32,
    data: *const c_void,
    length: usize,
    flags: u32,
) -> i32 {
    within_shallow::<T>(module, "send", |module| {
        // SAFETY: the contract of `send`: the caller's bytes for the time of the call; nothing is written there.
        let bytes = unsafe { bytes(data, length) }?;
        module.send(Target { peer: to, context: context_id, tag }, bytes, flags)
    })
}

unsafe extern "C" fn isend<T: Listed>(
    module: Mtl,
    to: Endpoint,
    context_id: u32,
    tag: i32,
    data: *const c_void,
    length: usize,
    flags: u32,
    callback: Matched,
    context: *mut c_void,
    request: *mut Request,
) -> i32 {
    within_shallow::<T>(module, "isend", |module| {
        // SAFETY: the contract of `isend`: the caller's bytes until it has ended; nothing is written there.
        let bytes = unsafe { bytes(data, length) }?;
        // SAFETY: the contract of `isend`: NULL, or a variable of the caller's.
        let request = unsafe { Out::new(request) }?;
        let posted = Posted { bytes, callback, context: Context(context) };
        let (code, begun) = module.isend(Target { peer: to, context: context_id, tag }, posted, flags)?;
        request.write(begun);
        Ok(code)
    })
}

unsafe extern "C" fn irecv<T: Listed>(
    module: Mtl,
    from: Endpoint,
    context_id: u32,
    tag: i32,
    data: *mut c_void,
    length: usize,
    callback: Matched,
    context: *mut c_void,
    request: *mut Request,
) -> i32 {
    within::<T>(module, "irecv", |module| {
        // SAFETY: the contract of `irecv`: room of the caller's until it has ended.
        let bytes = unsafe { bytes(data, length) }?;
        // SAFETY: the contract of `irecv`: NULL, or a variable of the caller's.
        let request = unsafe { Out::new(request) }?;
        let posted = Posted { bytes, callback, context: Context(context) };
        request.write(module.irecv(Target { peer: from, context: context_id, tag }, posted)?);
        Ok(HAWSER_SUCCESS)
    })
}

/// The envelope that a probe is to fill in.
///
/// # Safety
/// NULL, or an envelope of the caller's that says its size.
unsafe fn blank<'a>(envelope: *mut Envelope) -> Outcome<(usize, Out<'a, Envelope>)> {
    // SAFETY: the contract of this function.
    let size = unsafe { sized(envelope) }?;
    // SAFETY: the same; it is long enough.
    Ok((size, unsafe { Out::new(envelope) }?))
}

unsafe extern "C" fn iprobe<T: Listed>(
    module: Mtl,
    from: Endpoint,
    context_id: u32,
    tag: i32,
    envelope: *mut Envelope,
) -> i32 {
    within_shallow::<T>(module, "iprobe", |module| {
        // SAFETY: the contract of `iprobe`: NULL, or an envelope of the caller's.
        let (size, envelope) = unsafe { blank(envelope) }?;
        let seen = module.iprobe(Target { peer: from, context: context_id, tag })?;
        envelope.write(T::component().desk().envelope(size, seen));
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn improbe<T: Listed>(
    module: Mtl,
    from: Endpoint,
    context_id: u32,
    tag: i32,
    envelope: *mut Envelope,
    message: *mut Message,
) -> i32 {
    within_shallow::<T>(module, "improbe", |module| {
        // SAFETY: the contract of `improbe`: NULL, or an envelope of the caller's.
        let (size, envelope) = unsafe { blank(envelope) }?;
        // SAFETY: the contract of `improbe`: NULL, or a variable of the caller's.
        let message = unsafe { Out::new(message) }?;
        let (seen, claimed) = module.improbe(Target { peer: from, context: context_id, tag })?;
        envelope.write(T::component().desk().envelope(size, seen));
        message.write(claimed);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn imrecv<T: Listed>(
    module: Mtl,
    message: Message,
    data: *mut c_void,
    length: usize,
    callback: Matched,
    context: *mut c_void,
    request: *mut Request,
) -> i32 {
    within::<T>(module, "imrecv", |module| {
        // SAFETY: the contract of `imrecv`: room of the caller's until it has ended.
        let bytes = unsafe { bytes(data, length) }?;
        // SAFETY: the contract of `imrecv`: NULL, or a variable of the caller's.
        let request = unsafe { Out::new(request) }?;
        let posted = Posted { bytes, callback, context: Context(context) };
        request.write(module.imrecv(message, posted)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn cancel<T: Listed>(module: Mtl, request: Request) -> i32 {
    within::<T>(module, "cancel", |module| module.cancel(request))
}

unsafe extern "C" fn counter<T: Listed>(module: Mtl, name: *const c_char, value: *mut u64) -> i32 {
    within::<T>(module, "counter", |_| {
        // SAFETY: the contract of `counter`: NULL, or a variable of the caller's.
        let value = unsafe { Out::new(value) }?;
        // SAFETY: the contract of `counter`: NULL, or a text.
        let name = unsafe { name_of(name) }?;
        value.write(Module::<T>::counter(&name)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn finalize<T: Listed>(module: Mtl) -> i32 {
    stop(T::TITLE, "finalize", || T::component().finalize(module))
}
