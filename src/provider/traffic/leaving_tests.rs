//! Messages of which a part is still here, at the head of what goes to a peer of another node.

use super::super::errno::Errno;
use super::far_tests::{leave, pair};
use super::sleep_tests::{asleep, chain, counters, is_awake};
use super::tests::{Side, some, stir};
use super::{Traffic, context};

const LENGTH: usize = 60_000;

/// What one side has sent ends once, well or not: how much of each.
fn ends(one: &Side) -> (usize, Vec<i32>) {
    let (well, failed) = one.ended(&one.transmit);
    (well.len(), failed.iter().map(|failure| failure.code).collect())
}

/// Messages that a side is sending.
fn under_way(one: &Side) -> (usize, usize) {
    one.with(|traffic| {
        let context = traffic.context(one.slot).expect("open");
        (context.sends.len(), context.peers[0].queue.len())
    })
}

#[test]
fn a_message_that_is_on_its_way_ends_once_with_its_connection() {
    for pieces in [1, 2] {
        let [one, two] = pair();
        let bytes = some(LENGTH);
        leave(&one, &two, &bytes, pieces);
        two.lie(0xFE, &[]);
        while one.malformed() == 0 {
            stir(&[&one]);
        }
        assert_eq!(ends(&one), (0, vec![libc::ECONNRESET]), "{pieces} pieces");
        assert_eq!(under_way(&one), (0, 0));
        // And the next one comes by the next connection.
        let mut room = vec![0; LENGTH];
        one.send(&bytes, pieces, 7).expect("sent");
        two.receive(&mut room, 7);
        while two.ended(&two.receive).0.is_empty() {
            stir(&[&one, &two]);
        }
        assert!(room == bytes);
        while ends(&one) != (1, Vec::new()) {
            stir(&[&one, &two]);
        }
    }
}

#[test]
fn what_is_behind_a_fence_waits_for_what_is_on_its_way() {
    for pieces in [1, 2] {
        let [one, two] = pair();
        let bytes = some(LENGTH);
        leave(&one, &two, &bytes, pieces);
        one.send_fenced(b"last", 6).expect("sent");
        (0..10).for_each(|_| stir(&[&one]));
        let held = one.with(|traffic| traffic.context(one.slot).expect("open").peers[0].held.len());
        assert_eq!((held, ends(&one)), (1, (0, Vec::new())), "{pieces} pieces");
        let mut tags = Vec::new();
        while tags.len() < 2 {
            stir(&[&one, &two]);
            tags.extend(one.ended(&one.transmit).0.iter().map(|completion| completion.context.0.addr()));
        }
        assert_eq!(tags, [5, 6]);
    }
}

#[test]
fn a_counter_counts_when_the_rest_has_gone_and_wakes_who_sleeps() {
    for pieces in [1, 2] {
        let [one, two] = pair();
        let bytes = some(LENGTH);
        leave(&one, &two, &bytes, pieces);
        let [first, then] = counters(&one);
        chain(&one, &first, &then);
        one.with(|traffic| {
            let ends = traffic.context(one.slot).expect("open").ends.as_mut().expect("enabled");
            ends.sends = Some(std::sync::Arc::clone(&first));
        });
        let asleep = asleep(&one);
        assert_eq!((first.value(), then.value()), (0, 0));
        while !is_awake(&asleep) {
            stir(&[&two]);
        }
        while then.value() == 0 {
            let _ = one.with(Traffic::arm);
            stir(&[&two]);
        }
        assert_eq!((first.value(), then.value()), (1, 1), "{pieces} pieces");
    }
}

/// Between nodes the kernel takes only so much: an answer waits behind what has no room.
#[test]
fn who_closes_answers_what_it_has_received() {
    let [one, two] = pair();
    let bytes = some(LENGTH);
    let mut room = vec![0; 4];
    one.send_answered(b"word", 6).expect("sent");
    // What the first does not read leaves no room.
    while under_way(&two).1 < 3 {
        two.send(&bytes, 1, 5).expect("sent");
        (0..10).for_each(|_| stir(&[&two]));
    }
    two.receive(&mut room, 6);
    assert_eq!(two.ended(&two.receive).0.len(), 1);
    let is_owed = two.with(|traffic| {
        let context = traffic.context(two.slot).expect("open");
        context.peers[0].queue.iter().any(context::Item::is_answer)
    });
    assert!(is_owed, "the answer has no room");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(two));
        let mut ended = (0, Vec::new());
        while ended == (0, Vec::new()) {
            stir(&[&one]);
            ended = ends(&one);
        }
        assert_eq!(ended, (1, Vec::new()));
    });
}

#[test]
fn an_endpoint_is_closed_when_nobody_copies_from_or_to_its_memory_and_nobody_begins_to() {
    let [one, two] = super::tests::pair();
    let left = || {
        one.with(|traffic| {
            let now = traffic.clock.nanos();
            traffic.be_left(one.slot, now)
        })
    };
    let copy = |copy: &dyn Fn()| {
        two.with(|traffic| {
            let context = traffic.context(two.slot).expect("open");
            context.peers[0].copy(|_| {
                copy();
                Ok(())
            })
        })
    };
    let waits = std::cell::Cell::new(false);
    assert_eq!(copy(&|| waits.set(left().is_some())), Some(Ok(())));
    assert!(waits.get() && left().is_none());
    assert_eq!(copy(&|| panic!("gone")), Some(Err(Errno(libc::ECONNRESET))));
}
