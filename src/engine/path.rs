//! How long a datagram a path carries whole (RFC 8899, RFC 4821).
//!
//! Interfaces say how long datagrams may be; a path may be narrower, from the beginning or from some
//! time on. The network says so ("packet too big", 4.6 there), and new segments are cut for what is
//! left. What it says is believed down to the length that every path carries; what is shorter than
//! that is fragmented by somebody.
//!
//! A path may also become wide again. From time to time one segment is cut as long as it once could
//! be: that is the probe, with data of the user in it (4.1 there). If it arrives, the following ones
//! are as long; if the network objects, nothing was lost but time, since what is too long goes in
//! fragments.
//!
//! A network may also drop what is too long without a word (a black hole, 4.3 there). So a long segment
//! that was sent in vain, while no other as long has arrived, goes with fragments allowed; when only such
//! ones arrive, the path is taken for as narrow as any. An outage is none of that: then nothing arrives.

use super::time::{Instant, MILLI};

/// `BASE_PLPMTU` (5.1.2): every path carries it.
const BASE: usize = 1200;
/// `PMTU_RAISE_TIMER` (5.1.1).
const RAISE: u64 = 600_000 * MILLI;
/// So many long segments that arrived in fragments, and no whole one meanwhile, make a black hole.
const SPLIT: u32 = 3;

/// The width of one path, in bytes of datagrams, headers of UDP and below not included.
#[derive(Debug)]
pub(super) struct Path {
    /// What both ends could send.
    whole: usize,
    width: usize,
    /// When the next probe is due; none is where the path is as wide as its ends.
    probe_at: Option<Instant>,
    /// When the last probe was cut, unless the network has objected since.
    probing: Option<Instant>,
    /// When the last long datagram was sent of those that have arrived whole.
    whole_at: Instant,
    /// Those that have arrived since then, with fragments allowed.
    split: u32,
}

impl Path {
    /// As wide as both ends allow, until something else is known.
    pub(super) const fn new(whole: usize) -> Self {
        Self { whole, width: whole, probe_at: None, probing: None, whole_at: Instant::ORIGIN, split: 0 }
    }

    /// The longest datagram that is known to get there.
    #[inline]
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// The length of a probe, when one is due.
    #[inline]
    pub(super) fn probe_due(&self, now: Instant) -> Option<usize> {
        self.probe_at.filter(|at| *at <= now).map(|_| self.whole)
    }

    /// A segment is cut as a probe.
    #[cold]
    pub(super) fn note_probe(&mut self, now: Instant) {
        self.probe_at = Some(now.plus(RAISE));
        self.probing = Some(now);
    }

    /// Whether a datagram of this length, last sent at `sent` and now again, goes with fragments allowed.
    /// `in_vain`: it has not arrived though it was sent again before, or nothing at all has been heard.
    #[inline]
    pub(super) fn splits(&self, len: usize, sent: Instant, in_vain: bool) -> bool {
        len > self.width || in_vain && len > BASE && sent > self.whole_at
    }

    /// A datagram of this length has arrived that was sent with fragments allowed.
    #[cold]
    pub(super) fn note_split_arrived(&mut self, len: usize, now: Instant) {
        if len <= BASE || len > self.width {
            return;
        }
        self.split += 1;
        if self.split >= SPLIT {
            self.handle_too_big(BASE, now);
            self.split = 0;
        }
    }

    /// The network says that it carries only datagrams of this length. Whether that is news.
    pub(super) fn handle_too_big(&mut self, limit: usize, now: Instant) -> bool {
        let limit = limit.max(BASE.min(self.whole));
        self.probing = None;
        if limit >= self.width {
            return false;
        }
        self.width = limit;
        self.probe_at = Some(now.plus(RAISE));
        true
    }

