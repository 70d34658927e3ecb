//! [`SocketAddress`]: a peer's address as the kernel takes it, `sockaddr_in(7)` or `sockaddr_in6(7)`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4: usize = size_of::<libc::sockaddr_in>();
const V6: usize = size_of::<libc::sockaddr_in6>();

/// A socket address in the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(super) struct SocketAddress {
    bytes: [u8; V6],
    len: u32,
}

impl SocketAddress {
    /// Room for an address that the kernel writes.
    pub(super) const EMPTY: Self = Self { bytes: [0; V6], len: 0 };

    /// Bytes that the kernel may write.
    pub(super) const ROOM: libc::socklen_t = V6 as libc::socklen_t;

    /// The address of a port. `scope` is the interface's index, for link-local addresses.
    pub(super) fn new(address: IpAddr, port: u16, scope: u32) -> Self {
        let mut bytes = [0; V6];
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        let (family, len) = match address {
            IpAddr::V4(address) => {
                bytes[4..8].copy_from_slice(&address.octets());
                (libc::AF_INET, V4)
            }
            IpAddr::V6(address) => {
                bytes[8..24].copy_from_slice(&address.octets());
                if address.is_unicast_link_local() {
                    bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
                }
                (libc::AF_INET6, V6)
            }
        };
        bytes[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        Self { bytes, len: len as u32 }
    }

    /// The address in these bytes, if they are exactly one.
    pub(super) fn from_bytes(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; V6];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let address = Self { bytes, len: from.len() as u32 };
        let len = if address.parts()?.0.is_ipv4() { V4 } else { V6 };
        (len == from.len()).then_some(address)
    }

    /// Where it lies, for the kernel.
    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// Where the kernel may write [`ROOM`](Self::ROOM) bytes.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    /// Its length in bytes.
    #[inline]
    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Address and port; `None` for another family.
    pub(super) fn parts(&self) -> Option<(IpAddr, u16)> {
        let family = i32::from(libc::sa_family_t::from_ne_bytes([self.bytes[0], self.bytes[1]]));
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        let address = match family {
            libc::AF_INET => {
                let octets: [u8; 4] = self.bytes[4..8].try_into().ok()?;
                Ipv4Addr::from(octets).into()
            }
            libc::AF_INET6 => {
                let octets: [u8; 16] = self.bytes[8..24].try_into().ok()?;
                Ipv6Addr::from(octets).into()
            }
            _ => return None,
        };
        Some((address, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        let v4 = SocketAddress::new(IpAddr::from([10, 0, 0, 7]), 0x1234, 9);
        assert_eq!(v4.len() as usize, size_of::<libc::sockaddr_in>());
        assert_eq!(v4.bytes[2..8], [0x12, 0x34, 10, 0, 0, 7]);
        let local: Ipv6Addr = "fe80::1".parse().expect("an address");
        let v6 = SocketAddress::new(local.into(), 5, 9);
        assert_eq!(v6.len() as usize, size_of::<libc::sockaddr_in6>());
        assert_eq!(v6.bytes[24..28], 9_u32.to_ne_bytes());
        assert_eq!(v6.parts(), Some((local.into(), 5)));
        assert_eq!(v4.parts(), Some((IpAddr::from([10, 0, 0, 7]), 0x1234)));
        assert_eq!(SocketAddress::EMPTY.parts(), None);
        assert_eq!(SocketAddress::from_bytes(&v4.bytes[..16]), Some(v4));
        assert_eq!(SocketAddress::from_bytes(&v6.bytes), Some(v6));
        for wrong in [&v4.bytes[..15], &v4.bytes[..], &v6.bytes[..16], &[], &[0; 40]] {
            assert_eq!(SocketAddress::from_bytes(wrong), None);
        }
    }
}
