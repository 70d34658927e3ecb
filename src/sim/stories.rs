//! What the notes ask for, packet by packet: two engines, one hand that carries the datagrams.

use super::Block;
use crate::config;
use crate::engine::*;
use crate::wire::usnic::{Body, Flags, Kind, Packet, Repr, Sender, Tagging};
use std::time::Duration;

pub(super) const MICRO: u64 = 1_000;
const KEYS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

/// Two engines that know each other.
pub(super) struct Pair {
    pub(super) engines: [Engine<Block>; 2],
    pub(super) ids: [EndpointId; 2],
    pub(super) now: Instant,
    pub(super) delivered: [Vec<Vec<u8>>; 2],
    pub(super) done: [Vec<Cookie>; 2],
}

/// A datagram on its way.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) channel: Channel,
    bytes: Vec<u8>,
}

impl Sent {
    pub(super) fn of(transmit: &Transmit<Block>) -> Self {
        let mut bytes = transmit.header.to_vec();
        for piece in transmit.pieces.iter().flatten() {
            let start = bytes.len();
            bytes.resize(start + piece.len, 0);
            piece.memory.read(piece.offset, &mut bytes[start..]);
        }
        Self { channel: transmit.channel, bytes }
    }

    pub(super) fn repr(&self) -> Repr {
        Packet::parse(&self.bytes).expect("well formed").repr
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn kind(&self) -> Kind {
        self.repr().body.kind()
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(&config::Usnic { max_datagram: 1472, ..config::Usnic::default() })
    }

    pub(super) fn with(config: &config::Usnic) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let identity = |at: usize| Identity { name: at as u64, incarnation: 1, key: KEYS[at] };
        let mut engines = [0, 1].map(|at| Engine::new(config, identity(at), 1 << 20, now).expect("memory"));
        let ids = [0, 1].map(|at| {
            let peer = Peer {
                name: 1 - at as u64,
                incarnation: 1,
                key: KEYS[1 - at],
                max_datagram: config.max_datagram,
            };
            engines[at].connect(peer, now).expect("connected")
        });
        Self { engines, ids, now, delivered: Default::default(), done: Default::default() }
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.now = self.now.plus(micros * MICRO);
    }

    pub(super) fn send(&mut self, from: usize, len: usize, cookie: Cookie) {
        let memory = Block::new(vec![cookie as u8; len]);
        let fragment =
            Fragment { tag: 3, pieces: [Some(memory), None], cookie, priority: false, awaited: true };
        self.engines[from].send(self.ids[from], fragment, self.now).expect("sent");
    }

    /// Everything that an engine sends now.
    pub(super) fn take(&mut self, from: usize) -> Vec<Sent> {
        self.engines[from].handle_timeout(self.now);
        let mut sent = Vec::new();
        while let Some(transmit) = self.engines[from].poll_transmit(self.now) {
            sent.push(Sent::of(&transmit));
        }
        sent
    }

    /// What a fragment becomes that leaves at once.
    pub(super) fn send_at_once(&mut self, from: usize, len: usize, cookie: Cookie) -> Option<Sent> {
        let memory = Block::new(vec![cookie as u8; len]);
        let fragment =
            Fragment { tag: 3, pieces: [Some(memory), None], cookie, priority: false, awaited: true };
        let id = self.ids[from];
        let engine = &mut self.engines[from];
        let mut unused = Header::EMPTY;
        assert!(!engine.send_copy(id, &fragment, self.now, &mut unused), "somebody awaits its end");
        let sent = engine.send_at_once(id, fragment, self.now).expect("sent");
        sent.as_ref().map(Sent::of)
    }

    /// The datagram of a short fragment that nobody awaits.
    pub(super) fn send_copy(&mut self, from: usize, bytes: &[u8]) -> Sent {
        let memory = Block::new(bytes.to_vec());
        let fragment = Fragment {
            tag: 3,
            pieces: [Some(memory.clone()), None],
            cookie: 0,
            priority: false,
            awaited: false,
        };
        let mut header = Header::EMPTY;
        assert!(self.engines[from].send_copy(self.ids[from], &fragment, self.now, &mut header));
        drop(fragment);
        assert_eq!(memory.holders(), 1, "nobody looks at it any more");
        Sent { channel: Channel::Priority, bytes: header.to_vec() }
    }

