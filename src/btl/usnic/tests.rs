//! Modules over real sockets on the loopback interface, and a host that is as difficult as it may be:
//! it answers from its callbacks and makes progress inside them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use super::*;
use crate::btl::{Lent, Sending};
use crate::config;
use crate::engine::End;
use crate::error::{Error, Result};
use crate::link::{Interface, Options, Socket};
use crate::wire::modex;

/// One process.
struct Node {
    module: Module,
    name: u64,
    records: RefCell<HashMap<u64, Vec<u8>>>,
    received: RefCell<Vec<(u64, u8, Vec<u8>)>>,
    done: RefCell<HashMap<u64, Result<()>>>,
    lost: RefCell<Vec<u64>>,
    findings: RefCell<Vec<agent::Finding>>,
    /// By what the link was broken, and which peers that concerned.
    broken: RefCell<Vec<(i32, Vec<u64>)>>,
    /// The link's sockets, by channel.
    sockets: [std::os::fd::RawFd; 2],
    /// Fragments in flight, kept until they are done.
    outgoing: RefCell<HashMap<u64, Box<[u8]>>>,
    cookies: Cell<u64>,
    /// Answer what comes with this tag, and make progress inside the callback.
    answers: Cell<Option<u8>>,
    depth: Cell<u32>,
    /// Lines of statistics.
    lines: RefCell<Vec<String>>,
    /// This is a child of it from the next fragment on.
    forks: Cell<bool>,
    is_child: Cell<bool>,
}

impl Upcalls for Node {
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        let name = self.module.peer(endpoint).map_or(0, |peer| peer.name);
        self.received.borrow_mut().push((name, tag, bytes.to_vec()));
        self.is_child.set(self.forks.get());
        if self.answers.get() == Some(tag) {
            self.send(endpoint, tag + 1, bytes.iter().map(|byte| !byte).collect());
        }
        if self.depth.get() < 5 {
            self.depth.set(self.depth.get() + 1);
            self.module.progress(self);
            self.depth.set(self.depth.get() - 1);
        }
    }

    fn done(&self, cookie: u64, outcome: Result<()>) {
        assert!(self.done.borrow_mut().insert(cookie, outcome).is_none(), "done twice");
        self.outgoing.borrow_mut().remove(&cookie);
    }

    fn lost(&self, _endpoint: EndpointId, name: u64) {
        self.lost.borrow_mut().push(name);
    }

    fn unreached(&self, _name: u64, finding: &agent::Finding) {
        self.findings.borrow_mut().push(finding.clone());
    }

    fn broken(&self, errno: i32, place: Option<Place>, peers: &[(EndpointId, u64)]) {
        assert_eq!(place.and_then(|place| place.address), Some(HERE.with(|address| *address)));
        assert_eq!(*self.lost.borrow(), [0; 0], "the cause is told first");
        self.broken.borrow_mut().push((errno, peers.iter().map(|peer| peer.1).collect()));
    }

    fn modex_record(&self, name: u64) -> Result<Vec<u8>> {
        self.records.borrow().get(&name).cloned().ok_or(Error::NotFound)
    }

    fn report(&self, line: &str) {
        self.lines.borrow_mut().push(line.to_owned());
    }

    fn is_here(&self) -> bool {
        !self.is_child.get()
    }
}

static TESTS: AtomicU8 = AtomicU8::new(1);

thread_local! {
    /// Each test has a loopback address of its own: what another one still sends to a port that has
    /// become free does not come here.
    static HERE: IpAddr = Ipv4Addr::new(127, 9, 0, TESTS.fetch_add(1, Ordering::Relaxed)).into();
}

impl Node {
    fn new(name: u64, mtu: usize, config: &config::Usnic) -> Self {
        let lo = Interface::all()
            .expect("a list of interfaces")
            .into_iter()
            .find(|interface| interface.is_loopback && interface.address.is_ipv4())
            .expect("a loopback interface");
        let address = HERE.with(|address| *address);
        let link = Socket::open(&Interface { mtu, address, ..lo }, &Options::default()).expect("sockets");
        let (key, sockets) = ([name as u8; 16], link.descriptors());
        Self {
            module: Module::open(Box::new(link), name, 7 + name as u32, key, config, agent::Watch::blind())
                .expect("memory"),
            name,
            records: RefCell::default(),
            received: RefCell::default(),
            done: RefCell::default(),
            lost: RefCell::default(),
            findings: RefCell::default(),
            broken: RefCell::default(),
            sockets,
            outgoing: RefCell::default(),
            cookies: Cell::new(0),
            answers: Cell::new(None),
            depth: Cell::new(0),
            lines: RefCell::default(),
            forks: Cell::new(false),
            is_child: Cell::new(false),
        }
    }

