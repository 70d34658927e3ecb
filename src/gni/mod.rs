//! The software Aries of a node: what the GNI provider takes for its network interface.
//!
//! * [`nic`]: the interface of a domain. A mailbox (SMSG) is a pair of rings in memory that two processes share; a GET
//!   (BTE) is a copy from the memory of another process, where the kernel allows it.
//! * [`datagram`]: the datagrams by which connections are made, to whom only its name is known.
//! * [`session`]: the sockets by which connected endpoints find each other, and see that the other has ended.
//!
//! Only processes of one node and one user reach each other. Nothing here runs by itself, and nothing of it is left when
//! a process has ended, however it ends.

pub mod amo;
pub mod datagram;
pub mod nic;
pub mod session;

pub use datagram::{Sent, Service};
pub use nic::{Mailbox, Nic};
