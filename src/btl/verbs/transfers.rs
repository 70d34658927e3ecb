//! What the host does with memory that peers have registered: RDMA writes and reads, and atomic operations.

use super::component::Module;
use super::memory::Need;
use super::peer::{Transfer, What};
use crate::btl::{Access, Atomic, Atomics, Cookie, EndpointId, Lent, Registration, Sending};
use crate::error::{Error, Result};
use crate::verbs::Remote;

/// Bytes of what an atomic operation changes, which lie at a multiple of them.
const WORD: usize = size_of::<u64>();

/// Where so many bytes of registered memory lie that are to be used so.
fn find((registration, offset): (Registration, u64), length: usize, wanted: Access) -> Result<Remote> {
    let end = offset.checked_add(length as u64);
    if !registration.access.allows(wanted) || end.is_none_or(|end| end > registration.length) {
        return Err(Error::BadParameter);
    }
    let base = u64::from(registration.id) | u64::from(registration.generation) << 32;
    let address = base.checked_add(offset).ok_or(Error::BadParameter)?;
    Ok(Remote { address, key: registration.key })
}

/// The word of a peer's that is changed, if it is one, and so is the place for what it was, by its address and length; there need
/// be none.
fn find_word(remote: (Registration, u64), (at, length): (usize, usize)) -> Result<Remote> {
    let remote = find(remote, WORD, Access::ATOMIC)?;
    let is_word = length == WORD && at.is_multiple_of(WORD);
    if !remote.address.is_multiple_of(WORD as u64) || !(is_word || length == 0) {
        return Err(Error::BadParameter);
    }
    Ok(remote)
}

impl<const SECOND: bool> Module<SECOND> {
    /// Begins a write or a read.
    pub(super) fn transfer(
        &self,
        to: EndpointId,
        (is_read, local): (bool, Lent),
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        let (what, wanted) = if is_read { (What::Read, Access::READ) } else { (What::Write, Access::WRITE) };
        let need = self.need(remote.0);
        let remote = find(remote, local.len(), wanted)?;
        self.begin_transfer(to, (what, is_read, need), local, remote, cookie)
    }

    /// Begins an atomic operation.
    pub(super) fn change(
        &self,
        to: EndpointId,
        result: Lent,
        remote: (Registration, u64),
        (what, cookie): (Atomic, Cookie),
    ) -> Result<Sending> {
        if self.rail.limits.atomics == Atomics::None {
            return Err(Error::Unsupported);
        }
        let need = self.need(remote.0);
        let remote = find_word(remote, (result.as_ptr().addr(), result.len()))?;
        self.begin_transfer(to, (What::Change(what), true, need), result, remote, cookie)
    }

    /// Whether what is done with a peer's memory can be done another way.
    fn need(&self, peers: Registration) -> Need {
        Need::of(peers.access, self.rail.port.dialect)
    }

    /// `fills`: something arrives in the local memory.
    fn begin_transfer(
        &self,
        to: EndpointId,
        (what, fills, need): (What, bool, Need),
        local: Lent,
        remote: Remote,
        cookie: Cookie,
    ) -> Result<Sending> {
        let registered = (!local.is_empty()).then(|| self.registrations.of(local, fills, need, &self.rail));
        let memory = registered.transpose().map_err(|error| match error {
            // The host does it another way, after a few tries.
            Error::OutOfResource if need == Need::Spared => error,
            Error::OutOfResource => self.rail.state.with(|state| state.refuse(to, local.len())),
            other => other,
        })?;
        let transfer = Transfer { what, local, memory, remote, cookie, posted: 0 };
        self.rail.state.with(|state| state.transfer(to, transfer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(base: u64, length: u64, access: Access) -> Registration {
        Registration { id: base as u32, generation: (base >> 32) as u32, length, access, key: 7 }
    }

    #[test]
    fn what_is_not_registered_for_it_is_not_used() {
        let both = registered(0x1_0000_0040, 64, Access::BOTH);
        let found = find((both, 60), 4, Access::WRITE).expect("inside");
        assert_eq!(found, Remote { address: 0x1_0000_007C, key: 7 });
        for (offset, length) in [(60, 5), (65, 0), (u64::MAX, 1)] {
            assert_eq!(find((both, offset), length, Access::READ), Err(Error::BadParameter));
        }
        assert_eq!(find((registered(64, 64, Access::READ), 0), 4, Access::WRITE), Err(Error::BadParameter));
    }

    #[test]
    fn a_word_is_eight_bytes_at_a_multiple_of_eight_where_peers_may_change_it() {
        let may = registered(0x1_0000_0040, 64, Access::ATOMIC);
        let found = |registration, offset, result| find_word((registration, offset), result).ok();
        let there = Some(Remote { address: 0x1_0000_0048, key: 7 });
        assert_eq!(found(may, 8, (80, 8)), there);
        assert_eq!(found(may, 8, (1, 0)), there, "what it was is nobody's");
        assert_eq!(found(registered(0x1_0000_0044, 64, Access::ATOMIC), 4, (80, 8)), there);
        for offset in [4, 1, 57, 64, u64::MAX - 7] {
            assert_eq!(found(may, offset, (80, 8)), None, "{offset}");
        }
        for (at, length) in [(84, 8), (80, 4), (80, 16), (81, 8)] {
            assert_eq!(found(may, 8, (at, length)), None, "{at}, {length}");
        }
        assert_eq!(found(registered(0x1_0000_0040, 64, Access::BOTH), 8, (80, 8)), None);
    }
}
