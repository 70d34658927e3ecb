//! The beginning of every component structure, which tells the host what the component is.

use std::ffi::{CStr, c_int};

use super::abi::Abi;
use super::sys::Component;

/// The interface that a component is of.
pub(super) struct Framework {
    /// The part of the host that it belongs to.
    pub(super) project: &'static str,
    pub(super) name: &'static str,
    /// Version of its interface.
    pub(super) version: [c_int; 3],
}

/// The structure of a component of this name; its functions are still to be filled in.
pub(super) fn base<A: Abi>(framework: &Framework, name: &CStr) -> Component {
    let (major, minor, release) = A::version();
    let mut base = Component::EMPTY;
    base.mca_version = [2, 1, 0];
    text_into(&mut base.project, framework.project.as_bytes());
    base.project_version = [major, minor, release];
    text_into(&mut base.type_name, framework.name.as_bytes());
    base.type_version = framework.version;
    text_into(&mut base.name, name.to_bytes());
    base.version = hawser_version();
    base
}

/// Writes a text into a field that is zero before, and leaves a zero at its end.
fn text_into(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}

/// The library's version, which the host lists as a component's.
fn hawser_version() -> [c_int; 3] {
    [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")]
        .map(|number| number.parse().unwrap_or(0))
}
