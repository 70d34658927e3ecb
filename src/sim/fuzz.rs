//! What the fuzz targets do with their bytes, here so that tests replay the corpus.

use super::Block;
use crate::config;
use crate::engine::time::Instant;
use crate::engine::{Access, Engine, Event, Fragment, Identity, Peer, Received, Registration};
use crate::link::name::{FabricName, SocketName};
use crate::wire::announcement::Announcement;
use crate::wire::modex;
use crate::wire::probe;
use crate::wire::usnic::{HEADER_LEN, MAX_HEADER_LEN, Packet, VERSION};

const KEY: [u8; 16] = [7; 16];

/// Parses; what is parsed must be within the bytes, and be written again as it was.
pub fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let payload = packet.payload();
    assert!(payload.end <= bytes.len() && (HEADER_LEN..=MAX_HEADER_LEN).contains(&payload.start));
    let _ = packet.is_genuine(&KEY);
    let written = packet.repr.emit();
    let again = Packet::parse(&written).map(|packet| packet.repr);
    // Without the payload that it speaks of it may be too short; nothing else may differ.
    if packet.repr.length == 0 {
        assert_eq!(again, Ok(packet.repr));
    }
}

/// Parses a datagram of an agent; what is parsed must be written again as it was.
pub fn probe(bytes: &[u8]) {
    let Ok(packet) = probe::Packet::parse(bytes, bytes.len()) else { return };
    assert_eq!(packet.message.len(), bytes.len());
    let written = packet.message.emit(&KEY);
    assert_eq!(packet.is_genuine(&KEY), written[..] == bytes[..probe::LEN]);
}

/// Parses what a process publishes of itself; what is parsed must be written again as it was.
pub fn modex(bytes: &[u8]) {
    let Some(addresses) = modex::parse(bytes) else { return };
    assert!(addresses.len() <= 255);
    // Names that no link writes are cut.
    if addresses.iter().all(|address| address.name.len() < 60_000) {
        assert_eq!(modex::parse(&modex::write(&addresses)), Some(addresses));
    }
}

/// Parses what a member of a communicator announces; likewise.
pub fn announcement(bytes: &[u8]) {
    let Some(announcement) = Announcement::parse(bytes) else { return };
    assert_eq!(Announcement::parse(&announcement.emit()), Some(announcement));
}

/// Parses the name of a link, of either kind; likewise, and to the byte.
pub fn name(bytes: &[u8]) {
    if let Ok(name) = SocketName::parse(bytes) {
        assert_eq!(name.write(), bytes);
    }
    if let Ok(name) = FabricName::parse(bytes) {
        assert_eq!(name.write(), bytes);
    }
}

/// Plays a script of records against an engine: one byte says what happens, the next how much.
/// Datagrams get their tag here, so that the fuzzer reaches what is behind it.
pub fn receive(script: &[u8]) {
    let config = config::Usnic {
        max_datagram: 1472,
        reassembly_per_peer: 1 << 18,
        reassembly_total: 1 << 19,
        ..config::Usnic::default()
    };
    let identity = Identity { name: 1, incarnation: 1, key: KEY };
    let mut now = Instant::from_nanos(1_000_000);
    let mut engine = Engine::new(&config, identity, 1 << 18, now);
    let peer = Peer { name: 2, incarnation: 1, key: KEY, max_datagram: 1472 };
    let endpoint = engine.connect(peer, now).expect("connected");
    let registration = engine.register(Block::new(vec![0; 4096]), Access::BOTH);
    let mut rest = script;
    while let [what, much, tail @ ..] = rest {
        let much = usize::from(*much);
        let (record, after) = tail.split_at((much * 2).min(tail.len()));
        rest = after;
        match what % 8 {
            0..=3 => deliver(&mut engine, record, now),
            4 => {
                let memory = Block::new(vec![1; much * 40]);
                let fragment = Fragment {
                    tag: 1,
                    pieces: [Some(memory), None],
                    cookie: 1,
                    priority: much % 2 == 0,
                    awaited: true,
                };
                let _ = engine.send(endpoint, fragment, now);
            }
            5 => {
                let memory = Block::new(vec![1; much * 8]);
                let remote = Registration { length: u64::MAX, ..registration };
                let _ = engine.put(endpoint, memory.clone(), remote, 0, 2, now);
                let _ = engine.get(endpoint, memory, remote, 0, 3, now);
            }
            6 => {
                now = now.plus(much as u64 * 50_000);
                engine.handle_timeout(now);
            }
            _ if much == 255 => engine.close(endpoint, now),
            _ => {
                for _ in 0..much {
                    if engine.poll_transmit(now).is_none() {
                        break;
                    }
                }
            }
        }
        while let Some(event) = engine.poll_event() {
            if let Event::Deliver { buffer, .. } = event {
                engine.recycle(buffer);
            }
        }
    }
    engine.forget(endpoint);
    assert_eq!(engine.outstanding().1, 1);
}

/// A record is the head of a datagram; version and tag are made right, the names most of the time.
fn deliver(engine: &mut Engine<Block>, record: &[u8], now: Instant) {
    let mut bytes = record.to_vec();
    bytes.resize(bytes.len().max(HEADER_LEN), 0);
    bytes[0] = VERSION;
    if bytes[7] < 128 {
        bytes[6..8].copy_from_slice(&[1, 0]);
        bytes[16..28].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        bytes[28..36].copy_from_slice(&[0, 0, 0, 0, 9, 0, 0, 0]);
    }
    let Ok(packet) = Packet::parse(&bytes) else {
        let received = engine.handle_datagram(&bytes, None, now);
        assert_eq!(received, Received::Nothing);
        return;
    };
    let payload = packet.payload();
    let mut header = packet.repr.emit();
    header.seal(&KEY);
    let genuine = [&header[..], &bytes[payload]].concat();
    if let Received::Deliver { payload, .. } = engine.handle_datagram(&genuine, None, now) {
        assert!(payload.end <= genuine.len());
    }
}
