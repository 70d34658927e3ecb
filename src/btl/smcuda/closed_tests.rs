//! Peers that the host closes and wants again, beside many others, and what nobody may be kept waiting by.

use super::component::Smcuda;
use super::peer::Found;
use super::tests::{Silent, Told, door, fragment, hears, lend, life_of, meet, module, sends};
use crate::btl::{Access, Cookie, EndpointId, Host, Lent, Sending, Transport, Upcalls};
use crate::error::{Error, Result};
use crate::link::Clock;
use crate::shm::{Claim, Identity, NONCE, Outside, Shared};

/// It has been told that its ring is looked at, and rings no more; meanwhile others are looked at.
#[test]
fn a_peer_that_was_looked_at_still_is_when_it_is_wanted_again() {
    let (own, told) = (module(1), Told::default());
    let others: Vec<Smcuda> = (2..42).map(module).collect();
    let theirs = Told::default();
    let mut ids: Vec<EndpointId> =
        others.iter().zip(2..).map(|(other, name)| meet(&own, other, name, &told)).collect();
    let backs: Vec<EndpointId> = others.iter().map(|other| meet(other, &own, 1, &theirs)).collect();
    for (other, back) in others.iter().zip(&backs) {
        sends(other, *back, "first");
        assert_eq!(hears(&own, &told), ["first"]);
    }
    own.close(&ids[..1], &told);
    // Another one takes its place in the list.
    sends(&others[39], backs[39], "rings");
    assert_eq!(hears(&own, &told), ["rings"]);
    ids[0] = meet(&own, &others[0], 2, &told);
    assert!(hears(&own, &told).is_empty());
    sends(&others[0], backs[0], "again");
    assert_eq!(hears(&own, &told), ["again"]);
}

/// Both close and meet again, and one of them is faster.
#[test]
fn what_a_peer_sends_when_it_has_met_us_again_is_received_when_we_have() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (Told::default(), Told::default());
    let mut id = meet(&own, &other, 2, &told);
    let mut back = meet(&other, &own, 1, &theirs);
    for round in 0..5 {
        let text = format!("round {round}");
        sends(&own, id, &text);
        sends(&other, back, &text);
        assert_eq!((hears(&other, &theirs), hears(&own, &told)), (vec![text.clone()], vec![text]));
        own.close(&[id], &told);
        sends(&other, back, "to nobody");
        other.close(&[back], &theirs);
        back = meet(&other, &own, 1, &theirs);
        sends(&other, back, "hello");
        id = meet(&own, &other, 2, &told);
        assert_eq!(hears(&own, &told), ["hello"]);
    }
}

/// It has not heard of its being closed, and its host has been told of success.
#[test]
fn where_the_host_meets_peers_again_what_one_has_sent_meanwhile_is_received_in_its_order() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (Told::default(), Told::default());
    own.state.with(|state| state.meets_again = true);
    let mut id = meet(&own, &other, 2, &told);
    let back = meet(&other, &own, 1, &theirs);
    for round in 0..1100 {
        let texts = ["unread", "to nobody", "hello"].map(|text| format!("{text} {round}"));
        sends(&other, back, &texts[0]);
        own.close(&[id], &told);
        sends(&other, back, &texts[1]);
        own.progress(&told);
        assert!(told.delivered.borrow().is_empty(), "{round}: whoever is closed is not heard");
        id = meet(&own, &other, 2, &told);
        sends(&other, back, &texts[2]);
        while told.delivered.borrow().len() < texts.len() {
            own.progress(&told);
        }
        assert_eq!(told.delivered.take(), texts.map(|text| (65, text.into_bytes())));
    }
    assert_eq!((own.kept(), told.lost.get(), theirs.lost.get()), ([1, 1, 0], 0, 0));
}

