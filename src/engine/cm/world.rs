//! Processes with both machines and both mailboxes, and devices between them that lose, double and delay, for tests.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::*;

/// When everything begins. Without durations no time passes: a timer runs out whenever that is said.
pub(super) const NOW: Instant = Instant::ORIGIN;

pub(super) fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, side as u8 + 1], 1000))
}

pub(super) fn nonce(side: usize, life: u64) -> u64 {
    16 * life + side as u64
}

pub(super) fn peer(side: usize, life: u64) -> Peer {
    Peer { process: 100 + side as u64, nonce: nonce(side, life), listener: 0, address: address(side) }
}

/// What the endpoint of a side to this life of a peer is called.
pub(super) const fn called(peer: usize, life: u64) -> EndpointId {
    EndpointId(10 * life as u32 + peer as u32)
}

pub(super) fn settings(side: usize, life: u64, queues: Queues) -> Settings {
    Settings {
        attempt: Duration::ZERO,
        answer: Duration::ZERO,
        question: Duration::ZERO,
        interval: Duration::ZERO,
        longest: Duration::ZERO,
        attempts: 2,
        postponements: 2,
        last_attempts: 1,
        ..Settings::new(100 + side as u64, nonce(side, life), vec![address(side)], queues)
    }
}

/// An id and its queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    /// Whose queue pair it has.
    pub(super) made: Option<(EndpointId, Attempt, u8)>,
    pub(super) is_dummy: bool,
    pub(super) is_active: bool,
    /// What is at the other end, once somebody is asked.
    pub(super) other: Option<(usize, Id)>,
    /// Whom it is on its way to.
    pub(super) target: usize,
    pub(super) is_established: bool,
    pub(super) is_accepted: bool,
    /// Nothing goes through it any more.
    pub(super) is_dead: bool,
    /// Receives for a CTS.
    pub(super) receives: u8,
    /// The real receives.
    pub(super) is_posted: bool,
    /// Something has arrived.
    pub(super) is_heard: bool,
}

/// What is at the main thread of a peer's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) peer: usize,
    pub(super) endpoint: Endpoint,
    pub(super) ids: Vec<Id>,
    pub(super) posting: Option<Attempt>,
    pub(super) letting: Option<Attempt>,
    /// A fragment waits to be sent.
    pub(super) waits: bool,
    pub(super) is_told: bool,
    /// The attempt whose CTS has really come.
    pub(super) cleared: Option<Attempt>,
}

/// What arrives at a queue pair; it lies in the completion queue until that is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) endpoint: EndpointId,
    pub(super) attempt: Attempt,
    pub(super) queue: u8,
    pub(super) what: What,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum What {
    Cts,
    Data,
    /// Nothing follows.
    Bye,
}

/// What an event channel is going to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Said {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    Request(usize, Id, Bytes),
    Established(Option<Bytes>),
    Rejected(Option<Bytes>),
    Unreachable,
    ConnectError,
    Disconnected,
    DeviceRemoved,
}

impl Conn {
    /// Whether its process would hear of its end as of a disconnection.
    pub(super) const fn is_up(&self) -> bool {
        self.is_established || self.is_accepted
    }
}

/// A process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) manager: Manager,
    pub(super) life: u64,
    pub(super) held: BTreeMap<EndpointId, Held>,
    pub(super) orders: VecDeque<Order>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) conns: BTreeMap<Id, Conn>,
    pub(super) completions: Vec<Message>,
    /// Nothing of that can be read any more.
    pub(super) is_deaf: bool,
    pub(super) events: Vec<(Id, Said)>,
    /// Which peers, in which life, the main thread is going to add.
    pub(super) additions: Vec<(usize, u64)>,
    /// An action that is going to fail at once.
    pub(super) armed: Option<Fault>,
    pub(super) listens: bool,
    /// The main thread computes, and will not look at anything any more.
    pub(super) computes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    QueuePair,
    Connect,
    Accept,
}

