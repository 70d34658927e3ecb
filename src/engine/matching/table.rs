//! Groups of entries that are alike, by what they have in common: an open hash table of lists.
//!
//! Sources and tags are chosen by peers, so the hash is keyed (SipHash-1-3): nobody outside can make entries that
//! meet in one place. At most half of the places are taken, and a group that goes leaves no trace: what it had pushed
//! further moves up (Knuth, The Art of Computer Programming, 6.4, algorithm R).

use std::cell::Cell;

use siphasher::sip::SipHasher13;

use super::list::{List, Nodes};
use super::look;

/// Places of a table that is first used.
const LEAST: usize = 64;
/// Bytes that are hashed: two words and a class.
const LENGTH: usize = 17;

/// What the entries of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Which bits of the tag count, and whether the source does, is the same for a class.
    pub(super) class: u8,
    pub(super) source: u64,
    pub(super) tag: u64,
}

/// No class has this number.
const NONE: Group = Group { class: u8::MAX, source: 0, tag: 0 };

#[derive(Clone, Copy, Debug)]
struct Place {
    source: u64,
    tag: u64,
    list: List,
    hash: u32,
    class: u8,
}

impl Place {
    #[inline]
    fn is_of(&self, group: &Group) -> bool {
        self.tag == group.tag && self.source == group.source && self.class == group.class
    }
}

const VACANT: Place = Place { source: 0, tag: 0, list: List::EMPTY, hash: 0, class: 0 };

/// The groups that have entries. Its room stays when they go.
#[derive(Debug)]
pub(super) struct Table {
    /// None, or a power of two.
    places: Vec<Place>,
    taken: usize,
    /// What was found last, and where: many in a row are often of one group, which is looked for there without a hash.
    recent: Cell<(Group, usize)>,
    hasher: SipHasher13,
}

