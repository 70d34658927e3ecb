//! What the world can do to an engine with datagrams: nothing.
//!
//! Without the key every datagram is dropped and counted. With the key, a hostile peer says what it
//! likes in every field; it can spoil its own connection, and no more.

use super::{Block, Random};
use crate::config;
use crate::engine::*;
use crate::wire::usnic::{Bitmap, Body, Flags, Repr, Sender, VERSION};

const KEY: [u8; 16] = *b"the victim's key";
const PEER_KEY: [u8; 16] = *b"the peer's key..";

fn config() -> config::Usnic {
    config::Usnic {
        max_datagram: 1472,
        reassembly_per_peer: 1 << 20,
        reassembly_total: 1 << 21,
        ..config::Usnic::default()
    }
}

fn victim() -> (Engine<Block>, EndpointId, Registration) {
    let identity = Identity { name: 1, incarnation: 1, key: KEY };
    let mut engine = Engine::new(&config(), identity, 1 << 20, Instant::ORIGIN).expect("memory");
    let peer = Peer { name: 2, incarnation: 1, key: PEER_KEY, max_datagram: 1472 };
    let endpoint = engine.connect(peer, Instant::ORIGIN).expect("connected");
    let registration = engine.register(Block::new(vec![0; 5000]), Access::BOTH);
    (engine, endpoint, registration)
}

/// What the engine has accepted or believed: everything but the counts of what it dropped.
fn believed(engine: &Engine<Block>) -> u64 {
    let counters = engine.counters();
    let dropped = counters.num_short_recvs
        + counters.num_version_recvs
        + counters.num_kind_recvs
        + counters.num_flags_recvs
        + counters.num_length_recvs
        + counters.num_nameless_recvs
        + counters.num_crc_errors;
    counters.num_total_recvs - dropped
}

fn genuine(repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let repr = Repr { length: payload.len() as u16, ..*repr };
    let mut header = repr.emit();
    header.seal(&repr.tagging(&KEY).expect("a long header"));
    [&header[..], payload].concat()
}

/// The sender of a first packet.
fn sender(name: u64, incarnation: u32) -> Option<Sender> {
    Some(Sender { name, incarnation, slot: 7 })
}

/// A packet as the peer sends it, first in its connection.
fn plain(body: Body) -> Repr {
    Repr {
        flags: Flags::ACKNOWLEDGES,
        tag: 1,
        length: 0,
        connection: 1,
        receiver_slot: 0,
        sender: sender(2, 1),
        stamp: 1,
        echo: 0,
        credit: 100,
        seq: 0,
        ack: 0,
        body,
    }
}

