//! [`Place`]: where the address that a link published is, for people and for messages to them.

use std::fmt;
use std::net::IpAddr;

use super::address::SocketAddress;
use super::name::{FabricName, SocketName};

/// The part of a link's published name that every kind of link has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// A number for the host and its network namespace.
    pub host: u64,
    /// IP address; `None` for a network that has others.
    pub address: Option<IpAddr>,
    /// Leading bits of the address that its subnet shares.
    pub prefix: u8,
}

/// The address and the length of its subnet's prefix, as `ip(8)` writes them.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}/{}", self.prefix),
            None => f.write_str("none"),
        }
    }
}

/// Reads the published name of a link of any kind; `None` when it is none.
pub fn place(name: &[u8]) -> Option<Place> {
    if let Ok(SocketName { host, address, prefix, .. }) = SocketName::parse(name) {
        return Some(Place { host, address: Some(address), prefix });
    }
    let FabricName { host, prefix, names, .. } = FabricName::parse(name).ok()?;
    let parts = SocketAddress::from_bytes(&names[1]).and_then(|address| address.parts());
    Some(Place { host, address: parts.map(|(address, _)| address), prefix })
}

/// Whether two links speak with each other as far as their kinds and versions go.
pub fn same_kind(one: &[u8], other: &[u8]) -> bool {
    /// Version and kind, behind the length.
    const KIND: std::ops::Range<usize> = 2..4;
    one.get(KIND).is_some_and(|kind| other.get(KIND) == Some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_in_the_name_of_every_kind() {
        let address: IpAddr = "fd00::7".parse().expect("an address");
        let socket = SocketName { host: 5, address, prefix: 64, ports: [1, 2] }.write();
        let it = place(&socket).expect("a place");
        assert_eq!((it.host, it.address, it.prefix), (5, Some(address), 64));
        assert_eq!(it.to_string(), "fd00::7/64");

        let mut four = vec![0; size_of::<libc::sockaddr_in>()];
        four[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        four[2..8].copy_from_slice(&[0, 9, 10, 1, 0, 3]);
        let names = [four.clone(), four];
        let fabric = FabricName { host: 5, format: 2, prefix: 16, names }.write();
        assert_eq!(place(&fabric).expect("a place").to_string(), "10.1.0.3/16");

        let opaque = FabricName { host: 5, format: 9, prefix: 0, names: [vec![1; 8], vec![2; 8]] }.write();
        let it = place(&opaque).expect("a place");
        assert_eq!((it.address, it.to_string().as_str()), (None, "none"));
        assert_eq!(place(&[]), None);

        assert!(same_kind(&fabric, &opaque) && !same_kind(&fabric, &socket) && !same_kind(&[], &[]));
    }
}
