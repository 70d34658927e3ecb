//! The layouts of the byte transfer framework, which Open MPI 4.1 and 5.0 share on x86-64, in
//! release builds without CUDA.
//!
//! Only the fields that are used have names. `c-tests/layout` compares every offset and size with
//! each host's own headers; the generated header is `include/hawser_btl.h`. What differs: the
//! field at 288 of the module, and the receive callback.

use std::ffi::{c_char, c_int, c_void};

use crate::host::sys::{Component, Datatype, ListItem};

/// A byte transport's component.
///
/// C: `mca_btl_base_component_3_0_0_t`.
#[repr(C)]
pub struct BtlComponent {
    /// the part common to all components
    pub base: Component,
    /// metadata flags
    pub param_field: u32,
    _pad0: [u8; 36],
    /// makes the modules
    pub init: Option<unsafe extern "C" fn(*mut c_int, bool, bool) -> *mut *mut BtlModule>,
    /// advances all modules
    pub progress: Option<unsafe extern "C" fn() -> c_int>,
}

const _: () = assert!(size_of::<BtlComponent>() == 280);

impl BtlComponent {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self =
        Self { base: Component::EMPTY, param_field: 0, _pad0: [0; 36], init: None, progress: None };
}

/// What the transport tells when a PUT or GET has ended.
///
/// C: `mca_btl_base_rdma_completion_fn_t`.
pub type Transferred = Option<
    unsafe extern "C" fn(
        *mut BtlModule,
        *mut BtlEndpoint,
        *mut c_void,
        *mut BtlRegistration,
        *mut c_void,
        *mut c_void,
        c_int,
    ),
>;

/// What the transport tells when a peer or a device is lost.
///
/// C: `mca_btl_base_module_error_cb_fn_t`.
pub type Failed = Option<unsafe extern "C" fn(*mut BtlModule, i32, *mut BtlProc, *mut c_char)>;

