//! Unexpected messages, taken over from a provider that keeps only a few.
//!
//! libfabric's plain TCP provider (`net` in 1.17, `tcp` since 1.18) stores a few unexpected messages
//! per peer, and then reads no further from that peer: a message that a receive waits for stays
//! unseen behind them, and the job hangs. So when nothing completes for a while, what is unexpected
//! is claimed from the provider and kept here, and later receives look here first. Messages that a
//! matched probe has claimed and nobody has received yet stand in the way too, and come here as well.
//!
//! INVARIANT: what lies here is older than anything that the provider holds from the same peer, and
//! nothing here matches a receive that the provider has. To keep that, no receive is posted and no
//! probe is made between the claim of a message and its arrival in this list: receives that come
//! then are put off, in order.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::body::Kind;
use super::{Body, Ofi, counters};
use crate::error::{Error, Result};
use crate::fabric::{Address, Info, Landing, Lease, Place, PostError};
use crate::mtl::{Communicator, Convertor, Envelope, Outcome, Request, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::{Layout, Pattern, Selector};

/// Idle polls before the provider is asked for unexpected messages. Asking in vain doubles it.
const PATIENCE: u32 = 1024;
const MOST_PATIENCE: u32 = 65_536;
/// Messages taken over in one go.
const MOST_AT_ONCE: usize = 4096;

/// The messages taken over, and how it is decided when to take more.
pub(super) struct Backlog<H: Upcalls> {
    /// Whether the provider is of the kind that needs this.
    pub(super) needed: bool,
    /// Receives take the long way: there are messages here, or other threads that might make some, or
    /// the endpoint has several contexts.
    pub(super) long_way: AtomicBool,
    always: bool,
    /// The tag bits that the provider leaves to us.
    every_bit: u64,
    idle: AtomicU32,
    patience: AtomicU32,
    shelf: EngineCell<Shelf<H>>,
}

struct Shelf<H: Upcalls> {
    taking_over: bool,
    probes: u32,
    messages: VecDeque<Lease<Body<H>>>,
    put_off: VecDeque<Posting<H>>,
    /// Claimed by matched probes, and still in the provider.
    claimed: Vec<Lease<Body<H>>>,
}

/// A receive, ready to be posted.
#[derive(Clone, Copy)]
struct Posting<H: Upcalls> {
    lease: Lease<Body<H>>,
    landing: Landing,
    from: Address,
    source: Selector,
    want: Pattern,
    convertor: H::Conv,
}

enum Step<H: Upcalls> {
    Done,
    Found(Lease<Body<H>>),
    Post(PostError),
}

/// What a probe finds here.
pub(super) enum Sight<H: Upcalls> {
    /// Nothing may be said now.
    Later,
    /// Nothing; the provider is to be asked, and [`Ofi::looked`] called afterwards.
    AskProvider,
    /// A message, taken out when it was claimed.
    Seen(Envelope, Lease<Body<H>>),
}

impl<H: Upcalls> Backlog<H> {
    pub(super) fn new(info: &Info<'_>, threads: bool, scalable: bool) -> Self {
        let needed = matches!(info.provider(), "net" | "tcp");
        let always = scalable || (needed && threads);
        Self {
            needed,
            long_way: AtomicBool::new(always),
            always,
            every_bit: u64::MAX >> info.mem_tag_format().leading_zeros().min(63),
            idle: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
            shelf: EngineCell::new(
                Shelf {
                    taking_over: false,
                    probes: 0,
                    messages: VecDeque::new(),
                    put_off: VecDeque::new(),
                    claimed: Vec::new(),
                },
                threads,
            ),
        }
    }

    /// Counts an idle poll; true when it is time to look for unexpected messages.
    #[inline]
    pub(super) fn is_time(&self) -> bool {
        let idle = self.idle.load(Ordering::Relaxed) + 1;
        self.idle.store(idle, Ordering::Relaxed);
        idle >= self.patience.load(Ordering::Relaxed)
    }
}

impl<H: Upcalls> Shelf<H> {
    fn find<L: Layout>(&self, want: Pattern, source: Selector) -> Option<usize> {
        self.messages.iter().position(|message| {
            let (bits, data) = (message.bits.get(), message.data.get());
            (bits ^ want.bits) & !want.ignore == 0 && (source.is_any() || L::source(bits, data) == source.0)
        })
    }

    fn post<L: Layout>(&mut self, ofi: &Ofi<H>, posting: &Posting<H>) -> Step<H> {
        let receive = posting.lease;
        if let Some(message) =
            self.find::<L>(posting.want, posting.source).and_then(|at| self.messages.remove(at))
        {
            receive.kind.set(Kind::Idle);
            drop(receive.bounce.take());
            message.request.set(receive.request.take());
            message.comm.set(receive.comm.get());
            message.convertor.set(Some(posting.convertor));
            ofi.backlog.long_way.store(
                ofi.backlog.always || self.taking_over || !self.messages.is_empty(),
                Ordering::Relaxed,
            );
            return if message.is_settled() { Step::Found(message) } else { Step::Done };
        }
        let Posting { landing, from, want, .. } = *posting;
        match ofi.endpoint.first().recv(landing, from, want.bits, want.ignore, receive) {
            Ok(()) => Step::Done,
            Err(error) => Step::Post(error),
        }
    }
}

impl<H: Upcalls> Ofi<H> {
    /// As `irecv`, for a provider whose unexpected messages may lie here.
    #[inline(never)]
    pub(super) fn irecv_sheltered<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        convertor: H::Conv,
        request: H::Req,
        place: Place<Body<H>>,
    ) -> Result<()> {
        let from =
            if L::DIRECTED && !source.is_any() { self.address(comm, source.0, 0)? } else { Address::ANY };
        let want = L::receive(comm.context_id(), source, tag);
        let state =
            Body { request: Cell::new(Some(request)), comm: Cell::new(Some(comm)), ..Body::new(Kind::Recv) };
        let lease = place.install(state);
        let landing = self.land(convertor, lease);
        let posting = Posting { lease, landing, from, source, want, convertor };
        let mut spins = 0;
        loop {
            let step = self.backlog.shelf.with(|shelf| {
                if shelf.taking_over {
                    shelf.put_off.push_back(posting);
                    Step::Done
                } else {
                    shelf.post::<L>(self, &posting)
                }
            });
            match step {
                Step::Done => return Ok(()),
                Step::Found(message) => {
                    self.hand_over::<L>(message);
                    return Ok(());
                }
                Step::Post(PostError::TryAgain) => self.turn::<L>(&mut spins),
                Step::Post(error) => {
                    lease.kind.set(Kind::Idle);
                    drop(lease.bounce.take());
                    return Err(Error::from(error));
                }
            }
        }
    }

    /// Looks for a message here, and takes it when `claim`.
    pub(super) fn look<L: Layout>(&self, want: Pattern, source: Selector, claim: bool) -> Sight<H> {
        self.backlog.shelf.with(|shelf| {
            if shelf.taking_over {
                return Sight::Later;
            }
            let Some(at) = shelf.find::<L>(want, source) else {
                shelf.probes += 1;
                return Sight::AskProvider;
            };
            let message = shelf.messages[at];
            if claim {
                shelf.messages.remove(at);
            }
            Sight::Seen(message.envelope::<L>(), message)
        })
    }

    /// The provider has answered a probe, perhaps with a message that is claimed now.
    pub(super) fn looked(&self, claimed: Option<Lease<Body<H>>>) {
        self.backlog.shelf.with(|shelf| {
            shelf.probes -= 1;
            shelf.claimed.extend(claimed);
        });
    }

    /// A claimed message is going to be received: true when it lies here, false when in the provider.
    pub(super) fn is_stored(&self, message: Lease<Body<H>>) -> bool {
        self.backlog.shelf.with(|shelf| {
            shelf.claimed.retain(|claimed| *claimed != message);
            message.kind.get() == Kind::Stored
        })
    }

    /// Takes over what is unexpected, so that the provider reads on.
    #[cold]
    pub(super) fn take_over<L: Layout>(&self) {
        let backlog = &self.backlog;
        backlog.idle.store(0, Ordering::Relaxed);
        let begun = backlog.shelf.with(|shelf| {
            let free = !shelf.taking_over && shelf.probes == 0;
            shelf.taking_over |= free;
            free
        });
        if !begun {
            return;
        }
        backlog.long_way.store(true, Ordering::Relaxed);
        for message in backlog.shelf.with(|shelf| {
            for message in &shelf.claimed {
                message.kind.set(Kind::Stored);
                message.pending.store(1, Ordering::Release);
            }
            std::mem::take(&mut shelf.claimed)
        }) {
            self.fetch::<L>(message);
        }
        let mut taken = 0;
        while taken < MOST_AT_ONCE && self.take_one::<L>() {
            taken += 1;
        }
        self.post_put_off::<L>();
        let patience = backlog.patience.load(Ordering::Relaxed);
        let patience = if taken > 0 { PATIENCE } else { (patience * 2).min(MOST_PATIENCE) };
        backlog.patience.store(patience, Ordering::Relaxed);
    }

    /// Takes one message over; false when there is none.
    fn take_one<L: Layout>(&self) -> bool {
        let context = self.endpoint.first();
        let message = self.pool.take(Body::new(Kind::Wait));
        let peeked = self.post::<L>(|| context.peek(Address::ANY, 0, self.backlog.every_bit, true, message));
        if peeked.is_ok() {
            self.wait::<L>(message);
        }
        if peeked.is_err() || message.outcome.get() != Outcome::Success {
            self.pool.put(message);
            return false;
        }
        self.fetch::<L>(message);
        self.backlog.shelf.with(|shelf| shelf.messages.push_back(message));
        true
    }

    /// Brings a claimed message here.
    fn fetch<L: Layout>(&self, message: Lease<Body<H>>) {
        let context = self.endpoint.first();
        counters::TAKEN_OVER.add(1);
        counters::COPIED_RECEIVES.add(1);
        counters::COPIED_BYTES.add(message.len.get() as u64);
        let mut buffer = vec![0_u8; message.len.get()].into_boxed_slice();
        let landing = Landing::held(&mut buffer);
        message.kind.set(Kind::Stored);
        message.bounce.set(Some(buffer));
        message.pending.store(1, Ordering::Release);
        if self.post::<L>(|| context.take(landing, Address::ANY, message.bits.get(), 0, message)).is_err() {
            // Claimed and not to be had: whoever receives it learns that.
            message.outcome.set(Outcome::Failed);
            message.settle();
        }
    }

    /// Posts the receives that came while messages were taken over.
    fn post_put_off<L: Layout>(&self) {
        let mut spins = 0;
        loop {
            let next = self.backlog.shelf.with(|shelf| {
                let Some(posting) = shelf.put_off.front().copied() else {
                    shelf.taking_over = false;
                    self.backlog
                        .long_way
                        .store(self.backlog.always || !shelf.messages.is_empty(), Ordering::Relaxed);
                    return None;
                };
                let step = shelf.post::<L>(self, &posting);
                if !matches!(step, Step::Post(PostError::TryAgain)) {
                    shelf.put_off.pop_front();
                }
                Some((posting.lease, step))
            });
            match next {
                None => return,
                Some((_, Step::Done)) => {}
                Some((_, Step::Found(message))) => self.hand_over::<L>(message),
                Some((_, Step::Post(PostError::TryAgain))) => self.turn::<L>(&mut spins),
                Some((lease, Step::Post(_))) => {
                    lease.kind.set(Kind::Idle);
                    drop(lease.bounce.take());
                    if let Some(request) = lease.request.take() {
                        request.received(Envelope::default(), Outcome::Failed);
                    }
                }
            }
        }
    }

    /// The bytes of a message have arrived here.
    pub(super) fn stored<L: Layout>(&self, message: Lease<Body<H>>) {
        let wanted = self.backlog.shelf.with(|_| {
            message.settle();
            let request = message.request.take();
            let wanted = request.is_some();
            message.request.set(request);
            wanted
        });
        if wanted {
            self.hand_over::<L>(message);
        }
    }

    /// Receives a message that a probe claimed from here.
    pub(super) fn imrecv_stored<L: Layout>(
        &self,
        message: Lease<Body<H>>,
        convertor: H::Conv,
        request: H::Req,
    ) {
        let there = self.backlog.shelf.with(|_| {
            message.convertor.set(Some(convertor));
            message.request.set(Some(request));
            message.is_settled()
        });
        if there {
            self.hand_over::<L>(message);
        }
    }

    /// Ends the receive that a message was matched with.
    fn hand_over<L: Layout>(&self, message: Lease<Body<H>>) {
        let envelope = message.envelope::<L>();
        let bits = message.bits.get();
        if bits & L::SYNC != 0 {
            self.answer::<L>(0, message, bits, envelope.source);
        }
        let bounce = message.bounce.take().unwrap_or_default();
        let (request, convertor) = (message.request.take(), message.convertor.take());
        let mut outcome = message.outcome.get();
        self.pool.put(message);
        let (Some(request), Some(convertor)) = (request, convertor) else { return };
        let len = envelope.len.min(convertor.packed_size());
        if outcome == Outcome::Success {
            let unpacked = len == 0 || convertor.unpack(&bounce[..len]).is_ok();
            outcome = match (unpacked, len < envelope.len) {
                (false, _) => Outcome::Failed,
                (true, true) => {
                    counters::TRUNCATED.add(1);
                    Outcome::Truncated
                }
                (true, false) => Outcome::Success,
            };
        }
        request.received(Envelope { len, ..envelope }, outcome);
    }

    /// Gives a receive up that was put off; false when it was not.
    pub(super) fn cancel_put_off(&self, lease: Lease<Body<H>>) -> bool {
        let found = self.backlog.shelf.with(|shelf| {
            let at = shelf.put_off.iter().position(|posting| posting.lease == lease)?;
            shelf.put_off.remove(at)
        });
        if found.is_none() {
            return false;
        }
        lease.kind.set(Kind::Idle);
        drop(lease.bounce.take());
        if let Some(request) = lease.request.take() {
            request.received(Envelope::default(), Outcome::Cancelled);
        }
        true
    }
}
