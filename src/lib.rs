//! Transports for Open MPI in one shared library, loaded by an existing, unmodified host.
//!
//! Read top-down, each folder needs only those before it:
//!
//! * [`error`], [`config`]: the one vocabulary of failure; parameters as plain data.
//! * [`wire`]: bytes and bits to values and back. No unsafe code.
//! * [`sync`]: the cell that lends `&mut` for the span of one closure; helper threads.
//! * [`fabric`]: owned Rust objects over libfabric, found at run time.
//! * [`engine`]: the usnic protocol as a state machine. No unsafe code, no clock, no socket.
//! * [`link`]: datagram links: kernel UDP, libfabric; the sockets of agents.
//! * [`shm`]: memory that processes of a node share, and what they write to each other there.
//! * [`verbs`]: owned Rust objects over libibverbs and librdmacm, found at run time.
//! * [`gni`]: the software Aries: mailboxes and datagrams of the provider, within a node and between nodes. No unsafe code.
//! * [`btl`]: byte transports: what one is, the usnic BTL with the agent of a node, the smcuda BTL. No unsafe
//!   code.
//! * [`cuda`]: owned Rust objects over the CUDA driver, where the program has loaded it.
//! * [`accelerator`]: devices for the host: what an address is, copies to and from. No unsafe code.
//! * [`mtl`]: matching transports; today the OFI MTL. No unsafe code.
//! * [`host`]: the only folder that knows Open MPI: layouts, entries, services, the constructor, and the
//!   one list of components.
//! * [`capi`]: the library's own C functions: the transports for programs without Open MPI.
//! * [`provider`]: hawser as the provider `gni` of libfabric.
//!
//! Imports run downward only; `tests/architecture.rs` holds the table.
//!
//! # The way of a message
//!
//! ```text
//! usnic BTL                                        OFI MTL
//!   pml/ob1 calls the module's table                 pml/cm calls the module's table
//!   host/btl/entry     C values to Rust ones         host/mtl/entry    C values to Rust ones
//!   host/btl/descriptor  the fragment's memory       host/mtl/handles  convertor: where the bytes lie
//!   btl::Transport     what every byte transport is  mtl::Matcher      what every matching transport is
//!                                                    mtl/ofi/send      copy, inject or send from there
//!   btl/usnic/module   engine and link, in one cell  wire/tag          communicator, source, tag: 64 bits
//!   engine             sequence, window, credit      fabric/context    fi_tinject, fi_tsend
//!   wire/usnic         header, keyed tag             libfabric
//!   link               sendmmsg, or libfabric        ~ network ~
//!   ~ network ~                                      libfabric         matches by tag
//!   link               recvmmsg                      fabric/context    reads the completion queue
//!   engine             order, acknowledgement        mtl/ofi/receive   truncation, unpacking
//!   btl::Upcalls       deliver                       mtl::Request      received
//!   host/btl/module    the host's receive callback   host/mtl/handles  status, the host's completion
//!   pml/ob1 matches                                  the receive is over
//! ```
//!
//! Progress comes from the host (`opal_progress`); nothing here runs by itself but the agent of a node.

pub mod accelerator;
pub mod btl;
pub mod capi;
pub mod config;
pub mod cuda;
pub mod engine;
pub mod error;
pub mod fabric;
pub mod gni;
pub mod host;
pub mod link;
pub mod mtl;
pub mod provider;
pub mod shm;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod sync;
pub mod verbs;
pub mod wire;
