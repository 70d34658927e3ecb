//! All peers of a module, and what is to be done next. Nothing here calls the host: what it is to be told comes out as
//! [`Step`]s, one at a time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::buffers::{Pool, Shared};
use super::connection::{Broken, Connection, Desk};
use super::connector::{number, place};
use super::counters::Counters;
use super::departure::Departing;
use super::itself::Loopback;
use super::late::Late;
use super::line::{Line, Port};
use super::office::{Mail, Office};
use super::parameters::Config;
use super::peer::{Item, Peer};
use super::peers::Peers;
use super::queues::Kind;
use crate::btl::{Cookie, EndpointId, Lent};
use crate::engine::cm::{self, Attempt, Notice, Reason};
use crate::error::{Error, Result};
use crate::link::{Clock, Copied};
use crate::verbs::{Completion, Cq, Slab};
use crate::wire::verbs::{Control, private::Refusal};

/// What is said of bytes that could not be had for messages.
pub(super) const SHORT_OF_BUFFERS: &str = "bytes for messages could not be registered";

/// So many nanoseconds a peer is tried to be connected with for which there is no memory. It gives up itself when all its attempts
/// have come to nothing, some time later, and does not know why.
const BARREN: u64 = 20_000_000_000;

/// What is delivered: its buffer comes back when the host has read it.
pub(super) enum Delivered {
    Private {
        place: u32,
        attempt: Attempt,
        queue: u8,
        at: u32,
        _keep: Arc<Slab>,
    },
    Shared {
        place: u32,
        queue: u8,
        at: u32,
    },
    /// One of several messages in a buffer, not the last.
    Part {
        _keep: Option<Arc<Slab>>,
    },
    /// Of a peer that the host had closed.
    Late {
        _keep: Copied,
    },
}

