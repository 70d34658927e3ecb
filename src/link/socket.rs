//! [`Socket`]: the link over kernel UDP, two sockets on one address of an interface.
//!
//! `udp.rs` has the system calls, `send.rs` and `receive.rs` the two ways, `outbox.rs` what waits. The
//! short path, one short datagram out or in, is one plain system call without control data, lock or
//! allocation.

use super::address::SocketAddress;
use super::coalescer::{Coalescer, Outcome, Refused};
use super::interface::{Interface, host};
use super::name::{SocketName, same_subnet};
use super::peers::Peers;
use super::receive::Receiver;
use super::send::{CONNECTIONS, LARGEST, Peer, Sender, Shared, hear};
use super::udp::{Udp, source_towards};
use super::{AddressId, Channel, Clock, Counters, Depths, Inbox, Landing, Lent, Limits, Link};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// How the sockets are made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes to ask for as each socket's receive buffer; the kernel grants twice as many in its own
    /// accounting, or what `net.core.rmem_max` allows.
    pub receive_buffer: usize,
    /// The same for sending. Not greater than what the device takes in a few milliseconds, lest
    /// acknowledgements wait behind it.
    pub send_buffer: usize,
    /// Whether the kernel may cut and join datagrams.
    pub offload: bool,
    /// First port to try, then those above it; 0: any.
    pub base_port: u16,
    /// How many datagrams a receive buffer holds, instead of its bytes; the rest does not matter here.
    pub depths: Depths,
    /// Longest datagram of the priority channel, for its depth.
    pub longest_tiny: usize,
    /// How long a short packet may wait for others to share its datagram; zero: not at all.
    pub coalesce_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_buffer: 4 << 20,
            send_buffer: 1 << 20,
            offload: true,
            base_port: 0,
            depths: Depths::default(),
            longest_tiny: 768,
            coalesce_delay: Duration::from_micros(50),
        }
    }
}

struct Lane {
    udp: Arc<Udp>,
    sender: Sender,
    receiver: Receiver,
}

/// The link over kernel UDP.
pub struct Socket {
    lanes: [Lane; 2],
    coalescer: Coalescer,
    shared: Shared,
    limits: Limits,
    name: SocketName,
    scope: u32,
}

impl Socket {
    /// Opens the sockets on an address of an interface.
    pub fn open(interface: &Interface, options: &Options) -> Result<Self> {
        let (address, scope) = (interface.address, interface.index);
        let largest = LARGEST[usize::from(address.is_ipv6())];
        let longest = interface.mtu.saturating_sub(65535 - largest).min(largest);
        let mut granted = usize::MAX;
        let mut offload = options.offload;
        let mut lane = |channel: Channel| -> Result<Lane> {
            let udp = Udp::bind(address, scope, options.base_port)?;
            match options.depths.receive[channel as usize] {
                None => granted = granted.min(udp.receive_buffer(options.receive_buffer)),
                Some(datagrams) => {
                    let size =
                        if channel == Channel::Data { longest } else { longest.min(options.longest_tiny) };
                    let room = udp.receive_buffer(room_for(datagrams, size, interface.is_device) / 2);
                    // What a short priority channel loses is sent again on the other.
                    granted = if channel == Channel::Data { room } else { granted };
                }
            }
            udp.send_buffer(options.send_buffer);
            offload &= udp.can_segment();
            // The priority channel has no time for control messages.
            let joins = channel == Channel::Data && options.offload && udp.join();
            let stamps = udp.stamp();
            let (sender, receiver) = (Sender::new(channel as usize)?, Receiver::new(channel, joins, stamps));
            Ok(Lane { udp: Arc::new(udp), sender, receiver })
        };
        let lanes = [lane(Channel::Priority)?, lane(Channel::Data)?];
        let ports = [lanes[0].udp.port(), lanes[1].udp.port()];
        let most = options.depths.receive[Channel::Data as usize].unwrap_or(usize::MAX);
        Ok(Self {
            lanes,
            coalescer: Coalescer::new(options.coalesce_delay),
            shared: Shared {
                peers: Peers::new(),
                counters: Counters::default(),
                refused: Vec::new(),
                narrowed: Vec::new(),
                offload,
                v6: address.is_ipv6(),
                address,
                scope,
                send_buffer: options.send_buffer,
                connections: CONNECTIONS,
                broken: None,
            },
            limits: Limits {
                max_datagram: [longest; 2],
                receive_capacity: capacity(granted, longest, interface.is_device)
                    .min(most.saturating_mul(longest)),
                speed_mbps: interface.speed_mbps,
                numa_node: interface.numa_node,
            },
            name: SocketName { host: host(), address, prefix: interface.prefix, ports },
            scope,
        })
    }

