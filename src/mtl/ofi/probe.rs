//! Probes: a peek that the provider answers through the completion queue.

use std::sync::atomic::Ordering;

use super::backlog::Sight;
use super::body::Kind;
use super::{Body, Ofi, counters};
use crate::error::{Error, Result};
use crate::fabric::{Address, Lease, PostError, sys};
use crate::mtl::{Communicator, Envelope, Outcome, Upcalls};
use crate::wire::tag::{Layout, Pattern, Selector};

/// A message that a matched probe took out of matching. It must be received.
pub struct Claim<H: Upcalls> {
    /// The operation under which it was claimed.
    pub lease: Lease<Body<H>>,
    /// What is known of the message.
    pub envelope: Envelope,
}

impl<H: Upcalls> Ofi<H> {
    /// Whether a message is there.
    pub fn iprobe<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
    ) -> Result<Option<Envelope>> {
        let claim = self.peek::<L>(comm, source, tag, false)?;
        Ok(claim.map(|claim| {
            // What was found in the backlog stays there.
            if claim.lease.kind.get() != Kind::Stored {
                self.pool.put(claim.lease);
            }
            claim.envelope
        }))
    }

    /// As [`iprobe`](Self::iprobe), and nobody else will match the message.
    pub fn improbe<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
    ) -> Result<Option<Claim<H>>> {
        self.peek::<L>(comm, source, tag, true)
    }

    fn peek<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        claim: bool,
    ) -> Result<Option<Claim<H>>> {
        if !self.can_probe {
            return Err(Error::Unsupported);
        }
        let want = L::receive(comm.context_id(), source, tag);
        if !self.backlog.watch.load(Ordering::Relaxed) {
            return self.peek_provider::<L>(comm, source, want, claim);
        }
        // While a peek is under way nothing is taken over, so a loop of probes does it between them.
        if self.backlog.is_time() {
            self.take_over::<L>();
        }
        match self.look::<L>(want, source, claim) {
            Sight::Later => Ok(None),
            Sight::AskProvider => {
                let found = self.peek_past_waiting::<L>(comm, source, want, claim);
                let claimed = found.as_ref().ok().and_then(|found| found.as_ref().map(|claim| claim.lease));
                self.looked(claimed.filter(|_| claim && self.backlog.needed));
                found
            }
            Sight::Seen(envelope, lease) => {
                lease.comm.set(Some(comm));
                Ok(Some(Claim { lease, envelope }))
            }
        }
    }

    /// As [`peek_provider`](Self::peek_provider), but what a waiting receive will get is not there.
    fn peek_past_waiting<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
        claim: bool,
    ) -> Result<Option<Claim<H>>> {
        if self.backlog.waiting.load(Ordering::Relaxed)
            && let Some(seen) = self.peek_provider::<L>(comm, source, want, false)?
        {
            let awaited = self.is_awaited::<L>(seen.lease);
            self.pool.put(seen.lease);
            if awaited {
                return Ok(None);
            }
        }
        self.peek_provider::<L>(comm, source, want, claim)
    }

    fn peek_provider<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        want: Pattern,
        claim: bool,
    ) -> Result<Option<Claim<H>>> {
        let context = self.context_of(comm);
        let from =
            if L::DIRECTED && !source.is_any() { self.address(comm, source.0, 0)? } else { Address::ANY };
        counters::PROBES.add(1);
        let lease = self.pool.take(Body::new(Kind::Wait));
        lease.comm.set(Some(comm));
        let mut spins = 0;
        let posted = loop {
            match self.context(context).peek(from, want.bits, want.ignore, claim, lease) {
                Err(PostError::TryAgain) => self.turn::<L>(&mut spins),
                other => break other,
            }
        };
        match posted {
            Ok(()) => self.wait::<L>(lease),
            Err(PostError::Refused(code)) if code == sys::FI_ENOMSG as i32 => {
                lease.outcome.set(Outcome::Cancelled)
            }
            Err(error) => {
                self.pool.put(lease);
                return Err(Error::from(error));
            }
        }
        match lease.outcome.get() {
            Outcome::Success => Ok(Some(Claim { lease, envelope: lease.envelope::<L>() })),
            Outcome::Cancelled => {
                self.pool.put(lease);
                Ok(None)
            }
            Outcome::Truncated | Outcome::Failed => {
                self.pool.put(lease);
                Err(Error::Fabric(0))
            }
        }
    }
}
