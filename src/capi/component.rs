//! The life of a component, and its modules by their handles.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::abi::{Btl, HAWSER_LOG_INFO, HAWSER_LOG_WARNING};
use super::code::{
    HAWSER_ERR_BUSY, HAWSER_ERR_MEMORY, HAWSER_ERR_NOT_AVAILABLE, HAWSER_ERR_NOT_FOUND, HAWSER_ERR_POISONED,
    HAWSER_ERR_STALE, HAWSER_SUCCESS, Outcome,
};
use super::guard::{self, fused};
use super::handle::{MODULES, Place};
use super::host::{Caller, View};
use super::life::{Life, Phase};
use super::module::Module;
use super::parameters;
use super::slot::{Ending, Slot};
use crate::btl::user::User;
use crate::btl::{Declined, Transport};
use crate::error::{panic, room};

/// A call that is in a module of a transport.
pub(super) type Inside<T> = super::slot::Inside<Module<T>>;

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

/// A component, with places for its modules.
pub(super) struct Component<T: 'static> {
    life: Life,
    /// Places that are looked at.
    used: AtomicUsize,
    slots: [Slot<Module<T>>; MODULES],
}

impl<T: Listed> Component<T> {
    pub(super) const fn new() -> Self {
        Self { life: Life::new(), used: AtomicUsize::new(0), slots: [const { Slot::new() }; MODULES] }
    }

    /// The module of a handle, for the length of a call.
    #[inline]
    pub(super) fn enter(&'static self, module: Btl) -> Outcome<Inside<T>> {
        let (place, generation) = Place::of_module(T::NUMBER, module.id).ok_or(HAWSER_ERR_STALE)?;
        self.life.is_here()?;
        let inside = self.slots[place.module].enter(Some(generation))?;
        if inside.is_poisoned() { Err(HAWSER_ERR_POISONED) } else { Ok(inside) }
    }

    /// All modules that can be used, for the length of a call.
    pub(super) fn all(&'static self) -> Vec<Inside<T>> {
        let used = self.used.load(Ordering::Acquire);
        let all = self.slots[..used].iter().filter_map(|slot| slot.enter(None).ok());
        all.filter(|inside| !inside.is_poisoned()).collect()
    }

    pub(super) fn open(&self, caller: Caller) -> Outcome {
        self.life.begin_open()?;
        if !T::seat().take(User::Program) {
            self.life.turn(Phase::Closed);
            return Err(HAWSER_ERR_BUSY);
        }
        self.life.turn(Phase::Open(Arc::new(caller)));
        Ok(HAWSER_SUCCESS)
    }

    pub(super) fn register(&self) -> Outcome {
        let caller = self.life.begin_register()?;
        let outcome = fused(&self.life, || {
            panic::run(T::TITLE, "register_parameters", || parameters::register::<T>(&caller))
        });
        self.life.turn(if outcome.is_ok() { Phase::Registered(caller) } else { Phase::Open(caller) });
        outcome
    }

    pub(super) fn init(&'static self) -> Outcome<usize> {
        let caller = self.life.begin_init()?;
        let view = View { caller: &caller, component: T::COMPONENT, defaults: T::parameters() };
        let none = |why: String| (HAWSER_ERR_NOT_AVAILABLE, why);
        let found = fused(&self.life, || match panic::run(T::TITLE, "init", || T::open(&view)) {
            Ok(cores) if cores.is_empty() => Err(none("it has nothing to use".to_owned())),
            Ok(cores) => self.settle(cores, &caller),
            Err(Declined::Told) => Err(none("see above".to_owned())),
            Err(Declined::Silently(why)) => Err(none(why)),
            Err(Declined::Memory(why)) => Err((HAWSER_ERR_MEMORY, why)),
        });
        match found {
            Ok(count) => {
                self.life.turn(Phase::Ready(caller));
                Ok(count)
            }
            Err((code, why)) => {
                caller.log(HAWSER_LOG_INFO, &format!("{} is not used: {why}", T::COMPONENT));
                self.life.turn(Phase::Registered(caller));
                Err(code)
            }
        }
    }

