//! The module tables and component structures of the OFI MTL, written once for every version.

use std::ffi::{c_int, c_void};

use super::abi::Abi;
use super::component::{self, Limits};
use super::foreign::Opaque;
use super::mtl as entry;
use super::params::Name;
use super::sys::{Component, MtlModule};
use crate::config::TagMode;
use crate::mtl::ofi::Ofi;
use crate::wire::tag::{Full, Layout, One, Two};

/// What differs between the versions' tables.
pub(super) trait Table: Abi {
    /// `mca_mtl_base_component_t`
    type Component;
    /// Properties of the module: `MCA_MTL_BASE_FLAG_*`.
    const FLAGS: u32;

    /// The component structure under a name.
    fn component<N: Named>() -> Self::Component;
}

/// A name of the component, as a type: the host calls its functions without an argument that would tell.
pub(super) trait Named: 'static {
    /// The name.
    const NAME: Name;
}

/// In the place of the host's own component.
pub(super) struct AsOfi;

impl Named for AsOfi {
    const NAME: Name = Name::Ofi;
}

/// Beside the host's own component.
pub(super) struct AsHawser;

impl Named for AsHawser {
    const NAME: Name = Name::Hawser;
}

/// The module of a transport with this tag layout and these limits, boxed, for the host.
pub(super) fn module<A: Table>(ofi: Ofi<A>, limits: Limits) -> *mut MtlModule {
    match limits.layout {
        TagMode::One => boxed::<A, One>(ofi, limits),
        TagMode::Two => boxed::<A, Two>(ofi, limits),
        TagMode::Full | TagMode::Auto => boxed::<A, Full>(ofi, limits),
    }
}

fn boxed<A: Table, L: Layout>(ofi: Ofi<A>, limits: Limits) -> *mut MtlModule {
    let shell = entry::Shell {
        module: Opaque::new(table::<A, L>(limits)),
        ofi,
        progress: entry::progress::<A, L>,
        progressing: false.into(),
    };
    Box::into_raw(Box::new(shell)).cast()
}

fn table<A: Table, L: Layout>(limits: Limits) -> MtlModule {
    // SAFETY: all fields are plain numbers, padding or optional functions; zero is a value of each.
    let mut module: MtlModule = unsafe { std::mem::zeroed() };
    module.max_contextid = i32::try_from(limits.max_context).unwrap_or(i32::MAX);
    module.max_tag = limits.max_tag;
    module.request_size = limits.request_size;
    module.flags = A::FLAGS;
    module.add_procs = Some(entry::add_procs::<A>);
    module.del_procs = Some(entry::del_procs::<A>);
    module.finalize = Some(entry::finalize::<A>);
    module.send = Some(entry::send::<A, L>);
    module.isend = Some(entry::isend::<A, L>);
    module.irecv = Some(entry::irecv::<A, L>);
    module.iprobe = Some(entry::iprobe::<A, L>);
    module.imrecv = Some(entry::imrecv::<A, L>);
    module.improbe = Some(entry::improbe::<A, L>);
    module.cancel = Some(entry::cancel::<A, L>);
    module.add_comm = Some(entry::add_comm::<A, L>);
    module.del_comm = Some(entry::del_comm::<A>);
    module
}

/// The part of the component structure that all versions have.
pub(super) fn base<A: Table, N: Named>() -> Component {
    // SAFETY: all fields are plain numbers, padding or optional functions; zero is a value of each.
    let mut base: Component = unsafe { std::mem::zeroed() };
    let (major, minor, release) = A::version();
    base.mca_version = [2, 1, 0];
    component::text_into(&mut base.project, "ompi");
    base.project_version = [major, minor, release];
    component::text_into(&mut base.type_name, "mtl");
    base.type_version = [2, 0, 0];
    component::text_into(&mut base.name, N::NAME.text().to_str().unwrap_or(""));
    base.version = component::hawser_version();
    base.open = Some(open);
    base.close = Some(close::<N>);
    base.query = Some(query::<A, N>);
    base.register = Some(register::<A, N>);
    base
}

unsafe extern "C" fn register<A: Abi, N: Named>() -> c_int {
    component::register::<A>(N::NAME)
}

unsafe extern "C" fn open() -> c_int {
    component::open()
}

unsafe extern "C" fn close<N: Named>() -> c_int {
    component::close(N::NAME)
}

unsafe extern "C" fn query<A: Table, N: Named>(module: *mut *mut c_void, priority: *mut c_int) -> c_int {
    // SAFETY: the framework asks with the addresses of two variables on its stack, which it reads when this
    // has returned.
    unsafe { component::query::<A>(N::NAME, module, priority) }
}
