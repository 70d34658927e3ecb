//! What the host does with a component before it has a module: register, open, query, init.
//!
//! Everything that can fail is done in `query`: the host has no second choice once it has selected.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::abi::Abi;
use super::guard::guard_early;
use super::mtl::{ACTIVE, code};
use super::params::{self, Name};
use super::services::{say, show_help, threads};
use super::sys::MtlModule;
use super::tables::{self, Table};
use crate::config;
use crate::error::Error;
use crate::fabric::Library;
use crate::mtl::ofi::{self, Offer, Ofi, Refusal};

/// What the host must know of an open transport.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) layout: config::TagMode,
    pub(super) max_context: u32,
    pub(super) max_tag: i32,
    pub(super) request_size: usize,
}

/// The module that `query` made and `init` will hand over, by the component's name.
static OFFERED: Mutex<Option<(Name, Offered)>> = Mutex::new(None);

struct Offered {
    module: *mut c_void,
    name: Vec<u8>,
    reaches_devices: bool,
    discard: unsafe fn(*mut c_void),
}

// SAFETY: a boxed module that nobody has yet.
unsafe impl Send for Offered {}

const NOT_AVAILABLE: c_int = -16;
const SUCCESS: c_int = 0;

pub(super) fn register<A: Abi>(name: Name) -> c_int {
    guard_early("mtl", "register", NOT_AVAILABLE, || params::register(name, A::default_exclude(), A::DEVICE))
}

/// The host begins to use the component; nothing is done before `query`.
pub(super) fn open() -> c_int {
    guard_early("mtl", "open", NOT_AVAILABLE, || SUCCESS)
}

/// Whether the user asked for this transport or for a provider, so that silence would be wrong.
fn is_wanted(name: Name, config: &config::Ofi) -> bool {
    config.include.as_ref().is_some_and(|list| !list.is_empty()) || params::is_asked_for(name)
}

/// Opens the best endpoint there is and offers it, or declines.
///
/// # Safety
/// `module` and `priority` are the host's, to be written.
pub(super) unsafe fn query<A: Table>(name: Name, module: *mut *mut c_void, priority: *mut c_int) -> c_int {
    guard_early("mtl", "query", NOT_AVAILABLE, || {
        // SAFETY: the host's variable.
        unsafe { module.write(ptr::null_mut()) };
        let mut offered = OFFERED.lock();
        if offered.is_some() {
            // The same transport under its other name.
            return NOT_AVAILABLE;
        }
        match endpoint::<A>(name) {
            Ok(made) => {
                // SAFETY: the host's variable. It only wants to see that there is a module.
                unsafe { module.write(made.module) };
                // SAFETY: the host's variable.
                unsafe { priority.write(params::priority(name)) };
                *offered = Some((name, made));
                SUCCESS
            }
            Err(Refusal::NoneSuitable(why)) => {
                if params::is_verbose() {
                    say(&format!("mtl:{}: not used: {why}", name.text().to_string_lossy()));
                }
                NOT_AVAILABLE
            }
            Err(Refusal::Wish(why)) => {
                show_help("not used", &why);
                NOT_AVAILABLE
            }
        }
    })
}

