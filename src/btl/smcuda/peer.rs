//! One peer: a ring to it, one from it, and what waits.
//!
//! A peer is a process, and what is shared with it belongs to one of its lives. It may have none for a time: what is sent
//! to it meanwhile lies in the ring for its next one. A life that has said that it ends gets nothing any more; what it has
//! written itself is still read.

use std::collections::VecDeque;

use super::counters::Counters;
use crate::btl::{Cookie, EndpointId, Fragment, Lent, PIECE};
use crate::error::{Error, Result};
use crate::shm::{
    ALIGN, Arrival, Claim, Corrupt, CrossMemory, Identity, Life, NONCE, Outside, Receiver, Segment, Sender,
    Shared, Staging, TAIL,
};

/// What a handle says of device memory is left out where it is the host's.
const _: () = assert!(TAIL == PIECE);

/// More than lies in a ring: whoever goes on to write meanwhile writes to who wants it again.
const MOST_DROPPED: usize = 1 << 13;

/// A peer of this node.
pub(super) struct Peer {
    pub(super) id: EndpointId,
    pub(super) name: u64,
    /// What shows which life it has.
    pub(super) door: Option<Outside>,
    /// Which life of it is known, or was before it was let go.
    pub(super) life: Option<Identity>,
    /// Its memory, where it lets us in.
    pub(super) cross: Option<CrossMemory>,
    /// The host may send to it.
    pub(super) is_open: bool,
    /// It is in the list of those whose queue is not empty.
    pub(super) is_waiting: bool,
    /// Its process has ended.
    pub(super) has_exited: bool,
    /// A life that it has begun is about to be looked at.
    pub(super) is_noted: bool,
    is_lost: bool,
    /// The segment of that life, and our place in its inbox.
    shared: Option<(Shared, usize)>,
    /// That segment when the life is over, for what it has written.
    past: Option<Shared>,
    /// The ring to it.
    pub(super) ring: usize,
    /// Something was written there before it could be rung for.
    owes_ring: bool,
    sender: Sender,
    /// Which of its claims the ring from it belongs to.
    pub(super) claim: Option<u64>,
    /// The place of our inbox that it has claimed so.
    claimed: usize,
    /// Its mark there when the host closed it, if it was known.
    left: Option<u64>,
    /// How often the host has wanted it again.
    times: u64,
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
    /// Maps what a peer's door shows.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub(super) fn of(life: &Life) -> std::result::Result<Self, String> {
        let shared = Shared::of_peer(&life.segment)?;
        let cross =
            life.lets_in.then(|| CrossMemory::open(life.segment.pid, life.probe.0, &life.probe.1).ok());
        Ok(Self { shared, cross: cross.flatten() })
    }
}

impl Peer {
    /// A peer of which no life is known yet, to which we write by this ring.
    pub(super) fn new(id: EndpointId, name: u64, door: Outside, ring: (usize, Sender)) -> Self {
        Self {
            id,
            name,
            door: Some(door),
            life: None,
            cross: None,
            is_open: false,
            is_waiting: false,
            has_exited: false,
            is_noted: false,
            is_lost: false,
            shared: None,
            past: None,
            ring: ring.0,
            owes_ring: false,
            sender: ring.1,
            claim: None,
            claimed: 0,
            left: None,
            times: 0,
            receiver: None,
            queue: VecDeque::new(),
        }
    }

    /// A life of it was found: claims a place there.
    ///
    /// # Errors
    /// When it has no room for us.
    pub(super) fn bind(&mut self, life: Identity, found: Found, claim: &Claim) -> Result<()> {
        let place = found.shared.claim(claim).ok_or(Error::OutOfResource)?;
        if std::mem::take(&mut self.owes_ring) {
            found.shared.ring(place);
        }
        self.cross = found.cross;
        self.life = Some(life);
        self.shared = Some((found.shared, place));
        self.past = None;
        self.claim = None;
        self.receiver = None;
        Ok(())
    }

