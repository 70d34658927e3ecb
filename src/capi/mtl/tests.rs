//! What needs a matcher that does what no real one does: panics, keeps what it is given, ends it at once.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::abi::{self, Envelope, Mtl, MtlComponent};
use super::component::{Component, Listed};
use super::entry::Tables;
use crate::capi::abi::{Endpoint, HAWSER_ABI, Host, Peer};
use crate::capi::code::*;
use crate::capi::handle::TRANSPORTS;
use crate::capi::host::Caller;
use crate::error::{Error, Result};
use crate::fabric::{Place, Standing, View, Work};
use crate::mtl::{self, Claim, Keep, Limits, Matcher, Outcome, Refusal, Request, Selector, Setting, Upcalls};

/// What the fake does next.
static NEXT: AtomicU32 = AtomicU32::new(KEEP);
/// It keeps what it is given.
const KEEP: u32 = 0;
/// It ends it before it returns.
const END: u32 = 1;
/// It ends it badly.
const FAIL: u32 = 2;
/// It does not take it.
const REFUSE: u32 = 3;
const PANIC_IN_OPEN: u32 = 4;
const PANIC_IN_ISEND: u32 = 5;
const PANIC_IN_PROGRESS: u32 = 6;
const PANIC_IN_DROP: u32 = 7;

fn next() -> u32 {
    NEXT.load(Ordering::Relaxed)
}

fn perhaps(place: u32) {
    assert!(next() != place, "as the test wants it");
}

struct Kept<H>(PhantomData<H>);

impl<H> Clone for Kept<H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for Kept<H> {}

impl<H: Upcalls> Work for Kept<H> {
    type Convertor = H::Conv;
    type Request = H::Req;
}

/// A matcher of one peer.
struct Fake;

const LIMITS: Limits = Limits { max_context: 9, max_tag: 99, max_source: 1 };

/// What a receive ends with.
const SEEN: mtl::Envelope = mtl::Envelope { source: 1, tag: 5, len: 3 };

impl<H: Upcalls> Matcher<H> for Fake {
    type Work = Kept<H>;

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn reaches_devices(&self) -> bool {
        false
    }

    fn add_peer(&self, _: H::Proc) -> Result<()> {
        Ok(())
    }

    fn remove_peer(&self, _: H::Proc) {}

    fn add_comm(&self, _: H::Comm) -> Result<()> {
        Ok(())
    }

    fn remove_comm(&self, _: H::Comm) {}

    fn send(&self, _: H::Comm, _: i32, _: i32, _: View<'_, H::Conv>, _: bool) -> Result<()> {
        Err(Error::MessageTooBig)
    }

    fn isend(&self, _: H::Comm, _: i32, _: i32, place: Place<Kept<H>>, _: bool) -> Result<()> {
        perhaps(PANIC_IN_ISEND);
        match next() {
            END => place.into_loan().end().sent(Outcome::Success),
            FAIL => place.into_loan().end().sent(Outcome::Failed),
            REFUSE => return Err(Error::Unreachable),
            _ => drop(place.vacate()),
        }
        Ok(())
    }

    fn irecv(&self, _: H::Comm, _: Selector, _: Selector, place: Place<Kept<H>>) -> Result<()> {
        match next() {
            END => place.into_loan().end().received(SEEN, Outcome::Truncated),
            REFUSE => return Err(Error::OutOfResource),
            _ => drop(place.vacate()),
        }
        Ok(())
    }

    fn iprobe(&self, _: H::Comm, _: Selector, _: Selector) -> Result<Option<mtl::Envelope>> {
        Ok(None)
    }

    fn improbe(&self, _: H::Comm, _: Selector, _: Selector) -> Result<Option<Claim>> {
        Ok((next() == END).then_some(Claim { message: 77, envelope: SEEN }))
    }

    fn imrecv(&self, message: u64, place: Place<Kept<H>>) -> Result<()> {
        assert_eq!(message, 77);
        drop(place.vacate());
        Ok(())
    }

