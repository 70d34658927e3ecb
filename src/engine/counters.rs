//! What the engine counts.
//!
//! The engine alone writes its counters; whoever holds them may read them at any time, from any thread,
//! without asking the engine.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one writer at a time changes and anybody may read.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Counts so many more. Only the engine calls this, of which there is one `&mut` at a time: no other
    /// writer comes between the load and the store, and the pair costs what an addition in memory costs.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Keeps the greatest. As [`add`](Self::add).
    #[inline]
    pub(super) fn raise(&self, to: u64) {
        if to > self.0.load(Ordering::Relaxed) {
            self.0.store(to, Ordering::Relaxed);
        }
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident,)*) => {
        /// Counts since the engine was made, at one moment. The first are those of the original, under
        /// its names.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
        }

        /// The counters themselves, as they grow.
        #[derive(Debug, Default)]
        pub struct LiveCounters {
            $(pub(super) $name: Count,)*
        }

        /// Name and meaning of each, in the order of [`Counters::iter`].
        pub const COUNTERS: &[(&str, &str)] = &[$((stringify!($name), $help),)*];

        impl Counters {
            /// Name and value of each, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl LiveCounters {
            /// Their values now: each is right, though others may have grown in between.
            pub fn read(&self) -> Counters {
                Counters { $($name: self.$name.value(),)* }
            }

            /// The value of one, by its place in [`COUNTERS`].
            pub fn value(&self, index: usize) -> Option<u64> {
                [$(&self.$name,)*].get(index).map(|count| count.value())
            }
        }
    };
}

counters! {
    /// Packets sent, of any kind.
    num_total_sends,
    /// Segments sent again.
    num_resends,
    /// Of these, because nothing was heard for too long.
    num_timeout_retrans,
    /// Of these, because later segments were acknowledged.
    num_fast_retrans,
    /// Segments sent for the first time that were parts of a fragment.
    num_chunk_sends,
    /// Segments sent for the first time that were whole fragments.
    num_frag_sends,
    /// Packets sent only to acknowledge.
    num_ack_sends,
    /// Datagrams received, of any kind.
    num_total_recvs,
    /// Genuine packets of processes that are not connected.
    num_unk_recvs,
    /// Segments received again.
    num_dup_recvs,
    /// Segments below the window: received again, long ago.
    num_oow_low_recvs,
    /// Segments above the window.
    num_oow_high_recvs,
    /// Whole fragments received.
    num_frag_recvs,
    /// Parts of fragments received.
    num_chunk_recvs,
    /// Parts that contradict what is known of their fragment.
    num_badfrag_recvs,
    /// Packets received that only acknowledge.
    num_ack_recvs,
    /// Acknowledgements older than what is known.
    num_old_dup_acks,
    /// Acknowledgements that say nothing new.
    num_dup_acks,
    /// Reassembly buffers given back.
    num_recv_reposts,
    /// Datagrams whose keyed tag is wrong, or that are protected and do not decrypt.
    num_crc_errors,
    /// Sends asked for.
    pml_module_sends,
    /// Sends, PUTs and GETs reported as done.
    pml_send_callbacks,
    /// Most segments that were under way to one peer.
    max_sent_window_size,
    /// Largest distance of a segment received from the one expected.
    max_rcvd_window_size,
    /// Datagrams too short for their header.
    num_short_recvs,
    /// Datagrams of another version.
    num_version_recvs,
    /// Datagrams of no known kind.
    num_kind_recvs,
    /// Datagrams with flags that mean nothing, or another protection than ours.
    num_flags_recvs,
    /// Datagrams that claim more payload than they have.
    num_length_recvs,
    /// Genuine packets of a connection that is over.
    num_stale_recvs,
    /// Packets with a short header that name no connection of ours: nobody can tell whether they are genuine.
    num_nameless_recvs,
    /// Acknowledgements of what was never sent.
    num_bad_acks,
    /// Parts dropped because memory for reassembly is used up; they come again.
    num_reassembly_full,
    /// PUT and GET packets that name nothing they may reach.
    num_refused_recvs,
    /// GET data that nobody asked for, or a second time.
    num_stray_data_recvs,
    /// PUTs asked for.
    num_puts,
    /// GETs asked for.
    num_gets,
    /// PUT segments written.
    num_put_recvs,
    /// GET requests served.
    num_get_recvs,
    /// GET data segments written.
    num_get_data_recvs,
    /// Of these, segments that the kernel put where they belong.
    num_landed_recvs,
    /// Segments sent empty in the place of cancelled or withdrawn ones.
    num_void_sends,
    /// Segments too long for the path, whose data was sent anew in others.
    num_withdrawals,
    /// Segments that were withdrawn and came after all; they are dropped.
    num_withdrawn_recvs,
    /// Resends that turned out to have been unnecessary.
    num_spurious_retrans,
    /// Times a congestion window was reduced.
    num_congestion_events,
    /// Times a peer was asked again because nothing was heard of it.
    num_probes,
    /// Peers given up.
    num_lost_peers,
    /// Fragments received fast, their book-keeping deferred.
    num_fast_recvs,
    /// Fragments sent fast, in the call that asked for it.
    num_fast_sends,
    /// Protected packets whose number has come before, or is too old to tell.
    num_replay_recvs,
    /// Processes told that we do not know their connection any more.
    num_reset_sends,
    /// Peers that told us so.
    num_reset_recvs,
    /// Fragments that were dropped, for nobody here takes what has their tag.
    num_unheard,
}

impl LiveCounters {
    /// A fragment has been dropped whose tag nobody takes. The engine itself does not know of tags: who delivers for it counts.
    pub fn count_unheard(&self) {
        self.num_unheard.add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn names_values_and_places_belong_together() {
        let live = LiveCounters::default();
        live.num_total_sends.add(3);
        live.max_sent_window_size.raise(7);
        live.max_sent_window_size.raise(5);
        live.num_fast_sends.add(2);
        let read = live.read();
        assert_eq!((read.num_total_sends, read.max_sent_window_size, read.num_fast_sends), (3, 7, 2));
        assert!(read.iter().zip(COUNTERS).all(|((name, _), (known, _))| name == *known));
        for (index, (_, value)) in read.iter().enumerate() {
            assert_eq!(live.value(index), Some(value));
        }
        assert_eq!(live.value(COUNTERS.len()), None);
    }

    #[test]
    fn a_reader_sees_them_grow_and_never_shrink() {
        let live = Arc::new(LiveCounters::default());
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut last = 0;
                loop {
                    let ends = over.load(Ordering::Acquire);
                    let now = live.read().num_total_recvs;
                    assert!(now >= last);
                    last = now;
                    if ends {
                        return last;
                    }
                }
            });
            for _ in 0..100_000 {
                live.num_total_recvs.add(1);
            }
            over.store(true, Ordering::Release);
            assert_eq!(reader.join().expect("no panic"), 100_000);
        });
    }
}
