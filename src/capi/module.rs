//! A module with its things, and what its transport tells the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::{
    Btl, Completed, Endpoint, HAWSER_CAN_DEVICES, HAWSER_CAN_GET, HAWSER_CAN_PUT, HAWSER_CAN_SEND,
    HAWSER_LOG_INFO, Lost, Received,
};
use super::code::{
    HAWSER_ERR_ARGUMENT, HAWSER_ERR_BUSY, HAWSER_ERR_CLOSED, HAWSER_ERR_NOT_FOUND, HAWSER_ERR_STALE,
    HAWSER_ERR_STATE, HAWSER_ERR_TIMEOUT, HAWSER_SUCCESS, Outcome,
};
use super::component::Listed;
use super::fragment::{Completion, Fragments, LONGEST};
use super::guard::Poison;
use super::handle::{FIRST, KINDS, Key, Kind, Place, Table};
use super::host::{Caller, Context, View};
use super::memory::{Opened, Operations};
use super::peers::Peers;
use super::slot::Generations;
use crate::btl::{Cookie, EndpointId, Host, Lent, Limits, Upcalls};
use crate::error::{Result, room};
use crate::link::Clock;
use crate::sync::EngineCell;

/// A tag that no message of a program's has, with any transport: it stands for none.
const NO_TAG: u8 = 0xFF;

/// Passes that a module which ends makes at most to hear how its last operations have ended.
const LAST: usize = 1000;

/// Who wants messages with a tag.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    callback: Received,
    context: Context,
}

/// Who wants to hear of lost peers.
#[derive(Clone, Copy)]
struct Mourner {
    callback: Lost,
    context: Context,
}

const NOBODY: Context = Context(std::ptr::null_mut());

/// A module.
pub(super) struct Module<T> {
    pub(super) core: T,
    pub(super) place: Place,
    handle: Btl,
    caller: Arc<Caller>,
    is_poisoned: AtomicBool,
    /// Bytes of the longest fragment.
    pub(super) longest: usize,
    receivers: EngineCell<Receivers>,
    mourner: EngineCell<Mourner>,
    pub(super) peers: EngineCell<Peers>,
    pub(super) fragments: EngineCell<Fragments>,
    pub(super) operations: EngineCell<Operations>,
    pub(super) memories: EngineCell<Table<Opened>>,
}

/// Whether a tag is a program's to use.
#[inline]
pub(super) fn check_tag<T: Listed>(tag: u8) -> Outcome<()> {
    if tag == NO_TAG || T::OWN_TAG == Some(tag) || OWN_TAGS.contains(&tag) {
        return Err(HAWSER_ERR_ARGUMENT);
    }
    Ok(())
}

/// The tags that any transport has of its own: none is a program's, whichever it uses.
const OWN_TAGS: [u8; 1] = [0x22];

/// Who wants messages, by their tags.
pub(super) type Receivers = Box<[Receiver; 256]>;

