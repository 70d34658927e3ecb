//! [`Peers`]: the table behind [`AddressId`], counted by use and checked by generation.

use std::collections::HashMap;
use std::hash::Hash;

use super::AddressId;
use crate::error::{Error, Result};

struct Slot<K, V> {
    generation: u32,
    uses: u32,
    entry: Option<(K, V)>,
}

/// Peers by id and by key.
pub(crate) struct Peers<K, V> {
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    ids: HashMap<K, AddressId>,
}

impl<K: Clone + Eq + Hash, V> Peers<K, V> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: HashMap::new() }
    }

    /// The peer of this key, made if it is new, used once more.
    pub(crate) fn resolve(&mut self, key: K, make: impl FnOnce() -> Result<V>) -> Result<AddressId> {
        if let Some(id) = self.ids.get(&key).copied() {
            self.slots[id.index as usize].uses += 1;
            return Ok(id);
        }
        let value = make()?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { generation: 0, uses: 0, entry: None });
                u32::try_from(self.slots.len() - 1).map_err(|_| Error::OutOfResource)?
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.uses = 1;
        slot.entry = Some((key.clone(), value));
        let id = AddressId { index, generation: slot.generation };
        self.ids.insert(key, id);
        Ok(id)
    }

    /// Uses the peer once less; its value when that was the last use.
    pub(crate) fn release(&mut self, id: AddressId) -> Option<V> {
        self.get(id)?;
        let slot = &mut self.slots[id.index as usize];
        slot.uses -= 1;
        if slot.uses > 0 {
            return None;
        }
        let (key, value) = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.ids.remove(&key);
        self.free.push(id.index);
        Some(value)
    }

    /// The peer; `None` if the id is stale.
    #[inline]
    pub(crate) fn get(&self, id: AddressId) -> Option<&V> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.entry.as_ref().map(|(_, value)| value) } else { None }
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, id: AddressId) -> Option<&mut V> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.entry.as_mut().map(|(_, value)| value) } else { None }
    }

    /// The first peer that satisfies the predicate.
    pub(crate) fn find(&self, wanted: impl Fn(&V) -> bool) -> Option<AddressId> {
        let index = self.slots.iter().position(|slot| slot.entry.as_ref().is_some_and(|(_, v)| wanted(v)))?;
        Some(AddressId { index: index as u32, generation: self.slots[index].generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_gives_the_same_id_until_it_is_released_as_often() {
        let mut peers = Peers::new();
        let one = peers.resolve("a", || Ok(1)).expect("room");
        let again = peers.resolve("a", || Err(Error::NotFound)).expect("known");
        assert_eq!(one, again);
        assert_eq!(peers.release(one), None);
        assert_eq!(peers.get(one), Some(&1));
        assert_eq!(peers.release(one), Some(1));
        assert_eq!(peers.release(one), None);
        assert_eq!(peers.get(one), None);
    }

    #[test]
    fn a_stale_id_never_leads_to_another_peer() {
        let mut peers = Peers::new();
        let old = peers.resolve("a", || Ok(1)).expect("room");
        peers.release(old);
        let new = peers.resolve("b", || Ok(2)).expect("room");
        assert_eq!(old.index, new.index);
        assert_eq!(peers.get(old), None);
        assert_eq!(peers.get_mut(old), None);
        assert_eq!(peers.get(new), Some(&2));
        assert_eq!(peers.find(|value| *value == 2), Some(new));
        assert_eq!(peers.find(|value| *value == 1), None);
    }

    #[test]
    fn a_peer_that_cannot_be_made_leaves_nothing() {
        let mut peers: Peers<&str, u8> = Peers::new();
        assert_eq!(peers.resolve("a", || Err(Error::Unreachable)), Err(Error::Unreachable));
        assert!(peers.slots.is_empty());
    }
}
