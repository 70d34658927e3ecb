//! Peers of other nodes: their streams, what happens to them, and which of them are looked at each time.
//!
//! Of what happens a set of descriptors tells once. A stream by which much comes is looked at without that; and the set, as
//! long as there is one, only now and then.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use super::super::errno::Outcome;
use super::Traffic;
use super::arrive::TURN;
use super::connect::system;
use crate::engine::time::Instant;
use crate::gni::{Place, network};
use crate::wire::gni::datagram::NameId;

/// Streams that are looked at each time, at most; and how often in vain, before one is not any more.
const MOST: usize = 4;
const VAIN: u32 = 10_000;
/// Calls between looks at the others meanwhile, or while there is much to be done within the node.
const OTHERS: u32 = 16;
/// Between looks at streams by which something is on its way: a part of the time that peers may be silent, and nanoseconds at
/// most.
const PART: u64 = 16;
const SELDOM: u64 = 1_000_000_000;
/// For how long a peer is called to whom there is no way, nanoseconds.
const PATIENCE: u64 = 60_000_000_000;

/// A stream that is looked at each time.
pub(super) struct Hot {
    pub(super) of: (u32, u32),
    vain: u32,
}

impl Traffic {
    /// Other nodes reach an endpoint from now on; or do not, where this process may not use the network.
    ///
    /// # Errors
    /// `FI_EADDRINUSE`: somebody has the port. What the system does not give.
    pub(super) fn bind_far(&mut self, name: NameId, place: Option<Place>) -> Outcome<Option<Place>> {
        let (Some(place), Some(nic), Some(service)) = (place, &mut self.nic, &mut self.service) else {
            return Ok(None);
        };
        let is_new = nic.streams().is_none();
        let bound =
            nic.listen(place.address, place.silence).and_then(|()| service.bind_far(name.cdm_id, place));
        let rested = if is_new { self.rest_on_streams() } else { Ok(()) };
        match (bound, rested) {
            (Ok(port), Ok(())) => Ok(Some(Place { port, ..place })),
            (bound, rested) => {
                if is_new && let Some(nic) = &mut self.nic {
                    nic.close_network();
                }
                rested?;
                match bound {
                    // A process may be forbidden to use the network.
                    Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(system(&error)),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Looks at the streams; how many entries have come.
    #[cold]
    #[inline(never)]
    pub(super) fn look_far(&mut self, is_busy: bool) -> usize {
        let mut count = 0;
        let mut index = 0;
        while let Some(Hot { of: (slot, peer), .. }) = self.hot.get(index) {
            let (slot, peer) = (*slot, *peer);
            self.wake(slot, peer);
            let read = self.read(slot, peer, TURN);
            count += read;
            // Reading may end a connection.
            let Some(hot) = self.hot.get_mut(index).filter(|hot| hot.of == (slot, peer)) else { continue };
            hot.vain = if read == 0 { hot.vain + 1 } else { 0 };
            if hot.vain > VAIN {
                self.hot.swap_remove(index);
                self.heat(slot, peer, false);
                self.look_again(slot, peer);
            } else {
                index += 1;
            }
        }
        if self.is_clock_due()
            || self.hot.is_empty() && !is_busy
            || self.passes.load(Ordering::Relaxed).is_multiple_of(OTHERS)
        {
            count += self.hear_far();
        }
        count
    }

    fn wake(&mut self, slot: u32, peer: u32) {
        let there = self.context(slot).ok().and_then(|context| context.peers.get_mut(peer as usize));
        if let Some(mailbox) = there.and_then(|there| there.mailbox.as_mut()) {
            mailbox.wake();
        }
    }

    fn heat(&mut self, slot: u32, peer: u32, is_hot: bool) {
        let there = self.context(slot).ok().and_then(|context| context.peers.get_mut(peer as usize));
        if let Some(mailbox) = there.and_then(|there| there.mailbox.as_mut()) {
            mailbox.heat(is_hot);
        }
    }

    /// Sees to streams to which something has happened; how many entries have come. What happens meanwhile, again and again, is
    /// left to the next look, which whoever sleeps is woken for.
    pub(super) fn hear_far(&mut self) -> usize {
        let mut count = 0;
        let mut turns = self.streams.len() / network::MOST + 1;
        loop {
            let mut happened = std::mem::take(&mut self.happened);
            let network = self.nic.as_ref().and_then(|nic| nic.streams());
            let is_more = network.is_some_and(|network| network.happened(&mut happened));
            for number in happened.drain(..) {
                let Some((slot, peer)) = self.streams.get(&number).copied() else {
                    self.part_from(number);
                    continue;
                };
                self.wake(slot, peer);
                let read = self.read(slot, peer, TURN);
                count += read;
                if let Ok(context) = self.context(slot)
                    && let Some(there) = context.peers.get_mut(peer as usize)
                    && let Some(mailbox) = &mut there.mailbox
                {
                    mailbox.flush();
                }
                self.pump(slot, peer);
                let is_known = self.hot.iter().any(|hot| hot.of == (slot, peer));
                if read != 0 && !is_known && self.hot.len() < MOST && self.streams.contains_key(&number) {
                    self.hot.push(Hot { of: (slot, peer), vain: 0 });
                    self.heat(slot, peer, true);
                }
            }
            self.happened = happened;
            turns -= 1;
            if !is_more || turns == 0 {
                return count;
            }
        }
    }

    /// Streams that peers have opened.
    pub(super) fn take_streams(&mut self) {
        let mut taken = Vec::new();
        if let Some(network) = self.nic.as_mut().and_then(|nic| nic.network()) {
            network.accept(|number, socket| taken.push((number, socket)));
        }
        for (number, socket) in taken {
            self.moved += 1;
            let Some((slot, peer)) = self.streams.get(&number).copied() else { continue };
            let there = self.context(slot).ok().and_then(|context| context.peers.get_mut(peer as usize));
            let mailbox = there.and_then(|there| there.mailbox.as_mut());
            if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.number() == Some(number)) {
                mailbox.adopt(socket);
                self.look_again(slot, peer);
            }
        }
    }

    /// Connections whose stream has not come.
    pub(super) fn give_up_streams(&mut self, now: Instant) {
        let network = self.nic.as_ref().and_then(|nic| nic.streams());
        for number in network.map(|network| network.overdue(now.nanos())).unwrap_or_default() {
            if let Some((slot, peer)) = self.streams.get(&number).copied() {
                self.lose(slot, peer, libc::ETIMEDOUT);
            }
        }
    }

    /// Peers that have been silent for longer than they may are gone.
    pub(super) fn lose_silent(&mut self, now: Instant) {
        let now = now.nanos();
        let Some(most) = self.nic.as_ref().and_then(|nic| nic.streams()).map(|network| network.silence())
        else {
            return;
        };
        if now < self.silence_at {
            return;
        }
        self.silence_at = now + (most / PART).min(SELDOM);
        self.is_waiting = false;
        let mut silent = Vec::new();
        for (slot, peer) in self.streams.values().copied() {
            let context = self.contexts.get_mut(slot as usize).and_then(Option::as_mut);
            let mailbox = context.and_then(|context| context.peers.get_mut(peer as usize)?.mailbox.as_mut());
            let Some(silence) = mailbox.and_then(|mailbox| mailbox.silence(now)) else { continue };
            self.is_waiting = true;
            if silence > most {
                silent.push((slot, peer));
            }
        }
        for (slot, peer) in silent {
            self.wake(slot, peer);
            let _ = self.read_all(slot, peer);
            self.lose(slot, peer, libc::ETIMEDOUT);
        }
    }

    /// When peers are to be looked at again: soon where something is on its way to one, and where something may come to be, in time.
    pub(super) fn asks_at(&self, now: u64) -> Option<u64> {
        let most = self.nic.as_ref().and_then(|nic| nic.streams())?.silence();
        match (self.is_waiting, self.streams.is_empty()) {
            (true, _) => Some(self.silence_at),
            (false, false) => Some(now + most / 2),
            (false, true) => None,
        }
    }

    /// Somebody is going to sleep: has him woken to look whether peers answer what was sent to them.
    pub(super) fn expect_answers(&mut self) {
        let Self { streams, contexts, is_waiting, .. } = self;
        let is_to_be_asked = |(slot, peer): &(u32, u32)| {
            let context = contexts.get(*slot as usize).and_then(Option::as_ref);
            let there = context.and_then(|context| context.peers.get(*peer as usize));
            there.and_then(|there| there.mailbox.as_ref()).is_some_and(|mailbox| mailbox.is_to_be_asked())
        };
        *is_waiting = *is_waiting || streams.values().any(is_to_be_asked);
    }

    /// Whether there was no way to a peer that was called; then it is called again.
    #[cold]
    pub(super) fn is_unreached(&mut self, slot: u32, peer: u32) -> bool {
        let now = self.now().nanos();
        let there = self.context(slot).ok().and_then(|context| context.peers.get(peer as usize));
        let is_it =
            there.and_then(|there| there.mailbox.as_ref()).is_some_and(|mailbox| mailbox.is_unreached());
        if is_it && !self.unreached.contains_key(&(slot, peer)) {
            self.unreached.insert((slot, peer), now);
            // Whoever sleeps has no sign of it.
            self.stir();
        }
        is_it
    }

    /// Whether somebody is called again soon.
    pub(super) fn has_unreached(&self) -> bool {
        !self.unreached.is_empty()
    }

    /// Calls peers again to whom there was no way: a cable may be in again.
    pub(super) fn call_again(&mut self, now: Instant) {
        let called: Vec<((u32, u32), u64)> = self.unreached.iter().map(|(of, since)| (*of, *since)).collect();
        for ((slot, peer), since) in called {
            let Self { nic: Some(nic), contexts, .. } = self else { return };
            let context = contexts.get_mut(slot as usize).and_then(Option::as_mut);
            let mailbox = context.and_then(|context| context.peers.get_mut(peer as usize)?.mailbox.as_mut());
            if mailbox.as_ref().is_none_or(|mailbox| mailbox.has_begun()) {
                self.unreached.remove(&(slot, peer));
                continue;
            }
            // One that is on its way tells what becomes of it.
            let Some(mailbox) = mailbox.filter(|mailbox| mailbox.is_unreached()) else { continue };
            if now.nanos() - since > PATIENCE || nic.connect_far(mailbox).is_err() {
                self.lose(slot, peer, libc::EHOSTUNREACH);
            }
        }
    }

    /// Nobody is there where an endpoint of another node was: before its name was known it had its port. A connection that
    /// there is says itself what becomes of it.
    pub(super) fn refused(&mut self, device: u32, cdm_id: u32, now: Instant) {
        let mut ended = Vec::new();
        for context in self.contexts.iter().flatten() {
            let is_it = |peer: &&super::context::Peer| {
                (peer.name.device, peer.name.cdm_id) == (device, cdm_id)
                    && peer.name.incarnation != 0
                    && !peer.is_connected
            };
            ended.extend(context.peers.iter().filter(is_it).map(|peer| peer.name));
        }
        for name in ended {
            self.engine.peer_died(name, now);
        }
    }
}
