//! The parameters of the verbs BTL: those of Open MPI's openib that mean something here, by their names. Where a default is
//! another, the help says so, and hawser-verbs(7) why.

use std::ffi::{CStr, c_int};
use std::time::Duration;

use super::cache::Bounds;
use super::choice::Lists;
use super::given::{Given, Refused};
use super::queues::Queues;
use crate::btl::{Atomics, Host, Kind, Left, Limits, Number, Parameters, Pipeline, Text};
use crate::engine::cm::Dialect;

const fn number(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Signed, name, default, level, help)
}

const fn unsigned(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Unsigned, name, default, level, help)
}

const fn truth(name: &'static CStr, default: bool, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Bool, name, default as c_int, level, help)
}

/// Numbers there are.
const COUNT: usize = 46;

const fn numbers() -> [Number; COUNT] {
    [
        truth(c"allow_ib", false, 4, c"Whether InfiniBand ports are used too, and not RoCE and iWARP alone"),
        number(c"max_btls", -1, 4, c"Ports that are used at most; -1: all"),
        number(c"gid_index", 0, 4, c"Kept for parameter files, without effect: the connection manager takes the entry of RoCE v2 for the port's address"),
        number(c"mtu", 0, 4, c"Kept for parameter files, without effect: the connection manager takes the port's"),
        number(c"ib_timeout", 18, 6, c"How long a message that is not acknowledged waits to be sent again, as the exponent of 4.096 us times 2^n; 18 is 1.07 s (openib: 20)"),
        number(c"ib_retry_count", 7, 6, c"How often it is sent again before the peer counts as lost, 0 to 7"),
        number(c"ib_rnr_retry", 7, 6, c"How often a message that finds no buffer at the peer is sent again on shared queues, 0 to 7; 7: for ever. Credits see to it that none does"),
        number(c"ib_min_rnr_timer", 12, 6, c"How long a peer waits before it sends such a message again, by the code of the InfiniBand specification; 12 is 0.64 ms (openib: 25, which it does not set on connections that rdma_cm makes, where 655 ms hold)"),
        number(c"ib_max_rdma_dst_ops", 4, 6, c"RDMA reads and atomic operations of a peer's that are served at once, at most"),
        number(c"ib_qp_ous_rd_atom", 4, 6, c"RDMA reads and atomic operations that are under way to a peer at once, at most"),
        number(c"max_inline_data", -1, 5, c"Longest message, header included, that is copied to the device when it is sent, in bytes; -1: as long as the device takes, up to 512"),
        number(c"cq_size", 8192, 6, c"Entries of a completion queue; another one is made where one does not suffice"),
        number(c"free_list_num", 8, 5, c"Send buffers of each size at first"),
        number(c"free_list_max", -1, 5, c"Send buffers of each size at most; -1: without bound, which the send queues are"),
        number(c"free_list_inc", 32, 5, c"Send buffers of a size that are made when there are too few"),
        number(c"poll_cq_batch", 32, 5, c"Completions that are read at a time, 1 to 1024 (openib: 256)"),
        number(c"reg_mru_len", 2048, 5, c"Registrations of memory that are kept for its next use, at most at each port, where the host tells when memory is unmapped and mpi_leave_pinned is not 0; 0: none (openib: 16, without effect)"),
        number(c"reg_mru_size", -1, 5, c"Memory of such registrations, at most at all ports together, in MiB; -1: half of what the process may lock"),
        number(c"use_eager_rdma", 0, 5, c"Kept for parameter files, without effect: nothing is received by looking at the last byte of a buffer, whose order no specification promises"),
        number(c"eager_rdma_threshold", 16, 5, c"Kept for parameter files, without effect, as use_eager_rdma"),
        number(c"eager_rdma_num", 16, 5, c"Kept for parameter files, without effect, as use_eager_rdma"),
        number(c"max_eager_rdma", 16, 5, c"Kept for parameter files, without effect, as use_eager_rdma"),
        number(c"eager_rdma_poll_ratio", 100, 5, c"Kept for parameter files, without effect, as use_eager_rdma"),
        number(c"cq_poll_ratio", 100, 5, c"Kept for parameter files, without effect: completion queues are looked at in each call"),
        number(c"buffer_alignment", 64, 5, c"Kept for parameter files, without effect: each buffer begins at a line of the cache"),
        truth(c"warn_no_device_params_found", true, 5, c"Kept for parameter files, without effect: what a device has room for is asked of it, and of no file"),
        truth(c"warn_default_gid_prefix", true, 5, c"Kept for parameter files, without effect: processes are connected within an IP network, and not by the prefix of a subnet"),
        truth(c"use_message_coalescing", false, 5, c"Kept for parameter files, without effect: each message goes alone"),
        truth(c"enable_srq_resize", true, 5, c"Kept for parameter files, without effect: shared queues always grow from rd_init to rd_num as they are used"),
        truth(c"use_async_event_thread", true, 5, c"Kept for parameter files, without effect: the connection thread hears of devices"),
        number(c"ignore_locality", 0, 5, c"Kept for parameter files, without effect: all ports are used"),
        number(c"connect_rdmacm_port", 0, 5, c"Kept for parameter files, without effect: each process listens at a port of its own, which its peers are told"),
        number(c"connect_timeout", 30_000, 5, c"Milliseconds within which a peer must answer when it is connected to; then it is tried again"),
        number(c"peer_timeout", 60_000, 5, c"Milliseconds after which a peer whose device does not answer at all counts as lost; 0: never"),
        unsigned(c"exclusivity", 1025, 7, c"Byte transports of lower exclusivity are not used to the same peer (openib: 1024, which usnic has as well)"),
        Number::new(Kind::Flags, c"flags", CAPABILITIES as c_int, 5, c"What the component may be used for: send, put, get, atomics and fetching-atomics, which are left out where a device has none"),
        number(c"eager_limit", 12_288, 4, c"Longest message sent without asking the receiver, header included, in bytes"),
        number(c"rndv_eager_limit", 12_288, 4, c"Data that goes with the announcement of a long message, in bytes"),
        number(c"max_send_size", 65_536, 4, c"Longest fragment of a long message that is sent rather than put or got, in bytes"),
        number(c"rdma_pipeline_send_length", -1, 4, c"Data of a message that is put in parts which is sent ahead of them, in bytes; -1: as eager_limit (openib: 1048576)"),
        number(c"rdma_pipeline_frag_size", -1, 4, c"Longest part of such a message, in bytes; -1: it is put in one (openib: 1048576)"),
        number(c"min_rdma_pipeline_size", 0, 4, c"Longest message that its receiver reads in one piece even where memory does not stay registered, in bytes (openib: 1060864, which it makes of 262144)"),
        unsigned(c"latency", 4, 5, c"Rank among byte transports for short messages: the lowest are used"),
        unsigned(c"bandwidth", 0, 5, c"Share of long messages among byte transports, in Mbit/s; 0: the speed of each port"),
        truth(c"verbose", false, 5, c"Whether it is said of each device why it is not used"),
        truth(c"warn_nonexistent_if", true, 5, c"Whether a device, port, interface or network of the lists that is not there is told of"),
    ]
}

