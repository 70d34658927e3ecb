//! Hints and offers in libfabric's structures.
//!
//! What is read of hints is what every libfabric from 1.17 on has there. What is returned has been made by the libfabric
//! that asked (`fi_dupinfo(NULL)`), which knows how long its structures are; texts in it are of the C library's heap.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::Ipv4Addr;

use super::argument::{Foreign, array, optional, text};
use super::errno::{Errno, Outcome};
use super::library::Library;
use super::load::{NAME, OWN};
use super::sys::{self, DomainAttr, EpAttr, fi_info, fid};
use super::{offer, resolve};
use crate::wire::gni::name::{self, Kind, Name};

pub(super) use super::offer::Wanted;

/// How long a text is that has a final zero, and whose length the caller has not said.
pub(super) const UNTOLD: usize = usize::MAX;

/// A name in one of its two forms, as C passes it.
///
/// # Safety
/// NULL, or so many bytes; [`UNTOLD`] with a text of `FI_ADDR_STR` only.
pub(super) unsafe fn name_at(format: u32, address: *const c_void, length: usize) -> Outcome<Option<Name>> {
    if address.is_null() {
        return Ok(None);
    }
    if format == sys::FI_ADDR_STR {
        let bytes = if length == UNTOLD {
            // SAFETY: not null, hence a text, by the contract.
            unsafe { text(address.cast()) }.map(CStr::to_bytes)
        } else {
            // SAFETY: so many bytes are there by the contract, and no more are read.
            let bytes = unsafe { array(address.cast::<u8>(), length.min(name::TEXT)) }?;
            bytes.split(|byte| *byte == 0).next()
        };
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        return text.and_then(|text| text.parse().ok()).map(Some).ok_or(Errno::INVAL);
    }
    if length != name::LEN {
        return Err(Errno::INVAL);
    }
    // SAFETY: not null, and as long as a name; bytes have no alignment.
    let bytes = unsafe { address.cast::<[u8; name::LEN]>().read_unaligned() };
    Name::parse(&bytes).map(Some).ok_or(Errno::INVAL)
}

/// The name in the form of a format, as bytes.
pub(super) fn form(format: u32, name: &Name) -> Vec<u8> {
    if format == sys::FI_ADDR_STR {
        let mut text = name.to_string().into_bytes();
        text.push(0);
        return text;
    }
    name.emit().to_vec()
}

impl Wanted {
    /// What hints say; `None` for NULL.
    ///
    /// # Safety
    /// NULL, or hints of libfabric's, each part NULL or complete, for the time of the call.
    pub(super) unsafe fn read(hints: *const fi_info) -> Outcome<Option<Self>> {
        // SAFETY: the contract: NULL, or hints.
        let Some(info) = (unsafe { optional(hints) }) else { return Ok(None) };
        // SAFETY: the contract: NULL, or the part that its name says; the same of the four others.
        let tx = unsafe { optional(info.tx_attr) };
        // SAFETY: the same.
        let rx = unsafe { optional(info.rx_attr) };
        // SAFETY: the same; how it begins.
        let ep = unsafe { optional(info.ep_attr.cast::<EpAttr>()) };
        // SAFETY: the same.
        let domain = unsafe { optional(info.domain_attr.cast::<DomainAttr>()) };
        // SAFETY: the same.
        let fabric = unsafe { optional(info.fabric_attr) };
        // SAFETY: the contract: NULL, or a text.
        let owned = |raw: *mut c_char| unsafe { text(raw) }.map(CString::from);
        let no_data = |_| Errno::NODATA;
        // SAFETY: the contract: NULL, or so many bytes in the form that the hints name.
        let source =
            unsafe { name_at(info.addr_format, info.src_addr, info.src_addrlen) }.map_err(no_data)?;
        // SAFETY: the same.
        let target =
            unsafe { name_at(info.addr_format, info.dest_addr, info.dest_addrlen) }.map_err(no_data)?;
        Ok(Some(Self {
            caps: info.caps,
            addr_format: info.addr_format,
            handle: Foreign(info.handle.cast()),
            source,
            target,
            tx,
            rx,
            ep,
            domain,
            domain_name: domain.and_then(|domain| owned(domain.name)),
            fabric_name: fabric.and_then(|fabric| owned(fabric.name)),
            provider_name: fabric.and_then(|fabric| owned(fabric.prov_name)),
        }))
    }
}

