//! Each machine by itself, and what must not be again.

use std::net::SocketAddr;
use std::time::Duration;

use super::link::Phase;
use super::world::{Budget, NOW, Turn, World, address, called, nonce, peer};
use super::*;
use crate::wire::verbs::private::{Body, LEN, Private, Refusal};

const QUEUES: Queues = Queues { count: 2, credits: 0, hash: 77 };
const FIRST: Attempt = Attempt(1);

/// The side with the smaller address, and the other.
const ACCEPTOR: usize = 0;
const INITIATOR: usize = 1;

/// The manager of a side that has added the other one, with times and bounds as they are usual.
fn manager(side: usize) -> Manager {
    let usual = Settings::new(100 + side as u64, nonce(side, 1), vec![address(side)], QUEUES);
    let mut manager = Manager::new(usual);
    let other = 1 - side;
    let add = Order::Add { endpoint: called(other, 1), listener: 0, peer: peer(other, 1) };
    manager.handle_order(add, NOW);
    manager
}

fn actions(manager: &mut Manager) -> Vec<Action> {
    std::iter::from_fn(|| manager.poll_action()).collect()
}

fn notices(manager: &mut Manager) -> Vec<Notice> {
    std::iter::from_fn(|| manager.poll_notice()).collect()
}

/// What a side says to the other.
fn said(side: usize, body: Body, attempt: u32) -> Private {
    Private {
        body,
        nonce: nonce(side, 1),
        target: nonce(1 - side, 1),
        process: 100 + side as u64,
        token: 9,
        attempt,
        specification: QUEUES.hash,
        listener: 0,
        queues: QUEUES.count,
    }
}

/// How a manager answers a request.
fn answered(manager: &mut Manager, private: &[u8]) -> Option<Refusal> {
    let id = Id::Peers(manager.counters().rejections as u32 + 900);
    manager.handle_request(0, id, private, NOW);
    actions(manager).into_iter().find_map(|action| match action {
        Action::Reject { id: rejected, private } if rejected == id => {
            let Ok(Private { body: Body::Rejection(why), .. }) = Private::parse(&private) else {
                panic!("a rejection says why")
            };
            Some(why)
        }
        _ => None,
    })
}

/// Brings both ids of an attempt of the initiator to where it waits for replies.
fn asking(manager: &mut Manager) -> Vec<Id> {
    manager.handle_order(Order::Connect { endpoint: called(ACCEPTOR, 1) }, NOW);
    let ids: Vec<Id> = actions(manager).iter().map(Action::id).collect();
    for id in &ids {
        manager.handle_event(*id, Event::AddressResolved, NOW);
        manager.handle_event(*id, Event::RouteResolved, NOW);
    }
    ids
}

fn endpoint(side: usize, wire: Wire) -> Endpoint {
    let other = 1 - side;
    let mut endpoint =
        Endpoint::new(called(other, 1), 0, (address(side), Dialect::Own), peer(other, 1), wire, QUEUES);
    assert!(matches!(endpoint.poll_step(), Some(Step::Order(Order::Add { .. }))));
    endpoint
}

fn steps(endpoint: &mut Endpoint) -> Vec<Step> {
    std::iter::from_fn(|| endpoint.poll_step()).collect()
}

fn up(endpoint: &mut Endpoint, attempt: Attempt) {
    let ids = Box::from([Id::Own(1), Id::Own(2)]);
    endpoint.handle_notice(Notice::Up { endpoint: called(0, 1), attempt, token: 9, ids });
}

/// Two sides that are connected over this wire.
fn connected(wire: Wire) -> World {
    let budget = Budget { wants: [1, 1, 0], ..Budget::default() };
    let mut world = World::new(2, wire, 2, budget).added();
    world.take(Turn::Want(ACCEPTOR, called(INITIATOR, 1)));
    while let Some(turn) = world.reactions().first() {
        world.take(*turn);
    }
    world.check_rest();
    world
}

