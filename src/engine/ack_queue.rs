//! Who is owed an acknowledgement: at the end of this pass, or in a while, in the order of the times at which it
//! leaves at the latest.
//!
//! All wait equally long, so that who comes to be owed one stands behind the others: a line, where a timer for each
//! would have to be set and come in vain for nearly every packet. Mostly something else that goes there acknowledges
//! before that time. Then the peer stays where it stands, and when its turn comes it stands again, if it is
//! owed another one by then: who talks back and forth stands in line once in so long a time, not with every word.

use super::pending_ack::When;
use super::slab::Key;
use super::time::Instant;
use super::timers::{Timer, Timers};
use std::collections::VecDeque;

/// The peers that are owed one.
#[derive(Debug)]
pub(super) struct AckQueue {
    /// At the end of this pass.
    pub(super) immediate: VecDeque<u32>,
    /// Later.
    line: VecDeque<(Instant, Key)>,
    /// When the turn of the first one in line comes.
    soonest: Instant,
    /// Those that are owed one later.
    owed: usize,
}

const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl AckQueue {
    pub(super) const fn new() -> Self {
        Self { immediate: VecDeque::new(), line: VecDeque::new(), soonest: NEVER, owed: 0 }
    }

    /// Whether anybody is owed one.
    #[inline]
    pub(super) fn is_owing(&self) -> bool {
        self.owed > 0 || !self.immediate.is_empty()
    }

    /// Something has come from a peer at `at`, and its acknowledgement leaves then.
    #[inline(always)]
    pub(super) fn note(&mut self, when: When, timers: &mut Timers, key: Key, at: Instant, delay: u64) {
        match when {
            When::Now => self.immediate.push_back(key.index),
            When::Delayed => self.owe(timers, at.plus(delay), key),
            When::Pending => {}
        }
    }

    /// A peer is owed one by `due`, if it was not before.
    #[inline(always)]
    fn owe(&mut self, timers: &mut Timers, due: Instant, key: Key) {
        if timers.is_set(Timer::AckDelay) {
            return;
        }
        timers.set(Timer::AckDelay, due);
        self.owed += 1;
        if timers.stand(due) {
            self.stand(due, key);
        }
    }

    /// A peer is owed none any more, if it was.
    #[inline(always)]
    pub(super) fn note_settled(&mut self, timers: &mut Timers) {
        if timers.is_set(Timer::AckDelay) {
            timers.stop(Timer::AckDelay);
            self.owed -= 1;
        }
    }

    /// The turn has come of one that stood in line for `at`: whether it is owed one by now. If it is owed one later,
    /// it stands in line again.
    pub(super) fn note_turn(&mut self, timers: &mut Timers, at: Instant, key: Key, now: Instant) -> bool {
        if !timers.note_line(at) {
            return false;
        }
        let later = timers.due(Timer::AckDelay).filter(|due| *due > now);
        if let Some(due) = later {
            timers.stand(due);
            self.stand(due, key);
        }
        timers.is_due(Timer::AckDelay, now)
    }

    /// Its turn comes then.
    #[inline]
    fn stand(&mut self, at: Instant, key: Key) {
        self.soonest = self.soonest.min(at);
        if self.line.back().is_none_or(|last| last.0 <= at) {
            return self.line.push_back((at, key));
        }
        let behind = self.line.iter().rev().take_while(|other| other.0 > at).count();
        self.line.insert(self.line.len() - behind, (at, key));
    }

    /// Whether the turn of anybody in line has come.
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
    use super::*;

    const DELAY: u64 = 50;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn key(index: u32) -> Key {
        Key { index, generation: 1 }
    }

    #[test]
    fn turns_come_in_the_order_of_their_times() {
        let mut line = AckQueue::new();
        for (time, index) in [(50, 1), (60, 2), (70, 3), (55, 4), (70, 5), (10, 6)] {
            line.owe(&mut Timers::new(), at(time), key(index));
        }
        assert!(!line.is_due(at(9)) && line.is_due(at(10)));
        let come: Vec<u32> = std::iter::from_fn(|| line.pop(at(69))).map(|(_, key)| key.index).collect();
        assert_eq!(come, [6, 1, 4, 2]);
        assert_eq!(line.standing().map(|key| key.index).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn who_is_owed_one_is_not_owed_another() {
        let (mut line, mut timers) = (AckQueue::new(), Timers::new());
        (0..9).for_each(|now| line.owe(&mut timers, at(now + DELAY), key(1)));
        assert_eq!(timers.due(Timer::AckDelay), Some(at(DELAY)), "by the first time");
        assert_eq!(line.standing().count(), 1);
        line.note_settled(&mut timers);
        assert!(!line.is_owing());
    }

    #[test]
    fn who_is_answered_at_once_stands_in_line_once_and_is_owed_nothing() {
        let (mut line, mut timers) = (AckQueue::new(), Timers::new());
        let mut turns = 0;
        for now in (0..10 * DELAY).step_by(5) {
            line.owe(&mut timers, at(now + DELAY), key(1));
            assert!(line.is_owing() && line.standing().count() == 1, "{now}");
            line.note_settled(&mut timers);
            assert!(!line.is_owing());
            while let Some((since, who)) = line.pop(at(now + 1)) {
                assert!(who == key(1) && !line.note_turn(&mut timers, since, who, at(now + 1)));
                turns += 1;
            }
        }
        assert!((8..=10).contains(&turns), "{turns}");
    }

    #[test]
    fn who_is_owed_another_one_when_its_turn_comes_stands_again_and_gets_it_in_time() {
        let (mut line, mut timers) = (AckQueue::new(), Timers::new());
        line.owe(&mut timers, at(DELAY), key(1));
        line.note_settled(&mut timers);
        line.owe(&mut timers, at(30 + DELAY), key(1));
        assert_eq!(line.pop(at(DELAY)), Some((at(DELAY), key(1))));
        assert!(!line.note_turn(&mut timers, at(DELAY), key(1), at(DELAY)), "not yet");
        assert_eq!(line.standing().count(), 1);
        assert!(!line.note_turn(&mut timers, at(DELAY), key(1), at(99)), "it stands elsewhere");
        assert!(!line.is_due(at(29 + DELAY)));
        let (since, who) = line.pop(at(30 + DELAY)).expect("its turn");
        assert!(line.note_turn(&mut timers, since, who, at(30 + DELAY)));
        assert!(line.is_owing(), "until it has left");
        line.note_settled(&mut timers);
        line.note_settled(&mut timers);
        assert!(!line.is_owing() && line.standing().count() == 0);
    }
}
