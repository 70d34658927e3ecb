//! Probes: a peek that the provider answers through the completion queue.

use std::sync::atomic::Ordering;

use super::body::{Op, Seen};
use super::unexpected::{Peeked, Sight};
use super::{Body, LONG_WAY, Ofi, counters, envelope};
use crate::error::{Error, Result};
use crate::fabric::{
    Address, Completion, Failure, Id, Late, Pause, Peek, Post, PostError, Trouble, Unposted, Wanted, sys,
};
use crate::mtl::{Claim, Communicator, Envelope, Upcalls};
use crate::wire::tag::{Layout, Pattern, Selector};

/// So many probes are answered before the queue is read for the sake of everything else.
const PROBES_IN_A_ROW: u32 = 8;

impl<H: Upcalls> Ofi<H> {
    /// Whether a message is there.
    ///
    /// # Errors
    /// The provider cannot be asked, or its answer is an error; or the peer is unknown.
    #[inline(always)]
    pub fn iprobe<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
    ) -> Result<Option<Envelope>> {
        let want = L::receive(comm.context_id(), source, tag);
        let mut wanted = Self::wanted(want);
        match self.probe_at_once::<L>(comm, source, &mut wanted) {
            Peek::Nothing => Ok(None),
            peek => self.iprobe_slowly::<L>(comm, source, want, peek, wanted),
        }
    }

    #[inline(always)]
    fn wanted(want: Pattern) -> Wanted {
        Wanted { from: Address::ANY, bits: want.bits, ignore: want.ignore, len: 0, data: 0 }
    }

    /// The short path: the provider answers at once, and nothing lies here.
    #[inline(always)]
    fn probe_at_once<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        wanted: &mut Wanted,
    ) -> Peek<Body<H>> {
        if L::DIRECTED && !source.is_any() {
            let Some(from) = self.known(comm, source.0) else { return Peek::Unasked };
            wanted.from = from;
        }
        if !self.is_probe_ready::<L>() {
            return Peek::Unasked;
        }
        let pending = &self.unexpected.probes;
        let peek = self.endpoint.first().peek_at_once(LONG_WAY, pending, wanted);
        if !matches!(peek, Peek::Unasked) {
            counters::PROBES.add(1);
        }
        peek
    }

    /// A program may do nothing but probe. Its answers come as errors, which hide completions: these are read,
    /// and what is owed to others leaves, all the same.
    #[inline(always)]
    fn advance_now_and_then<L: Layout>(&self) {
        // Other threads may count over it: that only changes when.
        let probes = self.probes.load(Ordering::Relaxed).wrapping_add(1);
        self.probes.store(probes, Ordering::Relaxed);
        if probes.is_multiple_of(PROBES_IN_A_ROW) {
            self.progress::<L>();
        }
    }

    /// Counts a probe. False when it is time to look for unexpected messages.
    #[inline(always)]
    fn is_probe_ready<L: Layout>(&self) -> bool {
        self.advance_now_and_then::<L>();
        !self.unexpected.is_time()
    }

    /// The answer to a probe that did not come at once.
    #[cold]
    fn late_answer<L: Layout>(&self, late: Late<Body<H>>) -> Result<Option<Envelope>> {
        let Late { which, trouble } = late;
        if let Some(trouble) = trouble {
            self.trouble::<L>(0, trouble);
        }
        let operation = self.wait::<L>(which);
        self.unexpected.end_probe();
        let Body::Wait(seen) = *operation else { return Err(Error::NotFound) };
        self.keep_asker(0, operation);
        match seen.ended {
            Ok(()) => Ok(Some(seen.envelope::<L>())),
            Err(code) if code == sys::FI_ENOMSG as i32 => Ok(None),
            Err(code) => Err(Error::Fabric(code)),
        }
    }

    /// The operation of a probe has ended, and can be that of the next.
    fn keep_asker(&self, context: usize, mut operation: Op<H>) {
        *operation = Body::Wait(Seen::NOTHING);
        self.context(context).keep_asker(operation);
    }

    /// What came of a probe that did not find nothing at once.
    #[inline(never)]
    fn iprobe_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
        peek: Peek<Body<H>>,
        wanted: Wanted,
    ) -> Result<Option<Envelope>> {
        match peek {
            Peek::Unasked => {}
            Peek::Nothing => return Ok(None),
            Peek::Found => return Ok(Some(envelope::<L>(wanted.bits, wanted.data, wanted.len))),
            Peek::Failed(code) => return Err(Error::Fabric(code)),
            Peek::Pending(late) => return self.late_answer::<L>(*late),
        }
        let peeked = if !self.unexpected.is_guarded() {
            self.peek_provider::<L>(comm, source, want, false)
        } else if self.unexpected.begin_probe() {
            let peeked = self.peek_provider::<L>(comm, source, want, false);
            self.unexpected.end_probe();
            peeked
        } else {
            match self.look_first::<L>(comm, source, want, false) {
                Sight::Later => return Ok(None),
                Sight::AskProvider => {
                    let peeked = self.peek_provider::<L>(comm, source, want, false);
                    self.looked(None, comm);
                    // What a waiting receive will get is not there.
                    let is_there = |peeked: &Peeked<H>| !self.is_awaited::<L>(&peeked.seen);
                    peeked.map(|peeked| peeked.filter(is_there))
                }
                // No question has begun that claims.
                Sight::ClaimAlone => return Ok(None),
                Sight::Seen(envelope, _) => return Ok(Some(envelope)),
            }
        };
        Ok(peeked?.map(|Peeked { operation, context, seen }| {
            self.keep_asker(context, operation);
            seen.envelope::<L>()
        }))
    }

    /// As [`iprobe`](Self::iprobe), and nobody else will match the message.
    ///
    /// # Errors
    /// Those of [`iprobe`](Self::iprobe).
    pub fn improbe<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
    ) -> Result<Option<Claim>> {
        let want = L::receive(comm.context_id(), source, tag);
        // Most probes find nothing, and a claim needs an operation that stays.
        match self.probe_at_once::<L>(comm, source, &mut Self::wanted(want)) {
            Peek::Nothing => return Ok(None),
            Peek::Found | Peek::Unasked => {}
            Peek::Failed(code) => return Err(Error::Fabric(code)),
            Peek::Pending(late) => {
                if self.late_answer::<L>(*late)?.is_none() {
                    return Ok(None);
                }
            }
        }
        self.improbe_slowly::<L>(comm, source, want)
    }

    #[inline(never)]
    fn improbe_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
    ) -> Result<Option<Claim>> {
        if !self.unexpected.is_guarded() {
            let Some(peeked) = self.peek_provider::<L>(comm, source, want, true)? else { return Ok(None) };
            let envelope = peeked.seen.envelope::<L>();
            return Ok(Some(Claim { message: self.claim(peeked, comm), envelope }));
        }
        match self.look_first::<L>(comm, source, want, true) {
            Sight::Later => Ok(None),
            Sight::ClaimAlone => self.claim_alone::<L>(comm, source, want),
            Sight::AskProvider => {
                let (peeked, error) = match self.peek_provider::<L>(comm, source, want, true) {
                    Ok(peeked) => (peeked, None),
                    Err(error) => (None, Some(error)),
                };
                let envelope = peeked.as_ref().map(|peeked| peeked.seen.envelope::<L>());
                let message = self.looked(peeked, comm);
                error.map_or(Ok(()), Err)?;
                Ok(message.zip(envelope).map(|(message, envelope)| Claim { message, envelope }))
            }
            Sight::Seen(envelope, message) => Ok(Some(Claim { message, envelope })),
        }
    }

    /// Claims a message while messages are taken over, so that no receive is posted: one that waits may be the first that
    /// wants what was claimed, and gets it. And a provider that keeps few messages forgets who has claimed one when a
    /// receive is posted ([`unexpected`](super::unexpected)): there it is brought here first.
    fn claim_alone<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
    ) -> Result<Option<Claim>> {
        // Nothing is claimed while there is no room to fetch what is claimed already.
        let peeked = match self.fetch_rest::<L>() {
            true => self.peek_provider::<L>(comm, source, want, true),
            false => Ok(None),
        };
        let claimed = peeked.map(|peeked| {
            peeked.and_then(|peeked| {
                let envelope = peeked.seen.envelope::<L>();
                if self.is_awaited::<L>(&peeked.seen) {
                    self.keep_taken::<L>(peeked);
                    return None;
                }
                let message = match self.unexpected.needed {
                    true => self.fetch_claimed(peeked, comm),
                    false => self.claim(peeked, comm),
                };
                Some(Claim { message, envelope })
            })
        });
        self.fetch_rest::<L>();
        self.taken_over();
        claimed
    }

    /// Looks among the messages that lie here.
    fn look_first<L: Layout>(&self, comm: H::Comm, source: Selector, want: Pattern, claim: bool) -> Sight {
        // While a peek is under way nothing is taken over, so a loop of probes does it between them.
        if self.unexpected.is_time() {
            self.take_over::<L>();
        }
        self.look::<L>(comm, want, source, claim)
    }

    #[inline]
    fn peek_provider<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
        claim: bool,
    ) -> Result<Option<Peeked<H>>> {
        if !self.can_probe {
            return Err(Error::Unsupported);
        }
        self.advance_now_and_then::<L>();
        let context = self.context_of(comm);
        let from =
            if L::DIRECTED && !source.is_any() { self.address(comm, source.0, 0)? } else { Address::ANY };
        counters::PROBES.add(1);
        self.ask::<L>(context, |operation| {
            self.context(context).peek(from, want.bits, want.ignore, claim, operation)
        })
    }

    /// Asks the provider with `peek`, again while it puts that off, and waits for its answer.
    #[inline]
    pub(super) fn ask<L: Layout>(
        &self,
        context: usize,
        peek: impl Fn(Op<H>) -> Post<Body<H>>,
    ) -> Result<Option<Peeked<H>>> {
        #[cfg(test)]
        self.unexpected.asked.fetch_add(1, Ordering::Relaxed);
        let mut operation = self.pool().take(Body::Wait(Seen::NOTHING));
        let which = operation.id();
        let mut spins = 0;
        while let Err(Unposted { given, error }) = peek(operation) {
            operation = given;
            match error {
                PostError::TryAgain => self.turn::<L>(&mut spins),
                PostError::Refused(code) if code == sys::FI_ENOMSG as i32 => {
                    self.keep_asker(context, operation);
                    return Ok(None);
                }
                error => return Err(Error::from(error)),
            }
        }
        let (operation, seen) = self.answer_to::<L>(context, which)?;
        match seen.ended {
            Ok(()) => Ok(Some(Peeked { operation, context, seen })),
            Err(code) if code == sys::FI_ENOMSG as i32 => {
                self.keep_asker(context, operation);
                Ok(None)
            }
            Err(code) => Err(Error::Fabric(code)),
        }
    }

    /// Waits for the end of a peek. As a rule it is what the queue says next.
    #[inline]
    fn answer_to<L: Layout>(&self, index: usize, which: Id) -> Result<(Op<H>, Seen)> {
        let context = self.context(index);
        match context.poll() {
            Ok((Completion { lease, len, data, tag }, _)) if lease.id() == which => {
                return Ok((lease, Seen { ended: Ok(()), bits: tag, data, len }));
            }
            Ok((completion, _)) => self.dispatch::<L>(index, completion),
            Err(Pause::Empty) => {}
            Err(Pause::Error(code)) => match context.failure(code) {
                Trouble::Operation(Failure { lease: Some(lease), code, .. }) if lease.id() == which => {
                    return Ok((lease, Seen { ended: Err(code), ..Seen::NOTHING }));
                }
                trouble => self.trouble::<L>(index, trouble),
            },
        }
        let operation = self.wait::<L>(which);
        let Body::Wait(seen) = *operation else { return Err(Error::NotFound) };
        Ok((operation, seen))
    }
}
