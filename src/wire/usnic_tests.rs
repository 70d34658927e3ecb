//! What [`super`] promises of bytes and values.

use super::*;

const KEY: Key = *b"sixteen bytes...";

const SENDER: Sender = Sender { name: 0x0102_0304_0506_0708, incarnation: 9, slot: 2 };

/// What the tags of packets begin with, whatever their headers say of the sender.
fn tagging(key: &Key) -> Tagging {
    Tagging::new(key, sample(Body::Void).receiver_slot, 3, &SENDER)
}

fn is_genuine(packet: Packet<'_>) -> bool {
    let stated = packet.repr.sender.unwrap_or(SENDER);
    packet.is_genuine(&Tagging::new(&KEY, packet.repr.receiver_slot, packet.repr.connection, &stated))
}

fn sample(body: Body) -> Repr {
    Repr {
        flags: Flags::ACKNOWLEDGES.with(Flags::ASKS, true),
        tag: 0x41,
        length: 0,
        connection: 3,
        receiver_slot: 0x1000_0001,
        sender: Some(SENDER),
        stamp: 3,
        echo: 4,
        credit: 5,
        seq: u64::MAX - 1,
        ack: 7 << 40,
        body,
    }
}

/// One of each kind, with a long header and with a short one.
fn samples() -> Vec<Repr> {
    let long = bodies().into_iter().map(sample);
    long.flat_map(|long| [long, Repr { sender: None, ..long }]).collect()
}

fn bodies() -> Vec<Body> {
    let mut bitmap = Bitmap::default();
    [0, 63, 64, 200, 255].into_iter().for_each(|at| bitmap.set(at));
    let mut short = Bitmap::default();
    short.set(70);
    vec![
        Body::Ack(Bitmap::default()),
        Body::Ack(short),
        Body::Ack(bitmap),
        Body::Fragment,
        Body::Chunk { fragment: 1, size: u32::MAX, offset: 3 },
        Body::Put { registration: 1, generation: 2, offset: 3 << 33, operation: 4 << 34 },
        Body::GetRequest { registration: 1, generation: 2, offset: 3, length: 4 << 35, operation: 5 },
        Body::GetData { operation: 1 << 36, offset: 2 << 37 },
        Body::Refused { operation: 1 << 38 },
        Body::Void,
        Body::Close,
        Body::CloseAck,
        Body::Reject { operation: 1 << 40 },
        Body::Withdraw,
        Body::Withdrawn { segment: 1 << 41 },
        Body::Reset,
    ]
}

fn sealed(repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let mut header = Repr { length: payload.len() as u16, ..*repr }.emit();
    header.seal(&tagging(&KEY));
    [&header[..], payload].concat()
}

#[test]
fn what_is_emitted_is_parsed() {
    for repr in samples() {
        let bytes = sealed(&repr, b"");
        let packet = Packet::parse(&bytes).expect("well formed");
        assert_eq!(packet.repr, repr);
        assert!(is_genuine(packet) && bytes.len() <= MAX_HEADER_LEN);
        assert_eq!(packet.payload(), bytes.len()..bytes.len());
        let shorter = if repr.sender.is_none() { HEADER_LEN - SHORT_HEADER_LEN } else { 0 };
        if !matches!(repr.body, Body::Ack(_)) {
            assert_eq!(bytes.len(), header_len(repr.body.kind()) - shorter);
        }
        let is_common = repr.body == Body::Fragment && repr.sender.is_none();
        assert_eq!(Packet::parse_fragment(&bytes).map(|packet| packet.repr), is_common.then_some(repr));
    }
}

#[test]
fn the_places_of_the_fields_are_fixed() {
    let long = sample(Body::Chunk { fragment: 0xA1, size: 0xB1, offset: 0xC1 });
    let fixed = [
        "03830541", "00000500", "00000000", "00000000", "03000000", "04000000", "feffffff", "ffffffff",
        "00000000", "00070000", "01000010", "03000000",
    ];
    let introduction = ["08070605", "04030201", "09000000", "02000000"];
    let extension = ["a1000000", "b1000000", "c1000000"];
    let hex = |repr: &Repr| repr.emit().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&long), [&fixed[..], &introduction, &extension].concat().concat());
    let short = [&fixed[..], &extension].concat().concat().replacen("0383", "0303", 1);
    assert_eq!(hex(&Repr { sender: None, ..long }), short);
}

#[test]
fn every_bit_of_header_and_extension_is_under_the_tag() {
    for repr in samples() {
        let bytes = sealed(&repr, b"");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!Packet::parse(&changed).is_ok_and(is_genuine), "bit {bit} of {repr:?}");
        }
    }
}

