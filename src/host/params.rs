//! The parameters of the OFI MTL, registered with the host under either component name.
//!
//! Names and defaults are the C component's. The provider lists belong to the host's `opal_common_ofi`
//! and are shared with its own OFI components; here they are registered if nobody has done it yet.
//! Under the name `hawser`, a value that the user gave for `mtl_ofi_*` is the default.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use super::services::{EnumValue, Services};
use crate::config::{self, NameList, ProgressMode, TagMode};

/// Types, scopes and levels of `opal/mca/base/mca_base_var.h`.
mod var {
    pub(super) const INT: i32 = 0;
    pub(super) const STRING: i32 = 5;
    pub(super) const SCOPE_READONLY: i32 = 1;
}

/// An enumeration's names and values, ended by a null name.
struct Names(&'static [EnumValue]);

// SAFETY: literals.
unsafe impl Sync for Names {}

macro_rules! names {
    ($($value:literal = $name:literal),*) => { Names(&[$(EnumValue { value: $value, name: $name.as_ptr() },)* EnumValue { value: 0, name: ptr::null() }]) };
}

static TAG_MODES: Names = names!(1 = c"auto", 2 = c"ofi_tag_1", 3 = c"ofi_tag_2", 4 = c"ofi_tag_full");
static PROGRESS_MODES: Names = names!(1 = c"auto", 2 = c"manual", 3 = c"unspec");
static AV_TYPES: Names = names!(1 = c"map", 2 = c"table");

/// One integer parameter.
struct Integer {
    name: &'static CStr,
    help: &'static CStr,
    default: i32,
    level: i32,
    names: Option<&'static Names>,
}

const PRIORITY: usize = 0;
const EVENTS: usize = 1;
const TAG_MODE: usize = 2;
const CONTROL: usize = 3;
const DATA: usize = 4;
const AV: usize = 5;
const SEP: usize = 6;
const GROUPING: usize = 7;
const CONTEXTS: usize = 8;
const COUNT: usize = 9;

static INTEGERS: [Integer; COUNT] = [
    Integer { name: c"priority", help: c"How much this transport is preferred; pml/cm takes the value over and competes with pml/ob1's 20", default: 25, level: 8, names: None },
    Integer { name: c"progress_event_cnt", help: c"Completions read from the provider at once (1 to 100)", default: 100, level: 5, names: None },
    Integer { name: c"tag_mode", help: c"How communicator, source and tag share the 64 tag bits: auto (ofi_tag_full where the provider can, else ofi_tag_1), ofi_tag_1 (12 bits of communicator, 18 of source, 32 of tag), ofi_tag_2 (24, 18, 20), ofi_tag_full (30 bits of communicator, 32 of tag, the source outside the tag)", default: 1, level: 5, names: Some(&TAG_MODES) },
    Integer { name: c"control_progress", help: c"Who drives connection handling in the provider: auto (its thread), manual (our calls), unspec (its choice)", default: 3, level: 2, names: Some(&PROGRESS_MODES) },
    Integer { name: c"data_progress", help: c"Who drives transfers in the provider: auto (its thread), manual (our calls), unspec (its choice)", default: 3, level: 2, names: Some(&PROGRESS_MODES) },
    Integer { name: c"av", help: c"Kind of address vector: map (the provider's own values) or table (indices)", default: 1, level: 2, names: Some(&AV_TYPES) },
    Integer { name: c"enable_sep", help: c"Use a scalable endpoint with several contexts, where the provider has them (0 or 1)", default: 0, level: 2, names: None },
    Integer { name: c"thread_grouping", help: c"Spread communicators over the contexts of the scalable endpoint (0 or 1; needs enable_sep)", default: 0, level: 2, names: None },
    Integer { name: c"num_ctxts", help: c"Contexts of the scalable endpoint (needs enable_sep)", default: 1, level: 3, names: None },
];

/// Storage whose address the host keeps.
struct Storage(UnsafeCell<[c_int; COUNT]>);

// SAFETY: the host writes it while it registers, which it does from one thread at a time.
unsafe impl Sync for Storage {}

static OFI: Storage = Storage(UnsafeCell::new([0; COUNT]));
static HAWSER: Storage = Storage(UnsafeCell::new([0; COUNT]));

struct Text(UnsafeCell<*mut c_char>);

// SAFETY: as for `Storage`.
unsafe impl Sync for Text {}

static INCLUDE: Text = Text(UnsafeCell::new(ptr::null_mut()));
static EXCLUDE: Text = Text(UnsafeCell::new(ptr::null_mut()));

/// The component that the parameters belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// In the place of the host's own component.
    Ofi,
    /// Beside it.
    Hawser,
}

impl Name {
    pub(super) fn text(self) -> &'static CStr {
        match self {
            Self::Ofi => c"ofi",
            Self::Hawser => c"hawser",
        }
    }
}

fn storage(name: Name) -> *mut c_int {
    match name {
        Name::Ofi => OFI.0.get().cast(),
        Name::Hawser => HAWSER.0.get().cast(),
    }
}

/// Registers everything. Called by every tool that lists parameters: nothing else may happen here.
pub(super) fn register(name: Name, default_exclude: &str) -> c_int {
    register_integers(Name::Ofi, None);
    if name == Name::Hawser {
        register_integers(Name::Hawser, Some(Name::Ofi));
    }
    let exclude = CString::new(default_exclude).unwrap_or_default();
    register_text(name, c"provider_include", c"libfabric providers to use, separated by commas: when given, only these. A name also means the layered providers that begin with it. Overrides provider_exclude", &INCLUDE, None);
    register_text(name, c"provider_exclude", c"libfabric providers not to use, separated by commas; an empty list allows all. The default names those that only repeat what Open MPI does better itself", &EXCLUDE, Some(&exclude));
    0
}

