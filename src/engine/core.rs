//! The engine itself: its tables and lists, its clock, and what is asked of it directly.
//!
//! Here is only what spans connections: tables, the lists of those with work, memory, the clock, and what belongs
//! to the datagram or the pass that is at hand.

use super::ack_queue::AckQueue;
use super::assembler::Pool;
use super::clock::Clock;
use super::closed::ClosedConnections;
use super::counters::{Counters, LiveCounters};
use super::endpoint::{Endpoint, Phase};
use super::flow::ReceiveBudget;
use super::interface::{Buffer, Channel, EndpointId, Event, Identity, Memory, Peer, PeerFacts};
use super::landing::Landings;
use super::limits::Limits;
use super::lists::Lists;
use super::memory::Registry;
use super::operation::Operation;
use super::packet::Reception;
use super::pass::Pass;
use super::protection::ModuleProtection;
use super::send_window::{Segment, State};
use super::slab::{Key, Slab};
use super::time::Instant;
use super::timers::Timer;
use super::wheel::Wheel;
use crate::config;
use crate::error::{Error, Result};
use crate::wire::protection::Sender;
use crate::wire::usnic::MAX_HEADER_LEN;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The shortest datagram worth connecting for.
const LEAST_DATAGRAM: usize = MAX_HEADER_LEN + 32;
/// A slot on the wire: place in the table and one, and above these bits part of the generation.
pub(super) const SLOT_BITS: u32 = 20;

/// The engine of one module: all its peers, over one link.
pub struct Engine<M> {
    pub(super) limits: Limits,
    pub(super) identity: Identity,
    pub(super) counters: Arc<LiveCounters>,

    pub(super) endpoints: Slab<Endpoint>,
    pub(super) names: HashMap<(u64, u32), u32>,
    pub(super) closed: ClosedConnections,
    pub(super) operations: Slab<Operation<M>>,
    pub(super) registry: Registry<M>,
    pub(super) landings: Landings,
    pub(super) pool: Pool,
    /// Where packets are protected.
    pub(super) protection: Option<Box<ModuleProtection>>,
    pub(super) events: VecDeque<Event>,

    pub(super) lists: Lists,
    pub(super) acks: AckQueue,
    pub(super) timers: Wheel,
    pub(super) budget: ReceiveBudget,

    pub(super) clock: Clock,
    pub(super) pass: Pass,
    pub(super) reception: Reception,
    /// Chunked data under way, GETs and holes: reasons to look at the data channel.
    pub(super) expected: u64,
}

impl<M: Memory> Engine<M> {
    /// `receive_capacity` is what the link's receive buffers hold, in bytes of long datagrams.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]: there is no memory for it.
    pub fn new(
        config: &config::Usnic,
        identity: Identity,
        receive_capacity: usize,
        now: Instant,
    ) -> Result<Self> {
        Ok(Self {
            limits: Limits::new(config),
            protection: config.protect_payload.then(|| Box::new(ModuleProtection::new(&identity.key))),
            identity,
            counters: Arc::default(),
            endpoints: Slab::new(),
            names: HashMap::new(),
            closed: ClosedConnections::default(),
            operations: Slab::new(),
            registry: Registry::new(),
            landings: Landings::default(),
            pool: Pool::new(config.reassembly_per_peer, config.reassembly_total),
            events: VecDeque::new(),
            lists: Lists::default(),
            acks: AckQueue::new(),
            timers: Wheel::new()?,
            budget: ReceiveBudget::new(receive_capacity as u64),
            clock: Clock::new(now),
            pass: Pass::new(),
            reception: Reception::new(),
            expected: 0,
        })
    }

    /// Each short message has a datagram of its own here, also in a row of them.
    pub fn send_each_alone(&mut self) {
        self.limits.coalesces = false;
    }

    /// Where a peer has ended the connection in good order, and this side has kept it, what is sent to the peer begins the
    /// next one here: whether it is wanted there is the peer's to say. Otherwise it belongs to the connection that has ended.
    pub fn meet_again(&mut self) {
        self.limits.meets_again = true;
    }

