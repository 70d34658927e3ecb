//! Receives that wait for room in the provider.
//!
//! A provider takes so many posted receives (2048 in `tcp;ofi_rxm`), while the host may post any
//! number, and none of its calls may wait for room: what frees it may come later in the same thread.
//! So the rest waits here, in order, and is posted as room comes. Nothing goes past it: while receives
//! wait, later ones queue up behind, and a probe does not see what they will get. When nothing moves,
//! unexpected messages are taken over ([`unexpected`](super::unexpected)), and waiting receives get theirs.
//! Meanwhile receives wait here too.
//!
//! The receive of an answer to a synchronous send waits as well, at the front, and the message goes out at once:
//! the provider keeps the answer until there is room. When nothing moves the answer is claimed like a message.
//!
//! INVARIANT: no receive that waits matches a message that was taken over. A receive looks for its message
//! before it waits, and a message for its receive when it is taken over, so that each is looked for once: there
//! may be thousands of both.

use std::sync::atomic::Ordering;

use super::body::{Op, Seen};
use super::unexpected::{Found, MessageKey, Peeked, Queue, Unexpected};
use super::{Body, Ofi};
use crate::error::{Error, Result};
use crate::fabric::{Address, Id, PostError, Unposted, sys};
use crate::mtl::{Communicator, Envelope, Outcome, Request, Upcalls};
use crate::wire::tag::{Layout, Pattern, Selector};

/// A receive, ready to be posted.
pub(super) struct Posting<H: Upcalls> {
    operation: Op<H>,
    context: usize,
    from: Address,
    source: Selector,
    tag: Selector,
    want: Pattern,
}

/// What became of it.
enum Step<H: Upcalls> {
    /// It is posted, or waits, or will get a message that is on its way here.
    Done,
    /// It gets this message.
    Found(Found<H>),
    /// The provider did not take it.
    Refused(Posting<H>, PostError),
}

impl<H: Upcalls> Posting<H> {
    /// What is known of a message that never came: whose it was to be.
    fn envelope(&self) -> Envelope {
        Envelope { source: self.source.0, tag: self.tag.0, len: 0 }
    }

    /// What an answer is asked for by.
    pub(super) fn question(&self) -> (usize, u64, u64) {
        (self.context, self.want.bits, self.from.0)
    }

    /// Which operation.
    pub(super) fn id(&self) -> Id {
        self.operation.id()
    }

    fn accepts<L: Layout>(&self, seen: &Seen) -> bool {
        let Self { want, source, .. } = self;
        (seen.bits ^ want.bits) & !want.ignore == 0
            && (source.is_any() || L::source(seen.bits, seen.data) == source.0)
    }

    /// Ends the receive without a message.
    fn end(self, outcome: Outcome) {
        let envelope = self.envelope();
        if let Some(loan) = self.operation.end().loan {
            loan.end().received(envelope, outcome);
        }
    }
}

impl<H: Upcalls> Queue<H> {
    fn wait(&mut self, posting: Posting<H>, unexpected: &Unexpected<H>) {
        if let Body::Answer { .. } = *posting.operation {
            self.answers.push_back(posting);
        } else {
            self.waiting.push_back(posting);
        }
        self.show(unexpected);
    }

    /// It waits again, before all others of its kind.
    fn wait_again(&mut self, posting: Posting<H>) {
        if let Body::Answer { .. } = *posting.operation {
            self.answers.push_front(posting);
        } else {
            self.waiting.push_front(posting);
        }
    }

    /// Whether something waits.
    pub(super) fn is_awaiting(&self) -> bool {
        !(self.waiting.is_empty() && self.answers.is_empty())
    }

    /// What is posted next: answers before receives of the host's.
    fn next_waiting(&mut self) -> Option<Posting<H>> {
        self.answers.pop_front().or_else(|| self.waiting.pop_front())
    }

    /// Gives a receive its message, if that lies here; else it comes back.
    fn serve<L: Layout>(
        &mut self,
        unexpected: &Unexpected<H>,
        posting: Posting<H>,
    ) -> std::result::Result<Step<H>, Posting<H>> {
        let Some(message) = self.find::<L>(posting.want, posting.source) else { return Err(posting) };
        let Body::Receive { comm } = *posting.operation else { return Err(posting) };
        let Some(receive) = posting.operation.end().loan else { return Ok(Step::Done) };
        let found = self.match_up(message, comm, receive);
        self.show(unexpected);
        Ok(found.map_or(Step::Done, Step::Found))
    }

    /// Gives a message that was just taken over to the first receive that waits for it, if one does. They come back
    /// unless the bytes are on their way.
    pub(super) fn offer<L: Layout>(&mut self, message: MessageKey, seen: &Seen) -> Option<Found<H>> {
        let at = self.waiting.iter().position(|posting| posting.accepts::<L>(seen))?;
        let Posting { operation, .. } = self.waiting.remove(at)?;
        let Body::Receive { comm } = *operation else { return None };
        self.match_up(message, comm, operation.end().loan?)
    }
}

