//! What a place of a table goes through, tried in every order that the memory allows.
//!
//! One place, two writers and a reader, as lists of steps over a memory with the rules of release and acquire: each word keeps
//! all that was ever stored there, each side has a view, that is, which store of each word is the oldest that it may
//! still see; a load may return any store from there on, an exchange takes the last one. A store carries a view: with release,
//! or by an exchange that goes on from one that does, that of its writer; otherwise that of its writer's last barrier. A load
//! with acquire takes over what the store carries, another one has it ready for the next barrier. It is a defect when the reader takes for an entry what is not all of one, or is
//! not that of the state it has seen, and when a writer's words are not known to come after those that were there.
//!
//! The orderings are those of `table::order`; with any of them weaker, or a barrier less, the model must fail, or it proves
//! nothing.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::table::order;

const STATE: usize = 0;
/// The words of an entry.
const ENTRY: [usize; 2] = [1, 2];
const WORDS: usize = 3;
const READER: usize = 2;

/// What both writers do, one after the other: put this entry there, or remove whatever is there.
type Scripts = [&'static [Deed]; 2];

/// Who removes is another than who has put it there, or the same.
const SCRIPTS: [Scripts; 2] = [
    [&[Deed::Insert(1), Deed::Remove, Deed::Insert(3)], &[Deed::Remove, Deed::Insert(2)]],
    [&[Deed::Insert(1), Deed::Remove], &[Deed::Insert(2), Deed::Remove]],
];

#[derive(Clone, Copy)]
enum Deed {
    Insert(u8),
    Remove,
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const THERE: u8 = 2;

/// The state of a place that was used so often before.
fn state(generation: u8, phase: u8) -> u8 {
    generation * 3 + phase
}

type View = [u8; WORDS];

fn join(view: &mut View, other: &View) {
    view.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Side {
    view: View,
    /// The view at the last barrier with release, and what the next with acquire adds.
    released: View,
    ready: View,
    /// Which deed, which step of it, and what was seen before.
    deed: u8,
    step: u8,
    seen: u8,
    entry: [u8; 2],
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// Each store, and the view that it carries.
    memory: [Vec<(u8, View)>; WORDS],
    sides: [Side; 3],
    /// What was put there, by how often the place was used before.
    entries: [u8; 4],
}

#[derive(Clone, Copy)]
struct Protocol {
    take: Ordering,
    publish: Ordering,
    withdraw: Ordering,
    free: Ordering,
    barrier_before_words: bool,
    barrier_after_state: bool,
    barrier_after_words: bool,
}

const RIGHT: Protocol = Protocol {
    take: order::TAKE,
    publish: order::PUBLISH,
    withdraw: order::WITHDRAW,
    free: order::FREE,
    barrier_before_words: true,
    barrier_after_state: true,
    barrier_after_words: true,
};

impl World {
    fn new() -> Self {
        let zero = || vec![(0, [0; WORDS])];
        Self { memory: [zero(), zero(), zero()], sides: Default::default(), entries: [0; 4] }
    }

    fn store(&mut self, side: usize, word: usize, value: u8, order: Ordering) {
        let own = &mut self.sides[side];
        own.view[word] = self.memory[word].len() as u8;
        let carried = if order == Ordering::Release { own.view } else { own.released };
        self.memory[word].push((value, carried));
    }

    /// Everything that a load may return, with the world after it.
    fn load(&self, side: usize, word: usize) -> impl Iterator<Item = (u8, Self)> {
        let oldest = usize::from(self.sides[side].view[word]);
        (oldest..self.memory[word].len()).map(move |place| {
            let mut after = self.clone();
            let (value, carried) = self.memory[word][place];
            after.sides[side].view[word] = place as u8;
            join(&mut after.sides[side].ready, &carried);
            (value, after)
        })
    }

    /// Exchanges what was seen for a value; whether it was there still.
    fn exchange(&mut self, side: usize, value: u8, order: Ordering) -> bool {
        let Some(&(last, carried)) = self.memory[STATE].last() else { return false };
        if last != self.sides[side].seen {
            return false;
        }
        if order == Ordering::Acquire {
            join(&mut self.sides[side].view, &carried);
        }
        self.store(side, STATE, value, Ordering::Relaxed);
        if let Some((_, further)) = self.memory[STATE].last_mut() {
            join(further, &carried);
        }
        true
    }

    fn at(mut self, side: usize, step: u8) -> Self {
        self.sides[side].step = step;
        self
    }

    fn done(mut self, side: usize) -> Self {
        self.sides[side].deed += 1;
        self.at(side, 0)
    }

    /// Looks until the place is in that phase.
    fn look(&self, side: usize, phase: u8) -> Vec<Self> {
        let loads = self.load(side, STATE).filter(|(value, _)| value % 3 == phase);
        let looked = loads.map(|(value, mut after)| {
            after.sides[side].seen = value;
            after.at(side, 1)
        });
        looked.collect()
    }

    /// What a writer may do next.
    fn write(&self, side: usize, deeds: &[Deed], protocol: Protocol) -> Result<Vec<Self>, &'static str> {
        let Side { deed, step, seen, view, .. } = self.sides[side];
        let Some(deed) = deeds.get(usize::from(deed)) else { return Ok(Vec::new()) };
        let (mut after, generation) = (self.clone(), seen / 3);
        Ok(vec![match (deed, step) {
            (Deed::Insert(_), 0) => return Ok(self.look(side, FREE)),
            (Deed::Insert(entry), 1) => {
                if after.exchange(side, state(generation, TAKEN), protocol.take) {
                    after.entries[usize::from(generation)] = *entry;
                    after.at(side, 2)
                } else {
                    after.at(side, 0)
                }
            }
            (Deed::Insert(_), 2) => {
                if protocol.barrier_before_words {
                    after.sides[side].released = view;
                }
                after.at(side, 3)
            }
            (Deed::Insert(entry), 3 | 4) => {
                let word = ENTRY[usize::from(step - 3)];
                if usize::from(view[word]) + 1 != self.memory[word].len() {
                    return Err("words may lie under those that were there before");
                }
                after.store(side, word, *entry, Ordering::Relaxed);
                after.at(side, step + 1)
            }
            (Deed::Insert(_), _) => {
                after.store(side, STATE, state(generation, THERE), protocol.publish);
                after.done(side)
            }
            (Deed::Remove, 0) => return Ok(self.look(side, THERE)),
            (Deed::Remove, 1) => {
                let is_ours = after.exchange(side, state(generation, TAKEN), protocol.withdraw);
                after.at(side, if is_ours { 2 } else { 0 })
            }
            (Deed::Remove, _) => {
                after.store(side, STATE, state(generation + 1, FREE), protocol.free);
                after.done(side)
            }
        }])
    }

    fn pass_barrier(&mut self, is_there: bool) {
        let Side { view, ready, .. } = &mut self.sides[READER];
        if is_there {
            join(view, ready);
        }
    }

    /// What the reader may do next.
    fn read(&self, protocol: Protocol) -> Result<Vec<Self>, &'static str> {
        let Side { step, seen, entry, .. } = self.sides[READER];
        let mut after = self.clone();
        Ok(match step {
            0 => self.look(READER, THERE),
            1 => {
                after.pass_barrier(protocol.barrier_after_state);
                vec![after.at(READER, 2)]
            }
            2 | 3 => {
                let word = usize::from(step - 2);
                let loads = self.load(READER, ENTRY[word]).map(|(value, mut after)| {
                    after.sides[READER].entry[word] = value;
                    after.at(READER, step + 1)
                });
                loads.collect()
            }
            4 => {
                after.pass_barrier(protocol.barrier_after_words);
                vec![after.at(READER, 5)]
            }
            5 => {
                let is_same = self.load(READER, STATE).any(|(value, _)| value == seen);
                if is_same && entry != [self.entries[usize::from(seen / 3)]; 2] {
                    return Err("what was read is no entry");
                }
                vec![after.at(READER, 6)]
            }
            _ => Vec::new(),
        })
    }
}

/// Tries everything; how many worlds there are, or what went wrong.
fn explore(protocol: Protocol) -> Result<usize, &'static str> {
    SCRIPTS.iter().map(|scripts| explore_scripts(scripts, protocol)).sum()
}