    /// Whether the life that is shared with has ended, so that nothing may be written for it any more.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.shared.as_ref().is_some_and(|(shared, _)| shared.is_ending())
    }

    /// Writes nothing any more to the life that was known, and still reads what it has written.
    pub(super) fn turn_over(&mut self, own: &[u8; NONCE]) {
        self.cross = None;
        if let Some((shared, place)) = self.shared.take() {
            shared.give_up(place, own);
            self.past = Some(shared);
        }
    }

    /// Lets go of the life that was known: nothing is read from there or written to it any more.
    pub(super) fn let_go(&mut self, own: &[u8; NONCE]) {
        self.receiver = None;
        self.turn_over(own);
        self.past = None;
    }

    /// Whether it may not have heard yet that we have written to it, and may still do so.
    pub(super) fn is_unheard(&self) -> bool {
        !self.has_exited && !self.has_ended() && self.sender.has_written() && !self.sender.is_found()
    }

    /// Whether something was written that lies there for its next life.
    pub(super) fn is_owed(&self) -> bool {
        self.shared.is_none() && self.owes_ring && self.sender.has_written()
    }

    /// Lets go of it at the end of our own life: what we have sent is still to be received, though nobody may have heard of it.
    pub(super) fn leave(&mut self, own: &[u8; NONCE]) {
        if self.is_unheard()
            && let Some((shared, place)) = self.shared.take()
        {
            shared.leave(place, own);
        }
        self.let_go(own);
    }

    /// Its ring is empty from now on.
    ///
    /// # Errors
    /// When it cannot be emptied.
    pub(super) fn renew(&mut self, segment: &Segment) -> Result<()> {
        segment.renew(self.ring, &mut self.sender)
    }

    /// Writes to another ring, which is empty: somebody may still read the one that there was.
    pub(super) fn take_ring(&mut self, (ring, sender): (usize, Sender)) {
        self.ring = ring;
        self.sender = sender;
    }

    /// The place is another's from now on, with its ring, which is empty.
    pub(super) fn begin_anew(&mut self, id: EndpointId, name: u64, door: Outside) {
        self.id = id;
        self.name = name;
        self.door = Some(door);
        self.life = None;
        self.cross = None;
        self.is_open = false;
        self.is_waiting = false;
        self.has_exited = false;
        self.is_lost = false;
        self.shared = None;
        self.past = None;
        self.owes_ring = false;
        self.claim = None;
        self.receiver = None;
        self.queue = VecDeque::new();
    }

    /// Whether somebody reads where it has written.
    pub(super) fn is_held(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_held)
    }

    /// Whether a life of it is known and shared with.
    pub(super) fn is_bound(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether a life of it can be read from, be it over or not.
    pub(super) fn is_mapped(&self) -> bool {
        self.shared.is_some() || self.past.is_some()
    }

    /// Whether this life of it is known.
    pub(super) fn has_life(&self, nonce: &[u8; NONCE]) -> bool {
        self.life.is_some_and(|life| life.nonce == *nonce)
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
        self.shared.as_ref().is_none_or(|(shared, _)| shared.has_ended())
    }

    /// Whether it has said that it does not reach us.
    pub(super) fn refuses(&self) -> bool {
        self.shared.as_ref().is_some_and(|(shared, place)| shared.is_refused(*place))
    }

    pub(super) fn has_receiver(&self) -> bool {
        self.receiver.is_some()
    }

    /// Its ring to us is known now.
    ///
    /// # Errors
    /// When there is no such ring.
    pub(super) fn attach(&mut self, claim: &Claim, place: usize) -> std::result::Result<(), Corrupt> {
        let shared = self.shared.as_ref().map(|(shared, _)| shared).or(self.past.as_ref());
        let receiver = shared.and_then(|shared| shared.receiver(claim.ring)).ok_or(Corrupt::Inbox)?;
        receiver.found();
        self.receiver = Some(receiver);
        self.claim = Some(claim.serial);
        self.claimed = place;
        Ok(())
    }

    /// The host has closed it.
    pub(super) fn note_end(&mut self, segment: &Segment) {
        self.left = self.claim.and(self.life).and_then(|life| segment.begun_at(self.claimed, &life.nonce));
    }

    /// The host wants it again, and so may its own host want us: what either writes from now on is for the other.
    pub(super) fn revive(&mut self, segment: &Segment) {
        if let Some((shared, place)) = &self.shared {
            self.times += 1;
            let mark = self.sender.position() | (self.times % ALIGN as u64);
            shared.begin_at(*place, &segment.identity().nonce, mark);
        }
    }

    /// What it has written before is dropped.
    pub(super) fn drop_past(&mut self, segment: &Segment) {
        // Who had not been heard of is as one that writes before it was ever made known.
        let Some(left) = self.left else { return };
        for _ in 0..MOST_DROPPED {
            let Some(receiver) = self.receiver.as_mut().filter(|receiver| receiver.has_next()) else {
                return;
            };
            let mark = self.life.and_then(|life| segment.begun_at(self.claimed, &life.nonce));
            let is_for_us = |mark: &u64| *mark != left && receiver.position() >= mark - mark % ALIGN as u64;
            if mark.as_ref().is_some_and(is_for_us) || !matches!(receiver.take(), Ok(Some(_))) {
                return;
            }
            receiver.release();
        }
    }

    /// Tells it that its ring is looked at from now on.
    pub(super) fn poll_from_now_on(&mut self) {
        self.receiver.iter_mut().for_each(Receiver::poll_from_now_on);
    }

    /// Whether it has been told so, and rings no more.
    pub(super) fn is_polled(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_polled)
    }

    /// Sends through the ring, if nothing waits and there is room.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        tag: u8,
        pieces: [Lent; 2],
        counters: &Counters,
    ) -> std::result::Result<bool, Corrupt> {
        if !self.queue.is_empty() || !self.sender.push(tag, pieces)? {
            return Ok(false);
        }
        self.written(counters);
        Ok(true)
    }

    /// Sends a fragment through the ring, if there is room.
    #[inline]
    fn write(
        &mut self,
        fragment: &Fragment<Lent>,
        counters: &Counters,
    ) -> std::result::Result<bool, Corrupt> {
        let pieces = fragment.pieces.map(|piece| piece.unwrap_or(Lent::EMPTY));
        if !self.sender.push_cut(fragment.tag, pieces)? {
            return Ok(false);
        }
        self.written(counters);
        Ok(true)
    }

    /// Something is in the ring.
    #[inline(always)]
    fn written(&mut self, counters: &Counters) {
        counters.num_sends.add(1);
        if !self.sender.is_polled() {
            self.ring(counters);
        }
    }

    /// It does not look at the ring by itself.
    #[cold]
    fn ring(&mut self, counters: &Counters) {
        counters.num_bells.add(1);
        match &self.shared {
            Some((shared, place)) => shared.ring(*place),
            None => self.owes_ring = true,
        }
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
    pub(super) fn staging(&self) -> Option<Staging> {
        self.shared.as_ref().map(|(shared, _)| shared.staging())
    }

    /// Sends a fragment, behind those that wait.
    #[inline]
    pub(super) fn send(
        &mut self,
        fragment: Fragment<Lent>,
        counters: &Counters,
    ) -> std::result::Result<Taken, Corrupt> {
        if self.queue.is_empty() && self.write(&fragment, counters)? {
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
        while let Some(fragment) = self.queue.pop_front() {
            let written = self.write(&fragment, counters);
            if written != Ok(true) {
                self.queue.push_front(fragment);
                return written.map(|_| true);
            }
            over(fragment.cookie);
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
        self.cross = None;
    }
}
