//! The OFI MTL: MPI matching on libfabric's tagged messages.
//!
//! Everything is matched by the provider; this module turns MPI's (communicator, source, tag) into
//! tag bits, buffers into one piece of memory, and completions into the host's requests. Answers to
//! Open MPI's `ompi/mca/mtl/ofi` and interoperates with it in the same job.
//!
//! An operation is in one place: in the hands of the provider, in a queue here, or with whoever just
//! got it back. It holds the loan of the host's request, and ends before that is completed, once.
//! Nothing is borrowed while the host runs.
//!
//! Seams: `parameters` what users set; `body` the state of an operation; `select` which provider; `matcher` what the host sees; `send`,
//! `receive`, `probe` the three verbs; `answer` what synchronous sends wait for; `device` messages in device
//! memory; `owed` what goes out later, `doubt` peers that cannot be reached; `unexpected` messages that the
//! provider cannot keep, `claimed` those that only one operation can receive, `waiting` receives that it has no
//! room for, `line` those of answers among them; `exchange` communicators without a common short id.

mod answer;
mod body;
mod claimed;
mod counters;
mod device;
mod doubt;
mod exchange;
#[cfg(test)]
mod fake;
mod line;
mod matcher;
mod owed;
pub mod parameters;
mod probe;
mod receive;
mod select;
mod send;
#[cfg(test)]
mod tests;
mod unexpected;
mod waiting;

pub use answer::AnswerKey;
pub use body::{Body, Seen};
pub use exchange::CommKey;
pub use matcher::Component;
pub use select::{Needs, Offer, allowed, candidates, reaching_devices, select};
pub use unexpected::MessageKey;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::config;
use crate::error::{Error, Result};
use crate::fabric::{
    Address, AddressVector, Alone, Bar, Completion, Context, Domain, Endpoint, Fabric, Failure, Id, InfoList,
    Pause, Pool, PostError, Ready, Trouble, Unposted, sys,
};
use crate::link::Clock;
use crate::mtl::{Communicator, Outcome, Peer, Progress, Request, Upcalls};
use crate::sync::{Bars, EngineCell};
use crate::wire::tag::Layout;
use answer::Answers;
use body::{Failed, Op};
use device::Reach;
use doubt::Doubts;
use exchange::Exchange;
use owed::{Outgoing, Paces};
use unexpected::Unexpected;

/// An open endpoint and all that hangs on it.
pub struct Ofi<H: Upcalls> {
    addresses: Arc<AddressVector>,
    /// What we owe to peers and the provider could not take at once.
    outbox: EngineCell<Vec<Outgoing>>,
    /// Whether there is any, or receives wait for room.
    deferred: Bar,
    /// Probes, to be counted off.
    probes: AtomicU32,
    exchange: Exchange<H>,
    unexpected: Unexpected<H>,
    answers: Answers<H>,
    /// Ended, and somebody waits for it.
    ready: body::Ready<H>,
    /// Serialises the making of peers.
    peers: EngineCell<()>,
    inject_size: usize,
    /// Messages below this size may take the short path: none with a scalable endpoint.
    short: usize,
    max_message: usize,
    context_bits: u32,
    /// Peers are reached by TCP connections that the provider makes.
    is_tcp: bool,
    /// How many short messages may go before one whose end is told of.
    silent: AtomicU32,
    /// Peers that have ended, as sends to them have found.
    gone: EngineCell<Vec<Address>>,
    /// Peers that what is owed to them, or was given back to the host, cannot reach.
    doubts: EngineCell<Doubts>,
    /// When what is owed is tried again.
    paces: EngineCell<Paces>,
    clock: Clock,
    scalable: bool,
    grouping: bool,
    can_probe: bool,
    /// How the provider reaches device memory, if it does.
    reach: Option<Reach>,
    /// After all that holds operations of its pool which are not posted.
    endpoint: Endpoint<Body<H>>,
    _info: InfoList,
}

/// What keeps receives off the short path ([`Unexpected::long_way`]).
const LONG_WAY: Bars = Bars::number(0);
/// What keeps progress off it: what is owed, and that there are several contexts.
const DEFERRED: Bars = Bars::number(1);
const SEVERAL: Bars = Bars::number(2);

/// The most that the host's users may ask to be read at once.
const MOST_EVENTS: usize = 100;

