//! Endpoints: those of the transport by the handles that C has of them, and back.

use super::abi::Endpoint;
use super::code::{HAWSER_ERR_STALE, Outcome};
use super::handle::{Key, Kind, Place, next};
use crate::btl::EndpointId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The caller may use it.
    Live,
    /// It is being ended: what arrives is still delivered.
    Closing,
    /// Nothing of it concerns the caller any more.
    Gone,
}

#[derive(Clone, Copy)]
struct Entry {
    id: EndpointId,
    generation: u32,
    state: State,
    /// Its loss has been told.
    is_told: bool,
}

/// The endpoints of a module, by the places that the transport gives them.
pub(super) struct Peers {
    place: Place,
    entries: Vec<Entry>,
    /// Those that are being ended, with the names of their processes.
    closing: Vec<(EndpointId, u64)>,
    /// Of the next one.
    generation: u32,
}

/// Whether an endpoint is one that has had another's place before it.
fn is_before(id: EndpointId, other: EndpointId) -> bool {
    let generation = |id: EndpointId| (id.raw() >> 32) as u32;
    generation(other).wrapping_sub(generation(id)).cast_signed() > 0
}

impl Peers {
    /// None yet; handles go on where those of the last module in this place have ended.
    pub(super) const fn new(place: Place, generation: u32) -> Self {
        Self { place, entries: Vec::new(), closing: Vec::new(), generation }
    }

    /// Where the next module in this place goes on.
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    fn handle(&self, index: usize) -> Endpoint {
        let key = Key { generation: self.entries[index].generation, index };
        Endpoint { id: self.place.handle(Kind::Endpoint, key) }
    }

    /// The transport's endpoint behind a handle that the caller may use.
    #[inline]
    pub(super) fn find(&self, endpoint: Endpoint) -> Outcome<EndpointId> {
        let key = self.place.key(Kind::Endpoint, endpoint.id).ok_or(HAWSER_ERR_STALE)?;
        match self.entries.get(key.index) {
            Some(entry) if entry.generation == key.generation && entry.state == State::Live => Ok(entry.id),
            _ => Err(HAWSER_ERR_STALE),
        }
    }

    /// The same of one that is being ended, too, from which something may still arrive.
    pub(super) fn find_from(&self, endpoint: Endpoint) -> Outcome<EndpointId> {
        let key = self.place.key(Kind::Endpoint, endpoint.id).ok_or(HAWSER_ERR_STALE)?;
        match self.entries.get(key.index) {
            Some(entry) if entry.generation == key.generation && entry.state != State::Gone => Ok(entry.id),
            _ => Err(HAWSER_ERR_STALE),
        }
    }

    /// The handle of an endpoint that something has arrived from: a new one where the caller has not added the
    /// peer; none where it has deleted it, or where another has its place by now.
    #[inline]
    pub(super) fn heard(&mut self, id: EndpointId) -> Option<Endpoint> {
        match self.entries.get(id.index()) {
            Some(entry) if entry.id == id => (entry.state != State::Gone).then(|| self.handle(id.index())),
            Some(entry) if is_before(id, entry.id) => None,
            _ => self.add(id),
        }
    }

    /// The handle of an endpoint, if the caller has one that it has not deleted.
    pub(super) fn known(&self, id: EndpointId) -> Option<Endpoint> {
        let entry = self.entries.get(id.index())?;
        (entry.id == id && entry.state == State::Live).then(|| self.handle(id.index()))
    }

    /// Whether the loss of a peer is news to the caller; from now on it is not.
    pub(super) fn is_news(&mut self, id: EndpointId) -> bool {
        let entry = self.entries.get_mut(id.index()).filter(|entry| entry.id == id);
        entry.is_some_and(|entry| entry.state == State::Live && !std::mem::replace(&mut entry.is_told, true))
    }

