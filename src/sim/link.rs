//! The simulator as a link: ports on a network in virtual time, for one thread.
//!
//! Time passes when a channel is polled that has nothing: then the next datagram arrives, wherever
//! that is. So a consumer that waits sees what the network does, and nothing depends on luck.

use super::{Agenda, Arrival, Path, PortId, Wires};
use crate::engine::time::Instant;
use crate::error::{Error, Result};
use crate::link::inbox::Inbox;
use crate::link::name::{self, Kind};
use crate::link::peers::Peers;
use crate::link::{AddressId, Channel, Counters, Lent, Limits, Link};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Datagrams that a port queues before it is flushed.
const QUEUE: usize = 256;
/// Datagrams that one poll brings at most.
const BATCH: usize = 64;
/// The end of all time.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// A network to open ports on.
#[derive(Clone)]
pub struct World(Rc<RefCell<State>>);

struct State {
    wires: Wires,
    agenda: Agenda<What>,
    now: Instant,
    /// What each receive buffer holds, in bytes.
    receive_buffer: usize,
    speed_mbps: u32,
    max_datagram: usize,
    most: usize,
    /// `None`: closed.
    ports: Vec<Option<Buffers>>,
}

#[derive(Default)]
struct Buffers {
    waiting: [VecDeque<Vec<u8>>; 2],
    filled: [usize; 2],
    /// Ports that refused something, and by how many datagrams.
    refusals: VecDeque<usize>,
}

enum What {
    Reaches { port: PortId, from: usize, to: usize, channel: Channel, bytes: Vec<u8> },
    Arrives { from: usize, to: usize, channel: Channel, bytes: Vec<u8> },
    Refused { from: usize, by: usize },
}

impl World {
    /// A network for `most` ports; datagrams are at most `max_datagram` bytes, and what comes to a
    /// port that holds `receive_buffer` bytes already is lost.
    pub fn new(path: Path, seed: u64, most: usize, max_datagram: usize, receive_buffer: usize) -> Self {
        let speed_mbps = if path.rate > 0 { (path.rate / 125_000).max(1) as u32 } else { 10_000 };
        Self(Rc::new(RefCell::new(State {
            wires: Wires::new(path, usize::MAX, most, seed),
            agenda: Agenda::new(),
            now: Instant::ORIGIN,
            receive_buffer,
            speed_mbps,
            max_datagram,
            most,
            ports: Vec::new(),
        })))
    }

