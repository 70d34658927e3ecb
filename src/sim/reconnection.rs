//! A process that forgets a peer and connects anew, while packets of the earlier connection are on their way.

use super::stories::{Pair, Sent};
use crate::engine::{Event, Peer};

/// Node 1 forgets node 0, and connects anew.
fn connect_anew(pair: &mut Pair) {
    let forgotten = pair.ids[1];
    pair.engines[1].forget(forgotten);
    while pair.engines[1].poll_event().is_some() {}
    let peer = Peer { name: 0, incarnation: 1, key: [1; 16], max_datagram: 1472 };
    pair.ids[1] = pair.engines[1].connect(peer, pair.now).expect("connected");
}

/// Carries everything for ten seconds; whether either has lost the other.
fn is_lost(pair: &mut Pair) -> bool {
    let mut lost = false;
    for from in [0, 1].into_iter().cycle().take(20_000) {
        pair.pass(500);
        let sent: Vec<Sent> = pair.take(from);
        for datagram in &sent {
            let _ = pair.engines[1 - from].handle_datagram(datagram.bytes(), None, pair.now);
        }
        for at in [0, 1] {
            while let Some(event) = pair.engines[at].poll_event() {
                match event {
                    Event::Done { cookie, outcome: Ok(()) } => pair.done[at].push(cookie),
                    Event::Lost { .. } => lost = true,
                    _ => {}
                }
            }
        }
    }
    lost
}

#[test]
fn a_late_first_packet_does_not_leave_both_deaf() {
    let mut pair = Pair::new();
    pair.send(1, 100, 1);
    let late = pair.take(1);
    connect_anew(&mut pair);
    // Node 0 sends before it reads, so that the new connection knows its slot.
    pair.send(0, 100, 2);
    let first = pair.take(0);
    pair.hand(1, &first);
    pair.hand(0, &late);
    pair.send(1, 100, 3);
    assert!(is_lost(&mut pair), "nothing is done, and nobody is told: {:?}", pair.done);
}

#[test]
fn who_was_heard_before_it_was_forgotten_is_told() {
    let mut pair = Pair::new();
    pair.send(0, 100, 2);
    let first = pair.take(0);
    pair.hand(1, &first);
    assert_eq!(pair.take(1).len(), 0, "it acknowledges a little later, but does not come to that");
    connect_anew(&mut pair);
    pair.send(1, 100, 3);
    assert!(is_lost(&mut pair), "nothing is done, and nobody is told: {:?}", pair.done);
}

#[test]
fn who_connects_anew_in_good_order_is_heard() {
    let mut pair = Pair::new();
    pair.send(1, 100, 1);
    let lost = pair.take(1);
    assert!(!lost.is_empty());
    connect_anew(&mut pair);
    pair.send(0, 100, 2);
    pair.send(1, 100, 3);
    assert!(!is_lost(&mut pair));
    assert_eq!(pair.done, [vec![2], vec![3]]);
}
