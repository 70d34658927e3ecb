//! Open MPI 5.0.

pub(super) mod accelerator;
pub(super) mod one_sided;
pub(super) mod reduction;
pub mod sys;
mod user_operation;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::abi::{Abi, CommunicatorFields, Patience, ProcessFacts};
use super::accelerator::{self as devices, AcceleratorAbi};
use super::btl::sys::{ActiveMessage, BtlEndpoint, BtlModule, BtlProc, Segment};
use super::btl::{BtlAbi, NOBODY, Receive50};
use super::construct::{Slot, Version};
use super::foreign;
use super::mtl::{self, Comm, MtlAbi, Named};
use super::services::Relay;
use super::symbols::{Loaded, Variable, symbols};
use super::sys::{Class, Component, Datatype, MtlModule, ProcessName};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::fabric::Device;

/// The marker of this version.
#[derive(Clone, Copy)]
pub struct V5_0;

symbols! {
    /// What only this version has.
    pub(super) struct Own {
        put: unsafe extern "C" fn(u8, *const c_char, *mut sys::PmixValue) -> c_int = c"PMIx_Put",
        get: unsafe extern "C" fn(*const sys::PmixProc, *const c_char, *const sys::PmixInfo, usize, *mut *mut sys::PmixValue) -> c_int = c"PMIx_Get",
        free_value: unsafe extern "C" fn(*mut sys::PmixValue, usize) = c"PMIx_Value_free",
        convert_jobid: unsafe extern "C" fn(*mut c_char, u32) -> c_int = c"opal_pmix_convert_jobid",
        process: Variable<sys::ProcessInfo> = c"opal_process_info",
        host_name: Variable<unsafe extern "C" fn(*const BtlProc) -> *mut c_char> = c"opal_get_proc_hostname",
        stream_class: *mut Class = c"opal_accelerator_stream_t_class",
        event_class: *mut Class = c"opal_accelerator_event_t_class",
        accelerator: Variable<sys::Accelerator> = c"opal_accelerator",
        cuda: Variable<u8> = c"opal_built_with_cuda_support",
        accelerator_component: Variable<Component> = c"opal_accelerator_base_selected_component",
        class_initialize: unsafe extern "C" fn(*mut Class) = c"opal_class_initialize",
        op_module_class: Variable<Class> = c"ompi_op_base_module_t_class",
        op_types: Variable<[c_int; sys::PREDEFINED_TYPES]> = c"ompi_op_ddt_map",
        predefined_types: Variable<[*const Datatype; sys::BASIC_TYPES]> = c"ompi_datatype_basicDatatypes",
    }
}

static OWN: OnceLock<(Own, (i32, i32, i32))> = OnceLock::new();

impl Own {
    pub(super) fn install(self, version: (i32, i32, i32)) {
        let _ = OWN.set((self, version));
    }

    fn host() -> &'static Self {
        &OWN.get().expect("entry points run only after a host was recognised").0
    }
}

/// `OMPI_COMM_GLOBAL_INDEX`
const GLOBAL_INDEX: u32 = 0x0001_0000;

/// The fields of a communicator that only this version has.
fn fields(comm: Comm<V5_0>) -> *mut sys::Communicator {
    comm.as_ptr().cast()
}

/// `MCA_MTL_BASE_FLAG_SUPPORTS_EXT_CID`
const EXTENDED_IDS: u32 = 0x4;

/// The key under which the host's own OFI component publishes: hawser speaks with it.
const KEY: &CStr = c"mtl.ofi.5.0";
/// `PMIX_BYTE_OBJECT`
const BYTE_OBJECT: u16 = 27;
/// `PMIX_GLOBAL`
const GLOBAL: u8 = 3;
/// `PMIX_IMMEDIATE`: the server of this node is asked, and does not wait for what it does not have.
const IMMEDIATE: &CStr = c"pmix.immediate";

