//! PUT and GET: bytes straight into and out of registered memory.
//!
//! A peer names a registration, its generation and a range; nothing else reaches memory. A packet that
//! names what is not there is not acknowledged but rejected, and comes again until that has been
//! heard; then it comes as a void. So a PUT never looks done that was not, and a rejection needs
//! neither a sequence number nor room in a window, which two that reject each other would wait for.

use super::core::Engine;
use super::coverage::Coverage;
use super::interface::{Cookie, EndpointId, Event, Memory};
use super::memory::{Access, Registration};
use super::operation::{Job, Operation};
use super::packet::Notice;
use super::slab::Key;
use super::time::Instant;
use crate::error::{Error, Result};
use crate::wire::run::Payload;

/// GETs of one peer that are served at a time; further ones come again.
const SERVED: u32 = 1024;
/// Notices to one peer that wait to be sent; what is dropped comes again.
pub(super) const NOTICES: usize = 64;

impl<M: Memory> Engine<M> {
    /// Makes room for one more registration.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]
    pub fn reserve_registration(&mut self) -> Result<()> {
        self.registry.reserve()
    }

    /// Lets peers reach memory, until [`Self::deregister`].
    pub fn register(&mut self, memory: M, access: Access) -> Registration {
        self.registry.insert(memory, access)
    }

    /// Ends a registration. Data on its way out of it is cancelled; the memory is not looked at again.
    pub fn deregister(&mut self, registration: Registration) {
        let Some(mut registered) = self.registry.remove(registration) else { return };
        let served = |operation: &Operation<M>| match operation.job {
            Job::Serve { registration: id, generation, operation: peers, .. }
                if (id, generation) == (registration.id, registration.generation) =>
            {
                Some((operation.endpoint, peers))
            }
            _ => None,
        };
        for key in registered.served.take() {
            let Some((index, peers)) = self.operations.get(key).and_then(served) else { continue };
            self.fail(key.index, Error::NotFound);
            self.refuse(index, peers);
        }
    }

    /// Writes `local` into the peer's memory. Done when it is there.
    pub fn put(
        &mut self,
        endpoint: EndpointId,
        local: M,
        remote: Registration,
        remote_offset: u64,
        cookie: Cookie,
        now: Instant,
    ) -> Result<()> {
        let len = local.len() as u64;
        self.begin(endpoint, &remote, Access::WRITE, remote_offset, len, now)?;
        self.counters.num_puts.add(1);
        let Registration { id: registration, generation, .. } = remote;
        let job = Job::Put { local, registration, generation, offset: remote_offset };
        self.enqueue(endpoint, job, len, Some(cookie), false).map(|_| ())
    }

    /// Reads the peer's memory into `local`. Done when all is there.
    pub fn get(
        &mut self,
        endpoint: EndpointId,
        local: M,
        remote: Registration,
        remote_offset: u64,
        cookie: Cookie,
        now: Instant,
    ) -> Result<()> {
        self.begin(endpoint, &remote, Access::READ, remote_offset, local.len() as u64, now)?;
        self.counters.num_gets.add(1);
        let Registration { id: registration, generation, .. } = remote;
        let arrived = Coverage::default();
        let job = Job::Get { local, registration, generation, offset: remote_offset, arrived };
        let key = self.enqueue(endpoint, job, 0, Some(cookie), true)?;
        if let Some(endpoint) = self.endpoints.get_mut(endpoint.0) {
            endpoint.gets.open += 1;
            endpoint.gets.operations.enter(key, &self.operations);
            self.landings.note_asked(key, &self.operations);
            self.expected += 1;
        }
        Ok(())
    }

    /// What is plainly wrong need not travel; and a peer that has closed, and whose memory is not reached any
    /// more, may have forgotten us and never answer.
    fn begin(
        &mut self,
        endpoint: EndpointId,
        remote: &Registration,
        wanted: Access,
        offset: u64,
        len: u64,
        now: Instant,
    ) -> Result<()> {
        self.settle(now);
        let inside = offset.checked_add(len).is_some_and(|end| end <= remote.length);
        if !inside || !remote.access.allows(wanted) {
            return Err(Error::BadParameter);
        }
        if self.limits.meets_again && self.meet_parted(endpoint) {
            return Err(Error::OutOfResource);
        }
        let is_over = self.endpoints.get(endpoint.0).is_some_and(|endpoint| endpoint.remote_closed);
        if is_over { Err(Error::Unreachable) } else { Ok(()) }
    }

    /// A segment of a peer's PUT; whether it may be acknowledged.
    pub(super) fn handle_put(
        &mut self,
        index: u32,
        (id, generation): (u32, u32),
        offset: u64,
        operation: u64,
        payload: Payload<'_>,
    ) -> bool {
        let written = self.write_put((id, generation), offset, payload);
        if !written {
            self.reject(index, operation);
        }
        written
    }