impl<T: Listed> Module<T> {
    /// Nobody wants any.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn receivers() -> Result<Receivers> {
        room::array(Receiver { callback: None, context: NOBODY })
    }

    pub(super) fn new(
        core: T,
        place: Place,
        (generation, generations): (u32, &Generations),
        caller: Arc<Caller>,
        receivers: Receivers,
    ) -> Self {
        let limits = core.limits();
        let of = |kind: Kind| generations[kind as usize];
        Self {
            place,
            handle: Btl { id: place.handle(Kind::Module, Key { generation, index: 0 }) },
            caller,
            is_poisoned: AtomicBool::new(false),
            longest: limits.max_send.max(limits.eager).min(LONGEST),
            receivers: EngineCell::new(receivers),
            mourner: EngineCell::new(Mourner { callback: None, context: NOBODY }),
            peers: EngineCell::new(Peers::new(place, of(Kind::Endpoint))),
            fragments: EngineCell::new(Fragments::new(place, of(Kind::Fragment))),
            operations: EngineCell::new(Table::new(of(Kind::Operation))),
            memories: EngineCell::new(Table::new(of(Kind::Memory))),
            core,
        }
    }

    pub(super) fn handle(&self) -> Btl {
        self.handle
    }

    /// Whether a panic has happened in it.
    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }

    pub(super) fn view(&self) -> View<'_> {
        View { caller: &self.caller, component: T::COMPONENT, defaults: T::parameters() }
    }

    /// What it is good for now, and of what names.
    pub(super) fn limits(&self) -> (Limits, u32) {
        let limits = self.core.limits();
        let what = HAWSER_CAN_SEND | HAWSER_CAN_PUT | HAWSER_CAN_GET;
        let flags = limits.flags & what | if T::HAS_DEVICES { HAWSER_CAN_DEVICES } else { 0 };
        (Limits { max_send: self.longest, ..limits }, flags)
    }

    /// Sets who wants messages with a tag.
    pub(super) fn receive(&self, tag: u8, callback: Received, context: Context) -> Outcome {
        check_tag::<T>(tag)?;
        self.receivers.with(|receivers| receivers[usize::from(tag)] = Receiver { callback, context });
        Ok(HAWSER_SUCCESS)
    }

    /// Sets who wants to hear of lost peers.
    pub(super) fn mourn(&self, callback: Lost, context: Context) -> Outcome {
        self.mourner.with(|mourner| *mourner = Mourner { callback, context });
        Ok(HAWSER_SUCCESS)
    }

    /// The name of a peer.
    pub(super) fn name(&self, endpoint: Endpoint) -> Outcome<u64> {
        let id = self.peers.with(|peers| peers.find_from(endpoint))?;
        self.core.peer(id).ok_or(HAWSER_ERR_NOT_FOUND)
    }

    /// Ends connections; none if one of the handles is stale.
    pub(super) fn delete(&self, endpoints: &[Endpoint]) -> Outcome {
        let given = endpoints.iter().filter(|endpoint| endpoint.id != 0);
        let ids: Vec<EndpointId> = self.peers.with(|peers| {
            let ids: Outcome<Vec<_>> = given.map(|endpoint| peers.find(*endpoint)).collect();
            ids.inspect(|ids| peers.close(ids, |id| self.core.peer(id)))
        })?;
        self.core.close(&ids, self);
        if !self.caller.is_here() {
            return Err(HAWSER_ERR_STATE);
        }
        self.peers.with(|peers| peers.end(&ids));
        Ok(HAWSER_SUCCESS)
    }

    /// An endpoint that may be none.
    fn perhaps(&self, endpoint: Endpoint) -> Outcome<Option<EndpointId>> {
        if endpoint.id == 0 { Ok(None) } else { self.peers.with(|peers| peers.find(endpoint)).map(Some) }
    }

    /// Makes progress, in all modules, until nothing is under way with an endpoint, or with anybody.
    pub(super) fn flush(&self, endpoint: Endpoint, milliseconds: u32) -> Outcome {
        let with = self.perhaps(endpoint)?.map(|_| endpoint);
        let clock = Clock::new();
        let limit = u64::from(milliseconds) * 1_000_000;
        while self.is_busy(with) {
            // The peer may wait likewise for what it sends to another module of this process.
            match T::component().progress() {
                Ok(0) => std::thread::yield_now(),
                Err(code @ (HAWSER_ERR_BUSY | HAWSER_ERR_STATE)) => return Err(code),
                _ => {}
            }
            if clock.nanos() > limit && self.is_busy(with) {
                return Err(HAWSER_ERR_TIMEOUT);
            }
        }
        Ok(HAWSER_SUCCESS)
    }

    /// Says what there is to say.
    pub(super) fn dump(&self, endpoint: Endpoint) -> Outcome {
        let id = self.perhaps(endpoint)?;
        let say = |line: &str| self.caller.log(HAWSER_LOG_INFO, &format!("{}: {line}", T::COMPONENT));
        match id {
            Some(id) => {
                let name = self.core.peer(id).ok_or(HAWSER_ERR_STALE)?;
                say(&format!("a peer of the name {name:#x}"));
            }
            None => {
                say(&format!("{}: {:?}", self.core.device(), self.core.limits()));
                for (index, (name, _)) in T::COUNTERS.iter().enumerate() {
                    say(&format!("{name}: {}", self.core.counter(index)));
                }
            }
        }
        self.core.describe(id).iter().for_each(|line| say(line));
        Ok(HAWSER_SUCCESS)
    }

    /// The value of a counter.
    pub(super) fn counter(&self, name: &str) -> Outcome<u64> {
        let index = T::COUNTERS.iter().position(|(known, _)| *known == name);
        index.map(|index| self.core.counter(index)).ok_or(HAWSER_ERR_NOT_FOUND)
    }

    /// Calls a callback of the caller's.
    #[inline]
    pub(super) fn complete(&self, completion: Completion, status: i32) {
        call(self.handle, completion, status);
    }

    /// Ends all connections, and hears of what has ended with them. In a child that a callback makes, nothing more is done.
    pub(super) fn wind_up(&self) {
        let live = self.peers.with(|peers| peers.live());
        self.core.close(&live, self);
        for _ in 0..LAST {
            if !self.caller.is_here() || self.core.progress(self) == 0 {
                break;
            }
        }
        if !self.caller.is_here() {
            return;
        }
        self.core.end_module(&self.view());
    }

    /// Ends it. What is still owed to the caller is told when nothing of the transport's is left. Returns where the
    /// handles of the next one go on.
    pub(super) fn end(self) -> Generations {
        let Self { core, handle, caller, peers, fragments, operations, memories, .. } = self;
        drop(core);
        let mut generations = [FIRST; KINDS];
        let mut keep = |kind: Kind, generation| generations[kind as usize] = generation;
        keep(Kind::Endpoint, peers.with(|peers| peers.generation()));
        keep(Kind::Memory, memories.with(|memories| memories.generation()));
        let (fragments, operations) = (fragments.into_inner(), operations.into_inner());
        keep(Kind::Fragment, fragments.generation());
        keep(Kind::Operation, operations.generation());
        for completion in fragments.into_completions().chain(operations.into_values()) {
            call(handle, completion, HAWSER_ERR_CLOSED);
            if !caller.is_here() {
                break;
            }
        }
        generations
    }
}

