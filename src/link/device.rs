//! Whether this machine has a usNIC device, from sysfs alone: to ask libfabric means to load it with all
//! its providers, which takes longer than everything else that a short job does.

use std::fs;
use std::path::Path;

/// Where the kernel lists the devices that programs use by themselves, usNIC's `usnic_verbs` among them.
const DEVICES: &str = "sys/class/infiniband_verbs";

/// Cisco, as PCI knows it: libfabric's provider looks for the same number.
const CISCO: &str = "0x1137";

/// Whether there is a usNIC device here.
pub fn has_usnic() -> bool {
    has_usnic_below(Path::new("/"))
}

/// The same where sysfs is below this folder.
fn has_usnic_below(root: &Path) -> bool {
    let Ok(devices) = fs::read_dir(root.join(DEVICES)) else { return false };
    let of_cisco = |vendor: String| vendor.trim() == CISCO;
    devices
        .flatten()
        .any(|device| fs::read_to_string(device.path().join("device/vendor")).is_ok_and(of_cisco))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_of_the_vendor_is_one() {
        let root = std::env::temp_dir().join(format!("hawser-devices-{}", std::process::id()));
        let vendor = |device: &str, vendor: &str| {
            let folder = root.join(DEVICES).join(device).join("device");
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("vendor"), vendor).expect("a file");
        };
        assert!(!has_usnic_below(&root), "no such class");
        vendor("uverbs0", "0x15b3\n");
        fs::create_dir_all(root.join(DEVICES).join("uverbs1")).expect("a folder");
        assert!(!has_usnic_below(&root), "another vendor's, and one that says nothing");
        vendor("uverbs2", "0x1137\n");
        assert!(has_usnic_below(&root));
        fs::remove_dir_all(&root).expect("removed");
    }
}