    /// UDP ports by channel.
    pub fn ports(&self) -> [u16; 2] {
        self.name.ports
    }

    /// Lets each look at the sockets poll the device's queue for so long. Where the kernel refuses, which may want
    /// the capability `CAP_NET_ADMIN`, everything goes on without.
    pub fn busy_poll(&self, time: Duration) -> Result<()> {
        let micros = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        self.lanes.iter().try_for_each(|lane| lane.udp.busy_poll(micros))
    }

    /// Sends the packets that wait for company, so that nothing overtakes them.
    #[inline]
    fn send_coalesced(&mut self) {
        if self.coalescer.may_wait() {
            let outcome = self.coalescer.flush();
            self.note(outcome);
        }
    }

    /// What has become of coalesced packets.
    #[inline]
    fn note(&mut self, outcome: Outcome) {
        self.shared.counters.sent += outcome.sent;
        if let Some(Refused { udp, errno, is_lost }) = outcome.refused
            && hear(&udp, &mut self.shared) == 0
        {
            self.shared.note_closed(errno);
            if is_lost {
                self.shared.counters.lose(errno, 1);
            }
        }
    }

    /// Whether the families agree, and loopback addresses are of this host.
    fn can_reach(&self, peer: &SocketName) -> bool {
        let (own, other) = (self.name.address, peer.address);
        own.is_ipv4() == other.is_ipv4()
            && own.is_loopback() == other.is_loopback()
            && (!own.is_loopback() || self.name.host == peer.host)
    }

    /// By channel, for how many microseconds a look polls.
    #[cfg(test)]
    pub(super) fn polls_for(&self) -> [i32; 2] {
        [0, 1].map(|channel: usize| self.lanes[channel].udp.polls_for())
    }

    /// The sockets' descriptors, by channel.
    #[cfg(test)]
    pub(crate) fn descriptors(&self) -> [std::os::fd::RawFd; 2] {
        use std::os::fd::{AsFd, AsRawFd};
        [0, 1].map(|channel: usize| self.lanes[channel].udp.as_fd().as_raw_fd())
    }

    fn far(&self, peer: &SocketName) -> Option<u32> {
        if !self.can_reach(peer) {
            return None;
        }
        let (own, peer) = (&self.name, peer.address);
        if own.address.is_loopback() {
            return Some(0);
        }
        if own.address == peer || same_subnet(own.address, peer, own.prefix) {
            return Some(1);
        }
        let source = source_towards(&SocketAddress::new(peer, 9, self.scope))?;
        Some(if source == own.address { 2 } else { 3 })
    }
}

/// Bytes of datagrams of `longest` bytes that a buffer of `granted` bytes surely holds.
///
/// Up to a quarter of the buffer is given back late (`forward_deficit`, `net/ipv4/udp.c`).
pub(super) fn capacity(granted: usize, longest: usize, is_device: bool) -> usize {
    (granted - granted / 4) / charged(longest, is_device) * longest
}

/// Bytes that a buffer must have to surely hold so many datagrams of `longest` bytes.
fn room_for(datagrams: usize, longest: usize, is_device: bool) -> usize {
    let charged = datagrams.saturating_mul(charged(longest, is_device));
    charged.saturating_add(charged / 3).saturating_add(4)
}

/// What the kernel charges a datagram with: the memory it lies in. Up to 16 KiB that is a power of two
/// with its headers and 320 bytes of book-keeping in it, above that whole pages, and 256 bytes for the
/// buffer's head; a device may use a whole page for a short one.
fn charged(longest: usize, is_device: bool) -> usize {
    let inside = longest + 512;
    let charged = match inside {
        0..=16384 => inside.next_power_of_two() + 256,
        _ => inside.next_multiple_of(4096) + 1024,
    };
    if is_device { charged.max(4096 + 256) } else { charged }
}

impl Link for Socket {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn name(&self) -> Vec<u8> {
        self.name.write()
    }

    fn resolve(&mut self, name: &[u8]) -> Result<AddressId> {
        let peer = SocketName::parse(name)?;
        if !self.can_reach(&peer) {
            return Err(Error::Unreachable);
        }
        let scope = self.scope;
        let path = self.limits.max_datagram[Channel::Data as usize];
        self.shared.peers.resolve((peer.address, peer.ports), || {
            Ok(Peer::new(peer.ports.map(|port| SocketAddress::new(peer.address, port, scope)), path))
        })
    }

