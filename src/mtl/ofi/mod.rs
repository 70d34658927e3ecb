//! The OFI MTL: MPI matching on libfabric's tagged messages.
//!
//! Everything is matched by the provider; this module turns MPI's (communicator, source, tag) into
//! tag bits, buffers into one piece of memory, and completions into the host's requests. Answers to
//! Open MPI's `ompi/mca/mtl/ofi` and interoperates with it in the same job.
//!
//! Invariants: an operation is either idle, posted, or waiting in an inbox; a host request is
//! completed exactly once and not touched afterwards; nothing is borrowed while the host runs.
//!
//! Seams: `body` the state of an operation; `select` which provider; `send`, `receive`, `probe` the
//! three verbs; `device` messages in device memory; `backlog` unexpected messages that the provider cannot keep; `exchange` communicators
//! without a common short id.

mod answer;
mod backlog;
mod body;
mod counters;
mod device;
mod exchange;
mod probe;
mod receive;
mod select;
mod send;
mod waiting;

pub use body::Body;
pub use counters::{COUNTERS, Counter};
pub use probe::Claim;
pub use select::{Needs, Offer, Refusal, allowed, candidates, reaching_devices, select};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config;
use crate::error::{Error, Result};
use crate::fabric::{
    Address, AddressVector, Completion, Context, Domain, Endpoint, Fabric, Failure, InfoList, Lease,
    Operation, Pause, Payload, Pool, PostError, Ready, Trouble, sys,
};
use crate::mtl::{Communicator, Outcome, Peer, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::Layout;
use backlog::Backlog;
use body::Kind;
use device::Reach;
use exchange::Exchange;

/// Memory that the host must provide behind its request head, bytes.
pub const fn operation_size<H: Upcalls>() -> usize {
    size_of::<Operation<Body<H>>>()
}

/// An open endpoint and all that hangs on it.
pub struct Ofi<H: Upcalls> {
    endpoint: Endpoint<Body<H>>,
    addresses: Arc<AddressVector>,
    pool: Pool<Body<H>>,
    /// What we owe to peers and the provider could not take at once.
    outbox: EngineCell<Vec<Outgoing<H>>>,
    /// Whether there is any.
    deferred: AtomicBool,
    exchange: Exchange<H>,
    backlog: Backlog<H>,
    /// Serialises the making of peers.
    peers: EngineCell<()>,
    inject_size: usize,
    /// Messages below this size may take the short path: none with a scalable endpoint.
    short: usize,
    max_message: usize,
    context_bits: u32,
    scalable: bool,
    grouping: bool,
    can_probe: bool,
    /// How the provider reaches device memory, if it does.
    reach: Option<Reach>,
    _info: InfoList,
}

/// What is owed to a peer, from inside a completion: nothing may wait there.
#[derive(Clone, Copy)]
enum Outgoing<H: Upcalls> {
    /// The answer to a synchronous send.
    Answer { context: usize, to: Address, bits: u64 },
    /// What we call a communicator.
    Announcement { comm: H::Comm, dest: i32, asks: bool },
}

/// The most that the host's users may ask to be read at once.
const MOST_EVENTS: usize = 100;

impl<H: Upcalls> Ofi<H> {
    /// Opens the endpoint of an offer for a job of about `universe` processes.
    pub fn open(offer: &Offer<'_>, config: &config::Ofi, threads: bool, universe: usize) -> Result<Self> {
        let most = offer.info.max_contexts().max(1);
        let contexts = config.scalable.then(|| config.contexts.clamp(1, most));
        let context_bits = contexts.map_or(0, |n| usize::BITS - (n - 1).leading_zeros());
        let info = offer.info.detach(contexts)?;
        let fabric = Fabric::open(&offer.info)?;
        let domain = Domain::open(&fabric, &offer.info)?;
        let addresses = AddressVector::open(&domain, config.av_table, universe, context_bits)?;
        let batch = config.progress_event_count.clamp(1, MOST_EVENTS);
        let ready =
            Ready { contexts, queue_size: offer.info.queue_depth().clamp(batch, 65_536), batch, threads };
        let endpoint = Endpoint::open(&domain, &info, &addresses, &ready)?;
        let ofi = Self {
            inject_size: offer.info.inject_size(),
            short: if config.scalable { 0 } else { offer.info.inject_size() + 1 },
            max_message: offer.info.max_message(),
            can_probe: endpoint.first().can_probe(),
            reach: Reach::of(offer, &domain, endpoint.first().is_cushioned()),
            scalable: config.scalable,
            endpoint,
            addresses,
            pool: Pool::default(),
            outbox: EngineCell::new(Vec::new()),
            deferred: AtomicBool::new(false),
            exchange: Exchange::new(),
            backlog: Backlog::new(&offer.info, threads, config.scalable),
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
    #[inline]
    fn known(&self, comm: H::Comm, rank: i32) -> Option<Address> {
        noted(comm.peer(rank).ok()?.note())
    }

    /// The context that serves a communicator, the same at every member.
    fn context_of(&self, comm: H::Comm) -> usize {
        if self.grouping { comm.context_id() as usize % (self.endpoint.others().len() + 1) } else { 0 }
    }

    #[inline]
    fn context(&self, index: usize) -> &Context<Body<H>> {
        if index == 0 { self.endpoint.first() } else { &self.endpoint.others()[index - 1] }
    }

    /// As [`advance`](Self::advance), out of line.
    #[inline(never)]
    fn progress<L: Layout>(&self) -> usize {
        self.advance::<L>()
    }

    /// Reads and dispatches completions until the queues are drained; returns how many.
    #[inline(always)]
    pub fn advance<L: Layout>(&self) -> usize {
        let count = self.drain::<L>(0, self.endpoint.first());
        if count == 0 && self.backlog.watch.load(Ordering::Relaxed) && self.backlog.is_time() {
            self.take_over::<L>();
        }
        if self.scalable || self.deferred.load(Ordering::Relaxed) {
            count + self.progress_rest::<L>()
        } else {
            count
        }
    }

    #[inline(never)]
    fn progress_rest<L: Layout>(&self) -> usize {
        if self.deferred.load(Ordering::Relaxed) {
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
                    if !more {
                        return count;
                    }
                }
                Err(Pause::Empty) => return count,
                Err(Pause::Error(code)) => {
                    count += 1;
                    self.trouble::<L>(index, context.failure(code));
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
        let Completion { lease, len, data, tag } = completion;
        match lease.kind.get() {
            Kind::Recv => self.received::<L>(context, lease, tag, data, len),
            Kind::Send => {
                if lease.settle() {
                    self.sent(lease);
                }
            }
            _ => self.dispatch_rare::<L>(context, lease, tag, data, len),
        }
    }

    #[inline(never)]
    fn dispatch_rare<L: Layout>(
        &self,
        context: usize,
        lease: Lease<Body<H>>,
        tag: u64,
        data: u64,
        len: usize,
    ) {
        match lease.kind.get() {
            Kind::Claimed => self.claimed::<L>(context, lease, len),
            Kind::Wait => {
                lease.len.set(len);
                lease.bits.set(tag);
                lease.data.set(data);
                lease.settle();
            }
            Kind::Stored => self.stored::<L>(lease),
            Kind::Ack => self.acked(lease, Outcome::Success),
            Kind::Listen => self.heard::<L>(lease, len),
            Kind::Announce => self.announced(lease),
            Kind::Reserve => self.pool.put(lease),
            Kind::Recv | Kind::Send | Kind::Idle => {}
        }
    }

    #[cold]
    fn fail<L: Layout>(&self, context: usize, failure: Failure<Body<H>>) {
        let Some(lease) = failure.lease else { return };
        let outcome = match failure.code {
            code if code == sys::FI_ETRUNC as i32 => Outcome::Truncated,
            // A provider also flushes what a lost connection leaves behind under this code.
            code if code == sys::FI_ECANCELED as i32 && lease.cancelled.get() => Outcome::Cancelled,
            _ => Outcome::Failed,
        };
        lease.outcome.set(outcome);
        match outcome {
            Outcome::Truncated => counters::TRUNCATED.add(1),
            Outcome::Failed if failure.code != sys::FI_ENOMSG as i32 => counters::FAILED.add(1),
            _ => {}
        }
        match lease.kind.get() {
            Kind::Recv => self.receive_failed::<L>(context, lease, &failure),
            Kind::Claimed => self.claim_failed::<L>(context, lease, &failure),
            Kind::Send => {
                if lease.settle() {
                    self.sent(lease);
                }
            }
            Kind::Wait => {
                if failure.code == sys::FI_ENOMSG as i32 {
                    lease.outcome.set(Outcome::Cancelled);
                }
                lease.settle();
            }
            Kind::Stored => self.stored::<L>(lease),
            Kind::Ack => self.acked(lease, outcome),
            // Too long for an announcement, so it was none. A cancelled one is not awaited any more.
            Kind::Listen if outcome == Outcome::Truncated => self.heard::<L>(lease, usize::MAX),
            Kind::Listen => {}
            Kind::Announce => {
                let (comm, dest) = (lease.comm.get(), lease.data.get() as i32);
                self.announced(lease);
                if let Some(comm) = comm {
                    self.announcement_failed(comm, dest);
                }
            }
            Kind::Reserve => self.pool.put(lease),
            Kind::Idle => {}
        }
    }

    #[cold]
    fn flush_outbox<L: Layout>(&self) {
        let waiting = self.outbox.with(|outbox| {
            self.deferred.store(false, Ordering::Relaxed);
            std::mem::take(outbox)
        });
        for outgoing in waiting {
            self.dispatch_out::<L>(outgoing);
        }
    }

    /// Sends what is owed, now or as soon as the provider takes it.
    fn dispatch_out<L: Layout>(&self, outgoing: Outgoing<H>) {
        let posted = match outgoing {
            Outgoing::Answer { context, to, bits } => {
                self.context(context).inject(Payload::EMPTY, to, bits, None)
            }
            Outgoing::Announcement { comm, dest, asks } => self.post_announcement::<L>(comm, dest, asks),
        };
        match (posted, outgoing) {
            (Ok(()), _) => {}
            (Err(PostError::TryAgain), _) => self.outbox.with(|outbox| {
                self.deferred.store(true, Ordering::Relaxed);
                outbox.push(outgoing);
            }),
            (Err(PostError::Refused(code)), Outgoing::Answer { .. }) => {
                H::notice(
                    "provider failed",
                    &format!(
                        "the provider refused the answer to a synchronous send (libfabric error {code}); the sender will wait for it"
                    ),
                );
            }
            (Err(PostError::Refused(_)), Outgoing::Announcement { comm, dest, .. }) => {
                self.announcement_failed(comm, dest)
            }
        }
    }

    /// Posts, making progress while the provider is full.
    #[inline]
    fn post<L: Layout>(&self, mut post: impl FnMut() -> std::result::Result<(), PostError>) -> Result<()> {
        match post() {
            Ok(()) => Ok(()),
            Err(error) => self.post_again::<L>(error, &mut post),
        }
    }

    #[cold]
    fn post_again<L: Layout>(
        &self,
        mut error: PostError,
        post: &mut dyn FnMut() -> std::result::Result<(), PostError>,
    ) -> Result<()> {
        counters::RETRIES.add(1);
        let mut spins = 0_u32;
        while error == PostError::TryAgain {
            self.turn::<L>(&mut spins);
            match post() {
                Ok(()) => return Ok(()),
                Err(next) => error = next,
            }
        }
        Err(Error::from(error))
    }

    /// One turn of a waiting loop: our own progress, and now and then the whole host's.
    #[inline]
    fn turn<L: Layout>(&self, spins: &mut u32) {
        *spins += 1;
        if self.progress::<L>() == 0 && spins.is_multiple_of(32) {
            H::progress();
        }
    }

    /// Waits until an operation of the pool is settled.
    #[inline]
    fn wait<L: Layout>(&self, lease: Lease<Body<H>>) {
        let mut spins = 0;
        while !lease.is_settled() {
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
    std::process::exit(1)
}
