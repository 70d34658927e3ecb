//! A module as the host holds it, and what the transport tells the host.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::BtlAbi;
use super::component::Own;
use super::params;
use super::parcel::{Ending, Parcel, Pool};
use super::sys::{
    ActiveMessage, BtlEndpoint, BtlModule, BtlProc, BtlRegistration, Failed, Segment, Transferred,
};
use crate::btl::Upcalls;
use crate::btl::usnic::agent::{Finding, Site};
use crate::btl::usnic::{EndpointId, Module, place};
use crate::error::{Error, Result};
use crate::host::services::{say, show_help};
use crate::sync::EngineCell;

/// Codes of the host (`opal/constants.h`).
pub(super) mod code {
    use std::ffi::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const ERROR: c_int = -1;
    pub(crate) const OUT_OF_RESOURCE: c_int = -2;
    pub(crate) const UNREACH: c_int = -12;
}

/// Tags that a callback can be registered for.
const TAGS: usize = 255;

/// A module: the host's table first, so that its address is the module's.
#[repr(C)]
pub(super) struct Shell<A> {
    /// Only ever reached through raw pointers: the host writes to it.
    pub(super) table: BtlModule,
    pub(super) core: Module,
    /// Name of its network interface.
    pub(super) device: String,
    pub(super) pool: Pool,
    /// The process behind each endpoint that the host was given.
    pub(super) procs: EngineCell<HashMap<EndpointId, ProcRef>>,
    pub(super) failed: AtomicPtr<c_void>,
    /// Peers whose loss has been told.
    pub(super) told: EngineCell<HashSet<EndpointId>>,
    /// The host has begun to take its peers away: who ends now is not lost.
    pub(super) leaving: AtomicBool,
    /// PUTs and GETs under way.
    pub(super) transfers: AtomicUsize,
    /// Data up to this length is copied, so that the sender need not wait for the receiver.
    pub(super) copy_limit: usize,
    pub(super) abi: PhantomData<fn() -> A>,
}

/// A process of the host's, alive until `del_procs`.
#[derive(Clone, Copy)]
pub(super) struct ProcRef(pub(super) *mut BtlProc);

// SAFETY: the host lets any thread use its processes.
unsafe impl Send for ProcRef {}

/// A registration handle, as its bytes travel through the host.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Handle {
    /// The registration, as the engine writes it.
    pub(super) token: [u8; 32],
    /// Address of the first byte.
    pub(super) base: u64,
}

/// A PUT or GET under way.
pub(super) struct Operation {
    pub(super) endpoint: *mut BtlEndpoint,
    pub(super) local: *mut c_void,
    pub(super) handle: *mut BtlRegistration,
    pub(super) callback: Transferred,
    pub(super) context: *mut c_void,
    pub(super) data: *mut c_void,
}

/// Marks the cookie of an [`Operation`]; parcels and operations are aligned.
pub(super) const OPERATION: u64 = 1;

/// What users call a process: its rank, and the number of its job in the job's family.
pub(super) fn title(name: u64) -> String {
    format!("rank {} of job {}", name >> 32, name & 0xFFFF)
}

