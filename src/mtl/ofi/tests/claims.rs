//! Claimed messages: over the plain provider of TCP, which stores a few short messages and reads no further, and over
//! one that keeps any number and has room for so many receives.

use super::*;
use crate::wire::tag::Full;

/// More short messages than `net` of libfabric 1.17 stores from one peer.
const MANY: i32 = 5;
/// The last of them: the provider has read its header only.
const LAST: Selector = Selector(MANY - 1);

/// An endpoint whose provider holds such messages, with room to store one more.
fn crowded() -> Option<Ofi<Fake>> {
    let ofi = open_over("net", false).or_else(|| open_over("tcp", false))?;
    // The first message makes the connection.
    let first = irecv(&ofi, 8, Selector(0), true);
    isend(&ofi, &[1; 8], 0, false);
    until(&ofi, || received(&first).is_some());
    for tag in 0..MANY {
        isend(&ofi, &[10 + tag as u8; 8], tag, false);
    }
    let is_there = || ofi.iprobe::<One>(WORLD, ANYBODY, LAST).expect("asked").is_some();
    assert!((0..30).any(|_| is_there()), "before anything is taken over");
    assert!(!ofi.unexpected.queue.with(|queue| queue.has_messages()));
    let first = irecv(&ofi, 8, Selector(0), true);
    until(&ofi, || received(&first).is_some());
    Some(ofi)
}

fn all_arrive(ofi: &Ofi<Fake>, last: &Host<Body<Fake>>) {
    let others: Vec<_> = (1..MANY - 1).map(|tag| irecv(ofi, 8, Selector(tag), true)).collect();
    until(ofi, || received(last).is_some() && others.iter().all(|host| received(host).is_some()));
    assert_eq!(
        received(last),
        Some((Envelope { source: 0, tag: MANY - 1, len: 8 }, Outcome::Success)),
        "nothing is lost"
    );
    assert_eq!(last.buffer.bytes(), [10 + MANY as u8 - 1; 8]);
}

#[test]
fn a_claimed_message_survives_a_receive_that_is_posted_before_its_own() {
    let Some(ofi) = crowded() else { return };
    let claim = ofi.improbe::<One>(WORLD, ANYBODY, LAST).expect("asked").expect("it is there");
    assert_eq!(claim.envelope, Envelope { source: 0, tag: MANY - 1, len: 8 });
    let _other = irecv(&ofi, 8, Selector(99), true);
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.imrecv::<One>(claim.message, place).expect("there");
    all_arrive(&ofi, &host);
}

#[test]
fn a_claimed_message_survives_a_synchronous_send_of_another_thread() {
    let Some(ofi) = crowded() else { return };
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    let bits = One::send(WORLD.id, 0, LAST.0);
    let peek = |operation| ofi.endpoint.first().peek(Address::ANY, bits, 0, true, operation);
    let peeked = ofi.ask::<One>(0, peek).expect("asked").expect("it is there");
    // Another thread's, while this one has claimed the message and not received it.
    let synchronous = isend(&ofi, &[9; 8], 7, true);
    let message = ofi.fetch_claimed(peeked, WORLD);
    ofi.fetch_rest::<One>();
    ofi.taken_over();
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.imrecv::<One>(message, place).expect("there");
    all_arrive(&ofi, &host);
    assert_eq!(sent(synchronous), None, "nobody has received it");
    let other = irecv(&ofi, 8, Selector(7), true);
    until(&ofi, || received(&other).is_some() && sent(synchronous).is_some());
    assert_eq!(sent(synchronous), Some(Outcome::Success));
}

/// While one receive waits for room, long messages that nobody has a receive for stay with their senders.
#[test]
fn messages_that_are_not_matched_are_not_copied() {
    const LEN: usize = 1 << 20;
    let Some(ofi) = open() else { return };
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    let tags = 50..58;
    for tag in tags.clone() {
        isend(&ofi, &vec![tag as u8; LEN], tag, false);
    }
    let lies_here = || ofi.unexpected.queue.with(|queue| queue.lies_here());
    until(&ofi, || lies_here().0 == tags.len());
    assert_eq!(lies_here(), (tags.len(), 0), "claimed, and not a byte of them");
    let claim = ofi.improbe::<One>(WORLD, ANYBODY, Selector(57)).expect("asked").expect("it is there");
    let (place, last) = fake::receive::<Body<Fake>>(LEN);
    ofi.imrecv::<One>(claim.message, place).expect("there");
    let mut hosts: Vec<_> = (50..57).map(|tag| irecv(&ofi, LEN, Selector(tag), true)).collect();
    hosts.push(last);
    until(&ofi, || hosts.iter().all(|host| received(host).is_some()));
    for (tag, host) in tags.zip(&hosts) {
        let envelope = Envelope { source: 0, tag, len: LEN };
        assert_eq!(received(host), Some((envelope, Outcome::Success)));
        assert!(host.buffer.bytes() == vec![tag as u8; LEN]);
    }
    assert_eq!(lies_here(), (0, 0));
}

