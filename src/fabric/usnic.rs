//! The usNIC provider's own functions (`rdma/fi_ext_usnic.h`, which Debian does not ship), by layout.
//!
//! Found at run time by name (`fi_open_ops`); a provider without them is simply not asked. Structures
//! are read as far as version 1 goes, at offsets that have been the same since libfabric 1.4.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::objects::{AddressVector, Fabric, Object};
use super::sys;

/// What the device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Megabits per second.
    pub speed_mbps: u32,
    /// Leading bits that its subnet shares.
    pub prefix: u8,
    /// The kernel's name of its network interface.
    pub interface: String,
}

/// `struct fi_usnic_info`: a version, then a union that grows; 512 bytes are more than any has.
#[repr(C, align(8))]
struct Info {
    version: u32,
    _pad: u32,
    speed: u32,
    netmask_be: u32,
    name: [u8; 16],
    rest: [u8; 480],
}

#[repr(C)]
struct FabricOps {
    size: usize,
    getinfo: Option<unsafe extern "C" fn(u32, *mut sys::fid_fabric, *mut Info) -> c_int>,
}

#[repr(C)]
struct AddressOps {
    size: usize,
    get_distance: Option<unsafe extern "C" fn(*mut sys::fid_av, *mut c_void, *mut c_int) -> c_int>,
}

/// A table of further functions of an object; null where it has none of this name.
fn open_ops(object: &Object, name: &CStr) -> *const c_void {
    let mut table = ptr::null_mut();
    let Some(open) = object.ops().ops_open else { return ptr::null() };
    // SAFETY: the object is open; the callee writes one pointer.
    let code = unsafe { open(object.as_ptr(), name.as_ptr(), 0, &raw mut table, ptr::null_mut()) };
    if code == 0 { table } else { ptr::null() }
}

/// Asks a fabric of the usNIC provider about its device.
pub fn device(fabric: &Fabric) -> Option<Device> {
    let table: *const FabricOps = open_ops(fabric.object(), c"fabric_ops 1").cast();
    // SAFETY: null, or the provider's own table of this name, which lives as long as the fabric.
    let getinfo = unsafe { table.as_ref() }?.getinfo?;
    let mut info = Info { version: 0, _pad: 0, speed: 0, netmask_be: 0, name: [0; 16], rest: [0; 480] };
    // SAFETY: the fabric is open; version 1 writes less than the structure has.
    if unsafe { getinfo(1, fabric.object().as_ptr(), &raw mut info) } != 0 {
        return None;
    }
    let _ = (info.version, info.rest);
    Some(Device {
        speed_mbps: info.speed,
        prefix: u32::from_be(info.netmask_be).leading_ones() as u8,
        interface: CStr::from_bytes_until_nul(&info.name).ok()?.to_str().ok()?.to_owned(),
    })
}

/// How far away an address is, in the provider's own metric: 0 in the same network. `None` without
/// the function, or if it cannot be reached. `address` is a whole `sockaddr_in`.
pub fn distance(addresses: &AddressVector, address: &[u8; 16]) -> Option<u32> {
    let table: *const AddressOps = open_ops(addresses.object(), c"av_ops 1").cast();
    // SAFETY: null, or the provider's own table of this name, which lives as long as the vector.
    let get_distance = unsafe { table.as_ref() }?.get_distance?;
    let mut metric = -1;
    let address = address.as_ptr().cast_mut().cast();
    // SAFETY: the vector is open; the address is read, the metric written.
    let code = unsafe { get_distance(addresses.object().as_ptr(), address, &raw mut metric) };
    if code == 0 { u32::try_from(metric).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(offset_of!(Info, speed), 8);
        assert_eq!(offset_of!(Info, netmask_be), 12);
        assert_eq!(offset_of!(Info, name), 16);
        assert_eq!(offset_of!(FabricOps, getinfo), 8);
        assert_eq!(offset_of!(AddressOps, get_distance), 8);
    }
}
