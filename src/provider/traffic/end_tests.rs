//! What becomes of receives when the peer that they name is gone.

use std::sync::atomic::{AtomicBool, Ordering};

use super::tests::{Side, emitted, pair, stir};
use crate::shm::ENTRIES;
use crate::wire::gni::mailbox::{Entry, Label};

#[test]
fn a_receive_from_who_is_gone_ends_as_one_that_was_posted_before() {
    let [one, two] = pair();
    let (mut before, mut after, mut whole, mut any) = ([0; 8], [0; 8], [0; 5], [0; 8]);
    one.receive_of(0, &mut before, 3);
    two.send(b"whole", 1, 4).expect("sent");
    while two.ended(&two.transmit).0.is_empty() {
        stir(&[&one, &two]);
    }
    two.lie(0xFE, &[]);
    let mut failed = Vec::new();
    while failed.is_empty() {
        stir(&[&one]);
        failed = one.ended(&one.receive).1;
    }
    one.receive_of(0, &mut after, 5);
    one.receive_of(0, &mut whole, 4);
    one.receive(&mut any, 6);
    let (well, later) = one.ended(&one.receive);
    failed.extend(later);
    let failed: Vec<_> = failed.iter().map(|failed| (failed.of.context.0.addr(), failed.code)).collect();
    assert_eq!(failed, [(3, libc::ECONNRESET), (5, libc::ECONNRESET)], "and none that anybody may meet");
    assert_eq!((well.len(), &whole), (1, b"whole"), "what has come can be received");
    // It was not gone: from then on there may be something of it again.
    let (mut again, mut more) = ([0; 5], [0; 4]);
    one.receive(&mut again, 7);
    while one.ended(&one.receive).0.is_empty() {
        let _ = two.send(b"again", 1, 7);
        stir(&[&one, &two]);
        let _ = two.ended(&two.transmit);
    }
    one.receive_of(0, &mut more, 8);
    two.send(b"more", 1, 8).expect("sent");
    let mut well = Vec::new();
    while well.is_empty() {
        stir(&[&one, &two]);
        well = one.ended(&one.receive).0;
    }
    assert_eq!((&again, &more), (b"again", b"more"));
}

#[test]
fn so_does_one_from_who_was_heard_and_never_spoken_to() {
    let (one, two) = (Side::new(), Side::new());
    two.knows(&one);
    let (mut word, mut never) = ([0; 4], [0; 8]);
    one.receive(&mut word, 3);
    two.send(b"word", 1, 3).expect("queued");
    while one.ended(&one.receive).0.is_empty() {
        stir(&[&one, &two]);
    }
    two.lie(0xFE, &[]);
    while one.malformed() == 0 {
        stir(&[&one]);
    }
    one.knows(&two);
    one.receive_of(0, &mut never, 4);
    let failed = one.ended(&one.receive).1;
    assert_eq!(failed.iter().map(|failed| failed.code).collect::<Vec<_>>(), [libc::ECONNRESET]);
}

#[test]
fn what_a_peer_writes_while_it_is_given_up_is_not_waited_for() {
    let [one, two] = pair();
    let (kind, head) = emitted(&Entry::Eager { label: Label { tag: Some(5), data: None }, send: None });
    while one.say(kind, &head) == 1 {}
    let (before, is_over) = (two.heard(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                written += one.say(kind, &head);
            }
            written
        });
        two.with(|traffic| traffic.read_all(two.slot, 0)).expect("read");
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("no panic");
    });
    let heard = two.heard() - before;
    assert!(heard > 0 && heard <= (ENTRIES + 64) as u64, "{heard} entries");
}
