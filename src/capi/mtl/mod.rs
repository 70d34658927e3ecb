//! The matching transports behind the C functions: messages matched by context, source and tag, as MPI's are.
//!
//! [`abi`] has what C sees; `entry` are the functions in the tables. Behind them, `component` is the life of a
//! component, `module` its module over a matcher, `program` the caller as a matcher sees a host, `desk` what the caller
//! has of the module: peers, requests, messages. `parameters` are those of the OFI MTL, and `record` is what processes
//! publish.

pub mod abi;
mod component;
mod desk;
mod entry;
mod module;
mod parameters;
mod program;
mod record;
mod requests;
#[cfg(test)]
mod tests;

use std::ffi::CStr;

use super::handle::MATCHING;
use abi::MtlComponent;
use component::{Component, Listed};
use entry::Tables;

/// The OFI MTL.
struct Ofi;

impl Listed for Ofi {
    const NUMBER: usize = MATCHING;
    const NAME: &'static CStr = c"ofi";
    const COMPONENT: &'static CStr = c"mtl_ofi";
    const TITLE: &'static str = "hawser_mtl ofi";
    type Transport = crate::mtl::ofi::Component;

    fn component() -> &'static Component<Self> {
        static COMPONENT: Component<Ofi> = Component::new();
        &COMPONENT
    }

    fn declare(caller: &super::host::Caller) {
        parameters::declare(caller);
    }

    fn config(caller: &super::host::Caller) -> Result<crate::config::Ofi, String> {
        parameters::config(caller)
    }
}

/// Each by its name.
pub(super) fn all() -> &'static [(&'static CStr, &'static MtlComponent)] {
    static ALL: &[(&CStr, &MtlComponent)] = &[(Ofi::NAME, &Tables::<Ofi>::COMPONENT)];
    ALL
}