/// The ends that an offer is for.
struct Ends {
    source: Name,
    target: Option<Name>,
}

/// A name without a cdm id of its own, for an endpoint that is given one when it is opened.
fn fresh(device: Option<Ipv4Addr>) -> Outcome<Name> {
    let device = device.map_or_else(resolve::device, Ok)?;
    Ok(Name { kind: Kind::Unbound, ..Name::bound(device, 1) })
}

/// What node and service mean, or the hints.
fn ends(node: Option<&CStr>, service: Option<&CStr>, flags: u64, wanted: Option<&Wanted>) -> Outcome<Ends> {
    let is_numeric = flags & sys::FI_NUMERICHOST != 0;
    let (mut source, mut target) = match wanted {
        Some(wanted) => (wanted.source, wanted.target),
        None => (None, None),
    };
    let mut device = None;
    if flags & sys::FI_SOURCE != 0 {
        if let Some(node) = node {
            let (address, is_own) = resolve::node(node, is_numeric)?;
            device = if is_own { Some(address) } else { return Err(Errno::NODATA) };
        }
        if let Some(service) = service {
            source = Some(resolve::name(node, service, is_numeric)?);
        }
    } else if let Some(service) = service {
        target = Some(resolve::name(node, service, is_numeric)?);
    } else if let Some(node) = node {
        resolve::node(node, is_numeric)?;
    }
    Ok(Ends { source: source.map_or_else(|| fresh(device), Ok)?, target })
}

/// An info of libfabric's that is freed unless it is given away.
pub(super) struct Made(Library, *mut fi_info);

// SAFETY: it is ours alone until it is given away, and no thread has anything of it.
unsafe impl Send for Made {}

impl Made {
    /// A fresh one.
    fn new(library: Library) -> Outcome<Self> {
        // SAFETY: null asks for a fresh, zeroed structure with all its parts.
        let raw = unsafe { (library.dupinfo)(std::ptr::null()) };
        if raw.is_null() { Err(Errno::NOMEM) } else { Ok(Self(library, raw)) }
    }

    /// Where it is.
    pub(super) fn address(&self) -> *mut fi_info {
        self.1
    }

    /// It is somebody else's from now on.
    pub(super) fn give(self) -> *mut fi_info {
        std::mem::ManuallyDrop::new(self).1
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: made by this library, and nobody else's.
        unsafe { (self.0.freeinfo)(self.1) };
    }
}

/// A text on the C library's heap.
fn duplicate(text: &CStr) -> Outcome<*mut c_char> {
    // SAFETY: a text.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(Errno::NOMEM) } else { Ok(copy) }
}

/// Bytes on the C library's heap.
fn heap(bytes: &[u8]) -> Outcome<*mut c_void> {
    // SAFETY: any length.
    let room = unsafe { libc::malloc(bytes.len()) };
    if room.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: fresh, and as long.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), bytes.len()) };
    Ok(room)
}

/// The types of endpoints that are answered, in this order.
fn kinds(flags: u64, wanted: Option<&Wanted>) -> &'static [u32] {
    match wanted.and_then(|wanted| wanted.ep).map_or(0, |ep| ep.kind) {
        // No other provider stands on those of which one might make reliable datagrams again.
        sys::FI_EP_MSG | sys::FI_EP_DGRAM if flags & sys::CORE_ONLY != 0 => &[],
        sys::FI_EP_MSG => &[sys::FI_EP_MSG],
        sys::FI_EP_DGRAM => &[sys::FI_EP_DGRAM],
        0 if flags & sys::CORE_ONLY == 0 => &[sys::FI_EP_RDM, sys::FI_EP_MSG, sys::FI_EP_DGRAM],
        _ => &[sys::FI_EP_RDM],
    }
}

