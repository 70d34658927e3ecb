//! The library's own C functions.

use std::ffi::c_char;

/// The version of this library, as `major.minor.patch`. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
