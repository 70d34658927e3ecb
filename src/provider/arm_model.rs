//! Several threads that sleep by what a domain has to be done ([`Traffic::arm`](super::traffic::Traffic::arm)), tried in every
//! order of their steps.
//!
//! Each sleeper waits for completions of his own, which anybody who makes progress may put. What is to be done comes from a peer,
//! who writes an entry, looks at the word of the alarm and rings its pipe; or it is there when somebody in this process makes
//! room, who rouses. All sleep on the one pipe, which who arms empties; who was woken and has not looked yet sleeps on then. One
//! thread at a time is in the domain. What the memory may do with the word and the entries is tried in
//! `src/shm/alarm_model.rs`, and what one queue says to its own sleepers in `wait_model`; here steps are whole, and all see them
//! in one order. It is a defect when nobody can do anything any more and somebody sleeps.
//!
//! With any part of the protocol left out the model must fail, or it proves nothing.

use std::collections::HashSet;

const SLEEPERS: usize = 2;
/// For whom a peer writes entries, and for whom room is made.
const ENTRIES: [usize; 2] = [0, 1];
const ROOM: [usize; 2] = [0, 1];
/// Completions that each waits for, one after the other.
const WANTED: [u8; SLEEPERS] = [2, 2];

/// Where a sleeper is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sleep {
    Progress,
    Look(Then),
    /// `Wait::arm`
    ArmOwn,
    /// `Traffic::arm`, in the domain.
    Empty,
    Say,
    LookAll,
    /// Whether anything moved.
    Leave(bool),
    Asleep,
    Over,
}

/// What follows when nothing is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Then {
    Arm,
    Again,
    Sleep,
}

/// Where a peer is with the entry that it writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Write {
    Entry,
    Look,
    Ring,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// What is to be done, by whose completion it is, and what has been put and not taken.
    due: [u8; SLEEPERS],
    put: [u8; SLEEPERS],
    taken: [u8; SLEEPERS],
    /// The word of the alarm, and its pipe.
    says_it_sleeps: bool,
    pipe: bool,
    /// `Traffic::is_armed`, and who is in there.
    is_armed: bool,
    inside: Option<usize>,
    /// The wait of each queue, and its sleeper's event.
    waits: [bool; SLEEPERS],
    events: [bool; SLEEPERS],
    sleepers: [Sleep; SLEEPERS],
    /// Entries that were written, and room that was made; whether that is to be told yet.
    entries: (usize, Write),
    room: (usize, bool),
}

/// What is done of the protocol.
#[derive(Clone, Copy)]
struct Protocol {
    empties_first: bool,
    looks_after_it_says: bool,
    stays_armed: bool,
    rouses: bool,
    notifies: bool,
}

const RIGHT: Protocol = Protocol {
    empties_first: true,
    looks_after_it_says: true,
    stays_armed: true,
    rouses: true,
    notifies: true,
};

impl World {
    fn new() -> Self {
        Self {
            due: [0; SLEEPERS],
            put: [0; SLEEPERS],
            taken: [0; SLEEPERS],
            says_it_sleeps: false,
            pipe: false,
            is_armed: false,
            inside: None,
            waits: [false; SLEEPERS],
            events: [false; SLEEPERS],
            sleepers: [Sleep::Progress; SLEEPERS],
            entries: (0, Write::Entry),
            room: (0, false),
        }
    }

    /// Does what is to be done; whether there was anything.
    fn progress(&mut self, protocol: Protocol) -> bool {
        let due = std::mem::take(&mut self.due);
        for (of, count) in due.into_iter().enumerate().filter(|(_, count)| *count != 0) {
            self.put[of] += count;
            if protocol.notifies && std::mem::take(&mut self.waits[of]) {
                self.events[of] = true;
            }
        }
        due != [0; SLEEPERS]
    }

    /// A peer writes its entries.
    fn writes(&self) -> Option<Self> {
        let mut after = self.clone();
        let (number, step) = self.entries;
        after.entries = match step {
            Write::Entry => {
                after.due[*ENTRIES.get(number)?] += 1;
                (number, Write::Look)
            }
            Write::Look if std::mem::take(&mut after.says_it_sleeps) => (number, Write::Ring),
            Write::Look => (number + 1, Write::Entry),
            Write::Ring => {
                after.pipe = true;
                (number + 1, Write::Entry)
            }
        };
        Some(after)
    }

