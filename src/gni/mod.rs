//! The software Aries: what the GNI provider takes for its network interface.
//!
//! * [`nic`]: the interface of a domain. A [mailbox] (SMSG) is a pair of rings in memory that two processes share; a GET
//!   (BTE) is a copy from the memory of another process, where the kernel allows it. Between nodes it is a [stream] of the
//!   [network], and there is no such copy; whose peer answers no more, [`silence`] says.
//! * [`datagram`]: the datagrams by which connections are made, to whom only its name is known; [`courier`]: those between
//!   nodes.
//! * [`session`]: the sockets by which connected endpoints find each other, and see that the other has ended.
//!
//! Within a node only processes of one user reach each other; between nodes, those that have the names of each other's
//! endpoints, with the keys in them. Nothing here runs by itself, and nothing of it is left when a process has ended,
//! however it ends.

pub mod amo;
pub mod courier;
pub mod datagram;
pub mod mailbox;
pub mod network;
pub mod nic;
pub mod session;
pub mod silence;
pub mod stream;

pub use courier::Place;
pub use datagram::{Sent, Service};
pub use mailbox::Mailbox;
pub use nic::Nic;
