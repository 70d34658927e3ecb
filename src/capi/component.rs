//! The life of a component, and its modules by their handles.
//!
//! A module has a place in a table that is never freed. Whoever comes by a handle is counted in, and out again
//! when its call ends: a module ends when nobody is in it, so that a reference to it holds for the length of a call. That
//! count is in an [`EngineCell`]: where one thread does it all, it costs no atomic exchange.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::abi::{Btl, HAWSER_LOG_INFO, HAWSER_LOG_WARNING};
use super::code::{
    HAWSER_ERR_BUSY, HAWSER_ERR_NOT_AVAILABLE, HAWSER_ERR_NOT_FOUND, HAWSER_ERR_POISONED, HAWSER_ERR_STALE,
    HAWSER_ERR_STATE, HAWSER_SUCCESS, Outcome,
};
use super::guard::{self, Poison, fused};
use super::handle::{FIRST, KINDS, MODULES, Place, next};
use super::host::{Caller, View};
use super::module::{Generations, Module};
use super::parameters;
use crate::btl::user::{self, User};
use crate::btl::{Declined, Transport};
use crate::error::panic;
use crate::sync::EngineCell;

/// A byte transport of the list in [`components`](super::components).
pub(super) trait Listed: Transport {
    /// Its place in the list, which its handles say.
    const NUMBER: usize;

    /// Its name, as C programs find it.
    const NAME: &'static CStr;
    /// What people read of it in a line about a bug.
    const TITLE: &'static str;

    /// Its one component: statics in generic functions would be one for all.
    fn component() -> &'static Component<Self>;
}

/// How far a component is.
enum Phase {
    Closed,
    Open(Arc<Caller>),
    Registered(Arc<Caller>),
    Ready(Arc<Caller>),
    /// A function is at it.
    Busy,
    /// There was a panic.
    Broken,
}

/// A component, with places for its modules.
pub(super) struct Component<T: 'static> {
    phase: EngineCell<Phase>,
    /// Places that are looked at.
    used: AtomicUsize,
    slots: [EngineCell<Occupant<T>>; MODULES],
}

/// Who has a place.
///
/// INVARIANT: the module is there, alive and never moved, from `settle` to the moment at which it is taken out while
/// `is_ending` and nobody is inside.
struct Occupant<T> {
    module: Option<NonNull<Module<T>>>,
    /// Of the module, or of the next one.
    generation: u32,
    /// Of its things.
    generations: Generations,
    /// Calls that are in it.
    inside: u32,
    is_ending: bool,
}

// SAFETY: the address of a module, which any thread may use: it is Send and Sync as its transport is.
unsafe impl<T: Send + Sync> Send for Occupant<T> {}

/// A call that is in a module.
pub(super) struct Inside<T: 'static> {
    module: NonNull<Module<T>>,
    slot: &'static EngineCell<Occupant<T>>,
}

impl<T> Drop for Inside<T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.with(|occupant| occupant.inside -= 1);
    }
}

impl<T> std::ops::Deref for Inside<T> {
    type Target = Module<T>;

    #[inline]
    fn deref(&self) -> &Module<T> {
        // SAFETY: alive as long as this call is counted in, by the invariant of `Occupant`; only ever shared.
        unsafe { self.module.as_ref() }
    }
}

impl<T> Occupant<T> {
    const EMPTY: Self =
        Self { module: None, generation: FIRST, generations: [FIRST; KINDS], inside: 0, is_ending: false };

    #[inline]
    fn enter(&mut self, generation: Option<u32>) -> Outcome<NonNull<Module<T>>> {
        let module = self.module.ok_or(HAWSER_ERR_STALE)?;
        if generation.is_some_and(|generation| generation != self.generation) {
            return Err(HAWSER_ERR_STALE);
        }
        if self.is_ending {
            return Err(HAWSER_ERR_STATE);
        }
        self.inside += 1;
        Ok(module)
    }

    /// Nobody may come any more; only when nobody is in it.
    fn shut(&mut self, generation: Option<u32>) -> Outcome<NonNull<Module<T>>> {
        let module = self.enter(generation)?;
        self.inside -= 1;
        if self.inside != 0 {
            return Err(HAWSER_ERR_BUSY);
        }
        self.is_ending = true;
        Ok(module)
    }
}

impl<T: Listed> Component<T> {
    pub(super) const fn new() -> Self {
        Self {
            phase: EngineCell::new(Phase::Closed),
            used: AtomicUsize::new(0),
            slots: [const { EngineCell::new(Occupant::EMPTY) }; MODULES],
        }
    }