    fn connect(&self, peer: &Self) -> EndpointId {
        self.module.connect(peer.name, peer.module.address()).expect("reachable")
    }

    /// Knows the peer's modex record, but has not connected.
    fn hears_of(&self, peer: &Self) {
        let record = modex::write(std::slice::from_ref(peer.module.address()));
        self.records.borrow_mut().insert(peer.name, record);
    }

    fn lend(&self, bytes: Vec<u8>) -> (u64, Lent) {
        let cookie = self.cookies.get() + 1;
        self.cookies.set(cookie);
        let mut bytes = bytes.into_boxed_slice();
        // The box stays in `outgoing` until the engine is done with it.
        let lent = crate::link::conformance::lend(&mut bytes);
        self.outgoing.borrow_mut().insert(cookie, bytes);
        (cookie, lent)
    }

    fn send(&self, endpoint: EndpointId, tag: u8, bytes: Vec<u8>) -> u64 {
        let (cookie, lent) = self.lend(bytes);
        let half = lent.len() / 3;
        let pieces = [Some(lent.slice(0, half)), Some(lent.slice(half, lent.len() - half))];
        self.module
            .send(endpoint, Fragment { tag, pieces, cookie, priority: false, awaited: true })
            .expect("alive");
        cookie
    }
}

/// A counter of the link, as the module describes itself.
fn link_count(node: &Node, name: &str) -> usize {
    let text = node.module.describe(None).swap_remove(1);
    let count = text.split([' ', ',']).skip_while(|word| *word != format!("{name}:")).nth(1);
    count.and_then(|count| count.parse().ok()).expect("a counter of that name")
}

/// Lets all nodes make progress until `end` holds.
fn run(nodes: &[&Node], mut end: impl FnMut() -> bool) {
    for _ in 0..50_000_000_u64 {
        if end() {
            return;
        }
        for node in nodes {
            node.module.progress(*node);
        }
    }
    panic!("it never ends");
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 17) >> 3) as u8).collect()
}

const SIZES: [usize; 14] =
    [0, 1, 63, 700, 704, 705, 1407, 1408, 1409, 4096, 65_507, 65_536, 150_000, 1_000_000];

#[test]
fn one_call_after_silence_delivers_all_that_waits() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let (to, _) = (one.connect(&two), two.connect(&one));
    one.send(to, 1, vec![1; 8]);
    run(&[&one, &two], || two.received.borrow().len() == 1 && one.done.borrow().len() == 1);
    // Credit for more than the first few.
    (0..40).for_each(|_| _ = one.send(to, 1, vec![1; 8]));
    run(&[&one, &two], || two.received.borrow().len() == 41 && one.done.borrow().len() == 41);
    let clock = crate::link::Clock::new();
    let (mut bursts, mut sent) = (0, 41);
    // A sender that a busy machine holds up loses its credit, and sends few at once.
    while bursts < 5 {
        // It has found nothing, and computes.
        while two.module.progress(&two) > 0 {}
        let (begun, left) = (clock.nanos(), one.module.counters().read().num_frag_sends);
        (0..12).for_each(|_| _ = one.send(to, 1, vec![1; 8]));
        sent += 12;
        one.module.progress(&one);
        let left = one.module.counters().read().num_frag_sends - left;
        while clock.nanos() - begun < 100_000 {
            std::hint::spin_loop();
        }
        let before = two.received.borrow().len();
        two.depth.set(5);
        two.module.progress(&two);
        two.depth.set(0);
        assert_eq!((two.received.borrow().len() - before) as u64, left);
        bursts += u32::from(left >= 3);
        run(&[&one, &two], || one.done.borrow().len() == sent);
    }
}

