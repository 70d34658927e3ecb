//! How long a datagram a path carries whole (RFC 8899, RFC 4821).
//!
//! Interfaces say how long datagrams may be; a path may be narrower, from the beginning or from some
//! time on. The network says so ("packet too big", 4.6 there), and new segments are cut for what is
//! left. What it says is believed down to the length that every path carries; what is shorter than
//! that is fragmented by somebody.
//!
//! A path may also become wide again. From time to time one segment is cut as long as it once could
//! be: that is the probe, with data of the user in it (4.1 there). If it arrives, the following ones
//! are as long; if not, its data is cut anew, and nothing was lost but time.
//!
//! What was cut before the path became narrow does not keep its length: when it is lost, it is withdrawn and
//! its data cut anew (`withdraw`). A network may also drop what is too long without a word (a black hole,
//! 4.3 there). So a long segment that was sent several times in vain, while no other as long has arrived, is
//! withdrawn too, and the beginning of its data goes on in a segment that every path carries. When only such
//! ones arrive, the path is taken for as narrow as
//! any. An outage is none of that: then nothing arrives.

use super::time::{Instant, MILLI};

/// `BASE_PLPMTU` (5.1.2): every path carries it.
const BASE: usize = 1200;
/// `PMTU_RAISE_TIMER` (5.1.1).
const RAISE: u64 = 600_000 * MILLI;
/// A long segment is sent again so often before its length is suspected, once less where probes are not
/// answered either.
const RESENDS: u8 = 3;
/// So many long segments whose data has arrived only when it was cut anew make a black hole.
const RECUT: u32 = 3;

/// The width of one path, in bytes of datagrams, headers of UDP and below not included, and ours counted as long ones.
#[derive(Debug)]
pub(super) struct Path {
    /// What both ends could send.
    whole: usize,
    width: usize,
    /// What every path carries.
    base: usize,
    /// When the next probe is due; none is where the path is as wide as its ends.
    probe_at: Option<Instant>,
    /// When the last probe was cut, unless the network has objected since.
    probing: Option<Instant>,
    /// When the last long datagram was sent of those that have arrived whole.
    whole_at: Instant,
    /// Since then a long one was sent in vain, and not only once.
    suspected: bool,
    /// Since then the data of so many has arrived in shorter ones.
    recut: u32,
}

impl Path {
    /// As wide as both ends allow, until something else is known.
    pub(super) const fn new(whole: usize) -> Self {
        Self {
            whole,
            width: whole,
            base: BASE,
            probe_at: None,
            probing: None,
            whole_at: Instant::ORIGIN,
            suspected: false,
            recut: 0,
        }
    }

