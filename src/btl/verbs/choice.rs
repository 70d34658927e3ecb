//! Which ports of which devices are used, and which port of a peer each of them talks to.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::engine::cm::Dialect;
use crate::link::{Filter, Interface};
use crate::verbs::Gid;
use crate::wire::verbs::{Network, Port};

/// A port that could be used: a device at an address of this process's network.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// What the kernel calls the device, as `mlx5_0`.
    pub(super) device: String,
    /// Its number, from 1.
    pub(super) port: u8,
    pub(super) interface: Interface,
    pub(super) network: Network,
    /// What it is called on its network.
    pub(super) gids: Vec<Gid>,
    /// Whether the port carries data.
    pub(super) is_active: bool,
}

/// Lists of devices and of networks, as users write them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) devices: [Option<String>; 2],
    networks: [Option<Filter>; 2],
}

/// Why a device, or a port of it, is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `if_include` names others.
    NotIncluded,
    /// `if_exclude` names it.
    Excluded,
    /// `ipaddr_include` names other networks than this.
    NetworkNotIncluded(String),
    /// `ipaddr_exclude` names this network.
    NetworkExcluded(String),
    /// It is InfiniBand, which `allow_ib` does not allow.
    InfiniBand,
    /// openib's wire, which is to be spoken, is not spoken there.
    Wire,
    /// It does not say what it is.
    Unanswered(String),
    /// It carries no data now, or its network interface is down.
    Down,
    /// It has no address in this process's network.
    NoAddress,
    /// There are so many before it, and `max_btls` asks for no more.
    TooMany(usize),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotIncluded => f.write_str("it is not in if_include"),
            Self::Excluded => f.write_str("it is in if_exclude"),
            Self::NetworkNotIncluded(network) => write!(f, "{network} is not in ipaddr_include"),
            Self::NetworkExcluded(network) => write!(f, "{network} is in ipaddr_exclude"),
            Self::InfiniBand => f.write_str("it is InfiniBand (allow_ib is 0)"),
            Self::Wire => f.write_str("openib's wire is only spoken over RoCE, at addresses of IPv4"),
            Self::Unanswered(error) => write!(f, "its state cannot be had ({error})"),
            Self::Down => f.write_str("it is down"),
            Self::NoAddress => f.write_str("it has no address in this process's network"),
            Self::TooMany(most) => write!(f, "{most} before it are used, and there are no more (max_btls)"),
        }
    }
}

impl Obstacle {
    /// How far a port came: what speaks against it is looked for in this order.
    const fn reach(&self) -> u8 {
        match self {
            Self::NotIncluded => 0,
            Self::NetworkNotIncluded(_) => 1,
            Self::InfiniBand => 2,
            Self::Wire => 3,
            Self::Unanswered(_) | Self::Down | Self::NoAddress | Self::TooMany(_) => 4,
            Self::Excluded | Self::NetworkExcluded(_) => 5,
        }
    }
}

/// Whether a port is used at this one of its addresses, rather than at another that was looked at before. What is excluded at one
/// of them is excluded; else it is used at the first that nothing speaks against, and if there is none, it is told what speaks
/// against the one that came furthest.
pub(super) fn prefer(this: Option<&Obstacle>, before: Option<&Obstacle>) -> bool {
    let reach = |obstacle: &Obstacle| obstacle.reach();
    let is_excluded = |obstacle: Option<&Obstacle>| {
        matches!(obstacle, Some(Obstacle::Excluded | Obstacle::NetworkExcluded(_)))
    };
    match (this, before) {
        (_, before) if is_excluded(before) => false,
        (this, _) if is_excluded(this) => true,
        (None, before) => before.is_some(),
        (Some(_), None) => false,
        (Some(this), Some(before)) => reach(this) > reach(before),
    }
}

/// Words of a list.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Whether a word of a list of devices means a port: its device's name, without or with its number, or one of its GIDs. A GID that
/// stands for an address means the port at this address.
fn means(word: &str, it: &Candidate) -> bool {
    if let Ok(gid) = word.parse::<Ipv6Addr>() {
        let is_here = |address: IpAddr| match address {
            IpAddr::V6(six) if six.is_unicast_link_local() => true,
            address => address == it.interface.address,
        };
        return it.gids.iter().any(|one| one.bytes == gid.octets() && one.address().is_none_or(is_here));
    }
    match word.rsplit_once(':') {
        Some((name, number)) => name == it.device && number.parse() == Ok(it.port),
        None => word == it.device,
    }
}