fn explore_scripts(scripts: &Scripts, protocol: Protocol) -> Result<usize, &'static str> {
    let first = World::new();
    let mut known = HashSet::from([first.clone()]);
    let mut todo = vec![first];
    let mut ends = 0;
    while let Some(world) = todo.pop() {
        let mut next = world.read(protocol)?;
        for (side, deeds) in scripts.iter().enumerate() {
            next.extend(world.write(side, deeds, protocol)?);
        }
        let is_done = |(side, deeds): (usize, &&[Deed])| usize::from(world.sides[side].deed) == deeds.len();
        let all_done = scripts.iter().enumerate().all(is_done);
        if all_done && world.sides[READER].step == 6 {
            ends += 1;
        }
        for world in next {
            if known.insert(world.clone()) {
                todo.push(world);
            }
        }
    }
    if ends > 0 { Ok(known.len()) } else { Err("nobody comes to an end") }
}

#[test]
fn readers_find_whole_entries_or_none() {
    let worlds = explore(RIGHT).expect("no defect");
    assert!(worlds > 1000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_protocol_can_be_left_out() {
    let wrong = [
        Protocol { take: Ordering::Relaxed, ..RIGHT },
        Protocol { publish: Ordering::Relaxed, ..RIGHT },
        Protocol { withdraw: Ordering::Relaxed, ..RIGHT },
        Protocol { free: Ordering::Relaxed, ..RIGHT },
        Protocol { barrier_before_words: false, ..RIGHT },
        Protocol { barrier_after_state: false, ..RIGHT },
        Protocol { barrier_after_words: false, ..RIGHT },
    ];
    for (number, protocol) in wrong.into_iter().enumerate() {
        assert!(explore(protocol).is_err(), "without part {number}");
    }
}
