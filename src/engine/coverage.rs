//! Which bytes of a whole have arrived.

/// Which bytes of a whole have arrived: all below `first`, and ranges in ascending order that do not
/// touch.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    first: u64,
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Notes the bytes from `start` to `end`; `false`, and nothing noted, when some were there.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        if start <= self.first {
            return self.extend(start, end);
        }
        let at = match self.ranges.last() {
            None => 0,
            Some(last) if last.1 <= start => self.ranges.len(),
            Some(_) => self.ranges.partition_point(|range| range.1 <= start),
        };
        if self.ranges.get(at).is_some_and(|range| range.0 < end) {
            return false;
        }
        let joins_next = self.ranges.get(at).is_some_and(|range| range.0 == end);
        let joins_last = at > 0 && self.ranges[at - 1].1 == start;
        match (joins_last, joins_next) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = end,
            (false, true) => self.ranges[at].0 = start,
            (false, false) => self.ranges.insert(at, (start, end)),
        }
        true
    }

    /// The common case: the bytes follow what has arrived in order, which takes no memory to note.
    #[inline]
    fn extend(&mut self, start: u64, end: u64) -> bool {
        let next = self.ranges.first().copied();
        if start < self.first || next.is_some_and(|next| next.0 < end) {
            return false;
        }
        self.first = end;
        if let Some(next) = next.filter(|next| next.0 == end) {
            self.first = next.1;
            self.ranges.remove(0);
        }
        true
    }

    /// Below what all has arrived, if nothing above that has.
    pub(super) fn only_first(&self) -> Option<u64> {
        self.ranges.is_empty().then_some(self.first)
    }

    /// Whether all bytes below `len` have arrived.
    pub(super) fn covers(&self, len: u64) -> bool {
        self.first == len && self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_counts_each_byte_once() {
        let mut coverage = Coverage::default();
        assert!(coverage.insert(10, 20) && coverage.insert(30, 40) && coverage.insert(20, 30));
        assert_eq!(coverage.only_first(), None, "they came early");
        assert!(!coverage.insert(5, 11) && !coverage.insert(39, 50) && !coverage.insert(12, 13));
        assert!(!coverage.insert(0, 100) && !coverage.covers(40));
        assert!(coverage.insert(0, 10) && coverage.covers(40) && !coverage.covers(41));
        assert_eq!(coverage.only_first(), Some(40));
        assert!(coverage.insert(7, 7) && Coverage::default().covers(0));
    }
}
