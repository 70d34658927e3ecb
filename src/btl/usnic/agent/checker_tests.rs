//! Two agents over a network of a few lines: it loses what it is told to lose, in virtual time.

use super::checker::*;
use super::mail::{Reply, Request};
use crate::engine::Instant;
use crate::wire::probe::{self, Body, Key, LEN, Message, Process};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

const KEYS: [Key; 2] = [[1; 16], [2; 16]];
const LONG: u32 = 1472;
const CLIENT: ClientId = 5;
const ID: u64 = 77;

fn at(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 4000))
}

/// A module on each node; agents answer at once unless the network loses the datagram.
struct World {
    agents: [Checker; 2],
    now: Instant,
    /// Whether to lose a datagram: from which node, and how long it is.
    loses: Box<dyn FnMut(usize, usize) -> bool>,
    sent: Vec<(usize, usize)>,
    replies: Vec<(usize, ClientId, Reply)>,
    /// Other processes of the nodes, and whether they live.
    others: HashMap<Process, bool>,
    /// What becomes of a call.
    callee: Callee,
    /// That which nobody has answered yet, and when it was taken.
    open: Option<(u64, [u8; LEN])>,
    called: Vec<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Callee {
    Nobody,
    Stopped,
    Runs,
    Forges,
}

fn process(node: usize) -> Process {
    Process { name: node as u64, incarnation: 1000 + node as u32 }
}

impl World {
    fn new(loses: impl FnMut(usize, usize) -> bool + 'static) -> Self {
        let mut world = Self {
            agents: KEYS.map(Checker::new),
            now: Instant::from_nanos(1),
            loses: Box::new(loses),
            sent: Vec::new(),
            replies: Vec::new(),
            others: HashMap::new(),
            callee: Callee::Nobody,
            open: None,
            called: Vec::new(),
        };
        for node in 0..2 {
            world.agents[node].handle_joined(CLIENT, process(node), 0, 4000);
        }
        world.settle();
        for (node, key) in KEYS.into_iter().enumerate() {
            assert!(world.replies.contains(&(node, CLIENT, Reply::Joined { port: 4000, key })));
        }
        world.replies.clear();
        world
    }

    /// Carries everything to and fro until nobody has anything to say.
    fn settle(&mut self) {
        while let Some((node, output)) =
            (0..2).find_map(|node| Some((node, self.agents[node].poll_output()?)))
        {
            match output {
                Output::Reply { client, reply } => self.replies.push((node, client, reply)),
                Output::Call { nonce, socket, to, head } => {
                    assert_eq!((node, socket, to, self.open), (0, 0, at(1), None));
                    self.called.push(self.now - Instant::from_nanos(1));
                    if self.callee != Callee::Nobody {
                        self.agents[0].handle_taken(nonce);
                    }
                    self.open = Some((nonce, head));
                    self.answer();
                }
                Output::HangUp { nonce } => assert_eq!(self.open.take().map(|open| open.0), Some(nonce)),
                Output::Send { socket, to, head, length } => {
                    assert_eq!((socket, to), (0, at(1 - node)));
                    self.sent.push((node, length));
                    if !(self.loses)(node, length) {
                        let lives = |process| self.others.get(&process).copied();
                        let answers = Answers { key: &KEYS[1 - node], lives: &lives };
                        let from = (0, at(node));
                        self.agents[1 - node].handle_datagram(from, &head, length, Some(answers));
                    }
                }
            }
        }
    }

    /// The other agent takes what has been said to it, if it does.
    fn answer(&mut self) {
        let Some((nonce, head)) = self.open else { return };
        let said = match self.callee {
            Callee::Nobody | Callee::Stopped => return,
            Callee::Runs => self.agents[1].handle_call(&head, &KEYS[1]),
            Callee::Forges => Some(Message { nonce, body: Body::Here }.emit(&KEYS[0])),
        };
        assert!(said.is_some());
        self.open = None;
        self.agents[0].handle_hung_up(nonce, said.as_ref(), self.now);
    }

