//! Operations that begin later (`FI_TRIGGER`, `fi_trigger(3)`), and other views of an endpoint (`fi_ep_alias`, `fi_endpoint(3)`),
//! which have flags of their own, this one above all.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::argument::copy;
use super::super::cntr::Counter;
use super::super::errno::{Errno, Outcome};
use super::super::object::body;
use super::super::sys::{self, TriggeredContext};
use super::super::traffic::{Trigger, Work};
use super::{Bound, Endpoint};
use crate::sync::EngineCell;

impl Endpoint {
    /// Has something begin when the counter that its context names has come so far.
    #[cold]
    #[inline(never)]
    pub(super) fn defer(&self, slot: u32, context: *mut c_void, work: Work) -> Outcome<()> {
        // SAFETY: the contract of `fi_trigger(3)`: with this flag, the context that C has passed is one of these.
        let triggered = unsafe { copy(context.cast::<TriggeredContext>()) }?;
        if triggered.event_type != sys::FI_TRIGGER_THRESHOLD {
            return Err(Errno::NOSYS);
        }
        // SAFETY: the same: a counter that is open.
        let counter = unsafe { body::<Counter>(triggered.counter) }?;
        if !Arc::ptr_eq(counter.domain(), &self.domain) {
            return Err(Errno::DOMAIN);
        }
        let (counter, threshold) = (Arc::clone(counter), triggered.threshold as u64);
        let trigger = Trigger { counter, threshold, counts_failures: false };
        self.domain.traffic.with(|traffic| traffic.defer(Some(slot), trigger, work, None))
    }

    /// Another view of an endpoint that is enabled; `flags` are those of operations that name none, and of which direction.
    pub(super) fn alias(original: &Arc<Self>, flags: u64) -> Outcome<Self> {
        let ready = OnceLock::new();
        let slot = original.ready()?.slot;
        // It is the first.
        let _ = ready.set(original.ready()?.clone());
        let wanted = flags & !(sys::FI_SEND | sys::FI_RECV);
        let of = |own: &AtomicU64, direction| {
            AtomicU64::new(if flags & direction != 0 { wanted } else { own.load(Ordering::Relaxed) })
        };
        if flags & (sys::FI_SEND | sys::FI_RECV) == 0 {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            original: Some(Arc::clone(original)),
            domain: Arc::clone(&original.domain),
            caps: original.caps,
            addr_format: original.addr_format,
            session: original.session.clone(),
            part: original.part.clone(),
            shares_sends: original.shares_sends,
            shares_receives: original.shares_receives,
            name: EngineCell::new(original.name()),
            transmit_flags: of(&original.transmit_flags, sys::FI_SEND),
            receive_flags: of(&original.receive_flags, sys::FI_RECV),
            least: AtomicUsize::new(original.least.load(Ordering::Relaxed)),
            bound: EngineCell::new(Bound::default()),
            ready,
            slot: EngineCell::new(slot),
        })
    }
}

/// `struct fi_triggered_context` of libfabric's is as long as four pointers: what is read of it begins it.
const _: () = assert!(size_of::<TriggeredContext>() <= 32);
