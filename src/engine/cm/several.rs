//! Of several queues, and of three processes, one breaks, ends, closes, fails or lives again, in every order of what can happen.

use super::exploration::{explore, pair};
use super::world::{Budget, World};
use super::*;

/// One side wants to send.
fn one() -> Budget {
    Budget { wants: [0, 1, 0], ..Budget::default() }
}

/// Two do.
fn both() -> Budget {
    Budget { wants: [1, 1, 0], ..Budget::default() }
}

/// States explored, and those at rest.
type Found = (usize, [usize; 3]);

fn assert_found(worlds: impl IntoIterator<Item = (World, Found)>) {
    let (worlds, expected): (Vec<World>, Vec<Found>) = worlds.into_iter().unzip();
    let found = worlds.into_iter().map(|world| {
        let explored = explore(world);
        (explored.states, explored.rests)
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "states explored, and those at rest");
}

/// Of two processes that have two queues.
fn assert_of_queues<const COUNT: usize>(wire: Wire, expected: [(Budget, Found); COUNT]) {
    assert_found(expected.map(|(budget, found)| (pair(wire, 2, budget), found)));
}

/// Of three processes that have added each other.
fn assert_of_three<const COUNT: usize>(wire: Wire, expected: [(Budget, Found); COUNT]) {
    assert_found(expected.map(|(budget, found)| (World::new(3, wire, 1, budget).added(), found)));
}

#[test]
fn of_several_queues_one_breaks_or_fails() {
    assert_of_queues(
        Wire::InfiniBand,
        [
            (Budget { breaks: 1, ..both() }, (185_274, [58, 72, 1])),
            (Budget { errors: 1, ..both() }, (18_806, [119, 0, 1])),
            (Budget { faults: 1, ..both() }, (15_101, [112, 0, 7])),
        ],
    );
}

#[test]
fn over_iwarp_of_several_queues_one_breaks_or_fails() {
    assert_of_queues(
        Wire::Iwarp,
        [
            (Budget { breaks: 1, ..both() }, (118_707, [58, 35, 1])),
            (Budget { errors: 1, ..both() }, (17_590, [119, 0, 1])),
            (Budget { faults: 1, ..both() }, (14_039, [112, 0, 7])),
        ],
    );
}

#[test]
fn who_has_several_queues_closes_ends_is_removed_or_lives_again_in_every_state() {
    assert_of_queues(
        Wire::InfiniBand,
        [
            (Budget { closes: [0, 1, 0], ..one() }, (21_547, [1, 5, 4])),
            (Budget { closes: [1, 0, 0], ..one() }, (26_467, [1, 5, 2])),
            (Budget { finalizes: [0, 1, 0], ..one() }, (41_847, [1, 5, 4])),
            (Budget { finalizes: [1, 0, 0], ..one() }, (51_716, [1, 12, 2])),
            (Budget { removals: [1, 0, 0], ..one() }, (959, [1, 11, 1])),
            (Budget { deaths: [0, 1, 0], ..one() }, (14_106, [16, 0, 4])),
            (Budget { deaths: [1, 0, 0], ..one() }, (12_528, [16, 1, 4])),
        ],
    );
}

#[test]
fn over_iwarp_who_has_several_queues_closes_ends_is_removed_or_lives_again_in_every_state() {
    assert_of_queues(
        Wire::Iwarp,
        [
            (Budget { closes: [0, 1, 0], ..one() }, (14_958, [1, 4, 4])),
            (Budget { closes: [1, 0, 0], ..one() }, (15_230, [1, 5, 2])),
            (Budget { finalizes: [0, 1, 0], ..one() }, (28_990, [1, 4, 4])),
            (Budget { finalizes: [1, 0, 0], ..one() }, (29_770, [1, 12, 2])),
            (Budget { removals: [1, 0, 0], ..one() }, (681, [1, 9, 1])),
            (Budget { deaths: [0, 1, 0], ..one() }, (12_357, [16, 0, 4])),
            (Budget { deaths: [1, 0, 0], ..one() }, (10_867, [16, 1, 4])),
        ],
    );
}

#[test]
fn of_three_sides_events_are_lost_or_connections_break() {
    for (wire, losses, breaks) in [
        (Wire::InfiniBand, (1_215, [27, 1, 1]), (2_571, [11, 9, 1])),
        (Wire::Iwarp, (1_075, [27, 1, 1]), (1_751, [11, 6, 1])),
    ] {
        let (lost, broken) = (Budget { losses: 1, ..one() }, Budget { breaks: 1, ..one() });
        assert_of_three(wire, [(lost, losses), (broken, breaks)]);
    }
}

#[test]
fn of_three_sides_two_ask_the_third_and_events_are_lost() {
    let budget = Budget { wants: [0, 1, 1], losses: 1, ..Budget::default() };
    assert_of_three(Wire::InfiniBand, [(budget, (139_373, [198, 2, 1]))]);
}

#[test]
fn of_three_sides_one_closes_is_removed_or_lives_again_in_every_state() {
    assert_of_three(
        Wire::InfiniBand,
        [
            (Budget { closes: [0, 1, 0], ..one() }, (7_024, [6, 9, 7])),
            (Budget { closes: [1, 0, 0], ..one() }, (3_046, [8, 4, 3])),
            (Budget { removals: [1, 0, 0], ..one() }, (872, [5, 9, 1])),
            (Budget { deaths: [0, 1, 0], ..one() }, (73_275, [11, 1, 6])),
            (Budget { deaths: [1, 0, 0], ..one() }, (58_329, [10, 1, 4])),
        ],
    );
}

#[test]
fn over_iwarp_of_three_sides_one_closes_is_removed_or_lives_again_in_every_state() {
    assert_of_three(
        Wire::Iwarp,
        [
            (Budget { closes: [0, 1, 0], ..one() }, (4_955, [6, 7, 7])),
            (Budget { closes: [1, 0, 0], ..one() }, (2_061, [8, 4, 3])),
            (Budget { removals: [1, 0, 0], ..one() }, (667, [5, 8, 1])),
            (Budget { deaths: [0, 1, 0], ..one() }, (58_261, [11, 1, 6])),
            (Budget { deaths: [1, 0, 0], ..one() }, (48_691, [10, 1, 4])),
        ],
    );
}
