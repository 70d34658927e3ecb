//! What this process lets others open.

use std::sync::Arc;

use super::{Contexts, Exported, Refused, Uuid};
use crate::cuda::{Device, Result};

/// Allocations that others may open. What is known of an allocation is kept until it has gone.
pub struct Exports {
    contexts: Arc<Contexts>,
}

impl Exports {
    /// None so far.
    pub fn new(contexts: Arc<Contexts>) -> Self {
        Self { contexts }
    }

    /// The allocation that a range of device memory lies in; `None` where it cannot be shared: managed memory, that
    /// of a pool of the driver's own, that of the host, or a range that is in several allocations.
    pub fn export(&mut self, address: usize, len: usize) -> Result<Option<Exported>> {
        let _ = (address, len, &self.contexts);
        Ok(None)
    }

    /// A little memory of our own on a device, for others to try whether they can open it.
    pub fn probe(&mut self, device: Device) -> std::result::Result<Exported, Refused> {
        let _ = device;
        Err(Refused::NotReady)
    }

    /// The device that an address lies on; `None` for the host's memory.
    pub fn device(&mut self, address: usize) -> Result<Option<Uuid>> {
        let _ = address;
        Ok(None)
    }
}
