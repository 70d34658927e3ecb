//! The ring's protocol, tried in every order that the memory allows.
//!
//! A ring of three cells, its writer and its reader, as two lists of steps over a memory with the rules of
//! release and acquire: each word keeps all that was ever stored there, each side has a view, that is, which
//! store of each word is the oldest that it may still see; a load may return any store from there on. A store with
//! release carries the view of its writer, and a load with acquire that sees it takes that view over. All
//! interleavings and all choices of loads are tried. It is a defect when payload is read while anything but what was
//! written for this entry may be seen, when it is written over while it may still be read, and when an entry is
//! taken twice or not in order.
//!
//! The orderings are those of `ring::order`; with any of them weaker, the model must fail, or it proves nothing.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::ring::order;

/// Cells of the ring: each has a header and a payload. One is always empty.
const CELLS: usize = 3;
/// Entries that go through it, enough to use every cell twice.
const ENTRIES: u8 = 8;

/// Words: headers, payloads, and how far the reader has come.
const READ: usize = 2 * CELLS;
/// No word of the ring: how many payloads have been read. Who is to write over one must be known to come after.
const CLOCK: usize = READ + 1;
const WORDS: usize = CLOCK + 1;

fn header(entry: u8) -> usize {
    usize::from(entry) % CELLS
}

fn payload(entry: u8) -> usize {
    CELLS + header(entry)
}

/// The oldest store of each word that a side may still see.
type View = [u8; WORDS];

#[derive(Clone, PartialEq, Eq, Hash)]
struct Store {
    value: u8,
    /// What who loads it with acquire has seen then.
    view: Option<View>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    memory: [Vec<Store>; WORDS],
    views: [View; 2],
    /// The writer: the entry that it writes, and the step of it; how far it knows the reader to be.
    writes: (u8, u8),
    read: u8,
    /// The reader: the entry that it waits for, and the step of it.
    reads: (u8, u8),
}

#[derive(Clone, Copy)]
struct Orders {
    publish: Ordering,
    take: Ordering,
    free: Ordering,
    reuse: Ordering,
    /// Cells that are asked for: of the entry, and of the empty header behind it.
    room: usize,
}

const RIGHT: Orders =
    Orders { publish: order::PUBLISH, take: order::TAKE, free: order::FREE, reuse: order::REUSE, room: 2 };

const WRITER: usize = 0;
const READER: usize = 1;

impl World {
    fn new() -> Self {
        let zero = || vec![Store { value: 0, view: None }];
        Self {
            memory: std::array::from_fn(|_| zero()),
            views: [[0; WORDS]; 2],
            writes: (0, 0),
            read: 0,
            reads: (0, 0),
        }
    }

    fn store(&mut self, side: usize, word: usize, value: u8, order: Ordering) {
        let place = self.memory[word].len() as u8;
        self.views[side][word] = place;
        let view = (order == Ordering::Release).then_some(self.views[side]);
        self.memory[word].push(Store { value, view });
    }

    /// Everything that a load may return, with the world after it.
    fn load(&self, side: usize, word: usize, order: Ordering) -> Vec<(u8, Self)> {
        let oldest = usize::from(self.views[side][word]);
        let seen = |place: usize| {
            let mut after = self.clone();
            let store = &self.memory[word][place];
            let view = &mut after.views[side];
            view[word] = place as u8;
            if let (Ordering::Acquire, Some(carried)) = (order, store.view) {
                view.iter_mut().zip(carried).for_each(|(own, carried)| *own = carried.max(*own));
            }
            (store.value, after)
        };
        (oldest..self.memory[word].len()).map(seen).collect()
    }