/// What else has come is its parent's.
#[test]
fn a_child_that_returns_from_a_callback_receives_nothing_more() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let (to, back) = (one.connect(&two), two.connect(&one));
    one.send(to, 1, vec![1; 8]);
    run(&[&one, &two], || two.received.borrow().len() == 1 && one.done.borrow().len() == 1);
    (0..3).for_each(|_| _ = one.send(to, 1, vec![1; 8]));
    one.module.progress(&one);
    two.forks.set(true);
    two.depth.set(5);
    while two.received.borrow().len() == 1 {
        two.module.progress(&two);
    }
    assert_eq!(two.received.borrow().len(), 2);
    // It waits for nobody who would answer its parent.
    let clock = crate::link::Clock::new();
    two.module.close(&[back], &two);
    assert!(clock.nanos() < 200_000_000 && two.received.borrow().len() <= 3);
}

#[test]
fn lines_of_statistics_are_the_hosts_to_say() {
    let config = config::Usnic::default();
    let node = Node::new(1, 1500, &config);
    assert_eq!(node.module.last_line(), None, "nobody wants any");
    node.module.print(Statistics::new("one".to_owned(), std::time::Duration::from_nanos(1), false));
    run(&[&node], || !node.lines.borrow().is_empty());
    assert!(node.lines.borrow()[0].starts_with("btl_usnic statistics 1: one: "));
    let last = node.module.last_line().expect("one more");
    assert!(last.starts_with("btl_usnic statistics final: one: "), "{last}");
}

/// As after a program has closed descriptors that are not its own: what it hears is the cause, once, and then of each
/// peer that it is lost, once.
#[test]
fn closed_sockets_end_in_losses() {
    let config = config::Usnic::default();
    // Found by a look at the socket; by a short message, which leaves past the outbox; by a long one.
    for (channel, sends) in [(0, None), (1, None), (0, Some(8)), (1, Some(100_000))] {
        let (one, two, three) =
            (Node::new(1, 1500, &config), Node::new(2, 1500, &config), Node::new(3, 1500, &config));
        let to = [one.connect(&two), one.connect(&three)];
        let back = [two.connect(&one), three.connect(&one)];
        one.send(to[0], 1, vec![1; 8]);
        two.send(back[0], 1, vec![1; 8]);
        run(&[&one, &two], || one.done.borrow().len() == 1 && two.done.borrow().len() == 1);
        crate::link::replace_descriptor(one.sockets[channel]);
        let sent = sends.map(|len| one.send(to[0], 1, vec![1; len]));
        run(&[&one], || one.lost.borrow().len() == 2);
        assert_eq!(*one.broken.borrow(), [(libc::ENOTSOCK, vec![2, 3])]);
        assert_eq!(*one.lost.borrow(), [2, 3]);
        if let Some(cookie) = sent {
            assert!(one.done.borrow().contains_key(&cookie), "nothing stays under way");
        }
        let address = three.module.address();
        assert_eq!(one.module.connect(3, address).map(|_| ()), Err(Error::Unreachable), "nor begins");
        (0..1000).for_each(|_| _ = one.module.progress(&one));
        assert_eq!((one.broken.borrow().len(), one.lost.borrow().len()), (1, 2), "once each");
    }
}

/// Messages of such a length in a row, until 500 packets have shared datagrams.
fn share_packets(words: usize, protect_payload: bool) {
    let config = config::Usnic { protect_payload, ..config::Usnic::default() };
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let (to, back) = (one.connect(&two), two.connect(&one));
    one.send(to, 1, vec![1; 8]);
    two.send(back, 1, vec![1; 8]);
    run(&[&one, &two], || one.done.borrow().len() == 1 && two.done.borrow().len() == 1);
    two.received.borrow_mut().clear();
    let mut sent = 0_u32;
    // Who is held up by a busy machine sends no row, and some wait for the window.
    while link_count(&one, "coalesced") < 500 {
        assert!(sent < 400_000, "they never come in a row");
        for _ in 0..40 {
            let (cookie, lent) = one.lend(sent.to_le_bytes().repeat(words));
            let pieces = [Some(lent), None];
            let fragment = Fragment { tag: 5, pieces, cookie, priority: false, awaited: false };
            if one.module.send(to, fragment).expect("alive") == Sending::Over {
                one.outgoing.borrow_mut().remove(&cookie);
            }
            sent += 1;
        }
        run(&[&one, &two], || two.received.borrow().len() == sent as usize);
    }
    for (at, (_, tag, bytes)) in two.received.borrow().iter().enumerate() {
        assert_eq!((*tag, &bytes[..]), (5, &(at as u32).to_le_bytes().repeat(words)[..]));
    }
}