    /// Lets so much time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.agents[0].next_timeout().filter(|at| *at <= until) {
            self.now = at;
            self.agents[0].handle_timeout(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        self.agents[0].handle_request(client, request, self.now);
        self.settle();
    }

    /// Lets time pass until the first agent has nothing to wait for.
    fn finish(&mut self) -> Duration {
        let begin = self.now;
        while let Some(at) = self.agents[0].next_timeout() {
            assert!(at > self.now, "time stands still");
            self.now = at;
            self.agents[0].handle_timeout(self.now);
            self.settle();
        }
        self.now - begin
    }
}

fn check(id: u64) -> Request {
    Request::Check { id, to: at(1), key: KEYS[1], length: LONG, interval_ms: 250, tries: 40 }
}

fn ask(about: Process) -> Request {
    Request::Ask { id: ID, to: at(1), key: KEYS[1], process: about }
}

#[test]
fn a_good_way_is_found_good_with_one_try_of_each() {
    let mut world = World::new(|_, _| false);
    world.request(CLIENT, &check(ID));
    assert_eq!(world.replies, [(0, CLIENT, Reply::Checked { id: ID, short: true, long: true })]);
    assert_eq!(world.sent, [(0, LEN), (0, LONG as usize), (1, LEN), (1, LEN)], "answers are short");
    assert_eq!(world.finish(), Duration::ZERO);
    // The next one who wants to know is told what is known.
    world.request(CLIENT, &check(ID + 1));
    assert_eq!((world.replies.len(), world.sent.len()), (2, 4));
}

#[test]
fn each_verdict_comes_when_all_tries_are_used_up() {
    type Loses = fn(usize, usize) -> bool;
    let cases: [(Loses, bool, bool); 4] = [
        (|_, length| length > 1000, true, false),
        (|node, length| node == 0 && length < 1000, false, true),
        (|_, _| true, false, false),
        (|node, _| node == 1, false, false),
    ];
    for (loses, short, long) in cases {
        let mut world = World::new(loses);
        world.request(CLIENT, &check(ID));
        assert_eq!(world.replies, []);
        assert_eq!(world.finish(), Duration::from_millis(250 * 41));
        assert_eq!(world.replies, [(0, CLIENT, Reply::Checked { id: ID, short, long })]);
        let tries = |of: usize| world.sent.iter().filter(|&&sent| sent == (0, of)).count();
        assert_eq!(
            (tries(LEN), tries(LONG as usize)),
            (if short { 1 } else { 41 }, if long { 1 } else { 41 })
        );
    }
}

#[test]
fn a_network_that_loses_much_is_no_bad_way() {
    for seed in 0..300 {
        let mut random = seed;
        let mut world = World::new(move |_, _| {
            random += 1;
            probe::nonce(&[3; 16], random << 20 | seed) % 100 < 40
        });
        world.request(CLIENT, &check(ID));
        world.finish();
        assert_eq!(
            world.replies,
            [(0, CLIENT, Reply::Checked { id: ID, short: true, long: true })],
            "{seed}"
        );
    }
}

#[test]
fn a_bad_way_is_tried_anew_when_somebody_else_wants_to_know() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.finish();
    world.loses = Box::new(|_, _| false);
    world.request(CLIENT, &check(ID));
    assert_eq!(world.replies[1].2, Reply::Checked { id: ID, short: true, long: true });
}

#[test]
fn many_who_want_to_know_the_same_cost_one_try() {
    let mut world = World::new(|_, _| true);
    let others: Vec<ClientId> = (10..20).collect();
    for &client in &others {
        world.agents[0].handle_joined(client, Process { name: client, incarnation: 1 }, 0, 4000);
    }
    world.settle();
    world.replies.clear();
    others.iter().for_each(|&client| world.request(client, &check(client)));
    assert_eq!(world.sent.len(), 2);
    world.finish();
    assert_eq!(world.sent.len(), 82);
    let told: Vec<_> = world.replies.iter().map(|&(_, client, reply)| (client, reply)).collect();
    let checked = |&id: &u64| (id, Reply::Checked { id, short: false, long: false });
    assert_eq!(told, others.iter().map(checked).collect::<Vec<_>>());
}

