//! Two domains in one process that send to each other, and what only a peer that lies would send.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::argument::Foreign;
use super::super::av::Av;
use super::super::cq::{Completion, Cq, Failure};
use super::super::domain::Domain;
use super::super::endpoint::Direction;
use super::super::errno::Errno;
use super::super::fabric::Fabric;
use super::super::names::Known;
use super::super::offer::Registration;
use super::super::regions::Regions;
use super::super::sys::{self, CqAttr, fi_av_attr};
use super::super::wait::Beside;
use super::buffer::Buffer;
use super::kept_tests::flood;
use super::{Ends, Order, Traffic, Want};
use crate::gni::Place;
use crate::sync::EngineCell;
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::envelope::HOME;
use crate::wire::gni::mailbox::{Entry, HEAD, Label};
use crate::wire::gni::name::Name;

/// A domain with an endpoint.
pub(super) struct Side {
    pub(super) domain: Arc<Domain>,
    av: Arc<Av>,
    pub(super) transmit: Arc<Cq>,
    pub(super) receive: Arc<Cq>,
    pub(super) slot: u32,
    peer: Known,
}

impl Side {
    pub(super) fn new() -> Self {
        Self::at(None)
    }

    /// One that is reached as if it were of another node, or is of this one.
    pub(super) fn at(far: Option<Place>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let fabric = Arc::new(Fabric::new(sys::version(1, 17)));
        let regions = Arc::new(Regions::new(Registration { virtual_addresses: false, provider_keys: false }));
        let traffic = Arc::new(EngineCell::new(Traffic::new()));
        let domain = Domain {
            fabric,
            av_type: 0,
            addr_format: sys::FI_ADDR_GNI,
            regions,
            traffic,
            automatic: None,
            helper: OnceLock::new(),
        };
        let domain = Arc::new(domain);
        let attr = CqAttr {
            size: 0,
            flags: 0,
            format: 4,
            wait_obj: sys::FI_WAIT_NONE,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let queue = || Arc::new(Cq::new(Arc::clone(&domain), &attr).expect("a queue"));
        let (transmit, receive) = (queue(), queue());
        let attr = fi_av_attr { type_: sys::FI_AV_TABLE, ..Default::default() };
        let av = Arc::new(Av::new(Arc::clone(&domain), &attr, None).expect("an address vector"));
        // A device of this process alone.
        let bound = Name::bound(Ipv4Addr::from_bits(std::process::id()), 0);
        let name = Name { cdm_id: NEXT.fetch_add(1, Ordering::Relaxed) + (1 << 20), incarnation: 7, ..bound };
        // What other nodes reach has the device of every endpoint here, and an id of this process alone.
        let (device, cdm_id) = match far {
            None => (name.device.to_bits(), name.cdm_id),
            Some(_) => (HOME, 1 << 31 | std::process::id() << 8 | name.cdm_id & 0xFF),
        };
        let name = Name { cdm_id, ..name };
        let id = NameId { device, cdm_id, incarnation: 7 };
        let slot = domain.traffic.with(|traffic| traffic.open(id, far)).expect("free");
        let place = domain.traffic.with(|traffic| traffic.place(slot));
        let peer = match place {
            None => Known { name, id, is_far: false },
            Some(Place { address, port, key, .. }) => Known {
                name: Name { device: address, port, key, ..name },
                id: NameId { device: address.to_bits(), ..id },
                is_far: true,
            },
        };
        let direction = |cq: &Arc<Cq>| Some(Direction { cq: Arc::clone(cq), is_selective: false });
        let ends = Ends {
            av: Arc::clone(&av),
            transmit: direction(&transmit),
            receive: direction(&receive),
            sends: None,
            receives: None,
            reads: None,
            writes: None,
            remote_reads: None,
            remote_writes: None,
            takes: true,
            regions: Arc::clone(&domain.regions),
            rights: sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE,
            is_directed: true,
            tells_source: true,
            queue: None,
        };
        domain.traffic.with(|traffic| traffic.enable(slot, ends)).expect("enabled");
        Self { domain, av, transmit, receive, slot, peer }
    }

    /// The other is the first of its peers, or one more.
    pub(super) fn knows(&self, other: &Self) {
        self.av.add(other.peer).expect("a number");
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Traffic) -> R) -> R {
        self.domain.traffic.with(act)
    }

