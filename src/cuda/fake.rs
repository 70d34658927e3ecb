//! A driver for tests, one for each thread: two devices whose memory is plain memory, so that what was copied can
//! be looked at. It is strict: what is used must be there, in the context that is current, and what is left over
//! shows in [`left`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use super::library::Driver;
use super::sys::{self, Address, Code, attribute};

/// Context number 1 is the primary one of device 0, 2 that of device 1; others are the program's, of device 0.
type Number = usize;

/// An allocation.
struct Memory {
    bytes: Vec<u8>,
    /// 0 for one of a pool.
    context: Number,
    device: i32,
    managed: bool,
    id: u64,
}

/// A copy that a stream has not made yet.
type Later = (Address, Address, usize);

struct State {
    initialized: bool,
    current: Vec<Number>,
    contexts: HashSet<Number>,
    holds: [usize; 2],
    memory: HashMap<usize, Memory>,
    streams: HashMap<usize, (Number, Vec<Later>)>,
    /// The context and the copies that are to be made before.
    events: HashMap<usize, (Number, Option<usize>)>,
    pinned: HashMap<usize, Number>,
    next: usize,
    calls: HashMap<&'static str, usize>,
    /// What the next call of a function answers.
    failing: HashMap<&'static str, Code>,
    /// What all calls answer: the end of the process.
    ended: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State {
        initialized: true,
        current: Vec::new(),
        contexts: HashSet::from([1, 2]),
        holds: [0; 2],
        memory: HashMap::new(),
        streams: HashMap::new(),
        events: HashMap::new(),
        pinned: HashMap::new(),
        next: 100,
        calls: HashMap::new(),
        failing: HashMap::new(),
        ended: false,
    });
}

fn call(name: &'static str, body: impl FnOnce(&mut State) -> Result<(), Code>) -> Code {
    STATE.with_borrow_mut(|state| {
        *state.calls.entry(name).or_default() += 1;
        if state.ended {
            return sys::DEINITIALIZED;
        }
        if !state.initialized {
            return sys::NOT_INITIALIZED;
        }
        if let Some(code) = state.failing.remove(name) {
            return code;
        }
        body(state).err().unwrap_or(sys::SUCCESS)
    })
}

