//! When an acknowledgement is sent, and what it repeats (RFC 9000, 13.2).
//!
//! Every packet to a peer carries one. One of its own is sent when the delay has passed and nothing else
//! went there; at once, when something came again (an acknowledgement must have been lost), when there is
//! a hole (it carries a bitmap of what is there), when the sender asks, as it does at the end of what is
//! not tiny and somebody waits for, or when a good part of the room that it was given has been used.

use super::flow::LEAST_CREDIT;
use super::packet::{AckInfo, Deferred};
use super::time::{Instant, MICRO};
use crate::wire::usnic::{BITMAP_BITS, Flags};

/// Arrivals that are acknowledged at once, together.
const MANY: u64 = 64;

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

/// What an arrival was.
pub(super) struct Arrived {
    pub(super) seq: u64,
    /// It had not arrived before.
    pub(super) is_new: bool,
    /// The number expected now.
    pub(super) next: u64,
    /// Something is missing, now and before.
    pub(super) has_gap: bool,
    pub(super) had_gap: bool,
    /// Its sender asks, or has waited for long.
    pub(super) is_urgent: bool,
    /// Bytes that the peer was promised room for, and those of a segment.
    pub(super) promised: u64,
    pub(super) unit: u64,
}

/// When the acknowledgement of an arrival is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At the end of this pass.
    Now,
    /// After the delay, if nothing else goes there before.
    Delayed,
    /// With one that leaves at once already, or there is none.
    Pending,
}

/// The acknowledgement that is pending for a peer.
#[derive(Debug, Default)]
pub(super) struct PendingAck {
    /// At once, in a packet of its own.
    pub(super) immediate: bool,
    /// Segments that have arrived since the last acknowledgement.
    arrived: u64,
    /// First and last of those that came out of order and have not been reported.
    unreported: Option<(u64, u64)>,
    /// Among what has arrived is a packet that was sent before.
    retransmission: bool,
    /// Something came again: an acknowledgement must have been lost.
    duplicate: bool,
    /// What came had waited here for long. Its sender has asked again at intervals that double, and if the
    /// acknowledgement is lost, the next time is as far away as the absence was long. So another one follows.
    repeats: bool,
    /// What the next packet repeats.
    echo: Option<Echo>,
}

impl PendingAck {
    /// What the next packet to the sender of this one, read at `read`, has to repeat of it.
    ///
    /// That of the newest; but of those that waited here together, the one that was under way for the
    /// shortest time. The sender has sent them at once, when our last acknowledgement let it, and all but
    /// the first have waited for each other: no queue was there before.
    #[inline(always)]
    pub(super) fn note_packet(&mut self, packet: &AckInfo, read: Instant) {
        self.retransmission |= packet.flags.has(Flags::RETRANSMISSION);
        self.repeats |= packet.has_waited_long(read);
        // How long it had waited here is not the network's.
        let Some(arrived) = packet.arrival.at() else { return };
        let this = Echo { stamp: packet.stamp, arrived, read };
        if self.echo.is_none_or(|other| arrived > other.read || this.is_faster(&other)) {
            self.echo = Some(this);
        }
    }

    /// The same for one that had arrived before: that it was sent again says nothing of what is acknowledged.
    #[inline(always)]
    pub(super) fn note_duplicate(&mut self, packet: &AckInfo, read: Instant) {
        let retransmission = self.retransmission;
        self.note_packet(packet, read);
        self.retransmission = retransmission;
    }

    /// So many others have arrived with the segment that is noted next.
    #[inline]
    pub(super) fn note_others(&mut self, count: u64) {
        self.arrived += count;
    }

    /// A segment has arrived: when it is acknowledged.
    #[inline(always)]
    pub(super) fn note_segment(&mut self, arrived: &Arrived) -> When {
        let &Arrived { seq, is_new, next, has_gap, had_gap, is_urgent, promised, unit } = arrived;
        if is_new {
            self.arrived += 1;
            if has_gap && seq >= next {
                self.unreported =
                    Some(self.unreported.map_or((seq, seq), |(low, high)| (low.min(seq), high.max(seq))));
            }
        } else {
            self.duplicate = true;
        }
        let at_once = !is_new || has_gap || had_gap || is_urgent || self.are_many(promised, unit);
        self.schedule(at_once)
    }

