//! Who is owed an acknowledgement in a while, in the order of the times at which it leaves at the latest.
//!
//! All wait equally long, so that who comes to be owed one stands behind the others: a line, where a timer for each
//! would have to be set and come in vain for nearly every packet. Mostly something else that goes there acknowledges
//! before that time. Then the peer stays where it stands, and when its turn comes it stands again, if it is
//! owed another one by then: who talks back and forth stands in line once in so long a time, not with every word.

use super::pending_ack::PendingAck;
use super::slab::Key;
use super::time::Instant;
use std::collections::VecDeque;

/// The line.
#[derive(Debug)]
pub(super) struct DelayedAcks {
    line: VecDeque<(Instant, Key)>,
    /// When the first one's turn comes.
    soonest: Instant,
    /// Peers that are owed one.
    owed: usize,
}

const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl DelayedAcks {
    pub(super) const fn new() -> Self {
        Self { line: VecDeque::new(), soonest: NEVER, owed: 0 }
    }

    /// Whether anybody is owed one.
    #[inline]
    pub(super) const fn is_owing(&self) -> bool {
        self.owed > 0
    }

    /// Another peer is owed one.
    #[inline(always)]
    pub(super) const fn note_owed(&mut self) {
        self.owed += 1;
    }

    /// A peer is owed none any more, if it was.
    #[inline(always)]
    pub(super) fn note_settled(&mut self, ack: &mut PendingAck) {
        if ack.due.take().is_some() {
            self.owed -= 1;
        }
    }

    /// Its turn comes then.
    #[inline]
    pub(super) fn stand(&mut self, at: Instant, key: Key) {
        self.soonest = self.soonest.min(at);
        if self.line.back().is_none_or(|last| last.0 <= at) {
            return self.line.push_back((at, key));
        }
        let behind = self.line.iter().rev().take_while(|other| other.0 > at).count();
        self.line.insert(self.line.len() - behind, (at, key));
    }

    /// Whether it is anybody's turn.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.soonest <= now
    }

    /// Whose turn it is, and since when.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Key)> {
        let first = if self.is_due(now) { self.line.pop_front() } else { None };
        self.soonest = self.line.front().map_or(NEVER, |next| next.0);
        first
    }

    /// Those who stand in line, owed one or not.
    pub(super) fn standing(&self) -> impl Iterator<Item = Key> {
        self.line.iter().map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pending_ack::When;
    use super::*;

    const DELAY: u64 = 50;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn key(index: u32) -> Key {
        Key { index, generation: 1 }
    }

    /// One more packet has come in order.
    fn arrive(line: &mut DelayedAcks, ack: &mut PendingAck, now: u64) {
        match ack.note_in_order(1 << 30, 1, false, at(now), DELAY) {
            When::By(due) => {
                line.note_owed();
                line.stand(due, key(1));
            }
            When::Standing => line.note_owed(),
            When::Pending => {}
            When::Now => panic!("nobody asked"),
        }
    }

    #[test]
    fn turns_come_in_the_order_of_their_times() {
        let mut line = DelayedAcks::new();
        for (time, index) in [(50, 1), (60, 2), (70, 3), (55, 4), (70, 5), (10, 6)] {
            line.stand(at(time), key(index));
        }
        assert!(!line.is_due(at(9)) && line.is_due(at(10)));
        let come: Vec<u32> = std::iter::from_fn(|| line.pop(at(69))).map(|(_, key)| key.index).collect();
        assert_eq!(come, [6, 1, 4, 2]);
        assert_eq!(line.standing().map(|key| key.index).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn who_is_answered_at_once_stands_in_line_once_and_is_owed_nothing() {
        let (mut line, mut ack) = (DelayedAcks::new(), PendingAck::default());
        let mut turns = 0;
        for now in (0..10 * DELAY).step_by(5) {
            arrive(&mut line, &mut ack, now);
            assert!(line.is_owing() && line.standing().count() == 1, "{now}");
            line.note_settled(&mut ack);
            ack.take(false, at(now + 1));
            assert!(!line.is_owing());
            while let Some((since, who)) = line.pop(at(now + 1)) {
                assert_eq!((who, ack.note_turn(since, at(now + 1))), (key(1), When::Pending));
                turns += 1;
            }
        }
        assert!((8..=10).contains(&turns), "{turns}");
    }

    #[test]
    fn who_is_owed_another_one_when_its_turn_comes_stands_again_and_gets_it_in_time() {
        let (mut line, mut ack) = (DelayedAcks::new(), PendingAck::default());
        arrive(&mut line, &mut ack, 0);
        line.note_settled(&mut ack);
        arrive(&mut line, &mut ack, 30);
        assert_eq!(line.pop(at(DELAY)), Some((at(DELAY), key(1))));
        assert_eq!(ack.note_turn(at(DELAY), at(DELAY)), When::By(at(30 + DELAY)));
        line.stand(at(30 + DELAY), key(1));
        assert_eq!(ack.note_turn(at(DELAY), at(99)), When::Pending, "it stands elsewhere");
        assert!(!line.is_due(at(29 + DELAY)));
        let (since, _) = line.pop(at(30 + DELAY)).expect("its turn");
        assert_eq!(ack.note_turn(since, at(30 + DELAY)), When::Now);
        assert!(line.is_owing(), "until it has left");
        line.note_settled(&mut ack);
        line.note_settled(&mut ack);
        assert!(!line.is_owing() && line.standing().count() == 0);
    }
}