#[test]
fn an_agent_that_has_ended_is_no_bad_way() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.request(CLIENT, &ask(process(1)));
    world.agents[0].handle_refused(0, at(1));
    world.finish();
    assert_eq!(world.replies, [(0, CLIENT, Reply::Checked { id: ID, short: true, long: true })]);
}

#[test]
fn what_somebody_else_refuses_excuses_nobody() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.agents[0].handle_refused(0, at(7));
    world.agents[0].handle_refused(1, at(1));
    world.finish();
    assert_eq!(world.replies, [(0, CLIENT, Reply::Checked { id: ID, short: false, long: false })]);
}

const WHOLE: Duration = Duration::from_millis(250 * 41);
const UNREACHED: (usize, ClientId, Reply) = (0, CLIENT, Reply::Checked { id: ID, short: false, long: false });
const REACHED: (usize, ClientId, Reply) = (0, CLIENT, Reply::Checked { id: ID, short: true, long: true });

/// As a debugger does.
#[test]
fn who_takes_a_call_and_says_nothing_is_waited_for() {
    let mut world = World::new(|_, _| true);
    world.callee = Callee::Stopped;
    world.request(CLIENT, &check(ID));
    world.pass(Duration::from_secs(10_000));
    let waiting = (0, CLIENT, Reply::Waiting { id: ID });
    assert_eq!(std::mem::take(&mut world.replies), [waiting], "it may go on at any time");
    assert_eq!(world.called, [Duration::from_millis(250 * 21)], "once");
    // It goes on, and reads its calls first.
    (world.callee, world.loses) = (Callee::Runs, Box::new(|_, _| false));
    world.answer();
    world.finish();
    assert_eq!((&world.replies[..], world.open), (&[REACHED][..], None));
}

#[test]
fn who_is_waited_for_and_answers_a_datagram_first_needs_no_call_any_more() {
    let mut world = World::new(|_, _| true);
    world.callee = Callee::Stopped;
    world.request(CLIENT, &check(ID));
    world.pass(WHOLE);
    world.replies.clear();
    // The long one has not been there any more.
    let mut is_first = true;
    world.loses = Box::new(move |node, length| node == 0 && length > LEN && std::mem::take(&mut is_first));
    world.pass(WHOLE);
    assert_eq!((&world.replies[..], world.open), (&[REACHED][..], None), "hung up");
}

#[test]
fn who_asks_later_about_one_that_is_waited_for_hears_so_at_once() {
    let mut world = World::new(|_, _| true);
    world.callee = Callee::Stopped;
    world.request(CLIENT, &check(ID));
    world.pass(WHOLE);
    world.request(CLIENT, &check(ID + 1));
    let waiting = |id| (0, CLIENT, Reply::Waiting { id });
    assert_eq!(world.replies, [waiting(ID), waiting(ID + 1)]);
    // Nobody has the port of UDP any more: it is somebody else who has taken the call.
    world.agents[0].handle_refused(0, at(1));
    world.finish();
    let reached = |id| (0, CLIENT, Reply::Checked { id, short: true, long: true });
    assert_eq!(world.replies[2..], [reached(ID), reached(ID + 1)]);
}

/// As a packet filter does that stops datagrams only.
#[test]
fn who_answers_a_call_and_no_datagram_is_not_reached() {
    for callee in [Callee::Runs, Callee::Forges] {
        let mut world = World::new(|_, _| true);
        world.callee = callee;
        world.request(CLIENT, &check(ID));
        assert_eq!((world.finish(), &world.replies[..]), (WHOLE, &[UNREACHED][..]));
        // Or was stopped for a while before it does.
        world.replies.clear();
        world.callee = Callee::Stopped;
        world.request(CLIENT, &check(ID));
        world.pass(WHOLE * 10);
        world.replies.clear();
        world.callee = callee;
        world.answer();
        world.pass(Duration::from_millis(250 * 5));
        assert_eq!(world.replies, [UNREACHED]);
    }
}

