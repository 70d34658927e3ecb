//! Parameters as plain data: what the host's users may set, and why the defaults are what they are.

use std::time::Duration;

/// Names separated by commas, as users write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(Vec<String>);

impl NameList {
    /// The names in `text`; empty ones do not count.
    pub fn parse(text: &str) -> Self {
        Self(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether there is no name at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a provider is meant: a listed name is the provider's, or the beginning of it, so
    /// that `tcp` also means the layered `tcp;ofi_rxm`. Letter case does not matter.
    pub fn names(&self, provider: &str) -> bool {
        self.0
            .iter()
            .any(|name| provider.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)))
    }
}

impl std::fmt::Display for NameList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// How communicator, source and tag share the tag bits (`mtl_ofi_tag_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMode {
    /// `ofi_tag_full` where the provider can, else `ofi_tag_1`.
    Auto,
    /// 12 bits of communicator, whole tags.
    One,
    /// 24 bits of communicator, 19-bit tags.
    Two,
    /// The source travels outside the tag.
    Full,
}

/// Who drives the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressMode {
    /// A thread of the provider.
    Auto,
    /// Our calls.
    Manual,
    /// The provider's choice.
    Unspecified,
}

/// The parameters of the OFI MTL.
#[derive(Clone, Debug)]
pub struct Ofi {
    /// Providers to use; when given, only these (`mtl_ofi_provider_include`).
    pub include: Option<NameList>,
    /// Providers not to use: those that only repeat what Open MPI does better itself (`mtl_ofi_provider_exclude`).
    pub exclude: NameList,
    /// Completions read at once (`mtl_ofi_progress_event_cnt`).
    pub progress_event_count: usize,
    /// How the tag bits are shared out.
    pub tag_mode: TagMode,
    /// Who drives connection handling.
    pub control_progress: ProgressMode,
    /// Who drives transfers.
    pub data_progress: ProgressMode,
    /// Addresses are table indices, not provider values (`mtl_ofi_av`).
    pub av_table: bool,
    /// Use a scalable endpoint (`mtl_ofi_enable_sep`).
    pub scalable: bool,
    /// One context per group of communicators (`mtl_ofi_thread_grouping`).
    pub grouping: bool,
    /// Contexts of a scalable endpoint (`mtl_ofi_num_ctxts`).
    pub contexts: usize,
    /// Let the provider send and receive device memory itself, where it can (`mtl_ofi_disable_hmem`).
    pub device: bool,
}

/// The parameters of the usnic engine.
#[derive(Clone, Debug)]
pub struct Usnic {
    /// Segments that may be under way to one peer, acknowledgements outstanding: the notes' 4096.
    /// More than that is not possible: the receiver's bitmap has as many bits.
    pub window: usize,
    /// Segments that one endpoint may hand to the link in one pass, so that no peer fills its
    /// queue alone (`btl_usnic_sd_num` at most).
    pub send_credits: usize,
    /// Longest datagram of the priority channel, header and all (`btl_usnic_priority_limit`).
    pub max_tiny: usize,
    /// Longest datagram, header and all; with each peer the smaller of both counts.
    pub max_datagram: usize,
    /// Retransmissions handed to the link in one pass (`btl_usnic_max_resends_per_iteration`): they
    /// go first, and must not keep everything else waiting.
    pub max_resends_per_iteration: usize,
    /// How long an acknowledgement may wait for a packet to ride on: the notes' 50 µs.
    pub ack_delay: Duration,
    /// After how long without an answer a packet is sent again while no round trip has been
    /// measured (`btl_usnic_retrans_timeout`). Later the measured round trips say, but a tenth of
    /// this is the least: shorter ones measure the machine's scheduler.
    pub retransmit: Duration,
    /// Most that waiting for an answer grows to by doubling. A stopped process is asked as often.
    pub retransmit_max: Duration,
    /// A peer that has answered nothing for so long, asked several times, is lost. Zero: never, since
    /// silence is no evidence that a process has ended; what is, the engine's `life` says.
    pub peer_timeout: Duration,
    /// For how long a peer's host must say that nobody listens at its address, while nobody of its node
    /// is heard, until its process counts as ended. A packet filter there may say the same for some seconds. Zero: it
    /// never does.
    pub refusal_timeout: Duration,
    /// Memory for fragments of one peer of which parts have arrived.
    pub reassembly_per_peer: usize,
    /// The same for all peers together.
    pub reassembly_total: usize,
    /// Payload is encrypted, and every packet authenticated as a whole. Both sides must agree.
    pub protect_payload: bool,
}

