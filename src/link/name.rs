//! What a link publishes of itself and reads of its peers: bytes to values and back, no unsafe code.
//!
//! A record is `u16 length of what follows | u8 version | u8 kind | body`, little-endian. Peers are
//! not trusted: whatever is not exactly such a record is `BadParameter`.

use std::net::IpAddr;

use crate::error::{Error, Result};

const VERSION: u8 = 1;

/// Which link wrote the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Kernel sockets: the body is a [`SocketName`].
    Socket = 1,
    /// libfabric: the body is a [`FabricName`].
    Fabric = 2,
    /// The simulator: the body is a number.
    #[cfg(any(test, feature = "sim"))]
    Simulated = 3,
}

/// Wraps a body.
pub(crate) fn record(kind: Kind, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len() + 2).unwrap_or(u16::MAX);
    let mut record = Vec::with_capacity(body.len() + 4);
    record.extend(len.to_le_bytes());
    record.extend([VERSION, kind as u8]);
    record.extend(body);
    record
}

/// The body of a record of this kind.
pub(crate) fn body(kind: Kind, record: &[u8]) -> Result<&[u8]> {
    let (len, rest) = record.split_first_chunk::<2>().ok_or(Error::BadParameter)?;
    match rest {
        [VERSION, found, body @ ..]
            if *found == kind as u8 && rest.len() == usize::from(u16::from_le_bytes(*len)) =>
        {
            Ok(body)
        }
        _ => Err(Error::BadParameter),
    }
}

/// The addresses of a socket link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SocketName {
    /// The host that it is on, as far as loopback addresses go ([`host`](super::interface::host)).
    pub(super) host: u64,
    /// Its interface's address.
    pub(super) address: IpAddr,
    /// Leading bits that the interface's subnet shares.
    pub(super) prefix: u8,
    /// UDP ports by channel.
    pub(super) ports: [u16; 2],
}

impl SocketName {
    /// Body: `u64 host | u8 family (4, 6) | u8 prefix length | u16 priority port | u16 data port |
    /// address`.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(30);
        body.extend(self.host.to_le_bytes());
        body.extend([if self.address.is_ipv4() { 4 } else { 6 }, self.prefix]);
        self.ports.iter().for_each(|port| body.extend(port.to_le_bytes()));
        match self.address {
            IpAddr::V4(address) => body.extend(address.octets()),
            IpAddr::V6(address) => body.extend(address.octets()),
        }
        record(Kind::Socket, &body)
    }

    /// Reads one. Only addresses that one host can have are taken.
    pub(crate) fn parse(record: &[u8]) -> Result<Self> {
        let bad = Error::BadParameter;
        let (host, rest) = body(Kind::Socket, record)?.split_first_chunk::<8>().ok_or(bad)?;
        let (fixed, octets) = rest.split_first_chunk::<6>().ok_or(bad)?;
        let [family, prefix, ports @ ..] = *fixed;
        let (address, bits) = match family {
            4 => (IpAddr::from(<[u8; 4]>::try_from(octets).map_err(|_| bad)?), 32),
            6 => (IpAddr::from(<[u8; 16]>::try_from(octets).map_err(|_| bad)?), 128),
            _ => return Err(bad),
        };
        let ports = [u16::from_le_bytes([ports[0], ports[1]]), u16::from_le_bytes([ports[2], ports[3]])];
        if !is_of_a_host(address) || prefix > bits || ports.contains(&0) {
            return Err(bad);
        }
        Ok(Self { host: u64::from_le_bytes(*host), address, prefix, ports })
    }
}

/// Whether one host can have this address.
pub(super) fn is_of_a_host(address: IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    !is_special && !address.is_unspecified() && !address.is_multicast()
}

/// The addresses of a libfabric link, in the provider's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FabricName {
    /// The host that it is on, as for [`SocketName`].
    pub(super) host: u64,
    /// `FI_SOCKADDR_IN` and the like.
    pub(super) format: u32,
    /// Leading bits that the interface's subnet shares.
    pub(super) prefix: u8,
    /// Endpoint names by channel, of one length.
    pub(super) names: [Vec<u8>; 2],
}

