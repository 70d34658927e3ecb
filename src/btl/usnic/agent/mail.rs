//! What a module and the agent's thread of its process say to each other, and processes of one node:
//! records of fixed length, little-endian.
//!
//! Both ends are processes of one user and one job. Still, what is no such record is dropped.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::wire::probe::{Key, Process};

/// Bytes of a request.
pub(super) const REQUEST: usize = 64;
/// Bytes of a reply.
pub(super) const REPLY: usize = 32;

/// What a module asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// It is there, on this address. The port is the first one that the agent may take for it.
    Join { process: Process, at: SocketAddr },
    /// Do datagrams of all lengths up to this one reach that agent? `tries` after the first.
    Check { id: u64, to: SocketAddr, key: Key, length: u32, interval_ms: u32, tries: u32 },
    /// Does a process of that agent's node live?
    Ask { id: u64, to: SocketAddr, key: Key, process: Process },
    /// Of another process: the agent's socket on this address.
    Share { at: SocketAddr },
    /// It ends. Of who is gone without this word it is not known.
    Leave,
}

/// What the agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It can be asked at this port, under this key; to another process, with the socket itself. Port 0:
    /// it has no socket there.
    Joined { port: u16, key: Key },
    /// Short and long datagrams have come back, or not.
    Checked { id: u64, short: bool, long: bool },
    /// None have, and that may stay so for long: somebody is there, and does nothing.
    Waiting { id: u64 },
    /// The process lives, or has ended.
    Answered { id: u64, alive: bool },
}

struct Writer<const LEN: usize> {
    bytes: [u8; LEN],
    at: usize,
}

impl<const LEN: usize> Writer<LEN> {
    fn new(kind: u8) -> Self {
        let mut writer = Self { bytes: [0; LEN], at: 0 };
        writer.put(&[kind]);
        writer
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
        self
    }

    fn put_address(&mut self, address: SocketAddr) -> &mut Self {
        let ip = match address.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.put(&ip.octets()).put(&address.port().to_le_bytes())
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (part, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*part)
    }

    fn take_address(&mut self) -> Option<SocketAddr> {
        let ip = IpAddr::from(Ipv6Addr::from(self.take::<16>()?)).to_canonical();
        Some(SocketAddr::new(ip, u16::from_le_bytes(self.take()?)))
    }

    fn take_flag(&mut self) -> Option<bool> {
        match self.take::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn take_process(&mut self) -> Option<Process> {
        let name = u64::from_le_bytes(self.take()?);
        Some(Process { name, incarnation: u32::from_le_bytes(self.take()?) })
    }
}

impl Request {
    pub(super) fn emit(&self) -> [u8; REQUEST] {
        let mut writer;
        match self {
            Self::Join { process, at } => {
                writer = Writer::new(1);
                writer.put(&process.name.to_le_bytes()).put(&process.incarnation.to_le_bytes());
                writer.put_address(*at);
            }
            Self::Check { id, to, key, length, interval_ms, tries } => {
                writer = Writer::new(2);
                writer.put(&id.to_le_bytes()).put_address(*to).put(key).put(&length.to_le_bytes());
                writer.put(&interval_ms.to_le_bytes()).put(&tries.to_le_bytes());
            }
            Self::Ask { id, to, key, process } => {
                writer = Writer::new(3);
                writer.put(&id.to_le_bytes()).put_address(*to).put(key);
                writer.put(&process.name.to_le_bytes()).put(&process.incarnation.to_le_bytes());
            }
            Self::Share { at } => {
                writer = Writer::new(4);
                writer.put_address(*at);
            }
            Self::Leave => writer = Writer::new(5),
        }
        writer.bytes
    }

