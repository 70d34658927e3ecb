//! Messages in device memory that the provider moves itself (`FI_HMEM`).
//!
//! A message in one piece of device memory is given to the provider as it lies, registered for this
//! one message where the provider wants that. Everything else goes through host memory, as it does
//! with a provider that cannot reach devices: what has gaps, what the provider refuses to register,
//! what lies on a device that libfabric does not know, what a provider with a
//! [cushion](crate::fabric::Context::is_cushioned) receives, and what was taken over before its receive came.
//!
//! The operation holds the registration while it is posted, and gives it up before the host learns
//! that the operation is over ([`crate::fabric::Lease::end`]): then the memory may go.

use std::sync::Arc;

use super::body::Op;
use super::{Offer, Ofi, counters};
use crate::error::Result;
use crate::fabric::{Domain, Source, View};
use crate::mtl::Upcalls;

/// How the provider reaches device memory.
pub(super) struct Reach {
    domain: Arc<Domain>,
    /// Whether each message is registered.
    registers: bool,
    /// Whether it receives there, too.
    receives: bool,
}

impl Reach {
    /// What the endpoint of an offer will be able to do.
    pub(super) fn of(offer: &Offer<'_>, domain: &Arc<Domain>, cushioned: bool) -> Option<Self> {
        offer.reaches_devices.then(|| Self {
            domain: Arc::clone(domain),
            registers: offer.info.registers_devices(),
            receives: !cushioned,
        })
    }

    /// The domain, where messages are registered.
    fn registers(&self) -> Option<&Arc<Domain>> {
        self.registers.then_some(&self.domain)
    }
}

/// Counts what became of a message; `None` where it goes through host memory.
fn counted<T>(found: Result<Option<T>>) -> Option<T> {
    match &found {
        Ok(Some(_)) => counters::DEVICE_DIRECT.add(1),
        Ok(None) => {}
        Err(_) => counters::DEVICE_REFUSED.add(1),
    }
    found.ok().flatten()
}

impl<H: Upcalls> Ofi<H> {
    /// Whether the provider reaches device memory.
    pub fn reaches_devices(&self) -> bool {
        self.reach.is_some()
    }

    /// The bytes of a blocking send, if the provider can take them from the device.
    pub(super) fn on_device<'a>(&self, view: View<'a, H::Conv>) -> Option<Source<'a>> {
        counted(view.on_device(self.reach.as_ref()?.registers()))
    }

    /// Makes a send hold its message on the device, if the provider can take it there.
    pub(super) fn load_from_device(&self, operation: &mut Op<H>) -> bool {
        let Some(reach) = &self.reach else { return false };
        counted(operation.send_from_device(reach.registers()).map(|held| held.then_some(()))).is_some()
    }

    /// Makes a receive hold its room on the device, if the provider can write there.
    pub(super) fn land_on_device(&self, operation: &mut Op<H>) -> bool {
        let Some(reach) = self.reach.as_ref().filter(|reach| reach.receives) else { return false };
        counted(operation.receive_on_device(reach.registers()).map(|held| held.then_some(()))).is_some()
    }
}
