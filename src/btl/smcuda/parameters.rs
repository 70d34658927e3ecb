//! The parameters of the smcuda BTL: the C component's names and defaults. Those that have no meaning here, where
//! there is no pool for all processes of a node and no queue of pointers, stay for parameter files and say so.

use std::ffi::{CStr, c_int};

use crate::btl::{Atomics, Host, Kind, Limits, Number, Parameters, Pipeline, Text};
use crate::cuda::share::{self, Bounds};
use crate::shm::LONGEST;

/// All of them.
pub(super) static PARAMETERS: Parameters = Parameters { numbers: &NUMBERS, texts: &TEXTS };

const fn number(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Signed, name, default, level, help)
}

const fn unsigned(name: &'static CStr, default: c_int, level: c_int, help: &'static CStr) -> Number {
    Number::new(Kind::Unsigned, name, default, level, help)
}

static NUMBERS: [Number; 24] = [
    number(c"min_size", 134_217_728, 5, c"Kept for parameter files, without effect: each process has memory of its own, as much as it uses"),
    number(c"free_list_num", 8, 5, c"Kept for parameter files, without effect: there are no lists of shared fragments"),
    number(c"free_list_max", -1, 5, c"Kept for parameter files, without effect: there are no lists of shared fragments"),
    number(c"free_list_inc", 64, 5, c"Kept for parameter files, without effect: there are no lists of shared fragments"),
    number(c"max_procs", -1, 5, c"Kept for parameter files, without effect: a process reaches up to 1024 others of its node"),
    number(c"sm_extra_procs", 0, 9, c"Kept for parameter files, without effect: room for processes that come later need not be asked for"),
    unsigned(c"fifo_size", 4096, 4, c"Kept for parameter files, without effect: a ring holds 256 KiB of messages"),
    unsigned(c"num_fifos", 1, 4, c"Kept for parameter files, without effect: there is one ring for each pair of processes and direction"),
    unsigned(c"fifo_lazy_free", 120, 5, c"Kept for parameter files, without effect: the sender hears after every 4 KiB what it may use again"),
    number(c"use_cuda_ipc", 1, 4, c"Whether device memory is opened by peers, where the driver lets them (CUDA IPC); otherwise it goes by way of host memory"),
    number(c"use_cuda_ipc_same_gpu", 1, 4, c"Whether it is also between processes that use the same device"),
    number(c"cuda_ipc_verbose", 0, 4, c"Above 0: says once for each peer why device memory is not shared with it"),
    number(c"cuda_max_send_size", FRAGMENT, 5, c"Longest fragment of a message in device memory that is sent in fragments, in bytes, of which 65536 count; 0: as max_send_size"),
    number(c"accelerator_max_send_size", FRAGMENT, 5, c"The same, by the name that it has in Open MPI 5.0"),
    number(c"max_ipc_events", 400, 5, c"Copies of device memory that are under way at a time; further ones wait"),
    number(c"ipc_cache_entries", 1024, 5, c"Allocations of a peer's device memory that stay open; 0: without bound"),
    unsigned(c"ipc_cache_size", 0, 5, c"Megabytes of a peer's device memory that stay open; 0: without bound"),
    // What every byte transport of the host has (`mca_btl_base_param_register`).
    unsigned(c"exclusivity", 0, 7, c"Byte transports of lower exclusivity are not used to the same peer; 0: above the host's own for shared memory where this one is asked for (--mca btl smcuda,self), below it otherwise"),
    Number::new(Kind::Flags, c"flags", 7, 5, c"What the component may be used for: send, put, get. Put and get are left out where the system does not let processes read each other's memory"),
    number(c"eager_limit", 4096, 4, c"Longest message sent without asking the receiver, header included, in bytes"),
    number(c"rndv_eager_limit", 4096, 4, c"Data that goes with the announcement of a long message that is not copied in one step, in bytes"),
    number(c"max_send_size", 32_768, 4, c"Longest fragment of a long message that is not copied in one step, in bytes"),
    unsigned(c"latency", 1, 5, c"Rank among byte transports for short messages: the lowest are used"),
    unsigned(c"bandwidth", 40_000, 5, c"Share of long messages among byte transports, in Mbit/s"),
];

static TEXTS: [Text; 1] = [Text::new(
    c"allocator",
    Some(c"bucket"),
    9,
    c"Kept for parameter files, without effect: there is no pool to be divided",
)];

/// The default of the longest fragment of a message on a device.
const FRAGMENT: c_int = 131_072;

