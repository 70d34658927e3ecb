//! The parameters of the usnic BTL, under the C component's names and with its defaults, and a few new ones.

use std::ffi::{CStr, c_int};
use std::time::Duration;

use crate::btl::{Host, Kind, Number, Parameters, Text};
use crate::config;

/// All of them.
pub(super) static PARAMETERS: Parameters = Parameters { numbers: &NUMBERS, texts: &TEXTS };

const fn number(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Signed, name, default, level, help)
}

const fn unsigned(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Unsigned, name, default, level, help)
}

const fn truth(name: &'static CStr, default: bool, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Bool, name, default as c_int, level, help)
}

static NUMBERS: [Number; 34] = [
    number(c"max_btls", 0, 2, c"Most modules (network interfaces) to use; 0: all"),
    number(c"stats", 0, 4, c"Seconds between lines of statistics on standard error, or in the log of a C program, one for each module, and one at the end; 0: none"),
    number(c"stats_relative", 0, 4, c"Lines of statistics count from the last line (1) or from the start (0); performance variables always count from the start"),
    number(c"want_numa_device_assignment", 1, 5, c"Use interfaces near the processor for short messages (1), or all alike (0); only for processes that are bound"),
    number(c"sd_num", -1, 5, c"Packets that one peer is sent before the others have their turn, and send slots of libfabric's data endpoint; -1: 512"),
    number(c"rd_num", -1, 5, c"Longest packets that the receive buffer of the data channel holds, and that peers together are promised room for; -1: 4 MiB of them, or what the link has"),
    number(c"prio_sd_num", -1, 5, c"Send slots of libfabric's priority endpoint; -1: 512. Without effect on kernel sockets, which have none"),
    number(c"prio_rd_num", -1, 5, c"Packets that the receive buffer of the priority channel holds: what comes beyond is sent again; -1: 4 MiB of them, or what the link has"),
    number(c"cq_num", -1, 5, c"Entries of libfabric's completion queues, never fewer than slots; -1: as many. Without effect on kernel sockets, which have none"),
    number(c"av_eq_num", 1024, 5, c"Entries of the address vector's event queue; kept for parameter files, without effect: addresses are resolved at once"),
    number(c"base_udp_port", 0, 5, c"First UDP port to try for the local process of rank 0, the next ones for its neighbours; 0: any"),
    number(c"retrans_timeout", 5000, 5, c"Microseconds before a packet is sent again while the round-trip time is unknown, and the least time afterwards"),
    number(c"max_resends_per_iteration", 16, 5, c"Most packets that one pass sends again"),
    number(c"ack_iteration_delay", 4, 5, c"Kept for parameter files, without effect: ack_delay says the time itself"),
    number(c"priority_limit", 0, 5, c"Longest packet on the priority channel; 0: 768 bytes"),
    number(c"eager_limit", 0, 5, c"Longest message sent without asking the receiver; 0: 150 KiB with one module, 25 KiB with several"),
    number(c"rndv_eager_limit", 0, 5, c"Data that goes with the announcement of a long message; 0: 500 bytes"),
    number(c"pack_lazy_threshold", 16384, 5, c"Longest data that is copied when it is sent; longer contiguous data is sent from where it lies"),
    number(c"max_short_packets", 25, 5, c"Kept for parameter files, without effect: short packets are counted and dropped"),
    truth(c"show_route_failures", true, 3, c"Say which peers have no address that can be reached"),
    truth(c"connectivity_check", true, 3, c"Check the way to each peer when it is first used"),
    number(c"connectivity_ack_timeout", 250, 3, c"Milliseconds between tries of the connectivity check; 0: no check"),
    number(c"connectivity_error_num_retries", 40, 3, c"Tries after the first one before the connectivity check fails"),
    number(c"ack_delay", 50, 5, c"Microseconds that an acknowledgement waits for data to travel with"),
    number(c"peer_timeout", 0, 5, c"Seconds without any answer after which a peer counts as lost; 0: never, since a process that computes, is stopped, or cannot be reached for a while has not ended. Of one that has ended, another process of its node says so within seconds, or the network does"),
    number(c"refusal_timeout", 15, 5, c"Seconds for which a peer's host must say that nobody listens there until the peer counts as lost, while nobody of it is heard; 0: never"),
    truth(c"protect_payload", false, 5, c"Encrypt the data of each packet and authenticate all of it, not its header only; all processes of a job must agree"),
    number(c"busy_poll", 0, 5, c"Microseconds for which a look at the sockets may poll the device's queue itself (SO_BUSY_POLL, with SO_PREFER_BUSY_POLL), instead of waiting for its interrupt; 0: none"),
    number(c"coalesce_delay", 50, 5, c"Microseconds that a short message, sent in a row of others, may wait for more of them to share its packet; it never waits beyond the next call that makes progress. 0: none waits"),
    // What every byte transport of the host has (`mca_btl_base_param_register`). That function itself is
    // no use here: it would register `eager_limit` and `rndv_eager_limit` again, as another type.
    unsigned(c"exclusivity", 1024, 7, c"Byte transports of lower exclusivity are not used to the same peer"),
    Number::new(Kind::Flags, c"flags", 15, 5, c"What the component may be used for: send, without which it is not used, put, get, in-place"),
    unsigned(c"latency", 2, 5, c"Rank among byte transports for short messages: the lowest are used; see want_numa_device_assignment"),
    unsigned(c"bandwidth", 0, 5, c"Share of long messages among byte transports, in Mbit/s; 0: the speed of each interface"),
    unsigned(c"max_send_size", 0, 4, c"Longest fragment of a long message that is sent rather than put, in bytes, 1024 at least; 0: as eager_limit, where that is more"),
];

