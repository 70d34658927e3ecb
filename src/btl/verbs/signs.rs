//! What says that a peer's device is there, and when it has said nothing for too long.
//!
//! INVARIANT: nobody is given up who has not been asked, or could not be because all places are taken by what he has not
//! acknowledged. A process that computes looks at nothing meanwhile, and so does not ask either: it is from the question on
//! that an answer is waited for.

/// What has been heard of one peer, and asked.
#[derive(Clone, Copy)]
pub(super) struct Signs {
    /// When something was last heard.
    pub(super) heard: u64,
    /// When something that was sent was last over. Of iWARP that says no more than that it has gone.
    pub(super) moved: u64,
    /// When a probe was sent that is not answered.
    pub(super) probed: Option<u64>,
    /// Since when the own device has taken no probe that there was a place for.
    unasked: Option<u64>,
    doubt: Doubt,
}

/// Whether the kernel has lost the way to the peer, of which nothing has been heard since.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    No,
    /// It has said so, and that has not been looked at.
    New,
    /// So it was when it was looked at first.
    Since(u64),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// The peer's device is to be asked whether it is there.
    Question,
    /// It is not.
    End,
}

/// Places of the send queue that questions go by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// There is one for a question.
    Free,
    /// There is none, and the device itself gives up what is not acknowledged.
    Full,
    /// There is none, and the device never does.
    Stuck,
}

/// How long is waited, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// For an answer, if nothing else is known.
    pub(super) usual: u64,
    /// The same where the kernel knows no way.
    pub(super) doubtful: u64,
}

impl Signs {
    /// Something has been heard now.
    pub(super) const fn new(now: u64) -> Self {
        Self { heard: now, moved: now, probed: None, unasked: None, doubt: Doubt::No }
    }

    /// The kernel has lost the way.
    pub(super) fn doubt(&mut self) {
        if self.doubt == Doubt::No {
            self.doubt = Doubt::New;
        }
    }

    /// The own device has not taken a question.
    pub(super) fn refuse(&mut self, now: u64) {
        self.unasked = self.unasked.filter(|since| *since > self.heard).or(Some(now));
    }

    /// Whether it takes none, for longer than an answer may take: then nothing else goes either.
    pub(super) fn is_refused(&self, now: u64, patience: Patience) -> bool {
        self.unasked.is_some_and(|since| since > self.heard.max(self.moved) && now - since > patience.usual)
    }

    /// What is due now that everything that has come has been read.
    pub(super) fn look(&mut self, now: u64, places: Places, patience: Patience) -> Due {
        match self.doubt {
            Doubt::New => self.doubt = Doubt::Since(now),
            // What is heard has the time of the look before.
            Doubt::Since(since) if self.heard >= since => self.doubt = Doubt::No,
            _ => {}
        }
        match (self.doubt, self.probed) {
            (Doubt::Since(since), Some(asked)) if now - asked.max(since) > patience.doubtful => Due::End,
            (Doubt::Since(since), None) if places != Places::Free && now - since > patience.doubtful => {
                Due::End
            }
            (_, None) if places == Places::Stuck && now - self.heard.max(self.moved) > patience.usual => {
                Due::End
            }
            (_, Some(asked)) if now - asked > patience.usual => Due::End,
            (Doubt::Since(_), None) => Due::Question,
            (Doubt::No, None) if now - self.heard > patience.usual / 4 => Due::Question,
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { usual: 1000, doubtful: 500 };

    fn look(signs: &mut Signs, now: u64) -> Due {
        signs.look(now, Places::Free, PATIENCE)
    }

    #[test]
    fn who_is_silent_is_asked_and_given_up_when_he_does_not_answer() {
        let mut signs = Signs::new(0);
        assert_eq!([250, 251].map(|now| look(&mut signs, now)), [Due::Nothing, Due::Question]);
        signs.probed = Some(251);
        assert_eq!([1251, 1252].map(|now| look(&mut signs, now)), [Due::Nothing, Due::End]);
        (signs.probed, signs.heard) = (None, 1252);
        assert_eq!(look(&mut signs, 1253), Due::Nothing);
    }

    #[test]
    fn a_process_that_computes_after_the_kernel_has_lost_the_way_asks_before_it_gives_anybody_up() {
        let mut signs = Signs::new(100);
        signs.doubt();
        assert_eq!(look(&mut signs, 90_000), Due::Question, "nobody has asked yet");
        signs.probed = Some(90_000);
        signs.doubt();
        assert_eq!([90_500, 90_501].map(|now| look(&mut signs, now)), [Due::Nothing, Due::End]);
    }

    #[test]
    fn who_cannot_be_asked_because_the_own_device_takes_nothing_is_given_up_before_long() {
        let mut signs = Signs::new(0);
        signs.refuse(300);
        signs.refuse(900);
        assert_eq!([1300, 1301].map(|now| signs.is_refused(now, PATIENCE)), [false, true]);
        for heard in [true, false] {
            let mut since = Signs { heard: 0, ..signs };
            if heard {
                since.heard = 1000;
            } else {
                since.moved = 1000;
            }
            assert!(!since.is_refused(5000, PATIENCE), "something has been heard, or has gone");
        }
    }

    #[test]
    fn an_answer_ends_the_doubt() {
        let mut signs = Signs::new(100);
        signs.doubt();
        assert_eq!(look(&mut signs, 200), Due::Question);
        signs.heard = 200;
        assert_eq!(
            [201, 400, 451].map(|now| look(&mut signs, now)),
            [Due::Nothing, Due::Nothing, Due::Question]
        );
    }

    #[test]
    fn who_cannot_be_asked_is_given_up_only_where_he_has_all_places() {
        for (places, due) in
            [(Places::Free, Due::Question), (Places::Full, Due::End), (Places::Stuck, Due::End)]
        {
            let mut signs = Signs::new(100);
            signs.doubt();
            assert_eq!(signs.look(200, places, PATIENCE), Due::Question);
            assert_eq!(signs.look(701, places, PATIENCE), due);
        }
    }

    #[test]
    fn who_takes_nothing_any_more_is_given_up_though_he_cannot_be_asked_where_no_device_does_it() {
        let looks = |places, moved| {
            let mut signs = Signs::new(0);
            signs.moved = moved;
            [1000, 1001].map(|now| signs.look(now, places, PATIENCE))
        };
        assert_eq!(looks(Places::Stuck, 0), [Due::Question, Due::End]);
        assert_eq!(looks(Places::Stuck, 1), [Due::Question, Due::Question], "something has gone since");
        assert_eq!(looks(Places::Full, 0), [Due::Question, Due::Question], "the device tells");
    }

    #[test]
    fn a_question_from_before_the_doubt_has_its_time_from_then() {
        let mut signs = Signs::new(100);
        signs.probed = Some(400);
        signs.doubt();
        assert_eq!([800, 1300].map(|now| look(&mut signs, now)), [Due::Nothing, Due::Nothing]);
        assert_eq!(look(&mut signs, 1301), Due::End);
    }
}
