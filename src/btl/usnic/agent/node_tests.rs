//! Processes of one node, real ones, for locks are theirs: they share the agent, and each answers for
//! the others when those are stopped or have ended.

use super::mail::{REPLY, REQUEST, Reply, Request};
use super::service::Order;
use super::*;
use crate::link::{Folder, Local, Prober, random, replace_descriptors};
use crate::wire::probe::{Body, Message, Process};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// A watchdog: nothing that goes well waits for so long.
const WATCHDOG: Duration = Duration::from_secs(100);

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("hawser-node-{:x}", random().expect("a number")))
}

fn module(name: u64) -> Process {
    Process { name, incarnation: 7 }
}

/// A process of the node: this program again, in the part below.
struct Peer {
    child: Child,
    /// Open also when it is not read any more: a process that cannot speak fails.
    output: BufReader<ChildStdout>,
    name: u64,
    agent: (u16, Key),
}

/// This program again, in one of the parts below.
fn part(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", &format!("btl::usnic::agent::node_tests::{name}"), "--ignored", "--nocapture"])
        .env("HAWSER_TEST_FOLDER", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The rest of the next line that begins so.
fn hear(output: &mut BufReader<ChildStdout>, begin: &str) -> String {
    let lines = output.by_ref().lines().map_while(Result::ok);
    let mut said = lines.filter_map(|line| line.strip_prefix(begin).map(str::to_owned));
    said.next().expect("it says so")
}

impl Peer {
    fn start(folder: &Path, name: u64) -> Self {
        Self::enter(folder, name).join()
    }

    /// One that uses the folder, and has nothing else there yet.
    fn enter(folder: &Path, name: u64) -> Self {
        let mut child = part("joins_until_it_ends", folder)
            .env("HAWSER_TEST_NAME", name.to_string())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        hear(&mut output, "entered");
        Self { child, output, name, agent: (0, [0; 16]) }
    }

    /// Has a module from now on.
    fn join(mut self) -> Self {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("written");
        let said = hear(&mut self.output, "joined ");
        let (port, key) = said.split_once(' ').expect("port and key");
        let key = u128::from_str_radix(key, 16).expect("a key").to_be_bytes();
        self.agent = (port.parse().expect("a port"), key);
        self
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    fn stop(&self) {
        self.signal(Signal::STOP);
        // What was sent has not happened yet, and not to all threads at once.
        let threads = format!("/proc/{}/task", self.child.id());
        let is_at_rest = |thread: io::Result<std::fs::DirEntry>| {
            let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        let is_stopped = || std::fs::read_dir(&threads).expect("its threads").all(is_at_rest);
        while !is_stopped() {
            std::thread::yield_now();
        }
    }

    fn end(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test, but what such a process does until its input ends, or it does.
#[test]
#[ignore = "a part of other tests"]
fn joins_until_it_ends() {
    let (Some(folder), Ok(name)) =
        (std::env::var_os("HAWSER_TEST_FOLDER"), std::env::var("HAWSER_TEST_NAME"))
    else {
        return;
    };
    let name: u64 = name.parse().expect("a number");
    let node = Node::open_in(Path::new(&folder), [name as u8; 16]);
    println!("\nentered");
    let _ = std::io::stdin().read_line(&mut String::new());
    let watch = Watch::open(&node, module(name), ("lo", HOME), 0, None);
    let own = watch.own().expect("an agent");
    println!("\njoined {} {:x}", own.at.port(), u128::from_be_bytes(own.key));
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A module on another node.
struct Stranger {
    local: Local,
    _node: Node,
}

impl Stranger {
    fn new() -> Self {
        let node = Node::open_in(&path(), [99; 16]);
        let (local, end) = Local::pair().expect("a pair");
        node.agent().expect("a thread").order(Order::Hear(end));
        let request = Request::Join { process: module(99), at: SocketAddr::new(HOME, 0) };
        let stranger = Self { local, _node: node };
        assert!(matches!(stranger.ask(&request), Some(Reply::Joined { .. })));
        stranger
    }

    fn ask(&self, request: &Request) -> Option<Reply> {
        self.local.send(&request.emit(), None).expect("sent");
        let mut record = [0; REPLY];
        let (len, _) = self.local.receive_within(&mut record, WATCHDOG).ok()?;
        Reply::parse(&record[..len])
    }

    /// Whether a process of the agent's node lives; asked again until it is answered.
    fn lives(&self, agent: (u16, Key), name: u64) -> bool {
        let (to, key) = (SocketAddr::new(HOME, agent.0), agent.1);
        match self.ask(&Request::Ask { id: name, to, key, process: module(name) }) {
            Some(Reply::Answered { id, alive }) if id == name => alive,
            other => panic!("about {name}: {other:?}"),
        }
    }
}

#[test]
fn processes_of_a_node_answer_for_each_other() {
    let folder = path();
    let mut first = Peer::start(&folder, 1);
    let mut second = Peer::start(&folder, 2);
    let third = Peer::start(&folder, 3);
    assert_eq!((first.agent, first.agent), (second.agent, third.agent), "one agent for all");
    let (agent, stranger) = (first.agent, Stranger::new());
    let all = |expected: [bool; 3]| {
        for (name, lives) in (1..).zip(expected) {
            assert_eq!(stranger.lives(agent, name), lives, "{name} of {expected:?}");
        }
    };
    all([true; 3]);
    // Whoever began, and any two of the three, may be stopped: they live, and are said to.
    first.stop();
    all([true; 3]);
    second.stop();
    all([true; 3]);
    first.signal(Signal::CONT);
    third.stop();
    all([true; 3]);
    second.signal(Signal::CONT);
    third.signal(Signal::CONT);
    // Whoever began ends, and the agent goes on with what it knew.
    first.end();
    all([false, true, true]);
    second.end();
    all([false, false, true]);
    assert_eq!(third.name, 3);
    // Who comes later finds it too.
    let fourth = Peer::start(&folder, 4);
    assert_eq!(fourth.agent, agent);
    drop(third);
    assert!(stranger.lives(agent, 4) && !stranger.lives(agent, 3));
    drop(fourth);
    std::fs::remove_dir_all(&folder).expect("what is killed leaves it");
}

#[test]
fn calls_are_answered_by_who_runs_and_wait_while_all_are_stopped() {
    let folder = path();
    let (mut first, mut second) = (Peer::start(&folder, 1), Peer::start(&folder, 2));
    let (port, key) = first.agent;
    let said = |body| Message { nonce: 7, body }.emit(&key);
    let call = || {
        let mut stream = TcpStream::connect((HOME, port)).expect("taken");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a stream");
        stream.write_all(&said(Body::Call)).expect("said");
        stream
    };
    let heard = |mut stream: TcpStream| {
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    };
    let here = said(Body::Here);
    assert_eq!(heard(call()), here);
    first.stop();
    assert_eq!(heard(call()), here);
    second.stop();
    let waits = call();
    waits.set_nonblocking(true).expect("a stream");
    assert_eq!((&waits).read(&mut [0]).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    waits.set_nonblocking(false).expect("a stream");
    second.signal(Signal::CONT);
    assert_eq!(heard(waits), here);
    second.stop();
    let waits = call();
    first.end();
    second.signal(Signal::CONT);
    assert_eq!(heard(waits), here, "though one who had the socket is gone");
    second.stop();
    let waits = call();
    second.end();
    assert!(heard(waits).is_empty(), "nobody is there");
    std::fs::remove_dir_all(&folder).expect("what is killed leaves it");
}

#[test]
fn who_joins_while_the_first_is_stopped_gets_the_agent_from_another() {
    let folder = path();
    let (first, second) = (Peer::start(&folder, 1), Peer::start(&folder, 2));
    first.stop();
    let third = Peer::start(&folder, 3);
    assert_eq!(third.agent, second.agent);
    drop((first, second, third));
    std::fs::remove_dir_all(&folder).expect("what is killed leaves it");
}

/// Not a test, but a process that has the agent's socket, and shares it when its input says so.
#[test]
#[ignore = "a part of another test"]
fn shares_late() {
    let Some(folder) = std::env::var_os("HAWSER_TEST_FOLDER") else { return };
    let (place, listener) = Place::open(Path::new(&folder)).expect("a folder");
    let prober = Prober::open(HOME, 0).expect("a socket");
    let _held = place.hold_socket(HOME).expect("held");
    println!("\nholds {}", prober.port());
    let local =
        std::iter::repeat_with(|| listener.accept().expect("a listener")).flatten().next().expect("somebody");
    let mut record = [0; REQUEST];
    let (len, _) = local.receive_within(&mut record, WATCHDOG).expect("a request");
    assert!(matches!(Request::parse(&record[..len]), Some(Request::Share { .. })));
    println!("\nasked");
    let _ = std::io::stdin().read_line(&mut String::new());
    let reply = Reply::Joined { port: prober.port(), key: [5; 16] };
    local.send(&reply.emit(), Some(prober.as_fd())).expect("sent");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// On a machine that has much to do, its thread may not have had its turn for seconds.
#[test]
#[expect(clippy::disallowed_methods, reason = "that it takes long is what is tested")]
fn who_is_asked_for_the_agents_socket_and_is_late_is_waited_for() {
    let folder = path();
    let mut late = part("shares_late", &folder).spawn().expect("a process");
    let mut output = BufReader::new(late.stdout.take().expect("its output"));
    let port: u16 = hear(&mut output, "holds ").parse().expect("a port");
    let node = Node::open_in(&folder, [1; 16]);
    let mut input = late.stdin.take().expect("its input");
    let asked = std::thread::spawn(move || {
        hear(&mut output, "asked");
        // Longer than one is waited for who is stopped.
        std::thread::sleep(Duration::from_millis(2500));
        input.write_all(b"\n").expect("written");
        (input, output)
    });
    assert_eq!(node.share(SocketAddr::new(HOME, 0)), Ok((port, [5; 16])));
    drop(asked.join().expect("no panic"));
    late.wait().expect("ended");
    drop(node);
    assert!(!folder.exists(), "nobody is left");
}

#[test]
fn nothing_of_a_node_is_left_when_all_have_ended_in_good_order() {
    let folder = path();
    let (mut first, mut second) = (Peer::start(&folder, 1), Peer::start(&folder, 2));
    for peer in [&mut first, &mut second] {
        assert!(folder.exists());
        drop(peer.child.stdin.take());
        assert!(peer.child.wait().expect("ended").success());
    }
    assert!(!folder.exists());
}

/// Its socket may be asked for by those who come now, and it will look for that of others: there.
#[test]
fn a_folder_stays_while_somebody_has_only_come_in() {
    let folder = path();
    let (first, mut second) = (Peer::enter(&folder, 1), Peer::start(&folder, 2));
    drop(second.child.stdin.take());
    assert!(second.child.wait().expect("ended").success());
    assert!(folder.exists(), "the first is still there");
    let third = Peer::start(&folder, 3);
    let first = first.join();
    assert_eq!(first.agent, third.agent, "one agent for all");
    drop((first, third));
    std::fs::remove_dir_all(&folder).expect("what is killed leaves it");
}

#[test]
fn nothing_of_a_node_is_left_when_all_end_at_once() {
    for _ in 0..20 {
        let folder = path();
        let mut peers: Vec<Peer> = (1..5).map(|name| Peer::start(&folder, name)).collect();
        peers.iter_mut().for_each(|peer| drop(peer.child.stdin.take()));
        for peer in &mut peers {
            assert!(peer.child.wait().expect("ended").success());
        }
        assert!(!folder.exists());
    }
}

/// Not a test, but what a process does that is stopped in its turn.
#[test]
#[ignore = "a part of another test"]
fn has_its_turn_until_it_ends() {
    let Some(folder) = std::env::var_os("HAWSER_TEST_FOLDER") else { return };
    let folder = Folder::open(Path::new(&folder)).expect("the folder");
    let _turn = folder.turn().expect("its turn");
    println!("\nhas its turn");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Runs something that must end, in a thread of its own.
fn ends(what: impl FnOnce() + Send + 'static) -> bool {
    let (over, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        what();
        let _ = over.send(());
    });
    told.recv_timeout(WATCHDOG).is_ok()
}

#[test]
fn who_leaves_does_not_wait_for_one_that_is_stopped_in_its_turn() {
    let folder = path();
    let node = Node::open_in(&folder, [1; 16]);
    let mut stopped = part("has_its_turn_until_it_ends", &folder).spawn().expect("a process");
    let mut output = BufReader::new(stopped.stdout.take().expect("its output"));
    hear(&mut output, "has its turn");
    kill_process(Pid::from_child(&stopped), Signal::STOP).expect("sent");
    assert!(ends(move || drop(node)), "it waits for its turn");
    stopped.kill().expect("killed");
    stopped.wait().expect("ended");
    std::fs::remove_dir_all(&folder).expect("it is left to the launcher");
}

/// Not a test, but what a process does whose program closes descriptors that are not its own.
#[test]
#[ignore = "a part of another test"]
fn ends_without_its_descriptors() {
    let Some(folder) = std::env::var_os("HAWSER_TEST_FOLDER") else { return };
    let node = Node::open_in(Path::new(&folder), [1; 16]);
    let watch = Watch::open(&node, module(1), ("lo", HOME), 0, None);
    assert!(watch.own().is_some() && node.trouble().is_none());
    replace_descriptors();
    drop(watch);
    assert!(ends(move || drop(node)), "it waits for a thread that hears nothing");
}

#[test]
fn a_process_ends_whose_program_has_closed_the_agents_descriptors() {
    let folder = path();
    let mut child = part("ends_without_its_descriptors", &folder).spawn().expect("a process");
    assert!(child.wait().expect("ended").success());
    std::fs::remove_dir_all(&folder).expect("it could not");
}
