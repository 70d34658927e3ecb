//! Every order of what can happen to two endpoints, and to three, within bounds.
//!
//! Of each state that can come to be, what holds at any time is checked, and that it comes to rest as it should when
//! nobody wishes for more. The numbers of states are asserted so that a change of the protocol does not go unseen.

use std::collections::HashSet;

use super::table::Row;
use super::world::{Budget, Turn, World};

/// What an exploration has seen.
struct Explored {
    states: usize,
    /// States at rest in which the sides are connected, and in which they are not.
    rests: [usize; 2],
}

/// Goes through all states that can come to be.
fn explore(first: World) -> Explored {
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut at_rest: HashSet<u128> = HashSet::new();
    let mut left = vec![first];
    let mut rests = [0; 2];
    while let Some(world) = left.pop() {
        world.check();
        settle(&world, &mut at_rest);
        let reactions = world.reactions();
        if reactions.is_empty() {
            let connected = (1..world.sides.len()).any(|peer| world.row(0, peer) == Row::Connected);
            rests[usize::from(!connected)] += 1;
        }
        for turn in reactions.into_iter().chain(world.whims()) {
            let next = world.after(turn);
            if seen.insert(next.fingerprint()) {
                left.push(next);
            }
        }
    }
    Explored { states: seen.len(), rests }
}

/// From here on, without losses and wishes, everything comes to rest, and the sides agree.
fn settle(world: &World, at_rest: &mut HashSet<u128>) {
    let mut world = world.clone();
    world.budget = Budget::default();
    let mut way = Vec::new();
    loop {
        let fingerprint = world.fingerprint();
        if at_rest.contains(&fingerprint) {
            break;
        }
        assert!(way.len() < 500 && !way.contains(&fingerprint), "they talk for ever");
        way.push(fingerprint);
        let reactions = world.reactions();
        let Some(first) = reactions.first() else {
            world.check_rest();
            break;
        };
        // Time passes on all sides.
        let is_time = matches!(first, Turn::Expire(_));
        for turn in reactions.iter().take(if is_time { reactions.len() } else { 1 }) {
            world.take(*turn);
            world.check();
        }
    }
    at_rest.extend(way);
}

fn assert_explored(first: World, states: usize) {
    let explored = explore(first);
    assert!(explored.rests.iter().all(|rests| *rests > 0), "it ends in either way: {:?}", explored.rests);
    assert_eq!(explored.states, states, "states explored");
}

#[test]
fn two_sides_set_up_in_every_order() {
    let budget = Budget { connects: [1, 1, 0], losses: 2, doubles: 2, hurries: 2, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 123_126);
}

#[test]
fn an_endpoint_is_enabled_late_and_mailboxes_are_lacking() {
    let connects = [1, 1, 0];
    let budget =
        Budget { connects, losses: 1, doubles: 1, hurries: 1, lacks: 1, inserts: 1, ..Budget::default() };
    assert_explored(World::new(&[true, false], budget), 30_884);
}

#[test]
fn two_sides_close_and_connect_again_in_every_order() {
    let budget = Budget { connects: [2, 1, 0], closes: [1, 1, 0], losses: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 219_793);
}

#[test]
fn a_connection_is_closed_while_datagrams_are_doubled_and_timers_hurry() {
    let budget =
        Budget { connects: [1, 1, 0], closes: [1, 0, 0], doubles: 1, hurries: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 63_397);
}

#[test]
fn a_side_dies_and_lives_again_in_every_order() {
    let budget =
        Budget { connects: [1, 1, 0], deaths: [0, 1, 0], losses: 1, hurries: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 32_751);
}

#[test]
fn a_side_dies_twice_and_its_datagrams_live_on() {
    let budget = Budget { connects: [2, 0, 0], deaths: [0, 2, 0], doubles: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 86_533);
}

#[test]
fn death_closing_and_loss_meet() {
    let connects = [1, 1, 0];
    let budget = Budget { connects, deaths: [0, 1, 0], closes: [1, 0, 0], losses: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 66_905);
}

#[test]
fn a_side_dies_that_has_ended_a_connection() {
    let connects = [1, 1, 0];
    let budget = Budget { connects, deaths: [0, 1, 0], closes: [0, 1, 0], losses: 1, ..Budget::default() };
    assert_explored(World::new(&[true, true], budget), 66_952);
}

#[test]
fn datagrams_are_taken_out_late() {
    let budget = Budget { connects: [1, 1, 0], closes: [1, 1, 0], ..Budget::default() };
    let mut lazy = World::new(&[true, true], budget);
    lazy.lazy = true;
    assert_explored(lazy, 42_482);
}

#[test]
fn three_sides_connect_in_every_order() {
    let budget = Budget { connects: [1, 1, 1], ..Budget::default() };
    assert_explored(World::new(&[true, true, true], budget), 59_228);
}