impl Table {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            places: Vec::new(),
            taken: 0,
            recent: Cell::new((NONE, 0)),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    #[inline]
    fn hash(&self, group: &Group) -> u32 {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&group.source.to_le_bytes());
        bytes[8..16].copy_from_slice(&group.tag.to_le_bytes());
        bytes[16] = group.class;
        self.hasher.hash(&bytes) as u32
    }

    /// The group, if it is where one was found last.
    #[inline]
    fn again(&self, group: &Group) -> Option<usize> {
        let (recent, at) = self.recent.get();
        if recent != *group {
            return None;
        }
        look();
        let place = self.places.get(at)?;
        (place.is_of(group) && !place.list.is_empty()).then_some(at)
    }

    /// The place of the group, or the vacant one where it belongs. There is a vacant one.
    #[inline]
    fn seek(&self, group: &Group, hash: u32) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            look();
            let place = &self.places[at];
            if place.list.is_empty() {
                return Err(at);
            }
            if place.is_of(group) {
                self.recent.set((*group, at));
                return Ok(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Where the group is, until the next change of the table.
    #[inline]
    pub(super) fn find(&self, group: &Group) -> Option<usize> {
        if self.taken == 0 {
            return None;
        }
        self.again(group).or_else(|| self.seek(group, self.hash(group)).ok())
    }

    /// The oldest entry of the group at `place`.
    #[inline]
    pub(super) fn oldest(&self, place: usize) -> u32 {
        self.places[place].list.first()
    }

    /// Enters an entry as the newest of its group.
    #[inline]
    pub(super) fn push<T, const LANES: usize>(
        &mut self,
        group: &Group,
        nodes: &mut Nodes<T, LANES>,
        lane: usize,
        index: u32,
    ) {
        let at = self.again(group).unwrap_or_else(|| self.enter(group));
        nodes.push(lane, &mut self.places[at].list, index);
    }

    /// The place of a group that may be new.
    fn enter(&mut self, group: &Group) -> usize {
        if (self.taken + 1) * 2 > self.places.len() {
            self.grow();
        }
        let hash = self.hash(group);
        self.seek(group, hash).unwrap_or_else(|vacant| {
            let Group { class, source, tag } = *group;
            self.places[vacant] = Place { source, tag, list: List::EMPTY, hash, class };
            self.taken += 1;
            self.recent.set((*group, vacant));
            vacant
        })
    }

    /// Takes an entry out of its group.
    #[inline]
    pub(super) fn unlink<T, const LANES: usize>(
        &mut self,
        group: &Group,
        nodes: &mut Nodes<T, LANES>,
        lane: usize,
        index: u32,
    ) {
        if nodes.is_between(lane, index) {
            // The ends of the list stay what they are.
            nodes.unlink(lane, &mut { List::EMPTY }, index);
        } else if let Some(place) = self.find(group) {
            self.unlink_at(place, nodes, lane, index);
        }
    }

    /// Takes an entry out of the group at `place`.
    #[inline]
    pub(super) fn unlink_at<T, const LANES: usize>(
        &mut self,
        place: usize,
        nodes: &mut Nodes<T, LANES>,
        lane: usize,
        index: u32,
    ) {
        nodes.unlink(lane, &mut self.places[place].list, index);
        if self.places[place].list.is_empty() {
            self.vacate(place);
        }
    }

    /// The group at `hole` has gone: those behind it that would no longer be found move up.
    fn vacate(&mut self, mut hole: usize) {
        let mask = self.places.len() - 1;
        let mut at = (hole + 1) & mask;
        while !self.places[at].list.is_empty() {
            look();
            let home = self.places[at].hash as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.places[hole] = VACANT;
        self.taken -= 1;
    }

    #[cold]
    fn grow(&mut self) {
        let places = vec![VACANT; LEAST.max(self.places.len() * 2)];
        let mask = places.len() - 1;
        for place in std::mem::replace(&mut self.places, places) {
            if place.list.is_empty() {
                continue;
            }
            let mut at = place.hash as usize & mask;
            while !self.places[at].list.is_empty() {
                at = (at + 1) & mask;
            }
            self.places[at] = place;
        }
    }

    /// Groups, and places for them.
    #[cfg(test)]
    pub(super) fn room(&self) -> (usize, usize) {
        (self.taken, self.places.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, VecDeque};

    #[test]
    fn a_table_is_a_map_of_queues() {
        for seed in 0..20_u64 {
            let mut random = seed;
            let mut table = Table::new(&[seed as u8; 16]);
            let mut nodes = Nodes::<Group, 1>::new();
            let mut model: HashMap<(u8, u64, u64), VecDeque<u32>> = HashMap::new();
            let mut last = NONE;
            for step in 0..4000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let dice = random >> 33;
                // Up, then down again, with groups of one and of several.
                let comes = if step < 2000 { dice % 8 < 5 } else { dice % 8 < 3 };
                let number = dice >> 3;
                let group = Group { class: (number % 3) as u8, source: number % 5, tag: number >> 3 & 0x1f };
                let queue = model.entry((group.class, group.source, group.tag)).or_default();
                if comes {
                    let index = nodes.insert(group).index;
                    table.push(&group, &mut nodes, 0, index);
                    queue.push_back(index);
                } else if number % 2 == 0 || queue.len() < 2 {
                    let place = table.find(&group);
                    assert_eq!(place.map(|place| table.oldest(place)), queue.front().copied());
                    if let (Some(place), Some(index)) = (place, queue.pop_front()) {
                        table.unlink_at(place, &mut nodes, 0, index);
                        nodes.remove(index);
                    }
                } else if let Some(index) = queue.remove(queue.len() / 2) {
                    table.unlink(&group, &mut nodes, 0, index);
                    nodes.remove(index);
                }
                let groups = model.values().filter(|queue| !queue.is_empty()).count();
                assert_eq!(table.room().0, groups);
                // What was found last has gone or moved meanwhile, or has not.
                for group in [last, group] {
                    let oldest = model.get(&(group.class, group.source, group.tag)).and_then(VecDeque::front);
                    assert_eq!(table.find(&group).map(|place| table.oldest(place)), oldest.copied());
                }
                if dice % 4 == 0 {
                    last = group;
                }
            }
            for ((class, source, tag), queue) in model {
                let group = Group { class, source, tag };
                for index in queue {
                    let place = table.find(&group).expect("the group is there");
                    assert_eq!(table.oldest(place), index);
                    table.unlink_at(place, &mut nodes, 0, index);
                }
                assert_eq!(table.find(&group), None);
            }
            assert_eq!(table.room().0, 0);
        }
    }

    #[test]
    fn where_a_group_stands_depends_on_the_key() {
        let home = |key: u8, tag| Table::new(&[key; 16]).hash(&Group { class: 1, source: 2, tag }) % 1024;
        let alike = (0..1000).filter(|tag| home(1, *tag) == home(2, *tag)).count();
        assert!(alike < 20, "{alike} of 1000 stand at the same place under two keys");
        assert!((0..1000).all(|tag| home(1, tag) == home(1, tag)));
    }
}
