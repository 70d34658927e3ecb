//! Processes of one node, real ones, for locks are theirs: they share the agent, and each answers for
//! the others when those are stopped or have ended.

use super::mail::{REPLY, Reply, Request};
use super::service::Order;
use super::*;
use crate::link::{Local, random};
use crate::wire::probe::Process;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
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
    /// Read no more, but open: a process that cannot speak fails.
    _output: BufReader<ChildStdout>,
    name: u64,
    agent: (u16, Key),
}

impl Peer {
    fn start(folder: &Path, name: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "btl::usnic::agent::node_tests::joins_until_it_ends",
                "--ignored",
                "--nocapture",
            ])
            .env("HAWSER_TEST_FOLDER", folder)
            .env("HAWSER_TEST_NAME", name.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let lines = output.by_ref().lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| line.strip_prefix("joined ").map(str::to_owned));
        let said = said.next().expect("it joins");
        let (port, key) = said.split_once(' ').expect("port and key");
        let key = u128::from_str_radix(key, 16).expect("a key").to_be_bytes();
        Self { child, _output: output, name, agent: (port.parse().expect("a port"), key) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    fn stop(&self) {
        self.signal(Signal::STOP);
        // What was sent has not happened yet.
        let stat = format!("/proc/{}/stat", self.child.id());
        let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
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
fn who_joins_while_the_first_is_stopped_gets_the_agent_from_another() {
    let folder = path();
    let (first, second) = (Peer::start(&folder, 1), Peer::start(&folder, 2));
    first.stop();
    let third = Peer::start(&folder, 3);
    assert_eq!(third.agent, second.agent);
    drop((first, second, third));
    std::fs::remove_dir_all(&folder).expect("what is killed leaves it");
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
