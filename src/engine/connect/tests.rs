//! What was once wrong in others, and what the engine promises, each in a few steps over real bytes.

use super::table::{Input, Row, action};
use super::world::{mailbox, name, settings};
use super::*;
use crate::engine::time::MILLI;
use crate::wire::gni::datagram::{Body, Credentials, Refusal, Segment};
use std::time::Duration;

/// Connection managers, numbered like their devices, and what their users were told.
struct Net {
    engines: Vec<Engine>,
    told: Vec<Vec<Event>>,
    now: Instant,
}

impl Net {
    fn new(settings: Settings, count: usize) -> Self {
        let engines = vec![Engine::new(settings); count];
        Self { engines, told: vec![Vec::new(); count], now: Instant::ORIGIN }
    }

    /// Two with an endpoint each, in their first life.
    fn pair() -> Self {
        let mut net = Self::new(Settings::new([3; 16], settings().credentials), 2);
        for side in 0..2 {
            net.open(side, name(side, 1));
        }
        net
    }

    fn open(&mut self, side: usize, name: NameId) -> EndpointId {
        let endpoint = self.engines[side].open(name).expect("it is new");
        self.engines[side].enable(endpoint, self.now).expect("it is there");
        endpoint
    }

    fn connect(&mut self, side: usize, peer: usize) -> State {
        self.engines[side].connect(EndpointId(1), name(peer, 0), self.now).expect("it is enabled")
    }

    fn state(&self, side: usize, peer: usize) -> State {
        self.engines[side].state(EndpointId(1), name(peer, 0))
    }

    /// The users do what they are asked for.
    fn serve(&mut self) {
        for side in 0..self.engines.len() {
            while let Some(event) = self.engines[side].poll_event() {
                self.told[side].push(event);
                let done = match event {
                    Event::MailboxWanted { vc, .. } => {
                        self.engines[side].mailbox_ready(vc, mailbox(side, 1, vc), self.now)
                    }
                    Event::Closing { vc, .. } => self.engines[side].drained(vc, self.now),
                    _ => Ok(()),
                };
                assert_eq!(done, Ok(()), "{event:?}");
            }
        }
    }

    /// What a side has to send now: no more than it has connections and answers.
    fn sent(&mut self, side: usize) -> Vec<Transmit> {
        let engine = &mut self.engines[side];
        let most = engine.answers.len() + engine.pairs.len();
        let sent: Vec<Transmit> =
            std::iter::from_fn(|| engine.poll_transmit(self.now)).take(most + 1).collect();
        assert!(sent.len() <= most, "a pass has an end");
        assert!(engine.poll_transmit(self.now).is_none(), "and none begins by itself");
        sent
    }

    fn deliver(&mut self, from: usize, sent: &[Transmit]) {
        for Transmit { target, bytes, length, .. } in sent {
            let to = &mut self.engines[target.device as usize];
            to.handle_datagram(&bytes[..*length], Route(from as u64), self.now);
        }
    }

