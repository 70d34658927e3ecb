//! [`Interface`]: the network interfaces of this host, `getifaddrs(3)`, and [`Filter`], which of them
//! the user wants.
//!
//! One interface with several addresses is several entries. Speed and NUMA node come from sysfs,
//! which may show another network namespace than ours: it is believed only where the index agrees.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::name::same_subnet;
use crate::error::{Error, Result};

/// Speed of what has none of its own: of a 10-gigabit device, for which usNIC was made.
const USUAL_MBPS: u32 = 10_000;

/// Speed of the loopback interface: faster than a device, so that it is preferred where it reaches.
const LOOPBACK_MBPS: u32 = 100_000;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's name of it: `eth0`.
    pub name: String,
    /// The kernel's index of it.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Leading bits that its subnet shares.
    pub prefix: u8,
    /// Longest IP packet in bytes.
    pub mtu: usize,
    /// Whether it is configured and has a carrier.
    pub is_up: bool,
    /// Whether it only reaches this host.
    pub is_loopback: bool,
    /// Whether a device is behind it, rather than software.
    pub is_device: bool,
    /// Nominal speed in megabits per second; a default where there is none.
    pub speed_mbps: u32,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
}

impl Interface {
    /// All of them, in the kernel's order.
    pub fn all() -> Result<Vec<Self>> {
        // It has no address, so that it takes no port: there may be none left.
        let socket = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let probe = socket(AddressFamily::INET)
            .or_else(|_| socket(AddressFamily::INET6))
            .map_err(|errno| Error::System(errno.raw_os_error()))?;
        let list = getifaddrs().map_err(|errno| Error::System(errno as i32))?;
        Ok(list.filter_map(|entry| Self::read(entry, &probe)).collect())
    }

    fn read(entry: InterfaceAddress, probe: &OwnedFd) -> Option<Self> {
        let address = ip(entry.address.as_ref()?)?;
        let prefix = match entry.netmask.as_ref().and_then(ip) {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None if address.is_ipv4() => 32,
            None => 128,
        };
        let name = entry.interface_name;
        let index = if_nametoindex(name.as_str()).unwrap_or(0);
        let has = |flags| entry.flags.contains(flags);
        let is_loopback = has(InterfaceFlags::IFF_LOOPBACK);
        let facts = Facts::read(&name, index);
        let usual = if is_loopback { LOOPBACK_MBPS } else { USUAL_MBPS };
        Some(Self {
            index,
            address,
            prefix: prefix as u8,
            mtu: mtu(probe, &name)?,
            is_up: has(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
            is_loopback,
            is_device: facts.is_device,
            speed_mbps: facts.speed_mbps.unwrap_or(usual),
            numa_node: facts.numa_node,
            name,
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{})", self.name, self.address, self.prefix)
    }
}

/// The IP address in a socket address, if it is one.
fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

/// `SIOCGIFMTU` of `netdevice(7)`: unlike sysfs, it always speaks of our own namespace.
fn mtu(probe: &OwnedFd, name: &str) -> Option<usize> {
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        mtu: i32,
        rest: [u8; 20],
    }
    const { assert!(size_of::<Request>() == size_of::<libc::ifreq>()) };
    let mut request = Request { name: [0; libc::IFNAMSIZ], mtu: 0, rest: [0; 20] };
    request.name.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    // SAFETY: an open socket; the callee reads the name and writes the number.
    let code = unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if code == 0 { usize::try_from(request.mtu).ok() } else { None }
}

/// What sysfs says of an interface.
#[derive(Default)]
struct Facts {
    is_device: bool,
    speed_mbps: Option<u32>,
    numa_node: Option<u32>,
}

impl Facts {
    fn read(name: &str, index: u32) -> Self {
        if name.contains('/') || name.starts_with('.') {
            return Self::default();
        }
        let number = |file: &str| -> Option<u32> {
            fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok()?.trim().parse().ok()
        };
        if number("ifindex") != Some(index) {
            return Self::default();
        }
        Self {
            is_device: fs::exists(format!("/sys/class/net/{name}/device")).unwrap_or(false),
            // Unknown is -1, or u32::MAX in older kernels.
            speed_mbps: number("speed").filter(|speed| (1..=10_000_000).contains(speed)),
            numa_node: number("device/numa_node"),
        }
    }
}

/// A number for this host and its network namespace, the same for all processes in it: loopback
/// addresses of others are not ours.
pub fn host() -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino());
    let mut hasher = DefaultHasher::new();
    (boot.trim(), namespace).hash(&mut hasher);
    hasher.finish()
}

/// A list of interfaces as users write it: names and subnets, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Item>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Name(String),
    Subnet(IpAddr, u8),
}

/// Why a list of interfaces cannot be understood: the item, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter {
    item: String,
    why: &'static str,
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" {}; give interface names (eth0) and subnets (10.1.0.0/16, fd00::/64), separated by commas",
            self.item, self.why
        )
    }
}

impl std::error::Error for BadFilter {}

