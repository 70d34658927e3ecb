//! The verbs BTL: RoCE, iWARP and, where it is allowed, InfiniBand, over connections that a thread of their own makes.
//!
//! A message goes by one of several queues, by its length, each a queue pair of its own: *private* ones have buffers at the
//! peer for this process alone, *shared* ones for whomever has been lent a credit. Nobody sends without a credit: no message
//! ever finds no buffer. `queues` is what users say of all that, `credit` and `lender` the counting, `slots` that of send
//! queues; none of them does anything but count.
//!
//! `given` is what users say of it and of openib, `parameters` what that comes to. `choice` says which ports are used, `survey` tells people why, `open` opens them, `line` is what a device gives: a port and queue pairs, `demand` what those ask of it. The
//! `connector` is the connection thread, which `engine::cm` drives, and `office` the mailboxes between it and the main
//! thread. `side` is one queue pair of a peer, `connection` what is posted on all of them, `outgoing` the buffers that messages are posted from, `peer` what waits for it, `peers` all
//! of them, `state` what a module has, `pass` what is to be done next, `short` the same of what nothing is in the way of, `arrival` what completions say, `sending` what the host sends,
//! `transfers` what it does with memory of peers, `itself` the process as a peer of its own, `departure` how connections end, `memory` what is registered, `lockable` how much of that is whose, and
//! `cache` what stays so when it is not used, `signs` whether a peer's device is there,
//! `component` what the host sees of it, under both of its names.
//!
//! It answers to `opal/mca/btl/openib` of Open MPI 4.1, whose parameters it has. What it says to its peers is its own, or
//! what that says: `meeting` is who is met by it, `flow` its further counts, `openib` its messages.

#![forbid(unsafe_code)]

mod arrival;
mod buffers;
mod cache;
mod choice;
mod component;
mod connection;
mod connector;
mod counters;
mod credit;
mod demand;
mod departure;
mod flow;
mod given;
mod itself;
mod late;
mod lender;
mod line;
mod lockable;
mod meeting;
mod memory;
mod office;
mod open;
mod openib;
mod outgoing;
mod parameters;
mod pass;
mod peer;
mod peers;
mod queues;
mod sending;
mod short;
mod side;
mod sides;
mod signs;
mod slots;
mod state;
mod survey;
mod transfers;

pub use choice::Obstacle;
pub use component::{Openib, Verbs};
pub use survey::{Surveyed, Unsurveyed, survey};