/// What may still happen that need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Wishes of each side to send.
    pub(super) wants: [u8; 3],
    /// Events that are lost.
    pub(super) losses: u8,
    /// Events that say an error instead.
    pub(super) errors: u8,
    /// Events that are told twice.
    pub(super) doubles: u8,
    /// Events of ids that are destroyed already.
    pub(super) lates: u8,
    /// Calls that fail at once.
    pub(super) faults: u8,
    /// Timers that run out while something is on its way.
    pub(super) hurries: u8,
    /// Connections that break, with what is on its way in them.
    pub(super) breaks: u8,
    /// Queue pairs that do not work, and are found by the main thread before it is told.
    pub(super) probes: u8,
    /// Main threads that have nothing to post.
    pub(super) starves: [u8; 3],
    /// Times that a side cannot read any more what its device has done.
    pub(super) failures: [u8; 3],
    /// Endpoints that each side is going to close when nothing waits any more.
    pub(super) leaves: [u8; 3],
    /// Endpoints that each side closes.
    pub(super) closes: [u8; 3],
    /// Endpoints that each side closes, and makes anew.
    pub(super) meetings: [u8; 3],
    /// Ends of each side.
    pub(super) finalizes: [u8; 3],
    /// Devices of each side that are removed.
    pub(super) removals: [u8; 3],
    /// Deaths of each side, which then lives again.
    pub(super) deaths: [u8; 3],
}

/// The way on which a world came to be: told when something is wrong with it, and no part of what it is.
#[derive(Clone, Default)]
struct Trail(Option<Rc<(Turn, Trail)>>);

impl Trail {
    fn turns(&self) -> Vec<Turn> {
        let before = std::iter::successors(self.0.as_deref(), |(_, before)| before.0.as_deref());
        let mut turns: Vec<Turn> = before.map(|(turn, _)| *turn).collect();
        turns.reverse();
        turns
    }
}

