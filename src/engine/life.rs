//! What is evidence that a peer's process has ended, and what is not: decided here and nowhere else.
//!
//! Evidence is
//!
//! * that somebody of its node says so, who asks the kernel there, and says so again later, or the network
//!   agrees, while nothing comes from the peer: what it sent before its end may still be on the way;
//! * that its host says that nobody listens where the peer was (`ECONNREFUSED`), again and again and
//!   for long, while neither the peer nor anybody of its node is heard. For a shorter time it is what a
//!   packet filter there says while its rules are changed, or a firewall that starts anew: a reason to ask. What a
//!   filter on the way says comes from another address, and is nothing. How long is long, the user may say
//!   (`btl_usnic_refusal_timeout`), or that it never is: a filter that stays cannot be told from an end.
//!
//! What is no evidence about the process, but ends a connection, is the word of the peer itself, under its key, that it
//! knows the connection no more: `reset`.
//!
//! Silence is none, however long, of the peer or of everybody on its node: a process that computes is
//! silent, one that is stopped by a debugger or a batch system, a network that is down, a host that
//! swaps. It is a reason to ask. Only where the user says after how long it is to count
//! (`btl_usnic_peer_timeout`) it does.
//!
//! Times are those of a clock that does not run while nobody calls us.

use super::interface::End;
use super::time::{Instant, MILLI};

/// Two words that the peer has ended are this far apart at least.
const APART: u64 = 500 * MILLI;
/// The same question is not asked more often.
const BETWEEN_ASKS: u64 = 500 * MILLI;
/// After such a pause between two refusals the second begins anew. A host sends about one a second to an address
/// (`icmp_ratelimit`), which all processes there share.
const PAUSE: u64 = 19_000 * MILLI;
/// Refusals that count as many.
const MANY: u32 = 5;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Wait,
    /// Somebody of the peer's node should be asked.
    Ask,
    /// The process has ended, by this evidence.
    Ended(End),
}

/// Refusals without a pause and without a word of the peer's between them.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    since: Instant,
    last: Instant,
    count: u32,
}

/// What has been said about a peer by others since it was last heard.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    refusals: Option<Refusals>,
    /// When it was first said that the process has ended.
    ended: Option<Instant>,
    asked: Option<Instant>,
}

/// What is known of a peer's life.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) last_heard: Instant,
    /// What others say about it.
    pub(super) evidence: Evidence,
    /// When its silence was last reported.
    pub(super) silence_reported: Instant,
    /// When it was lost.
    pub(super) lost: Instant,
    /// By what it is known to have ended, where that is why.
    pub(super) end: Option<End>,
}

impl Life {
    pub(super) fn new(now: Instant) -> Self {
        Self { last_heard: now, evidence: Evidence::default(), silence_reported: now, lost: now, end: None }
    }
}

impl Evidence {
    /// The host says that nobody listens at the peer's address. `heard` is when it, or somebody of its
    /// node for it, was last heard; `long` for how long refusals must last; 0: they are no evidence.
    pub(super) fn handle_refused(&mut self, heard: Instant, now: Instant, long: u64) -> Verdict {
        self.forget_before(heard);
        let fresh = Refusals { since: now, last: now, count: 0 };
        let goes_on = |refusals: &Refusals| now.since(refusals.last) <= PAUSE;
        let mut refusals = self.refusals.filter(goes_on).unwrap_or(fresh);
        (refusals.last, refusals.count) = (now, refusals.count.saturating_add(1));
        self.refusals = Some(refusals);
        let agrees = self.ended.is_some_and(|first| now.since(first) >= APART);
        if agrees {
            return Verdict::Ended(End::Said);
        }
        if long > 0 && refusals.count >= MANY && now.since(refusals.since) >= long {
            return Verdict::Ended(End::Refused);
        }
        if self.asked.is_some_and(|asked| now.since(asked) < BETWEEN_ASKS) {
            return Verdict::Wait;
        }
        self.asked = Some(now);
        Verdict::Ask
    }

    /// Somebody of the peer's node says that its process has ended.
    pub(super) fn handle_ended(&mut self, heard: Instant, now: Instant) -> Verdict {
        self.forget_before(heard);
        let first = *self.ended.get_or_insert(now);
        if now.since(first) >= APART { Verdict::Ended(End::Said) } else { Verdict::Wait }
    }

    /// Who has been heard since lives: what was said before is void.
    fn forget_before(&mut self, heard: Instant) {
        self.refusals = self.refusals.filter(|refusals| refusals.since >= heard);
        self.ended = self.ended.filter(|first| *first >= heard);
    }
}