/// The queues of who does not say otherwise: the shortest are private, so that connections can be made, and the others
/// shared, so that a peer costs little memory.
const RECEIVE_QUEUES: &CStr =
    c"P,256,128,96,64:S,4096,256,192,64,64:S,16384,256,192,64,32:S,65536,256,192,32,16";

const fn texts() -> [Text; 8] {
    [
        Text::new(c"receive_queues", Some(RECEIVE_QUEUES), 4, c"Receive queues, separated by colons: P,size,rd_num,rd_low,rd_win,rd_rsv (of one peer) and S,size,rd_num,rd_low,sd_max,rd_init,srq_limit (of all); all processes of a job must agree"),
        Text::new(c"if_include", None, 4, c"Devices to use, as DEVICE, DEVICE:PORT or a GID of a port, separated by commas; excludes if_exclude"),
        Text::new(c"if_exclude", None, 4, c"Devices not to use, as DEVICE, DEVICE:PORT or a GID of a port, separated by commas; excludes if_include"),
        Text::new(c"ipaddr_include", None, 4, c"Interfaces or CIDR networks whose devices are used, separated by commas; excludes ipaddr_exclude"),
        Text::new(c"ipaddr_exclude", None, 4, c"Interfaces or CIDR networks whose devices are not used, separated by commas; excludes ipaddr_include"),
        Text::new(c"wire", Some(c"own"), 5, c"What is spoken with peers: own; or openib, which Open MPI 4.1's component of that name speaks where rdma_cm makes its connections: then a job may have processes with either. The first receive queue is private then, and RoCE alone is used"),
        Text::new(c"cpc_include", None, 6, c"Kept for parameter files, without effect: rdma_cm makes the connections"),
        Text::new(c"cpc_exclude", None, 6, c"Kept for parameter files, without effect: rdma_cm makes the connections"),
    ]
}

