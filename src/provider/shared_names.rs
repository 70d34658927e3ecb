//! [`SharedNames`]: the peers of an address vector that has a name, `fi_av(3)`. Each process of this user and node that opens
//! the name has the same ones under the same numbers.
//!
//! What lies in the [table](Table) was written by any of these processes: a name is parsed whenever it is read.

use std::net::Ipv4Addr;

use super::errno::{Errno, Outcome};
use super::names::{Known, Numbers};
use super::{resolve, sys};
use crate::shm::{Access, Entry, PLACES, Table};
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::name::{LEN, Name};

/// The peers.
pub(super) struct SharedNames {
    table: Table,
    numbers: Numbers,
    /// The addresses of this node, as they were when it was opened here.
    own: Vec<Ipv4Addr>,
}

const _: () = assert!(size_of::<Entry>() == LEN && PLACES <= 1 << 31);

fn entry_of(name: &Name) -> Entry {
    let bytes = name.emit();
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * word + byte])))
}

fn name_of(entry: &Entry) -> Option<Name> {
    let mut bytes = [0; LEN];
    for (part, word) in bytes.chunks_exact_mut(8).zip(entry) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    Name::parse(&bytes)
}

impl SharedNames {
    /// Those of a name, with room for so many. Who does not say what numbers there are takes what is there, or places.
    ///
    /// # Errors
    /// `FI_ENOENT`: they are to be read only, and nobody has them. `FI_EINVAL`: that is no name, or its numbers are others.
    /// `FI_ENOMEM`: so many do not fit. `FI_EACCES` and `FI_EBUSY`: what has the name cannot be opened.
    pub(super) fn open(name: &[u8], numbers: Option<Numbers>, count: usize, access: Access) -> Outcome<Self> {
        if count > PLACES {
            return Err(Errno::NOMEM);
        }
        let kind = u64::from(numbers.unwrap_or(Numbers::Table).kind());
        let table = Table::open(name, kind, access).map_err(Errno::from)?;
        let found = Numbers::from_kind(table.kind()).ok_or(Errno::INVAL)?;
        if numbers.is_some_and(|numbers| numbers != found) {
            return Err(Errno::INVAL);
        }
        Ok(Self { table, numbers: found, own: resolve::own()? })
    }

    /// Which numbers there are.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Where the numbers of all peers lie, in the order of their places.
    pub(super) fn map(&self) -> *const u64 {
        self.table.numbers()
    }

    /// Whether peers may be added and removed here.
    pub(super) fn is_writable(&self) -> bool {
        self.table.is_writable()
    }

    /// Another number each time that they have changed.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.table.changes()
    }

    fn number(&self, place: usize, generation: u32) -> u64 {
        self.numbers.number(place as u32, generation)
    }

    /// The place that a number names, how often it was used before, and what is there.
    fn entry(&self, number: u64) -> Outcome<(usize, u32, Entry)> {
        let place = number as u32 as usize;
        let (generation, entry) = self.table.get(place).ok_or(Errno::INVAL)?;
        if self.number(place, generation) != number {
            return Err(Errno::INVAL);
        }
        Ok((place, generation, entry))
    }

    /// Who that is.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    pub(super) fn get(&self, number: u64) -> Outcome<Known> {
        let (.., entry) = self.entry(number)?;
        name_of(&entry).map(|name| resolve::known(name, &self.own)).ok_or(Errno::INVAL)
    }

    /// Adds a peer; the same one may be there several times.
    ///
    /// # Errors
    /// `FI_ENOMEM`: there are too many.
    pub(super) fn insert(&self, peer: &Known) -> Outcome<u64> {
        let number = |place, generation| self.number(place, generation);
        self.table.insert(&entry_of(&peer.name), number).map_err(Errno::from)
    }

    /// Removes a peer.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    pub(super) fn remove(&self, number: u64) -> Outcome<()> {
        let (place, generation, _) = self.entry(number)?;
        // Who has removed it meanwhile has done what was wanted of nobody.
        self.table.remove(place, generation).map_err(|_| Errno::INVAL)
    }

    /// All of them.
    pub(super) fn each(&self, mut say: impl FnMut(&NameId)) {
        let names = (0..self.table.used()).filter_map(|place| name_of(&self.table.get(place)?.1));
        names.for_each(|name| say(&resolve::known(name, &self.own).id));
    }

    /// The number of a peer, in whichever life, the lowest if there are several.
    pub(super) fn find(&self, peer: &NameId) -> Option<u64> {
        let mut any = None;
        for place in 0..self.table.used() {
            let Some((generation, entry)) = self.table.get(place) else { continue };
            let Some(known) = name_of(&entry).map(|name| resolve::known(name, &self.own)) else { continue };
            if known.is(peer) && known.id.incarnation == peer.incarnation {
                return Some(self.number(place, generation));
            }
            if known.is(peer) && any.is_none() {
                any = Some(self.number(place, generation));
            }
        }
        any
    }
}

