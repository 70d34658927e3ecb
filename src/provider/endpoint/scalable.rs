//! The scalable endpoint, `fi_scalable_ep(3)`: one name with several transmit and receive contexts.
//!
//! A context is an endpoint of its own, which only sends, or only receives, under a name that follows from that of the
//! scalable one (`wire::gni::context`): it has connections, queues and an order of its own, and nothing in common with the
//! others but the address vector. Receives and completions name the scalable endpoint as their source, whichever transmit
//! context a message is of.
//!
//! The names of receive contexts are taken when the endpoint is opened: until a context is enabled, whoever calls it waits.
//! When one is closed its name has had its life, and it is not opened again. A transmit context is, under another name.
//! Contexts hold their endpoint, which is therefore not closed before them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use super::super::argument::{Out, copy, optional};
use super::super::av::Av;
use super::super::domain::Domain;
use super::super::eq::Eq;
use super::super::errno::{Errno, Outcome};
use super::super::guard::guard;
use super::super::info::name_at;
use super::super::nosys;
use super::super::object::{self, Object, body, fid_of};
use super::super::offer;
use super::super::pep::write_name;
use super::super::sys::{
    self, EpAttr, OpsEp, fi_info, fi_ops, fi_ops_cm, fi_rx_attr, fi_tx_attr, fid, fid_ep,
};
use super::{Endpoint, Wish, announce_at, entry, named, refused, set, tables};
use crate::gni::Place;
use crate::sync::EngineCell;
use crate::wire::gni::context::{self, MOST};
use crate::wire::gni::name::{Kind, Name};

/// Which of the two a context does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Transmit,
    Receive,
}

/// What a context is one of.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) of: Arc<Scalable>,
    pub(super) side: Side,
}

/// A context that may be opened.
enum Seat {
    /// Its name is taken for it.
    Reserved(u32),
    /// It has been opened, and may have been closed.
    Opened(Weak<Endpoint>),
    /// Nobody has asked for it.
    Free,
}

#[derive(Default)]
struct Bound {
    av: Option<Arc<Av>>,
    eq: Option<Arc<Eq>>,
    is_enabled: bool,
}

/// A scalable endpoint.
pub(super) struct Scalable {
    domain: Arc<Domain>,
    kind: u32,
    caps: u64,
    addr_format: u32,
    name: Name,
    /// Where other nodes reach it.
    place: Option<Place>,
    /// What contexts have whose opener says nothing.
    transmit: Option<fi_tx_attr>,
    receive: Option<fi_rx_attr>,
    bound: EngineCell<Bound>,
    transmits: EngineCell<Vec<Seat>>,
    /// Transmit contexts that have been opened.
    opened: AtomicU16,
    receives: EngineCell<Vec<Seat>>,
}

// SAFETY: `fid_ep` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Scalable {
    type Head = fid_ep;
    const CLASS: usize = sys::FI_CLASS_SEP;
}

/// So many contexts, where 0 stands for one.
fn count(wish: usize) -> Outcome<u8> {
    u8::try_from(wish.max(1)).ok().filter(|count| usize::from(*count) <= MOST).ok_or(Errno::INVAL)
}

/// The capabilities of a context, with the directions that follow from them where none is named.
fn directed(own: u64, endpoint: u64, side: Side) -> u64 {
    let (messages, memory) = match side {
        Side::Transmit => (sys::FI_SEND, sys::FI_READ | sys::FI_WRITE),
        Side::Receive => (sys::FI_RECV, sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE),
    };
    if own & (messages | memory) != 0 {
        return own;
    }
    let is_named = |what| own & what != 0;
    let messages = if is_named(sys::FI_MSG | sys::FI_TAGGED) { messages } else { 0 };
    let memory = if is_named(sys::FI_RMA | sys::FI_ATOMIC) { memory } else { 0 };
    own | (messages | memory) & endpoint
}

impl Scalable {
    /// The peers of all contexts.
    pub(super) fn av(&self) -> Option<Arc<Av>> {
        self.bound.with(|bound| bound.av.clone())
    }

