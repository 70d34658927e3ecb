//! Which links a process opens: one for each interface that may be used, and the loopback interface
//! for peers on the same host.

use crate::config;
use crate::error::Error;
use crate::fabric::Library;
use crate::link::{self, Fabric, Filter, Interface, Link, Options, Socket};

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
pub enum Absent {
    /// There is no usNIC device, and nobody asked for anything else.
    NotWanted,
    /// What is missing or wrong, in one line.
    Because(String),
}

/// A link for each interface that the user's lists allow: over usNIC devices if there are any, else,
/// if the component was `asked` for, over whatever `btl_usnic_link` says.
///
/// # Errors
/// Why there is none.
pub fn links(config: &config::Btl, asked: bool) -> Result<Vec<Named>, Absent> {
    let all = Interface::all()
        .map_err(|error| Absent::Because(format!("the network interfaces cannot be listed: {error}")))?;
    match config.link {
        config::LinkKind::Socket if asked => sockets(all, config),
        config::LinkKind::Libfabric if asked => fabrics(&all, config, None),
        config::LinkKind::Socket | config::LinkKind::Libfabric => return Err(Absent::NotWanted),
        config::LinkKind::Auto => match fabrics(&all, config, Some("usnic")) {
            Ok(links) => Ok(links),
            Err(_) if asked => sockets(all, config),
            Err(_) => return Err(Absent::NotWanted),
        },
    }
    .map_err(Absent::Because)
}

/// Links over kernel UDP.
fn sockets(all: Vec<Interface>, config: &config::Btl) -> Result<Vec<Named>, String> {
    let chosen = choose(all, config)?;
    let mut links: Vec<Named> = Vec::new();
    let mut failed = None;
    for interface in chosen.iter().take(config.max_modules) {
        match Socket::open(interface, &Options { base_port: config.base_port, ..Options::default() }) {
            Ok(link) => links.push(Named {
                name: interface.name.clone(),
                is_loopback: interface.is_loopback,
                address: Some(interface.address),
                link: Box::new(link),
            }),
            Err(error) => failed = Some((interface, error)),
        }
    }
    match failed {
        Some((interface, error)) if links.is_empty() => {
            Err(format!("no socket can be opened on {} ({}): {error}", interface.name, interface.address))
        }
        _ => Ok(links),
    }
}

/// Links over the datagram endpoints of a libfabric provider; of the first one that has any when none is named.
fn fabrics(all: &[Interface], config: &config::Btl, provider: Option<&str>) -> Result<Vec<Named>, String> {
    let library = Library::open().map_err(|missing| missing.0)?;
    let offers = link::offers(library, provider).map_err(|error| {
        format!("libfabric has no datagram endpoints ({error}); `fi_info -e FI_EP_DGRAM` lists what there is")
    })?;
    let chosen = choose(all.to_vec(), config)?;
    let mut links: Vec<Named> = Vec::new();
    let mut first: Option<String> = None;
    for info in offers.iter() {
        let interface = link::interface_of(&info, all);
        let wanted = interface.is_some_and(|interface| chosen.contains(interface));
        if !wanted
            || first.as_deref().is_some_and(|first| first != info.provider())
            || links.len() == config.max_modules
        {
            continue;
        }
        let Ok(link) = Fabric::open(&info, all) else { continue };
        first = Some(info.provider().to_owned());
        let is_loopback = interface.is_some_and(|interface| interface.is_loopback);
        let address = interface.map(|interface| interface.address);
        links.push(Named { name: info.domain().to_owned(), is_loopback, address, link: Box::new(link) });
    }
    if links.is_empty() {
        return Err("no datagram endpoint of libfabric is on an interface that btl_usnic_if_include and btl_usnic_if_exclude allow; `fi_info -e FI_EP_DGRAM` lists what there is".to_owned());
    }
    Ok(links)
}

fn list(name: &str, text: Option<&String>) -> Result<Option<Filter>, String> {
    text.map(|text| Filter::parse(text).map_err(|bad| format!("btl_usnic_{name}: {bad}"))).transpose()
}

/// The interfaces to use, in the kernel's order, loopback last.
fn choose(all: Vec<Interface>, config: &config::Btl) -> Result<Vec<Interface>, String> {
    let include = list("if_include", config.include.as_ref())?;
    let exclude = list("if_exclude", config.exclude.as_ref())?;
    if let Some(item) = include.as_ref().and_then(|include| include.unmatched(&all).into_iter().next()) {
        return Err(format!(
            "btl_usnic_if_include names {item}, but there is no such interface here; `ip address` lists what there is"
        ));
    }
    let allowed = |interface: &Interface| match (&include, &exclude) {
        (Some(include), _) => include.matches(interface),
        (None, Some(exclude)) => !exclude.matches(interface),
        (None, None) => true,
    };
    let mut chosen: Vec<Interface> = Vec::new();
    for interface in all {
        let known = chosen.iter().any(|other| other.index == interface.index);
        if interface.is_up && !known && allowed(&interface) && !is_link_local(&interface) {
            chosen.push(interface);
        }
    }
    chosen.sort_by_key(|interface| interface.is_loopback);
    if chosen.is_empty() {
        return Err(match (include, exclude) {
            (None, None) => Error::NotFound.to_string() + ": no network interface is up",
            _ => "btl_usnic_if_include and btl_usnic_if_exclude leave no network interface that is up"
                .to_owned(),
        });
    }
    Ok(chosen)
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

    fn names(include: Option<&str>, exclude: Option<&str>) -> Result<Vec<String>, String> {
        let config = config::Btl {
            include: include.map(str::to_owned),
            exclude: exclude.map(str::to_owned),
            ..config::Btl::default()
        };
        let chosen = choose(here(), &config)?;
        Ok(chosen.iter().map(|interface| format!("{} {}", interface.name, interface.address)).collect())
    }

    #[test]
    fn one_address_of_each_interface_is_used_and_loopback_comes_last() {
        assert_eq!(names(None, None), Ok(vec!["eth0 10.0.0.1".to_owned(), "lo 127.0.0.1".to_owned()]));
    }

    #[test]
    fn lists_say_which_ones() {
        assert_eq!(names(Some("lo"), None), Ok(vec!["lo 127.0.0.1".to_owned()]));
        assert_eq!(names(Some("fd00::/16"), None), Ok(vec!["eth0 fd00::1".to_owned()]));
        assert_eq!(names(None, Some("lo,10.0.0.0/8")), Ok(vec!["eth0 fd00::1".to_owned()]));
    }

    #[test]
    fn a_list_that_leaves_nothing_is_explained() {
        assert!(names(Some("eth9"), None).is_err_and(|why| why.contains("eth9")));
        assert!(names(Some("10.0.0.0/99"), None).is_err_and(|why| why.contains("if_include")));
        assert!(names(None, Some("lo,eth0")).is_err_and(|why| why.contains("leave no network interface")));
    }
}
