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
//! requests cross, that of the rank that wins stands: the other drops its own and answers.
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
            // The peer has forgotten us, and begins anew.
            (Message::Request, State::Acked | State::Ok) => self.examine(Part::Answering),
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

/// Two ranks, explored in every order of what can happen to them.
#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet, VecDeque};

    use super::*;

    const SIDES: [usize; 2] = [0, 1];

    /// Two ranks and what is on its way between them.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        sides: [Setup; 2],
        /// What is on its way to each.
        inboxes: [VecDeque<Message>; 2],
        /// Whether each has a context just now.
        ready: [bool; 2],
        requests: [u8; 2],
        enabled: [u8; 2],
        regretted: [u8; 2],
    }

    /// What may happen next.
    #[derive(Clone, Copy, Debug)]
    enum Turn {
        /// A context comes or goes.
        Context(usize),
        /// A device buffer is to be sent; an offer can be made, or cannot.
        Buffer(usize, Option<Refusal>),
        Arrival(usize),
        Examined(usize, Verdict),
    }

    impl World {
        fn new() -> Self {
            Self {
                sides: [Setup::new(true), Setup::new(false)],
                inboxes: [VecDeque::new(), VecDeque::new()],
                ready: [false; 2],
                requests: [0; 2],
                enabled: [0; 2],
                regretted: [0; 2],
            }
        }

        /// What can happen without anybody's new wish: it must come to an end.
        fn reactions(&self) -> Vec<Turn> {
            let mut turns = Vec::new();
            for side in SIDES {
                match self.sides[side].state() {
                    State::Acking(_) if self.ready[side] => turns.extend(
                        [Verdict::Possible, Verdict::Impossible(Refusal::NotOpened)]
                            .map(|v| Turn::Examined(side, v)),
                    ),
                    State::Acking(_) => turns.push(Turn::Examined(side, Verdict::NotReady)),
                    _ => {}
                }
                if !self.inboxes[side].is_empty() {
                    turns.push(Turn::Arrival(side));
                }
            }
            turns
        }

        /// What users and drivers do.
        fn wishes(&self) -> Vec<Turn> {
            let mut turns = Vec::new();
            for side in SIDES {
                turns.push(Turn::Context(side));
                if self.ready[side] && self.sides[side].is_idle() {
                    turns.push(Turn::Buffer(side, None));
                    turns.push(Turn::Buffer(side, Some(Refusal::NoDevice)));
                }
            }
            turns
        }

        fn after(&self, turn: Turn) -> Self {
            let mut world = self.clone();
            let (side, step) = match turn {
                Turn::Context(side) => {
                    world.ready[side] = !world.ready[side];
                    return world;
                }
                Turn::Buffer(side, None) => (side, world.sides[side].ask(Verdict::Possible)),
                Turn::Buffer(side, Some(why)) => (side, world.sides[side].ask(Verdict::Impossible(why))),
                Turn::Arrival(side) => {
                    let message = world.inboxes[side].pop_front().expect("something is on its way");
                    (side, world.sides[side].handle(message))
                }
                Turn::Examined(side, verdict) => (side, world.sides[side].examined(verdict)),
            };
            if let Some(message) = step.send {
                world.requests[side] += u8::from(message == Message::Request);
                world.inboxes[1 - side].push_back(message);
            }
            match step.then {
                Then::Enable => world.enabled[side] += 1,
                Then::Regret(_) => world.regretted[side] += 1,
                Then::Examine => assert!(matches!(world.sides[side].state(), State::Acking(_))),
                Then::Nothing => {}
            }
            world
        }

        fn is_quiet(&self) -> bool {
            self.reactions().is_empty()
        }

        fn check(&self) {
            let states = self.sides.each_ref().map(Setup::state);
            for side in SIDES {
                assert!(self.requests[side] <= ATTEMPTS, "{states:?}");
                assert!(self.enabled[side] <= 1 && self.regretted[side] <= 1, "said once: {states:?}");
                assert_eq!(self.enabled[side] == 1, states[side] == State::Ok);
                assert_eq!(self.regretted[side] == 1, matches!(states[side], State::Bad(_)));
                assert_eq!(self.sides[side].strays(), 0, "{states:?}");
                assert!(self.inboxes[side].len() <= 3, "{states:?}");
            }
            if self.is_quiet() {
                let agree = matches!(
                    states,
                    [State::Init, State::Init] | [State::Ok, State::Ok] | [State::Bad(_), State::Bad(_)]
                );
                assert!(agree, "nothing is on its way, and they are in {states:?}");
            }
        }
    }

    /// All worlds that can come to be.
    fn explored() -> HashSet<World> {
        let mut seen = HashSet::from([World::new()]);
        let mut left = vec![World::new()];
        while let Some(world) = left.pop() {
            world.check();
            for turn in world.reactions().into_iter().chain(world.wishes()) {
                let next = world.after(turn);
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
        }
        seen
    }

    /// Steps of the longest way to quiet; each is on no way to itself.
    fn longest(world: &World, known: &mut HashMap<World, Option<u32>>) -> u32 {
        match known.get(world) {
            Some(Some(steps)) => return *steps,
            Some(None) => panic!("they talk for ever"),
            None => {}
        }
        known.insert(world.clone(), None);
        let next = world.reactions().into_iter().map(|turn| 1 + longest(&world.after(turn), known)).max();
        known.insert(world.clone(), next.or(Some(0)));
        next.unwrap_or(0)
    }

    #[test]
    fn in_every_order_both_sides_come_to_agree() {
        let worlds = explored();
        let quiet = |wanted: fn(State) -> bool| {
            worlds.iter().filter(|world| world.is_quiet() && wanted(world.sides[0].state())).count()
        };
        assert!(quiet(|state| state == State::Ok) > 0);
        assert!(quiet(|state| state == State::Bad(Refusal::NeverReady)) > 0);
        assert!(worlds.iter().any(|world| world.requests == [ATTEMPTS; 2]), "both have asked five times");
    }

    /// A peer that was closed and is opened again, in the same life of its process, knows nothing of before.
    #[test]
    fn who_begins_anew_is_answered() {
        let agreed = explored()
            .into_iter()
            .find(|world| world.is_quiet() && world.sides.iter().all(|side| side.state() == State::Ok));
        let agreed = agreed.expect("they can agree");
        for forgetful in SIDES {
            let mut world = agreed.clone();
            world.sides[forgetful] = Setup::new(forgetful == 0);
            world.ready = [true; 2];
            world = world.after(Turn::Buffer(forgetful, None));
            while let Some(turn) = world.reactions().into_iter().next() {
                world = world.after(turn);
            }
            assert_eq!(world.sides.each_ref().map(Setup::state), [State::Ok; 2]);
        }
    }

    #[test]
    fn whatever_is_on_its_way_comes_to_rest() {
        let mut known = HashMap::new();
        let most = explored().iter().map(|world| longest(world, &mut known)).max();
        assert!(most.is_some_and(|steps| steps > 3), "a whole hand-shake");
    }

    fn run(world: World, turns: &[Turn]) -> World {
        turns.iter().fold(world, |world, turn| world.after(*turn))
    }

    #[test]
    fn a_hand_shake_tries_both_directions() {
        let ready = World { ready: [true; 2], ..World::new() };
        let half = run(
            ready,
            &[
                Turn::Buffer(0, None),
                Turn::Arrival(1),
                Turn::Examined(1, Verdict::Possible),
                Turn::Arrival(0),
            ],
        );
        assert_eq!(half.enabled, [0, 0], "one direction says nothing of the other");
        let refused = run(
            half.clone(),
            &[Turn::Examined(0, Verdict::Impossible(Refusal::NotOpened)), Turn::Arrival(1)],
        );
        assert!(refused.sides.iter().all(|side| side.state() == State::Bad(Refusal::NotOpened)));
        let done = run(half, &[Turn::Examined(0, Verdict::Possible), Turn::Arrival(1)]);
        assert_eq!((done.enabled, done.is_quiet()), ([1, 1], true));
    }

    #[test]
    fn the_winner_of_a_crossing_is_answered_and_the_other_request_dropped() {
        let ready = World { ready: [true; 2], ..World::new() };
        let crossed =
            run(ready, &[Turn::Buffer(0, None), Turn::Buffer(1, None), Turn::Arrival(0), Turn::Arrival(1)]);
        assert_eq!(crossed.sides[0].state(), State::Sent);
        assert_eq!(crossed.sides[1].state(), State::Acking(Part::Answering));
    }

    #[test]
    fn who_is_never_ready_is_asked_five_times_and_told() {
        let mut world = World { ready: [true, false], ..World::new() };
        for _ in 0..ATTEMPTS {
            assert!(world.sides[0].is_idle());
            world = run(
                world,
                &[
                    Turn::Buffer(0, None),
                    Turn::Arrival(1),
                    Turn::Examined(1, Verdict::NotReady),
                    Turn::Arrival(0),
                ],
            );
        }
        assert_eq!(world.sides[0].state(), State::Bad(Refusal::NeverReady));
        let told = run(world, &[Turn::Arrival(1)]);
        assert_eq!(told.sides[1].state(), State::Bad(Refusal::NeverReady));
    }

    /// A peer that lies, or another version of it.
    #[test]
    fn what_does_not_fit_is_counted_and_changes_nothing() {
        let mut side = Setup::new(true);
        for message in [Message::Accept, Message::Confirm, Message::NotReady] {
            assert_eq!(side.handle(message), Step::NOTHING);
        }
        assert_eq!((side.state(), side.strays()), (State::Init, 3));
        assert_eq!(side.examined(Verdict::Possible), Step::NOTHING, "nothing was to be examined");
        assert_eq!(side.ask(Verdict::Possible).send, Some(Message::Request));
        assert_eq!(side.handle(Message::Confirm), Step::NOTHING, "of what was never accepted");
        assert_eq!(side.state(), State::Sent);
    }

    /// The peer may learn that it has lost while an offer of it is examined.
    #[test]
    fn a_refusal_ends_an_examination() {
        let mut side = Setup::new(false);
        assert_eq!(side.handle(Message::Request), Step::then(Then::Examine));
        assert_eq!(
            side.handle(Message::Refuse(Refusal::Disabled)),
            Step::then(Then::Regret(Refusal::Disabled))
        );
        assert_eq!(side.examined(Verdict::Possible), Step::NOTHING);
        assert_eq!(side.state(), State::Bad(Refusal::Disabled));
    }
}
