//! The endpoint, `fi_endpoint(3)`: reliable datagrams (`FI_EP_RDM`), datagrams (`FI_EP_DGRAM`), which are the same here, and
//! connected ones (`FI_EP_MSG`), which are the same with one peer. A context of a scalable endpoint is one, too, that only
//! sends or only receives (`scalable`).
//!
//! Once it is enabled, what it needs is there: an address vector, unless it is connected, and for each direction that its
//! capabilities name a completion queue or counter; and the contexts that it shares with others. Nothing can be bound any
//! more then.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::argument::Foreign;
use super::av::Av;
use super::cm::{Request, Session};
use super::cntr::Counter;
use super::cq::Cq;
use super::domain::Domain;
use super::eq::Eq;
use super::errno::{Errno, Outcome};
use super::object::Object;
use super::resolve;
use super::shared::{Srx, Stx};
use super::sys::{self, fid_ep};
use super::traffic::Ends;
use super::watch::Owner;
use crate::gni::Place;
use crate::sync::EngineCell;
use crate::wire::gni::context;
use crate::wire::gni::name::{Kind, Name};

mod atomic;
mod connected;
mod entry;
mod refused;
mod rma;
mod scalable;
mod tables;
mod transfer;
mod trigger;
mod work;

pub(super) use atomic::query;
pub(super) use entry::open;
pub(super) use refused::{
    ATOMIC as NO_ATOMIC, COLLECTIVE as NO_COLLECTIVE, MEMORY as NO_MEMORY, NAMES as NO_NAMES,
};
pub(super) use scalable::open as open_scalable;
use scalable::{Part, Side};
pub(super) use transfer::{Memory, OF_RECEIVES};
pub(super) use work::queue;

/// Bytes that a buffer for several messages must have left for one more, until the program says otherwise.
const USUAL_LEAST: usize = 64;

/// What is bound to an endpoint.
#[derive(Default)]
struct Bound {
    av: Option<Arc<Av>>,
    eq: Option<Arc<Eq>>,
    /// Whose sends and receives it shares.
    stx: Option<Arc<Stx>>,
    srx: Option<Arc<Srx>>,
    transmit: Option<Direction>,
    receive: Option<Direction>,
    /// By the operation that they count: sends, receives, reads, writes, and those of peers.
    counters: [Option<Arc<Counter>>; COUNTED.len()],
}

/// Where operations of one direction end.
#[derive(Clone)]
pub struct Direction {
    /// The queue.
    pub cq: Arc<Cq>,
    /// Only what asks for it has an entry.
    pub is_selective: bool,
}

/// What counters can be bound for.
const COUNTED: [u64; 6] =
    [sys::FI_SEND, sys::FI_RECV, sys::FI_READ, sys::FI_WRITE, sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE];
/// Those of each side.
const TRANSMITS: u64 = sys::FI_SEND | sys::FI_READ | sys::FI_WRITE;
const RECEIVES: u64 = sys::FI_RECV | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// What an enabled endpoint has.
#[derive(Clone)]
pub struct Ready {
    /// Its peers.
    pub av: Arc<Av>,
    /// Where what it starts ends.
    pub transmit: Option<Direction>,
    /// Where what it receives ends.
    pub receive: Option<Direction>,
    counters: [Option<Arc<Counter>>; COUNTED.len()],
    slot: u32,
}

impl Ready {
    /// What counts this (`FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE`, `FI_REMOTE_READ` or `FI_REMOTE_WRITE`).
    pub fn counter(&self, what: u64) -> Option<&Arc<Counter>> {
        let index = COUNTED.iter().position(|counted| *counted == what)?;
        self.counters[index].as_ref()
    }
}

/// What an endpoint is opened with.
struct Wish {
    kind: u32,
    caps: u64,
    /// The connection that it is for.
    request: Option<Request>,
    shares_sends: bool,
    shares_receives: bool,
    addr_format: u32,
    source: Option<Name>,
    transmit_flags: u64,
    receive_flags: u64,
}

/// An endpoint.
pub struct Endpoint {
    /// What it is another view of.
    original: Option<Arc<Endpoint>>,
    domain: Arc<Domain>,
    caps: u64,
    addr_format: u32,
    /// Its connection, if it is of those that have one.
    session: Option<Arc<Session>>,
    /// What it is a context of, if it is one.
    part: Option<Part>,
    shares_sends: bool,
    shares_receives: bool,
    name: EngineCell<Name>,
    transmit_flags: AtomicU64,
    receive_flags: AtomicU64,
    least: AtomicUsize,
    bound: EngineCell<Bound>,
    ready: OnceLock<Ready>,
    /// Which endpoint it is of those that have traffic.
    slot: EngineCell<u32>,
}

