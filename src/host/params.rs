//! The parameters of the OFI MTL, registered with the host under either component name.
//!
//! Names and defaults are the C component's. The provider lists belong to the host's `opal_common_ofi`
//! and are shared with its own OFI components; here they are registered if nobody has done it yet.
//! Under the name `hawser`, a value that the user gave for `mtl_ofi_*` is the default.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use super::foreign;
use super::services::{EnumValue, Services};
use crate::config::{self, NameList, ProgressMode, TagMode};

/// Types, scopes and levels of `opal/mca/base/mca_base_var.h`.
pub(super) mod var {
    pub(in crate::host) const INT: i32 = 0;
    pub(in crate::host) const UNSIGNED_INT: i32 = 1;
    pub(in crate::host) const STRING: i32 = 5;
    pub(super) const BOOL: i32 = 7;
    pub(super) const FLAG_SETTABLE: i32 = 4;
    pub(in crate::host) const SCOPE_READONLY: i32 = 1;
    pub(super) const SCOPE_LOCAL: i32 = 2;
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

/// The values of one component name. The host keeps their addresses and writes them while it
/// registers.
struct Values {
    integers: [AtomicI32; COUNT],
    disable_hmem: AtomicBool,
}

impl Values {
    const fn new() -> Self {
        Self { integers: [const { AtomicI32::new(0) }; COUNT], disable_hmem: AtomicBool::new(false) }
    }
}

static OFI: Values = Values::new();
static HAWSER: Values = Values::new();
static INCLUDE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static EXCLUDE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static VERBOSE: AtomicI32 = AtomicI32::new(0);

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

fn values(name: Name) -> &'static Values {
    match name {
        Name::Ofi => &OFI,
        Name::Hawser => &HAWSER,
    }
}

/// Registers everything. Called by every tool that lists parameters: nothing else may happen here.
///
/// `device` says whether the host's version hands out buffers in device memory.
pub(super) fn register(name: Name, default_exclude: &str, device: bool) -> c_int {
    register_own(Name::Ofi, None, device);
    if name == Name::Hawser {
        register_own(Name::Hawser, Some(&OFI), device);
    }
    let exclude = CString::new(default_exclude).unwrap_or_default();
    // Once registered, the storage is the host's: it holds texts that the host made and frees.
    if find(c"provider_include") < 0 {
        INCLUDE.store(ptr::null_mut(), Ordering::Relaxed);
    }
    if find(c"provider_exclude") < 0 {
        // The host copies the default before it returns.
        EXCLUDE.store(exclude.as_ptr().cast_mut(), Ordering::Relaxed);
    }
    let list = |parameter, help, storage: &AtomicPtr<c_char>| {
        share(
            name,
            &Shared {
                parameter,
                help,
                kind: var::STRING,
                flags: 0,
                level: 0,
                scope: var::SCOPE_READONLY,
                storage: storage.as_ptr().cast(),
            },
        );
    };
    list(c"provider_include", c"libfabric providers to use, separated by commas: when given, only these. A name also means the layered providers that begin with it. Overrides provider_exclude", &INCLUDE);
    list(c"provider_exclude", c"libfabric providers not to use, separated by commas; an empty list allows all. The default names those that only repeat what Open MPI does better itself", &EXCLUDE);
    share(
        name,
        &Shared {
            parameter: c"verbose",
            help: c"Verbosity of the OFI components: from 1 on they say which provider was chosen, or why none was",
            kind: var::INT,
            flags: var::FLAG_SETTABLE,
            level: 2,
            scope: var::SCOPE_LOCAL,
            storage: VERBOSE.as_ptr().cast(),
        },
    );
    super::pvars::register(name);
    0
}

/// Registers what belongs to one component name. `defaults` holds the values of the other name.
fn register_own(name: Name, defaults: Option<&Values>, device: bool) {
    let host = Services::host();
    let own = values(name);
    let add = |parameter: &CStr, help: &CStr, kind, names, level, storage: *mut c_void| {
        // SAFETY: all texts are literals, the storage is static and of the stated type.
        unsafe {
            (host.var_register)(
                c"ompi".as_ptr(),
                c"mtl".as_ptr(),
                name.text().as_ptr(),
                parameter.as_ptr(),
                help.as_ptr(),
                kind,
                names,
                0,
                0,
                level,
                var::SCOPE_READONLY,
                storage,
            )
        };
    };
    for (index, integer) in INTEGERS.iter().enumerate() {
        let default = defaults.map_or(integer.default, |from| from.integers[index].load(Ordering::Relaxed));
        own.integers[index].store(default, Ordering::Relaxed);
        let mut names = ptr::null_mut();
        if let Some(values) = integer.names {
            // SAFETY: a table ended by a null name; the host keeps a copy.
            unsafe { (host.enum_create)(integer.name.as_ptr(), values.0.as_ptr(), &raw mut names) };
        }
        add(integer.name, integer.help, var::INT, names, integer.level, own.integers[index].as_ptr().cast());
    }
    if device {
        own.disable_hmem
            .store(defaults.is_some_and(|from| from.disable_hmem.load(Ordering::Relaxed)), Ordering::Relaxed);
        add(
            c"disable_hmem",
            c"Do not ask the provider to send and receive device memory itself (FI_HMEM); such buffers are then copied through host memory",
            var::BOOL,
            ptr::null_mut(),
            2,
            own.disable_hmem.as_ptr().cast(),
        );
    }
}

