//! The byte transports that C programs can open: those that Open MPI can, in `host::components`, by the same
//! names (a test compares the two lists).

use std::ffi::CStr;

use super::abi::BtlComponent;
use super::component::{Component, Listed};
use super::entry::Tables;
use super::handle::MATCHING;

macro_rules! byte_transports {
    ($($(#[$attribute:meta])* $transport:path => $name:literal,)*) => {
        const NAMES: &[&str] = &[$($(#[$attribute])* $name,)*];

        $(
            $(#[$attribute])*
            impl Listed for $transport {
                const NUMBER: usize = number($name);
                const NAME: &'static CStr = c_name(concat!($name, "\0"));
                const TITLE: &'static str = concat!("hawser_btl ", $name);

                fn component() -> &'static Component<Self> {
                    static COMPONENT: Component<$transport> = Component::new();
                    &COMPONENT
                }
            }
        )*

        /// Each by its name.
        pub(super) fn all() -> &'static [(&'static CStr, &'static BtlComponent)] {
            static ALL: &[(&CStr, &BtlComponent)] = &[$(
                $(#[$attribute])*
                (<$transport>::NAME, &Tables::<$transport>::COMPONENT),
            )*];
            ALL
        }
    };
}

/// The place of a name in the list.
const fn number(name: &str) -> usize {
    let mut at = 0;
    while at < NAMES.len() {
        let (one, other) = (NAMES[at].as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < one.len() && same < other.len() && one[same] == other[same] {
            same += 1;
        }
        if same == one.len() && same == other.len() {
            return at;
        }
        at += 1;
    }
    panic!("a name of the list")
}

/// A name for C.
const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name without zeros"),
    }
}

const _: () = assert!(NAMES.len() <= MATCHING);

byte_transports! {
    crate::btl::usnic::Usnic => "usnic",
    crate::btl::smcuda::Smcuda => "smcuda",
    crate::btl::verbs::Verbs => "verbs",
    crate::btl::verbs::Openib => "openib",
    #[cfg(feature = "loop")]
    crate::btl::looped::Loop => "loop",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::Transport;
    use crate::btl::smcuda::Smcuda;
    use crate::btl::usnic::Usnic;

    /// The lines of a list of byte transports, without what follows the arrows, which have the names.
    fn transports(text: &str) -> Vec<String> {
        let list = text.split("\nbyte_transports! {\n").nth(1).expect("a list");
        let list = list.split("\n}\n").next().expect("its end");
        list.lines().map(|line| line.split(" => ").next().unwrap_or_default().trim().to_owned()).collect()
    }

    #[test]
    fn every_transport_of_open_mpis_list_is_in_this_one() {
        assert_eq!(
            transports(include_str!("components.rs")),
            transports(include_str!("../host/components.rs"))
        );
    }

    #[test]
    fn each_has_its_own_name_and_number() {
        let own = |component: &str, number: usize| {
            assert_eq!(component.strip_prefix("btl_"), Some(NAMES[number]));
            assert_eq!(all()[number].0.to_str(), Ok(NAMES[number]));
        };
        own(Usnic::COMPONENT, Usnic::NUMBER);
        own(Smcuda::COMPONENT, Smcuda::NUMBER);
    }
}
