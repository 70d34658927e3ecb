//! Which module talks to which address of a peer: found out once for all modules, when the first is
//! told of the peer.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::component::Usnic;
use super::reports::title;
use super::{EndpointId, KEY, Place, Side, pair, parameters, place, same_kind};
use crate::btl::{Host, Peer};
use crate::error::Error;
use crate::wire::modex::{self, Address};

/// What was found out about a peer.
struct Pairing {
    /// For each module the address that it talks to.
    to: Vec<Option<Address>>,
    /// Modules that have not asked yet.
    waiting: usize,
}

/// Peers of which not every module has been told.
#[derive(Default)]
pub(super) struct Pairings(Mutex<HashMap<u64, Pairing>>);

/// The endpoint through which the module `all[own]` reaches a process; `None` when it does not.
pub(super) fn meet(all: &[&Usnic], own: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId> {
    let name = peer.name();
    if name == host.name() {
        return None;
    }
    let module = *all.get(own)?;
    let pairings = &module.shared.pairings;
    let address = pairings.known(name, own).unwrap_or_else(|| {
        // The host is asked, which may call us again: nothing is locked meanwhile.
        let to = pair_with(all, peer, host);
        let address = to.get(own).cloned().flatten();
        let waiting = all.len() - 1;
        if waiting > 0 {
            pairings.0.lock().insert(name, Pairing { to, waiting });
        }
        address
    })?;
    match module.core.connect(name, &address) {
        Ok(endpoint) => {
            module.shared.map.note_way(name, &module.device, place(&address.name));
            Some(endpoint)
        }
        Err(error) => {
            complain(module, name, &address, error, host);
            None
        }
    }
}

impl Pairings {
    /// What is known already, once for each module.
    fn known(&self, name: u64, module: usize) -> Option<Option<Address>> {
        let mut pairings = self.0.lock();
        let pairing = pairings.get_mut(&name)?;
        let address = pairing.to.get(module).cloned().flatten();
        pairing.waiting -= 1;
        if pairing.waiting == 0 {
            pairings.remove(&name);
        }
        Some(address)
    }
}

/// Pairs our modules with a peer's addresses; tells the user where that is not possible.
fn pair_with(all: &[&Usnic], peer: &impl Peer, host: &impl Host) -> Vec<Option<Address>> {
    let name = peer.name();
    // Who has no modex record does not use this transport.
    let Ok(record) = host.published(KEY, name) else { return Vec::new() };
    let ours: Vec<_> = all.iter().map(|shell| shell.core.address().clone()).collect();
    let node = peer.node();
    let Some(theirs) = modex::parse(&record) else {
        mismatch(name, node.as_deref(), "published addresses of another version", host);
        return Vec::new();
    };
    let places: Vec<Place> = theirs.iter().filter_map(|address| place(&address.name)).collect();
    let node = node.unwrap_or_else(|| places.first().map_or_else(String::new, Place::to_string));
    if let Some(module) = all.first() {
        module.shared.map.note_peer(name, &node);
    }
    let side = if host.name() < name { Side::First } else { Side::Second };
    let pairs = pair(&ours, &theirs, side, |mine, address| all[mine].core.distance(address));
    if pairs.iter().all(Option::is_none) {
        let speaks = |mine: &Address| theirs.iter().any(|address| same_kind(&mine.name, &address.name));
        let here = |place: &Place| {
            ours.iter().any(|mine| super::place(&mine.name).is_some_and(|own| own.host == place.host))
        };
        if !ours.iter().any(speaks) {
            mismatch(name, Some(&node), "has no link of the same kind and version (btl_usnic_link)", host);
        } else if parameters::shows_unreachable() && !places.iter().any(here) {
            let own: Vec<String> = all.iter().map(|module| module.title()).collect();
            let far: Vec<String> = places.iter().map(Place::to_string).collect();
            host.notice(
                "unreachable peer IP",
                &format!(
                    "btl_usnic: from {} ({}) there is no way to {} on {node} ({})",
                    host.node(),
                    own.join(", "),
                    title(name),
                    far.join(", ")
                ),
            );
        }
    }
    pairs.into_iter().map(|pair| pair.map(|index| theirs[index].clone())).collect()
}

fn mismatch(name: u64, node: Option<&str>, what: &str, host: &impl Host) {
    let on = node.map_or_else(String::new, |node| format!(" on {node}"));
    host.notice("transport mismatch", &format!("btl_usnic: {}{on} {what}", title(name)));
}

/// Tells the user why there is no connection to an address that is there.
fn complain(module: &Usnic, name: u64, address: &Address, error: Error, host: &impl Host) {
    let to = place(&address.name).map_or_else(String::new, |place| format!(" at {place}"));
    let (from, whom) = (module.title(), title(name));
    let (ours, theirs) = (module.core.facts().max_datagram, address.max_datagram);
    match error {
        Error::BadParameter => host.notice(
            "MTU mismatch",
            &format!(
                "btl_usnic: {from} takes datagrams of {ours} bytes and {whom}{to} of {theirs}; the shorter one is too short"
            ),
        ),
        Error::Fabric(_) => host.notice(
            "libfabric API failed",
            &format!("btl_usnic: libfabric knows no way from {from} to {whom}{to}: {error}"),
        ),
        _ => host.notice(
            "internal error after init",
            &format!("btl_usnic: {from} cannot connect to {whom}{to}: {error}"),
        ),
    }
}