    /// As [`give`](Self::give), where it does not matter what comes of it.
    pub(super) fn hand(&mut self, to: usize, sent: &[Sent]) {
        for sent in sent {
            let _ = self.engines[to].handle_datagram(&sent.bytes, None, self.now);
        }
        while self.engines[to].poll_event().is_some() {}
    }

    pub(super) fn give(&mut self, to: usize, sent: &[Sent]) {
        for sent in sent {
            let received = self.engines[to].handle_datagram(&sent.bytes, None, self.now);
            if let Received::Deliver { payload, .. } = received {
                self.delivered[to].push(sent.bytes[payload].to_vec());
            }
        }
        while let Some(event) = self.engines[to].poll_event() {
            match event {
                Event::Deliver { buffer, .. } => {
                    self.delivered[to].push(buffer.to_vec());
                    self.engines[to].recycle(buffer);
                }
                Event::Done { cookie, outcome: Ok(()) } => self.done[to].push(cookie),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Carries everything to and fro, ten microseconds each way, until nothing is left.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            for from in 0..2 {
                self.pass(10);
                let sent = self.take(from);
                self.give(1 - from, &sent);
            }
        }
    }

    /// Gets the connection past its first packets: slots known, round trips measured, credit given.
    pub(super) fn warm(&mut self) {
        for cookie in 0..4 {
            self.send(0, 4000, cookie);
            self.send(1, 4000, cookie);
            self.settle();
        }
        for cookie in 0..8 {
            self.send(0, 400_000, cookie);
            self.settle();
        }
        self.delivered = Default::default();
        self.done = Default::default();
    }
}

#[test]
fn a_copied_fragment_is_over_at_once_and_sent_again_as_it_was() {
    let mut pair = Pair::new();
    pair.warm();
    let bytes: Vec<u8> = (1..=48).collect();
    let lost: Vec<Sent> = [0, 1, 8, 48].iter().map(|len| pair.send_copy(0, &bytes[..*len])).collect();
    for (sent, len) in lost.iter().zip([0, 1, 8, 48]) {
        assert_eq!((sent.kind(), sent.bytes.len()), (Kind::Fragment, 48 + len));
        assert_eq!(sent.bytes[48..], bytes[..len]);
    }
    let counters = pair.engines[0].counters();
    assert_eq!(counters.pml_module_sends, counters.pml_send_callbacks);
    assert_eq!(pair.engines[0].outstanding(), (0, 0));
    // Nothing of them arrives.
    let mut again = Vec::new();
    while pair.engines[0].peer(pair.ids[0]).expect("known").unacknowledged > 0 {
        let next = pair.engines[0].next_timeout().expect("it waits for an answer");
        pair.now = pair.now.plus(1).max(next);
        // Besides it says who asks.
        for sent in pair.take(0).into_iter().filter(|sent| sent.kind() == Kind::Fragment) {
            let of = lost.iter().find(|lost| lost.repr().seq == sent.repr().seq).expect("one of these");
            assert!(sent.repr().flags.has(Flags::RETRANSMISSION));
            assert_eq!((sent.repr().tag, sent.channel), (3, Channel::Data));
            assert_eq!(sent.bytes[48..], of.bytes[48..]);
            again.push(sent);
        }
        if again.len() >= 2 * lost.len() {
            pair.give(1, &again);
            let acks = pair.take(1);
            pair.give(0, &acks);
        }
    }
    assert_eq!(pair.engines[0].peer(pair.ids[0]).expect("known").unacknowledged, 0);
    assert_eq!(pair.engines[1].counters().num_frag_recvs, pair.engines[0].counters().num_frag_sends);
}

#[test]
fn places_of_copies_are_used_again_however_they_were_acknowledged() {
    let mut pair = Pair::new();
    pair.warm();
    let mut most = 0;
    for round in 0..100 {
        let mut sent: Vec<Sent> = (0..5).map(|_| pair.send_copy(0, b"short")).collect();
        // One by one, together, and out of order.
        if round % 3 == 1 {
            sent.reverse();
        }
        for sent in sent.chunks(if round % 3 == 0 { 1 } else { 5 }) {
            pair.give(1, sent);
            pair.pass(50);
            let acks = pair.take(1);
            pair.give(0, &acks);
        }
        assert_eq!(pair.engines[0].peer(pair.ids[0]).expect("known").unacknowledged, 0);
        most = if round < 3 { most.max(pair.engines[0].footprint(pair.ids[0])) } else { most };
        assert!(pair.engines[0].footprint(pair.ids[0]) <= most, "round {round}");
    }
}

#[test]
fn copies_of_a_lost_peer_are_gone_and_nobody_is_told_of_them() {
    let mut pair = Pair::new();
    pair.warm();
    let before = pair.engines[0].footprint(pair.ids[0]);
    (0..10).for_each(|_| _ = pair.send_copy(0, b"short"));
    assert!(pair.engines[0].footprint(pair.ids[0]) > before);
    pair.engines[0].give_up(pair.ids[0], pair.now);
    let lost = Event::Lost { endpoint: pair.ids[0] };
    assert_eq!((pair.engines[0].poll_event(), pair.engines[0].poll_event()), (Some(lost), None));
    assert!(pair.engines[0].footprint(pair.ids[0]) <= before);
}

#[test]
fn two_channels_overtake_each_other_without_resends() {
    let mut pair = Pair::new();
    pair.warm();
    for cookie in 0..10 {
        pair.send(0, 1000, cookie);
        pair.send(0, 100, cookie + 10);
    }
    let sent = pair.take(0);
    let of = |channel| sent.iter().filter(|it| it.channel == channel).cloned().collect::<Vec<_>>();
    let (tiny, large) = (of(Channel::Priority), of(Channel::Data));
    assert_eq!((tiny.len(), large.len()), (10, 10));
    pair.give(1, &tiny);
    let acks = pair.take(1);
    pair.give(0, &acks);
    pair.pass(20);
    assert!(pair.take(0).is_empty(), "nothing is lost");
    pair.give(1, &large);
    pair.settle();
    assert_eq!((pair.delivered[1].len(), pair.engines[0].counters().num_resends), (20, 0));
}

#[test]
fn resends_go_first_and_are_bounded() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 100_000, 1);
    let sent = pair.take(0);
    assert!(sent.len() > 60);
    // All but the last are lost: it tells of the others.
    pair.give(1, &sent[sent.len() - 1..]);
    let acks = pair.take(1);
    pair.give(0, &acks);
    pair.send(0, 8, 2);
    pair.pass(20);
    let again = pair.take(0);
    let resends = again.iter().filter(|it| it.repr().flags.has(Flags::RETRANSMISSION)).count();
    assert_eq!(resends, 16, "of one pass");
    assert!(
        again[..16]
            .iter()
            .all(|it| it.channel == Channel::Data && it.repr().flags.has(Flags::RETRANSMISSION))
    );
    pair.settle();
    assert_eq!((pair.delivered[1].len(), pair.done[0].len()), (2, 2));
}