impl Lists {
    /// Reads them: each pair is what is to be used, and what is not.
    ///
    /// # Errors
    /// What is wrong with a list of networks.
    pub(super) fn parse(
        devices: &[Option<String>; 2],
        networks: &[Option<String>; 2],
    ) -> Result<Self, String> {
        let filter = |text: &Option<String>| {
            text.as_deref().map(|text| Filter::parse(text).map_err(|why| why.to_string())).transpose()
        };
        Ok(Self { devices: devices.clone(), networks: [filter(&networks[0])?, filter(&networks[1])?] })
    }

    /// Whether the user has named the network of an interface. Only then is the loopback interface looked at: to
    /// librdmacm its addresses are any device's.
    pub(super) fn names(&self, interface: &Interface) -> bool {
        self.networks[0].as_ref().is_some_and(|filter| filter.matches(interface))
    }

    /// Whether a GID is among the words of the lists of devices.
    pub(super) fn have_gids(&self) -> bool {
        self.devices
            .iter()
            .flatten()
            .flat_map(|list| words(list))
            .any(|word| word.parse::<Ipv6Addr>().is_ok())
    }

    /// Why a port is not used; `None` if it is.
    pub(super) fn refuse(&self, it: &Candidate, allow_infiniband: bool) -> Option<Obstacle> {
        let listed =
            |list: &Option<String>| list.as_deref().map(|list| words(list).any(|word| means(word, it)));
        let matched = |filter: &Option<Filter>| filter.as_ref().map(|filter| filter.matches(&it.interface));
        if listed(&self.devices[0]) == Some(false) {
            return Some(Obstacle::NotIncluded);
        }
        if listed(&self.devices[1]) == Some(true) {
            return Some(Obstacle::Excluded);
        }
        if matched(&self.networks[0]) == Some(false) {
            return Some(Obstacle::NetworkNotIncluded(it.interface.to_string()));
        }
        if matched(&self.networks[1]) == Some(true) {
            return Some(Obstacle::NetworkExcluded(it.interface.to_string()));
        }
        if it.network == Network::InfiniBand && !allow_infiniband {
            return Some(Obstacle::InfiniBand);
        }
        if !it.is_active || !it.interface.is_up {
            return Some(Obstacle::Down);
        }
        None
    }

    /// Words of the lists of devices that mean none of these; `ports` says how many a device has, where that can be known, and
    /// `has_gid` whether a port of any has it.
    pub(super) fn unknown(
        &self,
        devices: &[String],
        ports: impl Fn(&str) -> Option<u8>,
        has_gid: impl Fn(Ipv6Addr) -> bool,
    ) -> Vec<String> {
        let is_device = |name: &str| devices.iter().any(|device| device == name);
        let has = |name: &str, number: &str| {
            let is_one = |number: u8| ports(name).is_none_or(|count| (1..=count).contains(&number));
            is_device(name) && number.parse().is_ok_and(is_one)
        };
        let is_known = |word: &&str| {
            if let Ok(gid) = word.parse() {
                return has_gid(gid);
            }
            is_device(word) || word.rsplit_once(':').is_some_and(|(name, number)| has(name, number))
        };
        let all = self.devices.iter().flatten().flat_map(|list| words(list));
        all.filter(|word| !is_known(word)).map(str::to_owned).collect()
    }

    /// Words of the lists of networks that mean none of these.
    pub(super) fn elsewhere(&self, interfaces: &[Interface]) -> Vec<String> {
        self.networks.iter().flatten().flat_map(|filter| filter.unmatched(interfaces)).collect()
    }
}

impl Candidate {
    /// Why a dialect is not spoken there; `None` if it is.
    pub(super) fn refuse(&self, dialect: Dialect) -> Option<Obstacle> {
        let is_openibs = self.network == Network::Roce && self.interface.address.is_ipv4();
        (dialect == Dialect::Openib && !is_openibs).then_some(Obstacle::Wire)
    }
}

/// Of ports in their order, each with what speaks against it, leaves those that are too many.
pub(super) fn leave_at<'a>(most: usize, ports: impl Iterator<Item = &'a mut Option<Obstacle>>) {
    let usable = ports.filter(|obstacle| obstacle.is_none());
    usable.skip(most).for_each(|obstacle| *obstacle = Some(Obstacle::TooMany(most)));
}

/// The leading bits of an address.
fn subnet(address: IpAddr, prefix: u8) -> (bool, u128) {
    match address {
        IpAddr::V4(four) => {
            let bits = u64::from(four.to_bits()) << 32 >> 32;
            (true, u128::from(bits >> (32 - u32::from(prefix.min(32)))))
        }
        IpAddr::V6(six) => (false, six.to_bits().checked_shr(128 - u32::from(prefix.min(128))).unwrap_or(0)),
    }
}

/// Whether two ports are of one kind and one subnet.
fn is_next_to(one: &Port, other: &Port) -> bool {
    one.network == other.network
        && one.prefix == other.prefix
        && subnet(one.at.ip(), one.prefix) == subnet(other.at.ip(), other.prefix)
}

