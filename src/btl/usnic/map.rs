//! The connectivity map (`btl_usnic_connectivity_map`): which modules a process has, and which of
//! them leads to whom, as text for administrators. The form is the original's.

use std::fmt::Write as _;
use std::path::Path;

use crate::link::Place;

/// A module of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of its network interface.
    pub name: String,
    /// Its address.
    pub place: Option<Place>,
    /// Longest datagram.
    pub longest: u32,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its rank.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// The devices that lead to it, and which of its addresses each leads to.
    pub ways: Vec<(String, Option<Place>)>,
}

/// The text of the map. Devices are put in the order of their names; peers stay in theirs.
pub fn text(mut devices: Vec<Device>, rows: impl Iterator<Item = Row>) -> String {
    let ip = |place: Option<Place>| place.map_or_else(|| "none".to_owned(), |place| place.to_string());
    let mut text = "# Devices possibly used by this process:\n".to_owned();
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    for Device { name, place, longest } in devices {
        let _ = writeln!(text, "device={name},ip={},mss={longest}", ip(place));
    }
    text.push_str("# Endpoints used to communicate to each peer MPI process:\n");
    for Row { rank, host, mut ways } in rows {
        ways.sort_by(|one, other| one.0.cmp(&other.0));
        let ways = ways.into_iter().map(|(device, place)| format!("device={device}@peer_ip={}", ip(place)));
        let _ = writeln!(text, "peer={rank},hostname={host},{}", ways.collect::<Vec<_>>().join(","));
    }
    text
}

/// The name of the file for a process.
pub fn file_name(prefix: &str, host: &str, pid: u32, job: u32, rank: u32) -> String {
    format!("{prefix}-{host}.pid{pid}.job{job}.mcwrank{rank}.txt")
}

/// Writes the file anew. Of a symbolic link that stands in its place it takes the place: whoever can
/// write to the folder must not choose what is written over.
///
/// # Errors
/// When it cannot be written.
pub fn replace(file: &str, text: &str) -> std::io::Result<()> {
    crate::link::replace(Path::new(file), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, prefix: u8) -> Option<Place> {
        Some(Place { host: 1, address: Some(address.parse().expect("an address")), prefix })
    }

    #[test]
    fn the_map_has_the_form_of_the_original_with_right_prefixes() {
        let device = |name: &str, place| Device { name: name.to_owned(), place, longest: 1472 };
        let devices = vec![device("eth1", place("fd00::1", 64)), device("eth0", place("10.1.0.1", 16))];
        let way = |name: &str, place| (name.to_owned(), place);
        let rows = [
            Row {
                rank: 1,
                host: "node1".to_owned(),
                ways: vec![way("eth1", place("fd00::2", 64)), way("eth0", place("10.1.0.2", 16))],
            },
            Row { rank: 2, host: "node2".to_owned(), ways: vec![] },
        ];
        let expected = "\
# Devices possibly used by this process:
device=eth0,ip=10.1.0.1/16,mss=1472
device=eth1,ip=fd00::1/64,mss=1472
# Endpoints used to communicate to each peer MPI process:
peer=1,hostname=node1,device=eth0@peer_ip=10.1.0.2/16,device=eth1@peer_ip=fd00::2/64
peer=2,hostname=node2,
";
        assert_eq!(text(devices, rows.into_iter()), expected);
    }

    #[test]
    fn the_file_is_named_after_the_process() {
        assert_eq!(file_name("/tmp/map", "node1", 77, 5, 3), "/tmp/map-node1.pid77.job5.mcwrank3.txt");
    }
}
