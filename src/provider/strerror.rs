//! What an error of the provider's is called: as libfabric calls it.

use std::ffi::{CStr, c_char, c_int};

use super::argument::Room;
use super::library::Library;

/// The text of a positive code, in the caller's room if there is any.
///
/// # Safety
/// `buffer` is NULL, or room for so many bytes.
pub(super) unsafe fn describe(code: c_int, buffer: *mut c_char, length: usize) -> *const c_char {
    let known = Library::kept().map_or(std::ptr::null(), |library| library.describe(code));
    let text = if known.is_null() { c"unknown error".as_ptr() } else { known };
    // SAFETY: the contract.
    let room = unsafe { Room::new(buffer.cast::<u8>(), length) };
    if !room.is_there() {
        return text;
    }
    // SAFETY: a text of libfabric's, which lives as long as that, or a literal.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let kept = bytes.len().min(length - 1);
    room.fill(&bytes[..kept]);
    room.write(kept, 0);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_ends_within_the_room() {
        let mut room = [b'x' as c_char; 8];
        // SAFETY: eight bytes.
        let text = unsafe { describe(5, room.as_mut_ptr(), room.len()) };
        // SAFETY: within the room.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"unknown");
    }
}
