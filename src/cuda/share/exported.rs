//! What a process says of a piece of its device memory, so that another can open it.

/// A device, whatever its number is in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

/// A process: its number, and when it began, because numbers are used again (`proc_pid_stat(5)`, field 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the machine did.
    pub started: u64,
}

/// How a piece of memory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By a handle that the driver knows: memory of `cuMemAlloc`.
    Handle,
    /// By a file descriptor of its owner's: memory of `cuMemCreate`.
    File,
    /// By a file descriptor of the pool that it comes from, and what says where in it.
    Pool,
}

/// An allocation of a process's on a device: all that another needs to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    pub(super) kind: Kind,
    pub(super) device: Uuid,
    pub(super) owner: Process,
    /// Where the allocation begins, in its owner's process.
    pub(super) base: u64,
    pub(super) len: u64,
    /// Tells the allocation from an earlier one at the same place.
    pub(super) generation: u64,
    /// The owner's file descriptor; -1 for none.
    pub(super) file: i32,
    /// Tells a pool from an earlier one; 0 for none.
    pub(super) pool: u64,
    /// A handle, or what says where in a pool.
    pub(super) handle: [u8; 64],
}

/// Says that what follows is one of these, in this form.
const MAGIC: u16 = 0xDE01;

impl Exported {
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 132;

    /// How it is opened.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The device that it lies on.
    pub fn device(&self) -> Uuid {
        self.device
    }

    /// Whose it is.
    pub fn owner(&self) -> Process {
        self.owner
    }

    /// Where the allocation begins, in its owner's process.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of the allocation.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: an allocation has bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let mut rest = &mut bytes[..];
        let mut put = |piece: &[u8]| {
            let (place, after) = std::mem::take(&mut rest).split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = after;
        };
        let kind = match self.kind {
            Kind::Handle => 1_u16,
            Kind::File => 2,
            Kind::Pool => 3,
        };
        put(&MAGIC.to_ne_bytes());
        put(&kind.to_ne_bytes());
        put(&self.file.to_ne_bytes());
        put(&self.device.0);
        put(&self.owner.started.to_ne_bytes());
        put(&self.base.to_ne_bytes());
        put(&self.len.to_ne_bytes());
        put(&self.generation.to_ne_bytes());
        put(&self.pool.to_ne_bytes());
        put(&self.handle);
        put(&self.owner.pid.to_ne_bytes());
        bytes
    }

    /// What was sent; `None` for what cannot be one. More bytes may follow.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.get(..Self::LENGTH)?;
        let magic = u16::from_ne_bytes(take(&mut rest)?);
        let kind = match u16::from_ne_bytes(take(&mut rest)?) {
            1 => Kind::Handle,
            2 => Kind::File,
            3 => Kind::Pool,
            _ => return None,
        };
        let file = i32::from_ne_bytes(take(&mut rest)?);
        let device = Uuid(take(&mut rest)?);
        let started = u64::from_ne_bytes(take(&mut rest)?);
        let [base, len, generation, pool] = [
            u64::from_ne_bytes(take(&mut rest)?),
            u64::from_ne_bytes(take(&mut rest)?),
            u64::from_ne_bytes(take(&mut rest)?),
            u64::from_ne_bytes(take(&mut rest)?),
        ];
        let handle = take(&mut rest)?;
        let pid = u32::from_ne_bytes(take(&mut rest)?);
        let sound = magic == MAGIC
            && len > 0
            && base.checked_add(len).is_some()
            && i32::try_from(pid).is_ok_and(|pid| pid > 0)
            && (kind == Kind::Handle) == (file < 0);
        sound.then_some(Self {
            kind,
            device,
            owner: Process { pid, started },
            base,
            len,
            generation,
            file,
            pool,
            handle,
        })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: Kind) -> Exported {
        Exported {
            kind,
            device: Uuid(*b"a device's name!"),
            owner: Process { pid: 4711, started: 0x1122_3344_5566 },
            base: 0x7F00_0000_0000,
            len: 1 << 33,
            generation: 12,
            file: if kind == Kind::Handle { -1 } else { 17 },
            pool: u64::from(kind == Kind::Pool),
            handle: std::array::from_fn(|index| index as u8),
        }
    }

    #[test]
    fn what_is_sent_is_read() {
        for kind in [Kind::Handle, Kind::File, Kind::Pool] {
            let sent = one(kind);
            let mut bytes = sent.to_bytes().to_vec();
            assert_eq!(Exported::parse(&bytes), Some(sent));
            bytes.push(1);
            assert_eq!(Exported::parse(&bytes), Some(sent), "and more");
            for len in 0..Exported::LENGTH {
                assert_eq!(Exported::parse(&bytes[..len]), None, "less");
            }
        }
        const { assert!(Exported::LENGTH <= 152, "the handle of the original's") };
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sent = one(Kind::File);
        let refused = [
            Exported { len: 0, ..sent },
            Exported { base: u64::MAX, ..sent },
            Exported { file: -1, ..sent },
            Exported { kind: Kind::Handle, ..sent },
            Exported { owner: Process { pid: 0, ..sent.owner }, ..sent },
            Exported { owner: Process { pid: u32::MAX, ..sent.owner }, ..sent },
        ];
        for refused in refused {
            assert_eq!(Exported::parse(&refused.to_bytes()), None, "{refused:?}");
        }
        for bit in 0..32 {
            let mut bytes = sent.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A file and a pool look the same.
            let read = Exported::parse(&bytes);
            assert!(read.is_none_or(|read| read.kind == Kind::Pool), "bit {bit}");
        }
    }
}