/// In need of room, what was shared with a closed peer is given up, though it has us in its list.
#[test]
fn a_closed_peer_is_reached_again_though_its_place_was_needed() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (Told::default(), Told::default());
    let id = meet(&own, &other, 2, &told);
    let back = meet(&other, &own, 1, &theirs);
    sends(&own, id, "first");
    assert_eq!(hears(&other, &theirs), ["first"]);
    own.close(&[id], &told);
    let doors: Vec<_> = (0..1024).map(|_| door()).collect();
    let full = doors.iter().zip(100..).position(|(door, name)| {
        let mut record = other.record().clone();
        record.door = *door.identity();
        own.meet(name, &record.to_bytes(), &Silent(&told)).is_err()
    });
    assert_eq!(full, Some(1023));
    let id = meet(&own, &other, 2, &told);
    sends(&own, id, "again");
    sends(&other, back, "back");
    assert_eq!(hears(&other, &theirs), ["again"]);
    assert_eq!(hears(&own, &told), ["back"]);
}

/// Its memory is the program's again, and its number may be another process's.
#[test]
fn nothing_is_put_to_a_process_whose_life_is_over() {
    let (own, entry, told) = (module(1), door(), Told::default());
    let other = life_of(2, &entry);
    let id = meet(&own, &other, 2, &told);
    let mut theirs = [1_u8; 64];
    let registration =
        other.register(crate::link::conformance::lend(&mut theirs), Access::BOTH).expect("memory");
    let piece = lend(&[7; 64]);
    assert_eq!(own.put(id, piece, (registration, 0), 1), Ok(Sending::Over));
    assert_eq!(theirs, [7; 64]);
    theirs = [1; 64];
    other.end_module(&Silent(&Told::default()));
    assert_eq!(own.put(id, piece, (registration, 0), 1), Err(Error::Unreachable));
    assert_eq!(own.get(id, piece, (registration, 0), 1), Err(Error::Unreachable));
    assert_eq!(theirs, [1; 64]);
}

/// One that writes all the time keeps nobody from hearing, nor what waits for another from being sent.
#[test]
fn a_peer_that_writes_without_end_stops_nobody_else() {
    let own = module(1);
    let others: Vec<Smcuda> = (2..40).map(module).collect();
    let (told, theirs) = (Told::default(), Told::default());
    let ids: Vec<EndpointId> =
        others.iter().zip(2..).map(|(other, name)| meet(&own, other, name, &told)).collect();
    let backs: Vec<EndpointId> = others.iter().map(|other| meet(other, &own, 1, &theirs)).collect();
    for (other, back) in others.iter().zip(&backs) {
        sends(other, *back, "first");
        assert_eq!(hears(&own, &told).len(), 1);
    }
    let slow = others.len() - 2;
    // The first is looked at by itself, the last rings.
    for writer in [0, others.len() - 1] {
        let mut sent = 0;
        while own.send(ids[slow], fragment(&[7; 30_000], 2, false)) == Ok(Sending::Over) {
            sent += 1;
        }
        assert_eq!(own.send(ids[slow], fragment(b"last", 4, true)), Ok(Sending::UnderWay));
        sends(&others[slow], backs[slow], "slow");
        let (mut heard, mut has_heard) = (0, false);
        for _ in 0..2000 {
            while others[writer].send_now(backs[writer], 65, [lend(b"without end"), Lent::EMPTY]) {}
            own.progress(&told);
            has_heard |= told.delivered.take().iter().any(|(_, bytes)| bytes == b"slow");
            others[slow].progress(&theirs);
            heard += theirs.delivered.take().len();
        }
        assert!(has_heard, "{writer}");
        assert_eq!(heard, sent + 2, "{writer}");
        told.done.take();
        hears(&own, &told);
    }
}

/// A host that sends again whenever something was sent.
struct Restless<'a> {
    own: &'a Smcuda,
    to: EndpointId,
    told: &'a Told,
}