/// Which datagrams do not get where, in one line.
fn describe(name: u64, finding: &Finding) -> String {
    let site = |site: &Site| format!("{} ({}, {})", site.host, site.interface, site.address);
    let come = |(come, length): (bool, usize)| {
        format!("of {length} bytes {}", if come { "were answered" } else { "were not" })
    };
    format!(
        "btl_usnic: {} does not reach {} on {}: datagrams {}, those {}, in {} tries within {:?}",
        site(&finding.from),
        title(name),
        site(&finding.to),
        come(finding.short),
        come(finding.long),
        finding.tries,
        finding.within
    )
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

impl<A> Shell<A> {
    /// Interface and address, for people.
    pub(super) fn describe(&self) -> String {
        match place(&self.core.address().name) {
            Some(place) => format!("{} {place}", self.device),
            None => self.device.clone(),
        }
    }
}

impl<A: BtlAbi> Shell<A> {
    /// The module's address, as the host knows it.
    fn raw(&self) -> *mut BtlModule {
        ptr::from_ref(self).cast::<BtlModule>().cast_mut()
    }

    /// Tells the user, once, that a peer is lost, and where nothing else can follow, the host.
    fn mourn(&self, endpoint: EndpointId) {
        if self.leaving.load(Ordering::Acquire) || !self.told.with(|told| told.insert(endpoint)) {
            return;
        }
        let name = self.core.peer(endpoint).map_or(0, |peer| peer.name);
        show_help(
            "peer lost",
            &format!(
                "btl_usnic: {} no longer answers: its process has ended, or its node or the network between is down (btl_usnic_peer_timeout says how long silence is borne)",
                title(name)
            ),
        );
        if A::LOSS != 0 {
            self.tell_host(endpoint, name);
        }
    }

    /// Runs the host's error callback.
    fn tell_host(&self, endpoint: EndpointId, name: u64) {
        let callback = self.failed.load(Ordering::Acquire);
        // SAFETY: null, or stored by `register_error`, from a function of this type.
        let Some(callback) = (unsafe { std::mem::transmute::<*mut c_void, Failed>(callback) }) else {
            return;
        };
        let known = self.procs.with(|procs| procs.get(&endpoint).copied());
        let proc = known.map_or_else(|| Own::proc_for_name(name), |known| known.0);
        let text = CString::new(format!("btl_usnic: {} no longer answers", title(name))).unwrap_or_default();
        // SAFETY: the host's callback; it only reads the text.
        unsafe { callback(self.raw(), A::LOSS, proc, text.as_ptr().cast_mut()) };
    }

    fn sent(&self, parcel: NonNull<Parcel>, outcome: Result<()>) {
        let raw = parcel.as_ptr();
        // SAFETY: the engine gives the parcel back; it is alive, and only read here.
        let parts = unsafe { &*raw };
        let (ending, target) = (parts.ending.get(), parts.endpoint.get());
        if outcome == Err(Error::Unreachable) {
            self.mourn(endpoint(target));
        }
        if ending != Ending::Silent {
            // SAFETY: as above; the host set the callback before it sent the descriptor.
            let callback = unsafe { (*raw).descriptor.sent };
            if let Some(callback) = callback {
                // SAFETY: the host's callback, with what it expects.
                unsafe { callback(self.raw(), target, raw.cast(), status(outcome)) };
            }
        }
        if ending != Ending::Callback {
            self.pool.give(parcel);
        }
    }

    fn transferred(&self, operation: Operation, outcome: Result<()>) {
        self.transfers.fetch_sub(1, Ordering::AcqRel);
        if outcome == Err(Error::Unreachable) {
            self.mourn(endpoint(operation.endpoint));
        }
        if let Some(callback) = operation.callback {
            // SAFETY: the host's callback, with what it gave us for it.
            unsafe {
                callback(
                    self.raw(),
                    operation.endpoint,
                    operation.local,
                    operation.handle,
                    operation.context,
                    operation.data,
                    status(outcome),
                );
            }
        }
    }
}

impl<A: BtlAbi> Upcalls for Shell<A> {
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        if usize::from(tag) >= TAGS {
            return;
        }
        // SAFETY: the host's table has an entry for each tag.
        let entry = unsafe { Own::host().triggers.add(usize::from(tag)) };
        // SAFETY: as above; entries are written before messages of their tag are sent.
        let message: ActiveMessage = unsafe { entry.read() };
        if message.callback.is_null() {
            return;
        }
        let segment = Segment { start: bytes.as_ptr().cast_mut(), len: bytes.len() as u64 };
        // SAFETY: registered for this tag; the bytes are borrowed for the time of the call, and
        // receive callbacks only read.
        unsafe { A::receive(self.raw(), handle(endpoint), tag, message, segment) };
    }

    fn done(&self, cookie: u64, outcome: Result<()>) {
        let address = cookie as usize;
        if cookie & OPERATION == 0 {
            let parcel = ptr::with_exposed_provenance_mut::<Parcel>(address);
            // SAFETY: the cookie of a send is the address of its parcel, exposed when it was sent.
            self.sent(unsafe { NonNull::new_unchecked(parcel) }, outcome);
        } else {
            let operation = ptr::with_exposed_provenance_mut::<Operation>(address & !1);
            // SAFETY: the cookie of a transfer is the marked address of its box, which ends here.
            self.transferred(*unsafe { Box::from_raw(operation) }, outcome);
        }
    }

    fn lost(&self, endpoint: EndpointId, name: u64) {
        self.mourn(endpoint);
        if A::LOSS == 0 && !self.leaving.load(Ordering::Acquire) {
            self.tell_host(endpoint, name);
        }
    }

    fn unreached(&self, name: u64, finding: &Finding) {
        if self.leaving.load(Ordering::Acquire) {
            return;
        }
        let line = describe(name, finding);
        if !finding.is_fatal {
            if params::is_verbose() {
                say(&format!("{line}; but the peer has been heard of otherwise, so this job goes on"));
            }
            return;
        }
        if !self.told.with(|told| told.insert(finding.endpoint)) {
            return;
        }
        match (finding.short.0, finding.long.0) {
            (true, _) => show_help("connectivity error: small ok, large bad", &line),
            (false, true) => show_help("connectivity error: small bad, large ok", &line),
            (false, false) => show_help("connectivity error: small bad, large bad", &line),
        }
        if A::LOSS != 0 {
            self.tell_host(finding.endpoint, name);
        }
    }

    fn card(&self, name: u64) -> Result<Vec<u8>> {
        A::published_under(super::component::KEY, name)
    }
}