// SAFETY: `fid_ep` is libfabric's structure of the classes; `entry::open` opens those of the first, `scalable` of the others.
unsafe impl Object for Endpoint {
    type Head = fid_ep;
    const CLASS: usize = sys::FI_CLASS_EP;
    const OTHER_CLASSES: &'static [usize] = &[sys::FI_CLASS_TX_CTX, sys::FI_CLASS_RX_CTX];
}

/// A cdm id that no other process is likely to have: above all that are port numbers. Processes begin far from each other
/// and may meet.
pub(super) fn fresh_cdm_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    1 << 31 | (std::process::id() << 9).wrapping_add(number)
}

/// How many of those are tried.
pub(super) const FRESH: u32 = 1 << 16;

/// A number that is greater for each endpoint that a node has: nanoseconds since it was started.
fn incarnation() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the callee fills the structure in, which is valid for writes; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether this node's endpoints can have the name: it is of this node, and no context's.
pub(super) fn check_own(name: &Name) -> Outcome<()> {
    let is_free = context::whole(name.cdm_id) == name.cdm_id && resolve::is_own(name.device)?;
    if is_free { Ok(()) } else { Err(Errno(libc::EADDRNOTAVAIL)) }
}

/// Has an endpoint of this name in the traffic of a domain, and in the name where other nodes reach it.
fn announce(domain: &Domain, name: &mut Name) -> Outcome<u32> {
    let place = resolve::place(name)?;
    let (slot, place) = announce_at(domain, name, place)?;
    (name.port, name.key) = place.map_or((0, [0; 16]), |place| (place.port, place.key));
    Ok(slot)
}

/// The same of one that other nodes are to reach there; where they do.
fn announce_at(domain: &Domain, name: &Name, place: Option<Place>) -> Outcome<(u32, Option<Place>)> {
    domain.traffic.with(|traffic| {
        let slot = traffic.open(resolve::at_home(name), place)?;
        Ok((slot, traffic.place(slot)))
    })
}

/// A name and a place in the traffic of a domain for an endpoint with so many receive contexts; 0: it is not scalable.
fn named(domain: &Domain, source: Option<Name>, contexts: u8) -> Outcome<(Name, u32)> {
    let incarnation = incarnation();
    match source {
        Some(name) if name.kind == Kind::Bound => {
            check_own(&name)?;
            let mut name = Name { incarnation, contexts, ..name };
            let slot = announce(domain, &mut name)?;
            Ok((name, slot))
        }
        source => {
            let device = source.map(|name| name.device);
            device.map_or(Ok(()), |device| check_own(&Name::bound(device, 1)))?;
            fresh(domain, device, incarnation, contexts)
        }
    }
}

/// A name that nobody has.
fn fresh(domain: &Domain, device: Option<Ipv4Addr>, incarnation: u64, contexts: u8) -> Outcome<(Name, u32)> {
    let device = device.map_or_else(resolve::device, Ok)?;
    for _ in 0..FRESH {
        let number = fresh_cdm_id();
        // Of those there are fewer bits: numbers of processes that follow each other are as far apart as may be.
        let cdm_id = if contexts == 0 { number } else { context::scalable(number >> 9 ^ number << 9) };
        let (bound, cm_nic) = (Name::bound(device, 0), cdm_id & 0x00FF_FFFF);
        let mut name = Name { cdm_id, cm_nic, kind: Kind::Unbound, incarnation, contexts, ..bound };
        match announce(domain, &mut name) {
            Err(Errno(libc::EADDRINUSE)) => {}
            outcome => return Ok((name, outcome?)),
        }
    }
    Err(Errno(libc::EADDRINUSE))
}

impl Endpoint {
    fn new(domain: Arc<Domain>, mut wish: Wish) -> Outcome<Self> {
        let session = match wish.kind {
            sys::FI_EP_MSG => Some(Arc::new(Session::new(&domain, wish.request.take())?)),
            _ => None,
        };
        let place = named(&domain, wish.source, 0)?;
        Ok(Self::at(domain, &wish, place, session, None))
    }

