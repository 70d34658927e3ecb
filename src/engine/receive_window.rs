//! What has arrived from a peer: which sequence numbers are new, and which are holes.

use crate::wire::usnic::{BITMAP_BITS, Bitmap};
use std::collections::BTreeSet;

/// Most segments between the oldest unacknowledged and the newest.
pub(super) const WINDOW: u64 = 4096;

const WORDS: usize = WINDOW as usize / 64;

/// What a sequence number means to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    New,
    Duplicate,
    /// Below the window: acknowledged long ago.
    Below,
    /// Above the window: no honest sender sends it yet.
    Above,
}

/// What has arrived from one peer: everything below `next`, and some above.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    next: u64,
    /// One more than the highest that has arrived.
    end: u64,
    /// Ring of bits for `next ..`; made when the first segment comes out of order.
    bits: Option<Box<[u64; WORDS]>>,
    /// Numbers that have not arrived and that only a void may still take; all within the window.
    withdrawn: BTreeSet<u64>,
}

impl ReceiveWindow {
    /// The number expected.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether something has arrived above a hole.
    #[inline]
    pub(super) const fn has_gap(&self) -> bool {
        self.end > self.next
    }

    /// One more than the highest that has arrived.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    fn bit(&self, seq: u64) -> bool {
        self.bits.as_ref().is_some_and(|bits| bits[(seq % WINDOW / 64) as usize] >> (seq % 64) & 1 == 1)
    }

    #[inline]
    pub(super) fn judge(&self, seq: u64) -> Verdict {
        match seq.checked_sub(self.next) {
            None => Verdict::Below,
            Some(0) => Verdict::New,
            Some(ahead) if ahead >= WINDOW => Verdict::Above,
            Some(_) if self.bit(seq) => Verdict::Duplicate,
            Some(_) => Verdict::New,
        }
    }

    /// Whether `seq` is the one expected and nothing has overtaken it.
    #[inline]
    pub(super) const fn is_plain(&self, seq: u64) -> bool {
        seq == self.next && self.end <= self.next
    }

    /// The sender withdraws a segment: whether it can, since it has not arrived.
    pub(super) fn withdraw(&mut self, seq: u64) -> bool {
        if self.judge(seq) != Verdict::New {
            return false;
        }
        self.withdrawn.insert(seq);
        // It is a hole now, also where nothing has arrived above it.
        self.end = self.end.max(seq + 1);
        true
    }

    /// Whether a segment was withdrawn, and only a void may take its place.
    #[inline]
    pub(super) fn is_withdrawn(&self, seq: u64) -> bool {
        self.withdrawn.contains(&seq)
    }

    /// A void takes the place of a segment, withdrawn or not.
    pub(super) fn accept_void(&mut self, seq: u64) {
        self.withdrawn.remove(&seq);
        self.accept(seq);
    }

    /// Notes the arrival of a new segment.
    #[inline(always)]
    pub(super) fn accept(&mut self, seq: u64) {
        if seq == self.next {
            self.next += 1;
            if self.end < self.next {
                self.end = self.next;
                return;
            }
            self.advance();
        } else {
            self.end = self.end.max(seq + 1);
            let bits = self.bits.get_or_insert_with(|| Box::new([0; WORDS]));
            bits[(seq % WINDOW / 64) as usize] |= 1 << (seq % 64);
        }
    }

    /// Notes the arrival of so many segments, the first of which [is the one expected](Self::is_plain).
    #[inline]
    pub(super) fn accept_run(&mut self, count: u64) {
        self.next += count;
        self.end = self.next;
    }

    #[inline(never)]
    fn advance(&mut self) {
        let Some(bits) = &mut self.bits else { return };
        while self.next < self.end {
            let word = &mut bits[(self.next % WINDOW / 64) as usize];
            let bit = 1 << (self.next % 64);
            if *word & bit == 0 {
                break;
            }
            *word &= !bit;
            self.next += 1;
        }
    }

    /// The bitmap from `first` on.
    pub(super) fn bitmap(&self, first: u64) -> Bitmap {
        let mut bitmap = Bitmap::default();
        let end = self.end.min(first + BITMAP_BITS);
        (first..end).filter(|seq| self.bit(*seq)).for_each(|seq| bitmap.set(seq - first));
        bitmap
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.bits.as_ref().map_or(0, |bits| size_of_val(&**bits)) + self.withdrawn.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_new_once() {
        let mut window = ReceiveWindow::default();
        let mut seen = BTreeSet::new();
        let mut random = 1_u64;
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ahead = (random >> 33) % if random >> 62 == 0 { 5000 } else { 7 };
            let seq = (window.next() + ahead).saturating_sub(2);
            let verdict = window.judge(seq);
            let expected = if seq < window.next() {
                Verdict::Below
            } else if seq >= window.next() + WINDOW {
                Verdict::Above
            } else if seen.contains(&seq) {
                Verdict::Duplicate
            } else {
                Verdict::New
            };
            assert_eq!(verdict, expected);
            if verdict == Verdict::New {
                assert!(seen.insert(seq));
                window.accept(seq);
            }
            assert!(!seen.contains(&window.next()));
        }
        assert!(window.next() > 10_000 && (0..window.next()).all(|seq| seen.contains(&seq)));
        let bitmap = window.bitmap(window.next());
        assert!((0..256).all(|at| bitmap.has(at) == seen.contains(&(window.next() + at))));
    }

    #[test]
    fn a_withdrawn_number_is_a_hole_that_a_void_fills() {
        let mut window = ReceiveWindow::default();
        window.accept(0);
        assert!(
            !window.withdraw(0) && !window.withdraw(1 + WINDOW),
            "it has arrived, and it is no number yet"
        );
        assert!(window.withdraw(1) && window.withdraw(1), "each time that it is asked");
        assert!(window.has_gap() && !window.is_plain(1), "nothing but a void may take it");
        assert!(window.is_withdrawn(1) && !window.is_withdrawn(2));
        assert!(window.withdraw(3));
        window.accept(2);
        assert_eq!((window.next(), window.judge(3)), (1, Verdict::New));
        assert!(!window.bitmap(2).has(1), "a hole is no arrival");
        window.accept_void(1);
        assert_eq!((window.next(), window.has_gap()), (3, true));
        window.accept_void(3);
        assert_eq!((window.next(), window.has_gap(), window.withdrawn.len()), (4, false, 0));
        assert!(window.is_plain(4) && !window.withdraw(3));
    }
}
