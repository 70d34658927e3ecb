//! Which links a process opens: one for each interface that may be used, and the loopback interface
//! for peers on the same host.

use crate::config;
use crate::error::Error;
use crate::fabric::{Library, Locality};
use crate::link::{self, Depths, Fabric, Filter, Interface, Link, Options, Socket};

/// A link and the interface that it is on.
pub struct Named {
    /// The interface's name.
    pub name: String,
    /// Whether it only reaches this host.
    pub is_loopback: bool,
    /// Its address.
    pub address: Option<std::net::IpAddr>,
    /// The link.
    pub link: Box<dyn Link + Send>,
}

/// Why there is no link.
#[derive(Debug)]
pub enum Absent {
    /// There is no usNIC device, and nobody asked for anything else.
    NotWanted,
    /// What is missing or wrong.
    Because(Trouble),
}

/// What is missing or wrong, in one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whose affair it is.
    pub cause: Cause,
    /// The line.
    pub line: String,
}

/// Whose affair a trouble is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The user's lists of interfaces.
    Lists,
    /// An item of these lists that means nothing here. All goes on without it.
    Idle,
    /// An interface that is down.
    Down,
    /// The system has no room, or no such thing.
    Resources,
    /// libfabric, or a provider of it.
    Libfabric,
    /// There is no memory.
    Memory,
}

impl Cause {
    fn trouble(self, line: String) -> Trouble {
        Trouble { cause: self, line }
    }
}

/// The links of a process, and what kept others from being opened.
pub struct Links {
    /// One at least.
    pub open: Vec<Named>,
    /// Interfaces that are not used though they should be.
    pub troubles: Vec<Trouble>,
}

/// A link for each interface that the user's lists allow: over usNIC devices if there are any, else,
/// if the component was `asked` for, over whatever `btl_usnic_link` says.
///
/// # Errors
/// Why there is none.
pub fn links(config: &config::Btl, asked: bool) -> Result<Links, Absent> {
    let all = Interface::all().map_err(|error| {
        Absent::Because(Cause::Resources.trouble(format!("the network interfaces cannot be listed: {error}")))
    })?;
    match config.link {
        config::LinkKind::Socket if asked => sockets(all, config),
        config::LinkKind::Libfabric if asked => fabrics(&all, config, None),
        config::LinkKind::Socket | config::LinkKind::Libfabric => return Err(Absent::NotWanted),
        config::LinkKind::Auto => {
            // libfabric is loaded where it is going to be used, and not to learn that there is no such device.
            let devices = link::has_usnic().then(|| fabrics(&all, config, Some("usnic")));
            match devices {
                Some(Ok(links)) => Ok(links),
                _ if asked => sockets(all, config),
                _ => return Err(Absent::NotWanted),
            }
        }
    }
    .map_err(Absent::Because)
}

/// Whether the user's lists leave an interface of this machine.
///
/// # Errors
/// Why they do not.
pub(super) fn verify(config: &config::Btl) -> Result<(), String> {
    // Where interfaces cannot be listed, it is not the lists that are wrong.
    let Ok(all) = Interface::all() else { return Ok(()) };
    let are_given = config.include.is_some() || config.exclude.is_some();
    choose(all, config).map(drop).or_else(|trouble| if are_given { Err(trouble.line) } else { Ok(()) })
}

/// What the user wishes, as a link takes it.
fn depths(config: &config::Btl) -> Depths {
    let config::Depths { send, receive, completions } = config.depths;
    Depths { send, receive, completions }
}

/// Links over kernel UDP.
fn sockets(all: Vec<Interface>, config: &config::Btl) -> Result<Links, Trouble> {
    let (chosen, mut troubles) = choose(all, config)?;
    let options = Options {
        base_port: config.base_port,
        depths: depths(config),
        longest_tiny: config.engine.max_tiny,
        coalesce_delay: config.coalesce_delay,
        ..Options::default()
    };
    let mut open: Vec<Named> = Vec::new();
    for interface in chosen.iter().take(config.max_modules) {
        match Socket::open(interface, &options) {
            Ok(link) => {
                let polls =
                    if config.busy_poll.is_zero() { Ok(()) } else { link.busy_poll(config.busy_poll) };
                if let Err(error) = polls {
                    troubles.push(Cause::Resources.trouble(format!(
                        "the kernel refuses btl_usnic_busy_poll on {interface}: {error}; it wants the capability CAP_NET_ADMIN, and goes on without"
                    )));
                }
                open.push(Named {
                    name: interface.name.clone(),
                    is_loopback: interface.is_loopback,
                    address: Some(interface.address),
                    link: Box::new(link),
                });
            }
            Err(error) => {
                let is_memory = matches!(error, Error::OutOfResource | Error::System(libc::ENOMEM));
                let cause = if is_memory { Cause::Memory } else { Cause::Resources };
                let advice = about_ports(error, config.base_port);
                troubles
                    .push(cause.trouble(format!("no socket can be opened on {interface}: {error}{advice}")));
            }
        }
    }
    some(open, troubles, || Cause::Lists.trouble("btl_usnic_max_btls leaves no network interface".to_owned()))
}

