//! The scenes, and the exploration of each.
//!
//! With any part of the protocol left out the model must fail in the scene of that part, or it proves nothing.

use std::collections::HashMap;

use super::{NOBODY, Protocol, RIGHT, SLEEPERS, Trial, World};

/// What the program does besides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// It looks whether there is anything: `Domain::progress`.
    Poll,
    /// The same of who was waiting, at peers that are looked at each time, and no further than the first entry.
    Glance,
    /// `Traffic::send`
    Send,
    /// It reads an entry of the queue, once its messages have gone, so that there is a place; and tells: `Cq::read`.
    Room,
}

/// What who closes waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    /// `Traffic::answer`: that the first message has gone.
    Answer,
    /// `Traffic::farewell`: that a stream of his own has ended.
    Farewell,
}

/// What there is to be done.
#[derive(Clone, Copy)]
pub(super) struct Scene {
    pub(super) is_far: bool,
    /// For whom the peer writes entries, of which each takes a place; how many of them its ring holds; the places.
    pub(super) entries: &'static [usize],
    pub(super) ring: u8,
    pub(super) places: u8,
    /// Whose messages go to the peer, and how many were sent before. Our ring holds one, and is full.
    pub(super) sends: &'static [usize],
    pub(super) asked: u8,
    /// The peer reads when all that it has written has been read.
    pub(super) reads_last: bool,
    pub(super) program: &'static [Deed],
    /// After so many entries something begins, and is over at once, for somebody: `Traffic::deferred`.
    pub(super) then: Option<(u8, usize)>,
    /// Completions that each waits for, one after the other.
    pub(super) wanted: [u8; SLEEPERS],
    pub(super) closes: Option<Close>,
    /// Only who closes sleeps, and his stream ends while he does: he has no need to glance, and does not.
    pub(super) is_alone: bool,
}

const NEAR: Scene = Scene {
    is_far: false,
    entries: &[],
    ring: 9,
    places: 9,
    sends: &[],
    asked: 0,
    reads_last: false,
    program: &[],
    then: None,
    wanted: [1, 1],
    closes: None,
    is_alone: false,
};
const FAR: Scene = Scene { is_far: true, ..NEAR };

/// The peer waits for room in its ring, and what is there for places.
const ROOM: Scene = Scene {
    entries: &[0, 1, 0],
    ring: 1,
    places: 1,
    program: &[Deed::Room, Deed::Room],
    wanted: [2, 1],
    ..NEAR
};
/// More comes than is read in a turn.
const TURN: Scene = Scene { entries: &[1, NOBODY, 0], ..NEAR };
/// More comes than one takes who was waiting.
const BURST: Scene = Scene { entries: &[0, 1], program: &[Deed::Glance], ..NEAR };
/// Messages wait for room in our ring, while somebody looks in vain.
const SEND: Scene = Scene { sends: &[0, 1], program: &[Deed::Send, Deed::Poll, Deed::Send], ..NEAR };
/// A message waits for room behind an entry that waits for a place: the peer is left already.
const WORD: Scene =
    Scene { entries: &[0], places: 0, sends: &[1], program: &[Deed::Send, Deed::Room], ..NEAR };
/// More comes than is read in a turn from a peer that is left already, of which is told once.
const EDGE: Scene = Scene {
    entries: &[NOBODY, NOBODY, 1, 0],
    sends: &[0],
    asked: 1,
    reads_last: true,
    program: &[Deed::Poll],
    wanted: [2, 1],
    ..FAR
};
/// What one waits for begins when what another waits for has come.
const THEN: Scene = Scene { entries: &[1], program: &[Deed::Poll], then: Some((1, 0)), ..FAR };
/// An endpoint is closed that owes an answer, and one whose peers are to find what was sent.
const ANSWER: Scene =
    Scene { entries: &[0, 1], sends: &[NOBODY], asked: 1, closes: Some(Close::Answer), ..NEAR };
const FAR_ANSWER: Scene = Scene { is_far: true, program: &[Deed::Poll], ..ANSWER };
const FAREWELL: Scene = Scene { entries: &[0, 1], closes: Some(Close::Farewell), ..NEAR };
const ALONE: Scene =
    Scene { program: &[Deed::Poll], wanted: [0, 0], closes: Some(Close::Farewell), is_alone: true, ..NEAR };

/// Tries everything; how many worlds there are, or what went wrong.
fn explore(scene: Scene, protocol: Protocol) -> Result<usize, &'static str> {
    let trial = Trial { scene, protocol };
    // Whether all that may follow is known, too: what is not is on the way from a glance to here.
    let mut known: HashMap<World, bool> = HashMap::new();
    let mut glances = vec![World::new(&scene)];
    while let Some(first) = glances.pop() {
        let mut way: Vec<(World, Vec<World>)> = Vec::new();
        let mut here = Some(first);
        loop {
            if let Some(world) = here {
                match known.get(&world).copied() {
                    Some(true) => {}
                    Some(false) => return Err("some wake each other for ever"),
                    None => {
                        let next = world.next(&trial);
                        if next.is_empty()
                            && let Some(defect) = world.defect(&trial)
                        {
                            return Err(defect);
                        }
                        known.insert(world, false);
                        glances.extend(world.glances(&trial));
                        way.push((world, next));
                    }
                }
            }
            let Some((world, next)) = way.last_mut() else { break };
            here = next.pop();
            if here.is_none() {
                known.insert(*world, true);
                way.pop();
            }
        }
    }
    Ok(known.len())
}

#[test]
fn nobody_sleeps_while_there_is_something_to_be_done() {
    let scenes = [ROOM, TURN, BURST, SEND, WORD, EDGE, THEN, ANSWER, FAR_ANSWER, FAREWELL, ALONE];
    let explored = scenes.map(|scene| explore(scene, RIGHT));
    assert!(explored.iter().all(Result::is_ok), "{explored:?}");
    let worlds: usize = explored.iter().flatten().sum();
    assert!(worlds > 1_000_000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_protocol_of_a_domain_can_be_left_out() {
    let wrong = [
        (ROOM, Protocol { empties_first: false, ..RIGHT }),
        (SEND, Protocol { says_room: false, ..RIGHT }),
        (ROOM, Protocol { looks_after_it_says: false, ..RIGHT }),
        (TURN, Protocol { stays_armed: false, ..RIGHT }),
        (WORD, Protocol { sleeps_by_what_it_said: false, ..RIGHT }),
        (TURN, Protocol { rouses_for_what_it_leaves: false, ..RIGHT }),
        (ROOM, Protocol { rouses_for_room: false, ..RIGHT }),
        (ROOM, Protocol { notifies: false, ..RIGHT }),
        (SEND, Protocol { rouses_at_first: false, ..RIGHT }),
        (SEND, Protocol { is_quiet_in_vain: false, ..RIGHT }),
        (EDGE, Protocol { rouses_if_moved: false, ..RIGHT }),
        (EDGE, Protocol { rouses_at_last: false, ..RIGHT }),
        (THEN, Protocol { begins_at_last: false, ..RIGHT }),
        (ALONE, Protocol { wakes_closer: false, ..RIGHT }),
        (ANSWER, Protocol { glances: false, ..RIGHT }),
        (FAREWELL, Protocol { glances: false, ..RIGHT }),
        (BURST, Protocol { reads_through: false, ..RIGHT }),
    ];
    for (number, (scene, protocol)) in wrong.into_iter().enumerate() {
        assert!(explore(scene, protocol).is_err(), "without part {number}");
    }
}
