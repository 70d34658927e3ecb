//! One-sided communication with memory of devices (`ompi/mca/osc`, `opal/mca/btl/base/btl_base_am_rdma.c`).
//!
//! The host's components for windows know devices in part: they refuse a window on a device where no byte transport
//! says that it reaches one, and what puts and gets by messages copies with the processor, and reckons with its
//! atomic instructions. So, from the first window that a program makes beside an accelerator of ours:
//!
//! * the transport to the process itself says that it reaches devices: that is all that the host looks at, and what it
//!   then uses are messages;
//! * the copies of the host's libraries are looked at ([`copy_hook`]);
//! * where devices are in use, messages bring all the data: the kernel's copies between processes are not for memory of
//!   devices;
//! * an atomic operation on a device's memory is reckoned here, one at a time, before the host answers it. All
//!   operations of a window on a process come there as messages, so none passes this by.
//!
//! A program that makes no window has two slots of the host's changed, and nothing else.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::sys::{AmRdma, ReceiveDescriptor};
use crate::accelerator::{Accelerator, Place, Transfer};
use crate::error::say;
use crate::host::btl::Receive50;
use crate::host::btl::sys::{
    ActiveMessage, BtlEndpoint, BtlModule, BtlRegistration, Segment, Transfer as Transport, Transferred,
};
use crate::host::copy_hook::{self, Slots};
use crate::host::guard::guard;
use crate::host::symbols::Loaded;
use crate::host::sys::Class;

/// What the user reads of the entries.
const NAME: &str = "one_sided";

/// The host's libraries: their names up to the version.
const MPI: &str = "libmpi.so.40";
const PAL: &str = "libopen-pal.so.80";

/// `MCA_BTL_FLAGS_ACCELERATOR_PUT | MCA_BTL_FLAGS_ACCELERATOR_GET`
const REACHES_DEVICES: u32 = 0x0400 | 0x0800;

/// `MCA_BTL_BASE_TAG_ATOMIC`
const ATOMIC: usize = 0x11;

/// Chooses a component: window, base, size, unit, communicator, flavour, model (`ompi_osc_base_select`).
type Select = unsafe extern "C" fn(
    *mut c_void,
    *mut *mut c_void,
    usize,
    c_int,
    *mut c_void,
    c_int,
    *mut c_int,
) -> c_int;

/// Makes what puts and gets by messages of a transport (`opal_btl_base_am_rdma_create`).
type Create = unsafe extern "C" fn(*mut BtlModule, u32, bool, *mut *mut AmRdma) -> c_int;

/// The slots of these two.
static SLOTS: Slots = Slots::new();

/// The host's functions that are called from ours: 0 before they were looked for.
static SELECT: AtomicUsize = AtomicUsize::new(0);
static CREATE: AtomicUsize = AtomicUsize::new(0);
static PUT: AtomicUsize = AtomicUsize::new(0);
static GET: AtomicUsize = AtomicUsize::new(0);
static ANSWER: AtomicUsize = AtomicUsize::new(0);
/// The table of receive callbacks.
static TRIGGERS: AtomicPtr<ActiveMessage> = AtomicPtr::new(ptr::null_mut());

/// One atomic operation on memory of devices at a time.
static RECKONING: Mutex<()> = Mutex::new(());

/// A message that asks for an atomic operation (`am_rdma_hdr_t`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    kind: u8,
    _pad0: [u8; 7],
    operation: i8,
    size: u8,
    _pad1: [u8; 6],
    operands: [i64; 2],
    target: u64,
    context: u64,
}

const _: () = assert!(size_of::<Request>() == 48 && offset_of!(Request, target) == 32);

/// `MCA_BTL_BASE_AM_ATOMIC`
const FETCH: u8 = 2;
/// `MCA_BTL_BASE_AM_CAS`
const COMPARE_AND_SWAP: u8 = 3;

impl Request {
    /// What is to stand where this stood; `None` where the host knows no such operation.
    fn reckon(&self, stood: i64) -> Option<i64> {
        let [first, second] = self.operands;
        if self.kind == COMPARE_AND_SWAP {
            return Some(if stood == first { second } else { stood });
        }
        // `MCA_BTL_ATOMIC_*`
        Some(match self.operation {
            0x01 => stood.wrapping_add(first),
            0x11 => stood & first,
            0x12 => stood | first,
            0x14 => stood ^ first,
            0x1a => first,
            0x20 => stood.min(first),
            0x21 => stood.max(first),
            _ => return None,
        })
    }

