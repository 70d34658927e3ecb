//! [`Regions`]: the memory of a domain that peers may reach, by key.
//!
//! A peer names a key and a place; both are untrusted. [`Regions::lookup`] says which memory of this process that is, or
//! that it is none.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::cntr::Counter;
use super::errno::{Errno, Outcome};
use super::offer::Registration;
use super::sys;

/// What peers may do (`FI_REMOTE_READ` and `FI_REMOTE_WRITE`), and what this side may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub u64);

impl Access {
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(sys::FI_REMOTE_READ);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(sys::FI_REMOTE_WRITE);
    /// Peers may do both.
    pub const REMOTE_BOTH: Self = Self(sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE);
    /// All that there is.
    const ALL: u64 = sys::FI_SEND
        | sys::FI_RECV
        | sys::FI_READ
        | sys::FI_WRITE
        | sys::FI_REMOTE_READ
        | sys::FI_REMOTE_WRITE;
}

/// A piece of memory that was registered.
struct Region {
    start: usize,
    length: usize,
    access: u64,
    /// What counts that peers read there, and that they write.
    counters: [Option<Arc<Counter>>; 2],
}

/// What those are bound for.
const COUNTED: [u64; 2] = [sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE];

/// Where a peer reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The first byte, in this process.
    pub address: usize,
    /// Somebody counts it.
    pub is_counted: bool,
}

/// The regions of a domain.
pub struct Regions {
    registration: Registration,
    by_key: RwLock<HashMap<u64, Region>>,
}

impl Regions {
    /// None yet, of this mode.
    pub fn new(registration: Registration) -> Self {
        Self { registration, by_key: RwLock::new(HashMap::new()) }
    }

    /// The mode.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// Registers memory; answers the key. In offset mode, nothing up to all addresses is all memory.
    ///
    /// # Errors
    /// `FI_EINVAL` for what is no memory or no access, `FI_ENOKEY` for a key that is taken or that cannot be one.
    pub fn register(&self, start: usize, length: usize, access: u64, wanted: u64) -> Outcome<u64> {
        let is_all = start == 0 && length == usize::MAX;
        if access & !Access::ALL != 0 || (!is_all && start.checked_add(length).is_none()) {
            return Err(Errno::INVAL);
        }
        let region = Region { start, length, access, counters: [None, None] };
        let mut by_key = self.by_key.write();
        let key = if self.registration.provider_keys { Self::fresh(&by_key)? } else { wanted };
        if key == sys::FI_KEY_NOTAVAIL || by_key.contains_key(&key) {
            return Err(Errno::NOKEY);
        }
        by_key.insert(key, region);
        Ok(key)
    }

    /// A key that nobody can guess.
    fn fresh(taken: &HashMap<u64, Region>) -> Outcome<u64> {
        loop {
            let key = crate::link::random().map_err(|_| Errno::NOKEY)?;
            if key != sys::FI_KEY_NOTAVAIL && !taken.contains_key(&key) {
                return Ok(key);
            }
        }
    }

    /// Whether there is any.
    pub fn are_reached(&self) -> bool {
        !self.by_key.read().is_empty()
    }

    /// The memory is not reached any more.
    pub fn deregister(&self, key: u64) {
        self.by_key.write().remove(&key);
    }

    /// What peers do there of these kinds is counted by this.
    ///
    /// # Errors
    /// `FI_ENOKEY` for no region, `FI_EINVAL` for what is counted already.
    pub fn count_by(&self, key: u64, counter: &Arc<Counter>, kinds: Access) -> Outcome<()> {
        let mut by_key = self.by_key.write();
        let region = by_key.get_mut(&key).ok_or(Errno::NOKEY)?;
        let mut places: Vec<_> = COUNTED
            .iter()
            .zip(&mut region.counters)
            .filter_map(|(kind, place)| (kinds.0 & kind != 0).then_some(place))
            .collect();
        if places.iter().any(|place| place.is_some()) {
            return Err(Errno::INVAL);
        }
        places.iter_mut().for_each(|place| **place = Some(Arc::clone(counter)));
        Ok(())
    }

    /// A peer has done something of this kind there.
    #[cold]
    pub fn count(&self, key: u64, kind: Access) {
        let by_key = self.by_key.read();
        let Some(region) = by_key.get(&key) else { return };
        for (counted, counter) in COUNTED.iter().zip(&region.counters) {
            if kind.0 & counted != 0
                && let Some(counter) = counter
            {
                counter.add(1);
            }
        }
    }

