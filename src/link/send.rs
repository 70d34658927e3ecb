//! [`Sender`]: one channel's way out. It plans what waits into as few system calls as it can and sorts
//! the kernel's answers into *later*, *lost* and *again*.
//!
//! One datagram in one piece is one plain `sendto(2)`, or `send(2)` to a peer that often gets one: it
//! has a connected socket. Datagrams of one size to one peer become one message that the kernel or the
//! device cuts (`UDP_SEGMENT`), others are messages of one `sendmmsg(2)`.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::SocketAddress;
use super::control::Control;
use super::outbox::{ENTRIES, Entry, Outbox, SEGMENTS, SHORT, copy};
use super::peers::Peers;
use super::udp::{Errno, Udp};
use super::{AddressId, Counters, Lent};
use crate::error::{self, room};

/// Messages in one call, by the most that they can consist of.
const PIECES: usize = 4;

/// Reports that are read at once; more stay for the next time.
const REPORTS: usize = 64;

/// Datagrams that go alone to one peer before it gets a connected socket. The kernel then keeps the
/// route: on loopback a sixth of a short datagram's whole way.
const WORTH: u8 = 16;

/// Connected sockets of a link. Each takes a port of the host, and a host may have hundreds of links.
pub(super) const CONNECTIONS: usize = 32;

/// How often one datagram is tried when errors of earlier ones keep coming in between.
const TRIES: u32 = 4;

/// Bytes that one offloaded message carries, by family: an IP packet less its headers.
pub(super) const LARGEST: [usize; 2] = [65535 - 28, 65535 - 48];

/// What tells peers apart: address, and ports by channel.
pub(super) type Key = (IpAddr, [u16; 2]);

/// A peer of a socket link.
pub(super) struct Peer {
    /// By channel.
    pub(super) addresses: [SocketAddress; 2],
    /// Longest datagram that the path is known to carry whole.
    pub(super) path: usize,
    /// Whether its datagrams go one by one, since the network refused joined ones.
    plain: bool,
    /// By channel: a connected socket, once it has been worth it.
    own: [Option<Arc<Udp>>; 2],
    /// By channel: datagrams that went alone, up to [`WORTH`].
    alone: [u8; 2],
}

impl Peer {
    pub(super) fn new(addresses: [SocketAddress; 2], path: usize) -> Self {
        Self { addresses, path, plain: false, own: [None, None], alone: [0; 2] }
    }
}

impl Peer {
    /// The socket that its datagrams leave by, and their address unless that is connected; `common` is the one that is
    /// not.
    pub(super) fn target(&self, channel: usize, common: &Arc<Udp>) -> (Arc<Udp>, Option<SocketAddress>) {
        match &self.own[channel] {
            Some(own) => (Arc::clone(own), None),
            None => (Arc::clone(common), Some(self.addresses[channel])),
        }
    }

    /// Notes that a datagram went alone; true for the one that makes a connected socket worth it.
    #[inline]
    fn is_worth_it(&mut self, channel: usize) -> bool {
        let alone = &mut self.alone[channel];
        let is_first = *alone + 1 == WORTH;
        *alone = (*alone + 1).min(WORTH);
        is_first
    }
}

/// What all channels of a link share.
pub(super) struct Shared {
    pub(super) peers: Peers<Key, Peer>,
    pub(super) counters: Counters,
    /// Peers whose ports are closed, each once.
    pub(super) refused: Vec<AddressId>,
    /// Peers whose path the network has called too narrow, each once.
    pub(super) narrowed: Vec<AddressId>,
    /// Whether the kernel cuts messages.
    pub(super) offload: bool,
    /// Whether addresses are IPv6.
    pub(super) v6: bool,
    /// Where sockets for single peers are bound, and what send buffer they ask for.
    pub(super) address: IpAddr,
    pub(super) scope: u32,
    pub(super) send_buffer: usize,
    /// How many more of them there may be.
    pub(super) connections: usize,
    /// Why no datagram comes or goes any more, if that is so.
    pub(super) broken: Option<Errno>,
}

impl Shared {
    /// Whether the kernel cuts messages to the peer into datagrams like the first of this entry.
    #[inline]
    fn cuts_for(&self, peer: &Peer, entry: &Entry) -> bool {
        self.offload && !peer.plain && entry.size() <= peer.path
    }

    /// Gives a peer that often gets single datagrams a socket of its own, if there may be another.
    #[cold]
    fn connect(&mut self, id: AddressId, channel: usize) {
        let (address, scope) = (self.address, self.scope);
        let Some(peer) = self.peers.get_mut(id).filter(|_| self.connections > 0) else { return };
        // Without it everything goes on as before: slower, not less.
        if let Ok(udp) = Udp::connect(address, scope, &peer.addresses[channel]) {
            udp.send_buffer(self.send_buffer);
            peer.own[channel] = Some(Arc::new(udp));
            self.connections -= 1;
        }
    }

