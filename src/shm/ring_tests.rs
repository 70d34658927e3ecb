//! Rings against a queue, against liars, and with a thread at each end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{ALIGN, CAPACITY, Header, QUANTUM, SMALL, forge, span};
use super::tail::REST;
use super::*;
use crate::link::Lent;

fn lend(bytes: &[u8]) -> Lent {
    // SAFETY: outlives the push, which is all that uses it, and only reads.
    unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

fn push(sender: &mut Sender, tag: u8, bytes: &[u8]) -> std::result::Result<bool, Corrupt> {
    let (head, data) = bytes.split_at(bytes.len().min(14));
    sender.push(tag, [lend(head), lend(data)])
}

fn copied(arrival: &Arrival) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    arrival.bytes.append_to(&mut bytes);
    (arrival.tag, bytes)
}

fn ring() -> (Segment, Sender, Receiver) {
    let mut segment = Segment::make([3; NONCE]).expect("memory");
    let (number, sender) = segment.sender().expect("a ring");
    let peer = Shared::of_peer(segment.identity()).expect("mapped a second time");
    let receiver = peer.receiver(number).expect("the same ring");
    (segment, sender, receiver)
}

/// Numbers without pattern, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn a_ring_is_a_queue() {
    for seed in 1..40_u64 {
        let (_segment, mut sender, mut receiver) = ring();
        let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut model, mut held) = (VecDeque::new(), 0);
        let longest = [40, 300, 5000, LONGEST][seed as usize % 4];
        for step in 0..4000_u32 {
            match numbers.below(5) {
                0..=1 => {
                    let len = numbers.below(longest + 1);
                    let bytes: Vec<u8> = (0..len).map(|at| (at as u32 ^ step) as u8).collect();
                    if push(&mut sender, step as u8, &bytes).expect("an honest reader") {
                        model.push_back((step as u8, bytes));
                    } else {
                        assert!(held > 0 || !model.is_empty(), "seed {seed}, step {step}");
                    }
                }
                2..=3 => match receiver.take().expect("an honest writer") {
                    Some(arrival) => {
                        assert_eq!(Some(copied(&arrival)), model.pop_front(), "seed {seed}, step {step}");
                        held += 1;
                    }
                    None => assert!(model.is_empty(), "seed {seed}, step {step}"),
                },
                _ => {
                    for _ in 0..std::mem::take(&mut held) {
                        receiver.release();
                    }
                }
            }
        }
    }
}

#[test]
fn a_ring_whose_reader_follows_is_small_and_one_whose_reader_waits_takes_all() {
    let (_segment, mut sender, mut receiver) = ring();
    let follow = |sender: &mut Sender, receiver: &mut Receiver| {
        for round in 0..10_000_u32 {
            assert_eq!(push(sender, 1, &[round as u8; 200]), Ok(true));
            let arrival = receiver.take().expect("honest").expect("there");
            assert_eq!(copied(&arrival), (1, vec![round as u8; 200]));
            receiver.release();
        }
        let (bound, offset) = forge::bound(sender);
        assert!(bound == SMALL && offset < SMALL, "{bound}, {offset}");
    };
    follow(&mut sender, &mut receiver);
    let mut most = 0;
    for _ in 0..2 {
        let mut pushed = 0;
        while push(&mut sender, 2, &[2; 1000]).expect("honest") {
            pushed += 1;
        }
        assert_eq!(forge::bound(&sender).0, CAPACITY);
        most = most.max(pushed * span(1000));
        for _ in 0..pushed {
            let arrival = receiver.take().expect("honest").expect("there");
            assert_eq!(copied(&arrival), (2, vec![2; 1000]));
            receiver.release();
        }
    }
    assert!(most > CAPACITY - 2 * QUANTUM, "{most} bytes");
    assert!(receiver.take().expect("honest").is_none());
    assert_eq!(push(&mut sender, 3, &[3; LONGEST]), Ok(true), "the longest fits an empty ring");
    receiver.take().expect("honest").expect("there");
    receiver.release();
    follow(&mut sender, &mut receiver);
}

/// Whatever was said free, the longest entry finds room once everything has been read.
#[test]
fn nobody_waits_for_a_ring_that_is_empty() {
    let (_segment, mut sender, mut receiver) = ring();
    let mut numbers = Numbers(7);
    for round in 0..5000 {
        for len in [numbers.below(LONGEST + 1), LONGEST] {
            assert_eq!(push(&mut sender, 0, &vec![0; len]), Ok(true), "round {round}, {len} bytes");
            assert_eq!(receiver.take().expect("honest").expect("there").bytes.len(), len);
            receiver.release();
        }
    }
}

