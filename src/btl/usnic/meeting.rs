//! Which module talks to which address of a peer: found out once for all modules, when the first is
//! told of the peer.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::component::Usnic;
use super::reports::title;
use super::{EndpointId, KEY, Place, Side, pair, parameters, place, same_kind};
use crate::btl::{Host, Peer};
use crate::error::Error;
use crate::wire::modex::{self, Address, Protection};

/// Which of the modules that were opened together a module is: what stays when others end.
pub(super) type Rail = usize;

/// What was found out about a peer, for modules that have not asked yet: for each the address that it talks
/// to, if any.
type Pairing = HashMap<Rail, Option<Address>>;

/// Peers of which not every module has been told, by name.
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
    let address = pairings.take(name, module.rail).unwrap_or_else(|| {
        // The host is asked, which may call us again: nothing is locked meanwhile.
        let found = all.iter().map(|module| module.rail).zip(pair_with(all, peer, host));
        pairings.keep(name, module.rail, found.collect())
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
    /// What was found out for a module before, once.
    fn take(&self, name: u64, rail: Rail) -> Option<Option<Address>> {
        let mut pairings = self.0.lock();
        let pairing = pairings.get_mut(&name)?;
        let found = pairing.remove(&rail);
        if pairing.is_empty() {
            pairings.remove(&name);
        }
        found
    }

    /// Keeps for the other modules what has been found out, and says what it is for this one.
    fn keep(&self, name: u64, rail: Rail, mut pairing: Pairing) -> Option<Address> {
        let own = pairing.remove(&rail).flatten();
        if !pairing.is_empty() {
            self.0.lock().insert(name, pairing);
        }
        own
    }
}

/// Pairs our modules with a peer's addresses, for each one or none; tells the user where that is not possible.
fn pair_with(all: &[&Usnic], peer: &impl Peer, host: &impl Host) -> Vec<Option<Address>> {
    let name = peer.name();
    // Who has no modex record does not use this transport.
    let Ok(record) = host.published(KEY, name) else { return vec![None; all.len()] };
    let ours: Vec<_> = all.iter().map(|shell| shell.core.address().clone()).collect();
    let node = peer.node();
    let Some(theirs) = modex::parse(&record) else {
        mismatch(name, node.as_deref(), "published addresses of another version", host);
        return vec![None; all.len()];
    };
    let own = ours.first().map_or(Protection::NONE, |mine| mine.protection);
    if let Some(other) = theirs.iter().find(|address| address.protection != own) {
        mismatch(name, node.as_deref(), &differently(own, other.protection), host);
        return vec![None; all.len()];
    }
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

/// What to say of a peer that does not protect its packets as we do.
fn differently(ours: Protection, theirs: Protection) -> String {
    let text = |protection| match protection {
        Protection::NONE => "0",
        Protection::AES_128_GCM => "1",
        _ => "another algorithm",
    };
    format!(
        "protects payload differently (btl_usnic_protect_payload: {} there, {} here); all processes of a job must agree",
        text(theirs),
        text(ours)
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use std::cell::RefCell;
    use std::ffi::CStr;

    fn address(name: u8) -> Option<Address> {
        let name = vec![name];
        let protection = Protection::NONE;
        Some(Address {
            incarnation: 1,
            key: [0; 16],
            max_datagram: 1472,
            speed: 10,
            protection,
            name,
            agent: None,
        })
    }

    const PEER: u64 = 7;

    /// A module that has ended moves the others up in the host's list, but not here.
    #[test]
    fn a_module_finds_its_own_address_after_another_has_ended() {
        let pairings = Pairings::default();
        let found = [(0, address(10)), (1, address(11)), (2, None)].into_iter().collect();
        assert_eq!(pairings.keep(PEER, 0, found), address(10));
        assert_eq!(pairings.take(PEER, 1), Some(address(11)));
        assert_eq!(pairings.take(PEER, 2), Some(None), "there is none");
        assert_eq!(pairings.take(PEER, 2), None, "not known, so asked again");
        assert!(pairings.0.lock().is_empty());
    }

    /// A module that is told of a peer again does not use up what is there for another.
    #[test]
    fn a_module_that_asks_twice_leaves_the_others_theirs() {
        let pairings = Pairings::default();
        let found = [(0, address(10)), (1, address(11))].into_iter().collect();
        assert_eq!(pairings.keep(PEER, 0, found), address(10));
        assert_eq!(pairings.take(PEER, 0), None);
        assert_eq!(pairings.take(PEER, 0), None);
        assert_eq!(pairings.take(PEER, 1), Some(address(11)));
    }

    /// A job in which every process has published the same.
    struct Job {
        record: Vec<u8>,
        lines: RefCell<Vec<String>>,
    }

    impl Host for &Job {
        fn name(&self) -> u64 {
            1
        }
        fn node(&self) -> String {
            "here".to_owned()
        }
        fn publish(&self, _: &'static CStr, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn published(&self, _: &'static CStr, _: u64) -> Result<Vec<u8>> {
            Ok(self.record.clone())
        }
        fn text(&self, _: &CStr) -> Option<String> {
            None
        }
        fn is_asked_for(&self) -> bool {
            true
        }
        fn is_verbose(&self) -> bool {
            false
        }
        fn notice(&self, topic: &str, line: &str) {
            self.lines.borrow_mut().push(format!("{topic}: {line}"));
        }
        fn say(&self, line: &str) {
            self.lines.borrow_mut().push(line.to_owned());
        }
    }

    /// The process 2 of it.
    struct Second;

    impl Peer for Second {
        fn name(&self) -> u64 {
            2
        }
        fn node(&self) -> Option<String> {
            Some("there".to_owned())
        }
    }

    #[test]
    fn who_speaks_another_version_of_the_protocol_is_told_of_in_one_line() {
        // Packets of the one before, and perhaps of the next one.
        for version in [3, 5] {
            let mut record = modex::write(&[address(1).expect("an address")]);
            record[0] = version;
            let job = Job { record, lines: RefCell::default() };
            assert!(pair_with(&[], &Second, &&job).is_empty());
            let line = format!(
                "transport mismatch: btl_usnic: {} on there published addresses of another version",
                title(2)
            );
            assert_eq!(*job.lines.borrow(), [line]);
        }
    }
}
