//! What is wanted ([`Hints`]) and what there is ([`Info`]): `fi_getinfo(3)`.

use std::ffi::{CStr, c_char};
use std::mem::offset_of;
use std::ptr::{self, NonNull};

use super::library::Library;
use super::{Pci, sys};
use crate::error::{Error, Result};

/// Who drives the provider (`FI_PROGRESS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A thread of the provider.
    Auto,
    /// Our calls.
    Manual,
    /// Whatever the provider likes.
    Unspecified,
}

/// Plain wishes; everything not named is left to the provider.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    /// Needed capabilities (`FI_TAGGED` …).
    pub caps: u64,
    /// Modes that we can live with (`FI_CONTEXT` …).
    pub mode: u64,
    /// Memory registration modes that we can live with.
    pub mr_mode: i32,
    /// Bytes of completion data that are needed.
    pub cq_data_size: usize,
    /// Whether calls of several threads should overlap in the provider. Otherwise they are made one after
    /// the other, which costs a program with one thread less than the provider's own locks.
    pub threads: bool,
    /// Addresses are table indices, not provider values.
    pub table: bool,
    /// Who drives connection handling.
    pub control: Progress,
    /// Who drives transfers.
    pub data: Progress,
    /// One provider by name, or any.
    pub provider: Option<&'a str>,
}

impl Progress {
    fn raw(self) -> sys::fi_progress {
        match self {
            Self::Auto => sys::fi_progress_FI_PROGRESS_AUTO,
            Self::Manual => sys::fi_progress_FI_PROGRESS_MANUAL,
            Self::Unspecified => sys::fi_progress_FI_PROGRESS_UNSPEC,
        }
    }
}

/// An owned `fi_info` that describes what is wanted.
pub struct Hints {
    library: &'static Library,
    raw: NonNull<sys::fi_info>,
}

/// Everything that an info is made of.
struct Parts<'a> {
    info: &'a mut sys::fi_info,
    tx: &'a mut sys::fi_tx_attr,
    rx: &'a mut sys::fi_rx_attr,
    ep: &'a mut sys::fi_ep_attr,
    domain: &'a mut sys::fi_domain_attr,
    fabric: &'a mut sys::fi_fabric_attr,
}

impl Hints {
    pub(super) fn own(library: &'static Library, raw: NonNull<sys::fi_info>) -> Self {
        Self { library, raw }
    }

    pub(super) fn as_ptr(&self) -> *const sys::fi_info {
        self.raw.as_ptr()
    }

    fn parts(&mut self) -> Result<Parts<'_>> {
        /// A part of our own hints; null is none.
        macro_rules! part {
            ($info:expr, $name:ident) => {{
                let raw = $info.$name;
                // SAFETY: null, or allocated with the hints (`fi_dupinfo(null)`): ours alone, no other part, and alive
                // as long as they are borrowed.
                unsafe { raw.as_mut() }
            }};
        }
        // SAFETY: ours alone, and alive as long as `self`.
        let info = unsafe { self.raw.as_mut() };
        let (tx, rx, ep) = (part!(info, tx_attr), part!(info, rx_attr), part!(info, ep_attr));
        let (domain, fabric) = (part!(info, domain_attr), part!(info, fabric_attr));
        match (tx, rx, ep, domain, fabric) {
            (Some(tx), Some(rx), Some(ep), Some(domain), Some(fabric)) => {
                Ok(Parts { info, tx, rx, ep, domain, fabric })
            }
            _ => Err(Error::OutOfResource),
        }
    }

    /// Writes the wishes for a reliable datagram endpoint into the hints.
    pub fn reliable_datagram(&mut self, wishes: &Wishes<'_>) -> Result<()> {
        let Parts { info, tx, rx, ep, domain, fabric } = self.parts()?;
        info.caps = wishes.caps;
        info.mode = wishes.mode;
        tx.msg_order = u64::from(sys::FI_ORDER_SAS);
        rx.msg_order = u64::from(sys::FI_ORDER_SAS);
        tx.op_flags = u64::from(sys::FI_COMPLETION);
        rx.op_flags = u64::from(sys::FI_COMPLETION);
        ep.type_ = sys::fi_ep_type_FI_EP_RDM;
        domain.threading = if wishes.threads {
            sys::fi_threading_FI_THREAD_SAFE
        } else {
            sys::fi_threading_FI_THREAD_DOMAIN
        };
        domain.control_progress = wishes.control.raw();
        set_data_progress(domain, wishes.data.raw());
        domain.resource_mgmt = sys::fi_resource_mgmt_FI_RM_ENABLED;
        domain.av_type = if wishes.table { sys::fi_av_type_FI_AV_TABLE } else { sys::fi_av_type_FI_AV_MAP };
        domain.mr_mode = wishes.mr_mode;
        domain.cq_data_size = wishes.cq_data_size;
        if let Some(name) = wishes.provider {
            fabric.prov_name = Library::c_string(name)?;
        }
        Ok(())
    }
}