    /// Headers are shorter by so many bytes from now on. All lengths here are those that datagrams would have with
    /// headers as before.
    pub(super) const fn note_shorter_headers(&mut self, less: usize) {
        self.whole += less;
        self.base += less;
        self.width += less;
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

    /// How long datagrams may be with data that is cut anew. As long as there is only a suspicion, the `first`
    /// one alone is short: its arrival is evidence, and a suspicion that was wrong costs no more than it.
    pub(super) fn recut_width(&self, first: bool) -> usize {
        if self.suspected && first { self.width.min(self.base) } else { self.width }
    }

    /// Whether it is evidence of a black hole when data of a datagram of this length arrives in shorter ones.
    pub(super) const fn is_suspected(&self, len: usize) -> bool {
        self.suspected && len > self.base
    }

    /// Whether a datagram of this length, last sent at `sent`, is lost because it is too long, as far as can
    /// be told. It was sent again so often before; `unheard`: the peer has not answered probes either.
    pub(super) fn is_too_long(&self, len: usize, sent: Instant, resends: u8, unheard: bool) -> bool {
        let in_vain = resends >= if unheard { RESENDS - 1 } else { RESENDS };
        len > self.width || (in_vain || self.recut > 0) && len > self.base && sent > self.whole_at
    }

    /// A datagram of this length is taken for too long.
    #[cold]
    pub(super) fn note_too_long(&mut self, len: usize) {
        self.suspected |= len <= self.width;
    }

    /// Data of a datagram that was suspected to be too long has arrived in a shorter one.
    #[cold]
    pub(super) fn note_recut_arrived(&mut self, now: Instant) {
        if !self.suspected {
            return;
        }
        self.recut += 1;
        if self.recut >= RECUT {
            self.handle_too_big(self.base, now);
            (self.suspected, self.recut) = (false, 0);
        }
    }

    /// The network says that it carries only datagrams of this length. Whether that is news.
    pub(super) fn handle_too_big(&mut self, limit: usize, now: Instant) -> bool {
        let limit = limit.max(self.base.min(self.whole));
        self.probing = None;
        if limit >= self.width {
            return false;
        }
        self.width = limit;
        self.probe_at = Some(now.plus(RAISE));
        true
    }

    /// A datagram of this length that was sent at `sent` has arrived. Only a probe can say that the
    /// path is wider: others that are as long may have gone in fragments, made by this host.
    #[inline]
    pub(super) fn note_arrived(&mut self, len: usize, sent: Instant) {
        if len > self.base {
            self.whole_at = self.whole_at.max(sent);
            (self.suspected, self.recut) = (false, 0);
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
    fn with_shorter_headers_the_same_datagrams_are_long() {
        let mut path = Path::new(1472);
        path.note_shorter_headers(16);
        assert_eq!(path.width(), 1488);
        assert!(path.handle_too_big(1200 + 16, START) && path.width() == 1216);
        path.note_too_long(1216);
        assert!(!path.is_suspected(1216), "every path carries it, and it is no evidence for longer ones");
        path.handle_too_big(0, START);
        assert_eq!(path.width(), 1216);
    }

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
    fn what_was_sent_in_vain_is_too_long_unless_others_as_long_arrive() {
        let mut path = Path::new(1472);
        let [early, late] = [START, START.plus(1_000)];
        assert!(!path.is_too_long(1472, early, 2, false) && path.is_too_long(1472, early, RESENDS, false));
        assert!(!path.is_too_long(1200, early, RESENDS, false), "every path carries it");
        path.note_arrived(1472, late);
        assert!(!path.is_too_long(1472, early, 2, true) && path.is_too_long(1472, late.plus(1), 2, true));
        path.handle_too_big(1372, late);
        assert!(path.is_too_long(1472, early, 0, true), "it was cut before the path was narrow");
        assert_eq!(path.recut_width(true), 1372);
    }

    #[test]
    fn one_that_is_suspected_makes_the_others_suspected_until_one_arrives() {
        let mut path = Path::new(1472);
        let late = START.plus(1_000);
        path.note_too_long(1472);
        assert!(path.is_suspected(1472) && !path.is_suspected(BASE), "a short one is no evidence");
        assert!(!path.is_too_long(1472, START, 0, false), "it may have been an outage");
        path.note_recut_arrived(START);
        assert!(path.is_too_long(1472, START, 0, false) && !path.is_too_long(1200, START, 0, false));
        assert_eq!([path.width(), path.recut_width(true), path.recut_width(false)], [1472, BASE, 1472]);
        path.note_arrived(1472, START);
        assert!(!path.is_too_long(1472, late, 0, false) && path.recut_width(true) == 1472);
        path.handle_too_big(1372, late);
        path.note_too_long(1472);
        assert!(!path.is_suspected(1472) && path.recut_width(true) == 1372, "that is known and no suspicion");
    }

    #[test]
    fn a_path_that_carries_only_what_is_cut_anew_is_a_black_hole() {
        let mut path = Path::new(1472);
        path.note_too_long(1472);
        (1..RECUT).for_each(|_| path.note_recut_arrived(START));
        path.note_arrived(1472, START);
        (0..RECUT).for_each(|_| path.note_recut_arrived(START));
        assert_eq!(path.width(), 1472, "a whole one has arrived between");
        path.note_too_long(1472);
        (1..RECUT).for_each(|_| path.note_recut_arrived(START));
        assert_eq!(path.width(), 1472);
        path.note_recut_arrived(START);
        assert_eq!((path.width(), path.probe_due(START.plus(RAISE))), (BASE, Some(1472)));
        assert!(!path.is_suspected(1472), "it is known by now");
    }
}
