//! Two domains in one process that take each other for other nodes: over UDP and TCP of the loopback interface.

use std::net::Ipv4Addr;

use rustix::event::{Timespec, poll};

use super::super::wait::Beside;
use super::context::Stage;
use super::rma_tests::end;
use super::tests::{Side, connected, some, stir};
use super::{Act, Traffic};
use crate::gni::Place;
use crate::link::Clock;
use crate::wire::gni::mailbox::{Entry, HEAD};

fn side(last: u8) -> Side {
    impatient(last, 9)
}

/// One whose peers may be silent for so many seconds.
fn impatient(last: u8, silence: u32) -> Side {
    let address = Ipv4Addr::new(127, 0, 0, last);
    Side::at(Some(Place { address, port: 0, key: [last; 16], shared: None, silence }))
}

pub(super) fn pair() -> [Side; 2] {
    connected([side(2), side(3)])
}

/// The first failure at a side, while both make progress.
fn failure(side: &Side, others: &[&Side]) -> i32 {
    loop {
        stir(&[side]);
        stir(others);
        if let Some(failed) = side.ended(&side.transmit).1.first() {
            return failed.code;
        }
    }
}

#[test]
fn messages_of_every_length_come_whole_from_another_node() {
    let sides = pair();
    let around = [4096, 64 << 10, 256 << 10].into_iter().flat_map(|length: usize| length - 17..length + 2);
    for (index, length) in [0, 1, 100_000, 3 << 20].into_iter().chain(around).enumerate() {
        let ([from, to], pieces) = match index % 2 {
            0 => ([&sides[0], &sides[1]], 1),
            _ => ([&sides[1], &sides[0]], 7),
        };
        let (bytes, mut room) = (some(length), vec![0; length]);
        if index % 3 == 0 {
            to.receive(&mut room, 3);
        }
        from.send(&bytes, pieces, 3).expect("sent");
        if index % 3 != 0 {
            stir(&[from, to]);
            to.receive(&mut room, 3);
        }
        for (side, cq) in [(to, &to.receive), (from, &from.transmit)] {
            loop {
                let (well, failed) = side.ended(cq);
                assert!(failed.is_empty(), "{length}: {}", failed[0].code);
                if !well.is_empty() {
                    break;
                }
                stir(&[from, to]);
            }
        }
        assert!(room == bytes, "{length}");
    }
    assert_eq!(sides.each_ref().map(Side::malformed), [0, 0]);
}

#[test]
fn what_is_put_comes_whole_to_another_node_in_one_entry_and_in_parts() {
    let sides = pair();
    let [one, two] = &sides;
    let mut memory = vec![0; 100_000];
    two.register(&mut memory, 5);
    for length in [0, 1, 4096, 4097, 65535, 65536, 65537, 100_000] {
        let (mut bytes, mut back) = (some(length), vec![0; length]);
        let each = length / 4;
        let place = |at: usize| (5, (at * each) as u64, if at == 3 { length - 3 * each } else { each });
        let places = [0, 1, 2, 3].map(place);
        one.reach(Act::Put(Some(9)), &mut bytes, &places);
        one.reach(Act::Get, &mut back, &places);
        let (well, failed) = end(&sides, 2);
        assert_eq!(well.len(), 2, "{length}: {failed:?}");
        assert!(memory[..length] == bytes && back == bytes, "{length} bytes");
        assert_eq!(two.ended(&two.receive).0.len(), 1);
        memory.fill(0);
    }
    two.deregister(5);
    assert_eq!(sides.each_ref().map(Side::malformed), [0, 0]);
}

