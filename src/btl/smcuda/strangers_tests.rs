//! Claims of nobody in the inbox of a module, beside honest ones.

use super::component::Smcuda;
use super::strangers::{MOST_FAILED, REST};
use super::tests::{Silent, Told, fragment, lend, module};
use crate::btl::{Lent, Sending, Transport};
use crate::link::Clock;
use crate::shm::{Claim, NONCE, SLOTS, Shared};

/// The memory of a module, as any process of the same user can map it.
fn memory(of: &Smcuda) -> Shared {
    Shared::of_peer(&of.life().segment).expect("mapped")
}

fn claim(name: u64) -> Claim {
    Claim { name, life: [6; NONCE], serial: 1, pid: std::process::id(), ring: 0 }
}

#[test]
fn names_of_nobody_stop_neither_those_who_are_known_nor_the_host() {
    let (own, peer) = (module(1), module(2));
    let (one, two) = (Told::default(), Told::default());
    own.meet(2, &peer.record().to_bytes(), &Silent(&one)).expect("reached");
    let to_own = peer.meet(1, &own.record().to_bytes(), &Silent(&two)).expect("reached");
    let clock = Clock::new();
    let inbox = memory(&own);
    let places: Vec<usize> = (1000..).map_while(|name| inbox.claim(&claim(name))).collect();
    assert_eq!(places.len(), SLOTS - 1);
    let mut sent = 0;
    while clock.nanos() < 3 * REST || sent < 1000 {
        places.iter().for_each(|place| inbox.ring(*place));
        if peer.send(to_own, fragment(b"honest", 2, false)) == Ok(Sending::Over) {
            sent += 1;
        }
        own.progress(&one);
        peer.progress(&two);
    }
    while one.delivered.borrow().len() < sent {
        own.progress(&one);
    }
    let rests = clock.nanos() / REST + 2;
    assert!(
        (1..=rests * u64::from(MOST_FAILED)).contains(&one.asked.get()),
        "{} in {rests}",
        one.asked.get()
    );
    assert_eq!(own.counters.num_unknown.get(), one.asked.get());
    assert_eq!(one.waited.get(), 0, "there may be no such processes");
    assert!(one.lines.borrow().len() <= 32, "{}", one.lines.borrow().len());
}

#[test]
fn who_becomes_known_late_is_heard_though_it_has_rung_only_once() {
    let (own, late) = (module(1), module(2));
    let (one, two) = (Told::default(), Told::default());
    let inbox = memory(&own);
    (100..110).for_each(|name| inbox.ring(inbox.claim(&claim(name)).expect("free")));
    let to_own = late.meet(1, &own.record().to_bytes(), &Silent(&two)).expect("reached");
    assert!(late.send_now(to_own, 65, [lend(b"late"), Lent::EMPTY]));
    while one.asked.get() < 30 {
        own.progress(&one);
    }
    assert!(one.delivered.borrow().is_empty());
    one.records.borrow_mut().insert(2, late.record().to_bytes());
    while one.delivered.borrow().is_empty() {
        own.progress(&one);
    }
    assert_eq!(*one.delivered.borrow(), [(65, b"late".to_vec())]);
}

#[test]
fn who_is_on_this_node_and_the_host_takes_for_another_is_heard() {
    let (own, other) = (module(1), module(2));
    let (one, two) = (Told::default(), Told::default());
    one.elsewhere.borrow_mut().insert(2, other.record().to_bytes());
    let to_own = other.meet(1, &own.record().to_bytes(), &Silent(&two)).expect("reached");
    assert!(other.send_now(to_own, 65, [lend(b"from a container"), Lent::EMPTY]));
    let clock = Clock::new();
    while one.delivered.borrow().is_empty() && clock.nanos() < 50 * REST {
        own.progress(&one);
    }
    assert_eq!(*one.delivered.borrow(), [(65, b"from a container".to_vec())]);
    assert_eq!(one.waited.get(), 1);
}

#[test]
fn the_host_is_not_asked_for_ourselves_nor_for_a_process_that_is_none() {
    let (own, told) = (module(1), Told::default());
    *told.published.borrow_mut() = Some(own.record().to_bytes());
    let inbox = memory(&own);
    let dead = Claim { pid: 1 << 30, ..claim(2) };
    for lie in [claim(1), dead, Claim { pid: 0, ..claim(3) }, Claim { pid: u32::MAX, ..claim(3) }] {
        inbox.ring(inbox.claim(&lie).expect("free"));
    }
    let clock = Clock::new();
    while clock.nanos() < 3 * REST {
        own.progress(&told);
    }
    assert_eq!((told.asked.get(), own.kept()[0]), (0, 0));
}

#[test]
fn a_name_of_somebody_under_a_life_of_nobody_is_seldom_looked_up() {
    let (own, peer, told) = (module(1), module(2), Told::default());
    told.records.borrow_mut().insert(2, peer.record().to_bytes());
    let inbox = memory(&own);
    let place = inbox.claim(&claim(2)).expect("free");
    let clock = Clock::new();
    let mut turns = 0;
    while clock.nanos() < 3 * REST || turns < 1000 {
        inbox.ring(place);
        own.progress(&told);
        turns += 1;
    }
    let rests = clock.nanos() / REST + 2;
    assert!((1..=rests).contains(&told.asked.get()), "{} in {rests}", told.asked.get());
    assert_eq!(told.lost.get(), 0);
}
