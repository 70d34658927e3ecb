//! The name of a GNI endpoint (`FI_ADDR_GNI`, 48 bytes) and its text (`FI_ADDR_STR`).
//!
//! Two names are of one endpoint when device and cdm id are equal. The layout is that of `struct gnix_ep_name` of
//! libfabric 1.20's `prov/gni/include/gnix.h`, in little-endian byte order:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | device: the IPv4 address of the node |
//! | 4..8 | cdm id: which communication domain of the device |
//! | 8 | 1: made by a provider; 2: bound to a service that its user has named |
//! | 9..12 | cdm id of the cm_nic that answers for it |
//! | 12..16 | cookie of the job |
//! | 16 | receive contexts |
//! | 18..20 | UDP port at which it is reached from other nodes; 0: it is not |
//! | 24..32 | incarnation; 0 in a name that was made of node and service |
//! | 32..48 | key by which those are known who may reach it from there; 0 in a name that was made of node and service |
//!
//! All others are zero.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Bytes of a name.
pub const LEN: usize = 48;

/// Bytes that hold the text of any name, with its final zero.
pub const TEXT: usize = 128;

/// How an endpoint came by its cdm id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The provider has made it.
    Unbound,
    /// Its user has named a service.
    Bound,
}

/// The name of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The node.
    pub device: Ipv4Addr,
    /// Which of the device's communication domains; not 0.
    pub cdm_id: u32,
    /// How it came by that.
    pub kind: Kind,
    /// Cdm id of the cm_nic that answers for the endpoint; 24 bits.
    pub cm_nic: u32,
    /// What the endpoints of a job have in common.
    pub cookie: u32,
    /// Receive contexts of a scalable endpoint.
    pub contexts: u8,
    /// Differs for each endpoint that ever has this name; 0 where it is not known.
    pub incarnation: u64,
    /// Where datagrams of other nodes reach it.
    pub port: u16,
    /// What they are signed with.
    pub key: [u8; 16],
}

/// The most that 24 bits hold.
const CM_NIC_LIMIT: u32 = 1 << 24;

impl Name {
    /// The endpoint of a service on a node.
    pub fn bound(device: Ipv4Addr, service: u16) -> Self {
        let cdm_id = u32::from(service);
        Self {
            device,
            cdm_id,
            kind: Kind::Bound,
            cm_nic: cdm_id,
            cookie: 0,
            contexts: 0,
            incarnation: 0,
            port: service,
            key: [0; 16],
        }
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..4].copy_from_slice(&self.device.to_bits().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cdm_id.to_le_bytes());
        bytes[8] = self.kind.number();
        bytes[9..12].copy_from_slice(&self.cm_nic.to_le_bytes()[..3]);
        bytes[12..16].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[16] = self.contexts;
        bytes[18..20].copy_from_slice(&self.port.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[32..].copy_from_slice(&self.key);
        bytes
    }

    /// The name that these bytes are; `None` when they are none.
    pub fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let name = Self {
            device: Ipv4Addr::from_bits(word(0)),
            cdm_id: word(4),
            kind: Kind::from_number(bytes[8])?,
            cm_nic: word(8) >> 8,
            cookie: word(12),
            contexts: bytes[16],
            incarnation: u64::from_le_bytes(std::array::from_fn(|i| bytes[24 + i])),
            port: u16::from_le_bytes([bytes[18], bytes[19]]),
            key: std::array::from_fn(|i| bytes[32 + i]),
        };
        let is_rest_zero = bytes[17] == 0 && bytes[20..24].iter().all(|byte| *byte == 0);
        (name.is_sound() && is_rest_zero).then_some(name)
    }

    fn is_sound(&self) -> bool {
        !self.device.is_unspecified() && self.cdm_id != 0 && self.cm_nic < CM_NIC_LIMIT
    }
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Unbound => 1,
            Self::Bound => 2,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Unbound),
            2 => Some(Self::Bound),
            _ => None,
        }
    }
}

/// `gni;node;cdm id;kind;cm_nic;cookie;contexts;incarnation;port;key`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gni;{};{:#010x};{};{:#08x};{:#010x};{};{:#018x};{};{:#034x}",
            self.device,
            self.cdm_id,
            self.kind.number(),
            self.cm_nic,
            self.cookie,
            self.contexts,
            self.incarnation,
            self.port,
            u128::from_be_bytes(self.key)
        )
    }
}

/// A text that is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoName;