#[test]
fn who_initiates_is_known_to_both() {
    let of = |own: &str, peer: &str| {
        let [own, peer]: [SocketAddr; 2] = [own, peer].map(|text| text.parse().expect("an address"));
        Role::of(own, peer, Dialect::Own)
    };
    // In network order, and not as numbers of this machine.
    assert_eq!(of("10.0.0.2:9", "10.0.1.1:1"), Some(Role::Acceptor));
    assert_eq!(of("10.0.1.1:1", "10.0.0.2:9"), Some(Role::Initiator));
    assert_eq!(of("[fe80::2]:1", "[fe80::1]:1"), Some(Role::Initiator));
    assert_eq!(of("10.0.0.1:7", "10.0.0.1:7"), None);
}

/// A fixed port serves one process of a node: the second has another, and both know who initiates.
#[test]
fn two_processes_of_a_node_are_told_apart_by_their_ports() {
    let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
    // 256 is smaller than 511 in either order of bytes, 255 only as a number.
    for (smaller, greater) in [(256, 511), (255, 256), (1, 65535)] {
        assert_eq!(Role::of(at(smaller), at(greater), Dialect::Own), Some(Role::Initiator));
        assert_eq!(Role::of(at(greater), at(smaller), Dialect::Own), Some(Role::Acceptor));
    }
}

#[test]
fn an_endpoint_to_its_own_address_fails() {
    let mut manager = manager(ACCEPTOR);
    let itself = Peer { process: 5, ..peer(ACCEPTOR, 1) };
    manager.handle_order(Order::Add { endpoint: EndpointId(5), listener: 0, peer: itself }, NOW);
    let failed = Notice::Failed { endpoint: EndpointId(5), reason: Reason::NoPair };
    assert_eq!(notices(&mut manager), [failed]);
}

/// The original returned with its lock held from here, when the CTS was not there yet.
#[test]
fn the_asked_side_over_iwarp_waits_for_the_cts_and_then_answers() {
    let mut acceptor = endpoint(ACCEPTOR, Wire::Iwarp);
    up(&mut acceptor, FIRST);
    acceptor.handle_receives_posted(FIRST);
    assert!(matches!(steps(&mut acceptor)[..], [Step::PostReceives { .. }]), "it does not speak first");
    acceptor.handle_cts(FIRST);
    assert_eq!(steps(&mut acceptor), [Step::SendCts { attempt: FIRST }]);
    acceptor.handle_cts_posted(FIRST);
    let settled = Order::Settled { endpoint: called(INITIATOR, 1), attempt: FIRST };
    let connected = Step::Connected { attempt: FIRST, open: false };
    assert_eq!(steps(&mut acceptor), [Step::Order(settled), connected]);
    assert!(acceptor.may_send(0) && !acceptor.may_send(1), "only where it has heard something");
    assert_eq!(acceptor.handle_arrival(FIRST, 1), Arrival::Deliver);
    assert_eq!(steps(&mut acceptor), [Step::Opened { queue: 1 }]);
    assert!(acceptor.may_send(1));
}

/// The original unlocked twice when one message overtook the other.
#[test]
fn a_cts_that_overtakes_the_hand_over_connects_once() {
    let mut endpoint = endpoint(ACCEPTOR, Wire::InfiniBand);
    endpoint.handle_cts(FIRST);
    assert_eq!((endpoint.state(), steps(&mut endpoint)), (State::Closed, vec![]));
    up(&mut endpoint, FIRST);
    endpoint.handle_receives_posted(FIRST);
    assert_eq!(endpoint.state(), State::Connecting, "the own CTS is missing");
    assert!(matches!(steps(&mut endpoint)[..], [Step::PostReceives { .. }, Step::SendCts { .. }]));
    endpoint.handle_cts_posted(FIRST);
    endpoint.handle_cts(FIRST);
    endpoint.handle_receives_posted(FIRST);
    endpoint.handle_cts_posted(FIRST);
    assert_eq!(steps(&mut endpoint).len(), 2, "settled, and connected");
    assert_eq!((endpoint.state(), endpoint.strays()), (State::Connected, 1));
}