    fn cancel(&self, _: &Standing<'_, Kept<H>>) {}

    fn progress(&self) -> usize {
        perhaps(PANIC_IN_PROGRESS);
        0
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        perhaps(PANIC_IN_DROP);
    }
}

struct Opener;

impl mtl::Component for Opener {
    type Config = ();

    fn counters() -> &'static [&'static mtl::Counter] {
        &[]
    }

    fn open<H: Upcalls, K: Keep<H>>(
        _: &(),
        _: &Setting<'_>,
        keep: K,
    ) -> std::result::Result<K::Kept, Refusal> {
        perhaps(PANIC_IN_OPEN);
        Ok(keep.keep(Fake, b"name".to_vec()))
    }
}

struct Transport;

impl Listed for Transport {
    const NUMBER: usize = TRANSPORTS - 2;
    const NAME: &'static CStr = c"fake";
    const COMPONENT: &'static CStr = c"mtl_fake";
    const TITLE: &'static str = "hawser_mtl fake";
    type Transport = Opener;

    fn component() -> &'static Component<Self> {
        static COMPONENT: Component<Transport> = Component::new();
        &COMPONENT
    }

    fn declare(_: &Caller) {}

    fn config(_: &Caller) -> std::result::Result<(), String> {
        Ok(())
    }
}

const TABLE: MtlComponent = Tables::<Transport>::COMPONENT;

unsafe extern "C" fn publish(_: *mut c_void, _: *const c_char, _: *const c_void, _: usize) -> i32 {
    0
}

unsafe extern "C" fn lookup(_: *mut c_void, _: *const c_char, _: u64, _: *mut c_void, _: *mut usize) -> i32 {
    HAWSER_ERR_NOT_FOUND
}

/// One test at a time has the component.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock();
    NEXT.store(KEEP, Ordering::Relaxed);
    turn
}

fn open_as(name: u64) -> (i32, Mtl) {
    let host = Host {
        size: size_of::<Host>(),
        abi: HAWSER_ABI,
        threads: 0,
        name,
        node: ptr::null(),
        context: ptr::null_mut(),
        publish: Some(publish),
        lookup: Some(lookup),
        parameter: None,
        declare: None,
        log: None,
        verbose: 0,
        reserved: 0,
    };
    // SAFETY: a whole table, whose functions need nothing.
    assert_eq!(unsafe { (TABLE.open)(&raw const host) }, 0);
    // SAFETY: takes nothing.
    assert_eq!(unsafe { (TABLE.register_parameters)() }, 0);
    let mut module = Mtl { id: 0 };
    // SAFETY: a variable for the module.
    (unsafe { (TABLE.init)(&raw mut module) }, module)
}

fn open() -> Mtl {
    let (code, module) = open_as(0);
    assert_eq!(code, HAWSER_SUCCESS);
    module
}

fn close() -> i32 {
    // SAFETY: takes nothing.
    unsafe { (TABLE.close)() }
}

fn progress() -> i32 {
    // SAFETY: takes nothing.
    unsafe { (TABLE.progress)() }
}

fn finalize(module: Mtl) -> i32 {
    // SAFETY: takes any number.
    unsafe { (TABLE.module.finalize)(module) }
}

fn endpoint(module: Mtl) -> Endpoint {
    let (peer, mut endpoint) = (Peer { name: 1 << 32, node: ptr::null() }, Endpoint { id: 0 });
    // SAFETY: one peer, and room for one endpoint.
    assert_eq!(unsafe { (TABLE.module.add_peers)(module, 1, &raw const peer, &raw mut endpoint) }, 0);
    endpoint
}

/// What callbacks have said.
#[derive(Default)]
struct Told {
    count: Cell<u32>,
    status: Cell<i32>,
    length: Cell<usize>,
}

unsafe extern "C" fn ended(
    context: *mut c_void,
    module: Mtl,
    _: abi::Request,
    status: i32,
    envelope: *const Envelope,
) {
    // SAFETY: what the test has posted this with.
    let told = unsafe { &*context.cast::<Told>() };
    told.count.set(told.count.get() + 1);
    told.status.set(status);
    // SAFETY: NULL, or an envelope for the time of the call.
    told.length.set(unsafe { envelope.as_ref() }.map_or(0, |envelope| envelope.length));
    if status == HAWSER_ERR_CLOSED {
        assert_eq!((close(), finalize(module)), (HAWSER_ERR_BUSY, HAWSER_ERR_STATE));
    }
}

