//! The address vector, `fi_av(3)`: a process's own, or with a name, by which others of the node open it, too.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::argument::{Foreign, Out, Room, array, copy, text};
use super::domain::Domain;
use super::eq::{Eq, Failure};
use super::errno::{Errno, Outcome};
use super::guard::{count, guard, guard_or};
use super::info::{UNTOLD, form, name_at};
use super::names::{Known, NOBODY, Names, Numbers};
use super::object::{self, Object, body, fid_of};
use super::shared_names::SharedNames;
use super::sys::{self, OpsAv, fi_av_attr, fi_ops, fid, fid_av};
use super::{nosys, resolve};
use crate::shm::Access;
use crate::sync::EngineCell;
use crate::wire::gni::context::MOST_BITS;
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::name::{LEN, Name};

/// An address vector.
pub struct Av {
    domain: Arc<Domain>,
    /// Insertions are told of by the event queue.
    is_asynchronous: bool,
    events: OnceLock<Arc<Eq>>,
    /// How many of an address's upper bits say which receive context is meant (`fi_rx_addr`).
    context_bits: u32,
    names: Held,
}

/// Whose the peers are.
enum Held {
    /// This process's, and how often they have changed.
    Here(EngineCell<Names>, AtomicU64),
    /// All processes' that open the name.
    Named(SharedNames),
}

impl Held {
    fn here(numbers: Numbers) -> Self {
        Self::Here(EngineCell::new(Names::new(numbers)), AtomicU64::new(1))
    }

    fn insert(&self, peer: Known) -> Outcome<u64> {
        match self {
            Self::Here(names, version) => {
                let number = names.with(|names| names.insert(peer));
                version.fetch_add(1, Ordering::Release);
                number
            }
            Self::Named(names) => names.insert(&peer),
        }
    }

    fn remove(&self, number: u64) -> Outcome<()> {
        match self {
            Self::Here(names, version) => {
                let removed = names.with(|names| names.remove(number));
                version.fetch_add(1, Ordering::Release);
                removed.map(drop)
            }
            Self::Named(names) => names.remove(number),
        }
    }

    /// Whether they may be changed.
    fn check_writable(&self) -> Outcome<()> {
        match self {
            Self::Named(names) if !names.is_writable() => Err(Errno::ACCES),
            _ => Ok(()),
        }
    }
}

// SAFETY: `fid_av` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Av {
    type Head = fid_av;
    const CLASS: usize = sys::FI_CLASS_AV;
}

/// What an insertion has found, one after the other.
type Found = Vec<Outcome<Name>>;

impl Av {
    pub(super) fn new(domain: Arc<Domain>, attr: &fi_av_attr, name: Option<&CStr>) -> Outcome<Self> {
        let numbers = match (attr.type_, domain.av_type) {
            (sys::FI_AV_MAP, 0 | sys::FI_AV_MAP) | (0, sys::FI_AV_MAP) => Some(Numbers::Map),
            (sys::FI_AV_TABLE, 0 | sys::FI_AV_TABLE) | (0, sys::FI_AV_TABLE) => Some(Numbers::Table),
            (0, _) => None,
            _ => return Err(Errno::INVAL),
        };
        if attr.flags & !(sys::FI_EVENT | sys::FI_READ) != 0 {
            return Err(Errno::INVAL);
        }
        let context_bits = u32::try_from(attr.rx_ctx_bits).ok().filter(|bits| *bits <= MOST_BITS);
        let context_bits = context_bits.ok_or(Errno::INVAL)?;
        let names = match name {
            Some(name) => {
                let access = if attr.flags & sys::FI_READ != 0 { Access::Read } else { Access::Write };
                Held::Named(SharedNames::open(name.to_bytes(), numbers, attr.count, access)?)
            }
            // What nobody else has is there to be written to.
            None if attr.flags & sys::FI_READ != 0 => return Err(Errno::INVAL),
            None => Held::here(numbers.unwrap_or(Numbers::Table)),
        };
        let is_asynchronous = attr.flags & sys::FI_EVENT != 0;
        Ok(Self { domain, is_asynchronous, events: OnceLock::new(), context_bits, names })
    }