#[test]
fn a_late_cts_of_a_destroyed_queue_pair_connects_nothing() {
    let mut endpoint = endpoint(INITIATOR, Wire::InfiniBand);
    endpoint.want();
    endpoint.handle_cts(FIRST);
    up(&mut endpoint, Attempt(2));
    endpoint.handle_receives_posted(Attempt(2));
    endpoint.handle_cts_posted(Attempt(2));
    endpoint.handle_cts(FIRST);
    assert_eq!(endpoint.state(), State::Connecting);
    endpoint.handle_cts(Attempt(2));
    assert_eq!(endpoint.state(), State::Connected);
}

/// The original's main thread and service thread both connected.
#[test]
fn a_kick_and_a_wish_make_one_attempt() {
    for kick_first in [false, true] {
        let mut manager = manager(INITIATOR);
        let wish = Order::Connect { endpoint: called(ACCEPTOR, 1) };
        let kick = said(ACCEPTOR, Body::Kick, 0).emit();
        if kick_first {
            manager.handle_request(0, Id::Peers(1), &kick, NOW);
            manager.handle_order(wish, NOW);
        } else {
            manager.handle_order(wish, NOW);
            manager.handle_request(0, Id::Peers(1), &kick, NOW);
        }
        assert_eq!(manager.counters().attempts, 1);
        let actions = actions(&mut manager);
        let resolved = actions.iter().filter(|action| matches!(action, Action::Resolve { .. }));
        assert_eq!(resolved.count(), 2, "an id for each queue");
    }
}

/// The original's took a credit that nobody gave back.
#[test]
fn a_cts_takes_the_one_receive_that_is_not_the_main_threads() {
    for wire in [Wire::InfiniBand, Wire::Iwarp] {
        let world = connected(wire);
        for side in &world.sides {
            let receives: Vec<u8> = side.conns.values().map(|conn| conn.receives).collect();
            assert_eq!(receives, [0, 0], "there was one, and the CTS has it");
            assert!(side.conns.values().all(|conn| conn.is_posted), "and whatever comes now has its own");
        }
    }
}

/// The original's was seen 10 ms later, when the host looked.
#[test]
fn the_hand_over_is_told_in_the_turn_of_the_last_event() {
    let mut manager = manager(INITIATOR);
    let ids = asking(&mut manager);
    for (queue, id) in ids.iter().enumerate() {
        assert_eq!(notices(&mut manager), []);
        let reply = said(ACCEPTOR, Body::Reply { queue: queue as u8 }, 1).emit();
        let mut padded = reply.to_vec();
        padded.resize(196, 0);
        manager.handle_event(*id, Event::Established { private: &padded }, NOW);
    }
    let endpoint = called(ACCEPTOR, 1);
    let up = Notice::Up { endpoint, attempt: FIRST, token: 9, ids: ids.into_boxed_slice() };
    assert_eq!(notices(&mut manager), [up]);
}

/// The original never acknowledged an event whose private data it could not copy, and waited for ever.
#[test]
fn an_id_that_came_with_garbage_ends() {
    let mut manager = manager(ACCEPTOR);
    let whole = said(INITIATOR, Body::Request { queue: 0 }, 1).emit();
    for length in 0..LEN {
        assert_eq!(answered(&mut manager, &whole[..length]), Some(Refusal::Malformed));
    }
    assert_eq!(answered(&mut manager, &[0xFF; 200]), Some(Refusal::Malformed));
    assert_eq!(manager.counters().malformed, LEN as u64 + 1);
    assert!(manager.desk.ids.is_empty() && notices(&mut manager).is_empty());
}

