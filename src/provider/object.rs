//! What C holds of an object, and what it is.
//!
//! libfabric's structure comes first, in memory that does not move until the object is closed; C writes to it. The object
//! itself is counted: whatever stands on it holds it, and it is not closed before they are gone (`-FI_EBUSY`). In a child of
//! fork(2) it is of no use (`-FI_EOPBADSTATE`), and closing it does nothing.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::errno::{Errno, Outcome};
use super::sys::{fi_ops, fid};
use crate::sync::fork;

/// A kind of object.
///
/// # Safety
/// `Head` is libfabric's structure for it, which begins with a `fid`, and objects with these classes are opened by [`open`]
/// only.
pub(super) unsafe trait Object: Send + Sync + 'static {
    /// libfabric's structure.
    type Head;
    /// What its `fclass` says,
    const CLASS: usize;
    /// unless it says one of these.
    const OTHER_CLASSES: &'static [usize] = &[];
}

/// What C has the address of.
#[repr(C)]
struct Shell<O: Object> {
    head: UnsafeCell<O::Head>,
    body: Arc<O>,
    /// Which process has opened it.
    origin: u32,
}

/// An object that is open from now on, until [`close`].
pub(super) fn open<O: Object>(head: O::Head, body: Arc<O>) -> *mut O::Head {
    Box::into_raw(Box::new(Shell { head: UnsafeCell::new(head), body, origin: fork::generation() })).cast()
}

/// The `fid` that an object begins with.
pub(super) fn fid_of<O: Object>(context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: O::CLASS, context, ops: std::ptr::from_ref(ops).cast_mut() }
}

/// The same of one that is of another of its classes.
pub(super) fn fid_of_class<O: Object>(class: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    debug_assert!(class == O::CLASS || O::OTHER_CLASSES.contains(&class));
    fid { fclass: class, ..fid_of::<O>(context, ops) }
}

/// The table with the functions that every object has.
pub(super) const fn ops(
    close: unsafe extern "C" fn(*mut fid) -> c_int,
    bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(no_ops_open),
        tostr: None,
        ops_set: None,
    }
}

/// The class of any object of libfabric's.
///
/// # Safety
/// NULL, or an object that is open.
pub(super) unsafe fn class(fid: *const fid) -> Outcome<usize> {
    if fid.is_null() || !fid.is_aligned() {
        return Err(Errno::INVAL);
    }
    // SAFETY: not null, hence open, hence a `fid`; the field is written before it is open, and never again.
    Ok(unsafe { (*fid).fclass })
}

/// The object behind what C holds.
///
/// # Safety
/// NULL, or an object that is open, of any class; of these only if it is ours.
#[inline(always)]
pub(super) unsafe fn body<'a, O: Object>(head: *const O::Head) -> Outcome<&'a Arc<O>> {
    // SAFETY: the contract.
    let shell = unsafe { shell::<O>(head) }?;
    if shell.origin == fork::generation() { Ok(&shell.body) } else { Err(Errno::OPBADSTATE) }
}

/// What C has the address of, whichever process has opened it.
///
/// # Safety
/// As [`body`].
#[inline(always)]
unsafe fn shell<'a, O: Object>(head: *const O::Head) -> Outcome<&'a Shell<O>> {
    // SAFETY: the contract; a `fid` comes first.
    let class = unsafe { class(head.cast()) }?;
    if class != O::CLASS && !O::OTHER_CLASSES.contains(&class) {
        return Err(Errno::INVAL);
    }
    // SAFETY: of such a class, hence opened by `open`, and not closed before the call ends. What C writes to is in a cell.
    Ok(unsafe { &*head.cast::<Shell<O>>() })
}

/// Closes an object that nothing stands on.
///
/// # Safety
/// As [`body`]; whoever else uses it has ended that.
pub(super) unsafe fn close<O: Object>(fid: *mut fid) -> Outcome<()> {
    // SAFETY: the contract.
    let shell = unsafe { shell::<O>(fid.cast()) }?;
    if shell.origin != fork::generation() {
        // Locks, threads and memory that it stands on are its parent's.
        return Ok(());
    }
    if Arc::strong_count(&shell.body) > 1 {
        return Err(Errno::BUSY);
    }
    // SAFETY: of this class, hence made by `open` of a box, and not used any more.
    drop(unsafe { Box::from_raw(fid.cast::<Shell<O>>()) });
    Ok(())
}

/// Nothing can be bound to it.
pub(super) unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -libc::ENOSYS
}

/// Nothing can be asked of it.
pub(super) unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}

unsafe extern "C" fn no_ops_open(
    _: *mut fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    -libc::ENOSYS
}