#[test]
fn messages_to_who_does_not_look_wait_and_come_in_order() {
    const MANY: usize = 3000;
    let [one, two] = pair();
    let bytes = some(4000);
    let (mut sent, mut come) = (0, 0);
    let mut rooms = vec![vec![0; 4000]; MANY];
    for (tag, room) in rooms.iter_mut().enumerate() {
        two.receive(room, tag as u64 + 10);
    }
    for tag in 0..MANY {
        while one.send(&bytes, 1, tag as u64 + 10).is_err() {
            stir(&[&one, &two]);
            sent += one.ended(&one.transmit).0.len();
            come += two.ended(&two.receive).0.len();
        }
    }
    while sent < MANY || come < MANY {
        stir(&[&one, &two]);
        sent += one.ended(&one.transmit).0.len();
        for completion in two.ended(&two.receive).0 {
            assert_eq!(completion.tag, come as u64 + 10);
            come += 1;
        }
    }
    assert!(rooms.iter().all(|room| *room == bytes));
}

#[test]
fn what_has_ended_comes_though_its_sender_calls_no_more() {
    const LENGTH: usize = 60_000;
    let [one, two] = pair();
    let bytes = some(LENGTH);
    let (mut sent, mut ended) = (0, 0);
    while ended == sent {
        one.send(&bytes, 1, 5).expect("sent");
        (sent, ended) = (sent + 1, ended + one.ended(&one.transmit).0.len());
    }
    let (clock, mut come, mut last) = (Clock::new(), 0, 0);
    let mut room = vec![0; LENGTH];
    two.receive(&mut room, 5);
    while come < ended {
        stir(&[&two]);
        if two.ended(&two.receive).0.is_empty() {
            assert!(clock.nanos() - last < 5_000_000_000, "{come} of {ended}");
            continue;
        }
        assert!(room == bytes, "{come}");
        (come, last) = (come + 1, clock.nanos());
        room.fill(0);
        two.receive(&mut room, 5);
    }
    // And the one that had not.
    while come < sent || ended < sent {
        stir(&[&one, &two]);
        come += two.ended(&two.receive).0.len();
        ended += one.ended(&one.transmit).0.len();
    }
    assert!(room == bytes);
}

/// Has a message of the first side be on its way in part; all before it have ended, and none has been received.
pub(super) fn leave(one: &Side, two: &Side, bytes: &[u8], pieces: usize) {
    let is_leaving = || {
        one.with(|traffic| {
            let context = traffic.context(one.slot).expect("open");
            context.sends.iter().any(|outgoing| outgoing.stage == Stage::Leaving)
        })
    };
    let (mut sent, mut ended) = (0, 0);
    while !is_leaving() {
        // What is refused as a whole is not on its way.
        while ended < sent {
            stir(&[one, two]);
            ended += one.ended(&one.transmit).0.len();
        }
        one.send(bytes, pieces, 5).expect("sent");
        (sent, ended) = (sent + 1, ended + one.ended(&one.transmit).0.len());
    }
}

#[test]
fn who_closes_while_a_message_is_on_its_way_is_not_called_again() {
    let [one, two] = pair();
    let bytes = some(60_000);
    leave(&one, &two, &bytes, 1);
    two.with(|traffic| {
        traffic.begin_closing(two.slot, traffic.now().nanos());
        traffic.control();
    });
    assert_eq!(failure(&one, &[&two]), libc::ECONNRESET);
    one.with(|traffic| {
        let context = traffic.context(one.slot).expect("open");
        assert!(context.sends.len() == 0 && context.peers[0].queue.is_empty(), "nothing is left for it");
    });
}

#[test]
fn a_connection_that_is_lost_in_a_last_look_is_looked_after() {
    let [one, two] = pair();
    one.lie(0xFE, &[]);
    let mut moved = 0;
    while two.malformed() == 0 {
        two.with(|traffic| {
            let before = traffic.moved;
            traffic.hear_far();
            moved = traffic.moved - before;
        });
    }
    assert!(moved > 0);
}

