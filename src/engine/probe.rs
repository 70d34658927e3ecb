//! Asking a peer that does not answer: the probe timeout of RFC 9002, 6.2.
//!
//! One packet asks the first time, two each time after, at intervals that double. Neither window nor
//! credit nor pacing has a say in when they leave (6.2.4 and 7.5).

use super::time::Instant;

/// The interval doubles so often at the most, and where the peer answers, though it takes nothing: it may have memory
/// only for some of what is under way, and each of that has to have its turn.
const DOUBLINGS: u32 = 20;
const HEARD_DOUBLINGS: u32 = 4;
/// After so many turns in which it was heard and took nothing, twice the interval, and so often: who waits for long
/// may wait a little longer.
const PATIENCE: u32 = 16;
const PATIENT_DOUBLINGS: u32 = 5;

/// So often a peer is asked with the oldest segments alone.
const PATIENT: u32 = 3;

/// From so many times in vain on, every other time the second packet says who asks: perhaps nobody knows.
const UNKNOWN: u32 = 5;

/// Packets that ask a peer at a time.
const fn packets(backoff: u32) -> u32 {
    if backoff > 1 { 2 } else { 1 }
}

/// What a packet that asks carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// The oldest segment that nobody has acknowledged.
    Oldest,
    /// The one after that.
    Next,
    /// The one that was sent longest ago.
    SentLongestAgo,
    /// Data that was withdrawn, if there is any.
    Withdrawn,
}

/// The probes to one peer.
#[derive(Debug)]
pub(super) struct Probe {
    /// Packets that have not left yet.
    pending: u32,
    /// When they were asked for.
    since: Instant,
    backoff: u32,
    /// Times that the peer was asked since it was last heard.
    unanswered: u32,
    /// Times that the peer was heard and had acknowledged nothing, since it last did.
    in_vain: u32,
    /// When something was last sent, or acknowledged.
    active: Instant,
    /// What was withdrawn had the last turn of the second packet.
    was_withdrawn: bool,
    /// Another packet leaves in the place of the second one.
    is_replaced: bool,
}

