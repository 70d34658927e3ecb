//! Sockets between two hosts: the suite over a cable, and what only a network does to datagrams.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};

use super::conformance::{self as suite, Node, lend, pattern};
use super::hosts::cabled;
use super::{Channel, Link, Options, Socket};

const USUAL: fn() -> Options = Options::default;

/// The suite on the left host, whose links open sockets as they go; every other link is on the right one.
fn whole_suite(mtu: usize, v4: bool) {
    let Some((left, right)) = cabled(mtu) else { return };
    let addresses = if v4 { ["10.9.0.1", "10.9.0.2"] } else { ["fd09::1", "fd09::2"] };
    let interface = left.interface(addresses[0]);
    left.run(move || {
        let turn = Cell::new(false);
        let open = || match turn.replace(!turn.get()) {
            false => Socket::open(&interface, &USUAL()).expect("sockets"),
            true => right.socket(addresses[1], USUAL()),
        };
        suite::limits_are_sane(&open);
        suite::every_size_arrives_intact(&open);
        suite::pieces_are_gathered_in_order(&open);
        for count in [1, 64, 700] {
            suite::bursts_arrive_in_order(&open, count, true);
        }
        suite::long_bursts_arrive_intact(&open);
        suite::three_links_talk_crosswise(&open);
        suite::held_datagrams_survive_nested_polls(&open);
        suite::buffers_return(&open);
        suite::too_long_is_dropped_and_counted(&open);
        suite::counters_count(&open);
    });
}

#[test]
fn the_suite_holds_over_a_cable() {
    whole_suite(1500, true);
}

#[test]
fn the_suite_holds_over_a_cable_with_long_frames() {
    whole_suite(9000, true);
}

#[test]
fn the_suite_holds_over_a_cable_with_ipv6() {
    whole_suite(1500, false);
}

#[test]
fn interfaces_are_listed_where_no_port_is_left() {
    let Some(host) = super::hosts::Host::new() else { return };
    host.run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "60999 60999").expect("a range");
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let _last = std::net::UdpSocket::bind(any).expect("the last one");
        assert!(std::net::UdpSocket::bind(any).is_err());
        assert!(!super::Interface::all().expect("a list").is_empty());
    });
}

#[test]
fn limits_are_those_of_the_cable() {
    let Some(hosts) = cabled(1500) else { return };
    for (address, longest) in [("10.9.0.1", 1472), ("fd09::1", 1452)] {
        let limits = hosts.0.socket(address, USUAL()).limits();
        assert_eq!(limits.max_datagram, [longest; 2]);
    }
    let interface = hosts.0.interface("10.9.0.1");
    assert!(!interface.is_device && !interface.is_loopback);
    assert_eq!((interface.name.as_str(), interface.prefix, interface.mtu), ("left", 24, 1500));
    hosts.1.ip("link set right down");
    hosts.0.await_carrier("10.9.0.1", false);
}

/// The send buffer is full: what the kernel does not take is kept, in order, and needs the lent
/// memory no longer.
#[test]
fn what_the_kernel_does_not_take_is_kept() {
    let Some(hosts) = cabled(9000) else { return };
    // Datagrams pile up in front of an address that does not answer, until it is told by hand.
    hosts.1.ip("link set right arp off");
    hosts.0.run(|| std::fs::write("/proc/sys/net/ipv4/neigh/left/mcast_solicit", "10000")).expect("proc");
    let mut one =
        Node::new(hosts.0.socket("10.9.0.1", Options { send_buffer: 1, offload: false, ..USUAL() }));
    let mut two = Node::new(hosts.1.socket("10.9.0.2", USUAL()));
    let to = one.resolve(&two);
    let mut memory = pattern(0, 4000);
    let mut posted: u8 = 0;
    for _ in 0..3 {
        for _ in 0..20 {
            assert!(one.link.post(Channel::Data, to, &[posted], &[lend(&mut memory)]));
            posted += 1;
        }
        one.link.flush();
        memory.fill(0xEE);
        memory.copy_from_slice(&pattern(0, 4000));
    }
    memory.fill(0xEE);
    let waiting = one.link.queued();
    assert!(waiting > 40, "{waiting} of {posted} wait");
    assert_eq!(one.link.counters().kept as usize, waiting);
    let link = hosts.1.ip("-o link show right");
    let words: Vec<&str> = link.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "link/ether").expect("an Ethernet address");
    hosts.0.ip(&format!("neigh replace 10.9.0.2 lladdr {} dev left nud permanent", words[at + 1]));
    one.flush();
    for n in 0..posted {
        let got = two.next(Channel::Data);
        assert_eq!(got[0], n);
        assert!(got[1..] == pattern(0, 4000), "{n}");
    }
    assert!(two.has_nothing());
}

