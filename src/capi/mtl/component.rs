//! The life of a component of a matching transport, which has one module at a time.

use std::ffi::CStr;
use std::sync::Arc;

use super::abi::Mtl;
use super::desk::{Desk, rank_of};
use super::module::{Boxed, Module};
use super::program::Program;
use super::record;
use crate::capi::abi::{HAWSER_LOG_ERROR, HAWSER_LOG_INFO};
use crate::capi::code::{
    HAWSER_ERR_BUSY, HAWSER_ERR_HOST, HAWSER_ERR_NOT_AVAILABLE, HAWSER_ERR_PARAMETER, HAWSER_ERR_POISONED,
    HAWSER_ERR_STALE, HAWSER_SUCCESS, Outcome,
};
use crate::capi::guard::{fused, guard};
use crate::capi::handle::{Key, Kind, Place};
use crate::capi::host::Caller;
use crate::capi::life::{Life, Phase};
use crate::capi::slot::{Ending, Slot};
use crate::error::{panic, room};
use crate::mtl::{Component as _, Setting};

/// Peers that room is made for at first.
const PEERS: usize = 64;

/// A call that is in the module of a transport.
pub(super) type Inside<T> = crate::capi::slot::Inside<Module<T>>;

/// What a transport is set to.
type Config<T> = <<T as Listed>::Transport as crate::mtl::Component>::Config;

/// A matching transport.
pub(super) trait Listed: Sized + 'static {
    /// Its place among all transports, which its handles say.
    const NUMBER: usize;
    /// Its name, as C programs find it.
    const NAME: &'static CStr;
    /// The same with that of its framework: also the key of what processes publish.
    const COMPONENT: &'static CStr;
    /// What people read of it in a line about a bug.
    const TITLE: &'static str;
    /// What opens matchers.
    type Transport: crate::mtl::Component;

    /// Its one component: statics in generic functions would be one for all.
    fn component() -> &'static Component<Self>;
    /// Tells the caller of all parameters.
    fn declare(caller: &Caller);
    /// What the caller sets.
    ///
    /// # Errors
    /// A parameter has no value that it may have, in words.
    fn config(caller: &Caller) -> Result<Config<Self>, String>;
}

/// A component, with a place for its module.
pub(super) struct Component<T: 'static> {
    life: Life,
    slot: Slot<Module<T>>,
    desk: Desk,
}

/// Why there is no module.
enum Without {
    Parameter(String),
    Suitable(String),
    Published(i32),
}

impl<T: Listed> Component<T> {
    const PLACE: Place = Place { transport: T::NUMBER, module: 0 };

    pub(super) const fn new() -> Self {
        Self { life: Life::new(), slot: Slot::new(), desk: Desk::new(Self::PLACE) }
    }

    #[inline]
    pub(super) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// The module of a handle, for the length of a call.
    #[inline]
    pub(super) fn enter(&'static self, module: Mtl) -> Outcome<Inside<T>> {
        let generation = Self::generation(module)?;
        self.life.is_here()?;
        let inside = self.slot.enter(Some(generation))?;
        if self.desk.is_poisoned() { Err(HAWSER_ERR_POISONED) } else { Ok(inside) }
    }

    #[inline]
    fn generation(module: Mtl) -> Outcome<u32> {
        match Place::of_module(T::NUMBER, module.id) {
            Some((Place { module: 0, .. }, generation)) => Ok(generation),
            _ => Err(HAWSER_ERR_STALE),
        }
    }

    pub(super) fn open(&self, caller: Caller) -> Outcome {
        self.life.begin_open()?;
        self.life.turn(Phase::Open(Arc::new(caller)));
        Ok(HAWSER_SUCCESS)
    }

    pub(super) fn register(&self) -> Outcome {
        let caller = self.life.begin_register()?;
        let config = fused(&self.life, || {
            panic::run(T::TITLE, "register_parameters", || {
                T::declare(&caller);
                T::config(&caller).map(|_| ())
            })
        });
        match config {
            Ok(()) => {
                self.life.turn(Phase::Registered(caller));
                Ok(HAWSER_SUCCESS)
            }
            Err(why) => {
                caller.log(HAWSER_LOG_ERROR, &why);
                self.life.turn(Phase::Open(caller));
                Err(HAWSER_ERR_PARAMETER)
            }
        }
    }

    pub(super) fn init(&'static self) -> Outcome<Mtl> {
        let caller = self.life.begin_init()?;
        match fused(&self.life, || panic::run(T::TITLE, "init", || self.settle(&caller))) {
            Ok(module) => {
                self.life.turn(Phase::Ready(caller));
                Ok(module)
            }
            Err(without) => {
                let name = T::COMPONENT.to_string_lossy();
                let (level, line, code) = match without {
                    Without::Parameter(why) => (HAWSER_LOG_ERROR, why, HAWSER_ERR_PARAMETER),
                    Without::Suitable(why) => {
                        (HAWSER_LOG_ERROR, format!("{name} is not used: {why}"), HAWSER_ERR_NOT_AVAILABLE)
                    }
                    Without::Published(code) => (
                        HAWSER_LOG_ERROR,
                        format!("{name} is not used: its record cannot be published ({code})"),
                        HAWSER_ERR_HOST,
                    ),
                };
                caller.log(level, &line);
                self.desk.dismiss();
                self.life.turn(Phase::Registered(caller));
                Err(code)
            }
        }
    }

