//! Datagram links: two channels of unreliable datagrams between one local address and its peers.
//!
//! A link queues what it is given, hands it to the network in batches, and lends what it receives.
//! It is not reliable, it does not order, and it authenticates nobody: that is the engine's part.
//! Two links fill the trait: `socket` (kernel UDP) and `fabric` (libfabric); for tests, the simulator has
//! a third.
//!
//! Beside them is what the agents of nodes need, which is no link: `probe`, sockets to those of other nodes; `call`, connections;
//! `stream`, bytes of a connection; `sender`, datagrams within a node and whose they are;
//! `folder`, where the processes of a node find each other and see who lives; `local`, records between
//! them; `wait` for all of them.
//!
//! Invariants: memory that is [`Lent`] is read by [`Link::post`] and [`Link::flush`] only; that of a [`Landing`] is
//! written by [`Link::poll_landing`], and read, until [`Inbox::settle_landed`]; a datagram
//! that cannot be sent is counted by its cause in [`Counters`]; nothing that a peer or the network
//! does is fatal, only what this process does to the sockets ([`Link::broken`]).

mod address;
mod call;
mod clock;
mod coalescer;
mod control;
mod device;
mod fabric;
mod folder;
pub(crate) mod inbox;
mod interface;
mod landing;
mod lent;
mod local;
pub(crate) mod name;
mod outbox;
pub(crate) mod peers;
mod place;
mod probe;
mod random;
mod receive;
mod report;
mod send;
pub mod sender;
mod socket;
pub mod stream;
mod udp;
mod wait;

#[cfg(test)]
pub(crate) mod conformance;
#[cfg(test)]
mod fabric_tests;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod landing_tests;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod socket_tests;

pub use call::{Call, Calls};
pub use clock::{Arrivals, Clock};
pub use device::has_usnic;
pub use fabric::{Fabric, interface_of, offers};
pub use folder::{Folder, Held, Turn, replace, user};
pub use inbox::{Datagram, Inbox};
pub use interface::{BadFilter, Filter, Interface, host};
pub use landing::Landing;
pub use lent::{Copied, Lent};
pub use local::{Listener, Local};
pub use place::{Place, place, same_kind};
pub use probe::{Heard, Prober};
pub use random::random;
pub use socket::{Options, Socket};
pub use wait::Waiter;
#[cfg(test)]
pub(crate) use wait::{replace_descriptor, replace_descriptors};

pub use crate::engine::Channel;

use crate::error::Result;

/// A peer in a link's table. It stays valid until it was released as often as it was resolved; a
/// stale one is recognised and never leads to another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressId {
    index: u32,
    generation: u32,
}

/// Bytes of a datagram that short packets share, at most. A longer one would keep its first packets waiting, and would
/// save less than the twentieth part of a system call for each.
pub const COALESCED: usize = 1472;

/// What a link can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest datagram in bytes, by channel (`Channel as usize`).
    pub max_datagram: [usize; 2],
    /// Bytes of datagrams of the greatest size that the receive buffer of either channel holds, with
    /// the kernel's own overhead for each accounted for.
    pub receive_capacity: usize,
    /// Nominal speed, in megabits per second.
    pub speed_mbps: u32,
    /// NUMA node of the device; `None` when it has none.
    pub numa_node: Option<u32>,
}

/// How many datagrams may wait where, as the user wishes; `None`: what the link thinks right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Sends that the network has not taken yet, by channel. Kernel sockets have no such number.
    pub send: [Option<usize>; 2],
    /// Datagrams that arrived and were not read yet, by channel.
    pub receive: [Option<usize>; 2],
    /// Completions that were not read yet. Kernel sockets have none.
    pub completions: Option<usize>,
}

/// What became of datagrams, in numbers. All but the first five and `kept` are losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Packets that shared a datagram with others, or could have.
    pub coalesced: u64,
    /// Sends in which one call carried several datagrams of one size to one peer.
    pub offloaded: u64,
    /// Datagrams that went out in IP fragments because the path is narrower than they are long.
    pub fragmented: u64,
    /// Datagrams that the kernel did not take at once and that were kept.
    pub kept: u64,
    /// The kernel had no memory (`ENOBUFS`), or there was none for a buffer to receive into.
    pub no_buffers: u64,
    /// The peer's port is closed (`ECONNREFUSED`), as its own host says: errors, not datagrams.
    pub refused: u64,
    /// No route to the peer (`ENETUNREACH`, `EHOSTUNREACH` and the like).
    pub unreachable: u64,
    /// A packet filter forbids it (`EPERM`, `EACCES`), or says in the host's place that the port is closed.
    pub forbidden: u64,
    /// Longer than the network takes, even in fragments (`EMSGSIZE`).
    pub too_long: u64,
    /// To an address that was released before the datagram was sent.
    pub stale: u64,
    /// Any other error on sending.
    pub send_errors: u64,
    /// Any other error on receiving.
    pub receive_errors: u64,
    /// Received, but longer than any datagram of ours.
    pub truncated: u64,
    /// Received, but without a byte in it.
    pub empty: u64,
}

impl Counters {
    /// Counts datagrams that were lost to this `errno(3)`; libfabric's codes are the same.
    #[cold]
    fn lose(&mut self, errno: i32, count: usize) {
        let cause = match errno {
            libc::ENOBUFS | libc::ENOMEM => &mut self.no_buffers,
            libc::EPERM | libc::EACCES => &mut self.forbidden,
            libc::EMSGSIZE => &mut self.too_long,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::ENODEV => {
                &mut self.unreachable
            }
            _ => &mut self.send_errors,
        };
        *cause += count as u64;
    }
}

