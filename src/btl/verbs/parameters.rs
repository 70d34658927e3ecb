//! The parameters of the verbs BTL: those of Open MPI's openib that mean something here, by their names. Where a default is
//! another, the help says so, and hawser-verbs(7) why.

use std::ffi::{CStr, c_int};
use std::time::Duration;

use super::cache::Bounds;
use super::queues::Queues;
use crate::btl::{Atomics, Host, Kind, Limits, Number, Parameters, Text};
use crate::engine::cm::Dialect;

const fn number(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Signed, name, default, level, help)
}

const fn unsigned(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Unsigned, name, default, level, help)
}

/// Numbers there are.
const COUNT: usize = 35;

const fn numbers() -> [Number; COUNT] {
    [
        number(c"allow_ib", 0, 4, c"Whether InfiniBand ports are used too, and not RoCE and iWARP alone"),
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
        number(c"use_message_coalescing", 0, 5, c"Kept for parameter files, without effect: each message goes alone"),
        number(c"enable_srq_resize", 1, 5, c"Kept for parameter files, without effect: shared queues always grow from rd_init to rd_num as they are used"),
        number(c"use_async_event_thread", 1, 5, c"Kept for parameter files, without effect: the connection thread hears of devices"),
        number(c"ignore_locality", 0, 5, c"Kept for parameter files, without effect: all ports are used"),
        number(c"connect_rdmacm_port", 0, 5, c"Kept for parameter files, without effect: each process listens at a port of its own, which its peers are told"),
        number(c"connect_timeout", 30_000, 5, c"Milliseconds within which a peer must answer when it is connected to; then it is tried again"),
        number(c"peer_timeout", 60_000, 5, c"Milliseconds after which a peer whose device does not answer at all counts as lost; 0: never"),
        unsigned(c"exclusivity", 1024, 7, c"Byte transports of lower exclusivity are not used to the same peer"),
        Number::new(Kind::Flags, c"flags", CAPABILITIES as c_int, 5, c"What the component may be used for: send, put, get, atomics and fetching-atomics, which are left out where a device has none"),
        number(c"eager_limit", 12_288, 4, c"Longest message sent without asking the receiver, header included, in bytes"),
        number(c"rndv_eager_limit", 12_288, 4, c"Data that goes with the announcement of a long message, in bytes"),
        number(c"max_send_size", 65_536, 4, c"Longest fragment of a long message that is sent rather than put or got, in bytes"),
        unsigned(c"latency", 4, 5, c"Rank among byte transports for short messages: the lowest are used"),
        unsigned(c"bandwidth", 0, 5, c"Share of long messages among byte transports, in Mbit/s; 0: the speed of each port"),
        number(c"verbose", 0, 5, c"Above 0: says of each device why it is not used"),
        number(c"warn_nonexistent_if", 1, 5, c"Whether a device or network of the lists that is not there is told of"),
    ]
}

/// The queues of who does not say otherwise: the shortest are private, so that connections can be made, and the others
/// shared, so that a peer costs little memory.
const RECEIVE_QUEUES: &CStr =
    c"P,256,128,96,64:S,4096,256,192,64,64:S,16384,256,192,64,32:S,65536,256,192,32,16";

