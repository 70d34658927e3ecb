//! A program that looks all the time and finds nothing draws breath between looks, and lets others have its processor now and
//! then. After a breath, what has come meanwhile is [looked for](super::Traffic::glance) before the program goes on.
//!
//! What it waits for may be done by the other thread of its core, which has less of the core the more of it is spent on looks. It
//! may be a process that waits for that very processor: there may be more processes than processors, and not all that look in a
//! loop leave it between looks. Somebody who has the processor for himself loses next to nothing by either.

use std::hint::spin_loop;
use std::sync::OnceLock;

use crate::link::Clock;

/// Nanoseconds without anything new after which it does; and between two times.
const LONG: u64 = 100_000;
const BETWEEN: u64 = 20_000;

/// What a look has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There was something, or more was done than to look.
    Something,
    /// Nothing, for the first time.
    NothingYet,
    /// Nothing, again.
    Nothing,
    /// More was done than to look, and there was nothing, again.
    NothingElse,
    /// The same for so long that it is others' turn.
    NothingForLong,
}

impl Found {
    /// What whoever looks does before it goes on.
    #[inline]
    pub fn wait(self) {
        match self {
            Self::Something | Self::NothingYet => {}
            Self::Nothing | Self::NothingElse => draw_breath(),
            Self::NothingForLong => std::thread::yield_now(),
        }
    }

    /// Nothing has been done, so that nothing has ended either.
    #[inline(always)]
    pub fn is_idle(self) -> bool {
        matches!(self, Self::NothingYet | Self::Nothing)
    }
}

/// Nanoseconds of a breath. Of a message that comes during one, half of them are lost in the mean.
const BREATH: u64 = 15;

fn draw_breath() {
    static PAUSES: OnceLock<u64> = OnceLock::new();
    (0..*PAUSES.get_or_init(|| pauses(time_of_a_hundred()))).for_each(|_| spin_loop());
}

/// Of how many pauses a breath is, by what a hundred of them take, in nanoseconds: one takes 3 to 50, by the processor.
fn pauses(hundred: u64) -> u64 {
    (100 * BREATH + hundred / 2).checked_div(hundred).unwrap_or(u64::MAX).clamp(1, 4)
}

/// The least of some times: of the others a part was somebody else's.
fn time_of_a_hundred() -> u64 {
    let clock = Clock::new();
    let time = || {
        let start = clock.nanos();
        (0..100).for_each(|_| spin_loop());
        clock.nanos() - start
    };
    (0..5).map(|_| time()).min().unwrap_or_default()
}

/// Since when nothing has come.
#[derive(Default)]
pub(super) struct Vain {
    moved: u64,
    since: u64,
    gave_way: u64,
}

impl Vain {
    /// Whether whoever looks is to let others go first, given what has moved in number, and the time. Who looks seldom does
    /// something else meanwhile.
    pub(super) fn is_long(&mut self, moved: u64, now: u64, is_seldom: bool) -> bool {
        if moved != self.moved || is_seldom {
            (self.moved, self.since) = (moved, now);
        }
        let is_long = now - self.since >= LONG && now - self.gave_way >= BETWEEN;
        if is_long {
            self.gave_way = now;
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::super::Traffic;
    use super::super::tests::{Side, pair};
    use super::*;

    /// Whether a look finds nothing, as the one before it.
    fn is_in_vain(side: &Side) -> bool {
        const VAIN: [Found; 3] = [Found::Nothing, Found::NothingElse, Found::NothingForLong];
        VAIN.contains(&side.with(Traffic::progress))
    }

    #[test]
    fn the_second_of_two_looks_that_find_nothing_is_in_vain() {
        let [one, two] = pair();
        while !is_in_vain(&two) {}
        let mut to = [0; 1];
        two.receive(&mut to, 2);
        one.send(b"c", 1, 2).expect("sent");
        assert_eq!([(); 3].map(|()| is_in_vain(&two)), [false, false, true]);
        assert_eq!((to, two.receive.len()), (*b"c", 1));
    }

    #[test]
    fn who_was_waiting_has_the_first_message_at_once_and_then_all() {
        let [one, two] = pair();
        let mut to = [[0; 1]; 4];
        to.iter_mut().for_each(|to| two.receive(to, 2));
        while !is_in_vain(&two) {}
        (0..4).for_each(|_| one.send(b"c", 1, 2).expect("sent"));
        let read = || {
            two.with(|traffic| {
                traffic.is_rare = false;
                traffic.progress()
            });
            two.receive.len()
        };
        assert_eq!([read(), read()], [1, 4]);
        assert_eq!(to, [*b"c"; 4]);
    }

    #[test]
    fn who_looks_seldom_has_all_at_once() {
        let [one, two] = pair();
        let mut to = [[0; 1]; 4];
        to.iter_mut().for_each(|to| two.receive(to, 2));
        while !is_in_vain(&two) {}
        (0..4).for_each(|_| one.send(b"c", 1, 2).expect("sent"));
        two.with(|traffic| {
            traffic.is_rare = true;
            traffic.progress()
        });
        assert_eq!(two.receive.len(), 4);
    }

    #[test]
    fn who_loses_a_peer_while_breath_is_drawn_hears_that() {
        let [one, two] = pair();
        while !is_in_vain(&two) {}
        one.lie(0xFE, &[]);
        assert!(two.with(Traffic::glance));
    }

    #[test]
    fn what_comes_while_breath_is_drawn_is_there_before_the_program_goes_on() {
        let [one, two] = pair();
        let mut to = [0; 1];
        two.receive(&mut to, 2);
        while !is_in_vain(&two) {}
        assert!(!two.with(Traffic::glance) && is_in_vain(&two));
        one.send(b"c", 1, 2).expect("sent");
        assert!(two.with(Traffic::glance));
        assert_eq!((to, two.receive.len()), (*b"c", 1));
        assert!(!two.with(Traffic::glance) && !is_in_vain(&two), "something was there");
    }

    #[test]
    fn a_breath_is_about_as_long_on_all_processors() {
        for (hundred, count) in [(300, 4), (900, 2), (2_470, 1), (4_600, 1), (90_000, 1), (0, 4)] {
            assert_eq!(pauses(hundred), count, "{hundred} ns");
        }
    }

    #[test]
    fn who_finds_nothing_for_long_gives_way_now_and_then() {
        let mut vain = Vain::default();
        let ways = (0..20_u64).map(|turn| vain.is_long(1, 1_000_000 + turn * 10_000, false));
        let ways: Vec<bool> = ways.collect();
        assert_eq!(ways.iter().position(|way| *way), Some(10), "not before it was long");
        assert_eq!(ways[10..], [true, false].repeat(5), "and not each time");
    }

    #[test]
    fn who_finds_something_or_looks_seldom_does_not() {
        for (each, is_seldom) in [(1, false), (0, true)] {
            let mut vain = Vain::default();
            assert!((0..20).all(|turn| !vain.is_long(1 + turn * each, 1_000_000 + turn * 90_000, is_seldom)));
        }
    }
}
