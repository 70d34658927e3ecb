//! Peers that end and begin anew, and those that come and go.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::component::Smcuda;
use super::tests::{Silent, Told, door, fragment, hears, life_of, meet, module, sends};
use crate::btl::{EndpointId, Sending, Transport};
use crate::error::Error;
use crate::shm::Door;

fn published(of: &Smcuda) -> Told {
    Told { published: RefCell::new(Some(of.record().to_bytes())), ..Told::default() }
}

fn end(life: Smcuda) {
    life.end_module(&Silent(&Told::default()));
}

#[test]
fn a_record_is_the_same_in_every_life() {
    let own = door();
    let first = life_of(2, &own).record().to_bytes();
    let second = life_of(2, &own);
    assert_eq!(first, second.record().to_bytes());
    assert_ne!(first, module(2).record().to_bytes(), "another process");
}

/// The second life of a peer meets our first one, which goes on.
#[test]
fn a_later_life_takes_the_place_of_the_one_that_was_known() {
    let (own, entry) = (module(1), door());
    let first = life_of(2, &entry);
    let (told, theirs) = (published(&first), Told::default());
    let id = meet(&own, &first, 2, &told);
    let back = meet(&first, &own, 1, &theirs);
    sends(&first, back, "first");
    sends(&own, id, "to the first");
    assert_eq!(
        (hears(&own, &told), hears(&first, &theirs)),
        (vec!["first".into()], vec!["to the first".into()])
    );
    sends(&own, id, "never received");
    end(first);
    let second = life_of(2, &entry);
    let back = meet(&second, &own, 1, &theirs);
    sends(&second, back, "second");
    assert_eq!(hears(&own, &told), ["second"]);
    assert_eq!(own.peer(id), Some(2), "the host knows it by the same endpoint");
    sends(&own, id, "to the second");
    assert_eq!(hears(&second, &theirs), ["to the second"]);
    sends(&second, back, "still");
    assert_eq!(hears(&own, &told), ["still"]);
    assert_eq!((told.lost.get(), theirs.lost.get()), (0, 0));
}

/// Nobody has rung: its door is looked at.
#[test]
fn a_peer_whose_life_is_over_is_followed_into_its_next_one() {
    let (own, entry) = (module(1), door());
    let first = life_of(2, &entry);
    let (told, theirs) = (published(&first), Told::default());
    let id = meet(&own, &first, 2, &told);
    end(first);
    let second = life_of(2, &entry);
    // Until it has been looked whether processes have ended, a tenth of a second.
    while own.kept_of(id) != Some(second.life().segment) {
        own.progress(&told);
    }
    meet(&second, &own, 1, &theirs);
    sends(&own, id, "to the second");
    assert_eq!(hears(&second, &theirs), ["to the second"]);
}

#[test]
fn a_peer_that_has_no_life_yet_is_reached_in_its_next_one() {
    let (own, entry) = (module(1), door());
    let before = life_of(2, &entry);
    let (told, theirs) = (published(&before), Told::default());
    let record = before.record().to_bytes();
    end(before);
    let id = own.meet(2, &record, &Silent(&told)).expect("between two lives");
    sends(&own, id, "soon");
    let block = vec![7; 30_000];
    let mut sent = 0;
    while own.send(id, fragment(&block, 2, false)) == Ok(Sending::Over) {
        sent += 1;
    }
    assert_eq!(own.send(id, fragment(b"queued", 4, true)), Ok(Sending::UnderWay));
    assert!(hears(&own, &told).is_empty() && told.done.borrow().is_empty());
    let second = life_of(2, &entry);
    let back = meet(&second, &own, 1, &theirs);
    let mut heard = Vec::new();
    while heard.len() < sent + 3 {
        own.progress(&told);
        second.progress(&theirs);
        heard.extend(theirs.delivered.take().into_iter().map(|(_, bytes)| bytes));
    }
    assert_eq!((&heard[0][..], &heard[sent + 2][..]), (&b"soon"[..], &b"queued"[..]));
    sends(&second, back, "here");
    assert_eq!(hears(&own, &told), ["here"]);
    assert_eq!(told.lost.get(), 0);
}

