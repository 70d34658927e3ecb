//! The alarm's protocol, tried in every order that the memory allows.
//!
//! Two writers, who each write a few entries and ring where the word says so, and a sleeper, as lists of steps over a
//! memory in which each word keeps all that was ever stored there, and each side has a view: which store of each word is
//! the oldest that it may still see. A load may return any store from there on, an exchange takes the last one. A
//! barrier, of either half, has its side see all that was seen before any barrier before it. Nothing else carries a
//! view. The pipe is the kernel's: what is written is there at once. It is a defect when the sleeper sleeps, the pipe is
//! empty, nobody writes any more, and not everything was seen that somebody has written who has done what belongs to it.
//!
//! One of the writers may stop for ever, between two of its steps: it is killed, or a debugger has it. What it has begun and not
//! ended wakes nobody, but it keeps nobody from being woken by the other. Of its end itself the sleeper hears elsewhere, if at all.
//!
//! With any part of the protocol left out the model must fail, or it proves nothing.

use std::collections::HashSet;

const WRITERS: usize = 2;
/// Entries of each writer.
const ENTRIES: u8 = 2;
/// Words: what each writer has written, and whether the sleeper sleeps.
const SLEEPS: usize = WRITERS;
const WORDS: usize = WRITERS + 1;
const SLEEPER: usize = WRITERS;

type View = [u8; WORDS];

/// Where a writer is in writing an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
    Entry,
    Barrier,
    Look,
    /// By this word the sleeper sleeps.
    Ring(u8),
    Take(u8),
}

/// Bit of the word: the sleeper sleeps. Above it is the number of the sleep.
const ASLEEP: u8 = 1;
const NUMBER: u8 = 2;

/// Where the sleeper is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sleep {
    Empty,
    Say,
    Barrier,
    Look(usize),
    Asleep,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    memory: [Vec<u8>; WORDS],
    views: [View; WRITERS + 1],
    /// What was seen before any barrier.
    barrier: View,
    /// What has been rung and not been taken out of the pipe.
    pipe: bool,
    writers: [(u8, Write); WRITERS],
    /// Who goes on no more.
    stopped: Option<usize>,
    sleeper: Sleep,
    /// Entries that the sleeper has seen, and whether there was a new one in this turn.
    seen: [u8; WRITERS],
    is_new: bool,
}

/// What is done of the protocol.
#[derive(Clone, Copy)]
struct Protocol {
    writers_have_barriers: bool,
    sleeper_has_barrier: bool,
    empties_first: bool,
    looks_again: bool,
    rings: bool,
    rings_first: bool,
    /// Sleeps have numbers.
    counts: bool,
}

const RIGHT: Protocol = Protocol {
    writers_have_barriers: true,
    sleeper_has_barrier: true,
    empties_first: true,
    looks_again: true,
    rings: true,
    rings_first: true,
    counts: true,
};

impl World {
    fn new() -> Self {
        Self {
            memory: std::array::from_fn(|_| vec![0]),
            views: [[0; WORDS]; WRITERS + 1],
            barrier: [0; WORDS],
            pipe: false,
            writers: [(0, Write::Entry); WRITERS],
            stopped: None,
            sleeper: Sleep::Empty,
            seen: [0; WRITERS],
            is_new: false,
        }
    }

    fn store(&mut self, side: usize, word: usize, value: u8) {
        self.views[side][word] = self.memory[word].len() as u8;
        self.memory[word].push(value);
    }

    /// Forgets stores that nobody can see any more, so that worlds are the same that differ in nothing else.
    fn forget(mut self) -> Self {
        let goes_on = |side: &usize| {
            *side == SLEEPER || self.stopped != Some(*side) && self.writers[*side].0 != ENTRIES
        };
        let gone: Vec<usize> = (0..=WRITERS).filter(|side| !goes_on(side)).collect();
        for side in gone {
            self.views[side] = std::array::from_fn(|word| self.memory[word].len() as u8 - 1);
        }
        for word in 0..WORDS {
            let oldest = self.views.iter().map(|view| view[word]).min().unwrap_or(0);
            self.memory[word].drain(..usize::from(oldest));
            self.views.iter_mut().for_each(|view| view[word] -= oldest);
            self.barrier[word] = self.barrier[word].saturating_sub(oldest);
        }
        self
    }

    /// An exchange that fails has seen the last store.
    fn see_last(&mut self, side: usize, word: usize) {
        self.views[side][word] = self.memory[word].len() as u8 - 1;
    }

    /// Everything that a load may return, with the world after it.
    fn load(&self, side: usize, word: usize) -> Vec<(u8, Self)> {
        let oldest = usize::from(self.views[side][word]);
        let seen = |place: usize| {
            let mut after = self.clone();
            after.views[side][word] = place as u8;
            (self.memory[word][place], after)
        };
        (oldest..self.memory[word].len()).map(seen).collect()
    }

    fn pass_barrier(&mut self, side: usize) {
        let Self { views, barrier, .. } = self;
        for (own, all) in views[side].iter_mut().zip(barrier) {
            *all = (*all).max(*own);
            *own = *all;
        }
    }