fn call(module: Btl, Completion { endpoint, callback, context }: Completion, status: i32) {
    if let Some(callback) = callback as Completed {
        // SAFETY: the caller's function, with what it gave for it; called once.
        unsafe { callback(context.0, module, endpoint, status) };
    }
}

impl<T> Poison for Module<T> {
    fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Relaxed);
    }
}

impl<T: Listed> Upcalls for Module<T> {
    fn host(&self) -> impl Host {
        self.view()
    }

    #[inline]
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        // SAFETY: borrowed for the time of the call, and nobody writes there: the caller only reads.
        self.deliver_shared(endpoint, tag, unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) });
    }

    #[inline]
    fn deliver_shared(&self, endpoint: EndpointId, tag: u8, bytes: Lent) {
        let Receiver { callback, context } = self.receivers.with(|receivers| receivers[usize::from(tag)]);
        let Some(callback) = callback else { return self.core.unheard() };
        let Some(from) = self.peers.with(|peers| peers.heard(endpoint)) else { return };
        // SAFETY: the caller's function, with its context, and bytes that are lent for the time of the call.
        unsafe { callback(context.0, self.handle, from, tag, bytes.as_ptr().cast(), bytes.len()) };
    }

    #[inline]
    fn done(&self, cookie: Cookie, outcome: Result<()>) {
        if self.place.key(Kind::Fragment, cookie).is_some() {
            self.sent(cookie, outcome);
        } else {
            self.transferred(cookie, outcome);
        }
    }

    fn doomed(&self, endpoint: EndpointId, _name: u64, tell: impl FnOnce()) {
        if self.peers.with(|peers| peers.is_news(endpoint)) {
            tell();
        }
    }

    fn lost(&self, endpoint: EndpointId, name: u64) {
        self.doomed(endpoint, name, || self.core.tell_loss(name, &self.view()));
        let Some(known) = self.peers.with(|peers| peers.known(endpoint)) else { return };
        let Mourner { callback, context } = self.mourner.with(|mourner| *mourner);
        if let Some(callback) = callback {
            // SAFETY: the caller's function, with its context.
            unsafe { callback(context.0, self.handle, known, name) };
        }
    }
}