const BYTES: [u8; 4] = *b"word";

fn isend(module: Mtl, told: &Told, to: Endpoint) -> (i32, abi::Request) {
    let mut request = abi::Request { id: 1 };
    let context = ptr::from_ref(told).cast_mut().cast();
    let (start, len) = (BYTES.as_ptr().cast(), BYTES.len());
    // SAFETY: constant bytes, a callback that takes this context, which outlives the module, and a variable.
    let code = unsafe {
        (TABLE.module.isend)(module, to, 1, 1, start, len, 0, Some(ended), context, &raw mut request)
    };
    (code, request)
}

fn irecv(module: Mtl, told: &Told) -> (i32, abi::Request) {
    let mut request = abi::Request { id: 1 };
    let context = ptr::from_ref(told).cast_mut().cast();
    let any = Endpoint { id: 0 };
    // SAFETY: no bytes, a callback that takes this context, which outlives the module, and a variable.
    let code = unsafe {
        (TABLE.module.irecv)(module, any, 1, -1, ptr::null_mut(), 0, Some(ended), context, &raw mut request)
    };
    (code, request)
}

fn cancel(module: Mtl, request: abi::Request) -> i32 {
    // SAFETY: takes any numbers.
    unsafe { (TABLE.module.cancel)(module, request) }
}

#[test]
fn what_never_ended_ends_with_its_module_once() {
    let _turn = alone();
    let (module, told) = (open(), Told::default());
    let to = endpoint(module);
    let (first, second) = (isend(module, &told, to), irecv(module, &told));
    assert_eq!((first.0, second.0), (HAWSER_SUCCESS, HAWSER_SUCCESS));
    assert_eq!((cancel(module, first.1), cancel(module, second.1)), (HAWSER_ERR_UNSUPPORTED, HAWSER_SUCCESS));
    assert_eq!((progress(), told.count.get(), close()), (0, 0, 0));
    assert_eq!((told.count.get(), told.status.get()), (2, HAWSER_ERR_CLOSED));
    let again = open();
    assert_ne!(again.id, module.id);
    assert_eq!((finalize(module), cancel(again, second.1)), (HAWSER_ERR_STALE, HAWSER_ERR_STALE));
    assert_eq!((isend(again, &told, to).0, close(), told.count.get()), (HAWSER_ERR_STALE, 0, 2));
}

#[test]
fn what_ends_at_once_is_told_by_the_code_or_by_progress() {
    let _turn = alone();
    let (module, told) = (open(), Told::default());
    let to = endpoint(module);
    NEXT.store(END, Ordering::Relaxed);
    assert_eq!(isend(module, &told, to), (HAWSER_DONE, abi::Request { id: 0 }));
    let (code, request) = irecv(module, &told);
    assert_eq!((code, told.count.get()), (HAWSER_SUCCESS, 0), "not before it returns");
    assert_eq!(cancel(module, request), HAWSER_ERR_STALE);
    assert_eq!((progress(), told.count.get()), (1, 1));
    assert_eq!((told.status.get(), told.length.get()), (HAWSER_ERR_TRUNCATED, 3));
    irecv(module, &told);
    NEXT.store(FAIL, Ordering::Relaxed);
    assert_eq!(isend(module, &told, to).0, HAWSER_ERR_SYSTEM);
    NEXT.store(REFUSE, Ordering::Relaxed);
    assert_eq!(
        (isend(module, &told, to).0, irecv(module, &told).0),
        (HAWSER_ERR_UNREACHABLE, HAWSER_ERR_AGAIN)
    );
    assert_eq!(
        (close(), told.count.get()),
        (0, 2),
        "the second receive at the end, and nothing of what failed"
    );
    assert_eq!(told.status.get(), HAWSER_ERR_TRUNCATED);
}

