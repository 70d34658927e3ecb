//! The fabric, `fi_fabric(3)`: what domains and event queues are opened of.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use super::argument::{Out, array, copy, text};
use super::cm::Requests;
use super::errno::{Errno, Outcome};
use super::guard::guard;
use super::object::{self, Object, body, fid_of};
use super::offer::FABRIC;
use super::sys::{
    self, fi_eq_attr, fi_fabric_attr, fi_info, fi_ops, fi_ops_fabric, fi_wait_attr, fid, fid_domain, fid_eq,
    fid_fabric, fid_pep, fid_wait,
};
use super::wait_set::WaitSet;
use super::{cntr, cq, domain, eq, pep, wait_set};
use crate::sync::EngineCell;

/// A fabric.
pub struct Fabric {
    /// The interface version that the program asked for.
    pub(super) version: u32,
    /// Who wants to be connected, and is to be answered.
    pub(super) requests: EngineCell<Requests>,
}

impl Fabric {
    pub(super) fn new(version: u32) -> Self {
        Self { version, requests: EngineCell::new(Requests::default()) }
    }
}

// SAFETY: `fid_fabric` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Fabric {
    type Head = fid_fabric;
    const CLASS: usize = sys::FI_CLASS_FABRIC;
}

static OPS: fi_ops = object::ops(close, object::no_bind, object::no_control);

static TABLE: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: Some(passive_ep),
    eq_open: Some(open_eq),
    wait_open: Some(open_wait),
    trywait: Some(try_wait),
    domain2: Some(open_domain2),
};

/// Opens a fabric.
///
/// # Safety
/// The contract of `fi_fabric(3)`.
pub(super) unsafe fn open(
    attr: *mut fi_fabric_attr,
    to: *mut *mut fid_fabric,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    // SAFETY: the contract: NULL, or a text.
    let name: Option<&CStr> = unsafe { text(attr.name) };
    if name != Some(FABRIC) {
        return Err(Errno::INVAL);
    }
    let head = fid_fabric {
        fid: fid_of::<Fabric>(context, &OPS),
        ops: std::ptr::from_ref(&TABLE).cast_mut(),
        api_version: attr.api_version,
    };
    to.write(object::open(head, Arc::new(Fabric::new(attr.api_version))));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a fabric", || unsafe { object::close::<Fabric>(fid) })
}

unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    to: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    guard("fi_domain", || {
        // SAFETY: the contract of `fi_domain(3)`.
        let fabric = unsafe { body(fabric) }?;
        // SAFETY: the same.
        unsafe { domain::open(fabric, info, to, context) }
    })
}

unsafe extern "C" fn open_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    to: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guard("fi_domain2", || {
        // With a flag, a domain shares something with a peer provider, which this one does not.
        if flags != 0 {
            return Err(Errno::NOSYS);
        }
        // SAFETY: the contract of `fi_domain(3)`.
        let fabric = unsafe { body(fabric) }?;
        // SAFETY: the same.
        unsafe { domain::open(fabric, info, to, context) }
    })
}

unsafe extern "C" fn open_eq(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    to: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    guard("fi_eq_open", || {
        // SAFETY: the contract of `fi_eq_open(3)`.
        let fabric = unsafe { body(fabric) }?;
        // SAFETY: the same.
        unsafe { eq::open(fabric, attr, to, context) }
    })
}

unsafe extern "C" fn open_wait(
    fabric: *mut fid_fabric,
    attr: *mut fi_wait_attr,
    to: *mut *mut fid_wait,
) -> c_int {
    guard("fi_wait_open", || {
        // SAFETY: the contract of `fi_wait_open(3)`.
        let fabric = unsafe { body(fabric) }?;
        // SAFETY: the same.
        unsafe { wait_set::open(fabric, attr, to) }
    })
}

unsafe extern "C" fn passive_ep(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    to: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    guard("fi_passive_ep", || {
        // SAFETY: the contract of `fi_passive_ep(3)`.
        let fabric = unsafe { body(fabric) }?;
        // SAFETY: the same.
        unsafe { pep::open(fabric, info, to, context) }
    })
}

unsafe extern "C" fn try_wait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    guard("fi_trywait", || {
        // SAFETY: the contract of `fi_trywait(3)`: a fabric.
        unsafe { body::<Fabric>(fabric) }?;
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        // SAFETY: the same: so many objects.
        let fids = unsafe { array(fids.cast_const(), count) }?;
        for &fid in fids {
            // SAFETY: the same: an object that is open.
            match unsafe { object::class(fid) }? {
                // SAFETY: the same.
                sys::FI_CLASS_EQ => unsafe { body::<eq::Eq>(fid.cast()) }?.try_wait()?,
                // SAFETY: the same.
                sys::FI_CLASS_CQ => unsafe { body::<cq::Cq>(fid.cast()) }?.try_wait()?,
                // SAFETY: the same.
                sys::FI_CLASS_CNTR => unsafe { body::<cntr::Counter>(fid.cast()) }?.try_wait()?,
                // SAFETY: the same.
                sys::FI_CLASS_WAIT => unsafe { body::<WaitSet>(fid.cast()) }?.try_wait()?,
                _ => return Err(Errno::NOSYS),
            }
        }
        Ok(())
    })
}