/// The way to one peer is narrower than the interface: its limit falls, and what was too long by then
/// arrives all the same.
#[test]
fn a_narrow_path_lowers_the_peers_limit_and_loses_nothing() {
    for (peer, route, limit) in [
        ("10.9.0.2", "10.9.0.2/32 dev left mtu 1500", 1472),
        // Less than what the protocol takes for granted: 1200 bytes.
        ("10.9.0.2", "10.9.0.2/32 dev left mtu 600", 572),
        ("fd09::2", "fd09::2/128 dev left mtu 1500", 1452),
    ] {
        let Some(hosts) = cabled(9000) else { return };
        hosts.0.ip(&format!("route add {route}"));
        let own = peer.replace('2', "1");
        let mut one = Node::new(hosts.0.socket(&own, USUAL()));
        let mut two = Node::new(hosts.1.socket(peer, USUAL()));
        let to = one.resolve(&two);
        let max = one.link.limits().max_datagram[1];
        assert!(max > 8900);
        assert_eq!(one.link.max_datagram(Channel::Data, to), max);
        // Only a few datagrams may wait until the peer's hardware address is known.
        one.post(Channel::Data, to, b"anybody there?", &[]);
        one.flush();
        two.next(Channel::Data);
        let mut memory = pattern(1, 9000);
        for size in [max, 4000, limit, limit + 1, 100] {
            for n in 0..10 {
                let piece = lend(&mut memory).slice(n, size - 1);
                one.post(Channel::Data, to, &[n as u8], &[piece]);
                one.post(Channel::Priority, to, &[n as u8], &[piece]);
            }
            one.flush();
            for channel in Channel::BOTH {
                for n in 0..10 {
                    let got = two.next(channel);
                    assert_eq!((usize::from(got[0]), got.len()), (n, size));
                    assert!(got[1..] == memory[n..n + size - 1], "{n} of {size}");
                }
            }
        }
        assert_eq!(one.link.max_datagram(Channel::Data, to), limit);
        assert_eq!(one.link.counters().too_long, 0);
        assert_eq!(one.link.counters().fragmented, 60);
        // What fits goes together all the same, and no sooner than it is known what fits.
        let alone = one.link.counters().offloaded;
        for n in 0..10 {
            one.post(Channel::Data, to, &[n as u8], &[lend(&mut memory).slice(n, limit - 1)]);
        }
        one.flush();
        assert_eq!(one.link.counters().offloaded, alone + 1, "{limit}");
        for n in 0..10 {
            assert_eq!(two.next(Channel::Data).len(), limit, "{n}");
        }
    }
}

#[test]
fn forbidden_and_unreachable_are_losses_of_their_kind() {
    let Some(hosts) = cabled(1500) else { return };
    let mut one = Node::new(hosts.0.socket("10.9.0.1", USUAL()));
    let mut two = Node::new(hosts.1.socket("10.9.0.2", USUAL()));
    let to = one.resolve(&two);
    let mut send = |count: u64| {
        for n in 0..count {
            one.post(Channel::BOTH[n as usize % 2], to, &pattern(n as usize, 40), &[]);
        }
        one.flush();
        *one.link.counters()
    };
    hosts.0.ip("route add prohibit 10.9.0.2/32");
    assert_eq!(send(6).forbidden, 6);
    hosts.0.ip("route delete prohibit 10.9.0.2/32");
    hosts.0.ip("route add unreachable 10.9.0.2/32");
    assert_eq!(send(6).unreachable, 6);
    hosts.0.ip("route delete unreachable 10.9.0.2/32");
    // An interface goes down and comes up again.
    hosts.0.ip("link set left down");
    let lost = send(6);
    assert_eq!((lost.unreachable, lost.sent), (12, 0));
    hosts.0.ip("link set left up");
    hosts.0.await_carrier("10.9.0.1", true);
    let after = send(6);
    assert_eq!((after.sent, after.unreachable, after.send_errors), (6, 12, 0));
    for n in 0..6 {
        assert_eq!(*two.next(Channel::BOTH[n / 3]), pattern(n % 3 * 2 + n / 3, 40));
    }
}

