//! What the host does with a component before it has a module, and what all modules of one share.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::module::Shell;
use super::services::Runtime;
use super::sys::{BtlComponent, BtlModule};
use super::{BtlAbi, Listed, params, pvars};
use crate::btl::user::User;
use crate::btl::{Declined, Host};
use crate::host::component::{self, Framework};
use crate::host::foreign;
use crate::host::guard::{guard, guard_early};

/// `OPAL_ERR_NOT_AVAILABLE`
const NOT_AVAILABLE: c_int = -16;

/// The modules of a component, and how its performance variables were registered.
///
/// A static of its own for each component: statics in generic functions would be one for all.
pub(in crate::host) struct Registry {
    /// The list that `progress` runs through; none before there is one.
    modules: AtomicPtr<Vec<*mut BtlModule>>,
    /// Values of each performance variable: fixed by the first session that has modules, because a bound
    /// handle of the host's has room for so many, however many modules a later session has. 0 before.
    pub(super) values: AtomicUsize,
    /// Held by who reads modules beside the host's own calls.
    reading: Mutex<()>,
}

impl Registry {
    pub(in crate::host) const fn new() -> Self {
        Self {
            modules: AtomicPtr::new(ptr::null_mut()),
            values: AtomicUsize::new(0),
            reading: Mutex::new(()),
        }
    }

    /// Puts a list in the place of the old one, which is not freed: a progress of another thread may
    /// still read it. There is one for each session, and one for each module that ends.
    ///
    /// A module that has ended leaves its place empty, so that the others keep theirs, by which performance
    /// variables are read.
    #[inline(never)]
    fn install(&self, modules: Vec<*mut BtlModule>) {
        // SYNC POINT: modules (acquired in `modules`)
        self.modules.store(Box::into_raw(Box::new(modules)), Ordering::Release);
    }

    /// The modules' addresses, in the order in which they were opened; null where one has ended.
    #[inline]
    fn modules(&self) -> &'static [*mut BtlModule] {
        // SYNC POINT: modules (released in `install`)
        let list = self.modules.load(Ordering::Acquire);
        // SAFETY: null, or a list that `install` leaked: never freed and never written again.
        unsafe { list.as_ref() }.map_or(&[], Vec::as_slice)
    }

    /// Holds all modules as they are. For threads that read beside the host's own calls: `MPI_T` may be
    /// called while `MPI_Finalize` runs.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.reading.lock()
    }

    /// Whether there is no module.
    fn is_empty(&self) -> bool {
        self.modules().iter().all(|module| module.is_null())
    }

    /// Takes a module out of what is advanced; waits for readers.
    pub(super) fn retire(&self, module: *mut BtlModule) {
        let _reading = self.hold();
        let stays = |&other: &*mut BtlModule| if other == module { ptr::null_mut() } else { other };
        self.install(self.modules().iter().map(stays).collect());
    }
}

/// The modules of a component by their places; none where one has ended.
pub(super) fn places<A: BtlAbi, T: Listed>() -> impl Iterator<Item = Option<&'static Shell<A, T>>> {
    // SAFETY: the registry of `T` holds what `init` made, of this process's one version, until `finalize`
    // retires it before it drops it.
    T::registry().modules().iter().map(|&module| (!module.is_null()).then(|| unsafe { Shell::at(module) }))
}

/// All modules of a component, alive.
pub(super) fn shells<A: BtlAbi, T: Listed>() -> impl Iterator<Item = &'static Shell<A, T>> {
    places::<A, T>().flatten()
}

unsafe extern "C" fn register<T: Listed>() -> c_int {
    guard_early(T::COMPONENT, "register", NOT_AVAILABLE, || {
        // The program itself may have opened it, by the library's own functions.
        if T::seat().take(User::Host) { params::register::<T>() } else { NOT_AVAILABLE }
    })
}

unsafe extern "C" fn open<T: Listed>() -> c_int {
    guard_early(T::COMPONENT, "open", NOT_AVAILABLE, || 0)
}

unsafe extern "C" fn close<T: Listed>() -> c_int {
    guard_early(T::COMPONENT, "close", 0, || {
        T::seat().give(User::Host);
        0
    })
}