/// The port of `theirs` that the port `own` of `ours` talks to. Both sides come to the same pairs: the first of a subnet
/// here with the first of it there, and so on; and where no two are of one subnet, the first of a kind with the first
/// of that kind, for networks with routers.
pub(super) fn pair(ours: &[Port], theirs: &[Port], own: usize) -> Option<usize> {
    let mine = ours.get(own)?;
    let beside = ours[..own].iter().filter(|other| is_next_to(other, mine)).count();
    let near = theirs.iter().enumerate().filter(|(_, port)| is_next_to(port, mine));
    if let Some((found, _)) = near.clone().nth(beside) {
        return Some(found);
    }
    let any_near = ours.iter().any(|one| theirs.iter().any(|other| is_next_to(one, other)));
    let is_first = ours.iter().position(|port| port.network == mine.network) == Some(own);
    if any_near || !is_first {
        return None;
    }
    theirs.iter().position(|port| port.network == mine.network && port.at.is_ipv4() == mine.at.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::GidKind;

    fn candidate(device: &str, address: &str, network: Network) -> Candidate {
        let interface = Interface {
            name: "eth0".to_owned(),
            index: 2,
            address: address.parse().expect("an address"),
            prefix: 24,
            mtu: 1500,
            is_up: true,
            is_loopback: false,
            is_device: true,
            speed_mbps: 25_000,
            numa_node: None,
        };
        let gid = |index, kind, bytes: &str| Gid {
            index,
            bytes: bytes.parse::<Ipv6Addr>().expect("a GID").octets(),
            kind,
            interface: Some(2),
        };
        let mapped = format!("::ffff:{address}");
        let gids = match network {
            Network::Roce => vec![
                gid(0, GidKind::RoceV1, "fe80::ff:fe00:1"),
                gid(1, GidKind::RoceV2, &mapped),
                gid(2, GidKind::RoceV2, "::ffff:10.99.0.1"),
            ],
            _ => vec![gid(0, GidKind::Infiniband, "200:1::")],
        };
        Candidate { device: device.to_owned(), port: 1, interface, network, gids, is_active: true }
    }

    fn lists(devices: [&str; 2], networks: [&str; 2]) -> Lists {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Lists::parse(&devices.map(some), &networks.map(some)).expect("lists")
    }

    #[test]
    fn a_port_is_used_unless_something_speaks_against_it() {
        let roce = candidate("rxe1", "10.8.0.1", Network::Roce);
        let used = |lists: Lists| lists.refuse(&roce, false).is_none();
        assert!(used(Lists::default()));
        assert!(used(lists(["mlx5_0, rxe1", ""], ["", ""])) && used(lists(["rxe1:1", ""], ["", ""])));
        assert!(!used(lists(["rxe1:2", ""], ["", ""])) && !used(lists(["rxe", ""], ["", ""])));
        assert!(!used(lists(["", "rxe1"], ["", ""])) && used(lists(["", "rxe1:2"], ["", ""])));
        assert!(used(lists(["", ""], ["10.8.0.0/16", ""])) && !used(lists(["", ""], ["10.9.0.0/16", ""])));
        assert!(!used(lists(["", ""], ["", "eth0"])));
        assert!(
            used(lists(["fe80::ff:fe00:1", ""], ["", ""])) && !used(lists(["fe80::ff:fe00:2", ""], ["", ""]))
        );
        assert!(
            used(lists(["::ffff:10.8.0.1", ""], ["", ""])) && used(lists(["::FFFF:a08:1", ""], ["", ""]))
        );
        assert!(!used(lists(["::ffff:10.99.0.1", ""], ["", ""])), "it is another address's");
        assert!(
            !used(lists(["", "::ffff:10.8.0.1"], ["", ""]))
                && used(lists(["", "::ffff:10.99.0.1"], ["", ""]))
        );
        let iwarp = candidate("siw1", "10.8.0.1", Network::Iwarp);
        assert!(lists(["200:1::", ""], ["", ""]).refuse(&iwarp, false).is_none(), "a hardware address");
        let infiniband = candidate("mlx5_0", "10.8.0.1", Network::InfiniBand);
        let is_used = |allow| Lists::default().refuse(&infiniband, allow).is_none();
        assert!(!is_used(false) && is_used(true));
        let down = Candidate { is_active: false, ..roce };
        assert_eq!(Lists::default().refuse(&down, true), Some(Obstacle::Down));
        assert!(Lists::parse(&[None, None], &[Some("10.0.0.0/99".to_owned()), None]).is_err());
    }

    #[test]
    fn of_several_addresses_of_a_port_the_first_usable_one_is_used_unless_one_is_excluded() {
        let chosen = |obstacles: &[Option<Obstacle>]| {
            let mut found = 0;
            for at in 1..obstacles.len() {
                if prefer(obstacles[at].as_ref(), obstacles[found].as_ref()) {
                    found = at;
                }
            }
            found
        };
        let elsewhere = || Some(Obstacle::NetworkNotIncluded(String::new()));
        let excluded = || Some(Obstacle::NetworkExcluded(String::new()));
        assert_eq!(chosen(&[None, None]), 0);
        assert_eq!(chosen(&[elsewhere(), None, None]), 1);
        assert_eq!(chosen(&[excluded(), None]), 0);
        assert_eq!(chosen(&[None, Some(Obstacle::Excluded), None]), 1);
        assert_eq!(
            chosen(&[Some(Obstacle::NotIncluded), Some(Obstacle::Down), elsewhere()]),
            1,
            "it is told"
        );
    }

    #[test]
    fn gids_are_known_among_the_words_of_lists() {
        assert!(lists(["", "rxe1, fe80::1"], ["", ""]).have_gids());
        assert!(!lists(["rxe1:1", "siw1"], ["10.8.0.0/16", ""]).have_gids());
    }

    #[test]
    fn of_more_ports_than_are_wanted_the_first_usable_ones_are_used() {
        let after = |most| {
            let mut all = [None, Some(Obstacle::Down), None, None];
            leave_at(most, all.iter_mut());
            all
        };
        let many = |most| Some(Obstacle::TooMany(most));
        assert_eq!(after(1), [None, Some(Obstacle::Down), many(1), many(1)]);
        assert_eq!(after(2), [None, Some(Obstacle::Down), None, many(2)]);
        assert_eq!(after(3), [None, Some(Obstacle::Down), None, None]);
    }

    #[test]
    fn words_that_mean_nothing_here_are_known() {
        let has_gid = |gid: Ipv6Addr| gid == Ipv6Addr::LOCALHOST;
        let unknown =
            |words, ports| lists([words, ""], ["", ""]).unknown(&["rxe1".to_owned()], |_| ports, has_gid);
        assert_eq!(unknown("::1,0:0::1,::2", None), ["::2"]);
        assert_eq!(unknown("rxe1,mlx5_7,mlx5_7:1", Some(2)), ["mlx5_7", "mlx5_7:1"]);
        assert_eq!(
            unknown("rxe1:0,rxe1:1,rxe1:2,rxe1:3,rxe1:one", Some(2)),
            ["rxe1:0", "rxe1:3", "rxe1:one"]
        );
        assert_eq!(unknown("rxe1:3,rxe1:one", None), ["rxe1:one"], "nobody knows how many it has");
        let here = [candidate("rxe1", "10.8.0.1", Network::Roce).interface];
        let elsewhere = |networks| lists(["", ""], networks).elsewhere(&here);
        assert_eq!(elsewhere(["10.8.0.0/16,10.9.0.0/16,eth1", ""]), ["10.9.0.0/16", "eth1"]);
        assert_eq!(elsewhere(["", "eth0,lo"]), ["lo"]);
    }

    #[test]
    fn both_sides_pair_their_ports_alike() {
        let port = |at: &str, network| Port {
            at: at.parse().expect("an address"),
            prefix: 24,
            network,
            reads: 4,
            speed: 1,
        };
        let (roce, iwarp) = (Network::Roce, Network::Iwarp);
        let sides = [
            vec![port("10.8.0.1:1", roce), port("10.9.0.1:1", iwarp)],
            vec![port("10.9.0.2:2", iwarp), port("10.8.0.2:2", roce)],
            vec![port("10.8.0.3:3", roce), port("10.8.0.3:4", roce), port("10.8.0.3:5", iwarp)],
            vec![port("10.8.1.4:3", roce), port("10.8.2.4:4", iwarp)],
            vec![],
        ];
        for ours in &sides {
            for theirs in &sides {
                let there: Vec<_> = (0..ours.len()).map(|own| pair(ours, theirs, own)).collect();
                for (own, found) in there.iter().enumerate() {
                    if let Some(found) = found {
                        assert_eq!(pair(theirs, ours, *found), Some(own), "{ours:?} {theirs:?}");
                    }
                }
            }
        }
        let found = |one: usize, other: usize| {
            (0..sides[one].len()).map(|own| pair(&sides[one], &sides[other], own)).collect::<Vec<_>>()
        };
        assert_eq!(found(0, 1), [Some(1), Some(0)]);
        assert_eq!(found(2, 0), [Some(0), None, None], "two against one");
        assert_eq!(found(2, 3), [Some(0), None, Some(1)], "by way of routers");
        assert_eq!(pair(&sides[0], &sides[1], 7), None);
    }
}
