//! A device that is open: what it can do, and its ports.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device::{self, Transport};
use super::id::Handle;
use super::library::Library;
use super::{outcome, sys};
use crate::error::{Error, Result};

/// Who closes a context.
enum Keeper {
    /// We opened it.
    Ourselves,
    /// librdmacm has it open, as long as one of its ids is bound to the device.
    Id { _bound: Arc<Handle> },
}

/// The calls that post and poll. They belong to the device's driver, and are read once.
#[derive(Clone, Copy)]
pub(super) struct Hot {
    pub(super) poll_cq: unsafe extern "C" fn(*mut sys::ibv_cq, i32, *mut sys::ibv_wc) -> i32,
    pub(super) post_send:
        unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
    pub(super) post_srq_recv:
        unsafe extern "C" fn(*mut sys::ibv_srq, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
}

/// A device that is open (`ibv_open_device(3)`).
pub struct Context {
    library: &'static Library,
    raw: NonNull<sys::ibv_context>,
    keeper: Keeper,
}

// SAFETY: libibverbs' calls on a context may be made from any thread and overlap; what is read of the structure here is
// written before the context is handed out.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// # Safety
    /// `raw` is open, and nobody else closes it.
    pub(super) unsafe fn own(library: &'static Library, raw: NonNull<sys::ibv_context>) -> Arc<Self> {
        Arc::new(Self { library, raw, keeper: Keeper::Ourselves })
    }

    /// # Safety
    /// `raw` is the context of the id, which is bound.
    pub(super) unsafe fn of(
        library: &'static Library,
        raw: NonNull<sys::ibv_context>,
        bound: Arc<Handle>,
    ) -> Arc<Self> {
        Arc::new(Self { library, raw, keeper: Keeper::Id { _bound: bound } })
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    fn device(&self) -> Result<NonNull<sys::ibv_device>> {
        // SAFETY: an open context; the field is written once, before it is handed out.
        let device = unsafe { (*self.raw.as_ptr()).device };
        NonNull::new(device).ok_or(Error::NotFound)
    }

    /// The driver's calls.
    pub(super) fn hot(&self) -> Result<Hot> {
        // SAFETY: an open context; the driver has filled the table before the context is handed out. It is copied, so that
        // no reference to it stays.
        let table = unsafe { (*self.raw.as_ptr()).ops };
        Ok(Hot {
            poll_cq: table.poll_cq.ok_or(Error::Unsupported)?,
            post_send: table.post_send.ok_or(Error::Unsupported)?,
            post_recv: table.post_recv.ok_or(Error::Unsupported)?,
            post_srq_recv: table.post_srq_recv.ok_or(Error::Unsupported)?,
        })
    }

    /// Whether both are the same device, as librdmacm has it open: what one makes, the other can use.
    pub fn is(&self, other: &Self) -> bool {
        self.raw == other.raw
    }

    /// What the kernel calls the device, as `mlx5_0`.
    pub fn name(&self) -> String {
        self.device().map(|device| device::name_of(self.library, device)).unwrap_or_default()
    }

    /// What carries its work.
    pub fn transport(&self) -> Transport {
        self.device().map_or(Transport::Other, device::transport_of)
    }

    /// What the device can do (`ibv_query_device(3)`).
    pub fn limits(&self) -> Result<Limits> {
        let mut raw = sys::ibv_device_attr::default();
        // SAFETY: an open context; the library writes one structure.
        outcome(unsafe { (self.library.query_device)(self.as_ptr(), &raw mut raw) })?;
        Ok(Limits::of(&raw))
    }

    /// A port, by its number from 1 (`ibv_query_port(3)`).
    pub fn port(&self, number: u8) -> Result<Port> {
        let mut raw = sys::ibv_port_attr::default();
        // SAFETY: an open context; the library writes at most one structure, of this or of an older, shorter form.
        outcome(unsafe { (self.library.query_port)(self.as_ptr(), number, &raw mut raw) })?;
        Ok(Port::of(&raw))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        match self.keeper {
            // SAFETY: ours, closed once; children hold their context, so none is left.
            Keeper::Ourselves => drop(outcome(unsafe { (self.library.device_close)(self.as_ptr()) })),
            // It stays open until the last id of the device has gone, and longer.
            Keeper::Id { .. } => {}
        }
    }
}

/// Between whom a device's atomic operations are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// There are none.
    None,
    /// Between those of this device only (`IBV_ATOMIC_HCA`).
    Device,
    /// With those of processors and other devices too (`IBV_ATOMIC_GLOB`).
    Global,
}