#[test]
fn silence_asks_with_one_segment_and_then_with_two() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 50_000, 1);
    let sent = pair.take(0);
    assert!(sent.len() > 30);
    let mut asked = Vec::new();
    let start = pair.now;
    while pair.now - start < Duration::from_secs(5) {
        let next = pair.engines[0].next_timeout().expect("it waits");
        pair.now = pair.now.plus(1).max(next);
        asked.push(pair.take(0).len());
    }
    asked.retain(|count| *count > 0);
    assert_eq!(asked[0], 1);
    assert!(asked.len() < 24 && asked[1..].iter().all(|count| *count == 2), "{asked:?}");
}

#[test]
fn a_probe_leaves_however_little_credit_there_is() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 150_000, 1);
    let sent = pair.take(0);
    assert!(sent.len() > 60, "{} are under way, and lost", sent.len());
    // The peer says that it has room for two, and then the network goes down.
    pair.send(1, 8, 2);
    let told = pair.take(1).remove(0);
    let told_repr = Repr { credit: 2, ..told.repr() };
    assert_eq!(told_repr.sender, None, "both know each other");
    let mut header = told_repr.emit();
    let sender = Sender { name: 1, incarnation: 1, slot: 1 << 20 | 1 };
    header.seal(&Tagging::new(&KEYS[0], told_repr.receiver_slot, told_repr.connection, &sender));
    let told = Sent { channel: told.channel, bytes: [&header[..], &told.bytes[header.len()..]].concat() };
    pair.give(0, &[told]);
    assert_eq!(pair.engines[0].peer(pair.ids[0]).expect("known").credit, 2);
    let start = pair.now;
    let (mut asked, mut introductions) = (0, 0);
    while pair.now - start < Duration::from_secs(1) {
        let next = pair.engines[0].next_timeout().expect("it waits");
        pair.now = pair.now.plus(1).max(next);
        let left = pair.take(0);
        asked += left.iter().filter(|sent| sent.repr().flags.has(Flags::RETRANSMISSION)).count();
        introductions += left.iter().filter(|sent| sent.repr().sender.is_some()).count();
    }
    assert!((8..30).contains(&asked), "{asked} packets have asked");
    let counters = pair.engines[0].counters();
    assert_eq!((counters.num_resends, counters.num_timeout_retrans), (asked as u64, asked as u64));
    let packets = (asked + introductions) as u64;
    assert_eq!(counters.num_probes, packets / 2 + 1, "one packet the first time, then two");
    // It is up again: the next probe brings the rest on its way.
    let waited = pair.engines[0].next_timeout().expect("it waits") - pair.now;
    assert!(waited <= Duration::from_millis(500), "{waited:?}");
    pair.now = pair.now + waited;
    for _ in 0..20_000 {
        for from in 0..2 {
            pair.pass(10);
            let sent = pair.take(from);
            pair.give(1 - from, &sent);
        }
        if pair.done[0] == [1] {
            return;
        }
    }
    panic!("{:?}", pair.engines[0].peer(pair.ids[0]));
}