#[test]
fn a_short_header_is_genuine_from_one_sender_to_one_receiver_only() {
    let short = Repr { sender: None, ..sample(Body::Fragment) };
    let bytes = sealed(&short, b"");
    let packet = Packet::parse(&bytes).expect("well formed");
    assert!(is_genuine(packet));
    let (slot, connection) = (short.receiver_slot, short.connection);
    for other in [
        Tagging::new(&KEY, slot + 1, connection, &SENDER),
        Tagging::new(&KEY, slot, connection + 1, &SENDER),
        Tagging::new(&KEY, slot, connection, &Sender { name: 1, ..SENDER }),
        Tagging::new(&KEY, slot, connection, &Sender { incarnation: 1, ..SENDER }),
        Tagging::new(&KEY, slot, connection, &Sender { slot: 1, ..SENDER }),
        tagging(b"another key....."),
    ] {
        assert!(!packet.is_genuine(&other));
    }
}

#[test]
fn another_key_makes_another_tag() {
    let bytes = sealed(&sample(Body::Fragment), b"x");
    assert!(!Packet::parse(&bytes).expect("well formed").is_genuine(&tagging(b"another key.....")));
}

#[test]
fn the_tag_is_siphash_of_the_other_bytes_those_of_the_connection_first() {
    use siphasher::sip::SipHasher13;
    use std::hash::Hasher;
    for long in bodies().into_iter().map(sample) {
        let bytes = sealed(&long, b"");
        let padded =
            |bytes: &[u8]| [bytes, &[0; 8][..bytes.len().next_multiple_of(8) - bytes.len()]].concat();
        let extension = padded(&bytes[64..]);
        let (first, rest) = extension.split_at(extension.len().min(8));
        let (second, rest) = rest.split_at(rest.len().min(8));
        let words = [&bytes[32..40], first, rest, &bytes[24..32], second].concat();
        let parts = [&bytes[40..64], &bytes[16..24], &words, &bytes[1..8]];
        // The header says whether it is long; all else is the same with a short one.
        let mut hasher = SipHasher13::new_with_key(&KEY);
        hasher.write(&parts.concat());
        assert_eq!(bytes[8..16], hasher.finish().to_le_bytes());
        let short = sealed(&Repr { sender: None, ..long }, b"");
        let mut hasher = SipHasher13::new_with_key(&KEY);
        hasher.write(&[&parts[..3].concat()[..], &short[1..8]].concat());
        assert_eq!(short[8..16], hasher.finish().to_le_bytes());
    }
}

#[test]
fn padding_of_the_link_means_nothing() {
    let mut bytes = sealed(&sample(Body::Fragment), b"payload");
    bytes.extend([0; 9]);
    let packet = Packet::parse(&bytes).expect("well formed");
    assert!(is_genuine(packet));
    assert_eq!(&bytes[packet.payload()], b"payload");
}

#[test]
fn each_reason_to_refuse_is_its_own() {
    let bytes = sealed(
        &sample(Body::GetRequest { registration: 0, generation: 0, offset: 0, length: 0, operation: 0 }),
        b"",
    );
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        Packet::parse(&changed).map(|_| ())
    };
    assert_eq!(with(0, 2), Err(Malformed::Version));
    assert_eq!(with(1, 0), Err(Malformed::Kind));
    assert_eq!(with(1, 15), Err(Malformed::Kind));
    assert_eq!(with(1, 0x80), Err(Malformed::Kind));
    assert_eq!(with(46, 1), Err(Malformed::Flags), "these bytes mean nothing");
    assert_eq!(with(2, 0x70), Err(Malformed::Flags));
    assert_eq!(with(2, 0x10), Err(Malformed::Flags), "no bitmap but in an acknowledgement");
    assert_eq!(with(4, 1), Err(Malformed::Length));
    for len in 0..bytes.len() {
        assert_eq!(Packet::parse(&bytes[..len]).map(|_| ()), Err(Malformed::Short));
    }
    let bare = sealed(&sample(Body::Void), b"");
    let padded = [&bare[..4], &[1], &bare[5..], &[0]].concat();
    assert_eq!(Packet::parse(&padded).map(|_| ()), Err(Malformed::Length), "a void has no payload");
    let mut words = sealed(&sample(Body::Ack(Bitmap::default())), b"");
    words.extend([0; 64]);
    words[2] = 0x50;
    assert_eq!(Packet::parse(&words).map(|_| ()), Err(Malformed::Flags), "five words of bitmap");
}