impl Filter {
    /// Reads a list. Blanks around items and empty items do not matter.
    pub fn parse(text: &str) -> std::result::Result<Self, BadFilter> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(Item::parse).collect::<std::result::Result<_, _>>().map(Self)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an item means this interface.
    pub fn matches(&self, interface: &Interface) -> bool {
        self.0.iter().any(|item| item.matches(interface))
    }

    /// The items that mean none of the interfaces, for a warning.
    pub fn unmatched(&self, interfaces: &[Interface]) -> Vec<String> {
        let idle = self.0.iter().filter(|item| !interfaces.iter().any(|interface| item.matches(interface)));
        idle.map(Item::to_string).collect()
    }

    /// The names in it that no interface has.
    pub fn unknown_names(&self, interfaces: &[Interface]) -> Vec<&str> {
        let names = self.0.iter().filter_map(|item| match item {
            Item::Name(name) => Some(name.as_str()),
            Item::Subnet(..) => None,
        });
        names.filter(|name| !interfaces.iter().any(|interface| interface.name == *name)).collect()
    }
}

impl Item {
    fn parse(text: &str) -> std::result::Result<Self, BadFilter> {
        let bad = |why| BadFilter { item: text.to_owned(), why };
        let Some((address, prefix)) = text.split_once('/') else {
            if let Ok(address) = text.parse::<IpAddr>() {
                return Ok(Self::Subnet(address, if address.is_ipv4() { 32 } else { 128 }));
            }
            return match text {
                _ if text.len() >= libc::IFNAMSIZ => Err(bad("is too long for the name of an interface")),
                _ if text.contains(char::is_whitespace) => Err(bad("has a blank in it")),
                _ if text.contains(':') => Err(bad("is neither a name nor an IPv6 address")),
                _ => Ok(Self::Name(text.to_owned())),
            };
        };
        let address: IpAddr = address.trim().parse().map_err(|_| bad("does not begin with an IP address"))?;
        let prefix: u8 = prefix.trim().parse().map_err(|_| bad("has no number of bits behind its slash"))?;
        if prefix > if address.is_ipv4() { 32 } else { 128 } {
            return Err(bad("has more bits behind its slash than its address has"));
        }
        Ok(Self::Subnet(address, prefix))
    }

    fn matches(&self, interface: &Interface) -> bool {
        match self {
            Self::Name(name) => *name == interface.name,
            Self::Subnet(address, prefix) => same_subnet(*address, interface.address, *prefix),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Subnet(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 1,
            address: address.parse().expect("an address"),
            prefix: 24,
            mtu: 1500,
            is_up: true,
            is_loopback: false,
            is_device: false,
            speed_mbps: USUAL_MBPS,
            numa_node: None,
        }
    }

    #[test]
    fn the_loopback_interface_is_found_as_it_is() {
        let all = Interface::all().expect("a list");
        let loopback = all.iter().find(|one| one.address == IpAddr::from([127, 0, 0, 1])).expect("lo");
        assert!(loopback.is_loopback && loopback.is_up && !loopback.is_device);
        assert_eq!((loopback.name.as_str(), loopback.prefix), ("lo", 8));
        assert!(loopback.mtu >= 1500 && loopback.index > 0);
        assert_eq!((loopback.speed_mbps, loopback.numa_node), (LOOPBACK_MBPS, None));
    }

    #[test]
    fn names_and_subnets_of_both_families_match() {
        let filter = Filter::parse(" eth0, 10.1.0.0/16 ,fd00::/64,,192.168.0.7").expect("a list");
        assert!(filter.matches(&interface("eth0", "1.2.3.4")));
        assert!(filter.matches(&interface("eth1", "10.1.200.1")));
        assert!(filter.matches(&interface("eth1", "fd00::7")));
        assert!(filter.matches(&interface("eth1", "192.168.0.7")));
        assert!(!filter.matches(&interface("eth1", "10.2.0.1")));
        assert!(!filter.matches(&interface("eth01", "192.168.0.8")));
        assert!(
            Filter::parse("10.1.2.3/8")
                .expect("bits of the host do no harm")
                .matches(&interface("x", "10.9.9.9"))
        );
        let idle = filter.unmatched(&[interface("eth0", "10.1.0.1")]);
        assert_eq!(idle, ["fd00::/64", "192.168.0.7/32"]);
        assert_eq!(filter.unknown_names(&[interface("eth0", "1.2.3.4")]), [""; 0]);
        assert_eq!(filter.unknown_names(&[interface("eth1", "10.1.0.1")]), ["eth0"]);
        assert!(Filter::parse(" , ").expect("an empty list").is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_item() {
        let why = |text: &str| Filter::parse(text).expect_err("wrong").to_string();
        assert!(why("eth0,10.0.0/8").starts_with("\"10.0.0/8\" does not begin with an IP address;"));
        assert!(why("10.0.0.0/33").starts_with("\"10.0.0.0/33\" has more bits"));
        assert!(why("fd00::/129").contains("more bits"));
        assert!(why("10.0.0.0/x").contains("no number of bits"));
        assert!(why("fd00::zz").contains("IPv6"));
        assert!(why("eth0 eth1").contains("blank"));
        assert!(why("averyveryverylongname").contains("too long"));
    }
}
