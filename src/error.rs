//! The one internal vocabulary of failure.
//!
//! Small and `Copy`, so that it can travel on hot paths. It is turned into a host's code at the
//! edge, in `host`, by a total `match`; the text for people is made where the failure is first known.

use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::OnceLock;

/// What went wrong, without the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Memory or another bounded resource is used up.
    OutOfResource,
    /// The peer cannot be addressed.
    Unreachable,
    /// The message is longer than the provider carries.
    MessageTooBig,
    /// What was asked for is not there.
    NotFound,
    /// An argument or parameter is out of its range.
    BadParameter,
    /// The provider or the host lacks the function.
    Unsupported,
    /// A libfabric call failed with this positive code (`fi_errno(3)`).
    Fabric(i32),
    /// A host call failed with this code.
    Host(i32),
}

/// The result of nearly everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfResource => f.write_str("out of resources"),
            Self::Unreachable => f.write_str("peer unreachable"),
            Self::MessageTooBig => f.write_str("message too big"),
            Self::NotFound => f.write_str("not found"),
            Self::BadParameter => f.write_str("bad parameter"),
            Self::Unsupported => f.write_str("not supported"),
            Self::Fabric(code) => write!(f, "libfabric error {code}"),
            Self::Host(code) => write!(f, "Open MPI error {code}"),
        }
    }
}

impl std::error::Error for Error {}

static REFUSAL: OnceLock<CString> = OnceLock::new();

/// Notes why the host that loaded the library was refused; the first reason stays.
pub fn note_refusal(why: &str) {
    let _ = REFUSAL.set(CString::new(why).unwrap_or_default());
}

/// Why the host that loaded the library was refused; empty when it was not.
pub fn refusal() -> &'static CStr {
    REFUSAL.get().map_or(c"", CString::as_c_str)
}
