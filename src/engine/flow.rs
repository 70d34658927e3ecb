//! Flow control: how much each end has room for (RFC 9000, 4).
//!
//! Receive buffers hold datagrams, and one is shared by all peers. So credit is in segments of the
//! greatest length, each end says with every packet how many the other may have under way, and the
//! receiver sees to it that what it has promised fits: [`ReceiveBudget`], of which each active peer has a
//! [`Share`]. A promise is good only for a while: a sender that was silent has little of its
//! [`SendCredit`] left when it begins again, and a receiver gives the room of the silent to others.

use super::time::{Instant, MILLI};

/// Segments that a peer has room for when nothing else is known.
pub(super) const LEAST_CREDIT: u64 = 2;
/// A sender that has been silent for so long has lost its credit, but for a part: the receiver gives the room to
/// others, and what each of them is granted says how many there are.
pub(super) const IDLE: u64 = 10 * MILLI;
const KEPT_PART: u64 = 16;
/// And never keeps more than so many segments.
const KEPT: u64 = 16;
/// A receiver waits three times as long before it gives the room to others, since packets may be late.
const SILENT: u64 = 3 * IDLE;
/// How long a promise of room counts after it has been reduced, and two round trips.
const PROMISED: u64 = 2 * MILLI;

/// What a peer has room for, as it has said.
#[derive(Debug)]
pub(super) struct SendCredit {
    segments: u64,
    /// When it last said so.
    heard: Instant,
}

impl SendCredit {
    pub(super) const fn new() -> Self {
        Self { segments: LEAST_CREDIT, heard: Instant::ORIGIN }
    }

    /// Segments that may be under way.
    #[inline]
    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    /// The peer has room for so many segments, and never for more than `most`; its word came at `arrived`, if that
    /// is known. Whether that is news.
    #[inline]
    pub(super) fn set(&mut self, segments: u64, most: u64, arrived: Option<Instant>) -> bool {
        let before = self.segments;
        self.segments = segments.clamp(LEAST_CREDIT, most.max(LEAST_CREDIT));
        self.heard = arrived.unwrap_or(self.heard);
        self.segments != before
    }

    /// Something is sent again, the first since `last`, to a peer so far away: after a silence what the peer had room
    /// for is no longer known. Who waited for a round trip was not silent; and who answers a peer that has been
    /// silent itself has just been told.
    #[inline]
    pub(super) fn note_idle(&mut self, last: Instant, now: Instant, round_trip: u64) {
        let idle = now.since(last);
        if idle > IDLE && idle > IDLE + round_trip.min(IDLE) && now.since(self.heard) > IDLE {
            self.segments = (self.segments / KEPT_PART).clamp(LEAST_CREDIT, KEPT);
        }
    }

    /// Whether there is room for so many bytes, in segments of `unit`.
    #[inline]
    pub(super) const fn allows(&self, bytes: u64, unit: u64) -> bool {
        bytes <= self.segments * unit
    }
}

/// A grant that changed nothing, so that the next one will not either while nothing else does.
#[derive(Debug, Default)]
struct Settled {
    /// That of the budget.
    version: u64,
    peers: usize,
    segments: u64,
}

/// One peer's share of the receive buffer, in bytes.
#[derive(Debug, Default)]
pub(super) struct Share {
    is_active: bool,
    /// What was promised last.
    promised: u64,
    /// What was promised before, and may still be under way.
    earlier: u64,
    earlier_until: Instant,
    settled: Settled,
}

impl Share {
    fn held(&self) -> u64 {
        self.promised.max(self.earlier)
    }

    /// Whether room is kept for the peer.
    #[inline]
    pub(super) const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Bytes that the peer was promised room for.
    #[inline]
    pub(super) const fn promised(&self) -> u64 {
        self.promised
    }
}

/// What a grant depends on besides the budget.
#[derive(Clone, Copy)]
pub(super) struct Asking {
    /// Bytes of the peer's longest segment.
    pub(super) unit: u64,
    /// Segments that it is granted at the most.
    pub(super) most: u64,
    /// Peers that are known, silent or not.
    pub(super) peers: usize,
    pub(super) round_trip: u64,
    pub(super) now: Instant,
}

