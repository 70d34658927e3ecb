//! Who uses which slot of this process's segment: room in host memory by way of which device memory goes that a peer
//! cannot open.
//!
//! The owner of the memory fills a slot and tells the peer, which empties it and gives it back. A peer has
//! [`MOST`] of them at a time, and the [last](LAST) ones go to those that have none: a few that compute, and leave them
//! full, do not keep the others from theirs.

use std::collections::VecDeque;

use crate::btl::EndpointId;
use crate::shm::Staging;

/// Slots that are in use for one peer at a time.
pub(super) const MOST: usize = 4;

/// So many slots are kept for peers that have none.
const LAST: usize = Staging::SLOTS / 4;

/// A peer wants this.
#[derive(Clone, Copy, Debug)]
struct Wish {
    peer: EndpointId,
    ticket: u64,
    serial: u64,
    /// Where the next piece begins in what is registered.
    offset: u64,
    /// The same, from where the peer's wish began.
    at: u64,
    /// Bytes that are left.
    left: u64,
}

/// A slot that is to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) peer: EndpointId,
    pub(super) ticket: u64,
    pub(super) slot: usize,
    pub(super) serial: u64,
    pub(super) offset: u64,
    pub(super) at: u64,
    pub(super) len: usize,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Nothing.
    Free,
    /// It is being filled or emptied here, for a peer.
    Here(EndpointId),
    /// A peer is to empty it.
    There(EndpointId),
}

