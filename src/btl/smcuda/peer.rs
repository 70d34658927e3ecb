//! One peer: a ring to it, one from it, and what waits.

use std::collections::VecDeque;

use super::counters::Counters;
use super::record::Record;
use crate::btl::{Cookie, EndpointId, Fragment, Lent};
use crate::error::{Error, Result};
use crate::shm::{Arrival, Corrupt, CrossMemory, Identity, Receiver, Sender, Shared, Staging};

/// A peer of this node.
pub(super) struct Peer {
    pub(super) id: EndpointId,
    pub(super) name: u64,
    /// Which life of it this is.
    pub(super) identity: Identity,
    /// Its memory, where it lets us in.
    pub(super) cross: Option<CrossMemory>,
    /// The host may send to it.
    pub(super) is_open: bool,
    /// It is in the list of those whose queue is not empty.
    pub(super) is_waiting: bool,
    /// Its process has ended.
    pub(super) has_exited: bool,
    is_lost: bool,
    shared: Shared,
    /// Our place in its inbox.
    place: usize,
    sender: Sender,
    receiver: Option<Receiver>,
    /// What found no room in the ring.
    queue: VecDeque<Fragment<Lent>>,
}

/// How far a fragment has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the ring.
    Copied,
    /// It waits.
    Queued,
}

/// What finds a peer's segment, of which a ring has been made here.
pub(super) struct Found {
    pub(super) shared: Shared,
    pub(super) cross: Option<CrossMemory>,
}

impl Found {
    /// Maps what a peer has published.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub(super) fn of(record: &Record) -> std::result::Result<Self, String> {
        let shared = Shared::of_peer(&record.segment)?;
        let cross = record
            .lets_in
            .then(|| CrossMemory::open(record.segment.pid, record.probe.0, &record.probe.1).ok());
        Ok(Self { shared, cross: cross.flatten() })
    }
}

impl Peer {
    /// A peer whose segment was found, to which we write by this ring.
    ///
    /// # Errors
    /// When it has no room for us.
    pub(super) fn new(
        id: EndpointId,
        names: (u64, u64),
        identity: Identity,
        found: Found,
        ring: (usize, Sender),
    ) -> Result<Self> {
        let (own, name) = names;
        let place = found.shared.claim(own, ring.0).ok_or(Error::OutOfResource)?;
        Ok(Self {
            id,
            name,
            identity,
            cross: found.cross,
            is_open: false,
            is_waiting: false,
            has_exited: false,
            is_lost: false,
            shared: found.shared,
            place,
            sender: ring.1,
            receiver: None,
            queue: VecDeque::new(),
        })
    }

    /// Whether anything can be sent to it.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.is_open && !self.is_lost
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether it has said that it ends.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Whether it has said that it does not reach us.
    pub(super) fn refuses(&self) -> bool {
        self.shared.is_refused(self.place)
    }

    pub(super) fn has_receiver(&self) -> bool {
        self.receiver.is_some()
    }

    /// Its ring to us is known now.
    ///
    /// # Errors
    /// When there is no such ring.
    pub(super) fn attach(&mut self, ring: usize) -> std::result::Result<(), Corrupt> {
        self.receiver = Some(self.shared.receiver(ring).ok_or(Corrupt::Inbox)?);
        Ok(())
    }

    /// Tells it that its ring is looked at from now on.
    pub(super) fn poll_from_now_on(&self) {
        self.receiver.iter().for_each(Receiver::poll_from_now_on);
    }

    /// Sends through the ring, if nothing waits and there is room.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        tag: u8,
        pieces: [Lent; 2],
        counters: &Counters,
    ) -> std::result::Result<bool, Corrupt> {
        if !self.queue.is_empty() {
            return Ok(false);
        }
        self.write(tag, pieces, counters)
    }

    #[inline(always)]
    fn write(
        &mut self,
        tag: u8,
        pieces: [Lent; 2],
        counters: &Counters,
    ) -> std::result::Result<bool, Corrupt> {
        if !self.sender.push(tag, pieces)? {
            return Ok(false);
        }
        counters.num_sends.add(1);
        if !self.sender.is_polled() {
            self.ring(counters);
        }
        Ok(true)
    }

    /// It does not look at the ring by itself.
    #[cold]
    fn ring(&self, counters: &Counters) {
        counters.num_bells.add(1);
        self.shared.ring(self.place);
    }

    /// Sends bytes of our own, in front of those that wait; false when there is no room.
    #[cold]
    pub(super) fn say(
        &mut self,
        tag: u8,
        bytes: &[u8],
        counters: &Counters,
    ) -> std::result::Result<bool, Corrupt> {
        if !self.sender.push_bytes(tag, bytes)? {
            return Ok(false);
        }
        if !self.sender.is_polled() {
            self.ring(counters);
        }
        Ok(true)
    }

    /// Its slots.
    pub(super) fn staging(&self) -> Staging {
        self.shared.staging()
    }

    /// Sends a fragment, behind those that wait.
    #[inline]
    pub(super) fn send(
        &mut self,
        fragment: Fragment<Lent>,
        counters: &Counters,
    ) -> std::result::Result<Taken, Corrupt> {
        let pieces = fragment.pieces.map(|piece| piece.unwrap_or(Lent::EMPTY));
        if self.push(fragment.tag, pieces, counters)? {
            return Ok(Taken::Copied);
        }
        counters.num_queued.add(1);
        self.queue.push_back(fragment);
        Ok(Taken::Queued)
    }

    /// Sends what waits, and says which are over; whether something still waits.
    pub(super) fn flush(
        &mut self,
        counters: &Counters,
        mut over: impl FnMut(Cookie),
    ) -> std::result::Result<bool, Corrupt> {
        while let Some(fragment) = self.queue.front() {
            let pieces = fragment.pieces.map(|piece| piece.unwrap_or(Lent::EMPTY));
            let (tag, cookie) = (fragment.tag, fragment.cookie);
            if !self.write(tag, pieces, counters)? {
                return Ok(true);
            }
            self.queue.pop_front();
            over(cookie);
        }
        Ok(false)
    }

    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Fragments that wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes out all that waits.
    pub(super) fn drop_queue(&mut self) -> Vec<Cookie> {
        self.queue.drain(..).map(|fragment| fragment.cookie).collect()
    }

    /// The next of what has arrived.
    #[inline(always)]
    pub(super) fn take(&mut self) -> std::result::Result<Option<Arrival>, Corrupt> {
        match &mut self.receiver {
            Some(receiver) => receiver.take(),
            None => Ok(None),
        }
    }

    /// Whether something has arrived that is not taken yet.
    #[inline(always)]
    pub(super) fn has_arrived(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::has_next)
    }

    /// What was taken is done with.
    #[inline(always)]
    pub(super) fn release(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            receiver.release();
        }
    }

    #[cfg(test)]
    pub(super) fn forge(&self, word: u64) {
        crate::shm::forge::next(&self.sender, word);
    }

    /// Nothing goes there or comes from there any more.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.receiver = None;
        self.cross = None;
    }
}
