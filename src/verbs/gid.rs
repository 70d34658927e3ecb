//! The table of a port's GIDs: what the device is called on its network.
//!
//! Connections by [`Id`](super::Id) choose the entry by themselves; the table is for what tells people about a device.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use super::context::Context;
use super::sys;
use crate::error::Result;

/// What packets from this entry look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand's; iWARP's too, where the bytes are the interface's hardware address.
    Infiniband,
    /// RoCE of the first version: not routed.
    RoceV1,
    /// RoCE of the second version: over UDP.
    RoceV2,
    /// The library does not say.
    Unknown,
}

/// An entry that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// Its bytes, in the order of the network.
    pub bytes: [u8; 16],
    /// What packets look like.
    pub kind: GidKind,
    /// Number of the network interface behind it, in that interface's own network namespace, where the library says.
    pub interface: Option<u32>,
}

impl Gid {
    /// The address of IP that an entry of RoCE stands for.
    pub fn address(&self) -> Option<IpAddr> {
        let address = Ipv6Addr::from(self.bytes);
        match self.kind {
            GidKind::RoceV1 | GidKind::RoceV2 => Some(address.to_canonical()),
            GidKind::Infiniband | GidKind::Unknown => None,
        }
    }
}

/// Entries of a table, at most; ports have 16 to 256.
const MOST: usize = 4096;

impl Context {
    /// The entries of a port that are in use (`ibv_query_gid_table(3)`; with a library that has none, without kind and
    /// interface).
    pub fn gids(&self, port: u8) -> Result<Vec<Gid>> {
        match self.library().gid_table {
            Some(_) => self.gid_table(port),
            None => self.gids_one_by_one(port),
        }
    }

    /// The entry that RoCE of the second version uses for an address, or for the first that has one.
    pub fn roce_v2(&self, port: u8, address: Option<IpAddr>) -> Result<Option<Gid>> {
        let fits = |gid: &Gid| match address {
            Some(address) => gid.address() == Some(address),
            None => gid.address().is_some_and(|address| address.is_ipv4()),
        };
        Ok(self.gids(port)?.into_iter().find(|gid| gid.kind == GidKind::RoceV2 && fits(gid)))
    }

    fn gid_table(&self, port: u8) -> Result<Vec<Gid>> {
        let Some(table) = self.library().gid_table else { return Ok(Vec::new()) };
        let limits = self.limits()?;
        // The table of all ports.
        let ports = (1..=limits.ports).filter_map(|port| self.port(port).ok());
        let room = ports.map(|port| port.gids).sum::<usize>().clamp(1, MOST);
        let mut entries = vec![sys::ibv_gid_entry::default(); room];
        let size = size_of::<sys::ibv_gid_entry>();
        // SAFETY: an open context, and room for as many entries of this size as it is told.
        let found = unsafe { table(self.as_ptr(), entries.as_mut_ptr(), room, 0, size) };
        let found = usize::try_from(found).map_err(|_| super::error_of(super::code_of(found as c_int)))?;
        entries.truncate(found);
        let wanted = entries.iter().filter(|entry| entry.port_num == u32::from(port));
        Ok(wanted.map(Gid::of).collect())
    }

    fn gids_one_by_one(&self, port: u8) -> Result<Vec<Gid>> {
        let count = self.port(port)?.gids.min(MOST);
        let mut gids = Vec::new();
        for index in 0..count as u32 {
            let mut gid = sys::ibv_gid::default();
            // SAFETY: an open context; the library writes one structure.
            let code =
                unsafe { (self.library().query_gid)(self.as_ptr(), port, index.cast_signed(), &raw mut gid) };
            let bytes = raw_bytes(&gid);
            if code == 0 && bytes != [0; 16] {
                gids.push(Gid { index, bytes, kind: GidKind::Unknown, interface: None });
            }
        }
        Ok(gids)
    }
}

fn raw_bytes(gid: &sys::ibv_gid) -> [u8; 16] {
    // SAFETY: all bytes of the union are initialised, and any are valid.
    unsafe { gid.raw }
}

impl Gid {
    fn of(entry: &sys::ibv_gid_entry) -> Self {
        Self {
            index: entry.gid_index,
            bytes: raw_bytes(&entry.gid),
            kind: match entry.gid_type {
                sys::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
                sys::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                _ => GidKind::Infiniband,
            },
            interface: (entry.ndev_ifindex != 0).then_some(entry.ndev_ifindex),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u32, address: Ipv6Addr) -> sys::ibv_gid_entry {
        sys::ibv_gid_entry {
            gid: sys::ibv_gid { raw: address.octets() },
            gid_index: 1,
            port_num: 1,
            gid_type: kind,
            ndev_ifindex: 7,
        }
    }

    #[test]
    fn an_entry_of_roce_stands_for_an_address() {
        let four = "10.8.0.1".parse::<std::net::Ipv4Addr>().expect("an address");
        let gid = Gid::of(&entry(sys::IBV_GID_TYPE_ROCE_V2, four.to_ipv6_mapped()));
        assert_eq!(gid.kind, GidKind::RoceV2);
        assert_eq!(gid.address(), Some(IpAddr::V4(four)));
        assert_eq!(gid.interface, Some(7));
    }

    #[test]
    fn an_entry_of_infiniband_stands_for_none() {
        let gid = Gid::of(&entry(0, "fe80::1".parse().expect("an address")));
        assert_eq!((gid.kind, gid.address()), (GidKind::Infiniband, None));
    }
}