/// The slots of this process.
#[derive(Debug)]
pub(super) struct Slots {
    uses: [Use; Staging::SLOTS],
    wishes: VecDeque<Wish>,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { uses: [Use::Free; Staging::SLOTS], wishes: VecDeque::new() }
    }

    /// A slot to be used here, for a peer, if it has fewer than it may. The first ones first: those that were never
    /// used take no memory.
    pub(super) fn take(&mut self, peer: EndpointId) -> Option<usize> {
        let its = |usage: &&Use| matches!(usage, Use::Here(of) | Use::There(of) if *of == peer);
        let count = self.uses.iter().filter(its).count();
        let free = self.uses.iter().filter(|usage| **usage == Use::Free).count();
        if count >= MOST || (count > 0 && free <= LAST) {
            return None;
        }
        let slot = self.uses.iter().position(|usage| *usage == Use::Free)?;
        self.uses[slot] = Use::Here(peer);
        Some(slot)
    }

    /// A slot that is used here is free again.
    pub(super) fn give(&mut self, slot: usize) {
        self.uses[slot] = Use::Free;
    }

    /// A slot was filled, for the peer to empty.
    pub(super) fn hand_over(&mut self, slot: usize) {
        if let Use::Here(peer) = self.uses[slot] {
            self.uses[slot] = Use::There(peer);
        }
    }

    /// A peer says that it has emptied a slot; false when it was not the one to do so.
    pub(super) fn emptied(&mut self, peer: EndpointId, slot: usize) -> bool {
        let is_its = self.uses.get(slot) == Some(&Use::There(peer));
        if is_its {
            self.uses[slot] = Use::Free;
        }
        is_its
    }

    /// A peer wants so many bytes of what is registered.
    pub(super) fn wish(&mut self, peer: EndpointId, ticket: u64, serial: u64, offset: u64, len: u64) {
        self.wishes.push_back(Wish { peer, ticket, serial, offset, at: 0, left: len });
    }

    /// The next slot to be filled, if there is one for what peers want. Each peer's wishes are granted in turn.
    pub(super) fn next(&mut self) -> Option<Fill> {
        for _ in 0..self.wishes.len() {
            let mut wish = self.wishes.pop_front()?;
            let Some(slot) = self.take(wish.peer) else {
                self.wishes.push_back(wish);
                continue;
            };
            let len = wish.left.min(Staging::SLOT as u64);
            let Wish { peer, ticket, serial, offset, at, .. } = wish;
            wish.offset += len;
            wish.at += len;
            wish.left -= len;
            if wish.left > 0 {
                self.wishes.push_back(wish);
            }
            return Some(Fill { peer, ticket, slot, serial, offset, at, len: len as usize });
        }
        None
    }

    /// A peer wants no more of this, or is not to get it.
    pub(super) fn withdraw(&mut self, peer: EndpointId, ticket: u64) {
        self.wishes.retain(|wish| (wish.peer, wish.ticket) != (peer, ticket));
    }

    /// What was registered is no more: these are not granted.
    pub(super) fn forget(&mut self, serial: u64) -> Vec<(EndpointId, u64)> {
        let of_it = |wish: &&Wish| wish.serial == serial;
        let over = self.wishes.iter().filter(of_it).map(|wish| (wish.peer, wish.ticket)).collect();
        self.wishes.retain(|wish| wish.serial != serial);
        over
    }

    /// A peer has gone. What is used here for it is given back by its user.
    pub(super) fn lose(&mut self, peer: EndpointId) {
        self.wishes.retain(|wish| wish.peer != peer);
        for usage in &mut self.uses {
            if *usage == Use::There(peer) {
                *usage = Use::Free;
            }
        }
    }

    /// Whether anybody wants anything.
    pub(super) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: EndpointId = EndpointId::from_raw(1 << 32);
    const OTHER: EndpointId = EndpointId::from_raw(1 << 32 | 1);

    #[test]
    fn a_wish_is_granted_in_pieces_and_no_peer_takes_all() {
        let mut slots = Slots::new();
        let whole = Staging::SLOT as u64 * 6 + 5;
        slots.wish(ONE, 1, 7, 100, whole);
        let first: Vec<Fill> = std::iter::from_fn(|| slots.next()).collect();
        assert_eq!(first.len(), MOST);
        slots.wish(OTHER, 1, 8, 0, 10);
        let small = slots.next().expect("a slot for another");
        assert_eq!((small.peer, small.len, small.slot), (OTHER, 10, MOST));
        let mut at = 0;
        let mut filled = first;
        while let Some(fill) = filled.pop() {
            assert_eq!((fill.peer, fill.offset), (ONE, 100 + fill.at));
            at += fill.len as u64;
            assert!(!slots.emptied(ONE, fill.slot), "it is still being filled");
            slots.hand_over(fill.slot);
            assert!(!slots.emptied(OTHER, fill.slot), "it is another's");
            assert!(slots.emptied(ONE, fill.slot) && !slots.emptied(ONE, fill.slot), "once");
            filled.extend(slots.next());
        }
        assert_eq!(at, whole);
        assert!(!slots.has_wishes());
        assert!(!slots.emptied(ONE, usize::MAX));
    }

    #[test]
    fn those_that_leave_theirs_full_leave_some_for_others() {
        let mut slots = Slots::new();
        let peers = (0..12).map(|number| EndpointId::from_raw(1 << 32 | number));
        for (peer, expected) in peers.zip([4, 4, 4, 4, 4, 4, 1, 1, 1, 1, 1, 1]) {
            slots.wish(peer, 1, 7, 0, Staging::SLOT as u64 * 10);
            let filled: Vec<Fill> = std::iter::from_fn(|| slots.next()).collect();
            assert_eq!(filled.iter().filter(|fill| fill.peer == peer).count(), expected);
            filled.iter().for_each(|fill| slots.hand_over(fill.slot));
        }
    }

    #[test]
    fn who_goes_leaves_nothing_behind() {
        let mut slots = Slots::new();
        slots.wish(ONE, 1, 7, 0, Staging::SLOT as u64 * 10);
        slots.wish(OTHER, 3, 7, 0, Staging::SLOT as u64 * 10);
        while let Some(fill) = slots.next() {
            slots.hand_over(fill.slot);
        }
        slots.lose(ONE);
        assert_eq!(slots.uses.iter().filter(|usage| **usage != Use::Free).count(), MOST);
        assert_eq!(slots.forget(7), [(OTHER, 3)]);
        assert!(!slots.has_wishes());
        slots.wish(OTHER, 4, 8, 0, 1);
        slots.withdraw(ONE, 4);
        assert!(slots.has_wishes());
        slots.withdraw(OTHER, 4);
        assert!(!slots.has_wishes());
    }
}