    /// Until nobody has anything to say.
    fn pump(&mut self) {
        loop {
            self.serve();
            let all: Vec<_> = (0..self.engines.len()).map(|side| self.sent(side)).collect();
            for (from, sent) in all.iter().enumerate() {
                self.deliver(from, sent);
            }
            if all.iter().all(Vec::is_empty) {
                return;
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(millis * MILLI);
        for engine in &mut self.engines {
            engine.handle_timeout(self.now);
        }
    }

    fn ends(&self, side: usize) -> Vec<End> {
        let end = |event: &Event| if let Event::Ended { end, .. } = event { Some(*end) } else { None };
        self.told[side].iter().filter_map(end).collect()
    }

    fn connections(&self, side: usize) -> usize {
        self.told[side].iter().filter(|event| matches!(event, Event::Connected { .. })).count()
    }
}

fn said(transmit: &Transmit) -> Datagram {
    Datagram::parse(&transmit.bytes[..transmit.length], &[3; 16]).expect("what is sent can be read")
}

/// ofi-cray#1238: one datagram was outstanding to a process, and nobody woke the others. ofi-cray#672: a pass of
/// progress did not end while two endpoints were being connected.
#[test]
fn many_endpoints_of_two_processes_connect_at_once_and_none_stalls() {
    let mut net = Net::new(settings(), 2);
    let names: Vec<NameId> = (0..2)
        .flat_map(|device| (1..=6).map(move |cdm_id| NameId { device, cdm_id, incarnation: 1 }))
        .collect();
    for name in &names {
        net.open(name.device as usize, *name);
    }
    let others = |name: &NameId| names.iter().filter(|peer| *peer != name).copied().collect::<Vec<_>>();
    for name in &names {
        for peer in others(name) {
            let engine = &mut net.engines[name.device as usize];
            engine.connect(EndpointId(name.cdm_id), peer, Instant::ORIGIN).expect("it is enabled");
        }
    }
    net.pump();
    for name in &names {
        for peer in others(name) {
            let engine = &net.engines[name.device as usize];
            assert_eq!(engine.state(EndpointId(name.cdm_id), peer), State::Connected);
        }
    }
}

/// ofi-cray#599, ofi-cray#647, ofiwg#1721: a connection could send both a request and a response.
#[test]
fn crossing_requests_connect_both_sides_and_nobody_responds() {
    let mut net = Net::pair();
    assert_eq!([net.connect(0, 1), net.connect(1, 0)], [State::Connecting; 2]);
    net.serve();
    let requests = [net.sent(0), net.sent(1)];
    net.deliver(0, &requests[0]);
    net.deliver(1, &requests[1]);
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
    assert_eq!([net.sent(0).len(), net.sent(1).len()], [0, 0], "nothing is left to be said");
    net.pass(20);
    let again = net.sent(0);
    assert!(matches!(said(&again[0]).body, Body::Request(_)) && said(&again[0]).target_vc != 0);
    net.deliver(0, &again);
    assert!(matches!(said(&net.sent(1)[0]).body, Body::Confirm));
}

/// The request of one side is lost when they cross: the other cannot know it, and finds out.
#[test]
fn whoever_is_connected_by_a_crossing_sees_to_it_that_the_other_is() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.connect(1, 0);
    net.serve();
    let (lost, request) = (net.sent(0), net.sent(1));
    assert_eq!(lost.len(), 1);
    net.deliver(1, &request);
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected, State::Connecting]);
    net.pass(20);
    net.pump();
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
    assert!(net.engines.iter().all(|engine| engine.poll_timeout().is_none()), "nothing is left to be asked");
}

/// ofi-cray#1013, ofi-cray#1022, ofi-cray#1264: what was to be sent before there was a connection stayed where it was.
#[test]
fn who_waits_for_a_connection_is_told_whichever_way_it_comes() {
    // The peer's request comes first, from a name that is in no address vector.
    let mut net = Net::pair();
    net.connect(1, 0);
    net.pump();
    assert!(matches!(net.told[0][1], Event::Connected { mapped: false, .. }));
    assert_eq!(net.connect(0, 1), State::Connected, "at once");
    net.serve();
    assert!(matches!(net.told[0][2..], [Event::Mapped { .. }]));
    net.engines[0].insert(EndpointId(1), name(1, 0)).expect("it is there");
    assert_eq!(net.engines[0].poll_event(), None, "which is told once");
    // It comes while the mailbox is not there yet.
    let mut net = Net::pair();
    net.connect(0, 1);
    net.connect(1, 0);
    let wanted = net.engines[0].poll_event();
    net.serve();
    let request = net.sent(1);
    net.deliver(1, &request);
    let Some(Event::MailboxWanted { vc, .. }) = wanted else { panic!("it is wanted") };
    net.engines[0].mailbox_ready(vc, mailbox(0, 1, vc), net.now).expect("it is");
    net.pump();
    assert_eq!((net.connections(0), net.connections(1)), (1, 1));
    // It is asked for while an earlier one is being ended.
    net.engines[0].close(vc, 0, net.now).expect("it is there");
    assert_eq!(net.connect(0, 1), State::Terminating);
    net.pump();
    assert_eq!((net.ends(0), net.state(0, 1)), (vec![End::Closed], State::Connected));
    assert_eq!(net.connections(0), 2);
}

/// ofiwg#3660: what was opened, closed and opened again in one process did not come back.
#[test]
fn an_endpoint_is_closed_and_opened_again_and_again() {
    let mut net = Net::new(Settings::new([3; 16], settings().credentials), 2);
    for life in 1..4 {
        for side in 0..2 {
            net.open(side, name(side, life));
        }
        net.connect(0, 1);
        net.pump();
        assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
        for side in 0..2 {
            let vc = net.engines[side].connections(EndpointId(1)).next();
            assert_eq!(net.engines[side].remove(EndpointId(1)), Err(Rejected::Busy));
            net.engines[side].shut(EndpointId(1)).expect("it is there");
            net.engines[side].close(vc.expect("it is connected"), 0, net.now).expect("it is there");
        }
        net.pump();
        for side in 0..2 {
            assert_eq!(net.engines[side].remove(EndpointId(1)), Ok(()));
            assert!(net.engines[side].poll_timeout().is_none() && net.engines[side].pairs.is_empty());
        }
    }
    assert_eq!(net.ends(0), [End::Closed; 3]);
}