    /// The same as it is sent, with operands of the size that it works on.
    fn normal(mut self) -> Self {
        if self.size == 4 {
            self.operands = self.operands.map(|operand| i64::from(operand as i32));
        }
        self
    }
}

/// Begins: from now on windows are noticed. Where this host is not as expected, it is left as it is.
pub(in crate::host) fn begin<T: Accelerator>() {
    if look_up().is_none() {
        return;
    }
    let replacements = [
        (c"ompi_osc_base_select", (select::<T> as *const ()).expose_provenance()),
        (c"opal_btl_base_am_rdma_create", (create::<T> as *const ()).expose_provenance()),
    ];
    // SAFETY: both call the host's function of the name; this library is never unloaded.
    unsafe { SLOTS.put(|name| name.starts_with(MPI), &replacements) };
}

/// Ends: everything is as it was before.
pub(in crate::host) fn end<T: Accelerator>() {
    SLOTS.take_back();
    copy_hook::take_back();
    if let Some(flags) = flags_of_self() {
        flags.fetch_and(!REACHES_DEVICES, Ordering::Relaxed);
    }
    let answer = ANSWER.swap(0, Ordering::Relaxed);
    if let Some(callback) = trigger()
        && callback.load(Ordering::Relaxed) == ours::<T>()
    {
        callback.store(answer, Ordering::Relaxed);
    }
}

/// Finds the host's functions, if what they work on looks as expected.
fn look_up() -> Option<()> {
    let host = Loaded::find(c"libmpi.so.40")?;
    let class = host.symbol(c"mca_btl_base_am_rdma_module_t_class").ok()?.cast::<Class>();
    // SAFETY: a class of the host's, which stays.
    if unsafe { (*class.as_ptr()).size } != size_of::<AmRdma>() {
        return None;
    }
    let triggers = host.symbol(c"mca_btl_base_active_message_trigger").ok()?;
    TRIGGERS.store(triggers.cast().as_ptr(), Ordering::Relaxed);
    let found = |name| Some(host.symbol(name).ok()?.as_ptr().expose_provenance());
    CREATE.store(found(c"opal_btl_base_am_rdma_create")?, Ordering::Relaxed);
    SELECT.store(found(c"ompi_osc_base_select")?, Ordering::Relaxed);
    Some(())
}

/// The receive callback for atomic operations.
fn trigger<'a>() -> Option<&'a AtomicUsize> {
    let entry = ptr::NonNull::new(TRIGGERS.load(Ordering::Relaxed))?.as_ptr().wrapping_add(ATOMIC);
    // SAFETY: an entry of the host's table, which has 255 and stays.
    let callback = unsafe { &raw mut (*entry).callback };
    // SAFETY: aligned, and a word, which is whole at any time.
    Some(unsafe { AtomicUsize::from_ptr(callback.cast()) })
}

fn ours<T: Accelerator>() -> usize {
    (atomic::<T> as *const ()).expose_provenance()
}

/// A function of the host's that was kept.
///
/// # Safety
/// `F` is the type of the function that is kept there.
unsafe fn kept<F: Copy>(place: &AtomicUsize) -> F {
    let address = ptr::with_exposed_provenance::<c_void>(place.load(Ordering::Relaxed));
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: a function of this type, as the caller says; ours are reached only when it is kept.
    unsafe { std::mem::transmute_copy::<*const c_void, F>(&address) }
}

/// The flags of the transport to the process itself. What sends messages has read them before there are windows.
fn flags_of_self<'a>() -> Option<&'a AtomicU32> {
    let module = Loaded::find(c"libopen-pal.so.80")?.symbol(c"mca_btl_self").ok()?.cast::<BtlModule>();
    // SAFETY: the host's module, which stays.
    let flags = unsafe { &raw mut (*module.as_ptr()).flags };
    // SAFETY: aligned, and a number that is whole at any time; the host only reads it when it looks for devices.
    Some(unsafe { AtomicU32::from_ptr(flags) })
}

