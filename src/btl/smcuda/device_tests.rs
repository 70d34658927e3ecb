//! The devices' part of a module by itself, with a driver of our own.

use super::*;
use crate::cuda::fake;
use crate::cuda::share::Bounds;
use crate::link::conformance::lend;
use crate::shm::{NONCE, Segment};

const ONE: EndpointId = EndpointId::from_raw(1 << 32);

/// A module that has registered so many bytes under number 1, and knows a peer.
fn begin(len: usize) -> (Devices, Segment) {
    let segment = Segment::make([3; NONCE]).expect("memory");
    let limits = crate::cuda::share::Limits::default();
    let settings =
        Settings { use_ipc: true, same_gpu: true, is_verbose: false, bounds: Bounds::default(), limits };
    let devices = Devices::new(1, settings, segment.staging());
    fake::program_uses(Some(1));
    let driver = fake::driver().expect("the fake");
    let contexts = Arc::new(Contexts::new(driver));
    let context = driver.current().expect("the fake");
    let device = Device { ordinal: 0, context, is_managed: false };
    devices.with(|inner| {
        inner.cuda = Some(Cuda {
            driver,
            exports: Exports::new(Arc::clone(&contexts)),
            copies: Copies::new(Arc::clone(&contexts), inner.settings.limits),
            contexts,
        });
        let memory = lend(vec![7; len].leak());
        inner.registered.insert(1, Registered { memory, device });
        let facts = Facts { name: 2, staging: segment.staging(), cross: None };
        inner.meet(ONE, || Some(facts)).expect("known");
    });
    (devices, segment)
}

/// Slots that others could have.
fn free(inner: &mut Inner) -> usize {
    let others = (1..=Staging::SLOTS as u64).map(|number| EndpointId::from_raw(1 << 32 | number));
    others.map(|other| inner.slots.take(other)).filter(Option::is_some).count()
}

#[test]
fn a_peer_that_goes_while_slots_are_filled_for_it_leaves_them_to_others() {
    let (devices, _segment) = begin(3 * Staging::SLOT);
    let counters = Counters::default();
    devices.with(|inner| {
        inner.asked(ONE, 5, 1, 0, 3 * Staging::SLOT as u64);
        inner.serve(&counters);
        assert_eq!(inner.jobs.len(), 3, "under way");
        inner.lose(ONE, &counters);
        assert!(inner.jobs.is_empty() && inner.outs.is_empty());
        assert_eq!(free(inner), Staging::SLOTS);
    });
}

#[test]
fn a_device_that_is_full_when_it_is_asked_first_is_asked_again() {
    let (devices, _segment) = begin(1);
    let counters = Counters::default();
    devices.with(|inner| {
        let device = inner.registered[&1].device;
        for _ in 0..2 {
            fake::fail("cuMemAlloc", 2);
            inner.begin(ONE, device, &counters);
            assert!(!inner.peers[&ONE].handshake.has_failed() && inner.outs.is_empty());
        }
        assert_eq!(fake::calls("cuMemAlloc"), 2);
    });
}

#[test]
fn a_host_that_did_not_know_the_peer_is_told_again_when_it_sends_there() {
    let (devices, _segment) = begin(1);
    let counters = Counters::default();
    let told = |inner: &mut Inner| {
        let device = inner.registered[&1].device;
        inner.begin(ONE, device, &counters);
        inner.outs.drain(..).filter(|out| matches!(out, Out::Enable(ONE))).count()
    };
    devices.with(|inner| {
        // The fake shares nothing, so that all is settled with the first buffer.
        assert_eq!([told(inner), told(inner)], [1, 0]);
        inner.tell_later(ONE);
        assert_eq!([told(inner), told(inner)], [1, 0]);
    });
}
