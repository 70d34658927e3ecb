//! Whether a byte transport takes the values that its parameters have, for tools: it is asked without a host, and opens
//! nothing.

use std::ffi::CStr;

use crate::btl::{Host, Kind, Transport};
use crate::error::{Error, Result};

/// Values by the names of parameters, as `eager_limit`.
pub type Values<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What a component says of them.
pub type Verify = fn(Values<'_>) -> std::result::Result<(), String>;

/// In the place of a host: it has the texts, and nothing else is asked of it.
struct Texts<'a>(Values<'a>);

impl Host for Texts<'_> {
    fn name(&self) -> u64 {
        0
    }

    fn node(&self) -> String {
        String::new()
    }

    fn publish(&self, _key: &'static CStr, _bytes: &[u8]) -> Result<()> {
        Err(Error::Unsupported)
    }

    fn published(&self, _key: &'static CStr, _name: u64) -> Result<Vec<u8>> {
        Err(Error::NotFound)
    }

    fn text(&self, parameter: &CStr) -> Option<String> {
        (self.0)(&parameter.to_string_lossy())
    }

    fn is_asked_for(&self) -> bool {
        false
    }

    fn is_verbose(&self) -> bool {
        false
    }

    fn notice(&self, _topic: &str, _line: &str) {}

    fn say(&self, _line: &str) {}
}

/// Asks a transport. Numbers are decimal; what is none, or not set, is the default. They are those of this process from
/// now on: not for one that opens the transport.
///
/// # Errors
/// What the transport would refuse to open with.
pub(super) fn byte_transport<T: Transport>(values: Values<'_>) -> std::result::Result<(), String> {
    let texts = T::parameters().texts.iter().map(|text| (text.name, text.default));
    let defaults: Vec<_> = texts.collect();
    for number in T::parameters().numbers {
        let given = values(&number.name.to_string_lossy()).and_then(|text| match number.kind {
            Kind::Signed | Kind::Bool => text.parse().ok(),
            Kind::Unsigned | Kind::Flags => text.parse().ok().map(u32::cast_signed),
        });
        number.set(given.unwrap_or(number.default));
    }
    // HOST: a text that is set, and empty, is none (`var_set_string`).
    let given = |name: &str| {
        let default = defaults.iter().find(|(known, _)| known.to_bytes() == name.as_bytes());
        let text = values(name).or_else(|| Some(default?.1?.to_string_lossy().into_owned()));
        text.filter(|text| !text.is_empty())
    };
    T::verify(&Texts(&given))
}