/// What is shut is given up although its peer says nothing, and the name is free at once.
#[test]
fn an_abandoned_endpoint_leaves_nothing_and_its_name_is_used_again() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.pump();
    assert_eq!(net.engines[0].abandon(EndpointId(1)), Err(Rejected::Busy), "it is not shut");
    let vc = net.engines[0].connections(EndpointId(1)).next().expect("it is connected");
    net.engines[0].shut(EndpointId(1)).expect("it is there");
    net.engines[0].close(vc, 0, net.now).expect("it is there");
    assert_eq!(net.sent(0).len(), 1, "which is lost");
    assert_eq!(net.engines[0].remove(EndpointId(1)), Err(Rejected::Busy));
    assert_eq!(net.engines[0].open(name(0, 2)), Err(Rejected::Taken));
    assert_eq!(net.engines[0].abandon(EndpointId(1)), Ok(()));
    let engine = &net.engines[0];
    assert!(engine.pairs.is_empty() && engine.places.is_empty() && engine.poll_timeout().is_none());
    assert_eq!(net.engines[0].abandon(EndpointId(1)), Err(Rejected::NoEndpoint));
    net.open(0, name(0, 2));
    net.connect(0, 1);
    net.pump();
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
    assert_eq!(net.ends(1), [End::Lost(Reason::Renewed)], "the other life is over");
}

/// As a port of TCP is used again: what is still on its way to or from the one before is not for the one after.
#[test]
fn datagrams_of_an_earlier_life_are_not_taken_for_those_of_a_later_one() {
    let mut net = Net::pair();
    net.connect(1, 0);
    net.serve();
    let old = net.sent(1);
    net.deliver(1, &old);
    net.pump();
    assert_eq!(net.state(0, 1), State::Connected);
    net.engines[1] = Engine::new(net.engines[0].settings.clone());
    net.open(1, name(1, 2));
    net.connect(1, 0);
    net.pump();
    assert_eq!(net.ends(0), [End::Lost(Reason::Renewed)], "the old one is over");
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
    let before = net.engines[0].counters().stale;
    net.deliver(1, &old);
    let [Transmit { bytes, length, .. }] = old[..] else { panic!("it was one") };
    net.engines[0].handle_datagram(&bytes[..length], Route(9), net.now);
    net.pump();
    assert_eq!(net.engines[0].counters().stale, before + 2);
    assert!(
        net.engines[0].pairs.values().all(|pair| pair.route == Some(Route(1))),
        "nor answered on its way"
    );
    net.engines[0].peer_died(name(1, 1), net.now);
    assert_eq!(net.state(0, 1), State::Connected, "that life had ended before");
    net.engines[0].peer_died(name(1, 2), net.now);
    net.pump();
    assert_eq!(net.ends(0)[1..], [End::Lost(Reason::Died)]);
    assert_eq!(net.state(0, 1), State::Error);
}

#[test]
fn strangers_are_refused_and_told_why() {
    let own = settings().credentials;
    for (other, why) in [
        (Credentials { cookie: 1, ..own }, Refusal::Cookie),
        (Credentials { domain: 1, ..own }, Refusal::Domain),
    ] {
        let mut net = Net::pair();
        net.engines[1].settings.credentials = other;
        net.connect(1, 0);
        net.pump();
        assert_eq!(net.ends(1), [End::Failed(Reason::Refused(why))]);
        assert_eq!(net.engines[0].counters().strangers, 1);
    }
    let mut net = Net::pair();
    net.engines[0].connect(EndpointId(1), NameId { cdm_id: 9, ..name(1, 0) }, net.now).expect("enabled");
    net.pump();
    assert_eq!(net.ends(0), [End::Failed(Reason::Refused(Refusal::NoEndpoint))]);
    assert_eq!(net.engines[1].counters().misdirected, 1);
}

#[test]
fn what_is_not_genuine_or_none_at_all_is_dropped_and_counted() {
    let mut net = Net::pair();
    net.engines[1].settings.key = [4; 16];
    net.connect(1, 0);
    net.pump();
    for length in 0..300 {
        net.engines[0].handle_datagram(&vec![length as u8; length], Route(1), net.now);
    }
    let Counters { forged, malformed, received, sent, .. } = *net.engines[0].counters();
    assert_eq!((forged, malformed, received, sent), (10, 291, 0, 0));
    assert!(net.engines[0].pairs.is_empty());
}

