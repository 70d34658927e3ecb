//! A transport for tests of what is around one.

use std::cell::Cell;

use super::{Listed, Registry};
use crate::btl::{
    Atomics, Declined, EndpointId, Fragment, Host, Lent, Limits, Parameters, Peer, Pipeline, Seat, Sending,
    Transport, Upcalls,
};
use crate::error::Result;
use crate::host::construct::Slot;

/// Peers whose loss is noticed while others are closed.
pub(super) struct Fake {
    pub(super) losses: Vec<EndpointId>,
}

thread_local! {
    /// How many there are that this test has made.
    pub(super) static ALIVE: Cell<usize> = const { Cell::new(0) };
}

impl Fake {
    pub(super) fn new(losses: &[EndpointId]) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self { losses: losses.to_vec() }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

impl Listed for Fake {
    fn registry() -> &'static Registry {
        static REGISTRY: Registry = Registry::new();
        &REGISTRY
    }

    fn slot() -> &'static Slot {
        static SLOT: Slot = Slot::empty();
        &SLOT
    }
}

impl Transport for Fake {
    const COMPONENT: &'static str = "btl_fake";
    const COUNTERS: &'static [(&'static str, &'static str)] = &[("nothing", "Nothing")];
    const HAS_TRANSFERS: bool = false;

    fn parameters() -> &'static Parameters {
        &Parameters { numbers: &[], texts: &[] }
    }

    fn seat() -> &'static Seat {
        static SEAT: Seat = Seat::new();
        &SEAT
    }

    fn open(_host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        Ok(vec![Self::new(&[])])
    }

    fn device(&self) -> &str {
        "fake"
    }

    fn limits(&self) -> Limits {
        Limits {
            eager: 0,
            rndv_eager: 0,
            max_send: 0,
            max_send_device: 0,
            pipeline: Pipeline::WHOLE,
            copy: 0,
            exclusivity: 0,
            latency: 0,
            bandwidth: 0,
            flags: 0,
            atomics: Atomics::None,
        }
    }

    fn reach(_all: &[&Self], _own: usize, _peer: &impl Peer, _host: &impl Host) -> Option<EndpointId> {
        None
    }

    fn peer(&self, endpoint: EndpointId) -> Option<u64> {
        Some(endpoint.raw())
    }

    fn unheard(&self) {}

    fn tell_loss(&self, _name: u64, _host: &impl Host) {}

    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        for lost in endpoints.iter().chain(&self.losses) {
            up.lost(*lost, lost.raw());
        }
    }

    fn send(&self, _endpoint: EndpointId, _fragment: Fragment<Lent>) -> Result<Sending> {
        Ok(Sending::UnderWay)
    }

    fn progress(&self, _up: &impl Upcalls) -> usize {
        0
    }

    fn counter(&self, _index: usize) -> u64 {
        0
    }
}
