//! Two that end their connections and begin the next ones again and again, at any moment, and meanwhile send, put and get.

use super::endings::{SECOND, block, lossy, run, send, story};
use super::forgotten::{MILLI, acquainted};
use super::renewal::close;
use super::*;
use crate::engine::{Access, Fragment, Registration};
use crate::error::{Error, Result};

fn pair(protect: bool) -> Network {
    let mut network = acquainted(lossy(0), protect);
    network.nodes.iter_mut().for_each(|node| node.engine.meet_again());
    network
}

/// What one of the two has asked for.
enum Asked {
    Send { is_copy: bool },
    Put { offset: usize, len: usize },
    Get { local: Block, offset: usize },
}

/// Bytes of the memory that each has registered.
const MEMORY: usize = 2 << 20;

/// Something that was asked for, and what has come of it.
struct Asking {
    from: usize,
    what: Asked,
    outcome: Option<Result<()>>,
    /// How often it was delivered.
    came: usize,
    len: usize,
    /// Of a copy: how often its sender had lost the peer when it left.
    losses: usize,
}

impl Asking {
    fn new(from: usize, what: Asked, len: usize) -> Self {
        Self { from, what, outcome: None, came: 0, len, losses: 0 }
    }
}

/// Both, and what they remember.
struct Two {
    network: Network,
    random: Random,
    memory: [Block; 2],
    lent: [Registration; 2],
    /// Since when each closes.
    closing: [Option<Instant>; 2],
    stopped: [bool; 2],
    all: Vec<Asking>,
    /// How often each has lost the other.
    losses: [usize; 2],
    /// So much of the memory has been put.
    put: usize,
    /// What has happened, for people.
    log: Vec<String>,
}

fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13) as u8).collect()
}

impl Two {
    fn new(seed: u64, protect: bool, path: Path) -> Self {
        let mut network = pair(protect);
        network.wires.random = Random::new(seed);
        network.wires.set_path(0, 1, path.clone());
        network.wires.set_path(1, 0, path);
        let memory = [0, 1].map(|_| Block::new(pattern(0, MEMORY)));
        let lent =
            [0, 1].map(|at: usize| network.nodes[at].engine.register(memory[at].clone(), Access::BOTH));
        Self {
            network,
            random: Random::new(seed ^ 0xABCD_EF01),
            memory,
            lent,
            closing: [None; 2],
            stopped: [false; 2],
            all: Vec::new(),
            losses: [0; 2],
            put: 0,
            log: Vec::new(),
        }
    }

    fn hear(&mut self) {
        for happened in self.network.happened.split_off(0) {
            match happened {
                Happened::Delivered { node, bytes, .. } => {
                    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
                    let asking = &mut self.all[number];
                    assert_eq!((asking.from, asking.len), (1 - node, bytes.len()));
                    assert_eq!(bytes[8..], pattern(number, bytes.len() - 8));
                    asking.came += 1;
                    self.log.push(format!("{node} gets {number}"));
                }
                Happened::Event { node, event: Event::Done { cookie, outcome } } => {
                    self.log.push(format!("{node} done {cookie} {outcome:?}"));
                    let number = cookie as usize;
                    let asking = &mut self.all[number];
                    assert_eq!(asking.from, node);
                    if let Asked::Send { is_copy: true } = asking.what {
                        continue;
                    }
                    assert_eq!(asking.outcome.replace(outcome), None, "{number} has ended twice");
                    if outcome.is_err() {
                        continue;
                    }
                    match &asking.what {
                        Asked::Send { .. } => assert_eq!(asking.came, 1, "{number} is told to have arrived"),
                        Asked::Put { offset, len } => {
                            let there = self.memory[1 - node].slice(*offset, *len).to_vec();
                            assert!(there == pattern(number, *len), "{number} was not put");
                        }
                        Asked::Get { local, offset } => {
                            let there = self.memory[1 - node].slice(*offset, local.to_vec().len()).to_vec();
                            assert!(local.to_vec() == there, "{number} was not got");
                        }
                    }
                }
                Happened::Event { node, event: Event::Closed { .. } } => {
                    self.log.push(format!("{node} closed"));
                    self.closing[node] = None;
                    self.network.endpoint(node, 1 - node);
                }
                Happened::Event { node, event: Event::Lost { .. } } => {
                    self.log.push(format!("{node} lost"));
                    self.losses[node] += 1;
                    close(&mut self.network, node);
                    self.closing[node] = Some(self.network.now());
                }
                Happened::Event { .. } => {}
            }
        }
    }

