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
//!   [`Upcalls::done`](super::Upcalls::done).

pub mod agent;
mod links;
pub mod map;
mod module;
mod pairing;
mod routes;
mod statistics;
#[cfg(test)]
mod tests;

pub use crate::engine::{Access, COUNTERS, EndpointId, Fragment, Registration};
pub use crate::link::{Place, fill_random, place, same_kind};
pub use links::{Absent, Cause, Links, Named, Trouble, farther, links};
pub use module::{Facts, Module};
pub use pairing::{Side, pair};
pub use statistics::Statistics;
