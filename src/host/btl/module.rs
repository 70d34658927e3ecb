//! A module as the host holds it, and what the transport tells the host.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_int, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::descriptor::{Ending, FragRef, LONGEST, Pool};
use super::services::{Own, ProcRef, Runtime};
use super::sys::{BtlEndpoint, BtlModule, Failed, Segment};
use super::transfer::{self, BareKeys, Get, Handle, LongHandle, Put, Transfers};
use super::{BtlAbi, Listed, atomic, entry};
use crate::btl::{Atomics, Cookie, EndpointId, Host, Lent, Limits, Upcalls};
use crate::error::{Error, Result};
use crate::host::copy_hook;
use crate::host::entry::Module;
use crate::host::foreign::Opaque;
use crate::host::v5_0::sys::BtlModuleGdr;
use crate::sync::EngineCell;

/// Codes of the host (`opal/constants.h`).
pub(super) mod code {
    use std::ffi::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const ERROR: c_int = -1;
    pub(crate) const OUT_OF_RESOURCE: c_int = -2;
    pub(crate) const NOT_SUPPORTED: c_int = -8;
    pub(crate) const UNREACH: c_int = -12;
}

/// What the host's error callback is told of a peer that is lost.
const LOST: &str = "a peer no longer answers";

/// The host's table, in either of its forms.
#[repr(C)]
union Table {
    usual: BtlModule,
    gdr: BtlModuleGdr,
}

/// A module: the host's table first, so that its address is the module's.
#[repr(C)]
pub(super) struct Shell<A, T> {
    table: Opaque<Table>,
    pub(super) core: T,
    pub(super) pool: Pool,
    pub(super) peers: EngineCell<Peers<A>>,
    pub(super) failed: AtomicPtr<c_void>,
    /// PUTs and GETs under way.
    pub(super) transfers: Transfers,
    /// Data up to this length is copied, so that the sender need not wait for the receiver.
    pub(super) copy_limit: usize,
    abi: PhantomData<fn() -> A>,
}

/// What is known of the host's peers.
pub(super) struct Peers<A> {
    /// The process behind each endpoint that the host was given.
    procs: HashMap<EndpointId, ProcRef<A>>,
    /// Endpoints whose loss has been told.
    told: HashSet<EndpointId>,
    /// Endpoints that the host has deleted itself: their loss is no news. What ends after `del_procs`
    /// says so late, so they stay here: of each place the last one, for handles are not used again.
    deleted: HashMap<usize, EndpointId>,
}

impl<A> Default for Peers<A> {
    fn default() -> Self {
        Self { procs: HashMap::new(), told: HashSet::new(), deleted: HashMap::new() }
    }
}

impl<A> Peers<A> {
    /// The host has been given an endpoint for a process.
    pub(super) fn add(&mut self, endpoint: EndpointId, proc: ProcRef<A>) {
        self.procs.insert(endpoint, proc);
        if self.deleted.get(&endpoint.index()) == Some(&endpoint) {
            self.deleted.remove(&endpoint.index());
        }
    }

    /// The host deletes endpoints.
    pub(super) fn delete(&mut self, endpoints: &[EndpointId]) {
        for endpoint in endpoints {
            if self.procs.remove(endpoint).is_none() {
                continue;
            }
            let last = self.deleted.entry(endpoint.index()).or_insert(*endpoint);
            if endpoint.raw() > last.raw() {
                *last = *endpoint;
            }
        }
    }

    /// Whether the host has deleted an endpoint.
    fn has_deleted(&self, endpoint: EndpointId) -> bool {
        self.deleted.get(&endpoint.index()).is_some_and(|last| last.raw() >= endpoint.raw())
    }
}

/// The host's handle of an endpoint: never dereferenced, never null.
pub(super) fn handle(endpoint: EndpointId) -> *mut BtlEndpoint {
    ptr::without_provenance_mut(endpoint.raw() as usize)
}

/// The endpoint behind a handle.
pub(super) fn endpoint(handle: *mut BtlEndpoint) -> EndpointId {
    EndpointId::from_raw(handle.addr() as u64)
}

