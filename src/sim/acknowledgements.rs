//! When what has arrived is acknowledged, and what an acknowledgement says.

use super::Block;
use super::stories::{MICRO, Pair};
use crate::engine::*;
use crate::wire::usnic::{Flags, Kind};

#[test]
fn an_acknowledgement_waits_fifty_microseconds_for_a_ride() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 8, 1);
    let sent = pair.take(0);
    assert_eq!((sent.len(), sent[0].channel, sent[0].kind()), (1, Channel::Priority, Kind::Fragment));
    pair.give(1, &sent);
    assert_eq!(pair.delivered[1].len(), 1);
    assert!(pair.take(1).is_empty(), "not at once");
    assert_eq!(pair.engines[1].next_timeout(), Some(pair.now.plus(50 * MICRO)));
    pair.pass(49);
    assert!(pair.take(1).is_empty());
    pair.pass(1);
    let acks = pair.take(1);
    assert_eq!((acks.len(), acks[0].kind(), acks[0].channel), (1, Kind::Ack, Channel::Priority));
    pair.give(0, &acks);
    assert_eq!(pair.done[0], [1]);
}

#[test]
fn an_acknowledgement_rides_on_the_answer() {
    let mut pair = Pair::new();
    pair.warm();
    for cookie in 1..20 {
        for from in 0..2 {
            pair.send(from, 8, cookie);
            let sent = pair.take(from);
            assert_eq!(sent.len(), 1, "only the answer");
            assert!(sent[0].repr().flags.has(Flags::ACKNOWLEDGES));
            pair.pass(5);
            pair.give(1 - from, &sent);
        }
    }
    assert_eq!(pair.done[0], (1..20).collect::<Vec<_>>());
    assert!(pair.engines[0].counters().num_fast_recvs >= 18);
}

#[test]
fn the_end_of_a_large_fragment_is_acknowledged_at_once_if_somebody_waits_for_it() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 10_000, 1);
    let sent = pair.take(0);
    assert!(sent.len() == 8 && sent.iter().all(|it| it.kind() == Kind::Chunk && it.channel == Channel::Data));
    pair.give(1, &sent[..7]);
    assert!(pair.take(1).is_empty());
    pair.give(1, &sent[7..]);
    let acks = pair.take(1);
    assert_eq!((acks.len(), acks[0].kind(), acks[0].repr().ack), (1, Kind::Ack, sent[7].repr().seq + 1));
}

#[test]
fn a_fragment_that_is_not_tiny_is_acknowledged_at_once_if_somebody_waits_for_it() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 1200, 1);
    let sent = pair.take(0);
    assert_eq!((sent.len(), sent[0].kind(), sent[0].channel), (1, Kind::Fragment, Channel::Data));
    pair.give(1, &sent);
    let acks = pair.take(1);
    assert_eq!((acks.len(), acks[0].kind(), acks[0].repr().ack), (1, Kind::Ack, sent[0].repr().seq + 1));
    pair.send(0, 8, 2);
    let tiny = pair.take(0);
    pair.give(1, &tiny);
    assert!(pair.take(1).is_empty());
}

#[test]
fn the_end_of_a_large_fragment_that_nobody_waits_for_is_acknowledged_like_any_other() {
    let mut pair = Pair::new();
    pair.warm();
    let memory = Block::new(vec![1; 10_000]);
    let fragment =
        Fragment { tag: 3, pieces: [Some(memory), None], cookie: 1, priority: false, awaited: false };
    pair.engines[0].send(pair.ids[0], fragment, pair.now).expect("sent");
    let sent = pair.take(0);
    pair.give(1, &sent);
    assert!(pair.take(1).is_empty());
    pair.pass(50);
    let acks = pair.take(1);
    assert_eq!((acks.len(), acks[0].kind(), acks[0].repr().ack), (1, Kind::Ack, sent[7].repr().seq + 1));
}

#[test]
fn what_comes_again_is_acknowledged_at_once() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 8, 1);
    let sent = pair.take(0);
    pair.give(1, &sent);
    pair.pass(50);
    assert_eq!(pair.take(1).len(), 1, "this acknowledgement is lost");
    pair.give(1, &sent);
    assert_eq!(pair.take(1).len(), 1);
    assert_eq!(pair.delivered[1].len(), 1, "delivered once");
}

#[test]
fn duplicate_ack_resends_the_hole() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 10_000, 1);
    let sent = pair.take(0);
    // The second is lost; the others arrive one by one, each answered with what is missing.
    pair.give(1, &sent[..1]);
    let mut resent = Vec::new();
    for (count, later) in sent[2..].iter().enumerate() {
        pair.give(1, std::slice::from_ref(later));
        let acks = pair.take(1);
        assert_eq!(acks.len(), 1, "a hole is told at once");
        assert_eq!(acks[0].repr().ack, sent[1].repr().seq);
        pair.give(0, &acks);
        let again = pair.take(0);
        assert_eq!(again.len(), usize::from(count == 2), "after three later ones, and once");
        resent.extend(again);
    }
    let repr = resent[0].repr();
    assert_eq!((repr.seq, resent[0].channel), (sent[1].repr().seq, Channel::Data));
    assert!(repr.flags.has(Flags::RETRANSMISSION) && repr.stamp >= sent[1].repr().stamp);
    pair.give(1, &resent);
    assert_eq!(pair.delivered[1].len(), 1);
    pair.settle();
    assert_eq!((pair.done[0].len(), pair.engines[0].counters().num_resends), (1, 1));
}

#[test]
fn round_trips_are_measured_without_the_time_held() {
    let mut pair = Pair::new();
    pair.warm();
    for cookie in 0..100 {
        pair.send(0, 8, cookie);
        let sent = pair.take(0);
        pair.pass(30);
        pair.give(1, &sent);
        pair.pass(50);
        let acks = pair.take(1);
        pair.pass(30);
        pair.give(0, &acks);
    }
    let facts = pair.engines[0].peer(pair.ids[0]).expect("known");
    let trip = facts.round_trip.as_micros();
    assert!((59..=62).contains(&trip), "{trip} µs");
}

#[test]
fn an_answer_before_the_book_keeping_acknowledges_what_it_answers() {
    let mut pair = Pair::new();
    pair.warm();
    let before = pair.engines[1].counters();
    for cookie in 0..100 {
        let question = pair.send_at_once(0, 8, cookie).expect("nothing waits");
        pair.pass(30);
        let received = pair.engines[1].handle_datagram(question.bytes(), None, pair.now);
        assert!(matches!(received, Received::Deliver { .. }) && pair.engines[1].has_deferred());
        pair.pass(20);
        let answer = pair.send_at_once(1, 8, 1000 + cookie).expect("nothing waits");
        assert!(pair.engines[1].has_deferred());
        pair.pass(30);
        pair.give(0, &[answer]);
        assert_eq!(pair.done[0].last(), Some(&cookie));
        // Nothing more is owed for the question, however long it takes.
        pair.pass(1);
        assert!(pair.take(1).is_empty());
        pair.pass(100);
        assert!(pair.take(1).is_empty());
        let acks = pair.take(0);
        assert_eq!(acks.len(), 1);
        pair.give(1, &acks);
        assert_eq!(pair.done[1].last(), Some(&(1000 + cookie)));
    }
    let after = pair.engines[1].counters();
    assert_eq!(after.num_ack_sends, before.num_ack_sends);
    assert_eq!(after.num_fast_sends, before.num_fast_sends + 100);
    let trip = pair.engines[0].peer(pair.ids[0]).expect("known").round_trip.as_micros();
    assert!((59..=62).contains(&trip), "{trip} µs without the time held");
}