    fn release(&mut self, address: AddressId) {
        self.send_coalesced();
        if let Some(peer) = self.shared.peers.release(address) {
            self.shared.disconnect(peer);
            self.shared.refused.retain(|refused| *refused != address);
            self.shared.narrowed.retain(|narrowed| *narrowed != address);
        }
    }

    fn distance(&self, name: &[u8]) -> Option<u32> {
        self.far(&SocketName::parse(name).ok()?)
    }

    fn max_datagram(&self, channel: Channel, to: AddressId) -> usize {
        let whole = self.limits.max_datagram[channel as usize];
        self.shared.peers.get(to).map_or(whole, |peer| peer.path.min(whole))
    }

    #[inline]
    fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        let len = pieces.iter().fold(header.len(), |len, piece| len.saturating_add(piece.len()));
        if len > self.limits.max_datagram[channel as usize] {
            self.shared.counters.too_long += 1;
            return true;
        }
        self.lanes[channel as usize].sender.outbox.push(to, header, pieces)
    }

    fn post_run(
        &mut self,
        channel: Channel,
        to: AddressId,
        headers: (&[u8], usize),
        payload: usize,
        pieces: [Lent; 2],
    ) {
        let outbox = &mut self.lanes[channel as usize].sender.outbox;
        if headers.1 + payload > self.limits.max_datagram[channel as usize]
            || !outbox.push_run(to, headers.0, headers.1, payload, pieces)
        {
            super::post_each(self, channel, to, headers, payload, pieces);
        }
    }

    fn post_written(
        &mut self,
        channel: Channel,
        to: AddressId,
        len: usize,
        write: &mut dyn FnMut(&mut Vec<u8>),
    ) -> bool {
        if len > self.limits.max_datagram[channel as usize] {
            self.shared.counters.too_long += 1;
            return true;
        }
        self.lanes[channel as usize].sender.outbox.push_written(to, len, write)
    }

    #[inline]
    fn coalesce(&mut self, to: AddressId, packet: &[u8], longest: usize, now: u64) -> bool {
        let channel = Channel::Priority as usize;
        let lane = &self.lanes[channel];
        let Some(peer) = self.shared.peers.get(to).filter(|_| lane.sender.outbox.is_empty()) else {
            return false;
        };
        let longest = longest.min(peer.path).min(self.limits.max_datagram[channel]);
        let outcome = self.coalescer.put(to, longest, packet, now, || peer.target(channel, &lane.udp));
        let Some(outcome) = outcome else { return false };
        self.shared.counters.coalesced += 1;
        self.note(outcome);
        true
    }

    fn coalesces(&self) -> bool {
        self.coalescer.is_on()
    }

    fn clock(&self) -> Clock {
        self.coalescer.clock()
    }

    #[inline]
    fn send(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        self.send_coalesced();
        let lane = &mut self.lanes[channel as usize];
        if lane.sender.send_short(&lane.udp, &mut self.shared, to, header, pieces) {
            self.coalescer.has_left();
            return true;
        }
        let posted = self.post(channel, to, header, pieces);
        self.flush();
        posted
    }

    #[inline]
    fn flush(&mut self) -> usize {
        self.send_coalesced();
        let sent = self.lanes.iter_mut().map(|lane| lane.sender.flush(&lane.udp, &mut self.shared)).sum();
        if sent > 0 {
            self.coalescer.has_left();
        }
        sent
    }

    #[inline]
    fn queued(&self) -> usize {
        let waiting: usize = self.lanes.iter().map(|lane| lane.sender.outbox.len()).sum();
        waiting + self.coalescer.packets() as usize
    }

    #[inline]
    fn poll(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        let lane = &mut self.lanes[channel as usize];
        lane.receiver.poll(&lane.udp, &mut self.shared, into, false)
    }

    #[inline]
    fn poll_stamped(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        let lane = &mut self.lanes[channel as usize];
        lane.receiver.poll(&lane.udp, &mut self.shared, into, true)
    }

    fn poll_landing(&mut self, channel: Channel, into: &mut Inbox, landing: Landing) -> Option<usize> {
        let lane = &mut self.lanes[channel as usize];
        lane.receiver.poll_landing(&lane.udp, &mut self.shared, into, landing)
    }

    fn poll_refused(&mut self) -> Option<AddressId> {
        self.shared.refused.pop()
    }

    fn poll_narrowed(&mut self) -> Option<AddressId> {
        self.shared.narrowed.pop()
    }

    fn broken(&self) -> Option<i32> {
        self.shared.broken
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}