#[test]
fn short_messages_in_a_row_share_packets_and_stay_in_order() {
    // With a copy of the engine's, and from the user's memory.
    [5, 13, 70].into_iter().for_each(|words| share_packets(words, false));
}

#[test]
fn protected_messages_in_a_row_share_packets_and_stay_in_order() {
    [0, 5, 70].into_iter().for_each(|words| share_packets(words, true));
}

#[test]
fn shared_packets_are_no_longer_than_the_peer_takes() {
    let config = config::Usnic::default();
    for (own, others) in [(1500, 1300), (1300, 1500), (9000, 1500)] {
        let (one, two) = (Node::new(1, own, &config), Node::new(2, others, &config));
        let to = one.connect(&two);
        assert_eq!(one.module.longest_datagram(to), own.min(others) - 28);
        one.module.forget(to);
        assert_eq!(one.module.longest_datagram(to), 0);
    }
}

#[test]
fn fragments_of_all_sizes_arrive_whole() {
    for mtu in [1500, 9000, 65_536] {
        let config = config::Usnic::default();
        let (one, two) = (Node::new(1, mtu, &config), Node::new(2, mtu, &config));
        let (there, back) = (one.connect(&two), two.connect(&one));
        for (index, len) in SIZES.into_iter().enumerate() {
            one.send(there, 3, pattern(index as u64, len));
            two.send(back, 4, pattern(100 + index as u64, len));
        }
        run(&[&one, &two], || {
            one.done.borrow().len() == SIZES.len() && two.done.borrow().len() == SIZES.len()
        });
        for (node, peer, tag, seed) in [(&two, &one, 3, 0), (&one, &two, 4, 100)] {
            let mut received = node.received.borrow_mut();
            received.sort_by_key(|(.., bytes)| bytes.len());
            assert_eq!(received.len(), SIZES.len());
            for (index, len) in SIZES.into_iter().enumerate() {
                assert!(
                    received[index] == (peer.name, tag, pattern(seed + index as u64, len)),
                    "{len} bytes"
                );
            }
            assert!(node.done.borrow().values().all(Result::is_ok));
        }
    }
}

#[test]
fn a_stranger_with_a_card_is_admitted() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    two.hears_of(&one);
    let cookie = one.send(one.connect(&two), 9, pattern(5, 100_000));
    run(&[&one, &two], || one.done.borrow().contains_key(&cookie));
    assert!(two.received.borrow()[0] == (1, 9, pattern(5, 100_000)));
}

#[test]
fn who_was_forgotten_is_told_and_loses_its_peer() {
    for protect_payload in [false, true] {
        let config = config::Usnic { protect_payload, ..config::Usnic::default() };
        let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
        let (there, back) = (one.connect(&two), two.connect(&one));
        for _ in 0..2 {
            one.send(there, 1, vec![1; 8]);
            two.send(back, 1, vec![1; 8]);
            run(&[&one, &two], || {
                [&one, &two].iter().all(|it| it.done.borrow().len() == it.cookies.get() as usize)
            });
        }
        two.hears_of(&one);
        two.module.forget(back);
        let cookie = one.send(there, 1, vec![1; 2000]);
        run(&[&one, &two], || !one.lost.borrow().is_empty());
        assert_eq!(one.done.borrow().get(&cookie), Some(&Err(Error::Unreachable)));
        assert!((*one.lost.borrow() == [2]) && two.lost.borrow().is_empty());
        let to = one.module.peer(there).expect("known");
        assert!(!to.alive && two.module.connect(1, one.module.address()).is_ok());
    }
}

#[test]
fn what_a_call_of_progress_has_received_is_booked_when_it_returns() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let (there, back) = (one.connect(&two), two.connect(&one));
    // Neither makes progress inside its callbacks.
    [&one, &two].into_iter().for_each(|node| node.depth.set(5));
    for round in 0..200 {
        let cookie = one.send(there, 1, pattern(round, 8));
        run(&[&two], || two.received.borrow().len() as u64 > round);
        two.send(back, 2, pattern(round, 8));
        run(&[&one], || one.received.borrow().len() as u64 > round);
        // The answer has acknowledged what it answers, and nobody has to ask again to learn that.
        assert!(one.done.borrow().contains_key(&cookie), "round {round}");
    }
}

