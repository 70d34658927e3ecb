//! What [`super`] promises.

use super::super::usnic::{self, Body, Flags, Repr, header_len};
use super::*;

const KEY: Key = *b"sixteen bytes...";
const SENDER: Sender = Sender { name: 0x0102_0304_0506_0708, incarnation: 9, connection: 3 };
const NUMBER_OF_IT: u64 = 5 << PHASE_BITS | 77;

fn sample(body: Body, length: usize) -> Repr {
    Repr {
        flags: Flags::ACKNOWLEDGES.with(Flags::PROTECTED, true),
        tag: 0x41,
        length: length as u16,
        connection: SENDER.connection,
        receiver_slot: 0x1000_0001,
        sender: Some(usnic::Sender { name: SENDER.name, incarnation: SENDER.incarnation, slot: 2 }),
        stamp: 3,
        echo: 4,
        credit: 5,
        seq: 6,
        ack: 7,
        body,
    }
}

fn key() -> PacketKey {
    Secret::new(&KEY).packet_key(&SENDER, phase(NUMBER_OF_IT)).expect("a key")
}

fn sealed(key: &PacketKey, number: u64, body: Body, payload: &[u8]) -> Vec<u8> {
    let header = sample(body, payload.len()).emit();
    let mut bytes = [&header[..], payload, &[0; TAG_LEN]].concat();
    assert!(key.seal(number, header.len(), &mut bytes));
    bytes
}

/// The payload, if the key opens the packet.
fn opened(key: &PacketKey, bytes: &[u8]) -> Option<Vec<u8>> {
    let sealed = Sealed::of(&Packet::parse(bytes).ok()?)?;
    let mut payload = vec![0; sealed.payload.len()];
    key.open(&sealed, &mut payload).then_some(payload)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Made with an implementation of HKDF and AES-GCM of somebody else (Python's `cryptography`).
#[test]
fn the_bytes_of_a_packet_are_known() {
    let bytes =
        sealed(&key(), NUMBER_OF_IT, Body::Chunk { fragment: 1, size: 2, offset: 3 }, b"known payload");
    let known = [KNOWN_HEADER, KNOWN_PAYLOAD, KNOWN_TAG].concat();
    assert_eq!(hex(&bytes), known);
    assert_eq!(opened(&key(), &bytes).as_deref(), Some(&b"known payload"[..]));
}

const KNOWN_HEADER: &str = concat!(
    "038303410d0005004d0040010000000003000000040000000600000000000000",
    "0700000000000000010000100300000008070605040302010900000002000000",
    "010000000200000003000000"
);
const KNOWN_PAYLOAD: &str = "d21186269865a2e0f4a5339071";
const KNOWN_TAG: &str = "abd273d3db62a8dcef9c919033a40b95";

#[test]
fn payload_of_any_length_survives_the_journey() {
    let key = key();
    for len in [0, 1, 15, 16, 17, 1392, 8880, 65_000] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let bytes = sealed(&key, 1, Body::Fragment, &payload);
        assert_eq!(bytes.len(), header_len(super::super::usnic::Kind::Fragment) + len + TAG_LEN);
        assert_eq!(opened(&key, &bytes), Some(payload));
    }
}

#[test]
fn every_bit_counts() {
    let key = key();
    for (body, payload) in [
        (Body::Fragment, &b"some payload"[..]),
        (Body::Chunk { fragment: 1, size: 500, offset: 0 }, &[1; 40]),
        (Body::CloseAck, b""),
        (Body::Withdrawn { segment: 7 }, b""),
    ] {
        let bytes = sealed(&key, NUMBER_OF_IT, body, payload);
        assert!(opened(&key, &bytes).is_some());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opened(&key, &changed), None, "bit {bit} of {body:?}");
        }
    }
}

#[test]
fn what_is_cut_does_not_open_and_padding_means_nothing() {
    let key = key();
    let mut bytes = sealed(&key, 1, Body::Fragment, b"some payload");
    for len in 0..bytes.len() {
        assert_eq!(opened(&key, &bytes[..len]), None, "{len} bytes");
    }
    bytes.extend([9; 5]);
    assert!(opened(&key, &bytes).is_some());
}

#[test]
fn each_direction_connection_and_phase_has_a_key_of_its_own() {
    let bytes = sealed(&key(), NUMBER_OF_IT, Body::Fragment, b"x");
    let secret = Secret::new(&KEY);
    let phase = phase(NUMBER_OF_IT);
    let others = [
        secret.packet_key(&Sender { name: 1, ..SENDER }, phase),
        secret.packet_key(&Sender { incarnation: 1, ..SENDER }, phase),
        secret.packet_key(&Sender { connection: 1, ..SENDER }, phase),
        secret.packet_key(&SENDER, phase + 1),
        Secret::new(b"another key.....").packet_key(&SENDER, phase),
    ];
    for (at, other) in others.into_iter().enumerate() {
        assert_eq!(opened(&other.expect("a key"), &bytes), None, "{at}");
    }
}

#[test]
fn the_number_makes_the_nonce() {
    let key = key();
    let [one, two] = [1, 2].map(|number| sealed(&key, number, Body::Fragment, b"the same"));
    assert_ne!(one[64..], two[64..]);
    let mut moved = two.clone();
    moved[NUMBER].copy_from_slice(&one[NUMBER]);
    assert_eq!(opened(&key, &moved), None);
}

#[test]
fn what_cannot_be_sealed_is_not_left_readable() {
    let key = key();
    for len in [0, 5, 63, 64 + TAG_LEN - 1] {
        let mut bytes = vec![1; len];
        assert!(!key.seal(1, 64, &mut bytes));
        assert_eq!(bytes, vec![0; len]);
    }
}

#[test]
fn secrets_are_not_printed() {
    assert_eq!(format!("{:?} {:?}", Secret::new(&KEY), key()), "Secret PacketKey");
}
