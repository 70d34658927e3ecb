//! [`Locality`]: which network devices are near the processors that this process is bound to.
//!
//! The kernel knows: `local_cpulist` of a PCI device (`Documentation/ABI/testing/sysfs-bus-pci`),
//! `cpulist` of a NUMA node (`sysfs-devices-node`), and `Cpus_allowed_list` of a process
//! (`proc_pid_status(5)`).

use std::fs;
use std::path::{Path, PathBuf};

/// A PCI address: domain, bus, device and function.
pub type Pci = (u16, u8, u8, u8);

/// Processors as the kernel lists them: `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpus(Vec<(u32, u32)>);

impl Cpus {
    fn parse(text: &str) -> Option<Self> {
        let range = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        text.trim().split(',').map(range).collect::<Option<_>>().map(Self)
    }

    fn read(path: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn intersects(&self, other: &Self) -> bool {
        self.0.iter().any(|a| other.0.iter().any(|b| a.0 <= b.1 && b.0 <= a.1))
    }
}

/// What is near this process.
#[derive(Clone, Debug)]
pub struct Locality {
    /// `None` when the process may run anywhere: then nothing is nearer than anything else.
    bound: Option<Cpus>,
    devices: PathBuf,
    nodes: PathBuf,
}

impl Locality {
    /// Asks the kernel. What cannot be found out counts as not bound.
    pub fn of_this_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// The same where `proc` and `sys` are below this folder.
    fn below(root: &Path) -> Self {
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| Cpus::parse(line.strip_prefix("Cpus_allowed_list:")?));
        let online = Cpus::read(&root.join("sys/devices/system/cpu/online"));
        let bound = allowed.filter(|allowed| online.as_ref().is_some_and(|online| online != allowed));
        let (devices, nodes) = (root.join("sys/bus/pci/devices"), root.join("sys/devices/system/node"));
        Self { bound, devices, nodes }
    }

    /// Whether this process is bound to processors of other NUMA nodes than this one. Of a process
    /// that is bound to several nodes, none of them is far.
    pub fn is_far_from(&self, node: u32) -> bool {
        let Some(bound) = &self.bound else { return false };
        let of_node = Cpus::read(&self.nodes.join(format!("node{node}/cpulist")));
        of_node.is_some_and(|of_node| !of_node.intersects(bound))
    }

    /// Whether a device is near. What is no PCI device, or of unknown place, is not.
    pub fn is_near(&self, device: Option<Pci>) -> bool {
        let Some(bound) = &self.bound else { return false };
        device.is_some_and(|(domain, bus, device, function)| {
            let name = format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}");
            let local = Cpus::read(&self.devices.join(name).join("local_cpulist"));
            local.is_some_and(|local| local.intersects(bound))
        })
    }
}

/// The place of one of `near.len()` like devices: near ones in turn, all in turn when none is.
pub fn take_turn(near: &[bool], turn: usize) -> usize {
    let places: Vec<_> = (0..near.len()).filter(|place| near[*place]).collect();
    if places.is_empty() { turn % near.len().max(1) } else { places[turn % places.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(Cpus::parse(" 0-3,8\n"), Some(Cpus(vec![(0, 3), (8, 8)])));
        assert_eq!(Cpus::parse(""), None);
        assert_eq!(Cpus::parse("0-x"), None);
    }

    #[test]
    fn a_device_is_near_when_it_shares_processors_with_the_binding() {
        let devices = std::env::temp_dir().join(format!("hawser-locality-{}", std::process::id()));
        for (name, list) in [("0000:17:00.0", "0-15,32-47\n"), ("0001:ca:00.1", "16-31,48-63\n")] {
            fs::create_dir_all(devices.join(name)).unwrap();
            fs::write(devices.join(name).join("local_cpulist"), list).unwrap();
        }
        let bound =
            |list| Locality { bound: Cpus::parse(list), devices: devices.clone(), nodes: PathBuf::new() };
        let (first, second) = (Some((0, 0x17, 0, 0)), Some((1, 0xca, 0, 1)));
        assert!(bound("33").is_near(first) && !bound("33").is_near(second));
        assert!(!bound("20-21").is_near(first) && bound("20-21").is_near(second));
        assert!(bound("15-16").is_near(first) && bound("15-16").is_near(second));
        assert!(!bound("0").is_near(None) && !bound("0").is_near(Some((0, 1, 0, 0))));
        let free = Locality { bound: None, ..bound("0") };
        assert!(!free.is_near(first));
        fs::remove_dir_all(devices).unwrap();
    }

    #[test]
    fn a_node_is_far_when_the_binding_has_none_of_its_processors() {
        let root = std::env::temp_dir().join(format!("hawser-nodes-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-63\n");
        write("sys/devices/system/node/node0/cpulist", "0-15,32-47\n");
        write("sys/devices/system/node/node1/cpulist", "16-31,48-63\n");
        // A node of memory without processors.
        write("sys/devices/system/node/node2/cpulist", "\n");
        for (cpus, far) in [
            ("40", [false, true, false]),
            ("16-31", [true, false, false]),
            ("0,16", [false, false, false]),
            ("0-63", [false, false, false]),
        ] {
            let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n");
            write("proc/self/status", &status);
            let here = Locality::below(&root);
            assert_eq!([0, 1, 2].map(|node| here.is_far_from(node)), far, "{cpus}");
        }
        fs::remove_dir_all(&root).unwrap();
        assert!(!Locality::below(&root).is_far_from(0));
    }

    #[test]
    fn near_devices_are_taken_in_turn_and_far_ones_only_when_none_is_near() {
        let turns = |near: &[bool]| (0..4).map(|turn| take_turn(near, turn)).collect::<Vec<_>>();
        assert_eq!(turns(&[false, true, false, true]), [1, 3, 1, 3]);
        assert_eq!(turns(&[false, false, false]), [0, 1, 2, 0]);
        assert_eq!(turns(&[true]), [0, 0, 0, 0]);
    }
}
