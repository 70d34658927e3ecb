//! What needs a transport that does what no real one does: panics, keeps what it is given, calls in between.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::abi::{self, Btl, BtlComponent, Endpoint, HAWSER_ABI, HAWSER_AWAITED};
use super::code::*;
use super::component::{Component, Listed};
use super::entry::Tables;
use super::handle::TRANSPORTS;
use crate::btl::{
    Atomics, Declined, EndpointId, Fragment, Host, Kind, Lent, Limits, Number, Parameters, Peer, Pipeline,
    Seat, Sending, Transport, Upcalls,
};
use crate::error::{Error, Result};

/// Where the fake panics next.
static PANICS: AtomicU32 = AtomicU32::new(NOWHERE);
const NOWHERE: u32 = 0;
const IN_OPEN: u32 = 1;
const IN_SEND: u32 = 2;
const IN_PROGRESS: u32 = 3;
const IN_CLOSE: u32 = 4;
const IN_DROP: u32 = 5;

fn perhaps(place: u32) {
    assert!(PANICS.load(Ordering::Relaxed) != place, "as the test wants it");
}

static NUMBERS: [Number; 1] = [Number::new(Kind::Unsigned, c"limit", 100, 1, c"Longest message")];
static PARAMETERS: Parameters = Parameters { numbers: &NUMBERS, texts: &[] };

/// A transport that takes everything, and finishes nothing.
struct Fake {
    name: u64,
}

const PEER: u64 = 7;

/// The tag of what a peer says when it is deleted.
const LAST: u8 = 4;

impl Transport for Fake {
    const COMPONENT: &'static str = "btl_fake";
    const COUNTERS: &'static [(&'static str, &'static str)] = &[("nothing", "Nothing")];
    const HAS_TRANSFERS: bool = false;

    fn parameters() -> &'static Parameters {
        &PARAMETERS
    }

    fn seat() -> &'static Seat {
        static SEAT: Seat = Seat::new();
        &SEAT
    }

    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        perhaps(IN_OPEN);
        Ok(vec![Self { name: host.name() }, Self { name: host.name() }])
    }

    fn device(&self) -> &str {
        "fake"
    }

    fn limits(&self) -> Limits {
        let most = Self::parameters().number(c"limit") as usize;
        let (latency, bandwidth, exclusivity, flags) = (1, 1, 1, 1);
        let (eager, rndv_eager, max_send, max_send_device, copy) = (most, most, most, 0, 0);
        let atomics = Atomics::None;
        Limits {
            eager,
            rndv_eager,
            max_send,
            max_send_device,
            pipeline: Pipeline::WHOLE,
            copy,
            exclusivity,
            latency,
            bandwidth,
            flags,
            atomics,
        }
    }

    fn reach(all: &[&Self], own: usize, peer: &impl Peer, _: &impl Host) -> Option<EndpointId> {
        (all[own].name != peer.name()).then(|| EndpointId::from_raw(1 << 32))
    }

    fn peer(&self, _: EndpointId) -> Option<u64> {
        Some(PEER)
    }

    fn unheard(&self) {}

    fn tell_loss(&self, _: u64, _: &impl Host) {}

    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        perhaps(IN_CLOSE);
        endpoints.iter().for_each(|endpoint| up.deliver(*endpoint, LAST, b"last"));
    }

    fn send(&self, _: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        perhaps(IN_SEND);
        if fragment.tag == 9 {
            return Err(Error::OutOfResource);
        }
        Ok(if fragment.awaited { Sending::UnderWay } else { Sending::Over })
    }

    fn progress(&self, up: &impl Upcalls) -> usize {
        perhaps(IN_PROGRESS);
        up.deliver(EndpointId::from_raw(1 << 32), 1, b"word");
        0
    }

    fn counter(&self, _: usize) -> u64 {
        5
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        perhaps(IN_DROP);
    }
}

impl Listed for Fake {
    const NUMBER: usize = TRANSPORTS - 1;
    const NAME: &'static std::ffi::CStr = c"fake";
    const TITLE: &'static str = "hawser_btl fake";

    fn component() -> &'static Component<Self> {
        static COMPONENT: Component<Fake> = Component::new();
        &COMPONENT
    }
}

const TABLE: BtlComponent = Tables::<Fake>::COMPONENT;

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
    PANICS.store(NOWHERE, Ordering::Relaxed);
    turn
}

