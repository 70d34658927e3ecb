//! What the engine and its user say to each other: memory, peers, fragments, events, datagrams.

use super::slab::Key;
use crate::error::Result;
use crate::wire::usnic::Header;
use std::ops::Range;

/// Memory that the engine may read from (sends) or write to (PUT, GET); it never sees an address.
pub trait Memory: Clone {
    /// Bytes there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies out of it. The engine keeps within [`Self::len`].
    fn read(&self, offset: usize, to: &mut [u8]);
    /// Copies `len` bytes of it behind what is in `to`. The engine keeps within [`Self::len`].
    fn append(&self, offset: usize, len: usize, to: &mut Vec<u8>) {
        let start = to.len();
        to.resize(start + len, 0);
        self.read(offset, &mut to[start..]);
    }
    /// Copies into it. The engine keeps within [`Self::len`].
    fn write(&self, offset: usize, from: &[u8]);
    /// Has `len` bytes of it changed, where they are or by way of a copy. The engine keeps within [`Self::len`].
    fn change<R>(&self, offset: usize, len: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut copy = vec![0; len];
        self.read(offset, &mut copy);
        let outcome = change(&mut copy);
        self.write(offset, &copy);
        outcome
    }
}

/// A queue of datagrams with its own receive buffer at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Acknowledgements and tiny fragments.
    Priority,
    /// All else, and everything that is sent again.
    Data,
}

impl Channel {
    /// Both, the urgent one first.
    pub const BOTH: [Self; 2] = [Self::Priority, Self::Data];
}

/// Who we are.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Name of this process in its job.
    pub name: u64,
    /// Which life of it.
    pub incarnation: u32,
    /// The key that peers tag their packets to us with.
    pub key: [u8; 16],
}

/// Who somebody else is.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Name of its process in its job.
    pub name: u64,
    /// Which life of it.
    pub incarnation: u32,
    /// The key that we tag our packets to it with.
    pub key: [u8; 16],
    /// Longest datagram, header and all, that both sides and the path carry.
    pub max_datagram: usize,
}

/// A connection to a peer. A stale one is an error, never another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(pub(super) Key);

impl EndpointId {
    /// One number for it, never 0.
    pub const fn raw(self) -> u64 {
        self.0.raw()
    }

    /// The id that [`Self::raw`] made; any other number is an id of nothing.
    pub const fn from_raw(raw: u64) -> Self {
        Self(Key::from_raw(raw))
    }

    /// Place in the table of endpoints: small, unique among those connected, used again later.
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

/// The caller's own name of an operation.
pub type Cookie = u64;

/// What to send: a PML header and data, each perhaps empty, sent as one fragment.
#[derive(Clone, Debug)]
pub struct Fragment<M> {
    /// Tag of the PML.
    pub tag: u8,
    /// The bytes, one piece after the other.
    pub pieces: [Option<M>; 2],
    /// Comes back in [`Event::Done`].
    pub cookie: Cookie,
    /// May overtake what was sent before.
    pub priority: bool,
    /// Somebody waits for its end: unless it is tiny, its last segment asks for an acknowledgement.
    pub awaited: bool,
}

/// What the datagram at hand was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// Nothing to do now.
    Nothing,
    /// Deliver these bytes of the datagram now.
    Deliver {
        /// From whom.
        endpoint: EndpointId,
        /// Tag of the PML.
        tag: u8,
        /// Where in the datagram.
        payload: Range<usize>,
    },
    /// Authentic, but from a sender that is not connected: connect it and hand the datagram in
    /// again, or drop it.
    Unknown {
        /// Name of the sender's process.
        name: u64,
        /// Which life of it.
        incarnation: u32,
    },
}

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A large fragment is whole.
    Deliver {
        /// From whom.
        endpoint: EndpointId,
        /// Tag of the PML.
        tag: u8,
        /// Its bytes; give it to [`Engine::recycle`](super::Engine::recycle) afterwards.
        buffer: Buffer,
    },
    /// A send, PUT or GET is over.
    Done {
        /// What the caller calls it.
        cookie: Cookie,
        /// How it ended.
        outcome: Result<()>,
    },
    /// The peer has not answered for too long. Nothing can be sent to it any more; call
    /// [`Engine::forget`](super::Engine::forget) when it is no longer needed.
    Lost {
        /// Which.
        endpoint: EndpointId,
    },
    /// The peer has been silent for some time though it was asked, or the network refuses what is sent
    /// to it. Whoever knows how its process is may say so:
    /// [`Engine::handle_alive`](super::Engine::handle_alive),
    /// [`Engine::handle_ended`](super::Engine::handle_ended). Comes again while it lasts.
    Silent {
        /// Which.
        endpoint: EndpointId,
    },
    /// A process that is not connected, or was given up, takes a connection with us for alive: `reset` is the datagram
    /// that tells it, for [`Channel::Priority`], wherever it is. Few of these come.
    Over {
        /// Name of its process.
        name: u64,
        /// Which life of it.
        incarnation: u32,
        /// The datagram.
        reset: Box<Header>,
    },
    /// The end of [`Engine::close`](super::Engine::close); the id is of nothing any more.
    Closed {
        /// Which.
        endpoint: EndpointId,
    },
}

