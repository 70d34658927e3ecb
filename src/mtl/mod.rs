//! Matching transports, and what they ask of a host.
//!
//! A transport is not generic over the host's layouts: it sees the narrow traits below, which each
//! host implements over its own structures. Handles of communicators and processes are `Copy` and
//! cheap; the host keeps what they name until it has told the transport that they go. A request with
//! its convertor is a loan ([`crate::fabric::Loan`]), which ends before the request is completed.
//!
//! A component is a [`Component`], which opens a [`Matcher`] when the host asks for one;
//! `host::components` has the list of them, and `host::mtl` everything that is the same for all.

#![forbid(unsafe_code)]

pub mod ofi;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
pub use crate::fabric::{AtOnce, Convertor, Route};
use crate::fabric::{Place, Standing, View, Work};
pub use crate::wire::tag::Selector;

/// What a receive or a probe learned about a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Rank of the sender.
    pub source: i32,
    /// MPI tag.
    pub tag: i32,
    /// Bytes of the message.
    pub len: usize,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Success,
    /// The message was longer than the receive (`MPI_ERR_TRUNCATE`).
    Truncated,
    /// It was cancelled.
    Cancelled,
    /// The transport failed (`MPI_ERR_INTERN`).
    Failed,
}

/// A communicator.
pub trait Communicator: Copy + Send {
    /// A peer in it.
    type Peer: Peer;
    /// The id that tags carry.
    fn context_id(self) -> u32;
    /// Whether that id is the same at every member.
    fn is_global(self) -> bool;
    /// An id that is the same at every member even where the short one is not.
    fn extended_id(self) -> [u64; 2];
    /// Number of peers that can be addressed.
    fn size(self) -> usize;
    /// What the transport noted about it; 0 when nothing. Only where the id is not global.
    fn note(self) -> usize;
    /// Notes something about it.
    fn set_note(self, note: usize);
    /// Rank of this process.
    fn rank(self) -> i32;
    /// The process of a rank.
    fn peer(self, rank: i32) -> Result<Self::Peer>;
    /// The process of a rank, where the host need not be asked for it. No other rank has any.
    fn peer_at_hand(self, rank: i32) -> Option<Self::Peer>;
}

/// A process.
pub trait Peer: Copy {
    /// What the transport noted about it; 0 when nothing.
    fn note(self) -> u64;
    /// Notes something about it.
    fn set_note(self, note: u64);
    /// What it published for this transport.
    fn published(self) -> Result<Vec<u8>>;
}

/// A request of the host's. Completing it consumes it.
pub trait Request: Send {
    /// Ends a send.
    fn sent(self, outcome: Outcome);
    /// Ends a receive.
    fn received(self, envelope: Envelope, outcome: Outcome);
}

/// The host's types and services.
pub trait Upcalls: Copy + Send + Sync + 'static {
    /// A communicator.
    type Comm: Communicator<Peer = Self::Proc>;
    /// A process.
    type Proc: Peer;
    /// A buffer.
    type Conv: Convertor;
    /// A request.
    type Req: Request;
    /// Whether a nonblocking send for which the network has no room waits until it has some, for as long as that takes.
    /// Else it fails soon, with [`OutOfResource`](crate::error::Error::OutOfResource), and the host tries again;
    /// its communicators must all be [global](Communicator::is_global) then.
    const SENDS_WAIT: bool;
    /// Lets the whole host make progress.
    fn progress();
    /// Whether this is the process that has opened the transport. A callback may make a child, and the child return from
    /// it: what its parent has opened is left alone there.
    #[inline]
    fn is_here() -> bool {
        true
    }
    /// Tells the user what went wrong and what to do.
    fn notice(topic: &str, text: &str);
    /// Says why the process is about to end.
    fn last_words(text: &str);
}

