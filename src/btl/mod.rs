//! Byte transports: what one implements, and what it asks of a host.
//!
//! A transport moves fragments between processes and, if it can, copies to and from registered memory.
//! It is not generic over the host's layouts: the host's memory comes as [`Lent`] pieces, its objects as
//! cookies that only the host can read. A component is a [`Transport`], with its parameter and counter
//! tables; `host::components` has the one list of them, and `host::btl` everything that is the same for
//! all.

#![forbid(unsafe_code)]

#[cfg(feature = "loop")]
#[path = "../../tests/loop/transport.rs"]
pub mod looped;
mod parameters;
pub mod smcuda;
pub mod user;
pub mod usnic;
pub mod verbs;

pub use crate::engine::{Access, Cookie, EndpointId, Fragment, Registration};
pub use crate::link::Lent;
pub use crate::verbs::Atomics;
pub use parameters::{FLAGS, Kind, Number, Parameters, Text, truth};
pub use user::Seat;

use std::ffi::CStr;
use std::time::Duration;

use crate::error::{Error, Result, say};

/// Bytes that travel with the token of registered device memory.
pub const PIECE: usize = 152;

/// What a transport says of registered device memory, for its peers; zeros of memory of the host's.
pub type Piece = [u8; PIECE];

/// How long the peers of a host that says nothing else have to take what is queued when connections are ended.
pub const CLOSING: Duration = Duration::from_millis(250);

/// How far an operation has got when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// [`Upcalls::done`] will tell its end.
    UnderWay,
    /// The transport needs its memory no more, and says nothing more of it. Of fragments, only for one that nobody
    /// [awaits](Fragment::awaited); a transfer has been made.
    Over,
}

/// What an atomic operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds this, modulo 2^64.
    Add(u64),
    /// Writes `swap` where it finds `compare`.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
}

