//! What the connection thread and the main thread see, and what they tell each other.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::dialect::{Bytes, Dialect};
use crate::wire::verbs::private::Refusal;

/// An endpoint, by the main thread's own number. The peer is told it, as the token of what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// An `rdma_cm_id`. A number is never used again by whoever gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// Made here, by [`Action::Resolve`]; numbered by the manager.
    Own(u32),
    /// Came with a request; numbered by the caller.
    Peers(u32),
}

/// Which attempt of two sides to connect: the initiator counts them, and never uses a number again with a peer.
///
/// Whatever the main thread does with queue pairs of an attempt it says with its number, so that what comes late, of
/// a queue pair that is no more, is known as such. The receive for the CTS is posted with it in its `wr_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

/// Which side of a pair connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It sends the requests.
    Initiator,
    /// It answers them, and kicks the initiator if it has something to send.
    Acceptor,
}

/// What the wire demands of whoever speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// InfiniBand and RoCE: both sides send their CTS at once.
    InfiniBand,
    /// iWARP: nobody but the initiator speaks first, and the other side does so on no queue on which it has heard
    /// nothing (RFC 5044, 7.1).
    Iwarp,
}

/// Who is at the other end, from the modex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Name of the process.
    pub process: u64,
    /// Which life of it.
    pub nonce: u64,
    /// Which of its listeners this is.
    pub listener: u8,
    /// Address and port of that.
    pub address: SocketAddr,
}

/// What both threads know of the queue specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queues {
    /// Queues of the specification, 1 to 32; each has an id and a queue pair.
    pub count: u8,
    /// The smallest private one: the CTS is sent there.
    pub credits: u8,
    /// Hash of the whole specification: sides that have another one are refused.
    pub hash: u64,
}

/// What a manager is made with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Name of this process.
    pub process: u64,
    /// Which life of it: random.
    pub nonce: u64,
    /// Addresses and ports at which this process listens, by number.
    pub listeners: Vec<SocketAddr>,
    /// The queues.
    pub queues: Queues,
    /// How it talks with its peers.
    pub dialect: Dialect,
    /// How long an initiator tries to have all queues connected, and a kick to be rejected.
    pub attempt: Duration,
    /// How long an acceptor waits for the rest of an attempt. Longer than `attempt`: the initiator is to give up first, so
    /// that there is one side that begins anew.
    pub answer: Duration,
    /// How long an acceptor waits for the next attempt, before it asks by a kick whether its initiator still lives. One that
    /// is at it is not disturbed by that.
    pub question: Duration,
    /// After which time an attempt that has failed is followed by another; it doubles each time.
    pub interval: Duration,
    /// What that does not exceed.
    pub longest: Duration,
    /// Attempts and kicks to one peer, at most; then it has [failed](Notice::Failed).
    pub attempts: u32,
    /// Those that a peer that lives [has postponed](Refusal::Later), and kicks that it has answered without connecting then,
    /// at most; they do not count among `attempts`.
    pub postponements: u32,
    /// Attempts and kicks to one peer, at most, when nobody listens at its address any more and this side [hurries](Order::Hurry).
    pub last_attempts: u32,
}

impl Settings {
    /// What is usual. A peer that does not answer is given up after seven minutes, one where nobody listens after half
    /// a minute, and one that answers that it does not know this process yet after twenty minutes.
    pub fn new(process: u64, nonce: u64, listeners: Vec<SocketAddr>, queues: Queues) -> Self {
        Self {
            process,
            nonce,
            listeners,
            queues,
            dialect: Dialect::Own,
            attempt: Duration::from_secs(20),
            answer: Duration::from_secs(50),
            question: Duration::from_secs(2),
            interval: Duration::from_millis(10),
            longest: Duration::from_secs(2),
            attempts: 20,
            postponements: 600,
            last_attempts: 5,
        }
    }
}

