//! Packet numbers of protected packets, over all that a simulation ever puts on the wire: none repeats.

use std::collections::HashMap;

/// Numbers of a connection follow each other; those of two differ in the bits above these.
const COUNT_BITS: u32 = 44;

/// What was put on the wire.
#[derive(Default)]
pub(super) struct Numbers {
    /// The last number of each connection of each life of a node.
    last: HashMap<(usize, u32, u64), u64>,
    /// Bytes of the longest packet.
    #[cfg(test)]
    pub(super) longest: usize,
}

impl Numbers {
    /// A node puts a protected packet on the wire.
    ///
    /// # Panics
    /// If it has used the number before.
    pub(super) fn note(&mut self, node: usize, incarnation: u32, packet: &[u8]) {
        let number = u64::from_le_bytes(packet[8..16].try_into().expect("a header"));
        #[cfg(test)]
        {
            self.longest = self.longest.max(packet.len());
        }
        let last = self.last.insert((node, incarnation, number >> COUNT_BITS), number);
        assert!(last.is_none_or(|last| last < number), "node {node} sends {number} after {last:?}");
    }

    /// Connections that have sent anything.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.last.len()
    }
}
