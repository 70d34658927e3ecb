//! The functions in an endpoint's tables that move no data.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::argument::{Foreign, Out, copy, optional};
use super::super::domain::Domain;
use super::super::errno::{Errno, Outcome};
use super::super::guard::{guard, size};
use super::super::info::name_at;
use super::super::nosys;
use super::super::object::{self, body, fid_of_class};
use super::super::pep::{data_size, write_name};
use super::super::sys::{self, Alias, EpAttr, OpsEp, fi_info, fi_ops, fi_ops_cm, fid, fid_ep};
use super::scalable::Side;
use super::{Endpoint, Wish, atomic, connected, refused, rma, tables};
use crate::wire::gni::name::Name;

static OPS: fi_ops = object::ops(close, bind, control);

static ENDPOINT: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(nosys::five),
    rx_ctx: Some(nosys::five),
    rx_size_left: Some(nosys::size::one),
    tx_size_left: Some(nosys::size::one),
};

/// Of those that are connected, with more.
const fn names(is_connected: bool) -> fi_ops_cm {
    fi_ops_cm {
        size: size_of::<fi_ops_cm>(),
        setname: Some(setname),
        getname: Some(getname),
        getpeer: Some(if is_connected { connected::getpeer } else { nosys::three }),
        connect: Some(if is_connected { connected::connect } else { nosys::four }),
        listen: Some(nosys::one),
        accept: Some(if is_connected { connected::accept } else { nosys::three }),
        reject: Some(nosys::four),
        shutdown: Some(if is_connected { connected::shutdown } else { nosys::two }),
        join: Some(nosys::five),
    }
}

static NAMES: fi_ops_cm = names(false);

static CONNECTED: fi_ops_cm = names(true);

/// Opens an endpoint.
///
/// # Safety
/// The contract of `fi_endpoint(3)`.
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
    let transmit = unsafe { optional(info.tx_attr) }.unwrap_or_default();
    // SAFETY: the same.
    let receive = unsafe { optional(info.rx_attr) }.unwrap_or_default();
    if !matches!(attr.kind, sys::FI_EP_RDM | sys::FI_EP_DGRAM | sys::FI_EP_MSG) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the contract: NULL, or so many bytes in the form that the info names.
    let source = unsafe { name_at(info.addr_format, info.src_addr, info.src_addrlen) }?;
    let is_connected = attr.kind == sys::FI_EP_MSG;
    let request = if is_connected && !info.handle.is_null() {
        let taken = domain.fabric.requests.with(|requests| requests.take(info.handle));
        Some(taken.ok_or(Errno::INVAL)?)
    } else {
        None
    };
    // The name of a request is that at which it was asked for.
    let source: Option<Name> = source.filter(|_| request.is_none());
    let wish = Wish {
        kind: attr.kind,
        caps: info.caps,
        request,
        shares_sends: attr.tx_ctx_cnt == sys::FI_SHARED_CONTEXT,
        shares_receives: attr.rx_ctx_cnt == sys::FI_SHARED_CONTEXT,
        addr_format: info.addr_format,
        source,
        transmit_flags: transmit.op_flags,
        receive_flags: receive.op_flags,
    };
    let endpoint = Arc::new(Endpoint::new(Arc::clone(domain), wish)?);
    let head = head(&endpoint, context);
    let session = endpoint.session.clone();
    let raw = object::open(head, endpoint);
    if let Some(session) = session {
        // It is the first.
        let _ = session.fid.set(Foreign(raw.cast()));
    }
    to.write(raw);
    Ok(())
}

