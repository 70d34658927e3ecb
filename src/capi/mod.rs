//! The library's own C functions.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// The version of this library, as `major.minor.patch`. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

static VERDICT: OnceLock<CString> = OnceLock::new();

/// Why the host that loaded this library was refused, or an empty text when it was accepted or when
/// no host was found. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_refusal() -> *const c_char {
    VERDICT.get().map_or(c"".as_ptr(), |text| text.as_ptr())
}

/// Notes why the host was refused.
pub fn note_refusal(text: &str) {
    let _ = VERDICT.set(CString::new(text).unwrap_or_default());
}
