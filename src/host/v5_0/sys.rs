//! The layouts of Open MPI 5.0 that differ from the other version's, on x86-64, in release builds
//! without CUDA. [`sys`](crate::host::sys) holds what the versions share.
//!
//! Only the fields that are used have names. `c-tests/layout` compares every offset and size with
//! the host's own headers; the generated header is `include/hawser_v5_0.h`.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::host::btl::sys::{BtlEndpoint, BtlModule, Segment, Transfer};
use crate::host::sys::{Component, ConvertorHead, GroupHead, MtlModule, Object, ProcessName};

/// A matching transport's component.
///
/// C: `mca_mtl_base_component_2_0_0_t`.
#[repr(C)]
pub struct MtlComponent {
    /// the part common to all components
    pub base: Component,
    /// metadata flags
    pub param_field: u32,
    _pad0: [u8; 36],
    /// makes the module of the selected component
    pub init: Option<unsafe extern "C" fn(bool, bool, *mut bool) -> *mut MtlModule>,
    /// whether device buffers may be handed to the module
    pub accelerator_support: bool,
    _pad1: [u8; 7],
}

const _: () = assert!(size_of::<MtlComponent>() == 280);

impl MtlComponent {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self = Self {
        base: Component::EMPTY,
        param_field: 0,
        _pad0: [0; 36],
        init: None,
        accelerator_support: false,
        _pad1: [0; 7],
    };
}

/// The functions of the machine's devices.
///
/// C: `opal_accelerator_base_module_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Accelerator {
    /// whether an address is on a device, and on which
    pub check_addr: Option<unsafe extern "C" fn(*const c_void, *mut c_int, *mut u64) -> c_int>,
    /// makes a stream
    pub create_stream: Option<unsafe extern "C" fn(c_int, *mut *mut AcceleratorObject) -> c_int>,
    /// makes an event
    pub create_event: Option<unsafe extern "C" fn(c_int, *mut *mut AcceleratorObject) -> c_int>,
    /// sets an event to where a stream is
    pub record_event:
        Option<unsafe extern "C" fn(c_int, *mut AcceleratorObject, *mut AcceleratorObject) -> c_int>,
    /// whether a stream has come to an event
    pub query_event: Option<unsafe extern "C" fn(c_int, *mut AcceleratorObject) -> c_int>,
    /// begins a copy in a stream
    pub mem_copy_async: Option<
        unsafe extern "C" fn(
            c_int,
            c_int,
            *mut c_void,
            *const c_void,
            usize,
            *mut AcceleratorObject,
            c_int,
        ) -> c_int,
    >,
    /// copies
    pub mem_copy:
        Option<unsafe extern "C" fn(c_int, c_int, *mut c_void, *const c_void, usize, c_int) -> c_int>,
    /// copies between ranges that may overlap
    pub mem_move:
        Option<unsafe extern "C" fn(c_int, c_int, *mut c_void, *const c_void, usize, c_int) -> c_int>,
    /// allocates on a device
    pub mem_alloc: Option<unsafe extern "C" fn(c_int, *mut *mut c_void, usize) -> c_int>,
    /// takes that back
    pub mem_release: Option<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>,
    /// the allocation that an address lies in
    pub get_address_range:
        Option<unsafe extern "C" fn(c_int, *const c_void, *mut *mut c_void, *mut usize) -> c_int>,
    /// pins memory
    pub host_register: Option<unsafe extern "C" fn(c_int, *mut c_void, usize) -> c_int>,
    /// takes that back
    pub host_unregister: Option<unsafe extern "C" fn(c_int, *mut c_void) -> c_int>,
    /// the device in use
    pub get_device: Option<unsafe extern "C" fn(*mut c_int) -> c_int>,
    /// where a device is on the PCI bus
    pub get_device_pci_attr: Option<unsafe extern "C" fn(c_int, *mut PciAttributes) -> c_int>,
    /// whether a device can reach another's memory
    pub device_can_access_peer: Option<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>,
    /// the number of the allocation that an address lies in
    pub get_buffer_id: Option<unsafe extern "C" fn(c_int, *const c_void, *mut u64) -> c_int>,
}

const _: () = assert!(size_of::<Accelerator>() == 136);

/// A stream or an event of a device.
///
/// C: `opal_accelerator_stream_t`, `opal_accelerator_event_t`.
#[repr(C)]
pub struct AcceleratorObject {
    /// head of every object
    pub object: Object,
    /// the component's own
    pub inside: *mut c_void,
}

const _: () = assert!(size_of::<AcceleratorObject>() == 24);

/// Where a device is on the PCI bus.
///
/// C: `opal_accelerator_pci_attr_t`.
#[repr(C)]
pub struct PciAttributes {
    /// domain
    pub domain: u16,
    /// bus
    pub bus: u8,
    /// device
    pub device: u8,
    /// function
    pub function: u8,
}

const _: () = assert!(size_of::<PciAttributes>() == 6);

