//! What is to be done, while several threads sleep or look for it.

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::argument::Foreign;
use super::super::cntr::Counter;
use super::super::cq::Place;
use super::super::sys::{self, CntrAttr};
use super::super::wait::Beside;
use super::buffer::Buffer;
use super::connect::Gone;
use super::tests::{Side, pair, some};
use super::{Traffic, Trigger, Want, Work, far_tests};
use crate::wire::gni::datagram::NameId;

/// What a thread sleeps on that has nothing to do.
pub(super) fn asleep(side: &Side) -> Arc<OwnedFd> {
    loop {
        if let Beside::Set(set, None) = side.with(Traffic::arm).expect("armed") {
            return set;
        }
    }
}

pub(super) fn is_awake(set: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(set, PollFlags::IN)], Some(&now)) == Ok(1)
}

#[test]
fn who_was_woken_and_finds_nothing_more_to_do_is_woken_again() {
    let [one, two] = pair();
    let asleep = asleep(&two);
    // Before it looks, another thread does what there is to be done, and does not go to sleep.
    two.with(Traffic::rouse);
    one.send(b"word", 1, 3).expect("sent");
    assert!(matches!(two.with(Traffic::arm), Ok(Beside::Moved)));
    two.with(Traffic::rouse);
    assert!(is_awake(&asleep));
}

#[test]
fn who_sees_to_connections_only_is_woken_when_there_is_something_to_be_said() {
    let side = Side::new();
    let control = side.with(Traffic::rests).expect("something to sleep on").control;
    while side.with(Traffic::control_again) {}
    assert!(!is_awake(&control));
    side.with(Traffic::stir);
    // There is no limit of time: a wake-up that is lost is a test that does not end.
    while !is_awake(&control) {}
    side.with(Traffic::control_again);
    assert!(!is_awake(&control), "it is said");
}

/// That a peer has no room is known to whoever sleeps, and what has room again wakes it.
#[test]
fn who_looks_for_room_in_vain_wakes_nobody() {
    // What is under way when the sides end is read until then.
    let all = [some(4000), some(60_000)];
    for (bytes, [one, two]) in all.iter().zip([pair(), far_tests::pair()]) {
        while one.with(|traffic| traffic.again.is_empty()) {
            one.send(bytes, 1, 4).expect("sent");
        }
        let asleep = asleep(&one);
        (0..3).for_each(|_| one.with(Traffic::progress_all));
        assert!(!is_awake(&asleep), "messages of {} bytes", bytes.len());
        while !is_awake(&asleep) {
            two.with(Traffic::progress_all);
        }
    }
}

/// Of what comes by a stream is told once, and whoever hears it may not look again.
#[test]
fn what_a_last_look_leaves_wakes_who_sleeps() {
    let bytes = some(60_000);
    let [one, two] = far_tests::pair();
    while one.with(|traffic| traffic.again.is_empty()) {
        one.send(&bytes, 1, 4).expect("sent");
    }
    let (asleep, before) = (asleep(&one), one.heard());
    // More than is read of a peer in a turn.
    (0..200).for_each(|_| two.send(b"word", 1, 3).expect("sent"));
    while one.heard() == before {
        one.with(Traffic::look_last);
    }
    assert!(is_awake(&asleep));
}

#[test]
fn what_waits_for_what_a_last_look_finds_begins() {
    let [one, two] = far_tests::pair();
    let [first, then] = counters(&one);
    chain(&one, &first, &then);
    one.with(|traffic| {
        let ends = traffic.context(one.slot).expect("open").ends.as_mut().expect("enabled");
        ends.receives = Some(Arc::clone(&first));
    });
    let mut room = [0; 4];
    one.receive(&mut room, 3);
    two.send(b"word", 1, 3).expect("sent");
    while first.value() == 0 {
        one.with(Traffic::look_last);
    }
    assert_eq!(then.value(), 1);
}

#[test]
fn an_endpoint_that_is_closed_leaves_places_to_what_waits_for_them() {
    let bytes = some(4000);
    let [one, _two] = pair();
    let name = one.with(|traffic| traffic.context(one.slot).expect("open").name);
    let name = NameId { cdm_id: name.cdm_id + (1 << 19), ..name };
    let other = one.with(|traffic| traffic.open(name, None)).expect("free");
    while one.with(|traffic| traffic.again.is_empty()) {
        one.send(&bytes, 1, 4).expect("sent");
    }
    let asleep = asleep(&one);
    one.with(|traffic| traffic.end_closing(other));
    assert!(is_awake(&asleep));
}

#[test]
fn an_endpoint_that_is_closed_leaves_places_to_what_is_to_begin() {
    let side = Side::new();
    let [first, then] = counters(&side);
    chain(&side, &first, &then);
    let name = side.with(|traffic| traffic.context(side.slot).expect("open").name);
    let name = NameId { cdm_id: name.cdm_id + (1 << 19), ..name };
    let other = side.with(|traffic| traffic.open(name, None)).expect("free");
    let asleep = asleep(&side);
    side.with(|traffic| traffic.end_closing(other));
    assert!(is_awake(&asleep));
}

