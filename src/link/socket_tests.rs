//! The suite over sockets of both families, with and without offload, and what only sockets do.

use std::net::IpAddr;
use std::time::Duration;

use super::conformance::{self as suite, Node, conformance, lend, pattern};
use super::hosts::Host;
use super::{Channel, Depths, Interface, Link, Options, Socket};
use crate::error::Error;

fn loopback(v4: bool) -> Interface {
    let wanted: IpAddr = if v4 { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    let all = Interface::all().expect("a list of interfaces");
    all.into_iter().find(|one| one.address == wanted).expect("a loopback interface")
}

pub(super) fn socket(v4: bool) -> Socket {
    Socket::open(&loopback(v4), &Options::default()).expect("sockets")
}

/// With another MTU.
pub(super) fn narrow_to(mtu: usize) -> Socket {
    let interface = Interface { mtu, ..loopback(true) };
    Socket::open(&interface, &Options::default()).expect("sockets")
}

/// As on an Ethernet.
fn narrow(v4: bool, offload: bool) -> Socket {
    let interface = Interface { mtu: 1500, ..loopback(v4) };
    Socket::open(&interface, &Options { offload, ..Options::default() }).expect("sockets")
}

conformance!(ipv4, || socket(true));
conformance!(ipv6, || socket(false));
conformance!(ipv4_narrow, || narrow(true, true));
conformance!(ipv6_narrow, || narrow(false, true));
conformance!(ipv4_without_offload, || narrow(true, false));

#[test]
fn a_closed_peer_is_reported() {
    // Where no other test takes the closed port over at once: an address, and a host, of its own.
    let alone = Interface { address: [127, 77, 0, 1].into(), ..loopback(true) };
    suite::a_closed_peer_is_reported(&|| Socket::open(&alone, &Options::default()).expect("sockets"));
    let Some(host) = Host::new() else { return };
    host.run(|| suite::a_closed_peer_is_reported(&|| socket(false)));
}

/// All processes of a node end, and one socket hears of it, of many at once: each is reported, and nobody who lives.
#[test]
fn many_peers_that_end_together_are_reported_one_by_one() {
    let interface = Interface { address: [127, 77, 0, 2].into(), ..loopback(true) };
    let open = || Node::new(Socket::open(&interface, &Options::default()).expect("sockets"));
    let (mut one, mut alive) = (open(), open());
    let lives = one.resolve(&alive);
    let peers: Vec<Node<Socket>> = (0..40).map(|_| open()).collect();
    let mut left: Vec<_> = peers.iter().map(|peer| one.resolve(peer)).collect();
    drop(peers);
    // A kernel says so only so often (`icmp_msgs_per_sec`).
    for _ in 0..100_000 {
        for channel in Channel::BOTH {
            left.iter().for_each(|gone| one.post(channel, *gone, b"anybody there?", &[]));
            one.post(channel, lives, b"and you?", &[]);
            one.flush();
            assert_eq!(*alive.next(channel), *b"and you?");
            assert!(one.has_nothing());
        }
        while let Some(gone) = one.link.poll_refused() {
            assert_ne!(gone, lives);
            left.retain(|other| *other != gone);
        }
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(left, [], "{:?}", one.link.counters());
    let counters = one.link.counters();
    assert!(counters.refused >= 40, "{counters:?}");
    assert_eq!((counters.forbidden, counters.unreachable, counters.send_errors), (0, 0, 0));
}

#[test]
fn the_loopback_interface_of_another_host_is_unreachable() {
    let (mut own, peer) = (socket(true), socket(true));
    let mut name = peer.name();
    assert_eq!(own.distance(&name), Some(0));
    name[4] ^= 1;
    assert_eq!(own.resolve(&name), Err(crate::error::Error::Unreachable));
    assert_eq!(own.distance(&name), None);
}

#[test]
fn ports_are_taken_in_order() {
    let options = Options { base_port: 47_000, ..Options::default() };
    let ports: Vec<u16> = (0..3)
        .map(|_| Socket::open(&loopback(true), &options).expect("sockets"))
        .collect::<Vec<_>>()
        .iter()
        .flat_map(Socket::ports)
        .collect();
    assert!(ports.iter().all(|port| *port >= 47_000), "{ports:?}");
    assert!(ports.windows(2).all(|pair| pair[0] < pair[1]), "{ports:?}");
}

/// Busy polling is set on both sockets, or the kernel's refusal is told.
#[test]
fn busy_polling_is_set_or_refused() {
    let link = Socket::open(&loopback(false), &Options::default()).expect("sockets");
    match link.busy_poll(Duration::from_micros(50)) {
        Ok(()) => assert_eq!(link.polls_for(), [50, 50]),
        Err(error) => assert!(matches!(error, Error::System(libc::EPERM | libc::ENOPROTOOPT)), "{error}"),
    }
}

#[test]
fn the_other_family_is_unreachable() {
    let (mut v4, v6) = (socket(true), socket(false));
    assert_eq!(v4.resolve(&v6.name()), Err(crate::error::Error::Unreachable));
    assert_eq!(v4.distance(&v6.name()), None);
}

#[test]
fn datagrams_of_one_size_travel_together() {
    let (mut one, mut two) = (Node::new(narrow(true, true)), Node::new(narrow(true, true)));
    let to = one.resolve(&two);
    let mut memory = pattern(1, 1400);
    for n in 0..64_u8 {
        one.post(Channel::Data, to, &[n; 64], &[lend(&mut memory)]);
    }
    one.flush();
    assert_eq!(one.link.counters().offloaded, 2, "44 and 20 of 1464 bytes");
    for n in 0..64_u8 {
        let got = two.next(Channel::Data);
        assert!(got[..64] == [n; 64] && got[64..] == memory, "{n}");
    }
    assert!(two.inbox.buffers() < 64, "joined on the way in as well");
}

#[test]
fn the_buffer_holds_what_the_limits_promise() {
    for (open, of) in [(socket(true), socket(true)), (narrow(true, false), narrow(true, false))] {
        let (mut one, mut two) = (Node::new(open), Node::new(of));
        let to = one.resolve(&two);
        let limits = two.link.limits();
        let max = limits.max_datagram[1];
        let mut memory = pattern(3, max);
        let count = limits.receive_capacity / max;
        for _ in 0..count {
            one.post(Channel::Data, to, &[], &[lend(&mut memory)]);
        }
        one.flush();
        for _ in 0..count {
            assert!(*two.next(Channel::Data) == memory);
        }
        assert!(two.has_nothing());
    }
}

/// As many datagrams as the user wishes, and not many more.
#[test]
fn the_buffers_hold_what_is_wished() {
    const WISHED: [usize; 2] = [20, 7];
    let depths = Depths { receive: WISHED.map(Some), ..Depths::default() };
    for (mtu, offload) in [(65_536, true), (1500, true), (1500, false)] {
        let interface = Interface { mtu, ..loopback(true) };
        let options = Options { depths, offload, ..Options::default() };
        let open = || Node::new(Socket::open(&interface, &options).expect("sockets"));
        let mut one = open();
        for channel in Channel::BOTH {
            let mut two = open();
            let to = one.resolve(&two);
            let max = two.link.limits().max_datagram[1];
            assert_eq!(two.link.limits().receive_capacity, WISHED[1] * max);
            let (size, wished) =
                if channel == Channel::Data { (max, WISHED[1]) } else { (options.longest_tiny, WISHED[0]) };
            let mut memory = pattern(3, size);
            for _ in 0..20 * wished {
                one.post(channel, to, &[], &[lend(&mut memory)]);
                one.flush();
            }
            let mut came = 0;
            while two.link.poll(channel, &mut two.inbox) > 0 || !two.inbox.is_empty() {
                while two.inbox.pop().is_some_and(|datagram| *datagram == memory) {
                    came += 1;
                }
            }
            assert!((wished..20 * wished).contains(&came), "{channel:?} of {mtu}: {came}");
        }
    }
}

/// A peer that often gets single datagrams gets a connected socket, up to a number of peers, and nobody
/// notices but by speed.
#[test]
fn connected_sockets_come_and_go_unnoticed() {
    let mut one = Node::new(socket(true));
    let mut peers: Vec<Node<Socket>> = (0..24).map(|_| Node::new(socket(true))).collect();
    let mut ids: Vec<_> = peers.iter().map(|peer| one.resolve(peer)).collect();
    let mut memory = pattern(2, 3000);
    for round in 0..40_usize {
        for channel in Channel::BOTH {
            for id in &ids {
                one.post(channel, *id, &pattern(round, 40), &[]);
                one.flush();
            }
            // Together: to peers with a socket of their own and to peers without.
            for n in 0..round % 3 {
                for id in &ids {
                    one.post(channel, *id, &[n as u8], &[lend(&mut memory)]);
                }
            }
            one.flush();
            for peer in &mut peers {
                assert_eq!(*peer.next(channel), pattern(round, 40));
                for n in 0..round % 3 {
                    let got = peer.next(channel);
                    assert!(usize::from(got[0]) == n && got[1..] == memory, "{round} {n}");
                }
                assert!(peer.has_nothing());
            }
        }
        if round == 30 {
            // The sockets of released peers are free for others.
            peers.drain(..8);
            ids.drain(..8).for_each(|id| one.link.release(id));
        }
    }
    assert_eq!(one.link.counters().send_errors, 0);
}

/// What is no socket any more is noticed by each way out and in, however seldom it is used.
#[test]
fn a_socket_that_somebody_else_has_closed_breaks_the_link() {
    let ways: [fn(&mut Socket, super::AddressId, &mut super::Inbox); 5] = [
        |link, _, inbox| _ = link.poll(Channel::Priority, inbox),
        |link, _, inbox| _ = link.poll_stamped(Channel::Priority, inbox),
        |link, to, _| _ = link.send(Channel::Priority, to, &[1; 8], &[]),
        |link, to, _| {
            (0..40).for_each(|_| _ = link.post(Channel::Priority, to, &[1; 700], &[]));
            link.flush();
        },
        |link, to, _| {
            (0..100).for_each(|_| _ = link.coalesce(to, &[1; 8], 1472, 0));
            link.flush();
        },
    ];
    for way in ways {
        let (mut own, peer) = (socket(true), socket(true));
        let to = own.resolve(&peer.name()).expect("reachable");
        let mut inbox = super::Inbox::new();
        way(&mut own, to, &mut inbox);
        assert_eq!(own.broken(), None);
        super::replace_descriptor(own.descriptors()[Channel::Priority as usize]);
        way(&mut own, to, &mut inbox);
        assert_eq!(own.broken(), Some(libc::ENOTSOCK));
        assert_eq!(own.queued(), 0, "nothing is kept for ever");
    }
}