/// Starts a PUT or a GET.
///
/// C: `mca_btl_base_module_put_fn_t`, `mca_btl_base_module_get_fn_t`.
pub type Transfer = Option<
    unsafe extern "C" fn(
        *mut BtlModule,
        *mut BtlEndpoint,
        *mut c_void,
        u64,
        *mut BtlRegistration,
        *mut BtlRegistration,
        usize,
        c_int,
        c_int,
        Transferred,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
>;

/// Starts an atomic operation without a result.
///
/// C: `mca_btl_base_module_atomic_op64_fn_t`.
pub type AtomicOp = Option<
    unsafe extern "C" fn(
        *mut BtlModule,
        *mut BtlEndpoint,
        u64,
        *mut BtlRegistration,
        c_int,
        u64,
        c_int,
        c_int,
        Transferred,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
>;

/// Starts one with a result.
///
/// C: `mca_btl_base_module_atomic_fop64_fn_t`.
pub type AtomicFop = Option<
    unsafe extern "C" fn(
        *mut BtlModule,
        *mut BtlEndpoint,
        *mut c_void,
        u64,
        *mut BtlRegistration,
        *mut BtlRegistration,
        c_int,
        u64,
        c_int,
        c_int,
        Transferred,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
>;

/// Starts a compare-and-swap.
///
/// C: `mca_btl_base_module_atomic_cswap64_fn_t`.
pub type AtomicSwap = Option<
    unsafe extern "C" fn(
        *mut BtlModule,
        *mut BtlEndpoint,
        *mut c_void,
        u64,
        *mut BtlRegistration,
        *mut BtlRegistration,
        u64,
        u64,
        c_int,
        c_int,
        Transferred,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
>;

/// The table of a byte transport.
///
/// C: `mca_btl_base_module_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BtlModule {
    /// the component
    pub component: *const BtlComponent,
    /// longest message sent at once, header included
    pub eager_limit: usize,
    /// data in the first fragment of a long message
    pub rndv_eager_limit: usize,
    /// longest fragment
    pub max_send_size: usize,
    /// data that is sent, not put, at the beginning of a pipelined message
    pub rdma_pipeline_send_length: usize,
    /// longest fragment of a pipelined message
    pub rdma_pipeline_frag_size: usize,
    /// shortest pipelined message
    pub min_rdma_pipeline_size: usize,
    /// transports of lower value are not used beside this one
    pub exclusivity: u32,
    /// rank among transports by latency; lower is better
    pub latency: u32,
    /// share among transports by bandwidth
    pub bandwidth: u32,
    /// properties
    pub flags: u32,
    /// atomic operations
    pub atomic_flags: u32,
    _pad0: [u8; 4],
    /// bytes of a registration handle
    pub registration_handle_size: usize,
    /// longest GET
    pub get_limit: usize,
    /// alignment of a GET
    pub get_alignment: usize,
    /// longest PUT
    pub put_limit: usize,
    /// alignment of a PUT
    pub put_alignment: usize,
    /// GETs from this length on need registered local memory
    pub get_local_registration_threshold: usize,
    /// PUTs from this length on need registered local memory
    pub put_local_registration_threshold: usize,
    /// makes peers known
    pub add_procs: Option<
        unsafe extern "C" fn(
            *mut BtlModule,
            usize,
            *mut *mut BtlProc,
            *mut *mut BtlEndpoint,
            *mut c_void,
        ) -> c_int,
    >,
    /// forgets peers
    pub del_procs: Option<
        unsafe extern "C" fn(*mut BtlModule, usize, *mut *mut BtlProc, *mut *mut BtlEndpoint) -> c_int,
    >,
    /// hears of receive callbacks
    pub register: Option<unsafe extern "C" fn()>,
    /// ends the module
    pub finalize: Option<unsafe extern "C" fn(*mut BtlModule) -> c_int>,
    /// gives a descriptor with memory
    pub alloc:
        Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint, u8, usize, u32) -> *mut Descriptor>,
    /// takes a descriptor back
    pub free: Option<unsafe extern "C" fn(*mut BtlModule, *mut Descriptor) -> c_int>,
    /// gives a descriptor of user data
    pub prepare_src: Option<
        unsafe extern "C" fn(
            *mut BtlModule,
            *mut BtlEndpoint,
            *mut BtlConvertor,
            u8,
            usize,
            *mut usize,
            u32,
        ) -> *mut Descriptor,
    >,
    /// sends a descriptor
    pub send: Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint, *mut Descriptor, u8) -> c_int>,
    /// sends at once or not at all
    pub sendi: Option<
        unsafe extern "C" fn(
            *mut BtlModule,
            *mut BtlEndpoint,
            *mut BtlConvertor,
            *mut c_void,
            usize,
            usize,
            u8,
            u32,
            u8,
            *mut *mut Descriptor,
        ) -> c_int,
    >,
    /// writes to a peer's memory
    pub put: Transfer,
    /// reads from a peer's memory
    pub get: Transfer,
    /// says what state it is in
    pub dump: Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint, c_int)>,
    /// atomic operation without result
    pub atomic_op: AtomicOp,
    /// atomic operation with result
    pub atomic_fop: AtomicFop,
    /// compare and swap
    pub atomic_cswap: AtomicSwap,
    /// registers memory
    pub register_mem: Option<
        unsafe extern "C" fn(
            *mut BtlModule,
            *mut BtlEndpoint,
            *mut c_void,
            usize,
            u32,
        ) -> *mut BtlRegistration,
    >,
    /// takes a registration back
    pub deregister_mem: Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlRegistration) -> c_int>,
    /// memory pool
    pub mpool: *mut c_void,
    /// takes the host's error callback
    pub register_error: Option<unsafe extern "C" fn(*mut BtlModule, Failed) -> c_int>,
    /// 4.1: checkpoint callback; 5.0: longest fragment of device memory
    pub ft_event_or_accelerator_max_send_size: usize,
    /// waits for PUTs and GETs
    pub flush: Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint) -> c_int>,
    /// 5.0 keeps its emulation of one-sided operations here
    pub reserved: [u8; 256],
}

const _: () = assert!(size_of::<BtlModule>() == 560);

impl BtlModule {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self = Self {
        component: std::ptr::null(),
        eager_limit: 0,
        rndv_eager_limit: 0,
        max_send_size: 0,
        rdma_pipeline_send_length: 0,
        rdma_pipeline_frag_size: 0,
        min_rdma_pipeline_size: 0,
        exclusivity: 0,
        latency: 0,
        bandwidth: 0,
        flags: 0,
        atomic_flags: 0,
        _pad0: [0; 4],
        registration_handle_size: 0,
        get_limit: 0,
        get_alignment: 0,
        put_limit: 0,
        put_alignment: 0,
        get_local_registration_threshold: 0,
        put_local_registration_threshold: 0,
        add_procs: None,
        del_procs: None,
        register: None,
        finalize: None,
        alloc: None,
        free: None,
        prepare_src: None,
        send: None,
        sendi: None,
        put: None,
        get: None,
        dump: None,
        atomic_op: None,
        atomic_fop: None,
        atomic_cswap: None,
        register_mem: None,
        deregister_mem: None,
        mpool: std::ptr::null_mut(),
        register_error: None,
        ft_event_or_accelerator_max_send_size: 0,
        flush: None,
        reserved: [0; 256],
    };
}

