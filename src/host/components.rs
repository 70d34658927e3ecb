//! The one list of components. From it follow the exported structures, what the constructor fills in,
//! the links that `make` and `make install` set, and what the export test expects: the scripts read the
//! lines of the two lists below (`pkgconfig/components.sh`).

use std::ffi::CStr;

use super::abi::Abi;
use super::accelerator::{self, AcceleratorAbi};
use super::btl::{self, BtlAbi, Listed, Registry};
use super::construct::Slot;
use super::listing;
use super::mtl::{self, MtlAbi, Named};
use super::v4_1::devices;
use super::v5_0::reduction;

/// Byte transports: each its type and the name of its exported structure.
macro_rules! byte_transports {
    ($($(#[$attribute:meta])* $transport:path => $slot:ident,)*) => {
        $(
            $(#[$attribute])*
            #[doc = concat!("The byte transport `", stringify!($transport), "`.")]
            #[unsafe(no_mangle)]
            pub static $slot: Slot = Slot::empty();

            $(#[$attribute])*
            impl Listed for $transport {
                fn registry() -> &'static Registry {
                    static REGISTRY: Registry = Registry::new();
                    &REGISTRY
                }

                fn slot() -> &'static Slot {
                    &$slot
                }
            }
        )*

        fn list_byte_transports() -> Vec<listing::Component> {
            Vec::from([$($(#[$attribute])* listing::byte_transport::<$transport>(),)*])
        }

        fn fill_byte_transports<A: BtlAbi>() {
            $($(#[$attribute])* $slot.fill(btl::component::<A, $transport>());)*
        }
    };
}

/// Matching transports: each its type, and a name for it as a type with the name of its exported structure.
macro_rules! matching_transports {
    ($($(#[$attribute:meta])* $transport:path as $type:ident $name:literal => $slot:ident,)*) => {
        $(
            $(#[$attribute])*
            #[doc = concat!("The matching transport `", stringify!($transport), "` as `", stringify!($type), "`.")]
            #[unsafe(no_mangle)]
            pub static $slot: Slot = Slot::empty();

            $(#[$attribute])*
            struct $type;

            $(#[$attribute])*
            impl Named for $type {
                type Component = $transport;
                const NAME: &'static CStr = $name;
            }
        )*

        fn list_matching_transports() -> Vec<listing::Component> {
            Vec::from([$($(#[$attribute])* mtl::list::<$type>(),)*])
        }

        fn fill_matching_transports<A: MtlAbi>() {
            $($(#[$attribute])* $slot.fill(mtl::component::<A, $type>());)*
        }
    };
}

/// Accelerators: each its type and the name of its exported structure.
macro_rules! accelerators {
    ($($accelerator:path => $slot:ident,)*) => {
        $(
            #[doc = concat!("The accelerator `", stringify!($accelerator), "`.")]
            #[unsafe(no_mangle)]
            pub static $slot: Slot = Slot::empty();
        )*

        fn list_accelerators() -> Vec<listing::Component> {
            Vec::from([$(accelerator::list::<$accelerator>(),)*])
        }

        fn fill_accelerators<A: AcceleratorAbi>() {
            $(A::fill::<$accelerator>(&$slot);)*
        }
    };
}

/// Components for operations: each what makes its structure, with the name of that.
macro_rules! operations {
    ($($component:ident => $slot:ident,)*) => {
        $(
            #[doc = "Operations on device memory."]
            #[unsafe(no_mangle)]
            pub static $slot: Slot = Slot::empty();
        )*

        fn fill_operations<A: Abi>() {
            $($slot.fill(reduction::$component::<A>());)*
        }
    };
}

matching_transports! {
    crate::mtl::ofi::Component as Ofi c"ofi" => mca_mtl_ofi_component,
    crate::mtl::ofi::Component as Hawser c"hawser" => mca_mtl_hawser_component,
}

byte_transports! {
    crate::btl::usnic::Usnic => mca_btl_usnic_component,
    crate::btl::smcuda::Smcuda => mca_btl_smcuda_component,
    crate::btl::verbs::Verbs => mca_btl_verbs_component,
    crate::btl::verbs::Openib => mca_btl_openib_component,
    #[cfg(feature = "loop")]
    crate::btl::looped::Loop => mca_btl_loop_component,
}

accelerators! {
    crate::accelerator::Cuda => mca_accelerator_cuda_component,
}

operations! {
    component => mca_op_hawser_component,
}

/// Fills in all structures for a recognised version.
pub(super) fn fill<A: BtlAbi + MtlAbi + AcceleratorAbi>() {
    fill_accelerators::<A>();
    fill_matching_transports::<A>();
    fill_byte_transports::<A>();
    fill_operations::<A>();
}

/// What can be set and read of all components.
pub fn list() -> Vec<listing::Component> {
    let lists = [
        list_matching_transports(),
        list_byte_transports(),
        list_accelerators(),
        Vec::from([devices::list()]),
    ];
    lists.into_iter().flatten().collect()
}