    /// A port of its own.
    ///
    /// # Panics
    /// If there are as many as were announced.
    pub fn open(&self) -> Port {
        let mut state = self.0.borrow_mut();
        assert!(state.ports.len() < state.most, "{} ports are all there are", state.most);
        state.ports.push(Some(Buffers::default()));
        Port {
            index: state.ports.len() - 1,
            world: self.clone(),
            peers: Peers::new(),
            queue: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What is between the ports.
    pub fn wires<R>(&self, look: impl FnOnce(&mut Wires) -> R) -> R {
        look(&mut self.0.borrow_mut().wires)
    }
}

impl State {
    /// The next thing happens; `false`: nothing will.
    fn step(&mut self) -> bool {
        let Some((at, what)) = self.agenda.next(NEVER) else { return false };
        self.now = self.now.max(at);
        match what {
            What::Reaches { port, from, to, channel, bytes } => {
                let delay = self.wires.path(from, to).delay;
                if let Some(arrival) = self.wires.pass(port, delay, bytes, self.now) {
                    enter(&mut self.agenda, from, to, channel, arrival);
                }
            }
            What::Arrives { from, to, channel, bytes } => {
                let room = self.receive_buffer;
                match &mut self.ports[to] {
                    Some(port) if port.filled[channel as usize] + bytes.len() <= room => {
                        port.filled[channel as usize] += bytes.len();
                        port.waiting[channel as usize].push_back(bytes);
                    }
                    Some(_) => {
                        self.wires.fates.overrun += 1;
                        self.wires.discard(bytes);
                    }
                    None => {
                        self.wires.discard(bytes);
                        self.agenda.enter(self.now, What::Refused { from, by: to });
                    }
                }
            }
            What::Refused { from, by } => {
                if let Some(port) = &mut self.ports[from] {
                    port.refusals.push_back(by);
                }
            }
        }
        true
    }
}

/// Enters where a datagram comes to next.
fn enter(agenda: &mut Agenda<What>, from: usize, to: usize, channel: Channel, arrival: Arrival) {
    let Arrival { at, bytes, port } = arrival;
    let what = match port {
        Some(port) => What::Reaches { port, from, to, channel, bytes },
        None => What::Arrives { from, to, channel, bytes },
    };
    agenda.enter(at, what);
}

/// A link of the simulator.
pub struct Port {
    world: World,
    index: usize,
    peers: Peers<usize, usize>,
    queue: VecDeque<Queued>,
    counters: Counters,
}

struct Queued {
    channel: Channel,
    to: AddressId,
    header: Vec<u8>,
    pieces: Vec<Lent>,
}

impl Port {
    /// The port of this name.
    fn find(&self, name: &[u8]) -> Result<usize> {
        let body = name::body(Kind::Simulated, name)?.try_into().map_err(|_| Error::BadParameter)?;
        let index = u32::from_le_bytes(body) as usize;
        if index < self.world.0.borrow().ports.len() { Ok(index) } else { Err(Error::Unreachable) }
    }
}

impl Link for Port {
    fn limits(&self) -> Limits {
        let state = self.world.0.borrow();
        Limits {
            max_datagram: [state.max_datagram; 2],
            receive_capacity: state.receive_buffer,
            speed_mbps: state.speed_mbps,
            numa_node: None,
        }
    }

    fn name(&self) -> Vec<u8> {
        name::record(Kind::Simulated, &(self.index as u32).to_le_bytes())
    }

    fn resolve(&mut self, name: &[u8]) -> Result<AddressId> {
        let index = self.find(name)?;
        self.peers.resolve(index, || Ok(index))
    }

    fn release(&mut self, address: AddressId) {
        self.peers.release(address);
    }

    fn distance(&self, name: &[u8]) -> Option<u32> {
        self.find(name).ok().map(|_| 0)
    }

    fn max_datagram(&self, _: Channel, _: AddressId) -> usize {
        self.world.0.borrow().max_datagram
    }

    fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        if self.queue.len() == QUEUE {
            return false;
        }
        let len = header.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if len > self.world.0.borrow().max_datagram {
            self.counters.too_long += 1;
        } else {
            let (header, pieces) = (header.to_vec(), pieces.to_vec());
            self.queue.push_back(Queued { channel, to, header, pieces });
        }
        true
    }

    fn flush(&mut self) -> usize {
        let mut state = self.world.0.borrow_mut();
        let State { wires, agenda, now, .. } = &mut *state;
        let mut taken = 0;
        for Queued { channel, to, header, pieces } in self.queue.drain(..) {
            let Some(&to) = self.peers.get(to) else {
                self.counters.stale += 1;
                continue;
            };
            let mut bytes = wires.blank();
            bytes.extend_from_slice(&header);
            for piece in pieces {
                let start = bytes.len();
                bytes.resize(start + piece.len(), 0);
                piece.read(0, &mut bytes[start..]);
            }
            taken += 1;
            for arrival in wires.carry(self.index, to, channel, bytes, *now).into_iter().flatten() {
                enter(agenda, self.index, to, channel, arrival);
            }
        }
        self.counters.sent += taken as u64;
        taken
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn poll(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        let mut state = self.world.0.borrow_mut();
        let is_idle = |state: &State| {
            state.ports[self.index].as_ref().is_none_or(|own| own.waiting[channel as usize].is_empty())
        };
        while is_idle(&state) && state.step() {}
        let State { wires, ports, .. } = &mut *state;
        let Some(own) = &mut ports[self.index] else { return 0 };
        let mut count = 0;
        while count < BATCH
            && let Some(bytes) = own.waiting[channel as usize].pop_front()
        {
            own.filled[channel as usize] -= bytes.len();
            let Some(mut vacant) = into.take() else { break };
            vacant.bytes()[..bytes.len()].copy_from_slice(&bytes);
            into.deliver(channel, vacant, 0..bytes.len());
            wires.discard(bytes);
            count += 1;
        }
        wires.fates.arrived += count as u64;
        self.counters.received += count as u64;
        count
    }

    fn poll_refused(&mut self) -> Option<AddressId> {
        loop {
            let by = self.world.0.borrow_mut().ports[self.index].as_mut()?.refusals.pop_front()?;
            self.counters.refused += 1;
            // One that was released meanwhile is nobody's concern.
            if let Some(peer) = self.peers.find(|index| *index == by) {
                return Some(peer);
            }
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.world.0.borrow_mut().ports[self.index] = None;
    }
}
