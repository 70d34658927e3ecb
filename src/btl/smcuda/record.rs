//! The modex record: where the door of a process is, which leads to its segment. The same in each of its lives.

use crate::shm::{Identity, NONCE};

/// What a process publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Which start of which machine: peers of another one share no memory.
    pub(super) boot: [u8; 36],
    /// Who sees whom.
    pub(super) place: Place,
    /// Its door.
    pub(super) door: Identity,
}

/// What two processes must have in common, or one could find the other's memory and not the other way round: then
/// the host would send by this component in one direction alone, to a peer that cannot receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of the namespaces, their inodes; 0 where the system does not say.
    pub(super) pids: u64,
    pub(super) users: u64,
    /// The effective user.
    pub(super) user: u32,
}

impl Place {
    /// Of this process.
    pub(super) fn own() -> Self {
        let inode = |path| rustix::fs::stat(path).map_or(0, |stat| stat.st_ino);
        Self {
            pids: inode("/proc/self/ns/pid"),
            users: inode("/proc/self/ns/user"),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    /// Why processes in these places do not reach each other, if they do not.
    pub(super) fn apart(&self, other: &Self) -> Option<&'static str> {
        if self.pids != other.pids {
            Some("it is in another PID namespace")
        } else if self.users != other.users {
            Some("it is in another user namespace")
        } else if self.user != other.user {
            Some("it belongs to another user")
        } else {
            None
        }
    }
}

/// The layout below, and its version.
const MAGIC: [u8; 4] = *b"HSM3";
const LENGTH: usize = 4 + 36 + 8 + 8 + 4 + 4 + 4 + 8 + 8 + NONCE;

impl Record {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Identity { pid, descriptor, device, inode, nonce } = self.door;
        let parts: [&[u8]; 10] = [
            &MAGIC,
            &self.boot,
            &self.place.pids.to_le_bytes(),
            &self.place.users.to_le_bytes(),
            &self.place.user.to_le_bytes(),
            &pid.to_le_bytes(),
            &descriptor.to_le_bytes(),
            &device.to_le_bytes(),
            &inode.to_le_bytes(),
            &nonce,
        ];
        parts.concat()
    }

    /// `None` when these bytes are not a record of this version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LENGTH {
            return None;
        }
        let mut rest = bytes;
        let magic: [u8; 4] = take(&mut rest)?;
        let boot = take(&mut rest)?;
        let place = Place {
            pids: u64::from_le_bytes(take(&mut rest)?),
            users: u64::from_le_bytes(take(&mut rest)?),
            user: u32::from_le_bytes(take(&mut rest)?),
        };
        let pid = u32::from_le_bytes(take(&mut rest)?);
        let descriptor = u32::from_le_bytes(take(&mut rest)?);
        let device = u64::from_le_bytes(take(&mut rest)?);
        let inode = u64::from_le_bytes(take(&mut rest)?);
        let nonce = take(&mut rest)?;
        let door = Identity { pid, descriptor, device, inode, nonce };
        (magic == MAGIC).then_some(Self { boot, place, door })
    }
}

/// Takes so many bytes off the front.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*first)
}

/// What is not known of a machine.
pub(super) const UNKNOWN: [u8; 36] = [0; 36];

/// Which start of which machine this is; unknown where the system does not say.
pub(super) fn boot() -> [u8; 36] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().as_bytes().try_into().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_nothing_else_is_one() {
        let door = Identity { pid: 1, descriptor: 2, device: 3, inode: 4, nonce: [5; NONCE] };
        let record = Record { boot: boot(), place: Place::own(), door };
        let bytes = record.to_bytes();
        assert_eq!(Record::parse(&bytes), Some(record));
        for len in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..len]), None);
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Record::parse(&longer), None);
        let mut changed = bytes.clone();
        changed[0] = b'x';
        assert_eq!(Record::parse(&changed), None);
    }
}
