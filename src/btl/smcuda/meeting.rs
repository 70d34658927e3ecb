//! Who is a peer: those that the host makes known or that make themselves known, their lives, and how they go.
//!
//! A peer is a process, by its name, and has one [life](super::peer::Peer::life) at a time. Who claims a place of our inbox
//! says which of its lives it is: the bell of another one than the known leads to its door, which shows the life that there is.
//! A peer that the host has closed stays as it is, so that it can be opened again, until its life is over, or its place is
//! needed and it has never claimed one of ours; then what belonged to it is used for others.

use super::counters::Counters;
use super::loss::Loss;
use super::peer::{Found, Peer};
use super::state::{Met, State, Step};
use crate::btl::{Cookie, EndpointId};
use crate::error::{Error, Result};
use crate::shm::{Claim, Claimed, Identity, Life, NONCE, Outside};

/// The next endpoint at the same place.
fn after(id: EndpointId) -> EndpointId {
    let generation = ((id.raw() >> 32) as u32).checked_add(1).unwrap_or(1);
    EndpointId::from_raw(u64::from(generation) << 32 | id.index() as u64)
}

impl State {
    /// The peer of this name, if it is not lost, nor closed by the host.
    fn met(&self, name: u64) -> Option<usize> {
        let index = *self.by_name.get(&name)?;
        (!self.peers[index].is_lost() && !self.closed.contains(&index)).then_some(index)
    }

    /// Whether this life of a peer is known already.
    pub(super) fn known(&self, name: u64, life: &[u8; NONCE]) -> Option<EndpointId> {
        let peer = &self.peers[self.met(name)?];
        peer.has_life(life).then_some(peer.id)
    }

    /// Makes a peer known by its door, with the life that was found behind it, if there is one, for the host to send to if it
    /// has asked for that.
    ///
    /// # Errors
    /// When there is no room for one more.
    pub(super) fn add(&mut self, name: u64, door: Outside, found: Option<(Identity, Found)>) -> Result<Met> {
        if let Some(index) = self.met(name).or_else(|| self.revive(name)) {
            self.admit(index, door);
            let is_anew = match found {
                Some((life, _)) if self.peers[index].has_life(&life.nonce) => false,
                Some((life, found)) => self.bind(index, life, found)?,
                None => false,
            };
            return Ok(Met { id: self.peers[index].id, is_anew });
        }
        let pid = door.pid();
        let index = self.place(name, door)?;
        self.by_name.insert(name, index);
        self.watch.add(index as u32, pid);
        match found {
            Some((life, found)) => {
                if let Err(error) = self.bind(index, life, found) {
                    self.vacate(index);
                    return Err(error);
                }
            }
            None => self.absent.push(index),
        }
        Ok(Met { id: self.peers[index].id, is_anew: false })
    }

    /// A peer that the host has closed is wanted again, in the same life of its, with what it shares; by another endpoint. What
    /// it has sent meanwhile was for nobody, but where it has closed us too, and wanted us again, or the host meets those again who
    /// have kept it.
    fn revive(&mut self, name: u64) -> Option<usize> {
        let index = *self.by_name.get(&name)?;
        let place = self.closed.iter().position(|other| *other == index)?;
        let peer = &mut self.peers[index];
        if peer.is_lost() || peer.has_exited || !peer.is_bound() {
            return None;
        }
        self.closed.remove(place);
        peer.id = after(peer.id);
        peer.revive(&self.segment);
        if !self.meets_again {
            peer.drop_past(&self.segment);
        }
        if peer.has_ended() {
            self.follow(index);
        }
        Some(index)
    }

    /// The door of a peer is found again, or that of the process which has taken its place.
    fn admit(&mut self, index: usize, door: Outside) {
        let peer = &mut self.peers[index];
        let pid = door.pid();
        if peer.door.as_ref().is_none_or(|known| known.pid() != pid) {
            peer.has_exited = false;
            self.watch.remove(index as u32);
            self.watch.add(index as u32, pid);
            self.exited.retain(|other| *other != index);
        }
        peer.door = Some(door);
    }