#[test]
fn callbacks_may_send_and_make_progress() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    two.hears_of(&one);
    two.answers.set(Some(10));
    let there = one.connect(&two);
    for n in 0..2000 {
        one.send(there, 10, pattern(n, (n as usize * 37) % 3000));
    }
    run(&[&one, &two], || one.received.borrow().len() == 2000 && one.done.borrow().len() == 2000);
    let sorted = |node: &Node, flip: u8| {
        let mut all: Vec<Vec<u8>> = node
            .received
            .borrow()
            .iter()
            .map(|(.., bytes)| bytes.iter().map(|byte| byte ^ flip).collect())
            .collect();
        all.sort();
        all
    };
    assert!(sorted(&one, 255) == sorted(&two, 0));
}

#[test]
fn memory_is_written_and_read_at_a_distance() {
    for (mtu, protect_payload) in [1500, 9000, 65_536].into_iter().flat_map(|mtu| [(mtu, false), (mtu, true)])
    {
        let config = config::Usnic { protect_payload, ..config::Usnic::default() };
        let (one, two) = (Node::new(1, mtu, &config), Node::new(2, mtu, &config));
        let (there, _) = (one.connect(&two), two.connect(&one));
        let (_, memory) = two.lend(pattern(1, 3_000_000));
        let registration = two.module.register(memory, Access::BOTH);
        let (put, source) = one.lend(pattern(2, 1_000_001));
        one.module.put(there, source, (registration, 500_000), put).expect("alive");
        run(&[&one, &two], || one.done.borrow().contains_key(&put));
        let (get, target) = one.lend(vec![0; 2_000_000]);
        one.module.get(there, target, (registration, 1_000_000), get).expect("alive");
        let mut expected = pattern(1, 3_000_000);
        expected[500_000..1_500_001].copy_from_slice(&pattern(2, 1_000_001));
        // `done` drops the memory, so it is looked at before.
        let mut seen = vec![0; 2_000_000];
        run(&[&one, &two], || {
            if one.outgoing.borrow().contains_key(&get) {
                target.read(0, &mut seen);
            }
            one.done.borrow().contains_key(&get)
        });
        assert_eq!(one.done.borrow()[&put], Ok(()));
        assert_eq!(one.done.borrow()[&get], Ok(()));
        let landed = one.module.counters().read().num_landed_recvs;
        assert_eq!(landed > 10, mtu > 2048, "{landed} segments of {mtu} bytes, protected: {protect_payload}");
        two.module.deregister(registration);
        let (late, target) = one.lend(vec![0; 10]);
        one.module.get(there, target, (registration, 0), late).expect("alive");
        run(&[&one, &two], || one.done.borrow().contains_key(&late));
        assert!(one.done.borrow()[&late].is_err(), "the registration is gone");
    }
}

#[test]
fn a_peer_that_dies_is_lost_once_and_everything_ends() {
    let config =
        config::Usnic { peer_timeout: std::time::Duration::from_millis(300), ..config::Usnic::default() };
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let there = one.connect(&two);
    drop(two);
    let cookies: Vec<u64> = (0..20).map(|n| one.send(there, 1, pattern(n, 10_000))).collect();
    run(&[&one], || !one.lost.borrow().is_empty());
    assert_eq!(*one.lost.borrow(), [2]);
    assert_eq!((one.module.end_of(2), one.module.end_of(3)), (Some(End::Silent), None));
    assert!(cookies.iter().all(|cookie| one.done.borrow()[cookie] == Err(Error::Unreachable)));
    let (cookie, lent) = one.lend(vec![1]);
    let late = Fragment { tag: 1, pieces: [Some(lent), None], cookie, priority: false, awaited: true };
    assert_eq!(one.module.send(there, late), Err(Error::Unreachable));
}

#[test]
fn a_process_that_has_ended_is_lost_without_waiting_for_the_timeout() {
    let config =
        config::Usnic { refusal_timeout: std::time::Duration::from_secs(1), ..config::Usnic::default() };
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let there = one.connect(&two);
    drop(two);
    let cookie = one.send(there, 1, pattern(1, 10_000));
    run(&[&one], || !one.lost.borrow().is_empty());
    assert_eq!((one.done.borrow()[&cookie], one.lost.borrow().len()), (Err(Error::Unreachable), 1));
    assert_eq!(one.module.end_of(2), Some(End::Refused));
}

