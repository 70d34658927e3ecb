//! [`Fabric`]: the link over libfabric, two unreliable endpoints of one provider's domain.
//!
//! Any provider of `FI_EP_DGRAM` will do: `usnic`, whose own functions give speed and distance, `udp`,
//! others. Sends and receives go by the endpoint's registered slots (`crate::fabric::DatagramPort`);
//! nothing is known here of offload or of the network's answers, for libfabric has no words for them.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::SocketAddress;
use super::inbox::{BUFFER, Inbox, Vacant};
use super::interface::{Interface, host};
use super::name::{FabricName, is_of_a_host, same_subnet};
use super::outbox::Outbox;
use super::peers::Peers;
use super::socket::capacity;
use super::udp::source_towards;
use super::{AddressId, Channel, Counters, Depths, Lent, Limits, Link};
use crate::error::{Error, Result};
use crate::fabric::{self, Address, AddressVector, Arrival, DatagramPort, Domain, Info, PostError, Slots};

/// Room for peers at first; the vector grows.
const PEERS: usize = 64;

/// Speed of a device that says none.
const USUAL_MBPS: u32 = 10_000;

struct Lane {
    port: DatagramPort,
    outbox: Outbox,
}

/// The link over libfabric.
pub struct Fabric {
    lanes: [Lane; 2],
    addresses: Arc<AddressVector>,
    peers: Peers<[Vec<u8>; 2], [Address; 2]>,
    counters: Counters,
    limits: Limits,
    name: FabricName,
    address: Option<IpAddr>,
    is_usnic: bool,
}

/// The unreliable datagram endpoints there are, of one provider by name or of any.
pub fn offers(library: &'static fabric::Library, provider: Option<&str>) -> Result<fabric::InfoList> {
    let mut hints = library.hints()?;
    hints.datagram(provider)?;
    library.info(&hints)
}

/// The network interface of an offer, if its provider has IP addresses.
pub fn interface_of<'a>(info: &Info<'_>, interfaces: &'a [Interface]) -> Option<&'a Interface> {
    let (address, _) = SocketAddress::from_bytes(info.source())?.parts()?;
    interfaces.iter().find(|interface| interface.address == address)
}

impl Fabric {
    /// Opens the endpoints of an offer. `interfaces` are those of this host.
    pub fn open(info: &Info<'_>, interfaces: &[Interface], depths: &Depths) -> Result<Self> {
        let is_usnic = info.provider() == "usnic";
        let interface = interface_of(info, interfaces);
        let domain_of = fabric::Fabric::open(info)?;
        let device = if is_usnic { fabric::usnic::device(&domain_of) } else { None };
        let domain = Domain::open(&domain_of, info)?;
        let addresses = AddressVector::open(&domain, info.has_table(), PEERS, 0)?;
        let headers = interface.map_or(0, |one| if one.address.is_ipv4() { 28 } else { 48 });
        // A provider may not know how long a packet the interface carries whole.
        let whole = interface.map_or(usize::MAX, |one| one.mtu.saturating_sub(headers));
        let longest = info.longest_datagram().min(whole).min(BUFFER);
        let lane = |channel: Channel| -> Result<Lane> {
            let wishes = Slots {
                send: depths.send[channel as usize],
                receive: depths.receive[channel as usize],
                completions: depths.completions,
            };
            let port = DatagramPort::open(info, &domain, &addresses, longest, &wishes)?;
            Ok(Lane { port, outbox: Outbox::new()? })
        };
        let lanes = [lane(Channel::Priority)?, lane(Channel::Data)?];
        let names = [lanes[0].port.name()?, lanes[1].port.name()?];
        if names[0].len() != names[1].len() || names[0].is_empty() || names[0].len() > 255 {
            return Err(Error::Unsupported);
        }
        // The `udp` provider leaves its sockets' buffers as they are, and its receives hold nothing.
        let receive_capacity = match std::fs::read_to_string("/proc/sys/net/core/rmem_default") {
            Ok(bytes) if info.provider() == "udp" => {
                let granted = bytes.trim().parse().unwrap_or(0);
                let most = depths.receive[Channel::Data as usize].unwrap_or(usize::MAX);
                capacity(granted, longest, interface.is_some_and(|one| one.is_device))
                    .min(most.saturating_mul(longest))
            }
            _ => lanes[1].port.depth() * longest,
        };
        let prefix = device.as_ref().map(|device| device.prefix).or(interface.map(|one| one.prefix));
        let speed = device.as_ref().map(|device| device.speed_mbps).or(interface.map(|one| one.speed_mbps));
        let ip = SocketAddress::from_bytes(&names[1]).and_then(|address| address.parts());
        Ok(Self {
            limits: Limits {
                max_datagram: [longest; 2],
                receive_capacity,
                speed_mbps: speed.filter(|speed| *speed > 0).unwrap_or(USUAL_MBPS),
                numa_node: interface.and_then(|one| one.numa_node),
            },
            name: FabricName {
                host: host(),
                format: info.address_format(),
                prefix: prefix.unwrap_or(0),
                names,
            },
            address: ip.map(|(address, _)| address),
            lanes,
            addresses,
            peers: Peers::new(),
            counters: Counters::default(),
            is_usnic,
        })
    }