/// What the connection thread is to do. Whatever fails at once is told as [`Event::Refused`] of its id; what was to be
/// done with that id after it is not polled any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make an id, at the device of this listener, and `rdma_resolve_addr`.
    Resolve {
        /// The number of the id.
        id: Id,
        /// Which listener's device and source address.
        listener: u8,
        /// The peer's address and port.
        to: SocketAddr,
    },
    /// `rdma_resolve_route`.
    Route {
        /// The id.
        id: Id,
    },
    /// Make the queue pair of this queue of the specification. Post nothing on it, and on a shared queue neither.
    MakeQueuePair {
        /// The id.
        id: Id,
        /// Whose it is going to be.
        endpoint: EndpointId,
        /// Which attempt: for `wr_id`s.
        attempt: Attempt,
        /// Which queue of the specification.
        queue: u8,
    },
    /// Post one receive of no bytes, for the CTS: 0 scatter elements, or one of length 0 where that is refused.
    PostReceive {
        /// The id, with its queue pair.
        id: Id,
        /// Whose it is.
        endpoint: EndpointId,
        /// Which attempt: for the `wr_id`.
        attempt: Attempt,
    },
    /// Make whatever queue pair it takes to be rejected: it is never used.
    MakeDummy {
        /// The id.
        id: Id,
    },
    /// `rdma_connect`.
    Connect {
        /// The id.
        id: Id,
        /// Its private data.
        private: Bytes,
    },
    /// `rdma_accept`.
    Accept {
        /// The id.
        id: Id,
        /// Its private data.
        private: Bytes,
    },
    /// `rdma_reject`; then destroy the id and its queue pair, if it has one.
    Reject {
        /// The id.
        id: Id,
        /// Its private data.
        private: Bytes,
    },
    /// `rdma_disconnect`: what is posted comes back flushed. Of no consequence where it fails.
    Disconnect {
        /// The id.
        id: Id,
    },
    /// Destroy the id and its queue pair. No event of it needs to be told any more.
    Destroy {
        /// The id.
        id: Id,
    },
}

impl Action {
    /// Which id it is about.
    pub const fn id(&self) -> Id {
        match *self {
            Self::Resolve { id, .. }
            | Self::Route { id }
            | Self::MakeQueuePair { id, .. }
            | Self::PostReceive { id, .. }
            | Self::MakeDummy { id }
            | Self::Connect { id, .. }
            | Self::Accept { id, .. }
            | Self::Reject { id, .. }
            | Self::Disconnect { id }
            | Self::Destroy { id } => id,
        }
    }
}

/// What happened to an id, already acknowledged: the events of `rdma_get_cm_event(3)`, less `CONNECT_REQUEST`, and what
/// a call said at once. Those of ids that the manager has given up are ignored, as are doubled ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event<'a> {
    /// `ADDR_RESOLVED`
    AddressResolved,
    /// `ADDR_ERROR`
    AddressError,
    /// `ROUTE_RESOLVED`
    RouteResolved,
    /// `ROUTE_ERROR`
    RouteError,
    /// `ESTABLISHED`
    Established {
        /// The peer's private data: none for who has accepted.
        private: &'a [u8],
    },
    /// `REJECTED`
    Rejected {
        /// The peer's private data, if that is who has rejected it.
        private: &'a [u8],
    },
    /// `UNREACHABLE`
    Unreachable,
    /// `CONNECT_ERROR`
    ConnectError,
    /// `DISCONNECTED`
    Disconnected,
    /// `DEVICE_REMOVAL`
    DeviceRemoved,
    /// An [action](Action) failed at once; siw's `rdma_connect` does where nobody listens.
    Refused,
}