/// An old life rings when its process has another one: whichever of them was known first.
#[test]
fn the_bell_of_an_old_life_is_not_taken_for_the_new_one() {
    for is_old_known in [false, true] {
        let (own, entry) = (module(1), door());
        let old = life_of(2, &entry);
        let (told, theirs) = (published(&old), Told::default());
        if is_old_known {
            meet(&own, &old, 2, &told);
        }
        let from_old = meet(&old, &own, 1, &theirs);
        let new = life_of(2, &entry);
        let from_new = meet(&new, &own, 1, &theirs);
        let id = meet(&own, &new, 2, &told);
        sends(&old, from_old, "old");
        assert!(hears(&own, &told).is_empty(), "{is_old_known}");
        sends(&new, from_new, "new");
        assert_eq!(hears(&own, &told), ["new"]);
        sends(&old, from_old, "old");
        sends(&own, id, "for the new");
        assert_eq!(hears(&new, &theirs), ["for the new"]);
        assert!(hears(&old, &theirs).is_empty() && hears(&own, &told).is_empty());
        // It ends late, and the other stays.
        end(old);
        sends(&new, from_new, "still");
        assert_eq!(hears(&own, &told), ["still"]);
        assert_eq!(own.kept()[2], 0, "no stranger");
        assert_eq!((told.lost.get(), theirs.lost.get()), (0, 0), "{is_old_known}");
    }
}

/// A host that closes a peer and wants it again, while that one has never closed this one.
#[test]
fn a_peer_that_was_closed_is_met_again() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (published(&other), published(&own));
    let mut id = meet(&own, &other, 2, &told);
    let back = meet(&other, &own, 1, &theirs);
    for round in 0..5 {
        let text = format!("round {round}");
        sends(&own, id, &text);
        assert_eq!(hears(&other, &theirs), std::slice::from_ref(&text));
        sends(&other, back, &text);
        assert_eq!(hears(&own, &told), [text]);
        own.close(&[id], &told);
        assert_eq!(own.send(id, fragment(b"late", 2, true)), Err(Error::Unreachable));
        sends(&other, back, "to nobody");
        assert!(hears(&own, &told).is_empty());
        let again = meet(&own, &other, 2, &told);
        assert_ne!(again, id, "the old endpoint is nobody's");
        id = again;
    }
    assert_eq!((told.lost.get(), theirs.lost.get()), (0, 0));
}

/// Mappings of these files.
fn mapped(inodes: &HashSet<u64>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let inode = |line: &str| line.split_whitespace().nth(4).and_then(|inode| inode.parse().ok());
    maps.lines().filter_map(inode).filter(|inode| inodes.contains(inode)).count()
}

#[test]
fn thousands_of_peers_come_and_go_in_one_life() {
    const PEERS: u64 = 5000;
    const AT_ONCE: usize = 3;
    let own = module(1);
    let told = Told::default();
    let mut inodes = HashSet::new();
    let mut here: VecDeque<(u64, Arc<Door>, Smcuda, EndpointId, EndpointId)> = VecDeque::new();
    let leaves = |(name, _, other, id, back): (u64, Arc<Door>, Smcuda, EndpointId, EndpointId)| {
        let theirs = Told::default();
        let text = format!("last of {name}");
        sends(&own, id, &text);
        sends(&other, back, &text);
        other.progress(&theirs);
        own.progress(&told);
        assert_eq!(*theirs.delivered.borrow(), [(65, text.clone().into_bytes())]);
        assert_eq!(told.delivered.take(), [(65, text.into_bytes())]);
        // One closes, and then the other; or one just ends.
        if name % 3 == 0 {
            own.close(&[id], &told);
        }
        if name % 3 != 1 {
            other.close(&[back], &theirs);
        }
        end(other);
        if name % 3 != 0 {
            own.close(&[id], &told);
        }
        assert_eq!(own.send(id, fragment(b"late", 2, true)), Err(Error::Unreachable));
        assert_eq!(own.peer(id), None);
        assert_eq!(theirs.lost.get(), 0);
    };
    for name in 2..2 + PEERS {
        let theirs = Told::default();
        let entry = door();
        let other = life_of(name, &entry);
        inodes.extend([entry.identity().inode, other.life().segment.inode]);
        let id = meet(&own, &other, name, &told);
        let back = meet(&other, &own, 1, &theirs);
        let text = format!("first of {name}");
        sends(&own, id, &text);
        sends(&other, back, &text);
        other.progress(&theirs);
        while told.delivered.borrow().is_empty() {
            own.progress(&told);
        }
        assert_eq!(*theirs.delivered.borrow(), [(65, text.clone().into_bytes())]);
        assert_eq!(told.delivered.take(), [(65, text.into_bytes())]);
        here.push_back((name, entry, other, id, back));
        if here.len() > AT_ONCE {
            leaves(here.pop_front().expect("somebody"));
        }
        let [places, used, strangers] = own.kept();
        assert!(places <= AT_ONCE + 2 && used <= AT_ONCE + 2 && strangers == 0, "{:?}", own.kept());
    }
    here.into_iter().for_each(leaves);
    // What is mapped goes when it is looked who has ended.
    while mapped(&inodes) != 0 {
        own.progress(&told);
    }
    assert_eq!(told.lost.get(), 0);
}

