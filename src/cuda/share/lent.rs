//! Copies between what was lent: the safe way to a [`Transfer`].

use super::Opened;
use crate::cuda::Transfer;
use crate::link::Lent;

impl Transfer {
    /// Between memory that is lent until the copy is over; as much as the shorter one has.
    pub fn of(to: Lent, from: Lent) -> Self {
        let len = to.len().min(from.len());
        // SAFETY: readable and writable until the operation that it is lent to is over, by the promise of whoever lent
        // it (`Lent::new`); that of a device is touched by devices only, for that is the place that it has.
        unsafe { Self::new(to.as_ptr().cast_mut(), from.as_ptr(), len) }
    }
}

impl Opened {
    /// So many bytes from an address of its owner's, for copies that keep this; `None` where they do not lie in it.
    pub fn lend(&self, remote: u64, len: usize) -> Option<Lent> {
        let start = self.at(remote, len)?;
        // SAFETY: mapped here by the driver as long as this is open, and a copy keeps it until it is over.
        Some(unsafe { Lent::new(std::ptr::with_exposed_provenance_mut(start), len) })
    }
}
