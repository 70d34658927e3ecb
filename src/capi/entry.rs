//! The functions in the tables, once for every transport: what C passes is made into values, and safe code is called.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

use super::abi::{
    self, Btl, BtlComponent, BtlLimits, BtlModule, Completed, Endpoint, Fragment, HAWSER_ABI, Lost, Memory,
    Peer, Received, Remote,
};
use super::argument::{Out, array, bytes, check_room, name as name_of, sized};
use super::code::{HAWSER_ERR_BUSY, HAWSER_ERR_STATE, HAWSER_SUCCESS, Outcome};
use super::component::{Inside, Listed};
use super::fragment::Completion;
use super::guard::{fused, guard, listen, stop};
use super::host::{Caller, Context, Named, value};
use crate::btl::{Access, Host, Lent, Peer as _};
use crate::error::panic::run;

/// The tables of a transport.
pub(super) struct Tables<T>(PhantomData<T>);

impl<T: Listed> Tables<T> {
    const MODULE: BtlModule = BtlModule {
        size: size_of::<BtlModule>(),
        abi: HAWSER_ABI,
        reserved: 0,
        limits: limits::<T>,
        add_peers: add_peers::<T>,
        del_peers: del_peers::<T>,
        peer_name: peer_name::<T>,
        register_receive: register_receive::<T>,
        register_error: register_error::<T>,
        alloc: alloc::<T>,
        prepare_src: prepare_src::<T>,
        free: free::<T>,
        send: send::<T>,
        sendi: sendi::<T>,
        put: put::<T>,
        get: get::<T>,
        register_memory: register_memory::<T>,
        register_device: register_device::<T>,
        memory_key: memory_key::<T>,
        deregister_memory: deregister_memory::<T>,
        flush: flush::<T>,
        dump: dump::<T>,
        counter: counter::<T>,
        finalize: finalize::<T>,
    };

    pub(super) const COMPONENT: BtlComponent = BtlComponent {
        size: size_of::<BtlComponent>(),
        abi: HAWSER_ABI,
        reserved: 0,
        name: T::NAME.as_ptr(),
        module: &Self::MODULE,
        open: open::<T>,
        register_parameters: register_parameters::<T>,
        init: init::<T>,
        module_at: module_at::<T>,
        progress: progress::<T>,
        close: close::<T>,
    };
}

/// Runs the body of a function of a module.
#[inline]
fn within<T: Listed>(module: Btl, entry: &str, body: impl FnOnce(&Inside<T>) -> Outcome) -> i32 {
    stop(T::TITLE, entry, || {
        let inside = T::component().enter(module)?;
        fused(&*inside, || run(T::TITLE, entry, || body(&inside)))
    })
}