    /// Connects to a peer; the one that is connected already when it is.
    pub fn connect(&mut self, peer: Peer, now: Instant) -> Result<EndpointId> {
        self.settle(now);
        let name = (peer.name, peer.incarnation);
        if let Some(&index) = self.names.get(&name) {
            let live = self.endpoints.at(index).is_some_and(Endpoint::is_live);
            if let (true, Some(key)) = (live, self.endpoints.key(index)) {
                return Ok(EndpointId(key));
            }
            self.remove(index);
        }
        let max_datagram =
            peer.max_datagram.saturating_sub(self.limits.trailer).min(self.limits.max_datagram);
        if max_datagram < LEAST_DATAGRAM {
            return Err(Error::BadParameter);
        }
        if self.endpoints.len() + 1 >= 1 << SLOT_BITS {
            return Err(Error::OutOfResource);
        }
        let endpoint = self.fresh_endpoint(Peer { max_datagram, ..peer })?;
        let key = self.endpoints.insert(endpoint);
        if let Some(endpoint) = self.endpoints.at_mut(key.index) {
            endpoint.ids.own_slot = key.generation << SLOT_BITS | (key.index + 1);
            endpoint.note_names(&self.identity);
        }
        self.names.insert(name, key.index);
        Ok(EndpointId(key))
    }

    /// A connection that nothing was heard of yet, and that has no slot. What is known of earlier ones counts.
    pub(super) fn fresh_endpoint(&mut self, peer: Peer) -> Result<Endpoint> {
        let mut endpoint = Endpoint::new(peer, self.limits.window, self.limits.retransmit, self.clock.now());
        endpoint.send.coalesces = self.limits.coalesces;
        if let Some(closed) = self.closed.get((peer.name, peer.incarnation)) {
            endpoint.ids.connection = closed.ours.wrapping_add(1).max(1);
            endpoint.ids.earlier = closed.peers;
        }
        if let Some(own) = &mut self.protection {
            let Identity { name, incarnation, .. } = self.identity;
            let sender = Sender { name, incarnation, connection: endpoint.ids.connection };
            endpoint.protection = Some(own.connect(&peer.key, sender).ok_or(Error::OutOfResource)?);
        }
        (endpoint.life.last_heard, endpoint.life.silence_reported) =
            (self.clock.running(), self.clock.running());
        Ok(endpoint)
    }

    /// The network says that the way to a peer carries only datagrams of this length. What is cut from
    /// now on keeps to it; what is under way is cut anew if it is lost.
    pub fn handle_too_big(&mut self, endpoint: EndpointId, limit: usize, now: Instant) {
        self.settle(now);
        if let Some(endpoint) = self.endpoints.get_mut(endpoint.0) {
            let longest = (limit + endpoint.saved()).saturating_sub(self.limits.trailer);
            endpoint.send.path.handle_too_big(longest, now);
        }
    }

    /// The endpoint of a process, when it is connected.
    pub fn endpoint_of(&self, name: u64, incarnation: u32) -> Option<EndpointId> {
        let index = *self.names.get(&(name, incarnation))?;
        let live = self.endpoints.at(index)?.is_live();
        self.endpoints.key(index).filter(|_| live).map(EndpointId)
    }

    /// What is known of a peer.
    pub fn peer(&self, endpoint: EndpointId) -> Option<PeerFacts> {
        let endpoint = self.endpoints.get(endpoint.0).filter(|endpoint| endpoint.is_live())?;
        Some(PeerFacts {
            name: endpoint.peer.name,
            incarnation: endpoint.peer.incarnation,
            alive: endpoint.phase != Phase::Dead,
            end: endpoint.life.end,
            used: endpoint.used,
            heard: endpoint.ids.peer_connection != 0 || endpoint.ids.earlier != 0,
            took_longest: endpoint.took_longest,
            max_datagram: endpoint.peer.max_datagram,
            path_width: endpoint.send.path.width(),
            round_trip: Duration::from_nanos(endpoint.send.rtt.smoothed()),
            least_round_trip: Duration::from_nanos(endpoint.send.rtt.min()),
            in_flight: endpoint.send.in_flight as usize,
            congestion_window: endpoint.send.window_segments(),
            credit: endpoint.send.credit.segments() as usize,
            queued: endpoint.send.queues.iter().map(VecDeque::len).sum(),
            unacknowledged: endpoint.send.window.len(),
        })
    }