    /// What a writer may do next.
    fn write(&self, writer: usize, protocol: Protocol) -> Vec<Self> {
        let (entry, step) = self.writers[writer];
        if entry == ENTRIES || self.stopped == Some(writer) {
            return Vec::new();
        }
        let mut after = self.clone();
        let is_over = (entry + 1, Write::Entry);
        let next = match step {
            Write::Entry => {
                after.store(writer, writer, entry + 1);
                (entry, Write::Barrier)
            }
            Write::Barrier => {
                if protocol.writers_have_barriers {
                    after.pass_barrier(writer);
                }
                (entry, Write::Look)
            }
            Write::Look => {
                let loads = self.load(writer, SLEEPS).into_iter();
                let looked = loads.map(|(sleeps, mut after)| {
                    after.writers[writer] = match (sleeps & ASLEEP != 0, protocol.rings_first) {
                        (false, _) => is_over,
                        (true, true) => (entry, Write::Ring(sleeps)),
                        (true, false) => (entry, Write::Take(sleeps)),
                    };
                    after
                });
                return looked.collect();
            }
            Write::Ring(word) => {
                after.pipe |= protocol.rings;
                if protocol.rings_first { (entry, Write::Take(word)) } else { is_over }
            }
            Write::Take(word) => {
                let is_taken = self.memory[SLEEPS].last() == Some(&word);
                if is_taken {
                    after.store(writer, SLEEPS, word & !ASLEEP);
                } else {
                    after.see_last(writer, SLEEPS);
                }
                if is_taken && !protocol.rings_first { (entry, Write::Ring(word)) } else { is_over }
            }
        };
        after.writers[writer] = next;
        vec![after]
    }

    /// A writer stops, where none has.
    fn stop(&self, writer: usize) -> Option<Self> {
        // Before an entry that is to have fewer of them.
        let may = self.stopped.is_none() && self.writers[writer].1 != Write::Entry;
        may.then(|| Self { stopped: Some(writer), ..self.clone() })
    }

    /// What the sleeper may do next.
    fn sleep(&self, protocol: Protocol) -> Vec<Self> {
        let mut after = self.clone();
        after.sleeper = match self.sleeper {
            Sleep::Empty => {
                after.pipe = false;
                if protocol.empties_first { Sleep::Say } else { Sleep::Barrier }
            }
            Sleep::Say => {
                let last = self.memory[SLEEPS].last().map_or(0, |word| word & !ASLEEP);
                after.store(SLEEPER, SLEEPS, ASLEEP | if protocol.counts { last + NUMBER } else { 0 });
                if protocol.empties_first { Sleep::Barrier } else { Sleep::Empty }
            }
            Sleep::Barrier => {
                if protocol.sleeper_has_barrier {
                    after.pass_barrier(SLEEPER);
                }
                after.is_new = false;
                if protocol.looks_again { Sleep::Look(0) } else { Sleep::Asleep }
            }
            Sleep::Look(writer) => {
                let loads = self.load(SLEEPER, writer).into_iter();
                let looked = loads.map(|(entries, mut after)| {
                    after.is_new |= entries != after.seen[writer];
                    after.seen[writer] = entries;
                    after.sleeper = match (writer + 1 == WRITERS, after.is_new) {
                        (false, _) => Sleep::Look(writer + 1),
                        (true, true) => Self::begin(protocol),
                        (true, false) => Sleep::Asleep,
                    };
                    after
                });
                return looked.collect();
            }
            Sleep::Asleep if self.pipe => Self::begin(protocol),
            Sleep::Asleep => return Vec::new(),
        };
        vec![after]
    }

    fn begin(protocol: Protocol) -> Sleep {
        if protocol.empties_first { Sleep::Empty } else { Sleep::Say }
    }
}

/// Tries everything; how many worlds there are, or what went wrong.
fn explore(protocol: Protocol) -> Result<usize, &'static str> {
    let mut first = World::new();
    first.sleeper = World::begin(protocol);
    let mut known = HashSet::from([first.clone()]);
    let mut todo = vec![first];
    let mut ends = false;
    while let Some(world) = todo.pop() {
        let mut next = world.sleep(protocol);
        (0..WRITERS).for_each(|writer| next.extend(world.write(writer, protocol)));
        if next.is_empty() {
            if (0..WRITERS).any(|writer| world.seen[writer] < world.writers[writer].0) {
                return Err("what was written is never seen");
            }
            ends = true;
        }
        next.extend((0..WRITERS).filter_map(|writer| world.stop(writer)));
        for world in next.into_iter().map(World::forget) {
            if known.insert(world.clone()) {
                todo.push(world);
            }
        }
    }
    if ends { Ok(known.len()) } else { Err("nobody ever sleeps") }
}

#[test]
fn nobody_sleeps_while_there_is_something_unseen() {
    let worlds = explore(RIGHT).expect("no defect");
    assert!(worlds > 1000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_protocol_can_be_left_out() {
    let wrong = [
        Protocol { writers_have_barriers: false, ..RIGHT },
        Protocol { sleeper_has_barrier: false, ..RIGHT },
        Protocol { empties_first: false, ..RIGHT },
        Protocol { looks_again: false, ..RIGHT },
        Protocol { rings: false, ..RIGHT },
        Protocol { rings_first: false, ..RIGHT },
        Protocol { counts: false, ..RIGHT },
    ];
    for (number, protocol) in wrong.into_iter().enumerate() {
        assert!(explore(protocol).is_err(), "without part {number}");
    }
}
