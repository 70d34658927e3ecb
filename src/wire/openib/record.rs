//! The record that openib publishes.
//!
//! | bytes | |
//! |---|---|
//! | 1 | how many ports follow |
//! | per port | 8: subnet; 4: local identifiers; 1: code of the MTU; 3: anything; 4, 4: vendor and part of the device; 1: what it |
//! | | speaks; 1: connection managers that follow |
//! | per manager | 1: which; 1: priority; 1: bytes that follow |
//! | of rdma_cm | 4, 4: reads served and started at once; 4, 2: address and port, in network order |
//!
//! The number of bytes that are published may be greater.

use std::net::{Ipv4Addr, SocketAddrV4};

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// RoCE.
    Roce,
}

impl Transport {
    const ALL: [Self; 3] = [Self::InfiniBand, Self::Iwarp, Self::Roce];
}

/// Where rdma_cm listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Address and port.
    pub at: SocketAddrV4,
    /// Reads of a peer's that are served at once, and own ones that are under way.
    pub reads: [u8; 2],
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Ports of one number reach each other.
    pub subnet: u64,
    /// Code of the MTU.
    pub mtu: u8,
    /// Vendor and part of the device.
    pub device: [u32; 2],
    /// What it speaks; `None`: it does not know.
    pub transport: Option<Transport>,
    /// Where it is connected to, if that is done by rdma_cm.
    pub listener: Option<Listener>,
}

/// What a process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its ports.
    pub ports: Vec<Port>,
}

/// rdma_cm among openib's connection managers.
const RDMA_CM: u8 = 2;

/// Its priority among them.
const PRIORITY: u8 = 30;

/// Bytes of what it says.
const LISTENER: usize = 14;

/// What no port says it speaks.
const UNKNOWN: u8 = 3;

impl Record {
    /// As bytes. More than 255 ports are not published.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ports = &self.ports[..self.ports.len().min(255)];
        let mut bytes = vec![ports.len() as u8];
        for port in ports {
            bytes.extend(port.subnet.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend([port.mtu, 0, 0, 0]);
            bytes.extend(port.device.map(u32::to_ne_bytes).as_flattened());
            bytes.push(port.transport.map_or(UNKNOWN, |transport| transport as u8));
            bytes.push(u8::from(port.listener.is_some()));
            if let Some(Listener { at, reads }) = port.listener {
                bytes.extend([RDMA_CM, PRIORITY, LISTENER as u8]);
                bytes.extend(reads.map(|reads| u32::from(reads).to_ne_bytes()).as_flattened());
                bytes.extend(at.ip().octets());
                bytes.extend(at.port().to_be_bytes());
            }
        }
        bytes
    }

