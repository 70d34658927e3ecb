//! What is owed to a peer that has ended, or is sent to one that takes nothing.

use std::net::TcpListener;

use super::send::PASSES;
use super::*;

/// The name of a process that is not there any more, in the format of the one given.
fn dead(alive: &[u8]) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut name = alive.to_vec();
    name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[4..8].copy_from_slice(&[127, 0, 0, 1]);
    name
}

#[test]
fn what_is_owed_to_a_peer_that_has_ended_is_dropped() {
    const SECOND: u64 = 1_000_000_000;
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    let own = ofi.name().expect("a name");
    let lost = dead(&own);
    job([own, lost]);
    let group = Comm { id: 9, rank: 0, global: false };
    ofi.add_comm::<One>(group).expect("listens");
    let comm = group.note();
    let send = |tag| {
        let (place, host) = fake::place::<Body<Fake>>(Buffer::new(&[1; 8], true));
        (ofi.isend::<One>(group, 1, tag, place, false), host.number)
    };
    let (posted, waits) = send(1);
    assert_eq!((posted, sent(waits)), (Ok(()), None), "it waits for the answer to the announcement");
    let owed = Outgoing::Announcement { comm, dest: 1, asks: true };
    assert!(ofi.outbox.with(|outbox| outbox.len()) == 1, "put off");
    let seconds = (1..100).find(|second| ofi.is_for_nobody_at(owed, second * SECOND));
    assert!(seconds.is_some_and(|seconds| (30..40).contains(&seconds)), "gone after {seconds:?} s");
    until(&ofi, || sent(waits).is_some());
    assert_eq!((sent(waits), ofi.outbox.with(|outbox| outbox.len())), (Some(Outcome::Failed), 0));
    assert_eq!(send(2).0, Err(Error::Unreachable), "it is known now");
    let to = ofi.address(group, 1, 0).expect("known");
    assert!(ofi.dispatch_out::<One>(Outgoing::Answer { context: 0, to, bits: One::ACK }));
    assert_eq!(ofi.outbox.with(|outbox| outbox.len()), 0, "nobody awaits it");
}

#[test]
fn answers_that_are_owed_to_a_peer_that_has_ended_are_dropped() {
    const SECOND: u64 = 1_000_000_000;
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    let own = ofi.name().expect("a name");
    let lost = dead(&own);
    job([own, lost.clone()]);
    let group = Comm { id: 9, rank: 0, global: false };
    ofi.add_comm::<One>(group).expect("listens");
    let to = ofi.address(group, 1, 0).expect("known");
    assert_eq!(ofi.addresses.name_of(to).map(|name| name[..8].to_vec()), Ok(lost[..8].to_vec()));
    let owed = Outgoing::Answer { context: 0, to, bits: One::ACK };
    (0..3).for_each(|_| _ = ofi.dispatch_out::<One>(owed));
    assert_eq!(ofi.outbox.with(|outbox| outbox.len()), 3, "put off");
    let seconds = (1..100).find(|second| ofi.is_for_nobody_at(owed, second * SECOND));
    assert!(seconds.is_some_and(|seconds| (30..40).contains(&seconds)), "gone after {seconds:?} s");
    until(&ofi, || ofi.outbox.with(|outbox| outbox.is_empty()));
}

/// The address of one that is forgotten may become another's.
#[test]
fn nothing_is_owed_to_a_peer_that_is_forgotten() {
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    let own = ofi.name().expect("a name");
    let lost = dead(&own);
    job([own, lost]);
    let [alive, dead] = [0, 1].map(|rank| ofi.address(WORLD, rank, 0).expect("known"));
    for to in [dead, alive, dead] {
        ofi.put_off(to, Outgoing::Answer { context: 0, to, bits: One::ACK });
    }
    ofi.remove_peer(WORLD.peer(1).expect("of the job")).expect("removed");
    let left = ofi.outbox.with(|outbox| {
        outbox
            .iter()
            .map(|owed| matches!(owed, Outgoing::Answer { to, .. } if *to == alive))
            .collect::<Vec<_>>()
    });
    assert_eq!(left, [true], "only what is owed to the other");
}

/// While answers are owed to a peer that is not there, and are tried seldom, one that another put off is not held up.
#[test]
fn an_answer_to_a_live_peer_does_not_wait_for_a_dead_one() {
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    // The first message makes the connection.
    let first = irecv(&ofi, 8, Selector(0), true);
    isend(&ofi, &[1; 8], 0, false);
    until(&ofi, || received(&first).is_some());
    let own = ofi.name().expect("a name");
    let lost = dead(&own);
    job([own, lost]);
    let [alive, dead] = [0, 1].map(|rank| ofi.address(WORLD, rank, 0).expect("known"));
    let answer = |to| Outgoing::Answer { context: 0, to, bits: One::ACK };
    let owed = || ofi.outbox.with(|outbox| outbox.len());
    assert!(!ofi.dispatch_out::<One>(answer(dead)), "put off");
    // Whatever a pass takes, each is a try in vain.
    let end = ofi.clock.nanos() + 100_000_000;
    while ofi.clock.nanos() < end {
        ofi.flush_outbox::<One>();
    }
    ofi.put_off(alive, answer(alive));
    assert_eq!(owed(), 2);
    ofi.flush_outbox::<One>();
    assert_eq!(owed(), 1, "it is sent at once, whatever is owed to the dead");
}

/// What the provider does not take is given back after a few passes, and nobody is thought to have ended for that.
#[test]
fn a_send_that_does_not_wait_is_given_back() {
    let Some(ofi) = open() else { return };
    let target = ofi.target::<One>(WORLD, PEER, 4, WORLD.id).expect("known");
    let mut tries = 0;
    let mut post = |most: u32| {
        tries = 0;
        ofi.post_now::<One, _, _>(target, "the message", |given| {
            tries += 1;
            if tries > most { Ok(()) } else { Err(Unposted { given, error: PostError::TryAgain }) }
        })
    };
    assert_eq!((post(0), post(1), post(PASSES)), (Ok(()), Ok(()), Ok(())));
    for _ in 0..3 {
        assert_eq!(post(PASSES + 1), Err((Error::OutOfResource, "the message")));
    }
    assert_eq!(tries, PASSES + 1);
}

/// A process that has ended is told from one that takes nothing however short each try is.
#[test]
fn a_peer_that_has_ended_is_found_by_sends_that_do_not_wait() {
    const SECOND: u64 = 1_000_000_000;
    let Some(ofi) = open_over("net", false).or_else(|| open_over("tcp", false)) else { return };
    let own = ofi.name().expect("a name");
    let lost = dead(&own);
    job([own, lost]);
    let [alive, gone] = [0, 1].map(|rank| ofi.target::<One>(WORLD, rank, 4, WORLD.id).expect("known"));
    let tries = |target, most: u64| {
        (0..10 * most).find(|tenth| ofi.put_back(target, tenth * SECOND / 10) == Error::Unreachable)
    };
    assert_eq!(tries(alive, 400), None, "somebody listens there");
    let tenths = tries(gone, 100);
    assert!(
        tenths.is_some_and(|tenths| (300..400).contains(&tenths)),
        "gone after {tenths:?} tenths of a second"
    );
    assert_eq!(ofi.put_back(gone, 0), Error::Unreachable, "it is known now");
    assert!(log(|log| log.notices.concat()).contains("rank 1 has ended"));
}
