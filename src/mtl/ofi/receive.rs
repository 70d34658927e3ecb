//! Receives: posted into the user's buffer, or into one of our own and unpacked at the end.

use std::sync::atomic::Ordering;

use super::body::{Failed, Op, Seen};
use super::{Body, LONG_WAY, Ofi, counters, envelope};
use crate::error::Result;
use crate::fabric::{Address, AtOnce, Ended, Failure, Place, Standing};
use crate::mtl::{Communicator, Envelope, Outcome, Request, Upcalls};
use crate::wire::tag::{Layout, Selector};

impl<H: Upcalls> Ofi<H> {
    /// The short path: from a known peer, into one piece of memory, at the first try. Else the place is to be made
    /// again.
    #[inline(always)]
    pub fn irecv_at_once<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        place: Place<Body<H>>,
    ) -> AtOnce {
        let Some(from) = self.source::<L>(comm, source) else { return AtOnce::Untried };
        let want = L::receive(comm.context_id(), source, tag);
        let body = Body::Receive { comm };
        self.endpoint.first().recv_at_once(LONG_WAY, from, want.bits, want.ignore, place, body)
    }

    /// Whom a receive matches, as far as that is known. Where the source is in the tag the address need not match too.
    #[inline(always)]
    fn source<L: Layout>(&self, comm: H::Comm, source: Selector) -> Option<Address> {
        if !L::DIRECTED {
            return Some(Address::ANY);
        }
        match self.known(comm, source.0) {
            None if source.is_any() => Some(Address::ANY),
            known => known,
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The peer is unknown, or the provider refuses the receive. Then the request is not completed.
    pub fn irecv<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        place: Place<Body<H>>,
    ) -> Result<()> {
        let operation = place.install(Body::Receive { comm });
        let want = L::receive(comm.context_id(), source, tag);
        let posted = match self.source::<L>(comm, source) {
            Some(from) => {
                self.endpoint.first().recv_in_place(LONG_WAY, from, want.bits, want.ignore, operation)
            }
            None => Err(operation),
        };
        match posted {
            Ok(()) => Ok(()),
            Err(operation) => self.irecv_slowly::<L>(comm, source, tag, operation),
        }
    }

    /// Posts a receive that the provider did not take on the short path.
    ///
    /// # Errors
    /// Those of [`irecv`](Self::irecv).
    pub fn irecv_again<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        place: Place<Body<H>>,
    ) -> Result<()> {
        self.irecv_slowly::<L>(comm, source, tag, place.install(Body::Receive { comm }))
    }

    /// Makes a receive hold its room: the user's buffer as it lies, on a device with a registration, or
    /// one of our own.
    pub(super) fn land(&self, operation: &mut Op<H>) {
        if operation.lands_in_place() || self.land_on_device(operation) {
            return;
        }
        let size = operation.view().map_or(0, |view| view.size());
        counters::COPIED_RECEIVES.add(1);
        counters::COPIED_BYTES.add(size as u64);
        operation.hold_bytes(vec![0_u8; size].into_boxed_slice());
    }

    /// A receive of the host's ended well.
    #[inline(always)]
    pub(super) fn received<L: Layout>(
        &self,
        context: usize,
        operation: Op<H>,
        comm: H::Comm,
        bits: u64,
        data: u64,
        len: usize,
    ) {
        let envelope = envelope::<L>(bits, data, len);
        if bits & L::SYNC != 0 {
            self.answer::<L>(context, comm, bits, envelope.source);
        }
        match operation.end_in_place(len) {
            Ok(loan) => loan.end().received(envelope, Outcome::Success),
            Err(operation) => self.deliver(context, operation, envelope),
        }
    }

    /// Moves what was received to where the user wants it, and completes the request.
    #[inline(never)]
    fn deliver(&self, context: usize, operation: Op<H>, envelope: Envelope) {
        let (len, room) = (envelope.len, operation.room());
        let mut outcome = Outcome::Success;
        // Some providers cut a message short without an error, and others would fall over it.
        if len > room {
            counters::TRUNCATED.add(1);
            outcome = Outcome::Truncated;
            self.context(context).overran(len - room);
        }
        let Ended { loan: Some(mut loan), bytes, .. } = operation.end() else { return };
        let filled = bytes.as_deref().map(|bytes| &bytes[..len.min(room)]).unwrap_or_default();
        if !filled.is_empty() && loan.unpack(filled).is_err() {
            outcome = Outcome::Failed;
        }
        loan.end().received(Envelope { len: len.min(room), ..envelope }, outcome);
    }

    /// A claimed message arrived: its envelope is the one that the probe saw.
    pub(super) fn claimed<L: Layout>(
        &self,
        context: usize,
        operation: Op<H>,
        comm: H::Comm,
        seen: Seen,
        len: usize,
    ) {
        let envelope = Envelope { len, ..seen.envelope::<L>() };
        if seen.bits & L::SYNC != 0 {
            self.answer::<L>(context, comm, seen.bits, envelope.source);
        }
        self.deliver(context, operation, envelope);
    }

    /// A receive of the host's failed or was cancelled.
    #[cold]
    pub(super) fn receive_failed<L: Layout>(
        &self,
        context: usize,
        operation: Op<H>,
        comm: H::Comm,
        failed: Failed,
        entry: &Failure<Body<H>>,
    ) {
        let len = entry.len.min(operation.room());
        let seen = Seen { ended: Err(failed.code), bits: entry.tag, data: entry.data, len };
        self.failed_with::<L>(context, operation, comm, failed.outcome, seen);
    }

    /// Ends a receive of a message that was matched and has not come whole, or of none.
    #[cold]
    pub(super) fn failed_with<L: Layout>(
        &self,
        context: usize,
        operation: Op<H>,
        comm: H::Comm,
        outcome: Outcome,
        seen: Seen,
    ) {
        let envelope = seen.envelope::<L>();
        // Cut short, yet matched: a synchronous sender may go on.
        if outcome == Outcome::Truncated && seen.bits & L::SYNC != 0 {
            self.answer::<L>(context, comm, seen.bits, envelope.source);
        }
        if let Some(loan) = operation.end().loan {
            loan.end().received(envelope, outcome);
        }
    }

    /// Gives a receive up if it has not been matched; what has started goes on.
    pub fn cancel<L: Layout>(&self, receive: &Standing<'_, Body<H>>) {
        // What has arrived in the meantime counts as received.
        self.progress::<L>();
        if self.unexpected.watch.load(Ordering::Relaxed) && self.cancel_waiting(receive.id()) {
            return;
        }
        receive.give_up();
        self.endpoint.first().cancel(receive);
        self.endpoint.others().iter().for_each(|context| context.cancel(receive));
    }
}
