//! [`Names`]: the peers of an address vector, by the number that programs have for them.
//!
//! In a table numbers are places, counted from 0, and a place that is free again is taken again. In a map a number has
//! the generation of its place, too, so that one that was removed is not taken for another. The upper bits of both are zero,
//! where an address may say which receive context of a peer is meant.

use super::errno::{Errno, Outcome};
use super::sys;
use crate::wire::gni::context::{MOST_BITS, Part, whole};
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::name::Name;

/// Which numbers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Places.
    Table,
    /// Places and generations.
    Map,
}

impl Numbers {
    /// The number of a place, which was used so often before.
    pub(super) fn number(self, index: u32, generation: u32) -> u64 {
        match self {
            Self::Table => index.into(),
            Self::Map => u64::from(generation) << 32 | u64::from(index),
        }
    }
}

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// As it is called.
    pub name: Name,
    /// Who that is from here.
    pub id: NameId,
    /// It is of another node.
    pub is_far: bool,
}

impl Known {
    /// Whether that is the same endpoint, or a context of it, in whichever life.
    pub(super) fn is(&self, peer: &NameId) -> bool {
        (self.id.device, self.id.cdm_id) == (peer.device, whole(peer.cdm_id))
    }

    /// A receive context of it; `None`: it has no such.
    pub(super) fn receiving(&self, index: u8) -> Option<Self> {
        let name = self.name.part(Part::Receive(index))?;
        Some(Self { name, id: NameId { cdm_id: name.cdm_id, ..self.id }, ..*self })
    }
}

struct Place {
    generation: u32,
    peer: Option<Known>,
}

/// The peers.
pub struct Names {
    numbers: Numbers,
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Names {
    /// None yet.
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, places: Vec::new(), free: Vec::new() }
    }

    /// Which numbers they have.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Adds a peer; the same one may be there several times.
    ///
    /// # Errors
    /// `FI_ENOMEM` beyond 2^31 places.
    pub fn insert(&mut self, peer: Known) -> Outcome<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok().filter(|index| *index < 1 << 31);
                self.places.push(Place { generation: 0, peer: None });
                index.ok_or(Errno::NOMEM)?
            }
        };
        let place = &mut self.places[index as usize];
        place.peer = Some(peer);
        Ok(self.numbers.number(index, place.generation))
    }

    fn index(&self, number: u64) -> Outcome<usize> {
        let index = number as u32;
        let place = self.places.get(index as usize).ok_or(Errno::INVAL)?;
        let is_it = place.peer.is_some() && self.numbers.number(index, place.generation) == number;
        if is_it { Ok(index as usize) } else { Err(Errno::INVAL) }
    }

    /// Who that is.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    #[inline]
    pub fn get(&self, number: u64) -> Outcome<&Known> {
        let index = self.index(number)?;
        self.places[index].peer.as_ref().ok_or(Errno::INVAL)
    }

    /// Removes a peer.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    pub fn remove(&mut self, number: u64) -> Outcome<Known> {
        let index = self.index(number)?;
        let place = &mut self.places[index];
        let peer = place.peer.take().ok_or(Errno::INVAL)?;
        place.generation = (place.generation + 1) & (u32::MAX >> MOST_BITS);
        self.free.push(index as u32);
        Ok(peer)
    }

    /// All of them.
    pub fn each(&self, mut say: impl FnMut(&NameId)) {
        self.places.iter().filter_map(|place| place.peer.as_ref()).for_each(|known| say(&known.id));
    }

    /// The number of a peer in this life, or in whichever, the lowest if there are several.
    pub fn find(&self, peer: &NameId) -> Option<u64> {
        let is_it = |place: &Place| place.peer.is_some_and(|known| known.is(peer));
        let lives = |place: &Place| {
            place.peer.is_some_and(|known| known.is(peer) && known.id.incarnation == peer.incarnation)
        };
        let index = self.places.iter().position(lives).or_else(|| self.places.iter().position(is_it))?;
        Some(self.numbers.number(index as u32, self.places[index].generation))
    }
}

/// What stands for nobody.
pub(super) const NOBODY: u64 = sys::FI_ADDR_NOTAVAIL;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn name(service: u16) -> Known {
        let name = Name::bound(Ipv4Addr::LOCALHOST, service);
        Known { name, id: NameId { device: 1, cdm_id: service.into(), incarnation: 0 }, is_far: false }
    }

    #[test]
    fn a_table_counts_from_nought_and_takes_places_again() {
        let mut names = Names::new(Numbers::Table);
        assert_eq!([1, 2, 3].map(|service| names.insert(name(service))), [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(names.get(1), Ok(&name(2)));
        assert_eq!(names.remove(1), Ok(name(2)));
        assert_eq!(names.get(1), Err(Errno::INVAL));
        assert_eq!(names.remove(1), Err(Errno::INVAL));
        assert_eq!(names.insert(name(4)), Ok(1));
        assert_eq!(names.find(&name(4).id), Some(1));
        assert_eq!(names.find(&name(2).id), None);
    }

    #[test]
    fn a_number_of_a_map_is_never_another_peer() {
        let mut names = Names::new(Numbers::Map);
        let first = names.insert(name(1)).expect("a number");
        names.remove(first).expect("there");
        let second = names.insert(name(2)).expect("a number");
        assert_ne!(first, second);
        assert_eq!(names.get(first), Err(Errno::INVAL));
        assert_eq!(names.get(second), Ok(&name(2)));
        assert_eq!(names.find(&name(2).id), Some(second));
        assert_eq!(names.get(NOBODY), Err(Errno::INVAL));
    }

    #[test]
    fn no_number_reaches_the_bits_of_receive_contexts() {
        let mut names = Names::new(Numbers::Map);
        let first = names.insert(name(1)).expect("a number");
        names.places[0].generation = u32::MAX >> MOST_BITS;
        let last = Numbers::Map.number(0, u32::MAX >> MOST_BITS);
        assert_eq!((names.get(first), names.get(last)), (Err(Errno::INVAL), Ok(&name(1))));
        assert_eq!(last >> (u64::BITS - MOST_BITS), 0);
        names.remove(last).expect("there");
        assert_eq!(names.insert(name(2)), Ok(first), "it begins again");
    }

    #[test]
    fn of_two_lives_the_one_that_is_asked_for_is_found_and_any_for_another() {
        let mut names = Names::new(Numbers::Table);
        let life = |incarnation| {
            let peer = name(7);
            Known { id: NameId { incarnation, ..peer.id }, ..peer }
        };
        for incarnation in [5, 6] {
            names.insert(life(incarnation)).expect("a number");
        }
        let found = [5, 6, 7].map(|incarnation| names.find(&life(incarnation).id));
        assert_eq!(found, [Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn a_context_of_a_peer_is_found_as_the_peer() {
        let scalable = Name { contexts: 2, incarnation: 9, ..name(7).name };
        let peer = Known { name: scalable, ..name(7) };
        let part = peer.receiving(1).expect("there");
        assert_eq!((part.id.device, part.name.port), (peer.id.device, peer.name.port));
        assert_ne!(part.id.cdm_id, peer.id.cdm_id);
        assert!(peer.is(&part.id) && peer.is(&peer.id) && !name(8).is(&part.id));
        assert_eq!((peer.receiving(0), peer.receiving(2)), (Some(peer), None));
    }
}
