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

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::body::{Kept, Kind};
use super::waiting::Posting;
use super::{Body, Ofi, counters};
use crate::fabric::{Address, Info, Landing, Lease, PostError};
use crate::mtl::{Convertor, Envelope, Outcome, Request, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::{Layout, Pattern, Selector};

/// Idle polls before the provider is asked for unexpected messages. Asking in vain doubles it.
const PATIENCE: u32 = 128;
const MOST_PATIENCE: u32 = 65_536;
/// Messages taken over in one go.
const MOST_AT_ONCE: usize = 4096;

/// The messages taken over, and how it is decided when to take more.
pub(super) struct Backlog<H: Upcalls> {
    /// Whether the provider is of the kind that keeps few unexpected messages.
    pub(super) needed: bool,
    /// Receives wait here.
    pub(super) waiting: AtomicBool,
    /// What is here must be looked at: the provider is of that kind, or there are messages or receives.
    pub(super) watch: AtomicBool,
    /// Receives take the long way: there are messages or receives here, or other threads that might make
    /// some, or the endpoint has several contexts.
    pub(super) long_way: AtomicBool,
    always: bool,
    /// The provider has room for so many receives, and one place of it is kept for claimed messages.
    pub(super) limited: bool,
    /// The tag bits that the provider leaves to us.
    pub(super) every_bit: u64,
    idle: AtomicU32,
    patience: AtomicU32,
    pub(super) shelf: EngineCell<Shelf<H>>,
}

pub(super) struct Shelf<H: Upcalls> {
    pub(super) taking_over: bool,
    probes: u32,
    pub(super) messages: VecDeque<Lease<Body<H>>>,
    /// Receives that wait, in order.
    pub(super) put_off: VecDeque<Posting<H>>,
    /// Claimed by matched probes, and still in the provider.
    claimed: Vec<Lease<Body<H>>>,
    /// Claimed, with their contexts, while the provider has no room to receive them.
    pub(super) unfetched: VecDeque<(usize, Lease<Body<H>>)>,
    /// A receive of no message, which keeps a place in the provider.
    pub(super) reserve: Option<Lease<Body<H>>>,
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
            waiting: AtomicBool::new(false),
            watch: AtomicBool::new(needed),
            long_way: AtomicBool::new(always),
            always,
            limited: info.provider().ends_with("ofi_rxm"),
            every_bit: u64::MAX >> info.mem_tag_format().leading_zeros().min(63),
            idle: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
            shelf: EngineCell::new(Shelf {
                taking_over: false,
                probes: 0,
                messages: VecDeque::new(),
                put_off: VecDeque::new(),
                claimed: Vec::new(),
                unfetched: VecDeque::new(),
                reserve: None,
            }),
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
    /// Tells those who do not look in here how things stand.
    pub(super) fn show(&self, backlog: &Backlog<H>) {
        let waiting = !self.put_off.is_empty();
        let long_way = backlog.always || self.taking_over || waiting || !self.messages.is_empty();
        backlog.long_way.store(long_way, Ordering::Relaxed);
        backlog.waiting.store(waiting, Ordering::Relaxed);
        let watch = backlog.needed || waiting || !self.messages.is_empty() || !self.unfetched.is_empty();
        backlog.watch.store(watch, Ordering::Relaxed);
    }

    pub(super) fn find<L: Layout>(&self, want: Pattern, source: Selector) -> Option<usize> {
        self.messages.iter().position(|message| {
            let (bits, data) = (message.bits.get(), message.data.get());
            (bits ^ want.bits) & !want.ignore == 0 && (source.is_any() || L::source(bits, data) == source.0)
        })
    }
}

impl<H: Upcalls> Ofi<H> {
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
        if !self.backlog.needed {
            return message.kind.get() == Kind::Stored;
        }
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
            let context = message.comm.get().map_or(0, |comm| self.context_of(comm));
            self.fetch::<L>(context, message);
        }
        let mut taken = 0;
        for context in 0..=self.endpoint.others().len() {
            while taken < MOST_AT_ONCE && self.fetch_rest::<L>() && self.take_one::<L>(context) {
                taken += 1;
            }
        }
        self.taken_over::<L>();
        let patience = backlog.patience.load(Ordering::Relaxed);
        let patience = if taken > 0 { PATIENCE } else { (patience * 2).min(MOST_PATIENCE) };
        backlog.patience.store(patience, Ordering::Relaxed);
    }

    /// Takes one message over; false when there is none.
    fn take_one<L: Layout>(&self, context: usize) -> bool {
        let provider = self.context(context);
        let message = self.pool.take(Body::new(Kind::Wait));
        let peeked = self.post::<L>(|| provider.peek(Address::ANY, 0, self.backlog.every_bit, true, message));
        if peeked.is_ok() {
            self.wait::<L>(message);
        }
        if peeked.is_err() || message.outcome.get() != Outcome::Success {
            self.pool.put(message);
            return false;
        }
        self.fetch::<L>(context, message);
        self.backlog.shelf.with(|shelf| shelf.messages.push_back(message));
        true
    }

    /// Brings a claimed message here, now or when the provider has room.
    fn fetch<L: Layout>(&self, context: usize, message: Lease<Body<H>>) {
        counters::TAKEN_OVER.add(1);
        counters::COPIED_RECEIVES.add(1);
        counters::COPIED_BYTES.add(message.len.get() as u64);
        message.kind.set(Kind::Stored);
        message.kept.set(Kept::Bounce(vec![0_u8; message.len.get()].into_boxed_slice()));
        message.pending.store(1, Ordering::Release);
        self.backlog.shelf.with(|shelf| shelf.unfetched.push_back((context, message)));
        self.fetch_rest::<L>();
    }

    /// Brings messages here as far as the provider has room; false when it has not.
    pub(super) fn fetch_rest<L: Layout>(&self) -> bool {
        loop {
            let failed = self.backlog.shelf.with(|shelf| {
                while let Some(&(context, message)) = shelf.unfetched.front() {
                    let mut bounce = message.kept.take().into_bytes();
                    let landing = Landing::held(&mut bounce);
                    message.kept.set(Kept::Bounce(bounce));
                    let bits = message.bits.get();
                    match self.context(context).take(landing, None, Address::ANY, bits, 0, message) {
                        Ok(()) => shelf.unfetched.pop_front(),
                        Err(PostError::TryAgain) => {
                            self.deferred.store(true, Ordering::Relaxed);
                            if let Some(reserve) = shelf.reserve.take() {
                                self.endpoint.first().cancel(reserve);
                                continue;
                            }
                            return Err(false);
                        }
                        Err(PostError::Refused(_)) => {
                            shelf.unfetched.pop_front();
                            return Ok(message);
                        }
                    };
                }
                Err(true)
            });
            match failed {
                Err(all) => return all,
                // Claimed and not to be had: whoever receives it learns that.
                Ok(message) => {
                    message.outcome.set(Outcome::Failed);
                    self.stored::<L>(message);
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
    pub(super) fn hand_over<L: Layout>(&self, message: Lease<Body<H>>) {
        let envelope = message.envelope::<L>();
        let bits = message.bits.get();
        if bits & L::SYNC != 0 {
            self.answer::<L>(0, message, bits, envelope.source);
        }
        let bounce = message.kept.take().into_bytes();
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
}
