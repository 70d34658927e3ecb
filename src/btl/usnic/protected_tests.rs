//! The way out of protected packets, over a link that notes what becomes of each.

use super::*;
use crate::btl::usnic::routes::Route;
use crate::config;
use crate::engine::{Channel, EndpointId, Event, Fragment, Identity, Peer};
use crate::error::Result;
use crate::link::conformance::lend;
use crate::link::peers::Peers;
use crate::link::{AddressId, Clock, Counters, Limits};
use crate::wire::protection::TAG_LEN;
use crate::wire::usnic::HEADER_LEN;

/// What has become of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Went {
    Shared,
    Alone(Channel),
}

/// A link that notes what it is given, and on whose full queue the next post finds no room.
#[derive(Default)]
struct Noted {
    packets: Vec<(Went, Vec<u8>)>,
    shares: bool,
    is_full: bool,
    counters: Counters,
}

impl Link for Noted {
    fn limits(&self) -> Limits {
        Limits { max_datagram: [1472; 2], receive_capacity: 1 << 20, speed_mbps: 1_000, numa_node: None }
    }
    fn name(&self) -> Vec<u8> {
        Vec::new()
    }
    fn resolve(&mut self, _name: &[u8]) -> Result<AddressId> {
        Err(crate::error::Error::Unreachable)
    }
    fn release(&mut self, _address: AddressId) {}
    fn distance(&self, _name: &[u8]) -> Option<u32> {
        None
    }
    fn max_datagram(&self, _channel: Channel, _to: AddressId) -> usize {
        1472
    }
    fn post(&mut self, channel: Channel, _to: AddressId, header: &[u8], pieces: &[Lent]) -> bool {
        assert!(pieces.is_empty(), "it has been encrypted");
        if !std::mem::take(&mut self.is_full) {
            self.packets.push((Went::Alone(channel), header.to_vec()));
            return true;
        }
        false
    }
    fn flush(&mut self) -> usize {
        0
    }
    fn coalesce(&mut self, _to: AddressId, packet: &[u8], longest: usize, _now: u64) -> bool {
        assert_eq!(longest, 1472);
        if self.shares {
            self.packets.push((Went::Shared, packet.to_vec()));
        }
        self.shares
    }
    fn queued(&self) -> usize {
        0
    }
    fn poll(&mut self, _channel: Channel, _into: &mut Inbox) -> usize {
        0
    }
    fn poll_refused(&mut self) -> Option<AddressId> {
        None
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// An engine that knows its peer, and is known to it.
struct Side {
    engine: Engine<Lent>,
    to: EndpointId,
    routes: Routes,
    link: Noted,
    row: u32,
    packet: Vec<u8>,
    /// What has been lent to the engine.
    memory: Vec<Box<[u8]>>,
}

const KEYS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

impl Side {
    fn new(at: usize) -> Self {
        let config = config::Usnic { protect_payload: true, ..config::Usnic::default() };
        let identity = Identity { name: at as u64, incarnation: 1, key: KEYS[at] };
        let mut engine = Engine::new(&config, identity, 1 << 20, START).expect("memory");
        let other = 1 - at;
        let peer = Peer { name: other as u64, incarnation: 1, key: KEYS[other], max_datagram: 1472 };
        let to = engine.connect(peer, START).expect("connected");
        let address = Peers::new().resolve(other, || Ok(())).expect("an address");
        let mut routes = Routes::default();
        routes.put(Route { of: to, to: address, is_closed: false });
        Self { engine, to, routes, link: Noted::default(), row: 0, packet: Vec::new(), memory: Vec::new() }
    }

    fn queue(&mut self, bytes: &[u8], now: Instant) {
        let mut bytes: Box<[u8]> = bytes.into();
        let memory = lend(&mut bytes);
        self.memory.push(bytes);
        let fragment =
            Fragment { tag: 1, pieces: [Some(memory), None], cookie: 1, priority: false, awaited: false };
        self.engine.send(self.to, fragment, now).expect("sent");
    }

    /// One pass; what has become of its packets.
    fn transmit(&mut self, now: Instant) -> Vec<(Went, Vec<u8>)> {
        self.engine.handle_timeout(now);
        let clock = Arrivals::new(Clock::new());
        if let Some(first) = self.engine.poll_transmit_run(AT_ONCE, now) {
            let Self { engine, routes, link, row, packet, .. } = self;
            Way { engine, link, routes, clock: &clock, row, packet }.transmit(first, now);
        }
        std::mem::take(&mut self.link.packets)
    }

    fn hear(&mut self, packets: &[(Went, Vec<u8>)], now: Instant) {
        for (_, packet) in packets {
            let _ = self.engine.handle_datagram(packet, None, now);
        }
        while self.engine.poll_event().is_some() {}
    }
}

const START: Instant = Instant::from_nanos(1_000_000_000);
const MILLI: u64 = 1_000_000;

/// Two that have talked, and what time it is.
fn pair() -> ([Side; 2], Instant) {
    let (mut sides, mut now) = ([0, 1].map(Side::new), START);
    for _ in 0..4 {
        for at in [0, 1] {
            sides[at].queue(b"hello", now);
            now = now.plus(MILLI);
            let packets = sides[at].transmit(now);
            sides[1 - at].hear(&packets, now);
        }
    }
    sides.iter_mut().for_each(|side| side.row = 0);
    (sides, now)
}

#[test]
fn the_first_of_a_row_leaves_alone_and_what_is_sent_again_too() {
    let ([mut one, _], mut now) = pair();
    one.link.shares = true;
    (0..5).for_each(|_| one.queue(&[7; 256], now));
    let went: Vec<_> = one.transmit(now).into_iter().map(|(went, _)| went).collect();
    let alone = Went::Alone(Channel::Priority);
    assert_eq!(went, [alone, Went::Shared, Went::Shared, Went::Shared, Went::Shared]);
    let mut again = Vec::new();
    while again.len() < 5 {
        now = now.plus(10 * MILLI);
        again.extend(one.transmit(now));
    }
    // They are told apart by their channel: what overtakes the others there would make them lost.
    assert!(again.iter().all(|(went, _)| *went == Went::Alone(Channel::Data)), "{again:?}");
}

#[test]
fn a_packet_of_a_row_that_cannot_share_is_sent_once_as_it_was_encrypted() {
    let ([mut one, mut two], now) = pair();
    (0..200).for_each(|_| one.queue(&[7; 256], now));
    one.link.is_full = true;
    let packets = one.transmit(now);
    let bytes: usize = packets.iter().map(|(_, packet)| packet.len()).sum();
    assert!(bytes > AT_ONCE, "more than leaves at once: {bytes}");
    assert!(packets.iter().all(|(went, _)| *went == Went::Alone(Channel::Priority)));
    let before = two.engine.counters();
    two.hear(&packets, now);
    let after = two.engine.counters();
    assert_eq!(after.num_frag_recvs - before.num_frag_recvs, 200, "each once");
    assert_eq!((after.num_crc_errors, after.num_replay_recvs), (0, 0));
}

/// What a side makes of datagrams of `size` bytes that came together: the fragments that it delivers.
fn come(side: &mut Side, datagrams: &[u8], size: usize, now: Instant) -> Vec<Vec<u8>> {
    let (mut inbox, mut delivered) = (Inbox::new(), Vec::new());
    let mut vacant = inbox.take().expect("memory");
    vacant.bytes()[..datagrams.len()].copy_from_slice(datagrams);
    inbox.deliver_all(Channel::Data, vacant, size, 0..datagrams.len(), 0);
    while !inbox.is_empty() {
        assert!(receive(&mut side.engine, &mut inbox, None, now).1.is_none(), "they are events");
        while let Some(event) = side.engine.poll_event() {
            if let Event::Deliver { buffer, .. } = event {
                delivered.push(buffer.to_vec());
                side.engine.recycle(buffer);
            }
        }
    }
    delivered
}

#[test]
fn packets_that_share_a_datagram_are_taken_one_by_one_as_long_as_they_are_genuine() {
    for garbled in 0..4 {
        let ([mut one, mut two], now) = pair();
        (0..4).for_each(|_| one.queue(&[7; 20], now));
        let packets: Vec<_> = one.transmit(now).into_iter().map(|(_, packet)| packet).collect();
        let (mut datagram, each) = (packets.concat(), packets[0].len());
        datagram[garbled * each + HEADER_LEN] ^= 1;
        let len = datagram.len();
        assert_eq!(come(&mut two, &datagram, len, now), vec![vec![7; 20]; garbled]);
        assert_eq!(two.engine.counters().num_crc_errors, 1, "what is behind is not looked at");
        assert_eq!(come(&mut two, &packets[garbled..].concat(), len, now), vec![vec![7; 20]; 4 - garbled]);
    }
}

#[test]
fn what_is_in_one_datagram_does_no_harm_to_the_next_that_came_with_it() {
    let ([mut one, mut two], now) = pair();
    for len in [20, 20, 20 + HEADER_LEN + TAG_LEN + 20] {
        one.queue(&[7; 200][..len], now);
    }
    let packets: Vec<_> = one.transmit(now).into_iter().map(|(_, packet)| packet).collect();
    let (mut datagrams, size) = (packets.concat(), packets[2].len());
    assert_eq!(datagrams.len(), 2 * size);
    datagrams[size - 1] ^= 1;
    assert_eq!(come(&mut two, &datagrams, size, now), [vec![7; 20], vec![7; size - HEADER_LEN - TAG_LEN]]);
}