#[test]
fn what_is_held_is_not_overwritten() {
    let (_segment, mut sender, mut receiver) = ring();
    assert_eq!(push(&mut sender, 1, &[1; 100]), Ok(true));
    let first = receiver.take().expect("honest").expect("there");
    let mut count = 0;
    loop {
        while push(&mut sender, 2, &[2; 3000]).expect("honest") {
            count += 1;
        }
        let before = count;
        while receiver.take().expect("honest").is_some() {
            receiver.release();
            count -= 1;
        }
        if before == 0 || count != 0 {
            break;
        }
        if !push(&mut sender, 2, &[2; 3000]).expect("honest") {
            break;
        }
        count += 1;
    }
    assert_eq!(copied(&first), (1, vec![1; 100]), "an outer delivery still reads it");
}

#[test]
fn what_is_asked_for_ahead_is_not_changed() {
    let (_segment, mut sender, mut receiver) = ring();
    for round in 0..1000_u32 {
        let bytes = vec![round as u8; [20, 600, 4096, 9000][round as usize % 4]];
        sender.prepare(bytes.len());
        assert_eq!(push(&mut sender, 1, &bytes), Ok(true));
        sender.prepare(bytes.len());
        let arrival = receiver.take().expect("honest").expect("there");
        assert!(copied(&arrival) == (1, bytes));
        receiver.release();
    }
}

#[test]
fn the_short_way_is_the_same_for_whole_entries_of_a_tag_and_none_for_others() {
    let (_segment, mut sender, mut receiver) = ring();
    let mut numbers = Numbers(7);
    for word in 0..20_000_u64 {
        let (tag, len) = ((word % 3) as u8, numbers.below([20, 5000, LONGEST - 8][word as usize % 3]));
        let data: Vec<u8> = (0..len).map(|at| (at as u64 ^ word) as u8).collect();
        assert!(matches!(receiver.next(1), Next::Nothing));
        assert_eq!(sender.push_word(tag, word, lend(&data)), Ok(true));
        let whole = [word.to_le_bytes().as_slice(), &data].concat();
        match receiver.next(1) {
            Next::Entry(entry) => {
                let mut bytes = Vec::new();
                entry.append_to(&mut bytes);
                assert!((tag, bytes) == (1, whole));
                receiver.pass(entry.len());
            }
            Next::Other => {
                let arrival = receiver.take().expect("honest").expect("an entry");
                // Also one of that tag where the way back to the start was before it.
                assert!(copied(&arrival) == (tag, whole));
                receiver.release();
            }
            Next::Nothing => panic!("an entry is there"),
        }
    }
    for word in [1, u64::MAX, Header::Data { tag: 1, len: LONGEST + 1 }.to_word(), Header::Skip.to_word()] {
        let (_segment, sender, receiver) = ring();
        forge::header(&sender, 0, word);
        assert!(matches!(receiver.next(1), Next::Other), "{word:#x}");
    }
}

#[test]
fn every_header_that_no_sender_writes_is_seen() {
    for (word, what) in [
        (u64::MAX, Corrupt::Kind),
        (1, Corrupt::Kind),
        (0x0123_4567_89AB_CDEF, Corrupt::Kind),
        (Header::Skip.to_word(), Corrupt::Skip),
        (Header::Skip.to_word() | 1 << 40, Corrupt::Kind),
        (Header::Data { tag: 1, len: LONGEST + 1 }.to_word(), Corrupt::Length),
        (Header::Data { tag: 1, len: u32::MAX as usize }.to_word(), Corrupt::Length),
        (Header::Cut { tag: 1, len: REST + 1 }.to_word(), Corrupt::Length),
        (Header::Cut { tag: 1, len: u32::MAX as usize }.to_word(), Corrupt::Length),
    ] {
        let (_segment, sender, mut receiver) = ring();
        forge::header(&sender, 0, word);
        assert_eq!(receiver.take().err(), Some(what), "{word:#x}");
    }
}

#[test]
fn an_entry_beyond_the_end_and_a_second_way_back_are_seen() {
    let (_segment, mut sender, mut receiver) = ring();
    // A reader that waits makes the writer use all of it.
    for _ in 0..3 {
        while push(&mut sender, 0, &[0; 4000]).expect("honest") {}
        while receiver.take().expect("honest").is_some() {
            receiver.release();
        }
    }
    while forge::bound(&sender).1 < CAPACITY - LONGEST {
        assert_eq!(push(&mut sender, 0, &[0; 4000]), Ok(true));
        assert!(receiver.take().expect("honest").is_some());
        receiver.release();
    }
    let at = forge::bound(&sender).1;
    assert!(at >= CAPACITY - LONGEST, "{at}");
    forge::header(&sender, at, Header::Data { tag: 0, len: LONGEST }.to_word());
    assert_eq!(receiver.take().err(), Some(Corrupt::Length));
    forge::header(&sender, at, Header::Skip.to_word());
    forge::header(&sender, 0, Header::Skip.to_word());
    assert_eq!(receiver.take().err(), Some(Corrupt::Skip));
}