/// What a device can do, at most; what it says of itself is no promise that all of it can be had at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Version of its firmware.
    pub firmware: String,
    /// Its number, the first byte first.
    pub guid: [u8; 8],
    /// Who made it, by PCI's numbers.
    pub vendor: u32,
    /// And what.
    pub part: u32,
    /// How many ports it has; they are counted from 1.
    pub ports: u8,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Work requests in a queue.
    pub queue_depth: usize,
    /// Pieces of a work request.
    pub pieces: usize,
    /// Pieces of an RDMA read.
    pub read_pieces: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Entries of a completion queue.
    pub completion_depth: usize,
    /// Registrations.
    pub registrations: usize,
    /// Bytes of a registration.
    pub registration_size: u64,
    /// Shared receive queues; 0 where there are none.
    pub shared_queues: usize,
    /// Receives in a shared queue.
    pub shared_depth: usize,
    /// Pieces of such a receive.
    pub shared_pieces: usize,
    /// RDMA reads and atomics that a queue pair serves at once.
    pub served_reads: u8,
    /// RDMA reads and atomics that a queue pair has under way at once.
    pub started_reads: u8,
    /// Between whom atomics are atomic.
    pub atomics: Atomics,
}

/// A count that C has as a signed number.
fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

impl Limits {
    fn of(raw: &sys::ibv_device_attr) -> Self {
        let firmware = raw.fw_ver.map(i8::cast_unsigned);
        let firmware = CStr::from_bytes_until_nul(&firmware).unwrap_or_default();
        let byte = |number: i32| u8::try_from(number.clamp(0, 255)).unwrap_or(0);
        Self {
            firmware: firmware.to_string_lossy().into_owned(),
            guid: raw.node_guid.to_ne_bytes(),
            vendor: raw.vendor_id,
            part: raw.vendor_part_id,
            ports: raw.phys_port_cnt,
            queue_pairs: count(raw.max_qp),
            queue_depth: count(raw.max_qp_wr),
            pieces: count(raw.max_sge),
            read_pieces: count(raw.max_sge_rd),
            completion_queues: count(raw.max_cq),
            completion_depth: count(raw.max_cqe),
            registrations: count(raw.max_mr),
            registration_size: raw.max_mr_size,
            shared_queues: count(raw.max_srq),
            shared_depth: count(raw.max_srq_wr),
            shared_pieces: count(raw.max_srq_sge),
            served_reads: byte(raw.max_qp_rd_atom),
            started_reads: byte(raw.max_qp_init_rd_atom),
            atomics: match raw.atomic_cap {
                sys::IBV_ATOMIC_HCA => Atomics::Device,
                sys::IBV_ATOMIC_GLOB => Atomics::Global,
                _ => Atomics::None,
            },
        }
    }
}

/// What a port is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// An InfiniBand fabric.
    Infiniband,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// The device does not say.
    Other,
}

/// A port as it was when it was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whether it carries data.
    pub active: bool,
    /// What it is a part of.
    pub link_layer: LinkLayer,
    /// Bytes of a packet's payload.
    pub mtu: usize,
    /// Bytes of the longest message.
    pub message_size: u32,
    /// InfiniBand's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Entries of its table of GIDs.
    pub gids: usize,
    /// Mbit/s, or 0 where it does not say.
    pub bandwidth: u32,
}

impl Port {
    fn of(raw: &sys::ibv_port_attr) -> Self {
        Self {
            active: raw.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
            link_layer: match u32::from(raw.link_layer) {
                sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::Infiniband,
                sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Other,
            },
            // `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
            mtu: if (1..=5).contains(&raw.active_mtu) { 128 << raw.active_mtu } else { 0 },
            message_size: raw.max_msg_sz,
            lid: raw.lid,
            gids: count(raw.gid_tbl_len),
            bandwidth: lane(raw.active_speed) * lanes(raw.active_width),
        }
    }
}

/// Mbit/s of one lane (`ibv_query_port(3)`, `active_speed`).
fn lane(speed: u8) -> u32 {
    match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    }
}

/// Lanes of a port (`ibv_query_port(3)`, `active_width`).
fn lanes(width: u8) -> u32 {
    match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_as_the_library_writes_it() {
        let raw = sys::ibv_port_attr {
            state: sys::ibv_port_state::IBV_PORT_ACTIVE,
            active_mtu: 3,
            link_layer: sys::IBV_LINK_LAYER_ETHERNET as u8,
            active_speed: 32,
            active_width: 2,
            gid_tbl_len: -1,
            ..Default::default()
        };
        let port = Port::of(&raw);
        assert!(port.active);
        assert_eq!((port.mtu, port.bandwidth, port.gids), (1024, 100_000, 0));
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
    }

    #[test]
    fn values_that_are_not_known_are_none() {
        let raw =
            sys::ibv_port_attr { active_mtu: 40, active_speed: 3, active_width: 9, ..Default::default() };
        let port = Port::of(&raw);
        assert!(!port.active);
        assert_eq!((port.mtu, port.bandwidth), (0, 0));
        assert_eq!(port.link_layer, LinkLayer::Other);
    }

    #[test]
    fn limits_stay_within_what_a_connection_can_say() {
        let raw =
            sys::ibv_device_attr { max_qp_rd_atom: 1000, max_qp_init_rd_atom: -4, ..Default::default() };
        let limits = Limits::of(&raw);
        assert_eq!((limits.served_reads, limits.started_reads), (255, 0));
        assert_eq!(limits.atomics, Atomics::None);
    }
}