/// Why two processes are not connected, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The peer says so.
    Refused(Refusal),
    /// This side has refused the peer, which is told.
    Refusing(Refusal),
    /// Both have the same address and port, or this process has no such listener.
    NoPair,
    /// The address cannot be resolved, or there is no route.
    NoRoute,
    /// Nobody answers.
    Unreachable,
    /// Nobody listens there.
    NotListening,
    /// A call failed here: no queue pair, or no id.
    NoResources,
    /// The main thread says that there is no memory for messages.
    NoMemory,
    /// The main thread says that a queue which all connections of the device have in common has failed.
    QueueFailed,
    /// It took too long.
    TimedOut,
    /// The peer has ended the connection, or has died.
    Disconnected,
    /// The peer has given this attempt up.
    Abandoned,
    /// The device is gone.
    DeviceRemoved,
    /// Another life of the peer has taken its place.
    Replaced,
    /// The peer has said what means nothing.
    Malformed,
    /// The main thread says that it does not work any more.
    Broken,
    /// The connection thread has [given up](super::Manager::give_up).
    Defect,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Self::Refused(why) | Self::Refusing(why) => match why {
                Refusal::WrongDirection => "the sides do not agree who connects",
                Refusal::Later => "the peer does not know this process",
                Refusal::Incarnation => "the process that was known there has ended",
                Refusal::Specification => "the sides have different receive queues",
                Refusal::Version => "the sides speak different versions",
                Refusal::Malformed => "what was said means nothing to the peer",
                Refusal::Failed => "the peer has given up",
                Refusal::Closing => "the peer ends",
            },
            Self::NoPair => "both ends have the same address and port",
            Self::NoRoute => "there is no route to the peer",
            Self::Unreachable => "the peer does not answer",
            Self::NotListening => "nobody listens at the peer's address",
            Self::NoResources => "a queue pair could not be made",
            Self::NoMemory => "there is no memory that can be registered for messages",
            Self::QueueFailed => "a queue of this process's device has failed",
            Self::TimedOut => "connecting took too long",
            Self::Disconnected => "the peer has ended the connection, or has died",
            Self::Abandoned => "the peer has given up the attempt to connect",
            Self::DeviceRemoved => "the device is gone",
            Self::Replaced => "another life of the peer has taken its place",
            Self::Malformed => "the peer says what means nothing",
            Self::Broken => "the connection does not work any more",
            Self::Defect => "nothing is connected any more in this process, because of a bug",
        };
        f.write_str(why)
    }
}

/// What becomes of a peer whose queue pairs have been let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// They were never of use: another attempt may be made.
    Again,
    /// It was connected: what was on its way may be lost, and there is no other connection.
    Fail,
    /// It was connected, and the peer has ended that as agreed: there may be another connection, when one side wants it.
    Part,
}