    fn bind<T>(&self, place: impl FnOnce(&mut Bound) -> &mut Option<T>, value: T, flags: u64) -> Outcome<()> {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        self.bound.with(|bound| {
            if bound.is_enabled {
                return Err(Errno::OPBADSTATE);
            }
            set(place(bound), value)
        })
    }

    fn bind_av(&self, av: &Arc<Av>, flags: u64) -> Outcome<()> {
        if !Arc::ptr_eq(av.domain(), &self.domain) {
            return Err(Errno::DOMAIN);
        }
        self.bind(|bound| &mut bound.av, Arc::clone(av), flags)
    }

    /// Enables the contexts that are there and are not enabled yet: all, or none.
    fn enable(&self) -> Outcome<()> {
        self.bound.with(|bound| match bound {
            Bound { is_enabled: true, .. } => Err(Errno::OPBADSTATE),
            Bound { av: None, .. } => Err(Errno::NOAV),
            _ => Ok(()),
        })?;
        let opened = |seats: &EngineCell<Vec<Seat>>| -> Vec<Arc<Endpoint>> {
            seats.with(|seats| seats.iter().filter_map(Seat::opened).collect())
        };
        let mut parts = opened(&self.transmits);
        parts.extend(opened(&self.receives));
        parts.retain(|part| part.ready.get().is_none());
        parts.iter().try_for_each(|part| part.prepared().map(drop))?;
        parts.iter().try_for_each(|part| part.enable())?;
        self.bound.with(|bound| bound.is_enabled = true);
        Ok(())
    }

    fn seats(&self, side: Side) -> &EngineCell<Vec<Seat>> {
        match side {
            Side::Transmit => &self.transmits,
            Side::Receive => &self.receives,
        }
    }

    /// Opens a context.
    fn context(self: &Arc<Self>, side: Side, index: c_int, wish: &Wish) -> Outcome<Arc<Endpoint>> {
        let index = u8::try_from(index).map_err(|_| Errno::INVAL)?;
        self.seats(side).with(|seats| {
            let seat = seats.get_mut(usize::from(index)).ok_or(Errno::INVAL)?;
            // Not held here, be it for a moment: who closes it meanwhile is the last to have it.
            if matches!(seat, Seat::Opened(part) if part.strong_count() != 0) {
                return Err(Errno::BUSY);
            }
            let (name, slot) = match (side, &*seat) {
                (Side::Receive, Seat::Reserved(slot)) => {
                    (self.name.part(context::Part::Receive(index)).ok_or(Errno::INVAL)?, *slot)
                }
                (Side::Receive, _) => return Err(Errno::BUSY),
                (Side::Transmit, _) => self.transmitting()?,
            };
            let part = Part { of: Arc::clone(self), side };
            let domain = Arc::clone(&self.domain);
            let endpoint = Arc::new(Endpoint::at(domain, wish, (name, slot), None, Some(part)));
            *seat = Seat::Opened(Arc::downgrade(&endpoint));
            Ok(endpoint)
        })
    }

    /// The name of the next transmit context that nobody has, and its place in the traffic.
    fn transmitting(&self) -> Outcome<(Name, u32)> {
        loop {
            let count = self.opened.load(Ordering::Relaxed);
            let name = self.name.part(context::Part::Transmit(count)).ok_or(Errno(libc::ENOSPC))?;
            // Those who open one have the seats to themselves.
            self.opened.store(count + 1, Ordering::Relaxed);
            match announce_at(&self.domain, &name, self.place) {
                Err(Errno(libc::EADDRINUSE)) => {}
                outcome => return Ok((name, outcome?.0)),
            }
        }
    }

    /// What a context is opened with.
    fn wish(&self, caps: u64, flags: u64) -> Wish {
        Wish {
            kind: self.kind,
            caps,
            request: None,
            shares_sends: false,
            shares_receives: false,
            addr_format: self.addr_format,
            source: None,
            transmit_flags: flags,
            receive_flags: flags,
        }
    }
}