/// What the receive buffer holds, and what has been promised of it.
#[derive(Debug)]
pub(super) struct ReceiveBudget {
    capacity: u64,
    granted: u64,
    sharers: usize,
    /// Another one after each change of what was promised to anybody.
    version: u64,
}

impl ReceiveBudget {
    pub(super) const fn new(capacity: u64) -> Self {
        Self { capacity, granted: 0, sharers: 0, version: 1 }
    }

    /// The peer has sent something: from now on it is one of those that share the buffer.
    pub(super) fn join(&mut self, share: &mut Share, unit: u64) {
        let least = LEAST_CREDIT * unit;
        (share.is_active, share.promised, share.earlier) = (true, least, least);
        self.granted += least;
        self.sharers += 1;
        self.version += 1;
    }

    /// The peer's room is there for the others.
    pub(super) fn leave(&mut self, share: &mut Share) {
        self.sharers -= usize::from(share.is_active);
        self.version += 1;
        self.granted = self.granted.saturating_sub(share.held());
        (share.is_active, share.promised, share.earlier) = (false, 0, 0);
    }

    /// Takes the room back from a peer that has been `silent` for so long that it has stopped using it.
    /// Whether it still has some.
    pub(super) fn review(&mut self, share: &mut Share, silent: u64) -> bool {
        if share.is_active && silent > SILENT {
            self.leave(share);
        }
        share.is_active
    }

    /// Segments granted to the peer, if nothing has changed since the last time.
    #[inline(always)]
    pub(super) fn settled(&self, share: &Share, peers: usize) -> Option<u64> {
        // Who keeps silent has the least, whatever the others have.
        if !share.is_active {
            return Some(LEAST_CREDIT);
        }
        let settled = &share.settled;
        (settled.version == self.version && settled.peers == peers).then_some(settled.segments)
    }

