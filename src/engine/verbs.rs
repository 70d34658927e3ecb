//! The verbs, not yet at work.

use super::*;
use crate::config;
use crate::error::Error;

/// The engine.
pub struct Engine<M> {
    counters: Counters,
    _memory: std::marker::PhantomData<M>,
}

#[expect(missing_docs, reason = "only until the next commit")]
#[expect(unused_variables, reason = "only until the next commit")]
impl<M: Memory> Engine<M> {
    pub fn new(
        config: &config::Usnic,
        identity: Identity,
        receive_capacity: usize,
        seed: u64,
        now: Instant,
    ) -> Self {
        Self { counters: Counters::default(), _memory: std::marker::PhantomData }
    }
    pub fn connect(&mut self, peer: Peer, now: Instant) -> Result<EndpointId> {
        Err(Error::Unsupported)
    }
    pub fn endpoint_of(&self, name: u64, incarnation: u32) -> Option<EndpointId> {
        None
    }
    pub fn peer(&self, endpoint: EndpointId) -> Option<PeerFacts> {
        None
    }
    pub fn close(&mut self, endpoint: EndpointId, now: Instant) {}
    pub fn forget(&mut self, endpoint: EndpointId) {}
    pub fn send(&mut self, endpoint: EndpointId, fragment: Fragment<M>, now: Instant) -> Result<()> {
        Err(Error::Unsupported)
    }
    pub fn register(&mut self, memory: M, access: Access) -> Registration {
        Registration { id: 0, generation: 0, length: 0, access }
    }
    pub fn deregister(&mut self, registration: Registration) {}
    pub fn put(
        &mut self,
        endpoint: EndpointId,
        local: M,
        remote: Registration,
        remote_offset: u64,
        cookie: Cookie,
        now: Instant,
    ) -> Result<()> {
        Err(Error::Unsupported)
    }
    pub fn get(
        &mut self,
        endpoint: EndpointId,
        local: M,
        remote: Registration,
        remote_offset: u64,
        cookie: Cookie,
        now: Instant,
    ) -> Result<()> {
        Err(Error::Unsupported)
    }
    pub fn handle_datagram(&mut self, channel: Channel, bytes: &[u8], now: Instant) -> Received {
        Received::Nothing
    }
    pub fn handle_timeout(&mut self, now: Instant) {}
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<M>> {
        None
    }
    pub fn recycle(&mut self, buffer: Buffer) {}
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    pub fn is_expecting(&self) -> bool {
        false
    }
    pub fn max_fragment(&self) -> usize {
        0
    }
}