    /// A peer's name, as far as it can be checked, and its IP address, if it has one.
    fn check(&self, name: &[u8]) -> Result<(FabricName, Option<IpAddr>)> {
        let name = FabricName::parse(name)?;
        if name.format != self.name.format || name.names[0].len() != self.name.names[0].len() {
            return Err(Error::Unreachable);
        }
        let Some(own) = self.address else { return Ok((name, None)) };
        let ip = |name: &Vec<u8>| {
            let parts = SocketAddress::from_bytes(name)?.parts()?;
            (is_of_a_host(parts.0) && parts.1 != 0).then_some(parts.0)
        };
        match (ip(&name.names[0]), ip(&name.names[1])) {
            (Some(one), Some(other)) if one == other => {
                let fits = one.is_ipv4() == own.is_ipv4()
                    && one.is_loopback() == own.is_loopback()
                    && (!own.is_loopback() || name.host == self.name.host);
                if fits { Ok((name, Some(one))) } else { Err(Error::Unreachable) }
            }
            _ => Err(Error::BadParameter),
        }
    }
}

impl Lane {
    fn flush(
        &mut self,
        channel: usize,
        peers: &Peers<[Vec<u8>; 2], [Address; 2]>,
        counters: &mut Counters,
    ) -> usize {
        let mut took = 0;
        self.port.reap(|code| counters.lose(code, 1));
        while let Some(entry) = self.outbox.entries().first().copied() {
            let Some(peer) = peers.get(entry.to) else {
                counters.stale += 1;
                self.outbox.advance(1);
                continue;
            };
            let to = peer[channel];
            let whole = entry.pieces().is_empty().then(|| self.outbox.head(&entry));
            let result = match whole.and_then(|bytes| self.port.send_at_once(to, bytes)) {
                Some(result) => result,
                None => self.port.send(to, entry.len(), |room| self.outbox.read(&entry, room)),
            };
            match result {
                Ok(()) => {
                    took += 1;
                    counters.sent += 1;
                }
                Err(PostError::TryAgain) => {
                    counters.kept += self.outbox.keep() as u64;
                    break;
                }
                Err(PostError::Refused(code)) => counters.lose(code, 1),
            }
            self.outbox.advance(1);
        }
        took
    }
}

/// Packs datagrams into buffers of an inbox, many into one.
struct Packing<'a> {
    into: &'a mut Inbox,
    channel: Channel,
    buffer: Option<Vacant>,
    /// Where the datagrams in the buffer end.
    ends: [u32; MOST],
    count: usize,
}

/// Datagrams that share a buffer.
const MOST: usize = 32;

