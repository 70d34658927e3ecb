//! Copies of short fragments under way, so that a send is over for its user as soon as it has left.
//!
//! A copy is kept until its segment has arrived: what is sent again comes from here. Places are used again, last
//! freed first, and a busy time's memory is given back.

use crate::wire::usnic::INLINE;

/// Bytes of the longest fragment that is copied: they have room behind a short header.
pub(super) const COPIED: usize = INLINE;

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    /// Tag of the PML.
    pub(super) tag: u8,
    /// What it carries, and zeros.
    pub(super) bytes: [u8; COPIED],
}

/// The copies for one peer.
#[derive(Debug, Default)]
pub(super) struct Copies {
    places: Vec<Copied>,
    free: Vec<u32>,
}

impl Copies {
    /// Keeps a fragment; its place.
    #[inline(always)]
    pub(super) fn keep(&mut self, copied: Copied) -> u32 {
        if let Some(place) = self.free.pop()
            && let Some(slot) = self.places.get_mut(place as usize)
        {
            *slot = copied;
            return place;
        }
        self.grow(copied)
    }

    #[cold]
    fn grow(&mut self, copied: Copied) -> u32 {
        self.places.push(copied);
        // No allocation when all are given back.
        self.free.reserve(self.places.len());
        self.places.len() as u32 - 1
    }

    /// What is kept there.
    pub(super) fn get(&self, place: u32) -> Option<&Copied> {
        self.places.get(place as usize)
    }

    /// Gives a place back.
    #[inline(always)]
    pub(super) fn discard(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Gives all back, and their memory.
    pub(super) fn clear(&mut self) {
        (self.places, self.free) = (Vec::new(), Vec::new());
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Copied>() + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_keep_what_they_hold() {
        let copied = |tag: u8| Copied { tag, bytes: [tag; COPIED] };
        let mut copies = Copies::default();
        let places: Vec<u32> = (0..100).map(|tag| copies.keep(copied(tag))).collect();
        assert!(
            places.iter().zip(0..).all(|(place, tag)| copies.get(*place).is_some_and(|it| it.tag == tag))
        );
        copies.discard(places[7]);
        assert_eq!(copies.keep(copied(200)), places[7]);
        assert!(copies.get(places[7]).is_some_and(|it| it.bytes == [200; COPIED]));
        assert!(copies.get(places[8]).is_some_and(|it| it.tag == 8) && copies.get(100).is_none());
        let before = copies.capacity_bytes();
        places.iter().for_each(|place| copies.discard(*place));
        (0..100).for_each(|tag| _ = copies.keep(copied(tag)));
        assert_eq!(copies.capacity_bytes(), before, "nothing more is allocated");
        copies.clear();
        assert!(copies.capacity_bytes() == 0 && copies.get(0).is_none());
    }
}