impl Upcalls for Restless<'_> {
    fn host(&self) -> impl Host {
        Silent(self.told)
    }
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        self.told.deliver(endpoint, tag, bytes);
    }
    fn deliver_shared(&self, endpoint: EndpointId, tag: u8, bytes: Lent) {
        self.told.deliver_shared(endpoint, tag, bytes);
    }
    fn done(&self, cookie: Cookie, outcome: Result<()>) {
        assert_eq!(outcome, Ok(()));
        assert_eq!(self.own.send(self.to, fragment(b"again", cookie, true)), Ok(Sending::UnderWay));
    }
    fn doomed(&self, endpoint: EndpointId, name: u64, tell: impl FnOnce()) {
        self.told.doomed(endpoint, name, tell);
    }
    fn lost(&self, endpoint: EndpointId, name: u64) {
        self.told.lost(endpoint, name);
    }
}

#[test]
fn a_host_that_sends_without_end_hears() {
    let (own, other) = (module(1), module(2));
    let (told, theirs) = (Told::default(), Told::default());
    let to = meet(&own, &other, 2, &told);
    let back = meet(&other, &own, 1, &theirs);
    sends(&other, back, "first");
    assert_eq!(hears(&own, &told), ["first"]);
    assert_eq!(own.send(to, fragment(b"begin", 4, true)), Ok(Sending::UnderWay));
    let up = Restless { own: &own, to, told: &told };
    sends(&other, back, "stop");
    for _ in 0..100 {
        own.progress(&up);
        while other.progress(&theirs) != 0 {}
    }
    assert_eq!(*told.delivered.borrow(), [(65, b"stop".to_vec())]);
    assert!(theirs.delivered.borrow().len() > 1000);
}

/// At the end of a life it is waited for those who have yet to hear: whoever rings meanwhile is noted once.
#[test]
fn bells_that_are_rung_without_end_leave_no_more_to_do_than_places() {
    let (own, other, told) = (module(1), module(2), Told::default());
    let id = meet(&own, &other, 2, &told);
    sends(&own, id, "unheard");
    let inbox = Shared::of_peer(&own.life().segment).expect("mapped");
    let claim = |name| Claim { name, life: [6; NONCE], serial: 1, pid: std::process::id(), ring: 0 };
    let places: Vec<usize> = (1000..1010).map_while(|name| inbox.claim(&claim(name))).collect();
    for _ in 0..1000 {
        places.iter().for_each(|place| inbox.ring(*place));
        assert!(own.state.with(|state| state.is_unheard()));
    }
    assert!(own.state.with(|state| state.news.len()) <= places.len());
}

/// A program that only sends makes no progress: what is to be done outside waits, once.
#[test]
fn a_peer_that_appears_while_nobody_makes_progress_is_noted_once() {
    let (own, entry, other, told) = (module(1), door(), module(3), Told::default());
    let before = life_of(2, &entry);
    meet(&own, &before, 2, &told);
    before.end_module(&Silent(&Told::default()));
    drop(before);
    let to_other = meet(&own, &other, 3, &told);
    let clock = Clock::new();
    // As long as it takes until it is looked who has ended.
    while clock.nanos() < 200_000_000 {
        own.progress(&told);
    }
    let _next = life_of(2, &entry);
    while own.send(to_other, fragment(&[1; 30_000], 2, false)).is_ok() {}
    for _ in 0..100_000 {
        assert_eq!(own.send(to_other, fragment(&[1; 30_000], 2, false)), Err(Error::OutOfResource));
    }
    assert!(own.state.with(|state| state.news.len()) < 10, "{}", own.state.with(|state| state.news.len()));
}

/// It ends between two steps of another thread's, which make it known.
#[test]
fn a_process_that_ends_while_it_is_made_known_is_lost() {
    let (own, other, told) = (module(1), module(2), Told::default());
    let over = Identity { pid: 1 << 30, ..other.record().door };
    let door = Outside::of_ended(&over).expect("no such process");
    let found = Found::of(other.life()).expect("mapped");
    let id = own.state.with(|state| {
        let met = state.add(2, door, Some((other.life().segment, found))).expect("room");
        state.note_exits();
        state.open(met.id);
        met.id
    });
    let clock = Clock::new();
    while told.lost.get() == 0 {
        own.progress(&told);
        assert!(clock.nanos() < 1_000_000_000, "its end is not told");
    }
    assert_eq!(own.send(id, fragment(b"late", 2, true)), Err(Error::Unreachable));
}
