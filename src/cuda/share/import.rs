//! What this process has opened of another's.

use std::sync::Arc;

use super::{Contexts, Exported, Refused};
use crate::cuda::Place;

/// How much stays open; 0 is without bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Allocations.
    pub count: usize,
    /// Bytes of them all.
    pub bytes: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Found open.
    pub hits: u64,
    /// Opened.
    pub misses: u64,
    /// Closed to make room.
    pub evictions: u64,
    /// Closed because the owner had freed it.
    pub stale: u64,
}

/// Allocations of one other process's that are open here.
pub struct Imports {
    contexts: Arc<Contexts>,
    bounds: Bounds,
    counts: Counts,
}

impl Imports {
    /// None so far.
    pub fn new(contexts: Arc<Contexts>, bounds: Bounds) -> Self {
        Self { contexts, bounds, counts: Counts::default() }
    }

    /// Opens an allocation, or finds it open. `near` is the memory here that it will be copied to or from.
    pub fn open(&mut self, exported: &Exported, near: Place) -> Result<Opened, Refused> {
        let _ = (exported, near, &self.contexts, self.bounds);
        Err(Refused::NotReady)
    }

    /// Closes all but what is being used, which is closed when it no longer is.
    pub fn flush(&mut self) {}

    /// What was counted since it was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// An allocation of another process's. It stays open as long as this lives.
#[derive(Clone)]
pub struct Opened {
    place: Place,
    base: u64,
    len: u64,
    start: usize,
}

impl Opened {
    /// Where `len` bytes from an address of its owner's are in this process; `None` where they do not lie in it.
    pub fn at(&self, remote: u64, len: usize) -> Option<usize> {
        let offset = remote.checked_sub(self.base)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.len).then(|| self.start + offset as usize)
    }

    /// What it is for [`Copies`](super::Copies): memory of a device.
    pub fn place(&self) -> Place {
        self.place
    }
}
