//! Virtual connections: how endpoints without connections get mailboxes at each other, at the first operation.
//!
//! An engine serves all endpoints of a connection manager, each with any number of peers. It has no clock, socket or
//! memory: mailboxes are made and filled by the caller, who tells the engine their [attributes](Attributes), and
//! datagrams may be lost, doubled and overtaken by others. One turn of the caller is that of the
//! [other engine](super): datagrams in, [`Engine::handle_timeout`], events out, datagrams out.
//!
//! ```text
//!   asker                                          answerer
//!   CONNECTING -- Request(mailbox) ------------->  NONE -> CONNECTING   its mailbox is made
//!   CONNECTED  <- Response(mailbox) -------------  CONNECTED
//!              -- Confirm ---------------------->  settled: it says nothing again
//! ```
//!
//! Where two requests cross, each side takes the other's mailbox from it and is connected at once. No response is
//! sent then: a side that has sent a request never responds. It only does not know that the peer has its request, and
//! if it hears nothing in time, it repeats it, this time naming the peer's connection, which is then confirmed.
//! Traffic in the mailbox confirms as well.
//!
//! Every side of a connection has a number that is never used again, and every endpoint an incarnation that is
//! greater than that of the last one of its name. A datagram that is older in either than what has been heard is of
//! the past and dropped; one that is newer ends what was. Whoever speaks of a connection that is none is told so: so
//! no side stays connected alone.
//!
//! ```text
//!   CONNECTED -> TERMINATING -- Disconnect(sent) ->  CONNECTED -> TERMINATING   reads what was sent
//!   TERMINATED            <- Disconnected ---------  TERMINATED
//! ```
//!
//! A request from a peer that is in no address vector is answered like any other; its connection is unmapped until
//! the user inserts the peer or sends to it. A request to an endpoint that is not enabled is held until it is, and one
//! that cannot have a mailbox yet waits for it; the asker is told to go on asking meanwhile. There are no other ways to
//! wait than for the caller, for a timer that has an end, and for a peer that says that it lives.
//!
//! What happens in which state is the table in `connect/table.rs`.
//!
//! Answers to "Connection Management for FI_EP_RDM type endpoints" of the design of libfabric's GNI provider.

mod interface;
mod pair;
mod receive;
mod table;
mod transition;

#[cfg(test)]
mod exploration;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::time::{Instant, nanos};
use crate::wire::gni::datagram::{Attributes, Datagram, LEN, NameId};

pub use interface::{
    Counters, End, EndpointId, Event, Reason, Rejected, Route, Settings, State, Transmit, Vc,
};
use pair::{Pair, Place};
use table::{Input, Row};

/// Answers that wait to be sent, at most. Whoever gets none asks again.
const ANSWERS: usize = 1024;

/// An endpoint of this engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Endpoint {
    name: NameId,
    enabled: bool,
    shut: bool,
}