    /// The attributes as its opener is to see them: what was left to the provider is filled in.
    fn told(&self, attr: fi_av_attr) -> fi_av_attr {
        let (numbers, map) = match &self.names {
            Held::Here(names, _) => (names.with(|names| names.numbers()), attr.map_addr),
            Held::Named(names) if attr.map_addr.is_null() => (names.numbers(), names.map().cast_mut().cast()),
            Held::Named(names) => (names.numbers(), attr.map_addr),
        };
        fi_av_attr { type_: numbers.kind(), map_addr: map, ..attr }
    }

    /// What it was opened of.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Who that is, or which receive context of whom.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    #[inline]
    pub fn get(&self, number: u64) -> Outcome<Known> {
        let whole = self.whole(number);
        let known = match &self.names {
            Held::Here(names, _) => names.with(|names| names.get(whole).copied()),
            Held::Named(names) => names.get(whole),
        };
        if whole == number {
            return known;
        }
        let index = u8::try_from(number >> (u64::BITS - self.context_bits)).map_err(|_| Errno::INVAL)?;
        known?.receiving(index).ok_or(Errno::INVAL)
    }

    /// The number of a peer without that of a receive context.
    #[inline]
    pub fn whole(&self, number: u64) -> u64 {
        match self.context_bits {
            0 => number,
            bits => number << bits >> bits,
        }
    }

    /// One that no program sees, for the other side of a connection.
    pub(super) fn of_one(domain: Arc<Domain>) -> Self {
        let names = Held::here(Numbers::Table);
        Self { domain, is_asynchronous: false, events: OnceLock::new(), context_bits: 0, names }
    }

    /// Adds a peer.
    ///
    /// # Errors
    /// `FI_ENOMEM`: there are too many.
    pub(super) fn add(&self, peer: Known) -> Outcome<u64> {
        self.names.insert(peer)
    }

    /// Another number each time that it has changed.
    #[inline(always)]
    pub fn version(&self) -> u64 {
        match &self.names {
            Held::Here(_, version) => version.load(Ordering::Acquire),
            Held::Named(names) => names.version(),
        }
    }

    /// The number of a peer.
    pub fn find(&self, peer: &NameId) -> Option<u64> {
        match &self.names {
            Held::Here(names, _) => names.with(|names| names.find(peer)),
            Held::Named(names) => names.find(peer),
        }
    }

    /// All peers, as they are named.
    pub fn each(&self, say: impl FnMut(&NameId)) {
        match &self.names {
            Held::Here(names, _) => names.with(|names| names.each(say)),
            Held::Named(names) => names.each(say),
        }
    }

    /// Adds what was found, and says so as the caller wants it; answers what the call answers.
    fn insert(&self, found: Found, told: &Told<'_>) -> Outcome<c_int> {
        self.names.check_writable()?;
        let events = match (self.is_asynchronous, self.events.get()) {
            (false, _) => None,
            (true, Some(events)) => Some(events),
            (true, None) => return Err(Errno::NOEQ),
        };
        let mut inserted = 0;
        let own = resolve::own()?;
        for (index, outcome) in found.into_iter().enumerate() {
            let peer = outcome.map(|name| resolve::known(name, &own));
            let number = peer.and_then(|peer| self.names.insert(peer));
            told.numbers.write(index, number.unwrap_or(NOBODY));
            match number {
                Ok(_) => inserted += 1,
                Err(Errno(code)) => {
                    if let Some(events) = events {
                        events.fail(Failure {
                            fid: told.av,
                            context: told.context,
                            data: index as u64,
                            code,
                            said: Vec::new(),
                        });
                    }
                }
            }
            told.errors.write(index, number.err().map_or(0, |error| error.0));
        }
        let Some(events) = events else { return Ok(inserted) };
        events.complete(sys::FI_AV_COMPLETE, told.av, told.context, inserted as u64);
        Ok(0)
    }
}

