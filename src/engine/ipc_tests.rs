//! Two ranks, explored in every order of what can happen to them.

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
            let agree = match states {
                [State::Init, State::Init] | [State::Ok, State::Ok] => true,
                [State::Bad(_), State::Bad(_)] => true,
                _ => false,
            };
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
        &[Turn::Buffer(0, None), Turn::Arrival(1), Turn::Examined(1, Verdict::Possible), Turn::Arrival(0)],
    );
    assert_eq!(half.enabled, [0, 0], "one direction says nothing of the other");
    let refused =
        run(half.clone(), &[Turn::Examined(0, Verdict::Impossible(Refusal::NotOpened)), Turn::Arrival(1)]);
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
    assert_eq!(side.handle(Message::Refuse(Refusal::Disabled)), Step::then(Then::Regret(Refusal::Disabled)));
    assert_eq!(side.examined(Verdict::Possible), Step::NOTHING);
    assert_eq!(side.state(), State::Bad(Refusal::Disabled));
}