    /// Name of the process behind an endpoint, also while a closed one still answers.
    pub fn peer_name(&self, endpoint: EndpointId) -> Option<u64> {
        self.endpoints.get(endpoint.0).map(|endpoint| endpoint.peer.name)
    }

    /// The longest datagram that the peer takes and the path is known to carry, with all headers in it; 0 for no peer.
    #[inline]
    pub fn longest_datagram(&self, endpoint: EndpointId) -> usize {
        let Some(endpoint) = self.endpoints.get(endpoint.0) else { return 0 };
        let width = endpoint.send.path.width() - endpoint.saved();
        width.min(endpoint.peer.max_datagram) + self.limits.trailer
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters.read()
    }

    /// The counters themselves, for who looks at them while the engine is at work.
    pub fn live_counters(&self) -> Arc<LiveCounters> {
        Arc::clone(&self.counters)
    }

    /// Longest fragment that [`Self::send`] takes.
    pub fn max_fragment(&self) -> usize {
        self.pool.longest()
    }

    /// Whether something is under way on the data channel, in either direction.
    pub fn is_expecting(&self) -> bool {
        self.expected > 0
    }

    /// Bytes of memory that an endpoint takes up; for tests of the bound.
    pub fn footprint(&self, endpoint: EndpointId) -> usize {
        self.endpoints.get(endpoint.0).map_or(0, Endpoint::footprint)
    }

    /// Operations and registrations that are not over.
    pub fn outstanding(&self) -> (usize, usize) {
        (self.operations.len(), self.registry.len())
    }

    /// Places of the table of operations, taken or not; for tests of the bound.
    pub fn places(&self) -> usize {
        self.operations.places()
    }

    /// Whether something has happened that [`Self::poll_event`] tells.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether peers may be owed an acknowledgement in a short time.
    #[inline]
    pub fn owes(&self) -> bool {
        self.acks.is_owing()
    }