    /// Where a peer reaches that names this key, and this place: an address, or how far from the start, as the mode
    /// says.
    ///
    /// # Errors
    /// `FI_ENOKEY` for no region, `FI_EACCES` for access that was not given, `FI_EINVAL` beyond its bounds.
    pub fn lookup(&self, key: u64, place: u64, length: usize, access: Access) -> Outcome<Reached> {
        let by_key = self.by_key.read();
        let region = by_key.get(&key).ok_or(Errno::NOKEY)?;
        if access.0 & !region.access != 0 {
            return Err(Errno::ACCES);
        }
        let place = usize::try_from(place).map_err(|_| Errno::INVAL)?;
        let offset = match self.registration.virtual_addresses {
            true => place.checked_sub(region.start),
            false => Some(place),
        };
        let is_inside = |offset: &usize| offset.checked_add(length).is_some_and(|end| end <= region.length);
        let offset = offset.filter(is_inside).ok_or(Errno::INVAL)?;
        let is_counted = region.counters.iter().any(Option::is_some);
        Ok(Reached { address: region.start + offset, is_counted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

    fn regions(virtual_addresses: bool, provider_keys: bool) -> Regions {
        Regions::new(Registration { virtual_addresses, provider_keys })
    }

    fn at(regions: &Regions, key: u64, place: u64, length: usize) -> Outcome<usize> {
        regions.lookup(key, place, length, Access::REMOTE_READ).map(|reached| reached.address)
    }

    #[test]
    fn places_are_offsets_or_addresses_and_never_outside() {
        for (is_virtual, first) in [(false, 0), (true, 0x1000)] {
            let regions = regions(is_virtual, false);
            assert_eq!(regions.register(0x1000, 0x100, BOTH, 7), Ok(7));
            assert_eq!(at(&regions, 7, first, 0x100), Ok(0x1000));
            assert_eq!(at(&regions, 7, first + 0xFF, 1), Ok(0x10FF));
            assert_eq!(at(&regions, 7, first + 0x100, 0), Ok(0x1100));
            for (place, length) in [
                (first, 0x101),
                (first + 0x100, 1),
                (first + 0x101, 0),
                (first.wrapping_sub(1), 1),
                (u64::MAX, 1),
                (first + 1, usize::MAX),
            ] {
                assert_eq!(at(&regions, 7, place, length), Err(Errno::INVAL), "{place:#x} {length:#x}");
            }
        }
    }

    #[test]
    fn all_memory_is_one_region() {
        let regions = regions(false, false);
        assert_eq!(regions.register(0, usize::MAX, BOTH, 0), Ok(0));
        assert_eq!(at(&regions, 0, 0x1234_5678_9ABC, 16), Ok(0x1234_5678_9ABC));
        assert_eq!(at(&regions, 0, u64::MAX - 1, 2), Err(Errno::INVAL));
        assert_eq!(regions.register(1, usize::MAX, BOTH, 1), Err(Errno::INVAL));
    }

    #[test]
    fn keys_are_the_users_or_ours() {
        let users = regions(false, false);
        assert_eq!(users.register(0x1000, 1, BOTH, 5), Ok(5));
        assert_eq!(users.register(0x2000, 1, BOTH, 5), Err(Errno::NOKEY));
        assert_eq!(users.register(0x2000, 1, BOTH, u64::MAX), Err(Errno::NOKEY));
        users.deregister(5);
        assert_eq!(at(&users, 5, 0, 1), Err(Errno::NOKEY));
        assert_eq!(users.register(0x2000, 1, BOTH, 5), Ok(5));
        let ours = regions(true, true);
        let keys = [0; 3].map(|same| ours.register(0x1000, 1, BOTH, same).expect("a key"));
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }

    #[test]
    fn access_that_was_not_given_is_refused() {
        let regions = regions(false, false);
        assert_eq!(regions.register(0x1000, 1, sys::FI_REMOTE_READ, 5), Ok(5));
        assert!(regions.lookup(5, 0, 1, Access::REMOTE_READ).is_ok());
        let refused = regions.lookup(5, 0, 1, Access::REMOTE_WRITE).map(|reached| reached.address);
        assert_eq!(refused, Err(Errno::ACCES));
        assert_eq!(regions.register(0x1000, 1, 1 << 63, 6), Err(Errno::INVAL));
    }
}