/// What C has of an endpoint.
pub(super) fn head(endpoint: &Endpoint, context: *mut c_void) -> fid_ep {
    let (class, messages, names) = match endpoint.side() {
        None if endpoint.session.is_some() => (sys::FI_CLASS_EP, &tables::BOTH, &CONNECTED),
        None => (sys::FI_CLASS_EP, &tables::BOTH, &NAMES),
        Some(Side::Transmit) => (sys::FI_CLASS_TX_CTX, &tables::SENDS, &refused::NAMES),
        Some(Side::Receive) => (sys::FI_CLASS_RX_CTX, &tables::RECEIVES, &refused::NAMES),
    };
    let initiates = |what| endpoint.caps & what != 0 && endpoint.side() != Some(Side::Receive);
    let memory = if initiates(sys::FI_RMA) { &rma::MEMORY } else { &refused::MEMORY };
    let values = if initiates(sys::FI_ATOMIC) { &atomic::ATOMIC } else { &refused::ATOMIC };
    fid_ep {
        fid: fid_of_class::<Endpoint>(class, context, &OPS),
        ops: std::ptr::from_ref(&ENDPOINT).cast_mut().cast(),
        cm: std::ptr::from_ref(names).cast_mut(),
        msg: std::ptr::from_ref(&messages.0).cast_mut(),
        rma: std::ptr::from_ref(memory).cast_mut(),
        tagged: std::ptr::from_ref(&messages.1).cast_mut(),
        atomic: std::ptr::from_ref(values).cast_mut(),
        collective: std::ptr::from_ref(&refused::COLLECTIVE).cast_mut(),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of an endpoint", || unsafe { object::close::<Endpoint>(fid) })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard("fi_ep_bind", || {
        // SAFETY: the contract of `fi_ep_bind(3)`: an endpoint.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        // SAFETY: the same: NULL, or an object that is open.
        match unsafe { object::class(other) }? {
            sys::FI_CLASS_AV | sys::FI_CLASS_EQ if endpoint.side().is_some() => Err(Errno::INVAL),
            // SAFETY: the same.
            sys::FI_CLASS_AV => endpoint.bind_av(unsafe { body(other.cast()) }?, flags),
            // SAFETY: the same.
            sys::FI_CLASS_EQ => endpoint.bind_eq(unsafe { body(other.cast()) }?, flags),
            // SAFETY: the same.
            sys::FI_CLASS_CQ => endpoint.bind_cq(unsafe { body(other.cast()) }?, flags),
            // SAFETY: the same.
            sys::FI_CLASS_CNTR => endpoint.bind_counter(unsafe { body(other.cast()) }?, flags),
            // SAFETY: the same.
            sys::FI_CLASS_STX_CTX => endpoint.bind_stx(unsafe { body(other.cast()) }?, flags),
            // SAFETY: the same.
            sys::FI_CLASS_SRX_CTX => endpoint.bind_srx(unsafe { body(other.cast()) }?, flags),
            _ => Err(Errno::NOSYS),
        }
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of an endpoint", || {
        // SAFETY: the contract of `fi_control(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        let flags: *mut u64 = argument.cast();
        match command {
            sys::FI_ENABLE => endpoint.enable(),
            sys::FI_GETOPSFLAG => {
                // SAFETY: the contract of `fi_endpoint(3)` for this command: a variable with a direction.
                let direction = unsafe { copy(flags) }?;
                // SAFETY: the same.
                let out = unsafe { Out::new(flags) }?;
                out.write(endpoint.flags(direction)?.load(Ordering::Relaxed));
                Ok(())
            }
            sys::FI_SETOPSFLAG => {
                // SAFETY: the same: flags, one of which is a direction.
                let wanted = unsafe { copy(flags) }?;
                let value = wanted & !(sys::FI_SEND | sys::FI_RECV);
                endpoint.flags(wanted)?.store(value, Ordering::Relaxed);
                Ok(())
            }
            sys::FI_ALIAS => {
                // SAFETY: the contract of `fi_endpoint(3)` for this command: a `struct fi_alias`.
                let wanted = unsafe { copy(argument.cast::<Alias>()) }?;
                // SAFETY: the same: NULL, or a variable of the caller's.
                let to = unsafe { Out::new(wanted.fid) }?;
                let alias = Arc::new(Endpoint::alias(endpoint, wanted.flags)?);
                let head = head(&alias, std::ptr::null_mut());
                to.write(object::open(head, alias).cast());
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    })
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    size("fi_cancel", || {
        // SAFETY: the contract of `fi_cancel(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        let slot = endpoint.slot();
        endpoint.domain.traffic.with(|traffic| traffic.cancel(slot, Foreign(context)))?;
        Ok(0)
    })
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    option: c_int,
    to: *mut c_void,
    length: *mut usize,
) -> c_int {
    guard("fi_getopt", || {
        // SAFETY: the contract of `fi_getopt(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        if (level, option) == (sys::FI_OPT_ENDPOINT, sys::FI_OPT_CM_DATA_SIZE) && endpoint.session.is_some() {
            // SAFETY: the same.
            return unsafe { data_size(to, length) };
        }
        if (level, option) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno::NOPROTOOPT);
        }
        // SAFETY: the same: a variable of the caller's, with a value.
        let room = unsafe { copy(length) }?;
        // SAFETY: the same.
        let length = unsafe { Out::new(length) }?;
        length.write(size_of::<usize>());
        if room < size_of::<usize>() {
            return Err(Errno::TOOSMALL);
        }
        // SAFETY: the same: it is long enough.
        let to = unsafe { Out::<usize>::new(to.cast()) }?;
        to.write(endpoint.least.load(Ordering::Relaxed));
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    option: c_int,
    from: *const c_void,
    length: usize,
) -> c_int {
    guard("fi_setopt", || {
        // SAFETY: the contract of `fi_setopt(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        if (level, option) != (sys::FI_OPT_ENDPOINT, sys::FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno::NOPROTOOPT);
        }
        if length != size_of::<usize>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the same: so many bytes.
        endpoint.least.store(unsafe { copy(from.cast::<usize>()) }?, Ordering::Relaxed);
        Ok(())
    })
}

unsafe extern "C" fn getname(fid: *mut fid, to: *mut c_void, length: *mut usize) -> c_int {
    guard("fi_getname", || {
        // SAFETY: the contract of `fi_getname(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { write_name(endpoint.addr_format, &endpoint.name(), to, length) }
    })
}

unsafe extern "C" fn setname(fid: *mut fid, address: *mut c_void, length: usize) -> c_int {
    guard("fi_setname", || {
        // SAFETY: the contract of `fi_setname(3)`.
        let endpoint = unsafe { body::<Endpoint>(fid.cast()) }?;
        // SAFETY: the same: so many bytes, in the form of the endpoint.
        let name = unsafe { name_at(endpoint.addr_format, address, length) }?;
        endpoint.rename(name.ok_or(Errno::INVAL)?)
    })
}