/// What there is to be done where no socket can be bound, if it is for want of a port from `base` on.
pub(super) fn about_ports(error: Error, base: u16) -> String {
    match (error, base) {
        (Error::System(libc::EADDRINUSE), 0) => {
            "; every UDP port of net.ipv4.ip_local_port_range is taken, and `ss -uanp` says by whom"
                .to_owned()
        }
        (Error::System(libc::EADDRINUSE), _) => format!(
            "; every UDP port from {base} on is taken, and `ss -uanp` says by whom: give btl_usnic_base_udp_port a lower one, or 0 for any"
        ),
        (Error::System(libc::EACCES), 1..) => format!(
            "; UDP port {base} is not for everybody (net.ipv4.ip_unprivileged_port_start): give btl_usnic_base_udp_port a higher one, or 0 for any"
        ),
        _ => String::new(),
    }
}

/// Links over the datagram endpoints of a libfabric provider; of the first one that has any when none is named.
fn fabrics(all: &[Interface], config: &config::Btl, provider: Option<&str>) -> Result<Links, Trouble> {
    let library = Library::open().map_err(|missing| Cause::Libfabric.trouble(missing.0))?;
    let offers = link::offers(library, provider).map_err(|error| {
        Cause::Libfabric.trouble(format!(
            "libfabric has no datagram endpoints ({error}); `fi_info -e FI_EP_DGRAM` lists what there is"
        ))
    })?;
    let (chosen, mut troubles) = choose(all.to_vec(), config)?;
    let mut open: Vec<Named> = Vec::new();
    let mut first: Option<String> = None;
    for info in offers.iter() {
        let interface = link::interface_of(&info, all);
        let wanted = interface.is_some_and(|interface| chosen.contains(interface));
        if !wanted
            || first.as_deref().is_some_and(|first| first != info.provider())
            || open.len() == config.max_modules
        {
            continue;
        }
        match Fabric::open(&info, all, &depths(config)) {
            Ok(link) => {
                first = Some(info.provider().to_owned());
                let is_loopback = interface.is_some_and(|interface| interface.is_loopback);
                let address = interface.map(|interface| interface.address);
                open.push(Named {
                    name: info.domain().to_owned(),
                    is_loopback,
                    address,
                    link: Box::new(link),
                });
            }
            Err(error) => troubles.push(Cause::Libfabric.trouble(format!(
                "libfabric's provider {} opens no datagram endpoints on {}: {error}",
                info.provider(),
                info.domain()
            ))),
        }
    }
    some(open, troubles, || {
        Cause::Libfabric.trouble("no datagram endpoint of libfabric is on an interface that btl_usnic_if_include and btl_usnic_if_exclude allow; `fi_info -e FI_EP_DGRAM` lists what there is".to_owned())
    })
}

/// The links, or the first trouble that keeps one from being opened where there are none.
fn some(open: Vec<Named>, troubles: Vec<Trouble>, none: impl FnOnce() -> Trouble) -> Result<Links, Trouble> {
    if open.is_empty() {
        let mut whys = troubles.into_iter().filter(|trouble| trouble.cause != Cause::Idle);
        return Err(whys.next().unwrap_or_else(none));
    }
    Ok(Links { open, troubles })
}

/// Which of the links are on devices that are farther from the processors of this process than
/// others: they should get short messages last.
pub fn farther(links: &[Named]) -> Vec<bool> {
    let here = Locality::of_this_process();
    let far = |link: &Named| link.link.limits().numa_node.is_some_and(|node| here.is_far_from(node));
    than_others(links.iter().map(|link| (link.is_loopback, far(link))).collect())
}

/// Where all are far but the loopback interface, none is farther than others.
fn than_others(far: Vec<(bool, bool)>) -> Vec<bool> {
    let near = far.iter().any(|(is_loopback, far)| !is_loopback && !far);
    far.into_iter().map(|(_, far)| far && near).collect()
}