    /// How many segments the peer may send now: its share, as far as the others have not been promised it
    /// already.
    #[inline(never)]
    pub(super) fn grant(&mut self, share: &mut Share, asking: Asking) -> u64 {
        let Asking { unit, most, peers, round_trip, now } = asking;
        if !share.is_active {
            return LEAST_CREDIT;
        }
        // Whoever is silent may speak up with what it may send unasked.
        let silent = peers.saturating_sub(self.sharers) as u64;
        let held = share.held();
        let capacity = self.capacity - (silent * LEAST_CREDIT * unit).min(self.capacity / 2);
        let free = capacity.saturating_sub(self.granted);
        let fair = capacity / self.sharers.max(1) as u64;
        let segments = (fair.min(held + free) / unit).clamp(LEAST_CREDIT, most);
        // What was promised before may still be on its way here, for a while.
        let promised = segments * unit;
        if promised < share.promised {
            share.earlier_until = now.plus(PROMISED + 2 * round_trip);
        }
        let earlier = if now > share.earlier_until { promised } else { held };
        let total = self.granted - held + promised.max(earlier);
        let same = [share.promised, share.earlier] == [promised, earlier] && total == self.granted;
        if same && promised == earlier {
            share.settled = Settled { version: self.version, peers, segments };
        }
        self.version += u64::from(!same);
        (share.promised, share.earlier) = (promised, earlier);
        self.granted = total;
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 1_000;

    fn asking(peers: usize, now: u64) -> Asking {
        let now = Instant::from_nanos(now * MILLI);
        Asking { unit: UNIT, most: 4096, peers, round_trip: 0, now }
    }

    #[test]
    fn credit_is_what_the_peer_says_within_bounds_until_nothing_was_sent_for_long() {
        let mut credit = SendCredit::new();
        assert_eq!(credit.segments(), LEAST_CREDIT);
        assert!(credit.set(50, 40, None) && !credit.set(40, 40, None));
        assert!(credit.allows(40 * UNIT, UNIT) && !credit.allows(40 * UNIT + 1, UNIT));
        let (last, after) = (Instant::from_nanos(1), |idle| Instant::from_nanos(1 + idle));
        credit.note_idle(last, after(IDLE), 0);
        credit.note_idle(last, after(IDLE + IDLE / 2), IDLE / 2);
        assert_eq!(credit.segments(), 40);
        credit.set(40, 40, Some(after(3)));
        credit.note_idle(last, after(IDLE + 3), 0);
        assert_eq!(credit.segments(), 40, "the peer has said so just now");
        credit.note_idle(last, after(IDLE + 4), 0);
        assert_eq!(credit.segments(), LEAST_CREDIT);
        for (granted, kept) in [(1_000, KEPT), (160, 10), (30, LEAST_CREDIT)] {
            credit.set(granted, 4096, None);
            credit.note_idle(last, after(IDLE + 4), 0);
            assert_eq!(credit.segments(), kept);
        }
        assert!(!credit.set(0, 0, None), "never less than the least");
    }

    #[test]
    fn who_is_alone_gets_all_and_who_shares_gets_a_fair_share() {
        let mut budget = ReceiveBudget::new(100 * UNIT);
        let mut shares = [Share::default(), Share::default()];
        assert_eq!(budget.grant(&mut shares[0], asking(1, 0)), LEAST_CREDIT, "before it has sent anything");
        budget.join(&mut shares[0], UNIT);
        assert_eq!(budget.grant(&mut shares[0], asking(1, 0)), 100);
        assert_eq!(shares[0].promised(), 100 * UNIT);
        // What has been promised is still promised, for a while.
        budget.join(&mut shares[1], UNIT);
        assert_eq!(budget.grant(&mut shares[1], asking(2, 10)), LEAST_CREDIT);
        assert_eq!(budget.grant(&mut shares[0], asking(2, 10)), 50);
        assert_eq!(budget.grant(&mut shares[1], asking(2, 10)), LEAST_CREDIT);
        assert_eq!(budget.grant(&mut shares[0], asking(2, 13)), 50);
        assert_eq!(budget.grant(&mut shares[1], asking(2, 13)), 50);
        assert_eq!(budget.granted, 100 * UNIT);
    }

    #[test]
    fn the_silent_keep_the_least_and_lose_the_rest() {
        let mut budget = ReceiveBudget::new(100 * UNIT);
        let mut shares = [Share::default(), Share::default()];
        budget.join(&mut shares[0], UNIT);
        assert_eq!(budget.grant(&mut shares[0], asking(11, 0)), 80, "ten others may begin");
        budget.join(&mut shares[1], UNIT);
        assert!(budget.review(&mut shares[0], SILENT) && !budget.review(&mut shares[0], SILENT + 1));
        assert!(!shares[0].is_active() && budget.granted == LEAST_CREDIT * UNIT);
        budget.leave(&mut shares[0]);
        assert_eq!((budget.granted, budget.sharers), (LEAST_CREDIT * UNIT, 1), "only once");
        assert_eq!(budget.grant(&mut shares[1], asking(2, 0)), 98);
    }

    #[test]
    fn a_grant_is_settled_until_something_changes() {
        let mut budget = ReceiveBudget::new(100 * UNIT);
        let mut share = Share::default();
        assert_eq!(budget.settled(&share, 1), Some(LEAST_CREDIT), "nothing has come from there");
        budget.join(&mut share, UNIT);
        assert_eq!(budget.settled(&share, 1), None);
        (0..3).for_each(|at| assert_eq!(budget.grant(&mut share, asking(1, at)), 100));
        assert_eq!(budget.settled(&share, 1), Some(100));
        assert_eq!(budget.settled(&share, 2), None, "another peer is known");
        budget.join(&mut Share::default(), UNIT);
        assert_eq!(budget.settled(&share, 1), None, "another one shares");
        budget.leave(&mut share);
        assert_eq!(budget.settled(&share, 1), Some(LEAST_CREDIT), "silent again");
    }
}