#[test]
fn of_a_million_forgeries_none_is_accepted() {
    let (mut engine, _, _) = victim();
    let mut random = Random::new(11);
    let now = Instant::from_nanos(5);
    let sample = genuine(&plain(Body::Chunk { fragment: 1, size: 500, offset: 0 }), &[9; 100]);
    for round in 0..1_000_000_u32 {
        let mut bytes = match round % 4 {
            // Noise of any length.
            0 => (0..random.below(200)).map(|_| random.number() as u8).collect(),
            // Noise that looks like a packet.
            1 => {
                let mut bytes: Vec<u8> = (0..96 + random.below(60)).map(|_| random.number() as u8).collect();
                let form = [0, 0x80][random.below(2) as usize];
                bytes[..3].copy_from_slice(&[VERSION, form | (1 + random.below(10) as u8), 1]);
                bytes[4..6].copy_from_slice(&[0, 0]);
                bytes[46..48].copy_from_slice(&[0, 0]);
                bytes
            }
            // A genuine packet with some bits turned over, those of the header at least.
            2 => {
                let mut bytes = sample.clone();
                let bit = random.below(76 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                for _ in 0..random.below(3) {
                    let bit = random.below(bytes.len() as u64 * 8) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                bytes
            }
            // A truncated one.
            _ => sample[..random.below(sample.len() as u64) as usize].to_vec(),
        };
        // A header with all its bits turned back is genuine, and the payload is not under the tag.
        if bytes.starts_with(&sample[..76]) {
            bytes[0] = 9;
        }
        assert_eq!(engine.handle_datagram(&bytes, None, now), Received::Nothing);
        assert!(engine.has_refused(), "and what follows in its datagram is not looked at");
    }
    assert_eq!(believed(&engine), 0);
    assert!(engine.poll_event().is_none() && engine.poll_transmit(now).is_none());
    assert_eq!(engine.handle_datagram(&sample, None, now), Received::Nothing);
    assert!(!engine.has_refused());
    assert_eq!((believed(&engine), engine.counters().num_chunk_recvs), (1, 1), "the genuine one is taken");
    assert_eq!(engine.handle_datagram(&sample, None, now), Received::Nothing);
    assert!(!engine.has_refused(), "it is known already, and genuine");
}

#[test]
fn what_is_replayed_does_nothing() {
    let (mut engine, endpoint, registration) = victim();
    let mut now = Instant::from_nanos(5_000);
    let memory = Block::new(vec![3; 30_000]);
    let fragment =
        Fragment { tag: 1, pieces: [Some(memory), None], cookie: 9, priority: false, awaited: true };
    engine.send(endpoint, fragment, now).expect("sent");
    while engine.poll_transmit(now).is_some() {}
    let Registration { id: registration, generation, .. } = registration;
    let put = Body::Put { registration, generation, offset: 0, operation: 1 };
    let get = Body::GetRequest { registration, generation, offset: 0, length: 3000, operation: 2 };
    let sent: Vec<Vec<u8>> = vec![
        genuine(&plain(Body::Fragment), b"once"),
        genuine(&Repr { seq: 1, stamp: 2, ..plain(put) }, b"put once"),
        genuine(&Repr { seq: 2, stamp: 3, ..plain(get) }, b""),
        genuine(
            &Repr { seq: 3, stamp: 4, ..plain(Body::Chunk { fragment: 1, size: 4, offset: 0 }) },
            b"all!",
        ),
        genuine(&Repr { seq: 4, stamp: 5, ack: 1, ..plain(Body::Fragment) }, b"twice?"),
        genuine(&Repr { stamp: 6, ack: 1, ..plain(Body::Ack(Bitmap::default())) }, b""),
    ];
    let mut delivered = 0;
    let mut events = 0;
    for round in 0..50 {
        for bytes in &sent {
            now = now.plus(1000);
            if matches!(engine.handle_datagram(bytes, None, now), Received::Deliver { .. }) {
                delivered += 1;
            }
        }
        while let Some(event) = engine.poll_event() {
            assert!(matches!(event, Event::Deliver { .. }), "{event:?}");
            events += 1;
        }
        while engine.poll_transmit(now).is_some() {}
        assert_eq!((delivered, events), (2, 1), "round {round}");
    }
    let counters = engine.counters();
    assert_eq!((counters.num_put_recvs, counters.num_get_recvs, counters.num_chunk_recvs), (1, 1, 1));
    assert_eq!(counters.num_oow_low_recvs, 5 * 49);
}

#[test]
fn a_hostile_peer_with_the_key_spoils_only_its_own() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (mut engine, endpoint, registration) = victim();
        let honest = Peer { name: 3, incarnation: 1, key: PEER_KEY, max_datagram: 1472 };
        let honest = engine.connect(honest, Instant::ORIGIN).expect("connected");
        let mut now = Instant::from_nanos(1000);
        let mut seq = 0;
        for round in 0..4_000_u64 {
            now = now.plus(random.below(300_000));
            if round % 64 == 0 {
                let memory = Block::new(vec![1; random.below(9000) as usize]);
                let fragment = Fragment {
                    tag: 1,
                    pieces: [Some(memory.clone()), None],
                    cookie: round,
                    priority: false,
                    awaited: true,
                };
                let _ = engine.send(endpoint, fragment, now);
                let _ = engine.get(endpoint, memory.clone(), registration_of(&memory), 0, round, now);
                let _ = engine.put(endpoint, memory.clone(), registration_of(&memory), 0, round, now);
            }
            let wild = |random: &mut Random| match random.below(5) {
                0 => random.number(),
                1 => u64::MAX - random.below(5),
                2 => random.below(8),
                3 => 1 << random.below(64),
                _ => random.below(6000),
            };
            let payload: Vec<u8> = (0..random.below(1400)).map(|_| 5).collect();
            let body = match random.below(10) {
                0 => {
                    let mut bitmap = Bitmap::default();
                    (0..random.below(40)).for_each(|_| bitmap.set(random.below(256)));
                    Body::Ack(bitmap)
                }
                1 => Body::Fragment,
                2 | 3 => Body::Chunk {
                    fragment: random.below(5) as u32,
                    size: wild(&mut random) as u32,
                    offset: wild(&mut random) as u32,
                },
                4 => Body::Put {
                    registration: if random.below(2) == 0 {
                        registration.id
                    } else {
                        wild(&mut random) as u32
                    },
                    generation: if random.below(2) == 0 { 1 } else { wild(&mut random) as u32 },
                    offset: wild(&mut random),
                    operation: wild(&mut random),
                },
                5 => Body::GetRequest {
                    registration: registration.id,
                    generation: 1,
                    offset: wild(&mut random),
                    length: wild(&mut random),
                    operation: wild(&mut random),
                },
                6 => Body::GetData { operation: 1 << 32 | random.below(9), offset: wild(&mut random) },
                7 => Body::Refused { operation: 1 << 32 | random.below(9) },
                8 => match random.below(4) {
                    0 => Body::Void,
                    1 | 2 => Body::Withdraw,
                    _ => Body::Withdrawn { segment: wild(&mut random) },
                },
                _ if random.below(200) == 0 => Body::Close,
                _ if random.below(100) == 0 => Body::CloseAck,
                _ if random.below(100) == 0 => Body::Reset,
                _ => Body::Void,
            };
            let bare = !matches!(
                body.kind(),
                crate::wire::usnic::Kind::Fragment
                    | crate::wire::usnic::Kind::Chunk
                    | crate::wire::usnic::Kind::Put
                    | crate::wire::usnic::Kind::GetData
            );
            seq = match random.below(8) {
                0 => wild(&mut random),
                1 => seq.wrapping_sub(random.below(300)),
                _ => seq.wrapping_add(random.below(3)),
            };
            let mut repr = Repr {
                stamp: wild(&mut random) as u32,
                echo: wild(&mut random) as u32,
                credit: wild(&mut random) as u16,
                seq,
                ack: wild(&mut random),
                tag: random.number() as u8,
                ..plain(body)
            };
            if random.below(300) == 0 {
                repr.receiver_slot = wild(&mut random) as u32;
                let slot = wild(&mut random) as u32;
                repr.sender = Some(Sender { name: 2, incarnation: 1, slot });
                repr.connection = wild(&mut random) as u16;
            }
            let bytes = genuine(&repr, if bare { b"" } else { &payload });
            let received = engine.handle_datagram(&bytes, None, now);
            if let Received::Deliver { payload, .. } = received {
                assert!(payload.end <= bytes.len());
            }
            if random.below(4) == 0 {
                engine.handle_timeout(now);
                while let Some(event) = engine.poll_event() {
                    if let Event::Deliver { buffer, .. } = event {
                        engine.recycle(buffer);
                    }
                }
                while engine.poll_transmit(now).is_some() {}
            }
            assert!(engine.footprint(endpoint) < 4 << 20, "memory is bounded");
        }
        // Another peer's connection works as if nothing had been.
        let fragment =
            Fragment { tag: 1, pieces: [None, None], cookie: u64::MAX, priority: false, awaited: true };
        engine.send(honest, fragment, now).expect("sent");
        let mut sent = 0;
        while let Some(transmit) = engine.poll_transmit(now) {
            sent += usize::from(transmit.endpoint == honest);
        }
        assert!(sent > 0, "seed {seed}");
        let answer = Repr { sender: sender(3, 1), ack: 1, ..plain(Body::Fragment) };
        let received = engine.handle_datagram(&genuine(&answer, b"well"), None, now);
        assert!(matches!(received, Received::Deliver { endpoint, .. } if endpoint == honest));
        let mut done = false;
        while let Some(event) = engine.poll_event() {
            done |= event == Event::Done { cookie: u64::MAX, outcome: Ok(()) };
        }
        assert!(done, "seed {seed}");
        engine.forget(endpoint);
        engine.forget(honest);
        assert_eq!(engine.outstanding(), (0, 1));
        assert!(!engine.is_expecting(), "seed {seed}");
    }
}

