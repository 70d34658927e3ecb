//! The one list of components. From it follow the exported structures, what the constructor fills in,
//! the links that `make` and `make install` set, and what the export test expects: the scripts read the
//! lines of the two lists below (`tests/components.sh`).

use super::btl::{self, BtlAbi, Listed, Registry};
use super::construct::Slot;
use super::tables::{AsHawser, AsOfi, Table};

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

        fn fill_byte_transports<A: BtlAbi>() {
            $($(#[$attribute])* $slot.fill(btl::component::<A, $transport>());)*
        }
    };
}

/// Matching transports: the OFI MTL under each of its names.
macro_rules! matching_transports {
    ($($(#[$attribute:meta])* $name:path => $slot:ident,)*) => {
        $(
            $(#[$attribute])*
            #[doc = concat!("The OFI MTL as `", stringify!($name), "`.")]
            #[unsafe(no_mangle)]
            pub static $slot: Slot = Slot::empty();
        )*

        fn fill_matching_transports<A: Table>() {
            $($(#[$attribute])* $slot.fill(A::component::<$name>());)*
        }
    };
}

matching_transports! {
    AsOfi => mca_mtl_ofi_component,
    AsHawser => mca_mtl_hawser_component,
}

byte_transports! {
    crate::btl::usnic::Usnic => mca_btl_usnic_component,
    #[cfg(feature = "loop")]
    crate::btl::looped::Loop => mca_btl_loop_component,
}

/// Fills in all structures for a recognised version.
pub(super) fn fill<A: BtlAbi + Table>() {
    fill_matching_transports::<A>();
    fill_byte_transports::<A>();
}
