//! The suite of all links over the simulator's, and what only a simulated network does.

use super::Path;
use super::link::{Port, World};
use crate::link::conformance::{self as suite, Node, conformance, pattern};
use crate::link::{Channel, Link};
use std::collections::HashMap;

/// Opens ports of a network that a test has for itself.
fn on(path: Path, max_datagram: usize) -> impl Fn() -> Port {
    let world = World::new(path, 1, 32, max_datagram, 1 << 20);
    move || world.open()
}

conformance!(plain, on(Path::default(), 1472));
conformance!(long, on(Path::default(), 65_507));
conformance!(slow, on(Path { rate: 10_000_000, delay: 1_000_000, ..Path::default() }, 8972));

#[test]
fn a_closed_peer_is_reported() {
    suite::a_closed_peer_is_reported(&on(Path::default(), 1472));
}

/// What arrives was sent, or differs from that by one bit; and the counts agree.
fn under_fire(seed: u64) -> super::Fates {
    let path = Path {
        loss: 100_000,
        duplication: 100_000,
        corruption: 50_000,
        reordering: 200_000,
        ..Path::default()
    };
    let world = World::new(path, seed, 2, 1472, 1 << 20);
    let (mut one, mut two) = (Node::new(world.open()), Node::new(world.open()));
    let to = one.resolve(&two);
    let mut seen: HashMap<usize, u32> = HashMap::new();
    let (mut changed, mut overtaken, mut last) = (0, 0, 0);
    for burst in 0..100 {
        for n in 0..50 {
            one.post(Channel::BOTH[n % 2], to, &pattern(burst * 50 + n, 100 + (burst * 50 + n) % 1000), &[]);
        }
        one.flush();
        while Channel::BOTH.iter().any(|channel| two.link.poll(*channel, &mut two.inbox) > 0) {
            while let Some(got) = two.inbox.pop() {
                let differs = |n: usize| {
                    let sent = pattern(n, 100 + n % 1000);
                    let bits = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
                    (sent.len() == got.len()).then(|| sent.iter().zip(got.iter()).map(bits).sum::<u32>())
                };
                let sent = (0..(burst + 1) * 50).rev().find(|n| differs(*n).is_some_and(|bits| bits <= 1));
                let sent = sent.expect("nobody sent this");
                changed += u64::from(differs(sent) == Some(1));
                overtaken += u64::from(sent < last);
                last = sent;
                *seen.entry(sent).or_default() += 1;
            }
        }
    }
    let fates = world.wires(|wires| wires.fates);
    assert_eq!(fates.sent, 5000);
    assert_eq!(fates.arrived, fates.sent - fates.lost + fates.duplicated);
    assert_eq!(fates.arrived, u64::from(seen.values().sum::<u32>()));
    assert_eq!(fates.corrupted, changed);
    assert!(seen.values().all(|times| *times <= 2), "a datagram came three times");
    assert!([fates.lost, fates.duplicated, fates.corrupted, overtaken].iter().all(|count| *count > 100));
    fates
}

#[test]
fn a_bad_network_invents_nothing() {
    under_fire(1);
}

#[test]
fn a_seed_replays_the_network() {
    assert_eq!(under_fire(2), under_fire(2));
    assert_ne!(under_fire(2), under_fire(3));
}

#[test]
fn what_finds_no_room_is_lost() {
    let world = World::new(Path::default(), 1, 2, 1472, 10_000);
    let (mut one, mut two) = (Node::new(world.open()), Node::new(world.open()));
    let to = one.resolve(&two);
    for n in 0..20 {
        one.post(Channel::Data, to, &pattern(n, 1000), &[]);
    }
    one.flush();
    // The last arrives last; by then the first ten have filled the buffer.
    one.has_nothing();
    for n in 0..10 {
        assert_eq!(*two.next(Channel::Data), pattern(n, 1000));
    }
    assert!(two.has_nothing());
    assert_eq!(world.wires(|wires| wires.fates.overrun), 10);
}
