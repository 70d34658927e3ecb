//! Accelerators behind the host's table. Only 5.0 has a framework for them.
//!
//! `entry` holds the functions of the table, `object` the host's objects that hold streams and events. Nothing
//! here knows any one kind of device.

mod entry;
mod object;

pub(super) use entry::{CheckAddress, Copy, functions};
pub(super) use object::Classes;

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::Abi;
use super::component::{self, Framework};
use super::construct::Slot;
use super::guard::{guard, guard_early};
use super::listing::{self, Words};
use super::params::{self, Names, Owner, Parameter, Storage};
use super::pvars::{self, Class, Source, Variable};
use super::services::say;
use super::v5_0::one_sided;
use super::v5_0::sys::{Accelerator as Module, AcceleratorComponent};
use crate::accelerator::Accelerator;

const SUCCESS: c_int = 0;
/// `OPAL_ERR_NOT_AVAILABLE`
const NOT_AVAILABLE: c_int = -16;

/// What the user reads of the entries.
const NAME: &str = "accelerator";

/// What differs between the versions for accelerators: whether there are any.
pub(super) trait AcceleratorAbi: Abi {
    /// Fills in a component's structure; it stays empty where the host has none.
    fn fill<T: Accelerator>(_slot: &Slot) {}

    /// The host's classes of streams and events.
    ///
    /// # Panics
    /// Where the host has none.
    fn classes() -> Classes {
        unreachable!("no component was filled in")
    }
}

/// The component structure.
pub(super) fn component<A: AcceleratorAbi, T: Accelerator>() -> AcceleratorComponent {
    let framework = Framework { project: "opal", name: "accelerator", version: [1, 0, 0] };
    let mut component = AcceleratorComponent::EMPTY;
    component.base = component::base::<A>(&framework, T::NAME);
    component.base.register = Some(register::<T>);
    component.init = Some(init::<A, T>);
    component.finalize = Some(finalize::<T>);
    component
}

fn owner<T: Accelerator>() -> Owner<'static> {
    Owner { project: c"opal", framework: c"accelerator", component: T::NAME }
}

/// Whether one-sided communication is helped, and the host's copies looked at for it.
static COPY_HOOK: AtomicBool = AtomicBool::new(true);

/// The parameter.
const WORDS: Words = Words {
    name: c"copy_hook",
    help:
        c"Whether windows may be in the memory of devices, and buffers of one-sided communication: from the \
        first window on, the copies that Open MPI's own libraries make with the processor are looked at",
    level: 4,
};

/// What can be set and read of an accelerator.
pub(super) fn list<T: Accelerator>() -> listing::Component {
    let setting = listing::Setting { only: Some("5.0"), ..WORDS.setting("bool", Some("true".to_owned())) };
    listing::Component {
        framework: "accelerator",
        name: listing::text(T::NAME),
        settings: vec![setting],
        counters: T::counters().iter().map(|counter| listing::counter(counter.name, counter.help)).collect(),
        predecessor: None,
        verify: None,
    }
}

/// `--mca accelerator` says which is used. The counters are registered.
unsafe extern "C" fn register<T: Accelerator>() -> c_int {
    guard_early(NAME, "register", NOT_AVAILABLE, || {
        COPY_HOOK.store(true, Ordering::Relaxed);
        let parameter = Parameter {
            name: WORDS.name,
            help: WORDS.help,
            level: WORDS.level,
            settable: false,
            storage: Storage::Flag(&COPY_HOOK),
            names: Names::NONE,
        };
        params::register(owner::<T>(), &parameter);
        for counter in T::counters() {
            let source = Source::Number(&counter.count);
            let (name, help) = (counter.name, counter.help);
            let variable = Variable { name, help, class: Class::Counter, names: Names::NONE, source };
            pvars::register(owner::<T>(), &variable);
        }
        SUCCESS
    })
}

/// The table of an accelerator.
struct Table<T>(PhantomData<fn() -> T>);

/// Offers the table, or declines quietly: most machines have no devices.
unsafe extern "C" fn init<A: AcceleratorAbi, T: Accelerator>() -> *mut Module {
    let is_there = guard_early(NAME, "init", false, || {
        let name = T::NAME.to_str().unwrap_or_default();
        let named = params::selection(owner::<T>())
            .is_some_and(|list| list.split(',').any(|word| word.trim() == name));
        let is_there = T::the().is_there(named);
        if is_there {
            object::prepare(A::classes());
            if COPY_HOOK.load(Ordering::Relaxed) {
                one_sided::begin::<T>();
            }
        } else if params::verbosity(owner::<T>()) > 0 {
            say(&format!("accelerator:{name}: not used: this machine has no such device"));
        }
        is_there
    });
    // The host copies the table, and never writes this one.
    if is_there { ptr::from_ref(Table::<T>::MODULE).cast_mut() } else { ptr::null_mut() }
}

unsafe extern "C" fn finalize<T: Accelerator>(_module: *mut Module) {
    guard(NAME, "finalize", || {
        one_sided::end::<T>();
        T::the().end();
    });
}
