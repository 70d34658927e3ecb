//! How two ranks of a node find out that each can open the other's device memory.
//!
//! Nothing happens before the first device buffer is to be sent. Then either side asks. A request and its
//! acceptance both carry an offer: who the sender is, which device it has, and a handle of a piece of its memory;
//! whoever gets an offer really opens that handle. So both directions are tried before either is used:
//!
//! ```text
//!   asker                                answerer
//!   Init   -- Request(offer) ---------->  Init -> Acking    opens the asker's handle
//!   Sent                                  Acked
//!   Acking <-- Accept(offer) -----------                    opens the answerer's handle
//!   Ok     -- Confirm ----------------->  Ok
//! ```
//!
//! *Not ready* (a process without a context so far, or with none any more) takes both sides back to `Init`, and the
//! next device buffer asks again, five times at most. *Refused* says why and is for good, on both sides. Where two
//! requests cross, that of the rank that [wins](Setup::new) stands: the other drops its own and answers.
//!
//! Every request is answered, but for the one that loses a crossing, which the other's request stands for. Messages
//! of one side arrive in order and none is lost: they go through shared memory. What does not fit the state is
//! counted and changes nothing.
//!
//! Answers to the states and the hand-shake in the README of Open MPI's `opal/mca/btl/smcuda`, where an answer is
//! only given when it is yes, and where access is believed without being tried.

/// Requests that one side makes, at most.
pub const ATTEMPTS: u8 = 5;

/// Why device memory is not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A side has been told by its user not to.
    Disabled,
    /// A side has no device that could take part.
    NoDevice,
    /// The devices cannot reach each other.
    NoPeerAccess,
    /// The driver does not open the other's handle: another container, a part of a device, another driver.
    NotOpened,
    /// A side was not ready, as often as it was asked.
    NeverReady,
}

/// What one side says to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Can you open my memory? With an offer.
    Request,
    /// I can. And can you open mine? With an offer.
    Accept,
    /// I can, too.
    Confirm,
    /// Not now: ask again.
    NotReady,
    /// No, for good.
    Refuse(Refusal),
}

/// What came of the examination of an offer, or of the attempt to make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its memory can be opened.
    Possible,
    /// This process has no context.
    NotReady,
    /// It cannot be.
    Impossible(Refusal),
}

/// Which offer is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The peer's request is.
    Answering,
    /// The peer's acceptance of our request is.
    Asking,
}

/// How far the hand-shake has come; the names are the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing has happened, or nothing that still counts.
    Init,
    /// A request is on its way.
    Sent,
    /// The peer's offer is being examined.
    Acking(Part),
    /// The peer's request has been accepted.
    Acked,
    /// Each side opens the other's memory.
    Ok,
    /// Neither side does, for this reason.
    Bad(Refusal),
}

/// What the user is to do after something was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Examine the offer that came with the message, and say [`Setup::examined`].
    Examine,
    /// Send device memory by handle from now on.
    Enable,
    /// Say once why this will never be.
    Regret(Refusal),
}

/// What follows: a message for the peer first, and something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// For the peer.
    pub send: Option<Message>,
    /// For the user.
    pub then: Then,
}

impl Step {
    const NOTHING: Self = Self { send: None, then: Then::Nothing };

    const fn send(message: Message) -> Self {
        Self { send: Some(message), then: Then::Nothing }
    }

    const fn then(then: Then) -> Self {
        Self { send: None, then }
    }
}

/// One side of a hand-shake with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    state: State,
    attempts: u8,
    wins: bool,
    strays: u32,
}

impl Setup {
    /// Of two ranks whose requests cross, one wins: both must say the same of who that is.
    pub const fn new(wins: bool) -> Self {
        Self { state: State::Init, attempts: 0, wins, strays: 0 }
    }

    /// How far it has come.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Messages that did not fit.
    pub const fn strays(&self) -> u32 {
        self.strays
    }

    /// Whether a device buffer that is sent now is a reason to [ask](Self::ask).
    #[inline]
    pub const fn is_idle(&self) -> bool {
        matches!(self.state, State::Init)
    }

    /// A device buffer is to be sent, and this side can, or cannot, make an offer.
    pub fn ask(&mut self, own: Verdict) -> Step {
        match (self.state, own) {
            (State::Init, Verdict::Possible) => {
                self.attempts += 1;
                self.state = State::Sent;
                Step::send(Message::Request)
            }
            (State::Init, Verdict::Impossible(why)) => self.refuse(why),
            _ => Step::NOTHING,
        }
    }

    /// The peer says something.
    pub fn handle(&mut self, message: Message) -> Step {
        match (message, self.state) {
            (Message::Request, State::Init) => self.examine(Part::Answering),
            // Both have asked. The winner's request stands, and the peer is going to answer it.
            (Message::Request, State::Sent) if self.wins => Step::NOTHING,
            (Message::Request, State::Sent) => self.examine(Part::Answering),
            (Message::Request, State::Bad(why)) => Step::send(Message::Refuse(why)),
            (Message::Accept, State::Sent) => self.examine(Part::Asking),
            (Message::Confirm, State::Acked) => {
                self.state = State::Ok;
                Step::then(Then::Enable)
            }
            (Message::NotReady, State::Sent | State::Acked) => self.again(None),
            (Message::Refuse(why), State::Init | State::Sent | State::Acking(_) | State::Acked) => {
                self.state = State::Bad(why);
                Step::then(Then::Regret(why))
            }
            // Both have refused.
            (Message::Refuse(_), State::Bad(_)) => Step::NOTHING,
            _ => {
                self.strays = self.strays.saturating_add(1);
                Step::NOTHING
            }
        }
    }

    /// What came of the offer that was to be [examined](Then::Examine).
    pub fn examined(&mut self, verdict: Verdict) -> Step {
        let State::Acking(part) = self.state else { return Step::NOTHING };
        match (part, verdict) {
            (Part::Answering, Verdict::Possible) => {
                self.state = State::Acked;
                Step::send(Message::Accept)
            }
            (Part::Asking, Verdict::Possible) => {
                self.state = State::Ok;
                Step { send: Some(Message::Confirm), then: Then::Enable }
            }
            (_, Verdict::NotReady) => self.again(Some(Message::NotReady)),
            (_, Verdict::Impossible(why)) => self.refuse(why),
        }
    }

    fn examine(&mut self, part: Part) -> Step {
        self.state = State::Acking(part);
        Step::then(Then::Examine)
    }

    /// What was asked, by whomever, has come to nothing. This side may ask again, unless it has done so often enough:
    /// its last request may also have been one that lost a crossing.
    fn again(&mut self, send: Option<Message>) -> Step {
        if self.attempts >= ATTEMPTS {
            return self.refuse(Refusal::NeverReady);
        }
        self.state = State::Init;
        Step { send, then: Then::Nothing }
    }

    fn refuse(&mut self, why: Refusal) -> Step {
        self.state = State::Bad(why);
        Step { send: Some(Message::Refuse(why)), then: Then::Regret(why) }
    }
}

#[cfg(test)]
#[path = "ipc_tests.rs"]
mod tests;