    /// Puts segments of a PUT that follow each other in their place, if there is one.
    pub(super) fn write_put(
        &mut self,
        (id, generation): (u32, u32),
        offset: u64,
        payload: Payload<'_>,
    ) -> bool {
        let len = payload.len() as u64;
        let Some(memory) = self.registry.find(id, generation, Access::WRITE, offset, len) else {
            return false;
        };
        payload.parts().for_each(|(at, part)| memory.write(offset as usize + at, part));
        self.counters.num_put_recvs.add(payload.count() as u64);
        true
    }

    /// A peer's GET; whether it may be acknowledged.
    pub(super) fn handle_get(
        &mut self,
        index: u32,
        (registration, generation): (u32, u32),
        offset: u64,
        length: u64,
        operation: u64,
    ) -> bool {
        let Some(memory) = self.registry.find(registration, generation, Access::READ, offset, length) else {
            self.reject(index, operation);
            return false;
        };
        let memory = memory.clone();
        let Some(endpoint) = self.endpoints.at_mut(index) else { return false };
        if endpoint.gets.serving >= SERVED {
            return false;
        }
        endpoint.gets.serving += 1;
        let job = Job::Serve { memory, registration, generation, offset, operation };
        match self.enqueue(self.id(index), job, length, None, false) {
            Ok(key) => self.registry.note_served(registration, key, &self.operations),
            // We are about to close, and send nothing any more.
            Err(_) => {
                if let Some(endpoint) = self.endpoints.at_mut(index) {
                    endpoint.gets.serving -= 1;
                }
                self.reject(index, operation);
                return false;
            }
        }
        self.counters.num_get_recvs.add(1);
        true
    }

    /// Data that we asked for, perhaps.
    pub(super) fn handle_get_data(&mut self, index: u32, operation: u64, offset: u64, payload: Payload<'_>) {
        let key = Key::from_raw(operation);
        let mine = self.operations.get_mut(key).filter(|operation| operation.endpoint == index);
        let Some(operation) = mine else {
            self.counters.num_stray_data_recvs.add(payload.count() as u64);
            return;
        };
        let Job::Get { local, arrived, .. } = &mut operation.job else {
            self.counters.num_stray_data_recvs.add(payload.count() as u64);
            return;
        };
        let len = local.len() as u64;
        let end = offset.checked_add(payload.len() as u64).filter(|end| *end <= len);
        let sensible = !payload.is_empty() || len == 0;
        if !sensible || !end.is_some_and(|end| arrived.insert(offset, end)) {
            self.counters.num_stray_data_recvs.add(payload.count() as u64);
            return;
        }
        if self.landings.take_in_place() {
            self.counters.num_landed_recvs.add(payload.count() as u64);
        } else {
            payload.parts().for_each(|(at, part)| local.write(offset as usize + at, part));
        }
        self.counters.num_get_data_recvs.add(payload.count() as u64);
        if arrived.covers(len) {
            self.landings.note_end(key);
            self.end_get(key.index, Ok(()));
        } else {
            self.landings.note_data(key, payload.each());
        }
    }

    /// A GET is over, though its request may still be under way.
    fn end_get(&mut self, place: u32, outcome: Result<()>) {
        let Some(operation) = self.operations.at_mut(place) else { return };
        operation.job = Job::Nothing;
        operation.whole = true;
        let index = operation.endpoint;
        let cookie = operation.cookie.take();
        if operation.open == 0 && !operation.queued {
            self.operations.remove(place);
        }
        if let Some(endpoint) = self.endpoints.at_mut(index) {
            endpoint.gets.open -= 1;
            self.expected = self.expected.saturating_sub(1);
        }
        self.check_drained(index);
        if let Some(cookie) = cookie {
            self.counters.pml_send_callbacks.add(1);
            self.events.push_back(Event::Done { cookie, outcome });
        }
    }

    /// Tells a peer that the GET that we were serving has come to nothing.
    fn refuse(&mut self, index: u32, operation: u64) {
        // It fails where nothing can be sent any more, and then the peer needs no word.
        let _ = self.enqueue(self.id(index), Job::Refuse { operation }, 0, None, true);
    }

    /// Answers a packet of an operation that is not possible.
    pub(super) fn reject(&mut self, index: u32, operation: u64) {
        self.counters.num_refused_recvs.add(1);
        if self.endpoints.at(index).is_some_and(|endpoint| endpoint.notices.len() < NOTICES) {
            self.notify(index, Notice::Reject(operation));
        }
    }

    /// The peer refuses an operation of ours.
    pub(super) fn handle_refused(&mut self, index: u32, operation: u64) {
        let key = Key::from_raw(operation);
        let Some(operation) = self.operations.get(key).filter(|operation| operation.endpoint == index) else {
            return;
        };
        if matches!(operation.job, Job::Put { .. } | Job::Get { .. }) {
            self.fail(key.index, Error::NotFound);
        }
    }
}
