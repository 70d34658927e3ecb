//! The parameters of the OFI MTL, registered with the host under either component name.
//!
//! Names and defaults are the C component's. The provider lists belong to the host's `opal_common_ofi`
//! and are shared with its own OFI components; here they are registered if nobody has done it yet.
//! Under the name `hawser`, a value that the user gave for `mtl_ofi_*` is the default.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use super::component::Offered;
use super::{Listed, MtlAbi, owner};
use crate::config;
use crate::host::abi::Abi as _;
use crate::host::listing::{Setting, Words, text};
use crate::host::params::{self, Names, Owner, Parameter, Registered, Storage};
use crate::host::v5_0::V5_0;
use crate::mtl::ofi::Component;
use crate::mtl::ofi::parameters::{
    COUNT, EXCLUDE_NAME, Given, INCLUDE_HELP, INCLUDE_NAME, INTEGERS, PRIORITY,
};

/// The values of one component name. The host keeps their addresses and writes them while it
/// registers.
struct Stored {
    integers: [AtomicI32; COUNT],
    disable_hmem: AtomicBool,
}

impl Stored {
    const fn new() -> Self {
        Self { integers: [const { AtomicI32::new(0) }; COUNT], disable_hmem: AtomicBool::new(false) }
    }
}

static OFI: Stored = Stored::new();
static HAWSER: Stored = Stored::new();
static INCLUDE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static EXCLUDE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static VERBOSE: AtomicI32 = AtomicI32::new(0);

/// The host's own component, in whose place ours is under this name.
const STOCK: &CStr = c"ofi";

fn values(name: &CStr) -> &'static Stored {
    if name == STOCK { &OFI } else { &HAWSER }
}

const DISABLE_HMEM: Words = Words { name: c"disable_hmem", help: c"Do not ask the provider to send and receive device memory itself (FI_HMEM); such buffers are then copied through host memory", level: 2 };
const PROVIDER_INCLUDE: Words = Words { name: INCLUDE_NAME, help: INCLUDE_HELP, level: 0 };
const PROVIDER_EXCLUDE: Words = Words { name: EXCLUDE_NAME, help: c"libfabric providers not to use, separated by commas; an empty list allows all. The default names those that only repeat what Open MPI does better itself", level: 0 };
const VERBOSITY: Words = Words {
    name: c"verbose",
    help: c"Verbosity of the OFI components: from 1 on they say which provider was chosen, or why none was",
    level: 2,
};

/// What all OFI components of the host share.
const SHARED: Owner<'static> = Owner { project: c"opal", framework: c"opal_common", component: c"ofi" };

