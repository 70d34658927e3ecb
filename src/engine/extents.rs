//! How far the windows of all peers are open, for statistics.

use super::core::Engine;
use super::interface::Memory;

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
            widen(&mut extents.unacknowledged, endpoint.send.window.len() as u64);
            let ahead = endpoint.receive.window.end().saturating_sub(endpoint.receive.window.next());
            widen(&mut extents.received_ahead, ahead);
            extents.peers += 1;
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fragment, Identity, Instant, Peer};
    use super::*;
    use crate::config;

    #[derive(Clone)]
    struct Zeros(usize);

    impl Memory for Zeros {
        fn len(&self) -> usize {
            self.0
        }
        fn read(&self, _: usize, to: &mut [u8]) {
            to.fill(0);
        }
        fn write(&self, _: usize, _: &[u8]) {}
    }

    #[test]
    fn the_least_and_the_most_are_of_all_peers() {
        let identity = Identity { name: 9, incarnation: 1, key: [0; 16] };
        let now = Instant::ORIGIN;
        let mut engine =
            Engine::<Zeros>::new(&config::Usnic::default(), identity, 1 << 20, now).expect("memory");
        assert_eq!(engine.extents(), Extents::default());
        let peer = |name| Peer { name, incarnation: 1, key: [0; 16], max_datagram: 1472 };
        let busy = engine.connect(peer(1), now).expect("a peer");
        let nothing = Extents { peers: 1, ..Extents::default() };
        assert_eq!(engine.extents(), nothing);
        let fragment =
            Fragment { tag: 1, pieces: [Some(Zeros(100)), None], cookie: 1, priority: false, awaited: true };
        engine.send(busy, fragment, now).expect("alive");
        while engine.poll_transmit(now).is_some() {}
        assert_eq!(engine.extents(), Extents { unacknowledged: [1, 1], ..nothing });
        engine.connect(peer(2), now).expect("a peer");
        let both = Extents { peers: 2, unacknowledged: [0, 1], received_ahead: [0, 0] };
        assert_eq!(engine.extents(), both);
    }
}
