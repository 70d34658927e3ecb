//! Every order of what can happen to two processes, and to three, within bounds.
//!
//! Of each state that can come to be, what holds at any time is checked, and that it comes to rest as it should when
//! nobody wishes for more. The numbers of states are asserted so that a change of the protocol does not go unseen.

use std::collections::HashSet;

use super::world::{Budget, Turn, World};
use super::*;

/// What an exploration has seen.
pub(super) struct Explored {
    pub(super) states: usize,
    /// States at rest in which some sides are connected, in which some have failed, and others.
    pub(super) rests: [usize; 3],
}

/// Goes through all states that can come to be.
pub(super) fn explore(first: World) -> Explored {
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut at_rest: HashSet<u128> = HashSet::new();
    let mut left = vec![first];
    let mut rests = [0; 3];
    while let Some(world) = left.pop() {
        world.check();
        settle(&world, &mut at_rest);
        let reactions = world.reactions();
        if reactions.is_empty() {
            let has = |state| {
                let mut held = world.sides.iter().flat_map(|side| side.held.values());
                held.any(|held| held.endpoint.state() == state)
            };
            let kind = if has(State::Connected) { 0 } else { 1 + usize::from(!has(State::Failed)) };
            rests[kind] += 1;
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
    for at in 0..world.sides.len() {
        world.sides[at].armed = None;
        world.perform(at);
    }
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

fn assert_explored(first: World, states: usize, rests: [usize; 3]) {
    let explored = explore(first);
    assert_eq!((explored.states, explored.rests), (states, rests), "states explored, and those at rest");
}

/// Two processes that have added each other.
pub(super) fn pair(wire: Wire, queues: u8, budget: Budget) -> World {
    World::new(2, wire, queues, budget).added()
}

#[test]
fn either_or_both_sides_start_in_every_order_before_and_after_add_procs() {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    assert_explored(World::new(2, Wire::InfiniBand, 2, budget), 7_955, [36, 0, 1]);
}

#[test]
fn over_iwarp_either_or_both_sides_start_in_every_order() {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    assert_explored(World::new(2, Wire::Iwarp, 2, budget), 7_394, [36, 0, 1]);
}

#[test]
fn events_are_lost_and_timers_hurry() {
    let budget = Budget { wants: [1, 1, 0], losses: 2, hurries: 1, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 118_107, [651, 707, 1]);
}

#[test]
fn events_of_several_queues_are_lost() {
    let budget = Budget { wants: [1, 1, 0], losses: 1, ..Budget::default() };
    assert_explored(pair(Wire::Iwarp, 2, budget), 6_577, [40, 0, 1]);
}

#[test]
fn events_are_doubled_and_late() {
    let budget = Budget { wants: [1, 1, 0], doubles: 1, lates: 1, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 81_518, [246, 434, 1]);
}

#[test]
fn addresses_routes_and_requests_fail() {
    let budget = Budget { wants: [1, 1, 0], errors: 2, losses: 1, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 75_769, [491, 1088, 1]);
}

#[test]
fn calls_fail_at_once() {
    let budget = Budget { wants: [1, 1, 0], faults: 2, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 31_358, [506, 49, 16]);
}

#[test]
fn timers_hurry() {
    let budget = Budget { wants: [1, 1, 0], hurries: 2, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 66_730, [267, 193, 1]);
}

#[test]
fn over_iwarp_timers_hurry_on_several_queues() {
    let budget = Budget { wants: [1, 1, 0], hurries: 1, ..Budget::default() };
    assert_explored(pair(Wire::Iwarp, 2, budget), 14_667, [85, 0, 1]);
}

#[test]
fn connections_break() {
    let budget = Budget { wants: [1, 1, 0], breaks: 1, probes: 1, ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 51_593, [80, 77, 1]);
}

#[test]
fn over_iwarp_connections_break() {
    let budget = Budget { wants: [1, 1, 0], breaks: 1, losses: 1, ..Budget::default() };
    assert_explored(pair(Wire::Iwarp, 1, budget), 43_380, [157, 266, 1]);
}

/// Who has no memory is the first to give up, and the other side, which cannot know why, with it.
#[test]
fn one_side_has_nothing_to_post_and_gives_up() {
    for (wire, explored) in [
        (Wire::InfiniBand, [(29_118, [51, 104, 1]), (28_688, [51, 112, 1])]),
        (Wire::Iwarp, [(19_288, [51, 53, 1]), (28_315, [51, 112, 1])]),
    ] {
        let found = [1, 0].map(|at| {
            let mut starves = [0; 3];
            starves[at] = 1;
            let budget = Budget { wants: [1, 1, 0], starves, losses: 1, ..Budget::default() };
            let found = explore(pair(wire, 1, budget));
            (found.states, found.rests)
        });
        assert_eq!(found, explored, "states explored, and those at rest");
    }
}

/// Whether it is connected or not, is going to be closed here or there, or has been: its device is of no use any more.
#[test]
fn what_one_side_has_done_cannot_be_read_any_more_in_every_state() {
    let found = [Wire::InfiniBand, Wire::Iwarp].map(|wire| {
        [1, 0].map(|at| {
            let (mut own, mut others) = ([0; 3], [0; 3]);
            (own[at], others[1 - at]) = (1, 1);
            let budget = Budget { wants: [1, 1, 0], failures: own, ..Budget::default() };
            let closes = Budget { closes: own, ..budget };
            let is_closed = Budget { closes: others, ..budget };
            let meets = Budget { meetings: own, wants: own, ..budget };
            let is_met = Budget { meetings: others, wants: own, ..budget };
            [budget, closes, is_closed, meets, is_met].map(|budget| {
                let found = explore(pair(wire, 1, budget));
                (found.states, found.rests)
            })
        })
    });
    let explored = [
        [
            [
                (15_787, [6, 37, 2]),
                (95_159, [6, 100, 8]),
                (140_905, [6, 104, 8]),
                (24_644, [8, 42, 10]),
                (31_934, [8, 52, 6]),
            ],
            [
                (17_454, [6, 41, 2]),
                (100_805, [6, 93, 8]),
                (145_653, [6, 145, 8]),
                (45_222, [11, 79, 10]),
                (50_300, [16, 67, 6]),
            ],
        ],
        [
            [
                (11_304, [6, 24, 2]),
                (66_118, [6, 78, 8]),
                (94_708, [6, 75, 8]),
                (15_110, [6, 21, 10]),
                (31_264, [8, 36, 6]),
            ],
            [
                (12_282, [6, 28, 2]),
                (69_011, [6, 73, 8]),
                (95_200, [6, 126, 8]),
                (37_494, [11, 56, 10]),
                (28_940, [13, 44, 6]),
            ],
        ],
    ];
    assert_eq!(found, explored, "states explored, and those at rest");
}

#[test]
fn an_initiator_closes_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], closes: [0, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 21_523, [6, 24, 4]);
}

#[test]
fn an_acceptor_closes_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], closes: [1, 0, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 21_877, [6, 19, 4]);
}

