//! Peers that nothing refers to are forgotten, and others have their places: a server hears of ever new clients.
//!
//! A peer is a number, which whatever has to do with it has, too: a connection, what is under way or waits, a message that nobody has
//! asked for, a receive that names it. Now and then, when there are many, all of these are gone through. So nobody has the number
//! of a peer any more when another gets it. What is known of a peer that has gone, as that its life is over, is kept as
//! long as it is in the address vector, or is among those that went last.

use std::collections::HashSet;

use super::Traffic;
use super::context::{Context, What};
use crate::wire::gni::context::whole;
use crate::wire::gni::datagram::NameId;

/// Peers that have gone and are still known, at most, soon after there are twice as many.
pub(super) const KEPT: usize = 1024;

impl Traffic {
    /// Forgets peers, where there are many.
    pub(super) fn forget_peers(&mut self) {
        let Self { contexts, engine, visited, .. } = self;
        for (slot, context) in contexts.iter_mut().enumerate() {
            let Some(context) = context.as_mut().filter(|context| context.has_many()) else { continue };
            let visited = visited.filter(|of| of.0 as usize == slot).map(|of| of.1);
            for name in context.forget_peers(visited) {
                // There is such an endpoint.
                let _ = engine.withdraw(context.endpoint, name);
            }
            engine.trim(context.endpoint);
        }
    }
}

impl Context {
    fn has_many(&self) -> bool {
        self.peers.len() - self.forgotten.len() >= self.many
    }

    /// Forgets all but those that are referred to and those that went last.
    fn forget_peers(&mut self, visited: Option<u32>) -> Vec<NameId> {
        let used = self.used(visited);
        let mut gone: Vec<u32> =
            self.by_name.values().copied().filter(|peer| !used[*peer as usize]).collect();
        gone.sort_unstable_by_key(|peer| self.peers[*peer as usize].gone_at);
        gone.truncate(gone.len().saturating_sub(KEPT));
        // Endpoints of which a context is still known are, too.
        let out: HashSet<u32> = gone.iter().copied().collect();
        let left = self.by_name.values().filter(|peer| !out.contains(peer));
        let wholes: HashSet<u32> = left.map(|peer| self.peers[*peer as usize].whole).collect();
        gone.retain(|peer| !wholes.contains(peer));
        let names: Vec<NameId> = gone.iter().map(|peer| self.peers[*peer as usize].name).collect();
        for name in &names {
            self.by_name.remove(&(name.device, name.cdm_id));
        }
        self.forgotten.extend(gone);
        self.many = 2 * (self.peers.len() - self.forgotten.len()).max(KEPT);
        self.forget_addresses();
        names
    }

    /// Which peers something refers to.
    fn used(&self, visited: Option<u32>) -> Vec<bool> {
        let messages = self.messages.iter().filter(|message| !matches!(message.what, What::Nothing));
        let of = visited
            .into_iter()
            .chain(self.sends.iter().map(|outgoing| outgoing.peer))
            .chain(self.operations.iter().map(|operation| operation.peer))
            .chain(self.pulls.iter().map(|pull| pull.peer))
            .chain(self.told.iter().copied())
            .chain(messages.map(|message| message.peer))
            .chain(self.tagged.sources().chain(self.untagged.sources()).map(|source| source as u32));
        let mut used: Vec<bool> = self.peers.iter().map(super::context::Peer::is_busy).collect();
        of.for_each(|peer| used.get_mut(peer as usize).into_iter().for_each(|used| *used = true));
        let mut named = HashSet::new();
        if let Some(ends) = &self.ends {
            ends.av.each(|id| _ = named.insert((id.device, whole(id.cdm_id))));
        }
        for (used, there) in used.iter_mut().zip(&self.peers) {
            *used |= named.contains(&(there.name.device, whole(there.name.cdm_id)));
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::Buffer;
    use super::super::tests::{Side, pair, stir};
    use super::*;

    /// So many peers are heard of that nobody has an address of, and go.
    fn come_and_go(side: &Side, of: u32, count: u32) {
        side.with(|traffic| {
            let slot = side.slot;
            for cdm_id in 0..count {
                let context = traffic.context(slot).expect("open");
                let name = NameId { device: of, cdm_id, incarnation: 1 };
                let peer = context.peer_named(name);
                let endpoint = context.endpoint;
                traffic.engine.insert(endpoint, name).expect("mapped");
                traffic.disconnect(slot, peer, false);
                if cdm_id % 100 == 0 {
                    traffic.watch_at = 0;
                    traffic.control();
                }
            }
        });
    }

    fn number(side: &Side, of: u32, cdm_id: u32) -> Option<u32> {
        side.with(|traffic| traffic.context(side.slot).expect("open").by_name.get(&(of, cdm_id)).copied())
    }

    #[test]
    fn who_has_gone_is_forgotten_when_many_others_have() {
        let side = Side::new();
        for of in 1..20 {
            come_and_go(&side, of, 1000);
        }
        let count = side.with(|traffic| traffic.context(side.slot).expect("open").peers.len());
        assert!(count <= 2 * KEPT + 200, "{count} places");
        assert_eq!(number(&side, 1, 0), None);
        assert!(number(&side, 19, 999).is_some(), "the last is known");
        let name = NameId { device: 19, cdm_id: 999, incarnation: 1 };
        let one = side.with(|traffic| traffic.context(side.slot).expect("open").peer_named(name));
        assert_eq!(Some(one), number(&side, 19, 999));
    }

    #[test]
    fn whom_anything_refers_to_keeps_its_number() {
        let [one, two] = pair();
        // It is in no address vector, and has sent what nobody has asked for.
        let three = Side::new();
        three.knows(&one);
        // SAFETY: the bytes are static.
        let buffer = || unsafe { Buffer::new(b"word".as_ptr(), 4) };
        three.send_to(0, buffer(), 5).expect("queued");
        while three.ended(&three.transmit).0.is_empty() {
            stir(&[&one, &three]);
        }
        stir(&[&one]);
        drop(three);
        stir(&[&one]);
        let mut late = [0; 4];
        one.receive_of(0, &mut late, 6);
        for of in 1..20 {
            come_and_go(&one, of, 1000);
        }
        let mut kept = [0; 4];
        one.receive(&mut kept, 5);
        let (well, _) = one.ended(&one.receive);
        assert_eq!((well.len(), &kept), (1, b"word"));
        // SAFETY: the bytes are static.
        two.send_to(0, unsafe { Buffer::new(b"late".as_ptr(), 4) }, 6).expect("sent");
        while one.ended(&one.receive).0.is_empty() {
            stir(&[&one, &two]);
        }
        assert_eq!(&late, b"late");
    }
}
