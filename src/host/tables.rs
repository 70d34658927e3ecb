//! The component structures and module tables, written once over a version's `sys` module.

/// Implements [`Table`](crate::host::component::Table) and makes the component structures of a version.
macro_rules! tables {
    ($abi:ident, init($($argument:ident: $type:ty),*), told $told:expr, extra { $($field:ident: $value:expr),* }, flags $flags:expr) => {
        use $crate::config::TagMode;
        use $crate::host::component::{self, Limits, Table};
        use $crate::host::mtl as entry;
        use $crate::host::params::Name;
        use $crate::host::sys::MtlModule;
        use $crate::mtl::ofi::Ofi;
        use $crate::wire::tag::{Full, Layout, One, Two};

        fn table<L: Layout>(limits: Limits) -> MtlModule {
            // SAFETY: all fields are plain numbers, padding or optional functions; zero is a value of each.
            let mut module: MtlModule = unsafe { std::mem::zeroed() };
            module.max_contextid = i32::try_from(limits.max_context).unwrap_or(i32::MAX);
            module.max_tag = limits.max_tag;
            module.request_size = limits.request_size;
            module.flags = $flags;
            module.add_procs = Some(entry::add_procs::<$abi>);
            module.del_procs = Some(entry::del_procs::<$abi>);
            module.finalize = Some(entry::finalize::<$abi>);
            module.send = Some(entry::send::<$abi, L>);
            module.isend = Some(entry::isend::<$abi, L>);
            module.irecv = Some(entry::irecv::<$abi, L>);
            module.iprobe = Some(entry::iprobe::<$abi, L>);
            module.imrecv = Some(entry::imrecv::<$abi, L>);
            module.improbe = Some(entry::improbe::<$abi, L>);
            module.cancel = Some(entry::cancel::<$abi, L>);
            module.add_comm = Some(entry::add_comm::<$abi, L>);
            module.del_comm = Some(entry::del_comm::<$abi>);
            module
        }

        fn boxed<L: Layout>(ofi: Ofi<$abi>, limits: Limits) -> *mut MtlModule {
            let shell = entry::Shell { module: table::<L>(limits), ofi, progress: entry::progress::<$abi, L>, progressing: false.into() };
            Box::into_raw(Box::new(shell)).cast()
        }

        impl Table for $abi {
            type RawComponent = sys::MtlComponent;

            fn component(name: Name) -> sys::MtlComponent {
                match name {
                    Name::Ofi => ofi_component::structure(),
                    Name::Hawser => hawser_component::structure(),
                }
            }

            fn module(ofi: Ofi<Self>, limits: Limits) -> *mut MtlModule {
                match limits.layout {
                    TagMode::One => boxed::<One>(ofi, limits),
                    TagMode::Two => boxed::<Two>(ofi, limits),
                    TagMode::Full | TagMode::Auto => boxed::<Full>(ofi, limits),
                }
            }
        }

        /// The functions of one component name.
        macro_rules! component {
            ($name:ident, $module:ident) => {
                mod $module {
                    use super::*;

                    unsafe extern "C" fn register() -> c_int {
                        component::register::<$abi>(Name::$name)
                    }

                    unsafe extern "C" fn open() -> c_int {
                        component::open()
                    }

                    unsafe extern "C" fn close() -> c_int {
                        component::close(Name::$name)
                    }

                    unsafe extern "C" fn query(module: *mut *mut std::ffi::c_void, priority: *mut c_int) -> c_int {
                        // SAFETY: the host passes its own variables.
                        unsafe { component::query::<$abi>(Name::$name, module, priority) }
                    }

                    unsafe extern "C" fn init($($argument: $type),*) -> *mut MtlModule {
                        // SAFETY: the host passes its own variable, where it has one.
                        unsafe { component::init::<$abi>(Name::$name, $told) }
                    }

                    pub(super) fn structure() -> sys::MtlComponent {
                        // SAFETY: all fields are plain numbers, padding or optional functions; zero is a value of each.
                        let mut component: sys::MtlComponent = unsafe { std::mem::zeroed() };
                        let (major, minor, release) = <$abi as Abi>::version();
                        let base = &mut component.base;
                        base.mca_version = [2, 1, 0];
                        component::text_into(&mut base.project, "ompi");
                        base.project_version = [major, minor, release];
                        component::text_into(&mut base.type_name, "mtl");
                        base.type_version = [2, 0, 0];
                        component::text_into(&mut base.name, Name::$name.text().to_str().unwrap_or(""));
                        base.version = component::hawser_version();
                        base.open = Some(open);
                        base.close = Some(close);
                        base.query = Some(query);
                        base.register = Some(register);
                        component.init = Some(init);
                        $(component.$field = $value;)*
                        component
                    }
                }
            };
        }

        component!(Ofi, ofi_component);
        component!(Hawser, hawser_component);
    };
}

pub(super) use tables;