impl<H: Upcalls> Ofi<H> {
    /// Opens the endpoint of an offer for a job of about `universe` processes.
    pub fn open(offer: &Offer<'_>, config: &config::Ofi, universe: usize) -> Result<Self> {
        let most = offer.info.max_contexts().max(1);
        let contexts = config.scalable.then(|| config.contexts.clamp(1, most));
        let context_bits = contexts.map_or(0, |n| usize::BITS - (n - 1).leading_zeros());
        let info = offer.info.detach(contexts)?;
        let fabric = Fabric::open(&offer.info)?;
        let domain = Domain::open(&fabric, &offer.info)?;
        let addresses = AddressVector::open(&domain, config.av_table, universe, context_bits)?;
        let batch = config.progress_event_count.clamp(1, MOST_EVENTS);
        let ready = Ready { contexts, queue_size: offer.info.queue_depth().clamp(batch, 65_536), batch };
        let endpoint = Endpoint::open(&domain, &info, &addresses, &ready)?;
        let overlap = !endpoint.first().takes_turns();
        let bar = |bars| endpoint.first().bar(bars);
        let (deferred, long_way) = (bar(DEFERRED), bar(LONG_WAY));
        bar(SEVERAL).set(config.scalable, Ordering::Relaxed);
        let is_tcp = offer.info.provider().split(';').any(|layer| matches!(layer, "tcp" | "net"));
        let ofi = Self {
            inject_size: offer.info.inject_size(),
            short: if config.scalable { 0 } else { offer.info.inject_size() + 1 },
            max_message: offer.info.max_message(),
            can_probe: endpoint.first().can_probe(),
            reach: Reach::of(offer, &domain, endpoint.first().is_cushioned()),
            is_tcp,
            silent: AtomicU32::new(send::silence(is_tcp)),
            gone: EngineCell::new(Vec::new()),
            doubts: EngineCell::new(Doubts::default()),
            paces: EngineCell::new(Paces::default()),
            clock: Clock::new(),
            scalable: config.scalable,
            endpoint,
            addresses,
            outbox: EngineCell::new(Vec::new()),
            deferred,
            probes: AtomicU32::new(0),
            exchange: Exchange::new(),
            unexpected: Unexpected::new(&offer.info, overlap, config.scalable, long_way),
            answers: Answers::new(),
            ready: body::Ready::new(),
            peers: EngineCell::new(()),
            context_bits,
            grouping: config.grouping,
            _info: info,
        };
        ofi.post_waiting();
        Ok(ofi)
    }

    /// The name that peers need.
    pub fn name(&self) -> Result<Vec<u8>> {
        self.endpoint.name()
    }

    /// Makes a peer known, once, however often it is asked for and by however many threads.
    pub fn add_peer(&self, peer: H::Proc) -> Result<Address> {
        if let Some(address) = noted(peer.note()) {
            return Ok(address);
        }
        let name = peer.published()?;
        self.peers.with(|()| {
            if let Some(address) = noted(peer.note()) {
                return Ok(address);
            }
            let address = self.addresses.insert(&name)?;
            peer.set_note(address.0.wrapping_add(1));
            Ok(address)
        })
    }

    /// Forgets a peer.
    pub fn remove_peer(&self, peer: H::Proc) -> Result<()> {
        self.peers.with(|()| match noted(peer.note()) {
            Some(address) => {
                peer.set_note(0);
                // The address may become another's.
                self.gone.with(|gone| gone.retain(|gone| *gone != address));
                self.doubts.with(|doubts| doubts.forget(address));
                self.owe_nothing(address);
                self.addresses.remove(address)
            }
            None => Ok(()),
        })
    }

    /// The peer's address, made known now if it is not yet.
    #[inline]
    fn address(&self, comm: H::Comm, rank: i32, context: usize) -> Result<Address> {
        let peer = comm.peer(rank)?;
        let address = match noted(peer.note()) {
            Some(address) => address,
            None => self.add_peer(peer)?,
        };
        Ok(address.receive_context(context, self.context_bits))
    }

    /// The peer's address, if it is known already.
    #[inline(always)]
    fn known(&self, comm: H::Comm, rank: i32) -> Option<Address> {
        noted(comm.peer_at_hand(rank)?.note())
    }

    /// The context that serves a communicator, the same at every member.
    fn context_of(&self, comm: H::Comm) -> usize {
        if self.grouping { comm.context_id() as usize % (self.endpoint.others().len() + 1) } else { 0 }
    }

    #[inline]
    fn context(&self, index: usize) -> &Context<Body<H>> {
        if index == 0 { self.endpoint.first() } else { &self.endpoint.others()[index - 1] }
    }

    /// Progress from within, on the short path where that will do.
    #[inline(never)]
    fn progress<L: Layout>(&self) -> usize {
        match self.advance_at_once::<L>() {
            Progress::One => 1,
            Progress::Idle => self.idle::<L>(),
            Progress::Unknown => self.advance::<L>(),
        }
    }

