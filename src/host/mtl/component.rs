//! What the host does with a component before it has a module: register, open, query, init.
//!
//! Everything that can fail is done in `query`: the host has no second choice once it has selected.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use parking_lot::Mutex;

use super::entry::code;
use super::module::{self, Shell};
use super::{Listed, MtlAbi, Named, owner};
use crate::host::component::{self, Framework};
use crate::host::foreign;
use crate::host::guard::guard_early;
use crate::host::params;
use crate::host::services::{say, show_help, threads};
use crate::host::sys::{Component, MtlModule};
use crate::mtl::{Component as _, Keep, Matcher, Refusal, Setting};

const NOT_AVAILABLE: c_int = -16;
const SUCCESS: c_int = 0;

/// The module that `query` of a component made and `init` will hand over.
pub(in crate::host) struct Offered(Mutex<Option<Offer>>);

struct Offer {
    /// The component's name that was asked.
    name: &'static CStr,
    /// The endpoint's, for the job.
    endpoint: Vec<u8>,
    reaches_devices: bool,
    module: Box<dyn HandOver + Send>,
}

impl Offered {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Takes what was offered under a name.
    fn take(&self, name: &CStr) -> Option<Offer> {
        self.0.lock().take_if(|offer| offer.name == name)
    }
}

/// A module that nobody has yet.
trait HandOver {
    /// Where it lies.
    fn address(&self) -> *mut c_void;
    /// Gives it to the host; null if that has one.
    fn hand_over(self: Box<Self>) -> *mut MtlModule;
}

impl<A: MtlAbi, M: Matcher<A>> HandOver for Shell<A, M> {
    fn address(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    fn hand_over(self: Box<Self>) -> *mut MtlModule {
        self.into_raw()
    }
}

/// Puts a matcher behind a table.
struct Boxed<A>(&'static CStr, PhantomData<fn() -> A>);

impl<A: MtlAbi> Keep<A> for Boxed<A> {
    type Kept = Offer;

    fn keep<M: Matcher<A>>(self, matcher: M, endpoint: Vec<u8>) -> Offer {
        let reaches_devices = matcher.reaches_devices();
        Offer { name: self.0, endpoint, reaches_devices, module: Box::new(Shell::<A, M>::new(matcher)) }
    }
}

/// The structure's part that all versions have.
pub(super) fn base<A: MtlAbi, N: Named>() -> Component {
    let framework = Framework { project: "ompi", name: "mtl", version: [2, 0, 0] };
    let mut base = component::base::<A>(&framework, N::NAME);
    base.open = Some(open);
    base.close = Some(close::<N>);
    base.query = Some(query::<A, N>);
    base.register = Some(register::<A, N>);
    base
}

unsafe extern "C" fn register<A: MtlAbi, N: Named>() -> c_int {
    guard_early("mtl", "register", NOT_AVAILABLE, || {
        N::Component::register::<A>(N::NAME);
        super::register_counters(N::NAME, N::Component::counters());
        SUCCESS
    })
}

/// The host begins to use the component; nothing is done before `query`.
unsafe extern "C" fn open() -> c_int {
    guard_early("mtl", "open", NOT_AVAILABLE, || SUCCESS)
}

/// Opens the best endpoint there is and offers it, or declines.
unsafe extern "C" fn query<A: MtlAbi, N: Named>(module: *mut *mut c_void, priority: *mut c_int) -> c_int {
    let offer = guard_early("mtl", "query", None, offer::<A, N>);
    let found = offer.unwrap_or(ptr::null_mut());
    // SAFETY: the framework asks with the addresses of two variables of its own, which it reads when this
    // has returned. Of the module, it only wants to see that there is one.
    unsafe { foreign::write(module, found) };
    if found.is_null() {
        return NOT_AVAILABLE;
    }
    // SAFETY: the other one of these.
    unsafe { foreign::write(priority, N::Component::priority(N::NAME)) };
    SUCCESS
}

/// The address of the module that is offered.
fn offer<A: MtlAbi, N: Named>() -> Option<*mut c_void> {
    let mut offered = N::Component::offered().0.lock();
    if offered.is_some() || module::is_in_use() {
        // The same transport under its other name.
        return None;
    }
    match opened::<A, N>() {
        Ok(offer) => Some(offered.insert(offer).module.address()),
        Err(Refusal::NoneSuitable(why)) => {
            report::<N>(&format!(" not used: {why}"));
            None
        }
        Err(Refusal::Wish(why)) => {
            show_help("not used", &why);
            None
        }
    }
}

/// Says a line to who wants to know what is chosen and why.
fn report<N: Named>(line: &str) {
    if N::Component::is_verbose() || params::verbosity(owner(N::NAME)) > 0 {
        say(&format!("mtl:{}:{line}", N::NAME.to_string_lossy()));
    }
}

fn opened<A: MtlAbi, N: Named>() -> Result<Offer, Refusal> {
    let config = N::Component::config(N::NAME).map_err(Refusal::Wish)?;
    let facts = A::facts();
    let name = N::NAME.to_str().unwrap_or_default();
    let setting = Setting {
        name,
        // The user asked for it by its name, as `--mca mtl ofi` does.
        asked_for: params::selection(owner(N::NAME))
            .is_some_and(|list| list.split(',').any(|word| word.trim() == name)),
        threads: threads(),
        group_communicators: A::GROUP_COMMUNICATORS,
        devices: A::has_devices(),
        local_rank: facts.local_rank,
        universe: facts.universe,
        report: &report::<N>,
    };
    N::Component::open(&config, &setting, Boxed::<A>(N::NAME, PhantomData))
}

/// Hands the module over that `query` made; whether it reaches device memory.
pub(super) fn init<A: MtlAbi, N: Named>() -> (*mut MtlModule, bool) {
    let nothing = (ptr::null_mut(), false);
    guard_early("mtl", "init", nothing, || {
        let Some(offer) = N::Component::offered().take(N::NAME) else { return nothing };
        if let Err(error) = A::publish(&offer.endpoint) {
            show_help(
                "peer unreachable",
                &format!("the endpoint's name cannot be published to the job ({error}, {})", code(error)),
            );
            return nothing;
        }
        (offer.module.hand_over(), offer.reaches_devices)
    })
}

/// The host drops the component: what was offered and not taken is closed.
unsafe extern "C" fn close<N: Named>() -> c_int {
    guard_early("mtl", "close", SUCCESS, || {
        drop(N::Component::offered().take(N::NAME));
        SUCCESS
    })
}
