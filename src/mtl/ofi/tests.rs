//! The transport over a real provider of libfabric: one rank that sends to itself.

mod claims;
mod loss;

use super::fake::{Comm, Fake, job, log};
use super::*;
use crate::config::{self, NameList, ProgressMode, TagMode};
use crate::fabric::fake::{self, Buffer, Host};
use crate::fabric::{AtOnce, Library};
use crate::mtl::Envelope;
use crate::wire::tag::{One, Selector};

const WORLD: Comm = Comm { id: 3, rank: 0, global: true };
const ANYBODY: Selector = Selector::ANY;
/// The rank itself: the endpoint of a test sends to itself.
const PEER: i32 = 0;

/// An endpoint of the provider `tcp;ofi_rxm`, and a job of two ranks that have its name; `None` where there
/// is no libfabric.
fn open() -> Option<Ofi<Fake>> {
    open_for(false)
}

/// The same, for one thread or for several.
fn open_for(threads: bool) -> Option<Ofi<Fake>> {
    open_over("tcp;ofi_rxm", threads)
}

/// The same, of this provider.
fn open_over(provider: &str, threads: bool) -> Option<Ofi<Fake>> {
    let library = Library::open().ok()?;
    let config = config::Ofi {
        include: Some(NameList::parse(provider)),
        exclude: NameList::parse(""),
        progress_event_count: 100,
        tag_mode: TagMode::One,
        control_progress: ProgressMode::Unspecified,
        data_progress: ProgressMode::Unspecified,
        av_table: false,
        scalable: false,
        grouping: false,
        contexts: 1,
        device: false,
    };
    let needs = Needs { threads, untagged: true };
    let offers = candidates(library, &config, needs).ok()?;
    let offer = select(&offers, &config, "ofi", 0, 2).ok()?;
    let ofi = Ofi::open(&offer, &config, 2).expect("an endpoint");
    let name = ofi.name().expect("a name");
    job([name.clone(), name]);
    Some(ofi)
}

/// As the host's entry does: by the short path, or else by the long one.
fn isend(ofi: &Ofi<Fake>, bytes: &[u8], tag: i32, synchronous: bool) -> u64 {
    let (place, host) = fake::place::<Body<Fake>>(Buffer::new(bytes, true));
    if synchronous || !ofi.isend_at_once::<One>(WORLD, PEER, tag, place) {
        ofi.isend::<One>(WORLD, PEER, tag, host.place(), synchronous).expect("sent");
    }
    host.number
}

/// Likewise.
fn irecv(ofi: &Ofi<Fake>, len: usize, tag: Selector, in_place: bool) -> Host<Body<Fake>> {
    let (place, host) = fake::place(Buffer::new(&vec![0; len], in_place));
    match ofi.irecv_at_once::<One>(WORLD, ANYBODY, tag, place) {
        AtOnce::Posted => {}
        AtOnce::Untried => ofi.irecv::<One>(WORLD, ANYBODY, tag, host.place()).expect("posted"),
        AtOnce::Refused => ofi.irecv_again::<One>(WORLD, ANYBODY, tag, host.place()).expect("posted"),
    }
    host
}

/// Makes progress until something holds; a watchdog counts polls.
fn until(ofi: &Ofi<Fake>, mut holds: impl FnMut() -> bool) {
    for _ in 0..50_000_000_u64 {
        if holds() {
            return;
        }
        ofi.progress::<One>();
    }
    panic!("nothing comes");
}

fn received(host: &Host<Body<Fake>>) -> Option<(Envelope, Outcome)> {
    let number = host.number;
    log(|log| log.received.iter().find(|(of, ..)| *of == number).map(|(_, envelope, how)| (*envelope, *how)))
}

fn sent(number: u64) -> Option<Outcome> {
    log(|log| log.sent.iter().find(|(of, _)| *of == number).map(|(_, how)| *how))
}

