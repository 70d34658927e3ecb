//! [`Vain`]: a program that looks all the time and finds nothing lets others have its processor now and then.
//!
//! What it waits for may be a process that waits for that processor: there may be more processes than processors, and not all
//! that look in a loop leave it between looks. Somebody who has the processor for himself loses next to nothing by that.

/// Nanoseconds without anything new after which it does; and between two times.
const LONG: u64 = 100_000;
const BETWEEN: u64 = 20_000;

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
    use super::*;

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