    /// The short path: one receive has ended well, where the user wants it, and nothing else is to be done.
    #[inline(always)]
    pub fn advance_at_once<L: Layout>(&self) -> Progress {
        let is_plain = |body: &Body<H>, bits| matches!(body, Body::Receive { .. }) && bits & L::SYNC == 0;
        match self.endpoint.first().poll_at_once(DEFERRED.and(SEVERAL), is_plain) {
            Alone::One { loan, len, data, tag } => {
                loan.end().received(envelope::<L>(tag, data, len), Outcome::Success);
                Progress::One
            }
            Alone::Nothing => Progress::Idle,
            Alone::More => Progress::Unknown,
        }
    }

    /// The short path has found nothing.
    pub fn idle<L: Layout>(&self) -> usize {
        if self.unexpected.is_time() {
            self.take_over::<L>();
        }
        0
    }

    /// Reads and dispatches completions until the queues are drained; returns how many.
    pub fn advance<L: Layout>(&self) -> usize {
        let count = self.drain::<L>(0, self.endpoint.first());
        if !H::is_here() {
            return count;
        }
        if count == 0 && self.unexpected.is_time() {
            self.take_over::<L>();
        }
        if self.scalable || self.deferred.is_set(Ordering::Relaxed) {
            count + self.progress_rest::<L>()
        } else {
            count
        }
    }

    #[inline(never)]
    fn progress_rest<L: Layout>(&self) -> usize {
        if self.deferred.is_set(Ordering::Relaxed) {
            self.flush_outbox::<L>();
            if self.fetch_rest::<L>() {
                self.post_waiting();
            }
        }
        self.endpoint
            .others()
            .iter()
            .enumerate()
            .map(|(index, context)| self.drain::<L>(index + 1, context))
            .sum()
    }

    #[inline(always)]
    fn drain<L: Layout>(&self, index: usize, context: &Context<Body<H>>) -> usize {
        let mut count = 0;
        loop {
            match context.poll() {
                Ok((completion, more)) => {
                    count += 1;
                    self.dispatch::<L>(index, completion);
                    if !more || !H::is_here() {
                        return count;
                    }
                }
                Err(Pause::Empty) => return count,
                Err(Pause::Error(code)) => {
                    count += 1;
                    self.trouble::<L>(index, context.failure(code));
                    if !H::is_here() {
                        return count;
                    }
                }
            }
        }
    }

    #[cold]
    fn trouble<L: Layout>(&self, context: usize, trouble: Trouble<Body<H>>) {
        match trouble {
            Trouble::Gone => {}
            Trouble::Operation(failure) => self.fail::<L>(context, failure),
            Trouble::Queue(code) => broken::<H>(code),
        }
    }

    #[inline(always)]
    fn dispatch<L: Layout>(&self, context: usize, completion: Completion<Body<H>>) {
        let Completion { lease: operation, len, data, tag } = completion;
        match *operation {
            Body::Receive { comm } => self.received::<L>(context, operation, comm, tag, data, len),
            Body::Send => self.sent(operation, Outcome::Success),
            _ => self.dispatch_rare::<L>(context, operation, tag, data, len),
        }
    }

    #[inline(never)]
    fn dispatch_rare<L: Layout>(
        &self,
        context: usize,
        mut operation: Op<H>,
        bits: u64,
        data: u64,
        len: usize,
    ) {
        match *operation {
            Body::Wait(_) => {
                *operation = Body::Wait(Seen { ended: Ok(()), bits, data, len });
                self.ready.put(operation);
            }
            Body::Claimed { comm, seen } => self.claimed::<L>(context, operation, comm, seen, len),
            Body::SynchronousSend { answer } => self.sent_synchronously(operation, answer, None),
            Body::Fetch { .. } => self.fetched::<L>(operation, true),
            Body::Answer { answer } => self.answered(operation, answer, Outcome::Success),
            Body::Listen => self.heard::<L>(operation, len),
            Body::Announce { .. } => drop(operation),
            Body::Reserve => self.reserve_ended(operation),
            Body::Receive { comm } => self.received::<L>(context, operation, comm, bits, data, len),
            Body::Send => self.sent(operation, Outcome::Success),
        }
    }