impl FabricName {
    /// Body: `u64 host | u32 format | u8 prefix length | u8 length of a name | priority name | data name`.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.host.to_le_bytes());
        body.extend(self.format.to_le_bytes());
        body.extend([self.prefix, self.names[0].len() as u8]);
        self.names.iter().for_each(|name| body.extend(name));
        record(Kind::Fabric, &body)
    }

    /// Reads one. Whether the names are names is the provider's to say.
    pub(crate) fn parse(record: &[u8]) -> Result<Self> {
        let bad = Error::BadParameter;
        let (host, rest) = body(Kind::Fabric, record)?.split_first_chunk::<8>().ok_or(bad)?;
        let (fixed, names) = rest.split_first_chunk::<6>().ok_or(bad)?;
        let [format @ .., prefix, len] = *fixed;
        let len = usize::from(len);
        if len == 0 || names.len() != 2 * len {
            return Err(bad);
        }
        let names = [names[..len].to_vec(), names[len..].to_vec()];
        Ok(Self { host: u64::from_le_bytes(*host), format: u32::from_le_bytes(format), prefix, names })
    }
}

/// Whether two addresses of one family agree in their leading bits.
pub(super) fn same_subnet(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let leading = |difference: u128, bits: u32| difference >> (bits - u32::from(prefix).min(bits)) == 0;
    match (one, other) {
        // A shift by all bits is out of range: no prefix, no difference.
        _ if prefix == 0 => one.is_ipv4() == other.is_ipv4(),
        (IpAddr::V4(one), IpAddr::V4(other)) => leading(u128::from(one.to_bits() ^ other.to_bits()), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => leading(one.to_bits() ^ other.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn name(address: &str, prefix: u8) -> SocketName {
        SocketName { host: 7, address: ip(address), prefix, ports: [40_000, 40_001] }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for name in [name("127.0.0.1", 8), name("fe80::1", 64), name("10.1.2.3", 32), name("::1", 128)] {
            assert_eq!(SocketName::parse(&name.write()), Ok(name));
        }
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_refused() {
        for whole in [name("10.0.0.1", 24).write(), name("fd00::1", 64).write()] {
            for len in 0..whole.len() {
                assert_eq!(SocketName::parse(&whole[..len]), Err(Error::BadParameter), "{len}");
            }
            let longer = [&whole[..], &[0]].concat();
            assert_eq!(SocketName::parse(&longer), Err(Error::BadParameter));
        }
    }

    #[test]
    fn addresses_that_no_host_has_are_refused() {
        for text in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1", "::ffff:10.0.0.1"] {
            assert_eq!(SocketName::parse(&name(text, 8).write()), Err(Error::BadParameter), "{text}");
        }
        assert_eq!(SocketName::parse(&name("10.0.0.1", 33).write()), Err(Error::BadParameter));
        let closed = SocketName { ports: [0, 1], ..name("10.0.0.1", 8) };
        assert_eq!(SocketName::parse(&closed.write()), Err(Error::BadParameter));
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let whole = name("fd00::1", 64).write();
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = SocketName::parse(&bytes);
            }
        }
    }

    #[test]
    fn names_of_providers_are_read_as_they_were_written() {
        let name = FabricName { host: 7, format: 2, prefix: 24, names: [vec![1; 16], vec![2; 16]] };
        let whole = name.write();
        assert_eq!(FabricName::parse(&whole), Ok(name));
        for len in 0..whole.len() {
            assert_eq!(FabricName::parse(&whole[..len]), Err(Error::BadParameter));
        }
        assert_eq!(SocketName::parse(&whole), Err(Error::BadParameter));
    }

    #[test]
    fn subnets_are_compared_by_their_prefix() {
        assert!(same_subnet(ip("10.0.0.1"), ip("10.0.0.254"), 24));
        assert!(!same_subnet(ip("10.0.0.1"), ip("10.0.1.1"), 24));
        assert!(same_subnet(ip("10.0.0.1"), ip("192.168.0.1"), 0));
        assert!(!same_subnet(ip("10.0.0.1"), ip("10.0.0.2"), 32));
        assert!(same_subnet(ip("fd00::1"), ip("fd00::2"), 64));
        assert!(!same_subnet(ip("fd00::1"), ip("fd00::2"), 128));
        assert!(!same_subnet(ip("10.0.0.1"), ip("fd00::2"), 0));
        assert!(same_subnet(ip("10.0.0.1"), ip("10.0.0.1"), 200));
    }
}
