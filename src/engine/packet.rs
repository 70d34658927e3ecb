//! What packets say: what leaves and what has come. Values without an engine.

use super::interface::Piece;
use super::time::{Instant, MILLI};
use crate::wire::usnic::{Body, Flags, Repr};

/// What one packet says.
pub(super) struct Outgoing {
    pub(super) flags: Flags,
    pub(super) tag: u8,
    pub(super) length: u16,
    pub(super) seq: u64,
    pub(super) body: Body,
    /// Its header is a long one, also where the peer knows us.
    pub(super) introduces: bool,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { flags: Flags::default(), tag: 0, length: 0, seq: 0, body: Body::Void, introduces: false }
    }
}

/// A whole fragment about to leave: which operation it is, and what was found out about it.
pub(super) struct WholeFragment<M> {
    pub(super) place: u32,
    pub(super) tag: u8,
    /// Bytes of it.
    pub(super) len: u32,
    pub(super) charge: u32,
    /// Segments that the peer may send.
    pub(super) credit: u64,
    pub(super) pieces: [Option<Piece<M>>; 2],
}

/// What rides on a packet.
pub(super) struct Piggyback {
    pub(super) flags: Flags,
    pub(super) echo: u32,
    pub(super) credit: u16,
    pub(super) ack: u64,
}

/// What every packet says to the book-keeping.
#[derive(Clone, Copy)]
pub(super) struct AckInfo {
    pub(super) flags: Flags,
    pub(super) stamp: u32,
    pub(super) echo: u32,
    pub(super) credit: u16,
    pub(super) seq: u64,
    pub(super) ack: u64,
    /// When it came to this host, as far as that can be told.
    pub(super) arrival: Arrival,
}

/// When a datagram came to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The link has noted it.
    Noted(Instant),
    /// When it was read, as far as anybody knows.
    Read(Instant),
    /// It may have waited for long.
    Unknown,
}

impl Arrival {
    #[inline(always)]
    pub(super) fn at(self) -> Option<Instant> {
        match self {
            Self::Noted(at) | Self::Read(at) => Some(at),
            Self::Unknown => None,
        }
    }
}

impl AckInfo {
    #[inline]
    pub(super) fn of(repr: &Repr, arrival: Arrival) -> Self {
        let &Repr { flags, stamp, echo, credit, seq, ack, .. } = repr;
        Self { flags, stamp, echo, credit, seq, ack, arrival }
    }

    /// Whether it has waited here so long, or perhaps, that its sender has begun to wait longer and longer.
    #[inline(always)]
    pub(super) fn has_waited_long(&self, now: Instant) -> bool {
        match self.arrival {
            Arrival::Read(_) => false,
            Arrival::Noted(at) => now.since(at) > MILLI,
            Arrival::Unknown => true,
        }
    }

    /// How late it is read now, if that was noted.
    #[inline]
    pub(super) fn read_late(&self, now: Instant) -> Option<u64> {
        if let Arrival::Noted(arrived) = self.arrival { Some(now.since(arrived)) } else { None }
    }
}

/// A packet without a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Close,
    CloseAck,
    /// None of a packet: behind the answer to the end of a connection begins the next one.
    Next,
    /// Says who we are, in case that the peer does not know.
    Introduction,
    /// Of what comes for a connection that is closed here.
    Ack,
    /// Of the peer's operation with this name.
    Reject(u64),
    /// Of the peer's segment with this number.
    Withdrawn(u64),
}

/// What remains to be done for a datagram that was handed up.
pub(super) struct Deferred {
    pub(super) index: u32,
    pub(super) info: AckInfo,
    pub(super) at: Instant,
    /// A packet that left in the meantime has acknowledged it.
    pub(super) answered: bool,
}

/// What is known of the datagram that is handled, or was last.
pub(super) struct Reception {
    /// When it came.
    pub(super) arrival: Arrival,
    /// The last that was more than the common one was no genuine packet.
    pub(super) has_refused: bool,
    /// The book-keeping of one that was handed up.
    pub(super) deferred: Option<Deferred>,
}

impl Reception {
    pub(super) const fn new() -> Self {
        Self { arrival: Arrival::Unknown, has_refused: false, deferred: None }
    }
}

impl Deferred {
    /// Whether the datagram came from there.
    #[inline(always)]
    pub(super) fn is_of(&self, index: u32) -> bool {
        self.index == index
    }
}
