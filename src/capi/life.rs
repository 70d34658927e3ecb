//! How far a component is: from `open` to `close`, in one order.

use std::sync::Arc;

use super::code::{HAWSER_ERR_BUSY, HAWSER_ERR_POISONED, HAWSER_ERR_STATE, Outcome};
use super::guard::Poison;
use super::host::Caller;
use crate::sync::EngineCell;

/// How far a component is.
pub(super) enum Phase {
    Closed,
    Open(Arc<Caller>),
    Registered(Arc<Caller>),
    Ready(Arc<Caller>),
    /// A function is at it.
    Busy,
    /// There was a panic.
    Broken,
}

/// The life of a component.
pub(super) struct Life(EngineCell<Phase>);

impl Life {
    pub(super) const fn new() -> Self {
        Self(EngineCell::new(Phase::Closed))
    }

    /// Takes the phase for the length of a call, if it is one that `wanted` has something of.
    fn begin<R>(&self, wanted: impl FnOnce(&Phase) -> Outcome<R>) -> Outcome<R> {
        self.0.with(|phase| {
            if matches!(phase, Phase::Busy) {
                return Err(HAWSER_ERR_BUSY);
            }
            let found = wanted(phase)?;
            *phase = Phase::Busy;
            Ok(found)
        })
    }

    /// Ends that call.
    pub(super) fn turn(&self, to: Phase) {
        // What was there is dropped outside.
        drop(self.0.with(|phase| std::mem::replace(phase, to)));
    }

    /// Begins `open`.
    pub(super) fn begin_open(&self) -> Outcome<()> {
        self.begin(|phase| match phase {
            Phase::Closed => Ok(()),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Begins `register_parameters`.
    pub(super) fn begin_register(&self) -> Outcome<Arc<Caller>> {
        self.begin(|phase| match phase {
            Phase::Open(caller) | Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Begins `init`.
    pub(super) fn begin_init(&self) -> Outcome<Arc<Caller>> {
        self.begin(|phase| match phase {
            Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Begins `close`. There is no caller where there was a panic.
    pub(super) fn begin_close(&self) -> Outcome<Option<Arc<Caller>>> {
        self.begin(|phase| match phase {
            Phase::Open(caller) | Phase::Registered(caller) | Phase::Ready(caller) => {
                Ok(Some(Arc::clone(caller)))
            }
            Phase::Broken => Ok(None),
            Phase::Closed | Phase::Busy => Err(HAWSER_ERR_STATE),
        })
    }

    /// Whether modules may be used.
    pub(super) fn is_ready(&self) -> Outcome<()> {
        self.0.with(|phase| match phase {
            Phase::Ready(_) => Ok(()),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            Phase::Busy => Err(HAWSER_ERR_BUSY),
            _ => Err(HAWSER_ERR_STATE),
        })
    }
}

impl Poison for Life {
    fn poison(&self) {
        self.turn(Phase::Broken);
    }
}