    fn ask(&mut self, from: usize, kind: u64) {
        let number = self.all.len();
        let len = [9, 60, 200, 1_400, 5_000, 40_000][self.random.below(6) as usize];
        let to = self.network.endpoint(from, 1 - from);
        let now = self.network.now();
        let result = match kind {
            0..=7 => {
                let mut bytes = (number as u64).to_le_bytes().to_vec();
                bytes.extend(pattern(number, len - 8));
                let awaited = self.random.below(3) > 0;
                let fragment = Fragment {
                    tag: 1,
                    pieces: [Some(Block::new(bytes)), None],
                    cookie: number as u64,
                    priority: self.random.below(4) == 0,
                    awaited,
                };
                self.all.push(Asking::new(from, Asked::Send { is_copy: false }, len));
                let before = self.network.happened.len();
                let result = self.network.send(from, to, fragment);
                // A copy is over at once.
                if self.network.happened.len() > before && !awaited {
                    let is_it = |it: &Happened| {
                        matches!(it, Happened::Event { event: Event::Done { cookie, .. }, .. }
                            if *cookie == number as u64)
                    };
                    if self.network.happened.iter().skip(before).any(is_it) {
                        self.all[number].what = Asked::Send { is_copy: true };
                        self.all[number].losses = self.losses[from];
                    }
                }
                result
            }
            8 => {
                let offset = self.put;
                if offset + len > MEMORY {
                    return;
                }
                self.put += len;
                let local = Block::new(pattern(number, len));
                let lent = self.lent[1 - from];
                let engine = &mut self.network.nodes[from].engine;
                let result = engine.put(to, local, lent, offset as u64, number as u64, now);
                self.all.push(Asking::new(from, Asked::Put { offset, len }, len));
                result
            }
            _ => {
                // What is not written any more.
                let offset = MEMORY - len;
                let local = Block::new(vec![0; len]);
                let lent = self.lent[1 - from];
                let engine = &mut self.network.nodes[from].engine;
                let result = engine.get(to, local.clone(), lent, offset as u64, number as u64, now);
                self.all.push(Asking::new(from, Asked::Get { local, offset }, len));
                result
            }
        };
        self.log.push(format!("{from} asks {number}: kind {kind}, {len}: {result:?}"));
        if let Err(error) = result {
            assert!(kind >= 8 || error == Error::Unreachable, "{error:?}");
            self.all[number].outcome = Some(Err(error));
        }
        self.network.nudge(from);
    }

    fn turn(&mut self, ends: u64, stops: bool) {
        let node = self.random.below(2) as usize;
        match self.random.below(100) {
            at if at < ends && self.closing[node].is_none() && !self.stopped[node] => {
                self.log.push(format!("{node} closes"));
                self.closing[node] = Some(self.network.now());
                close(&mut self.network, node);
            }
            at if at < ends + 2 && stops => {
                self.stopped[node] = !self.stopped[node];
                if self.stopped[node] {
                    self.network.nodes[node].stopped = true;
                } else {
                    self.network.wake(node);
                }
            }
            _ if self.closing[node].is_none() && !self.stopped[node] => {
                let kind = self.random.below(10);
                for _ in 0..=self.random.below(4) {
                    self.ask(node, kind);
                }
            }
            _ => {}
        }
        let pause = [1_000, 20_000, 100_000, 2 * MILLI, 50 * MILLI][self.random.below(5) as usize];
        let pause = self.random.below(pause);
        run(&mut self.network, pause);
        self.hear();
        self.give_up();
    }

    /// Who has not been heard for so long is forgotten by whoever closes.
    fn give_up(&mut self) {
        for node in [0, 1] {
            if let Some(since) = self.closing[node]
                && !self.stopped[node]
                && self.network.now().since(since) > 2 * SECOND
            {
                let to = self.network.endpoint(node, 1 - node);
                self.network.nodes[node].engine.forget(to);
                self.log.push(format!("{node} forgets"));
                self.closing[node] = None;
                self.network.nudge(node);
            }
        }
    }

