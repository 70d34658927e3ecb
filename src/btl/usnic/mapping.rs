//! When the file is written that says what is connected to whom (`btl_usnic_connectivity_map`).

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::component::Usnic;
use super::map::{Device, Row, file_name, replace, text};
use super::{Place, place};
use crate::btl::Host;

/// What the file will say; nothing where nobody wants it. The host is not called while this is locked.
pub(super) struct Map(Mutex<Option<State>>);

struct State {
    file: String,
    /// By job and rank.
    rows: BTreeMap<(u32, u32), Row>,
    /// Calls of `add_procs`, of whatever module.
    calls: usize,
    /// Peers in the file; `None` before there is one.
    written: Option<usize>,
    /// The file cannot be written, and that was said.
    given_up: bool,
}

impl Map {
    /// Begins a map.
    pub(super) fn new(prefix: Option<&str>, host: &impl Host) -> Self {
        let own = host.name();
        let state = prefix.map(|prefix| State {
            file: file_name(prefix, &host.node(), std::process::id(), own as u32, (own >> 32) as u32),
            rows: BTreeMap::new(),
            calls: 0,
            written: None,
            given_up: false,
        });
        Self(Mutex::new(state))
    }

    /// A peer, named as the host names it, has become known.
    pub(super) fn note_peer(&self, name: u64, node: &str) {
        if let Some(map) = self.0.lock().as_mut() {
            let (job, rank) = (name as u32, (name >> 32) as u32);
            let row = || Row { rank, host: node.to_owned(), ways: Vec::new() };
            map.rows.entry((job, rank)).or_insert_with(row);
        }
    }

    /// A device leads to a known peer.
    pub(super) fn note_way(&self, name: u64, device: &str, to: Option<Place>) {
        if let Some(map) = self.0.lock().as_mut()
            && let Some(row) = map.rows.get_mut(&(name as u32, (name >> 32) as u32))
            && !row.ways.iter().any(|(known, _)| known == device)
        {
            row.ways.push((device.to_owned(), to));
        }
    }

    /// A module has been told of peers. When all have, the file is written; again when there are more
    /// peers. With many of them not each time: a file of a thousand peers may lack fifteen until the end.
    pub(super) fn note_call(&self, all: &[&Usnic], host: &impl Host) {
        let failed = self.0.lock().as_mut().and_then(|map| {
            map.calls += 1;
            let wanted = map.written.map_or(0, |written| written + 1 + written / 64);
            let is_due = map.calls.is_multiple_of(all.len().max(1)) && map.rows.len() >= wanted;
            if is_due { map.write(all) } else { None }
        });
        tell(failed, host);
    }

    /// Writes what the file lacks. Before the first module ends.
    pub(super) fn end(&self, all: &[&Usnic], host: &impl Host) {
        let map = self.0.lock().take();
        let unwritten = map.filter(|map| map.written != Some(map.rows.len()));
        tell(unwritten.and_then(|mut map| map.write(all)), host);
    }
}

fn tell(failed: Option<String>, host: &impl Host) {
    if let Some(line) = failed {
        host.notice("cannot write to map file", &line);
    }
}

impl State {
    /// What to tell the user where the file cannot be written: once.
    fn write(&mut self, all: &[&Usnic]) -> Option<String> {
        if self.given_up {
            return None;
        }
        let devices = all.iter().map(|module| {
            let address = module.core.address();
            Device { name: module.device.clone(), place: place(&address.name), longest: address.max_datagram }
        });
        let text = text(devices.collect(), self.rows.values().cloned());
        match replace(&self.file, &text) {
            Ok(()) => {
                self.written = Some(self.rows.len());
                None
            }
            Err(error) => {
                self.given_up = true;
                let folder = std::env::current_dir().unwrap_or_default();
                Some(format!(
                    "btl_usnic: the connectivity map {} cannot be written (working directory {}): {error}",
                    self.file,
                    folder.display()
                ))
            }
        }
    }
}