/// The original ended the job.
#[test]
fn an_unknown_process_is_told_to_ask_again_and_the_main_thread_once() {
    let mut manager = manager(ACCEPTOR);
    let stranger = Private { process: 55, ..said(INITIATOR, Body::Request { queue: 0 }, 1) };
    for _ in 0..3 {
        assert_eq!(answered(&mut manager, &stranger.emit()), Some(Refusal::Later));
    }
    assert_eq!(notices(&mut manager), [Notice::Unknown { process: 55, listener: 0 }]);
    let peer = Peer { process: 55, ..peer(INITIATOR, 1) };
    manager.handle_order(Order::Add { endpoint: EndpointId(55), listener: 0, peer }, NOW);
    let resolved = actions(&mut manager);
    assert!(matches!(resolved[..], [Action::Resolve { .. }]), "a kick: who has asked need not wait");
    assert_eq!(answered(&mut manager, &stranger.emit()), None);
}

#[test]
fn an_unknown_process_is_told_of_where_it_asks() {
    let mut manager = manager(ACCEPTOR);
    let stranger = Private { process: 55, ..said(INITIATOR, Body::Request { queue: 0 }, 1) }.emit();
    for (number, listener) in [(1, 1), (2, 0), (3, 1)] {
        manager.handle_request(listener, Id::Peers(number), &stranger, NOW);
    }
    assert_eq!(notices(&mut manager), [1, 0].map(|listener| Notice::Unknown { process: 55, listener }));
}

#[test]
fn the_end_of_everything_is_told_once_also_to_endpoints_that_were_not_closed() {
    let mut manager = manager(ACCEPTOR);
    manager.handle_order(Order::Finalize, NOW);
    manager.handle_order(Order::Finalize, NOW);
    let closed = Notice::Closed { endpoint: called(INITIATOR, 1) };
    assert_eq!(notices(&mut manager), [closed.clone(), Notice::Finished]);
    let mut endpoint = endpoint(ACCEPTOR, Wire::InfiniBand);
    endpoint.handle_notice(closed);
    endpoint.close();
    assert_eq!((steps(&mut endpoint), endpoint.state()), (vec![Step::Closed], State::Ending));
}

/// The original stayed connecting for ever.
#[test]
fn a_connection_that_fails_is_told_once() {
    let mut manager = manager(INITIATOR);
    let endpoint = called(ACCEPTOR, 1);
    manager.handle_order(Order::Connect { endpoint }, NOW);
    let mut now = NOW;
    let mut pauses = Vec::new();
    while manager.next_timeout().is_some() {
        for action in actions(&mut manager) {
            if let Action::Resolve { id, .. } = action {
                manager.handle_event(id, Event::AddressError, now);
            }
        }
        if let Some(next) = manager.next_timeout() {
            pauses.push(next - now);
            now = next;
        }
        manager.handle_timeout(now);
    }
    assert_eq!(notices(&mut manager), [Notice::Failed { endpoint, reason: Reason::NoRoute }]);
    assert_eq!((manager.counters().attempts, manager.counters().failed), (20, 1));
    assert!(pauses.is_sorted() && pauses.last() == Some(&Duration::from_secs(2)), "{pauses:?}");
    assert!(now - NOW < Duration::from_secs(40), "in bounded time");
    manager.handle_order(Order::Connect { endpoint }, now);
    assert_eq!((notices(&mut manager), manager.next_timeout()), (vec![], None));
    let kick = said(ACCEPTOR, Body::Kick, 0).emit();
    assert_eq!(answered(&mut manager, &kick), Some(Refusal::Failed), "the other side is told, too");
}

/// siw says so from rdma_connect itself.
#[test]
fn a_connect_that_is_refused_at_once_is_tried_again_and_its_other_queues_given_up() {
    let mut manager = manager(INITIATOR);
    let ids = asking(&mut manager);
    // Of the second, nothing has been done yet.
    while !matches!(manager.poll_action(), Some(Action::Connect { .. })) {}
    manager.handle_event(ids[0], Event::Refused, NOW);
    let destroyed: Vec<Action> = ids.iter().map(|id| Action::Destroy { id: *id }).collect();
    assert_eq!(actions(&mut manager), destroyed);
    let pause = manager.next_timeout().expect("it goes on");
    assert!(pause - NOW < Duration::from_secs(1));
    manager.handle_timeout(pause);
    assert_eq!(manager.counters().attempts, 2);
}