/// Where an insertion writes what has become of it.
struct Told<'a> {
    av: Foreign,
    context: Foreign,
    numbers: Room<'a, u64>,
    errors: Room<'a, c_int>,
}

impl Told<'_> {
    /// # Safety
    /// NULL, or room for so many numbers; with `FI_SYNC_ERR`, the context is room for as many codes.
    unsafe fn new(
        av: *mut fid_av,
        numbers: *mut u64,
        count: usize,
        flags: u64,
        context: *mut c_void,
    ) -> Outcome<Self> {
        if flags & !(sys::FI_MORE | sys::FI_SYNC_ERR) != 0 {
            return Err(Errno::INVAL);
        }
        let errors = if flags & sys::FI_SYNC_ERR != 0 { context.cast() } else { std::ptr::null_mut() };
        // SAFETY: the contract.
        let numbers = unsafe { Room::new(numbers, count) };
        // SAFETY: the contract.
        let errors = unsafe { Room::new(errors, count) };
        Ok(Self { av: Foreign(av.cast()), context: Foreign(context), numbers, errors })
    }
}

static OPS: fi_ops = object::ops(close, bind, object::no_control);

static TABLE: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(nosys::four),
};

/// Opens an address vector.
///
/// # Safety
/// The contract of `fi_av_open(3)`.
pub(super) unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut fi_av_attr,
    to: *mut *mut fid_av,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let wish = unsafe { copy(attr) }?;
    // SAFETY: the same.
    let attr = unsafe { Out::new(attr) }?;
    // SAFETY: the same: NULL, or a text.
    let name = unsafe { text(wish.name) };
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    let av = Av::new(Arc::clone(domain), &wish, name)?;
    let told = av.told(wish);
    if (told.type_, told.map_addr) != (wish.type_, wish.map_addr) {
        // Only then: who has left nothing out may keep them where nothing can be written.
        attr.write(told);
    }
    let head = fid_av { fid: fid_of::<Av>(context, &OPS), ops: std::ptr::from_ref(&TABLE).cast_mut().cast() };
    to.write(object::open(head, Arc::new(av)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of an av", || unsafe { object::close::<Av>(fid) })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard("fi_av_bind", || {
        // SAFETY: the contract of `fi_av_bind(3)`: an address vector.
        let av = unsafe { body::<Av>(fid.cast()) }?;
        // SAFETY: the same: NULL, or an object that is open.
        let events = unsafe { body::<Eq>(other.cast()) }?;
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        av.events.set(Arc::clone(events)).map_err(|_| Errno::INVAL)
    })
}

/// The addresses of an insertion, in the form that the domain's users have.
///
/// # Safety
/// So many names, or with `FI_ADDR_STR` so many texts.
unsafe fn names_at(format: u32, start: *const c_void, count: usize) -> Outcome<Found> {
    if format == sys::FI_ADDR_STR {
        // SAFETY: the contract: so many texts.
        let texts = unsafe { array(start.cast::<*const c_char>(), count) }?;
        // SAFETY: the contract: NULL, or a text.
        let name = |at: &*const c_char| unsafe { name_at(format, at.cast(), UNTOLD) };
        return Ok(texts.iter().map(|at| name(at)?.ok_or(Errno::INVAL)).collect());
    }
    // SAFETY: the contract: so many names.
    let names = unsafe { array(start.cast::<[u8; LEN]>(), count) }?;
    Ok(names.iter().map(|bytes| Name::parse(bytes).ok_or(Errno::INVAL)).collect())
}

unsafe extern "C" fn insert(
    fid: *mut fid_av,
    addresses: *const c_void,
    number: usize,
    to: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    count("fi_av_insert", || {
        // SAFETY: the contract of `fi_av_insert(3)`.
        let av = unsafe { body::<Av>(fid) }?;
        // SAFETY: the same.
        let told = unsafe { Told::new(fid, to, number, flags, context) }?;
        // SAFETY: the same.
        let found = unsafe { names_at(av.domain.addr_format, addresses, number) }?;
        av.insert(found, &told)
    })
}

