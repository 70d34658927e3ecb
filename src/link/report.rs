//! [`Report`]: what the network says about an earlier datagram, as the kernel passes it on (`IP_RECVERR` of `ip(7)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::SocketAddress;
use super::udp::Errno;

/// What the network said about an earlier datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) errno: Errno,
    /// With `EMSGSIZE`: the path's MTU in bytes, IP header included.
    pub(super) mtu: u32,
    /// Where the datagram went.
    pub(super) to: SocketAddress,
    /// Whose word it is; `None`: our own kernel's.
    by: Option<IpAddr>,
}

impl Report {
    /// Reads a `struct sock_extended_err`, u32 errno, u8 origin, type, code, pad, u32 info and data, and the address
    /// behind it (`SO_EE_OFFENDER`).
    pub(super) fn parse(error: &[u8], to: SocketAddress) -> Option<Self> {
        let errno = u32::from_ne_bytes(*error.first_chunk()?) as Errno;
        let mtu = u32::from_ne_bytes(*error.get(8..)?.first_chunk()?);
        Some(Self { errno, mtu, to, by: error.get(16..).and_then(address) })
    }

    /// Whether the host where the datagram went says that nobody listens there. What somebody else says for it, a
    /// packet filter on the way or our own, says nothing about it: only the host itself knows its ports (RFC 1122, 3.2.2.1).
    pub(super) fn is_refusal(&self) -> bool {
        self.errno == libc::ECONNREFUSED && self.by == self.to.parts().map(|(address, _)| address)
    }
}

/// The address in a `struct sockaddr` of either family.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(libc::sa_family_t::from_ne_bytes(*bytes.first_chunk()?)) {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it.
    fn error(errno: i32, info: u32, by: &[u8]) -> Vec<u8> {
        [&errno.to_ne_bytes()[..], &[2, 3, 3, 0], &info.to_ne_bytes(), &[0; 4], by].concat()
    }

    /// The kernel's address of a host.
    fn host(address: &str) -> Vec<u8> {
        let socket = SocketAddress::new(address.parse().expect("an address"), 0, 0);
        let len = socket.len() as usize;
        // SAFETY: an address of so many bytes, which lives until they are copied.
        unsafe { std::slice::from_raw_parts(socket.as_ptr().cast::<u8>(), len) }.to_vec()
    }

    #[test]
    fn only_the_host_itself_refuses() {
        for (to, other) in [("10.0.0.7", "10.0.0.1"), ("fd00::7", "fd00::1")] {
            let at = SocketAddress::new(to.parse().expect("an address"), 4000, 0);
            let said =
                |errno, by: &[u8]| Report::parse(&error(errno, 0, by), at).expect("a report").is_refusal();
            assert!(said(libc::ECONNREFUSED, &host(to)));
            assert!(!said(libc::ECONNREFUSED, &host(other)), "a packet filter between");
            assert!(!said(libc::ECONNREFUSED, &[0; 16]), "our own kernel");
            assert!(!said(libc::ECONNREFUSED, &[]), "nobody");
            assert!(!said(libc::EHOSTUNREACH, &host(to)), "its administrator");
        }
    }

    #[test]
    fn a_width_is_read_and_what_is_cut_is_none() {
        let at = SocketAddress::new([10, 0, 0, 7].into(), 4000, 0);
        let whole = error(libc::EMSGSIZE, 1400, &host("10.0.0.1"));
        let report = Report::parse(&whole, at).expect("a report");
        assert_eq!((report.errno, report.mtu, report.to), (libc::EMSGSIZE, 1400, at));
        for len in 0..12 {
            assert!(Report::parse(&whole[..len], at).is_none(), "{len}");
        }
        for len in 12..24 {
            let cut = Report::parse(&whole[..len], at).expect("a report");
            assert_eq!(cut.by, None, "{len}");
        }
    }
}
