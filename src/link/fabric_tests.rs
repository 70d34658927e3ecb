//! The suite over libfabric's `udp` provider, which is everywhere where libfabric is.

use std::net::IpAddr;

use super::conformance::conformance;
use super::{Depths, Fabric, Interface, Link, Options, Socket, interface_of, offers};
use crate::error::Error;
use crate::fabric::Library;

fn open(v4: bool) -> Fabric {
    let wanted: IpAddr = if v4 { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    let library = Library::open().expect("libfabric");
    let interfaces = Interface::all().expect("a list of interfaces");
    let offers = offers(library, Some("udp")).expect("the udp provider");
    let mut offers = offers.iter();
    let is_wanted = |interface: &Interface| interface.address == wanted;
    let info = offers.find(|info| interface_of(info, &interfaces).is_some_and(is_wanted));
    Fabric::open(&info.expect("an offer on the loopback interface"), &interfaces, &Depths::default())
        .expect("endpoints")
}

conformance!(udp, || open(true));
conformance!(udp_ipv6, || open(false));

#[test]
fn a_name_of_another_link_is_none() {
    let mut fabric = open(true);
    let interfaces = Interface::all().expect("a list of interfaces");
    let loopback = interfaces.iter().find(|one| one.address == IpAddr::from([127, 0, 0, 1])).expect("lo");
    let mut socket = Socket::open(loopback, &Options::default()).expect("sockets");
    assert_eq!(fabric.resolve(&socket.name()), Err(Error::BadParameter));
    assert_eq!(socket.resolve(&fabric.name()), Err(Error::BadParameter));
    assert_eq!(fabric.resolve(&open(false).name()), Err(Error::Unreachable));
}
