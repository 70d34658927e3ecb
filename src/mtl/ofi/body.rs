//! [`Body`]: the transport's state of one operation, by what it is for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::answer::AnswerKey;
use super::exchange::CommKey;
use super::unexpected::MessageKey;
use crate::fabric::{Id, Lease, LoanOf, Work};
use crate::mtl::{Envelope, Outcome, Upcalls};
use crate::sync::EngineCell;
use crate::wire::tag::Layout;

/// The transport's state of one operation. Every completion looks at its kind, which is a number of its own.
#[repr(u32)]
pub enum Body<H: Upcalls> {
    /// A receive of the host's.
    Receive {
        /// Where it listens.
        comm: H::Comm,
    },
    /// A send of the host's.
    Send,
    /// A synchronous send of the host's.
    SynchronousSend {
        /// The answer that it awaits.
        answer: AnswerKey,
    },
    /// Somebody waits for it: a blocking send, a probe.
    Wait(Seen),
    /// A receive of a message that a matched probe claimed, with what the probe saw.
    Claimed {
        /// Where it was sent.
        comm: H::Comm,
        /// What the probe saw.
        seen: Seen,
    },
    /// Brings an unexpected message here.
    Fetch {
        /// The message.
        message: MessageKey,
    },
    /// The receive of an answer to a synchronous send.
    Answer {
        /// Which.
        answer: AnswerKey,
    },
    /// The receive of an announcement.
    Listen,
    /// An announcement that is sent.
    Announce {
        /// Of this communicator.
        comm: CommKey,
        /// To this rank.
        dest: i32,
    },
    /// A receive that keeps a place in the provider.
    Reserve,
}

impl<H: Upcalls> Clone for Body<H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H: Upcalls> Copy for Body<H> {}

impl<H: Upcalls> Work for Body<H> {
    type Convertor = H::Conv;
    type Request = H::Req;
}

/// The right to an operation.
pub(super) type Op<H> = Lease<Body<H>>;
/// A request of the host's with its memory.
pub(super) type Lent<H> = LoanOf<Body<H>>;

/// What somebody who waits learns, and what a probe saw of a message.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// How it ended; with a positive `fi_errno(3)` code when it failed.
    pub(super) ended: Result<(), i32>,
    /// The message's tag bits.
    pub(super) bits: u64,
    /// The data that travelled outside the tag.
    pub(super) data: u64,
    /// Its bytes.
    pub(super) len: usize,
}

impl Seen {
    /// Nothing yet.
    pub(super) const NOTHING: Self = Self { ended: Ok(()), bits: 0, data: 0, len: 0 };

    /// What MPI knows of the message.
    #[inline]
    pub(super) fn envelope<L: Layout>(&self) -> Envelope {
        Envelope { source: L::source(self.bits, self.data), tag: L::tag(self.bits), len: self.len }
    }
}

/// What the host is told of an operation that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) outcome: Outcome,
    /// Positive `fi_errno(3)` code.
    pub(super) code: i32,
}

/// Operations that have ended and that somebody waits for, who may be another thread, or this one
/// further up its stack.
pub(super) struct Ready<H: Upcalls> {
    count: AtomicUsize,
    operations: EngineCell<Vec<Op<H>>>,
}

impl<H: Upcalls> Ready<H> {
    pub(super) fn new() -> Self {
        Self { count: AtomicUsize::new(0), operations: EngineCell::new(Vec::new()) }
    }

    pub(super) fn put(&self, operation: Op<H>) {
        self.operations.with(|operations| {
            operations.push(operation);
            // SYNC POINT: ready (acquired in `take`)
            self.count.store(operations.len(), Ordering::Release);
        });
    }

    /// The operation, if it has ended.
    #[inline]
    pub(super) fn take(&self, which: Id) -> Option<Op<H>> {
        // SYNC POINT: ready (released in `put`)
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.operations.with(|operations| {
            let at = operations.iter().position(|operation| operation.id() == which)?;
            let found = operations.swap_remove(at);
            self.count.store(operations.len(), Ordering::Relaxed);
            Some(found)
        })
    }
}