    pub(super) fn send(&self, bytes: &[u8], pieces: usize, tag: u64) -> Result<(), Errno> {
        let parts = bytes.chunks(bytes.len().div_ceil(pieces).max(1));
        let parts: Vec<sys::iovec> = parts
            .map(|part| sys::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
            .collect();
        // SAFETY: the bytes outlive the message in each test.
        let buffer = unsafe { Buffer::of_pieces(&parts) }?;
        self.send_to(0, buffer, tag)
    }

    pub(super) fn send_to(&self, destination: u64, buffer: Buffer, tag: u64) -> Result<(), Errno> {
        self.with(|traffic| traffic.send(self.slot, Self::order(destination, buffer, tag)))
    }

    fn order(destination: u64, buffer: Buffer, tag: u64) -> Order {
        Order {
            context: Foreign(ptr::without_provenance_mut(tag as usize)),
            destination,
            label: Label { tag: Some(tag), data: None },
            buffer,
            wants: true,
            is_injected: false,
            is_silent: false,
            is_answered: false,
            is_fenced: false,
            instead: None,
        }
    }

    /// Sends when all before it has ended.
    pub(super) fn send_fenced(&self, bytes: &'static [u8], tag: u64) -> Result<(), Errno> {
        let order = Order {
            is_fenced: true,
            ..Self::order(
                0,
                {
                    // SAFETY: the bytes are static.
                    unsafe { Buffer::new(bytes.as_ptr(), bytes.len()) }
                },
                tag,
            )
        };
        self.with(|traffic| traffic.send(self.slot, order))
    }

    /// Sends what ends when it has been received.
    pub(super) fn send_answered(&self, bytes: &'static [u8], tag: u64) -> Result<(), Errno> {
        let order = Order {
            is_answered: true,
            ..Self::order(
                0,
                {
                    // SAFETY: the bytes are static.
                    unsafe { Buffer::new(bytes.as_ptr(), bytes.len()) }
                },
                tag,
            )
        };
        self.with(|traffic| traffic.send(self.slot, order))
    }

    pub(super) fn receive(&self, bytes: &mut [u8], tag: u64) {
        self.receive_of(u64::MAX, bytes, tag);
    }

    /// From this peer only.
    pub(super) fn receive_of(&self, source: u64, bytes: &mut [u8], tag: u64) {
        // SAFETY: the bytes outlive the receive in each test.
        let buffer = unsafe { Buffer::new(bytes.as_ptr(), bytes.len()) };
        let context = Foreign(ptr::without_provenance_mut(tag as usize));
        let want =
            Want { context, source, tag: Some((tag, 0)), buffer, wants: true, many: None, instead: None };
        self.with(|traffic| traffic.receive(self.slot, want)).expect("posted");
    }

    /// What has ended in a queue.
    pub(super) fn ended(&self, cq: &Cq) -> (Vec<Completion>, Vec<Failure>) {
        let (mut well, mut failed) = (Vec::new(), Vec::new());
        loop {
            match cq.read(64, |_, completion| well.push(*completion)) {
                Ok(_) => {}
                Err(Errno::AVAIL) => failed.push(cq.read_failed().expect("a failure")),
                Err(_) => return (well, failed),
            }
        }
    }

    /// The memory of the peer is closed to us from now on.
    pub(super) fn close_memory(&self) {
        self.with(|traffic| {
            let context = traffic.context(self.slot).expect("open");
            assert!(context.peers[0].memory.take().is_some(), "it was open");
        });
    }

    /// Says something to the peer that is not to be said.
    pub(super) fn lie(&self, kind: u8, bytes: &[u8]) {
        assert_eq!(self.say(kind, bytes), 1);
    }

    /// Says something to the peer; how often: where there is no room, not at all.
    pub(super) fn say(&self, kind: u8, bytes: &[u8]) -> usize {
        self.with(|traffic| {
            let context = traffic.context(self.slot).expect("open");
            let mailbox = context.peers[0].mailbox.as_mut().expect("connected");
            usize::from(mailbox.push_bytes(kind, bytes).expect("sound"))
        })
    }

    /// Entries that have come of the peer.
    pub(super) fn heard(&self) -> u64 {
        self.with(|traffic| {
            let context = traffic.context(self.slot).expect("open");
            context.peers[0].mailbox.as_ref().expect("connected").received()
        })
    }

    pub(super) fn malformed(&self) -> u64 {
        self.with(|traffic| traffic.counters.malformed)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.domain.end(self.slot);
    }
}

/// Two sides that are connected.
pub(super) fn pair() -> [Side; 2] {
    connected([Side::new(), Side::new()])
}

/// The same of these.
pub(super) fn connected([one, two]: [Side; 2]) -> [Side; 2] {
    one.knows(&two);
    two.knows(&one);
    let (mut here, mut there) = ([0; 1], [0; 1]);
    one.receive(&mut here, 1);
    two.receive(&mut there, 1);
    one.send(b"a", 1, 1).expect("sent");
    two.send(b"b", 1, 1).expect("sent");
    for side in [&one, &two] {
        for cq in [&side.transmit, &side.receive] {
            while side.ended(cq).0.is_empty() {
                stir(&[&one, &two]);
            }
        }
    }
    assert_eq!((here, there), (*b"b", *b"a"));
    [one, two]
}

pub(super) fn stir(sides: &[&Side]) {
    sides.iter().for_each(|side| side.with(Traffic::progress_all));
}

pub(super) fn some(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn long_messages_come_whole_whether_or_not_memory_is_closed() {
    for is_closed in [false, true] {
        let [one, two] = pair();
        if is_closed {
            two.close_memory();
        }
        for (length, pieces, is_early) in
            [(5000, 1, true), (1 << 20, 1, false), (100_000, 7, true), (300_001, 8, false)]
        {
            let (bytes, mut to) = (some(length), vec![0; length]);
            if is_early {
                two.receive(&mut to, 3);
            }
            one.send(&bytes, pieces, 3).expect("sent");
            if !is_early {
                stir(&[&one, &two]);
                two.receive(&mut to, 3);
            }
            let mut ended = (Vec::new(), Vec::new());
            while ended.0.is_empty() {
                stir(&[&one, &two]);
                ended = two.ended(&two.receive);
                assert!(ended.1.is_empty());
            }
            assert_eq!((ended.0[0].length, ended.0[0].source), (length, 0));
            assert!(to == bytes, "{length} bytes");
            while one.ended(&one.transmit).0.is_empty() {
                stir(&[&one, &two]);
            }
        }
        // And as much as there is room for.
        for room in [0, 100_000] {
            let (bytes, mut to) = (some(200_000), vec![0; room]);
            two.receive(&mut to, 3);
            one.send(&bytes, 1, 3).expect("sent");
            let mut failed = Vec::new();
            while failed.is_empty() {
                stir(&[&one, &two]);
                failed = two.ended(&two.receive).1;
            }
            assert_eq!(
                (failed[0].code, failed[0].overflow, failed[0].of.length),
                (265, 200_000 - room, room)
            );
            assert!(to == bytes[..room]);
            while one.ended(&one.transmit).0.is_empty() {
                stir(&[&one, &two]);
            }
        }
    }
}

#[test]
fn a_queue_is_never_overrun_and_nothing_is_lost() {
    const MANY: usize = 11_000;
    let [one, two] = pair();
    let mut to = vec![[0; 8]; MANY];
    for (tag, to) in to.iter_mut().enumerate() {
        two.receive(to, tag as u64 + 10);
    }
    let mut sent = 0;
    let bytes: Vec<[u8; 8]> = (0..MANY).map(|number| (number as u64 + 1).to_le_bytes()).collect();
    for (tag, bytes) in bytes.iter().enumerate() {
        while one.send(bytes, 1, tag as u64 + 10) == Err(Errno::AGAIN) {
            stir(&[&one, &two]);
            sent += one.ended(&one.transmit).0.len();
        }
    }
    (0..100).for_each(|_| stir(&[&one, &two]));
    let held = two.receive.len();
    assert!(held < MANY, "{held} entries");
    let mut tags = Vec::new();
    while tags.len() < MANY || sent < MANY {
        stir(&[&one, &two]);
        sent += one.ended(&one.transmit).0.len();
        tags.extend(two.ended(&two.receive).0.iter().map(|completion| completion.tag as usize - 10));
    }
    assert!(tags.into_iter().eq(0..MANY), "in the order in which they were sent");
    assert!(to == bytes);
}

/// Nobody waits: what is waited for here never ends.
#[test]
fn queues_are_read_while_another_thread_makes_progress() {
    let [one, two] = pair();
    let mut to = [0; 1];
    two.receive(&mut to, 3);
    one.send(b"c", 1, 3).expect("sent");
    while two.receive.len() == 0 {
        stir(&[&one, &two]);
    }
    // The second thread of all waits for the first to be out.
    std::thread::scope(|scope| scope.spawn(|| two.with(|_| ())).join()).expect("no panic");
    two.with(|_| {
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| [(); 2].map(|()| two.receive.read(1, |_, _| ())));
            assert_eq!(reads.join().expect("no panic"), [Ok(1), Err(Errno::AGAIN)]);
        });
    });
}