    pub(super) fn parse(record: &[u8]) -> Option<Self> {
        let mut reader = Reader(record.first_chunk::<REQUEST>().filter(|all| all.len() == record.len())?);
        match reader.take::<1>()? {
            [1] => Some(Self::Join { process: reader.take_process()?, at: reader.take_address()? }),
            [2] => Some(Self::Check {
                id: u64::from_le_bytes(reader.take()?),
                to: reader.take_address()?,
                key: reader.take()?,
                length: u32::from_le_bytes(reader.take()?),
                interval_ms: u32::from_le_bytes(reader.take()?),
                tries: u32::from_le_bytes(reader.take()?),
            }),
            [3] => Some(Self::Ask {
                id: u64::from_le_bytes(reader.take()?),
                to: reader.take_address()?,
                key: reader.take()?,
                process: reader.take_process()?,
            }),
            [4] => Some(Self::Share { at: reader.take_address()? }),
            [5] => Some(Self::Leave),
            _ => None,
        }
    }
}

impl Reply {
    pub(super) fn emit(&self) -> [u8; REPLY] {
        let mut writer;
        match self {
            Self::Joined { port, key } => {
                writer = Writer::new(1);
                writer.put(&port.to_le_bytes()).put(key);
            }
            Self::Checked { id, short, long } => {
                writer = Writer::new(2);
                writer.put(&id.to_le_bytes()).put(&[u8::from(*short), u8::from(*long)]);
            }
            Self::Answered { id, alive } => {
                writer = Writer::new(3);
                writer.put(&id.to_le_bytes()).put(&[u8::from(*alive)]);
            }
            Self::Waiting { id } => {
                writer = Writer::new(4);
                writer.put(&id.to_le_bytes());
            }
        }
        writer.bytes
    }

    pub(super) fn parse(record: &[u8]) -> Option<Self> {
        let mut reader = Reader(record.first_chunk::<REPLY>().filter(|all| all.len() == record.len())?);
        match reader.take::<1>()? {
            [1] => Some(Self::Joined { port: u16::from_le_bytes(reader.take()?), key: reader.take()? }),
            [2] => {
                let id = u64::from_le_bytes(reader.take()?);
                Some(Self::Checked { id, short: reader.take_flag()?, long: reader.take_flag()? })
            }
            [3] => {
                Some(Self::Answered { id: u64::from_le_bytes(reader.take()?), alive: reader.take_flag()? })
            }
            [4] => Some(Self::Waiting { id: u64::from_le_bytes(reader.take()?) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_survive_the_journey() {
        let process = Process { name: 0x0102_0304_0506_0708, incarnation: 0x0A0B_0C0D };
        let (id, key) = (0x1112_1314_1516_1718, [7; 16]);
        for to in ["10.1.2.3:4567", "[fd00::1]:89"] {
            let to: SocketAddr = to.parse().expect("an address");
            for request in [
                Request::Join { process, at: to },
                Request::Check { id, to, key, length: 1472, interval_ms: 250, tries: 40 },
                Request::Ask { id, to, key, process },
                Request::Share { at: to },
                Request::Leave,
            ] {
                assert_eq!(Request::parse(&request.emit()), Some(request));
            }
        }
        for reply in [
            Reply::Joined { port: 47_000, key },
            Reply::Checked { id, short: true, long: false },
            Reply::Answered { id, alive: true },
            Reply::Waiting { id },
        ] {
            assert_eq!(Reply::parse(&reply.emit()), Some(reply));
        }
    }

    #[test]
    fn other_records_are_refused() {
        let request = Request::Ask {
            id: 1,
            to: "10.1.2.3:4567".parse().expect("an address"),
            key: [7; 16],
            process: Process { name: 1, incarnation: 1 },
        };
        let bytes = request.emit();
        assert_eq!(Request::parse(&bytes[..REQUEST - 1]), None);
        assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None);
        for value in 0..=255 {
            let (mut request, mut reply) = ([value; REQUEST], [value; REPLY]);
            let _ = (Request::parse(&request), Reply::parse(&reply));
            (request[0], reply[0]) = (value, value);
            assert!((1..=5).contains(&value) || Request::parse(&request).is_none());
            assert!((1..=4).contains(&value) || Reply::parse(&reply).is_none());
        }
    }
}