/// Whether silence alone counts as an end, because the user says so: `timeout` is not zero, and the peer
/// was asked often enough in this time.
pub(super) fn is_silent_for_too_long(heard: Instant, now: Instant, asked: u32, timeout: u64) -> bool {
    /// How often a peer must have been asked in vain.
    const ASKED: u32 = 3;
    timeout > 0 && asked >= ASKED && now.since(heard) > timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000 * MILLI;
    const LONG: u64 = 15 * SECOND;
    const HEARD: Instant = Instant::ORIGIN;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * MILLI)
    }

    fn is_end(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Ended(_))
    }

    /// Refusals every half second from a second on, until the verdict is an end; when that was, and by what.
    fn refused_until(evidence: &mut Evidence, heard: Instant, from: u64, until: u64) -> Option<(u64, End)> {
        let mut times = (from..until).step_by(500);
        times.find_map(|time| match evidence.handle_refused(heard, at(time), LONG) {
            Verdict::Ended(end) => Some((time, end)),
            Verdict::Wait | Verdict::Ask => None,
        })
    }

    #[test]
    fn ten_seconds_of_refusals_are_a_reason_to_ask_and_no_more() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.handle_refused(HEARD, at(1_000), LONG), Verdict::Ask);
        assert_eq!(evidence.handle_refused(HEARD, at(1_100), LONG), Verdict::Wait, "asked just now");
        assert_eq!(evidence.handle_refused(HEARD, at(1_500), LONG), Verdict::Ask);
        assert_eq!(refused_until(&mut evidence, HEARD, 2_000, 11_000), None);
        // The filter is gone and the peer heard. Later there is another one.
        assert_eq!(refused_until(&mut evidence, at(11_200), 14_000, 24_000), None);
    }

    #[test]
    fn refusals_for_long_with_nobody_to_ask_are_an_end() {
        let mut evidence = Evidence::default();
        assert_eq!(refused_until(&mut evidence, HEARD, 1_000, 60_000), Some((16_000, End::Refused)));
    }

    /// As where a packet filter of the host refuses everything, and stays.
    #[test]
    fn refusals_are_none_however_long_where_the_user_says_so() {
        let mut evidence = Evidence::default();
        for second in 1..1_000 {
            assert_eq!(evidence.handle_refused(HEARD, at(second * 1_000), 0), Verdict::Ask, "{second} s");
        }
        assert_eq!(evidence.handle_ended(HEARD, at(1_000_000)), Verdict::Wait);
        assert_eq!(evidence.handle_refused(HEARD, at(1_001_000), 0), Verdict::Ended(End::Said), "they agree");
    }

    #[test]
    fn few_refusals_are_none_however_far_apart() {
        let mut evidence = Evidence::default();
        for time in [1, 20, 40, 60, 80, 100] {
            assert!(!is_end(evidence.handle_refused(HEARD, at(time * 1_000), LONG)), "{time} s");
        }
        let mut evidence = Evidence::default();
        for time in [1, 5, 9, 13] {
            assert!(!is_end(evidence.handle_refused(HEARD, at(time * 1_000), LONG)), "{time} s");
        }
    }

    #[test]
    fn somebody_of_the_node_is_believed_when_it_is_said_twice() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.handle_ended(HEARD, at(1_000)), Verdict::Wait);
        assert_eq!(evidence.handle_ended(HEARD, at(1_200)), Verdict::Wait, "one answer, come twice");
        assert_eq!(evidence.handle_ended(HEARD, at(1_500)), Verdict::Ended(End::Said));
    }

    #[test]
    fn somebody_of_the_node_is_believed_when_the_network_agrees() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.handle_refused(HEARD, at(1_000), LONG), Verdict::Ask);
        assert_eq!(evidence.handle_ended(HEARD, at(1_001)), Verdict::Wait);
        assert_eq!(refused_until(&mut evidence, HEARD, 1_200, 60_000), Some((1_700, End::Said)));
    }

    #[test]
    fn who_is_heard_after_its_end_was_said_lives() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.handle_ended(HEARD, at(1_000)), Verdict::Wait);
        assert_eq!(evidence.handle_ended(at(1_100), at(2_000)), Verdict::Wait);
        assert_eq!(evidence.handle_refused(at(2_100), at(3_000), LONG), Verdict::Ask);
    }

    /// An agent that says that the process lives counts as if the process had been heard: then refusals
    /// come from a filter, however long.
    #[test]
    fn refusals_are_nothing_while_the_node_says_that_the_process_lives() {
        let mut evidence = Evidence::default();
        for second in 1..100 {
            let heard = at(second * 1_000 - 500);
            assert!(!is_end(evidence.handle_refused(heard, at(second * 1_000), LONG)));
        }
    }

    #[test]
    fn silence_is_an_end_only_where_the_user_says_so() {
        let long = at(1_000_000_000);
        assert!(!is_silent_for_too_long(HEARD, long, u32::MAX, 0));
        assert!(!is_silent_for_too_long(HEARD, long, 2, SECOND), "it was hardly asked");
        assert!(!is_silent_for_too_long(HEARD, at(1_000), 3, SECOND));
        assert!(is_silent_for_too_long(HEARD, at(1_001), 3, SECOND));
    }
}
