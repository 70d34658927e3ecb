//! Several who sleep by one [`Wait`](super::wait::Wait), tried in every order of their steps.
//!
//! Somebody counts up and tells each time; each sleeper waits until the count is as high as he wants, which is another
//! number for each. What the memory may do with what one sleeper and one writer say to each other is tried where the same
//! protocol is that of the alarm (`src/shm/alarm_model.rs`); here steps are whole, and all see them in one order. It is a
//! defect when nobody can do anything any more and somebody sleeps who has what he waits for.
//!
//! With any part of the protocol left out the model must fail, or it proves nothing.

use std::collections::HashSet;

const SLEEPERS: usize = 3;
/// How far is counted; sleeper 0 wants 1, and so on.
const MOST: u8 = SLEEPERS as u8;

/// Where who counts is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Count {
    Add,
    Look,
    Ring(usize),
}

/// Where a sleeper is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sleep {
    Begin,
    Empty,
    Arm,
    Look,
    Asleep,
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    count: u8,
    is_armed: bool,
    /// Which events are readable, of those who are rung.
    events: [bool; SLEEPERS],
    is_there: [bool; SLEEPERS],
    counter: Count,
    sleepers: [Sleep; SLEEPERS],
}

/// What is done of the protocol.
#[derive(Clone, Copy)]
struct Protocol {
    has_own_event: bool,
    rings_all: bool,
    looks_again: bool,
    empties_before_it_looks: bool,
}

const RIGHT: Protocol =
    Protocol { has_own_event: true, rings_all: true, looks_again: true, empties_before_it_looks: true };

impl World {
    fn event_of(sleeper: usize, protocol: Protocol) -> usize {
        if protocol.has_own_event { sleeper } else { 0 }
    }

    fn counts(&self, protocol: Protocol) -> Option<Self> {
        let mut after = self.clone();
        after.counter = match self.counter {
            Count::Add if self.count == MOST => return None,
            Count::Add => {
                after.count += 1;
                Count::Look
            }
            Count::Look if self.is_armed => {
                after.is_armed = false;
                Count::Ring(0)
            }
            Count::Look => Count::Add,
            Count::Ring(sleeper) => {
                let is_rung = self.is_there[sleeper];
                after.events[Self::event_of(sleeper, protocol)] |= is_rung;
                let is_last = sleeper + 1 == SLEEPERS || is_rung && !protocol.rings_all;
                if is_last { Count::Add } else { Count::Ring(sleeper + 1) }
            }
        };
        Some(after)
    }

    fn sleeps(&self, sleeper: usize, protocol: Protocol) -> Option<Self> {
        let event = Self::event_of(sleeper, protocol);
        let has_enough = self.count > sleeper as u8;
        let mut after = self.clone();
        after.sleepers[sleeper] = match self.sleepers[sleeper] {
            Sleep::Begin if has_enough => {
                after.is_there[sleeper] = false;
                Sleep::Over
            }
            Sleep::Begin => {
                after.is_there[sleeper] = true;
                if protocol.empties_before_it_looks { Sleep::Empty } else { Sleep::Arm }
            }
            Sleep::Empty => {
                after.events[event] = false;
                if protocol.empties_before_it_looks { Sleep::Arm } else { Sleep::Asleep }
            }
            Sleep::Arm => {
                after.is_armed = true;
                if protocol.looks_again { Sleep::Look } else { Sleep::Asleep }
            }
            Sleep::Look if has_enough => {
                after.is_there[sleeper] = false;
                Sleep::Over
            }
            Sleep::Look if protocol.empties_before_it_looks => Sleep::Asleep,
            Sleep::Look => Sleep::Empty,
            Sleep::Asleep if self.events[event] => Sleep::Begin,
            Sleep::Asleep | Sleep::Over => return None,
        };
        Some(after)
    }
}

/// Tries everything; how many worlds there are, or what went wrong.
fn explore(protocol: Protocol) -> Result<usize, &'static str> {
    let first = World {
        count: 0,
        is_armed: false,
        events: [false; SLEEPERS],
        is_there: [false; SLEEPERS],
        counter: Count::Add,
        sleepers: [Sleep::Begin; SLEEPERS],
    };
    let mut known = HashSet::from([first.clone()]);
    let mut todo = vec![first];
    while let Some(world) = todo.pop() {
        let mut next: Vec<World> = world.counts(protocol).into_iter().collect();
        next.extend((0..SLEEPERS).filter_map(|sleeper| world.sleeps(sleeper, protocol)));
        if next.is_empty() && world.sleepers != [Sleep::Over; SLEEPERS] {
            return Err("somebody sleeps who has what he waits for");
        }
        for world in next {
            if known.insert(world.clone()) {
                todo.push(world);
            }
        }
    }
    Ok(known.len())
}

#[test]
fn nobody_sleeps_who_has_what_he_waits_for() {
    let worlds = explore(RIGHT).expect("no defect");
    assert!(worlds > 1000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_protocol_of_sleepers_can_be_left_out() {
    let wrong = [
        Protocol { has_own_event: false, ..RIGHT },
        Protocol { rings_all: false, ..RIGHT },
        Protocol { looks_again: false, ..RIGHT },
        Protocol { empties_before_it_looks: false, ..RIGHT },
    ];
    for (number, protocol) in wrong.into_iter().enumerate() {
        assert!(explore(protocol).is_err(), "without part {number}");
    }
}