    /// From bytes; `None` when they are no record.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&count, mut rest) = bytes.split_first()?;
        let ports = (0..count).map(|_| parse_port(&mut rest)).collect::<Option<Vec<Port>>>()?;
        Some(Self { ports })
    }

    /// The port of `theirs` that the port `own` of these talks to: the first of a subnet here with the first of it there, and
    /// so on, whatever they speak.
    pub fn pair(&self, theirs: &Self, own: usize) -> Option<usize> {
        let subnet = self.ports.get(own)?.subnet;
        let before = self.ports[..own].iter().filter(|port| port.subnet == subnet).count();
        let all = theirs.ports.iter().enumerate();
        all.filter(|(_, port)| port.subnet == subnet).nth(before).map(|(at, _)| at)
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

fn parse_port(from: &mut &[u8]) -> Option<Port> {
    let subnet = u64::from_ne_bytes(take(from)?);
    let [_, _, _, _, mtu, _, _, _] = take(from)?;
    let device = [u32::from_ne_bytes(take(from)?), u32::from_ne_bytes(take(from)?)];
    let [transport, managers] = take(from)?;
    let mut listener = None;
    for _ in 0..managers {
        let [which, _, len] = take(from)?;
        let (said, rest) = from.split_at_checked(usize::from(len))?;
        *from = rest;
        if which == RDMA_CM {
            listener = Some(parse_listener(said)?);
        }
    }
    let transport = Transport::ALL.get(usize::from(transport)).copied();
    Some(Port { subnet, mtu, device, transport, listener })
}

fn parse_listener(mut said: &[u8]) -> Option<Listener> {
    let reads = [i32::from_ne_bytes(take(&mut said)?), i32::from_ne_bytes(take(&mut said)?)];
    let ip = Ipv4Addr::from_octets(take(&mut said)?);
    let port = u16::from_be_bytes(take(&mut said)?);
    let reads = reads.map(|reads| reads.clamp(0, 255) as u8);
    said.is_empty().then_some(Listener { at: SocketAddrV4::new(ip, port), reads })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(subnet: u64, last: u8) -> Port {
        let at = SocketAddrV4::new(Ipv4Addr::new(10, 97, 0, last), 0x1234);
        Port {
            subnet,
            mtu: 3,
            device: [5, 6],
            transport: Some(Transport::Roce),
            listener: Some(Listener { at, reads: [4, 128] }),
        }
    }

    fn record() -> Record {
        let dumb = Port { listener: None, transport: None, ..port(9, 0) };
        Record { ports: vec![port(0x0A61_0000, 1), dumb, port(9, 2)] }
    }

    #[test]
    fn the_layout_is_openibs() {
        let bytes = Record { ports: vec![port(0x0A61_0000, 1)] }.to_bytes();
        let expected = [
            vec![1, 0, 0, 0x61, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 2, 1],
            vec![2, 30, 14, 4, 0, 0, 0, 128, 0, 0, 0, 10, 97, 0, 1, 0x12, 0x34],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn what_is_written_is_read_with_something_behind_it_and_not_when_cut_off() {
        let bytes = record().to_bytes();
        for rest in [0, 1, 44] {
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + rest, 0xAA);
            assert_eq!(Record::parse(&longer), Some(record()));
        }
        assert!((0..bytes.len()).all(|length| Record::parse(&bytes[..length]).is_none()));
    }

    #[test]
    fn other_managers_are_skipped_and_odd_numbers_are_held_within_bounds() {
        let mut bytes = Record { ports: vec![port(1, 1)] }.to_bytes();
        // openib's own manager for InfiniBand, before ours.
        bytes[26] = 2;
        bytes.splice(27..27, [3, 63, 2, 0xFF, 0xFF]);
        assert_eq!(Record::parse(&bytes).map(|it| it.ports[0]), Some(port(1, 1)));
        let reads = bytes.len() - LISTENER;
        bytes[reads..reads + 4].copy_from_slice(&(-1_i32).to_ne_bytes());
        bytes[reads + 4..reads + 8].copy_from_slice(&4096_i32.to_ne_bytes());
        let read = Record::parse(&bytes).and_then(|it| it.ports[0].listener).map(|it| it.reads);
        assert_eq!(read, Some([0, 255]));
        bytes[34] -= 1;
        assert_eq!(Record::parse(&bytes), None, "what rdma_cm says is of one length");
    }

    #[test]
    fn ports_are_paired_by_subnet_and_order() {
        let (ours, theirs) = (record(), Record { ports: vec![port(9, 3), port(9, 4), port(7, 5)] });
        let pairs: Vec<_> = (0..4).map(|own| ours.pair(&theirs, own)).collect();
        assert_eq!(pairs, [None, Some(0), Some(1), None]);
    }

    /// What is read of any bytes is what those bytes say.
    #[test]
    fn any_bytes_are_a_record_or_none() {
        let mut state = 1_u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let (mut read, mut dropped) = (0, 0);
        for _ in 0..40_000 {
            let mut bytes = record().to_bytes();
            for _ in 0..next() % 4 {
                let at = next() % bytes.len();
                bytes[at] = [0, 1, 0xFF, next() as u8][next() % 4];
            }
            bytes.truncate(bytes.len() - [0, 0, next() % bytes.len()][next() % 3]);
            match Record::parse(&bytes) {
                Some(record) => {
                    assert_eq!(Record::parse(&record.to_bytes()), Some(record));
                    read += 1;
                }
                None => dropped += 1,
            }
        }
        assert!(read > 1000 && dropped > 1000, "{read} read, {dropped} dropped");
    }
}
