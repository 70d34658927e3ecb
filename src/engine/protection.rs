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
use crate::wire::protection::{INTEGRITY_LIMIT, PacketKey, Sealed, Secret, Sender, phase};
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

    /// Sees to it that there is a key for the next packet; `false` when the numbers are used up.
    pub(super) fn prepare(&mut self) -> bool {
        if phase(self.next) != self.phase
            && let Some(key) = self.secret.packet_key(&self.sender, phase(self.next))
        {
            (self.phase, self.key) = (phase(self.next), key);
        }
        // The very last one stays unused, so that there is always a next one.
        self.next < self.last && phase(self.next) == self.phase
    }

    /// A number that no packet has had, and its key, once they are [prepared](Self::prepare).
    pub(super) fn take(&mut self) -> Option<(u64, &PacketKey)> {
        if !self.prepare() {
            return None;
        }
        let number = self.next;
        self.next += 1;
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
        if !self.window.is_new(packet.number) {
            return Err(Refusal::Replayed);
        }
        let phase_of = phase(packet.number);
        let near = self.window.highest().is_none_or(|highest| phase(highest).abs_diff(phase_of) <= 1);
        if !near || !self.opens(secret, phase_of, packet, to) {
            self.forged += 1;
            let is_exhausted = self.forged >= INTEGRITY_LIMIT;
            return Err(if is_exhausted { Refusal::Exhausted } else { Refusal::Forged });
        }
        self.window.note(packet.number);
        Ok(())
    }

    fn opens(&mut self, secret: &Secret, phase: u64, packet: &Sealed<'_>, to: &mut [u8]) -> bool {
        let slot = &mut self.keys[(phase % PHASES) as usize];
        if slot.as_ref().is_none_or(|(of, _)| *of != phase) {
            *slot = secret.packet_key(&self.sender, phase).map(|key| (phase, key));
        }
        slot.as_ref().is_some_and(|(_, key)| key.open(packet, to))
    }
}

#[cfg(test)]
#[path = "protection_tests.rs"]
mod tests;
