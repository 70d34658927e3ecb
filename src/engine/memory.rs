//! Memory by name: what a peer may read or write is what was registered, and nothing else.

use super::interface::Memory;
use super::slab::{Key, Roster, Slab};
use crate::error::Result;

/// What a peer may do with registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// GET.
    pub const READ: Self = Self(1);
    /// PUT.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);
    /// Atomic operations, where a device does them.
    pub const ATOMIC: Self = Self(4);

    /// What either allows.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `wanted` is allowed.
    pub const fn allows(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// Bytes of a registration as it travels.
pub const REGISTRATION_LEN: usize = 32;

/// A name for registered memory, for the peer to use in PUT and GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub(crate) id: u32,
    pub(crate) generation: u32,
    /// Bytes that were registered.
    pub length: u64,
    /// What was allowed.
    pub access: Access,
    /// What a device calls it, where one moves the bytes; else 0.
    pub(crate) key: u32,
}

impl Registration {
    /// As bytes, little-endian.
    pub fn to_bytes(self) -> [u8; REGISTRATION_LEN] {
        let mut bytes = [0; REGISTRATION_LEN];
        bytes[0..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16] = self.access.0;
        bytes[20..24].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// From bytes; `None` when they are not a registration's. Nothing is trusted: the owner of the
    /// memory checks the name when it is used.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REGISTRATION_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let length = u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
        let known = bytes[16] & !7 == 0 && bytes[17..20].iter().chain(&bytes[24..]).all(|byte| *byte == 0);
        known.then_some(Self {
            id: word(0),
            generation: word(4),
            length,
            access: Access(bytes[16]),
            key: word(20),
        })
    }
}

/// Memory that peers may reach.
pub(super) struct Registered<M> {
    memory: M,
    access: Access,
    /// The operations that read it for a peer.
    pub(super) served: Roster,
}

/// What is registered now.
pub(super) struct Registry<M> {
    table: Slab<Registered<M>>,
}

impl<M: Memory> Registry<M> {
    pub(super) const fn new() -> Self {
        Self { table: Slab::new() }
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self) -> Result<()> {
        self.table.reserve()
    }

    pub(super) fn insert(&mut self, memory: M, access: Access) -> Registration {
        let length = memory.len() as u64;
        let key = self.table.insert(Registered { memory, access, served: Roster::default() });
        Registration { id: key.index, generation: key.generation, length, access, key: 0 }
    }

    /// Takes it out, if it is there.
    pub(super) fn remove(&mut self, registration: Registration) -> Option<Registered<M>> {
        let key = Key { index: registration.id, generation: registration.generation };
        self.table.get(key)?;
        self.table.remove(key.index)
    }

    /// Notes that an operation reads the memory.
    pub(super) fn note_served<T>(&mut self, id: u32, operation: Key, of: &Slab<T>) {
        if let Some(registered) = self.table.at_mut(id) {
            registered.served.enter(operation, of);
        }
    }

    /// The memory, when the name is valid, the access allowed and the range inside.
    pub(super) fn find(&self, id: u32, generation: u32, wanted: Access, offset: u64, len: u64) -> Option<&M> {
        let registered = self.table.get(Key { index: id, generation })?;
        let end = offset.checked_add(len)?;
        let inside = registered.access.allows(wanted) && end <= registered.memory.len() as u64;
        inside.then_some(&registered.memory)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Span(usize);

    impl Memory for Span {
        fn len(&self) -> usize {
            self.0
        }
        fn read(&self, _: usize, _: &mut [u8]) {}
        fn write(&self, _: usize, _: &[u8]) {}
    }

    #[test]
    fn only_what_was_registered_is_found() {
        let mut registry = Registry::new();
        let it = registry.insert(Span(10), Access::READ);
        let find = |registry: &Registry<Span>, id, generation, access, offset, len| {
            registry.find(id, generation, access, offset, len).is_some()
        };
        assert!(find(&registry, it.id, it.generation, Access::READ, 0, 10));
        assert!(find(&registry, it.id, it.generation, Access::READ, 10, 0));
        assert!(!find(&registry, it.id, it.generation, Access::READ, 1, 10));
        assert!(!find(&registry, it.id, it.generation, Access::READ, u64::MAX, 2));
        assert!(!find(&registry, it.id, it.generation, Access::WRITE, 0, 1));
        assert!(!find(&registry, it.id + 1, it.generation, Access::READ, 0, 1));
        assert!(!find(&registry, it.id, it.generation + 1, Access::READ, 0, 1));
        assert!(registry.remove(it).is_some() && registry.remove(it).is_none());
        let next = registry.insert(Span(10), Access::BOTH);
        assert!(next.id == it.id && !find(&registry, it.id, it.generation, Access::READ, 0, 1));
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn a_registration_travels_as_bytes() {
        let it = Registration { id: 1, generation: 2, length: 3 << 33, access: Access::BOTH, key: 4 << 24 };
        assert_eq!(Registration::from_bytes(&it.to_bytes()), Some(it));
        assert_eq!(Registration::from_bytes(&[0; 31]), None);
        assert_eq!(Registration::from_bytes(&[0xFF; 32]), None);
    }
}
