//! Datagrams that several packets share: whole, garbled, and with something forged behind.

use super::tests::{hostile, play, rest};
use super::traffic::Load;
use super::*;
use crate::engine::{Fragment, Received};
use crate::link::COALESCED;
use crate::wire::coalesced::{can_be_followed, first_len};

/// Takes a datagram in as a module does: one packet behind the other, and none behind one that is not genuine.
/// What is delivered.
fn take_in(engine: &mut Engine<Block>, datagram: &[u8], now: Instant) -> Vec<Vec<u8>> {
    let (mut rest, mut delivered) = (datagram, Vec::new());
    while !rest.is_empty() {
        let (first, others) = rest.split_at(first_len(rest, COALESCED));
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

/// A network whose nodes put short packets together.
fn sharing(seed: u64, path: Path, protect_payload: bool) -> Setup {
    let config = config::Usnic { protect_payload, max_datagram: 1472, ..config::Usnic::default() };
    Setup { seed, path, config, shares: true, ..Setup::default() }
}

/// Datagrams and packets that were sent.
fn sent(network: &Network) -> (u64, u64) {
    let packets = network.nodes.iter().map(|node| node.engine.counters().num_total_sends).sum();
    (network.wires.fates.sent, packets)
}

#[test]
fn over_any_path_what_shares_datagrams_arrives_once_and_whole() {
    let mut all = [(0, 0); 2];
    for seed in 1..=100 {
        let mut random = Random::new(seed);
        let is_protected = random.below(2) == 0;
        let mut setup = sharing(seed, hostile(seed), is_protected);
        setup.nodes = 2 + random.below(3) as usize;
        setup.config.max_datagram = [256, 1472, 8972][random.below(3) as usize];
        setup.config.window = [4, 64, 4096][random.below(3) as usize];
        let operations = setup.nodes as u64 * 200;
        let load = Load {
            operations: 200,
            depth: 1 + random.below(60) as u32,
            longest: [8, 280, 3_000][random.below(3) as usize],
            ..Load::default()
        };
        let (mut network, game) = play(setup, load);
        assert_eq!((game.failed, game.completed), (0, operations), "seed {seed}");
        rest(&mut network);
        for node in &network.nodes {
            assert_eq!(node.engine.outstanding(), (0, 1), "seed {seed}: something leaks");
        }
        let ((datagrams, packets), all) = (sent(&network), &mut all[usize::from(is_protected)]);
        (all.0, all.1) = (all.0 + datagrams, all.1 + packets);
    }
    for (datagrams, packets) in all {
        assert!(datagrams + 5_000 < packets, "{packets} packets in {datagrams} datagrams");
    }
}

/// Rows of messages of such a length from node 0 to node 1, each as soon as the one before has arrived; how long it took.
fn rows(network: &mut Network, len: usize, rows: usize) -> u64 {
    let (begin, count) = (network.now(), 100);
    for _ in 0..rows {
        let endpoint = network.endpoint(0, 1);
        for _ in 0..count {
            let pieces = [Some(Block::new(vec![7; len])), None];
            let fragment = Fragment { tag: 1, pieces, cookie: 0, priority: false, awaited: false };
            network.send(0, endpoint, fragment).expect("sent");
        }
        let mut missing = count;
        while missing > 0 {
            assert!(network.step(begin.plus(3_600_000_000_000)), "{}", network.describe());
            let delivered = |it: &Happened| matches!(it, Happened::Delivered { node: 1, .. });
            missing -= network.happened.drain(..).filter(delivered).count();
        }
    }
    network.now().since(begin)
}

#[test]
fn a_row_takes_as_many_datagrams_as_its_bytes_need() {
    for (is_protected, len) in [(false, 8), (false, 64), (false, 256), (true, 8), (true, 64), (true, 256)] {
        let mut network = Network::new(sharing(1, Path::default(), is_protected));
        rows(&mut network, len, 3);
        let before = network.wires.fates.sent;
        rows(&mut network, len, 10);
        let (datagrams, packet) =
            (network.wires.fates.sent - before, len + if is_protected { 80 } else { 48 });
        let least = (10 * 100_usize.div_ceil(1472 / packet)) as u64;
        assert!((least..2 * least + 40).contains(&datagrams), "{len}: {datagrams} datagrams for {least}");
    }
}

#[test]
fn a_path_that_drops_long_datagrams_in_silence_makes_rows_slower_and_stops_none() {
    for is_protected in [false, true] {
        let time = |width| {
            let mut network = Network::new(sharing(1, Path { width, ..Path::default() }, is_protected));
            rows(&mut network, 64, 100)
        };
        let (narrow, wide) = (time(1_300), time(1_472));
        assert!(narrow < 50 * wide, "{narrow} ns in place of {wide}");
    }
}

#[test]
fn they_are_no_longer_than_the_path_is_wide_with_their_headers_as_they_are() {
    let mut pair = stories::Pair::new();
    pair.warm();
    let (id, now) = (pair.ids[0], pair.now);
    assert_eq!(pair.engines[0].longest_datagram(id), 1472);
    pair.engines[0].handle_too_big(id, 1300, now);
    assert_eq!(pair.engines[0].longest_datagram(id), 1300);
    let mut pair = protected::after_a_talk();
    assert_eq!(pair.engines[0].longest_datagram(pair.ids[0]), 1472);
    pair.engines[0].handle_too_big(pair.ids[0], 1300, now);
    assert_eq!(pair.engines[0].longest_datagram(pair.ids[0]), 1300);
}