#[test]
fn what_leaves_at_once_overtakes_nothing() {
    let mut pair = Pair::new();
    pair.warm();
    pair.send(0, 10_000, 1);
    assert!(pair.send_at_once(0, 8, 2).is_none());
    let sent = pair.take(0);
    assert!(sent.len() > 7);
    pair.give(1, &sent);
    pair.settle();
    assert_eq!(pair.done[0].len(), 2);
    assert!(pair.send_at_once(0, 2000, 3).is_none(), "more than a tiny one");
    pair.settle();
    assert_eq!(pair.done[0].len(), 3);
    assert!(pair.send_at_once(0, 8, 4).is_some());
}

/// The least time of many tries; what else the machine does can only make it longer.
fn least(mut what: impl FnMut()) -> Duration {
    let clock = crate::link::Clock::new();
    let one = |_| {
        let start = clock.nanos();
        what();
        Duration::from_nanos(clock.nanos() - start)
    };
    (0..200).map(one).min().unwrap_or_default()
}

#[test]
fn what_was_once_under_way_costs_nothing_later() {
    const MANY: u64 = 100_000;
    let mut pair = Pair::new();
    pair.warm();
    let memory = Block::new(vec![0; 8]);
    let close = |pair: &mut Pair| {
        least(|| {
            let registration = pair.engines[0].register(memory.clone(), Access::BOTH);
            pair.engines[0].deregister(registration);
        })
    };
    let before = close(&mut pair);
    (0..MANY).for_each(|cookie| pair.send(0, 8, cookie));
    let during = close(&mut pair);
    while pair.done[0].len() < MANY as usize {
        pair.settle();
    }
    let after = close(&mut pair);
    let most = 50 * before.max(Duration::from_nanos(100));
    assert!(during < most && after < most, "{before:?} before, {during:?} during, {after:?} after");
    // The table becomes small again when there is time for it.
    for cookie in 0..20 {
        pair.send(0, 8, cookie);
        pair.settle();
        pair.pass(1_000_000);
        assert!(pair.take(0).is_empty());
    }
    assert!(pair.engines[0].places() <= 64, "{} places", pair.engines[0].places());
}