    #[cold]
    fn fail<L: Layout>(&self, context: usize, mut entry: Failure<Body<H>>) {
        let Some(mut operation) = entry.lease.take() else { return };
        let code = entry.code;
        let outcome = match code {
            code if code == sys::FI_ETRUNC as i32 => Outcome::Truncated,
            // A provider also flushes what a lost connection leaves behind under this code.
            code if code == sys::FI_ECANCELED as i32 && operation.is_given_up() => Outcome::Cancelled,
            _ => Outcome::Failed,
        };
        let failed = Failed { outcome, code };
        match outcome {
            Outcome::Truncated => counters::TRUNCATED.add(1),
            Outcome::Failed if code != sys::FI_ENOMSG as i32 => counters::FAILED.add(1),
            _ => {}
        }
        match *operation {
            Body::Receive { comm } => self.receive_failed::<L>(context, operation, comm, failed, &entry),
            Body::Claimed { comm, seen } => {
                let seen = Seen { ended: Err(code), len: entry.len.min(operation.room()), ..seen };
                self.failed_with::<L>(context, operation, comm, outcome, seen);
            }
            Body::Send => self.sent(operation, outcome),
            Body::SynchronousSend { answer } => self.sent_synchronously(operation, answer, Some(failed)),
            Body::Wait(seen) => {
                *operation = Body::Wait(Seen { ended: Err(code), ..seen });
                self.ready.put(operation);
            }
            Body::Fetch { .. } => self.fetched::<L>(operation, false),
            Body::Answer { answer } => self.answered(operation, answer, outcome),
            // Too long for an announcement, so it was none. A cancelled one is not awaited any more.
            Body::Listen if outcome == Outcome::Truncated => self.heard::<L>(operation, usize::MAX),
            Body::Listen => drop(operation),
            Body::Reserve => self.reserve_ended(operation),
            Body::Announce { comm, dest } => {
                drop(operation);
                self.announcement_failed(comm, dest);
            }
        }
    }

    /// Posts what is given, making progress while the provider is full. What is refused comes back.
    #[inline]
    fn post<L: Layout, T, R>(
        &self,
        given: T,
        mut post: impl FnMut(T) -> std::result::Result<R, Unposted<T>>,
    ) -> std::result::Result<R, (Error, T)> {
        match post(given) {
            Ok(posted) => Ok(posted),
            Err(Unposted { given, error: PostError::TryAgain }) => {
                self.post_until::<L, _, _>(given, post, || None)
            }
            Err(Unposted { given, error }) => Err((Error::from(error), given)),
        }
    }

    /// Posts what the provider has put off, making progress meanwhile, until `give_up` says why to end.
    #[cold]
    fn post_until<L: Layout, T, R>(
        &self,
        mut given: T,
        mut post: impl FnMut(T) -> std::result::Result<R, Unposted<T>>,
        mut give_up: impl FnMut() -> Option<Error>,
    ) -> std::result::Result<R, (Error, T)> {
        counters::RETRIES.add(1);
        let mut spins = 0;
        loop {
            self.turn::<L>(&mut spins);
            match post(given) {
                Ok(posted) => return Ok(posted),
                Err(Unposted { given: again, error: PostError::TryAgain }) => given = again,
                Err(Unposted { given, error }) => return Err((Error::from(error), given)),
            }
            if let Some(error) = give_up() {
                return Err((error, given));
            }
        }
    }

    /// Operations of our own.
    #[inline]
    fn pool(&self) -> &Pool<Body<H>> {
        self.endpoint.pool()
    }

    /// Asks the provider to give an operation of the pool up.
    fn cancel_own(&self, context: usize, which: Id) {
        if let Some(operation) = self.pool().standing(which) {
            self.context(context).cancel(&operation);
        }
    }

    /// One turn of a waiting loop: our own progress, and now and then the whole host's.
    #[inline]
    fn turn<L: Layout>(&self, spins: &mut u32) {
        *spins += 1;
        if self.progress::<L>() == 0 && spins.is_multiple_of(32) {
            H::progress();
        }
    }

    /// Waits until an operation of the pool has ended.
    #[inline]
    fn wait<L: Layout>(&self, which: Id) -> Op<H> {
        let mut spins = 0;
        loop {
            if let Some(operation) = self.ready.take(which) {
                return operation;
            }
            self.turn::<L>(&mut spins);
        }
    }
}

/// The address in a note.
#[inline]
fn noted(note: u64) -> Option<Address> {
    (note != 0).then(|| Address(note.wrapping_sub(1)))
}

#[inline]
fn envelope<L: Layout>(bits: u64, data: u64, len: usize) -> crate::mtl::Envelope {
    crate::mtl::Envelope { source: L::source(bits, data), tag: L::tag(bits), len }
}

#[cold]
fn broken<H: Upcalls>(code: i32) -> ! {
    H::last_words(&format!(
        "the provider's completion queue failed (libfabric error {code}) and no message can be completed any more; the job cannot go on"
    ));
    // Not `exit`: its handlers would run in the middle of the provider's call and of the host's progress.
    std::process::abort()
}
