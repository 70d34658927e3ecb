//! Receives that wait for messages, in the order in which they were posted.
//!
//! A few are searched from the oldest on, which takes less than hashing. When there are many, each stands in a group
//! of those that ask for the same. What a group is found by depends on its *class*: whether the source counts, and
//! which bits of the tag. A message belongs to one group of each class, and the oldest of their oldest is the one that
//! it goes to. Receives of more classes than there is room for are *strays*, and searched from the oldest on.

use super::list::{List, Nodes};
use super::table::Table;
use super::{ReceiveId, Shape, Times, Wanted, look};

/// More receives than that are hashed.
pub(super) const LONG: usize = 16;
/// And no longer when so few are left.
const SHORT: usize = 4;
/// Classes at a time.
pub(super) const CLASSES: usize = 16;
/// The class of a stray.
const STRAY: u8 = CLASSES as u8;

/// The lane of all receives.
const ORDER: usize = 0;
/// The lane of the group, or of the strays.
const GROUP: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Receive<R> {
    wanted: Wanted,
    /// Earlier receives have lower ones.
    sequence: u64,
    times: Times,
    /// Its class, while receives are hashed.
    class: u8,
    token: R,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    shape: Shape,
    /// Receives of that shape that are no strays.
    receives: u32,
}

/// Which receive takes a message.
#[derive(Clone, Copy, Debug)]
struct Found {
    index: u32,
    sequence: u64,
    /// Of its group in the table, if it is in one.
    place: Option<usize>,
}

/// A receive that a message would take if it came now.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<R> {
    /// The caller's name for the receive.
    pub token: R,
    found: Found,
}

#[derive(Debug)]
pub(super) struct Posted<R> {
    nodes: Nodes<Receive<R>, 2>,
    order: List,
    sequence: u64,
    /// Whether receives stand in groups.
    hashed: bool,
    table: Table,
    classes: [Class; CLASSES],
    /// A bit for each class that has receives.
    live: u32,
    strays: List,
}

impl<R: Copy> Posted<R> {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            nodes: Nodes::new(),
            order: List::EMPTY,
            sequence: 0,
            hashed: false,
            table: Table::new(key),
            classes: [Class { shape: Shape::EXACT, receives: 0 }; CLASSES],
            live: 0,
            strays: List::EMPTY,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Enters a receive behind all others.
    #[inline(always)]
    pub(super) fn push(&mut self, wanted: Wanted, token: R, times: Times) -> ReceiveId {
        self.sequence += 1;
        let key = self.nodes.insert(Receive { wanted, sequence: self.sequence, times, class: STRAY, token });
        self.nodes.push(ORDER, &mut self.order, key.index);
        if self.hashed {
            self.enter(key.index);
        } else if self.nodes.len() > LONG {
            self.enter_all();
        }
        ReceiveId(key)
    }

    /// The oldest receive that fits.
    #[inline(always)]
    fn find(&self, source: u64, tag: u64) -> Option<Found> {
        if self.hashed {
            return self.look_up(source, tag);
        }
        // Mostly it is the first.
        let index = self.order.first();
        let first = self.nodes.at(index)?;
        if first.wanted.fits(source, tag) {
            look();
            return Some(Found { index, sequence: first.sequence, place: None });
        }
        self.search(self.order, ORDER, source, tag)
    }

    /// The same, until the next change, unless it is one for many messages.
    #[inline(always)]
    pub(super) fn candidate(&self, source: u64, tag: u64) -> Option<Candidate<R>> {
        let found = self.find(source, tag)?;
        let receive = self.nodes.at(found.index).filter(|receive| receive.times == Times::Once)?;
        Some(Candidate { token: receive.token, found })
    }

    /// Such a receive goes.
    #[inline(always)]
    pub(super) fn take_candidate(&mut self, candidate: &Candidate<R>) {
        self.remove(candidate.found.index, candidate.found.place);
    }

    /// The token of the oldest receive that fits, which goes unless it is one for many messages.
    #[inline(always)]
    pub(super) fn take(&mut self, source: u64, tag: u64) -> Option<(R, Option<ReceiveId>)> {
        let Found { index, place, .. } = self.find(source, tag)?;
        let receive = self.nodes.at(index)?;
        let token = receive.token;
        if receive.times == Times::Many {
            return Some((token, self.nodes.key(index).map(ReceiveId)));
        }
        self.remove(index, place);
        Some((token, None))
    }

    /// Takes a receive out.
    pub(super) fn withdraw(&mut self, id: ReceiveId) -> Option<R> {
        let token = self.nodes.get(id.0)?.token;
        self.remove(id.0.index, None);
        Some(token)
    }

    /// What a posted receive for many messages asks for.
    pub(super) fn of_many(&self, id: ReceiveId) -> Option<Wanted> {
        self.nodes.get(id.0).filter(|receive| receive.times == Times::Many).map(|receive| receive.wanted)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ReceiveId, R)> {
        let receives = self.nodes.iter(ORDER, self.order);
        receives.filter_map(|(index, receive)| Some((ReceiveId(self.nodes.key(index)?), receive.token)))
    }

    /// The sources that they name.
    pub(super) fn sources(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter(ORDER, self.order).filter_map(|(_, receive)| receive.wanted.source)
    }

    /// Takes those out that only want messages of this source; all, if none is given. Oldest first.
    pub(super) fn take_all(&mut self, of: Option<u64>) -> Vec<R> {
        let mut tokens = Vec::new();
        let mut index = self.order.first();
        while let Some(receive) = self.nodes.at(index) {
            let next = self.nodes.next(ORDER, index);
            if of.is_none() || receive.wanted.source == of {
                tokens.push(receive.token);
                self.remove(index, None);
            }
            index = next;
        }
        tokens
    }

