//! What the fuzz targets do with their bytes, here so that tests replay the corpus.

use super::Block;
use crate::config;
use crate::engine::time::Instant;
use crate::engine::{Access, Engine, Event, Fragment, Identity, Peer, Received, Registration};
use crate::link::COALESCED;
use crate::link::name::{FabricName, SocketName};
use crate::wire::announcement::Announcement;
use crate::wire::coalesced::{can_be_followed, first_len};
use crate::wire::gni::{datagram, mailbox, name as endpoint, remote};
use crate::wire::modex;
use crate::wire::openib;
use crate::wire::probe;
use crate::wire::protection::{self, Sealed, Secret, TAG_LEN, phase};
use crate::wire::usnic::{
    Flags, HEADER_LEN, MAX_HEADER_LEN, Packet, Repr, SHORT_HEADER_LEN, Sender, Tagging, VERSION,
};
use crate::wire::verbs;

const KEY: [u8; 16] = [7; 16];
const PEER: Sender = Sender { name: 2, incarnation: 1, slot: 9 };

/// What the packet's tag begins with; who sends a short header is the other peer.
fn tagging(packet: &Packet<'_>) -> Tagging {
    let sender = packet.repr.sender.unwrap_or(PEER);
    Tagging::new(&KEY, packet.repr.receiver_slot, packet.repr.connection, &sender)
}

/// Parses the packets of a datagram, one behind the other: what is parsed must be within the bytes, and be written again
/// as it was.
pub fn packet(bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (first, others) = rest.split_at(first_len(rest, COALESCED));
        assert!(others.is_empty() || first.len() >= SHORT_HEADER_LEN && can_be_followed(first));
        one_packet(first);
        rest = others;
    }
}

fn one_packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let payload = packet.payload();
    assert!(payload.end <= bytes.len() && (SHORT_HEADER_LEN..=MAX_HEADER_LEN).contains(&payload.start));
    let _ = packet.is_genuine(&tagging(&packet));
    if let Some(parts) = Sealed::of(&packet) {
        assert_eq!([parts.header, parts.payload, parts.tag].concat(), bytes[..payload.end + TAG_LEN]);
    }
    let written = packet.repr.emit();
    let again = Packet::parse(&written).map(|packet| packet.repr);
    // Without the payload that it speaks of it may be too short; nothing else may differ.
    if packet.repr.length == 0 {
        assert_eq!(again, Ok(packet.repr));
    }
}

/// Parses what openib publishes, says while it connects, and sends: what is read must say the same when it is written again.
pub fn openib(bytes: &[u8]) {
    if let Some(record) = openib::Record::parse(bytes) {
        assert_eq!(openib::Record::parse(&record.to_bytes()), Some(record));
    }
    if let Some(private) = openib::Private::parse(bytes) {
        assert_eq!(private.to_bytes()[..], bytes[..private.to_bytes().len()]);
    }
    let _ = openib::Refusal::parse(bytes);
    let Some((head, rest)) = bytes.split_first_chunk::<{ openib::HEADER }>() else { return };
    let header = openib::Header::parse(*head);
    assert_eq!(openib::Header::parse(header.to_bytes()), header);
    let Some(first) = rest.first_chunk::<{ openib::LONGEST_CONTROL }>() else { return };
    if openib::Control::parse(*first, rest.len()) != Some(openib::Control::Joined) {
        return;
    }
    let mut rest = &rest[1..];
    while let Some((head, left)) = rest.split_first_chunk::<{ openib::JOINED }>() {
        let Some(joined) = openib::Joined::parse(*head, left.len()) else { return };
        assert!(joined.length <= joined.whole && joined.whole <= left.len());
        rest = &left[joined.whole..];
    }
}

