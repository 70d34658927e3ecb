//! How far the windows of all peers are open, for statistics.

use super::{Engine, Memory};

/// Least and most over all peers; zero without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Peers that are connected.
    pub peers: usize,
    /// Segments that were sent and not acknowledged in sequence.
    pub unacknowledged: [u64; 2],
    /// How far the latest segment received is ahead of the one expected.
    pub received_ahead: [u64; 2],
}

impl<M: Memory> Engine<M> {
    /// Looks at all peers; no short path asks for it.
    pub fn extents(&self) -> Extents {
        let places = self.endpoints.indices().into_iter();
        let live = places.filter_map(|place| self.endpoints.at(place).filter(|endpoint| endpoint.is_live()));
        let mut extents = Extents::default();
        for endpoint in live {
            let widen = |range: &mut [u64; 2], value: u64| {
                range[0] = if extents.peers == 0 { value } else { range[0].min(value) };
                range[1] = range[1].max(value);
            };
            widen(&mut extents.unacknowledged, endpoint.window.len() as u64);
            let ahead = endpoint.received.end().saturating_sub(endpoint.received.next());
            widen(&mut extents.received_ahead, ahead);
            extents.peers += 1;
        }
        extents
    }
}