#[test]
fn who_sleeps_is_woken_by_entries_room_and_what_is_queued() {
    let [one, two] = pair();
    let arm = |side: &Side| loop {
        if let Beside::Set(set, None) = side.with(Traffic::arm).expect("armed") {
            return set;
        }
    };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_awake = |set: &OwnedFd| poll(&mut [PollFd::new(set, PollFlags::IN)], Some(&now)) == Ok(1);
    let (here, there) = (arm(&one), arm(&two));
    assert!(!is_awake(&here) && !is_awake(&there));
    one.send(b"word", 1, 3).expect("sent");
    assert!(is_awake(&there) && !is_awake(&here));
    assert!(!is_awake(&arm(&two)), "it was looked at");
    // As much as there is room for, and more: that is for who sleeps here to see to.
    let bytes = some(4000);
    let mut count = 0;
    while !is_awake(&here) {
        one.send(&bytes, 1, 4).expect("sent");
        count += 1;
    }
    let _ = arm(&one);
    assert!(!is_awake(&here) && is_awake(&there));
    // Room is told of when some was read.
    while !is_awake(&here) {
        two.with(Traffic::progress);
    }
    let mut to = vec![0; 4000];
    for _ in 0..count {
        two.receive(&mut to, 4);
        while two.ended(&two.receive).0.is_empty() {
            stir(&[&one, &two]);
        }
        assert!(to == bytes);
    }
}