unsafe extern "C" fn select<T: Accelerator>(
    window: *mut c_void,
    base: *mut *mut c_void,
    size: usize,
    unit: c_int,
    communicator: *mut c_void,
    flavour: c_int,
    model: *mut c_int,
) -> c_int {
    guard(NAME, "select", || {
        copy_hook::put_in::<T>(|name| name.starts_with(PAL) || name.starts_with(MPI));
        if let Some(flags) = flags_of_self() {
            flags.fetch_or(REACHES_DEVICES, Ordering::Relaxed);
        }
    });
    // SAFETY: the host's function of this name.
    let select = unsafe { kept::<Select>(&SELECT) };
    // SAFETY: what the host has called with.
    unsafe { select(window, base, size, unit, communicator, flavour, model) }
}

unsafe extern "C" fn create<T: Accelerator>(
    transport: *mut BtlModule,
    wanted: u32,
    unregistered: bool,
    made: *mut *mut AmRdma,
) -> c_int {
    // SAFETY: the host's function of this name.
    let create = unsafe { kept::<Create>(&CREATE) };
    // SAFETY: what the host has called with.
    let code = unsafe { create(transport, wanted, unregistered, made) };
    if code == 0 {
        guard(NAME, "create", || {
            // SAFETY: the host's variable, which was written.
            let module = unsafe { made.read() };
            // SAFETY: made just now, and nobody else's yet.
            let module = unsafe { &mut *module };
            // The host has the same functions for all.
            let replace = |function: &mut Transport, place: &AtomicUsize, ours: Transport| {
                if let Some(theirs) = *function {
                    place.store((theirs as *const ()).expose_provenance(), Ordering::Relaxed);
                    *function = ours;
                }
            };
            replace(&mut module.put, &PUT, Some(put::<T>));
            replace(&mut module.get, &GET, Some(get::<T>));
            // The first of these has registered it. What is asked of this process comes when the window is there.
            if let Some(callback) = trigger() {
                let stood = callback.load(Ordering::Relaxed);
                if stood != 0 && stood != ours::<T>() {
                    ANSWER.store(stood, Ordering::Relaxed);
                    callback.store(ours::<T>(), Ordering::Relaxed);
                }
            }
        });
    }
    code
}

/// Messages bring all the data, where devices are in use: before, the target may fetch what is long itself.
///
/// # Safety
/// What the host calls a function of an [`AmRdma`] with.
unsafe fn by_messages<T: Accelerator>(module: *mut BtlModule) {
    if T::the().is_in_use() {
        let module = module.cast::<AmRdma>();
        // SAFETY: alive; a flag that the host reads when a transfer begins.
        unsafe { (*module).puts = false };
        // SAFETY: alive; a flag that the host reads when a transfer begins.
        unsafe { (*module).gets = false };
    }
}

macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident: $kept:ident,)*) => {
        $(
            $(#[$doc])*
            unsafe extern "C" fn $name<T: Accelerator>(
                module: *mut BtlModule,
                endpoint: *mut BtlEndpoint,
                local: *mut c_void,
                remote: u64,
                local_handle: *mut BtlRegistration,
                remote_handle: *mut BtlRegistration,
                size: usize,
                flags: c_int,
                order: c_int,
                done: Transferred,
                context: *mut c_void,
                data: *mut c_void,
            ) -> c_int {
                // SAFETY: as the host calls it.
                guard(NAME, stringify!($name), || unsafe { by_messages::<T>(module) });
                // SAFETY: kept when this was put in its place.
                let Some(transfer) = (unsafe { kept::<Transport>(&$kept) }) else { return -1 };
                // SAFETY: what the host has called with.
                unsafe {
                    transfer(
                        module, endpoint, local, remote, local_handle, remote_handle, size, flags, order, done,
                        context, data,
                    )
                }
            }
        )*
    };
}

transports! {
    /// A put; its first argument is the [`AmRdma`] that it is of.
    put: PUT,
    /// A get; its first argument is the [`AmRdma`] that it is of.
    get: GET,
}