/// Those of each of the component's names: what a user sets under one is not the other's.
static NUMBERS: [[Number; COUNT]; 2] = [numbers(), numbers()];
static TEXTS: [[Text; 8]; 2] = [texts(), texts()];
static PARAMETERS: [Parameters; 2] = [
    Parameters { numbers: &NUMBERS[0], texts: &TEXTS[0] },
    Parameters { numbers: &NUMBERS[1], texts: &TEXTS[1] },
];

/// All of them, under the component's first or second name.
pub(super) fn of(second: bool) -> &'static Parameters {
    &PARAMETERS[usize::from(second)]
}

/// `MCA_BTL_FLAGS_PUT` and `GET` (`opal/mca/btl/btl.h`).
const TRANSFERS: u32 = 0x2 | 0x4;

/// `MCA_BTL_FLAGS_ATOMIC_OPS` and `ATOMIC_FOPS`.
const ATOMICS: u32 = 0x8000 | 0x1_0000;

/// Those, and `MCA_BTL_FLAGS_SEND`.
const CAPABILITIES: u32 = 0x1 | TRANSFERS | ATOMICS;

/// What a port's table says that it can be used for, with these of the user's flags, by a device with such atomic operations.
pub(super) const fn capabilities(flags: u32, atomics: Atomics) -> (u32, Atomics) {
    let is_wanted = flags & ATOMICS != 0 && flags & TRANSFERS == TRANSFERS;
    match atomics {
        Atomics::Device | Atomics::Global if is_wanted => (flags, atomics),
        _ => (flags & !ATOMICS, Atomics::None),
    }
}

/// What is set.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// What the component is called.
    pub(super) name: &'static str,
    pub(super) queues: Queues,
    /// What is spoken with peers.
    pub(super) dialect: Dialect,
    pub(super) allow_infiniband: bool,
    pub(super) most_ports: usize,
    pub(super) devices: [Option<String>; 2],
    pub(super) networks: [Option<String>; 2],
    pub(super) acknowledgement: u8,
    pub(super) retries: u8,
    pub(super) retries_without_receive: u8,
    pub(super) receiver_not_ready: u8,
    pub(super) served_reads: u8,
    pub(super) started_reads: u8,
    pub(super) inline: u32,
    pub(super) completions: usize,
    pub(super) buffers: Buffers,
    pub(super) batch: usize,
    /// What is kept of registered memory that nobody uses.
    pub(super) kept: Bounds,
    /// Bytes that the process may lock.
    pub(super) lockable: usize,
    pub(super) connect: Duration,
    /// A peer whose device has not answered for so long is lost.
    pub(super) patience: Option<Duration>,
    pub(super) limits: Limits,
    pub(super) is_verbose: bool,
    pub(super) warns: bool,
}

