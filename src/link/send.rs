//! [`Sender`]: one channel's way out. It plans what waits into as few system calls as it can and sorts
//! the kernel's answers into *later*, *lost* and *again*.
//!
//! One datagram in one piece is one plain `sendto(2)`. Datagrams of one size to one peer become one
//! message that the kernel or the device cuts (`UDP_SEGMENT`), others are messages of one `sendmmsg(2)`.

use std::net::IpAddr;

use super::address::SocketAddress;
use super::outbox::{ENTRIES, Entry, Outbox};
use super::peers::Peers;
use super::udp::{Control, Errno, Udp};
use super::{AddressId, Counters};

/// Datagrams in one offloaded message (`UDP_MAX_SEGMENTS` of the oldest kernels).
const SEGMENTS: usize = 64;

/// Messages in one call, by the most that they can consist of.
const PIECES: usize = 4;

/// Reports that are read at once; more stay for the next time.
const REPORTS: usize = 64;

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
}

impl Peer {
    pub(super) fn new(addresses: [SocketAddress; 2], path: usize) -> Self {
        Self { addresses, path, plain: false }
    }
}

/// What all channels of a link share.
pub(super) struct Shared {
    pub(super) peers: Peers<Key, Peer>,
    pub(super) counters: Counters,
    /// Peers whose ports are closed, each once.
    pub(super) refused: Vec<AddressId>,
    /// Whether the kernel cuts messages.
    pub(super) offload: bool,
    /// Whether addresses are IPv6.
    pub(super) v6: bool,
}

/// The plan of one call. Empty between calls: the pointers in it are good for one only.
struct Plan {
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    messages: Vec<libc::mmsghdr>,
    /// Datagrams in each message.
    counts: Vec<usize>,
}

// SAFETY: the vectors hold nothing between calls, only room.
unsafe impl Send for Plan {}

/// The kernel takes no more for now.
struct Busy;

/// One channel's way out.
pub(super) struct Sender {
    pub(super) outbox: Outbox,
    channel: usize,
    plan: Plan,
}

impl Sender {
    pub(super) fn new(channel: usize) -> Self {
        let plan = Plan {
            pieces: Vec::with_capacity(ENTRIES * PIECES),
            controls: Vec::with_capacity(ENTRIES),
            messages: Vec::with_capacity(ENTRIES),
            counts: Vec::with_capacity(ENTRIES),
        };
        Self { outbox: Outbox::new(), channel, plan }
    }

    /// Sends what waits; returns how many datagrams the kernel took.
    #[inline]
    pub(super) fn flush(&mut self, udp: &Udp, shared: &mut Shared) -> usize {
        let [only] = self.outbox.entries() else {
            return if self.outbox.is_empty() { 0 } else { self.flush_all(udp, shared) };
        };
        if only.pieces().is_empty()
            && let Some(peer) = shared.peers.get(only.to)
        {
            match udp.send(&peer.addresses[self.channel], self.outbox.head(only)) {
                Ok(()) => {
                    self.outbox.advance(1);
                    shared.counters.sent += 1;
                    return 1;
                }
                Err(libc::EAGAIN) => {}
                // The call took the error's announcement away: what it announced is heard here.
                Err(_) => _ = hear(udp, shared),
            }
        }
        self.flush_all(udp, shared)
    }