    /// Takes what has happened, one at a time.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.reception.deferred.is_some() {
            self.settle(self.clock.now());
        }
        let event = self.events.pop_front()?;
        if let Event::Deliver { buffer, .. } = &event {
            self.pool.release(buffer.charge());
        }
        Some(event)
    }

    /// Gives a buffer back to be used again.
    pub fn recycle(&mut self, buffer: Buffer) {
        self.counters.num_recv_reposts.add(1);
        self.pool.recycle(buffer);
    }

    /// When to come back though nothing has arrived.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.has_work() {
            return Some(self.clock.now());
        }
        let timer = self.timers.next();
        let due = |key| self.endpoints.get(key)?.timers.due(Timer::AckDelay);
        let owed = self.acks.standing().filter_map(due).min();
        match (timer, owed) {
            (Some(timer), Some(owed)) => Some(timer.min(owed)),
            (timer, owed) => timer.or(owed),
        }
    }

    /// Whether the next pass would send something without more having happened.
    fn has_work(&self) -> bool {
        self.lists.has_packets()
            || self.reception.deferred.is_some()
            || self
                .acks
                .immediate
                .iter()
                .any(|index| self.endpoints.at(*index).is_some_and(|e| e.receive.ack.immediate))
    }

    /// Moves the clock on, and does the book-keeping that was put off. The caller does it before it
    /// returns to whoever waits for what a datagram has acknowledged; anything else asked of the
    /// engine does it first by itself.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        self.tick(now);
        if self.reception.deferred.is_some() {
            self.finish();
        }
    }

    /// The link was not looked at for longer than [`AWAY`] before `now`. What is read from now on may
    /// have waited, where the link has not noted when it came, which says nothing about the network: it gives no samples
    /// of the round-trip time, on either side, until [`Self::note_drained`] or, where reading never catches
    /// up, for ten milliseconds.
    ///
    /// [`AWAY`]: super::AWAY
    #[cold]
    pub fn note_away(&mut self, now: Instant) {
        self.clock.note_away(now);
    }

    /// Nothing waits in the link.
    #[inline]
    pub fn note_drained(&mut self) {
        self.clock.note_drained();
    }

    /// Moves the clock on.
    #[inline]
    pub(super) fn tick(&mut self, now: Instant) {
        // Mostly it is called with the same time again.
        if now > self.clock.now() {
            if self.clock.is_leap(now) {
                self.wake(now);
            }
            self.clock.advance(now);
        }
    }

    /// Nobody has called for long.
    #[cold]
    fn wake(&mut self, now: Instant) {
        let wanted = self.next_timeout().unwrap_or(now);
        self.clock.note_leap(wanted, now);
    }

    /// The place of an endpoint that the user may use.
    #[inline]
    pub(super) fn place(&self, endpoint: EndpointId) -> Option<u32> {
        self.endpoints.get(endpoint.0).filter(|endpoint| endpoint.is_live())?;
        Some(endpoint.0.index)
    }

    /// The id of an endpoint by its place.
    #[inline]
    pub(super) fn id(&self, index: u32) -> EndpointId {
        EndpointId(self.endpoints.key(index).unwrap_or(Key { index, generation: 0 }))
    }

    /// Puts the endpoint on the list of those with sends, when it has any.
    #[inline]
    pub(super) fn check_ready(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        if !endpoint.ready && endpoint.send.has_queued() {
            endpoint.ready = true;
            self.lists.ready.push_back(index);
        }
        if !endpoint.resending && endpoint.send.has_resends() {
            endpoint.resending = true;
            self.lists.resending.push_back(index);
        }
    }

    /// Sees to it that the endpoint is looked at in time.
    #[inline]
    pub(super) fn arm(&mut self, index: u32) {
        if let Some((key, endpoint)) = self.endpoints.entry_mut(index)
            && let Some(at) = endpoint.arm(&self.limits)
        {
            self.timers.set(at, key);
        }
    }

    /// Takes the endpoint off all lists and out of the table.
    pub(super) fn remove(&mut self, index: u32) {
        self.strip(index);
        let Some(endpoint) = self.endpoints.remove(index) else { return };
        let (name, closed) = endpoint.closed();
        self.closed.note(name, closed);
        self.names.remove(&name);
    }

    /// Drops all that is under way with the endpoint, and takes it off the lists of work.
    pub(super) fn strip(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        let arrived = |segment: &Segment| segment.state == State::Arrived;
        let data = |segment: &Segment| segment.channel == Channel::Data;
        let open =
            endpoint.send.window.iter().filter(|(_, segment)| data(segment) && !arrived(segment)).count();
        let expected = open
            + endpoint.receive.assembler.len()
            + endpoint.gets.open as usize
            + usize::from(endpoint.receive.has_gap);
        self.expected = self.expected.saturating_sub(expected as u64);
        endpoint.receive.has_gap = false;
        endpoint.gets.open = 0;
        endpoint.gets.operations.take();
        endpoint.receive.assembler.clear(&mut self.pool);
        self.acks.note_settled(&mut endpoint.timers);
        endpoint.send.clear();
        (endpoint.ready, endpoint.resending) = (false, false);
        endpoint.timers.stop(Timer::Loss);
        endpoint.timers.stop(Timer::Pacing);
        endpoint.shrink();
        self.budget.leave(&mut endpoint.receive.share);
        self.pass.turn.begin();
    }
}