/// The connections of all endpoints of a connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    settings: Settings,
    endpoints: BTreeMap<u32, Endpoint>,
    pairs: BTreeMap<Place, Pair>,
    /// Which pair has which connection.
    places: BTreeMap<u32, Place>,
    /// The number that was given last.
    last: u32,
    timers: BTreeSet<(Instant, Place)>,
    /// Pairs with something to say, and some that have none any more.
    due: VecDeque<Place>,
    answers: VecDeque<(Route, Datagram)>,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Engine {
    /// One without endpoints.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            endpoints: BTreeMap::new(),
            pairs: BTreeMap::new(),
            places: BTreeMap::new(),
            last: 0,
            timers: BTreeSet::new(),
            due: VecDeque::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters {
                sent: 0,
                resent: 0,
                received: 0,
                malformed: 0,
                forged: 0,
                foreign: 0,
                strangers: 0,
                misdirected: 0,
                stale: 0,
                unconnected: 0,
                stray: 0,
                postponed: 0,
                unanswered: 0,
                silent: 0,
            },
        }
    }

    /// An endpoint of this name. Its incarnation must not be 0, and be greater than that of any earlier one of the
    /// name. What is asked of it waits until it is [enabled](Self::enable).
    ///
    /// # Errors
    /// There is one, or there is no incarnation.
    pub fn open(&mut self, name: NameId) -> Result<EndpointId, Rejected> {
        if self.endpoints.contains_key(&name.cdm_id) {
            return Err(Rejected::Taken);
        }
        if name.incarnation == 0 {
            return Err(Rejected::OutOfPlace);
        }
        self.endpoints.insert(name.cdm_id, Endpoint { name, enabled: false, shut: false });
        Ok(EndpointId(name.cdm_id))
    }

    /// The endpoint answers from now on, also what has waited.
    ///
    /// # Errors
    /// There is no such endpoint.
    pub fn enable(&mut self, endpoint: EndpointId, now: Instant) -> Result<(), Rejected> {
        self.endpoints.get_mut(&endpoint.0).ok_or(Rejected::NoEndpoint)?.enabled = true;
        for place in self.pairs_of(endpoint) {
            self.resume(place, now);
        }
        Ok(())
    }

    /// The endpoint neither asks nor answers from now on. [Close](Self::close) its connections, and then
    /// [remove](Self::remove) it.
    ///
    /// # Errors
    /// There is no such endpoint.
    pub fn shut(&mut self, endpoint: EndpointId) -> Result<(), Rejected> {
        self.endpoints.get_mut(&endpoint.0).ok_or(Rejected::NoEndpoint)?.shut = true;
        for place in self.pairs_of(endpoint) {
            if let Some(pair) = self.pairs.get_mut(&place) {
                pair.held = None;
            }
        }
        Ok(())
    }

    /// Forgets an endpoint and whatever was known of its peers.
    ///
    /// # Errors
    /// There is no such endpoint, or a connection of it has not ended.
    pub fn remove(&mut self, endpoint: EndpointId) -> Result<(), Rejected> {
        if !self.endpoints.contains_key(&endpoint.0) {
            return Err(Rejected::NoEndpoint);
        }
        if self.connections(endpoint).next().is_some() {
            return Err(Rejected::Busy);
        }
        for place in self.pairs_of(endpoint) {
            self.forget(place);
        }
        self.endpoints.remove(&endpoint.0);
        Ok(())
    }

    /// Forgets an endpoint that is [shut](Self::shut) with the connections that it ends, whether or not their peers
    /// have heard of that.
    ///
    /// # Errors
    /// There is no such endpoint, or it is not shut.
    pub fn abandon(&mut self, endpoint: EndpointId) -> Result<(), Rejected> {
        if !self.endpoints.get(&endpoint.0).ok_or(Rejected::NoEndpoint)?.shut {
            return Err(Rejected::Busy);
        }
        let vcs: Vec<u32> = self.connections(endpoint).map(|vc| vc.0).collect();
        for vc in vcs {
            self.places.remove(&vc);
        }
        for place in self.pairs_of(endpoint) {
            self.forget(place);
        }
        self.endpoints.remove(&endpoint.0);
        Ok(())
    }

    /// The connections of an endpoint that have not ended.
    pub fn connections(&self, endpoint: EndpointId) -> impl Iterator<Item = Vc> {
        self.range(endpoint).filter(|(_, pair)| pair.vc != 0).map(|(_, pair)| Vc(pair.vc))
    }

    /// The peer is in the address vector of the endpoint; with incarnation 0, whichever life of it.
    ///
    /// # Errors
    /// There is no such endpoint.
    pub fn insert(&mut self, endpoint: EndpointId, peer: NameId) -> Result<(), Rejected> {
        let place = self.place(endpoint, peer)?;
        let pair = self.pairs.entry(place).or_insert_with(Pair::new);
        let before = pair.is_mapped();
        pair.mapped = Some(peer.incarnation);
        if pair.row == Row::Connected && !before && pair.is_mapped() {
            self.events.push_back(Event::Mapped { vc: Vc(pair.vc) });
        }
        Ok(())
    }

    /// The peer is no more in the address vector. Its connection stays.
    ///
    /// # Errors
    /// There is no such endpoint.
    pub fn withdraw(&mut self, endpoint: EndpointId, peer: NameId) -> Result<(), Rejected> {
        let place = self.place(endpoint, peer)?;
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.mapped = None;
        }
        Ok(())
    }

    /// Forgets peers of an endpoint that are in no address vector and with which there is no connection, but for as many as are
    /// remembered.
    pub fn trim(&mut self, endpoint: EndpointId) {
        let spare = self.range(endpoint).filter(|(_, pair)| pair.is_spare()).map(|(place, _)| *place);
        let beyond: Vec<Place> = spare.skip(self.settings.unmapped).collect();
        for place in beyond {
            self.forget(place);
        }
    }

    /// Something is to be sent to a peer, which need not be in the address vector. Whatever state this says: if it is
    /// not connected, [`Event::Connected`] or [`Event::Ended`] is going to tell what came of it.
    ///
    /// # Errors
    /// There is no such endpoint, or it is not enabled, or being closed.
    pub fn connect(&mut self, endpoint: EndpointId, peer: NameId, now: Instant) -> Result<State, Rejected> {
        let place = self.place(endpoint, peer)?;
        if self.endpoints.get(&endpoint.0).is_none_or(|endpoint| endpoint.shut || !endpoint.enabled) {
            return Err(Rejected::NotEnabled);
        }
        let pair = self.pairs.entry(place).or_insert_with(Pair::new);
        pair.asked_for = peer.incarnation;
        self.apply(place, Input::Connect, None, now);
        Ok(self.state(endpoint, peer))
    }

    /// How far the connection to a peer has come.
    pub fn state(&self, endpoint: EndpointId, peer: NameId) -> State {
        let pair = self.place(endpoint, peer).ok().and_then(|place| self.pairs.get(&place));
        pair.map_or(State::None, |pair| pair.row.state())
    }

    /// The connection to a peer, if there is one.
    pub fn connection(&self, endpoint: EndpointId, peer: NameId) -> Option<Vc> {
        let pair = self.pairs.get(&self.place(endpoint, peer).ok()?)?;
        (pair.vc != 0).then_some(Vc(pair.vc))
    }

    /// The mailbox that was wanted is there.
    ///
    /// # Errors
    /// The connection has ended, or has its mailbox: this one is of no use.
    pub fn mailbox_ready(&mut self, vc: Vc, own: Attributes, now: Instant) -> Result<(), Rejected> {
        let place = self.preparing(vc)?;
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.own = Some(own);
        }
        self.apply(place, Input::Ready, None, now);
        Ok(())
    }

    /// There is no mailbox for this connection just now. It is wanted again after a while.
    ///
    /// # Errors
    /// The connection has ended, or has its mailbox.
    pub fn mailbox_lacking(&mut self, vc: Vc, now: Instant) -> Result<(), Rejected> {
        let place = self.preparing(vc)?;
        self.apply(place, Input::Lacking, None, now);
        Ok(())
    }

    /// There will be no mailbox for this connection.
    ///
    /// # Errors
    /// The connection has ended, or has its mailbox.
    pub fn mailbox_denied(&mut self, vc: Vc, now: Instant) -> Result<(), Rejected> {
        let place = self.preparing(vc)?;
        self.apply(place, Input::Denied, None, now);
        Ok(())
    }

    /// The peer has put something into the mailbox of this connection: it is connected, too.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn heard(&mut self, vc: Vc, now: Instant) -> Result<(), Rejected> {
        let place = *self.places.get(&vc.0).ok_or(Rejected::NoConnection)?;
        if self.pairs.get(&place).is_some_and(|pair| pair.row == Row::Connected) {
            self.apply(place, Input::Confirm, None, now);
        }
        Ok(())
    }

    /// Everything that the peer had sent before it [ended](Event::Closing) this connection has been read.
    ///
    /// # Errors
    /// The connection has ended, or the peer has not ended it.
    pub fn drained(&mut self, vc: Vc, now: Instant) -> Result<(), Rejected> {
        let place = self.in_row(vc, Row::Draining)?;
        self.apply(place, Input::Drained, None, now);
        Ok(())
    }

    /// Ends a connection into whose mailbox so many entries have been put. The peer is given time to read them: the
    /// mailbox is to be left as it is until [`Event::Ended`].
    ///
    /// # Errors
    /// The connection has ended.
    pub fn close(&mut self, vc: Vc, sent: u64, now: Instant) -> Result<(), Rejected> {
        let place = *self.places.get(&vc.0).ok_or(Rejected::NoConnection)?;
        if let Some(pair) = self.pairs.get_mut(&place) {
            pair.wanted = false;
            if pair.row != Row::Closing {
                pair.sent = sent;
            }
        }
        self.apply(place, Input::Close, None, now);
        Ok(())
    }

    /// This life of an endpoint of another process has ended, and every one before it.
    pub fn peer_died(&mut self, peer: NameId, now: Instant) {
        let is_of = |place: &Place| (place.device, place.cdm_id) == (peer.device, peer.cdm_id);
        let places: Vec<Place> = self.pairs.keys().copied().filter(is_of).collect();
        for place in places {
            let Some(pair) = self.pairs.get_mut(&place) else { continue };
            pair.dead = pair.dead.max(peer.incarnation);
            pair.held = pair.held.filter(|held| held.incarnation > peer.incarnation);
            // Who asks has to do with the latest life that is known; it may be a dead one.
            let latest = pair.mark.incarnation.max(pair.asked_for);
            let life = pair.adopted.map_or(latest, |adopted| adopted.incarnation);
            if life <= peer.incarnation {
                self.apply(place, Input::Died, None, now);
            }
        }
    }

    /// It is `now`: says again what was said in vain.
    pub fn handle_timeout(&mut self, now: Instant) {
        // What is set anew meanwhile waits for the next call.
        let over: Vec<Place> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, place)| *place).collect();
        for place in over {
            self.disarm(place);
            self.apply(place, Input::Expired, None, now);
        }
    }

    /// When [`Self::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// What is to be told next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next datagram to send. After `None` there is none before something else happens.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let (route, datagram) = self.say(now)?;
        let mut bytes = [0; LEN];
        let length = datagram.emit(&self.settings.key, &mut bytes);
        Some(Transmit { target: datagram.target, route, bytes, length })
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn say(&mut self, now: Instant) -> Option<(Option<Route>, Datagram)> {
        if let Some((route, answer)) = self.answers.pop_front() {
            self.counters.sent += 1;
            return Some((Some(route), answer));
        }
        while let Some(place) = self.due.pop_front() {
            let Some(pair) = self.pairs.get_mut(&place).filter(|pair| pair.due) else { continue };
            pair.due = false;
            let Some(body) = pair.says() else { continue };
            let Some(endpoint) = self.endpoints.get(&place.endpoint) else { continue };
            pair.asked |= pair.row == Row::Asking;
            let target =
                NameId { device: place.device, cdm_id: place.cdm_id, incarnation: pair.incarnation() };
            let datagram = Datagram {
                credentials: self.settings.credentials,
                target,
                source: endpoint.name,
                target_vc: pair.adopted.map_or(0, |adopted| adopted.vc),
                source_vc: pair.vc,
                body,
            };
            self.counters.sent += 1;
            self.counters.resent += u64::from(pair.attempts > 0);
            let route = pair.route;
            self.arm(place, now);
            return Some((route, datagram));
        }
        None
    }

    /// Sends an answer that nobody remembers, unless there are too many.
    fn answer(&mut self, route: Route, answer: Datagram) {
        if self.answers.len() < ANSWERS {
            self.answers.push_back((route, answer));
        } else {
            self.counters.unanswered += 1;
        }
    }

    /// Sets the timer of a pair, the later the more often it has run out.
    fn arm(&mut self, place: Place, now: Instant) {
        self.disarm(place);
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let (first, longest) = (nanos(self.settings.interval), nanos(self.settings.longest));
        let doubled = first.saturating_mul(1 << pair.attempts.min(32));
        let interval = if pair.row == Row::Preparing { longest } else { doubled.min(longest) };
        let at = now.plus(interval);
        pair.timer = Some(at);
        self.timers.insert((at, place));
    }

    fn disarm(&mut self, place: Place) {
        if let Some(at) = self.pairs.get_mut(&place).and_then(|pair| pair.timer.take()) {
            self.timers.remove(&(at, place));
        }
    }

    fn place(&self, endpoint: EndpointId, peer: NameId) -> Result<Place, Rejected> {
        if !self.endpoints.contains_key(&endpoint.0) {
            return Err(Rejected::NoEndpoint);
        }
        Ok(Place { endpoint: endpoint.0, device: peer.device, cdm_id: peer.cdm_id })
    }

    fn preparing(&self, vc: Vc) -> Result<Place, Rejected> {
        self.in_row(vc, Row::Preparing)
    }

    /// Where this connection is, if it is in this row of the table.
    fn in_row(&self, vc: Vc, row: Row) -> Result<Place, Rejected> {
        let place = *self.places.get(&vc.0).ok_or(Rejected::NoConnection)?;
        let is_there = self.pairs.get(&place).is_some_and(|pair| pair.row == row);
        if is_there { Ok(place) } else { Err(Rejected::OutOfPlace) }
    }

    fn range(&self, endpoint: EndpointId) -> impl Iterator<Item = (&Place, &Pair)> {
        let first = Place { endpoint: endpoint.0, device: 0, cdm_id: 0 };
        let last = Place { endpoint: endpoint.0, device: u32::MAX, cdm_id: u32::MAX };
        self.pairs.range(first..=last)
    }

    fn pairs_of(&self, endpoint: EndpointId) -> Vec<Place> {
        self.range(endpoint).map(|(place, _)| *place).collect()
    }

    /// Whether a peer that is in no address vector may be remembered: in the place of another, if need be, with which
    /// there is no connection.
    fn make_room(&mut self, endpoint: u32) -> bool {
        let unmapped = |pair: &Pair| pair.mapped.is_none() && !pair.wanted;
        let many = self.range(EndpointId(endpoint)).filter(|(_, pair)| unmapped(pair)).count();
        if many < self.settings.unmapped {
            return true;
        }
        let spare = self.range(EndpointId(endpoint)).find(|(_, pair)| pair.is_spare());
        let spare = spare.map(|(place, _)| *place);
        spare.inspect(|place| self.forget(*place)).is_some()
    }

    fn forget(&mut self, place: Place) {
        self.disarm(place);
        self.pairs.remove(&place);
    }
}
