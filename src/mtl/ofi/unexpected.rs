//! Unexpected messages, taken over from a provider that keeps only a few.
//!
//! libfabric's plain TCP provider (`net` in 1.17, `tcp` since 1.18) stores a few unexpected messages
//! per peer, and then reads no further from that peer: a message that a receive waits for stays
//! unseen behind them, and the job hangs. So when nothing completes for a while, what is unexpected
//! is claimed from the provider and kept here, and later receives look here first. Messages that a
//! matched probe claims would stand in the way too, and come here as well.
//!
//! Other providers keep any number, and there messages are taken over only while receives wait for room
//! ([`waiting`](super::waiting)): they are claimed, and stay there until they are matched. Then they go where their
//! receive wants them. Nothing of them is copied here, however many and long they are.
//!
//! `net` of libfabric 1.17 also forgets who has claimed a short message that it reads no further than, once any receive
//! is posted: it then stores the message, without the name of the claim, and nobody can receive it any more
//! (`tests::claims`). So between the claim of a message and its receive nothing is posted
//! there: what a matched probe claims is brought here at once, and receives of answers to synchronous sends wait too.
//!
//! INVARIANT: what lies here is older than anything that the provider holds from the same peer, and
//! nothing here matches a receive that the provider has. To keep that, no receive is posted and no
//! probe is made between the claim of a message and its arrival in this queue: receives that come
//! then wait, in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::body::{Lent, Op, Seen};
use super::claimed::{Claimed, Unfetched};
use super::line::Line;
use super::waiting::Posting;
use super::{Ofi, counters};
use crate::error::{Error, Result};
use crate::fabric::{Address, Bar, Id, Info};
use crate::mtl::{Envelope, Outcome, Request, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::{Layout, Pattern, Selector};

/// Idle polls before the provider is asked for unexpected messages. Asking in vain doubles it.
const PATIENCE: u32 = 128;
const MOST_PATIENCE: u32 = 65_536;
/// The same while receives wait: their messages may be there already, and where processes share a processor and
/// yield, a poll takes as long as the others please.
const PATIENCE_OF_WAITING: u32 = 16;
/// Messages taken over in one go.
const MOST_AT_ONCE: usize = 4096;

/// A message of this endpoint, never the same twice, and never 0. A later one has a greater number.
pub type MessageKey = u64;
/// No message.
pub(super) const NO_MESSAGE: MessageKey = 0;

/// The unexpected messages that lie here, and how it is decided when to take more over.
pub(super) struct Unexpected<H: Upcalls> {
    /// Whether the provider is of the kind that keeps few unexpected messages.
    pub(super) needed: bool,
    /// Receives wait here.
    pub(super) waiting: AtomicBool,
    /// What is here must be looked at: the provider is of that kind, or there are messages or receives.
    pub(super) watch: AtomicBool,
    /// Receives take the long way: there are messages or receives here, or calls of other threads that might
    /// make some overlap with the receive, or the endpoint has several contexts. Where calls do not overlap
    /// this is looked at within the call: it is set before the first message is claimed.
    pub(super) long_way: Bar,
    always: bool,
    /// Receives off the short path, and probes, come here first even while there is nothing to look at: another
    /// thread may take messages over at any time. Several contexts are used apart from one another instead.
    guarded: bool,
    /// The provider has room for so many receives, and one place of it is kept for claimed messages.
    pub(super) limited: bool,
    /// The tag bits that the provider leaves to us.
    pub(super) every_bit: u64,
    pub(super) idle: AtomicU32,
    patience: AtomicU32,
    /// Probes that the provider is answering: nothing is taken over meanwhile.
    pub(super) probes: AtomicU32,
    /// Questions put to the provider off the short path.
    #[cfg(test)]
    pub(super) asked: AtomicU32,
    pub(super) queue: EngineCell<Queue<H>>,
}

pub(super) struct Queue<H: Upcalls> {
    pub(super) taking_over: bool,
    /// It is time to take messages over, and probes are under way: no further ones begin, so that they end. With
    /// several threads that probe there might always be one.
    held_up: bool,
    last: MessageKey,
    /// Taken over, and not matched.
    messages: BTreeMap<MessageKey, Message<H>>,
    /// Taken over, and matched by a probe, or by a receive that waits for the bytes.
    matched: BTreeMap<MessageKey, Message<H>>,
    /// Claimed by matched probes, and still in the provider.
    pub(super) claimed: BTreeMap<MessageKey, Claimed<H>>,
    /// Receives of answers that wait, in order.
    pub(super) answers: Line<H>,
    /// Receives that wait, in order.
    pub(super) waiting: VecDeque<Posting<H>>,
    /// Claimed, while the provider has no room to receive them. They go before all that waits: nobody else can
    /// receive them, and while they are not, the provider keeps them.
    pub(super) unfetched: VecDeque<Unfetched<H>>,
    /// A receive of no message, which keeps a place in the provider.
    pub(super) reserve: Option<Id>,
}

/// A message that was taken over.
pub(super) struct Message<H: Upcalls> {
    seen: Seen,
    /// Where it was sent; known once it is matched.
    comm: Option<H::Comm>,
    bytes: Bytes<H>,
    /// What it was matched with.
    receive: Option<Lent<H>>,
}

pub(super) enum Bytes<H: Upcalls> {
    /// In the provider, which this operation and its context get them from.
    There(Op<H>, usize),
    OnTheirWay,
    Here(Box<[u8]>),
    Lost,
}

/// A message, matched with the receive that gets it.
pub(super) struct Found<H: Upcalls> {
    message: Message<H>,
    receive: Lent<H>,
}

/// What a probe finds here.
pub(super) enum Sight {
    /// Nothing may be said now.
    Later,
    /// Nothing; the provider is to be asked, and [`Ofi::looked`] called afterwards.
    AskProvider,
    /// Nothing; a message is to be claimed from the provider, where that keeps few or receives wait, and
    /// [`Ofi::taken_over`] called afterwards: messages are taken over until then.
    ClaimAlone,
    /// A message.
    Seen(Envelope, MessageKey),
}

/// What a probe found in the provider.
pub(super) struct Peeked<H: Upcalls> {
    pub(super) operation: Op<H>,
    pub(super) context: usize,
    pub(super) seen: Seen,
}

impl<H: Upcalls> Unexpected<H> {
    pub(super) fn new(info: &Info<'_>, overlap: bool, scalable: bool, long_way: Bar) -> Self {
        let mut layers = info.provider().split(';');
        let needed = matches!(layers.next(), Some("net" | "tcp")) && layers.all(|layer| layer != "ofi_rxm");
        let limited = info.provider().ends_with("ofi_rxm");
        let always = scalable || ((needed || limited) && overlap);
        long_way.set(always, Ordering::Relaxed);
        let every_bit = u64::MAX >> info.mem_tag_format().leading_zeros().min(63);
        Self {
            needed,
            waiting: AtomicBool::new(false),
            watch: AtomicBool::new(needed),
            long_way,
            always,
            guarded: !scalable,
            limited,
            every_bit,
            idle: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
            probes: AtomicU32::new(0),
            #[cfg(test)]
            asked: AtomicU32::new(0),
            queue: EngineCell::new(Queue::new()),
        }
    }

    /// Whether receives off the short path, and probes, have to come here.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.guarded || self.watch.load(Ordering::Relaxed)
    }

    /// Begins a probe of the provider where nothing lies here, nothing waits, and nothing is to be taken
    /// over. Then [`end_probe`](Self::end_probe) must follow.
    #[inline]
    pub(super) fn begin_probe(&self) -> bool {
        if self.long_way.is_set(Ordering::Relaxed) || self.is_time() {
            return false;
        }
        // SYNC POINT: probes (the other half is in `take_over`): either sees what the other has written
        self.probes.fetch_add(1, Ordering::SeqCst);
        if self.long_way.is_set(Ordering::SeqCst) {
            self.end_probe();
            return false;
        }
        true
    }

    /// The provider has answered.
    #[inline]
    pub(super) fn end_probe(&self) {
        self.probes.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts an idle poll; true when it is time to look for unexpected messages.
    #[inline]
    pub(super) fn is_time(&self) -> bool {
        if !self.watch.load(Ordering::Relaxed) {
            return false;
        }
        let idle = self.idle.load(Ordering::Relaxed) + 1;
        self.idle.store(idle, Ordering::Relaxed);
        idle >= self.patience.load(Ordering::Relaxed)
    }
}

impl<H: Upcalls> Queue<H> {
    fn new() -> Self {
        Self {
            taking_over: false,
            held_up: false,
            last: NO_MESSAGE,
            messages: BTreeMap::new(),
            matched: BTreeMap::new(),
            claimed: BTreeMap::new(),
            answers: Line::new(),
            waiting: VecDeque::new(),
            unfetched: VecDeque::new(),
            reserve: None,
        }
    }

    pub(super) fn next(&mut self) -> MessageKey {
        self.last += 1;
        self.last
    }

    /// Whether messages lie here that a receive could match.
    pub(super) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Messages that lie here unmatched or claimed, and bytes of them that are here or on their way.
    #[cfg(test)]
    pub(super) fn lies_here(&self) -> (usize, usize) {
        let all = || self.messages.values().chain(self.matched.values());
        let copied = |message: &Message<H>| match &message.bytes {
            Bytes::There(..) | Bytes::Lost => 0,
            Bytes::OnTheirWay => message.seen.len,
            Bytes::Here(bytes) => bytes.len(),
        };
        (all().count(), all().map(copied).sum())
    }

    /// Whether claimed messages wait for room.
    pub(super) fn is_fetching(&self) -> bool {
        !self.unfetched.is_empty()
    }

    /// Tells those who do not look in here how things stand.
    pub(super) fn show(&self, unexpected: &Unexpected<H>) {
        let waiting = self.is_awaiting();
        let here = waiting || self.has_messages() || self.is_fetching() || self.held_up;
        let long_way = unexpected.always || self.taking_over || here;
        unexpected.long_way.set(long_way, Ordering::Relaxed);
        unexpected.waiting.store(waiting, Ordering::Relaxed);
        if waiting {
            unexpected.patience.store(PATIENCE_OF_WAITING, Ordering::Relaxed);
        }
        unexpected.watch.store(unexpected.needed || here, Ordering::Relaxed);
    }

    /// The oldest message that matches.
    pub(super) fn find<L: Layout>(&self, want: Pattern, source: Selector) -> Option<MessageKey> {
        let matches = |seen: &Seen| {
            (seen.bits ^ want.bits) & !want.ignore == 0
                && (source.is_any() || L::source(seen.bits, seen.data) == source.0)
        };
        self.messages.iter().find(|(_, message)| matches(&message.seen)).map(|(key, _)| *key)
    }

    /// Matches a message with a receive. They come back unless the bytes are on their way.
    pub(super) fn match_up(&mut self, key: MessageKey, comm: H::Comm, receive: Lent<H>) -> Option<Found<H>> {
        let mut message = self.messages.remove(&key)?;
        message.comm = Some(comm);
        if let Bytes::OnTheirWay = message.bytes {
            message.receive = Some(receive);
            self.matched.insert(key, message);
            return None;
        }
        Some(Found { message, receive })
    }

    /// A claimed message is received now, or as soon as its bytes are here, if they are on their way.
    pub(super) fn receive(&mut self, key: MessageKey, receive: Lent<H>) -> Result<Option<Found<H>>> {
        let message = self.matched.get_mut(&key).filter(|message| message.receive.is_none());
        let message = message.ok_or(Error::NotFound)?;
        if let Bytes::OnTheirWay = message.bytes {
            message.receive = Some(receive);
            return Ok(None);
        }
        let message = self.matched.remove(&key).ok_or(Error::NotFound)?;
        Ok(Some(Found { message, receive }))
    }

    /// The bytes of a message have arrived, or never will. It comes back if a receive waits for it.
    pub(super) fn arrived(&mut self, key: MessageKey, bytes: Bytes<H>) -> Option<Found<H>> {
        if let Some(message) = self.messages.get_mut(&key) {
            message.bytes = bytes;
            return None;
        }
        let message = self.matched.get_mut(&key)?;
        message.bytes = bytes;
        let receive = message.receive.take()?;
        Some(Found { message: self.matched.remove(&key)?, receive })
    }
}

impl<H: Upcalls> Ofi<H> {
    /// Looks for a message here, and takes it when `claim`.
    pub(super) fn look<L: Layout>(
        &self,
        comm: H::Comm,
        want: Pattern,
        source: Selector,
        claim: bool,
    ) -> Sight {
        self.unexpected.queue.with(|queue| {
            // What is here is older than whatever is being taken over.
            let Some(key) = queue.find::<L>(want, source) else {
                if queue.taking_over || queue.held_up {
                    return Sight::Later;
                }
                if claim && (self.unexpected.needed || queue.is_awaiting()) {
                    // SYNC POINT: probes (as in `take_over`): no receive goes past from here on
                    self.unexpected.long_way.set(true, Ordering::SeqCst);
                    if self.is_probed() {
                        queue.show(&self.unexpected);
                        return Sight::Later;
                    }
                    queue.taking_over = true;
                    return Sight::ClaimAlone;
                }
                self.unexpected.probes.fetch_add(1, Ordering::SeqCst);
                return Sight::AskProvider;
            };
            let envelope = queue.messages[&key].seen.envelope::<L>();
            if claim && let Some(message) = queue.messages.remove(&key) {
                queue.matched.insert(key, Message { comm: Some(comm), ..message });
            }
            Sight::Seen(envelope, key)
        })
    }

    /// The provider has answered a probe that [`look`](Self::look) sent there, perhaps with a message that
    /// is claimed now.
    pub(super) fn looked(&self, claimed: Option<Peeked<H>>, comm: H::Comm) -> Option<MessageKey> {
        self.unexpected.queue.with(|queue| {
            let key = claimed.map(|peeked| queue.claim(peeked, comm));
            self.unexpected.end_probe();
            key
        })
    }

    /// Notes what a matched probe claimed in a provider that keeps its messages.
    pub(super) fn claim(&self, peeked: Peeked<H>, comm: H::Comm) -> MessageKey {
        self.unexpected.queue.with(|queue| queue.claim(peeked, comm))
    }

    /// Notes what a matched probe claimed in a provider that keeps few messages, and is to be brought here. Only while
    /// messages are taken over.
    pub(super) fn fetch_claimed(&self, peeked: Peeked<H>, comm: H::Comm) -> MessageKey {
        let Peeked { operation, context, seen } = peeked;
        self.unexpected.queue.with(|queue| {
            let key = queue.next();
            let message = Message { seen, comm: Some(comm), bytes: Bytes::OnTheirWay, receive: None };
            queue.matched.insert(key, message);
            counters::TAKEN_OVER.add(1);
            queue.fetch(key, context, operation, &seen);
            key
        })
    }

    /// Whether the provider is answering a probe. One of the short path looks at the bars and is counted within one turn.
    fn is_probed(&self) -> bool {
        self.endpoint.first().in_turn(|| self.unexpected.probes.load(Ordering::SeqCst)) != 0
    }

    /// Takes over what is unexpected, so that the provider reads on.
    #[cold]
    pub(super) fn take_over<L: Layout>(&self) {
        let unexpected = &self.unexpected;
        let begun = unexpected.queue.with(|queue| {
            // It is time, as soon as the other has done.
            if queue.taking_over {
                return false;
            }
            unexpected.idle.store(0, Ordering::Relaxed);
            // SYNC POINT: probes (the other half is in `begin_probe`)
            unexpected.long_way.set(true, Ordering::SeqCst);
            queue.held_up = self.is_probed();
            if queue.held_up {
                unexpected.idle.store(MOST_PATIENCE, Ordering::Relaxed);
                queue.show(unexpected);
                return false;
            }
            queue.taking_over = true;
            true
        });
        if !begun {
            return;
        }
        let mut taken = 0;
        for context in 0..=self.endpoint.others().len() {
            while taken < MOST_AT_ONCE && self.fetch_rest::<L>() && self.take_one::<L>(context) {
                taken += 1;
            }
        }
        self.take_answers::<L>();
        self.taken_over();
        let patience = match unexpected.patience.load(Ordering::Relaxed) {
            _ if unexpected.waiting.load(Ordering::Relaxed) => PATIENCE_OF_WAITING,
            _ if taken > 0 => PATIENCE,
            patience => (patience * 2).min(MOST_PATIENCE),
        };
        unexpected.patience.store(patience, Ordering::Relaxed);
    }

    /// Takes one message over; false when there is none.
    pub(super) fn take_one<L: Layout>(&self, context: usize) -> bool {
        // Whose answer it is that lies here cannot be told in every layout. Where none stands in the way of messages
        // they stay in the provider, and are asked for by their sender; so they do while receives of answers wait.
        let peek = |operation| {
            self.unexpected.queue.with(|queue| {
                let answers = if self.unexpected.needed && queue.answers.is_empty() { 0 } else { L::ACK };
                let ignore = self.unexpected.every_bit & !answers;
                self.context(context).peek(Address::ANY, 0, ignore, true, operation)
            })
        };
        let Ok(Some(peeked)) = self.ask::<L>(context, peek) else { return false };
        self.keep_taken::<L>(peeked);
        self.fetch_rest::<L>();
        true
    }

    /// Notes a message that was claimed for whoever receives it, or gives it to the first receive that waits for it.
    pub(super) fn keep_taken<L: Layout>(&self, peeked: Peeked<H>) {
        let Peeked { operation, context, seen } = peeked;
        let found = self.unexpected.queue.with(|queue| {
            let key = queue.next();
            counters::TAKEN_OVER.add(1);
            let bytes = if self.unexpected.needed {
                queue.fetch(key, context, operation, &seen);
                Bytes::OnTheirWay
            } else {
                Bytes::There(operation, context)
            };
            queue.messages.insert(key, Message { seen, comm: None, bytes, receive: None });
            queue.offer::<L>(key, &seen)
        });
        if let Some(found) = found {
            self.hand_over::<L>(found);
        }
    }

    /// Ends the receive that a message was matched with, or lets it have what the provider still holds.
    pub(super) fn hand_over<L: Layout>(&self, found: Found<H>) {
        let Found { message: Message { seen, comm, bytes, .. }, mut receive } = found;
        let envelope = seen.envelope::<L>();
        let bytes = match (bytes, comm) {
            (Bytes::There(operation, context), Some(comm)) => {
                return self.receive_claimed::<L>(Claimed { operation, comm, context, seen }, receive);
            }
            (bytes, _) => bytes,
        };
        if seen.bits & L::SYNC != 0
            && let Some(comm) = comm
        {
            self.answer::<L>(0, comm, seen.bits, envelope.source);
        }
        let len = envelope.len.min(receive.size());
        let outcome = match bytes {
            Bytes::Here(bytes)
                if len == 0 || bytes.get(..len).is_some_and(|bytes| receive.unpack(bytes).is_ok()) =>
            {
                if len < envelope.len {
                    counters::TRUNCATED.add(1);
                    Outcome::Truncated
                } else {
                    Outcome::Success
                }
            }
            Bytes::There(..) | Bytes::Here(_) | Bytes::Lost | Bytes::OnTheirWay => Outcome::Failed,
        };
        receive.end().received(Envelope { len, ..envelope }, outcome);
    }
}