    /// The segment that was expected has arrived, and nothing is missing: as
    /// [`note_segment`](Self::note_segment).
    #[inline(always)]
    pub(super) fn note_in_order(&mut self, promised: u64, unit: u64, is_urgent: bool) -> When {
        self.arrived += 1;
        let at_once = is_urgent || self.are_many(promised, unit);
        self.schedule(at_once)
    }

    /// Whether a good part of the room has been used.
    #[inline(always)]
    fn are_many(&self, promised: u64, unit: u64) -> bool {
        self.arrived >= LEAST_CREDIT && self.arrived >= (promised / unit / 4).clamp(LEAST_CREDIT, MANY)
    }

    #[inline(always)]
    fn schedule(&mut self, at_once: bool) -> When {
        match (at_once, self.immediate) {
            (true, false) => {
                self.immediate = true;
                When::Now
            }
            (false, false) => When::Delayed,
            (_, true) => When::Pending,
        }
    }

    /// The delay has passed: one of its own leaves at once. Whether none did already.
    pub(super) fn hasten(&mut self) -> bool {
        !std::mem::replace(&mut self.immediate, true)
    }

    /// A packet leaves that acknowledges all below a hole, if there is one: what it repeats, 0 for nothing, and
    /// whether a packet that was sent before is among what it acknowledges.
    #[inline(always)]
    pub(super) fn take(&mut self, has_gap: bool, now: Instant) -> (u32, bool) {
        let echo = self.echo.take().map_or(0, |echo| echo.held(now));
        self.arrived = 0;
        // A hole takes a bitmap to describe.
        self.immediate &= has_gap || self.duplicate;
        (echo, std::mem::take(&mut self.retransmission))
    }

    /// Where the bitmap of the explicit acknowledgement begins that leaves now, the next number expected being
    /// `next`; with a hole, what has arrived out of order since the last one comes first.
    pub(super) fn begin_bitmap(&mut self, next: u64, has_gap: bool) -> u64 {
        self.duplicate = false;
        let above = next + 1;
        let (first, more) = match self.unreported {
            _ if !has_gap => (next, None),
            Some((low, high)) if high >= low.max(above) + BITMAP_BITS => {
                let first = low.max(above);
                (first, Some((first + BITMAP_BITS, high)))
            }
            Some((_, high)) => (above.max((high + 1).saturating_sub(BITMAP_BITS)), None),
            None => (above, None),
        };
        self.unreported = more;
        first
    }

    /// An explicit acknowledgement leaves now: when it is to be said again, if nothing else says it before.
    pub(super) fn repeat(&mut self) -> When {
        if std::mem::take(&mut self.repeats) { When::Delayed } else { When::Pending }
    }

    /// Whether one bitmap was not enough.
    pub(super) const fn has_unreported(&self) -> bool {
        self.unreported.is_some()
    }