impl Config {
    /// How long a device sends a message again and again, before it says that nobody acknowledges it. Some count for ever
    /// where they are told seven times.
    pub(super) fn answer(&self) -> Duration {
        Duration::from_nanos(4096 << self.acknowledgement) * (u32::from(self.retries) + 1)
    }
}

/// Send buffers of a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) first: usize,
    pub(super) more: usize,
    pub(super) most: usize,
}

/// What is set, and what the user hears of openib's values that are not taken over; one of the component's own that is out of range
/// is refused with a reason.
pub(super) fn config(second: bool, host: &impl Host) -> Result<(Config, Vec<Left>), String> {
    let name = if second { "openib" } else { "verbs" };
    let mut given = Given::new(name, of(second), host);
    loop {
        match read(&given, host) {
            Ok(config) => return Ok((config, given.left())),
            Err(refused) => given.mend(&refused)?,
        }
    }
}

/// What is given, unless it cannot be used.
fn read<H: Host>(given: &Given<'_, H>, host: &H) -> Result<Config, Refused> {
    let refused = |name: &'static CStr, why: String| Refused::new(&[name], why);
    let within = |number: &'static CStr, low: i64, high: i64, other: &str| {
        let value = given.number(number);
        if (low..=high).contains(&value) {
            Ok(value as usize)
        } else {
            Err(refused(number, format!(" is {value}; it must be {other}{low} to {high}")))
        }
    };
    let range = |number: &'static CStr, low: i64, high: i64| within(number, low, high, "");
    // `None`: it is -1.
    let any_or = |number: &'static CStr, low: i64, high: i64| match given.number(number) {
        -1 => Ok(None),
        _ => within(number, low, high, "-1, or ").map(Some),
    };
    let is_true = |name: &CStr| given.number(name) != 0;
    let dialect = match given.text(c"wire").as_deref().map_or("own", str::trim) {
        "own" => Dialect::Own,
        "openib" => Dialect::Openib,
        other => return Err(refused(c"wire", format!(" is {other}; it must be own or openib"))),
    };
    let specification =
        given.text(c"receive_queues").unwrap_or_else(|| RECEIVE_QUEUES.to_string_lossy().into_owned());
    let queues = match dialect {
        Dialect::Own => Queues::parse(&specification),
        Dialect::Openib => Queues::parse_for_openib(&specification),
    };
    let queues = queues.map_err(|why| refused(c"receive_queues", format!(": {why}")))?;
    let longest = queues.longest() as i64;
    let sizes = |number: &'static CStr, low: i64| {
        let size = range(number, low, MOST)?;
        if size as i64 > longest {
            let name = number.to_string_lossy();
            let line = format!(" is {size}, and the longest receive queue has buffers of {longest} bytes");
            let other = format!(" has no buffers of more than {longest} bytes, and {name} is {size}");
            return Err(refused(number, line).or(&[c"receive_queues"], other));
        }
        Ok(size)
    };
    let devices = given.lists(c"if_include", c"if_exclude")?;
    let networks = given.lists(c"ipaddr_include", c"ipaddr_exclude")?;
    // The user's own are looked at where there are devices.
    for (name, list) in [c"ipaddr_include", c"ipaddr_exclude"].into_iter().zip(&networks) {
        if given.is_inherited(name) {
            let only = [list.clone(), None];
            Lists::parse(&[None, None], &only).map_err(|why| refused(name, format!(": {why}")))?;
        }
    }
    let limits = Limits {
        eager: sizes(c"eager_limit", 1024)?,
        rndv_eager: sizes(c"rndv_eager_limit", 0)?,
        max_send: sizes(c"max_send_size", 1024)?,
        max_send_device: 0,
        pipeline: Pipeline {
            sent: any_or(c"rdma_pipeline_send_length", 0, MOST)?,
            part: any_or(c"rdma_pipeline_frag_size", 1024, MOST)?.unwrap_or(usize::MAX),
            least: range(c"min_rdma_pipeline_size", 0, MOST)?,
        },
        copy: 0,
        exclusivity: range(c"exclusivity", 0, MOST)? as u32,
        latency: range(c"latency", 0, MOST)? as u32,
        bandwidth: range(c"bandwidth", 0, MOST)? as u32,
        flags: range(c"flags", 0, MOST)? as u32 & CAPABILITIES,
        atomics: Atomics::None,
    };
    let patience = range(c"peer_timeout", 0, MOST)? as u64;
    let lockable = crate::verbs::lockable();
    Ok(Config {
        name: given.component(),
        queues,
        dialect,
        allow_infiniband: is_true(c"allow_ib"),
        most_ports: any_or(c"max_btls", 1, MOST)?.unwrap_or(usize::MAX),
        devices,
        networks,
        acknowledgement: range(c"ib_timeout", 1, 31)? as u8,
        retries: range(c"ib_retry_count", 0, 7)? as u8,
        retries_without_receive: range(c"ib_rnr_retry", 0, 7)? as u8,
        receiver_not_ready: range(c"ib_min_rnr_timer", 0, 31)? as u8,
        served_reads: range(c"ib_max_rdma_dst_ops", 1, 255)? as u8,
        started_reads: range(c"ib_qp_ous_rd_atom", 1, 255)? as u8,
        inline: any_or(c"max_inline_data", 0, 4096)?.map_or(INLINE, |bytes| bytes as u32),
        completions: range(c"cq_size", 64, 1 << 22)?,
        buffers: Buffers {
            first: range(c"free_list_num", 1, 1 << 16)?,
            more: range(c"free_list_inc", 1, 1 << 16)?,
            most: any_or(c"free_list_max", 1, MOST)?.unwrap_or(usize::MAX),
        },
        batch: range(c"poll_cq_batch", 1, BATCH)?,
        kept: Bounds {
            count: range(c"reg_mru_len", 0, MOST)?,
            bytes: any_or(c"reg_mru_size", 0, MOST)?
                .map_or_else(|| lockable.min(crate::verbs::installed()) / 2, |mebibytes| mebibytes << 20),
        },
        lockable,
        connect: Duration::from_millis(range(c"connect_timeout", 100, MOST)? as u64),
        patience: (patience != 0).then(|| Duration::from_millis(patience)),
        limits,
        is_verbose: is_true(c"verbose") || host.is_verbose(),
        warns: is_true(c"warn_nonexistent_if"),
    })
}

