//! Registers a transport's tables of parameters with the host.

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use super::Listed;
use super::services::Own;
use crate::btl::Kind;
use crate::host::inherited::Inherited;
use crate::host::params::{self, Names, Owner, Parameter, Storage};

/// The framework's parameters of a component.
pub(super) fn owner(component: &std::ffi::CStr) -> Owner<'_> {
    Owner { project: c"opal", framework: c"btl", component }
}

/// Registers everything. Called by every tool that lists parameters: nothing else may happen here.
pub(super) fn register<T: Listed>() -> c_int {
    let component = CString::new(T::name()).unwrap_or_default();
    let owner = owner(&component);
    let parameters = T::parameters();
    let inherited = T::PREDECESSOR.map(|other| Inherited::of(owner.framework, other));
    for number in parameters.numbers {
        let told = inherited.as_ref().and_then(|inherited| match number.kind {
            Kind::Signed | Kind::Unsigned => inherited.number(number.name),
            Kind::Flags => inherited.flags(number.name),
        });
        number.value.store(told.unwrap_or(number.default), Ordering::Relaxed);
        let (storage, names) = match number.kind {
            Kind::Signed => (Storage::Signed(&number.value), Names::NONE),
            Kind::Unsigned => (Storage::Unsigned(&number.value), Names::NONE),
            Kind::Flags => (Storage::Unsigned(&number.value), Own::flag_names()),
        };
        let (name, help, level) = (number.name, number.help, number.level);
        params::register(owner, &Parameter { name, help, level, settable: false, storage, names });
    }
    for text in parameters.texts {
        let told = inherited.as_ref().and_then(|inherited| inherited.text(text.name));
        let told = told.and_then(|told| CString::new(told).ok());
        // The host copies the default before it returns.
        let default =
            told.as_deref().or(text.default).map_or(ptr::null_mut(), |default| default.as_ptr().cast_mut());
        text.value.store(default, Ordering::Relaxed);
        let (name, help, level) = (text.name, text.help, text.level);
        let storage = Storage::Text(&text.value);
        params::register(
            owner,
            &Parameter { name, help, level, settable: false, storage, names: Names::NONE },
        );
    }
    0
}
