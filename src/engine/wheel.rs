//! A timer wheel: when to look at which endpoint.
//!
//! Setting a timer and finding nothing due take the same few instructions however many there are. A
//! timer that is no longer needed is not looked for: it comes, and whoever gets it sees that.
//!
//! Time is cut into ticks. A wheel of the lowest level has a slot for each of 64 ticks, one of the next
//! a slot for each turn of the first, and so on; a timer stands on the level of the highest digit, to
//! the base of 64, in which its tick differs from the one that it is. So every timer of a level comes
//! before all those of the levels above. When its slot is reached it moves to a level below, in the end
//! to `near`, the list of this tick's, and comes exactly at its time.
//!
//! Answers to "Hashed and Hierarchical Timing Wheels" (Varghese and Lauck, SOSP 1987).

use super::slab::Key;
use super::time::Instant;
use crate::error::{Result, room};

/// Nanoseconds of a tick, as a power of two: 33 µs.
const TICK: u32 = 15;
/// Slots of a wheel, as a power of two.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// As many as it takes for every instant.
const LEVELS: usize = (u64::BITS - TICK).div_ceil(DIGIT) as usize;

/// When, and whom.
pub(super) type Timer = (Instant, Key);

/// Timers by their time.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The tick that it is.
    tick: u64,
    /// None is due before that.
    soonest: Instant,
    /// Those that are due, the latest first.
    due: Vec<Timer>,
    /// Those of this tick.
    near: Vec<Timer>,
    /// Those of later ticks, by level and digit.
    slots: Vec<Vec<Timer>>,
    /// By level: a bit for each slot that is not empty.
    taken: [u64; LEVELS],
    /// A slot being emptied.
    scratch: Vec<Timer>,
}

/// A slot that is not empty.
struct Slot {
    level: usize,
    digit: usize,
    /// The first of its ticks.
    start: u64,
}

const NEVER: Instant = Instant::from_nanos(u64::MAX);

const fn tick_of(at: Instant) -> u64 {
    at.nanos() >> TICK
}

impl Wheel {
    /// One without timers.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            tick: 0,
            soonest: NEVER,
            due: Vec::new(),
            near: Vec::new(),
            slots: room::filled(Vec::new(), LEVELS * SLOTS)?,
            taken: [0; LEVELS],
            scratch: Vec::new(),
        })
    }

    /// Sets a timer.
    #[inline]
    pub(super) fn set(&mut self, at: Instant, key: Key) {
        self.soonest = self.soonest.min(at);
        self.place((at, key));
    }

    /// The first of the timers that are due.
    #[inline]
    pub(super) fn pop(&mut self, now: Instant) -> Option<Timer> {
        if now < self.soonest { None } else { self.pop_due(now) }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let here = self.due.iter().chain(&self.near).min();
        let later = || self.first_slot().and_then(|slot| self.slots[slot.index()].iter().min());
        here.or_else(later).map(|timer| timer.0)
    }

    #[inline(never)]
    fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.due.is_empty() {
            self.turn_to(now);
        }
        let first = self.due.pop();
        if self.due.is_empty() {
            let near = self.near.iter().min().map_or(NEVER, |timer| timer.0);
            let later = self.first_slot().map_or(NEVER, |slot| Instant::from_nanos(slot.start << TICK));
            self.soonest = near.min(later);
        }
        first
    }

    /// Moves on to `now`: what is due by then is in `due`.
    fn turn_to(&mut self, now: Instant) {
        let due = &mut self.due;
        self.near.retain(|timer| {
            let waits = timer.0 > now;
            if !waits {
                due.push(*timer);
            }
            waits
        });
        while let Some(slot) = self.first_slot().filter(|slot| slot.start <= tick_of(now)) {
            self.tick = slot.start;
            self.taken[slot.level] &= !(1 << slot.digit);
            std::mem::swap(&mut self.scratch, &mut self.slots[slot.index()]);
            while let Some(timer) = self.scratch.pop() {
                if timer.0 <= now { self.due.push(timer) } else { self.place(timer) }
            }
            std::mem::swap(&mut self.scratch, &mut self.slots[slot.index()]);
        }
        self.tick = self.tick.max(tick_of(now));
        self.due.sort_unstable_by(|one, other| other.cmp(one));
    }

    #[inline]
    fn place(&mut self, timer: Timer) {
        let tick = tick_of(timer.0);
        if tick <= self.tick {
            return self.near.push(timer);
        }
        let level = (tick ^ self.tick).ilog2() / DIGIT;
        let digit = (tick >> (level * DIGIT)) as usize % SLOTS;
        self.taken[level as usize] |= 1 << digit;
        self.slots[level as usize * SLOTS + digit].push(timer);
    }

    /// The slot that is reached first.
    fn first_slot(&self) -> Option<Slot> {
        let level = self.taken.iter().position(|slots| *slots != 0)?;
        let digit = self.taken[level].trailing_zeros() as usize;
        let below = level as u32 * DIGIT;
        // The digits above are those of now.
        let above = self.tick >> (below + DIGIT) << (below + DIGIT);
        Some(Slot { level, digit, start: above | (digit as u64) << below })
    }
}