    /// The packet that leaves now answers a datagram that was handed up.
    #[inline(always)]
    pub(super) fn answer(&mut self, deferred: &mut Deferred) {
        if !deferred.answered {
            deferred.answered = true;
            self.note_packet(&deferred.info, deferred.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Arrival;
    use super::*;
    use crate::wire::usnic::Flags;

    /// Packets by stamp, arrival and reading, in microseconds, and what is repeated at last, 10 µs later.
    fn repeated(packets: &[(u32, Option<u64>, u64)]) -> u32 {
        let at = |micros: u64| Instant::from_nanos(micros * MICRO);
        let mut pending = PendingAck::default();
        for &(stamp, arrived, read) in packets {
            let flags = Flags::default();
            let arrival = arrived.map_or(Arrival::Unknown, |arrived| Arrival::Noted(at(arrived)));
            let info = AckInfo { flags, stamp, echo: 0, credit: 0, seq: 0, ack: 0, arrival };
            pending.note_packet(&info, at(read));
        }
        let last = packets.last().map_or(0, |packet| packet.2);
        pending.echo.map_or(0, |echo| echo.held(at(last + 10)))
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
        let mut pending = PendingAck::default();
        let flags = Flags::RETRANSMISSION;
        let info = AckInfo { flags, stamp: 5, echo: 0, credit: 0, seq: 0, ack: 0, arrival: Arrival::Unknown };
        pending.note_packet(&info, Instant::ORIGIN);
        assert!(pending.retransmission && pending.echo.is_none());
    }

    fn arrival(seq: u64) -> Arrived {
        Arrived {
            seq,
            is_new: true,
            next: seq + 1,
            has_gap: false,
            had_gap: false,
            is_urgent: false,
            promised: 40_000,
            unit: 1_000,
        }
    }

    #[test]
    fn the_first_waits_and_the_others_with_it_until_they_are_many() {
        let mut pending = PendingAck::default();
        let now = Instant::from_nanos(5);
        (0..9).for_each(|seq| assert_eq!(pending.note_segment(&arrival(seq)), When::Delayed));
        assert_eq!(pending.note_segment(&arrival(9)), When::Now, "a quarter of what it may send");
        assert_eq!(pending.note_segment(&arrival(10)), When::Pending);
        assert_eq!(pending.take(false, now), (0, false));
        assert!(!pending.immediate);
        assert_eq!(pending.note_segment(&arrival(11)), When::Delayed);
        assert!(pending.hasten() && !pending.hasten(), "its delay has passed, once");
        assert_eq!(pending.note_segment(&arrival(12)), When::Pending);
    }

    #[test]
    fn holes_duplicates_and_who_asks_are_answered_at_once() {
        let now = Instant::ORIGIN;
        let gap = Arrived { next: 3, has_gap: true, ..arrival(5) };
        for at_once in [
            gap,
            Arrived { had_gap: true, ..arrival(5) },
            Arrived { is_new: false, ..arrival(5) },
            Arrived { is_urgent: true, ..arrival(5) },
        ] {
            let mut pending = PendingAck::default();
            assert_eq!(pending.note_segment(&at_once), When::Now);
            // What rides on another packet answers all but a hole, and what came again.
            pending.take(at_once.has_gap, now);
            assert_eq!(pending.immediate, at_once.has_gap || !at_once.is_new);
        }
    }

    #[test]
    fn what_has_waited_for_long_is_acknowledged_twice() {
        let at = |micros: u64| Instant::from_nanos(micros * MICRO);
        let after = |arrival, now| {
            let flags = Flags::default();
            let info = AckInfo { flags, stamp: 5, echo: 0, credit: 0, seq: 0, ack: 0, arrival };
            let mut pending = PendingAck::default();
            pending.note_packet(&info, now);
            pending.take(false, now);
            (pending.repeat(), pending.repeat())
        };
        let (once, never) = ((When::Delayed, When::Pending), (When::Pending, When::Pending));
        assert_eq!(after(Arrival::Read(at(9)), at(9)), never);
        assert_eq!(after(Arrival::Noted(at(9)), at(1_009)), never);
        assert_eq!(after(Arrival::Noted(at(9)), at(1_010)), once);
        assert_eq!(after(Arrival::Unknown, at(9)), once);
    }

    #[test]
    fn bitmaps_report_what_came_out_of_order_since_the_last() {
        let mut pending = PendingAck::default();
        let gap = |seq| Arrived { next: 3, has_gap: true, ..arrival(seq) };
        for seq in [10, 700] {
            pending.note_segment(&gap(seq));
        }
        assert_eq!((pending.begin_bitmap(3, true), pending.has_unreported()), (10, true));
        assert_eq!((pending.begin_bitmap(3, true), pending.has_unreported()), (266, true));
        assert_eq!((pending.begin_bitmap(3, true), pending.has_unreported()), (445, false));
        assert_eq!((pending.begin_bitmap(3, true), pending.begin_bitmap(9, false)), (4, 9));
    }
}