#[test]
fn a_connection_to_itself_leads_back_without_a_datagram() {
    let mut net = Net::pair();
    net.connect(0, 0);
    net.pump();
    assert_eq!((net.state(0, 0), net.engines[0].counters().sent), (State::Connected, 0));
    let Some(vc) = net.engines[0].connection(EndpointId(1), name(0, 0)) else { panic!("it is there") };
    assert!(net.told[0].iter().any(
        |event| matches!(event, Event::Connected { attributes, .. } if *attributes == mailbox(0, 1, vc))
    ));
    net.engines[0].close(vc, 3, net.now).expect("it is there");
    net.pump();
    assert_eq!((net.ends(0), net.engines[0].counters().sent), (vec![End::Closed], 0));
}

#[test]
fn what_is_not_answered_is_said_again_ever_later_and_not_for_ever() {
    let mut net = Net::pair();
    net.engines[0].settings.attempts = 8;
    net.connect(0, 1);
    net.serve();
    let mut gaps = Vec::new();
    loop {
        assert!(net.sent(0).len() <= 1);
        let Some(at) = net.engines[0].poll_timeout() else { break };
        gaps.push((at - net.now).as_millis());
        net.now = at;
        net.engines[0].handle_timeout(at);
    }
    net.serve();
    assert_eq!(gaps, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    assert_eq!(net.ends(0), [End::Failed(Reason::Silent)]);
    let Counters { sent, resent, silent, .. } = *net.engines[0].counters();
    assert_eq!((sent, resent, silent), (9, 8, 1));
}

#[test]
fn a_mailbox_that_is_not_there_is_asked_for_again_and_the_peer_waits() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.serve();
    let request = net.sent(0);
    net.deliver(0, &request);
    for _ in 0..300 {
        let Some(Event::MailboxWanted { vc, .. }) = net.engines[1].poll_event() else {
            panic!("it is wanted")
        };
        net.engines[1].mailbox_lacking(vc, net.now).expect("it was wanted");
        net.pass(1000);
        let again = net.sent(0);
        net.deliver(0, &again);
        let later = net.sent(1);
        assert!(later.iter().all(|later| said(later).body == Body::Later));
        net.deliver(1, &later);
    }
    assert_eq!(net.state(0, 1), State::Connecting, "after more time than a silent peer is given");
    net.pump();
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Connected; 2]);
}

#[test]
fn a_mailbox_that_there_will_not_be_is_told_both() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.serve();
    let request = net.sent(0);
    net.deliver(0, &request);
    let Some(Event::MailboxWanted { vc, .. }) = net.engines[1].poll_event() else { panic!("it is wanted") };
    net.engines[1].mailbox_denied(vc, net.now).expect("it was wanted");
    assert_eq!(net.engines[1].mailbox_denied(vc, net.now), Err(Rejected::NoConnection));
    net.pump();
    assert_eq!(net.ends(0), [End::Failed(Reason::Refused(Refusal::NoResources))]);
    assert_eq!(net.ends(1), [End::Failed(Reason::NoResources)]);
}

#[test]
fn a_peer_that_ends_a_connection_says_how_much_there_is_to_read() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.pump();
    let vc = net.engines[0].connections(EndpointId(1)).next().expect("it is connected");
    net.engines[0].close(vc, 77, net.now).expect("it is there");
    let end = net.sent(0);
    net.deliver(0, &end);
    let Some(Event::Closing { vc, sent: 77 }) = net.engines[1].poll_event() else { panic!("it is told") };
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Terminating; 2]);
    assert!(net.sent(1).is_empty(), "not before everything is read");
    net.engines[1].drained(vc, net.now).expect("it was to be");
    net.pump();
    assert_eq!((net.ends(0), net.ends(1)), (vec![End::Closed], vec![End::Closed]));
    assert_eq!([net.state(0, 1), net.state(1, 0)], [State::Terminated; 2]);
}

#[test]
fn peers_that_nobody_knows_are_many_but_not_too_many() {
    let mut net = Net::new(settings(), 1);
    net.open(0, name(0, 1));
    let request = |device: u32| Datagram {
        credentials: settings().credentials,
        target: name(0, 0),
        source: NameId { device, cdm_id: 1, incarnation: 1 },
        target_vc: 0,
        source_vc: 1,
        body: Body::Request(mailbox(1, 1, Vc(1))),
    };
    for device in 1..=9 {
        net.engines[0].hear(&request(device), Route(1), net.now);
    }
    assert_eq!((net.engines[0].pairs.len(), net.engines[0].counters().postponed), (8, 1));
    net.engines[0].peer_died(NameId { device: 3, cdm_id: 1, incarnation: 1 }, net.now);
    net.engines[0].hear(&request(9), Route(1), net.now);
    assert_eq!(
        (net.engines[0].pairs.len(), net.engines[0].counters().postponed),
        (8, 1),
        "in the place of another"
    );
}

