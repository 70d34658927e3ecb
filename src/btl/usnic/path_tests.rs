//! What a module makes of a path that is known to be narrow before a connection over it begins.

use super::*;
use crate::config;
use crate::link::{AddressId, Channel, Counters, Inbox, Interface, Limits, Link, Options, Socket};
use agent::Watch;

/// A socket that has learnt of each path that it carries so much.
struct Learned(Socket, usize);

impl Link for Learned {
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn name(&self) -> Vec<u8> {
        self.0.name()
    }
    fn resolve(&mut self, name: &[u8]) -> Result<AddressId> {
        self.0.resolve(name)
    }
    fn release(&mut self, address: AddressId) {
        self.0.release(address);
    }
    fn distance(&self, name: &[u8]) -> Option<u32> {
        self.0.distance(name)
    }
    fn max_datagram(&self, channel: Channel, to: AddressId) -> usize {
        self.0.max_datagram(channel, to).min(self.1)
    }
    fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[crate::btl::Lent]) -> bool {
        self.0.post(channel, to, header, pieces)
    }
    fn flush(&mut self) -> usize {
        self.0.flush()
    }
    fn queued(&self) -> usize {
        self.0.queued()
    }
    fn poll(&mut self, channel: Channel, into: &mut Inbox) -> usize {
        self.0.poll(channel, into)
    }
    fn poll_refused(&mut self) -> Option<AddressId> {
        self.0.poll_refused()
    }
    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

/// A module whose paths carry datagrams of `width` bytes.
fn module(name: u64, width: usize) -> Module {
    let all = Interface::all().expect("a list of interfaces");
    let is_lo = |interface: &Interface| interface.is_loopback && interface.address.is_ipv4();
    let lo = all.into_iter().find(is_lo).expect("a loopback interface");
    let socket = Socket::open(&Interface { mtu: 1500, ..lo }, &Options::default()).expect("sockets");
    let link = Box::new(Learned(socket, width));
    Module::open(link, name, 1, [name as u8; 16], &config::Usnic::default(), Watch::blind()).expect("memory")
}

/// Otherwise it would stay as narrow as it was that moment: a path is tried again only up to what its ends carry.
#[test]
fn a_connection_over_a_path_that_was_narrow_when_it_began_may_become_wider() {
    let (one, two) = (module(1, 1300), module(2, 65_507));
    let lengths = |from: &Module, to: &Module, name| {
        let endpoint = from.connect(name, to.address()).expect("reachable");
        from.peer(endpoint).map(|peer| (peer.path_width, peer.max_datagram))
    };
    assert_eq!(lengths(&one, &two, 2), Some((1300, 1472)));
    assert_eq!(lengths(&two, &one, 1), Some((1472, 1472)));
}