    /// Notes it if this error says that a socket of ours is one no more: something else in this process has closed
    /// it, or put another file in its place.
    #[cold]
    pub(super) fn note_closed(&mut self, errno: Errno) {
        if let libc::EBADF | libc::ENOTSOCK = errno {
            self.broken.get_or_insert(errno);
        }
    }

    /// The network carries only datagrams of this length to the peer.
    #[cold]
    fn narrow(&mut self, id: AddressId, width: usize) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.path = peer.path.min(width);
        if !self.narrowed.contains(&id) {
            self.narrowed.push(id);
        }
    }

    /// A peer is no longer used.
    pub(super) fn disconnect(&mut self, peer: Peer) {
        self.connections += peer.own.iter().flatten().count();
    }
}

/// The plan of one call. Empty between calls: the pointers in it are good for one only.
struct Plan {
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    messages: Vec<libc::mmsghdr>,
    /// Entries and datagrams in each message.
    counts: Vec<(usize, usize)>,
}

// SAFETY: the vectors hold nothing between calls, only room.
unsafe impl Send for Plan {}

/// The kernel takes no more for now.
struct Busy;

/// One channel's way out.
pub(super) struct Sender {
    pub(super) outbox: Outbox,
    /// A short datagram on its way past the outbox.
    short: Vec<u8>,
    channel: usize,
    plan: Plan,
}

impl Sender {
    /// The way out of a channel.
    ///
    /// # Errors
    /// [`Error::OutOfResource`](crate::error::Error::OutOfResource)
    pub(super) fn new(channel: usize) -> error::Result<Self> {
        let plan = Plan {
            pieces: room::vector(ENTRIES * PIECES)?,
            controls: room::vector(ENTRIES)?,
            messages: room::vector(ENTRIES)?,
            counts: room::vector(ENTRIES)?,
        };
        Ok(Self { outbox: Outbox::new()?, short: room::vector(SHORT)?, channel, plan })
    }

    /// Sends one short datagram past the empty outbox; `false` when it has to go through it.
    #[inline]
    pub(super) fn send_short(
        &mut self,
        udp: &Udp,
        shared: &mut Shared,
        to: AddressId,
        header: &[u8],
        pieces: &[Lent],
    ) -> bool {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if header.len().saturating_add(len) > SHORT || !self.outbox.is_empty() {
            return false;
        }
        if len == 0 {
            return self.send_alone(udp, shared, to, header);
        }
        self.short.clear();
        self.short.extend_from_slice(header);
        copy(&mut self.short, pieces);
        self.send_alone(udp, shared, to, &self.short)
    }

    /// One plain call for one datagram in one piece; `false` when the kernel did not take it.
    #[inline]
    fn send_alone(&self, udp: &Udp, shared: &mut Shared, to: AddressId, bytes: &[u8]) -> bool {
        let Some(peer) = shared.peers.get_mut(to) else { return false };
        let result = match &peer.own[self.channel] {
            Some(own) => own.send_there(bytes),
            None => udp.send(&peer.addresses[self.channel], bytes),
        };
        match result {
            Ok(()) => {
                shared.counters.sent += 1;
                if peer.is_worth_it(self.channel) {
                    shared.connect(to, self.channel);
                }
                true
            }
            Err(libc::EAGAIN) => false,
            // The call took the error's announcement away: what it announced is heard here.
            Err(errno) => {
                let own = peer.own[self.channel].clone();
                shared.note_closed(errno);
                hear(own.as_deref().unwrap_or(udp), shared);
                false
            }
        }
    }

    /// Sends what waits; returns how many datagrams the kernel took.
    #[inline]
    pub(super) fn flush(&mut self, udp: &Udp, shared: &mut Shared) -> usize {
        let [only] = self.outbox.entries() else {
            return if self.outbox.is_empty() { 0 } else { self.flush_all(udp, shared) };
        };
        if only.datagrams() == 1
            && only.pieces().is_empty()
            && self.send_alone(udp, shared, only.to, self.outbox.head(only))
        {
            self.outbox.advance(1);
            return 1;
        }
        self.flush_all(udp, shared)
    }