fn look_up(name: ProcessName, key: &CStr, patience: Patience) -> Result<Vec<u8>> {
    let own = Own::host();
    let mut peer = sys::PmixProc { namespace: [0; 256], rank: name.vpid };
    // SAFETY: the callee writes at most the 256 bytes of a namespace, zero-ended.
    let code = unsafe { (own.convert_jobid)(peer.namespace.as_mut_ptr().cast(), name.jobid) };
    // A job of which nobody has heard: its namespace is empty, and would be taken for our own.
    if code != 0 || peer.namespace[0] == 0 {
        return Err(Error::NotFound);
    }
    let mut value = ptr::null_mut();
    let immediate = sys::PmixInfo::truth(IMMEDIATE);
    let (directives, count) = match patience {
        Patience::Waits => (ptr::null(), 0),
        Patience::Immediate => (&raw const immediate, 1),
    };
    // SAFETY: a process name, a key, so many directives, which the callee only reads; it hands over one value.
    let code = unsafe { (own.get)(&raw const peer, key.as_ptr(), directives, count, &raw mut value) };
    let value = NonNull::new(value).ok_or(Error::Host(code))?;
    let owned = value;
    // SAFETY: the callee's value, whole and ours alone until it is given back.
    let value = unsafe { owned.as_ref() };
    let (bytes, size) = (value.bytes, value.size);
    let copy = (code == 0 && value.kind == BYTE_OBJECT && !bytes.is_null() && size > 0).then(|| {
        // SAFETY: a byte object of `size` bytes, alive until the value is freed.
        unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec()
    });
    // SAFETY: one value that was handed over to us.
    unsafe { (own.free_value)(owned.as_ptr(), 1) };
    copy.ok_or(Error::NotFound)
}

fn publish(key: &CStr, bytes: &[u8]) -> Result<()> {
    // SAFETY: all fields are plain numbers and pointers; zero is a value of each.
    let mut value: sys::PmixValue = unsafe { std::mem::zeroed() };
    value.kind = BYTE_OBJECT;
    value.bytes = bytes.as_ptr().cast_mut().cast();
    value.size = bytes.len();
    // SAFETY: the callee copies what the value points to.
    let code = unsafe { (Own::host().put)(GLOBAL, key.as_ptr(), &raw mut value) };
    if code == 0 { Ok(()) } else { Err(Error::Host(code)) }
}

// SAFETY: the layouts are 5.0's (`c-tests/layout/v5_0.c`).
unsafe impl Abi for V5_0 {
    const DEVICE: bool = true;
    const GROUP_COMMUNICATORS: bool = true;
    const COMMUNICATOR: CommunicatorFields = CommunicatorFields {
        context_id: offset_of!(sys::Communicator, index),
        rank: offset_of!(sys::Communicator, rank),
        remote_group: offset_of!(sys::Communicator, remote_group),
    };

    fn has_devices() -> bool {
        accelerator::is_there()
    }

    fn version() -> (i32, i32, i32) {
        OWN.get().map_or((0, 0, 0), |own| own.1)
    }

    fn default_exclude() -> &'static str {
        "shm,sockets,tcp,udp,rstream,usnic,net"
    }

    fn facts() -> ProcessFacts {
        let process = Own::host().process.get();
        ProcessFacts { local_rank: usize::from(process.local_rank), universe: process.universe_size as usize }
    }

    fn publish(name: &[u8]) -> Result<()> {
        publish(KEY, name)
    }

    fn published(name: ProcessName) -> Result<Vec<u8>> {
        look_up(name, KEY, Patience::Waits)
    }

    #[inline]
    fn is_global(comm: Comm<Self>) -> bool {
        // SAFETY: a handle's communicator is alive, and of this version.
        let flags = unsafe { (*fields(comm)).flags };
        flags & GLOBAL_INDEX != 0
    }

    fn extended_id(comm: Comm<Self>) -> [u64; 2] {
        let fields = fields(comm);
        // SAFETY: a handle's communicator is alive, and of this version.
        let base = unsafe { (*fields).cid_base };
        // SAFETY: the second half of the same id.
        let sub = unsafe { (*fields).cid_sub };
        [base, sub]
    }

    fn note<'a>(comm: Comm<Self>) -> Option<&'a AtomicUsize> {
        // SAFETY: a handle's communicator is alive, and of this version.
        let slot = unsafe { &raw mut (*fields(comm)).mtl };
        // SAFETY: the field is the transport's own, pointer-sized and aligned.
        Some(unsafe { AtomicUsize::from_ptr(slot.cast()) })
    }

    fn device(address: *const u8) -> Option<Device> {
        accelerator::device_of(address)
    }

    fn is_out_of_reach(address: *const u8) -> bool {
        accelerator::is_out_of_reach(address)
    }

    fn places_thin_sends() -> bool {
        false
    }
}