/// Writes `data_progress`, the number before `resource_mgmt`. The headers of libfabric 2 have it in a union, which has a
/// name of the bindings' own making, and those of libfabric 1 have not.
fn set_data_progress(domain: &mut sys::fi_domain_attr, mode: sys::fi_progress) {
    const AT: usize = offset_of!(sys::fi_domain_attr, control_progress) + size_of::<sys::fi_progress>();
    const { assert!(AT + size_of::<sys::fi_progress>() == offset_of!(sys::fi_domain_attr, resource_mgmt)) };
    let field = ptr::from_mut(domain).wrapping_byte_add(AT).cast::<sys::fi_progress>();
    // SAFETY: a field of the structure, between two others.
    unsafe { field.write(mode) };
}

impl Hints {
    /// Writes the wishes for an unreliable datagram endpoint, which one thread at a time uses, into the
    /// hints; of one provider by name, or of any.
    pub fn datagram(&mut self, provider: Option<&str>) -> Result<()> {
        let Parts { info, ep, domain, fabric, .. } = self.parts()?;
        info.caps = u64::from(sys::FI_MSG) | u64::from(sys::FI_SEND) | u64::from(sys::FI_RECV);
        info.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2 | sys::FI_MSG_PREFIX;
        ep.type_ = sys::fi_ep_type_FI_EP_DGRAM;
        domain.threading = sys::fi_threading_FI_THREAD_DOMAIN;
        domain.mr_mode =
            (sys::FI_MR_LOCAL | sys::FI_MR_ALLOCATED | sys::FI_MR_VIRT_ADDR | sys::FI_MR_PROV_KEY) as i32;
        if let Some(name) = provider {
            fabric.prov_name = Library::c_string(name)?;
        }
        Ok(())
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { (self.library.freeinfo)(self.raw.as_ptr()) };
    }
}

/// An owned list of offers, best first.
pub struct InfoList {
    library: &'static Library,
    raw: NonNull<sys::fi_info>,
}

// SAFETY: an owned list, which libfabric frees in any thread.
unsafe impl Send for InfoList {}
// SAFETY: nothing writes to the list once it is there.
unsafe impl Sync for InfoList {}

impl InfoList {
    pub(super) fn own(library: &'static Library, raw: NonNull<sys::fi_info>) -> Self {
        Self { library, raw }
    }

    /// The offers, in libfabric's order.
    pub fn iter(&self) -> impl Iterator<Item = Info<'_>> {
        let mut next = Some(self.raw);
        std::iter::from_fn(move || {
            let info = next?;
            // SAFETY: a live member of a list that `self` owns.
            let raw = unsafe { info.as_ref() };
            next = NonNull::new(raw.next);
            Some(Info { library: self.library, raw })
        })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { (self.library.freeinfo)(self.raw.as_ptr()) };
    }
}

/// One offer: a provider, a fabric, a domain and what an endpoint there can do.
#[derive(Clone, Copy)]
pub struct Info<'a> {
    pub(super) library: &'static Library,
    pub(super) raw: &'a sys::fi_info,
}

