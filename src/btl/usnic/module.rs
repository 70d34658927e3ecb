//! One module: one engine over one link.

mod outgoing;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Upcalls;
use super::agent::{Finding, Watch};
use super::protected;
use super::routes::{Route, Routes};
use super::statistics::{Statistics, Told};
use crate::btl::{Lent, Sending};
use crate::config;
use crate::engine::{
    self, AWAY, Channel, Cookie, EndpointId, Engine, Event, Fragment, Header, Identity, Instant,
    LiveCounters, Peer, PeerFacts, Received, Registration,
};
use crate::error::{Error, Result, say};
use crate::link::{Arrivals, Clock, Datagram, Inbox, Link, place};
use crate::sync::EngineCell;
use crate::wire::coalesced::first_len;
use crate::wire::modex::{self, Address, Protection};
use crate::wire::probe::Process;

/// One module. All calls may come from any thread.
pub struct Module {
    state: EngineCell<State>,
    address: Address,
    clock: Clock,
    /// Those of the engine: whoever samples them must not have to wait for it.
    counters: Arc<LiveCounters>,
}

/// What the host must know of a module.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Longest datagram, header included.
    pub max_datagram: usize,
    /// Speed, Mbit/s.
    pub speed: u32,
}

struct State {
    engine: Engine<Lent>,
    link: Box<dyn Link + Send>,
    inbox: Inbox,
    /// When they came.
    arrivals: Arrivals,
    /// The datagram of a stranger who is connected now.
    again: Option<Datagram>,
    /// That of a short fragment that leaves.
    short: Header,
    routes: Routes,
    /// Routes of connections that are closed, and when they were.
    closed: VecDeque<(Instant, EndpointId)>,
    /// When the link was last looked at, as far as the clock was.
    looked: Instant,
    /// Batches that are still read in this call, because much may have come while nobody looked.
    catching_up: u8,
    /// Datagrams that the last look at the channels brought.
    came: usize,
    /// Datagrams handled in this pass.
    handled: u32,
    /// Copies that were sent since the last turn.
    copies: u32,
    /// Turns so far.
    turns: u32,
    /// Turns in which the data channel is looked at because something came there not long before.
    data_turns: u32,
    /// Something was sent or received not long before.
    busy_until: Instant,
    /// That is past.
    is_quiet: bool,
    /// The link is broken, and that has been told.
    is_broken: bool,
    /// The agent of the node, as far as it concerns this module.
    watch: Watch,
    /// Where the user wants lines of them.
    statistics: Option<Statistics>,
}

/// What `progress` has to do outside the engine.
enum Work {
    Deliver { endpoint: EndpointId, tag: u8, datagram: Datagram, payload: Range<usize> },
    Event(Event),
    Stranger { name: u64, incarnation: u32, datagram: Datagram },
    Say(String),
}

impl Work {
    /// What a datagram is to the host.
    #[inline]
    fn of(received: Received, datagram: Datagram) -> Option<Self> {
        match received {
            Received::Nothing => None,
            Received::Deliver { endpoint, tag, payload } => {
                Some(Self::Deliver { endpoint, tag, datagram, payload })
            }
            Received::Unknown { name, incarnation } => Some(Self::Stranger { name, incarnation, datagram }),
        }
    }
}

/// How long a closing hand-shake may take: the peers close at the same time, behind the host's fence.
const CLOSING: Duration = Duration::from_millis(250);

/// How long a closed connection may still have something to say, by the engine's `LINGER`.
const LAST_WORDS: Duration = Duration::from_millis(2_500);

/// In every so many turns the data channel is looked at, and the clock, though nothing is expected.
const FULL_TURNS: u32 = 8;

/// For so many turns after something has come on the data channel it is looked at in each of them.
const DATA_TURNS: u32 = 256;

/// Batches that are read besides in one call after a time in which nobody looked.
const CATCH_UP: u8 = 2;

/// What the first look brings where much may wait: one of each channel. More come in batches already.
const FEW_CAME: usize = 2;