    /// Gives modules their places; why, if there is no memory for that.
    fn settle(&self, cores: Vec<T>, caller: &Arc<Caller>) -> Result<usize, (i32, String)> {
        if cores.len() > MODULES {
            let line = format!("{}: {} modules; {MODULES} are used", T::COMPONENT, cores.len());
            caller.log(HAWSER_LOG_WARNING, &line);
        }
        let count = cores.len().min(MODULES);
        let rooms: crate::error::Result<Vec<_>> =
            (0..count).map(|_| Ok((room::vector(1)?, Module::<T>::receivers()?))).collect();
        let Ok(rooms) = rooms else {
            let view = View { caller, component: T::COMPONENT, defaults: T::parameters() };
            cores.iter().for_each(|core| core.end_module(&view));
            return Err((HAWSER_ERR_MEMORY, "there is no memory for its modules".to_owned()));
        };
        for (index, (core, (room, receivers))) in cores.into_iter().zip(rooms).enumerate() {
            let place = Place { transport: T::NUMBER, module: index };
            let slot = &self.slots[index];
            let (generation, generations) = slot.generations();
            let caller = Arc::clone(caller);
            slot.settle(room, Module::new(core, place, (generation, &generations), caller, receivers));
        }
        self.used.store(count, Ordering::Release);
        Ok(count)
    }

    /// A module by its number.
    pub(super) fn module_at(&'static self, index: usize) -> Outcome<Btl> {
        self.life.is_ready()?;
        if index >= self.used.load(Ordering::Acquire) {
            return Err(HAWSER_ERR_NOT_FOUND);
        }
        let found = self.slots[index].enter(None);
        found.map(|inside| inside.handle()).map_err(|_| HAWSER_ERR_NOT_FOUND)
    }

    /// Has all modules make progress. Returns how much happened.
    #[inline]
    pub(super) fn progress(&'static self) -> Outcome {
        self.life.is_here()?;
        let used = self.used.load(Ordering::Acquire);
        if used == 0 {
            self.life.is_ready()?;
        }
        let (mut count, mut wrong) = (0, None);
        for slot in &self.slots[..used] {
            let Ok(module) = slot.enter(None) else { continue };
            if module.is_poisoned() {
                wrong = Some(HAWSER_ERR_POISONED);
            } else if let Err(code) = module.may_call_back() {
                wrong = wrong.or(Some(code));
            } else {
                let pass = || panic::run(T::TITLE, "progress", || module.core.progress(&*module));
                count += fused(&*module, pass);
                // One of its callbacks may have made a child, which is here now.
                self.life.is_here()?;
            }
        }
        wrong.map_or(Ok(count.min(i32::MAX as usize) as i32), Err)
    }

    /// Ends a module.
    pub(super) fn finalize(&'static self, module: Btl) -> Outcome {
        let (place, generation) = Place::of_module(T::NUMBER, module.id).ok_or(HAWSER_ERR_STALE)?;
        self.life.is_here()?;
        let found = self.slots[place.module].shut(Some(generation))?;
        Ok(self.end_place(place.module, found))
    }

    /// Ends a module that nobody is in. A panic of its transport's is a code, and the module has ended all the same. A child
    /// that a callback makes ends nothing: it leaves the module as it is.
    fn end_place(&'static self, index: usize, ending: Ending<Module<T>>) -> i32 {
        let slot = &self.slots[index];
        let first = guard::guard(T::TITLE, "finalize", || {
            let module = ending.module();
            if !module.is_poisoned() {
                let others = self.all();
                let mut cores: Vec<&T> = others.iter().map(|inside| &inside.core).collect();
                cores.insert(index.min(cores.len()), &module.core);
                T::end(&cores, &module.view());
                if self.life.is_here().is_ok() {
                    module.wind_up();
                }
            }
            Ok(HAWSER_SUCCESS)
        });
        if let Err(code) = self.life.is_here() {
            return code;
        }
        let last = guard::guard(T::TITLE, "finalize", || {
            let generations = ending.take().end();
            self.life.is_here()?;
            // Callbacks still find its place taken, and closed.
            slot.keep(generations);
            Ok(HAWSER_SUCCESS)
        });
        if let Err(code) = self.life.is_here() {
            return code;
        }
        slot.vacate();
        first.min(last)
    }

    /// Ends what is left, and gives the component back.
    pub(super) fn close(&'static self) -> Outcome {
        let caller = self.life.begin_close()?;
        let used = self.used.load(Ordering::Acquire);
        let mut shut = Vec::new();
        for (index, slot) in self.slots[..used].iter().enumerate() {
            match slot.shut(None) {
                Ok(ending) => shut.push((index, ending)),
                Err(HAWSER_ERR_STALE) => {}
                Err(_) => {
                    // Somebody is in one: all stay.
                    shut.into_iter().for_each(|(_, ending)| ending.give_up());
                    self.life.turn(caller.map_or(Phase::Broken, Phase::Ready));
                    return Err(HAWSER_ERR_BUSY);
                }
            }
        }
        let mut worst = HAWSER_SUCCESS;
        for (index, ending) in shut {
            worst = worst.min(self.end_place(index, ending));
            self.life.is_here()?;
        }
        self.used.store(0, Ordering::Release);
        T::seat().give(User::Program);
        self.life.turn(Phase::Closed);
        Ok(worst)
    }
}
