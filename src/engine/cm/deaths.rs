//! A process that dies, and nobody comes after it: in every state, whatever its main thread has done until then. Whoever
//! has something for it is told, and within a time that is known.

use std::collections::HashSet;
use std::time::Duration;

use super::link::Phase;
use super::world::{Budget, NOW, Turn, World, called};
use super::*;

/// The side with the smaller address, and the other.
const ACCEPTOR: usize = 0;
const INITIATOR: usize = 1;

/// For so long those who live are looked at, while their peer does.
const LONGEST: Duration = Duration::from_secs(120);

/// What `docs/hawser-verbs.7` promises.
const TOLD: Duration = Duration::from_secs(45);

/// And to whoever closes its side.
const SOON: Duration = Duration::from_secs(5);

/// Two processes of which one wants to send, with times as they are usual.
fn world(wire: Wire, wants: usize) -> World {
    let mut budget = Budget::default();
    budget.wants[wants] = 1;
    let mut world = World::new(2, wire, 2, budget);
    let usual = Settings::new(0, 0, Vec::new(), world.queues);
    for side in &mut world.sides {
        let Settings { process, nonce, listeners, .. } = side.manager.desk.settings.clone();
        side.manager.desk.settings =
            Settings { process, nonce, listeners, postponements: 3, ..usual.clone() };
    }
    world
}

/// What happens to one side.
type Blow = fn(&mut World, usize);

/// It happens to the victim now: the other side comes to rest, and is told in time. How long that takes.
fn outlive(world: &World, blow: Blow, victim: usize) -> Duration {
    let mut world = world.clone();
    world.budget = Budget::default();
    blow(&mut world, victim);
    (0..2).for_each(|at| world.perform(at));
    let (since, mut waited) = (world.now, Duration::ZERO);
    for turns in 0.. {
        assert!(turns < 10_000, "it goes on for ever");
        if world.sides[1 - victim].held.values().any(|held| held.waits) {
            waited = world.now - since;
        }
        let Some(turn) = world.reactions().first().copied() else { break };
        world.take(turn);
        world.check();
    }
    world.check_rest();
    waited
}

/// It happens to the victim in every state that can come to be; in how many, and how long the other side waits at most.
fn outlive_everywhere(first: World, blow: Blow, victim: usize) -> (usize, Duration) {
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut left = vec![first];
    let mut longest = Duration::ZERO;
    while let Some(world) = left.pop() {
        world.check();
        longest = longest.max(outlive(&world, blow, victim));
        if world.now - NOW > LONGEST {
            continue;
        }
        for turn in world.reactions().into_iter().chain(world.whims()) {
            let next = world.after(turn);
            if seen.insert(next.fingerprint()) {
                left.push(next);
            }
        }
    }
    (seen.len(), longest)
}

/// In how many states; the other side is told in time in each.
fn told(first: World, victim: usize) -> usize {
    told_of(first, World::kill, victim)
}

fn told_of(first: World, blow: Blow, victim: usize) -> usize {
    let (states, longest) = outlive_everywhere(first, blow, victim);
    assert!(longest <= TOLD, "it is told after {longest:?}");
    states
}

#[test]
fn who_dies_is_missed_by_who_waits_for_it_whatever_both_were_doing() {
    for (wire, states) in [(Wire::InfiniBand, [332, 1952]), (Wire::Iwarp, [324, 1862])] {
        let found = [(ACCEPTOR, INITIATOR), (INITIATOR, ACCEPTOR)]
            .map(|(who, victim)| told(world(wire, who), victim));
        assert_eq!(found, states, "states in which it dies");
    }
}

/// Nobody listens there, and whoever is about to end, too, believes it sooner.
#[test]
fn who_is_about_to_end_does_not_wait_for_who_has_ended() {
    let end: Blow = |world, at| {
        let endpoint = called(at, 1);
        if world.sides[1 - at].held.contains_key(&endpoint) {
            world.budget.leaves[1 - at] = 1;
            world.take(Turn::Hurry(1 - at, endpoint));
        }
        world.kill(at);
    };
    for wire in [Wire::InfiniBand, Wire::Iwarp] {
        for (who, victim) in [(ACCEPTOR, INITIATOR), (INITIATOR, ACCEPTOR)] {
            let (states, longest) = outlive_everywhere(world(wire, who).added(), end, victim);
            assert!(states > 50 && longest <= SOON, "of {states} states, one is told after {longest:?}");
        }
    }
}

