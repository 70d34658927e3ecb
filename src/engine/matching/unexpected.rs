//! Messages that no receive has asked for yet, in the order in which they came.
//!
//! They are searched from the oldest on, until searches have gone on in vain for as many entries as there are. Then an
//! index is made, for receives of the shape that was looked for last: from it the oldest that fits is taken at once,
//! and what comes is entered. There are a few indexes at a time. One that has not been used while searches went on for
//! longer still gives its place to another; and all go when few messages are left. So making one never takes longer
//! than the searches that called for it, and who receives what he is sent about in order needs none.

use super::list::{List, Nodes};
use super::table::{Group, Table};
use super::{Message, MessageId, Shape, Wanted, look};

/// Indexes at a time.
pub(super) const INDEXES: usize = 4;
/// No index is made for so few messages, nor for searches that look at so few.
pub(super) const LONG: usize = 16;
/// And those there are go when so few are left.
const SHORT: usize = 4;

/// The lane of all that wait, or of all that are claimed; index `n` has the lane `n + 1`.
const ORDER: usize = 0;
const LANES: usize = 1 + INDEXES;

#[derive(Clone, Copy, Debug)]
struct Entry<M> {
    message: Message<M>,
    is_claimed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Index {
    /// Whose receives find messages by it; nobody's, if it is not there.
    shape: Option<Shape>,
    /// How long searches had been when it was last used.
    used: u64,
}

#[derive(Debug)]
pub(super) struct Unexpected<M> {
    nodes: Nodes<Entry<M>, LANES>,
    /// Those that can be taken.
    order: List,
    waiting: usize,
    claimed: List,
    bytes: usize,
    indexes: [Index; INDEXES],
    /// Those that are there.
    made: usize,
    table: Table,
    /// Entries that searches have looked at, but for the first of each search.
    looked: u64,
    /// Of these, before the latest index was made.
    paid: u64,
}

impl<M: Copy> Unexpected<M> {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            nodes: Nodes::new(),
            order: List::EMPTY,
            waiting: 0,
            claimed: List::EMPTY,
            bytes: 0,
            indexes: [Index { shape: None, used: 0 }; INDEXES],
            made: 0,
            table: Table::new(key),
            looked: 0,
            paid: 0,
        }
    }

    /// Messages that are kept, claimed ones too.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes kept by them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enters a message behind all others.
    #[inline]
    pub(super) fn push(&mut self, message: Message<M>) -> MessageId {
        self.bytes = self.bytes.wrapping_add(message.bytes);
        let key = self.nodes.insert(Entry { message, is_claimed: false });
        self.nodes.push(ORDER, &mut self.order, key.index);
        self.waiting += 1;
        if self.made > 0 {
            self.enter(key.index, &message);
        }
        MessageId(key)
    }

    /// The oldest that fits.
    #[inline]
    pub(super) fn find(&mut self, wanted: &Wanted) -> Option<u32> {
        if self.order.is_empty() { None } else { self.find_among(wanted) }
    }

    fn find_among(&mut self, wanted: &Wanted) -> Option<u32> {
        let shape = Shape::of(wanted);
        if self.made > 0
            && let Some(number) = self.indexes.iter().position(|index| index.shape == Some(shape))
        {
            self.indexes[number].used = self.looked;
            let place = self.table.find(&shape.group_of(number as u8, wanted))?;
            return Some(self.table.oldest(place));
        }
        let mut looked = 0_usize;
        let fits = |entry: &Entry<M>| {
            look();
            looked += 1;
            wanted.fits(entry.message.source, entry.message.tag)
        };
        let found = self.search(fits);
        self.looked += looked.saturating_sub(LONG) as u64;
        self.consider(shape);
        found
    }

    /// The oldest of those that can be taken for which this holds.
    #[inline]
    fn search(&self, mut holds: impl FnMut(&Entry<M>) -> bool) -> Option<u32> {
        self.nodes.iter(ORDER, self.order).find(|(_, entry)| holds(entry)).map(|(index, _)| index)
    }

    /// Takes the oldest out that fits.
    #[inline]
    pub(super) fn take(&mut self, wanted: &Wanted) -> Option<Message<M>> {
        let index = self.find(wanted)?;
        self.remove(index)
    }

    /// The oldest that fits, which stays.
    pub(super) fn peek(&mut self, wanted: &Wanted) -> Option<(MessageId, Message<M>)> {
        let index = self.find(wanted)?;
        Some((MessageId(self.nodes.key(index)?), self.nodes.at(index)?.message))
    }

    /// The oldest that fits is kept, but no longer for everybody.
    pub(super) fn claim(&mut self, wanted: &Wanted) -> Option<(MessageId, Message<M>)> {
        let index = self.find(wanted)?;
        self.leave(index);
        self.nodes.push(ORDER, &mut self.claimed, index);
        let key = self.nodes.key(index)?;
        let entry = self.nodes.at_mut(index)?;
        entry.is_claimed = true;
        Some((MessageId(key), entry.message))
    }

    /// Takes a claimed message out.
    pub(super) fn redeem(&mut self, id: MessageId) -> Option<Message<M>> {
        self.nodes.get(id.0).filter(|entry| entry.is_claimed)?;
        self.remove(id.0.index)
    }

    /// Takes any message out.
    pub(super) fn discard(&mut self, id: MessageId) -> Option<Message<M>> {
        self.nodes.get(id.0)?;
        self.remove(id.0.index)
    }

    /// A message has arrived as a whole.
    pub(super) fn complete(&mut self, id: MessageId) -> bool {
        self.nodes.get_mut(id.0).map(|entry| entry.message.complete = true).is_some()
    }

    /// Takes the messages out of which that is said. Oldest first, and then the claimed ones in the order of their claims.
    pub(super) fn take_all(&mut self, goes: impl Fn(&Message<M>) -> bool) -> Vec<Message<M>> {
        let mut messages = Vec::new();
        for list in [self.order, self.claimed] {
            let mut index = list.first();
            while let Some(entry) = self.nodes.at(index) {
                let next = self.nodes.next(ORDER, index);
                if goes(&entry.message) {
                    messages.extend(self.remove(index));
                }
                index = next;
            }
        }
        messages
    }

    /// Enters a message in the indexes that there are.
    fn enter(&mut self, index: u32, message: &Message<M>) {
        for number in 0..INDEXES {
            let Some(shape) = self.indexes[number].shape else { continue };
            let group = group_of(number, shape, message);
            self.table.push(&group, &mut self.nodes, number + 1, index);
        }
    }

    /// Makes an index for this shape, if searches have been so long that it pays.
    #[inline]
    fn consider(&mut self, shape: Shape) {
        let cost = self.waiting as u64;
        if self.waiting > LONG && self.looked - self.paid >= cost {
            self.make_index(shape, cost);
        }
    }

    #[cold]
    fn make_index(&mut self, shape: Shape, cost: u64) {
        let free = self.indexes.iter().position(|index| index.shape.is_none());
        let least_used = || (0..INDEXES).min_by_key(|number| self.indexes[*number].used);
        let Some(number) = free.or_else(least_used) else { return };
        if free.is_none() {
            if self.looked - self.indexes[number].used < 2 * cost {
                return;
            }
            self.drop_index(number);
        }
        self.indexes[number] = Index { shape: Some(shape), used: self.looked };
        self.made += 1;
        self.paid = self.looked;
        self.each_waiting(|unexpected, index, message| {
            let group = group_of(number, shape, message);
            unexpected.table.push(&group, &mut unexpected.nodes, number + 1, index);
        });
    }

    fn drop_index(&mut self, number: usize) {
        let Some(shape) = self.indexes[number].shape.take() else { return };
        self.made -= 1;
        self.each_waiting(|unexpected, index, message| {
            let group = group_of(number, shape, message);
            unexpected.table.unlink(&group, &mut unexpected.nodes, number + 1, index);
        });
    }

    fn each_waiting(&mut self, mut then: impl FnMut(&mut Self, u32, &Message<M>)) {
        let mut index = self.order.first();
        while let Some(message) = self.nodes.at(index).map(|entry| entry.message) {
            look();
            then(self, index, &message);
            index = self.nodes.next(ORDER, index);
        }
    }

    /// Takes a message out of what can be taken.
    fn leave(&mut self, index: u32) {
        let Some(message) = self.nodes.at(index).map(|entry| entry.message) else { return };
        self.nodes.unlink(ORDER, &mut self.order, index);
        self.waiting -= 1;
        if self.made > 0 {
            self.leave_indexes(index, &message);
        }
    }

    /// Takes a message out of the indexes that there are, and these away when it was one of the last.
    fn leave_indexes(&mut self, index: u32, message: &Message<M>) {
        for number in 0..INDEXES {
            let Some(shape) = self.indexes[number].shape else { continue };
            let group = group_of(number, shape, message);
            self.table.unlink(&group, &mut self.nodes, number + 1, index);
        }
        if self.waiting <= SHORT {
            (0..INDEXES).for_each(|number| self.drop_index(number));
        }
    }

    #[inline]
    fn remove(&mut self, index: u32) -> Option<Message<M>> {
        if self.nodes.at(index)?.is_claimed {
            self.nodes.unlink(ORDER, &mut self.claimed, index);
        } else {
            self.leave(index);
        }
        let message = self.nodes.remove(index)?.message;
        self.bytes = self.bytes.wrapping_sub(message.bytes);
        Some(message)
    }
}

