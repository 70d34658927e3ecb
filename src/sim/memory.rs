//! Who may reach memory, and until when.

use super::endings::{SECOND, block, lossy, pair, run, send, story};
use super::*;
use crate::engine::{Access, Registration};
use crate::error::Error;

#[test]
fn memory_that_is_not_registered_any_more_is_left_alone() {
    let mut network = pair(lossy(100_000), 0);
    let source = block(400_000);
    let registration = network.nodes[1].engine.register(source.clone(), Access::BOTH);
    let endpoint = network.endpoint(0, 1);
    let now = network.now();
    let into = Block::new(vec![0; 400_000]);
    network.nodes[0].engine.get(endpoint, into, registration, 0, 1, now).expect("asked");
    network.nodes[0].engine.put(endpoint, block(300_000), registration, 0, 2, now).expect("asked");
    network.nudge(0);
    run(&mut network, 400_000);
    network.nodes[1].engine.deregister(registration);
    network.nudge(1);
    assert_eq!(source.holders(), 1, "nothing in the engine holds it");
    let before = source.to_vec();
    run(&mut network, 5 * SECOND);
    let mut seen = story(&mut network);
    seen.sort();
    assert_eq!(seen, ["0 done 1 Err(NotFound)", "0 done 2 Err(NotFound)"]);
    assert!(source.to_vec() == before, "written after the end of the registration");
    send(&mut network, 0, 1, 10_000, 3).expect("sent");
    send(&mut network, 1, 0, 10_000, 4).expect("sent");
    run(&mut network, 5 * SECOND);
    assert_eq!(story(&mut network).len(), 4, "the connection goes on");
    assert!(network.nodes.iter().all(|node| node.engine.outstanding() == (0, 0)));
}

#[test]
fn whoever_closes_memory_after_a_get_sends_nothing_again() {
    let mut network = pair(Path::default(), 0);
    let endpoint = network.endpoint(0, 1);
    for cookie in 0..20 {
        let source = block(60_000);
        let registration = network.nodes[1].engine.register(source.clone(), Access::READ);
        let (now, into) = (network.now(), Block::new(vec![0; 60_000]));
        network.nodes[0].engine.get(endpoint, into.clone(), registration, 0, cookie, now).expect("asked");
        network.nudge(0);
        // The reader has it all; that, the other side learns later.
        while story(&mut network).is_empty() {
            let until = network.now().plus(SECOND);
            assert!(network.step(until), "it ends");
        }
        network.nodes[1].engine.deregister(registration);
        assert_eq!(source.holders(), 1, "nothing in the engine holds it");
        assert!(into.to_vec() == source.to_vec());
        run(&mut network, SECOND);
    }
    let counters = network.nodes[1].engine.counters();
    assert_eq!((counters.num_resends, counters.num_timeout_retrans, counters.num_void_sends), (0, 0, 0));
    assert!(network.nodes.iter().all(|node| node.engine.outstanding() == (0, 0)));
}

#[test]
fn only_what_was_allowed_is_done() {
    let mut network = pair(lossy(50_000), 0);
    let engine = &mut network.nodes[1].engine;
    let (source, target) = (block(1000), block(1000));
    let readable = engine.register(source.clone(), Access::READ);
    let writable = engine.register(target.clone(), Access::WRITE);
    let gone = engine.register(block(1000), Access::BOTH);
    engine.deregister(gone);
    let forged = |real: Registration, length| Registration { length, access: Access::BOTH, ..real };
    let endpoint = network.endpoint(0, 1);
    let now = network.now();
    let engine = &mut network.nodes[0].engine;
    assert_eq!(engine.put(endpoint, block(10), readable, 0, 0, now), Err(Error::BadParameter));
    assert_eq!(engine.put(endpoint, block(10), writable, 991, 0, now), Err(Error::BadParameter));
    let mut cookie = 0;
    for (registration, put) in [(readable, true), (writable, false), (gone, true), (gone, false)] {
        for (offset, len) in [(0, 10), (995, 10), (0, 100_000), (u64::MAX - 100_001, 100_000)] {
            let registration = forged(registration, u64::MAX);
            cookie += 1;
            let asked = if put {
                engine.put(endpoint, block(len), registration, offset, cookie, now)
            } else {
                engine.get(endpoint, block(len), registration, offset, cookie, now)
            };
            asked.expect("goes out");
        }
    }
    network.nudge(0);
    run(&mut network, 60 * SECOND);
    let seen = story(&mut network);
    assert_eq!(seen.len(), cookie as usize);
    assert!(seen.iter().all(|word| word.ends_with("Err(NotFound)")), "{seen:?}");
    assert!(source.to_vec() == block(1000).to_vec() && target.to_vec() == block(1000).to_vec());
    let engine = &mut network.nodes[0].engine;
    engine.put(endpoint, block(0), writable, 1000, 1, now).expect("nothing, at the end");
    engine.get(endpoint, block(0), readable, 1000, 2, now).expect("nothing, at the end");
    network.nudge(0);
    run(&mut network, SECOND);
    let mut seen = story(&mut network);
    seen.sort();
    assert_eq!(seen, ["0 done 1 Ok(())", "0 done 2 Ok(())"]);
}