#[test]
fn who_computes_for_longer_than_a_peer_may_be_silent_loses_nothing() {
    // More than the kernels keep.
    const MANY: usize = 500;
    let [one, two] = connected([impatient(2, 1), impatient(3, 1)]);
    let bytes = some(60_000);
    for _ in 0..MANY {
        one.send(&bytes, 1, 5).expect("queued");
    }
    let (clock, pause) = (Clock::new(), Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
    let (start, mut sent) = (clock.nanos(), 0);
    while clock.nanos() - start < 5_000_000_000 {
        stir(&[&one]);
        let (well, failed) = one.ended(&one.transmit);
        assert!(failed.is_empty(), "{} of {sent}", failed[0].code);
        sent += well.len();
        let _ = poll(&mut [], Some(&pause));
    }
    assert!(sent > 0 && sent < MANY, "{sent}");
    for number in 0..MANY {
        let mut room = vec![0; bytes.len()];
        two.receive(&mut room, 5);
        while two.ended(&two.receive).0.is_empty() {
            stir(&[&one, &two]);
            sent += one.ended(&one.transmit).0.len();
        }
        assert!(room == bytes, "{number}");
    }
    while sent < MANY {
        stir(&[&one, &two]);
        sent += one.ended(&one.transmit).0.len();
    }
}

#[test]
fn who_sleeps_is_woken_by_another_node() {
    let [one, two] = pair();
    let mut room = vec![0; 100_000];
    two.receive(&mut room, 3);
    let bytes = some(100_000);
    let set = loop {
        if let Beside::Set(set, _) = two.with(Traffic::arm).expect("armed") {
            break set;
        }
    };
    one.send(&bytes, 1, 3).expect("sent");
    let mut set = Some(set);
    while two.receive.len() == 0 {
        if let Some(set) = set.take() {
            stir(&[&one]);
            let ready = rustix::event::PollFd::new(&*set, rustix::event::PollFlags::IN);
            let most = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut [ready], Some(&most));
        }
        if let Beside::Set(next, _) = two.with(Traffic::arm).expect("armed") {
            set = Some(next);
        }
    }
    assert!(room == bytes);
}

#[test]
fn who_closes_is_read_to_the_end_and_what_comes_later_fails() {
    let [one, two] = pair();
    one.send(b"last words", 1, 5).expect("sent");
    while one.ended(&one.transmit).0.is_empty() {
        stir(&[&one, &two]);
    }
    let closing = std::thread::spawn(move || drop(one));
    while !closing.is_finished() {
        stir(&[&two]);
    }
    closing.join().expect("no panic");
    let mut room = [0; 10];
    two.receive(&mut room, 5);
    assert_eq!((two.ended(&two.receive).0.len(), &room), (1, b"last words"));
    two.send(&[7; 5000], 1, 5).expect("queued");
    assert_eq!(failure(&two, &[]), libc::ECONNRESET);
}

#[test]
fn a_stream_that_breaks_is_the_end_of_the_connection_and_there_is_another() {
    let [one, two] = pair();
    // No entry of any kind.
    one.lie(0xFE, &[]);
    two.send(&[7; 100_000], 1, 5).expect("queued");
    assert_eq!(failure(&two, &[&one]), libc::ECONNRESET);
    assert_eq!(two.malformed(), 1);
    let mut room = [0; 5];
    one.receive(&mut room, 6);
    two.send(b"again", 1, 6).expect("queued");
    while one.ended(&one.receive).0.is_empty() {
        stir(&[&one, &two]);
    }
    assert_eq!(&room, b"again");
}

#[test]
fn a_long_piece_that_nobody_has_asked_for_is_a_lie() {
    let [one, two] = pair();
    one.with(|traffic| {
        let context = traffic.context(one.slot).expect("open");
        let mailbox = context.peers[0].mailbox.as_mut().expect("connected");
        let mut head = [0; HEAD];
        let (kind, length) = Entry::Piece { receive: 1 << 32, offset: 0 }.emit(&mut head);
        assert_eq!(mailbox.begin(kind, &head[..length], 100_000), Some(true));
        mailbox.go_on(super::send::lend(&[0; 100_000]));
    });
    while two.malformed() == 0 {
        stir(&[&two]);
    }
}

#[test]
fn an_endpoint_that_is_gone_is_told_at_once() {
    let (one, two) = (side(2), side(3));
    one.knows(&two);
    drop(two);
    one.send(b"to nobody", 1, 1).expect("queued");
    assert_eq!(failure(&one, &[]), libc::ECONNRESET);
}
