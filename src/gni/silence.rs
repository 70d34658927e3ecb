//! [`Silence`]: for how long the peer of a stream has not answered.
//!
//! A peer that computes reads nothing, its window closes, and it may stay closed for hours; its kernel answers all the same.
//! What is asked meanwhile is whether the window is open, and more and more seldom, in the end every two minutes. So a time
//! without an answer says nothing, but one after questions does. A question is what is sent, also again, and each of
//! those about the window. One may be lost, and of those that follow each other closely Linux answers one in half a second. A limit
//! of the kernel's (`TCP_USER_TIMEOUT`) does not tell this apart: it ends connections whose window was closed for so long,
//! with what was on its way.
//!
//! Streams by which nothing is on its way are none of this: their peers are asked by the kernel (`SO_KEEPALIVE`).

use crate::link::stream::Standing;

/// Questions without an answer by which a peer is silent.
const QUESTIONS: u8 = 3;

/// Since when no answer has come to a question, nanoseconds, and how often that had been sent again by then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    since: Option<(u64, u8)>,
}

impl Silence {
    /// How long that is by now, given what the kernel says; nothing while there were few questions. Between two looks
    /// there may have been an answer, and another question.
    pub fn lasts(&mut self, standing: &Standing, now: u64) -> u64 {
        let Standing { is_opening, is_unacknowledged, probes, again, spoken, heard } = *standing;
        let is_asked = is_opening || probes != 0 || is_unacknowledged && heard > spoken;
        let before = self.since.filter(|(since, _)| is_opening || heard >= now - since);
        self.since = is_asked.then(|| before.unwrap_or((now, again)));
        let Some((since, first)) = self.since else { return 0 };
        let questions = probes.max(again.saturating_sub(first).saturating_add(1));
        if questions < QUESTIONS { 0 } else { now - since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const CALM: Standing =
        Standing { is_opening: false, is_unacknowledged: false, probes: 0, again: 0, spoken: 0, heard: 0 };

    /// How long the silence is at each of some seconds, as the kernel says.
    fn silences(looks: &[(u64, Standing)]) -> Vec<u64> {
        let mut silence = Silence::default();
        looks.iter().map(|(at, standing)| silence.lasts(standing, (100 + at) * SECOND) / SECOND).collect()
    }

    /// So much was said and heard last.
    fn sent(again: u8, spoken: u64, heard: u64) -> Standing {
        Standing { is_unacknowledged: true, again, spoken: spoken * SECOND, heard: heard * SECOND, ..CALM }
    }

    fn probed(probes: u8, heard: u64) -> Standing {
        Standing { probes, spoken: 90 * SECOND, heard: heard * SECOND, ..CALM }
    }

    #[test]
    fn who_acknowledges_nothing_is_silent_since_the_first_that_was_sent() {
        let looks = [(0, sent(0, 0, 50)), (1, sent(1, 1, 51)), (4, sent(2, 1, 54)), (9, sent(3, 3, 59))];
        assert_eq!(silences(&looks), [0, 0, 4, 9]);
        let seldom = [(0, sent(0, 0, 50)), (300, sent(10, 9, 350))];
        assert_eq!(silences(&seldom), [0, 300]);
    }

    #[test]
    fn who_has_answered_in_between_was_not() {
        let looks = [(0, sent(0, 0, 1)), (9, sent(4, 0, 2)), (10, sent(6, 1, 3)), (11, CALM)];
        assert_eq!(silences(&looks), [0, 0, 1, 0]);
        let again = [(0, sent(0, 0, 1)), (60, sent(0, 0, 9)), (61, sent(1, 0, 10)), (62, sent(2, 0, 11))];
        assert_eq!(silences(&again), [0, 0, 0, 2]);
    }

    #[test]
    fn whose_window_is_closed_is_silent_when_nobody_answers_whether_it_is_open() {
        let answers = [(0, probed(0, 0)), (100, probed(0, 100)), (200, probed(1, 120)), (201, probed(0, 0))];
        assert_eq!(silences(&answers), [0, 0, 0, 0]);
        let seldom = [(0, probed(1, 100)), (300, probed(3, 290)), (301, probed(3, 291))];
        assert_eq!(silences(&seldom), [0, 0, 1], "those were other questions");
        let lost = [(0, probed(1, 120)), (119, probed(1, 239)), (121, probed(2, 241)), (122, probed(0, 0))];
        assert_eq!(silences(&lost), [0, 0, 0, 0], "one did not come through");
        let none = [(0, probed(1, 120)), (120, probed(2, 240)), (240, probed(3, 360)), (250, probed(3, 370))];
        assert_eq!(silences(&none), [0, 0, 240, 250]);
    }

    #[test]
    fn who_answers_what_is_sent_again_is_there_though_nothing_is_acknowledged() {
        let looks =
            [(0, sent(9, 90, 90)), (30, sent(9, 120, 120)), (31, sent(10, 0, 151)), (32, sent(10, 1, 1))];
        assert_eq!(silences(&looks), [0, 0, 0, 0]);
        let seldom = [(0, sent(20, 0, 120)), (120, sent(21, 0, 240)), (240, sent(22, 0, 360))];
        assert_eq!(silences(&seldom), [0, 0, 240], "and is not when it does not");
    }

    #[test]
    fn who_is_called_is_silent_from_the_first_look_on() {
        let opening = |again| Standing { is_opening: true, is_unacknowledged: true, again, ..CALM };
        assert_eq!(silences(&[(0, opening(0)), (2, opening(1)), (5, opening(2))]), [0, 0, 5]);
    }
}