fn registration_of(memory: &Block) -> Registration {
    Registration { id: 0, generation: 1, length: memory.len() as u64, access: Access::BOTH, key: 0 }
}

#[test]
fn strangers_are_reported_and_the_dead_are_not() {
    let (mut engine, endpoint, _) = victim();
    let now = Instant::from_nanos(5);
    let stranger = genuine(&Repr { sender: sender(2, 2), ..plain(Body::Fragment) }, b"hello");
    let unknown = Received::Unknown { name: 2, incarnation: 2 };
    assert_eq!(engine.handle_datagram(&stranger, None, now), unknown);
    let known = genuine(&plain(Body::Fragment), b"hello");
    assert!(matches!(engine.handle_datagram(&known, None, now), Received::Deliver { .. }));
    engine.forget(endpoint);
    assert_eq!(engine.handle_datagram(&known, None, now), Received::Nothing);
    assert_eq!(engine.counters().num_stale_recvs, 1, "that connection is over");
    let anew = genuine(&Repr { connection: 2, ..plain(Body::Fragment) }, b"hello");
    let unknown = Received::Unknown { name: 2, incarnation: 1 };
    assert_eq!(engine.handle_datagram(&anew, None, now), unknown);
    let peer = Peer { name: 2, incarnation: 1, key: PEER_KEY, max_datagram: 1472 };
    engine.connect(peer, now).expect("connected");
    assert_eq!(engine.handle_datagram(&known, None, now), Received::Nothing, "a replay");
    assert!(matches!(engine.handle_datagram(&anew, None, now), Received::Deliver { .. }));
}