impl<H: Upcalls> Ofi<H> {
    /// A receive off the short path.
    #[inline(never)]
    pub(super) fn irecv_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        mut operation: Op<H>,
    ) -> Result<()> {
        let from =
            if L::DIRECTED && !source.is_any() { self.address(comm, source.0, 0)? } else { Address::ANY };
        let want = L::receive(comm.context_id(), source, tag);
        self.land(&mut operation);
        let context = self.context_of(comm);
        let posting = Posting { operation, context, from, source, tag, want };
        let in_order = |posting| self.unexpected.queue.with(|queue| self.post_in_order::<L>(queue, posting));
        let step = if self.unexpected.is_guarded() {
            in_order(posting)
        } else {
            match self.post_once(posting) {
                Step::Refused(posting, PostError::TryAgain) => in_order(posting),
                step => step,
            }
        };
        match step {
            Step::Done => Ok(()),
            Step::Found(found) => {
                self.hand_over::<L>(found);
                Ok(())
            }
            Step::Refused(_, error) => Err(Error::from(error)),
        }
    }

    /// Gives a receive its message, posts it, or lets it wait where the provider has no room: all of it while
    /// nobody else has the queue, so that no message is taken over in between.
    fn post_in_order<L: Layout>(&self, queue: &mut Queue<H>, posting: Posting<H>) -> Step<H> {
        let unexpected = &self.unexpected;
        // What lies here is older than what is being taken over, and nobody waits for it.
        let posting = match queue.serve::<L>(unexpected, posting) {
            Ok(step) => return step,
            Err(posting) => posting,
        };
        self.post_or_wait(queue, posting)
    }

    /// Posts what finds nothing here, if nothing waits before it, and there is room.
    fn post_or_wait(&self, queue: &mut Queue<H>, posting: Posting<H>) -> Step<H> {
        let unexpected = &self.unexpected;
        if queue.taking_over || queue.is_awaiting() || queue.is_fetching() {
            queue.wait(posting, unexpected);
            return Step::Done;
        }
        match self.post_once(posting) {
            Step::Refused(posting, PostError::TryAgain) => {
                queue.wait(posting, unexpected);
                self.deferred.set(true, Ordering::Relaxed);
                Step::Done
            }
            step => step,
        }
    }

    /// Posts the receive of an answer, or lets it wait. What the provider refuses comes back.
    pub(super) fn post_answer(
        &self,
        context: usize,
        from: Address,
        bits: u64,
        operation: Op<H>,
    ) -> std::result::Result<(), (Error, Op<H>)> {
        let want = Pattern { bits, ignore: 0 };
        let posting = Posting { operation, context, from, source: Selector::ANY, tag: Selector::ANY, want };
        match self.unexpected.queue.with(|queue| self.post_or_wait(queue, posting)) {
            Step::Refused(posting, error) => Err((Error::from(error), posting.operation)),
            Step::Done | Step::Found(_) => Ok(()),
        }
    }

    /// Gives the receive of an answer up that waits; false when it does not.
    pub(super) fn forget_waiting_answer(&self, which: Id) -> bool {
        self.unexpected.queue.with(|queue| {
            let found = queue.answers.forget(which);
            queue.show(&self.unexpected);
            found.is_some()
        })
    }

    /// Claims the answers that have come to those that wait. Only while messages are taken over: none is posted
    /// meanwhile. What it costs goes with the answers that have come, not with those that are awaited.
    pub(super) fn take_answers<L: Layout>(&self) {
        for context in 0..=self.endpoint.others().len() {
            while self.fetch_rest::<L>()
                && self.unexpected.queue.with(|queue| !queue.answers.is_empty())
                && self.take_answer::<L>(context)
            {}
        }
        self.fetch_rest::<L>();
    }

    /// Claims one; false when none has come.
    fn take_answer<L: Layout>(&self, context: usize) -> bool {
        let ask = |from, bits, ignore, claim| {
            let peek = |operation| self.context(context).peek(from, bits, ignore, claim, operation);
            self.ask::<L>(context, peek).ok().flatten()
        };
        let others = self.unexpected.every_bit & !L::ACK;
        let Some(peeked) = ask(Address::ANY, L::ACK, others, !L::DIRECTED) else { return false };
        let bits = peeked.seen.bits;
        let peers = |bits| self.unexpected.queue.with(|queue| queue.answers.peers(context, bits));
        if !L::DIRECTED {
            // One that nobody awaits any more is received all the same.
            self.take_answer_of(context, bits, peers(bits).first().copied(), peeked);
            return true;
        }
        // The tag does not say whose it is.
        let take_of_peers = |bits| {
            let mut answers =
                peers(bits).into_iter().filter_map(|from| Some((from, ask(from, bits, 0, true)?)));
            answers
                .next()
                .map(|(from, peeked)| self.take_answer_of(context, bits, Some(from), peeked))
                .is_some()
        };
        if take_of_peers(bits) {
            return true;
        }
        // Nobody awaits it. It is claimed only while nobody awaits one like it: that might have come by now.
        let peek_unless_awaited = |operation| {
            self.unexpected.queue.with(|queue| {
                if queue.answers.peers(context, bits).is_empty() {
                    self.context(context).peek(Address::ANY, bits, 0, true, operation)
                } else {
                    Err(Unposted { given: operation, error: PostError::Refused(sys::FI_ENOMSG as i32) })
                }
            })
        };
        if let Ok(Some(peeked)) = self.ask::<L>(context, peek_unless_awaited) {
            self.take_answer_of(context, bits, None, peeked);
            return true;
        }
        // As long as it stays it hides those that came after it.
        let others = self.unexpected.queue.with(|queue| queue.answers.all_bits(context));
        others.into_iter().filter(|other| *other != bits).any(take_of_peers)
    }

    /// Ends the first that awaits an answer with these bits from this peer, if one does, which has been claimed.
    fn take_answer_of(&self, context: usize, bits: u64, from: Option<Address>, peeked: Peeked<H>) {
        let first = self.unexpected.queue.with(|queue| {
            queue.receive_nothing(peeked);
            let first = from.and_then(|from| queue.answers.first_of(context, bits, from));
            queue.show(&self.unexpected);
            first
        });
        if let Some(Posting { operation, .. }) = first
            && let Body::Answer { answer } = *operation
        {
            self.answered(operation, answer, Outcome::Success);
        }
    }

    fn post_once(&self, posting: Posting<H>) -> Step<H> {
        let Posting { operation, context, from, source, tag, want } = posting;
        match self.context(context).recv(from, want.bits, want.ignore, operation) {
            Ok(()) => Step::Done,
            Err(Unposted { given: operation, error }) => {
                Step::Refused(Posting { operation, context, from, source, tag, want }, error)
            }
        }
    }

    /// Keeps a place in the provider for claimed messages, with a receive that nothing matches: no message
    /// is synchronous and an answer at once. False when there is no room now. A provider that refuses it
    /// altogether gets none: what waits shall not wait for that.
    fn keep_reserve(&self, queue: &mut Queue<H>) -> bool {
        if self.unexpected.limited && queue.reserve.is_none() {
            let operation = self.pool().take(Body::Reserve);
            let (which, bits) = (operation.id(), self.unexpected.every_bit);
            match self.endpoint.first().recv(Address::ANY, bits, 0, operation) {
                Ok(()) => queue.reserve = Some(which),
                Err(Unposted { error: PostError::TryAgain, .. }) => return false,
                Err(Unposted { error: PostError::Refused(_), .. }) => {}
            }
        }
        true
    }

    /// The receive that kept a place has ended: we took it back, or the provider failed it. Then no place is
    /// kept until waiting receives are looked at again.
    pub(super) fn reserve_ended(&self, operation: Op<H>) {
        let which = operation.id();
        self.unexpected.queue.with(|queue| {
            if queue.reserve == Some(which) {
                queue.reserve = None;
            }
        });
    }

    /// Posts receives that wait, as far as there is room.
    pub(super) fn post_waiting(&self) {
        let unexpected = &self.unexpected;
        while let Some(refused) = unexpected.queue.with(|queue| {
            let kept = self.keep_reserve(queue);
            if !kept {
                self.deferred.set(true, Ordering::Relaxed);
            }
            while kept
                && !queue.taking_over
                && !queue.is_fetching()
                && let Some(posting) = queue.next_waiting()
            {
                match self.post_once(posting) {
                    Step::Refused(posting, PostError::TryAgain) => {
                        queue.wait_again(posting);
                        break;
                    }
                    Step::Refused(posting, _) => {
                        queue.show(unexpected);
                        return Some(posting);
                    }
                    Step::Done | Step::Found(_) => {}
                }
            }
            if queue.is_awaiting() {
                self.deferred.set(true, Ordering::Relaxed);
            }
            queue.show(unexpected);
            None
        }) {
            match *refused.operation {
                Body::Answer { answer } => self.answered(refused.operation, answer, Outcome::Failed),
                _ => refused.end(Outcome::Failed),
            }
        }
    }

    /// Messages have been taken over: others may go on.
    pub(super) fn taken_over(&self) {
        self.unexpected.queue.with(|queue| queue.taking_over = false);
        self.post_waiting();
    }

    /// Whether a message that a probe saw will go to a receive that waits.
    pub(super) fn is_awaited<L: Layout>(&self, seen: &Seen) -> bool {
        self.unexpected.queue.with(|queue| queue.waiting.iter().any(|posting| posting.accepts::<L>(seen)))
    }

    /// Gives a receive up that waits; false when it does not.
    pub(super) fn cancel_waiting(&self, which: Id) -> bool {
        let found = self.unexpected.queue.with(|queue| {
            let at = queue.waiting.iter().position(|posting| posting.id() == which)?;
            let found = queue.waiting.remove(at);
            queue.show(&self.unexpected);
            found
        });
        let there = found.is_some();
        if let Some(posting) = found {
            posting.end(Outcome::Cancelled);
        }
        there
    }
}
