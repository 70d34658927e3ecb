//! Coalescing over sockets of the loopback interface.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::link::conformance::Node;
use crate::link::{Channel, Interface, Link, Options, Socket};

/// Polls after which a test gives up.
const PATIENCE: usize = 50_000_000;

fn node(delay: Duration) -> Node<Socket> {
    let all = Interface::all().expect("interfaces");
    let lo = all.into_iter().find(|found| found.is_loopback && found.address.is_ipv4()).expect("loopback");
    let options = Options { coalesce_delay: delay, ..Options::default() };
    Node::new(Socket::open(&lo, &options).expect("sockets"))
}

/// Nothing leaves by itself before the test is over.
const NEVER: Duration = Duration::from_secs(10_000);

/// Sends in a row until packets wait; how many went alone before the first that does.
fn begin(one: &mut Node<Socket>, to: AddressId, two: &mut Node<Socket>) -> usize {
    for alone in 0..100 {
        if one.link.coalesce(to, b"first", COALESCED, 0) {
            return alone;
        }
        one.link.send(Channel::Priority, to, b"alone", &[]);
        assert_eq!(*two.next(Channel::Priority), *b"alone");
    }
    panic!("nothing waits");
}

#[test]
fn packets_in_a_row_share_a_datagram() {
    let (mut one, mut two) = (node(NEVER), node(NEVER));
    let to = one.resolve(&two);
    assert_eq!(begin(&mut one, to, &mut two), 16, "before that, it was no row");
    assert!(one.link.coalesce(to, b"second", COALESCED, 0) && one.link.coalesce(to, b"third", COALESCED, 0));
    assert_eq!((one.link.queued(), two.has_nothing()), (3, true));
    one.link.flush();
    assert_eq!(*two.next(Channel::Priority), *b"firstsecondthird");
    assert_eq!((one.link.queued(), two.has_nothing()), (0, true));
    let counters = one.link.counters();
    assert_eq!((counters.coalesced, counters.sent), (3, 17), "17 datagrams");
}

#[test]
fn packets_that_do_not_come_in_a_row_do_not_wait() {
    let (mut one, two) = (node(NEVER), node(NEVER));
    let to = one.resolve(&two);
    let apart = 10_000;
    assert!((0..1_000).all(|n| !one.link.coalesce(to, b"alone", COALESCED, n * apart)));
}

#[test]
fn what_the_kernel_takes_to_send_makes_no_row_less() {
    let mut coalescer = Coalescer::new(NEVER);
    let mut clock = 0;
    let mut comes = |between: u64, kernel: u64| {
        clock += between;
        coalescer.note_row(clock);
        clock += kernel;
        coalescer.left = clock;
        std::mem::take(&mut coalescer.is_watched)
    };
    assert!(!(0..1_000).any(|_| comes(9_000, 1_000)), "the program takes its time");
    comes(ROW_NANOS + 1, 0);
    assert!((2..ROW).all(|_| !comes(1_000, 9_000)) && comes(1_000, 9_000), "the kernel does");
}

/// Acknowledgements, and the first of each few messages, are sent without having come here.
#[test]
fn what_else_is_sent_between_packets_takes_nothing_of_the_time_between_them() {
    let mut coalescer = Coalescer::new(NEVER);
    for n in 0..1_000 {
        coalescer.note_row(coalescer.left + ROW_NANOS / 8);
        coalescer.has_left();
        let left = coalescer.left;
        coalescer.has_left();
        assert_eq!((coalescer.left, coalescer.is_watched), (left, false), "{n}");
    }
}

#[test]
fn a_full_datagram_leaves_by_itself_and_is_not_longer_than_the_path() {
    let (mut one, mut two) = (node(NEVER), node(NEVER));
    let to = one.resolve(&two);
    begin(&mut one, to, &mut two);
    one.link.flush();
    assert_eq!(*two.next(Channel::Priority), *b"first");
    for (longest, each) in [(COALESCED, 14), (65_536, 14), (1_000, 10), (999, 9)] {
        for n in 0..2 * each + 2 {
            assert!(one.link.coalesce(to, &[n; 100], longest, 0));
        }
        for first in [0, each] {
            let expected: Vec<u8> = (first..first + each).flat_map(|n| [n; 100]).collect();
            assert_eq!(*two.next(Channel::Priority), *expected);
        }
        assert_eq!((one.link.queued(), two.has_nothing()), (2, true));
        one.link.flush();
        assert_eq!(two.next(Channel::Priority).len(), 200);
    }
    assert!(!one.link.coalesce(to, &[1; 100], 99, 0), "too long for the path");
}

