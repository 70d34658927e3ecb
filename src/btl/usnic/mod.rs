//! The usnic BTL: reliable fragments over a datagram link.
//!
//! [`Module`] joins the protocol engine, which knows neither clock nor socket, and a link, which
//! knows no protocol. Everything happens in the host's calls, but for what the [`agent`] of the node
//! does beside them: it tells whether datagrams of all lengths arrive, and whether peers live. The C
//! component is `opal/mca/btl/usnic`.
//!
//! * No host call is made while the engine is borrowed. Callbacks may re-enter everything; what an
//!   outer call has received and not yet delivered, a nested one delivers.
//! * Host memory is only ever named by [`Lent`](super::Lent) pieces, which stay valid until
//!   [`Upcalls::done`].

pub mod agent;
mod component;
mod links;
pub mod map;
mod mapping;
mod meeting;
mod memory;
mod module;
mod pairing;
mod parameters;
#[cfg(test)]
mod path_tests;
mod protected;
mod reports;
mod routes;
mod statistics;
#[cfg(test)]
mod tests;

pub use crate::engine::{Access, COUNTERS, EndpointId, Fragment, Registration};
pub use crate::link::{Place, place, same_kind};
pub use component::Usnic;
pub use links::{Absent, Cause, Links, Named, Trouble, farther, links};
pub use module::{Facts, Module};
pub use pairing::{Side, pair};
pub use statistics::Statistics;

use crate::engine::Cookie;
use crate::error::Result;
use component::KEY;

/// What a module tells whoever holds it. Every call may re-enter the module.
pub trait Upcalls {
    /// A whole fragment has arrived. The bytes are the host's for the time of the call.
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]);
    /// An operation has ended; the memory that it used is the host's again.
    fn done(&self, cookie: Cookie, outcome: Result<()>);
    /// A peer is gone; all its operations have ended before.
    fn lost(&self, endpoint: EndpointId, name: u64);
    /// Some datagrams do not reach a peer. If that is fatal, it counts as lost from now on, and
    /// [`Self::lost`] follows.
    fn unreached(&self, name: u64, finding: &agent::Finding);
    /// The link is broken, by an `errno(3)`: something else in this process has closed its sockets. These peers
    /// count as lost from now on, and [`Self::lost`] follows for each.
    fn broken(&self, errno: i32, place: Option<Place>, peers: &[(EndpointId, u64)]);
    /// The modex record of a process.
    fn modex_record(&self, name: u64) -> Result<Vec<u8>>;
    /// A line of statistics is due.
    fn report(&self, line: &str);
    /// Whether this is still the process that has opened the module. In a child that one of these calls has made, and that
    /// returns from it, datagrams are its parent's.
    fn is_here(&self) -> bool;
}