#[test]
fn peers_that_are_in_no_address_vector_any_more_are_forgotten() {
    let mut net = Net::new(settings(), 1);
    let here = net.open(0, name(0, 1));
    let peer = |device: u32| NameId { device, cdm_id: 1, incarnation: 1 };
    (1..=20).for_each(|device| net.engines[0].insert(here, peer(device)).expect("open"));
    net.engines[0].trim(here);
    assert_eq!(net.engines[0].pairs.len(), 20);
    (1..=20).for_each(|device| net.engines[0].withdraw(here, peer(device)).expect("open"));
    net.engines[0].connect(here, peer(20), net.now).expect("enabled");
    net.engines[0].trim(here);
    assert_eq!(net.engines[0].pairs.len(), settings().unmapped + 1);
    assert_eq!(net.engines[0].state(here, peer(20)), State::Connecting);
}

#[test]
fn a_segment_is_that_of_the_process_that_tells_of_it() {
    let mut net = Net::new(settings(), 1);
    net.open(0, name(0, 1));
    let told = mailbox(1, 1, Vc(1));
    let request = Datagram {
        credentials: settings().credentials,
        target: name(0, 0),
        source: NameId { device: 1, cdm_id: 1, incarnation: 1 },
        target_vc: 0,
        source_vc: 1,
        body: Body::Request(told),
    };
    let mut bytes = [0; LEN];
    let length = request.emit(&settings().key, &mut bytes);
    let liar = told.segment.pid + 1;
    net.engines[0].handle_datagram_of(Some(liar), &bytes[..length], Route(1), net.now);
    let adopted = net.engines[0].pairs.values().find_map(|pair| pair.adopted).expect("asked");
    assert_eq!(adopted.attributes.segment, Segment { pid: liar, ..told.segment });
}

#[test]
fn who_dies_after_it_has_ended_a_connection_is_read_to_the_end() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.pump();
    let vc = net.engines[0].connections(EndpointId(1)).next().expect("it is connected");
    net.engines[0].close(vc, 5, net.now).expect("it is there");
    let end = net.sent(0);
    net.deliver(0, &end);
    let Some(Event::Closing { vc, .. }) = net.engines[1].poll_event() else { panic!("it is told") };
    // What it had sent outlives it, and it has ended as it should: whether it is seen to die before or after all is read makes
    // no difference.
    net.engines[1].peer_died(name(0, 1), net.now);
    assert_eq!((net.engines[1].poll_event(), net.state(1, 0)), (None, State::Terminating));
    net.engines[1].drained(vc, net.now).expect("it was to be");
    net.pump();
    assert_eq!(net.ends(1), [End::Closed]);
}

#[test]
fn traffic_confirms_a_connection() {
    let mut net = Net::pair();
    net.connect(0, 1);
    net.serve();
    let request = net.sent(0);
    net.deliver(0, &request);
    net.serve();
    net.sent(1);
    assert!(net.engines[1].poll_timeout().is_some(), "nothing says that the response has come");
    let vc = net.engines[1].connections(EndpointId(1)).next().expect("it is connected");
    net.engines[1].heard(vc, net.now).expect("it is there");
    assert!(net.engines[1].poll_timeout().is_none());
}

#[test]
fn settings_give_a_silent_peer_two_minutes_and_an_end_four_seconds() {
    let settings = Settings::new([0; 16], Credentials::default());
    let time = |times: u32| {
        (0..=times)
            .map(|at| (settings.interval * 2_u32.pow(at.min(16))).min(settings.longest))
            .sum::<Duration>()
    };
    assert_eq!(time(settings.attempts).as_secs(), 116);
    assert_eq!(time(settings.farewells).as_secs(), 4);
}

/// No connection leaves a state in which nobody is told of it, and none that is idle is ended twice.
#[test]
fn in_idle_states_only_wishes_and_requests_do_something() {
    let idle = [Row::None, Row::Terminated, Row::Error];
    for row in idle {
        assert!(action(row, Input::Connect) == super::table::Action::Begin && row.is_idle());
        assert_eq!(action(row, Input::Request), super::table::Action::Accept);
        assert_eq!(action(row, Input::Died), super::table::Action::Ignore);
    }
}
