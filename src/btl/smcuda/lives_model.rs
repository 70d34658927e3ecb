//! Processes whose lives begin and end in any order, nobody waiting for anybody: what is sent to a life is received by
//! it, in order and once, if it goes on long enough.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::component::Smcuda;
use super::state::{PATIENCE, State};
use super::strangers::REST;
use super::tests::{Silent, Told, door, fragment, life_of};
use crate::btl::{EndpointId, Transport};
use crate::link::Clock;
use crate::shm::Door;

const PROCESSES: usize = 4;
/// Passes within which doors are looked at for certain.
const LONG: usize = 600;

/// Something that was sent: its number, and for which life of the receiver.
struct Sent {
    number: u64,
    due: u32,
    /// Its sender has ended before that life had begun, or has not been heard of: nobody can read it any more.
    is_gone: bool,
}

struct Process {
    door: Arc<Door>,
    life: Option<Smcuda>,
    /// How many lives have begun.
    lives: u32,
    known: [Option<EndpointId>; PROCESSES],
    /// Those that the host has closed, and not met again.
    shut: [bool; PROCESSES],
    /// Of these, those that have met this one again meanwhile.
    wanted: [bool; PROCESSES],
    told: Told,
}

impl Process {
    /// Whether a peer has yet to find what this one has written.
    fn is_unheard(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.state.with(State::is_unheard))
    }

    /// What has found no room until a peer was closed.
    fn failed(&self) -> HashSet<u64> {
        let over = self.told.done.take().into_iter();
        over.filter(|(_, outcome)| outcome.is_err()).map(|(number, _)| number).collect()
    }
}

/// All processes, and what is on its way, by sender, its life and the receiver.
struct Model {
    processes: Vec<Process>,
    sent: HashMap<(usize, u32, usize), VecDeque<Sent>>,
    next: u64,
    random: u64,
    delivered: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let process = || Process {
            door: door(),
            life: None,
            lives: 0,
            known: [None; PROCESSES],
            shut: [false; PROCESSES],
            wanted: [false; PROCESSES],
            told: Told::default(),
        };
        Self {
            processes: (0..PROCESSES).map(|_| process()).collect(),
            sent: HashMap::new(),
            next: 0,
            random: seed,
            delivered: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % bound
    }

    fn begin(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.life.is_none() {
            let life = life_of(index as u64 + 1, &process.door);
            let record = life.record().to_bytes();
            process.life = Some(life);
            process.lives += 1;
            for other in &self.processes {
                other.told.records.borrow_mut().insert(index as u64 + 1, record.clone());
            }
        }
    }

