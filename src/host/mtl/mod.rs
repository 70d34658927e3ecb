//! Matching transports behind the host's tables, written once for every version and every transport.
//!
//! `entry` holds the functions in the module's table, `argument` what they are passed, as Rust values;
//! `module` a module with its table; `component` what happens before there is one; `handles` the host's
//! structures as transports see them, `messages` those of matched probes. `ofi` is the one file that
//! knows a transport: its parameters, which it shares with the host's own components.

mod argument;
mod aside;
mod component;
mod entry;
mod handles;
mod messages;
mod module;
mod ofi;

pub(super) use handles::Comm;

use std::ffi::{CStr, c_int};

use super::abi::Abi;
use super::listing;
use super::params::{Names, Owner};
use super::pvars::{self, Class, Source, Variable};
use super::sys::{Component, MtlModule};
use crate::mtl::{self, Counter};
use component::Offered;

/// What differs between the versions for matching transports.
pub(super) trait MtlAbi: Abi {
    /// `mca_mtl_base_component_t`
    type Component;
    /// Properties of the module: `MCA_MTL_BASE_FLAG_*`.
    const FLAGS: u32;

    /// The component structure with this beginning, which makes its module with [`init`].
    fn component<N: Named>(base: Component) -> Self::Component;
}

/// A matching transport's component, with what only the host's side can do for it.
pub(super) trait Listed: mtl::Component {
    /// What it has offered: a static, which cannot be in generic code.
    fn offered() -> &'static Offered;
    /// Registers its parameters under a name. Called by every tool that lists parameters: nothing else may
    /// happen there.
    fn register<A: MtlAbi>(name: &'static CStr);
    /// The same parameters, for tools.
    fn list(name: &'static CStr) -> Vec<listing::Setting>;
    /// What the user has set under a name; a value out of range is refused with a reason.
    ///
    /// # Errors
    /// The reason.
    fn config(name: &'static CStr) -> Result<Self::Config, String>;
    /// The priority that the user gave.
    fn priority(name: &'static CStr) -> c_int;
    /// Whether the user wants to know what is chosen and why.
    fn is_verbose() -> bool;
}

/// A name of a component, as a type: the host calls its functions without an argument that would tell.
pub(super) trait Named: 'static {
    /// The component.
    type Component: Listed;
    /// The name, without the framework's.
    const NAME: &'static CStr;
}

/// What can be set and read under a name.
pub(super) fn list<N: Named>() -> listing::Component {
    let counters = <N::Component as mtl::Component>::counters();
    listing::Component {
        framework: "mtl",
        name: listing::text(N::NAME),
        settings: N::Component::list(N::NAME),
        counters: counters.iter().map(|counter| listing::counter(counter.name, counter.help)).collect(),
        predecessor: None,
        verify: None,
    }
}

/// The component structure under a name.
pub(super) fn component<A: MtlAbi, N: Named>() -> A::Component {
    A::component::<N>(component::base::<A, N>())
}

/// Makes the module of a component that was selected: the module, or null, and whether it reaches device
/// memory.
pub(super) fn init<A: MtlAbi, N: Named>() -> (*mut MtlModule, bool) {
    component::init::<A, N>()
}

/// The framework's parameters of a component.
fn owner(component: &CStr) -> Owner<'_> {
    Owner { project: c"ompi", framework: c"mtl", component }
}

/// Registers a component's counters as performance variables under a name.
fn register_counters(name: &CStr, counters: &[&'static Counter]) {
    for counter in counters {
        let source = Source::Number(&counter.count);
        let (name_of, help) = (counter.name, counter.help);
        let variable = Variable { name: name_of, help, class: Class::Counter, names: Names::NONE, source };
        pvars::register(owner(name), &variable);
    }
}