    fn end(&mut self, seed: u64) {
        for node in [0, 1] {
            self.stopped[node] = false;
            self.network.wake(node);
        }
        for _ in 0..600 {
            run(&mut self.network, 100 * MILLI);
            self.hear();
            self.give_up();
        }
        let tail = |log: &[String]| log[log.len().saturating_sub(4000)..].join("\n");
        for (number, asking) in self.all.iter().enumerate() {
            let losses = self.losses[asking.from];
            match asking.what {
                Asked::Send { is_copy: true } => {
                    let told = losses > asking.losses;
                    assert!(
                        asking.came == 1 || asking.came == 0 && told,
                        "seed {seed}, copy {number}: {} times\n{}",
                        asking.came,
                        tail(&self.log)
                    );
                }
                _ => {
                    assert!(
                        asking.outcome.is_some(),
                        "seed {seed}, {number} hangs\n{}\n{}",
                        tail(&self.log),
                        self.network.describe()
                    );
                    assert!(asking.came <= 1, "seed {seed}: {number} came {} times", asking.came);
                }
            }
        }
        assert_eq!(self.closing, [None; 2], "seed {seed}: {}", tail(&self.log));
        for node in &self.network.nodes {
            assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}");
            assert!(!node.engine.is_expecting(), "seed {seed}: something is expected");
        }
    }
}

/// Two that do all that at these seeds.
fn play(seeds: std::ops::Range<u64>, stops: bool, path: &Path) {
    for seed in seeds {
        let mut two = Two::new(seed, seed % 3 == 0, path.clone());
        for _ in 0..150 {
            two.turn(10, stops);
        }
        two.end(seed);
    }
}

#[test]
fn whoever_ends_connections_at_any_moment_hears_everything_once_or_the_other_hears_that_it_has_not() {
    play(0..8, false, &lossy(0));
}

#[test]
fn so_where_much_is_lost_late_and_doubled() {
    play(0..8, false, &Path { reordering: 200_000, duplication: 100_000, ..lossy(150_000) });
}

#[test]
fn so_where_either_is_stopped_now_and_then() {
    play(0..8, true, &lossy(0));
    play(8..12, true, &Path { reordering: 200_000, duplication: 100_000, ..lossy(150_000) });
}

/// What is encrypted behind the next connection's beginning is the next connection's.
#[test]
fn the_answer_to_the_end_of_a_connection_is_genuine_though_the_next_one_begins_behind_it() {
    for protect in [false, true] {
        let mut network = pair(protect);
        for number in 0..20 {
            send(&mut network, 1, 0, 20_000, number).expect("sent");
        }
        run(&mut network, 200_000);
        close(&mut network, 0);
        run(&mut network, SECOND);
        let seen = story(&mut network);
        let count = |words: &str| seen.iter().filter(|line| line.contains(words)).count();
        assert_eq!((count("Ok(())"), count("0 gets"), count("closed")), (20, 20, 1), "{protect}: {seen:?}");
        assert!(network.nodes.iter().all(|node| node.engine.counters().num_crc_errors == 0), "{protect}");
    }
}

#[test]
fn who_closes_with_a_get_that_has_not_left_when_the_other_has_closed_has_closed() {
    for meets_again in [false, true] {
        let mut network = acquainted(lossy(0), false);
        if meets_again {
            network.nodes.iter_mut().for_each(|node| node.engine.meet_again());
        }
        let lent = network.nodes[0].engine.register(block(100), Access::BOTH);
        close(&mut network, 0);
        let (to, now) = (network.endpoint(1, 0), network.now());
        network.nodes[1].engine.get(to, block(100), lent, 0, 1, now).expect("asked");
        network.nodes[1].engine.close(to, now);
        // Until its next turn, at least.
        run(&mut network, 10 * SECOND);
        let mut seen = story(&mut network);
        seen.sort();
        assert_eq!(seen, ["0 closed", "1 closed", "1 done 1 Err(Unreachable)"], "{meets_again}");
    }
}

#[test]
fn who_computes_for_a_second_while_the_other_ends_the_connection_is_waited_for() {
    for protect in [false, true] {
        let mut network = pair(protect);
        for number in 0..5 {
            send(&mut network, 1, 0, 20_000, number).expect("sent");
        }
        run(&mut network, 300_000);
        network.nodes[1].stopped = true;
        close(&mut network, 0);
        run(&mut network, SECOND);
        network.wake(1);
        run(&mut network, 5 * SECOND);
        let seen = story(&mut network);
        let count = |words: &str| seen.iter().filter(|line| line.contains(words)).count();
        assert_eq!((count("Ok(())"), count("0 gets"), count("closed")), (5, 5, 1), "{protect}: {seen:?}");
    }
}
