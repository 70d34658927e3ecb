//! Messages in device memory that the provider moves itself (`FI_HMEM`).
//!
//! A message in one piece of device memory is given to the provider as it lies, registered for this
//! one message where the provider wants that. Everything else goes through host memory, as it does
//! with a provider that cannot reach devices: what has gaps, what the provider refuses to register,
//! what lies on a device that libfabric does not know, what a provider with a
//! [cushion](crate::fabric::Context::is_cushioned) receives, and what was taken over before its receive came.
//!
//! INVARIANT: the operation holds the registration while it is posted ([`Kept::Device`]), and gives
//! it up before the host learns that the operation is over: then the memory may go.

use std::sync::Arc;

use super::body::Kept;
use super::{Offer, Ofi, counters};
use crate::error::Result;
use crate::fabric::{Descriptor, Device, Domain, Landing, Lease, Payload, Registration};
use crate::mtl::{Convertor, Route, Upcalls};

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

    /// Registers a message if that must be; what the message then keeps.
    fn keep(
        &self,
        on: Option<Device>,
        register: impl FnOnce(&Arc<Domain>, Device) -> Result<Registration>,
    ) -> Option<Kept> {
        let registration = if self.registers {
            let Some(registration) = on.and_then(|device| register(&self.domain, device).ok()) else {
                counters::DEVICE_REFUSED.add(1);
                return None;
            };
            Some(registration)
        } else {
            None
        };
        counters::DEVICE_DIRECT.add(1);
        Some(Kept::Device(registration))
    }
}

impl<H: Upcalls> Ofi<H> {
    /// Whether the provider reaches device memory.
    pub fn reaches_devices(&self) -> bool {
        self.reach.is_some()
    }

    /// The bytes of a send, if the provider can take them from the device.
    pub(super) fn device_payload(&self, convertor: H::Conv, route: Route) -> Option<(Payload, Kept)> {
        let reach = self.reach.as_ref()?;
        let bytes = convertor.device_payload(route).filter(|bytes| bytes.len() <= self.max_message)?;
        let kept =
            reach.keep(convertor.device(), |domain, on| Registration::of_payload(domain, bytes, on))?;
        Some((bytes, kept))
    }

    /// Where a message goes, if the provider can put it on the device. The operation holds the registration.
    pub(super) fn device_landing(
        &self,
        convertor: H::Conv,
        lease: Lease<super::Body<H>>,
    ) -> Option<(Landing, Descriptor)> {
        let reach = self.reach.as_ref().filter(|reach| reach.receives)?;
        let landing = convertor.device_landing()?;
        let kept =
            reach.keep(convertor.device(), |domain, on| Registration::of_landing(domain, landing, on))?;
        let through = kept.descriptor()?;
        lease.kept.set(kept);
        Some((landing, through))
    }
}
