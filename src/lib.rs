//! Transports for Open MPI in one shared library, loaded by an existing, unmodified host.
//!
//! Read top-down, each folder needs only those before it:
//!
//! * [`error`], [`config`]: the one vocabulary of failure; parameters as plain data.
//! * [`wire`]: bytes and bits to values and back. No unsafe code.
//! * [`engine`]: the protocol engines: state machines without clock, socket or host. No unsafe code.
//! * [`sync`]: the cell that lends `&mut` for the span of one closure; helper threads.
//! * [`fabric`]: owned Rust objects over libfabric, found at run time.
//! * [`engine`]: the usnic protocol as a state machine. No unsafe code, no clock, no socket.
//! * [`link`]: datagram links: kernel UDP, libfabric; the sockets of agents.
//! * [`btl`]: byte transports; today the usnic BTL, and the agent of a node. No unsafe code.
//! * [`mtl`]: matching transports; today the OFI MTL. No unsafe code.
//! * [`host`]: the only folder that knows Open MPI: layouts, thunks, services, the constructor.
//! * [`capi`]: the library's own C functions.
//!
//! Imports run downward only; `tests/architecture.rs` holds the table.

pub mod btl;
pub mod capi;
pub mod config;
pub mod engine;
pub mod error;
pub mod fabric;
pub mod host;
pub mod link;
pub mod mtl;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod sync;
pub mod wire;