/// A piece of memory of a descriptor.
///
/// C: `mca_btl_base_segment_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    /// address
    pub start: *mut u8,
    /// bytes
    pub len: u64,
}

const _: () = assert!(size_of::<Segment>() == 16);

impl Segment {
    /// No bytes.
    pub(super) const EMPTY: Self = Self { start: std::ptr::null_mut(), len: 0 };
}

/// What the transport tells when a descriptor has been sent.
///
/// C: `mca_btl_base_completion_fn_t`.
pub type Sent = Option<unsafe extern "C" fn(*mut BtlModule, *mut BtlEndpoint, *mut Descriptor, c_int)>;

/// What is sent, and what 4.1 is handed when something was received.
///
/// C: `mca_btl_base_descriptor_t`.
#[repr(C)]
pub struct Descriptor {
    _pad0: [u8; 56],
    /// pieces of memory
    pub segments: *mut Segment,
    /// how many
    pub segment_count: usize,
    /// called when it has been sent
    pub sent: Sent,
    /// for the callback
    pub callback_data: *mut c_void,
    /// for the callback
    pub context: *mut c_void,
    /// wishes
    pub flags: u32,
    /// ordering class
    pub order: u8,
    _pad1: [u8; 3],
}

const _: () = assert!(size_of::<Descriptor>() == 104);

impl Descriptor {
    /// Nothing filled in.
    pub(in crate::host) const EMPTY: Self = Self {
        _pad0: [0; 56],
        segments: std::ptr::null_mut(),
        segment_count: 0,
        sent: None,
        callback_data: std::ptr::null_mut(),
        context: std::ptr::null_mut(),
        flags: 0,
        order: 0,
        _pad1: [0; 3],
    };
}

/// A registered receive callback; its type differs by version.
///
/// C: `mca_btl_active_message_callback_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ActiveMessage {
    /// the callback
    pub callback: *const c_void,
    /// for the callback
    pub callback_data: *mut c_void,
}

const _: () = assert!(size_of::<ActiveMessage>() == 16);

/// The head of a convertor.
///
/// C: `opal_convertor_t`.
#[repr(C)]
pub struct BtlConvertor {
    _pad0: [u8; 20],
    /// state and properties
    pub flags: u32,
    /// packed bytes
    pub local_size: usize,
    _pad1: [u8; 8],
    /// datatype of the elements
    pub datatype: *const Datatype,
    _pad2: [u8; 8],
    /// elements
    pub count: usize,
    _pad3: [u8; 8],
    /// where the first element is
    pub base: *mut u8,
    _pad4: [u8; 40],
    /// bytes that have been packed
    pub converted: usize,
}

const _: () = assert!(size_of::<BtlConvertor>() == 128);

/// The head of a performance variable.
///
/// C: `mca_base_pvar_t`.
#[repr(C)]
pub struct BtlPvar {
    _pad0: [u8; 96],
    /// what it was registered with
    pub context: *mut c_void,
}

const _: () = assert!(size_of::<BtlPvar>() == 104);

/// The head of a process.
///
/// C: `opal_proc_t`.
#[repr(C)]
pub struct BtlProc {
    _pad0: [u8; 40],
    /// job
    pub jobid: u32,
    /// rank in the job
    pub vpid: u32,
}

const _: () = assert!(size_of::<BtlProc>() == 48);

/// A peer; the host only ever sees its address, which is a handle of ours.
///
/// C: `struct mca_btl_base_endpoint_t`.
pub type BtlEndpoint = c_void;

/// A registration handle; the host copies its bytes to the peer.
///
/// C: `mca_btl_base_registration_handle_t`.
pub type BtlRegistration = c_void;

/// A module that the host has taken, in its list of them.
///
/// C: `mca_btl_base_selected_module_t`.
#[repr(C)]
pub struct BtlSelected {
    /// its place in the list
    pub item: ListItem,
    /// the module's component
    pub component: *const BtlComponent,
    /// the module
    pub module: *mut BtlModule,
}

const _: () = assert!(size_of::<BtlSelected>() == 56);
