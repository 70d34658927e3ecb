//! What packets say: what leaves, what has come, and what is owed for it. Values without an engine.

use super::interface::Piece;
use super::time::Instant;
use crate::wire::usnic::{Body, Flags, Repr};

/// What one packet says.
pub(super) struct Outgoing {
    pub(super) flags: Flags,
    pub(super) tag: u8,
    pub(super) length: u16,
    pub(super) seq: u64,
    pub(super) body: Body,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { flags: Flags::default(), tag: 0, length: 0, seq: 0, body: Body::Void }
    }
}

/// A whole fragment about to leave: which operation it is, and what was found out about it.
pub(super) struct Launch<M> {
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
    pub(super) credit: u32,
    pub(super) ack: u64,
}

/// What every packet says to the book-keeping.
pub(super) struct AckInfo {
    pub(super) flags: Flags,
    pub(super) stamp: u32,
    pub(super) echo: u32,
    pub(super) credit: u32,
    pub(super) seq: u64,
    pub(super) ack: u64,
    /// It was read when it came, as far as is known.
    pub(super) timely: bool,
}

impl AckInfo {
    #[inline]
    pub(super) fn of(repr: &Repr, timely: bool) -> Self {
        let &Repr { flags, stamp, echo, credit, seq, ack, .. } = repr;
        Self { flags, stamp, echo, credit, seq, ack, timely }
    }

    /// What the next packet to its sender has to repeat of it.
    #[inline(always)]
    pub(super) fn leave_echo(&self, at: Instant, owed: &mut PendingAck) {
        // How long it had waited here is not the network's.
        if self.timely {
            owed.echo = Some((self.stamp, at));
        }
        owed.heard_again |= self.flags.has(Flags::AGAIN);
    }
}

/// What is owed to the peer in acknowledgements.
#[derive(Debug, Default)]
pub(super) struct PendingAck {
    /// At once, in a packet of its own.
    pub(super) now: bool,
    /// By then, if nothing else is sent before.
    pub(super) due: Option<Instant>,
    /// Segments that have arrived since the last acknowledgement.
    pub(super) arrived: u64,
    /// First and last of those that came out of order and have not been spoken of.
    pub(super) fresh: Option<(u64, u64)>,
    /// A packet has come that says that it was sent before.
    pub(super) heard_again: bool,
    /// Something came again: an acknowledgement must have been lost.
    pub(super) again: bool,
    /// Stamp of the newest packet, and when it came.
    pub(super) echo: Option<(u32, Instant)>,
}

/// A packet without a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Close,
    CloseAck,
    /// Of what comes for a connection that is closed here.
    Ack,
    /// Of the peer's operation with this name.
    Reject(u64),
}

/// What remains to be done for a datagram that was handed up.
pub(super) struct Deferred {
    pub(super) index: u32,
    pub(super) heard: AckInfo,
    pub(super) at: Instant,
    /// A packet that left in the meantime has acknowledged it.
    pub(super) answered: bool,
}

impl Deferred {
    /// Whether the datagram came from there.
    #[inline(always)]
    pub(super) fn is_of(&self, index: u32) -> bool {
        self.index == index
    }

    /// Puts what it is owed on the packet that leaves now.
    #[inline(always)]
    pub(super) fn answer(&mut self, owed: &mut PendingAck) {
        if !self.answered {
            self.answered = true;
            self.heard.leave_echo(self.at, owed);
        }
    }
}
