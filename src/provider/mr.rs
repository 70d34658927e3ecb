//! The memory region, `fi_mr(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::argument::{Out, array, copy};
use super::cntr::Counter;
use super::domain::Domain;
use super::errno::{Errno, Outcome};
use super::guard::guard;
use super::object::{self, Object, body, fid_of};
use super::regions::Access;
use super::sys::{self, MrAttr, MrAttrDevice, MrAttrKey, fi_ops, fi_ops_mr, fid, fid_mr, iovec};

/// A registration, until it is closed.
struct Region {
    domain: Arc<Domain>,
    key: u64,
}

// SAFETY: `fid_mr` is libfabric's structure of the class, and `register` below opens those.
unsafe impl Object for Region {
    type Head = fid_mr;
    const CLASS: usize = sys::FI_CLASS_MR;
}

impl Drop for Region {
    fn drop(&mut self) {
        // Nobody is at work there once it is closed.
        self.domain.traffic.with(|_| self.domain.regions.deregister(self.key));
    }
}

static OPS: fi_ops = object::ops(close, bind, object::no_control);

/// What a domain registers memory with.
pub(super) static TABLE: fi_ops_mr =
    fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(reg), regv: Some(regv), regattr: Some(regattr) };

/// What is to be registered.
struct Wish {
    start: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// Registers memory.
///
/// # Safety
/// `domain` is NULL or open; `to` is NULL or a variable of the caller's. The memory is the caller's until it is closed.
unsafe fn register(domain: *mut fid, wish: &Wish, to: *mut *mut fid_mr) -> Outcome<()> {
    // SAFETY: the contract.
    let domain = unsafe { body::<Domain>(domain.cast()) }?;
    // SAFETY: the contract.
    let to = unsafe { Out::new(to) }?;
    // The offset is reserved, and must be 0.
    if wish.offset != 0 || wish.flags & !sys::FI_RMA_EVENT != 0 {
        return Err(Errno::INVAL);
    }
    let start = wish.start.expose_provenance();
    let key = domain.regions.register(start, wish.length, wish.access, wish.key)?;
    let region = Region { domain: Arc::clone(domain), key };
    let head = fid_mr { fid: fid_of::<Region>(wish.context, &OPS), mem_desc: std::ptr::null_mut(), key };
    to.write(object::open(head, Arc::new(region)));
    Ok(())
}

/// The one piece of memory of a registration.
///
/// # Safety
/// NULL, or so many pieces.
unsafe fn only(pieces: *const iovec, count: usize) -> Outcome<iovec> {
    // SAFETY: the contract.
    match unsafe { array(pieces, count) }? {
        [piece] => Ok(*piece),
        _ => Err(Errno::INVAL),
    }
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    start: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    to: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let wish = Wish { start, length, access, offset, key, flags, context };
    // SAFETY: the contract of `fi_mr_reg(3)`.
    guard("fi_mr_reg", || unsafe { register(domain, &wish, to) })
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    pieces: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    to: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    guard("fi_mr_regv", || {
        // SAFETY: the contract of `fi_mr_regv(3)`.
        let piece = unsafe { only(pieces, count) }?;
        let wish = Wish { start: piece.iov_base, length: piece.iov_len, access, offset, key, flags, context };
        // SAFETY: the same.
        unsafe { register(domain, &wish, to) }
    })
}

unsafe extern "C" fn regattr(
    domain: *mut fid,
    attr: *const sys::fi_mr_attr,
    flags: u64,
    to: *mut *mut fid_mr,
) -> c_int {
    guard("fi_mr_regattr", || {
        // SAFETY: the contract of `fi_mr_regattr(3)`: a domain.
        let version = unsafe { body::<Domain>(domain.cast()) }?.fabric.version;
        // SAFETY: the same: attributes, which begin so in every version.
        let wish = unsafe { copy(attr.cast::<MrAttr>()) }?;
        if version >= sys::version(1, 5) {
            // SAFETY: the same: they go on so in this version.
            let key = unsafe { copy(attr.cast::<MrAttrKey>()) }?;
            if key.auth_key_size != 0 {
                return Err(Errno::INVAL);
            }
        }
        if version >= sys::version(1, 9) {
            // SAFETY: the same.
            let device = unsafe { copy(attr.cast::<MrAttrDevice>()) }?;
            // Memory of the system is all that there is (`FI_HMEM_SYSTEM`).
            if device.iface != 0 {
                return Err(Errno::NOSYS);
            }
        }
        // SAFETY: the same: so many pieces.
        let piece = unsafe { only(wish.mr_iov, wish.iov_count) }?;
        let wish = Wish {
            start: piece.iov_base,
            length: piece.iov_len,
            access: wish.access,
            offset: wish.offset,
            key: wish.requested_key,
            flags,
            context: wish.context,
        };
        // SAFETY: the same.
        unsafe { register(domain, &wish, to) }
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of an mr", || unsafe { object::close::<Region>(fid) })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard("fi_mr_bind", || {
        // SAFETY: the contract of `fi_mr_bind(3)`: a region.
        let region = unsafe { body::<Region>(fid.cast()) }?;
        // SAFETY: the same: NULL, or an object that is open.
        if unsafe { object::class(other) }? != sys::FI_CLASS_CNTR {
            return Err(Errno::NOSYS);
        }
        // SAFETY: the same.
        let counter = unsafe { body::<Counter>(other.cast()) }?;
        if flags & !(sys::FI_REMOTE_WRITE | sys::FI_REMOTE_READ) != 0 || flags == 0 {
            return Err(Errno::BADFLAGS);
        }
        if !Arc::ptr_eq(counter.domain(), &region.domain) {
            return Err(Errno::DOMAIN);
        }
        region.domain.regions.count_by(region.key, counter, Access(flags))
    })
}