#[test]
fn each_rejection_is_understood() {
    let last = [
        Refusal::WrongDirection,
        Refusal::Incarnation,
        Refusal::Specification,
        Refusal::Version,
        Refusal::Malformed,
        Refusal::Failed,
        Refusal::Closing,
    ];
    let reject = |why| {
        let mut manager = manager(INITIATOR);
        let ids = asking(&mut manager);
        let mut private = said(ACCEPTOR, Body::Rejection(why), 1).emit().to_vec();
        private.resize(148, 0);
        manager.handle_event(ids[1], Event::Rejected { private: &private }, NOW);
        manager
    };
    for why in last {
        let mut manager = reject(why);
        let failed = Notice::Failed { endpoint: called(ACCEPTOR, 1), reason: Reason::Refused(why) };
        assert_eq!(notices(&mut manager), [failed]);
        assert!(manager.desk.ids.is_empty() && manager.next_timeout().is_none());
    }
    let mut later = reject(Refusal::Later);
    assert_eq!(notices(&mut later), []);
    let link = &later.links[&called(ACCEPTOR, 1)];
    assert_eq!((link.phase, link.failures, link.postponements), (Phase::Pausing, 0, 1));
}

#[test]
fn each_request_that_cannot_be_is_rejected_with_its_reason() {
    let request = said(INITIATOR, Body::Request { queue: 0 }, 1);
    let mut version = request.emit();
    version[4] += 1;
    let cases = [
        (version.to_vec(), Refusal::Version),
        (said(INITIATOR, Body::Reply { queue: 0 }, 1).emit().to_vec(), Refusal::Malformed),
        (said(INITIATOR, Body::Kick, 1).emit().to_vec(), Refusal::Malformed),
        (said(INITIATOR, Body::Request { queue: 2 }, 1).emit().to_vec(), Refusal::Malformed),
        (Private { target: 0, ..request }.emit().to_vec(), Refusal::Incarnation),
        (Private { target: 0, process: 5, ..request }.emit().to_vec(), Refusal::Incarnation),
        (Private { nonce: 0, ..request }.emit().to_vec(), Refusal::Later),
        (Private { listener: 3, ..request }.emit().to_vec(), Refusal::Later),
        (Private { specification: 0, ..request }.emit().to_vec(), Refusal::Specification),
        (Private { queues: 3, ..request }.emit().to_vec(), Refusal::Specification),
        (Private { attempt: 0, ..request }.emit().to_vec(), Refusal::Later),
    ];
    for (private, why) in cases {
        assert_eq!(answered(&mut manager(ACCEPTOR), &private), Some(why));
    }
    let mut ending = manager(ACCEPTOR);
    ending.handle_order(Order::Finalize, NOW);
    assert_eq!(answered(&mut ending, &request.emit()), Some(Refusal::Closing));
    let kick = said(ACCEPTOR, Body::Kick, 0).emit();
    assert_eq!(answered(&mut manager(INITIATOR), &kick), Some(Refusal::WrongDirection));
}

/// Otherwise each side would begin anew when the other does.
#[test]
fn the_asking_side_gives_up_before_the_asked_one() {
    let usual = manager(ACCEPTOR).desk.settings;
    assert!(usual.answer >= 2 * usual.attempt + 2 * usual.longest);
    let mut asked = manager(ACCEPTOR);
    let request = said(INITIATOR, Body::Request { queue: 0 }, 1).emit();
    assert_eq!(answered(&mut asked, &request), None);
    let mut asking_side = manager(INITIATOR);
    asking(&mut asking_side);
    assert!(asking_side.next_timeout() < asked.next_timeout());
    let late = asked.next_timeout().expect("a timer");
    let next = said(INITIATOR, Body::Request { queue: 0 }, 2).emit();
    assert_eq!(answered(&mut asked, &next), None, "the next attempt takes the place of the last");
    asked.handle_timeout(late);
    assert_eq!(answered(&mut asked, &next), Some(Refusal::Later), "which is over now");
}

