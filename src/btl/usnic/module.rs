//! One module: one engine over one link.

mod breakage;
mod incoming;
mod outgoing;
mod peers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::incoming::Work;
use super::Upcalls;
use super::agent::Watch;
use super::routes::Routes;
use super::statistics::{Statistics, Told};
use crate::btl::{Lent, Sending};
use crate::config;
use crate::engine::{
    self, Channel, Cookie, End, EndpointId, Engine, Event, Fragment, Header, Identity, Instant, LiveCounters,
    PeerFacts, Registration, Transmit,
};
use crate::error::Result;
use crate::link::{Arrivals, Clock, Datagram, Inbox, Link};
use crate::sync::EngineCell;
use crate::wire::coalesced::can_be_followed;
use crate::wire::modex::{Address, Protection};
use crate::wire::usnic::HEADER_LEN;

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
    /// How long whoever closes one waits for the peer.
    hearing: Duration,
    /// When the link was last looked at, as far as the clock was.
    looked: Instant,
    /// Batches that are still read in this call, because much may have come while nobody looked.
    catching_up: u8,
    /// Messages that are still received one by one in this call, where it is guessed what comes.
    landings: u8,
    /// Bytes of those in this call.
    landed: usize,
    /// Datagrams that the last look at the channels brought.
    came: usize,
    /// Datagrams handled in this pass.
    handled: u32,
    /// Short messages that were sent since the last turn.
    row: u32,
    /// A packet on its way to others in one datagram.
    packet: Vec<u8>,
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

/// So many datagrams are handled in no time.
const FEW: u32 = 4;

/// Bytes that are handed to the network at once: as many as one offloaded message carries (an IPv6 packet less
/// its headers). What is sealed later says when it left, and the peer has something to do meanwhile.
pub(super) const AT_ONCE: usize = 65_487;

/// Bytes of the longest packet that shares a datagram, without the tag behind one that is protected: with a payload of
/// 256 bytes, and what the host puts before it. Four of them have room in a frame of 1500 bytes.
const SHARED: usize = HEADER_LEN + 256 + 24;

/// Whether a packet may share a datagram with others of a row: shared ones are of the priority channel, and what is sent
/// again is not.
#[inline]
pub(super) fn may_share(packet: &Transmit<Lent>) -> bool {
    packet.channel == Channel::Priority && packet.len() <= SHARED && can_be_followed(&packet.header)
}

/// How long a module counts as used after something was sent or received, in nanoseconds.
const BUSY: u64 = 1_000_000;

impl Module {
    /// Opens a module over a link. `key` must be secret. The agent knows the module by `watch`.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub fn open(
        link: Box<dyn Link + Send>,
        name: u64,
        incarnation: u32,
        key: [u8; 16],
        config: &config::Usnic,
        watch: Watch,
    ) -> Result<Self> {
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
        let clock = link.clock();
        let now = Instant::from_nanos(clock.nanos());
        let mut engine = Engine::new(config, identity, limits.receive_capacity, now)?;
        if !link.coalesces() {
            engine.send_each_alone();
        }
        let counters = engine.live_counters();
        let state = State {
            engine,
            link,
            inbox: Inbox::new(),
            arrivals: Arrivals::new(clock),
            again: None,
            short: Header::EMPTY,
            routes: Routes::default(),
            closed: VecDeque::new(),
            hearing: peers::CLOSING,
            looked: Instant::ORIGIN,
            catching_up: 0,
            landings: 0,
            landed: 0,
            came: 0,
            handled: 0,
            row: 0,
            packet: Vec::new(),
            turns: 0,
            data_turns: 0,
            busy_until: Instant::ORIGIN,
            is_quiet: false,
            is_broken: false,
            watch,
            statistics: None,
        };
        Ok(Self { state: EngineCell::new(state), address, clock, counters })
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
    /// [`Error::Unreachable`](crate::error::Error::Unreachable) when the peer is lost.
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

    /// Makes room for one more registration.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub fn reserve(&self) -> Result<()> {
        self.state.with(|state| state.engine.reserve_registration())
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
    /// [`Error::Unreachable`](crate::error::Error::Unreachable) when the peer is lost.
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
    /// [`Error::Unreachable`](crate::error::Error::Unreachable) when the peer is lost.
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

    /// The last line of the statistics, if any are wanted.
    pub fn last_line(&self) -> Option<String> {
        self.state.with(|state| {
            let told = state.told();
            state.statistics.take().map(|mut statistics| statistics.end(told))
        })
    }

    /// What bounds the packets that short messages to a peer share.
    #[cfg(test)]
    pub(super) fn longest_datagram(&self, endpoint: EndpointId) -> usize {
        self.state.with(|state| state.engine.longest_datagram(endpoint))
    }

    /// By what a process that is lost is known to have ended.
    #[cold]
    pub fn end_of(&self, name: u64) -> Option<End> {
        self.state.with(|state| {
            let peers = state.routes.open().into_iter().filter_map(|endpoint| state.engine.peer(endpoint));
            peers.filter(|peer| peer.name == name && !peer.alive).find_map(|peer| peer.end)
        })
    }

    /// What is known about a peer.
    pub fn peer(&self, endpoint: EndpointId) -> Option<PeerFacts> {
        self.state.with(|state| state.engine.peer(endpoint))
    }

    /// Receives, delivers, acknowledges, resends. Returns how much happened.
    ///
    /// Where another thread is at it, it is left to that one: whoever waits comes again.
    pub fn progress(&self, up: &impl Upcalls) -> usize {
        if self.state.try_with(|state| state.poll(&self.clock)) != Some(true) {
            return 0;
        }
        // Not before: in a turn that finds nothing, the clock would be a tenth of the cost.
        let now = self.now();
        let mut count = 0;
        while let Some(Some(work)) = self.state.try_with(|state| state.next(now)) {
            count += 1;
            self.dispatch(work, up);
            if !up.is_here() {
                return count;
            }
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
        if let Some((_, Some(errno))) = left
            && up.is_here()
        {
            self.break_off(errno, now, up);
        }
        count
    }

    fn dispatch(&self, work: Work, up: &impl Upcalls) {
        match work {
            Work::Deliver { endpoint, tag, datagram, payload } => {
                up.deliver(endpoint, tag, &datagram[payload]);
            }
            Work::Event(Event::Deliver { endpoint, tag, buffer }) => {
                up.deliver(endpoint, tag, &buffer);
                if up.is_here() {
                    self.state.with(|state| state.engine.recycle(buffer));
                }
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
            Work::Say(line) => up.report(&line),
            Work::Stranger { name, incarnation, datagram } => {
                if self.admit(name, incarnation, up).is_ok() {
                    self.state.with(|state| state.again = Some(datagram));
                }
            }
        }
    }
}

impl State {
    /// What must be done in time, whatever has happened.
    fn tidy(&mut self, now: Instant) {
        self.is_quiet = now > self.busy_until;
        self.looked = now;
        self.engine.handle_timeout(now);
        self.transmit(now);
        self.hear_refusals(now);
        self.sweep(now);
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
}