impl Listed for Component {
    fn offered() -> &'static Offered {
        static OFFERED: Offered = Offered::new();
        &OFFERED
    }

    fn register<A: MtlAbi>(name: &'static CStr) {
        register_own(STOCK, None, A::DEVICE);
        if name != STOCK {
            register_own(name, Some(&OFI), A::DEVICE);
        }
        let exclude = CString::new(A::default_exclude()).unwrap_or_default();
        // Once registered, the storage is the host's: it holds texts that the host made and frees.
        if params::find(SHARED, INCLUDE_NAME).is_none() {
            INCLUDE.store(ptr::null_mut(), Ordering::Relaxed);
        }
        if params::find(SHARED, EXCLUDE_NAME).is_none() {
            // The host copies the default before it returns.
            EXCLUDE.store(exclude.as_ptr().cast_mut(), Ordering::Relaxed);
        }
        let shared = |words: Words, settable, storage| {
            let Words { name: parameter, help, level } = words;
            share(name, &Parameter { name: parameter, help, level, settable, storage, names: Names::NONE });
        };
        shared(PROVIDER_INCLUDE, false, Storage::Text(&INCLUDE));
        shared(PROVIDER_EXCLUDE, false, Storage::Text(&EXCLUDE));
        shared(VERBOSITY, true, Storage::Signed(&VERBOSE));
    }

    fn list(name: &'static CStr) -> Vec<Setting> {
        let integers = INTEGERS.iter().map(|integer| {
            let named = |value: i32| integer.names.iter().find(|(known, _)| *known == value);
            let default =
                named(integer.default).map_or_else(|| integer.default.to_string(), |(_, name)| text(name));
            let words = Words { name: integer.name, help: integer.help, level: integer.level };
            let values = integer.names.iter().map(|(_, name)| text(name)).collect();
            Setting { values, ..words.setting("int", Some(default)) }
        });
        let device = Setting { only: Some("5.0"), ..DISABLE_HMEM.setting("bool", Some("false".to_owned())) };
        let shared = [
            PROVIDER_INCLUDE.setting("text", None),
            PROVIDER_EXCLUDE.setting("text", Some(V5_0::default_exclude().to_owned())),
            VERBOSITY.setting("int", Some("0".to_owned())),
        ];
        let is_stock = name == STOCK;
        let other = |setting: &Setting| (!is_stock).then(|| format!("mtl_ofi_{}", setting.name));
        let own = integers
            .chain([device])
            .map(|setting| Setting { otherwise: other(&setting).into_iter().collect(), ..setting });
        let shared = shared.into_iter().map(|setting| {
            let common = format!("opal_common_ofi_{}", setting.name);
            Setting { otherwise: other(&setting).into_iter().chain([common]).collect(), ..setting }
        });
        own.chain(shared).collect()
    }

    fn priority(name: &'static CStr) -> c_int {
        values(name).integers[PRIORITY].load(Ordering::Relaxed)
    }

    fn is_verbose() -> bool {
        // HOST: what another library had registered here is not taken back when 4.1 unloads that library, as after
        // `MPI_T_init_thread`.
        params::find(SHARED, c"verbose").is_some_and(|verbose| verbose.is_loaded() && verbose.number() > 0)
    }

    fn config(name: &'static CStr) -> Result<config::Ofi, String> {
        config(name)
    }
}

/// Registers what belongs to one component name. `defaults` holds the values of the other name.
fn register_own(name: &'static CStr, defaults: Option<&Stored>, device: bool) {
    let own = values(name);
    let add = |name_of: &CStr, help: &CStr, level, storage, names| {
        params::register(
            owner(name),
            &Parameter { name: name_of, help, level, settable: false, storage, names },
        );
    };
    for (index, integer) in INTEGERS.iter().enumerate() {
        let default = defaults.map_or(integer.default, |from| from.integers[index].load(Ordering::Relaxed));
        own.integers[index].store(default, Ordering::Relaxed);
        let names = match integer.names {
            [] => Names::NONE,
            values => Names::new(integer.name, values),
        };
        add(integer.name, integer.help, integer.level, Storage::Signed(&own.integers[index]), names);
    }
    if device {
        own.disable_hmem
            .store(defaults.is_some_and(|from| from.disable_hmem.load(Ordering::Relaxed)), Ordering::Relaxed);
        let Words { name, help, level } = DISABLE_HMEM;
        add(name, help, level, Storage::Flag(&own.disable_hmem), Names::NONE);
    }
}

/// Registers a shared parameter, if nobody has yet, and our names for it.
fn share(name: &'static CStr, shared: &Parameter<'_>) {
    let known = params::find(SHARED, shared.name).unwrap_or_else(|| params::register(SHARED, shared));
    for owner in [owner(STOCK), owner(name)] {
        if params::find(owner, shared.name).is_none() {
            known.add_synonym(owner, shared.name);
        }
    }
}

/// The parameters as the transport sees them; a value out of range is refused with a reason.
fn config(name: &'static CStr) -> Result<config::Ofi, String> {
    let own = values(name);
    let text = |name| params::find(SHARED, name).and_then(Registered::text);
    let given = Given {
        integers: own.integers.each_ref().map(|value| value.load(Ordering::Relaxed)),
        include: text(INCLUDE_NAME),
        exclude: text(EXCLUDE_NAME).unwrap_or_default(),
        disable_hmem: own.disable_hmem.load(Ordering::Relaxed),
    };
    given.config(&format!("mtl_{}_", name.to_string_lossy()))
}