    /// Somebody makes room, and rouses.
    fn makes_room(&self, protocol: Protocol) -> Option<Self> {
        let mut after = self.clone();
        let (number, is_made) = self.room;
        after.room = if is_made {
            if self.inside.is_some() {
                return None;
            }
            if protocol.rouses && std::mem::take(&mut after.is_armed) {
                after.pipe = true;
            }
            (number + 1, false)
        } else {
            after.due[*ROOM.get(number)?] += 1;
            (number, true)
        };
        Some(after)
    }

    /// What a sleeper does next.
    fn sleeps(&self, sleeper: usize, protocol: Protocol) -> Option<Self> {
        let mut after = self.clone();
        after.sleepers[sleeper] = match self.sleepers[sleeper] {
            Sleep::Progress | Sleep::Empty if self.inside.is_some() => return None,
            Sleep::Progress => {
                after.progress(protocol);
                Sleep::Look(Then::Arm)
            }
            Sleep::Look(_) if self.put[sleeper] != 0 => {
                after.put[sleeper] -= 1;
                after.taken[sleeper] += 1;
                if after.taken[sleeper] == WANTED[sleeper] { Sleep::Over } else { Sleep::Progress }
            }
            Sleep::Look(Then::Arm) => Sleep::ArmOwn,
            Sleep::Look(Then::Again) => Sleep::Progress,
            Sleep::Look(Then::Sleep) => Sleep::Asleep,
            Sleep::ArmOwn => {
                (after.events[sleeper], after.waits[sleeper]) = (false, true);
                Sleep::Empty
            }
            Sleep::Empty => {
                after.inside = Some(sleeper);
                after.pipe &= !protocol.empties_first;
                Sleep::Say
            }
            Sleep::Say => {
                after.says_it_sleeps = true;
                Sleep::LookAll
            }
            Sleep::LookAll => {
                let has_moved = protocol.looks_after_it_says && after.progress(protocol);
                Sleep::Leave(has_moved)
            }
            Sleep::Leave(has_moved) => {
                after.inside = None;
                after.pipe &= protocol.empties_first;
                after.is_armed |= protocol.stays_armed || !has_moved;
                match has_moved {
                    true => Sleep::Look(Then::Again),
                    false => Sleep::Look(Then::Sleep),
                }
            }
            Sleep::Asleep if self.events[sleeper] || self.pipe => Sleep::Progress,
            Sleep::Asleep | Sleep::Over => return None,
        };
        Some(after)
    }
}

/// Tries everything; how many worlds there are, or what went wrong.
fn explore(protocol: Protocol) -> Result<usize, &'static str> {
    let mut known = HashSet::from([World::new()]);
    let mut todo = vec![World::new()];
    while let Some(world) = todo.pop() {
        let mut next: Vec<World> = world.writes().into_iter().chain(world.makes_room(protocol)).collect();
        next.extend((0..SLEEPERS).filter_map(|sleeper| world.sleeps(sleeper, protocol)));
        if next.is_empty() && world.sleepers != [Sleep::Over; SLEEPERS] {
            return Err("somebody sleeps while there is something to be done");
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
fn nobody_sleeps_while_there_is_something_to_be_done() {
    let worlds = explore(RIGHT).expect("no defect");
    assert!(worlds > 100_000, "{worlds} worlds");
}

#[test]
fn no_part_of_the_protocol_of_a_domain_can_be_left_out() {
    let wrong = [
        Protocol { empties_first: false, ..RIGHT },
        Protocol { looks_after_it_says: false, ..RIGHT },
        Protocol { stays_armed: false, ..RIGHT },
        Protocol { rouses: false, ..RIGHT },
        Protocol { notifies: false, ..RIGHT },
    ];
    for (number, protocol) in wrong.into_iter().enumerate() {
        assert!(explore(protocol).is_err(), "without part {number}");
    }
}