/// `MCA_BTL_FLAGS_SEND`, `PUT` and `GET` (`opal/mca/btl/btl.h`).
const CAPABILITIES: u32 = 0x1 | TRANSFERS;

/// What needs a peer's leave to read its memory.
pub(super) const TRANSFERS: u32 = 0x2 | 0x4;

/// One more than what the host's own shared memory has, which is the highest that has a name.
const ABOVE: u32 = (1 << 16) + 1;

/// The largest value of a number.
const MOST: i64 = c_int::MAX as i64;

/// The value of a number, which must be one of these.
fn range(name: &CStr, low: i64, high: i64) -> Result<usize, String> {
    let value = PARAMETERS.number(name);
    if (low..=high).contains(&value) {
        Ok(value as usize)
    } else {
        Err(format!("btl_smcuda_{} is {value}; it must be {low} to {high}", name.to_string_lossy()))
    }
}

/// What the module's table says; a value out of range is refused with a reason.
pub(super) fn limits(host: &impl Host) -> Result<Limits, String> {
    let (longest, most) = (LONGEST as i64, MOST);
    let exclusivity = range(c"exclusivity", 0, most)? as u32;
    Ok(Limits {
        eager: range(c"eager_limit", 1024, longest)?,
        rndv_eager: range(c"rndv_eager_limit", 0, longest)?,
        max_send: range(c"max_send_size", 1024, longest)?,
        max_send_device: device_fragment()?,
        pipeline: Pipeline::WHOLE,
        // The ring is where data is copied to: a block in between would be a copy more.
        copy: 0,
        exclusivity: if exclusivity == 0 && host.is_asked_for() { ABOVE } else { exclusivity },
        latency: range(c"latency", 0, most)? as u32,
        bandwidth: range(c"bandwidth", 0, most)? as u32,
        flags: range(c"flags", 0, most)? as u32 & CAPABILITIES,
        atomics: Atomics::None,
    })
}

/// The longest fragment of a message on a device, as the original's parameter says under the name that either host
/// gives it, but no longer than any.
fn device_fragment() -> Result<usize, String> {
    let own = range(c"accelerator_max_send_size", 0, MOST)?;
    let other = range(c"cuda_max_send_size", 0, MOST)?;
    let chosen = if own == FRAGMENT as usize { other } else { own };
    Ok(if chosen == 0 { 0 } else { chosen.clamp(1024, LONGEST) })
}

/// What is set for device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Devices {
    /// Peers may open it, and theirs is opened.
    pub(super) use_ipc: bool,
    /// Also where both use one device.
    pub(super) same_gpu: bool,
    /// It is said why not.
    pub(super) is_verbose: bool,
    /// What stays open of a peer's.
    pub(super) bounds: Bounds,
    /// How many copies are under way.
    pub(super) limits: share::Limits,
}

/// What is set for device memory; a value out of range is refused with a reason.
pub(super) fn devices() -> Result<Devices, String> {
    let bounds = Bounds {
        count: range(c"ipc_cache_entries", 0, MOST)?,
        bytes: (range(c"ipc_cache_size", 0, MOST)? as u64) << 20,
    };
    Ok(Devices {
        use_ipc: range(c"use_cuda_ipc", 0, 1)? != 0,
        same_gpu: range(c"use_cuda_ipc_same_gpu", 0, 1)? != 0,
        is_verbose: range(c"cuda_ipc_verbose", 0, MOST)? > 0,
        bounds,
        limits: share::Limits { events: range(c"max_ipc_events", 1, MOST)?, ..share::Limits::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ompi_info --param btl smcuda` of the C component, without CUDA.
    #[test]
    fn the_parameters_of_the_original_are_all_there() {
        let names: Vec<&CStr> =
            NUMBERS.iter().map(|number| number.name).chain(TEXTS.iter().map(|text| text.name)).collect();
        for name in [
            c"use_cuda_ipc",
            c"use_cuda_ipc_same_gpu",
            c"cuda_ipc_verbose",
            c"cuda_max_send_size",
            c"accelerator_max_send_size",
            c"max_ipc_events",
            c"min_size",
            c"free_list_num",
            c"free_list_max",
            c"free_list_inc",
            c"max_procs",
            c"sm_extra_procs",
            c"fifo_size",
            c"num_fifos",
            c"fifo_lazy_free",
            c"allocator",
        ] {
            assert!(names.contains(&name), "{name:?}");
        }
        assert_eq!(names.len(), 25);
    }
}