/// An open transport: what the host's table calls. All calls may come from several threads, and may be
/// re-entered from the completion of a request.
pub trait Matcher<H: Upcalls>: Sized + Send + Sync + 'static {
    /// Its state of one operation, in the memory behind the host's request.
    type Work: Work<Convertor = H::Conv, Request = H::Req>;

    /// What the module's table says.
    fn limits(&self) -> Limits;
    /// Whether buffers in device memory may be handed to it.
    fn reaches_devices(&self) -> bool;

    /// Makes a peer known; one that is known stays as it is.
    ///
    /// # Errors
    /// It has published no name, or the network refuses it.
    fn add_peer(&self, peer: H::Proc) -> Result<()>;
    /// Forgets a peer.
    fn remove_peer(&self, peer: H::Proc);
    /// A communicator begins.
    ///
    /// # Errors
    /// Its id does not fit.
    fn add_comm(&self, comm: H::Comm) -> Result<()>;
    /// A communicator ends.
    fn remove_comm(&self, comm: H::Comm);

    /// Sends, and returns when the memory is the caller's again; if synchronous, when the receive has begun.
    ///
    /// # Errors
    /// The peer is unknown, or the message cannot be sent.
    fn send(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        view: View<'_, H::Conv>,
        synchronous: bool,
    ) -> Result<()>;
    /// Starts a send, which completes its request.
    ///
    /// # Errors
    /// As [`send`](Self::send), and that there is no room, where [`SENDS_WAIT`](Upcalls::SENDS_WAIT) says that the host
    /// hears of it. Then the request is not completed.
    fn isend(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        place: Place<Self::Work>,
        synchronous: bool,
    ) -> Result<()>;
    /// Starts a receive, which completes its request.
    ///
    /// # Errors
    /// The network refuses it. Then the request is not completed.
    fn irecv(&self, comm: H::Comm, source: Selector, tag: Selector, place: Place<Self::Work>) -> Result<()>;
    /// Whether a message is there.
    ///
    /// # Errors
    /// The network cannot say.
    fn iprobe(&self, comm: H::Comm, source: Selector, tag: Selector) -> Result<Option<Envelope>>;
    /// As [`iprobe`](Self::iprobe), and nobody else will match the message.
    ///
    /// # Errors
    /// Those of [`iprobe`](Self::iprobe).
    fn improbe(&self, comm: H::Comm, source: Selector, tag: Selector) -> Result<Option<Claim>>;
    /// Receives a message that [`improbe`](Self::improbe) has claimed.
    ///
    /// # Errors
    /// There is no such message, or the network refuses it. Then the request is not completed.
    fn imrecv(&self, message: u64, place: Place<Self::Work>) -> Result<()>;
    /// Gives a receive up, if it has matched nothing yet. Its request is completed in any case.
    fn cancel(&self, receive: &Standing<'_, Self::Work>);
    /// Completes what has ended. Returns how much happened.
    fn progress(&self) -> usize;

    /// The short path of [`send`](Self::send), of a message that is not synchronous; false when that is not for the short
    /// path: then nothing has been done, and the long one is to follow. No short path panics or waits.
    #[inline(always)]
    fn send_at_once(&self, _comm: H::Comm, _dest: i32, _tag: i32, _view: View<'_, H::Conv>) -> bool {
        false
    }
    /// The short path of [`isend`](Self::isend), likewise. If false, the request is not completed, and its place is
    /// to be made again.
    #[inline(always)]
    fn isend_at_once(&self, _comm: H::Comm, _dest: i32, _tag: i32, _place: Place<Self::Work>) -> bool {
        false
    }
    /// The short path of [`irecv`](Self::irecv), likewise. If it was tried in vain,
    /// [`irecv_again`](Self::irecv_again) is to follow instead.
    #[inline(always)]
    fn irecv_at_once(
        &self,
        _comm: H::Comm,
        _source: Selector,
        _tag: Selector,
        _place: Place<Self::Work>,
    ) -> AtOnce {
        AtOnce::Untried
    }
    /// As [`irecv`](Self::irecv), of a receive that the network did not take on the short path.
    ///
    /// # Errors
    /// The same.
    fn irecv_again(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        place: Place<Self::Work>,
    ) -> Result<()> {
        self.irecv(comm, source, tag, place)
    }
    /// The short path of [`progress`](Self::progress).
    #[inline(always)]
    fn progress_at_once(&self) -> Progress {
        Progress::Unknown
    }
    /// What is to be done when the short path of progress has found nothing. Returns how much happened.
    fn idle(&self) -> usize {
        self.progress()
    }
}

/// What the short path of progress comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// One operation has ended.
    One,
    /// None: [`Matcher::idle`] is to follow.
    Idle,
    /// It was not for the short path: [`Matcher::progress`] is to follow.
    Unknown,
}

/// What the table of a matcher says.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Greatest communicator id.
    pub max_context: u32,
    /// Greatest MPI tag.
    pub max_tag: i32,
    /// Greatest rank of a sender.
    pub max_source: i32,
}

/// A message that a matched probe took out of matching. It must be received.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Which.
    pub message: u64,
    /// What is known of it.
    pub envelope: Envelope,
}

/// A component of the host's framework: opens matchers.
pub trait Component: Sized + 'static {
    /// What users set.
    type Config;

    /// What it counts, whichever matcher it is.
    fn counters() -> &'static [&'static Counter];
    /// Opens the best matcher that there is and hands it to `keep`. Which type it is of may depend on the
    /// network that was found, so that nothing is left to be decided when a message is sent.
    ///
    /// # Errors
    /// Why there is none, and whether the user must hear of it.
    fn open<H: Upcalls, K: Keep<H>>(
        config: &Self::Config,
        setting: &Setting<'_>,
        keep: K,
    ) -> std::result::Result<K::Kept, Refusal>;
}

/// Takes the matcher that a component has opened.
pub trait Keep<H: Upcalls> {
    /// What becomes of it.
    type Kept;
    /// Takes it, with the name that peers need, to be published to the job.
    fn keep<M: Matcher<H>>(self, matcher: M, name: Vec<u8>) -> Self::Kept;
}

/// What a component must know of the process that it is opened in.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The name under which the host uses the component, without the framework's.
    pub name: &'a str,
    /// Whether the user asked for it by that name.
    pub asked_for: bool,
    /// Several threads are expected to call at once. They may in any case.
    pub threads: bool,
    /// Whether there are communicators whose short id differs from member to member.
    pub group_communicators: bool,
    /// Whether buffers may be in device memory.
    pub devices: bool,
    /// Rank among the processes of the job on this node.
    pub local_rank: usize,
    /// About how many processes the job has.
    pub universe: usize,
    /// Says one line to a user who wants to know what is chosen; nothing to others.
    pub report: &'a dyn Fn(&str),
}

/// Why a component has no matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing here is fit for the job, and nobody asked for more: stay silent.
    NoneSuitable(String),
    /// The user's wish cannot be met: say so.
    Wish(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoneSuitable(why) | Self::Wish(why) => f.write_str(why),
        }
    }
}

/// One thing that is counted since the process began. The host shows it as a performance variable.
pub struct Counter {
    /// Its name.
    pub name: &'static CStr,
    /// What it counts, and in what unit.
    pub help: &'static CStr,
    /// How many so far.
    pub count: AtomicU64,
}

impl Counter {
    /// Nothing yet.
    pub const fn new(name: &'static CStr, help: &'static CStr) -> Self {
        Self { name, help, count: AtomicU64::new(0) }
    }

    /// Counts.
    pub fn add(&self, more: u64) {
        self.count.fetch_add(more, Ordering::Relaxed);
    }
}