/// An ICMP message in the name of `by`: nobody listens where a datagram between these went (RFC 792).
fn call_refused(by: Ipv4Addr, from: SocketAddrV4, to: SocketAddrV4) {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    message.extend([from.ip().octets(), to.ip().octets()].as_flattened());
    message.extend([from.port(), to.port(), 8, 0].map(u16::to_be_bytes).as_flattened());
    let words = message.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    message[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).expect("raw");
    rustix::net::bind(&raw, &SocketAddrV4::new(by, 0)).expect("an address of ours");
    let to = SocketAddrV4::new(*from.ip(), 0);
    rustix::net::sendto(&raw, &message, SendFlags::empty(), &to).expect("sent");
}

/// A packet filter between the hosts refuses in the peer's name: that says nothing about the peer.
#[test]
fn only_the_peers_own_host_refuses_for_it() {
    let Some(hosts) = cabled(1500) else { return };
    hosts.1.ip("address add 10.9.0.77/24 dev right");
    let mut one = Node::new(hosts.0.socket("10.9.0.1", USUAL()));
    let two = Node::new(hosts.1.socket("10.9.0.2", USUAL()));
    let to = one.resolve(&two);
    let ways = [0, 1].map(|channel: usize| {
        let at = |last, ports: [u16; 2]| SocketAddrV4::new([10, 9, 0, last].into(), ports[channel]);
        (at(1, one.link.ports()), at(2, two.link.ports()))
    });
    for (last, of_it) in [(77, false), (2, true)] {
        for (from, there) in ways {
            let before = *one.link.counters();
            hosts.1.run(move || call_refused([10, 9, 0, last].into(), from, there));
            let mut heard = (0..1_000_000).map(|_| {
                assert!(one.has_nothing());
                let now = one.link.counters();
                [now.refused - before.refused, now.forbidden - before.forbidden]
            });
            let told = heard.find(|told| *told != [0, 0]).expect("nothing is ever heard");
            assert_eq!(told, if of_it { [1, 0] } else { [0, 1] }, "10.9.0.{last}");
        }
        assert_eq!(one.link.poll_refused(), of_it.then_some(to));
        assert_eq!(one.link.poll_refused(), None, "once, though both channels were refused");
    }
}

#[test]
fn distance_follows_the_routes() {
    let Some(hosts) = cabled(1500) else { return };
    let (one, two) = (hosts.0.socket("10.9.0.1", USUAL()), hosts.1.socket("10.9.0.2", USUAL()));
    hosts.1.ip("address add 10.77.0.1/24 dev right");
    let far = hosts.1.socket("10.77.0.1", USUAL()).name();
    let near = two.name();
    let (one, distances) = hosts.0.run({
        let far = far.clone();
        move || (one.distance(&near), one.distance(&far)).pipe(one)
    });
    assert_eq!(distances, (Some(1), None), "no route yet");
    hosts.0.ip("route add default via 10.9.0.2");
    let (one, distance) = hosts.0.run({
        let far = far.clone();
        move || one.distance(&far).pipe(one)
    });
    assert_eq!(distance, Some(2));
    hosts.0.ip("address add 10.77.0.9/24 dev left");
    let (_, distance) = hosts.0.run(move || one.distance(&far).pipe(one));
    assert_eq!(distance, Some(3), "from another address");
}

/// Gives the link back with what it said.
trait Pipe: Sized {
    fn pipe<L>(self, link: L) -> (L, Self) {
        (link, self)
    }
}
impl<T> Pipe for T {}