fn list(name: &str, text: Option<&String>) -> Result<Option<Filter>, Trouble> {
    let parse = |text: &String| {
        Filter::parse(text).map_err(|bad| Cause::Lists.trouble(format!("btl_usnic_{name}: {bad}")))
    };
    text.map(parse).transpose()
}

/// The interfaces to use, in the kernel's order, loopback last; those that are named but down, and those that are
/// to be left out but not there, where the list leaves nothing out.
fn choose(all: Vec<Interface>, config: &config::Btl) -> Result<(Vec<Interface>, Vec<Trouble>), Trouble> {
    if config.include.is_some() && config.exclude.is_some() {
        return Err(Cause::Lists.trouble(
            "btl_usnic_if_include and btl_usnic_if_exclude exclude each other; give one".to_owned(),
        ));
    }
    let include = list("if_include", config.include.as_ref())?;
    let exclude = list("if_exclude", config.exclude.as_ref())?;
    if let Some(item) = include.as_ref().and_then(|include| include.unmatched(&all).into_iter().next()) {
        return Err(Cause::Lists.trouble(format!(
            "btl_usnic_if_include names {item}, but there is no such interface here; `ip address` lists what there is"
        )));
    }
    let leaves_out = |exclude: &&Filter| all.iter().any(|interface| exclude.matches(interface));
    let idle = exclude.as_ref().filter(|exclude| !leaves_out(exclude));
    let idle = idle.map_or_else(Vec::new, |exclude| exclude.unknown_names(&all));
    let idle: Vec<Trouble> = idle.into_iter().map(left_out_for_nothing).collect();
    let allowed = |interface: &Interface| match (&include, &exclude) {
        (Some(include), _) => include.matches(interface),
        (None, Some(exclude)) => !exclude.matches(interface),
        (None, None) => true,
    };
    let (mut chosen, mut troubles): (Vec<Interface>, Vec<Trouble>) = Default::default();
    for interface in all {
        let known = chosen.iter().any(|other| other.index == interface.index);
        if known || !allowed(&interface) || is_link_local(&interface) {
            continue;
        }
        if interface.is_up {
            chosen.push(interface);
        } else if include.is_some() {
            troubles.push(Cause::Down.trouble(format!(
                "btl_usnic_if_include names {interface}, but this interface is down; `ip link set {} up` brings it up if its cable is in",
                interface.name
            )));
        }
    }
    chosen.sort_by_key(|interface| interface.is_loopback);
    if chosen.is_empty() {
        return Err(match troubles.into_iter().next() {
            Some(down) => down,
            None if exclude.is_some() => Cause::Lists.trouble(
                "btl_usnic_if_exclude leaves no network interface that is up".to_owned(),
            ),
            None if include.is_some() => Cause::Lists.trouble(
                "btl_usnic_if_include names no network interface whose address means something on other hosts"
                    .to_owned(),
            ),
            None => Cause::Resources.trouble("no network interface is up".to_owned()),
        });
    }
    troubles.extend(idle);
    Ok((chosen, troubles))
}

/// A misspelt name leaves in what was to be left out.
fn left_out_for_nothing(name: &str) -> Trouble {
    Cause::Idle.trouble(format!(
        "btl_usnic_if_exclude names {name}, but no interface of this name has an address here, so that it leaves nothing out; `ip address` lists what there is"
    ))
}

