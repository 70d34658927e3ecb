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

use super::time::{Instant, MILLI};

/// `BASE_PLPMTU` (5.1.2): every path carries it.
const BASE: usize = 1200;
/// `PMTU_RAISE_TIMER` (5.1.1).
const RAISE: u64 = 600_000 * MILLI;

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
}

impl Path {
    /// As wide as both ends allow, until something else is known.
    pub(super) const fn new(whole: usize) -> Self {
        Self { whole, width: whole, probe_at: None, probing: None }
    }

    /// The longest datagram that is known to get there.
    #[inline]
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// The length of a probe, when one is due: the next datagram shall be as long.
    #[inline]
    pub(super) fn poll_probe(&mut self, now: Instant) -> Option<usize> {
        let due = self.probe_at.is_some_and(|at| at <= now);
        due.then(|| {
            self.probe_at = Some(now.plus(RAISE));
            self.probing = Some(now);
            self.whole
        })
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
        assert_eq!((path.width(), path.poll_probe(START)), (1472, None));
        assert!(path.handle_too_big(1372, START));
        assert!(!path.handle_too_big(1400, START) && !path.handle_too_big(1372, START));
        assert_eq!((path.width(), path.poll_probe(START)), (1372, None));
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
        assert_eq!(path.poll_probe(Instant::from_nanos(later.nanos() - 1)), None);
        assert_eq!(path.poll_probe(later), Some(1472));
        assert_eq!(path.poll_probe(later), None, "only one");
        assert_eq!(path.poll_probe(later.plus(RAISE)), Some(1472), "and again");
    }

    #[test]
    fn a_probe_that_arrives_widens_the_path() {
        let mut path = Path::new(1472);
        path.handle_too_big(1372, START);
        path.note_arrived(1472, START);
        assert_eq!(path.width(), 1372, "it went in fragments");
        let later = START.plus(RAISE);
        assert_eq!(path.poll_probe(later), Some(1472));
        path.note_arrived(1372, later);
        path.note_arrived(1472, START);
        assert_eq!(path.width(), 1372, "neither was the probe");
        path.note_arrived(1472, later);
        assert_eq!(path.width(), 1472);
        assert_eq!(path.poll_probe(later.plus(5 * RAISE)), None, "it is as wide as it can be");
        assert!(path.handle_too_big(1300, later), "and may become narrow again");
    }

    #[test]
    fn a_probe_that_the_network_objects_to_changes_nothing() {
        let mut path = Path::new(1472);
        path.handle_too_big(1372, START);
        let later = START.plus(RAISE);
        assert_eq!(path.poll_probe(later), Some(1472));
        assert!(!path.handle_too_big(1372, later));
        path.note_arrived(1472, later);
        assert_eq!(path.width(), 1372);
    }
}