/// An atomic operation that another process asks for.
unsafe extern "C" fn atomic<T: Accelerator>(transport: *mut BtlModule, message: *const ReceiveDescriptor) {
    // SAFETY: kept when this was put in its place.
    let answer = unsafe { kept::<Option<Receive50>>(&ANSWER) };
    let Some(answer) = answer else { return };
    let staged = guard(NAME, "atomic", || {
        // SAFETY: alive for the time of the call.
        let message = unsafe { &*message };
        // SAFETY: the first of its segments, of which there is one at least.
        let segment = unsafe { message.segments.read() };
        if segment.len < size_of::<Request>() as u64 {
            return None;
        }
        // SAFETY: so many bytes are there.
        let request = unsafe { segment.start.cast::<Request>().read_unaligned() };
        stage::<T>(request)
    });
    let Some((mut request, mut stood)) = staged else {
        // SAFETY: what the host has called with.
        return unsafe { answer(transport, message) };
    };
    // The host reckons once more, on what stood there, and answers that.
    request.target = (&raw mut stood).expose_provenance() as u64;
    let segment = Segment { start: (&raw mut request).cast(), len: size_of::<Request>() as u64 };
    // SAFETY: alive for the time of the call.
    let message = unsafe { &*message };
    let message = ReceiveDescriptor::new(message.endpoint, &segment, message.tag, message.callback_data);
    // SAFETY: what the host's function expects, alive for the time of the call; it has used the target when it returns.
    unsafe { answer(transport, &raw const message) };
}

/// Reckons on a device: the request, and what stood there; `None` where the memory is the host's.
fn stage<T: Accelerator>(request: Request) -> Option<(Request, i64)> {
    let target = request.target as usize;
    if ![FETCH, COMPARE_AND_SWAP].contains(&request.kind) || ![4, 8].contains(&request.size) {
        return None;
    }
    if !matches!(T::the().place(target), Ok(Place::Device(_))) {
        return None;
    }
    let request = request.normal();
    let len = usize::from(request.size);
    let there = ptr::with_exposed_provenance_mut::<u8>(target);
    let mut room = 0_i64;
    let here = (&raw mut room).cast::<u8>();
    let copy = |to, from| {
        // SAFETY: so many bytes of a window, which the other process may work on, and a variable that is as long.
        let transfer = unsafe { Transfer::new(to, from, len) };
        if let Err(error) = T::the().copy(transfer) {
            say(format_args!("an atomic operation on a device fails ({error}); the process is ended"));
            std::process::abort();
        }
    };
    let _alone = RECKONING.lock();
    copy(here, there.cast_const());
    // SAFETY: the variable; the copy to it is over.
    let stood = unsafe { here.cast::<i64>().read() };
    // Little end first: the lower half is the number.
    let stood = if len == 4 { i64::from(stood as i32) } else { stood };
    if let Some(next) = request.reckon(stood) {
        // SAFETY: the variable, of which nobody reads meanwhile.
        unsafe { here.cast::<i64>().write(next) };
        copy(there, here.cast_const());
    }
    Some((request, stood))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u8, operation: i8, size: u8, operands: [i64; 2]) -> Request {
        Request { kind, _pad0: [0; 7], operation, size, _pad1: [0; 6], operands, target: 0, context: 0 }
    }

    #[test]
    fn operations_are_reckoned_as_the_host_does() {
        let fetch = |operation, stood, operand| request(FETCH, operation, 8, [operand, 0]).reckon(stood);
        assert_eq!(fetch(0x01, i64::MAX, 1), Some(i64::MIN), "add");
        assert_eq!(fetch(0x11, 12, 10), Some(8), "and");
        assert_eq!(fetch(0x12, 12, 10), Some(14), "or");
        assert_eq!(fetch(0x14, 12, 10), Some(6), "exclusive or");
        assert_eq!(fetch(0x1a, 12, 10), Some(10), "swap");
        assert_eq!(fetch(0x20, 12, -10), Some(-10), "minimum");
        assert_eq!(fetch(0x21, 12, -10), Some(12), "maximum");
        assert_eq!(fetch(0x15, 12, 10), None, "the host has no logical ones");
        let swap = |stood| request(COMPARE_AND_SWAP, 0, 8, [5, 7]).reckon(stood);
        assert_eq!((swap(5), swap(6)), (Some(7), Some(6)));
    }

    #[test]
    fn short_operands_have_the_sign_of_their_size() {
        let minus_one = i64::from(u32::MAX);
        let short = request(FETCH, 0x20, 4, [minus_one, 0]).normal();
        assert_eq!(short.reckon(3), Some(-1));
        assert_eq!(request(FETCH, 0x20, 8, [minus_one, 0]).normal().reckon(3), Some(3));
    }
}
