//! A kick and the requests that it asks for cross. Open MPI's own openib ends its job when it cannot reject a kick: so with its
//! words a kick is there until it is rejected.

use super::link::Phase;
use super::world::{NOW, address, called, peer};
use super::*;
use crate::wire::openib;

const QUEUES: Queues = Queues { count: 2, credits: 0, hash: 77 };

/// The side with the smaller address, which kicks, and the other.
const ACCEPTOR: usize = 0;
const INITIATOR: usize = 1;
const PEER: EndpointId = called(INITIATOR, 1);

/// An acceptor that waits for its kick to be rejected, with times as they are usual, and the id of that.
fn kicking(dialect: Dialect) -> (Manager, Id) {
    let usual = Settings::new(100 + ACCEPTOR as u64, 0, vec![address(ACCEPTOR)], QUEUES);
    let mut manager = Manager::new(Settings { dialect, ..usual });
    let peer = Peer { nonce: 0, ..peer(INITIATOR, 1) };
    manager.handle_order(Order::Add { endpoint: PEER, listener: 0, peer }, NOW);
    manager.handle_order(Order::Connect { endpoint: PEER }, NOW);
    let [Action::Resolve { id, .. }] = actions(&mut manager)[..] else { panic!("a kick") };
    manager.handle_event(id, Event::AddressResolved, NOW);
    manager.handle_event(id, Event::RouteResolved, NOW);
    assert!(matches!(actions(&mut manager).last(), Some(Action::Connect { .. })));
    (manager, id)
}

fn actions(manager: &mut Manager) -> Vec<Action> {
    std::iter::from_fn(|| manager.poll_action()).collect()
}

/// The initiator asks for a queue.
fn ask(manager: &mut Manager, queue: u8) {
    let port = address(INITIATOR).port();
    let asked = openib::Private { port, index: 9, queue, process: 100 + INITIATOR as u64 };
    manager.handle_request(0, Id::Peers(u32::from(queue)), &asked.to_bytes(), NOW);
}

/// The same, when the initiator's requests have crossed its kick.
fn crossed() -> (Manager, Id) {
    let (mut manager, kick) = kicking(Dialect::Openib);
    ask(&mut manager, 0);
    assert!(!actions(&mut manager).iter().any(|action| action.id() == kick), "nothing happens to the kick");
    (manager, kick)
}

fn phase(manager: &Manager) -> Phase {
    manager.links[&PEER].phase
}

fn is_destroyed_once(manager: &mut Manager, kick: Id) -> bool {
    actions(manager) == [Action::Destroy { id: kick }] && !manager.desk.ids.contains_key(&kick)
}

const REJECTED: Event<'_> = Event::Rejected { private: &[0; 148] };

#[test]
fn a_kick_that_crosses_requests_ends_with_its_rejection_and_changes_nothing() {
    for turns in 0..=3 {
        let (mut manager, kick) = crossed();
        if turns > 0 {
            ask(&mut manager, 1);
        }
        for queue in 0..if turns > 1 { 2 } else { 0 } {
            manager.handle_event(Id::Peers(queue), Event::Established { private: &[] }, NOW);
        }
        if turns > 2 {
            manager.handle_order(Order::Settled { endpoint: PEER, attempt: Attempt(1) }, NOW);
        }
        assert!(!actions(&mut manager).iter().any(|action| action.id() == kick));
        let before = (phase(&manager), manager.links[&PEER].deadline);
        let expected = [Phase::Answering, Phase::Answering, Phase::Up, Phase::Settled][turns];
        assert_eq!(before.0, expected);
        manager.handle_event(kick, REJECTED, NOW);
        assert!(is_destroyed_once(&mut manager, kick));
        assert_eq!((phase(&manager), manager.links[&PEER].deadline), before);
        manager.handle_event(kick, REJECTED, NOW);
        assert_eq!((actions(&mut manager), manager.counters().late), (vec![], 1));
    }
}

/// What is up, and is asked for, settles.
#[test]
fn a_kick_is_there_until_it_is_rejected_though_what_it_asks_for_is_connected() {
    let (mut manager, first) = crossed();
    ask(&mut manager, 1);
    for queue in 0..2 {
        manager.handle_event(Id::Peers(queue), Event::Established { private: &[] }, NOW);
    }
    manager.handle_event(first, REJECTED, NOW);
    actions(&mut manager);
    let late = manager.next_timeout().expect("it is to ask");
    manager.handle_timeout(late);
    let [Action::Resolve { id, .. }] = actions(&mut manager)[..] else { panic!("a kick") };
    manager.handle_event(id, Event::AddressResolved, late);
    manager.handle_event(id, Event::RouteResolved, late);
    actions(&mut manager);
    manager.handle_order(Order::Settled { endpoint: PEER, attempt: Attempt(1) }, late);
    assert_eq!((actions(&mut manager), phase(&manager)), (vec![], Phase::Settled));
    manager.handle_event(id, REJECTED, late);
    assert!(is_destroyed_once(&mut manager, id));
    assert_eq!((phase(&manager), manager.next_timeout()), (Phase::Settled, None));
}

#[test]
fn a_kick_that_nobody_rejects_ends_in_time() {
    let (mut manager, kick) = crossed();
    let attempt = manager.desk.settings.attempt;
    assert_eq!(manager.next_timeout(), Some(NOW + attempt), "as long as any kick");
    manager.handle_timeout(NOW + attempt);
    assert!(is_destroyed_once(&mut manager, kick));
    assert_eq!(phase(&manager), Phase::Answering, "which has a time of its own");
    assert_eq!(manager.next_timeout(), Some(NOW + manager.desk.settings.answer));
}

#[test]
fn a_kick_whose_answer_nobody_waits_for_ends_with_its_endpoint_its_device_and_its_own_failure() {
    let ends: [fn(&mut Manager, Id); 5] = [
        |manager, _| manager.handle_order(Order::Close { endpoint: PEER }, NOW),
        |manager, _| manager.handle_order(Order::Finalize, NOW),
        |manager, _| manager.handle_listener_lost(0),
        |manager, kick| manager.handle_event(kick, Event::DeviceRemoved, NOW),
        |manager, kick| manager.handle_event(kick, Event::Unreachable, NOW),
    ];
    for end in ends {
        let (mut manager, kick) = crossed();
        end(&mut manager, kick);
        let ended = actions(&mut manager);
        let destroyed = ended.iter().filter(|action| **action == Action::Destroy { id: kick });
        assert_eq!((destroyed.count(), manager.desk.ids.contains_key(&kick)), (1, false));
        assert!(manager.links.values().all(|link| link.crossed.is_empty()));
    }
}

/// It has not been sent: nobody rejects it.
#[test]
fn a_kick_that_is_not_sent_ends_when_it_is_asked_for_nothing_any_more() {
    let (mut manager, kick) = kicking(Dialect::Openib);
    let id = manager.links[&PEER].kick.expect("it kicks").id;
    assert_eq!(id, kick);
    manager.handle_timeout(manager.next_timeout().expect("a timer"));
    assert!(is_destroyed_once(&mut manager, kick), "and nobody has rejected this one");
    manager.handle_timeout(manager.next_timeout().expect("a pause"));
    let [Action::Resolve { id, .. }] = actions(&mut manager)[..] else { panic!("another") };
    ask(&mut manager, 0);
    assert_eq!(actions(&mut manager).first(), Some(&Action::Destroy { id }));
}