impl Slot {
    const fn index(&self) -> usize {
        self.level * SLOTS + self.digit
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::{MICRO, MILLI};
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    fn key(index: u32) -> Key {
        Key { index, generation: 1 }
    }

    #[test]
    fn timers_come_in_order_and_none_before_its_time() {
        let (mut wheel, mut model) = (Wheel::new().expect("memory"), BinaryHeap::new());
        let mut now = Instant::from_nanos(12_345);
        let mut random = 7_u64;
        let mut come = 0;
        for index in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // From nanoseconds to months, some long over.
            let ahead = (random >> 11) >> (random % 53);
            let at = Instant::from_nanos((now.nanos() + ahead).saturating_sub(50 * MICRO));
            wheel.set(at, key(index));
            model.push(Reverse((at, key(index))));
            assert_eq!(wheel.next(), model.peek().map(|next| next.0.0));
            let step = if random & 1 << 40 == 0 { MICRO } else { (random >> 20) >> (random % 43) };
            now = now.plus(step);
            while let Some(timer) = wheel.pop(now) {
                assert_eq!(model.pop(), Some(Reverse(timer)));
                come += 1;
            }
            assert!(model.peek().is_none_or(|next| next.0.0 > now));
        }
        assert!(come > 50_000 && !model.is_empty(), "{come} have come");
    }

    #[test]
    fn a_timer_may_be_set_again_while_others_come() {
        let mut wheel = Wheel::new().expect("memory");
        let now = Instant::from_nanos(10 * MILLI);
        wheel.set(now, key(1));
        wheel.set(now.plus(1), key(2));
        assert_eq!(wheel.pop(now), Some((now, key(1))));
        wheel.set(now, key(3));
        wheel.set(now.plus(2), key(1));
        assert_eq!(wheel.pop(now), Some((now, key(3))));
        assert_eq!((wheel.pop(now), wheel.next()), (None, Some(now.plus(1))));
        assert_eq!(wheel.pop(now.plus(2)), Some((now.plus(1), key(2))));
        assert_eq!(wheel.pop(now.plus(2)), Some((now.plus(2), key(1))));
        assert_eq!((wheel.pop(NEVER), wheel.next()), (None, None));
    }

    #[test]
    fn what_waits_long_costs_nothing() {
        let mut wheel = Wheel::new().expect("memory");
        for index in 0..10_000 {
            wheel.set(Instant::from_nanos(u64::from(index + 1) * 1000 * MILLI), key(index));
        }
        for micros in 0..900_000 {
            assert_eq!(wheel.pop(Instant::from_nanos(micros * MICRO)), None);
        }
        assert!(wheel.near.is_empty() && wheel.due.is_empty());
        assert_eq!(
            wheel.pop(Instant::from_nanos(1000 * MILLI)),
            Some((Instant::from_nanos(1000 * MILLI), key(0)))
        );
    }
}
