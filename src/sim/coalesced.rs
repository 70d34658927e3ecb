//! Datagrams that several packets share: whole, garbled, and with something forged behind.

use super::{Block, protected, stories};
use crate::engine::{Engine, Event, Instant, Received};
use crate::wire::coalesced::{can_be_followed, first_len};
use crate::wire::usnic::SHORT_HEADER_LEN;

const LONGEST: usize = 1472;

/// Takes a datagram in as a module does: one packet behind the other, and none behind one that is not genuine.
/// What is delivered.
fn take_in(engine: &mut Engine<Block>, datagram: &[u8], now: Instant) -> Vec<Vec<u8>> {
    let (mut rest, mut delivered) = (datagram, Vec::new());
    while !rest.is_empty() {
        let (first, others) = rest.split_at(first_len(rest, LONGEST));
        match engine.handle_datagram(first, None, now) {
            Received::Deliver { payload, .. } => delivered.push(first[payload].to_vec()),
            _ if engine.has_refused() => break,
            _ => {}
        }
        while let Some(event) = engine.poll_event() {
            if let Event::Deliver { buffer, .. } = event {
                delivered.push(buffer.to_vec());
                engine.recycle(buffer);
            }
        }
        rest = others;
    }
    delivered
}

const TEXTS: [&[u8]; 4] = [b"first", b"", b"the third, with more to say than the others have", &[7; 256]];

/// Packets with these texts from the first engine to the second, which has not got them yet.
fn plain() -> (stories::Pair, Vec<Vec<u8>>) {
    let mut pair = stories::Pair::new();
    pair.warm();
    let mut packets: Vec<_> =
        TEXTS[..3].iter().map(|text| pair.send_copy(0, text).bytes().to_vec()).collect();
    packets.extend(pair.send_at_once(0, 256, 7).map(|sent| sent.bytes().to_vec()));
    (pair, packets)
}

fn sealed() -> (protected::Pair, Vec<Vec<u8>>) {
    let mut pair = protected::after_a_talk();
    TEXTS.into_iter().for_each(|text| pair.send(0, text));
    let packets = pair.take_now(0);
    (pair, packets)
}

#[test]
fn packets_that_share_a_datagram_arrive_like_others() {
    let (mut pair, packets) = plain();
    assert!(packets.iter().all(|packet| can_be_followed(packet)));
    assert_eq!(take_in(&mut pair.engines[1], &packets.concat(), pair.now), TEXTS);
    let (mut pair, packets) = sealed();
    assert!(packets.iter().all(|packet| can_be_followed(packet)));
    assert_eq!(take_in(&mut pair.engines[1], &packets.concat(), pair.now), TEXTS);
    assert_eq!(take_in(&mut pair.engines[1], &packets.concat(), pair.now), [b""; 0], "once");
}

/// One bit of a packet is turned over, of which `len` says how many bytes count, the last packet's first: so what is
/// taken is not needed again. Nothing is, nor anything behind it.
fn garble(packets: &[Vec<u8>], len: impl Fn(&[u8]) -> usize, mut take_in: impl FnMut(&[u8]) -> Vec<Vec<u8>>) {
    for at in (0..packets.len()).rev() {
        for bit in 0..len(&packets[at]) * 8 {
            let mut garbled = packets[at..].concat();
            garbled[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(take_in(&garbled), [b""; 0], "bit {bit} of {at}");
        }
    }
    assert_eq!(take_in(&packets.concat()), TEXTS, "none has done any harm");
}

#[test]
fn behind_a_header_that_is_garbled_nothing_is_taken() {
    let (mut pair, packets) = plain();
    let (engine, now) = (&mut pair.engines[1], pair.now);
    garble(&packets, |_| SHORT_HEADER_LEN, |bytes| take_in(engine, bytes, now));
}

#[test]
fn behind_a_protected_packet_that_is_garbled_anywhere_nothing_is_taken() {
    let (mut pair, packets) = sealed();
    let (engine, now) = (&mut pair.engines[1], pair.now);
    garble(&packets, <[u8]>::len, |bytes| take_in(engine, bytes, now));
}

#[test]
fn what_somebody_puts_behind_genuine_packets_is_not_taken() {
    let (mut pair, packets) = plain();
    let mut forged = packets[0].clone();
    forged[24] ^= 4;
    let datagram = [packets.concat(), forged.clone(), forged].concat();
    assert_eq!(take_in(&mut pair.engines[1], &datagram, pair.now), TEXTS);
    assert_eq!(pair.engines[1].counters().num_crc_errors, 1, "the second one is not looked at");
    let (mut pair, packets) = sealed();
    let mut forged = packets[0].clone();
    forged[9] ^= 0x40;
    let datagram = [packets.concat(), forged.clone(), forged].concat();
    assert_eq!(take_in(&mut pair.engines[1], &datagram, pair.now), TEXTS);
    assert_eq!(pair.engines[1].counters().num_crc_errors, 1, "nor there");
}