    /// The oldest of a list that fits.
    #[inline(never)]
    fn search(&self, list: List, lane: usize, source: u64, tag: u64) -> Option<Found> {
        let fits = |receive: &Receive<R>| {
            look();
            receive.wanted.fits(source, tag)
        };
        let (index, receive) = self.nodes.iter(lane, list).find(|(_, receive)| fits(receive))?;
        Some(Found { index, sequence: receive.sequence, place: None })
    }

    /// The oldest that fits, by the tables.
    fn look_up(&self, source: u64, tag: u64) -> Option<Found> {
        let mut oldest: Option<Found> = None;
        let mut live = self.live;
        while live != 0 {
            let class = live.trailing_zeros() as u8;
            live &= live - 1;
            let group = self.classes[usize::from(class)].shape.group(class, source, tag);
            let Some(place) = self.table.find(&group) else { continue };
            let index = self.table.oldest(place);
            let Some(receive) = self.nodes.at(index) else { continue };
            if oldest.is_none_or(|oldest| receive.sequence < oldest.sequence) {
                oldest = Some(Found { index, sequence: receive.sequence, place: Some(place) });
            }
        }
        if self.strays.is_empty() { oldest } else { self.older_stray(oldest, source, tag) }
    }

    /// A stray that fits and is older than `oldest`, or else that.
    fn older_stray(&self, oldest: Option<Found>, source: u64, tag: u64) -> Option<Found> {
        for (index, stray) in self.nodes.iter(GROUP, self.strays) {
            look();
            if oldest.is_some_and(|oldest| oldest.sequence < stray.sequence) {
                break;
            }
            if stray.wanted.fits(source, tag) {
                return Some(Found { index, sequence: stray.sequence, place: None });
            }
        }
        oldest
    }

    /// From now on receives are hashed.
    #[cold]
    fn enter_all(&mut self) {
        self.hashed = true;
        let mut index = self.order.first();
        while self.nodes.at(index).is_some() {
            self.enter(index);
            index = self.nodes.next(ORDER, index);
        }
    }

    /// Enters a receive in its group, as the newest.
    #[inline(never)]
    fn enter(&mut self, index: u32) {
        let Some(receive) = self.nodes.at_mut(index) else { return };
        look();
        let wanted = receive.wanted;
        let shape = Shape::of(&wanted);
        let is_of = |class: &usize| self.live >> class & 1 == 1 && self.classes[*class].shape == shape;
        let known = (0..CLASSES).find(is_of);
        let Some(class) = known.or_else(|| (0..CLASSES).find(|class| self.live >> class & 1 == 0)) else {
            receive.class = STRAY;
            return self.nodes.push(GROUP, &mut self.strays, index);
        };
        receive.class = class as u8;
        if known.is_none() {
            self.live |= 1 << class;
            self.classes[class] = Class { shape, receives: 0 };
        }
        self.classes[class].receives += 1;
        let group = shape.group_of(class as u8, &wanted);
        self.table.push(&group, &mut self.nodes, GROUP, index);
    }

    /// Takes a receive out of its group, which is at `place`, if that is known.
    #[inline(never)]
    fn leave(&mut self, index: u32, place: Option<usize>) {
        let Some(receive) = self.nodes.at(index) else { return };
        let (wanted, own) = (receive.wanted, receive.class);
        let Some(class) = self.classes.get_mut(usize::from(own)) else {
            return self.nodes.unlink(GROUP, &mut self.strays, index);
        };
        class.receives -= 1;
        if class.receives == 0 {
            self.live &= !(1 << own);
        }
        match place {
            Some(place) => self.table.unlink_at(place, &mut self.nodes, GROUP, index),
            None => self.table.unlink(&class.shape.group_of(own, &wanted), &mut self.nodes, GROUP, index),
        }
    }

    /// Takes a receive out of everything; `place` as in [`Self::leave`].
    #[inline(always)]
    fn remove(&mut self, index: u32, place: Option<usize>) {
        self.nodes.unlink(ORDER, &mut self.order, index);
        if self.hashed {
            self.leave(index, place);
        }
        self.nodes.discard(index);
        if self.hashed && self.nodes.len() <= SHORT {
            self.leave_all();
        }
    }

    /// From now on receives are searched.
    #[cold]
    fn leave_all(&mut self) {
        let mut index = self.order.first();
        while self.nodes.at(index).is_some() {
            look();
            self.leave(index, None);
            index = self.nodes.next(ORDER, index);
        }
        self.hashed = false;
    }
}

#[cfg(test)]
impl<R: Copy> Posted<R> {
    /// What tests want to have come by: hashed or not, classes with receives, whether there are strays.
    pub(super) fn state(&self) -> (bool, u32, bool) {
        (self.hashed, self.live.count_ones(), !self.strays.is_empty())
    }

    /// Places of the tables, taken or not.
    pub(super) fn room(&self) -> [usize; 2] {
        [self.nodes.places(), self.table.room().1]
    }

    /// Groups hold all receives that they should, and no others.
    pub(super) fn check(&self) {
        assert_eq!(self.nodes.iter(ORDER, self.order).count(), self.nodes.len());
        let strays = self.nodes.iter(GROUP, self.strays).count();
        let in_classes: usize = self.classes.iter().map(|class| class.receives as usize).sum();
        assert_eq!(in_classes + strays, if self.hashed { self.nodes.len() } else { 0 });
        assert!(self.table.room().0 <= in_classes && (in_classes == 0) == (self.table.room().0 == 0));
    }
}