/// Takes all places for what has come: what comes next waits for one.
fn wait_for_a_place(one: &Side, two: &Side) -> Vec<Place> {
    let own = one.with(|traffic| traffic.context(one.slot).expect("open").place.take());
    one.receive.release_some(own);
    let mut places = Vec::new();
    while let Ok(place) = one.receive.reserve_arrival() {
        places.push(place);
    }
    two.send(b"word", 1, 3).expect("sent");
    while one.with(|traffic| traffic.again.is_empty()) {
        one.with(Traffic::progress_all);
    }
    places
}

#[test]
fn a_peer_that_is_lost_leaves_places_to_what_waits_for_them() {
    let [one, two] = pair();
    let places = wait_for_a_place(&one, &two);
    let asleep = asleep(&one);
    one.with(|traffic| traffic.fail(one.slot, 0, libc::ECONNRESET, Gone::It));
    assert!(is_awake(&asleep));
    places.into_iter().for_each(|place| one.receive.release_some(Some(place)));
}

#[test]
fn a_receive_that_finds_no_place_wakes_nobody() {
    let [one, two] = pair();
    let places = wait_for_a_place(&one, &two);
    let asleep = asleep(&one);
    let want = Want {
        context: Foreign::NULL,
        source: u64::MAX,
        tag: Some((3, 0)),
        buffer: Buffer::NONE,
        wants: true,
        many: None,
        instead: None,
    };
    assert!(one.with(|traffic| traffic.receive(one.slot, want)).is_err());
    assert!(!is_awake(&asleep));
    places.into_iter().for_each(|place| one.receive.release_some(Some(place)));
}

/// Counters of a domain.
pub(super) fn counters<const COUNT: usize>(side: &Side) -> [Arc<Counter>; COUNT] {
    let attr = CntrAttr { events: 0, wait_obj: sys::FI_WAIT_NONE, wait_set: ptr::null_mut(), flags: 0 };
    std::array::from_fn(|_| Arc::new(Counter::new(Arc::clone(&side.domain), &attr).expect("a counter")))
}

/// Has one counter count when another has.
pub(super) fn chain(side: &Side, first: &Arc<Counter>, then: &Arc<Counter>) {
    let trigger = Trigger { counter: Arc::clone(first), threshold: 1, counts_failures: false };
    let work = Work::Count { counter: Arc::clone(then), value: 1, is_set: false };
    side.with(|traffic| traffic.defer(None, trigger, work, Some(Foreign::NULL))).expect("queued");
}

#[test]
fn what_waits_for_what_is_over_at_once_wakes_who_sleeps() {
    let [one, _two] = pair();
    let [first, then] = counters(&one);
    chain(&one, &first, &then);
    one.with(|traffic| {
        let ends = traffic.context(one.slot).expect("open").ends.as_mut().expect("enabled");
        ends.sends = Some(Arc::clone(&first));
    });
    let asleep = asleep(&one);
    one.send(b"word", 1, 3).expect("sent");
    assert_eq!((first.value(), then.value()), (1, 0));
    assert!(is_awake(&asleep));
    let _ = one.with(Traffic::arm);
    assert_eq!(then.value(), 1);
}

#[test]
fn what_waits_for_a_receive_that_is_taken_back_wakes_who_sleeps() {
    let side = Side::new();
    let [first, then] = counters(&side);
    let trigger = Trigger { counter: Arc::clone(&first), threshold: 1, counts_failures: true };
    let work = Work::Count { counter: Arc::clone(&then), value: 1, is_set: false };
    side.with(|traffic| {
        traffic.defer(None, trigger, work, Some(Foreign::NULL)).expect("queued");
        let ends = traffic.context(side.slot).expect("open").ends.as_mut().expect("enabled");
        ends.receives = Some(Arc::clone(&first));
    });
    let mut room = [0; 4];
    side.receive(&mut room, 3);
    let asleep = asleep(&side);
    side.with(|traffic| traffic.cancel(side.slot, Foreign(ptr::without_provenance_mut(3)))).expect("posted");
    assert!(is_awake(&asleep));
    let _ = side.with(Traffic::arm);
    assert_eq!(then.value(), 1);
}

#[test]
fn what_waits_for_a_counter_begins_though_another_thread_makes_progress() {
    let side = Side::new();
    let [first, then] = counters(&side);
    chain(&side, &first, &then);
    std::thread::scope(|scope| {
        side.with(|traffic| {
            traffic.progress_all();
            scope.spawn(|| first.change(|counter| counter.add(1)));
            // All that was to be done has been, and this thread is still in there: long enough for a call that does not wait.
            while first.value() == 0 {
                std::thread::yield_now();
            }
            (0..1000).for_each(|_| std::thread::yield_now());
        });
    });
    assert_eq!(then.value(), 1);
}