fn host() -> abi::Host {
    abi::Host {
        size: size_of::<abi::Host>(),
        abi: HAWSER_ABI,
        threads: 0,
        name: 1,
        node: ptr::null(),
        context: ptr::null_mut(),
        publish: Some(publish),
        lookup: Some(lookup),
        parameter: None,
        declare: None,
        log: None,
        verbose: 0,
        reserved: 0,
    }
}

fn open() -> i32 {
    let host = host();
    // SAFETY: a whole table, whose functions need nothing.
    assert_eq!(unsafe { (TABLE.open)(&raw const host) }, 0);
    // SAFETY: takes nothing.
    assert_eq!(unsafe { (TABLE.register_parameters)() }, 0);
    let mut count = 0;
    // SAFETY: a variable for the number.
    unsafe { (TABLE.init)(&raw mut count) }
}

fn module(index: usize) -> Btl {
    let mut module = Btl { id: 0 };
    // SAFETY: a variable for the module.
    assert_eq!(unsafe { (TABLE.module_at)(index, &raw mut module) }, 0);
    module
}

fn endpoint(of: Btl) -> Endpoint {
    let (peer, mut endpoint) = (abi::Peer { name: PEER, node: ptr::null() }, Endpoint { id: 0 });
    // SAFETY: one peer, and room for one endpoint.
    assert_eq!(unsafe { (TABLE.module.add_peers)(of, 1, &raw const peer, &raw mut endpoint) }, 0);
    endpoint
}

fn fragment(of: Btl) -> abi::Fragment {
    let (mut fragment, mut memory) = (abi::Fragment { id: 0 }, ptr::null_mut());
    // SAFETY: variables for both.
    assert_eq!(unsafe { (TABLE.module.alloc)(of, 8, &raw mut fragment, &raw mut memory) }, 0);
    fragment
}

fn send(of: Btl, what: abi::Fragment, tag: u8, flags: u32, to: Endpoint, count: Option<&Cell<i32>>) -> i32 {
    let callback = count.map(|_| ended as unsafe extern "C" fn(_, _, _, _));
    let context = count.map_or(ptr::null_mut(), |count| ptr::from_ref(count).cast_mut().cast());
    // SAFETY: a callback that takes this context, which outlives the module.
    unsafe { (TABLE.module.send)(of, to, what, tag, flags, callback, context) }
}

unsafe extern "C" fn ended(context: *mut c_void, module: Btl, _: Endpoint, status: i32) {
    // SAFETY: the cell of the test that has sent this.
    let count = unsafe { &*context.cast::<Cell<i32>>() };
    assert_eq!((status, close(), finalize(module)), (HAWSER_ERR_CLOSED, HAWSER_ERR_BUSY, HAWSER_ERR_STATE));
    count.set(count.get() + 1);
}

fn close() -> i32 {
    // SAFETY: takes nothing.
    unsafe { (TABLE.close)() }
}

fn progress() -> i32 {
    // SAFETY: takes nothing.
    unsafe { (TABLE.progress)() }
}

fn finalize(module: Btl) -> i32 {
    // SAFETY: takes any number.
    unsafe { (TABLE.module.finalize)(module) }
}

#[test]
fn what_never_ended_ends_with_its_module_once() {
    let _turn = alone();
    assert_eq!(open(), 0);
    let (first, count) = (module(0), Cell::new(0));
    let to = endpoint(first);
    for _ in 0..3 {
        assert_eq!(send(first, fragment(first), 1, HAWSER_AWAITED, to, Some(&count)), HAWSER_SUCCESS);
    }
    assert_eq!(send(first, fragment(first), 1, 0, to, Some(&count)), HAWSER_DONE, "nobody is told of this");
    let kept = fragment(first);
    assert_eq!(send(first, kept, 9, HAWSER_AWAITED, to, Some(&count)), HAWSER_ERR_AGAIN);
    // SAFETY: takes any number.
    assert_eq!(unsafe { (TABLE.module.free)(first, kept) }, HAWSER_SUCCESS, "it was the caller's again");
    // SAFETY: takes any number.
    assert_eq!(unsafe { (TABLE.module.flush)(first, to, 1) }, HAWSER_ERR_TIMEOUT);
    assert_eq!(close(), 0);
    assert_eq!((count.get(), finalize(first)), (3, HAWSER_ERR_STALE));
}

