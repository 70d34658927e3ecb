//! What C passes, made into values: one proof for each kind of argument.

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

use super::code::{HAWSER_ERR_ABI, HAWSER_ERR_ARGUMENT, Outcome};
use super::host::{text, value};
use crate::link::Lent;

/// A variable of the caller's for a result.
pub(super) struct Out<'a, V>(*mut V, PhantomData<&'a mut V>);

impl<V> Out<'_, V> {
    /// # Safety
    /// NULL, or room for a value, which is nobody else's for the time of the call.
    pub(super) unsafe fn new(raw: *mut V) -> Outcome<Self> {
        if raw.is_null() || !raw.is_aligned() { Err(HAWSER_ERR_ARGUMENT) } else { Ok(Self(raw, PhantomData)) }
    }

    pub(super) fn write(&self, value: V) {
        // SAFETY: not null and aligned, as `new` has seen, and room for a value by its contract.
        unsafe { self.0.write(value) };
    }
}

/// Bytes of the caller's, which may be none. What is longer than any object is refused.
///
/// # Safety
/// So many bytes, as [`Lent::new`] wants them, if the address is not NULL.
pub(super) unsafe fn bytes(start: *const c_void, length: usize) -> Outcome<Lent> {
    if length == 0 {
        return Ok(Lent::EMPTY);
    }
    if start.is_null() || length > isize::MAX as usize || start.addr().checked_add(length).is_none() {
        return Err(HAWSER_ERR_ARGUMENT);
    }
    // SAFETY: the contract of this function.
    Ok(unsafe { Lent::new(start.cast_mut().cast(), length) })
}

/// Whether an address may be that of so many values; none may be anywhere.
pub(super) fn check_room<V>(start: *const V, count: usize) -> Outcome<()> {
    let is_one = !start.is_null() && start.is_aligned() && count <= isize::MAX as usize / size_of::<V>();
    if count == 0 || is_one { Ok(()) } else { Err(HAWSER_ERR_ARGUMENT) }
}

/// An array of the caller's, which may be empty.
///
/// # Safety
/// So many values that nobody writes to for the time of the call, if the address is not NULL.
pub(super) unsafe fn array<'a, V>(start: *const V, count: usize) -> Outcome<&'a [V]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_room(start, count)?;
    // SAFETY: not null, aligned, no longer than any object; the rest is the contract.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// The size that a structure of the caller's says, which is that of this version at least.
///
/// # Safety
/// NULL, or a structure that begins with its size.
pub(super) unsafe fn sized<V>(raw: *const V) -> Outcome<usize> {
    // SAFETY: the contract of this function; only the size is read.
    let size = unsafe { value(raw.cast::<usize>()) }.copied()?;
    if size < size_of::<V>() { Err(HAWSER_ERR_ABI) } else { Ok(size) }
}

/// A text of the caller's, which ends with zero.
///
/// # Safety
/// NULL, or such a text.
pub(super) unsafe fn name(raw: *const c_char) -> Outcome<String> {
    // SAFETY: the contract of this function.
    unsafe { text(raw) }.ok_or(HAWSER_ERR_ARGUMENT)
}
