//! Operations on memory between two domains in one process, also where neither may read the other's, and what only a peer
//! that lies would say of them.

use std::ptr;

use super::super::argument::Foreign;
use super::super::cq::{Completion, Failure};
use super::super::sys;
use super::buffer::Buffer;
use super::tests::{Side, pair, some, stir};
use super::{Act, Reach};
use crate::wire::gni::amo::{Amo, Form};
use crate::wire::gni::mailbox::Lies;
use crate::wire::gni::remote::{HEAD, Place, Places, Remote};

const BOTH: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
const SUM: u32 = 2;
const U64: u32 = 7;

impl Side {
    pub(super) fn register(&self, bytes: &mut [u8], key: u64) {
        let start = bytes.as_mut_ptr().expose_provenance();
        assert_eq!(self.domain.regions.register(start, bytes.len(), BOTH, key), Ok(key));
    }

    pub(super) fn deregister(&self, key: u64) {
        self.with(|_| self.domain.regions.deregister(key));
    }

    /// Does something with bytes here and places of the peer.
    pub(super) fn reach(&self, act: Act, bytes: &mut [u8], places: &[(u64, u64, usize)]) {
        let mut there = Places::NOWHERE;
        for (key, address, length) in places {
            assert!(there.push(Place { key: *key, address: *address, length: *length as u64 }));
        }
        // SAFETY: the bytes outlive the operation in each test.
        let buffer = unsafe { Buffer::new(bytes.as_mut_ptr(), bytes.len()) };
        let reach = Reach {
            context: Foreign(ptr::null_mut()),
            destination: 0,
            act,
            places: there,
            buffer,
            result: Buffer::NONE,
            compared: Buffer::NONE,
            wants: true,
            is_injected: false,
            is_silent: false,
            is_fenced: false,
            instead: None,
        };
        self.with(|traffic| traffic.reach(self.slot, reach)).expect("posted");
    }
}

/// Waits until so many operations of the first have ended.
pub(super) fn end(sides: &[Side; 2], count: usize) -> (Vec<Completion>, Vec<Failure>) {
    let (mut well, mut failed) = (Vec::new(), Vec::new());
    while well.len() + failed.len() < count {
        stir(&[&sides[0], &sides[1]]);
        let ended = sides[0].ended(&sides[0].transmit);
        well.extend(ended.0);
        failed.extend(ended.1);
    }
    (well, failed)
}

#[test]
fn memory_is_put_and_got_whether_or_not_it_is_closed() {
    for is_closed in [false, true] {
        let sides = pair();
        let [one, two] = &sides;
        if is_closed {
            two.close_memory();
        }
        let mut memory = vec![0; 1 << 20];
        two.register(&mut memory, 5);
        for length in [0, 1, 4096, 4097, 16384, 100_000, 1 << 20] {
            let (mut bytes, mut back) = (some(length), vec![0; length]);
            let first = length / 3;
            let places = [(5, 0, first), (5, first as u64, length - first)];
            one.reach(Act::Put(Some(9)), &mut bytes, &places);
            one.reach(Act::Get, &mut back, &places);
            let ended = end(&sides, 2);
            assert_eq!(ended.0.len(), 2, "{length}: {:?}", ended.1);
            assert!(memory[..length] == bytes && back == bytes, "{length} bytes");
            let told = two.ended(&two.receive).0;
            assert_eq!((told.len(), told[0].data, told[0].length), (1, 9, length));
            memory.fill(0);
        }
        two.deregister(5);
    }
}

#[test]
fn what_is_told_of_after_something_that_went_in_parts_is_tried_again_where_there_is_no_place() {
    let [one, two] = pair();
    two.close_memory();
    let mut memory = vec![0; 1 << 20];
    two.register(&mut memory, 5);
    let (mut long, mut short) = (vec![1; 1 << 20], [0xEE; 8]);
    one.reach(Act::Get, &mut long, &[(5, 0, 1 << 20)]);
    one.reach(Act::Put(Some(9)), &mut short, &[(5, 80, 8)]);
    // Both are here, and the ring is full.
    stir(&[&two]);
    let free = two.with(|traffic| traffic.context(two.slot).expect("open").place.take());
    let taken: Vec<_> =
        free.into_iter().chain(std::iter::from_fn(|| two.receive.reserve_arrival().ok())).collect();
    let mut is_owing = false;
    while !is_owing {
        stir(&[&one]);
        is_owing = two.with(|traffic| {
            // As if it was looked at.
            traffic.again.clear();
            traffic.context(two.slot).expect("open").peers[0].is_ready = false;
            traffic.pump(two.slot, 0);
            traffic.context(two.slot).expect("open").owes()
        });
    }
    assert!(two.with(|traffic| traffic.again == [(two.slot, 0)]));
    taken.into_iter().for_each(|place| two.receive.release_some(Some(place)));
    stir(&[&two]);
    assert_eq!(two.ended(&two.receive).0[0].data, 9);
}

