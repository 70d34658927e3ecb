//! The modex record of the usnic BTL: what a process publishes through the host's module exchange so that
//! its peers can reach it.
//!
//! Little-endian. One byte of version, one byte of how many addresses follow; each address is
//! preceded by its length in two bytes:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | incarnation of the module behind the address |
//! | 4..20 | key that tags packets for it |
//! | 20..24 | longest datagram it takes |
//! | 24..28 | speed, Mbit/s |
//! | 28 | how its packets are protected: [`Protection`] |
//! | 29..31 | port of the agent of its node; 0: there is none, and its other fields are left out |
//! | 16 | key of the agent |
//! | 16 | address of the agent, IPv4 as `::ffff:a.b.c.d` |
//! | 1 + n | name of the host, behind its length |
//! | 1 + n | name of the interface, behind its length |
//! | rest | name of the link, as the link wrote it |
//!
//! It is not the record of the C component, which speaks another protocol.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How payload is protected. Both sides must do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection(u8);

impl Protection {
    /// Not at all: only headers are authenticated.
    pub const NONE: Self = Self(0);
    /// Encrypted and authenticated as [`protection`](super::protection) says.
    pub const AES_128_GCM: Self = Self(1);
}

/// One way to reach a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Which life of the module it is.
    pub incarnation: u32,
    /// The key that tags packets for it.
    pub key: [u8; 16],
    /// Longest datagram it takes, header included.
    pub max_datagram: u32,
    /// Speed, Mbit/s.
    pub speed: u32,
    /// How its packets are protected.
    pub protection: Protection,
    /// Name of the link, as the link wrote it.
    pub name: Vec<u8>,
    /// Where the agent of its node is asked about it; `None` where there is no agent.
    pub agent: Option<AgentAddress>,
}

/// An agent: who answers for the processes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// Where it is asked: the interface of the module, and a port of the agent's own.
    pub at: SocketAddr,
    /// The key that tags questions to it and answers of it.
    pub key: [u8; 16],
    /// Name of the host, for messages.
    pub host: String,
    /// Name of the interface, for messages.
    pub interface: String,
}

/// Version of the record, raised with that of packets too: who reads it can tell the user, and who gets a packet cannot.
const VERSION: u8 = 4;

/// Bytes before what is of any length.
const HEAD: usize = 29;
/// Most bytes of what stands between them and the name: agent, host and interface.
const MIDDLE: usize = 2 + 32 + 2 * 256;

/// Writes a record. More than 255 addresses are not published.
pub fn write(addresses: &[Address]) -> Vec<u8> {
    let addresses = &addresses[..addresses.len().min(255)];
    let mut record = vec![VERSION, addresses.len() as u8];
    for address in addresses {
        let name = &address.name[..address.name.len().min(usize::from(u16::MAX) - HEAD - MIDDLE)];
        let agent = agent_bytes(address.agent.as_ref());
        record.extend(((HEAD + agent.len() + name.len()) as u16).to_le_bytes());
        record.extend(address.incarnation.to_le_bytes());
        record.extend(address.key);
        record.extend(address.max_datagram.to_le_bytes());
        record.extend(address.speed.to_le_bytes());
        record.push(address.protection.0);
        record.extend(agent);
        record.extend(name);
    }
    record
}

fn agent_bytes(agent: Option<&AgentAddress>) -> Vec<u8> {
    let Some(agent) = agent else { return vec![0; 2] };
    let address = match agent.at.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = agent.at.port().to_le_bytes().to_vec();
    bytes.extend(agent.key);
    bytes.extend(address.octets());
    for text in [&agent.host, &agent.interface] {
        let text = &text.as_bytes()[..text.len().min(255)];
        bytes.push(text.len() as u8);
        bytes.extend(text);
    }
    bytes
}

/// The agent at the beginning of these bytes, and what follows.
fn parse_agent(bytes: &[u8]) -> Option<(Option<AgentAddress>, &[u8])> {
    let (port, rest) = bytes.split_first_chunk::<2>()?;
    let port = u16::from_le_bytes(*port);
    if port == 0 {
        return Some((None, rest));
    }
    let (key, rest) = rest.split_first_chunk::<16>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let (host, rest) = parse_text(rest)?;
    let (interface, rest) = parse_text(rest)?;
    let at = SocketAddr::new(IpAddr::from(Ipv6Addr::from(*address)).to_canonical(), port);
    Some((Some(AgentAddress { at, key: *key, host, interface }), rest))
}

/// A text behind its length. It is shown to users, so nothing but plain characters is taken over.
fn parse_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(len))?;
    let plain = |&byte: &u8| if byte.is_ascii_graphic() { char::from(byte) } else { '?' };
    Some((text.iter().map(plain).collect(), rest))
}

/// Reads a record; `None` when it is of another version or damaged.
pub fn parse(record: &[u8]) -> Option<Vec<Address>> {
    let (&[VERSION, count], mut rest) = record.split_first_chunk::<2>()? else { return None };
    let mut addresses = Vec::new();
    for _ in 0..count {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (record, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        let (incarnation, record) = record.split_first_chunk::<4>()?;
        let (key, record) = record.split_first_chunk::<16>()?;
        let (max_datagram, record) = record.split_first_chunk::<4>()?;
        let (speed, record) = record.split_first_chunk::<4>()?;
        let (&protection, record) = record.split_first()?;
        let (agent, name) = parse_agent(record)?;
        addresses.push(Address {
            incarnation: u32::from_le_bytes(*incarnation),
            key: *key,
            max_datagram: u32::from_le_bytes(*max_datagram),
            speed: u32::from_le_bytes(*speed),
            protection: Protection(protection),
            name: name.to_vec(),
            agent,
        });
        rest = tail;
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Address> {
        (0..3_u8)
            .map(|n| Address {
                incarnation: 0x0102_0304 + u32::from(n),
                key: [n; 16],
                max_datagram: 1472,
                speed: 10_000,
                protection: Protection(n % 3),
                name: vec![n; usize::from(n) * 7],
                agent: (n > 0).then(|| AgentAddress {
                    at: SocketAddr::new(
                        ["10.1.2.3", "fd00::7"][usize::from(n) % 2].parse().expect("an address"),
                        4711,
                    ),
                    key: [n + 7; 16],
                    host: "node1".to_owned(),
                    interface: "eth0".to_owned(),
                }),
            })
            .collect()
    }

    #[test]
    fn a_record_survives_the_journey() {
        assert_eq!(parse(&write(&sample())), Some(sample()));
        assert_eq!(parse(&write(&[])), Some(vec![]));
    }

    #[test]
    fn a_shortened_record_is_refused() {
        let record = write(&sample());
        for len in 0..record.len() {
            assert_eq!(parse(&record[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut record = write(&sample());
        record[0] = 3;
        assert_eq!(parse(&record), None);
    }

    #[test]
    fn names_that_would_upset_a_terminal_are_made_plain() {
        let mut all = sample();
        let agent = all[1].agent.as_mut().expect("an agent");
        agent.host = "a\x1B[2J\n%s b".to_owned();
        let parsed = parse(&write(&all)).expect("a record");
        assert_eq!(parsed[1].agent.as_ref().expect("an agent").host, "a?[2J?%s?b");
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let record = write(&sample());
        for at in 0..record.len() {
            for value in 0..=255 {
                let mut bytes = record.clone();
                bytes[at] = value;
                let _ = parse(&bytes);
            }
        }
    }
}