#[test]
fn endpoints_are_served_in_turn() {
    let now = Instant::from_nanos(1_000_000_000);
    let config = config::Usnic { max_datagram: 1472, ..config::Usnic::default() };
    let identity = Identity { name: 9, incarnation: 1, key: KEYS[0] };
    let mut engine: Engine<Block> = Engine::new(&config, identity, 1 << 20, now).expect("memory");
    let mut order = Vec::new();
    for name in 0..5 {
        let peer = Peer { name, incarnation: 1, key: KEYS[1], max_datagram: 1472 };
        let id = engine.connect(peer, now).expect("connected");
        // An acknowledgement that gives much credit.
        let greeting = Repr {
            flags: Flags::ACKNOWLEDGES,
            tag: 0,
            length: 0,
            connection: 1,
            receiver_slot: 0,
            sender: Some(Sender { name, incarnation: 1, slot: 1 }),
            stamp: 1,
            echo: 0,
            credit: 4096,
            seq: 0,
            ack: 0,
            body: Body::Void,
        };
        let mut header = greeting.emit();
        header.seal(&greeting.tagging(&KEYS[0]).expect("a long header"));
        assert_eq!(engine.handle_datagram(&header, None, now), Received::Nothing);
        for cookie in 0..100 {
            let memory = Block::new(vec![0; 1300]);
            let fragment =
                Fragment { tag: 1, pieces: [Some(memory), None], cookie, priority: false, awaited: true };
            engine.send(id, fragment, now).expect("sent");
        }
    }
    while let Some(transmit) = engine.poll_transmit(now) {
        let index = transmit.endpoint.index();
        if order.last() != Some(&index) {
            order.push(index);
        }
    }
    assert!(order.len() >= 5, "{order:?}");
    let mut first: Vec<usize> = order[..5].to_vec();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 5, "each has had a turn before any has its second: {order:?}");
}

#[test]
fn fragments_that_can_never_fit_are_refused() {
    let mut pair = Pair::new();
    let longest = pair.engines[0].max_fragment();
    let memory = Block::new(vec![0; longest + 1]);
    let fragment = |memory: Block| Fragment {
        tag: 1,
        pieces: [Some(memory), None],
        cookie: 1,
        priority: false,
        awaited: true,
    };
    let too_long = pair.engines[0].send(pair.ids[0], fragment(memory.clone()), pair.now);
    assert_eq!(too_long, Err(crate::error::Error::MessageTooBig));
    pair.engines[0].send(pair.ids[0], fragment(memory.slice(0, longest)), pair.now).expect("fits");
}

#[test]
fn the_engine_says_when_it_expects_data() {
    let mut pair = Pair::new();
    assert!(!pair.engines[0].is_expecting());
    pair.send(0, 8, 1);
    let sent = pair.take(0);
    assert!(!pair.engines[0].is_expecting(), "tiny ones use the other channel");
    pair.give(1, &sent);
    pair.send(0, 4000, 2);
    let sent = pair.take(0);
    assert!(pair.engines[0].is_expecting());
    pair.give(1, &sent[..1]);
    assert!(pair.engines[1].is_expecting());
    pair.settle();
    assert!(!pair.engines[0].is_expecting() && !pair.engines[1].is_expecting());
    assert_eq!(pair.done[0], [1, 2]);
}