#[test]
fn who_has_taken_a_call_and_is_killed_is_waited_for_no_longer() {
    for is_refused in [false, true] {
        let mut world = World::new(|_, _| true);
        world.callee = Callee::Stopped;
        world.request(CLIENT, &check(ID));
        world.pass(WHOLE * 2);
        world.replies.clear();
        let (nonce, _) = world.open.take().expect("taken");
        let now = world.now;
        world.agents[0].handle_hung_up(nonce, None, now);
        if is_refused {
            world.agents[0].handle_refused(0, at(1));
        }
        world.pass(Duration::from_millis(250 * 5));
        assert_eq!(world.replies, [if is_refused { REACHED } else { UNREACHED }]);
    }
}

#[test]
fn whoever_wants_to_know_nothing_any_more_hangs_up() {
    let mut world = World::new(|_, _| true);
    world.callee = Callee::Stopped;
    world.request(CLIENT, &check(ID));
    world.pass(WHOLE * 2);
    world.agents[0].handle_left(CLIENT);
    world.settle();
    assert_eq!((world.open, world.finish()), (None, Duration::ZERO));
}

#[test]
fn who_calls_is_answered_if_that_is_genuine() {
    let mut agent = Checker::new(KEYS[0]);
    let said = |body, key: &Key| Message { nonce: 5, body }.emit(key);
    let answer = agent.handle_call(&said(Body::Call, &KEYS[0]), &KEYS[0]);
    assert_eq!(answer, Some(said(Body::Here, &KEYS[0])));
    let others = [
        said(Body::Call, &KEYS[1]),
        said(Body::Here, &KEYS[0]),
        said(Body::Ping { length: LEN as u32 }, &KEYS[0]),
        [0xFF; LEN],
    ];
    assert!(others.iter().all(|other| agent.handle_call(other, &KEYS[0]).is_none()));
    let counts = agent.counts();
    assert_eq!((counts.asks, counts.forged, counts.stray, counts.malformed), (1, 1, 2, 1));
    // Over a call only.
    let call = said(Body::Call, &KEYS[0]);
    let answers = Answers { key: &KEYS[0], lives: &|_| None };
    agent.handle_datagram((0, at(1)), &call, LEN, Some(answers));
    assert_eq!((agent.counts().stray, agent.poll_output()), (3, None));
}

/// As a packet filter does while its rules are changed.
#[test]
fn a_refusal_ends_no_errand() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.request(CLIENT, &ask(process(1)));
    world.agents[0].handle_refused(0, at(1));
    world.settle();
    assert_eq!(world.replies, []);
    world.loses = Box::new(|_, _| false);
    world.finish();
    let mut told: Vec<Reply> = world.replies.iter().map(|reply| reply.2).collect();
    told.sort_by_key(|reply| matches!(reply, Reply::Checked { .. }));
    let checked = Reply::Checked { id: ID, short: true, long: true };
    assert_eq!(told, [Reply::Answered { id: ID, alive: true }, checked]);
}

#[test]
fn who_lives_is_alive_and_who_has_left_is_gone() {
    let mut world = World::new(|_, _| false);
    world.request(CLIENT, &ask(process(1)));
    assert_eq!(world.replies.pop(), Some((0, CLIENT, Reply::Answered { id: ID, alive: true })));
    let now = world.now;
    world.agents[1].handle_request(CLIENT, &Request::Leave, now);
    world.agents[1].handle_left(CLIENT);
    world.request(CLIENT, &ask(process(1)));
    assert_eq!(world.replies.pop(), Some((0, CLIENT, Reply::Answered { id: ID, alive: false })));
    let other = Process { name: 8, ..process(1) };
    for alive in [false, true] {
        world.others.insert(other, alive);
        world.request(CLIENT, &ask(other));
        assert_eq!(world.replies.pop(), Some((0, CLIENT, Reply::Answered { id: ID, alive })), "another's");
    }
}

/// It may live on, and to look whether it does, as others can, would end what they see.
#[test]
fn of_an_own_module_whose_connection_has_failed_nothing_is_said() {
    let mut world = World::new(|_, _| false);
    world.agents[1].handle_left(CLIENT);
    for said in [false, true] {
        world.others.insert(process(1), said);
        world.request(CLIENT, &ask(process(1)));
        world.finish();
        assert_eq!(world.replies, [], "others say {said}");
    }
    world.agents[1].handle_joined(CLIENT + 1, process(1), 0, 4000);
    world.request(CLIENT, &ask(process(1)));
    assert_eq!(world.replies.pop(), Some((0, CLIENT, Reply::Answered { id: ID, alive: true })));
}

