//! What C hands over, made into Rust values once, at the entry.

use std::cell::UnsafeCell;
use std::marker::PhantomPinned;

/// A structure that the host reads and writes whenever it likes. There is never a reference to the
/// inside, not even while a reference to what holds it exists: fields are reached by raw pointers.
#[repr(transparent)]
pub(super) struct Opaque<T> {
    inside: UnsafeCell<T>,
    /// The host has the address.
    _pinned: PhantomPinned,
}

impl<T> Opaque<T> {
    pub(super) const fn new(inside: T) -> Self {
        Self { inside: UnsafeCell::new(inside), _pinned: PhantomPinned }
    }
}

/// An array of the host's, read at once: it may change while we call out.
///
/// # Safety
/// `start` is valid for reads of `count` values, unless `count` is 0.
pub(super) unsafe fn copied<T: Copy>(start: *const T, count: usize) -> Vec<T> {
    if count == 0 || start.is_null() {
        return Vec::new();
    }
    // SAFETY: not null and `count` not 0, so the caller has `count` values there; they are copied at once.
    unsafe { std::slice::from_raw_parts(start, count) }.to_vec()
}

/// Writes the host's variable, if it passed one.
///
/// # Safety
/// Null, or valid for a write of `T`.
#[inline]
pub(super) unsafe fn write<T>(variable: *mut T, value: T) {
    if !variable.is_null() {
        // SAFETY: not null, so the caller has a variable of this type there.
        unsafe { variable.write(value) };
    }
}

/// Writes as many values as there are to an array of the host's.
///
/// # Safety
/// Null, or valid for writes of as many values as `values` gives.
pub(super) unsafe fn write_all<T>(start: *mut T, values: impl Iterator<Item = T>) {
    if start.is_null() {
        return;
    }
    for (index, value) in values.enumerate() {
        // SAFETY: the caller has as many places there as values, and this is value number `index`.
        let place = unsafe { start.add(index) };
        // SAFETY: one of those places, which may be written.
        unsafe { place.write(value) };
    }
}

/// A text of C's, copied.
///
/// # Safety
/// Null, or zero-ended and unchanged during the call.
pub(super) unsafe fn text(start: *const std::ffi::c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller has a zero-ended text there, which nobody changes meanwhile.
    Some(unsafe { std::ffi::CStr::from_ptr(start) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_nothing() {
        // SAFETY: no values are claimed.
        assert!(unsafe { copied::<u32>(std::ptr::null(), 0) }.is_empty());
        // SAFETY: null.
        unsafe { write(std::ptr::null_mut(), 1) };
        // SAFETY: null.
        unsafe { write_all(std::ptr::null_mut(), [1, 2].into_iter()) };
        // SAFETY: null.
        assert_eq!(unsafe { text(std::ptr::null()) }, None);
    }

    #[test]
    fn arrays_are_read_and_written_whole() {
        let mut numbers = [1, 2, 3];
        // SAFETY: three numbers.
        assert_eq!(unsafe { copied(numbers.as_ptr(), 3) }, [1, 2, 3]);
        // SAFETY: room for three.
        unsafe { write_all(numbers.as_mut_ptr(), [4, 5].into_iter()) };
        assert_eq!(numbers, [4, 5, 3]);
        // SAFETY: a literal.
        assert_eq!(unsafe { text(c"a".as_ptr()) }.as_deref(), Some("a"));
    }
}
