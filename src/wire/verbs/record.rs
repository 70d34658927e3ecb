//! The modex record of the verbs BTL: what a process publishes through the host's module exchange so that its peers can
//! connect to it.
//!
//! Little-endian:
//!
//! | bytes | |
//! |---|---|
//! | 1 | version |
//! | 1 | how many ports follow |
//! | 8 | which life of the process it is |
//! | 2 + n | queue specification, written out in full, behind its length |
//! | per port | 16: address, IPv4 as `::ffff:a.b.c.d`; 2: port number; 1: leading bits of its subnet; 1: kind of network; |
//! | | 1: RDMA reads that a peer may have under way; 3: zeros; 4: Mbit/s |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// InfiniBand.
    InfiniBand,
    /// RDMA over Converged Ethernet.
    Roce,
    /// iWARP.
    Iwarp,
}

impl Network {
    const fn to_byte(self) -> u8 {
        match self {
            Self::InfiniBand => 1,
            Self::Roce => 2,
            Self::Iwarp => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::InfiniBand),
            2 => Some(Self::Roce),
            3 => Some(Self::Iwarp),
            _ => None,
        }
    }
}

/// Where a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Address and port number of its listener.
    pub at: SocketAddr,
    /// Leading bits of the address that its subnet shares.
    pub prefix: u8,
    /// What it speaks.
    pub network: Network,
    /// RDMA reads that a peer may have under way.
    pub reads: u8,
    /// Speed in Mbit/s.
    pub speed: u32,
}

/// What a process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which life of it.
    pub nonce: u64,
    /// Its queues, written out in full.
    pub queues: String,
    /// Where it listens.
    pub ports: Vec<Port>,
}

const VERSION: u8 = 2;

/// Bytes of a port.
const PORT: usize = 28;

impl Record {
    /// As bytes. More than 255 ports are not published.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ports = &self.ports[..self.ports.len().min(255)];
        let queues = &self.queues.as_bytes()[..self.queues.len().min(usize::from(u16::MAX))];
        let mut bytes = vec![VERSION, ports.len() as u8];
        bytes.extend(self.nonce.to_le_bytes());
        bytes.extend((queues.len() as u16).to_le_bytes());
        bytes.extend(queues);
        for port in ports {
            let ip = match port.at.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes.extend(ip.octets());
            bytes.extend(port.at.port().to_le_bytes());
            bytes.extend([port.prefix, port.network.to_byte(), port.reads, 0, 0, 0]);
            bytes.extend(port.speed.to_le_bytes());
        }
        bytes
    }

    /// From bytes; `None` when they are no record of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[version, count], rest) = bytes.split_first_chunk::<2>()?;
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (queues, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        let (ports, left) = rest.as_chunks::<PORT>();
        if version != VERSION || ports.len() != usize::from(count) || !left.is_empty() {
            return None;
        }
        Some(Self {
            nonce: u64::from_le_bytes(*nonce),
            queues: String::from_utf8(queues.to_vec()).ok()?,
            ports: ports.iter().map(parse_port).collect::<Option<Vec<Port>>>()?,
        })
    }
}

fn parse_port(bytes: &[u8; PORT]) -> Option<Port> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let &[low, high, prefix, network, reads, 0, 0, 0, a, b, c, d] = rest else { return None };
    let ip = IpAddr::from(Ipv6Addr::from(*ip)).to_canonical();
    let most = if ip.is_ipv4() { 32 } else { 128 };
    (prefix <= most).then_some(Port {
        at: SocketAddr::new(ip, u16::from_le_bytes([low, high])),
        prefix,
        network: Network::from_byte(network)?,
        reads,
        speed: u32::from_le_bytes([a, b, c, d]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let port = |at: &str, prefix, network| Port {
            at: at.parse().expect("an address"),
            prefix,
            network,
            reads: 4,
            speed: 25_000,
        };
        Record {
            nonce: 0x0102_0304_0506_0708,
            queues: "P,128,256,192,128,4".to_owned(),
            ports: vec![
                port("10.8.0.1:4711", 24, Network::Roce),
                port("[fd00::1]:65535", 64, Network::Iwarp),
                port("10.0.0.1:1", 32, Network::InfiniBand),
            ],
        }
    }

    #[test]
    fn a_record_survives_the_journey() {
        let record = record();
        assert_eq!(Record::parse(&record.to_bytes()), Some(record));
    }

    #[test]
    fn other_bytes_are_no_record() {
        let bytes = record().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..len]), None, "{len}");
        }
        assert_eq!(Record::parse(&[&bytes[..], &[0]].concat()), None);
        for (at, value) in
            [(0, 1), (1, 2), (1, 4), (11, 255), (12, 0xFF), (31 + 18, 33), (31 + 19, 4), (31 + 21, 1)]
        {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(Record::parse(&other), None, "{value} at {at}");
        }
    }
}