/// An accelerator's component.
///
/// C: `opal_accelerator_base_component_t`.
#[repr(C)]
pub struct AcceleratorComponent {
    /// the part common to all components
    pub base: Component,
    /// metadata flags
    pub param_field: u32,
    _pad0: [u8; 36],
    /// offers the module
    pub init: Option<unsafe extern "C" fn() -> *mut Accelerator>,
    /// ends it
    pub finalize: Option<unsafe extern "C" fn(*mut Accelerator)>,
}

const _: () = assert!(size_of::<AcceleratorComponent>() == 280);

impl AcceleratorComponent {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self =
        Self { base: Component::EMPTY, param_field: 0, _pad0: [0; 36], init: None, finalize: None };
}

/// Packs and unpacks one (buffer, count, datatype).
///
/// C: `opal_convertor_t`.
#[repr(C)]
pub struct Convertor {
    _head: ConvertorHead,
    _pad0: [u8; 152],
}

const _: () = assert!(size_of::<Convertor>() == 280);

/// A communicator.
///
/// C: `ompi_communicator_t`.
#[repr(C)]
pub struct Communicator {
    _pad0: [u8; 168],
    /// extended id, upper half
    pub cid_base: u64,
    /// extended id, lower half
    pub cid_sub: u64,
    _pad1: [u8; 32],
    /// local index: the id that tags carry
    pub index: u32,
    /// rank of this process
    pub rank: c_int,
    /// properties
    pub flags: u32,
    _pad2: [u8; 36],
    /// local group
    pub local_group: *mut GroupHead,
    /// remote group, or the local one
    pub remote_group: *mut GroupHead,
    _pad3: [u8; 56],
    /// belongs to the matching transport
    pub mtl: *mut c_void,
    _pad4: [u8; 40],
}

const _: () = assert!(size_of::<Communicator>() == 384);

/// A group of processes.
///
/// C: `ompi_group_t`.
#[repr(C)]
pub struct Group {
    _head: GroupHead,
    _pad0: [u8; 40],
}

const _: () = assert!(size_of::<Group>() == 80);

/// What the runtime knows about this process.
///
/// C: `opal_process_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessInfo {
    /// its name
    pub name: ProcessName,
    _pad0: [u8; 264],
    /// name of the node
    pub node: *const c_char,
    _pad1: [u8; 24],
    /// other processes of the job on this node
    pub local_peers: u32,
    /// rank on this node
    pub local_rank: u16,
    _pad2: [u8; 10],
    /// processors it is bound to
    pub cpuset: *const c_char,
    /// its locality, as the runtime writes it
    pub locality: *const c_char,
    _pad3: [u8; 12],
    /// processes in the job
    pub universe_size: u32,
    _pad4: [u8; 44],
    /// whether it is bound to processors
    pub bound: bool,
    _pad5: [u8; 19],
}

const _: () = assert!(size_of::<ProcessInfo>() == 416);

/// A value of the process management interface.
///
/// C: `pmix_value_t`.
#[repr(C)]
pub struct PmixValue {
    /// 27 is a byte object
    pub kind: u16,
    _pad0: [u8; 6],
    /// bytes of a byte object
    pub bytes: *mut c_char,
    /// their number
    pub size: usize,
    _pad1: [u8; 8],
}

const _: () = assert!(size_of::<PmixValue>() == 32);

impl PmixValue {
    /// `PMIX_BOOL`
    const BOOL: u16 = 1;
}

/// A directive of that interface.
///
/// C: `pmix_info_t`.
#[repr(C)]
pub struct PmixInfo {
    /// key, zero-ended
    pub key: [u8; 512],
    /// whether it must be obeyed
    pub flags: u32,
    _pad0: [u8; 4],
    /// value
    pub value: PmixValue,
}

const _: () = assert!(size_of::<PmixInfo>() == 552);

impl PmixInfo {
    /// That something is so.
    pub(in crate::host) fn truth(key: &CStr) -> Self {
        let mut info = Self {
            key: [0; 512],
            flags: 0,
            _pad0: [0; 4],
            value: PmixValue {
                kind: PmixValue::BOOL,
                _pad0: [0; 6],
                // A truth value is the first byte there.
                bytes: std::ptr::without_provenance_mut(1),
                size: 0,
                _pad1: [0; 8],
            },
        };
        info.key[..key.count_bytes()].copy_from_slice(key.to_bytes());
        info
    }
}

/// The name of a process in that interface.
///
/// C: `pmix_proc_t`.
#[repr(C)]
pub struct PmixProc {
    /// job name, zero-ended
    pub namespace: [u8; 256],
    /// rank in the job
    pub rank: u32,
}

const _: () = assert!(size_of::<PmixProc>() == 260);

/// The same table in a build of 5.0 with CUDA, which has two more fields.
///
/// C: `mca_btl_base_module_t` with `OPAL_CUDA_GDR_SUPPORT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BtlModuleGdr {
    _pad0: [u8; 288],
    /// longest message of device memory that is sent at once
    pub accelerator_eager_limit: usize,
    /// longest message of device memory that is put or got
    pub accelerator_rdma_limit: usize,
    /// longest fragment of device memory
    pub accelerator_max_send_size: usize,
    /// waits for PUTs and GETs
    pub flush: Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint) -> c_int>,
    _pad1: [u8; 256],
}

