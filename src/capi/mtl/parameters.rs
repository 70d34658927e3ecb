//! Parameters: those of the OFI MTL that a program has a use for, with the values that the caller gives them as texts.

use std::ffi::{CStr, CString};

use crate::capi::abi::{HAWSER_KIND_INT, HAWSER_KIND_TEXT, Parameter};
use crate::capi::host::{Caller, c_text};
use crate::config;
use crate::mtl::ofi::parameters::{
    EXCLUDE_NAME, Given, INCLUDE_HELP, INCLUDE_NAME, INTEGERS, Integer, PRIORITY, read,
};

const PREFIX: &str = "mtl_ofi_";
const EXCLUDE_HELP: &CStr = c"libfabric providers not to use, separated by commas; an empty list allows all";
/// Those that are slower than others that are always there.
const EXCLUDE: &CStr = c"sockets,udp";

fn full(name: &CStr) -> CString {
    c_text(&format!("{PREFIX}{}", name.to_string_lossy()))
}

/// What a program sets: everything but how much Open MPI prefers the transport.
fn settable() -> impl Iterator<Item = (usize, &'static Integer)> {
    INTEGERS.iter().enumerate().filter(|(index, _)| *index != PRIORITY)
}

/// Tells the caller of all.
pub(super) fn declare(caller: &Caller) {
    let size = size_of::<Parameter>();
    for (_, integer) in settable() {
        let (name, default) = (full(integer.name), c_text(&integer.default.to_string()));
        caller.declare(&Parameter {
            size,
            name: name.as_ptr(),
            help: integer.help.as_ptr(),
            default_value: default.as_ptr(),
            kind: HAWSER_KIND_INT,
            level: integer.level.cast_unsigned() + 1,
        });
    }
    for (name, help, default) in
        [(INCLUDE_NAME, INCLUDE_HELP, std::ptr::null()), (EXCLUDE_NAME, EXCLUDE_HELP, EXCLUDE.as_ptr())]
    {
        let name = full(name);
        caller.declare(&Parameter {
            size,
            name: name.as_ptr(),
            help: help.as_ptr(),
            default_value: default,
            kind: HAWSER_KIND_TEXT,
            level: 1,
        });
    }
}

/// What the caller sets.
pub(super) fn config(caller: &Caller) -> Result<config::Ofi, String> {
    let mut integers = INTEGERS.each_ref().map(|integer| integer.default);
    for (index, integer) in settable() {
        let name = full(integer.name);
        if let Some(text) = caller.parameter(&name) {
            integers[index] = read(integer.names, &text).ok_or_else(|| {
                format!("{} is {text}: that is no value that it may have", name.to_string_lossy())
            })?;
        }
    }
    let include = caller.parameter(&full(INCLUDE_NAME));
    let exclude = caller.parameter(&full(EXCLUDE_NAME));
    let exclude = exclude.unwrap_or_else(|| EXCLUDE.to_string_lossy().into_owned());
    Given { integers, include, exclude, disable_hmem: true }.config(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_says_the_default() {
        let page = include_str!("../../../docs/hawser.3");
        assert!(page.contains(&format!("\n.BR {} :\n", EXCLUDE.to_string_lossy())));
    }
}