/// One module of a byte transport; all calls may come from several threads, and every call that takes
/// [`Upcalls`] may be re-entered from them.
pub trait Transport: Sized + Send + Sync + 'static {
    /// Name of the component, with that of its framework: `btl_usnic`.
    const COMPONENT: &'static str;
    /// The counters that users read, each with its help; those that begin with `max_` are watermarks.
    const COUNTERS: &'static [(&'static str, &'static str)];
    /// Whether it has [`put`](Self::put), [`get`](Self::get) and registered memory.
    const HAS_TRANSFERS: bool;
    /// Whether [`send_now`](Self::send_now) is worth asking.
    const HAS_SEND_NOW: bool = false;
    /// Whether what is queued leaves in later calls only, and not by itself: then the host is told when it has left, so that
    /// a program whose send has returned may compute, or wait for something else, for as long as it likes.
    const QUEUES_FOR_CALLS: bool = false;
    /// Whether it has [`atomic`](Self::atomic), where [`Limits::atomics`] says so.
    const HAS_ATOMICS: bool = false;
    /// Whether it gets from and to the memory of devices: [`register_device`](Self::register_device) and
    /// [`get_device`](Self::get_device).
    const HAS_DEVICES: bool = false;
    /// The component that it stands in for: what the user has said of that one's parameters holds for its own of the same names,
    /// of which he has said nothing.
    const PREDECESSOR: Option<&'static CStr> = None;
    /// A tag that is its own, and nobody else's to send under.
    const OWN_TAG: Option<u8> = None;

    /// The parameters that users set. Their values are the component's, not a module's.
    fn parameters() -> &'static Parameters;
    /// Who has the component.
    fn seat() -> &'static Seat;

    /// Whether the values of the parameters can be used; which of those that are [inherited](Host::inherited) cannot, and are left.
    /// Only texts and these are asked of the host.
    ///
    /// # Errors
    /// Which of its own not, and why.
    fn verify(_host: &impl Host) -> std::result::Result<Vec<Left>, String> {
        Ok(Vec::new())
    }

    /// Opens all modules there are.
    ///
    /// # Errors
    /// Why there is none, and whether that is worth a word.
    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined>;
    /// What the module is called: its network interface, for example.
    fn device(&self) -> &str;
    /// What the module's table says. What it can be used for may become less when a peer is reached; the host
    /// reads it again then.
    fn limits(&self) -> Limits;

    /// The endpoint through which the module `all[own]` reaches a peer; `None` when it does not.
    fn reach(all: &[&Self], own: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId>;
    /// A module has been told of peers: one call of the host's is over.
    fn reached(_all: &[&Self], _host: &impl Host) {}
    /// The name of the process behind an endpoint; `None` when it is known no more.
    fn peer(&self, endpoint: EndpointId) -> Option<u64>;
    /// A fragment was dropped, for nobody here takes what has its tag.
    fn unheard(&self);
    /// Tells the user that a peer is lost.
    fn tell_loss(&self, name: u64, host: &impl Host);
    /// Ends connections, at once or soon; what is queued is sent first.
    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls);
    /// The first of all modules is about to end.
    fn end(_all: &[&Self], _host: &impl Host) {}
    /// This module is about to end.
    fn end_module(&self, _host: &impl Host) {}

    /// Sends a fragment, now or as soon as it can be. [`Upcalls::done`] tells its end, once, if this
    /// succeeds, and never before this returns; but not of one that is [over](Sending::Over) already.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the peer is lost; [`Error::OutOfResource`] when
    /// the host is to try again.
    fn send(&self, endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending>;
    /// Sends header and data from where they lie, before this returns, or not at all: then
    /// [`send`](Self::send) is to follow.
    fn send_now(&self, _endpoint: EndpointId, _tag: u8, _pieces: [Lent; 2]) -> bool {
        false
    }
    /// Writes to a peer's memory: what is registered there, at an offset.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn put(
        &self,
        _endpoint: EndpointId,
        _local: Lent,
        _remote: (Registration, u64),
        _cookie: Cookie,
    ) -> Result<Sending> {
        Err(Error::Unsupported)
    }
    /// Reads a peer's memory.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn get(
        &self,
        _endpoint: EndpointId,
        _local: Lent,
        _remote: (Registration, u64),
        _cookie: Cookie,
    ) -> Result<Sending> {
        Err(Error::Unsupported)
    }
    /// Changes a word of a peer's memory in one step: 8 bytes at a multiple of 8. What they were is written to `result`, which is
    /// another such word, or empty.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::BadParameter`] where either is no such word, or the peer's may not be changed so.
    fn atomic(
        &self,
        _endpoint: EndpointId,
        _result: Lent,
        _remote: (Registration, u64),
        _what: Atomic,
        _cookie: Cookie,
    ) -> Result<Sending> {
        Err(Error::Unsupported)
    }
    /// Makes room to note one more registration.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]
    fn reserve(&self) -> Result<()> {
        Ok(())
    }
    /// Opens memory to peers; `None` where there are no transfers, or no room for it.
    fn register(&self, _memory: Lent, _access: Access) -> Option<Registration> {
        None
    }
    /// Closes it again.
    fn deregister(&self, _registration: Registration) {}

    /// Whether peers are told nothing of registered memory but its key, twice: it is all that some others' take.
    fn has_bare_keys(&self) -> bool {
        false
    }
    /// Whether memory is a device's, and the processor cannot touch it. For hosts that do not know.
    fn is_on_device(&self, _address: *const u8) -> bool {
        false
    }
    /// Data that lies on a device is going to be sent to a peer.
    fn sends_from_device(&self, _endpoint: EndpointId, _address: *const u8, _up: &impl Upcalls) {}
    /// Opens memory of a device to peers, or to one of them, for reading.
    fn register_device(
        &self,
        _endpoint: EndpointId,
        _memory: Lent,
        _up: &impl Upcalls,
    ) -> Option<(Registration, Piece)> {
        None
    }
    /// Closes it again.
    fn deregister_device(&self, _piece: &Piece) {}
    /// Reads a peer's memory, where that or ours is a device's.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn get_device(
        &self,
        _endpoint: EndpointId,
        _local: Lent,
        _remote: (Registration, u64, Piece),
        _cookie: Cookie,
    ) -> Result<()> {
        Err(Error::Unsupported)
    }
    /// Receives, delivers, and does what is due. Returns how much happened.
    fn progress(&self, up: &impl Upcalls) -> usize;

    /// The value of a counter, by its place in [`COUNTERS`](Self::COUNTERS). May be asked by any thread.
    fn counter(&self, index: usize) -> u64;
    /// What there is to say about the module, or about one endpoint of it.
    fn describe(&self, _endpoint: Option<EndpointId>) -> Vec<String> {
        Vec::new()
    }
}

