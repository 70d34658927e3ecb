//! The one internal vocabulary of failure.
//!
//! Small and `Copy`, so that it can travel on hot paths. It is turned into a host's code at the
//! edge, in `host`, by a total `match`; the text for people is made where the failure is first known.

use std::fmt;

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