impl Default for Usnic {
    fn default() -> Self {
        Self {
            window: 4096,
            send_credits: 512,
            max_tiny: 768,
            max_datagram: 65_507,
            max_resends_per_iteration: 16,
            ack_delay: Duration::from_micros(50),
            retransmit: Duration::from_millis(5),
            retransmit_max: Duration::from_millis(500),
            peer_timeout: Duration::ZERO,
            refusal_timeout: Duration::from_secs(15),
            reassembly_per_peer: 64 << 20,
            reassembly_total: 256 << 20,
            protect_payload: false,
        }
    }
}

/// What carries the usnic BTL's datagrams (`btl_usnic_link`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// libfabric over a usNIC device if there is one; else sockets, if the component was asked for.
    #[default]
    Auto,
    /// libfabric, any provider of datagrams.
    Libfabric,
    /// Kernel UDP.
    Socket,
}

/// How the ways to peers are checked when they are first used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Time between tries (`btl_usnic_connectivity_ack_timeout`).
    pub interval: Duration,
    /// Tries after the first one (`btl_usnic_connectivity_error_num_retries`).
    pub tries: u32,
}

/// The parameters of the usnic BTL that are not the engine's.
#[derive(Clone, Debug, Default)]
pub struct Btl {
    /// The engine's.
    pub engine: Usnic,
    /// Interfaces to use (`btl_usnic_if_include`).
    pub include: Option<String>,
    /// Interfaces not to use (`btl_usnic_if_exclude`).
    pub exclude: Option<String>,
    /// What carries the datagrams.
    pub link: LinkKind,
    /// Most modules to open (`btl_usnic_max_btls`).
    pub max_modules: usize,
    /// Longest message that is sent without asking; `None`: by the number of modules (`btl_usnic_eager_limit`).
    pub eager_limit: Option<usize>,
    /// Data that goes with the announcement of a long message (`btl_usnic_rndv_eager_limit`).
    pub rndv_eager_limit: usize,
    /// Longest data that is copied when it is sent (`btl_usnic_pack_lazy_threshold`).
    pub copy_limit: usize,
    /// First port to try; 0: any (`btl_usnic_base_udp_port`).
    pub base_port: u16,
    /// How long a look at a socket may poll the device's queue; zero: not at all (`btl_usnic_busy_poll`).
    pub busy_poll: Duration,
    /// How long a short message may wait for others to share its packet; zero: not at all
    /// (`btl_usnic_coalesce_delay`).
    pub coalesce_delay: Duration,
    /// How ways to peers are checked; `None`: not at all (`btl_usnic_connectivity_check`).
    pub check: Option<Check>,
    /// How many datagrams may wait.
    pub depths: Depths,
    /// Time between lines of statistics; zero: none (`btl_usnic_stats`).
    pub statistics: Duration,
    /// Each line counts from the one before (`btl_usnic_stats_relative`).
    pub relative: bool,
    /// What the names of connectivity maps begin with (`btl_usnic_connectivity_map`).
    pub map: Option<String>,
    /// Interfaces far from the processor get short messages last (`btl_usnic_want_numa_device_assignment`).
    pub by_distance: bool,
    /// What the module's table says.
    pub table: Table,
}

/// How many datagrams may wait, by channel, the urgent one first; `None`: what the link thinks right.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depths {
    /// To be sent (`btl_usnic_prio_sd_num`, `btl_usnic_sd_num`).
    pub send: [Option<usize>; 2],
    /// Arrived (`btl_usnic_prio_rd_num`, `btl_usnic_rd_num`).
    pub receive: [Option<usize>; 2],
    /// Completions of either (`btl_usnic_cq_num`).
    pub completions: Option<usize>,
}

/// What a host weighs byte transports by, and may be told otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    /// Transports of lower value are not used beside this one.
    pub exclusivity: u32,
    /// Sends, PUTs and GETs that the host may use, as the host's own bits.
    pub flags: u32,
    /// Lower is better for short messages.
    pub latency: u32,
    /// Share of long messages; `None`: the link's speed.
    pub bandwidth: Option<u32>,
    /// Longest fragment; `None`: the eager limit.
    pub max_send_size: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_providers_that_begin_with_it() {
        let list = NameList::parse("tcp, shm ,,");
        assert!(list.names("tcp") && list.names("tcp;ofi_rxm") && list.names("TCP") && list.names("shm"));
        assert!(!list.names("net") && !list.names("tc") && !list.names(""));
        assert!(NameList::parse("").is_empty() && NameList::parse(" , ").is_empty());
        assert_eq!(list.to_string(), "tcp,shm");
    }
}