/// What a module's table says (`opal/mca/btl/btl.h`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message sent at once, header included.
    pub eager: usize,
    /// Data that goes with the announcement of a long message.
    pub rndv_eager: usize,
    /// Longest fragment.
    pub max_send: usize,
    /// The same of data on a device, for hosts that tell; 0: as `max_send`.
    pub max_send_device: usize,
    /// How a long message goes that its receiver does not read.
    pub pipeline: Pipeline,
    /// Data up to this length is copied, so that the sender need not wait for the receiver.
    pub copy: usize,
    /// Transports of lower value are not used beside this one.
    pub exclusivity: u32,
    /// Rank by latency; lower is better.
    pub latency: u32,
    /// Share by bandwidth, Mbit/s.
    pub bandwidth: u32,
    /// `MCA_BTL_FLAGS_*`
    pub flags: u32,
    /// Whether there are atomic operations, and which others they are atomic for.
    pub atomics: Atomics,
}

/// How a long message goes in parts, each of which its sender puts.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// Data that is sent ahead of the parts; `None`: as much as is sent at once.
    pub sent: Option<usize>,
    /// Longest part.
    pub part: usize,
    /// Longest message that is read in one piece even where memory does not stay registered after it.
    pub least: usize,
}

impl Pipeline {
    /// One part, of all that is not sent at once.
    pub const WHOLE: Self = Self { sent: None, part: usize::MAX, least: 0 };
}

/// Why there is no module.
#[derive(Debug)]
pub enum Declined {
    /// Nobody asked for one: said only where the user wants to hear it.
    Silently(String),
    /// Something is wrong, and the user has been told.
    Told,
    /// There is no memory for one: said where the user wants to hear it.
    Memory(String),
}

impl Declined {
    /// For want of memory, or for another reason, whose line this is.
    pub(crate) fn because(error: Error, line: String) -> Self {
        let is_memory = matches!(error, Error::OutOfResource | Error::System(libc::ENOMEM));
        if is_memory { Self::Memory(line) } else { Self::Silently(line) }
    }
}

/// A peer that the host names.
pub trait Peer {
    /// Its name: the job in the lower half, the rank in the upper.
    fn name(&self) -> u64;
    /// The name of the node that it runs on, if the host knows it.
    fn node(&self) -> Option<String>;
}

/// Whether a host tells when memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// It does from now on, by [`unmapped::gone`](crate::sync::unmapped::gone).
    Begun,
    /// The user does not want what goes by it.
    Unwanted,
    /// It cannot. `is_wanted`: the user has said that he wants what goes by it.
    Impossible {
        /// See above.
        is_wanted: bool,
    },
}

/// What the user has said of a parameter of another component, for one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Without the component's name.
    pub name: &'static CStr,
    /// What he has said.
    pub text: String,
    /// It has no meaning for a parameter of this kind; otherwise it is the value that ours has.
    pub is_meaningless: bool,
}

/// What is [inherited](Inherited) and does not fit: the default holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which parameters, without the component's name.
    pub names: Vec<&'static CStr>,
    /// What a person hears of it.
    pub line: String,
}