#[test]
fn messages_of_every_kind_arrive_and_leave_nothing_behind() {
    let Some(ofi) = open() else { return };
    let standing = ofi.pool().out();
    for (len, in_place, synchronous) in
        [(8, true, false), (8, false, true), (100_000, true, true), (100_000, false, false), (0, true, true)]
    {
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let host = irecv(&ofi, len, Selector(7), in_place);
        let send = isend(&ofi, &bytes, 7, synchronous);
        until(&ofi, || received(&host).is_some() && sent(send).is_some());
        let envelope = Envelope { source: 0, tag: 7, len };
        assert_eq!(
            (received(&host), sent(send)),
            (Some((envelope, Outcome::Success)), Some(Outcome::Success))
        );
        assert!(host.buffer.bytes() == bytes);
    }
    assert_eq!(ofi.pool().out(), standing, "operations of our own came back");
}

#[test]
fn a_receive_that_is_given_up_is_cancelled_once() {
    let Some(ofi) = open() else { return };
    let host = irecv(&ofi, 8, Selector(1), true);
    ofi.cancel::<One>(&host.standing());
    until(&ofi, || received(&host).is_some());
    assert_eq!(received(&host).map(|(_, how)| how), Some(Outcome::Cancelled));
    ofi.cancel::<One>(&host.standing());
    let send = isend(&ofi, &[1; 8], 1, false);
    until(&ofi, || sent(send).is_some());
    assert_eq!(host.buffer.bytes(), [0; 8], "what is over is not written to");
    let next = irecv(&ofi, 8, Selector(1), true);
    until(&ofi, || received(&next).is_some());
    assert_eq!(next.buffer.bytes(), [1; 8]);
}

#[test]
fn a_claimed_message_is_received_once() {
    let Some(ofi) = open() else { return };
    isend(&ofi, &[5; 64], 2, false);
    let mut claim = None;
    until(&ofi, || {
        claim = ofi.improbe::<One>(WORLD, ANYBODY, Selector(2)).expect("probed");
        claim.is_some()
    });
    let claim = claim.expect("found");
    assert_eq!(claim.envelope, Envelope { source: 0, tag: 2, len: 64 });
    assert_eq!(ofi.iprobe::<One>(WORLD, ANYBODY, Selector(2)), Ok(None), "nobody else finds it");
    let (place, host) = fake::receive::<Body<Fake>>(64);
    ofi.imrecv::<One>(claim.message, place).expect("there");
    until(&ofi, || received(&host).is_some());
    assert_eq!(host.buffer.bytes(), [5; 64]);
    let (place, again) = fake::receive::<Body<Fake>>(64);
    assert_eq!(ofi.imrecv::<One>(claim.message, place), Err(Error::NotFound));
    assert!(received(&again).is_none(), "the host hears of it by the code");
}

#[test]
fn blocking_sends_end_when_they_may() {
    let Some(ofi) = open() else { return };
    for (len, synchronous) in [(8, false), (100_000, false), (8, true), (100_000, true)] {
        let host = irecv(&ofi, len, Selector(4), true);
        let view = fake::view(Buffer::new(&vec![6; len], len == 8));
        ofi.send::<One>(WORLD, PEER, 4, view, synchronous).expect("sent");
        until(&ofi, || received(&host).is_some());
        assert!(host.buffer.bytes().iter().all(|byte| *byte == 6));
    }
}

#[test]
fn a_send_to_a_rank_that_is_not_there_fails_and_ends_nothing() {
    let Some(ofi) = open() else { return };
    let standing = ofi.pool().out();
    let (place, host) = fake::place::<Body<Fake>>(Buffer::new(&[1; 8], true));
    assert_eq!(ofi.isend::<One>(WORLD, 2, 1, place, true), Err(Error::Unreachable));
    assert_eq!((sent(host.number), ofi.pool().out()), (None, standing));
}