/// What is to be done outside.
pub(super) enum Step {
    /// The host is to read this, and then to say that it has.
    Deliver {
        from: EndpointId,
        tag: u8,
        bytes: Lent,
        buffer: Delivered,
    },
    Done(Cookie, Result<()>),
    /// A peer is lost, with all that was for it.
    Lost {
        id: EndpointId,
        name: u64,
        why: Reason,
        cookies: Vec<Cookie>,
    },
    /// A process that is not known here wants to connect.
    Stranger(u64),
    /// There was no memory for so many bytes that were to be registered; the words behind the number.
    Short(usize, &'static str),
    /// There was none for so many that messages need: what nobody uses is to go. `refused`: bytes that were asked for in vain.
    Room {
        wanted: usize,
        refused: usize,
    },
    /// A queue that all connections have in common has failed.
    Failed,
}

/// Spreads the numbers of queue pairs, which our own device gives, over a table.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Everything that a module has of its peers.
pub(super) struct State {
    pub(super) desk: Desk,
    /// By their places, of which none is used again.
    pub(super) peers: Peers,
    pub(super) names: HashMap<u64, u32>,
    /// Where the process listens for itself, and the place of the far end of its connection to itself.
    pub(super) loopback: Option<Loopback>,
    pub(super) far: Option<u32>,
    /// Whose a queue pair is, by its number: the place, the attempt and the queue.
    pub(super) lines: HashMap<u32, (u32, Attempt, u8), BuildHasherDefault<Spread>>,
    pub(super) news: VecDeque<Step>,
    pub(super) module: usize,
    pub(super) office: Arc<Office>,
    pub(super) mail: Arc<Mail>,
    pub(super) clock: Clock,
    pub(super) completions: Vec<Arc<Cq>>,
    pub(super) batch: Box<[Completion]>,
    /// Completions of the batch: the next one, and how many there are.
    pub(super) next: usize,
    pub(super) came: usize,
    /// The completion queue that is looked at next in this pass.
    pub(super) cursor: usize,
    /// Something has come in this pass.
    pub(super) is_busy: bool,
    /// It is to be looked at shared queues: buffers are to be posted, or peers wait for some or have just got some.
    pub(super) has_due: bool,
    pub(super) touched: Vec<u32>,
    pub(super) stalled: Vec<u32>,
    /// Short messages that the host is reading, and buffers of queue pairs that have gone meanwhile.
    pub(super) reading: usize,
    pub(super) kept: Vec<Arc<Slab>>,
    pub(super) late: Late,
    /// Peers whose queue pairs are to be let go of.
    pub(super) leaving: Vec<(u32, Attempt)>,
    pub(super) departing: Vec<Departing>,
    /// Room in completion queues that queue pairs had, when those were last empty.
    pub(super) vacated: Vec<(usize, usize)>,
    /// There is someone of all those who leave.
    pub(super) is_seeing_off: bool,
    /// The host has been told that a queue has failed.
    pub(super) has_told_failure: bool,
    /// The queue pairs of a letter that is being read.
    pub(super) at_hand: Vec<Arc<Line>>,
    pub(super) turns: u32,
    pub(super) ticked: u64,
    pub(super) patience: Option<u64>,
    /// How long a peer has to answer to which the kernel knows no way.
    pub(super) answer: u64,
    pub(super) settings: (cm::Queues, cm::Wire),
    /// How a message ends that a peer has not received which has ended the connection. At the end of a job nobody wants it; where
    /// peers meet again, its sender is to know.
    pub(super) unheard: Result<()>,
}

impl State {
    pub(super) fn new(
        module: usize,
        port: &Arc<Port>,
        office: &Arc<Office>,
        counters: &Arc<Counters>,
        (config, clock): (&Config, Clock),
        settings: (cm::Queues, cm::Wire),
        loopback: Option<Loopback>,
    ) -> Self {
        let queues = port.queues.all().iter();
        let pools = queues.clone().map(|queue| Pool::new(queue.size, config.buffers)).collect();
        let shared = queues.zip(&port.shared).enumerate().map(|(index, (queue, shared))| match queue.kind {
            Kind::Private { .. } => None,
            Kind::Shared { initial, .. } => {
                shared.as_ref().map(|shared| Shared::new(shared, index, queue.size, queue.depth, initial))
            }
        });
        let desk = Desk {
            port: Arc::clone(port),
            pools,
            shared: shared.collect(),
            counters: Arc::clone(counters),
            credits: port.queues.credits(),
            longest: port.longest,
        };
        Self {
            desk,
            peers: Peers::default(),
            names: HashMap::new(),
            loopback,
            far: None,
            lines: HashMap::default(),
            news: VecDeque::new(),
            module,
            office: Arc::clone(office),
            mail: Arc::clone(&office.mails[module]),
            clock,
            completions: Vec::new(),
            batch: vec![Completion::default(); config.batch].into(),
            next: 0,
            came: 0,
            cursor: 0,
            is_busy: false,
            has_due: false,
            touched: Vec::new(),
            stalled: Vec::new(),
            reading: 0,
            kept: Vec::new(),
            late: Late::default(),
            leaving: Vec::new(),
            departing: Vec::new(),
            vacated: Vec::new(),
            is_seeing_off: false,
            has_told_failure: false,
            at_hand: Vec::new(),
            turns: 0,
            ticked: 0,
            patience: config.patience.map(|patience| patience.as_nanos() as u64),
            answer: config.answer().as_nanos() as u64,
            settings,
            unheard: Ok(()),
        }
    }

    /// Makes a peer known; the same one if it is already, and has not been closed.
    pub(super) fn add(&mut self, name: u64, peer: cm::Peer, served: u8) -> Result<EndpointId> {
        if let Some(&at) = self.names.get(&name)
            && let Some(known) = self.peers.get(at as usize).filter(|known| !known.says_bye)
        {
            return Ok(known.id);
        }
        let own = (self.module as u8, self.desk.port.at);
        let at = self.insert(name, own, peer, served)?;
        self.names.insert(name, at);
        self.hand_over(name, Peers::id(at));
        Ok(Peers::id(at))
    }