/// It had not been heard of when the life ended.
#[test]
fn the_first_message_of_a_life_is_received_when_that_is_over() {
    let (own, entry) = (module(1), door());
    let first = life_of(2, &entry);
    let (told, theirs) = (published(&first), Told::default());
    meet(&own, &first, 2, &told);
    let back = meet(&first, &own, 1, &theirs);
    sends(&first, back, "last");
    first.close(&[back], &theirs);
    end(first);
    assert_eq!(hears(&own, &told), ["last"]);
}

/// The bell of the new one is heard while messages of the old one wait.
#[test]
fn what_the_old_life_has_sent_is_received_before_the_new_one_is_heard() {
    let (own, entry) = (module(1), door());
    let first = life_of(2, &entry);
    let (told, theirs) = (published(&first), Told::default());
    meet(&own, &first, 2, &told);
    let back = meet(&first, &own, 1, &theirs);
    sends(&first, back, "0");
    assert_eq!(hears(&own, &told), ["0"]);
    for text in ["a", "b", "c"] {
        sends(&first, back, text);
    }
    end(first);
    let second = life_of(2, &entry);
    let back = meet(&second, &own, 1, &theirs);
    sends(&second, back, "d");
    assert_eq!(hears(&own, &told), ["a", "b", "c", "d"]);
}

/// The host makes all processes of a job known, also those that have gone.
#[test]
fn who_has_ended_is_met_and_what_is_sent_there_is_over() {
    let (own, other, told) = (module(1), module(2), Told::default());
    let mut record = other.record().clone();
    // A number that no process has.
    record.door.pid = 1 << 30;
    let id = own.meet(2, &record.to_bytes(), &Silent(&told)).expect("met");
    assert_eq!(own.send(id, fragment(b"nobody", 4, true)), Ok(Sending::UnderWay));
    while told.done.borrow().is_empty() {
        own.progress(&told);
    }
    assert_eq!((told.done.take(), told.lost.get()), (vec![(4, Ok(()))], 0));
    // One that lives has another file under that number.
    record.door = crate::shm::Identity { pid: std::process::id(), descriptor: 0, ..record.door };
    assert!(own.meet(3, &record.to_bytes(), &Silent(&told)).is_err());
}

/// The number of a process that there is not.
const NOBODY: u32 = 1 << 30;

/// A host that makes processes known one after the other, and closes none of them.
#[test]
fn processes_that_have_ended_leave_room_for_others() {
    let (own, other, told) = (module(1), module(2), Told::default());
    let mut first = None;
    for name in 3..2500 {
        let mut record = other.record().clone();
        record.door = crate::shm::Identity { pid: NOBODY, nonce: [name as u8; 16], ..record.door };
        let id = own.meet(name, &record.to_bytes(), &Silent(&told)).expect("room");
        first = first.or(Some(id));
    }
    assert_eq!(own.send(first.expect("one"), fragment(b"late", 1, true)), Err(Error::Unreachable));
    let theirs = Told::default();
    let (id, back) = (meet(&own, &other, 2, &told), meet(&other, &own, 1, &theirs));
    sends(&own, id, "there");
    sends(&other, back, "back");
    assert_eq!((hears(&other, &theirs), hears(&own, &told)), (vec!["there".into()], vec!["back".into()]));
    assert_eq!(told.lost.get(), 0);
}

/// What is sent to a process that has ended is over, also when it does not fit the ring.
#[test]
fn nothing_waits_for_a_process_that_has_ended() {
    let (own, other, told) = (module(1), module(2), Told::default());
    let mut record = other.record().clone();
    record.door.pid = NOBODY;
    let id = own.meet(2, &record.to_bytes(), &Silent(&told)).expect("met");
    let clock = crate::link::Clock::new();
    // As long as it takes until it is looked who has ended.
    while clock.nanos() < 200_000_000 {
        own.progress(&told);
    }
    let block = vec![7; 30_000];
    for cookie in 0..199 {
        assert_eq!(own.send(id, fragment(&block, cookie, true)), Ok(Sending::UnderWay));
    }
    hears(&own, &told);
    assert_eq!((told.done.take().len(), told.lost.get()), (199, 0));
}