pub(super) fn status(outcome: Result<()>) -> c_int {
    match outcome {
        Ok(()) => code::SUCCESS,
        Err(Error::Unreachable) => code::UNREACH,
        Err(Error::OutOfResource) => code::OUT_OF_RESOURCE,
        Err(_) => code::ERROR,
    }
}

// SAFETY: the table is the first field, opaque, and a module is boxed before the host gets its address.
unsafe impl<A: BtlAbi, T: Listed> Module for Shell<A, T> {
    type Table = BtlModule;
    const NAME: &'static str = T::COMPONENT;
}

impl<A: BtlAbi, T: Listed> Shell<A, T> {
    /// A module of a transport.
    pub(super) fn new(core: T) -> Self {
        Self {
            table: Opaque::new(table::<A, T>(&core)),
            pool: Pool::new(),
            peers: EngineCell::new(Peers::default()),
            failed: AtomicPtr::new(ptr::null_mut()),
            transfers: Transfers::new(),
            copy_limit: core.limits().copy,
            core,
            abi: PhantomData,
        }
    }

    /// Hands the module over to the host, which gives it back to `finalize`.
    pub(super) fn into_raw(self: Box<Self>) -> *mut BtlModule {
        Box::into_raw(self).cast()
    }

    /// The module behind a table.
    ///
    /// # Safety
    /// `module` came from [`into_raw`](Self::into_raw) of the same `A` and `T`, and lives for `'a`.
    #[inline]
    pub(super) unsafe fn at<'a>(module: *mut BtlModule) -> &'a Self {
        // SAFETY: the address of a shell that the caller knows to live for `'a`: the table is its first field. What the
        // host writes is opaque, so that sharing the rest is right.
        unsafe { &*module.cast::<Self>() }
    }

    /// Takes a module back from the host.
    ///
    /// # Safety
    /// As for [`at`](Self::at), and nobody uses the module any more.
    pub(super) unsafe fn from_raw(module: *mut BtlModule) -> Box<Self> {
        // SAFETY: `into_raw` made it from a box of this type, and the caller says that nobody uses it any more.
        unsafe { Box::from_raw(module.cast::<Self>()) }
    }