    /// Makes one known that is met at a listener of ours; its place.
    pub(super) fn insert(
        &mut self,
        name: u64,
        (listener, own): Loopback,
        peer: cm::Peer,
        served: u8,
    ) -> Result<u32> {
        let at =
            u32::try_from(self.peers.len()).ok().filter(|at| *at < 1 << 24).ok_or(Error::OutOfResource)?;
        let (queues, wire) = self.settings;
        let own = (own, self.desk.port.dialect);
        let machine = cm::Endpoint::new(number(self.module, at), listener, own, peer, wire, queues);
        let served = usize::from(served.min(self.desk.port.reads[1]).max(1));
        self.peers.push(Peer::new(Peers::id(at), name, machine, self.desk.port.queues.len(), served));
        self.drive(at);
        Ok(at)
    }

    /// The place of an endpoint that there is.
    #[inline]
    pub(super) fn place(&self, id: EndpointId) -> Option<u32> {
        let at = id.index();
        let peer = self.peers.get(at)?;
        (peer.id == id && !peer.is_closed).then_some(at as u32)
    }

    /// The same of one that the host has.
    #[inline]
    pub(super) fn reached(&self, id: EndpointId) -> Option<u32> {
        self.place(id).filter(|at| self.far != Some(*at))
    }

    #[inline]
    pub(super) fn peer(&mut self, id: EndpointId) -> Option<&mut Peer> {
        let at = self.place(id)?;
        self.peers.get_mut(at as usize)
    }

    #[inline]
    pub(super) fn at(&mut self, place: u32) -> Option<&mut Peer> {
        self.peers.get_mut(place as usize)
    }

    /// It is going to be looked at what waits for a peer.
    #[inline]
    pub(super) fn touch(&mut self, place: u32) {
        if self.peers.touch(place as usize) {
            self.touched.push(place);
        }
    }

    /// Does what a peer's machine says.
    pub(super) fn drive(&mut self, place: u32) {
        while let Some(step) = self.at(place).and_then(|peer| peer.machine.poll_step()) {
            match step {
                cm::Step::Order(order) => self.office.order(order),
                cm::Step::PostReceives { attempt, token, .. } => self.begin(place, (attempt, token)),
                cm::Step::SendCts { attempt } => {
                    let Self { desk, peers, .. } = self;
                    let Some(peer) = peers.get_mut(place as usize) else { return };
                    match peer.connection.as_mut().map(|connection| connection.send_cts(desk)) {
                        Some(Ok(())) => {
                            desk.counters.num_cts_sent.add(1);
                            peer.machine.handle_cts_posted(attempt);
                        }
                        _ => peer.machine.handle_broken(attempt, Reason::Broken),
                    }
                }
                cm::Step::Connected { open, .. } => self.connected(place, open),
                cm::Step::Opened { .. } => self.touch(place),
                cm::Step::Failed(reason) => {
                    let Some(peer) = self.at(place) else { return };
                    peer.failure = Some(reason);
                    // It has ended without ever having been connected: there is no other word of it.
                    peer.has_said_bye |= reason == Reason::Refused(Refusal::Closing);
                    if peer.connection.is_none() && peer.departing == 0 {
                        self.give_up(place);
                    }
                }
                cm::Step::LetGo { attempt } => {
                    if let Some(connection) = self.at(place).and_then(|peer| peer.connection.as_mut()) {
                        connection.is_ending = true;
                    }
                    self.leaving.push((place, attempt));
                    self.is_seeing_off = true;
                }
                cm::Step::Closed => {
                    // Its process may have been made known again meanwhile.
                    if let Some(peer) = self.peers.take(place as usize)
                        && self.names.get(&peer.name) == Some(&place)
                    {
                        self.names.remove(&peer.name);
                    }
                }
            }
        }
    }