#[test]
fn a_reply_of_somebody_else_fails() {
    let reply = said(ACCEPTOR, Body::Reply { queue: 0 }, 1);
    let others = [
        Private { nonce: 1, ..reply },
        Private { target: 1, ..reply },
        Private { attempt: 2, ..reply },
        Private { body: Body::Reply { queue: 1 }, ..reply },
        Private { body: Body::Kick, ..reply },
    ];
    for other in others {
        let mut manager = manager(INITIATOR);
        let ids = asking(&mut manager);
        manager.handle_event(ids[0], Event::Established { private: &other.emit() }, NOW);
        let endpoint = called(ACCEPTOR, 1);
        assert_eq!(notices(&mut manager), [Notice::Failed { endpoint, reason: Reason::Malformed }]);
    }
}

/// An endpoint of the initiator's that is connected, and has said its steps.
fn connected_initiator() -> Endpoint {
    let mut endpoint = endpoint(INITIATOR, Wire::InfiniBand);
    endpoint.want();
    up(&mut endpoint, FIRST);
    endpoint.handle_receives_posted(FIRST);
    endpoint.handle_cts_posted(FIRST);
    endpoint.handle_cts(FIRST);
    steps(&mut endpoint);
    endpoint
}

#[test]
fn a_break_after_connected_is_for_good_and_told_once() {
    let mut endpoint = connected_initiator();
    let id = called(ACCEPTOR, 1);
    endpoint.handle_broken(FIRST, Reason::Broken);
    endpoint.handle_broken(FIRST, Reason::Unreachable);
    endpoint.handle_notice(Notice::Down { endpoint: id, attempt: FIRST, reason: Reason::Broken });
    let expected =
        [Step::Order(Order::Break { endpoint: id, attempt: FIRST }), Step::LetGo { attempt: FIRST }];
    assert_eq!(steps(&mut endpoint), expected);
    assert_eq!(endpoint.handle_arrival(FIRST, 1), Arrival::Deliver, "what has arrived is good");
    assert_eq!(endpoint.state(), State::Parting);
    endpoint.handle_let_go(FIRST);
    let release = Order::Release { endpoint: id, attempt: FIRST, verdict: Verdict::Fail };
    assert_eq!(steps(&mut endpoint), [Step::Order(release), Step::Failed(Reason::Broken)]);
    assert_eq!(endpoint.handle_arrival(FIRST, 1), Arrival::Drop);
    assert_eq!(endpoint.want(), State::Failed);
}

/// What it has said last is read when its queue pairs are let go of, at the latest.
#[test]
fn a_peer_that_has_parted_before_the_end_is_connected_again_when_that_is_wanted() {
    let mut endpoint = connected_initiator();
    let id = called(ACCEPTOR, 1);
    endpoint.handle_notice(Notice::Down { endpoint: id, attempt: FIRST, reason: Reason::Disconnected });
    steps(&mut endpoint);
    endpoint.handle_parted(FIRST);
    endpoint.handle_let_go(FIRST);
    let release = Order::Release { endpoint: id, attempt: FIRST, verdict: Verdict::Part };
    assert_eq!(steps(&mut endpoint), [Step::Order(release)]);
    assert_eq!((endpoint.state(), endpoint.want()), (State::Closed, State::Connecting));
    assert_eq!(steps(&mut endpoint), [Step::Order(Order::Connect { endpoint: id })]);
}

