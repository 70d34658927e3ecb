//! Byte transports, and what they ask of a host.
//!
//! A transport moves fragments between processes and copies to and from registered memory. It is
//! not generic over the host's layouts: the host's memory comes as [`Lent`] pieces, its objects as
//! cookies that only the host can read.

#![forbid(unsafe_code)]

pub mod usnic;

pub use crate::link::Lent;

use crate::engine::{Cookie, EndpointId};
use crate::error::Result;

/// What a transport tells the host. Every call may re-enter the transport.
pub trait Upcalls {
    /// A whole fragment has arrived. The bytes are the host's for the time of the call.
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]);
    /// An operation has ended; the memory that it used is the host's again.
    fn done(&self, cookie: Cookie, outcome: Result<()>);
    /// A peer is gone; all its operations have ended before.
    fn lost(&self, endpoint: EndpointId, name: u64);
    /// Some datagrams do not reach a peer. If that is fatal, it counts as lost from now on, and
    /// [`Self::lost`] follows.
    fn unreached(&self, name: u64, finding: &usnic::agent::Finding);
    /// What a process published for this transport.
    fn card(&self, name: u64) -> Result<Vec<u8>>;
}
