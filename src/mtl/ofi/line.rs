//! [`Line`]: receives of answers that wait for room, in order, found by what they ask for: there may be thousands.

use std::collections::{BTreeMap, BTreeSet};

use super::waiting::Posting;
use crate::fabric::{Address, Id};
use crate::mtl::Upcalls;

/// What an answer is asked for by: the context, the tag bits, and the peer.
type Question = (usize, u64, u64);

/// Receives of answers that wait.
pub(super) struct Line<H: Upcalls> {
    postings: BTreeMap<i64, Posting<H>>,
    places: BTreeMap<Question, BTreeSet<i64>>,
}

impl<H: Upcalls> Line<H> {
    pub(super) fn new() -> Self {
        Self { postings: BTreeMap::new(), places: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.postings.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.postings.len()
    }

    pub(super) fn push_back(&mut self, posting: Posting<H>) {
        let place = self.postings.last_key_value().map_or(0, |(last, _)| last + 1);
        self.put(place, posting);
    }

    pub(super) fn push_front(&mut self, posting: Posting<H>) {
        let place = self.postings.first_key_value().map_or(0, |(first, _)| first - 1);
        self.put(place, posting);
    }

    fn put(&mut self, place: i64, posting: Posting<H>) {
        self.places.entry(posting.question()).or_default().insert(place);
        self.postings.insert(place, posting);
    }

    pub(super) fn pop_front(&mut self) -> Option<Posting<H>> {
        let place = *self.postings.first_key_value()?.0;
        self.take(place)
    }

    fn take(&mut self, place: i64) -> Option<Posting<H>> {
        let posting = self.postings.remove(&place)?;
        let question = posting.question();
        if let Some(places) = self.places.get_mut(&question) {
            places.remove(&place);
            if places.is_empty() {
                self.places.remove(&question);
            }
        }
        Some(posting)
    }

    /// The peers of which an answer with these bits is awaited.
    pub(super) fn peers(&self, context: usize, bits: u64) -> Vec<Address> {
        let all = (context, bits, 0)..=(context, bits, u64::MAX);
        self.places.range(all).map(|((_, _, from), _)| Address(*from)).collect()
    }

    /// What answers are awaited in this context.
    pub(super) fn all_bits(&self, context: usize) -> BTreeSet<u64> {
        let all = (context, 0, 0)..=(context, u64::MAX, u64::MAX);
        self.places.range(all).map(|((_, bits, _), _)| *bits).collect()
    }

    /// The first that asks for this.
    pub(super) fn first_of(&mut self, context: usize, bits: u64, from: Address) -> Option<Posting<H>> {
        let place = *self.places.get(&(context, bits, from.0))?.first()?;
        self.take(place)
    }

    /// The one of this name.
    pub(super) fn forget(&mut self, which: Id) -> Option<Posting<H>> {
        let found = self.postings.iter().find(|(_, posting)| posting.id() == which);
        let place = found.map(|(place, _)| *place)?;
        self.take(place)
    }
}