#[test]
fn protection_must_be_the_same_on_both_sides() {
    let (mut engine, _, _) = victim();
    let repr = Repr { flags: Flags::PROTECTED, length: 2, ..plain(Body::Fragment) };
    let bytes = super::protected::sealed(&KEY, 0, &repr, b"hi");
    let received = engine.handle_datagram(&bytes, None, Instant::ORIGIN);
    assert_eq!((received, engine.counters().num_flags_recvs), (Received::Nothing, 1));
}

#[test]
fn a_protected_packet_says_who_sends_it() {
    let config = config::Usnic { protect_payload: true, ..config() };
    let identity = Identity { name: 1, incarnation: 1, key: KEY };
    let mut engine: Engine<Block> = Engine::new(&config, identity, 1 << 20, Instant::ORIGIN).expect("memory");
    let peer = Peer { name: 2, incarnation: 1, key: PEER_KEY, max_datagram: 1472 };
    engine.connect(peer, Instant::ORIGIN).expect("connected");
    for receiver_slot in [0, 1, 1 << 20 | 1] {
        let repr = Repr { flags: Flags::PROTECTED, receiver_slot, sender: None, ..plain(Body::Fragment) };
        let bytes = [&repr.emit()[..], &[0; 16]].concat();
        assert_eq!(engine.handle_datagram(&bytes, None, Instant::ORIGIN), Received::Nothing);
    }
    assert_eq!((engine.counters().num_flags_recvs, believed(&engine)), (3, 0));
}

#[test]
fn a_stale_id_is_an_error_and_not_another_peer() {
    let (mut engine, endpoint, registration) = victim();
    engine.forget(endpoint);
    let peer = Peer { name: 5, incarnation: 1, key: PEER_KEY, max_datagram: 1472 };
    let next = engine.connect(peer, Instant::ORIGIN).expect("connected");
    assert_eq!(next.index(), endpoint.index());
    let memory = Block::new(vec![0; 10]);
    let fragment = |memory: &Block| Fragment {
        tag: 1,
        pieces: [Some(memory.clone()), None],
        cookie: 1,
        priority: false,
        awaited: true,
    };
    let unreachable = Err(crate::error::Error::Unreachable);
    let now = Instant::ORIGIN;
    for id in [endpoint, EndpointId::from_raw(0), EndpointId::from_raw(u64::MAX), EndpointId::from_raw(77)] {
        assert_eq!(engine.send(id, fragment(&memory), now), unreachable);
        assert_eq!(engine.put(id, memory.clone(), registration, 0, 1, now), unreachable);
        assert_eq!(engine.get(id, memory.clone(), registration, 0, 1, now), unreachable);
        assert_eq!(engine.peer(id), None);
        engine.close(id, now);
        engine.forget(id);
    }
    assert_eq!(memory.holders(), 1);
    assert!(engine.peer(next).is_some() && EndpointId::from_raw(next.raw()) == next);
}