/// A communicator that was freed while something was owed to its members: nothing names it any more.
#[test]
fn what_is_owed_on_a_freed_communicator_is_forgotten() {
    let Some(ofi) = open() else { return };
    let group = Comm { id: 9, rank: 0, global: false };
    ofi.add_comm::<One>(group).expect("listens");
    let comm = group.note();
    ofi.outbox.with(|outbox| outbox.push(Outgoing::Announcement { comm, dest: 1, asks: true }));
    ofi.deferred.set(true, Ordering::Relaxed);
    ofi.remove_comm(group);
    let out = ofi.pool().out();
    ofi.advance::<One>();
    assert_eq!(ofi.outbox.with(|outbox| outbox.len()), 0);
    assert_eq!(ofi.pool().out(), out, "no announcement went out");
    ofi.announcement_failed(comm, 1);
    assert!(log(|log| log.notices.is_empty()), "nobody waits for it");
}

/// A send that waits for the id of its receiver ends with its communicator.
#[test]
fn sends_that_wait_end_with_their_communicator() {
    let Some(ofi) = open() else { return };
    let group = Comm { id: 9, rank: 0, global: false };
    ofi.add_comm::<One>(group).expect("listens");
    let (place, host) = fake::place::<Body<Fake>>(Buffer::new(&[1; 8], true));
    ofi.isend::<One>(group, PEER, 1, place, false).expect("waits");
    assert_eq!(sent(host.number), None);
    ofi.remove_comm(group);
    assert_eq!(sent(host.number), Some(Outcome::Failed));
}

/// The failure of a transmit ends a synchronous send, although no answer comes.
#[test]
fn a_synchronous_send_whose_transmit_fails_ends() {
    let Some(ofi) = open() else { return };
    let (place, host) = fake::place::<Body<Fake>>(Buffer::new(&[1; 8], true));
    let (answer, receive) = ofi.answers.begin(ofi.pool(), 0);
    drop(receive);
    let operation = place.install(Body::SynchronousSend { answer });
    let entry = Failure { lease: Some(operation), code: sys::FI_EIO as i32, len: 0, data: 0, tag: 0 };
    ofi.fail::<One>(0, entry);
    assert_eq!(sent(host.number), Some(Outcome::Failed));
}

/// The message in the queue goes to the receive that waits, and what waits and is refused says whose it was.
#[test]
fn a_receive_that_waits_is_ended_with_what_it_asked_for() {
    let Some(ofi) = open() else { return };
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    ofi.unexpected.watch.store(true, Ordering::Relaxed);
    ofi.unexpected.long_way.set(true, Ordering::Relaxed);
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.irecv::<One>(WORLD, Selector(1), Selector(44), place).expect("waits");
    assert!(received(&host).is_none());
    ofi.cancel::<One>(&host.standing());
    assert_eq!(received(&host), Some((Envelope { source: 1, tag: 44, len: 0 }, Outcome::Cancelled)));
}

/// A receive goes past no message that another thread takes over, wherever that thread began: here, after this
/// one has seen that nothing lies here and nobody waits.
#[test]
fn no_receive_is_posted_beside_a_take_over() {
    for (threads, in_place) in [(false, false), (true, false), (true, true)] {
        let Some(ofi) = open_for(threads) else { return };
        ofi.unexpected.queue.with(|queue| queue.taking_over = true);
        let host = irecv(&ofi, 8, Selector(9), in_place);
        let waiting = || ofi.unexpected.queue.with(|queue| queue.waiting.len());
        assert_eq!(waiting(), 1, "threads: {threads}, in place: {in_place}");
        ofi.taken_over();
        assert_eq!(waiting(), 0, "posted now");
        isend(&ofi, &[6; 8], 9, false);
        until(&ofi, || received(&host).is_some());
        assert_eq!(host.buffer.bytes(), [6; 8]);
    }
}