// SAFETY: the callback's signature is 5.0's (`c-tests/layout/v5_0.c`).
unsafe impl BtlAbi for V5_0 {
    const TYPE_VERSION: [c_int; 3] = [3, 3, 0];
    /// No flag: the host itself decides, and knows the process.
    const LOSS: i32 = 0;
    const DEVICES_REACHED: Option<c_int> = Some(4);
    const REMOTE_COMPLETION: u32 = 0x80_0000;

    fn has_gdr_fields() -> bool {
        // Every CUDA that 5.0 can be built with has GPU direct, so the one says the other.
        Own::host().cuda.get() != 0
    }

    #[inline]
    unsafe fn receive(
        module: *mut BtlModule,
        endpoint: *mut BtlEndpoint,
        tag: u8,
        message: ActiveMessage,
        segment: Segment,
    ) {
        let descriptor = sys::ReceiveDescriptor::new(endpoint, &segment, tag, message.callback_data);
        // SAFETY: registered, hence a function of this version's type.
        let callback = unsafe { std::mem::transmute::<*const c_void, Receive50>(message.callback) };
        // SAFETY: what the callback expects, alive for the time of the call.
        unsafe { callback(module, &raw const descriptor) };
    }

    fn publish_under(key: &'static CStr, bytes: &[u8]) -> Result<()> {
        publish(key, bytes)
    }

    fn published_under(key: &'static CStr, name: u64, patience: Patience) -> Result<Vec<u8>> {
        look_up(ProcessName { jobid: name as u32, vpid: (name >> 32) as u32 }, key, patience)
    }

    unsafe fn host_name(proc: *const BtlProc) -> Option<String> {
        let find = Own::host().host_name.get();
        // SAFETY: a live process; the callee gives null or a string that becomes ours.
        let text = unsafe { find(proc) };
        // SAFETY: null, or a zero-ended text that is ours.
        let copy = unsafe { foreign::text(text) };
        // SAFETY: null, or made with malloc, and not used any more.
        unsafe { libc::free(text.cast()) };
        let copy = copy?;
        (copy != NOBODY).then_some(copy)
    }
}

impl Version for V5_0 {
    const NUMBER: (i32, i32) = (5, 0);
    const TRIED: &'static [i32] = &[7];
    const RELAY: Relay = Relay::Launcher;
    const CLASSES: &'static [(&'static CStr, usize)] = &[
        (c"opal_accelerator_stream_t_class", size_of::<sys::AcceleratorObject>()),
        (c"opal_accelerator_event_t_class", size_of::<sys::AcceleratorObject>()),
        (c"opal_convertor_t_class", size_of::<sys::Convertor>()),
        (c"ompi_communicator_t_class", size_of::<sys::Communicator>()),
        (c"ompi_group_t_class", size_of::<sys::Group>()),
    ];
    type Own = Own;

    fn find(host: Loaded) -> std::result::Result<Own, String> {
        Own::find(host)
    }

    fn install(own: Own, version: (i32, i32, i32)) {
        own.install(version);
    }
}

impl AcceleratorAbi for V5_0 {
    fn fill<T: Accelerator>(slot: &Slot) {
        slot.fill(devices::component::<Self, T>());
    }

    fn classes() -> devices::Classes {
        let own = Own::host();
        devices::Classes {
            initialize: own.class_initialize,
            stream: own.stream_class,
            event: own.event_class,
        }
    }
}

impl MtlAbi for V5_0 {
    type Component = sys::MtlComponent;
    const FLAGS: u32 = EXTENDED_IDS;

    fn component<N: Named>(base: Component) -> sys::MtlComponent {
        let mut component = sys::MtlComponent::EMPTY;
        component.base = base;
        component.init = Some(init::<N>);
        component
    }
}

unsafe extern "C" fn init<N: Named>(
    _progress_threads: bool,
    _mpi_threads: bool,
    accelerator: *mut bool,
) -> *mut MtlModule {
    let (module, reaches_devices) = mtl::init::<V5_0, N>();
    if !module.is_null() {
        // SAFETY: null, or a variable on the stack of the framework, which its own transports read when this
        // has returned (`ompi/mca/mtl/base`).
        unsafe { foreign::write(accelerator, reaches_devices) };
    }
    module
}
