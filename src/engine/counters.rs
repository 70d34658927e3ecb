//! What the engine counts.

macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident,)*) => {
        /// Counts since the engine was made. The first are those of the original, under its names.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
        }

        /// Name and meaning of each, in the order of [`Counters::iter`].
        pub const COUNTERS: &[(&str, &str)] = &[$((stringify!($name), $help),)*];

        impl Counters {
            /// Name and value of each, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
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
    /// Datagrams whose keyed tag is wrong.
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
    /// Segments sent empty in the place of cancelled ones.
    num_void_sends,
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
}
