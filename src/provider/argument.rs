//! What C passes, made into values: one proof for each kind of argument.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use super::errno::{Errno, Outcome};

/// An address of the caller's that is only handed back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign(pub *mut c_void);

// SAFETY: nothing here reads or writes there.
unsafe impl Send for Foreign {}
// SAFETY: the same.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// None.
    pub const NULL: Self = Self(std::ptr::null_mut());
}

/// A variable of the caller's for a result.
pub(super) struct Out<'a, V>(*mut V, PhantomData<&'a mut V>);

impl<V> Out<'_, V> {
    /// # Safety
    /// NULL, or room for a value, which is nobody else's for the time of the call.
    pub(super) unsafe fn new(raw: *mut V) -> Outcome<Self> {
        if raw.is_null() || !raw.is_aligned() { Err(Errno::INVAL) } else { Ok(Self(raw, PhantomData)) }
    }

    pub(super) fn write(&self, value: V) {
        // SAFETY: not null and aligned, as `new` has seen, and room for a value by its contract.
        unsafe { self.0.write(value) };
    }
}

/// A copy of a structure of the caller's, or of how it begins.
///
/// # Safety
/// NULL, or a value of this type for the time of the call.
pub(super) unsafe fn copy<V: Copy>(raw: *const V) -> Outcome<V> {
    if raw.is_null() || !raw.is_aligned() {
        return Err(Errno::INVAL);
    }
    // SAFETY: not null and aligned; the rest is the contract.
    Ok(unsafe { raw.read() })
}

/// The same of one that may be left out.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn optional<V: Copy>(raw: *const V) -> Option<V> {
    // SAFETY: the contract of this function.
    unsafe { copy(raw) }.ok()
}

/// An array of the caller's, which may be empty.
///
/// # Safety
/// NULL, or so many values, which nobody writes to for the time of the call.
pub(super) unsafe fn array<'a, V>(start: *const V, count: usize) -> Outcome<&'a [V]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() || count > isize::MAX as usize / size_of::<V>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: not null, aligned, no longer than any object; the rest is the contract.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Room of the caller's for several values.
pub(super) struct Room<'a, V>(*mut V, usize, PhantomData<&'a mut V>);

impl<V> Room<'_, V> {
    /// # Safety
    /// NULL, or room for so many values, which is nobody else's for the time of the call.
    pub(super) unsafe fn new(start: *mut V, count: usize) -> Self {
        Self(start, if start.is_null() || !start.is_aligned() { 0 } else { count }, PhantomData)
    }

    /// Whether there is any.
    pub(super) fn is_there(&self) -> bool {
        self.1 != 0
    }

    /// Writes the value at this place, if the caller wants it.
    pub(super) fn write(&self, index: usize, value: V) {
        if index < self.1 {
            let place = self.0.wrapping_add(index);
            // SAFETY: one of the places that `new` was promised.
            unsafe { place.write(value) };
        }
    }
}

impl Room<'_, u8> {
    /// Writes as much of the bytes as there is room for.
    pub(super) fn fill(&self, bytes: &[u8]) {
        let length = bytes.len().min(self.1);
        if length != 0 {
            // SAFETY: so many bytes on both sides: of ours, and of the room that `new` was promised, which is nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, length) };
        }
    }
}

/// A text of the caller's; `None` is NULL.
///
/// # Safety
/// NULL, or a zero-ended text, unchanged for the time of the call.
pub(super) unsafe fn text<'a>(raw: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null where it is looked at; the rest is the contract.
    (!raw.is_null()).then(|| unsafe { CStr::from_ptr(raw) })
}
