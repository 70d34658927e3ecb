//! The place of a module, which is never freed.
//!
//! Whoever comes by a handle is counted in, and out again when its call ends: a module ends when nobody is in it, so
//! that a reference to it holds for the length of a call. That count is in an [`EngineCell`]: where one thread does it
//! all, it costs no atomic exchange. A child of fork(2) that returns from a callback counts nothing: what another thread of
//! its parent had locked stays locked there.

use std::ptr::NonNull;

use super::code::{HAWSER_ERR_BUSY, HAWSER_ERR_STALE, HAWSER_ERR_STATE, Outcome};
use super::handle::{FIRST, KINDS, next};
use crate::sync::{EngineCell, fork};

/// Generations of each kind, by its number.
pub(super) type Generations = [u32; KINDS];

/// A place for modules, one after the other.
pub(super) struct Slot<M>(EngineCell<Occupant<M>>);

/// Who has a place.
///
/// INVARIANT: the module is there, alive and never moved, from `settle` to the moment at which it is taken out while
/// `is_ending` and nobody is inside.
struct Occupant<M> {
    module: Option<NonNull<M>>,
    /// Of the module, or of the next one.
    generation: u32,
    /// Of its things.
    generations: Generations,
    /// Calls that are in it.
    inside: u32,
    is_ending: bool,
}

// SAFETY: the address of a module, which any thread may use: it is Send and Sync.
unsafe impl<M: Send + Sync> Send for Occupant<M> {}

/// A call that is in a module.
pub(super) struct Inside<M: 'static> {
    module: NonNull<M>,
    slot: &'static Slot<M>,
    /// Calls that are in it, this one included.
    count: u32,
    /// The process that has come, by the number of [`fork::generation`].
    process: u32,
}

/// Calls that may be in a module when one more makes progress in it. Where each callback makes progress, and is called
/// back in it, they lie in one another, and this much fits on a stack.
pub(super) const DEEPEST: u32 = 1000;

impl<M> Inside<M> {
    /// Whether this call may call back.
    #[inline]
    pub(super) fn may_call_back(&self) -> Outcome<()> {
        if self.count > DEEPEST { Err(HAWSER_ERR_BUSY) } else { Ok(()) }
    }
}

impl<M> Drop for Inside<M> {
    #[inline]
    fn drop(&mut self) {
        if self.process == fork::generation() {
            self.slot.0.with(|occupant| occupant.inside -= 1);
        }
    }
}

impl<M> std::ops::Deref for Inside<M> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        // SAFETY: alive as long as this call is counted in, by the invariant of `Occupant`; only ever shared.
        unsafe { self.module.as_ref() }
    }
}

/// The right to end a module: nobody is in it, and nobody can come.
pub(super) struct Ending<M: 'static> {
    module: NonNull<M>,
    slot: &'static Slot<M>,
}

impl<M> Ending<M> {
    /// The module.
    pub(super) fn module(&self) -> &M {
        // SAFETY: alive, and nobody but the owner of this can end it: it is marked as ending.
        unsafe { self.module.as_ref() }
    }

    /// Somebody else is in another module, and all are to stay: it goes on.
    pub(super) fn give_up(self) {
        self.slot.0.with(|occupant| occupant.is_ending = false);
    }

    /// Takes the module out. Its place stays taken, and closed, until it is [vacated](Slot::vacate).
    pub(super) fn take(self) -> M {
        self.slot.0.with(|occupant| occupant.module = None);
        // SAFETY: leaked by `settle` as a slice of one, which lies as the one does, marked as ending, and nobody is in it; its
        // place does not know it any more, so that this is its end.
        *unsafe { Box::from_raw(self.module.as_ptr()) }
    }
}

impl<M> Slot<M> {
    /// Nobody's yet.
    pub(super) const fn new() -> Self {
        Self(EngineCell::new(Occupant {
            module: None,
            generation: FIRST,
            generations: [FIRST; KINDS],
            inside: 0,
            is_ending: false,
        }))
    }

    /// The generation of the next module, and where its things go on.
    pub(super) fn generations(&self) -> (u32, Generations) {
        self.0.with(|occupant| (occupant.generation, occupant.generations))
    }

    /// Where the things of the next module go on.
    pub(super) fn keep(&self, generations: Generations) {
        self.0.with(|occupant| occupant.generations = generations);
    }

    /// Gives a module its place, in memory that is there: `room` for one.
    pub(super) fn settle(&self, mut room: Vec<M>, module: M) {
        room.push(module);
        // INVARIANT: alive until `Ending::take` makes a box of it again.
        let module = Box::leak(room.into_boxed_slice()).first_mut().map(NonNull::from);
        self.0.with(|occupant| occupant.module = module);
    }

    /// The module, for the length of a call: the one of this generation, or any.
    #[inline]
    pub(super) fn enter(&'static self, generation: Option<u32>) -> Outcome<Inside<M>> {
        let found = self.0.with(|occupant| {
            let module = occupant.find(generation)?;
            occupant.inside += 1;
            Ok((module, occupant.inside))
        });
        found.map(|(module, count)| Inside { module, slot: self, count, process: fork::generation() })
    }

    /// Nobody may come any more; only when nobody is in it.
    pub(super) fn shut(&'static self, generation: Option<u32>) -> Outcome<Ending<M>> {
        let found = self.0.with(|occupant| {
            let module = occupant.find(generation)?;
            if occupant.inside != 0 {
                return Err(HAWSER_ERR_BUSY);
            }
            occupant.is_ending = true;
            Ok(module)
        });
        found.map(|module| Ending { module, slot: self })
    }

    /// The module has ended: the place is the next one's.
    pub(super) fn vacate(&self) {
        self.0.with(|occupant| {
            occupant.module = None;
            occupant.generation = next(occupant.generation);
            occupant.is_ending = false;
        });
    }
}

impl<M> Occupant<M> {
    #[inline]
    fn find(&self, generation: Option<u32>) -> Outcome<NonNull<M>> {
        if self.is_ending && generation.is_none_or(|generation| generation == self.generation) {
            return Err(HAWSER_ERR_STATE);
        }
        let module = self.module.ok_or(HAWSER_ERR_STALE)?;
        if generation.is_some_and(|generation| generation != self.generation) {
            return Err(HAWSER_ERR_STALE);
        }
        Ok(module)
    }
}