impl State {
    fn next(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// The current context, which must be there.
    fn context(&self) -> Result<Number, Code> {
        let current = self.current.last().copied().ok_or(sys::INVALID_CONTEXT)?;
        if self.contexts.contains(&current) { Ok(current) } else { Err(sys::CONTEXT_IS_DESTROYED) }
    }

    /// The allocation that an address lies in.
    fn find(&self, address: Address) -> Option<(&usize, &Memory)> {
        let address = address as usize;
        self.memory.iter().find(|(start, memory)| (**start..**start + memory.bytes.len()).contains(&address))
    }

    /// Makes the copies of a stream, but for the last `leave`.
    fn run(&mut self, stream: usize, leave: usize) {
        let copies = &mut self.streams.get_mut(&stream).expect("a stream").1;
        let count = copies.len().saturating_sub(leave);
        for (to, from, len) in copies.drain(..count).collect::<Vec<_>>() {
            // SAFETY: a test's memory, or an allocation, as `copy` has checked; both stay for the test.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
        }
    }
}

/// Writes what the caller wants to know.
fn put<T>(place: *mut T, value: T) {
    // SAFETY: every caller passes a variable of the type that the function's signature says.
    unsafe { place.write(value) };
}

fn device_of(context: Number) -> i32 {
    i32::from(context == 2)
}

unsafe extern "C" fn device_count(count: *mut c_int) -> Code {
    call("cuDeviceGetCount", |_| {
        put(count, 2);
        Ok(())
    })
}

unsafe extern "C" fn device_pci(text: *mut c_char, len: c_int, device: c_int) -> Code {
    call("cuDeviceGetPCIBusId", |_| {
        assert!(len >= 13);
        let place = if device == 0 { c"0000:3b:00.0" } else { c"0000:af:00.0" };
        // SAFETY: room for so many bytes.
        unsafe { text.copy_from(place.as_ptr(), 13) };
        Ok(())
    })
}

unsafe extern "C" fn device_reaches(can: *mut c_int, device: c_int, _other: c_int) -> Code {
    call("cuDeviceCanAccessPeer", |_| {
        put(can, c_int::from(device == 0));
        Ok(())
    })
}

unsafe extern "C" fn primary_retain(context: *mut sys::Context, device: c_int) -> Code {
    call("cuDevicePrimaryCtxRetain", |state| {
        let number = usize::try_from(device).ok().filter(|number| *number < 2).ok_or(sys::INVALID_VALUE)?;
        state.holds[number] += 1;
        put(context, std::ptr::without_provenance_mut(number + 1));
        Ok(())
    })
}

unsafe extern "C" fn primary_release(device: c_int) -> Code {
    call("cuDevicePrimaryCtxRelease", |state| {
        let holds = &mut state.holds[device as usize];
        *holds = holds.checked_sub(1).ok_or(sys::INVALID_CONTEXT)?;
        Ok(())
    })
}

unsafe extern "C" fn context_current(context: *mut sys::Context) -> Code {
    call("cuCtxGetCurrent", |state| {
        put(context, std::ptr::without_provenance_mut(state.current.last().copied().unwrap_or(0)));
        Ok(())
    })
}

unsafe extern "C" fn context_device(device: *mut c_int) -> Code {
    call("cuCtxGetDevice", |state| {
        put(device, device_of(state.context()?));
        Ok(())
    })
}

unsafe extern "C" fn context_push(context: sys::Context) -> Code {
    call("cuCtxPushCurrent", |state| {
        if !state.contexts.contains(&context.addr()) {
            return Err(sys::CONTEXT_IS_DESTROYED);
        }
        state.current.push(context.addr());
        Ok(())
    })
}

unsafe extern "C" fn context_pop(context: *mut sys::Context) -> Code {
    call("cuCtxPopCurrent", |state| {
        let top = state.current.pop().ok_or(sys::INVALID_CONTEXT)?;
        put(context, std::ptr::without_provenance_mut(top));
        Ok(())
    })
}

unsafe extern "C" fn pointer_attribute(value: *mut c_void, which: c_int, address: Address) -> Code {
    call("cuPointerGetAttribute", |state| {
        assert_eq!(which, attribute::BUFFER_ID);
        let (_, memory) = state.find(address).ok_or(sys::INVALID_VALUE)?;
        put(value.cast(), memory.id);
        Ok(())
    })
}

unsafe extern "C" fn pointer_attributes(
    count: c_uint,
    which: *const c_int,
    values: *const *mut c_void,
    address: Address,
) -> Code {
    call("cuPointerGetAttributes", |state| {
        let found = state.find(address).map(|(_, memory)| memory);
        for index in 0..count as usize {
            // SAFETY: so many attributes.
            let which = unsafe { which.wrapping_add(index).read() };
            // SAFETY: so many variables.
            let value = unsafe { values.wrapping_add(index).read() };
            match which {
                attribute::CONTEXT => put(value.cast(), found.map_or(0, |memory| memory.context)),
                attribute::MEMORY_TYPE => put(value.cast(), found.map_or(0, |_| sys::MEMORY_DEVICE)),
                attribute::IS_MANAGED => {
                    put(value.cast(), found.map_or(0, |memory| u32::from(memory.managed)));
                }
                attribute::DEVICE_ORDINAL => put(value.cast(), found.map_or(-2, |memory| memory.device)),
                other => panic!("attribute {other}"),
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn pointer_set(_value: *const c_void, which: c_int, address: Address) -> Code {
    call("cuPointerSetAttribute", |state| {
        assert_eq!(which, attribute::SYNC_MEMOPS);
        state.find(address).map(|_| ()).ok_or(sys::INVALID_VALUE)
    })
}

unsafe extern "C" fn memory_range(base: *mut Address, len: *mut usize, address: Address) -> Code {
    call("cuMemGetAddressRange", |state| {
        state.context()?;
        let (start, memory) = state.find(address).ok_or(sys::INVALID_VALUE)?;
        put(base, *start as u64);
        put(len, memory.bytes.len());
        Ok(())
    })
}

unsafe extern "C" fn memory_allocate(address: *mut Address, len: usize) -> Code {
    call("cuMemAlloc", |state| {
        let context = state.context()?;
        put(address, allocate(state, context, device_of(context), false, len) as u64);
        Ok(())
    })
}

fn allocate(state: &mut State, context: Number, device: i32, managed: bool, len: usize) -> usize {
    let id = state.next() as u64;
    let bytes = vec![0; len];
    let start = bytes.as_ptr().addr();
    state.memory.insert(start, Memory { bytes, context, device, managed, id });
    start
}

unsafe extern "C" fn memory_free(address: Address) -> Code {
    call("cuMemFree", |state| {
        state.context()?;
        state.memory.remove(&(address as usize)).map(|_| ()).ok_or(sys::INVALID_VALUE)
    })
}

unsafe extern "C" fn host_register(start: *mut c_void, _len: usize, flags: c_uint) -> Code {
    call("cuMemHostRegister", |state| {
        assert_eq!(flags, sys::REGISTER_PORTABLE);
        let context = state.context()?;
        state.pinned.insert(start.addr(), context);
        Ok(())
    })
}

unsafe extern "C" fn host_unregister(start: *mut c_void) -> Code {
    call("cuMemHostUnregister", |state| {
        state.context()?;
        state.pinned.remove(&start.addr()).map(|_| ()).ok_or(sys::INVALID_VALUE)
    })
}

unsafe extern "C" fn copy(to: Address, from: Address, len: usize, stream: sys::Stream) -> Code {
    call("cuMemcpyAsync", |state| {
        let context = state.context()?;
        for address in [to, from] {
            let room = state.find(address).map(|(start, memory)| start + memory.bytes.len());
            assert!(room.is_none_or(|end| address as usize + len <= end), "beyond an allocation");
        }
        let stream = state.streams.get_mut(&stream.addr()).ok_or(sys::INVALID_HANDLE)?;
        assert_eq!(stream.0, context, "a stream of another context");
        stream.1.push((to, from, len));
        Ok(())
    })
}

unsafe extern "C" fn stream_create(stream: *mut sys::Stream, flags: c_uint) -> Code {
    call("cuStreamCreate", |state| {
        assert_eq!(flags, sys::STREAM_DEFAULT);
        let context = state.context()?;
        let number = state.next();
        state.streams.insert(number, (context, Vec::new()));
        put(stream, std::ptr::without_provenance_mut(number));
        Ok(())
    })
}

unsafe extern "C" fn stream_destroy(stream: sys::Stream) -> Code {
    call("cuStreamDestroy", |state| {
        state.context()?;
        state.streams.remove(&stream.addr()).map(|_| ()).ok_or(sys::INVALID_HANDLE)
    })
}

unsafe extern "C" fn stream_synchronize(stream: sys::Stream) -> Code {
    call("cuStreamSynchronize", |state| {
        state.context()?;
        state.streams.get(&stream.addr()).ok_or(sys::INVALID_HANDLE)?;
        state.run(stream.addr(), 0);
        Ok(())
    })
}

unsafe extern "C" fn event_create(event: *mut sys::Event, flags: c_uint) -> Code {
    call("cuEventCreate", |state| {
        assert_eq!(flags, sys::EVENT_DISABLE_TIMING);
        let context = state.context()?;
        let number = state.next();
        state.events.insert(number, (context, None));
        put(event, std::ptr::without_provenance_mut(number));
        Ok(())
    })
}

unsafe extern "C" fn event_destroy(event: sys::Event) -> Code {
    call("cuEventDestroy", |state| {
        state.context()?;
        state.events.remove(&event.addr()).map(|_| ()).ok_or(sys::INVALID_HANDLE)
    })
}

unsafe extern "C" fn event_record(event: sys::Event, stream: sys::Stream) -> Code {
    call("cuEventRecord", |state| {
        let of = state.streams.get(&stream.addr()).ok_or(sys::INVALID_HANDLE)?.0;
        let event = state.events.get_mut(&event.addr()).ok_or(sys::INVALID_HANDLE)?;
        assert_eq!(event.0, of, "an event of another context");
        event.1 = Some(stream.addr());
        Ok(())
    })
}

/// Each question makes the stream go on by one copy.
unsafe extern "C" fn event_query(event: sys::Event) -> Code {
    call("cuEventQuery", |state| {
        let event = state.events.get(&event.addr()).ok_or(sys::INVALID_HANDLE)?;
        let Some(stream) = event.1 else { return Ok(()) };
        let left = state.streams[&stream].1.len();
        if left == 0 {
            return Ok(());
        }
        state.run(stream, left - 1);
        Err(sys::NOT_READY)
    })
}

/// The fake driver.
pub(crate) fn driver() -> Option<&'static Driver> {
    let symbol = |name: &CStr| {
        let function: *const () = match name.to_str().expect("a name") {
            "cuDeviceGetCount" => device_count as *const (),
            "cuDeviceGetPCIBusId" => device_pci as *const (),
            "cuDeviceCanAccessPeer" => device_reaches as *const (),
            "cuDevicePrimaryCtxRetain" => primary_retain as *const (),
            "cuDevicePrimaryCtxRelease_v2" => primary_release as *const (),
            "cuCtxGetCurrent" => context_current as *const (),
            "cuCtxGetDevice" => context_device as *const (),
            "cuCtxPushCurrent_v2" => context_push as *const (),
            "cuCtxPopCurrent_v2" => context_pop as *const (),
            "cuPointerGetAttribute" => pointer_attribute as *const (),
            "cuPointerGetAttributes" => pointer_attributes as *const (),
            "cuPointerSetAttribute" => pointer_set as *const (),
            "cuMemGetAddressRange_v2" => memory_range as *const (),
            "cuMemAlloc_v2" => memory_allocate as *const (),
            "cuMemFree_v2" => memory_free as *const (),
            "cuMemHostRegister_v2" => host_register as *const (),
            "cuMemHostUnregister" => host_unregister as *const (),
            "cuMemcpyAsync" => copy as *const (),
            "cuStreamCreate" => stream_create as *const (),
            "cuStreamDestroy_v2" => stream_destroy as *const (),
            "cuStreamSynchronize" => stream_synchronize as *const (),
            "cuEventCreate" => event_create as *const (),
            "cuEventDestroy_v2" => event_destroy as *const (),
            "cuEventRecord" => event_record as *const (),
            "cuEventQuery" => event_query as *const (),
            _ => return None,
        };
        NonNull::new(function.cast_mut().cast())
    };
    static DRIVER: std::sync::OnceLock<&'static Driver> = std::sync::OnceLock::new();
    Some(DRIVER.get_or_init(|| Driver::fake(symbol)))
}

/// Allocates as the program would, in a context, or in a pool of a device for context 0.
pub(crate) fn program_allocates(context: usize, device: i32, managed: bool, len: usize) -> usize {
    STATE.with_borrow_mut(|state| allocate(state, context, device, managed, len))
}

/// Frees all that was allocated.
pub(crate) fn program_frees() {
    STATE.with_borrow_mut(|state| state.memory.clear());
}

/// What lies on a device.
pub(crate) fn bytes(address: usize, len: usize) -> Vec<u8> {
    STATE.with_borrow(|state| {
        let (start, memory) = state.find(address as u64).expect("an allocation");
        let at = address - start;
        // The allocation is written through its address.
        let start = memory.bytes.as_ptr().wrapping_add(at);
        // SAFETY: within the allocation.
        unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
    })
}

/// Has the program make a context current, or none.
pub(crate) fn program_uses(context: Option<usize>) {
    STATE.with_borrow_mut(|state| {
        state.contexts.extend(context);
        state.current = context.into_iter().collect();
    });
}

/// Has the program end a context, with all that is in it.
pub(crate) fn program_ends(context: usize) {
    STATE.with_borrow_mut(|state| {
        state.contexts.remove(&context);
        state.streams.retain(|_, (of, _)| *of != context);
        state.events.retain(|_, (of, _)| *of != context);
        state.pinned.retain(|_, of| *of != context);
    });
}

/// Whether the program has initialised the driver.
pub(crate) fn initialized(is: bool) {
    STATE.with_borrow_mut(|state| state.initialized = is);
}

/// The process ends.
pub(crate) fn end() {
    STATE.with_borrow_mut(|state| state.ended = true);
}

/// Has the next call of a function fail.
pub(crate) fn fail(name: &'static str, code: Code) {
    STATE.with_borrow_mut(|state| state.failing.insert(name, code));
}

/// How often a function was called.
pub(crate) fn calls(name: &str) -> usize {
    STATE.with_borrow(|state| state.calls.get(name).copied().unwrap_or(0))
}

/// The contexts that are current on this thread, one above the other.
pub(crate) fn current() -> Vec<usize> {
    STATE.with_borrow(|state| state.current.clone())
}

/// Ranges that are pinned.
pub(crate) fn pinned() -> usize {
    STATE.with_borrow(|state| state.pinned.len())
}

/// Streams, events, holds on primary contexts and pinned ranges that were not given back.
pub(crate) fn left() -> [usize; 4] {
    STATE.with_borrow(|state| {
        [state.streams.len(), state.events.len(), state.holds.iter().sum(), state.pinned.len()]
    })
}

/// Memory of the host's that stays.
pub(crate) fn host(bytes: &[u8]) -> usize {
    bytes.to_vec().leak().as_mut_ptr().expose_provenance()
}

/// What lies there.
pub(crate) fn host_bytes(address: usize, len: usize) -> Vec<u8> {
    // SAFETY: of `host`, which stays; a test is one thread.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }.to_vec()
}

/// A copy between memory of a test's.
pub(crate) fn transfer(to: usize, from: usize, len: usize) -> super::Transfer {
    let (to, from) = (std::ptr::with_exposed_provenance_mut(to), std::ptr::with_exposed_provenance(from));
    // SAFETY: a test copies between allocations of this driver and memory of `host`, which stay.
    unsafe { super::Transfer::new(to, from, len) }
}