impl Numbers {
    /// The type of address vectors with such numbers.
    pub(super) fn kind(self) -> u32 {
        match self {
            Self::Map => sys::FI_AV_MAP,
            Self::Table => sys::FI_AV_TABLE,
        }
    }

    fn from_kind(kind: u64) -> Option<Self> {
        [Self::Map, Self::Table].into_iter().find(|numbers| u64::from(numbers.kind()) == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(of: &str, numbers: Option<Numbers>, access: Access) -> Outcome<SharedNames> {
        let name = format!("names {of} {}", std::process::id());
        SharedNames::open(name.as_bytes(), numbers, 0, access)
    }

    fn peer(service: u16) -> Known {
        let name = Name { key: [7; 16], ..Name::bound(Ipv4Addr::LOCALHOST, service) };
        resolve::known(name, &[])
    }

    #[test]
    fn all_who_open_a_name_have_the_same_peers_under_the_same_numbers() {
        for numbers in [Numbers::Map, Numbers::Table] {
            let made = open("same", Some(numbers), Access::Write).expect("made");
            let [reads, writes] =
                [Access::Read, Access::Write].map(|access| open("same", None, access).expect("found"));
            assert_eq!((reads.numbers(), writes.numbers()), (numbers, numbers), "its maker's");
            let before = reads.version();
            let one = made.insert(&peer(1)).expect("room");
            let two = writes.insert(&peer(2)).expect("room");
            assert_ne!(reads.version(), before);
            assert_eq!([reads.get(one), reads.get(two)], [Ok(peer(1)), Ok(peer(2))]);
            assert_eq!([reads.find(&peer(2).id), reads.find(&peer(3).id)], [Some(two), None]);
            assert_eq!(writes.remove(one), Ok(()));
            assert_eq!((reads.get(one), reads.find(&peer(1).id)), (Err(Errno::INVAL), None));
            assert_eq!(made.remove(one), Err(Errno::INVAL));
            let next = made.insert(&peer(4)).expect("room");
            assert_eq!(next == one, numbers == Numbers::Table, "that of a map is never another peer");
            assert_eq!(reads.get(next), Ok(peer(4)));
            assert_eq!(reads.insert(&peer(5)), Err(Errno::INVAL));
            assert_eq!(reads.get(u64::MAX), Err(Errno::INVAL));
        }
    }

    #[test]
    fn numbers_of_another_kind_are_not_taken_for_these() {
        let _made = open("kinds", Some(Numbers::Map), Access::Write).expect("made");
        for access in [Access::Read, Access::Write] {
            assert_eq!(open("kinds", Some(Numbers::Table), access).err(), Some(Errno::INVAL));
        }
        assert_eq!(open("none", None, Access::Read).err(), Some(Errno::NOENT));
        assert_eq!(SharedNames::open(b"", None, 0, Access::Write).err(), Some(Errno::INVAL));
        assert_eq!(SharedNames::open(b"n", None, PLACES + 1, Access::Write).err(), Some(Errno::NOMEM));
    }

    #[test]
    fn what_is_no_name_is_nobody() {
        let name = format!("names rubbish {}", std::process::id());
        let table = Table::open(name.as_bytes(), sys::FI_AV_TABLE.into(), Access::Write).expect("made");
        let reads = open("rubbish", None, Access::Read).expect("found");
        for (place, entry) in [[0; 6], [u64::MAX; 6]].into_iter().enumerate() {
            assert_eq!(table.insert(&entry, |place, _| place as u64), Ok(place as u64));
            assert_eq!(reads.get(place as u64), Err(Errno::INVAL));
        }
        assert_eq!(reads.find(&peer(1).id), None);
        let other = Table::open(b"of another kind", 7, Access::Write).expect("made");
        assert_eq!(other.kind(), 7);
        assert_eq!(SharedNames::open(b"of another kind", None, 0, Access::Read).err(), Some(Errno::INVAL));
    }
}
