//! The passive endpoint, `fi_passive_ep(3)`: what connected endpoints (`FI_EP_MSG`) are asked for at.

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::argument::{Foreign, Out, Room, array, copy};
use super::cm::Passive;
use super::endpoint::{FRESH, check_own, fresh_cdm_id};
use super::eq::Eq;
use super::errno::{Errno, Outcome};
use super::fabric::Fabric;
use super::guard::guard;
use super::info::{Wanted, form, name_at};
use super::object::{self, Object, body, fid_of};
use super::sys::{self, OpsEp, fi_info, fi_ops, fi_ops_cm, fid, fid_pep};
use super::watch::Owner;
use super::{nosys, resolve};
use crate::gni::session::Listener;
use crate::sync::EngineCell;
use crate::wire::gni::cm::DATA;
use crate::wire::gni::name::{Kind, Name};

/// What is bound to it.
#[derive(Default)]
struct Bound {
    eq: Option<Arc<Eq>>,
    is_listening: bool,
}

/// A passive endpoint.
pub(super) struct Pep {
    passive: Arc<Passive>,
    bound: EngineCell<Bound>,
}

// SAFETY: `fid_pep` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Pep {
    type Head = fid_pep;
    const CLASS: usize = sys::FI_CLASS_PEP;
}

/// A name and its socket: the one that is asked for, or one that nobody has.
fn place(wish: Option<Name>) -> Outcome<(Name, Listener)> {
    let listen = |name: &Name| {
        Listener::new(name.device.to_bits(), name.cdm_id)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EADDRINUSE)))
    };
    if let Some(name) = wish.filter(|name| name.kind == Kind::Bound) {
        check_own(&name)?;
        return Ok((name, listen(&name)?));
    }
    let device: Ipv4Addr = resolve::device()?;
    for _ in 0..FRESH {
        let cdm_id = fresh_cdm_id();
        let bound = Name::bound(device, 0);
        let name = Name { cdm_id, cm_nic: cdm_id & 0x00FF_FFFF, kind: Kind::Unbound, ..bound };
        match listen(&name) {
            Err(Errno(libc::EADDRINUSE)) => {}
            outcome => return Ok((name, outcome?)),
        }
    }
    Err(Errno(libc::EADDRINUSE))
}

impl Pep {
    fn bind(&self, eq: &Arc<Eq>, flags: u64) -> Outcome<()> {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        if !Arc::ptr_eq(eq.fabric(), self.passive.fabric()) {
            return Err(Errno::INVAL);
        }
        self.bound.with(|bound| {
            if bound.eq.is_some() {
                return Err(Errno::INVAL);
            }
            bound.eq = Some(Arc::clone(eq));
            Ok(())
        })
    }

    fn listen(&self) -> Outcome<()> {
        self.bound.with(|bound| {
            let eq = bound.eq.as_ref().ok_or(Errno::NOEQ)?;
            if bound.is_listening {
                return Err(Errno::OPBADSTATE);
            }
            self.passive
                .listener()
                .listen()
                .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
            eq.watch(|watch| watch.listen(&self.passive))?;
            bound.is_listening = true;
            Ok(())
        })
    }

    fn rename(&self, name: Name) -> Outcome<()> {
        self.bound.with(|bound| {
            if bound.is_listening {
                return Err(Errno::OPBADSTATE);
            }
            let own = self.passive.name();
            if (own.device, own.cdm_id) != (name.device, name.cdm_id) {
                let (name, listener) = place(Some(Name { kind: Kind::Bound, ..name }))?;
                self.passive.rename(name, listener);
            }
            Ok(())
        })
    }
}

impl Drop for Pep {
    fn drop(&mut self) {
        if let Some(eq) = self.bound.with(|bound| bound.eq.take()) {
            let fid = self.passive.fid.get().copied().unwrap_or(Foreign::NULL);
            eq.leave(&Owner::Passive(Arc::clone(&self.passive)), fid);
        }
    }
}

static OPS: fi_ops = object::ops(close, bind, object::no_control);

static OPTIONS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel: Some(nosys::size::two),
    getopt: Some(getopt),
    setopt: Some(nosys::five),
    tx_ctx: Some(nosys::five),
    rx_ctx: Some(nosys::five),
    rx_size_left: Some(nosys::size::one),
    tx_size_left: Some(nosys::size::one),
};

static NAMES: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(nosys::three),
    connect: Some(nosys::four),
    listen: Some(listen),
    accept: Some(nosys::three),
    reject: Some(reject),
    shutdown: Some(nosys::two),
    join: Some(nosys::five),
};