/// One closes the other and wants it again; it is the other one that sends first.
#[test]
fn who_was_closed_and_met_again_is_heard_when_it_sends_first() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (published(&other), published(&own));
    let id = meet(&own, &other, 2, &told);
    let back = meet(&other, &own, 1, &theirs);
    sends(&own, id, "there");
    assert_eq!(hears(&other, &theirs), ["there"]);
    sends(&other, back, "back");
    assert_eq!(hears(&own, &told), ["back"]);
    own.close(&[id], &told);
    let id = meet(&own, &other, 2, &told);
    assert!(hears(&other, &theirs).is_empty());
    sends(&other, back, "again");
    assert_eq!(hears(&own, &told), ["again"]);
    sends(&own, id, "here");
    assert_eq!(hears(&other, &theirs), ["here"]);
}

/// The process behind a name is another one now, which lives.
#[test]
fn a_process_that_takes_the_place_of_one_that_has_ended_is_not_taken_for_it() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (published(&other), published(&own));
    let mut record = other.record().clone();
    record.door.pid = NOBODY;
    let id = own.meet(2, &record.to_bytes(), &Silent(&told)).expect("met");
    assert_eq!(meet(&own, &other, 2, &told), id, "the host knows it by the same endpoint");
    let back = meet(&other, &own, 1, &theirs);
    assert_eq!(own.send(id, fragment(&[7; 30_000], 1, true)), Ok(Sending::UnderWay));
    let clock = crate::link::Clock::new();
    // As long as it takes until it is looked who has ended.
    while clock.nanos() < 200_000_000 {
        own.progress(&told);
    }
    sends(&other, back, "alive");
    assert_eq!(hears(&own, &told), ["alive"]);
    let mut sent = 1;
    while own.send(id, fragment(&[7; 30_000], 2, false)) == Ok(Sending::Over) {
        sent += 1;
    }
    // What waits is not over: it is received.
    while theirs.delivered.borrow().len() <= sent {
        other.progress(&theirs);
        own.progress(&told);
    }
    assert_eq!(told.lost.get(), 0);
}

/// One that has never sent closes the other and wants it again, in turns with the other way round.
#[test]
fn whoever_closes_and_meets_again_hears_everything_that_is_sent_from_then_on() {
    for sends_first in [false, true] {
        let (own, other) = (module(1), module(2));
        let (told, theirs) = (published(&other), published(&own));
        let mut id = meet(&own, &other, 2, &told);
        let back = meet(&other, &own, 1, &theirs);
        if sends_first {
            sends(&own, id, "there");
            assert_eq!(hears(&other, &theirs), ["there"]);
        }
        sends(&other, back, "first");
        assert_eq!(hears(&own, &told), ["first"]);
        // More often than there are places.
        for round in 0..1100 {
            own.close(&[id], &told);
            id = meet(&own, &other, 2, &told);
            let text = format!("round {round}");
            sends(&other, back, &text);
            sends(&own, id, &text);
            own.progress(&told);
            other.progress(&theirs);
            while told.delivered.borrow().is_empty() || theirs.delivered.borrow().is_empty() {
                own.progress(&told);
                other.progress(&theirs);
            }
            assert_eq!(told.delivered.take(), [(65, text.clone().into_bytes())]);
            assert_eq!(theirs.delivered.take(), [(65, text.into_bytes())]);
        }
        assert_eq!(own.kept(), [1, 1, 0]);
        assert_eq!((told.lost.get(), theirs.lost.get()), (0, 0));
    }
}

/// Peers that make no room, closed one by one: it is waited once for all of them.
#[test]
fn closing_many_peers_that_make_no_room_takes_no_longer_than_closing_one() {
    let (own, told) = (module(1), Told::default());
    let others: Vec<Smcuda> = (2..12).map(module).collect();
    let block = vec![7; 30_000];
    let ids: Vec<EndpointId> =
        others.iter().zip(2..).map(|(other, name)| meet(&own, other, name, &told)).collect();
    for id in &ids {
        while own.send(*id, fragment(&block, 1, false)) == Ok(Sending::Over) {}
    }
    let clock = crate::link::Clock::new();
    ids.iter().for_each(|id| own.close(&[*id], &told));
    let waited = clock.nanos() / super::state::PATIENCE;
    assert!(waited < ids.len() as u64 / 2, "{waited} times");
    assert_eq!(told.done.take().len(), ids.len());
}