#[test]
fn a_claimed_message_is_received_once() {
    let _turn = alone();
    let (module, told) = (open(), Told::default());
    let any = Endpoint { id: 0 };
    let mut message = abi::Message { id: 0 };
    let mut envelope = Envelope { size: size_of::<Envelope>(), length: 0, source: any, rank: 0, tag: 0 };
    let mut improbe = || {
        // SAFETY: variables for both.
        unsafe { (TABLE.module.improbe)(module, any, 1, -1, &raw mut envelope, &raw mut message) }
    };
    assert_eq!(improbe(), HAWSER_ERR_NOT_FOUND);
    NEXT.store(END, Ordering::Relaxed);
    assert_eq!(improbe(), HAWSER_SUCCESS);
    assert_eq!((envelope.length, envelope.tag, envelope.rank, envelope.source), (3, 5, 1, any));
    let mut request = abi::Request { id: 0 };
    let mut imrecv = || {
        let context = ptr::from_ref(&told).cast_mut().cast();
        // SAFETY: no bytes, a callback that takes this context, which outlives the module, and a variable.
        unsafe {
            (TABLE.module.imrecv)(module, message, ptr::null_mut(), 0, Some(ended), context, &raw mut request)
        }
    };
    assert_eq!((imrecv(), imrecv()), (HAWSER_SUCCESS, HAWSER_ERR_STALE));
    assert_eq!((close(), told.count.get()), (0, 1));
}

#[test]
fn a_panic_poisons_the_module() {
    for place in [PANIC_IN_ISEND, PANIC_IN_PROGRESS] {
        let _turn = alone();
        let (module, told) = (open(), Told::default());
        let to = endpoint(module);
        irecv(module, &told);
        NEXT.store(place, Ordering::Relaxed);
        let code = if place == PANIC_IN_ISEND { isend(module, &told, to).0 } else { progress() };
        assert_eq!(code, HAWSER_ERR_INTERNAL);
        NEXT.store(KEEP, Ordering::Relaxed);
        assert_eq!((irecv(module, &told).0, progress()), (HAWSER_ERR_POISONED, HAWSER_ERR_POISONED));
        assert_eq!((finalize(module), progress(), told.count.get()), (HAWSER_SUCCESS, 0, 1));
        assert_eq!((told.status.get(), close()), (HAWSER_ERR_CLOSED, 0));
        open();
        assert_eq!((progress(), close()), (0, 0), "and again");
    }
}

#[test]
fn a_panic_while_it_opens_or_ends_leaves_it_closed() {
    let _turn = alone();
    NEXT.store(PANIC_IN_OPEN, Ordering::Relaxed);
    assert_eq!(open_as(0).0, HAWSER_ERR_INTERNAL);
    assert_eq!((progress(), close(), close()), (HAWSER_ERR_POISONED, 0, HAWSER_ERR_STATE));
    for place in [PANIC_IN_PROGRESS, PANIC_IN_DROP] {
        NEXT.store(KEEP, Ordering::Relaxed);
        let (module, told) = (open(), Told::default());
        irecv(module, &told);
        NEXT.store(place, Ordering::Relaxed);
        assert_eq!((close(), finalize(module), told.count.get()), (HAWSER_ERR_INTERNAL, HAWSER_ERR_STALE, 1));
    }
    NEXT.store(KEEP, Ordering::Relaxed);
    open();
    assert_eq!(close(), 0);
}

#[test]
fn a_rank_that_messages_cannot_say_is_refused() {
    let _turn = alone();
    for rank in [2_u64, 1 << 31] {
        assert_eq!(open_as(rank << 32).0, HAWSER_ERR_NOT_AVAILABLE);
        assert_eq!(close(), 0);
    }
    let module = open();
    let (peer, mut endpoint) = (Peer { name: 2 << 32, node: ptr::null() }, Endpoint { id: 7 });
    // SAFETY: one peer, and room for one endpoint.
    let code = unsafe { (TABLE.module.add_peers)(module, 1, &raw const peer, &raw mut endpoint) };
    assert_eq!((code, endpoint.id, close()), (HAWSER_ERR_ARGUMENT, 7, 0));
}