const _: () = assert!(size_of::<BtlModuleGdr>() == 576);
const _: () =
    assert!(std::mem::offset_of!(BtlModuleGdr, flush) == std::mem::offset_of!(BtlModule, flush) + 16);

/// Puts and gets by messages of a byte transport.
///
/// C: `mca_btl_base_am_rdma_module_t`.
#[repr(C)]
pub struct AmRdma {
    /// the object
    pub object: Object,
    /// the transport
    pub transport: *mut BtlModule,
    /// whether the target of a get puts
    pub puts: bool,
    /// whether the target of a put gets
    pub gets: bool,
    _pad0: [u8; 6],
    _pad1: [usize; 4],
    /// begins a put; its first argument is this structure
    pub put: Transfer,
    /// begins a get; its first argument is this structure
    pub get: Transfer,
    _pad2: [usize; 2],
}

const _: () = assert!(size_of::<AmRdma>() == 96);

/// What a byte transport's receive callback is handed.
///
/// C: `mca_btl_base_receive_descriptor_t`.
#[repr(C)]
pub struct ReceiveDescriptor {
    /// the sender
    pub endpoint: *mut BtlEndpoint,
    /// pieces of memory
    pub segments: *const Segment,
    /// how many
    pub segment_count: usize,
    /// who it is for
    pub tag: u8,
    _pad0: [u8; 7],
    /// registered with the callback
    pub callback_data: *mut c_void,
}

const _: () = assert!(size_of::<ReceiveDescriptor>() == 40);

impl ReceiveDescriptor {
    /// One segment from an endpoint.
    pub(super) fn new(
        endpoint: *mut BtlEndpoint,
        segment: &Segment,
        tag: u8,
        callback_data: *mut c_void,
    ) -> Self {
        Self { endpoint, segments: segment, segment_count: 1, tag, _pad0: [0; 7], callback_data }
    }
}

/// Numbers of datatypes that the host makes itself.
pub const PREDEFINED_TYPES: usize = 52;

/// The same with the one behind them, which is no type.
pub const BASIC_TYPES: usize = 53;

/// Types of elements that operations know.
pub const OP_TYPES: usize = 43;

/// What a component supplies for an operation; null where it has nothing for a type.
///
/// C: `ompi_op_base_module_t`.
#[repr(C)]
pub struct OpModule {
    /// the host's object
    pub object: Object,
    /// called when the module is going to be used
    pub enable: Option<unsafe extern "C" fn(*mut OpModule, *mut Op) -> c_int>,
    /// the operation
    pub op: *mut Op,
    /// functions by type
    pub fns: [Option<
        unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut *mut c_void, *mut OpModule),
    >; OP_TYPES],
    /// functions with three buffers by type
    pub fns3: [Option<
        unsafe extern "C" fn(
            *const c_void,
            *const c_void,
            *mut c_void,
            *mut c_int,
            *mut *mut c_void,
            *mut OpModule,
        ),
    >; OP_TYPES],
}

const _: () = assert!(size_of::<OpModule>() == 720);

/// A predefined operation.
///
/// C: `ompi_op_t`.
#[repr(C)]
pub struct Op {
    _pad0: [u8; 96],
    /// functions by type
    pub fns: [Option<
        unsafe extern "C" fn(*const c_void, *mut c_void, *mut c_int, *mut *mut c_void, *mut OpModule),
    >; OP_TYPES],
    /// the modules that they are of
    pub modules: [*mut OpModule; OP_TYPES],
    /// functions with three buffers by type
    pub fns3: [Option<
        unsafe extern "C" fn(
            *const c_void,
            *const c_void,
            *mut c_void,
            *mut c_int,
            *mut *mut c_void,
            *mut OpModule,
        ),
    >; OP_TYPES],
    /// the modules that they are of
    pub modules3: [*mut OpModule; OP_TYPES],
}

const _: () = assert!(size_of::<Op>() == 1472);

/// The structure of a component for operations.
///
/// C: `ompi_op_base_component_t`.
#[repr(C)]
pub struct OpComponent {
    /// who it is
    pub base: Component,
    _pad0: [u8; 40],
    /// whether it can be used at all
    pub init: Option<unsafe extern "C" fn(bool, bool) -> c_int>,
    /// a module for an operation, and its priority
    pub query: Option<unsafe extern "C" fn(*mut Op, *mut c_int) -> *mut OpModule>,
}

const _: () = assert!(size_of::<OpComponent>() == 280);

impl OpComponent {
    /// A component with these two functions.
    pub(in crate::host) const fn new(
        base: Component,
        init: unsafe extern "C" fn(bool, bool) -> c_int,
        query: unsafe extern "C" fn(*mut Op, *mut c_int) -> *mut OpModule,
    ) -> Self {
        Self { base, _pad0: [0; 40], init: Some(init), query: Some(query) }
    }
}