#[test]
fn nothing_overtakes_what_waits() {
    let (mut one, mut two, mut three) = (node(NEVER), node(NEVER), node(NEVER));
    let (to, other) = (one.resolve(&two), one.resolve(&three));
    begin(&mut one, to, &mut two);
    one.link.send(Channel::Priority, to, b"behind", &[]);
    assert_eq!(*two.next(Channel::Priority), *b"first");
    assert_eq!(*two.next(Channel::Priority), *b"behind");
    assert!(
        one.link.coalesce(to, b"again", COALESCED, 0) && one.link.post(Channel::Priority, to, b"posted", &[])
    );
    assert!(!one.link.coalesce(to, b"more", COALESCED, 0), "it would overtake the one that is posted");
    one.link.flush();
    assert_eq!(*two.next(Channel::Priority), *b"again");
    assert_eq!(*two.next(Channel::Priority), *b"posted");
    assert!(
        one.link.coalesce(to, b"to one", COALESCED, 0)
            && one.link.coalesce(other, b"to another", COALESCED, 0)
    );
    assert_eq!(*two.next(Channel::Priority), *b"to one");
    one.link.release(other);
    assert_eq!(*three.next(Channel::Priority), *b"to another");
    assert!(!one.link.coalesce(other, b"to nobody", COALESCED, 0));
}

#[test]
fn what_nobody_flushes_leaves_by_itself() {
    let (mut one, mut two) = (node(Duration::from_micros(50)), node(NEVER));
    let to = one.resolve(&two);
    for _ in 0..200 {
        begin(&mut one, to, &mut two);
        assert_eq!(*two.next(Channel::Priority), *b"first");
    }
}

#[test]
fn nothing_waits_for_a_thread_that_sleeps() {
    let here = IpAddr::from([127, 0, 0, 1]);
    let bind = || Arc::new(Udp::bind(here, 0, 0).expect("a socket"));
    let (from, other) = (bind(), bind());
    let address = SocketAddress::new(here, other.port(), 0);
    let mut coalescer = Coalescer::new(Duration::from_micros(50));
    let put = |coalescer: &mut Coalescer| {
        let to = AddressId { index: 0, generation: 0 };
        coalescer.put(to, COALESCED, b"packet", 0, || (Arc::clone(&from), Some(address))).is_some()
    };
    for _ in 0..20 {
        assert_eq!((0..100).find(|_| put(&mut coalescer)), Some(ROW as usize), "it wakes the thread");
        let sleeps = |_: usize| {
            std::thread::yield_now();
            !coalescer.shared.waiting.lock().is_watched
        };
        assert!((0..PATIENCE).any(sleeps), "it never sleeps");
        assert_eq!(coalescer.packets(), 0, "and has sent all before that");
        assert!(!put(&mut coalescer));
        coalescer.row = 0;
    }
}

#[test]
fn who_wants_no_waiting_has_none() {
    let (mut one, two) = (node(Duration::ZERO), node(NEVER));
    let to = one.resolve(&two);
    assert!((0..1_000).all(|_| !one.link.coalesce(to, b"alone", COALESCED, 0)));
}

#[test]
fn what_waits_at_the_end_leaves() {
    let (mut one, mut two) = (node(NEVER), node(NEVER));
    let to = one.resolve(&two);
    begin(&mut one, to, &mut two);
    drop(one);
    assert_eq!(*two.next(Channel::Priority), *b"first");
}

#[test]
fn a_closed_peer_is_reported() {
    let (mut one, mut two) = (node(NEVER), node(NEVER));
    let to = one.resolve(&two);
    begin(&mut one, to, &mut two);
    drop(two);
    let told = (0..PATIENCE).find_map(|_| {
        one.link.coalesce(to, b"to nobody", COALESCED, 0);
        one.link.flush();
        one.link.poll_refused()
    });
    assert_eq!(told, Some(to));
}