/// Parses what the verbs BTL publishes, says while it connects, and sends or writes; likewise, and to the byte, but for what a device
/// puts behind private data.
pub fn verbs(bytes: &[u8]) {
    if let Some(record) = verbs::Record::parse(bytes) {
        assert_eq!(record.to_bytes(), bytes);
    }
    if let Ok(private) = verbs::private::Private::parse(bytes) {
        assert_eq!(private.emit()[..], bytes[..verbs::private::LEN]);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<{ verbs::HEADER }>() else { return };
    let word = verbs::Word(u64::from_le_bytes(*head));
    assert!(word.limit().is_none_or(|limit| verbs::Word::new(limit) == word));
    let header = verbs::Header::parse(head, bytes.len());
    let plain = header.filter(|it| it.queue == 0 && !it.wants).and_then(|it| Some((it.tag?, it.limit)));
    assert_eq!(verbs::Header::plain(head, bytes.len()), plain);
    let Some(header) = header else { return };
    assert_eq!((header.to_bytes(), header.length as usize), (*head, rest.len()));
    if header.tag.is_none()
        && let Some(control) = verbs::Control::parse(rest)
    {
        let (written, length) = control.to_bytes();
        assert_eq!(written[..length], *rest);
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

/// Parses the name of an endpoint of the provider, in bytes and as text; likewise.
pub fn endpoint(bytes: &[u8]) {
    if let Some(name) = bytes.first_chunk().and_then(endpoint::Name::parse) {
        assert_eq!(name.emit(), bytes[..endpoint::LEN]);
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    let text = std::str::from_utf8(bytes).ok();
    if let Some(name) = text.and_then(|text| text.parse::<endpoint::Name>().ok()) {
        assert_eq!(endpoint::Name::parse(&name.emit()), Some(name));
    }
}

/// Parses a datagram about a connection of the provider, as it is and with the tag that it ought to have; likewise.
pub fn datagram(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(parsed) = datagram::Datagram::parse(bytes, &KEY) else { return };
        let mut written = [0; datagram::LEN];
        let length = parsed.emit(&KEY, &mut written);
        assert_eq!(written[..length], *bytes);
    };
    check(bytes);
    let mut signed = bytes.to_vec();
    if datagram::sign(&KEY, &mut signed) {
        check(&signed);
    }
}

/// Parses the header of an entry of a mailbox: its kind is the first byte; likewise.
pub fn mailbox(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let read = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    if remote::Remote::is_one(*kind) {
        let Some((entry, head)) = remote::Remote::parse(*kind, bytes.len(), read) else { return };
        let mut written = [0; remote::HEAD];
        assert_eq!(entry.emit(&mut written), (*kind, head));
        assert_eq!(written[..head], bytes[..head]);
        return;
    }
    let Some((entry, head)) = mailbox::Entry::parse(*kind, bytes.len(), read) else { return };
    let mut written = [0; mailbox::HEAD];
    assert_eq!(entry.emit(&mut written), (*kind, head));
    assert_eq!(written[..head], bytes[..head]);
}

/// Plays a script of records against an engine: one byte says what happens, the next how much. A packet may share the
/// datagram of the next one.
/// Datagrams get their tag here, so that the fuzzer reaches what is behind it.
pub fn receive(script: &[u8]) {
    play(script, false);
}

/// The same where packets are protected: they are encrypted here, or left as they are.
pub fn sealed(script: &[u8]) {
    play(script, true);
}

fn play(script: &[u8], protect_payload: bool) {
    let config = config::Usnic {
        protect_payload,
        max_datagram: 1472,
        reassembly_per_peer: 1 << 18,
        reassembly_total: 1 << 19,
        ..config::Usnic::default()
    };
    let identity = Identity { name: 1, incarnation: 1, key: KEY };
    let mut now = Instant::from_nanos(1_000_000);
    let mut engine = Engine::new(&config, identity, 1 << 18, now).expect("memory");
    let peer = Peer { name: 2, incarnation: 1, key: KEY, max_datagram: 1472 };
    let endpoint = engine.connect(peer, now).expect("connected");
    let registration = engine.register(Block::new(vec![0; 4096]), Access::BOTH);
    let mut number = 1 << 50;
    let mut shared = Vec::new();
    let mut rest = script;
    while let [what, much, tail @ ..] = rest {
        let much = usize::from(*much);
        let (record, after) = tail.split_at((much * 2).min(tail.len()));
        rest = after;
        match what % 8 {
            0..=3 => {
                shared.extend(datagram_of(&engine, record, &mut number));
                if what & WAITS == 0 {
                    deliver(&mut engine, &std::mem::take(&mut shared), now);
                }
            }
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
                    let Some(transmit) = engine.poll_transmit(now) else { break };
                    if let Some(seals) = engine.is_protected().then(|| engine.protect(&transmit)).flatten() {
                        seals.for_each(|seal| seal.write(&mut Vec::new()));
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

/// Beside what happens: the packet waits for the next one.
const WAITS: u8 = 8;

/// Hands a datagram in, one packet behind the other as long as they are genuine.
fn deliver(engine: &mut Engine<Block>, datagram: &[u8], now: Instant) {
    let mut rest = datagram;
    while !rest.is_empty() {
        let (first, others) = rest.split_at(first_len(rest, COALESCED));
        match engine.handle_datagram(first, None, now) {
            Received::Deliver { payload, .. } => assert!(payload.end <= first.len()),
            Received::Nothing if engine.has_refused() => return,
            _ => {}
        }
        rest = others;
    }
}

/// A record is the head of a packet; version and tag are made right, the names most of the time.
fn datagram_of(engine: &Engine<Block>, record: &[u8], number: &mut u64) -> Vec<u8> {
    let mut bytes = record.to_vec();
    bytes.resize(bytes.len().max(HEADER_LEN), 0);
    bytes[0] = VERSION;
    if bytes[47] < 128 {
        // The names of the first packets, or those of the later ones.
        let slot = if bytes[1] < 128 { [1, 0, 16, 0] } else { [0; 4] };
        bytes[40..44].copy_from_slice(&slot);
        bytes[44..48].copy_from_slice(&[1, 0, 0, 0]);
        if bytes[1] >= 128 {
            bytes[48..64].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        }
    }
    let Ok(packet) = Packet::parse(&bytes) else { return bytes };
    let payload = &bytes[packet.payload()];
    if engine.is_protected() {
        // Mostly the next number, or an earlier or far one.
        *number = number.wrapping_add(match bytes[8] % 8 {
            0 => u64::from(bytes[9]).wrapping_neg(),
            1 => u64::from(bytes[9]) << (bytes[10] % 64),
            _ => 1,
        });
        let seal = bytes[11] % 16 != 1;
        protected(&packet.repr, payload, *number, seal)
    } else {
        let mut header = packet.repr.emit();
        header.seal(&tagging(&packet));
        [&header[..], payload].concat()
    }
}

/// A packet as its sender would protect it, if it is to be sealed.
fn protected(repr: &Repr, payload: &[u8], number: u64, seal: bool) -> Vec<u8> {
    let header = Repr { flags: repr.flags.with(Flags::PROTECTED, true), ..*repr }.emit();
    let Sender { name, incarnation, .. } = repr.sender.unwrap_or(PEER);
    let sender = protection::Sender { name, incarnation, connection: repr.connection };
    let mut bytes = [&header[..], payload, &[0; TAG_LEN]].concat();
    if seal && let Some(key) = Secret::new(&KEY).packet_key(&sender, phase(number)) {
        assert!(key.seal(number, header.len(), &mut bytes));
    }
    bytes
}