/// What a host does for a transport at any time.
pub trait Host {
    /// The name of this process: the job in the lower half, the rank in the upper.
    fn name(&self) -> u64;
    /// The name of this node.
    fn node(&self) -> String;
    /// Publishes something to the job, under a key.
    ///
    /// # Errors
    /// [`Error::Host`] with the host's code.
    fn publish(&self, key: &'static CStr, bytes: &[u8]) -> Result<()>;
    /// The modex record of a process: what it published under a key.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it has published nothing.
    fn published(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>>;
    /// The same of a process of this node, if it has published it by now: nothing is waited for.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it has published nothing yet.
    fn published_by_now(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        self.published(key, name)
    }
    /// Whether the host knows of such a process, of this job or of another: then [`published`](Self::published) ends in
    /// bounded time, on whatever node that runs.
    fn knows(&self, _name: u64) -> bool {
        false
    }
    /// The value of a text parameter of the component.
    fn text(&self, parameter: &CStr) -> Option<String>;
    /// What the user has said of the [component that it stands in for](Transport::PREDECESSOR), and not of its own parameters of
    /// the same names.
    fn inherited(&self) -> Vec<Inherited> {
        Vec::new()
    }
    /// Whether the user named the component: `--mca btl usnic,self`.
    fn is_asked_for(&self) -> bool;
    /// Whether the host has taken modules of a component of this name that is not this library's. Known once it has asked all
    /// components, before it asks for peers.
    fn has_taken_another(&self, _component: &CStr) -> bool {
        false
    }
    /// Whether the user wants to know what is chosen and why.
    fn is_verbose(&self) -> bool;
    /// Whether this is the process that has opened the component. In each call to the host it may make a child, and the
    /// child return from it: whatever the parent has opened is left alone there.
    #[inline]
    fn is_here(&self) -> bool {
        true
    }
    /// How long a connection that is ended waits, at most, for a peer that takes nothing of what is queued for it.
    fn patience(&self) -> Duration {
        CLOSING
    }
    /// Whether a peer that has ended the connection is sent to anew by whoever has kept its endpoint. Otherwise what is sent
    /// then belongs to the end of a job, and is acknowledged without being heard.
    fn meets_again(&self) -> bool {
        false
    }
    /// Has the host tell when memory goes, so that memory may stay registered until then. It may change instructions under
    /// the feet of threads: for who is going to need it, and before he has threads.
    fn tell_of_unmapping(&self) -> Telling {
        Telling::Impossible { is_wanted: false }
    }
    /// It need not any more, if it was asked to.
    fn tell_no_more(&self) {}
    /// Shows a help text around one line, once for all processes that it happens to.
    fn notice(&self, topic: &str, line: &str);
    /// Says one line.
    fn say(&self, line: &str);
    /// Says one of the lines of figures that the user has asked for: to standard error, where the host has no other place for
    /// them.
    fn report(&self, line: &str) {
        say(format_args!("{line}"));
    }
}

/// What a transport tells the host. Every call may re-enter the transport.
pub trait Upcalls {
    /// What the host does at any time.
    fn host(&self) -> impl Host;
    /// A whole fragment has arrived. The bytes are the host's for the time of the call.
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]);
    /// The same from memory that another process can write, to which there is no reference for that reason.
    fn deliver_shared(&self, endpoint: EndpointId, tag: u8, bytes: Lent);
    /// An operation has ended; the memory that it used is the host's again.
    fn done(&self, cookie: Cookie, outcome: Result<()>);
    /// Device memory for a peer can be registered from now on, and got from there. False where the host does not know
    /// the peer yet, and is to be told again.
    fn devices_reached(&self, _endpoint: EndpointId) -> bool {
        true
    }
    /// A peer counts as lost from now on: `tell` tells the user, unless that has been done, or the host
    /// has given the peer up itself. [`lost`](Self::lost) follows.
    fn doomed(&self, endpoint: EndpointId, name: u64, tell: impl FnOnce());
    /// A peer is gone; all its operations have ended before.
    fn lost(&self, endpoint: EndpointId, name: u64);
}

/// Tells the host of operations that have failed with their peer, as long as this is [its process](Host::is_here).
pub(crate) fn fail(cookies: impl IntoIterator<Item = Cookie>, up: &impl Upcalls) {
    for cookie in cookies {
        up.done(cookie, Err(Error::Unreachable));
        if !up.host().is_here() {
            return;
        }
    }
}