    /// Opens the module, publishes how it is reached, and gives it its place.
    fn settle(&self, caller: &Arc<Caller>) -> Result<Mtl, Without> {
        let config = T::config(caller).map_err(Without::Parameter)?;
        let no_rank =
            || Without::Suitable("the name of this process has no rank that it could send".to_owned());
        let rank = rank_of(caller.name()).map_err(|_| no_rank())?;
        let component = T::COMPONENT.to_string_lossy();
        let report = |line: &str| {
            if caller.is_verbose() {
                caller.log(HAWSER_LOG_INFO, &format!("{component}: {}", line.trim()));
            }
        };
        let setting = Setting {
            name: T::NAME.to_str().unwrap_or_default(),
            // Who opens a component by its name asks for it.
            asked_for: true,
            threads: caller.has_threads(),
            group_communicators: false,
            devices: false,
            local_rank: rank.unsigned_abs() as usize,
            universe: PEERS,
            report: &report,
        };
        self.desk.serve(caller, rank);
        let opened = T::Transport::open::<Program<T>, _>(&config, &setting, Boxed);
        let (module, name) = opened.map_err(|refusal| Without::Suitable(refusal.to_string()))?;
        if rank > module.limits().max_source {
            return Err(no_rank());
        }
        let record = record::of(module.limits(), &name);
        caller.publish(T::COMPONENT, &record).map_err(|error| match error {
            crate::error::Error::Host(code) => Without::Published(code),
            _ => Without::Published(HAWSER_ERR_HOST),
        })?;
        let room = room::vector(1)
            .map_err(|error| Without::Suitable(format!("there is no memory for its module ({error})")))?;
        let (generation, _) = self.slot.generations();
        let handle = Mtl { id: Self::PLACE.handle(Kind::Module, Key { generation, index: 0 }) };
        self.desk.start(handle, record, module.words());
        self.slot.settle(room, module);
        Ok(handle)
    }

    /// Has the module make progress. Returns how much happened.
    #[inline]
    pub(super) fn progress(&'static self) -> Outcome {
        self.life.is_here()?;
        let Ok(module) = self.slot.enter(None) else {
            return self.life.is_ready().map(|()| 0);
        };
        if self.desk.is_poisoned() {
            return Err(HAWSER_ERR_POISONED);
        }
        module.may_call_back()?;
        let count = fused(&self.desk, || panic::run(T::TITLE, "progress", || module.progress()));
        // One of its callbacks may have made a child, which is here now.
        self.life.is_here()?;
        Ok(count.min(i32::MAX as usize) as i32)
    }

    /// Ends the module.
    pub(super) fn finalize(&'static self, module: Mtl) -> Outcome {
        let generation = Self::generation(module)?;
        self.life.is_here()?;
        let ending = self.slot.shut(Some(generation))?;
        Ok(self.end(ending))
    }

    /// Ends a module that nobody is in. A panic of its matcher's is a code, and the module has ended all the same. A child
    /// that a callback makes ends nothing: it leaves the module as it is.
    fn end(&'static self, ending: Ending<Module<T>>) -> i32 {
        let first = guard(T::TITLE, "finalize", || {
            if !self.desk.is_poisoned() {
                fused(&self.desk, || ending.module().wind_up());
            }
            Ok(HAWSER_SUCCESS)
        });
        if let Err(code) = self.life.is_here() {
            return code;
        }
        let last = guard(T::TITLE, "finalize", || {
            drop(ending.take());
            Ok(HAWSER_SUCCESS)
        });
        // Callbacks still find its place taken, and closed.
        self.desk.close(last == HAWSER_SUCCESS);
        if let Err(code) = self.life.is_here() {
            return code;
        }
        self.slot.vacate();
        first.min(last)
    }

    /// Ends what is left, and gives the component back.
    pub(super) fn close(&'static self) -> Outcome {
        let caller = self.life.begin_close()?;
        let worst = match self.slot.shut(None) {
            Ok(ending) => self.end(ending),
            Err(HAWSER_ERR_STALE) => HAWSER_SUCCESS,
            Err(_) => {
                self.life.turn(caller.map_or(Phase::Broken, Phase::Ready));
                return Err(HAWSER_ERR_BUSY);
            }
        };
        self.life.is_here()?;
        self.desk.dismiss();
        self.life.turn(Phase::Closed);
        Ok(worst)
    }
}
