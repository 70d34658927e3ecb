//! Answers to synchronous sends: a sender goes on when the receiver tells it that the message was matched.

use super::body::Kind;
use super::{Body, Ofi, Outgoing};
use crate::fabric::Lease;
use crate::mtl::{Communicator, Outcome, Upcalls};
use crate::wire::tag::Layout;

impl<H: Upcalls> Ofi<H> {
    /// Tells the sender of a synchronous message that it was matched.
    #[inline(never)]
    pub(super) fn answer<L: Layout>(&self, context: usize, lease: Lease<Body<H>>, bits: u64, source: i32) {
        let Some(comm) = lease.comm.get() else { return };
        match self.address(comm, source, context) {
            Ok(to) => {
                self.dispatch_out::<L>(Outgoing::Answer { context, to, bits: L::ack(bits, comm.rank()) })
            }
            Err(error) => H::notice(
                "peer unreachable",
                &format!("rank {source} sent a synchronous message and cannot be answered: {error}"),
            ),
        }
    }

    /// The answer to a synchronous send came, or never will.
    pub(super) fn acked(&self, ack: Lease<Body<H>>, outcome: Outcome) {
        let parent = ack.parent.take();
        self.pool.put(ack);
        let Some(parent) = parent else { return };
        if outcome != Outcome::Success {
            parent.outcome.set(Outcome::Failed);
        }
        let request_send = parent.kind.get() == Kind::Send;
        if parent.settle() && request_send {
            self.sent(parent);
        }
    }
}