/// A module that nobody uses is looked at in every so many turns. A multiple of [`FULL_TURNS`], so that
/// both channels are.
const QUIET_TURNS: u32 = 16;

/// So many datagrams are handled in no time.
const FEW: u32 = 4;

/// Bytes that are handed to the network at once: as many as one offloaded message carries (an IPv6 packet less
/// its headers). What is sealed later says when it left, and the peer has something to do meanwhile.
pub(super) const AT_ONCE: usize = 65_487;

/// How long a module counts as used after something was sent or received, in nanoseconds.
const BUSY: u64 = 1_000_000;

impl Module {
    /// Opens a module over a link. `key` must be secret. The agent knows the module by `watch`.
    pub fn open(
        link: Box<dyn Link + Send>,
        name: u64,
        incarnation: u32,
        key: [u8; 16],
        config: &config::Usnic,
        watch: Watch,
    ) -> Self {
        let limits = link.limits();
        let address = Address {
            incarnation,
            key,
            max_datagram: limits.max_datagram[Channel::Data as usize] as u32,
            speed: limits.speed_mbps,
            protection: if config.protect_payload { Protection::AES_128_GCM } else { Protection::NONE },
            name: link.name(),
            agent: watch.own().cloned(),
        };
        let identity = Identity { name, incarnation, key };
        let mut engine = Engine::new(config, identity, limits.receive_capacity, Instant::ORIGIN);
        if !link.coalesces() {
            engine.send_each_alone();
        }
        let counters = engine.live_counters();
        let clock = Clock::new();
        let state = State {
            engine,
            link,
            inbox: Inbox::new(),
            arrivals: Arrivals::new(clock),
            again: None,
            short: Header::EMPTY,
            routes: Routes::default(),
            closed: VecDeque::new(),
            looked: Instant::ORIGIN,
            catching_up: 0,
            came: 0,
            handled: 0,
            copies: 0,
            turns: 0,
            data_turns: 0,
            busy_until: Instant::ORIGIN,
            is_quiet: false,
            is_broken: false,
            watch,
            statistics: None,
        };
        Self { state: EngineCell::new(state), address, clock, counters }
    }

