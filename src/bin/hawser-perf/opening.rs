//! A transport's component, by its name: found, opened, and told its parameters. What of a command line it does not take
//! is known by [`prove`], before anybody else is asked.

use std::ffi::{CStr, CString};
use std::rc::Rc;

use hawser::capi::abi::{BtlComponent, HAWSER_ABI, Host};
use hawser::capi::code::HAWSER_ERR_PARAMETER;
use hawser::capi::mtl::abi::MtlComponent;
use hawser::capi::{hawser_btl_find, hawser_mtl_find};

use crate::bytes::Bytes;
use crate::caller::Caller;
use crate::inbox::Inbox;
use crate::matching::{self, Matching};
use crate::parameters;
use crate::plan::{Operation, Plan};

/// The functions that the components of both kinds have.
pub(crate) struct Calls {
    open: unsafe extern "C" fn(host: *const Host) -> i32,
    register_parameters: unsafe extern "C" fn() -> i32,
    progress: unsafe extern "C" fn() -> i32,
    close: unsafe extern "C" fn() -> i32,
}

/// What a transport has of its kind.
pub(crate) enum Way {
    Bytes(Bytes),
    Matching(Matching),
}

/// The byte transport of a name.
fn find_bytes(name: &CStr) -> Option<&'static BtlComponent> {
    // SAFETY: a text that ends with zero.
    let component = unsafe { hawser_btl_find(name.as_ptr()) };
    // SAFETY: NULL, or a table that lives as long as the process.
    unsafe { component.as_ref() }
}

/// The matching transport of a name.
fn find_matching(name: &CStr) -> Option<&'static MtlComponent> {
    // SAFETY: a text that ends with zero.
    let component = unsafe { hawser_mtl_find(name.as_ptr()) };
    // SAFETY: NULL, or a table that lives as long as the process.
    unsafe { component.as_ref() }
}

/// The transport that is planned.
pub(crate) fn find(plan: &Plan, inbox: &Rc<Inbox>) -> Result<(Calls, Way), String> {
    let name = c(&plan.transport)?;
    let (abi, calls, way) = if let Some(found) = find_bytes(&name) {
        let BtlComponent { open, register_parameters, progress, close, .. } = *found;
        (found.abi, Calls { open, register_parameters, progress, close }, Way::Bytes(Bytes::new(found)))
    } else if let Some(found) = find_matching(&name) {
        let MtlComponent { open, register_parameters, progress, close, .. } = *found;
        let way = Way::Matching(Matching::new(found, inbox, plan.window));
        (found.abi, Calls { open, register_parameters, progress, close }, way)
    } else {
        return Err(format!(
            "-t {}: there is no such transport; take smcuda, usnic, verbs or ofi",
            plan.transport
        ));
    };
    if abi != HAWSER_ABI {
        return Err("the library has another interface: install both of one version".to_owned());
    }
    Ok((calls, way))
}

fn c(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("{text:?} has a zero in it"))
}

/// Parameters as the caller's function hands them out.
pub(crate) fn settings(all: &[(String, String)]) -> Result<Vec<(CString, CString)>, String> {
    all.iter().map(|(name, value)| Ok((c(name)?, c(value)?))).collect()
}

impl Calls {
    /// Opens the component. The caller lives where it is until [`close`](Self::close).
    pub(crate) fn open(&self, transport: &str, name: u64, caller: &Caller) -> Result<(), String> {
        let node = CString::new(crate::node()).unwrap_or_default();
        let host = caller.table(name, &node);
        // SAFETY: a whole table; its functions have their types, and the caller lives until `close`.
        let code = unsafe { (self.open)(&host) };
        caller.check(transport, "cannot be opened", code).map(drop)
    }

    /// Tells the open component its parameters. All that are set must be its own.
    pub(crate) fn register(&self, transport: &str, caller: &Caller) -> Result<(), String> {
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.register_parameters)() };
        if code == HAWSER_ERR_PARAMETER {
            // The line says which.
            return Err(format!("--set {}", caller.said()));
        }
        caller.check(transport, "does not take its parameters", code)?;
        let declared = caller.declared.take();
        match caller.settings.iter().find(|(name, _)| !declared.contains(name)) {
            Some((name, _)) => Err(parameters::stranger(&name.to_string_lossy(), transport)),
            None => Ok(()),
        }
    }

    /// One pass of progress; returns its code.
    #[inline]
    pub(crate) fn progress(&self) -> i32 {
        // SAFETY: nothing is asked of the caller.
        unsafe { (self.progress)() }
    }

    /// Closes what [`open`](Self::open) has opened.
    pub(crate) fn close(&self) {
        // SAFETY: nothing is asked of the caller; no other call runs.
        unsafe { (self.close)() };
    }
}

/// Whether there is such a transport, and it has what the plan and the settings ask for, as far as that is no question of
/// the machine.
pub(crate) fn prove(plan: &Plan, set: &[(String, String)], device: Option<&str>) -> Result<(), String> {
    let (calls, way) = find(plan, &Rc::default())?;
    if matches!(way, Way::Matching(_)) {
        if plan.operation != Operation::Send {
            return Err(plan.without(matching::REFUSAL));
        }
        if device.is_some() {
            return Err(matching::NO_MODULES.to_owned());
        }
    }
    let caller = Box::new(Caller::new(settings(set)?, false));
    calls.open(&plan.transport, 1, &caller)?;
    let outcome = calls.register(&plan.transport, &caller);
    calls.close();
    outcome
}
