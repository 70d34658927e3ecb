//! [`Names`]: the peers of an address vector, by the number that programs have for them.
//!
//! In a table numbers are places, counted from 0, and a place that is free again is taken again. In a map a number has
//! the generation of its place, too, so that one that was removed is not taken for another.

use super::errno::{Errno, Outcome};
use super::sys;
use crate::wire::gni::name::Name;

/// Which numbers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Places.
    Table,
    /// Places and generations.
    Map,
}

struct Place {
    generation: u32,
    name: Option<Name>,
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

    /// Adds a peer; the same one may be there several times.
    ///
    /// # Errors
    /// `FI_ENOMEM` beyond 2^31 places.
    pub fn insert(&mut self, name: Name) -> Outcome<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len()).ok().filter(|index| *index < 1 << 31);
                self.places.push(Place { generation: 0, name: None });
                index.ok_or(Errno::NOMEM)?
            }
        };
        let place = &mut self.places[index as usize];
        place.name = Some(name);
        Ok(Self::number(self.numbers, index, place.generation))
    }

    fn number(numbers: Numbers, index: u32, generation: u32) -> u64 {
        match numbers {
            Numbers::Table => index.into(),
            Numbers::Map => u64::from(generation) << 32 | u64::from(index),
        }
    }

    fn index(&self, number: u64) -> Outcome<usize> {
        let index = number as u32;
        let place = self.places.get(index as usize).ok_or(Errno::INVAL)?;
        let is_it = place.name.is_some() && Self::number(self.numbers, index, place.generation) == number;
        if is_it { Ok(index as usize) } else { Err(Errno::INVAL) }
    }

    /// Who that is.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    #[inline]
    pub fn get(&self, number: u64) -> Outcome<&Name> {
        let index = self.index(number)?;
        self.places[index].name.as_ref().ok_or(Errno::INVAL)
    }

    /// Removes a peer.
    ///
    /// # Errors
    /// `FI_EINVAL`: nobody.
    pub fn remove(&mut self, number: u64) -> Outcome<Name> {
        let index = self.index(number)?;
        let place = &mut self.places[index];
        let name = place.name.take().ok_or(Errno::INVAL)?;
        // Never that of `FI_ADDR_NOTAVAIL`.
        place.generation = (place.generation + 1) & (u32::MAX >> 1);
        self.free.push(index as u32);
        Ok(name)
    }

    /// The number of a peer, the lowest if there are several.
    pub fn find(&self, name: &Name) -> Option<u64> {
        let is_it = |place: &Place| {
            place.name.is_some_and(|known| (known.device, known.cdm_id) == (name.device, name.cdm_id))
        };
        let index = self.places.iter().position(is_it)?;
        Some(Self::number(self.numbers, index as u32, self.places[index].generation))
    }
}

/// What stands for nobody.
pub(super) const NOBODY: u64 = sys::FI_ADDR_NOTAVAIL;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn name(service: u16) -> Name {
        Name::bound(Ipv4Addr::LOCALHOST, service)
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
        assert_eq!(names.find(&name(4)), Some(1));
        assert_eq!(names.find(&name(2)), None);
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
        assert_eq!(names.find(&name(2)), Some(second));
        assert_eq!(names.get(NOBODY), Err(Errno::INVAL));
    }
}
