//! Payload protection of one connection: which packet number and which key the next packet has, and whether
//! what arrives is genuine and new. What is done with them, `wire/protection` says.
//!
//! *No number is used twice under a key.* A number is taken where a packet is encrypted and nowhere else, so
//! that each transmission has its own, of whatever it is the repetition. Each connection of a module counts in a
//! *block* of numbers of its own, and no block is given out twice in the life of the module: so numbers never
//! repeat, not even when two connections to one peer have the same connection number. A module that begins
//! its life has a name and an incarnation of its own, thus other keys, and begins with a block that follows
//! from its own secret.

use super::replay::ReplayWindow;
use crate::wire::protection::{
    INTEGRITY_LIMIT, PHASE_BITS, PacketKey, Sealed, Secret, Sender, number, phase,
};
use crate::wire::usnic::Key;

/// Bits of a packet number that count in a block: enough for months of tiny messages.
const COUNT_BITS: u32 = 44;
/// Blocks that there are.
const BLOCKS: u32 = 1 << (u64::BITS - COUNT_BITS);
/// Keys kept of a sender: of the phase of the highest number, the one before and the one after.
const PHASES: u64 = 3;

/// What protects all connections of a module.
#[derive(Debug)]
pub(super) struct ModuleProtection {
    pub(super) secret: Secret,
    first_block: u32,
    blocks: u32,
    /// Room for what is decrypted.
    pub(super) opened: Vec<u8>,
}

impl ModuleProtection {
    /// `key` is the one that the module has published.
    pub(super) fn new(key: &Key) -> Self {
        let secret = Secret::new(key);
        let first_block = secret.number().unwrap_or(0) % BLOCKS;
        Self { secret, first_block, blocks: 0, opened: Vec::new() }
    }

    /// For a connection to the process that has published `key`; `None` when all numbers are given out.
    pub(super) fn connect(&mut self, key: &Key, sender: Sender) -> Option<Box<Protection>> {
        if self.blocks == BLOCKS {
            return None;
        }
        let block = self.first_block.wrapping_add(self.blocks) % BLOCKS;
        self.blocks += 1;
        Some(Box::new(Protection { sealer: Sealer::new(key, sender, block)?, opener: None }))
    }
}

/// What protects one connection, in both directions.
#[derive(Debug)]
pub(super) struct Protection {
    pub(super) sealer: Sealer,
    /// `None` until something genuine has come.
    pub(super) opener: Option<Opener>,
}

/// Numbers and keys of the packets that are sent.
#[derive(Debug)]
pub(super) struct Sealer {
    secret: Secret,
    sender: Sender,
    next: u64,
    /// The last number of the block.
    last: u64,
    phase: u64,
    key: PacketKey,
}

impl Sealer {
    fn new(key: &Key, sender: Sender, block: u32) -> Option<Self> {
        let secret = Secret::new(key);
        let next = u64::from(block) << COUNT_BITS;
        let key = secret.packet_key(&sender, phase(next))?;
        Some(Self { secret, sender, next, last: next | ((1 << COUNT_BITS) - 1), phase: phase(next), key })
    }

    /// Sees to it that there is a key for the next `count` packets; `false` when the numbers are used up.
    pub(super) fn prepare(&mut self, count: u64) -> bool {
        // Those that follow each other share a key. Numbers left out are as good as lost packets.
        let end = self.next.saturating_add(count.saturating_sub(1));
        if phase(end) != phase(self.next) {
            self.next = phase(end) << PHASE_BITS;
        }
        if phase(self.next) != self.phase
            && let Some(key) = self.secret.packet_key(&self.sender, phase(self.next))
        {
            (self.phase, self.key) = (phase(self.next), key);
        }
        // The very last one stays unused, so that there is always a next one.
        self.next.checked_add(count).is_some_and(|end| end <= self.last) && phase(self.next) == self.phase
    }

    /// The key under which the peer says that it does not know the connection any more.
    pub(super) fn reset_key(&self) -> Option<Key> {
        self.secret.reset_key()
    }

    /// As after all packets that there can be.
    #[cfg(test)]
    pub(super) fn exhaust(&mut self) {
        self.next = self.last;
    }

    /// As after so many packets that so many numbers are left of the phase.
    #[cfg(test)]
    pub(super) fn leave(&mut self, left: u64) {
        self.next = ((phase(self.next) + 1) << PHASE_BITS) - left;
    }

