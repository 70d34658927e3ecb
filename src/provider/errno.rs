//! [`Errno`]: what a call of libfabric's failed with, `fi_errno(3)`.

use crate::error::Error;

/// A positive code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of nearly everything here.
pub type Outcome<T> = Result<T, Errno>;

impl Errno {
    /// There is no such thing.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// Not now: make progress, and ask again.
    pub const AGAIN: Self = Self(libc::EAGAIN);
    /// Out of memory.
    pub const NOMEM: Self = Self(libc::ENOMEM);
    /// Others still use it.
    pub const BUSY: Self = Self(libc::EBUSY);
    /// An argument that cannot be right.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// Not a function of this provider.
    pub const NOSYS: Self = Self(libc::ENOSYS);
    /// Nothing that fits.
    pub const NODATA: Self = Self(libc::ENODATA);
    /// Not an option that is known.
    pub const NOPROTOOPT: Self = Self(libc::ENOPROTOOPT);
    /// Its time is over.
    pub const TIMEDOUT: Self = Self(libc::ETIMEDOUT);
    /// Access that was not granted.
    pub const ACCES: Self = Self(libc::EACCES);
    /// It was cancelled.
    pub const CANCELED: Self = Self(libc::ECANCELED);
    /// A panic, which is told on standard error.
    pub const OTHER: Self = Self(256);
    /// The room for the result is too small.
    pub const TOOSMALL: Self = Self(257);
    /// Not in this state.
    pub const OPBADSTATE: Self = Self(258);
    /// An error is to be read.
    pub const AVAIL: Self = Self(259);
    /// These flags do not go together.
    pub const BADFLAGS: Self = Self(260);
    /// An event queue is missing.
    pub const NOEQ: Self = Self(261);
    /// It belongs to another domain.
    pub const DOMAIN: Self = Self(262);
    /// A completion queue is missing.
    pub const NOCQ: Self = Self(263);
    /// The key is taken, or not one.
    pub const NOKEY: Self = Self(266);
    /// An address vector is missing.
    pub const NOAV: Self = Self(267);
}

/// What a failed system call says.
impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

/// What came of something that was wanted of the system.
impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NOENT,
            Error::OutOfResource => Self::NOMEM,
            Error::System(code) => Self(code),
            _ => Self::INVAL,
        }
    }
}