/// The group of a message in an index.
#[inline]
fn group_of<M>(number: usize, shape: Shape, message: &Message<M>) -> Group {
    shape.group(number as u8, message.source, message.tag)
}

#[cfg(test)]
impl<M: Copy> Unexpected<M> {
    /// The shapes of the indexes that are there.
    pub(super) fn indexed(&self) -> Vec<Shape> {
        self.indexes.iter().filter_map(|index| index.shape).collect()
    }

    /// Places of the tables, taken or not.
    pub(super) fn room(&self) -> [usize; 2] {
        [self.nodes.places(), self.table.room().1]
    }

    /// Indexes hold all that waits, and no more.
    pub(super) fn check(&self) {
        assert_eq!(self.nodes.iter(ORDER, self.order).count(), self.waiting);
        assert_eq!(self.waiting + self.nodes.iter(ORDER, self.claimed).count(), self.nodes.len());
        let mut groups = std::collections::HashSet::new();
        assert_eq!(self.indexed().len(), self.made);
        for (number, index) in self.indexes.iter().enumerate() {
            let Some(shape) = index.shape else { continue };
            for (_, entry) in self.nodes.iter(ORDER, self.order) {
                let group = group_of(number, shape, &entry.message);
                assert!(self.table.find(&group).is_some());
                groups.insert((group.class, group.source, group.tag));
            }
        }
        assert_eq!(groups.len(), self.table.room().0);
    }
}
