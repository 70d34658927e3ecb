//! The usnic engine: reliable fragments, PUT and GET over datagrams that get lost.
//!
//! A state machine without clock, socket or host. Four kinds of method: `handle_*` for what the
//! world says, verbs for what the user asks, `poll_*` for what must be done, and plain questions.
//! Nothing here calls anybody: events and datagrams are taken out by the caller, when it likes.
//!
//! One turn of the caller: hand every datagram received to [`Engine::handle_datagram`], call
//! [`Engine::handle_timeout`], take events until there are none, then take datagrams from
//! [`Engine::poll_transmit`] until it says `None`: that is one *pass*. When idle, come back at
//! [`Engine::next_timeout`].
//!
//! A *fragment* is what the user sends, of any size; a *segment* is one packet; a *chunk* is the
//! part of a fragment in one segment. A small fragment needs one segment, a large one several.
//!
//! Invariants:
//! * every fragment is delivered exactly once and whole, or its sender is told that it was not;
//! * memory of the user is read and written only in [`Memory::read`] and [`Memory::write`], and what a GET has not got yet
//!   of its own where a [`Landing`] leads a link;
//! * nothing that a datagram says is believed before its tag and its ranges have been checked.
//!
//! Files import only those before them, in the order that `tests/architecture.rs` holds. Those before
//! `core` are types of their own, which need no [`Engine`]; those behind it are its methods.
//!
//! Answers to the README of Open MPI's `opal/mca/btl/usnic`.

#![forbid(unsafe_code)]

// Time, tables, counters, and what the user sees.
mod counters;
mod interface;
pub(crate) mod slab;
pub mod time;
mod timers;
mod wheel;

// What is sent and received, and how it is cut and put together.
mod assembler;
mod copies;
mod coverage;
mod landing;
mod memory;
mod operation;
mod packet;
mod receive_window;
mod send_window;

// Recovery: round trips, loss, congestion, the width of the path.
mod congestion;
mod controller;
mod delay_bound;
mod loss_detection;
mod pacer;
mod path;
mod probe;
mod reordering;
mod rtt;

// Flow control, and when what has arrived is acknowledged.
mod ack_queue;
mod flow;
mod pending_ack;

// One connection.
mod clock;
mod closed;
mod connection_ids;
mod endpoint;
mod life;
mod limits;
mod protection;
mod receive_half;
mod replay;
mod send_half;

// All connections.
mod core;
mod lists;
mod pass;

// Its methods, by subject.
mod acks;
mod closing;
mod extents;
mod fastpath;
mod landed;
mod loss;
mod parting;
mod rdma;
mod receive;
mod renewal;
mod reset;
mod run;
mod sealed;
mod send;
mod transmit;
mod withdraw;

// Engines of their own.
pub mod cm;
pub mod connect;
pub mod ipc;
pub mod matching;

pub use self::core::Engine;
pub use crate::wire::usnic::Header;
pub use counters::{COUNTERS, Counters, LiveCounters};
pub use delay_bound::AWAY;
pub use extents::Extents;
pub use interface::{
    Buffer, Channel, Cookie, End, EndpointId, Event, Fragment, Identity, Memory, Peer, PeerFacts, Piece,
    Received, Transmit,
};
pub use landing::Landing;
pub use memory::{Access, REGISTRATION_LEN, Registration};
pub use sealed::{Seal, Seals};
pub use time::Instant;
