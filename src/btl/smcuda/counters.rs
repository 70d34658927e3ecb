//! What is counted. Only who has the state counts; anybody may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread at a time writes.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, more: u64) {
        // No exchange: whoever writes holds the state.
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// All of a module.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Count,)*
        }

        /// Name and meaning of each.
        pub(super) const COUNTERS: &[(&str, &str)] = &[$((stringify!($name), $help),)*];

        impl Counters {
            /// The value of one, by its place in [`COUNTERS`].
            pub(super) fn value(&self, index: usize) -> u64 {
                [$(&self.$name,)*].get(index).map_or(0, |count| count.0.load(Ordering::Relaxed))
            }
        }
    };
}

counters! {
    num_sends: "Fragments sent through rings",
    num_sends_at_once: "Of these, copied from where the program has them, without a descriptor",
    num_queued: "Fragments that waited for room in a ring",
    num_bells: "Times that a peer was rung for, because it does not look at the ring by itself",
    num_recvs: "Fragments received",
    num_gets: "Messages copied from a peer's memory in one step",
    get_bytes: "Bytes of these",
    num_puts: "Copies to a peer's memory in one step",
    put_bytes: "Bytes of these",
    num_cross_failed: "Copies between memories that the system refused",
    num_corrupt: "Peers that wrote what no peer writes, and count as lost",
    num_lost: "Peers whose process ended without saying so",
}