unsafe extern "C" fn progress<A: BtlAbi, T: Listed>() -> c_int {
    guard(T::COMPONENT, "progress", || {
        shells::<A, T>().map(|shell| shell.core.progress(shell)).sum::<usize>() as c_int
    })
}

/// `opal_component_init`: the modules, in memory that the host frees.
unsafe extern "C" fn init<A: BtlAbi, T: Listed>(
    count: *mut c_int,
    _progress_threads: bool,
    _threads: bool,
) -> *mut *mut BtlModule {
    guard_early(T::COMPONENT, "init", ptr::null_mut(), || {
        // SAFETY: the host's variable, by the type of this entry.
        unsafe { foreign::write(count, 0) };
        let made = opened::<A, T>();
        let names: Vec<String> = made.iter().map(|shell| shell.core.device().to_owned()).collect();
        // What may fail comes before anybody can reach the modules.
        pvars::register::<A, T>(&names);
        let modules: Vec<_> = made.into_iter().map(Shell::into_raw).collect();
        if modules.is_empty() {
            return ptr::null_mut();
        }
        // SAFETY: takes any size.
        let list = unsafe { libc::malloc(size_of_val(&*modules)) }.cast::<*mut BtlModule>();
        if list.is_null() {
            handle_alloc_error(Layout::for_value(&*modules));
        }
        // SAFETY: fresh memory for as many pointers as there are modules.
        unsafe { foreign::write_all(list, modules.iter().copied()) };
        // SAFETY: the host's variable, by the type of this entry.
        unsafe { foreign::write(count, modules.len() as c_int) };
        T::registry().install(modules);
        list
    })
}

/// Opens the transport's modules; none where the host has some: it could not tell whose peers are whose.
fn opened<A: BtlAbi, T: Listed>() -> Vec<Box<Shell<A, T>>> {
    let host = Runtime::<A, T>::new();
    let found = if T::registry().is_empty() {
        T::open(&host)
    } else {
        Err(Declined::Silently("its modules are in use".to_owned()))
    };
    match found {
        Ok(made) => made.into_iter().map(|core| Box::new(Shell::new(core))).collect(),
        Err(Declined::Told) => Vec::new(),
        Err(Declined::Silently(why) | Declined::Memory(why)) => {
            if host.is_verbose() {
                host.say(&format!("btl:{}: not used: {why}", T::name()));
            }
            Vec::new()
        }
    }
}

/// The component structure of a transport, for a version.
pub(in crate::host) fn component<A: BtlAbi, T: Listed>() -> BtlComponent {
    let framework = Framework { project: "opal", name: "btl", version: A::TYPE_VERSION };
    let name = CString::new(T::name()).unwrap_or_default();
    let mut component = BtlComponent::EMPTY;
    let base = &mut component.base;
    *base = component::base::<A>(&framework, &name);
    base.open = Some(open::<T>);
    base.close = Some(close::<T>);
    base.register = Some(register::<T>);
    component.init = Some(init::<A, T>);
    component.progress = Some(progress::<A, T>);
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::btl::fake::{ALIVE, Fake};
    use crate::host::v4_1::V4_1;

    /// Performance variables are read by places: those of a module that has ended are nobody else's.
    #[test]
    fn a_module_that_ends_leaves_its_place_to_nobody() {
        let registry = Registry::new();
        let [first, second] = [8, 16].map(ptr::without_provenance_mut::<BtlModule>);
        registry.install(vec![first, second]);
        registry.retire(first);
        assert_eq!(registry.modules(), [ptr::null_mut(), second]);
        assert!(!registry.is_empty());
        registry.retire(second);
        assert!(registry.is_empty());
    }

    /// A panic after the modules were opened: here the host whose counters are registered is missing.
    #[test]
    fn a_component_that_declines_late_leaves_no_module() {
        let mut count = 7;
        // SAFETY: a variable for the number.
        let list = unsafe { init::<V4_1, Fake>(&raw mut count, false, false) };
        assert!(list.is_null() && count == 0, "{count} modules");
        assert!(Fake::registry().is_empty());
        assert_eq!(ALIVE.get(), 0, "what was opened is closed");
    }
}