    /// One that has its place.
    fn at(
        domain: Arc<Domain>,
        wish: &Wish,
        (name, slot): (Name, u32),
        session: Option<Arc<Session>>,
        part: Option<Part>,
    ) -> Self {
        Self {
            original: None,
            domain,
            caps: wish.caps,
            addr_format: wish.addr_format,
            session,
            part,
            shares_sends: wish.shares_sends,
            shares_receives: wish.shares_receives,
            name: EngineCell::new(name),
            transmit_flags: AtomicU64::new(wish.transmit_flags),
            receive_flags: AtomicU64::new(wish.receive_flags),
            least: AtomicUsize::new(USUAL_LEAST),
            bound: EngineCell::new(Bound::default()),
            ready: OnceLock::new(),
            slot: EngineCell::new(slot),
        }
    }

    /// Which of the two it does, of a scalable endpoint.
    fn side(&self) -> Option<Side> {
        self.part.as_ref().map(|part| part.side)
    }

    /// What it was opened of.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Its own name.
    pub fn name(&self) -> Name {
        self.name.with(|name| *name)
    }

    /// What it has once it is enabled.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` before that.
    #[inline]
    pub fn ready(&self) -> Outcome<&Ready> {
        self.ready.get().ok_or(Errno::OPBADSTATE)
    }

    fn check_open(&self) -> Outcome<()> {
        if self.ready.get().is_some() { Err(Errno::OPBADSTATE) } else { Ok(()) }
    }

    fn rename(&self, name: Name) -> Outcome<()> {
        self.check_open()?;
        let mut name = Name { incarnation: incarnation(), contexts: 0, ..name };
        let own = self.name();
        check_own(&name)?;
        if (own.device, own.cdm_id) != (name.device, name.cdm_id) {
            let slot = announce(&self.domain, &mut name)?;
            let before = self.slot.with(|own| std::mem::replace(own, slot));
            self.domain.end(before);
            self.name.with(|own| *own = name);
        }
        Ok(())
    }

    /// Which endpoint it is of those that have traffic.
    #[inline(always)]
    fn slot(&self) -> u32 {
        self.ready.get().map_or_else(|| self.slot.with(|slot| *slot), |ready| ready.slot)
    }

    fn bind_av(&self, av: &Arc<Av>, flags: u64) -> Outcome<()> {
        self.check_bind(av.domain(), flags == 0)?;
        if self.session.is_some() {
            return Err(Errno::INVAL);
        }
        self.bound.with(|bound| set(&mut bound.av, Arc::clone(av)))
    }

    fn bind_eq(&self, eq: &Arc<Eq>, flags: u64) -> Outcome<()> {
        self.check_open()?;
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        self.bound.with(|bound| set(&mut bound.eq, Arc::clone(eq)))
    }

    fn bind_stx(&self, stx: &Arc<Stx>, flags: u64) -> Outcome<()> {
        self.check_bind(stx.domain(), flags == 0)?;
        if !self.shares_sends {
            return Err(Errno::INVAL);
        }
        self.bound.with(|bound| set(&mut bound.stx, Arc::clone(stx)))
    }

    fn bind_srx(&self, srx: &Arc<Srx>, flags: u64) -> Outcome<()> {
        self.check_bind(srx.domain(), flags == 0)?;
        if !self.shares_receives {
            return Err(Errno::INVAL);
        }
        self.bound.with(|bound| set(&mut bound.srx, Arc::clone(srx)))
    }

    fn bind_cq(&self, cq: &Arc<Cq>, flags: u64) -> Outcome<()> {
        let directions = flags & (sys::FI_SEND | sys::FI_RECV);
        let known = (sys::FI_SEND | sys::FI_RECV) & self.counted() | sys::FI_SELECTIVE_COMPLETION;
        self.check_bind(cq.domain(), directions != 0 && flags & !known == 0)?;
        let is_selective = flags & sys::FI_SELECTIVE_COMPLETION != 0;
        let direction = Direction { cq: Arc::clone(cq), is_selective };
        self.bound.with(|bound| {
            let sends = directions & sys::FI_SEND != 0;
            let receives = directions & sys::FI_RECV != 0;
            if sends && bound.transmit.is_some() || receives && bound.receive.is_some() {
                return Err(Errno::INVAL);
            }
            if sends {
                bound.transmit = Some(direction.clone());
            }
            if receives {
                bound.receive = Some(direction);
            }
            Ok(())
        })
    }

    fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Outcome<()> {
        self.check_bind(counter.domain(), flags != 0 && flags & !self.counted() == 0)?;
        self.bound.with(|bound| {
            let wanted = |index: &usize| flags & COUNTED[*index] != 0;
            if (0..COUNTED.len()).filter(wanted).any(|index| bound.counters[index].is_some()) {
                return Err(Errno::INVAL);
            }
            for index in (0..COUNTED.len()).filter(wanted) {
                bound.counters[index] = Some(Arc::clone(counter));
            }
            Ok(())
        })
    }