/// While messages are taken over receives may come: each gets the oldest message that it matches, and what is taken
/// over goes to the first that waits for it.
#[test]
fn receives_that_come_beside_a_take_over_get_their_messages_in_order() {
    let Some(ofi) = open() else { return };
    let waiting = || ofi.unexpected.queue.with(|queue| queue.waiting.len());
    let take_next = || until(&ofi, || ofi.take_one::<One>(0));
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    isend(&ofi, &[1; 8], 5, false);
    take_next();
    let first = irecv(&ofi, 8, Selector(5), true);
    assert_eq!(waiting(), 0, "its message lies here");
    let [other, second, third] = [4, 5, 5].map(|tag| irecv(&ofi, 8, Selector(tag), true));
    assert_eq!(waiting(), 3);
    isend(&ofi, &[2; 8], 5, false);
    take_next();
    assert_eq!(waiting(), 2);
    ofi.taken_over();
    assert_eq!(waiting(), 0, "posted now");
    isend(&ofi, &[3; 8], 5, false);
    isend(&ofi, &[4; 8], 4, false);
    let all = [first, second, third, other];
    until(&ofi, || all.iter().all(|host| received(host).is_some()));
    assert_eq!(all.map(|host| host.buffer.bytes()[0]), [1, 2, 3, 4]);
}

/// The provider is full, and what would make room comes only when the synchronous message has arrived: the answer
/// comes all the same, to the first of those that await one like it.
#[test]
fn a_synchronous_send_ends_while_the_provider_has_no_room() {
    let Some(ofi) = open() else { return };
    let answers = || ofi.unexpected.queue.with(|queue| queue.answers.len());
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    let [first, second, late] = [7, 7, 8].map(|tag| isend(&ofi, &[1; 8], tag, true));
    assert_eq!(answers(), 3, "they wait");
    let host = irecv(&ofi, 8, Selector(7), true);
    until(&ofi, || sent(first).is_some());
    assert_eq!((received(&host).is_some(), sent(second), sent(late), answers()), (true, None, None, 2));
    let _next = irecv(&ofi, 8, Selector(7), true);
    until(&ofi, || sent(second).is_some());
    assert_eq!((sent(first), sent(second)), (Some(Outcome::Success), Some(Outcome::Success)));
    assert_eq!((sent(late), answers()), (None, 1));
}

/// The provider is full, and what would make room comes only when the claimed message has been received.
#[test]
fn a_claimed_message_is_received_while_the_provider_has_no_room() {
    let Some(ofi) = open() else { return };
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    isend(&ofi, &[3; 8], 7, false);
    let mut claim = None;
    until(&ofi, || {
        claim = ofi.improbe::<One>(WORLD, ANYBODY, Selector(7)).expect("probed");
        claim.is_some()
    });
    let (place, host) = fake::receive::<Body<Fake>>(8);
    ofi.imrecv::<One>(claim.expect("found").message, place).expect("there");
    until(&ofi, || received(&host).is_some());
    assert_eq!(host.buffer.bytes(), [3; 8]);
}

/// While threads probe there is always one that does: when it is time to take messages over they pause.
#[test]
fn probes_do_not_keep_messages_from_being_taken_over() {
    let Some(ofi) = open() else { return };
    let _others: Vec<_> = (0..2200).map(|n| irecv(&ofi, 8, Selector(1000 + n), true)).collect();
    isend(&ofi, &[3; 8], 7, false);
    let under_way = || ofi.unexpected.probes.load(Ordering::SeqCst);
    let probe = || ofi.iprobe::<One>(WORLD, ANYBODY, Selector(7)).expect("probed");
    // Another thread's.
    ofi.unexpected.probes.fetch_add(1, Ordering::SeqCst);
    ofi.take_over::<One>();
    assert_eq!((probe(), under_way()), (None, 1), "no further one begins");
    ofi.unexpected.end_probe();
    let is_here = || ofi.unexpected.queue.with(|queue| queue.has_messages());
    until(&ofi, || is_here() || probe().is_some() && is_here());
    assert_eq!((probe(), under_way()), (Some(Envelope { source: 0, tag: 7, len: 8 }), 0));
}