#[test]
fn a_process_that_ends_in_a_long_transfer_is_lost_soon() {
    let config =
        config::Usnic { refusal_timeout: std::time::Duration::from_secs(1), ..config::Usnic::default() };
    for mtu in [1500, 65_536] {
        let (one, two) = (Node::new(1, mtu, &config), Node::new(2, mtu, &config));
        let (there, back) = (one.connect(&two), two.connect(&one));
        const LONG: usize = 50_000_000;
        let (_, memory) = two.lend(vec![1; LONG]);
        let theirs = two.module.register(memory, Access::BOTH);
        let (_, memory) = one.lend(vec![2; LONG]);
        let ours = one.module.register(memory, Access::BOTH);
        let (get, target) = one.lend(vec![0; LONG]);
        one.module.get(there, target, (theirs, 0), get).expect("alive");
        let (other, target) = two.lend(vec![0; LONG]);
        two.module.get(back, target, (ours, 0), other).expect("alive");
        let mut turns = 0;
        run(&[&one, &two], || {
            turns += 1;
            turns > 40
        });
        assert!(one.done.borrow().is_empty(), "still under way");
        drop(two);
        run(&[&one], || !one.lost.borrow().is_empty());
        assert_eq!((one.done.borrow()[&get], one.lost.borrow().len()), (Err(Error::Unreachable), 1));
    }
}

#[test]
fn connections_close_from_both_ends() {
    let config = config::Usnic::default();
    let (one, two) = (Node::new(1, 1500, &config), Node::new(2, 1500, &config));
    let (there, back) = (one.connect(&two), two.connect(&one));
    one.send(there, 1, pattern(1, 50_000));
    two.send(back, 1, pattern(2, 50_000));
    run(&[&one, &two], || one.done.borrow().len() == 1 && two.done.borrow().len() == 1);
    one.module.close(&[there], &one);
    two.module.close(&[back], &two);
    assert_eq!((one.module.peer(there), two.module.peer(back)), (None, None));
}

/// Peers come and go, and new ones take their places: what is sent to a peer arrives there, and nothing
/// of it anywhere else, not even to be dropped for its tag.
#[test]
fn a_place_that_is_used_again_leads_to_its_new_peer_only() {
    let config = config::Usnic::default();
    let one = Node::new(1, 1500, &config);
    let mut peers = Vec::new();
    let mut gone: Vec<EndpointId> = Vec::new();
    for name in 2..42 {
        let peer = Node::new(name, 1500, &config);
        peer.hears_of(&one);
        let there = one.connect(&peer);
        for old in &gone {
            assert_ne!(*old, there);
            let (cookie, lent) = one.lend(vec![99; 50]);
            let fragment =
                Fragment { tag: 1, pieces: [Some(lent), None], cookie, priority: false, awaited: true };
            assert_eq!(one.module.send(*old, fragment), Err(Error::Unreachable), "the peer is gone");
        }
        let first = [100, 5_000].map(|len| one.send(there, 1, vec![name as u8; len]));
        run(&[&one, &peer], || first.iter().all(|cookie| one.done.borrow().contains_key(cookie)));
        // Still under way when the peer goes.
        one.send(there, 1, vec![name as u8; 20_000]);
        if name % 3 == 0 {
            one.module.close(&[there], &one);
        } else {
            one.module.forget(there);
        }
        gone.push(there);
        peers.push(peer);
    }
    let mut places: Vec<usize> = gone.iter().map(|endpoint| endpoint.index()).collect();
    places.sort_unstable();
    places.dedup();
    assert!(places.len() < 20, "the places were used again: {places:?}");
    for peer in &peers {
        for _ in 0..100 {
            peer.module.progress(peer);
        }
        let received = peer.received.borrow();
        assert!(received.len() >= 2, "something came");
        let is_own = |bytes: &[u8]| bytes.iter().all(|byte| u64::from(*byte) == peer.name);
        assert!(received.iter().all(|(_, _, bytes)| is_own(bytes)), "what came was meant for another");
        assert_eq!(peer.module.counters().read().num_crc_errors, 0);
    }
}
