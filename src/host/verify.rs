//! Whether a byte transport takes the values that its parameters have, for tools: it is asked without a host, and opens
//! nothing.

use std::ffi::CStr;

use super::inherited::bits;
use crate::btl::{Host, Inherited, Kind, Left, Transport};
use crate::error::{Error, Result};

/// Values by the names of parameters, as `eager_limit`.
pub type Values<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What a component says of them, and of those of the component that it stands in for: which of these it leaves.
pub type Verify = fn(Values<'_>, Values<'_>) -> std::result::Result<Vec<Left>, String>;

/// In the place of a host: it has the texts, and what is inherited, and nothing else is asked of it.
struct Texts<'a>(Values<'a>, Vec<Inherited>);

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

    fn inherited(&self) -> Vec<Inherited> {
        self.1.clone()
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

/// Asks a transport. Its own numbers are decimal; what is none, or not set, is the default. They are those of this process from
/// now on: not for one that opens the transport. What is inherited is as users write it.
///
/// # Errors
/// What the transport would refuse to open with.
pub(super) fn byte_transport<T: Transport>(
    own: Values<'_>,
    others: Values<'_>,
) -> std::result::Result<Vec<Left>, String> {
    let mut inherited = Vec::new();
    // What is said of its own goes before it.
    let other = |name: &CStr| {
        let name = name.to_string_lossy();
        if own(&name).is_none() { others(&name) } else { None }
    };
    for number in T::parameters().numbers {
        let given = own(&number.name.to_string_lossy()).and_then(|text| match number.kind {
            Kind::Signed | Kind::Bool => text.parse().ok(),
            Kind::Unsigned | Kind::Flags => text.parse().ok().map(u32::cast_signed),
        });
        let told = other(number.name).and_then(|text| bits(number, text.clone()).map(|bits| (text, bits)));
        let taken = told.as_ref().and_then(|(_, bits)| bits.as_ref().ok().copied());
        number.set(given.or(taken).unwrap_or(number.default));
        let name = number.name;
        inherited.extend(told.map(|(text, bits)| Inherited { name, text, is_meaningless: bits.is_err() }));
    }
    let texts = T::parameters().texts;
    for text in texts {
        let told = other(text.name);
        inherited.extend(told.map(|told| Inherited { name: text.name, text: told, is_meaningless: false }));
    }
    // HOST: a text that is set, and empty, is none (`var_set_string`).
    let given = |name: &str| {
        let known = texts.iter().find(|text| text.name.to_bytes() == name.as_bytes());
        let told = own(name).or_else(|| others(name));
        let text = told.or_else(|| Some(known?.default?.to_string_lossy().into_owned()));
        text.filter(|text| !text.is_empty())
    };
    T::verify(&Texts(&given, inherited))
}