/// The place in the provider that comes free belongs to a claimed message, which nobody else can receive, and not to
/// the receive that comes first.
#[test]
fn no_receive_takes_the_place_of_a_claimed_message() {
    let Some(ofi) = open() else { return };
    isend(&ofi, &[3; 8], 7, false);
    let bits = One::send(WORLD.id, 0, 7);
    let mut found = None;
    until(&ofi, || {
        let peek = |operation| ofi.endpoint.first().peek(Address::ANY, bits, 0, true, operation);
        found = ofi.ask::<One>(0, peek).expect("asked");
        found.is_some()
    });
    ofi.unexpected.queue.with(|queue| {
        queue.receive_nothing(found.take().expect("claimed"));
        queue.show(&ofi.unexpected);
    });
    for in_place in [true, false] {
        irecv(&ofi, 8, Selector(9), in_place);
    }
    let waiting = || ofi.unexpected.queue.with(|queue| queue.waiting.len());
    assert_eq!(waiting(), 2, "they come after it");
    assert!(ofi.fetch_rest::<One>(), "there is room");
    ofi.post_waiting();
    assert_eq!(waiting(), 0);
}

/// No answer comes to a send that has failed, and its receive does not wait for room any more.
#[test]
fn an_answer_that_waits_is_given_up_with_its_send() {
    let Some(ofi) = open() else { return };
    ofi.unexpected.queue.with(|queue| queue.taking_over = true);
    let standing = ofi.pool().out();
    let (answer, receive) = ofi.answers.begin(ofi.pool(), 0);
    let bits = One::ack(One::send(WORLD.id, 0, 9), 0);
    ofi.post_answer(0, Address::ANY, bits, receive).map_err(|_| ()).expect("it waits");
    assert!(ofi.unexpected.watch.load(Ordering::Relaxed), "the answer may be there before there is room");
    ofi.forget_answer(answer);
    assert_eq!((ofi.unexpected.queue.with(|queue| queue.answers.len()), ofi.pool().out()), (0, standing));
}

/// The place that is kept in the provider is forgotten when its receive ends by itself: what its memory is used
/// for next is not taken back in its stead, and a new place can be kept.
#[test]
fn a_reserve_that_fails_is_forgotten() {
    let Some(ofi) = open() else { return };
    let kept = || ofi.unexpected.queue.with(|queue| queue.reserve);
    let first = kept().expect("a provider that keeps few receives");
    // As if the provider failed it: taken back, but not by us.
    ofi.cancel_own(0, first);
    until(&ofi, || kept().is_none());
    let next = ofi.pool().take(Body::Wait(Seen::NOTHING));
    assert_ne!(next.id(), first);
    ofi.post_waiting();
    assert!(kept().is_some_and(|second| second != first), "another place is kept");
}

/// Who cancels by a name that is out of date cancels nothing.
#[test]
fn a_late_cancel_does_not_meet_the_next_operation() {
    let Some(ofi) = open() else { return };
    let late = ofi.pool().take(Body::Reserve).id();
    let (answer, receive) = ofi.answers.begin(ofi.pool(), 0);
    let own = receive.id();
    let bits = One::ack(One::send(WORLD.id, 0, 9), 0);
    ofi.endpoint.first().recv(Address::ANY, bits, 0, receive).map_err(|_| ()).expect("posted");
    ofi.cancel_own(0, late);
    let host = irecv(&ofi, 8, Selector(3), true);
    isend(&ofi, &[1; 8], 3, false);
    until(&ofi, || received(&host).is_some());
    assert_eq!(ofi.answers.take(answer), None, "it is still awaited");
    ofi.cancel_own(0, own);
    until(&ofi, || ofi.answers.take(answer) == Some(Outcome::Failed));
}

/// A probe that finds nothing needs no operation but the one that is kept for it.
#[test]
fn probes_share_one_operation_and_find_what_comes() {
    let Some(ofi) = open() else { return };
    let probe = || ofi.iprobe::<One>(WORLD, ANYBODY, Selector(6)).expect("asked");
    assert_eq!(probe(), None);
    let standing = ofi.pool().out();
    for _ in 0..100 {
        assert_eq!(probe(), None);
        assert_eq!(ofi.improbe::<One>(WORLD, ANYBODY, Selector(6)).expect("asked").map(|_| ()), None);
    }
    assert_eq!(ofi.pool().out(), standing);
    isend(&ofi, &[4; 24], 6, false);
    until(&ofi, || probe() == Some(Envelope { source: 0, tag: 6, len: 24 }));
    let host = irecv(&ofi, 24, Selector(6), true);
    until(&ofi, || received(&host).is_some());
    assert_eq!((probe(), ofi.pool().out()), (None, standing));
}

