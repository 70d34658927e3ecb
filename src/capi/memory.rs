//! Memory that is open to peers, its names, PUT and GET.

use super::abi::{self, Endpoint, HAWSER_READ, HAWSER_REMOTE_BYTES, HAWSER_WRITE, Remote};
use super::code::{
    self, HAWSER_DONE, HAWSER_ERR_ACCESS, HAWSER_ERR_ARGUMENT, HAWSER_ERR_MEMORY, HAWSER_ERR_STALE,
    HAWSER_ERR_TOO_LONG, HAWSER_ERR_UNSUPPORTED, HAWSER_SUCCESS, Outcome,
};
use super::component::Listed;
use super::fragment::Completion;
use super::handle::{Key, Kind, Table};
use super::module::Module;
use crate::btl::{Access, Lent, PIECE, Piece, Registration, Sending};
use crate::error::Error;

/// What says that memory is the host's.
const OF_HOST: Piece = [0; PIECE];

/// Memory that is open to peers.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    registration: Registration,
    piece: Piece,
}

/// What a name says.
#[derive(Clone, Copy)]
struct Name {
    registration: Registration,
    piece: Piece,
}

/// Where the parts of a name are. What is behind them is zero.
mod at {
    use std::ops::Range;

    use crate::btl::PIECE;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const COMPONENT: Range<usize> = 8..32;
    pub(super) const TOKEN: Range<usize> = 32..64;
    pub(super) const PIECE_OF: Range<usize> = 64..64 + PIECE;
    pub(super) const REST: Range<usize> = 64 + PIECE..super::HAWSER_REMOTE_BYTES;
}

/// The first bytes of every name, with the version of what follows.
const MAGIC: &[u8; 8] = b"hawser\0\x01";

/// The transport, as names say it.
fn component<T: Listed>() -> [u8; at::COMPONENT.end - at::COMPONENT.start] {
    let name = T::COMPONENT.as_bytes();
    std::array::from_fn(|place| name.get(place).copied().unwrap_or(0))
}

fn write<T: Listed>(memory: &Opened) -> Remote {
    let mut bytes = [0; HAWSER_REMOTE_BYTES];
    bytes[at::MAGIC].copy_from_slice(MAGIC);
    bytes[at::COMPONENT].copy_from_slice(&component::<T>());
    bytes[at::TOKEN].copy_from_slice(&memory.registration.to_bytes());
    bytes[at::PIECE_OF].copy_from_slice(&memory.piece);
    Remote { bytes }
}

fn read<T: Listed>(Remote { bytes }: &Remote) -> Outcome<Name> {
    let is_one = bytes[at::MAGIC] == MAGIC[..]
        && bytes[at::COMPONENT] == component::<T>()
        && bytes[at::REST].iter().all(|byte| *byte == 0);
    let registration = Registration::from_bytes(&bytes[at::TOKEN]).filter(|_| is_one);
    let piece = std::array::from_fn(|place| bytes[at::PIECE_OF.start + place]);
    Ok(Name { registration: registration.ok_or(HAWSER_ERR_ARGUMENT)?, piece })
}

/// A PUT or GET under way, until it has ended.
pub(super) type Operations = Table<Completion>;

impl<T: Listed> Module<T> {
    fn opened(&self, registration: Registration, piece: Piece) -> Outcome<abi::Memory> {
        let key = self.memories.with(|memories| memories.insert(Opened { registration, piece }));
        match key {
            Ok(key) => Ok(abi::Memory { id: self.place.handle(Kind::Memory, key) }),
            Err(code) => {
                self.close_memory(&Opened { registration, piece });
                Err(code)
            }
        }
    }

    fn close_memory(&self, opened: &Opened) {
        if opened.piece == OF_HOST {
            self.core.deregister(opened.registration);
        } else {
            self.core.deregister_device(&opened.piece);
        }
    }

