//! Registers a transport's tables of parameters with the host.

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use super::Listed;
use super::services::Own;
use crate::btl::{Inherited, Kind};
use crate::host::inherited::Said;
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
    let said = T::PREDECESSOR.map(|other| Said::of(owner.framework, other));
    for number in parameters.numbers {
        let told = said.as_ref().and_then(|said| said.number(number)?.ok());
        number.set(told.unwrap_or(number.default));
        let (storage, names) = match number.kind {
            Kind::Signed => (Storage::Signed(&number.value), Names::NONE),
            Kind::Unsigned => (Storage::Unsigned(&number.value), Names::NONE),
            Kind::Flags => (Storage::Unsigned(&number.value), Own::flag_names()),
            Kind::Bool => (Storage::Flag(&number.flag), Names::NONE),
        };
        let (name, help, level) = (number.name, number.help, number.level);
        params::register(owner, &Parameter { name, help, level, settable: false, storage, names });
    }
    for text in parameters.texts {
        let told = said.as_ref().and_then(|said| said.text(text.name));
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

/// What the user has said of the component that this one stands in for, of the parameters of which he has not said otherwise.
pub(super) fn inherited<T: Listed>() -> Vec<Inherited> {
    let component = CString::new(T::name()).unwrap_or_default();
    let owner = owner(&component);
    let Some(said) = T::PREDECESSOR.map(|other| Said::of(owner.framework, other)) else { return Vec::new() };
    let is_own = |name| params::find(owner, name).is_some_and(params::Registered::is_set);
    let parameters = T::parameters();
    let numbers = parameters.numbers.iter().filter_map(|number| {
        let is_meaningless = said.number(number)?.is_err();
        Some(Inherited { name: number.name, text: said.text(number.name)?, is_meaningless })
    });
    let texts = parameters.texts.iter().filter_map(|text| {
        Some(Inherited { name: text.name, text: said.text(text.name)?, is_meaningless: false })
    });
    numbers.chain(texts).filter(|inherited| !is_own(inherited.name)).collect()
}
