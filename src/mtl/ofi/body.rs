//! [`Body`]: the state of one operation, behind the provider's scratch.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fabric::{Descriptor, Lease, Registration};
use crate::mtl::{Envelope, Outcome, Upcalls};
use crate::wire::tag::Layout;

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not posted, or over.
    Idle,
    /// A receive of the host's.
    Recv,
    /// A receive of a message that a matched probe claimed; its operation comes from the pool.
    Claimed,
    /// A send of the host's.
    Send,
    /// Somebody waits in `pending`: a blocking send or a probe.
    Wait,
    /// An unexpected message that was taken over from the provider.
    Stored,
    /// The answer to a synchronous send.
    Ack,
    /// An announcement that is awaited.
    Listen,
    /// An announcement that is sent.
    Announce,
    /// A receive that keeps a place in the provider.
    Reserve,
}

/// What an operation needs as long as it is posted.
#[derive(Default)]
pub(super) enum Kept {
    /// Nothing: the message lies in the user's buffer.
    #[default]
    Nothing,
    /// The packed bytes of what does not lie in one piece of host memory.
    Bounce(Box<[u8]>),
    /// The provider's right to the user's device memory; none where it needs none.
    Device(Option<Registration>),
}

impl Kept {
    /// The packed bytes, if any.
    pub(super) fn into_bytes(self) -> Box<[u8]> {
        if let Self::Bounce(bytes) = self { bytes } else { Box::default() }
    }

    /// What the provider is shown with device memory; `None` for host memory.
    pub(super) fn descriptor(&self) -> Option<Descriptor> {
        match self {
            Self::Device(registration) => {
                Some(registration.as_ref().map_or(Descriptor::NONE, Registration::descriptor))
            }
            Self::Nothing | Self::Bounce(_) => None,
        }
    }
}

/// The state of one operation. All cells: it is only ever borrowed as `&`.
pub struct Body<H: Upcalls> {
    pub(super) kind: Cell<Kind>,
    pub(super) outcome: Cell<Outcome>,
    /// The host gave it up.
    pub(super) cancelled: Cell<bool>,
    /// Completions still awaited.
    pub(super) pending: AtomicU32,
    pub(super) len: Cell<usize>,
    pub(super) request: Cell<Option<H::Req>>,
    pub(super) comm: Cell<Option<H::Comm>>,
    pub(super) convertor: Cell<Option<H::Conv>>,
    pub(super) kept: Cell<Kept>,
    /// The send that an answer belongs to.
    pub(super) parent: Cell<Option<Lease<Body<H>>>>,
    /// What a probe saw: the tag bits and the data of the message, whose size is in `len`.
    pub(super) bits: Cell<u64>,
    pub(super) data: Cell<u64>,
}

impl<H: Upcalls> Body<H> {
    #[inline]
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind: Cell::new(kind),
            outcome: Cell::new(Outcome::Success),
            cancelled: Cell::new(false),
            pending: AtomicU32::new(1),
            len: Cell::new(0),
            request: Cell::new(None),
            comm: Cell::new(None),
            convertor: Cell::new(None),
            kept: Cell::new(Kept::Nothing),
            parent: Cell::new(None),
            bits: Cell::new(0),
            data: Cell::new(0),
        }
    }

    /// An operation that will never be posted.
    #[inline]
    pub fn idle() -> Self {
        Self::new(Kind::Idle)
    }

    /// What a probe saw.
    pub(super) fn envelope<L: Layout>(&self) -> Envelope {
        let (bits, data) = (self.bits.get(), self.data.get());
        Envelope { source: L::source(bits, data), tag: L::tag(bits), len: self.len.get() }
    }

    /// Notes one completion; true when it was the last.
    #[inline]
    pub(super) fn settle(&self) -> bool {
        // With one completion outstanding nobody else can be writing.
        if self.pending.load(Ordering::Acquire) == 1 {
            // SYNC POINT: settled (acquired in `is_settled`)
            self.pending.store(0, Ordering::Release);
            true
        } else {
            self.pending.fetch_sub(1, Ordering::AcqRel) == 1
        }
    }

    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        // SYNC POINT: settled (released in `settle`)
        self.pending.load(Ordering::Acquire) == 0
    }
}
