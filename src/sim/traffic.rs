//! Traffic that can be told right from wrong: every fragment says who sent it and which it is, and
//! its bytes follow from that; every PUT and GET has a range of its own.

use super::{Block, Happened, Network, Random};
use crate::engine::{Access, Event, Fragment, Memory, Registration};
use crate::error::Result;
use std::collections::{BTreeMap, HashMap};

/// What is sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Operations of each node.
    pub operations: u32,
    /// Of these under way at a time.
    pub depth: u32,
    /// Shortest fragment.
    pub shortest: u64,
    /// Longest fragment; short ones are more frequent.
    pub longest: u64,
    /// Operations in a hundred that are PUTs.
    pub puts: u64,
    /// Operations in a hundred that are GETs.
    pub gets: u64,
    /// All send to node 0, which sends nothing.
    pub to_one: bool,
    /// All sizes are equally frequent.
    pub even: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            operations: 100,
            depth: 8,
            shortest: 0,
            longest: 20_000,
            puts: 0,
            gets: 0,
            to_one: false,
            even: false,
        }
    }
}

const HEAD: usize = 8;

fn stuff(node: usize, id: u32, len: usize) -> Vec<u8> {
    let mut random = Random::new((node as u64) << 40 ^ u64::from(id) << 8);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.number().to_le_bytes());
    }
    bytes.truncate(len);
    if len >= HEAD {
        bytes[..4].copy_from_slice(&id.to_le_bytes());
        bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    }
    bytes
}

#[derive(Debug)]
enum Doing {
    Send,
    Put { to: usize, at: usize, bytes: Vec<u8> },
    Get { into: Block, bytes: Vec<u8> },
}

struct Player {
    random: Random,
    begun: u32,
    open: HashMap<u64, Doing>,
    /// Fragments that the others have sent to this one and that have not come: sizes and counts.
    awaited: BTreeMap<(usize, u32), usize>,
    /// Shorter than their head: only counted, by sender and size.
    tiny: BTreeMap<(usize, usize), i64>,
    /// Where the others write to; a slot for each operation of each.
    target: Block,
    registration: Registration,
    used: usize,
}

/// A game of all nodes.
pub struct Game {
    load: Load,
    players: Vec<Player>,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Peers that were lost.
    pub lost: Vec<(usize, usize)>,
    /// Operations that ended badly.
    pub failed: u64,
    /// Fragments, PUTs and GETs that have been completed.
    pub completed: u64,
}

const REGION: usize = 1 << 20;

impl Game {
    /// Registers memory at every node.
    pub fn new(network: &mut Network, load: Load) -> Self {
        let seed = network.setup.seed;
        let players = (0..network.nodes.len())
            .map(|node| {
                let target = Block::new(vec![0; if load.puts + load.gets > 0 { REGION } else { 0 }]);
                if load.gets > 0 {
                    target.write(0, &stuff(node, u32::MAX, REGION));
                }
                let registration = network.nodes[node].engine.register(target.clone(), Access::BOTH);
                Player {
                    random: Random::new(seed ^ (node as u64 + 1) << 32),
                    begun: 0,
                    open: HashMap::new(),
                    awaited: BTreeMap::new(),
                    tiny: BTreeMap::new(),
                    target,
                    registration,
                    used: 0,
                }
            })
            .collect();
        Self { load, players, bytes: 0, lost: Vec::new(), failed: 0, completed: 0 }
    }

    /// Whether all operations are over and all fragments have come.
    pub fn is_over(&self) -> bool {
        self.players.iter().enumerate().all(|(node, player)| {
            (player.begun == self.load.operations || self.load.to_one && node == 0)
                && player.open.is_empty()
                && player.awaited.is_empty()
                && player.tiny.values().all(|count| *count == 0)
        })
    }