impl Seat {
    fn opened(&self) -> Option<Arc<Endpoint>> {
        match self {
            Self::Opened(part) => part.upgrade(),
            Self::Reserved(_) | Self::Free => None,
        }
    }
}

impl Drop for Scalable {
    fn drop(&mut self) {
        let seats = self.receives.with(std::mem::take);
        for seat in seats {
            if let Seat::Reserved(slot) = seat {
                self.domain.end(slot);
            }
        }
    }
}

static OPS: fi_ops = object::ops(close, bind, control);

static CONTEXTS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel: Some(nosys::size::two),
    getopt: Some(nosys::five),
    setopt: Some(nosys::five),
    tx_ctx: Some(open_transmit),
    rx_ctx: Some(open_receive),
    rx_size_left: Some(nosys::size::one),
    tx_size_left: Some(nosys::size::one),
};

static NAMES: fi_ops_cm = fi_ops_cm { getname: Some(getname), ..refused::NO_NAME };

/// Opens a scalable endpoint.
///
/// # Safety
/// The contract of `fi_scalable_ep(3)`.
pub(in super::super) unsafe fn open(
    domain: &Arc<Domain>,
    info: *mut fi_info,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or an info of libfabric's.
    let info = unsafe { copy(info) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    // SAFETY: the contract: NULL, or that part of the info; so are the next two.
    let attr = unsafe { copy(info.ep_attr.cast::<EpAttr>()) }?;
    // SAFETY: the same.
    let transmit = unsafe { optional(info.tx_attr) };
    // SAFETY: the same.
    let receive = unsafe { optional(info.rx_attr) };
    if !matches!(attr.kind, sys::FI_EP_RDM | sys::FI_EP_DGRAM) {
        return Err(Errno::INVAL);
    }
    let (transmits, receives) = (count(attr.tx_ctx_cnt)?, count(attr.rx_ctx_cnt)?);
    // SAFETY: the contract: NULL, or so many bytes in the form that the info names.
    let source = unsafe { name_at(info.addr_format, info.src_addr, info.src_addrlen) }?;
    if source.is_some_and(|name| name.kind == Kind::Bound && !context::has_room(name.cdm_id)) {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    let (name, slot) = named(domain, source, receives)?;
    let scalable = Scalable {
        domain: Arc::clone(domain),
        kind: attr.kind,
        caps: info.caps,
        addr_format: info.addr_format,
        name,
        place: domain.traffic.with(|traffic| traffic.place(slot)),
        transmit,
        receive,
        bound: EngineCell::new(Bound::default()),
        opened: AtomicU16::new(0),
        transmits: EngineCell::new((0..transmits).map(|_| Seat::Free).collect()),
        receives: EngineCell::new(vec![Seat::Reserved(slot)]),
    };
    for index in 1..receives {
        // What is taken already is given back with what holds it.
        let name = name.part(context::Part::Receive(index)).ok_or(Errno::INVAL)?;
        let (slot, _) = announce_at(domain, &name, scalable.place)?;
        scalable.receives.with(|seats| seats.push(Seat::Reserved(slot)));
    }
    let head = fid_ep {
        fid: fid_of::<Scalable>(context, &OPS),
        ops: std::ptr::from_ref(&CONTEXTS).cast_mut().cast(),
        cm: std::ptr::from_ref(&NAMES).cast_mut(),
        msg: std::ptr::from_ref(&tables::NEITHER.0).cast_mut(),
        rma: std::ptr::from_ref(&refused::MEMORY).cast_mut(),
        tagged: std::ptr::from_ref(&tables::NEITHER.1).cast_mut(),
        atomic: std::ptr::from_ref(&refused::ATOMIC).cast_mut(),
        collective: std::ptr::from_ref(&refused::COLLECTIVE).cast_mut(),
    };
    to.write(object::open(head, Arc::new(scalable)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a scalable endpoint", || unsafe { object::close::<Scalable>(fid) })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard("fi_scalable_ep_bind", || {
        // SAFETY: the contract of `fi_scalable_ep_bind(3)`: a scalable endpoint.
        let scalable = unsafe { body::<Scalable>(fid.cast()) }?;
        // SAFETY: the same: NULL, or an object that is open.
        match unsafe { object::class(other) }? {
            // SAFETY: the same.
            sys::FI_CLASS_AV => scalable.bind_av(unsafe { body(other.cast()) }?, flags),
            sys::FI_CLASS_EQ => {
                // SAFETY: the same.
                let eq = unsafe { body::<Eq>(other.cast()) }?;
                scalable.bind(|bound| &mut bound.eq, Arc::clone(eq), flags)
            }
            // Those are its contexts'.
            sys::FI_CLASS_CQ | sys::FI_CLASS_CNTR => Err(Errno::INVAL),
            _ => Err(Errno::NOSYS),
        }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    guard("fi_control of a scalable endpoint", || {
        // SAFETY: the contract of `fi_control(3)`.
        let scalable = unsafe { body::<Scalable>(fid.cast()) }?;
        if command == sys::FI_ENABLE { scalable.enable() } else { Err(Errno::NOSYS) }
    })
}

unsafe extern "C" fn getname(fid: *mut fid, to: *mut c_void, length: *mut usize) -> c_int {
    guard("fi_getname of a scalable endpoint", || {
        // SAFETY: the contract of `fi_getname(3)`.
        let scalable = unsafe { body::<Scalable>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { write_name(scalable.addr_format, &scalable.name, to, length) }
    })
}

/// Opens a context whose attributes have been agreed on, and writes them where its opener has asked for others.
///
/// # Safety
/// NULL, or attributes of the caller's, and NULL, or a variable of the caller's.
unsafe fn open_context<A: Copy>(
    scalable: &Arc<Scalable>,
    (side, index): (Side, c_int),
    (caps, flags): (u64, u64),
    (attr, agreed): (*mut A, A),
    (to, context): (*mut *mut fid_ep, *mut c_void),
) -> Outcome<()> {
    // SAFETY: the contract.
    let to = unsafe { Out::new(to) }?;
    let caps = directed(caps, scalable.caps, side);
    let part = scalable.context(side, index, &scalable.wish(caps, flags))?;
    // SAFETY: the contract.
    if let Ok(attr) = unsafe { Out::new(attr) } {
        attr.write(agreed);
    }
    let head = entry::head(&part, context);
    to.write(object::open(head, part));
    Ok(())
}

unsafe extern "C" fn open_transmit(
    ep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_tx_attr,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard("fi_tx_context", || {
        // SAFETY: the contract of `fi_tx_context(3)`: a scalable endpoint.
        let scalable = unsafe { body::<Scalable>(ep) }?;
        // SAFETY: the same: NULL, or attributes.
        let wish = unsafe { optional(attr) }.or(scalable.transmit);
        let agreed = offer::transmit(scalable.caps, wish.as_ref()).map_err(|_| Errno::INVAL)?;
        // SAFETY: the same, and NULL, or a variable of the caller's.
        unsafe {
            open_context(
                scalable,
                (Side::Transmit, index),
                (agreed.caps, agreed.op_flags),
                (attr, agreed),
                (to, context),
            )
        }
    })
}

unsafe extern "C" fn open_receive(
    ep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_rx_attr,
    to: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard("fi_rx_context", || {
        // SAFETY: the contract of `fi_rx_context(3)`: a scalable endpoint.
        let scalable = unsafe { body::<Scalable>(ep) }?;
        // SAFETY: the same: NULL, or attributes.
        let wish = unsafe { optional(attr) }.or(scalable.receive);
        let agreed = offer::receive(scalable.caps, wish.as_ref()).map_err(|_| Errno::INVAL)?;
        // SAFETY: the same, and NULL, or a variable of the caller's.
        unsafe {
            open_context(
                scalable,
                (Side::Receive, index),
                (agreed.caps, agreed.op_flags),
                (attr, agreed),
                (to, context),
            )
        }
    })
}
