//! Node and service to the name of an endpoint.
//!
//! A service is a port number; a node is an IPv4 address, or what the system resolves to one. An address of this node
//! stands for the node, whichever it is: both ends make the same name of it.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

use super::errno::{Errno, Outcome};
use crate::link::Interface;
use crate::wire::gni::name::Name;

/// An IPv4 address of an interface.
fn address_of(interface: &Interface) -> Option<Ipv4Addr> {
    match interface.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// The address that stands for this node: of the first interface with a device behind it, or else of the first that leads
/// elsewhere, or else the loopback's.
pub(super) fn device() -> Outcome<Ipv4Addr> {
    let interfaces = Interface::all().map_err(|_| Errno::NODATA)?;
    Ok(best(&interfaces).unwrap_or(Ipv4Addr::LOCALHOST))
}

fn best(interfaces: &[Interface]) -> Option<Ipv4Addr> {
    let usable = interfaces.iter().filter(|interface| interface.is_up && address_of(interface).is_some());
    usable.min_by_key(|interface| (interface.is_loopback, !interface.is_device)).and_then(address_of)
}

/// Whether the address is of this node.
pub(super) fn is_own(address: Ipv4Addr) -> Outcome<bool> {
    let interfaces = Interface::all().map_err(|_| Errno::NODATA)?;
    let is_it = |interface: &Interface| address_of(interface) == Some(address);
    Ok(address.is_loopback() || interfaces.iter().any(is_it))
}

/// The number of a service.
pub(super) fn port(service: &CStr) -> Outcome<u16> {
    let text = service.to_str().map_err(|_| Errno::NODATA)?;
    text.parse().ok().filter(|port| *port != 0).ok_or(Errno::NODATA)
}

/// The device that a node is, as [`device`] says it for this one.
pub(super) fn node(node: &CStr, is_numeric: bool) -> Outcome<(Ipv4Addr, bool)> {
    let text = node.to_str().map_err(|_| Errno::NODATA)?;
    let address = match text.parse::<Ipv4Addr>() {
        Ok(address) => address,
        Err(_) if is_numeric => return Err(Errno::NODATA),
        Err(_) => resolve(text)?,
    };
    if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
        return Err(Errno::NODATA);
    }
    if is_own(address)? { Ok((device()?, true)) } else { Ok((address, false)) }
}

fn resolve(text: &str) -> Outcome<Ipv4Addr> {
    let found = (text, 0).to_socket_addrs().map_err(|_| Errno::NODATA)?;
    let mut addresses = found.filter_map(|address| match address.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    addresses.next().ok_or(Errno::NODATA)
}

/// The name of the endpoint there. Without a node it is this one.
pub(super) fn name(at: Option<&CStr>, service: &CStr, is_numeric: bool) -> Outcome<Name> {
    let device = match at {
        Some(at) => node(at, is_numeric)?.0,
        None => device()?,
    };
    Ok(Name::bound(device, port(service)?))
}

/// So many services, of so many nodes, in the order of `fi_av_insertsym(3)`: those of a node one after the other. Nodes
/// are counted up from the first by the last part of their address.
pub(super) fn symmetric(
    first: &CStr,
    nodes: usize,
    service: &CStr,
    services: usize,
) -> Outcome<Vec<Outcome<Name>>> {
    let port = usize::from(port(service)?);
    let first = if nodes == 1 { node(first, false).map(|(device, _)| device) } else { literal(first) };
    let mut names = Vec::new();
    for index in 0..nodes {
        let device = first.and_then(|first| {
            let step = u32::try_from(index).map_err(|_| Errno::INVAL)?;
            let next = first.to_bits().checked_add(step).map(Ipv4Addr::from_bits).ok_or(Errno::INVAL)?;
            if nodes > 1 && is_own(next)? { device() } else { Ok(next) }
        });
        names.extend((port..port.saturating_add(services)).map(|port| {
            let port = u16::try_from(port).map_err(|_| Errno::INVAL)?;
            Ok(Name::bound(device?, port))
        }));
    }
    Ok(names)
}

/// An address that is written as one.
fn literal(text: &CStr) -> Outcome<Ipv4Addr> {
    text.to_str().ok().and_then(|text| text.parse().ok()).ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_stands_for_the_node_before_a_bridge_and_the_loopback() {
        let interface = |address: &str, is_up, is_loopback, is_device| Interface {
            name: String::new(),
            index: 1,
            address: address.parse().expect("an address"),
            prefix: 24,
            mtu: 1500,
            is_up,
            is_loopback,
            is_device,
            speed_mbps: 1,
            numa_node: None,
        };
        let all = [
            interface("127.0.0.1", true, true, false),
            interface("fe80::1", true, false, true),
            interface("10.0.0.9", false, false, true),
            interface("172.17.0.1", true, false, false),
            interface("10.0.0.1", true, false, true),
            interface("10.0.1.1", true, false, true),
        ];
        let of = |count: usize| best(&all[..count]).map(|address| address.to_string());
        assert_eq!(of(6).as_deref(), Some("10.0.0.1"));
        assert_eq!(of(4).as_deref(), Some("172.17.0.1"));
        assert_eq!(of(3).as_deref(), Some("127.0.0.1"));
        assert_eq!(of(0), None);
    }

    #[test]
    fn all_addresses_of_this_node_are_one_device() {
        let here = device().expect("a network");
        for text in [c"127.0.0.1", c"127.0.0.2", c"localhost"] {
            assert_eq!(node(text, false), Ok((here, true)), "{text:?}");
        }
        assert_eq!(name(None, c"9228", false), Ok(Name::bound(here, 9228)));
        assert_eq!(name(Some(c"127.0.0.1"), c"9228", true), Ok(Name::bound(here, 9228)));
    }

    #[test]
    fn symmetric_names_are_in_the_order_of_the_page() {
        let names = symmetric(c"192.0.2.1", 2, c"7", 2).expect("names");
        let at = |last, port| Ok(Name::bound(Ipv4Addr::new(192, 0, 2, last), port));
        assert_eq!(names, [at(1, 7), at(1, 8), at(2, 7), at(2, 8)]);
        let names = symmetric(c"255.255.255.254", 3, c"65535", 1).expect("names");
        assert!(names[2].is_err(), "no address after the last");
        assert_eq!(symmetric(c"no name", 1, c"7", 1).expect("names"), [Err(Errno::NODATA)]);
        assert_eq!(symmetric(c"192.0.2.1", 1, c"", 1), Err(Errno::NODATA));
    }

    #[test]
    fn what_does_not_resolve_is_no_data() {
        for text in [c"0.0.0.0", c"255.255.255.255", c"::1", c"", c"no name", c"224.0.0.1"] {
            assert_eq!(node(text, true), Err(Errno::NODATA), "{text:?}");
        }
        for text in [c"", c"0", c"65536", c"-1", c"ssh"] {
            assert_eq!(port(text), Err(Errno::NODATA), "{text:?}");
        }
        // A network that is for documentation, RFC 5737.
        let far = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(node(c"192.0.2.1", true), Ok((far, false)));
    }
}