/// The infos for somebody who wants that, one after the other.
pub(super) fn answer(
    library: Library,
    version: u32,
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    wanted: Option<&Wanted>,
) -> Outcome<*mut fi_info> {
    let ends =
        if flags & sys::FI_PROV_ATTR_ONLY != 0 { None } else { Some(ends(node, service, flags, wanted)?) };
    let mut all = Err(Errno::NODATA);
    for kind in kinds(flags, wanted).iter().rev() {
        let Ok(offer) = offer::make(version, *kind, wanted) else { continue };
        let made = Made::new(library)?;
        // SAFETY: fresh, and ours alone.
        unsafe { write(made.1, &offer, ends.as_ref()) }?;
        if let Some(wanted) = wanted {
            // SAFETY: the same.
            unsafe { (*made.1).handle = wanted.handle.0.cast() };
        }
        // SAFETY: the same; what follows is made here, too, and is freed with it.
        unsafe { (*made.1).next = all.map_or(std::ptr::null_mut(), Made::give) };
        all = Ok(made);
    }
    all.map(Made::give)
}

/// The info of a connection that somebody wants with who offers that.
pub(super) fn of_request(
    library: Library,
    version: u32,
    wanted: &Wanted,
    source: Name,
    target: Name,
    handle: *mut fid,
) -> Outcome<Made> {
    let offer = offer::make(version, sys::FI_EP_MSG, Some(wanted))?;
    let made = Made::new(library)?;
    // SAFETY: fresh, and ours alone.
    unsafe { write(made.1, &offer, Some(&Ends { source, target: Some(target) })) }?;
    // SAFETY: the same.
    let info = unsafe { &mut *made.1 };
    info.handle = handle;
    // SAFETY: `write` has seen that it is there. What libfabric writes into what is asked of it, nobody does here.
    let fabric = unsafe { &mut *info.fabric_attr };
    fabric.prov_name = duplicate(NAME)?;
    fabric.prov_version = OWN;
    fabric.api_version = version;
    Ok(made)
}

/// # Safety
/// Fresh from `fi_dupinfo(NULL)`, and nobody else's.
unsafe fn write(raw: *mut fi_info, offer: &offer::Offer, ends: Option<&Ends>) -> Outcome<()> {
    // SAFETY: the contract.
    let info = unsafe { &mut *raw };
    let parts = [info.tx_attr.cast::<c_void>(), info.rx_attr.cast(), info.ep_attr.cast()];
    if parts.iter().any(|part| part.is_null()) || info.domain_attr.is_null() || info.fabric_attr.is_null() {
        return Err(Errno::NOMEM);
    }
    info.caps = offer.caps;
    info.addr_format = offer.addr_format;
    // SAFETY: not null, hence that part, of this size at least in every libfabric that we answer; so are the next three.
    unsafe { info.tx_attr.write(offer.tx) };
    // SAFETY: the same.
    unsafe { info.rx_attr.write(offer.rx) };
    // SAFETY: the same; what follows in a newer libfabric stays zero.
    unsafe { info.ep_attr.cast::<EpAttr>().write(offer.ep) };
    let domain = DomainAttr { name: duplicate(offer::DOMAIN)?, ..offer.domain };
    // SAFETY: the same.
    unsafe { info.domain_attr.cast::<DomainAttr>().write(domain) };
    // SAFETY: not null, hence that part. libfabric itself writes the other fields.
    unsafe { (*info.fabric_attr).name = duplicate(offer::FABRIC)? };
    if let Some(ends) = ends {
        let source = form(offer.addr_format, &ends.source);
        info.src_addr = heap(&source)?;
        info.src_addrlen = source.len();
        if let Some(target) = &ends.target {
            let target = form(offer.addr_format, target);
            info.dest_addr = heap(&target)?;
            info.dest_addrlen = target.len();
        }
    }
    Ok(())
}