fn register_integers(name: Name, defaults: Option<Name>) {
    let host = Services::host();
    for (index, integer) in INTEGERS.iter().enumerate() {
        // SAFETY: within the static array.
        let slot = unsafe { storage(name).add(index) };
        let default = defaults.map_or(integer.default, |from| {
            // SAFETY: within the static array, registered before.
            unsafe { storage(from).add(index).read() }
        });
        // SAFETY: ours until the host is told of it.
        unsafe { slot.write(default) };
        let mut names = ptr::null_mut();
        if let Some(values) = integer.names {
            // SAFETY: a table ended by a null name; the host keeps a copy.
            unsafe { (host.enum_create)(integer.name.as_ptr(), values.0.as_ptr(), &raw mut names) };
        }
        // SAFETY: all texts are literals, the storage is static.
        unsafe {
            (host.var_register)(c"ompi".as_ptr(), c"mtl".as_ptr(), name.text().as_ptr(), integer.name.as_ptr(), integer.help.as_ptr(), var::INT, names, 0, 0, integer.level, var::SCOPE_READONLY, slot.cast())
        };
    }
}

fn find(parameter: &CStr) -> c_int {
    // SAFETY: literals.
    unsafe { (Services::host().var_find)(c"opal".as_ptr(), c"opal_common".as_ptr(), c"ofi".as_ptr(), parameter.as_ptr()) }
}

fn register_text(name: Name, parameter: &CStr, help: &CStr, text: &'static Text, default: Option<&CString>) {
    let host = Services::host();
    let mut index = find(parameter);
    if index < 0 {
        let default = default.map_or(ptr::null_mut(), |text| text.as_ptr().cast_mut());
        // SAFETY: ours until the host is told of it; the host copies the default before it returns.
        unsafe { text.0.get().write(default) };
        // SAFETY: all texts are literals, the storage is static.
        index = unsafe {
            (host.var_register)(c"opal".as_ptr(), c"opal_common".as_ptr(), c"ofi".as_ptr(), parameter.as_ptr(), help.as_ptr(), var::STRING, ptr::null_mut(), 0, 0, 0, var::SCOPE_READONLY, text.0.get().cast())
        };
    }
    for owner in [Name::Ofi, name] {
        // SAFETY: a registered parameter and literals; a synonym that exists is left alone.
        unsafe {
            if (host.var_find)(c"ompi".as_ptr(), c"mtl".as_ptr(), owner.text().as_ptr(), parameter.as_ptr()) < 0 {
                (host.var_synonym)(index, c"ompi".as_ptr(), c"mtl".as_ptr(), owner.text().as_ptr(), parameter.as_ptr(), 0);
            }
        }
    }
}

fn text(parameter: &CStr) -> Option<String> {
    let mut value: *const c_void = ptr::null();
    // SAFETY: the callee stores the address of the parameter's storage.
    let code = unsafe { (Services::host().var_get_value)(find(parameter), &raw mut value, ptr::null_mut(), ptr::null_mut()) };
    if code != 0 || value.is_null() {
        return None;
    }
    // SAFETY: a string parameter's storage holds one pointer.
    let string = unsafe { value.cast::<*const c_char>().read() };
    if string.is_null() {
        return None;
    }
    // SAFETY: not null, hence zero-ended.
    Some(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}

/// The priority that the user gave.
pub(super) fn priority(name: Name) -> c_int {
    // SAFETY: within the static array.
    unsafe { storage(name).add(PRIORITY).read() }
}

/// The parameters as the transport sees them; a value out of range is refused with a reason.
pub(super) fn config(name: Name) -> Result<config::Ofi, String> {
    // SAFETY: a static array of as many values.
    let values = unsafe { storage(name).cast::<[c_int; COUNT]>().read() };
    let prefix = format!("mtl_{}_", name.text().to_string_lossy());
    let progress = |index: usize| match values[index] {
        1 => ProgressMode::Auto,
        2 => ProgressMode::Manual,
        _ => ProgressMode::Unspecified,
    };
    let range = |index: usize, low: c_int, high: c_int| {
        let value = values[index];
        if (low..=high).contains(&value) {
            Ok(value as usize)
        } else {
            Err(format!("{prefix}{} is {value}; it must be {low} to {high}", INTEGERS[index].name.to_string_lossy()))
        }
    };
    let scalable = range(SEP, 0, 1)? == 1;
    let grouping = range(GROUPING, 0, 1)? == 1;
    if grouping && !scalable {
        return Err(format!("{prefix}thread_grouping needs {prefix}enable_sep; set both or neither"));
    }
    Ok(config::Ofi {
        include: text(c"provider_include").map(|list| NameList::parse(&list)),
        exclude: NameList::parse(&text(c"provider_exclude").unwrap_or_default()),
        progress_event_count: range(EVENTS, 1, c_int::MAX)?.min(100),
        tag_mode: match values[TAG_MODE] {
            2 => TagMode::One,
            3 => TagMode::Two,
            4 => TagMode::Full,
            _ => TagMode::Auto,
        },
        control_progress: progress(CONTROL),
        data_progress: progress(DATA),
        av_table: values[AV] == 2,
        scalable,
        grouping,
        contexts: range(CONTEXTS, 1, 65_535)?,
    })
}
