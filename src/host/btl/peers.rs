//! Which module talks to which address of a peer: found out once for all modules, when the first is
//! told of the peer.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::component::{KEY, Own, modules, name_of};
use super::shell::{Shell, title};
use super::sys::BtlProc;
use super::{BtlAbi, map, params};
use crate::btl::usnic::{self, EndpointId, Place, Side, place, same_kind};
use crate::error::Error;
use crate::host::services::show_help;
use crate::wire::card::{self, Address};

/// What was found out about a peer.
struct Pairing {
    /// For each module the address that it talks to.
    to: Vec<Option<Address>>,
    /// Modules that have not asked yet.
    waiting: usize,
}

/// Peers of which not every module has been told.
static PAIRINGS: Mutex<Option<HashMap<u64, Pairing>>> = Mutex::new(None);

/// The endpoint through which this module reaches a process; `None` when it does not.
pub(super) fn meet<A: BtlAbi>(shell: &Shell<A>, proc: *mut BtlProc) -> Option<EndpointId> {
    // SAFETY: a live process of the host's.
    let name = unsafe { name_of(proc) };
    if name == Own::own_name() {
        return None;
    }
    let module =
        modules().iter().position(|module| module.cast_const().cast() == std::ptr::from_ref(shell))?;
    let address = known(name, module).unwrap_or_else(|| {
        // The host is asked, which may call us again: nothing is locked meanwhile.
        let to = pair::<A>(name, proc);
        let address = to.get(module).cloned().flatten();
        let waiting = modules().len() - 1;
        if waiting > 0 {
            PAIRINGS.lock().get_or_insert_default().insert(name, Pairing { to, waiting });
        }
        address
    })?;
    match shell.core.connect(name, &address) {
        Ok(endpoint) => {
            map::note_way(name, &shell.device, place(&address.name));
            Some(endpoint)
        }
        Err(error) => {
            complain(shell, name, &address, error);
            None
        }
    }
}

/// What is known already, once for each module.
fn known(name: u64, module: usize) -> Option<Option<Address>> {
    let mut pairings = PAIRINGS.lock();
    let pairings = pairings.as_mut()?;
    let pairing = pairings.get_mut(&name)?;
    let address = pairing.to.get(module).cloned().flatten();
    pairing.waiting -= 1;
    if pairing.waiting == 0 {
        pairings.remove(&name);
    }
    Some(address)
}

/// Pairs our modules with a peer's addresses; tells the user where that is not possible.
fn pair<A: BtlAbi>(name: u64, proc: *mut BtlProc) -> Vec<Option<Address>> {
    // Who has no card does not use this transport.
    let Ok(card) = A::published_under(KEY, name) else { return Vec::new() };
    let all: Vec<&Shell<A>> = modules()
        .iter()
        // SAFETY: live modules of this version.
        .map(|&module| unsafe { &*module.cast::<Shell<A>>() })
        .collect();
    let ours: Vec<_> = all.iter().map(|shell| shell.core.address().clone()).collect();
    // SAFETY: a live process of the host's.
    let host = unsafe { A::host_name(proc) };
    let Some(theirs) = card::parse(&card) else {
        mismatch(name, host.as_deref(), "published addresses of another version");
        return Vec::new();
    };
    let places: Vec<Place> = theirs.iter().filter_map(|address| place(&address.name)).collect();
    let host = host.unwrap_or_else(|| places.first().map_or_else(String::new, Place::to_string));
    map::note_peer(name, &host);
    let side = if Own::own_name() < name { Side::First } else { Side::Second };
    let pairs = usnic::pair(&ours, &theirs, side, |mine, address| all[mine].core.distance(address));
    if pairs.iter().all(Option::is_none) {
        let speaks = |mine: &Address| theirs.iter().any(|address| same_kind(&mine.name, &address.name));
        let here = |place: &Place| {
            ours.iter().any(|mine| self::place(&mine.name).is_some_and(|own| own.host == place.host))
        };
        if !ours.iter().any(speaks) {
            mismatch(name, Some(&host), "has no link of the same kind and version (btl_usnic_link)");
        } else if params::shows_unreachable() && !places.iter().any(here) {
            let own: Vec<String> = all.iter().map(|shell| shell.describe()).collect();
            let far: Vec<String> = places.iter().map(Place::to_string).collect();
            show_help(
                "unreachable peer IP",
                &format!(
                    "btl_usnic: from {} ({}) there is no way to {} on {host} ({})",
                    Own::own_host::<A>(),
                    own.join(", "),
                    title(name),
                    far.join(", ")
                ),
            );
        }
    }
    pairs.into_iter().map(|pair| pair.map(|index| theirs[index].clone())).collect()
}

fn mismatch(name: u64, host: Option<&str>, what: &str) {
    let on = host.map_or_else(String::new, |host| format!(" on {host}"));
    show_help("transport mismatch", &format!("btl_usnic: {}{on} {what}", title(name)));
}

/// Tells the user why there is no connection to an address that is there.
fn complain<A>(shell: &Shell<A>, name: u64, address: &Address, error: Error) {
    let to = place(&address.name).map_or_else(String::new, |place| format!(" at {place}"));
    let (from, whom) = (shell.describe(), title(name));
    let (ours, theirs) = (shell.core.facts().max_datagram, address.max_datagram);
    match error {
        Error::BadParameter => show_help(
            "MTU mismatch",
            &format!(
                "btl_usnic: {from} takes datagrams of {ours} bytes and {whom}{to} of {theirs}; the shorter one is too short"
            ),
        ),
        Error::Fabric(_) => show_help(
            "libfabric API failed",
            &format!("btl_usnic: libfabric knows no way from {from} to {whom}{to}: {error}"),
        ),
        _ => show_help(
            "internal error after init",
            &format!("btl_usnic: {from} cannot connect to {whom}{to}: {error}"),
        ),
    }
}