#[test]
fn about_who_never_was_there_nothing_is_said() {
    let mut world = World::new(|_, _| false);
    for stranger in [Process { incarnation: 1, ..process(1) }, Process { name: 9, ..process(1) }] {
        world.request(CLIENT, &ask(stranger));
        world.finish();
    }
    assert_eq!(world.replies, []);
    assert_eq!(world.agents[1].counts().stray, 10);
}

#[test]
fn a_question_about_a_life_survives_losses() {
    let mut count = 0;
    let mut world = World::new(move |_, _| {
        count += 1;
        count <= 4
    });
    world.request(CLIENT, &ask(process(1)));
    world.finish();
    assert_eq!(world.replies, [(0, CLIENT, Reply::Answered { id: ID, alive: true })]);
}

#[test]
fn nobody_is_told_who_has_left_and_its_errands_end() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.agents[0].handle_left(CLIENT);
    assert_eq!(world.agents[0].next_timeout(), None);
    world.request(CLIENT, &check(ID));
    assert_eq!((world.finish(), world.replies.len()), (Duration::ZERO, 0));
}

#[test]
fn what_is_forged_malformed_or_unasked_is_dropped_and_counted() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &ask(process(1)));
    let agent = &mut world.agents[0];
    let hear = |agent: &mut Checker, message: Message, key: &Key| {
        let answers = Answers { key: &KEYS[0], lives: &|_| None };
        agent.handle_datagram((0, at(1)), &message.emit(key), message.len(), Some(answers));
    };
    let nonce = probe::nonce(&KEYS[0], 1);
    // Of the right errand, but not under the other agent's key.
    hear(agent, Message { nonce, body: Body::Gone(process(1)) }, &KEYS[0]);
    hear(agent, Message { nonce, body: Body::Gone(process(1)) }, &[9; 16]);
    // A question under another key than ours.
    hear(agent, Message { nonce, body: Body::Ping { length: 1472 } }, &KEYS[1]);
    assert_eq!(agent.counts().forged, 3);
    // Genuine, but nobody asked, or something else.
    hear(agent, Message { nonce: 4, body: Body::Gone(process(1)) }, &KEYS[1]);
    assert_eq!(agent.counts().stray, 1);
    hear(agent, Message { nonce, body: Body::Gone(process(0)) }, &KEYS[1]);
    hear(agent, Message { nonce, body: Body::Pong { length: 32 } }, &KEYS[1]);
    agent.handle_datagram((0, at(1)), &[0; 31], 31, None);
    agent.handle_datagram((0, at(1)), &[0xFF; 32], 1472, None);
    assert_eq!(agent.counts().malformed, 2);
    // Genuine, but by a socket that takes no questions.
    let question = Message { nonce: 9, body: Body::Ask(process(0)) };
    agent.handle_datagram((1, at(1)), &question.emit(&KEYS[0]), question.len(), None);
    assert_eq!(agent.counts().stray, 2);
    assert_eq!(agent.poll_output(), None, "none of it is answered");
    hear(agent, Message { nonce, body: Body::Gone(process(1)) }, &KEYS[1]);
    let reply = Reply::Answered { id: ID, alive: false };
    assert_eq!(agent.poll_output(), Some(Output::Reply { client: CLIENT, reply }));
}

#[test]
fn an_agent_that_slept_asks_as_often_as_one_that_did_not() {
    let mut world = World::new(|_, _| true);
    world.request(CLIENT, &check(ID));
    world.now = world.now + Duration::from_secs(3600);
    world.agents[0].handle_timeout(world.now);
    world.settle();
    assert_eq!(world.sent.len(), 4, "an hour is one interval");
    world.loses = Box::new(|_, _| false);
    world.finish();
    assert_eq!(world.replies[0].2, Reply::Checked { id: ID, short: true, long: true });
}
