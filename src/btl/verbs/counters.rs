//! What is counted. Who has the state counts; the connection thread has counters of its own. Anybody may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// One thread at a time does this.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        // No exchange: whoever writes holds the state, or is the connection thread, which has others.
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Counts one, whoever else does.
    pub(super) fn raise_by_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A greatest value.
    pub(super) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The same of a count that is kept elsewhere.
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What a message that goes by the short path is.
const OF_SHORT: [&str; 3] = ["num_sends", "num_inline_sends", "num_sends_at_once"];

macro_rules! counters {
    ($($name:ident: $help:literal,)*) => {
        /// All of a module.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Count,)*
            /// Messages that went by the short path. They count in each of [`OF_SHORT`].
            pub(super) num_short_sends: Count,
        }

        /// Name and meaning of each.
        pub(super) const COUNTERS: &[(&str, &str)] = &[$((stringify!($name), $help),)*];

        impl Counters {
            /// The value of one, by its place in [`COUNTERS`].
            pub(super) fn value(&self, index: usize) -> u64 {
                let own = [$(&self.$name,)*].get(index).map_or(0, |count| count.0.load(Ordering::Relaxed));
                match COUNTERS.get(index) {
                    Some((name, _)) if OF_SHORT.contains(name) => {
                        own + self.num_short_sends.0.load(Ordering::Relaxed)
                    }
                    _ => own,
                }
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
    num_sends: "Messages sent",
    send_bytes: "Bytes of these",
    num_inline_sends: "Messages copied to the device when they were posted, the component's own as well",
    num_sends_at_once: "Messages sent from where the program has them, without a descriptor",
    num_recvs: "Messages received",
    recv_bytes: "Bytes of these",
    num_puts: "RDMA writes",
    put_bytes: "Bytes of these",
    num_gets: "RDMA reads",
    get_bytes: "Bytes of these",
    num_atomics: "Atomic operations on memory of peers, and of the process's own by way of the device",
    num_registrations: "Times that memory was registered for peers",
    num_transfer_registrations: "Times that memory was registered for a transfer of this side's",
    num_cache_hits: "Times that memory was registered already, where registrations are kept",
    num_cache_misses: "Times that it was not",
    num_cache_evictions: "Registrations that were kept and given up for others",
    num_cache_invalidations: "Registrations that were given up because their memory was unmapped",
    num_controls: "Messages of the component's own that were sent",
    num_credit_words: "Limits that were written to a peer's memory",
    num_credits_lent: "Credits of shared queues that were lent",
    num_recalls: "Times that a peer was asked to give credits back",
    num_queued: "Messages that waited",
    num_stalls_connection: "Times that the first of them had to wait for a connection; the others wait for their turn",
    num_stalls_credit: "The same, for a credit of the peer's",
    num_stalls_slot: "The same, for a place in a send queue",
    num_stalls_buffer: "The same, for a send buffer",
    num_connected: "Times that a peer was connected",
    num_initiated: "Of these, by this side",
    num_attempts: "Attempts to connect that were begun or answered",
    num_kicks: "Times that a peer was asked to connect",
    num_rejects: "Requests of peers that were rejected",
    num_rejected: "Own requests that peers have rejected",
    num_cts_sent: "CTS sent",
    num_cts_received: "CTS received",
    max_handover_us: "Longest time from the last queue being up to the main thread knowing, in microseconds",
    num_probes: "Times that a peer with nothing under way was asked whether its device answers",
    num_rnr: "Messages that ended because the peer had no buffer",
    num_corrupt: "Messages and words of peers that were none, or beyond their credit",
    num_unheard: "Messages that were dropped, for nobody here takes what has their tag",
    num_dropped: "Messages that came on queue pairs of the past",
    num_failed: "Connections that ended in error",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_by_the_short_path_counts_as_all_that_it_is() {
        let counters = Counters::default();
        counters.num_sends.add(2);
        counters.num_short_sends.add(5);
        let all = |name: &str| {
            let index =
                COUNTERS.iter().position(|(known, _)| *known == name).expect("a counter of this name");
            counters.value(index)
        };
        assert_eq!(OF_SHORT.map(all), [7, 5, 5]);
        assert_eq!((all("num_recvs"), counters.value(COUNTERS.len())), (0, 0));
        assert_eq!(counters.describe(), "num_sends 7, num_inline_sends 5, num_sends_at_once 5");
    }
}