    /// All queues are up.
    fn begin(&mut self, place: u32, (attempt, token): (Attempt, u32)) {
        let lines = std::mem::take(&mut self.at_hand);
        if self.desk.port.has_failed() {
            self.lose(place, attempt);
            return;
        }
        self.has_due = true;
        let now = self.clock.nanos();
        let is_whole = lines.len() == self.desk.port.queues.len();
        let numbers: Vec<u32> = lines.iter().map(|line| line.pair.number()).collect();
        let code = self.receiver_not_ready();
        for line in &lines {
            // Of consequence to RoCE and InfiniBand only.
            let _ = line.pair.set_receiver_not_ready_delay(code);
        }
        let made = if is_whole {
            Connection::begin(place, (attempt, token), lines, &mut self.desk, now)
        } else {
            Err(Error::NotFound)
        };
        let patience = self.patience.unwrap_or(u64::MAX).min(BARREN);
        let Some(peer) = self.at(place) else { return };
        match made {
            Ok(connection) => {
                peer.connection = Some(connection);
                (peer.is_corrupt, peer.is_starved, peer.barren) = (false, false, None);
                peer.machine.handle_receives_posted(attempt);
                for (queue, line) in numbers.into_iter().enumerate() {
                    self.lines.insert(line, (place, attempt, queue as u8));
                }
            }
            Err(error) => {
                peer.is_starved = error == Error::OutOfResource;
                peer.barren = peer.is_starved.then(|| peer.barren.unwrap_or(now));
                if peer.barren.is_some_and(|since| now - since >= patience) {
                    peer.machine.handle_hopeless(attempt, Reason::NoMemory);
                } else {
                    peer.machine.handle_broken(attempt, Reason::Broken);
                }
                // What a part of it was lent is others'.
                for shared in self.desk.shared.iter_mut().flatten() {
                    shared.lender.close(place as usize);
                }
            }
        }
    }

    fn receiver_not_ready(&self) -> u8 {
        self.desk.port.receiver_not_ready
    }

    /// Both sides have said that they are ready.
    fn connected(&mut self, place: u32, open: bool) {
        let Self { desk, peers, .. } = self;
        let credits = desk.port.queues.credits();
        let Some(peer) = peers.get_mut(place as usize) else { return };
        let Some(connection) = &mut peer.connection else { return };
        connection.is_connected = true;
        peer.has_said_bye = false;
        peer.is_draining = peer.says_bye;
        if connection.openib.is_some() {
            desk.counters.num_connected.add(1);
            desk.counters.num_initiated.add(u64::from(peer.machine.role() == cm::Role::Initiator));
            self.touch(place);
            return;
        }
        let remote = connection.words.remote(0);
        let limits = connection.limits(desk);
        desk.counters.num_connected.add(1);
        desk.counters.num_initiated.add(u64::from(peer.machine.role() == cm::Role::Initiator));
        let hello = Control::Hello { address: remote.address, key: remote.key, limits };
        peer.pending[credits].push_front(Item::Control(hello));
        if open {
            let others = peer.pending.iter_mut().enumerate().filter(|(queue, _)| *queue != credits);
            others.for_each(|(_, pending)| pending.push_front(Item::Control(Control::Open)));
        }
        self.touch(place);
    }

    /// A peer that never was connected, or is not any more, is lost.
    pub(super) fn give_up(&mut self, place: u32) {
        let has_failed = self.desk.port.has_failed();
        let Some(peer) = self.at(place) else { return };
        let Some(why) = peer.failure else { return };
        let why = match (peer.is_corrupt, peer.is_starved) {
            (true, _) => Reason::Malformed,
            (_, true) => Reason::NoMemory,
            // Over iWARP the peer may end what nothing can be received by, before that is known here.
            _ if has_failed => Reason::QueueFailed,
            _ => why,
        };
        peer.is_lost = true;
        let (id, name, was_over) = (peer.id, peer.name, peer.has_said_bye || peer.says_bye && !peer.is_cut);
        let (is_open, mut dead) = (peer.is_open, std::mem::take(&mut peer.dead));
        if was_over {
            // What a peer that has ended did not serve was not done; messages to it are nobody's any more.
            dead.extend(peer.transfers.drain(..).map(|transfer| transfer.cookie));
        }
        let mut cookies = peer.drop_pending();
        if was_over || !is_open {
            self.news.extend(cookies.into_iter().map(|cookie| Step::Done(cookie, self.unheard)));
            self.news.extend(dead.into_iter().map(|cookie| Step::Done(cookie, Err(Error::Unreachable))));
        } else {
            cookies.splice(0..0, dead);
            self.desk.counters.num_failed.add(1);
            if has_failed {
                self.tell_failure();
            }
            self.news.push_back(Step::Lost { id, name, why, cookies });
        }
    }