#[test]
fn what_may_not_be_said_ends_the_connection_and_no_more() {
    let label = Label { tag: Some(5), data: None };
    let lies: [(u8, Vec<u8>); 8] = [
        emitted(&Entry::Fin { send: 0, code: 0 }),
        emitted(&Entry::Fin { send: 1 << 32, code: u32::MAX }),
        emitted(&Entry::Ack { send: u64::MAX }),
        emitted(&Entry::Pull { send: 1 << 32, receive: 0, length: u64::MAX }),
        emitted(&Entry::Piece { receive: 1 << 32, offset: 0 }),
        (0, vec![]),
        (0xFF, vec![0; 64]),
        (emitted(&Entry::Eager { label, send: None }).0, vec![0; 7]),
    ];
    for (kind, bytes) in lies {
        let [one, two] = pair();
        let long = some(100_000);
        two.send(&long, 1, 9).expect("told of");
        one.lie(kind, &bytes);
        let mut failed = Vec::new();
        while failed.is_empty() {
            stir(&[&one, &two]);
            failed = two.ended(&two.transmit).1;
        }
        assert_eq!((failed.len(), failed[0].code), (1, libc::ECONNRESET), "{kind:#x}");
        assert_eq!(two.malformed(), 1);
        // Both sides go on with a new connection.
        let mut to = [0; 3];
        one.receive(&mut to, 4);
        while one.ended(&one.receive).0.is_empty() {
            let _ = two.send(b"new", 1, 4);
            stir(&[&one, &two]);
            let _ = (one.ended(&one.transmit), two.ended(&two.transmit));
        }
        assert_eq!(to, *b"new");
    }
}