/// Numbers of attempts are never used again, whatever is known of a peer meanwhile.
#[test]
fn attempts_go_on_where_they_were_when_a_peer_is_met_again() {
    let mut manager = manager(INITIATOR);
    asking(&mut manager);
    let (first, second, third) = (called(ACCEPTOR, 1), EndpointId(500), EndpointId(600));
    let attempt = |manager: &Manager, endpoint| manager.links.get(&endpoint).map(|link| link.attempt);
    assert_eq!(attempt(&manager, first), Some(FIRST));
    let add = |endpoint| Order::Add { endpoint, listener: 0, peer: peer(ACCEPTOR, 1) };
    manager.handle_order(add(second), NOW);
    manager.handle_order(Order::Close { endpoint: first }, NOW);
    assert_eq!((attempt(&manager, first), attempt(&manager, second)), (None, Some(FIRST)));
    manager.handle_order(Order::Close { endpoint: second }, NOW);
    manager.handle_order(add(third), NOW);
    assert_eq!((attempt(&manager, second), attempt(&manager, third)), (None, Some(FIRST)));
}

#[test]
fn data_before_the_cts_is_delivered_and_before_the_receives_dropped() {
    let mut endpoint = endpoint(ACCEPTOR, Wire::InfiniBand);
    up(&mut endpoint, FIRST);
    assert_eq!(endpoint.handle_arrival(FIRST, 1), Arrival::Drop);
    endpoint.handle_receives_posted(FIRST);
    endpoint.handle_cts_posted(FIRST);
    assert_eq!(endpoint.state(), State::Connecting);
    assert_eq!(endpoint.handle_arrival(FIRST, 1), Arrival::Deliver);
    assert_eq!(endpoint.handle_arrival(FIRST, 2), Arrival::Drop, "there is no such queue");
    assert!(!endpoint.may_send(1));
}

/// Brings an attempt of the initiator up.
fn up_at_the_initiator() -> Manager {
    let mut manager = manager(INITIATOR);
    for (queue, id) in asking(&mut manager).into_iter().enumerate() {
        let reply = said(ACCEPTOR, Body::Reply { queue: queue as u8 }, 1).emit();
        manager.handle_event(id, Event::Established { private: &reply }, NOW);
    }
    assert!(matches!(notices(&mut manager)[..], [Notice::Up { .. }]));
    manager
}

/// One side has no memory for receives, say: its process waited without end.
#[test]
fn attempts_that_come_to_nothing_in_the_main_thread_are_counted_like_others() {
    let mut manager = manager(INITIATOR);
    let endpoint = called(ACCEPTOR, 1);
    manager.handle_order(Order::Connect { endpoint }, NOW);
    let (mut now, mut told) = (NOW, Vec::new());
    for number in 1..=21 {
        for id in actions(&mut manager).iter().map(Action::id).collect::<Vec<_>>() {
            manager.handle_event(id, Event::AddressResolved, now);
            manager.handle_event(id, Event::RouteResolved, now);
            let queue =
                manager.links[&endpoint].legs.iter().position(|leg| leg.is_some_and(|leg| leg.id == id));
            let reply =
                said(ACCEPTOR, Body::Reply { queue: queue.expect("of a queue") as u8 }, number).emit();
            manager.handle_event(id, Event::Established { private: &reply }, now);
        }
        let attempt = Attempt(number);
        manager.handle_order(Order::Break { endpoint, attempt }, now);
        manager.handle_order(Order::Release { endpoint, attempt, verdict: Verdict::Again }, now);
        actions(&mut manager);
        told = notices(&mut manager);
        let Some(next) = manager.next_timeout() else { break };
        now = next;
        manager.handle_timeout(now);
    }
    assert_eq!(manager.counters().attempts, 20);
    assert_eq!(told, [Notice::Failed { endpoint, reason: Reason::Broken }]);
    assert!(now - NOW < Duration::from_secs(40), "in bounded time");
}

