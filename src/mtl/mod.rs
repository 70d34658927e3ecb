//! Matching transports, and what they ask of a host.
//!
//! A transport is not generic over the host's layouts: it sees the narrow traits below, which each
//! host implements over its own structures. Handles of communicators and processes are `Copy` and
//! cheap; the host keeps what they name until it has told the transport that they go. A request with
//! its convertor is a loan ([`crate::fabric::Loan`]), which ends before the request is completed.

#![forbid(unsafe_code)]

pub mod ofi;

use crate::error::Result;
pub use crate::fabric::{Convertor, Route};

/// What a receive or a probe learned about a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Rank of the sender.
    pub source: i32,
    /// MPI tag.
    pub tag: i32,
    /// Bytes of the message.
    pub len: usize,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Success,
    /// The message was longer than the receive (`MPI_ERR_TRUNCATE`).
    Truncated,
    /// It was cancelled.
    Cancelled,
    /// The transport failed (`MPI_ERR_INTERN`).
    Failed,
}

/// A communicator.
pub trait Communicator: Copy + Send {
    /// A peer in it.
    type Peer: Peer;
    /// The id that tags carry.
    fn context_id(self) -> u32;
    /// Whether that id is the same at every member.
    fn is_global(self) -> bool;
    /// An id that is the same at every member even where the short one is not.
    fn extended_id(self) -> [u64; 2];
    /// Number of peers that can be addressed.
    fn size(self) -> usize;
    /// What the transport noted about it; 0 when nothing. Only where the id is not global.
    fn note(self) -> usize;
    /// Notes something about it.
    fn set_note(self, note: usize);
    /// Rank of this process.
    fn rank(self) -> i32;
    /// The process of a rank.
    fn peer(self, rank: i32) -> Result<Self::Peer>;
}

/// A process.
pub trait Peer: Copy {
    /// What the transport noted about it; 0 when nothing.
    fn note(self) -> u64;
    /// Notes something about it.
    fn set_note(self, note: u64);
    /// What it published for this transport.
    fn published(self) -> Result<Vec<u8>>;
}

/// A request of the host's. Completing it consumes it.
pub trait Request: Send {
    /// Ends a send.
    fn sent(self, outcome: Outcome);
    /// Ends a receive.
    fn received(self, envelope: Envelope, outcome: Outcome);
}

/// The host's types and services.
pub trait Upcalls: Copy + Send + Sync + 'static {
    /// A communicator.
    type Comm: Communicator<Peer = Self::Proc>;
    /// A process.
    type Proc: Peer;
    /// A buffer.
    type Conv: Convertor;
    /// A request.
    type Req: Request;
    /// Lets the whole host make progress.
    fn progress();
    /// Tells the user what went wrong and what to do.
    fn notice(topic: &str, text: &str);
    /// Says why the process is about to end.
    fn last_words(text: &str);
}