    /// What a process makes of its passes: everything that arrives was sent to it, and nothing was left out that is due.
    fn passes(&mut self, index: usize, count: usize) {
        let process = &self.processes[index];
        let Some(life) = &process.life else { return };
        for _ in 0..count {
            life.progress(&process.told);
        }
        let present = process.lives;
        for (_, bytes) in process.told.delivered.take() {
            let [from, of_life, number] =
                [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a number")));
            let sent = self.sent.get_mut(&(from as usize, of_life as u32, index)).expect("somebody sent it");
            loop {
                let first = sent.pop_front().unwrap_or_else(|| panic!("{number} of {from} comes twice"));
                if first.number == number {
                    assert!(first.due <= present, "for a life to come");
                    break;
                }
                assert!(first.is_gone || first.due < present, "{} before {number} of {from}", first.number);
            }
            self.delivered += 1;
        }
    }

    fn meet(&mut self, index: usize, other: usize) {
        let process = &mut self.processes[index];
        let Some(life) = &process.life else { return };
        let record = process.told.records.borrow().get(&(other as u64 + 1)).cloned();
        if let Some(record) = record.filter(|_| process.known[other].is_none()) {
            process.shut[other] = false;
            process.known[other] =
                Some(life.meet(other as u64 + 1, &record, &Silent(&process.told)).expect("reached"));
            let lives = process.lives;
            let receiver = &mut self.processes[other];
            if receiver.shut[index] {
                // What it has sent before was for nobody, and what it sends from now on is for who meets it again.
                receiver.wanted[index] = true;
                let sent = self.sent.entry((index, lives, other)).or_default();
                sent.iter_mut().for_each(|one| one.is_gone = true);
            }
        }
    }

    fn send(&mut self, index: usize, other: usize) {
        let size = self.below(2) * self.below(9000);
        let process = &self.processes[index];
        let (Some(life), Some(to)) = (&process.life, process.known[other]) else { return };
        let receiver = &self.processes[other];
        let due = receiver.lives + u32::from(receiver.life.is_none());
        let is_gone = receiver.shut[index] && !receiver.wanted[index];
        let number = self.next;
        let mut bytes = [index as u64, u64::from(process.lives), number].map(u64::to_le_bytes).concat();
        bytes.resize(24 + size, number as u8);
        if life.send(to, fragment(&bytes, number, false)).is_ok() {
            self.next += 1;
            let sent = self.sent.entry((index, process.lives, other)).or_default();
            sent.push_back(Sent { number, due, is_gone });
        }
    }

    /// The host closes one peer, with which it has no messages on the way but those of which it wants to know nothing.
    fn close(&mut self, index: usize, other: usize) {
        self.passes(other, LONG);
        let process = &mut self.processes[index];
        let (Some(life), Some(id)) = (&process.life, process.known[other].take()) else { return };
        life.close(&[id], &process.told);
        let failed = process.failed();
        process.shut[other] = true;
        process.wanted[other] = false;
        let present = process.lives;
        let receiver = &self.processes[other];
        let is_there = receiver.life.is_some();
        for ((from, of_life, to), sent) in &mut self.sent {
            for one in sent {
                one.is_gone |= (*from, *to) == (other, index) && one.due == present;
                // What lies there for a life to come is nobody's any more.
                let own = (*from, *of_life, *to) == (index, present, other);
                one.is_gone |= failed.contains(&one.number);
                one.is_gone |= own && (!is_there || one.due != receiver.lives);
            }
        }
    }

    fn end(&mut self, index: usize) {
        if self.processes[index].life.is_none() {
            return;
        }
        let is_hasty = self.below(16) == 0;
        if !is_hasty {
            // While it waits for them.
            (0..PROCESSES).for_each(|other| self.passes(other, LONG));
            let clock = Clock::new();
            while self.processes[index].is_unheard() && clock.nanos() < PATIENCE {
                (0..PROCESSES).filter(|other| *other != index).for_each(|other| self.passes(other, LONG));
            }
        }
        let process = &mut self.processes[index];
        let life = process.life.take().expect("one");
        process.shut = [false; PROCESSES];
        let all: Vec<EndpointId> = process.known.iter_mut().filter_map(Option::take).collect();
        life.close(&all, &process.told);
        let failed = process.failed();
        life.end_module(&Silent(&Told::default()));
        let lives = process.lives;
        for ((from, of_life, other), sent) in &mut self.sent {
            let receiver = &self.processes[*other];
            let is_there = receiver.life.is_some();
            for one in sent.iter_mut().filter(|_| *from == index && *of_life == lives) {
                one.is_gone |=
                    failed.contains(&one.number) || is_hasty || !is_there || one.due != receiver.lives;
            }
        }
    }

    /// Something that is due to a life that there is, and has not arrived.
    fn left(&self) -> Option<String> {
        self.sent.iter().find_map(|((from, of_life, to), sent)| {
            let receiver = &self.processes[*to];
            let left = |one: &&Sent| !one.is_gone && one.due == receiver.lives && receiver.life.is_some();
            let first = sent.iter().find(left)?;
            Some(format!("{} of life {of_life} of {from} to {to}", first.number))
        })
    }

    /// What is due to a life that there is arrives.
    fn settle(&mut self) {
        // Who is shut out is heard when it is met again.
        for index in 0..PROCESSES {
            (0..PROCESSES).filter(|other| *other != index).for_each(|other| self.meet(index, other));
        }
        let clock = Clock::new();
        while let Some(left) = self.left() {
            // A place that nobody was known to be at is left alone for a time.
            assert!(clock.nanos() < 10 * REST, "{left}");
            (0..PROCESSES).for_each(|index| self.passes(index, LONG));
        }
        for process in &self.processes {
            assert_eq!((process.told.lost.get(), process.told.lines.take()), (0, Vec::new()));
            assert!(process.told.done.take().iter().all(|(_, outcome)| outcome.is_ok()));
        }
    }
}

#[test]
fn what_is_sent_to_a_life_is_received_by_it_however_lives_begin_and_end() {
    for seed in 1..=12_u64 {
        let mut model = Model::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for _ in 0..3000 {
            let index = model.below(PROCESSES);
            let other = (index + 1 + model.below(PROCESSES - 1)) % PROCESSES;
            match model.below(64) {
                0 => model.end(index),
                1..=7 => model.begin(index),
                8..=20 => model.meet(index, other),
                21..=48 => model.send(index, other),
                49..=50 => model.close(index, other),
                51..=62 => {
                    let count = 1 + model.below(40) * model.below(10);
                    model.passes(index, count);
                }
                _ => model.settle(),
            }
        }
        (0..PROCESSES).for_each(|index| model.begin(index));
        model.settle();
        assert!(model.delivered > 500, "{} of seed {seed}", model.delivered);
    }
}