    #[inline(never)]
    fn flush_all(&mut self, common: &Udp, shared: &mut Shared) -> usize {
        let (mut took, mut tries) = (0, 0);
        if shared.offload {
            self.outbox.sort();
        }
        while let Some(first) = self.outbox.entries().first().copied() {
            let Some(peer) = shared.peers.get(first.to) else {
                shared.counters.stale += 1;
                self.outbox.advance(1);
                continue;
            };
            let own = peer.own[self.channel].clone();
            let udp = own.as_deref().unwrap_or(common);
            if !shared.cuts_for(peer, &first) {
                self.outbox.split_first();
            }
            self.plan(shared, own.is_some());
            // SAFETY: the plan was just made: it points into the outbox, its own vectors, the peers, and
            // memory that is lent until this flush returns; nothing of it has changed since.
            let result = unsafe { udp.send_messages(&mut self.plan.messages) };
            match result {
                Ok(messages) => {
                    let counts = &self.plan.counts[..messages];
                    let sent: usize = counts.iter().map(|(_, datagrams)| datagrams).sum();
                    let entries = counts.iter().map(|(entries, _)| entries).sum();
                    shared.counters.offloaded +=
                        counts.iter().filter(|(_, datagrams)| *datagrams > 1).count() as u64;
                    shared.counters.sent += sent as u64;
                    took += sent;
                    tries = 0;
                    let to = first.to;
                    // The path has become wider: the kernel has let it go whole.
                    if let Some(peer) = shared.peers.get_mut(to).filter(|peer| peer.path < first.size()) {
                        peer.path = first.size();
                    }
                    self.outbox.advance(entries);
                    if sent == 1
                        && shared.peers.get_mut(to).is_some_and(|peer| peer.is_worth_it(self.channel))
                    {
                        shared.connect(to, self.channel);
                    }
                    // The call swallows the error that made it stop early.
                    if messages < self.plan.messages.len() {
                        hear(udp, shared);
                    }
                }
                Err(libc::EAGAIN) => {
                    shared.counters.kept += self.outbox.keep() as u64;
                    break;
                }
                Err(libc::EINTR) => {}
                Err(errno) => {
                    tries += 1;
                    match self.settle(errno, tries, udp, shared) {
                        Ok(sent) => took += sent,
                        Err(Busy) => {
                            shared.counters.kept += self.outbox.keep() as u64;
                            break;
                        }
                    }
                }
            }
        }
        self.plan.clear();
        took
    }

    /// Lays the datagrams at the front out as messages: those to one peer that has a socket of its own,
    /// or those to peers that have none.
    fn plan(&mut self, shared: &Shared, own: bool) {
        self.plan.clear();
        let mut entries = self.outbox.entries();
        let Some(front) = entries.first().map(|entry| entry.to) else { return };
        while let Some(first) = entries.first() {
            let Some(peer) = shared.peers.get(first.to) else { break };
            let goes_along = if own { first.to == front } else { peer.own[self.channel].is_none() };
            if !goes_along {
                break;
            }
            let most = if shared.cuts_for(peer, first) {
                LARGEST[usize::from(shared.v6)]
            } else if first.datagrams() > 1 {
                // They are split when it is their turn.
                break;
            } else {
                0
            };
            let count = together(entries, most);
            let (these, rest) = entries.split_at(count);
            let to = if own { None } else { Some(&peer.addresses[self.channel]) };
            self.plan.add(&self.outbox, these, to);
            entries = rest;
        }
    }

    /// What an error means for the first message of the plan. Returns datagrams that went all the same.
    #[cold]
    fn settle(&mut self, errno: Errno, tries: u32, udp: &Udp, shared: &mut Shared) -> Result<usize, Busy> {
        shared.note_closed(errno);
        let reports = hear(udp, shared);
        let (entries, count) = self.plan.counts.first().copied().unwrap_or((1, 1));
        let Some(first) = self.outbox.entries().first().copied() else { return Ok(0) };
        match errno {
            // Kernels say either of datagrams that are too long for the path.
            libc::EMSGSIZE | libc::EINVAL if count > 1 => {
                if let Some(peer) = shared.peers.get_mut(first.to) {
                    peer.plain = true;
                }
            }
            libc::EIO | libc::EOPNOTSUPP if count > 1 => shared.offload = false,
            libc::EMSGSIZE => return self.send_in_fragments(&first, udp, shared),
            // The error may be one of an earlier datagram that the call only announced.
            _ if reports > 0 && tries < TRIES => {}
            _ => {
                shared.counters.lose(errno, count);
                self.outbox.advance(entries);
            }
        }
        Ok(0)
    }