#[test]
fn an_initiator_ends_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], finalizes: [0, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 38_570, [6, 32, 4]);
}

#[test]
fn an_acceptor_ends_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], finalizes: [1, 0, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 41_669, [6, 36, 4]);
}

/// What waits is either sent, or told to be in vain: the other side may have ended, or be about to.
#[test]
fn one_side_hurries_in_every_state_and_the_other_ends() {
    for (wire, explored) in [
        (Wire::InfiniBand, [(140_536, [18, 112, 8]), (128_980, [18, 118, 8])]),
        (Wire::Iwarp, [(96_190, [18, 100, 8]), (83_815, [18, 106, 8])]),
    ] {
        let found = [1, 0].map(|leaver| {
            let (mut leaves, mut finalizes) = ([0; 3], [0; 3]);
            (leaves[leaver], finalizes[1 - leaver]) = (1, 1);
            let budget = Budget { wants: [1, 1, 0], leaves, finalizes, ..Budget::default() };
            let found = explore(pair(wire, 1, budget));
            (found.states, found.rests)
        });
        assert_eq!(found, explored, "states explored, and those at rest");
    }
}

#[test]
fn who_is_closed_and_met_again_by_the_initiator_in_any_state_is_connected_again_and_nobody_fails() {
    let budget = Budget { wants: [1, 1, 0], meetings: [0, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 70_251, [76, 0, 8]);
}

#[test]
fn who_is_closed_and_met_again_by_the_acceptor_in_any_state_is_connected_again_and_nobody_fails() {
    let budget = Budget { wants: [1, 1, 0], meetings: [1, 0, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 49_089, [75, 0, 8]);
}

#[test]
fn over_iwarp_who_is_closed_and_met_again_in_any_state_is_connected_again_and_nobody_fails() {
    let budget = Budget { wants: [1, 1, 0], meetings: [0, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::Iwarp, 1, budget), 44_671, [58, 0, 8]);
    let budget = Budget { wants: [1, 1, 0], meetings: [1, 0, 0], ..Budget::default() };
    assert_explored(pair(Wire::Iwarp, 1, budget), 60_153, [75, 0, 8]);
}

#[test]
fn devices_are_removed_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], removals: [1, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 22_517, [6, 446, 1]);
}

