//! libfabric as owned Rust objects, found at run time.
//!
//! Types come from the official bindings; the library itself is opened with `dlopen`, so that a
//! machine without it only loses what needs it. Every object closes itself and holds its parent.
//! What is posted stays owned by libfabric until its completion is read: [`Lease`] is the proof.
//!
//! Answers to `fi_getinfo(3)`, `fi_domain(3)`, `fi_endpoint(3)`, `fi_tagged(3)`, `fi_msg(3)`, `fi_cq(3)`,
//! `fi_av(3)`, `fi_mr(3)`.

mod completion;
mod context;
mod cushion;
mod datagram;
mod entries;
#[cfg(test)]
pub(crate) mod fake;
mod info;
mod library;
mod loan;
mod locality;
mod objects;
mod operation;
mod peek;
mod place;
mod pool;
mod registration;
mod standing;
pub mod usnic;
mod watched;

pub use completion::{Alone, Completion, Failure, Pause, Trouble};
pub use context::{AtOnce, Bar, Context, Post, Unposted};
pub use datagram::{Arrival, DatagramPort, Slots};
pub use info::{Hints, Info, InfoList, Progress, Wishes};
pub use library::{Library, MissingLibrary};
pub use loan::{Convertor, Loan, Payload, Piece, Route, Source, View};
pub use locality::{Locality, Pci, take_turn};
pub use objects::{AddressVector, Domain, Endpoint, Fabric, Ready};
pub use operation::{Ended, Id, Lease, LoanOf, Operation, Work};
pub use peek::{Late, Peek, Wanted};
pub use place::Place;
pub use pool::Pool;
pub use registration::{Device, Interface, Registration};
pub use standing::Standing;

pub use libfabric_sys::bindgen as sys;

/// A peer's address in the address vector (`fi_addr_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub u64);

impl Address {
    /// Any peer (`FI_ADDR_UNSPEC`).
    pub const ANY: Self = Self(u64::MAX);

    /// The receive context `index` of a peer with a scalable endpoint (`fi_rx_addr(3)`).
    #[inline]
    pub fn receive_context(self, index: usize, bits: u32) -> Self {
        if bits == 0 { self } else { Self(((index as u64) << (64 - bits)) | self.0) }
    }
}

/// The provider cannot take the operation now (`-FI_EAGAIN`): make progress and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// Make progress and try again.
    TryAgain,
    /// Refused, with a positive `fi_errno(3)` code.
    Refused(i32),
}

impl From<PostError> for crate::error::Error {
    fn from(error: PostError) -> Self {
        match error {
            PostError::TryAgain => Self::OutOfResource,
            PostError::Refused(code) => Self::Fabric(code),
        }
    }
}

#[inline]
fn posted(code: isize) -> Result<(), PostError> {
    if code == 0 {
        Ok(())
    } else if code == -(sys::FI_EAGAIN as isize) {
        Err(PostError::TryAgain)
    } else {
        Err(PostError::Refused(i32::try_from(-code).unwrap_or(i32::MAX)))
    }
}

fn done(code: i32) -> crate::error::Result<()> {
    if code == 0 { Ok(()) } else { Err(crate::error::Error::Fabric(-code)) }
}