fn endpoint<A: Table>(name: Name) -> Result<Offered, Refusal> {
    let config = params::config(name).map_err(Refusal::Wish)?;
    let wish =
        |why: String| if is_wanted(name, &config) { Refusal::Wish(why) } else { Refusal::NoneSuitable(why) };
    let library = Library::open().map_err(|missing| wish(missing.0))?;
    let facts = A::facts();
    let needs = ofi::Needs { threads: threads(), untagged: A::GROUP_COMMUNICATORS };
    let list = ofi::candidates(library, &config, needs).map_err(|error| match error {
        Error::NotFound => wish("no libfabric provider here has tagged messages over reliable datagrams; `fi_info` lists what there is".to_owned()),
        error => wish(format!("libfabric could not list its providers: {error}")),
    })?;
    let offer =
        ofi::select(&list, &config, facts.local_rank, facts.universe).map_err(|refusal| match refusal {
            Refusal::NoneSuitable(why) => {
                wish(format!("{why}; name one in mtl_ofi_provider_include to use it all the same"))
            }
            other => other,
        })?;
    let describe = |error: Error| match error {
        Error::Fabric(code) => library.describe(code),
        other => other.to_string(),
    };
    let provider = offer.info.provider().to_owned();
    if config.scalable && !offer.info.is_scalable() {
        return Err(Refusal::Wish(format!(
            "the provider {provider} has no scalable endpoints, which mtl_{}_enable_sep asks for; leave the parameter out, or choose another provider with mtl_ofi_provider_include",
            name.text().to_string_lossy()
        )));
    }
    let devices = (config.device && A::has_devices())
        .then(|| ofi::reaching_devices(library, &config, needs, &offer))
        .flatten();
    let open = |offer: &Offer<'_>| Ofi::<A>::open(offer, &config, facts.universe);
    let reaching = devices.as_ref().and_then(|found| open(&offer.with_devices(found)?).ok());
    let ofi = reaching.map_or_else(|| open(&offer), Ok).map_err(|error| {
        Refusal::Wish(format!("the endpoint of provider {provider} on {} cannot be opened: {}; choose another provider with mtl_ofi_provider_include", offer.info.domain(), describe(error)))
    })?;
    let endpoint_name = ofi.name().map_err(|error| {
        Refusal::Wish(format!("provider {provider} gives its endpoint no name: {}", describe(error)))
    })?;
    if params::is_verbose() {
        // HOST: the stock component prints the provider in this form (mtl_ofi_component.c), and people look for it.
        say(&format!("mtl:{}:prov: {provider} on {}", name.text().to_string_lossy(), offer.info.domain()));
        if ofi.reaches_devices() {
            say(&format!("mtl:{}: {provider} reaches device memory itself", name.text().to_string_lossy()));
        }
    }
    let limits = Limits {
        layout: offer.layout,
        max_context: offer.max_context,
        max_tag: offer.max_tag,
        request_size: ofi::operation_size::<A>(),
    };
    unsafe fn discard<A: Table>(module: *mut c_void) {
        // SAFETY: made by `tables::module`, which boxes a whole shell; handed out to nobody.
        drop(unsafe { Box::from_raw(module.cast::<super::mtl::Shell<A>>()) });
    }
    let reaches_devices = ofi.reaches_devices();
    let module = tables::module(ofi, limits).cast();
    Ok(Offered { module, name: endpoint_name, reaches_devices, discard: discard::<A> })
}

/// Hands the module over that `query` made, and says whether it reaches device memory.
///
/// # Safety
/// `reaches_devices` is null or the host's, to be written.
pub(super) unsafe fn init<A: Table>(name: Name, reaches_devices: *mut bool) -> *mut MtlModule {
    guard_early("mtl", "init", ptr::null_mut(), || {
        let Some((_, made)) = OFFERED.lock().take_if(|(offered, _)| *offered == name) else {
            return ptr::null_mut();
        };
        if let Err(error) = A::publish(&made.name) {
            show_help(
                "peer unreachable",
                &format!("the endpoint's name cannot be published to the job ({error}, {})", code(error)),
            );
            // SAFETY: not handed over.
            unsafe { (made.discard)(made.module) };
            return ptr::null_mut();
        }
        if !reaches_devices.is_null() {
            // SAFETY: the host's variable, which only its own transports read (ompi/mca/mtl/base).
            unsafe { reaches_devices.write(made.reaches_devices) };
        }
        ACTIVE.store(made.module, Ordering::Release);
        made.module.cast()
    })
}

/// The host drops the component: what was offered and not taken is closed.
pub(super) fn close(name: Name) -> c_int {
    guard_early("mtl", "close", SUCCESS, || {
        if let Some((_, made)) = OFFERED.lock().take_if(|(offered, _)| *offered == name) {
            // SAFETY: never handed over.
            unsafe { (made.discard)(made.module) };
        }
        SUCCESS
    })
}

/// Writes a zero-ended text into a field of a component structure, which is zero before.
pub(super) fn text_into(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// The library's version, which the host lists as a component's.
pub(super) fn hawser_version() -> [i32; 3] {
    let number = |text: &str| text.parse().unwrap_or(0);
    [
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    ]
}