#[test]
fn an_initiator_lives_again_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], deaths: [0, 1, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 143_218, [35, 45, 11]);
}

#[test]
fn an_acceptor_lives_again_in_every_state() {
    let budget = Budget { wants: [1, 1, 0], deaths: [1, 0, 0], ..Budget::default() };
    assert_explored(pair(Wire::InfiniBand, 1, budget), 109_288, [35, 71, 12]);
}

#[test]
fn over_iwarp_what_fails_closes_ends_is_removed_or_lives_again_does_so_in_every_state() {
    let start = Budget { wants: [1, 1, 0], ..Budget::default() };
    for (budget, explored) in [
        (Budget { doubles: 1, lates: 1, ..start }, (48_564, [246, 215, 1])),
        (Budget { errors: 2, losses: 1, ..start }, (72_156, [491, 1088, 1])),
        (Budget { faults: 2, ..start }, (28_310, [506, 49, 16])),
        (Budget { closes: [0, 1, 0], ..start }, (14_179, [6, 21, 4])),
        (Budget { closes: [1, 0, 0], ..start }, (14_745, [6, 17, 4])),
        (Budget { finalizes: [0, 1, 0], ..start }, (25_184, [6, 29, 4])),
        (Budget { finalizes: [1, 0, 0], ..start }, (28_361, [6, 32, 4])),
        (Budget { removals: [1, 1, 0], ..start }, (15_681, [6, 354, 1])),
        (Budget { deaths: [0, 1, 0], ..start }, (125_063, [35, 30, 11])),
        (Budget { deaths: [1, 0, 0], ..start }, (71_010, [35, 49, 12])),
    ] {
        let found = explore(pair(Wire::Iwarp, 1, budget));
        assert_eq!((found.states, found.rests), explored, "states explored, and those at rest of {budget:?}");
    }
}

#[test]
fn sides_with_different_queues_both_fail() {
    let budget = Budget { wants: [1, 1, 0], losses: 1, ..Budget::default() };
    let mut first = pair(Wire::InfiniBand, 1, budget);
    first.sides[1].manager.desk.settings.queues.hash += 1;
    assert_explored(first, 295, [0, 12, 1]);
}

#[test]
fn three_sides_start_in_every_order() {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    assert_explored(World::new(3, Wire::InfiniBand, 1, budget).added(), 22_459, [28, 0, 1]);
}

#[test]
fn of_three_sides_two_ask_the_third() {
    let budget = Budget { wants: [0, 1, 1], ..Budget::default() };
    assert_explored(World::new(3, Wire::Iwarp, 1, budget).added(), 5_954, [14, 0, 1]);
}

/// The same of two that talk as openib does.
fn openib_pair(queues: u8, budget: Budget) -> World {
    World::new(2, Wire::InfiniBand, queues, budget).talking_as_openib().added()
}

#[test]
fn with_openibs_words_either_or_both_sides_start_in_every_order_before_and_after_add_procs() {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    let explored = explore(World::new(2, Wire::InfiniBand, 2, budget).talking_as_openib());
    assert_eq!((explored.rests[1], explored.rests[2]), (0, 1), "connected, or nobody wants it");
}

#[test]
fn with_openibs_words_three_sides_start_in_every_order() {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    let first = World::new(3, Wire::InfiniBand, 1, budget).talking_as_openib().added();
    assert_explored(first, 44_642, [28, 0, 1]);
}

#[test]
fn with_openibs_words_either_side_closes_in_every_state() {
    for closes in [[0, 1, 0], [1, 0, 0]] {
        let budget = Budget { wants: [1, 1, 0], closes, ..Budget::default() };
        assert!(explore(openib_pair(1, budget)).rests[0] > 0);
    }
}

#[test]
fn with_openibs_words_addresses_routes_and_requests_fail() {
    let budget = Budget { wants: [1, 1, 0], errors: 1, ..Budget::default() };
    assert!(explore(openib_pair(1, budget)).rests[0] > 0);
}