    /// The module of a handle, for the length of a call.
    #[inline]
    pub(super) fn enter(&'static self, module: Btl) -> Outcome<Inside<T>> {
        let (place, generation) = Place::of_module(T::NUMBER, module.id).ok_or(HAWSER_ERR_STALE)?;
        let inside = self.enter_place(place.module, Some(generation))?;
        if inside.is_poisoned() { Err(HAWSER_ERR_POISONED) } else { Ok(inside) }
    }

    #[inline]
    fn enter_place(&'static self, index: usize, generation: Option<u32>) -> Outcome<Inside<T>> {
        let slot = &self.slots[index];
        let module = slot.with(|occupant| occupant.enter(generation))?;
        Ok(Inside { module, slot })
    }

    /// All modules that can be used, for the length of a call.
    pub(super) fn all(&'static self) -> Vec<Inside<T>> {
        let used = self.used.load(Ordering::Acquire);
        let all = (0..used).filter_map(|index| self.enter_place(index, None).ok());
        all.filter(|inside| !inside.is_poisoned()).collect()
    }

    /// Takes the phase for the length of a call, if it is one that `wanted` has something of.
    fn begin<R>(&self, wanted: impl FnOnce(&Phase) -> Outcome<R>) -> Outcome<R> {
        self.phase.with(|phase| {
            if matches!(phase, Phase::Busy) {
                return Err(HAWSER_ERR_BUSY);
            }
            let found = wanted(phase)?;
            *phase = Phase::Busy;
            Ok(found)
        })
    }

    fn turn(&self, to: Phase) {
        // What was there is dropped outside.
        drop(self.phase.with(|phase| std::mem::replace(phase, to)));
    }

    pub(super) fn open(&self, caller: Caller) -> Outcome {
        self.begin(|phase| match phase {
            Phase::Closed => Ok(()),
            _ => Err(HAWSER_ERR_STATE),
        })?;
        if !user::take(T::COMPONENT, User::Program) {
            self.turn(Phase::Closed);
            return Err(HAWSER_ERR_BUSY);
        }
        if !cfg!(test) {
            panic::install();
        }
        self.turn(Phase::Open(Arc::new(caller)));
        Ok(HAWSER_SUCCESS)
    }

    pub(super) fn register(&self) -> Outcome {
        let caller = self.begin(|phase| match phase {
            Phase::Open(caller) | Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })?;
        let outcome = fused(self, || parameters::register::<T>(&caller));
        self.turn(if outcome.is_ok() { Phase::Registered(caller) } else { Phase::Open(caller) });
        outcome
    }

    pub(super) fn init(&'static self) -> Outcome<usize> {
        let caller = self.begin(|phase| match phase {
            Phase::Registered(caller) => Ok(Arc::clone(caller)),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            _ => Err(HAWSER_ERR_STATE),
        })?;
        let view = View { caller: &caller, component: T::COMPONENT, defaults: T::parameters() };
        let found = fused(self, || match T::open(&view) {
            Ok(cores) if cores.is_empty() => Err("it has nothing to use".to_owned()),
            Ok(cores) => Ok(self.settle(cores, &caller)),
            Err(Declined::Told) => Err("see above".to_owned()),
            Err(Declined::Silently(why)) => Err(why),
        });
        match found {
            Ok(count) => {
                self.turn(Phase::Ready(caller));
                Ok(count)
            }
            Err(why) => {
                caller.log(HAWSER_LOG_INFO, &format!("{} is not used: {why}", T::COMPONENT));
                self.turn(Phase::Registered(caller));
                Err(HAWSER_ERR_NOT_AVAILABLE)
            }
        }
    }

    /// Gives modules their places.
    fn settle(&self, cores: Vec<T>, caller: &Arc<Caller>) -> usize {
        if cores.len() > MODULES {
            let line = format!("{}: {} modules; {MODULES} are used", T::COMPONENT, cores.len());
            caller.log(HAWSER_LOG_WARNING, &line);
        }
        let count = cores.len().min(MODULES);
        for (index, core) in cores.into_iter().take(MODULES).enumerate() {
            let place = Place { transport: T::NUMBER, module: index };
            let slot = &self.slots[index];
            let (generation, generations) = slot.with(|occupant| (occupant.generation, occupant.generations));
            let module = Module::new(core, place, generation, &generations, Arc::clone(caller));
            // INVARIANT: alive until `end_place` makes a box of it again.
            let module = NonNull::from(Box::leak(Box::new(module)));
            slot.with(|occupant| occupant.module = Some(module));
        }
        self.used.store(count, Ordering::Release);
        count
    }

