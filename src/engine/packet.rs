//! What packets say: what leaves, what has come, and what is owed for it. Values without an engine.

use super::interface::Piece;
use super::time::{Instant, MICRO};
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

    /// How late it is read now, if that was noted.
    #[inline]
    pub(super) fn read_late(&self, now: Instant) -> Option<u64> {
        if let Arrival::Noted(arrived) = self.arrival { Some(now.since(arrived)) } else { None }
    }

    /// What the next packet to its sender has to repeat of it, read at `read`.
    ///
    /// That of the newest; but of those that waited here together, the one that was under way for the
    /// shortest time. The sender has sent them at once, when our last acknowledgement let it, and all but
    /// the first have waited for each other: no queue was there before.
    #[inline(always)]
    pub(super) fn leave_echo(&self, read: Instant, owed: &mut PendingAck) {
        owed.heard_again |= self.flags.has(Flags::AGAIN);
        // How long it had waited here is not the network's.
        let Some(arrived) = self.arrival.at() else { return };
        let this = Echo { stamp: self.stamp, arrived, read };
        if owed.echo.is_none_or(|other| arrived > other.read || this.is_faster(&other)) {
            owed.echo = Some(this);
        }
    }
}

/// The stamp of a packet, to be repeated to its sender, which measures the round trip with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    stamp: u32,
    /// When it came to this host.
    arrived: Instant,
    /// When it was read.
    read: Instant,
}

impl Echo {
    /// Whether it was under way for no longer than the other. The clocks of both ends need not agree.
    #[inline]
    fn is_faster(&self, other: &Self) -> bool {
        let way = |echo: &Self| echo.arrived.stamp().wrapping_sub(echo.stamp);
        way(self).wrapping_sub(way(other)) as i32 <= 0
    }

    /// What a packet that leaves now says: as if the stamp had been made later by the time that it was
    /// kept here. 0 says nothing.
    #[inline]
    pub(super) fn held(&self, now: Instant) -> u32 {
        self.stamp.wrapping_add((now.since(self.arrived) / MICRO) as u32).max(1)
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
    /// What the next packet repeats.
    pub(super) echo: Option<Echo>,
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
    /// Of the peer's segment with this number.
    Withdrawn(u64),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets by stamp, arrival and reading, in microseconds, and what is repeated at last, 10 µs later.
    fn repeated(packets: &[(u32, Option<u64>, u64)]) -> u32 {
        let at = |micros: u64| Instant::from_nanos(micros * MICRO);
        let mut owed = PendingAck::default();
        for &(stamp, arrived, read) in packets {
            let flags = Flags::default();
            let arrival = arrived.map_or(Arrival::Unknown, |arrived| Arrival::Noted(at(arrived)));
            let heard = AckInfo { flags, stamp, echo: 0, credit: 0, seq: 0, ack: 0, arrival };
            heard.leave_echo(at(read), &mut owed);
        }
        let last = packets.last().map_or(0, |packet| packet.2);
        owed.echo.map_or(0, |echo| echo.held(at(last + 10)))
    }

    #[test]
    fn the_newest_of_those_read_as_they_came_is_repeated() {
        assert_eq!(repeated(&[(500, Some(1_000), 1_000), (520, Some(1_040), 1_040)]), 530);
    }

    #[test]
    fn the_time_that_a_packet_waited_to_be_read_is_not_the_networks() {
        assert_eq!(repeated(&[(500, Some(1_000), 1_090)]), 600);
    }

    #[test]
    fn of_a_burst_that_waited_the_first_is_repeated() {
        let burst = [(500, Some(1_000), 1_090), (500, Some(1_040), 1_090), (500, Some(1_080), 1_095)];
        assert_eq!(repeated(&burst), 500 + 105);
        let turned = [(u32::MAX - 9, Some(5), 50), (u32::MAX - 9, Some(45), 50)];
        assert_eq!(repeated(&turned), 45, "the clock of stamps goes round");
    }

    #[test]
    fn a_packet_that_came_nobody_knows_when_is_not_repeated() {
        assert_eq!(repeated(&[(500, None, 1_000)]), 0);
        assert_eq!(repeated(&[(500, Some(1_000), 1_000), (700, None, 1_001)]), 511);
    }

    #[test]
    fn that_a_packet_was_sent_again_is_told_whenever_it_came() {
        let mut owed = PendingAck::default();
        let flags = Flags::AGAIN;
        let heard =
            AckInfo { flags, stamp: 5, echo: 0, credit: 0, seq: 0, ack: 0, arrival: Arrival::Unknown };
        heard.leave_echo(Instant::ORIGIN, &mut owed);
        assert!(owed.heard_again && owed.echo.is_none());
    }
}
