use super::*;
use crate::wire::usnic::{Body, Sender};
use std::cell::Cell;

const SENDER: Sender = Sender { name: 0xAB, incarnation: 4, slot: 6 };

thread_local! {
    /// Headers that were compared with the one that was expected.
    pub(crate) static COMPARED: Cell<u64> = const { Cell::new(0) };
}

fn parse(bytes: &[u8], size: usize) -> Option<Joined<'_>> {
    Lead::parse(bytes, size)?.run()
}

fn tagging(key: u8) -> Tagging {
    Tagging::new(&[key; 16], 5, 1, &SENDER)
}

fn chunk(length: u16, flags: Flags) -> Repr {
    Repr {
        flags,
        tag: 3,
        length,
        connection: 1,
        receiver_slot: 5,
        sender: None,
        stamp: 77,
        echo: 12,
        credit: 40,
        seq: 1_000,
        ack: 9,
        body: Body::Chunk { fragment: 2, size: 10_000, offset: 300 },
    }
}

fn sealed(repr: &Repr) -> Header {
    let mut header = repr.emit();
    header.seal(&tagging(7));
    header
}

/// A run of `count` packets with `payload` bytes each, `last` in the last, as they come joined.
fn run(repr: &Repr, count: usize, last: usize, flags: Flags) -> (Vec<u8>, usize) {
    let mut headers = Headers::default();
    headers.write(&sealed(repr), count - 1, last, flags, &tagging(7));
    let (bytes, len) = headers.bytes();
    assert_eq!((bytes.len(), headers.payload()), (count * len, usize::from(repr.length)));
    let mut joined = Vec::new();
    for (at, header) in bytes.chunks(len).enumerate() {
        joined.extend_from_slice(header);
        let payload = if at + 1 == count { last } else { usize::from(repr.length) };
        joined.resize(joined.len() + payload, at as u8);
    }
    (joined, len + usize::from(repr.length))
}

#[test]
fn each_packet_of_a_run_stands_for_itself() {
    let bodies = [
        chunk(0, Flags::default()).body,
        Body::Put { registration: 1, generation: 2, offset: u64::from(u32::MAX), operation: 8 },
        Body::GetData { operation: 8, offset: u64::from(u32::MAX) - 7 },
    ];
    for (body, sender) in bodies.into_iter().flat_map(|body| [(body, None), (body, Some(SENDER))]) {
        let first = Repr { body, sender, ..chunk(10, Flags::ACKNOWLEDGES) };
        let (joined, size) = run(&first, 4, 3, Flags::ASKS);
        for (at, bytes) in joined.chunks(size).enumerate() {
            let packet = Packet::parse(bytes).expect("a packet");
            assert!(packet.is_genuine(&tagging(7)), "{at}");
            let more = at as u64 * 10;
            let expected = Repr {
                seq: 1_000 + at as u64,
                length: if at == 3 { 3 } else { 10 },
                echo: if at == 0 { 12 } else { 0 },
                flags: Flags::ACKNOWLEDGES.with(Flags::ASKS, at == 3),
                body: match body {
                    Body::Chunk { fragment, size, offset } => {
                        Body::Chunk { fragment, size, offset: offset + more as u32 }
                    }
                    Body::Put { registration, generation, offset, operation } => {
                        Body::Put { registration, generation, offset: offset + more, operation }
                    }
                    Body::GetData { operation, offset } => Body::GetData { operation, offset: offset + more },
                    other => other,
                },
                ..first
            };
            assert_eq!(packet.repr, expected);
        }
        let run = parse(&joined, size).and_then(|run| run.genuine(&tagging(7))).expect("a run");
        assert_eq!((run.count(), run.asks, run.first), (4, true, first));
        let payload = run.payload();
        let parts: Vec<(usize, Vec<u8>)> = payload.parts().map(|(at, part)| (at, part.to_vec())).collect();
        assert_eq!(parts, [(0, vec![0; 10]), (10, vec![1; 10]), (20, vec![2; 10]), (30, vec![3; 3])]);
        assert_eq!((payload.len(), payload.count()), (33, 4));
    }
}

#[test]
fn what_differs_ends_a_run() {
    let (joined, size) = run(&chunk(10, Flags::ACKNOWLEDGES), 4, 10, Flags::default());
    let second = size;
    for at in 0..joined.len() {
        for bit in [1, 0x80] {
            let mut bytes = joined.clone();
            bytes[at] ^= bit;
            let (packet, place) = (at / size, at % size);
            let is_payload = place >= size - 10;
            let run = parse(&bytes, size).and_then(|run| run.genuine(&tagging(7)));
            let count = run.map_or(0, |run| run.count());
            let expected = match packet {
                _ if is_payload => 4,
                0 | 1 => 0,
                packet => packet,
            };
            assert_eq!(count, expected, "byte {place} of packet {packet}");
        }
    }
    assert!(parse(&joined[..second], size).is_none(), "one is no run");
    assert!(parse(&joined[..second - 1], size).is_none() && parse(&[], 0).is_none());
    for size in 0..2 * size {
        let parsed = parse(&joined, size);
        assert!(parsed.is_none_or(|run| run.count() > 1 && run.payload().parts().count() == run.count()));
    }
    assert!(parse(&joined, size).and_then(|run| run.genuine(&tagging(8))).is_none(), "another key");
}

#[test]
fn a_packet_that_asks_or_is_short_is_the_last() {
    let (mut joined, size) = run(&chunk(10, Flags::ACKNOWLEDGES), 3, 10, Flags::ASKS);
    let (more, _) = run(&Repr { seq: 1_003, ..chunk(10, Flags::ACKNOWLEDGES) }, 2, 10, Flags::default());
    joined.extend_from_slice(&more);
    assert_eq!(parse(&joined, size).map(|run| (run.count(), run.asks)), Some((3, true)));
    let (joined, size) = run(&chunk(10, Flags::ACKNOWLEDGES), 3, 4, Flags::default());
    assert_eq!(parse(&joined, size).map(|run| (run.count(), run.asks)), Some((3, false)));
    let fragment = Repr { body: Body::Fragment, ..chunk(10, Flags::default()) };
    let mut two = sealed(&fragment).to_vec();
    let size = two.len() + 10;
    two.resize(size, 0);
    let again = two.clone();
    two.extend_from_slice(&again);
    assert!(parse(&two, size).is_none(), "no piece of anything");
}