    /// What the writer may do next. Payload and header of an entry say its number, from 1 on.
    fn write(&self, orders: Orders) -> Result<Vec<Self>, &'static str> {
        let (entry, step) = self.writes;
        if entry == ENTRIES {
            return Ok(Vec::new());
        }
        let mut after = self.clone();
        match step {
            // Room for it, and for the empty header behind it.
            0 if usize::from(entry) + orders.room > usize::from(self.read) + CELLS => {
                let loads = self.load(WRITER, READ, orders.reuse).into_iter();
                return Ok(loads.map(|(read, after)| Self { read, ..after }).collect());
            }
            0 => after.writes.1 = 1,
            1 => {
                let clock = self.memory[CLOCK][usize::from(self.views[WRITER][CLOCK])].value;
                if usize::from(entry) + 1 >= CELLS + usize::from(clock) {
                    return Err("an empty header is written over what may still be read");
                }
                after.store(WRITER, header(entry + 1), 0, Ordering::Relaxed);
                after.writes.1 = 2;
            }
            2 => {
                let clock = self.memory[CLOCK][usize::from(self.views[WRITER][CLOCK])].value;
                if usize::from(entry) >= CELLS + usize::from(clock) {
                    return Err("a payload is written over that may still be read");
                }
                after.store(WRITER, payload(entry), entry + 1, Ordering::Relaxed);
                after.writes.1 = 3;
            }
            _ => {
                after.store(WRITER, header(entry), entry + 1, orders.publish);
                after.writes = (entry + 1, 0);
            }
        }
        Ok(vec![after])
    }

    /// What the reader may do next; `Err` when it sees what it must not.
    fn read(&self, orders: Orders) -> Result<Vec<Self>, &'static str> {
        let (entry, step) = self.reads;
        if entry == ENTRIES {
            return Ok(Vec::new());
        }
        match step {
            0 => {
                let mut found = Vec::new();
                for (value, mut after) in self.load(READER, header(entry), orders.take) {
                    if value != 0 {
                        if value != entry + 1 {
                            return Err("a header of another entry");
                        }
                        after.reads.1 = 1;
                    }
                    found.push(after);
                }
                Ok(found)
            }
            1 => {
                let mut found = Vec::new();
                for (value, mut after) in self.load(READER, payload(entry), Ordering::Relaxed) {
                    if value != entry + 1 {
                        return Err("the payload of another entry");
                    }
                    after.store(READER, CLOCK, entry + 1, Ordering::Relaxed);
                    after.reads.1 = 2;
                    found.push(after);
                }
                Ok(found)
            }
            _ => {
                let mut after = self.clone();
                after.store(READER, READ, entry + 1, orders.free);
                after.reads = (entry + 1, 0);
                Ok(vec![after])
            }
        }
    }
}

/// Tries everything. Returns how many worlds there are, or what went wrong; stopping short of the end is wrong
/// too.
fn explore(orders: Orders) -> Result<usize, &'static str> {
    let mut known = HashSet::from([World::new()]);
    let mut todo = vec![World::new()];
    let mut ends = false;
    while let Some(world) = todo.pop() {
        ends |= world.reads.0 == ENTRIES;
        for next in world.write(orders)?.into_iter().chain(world.read(orders)?) {
            if known.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    if ends { Ok(known.len()) } else { Err("the last entry never arrives") }
}

#[test]
fn the_orderings_of_the_ring_are_enough() {
    let worlds = explore(RIGHT).expect("no defect");
    assert!(worlds > 200, "{worlds} worlds");
}

#[test]
fn a_header_that_is_published_or_taken_without_order_is_a_defect() {
    assert!(explore(Orders { publish: Ordering::Relaxed, ..RIGHT }).is_err());
    assert!(explore(Orders { take: Ordering::Relaxed, ..RIGHT }).is_err());
}

#[test]
fn room_that_is_given_or_taken_without_order_is_a_defect() {
    assert!(explore(Orders { free: Ordering::Relaxed, ..RIGHT }).is_err());
    assert!(explore(Orders { reuse: Ordering::Relaxed, ..RIGHT }).is_err());
}

#[test]
fn there_must_be_room_for_the_empty_header() {
    assert!(explore(Orders { room: 1, ..RIGHT }).is_err());
}
