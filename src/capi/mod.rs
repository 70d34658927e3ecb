//! The library's own C functions: the transports for any C program, without Open MPI.
//!
//! `include/hawser.h` is generated from here, hawser(3) describes it. [`abi`] has what C sees and [`code`] what functions
//! return; `argument` makes values of what C passes, `handle` finds what a number names, `life` says how far a
//! component is, `slot` has a module as long as somebody is in it, `host` is the caller, and `guard` stops panics.
//!
//! The byte transports: `entry` are the functions in the tables, `component` is the life of a component, `module` a module
//! with what its transport tells, `peers`, `fragment` and `memory` its things, `parameters` what the caller sets, and
//! `components` the list. The matching transports are in [`mtl`].
//!
//! Nothing is borrowed while a function of the caller's runs. No reference is made from a handle: what a handle
//! names is looked up, and a module lives as long as a call is in it.

pub mod abi;
mod argument;
pub mod code;
mod component;
mod components;
mod entry;
mod fragment;
mod guard;
mod handle;
mod host;
mod life;
mod memory;
mod module;
pub mod mtl;
mod parameters;
mod peers;
#[cfg(test)]
mod scarce_tests;
mod slot;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char};
use std::ptr;

use abi::BtlComponent;
use mtl::abi::MtlComponent;

/// The version of this library, as `major.minor.patch`. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Why the Open MPI that loaded this library was refused; an empty text when it was accepted or
/// when there is none. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_refusal() -> *const c_char {
    crate::error::refusal().as_ptr()
}

/// What a code means, in English. The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_strerror(code: i32) -> *const c_char {
    code::text(code)
}

/// The byte transport of this name, `smcuda`, `usnic` or `verbs`; NULL when there is none, or no name. The table lives as
/// long as the process.
///
/// # Safety
/// NULL, or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hawser_btl_find(name: *const c_char) -> *const BtlComponent {
    if name.is_null() {
        return ptr::null();
    }
    // SAFETY: not null, and by the contract a text.
    let name = unsafe { CStr::from_ptr(name) };
    components::all().iter().find(|(known, _)| *known == name).map_or(ptr::null(), |(_, table)| *table)
}

/// The byte transports there are, counted from 0; NULL behind the last.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_btl_list(index: usize) -> *const BtlComponent {
    components::all().get(index).map_or(ptr::null(), |(_, table)| *table)
}

/// The matching transport of this name, `ofi`; NULL when there is none, or no name. The table lives as long as the
/// process.
///
/// # Safety
/// NULL, or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hawser_mtl_find(name: *const c_char) -> *const MtlComponent {
    if name.is_null() {
        return ptr::null();
    }
    // SAFETY: not null, and by the contract a text.
    let name = unsafe { CStr::from_ptr(name) };
    mtl::all().iter().find(|(known, _)| *known == name).map_or(ptr::null(), |(_, table)| *table)
}

/// The matching transports there are, counted from 0; NULL behind the last.
#[unsafe(no_mangle)]
pub extern "C" fn hawser_mtl_list(index: usize) -> *const MtlComponent {
    mtl::all().get(index).map_or(ptr::null(), |(_, table)| *table)
}
