//! Replays the fuzz corpora, and scripts that the dice write.

use hawser::sim::{Random, fuzz};
use std::fs;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a corpus").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus of {name} is empty");
    files.into_iter().map(|file| fs::read(file).expect("readable")).collect()
}

/// One byte changed, taken out or put in, or a part repeated.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    match random.below(5) {
        0 if at < bytes.len() => bytes[at] = random.number() as u8,
        1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 if at < bytes.len() => _ = bytes.remove(at),
        3 => bytes.insert(at, [0, 1, 0x7F, 0x80, 0xFF][random.below(5) as usize]),
        _ => {
            let end = (at + random.below(200) as usize).min(bytes.len());
            let part = bytes[at.min(end)..end].to_vec();
            bytes.extend(part);
        }
    }
}

fn replay(name: &str, target: fn(&[u8]), rounds: u64) {
    let corpus = corpus(name);
    corpus.iter().for_each(|bytes| target(bytes));
    for seed in 0..rounds {
        let mut random = Random::new(seed);
        let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=random.below(20) {
            mutate(&mut bytes, &mut random);
        }
        let caught = std::panic::catch_unwind(|| target(&bytes));
        assert!(caught.is_ok(), "{name}: seed {seed}: {bytes:?}");
    }
}

#[test]
fn no_bytes_make_the_parser_panic() {
    replay("packet", fuzz::packet, 300_000);
}

#[test]
fn no_bytes_make_the_agents_parser_panic() {
    replay("probe", fuzz::probe, 300_000);
}

#[test]
fn no_card_makes_its_parser_panic() {
    replay("modex", fuzz::modex, 200_000);
}

#[test]
fn no_announcement_makes_its_parser_panic() {
    replay("announcement", fuzz::announcement, 100_000);
}

#[test]
fn nothing_of_openibs_makes_its_parsers_panic() {
    replay("openib", fuzz::openib, 200_000);
}

#[test]
fn nothing_of_a_peers_makes_the_parsers_of_verbs_panic() {
    replay("verbs", fuzz::verbs, 300_000);
}

#[test]
fn no_name_of_a_link_makes_its_parsers_panic() {
    replay("name", fuzz::name, 200_000);
}

#[test]
fn no_name_of_an_endpoint_makes_its_parsers_panic() {
    replay("endpoint", fuzz::endpoint, 300_000);
}

#[test]
fn no_datagram_about_a_connection_makes_its_parser_panic() {
    replay("datagram", fuzz::datagram, 200_000);
}

#[test]
fn no_entry_of_a_mailbox_makes_its_parser_panic() {
    replay("mailbox", fuzz::mailbox, 300_000);
}

#[test]
fn no_script_of_a_hostile_peer_makes_the_engine_panic() {
    replay("receive", fuzz::receive, 60_000);
}

#[test]
fn no_script_makes_an_engine_panic_that_protects_its_packets() {
    replay("sealed", fuzz::sealed, 30_000);
}
