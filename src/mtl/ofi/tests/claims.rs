//! Claimed messages over the plain provider of TCP, which stores a few short messages and reads no further.

use super::*;

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