#[test]
fn a_reader_that_goes_back_or_ahead_is_seen() {
    for lie in [u64::MAX, CAPACITY as u64 * 2] {
        let (_segment, mut sender, _receiver) = ring();
        forge::read(&sender, lie);
        let mut outcome = Ok(true);
        while outcome == Ok(true) {
            outcome = push(&mut sender, 0, &[0; 4000]);
        }
        assert_eq!(outcome, Err(Corrupt::Read));
    }
    let (_segment, mut sender, mut receiver) = ring();
    while push(&mut sender, 0, &[0; 4000]).expect("honest") {}
    while receiver.take().expect("honest").is_some() {
        receiver.release();
    }
    while push(&mut sender, 0, &[0; 4000]).expect("honest") {}
    forge::read(&sender, 0);
    assert_eq!(push(&mut sender, 0, &[0; 4000]), Err(Corrupt::Read));
}

/// Whatever lies in a ring, reading it ends and stays inside.
#[test]
fn rubbish_is_refused_or_delivered_but_never_followed() {
    let mut numbers = Numbers(99);
    for round in 0..200 {
        let (_segment, mut sender, mut receiver) = ring();
        for _ in 0..numbers.below(20) {
            assert_eq!(push(&mut sender, 0, &vec![0; numbers.below(9000)]), Ok(true));
        }
        for _ in 0..40 {
            let kind = numbers.below(5);
            let len = numbers.below(2 * LONGEST);
            let word = match kind {
                0 => Header::Data { tag: 0, len }.to_word(),
                1 => Header::Skip.to_word(),
                2 => numbers.0,
                3 => Header::Cut { tag: 0, len: len % (2 * REST) }.to_word(),
                _ => 0,
            };
            forge::header(&sender, numbers.below(CAPACITY / ALIGN) * ALIGN, word);
        }
        let mut taken = 0;
        while let Ok(Some(arrival)) = receiver.take() {
            assert!(copied(&arrival).1.len() <= LONGEST);
            assert!(!arrival.is_cut || arrival.whole().bytes().len() <= REST + TAIL);
            receiver.release();
            taken += 1;
            if taken > CAPACITY {
                // Only a writer that writes all the time could be read all the time.
                panic!("round {round} does not end");
            }
            if taken > 2 * CAPACITY / ALIGN {
                break;
            }
        }
    }
}

/// Of an announcement, what goes from one processor to another is what says something.
#[test]
fn zeros_at_the_end_are_left_out_and_put_back() {
    let (_segment, mut sender, mut receiver) = ring();
    let mut payload = [5_u8; 240];
    payload[240 - TAIL..].fill(0);
    let before = forge::bound(&sender).1;
    assert_eq!(sender.push_cut(67, [lend(&payload), Lent::EMPTY]), Ok(true));
    assert_eq!(forge::bound(&sender).1 - before, span(240 - TAIL));
    let arrival = receiver.take().expect("honest").expect("there");
    assert!(arrival.is_cut && arrival.tag == 67);
    assert_eq!(arrival.whole().bytes(), payload);
    receiver.release();
    // In two pieces, or with something at the end, it goes as it is.
    payload[239] = 1;
    for pieces in [[lend(&payload), Lent::EMPTY], [lend(&payload[..200]), lend(&payload[200..])]] {
        assert_eq!(sender.push_cut(67, pieces), Ok(true));
        let arrival = receiver.take().expect("honest").expect("there");
        assert!(!arrival.is_cut);
        assert_eq!(copied(&arrival), (67, payload.to_vec()));
        receiver.release();
    }
}

#[test]
fn two_threads_hand_over_every_byte() {
    let (_segment, mut sender, mut receiver) = ring();
    const ENTRIES: u64 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(5);
            let mut expected = 0_u64;
            while expected < ENTRIES {
                let Some(arrival) = receiver.take().expect("an honest writer") else {
                    std::thread::yield_now();
                    continue;
                };
                let (tag, bytes) = copied(&arrival);
                let len = 8 + numbers.below(if expected.is_multiple_of(97) { 20_000 } else { 200 });
                assert_eq!((tag, bytes.len()), (expected as u8, len));
                assert_eq!(bytes[..8], expected.to_le_bytes());
                assert!(bytes[8..].iter().all(|byte| *byte == expected as u8));
                receiver.release();
                expected += 1;
                read.store(expected, Ordering::Relaxed);
            }
        });
        let mut numbers = Numbers(5);
        for entry in 0..ENTRIES {
            let len = 8 + numbers.below(if entry.is_multiple_of(97) { 20_000 } else { 200 });
            let mut bytes = vec![entry as u8; len];
            bytes[..8].copy_from_slice(&entry.to_le_bytes());
            while !push(&mut sender, entry as u8, &bytes).expect("an honest reader") {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(read.load(Ordering::Relaxed), ENTRIES);
}

#[test]
fn from_who_is_gone_nobody_copies_any_more() {
    let (_segment, sender, receiver) = ring();
    assert_eq!((receiver.copy(|| sender.is_copied()), sender.is_copied()), (Some(true), false));
    let copied = receiver.copy(|| {
        sender.go();
        sender.is_copied()
    });
    assert_eq!((copied, sender.is_copied()), (Some(true), false), "what has begun ends");
    assert_eq!((receiver.copy(|| ()), sender.is_copied()), (None, false));
}
