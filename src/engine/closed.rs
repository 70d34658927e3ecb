//! What is left of a connection that is closed: how often the two had connected. By it, packets of an
//! earlier connection are known as such.

use std::collections::{HashMap, VecDeque};

/// How many past connections are remembered.
const REMEMBERED: usize = 16_384;

/// Connections that are over: how often we had connected, and how often the peer.
#[derive(Default)]
pub(super) struct ClosedConnections {
    known: HashMap<(u64, u32), (u16, u16)>,
    oldest: VecDeque<(u64, u32)>,
}

impl ClosedConnections {
    pub(super) fn get(&self, name: (u64, u32)) -> Option<(u16, u16)> {
        self.known.get(&name).copied()
    }

    pub(super) fn note(&mut self, name: (u64, u32), ours: u16, peers: u16, before: u16) {
        let peers = if peers == 0 { before } else { peers };
        if self.known.insert(name, (ours, peers)).is_none() {
            self.oldest.push_back(name);
            if self.oldest.len() > REMEMBERED
                && let Some(oldest) = self.oldest.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }

    /// Whether a peer's packets with this number are of a connection that is over.
    pub(super) fn is_over(&self, name: (u64, u32), connection: u16) -> bool {
        self.known
            .get(&name)
            .is_some_and(|(_, peers)| *peers != 0 && connection.wrapping_sub(*peers) as i16 <= 0)
    }
}