    /// Reads what the connection thread says.
    #[cold]
    pub(super) fn read_mail(&mut self) {
        let office = Arc::clone(&self.office);
        while let Some(letter) = office.mails[self.module].take() {
            let waited = self.clock.nanos().saturating_sub(letter.at) / 1000;
            let endpoint = match &letter.notice {
                Notice::Up { endpoint, .. } => {
                    self.desk.counters.max_handover_us.raise(waited);
                    *endpoint
                }
                Notice::Down { endpoint, .. }
                | Notice::Failed { endpoint, .. }
                | Notice::Closed { endpoint } => *endpoint,
                Notice::Doubted { endpoint, attempt } => {
                    let (_, at) = place(*endpoint);
                    let connection = self.at(at).and_then(|peer| peer.connected());
                    if let Some(connection) = connection.filter(|connection| connection.attempt == *attempt) {
                        connection.signs.doubt();
                    }
                    continue;
                }
                Notice::Unknown { process, .. } => {
                    self.news.push_back(Step::Stranger(*process));
                    continue;
                }
                Notice::Finished => continue,
            };
            let (_, at) = place(endpoint);
            if let Notice::Down { attempt, .. } = &letter.notice {
                self.part_if_quiet(at, *attempt);
            }
            self.at_hand = letter.lines;
            if let Some(peer) = self.at(at) {
                peer.machine.handle_notice(letter.notice);
            }
            self.drive(at);
            self.at_hand.clear();
        }
        let counted = *self.office.counters.lock();
        let counters = &self.desk.counters;
        counters.num_attempts.set(counted.attempts + counted.answers);
        counters.num_kicks.set(counted.kicks);
        counters.num_rejects.set(counted.rejections);
        counters.num_rejected.set(counted.rejected);
    }

    /// A queue pair does not work any more.
    #[cold]
    pub(super) fn broken(&mut self, place: u32, attempt: Attempt, why: cm::Reason) {
        self.part_if_quiet(place, attempt);
        if let Some(peer) = self.at(place) {
            peer.machine.handle_broken(attempt, why);
        }
        self.drive(place);
    }

    #[cold]
    pub(super) fn break_off(&mut self, place: u32, broken: Broken) {
        if broken == Broken::Corrupt {
            self.desk.counters.num_corrupt.add(1);
            if let Some(peer) = self.at(place) {
                peer.is_corrupt = true;
            }
        }
        let why = match broken {
            Broken::Silent => Reason::Unreachable,
            Broken::Memory => Reason::NoMemory,
            Broken::Post | Broken::Corrupt => Reason::Broken,
        };
        let attempt = self.at(place).and_then(|peer| Some(peer.connection.as_ref()?.attempt));
        if let Some(attempt) = attempt {
            self.broken(place, attempt, why);
        }
    }

    /// When something was last looked at, by the clock.
    pub(super) fn ticked(&self) -> u64 {
        self.ticked
    }

    /// The attempt of a number, if it is the present one.
    #[inline]
    pub(super) fn present(&mut self, place: u32, attempt: u16) -> Option<&mut Connection> {
        self.at(place)?.connection.as_mut().filter(|connection| connection.is_of(attempt))
    }

    /// What there is to say about a peer.
    pub(super) fn describe(&mut self, id: EndpointId) -> Option<String> {
        let peer = self.peer(id)?;
        Some(format!(
            "{}: {:?}; {} messages wait",
            super::component::title(peer.name),
            peer.machine.state(),
            peer.queued()
        ))
    }
}
