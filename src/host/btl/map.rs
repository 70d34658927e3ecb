//! The file that says what is connected to whom (`btl_usnic_connectivity_map`).

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::BtlAbi;
use super::component::{Own, modules};
use super::shell::Shell;
use crate::btl::usnic::map::{Device, Row, file_name, replace, text};
use crate::btl::usnic::{Place, place};
use crate::host::services::show_help;

/// What the map will say.
struct Map {
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

/// There is none where nobody wants it. The host is not called while this is locked.
static MAP: Mutex<Option<Map>> = Mutex::new(None);

/// Begins a map.
pub(super) fn begin<A: BtlAbi>(prefix: Option<&str>) {
    let own = Own::own_name();
    let map = prefix.map(|prefix| Map {
        file: file_name(prefix, &Own::own_host::<A>(), std::process::id(), own as u32, (own >> 32) as u32),
        rows: BTreeMap::new(),
        calls: 0,
        written: None,
        given_up: false,
    });
    *MAP.lock() = map;
}

/// A peer, named as the host names it, has become known.
pub(super) fn note_peer(name: u64, host: &str) {
    if let Some(map) = MAP.lock().as_mut() {
        let (job, rank) = (name as u32, (name >> 32) as u32);
        let row = || Row { rank, host: host.to_owned(), ways: Vec::new() };
        map.rows.entry((job, rank)).or_insert_with(row);
    }
}

/// A device leads to a known peer.
pub(super) fn note_way(name: u64, device: &str, to: Option<Place>) {
    if let Some(map) = MAP.lock().as_mut()
        && let Some(row) = map.rows.get_mut(&(name as u32, (name >> 32) as u32))
        && !row.ways.iter().any(|(known, _)| known == device)
    {
        row.ways.push((device.to_owned(), to));
    }
}

/// A module has been told of peers. When all have, the file is written; again when there are more
/// peers. With many of them not each time: a file of a thousand peers may lack fifteen until the end.
pub(super) fn note_call<A: BtlAbi>() {
    let failed = MAP.lock().as_mut().and_then(|map| {
        map.calls += 1;
        let wanted = map.written.map_or(0, |written| written + 1 + written / 64);
        let is_due = map.calls % modules().len().max(1) == 0 && map.rows.len() >= wanted;
        if is_due { map.write::<A>() } else { None }
    });
    tell(failed);
}

/// Writes what the file lacks. Before the first module ends.
pub(super) fn end<A: BtlAbi>() {
    let map = MAP.lock().take();
    let unwritten = map.filter(|map| map.written != Some(map.rows.len()));
    tell(unwritten.and_then(|mut map| map.write::<A>()));
}

fn tell(failed: Option<String>) {
    if let Some(line) = failed {
        show_help("cannot write to map file", &line);
    }
}

impl Map {
    /// What to tell the user where the file cannot be written: once.
    fn write<A: BtlAbi>(&mut self) -> Option<String> {
        if self.given_up {
            return None;
        }
        let devices = modules().iter().map(|&module| {
            // SAFETY: a live module of this version.
            let shell = unsafe { &*module.cast::<Shell<A>>() };
            let address = shell.core.address();
            Device { name: shell.device.clone(), place: place(&address.name), longest: address.max_datagram }
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