impl Hash for Trail {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for Trail {
    fn drop(&mut self) {
        // The first that is dropped is that of the world that is wrong; it lets the others go without a word.
        if std::thread::panicking() && !TOLD.replace(true) {
            for turn in self.turns() {
                eprintln!("{turn:?}");
            }
        }
    }
}

thread_local! {
    static TOLD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// All of them.
#[derive(Clone, Hash)]
pub(super) struct World {
    trail: Trail,
    pub(super) now: Instant,
    pub(super) sides: Vec<Side>,
    pub(super) budget: Budget,
    pub(super) wire: Wire,
    pub(super) queues: Queues,
    pub(super) dialect: Dialect,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// A main thread: something is to be sent to a peer.
    Want(usize, EndpointId),
    Add(usize),
    Notice(usize),
    Poll(usize, usize),
    Post(usize, EndpointId),
    LetGo(usize, EndpointId),
    Broken(usize, EndpointId),
    Probe(usize, EndpointId),
    Starve(usize, EndpointId),
    /// The main thread cannot read any more what has been done.
    Fail(usize),
    Hurry(usize, EndpointId),
    Close(usize, EndpointId),
    MeetAgain(usize, EndpointId),
    Finalize(usize),
    /// A connection thread.
    Order(usize),
    Event(usize, usize),
    Late(usize, usize),
    Double(usize, usize),
    Lose(usize, usize),
    Err(usize, usize),
    Expire(usize),
    Arm(usize, Fault),
    /// The world.
    Tear(usize, Id),
    Remove(usize),
    Die(usize),
}

impl Side {
    pub(super) fn new(at: usize, life: u64, lives: &[u64], queues: Queues) -> Self {
        let others = lives.iter().copied().enumerate().filter(|(peer, _)| *peer != at);
        let mut manager = Manager::new(settings(at, life, queues));
        manager.desk.last = 100 * (life as u32 - 1);
        Self {
            manager,
            life,
            held: BTreeMap::new(),
            orders: VecDeque::new(),
            notices: VecDeque::new(),
            conns: BTreeMap::new(),
            completions: Vec::new(),
            is_deaf: false,
            events: Vec::new(),
            additions: others.collect(),
            armed: None,
            listens: true,
            computes: false,
        }
    }

    /// The events that may be told next: those of an id keep their order.
    fn heads(&self) -> impl Iterator<Item = usize> {
        (0..self.events.len()).filter(|at| self.events[..*at].iter().all(|(id, _)| *id != self.events[*at].0))
    }

    pub(super) fn say(&mut self, id: Id, said: Said) {
        // Events of different ids have no order: they are kept in one that does not tell how they came.
        let place = self.events.partition_point(|(other, _)| *other <= id);
        self.events.insert(place, (id, said));
    }

    fn has_events(&self) -> bool {
        self.events.iter().any(|(id, said)| matches!(said, Said::Request(..)) || self.conns.contains_key(id))
    }

    pub(super) fn is_calm(&self) -> bool {
        self.orders.is_empty()
            && !self.has_events()
            && (self.computes
                || (self.additions.is_empty()
                    && self.notices.is_empty()
                    && self.completions.is_empty()
                    && self.held.values().all(|held| held.posting.is_none() && held.letting.is_none())))
    }

    pub(super) fn link(&self, endpoint: EndpointId) -> Option<&Link> {
        self.manager.links.get(&endpoint)
    }

    /// The number of what is asked with an id of this side: no other has it.
    pub(super) fn number(&self, at: usize, id: Id) -> u32 {
        let Id::Own(number) = id else { unreachable!("it asks") };
        10_000 * self.life as u32 + 1000 * at as u32 + number
    }

    /// The endpoint to a peer that was added last.
    pub(super) fn latest(&self, peer: usize) -> Option<&Held> {
        self.held.values().rfind(|held| held.peer == peer)
    }
}

impl World {
    pub(super) fn new(sides: usize, wire: Wire, count: u8, budget: Budget) -> Self {
        let queues = Queues { count, credits: 0, hash: 77 };
        let lives = vec![1; sides];
        let sides = (0..sides).map(|at| Side::new(at, 1, &lives, queues)).collect();
        Self { trail: Trail::default(), now: NOW, sides, budget, wire, queues, dialect: Dialect::Own }
    }

    /// The same, of processes that talk as openib does.
    pub(super) fn talking_as_openib(mut self) -> Self {
        self.dialect = Dialect::Openib;
        for side in &mut self.sides {
            side.manager.desk.settings.dialect = Dialect::Openib;
        }
        self
    }

    /// All main threads have added all peers, and the connection threads know.
    pub(super) fn added(mut self) -> Self {
        for at in 0..self.sides.len() {
            while !self.sides[at].additions.is_empty() {
                self.take(Turn::Add(at));
            }
            while !self.sides[at].orders.is_empty() {
                self.take(Turn::Order(at));
            }
        }
        self
    }

    pub(super) fn fingerprint(&self) -> u128 {
        let mut hasher = SipHasher13::new();
        self.hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    fn is_calm(&self) -> bool {
        self.sides.iter().all(Side::is_calm)
    }

    /// What happens without anybody's wish.
    pub(super) fn reactions(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (at, side) in self.sides.iter().enumerate() {
            if !side.orders.is_empty() {
                turns.push(Turn::Order(at));
            }
            let is_told = |index: &usize| {
                let (id, said) = &side.events[*index];
                matches!(said, Said::Request(..)) || side.conns.contains_key(id)
            };
            turns.extend(side.heads().filter(is_told).map(|index| Turn::Event(at, index)));
            if side.computes {
                continue;
            }
            if !side.additions.is_empty() {
                turns.push(Turn::Add(at));
            }
            if !side.notices.is_empty() {
                turns.push(Turn::Notice(at));
            }
            let polled = (0..side.completions.len()).filter(|index| {
                side.completions[..*index].iter().all(|earlier| earlier.id != side.completions[*index].id)
            });
            turns.extend(polled.map(|index| Turn::Poll(at, index)));
            for (endpoint, held) in &side.held {
                if held.posting.is_some() {
                    turns.push(Turn::Post(at, *endpoint));
                }
                if held.letting.is_some() && self.may_let_go(at, *endpoint) {
                    turns.push(Turn::LetGo(at, *endpoint));
                }
            }
        }
        if turns.is_empty() {
            for (at, side) in self.sides.iter().enumerate().filter(|(_, side)| !side.computes) {
                let broken = side.held.iter().filter(|(_, held)| self.is_broken(at, held));
                turns.extend(broken.map(|(endpoint, _)| Turn::Broken(at, *endpoint)));
            }
        }
        // A connection that does not work is noticed before long.
        if (turns.is_empty() && self.is_calm()) || self.budget.hurries > 0 {
            let next = self.sides.iter().filter_map(|side| side.manager.next_timeout()).min();
            let is_next = |(_, side): &(usize, &Side)| next.is_some() && side.manager.next_timeout() == next;
            turns.extend(self.sides.iter().enumerate().filter(is_next).map(|(at, _)| Turn::Expire(at)));
        }
        turns
    }

    /// What users, devices and the network do of themselves.
    pub(super) fn whims(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        let budget = &self.budget;
        for (at, side) in self.sides.iter().enumerate() {
            for (endpoint, held) in &side.held {
                if budget.wants[at] > 0 && !held.waits {
                    turns.push(Turn::Want(at, *endpoint));
                }
                if budget.leaves[at] > 0 {
                    turns.push(Turn::Hurry(at, *endpoint));
                }
                if budget.closes[at] > 0 {
                    turns.push(Turn::Close(at, *endpoint));
                }
                let is_last = side.latest(held.peer).is_some_and(|latest| std::ptr::eq(latest, held));
                // Nobody closes it while a last word may be owed and cannot be said.
                if budget.meetings[at] > 0 && is_last && !held.endpoint.is_half_connected() {
                    turns.push(Turn::MeetAgain(at, *endpoint));
                }
                if budget.probes > 0 && self.is_broken(at, held) {
                    turns.push(Turn::Probe(at, *endpoint));
                }
                if budget.starves[at] > 0 && held.posting.is_some() {
                    turns.push(Turn::Starve(at, *endpoint));
                }
            }
            if budget.finalizes[at] > 0 && side.additions.is_empty() {
                turns.push(Turn::Finalize(at));
            }
            if budget.failures[at] > 0 {
                turns.push(Turn::Fail(at));
            }
            if budget.removals[at] > 0 {
                turns.push(Turn::Remove(at));
            }
            if budget.deaths[at] > 0 {
                turns.push(Turn::Die(at));
            }
            if budget.faults > 0 && side.armed.is_none() {
                let faults = [Fault::QueuePair, Fault::Connect, Fault::Accept];
                turns.extend(faults.map(|fault| Turn::Arm(at, fault)));
            }
            for index in side.heads() {
                let (id, said) = side.events[index];
                let is_told = matches!(said, Said::Request(..)) || side.conns.contains_key(&id);
                if !is_told {
                    turns.push(Turn::Late(at, index));
                    continue;
                }
                if budget.losses > 0 {
                    turns.push(Turn::Lose(at, index));
                }
                if budget.doubles > 0 {
                    turns.push(Turn::Double(at, index));
                }
                let fails = matches!(
                    said,
                    Said::AddressResolved | Said::RouteResolved | Said::Request(..) | Said::Established(_)
                );
                if budget.errors > 0 && fails {
                    turns.push(Turn::Err(at, index));
                }
            }
            if budget.breaks > 0 {
                // Of both ends one is torn, but for who has accepted, of whom the other may not have heard.
                let is_there = |conn: &Conn| conn.is_active == conn.is_established && conn.is_up();
                let whole = side.conns.iter().filter(|(_, conn)| is_there(conn) && !conn.is_dead);
                turns.extend(whole.map(|(id, _)| Turn::Tear(at, *id)));
            }
        }
        turns
    }

    pub(super) fn after(&self, turn: Turn) -> Self {
        let mut world = self.clone();
        world.take(turn);
        world
    }

    /// Something happens.
    pub(super) fn take(&mut self, turn: Turn) {
        self.trail = Trail(Some(Rc::new((turn, self.trail.clone()))));
        let _told = self.trail.clone();
        let hurries = matches!(turn, Turn::Expire(_)) && !self.is_calm();
        let budget = &mut self.budget;
        match turn {
            Turn::Want(at, endpoint) => {
                budget.wants[at] -= 1;
                self.with(at, endpoint, |held| {
                    held.waits = !matches!(held.endpoint.want(), State::Failed | State::Ending);
                });
                self.send_waiting(at, endpoint);
            }
            Turn::Add(at) => self.add(at),
            Turn::Notice(at) => {
                let notice = self.sides[at].notices.pop_front().expect("there is one");
                self.handle_notice(at, notice);
            }
            Turn::Poll(at, index) => self.poll(at, index),
            Turn::Post(at, endpoint) => self.post(at, endpoint),
            Turn::LetGo(at, endpoint) => self.with(at, endpoint, |held| {
                let attempt = held.letting.take().expect("it is to be let go of");
                held.ids.clear();
                held.endpoint.handle_let_go(attempt);
                if held.waits && held.endpoint.state() == State::Closed {
                    held.endpoint.want();
                }
            }),
            Turn::Probe(at, endpoint) => {
                budget.probes -= 1;
                self.break_off(at, endpoint);
            }
            Turn::Broken(at, endpoint) => self.break_off(at, endpoint),
            Turn::Starve(at, endpoint) => {
                budget.starves[at] -= 1;
                self.starve(at, endpoint);
            }
            Turn::Fail(at) => {
                budget.failures[at] -= 1;
                self.fail(at);
            }
            Turn::Hurry(at, endpoint) => {
                budget.leaves[at] -= 1;
                self.with(at, endpoint, |held| held.endpoint.hurry());
            }
            Turn::Close(at, endpoint) => {
                budget.closes[at] -= 1;
                self.close(at, endpoint);
            }
            Turn::MeetAgain(at, endpoint) => {
                budget.meetings[at] -= 1;
                self.meet_again(at, endpoint);
            }
            Turn::Finalize(at) => {
                budget.finalizes[at] -= 1;
                for endpoint in self.sides[at].held.keys().copied().collect::<Vec<_>>() {
                    self.close(at, endpoint);
                }
                self.sides[at].orders.push_back(Order::Finalize);
            }
            Turn::Order(at) => {
                let order = self.sides[at].orders.pop_front().expect("there is one");
                self.sides[at].manager.handle_order(order, self.now);
            }
            Turn::Event(at, index) => {
                let (id, said) = self.sides[at].events.remove(index);
                self.tell(at, id, said);
            }
            Turn::Late(at, index) => {
                budget.lates -= 1;
                let (id, said) = self.sides[at].events.remove(index);
                self.tell(at, id, said);
            }
            Turn::Double(at, index) => {
                budget.doubles -= 1;
                let (id, said) = self.sides[at].events[index];
                let id = if let (Said::Request(..), Id::Peers(number)) = (said, id) {
                    Id::Peers(number + 500)
                } else {
                    id
                };
                self.tell(at, id, said);
            }
            Turn::Lose(at, index) => {
                budget.losses -= 1;
                self.sides[at].events.remove(index);
            }
            Turn::Err(at, index) => {
                budget.errors -= 1;
                let (id, said) = self.sides[at].events.remove(index);
                match said {
                    Said::AddressResolved => self.tell(at, id, Said::AddressError),
                    Said::RouteResolved => self.tell(at, id, Said::RouteError),
                    Said::Request(from, asker, _) => self.sides[from].say(asker, Said::Unreachable),
                    Said::Established(Some(_)) => self.spoil(at, id),
                    // Its answer has come, and it is never told so.
                    Said::Established(None) => self.tell(at, id, Said::Unreachable),
                    _ => unreachable!("it has no error"),
                }
            }
            Turn::Expire(at) => {
                budget.hurries = budget.hurries.saturating_sub(u8::from(hurries));
                self.now = self.sides[at].manager.next_timeout().map_or(self.now, |at| self.now.max(at));
                self.sides[at].manager.handle_timeout(self.now);
            }
            Turn::Arm(at, fault) => {
                budget.faults -= 1;
                self.sides[at].armed = Some(fault);
            }
            Turn::Tear(at, id) => {
                budget.breaks -= 1;
                self.tear(at, id);
            }
            Turn::Remove(at) => {
                budget.removals[at] -= 1;
                self.remove(at);
            }
            Turn::Die(at) => {
                budget.deaths[at] -= 1;
                self.die(at);
            }
        }
        for at in 0..self.sides.len() {
            self.perform(at);
        }
    }
}