const fn texts() -> [Text; 8] {
    [
        Text::new(c"receive_queues", Some(RECEIVE_QUEUES), 4, c"Receive queues, separated by colons: P,size,rd_num,rd_low,rd_win,rd_rsv (of one peer) and S,size,rd_num,rd_low,sd_max,rd_init,srq_limit (of all); all processes of a job must agree"),
        Text::new(c"if_include", None, 4, c"Devices to use, as DEVICE or DEVICE:PORT, separated by commas; excludes if_exclude"),
        Text::new(c"if_exclude", None, 4, c"Devices not to use, as DEVICE or DEVICE:PORT, separated by commas; excludes if_include"),
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

/// What is set; a value out of range is refused with a reason.
pub(super) fn config(second: bool, host: &impl Host) -> Result<Config, String> {
    let parameters = of(second);
    let name = if second { "openib" } else { "verbs" };
    let range = |number: &CStr, low: i64, high: i64| {
        let value = parameters.number(number);
        if (low..=high).contains(&value) {
            Ok(value as usize)
        } else {
            Err(format!("btl_{name}_{} is {value}; it must be {low} to {high}", number.to_string_lossy()))
        }
    };
    let or_all = |number: &CStr, low: i64| match parameters.number(number) {
        -1 => Ok(usize::MAX),
        _ => range(number, low, MOST),
    };
    let text = |text: &CStr| host.text(text).filter(|text| !text.trim().is_empty());
    let lists = |include: &CStr, exclude: &CStr| match (text(include), text(exclude)) {
        (Some(_), Some(_)) => Err(format!(
            "btl_{name}_{} and btl_{name}_{} exclude each other",
            include.to_string_lossy(),
            exclude.to_string_lossy()
        )),
        both => Ok(both.into()),
    };
    let dialect = match text(c"wire").as_deref().map_or("own", str::trim) {
        "own" => Dialect::Own,
        "openib" => Dialect::Openib,
        other => return Err(format!("btl_{name}_wire is {other}; it must be own or openib")),
    };
    let specification =
        text(c"receive_queues").unwrap_or_else(|| RECEIVE_QUEUES.to_string_lossy().into_owned());
    let queues = match dialect {
        Dialect::Own => Queues::parse(&specification),
        Dialect::Openib => Queues::parse_for_openib(&specification),
    };
    let queues = queues.map_err(|why| format!("btl_{name}_receive_queues: {why}"))?;
    let longest = queues.longest() as i64;
    let sizes = |number: &CStr, low: i64| {
        let size = range(number, low, MOST)?;
        if size as i64 > longest {
            return Err(format!(
                "btl_{name}_{} is {size}, and the longest receive queue has buffers of {longest} bytes",
                number.to_string_lossy()
            ));
        }
        Ok(size)
    };
    let limits = Limits {
        eager: sizes(c"eager_limit", 1024)?,
        rndv_eager: sizes(c"rndv_eager_limit", 0)?,
        max_send: sizes(c"max_send_size", 1024)?,
        max_send_device: 0,
        copy: 0,
        exclusivity: range(c"exclusivity", 0, MOST)? as u32,
        latency: range(c"latency", 0, MOST)? as u32,
        bandwidth: range(c"bandwidth", 0, MOST)? as u32,
        flags: range(c"flags", 0, MOST)? as u32 & CAPABILITIES,
        atomics: Atomics::None,
    };
    let patience = range(c"peer_timeout", 0, MOST)? as u64;
    let inline = match parameters.number(c"max_inline_data") {
        -1 => INLINE,
        _ => range(c"max_inline_data", 0, 4096)? as u32,
    };
    Ok(Config {
        queues,
        dialect,
        allow_infiniband: range(c"allow_ib", 0, 1)? == 1,
        most_ports: or_all(c"max_btls", 1)?,
        devices: lists(c"if_include", c"if_exclude")?,
        networks: lists(c"ipaddr_include", c"ipaddr_exclude")?,
        acknowledgement: range(c"ib_timeout", 1, 31)? as u8,
        retries: range(c"ib_retry_count", 0, 7)? as u8,
        retries_without_receive: range(c"ib_rnr_retry", 0, 7)? as u8,
        receiver_not_ready: range(c"ib_min_rnr_timer", 0, 31)? as u8,
        served_reads: range(c"ib_max_rdma_dst_ops", 1, 255)? as u8,
        started_reads: range(c"ib_qp_ous_rd_atom", 1, 255)? as u8,
        inline,
        completions: range(c"cq_size", 64, 1 << 22)?,
        buffers: Buffers {
            first: range(c"free_list_num", 1, 1 << 16)?,
            more: range(c"free_list_inc", 1, 1 << 16)?,
            most: or_all(c"free_list_max", 1)?,
        },
        batch: range(c"poll_cq_batch", 1, BATCH)?,
        kept: Bounds {
            count: range(c"reg_mru_len", 0, MOST)?,
            bytes: match parameters.number(c"reg_mru_size") {
                -1 => crate::verbs::lockable() / 2,
                _ => range(c"reg_mru_size", 0, MOST)? << 20,
            },
        },
        connect: Duration::from_millis(range(c"connect_timeout", 100, MOST)? as u64),
        patience: (patience != 0).then(|| Duration::from_millis(patience)),
        limits,
        is_verbose: range(c"verbose", 0, MOST)? > 0 || host.is_verbose(),
        warns: range(c"warn_nonexistent_if", 0, 1)? == 1,
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
}