    /// The first of `count` numbers that no packet has had, and their key, once they are [prepared](Self::prepare).
    pub(super) fn take(&mut self, count: u64) -> Option<(u64, &PacketKey)> {
        if !self.prepare(count) {
            return None;
        }
        let number = self.next;
        self.next += count;
        Some((number, &self.key))
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody with the key has made it.
    Forged,
    /// Its number has come before, or is too old for that to be known.
    Replayed,
    /// As [`Self::Forged`]; and so many were that the keys must not be used any more.
    Exhausted,
}

/// Keys and numbers of the packets that are received.
#[derive(Debug)]
pub(super) struct Opener {
    sender: Sender,
    keys: [Option<(u64, PacketKey)>; PHASES as usize],
    window: ReplayWindow,
    forged: u64,
}

impl Opener {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, keys: [None, None, None], window: ReplayWindow::new(), forged: 0 }
    }

    /// Decrypts a packet that has not come before. `secret` is of our own key. Nothing that a forger sends
    /// makes more than two keys besides the one in use.
    pub(super) fn open(
        &mut self,
        secret: &Secret,
        packet: &Sealed<'_>,
        to: &mut [u8],
    ) -> Result<(), Refusal> {
        self.open_with(secret, packet.number, |key| key.open(packet, to))
    }

    /// The same of a packet with a header of so many bytes, where it is.
    pub(super) fn open_in_place(
        &mut self,
        secret: &Secret,
        header: usize,
        packet: &mut [u8],
    ) -> Result<(), Refusal> {
        let number = number(packet).ok_or(Refusal::Forged)?;
        self.open_with(secret, number, |key| key.open_in_place(number, header, packet))
    }

    /// The same of a packet whose payload lies elsewhere: `payload` has it changed there.
    pub(super) fn open_apart(
        &mut self,
        secret: &Secret,
        header: usize,
        packet: &[u8],
        payload: impl FnOnce(&mut dyn FnMut(&mut [u8]) -> bool) -> bool,
    ) -> Result<(), Refusal> {
        let number = number(packet).ok_or(Refusal::Forged)?;
        let header = packet.get(..header).ok_or(Refusal::Forged)?;
        let tag = packet.last_chunk().ok_or(Refusal::Forged)?;
        self.open_with(secret, number, |key| {
            payload(&mut |payload| key.open_apart(number, header, payload, tag))
        })
    }

    #[inline]
    fn open_with(
        &mut self,
        secret: &Secret,
        number: u64,
        open: impl FnOnce(&PacketKey) -> bool,
    ) -> Result<(), Refusal> {
        if !self.window.is_new(number) {
            return Err(Refusal::Replayed);
        }
        let phase_of = phase(number);
        let near = self.window.highest().is_none_or(|highest| phase(highest).abs_diff(phase_of) <= 1);
        if !near || !self.opens(secret, phase_of, open) {
            self.forged += 1;
            let is_exhausted = self.forged >= INTEGRITY_LIMIT;
            return Err(if is_exhausted { Refusal::Exhausted } else { Refusal::Forged });
        }
        self.window.note(number);
        Ok(())
    }

    fn opens(&mut self, secret: &Secret, phase: u64, open: impl FnOnce(&PacketKey) -> bool) -> bool {
        let slot = &mut self.keys[(phase % PHASES) as usize];
        if slot.as_ref().is_none_or(|(of, _)| *of != phase) {
            *slot = secret.packet_key(&self.sender, phase).map(|key| (phase, key));
        }
        slot.as_ref().is_some_and(|(_, key)| open(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::protection::TAG_LEN;
    use crate::wire::usnic::{self, Body, Flags, Packet, Repr};
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
            receiver_slot: 0,
            sender: Some(usnic::Sender { name: SENDER.name, incarnation: SENDER.incarnation, slot: 1 }),
            stamp: 0,
            echo: 0,
            credit: 0,
            seq: 0,
            ack: 0,
            body: Body::Fragment,
        }
        .emit();
        let mut bytes = [&header[..], b"data", &[0; TAG_LEN]].concat();
        let (number, key) = sealer.take(1).expect("a number");
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
                assert!(numbers.insert(sealer.take(1).expect("a number").0));
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
        assert!(sealer.prepare(1) && sealer.take(1).is_some_and(|(number, _)| number == last));
        for _ in 0..3 {
            assert!(!sealer.prepare(1) && sealer.take(1).is_none());
        }
    }

    #[test]
    fn numbers_that_are_taken_together_share_a_key_and_none_is_used_twice() {
        let mut module = ModuleProtection::new(&[9; 16]);
        let mut sealer = connection(&mut module).sealer;
        sealer.leave(10);
        let mut next = sealer.next;
        let mut leaps = 0;
        for count in [4, 6, 1, 64, 3] {
            let (first, _) = sealer.take(count).expect("numbers");
            assert_eq!((first, phase(first + count - 1)), (next, phase(first)), "{count}");
            next = first + count;
        }
        sealer.leave(5);
        for count in [3, 3, 2] {
            let before = sealer.next;
            let (first, _) = sealer.take(count).expect("numbers");
            assert!(first >= before && phase(first) == phase(first + count - 1));
            leaps += u32::from(first > before);
        }
        assert_eq!((leaps, sealer.next % (1 << PHASE_BITS)), (1, 5), "two numbers were left out");
        sealer.next = sealer.last - 5;
        assert!(!sealer.prepare(6) && sealer.take(6).is_none(), "one must be left");
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
}
