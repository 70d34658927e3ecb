//! Endpoints that are closed: peers are told, and have some time to find what was sent.

use super::Traffic;
use crate::engine::connect::Vc;
use crate::engine::time::Instant;
use crate::wire::gni::datagram::NameId;

/// How long a closing endpoint waits for peers to find what it has sent, nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// And for peers to say farewell, who have found all.
const COURTESY: u64 = 20_000_000;

impl Traffic {
    /// An endpoint is going to be closed: nobody may connect to it any more, and its peers are told. When that was.
    pub fn begin_closing(&mut self, slot: u32) -> u64 {
        let start = self.clock.nanos();
        let Ok(context) = self.context(slot) else { return start };
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
        self.streams.retain(|_, of| of.0 != slot);
        self.hot.retain(|hot| hot.of.0 != slot);
        self.again.retain(|of| of.0 != slot);
        for (vc, sent) in farewells {
            let _ = self.engine.close(vc, sent, Instant::from_nanos(start));
        }
        start
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

    /// Gives back what a closed endpoint had. What peers were told is repeated until they have heard it.
    pub fn end_closing(&mut self, slot: u32) {
        self.part(slot);
        self.forget_deferred(slot);
        let Ok(context) = self.context(slot) else { return };
        let (endpoint, name, peers) = (context.endpoint, context.name, context.peers.len());
        for peer in 0..peers as u32 {
            self.disconnect(slot, peer, false);
        }
        if let Some(context) = self.contexts.get_mut(slot as usize) {
            *context = None;
        }
        self.again.retain(|of| of.0 != slot);
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
