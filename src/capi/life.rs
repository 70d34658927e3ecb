//! How far a component is: from `open` to `close`, in one order, and in one process.
//!
//! A child of fork(2) has the sockets and the shared memory of its parent, whose peers would take what it sends for its
//! parent's: no function that takes up what the parent has opened does anything there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::code::{HAWSER_ERR_BUSY, HAWSER_ERR_POISONED, HAWSER_ERR_STATE, Outcome};
use super::guard::Poison;
use super::host::Caller;
use crate::sync::{EngineCell, fork};

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

impl Phase {
    fn begin<R>(&mut self, wanted: impl FnOnce(&Self) -> Outcome<R>) -> Outcome<R> {
        if matches!(self, Self::Busy) {
            return Err(HAWSER_ERR_BUSY);
        }
        let found = wanted(self)?;
        *self = Self::Busy;
        Ok(found)
    }
}

/// The life of a component.
pub(super) struct Life {
    phase: EngineCell<Phase>,
    /// In which it was opened last, by the number of [`fork::generation`].
    process: AtomicU32,
    /// It has not been closed since.
    is_open: AtomicBool,
}

impl Life {
    pub(super) const fn new() -> Self {
        Self {
            phase: EngineCell::new(Phase::Closed),
            process: AtomicU32::new(0),
            is_open: AtomicBool::new(false),
        }
    }

    /// Whether it was this process that has opened it, and not one of which this is a child. Asked before anything else is
    /// looked at: what a thread of the parent's has locked stays locked in the child.
    #[inline]
    pub(super) fn is_here(&self) -> Outcome<()> {
        let is_here = self.process.load(Ordering::Relaxed) == fork::generation();
        if is_here { Ok(()) } else { Err(HAWSER_ERR_STATE) }
    }

    /// Takes the phase for the length of a call, if it is one that `wanted` has something of.
    fn begin<R>(&self, wanted: impl FnOnce(&Phase) -> Outcome<R>) -> Outcome<R> {
        self.phase.with(|phase| phase.begin(wanted))
    }

    /// Ends that call.
    pub(super) fn turn(&self, to: Phase) {
        // What was there is dropped outside.
        drop(self.phase.with(|phase| {
            if matches!(to, Phase::Closed) {
                self.is_open.store(false, Ordering::Relaxed);
            }
            std::mem::replace(phase, to)
        }));
    }

    /// Begins `open`.
    pub(super) fn begin_open(&self) -> Outcome<()> {
        fork::count_children();
        let wanted = |phase: &Phase| match phase {
            Phase::Closed => {
                self.process.store(fork::generation(), Ordering::Relaxed);
                self.is_open.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(HAWSER_ERR_STATE),
        };
        if self.is_here().is_ok() {
            return self.begin(wanted);
        }
        if self.is_open.load(Ordering::Relaxed) {
            return Err(HAWSER_ERR_STATE);
        }
        // Of a thread of the parent's that is at it nobody would hear again.
        self.phase.try_with(|phase| phase.begin(wanted)).unwrap_or(Err(HAWSER_ERR_BUSY))
    }

    /// Begins `register_parameters`.
    pub(super) fn begin_register(&self) -> Outcome<Arc<Caller>> {
        self.is_here()?;
        self.begin(|phase| match phase {
            Phase::Open(caller) | Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Begins `init`.
    pub(super) fn begin_init(&self) -> Outcome<Arc<Caller>> {
        self.is_here()?;
        self.begin(|phase| match phase {
            Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Begins `close`. There is no caller where there was a panic.
    pub(super) fn begin_close(&self) -> Outcome<Option<Arc<Caller>>> {
        self.is_here()?;
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
        self.is_here()?;
        self.phase.with(|phase| match phase {
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
