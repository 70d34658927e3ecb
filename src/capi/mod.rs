//! The library's own C functions.

use std::ffi::c_char;

/// The version of this library, as `major.minor.patch`. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Why the Open MPI that loaded this library was refused; an empty text when it was accepted or
/// when there is none. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_refusal() -> *const c_char {
    crate::error::refusal().as_ptr()
}
