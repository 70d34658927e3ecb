//! What the user of connections sees.

use std::time::Duration;

use crate::wire::gni::datagram::{Attributes, Credentials, Key, LEN, NameId, Refusal};

/// An endpoint of this engine: its id at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub(super) u32);

/// A connection. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vc(pub(super) u32);

impl Vc {
    /// Its number, which the peer has been told.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// On which way a datagram came, in the caller's own numbers. An answer is to go back on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route(pub u64);

/// How far a connection has come; the names are the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// There has been none so far.
    None,
    /// It is being set up.
    Connecting,
    /// Both mailboxes are known.
    Connected,
    /// A side ends it.
    Terminating,
    /// The last one was ended.
    Terminated,
    /// The last one came to nothing, or was lost.
    Error,
}

/// Why a connection came to nothing, or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The peer said so.
    Refused(Refusal),
    /// The peer has ended it, before it was of use.
    Ended,
    /// The peer has died.
    Died,
    /// The peer has forgotten it: it has begun another, or lives another life.
    Renewed,
    /// The peer never answered.
    Silent,
    /// This side has nothing left for a mailbox.
    NoResources,
}

/// How a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A side has ended it.
    Closed,
    /// It never was connected.
    Failed(Reason),
    /// It was connected, and what was on its way may not have arrived.
    Lost(Reason),
}

/// What the user is told. Whatever connection a mailbox was [wanted](Event::MailboxWanted) for, one
/// [end](Event::Ended) is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Make a mailbox for this connection, if there is none for it yet, and say [`Engine::mailbox_ready`], or why not.
    ///
    /// [`Engine::mailbox_ready`]: super::Engine::mailbox_ready
    MailboxWanted {
        /// The connection.
        vc: Vc,
        /// Whose it is.
        endpoint: EndpointId,
        /// Whose mailbox it is going to be filled by; incarnation 0 where that is not known yet.
        peer: NameId,
    },
    /// The connection can be used.
    Connected {
        /// The connection.
        vc: Vc,
        /// Whose it is.
        endpoint: EndpointId,
        /// Who is at the other end.
        peer: NameId,
        /// Where that takes its messages.
        attributes: Attributes,
        /// Whether that is in the address vector.
        mapped: bool,
    },
    /// Who is at the other end of a connection has come into the address vector.
    Mapped {
        /// The connection.
        vc: Vc,
    },
    /// The peer ends the connection. Read what it has sent, and then say [`Engine::drained`].
    ///
    /// [`Engine::drained`]: super::Engine::drained
    Closing {
        /// The connection.
        vc: Vc,
        /// Entries that it has put into the mailbox, in all.
        sent: u64,
    },
    /// The connection is over, and its mailbox of no use.
    Ended {
        /// The connection.
        vc: Vc,
        /// Whose it was.
        endpoint: EndpointId,
        /// Who was, or was to be, at the other end.
        peer: NameId,
        /// How it is over.
        end: End,
    },
}

/// Why a call changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// There is an endpoint of that name.
    Taken,
    /// No such endpoint.
    NoEndpoint,
    /// The endpoint is not enabled, or is being closed.
    NotEnabled,
    /// No such connection, or no more.
    NoConnection,
    /// The connection is not in a state in which that means something.
    OutOfPlace,
    /// The endpoint has connections.
    Busy,
}

/// A datagram that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Whom to.
    pub target: NameId,
    /// On which way the peer was last heard; `None` before that.
    pub route: Option<Route>,
    /// What to send, in its first bytes.
    pub bytes: [u8; LEN],
    /// So many of them.
    pub length: usize,
}

/// What an engine is made with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The key that authenticates datagrams.
    pub key: Key,
    /// By what its endpoints use the device.
    pub credentials: Credentials,
    /// After which time without an answer something is said again at first; it doubles each time.
    pub interval: Duration,
    /// What that does not exceed; also how long a mailbox is not asked for after there was none.
    pub longest: Duration,
    /// How often a request is said without an answer, before it comes to nothing.
    pub attempts: u32,
    /// How often a disconnect is.
    pub farewells: u32,
    /// Peers of an endpoint that are in no address vector, at most.
    pub unmapped: usize,
}

impl Settings {
    /// What is usual, with this key and these credentials. A peer that computes, and has nobody who answers
    /// meanwhile, is asked for two minutes: that it has died is told by others. A disconnect is not waited for as long.
    pub const fn new(key: Key, credentials: Credentials) -> Self {
        Self {
            key,
            credentials,
            interval: Duration::from_millis(20),
            longest: Duration::from_secs(1),
            attempts: 120,
            farewells: 8,
            unmapped: 4096,
        }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Datagrams sent.
    pub sent: u64,
    /// Of these, said again after a time without an answer.
    pub resent: u64,
    /// Datagrams received and read.
    pub received: u64,
    /// Dropped: no datagrams, by their form.
    pub malformed: u64,
    /// Dropped: not genuine.
    pub forged: u64,
    /// Of another version: refused where they asked for something, and dropped.
    pub foreign: u64,
    /// With other credentials: refused where they asked for something, and dropped.
    pub strangers: u64,
    /// For no endpoint that is here: refused where they asked for something, and dropped.
    pub misdirected: u64,
    /// Dropped: of an earlier life of the peer, or an earlier connection.
    pub stale: u64,
    /// Of a connection that is none here: told so where that matters, and dropped.
    pub unconnected: u64,
    /// Dropped: they did not fit the state.
    pub stray: u64,
    /// Requests that were told to wait.
    pub postponed: u64,
    /// Answers that were not given because too many waited to be sent.
    pub unanswered: u64,
    /// Connections given up because nobody answered.
    pub silent: u64,
}
