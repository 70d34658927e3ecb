//! Receives: posted into the user's buffer, or into one of our own and unpacked at the end.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::body::{Kept, Kind};
use super::{Body, Ofi, counters, envelope};
use crate::error::Result;
use crate::fabric::{Address, Descriptor, Failure, Landing, Lease, Place};
use crate::mtl::{Communicator, Convertor, Envelope, Outcome, Request, Upcalls};
use crate::wire::tag::{Layout, Selector};

impl<H: Upcalls> Ofi<H> {
    /// Posts a receive.
    #[inline(always)]
    pub fn irecv<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        convertor: H::Conv,
        request: H::Req,
        place: Place<Body<H>>,
    ) -> Result<()> {
        // Where the source is in the tag the address need not match too.
        let from =
            if L::DIRECTED && !source.is_any() { self.known(comm, source.0) } else { Some(Address::ANY) };
        if !self.backlog.long_way.load(Ordering::Relaxed)
            && let Some(from) = from
            && let Some(landing) = convertor.landing()
        {
            let want = L::receive(comm.context_id(), source, tag);
            let lease = place.install(Body {
                len: Cell::new(landing.len()),
                request: Cell::new(Some(request)),
                comm: Cell::new(Some(comm)),
                ..Body::new(Kind::Recv)
            });
            if self.endpoint.first().recv(landing, from, want.bits, want.ignore, lease).is_ok() {
                return Ok(());
            }
        }
        self.irecv_slowly::<L>(comm, source, tag, convertor, request, place)
    }

    /// Receives the message that a matched probe claimed.
    pub fn imrecv<L: Layout>(
        &self,
        claim: Lease<Body<H>>,
        convertor: H::Conv,
        request: H::Req,
    ) -> Result<()> {
        let (lease, seen) = (claim, claim.envelope::<L>());
        if self.is_stored(lease) {
            self.imrecv_stored::<L>(lease, convertor, request);
            return Ok(());
        }
        let Some(comm) = lease.comm.get() else { return Err(crate::error::Error::NotFound) };
        let context = self.context_of(comm);
        let from = if L::DIRECTED { self.address(comm, seen.source, 0)? } else { Address::ANY };
        let (landing, through) = self.land(convertor, lease);
        lease.kind.set(Kind::Claimed);
        lease.request.set(Some(request));
        lease.outcome.set(Outcome::Success);
        lease.pending.store(1, Ordering::Release);
        let posted = self.post::<L>(|| {
            self.context(context).take(landing, through, from, lease.bits.get() & !L::SYNC, L::SYNC, lease)
        });
        if posted.is_err() {
            lease.kind.set(Kind::Idle);
            drop(lease.kept.take());
            self.pool.put(lease);
        }
        posted
    }

    /// Where the message goes: the user's buffer, with a descriptor on a device, or one of our own
    /// that the operation holds.
    pub(super) fn land(&self, convertor: H::Conv, lease: Lease<Body<H>>) -> (Landing, Option<Descriptor>) {
        let (landing, through) = if let Some(landing) = convertor.landing() {
            (landing, None)
        } else {
            // What is kept is looked at when the receive ends.
            lease.convertor.set(Some(convertor));
            if let Some((landing, through)) = self.device_landing(convertor, lease) {
                (landing, Some(through))
            } else {
                let mut buffer = vec![0_u8; convertor.packed_size()].into_boxed_slice();
                let landing = Landing::held(&mut buffer);
                counters::COPIED_RECEIVES.add(1);
                counters::COPIED_BYTES.add(buffer.len() as u64);
                lease.kept.set(Kept::Bounce(buffer));
                (landing, None)
            }
        };
        lease.len.set(landing.len());
        (landing, through)
    }

    /// A receive of the host's ended well.
    #[inline(always)]
    pub(super) fn received<L: Layout>(
        &self,
        context: usize,
        lease: Lease<Body<H>>,
        bits: u64,
        data: u64,
        len: usize,
    ) {
        lease.kind.set(Kind::Idle);
        let envelope = envelope::<L>(bits, data, len);
        if bits & L::SYNC != 0 {
            self.answer::<L>(context, lease, bits, envelope.source);
        }
        if len > lease.len.get() || lease.convertor.get().is_some() {
            return self.deliver_slowly::<L>(lease, bits, data, len);
        }
        if let Some(request) = lease.request.get() {
            request.received(envelope, Outcome::Success);
        }
    }

    #[inline(never)]
    fn deliver_slowly<L: Layout>(&self, lease: Lease<Body<H>>, bits: u64, data: u64, len: usize) {
        let envelope = envelope::<L>(bits, data, len);
        let (request, outcome) = self.unload(lease, envelope.len);
        if let Some(request) = request {
            request.received(Envelope { len: envelope.len.min(lease.len.get()), ..envelope }, outcome);
        }
    }

    /// A claimed message arrived: its envelope is the one that the probe saw.
    pub(super) fn claimed<L: Layout>(&self, context: usize, lease: Lease<Body<H>>, len: usize) {
        lease.kind.set(Kind::Idle);
        let bits = lease.bits.get();
        let envelope = Envelope { len, ..lease.envelope::<L>() };
        if bits & L::SYNC != 0 {
            self.answer::<L>(context, lease, bits, envelope.source);
        }
        let (request, outcome) = self.unload(lease, len);
        self.pool.put(lease);
        if let Some(request) = request {
            request.received(envelope, outcome);
        }
    }

    /// Moves what was received to where the user wants it.
    fn unload(&self, lease: Lease<Body<H>>, len: usize) -> (Option<H::Req>, Outcome) {
        let request = lease.request.take();
        let mut outcome = Outcome::Success;
        // Some providers cut a message short without an error, and others would fall over it.
        if len > lease.len.get() {
            counters::TRUNCATED.add(1);
            outcome = Outcome::Truncated;
            if let Some(comm) = lease.comm.get() {
                self.context(self.context_of(comm)).overran(len - lease.len.get());
            }
        }
        if let Some(convertor) = lease.convertor.take() {
            // Of a device buffer only the registration is kept, and ends here.
            let bounce = lease.kept.take().into_bytes();
            let filled = &bounce[..len.min(bounce.len())];
            if !filled.is_empty() && convertor.unpack(filled).is_err() {
                outcome = Outcome::Failed;
            }
        }
        (request, outcome)
    }

    /// A receive of the host's failed or was cancelled.
    #[cold]
    pub(super) fn receive_failed<L: Layout>(
        &self,
        context: usize,
        lease: Lease<Body<H>>,
        failure: &Failure<Body<H>>,
    ) {
        lease.kind.set(Kind::Idle);
        let seen = envelope::<L>(failure.tag, failure.data, failure.len.min(lease.len.get()));
        // Cut short, yet matched: a synchronous sender may go on.
        if lease.outcome.get() == Outcome::Truncated && failure.tag & L::SYNC != 0 {
            self.answer::<L>(context, lease, failure.tag, seen.source);
        }
        drop(lease.kept.take());
        let outcome = lease.outcome.get();
        if let Some(request) = lease.request.take() {
            request.received(seen, outcome);
        }
    }

    /// A claimed message could not be received.
    #[cold]
    pub(super) fn claim_failed<L: Layout>(
        &self,
        context: usize,
        lease: Lease<Body<H>>,
        failure: &Failure<Body<H>>,
    ) {
        lease.kind.set(Kind::Idle);
        let seen = Envelope { len: failure.len.min(lease.len.get()), ..lease.envelope::<L>() };
        let bits = lease.bits.get();
        if lease.outcome.get() == Outcome::Truncated && bits & L::SYNC != 0 {
            self.answer::<L>(context, lease, bits, seen.source);
        }
        drop(lease.kept.take());
        let (outcome, request) = (lease.outcome.get(), lease.request.take());
        self.pool.put(lease);
        if let Some(request) = request {
            request.received(seen, outcome);
        }
    }

    /// Gives a receive up if it has not been matched; what has started goes on.
    pub fn cancel<L: Layout>(&self, lease: Lease<Body<H>>) {
        // What has arrived in the meantime counts as received.
        self.progress::<L>();
        if self.backlog.watch.load(Ordering::Relaxed) && self.cancel_waiting(lease) {
            return;
        }
        if lease.kind.get() == Kind::Recv
            && let Some(comm) = lease.comm.get()
        {
            lease.cancelled.set(true);
            self.context(self.context_of(comm)).cancel(lease);
        }
    }
}