impl Probe {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            pending: 0,
            since: Instant::ORIGIN,
            backoff: 0,
            unanswered: 0,
            in_vain: 0,
            active: now,
            was_withdrawn: false,
            is_replaced: false,
        }
    }

    /// When something was last sent, or acknowledged.
    #[inline]
    pub(super) const fn active(&self) -> Instant {
        self.active
    }

    /// When the peer is to be asked next, with a first probe timeout of `timeout` and none longer than `most`.
    #[inline]
    pub(super) fn due(&self, timeout: u64, most: u64) -> Instant {
        self.active.plus(timeout.saturating_mul(1 << self.backoff).min(most))
    }

    /// Times that the peer was asked since it was last heard.
    pub(super) const fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Whether the peer was asked more than once since anything was acknowledged.
    pub(super) const fn is_unheard(&self) -> bool {
        self.backoff > 1
    }

    /// Whether a probe is to leave.
    #[inline]
    pub(super) const fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Something leaves.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.active = now;
    }

    /// The peer has been heard, whatever it says.
    #[inline]
    pub(super) fn note_heard(&mut self) {
        self.unanswered = 0;
        if self.backoff > HEARD_DOUBLINGS {
            let more = (self.in_vain / PATIENCE).min(PATIENT_DOUBLINGS);
            self.backoff = self.backoff.min(HEARD_DOUBLINGS + more);
        }
    }

    /// The peer has acknowledged something new.
    #[inline]
    pub(super) fn note_acknowledged(&mut self, now: Instant) {
        (self.backoff, self.pending, self.active, self.in_vain) = (0, 0, now, 0);
    }

    /// It is time to ask.
    pub(super) fn note_timeout(&mut self, now: Instant) {
        self.in_vain = self.in_vain.saturating_add(u32::from(self.backoff > 0 && self.unanswered == 0));
        self.unanswered = self.unanswered.saturating_add(1);
        self.backoff = (self.backoff + 1).min(DOUBLINGS);
        (self.pending, self.since, self.active) = (packets(self.backoff), now, now);
        self.is_replaced = false;
    }

    /// Whether the second packet of this time is to say who asks, instead of carrying anything.
    pub(super) fn introduces(&mut self) -> bool {
        self.is_replaced = self.unanswered >= UNKNOWN && !self.unanswered.is_multiple_of(2);
        self.is_replaced
    }

    /// The next packet that asks, if one is to leave: what it carries, and when it was asked for. What was sent
    /// later than that asks already.
    ///
    /// Two carry the oldest segments. But the peer may have no memory for these before it has others, whose data
    /// was withdrawn, and got later numbers: so when it has been asked [`PATIENT`] times, each of all that nobody
    /// has acknowledged has its turn in the second.
    pub(super) fn take(&mut self) -> Option<(Carries, Instant)> {
        let is_first = self.pending == packets(self.backoff);
        self.pending = self.pending.checked_sub(1)?;
        if is_first {
            return Some((Carries::Oldest, self.since));
        }
        if self.is_replaced {
            return None;
        }
        if self.backoff <= PATIENT {
            return Some((Carries::Next, self.since));
        }
        self.was_withdrawn = !self.was_withdrawn;
        let carries = if self.was_withdrawn { Carries::Withdrawn } else { Carries::SentLongestAgo };
        Some((carries, self.since))
    }

    /// There is nothing to ask with, or nobody to be asked.
    pub(super) fn cancel(&mut self) {
        self.pending = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::MILLI;
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * MILLI)
    }

    #[test]
    fn one_packet_asks_and_then_two_at_intervals_that_double() {
        let mut probe = Probe::new(at(0));
        let (mut now, mut times, mut asked, mut seconds) = (at(0), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..8 {
            let due = probe.due(MILLI, 20 * MILLI);
            times.push(due.since(now) / MILLI);
            now = due;
            probe.note_timeout(now);
            let mut count = 0;
            while let Some((carries, since)) = probe.take() {
                assert_eq!((carries == Carries::Oldest, since), (count == 0, now));
                if count > 0 {
                    seconds.push(carries);
                }
                count += 1;
            }
            asked.push(count);
            assert!(!probe.is_pending());
        }
        assert_eq!(times, [1, 2, 4, 8, 16, 20, 20, 20]);
        assert_eq!(asked, [1, 2, 2, 2, 2, 2, 2, 2]);
        let turns =
            [Carries::Next, Carries::Next, Carries::Withdrawn, Carries::SentLongestAgo, Carries::Withdrawn];
        assert_eq!(seconds[..5], turns);
        assert_eq!(probe.unanswered(), 8);
        (0..100).for_each(|_| probe.note_timeout(now));
        assert_eq!(probe.due(MILLI, u64::MAX).since(now), MILLI << DOUBLINGS);
    }

    #[test]
    fn every_other_time_in_vain_the_second_packet_says_who_asks_and_the_others_have_their_turn() {
        let mut probe = Probe::new(at(0));
        let mut seconds = Vec::new();
        let introductions: Vec<u64> = (1..=11)
            .filter(|time| {
                probe.note_timeout(at(*time));
                let introduces = probe.introduces();
                assert_eq!(probe.take().map(|(carries, _)| carries), Some(Carries::Oldest));
                seconds.extend(probe.take().map(|(carries, _)| carries));
                assert!(!probe.is_pending());
                introduces
            })
            .collect();
        assert_eq!(introductions, [5, 7, 9, 11]);
        let turns = [Carries::Next, Carries::Next, Carries::Withdrawn, Carries::SentLongestAgo];
        assert_eq!(seconds, [&turns[..], &turns[2..3], &turns[3..]].concat());
        probe.note_heard();
        probe.note_timeout(at(12));
        assert!(!probe.introduces(), "it has been heard");
    }

    #[test]
    fn who_answers_and_takes_nothing_is_asked_less_and_less_often() {
        let mut probe = Probe::new(at(0));
        let (mut now, mut asked) = (at(0), 0);
        let mut asked_until = |probe: &mut Probe, end| {
            while probe.due(MILLI, 2_000 * MILLI) <= at(end) {
                now = probe.due(MILLI, 2_000 * MILLI);
                probe.note_timeout(now);
                probe.note_heard();
                asked += 1;
            }
            asked
        };
        assert_eq!(asked_until(&mut probe, 200), 15, "at first every 16 ms");
        let (minute, next) = (asked_until(&mut probe, 60_000), asked_until(&mut probe, 120_000));
        assert!(minute < 250 && (110..125).contains(&(next - minute)), "{minute} {next}: every 512 ms");
        probe.note_acknowledged(at(120_000));
        (0..10).for_each(|_| probe.note_timeout(at(120_000)));
        probe.note_heard();
        assert_eq!(probe.due(MILLI, 2_000 * MILLI), at(120_016));
    }

    #[test]
    fn an_acknowledgement_ends_it_and_a_word_does_not() {
        let mut probe = Probe::new(at(0));
        (1..4).for_each(|time| probe.note_timeout(at(time)));
        probe.note_heard();
        assert!(probe.unanswered() == 0 && probe.is_pending() && probe.is_unheard());
        probe.note_acknowledged(at(9));
        assert!(!probe.is_pending() && !probe.is_unheard() && probe.take().is_none());
        assert_eq!(probe.due(MILLI, 20 * MILLI), at(10));
        probe.note_sent(at(11));
        assert_eq!(probe.due(MILLI, 20 * MILLI), at(12));
        (0..10).for_each(|_| probe.note_timeout(at(12)));
        assert_eq!(probe.due(MILLI, 20 * MILLI), at(32));
        probe.note_heard();
        assert_eq!(probe.due(MILLI, 20 * MILLI), at(28), "who is heard is asked more often");
        probe.cancel();
        assert!(probe.take().is_none());
    }
}