#[test]
fn who_finds_no_ring_hears_so() {
    let [one, two] = pair();
    let three = Side::new();
    two.knows(&three);
    let all = two.with(|traffic| {
        let nic = traffic.nic.as_mut().expect("open");
        std::iter::from_fn(|| nic.mailbox()).count()
    });
    assert!(all > 0);
    two.send_to(1, Buffer::NONE, 9).expect("queued");
    let mut failed = Vec::new();
    while failed.is_empty() {
        stir(&[&one, &two, &three]);
        failed = two.ended(&two.transmit).1;
    }
    assert_eq!((failed.len(), failed[0].code), (1, libc::ENOMEM));
    two.with(|traffic| assert!(traffic.lacking.is_empty()));
}

#[test]
fn who_calls_seldom_is_connected_within_a_few_calls() {
    let [one, two] = [Side::new(), Side::new()];
    one.knows(&two);
    let mut to = [0; 1];
    two.receive(&mut to, 1);
    one.send(b"a", 1, 1).expect("queued");
    let (clock, mut calls) = (crate::link::Clock::new(), 0);
    while two.receive.len() == 0 {
        let start = clock.nanos();
        while clock.nanos() - start < super::LATE {}
        one.with(Traffic::progress);
        two.with(Traffic::progress);
        calls += 1;
    }
    assert!(calls <= 8, "{calls} calls");
    assert_eq!(to, *b"a");
}

#[test]
fn a_full_queue_stops_no_operation_of_its_own_side() {
    const MANY: usize = 20_000;
    let [one, two] = pair();
    let mut to = vec![[0; 1]; MANY];
    to.iter_mut().for_each(|to| two.receive(to, 5));
    flood(&one, &two, 1);
    let held = two.receive.len();
    assert!(held < MANY, "{held} entries");
    let (long, mut there) = (some(100_000), vec![0; 100_000]);
    one.receive(&mut there, 9);
    two.send(&long, 1, 9).expect("told of");
    while two.ended(&two.transmit).0.is_empty() {
        stir(&[&one, &two]);
        one.ended(&one.transmit);
    }
    assert!(there == long && two.receive.len() == held);
    let mut count = 0;
    while count < MANY {
        let _ = one.send(b"x", 1, 5);
        stir(&[&one, &two]);
        one.ended(&one.transmit);
        count += two.ended(&two.receive).0.len();
    }
}

pub(super) fn emitted(entry: &Entry) -> (u8, Vec<u8>) {
    let mut bytes = [0; HEAD];
    let (kind, length) = entry.emit(&mut bytes);
    (kind, bytes[..length].to_vec())
}

