//! libibverbs and librdmacm as owned Rust objects, found at run time.
//!
//! Types come from the bindings; the libraries are opened with `dlopen`, so that a machine without them only loses
//! what needs them. Every object closes itself and holds its parents.
//!
//! The way to a connection: [`Library::load`], an [`EventChannel`], an [`Id`] that is [bound](Id::bind) to an address
//! of this process. It then has a [`Context`], the device as librdmacm has it open: everything else is made of that
//! one, because a queue pair of an id must be of the id's own context. An address that no device of this process's
//! network has is refused with `ENODEV`: so devices whose network lies in another namespace are never met.
//!
//! Threads: all objects may be used from all threads. What librdmacm does not guard itself, its ids, is guarded by one
//! lock for each channel. Calls that post and poll take none of ours.
//!
//! Not here: completion channels (the host polls), memory windows, multicast, datagrams.
//!
//! Answers to `ibv_get_device_list(3)`, `ibv_query_gid_table(3)`, `ibv_reg_mr(3)`, `ibv_create_cq(3)`,
//! `ibv_create_srq(3)`, `ibv_post_send(3)`, `ibv_get_async_event(3)`, `ibv_fork_init(3)`, `rdma_cm(7)`.

use crate::error::{Error, Result};

mod async_event;
mod channel;
mod completion;
mod context;
mod device;
mod gid;
mod id;
mod library;
mod memory;
mod pair;
mod prepared;
mod shared;
mod slab;
mod sys;
mod work;

pub use async_event::{AsyncEvent, AsyncEvents};
pub use channel::{Event, EventChannel, EventKind, PrivateData};
pub use completion::{Completion, Cq, Operation, Status};
pub use context::{Atomics, Context, Limits, LinkLayer, Port};
pub use device::{Device, Devices, Transport, is_any};
pub use gid::{Gid, GidKind};
pub use id::{Connect, Id};
pub use library::{Forks, Library, MissingLibrary};
pub use memory::{Access, Mr, Pd, installed, lockable, pages};
pub use pair::{Depths, Qp, Queues};
pub use prepared::{InlineSend, Receives};
pub use shared::{LIST, Srq};
pub use slab::Slab;
pub use work::{Flags, Piece, PostError, Remote, Work};

/// The code of the calling thread's last failed call (`errno(3)`).
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What went wrong, by `errno(3)`.
fn last_error() -> Error {
    error_of(errno())
}

/// An `errno(3)` as what went wrong.
fn error_of(code: i32) -> Error {
    match code {
        libc::ENOMEM => Error::OutOfResource,
        libc::EOPNOTSUPP | libc::ENOSYS => Error::Unsupported,
        code => Error::System(code),
    }
}

/// The positive code that a call failed with. Providers return it, or its negative, or -1 with `errno(3)` set.
fn code_of(code: i32) -> i32 {
    match code {
        -1 => errno(),
        code => code.saturating_abs(),
    }
}

/// The result of a call that returns 0, or a code of any of these kinds.
fn outcome(code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(error_of(code_of(code))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_signs_mean_the_same() {
        assert_eq!(outcome(0), Ok(()));
        assert_eq!(outcome(libc::EINVAL), Err(Error::System(libc::EINVAL)));
        assert_eq!(outcome(-libc::EINVAL), Err(Error::System(libc::EINVAL)));
        assert_eq!(outcome(-libc::ENOMEM), Err(Error::OutOfResource));
        assert_eq!(outcome(i32::MIN), Err(Error::System(i32::MAX)));
    }

    #[test]
    fn minus_one_asks_errno() {
        // SAFETY: a number of no file.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(outcome(-1), Err(Error::System(libc::EBADF)));
    }
}