unsafe extern "C" fn open<T: Listed>(host: *const abi::Host) -> i32 {
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

unsafe extern "C" fn init<T: Listed>(count: *mut usize) -> i32 {
    stop(T::TITLE, "init", || {
        // SAFETY: the contract of `init`: NULL, or a variable of the caller's.
        let count = unsafe { Out::new(count) }?;
        count.write(T::component().init()?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn module_at<T: Listed>(index: usize, module: *mut Btl) -> i32 {
    guard(T::TITLE, "module_at", || {
        // SAFETY: the contract of `module_at`: NULL, or a variable of the caller's.
        let module = unsafe { Out::new(module) }?;
        module.write(T::component().module_at(index)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn progress<T: Listed>() -> i32 {
    stop(T::TITLE, "progress", || T::component().progress())
}

unsafe extern "C" fn close<T: Listed>() -> i32 {
    guard(T::TITLE, "close", || T::component().close())
}

unsafe extern "C" fn limits<T: Listed>(module: Btl, limits: *mut BtlLimits) -> i32 {
    within::<T>(module, "limits", |module| {
        // SAFETY: the contract of `limits`: NULL, or room for as much as the caller's size says.
        let size = unsafe { sized(limits) }?;
        // SAFETY: the same; it is long enough.
        let limits = unsafe { Out::new(limits) }?;
        let (found, flags) = module.limits();
        let mut device: [c_char; 64] = [0; 64];
        // The last one stays zero.
        for (to, from) in device[..63].iter_mut().zip(module.core.device().bytes()) {
            *to = from as c_char;
        }
        limits.write(BtlLimits {
            size,
            eager: found.eager,
            rndv_eager: found.rndv_eager,
            max_send: found.max_send,
            flags,
            exclusivity: found.exclusivity,
            latency: found.latency,
            bandwidth: found.bandwidth,
            device,
        });
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn add_peers<T: Listed>(
    module: Btl,
    count: usize,
    peers: *const Peer,
    endpoints: *mut Endpoint,
) -> i32 {
    within::<T>(module, "add_peers", |module| {
        // SAFETY: the contract of `add_peers`: so many peers.
        let peers = unsafe { array(peers, count) }?;
        check_room(endpoints, count)?;
        let is_closing = |peer: &Peer| module.peers.with(|peers| peers.is_closing(peer.name));
        if peers.iter().any(is_closing) {
            return Err(HAWSER_ERR_BUSY);
        }
        let all = T::component().all();
        let cores: Vec<&T> = all.iter().map(|inside| &inside.core).collect();
        let own = all.iter().position(|other| other.handle() == module.handle());
        let view = module.view();
        for (index, peer) in peers.iter().enumerate() {
            // SAFETY: the contract of `add_peers`: the node is NULL or a text.
            let peer = unsafe { Named::new(*peer) };
            // It would be a peer of its own for the sake of atomic operations, which are not here.
            let is_itself = T::HAS_ATOMICS && peer.name() == view.name();
            let own = own.filter(|_| !is_itself);
            let found = own.and_then(|own| T::reach(&cores, own, &peer, &view));
            let endpoint = found.and_then(|id| module.peers.with(|peers| peers.add(id)));
            let room = endpoints.wrapping_add(index);
            // SAFETY: the contract of `add_peers`: inside the caller's room, which is aligned and nobody else's.
            unsafe { room.write(endpoint.unwrap_or(Endpoint { id: 0 })) };
        }
        if !view.is_here() {
            return Err(HAWSER_ERR_STATE);
        }
        T::reached(&cores, &view);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn del_peers<T: Listed>(module: Btl, count: usize, endpoints: *const Endpoint) -> i32 {
    within::<T>(module, "del_peers", |module| {
        // SAFETY: the contract of `del_peers`: so many endpoints. Callbacks may use the array: it is copied.
        let endpoints = unsafe { array(endpoints, count) }?.to_vec();
        module.delete(&endpoints)
    })
}

unsafe extern "C" fn peer_name<T: Listed>(module: Btl, endpoint: Endpoint, name: *mut u64) -> i32 {
    within::<T>(module, "peer_name", |module| {
        // SAFETY: the contract of `peer_name`: NULL, or a variable of the caller's.
        let name = unsafe { Out::new(name) }?;
        name.write(module.name(endpoint)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn register_receive<T: Listed>(
    module: Btl,
    tag: u8,
    callback: Received,
    context: *mut c_void,
) -> i32 {
    within::<T>(module, "register_receive", |module| module.receive(tag, callback, Context(context)))
}

unsafe extern "C" fn register_error<T: Listed>(module: Btl, callback: Lost, context: *mut c_void) -> i32 {
    within::<T>(module, "register_error", |module| module.mourn(callback, Context(context)))
}

unsafe extern "C" fn alloc<T: Listed>(
    module: Btl,
    length: usize,
    fragment: *mut Fragment,
    memory: *mut *mut c_void,
) -> i32 {
    within::<T>(module, "alloc", |module| {
        // SAFETY: the contract of `alloc`: NULL, or a variable of the caller's.
        let fragment = unsafe { Out::new(fragment) }?;
        // SAFETY: the same.
        let memory = unsafe { Out::new(memory) }?;
        let (made, start) = module.prepare(length, Lent::EMPTY)?;
        fragment.write(made);
        memory.write(start.cast());
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn prepare_src<T: Listed>(
    module: Btl,
    header: usize,
    data: *const c_void,
    length: usize,
    fragment: *mut Fragment,
    memory: *mut *mut c_void,
) -> i32 {
    within::<T>(module, "prepare_src", |module| {
        // SAFETY: the contract of `prepare_src`: the caller's data until the send has ended; nothing is written there.
        let data = unsafe { bytes(data, length) }?;
        // SAFETY: the contract of `prepare_src`: NULL, or a variable of the caller's.
        let fragment = unsafe { Out::new(fragment) }?;
        // SAFETY: the same.
        let memory = unsafe { Out::new(memory) }?;
        let (made, start) = module.prepare(header, data)?;
        fragment.write(made);
        memory.write(start.cast());
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn free<T: Listed>(module: Btl, fragment: Fragment) -> i32 {
    within::<T>(module, "free", |module| module.free(fragment))
}

unsafe extern "C" fn send<T: Listed>(
    module: Btl,
    endpoint: Endpoint,
    fragment: Fragment,
    tag: u8,
    flags: u32,
    callback: Completed,
    context: *mut c_void,
) -> i32 {
    within::<T>(module, "send", |module| {
        let completion = Completion { endpoint, callback, context: Context(context) };
        module.send(fragment, tag, flags, completion)
    })
}

unsafe extern "C" fn sendi<T: Listed>(
    module: Btl,
    endpoint: Endpoint,
    tag: u8,
    header: *const c_void,
    header_length: usize,
    data: *const c_void,
    length: usize,
) -> i32 {
    within::<T>(module, "sendi", |module| {
        // SAFETY: the contract of `sendi`: bytes of the caller's for the time of the call; nothing is written there.
        let header = unsafe { bytes(header, header_length) }?;
        // SAFETY: the same.
        let data = unsafe { bytes(data, length) }?;
        module.send_now(endpoint, tag, [header, data])
    })
}

unsafe extern "C" fn put<T: Listed>(
    module: Btl,
    endpoint: Endpoint,
    local: *const c_void,
    length: usize,
    remote: *const Remote,
    offset: u64,
    callback: Completed,
    context: *mut c_void,
) -> i32 {
    within::<T>(module, "put", |module| {
        // SAFETY: the contract of `put`: the caller's bytes until it has ended; nothing is written there.
        let local = unsafe { bytes(local, length) }?;
        // SAFETY: the contract of `put`: NULL, or a name, for the time of the call.
        let remote = unsafe { value(remote) }?;
        let completion = Completion { endpoint, callback, context: Context(context) };
        module.transfer(Access::WRITE, local, remote, offset, completion)
    })
}

unsafe extern "C" fn get<T: Listed>(
    module: Btl,
    endpoint: Endpoint,
    local: *mut c_void,
    length: usize,
    remote: *const Remote,
    offset: u64,
    callback: Completed,
    context: *mut c_void,
) -> i32 {
    within::<T>(module, "get", |module| {
        // SAFETY: the contract of `get`: room of the caller's until it has ended.
        let local = unsafe { bytes(local, length) }?;
        // SAFETY: the contract of `get`: NULL, or a name, for the time of the call.
        let remote = unsafe { value(remote) }?;
        let completion = Completion { endpoint, callback, context: Context(context) };
        module.transfer(Access::READ, local, remote, offset, completion)
    })
}

unsafe extern "C" fn register_memory<T: Listed>(
    module: Btl,
    address: *mut c_void,
    length: usize,
    access: u32,
    memory: *mut Memory,
) -> i32 {
    within::<T>(module, "register_memory", |module| {
        // SAFETY: the contract of `register_memory`: the caller's memory until it is deregistered.
        let bytes = unsafe { bytes(address, length) }?;
        // SAFETY: the contract of `register_memory`: NULL, or a variable of the caller's.
        let memory = unsafe { Out::new(memory) }?;
        memory.write(module.register(bytes, access)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn register_device<T: Listed>(
    module: Btl,
    endpoint: Endpoint,
    address: *mut c_void,
    length: usize,
    memory: *mut Memory,
) -> i32 {
    within::<T>(module, "register_device", |module| {
        // SAFETY: the contract of `register_device`: the caller's memory until it is deregistered.
        let bytes = unsafe { bytes(address, length) }?;
        // SAFETY: the contract of `register_device`: NULL, or a variable of the caller's.
        let memory = unsafe { Out::new(memory) }?;
        memory.write(module.register_device(endpoint, bytes)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn memory_key<T: Listed>(module: Btl, memory: Memory, remote: *mut Remote) -> i32 {
    within::<T>(module, "memory_key", |module| {
        // SAFETY: the contract of `memory_key`: NULL, or a variable of the caller's.
        let remote = unsafe { Out::new(remote) }?;
        remote.write(module.name_of(memory)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn deregister_memory<T: Listed>(module: Btl, memory: Memory) -> i32 {
    within::<T>(module, "deregister_memory", |module| module.deregister(memory))
}

unsafe extern "C" fn flush<T: Listed>(module: Btl, endpoint: Endpoint, milliseconds: u32) -> i32 {
    within::<T>(module, "flush", |module| module.flush(endpoint, milliseconds))
}

unsafe extern "C" fn dump<T: Listed>(module: Btl, endpoint: Endpoint) -> i32 {
    within::<T>(module, "dump", |module| module.dump(endpoint))
}

unsafe extern "C" fn counter<T: Listed>(module: Btl, name: *const c_char, value: *mut u64) -> i32 {
    within::<T>(module, "counter", |module| {
        // SAFETY: the contract of `counter`: NULL, or a variable of the caller's.
        let value = unsafe { Out::new(value) }?;
        // SAFETY: the contract of `counter`: NULL, or a text.
        let name = unsafe { name_of(name) }?;
        value.write(module.counter(&name)?);
        Ok(HAWSER_SUCCESS)
    })
}

unsafe extern "C" fn finalize<T: Listed>(module: Btl) -> i32 {
    stop(T::TITLE, "finalize", || T::component().finalize(module))
}
