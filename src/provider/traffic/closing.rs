//! Endpoints that are closed: peers are told, and have some time to find what was sent.

use super::Traffic;
use super::context::{Item, Peer};
use crate::engine::connect::Vc;
use crate::engine::time::Instant;
use crate::wire::gni::datagram::NameId;

/// How long a closing endpoint waits for peers to find what it has sent, nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// And for peers to say farewell, who have found all.
const COURTESY: u64 = 20_000_000;

/// How long it waits besides for peers that copy from or to its memory, nanoseconds: one that is stopped while it does may do so
/// for ever.
const COPYING: u64 = 10_000_000_000;

/// Of that time, how long answers for which there is no room are tried, nanoseconds.
const ANSWERING: u64 = 500_000_000;

impl Traffic {
    /// For how long it is still tried, nanoseconds, to answer peers whose messages or operations have ended here, if there is any
    /// answer for which there was no room. What they have done would end in error else. `start`: when the endpoint began to be closed.
    pub fn answer(&mut self, slot: u32, start: u64) -> Option<u64> {
        self.pump_all(slot);
        let past = self.clock.nanos() - start;
        let owes = |there: &Peer| {
            let is_there = there.mailbox.as_ref().is_some_and(|mailbox| !mailbox.is_over());
            is_there && there.is_heard && there.closing.is_none() && there.queue.iter().any(Item::is_answer)
        };
        let owes_any = self.context(slot).ok()?.peers.iter().any(owes);
        let left = ANSWERING.checked_sub(past + self.answering).filter(|left| owes_any && *left != 0);
        if left.is_none() {
            // Endpoints of one that is stopped are closed one after the other.
            self.answering = if owes_any { self.answering + past } else { 0 };
        }
        left
    }

    fn pump_all(&mut self, slot: u32) {
        let peers = self.context(slot).map_or(0, |context| context.peers.len() as u32);
        (0..peers).for_each(|peer| self.pump(slot, peer));
    }

    /// An endpoint is going to be closed: nobody may connect to it any more, and its peers are told.
    pub fn begin_closing(&mut self, slot: u32, start: u64) {
        self.pump_all(slot);
        let Ok(context) = self.context(slot) else { return };
        let endpoint = context.endpoint;
        let farewells: Vec<(Vc, u64)> = context
            .peers
            .iter()
            .filter_map(|peer| Some((peer.vc?, peer.mailbox.as_ref().map_or(0, |mailbox| mailbox.sent()))))
            .collect();
        let _ = self.engine.shut(endpoint);
        // A peer may use its ring for somebody else once it knows.
        self.polled.retain(|of| of.0 != slot);
        self.bells.retain(|_, of| of.0 != slot);
        self.parting.extend(self.streams.extract_if(|_, of| of.0 == slot));
        self.hot.retain(|hot| hot.of.0 != slot);
        self.again.retain(|of| of.0 != slot);
        for (vc, sent) in farewells {
            let _ = self.engine.close(vc, sent, Instant::from_nanos(start));
        }
    }

    /// Something has happened to a stream of an endpoint that is being closed: whoever closes it is to see to that.
    pub(super) fn part_from(&mut self, number: u32) {
        let Some((slot, peer)) = self.parting.get(&number).copied() else { return };
        let there = self.context(slot).ok().and_then(|context| context.peers.get_mut(peer as usize));
        let Some(mailbox) = there.and_then(|there| there.mailbox.as_mut()) else { return };
        mailbox.part();
        self.moved += 1;
        // Not only who has armed: that may be whoever is in here.
        if let Some(nic) = &self.nic {
            nic.wake();
        }
    }

    /// For how long peers are still waited for, nanoseconds, if at all.
    pub fn farewell(&mut self, slot: u32, start: u64) -> Option<u64> {
        self.control();
        self.progress();
        let past = self.clock.nanos() - start;
        let context = self.context(slot).ok()?;
        context.peers.iter_mut().filter_map(|peer| peer.mailbox.as_mut()).for_each(|mailbox| mailbox.part());
        let waited_for = context.peers.iter().filter_map(|peer| peer.mailbox.as_ref());
        let is_found = waited_for.clone().all(|mailbox| mailbox.is_found());
        if waited_for.count() == 0 {
            return None;
        }
        (if is_found { COURTESY } else { PATIENCE }).checked_sub(past).filter(|left| *left != 0)
    }

    /// For how long it is still waited, nanoseconds, for peers that copy from or to memory that the endpoint has told them of: when
    /// it is closed that is the program's again. None begins to from now on.
    pub fn be_left(&mut self, slot: u32, start: u64) -> Option<u64> {
        let past = self.clock.nanos() - start;
        let mut is_copied = false;
        for mailbox in self.context(slot).ok()?.peers.iter().filter_map(|peer| peer.mailbox.as_ref()) {
            mailbox.go();
            is_copied |= mailbox.is_copied() && !mailbox.has_ended();
        }
        COPYING.checked_sub(past).filter(|left| is_copied && *left != 0)
    }

    /// Gives back what a closed endpoint had. What peers were told is repeated until they have heard it.
    pub fn end_closing(&mut self, slot: u32) {
        self.part(slot);
        self.forget_deferred(slot);
        self.parting.retain(|_, of| of.0 != slot);
        let Ok(context) = self.context(slot) else { return };
        let (endpoint, name, peers) = (context.endpoint, context.name, context.peers.len());
        for peer in 0..peers as u32 {
            self.disconnect(slot, peer, false);
        }
        if let Some(context) = self.contexts.get_mut(slot as usize) {
            *context = None;
        }
        self.again.retain(|of| of.0 != slot);
        // Its places in queues are free.
        self.rouse_for_room();
        self.rouse_deferred();
        let _ = self.rest_on_socket(name, false);
        if let Some(service) = &mut self.service {
            service.release(name.device, name.cdm_id);
        }
        if self.engine.remove(endpoint).is_err() {
            self.leaving.push((endpoint, name));
        }
    }

    /// The name of a closed endpoint has a new owner: peers are no more told of the one before, nor waited for.
    pub(super) fn give_up(&mut self, name: NameId) {
        let Self { leaving, engine, .. } = self;
        leaving.retain(|(endpoint, left)| {
            (left.device, left.cdm_id) != (name.device, name.cdm_id) || engine.abandon(*endpoint).is_err()
        });
    }
}
