//! Open MPI 4.1.

pub(super) mod devices;
mod elements;
mod external;
mod one_sided;
pub mod sys;
mod ucx;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::abi::{Abi, CommunicatorFields, Patience, ProcessFacts};
use super::accelerator::AcceleratorAbi;
use super::btl::sys::{ActiveMessage, BtlEndpoint, BtlModule, BtlProc, Descriptor, Segment};
use super::btl::{BtlAbi, NOBODY, Receive41};
use super::construct::Version;
use super::copy_hook;
use super::foreign;
use super::mtl::{self, Comm, MtlAbi, Named};
use super::services::Relay;
use super::symbols::{Loaded, Variable, symbols};
use super::sys::{self as shared, List, MtlModule, Object, ProcessName};
use crate::error::{Error, Result};
use crate::fabric::Device;
use crate::mtl::Communicator;

/// The marker of this version.
#[derive(Clone, Copy)]
pub struct V4_1;

symbols! {
    /// What only this version has.
    pub(super) struct Own {
        pmix: Variable<sys::Pmix> = c"opal_pmix",
        process: Variable<sys::ProcessInfo> = c"orte_process_info",
        host_name: unsafe extern "C" fn(*const BtlProc) -> *const c_char = c"opal_get_proc_hostname",
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

/// The key under which the host's own OFI component publishes: hawser speaks with it.
const KEY: &CStr = c"mtl.ofi.4.1";
/// `OPAL_BYTE_OBJECT`
const BYTE_OBJECT: u8 = 20;
/// `OPAL_PMIX_GLOBAL`
const GLOBAL: c_int = 3;
/// `OPAL_PMIX_IMMEDIATE`: the server of this node is asked, and does not wait for what it does not have.
const IMMEDIATE: &CStr = c"pmix.immediate";

fn look_up(name: ProcessName, key: &CStr, patience: Patience) -> Result<Vec<u8>> {
    let get = Own::host().pmix.get().get.ok_or(Error::Unsupported)?;
    let mut value = ptr::null_mut::<sys::Value>();
    let mut list = MaybeUninit::<List>::uninit();
    let all = list.as_mut_ptr();
    let mut immediate = sys::Value::truth(IMMEDIATE, List::end(all));
    // SAFETY: room for a list, on our stack.
    unsafe { all.write(List::of(&raw mut immediate.item)) };
    let directives = match patience {
        Patience::Waits => ptr::null_mut(),
        Patience::Immediate => all,
    };
    // SAFETY: a process name, a key, and none or a whole list of directives, which the callee only reads; it hands over
    // one value.
    let code = unsafe { get(&raw const name, key.as_ptr(), directives, &raw mut value) };
    let value = NonNull::new(value).ok_or(Error::Host(code))?;
    let owned = value;
    // SAFETY: the callee's value, whole and ours alone until it is given back.
    let value = unsafe { owned.as_ref() };
    let (bytes, size) = (value.bytes, value.size);
    let copy = (code == 0 && value.kind == BYTE_OBJECT && !bytes.is_null() && size > 0).then(|| {
        // SAFETY: a byte object of `size` bytes, alive until the value is released.
        unsafe { std::slice::from_raw_parts(bytes, size as usize) }.to_vec()
    });
    release(owned);
    copy.ok_or(Error::NotFound)
}

fn publish(key: &CStr, bytes: &[u8]) -> Result<()> {
    let put = Own::host().pmix.get().put.ok_or(Error::Unsupported)?;
    // SAFETY: all fields are plain numbers and pointers; zero is a value of each.
    let mut value: sys::Value = unsafe { std::mem::zeroed() };
    value.key = key.as_ptr().cast_mut().cast::<c_char>();
    value.kind = BYTE_OBJECT;
    value.size = i32::try_from(bytes.len()).map_err(|_| Error::BadParameter)?;
    value.bytes = bytes.as_ptr().cast_mut();
    // SAFETY: the callee copies what the value points to.
    let code = unsafe { put(GLOBAL, &raw mut value) };
    if code == 0 { Ok(()) } else { Err(Error::Host(code)) }
}

/// Gives a value up whose only reference is ours: its destructors, then its memory (`OBJ_RELEASE`).
fn release(value: NonNull<sys::Value>) {
    // SAFETY: every object of the host's begins with this head, and ours is alive.
    let class = unsafe { value.cast::<Object>().as_ref() }.class;
    // SAFETY: null, or a class of the host's, which it made before the object.
    let Some(class) = (unsafe { class.as_ref() }) else { return };
    let mut destruct = class.destruct;
    // SAFETY: the class's list of destructors ends with null.
    while let Some(run) = unsafe { destruct.read() } {
        // SAFETY: a live object of this class.
        unsafe { run(value.as_ptr().cast()) };
        // SAFETY: not yet at the end of the list.
        destruct = unsafe { destruct.add(1) };
    }
    // SAFETY: the host allocated the value with malloc.
    unsafe { libc::free(value.as_ptr().cast()) };
}

// SAFETY: the layouts are 4.1's (`c-tests/layout/v4_1.c`).
unsafe impl Abi for V4_1 {
    const DEVICE: bool = false;
    const GROUP_COMMUNICATORS: bool = false;
    const COMMUNICATOR: CommunicatorFields = CommunicatorFields {
        context_id: offset_of!(sys::Communicator, index),
        rank: offset_of!(sys::Communicator, rank),
        remote_group: offset_of!(sys::Communicator, remote_group),
    };

    fn has_devices() -> bool {
        false
    }

    fn version() -> (i32, i32, i32) {
        OWN.get().map_or((0, 0, 0), |own| own.1)
    }

    fn default_exclude() -> &'static str {
        // HOST: 4.1.5 added `net` (opal/mca/common/ofi/common_ofi.c).
        if Self::version().2 < 5 {
            "shm,sockets,tcp,udp,rstream,usnic"
        } else {
            "shm,sockets,tcp,udp,rstream,usnic,net"
        }
    }

    fn facts() -> ProcessFacts {
        let process = Own::host().process.get();
        ProcessFacts { local_rank: usize::from(process.local_rank), universe: process.processes as usize }
    }

    fn publish(name: &[u8]) -> Result<()> {
        publish(KEY, name)
    }

    fn published(name: ProcessName) -> Result<Vec<u8>> {
        look_up(name, KEY, Patience::Waits)
    }

    /// Communicators of this version have one id at all members.
    #[inline]
    fn is_global(_comm: Comm<Self>) -> bool {
        true
    }

    fn extended_id(comm: Comm<Self>) -> [u64; 2] {
        [0, u64::from(comm.context_id())]
    }

    fn note<'a>(_comm: Comm<Self>) -> Option<&'a AtomicUsize> {
        None
    }

    fn device(_address: *const u8) -> Option<Device> {
        None
    }

    fn is_out_of_reach(address: *const u8) -> bool {
        copy_hook::is_hidden_device(address.addr())
    }

    fn places_thin_sends() -> bool {
        // HOST: before 4.1.6, pml/cm fills a bare convertor by hand for blocking sends and thin
        // requests and puts the first byte of data into its base (ompi/mca/pml/cm/pml_cm.h).
        Self::version() < (4, 1, 6)
    }
}

// SAFETY: the callback's signature is 4.1's (`c-tests/layout/v4_1.c`).
unsafe impl BtlAbi for V4_1 {
    const TYPE_VERSION: [c_int; 3] = [3, 1, 0];
    /// `MCA_BTL_ERROR_FLAGS_FATAL`
    const LOSS: i32 = 1;

    #[inline]
    unsafe fn receive(
        module: *mut BtlModule,
        _endpoint: *mut BtlEndpoint,
        tag: u8,
        message: ActiveMessage,
        mut segment: Segment,
    ) {
        let mut descriptor = Descriptor::EMPTY;
        descriptor.segments = &raw mut segment;
        descriptor.segment_count = 1;
        // SAFETY: registered, hence a function of this version's type.
        let callback = unsafe { std::mem::transmute::<*const c_void, Receive41>(message.callback) };
        // SAFETY: what the callback expects, alive for the time of the call.
        unsafe { callback(module, tag, &raw mut descriptor, message.callback_data) };
    }

    fn publish_under(key: &'static CStr, bytes: &[u8]) -> Result<()> {
        publish(key, bytes)
    }

    fn published_under(key: &'static CStr, name: u64, patience: Patience) -> Result<Vec<u8>> {
        look_up(ProcessName { jobid: name as u32, vpid: (name >> 32) as u32 }, key, patience)
    }

    unsafe fn host_name(proc: *const BtlProc) -> Option<String> {
        // SAFETY: a live process; the callee gives null or a string that stays its own.
        let text = unsafe { (Own::host().host_name)(proc) };
        // SAFETY: null, or the zero-ended text that the callee keeps.
        let text = unsafe { foreign::text(text) }?;
        (text != NOBODY).then_some(text)
    }
}

/// It has no framework for accelerators.
impl AcceleratorAbi for V4_1 {}

impl Version for V4_1 {
    const NUMBER: (i32, i32) = (4, 1);
    const TRIED: &'static [i32] = &[4];
    const RELAY: Relay = Relay::Own;
    const CLASSES: &'static [(&'static CStr, usize)] = &[
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

impl MtlAbi for V4_1 {
    type Component = sys::MtlComponent;
    const FLAGS: u32 = 0;

    fn component<N: Named>(base: shared::Component) -> sys::MtlComponent {
        let mut component = sys::MtlComponent::EMPTY;
        component.base = base;
        component.init = Some(init::<N>);
        component
    }
}

unsafe extern "C" fn init<N: Named>(_progress_threads: bool, _mpi_threads: bool) -> *mut MtlModule {
    mtl::init::<V4_1, N>().0
}
