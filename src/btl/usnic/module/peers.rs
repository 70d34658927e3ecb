//! The peers of a module: whom it is connected to, by which routes, and strangers.

use std::time::Duration;

use super::{Module, State};
use crate::btl::usnic::Upcalls;
use crate::btl::usnic::routes::Route;
use crate::engine::{Channel, EndpointId, Header, Instant, Peer};
use crate::error::{Error, Result};
use crate::wire::modex::{self, Address};
use crate::wire::probe::Process;

/// How long a closing hand-shake may take: the peers close at the same time, behind the host's fence.
pub(super) const CLOSING: Duration = Duration::from_millis(250);

/// The same where peers do not, but hear of it and may be busy with something else.
const HEARING: Duration = Duration::from_secs(2);

/// How long a closed connection may still have something to say, by the engine's `LINGER`.
const LAST_WORDS: Duration = Duration::from_millis(2_500);

impl Module {
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

    /// What is sent to a peer that has ended its connection begins the next one.
    pub fn meet_again(&self) {
        self.state.with(|state| {
            state.engine.meet_again();
            state.hearing = HEARING;
        });
    }

    /// Ends connections: what is queued is sent first, and the peers are told. Whoever has not answered after `CLOSING`, or
    /// `HEARING`, is forgotten.
    pub fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        let begin = self.now();
        let hearing = self.state.with(|state| {
            for &endpoint in endpoints {
                state.engine.close(endpoint, begin);
            }
            state.transmit(begin);
            state.hearing
        });
        let is_open = |endpoint: &EndpointId| {
            self.state.with(|state| state.routes.find(*endpoint).is_some_and(|route| !route.is_closed))
        };
        while endpoints.iter().any(is_open) {
            if Duration::from_nanos(self.now().nanos() - begin.nanos()) > hearing {
                endpoints.iter().for_each(|&endpoint| self.forget(endpoint));
                return;
            }
            self.progress(up);
            if !up.is_here() {
                return;
            }
        }
    }

    /// Forgets a peer at once; what was under way ends with an error.
    pub fn forget(&self, endpoint: EndpointId) {
        self.state.with(|state| {
            state.engine.forget(endpoint);
            state.release(endpoint);
        });
    }

    /// A process that is not connected has sent something authentic: it has published a modex record.
    #[cold]
    pub(super) fn admit(&self, name: u64, incarnation: u32, up: &impl Upcalls) -> Result<EndpointId> {
        self.connect(name, &published(name, incarnation, up)?)
    }

    /// Sends one datagram to a process that is not connected.
    #[cold]
    pub(super) fn answer(
        &self,
        name: u64,
        incarnation: u32,
        datagram: &Header,
        up: &impl Upcalls,
    ) -> Result<()> {
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
    let record = up.modex_record(name)?;
    if !up.is_here() {
        return Err(Error::NotFound);
    }
    let record = modex::parse(&record).ok_or(Error::Unreachable)?;
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

    pub(super) fn release(&mut self, endpoint: EndpointId) {
        self.watch.forget(endpoint);
        if let Some(route) = self.routes.take(endpoint) {
            self.link.release(route.to);
        }
    }

    /// The connection is closed, but its last words may have to be said again.
    pub(super) fn close(&mut self, endpoint: EndpointId, now: Instant) {
        if let Some(route) = self.routes.find_mut(endpoint) {
            route.is_closed = true;
            self.closed.push_back((now, endpoint));
        }
    }

    /// Lets go of the routes of connections that were closed long ago.
    pub(super) fn sweep(&mut self, now: Instant) {
        while let Some(&(since, endpoint)) = self.closed.front() {
            if now.nanos().saturating_sub(since.nanos()) < LAST_WORDS.as_nanos() as u64 {
                break;
            }
            self.closed.pop_front();
            self.release(endpoint);
        }
    }

    /// Tells the engine of peers whom the network calls gone, or far away behind narrow paths.
    pub(super) fn hear_refusals(&mut self, now: Instant) {
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
}