    #[inline(never)]
    fn flush_all(&mut self, udp: &Udp, shared: &mut Shared) -> usize {
        let (mut took, mut tries) = (0, 0);
        if shared.offload {
            self.outbox.sort();
        }
        while let Some(first) = self.outbox.entries().first() {
            if shared.peers.get(first.to).is_none() {
                shared.counters.stale += 1;
                self.outbox.advance(1);
                continue;
            }
            self.plan(shared);
            // SAFETY: the plan was just made: it points into the outbox, its own vectors, the peers, and
            // memory that is lent until this flush returns; nothing of it has changed since.
            let result = unsafe { udp.send_messages(&mut self.plan.messages) };
            match result {
                Ok(messages) => {
                    let counts = &self.plan.counts[..messages];
                    let sent: usize = counts.iter().sum();
                    shared.counters.offloaded += counts.iter().filter(|count| **count > 1).count() as u64;
                    shared.counters.sent += sent as u64;
                    took += sent;
                    tries = 0;
                    self.outbox.advance(sent);
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

    /// Lays the datagrams at the front out as messages.
    fn plan(&mut self, shared: &Shared) {
        self.plan.clear();
        let mut entries = self.outbox.entries();
        while let Some(first) = entries.first() {
            let Some(peer) = shared.peers.get(first.to) else { break };
            let most = if shared.offload && !peer.plain && first.len() <= peer.path {
                LARGEST[usize::from(shared.v6)]
            } else {
                0
            };
            let count = together(entries, most);
            let (these, rest) = entries.split_at(count);
            self.plan.add(&self.outbox, these, &peer.addresses[self.channel]);
            entries = rest;
        }
    }

    /// What an error means for the first message of the plan. Returns datagrams that went all the same.
    #[cold]
    fn settle(&mut self, errno: Errno, tries: u32, udp: &Udp, shared: &mut Shared) -> Result<usize, Busy> {
        let reports = hear(udp, shared);
        let count = self.plan.counts.first().copied().unwrap_or(1);
        let Some(first) = self.outbox.entries().first().copied() else { return Ok(0) };
        match errno {
            libc::EMSGSIZE if count > 1 => {
                if let Some(peer) = shared.peers.get_mut(first.to) {
                    peer.plain = true;
                }
            }
            libc::EIO | libc::EINVAL | libc::EOPNOTSUPP if count > 1 => shared.offload = false,
            libc::EMSGSIZE => return self.send_in_fragments(&first, udp, shared),
            // The error may be one of an earlier datagram that the call only announced.
            _ if reports > 0 && tries < TRIES => {}
            _ => {
                shared.counters.lose(errno, count);
                self.outbox.advance(count);
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
        if let Some(peer) = shared.peers.get_mut(first.to) {
            // The report has said the width of the path, if anything did.
            peer.path = peer.path.min(first.len() - 1);
        }
        self.outbox.advance(1);
        Ok(usize::from(result.is_ok()))
    }
}

/// How many of the first datagrams can be one message of at most `most` bytes: all to one peer and
/// of one size, only the last one shorter.
fn together(entries: &[Entry], most: usize) -> usize {
    let [first, rest @ ..] = entries else { return 0 };
    let (mut count, mut total) = (1, first.len());
    for next in rest.iter().take(SEGMENTS - 1) {
        total += next.len();
        if next.to != first.to || next.len() > first.len() || next.len() == 0 || total > most {
            break;
        }
        count += 1;
        if next.len() < first.len() {
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
            (libc::ECONNREFUSED, Some(peer)) => {
                shared.counters.refused += 1;
                if !shared.refused.contains(&peer) {
                    shared.refused.push(peer);
                }
            }
            (libc::ECONNREFUSED, None) => shared.counters.refused += 1,
            (libc::EMSGSIZE, Some(peer)) => {
                if let Some(peer) = shared.peers.get_mut(peer) {
                    // Narrower than any network is: not to be believed.
                    let width = (report.mtu as usize).max(552).saturating_sub(headers);
                    peer.path = peer.path.min(width);
                }
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
    fn add(&mut self, outbox: &Outbox, entries: &[Entry], to: &SocketAddress) {
        let piece = |start: *const u8, len| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        let begin = self.pieces.len();
        for entry in entries {
            let head = outbox.head(entry);
            self.pieces.push(piece(head.as_ptr(), head.len()));
            let rest = entry.pieces().iter().filter(|rest| !rest.is_empty());
            self.pieces.extend(rest.map(|rest| piece(rest.as_ptr(), rest.len())));
        }
        debug_assert!(self.pieces.len() <= ENTRIES * PIECES, "an outbox holds no more");
        let mut control = (std::ptr::null_mut(), 0);
        if let [first, _, ..] = entries {
            self.controls.push(Control::segments(first.len() as u16));
            control = (self.controls.last_mut().map_or(control.0, |c| (&raw mut *c).cast()), Control::ROOM);
        }
        let header = libc::msghdr {
            msg_name: to.as_ptr().cast_mut().cast(),
            msg_namelen: to.len(),
            msg_iov: self.pieces[begin..].as_mut_ptr(),
            msg_iovlen: self.pieces.len() - begin,
            msg_control: control.0,
            msg_controllen: control.1,
            msg_flags: 0,
        };
        self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        self.counts.push(entries.len());
    }
}