/// The bytes of a large fragment.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
}

/// Some of a memory's bytes.
#[derive(Clone, Debug)]
pub struct Piece<M> {
    /// Whose.
    pub memory: M,
    /// From where.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

impl<M: Memory> Piece<M> {
    /// Takes up to so many bytes off the front; `None` if that is none.
    #[inline]
    pub(super) fn take(&mut self, most: usize) -> Option<Self> {
        let len = self.len.min(most);
        let taken = (len > 0).then(|| Self { memory: self.memory.clone(), offset: self.offset, len });
        (self.offset, self.len) = (self.offset + len, self.len - len);
        taken
    }
}

/// A datagram to send: the header, then the pieces; or a run of them.
#[derive(Clone, Debug)]
pub struct Transmit<M> {
    /// To whom.
    pub endpoint: EndpointId,
    /// Through which queue.
    pub channel: Channel,
    /// Its first bytes.
    pub header: Header,
    /// The others; they must be read before the operation that they belong to is done.
    pub pieces: [Option<Piece<M>>; 2],
    /// Datagrams that follow it, whose bytes the pieces have too: see [`Engine::headers`](super::Engine::headers).
    pub following: usize,
}

impl<M> Transmit<M> {
    /// Bytes of the datagram, or of all.
    pub fn len(&self) -> usize {
        self.header.len() * (1 + self.following)
            + self.pieces.iter().flatten().map(|piece| piece.len).sum::<usize>()
    }

    /// Never: there is always a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// By what a peer that is lost is known to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody of its node says so.
    Said,
    /// Its host says for long that nobody listens there, and nobody of its node anything else.
    Refused,
    /// It has answered nothing for longer than the user says.
    Silent,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// Name of its process.
    pub name: u64,
    /// Which life of it.
    pub incarnation: u32,
    /// Whether it can still be sent to.
    pub alive: bool,
    /// Of one that is lost, by what others, or its silence, say.
    pub end: Option<End>,
    /// Whether something was sent to it or received from it.
    pub used: bool,
    /// Whether anything genuine of it has been received.
    pub heard: bool,
    /// Whether it has acknowledged a datagram of the greatest length.
    pub took_longest: bool,
    /// Longest datagram that both ends carry.
    pub max_datagram: usize,
    /// Longest datagram that the path is known to carry whole.
    pub path_width: usize,
    /// Smoothed round-trip time; zero: not measured.
    pub round_trip: std::time::Duration,
    /// Shortest round-trip time.
    pub least_round_trip: std::time::Duration,
    /// Segments under way.
    pub in_flight: usize,
    /// Segments that may be under way as far as the network goes.
    pub congestion_window: usize,
    /// Segments that the peer has room for.
    pub credit: usize,
    /// Operations waiting to be sent.
    pub queued: usize,
    /// Segments sent but not acknowledged in sequence.
    pub unacknowledged: usize,
}