/// Opens a passive endpoint.
///
/// # Safety
/// The contract of `fi_passive_ep(3)`.
pub(super) unsafe fn open(
    fabric: &Arc<Fabric>,
    info: *mut fi_info,
    to: *mut *mut fid_pep,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or an info of libfabric's.
    let wanted = unsafe { Wanted::read(info) }?.ok_or(Errno::INVAL)?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    if wanted.ep.is_none_or(|ep| ep.kind != sys::FI_EP_MSG) {
        return Err(Errno::INVAL);
    }
    let place = place(wanted.source)?;
    let passive = Arc::new(Passive::new(Arc::clone(fabric), wanted, place)?);
    let head = fid_pep {
        fid: fid_of::<Pep>(context, &OPS),
        ops: std::ptr::from_ref(&OPTIONS).cast_mut().cast(),
        cm: std::ptr::from_ref(&NAMES).cast_mut(),
    };
    let pep = Pep { passive: Arc::clone(&passive), bound: EngineCell::new(Bound::default()) };
    let raw = object::open(head, Arc::new(pep));
    // It is the first.
    let _ = passive.fid.set(Foreign(raw.cast()));
    to.write(raw);
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a passive endpoint", || unsafe { object::close::<Pep>(fid) })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard("fi_pep_bind", || {
        // SAFETY: the contract of `fi_pep_bind(3)`: a passive endpoint.
        let pep = unsafe { body::<Pep>(fid.cast()) }?;
        // SAFETY: the same: an event queue.
        pep.bind(unsafe { body::<Eq>(other.cast()) }?, flags)
    })
}

unsafe extern "C" fn listen(pep: *mut fid_pep) -> c_int {
    guard("fi_listen", || {
        // SAFETY: the contract of `fi_listen(3)`.
        unsafe { body::<Pep>(pep) }?.listen()
    })
}

unsafe extern "C" fn reject(
    pep: *mut fid_pep,
    handle: *mut fid,
    data: *const c_void,
    length: usize,
) -> c_int {
    guard("fi_reject", || {
        // SAFETY: the contract of `fi_reject(3)`: a passive endpoint.
        let pep = unsafe { body::<Pep>(pep) }?;
        // SAFETY: the same: so many bytes.
        let data = unsafe { array(data.cast::<u8>(), length) }?;
        let own = pep.passive.name();
        pep.passive.fabric().requests.with(|requests| requests.reject(handle, own, data))
    })
}

/// Answers how much data goes with a connection.
///
/// # Safety
/// The contract of `fi_getopt(3)` for `FI_OPT_CM_DATA_SIZE`.
pub(super) unsafe fn data_size(to: *mut c_void, length: *mut usize) -> Outcome<()> {
    // SAFETY: the contract: a variable of the caller's, with a value.
    let room = unsafe { copy(length) }?;
    // SAFETY: the same.
    unsafe { Out::new(length) }?.write(size_of::<usize>());
    if room < size_of::<usize>() {
        return Err(Errno::TOOSMALL);
    }
    // SAFETY: the same: it is long enough.
    unsafe { Out::<usize>::new(to.cast()) }?.write(DATA);
    Ok(())
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    option: c_int,
    to: *mut c_void,
    length: *mut usize,
) -> c_int {
    guard("fi_getopt", || {
        // SAFETY: the contract of `fi_getopt(3)`: a passive endpoint.
        unsafe { body::<Pep>(fid.cast()) }?;
        if (level, option) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_CM_DATA_SIZE) {
            return Err(Errno::NOPROTOOPT);
        }
        // SAFETY: the same.
        unsafe { data_size(to, length) }
    })
}

/// Writes a name where C wants it.
///
/// # Safety
/// The contract of `fi_getname(3)`.
pub(super) unsafe fn write_name(
    format: u32,
    name: &Name,
    to: *mut c_void,
    length: *mut usize,
) -> Outcome<()> {
    // SAFETY: the contract: a variable of the caller's, with a value.
    let room = unsafe { copy(length) }?;
    // SAFETY: the same.
    let length = unsafe { Out::new(length) }?;
    let bytes = form(format, name);
    length.write(bytes.len());
    // SAFETY: the same: NULL, or so many bytes.
    let to = unsafe { Room::new(to.cast::<u8>(), room) };
    to.fill(&bytes);
    if room < bytes.len() || !to.is_there() { Err(Errno::TOOSMALL) } else { Ok(()) }
}

unsafe extern "C" fn getname(fid: *mut fid, to: *mut c_void, length: *mut usize) -> c_int {
    guard("fi_getname", || {
        // SAFETY: the contract of `fi_getname(3)`.
        let pep = unsafe { body::<Pep>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { write_name(pep.passive.addr_format(), &pep.passive.name(), to, length) }
    })
}

unsafe extern "C" fn setname(fid: *mut fid, address: *mut c_void, length: usize) -> c_int {
    guard("fi_setname", || {
        // SAFETY: the contract of `fi_setname(3)`.
        let pep = unsafe { body::<Pep>(fid.cast()) }?;
        // SAFETY: the same: so many bytes, in the form of the endpoint.
        let name = unsafe { name_at(pep.passive.addr_format(), address, length) }?;
        pep.rename(name.ok_or(Errno::INVAL)?)
    })
}