/// Its connection thread answers, and its main thread never does.
#[test]
fn a_peer_that_computes_and_then_dies_is_missed_with_an_endpoint_and_without_one() {
    for (is_added, states) in [(false, [84, 26]), (true, [57, 103])] {
        let found = [ACCEPTOR, INITIATOR].map(|victim| {
            let mut first = world(Wire::InfiniBand, 1 - victim);
            if is_added {
                first = first.added();
            }
            first.sides[victim].computes = true;
            told(first, victim)
        });
        assert_eq!(found, states, "states in which it dies");
    }
}

/// It has something to send itself, asks or connects, and computes then.
#[test]
fn a_peer_that_wants_something_computes_and_then_dies_is_missed() {
    let found = [ACCEPTOR, INITIATOR].map(|victim| {
        let mut first = world(Wire::InfiniBand, 1 - victim).added();
        first.budget.wants[victim] = 1;
        first.take(Turn::Want(victim, called(1 - victim, 1)));
        first.sides[victim].computes = true;
        told(first, victim)
    });
    assert_eq!(found, [468, 362], "states in which it dies");
}

/// Nobody asks it: whoever rejects a kick because the other side has to connect has begun to, with its connection thread alone.
#[test]
fn an_initiator_that_computes_connects_at_once_when_it_is_kicked() {
    let mut first = world(Wire::InfiniBand, ACCEPTOR).added();
    first.sides[INITIATOR].computes = true;
    first.take(Turn::Want(ACCEPTOR, called(INITIATOR, 1)));
    while let Some(turn) = first.reactions().first().filter(|turn| !matches!(turn, Turn::Expire(_))) {
        first.take(*turn);
    }
    assert_eq!(first.now, NOW, "without waiting for anything");
    let link = |at: usize| first.sides[at].link(called(1 - at, 1)).map(|link| link.phase);
    assert_eq!([link(ACCEPTOR), link(INITIATOR)], [Some(Phase::Up); 2]);
}

/// Its connection thread comes upon a bug, and its main thread goes on: it is told as well, at once, and so is whoever it wants
/// from then on.
#[test]
fn a_process_whose_connection_thread_gives_up_has_no_connections_and_everybody_is_told() {
    let give_up: Blow = |world, at| {
        world.sides[at].listens = false;
        world.sides[at].manager.give_up();
        let endpoint = called(1 - at, 1);
        if world.sides[at].held.get(&endpoint).is_some_and(|held| !held.waits) {
            world.budget.wants[at] = 1;
            world.take(Turn::Want(at, endpoint));
        }
    };
    for wire in [Wire::InfiniBand, Wire::Iwarp] {
        for (who, victim) in [(ACCEPTOR, INITIATOR), (INITIATOR, ACCEPTOR), (ACCEPTOR, ACCEPTOR)] {
            assert!(told_of(world(wire, who), give_up, victim) > 100, "states in which it gives up");
        }
    }
}

/// What is posted comes back with the disconnection: whoever posted it knows by then why.
#[test]
fn what_has_ended_is_told_before_it_is_disconnected_whatever_else_is_to_be_told() {
    let mut first = world(Wire::InfiniBand, ACCEPTOR).added();
    first.take(Turn::Want(ACCEPTOR, called(INITIATOR, 1)));
    while let Some(turn) = first.reactions().first().filter(|turn| !matches!(turn, Turn::Expire(_))) {
        first.take(*turn);
    }
    let side = &mut first.sides[ACCEPTOR];
    let id = side.held[&called(INITIATOR, 1)].ids[0];
    side.manager.desk.notices.push_back(Notice::Unknown { process: 5, listener: 0 });
    side.manager.handle_event(id, Event::Disconnected, NOW);
    let early = side.manager.poll_early_notice();
    assert!(matches!(early, Some(Notice::Down { reason: Reason::Disconnected, .. })), "{early:?}");
    assert_eq!(side.manager.poll_early_notice(), None);
    assert!(matches!(side.manager.poll_action(), Some(Action::Disconnect { .. })));
    let later = side.manager.poll_notice();
    assert_eq!(later, Some(Notice::Unknown { process: 5, listener: 0 }), "it waits for the actions");
}