    /// A datagram of this length that was sent at `sent` has arrived. Only a probe can say that the
    /// path is wider: others that are as long may have gone in fragments.
    #[inline]
    pub(super) fn note_arrived(&mut self, len: usize, sent: Instant) {
        if len > BASE {
            (self.whole_at, self.split) = (self.whole_at.max(sent), 0);
        }
        if len > self.width && self.probing.is_some_and(|at| sent >= at) {
            self.width = len.min(self.whole);
            self.probing = None;
            self.probe_at = self.probe_at.filter(|_| self.width < self.whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000);

    #[test]
    fn a_report_narrows_the_path_and_never_widens_it() {
        let mut path = Path::new(1472);
        assert_eq!((path.width(), path.probe_due(START)), (1472, None));
        assert!(path.handle_too_big(1372, START));
        assert!(!path.handle_too_big(1400, START) && !path.handle_too_big(1372, START));
        assert_eq!((path.width(), path.probe_due(START)), (1372, None));
    }

    #[test]
    fn nobody_makes_the_path_narrower_than_any_is() {
        let mut path = Path::new(8972);
        assert!(path.handle_too_big(0, START));
        assert_eq!(path.width(), BASE);
        let mut path = Path::new(600);
        assert!(!path.handle_too_big(68, START), "the ends are narrower than that themselves");
        assert_eq!(path.width(), 600);
    }

    #[test]
    fn one_segment_in_ten_minutes_probes_for_more() {
        let mut path = Path::new(1472);
        path.handle_too_big(1372, START);
        let later = START.plus(RAISE);
        assert_eq!(path.probe_due(Instant::from_nanos(later.nanos() - 1)), None);
        assert_eq!(path.probe_due(later), Some(1472));
        assert_eq!(path.probe_due(later), Some(1472), "as long as none was cut");
        path.note_probe(later);
        assert_eq!(path.probe_due(later), None, "only one");
        assert_eq!(path.probe_due(later.plus(RAISE)), Some(1472), "and again");
    }

    #[test]
    fn a_probe_that_arrives_widens_the_path() {
        let mut path = Path::new(1472);
        path.handle_too_big(1372, START);
        path.note_arrived(1472, START);
        assert_eq!(path.width(), 1372, "it went in fragments");
        let later = START.plus(RAISE);
        path.note_probe(later);
        path.note_arrived(1372, later);
        path.note_arrived(1472, START);
        assert_eq!(path.width(), 1372, "neither was the probe");
        path.note_arrived(1472, later);
        assert_eq!(path.width(), 1472);
        assert_eq!(path.probe_due(later.plus(5 * RAISE)), None, "it is as wide as it can be");
        assert!(path.handle_too_big(1300, later), "and may become narrow again");
    }

    #[test]
    fn a_probe_that_the_network_objects_to_changes_nothing() {
        let mut path = Path::new(1472);
        path.handle_too_big(1372, START);
        let later = START.plus(RAISE);
        path.note_probe(later);
        assert!(!path.handle_too_big(1372, later));
        path.note_arrived(1472, later);
        assert_eq!(path.width(), 1372);
    }

    #[test]
    fn what_was_sent_in_vain_goes_in_fragments_unless_others_as_long_arrive() {
        let mut path = Path::new(1472);
        let [early, late] = [START, START.plus(1_000)];
        assert!(!path.splits(1472, early, false) && path.splits(1472, early, true));
        assert!(!path.splits(1200, early, true), "every path carries it");
        path.note_arrived(1472, late);
        assert!(!path.splits(1472, early, true) && path.splits(1472, late.plus(1), true));
        path.handle_too_big(1372, late);
        assert!(path.splits(1472, early, false), "it was cut before the path was narrow");
    }

    #[test]
    fn a_path_that_carries_only_fragments_is_a_black_hole() {
        let mut path = Path::new(1472);
        (1..SPLIT).for_each(|_| path.note_split_arrived(1472, START));
        path.note_arrived(1472, START);
        (1..SPLIT).for_each(|_| path.note_split_arrived(1472, START));
        assert_eq!(path.width(), 1472, "a whole one has arrived between");
        path.note_split_arrived(1472, START);
        assert_eq!((path.width(), path.probe_due(START.plus(RAISE))), (BASE, Some(1472)));
    }
}