/// Such an address only means something together with an interface of the peer's.
fn is_link_local(interface: &Interface) -> bool {
    match interface.address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, index: u32, address: &str) -> Interface {
        let address: std::net::IpAddr = address.parse().expect("an address");
        Interface {
            name: name.to_owned(),
            index,
            address,
            prefix: 24,
            mtu: 1500,
            is_up: true,
            is_loopback: address.is_loopback(),
            is_device: false,
            speed_mbps: 10_000,
            numa_node: None,
        }
    }

    fn here() -> Vec<Interface> {
        vec![
            interface("lo", 1, "127.0.0.1"),
            interface("eth0", 2, "10.0.0.1"),
            interface("eth0", 2, "fd00::1"),
            interface("eth1", 3, "fe80::1"),
            Interface { is_up: false, ..interface("eth2", 4, "10.0.2.1") },
        ]
    }

    fn choice(
        include: Option<&str>,
        exclude: Option<&str>,
    ) -> Result<(Vec<Interface>, Vec<Trouble>), Trouble> {
        let config = config::Btl {
            include: include.map(str::to_owned),
            exclude: exclude.map(str::to_owned),
            ..config::Btl::default()
        };
        choose(here(), &config)
    }

    fn names(include: Option<&str>, exclude: Option<&str>) -> Vec<String> {
        let (chosen, troubles) = choice(include, exclude).expect("interfaces");
        assert_eq!(troubles, []);
        chosen.iter().map(|interface| format!("{} {}", interface.name, interface.address)).collect()
    }

    #[test]
    fn one_address_of_each_interface_is_used_and_loopback_comes_last() {
        assert_eq!(names(None, None), ["eth0 10.0.0.1", "lo 127.0.0.1"]);
    }

    #[test]
    fn lists_say_which_ones() {
        assert_eq!(names(Some("lo"), None), ["lo 127.0.0.1"]);
        assert_eq!(names(Some("fd00::/16"), None), ["eth0 fd00::1"]);
        assert_eq!(names(None, Some("lo,10.0.0.0/8")), ["eth0 fd00::1"]);
    }

    #[test]
    fn a_named_interface_that_is_down_is_spoken_of_and_the_others_are_used() {
        let (chosen, troubles) = choice(Some("eth2,lo"), None).expect("lo");
        assert_eq!((chosen.len(), chosen[0].name.as_str()), (1, "lo"));
        assert!(matches!(&troubles[..], [Trouble { cause: Cause::Down, line }] if line.contains("eth2")));
        assert_eq!(choice(Some("eth2"), None).expect_err("down").cause, Cause::Down);
    }

    /// It may be there on other hosts of the job, but it may also be misspelt.
    #[test]
    fn a_list_that_leaves_nothing_out_is_spoken_of() {
        let (chosen, troubles) = choice(None, Some("eth7,eth0,172.16.0.0/12")).expect("lo");
        assert_eq!((chosen.len(), chosen[0].name.as_str()), (1, "lo"));
        assert_eq!(troubles, [], "one list for many hosts");
        let (_, troubles) = choice(None, Some("eth7,172.16.0.0/12")).expect("all");
        assert!(
            matches!(&troubles[..], [Trouble { cause: Cause::Idle, line }] if line.contains("if_exclude names eth7,")),
            "a network may well have nobody in it: {troubles:?}"
        );
        assert_eq!(choice(None, Some("eth7,eth0,lo")).expect_err("nothing is left").cause, Cause::Lists);
        let why = || Cause::Resources.trouble("why".to_owned());
        assert_eq!(some(Vec::new(), troubles, why).err(), Some(why()), "it is not why there are no links");
    }

    #[test]
    fn who_gets_no_port_hears_which_parameter_gives_others() {
        let in_use = Error::System(libc::EADDRINUSE);
        assert!(about_ports(in_use, 47_000).contains("from 47000 on is taken"));
        assert!(about_ports(in_use, 47_000).contains("give btl_usnic_base_udp_port a lower one"));
        assert!(
            about_ports(Error::System(libc::EACCES), 80)
                .contains("give btl_usnic_base_udp_port a higher one")
        );
        assert!(about_ports(in_use, 0).contains("net.ipv4.ip_local_port_range"), "it has not been given");
        assert_eq!(about_ports(Error::System(libc::EACCES), 0), "");
        assert_eq!(about_ports(Error::System(libc::EADDRNOTAVAIL), 47_000), "", "no port helps");
    }

    #[test]
    fn far_is_only_what_is_farther_than_others() {
        let (rail, far_rail, loopback) = ((false, false), (false, true), (true, false));
        assert_eq!(than_others(vec![rail, far_rail, loopback]), [false, true, false]);
        assert_eq!(than_others(vec![far_rail, far_rail, loopback]), [false; 3]);
        assert_eq!(than_others(vec![rail, loopback]), [false; 2]);
    }

    #[test]
    fn lists_that_leave_nothing_are_refused_before_anything_is_opened() {
        let config = |include: Option<&str>| config::Btl {
            include: include.map(str::to_owned),
            ..config::Btl::default()
        };
        assert_eq!(verify(&config(None)), Ok(()));
        assert!(verify(&config(Some("nosuch9"))).is_err_and(|why| why.contains("nosuch9")));
    }

    #[test]
    fn a_list_that_leaves_nothing_is_explained() {
        let why = |include, exclude| {
            let trouble = choice(include, exclude).expect_err("nothing");
            assert_eq!(trouble.cause, Cause::Lists);
            trouble.line
        };
        assert!(why(Some("eth9"), None).contains("eth9"));
        assert!(why(Some("10.0.0.0/99"), None).contains("if_include"));
        assert!(why(None, Some("lo,eth0")).contains("leaves no network interface"));
        assert!(why(Some("lo"), Some("eth0")).contains("exclude each other"));
    }
}