/// Thousands of answers that are awaited cost no more than one, until they come.
#[test]
fn answers_that_have_not_come_are_not_asked_for_one_by_one() {
    let Some(ofi) = open() else { return };
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    let sends: Vec<_> = (0..300).map(|n| isend(&ofi, &[1; 8], 4000 + n, true)).collect();
    let asked = || ofi.unexpected.asked.load(Ordering::Relaxed);
    let answers = || ofi.unexpected.queue.with(|queue| queue.answers.len());
    let is_here = || ofi.unexpected.queue.with(|queue| queue.lies_here().0 == sends.len());
    until(&ofi, is_here);
    assert_eq!(answers(), sends.len());
    let before = asked();
    ofi.take_over::<One>();
    assert!(asked() - before <= 4, "asked {} times for nothing", asked() - before);
    let before = asked();
    let hosts: Vec<_> = (0..300).map(|n| irecv(&ofi, 8, Selector(4000 + n), true)).collect();
    until(&ofi, || sends.iter().all(|send| sent(*send).is_some()));
    assert!(hosts.iter().all(|host| received(host).is_some()));
    assert!(sends.iter().all(|send| sent(*send) == Some(Outcome::Success)) && answers() == 0);
    println!("asked {} times for {} answers", asked() - before, sends.len());
}

/// What a claiming probe finds goes to the receive that has waited for it, if there is one, whatever has come since the
/// provider was asked: it is asked once.
#[test]
fn a_claiming_probe_goes_past_no_receive_that_waits() {
    let Some(ofi) = open() else { return };
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    let waits = irecv(&ofi, 8, Selector(7), true);
    let asked = || ofi.unexpected.asked.load(Ordering::Relaxed);
    let claim = |tag| ofi.improbe::<One>(WORLD, ANYBODY, tag).expect("asked");
    // It may be time to take messages over, and then that asks too.
    let fewest = (0..20).map(|_| {
        let before = asked();
        assert!(claim(Selector(6)).is_none());
        asked() - before
    });
    assert_eq!(fewest.min(), Some(1), "the question is the claim");
    isend(&ofi, &[7; 8], 7, false);
    isend(&ofi, &[8; 8], 7, false);
    let mut second = None;
    until(&ofi, || {
        second = claim(Selector(7));
        second.is_some()
    });
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.imrecv::<One>(second.expect("found").message, place).expect("there");
    until(&ofi, || received(&host).is_some() && received(&waits).is_some());
    assert_eq!((waits.buffer.bytes()[0], host.buffer.bytes()[0]), (7, 8));
}

/// Where the tag does not say whose an answer is, one that somebody may still await is not thrown away; and it hides no
/// other.
#[test]
fn an_answer_that_may_be_awaited_is_kept() {
    let Some(ofi) = open() else { return };
    let (first, second) =
        (Full::ack(Full::send(WORLD.id, 0, 7), 0), Full::ack(Full::send(WORLD.id, 0, 8), 0));
    let own = ofi.address(WORLD, PEER, 0).expect("known");
    // Somebody else, who has not answered yet.
    let other = Address(own.0 + 1000);
    let await_answer = |from, bits| {
        let (answer, receive) = ofi.answers.begin(ofi.pool(), 0);
        ofi.post_answer(0, from, bits, receive).map_err(|_| ()).expect("it waits");
        answer
    };
    let is_there = |bits| {
        let peek = |operation| ofi.endpoint.first().peek(Address::ANY, bits, 0, false, operation);
        ofi.ask::<Full>(0, peek).expect("asked").is_some()
    };
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    let [late, hidden] = [(other, first), (own, second)].map(|(from, bits)| await_answer(from, bits));
    for bits in [first, second] {
        ofi.dispatch_out::<Full>(Outgoing::Answer { context: 0, to: own, bits });
        until(&ofi, || is_there(bits));
    }
    ofi.take_answers::<Full>();
    assert_eq!(ofi.answers.take(hidden), Some(Outcome::Success));
    assert_eq!((ofi.answers.take(late), is_there(first)), (None, true), "it may be the answer to that");
    ofi.forget_answer(late);
    let third = await_answer(other, Full::ack(Full::send(WORLD.id, 0, 9), 0));
    ofi.take_answers::<Full>();
    assert!(!is_there(first), "nobody awaits one like it");
    ofi.forget_answer(third);
    ofi.taken_over();
}

/// Threads that claim all the time take messages over all the time: what is here is found all the same, and it stays
/// time to bring the rest here.
#[test]
fn who_claims_in_a_loop_hides_nothing_that_is_here() {
    let Some(ofi) = open() else { return };
    isend(&ofi, &[3; 8], 3, false);
    let is_here = || ofi.unexpected.queue.with(|queue| queue.has_messages());
    until(&ofi, || {
        ofi.take_over::<One>();
        is_here()
    });
    // Another thread's.
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    ofi.unexpected.idle.store(77, Ordering::Relaxed);
    ofi.take_over::<One>();
    assert_eq!(ofi.unexpected.idle.load(Ordering::Relaxed), 77, "it is still time");
    let there = Envelope { source: 0, tag: 3, len: 8 };
    assert_eq!(ofi.iprobe::<One>(WORLD, ANYBODY, Selector(3)).expect("asked"), Some(there));
    let claim = ofi.improbe::<One>(WORLD, ANYBODY, Selector(3)).expect("asked").expect("it is here");
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.imrecv::<One>(claim.message, place).expect("here");
    ofi.taken_over();
    until(&ofi, || received(&host).is_some());
}
