//! What [`super`] promises of bytes and values.

use super::*;

const KEY: Key = *b"sixteen bytes...";

fn sample(body: Body) -> Repr {
    Repr {
        flags: Flags::ACKNOWLEDGES.with(Flags::ASKS, true),
        tag: 0x41,
        length: 0,
        connection: 3,
        name: 0x0102_0304_0506_0708,
        incarnation: 9,
        receiver_slot: 0x1000_0001,
        sender_slot: 2,
        stamp: 3,
        echo: 4,
        credit: 5,
        seq: u64::MAX - 1,
        ack: 7 << 40,
        body,
    }
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
    ]
}

fn sealed(repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let mut header = Repr { length: payload.len() as u16, ..*repr }.emit();
    header.seal(&KEY);
    [&header[..], payload].concat()
}

#[test]
fn what_is_emitted_is_parsed() {
    for body in bodies() {
        let repr = sample(body);
        let bytes = sealed(&repr, b"");
        let packet = Packet::parse(&bytes).expect("well formed");
        assert_eq!(packet.repr, repr);
        assert!(packet.is_genuine(&KEY) && bytes.len() <= MAX_HEADER_LEN);
        assert_eq!(packet.payload(), bytes.len()..bytes.len());
        if !matches!(body, Body::Ack(_)) {
            assert_eq!(bytes.len(), header_len(body.kind()));
        }
    }
}

#[test]
fn the_places_of_the_fields_are_fixed() {
    let header = sample(Body::Chunk { fragment: 0xA1, size: 0xB1, offset: 0xC1 }).emit();
    let expected = [
        "02030541", "00000300", "00000000", "00000000", "08070605", "04030201", "09000000", "01000010",
        "02000000", "03000000", "04000000", "05000000", "feffffff", "ffffffff", "00000000", "00070000",
        "a1000000", "b1000000", "c1000000",
    ];
    let hex: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.concat());
}

#[test]
fn every_bit_of_header_and_extension_is_under_the_tag() {
    for body in bodies() {
        let bytes = sealed(&sample(body), b"");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!Packet::parse(&changed).is_ok_and(|packet| packet.is_genuine(&KEY)), "bit {bit}");
        }
    }
}

#[test]
fn another_key_makes_another_tag() {
    let bytes = sealed(&sample(Body::Fragment), b"x");
    assert!(!Packet::parse(&bytes).expect("well formed").is_genuine(b"another key....."));
}

#[test]
fn the_tag_is_siphash_of_the_other_bytes_in_order() {
    for body in bodies() {
        let bytes = sealed(&sample(body), b"");
        let hashed = [&bytes[..8], &bytes[16..]].concat();
        let mut hasher = SipHasher24::new_with_key(&KEY);
        hasher.write(&hashed);
        assert_eq!(bytes[8..16], hasher.finish().to_le_bytes());
    }
}

#[test]
fn padding_of_the_link_means_nothing() {
    let mut bytes = sealed(&sample(Body::Fragment), b"payload");
    bytes.extend([0; 9]);
    let packet = Packet::parse(&bytes).expect("well formed");
    assert!(packet.is_genuine(&KEY));
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
    assert_eq!(with(0, 1), Err(Malformed::Version));
    assert_eq!(with(1, 0), Err(Malformed::Kind));
    assert_eq!(with(1, 14), Err(Malformed::Kind));
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

#[test]
fn a_bitmap_says_what_was_set() {
    let mut bitmap = Bitmap::default();
    assert!(bitmap.is_empty());
    let said = [0, 1, 62, 63, 64, 127, 128, 255];
    said.into_iter().for_each(|at| bitmap.set(at));
    bitmap.set(256);
    assert_eq!(bitmap.iter().collect::<Vec<_>>(), said);
    assert!((0..300).all(|at| bitmap.has(at) == said.contains(&at)));
}