    /// What is missing, for people.
    pub fn missing(&self) -> String {
        let of = |(node, player): (usize, &Player)| {
            let awaited: Vec<_> = player.awaited.iter().take(3).collect();
            format!("node {node}: begun {}, open {}, awaits {awaited:?}", player.begun, player.open.len())
        };
        self.players.iter().enumerate().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Begins operations as long as there is room for them.
    pub fn play(&mut self, network: &mut Network) {
        for node in 0..self.players.len() {
            let mut begun = false;
            while self.players[node].begun < self.load.operations
                && self.players[node].open.len() < self.load.depth as usize
                && !(self.load.to_one && node == 0)
                && !network.nodes[node].stopped
            {
                self.begin(network, node);
                begun = true;
            }
            if begun {
                network.nudge(node);
            }
        }
    }

    fn begin(&mut self, network: &mut Network, node: usize) {
        let count = self.players.len();
        let player = &mut self.players[node];
        let id = player.begun;
        player.begun += 1;
        let to = if self.load.to_one {
            0
        } else {
            (node + 1 + player.random.below(count as u64 - 1) as usize) % count
        };
        let span = self.load.longest - self.load.shortest + 1;
        let mut len = player.random.below(span);
        if !self.load.even {
            len = player.random.below(len + 1);
        }
        let len = (self.load.shortest + len) as usize;
        let dice = player.random.below(100);
        let priority = player.random.below(8) == 0;
        let cookie = u64::from(id);
        let endpoint = network.endpoint(node, to);
        let now = network.now();
        let doing = if dice < self.load.puts {
            let len = len.min(REGION / 8);
            let at = self.players[to].used;
            let at = if at + len > REGION { 0 } else { at };
            self.players[to].used = at + len;
            let remote = self.players[to].registration;
            let bytes = stuff(node, id, len);
            let local = Block::new(bytes.clone());
            let asked = network.nodes[node].engine.put(endpoint, local, remote, at as u64, cookie, now);
            asked.expect("put");
            Doing::Put { to, at, bytes }
        } else if dice < self.load.puts + self.load.gets {
            let len = len.min(REGION / 8);
            let at = self.players[node].random.below((REGION - len) as u64) as usize;
            let into = Block::new(vec![0; len]);
            let remote = self.players[to].registration;
            let bytes = if self.load.puts == 0 {
                let target = &self.players[to].target;
                target.slice(at, len).to_vec()
            } else {
                Vec::new()
            };
            let asked =
                network.nodes[node].engine.get(endpoint, into.clone(), remote, at as u64, cookie, now);
            asked.expect("get");
            Doing::Get { into, bytes }
        } else {
            let bytes = stuff(node, id, len);
            let split = (id as usize * 7) % (len + 1);
            let block = Block::new(bytes);
            let piece = |start: usize, len: usize| (len > 0).then(|| block.slice(start, len));
            let pieces = [piece(0, split), piece(split, len - split)];
            let fragment =
                Fragment { tag: len as u8, pieces, cookie, priority, awaited: id.is_multiple_of(2) };
            network.send(node, endpoint, fragment).expect("send");
            let receiver = &mut self.players[to];
            if len >= HEAD {
                receiver.awaited.insert((node, id), len);
            } else {
                *receiver.tiny.entry((node, len)).or_default() += 1;
            }
            Doing::Send
        };
        self.players[node].open.insert(cookie, doing);
    }

    /// Looks at everything that has happened; panics when something is wrong.
    pub fn judge(&mut self, network: &mut Network) {
        while let Some(happened) = network.happened.pop_front() {
            match happened {
                Happened::Delivered { node, from, tag, bytes } => self.delivered(node, from, tag, &bytes),
                Happened::Event { node, event: Event::Done { cookie, outcome } } => {
                    self.done(node, cookie, outcome);
                }
                Happened::Event { node, event: Event::Lost { endpoint } } => {
                    let peer = network.node_of(node, endpoint).expect("known");
                    self.lost.push((node, peer));
                }
                Happened::Event { .. } => {}
            }
        }
    }

    fn delivered(&mut self, node: usize, from: usize, tag: u8, bytes: &[u8]) {
        assert_eq!(tag, bytes.len() as u8, "the tag");
        self.bytes += bytes.len() as u64;
        let player = &mut self.players[node];
        let Some(id) = bytes.first_chunk::<4>().filter(|_| bytes.len() >= HEAD) else {
            let count = player.tiny.entry((from, bytes.len())).or_default();
            *count -= 1;
            assert!(*count >= 0, "a tiny fragment came twice");
            return;
        };
        let id = u32::from_le_bytes(*id);
        let len = player.awaited.remove(&(from, id));
        assert_eq!(len, Some(bytes.len()), "fragment {id} of {from} at {node}");
        assert!(bytes == stuff(from, id, bytes.len()), "fragment {id} of {from} at {node} is not intact");
    }

    fn done(&mut self, node: usize, cookie: u64, outcome: Result<()>) {
        let doing = self.players[node].open.remove(&cookie).expect("done once");
        if outcome.is_err() {
            self.failed += 1;
            return;
        }
        self.completed += 1;
        match doing {
            Doing::Send => {}
            Doing::Put { to, at, bytes } => {
                let target = &self.players[to].target;
                let there = target.slice(at, bytes.len()).to_vec();
                let overwritten = self.load.operations as u64 * self.load.longest > REGION as u64;
                assert!(overwritten || there == bytes, "a PUT is not intact");
                self.bytes += bytes.len() as u64;
            }
            Doing::Get { into, bytes } => {
                assert!(self.load.puts > 0 || into.to_vec() == bytes, "a GET is not intact");
                self.bytes += into.len() as u64;
            }
        }
    }

    /// Plays to the end, at most so many nanoseconds. `Err` says what is missing then.
    pub fn run(&mut self, network: &mut Network, nanos: u64) -> std::result::Result<(), String> {
        let end = network.now().plus(nanos);
        self.play(network);
        while !self.is_over() {
            if !network.step(end) {
                return Err(self.missing());
            }
            self.judge(network);
            self.play(network);
        }
        Ok(())
    }
}