unsafe extern "C" fn insertsvc(
    fid: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    to: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `fi_av_insertsvc(3)`.
    unsafe { insertsym(fid, node, 1, service, 1, to, flags, context) }
}

unsafe extern "C" fn insertsym(
    fid: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    to: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    count("fi_av_insertsym", || {
        // SAFETY: the contract of `fi_av_insertsym(3)`.
        let av = unsafe { body::<Av>(fid) }?;
        // SAFETY: the same: a text.
        let node = unsafe { text(node) }.ok_or(Errno::INVAL)?;
        // SAFETY: the same.
        let service = unsafe { text(service) }.ok_or(Errno::INVAL)?;
        let number = nodes.checked_mul(services).filter(|number| *number <= 1 << 24).ok_or(Errno::INVAL)?;
        // SAFETY: the same: room for all of them.
        let told = unsafe { Told::new(fid, to, number, flags, context) }?;
        av.insert(resolve::symmetric(node, nodes, service, services)?, &told)
    })
}

unsafe extern "C" fn remove(fid: *mut fid_av, numbers: *mut u64, number: usize, flags: u64) -> c_int {
    guard("fi_av_remove", || {
        // SAFETY: the contract of `fi_av_remove(3)`.
        let av = unsafe { body::<Av>(fid) }?;
        // SAFETY: the same: so many numbers.
        let numbers = unsafe { array(numbers.cast_const(), number) }?;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        av.names.check_writable()?;
        // What is there is removed, whatever else is not.
        let failed = numbers.iter().filter(|number| av.names.remove(**number).is_err()).count();
        if failed == 0 { Ok(()) } else { Err(Errno::INVAL) }
    })
}

unsafe extern "C" fn lookup(fid: *mut fid_av, number: u64, to: *mut c_void, length: *mut usize) -> c_int {
    guard("fi_av_lookup", || {
        // SAFETY: the contract of `fi_av_lookup(3)`.
        let av = unsafe { body::<Av>(fid) }?;
        // SAFETY: the same: a variable of the caller's, with a value.
        let room = unsafe { copy(length) }?;
        // SAFETY: the same.
        let length = unsafe { Out::new(length) }?;
        let bytes = form(av.domain.addr_format, &av.get(av.whole(number))?.name);
        // SAFETY: the same: NULL, or so many bytes.
        unsafe { Room::new(to.cast::<u8>(), room) }.fill(&bytes);
        length.write(bytes.len());
        Ok(())
    })
}

unsafe extern "C" fn straddr(
    fid: *mut fid_av,
    address: *const c_void,
    to: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    guard_or("fi_av_straddr", std::ptr::null(), || {
        let write = || {
            // SAFETY: the contract of `fi_av_straddr(3)`.
            let av = unsafe { body::<Av>(fid) }?;
            let format = av.domain.addr_format;
            let told = if format == sys::FI_ADDR_STR { UNTOLD } else { LEN };
            // SAFETY: the same: a name in the form of the domain.
            let name = unsafe { name_at(format, address, told) }?.ok_or(Errno::INVAL)?;
            // SAFETY: the same: a variable of the caller's, with a value.
            let room = unsafe { copy(length) }?;
            // SAFETY: the same.
            let length = unsafe { Out::new(length) }?;
            let bytes = form(sys::FI_ADDR_STR, &name);
            // SAFETY: the same: NULL, or so many bytes.
            let to = unsafe { Room::new(to.cast::<u8>(), room) };
            to.fill(&bytes);
            if room < bytes.len() && to.is_there() {
                // A text ends, however little of it there is.
                to.write(room - 1, 0);
            }
            length.write(bytes.len());
            Ok::<(), Errno>(())
        };
        if write().is_ok() { to } else { std::ptr::null() }
    })
}