    /// Opens host memory to peers.
    pub(super) fn register(&self, memory: Lent, access: u32) -> Outcome<abi::Memory> {
        let access = match access {
            HAWSER_READ => Access::READ,
            HAWSER_WRITE => Access::WRITE,
            _ if access == HAWSER_READ | HAWSER_WRITE => Access::BOTH,
            _ => return Err(HAWSER_ERR_ARGUMENT),
        };
        if !T::HAS_TRANSFERS || T::HAS_DEVICES && self.core.is_on_device(memory.as_ptr()) {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        self.core.reserve().map_err(|_| HAWSER_ERR_MEMORY)?;
        let registration = self.core.register(memory, access).ok_or(HAWSER_ERR_UNSUPPORTED)?;
        self.opened(registration, OF_HOST)
    }

    /// Opens memory of a device to a peer.
    pub(super) fn register_device(&self, endpoint: Endpoint, memory: Lent) -> Outcome<abi::Memory> {
        let with = self.peers.with(|peers| peers.find(endpoint))?;
        if !T::HAS_DEVICES || !self.core.is_on_device(memory.as_ptr()) {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        let found = self.core.register_device(with, memory, self);
        let (registration, piece) = found.ok_or(HAWSER_ERR_UNSUPPORTED)?;
        self.opened(registration, piece)
    }

    fn memory(&self, memory: abi::Memory) -> Outcome<Key> {
        self.place.key(Kind::Memory, memory.id).ok_or(HAWSER_ERR_STALE)
    }

    /// The name of memory.
    pub(super) fn name_of(&self, memory: abi::Memory) -> Outcome<Remote> {
        let key = self.memory(memory)?;
        let opened = self.memories.with(|memories| memories.get_mut(key).copied())?;
        Ok(write::<T>(&opened))
    }

    /// Closes memory again.
    pub(super) fn deregister(&self, memory: abi::Memory) -> Outcome {
        let key = self.memory(memory)?;
        let opened = self.memories.with(|memories| memories.remove(key))?;
        self.close_memory(&opened);
        Ok(HAWSER_SUCCESS)
    }

    /// PUT, or GET.
    pub(super) fn transfer(
        &self,
        wanted: Access,
        local: Lent,
        remote: &Remote,
        offset: u64,
        completion: Completion,
    ) -> Outcome {
        if !T::HAS_TRANSFERS {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        let with = self.peers.with(|peers| peers.find(completion.endpoint))?;
        let Name { registration, piece } = read::<T>(remote)?;
        if !registration.access.allows(wanted) {
            return Err(HAWSER_ERR_ACCESS);
        }
        let end = offset.checked_add(local.len() as u64);
        if end.is_none_or(|end| end > registration.length) {
            return Err(HAWSER_ERR_TOO_LONG);
        }
        let is_here = T::HAS_DEVICES && !local.is_empty() && self.core.is_on_device(local.as_ptr());
        let on_device = is_here || piece != OF_HOST;
        if on_device && !(T::HAS_DEVICES && wanted == Access::READ) {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        let key = self.operations.with(|operations| operations.insert(completion))?;
        let cookie = self.place.handle(Kind::Operation, key);
        let begun = if on_device {
            let begun = self.core.get_device(with, local, (registration, offset, piece), cookie);
            begun.map(|()| Sending::UnderWay)
        } else if wanted == Access::READ {
            self.core.get(with, local, (registration, offset), cookie)
        } else {
            self.core.put(with, local, (registration, offset), cookie)
        };
        if begun == Ok(Sending::UnderWay) {
            return Ok(HAWSER_SUCCESS);
        }
        let _ = self.operations.with(|operations| operations.remove(key));
        begun.map(|_| HAWSER_DONE).map_err(code::of)
    }

    /// A PUT or GET has ended, if the cookie is one's.
    pub(super) fn transferred(&self, cookie: u64, outcome: Result<(), Error>) {
        let Some(key) = self.place.key(Kind::Operation, cookie) else { return };
        if let Ok(completion) = self.operations.with(|operations| operations.remove(key)) {
            self.complete(completion, code::status(outcome));
        }
    }

    /// Whether anything is under way with an endpoint, or with anybody.
    pub(super) fn is_busy(&self, with: Option<Endpoint>) -> bool {
        self.fragments.with(|fragments| fragments.any(with))
            || self.operations.with(|operations| {
                operations.values().any(|completion| with.is_none_or(|with| completion.endpoint == with))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btl::smcuda::Smcuda;
    use crate::btl::usnic::Usnic;

    #[test]
    fn a_name_is_of_one_transport_and_whole() {
        let bytes = [3, 0, 0, 0, 1, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 1];
        let token: Vec<u8> = bytes.into_iter().chain([0; 15]).collect();
        let registration = Registration::from_bytes(&token).expect("a registration");
        let remote = write::<Smcuda>(&Opened { registration, piece: [9; PIECE] });
        let name = read::<Smcuda>(&remote).expect("its own");
        assert_eq!((name.registration, name.piece), (registration, [9; PIECE]));
        assert_eq!(read::<Usnic>(&remote).err(), Some(HAWSER_ERR_ARGUMENT));
        for (place, what) in [(0, 0), (7, 2), (8, 0), (48, 8), (49, 1), (HAWSER_REMOTE_BYTES - 1, 1)] {
            let mut bytes = remote.bytes;
            bytes[place] = what;
            assert!(read::<Smcuda>(&Remote { bytes }).is_err(), "{place}");
        }
    }
}