    /// The path is narrower than the datagram is long. Its length is fixed by now, so it goes in
    /// fragments, and the peer's limit says what the next ones should be.
    fn send_in_fragments(&mut self, first: &Entry, udp: &Udp, shared: &mut Shared) -> Result<usize, Busy> {
        self.plan.messages.truncate(1);
        udp.fragment(true);
        // SAFETY: as in `flush_all`; nothing has changed since the plan was made.
        let result = unsafe { udp.send_messages(&mut self.plan.messages) };
        udp.fragment(false);
        match result {
            Err(libc::EAGAIN) => return Err(Busy),
            Err(_) => shared.counters.too_long += 1,
            Ok(_) => {
                shared.counters.fragmented += 1;
                shared.counters.sent += 1;
            }
        }
        // The report has said the width of the path, if anything did.
        shared.narrow(first.to, first.len() - 1);
        if let Some(peer) = shared.peers.get_mut(first.to) {
            // That was why the kernel did not cut messages of such datagrams.
            peer.plain = false;
        }
        self.outbox.advance(1);
        Ok(usize::from(result.is_ok()))
    }
}

/// How many of the first entries can be one message of at most `most` bytes: all to one peer and their datagrams
/// of one size, only the last one shorter.
fn together(entries: &[Entry], most: usize) -> usize {
    let [first, rest @ ..] = entries else { return 0 };
    let (mut count, mut total, mut datagrams) = (1, first.len(), first.datagrams());
    if !first.is_even() {
        return count;
    }
    for next in rest {
        total += next.len();
        datagrams += next.datagrams();
        let is_shorter = next.size() < first.size();
        let fits = next.size() <= first.size() && next.len() > 0 && (next.datagrams() == 1 || !is_shorter);
        if next.to != first.to || !fits || total > most || datagrams > SEGMENTS {
            break;
        }
        count += 1;
        if is_shorter || !next.is_even() {
            break;
        }
    }
    count
}

/// Reads what the network reports about earlier datagrams; returns the number of reports.
#[cold]
pub(super) fn hear(udp: &Udp, shared: &mut Shared) -> usize {
    let headers = if shared.v6 { 48 } else { 28 };
    for count in 0..REPORTS {
        let Some(report) = udp.report() else { return count };
        let parts = report.to.parts();
        let peer = shared.peers.find(|peer| peer.addresses.iter().any(|address| address.parts() == parts));
        match (report.errno, peer) {
            (libc::ECONNREFUSED, _) if !report.is_refusal() => shared.counters.forbidden += 1,
            (libc::ECONNREFUSED, Some(peer)) => {
                shared.counters.refused += 1;
                if !shared.refused.contains(&peer) {
                    shared.refused.push(peer);
                }
            }
            (libc::ECONNREFUSED, None) => shared.counters.refused += 1,
            (libc::EMSGSIZE, Some(peer)) => {
                // Narrower than any network is: not to be believed.
                shared.narrow(peer, (report.mtu as usize).max(552).saturating_sub(headers));
            }
            (libc::EMSGSIZE, None) => {}
            _ => shared.counters.unreachable += 1,
        }
    }
    REPORTS
}

impl Plan {
    fn clear(&mut self) {
        self.pieces.clear();
        self.controls.clear();
        self.messages.clear();
        self.counts.clear();
    }

    /// Adds one message. The vectors have room for all of an outbox, so that nothing moves.
    fn add(&mut self, outbox: &Outbox, entries: &[Entry], to: Option<&SocketAddress>) {
        let piece = |start: *const u8, len| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        let begin = self.pieces.len();
        let mut end = std::ptr::null();
        for entry in entries {
            let head = outbox.head(entry).as_ptr_range();
            match self.pieces.last_mut() {
                Some(last) if head.start == end => last.iov_len += entry.head_len(),
                _ => self.pieces.push(piece(head.start, entry.head_len())),
            }
            end = if entry.pieces().is_empty() { head.end } else { std::ptr::null() };
            let rest = entry.pieces().iter().filter(|rest| !rest.is_empty());
            self.pieces.extend(rest.map(|rest| piece(rest.as_ptr(), rest.len())));
        }
        debug_assert!(self.pieces.len() <= ENTRIES * PIECES, "an outbox holds no more");
        let mut control = (std::ptr::null_mut(), 0);
        let datagrams = entries.iter().map(Entry::datagrams).sum();
        if let Some(first) = entries.first().filter(|_| datagrams > 1) {
            self.controls.push(Control::segments(first.size() as u16));
            control = (self.controls.last_mut().map_or(control.0, |c| (&raw mut *c).cast()), Control::ROOM);
        }
        let header = libc::msghdr {
            msg_name: to.map_or(std::ptr::null_mut(), |to| to.as_ptr().cast_mut().cast()),
            msg_namelen: to.map_or(0, SocketAddress::len),
            msg_iov: self.pieces[begin..].as_mut_ptr(),
            msg_iovlen: self.pieces.len() - begin,
            msg_control: control.0,
            msg_controllen: control.1,
            msg_flags: 0,
        };
        self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        self.counts.push((entries.len(), datagrams));
    }
}
