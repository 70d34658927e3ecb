//! Agents over real sockets on the loopback interface.

use super::mail::{REPLY, Reply, Request};
use super::*;
use crate::config;
use crate::engine::{Engine, Event, Identity, Instant, Peer};
use crate::link::{Lent, Local, Waiter, random};
use crate::wire::modex::AgentAddress;
use crate::wire::probe::{Body, Message, Process};
use std::io::Read;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const KEY: Key = [5; 16];
const HOME: [u8; 4] = [127, 0, 0, 1];

/// A node of a job of its own.
fn node() -> Node {
    let folder = format!("hawser-service-{:x}", random().expect("a number"));
    Node::open_in(&std::env::temp_dir().join(folder), KEY)
}

/// A module that has joined, and where the agent is to be asked about it.
struct Member {
    local: Local,
    agent: SocketAddr,
    process: Process,
}

impl Member {
    fn new(node: &Node, name: u64) -> Self {
        let process = Process { name, incarnation: 9 };
        let (port, key) = node.share((HOME, 0).into()).expect("a socket");
        assert_eq!(key, KEY);
        let (local, end) = Local::pair().expect("a pair");
        node.agent().expect("a thread").order(service::Order::Hear(end));
        let member = Self { local, agent: (HOME, port).into(), process };
        let joined = member.ask(&Request::Join { process, at: (HOME, 0).into() });
        assert!(matches!(joined, Reply::Joined { port: own, .. } if own != 0 && own != port));
        member
    }

    /// The agent's next reply.
    fn hear(&self) -> Reply {
        let mut record = [0; REPLY];
        let (len, _) = self.local.receive_within(&mut record, Duration::from_secs(100)).expect("a reply");
        Reply::parse(&record[..len]).expect("a reply")
    }

    fn ask(&self, request: &Request) -> Reply {
        self.local.send(&request.emit(), None).expect("sent");
        self.hear()
    }

    fn check(&self, to: &Self, length: u32, tries: u32) -> Reply {
        let (to, key) = (to.agent, KEY);
        self.ask(&Request::Check { id: 3, to, key, length, interval_ms: 20, tries })
    }

    fn ask_about(&self, agent: SocketAddr, process: Process) -> Reply {
        self.ask(&Request::Ask { id: 4, to: agent, key: KEY, process })
    }
}

#[test]
fn agents_of_two_jobs_check_the_way_between_them() {
    let (one, two) = (node(), node());
    let (here, there) = (Member::new(&one, 1), Member::new(&two, 2));
    for length in [1472, 8972, 65_507] {
        assert_eq!(here.check(&there, length, 500), Reply::Checked { id: 3, short: true, long: true });
    }
}

#[test]
fn an_agent_without_the_key_answers_as_if_nothing_arrived() {
    let (one, two) = (node(), node());
    let (here, there) = (Member::new(&one, 1), Member::new(&two, 2));
    let request =
        Request::Check { id: 3, to: there.agent, key: [6; 16], length: 100, interval_ms: 1, tries: 2 };
    assert_eq!(here.ask(&request), Reply::Checked { id: 3, short: false, long: false });
}

#[test]
fn members_are_alive() {
    let (one, two) = (node(), node());
    let (here, there) = (Member::new(&one, 1), Member::new(&two, 2));
    let other = Member::new(&two, 3);
    assert_eq!(there.agent, other.agent, "one socket for all on one address");
    for member in [&there, &other] {
        let alive = Reply::Answered { id: 4, alive: true };
        assert_eq!(here.ask_about(member.agent, member.process), alive);
    }
}

#[test]
fn records_that_are_none_are_borne() {
    let one = node();
    let here = Member::new(&one, 1);
    for record in [&[0; 1][..], &[0xFF; 64], &[1; 64], &[2; 64], &[3; 64], &[5; 64], &[1; 200]] {
        here.local.send(record, None).expect("sent");
    }
    // What can be read as a request to join was one.
    while here.check(&here, 100, 500) != (Reply::Checked { id: 3, short: true, long: true }) {}
}

#[test]
fn calls_are_answered_but_those_of_strangers() {
    let one = node();
    let here = Member::new(&one, 1);
    let said = |body, key: &Key| Message { nonce: 7, body }.emit(key);
    let call = |key: &Key| {
        let mut stream = TcpStream::connect(here.agent).expect("taken");
        stream.write_all(&said(Body::Call, key)).expect("said");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    };
    assert_eq!(call(&KEY), said(Body::Here, &KEY));
    assert!(call(&[6; 16]).is_empty(), "a stranger");
    let _silent: Vec<_> = (0..200).map(|_| TcpStream::connect(here.agent).expect("taken")).collect();
    assert_eq!(call(&KEY), said(Body::Here, &KEY), "whatever others do not say");
}