#[test]
fn what_an_ended_connection_leaves_is_said_to_nobody() {
    let [one, two] = pair();
    let (long, mut to, mut short) = (some(100_000), vec![0; 100_000], [0; 4]);
    one.send(&long, 1, 8).expect("told of");
    // SAFETY: the bytes outlive the message.
    let buffer = unsafe { Buffer::new(b"here".as_ptr(), 4) };
    let label = Label { tag: Some(9), data: None };
    let (context, destination) = (Foreign::NULL, 0);
    let (wants, is_answered) = (true, true);
    let (is_injected, is_silent, is_fenced) = (false, false, false);
    let order = Order {
        context,
        destination,
        label,
        buffer,
        wants,
        is_injected,
        is_silent,
        is_answered,
        is_fenced,
        instead: None,
    };
    one.with(|traffic| traffic.send(one.slot, order)).expect("sent");
    (0..10).for_each(|_| stir(&[&one, &two]));
    drop(one);
    let peer = |ask: fn(&super::context::Peer) -> bool| {
        two.with(|traffic| ask(&traffic.context(two.slot).expect("open").peers[0]))
    };
    while peer(|peer| peer.vc.is_some()) {
        stir(&[&two]);
    }
    two.receive(&mut short, 9);
    assert_eq!(two.ended(&two.receive).0.len(), 1);
    assert_eq!(short, *b"here");
    assert!(peer(|peer| peer.queue.is_empty()), "its sender does not wait for that any more");
    two.receive(&mut to, 8);
    (0..10).for_each(|_| stir(&[&two]));
    let (well, failed) = two.ended(&two.receive);
    assert!(well.is_empty() && failed.is_empty(), "there is no such message any more");
}

#[test]
fn who_is_not_there_takes_no_rings() {
    let one = Side::new();
    let mut ghost = one.peer;
    ghost.id.cdm_id = 1 << 19;
    one.av.add(ghost).expect("a number");
    for attempt in 0..1100 {
        one.send(b"x", 1, 1).expect("tried");
        let failed = one.ended(&one.transmit).1;
        assert_eq!(failed.len(), 1, "attempt {attempt}");
        assert_eq!(failed[0].code, libc::ECONNRESET, "attempt {attempt}");
    }
}

#[test]
fn what_comes_in_pieces_has_been_sent_when_it_is_there() {
    let [one, two] = pair();
    two.close_memory();
    let (bytes, mut to) = (some(100_000), vec![0; 100_000]);
    two.receive(&mut to, 3);
    one.send(&bytes, 1, 3).expect("told of");
    for _ in 0..3 {
        two.with(Traffic::progress_all);
        assert!(two.ended(&two.receive).0.is_empty());
        // All of it goes into the ring at once, and is not read yet.
        one.with(Traffic::progress_all);
        if two.with(|traffic| traffic.context(two.slot).expect("open").pulls.len()) != 0 {
            break;
        }
    }
    assert!(one.ended(&one.transmit).0.is_empty(), "it is on its way");
    while one.ended(&one.transmit).0.is_empty() {
        stir(&[&two, &one]);
    }
    assert!(to == bytes);
}

#[test]
fn what_is_owed_comes_to_who_only_reads() {
    const MANY: usize = 12_000;
    let [one, two] = pair();
    for _ in 0..MANY {
        // SAFETY: the byte outlives the message.
        let buffer = unsafe { Buffer::new(b"m".as_ptr(), 1) };
        let label = Label { tag: None, data: None };
        let (context, destination) = (Foreign::NULL, 0);
        let (wants, is_answered) = (false, false);
        let (is_injected, is_silent, is_fenced) = (false, false, false);
        let order = Order {
            context,
            destination,
            label,
            buffer,
            wants,
            is_injected,
            is_silent,
            is_answered,
            is_fenced,
            instead: None,
        };
        one.with(|traffic| traffic.send(one.slot, order)).expect("sent");
        stir(&[&two]);
    }
    let bytes = vec![0_u8; MANY];
    // SAFETY: the bytes outlive the receive.
    let buffer = unsafe { Buffer::new(bytes.as_ptr(), MANY) };
    let (context, source, tag) = (Foreign::NULL, u64::MAX, None);
    let want = Want { context, source, tag, buffer, wants: true, many: Some(1), instead: None };
    two.with(|traffic| traffic.receive(two.slot, want)).expect("posted");
    let mut count = 0;
    for _ in 0..1_000_000 {
        count += two.ended(&two.receive).0.len();
        if count == MANY {
            break;
        }
    }
    assert_eq!(count, MANY);
}