    /// The handle of an endpoint that the caller has asked for; none where there are no more handles.
    #[cold]
    pub(super) fn add(&mut self, id: EndpointId) -> Option<Endpoint> {
        let index = id.index();
        if let Some(known) = self.known(id) {
            return Some(known);
        }
        let nobody = Entry { id: EndpointId::from_raw(0), generation: 0, state: State::Gone, is_told: false };
        let entry = Entry { id, generation: self.generation, state: State::Live, is_told: false };
        // Every place has a handle that says it.
        let handle = self.place.handle(Kind::Endpoint, Key { generation: entry.generation, index });
        self.place.key(Kind::Endpoint, handle).filter(|key| key.index == index)?;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, nobody);
        }
        self.generation = next(self.generation);
        self.entries[index] = entry;
        Some(self.handle(index))
    }

    /// The caller uses these no more; whose they are.
    pub(super) fn close(&mut self, ids: &[EndpointId], name: impl Fn(EndpointId) -> Option<u64>) {
        self.turn(ids, State::Closing);
        self.closing.extend(ids.iter().filter_map(|id| Some((*id, name(*id)?))));
    }

    /// They have ended.
    pub(super) fn end(&mut self, ids: &[EndpointId]) {
        self.turn(ids, State::Gone);
        self.closing.retain(|(id, _)| !ids.contains(id));
    }

    /// Whether an endpoint of this process is being ended. A transport may take what it would give for it now for the same,
    /// and end that.
    pub(super) fn is_closing(&self, name: u64) -> bool {
        self.closing.iter().any(|(_, closing)| *closing == name)
    }

    fn turn(&mut self, ids: &[EndpointId], state: State) {
        for id in ids {
            if let Some(entry) = self.entries.get_mut(id.index()).filter(|entry| entry.id == *id) {
                entry.state = state;
            }
        }
    }

    /// All that are not deleted.
    pub(super) fn live(&self) -> Vec<EndpointId> {
        let live = self.entries.iter().filter(|entry| entry.state == State::Live);
        live.map(|entry| entry.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { transport: 0, module: 0 };

    fn id(generation: u64, index: u64) -> EndpointId {
        EndpointId::from_raw(generation << 32 | index)
    }

    #[test]
    fn a_deleted_endpoint_is_stale_and_silent_and_its_next_life_another() {
        let mut peers = Peers::new(HERE, 1);
        let first = peers.add(id(1, 4)).expect("a handle");
        assert_eq!((peers.find(first), peers.add(id(1, 4))), (Ok(id(1, 4)), Some(first)));
        assert_eq!((peers.heard(id(1, 4)), peers.live()), (Some(first), vec![id(1, 4)]));
        assert!(peers.is_news(id(1, 4)) && !peers.is_news(id(1, 4)) && !peers.is_news(id(2, 4)));
        peers.close(&[id(1, 4)], |_| Some(9));
        assert_eq!((peers.find(first), peers.heard(id(1, 4))), (Err(HAWSER_ERR_STALE), Some(first)));
        assert!(peers.is_closing(9) && !peers.is_closing(8));
        peers.end(&[id(1, 4)]);
        assert!(!peers.is_closing(9));
        assert_eq!((peers.heard(id(1, 4)), peers.known(id(1, 4))), (None, None));
        let again = peers.add(id(1, 4)).expect("a handle");
        assert_ne!(again, first);
        assert_eq!((peers.find(first), peers.find(again)), (Err(HAWSER_ERR_STALE), Ok(id(1, 4))));
    }

    #[test]
    fn who_was_not_added_is_heard() {
        let mut peers = Peers::new(HERE, 1);
        assert_eq!(peers.known(id(1, 0)), None);
        let stranger = peers.heard(id(1, 0)).expect("a handle");
        assert_eq!(peers.find(stranger), Ok(id(1, 0)));
        let next = peers.heard(id(2, 0)).expect("another in its place");
        assert_eq!((peers.find(stranger), peers.find(next)), (Err(HAWSER_ERR_STALE), Ok(id(2, 0))));
        assert_eq!((peers.heard(id(1, 0)), peers.find(next)), (None, Ok(id(2, 0))), "its place is another's");
    }

    #[test]
    fn an_endpoint_beyond_all_handles_has_none() {
        assert_eq!(Peers::new(HERE, 1).add(id(1, 1 << 20)), None);
        assert_eq!(Peers::new(HERE, 1).add(id(1, u64::from(u32::MAX))), None);
    }
}