#[test]
fn a_kick_ends_what_is_up_only_if_its_sender_has_given_that_up() {
    let mut manager = up_at_the_initiator();
    let crossed = said(ACCEPTOR, Body::Kick, 0).emit();
    assert_eq!(answered(&mut manager, &crossed), Some(Refusal::WrongDirection));
    assert_eq!(notices(&mut manager), []);
    let given_up = said(ACCEPTOR, Body::Kick, 1).emit();
    assert_eq!(answered(&mut manager, &given_up), Some(Refusal::Later));
    let endpoint = called(ACCEPTOR, 1);
    let down = Notice::Down { endpoint, attempt: FIRST, reason: Reason::Abandoned };
    assert_eq!(notices(&mut manager), [down]);
    let again = Order::Release { endpoint, attempt: FIRST, verdict: Verdict::Again };
    manager.handle_order(again, NOW);
    assert_eq!(answered(&mut manager, &given_up), Some(Refusal::WrongDirection));
    assert_eq!(manager.counters().attempts, 2, "at once");
}

/// What was asked over iWARP has nothing outstanding by which it would notice.
#[test]
fn an_acceptor_asks_whether_what_is_up_is_still_known_until_it_is_connected() {
    let endpoint = called(INITIATOR, 1);
    for is_settled in [false, true] {
        let mut manager = manager(ACCEPTOR);
        for queue in 0..2 {
            let request = said(INITIATOR, Body::Request { queue }, 1).emit();
            manager.handle_request(0, Id::Peers(u32::from(queue)), &request, NOW);
            let established = Event::Established { private: &[] };
            manager.handle_event(Id::Peers(u32::from(queue)), established, NOW);
        }
        actions(&mut manager);
        assert!(matches!(notices(&mut manager)[..], [Notice::Up { .. }]));
        if is_settled {
            manager.handle_order(Order::Settled { endpoint, attempt: FIRST }, NOW);
            assert_eq!(manager.next_timeout(), None, "then it is the main thread's alone");
            continue;
        }
        manager.handle_timeout(manager.next_timeout().expect("a timer"));
        let [Action::Resolve { id, .. }] = actions(&mut manager)[..] else { panic!("a kick") };
        let failed = said(INITIATOR, Body::Rejection(Refusal::Failed), 0).emit();
        manager.handle_event(id, Event::Rejected { private: &failed }, NOW);
        let reason = Reason::Refused(Refusal::Failed);
        assert_eq!(notices(&mut manager), [Notice::Down { endpoint, attempt: FIRST, reason }]);
        let again = Order::Release { endpoint, attempt: FIRST, verdict: Verdict::Again };
        manager.handle_order(again, NOW);
        assert_eq!(notices(&mut manager), [Notice::Failed { endpoint, reason }], "both have failed");
    }
}

/// Linux says so to every id whose peer's link address it has lost: an outage of seconds does that, and the device sends again.
#[test]
fn a_way_that_the_kernel_has_lost_ends_what_is_not_connected_on_both_sides_and_only_casts_doubt_on_what_is() {
    let endpoint = called(ACCEPTOR, 1);
    for is_settled in [false, true] {
        let mut manager = up_at_the_initiator();
        let id = manager.links.values().find_map(|link| link.legs[0]).expect("it is up").id;
        actions(&mut manager);
        if is_settled {
            manager.handle_order(Order::Settled { endpoint, attempt: FIRST }, NOW);
        }
        manager.handle_event(id, Event::Unreachable, NOW);
        if is_settled {
            assert_eq!(notices(&mut manager), [Notice::Doubted { endpoint, attempt: FIRST }]);
            assert_eq!(actions(&mut manager), [], "it is as it was");
            manager.handle_event(id, Event::Disconnected, NOW);
        }
        let reason = if is_settled { Reason::Disconnected } else { Reason::Unreachable };
        assert_eq!(notices(&mut manager), [Notice::Down { endpoint, attempt: FIRST, reason }]);
    }
}