impl Packing<'_> {
    /// What finds no buffer is lost, as if the network had lost it.
    fn add(&mut self, bytes: &[u8]) {
        let used =
            |packing: &Self| packing.count.checked_sub(1).map_or(0, |last| packing.ends[last] as usize);
        if self.count == MOST || BUFFER - used(self) < bytes.len() {
            self.finish();
        }
        let start = used(self);
        if self.buffer.is_none() {
            self.buffer = self.into.take();
        }
        let Some(buffer) = &mut self.buffer else { return };
        buffer.bytes()[start..start + bytes.len()].copy_from_slice(bytes);
        self.ends[self.count] = (start + bytes.len()) as u32;
        self.count += 1;
    }

    fn finish(&mut self) {
        let count = std::mem::take(&mut self.count);
        let Some(buffer) = self.buffer.take() else { return };
        let mut start = 0;
        let ends = self.ends[..count].iter().map(|end| *end as usize);
        let ranges = ends.map(|end| std::mem::replace(&mut start, end)..end);
        self.into.deliver_each(self.channel, buffer, ranges);
    }
}

impl Link for Fabric {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn name(&self) -> Vec<u8> {
        self.name.write()
    }

    fn resolve(&mut self, name: &[u8]) -> Result<AddressId> {
        let (name, _) = self.check(name)?;
        let addresses = &self.addresses;
        self.peers.resolve(name.names.clone(), || {
            let first = addresses.insert(&name.names[0])?;
            let second = addresses.insert(&name.names[1]).inspect_err(|_| _ = addresses.remove(first))?;
            Ok([first, second])
        })
    }

    fn release(&mut self, address: AddressId) {
        for address in self.peers.release(address).into_iter().flatten() {
            // A provider that cannot forget keeps an address too many, no more.
            let _ = self.addresses.remove(address);
        }
    }

    fn distance(&self, name: &[u8]) -> Option<u32> {
        let (name, peer) = self.check(name).ok()?;
        let (Some(own), Some(peer)) = (self.address, peer) else { return Some(1) };
        if own.is_loopback() {
            return Some(0);
        }
        if own == peer || same_subnet(own, peer, self.name.prefix) {
            return Some(1);
        }
        if self.is_usnic {
            return fabric::usnic::distance(&self.addresses, name.names[1].first_chunk()?).map(|far| far + 1);
        }
        let source = source_towards(&SocketAddress::from_bytes(&name.names[1])?)?;
        Some(if source == own { 2 } else { 3 })
    }

    fn max_datagram(&self, channel: Channel, _: AddressId) -> usize {
        self.limits.max_datagram[channel as usize]
    }

    fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        let len = pieces.iter().fold(header.len(), |len, piece| len.saturating_add(piece.len()));
        if len > self.limits.max_datagram[channel as usize] {
            self.counters.too_long += 1;
            return true;
        }
        self.lanes[channel as usize].outbox.push(to, header, pieces)
    }

    fn flush(&mut self) -> usize {
        let lanes = self.lanes.iter_mut().enumerate();
        lanes.map(|(channel, lane)| lane.flush(channel, &self.peers, &mut self.counters)).sum()
    }

    fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.outbox.len()).sum()
    }

    fn poll(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        let counters = &mut self.counters;
        let mut packing = Packing { into, channel, buffer: None, ends: [0; MOST], count: 0 };
        let mut count = 0;
        self.lanes[channel as usize].port.poll(|arrival| match arrival {
            Arrival::Datagram([]) => counters.empty += 1,
            Arrival::Datagram(bytes) => {
                packing.add(bytes);
                count += 1;
            }
            Arrival::TooLong => counters.truncated += 1,
            Arrival::Error(_) => counters.receive_errors += 1,
        });
        packing.finish();
        self.counters.received += count as u64;
        count
    }

    fn poll_refused(&mut self) -> Option<AddressId> {
        None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