#[test]
fn a_panic_poisons_its_module_and_no_other() {
    for place in [IN_SEND, IN_PROGRESS] {
        let _turn = alone();
        assert_eq!(open(), 0);
        let ([first, second], count) = ([module(0), module(1)], Cell::new(0));
        let (to, lost) = (endpoint(first), fragment(first));
        PANICS.store(place, Ordering::Relaxed);
        let code = match place {
            IN_SEND => send(first, lost, 1, HAWSER_AWAITED, to, Some(&count)),
            _ => progress(),
        };
        assert_eq!(code, HAWSER_ERR_INTERNAL);
        PANICS.store(NOWHERE, Ordering::Relaxed);
        assert_eq!(send(first, fragment(second), 1, 0, to, None), HAWSER_ERR_POISONED);
        assert_eq!(progress(), HAWSER_ERR_POISONED);
        let mut value = 0;
        // SAFETY: a text, and a variable for the value.
        let counter = unsafe { (TABLE.module.counter)(second, c"nothing".as_ptr(), &raw mut value) };
        assert_eq!((counter, value), (HAWSER_SUCCESS, 5), "the other module works");
        assert_eq!((finalize(first), progress()), (HAWSER_SUCCESS, 0), "without it, all is well");
        assert_eq!((close(), count.get()), (0, i32::from(place == IN_SEND)));
        assert_eq!(open(), 0, "and again");
        assert_eq!(close(), 0);
    }
}

#[test]
fn a_panic_while_it_opens_or_ends_leaves_it_closed() {
    let _turn = alone();
    PANICS.store(IN_OPEN, Ordering::Relaxed);
    assert_eq!(open(), HAWSER_ERR_INTERNAL);
    assert_eq!((progress(), close(), close()), (HAWSER_ERR_POISONED, 0, HAWSER_ERR_STATE));
    for place in [IN_CLOSE, IN_DROP] {
        PANICS.store(NOWHERE, Ordering::Relaxed);
        assert_eq!(open(), 0);
        let first = module(0);
        PANICS.store(place, Ordering::Relaxed);
        assert_eq!((close(), finalize(first)), (HAWSER_ERR_INTERNAL, HAWSER_ERR_STALE));
    }
    PANICS.store(NOWHERE, Ordering::Relaxed);
    assert_eq!((open(), close()), (0, 0));
}

#[test]
fn a_component_of_open_mpis_is_busy() {
    use crate::btl::user::User;
    let _turn = alone();
    assert!(Fake::seat().take(User::Host));
    let host = host();
    // SAFETY: a whole table, whose functions need nothing.
    assert_eq!(unsafe { (TABLE.open)(&raw const host) }, HAWSER_ERR_BUSY);
    Fake::seat().give(User::Host);
    assert_eq!((open(), Fake::seat().take(User::Host), close()), (0, false, 0));
    assert!(Fake::seat().take(User::Host));
    Fake::seat().give(User::Host);
}

unsafe extern "C" fn adds_again(
    context: *mut c_void,
    module: Btl,
    _: Endpoint,
    _: u8,
    _: *const c_void,
    _: usize,
) {
    let (peer, mut endpoint) = (abi::Peer { name: PEER, node: ptr::null() }, Endpoint { id: 5 });
    // SAFETY: one peer, and room for one endpoint.
    let code = unsafe { (TABLE.module.add_peers)(module, 1, &raw const peer, &raw mut endpoint) };
    assert_eq!((code, endpoint.id), (HAWSER_ERR_BUSY, 5));
    // SAFETY: the cell of the test that has registered this.
    let count = unsafe { &*context.cast::<Cell<i32>>() };
    count.set(count.get() + 1);
}

#[test]
fn a_peer_is_not_added_while_it_is_deleted() {
    let _turn = alone();
    assert_eq!(open(), 0);
    let (of, heard) = (module(0), Cell::new(0));
    let first = endpoint(of);
    let context = ptr::from_ref(&heard).cast_mut().cast();
    // SAFETY: a callback that takes this context, which outlives the module.
    assert_eq!(unsafe { (TABLE.module.register_receive)(of, LAST, Some(adds_again), context) }, 0);
    // SAFETY: an array of one.
    assert_eq!(unsafe { (TABLE.module.del_peers)(of, 1, &raw const first) }, 0);
    // SAFETY: takes the callback away.
    assert_eq!(unsafe { (TABLE.module.register_receive)(of, LAST, None, ptr::null_mut()) }, 0);
    let second = endpoint(of);
    assert_eq!(heard.get(), 1);
    assert_ne!(first, second);
    let mut name = 0;
    // SAFETY: a variable for the name.
    let found = unsafe { (TABLE.module.peer_name)(of, second, &raw mut name) };
    assert_eq!((found, name, close()), (0, PEER, 0));
}