    /// A place for a peer, and a ring to it.
    fn place(&mut self, name: u64, door: Outside) -> Result<usize> {
        self.part(false);
        if self.free.is_empty() {
            if let Some(ring) = self.segment.sender() {
                let index = self.peers.len();
                let id = EndpointId::from_raw(1 << 32 | index as u64);
                self.peers.push(Peer::new(id, name, door, ring));
                return Ok(index);
            }
            self.let_ended_go();
            self.part(true);
        }
        let index = self.free.pop().ok_or(Error::OutOfResource)?;
        // Whoever has the old number has that of nobody.
        let id = after(self.peers[index].id);
        // Its ring was emptied when it became free, and its sender goes with it.
        self.peers[index].begin_anew(id, name, door);
        Ok(index)
    }

    /// Those whose processes have ended as they should, and of whom nothing is to be received, are closed: the host has
    /// no reason to do it.
    fn let_ended_go(&mut self) {
        self.note_exits();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.is_usable()
                && peer.has_exited
                && peer.has_ended()
                && !peer.has_arrived()
                && !peer.is_held()
            {
                let left = self.close(self.peers[index].id);
                self.news.extend(left.into_iter().map(|cookie| Step::Done(cookie, Ok(()))));
            }
        }
    }

    /// Binds a peer to a life that was found. Whether it had another one, which was not known to be over.
    ///
    /// # Errors
    /// When there is no room for us in its inbox, or for what is written to it.
    fn bind(&mut self, index: usize, life: Identity, found: Found) -> Result<bool> {
        if self.peers[index].life.is_some() {
            self.answer();
        }
        let peer = &self.peers[index];
        if peer.is_held() || (peer.is_usable() && peer.has_arrived()) {
            // What the old life has written is received first.
            self.follow(index);
            return Ok(false);
        }
        let is_anew = self.peers[index].is_bound();
        if is_anew {
            self.turn_over(index)?;
        }
        if self.peers[index].is_mapped() {
            self.forget(index);
        }
        let claim = self.claim(index);
        self.peers[index].bind(life, found, &claim)?;
        self.absent.retain(|other| *other != index);
        // It rang before it was known.
        let name = self.peers[index].name;
        for place in std::mem::take(&mut self.strangers) {
            match self.segment.claimant(place) {
                Ok(claim) if claim.name == name => self.hear(place),
                Ok(_) => {
                    self.strangers.push(place);
                    self.wonder(place);
                }
                Err(_) => {}
            }
        }
        let segment = &self.segment;
        let woken = self.unmet.wake(|place| segment.claimant(place).is_ok_and(|claim| claim.name == name));
        woken.into_iter().for_each(|place| self.hear(place));
        Ok(is_anew)
    }

    /// A peer's life is over, and so is what waits for it: it has not wanted to receive it. What is sent from now on
    /// is for the next one.
    ///
    /// # Errors
    /// When there is no empty ring for that.
    #[cold]
    pub(super) fn turn_over(&mut self, index: usize) -> Result<()> {
        let own = self.segment.identity().nonce;
        self.waiting.retain(|other| *other != index);
        let peer = &mut self.peers[index];
        peer.is_waiting = false;
        let over = peer.drop_queue();
        self.news.extend(over.into_iter().map(|cookie| Step::Done(cookie, Ok(()))));
        peer.turn_over(&own);
        self.follow(index);
        self.renew(index)
    }

    /// What was written to a peer's life is over.
    ///
    /// # Errors
    /// When there is no empty ring for what is written next.
    fn renew(&mut self, index: usize) -> Result<()> {
        let peer = &mut self.peers[index];
        let life = peer.life.map_or([0; NONCE], |life| life.nonce);
        if peer.has_exited {
            self.segment.clear(&life);
        }
        if self.segment.is_claimed(&life) == Claimed::Yes {
            // It reads there still: this one is given to nobody again.
            peer.take_ring(self.segment.sender().ok_or(Error::OutOfResource)?);
            Ok(())
        } else {
            peer.renew(&self.segment)
        }
    }

    /// Nothing of a peer's old life is read any more.
    fn forget(&mut self, index: usize) {
        self.turn = 0;
        for list in [&mut self.polled, &mut self.rung] {
            list.retain(|other| *other != index);
        }
        let own = self.segment.identity().nonce;
        self.peers[index].let_go(&own);
    }

    /// What we say where we claim a place, each time with another number.
    fn claim(&mut self, index: usize) -> Claim {
        self.claims += 1;
        let identity = self.segment.identity();
        let ring = self.peers[index].ring;
        Claim { name: self.own, life: identity.nonce, serial: self.claims, pid: identity.pid, ring }
    }

    /// A life of a peer was found, of which a door has shown that it has begun. Whether it had another one.
    ///
    /// # Errors
    /// When there is no room for us in its inbox.
    pub(super) fn appeared(&mut self, id: EndpointId, life: Identity, found: Found) -> Result<bool> {
        let index = id.index();
        match self.peers.get(index) {
            Some(peer) if peer.id == id && peer.is_usable() && !peer.has_life(&life.nonce) => {
                self.bind(index, life, found)
            }
            _ => Ok(false),
        }
    }

    /// The life that a peer has begun is not reached.
    pub(super) fn give_up(&mut self, id: EndpointId, counters: &Counters) {
        if self.at(id).is_ok() {
            self.lose(id.index(), Loss::Apart, counters);
        }
    }

    /// The name of a peer whose new life is about to be looked at.
    pub(super) fn looks_at(&mut self, id: EndpointId) -> Option<u64> {
        if let Some(peer) = self.peers.get_mut(id.index()) {
            peer.is_noted = false;
        }
        self.name(id)
    }

    /// Whether a peer's door shows this life.
    pub(super) fn shows(&self, id: EndpointId, life: &Life) -> bool {
        let peer = self.peers.get(id.index()).filter(|peer| peer.id == id);
        peer.and_then(|peer| peer.door.as_ref()).is_some_and(|door| door.shown() == Ok(Some(*life)))
    }

    /// Which life of a peer is known.
    #[cfg(test)]
    pub(super) fn life(&self, id: EndpointId) -> Option<Identity> {
        self.peers.get(id.index()).filter(|peer| peer.id == id)?.life
    }

    /// Places for peers, of these those in use, and places of the inbox of strangers.
    #[cfg(test)]
    pub(super) fn kept(&self) -> [usize; 3] {
        [self.peers.len(), self.peers.len() - self.free.len(), self.strangers.len()]
    }

    /// Looks at a peer's door from now on.
    pub(super) fn follow(&mut self, index: usize) {
        if !self.absent.contains(&index) {
            self.absent.push(index);
        }
    }

    /// A stranger's record was looked up: it is known now, or was a life that is over.
    pub(super) fn settle(&mut self, place: usize) {
        let claim = self.segment.claimant(place);
        if let Ok(claim) = claim
            && self.met(claim.name).is_some_and(|index| self.absent.contains(&index))
        {
            // Its new life is bound when all of the old one has been received.
            return;
        }
        self.strangers.retain(|other| *other != place);
        if claim.is_ok_and(|claim| self.known(claim.name, &claim.life).is_some()) {
            self.hear(place);
        } else {
            self.segment.free(place);
        }
    }

    /// A stranger is not reached, and learns it.
    pub(super) fn refuse(&mut self, place: usize, claim: &Claim) {
        self.strangers.retain(|other| *other != place);
        self.segment.refuse(place, claim);
    }

    /// The host may send to it from now on.
    pub(super) fn open(&mut self, id: EndpointId) {
        let index = id.index();
        if let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.id == id && !peer.is_open) {
            peer.is_open = true;
            if peer.has_receiver() {
                self.listen(index);
            }
            if self.peers[index].has_exited {
                self.exited.push(index);
            }
        }
    }

    /// The host does not send to it any more, and wants nothing of it. Returns what still waits.
    pub(super) fn close(&mut self, id: EndpointId) -> Vec<Cookie> {
        let index = id.index();
        let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.id == id && peer.is_open) else {
            return Vec::new();
        };
        peer.is_open = false;
        // Who rang before is known as one that has sent.
        if self.segment.is_rung() {
            self.answer();
        }
        let peer = &mut self.peers[index];
        // The list gets shorter.
        self.turn = 0;
        for list in [&mut self.polled, &mut self.rung, &mut self.waiting, &mut self.exited, &mut self.absent]
        {
            list.retain(|other| *other != index);
        }
        peer.is_waiting = false;
        peer.note_end(&self.segment);
        let left = peer.drop_queue();
        self.closed.push(index);
        self.part(false);
        left
    }

    /// Parts with those that are closed and whose life is over; in need, also with those that live and have never claimed a
    /// place here, so that nothing goes from or to them.
    #[cold]
    pub(super) fn part(&mut self, in_need: bool) {
        let own = self.segment.identity().nonce;
        for index in std::mem::take(&mut self.closed) {
            let peer = &mut self.peers[index];
            let is_over = if peer.is_held() {
                false
            } else if peer.has_exited {
                peer.life.iter().for_each(|life| self.segment.clear(&life.nonce));
                true
            } else if peer.has_ended() {
                let claimed = peer.life.map(|life| self.segment.is_claimed(&life.nonce));
                claimed != Some(Claimed::Yes)
            } else if in_need && peer.claim.is_none() {
                let life = peer.life.map(|life| life.nonce);
                let is_unclaimed = || life.is_some_and(|life| self.segment.is_claimed(&life) == Claimed::No);
                // Who has claimed a place reads our ring, though it has not rung. Otherwise it sees that our claim is gone, or we
                // see its own.
                is_unclaimed() && {
                    peer.let_go(&own);
                    is_unclaimed()
                }
            } else {
                false
            };
            if is_over {
                self.vacate(index);
            } else {
                self.closed.push(index);
            }
        }
    }

    /// Nobody has this place any more, and nobody reads its ring.
    fn vacate(&mut self, index: usize) {
        self.watch.remove(index as u32);
        let peer = &mut self.peers[index];
        if self.by_name.get(&peer.name) == Some(&index) {
            self.by_name.remove(&peer.name);
        }
        let own = self.segment.identity().nonce;
        peer.let_go(&own);
        peer.door = None;
        // One that cannot be emptied is not used again.
        if peer.renew(&self.segment).is_ok() {
            self.free.push(index);
        }
    }

    /// Whether those that had no life have begun one.
    #[cold]
    pub(super) fn look_for_lives(&mut self) {
        self.answer();
        for &index in &self.absent {
            let peer = &mut self.peers[index];
            // What its old life has sent is received first.
            if peer.is_noted || !peer.is_usable() || peer.is_held() || peer.has_arrived() {
                continue;
            }
            let shown = peer.door.as_ref().map(Outside::shown);
            if let Some(Ok(Some(life))) = shown
                && !peer.has_life(&life.segment.nonce)
            {
                peer.is_noted = true;
                self.news.push_back(Step::Appeared(peer.id, life));
            }
        }
        let known = |place: &usize| {
            let claim = self.segment.claimant(*place);
            claim.is_ok_and(|claim| self.known(claim.name, &claim.life).is_some())
        };
        let heard: Vec<usize> = self.strangers.iter().copied().filter(known).collect();
        let segment = &self.segment;
        self.strangers.retain(|place| !heard.contains(place) && segment.claimant(*place).is_ok());
        heard.into_iter().for_each(|place| self.hear(place));
    }

    /// Somebody has rung from a place of the inbox.
    pub(super) fn hear(&mut self, place: usize) {
        self.heed(place);
        if !self.strangers.contains(&place) {
            self.segment.free(place);
        }
    }

    fn heed(&mut self, place: usize) {
        // A place of nobody is nobody's.
        let Ok(claim) = self.segment.claimant(place) else { return };
        let known = self.by_name.get(&claim.name).copied();
        let Some(index) = known.filter(|index| self.peers[*index].has_life(&claim.life)) else {
            if !self.strangers.contains(&place) {
                self.strangers.push(place);
            }
            self.wonder(place);
            return;
        };
        let peer = &mut self.peers[index];
        if peer.is_lost() {
            return;
        }
        if !peer.is_mapped() {
            // The host has closed it, and may want it again.
            if !self.strangers.contains(&place) {
                self.strangers.push(place);
            }
            return;
        }
        // A life claims one place.
        let is_attached = match peer.claim {
            Some(serial) => serial == claim.serial,
            None => peer.attach(&claim, place).is_ok(),
        };
        if is_attached && self.peers[index].is_open {
            self.listen(index);
        }
    }
}