fn find(parameter: &CStr) -> c_int {
    // SAFETY: literals.
    unsafe {
        (Services::host().var_find)(
            c"opal".as_ptr(),
            c"opal_common".as_ptr(),
            c"ofi".as_ptr(),
            parameter.as_ptr(),
        )
    }
}

/// A parameter that all OFI components of the host share.
struct Shared {
    parameter: &'static CStr,
    help: &'static CStr,
    kind: c_int,
    flags: c_int,
    level: c_int,
    scope: c_int,
    storage: *mut c_void,
}

/// Registers a shared parameter, if nobody has yet, and our names for it.
fn share(name: Name, shared: &Shared) {
    let host = Services::host();
    let mut index = find(shared.parameter);
    if index < 0 {
        // SAFETY: all texts are literals, the storage is static and of the stated type.
        index = unsafe {
            (host.var_register)(
                c"opal".as_ptr(),
                c"opal_common".as_ptr(),
                c"ofi".as_ptr(),
                shared.parameter.as_ptr(),
                shared.help.as_ptr(),
                shared.kind,
                ptr::null_mut(),
                0,
                shared.flags,
                shared.level,
                shared.scope,
                shared.storage,
            )
        };
    }
    for owner in [Name::Ofi, name] {
        // SAFETY: literals.
        let known = unsafe {
            (host.var_find)(
                c"ompi".as_ptr(),
                c"mtl".as_ptr(),
                owner.text().as_ptr(),
                shared.parameter.as_ptr(),
            )
        };
        if known < 0 {
            // SAFETY: a registered parameter and literals.
            unsafe {
                (host.var_synonym)(
                    index,
                    c"ompi".as_ptr(),
                    c"mtl".as_ptr(),
                    owner.text().as_ptr(),
                    shared.parameter.as_ptr(),
                    0,
                )
            };
        }
    }
}

/// The address of the value of a parameter; null when there is none.
fn value(index: c_int) -> *const c_void {
    let mut value: *const c_void = ptr::null();
    // SAFETY: the callee stores the address of the parameter's storage, or refuses the index.
    let code =
        unsafe { (Services::host().var_get_value)(index, &raw mut value, ptr::null_mut(), ptr::null_mut()) };
    if code == 0 { value } else { ptr::null() }
}

/// The value of an integer parameter.
pub(super) fn number(index: c_int) -> c_int {
    // SAFETY: null, or the storage of an integer parameter.
    unsafe { value(index).cast::<c_int>().as_ref() }.copied().unwrap_or(0)
}

/// The value of a text parameter.
pub(super) fn text(index: c_int) -> Option<String> {
    // SAFETY: null, or the storage of a string parameter, which holds one pointer.
    let string = unsafe { value(index).cast::<*const c_char>().as_ref() }.copied()?;
    // SAFETY: null, or the zero-ended text that the host keeps as the parameter's value.
    unsafe { foreign::text(string) }
}

/// Whether the user wants to know what is chosen and why.
pub(super) fn is_verbose() -> bool {
    // SAFETY: literals.
    let framework = unsafe {
        (Services::host().var_find)(c"ompi".as_ptr(), c"mtl".as_ptr(), c"base".as_ptr(), c"verbose".as_ptr())
    };
    number(find(c"verbose")) > 0 || number(framework) > 0
}

/// Whether the user asked for this component by its name, as `--mca mtl ofi` does.
pub(super) fn is_asked_for(name: Name) -> bool {
    // SAFETY: literals; the parameter that selects components has no name of its own.
    let selection =
        unsafe { (Services::host().var_find)(c"ompi".as_ptr(), c"mtl".as_ptr(), ptr::null(), ptr::null()) };
    let own = name.text().to_str().unwrap_or_default();
    text(selection).is_some_and(|list| list.split(',').any(|word| word.trim() == own))
}

/// The priority that the user gave.
pub(super) fn priority(name: Name) -> c_int {
    values(name).integers[PRIORITY].load(Ordering::Relaxed)
}

/// The parameters as the transport sees them; a value out of range is refused with a reason.
pub(super) fn config(name: Name) -> Result<config::Ofi, String> {
    let own = values(name);
    let values = own.integers.each_ref().map(|value| value.load(Ordering::Relaxed));
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
            Err(format!(
                "{prefix}{} is {value}; it must be {low} to {high}",
                INTEGERS[index].name.to_string_lossy()
            ))
        }
    };
    let scalable = range(SEP, 0, 1)? == 1;
    let grouping = range(GROUPING, 0, 1)? == 1;
    if grouping && !scalable {
        return Err(format!("{prefix}thread_grouping needs {prefix}enable_sep; set both or neither"));
    }
    Ok(config::Ofi {
        include: text(find(c"provider_include")).map(|list| NameList::parse(&list)),
        exclude: NameList::parse(&text(find(c"provider_exclude")).unwrap_or_default()),
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
        device: !own.disable_hmem.load(Ordering::Relaxed),
    })
}
