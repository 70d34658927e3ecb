//! Node and service to the name of an endpoint.
//!
//! A service is a port number; a node is an IPv4 address, or what the system resolves to one. One that only leads back to
//! this node stands for the address that other nodes know it by: that of the interface which `FI_GNI_IFACE` names, or of the
//! first that leads elsewhere.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt as _;

use super::errno::{Errno, Outcome};
use super::names::Known;
use crate::gni::Place;
use crate::link::Interface;
use crate::wire::gni::datagram::{Key, NameId};
use crate::wire::gni::envelope::{HOME, key_of};
use crate::wire::gni::name::{Kind, Name};

/// Says by which interface other nodes reach endpoints: its name, or its address.
const INTERFACE: &str = "FI_GNI_IFACE";
/// What only those have who may connect between nodes to who has told them no more than node and service.
const SECRET: &str = "FI_GNI_KEY";
/// For how many seconds a peer of another node may be silent before it is gone.
const SILENCE: &str = "FI_GNI_PEER_TIMEOUT";
/// Where nothing is said; and what may be said.
const PATIENCE: u32 = 120;
const SILENCES: std::ops::RangeInclusive<u32> = 1..=86_400;

/// An IPv4 address of an interface.
fn address_of(interface: &Interface) -> Option<Ipv4Addr> {
    match interface.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// The address that stands for this node: of the first interface with a device behind it, or else of the first that leads
/// elsewhere, or else the loopback's.
///
/// # Errors
/// `FI_ENODATA`: there is no such interface as is wanted.
pub(super) fn device() -> Outcome<Ipv4Addr> {
    let interfaces = Interface::all().map_err(|_| Errno::NODATA)?;
    let wish = set(INTERFACE);
    if wish.is_empty() {
        return Ok(best(&interfaces).unwrap_or(Ipv4Addr::LOCALHOST));
    }
    wanted(&interfaces, &wish).ok_or(Errno::NODATA)
}

/// The address of an interface by its name, or by itself.
fn wanted(interfaces: &[Interface], wish: &str) -> Option<Ipv4Addr> {
    let is_it = |interface: &&Interface| {
        interface.name == wish || address_of(interface).is_some_and(|address| address.to_string() == wish)
    };
    interfaces.iter().filter(is_it).find_map(address_of)
}

fn best(interfaces: &[Interface]) -> Option<Ipv4Addr> {
    let usable = interfaces.iter().filter(|interface| interface.is_up && address_of(interface).is_some());
    usable.min_by_key(|interface| (interface.is_loopback, !interface.is_device)).and_then(address_of)
}

/// Whether the address is of this node.
pub(super) fn is_own(address: Ipv4Addr) -> Outcome<bool> {
    Ok(address.is_loopback() || own()?.contains(&address))
}

/// The addresses of this node.
pub(super) fn own() -> Outcome<Vec<Ipv4Addr>> {
    let interfaces = Interface::all()?;
    Ok(interfaces.iter().filter_map(address_of).collect())
}

/// A peer of that name, where this node has these addresses.
pub(super) fn known(name: Name, own: &[Ipv4Addr]) -> Known {
    let is_far = !name.device.is_loopback() && !own.contains(&name.device);
    let id = if is_far { NameId { device: name.device.to_bits(), ..at_home(&name) } } else { at_home(&name) };
    Known { name, id, is_far }
}

/// An endpoint of this node, within it.
pub(super) fn at_home(name: &Name) -> NameId {
    NameId { device: HOME, cdm_id: name.cdm_id, incarnation: name.incarnation }
}

/// Where other nodes are to reach an endpoint of this one, unless it is at an address that leads nowhere. A service has
/// its port only where others may know no more than that.
///
/// # Errors
/// `FI_EINVAL`: the time that a peer may be silent is none. What the system does not give.
pub(super) fn place(name: &Name) -> Outcome<Option<Place>> {
    if name.device.is_loopback() {
        return Ok(None);
    }
    let shared = secret();
    let port = match name.kind {
        Kind::Bound if shared.is_some() => u16::try_from(name.cdm_id).unwrap_or(0),
        _ => 0,
    };
    let word = || crate::link::random().map_err(|_| Errno::NOMEM);
    let key = (u128::from(word()?) | u128::from(word()?) << 64).to_le_bytes();
    Ok(Some(Place { address: name.device, port, key, shared, silence: silence()? }))
}

/// A variable, empty if it is not set. What is no UTF-8 is kept as the character for that, which no value has: it is refused.
fn set(variable: &str) -> String {
    std::env::var_os(variable).map_or_else(String::new, |value| value.to_string_lossy().into_owned())
}

fn silence() -> Outcome<u32> {
    let text = set(SILENCE);
    if text.is_empty() {
        return Ok(PATIENCE);
    }
    text.parse().ok().filter(|seconds| SILENCES.contains(seconds)).ok_or(Errno::INVAL)
}

/// The key that users of several nodes share.
fn secret() -> Option<Key> {
    // Whatever bytes they agree on: a key that is no text must not count as none.
    let bytes = std::env::var_os(SECRET).filter(|bytes| !bytes.is_empty())?;
    Some(key_of(bytes.as_bytes()))
}

/// The number of a service.
pub(super) fn port(service: &CStr) -> Outcome<u16> {
    let text = service.to_str().map_err(|_| Errno::NODATA)?;
    text.parse().ok().filter(|port| *port != 0).ok_or(Errno::NODATA)
}

/// The device that a node is, as [`device`] says it where no other node knows the address; and whether it is this one.
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
    Ok((seen(address)?, is_own(address)?))
}

/// The address as others see it.
fn seen(address: Ipv4Addr) -> Outcome<Ipv4Addr> {
    if address.is_loopback() { device() } else { Ok(address) }
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
            seen(next)
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
    fn an_interface_is_wanted_by_its_name_or_its_address() {
        let interfaces = Interface::all().expect("interfaces");
        for wish in ["lo", "127.0.0.1"] {
            assert_eq!(wanted(&interfaces, wish), Some(Ipv4Addr::LOCALHOST));
        }
        assert_eq!(wanted(&interfaces, "no such"), None);
        assert_eq!(wanted(&interfaces, "192.0.2.1"), None);
    }

    #[test]
    fn a_peer_is_near_at_every_address_of_this_node() {
        let own = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 9)];
        for (last, is_far) in [(1, false), (2, true), (9, false)] {
            let name = Name::bound(Ipv4Addr::new(192, 0, 2, last), 7);
            let peer = known(name, &own);
            assert_eq!((peer.name, peer.is_far), (name, is_far));
            assert_eq!(peer.id.device, if is_far { name.device.to_bits() } else { HOME });
        }
        assert!(!known(Name::bound(Ipv4Addr::new(127, 9, 9, 9), 7), &own).is_far);
    }

    #[test]
    fn a_place_has_a_key_of_its_own_and_none_is_on_the_loopback() {
        let bound = Name::bound(Ipv4Addr::new(192, 0, 2, 1), 7);
        let keys = [(); 2].map(|()| place(&bound).expect("random").expect("a place").key);
        assert!(keys[0] != keys[1] && keys[0] != [0; 16]);
        assert!(place(&Name::bound(Ipv4Addr::LOCALHOST, 7)).expect("random").is_none());
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