    /// What ends here, and may be counted.
    fn counted(&self) -> u64 {
        match self.side() {
            None => TRANSMITS | RECEIVES,
            Some(Side::Transmit) => TRANSMITS,
            Some(Side::Receive) => RECEIVES,
        }
    }

    fn check_bind(&self, domain: &Arc<Domain>, is_flagged: bool) -> Outcome<()> {
        self.check_open()?;
        if !is_flagged {
            return Err(Errno::BADFLAGS);
        }
        if Arc::ptr_eq(domain, &self.domain) { Ok(()) } else { Err(Errno::DOMAIN) }
    }

    /// What it has when it is enabled, and the receives that it shares.
    fn prepared(&self) -> Outcome<(Ready, Option<Arc<Srx>>)> {
        self.check_open()?;
        let starts = self.caps & TRANSMITS;
        let receives = self.caps & sys::FI_RECV;
        self.bound.with(|bound| {
            let av = match (&self.session, &self.part) {
                (Some(session), _) => Arc::clone(session.peer()),
                (None, Some(part)) => part.of.av().ok_or(Errno::NOAV)?,
                (None, None) => bound.av.clone().ok_or(Errno::NOAV)?,
            };
            if self.shares_sends && bound.stx.is_none() || self.shares_receives && bound.srx.is_none() {
                return Err(Errno::OPBADSTATE);
            }
            let counts = |what: u64| {
                COUNTED
                    .iter()
                    .zip(&bound.counters)
                    .any(|(flag, counter)| what & flag != 0 && counter.is_some())
            };
            let is_heard =
                |what, direction: &Option<Direction>| what == 0 || direction.is_some() || counts(what);
            if !is_heard(starts, &bound.transmit) || !is_heard(receives, &bound.receive) {
                return Err(Errno::NOCQ);
            }
            let (transmit, receive) = (bound.transmit.clone(), bound.receive.clone());
            let slot = self.slot.with(|slot| *slot);
            let ready = Ready { av, transmit, receive, counters: bound.counters.clone(), slot };
            Ok((ready, bound.srx.clone()))
        })
    }

    fn enable(&self) -> Outcome<()> {
        let (ready, srx) = self.prepared()?;
        let ends = Ends {
            av: Arc::clone(&ready.av),
            transmit: ready.transmit.clone(),
            receive: ready.receive.clone(),
            sends: ready.counter(sys::FI_SEND).cloned(),
            receives: ready.counter(sys::FI_RECV).cloned(),
            reads: ready.counter(sys::FI_READ).cloned(),
            writes: ready.counter(sys::FI_WRITE).cloned(),
            remote_reads: ready.counter(sys::FI_REMOTE_READ).cloned(),
            remote_writes: ready.counter(sys::FI_REMOTE_WRITE).cloned(),
            takes: self.caps & sys::FI_RECV != 0,
            regions: Arc::clone(&self.domain.regions),
            rights: self.caps & (sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE),
            is_directed: self.caps & sys::FI_DIRECTED_RECV != 0 && self.session.is_none(),
            tells_source: self.caps & sys::FI_SOURCE != 0,
            queue: srx.map(|srx| Arc::clone(srx.queue())),
        };
        let slot = ready.slot;
        // What the system may not give comes first: it can be tried again.
        self.domain.help()?;
        self.ready.set(ready).map_err(|_| Errno::OPBADSTATE)?;
        self.domain.traffic.with(|traffic| traffic.enable(slot, ends))
    }

    /// The flags of operations that name none, of one direction.
    fn flags(&self, direction: u64) -> Outcome<&AtomicU64> {
        match direction & (sys::FI_SEND | sys::FI_RECV) {
            known if known & !self.counted() != 0 => Err(Errno::INVAL),
            sys::FI_SEND => Ok(&self.transmit_flags),
            sys::FI_RECV => Ok(&self.receive_flags),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.original.is_some() {
            return;
        }
        let slot = self.slot();
        self.domain.end(slot);
        if let Some(session) = &self.session
            && let Some(eq) = self.bound.with(|bound| bound.eq.take())
        {
            let fid = session.fid.get().copied().unwrap_or(Foreign::NULL);
            eq.leave(&Owner::Session(Arc::clone(session)), fid);
        }
    }
}

/// What may be bound once.
fn set<T>(place: &mut Option<T>, value: T) -> Outcome<()> {
    if place.is_some() {
        return Err(Errno::INVAL);
    }
    *place = Some(value);
    Ok(())
}