static TEXTS: [Text; 6] = [
    Text::new(
        c"if_include",
        None,
        1,
        c"Interfaces to use: names or CIDR networks, separated by commas; excludes if_exclude",
    ),
    Text::new(
        c"if_exclude",
        None,
        1,
        c"Interfaces not to use: names or CIDR networks, separated by commas; excludes if_include",
    ),
    Text::new(
        c"mpool_hints",
        None,
        5,
        c"Hints for the memory pool; kept for parameter files, without effect: no memory is pinned",
    ),
    Text::new(
        c"rcache",
        Some(c"grdma"),
        5,
        c"Registration cache; kept for parameter files, without effect: no memory is pinned",
    ),
    Text::new(c"connectivity_map", None, 3, c"Write what is connected to whom to files whose names begin so"),
    Text::new(
        c"link",
        Some(c"auto"),
        3,
        c"What carries the datagrams: auto, libfabric, or socket (kernel UDP)",
    ),
];

/// Whether the user wants to hear of peers that cannot be reached.
pub(super) fn shows_unreachable() -> bool {
    PARAMETERS.number(c"show_route_failures") != 0
}

/// The greatest `int`, which is what the host's own tables are reckoned with.
const MOST: i64 = c_int::MAX as i64;

/// What nothing goes without (`opal/mca/btl/btl.h`).
const SEND: u32 = 0x1;

/// What can be used of the module: send, put, get, send in place.
const CAPABILITIES: u32 = SEND | 0x2 | 0x4 | 0x8;

/// The value of a parameter, if it is in its range.
fn within(name: &CStr, value: i64, low: i64, high: i64) -> Result<usize, String> {
    if (low..=high).contains(&value) {
        Ok(value as usize)
    } else {
        Err(format!("btl_usnic_{} is {value}; it must be {low} to {high}", name.to_string_lossy()))
    }
}

/// What the host may use the module for.
fn flags(value: i64) -> Result<u32, String> {
    let flags = within(c"flags", value, 0, MOST)? as u32 & CAPABILITIES;
    if flags & SEND == 0 {
        return Err(format!(
            "btl_usnic_flags is {value}, without send (1): no message could leave; add it, or do without the component (--mca btl ^usnic)"
        ));
    }
    Ok(flags)
}

/// The least that the longest fragment of a long message may be: below, it would be hardly more than its headers, or less.
pub(super) const LEAST_FRAGMENT: usize = 1024;

/// The longest fragment of a long message, if it is said.
fn max_send_size(value: i64) -> Result<Option<usize>, String> {
    if value == 0 {
        return Ok(None);
    }
    let size = within(c"max_send_size", value, LEAST_FRAGMENT as i64, 1 << 19);
    size.map(Some).map_err(|why| format!("{why}, or 0: as eager_limit"))
}