/// What the main thread tells the connection thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// There is this peer, with `add_procs`.
    Add {
        /// The endpoint.
        endpoint: EndpointId,
        /// At which of this process's listeners.
        listener: u8,
        /// Who it is.
        peer: Peer,
    },
    /// Something waits to be sent.
    Connect {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// It is going to be closed, as soon as what waits has been sent: if nobody listens at the peer's address, the peer has
    /// ended before.
    Hurry {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// It is connected: the peer's CTS is there.
    Settled {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// A queue pair does not work any more.
    Break {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt's.
        attempt: Attempt,
    },
    /// The queue pairs are not used any more, and nothing is outstanding on them.
    Release {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt's.
        attempt: Attempt,
        /// What becomes of the peer.
        verdict: Verdict,
    },
    /// The endpoint ends, in whatever state.
    Close {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// All endpoints end, and whoever asks from now on is refused.
    Finalize,
}

impl Order {
    /// Whom it is about; `None` where it is all.
    pub const fn endpoint(&self) -> Option<EndpointId> {
        match *self {
            Self::Add { endpoint, .. }
            | Self::Connect { endpoint }
            | Self::Hurry { endpoint }
            | Self::Settled { endpoint, .. }
            | Self::Break { endpoint, .. }
            | Self::Release { endpoint, .. }
            | Self::Close { endpoint } => Some(endpoint),
            Self::Finalize => None,
        }
    }
}

/// What the connection thread tells the main thread. Pass it on after the actions have been done that are there by then, but for
/// [what may be told before](super::Manager::poll_early_notice).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// All queues are connected, and the queue pairs are the main thread's until it [releases](Order::Release) them. Pass
    /// on with it whatever the main thread needs of them.
    Up {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt.
        attempt: Attempt,
        /// The peer's number of its endpoint.
        token: u32,
        /// The ids, by queue.
        ids: Box<[Id]>,
    },
    /// They have been disconnected: what is posted comes back flushed.
    Down {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt.
        attempt: Attempt,
        /// Why.
        reason: Reason,
    },
    /// The kernel has lost the way to the peer, as Linux says since 6.0 when it no longer knows the peer's link address.
    /// The queue pairs are as they were: ask whether the peer's device answers.
    Doubted {
        /// The endpoint.
        endpoint: EndpointId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// There is no connection, and there will be none.
    Failed {
        /// The endpoint.
        endpoint: EndpointId,
        /// Why.
        reason: Reason,
    },
    /// The endpoint has [ended](Order::Close): nothing of it is left.
    Closed {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// A process asks that has not been [added](Order::Add), at least not in this life. It has been told to ask again;
    /// when it is added, it is connected without waiting for that. Said once of each of its listeners.
    Unknown {
        /// Its name.
        process: u64,
        /// At which of this process's listeners it asks.
        listener: u8,
    },
    /// Everything has ended: the thread may, too.
    Finished,
}

impl Notice {
    /// Whom it is about; `None` where it is no endpoint.
    pub const fn endpoint(&self) -> Option<EndpointId> {
        match *self {
            Self::Up { endpoint, .. }
            | Self::Down { endpoint, .. }
            | Self::Doubted { endpoint, .. }
            | Self::Failed { endpoint, .. }
            | Self::Closed { endpoint } => Some(endpoint),
            Self::Unknown { .. } | Self::Finished => None,
        }
    }
}

/// What the main thread is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Put this into the connection thread's mailbox, and wake it up.
    Order(Order),
    /// Post all real receives, on every private queue what it has and on the credits queue its reserve, and top up
    /// the shared queues. Then say [`Endpoint::handle_receives_posted`]; if it fails for good,
    /// [`Endpoint::handle_broken`].
    ///
    /// [`Endpoint::handle_receives_posted`]: super::Endpoint::handle_receives_posted
    /// [`Endpoint::handle_broken`]: super::Endpoint::handle_broken
    PostReceives {
        /// Of which attempt.
        attempt: Attempt,
        /// The peer's number of its endpoint.
        token: u32,
        /// Ids of the queue pairs, by queue.
        ids: Box<[Id]>,
    },
    /// Send the CTS, on the credits queue, without taking a credit. Then say [`Endpoint::handle_cts_posted`]; if it
    /// fails, [`Endpoint::handle_broken`].
    ///
    /// [`Endpoint::handle_cts_posted`]: super::Endpoint::handle_cts_posted
    /// [`Endpoint::handle_broken`]: super::Endpoint::handle_broken
    SendCts {
        /// Of which attempt.
        attempt: Attempt,
    },
    /// Send everything that waits, in order, on queues that [may be sent on](super::Endpoint::may_send).
    Connected {
        /// Of which attempt.
        attempt: Attempt,
        /// Begin with an ordinary message, with its credit, on every other queue: an empty one if nothing waits. The
        /// acceptor of an iWARP connection may not speak there before it has heard something.
        open: bool,
    },
    /// The acceptor of an iWARP connection may send on one more queue.
    Opened {
        /// Which.
        queue: u8,
    },
    /// Complete everything that waits in error. Told once.
    Failed(Reason),
    /// Post nothing more on these queue pairs, take out of the completion queues what comes back, and say
    /// [`Endpoint::handle_let_go`] when nothing is outstanding on them. Data that has arrived on them is good.
    ///
    /// [`Endpoint::handle_let_go`]: super::Endpoint::handle_let_go
    LetGo {
        /// Of which attempt.
        attempt: Attempt,
    },
    /// Nothing is left of it. Told once, after [`Endpoint::close`].
    ///
    /// [`Endpoint::close`]: super::Endpoint::close
    Closed,
}

/// How far an endpoint has come; the names are the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing has been sent to the peer, nor by it.
    Closed,
    /// It is being connected.
    Connecting,
    /// Own receives are posted, the peer's CTS is there, and the own one is posted.
    Connected,
    /// What was connected has ended; whether for good is known when its queue pairs have been let go of.
    Parting,
    /// There is no connection, and there will be none.
    Failed,
    /// It is being ended, or has been.
    Ending,
}

/// What is to be done with data that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Arrival {
    /// Deliver it, whether or not the endpoint is connected yet.
    Deliver,
    /// Drop it: there were no receives that it could have come into.
    Drop,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Attempts to connect that were begun here.
    pub attempts: u64,
    /// Attempts of peers that were answered.
    pub answers: u64,
    /// Those of either kind that came to have all queues connected.
    pub established: u64,
    /// Those that came to nothing.
    pub abandoned: u64,
    /// Peers that were given up.
    pub failed: u64,
    /// Kicks sent.
    pub kicks: u64,
    /// Kicks received.
    pub kicked: u64,
    /// Requests and kicks that were rejected here.
    pub rejections: u64,
    /// Of these, with the answer to ask again.
    pub postponed: u64,
    /// Rejections by peers.
    pub rejected: u64,
    /// Requests of processes that are not known.
    pub unknown: u64,
    /// Private data that was not ours, or meant nothing.
    pub malformed: u64,
    /// Events of ids that had been given up.
    pub late: u64,
    /// Events and orders that did not fit the state.
    pub stray: u64,
}