    /// What is published so that peers reach this module.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the host must know of it.
    pub fn facts(&self) -> Facts {
        Facts { max_datagram: self.address.max_datagram as usize, speed: self.address.speed }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.nanos())
    }

    /// How far an address of a peer is.
    pub fn distance(&self, address: &Address) -> Option<u32> {
        self.state.with(|state| state.link.distance(&address.name))
    }

    /// Makes a peer known under one of its addresses. The same address twice is the same endpoint.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the link does not understand the address.
    pub fn connect(&self, name: u64, address: &Address) -> Result<EndpointId> {
        let now = self.now();
        self.state.with(|state| state.connect(name, address, now))
    }

    /// Ends connections: what is queued is sent first, and the peers are told. After `CLOSING`
    /// whoever has not answered is forgotten.
    pub fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        let begin = self.now();
        self.state.with(|state| {
            for &endpoint in endpoints {
                state.engine.close(endpoint, begin);
            }
            state.transmit(begin);
        });
        let is_open = |endpoint: &EndpointId| {
            self.state.with(|state| state.routes.find(*endpoint).is_some_and(|route| !route.is_closed))
        };
        while endpoints.iter().any(is_open) {
            if Duration::from_nanos(self.now().nanos() - begin.nanos()) > CLOSING {
                endpoints.iter().for_each(|&endpoint| self.forget(endpoint));
                return;
            }
            self.progress(up);
        }
    }

    /// Forgets a peer at once; what was under way ends with an error.
    pub fn forget(&self, endpoint: EndpointId) {
        self.state.with(|state| {
            state.engine.forget(endpoint);
            state.release(endpoint);
        });
    }

    /// What there is to say about the module, or about one endpoint of it.
    pub fn describe(&self, endpoint: Option<EndpointId>) -> Vec<String> {
        self.state.with(|state| match endpoint {
            None => {
                let mut lines =
                    vec![format!("{:?}", state.engine.counters()), format!("{:?}", state.link.counters())];
                lines.extend(state.watch.describe());
                lines
            }
            Some(endpoint) => {
                state.engine.peer(endpoint).map(|peer| format!("{peer:?}")).into_iter().collect()
            }
        })
    }

    /// Sends a fragment, now if the window allows.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the peer is lost.
    #[inline]
    pub fn send(&self, endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        let now = self.now();
        self.state.with(|state| {
            if state.engine.send_copy(endpoint, &fragment, now, &mut state.short) {
                state.hand_over_copy(endpoint, now);
                return Ok(Sending::Over);
            }
            match state.engine.send_at_once(endpoint, fragment, now)? {
                Some(datagram) => state.hand_over(&datagram, now),
                None => state.transmit(now),
            }
            Ok(Sending::UnderWay)
        })
    }

    /// Opens memory to the peers' PUTs and GETs, as `access` says.
    pub fn register(&self, memory: Lent, access: engine::Access) -> Registration {
        self.state.with(|state| state.engine.register(memory, access))
    }

    /// Closes it again.
    pub fn deregister(&self, registration: Registration) {
        self.state.with(|state| state.engine.deregister(registration));
    }

    /// Writes to a peer's memory.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the peer is lost.
    pub fn put(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<()> {
        self.ask(|engine, now| engine.put(endpoint, local, remote.0, remote.1, cookie, now))
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the peer is lost.
    pub fn get(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<()> {
        self.ask(|engine, now| engine.get(endpoint, local, remote.0, remote.1, cookie, now))
    }

    /// Asks the engine for something, and sends what it can send at once.
    fn ask(&self, what: impl FnOnce(&mut Engine<Lent>, Instant) -> Result<()>) -> Result<()> {
        let now = self.now();
        self.state.with(|state| {
            what(&mut state.engine, now)?;
            state.transmit(now);
            Ok(())
        })
    }

    /// The engine's counters, to be read at any time by any thread.
    pub fn counters(&self) -> &LiveCounters {
        &self.counters
    }

    /// Prints statistics from now on, out of [`progress`](Self::progress).
    pub fn print(&self, statistics: Statistics) {
        self.state.with(|state| state.statistics = Some(statistics));
    }

    /// Prints the last of the statistics, if any are wanted.
    pub fn print_last(&self) {
        let line = self.state.with(|state| {
            let told = state.told();
            state.statistics.take().map(|mut statistics| statistics.end(told))
        });
        if let Some(line) = line {
            say(format_args!("{line}"));
        }
    }

    /// What bounds the packets that short messages to a peer share.
    #[cfg(test)]
    pub(super) fn longest_datagram(&self, endpoint: EndpointId) -> usize {
        self.state.with(|state| state.engine.longest_datagram(endpoint))
    }

    /// What is known about a peer.
    pub fn peer(&self, endpoint: EndpointId) -> Option<PeerFacts> {
        self.state.with(|state| state.engine.peer(endpoint))
    }

    /// Receives, delivers, acknowledges, resends. Returns how much happened.
    ///
    /// Where another thread is at it, it is left to that one: whoever waits comes again.
    pub fn progress(&self, up: &impl Upcalls) -> usize {
        if self.state.try_with(State::poll) != Some(true) {
            return 0;
        }
        // Not before: in a turn that finds nothing, the clock would be a tenth of the cost.
        let now = self.now();
        let mut count = 0;
        while let Some(Some(work)) = self.state.try_with(|state| state.next(now)) {
            count += 1;
            self.dispatch(work, up);
        }
        let left = self.state.try_with(|state| {
            // Many datagrams take time to handle, and what leaves now says when it left.
            let now = if std::mem::take(&mut state.handled) > FEW { self.now() } else { now };
            state.tidy(now);
            (state.watch.is_due(now), state.breakage())
        });
        if let Some((true, _)) = left {
            self.look_around(now, up);
        }
        if let Some((_, Some(errno))) = left {
            self.break_off(errno, now, up);
        }
        count
    }

    /// No datagram comes or goes any more. The user hears it first, and then of all peers that they are lost.
    #[cold]
    fn break_off(&self, errno: i32, now: Instant, up: &impl Upcalls) {
        let peers = self.state.with(|state| {
            let name = |endpoint| Some((endpoint, state.engine.peer(endpoint)?.name));
            state.routes.open().into_iter().filter_map(name).collect::<Vec<_>>()
        });
        up.broken(errno, place(&self.address.name), &peers);
        let give_up = |state: &mut State| {
            peers.iter().for_each(|&(endpoint, _)| state.engine.give_up(endpoint, now));
        };
        self.state.with(give_up);
    }

    /// Hears what the agent has to say.
    #[cold]
    fn look_around(&self, now: Instant, up: &impl Upcalls) {
        let found = self.state.try_with(|state| state.watch.turn(&mut state.engine, now));
        for finding in found.unwrap_or_default() {
            self.report(&finding, up);
        }
    }

    /// Some datagrams do not reach a peer. The user hears it first, and then the loss.
    fn report(&self, finding: &Finding, up: &impl Upcalls) {
        let Some(peer) = self.peer(finding.endpoint) else { return };
        up.unreached(peer.name, finding);
        if finding.is_fatal {
            let now = self.now();
            self.state.with(|state| state.engine.give_up(finding.endpoint, now));
        }
    }

    fn dispatch(&self, work: Work, up: &impl Upcalls) {
        match work {
            Work::Deliver { endpoint, tag, datagram, payload } => {
                up.deliver(endpoint, tag, &datagram[payload]);
            }
            Work::Event(Event::Deliver { endpoint, tag, buffer }) => {
                up.deliver(endpoint, tag, &buffer);
                self.state.with(|state| state.engine.recycle(buffer));
            }
            Work::Event(Event::Done { cookie, outcome }) => up.done(cookie, outcome),
            Work::Event(Event::Lost { endpoint }) => {
                let name = self.peer(endpoint).map_or(0, |peer| peer.name);
                up.lost(endpoint, name);
            }
            Work::Event(Event::Silent { endpoint }) => {
                let now = self.now();
                self.state.with(|state| state.watch.ask(endpoint, now));
            }
            Work::Event(Event::Closed { endpoint }) => {
                let now = self.now();
                self.state.with(|state| state.close(endpoint, now));
            }
            Work::Event(Event::Over { name, incarnation, reset }) => {
                // Whoever cannot be reached now asks again.
                let _ = self.answer(name, incarnation, &reset, up);
            }
            Work::Say(line) => say(format_args!("{line}")),
            Work::Stranger { name, incarnation, datagram } => {
                if self.admit(name, incarnation, up).is_ok() {
                    self.state.with(|state| state.again = Some(datagram));
                }
            }
        }
    }

    /// A process that is not connected has sent something authentic: it has published a modex record.
    #[cold]
    fn admit(&self, name: u64, incarnation: u32, up: &impl Upcalls) -> Result<EndpointId> {
        self.connect(name, &published(name, incarnation, up)?)
    }

    /// Sends one datagram to a process that is not connected.
    #[cold]
    fn answer(&self, name: u64, incarnation: u32, datagram: &Header, up: &impl Upcalls) -> Result<()> {
        let address = published(name, incarnation, up)?;
        self.state.with(|state| {
            let to = state.link.resolve(&address.name)?;
            state.link.send(Channel::Priority, to, datagram, &[]);
            state.link.release(to);
            Ok(())
        })
    }
}

/// What a process has published of this life.
fn published(name: u64, incarnation: u32, up: &impl Upcalls) -> Result<Address> {
    let record = modex::parse(&up.modex_record(name)?).ok_or(Error::Unreachable)?;
    record.into_iter().find(|address| address.incarnation == incarnation).ok_or(Error::Unreachable)
}

impl State {
    fn connect(&mut self, name: u64, address: &Address, now: Instant) -> Result<EndpointId> {
        if self.link.broken().is_some() {
            return Err(Error::Unreachable);
        }
        let route = self.link.resolve(&address.name)?;
        // What is known of the path may change while the connection lasts; what the ends carry does not.
        let whole = self.link.limits().max_datagram[Channel::Data as usize];
        let max_datagram = (address.max_datagram as usize).min(whole);
        let width = self.link.max_datagram(Channel::Data, route).min(max_datagram);
        let peer = Peer { name, incarnation: address.incarnation, key: address.key, max_datagram };
        let endpoint = self.engine.connect(peer, now)?;
        if width < max_datagram {
            self.engine.handle_too_big(endpoint, width, now);
        }
        // If it is known already, the link has counted once too often; if another stood in its place, the
        // engine has forgotten that one.
        let unused = match self.routes.find(endpoint) {
            Some(_) => Some(route),
            None => self.routes.put(Route { of: endpoint, to: route, is_closed: false }).map(|old| old.to),
        };
        if let Some(unused) = unused {
            self.link.release(unused);
        }
        let process = Process { name, incarnation: address.incarnation };
        let is_near = self.link.distance(&address.name) == Some(0);
        self.watch.meet(endpoint, address.agent.as_ref(), process, width, is_near);
        Ok(endpoint)
    }

    fn release(&mut self, endpoint: EndpointId) {
        self.watch.forget(endpoint);
        if let Some(route) = self.routes.take(endpoint) {
            self.link.release(route.to);
        }
    }

    /// The connection is closed, but its last words may have to be said again.
    fn close(&mut self, endpoint: EndpointId, now: Instant) {
        if let Some(route) = self.routes.find_mut(endpoint) {
            route.is_closed = true;
            self.closed.push_back((now, endpoint));
        }
    }

    /// Lets go of the routes of connections that were closed long ago.
    fn sweep(&mut self, now: Instant) {
        while let Some(&(since, endpoint)) = self.closed.front() {
            if now.nanos().saturating_sub(since.nanos()) < LAST_WORDS.as_nanos() as u64 {
                break;
            }
            self.closed.pop_front();
            self.release(endpoint);
        }
    }

    /// Tells the engine of peers whom the network calls gone, or far away behind narrow paths.
    fn hear_refusals(&mut self, now: Instant) {
        while let Some(address) = self.link.poll_refused() {
            let gone = self.routes.at(address);
            gone.into_iter().for_each(|endpoint| self.engine.handle_gone(endpoint, now));
        }
        while let Some(address) = self.link.poll_narrowed() {
            let limit = self.link.max_datagram(Channel::Data, address);
            let narrow = self.routes.at(address);
            narrow.into_iter().for_each(|endpoint| self.engine.handle_too_big(endpoint, limit, now));
        }
    }

    /// By what the link is broken, once. To ask in each turn would be for nothing.
    fn breakage(&mut self) -> Option<i32> {
        if !self.turns.is_multiple_of(FULL_TURNS) || self.is_broken {
            return None;
        }
        let errno = self.link.broken();
        self.is_broken = errno.is_some();
        errno
    }

    /// What must be done in time, whatever has happened.
    fn tidy(&mut self, now: Instant) {
        self.is_quiet = now > self.busy_until;
        self.looked = now;
        self.engine.handle_timeout(now);
        self.transmit(now);
        self.hear_refusals(now);
        self.sweep(now);
    }

    /// The next thing to do outside.
    fn next(&mut self, now: Instant) -> Option<Work> {
        loop {
            if self.engine.has_events() {
                return self.engine.poll_event().map(Work::Event);
            }
            if let Some(datagram) = self.again.take() {
                let received = self.engine.handle_datagram(&datagram, None, now);
                if let Some(work) = Work::of(received, datagram) {
                    return Some(work);
                }
                continue;
            }
            let Some((joined, size, stamp)) = self.inbox.joined() else {
                if self.catching_up > 0 {
                    self.catch_up();
                    continue;
                }
                // What the last datagram acknowledges, somebody may wait for: not here again, but in
                // another layer, as soon as we return.
                if self.engine.has_deferred() {
                    self.engine.settle(now);
                    continue;
                }
                let is_full_turn = self.turns.is_multiple_of(FULL_TURNS);
                return if is_full_turn { self.line_due(now).map(Work::Say) } else { None };
            };
            self.busy_until = now.plus(BUSY);
            self.handled += 1;
            if now.nanos().saturating_sub(self.looked.nanos()) > AWAY {
                self.engine.note_away(now);
                self.catching_up = if self.came <= FEW_CAME { CATCH_UP } else { 0 };
            }
            self.looked = now;
            let arrived = if stamp == 0 { None } else { self.arrivals.at(stamp, now.nanos()) };
            let arrived = arrived.map(Instant::from_nanos);
            if self.engine.is_protected() {
                let (handled, received) = protected::receive(&mut self.engine, &mut self.inbox, arrived, now);
                self.handled += handled;
                match received {
                    Some((received, datagram)) => return Work::of(received, datagram),
                    None => continue,
                }
            }
            let mut alone = joined.get(..size).unwrap_or(joined);
            if joined.len() > alone.len() {
                let taken = self.engine.handle_run(joined, size, arrived, now);
                if taken > 0 {
                    self.inbox.skip_joined(taken);
                    self.handled += taken as u32;
                    continue;
                }
            } else {
                alone = alone.get(..first_len(alone)).unwrap_or(alone);
            }
            let len = alone.len();
            match self.engine.handle_datagram(alone, arrived, now) {
                Received::Nothing => {
                    let rest = if self.engine.has_refused() { size } else { len };
                    self.inbox.skip(rest);
                }
                received => {
                    let datagram = self.inbox.pop_part(len)?;
                    return Work::of(received, datagram);
                }
            }
        }
    }

    /// Reads another batch of what has come while nobody looked. After silence the first call brings a
    /// single datagram, which is all that there mostly is to one who looks all the time.
    #[cold]
    fn catch_up(&mut self) {
        self.catching_up -= 1;
        let came = Channel::BOTH.map(|channel| self.link.poll(channel, &mut self.inbox));
        if came == [0; 2] {
            self.catching_up = 0;
            self.engine.note_drained();
        }
    }

    /// The line of statistics that is due.
    fn line_due(&mut self, now: Instant) -> Option<String> {
        self.statistics.as_ref().filter(|statistics| statistics.is_due(now))?;
        let told = self.told();
        self.statistics.as_mut().map(|statistics| statistics.line(now, told))
    }

    /// What statistics tell.
    fn told(&self) -> Told {
        Told { engine: self.engine.counters(), link: *self.link.counters(), extents: self.engine.extents() }
    }

    /// Looks at the channels, a system call each; whether there is anything to do, if only to look at
    /// the clock. A module that nobody uses now is looked at less often, so that it does not slow down
    /// the others.
    fn poll(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if std::mem::take(&mut self.copies) > 1 {
            self.link.flush();
        }
        if self.is_quiet && !self.turns.is_multiple_of(QUIET_TURNS) {
            return false;
        }
        let is_full_turn = self.turns.is_multiple_of(FULL_TURNS);
        let is_expecting = self.engine.is_expecting();
        // Acknowledgements of what is long measure the round trip.
        let tiny = if is_expecting {
            self.link.poll_stamped(Channel::Priority, &mut self.inbox)
        } else {
            self.link.poll(Channel::Priority, &mut self.inbox)
        };
        self.came = tiny;
        if is_full_turn || self.data_turns > 0 || is_expecting {
            let came = self.link.poll(Channel::Data, &mut self.inbox);
            self.data_turns = if came > 0 { DATA_TURNS } else { self.data_turns.saturating_sub(1) };
            self.came += came;
            if self.came == 0 {
                self.engine.note_drained();
            }
        }
        is_full_turn
            || !self.inbox.is_empty()
            || self.again.is_some()
            || self.engine.has_events()
            || self.engine.owes()
    }
}
