//! The peers of a module, by their places, of which none is used again, and whether the short path of each is free.

use super::connection::Connection;
use super::peer::Peer;
use crate::btl::EndpointId;

/// All of them.
#[derive(Default)]
pub(super) struct Peers(Vec<Place>);

#[derive(Default)]
struct Place {
    peer: Option<Box<Peer>>,
    /// Nothing is in the way of a short message, as [`Peer::is_free`] said when the peer was last touched.
    is_free: bool,
}

impl Peers {
    /// What the host calls the one at a place.
    #[inline]
    pub(super) const fn id(place: u32) -> EndpointId {
        EndpointId::from_raw(1 << 32 | place as u64)
    }

    /// How many places there are.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// One more, at the next place.
    pub(super) fn push(&mut self, peer: Peer) {
        self.0.push(Place { peer: Some(Box::new(peer)), is_free: false });
    }

    /// The one at a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&Peer> {
        self.0.get(place)?.peer.as_deref()
    }

    /// The same, to do with it what may bar its short path.
    #[inline]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Peer> {
        let Place { peer, is_free } = self.0.get_mut(place)?;
        *is_free = false;
        peer.as_deref_mut()
    }

    /// The connection of the one at a place, if nothing is in the way of short messages to it and from it. What is done with it
    /// does not bar that path.
    #[inline]
    pub(super) fn free(&mut self, place: usize) -> Option<&mut Connection> {
        let Place { peer, is_free } = self.0.get_mut(place)?;
        let peer = peer.as_deref_mut()?;
        if !*is_free {
            *is_free = peer.is_free();
            if !*is_free {
                return None;
            }
        }
        peer.connection.as_mut()
    }

    /// Notes that the one at a place is going to be looked at; whether that was not known.
    #[inline]
    pub(super) fn touch(&mut self, place: usize) -> bool {
        let peer = self.0.get_mut(place).and_then(|place| place.peer.as_deref_mut());
        peer.is_some_and(|peer| !std::mem::replace(&mut peer.is_touched, true))
    }

    /// The one at a place goes.
    pub(super) fn take(&mut self, place: usize) -> Option<Box<Peer>> {
        std::mem::take(self.0.get_mut(place)?).peer
    }

    /// All.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter().filter_map(|place| place.peer.as_deref())
    }

    /// All with their places, to do with them what does not bar their short paths.
    pub(super) fn connections(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        let all = self.0.iter_mut().enumerate();
        all.filter_map(|(at, place)| Some((at, place.peer.as_deref_mut()?.connected()?)))
    }
}