    /// The module's address, as the host knows it.
    pub(super) fn raw(&self) -> *mut BtlModule {
        // Of all of it, and not of the table: the host gives it back, and `at` makes the whole of it again.
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Tells the host what the module can be used for, which may have become less.
    pub(super) fn refresh_flags(&self) {
        let flags = flags::<A, T>(&self.core.limits());
        let field = self.raw().wrapping_byte_add(offset_of!(BtlModule, flags)).cast::<u32>();
        // SAFETY: the field of the table, which is this module's first, in both forms at the same place, and opaque:
        // nothing else here refers to it. The host reads it after `add_procs`, in which this is called.
        unsafe { field.write(flags) };
    }

    /// Tells the user, once, that a peer is lost, and where nothing else can follow, the host.
    fn lose(&self, endpoint: EndpointId, name: u64, tell: impl FnOnce()) {
        let is_news = |peers: &mut Peers<A>| !peers.has_deleted(endpoint) && peers.told.insert(endpoint);
        if !self.peers.with(is_news) {
            return;
        }
        tell();
        if A::LOSS != 0 {
            self.run_error_callback(endpoint, name, LOST);
        }
    }

    /// An operation has ended because its peer is lost.
    #[cold]
    fn lose_behind(&self, target: *mut BtlEndpoint) {
        let endpoint = endpoint(target);
        // Who is known no more has been closed or forgotten, not lost.
        if let Some(name) = self.core.peer(endpoint) {
            self.lose(endpoint, name, || self.core.tell_loss(name, &self.host()));
        }
    }

    /// Has the host end the job, where its error callback does.
    pub(super) fn fail_job(&self, with: EndpointId) {
        if let Some(name) = self.core.peer(with) {
            self.run_error_callback(with, name, "a buffer lies where only a device can touch it");
        }
    }

    /// Runs the host's error callback. The host needs the process: without one, the user has been told.
    fn run_error_callback(&self, endpoint: EndpointId, name: u64, what: &str) {
        let Some(callback) = self.error_callback() else { return };
        let known = self.peers.with(|peers| peers.procs.get(&endpoint).copied());
        let proc = known.map_or_else(|| Own::proc_for_name(name), ProcRef::as_ptr);
        if proc.is_null() {
            return;
        }
        let text = CString::new(format!("{}: {what}", T::COMPONENT)).unwrap_or_default();
        // SAFETY: the host's callback, with this module, a flag, a live process, and a text that it only
        // reads.
        unsafe { callback(self.raw(), A::LOSS, proc, text.as_ptr().cast_mut()) };
    }

    fn error_callback(&self) -> Failed {
        let callback = self.failed.load(Ordering::Acquire);
        // SAFETY: null, or stored by `register_error`, from a function of this type.
        unsafe { std::mem::transmute::<*mut c_void, Failed>(callback) }
    }

    #[inline]
    fn sent(&self, frag: FragRef, outcome: Result<()>) {
        let (target, ending) = frag.noted();
        if outcome == Err(Error::Unreachable) {
            self.lose_behind(target);
        }
        if ending != Ending::Silent
            && let Some(callback) = frag.callback()
        {
            // SAFETY: the host's callback, with the module, endpoint and descriptor that it sent.
            unsafe { callback(self.raw(), target, frag.descriptor(), status(outcome)) };
        }
        if ending != Ending::Callback {
            self.pool.give(frag);
        }
    }

    /// The transport needs a fragment no more that the host is told about at once.
    #[inline]
    pub(super) fn over(&self, frag: FragRef) {
        debug_assert!(frag.noted().1 != Ending::Callback, "somebody awaits its end");
        self.pool.give(frag);
    }

    /// A transfer has ended.
    pub(super) fn transferred(&self, cookie: Cookie, outcome: Result<()>) {
        let Some(operation) = self.transfers.take(cookie) else { return };
        if outcome.is_err() {
            self.gives_up(endpoint(operation.endpoint), operation.local.cast());
        }
        if outcome == Err(Error::Unreachable) {
            self.lose_behind(operation.endpoint);
        }
        operation.complete(self.raw(), status(outcome));
    }
}

/// What the table says that a module can be used for.
fn flags<A: BtlAbi, T: Listed>(limits: &Limits) -> u32 {
    /// `MCA_BTL_FLAGS_PUT`, `MCA_BTL_FLAGS_GET`
    const TRANSFERS: u32 = 0x2 | 0x4;
    // HOST: where the buffers of both sides cannot be registered, as those on devices that the host does not know, ob1 of 4.1
    // tries to without end, and the message stays where it is (`mca_pml_ob1_recv_request_schedule_once`). What is sent is
    // copied.
    let without = if !A::DEVICE && !T::HAS_DEVICES && copy_hook::is_copying() { TRANSFERS } else { 0 };
    limits.flags & !without | if limits.atomics == Atomics::None { 0 } else { A::REMOTE_COMPLETION }
}

/// The table of a module.
fn table<A: BtlAbi, T: Listed>(core: &T) -> Table {
    let limits = core.limits();
    let mut table = BtlModule::EMPTY;
    table.component = ptr::from_ref(T::slot()).cast();
    table.eager_limit = limits.eager.min(LONGEST);
    table.rndv_eager_limit = limits.rndv_eager.min(LONGEST);
    table.max_send_size = limits.max_send.min(LONGEST);
    table.rdma_pipeline_send_length = limits.pipeline.sent.unwrap_or(table.eager_limit);
    table.rdma_pipeline_frag_size = limits.pipeline.part;
    table.min_rdma_pipeline_size = limits.pipeline.least;
    table.exclusivity = limits.exclusivity;
    table.latency = limits.latency;
    table.bandwidth = limits.bandwidth;
    table.flags = flags::<A, T>(&limits);
    table.add_procs = Some(entry::add_procs::<A, T>);
    table.del_procs = Some(entry::del_procs::<A, T>);
    table.finalize = Some(entry::finalize::<A, T>);
    table.alloc = Some(entry::alloc::<A, T>);
    table.free = Some(entry::free::<A, T>);
    table.prepare_src = Some(entry::prepare_src::<A, T>);
    table.send = Some(entry::send::<A, T>);
    table.sendi = Some(entry::sendi::<A, T>);
    table.register_error = Some(entry::register_error::<A, T>);
    // HOST: it is called without a look whether it is there (`mca_pml_ob1_dump`, 4.1 and 5.0).
    table.dump = Some(entry::dump::<A, T>);
    if T::HAS_TRANSFERS {
        table.registration_handle_size = match core.has_bare_keys() {
            true => size_of::<BareKeys>(),
            false if T::HAS_DEVICES => size_of::<LongHandle>(),
            false => size_of::<Handle>(),
        };
        table.get_limit = usize::MAX >> 1;
        table.put_limit = usize::MAX >> 1;
        table.get_local_registration_threshold = usize::MAX;
        table.put_local_registration_threshold = usize::MAX;
        table.put = Some(transfer::transfer::<A, T, Put>);
        table.get = Some(transfer::transfer::<A, T, Get>);
        table.register_mem = Some(transfer::register_mem::<A, T>);
        table.deregister_mem = Some(transfer::deregister_mem::<A, T>);
        table.flush = Some(transfer::flush::<A, T>);
    }
    if T::HAS_ATOMICS && limits.atomics != Atomics::None {
        table.atomic_flags = atomic::flags(limits.atomics);
        table.atomic_op = Some(atomic::op::<A, T>);
        table.atomic_fop = Some(atomic::fop::<A, T>);
        table.atomic_cswap = Some(atomic::cswap::<A, T>);
    }
    let flush = table.flush.take_if(|_| A::has_gdr_fields());
    // SAFETY: plain numbers, pointers and optional functions; zero is a value of each, in both forms.
    let mut whole: Table = unsafe { std::mem::zeroed() };
    // Up to the two fields, the forms are the same, and what comes after `flush` stays zero.
    whole.usual = table;
    if A::has_gdr_fields() {
        whole.gdr.flush = flush;
        whole.gdr.accelerator_max_send_size = limits.max_send_device;
    } else if A::DEVICE {
        whole.usual.ft_event_or_accelerator_max_send_size = limits.max_send_device;
    }
    whole
}

impl<A: BtlAbi, T: Listed> Upcalls for Shell<A, T> {
    #[inline]
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        // SAFETY: borrowed for the time of the call, and nobody writes there: receive callbacks only read.
        self.deliver_shared(endpoint, tag, unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) });
    }

    #[inline]
    fn deliver_shared(&self, endpoint: EndpointId, tag: u8, bytes: Lent) {
        let Some(message) = Own::receiver(tag) else { return self.core.unheard() };
        // HOST: in one segment. Of several, ob1 counts the bytes of the first alone when it matches a message
        // (`mca_pml_ob1_recv_frag_callback_match`, 4.1 and 5.0), and does not see that it is longer than its receive.
        let segment = Segment { start: bytes.as_ptr().cast_mut(), len: bytes.len() as u64 };
        // SAFETY: registered for this tag; the bytes are lent for the time of the call, and receive callbacks
        // only read.
        unsafe { A::receive(self.raw(), handle(endpoint), tag, message, segment) };
    }

    #[inline]
    fn done(&self, cookie: Cookie, outcome: Result<()>) {
        if transfer::is_transfer(cookie) {
            self.transferred(cookie, outcome);
        } else {
            // SAFETY: the cookie of a send is that of its fragment, of this module's pool.
            self.sent(unsafe { FragRef::behind(cookie) }, outcome);
        }
    }

    fn host(&self) -> impl Host {
        Runtime::<A, T>::new()
    }

    fn devices_reached(&self, endpoint: EndpointId) -> bool {
        // A host that does not know this flag takes any call for an error.
        let Some(flag) = A::DEVICES_REACHED else { return true };
        let Some(callback) = self.error_callback() else { return true };
        let Some(proc) = self.peers.with(|peers| peers.procs.get(&endpoint).copied()) else { return false };
        // HOST: what is a text for all other flags is the address of the number of an output stream, -1 for none
        // (`mca_pml_ob1_accelerator_add_ipc_support`, 5.0).
        let mut stream: c_int = -1;
        // SAFETY: the host's callback, with this module, a flag, a live process, and a number that it only reads.
        unsafe { callback(self.raw(), flag, proc.as_ptr(), (&raw mut stream).cast()) };
        true
    }

    fn doomed(&self, endpoint: EndpointId, name: u64, tell: impl FnOnce()) {
        self.lose(endpoint, name, tell);
    }

    fn lost(&self, endpoint: EndpointId, name: u64) {
        if self.peers.with(|peers| peers.has_deleted(endpoint)) {
            return;
        }
        self.lose(endpoint, name, || self.core.tell_loss(name, &self.host()));
        if A::LOSS == 0 {
            self.run_error_callback(endpoint, name, LOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::host::btl::fake::Fake;
    use crate::host::btl::sys::BtlProc;
    use crate::host::v4_1::V4_1;

    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static TOLD: AtomicPtr<BtlProc> = AtomicPtr::new(ptr::null_mut());

    unsafe extern "C" fn failed(_: *mut BtlModule, _: i32, proc: *mut BtlProc, _: *mut std::ffi::c_char) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        TOLD.store(proc, Ordering::Relaxed);
    }

    #[test]
    fn peers_that_are_deleted_again_and_again_take_no_more_room() {
        let of = |generation: u64, index: u64| EndpointId::from_raw(generation << 32 | index);
        let proc = ptr::without_provenance_mut::<BtlProc>(64);
        let mut peers = Peers::<V4_1>::default();
        for generation in 1..1000 {
            // SAFETY: nobody looks at it.
            peers.add(of(generation, 3), unsafe { ProcRef::new(proc) });
            assert!(!peers.has_deleted(of(generation, 3)));
            peers.delete(&[of(generation, 3), of(u64::from(u32::MAX), 3), of(7, 9)]);
            assert!(
                peers.has_deleted(of(generation, 3)) && peers.has_deleted(of(1, 3)),
                "also what is told late"
            );
            assert!(!peers.has_deleted(of(generation + 1, 3)));
        }
        assert_eq!(peers.deleted.len(), 1);
    }

    /// `del_procs` makes progress for all peers: what happens to others meanwhile is news.
    #[test]
    fn a_loss_beside_the_peers_that_are_deleted_is_told() {
        let [deleted, lost] = [1, 2].map(|number| EndpointId::from_raw(1 << 32 | number));
        let procs = [[0_u64; 16]; 2];
        let [of_deleted, of_lost] = procs.each_ref().map(|proc| ptr::from_ref(proc).cast_mut().cast());
        let module = Box::new(Shell::<V4_1, Fake>::new(Fake::new(&[lost]))).into_raw();
        // SAFETY: made for these types, and alive.
        let shell = unsafe { Shell::<V4_1, Fake>::at(module) };
        for (endpoint, proc) in [(deleted, of_deleted), (lost, of_lost)] {
            // SAFETY: kept to the end of the test.
            let proc = unsafe { ProcRef::new(proc) };
            shell.peers.with(|peers| peers.add(endpoint, proc));
        }
        // SAFETY: a module of these types, and a function.
        unsafe { entry::register_error::<V4_1, Fake>(module, Some(failed)) };
        let mut endpoints = [handle(deleted)];
        // SAFETY: a module of these types, and one endpoint; the processes are not looked at.
        unsafe { entry::del_procs::<V4_1, Fake>(module, 1, ptr::null_mut(), endpoints.as_mut_ptr()) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 1, "of the one that was not deleted");
        assert_eq!(TOLD.load(Ordering::Relaxed), of_lost);
        // SAFETY: nobody uses it any more.
        drop(unsafe { Shell::<V4_1, Fake>::from_raw(module) });
    }
}