    /// A module by its number.
    pub(super) fn module_at(&'static self, index: usize) -> Outcome<Btl> {
        self.is_ready()?;
        if index >= self.used.load(Ordering::Acquire) {
            return Err(HAWSER_ERR_NOT_FOUND);
        }
        let found = self.enter_place(index, None);
        found.map(|inside| inside.handle()).map_err(|_| HAWSER_ERR_NOT_FOUND)
    }

    fn is_ready(&self) -> Outcome<()> {
        self.phase.with(|phase| match phase {
            Phase::Ready(_) => Ok(()),
            Phase::Broken => Err(HAWSER_ERR_POISONED),
            Phase::Busy => Err(HAWSER_ERR_BUSY),
            _ => Err(HAWSER_ERR_STATE),
        })
    }

    /// Has all modules make progress. Returns how much happened.
    #[inline]
    pub(super) fn progress(&'static self) -> Outcome {
        let used = self.used.load(Ordering::Acquire);
        if used == 0 {
            self.is_ready()?;
        }
        let (mut count, mut wrong) = (0, None);
        for index in 0..used {
            let Ok(module) = self.enter_place(index, None) else { continue };
            if module.is_poisoned() {
                wrong = Some(HAWSER_ERR_POISONED);
            } else {
                count += fused(&*module, || module.core.progress(&*module));
            }
        }
        wrong.map_or(Ok(count.min(i32::MAX as usize) as i32), Err)
    }

    /// Ends a module.
    pub(super) fn finalize(&'static self, module: Btl) -> Outcome {
        let (place, generation) = Place::of_module(T::NUMBER, module.id).ok_or(HAWSER_ERR_STALE)?;
        let slot = &self.slots[place.module];
        let found = slot.with(|occupant| occupant.shut(Some(generation)))?;
        Ok(self.end_place(place.module, found))
    }

    /// Ends a module that nobody is in. A panic of its transport's is a code, and the module has ended all the same.
    fn end_place(&'static self, index: usize, module: NonNull<Module<T>>) -> i32 {
        let slot = &self.slots[index];
        let first = guard::guard(T::TITLE, "finalize", || {
            // SAFETY: alive, and nobody but this call can end it: it is marked as ending.
            let module = unsafe { module.as_ref() };
            if !module.is_poisoned() {
                let others = self.all();
                let mut cores: Vec<&T> = others.iter().map(|inside| &inside.core).collect();
                cores.insert(index.min(cores.len()), &module.core);
                T::end(&cores, &module.view());
                module.wind_up();
            }
            Ok(HAWSER_SUCCESS)
        });
        let last = guard::guard(T::TITLE, "finalize", || {
            // SAFETY: leaked by `settle`, marked as ending, and nobody is in it: this is its end.
            let module = *unsafe { Box::from_raw(module.as_ptr()) };
            // Callbacks still find its place taken, and closed.
            let generations = module.end();
            slot.with(|occupant| occupant.generations = generations);
            Ok(HAWSER_SUCCESS)
        });
        slot.with(|occupant| {
            occupant.module = None;
            occupant.generation = next(occupant.generation);
            occupant.is_ending = false;
        });
        first.min(last)
    }

    /// Ends what is left, and gives the component back.
    pub(super) fn close(&'static self) -> Outcome {
        let caller = self.begin(|phase| match phase {
            Phase::Open(caller) | Phase::Registered(caller) | Phase::Ready(caller) => {
                Ok(Some(Arc::clone(caller)))
            }
            Phase::Broken => Ok(None),
            Phase::Closed | Phase::Busy => Err(HAWSER_ERR_STATE),
        })?;
        let used = self.used.load(Ordering::Acquire);
        let mut shut = Vec::new();
        for (index, slot) in self.slots[..used].iter().enumerate() {
            match slot.with(|occupant| occupant.shut(None)) {
                Ok(module) => shut.push((index, module)),
                Err(HAWSER_ERR_STALE) => {}
                Err(_) => {
                    // Somebody is in one: all stay.
                    for (index, _) in shut {
                        self.slots[index].with(|occupant| occupant.is_ending = false);
                    }
                    self.turn(caller.map_or(Phase::Broken, Phase::Ready));
                    return Err(HAWSER_ERR_BUSY);
                }
            }
        }
        let worst = shut.into_iter().map(|(index, module)| self.end_place(index, module)).min();
        self.used.store(0, Ordering::Release);
        user::give(T::COMPONENT, User::Program);
        self.turn(Phase::Closed);
        Ok(worst.unwrap_or(HAWSER_SUCCESS))
    }
}

impl<T> Poison for Component<T> {
    fn poison(&self) {
        drop(self.phase.with(|phase| std::mem::replace(phase, Phase::Broken)));
    }
}
