//! What [`super`] promises.

use super::*;
use crate::wire::protection::{PHASE_BITS, TAG_LEN};
use crate::wire::usnic::{Body, Flags, Packet, Repr};
use std::collections::HashSet;

const KEY: Key = [7; 16];
const SENDER: Sender = Sender { name: 2, incarnation: 1, connection: 1 };

fn connection(module: &mut ModuleProtection) -> Box<Protection> {
    module.connect(&KEY, SENDER).expect("a connection")
}

/// The next packet of a sender.
fn packet(sealer: &mut Sealer) -> Vec<u8> {
    let header = Repr {
        flags: Flags::PROTECTED,
        tag: 1,
        length: 4,
        connection: SENDER.connection,
        name: SENDER.name,
        incarnation: SENDER.incarnation,
        receiver_slot: 0,
        sender_slot: 1,
        stamp: 0,
        echo: 0,
        credit: 0,
        seq: 0,
        ack: 0,
        body: Body::Fragment,
    }
    .emit();
    let mut bytes = [&header[..], b"data", &[0; TAG_LEN]].concat();
    let (number, key) = sealer.take().expect("a number");
    assert!(key.seal(number, header.len(), &mut bytes));
    bytes
}

fn open(opener: &mut Opener, bytes: &[u8]) -> Result<(), Refusal> {
    let packet = Packet::parse(bytes).expect("well formed");
    let sealed = Sealed::of(&packet).expect("long enough");
    opener.open(&Secret::new(&KEY), &sealed, &mut [0; 4])
}

#[test]
fn no_two_connections_share_numbers_though_their_names_are_the_same() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let mut numbers = HashSet::new();
    for _ in 0..50 {
        let mut sealer = connection(&mut module).sealer;
        for _ in 0..20 {
            assert!(numbers.insert(sealer.take().expect("a number").0));
        }
    }
}

#[test]
fn two_lives_begin_with_other_numbers() {
    let first = |key| ModuleProtection::new(&[key; 16]).first_block;
    assert_eq!((first(1) == first(2), first(1) == first(1)), (false, true));
}

#[test]
fn blocks_are_given_out_once_and_then_there_are_none() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let first = connection(&mut module).sealer.next;
    module.blocks = BLOCKS - 1;
    let last = connection(&mut module).sealer.next;
    assert_eq!(last >> COUNT_BITS, (first >> COUNT_BITS).wrapping_sub(1) % u64::from(BLOCKS));
    assert!(module.connect(&KEY, SENDER).is_none());
}

#[test]
fn numbers_end_and_do_not_wrap() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let mut sealer = connection(&mut module).sealer;
    let last = sealer.last - 1;
    sealer.next = last;
    assert!(sealer.prepare() && sealer.take().is_some_and(|(number, _)| number == last));
    for _ in 0..3 {
        assert!(!sealer.prepare() && sealer.take().is_none());
    }
}

#[test]
fn the_key_changes_with_the_phase_on_both_sides() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let mut sealer = connection(&mut module).sealer;
    sealer.next += (1 << PHASE_BITS) - 3;
    let mut opener = Opener::new(SENDER);
    let packets: Vec<_> = (0..6).map(|_| packet(&mut sealer)).collect();
    // Those of the phase before may come later.
    for at in [0, 3, 1, 5, 2, 4] {
        assert_eq!(open(&mut opener, &packets[at]), Ok(()), "{at}");
        assert_eq!(open(&mut opener, &packets[at]), Err(Refusal::Replayed), "{at}");
    }
    let phases: HashSet<_> = opener.keys.iter().flatten().map(|(phase, _)| *phase).collect();
    assert_eq!(phases.len(), 2);
}

#[test]
fn a_forged_packet_neither_moves_the_window_nor_makes_keys_of_far_phases() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let mut sealer = connection(&mut module).sealer;
    let mut opener = Opener::new(SENDER);
    assert_eq!(open(&mut opener, &packet(&mut sealer)), Ok(()));
    let genuine = packet(&mut sealer);
    for ahead in [1 << 10, 1 << PHASE_BITS, 1 << (PHASE_BITS + 1), 1 << 40, 1 << 60] {
        let mut forged = genuine.clone();
        let number = u64::from_le_bytes(forged[8..16].try_into().expect("eight bytes"));
        forged[8..16].copy_from_slice(&number.wrapping_add(ahead).to_le_bytes());
        assert_eq!(open(&mut opener, &forged), Err(Refusal::Forged), "{ahead}");
    }
    assert!(opener.keys.iter().flatten().count() <= 2);
    assert_eq!(open(&mut opener, &genuine), Ok(()), "the genuine one is still new");
}

#[test]
fn keys_that_were_attacked_too_often_are_given_up() {
    let mut module = ModuleProtection::new(&[9; 16]);
    let mut sealer = connection(&mut module).sealer;
    let mut opener = Opener::new(SENDER);
    opener.forged = INTEGRITY_LIMIT - 2;
    let mut forged = packet(&mut sealer);
    forged[70] ^= 1;
    assert_eq!(open(&mut opener, &forged), Err(Refusal::Forged));
    assert_eq!(open(&mut opener, &forged), Err(Refusal::Exhausted));
}
