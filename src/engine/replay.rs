//! Which packet numbers have been received: each may come once (RFC 4303, 3.4.3; RFC 9147, 4.5.1).
//!
//! The newest numbers are kept, in blocks of which the oldest is cleared when a new one begins (RFC 6479).
//! Numbers below them count as received. There is room for what two channels can hold while one overtakes
//! the other, that is for more than the window of segments.

/// Blocks of 64 numbers. One of them is always being filled.
const BLOCKS: u64 = 160;

/// The numbers received of one sender.
#[derive(Debug)]
pub(super) struct ReplayWindow {
    highest: Option<u64>,
    /// Made when the first number is received: whoever forges costs no memory.
    blocks: Option<Box<[u64; BLOCKS as usize]>>,
}

impl ReplayWindow {
    pub(super) const fn new() -> Self {
        Self { highest: None, blocks: None }
    }

    /// The highest number received.
    pub(super) const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Whether a number has not been received, as far as that is still known.
    pub(super) fn is_new(&self, number: u64) -> bool {
        let (Some(highest), Some(received)) = (self.highest, &self.blocks) else { return true };
        if number > highest {
            return true;
        }
        let (block, bit) = Self::place(number);
        highest / 64 - number / 64 < BLOCKS && received[block] & bit == 0
    }

    /// Notes a number that is new, of a packet that is genuine.
    pub(super) fn note(&mut self, number: u64) {
        let before = self.highest.map_or(number / 64, |highest| highest / 64);
        let begun = (number / 64).saturating_sub(before).min(BLOCKS);
        let blocks = self.blocks.get_or_insert_with(|| Box::new([0; BLOCKS as usize]));
        for ahead in 1..=begun {
            blocks[((before + ahead) % BLOCKS) as usize] = 0;
        }
        // After a leap over all blocks, those between are of none that could still come.
        let (block, bit) = Self::place(number);
        blocks[block] |= bit;
        self.highest = Some(self.highest.map_or(number, |highest| highest.max(number)));
    }

    const fn place(number: u64) -> (usize, u64) {
        ((number / 64 % BLOCKS) as usize, 1 << (number % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far a number may be below the highest one and still be told from one that has come before.
    const REACH: u64 = (BLOCKS - 1) * 64;

    #[test]
    fn each_number_is_new_once() {
        let mut window = ReplayWindow::new();
        for number in [700, 3, 701, 5, 4, 9_000, 8_999] {
            assert!(window.is_new(number), "{number}");
            window.note(number);
            assert!(!window.is_new(number), "{number}");
        }
        assert!(window.is_new(6) && window.is_new(9_001) && window.is_new(8_998));
    }

    #[test]
    fn whoever_has_received_nothing_takes_no_memory() {
        let mut window = ReplayWindow::new();
        assert!(window.is_new(1) && window.blocks.is_none());
        window.note(1);
        assert!(!window.is_new(1) && window.blocks.is_some());
    }

    #[test]
    fn what_is_out_of_reach_counts_as_received() {
        let mut window = ReplayWindow::new();
        let high = 1 << 40 | 63;
        window.note(high);
        let lowest = high - 63 - REACH;
        assert!(window.is_new(lowest) && !window.is_new(lowest - 1) && !window.is_new(0));
        window.note(lowest);
        assert!(!window.is_new(lowest) && window.is_new(lowest + 1));
        window.note(high + 1);
        assert!(!window.is_new(lowest + 1) && window.is_new(lowest + 64), "a new block has begun");
    }

    #[test]
    fn a_leap_forgets_what_is_out_of_reach_and_nothing_else() {
        for leap in [64 * (BLOCKS - 1), 64 * BLOCKS, 64 * BLOCKS + 1, 1 << 43] {
            let mut window = ReplayWindow::new();
            (0..1_000).for_each(|number| window.note(number));
            window.note(leap);
            for number in (0..1_000).chain(leap.saturating_sub(20_000)..=leap + 1) {
                let reach = (leap / 64).saturating_sub(number / 64) < BLOCKS;
                let new = number > leap || reach && number >= 1_000 && number != leap;
                assert_eq!(window.is_new(number), new, "{number} after {leap}");
            }
        }
    }

    /// Against a set of all numbers that have ever come.
    #[test]
    fn no_number_is_ever_taken_twice() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut window, mut seen, mut head) = (ReplayWindow::new(), std::collections::HashSet::new(), 0_u64);
        for _ in 0..300_000 {
            head += next(3) * if next(5_000) == 0 { 9_000 } else { 1 };
            let number = head.saturating_sub(if next(3) == 0 { next(14_000) } else { next(40) });
            if window.is_new(number) {
                assert!(seen.insert(number), "{number} is taken twice");
                window.note(number);
            } else {
                let highest = window.highest().expect("some");
                assert!(seen.contains(&number) || highest - number > REACH, "{number} is refused");
            }
        }
    }

    #[test]
    fn numbers_at_the_end_are_numbers() {
        let mut window = ReplayWindow::new();
        window.note(u64::MAX - 1);
        assert!(window.is_new(u64::MAX) && !window.is_new(u64::MAX - 1));
        window.note(u64::MAX);
        assert!(!window.is_new(u64::MAX) && window.is_new(u64::MAX - 2) && !window.is_new(0));
    }
}