#[test]
fn strangers_get_no_answer_and_nobody_a_longer_one() {
    let one = node();
    let here = Member::new(&one, 1);
    let stranger = UdpSocket::bind(SocketAddr::from((HOME, 0))).expect("a socket");
    let ping = Message { nonce: 1, body: Body::Ping { length: 40 } };
    let mut genuine = ping.emit(&KEY).to_vec();
    genuine.resize(40, 0);
    let forged = [&ping.emit(&[1; 16])[..], &[0; 8]].concat();
    for bytes in [&forged[..], &[], &[0x51], &genuine[..39], &[0xFF; 1000]] {
        stranger.send_to(bytes, here.agent).expect("sent");
    }
    stranger.send_to(&genuine, here.agent).expect("sent");
    let mut answer = [0; 2000];
    let (len, from) = stranger.recv_from(&mut answer).expect("an answer");
    assert_eq!((len, from), (32, here.agent), "only the genuine one is answered, and shorter");
    assert_eq!(answer[..32], Message { body: Body::Pong { length: 40 }, ..ping }.emit(&KEY));
}

#[test]
fn the_agent_ends_with_its_last_owner_and_its_members_notice() {
    let one = node();
    let here = Member::new(&one, 1);
    drop(one);
    assert!(here.local.receive(&mut [0; REPLY]).is_err(), "the thread is gone when the drop returns");
}

#[test]
fn a_module_ends_though_a_child_holds_its_connection() {
    let (one, two) = (node(), node());
    let here = Member::new(&one, 1);
    let process = Process { name: 5, incarnation: 1 };
    let watch = Watch::open(&two, process, ("lo", HOME.into()), 0, None);
    let agent = watch.own().expect("an agent").at;
    let held = watch.duplicate();
    assert_eq!(here.ask_about(agent, process), Reply::Answered { id: 4, alive: true });
    drop(watch);
    // The question may overtake the word of the end, which goes another way.
    let mut answers = (0..1_000).map(|_| here.ask_about(agent, process));
    assert!(answers.any(|answer| answer == Reply::Answered { id: 4, alive: false }), "it is never said");
    drop(held);
}

#[test]
fn what_others_may_enter_is_no_folder_and_that_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("hawser-service-{:x}", random().expect("a number")));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("a mode");
    assert!(node::Place::open(&folder).is_err());
    std::fs::remove_dir(&folder).expect("removed, with nothing in it");
    // Alone, an agent still answers for its own process.
    let alone = Node::start(None, Some("why".to_owned()), KEY);
    assert_eq!(alone.trouble().as_deref(), Some("why"));
    let one = node();
    let (here, there) = (Member::new(&one, 1), Member::new(&alone, 2));
    assert_eq!(here.ask_about(there.agent, there.process), Reply::Answered { id: 4, alive: true });
}

/// What a forked child holds of an agent's descriptors must not matter: here the end that wakes the
/// thread, as a duplicate.
#[test]
fn the_agent_ends_though_a_child_holds_its_descriptors() {
    let one = node();
    let held = one.agent().expect("ours").awake.try_clone().expect("a duplicate");
    let (over, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(one);
        let _ = over.send(());
    });
    // The watchdog of a test that fails, and nothing that one that passes waits for.
    assert!(told.recv_timeout(std::time::Duration::from_secs(60)).is_ok(), "the end waits for the child");
    drop(held);
}

/// A process that seldom calls, as one on a busy machine that gives its turn away: what was said meanwhile still
/// counts.
#[test]
fn an_answer_is_heard_however_late_it_is_looked_for() {
    let (one, two) = (node(), node());
    let there = Member::new(&two, 2);
    let mut watch = Watch::open(&one, Process { name: 1, incarnation: 9 }, ("lo", HOME.into()), 0, None);
    let mut waiter = Waiter::new().expect("a waiter");
    waiter.add(&watch.duplicate(), 0).expect("added");
    let identity = Identity { name: 1, incarnation: 9, key: KEY };
    let mut engine =
        Engine::<Lent>::new(&config::Usnic::default(), identity, 1 << 20, Instant::ORIGIN).expect("memory");
    let Process { name, incarnation } = there.process;
    let peer = Peer { name, incarnation, key: KEY, max_datagram: 1472 };
    let endpoint = engine.connect(peer, Instant::ORIGIN).expect("connected");
    let contact =
        AgentAddress { at: there.agent, key: KEY, host: "there".to_owned(), interface: "lo".to_owned() };
    watch.meet(endpoint, Some(&contact), there.process, 1472, true);
    for call in 1..100 {
        let now = Instant::ORIGIN + Duration::from_millis(1_300) * call;
        engine.handle_gone(endpoint, now);
        if watch.is_due(now) {
            assert_eq!(watch.turn(&mut engine, now), []);
        }
        while let Some(event) = engine.poll_event() {
            assert_eq!(event, Event::Silent { endpoint }, "it lives, and that was said, in call {call}");
            watch.ask(endpoint, now);
            waiter.wait(None).expect("waited");
        }
    }
    assert!(watch.is_due(Instant::ORIGIN + Duration::from_secs(1_000)), "the last answer waits");
    watch.turn(&mut engine, Instant::ORIGIN + Duration::from_secs(1_000));
    assert!(
        !watch.is_due(Instant::ORIGIN + Duration::from_secs(2_000)),
        "nothing is asked, and nothing looked for"
    );
}