/// The parameters as the transport sees them; a value out of range is refused with a reason.
pub(super) fn config(host: &impl Host) -> Result<config::Btl, String> {
    let words = |name: &CStr| host.text(name);
    let range = |name: &CStr, low: i64, high: i64| within(name, PARAMETERS.number(name), low, high);
    let link = match words(c"link").as_deref() {
        None | Some("auto") => config::LinkKind::Auto,
        Some("libfabric") => config::LinkKind::Libfabric,
        Some("socket") => config::LinkKind::Socket,
        Some(other) => {
            return Err(format!("btl_usnic_link is {other}; it must be auto, libfabric or socket"));
        }
    };
    let default = config::Usnic::default();
    let or = |value: usize, default: usize| if value == 0 { default } else { value };
    let depth = |name: &CStr| match PARAMETERS.number(name) {
        -1 => Ok(None),
        // Two are the least with which anything moves.
        _ => range(name, 2, 1 << 20).map(Some),
    };
    let depths = config::Depths {
        send: [depth(c"prio_sd_num")?, depth(c"sd_num")?],
        receive: [depth(c"prio_rd_num")?, depth(c"rd_num")?],
        completions: depth(c"cq_num")?,
    };
    let engine = config::Usnic {
        send_credits: depths.send[1].unwrap_or(default.send_credits),
        max_tiny: or(range(c"priority_limit", 0, 65_507)?, default.max_tiny),
        max_resends_per_iteration: range(c"max_resends_per_iteration", 1, MOST)?,
        retransmit: Duration::from_micros(range(c"retrans_timeout", 1, MOST)? as u64),
        ack_delay: Duration::from_micros(range(c"ack_delay", 0, 1_000_000)? as u64),
        peer_timeout: Duration::from_secs(range(c"peer_timeout", 0, MOST)? as u64),
        refusal_timeout: Duration::from_secs(range(c"refusal_timeout", 0, MOST)? as u64),
        protect_payload: PARAMETERS.number(c"protect_payload") != 0,
        ..default
    };
    let interval = range(c"connectivity_ack_timeout", 0, MOST)?;
    let tries = range(c"connectivity_error_num_retries", 0, MOST)?;
    let is_checked = PARAMETERS.number(c"connectivity_check") != 0 && interval > 0;
    let check = config::Check { interval: Duration::from_millis(interval as u64), tries: tries as u32 };
    Ok(config::Btl {
        engine,
        check: is_checked.then_some(check),
        include: words(c"if_include"),
        exclude: words(c"if_exclude"),
        link,
        max_modules: or(range(c"max_btls", 0, MOST)?, usize::MAX),
        eager_limit: Some(range(c"eager_limit", 0, 1 << 19)?).filter(|&limit| limit != 0),
        rndv_eager_limit: or(range(c"rndv_eager_limit", 0, 1 << 19)?, 500),
        copy_limit: range(c"pack_lazy_threshold", 0, 1 << 19)?,
        base_port: range(c"base_udp_port", 0, 65_535)? as u16,
        busy_poll: Duration::from_micros(range(c"busy_poll", 0, 1_000_000)? as u64),
        coalesce_delay: Duration::from_micros(range(c"coalesce_delay", 0, 1_000_000)? as u64),
        depths,
        statistics: Duration::from_secs(range(c"stats", 0, MOST)? as u64),
        relative: range(c"stats_relative", 0, 1)? == 1,
        map: words(c"connectivity_map").filter(|prefix| !prefix.is_empty()),
        by_distance: range(c"want_numa_device_assignment", 0, 1)? == 1,
        table: config::Table {
            exclusivity: range(c"exclusivity", 0, MOST)? as u32,
            flags: flags(PARAMETERS.number(c"flags"))?,
            latency: range(c"latency", 0, MOST)? as u32,
            bandwidth: Some(range(c"bandwidth", 0, MOST)? as u32).filter(|share| *share != 0),
            max_send_size: max_send_size(PARAMETERS.number(c"max_send_size"))?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_without_send_are_refused_and_those_that_mean_nothing_here_left_out() {
        for (given, used) in [(15, 15), (1, 1), (9, 9), (0x101, 1), (31, 15)] {
            assert_eq!(flags(given), Ok(used));
        }
        for given in [0, 6, 14, 0x100] {
            let why = flags(given).expect_err("no message could leave");
            assert!(why.starts_with(&format!("btl_usnic_flags is {given}, without send (1)")), "{why}");
        }
        assert!(flags(-1).is_err());
    }

    #[test]
    fn a_fragment_is_longer_than_its_headers() {
        assert_eq!(max_send_size(0), Ok(None));
        assert_eq!((max_send_size(1024), max_send_size(1 << 19)), (Ok(Some(1024)), Ok(Some(1 << 19))));
        for given in [1, 64, 1023, (1 << 19) + 1, -1] {
            let why = format!(
                "btl_usnic_max_send_size is {given}; it must be 1024 to 524288, or 0: as eager_limit"
            );
            assert_eq!(max_send_size(given), Err(why));
        }
    }

    #[test]
    fn the_parameters_of_the_original_are_all_there() {
        let names = NUMBERS.iter().map(|n| n.name).chain(TEXTS.iter().map(|t| t.name));
        let new = [
            c"ack_delay",
            c"peer_timeout",
            c"refusal_timeout",
            c"protect_payload",
            c"busy_poll",
            c"coalesce_delay",
            c"link",
        ];
        let every = [c"exclusivity", c"flags", c"latency", c"bandwidth", c"max_send_size"];
        let own = names.filter(|name| !new.contains(name) && !every.contains(name));
        assert_eq!(own.count(), 28);
    }
}