/// The greatest `int`.
const MOST: i64 = c_int::MAX as i64;

/// Bytes that are asked for to be copied when they are posted.
const INLINE: u32 = 512;

/// Completions that are read at a time, at most: what each port's state has room for.
const BATCH: i64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::Inherited;

    #[test]
    fn the_default_queues_carry_the_default_sizes() {
        let queues = Queues::parse(RECEIVE_QUEUES.to_str().expect("text")).expect("queues");
        assert_eq!((queues.credits(), queues.longest()), (0, 65_536));
        let longest = |name: &CStr| {
            numbers().iter().find(|number| number.name == name).map(|number| number.default as usize)
        };
        for name in [c"eager_limit", c"rndv_eager_limit", c"max_send_size"] {
            assert!(longest(name).is_some_and(|size| size <= queues.longest()), "{name:?}");
        }
    }

    #[test]
    fn atomic_operations_are_offered_where_the_device_has_them_and_the_user_wants_them() {
        let all = CAPABILITIES;
        assert_eq!(capabilities(all, Atomics::Device), (0x1_8007, Atomics::Device));
        assert_eq!(capabilities(all, Atomics::Global), (0x1_8007, Atomics::Global));
        assert_eq!(capabilities(all, Atomics::None), (7, Atomics::None));
        assert_eq!(capabilities(7, Atomics::Device), (7, Atomics::None));
        assert_eq!(capabilities(0x1_0003, Atomics::Device), (3, Atomics::None), "windows need all of it");
    }

    #[test]
    fn both_names_have_the_same_parameters_and_values_of_their_own() {
        let names = |second| of(second).numbers.iter().map(|number| number.name).collect::<Vec<_>>();
        assert_eq!(names(false), names(true));
        assert!(!std::ptr::eq(&raw const of(false).numbers[0].value, &raw const of(true).numbers[0].value));
    }

    /// A user: what he has said of openib, and of verbs.
    struct User {
        openib: &'static [(&'static CStr, &'static str)],
        verbs: &'static [(&'static CStr, &'static str)],
    }

    impl Host for User {
        fn name(&self) -> u64 {
            0
        }

        fn node(&self) -> String {
            String::new()
        }

        fn publish(&self, _: &'static CStr, _: &[u8]) -> crate::error::Result<()> {
            Ok(())
        }

        fn published(&self, _: &'static CStr, _: u64) -> crate::error::Result<Vec<u8>> {
            Err(crate::error::Error::NotFound)
        }

        fn text(&self, parameter: &CStr) -> Option<String> {
            let default =
                || of(false).texts.iter().find(|text| text.name == parameter)?.default?.to_str().ok();
            let said = [self.verbs, self.openib].concat();
            let found = said.iter().find(|(name, _)| *name == parameter).map(|(_, text)| *text);
            found.or_else(default).map(str::to_owned)
        }

        fn inherited(&self) -> Vec<Inherited> {
            let is_own = |name: &CStr| self.verbs.iter().any(|(own, _)| *own == name);
            let all = self.openib.iter().filter(|(name, _)| !is_own(name));
            let is_meaningless = |text: &str| text == "many";
            all.map(|&(name, text)| Inherited {
                name,
                text: text.to_owned(),
                is_meaningless: is_meaningless(text),
            })
            .collect()
        }

        fn is_asked_for(&self) -> bool {
            false
        }

        fn is_verbose(&self) -> bool {
            false
        }

        fn notice(&self, _: &str, _: &str) {}

        fn say(&self, _: &str) {}
    }

    /// What the component is set to, and what the user hears. The values lie where there is one of each: no two at a time.
    fn said(
        openib: &'static [(&'static CStr, &'static str)],
        verbs: &'static [(&'static CStr, &'static str)],
    ) -> Result<(Config, Vec<String>), String> {
        static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
        let _one = ONE.lock();
        for number in of(false).numbers {
            let all = verbs.iter().chain(openib).find(|(name, _)| *name == number.name);
            number.set(all.and_then(|(_, text)| text.parse().ok()).unwrap_or(number.default));
        }
        let lines = |left: Vec<Left>| left.into_iter().map(|left| left.line).collect();
        config(false, &User { openib, verbs }).map(|(config, left)| (config, lines(left)))
    }

    #[test]
    fn what_is_said_of_openib_and_does_not_fit_is_left_and_told() {
        let heard = |openib, verbs| said(openib, verbs).map(|(_, lines)| lines);
        let line = |text: &str| Ok(vec![text.to_owned()]);
        assert_eq!(heard(&[(c"cq_size", "100")], &[]), Ok(Vec::new()), "it fits");
        assert_eq!(
            heard(&[(c"cq_size", "9")], &[]),
            line(
                "btl_openib_cq_size is 9; it must be 64 to 4194304: not taken over; btl_verbs_cq_size stays 8192"
            )
        );
        assert_eq!(
            heard(&[(c"cq_size", "many")], &[]),
            line(
                "btl_openib_cq_size is many, which is no number: not taken over; btl_verbs_cq_size stays 8192"
            )
        );
        let queues = heard(&[(c"receive_queues", "X,128,256")], &[]).expect("the default");
        assert_eq!(queues.len(), 1);
        assert!(queues[0].starts_with(
            "btl_openib_receive_queues: X,128,256: XRC queues (X) are not supported; use S for shared queues: \
             not taken over; btl_verbs_receive_queues stays P,256,"
        ));
        let (config, lines) =
            said(&[(c"cq_size", "9"), (c"ib_timeout", "77"), (c"ib_retry_count", "3")], &[])
                .expect("defaults");
        assert_eq!((config.completions, config.acknowledgement, config.retries), (8192, 18, 3));
        assert_eq!(lines.len(), 2);
        assert_eq!(
            heard(&[(c"ipaddr_include", "10.0.0.0/999")], &[]).expect("the default").len(),
            1,
            "a list that is none"
        );
    }

    #[test]
    fn of_what_does_not_go_together_openibs_is_left() {
        let (config, lines) = said(&[(c"receive_queues", "P,4096,64")], &[]).expect("the defaults");
        assert_eq!((config.queues.longest(), lines.len()), (65_536, 1));
        assert!(
            lines[0].contains("has no buffers of more than 4096 bytes, and eager_limit is 12288: not taken")
        );
        let (config, lines) =
            said(&[(c"eager_limit", "100000")], &[(c"receive_queues", "P,65536,64")]).expect("the default");
        assert_eq!((config.limits.eager, lines.len()), (12_288, 1));
        let fitting: &[_] = &[
            (c"receive_queues", "P,4096,64"),
            (c"eager_limit", "4096"),
            (c"rndv_eager_limit", "4096"),
            (c"max_send_size", "4096"),
        ];
        let (config, lines) = said(fitting, &[]).expect("openib's");
        assert_eq!((config.queues.longest(), config.limits.max_send, lines.len()), (4096, 4096, 0));
    }

    #[test]
    fn what_is_said_of_verbs_goes_before_the_opposite_of_openib() {
        let lists = |openib, verbs| said(openib, verbs).map(|(config, lines)| (config.devices, lines));
        let one = |list: &str| Some(list.to_owned());
        let (include, exclude): (&[_], &[_]) = (&[(c"if_include", "a")], &[(c"if_exclude", "b")]);
        assert_eq!(lists(include, exclude), Ok(([None, one("b")], Vec::new())));
        assert_eq!(lists(exclude, include), Ok(([one("a"), None], Vec::new())));
        let both: &[_] = &[(c"if_include", "a"), (c"if_exclude", "b")];
        assert_eq!(
            lists(both, &[]),
            Ok((
                [None, None],
                vec![
                    "btl_openib_if_include and btl_openib_if_exclude exclude each other: not taken over; \
                     btl_verbs_if_include stays empty, btl_verbs_if_exclude stays empty"
                        .to_owned()
                ]
            ))
        );
        assert_eq!(
            lists(&[], both),
            Err("btl_verbs_if_include and btl_verbs_if_exclude exclude each other".to_owned())
        );
    }

    #[test]
    fn where_a_number_may_be_minus_one_that_is_said() {
        for (name, text, must) in [
            (c"max_btls", "0", "-1, or 1 to 2147483647"),
            (c"free_list_max", "0", "-1, or 1 to 2147483647"),
            (c"max_inline_data", "-2", "-1, or 0 to 4096"),
            (c"reg_mru_size", "-2", "-1, or 0 to 2147483647"),
            (c"free_list_num", "0", "1 to 65536"),
        ] {
            let given: &'static [_] = Box::leak(Box::new([(name, text)]));
            let line = format!("btl_verbs_{} is {text}; it must be {must}", name.to_string_lossy());
            assert_eq!(said(&[], given).err(), Some(line));
        }
    }

    #[test]
    fn what_is_said_of_verbs_itself_is_refused() {
        let why = |openib, verbs| said(openib, verbs).err();
        assert_eq!(
            why(&[(c"cq_size", "8192")], &[(c"cq_size", "9")]).as_deref(),
            Some("btl_verbs_cq_size is 9; it must be 64 to 4194304")
        );
        assert!(
            why(&[(c"ib_timeout", "77")], &[(c"receive_queues", "X,128,256")])
                .is_some_and(|why| why.starts_with("btl_verbs_receive_queues: X,128,256: XRC"))
        );
        assert!(
            why(&[], &[(c"receive_queues", "P,4096,64")])
                .is_some_and(|why| why.starts_with("btl_verbs_eager_limit is 12288, and the longest"))
        );
    }
}