/// A program that does nothing but probe still sends what it owes and completes what it has begun.
#[test]
fn probes_alone_make_progress() {
    let Some(ofi) = open() else { return };
    let host = irecv(&ofi, 8, Selector(5), true);
    let send = isend(&ofi, &[2; 8], 5, true);
    for _ in 0..50_000_000_u64 {
        assert_eq!(ofi.iprobe::<One>(WORLD, ANYBODY, Selector(99)), Ok(None));
        if received(&host).is_some() && sent(send).is_some() {
            return;
        }
    }
    panic!("a loop of probes starves everything else");
}

/// Each of the short paths is taken where it can be, and leaves alone what is not for it.
#[test]
fn short_paths_are_for_what_is_common() {
    // The plain provider of TCP, whose calls do not overlap: `net` in libfabric 1.17, `tcp` since.
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    assert!(ofi.endpoint.first().takes_turns());
    let receive = |len, in_place| {
        let (place, host) = fake::place::<Body<Fake>>(Buffer::new(&vec![0; len], in_place));
        (ofi.irecv_at_once::<One>(WORLD, Selector(PEER), Selector(1), place) == AtOnce::Posted, host)
    };
    let send = |len| {
        let view = fake::view(Buffer::new(&vec![7; len], true));
        ofi.send_at_once::<One>(WORLD, PEER, 1, view)
    };
    // The first message makes the connection, and the peer known.
    let first = irecv(&ofi, 8, Selector(1), true);
    isend(&ofi, &[1; 8], 1, false);
    until(&ofi, || received(&first).is_some());

    let (taken, host) = receive(8, true);
    assert!(taken, "posted at once");
    assert!(send(8), "sent at once");
    let mut polls = (0..50_000_000_u64).map(|_| ofi.advance_at_once::<One>());
    let seen = polls.find(|seen| *seen != Progress::Idle).expect("something comes");
    let envelope = Envelope { source: 0, tag: 1, len: 8 };
    assert_eq!((seen, received(&host)), (Progress::One, Some((envelope, Outcome::Success))));

    assert!(!receive(8, false).0 && !receive(0, true).0 && !send(ofi.inject_size + 1));
    assert!(
        !ofi.send_at_once::<One>(WORLD, 2, 1, fake::view(Buffer::new(&[7], true))),
        "there is no such rank"
    );
    assert_eq!(ofi.advance_at_once::<One>(), Progress::Idle);

    // Longer than its receive: that is for the long path, which finds it where the short one has left it.
    let short = irecv(&ofi, 4, Selector(1), true);
    assert!(send(8));
    until(&ofi, || received(&short).is_some());
    assert_eq!(received(&short).map(|(_, how)| how), Some(Outcome::Truncated));

    // A synchronous one is answered.
    let host = irecv(&ofi, 8, Selector(1), true);
    let number = isend(&ofi, &[3; 8], 1, true);
    until(&ofi, || received(&host).is_some() && sent(number).is_some());

    ofi.unexpected.long_way.set(true, Ordering::Relaxed);
    assert!(!receive(8, true).0 && send(8), "messages lie here");
    ofi.unexpected.long_way.set(false, Ordering::Relaxed);
    ofi.deferred.set(true, Ordering::Relaxed);
    assert_eq!(ofi.advance_at_once::<One>(), Progress::Unknown, "something is owed");
    ofi.deferred.set(false, Ordering::Relaxed);
    std::thread::scope(|s| s.spawn(|| ofi.endpoint.first().in_turn(|| ())).join()).expect("no panic");
    assert!(!receive(8, true).0 && !send(8), "other threads come");
    assert_eq!(ofi.advance_at_once::<One>(), Progress::Unknown);
    let host = irecv(&ofi, 8, Selector(1), true);
    until(&ofi, || received(&host).is_some());
}