/// [`Link::post_run`], one by one.
fn post_each<L: Link + ?Sized>(
    link: &mut L,
    channel: Channel,
    to: AddressId,
    (headers, len): (&[u8], usize),
    payload: usize,
    mut rest: [Lent; 2],
) {
    for header in headers.chunks_exact(len.max(1)) {
        let here = Lent::take(&mut rest, payload);
        let here = if here[1].is_empty() { &here[..1] } else { &here[..] };
        if !link.post(channel, to, header, here) {
            link.flush();
            link.post(channel, to, header, here);
        }
    }
}

/// Unreliable datagrams between one local address and its peers.
pub trait Link {
    /// What the link carries.
    fn limits(&self) -> Limits;

    /// The link's own addresses, as peers need them for [`resolve`](Self::resolve): versioned, with
    /// its length in front.
    fn name(&self) -> Vec<u8>;

    /// The peer of this name. The same peer gives the same id; each call asks for one
    /// [`release`](Self::release). `BadParameter` for what is no name, `Unreachable` for one that
    /// this link cannot send to.
    fn resolve(&mut self, name: &[u8]) -> Result<AddressId>;

    /// Undoes one [`resolve`](Self::resolve).
    fn release(&mut self, address: AddressId);

    /// How far away the peer of this name is: 0 on this host, over its loopback interface, 1 in the
    /// same subnet, 2 behind a router on this interface, 3 by another interface; `None` if it cannot
    /// be reached.
    fn distance(&self, name: &[u8]) -> Option<u32>;

    /// Longest datagram that the way to this peer carries whole; at most that of the link's
    /// [`limits`](Self::limits), less once the network has said so. Longer ones up to the link's
    /// limit still go, slower.
    fn max_datagram(&self, channel: Channel, to: AddressId) -> usize;

    /// Queues one datagram: the header, then the pieces. `false` when the queue is full: flush first.
    ///
    /// The header is copied; the pieces may be read until the next [`flush`](Self::flush) returns,
    /// and are not afterwards. A datagram longer than the limit counts as lost.
    fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool;

    /// Queues one datagram of `len` bytes that `write` appends to what it is given, where it lies until it is
    /// sent. It is called once, or not at all: then `false`, as in [`post`](Self::post).
    fn post_written(
        &mut self,
        channel: Channel,
        to: AddressId,
        len: usize,
        write: &mut dyn FnMut(&mut Vec<u8>),
    ) -> bool {
        let mut bytes = Vec::with_capacity(len);
        write(&mut bytes);
        if !self.post(channel, to, &bytes, &[]) {
            // It cannot be written again. If it finds no room now either, it is as good as lost.
            self.flush();
            self.post(channel, to, &bytes, &[]);
        }
        true
    }

    /// Queues several datagrams, and flushes where there is no room: each header, then the next `payload` bytes
    /// of the pieces; the last gets what is left.
    fn post_run(
        &mut self,
        channel: Channel,
        to: AddressId,
        headers: (&[u8], usize),
        payload: usize,
        pieces: [Lent; 2],
    ) {
        post_each(self, channel, to, headers, payload, pieces);
    }

    /// Hands all queued datagrams to the network and returns how many it took. What it does not take
    /// now is copied and kept; later ones wait behind it.
    fn flush(&mut self) -> usize;

    /// Puts a short packet behind others to the same peer into one datagram of the priority channel of at most
    /// `longest` bytes, which leaves when it is full, with the next [`flush`](Self::flush), or soon by itself. `false`, and nothing is
    /// done: it does not wait, and must be sent. `now` are nanoseconds of the link's [`clock`](Self::clock).
    fn coalesce(&mut self, _to: AddressId, _packet: &[u8], _longest: usize, _now: u64) -> bool {
        false
    }

    /// Whether that is ever done.
    fn coalesces(&self) -> bool {
        false
    }

    /// The clock by which it tells how long packets wait.
    fn clock(&self) -> Clock {
        Clock::new()
    }

    /// Posts one datagram and flushes: the way of a short one that nothing waits with.
    fn send(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        let posted = self.post(channel, to, header, pieces);
        self.flush();
        posted
    }

    /// Datagrams that are queued.
    fn queued(&self) -> usize;

    /// Receives what is there, at most one batch, and returns the number of datagrams.
    fn poll(&mut self, channel: Channel, into: &mut Inbox) -> usize;

    /// The same, where it is worth something to know when datagrams came. Only kernel sockets can tell, and
    /// for single datagrams at the price of a longer call.
    fn poll_stamped(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        self.poll(channel, into)
    }

    /// The same as [`poll`](Self::poll), where it is guessed what comes, and nothing waits in the inbox: what belongs
    /// there may land in the memory of the `landing`, as [`Inbox::landed`] says then. Only kernel sockets can do that.
    /// `None`: that memory cannot be written to, and what came is lost.
    fn poll_landing(&mut self, channel: Channel, into: &mut Inbox, _landing: Landing) -> Option<usize> {
        Some(self.poll(channel, into))
    }

    /// A peer that the network says is gone; each report once.
    fn poll_refused(&mut self) -> Option<AddressId>;

    /// A peer of whose path the network has said that it is narrower than a datagram was long; what
    /// it carries, [`max_datagram`](Self::max_datagram) says.
    fn poll_narrowed(&mut self) -> Option<AddressId> {
        None
    }

    /// The `errno(3)` by which it was seen that the link's sockets are no sockets any more, because something else in
    /// this process has closed them. Nothing comes or goes then.
    fn broken(&self) -> Option<i32> {
        None
    }

    /// What became of datagrams so far.
    fn counters(&self) -> &Counters;
}
