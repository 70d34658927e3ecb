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

    #[cfg(test)]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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

            /// Those that are not 0, in one line.
            pub(super) fn describe(&self) -> String {
                let all = COUNTERS.iter().enumerate().map(|(index, (name, _))| (name, self.value(index)));
                let all = all.filter(|(_, value)| *value != 0).map(|(name, value)| format!("{name} {value}"));
                all.collect::<Vec<_>>().join(", ")
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
    num_ipc_requests: "Peers that were asked whether device memory can be shared",
    num_ipc_accepted: "Offers of theirs that could be opened",
    num_ipc_refused: "Times that a peer was told that device memory is not shared",
    num_ipc_not_ready: "Times that a peer was told to ask again, because CUDA was not in use here",
    num_ipc_retried: "Times that a peer has told us so",
    num_ipc_strays: "Messages about device memory that did not fit",
    num_ipc_gets: "Messages copied from or to device memory that was opened",
    ipc_bytes: "Bytes of these",
    num_ipc_hits: "Times that device memory of a peer was found open",
    num_ipc_misses: "Times that it was opened",
    num_ipc_evictions: "Times that it was closed to make room",
    num_ipc_stale: "Times that it was closed because its owner had freed it",
    num_staged_gets: "Messages from device memory that could not be opened, and went by way of host memory",
    num_staged: "Pieces of messages that went by way of host memory that is pinned, at either end",
    staged_bytes: "Bytes of these",
    num_unknown: "Times that the record of a process that sends was not to be found under the name that it gives",
    num_corrupt: "Peers that wrote what no peer writes, and count as lost",
    num_unheard: "Fragments that were dropped, for nobody here takes what has their tag",
    num_lost: "Peers whose process ended without saying so",
}