fn text<'a>(raw: *const c_char) -> &'a str {
    if raw.is_null() {
        return "";
    }
    // SAFETY: libfabric's names are zero-ended strings that live as long as their info.
    unsafe { CStr::from_ptr(raw) }.to_str().unwrap_or("")
}

/// A part of an offer, as long as the offer.
macro_rules! part {
    ($offer:expr, $name:ident) => {{
        let raw: *const _ = $offer.raw.$name;
        // SAFETY: every info that `fi_getinfo` or `fi_dupinfo` returns has all its parts, which nobody changes while
        // it is borrowed.
        unsafe { &*raw }
    }};
}

impl<'a> Info<'a> {
    fn domain_attr(&self) -> &'a sys::fi_domain_attr {
        part!(self, domain_attr)
    }

    fn fabric_attr(&self) -> &'a sys::fi_fabric_attr {
        part!(self, fabric_attr)
    }

    fn endpoint_attr(&self) -> &'a sys::fi_ep_attr {
        part!(self, ep_attr)
    }

    fn transmit_attr(&self) -> &'a sys::fi_tx_attr {
        part!(self, tx_attr)
    }

    fn receive_attr(&self) -> &'a sys::fi_rx_attr {
        part!(self, rx_attr)
    }

    /// The provider's name, layered ones joined by `;`.
    pub fn provider(&self) -> &'a str {
        text(self.fabric_attr().prov_name)
    }

    /// The fabric's name.
    pub fn fabric(&self) -> &'a str {
        text(self.fabric_attr().name)
    }

    /// The domain's name: the interface or device.
    pub fn domain(&self) -> &'a str {
        text(self.domain_attr().name)
    }

    /// Capabilities.
    pub fn caps(&self) -> u64 {
        self.raw.caps
    }

    /// Whether device memory must be registered before a message may lie in it.
    ///
    /// `cxi` says so and does not need it, and it takes only keys that its users administer; Open
    /// MPI's own component makes the same exception.
    pub fn registers_devices(&self) -> bool {
        self.domain_attr().mr_mode & sys::FI_MR_HMEM as i32 != 0 && !self.provider().starts_with("cxi")
    }

    /// The bits of a registration's key that the provider takes.
    pub(super) fn registration_key_bits(&self) -> u64 {
        match self.domain_attr().mr_key_size {
            bytes @ 1..8 => (1 << (8 * bytes)) - 1,
            _ => u64::MAX,
        }
    }

    /// Whether calls may overlap in whatever way (`FI_THREAD_SAFE`).
    pub(super) fn is_thread_safe(&self) -> bool {
        self.domain_attr().threading == sys::fi_threading_FI_THREAD_SAFE
    }

    /// Longest message, bytes.
    pub fn max_message(&self) -> usize {
        self.endpoint_attr().max_msg_size
    }

    /// Longest message that can be sent from a buffer that is free again at once, bytes.
    pub fn inject_size(&self) -> usize {
        self.transmit_attr().inject_size
    }

    /// Bytes of data that travel with a message outside its tag.
    pub fn cq_data_size(&self) -> usize {
        self.domain_attr().cq_data_size
    }

    /// The tag bits that the provider leaves to us (`fi_endpoint(3)`).
    pub fn mem_tag_format(&self) -> u64 {
        self.endpoint_attr().mem_tag_format
    }

    /// Most transmit and receive contexts of a scalable endpoint.
    pub fn max_contexts(&self) -> usize {
        let domain = self.domain_attr();
        domain.max_ep_tx_ctx.min(domain.max_ep_rx_ctx)
    }

    /// Whether the provider has scalable endpoints: their number is in no attribute, but a provider without
    /// them has one context at most (`fi_domain(3)`).
    pub fn is_scalable(&self) -> bool {
        self.max_contexts() > 1
    }

    /// Operations that fit into the transmit and the receive queue together.
    pub fn queue_depth(&self) -> usize {
        self.transmit_attr().size.saturating_add(self.receive_attr().size)
    }

    /// Bytes before each datagram that the provider uses itself; 0 where it wants none.
    pub(super) fn prefix_size(&self) -> usize {
        if self.raw.mode & sys::FI_MSG_PREFIX == 0 { 0 } else { self.endpoint_attr().msg_prefix_size }
    }

    /// Longest datagram of our own bytes: some providers count their prefix in.
    pub fn longest_datagram(&self) -> usize {
        self.max_message().saturating_sub(self.prefix_size())
    }

    /// Whether memory of sends and receives must be registered.
    pub(super) fn wants_registration(&self) -> bool {
        self.domain_attr().mr_mode & sys::FI_MR_LOCAL as i32 != 0
    }

    /// Operations that fit into the transmit queue.
    pub(super) fn transmit_size(&self) -> usize {
        self.transmit_attr().size
    }

    /// Operations that fit into the receive queue.
    pub(super) fn receive_size(&self) -> usize {
        self.receive_attr().size
    }

    /// Whether an address vector of this provider is a table; usNIC only has maps.
    pub fn has_table(&self) -> bool {
        self.domain_attr().av_type != sys::fi_av_type_FI_AV_MAP
    }

    /// The form of the provider's addresses (`FI_SOCKADDR_IN` …).
    pub fn address_format(&self) -> u32 {
        self.raw.addr_format
    }

    /// The local address in the provider's form; empty if it says none.
    pub fn source(&self) -> &'a [u8] {
        if self.raw.src_addr.is_null() {
            return &[];
        }
        // SAFETY: the info owns that many bytes there and is borrowed as long.
        unsafe { std::slice::from_raw_parts(self.raw.src_addr.cast(), self.raw.src_addrlen) }
    }

    /// Most pieces of memory of one receive.
    pub(super) fn receive_pieces(&self) -> usize {
        self.receive_attr().iov_limit
    }

    /// PCI address of the device as domain, bus, device and function; `None` for what is not a PCI device.
    pub fn pci(&self) -> Option<Pci> {
        // SAFETY: null or a live part of the info.
        let nic = unsafe { self.raw.nic.as_ref() }?;
        // SAFETY: null or a live part of the info.
        let bus = unsafe { nic.bus_attr.as_ref() }?;
        if bus.bus_type != sys::fi_bus_type_FI_BUS_PCI {
            return None;
        }
        // SAFETY: the tag above says that `pci` is the live field.
        let pci = unsafe { bus.attr.pci };
        Some((pci.domain_id, pci.bus_id, pci.device_id, pci.function_id))
    }

    /// Whether both are the same kind of endpoint on the same fabric, so that either serves a job.
    pub fn is_sibling(&self, other: &Info<'_>) -> bool {
        self.provider() == other.provider()
            && self.fabric() == other.fabric()
            && self.raw.addr_format == other.raw.addr_format
            && self.caps() == other.caps()
            && self.raw.mode == other.raw.mode
            && self.inject_size() == other.inject_size()
            && self.max_message() == other.max_message()
            && self.mem_tag_format() == other.mem_tag_format()
    }

    /// Whether both are the same interface of the same provider, asked for in different words.
    pub fn is_same_place(&self, other: &Info<'_>) -> bool {
        self.provider() == other.provider()
            && self.fabric() == other.fabric()
            && self.domain() == other.domain()
            && self.raw.addr_format == other.raw.addr_format
            && self.mem_tag_format() == other.mem_tag_format()
    }

    /// A copy that outlives the list, with `contexts` transmit and receive contexts asked for.
    pub fn detach(&self, contexts: Option<usize>) -> Result<InfoList> {
        // SAFETY: copies a live info deeply, without its successors.
        let raw = unsafe { (self.library.dupinfo)(self.raw) };
        let raw = NonNull::new(raw).ok_or(Error::OutOfResource)?;
        let list = InfoList::own(self.library, raw);
        if let Some(contexts) = contexts {
            // SAFETY: the copy is ours alone.
            let copy = unsafe { &mut *raw.as_ptr() };
            // SAFETY: a copy is complete.
            let ep = unsafe { &mut *copy.ep_attr };
            ep.tx_ctx_cnt = contexts;
            ep.rx_ctx_cnt = contexts;
        }
        Ok(list)
    }
}