/// What [`Display`](fmt::Display) writes; what follows the cdm id may be left out.
impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let mut fields = text.split(';');
        if fields.next() != Some("gni") {
            return Err(NoName);
        }
        let device: Ipv4Addr = fields.next().and_then(|node| node.parse().ok()).ok_or(NoName)?;
        let mut next = |default: Option<u64>, most: u64| match fields.next() {
            Some(field) => number(field).filter(|value| *value <= most).ok_or(NoName),
            None => default.ok_or(NoName),
        };
        let cdm_id = next(None, u32::MAX.into())?;
        let kind = next(Some(Kind::Bound.number().into()), u8::MAX.into())?;
        let cm_nic = next(Some(cdm_id & u64::from(CM_NIC_LIMIT - 1)), u64::from(CM_NIC_LIMIT - 1))?;
        let cookie = next(Some(0), u32::MAX.into())?;
        let contexts = next(Some(0), u8::MAX.into())?;
        let incarnation = next(Some(0), u64::MAX)?;
        let service =
            if kind == u64::from(Kind::Bound.number()) { u16::try_from(cdm_id).unwrap_or(0) } else { 0 };
        let port = next(Some(service.into()), u16::MAX.into())?;
        let key = fields.next().map_or(Some(0), |field| {
            field
                .strip_prefix("0x")
                .filter(|digits| !digits.starts_with(['+', '-']))
                .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        });
        let name = Self {
            device,
            cdm_id: cdm_id as u32,
            kind: Kind::from_number(kind as u8).ok_or(NoName)?,
            cm_nic: cm_nic as u32,
            cookie: cookie as u32,
            contexts: contexts as u8,
            incarnation,
            port: port as u16,
            key: key.ok_or(NoName)?.to_be_bytes(),
        };
        if name.is_sound() && fields.next().is_none() { Ok(name) } else { Err(NoName) }
    }
}

/// A number, decimal or with `0x`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name {
            device: Ipv4Addr::new(192, 168, 1, 2),
            cdm_id: 0x8765_4321,
            kind: Kind::Unbound,
            cm_nic: 0x00AB_CDEF,
            cookie: 0xDEAD_BEEF,
            contexts: 7,
            incarnation: u64::MAX,
            port: u16::MAX,
            key: std::array::from_fn(|at| 0xF0 + at as u8),
        }
    }

    #[test]
    fn bytes_and_text_are_the_name_again() {
        for name in [name(), Name::bound(Ipv4Addr::LOCALHOST, 9228)] {
            assert_eq!(Name::parse(&name.emit()), Some(name));
            let text = name.to_string();
            assert_eq!(text.parse(), Ok(name));
            assert!(text.len() < TEXT);
        }
        assert_eq!("gni;127.0.0.1;9228".parse(), Ok(Name::bound(Ipv4Addr::LOCALHOST, 9228)));
    }

    #[test]
    fn the_bytes_are_where_the_table_says() {
        let bytes = name().emit();
        assert_eq!(bytes[..8], [2, 1, 168, 192, 0x21, 0x43, 0x65, 0x87]);
        assert_eq!(bytes[8..16], [1, 0xEF, 0xCD, 0xAB, 0xEF, 0xBE, 0xAD, 0xDE]);
        assert_eq!(bytes[16..24], [7, 0, 0xFF, 0xFF, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [0xFF; 8]);
        assert_eq!(bytes[32..], name().key);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(Name::parse(&[0; LEN]), None);
        assert_eq!(Name::parse(&[0xFF; LEN]), None);
        let mut bytes = name().emit();
        for at in [17, 20, 21, 22, 23] {
            bytes[at] = 1;
            assert_eq!(Name::parse(&bytes), None, "byte {at}");
            bytes[at] = 0;
        }
        for (at, value) in [(8, 0), (8, 3)] {
            let mut bytes = bytes;
            bytes[at] = value;
            assert_eq!(Name::parse(&bytes), None);
        }
        let texts = [
            "",
            "gni",
            "gni;127.0.0.1",
            "gni;127.0.0.1;0",
            "gni;0.0.0.0;1",
            "gni;::1;1",
            "gnu;127.0.0.1;1",
            "gni;127.0.0.1;1;3",
            "gni;127.0.0.1;0x100000000",
            "gni;127.0.0.1;-1",
            "gni;127.0.0.1;1;2;0x1000000",
            "gni;127.0.0.1;1;2;0;0;0;0;",
            "gni;127.0.0.1;1;2;0;0;0;0;0x10000",
            "gni;127.0.0.1;1;2;0;0;0;0;7;12",
            "gni;127.0.0.1;1;2;0;0;0;0;7;0x100000000000000000000000000000000",
            "gni;127.0.0.1;1;2;0;0;0;0;7;0x1;",
        ];
        for text in texts {
            assert_eq!(text.parse::<Name>(), Err(NoName), "{text}");
        }
    }
}
