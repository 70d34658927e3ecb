//! How many later segments must arrive before a missing one counts as lost.
//!
//! It begins with RFC 9002's packet threshold. Where a path reorders more than that, segments are sent
//! again that were only late: the threshold doubles. Where losses are real again it falls, as the
//! reordering window of RFC 8985 (6.2, step 4) does after sixteen recoveries: a path that once
//! reordered would otherwise repair its losses late for ever.

/// The packet threshold to begin with (RFC 9002, 6.1.1).
const LEAST: u64 = 3;
/// The greatest.
const MOST: u64 = 256;
/// Real losses in a row after which it falls.
const RECOVERIES: u32 = 16;

/// The packet threshold of one peer.
#[derive(Debug)]
pub(super) struct Reordering {
    threshold: u64,
    recoveries: u32,
}

impl Reordering {
    pub(super) const fn new() -> Self {
        Self { threshold: LEAST, recoveries: 0 }
    }

    /// Later segments of the channel that make one lost.
    #[inline]
    pub(super) const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// A segment that was sent again for being overtaken had not been lost.
    pub(super) fn note_spurious(&mut self) {
        self.threshold = (self.threshold * 2).min(MOST);
        self.recoveries = 0;
    }

    /// It had been.
    pub(super) fn note_recovered(&mut self) {
        self.recoveries += 1;
        if self.recoveries >= RECOVERIES {
            self.recoveries = 0;
            self.threshold = (self.threshold / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_rises_with_reordering_and_falls_with_losses() {
        let mut reordering = Reordering::new();
        assert_eq!(reordering.threshold(), 3);
        (0..3).for_each(|_| reordering.note_spurious());
        assert_eq!(reordering.threshold(), 24);
        (0..20).for_each(|_| reordering.note_spurious());
        assert_eq!(reordering.threshold(), 256);
        (0..15).for_each(|_| reordering.note_recovered());
        reordering.note_spurious();
        (0..15).for_each(|_| reordering.note_recovered());
        assert_eq!(reordering.threshold(), 256, "sixteen in a row");
        reordering.note_recovered();
        assert_eq!(reordering.threshold(), 128);
        (0..16 * 10).for_each(|_| reordering.note_recovered());
        assert_eq!(reordering.threshold(), 3);
    }
}