#[test]
fn what_goes_in_parts_holds_up_what_is_behind_it() {
    let sides = pair();
    let [one, two] = &sides;
    two.close_memory();
    let mut memory = vec![0; 400_000];
    two.register(&mut memory, 5);
    let (mut long, mut short) = (some(400_000), [0xEE; 8]);
    let (mut before, mut after, mut word) = (vec![0; 400_000], vec![0; 400_000], 1_u64.to_le_bytes());
    one.reach(Act::Put(None), &mut long, &[(5, 0, 400_000)]);
    one.reach(Act::Get, &mut before, &[(5, 0, 400_000)]);
    one.reach(Act::Put(None), &mut short, &[(5, 80, 8)]);
    let sum = Amo::new(SUM, U64, Form::Base).expect("there is one");
    one.reach(Act::Atomic(sum), &mut word, &[(5, 80, 8)]);
    one.reach(Act::Get, &mut after, &[(5, 0, 400_000)]);
    assert_eq!(end(&sides, 5).1.len(), 0);
    assert!(before == long);
    long[80..88].copy_from_slice(&[0xEF, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE]);
    assert!(after == long && memory == long);
}

#[test]
fn a_region_that_is_closed_meanwhile_is_reached_no_more() {
    for act in [Act::Put(Some(1)), Act::Get] {
        let sides = pair();
        let [one, two] = &sides;
        two.close_memory();
        let mut memory = vec![1; 1 << 20];
        two.register(&mut memory, 5);
        let mut bytes = vec![2; 1 << 20];
        one.reach(act, &mut bytes, &[(5, 0, 1 << 20)]);
        // More than a ring holds: some of it has gone by then, and not all.
        for side in [two, one, two, one] {
            stir(&[side]);
        }
        two.deregister(5);
        let reached = memory.clone();
        let ended = end(&sides, 1);
        assert_eq!((ended.1[0].code, ended.1[0].detail), (libc::EACCES, 266));
        assert!(memory == reached && two.ended(&two.receive).0.is_empty());
        let moved = if act == Act::Get { &bytes } else { &memory };
        assert!(moved.contains(&1) && moved.contains(&2), "some, not all");
    }
}

#[test]
fn what_may_not_be_said_of_memory_ends_the_connection_and_no_more() {
    let places = Places::one(Place { key: 5, address: 0, length: 8 });
    let many = Places::one(Place { key: 5, address: 0, length: 8192 });
    let sum = Amo::new(SUM, U64, Form::Base).expect("there is one");
    // Operations of the one who is lied to: 0 gets much, 1 little.
    let known = |index: u64| 1 << 32 | index;
    let part = |operation, offset, is_put| Remote::Part { operation, offset, is_put };
    let lies: [(Remote, usize); 14] = [
        (Remote::Done { operation: known(7), code: 0 }, 0),
        (Remote::Done { operation: 0, code: 0 }, 0),
        (Remote::Done { operation: known(0), code: 0 }, 8),
        (Remote::Done { operation: known(1), code: 0 }, 7),
        (Remote::Done { operation: known(1), code: 0 }, 0),
        (Remote::Done { operation: known(1), code: 5 }, 8),
        (Remote::Done { operation: known(1), code: u32::MAX }, 0),
        (Remote::Want { operation: known(0) }, 0),
        (part(known(0), 1, false), 8),
        (part(known(0), 0, false), 60_000),
        (part(known(0), 0, false), 0),
        (part(known(0), 0, true), 8),
        (Remote::Atomic { operation: 1, amo: sum, places: many }, 8192),
        (Remote::Put { operation: 1, data: None, places }, 9),
    ];
    for (lie, payload) in lies {
        let sides = pair();
        let [one, two] = &sides;
        let (mut much, mut little) = (vec![0; 50_000], [0; 8]);
        one.reach(Act::Get, &mut much, &[(5, 0, 50_000)]);
        one.reach(Act::Get, &mut little, &[(5, 0, 8)]);
        let mut head = [0; HEAD];
        let (kind, length) = lie.emit(&mut head);
        let mut bytes = head[..length].to_vec();
        bytes.resize(length + payload, 3);
        two.lie(kind, &bytes);
        while one.malformed() == 0 {
            stir(&[one]);
        }
        let failed = end(&sides, 2).1;
        assert_eq!(failed.len(), 2, "{lie:?}");
        assert!(failed.iter().all(|failure| failure.code == libc::ECONNRESET), "{lie:?}");
    }
}

#[test]
fn who_asks_for_more_than_may_be_asked_is_dropped() {
    let [one, two] = pair();
    let mut memory = vec![0; 4096];
    two.register(&mut memory, 5);
    let mut head = [0; HEAD];
    let places = Places::one(Place { key: 5, address: 0, length: 4096 });
    let (kind, length) = Remote::Get { operation: 1, places, lies: Lies::NOWHERE }.emit(&mut head);
    // Nothing of what is answered is read.
    let mut asked = 0;
    while two.malformed() == 0 && asked < 1 << 20 {
        asked += one.say(kind, &head[..length]);
        stir(&[&two]);
    }
    assert_eq!(two.malformed(), 1);
    assert!((1 << 15..1 << 16).contains(&asked), "{asked}");
}
