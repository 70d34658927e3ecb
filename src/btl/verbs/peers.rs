//! The peers of a module, by their places, of which none is used again, and whether the short path of each is free.

use super::connection::Connection;
use super::line::Number;
use super::peer::Peer;
use crate::btl::EndpointId;

/// All of them.
#[derive(Default)]
pub(super) struct Peers(Vec<Place>);

#[derive(Default)]
struct Place {
    peer: Option<Box<Peer>>,
    /// If nothing is in the way of a short message, as [`Peer::is_free`] said when the peer was last touched: what the numbers of the
    /// receives of its first queue have in common. 0: something is.
    free: u64,
}

impl Place {
    /// Finds out whether the path of short messages is free.
    #[cold]
    #[inline(never)]
    fn look(&mut self, place: usize) {
        let free =
            self.peer.as_deref().filter(|peer| peer.is_free()).and_then(|peer| peer.connection.as_ref());
        self.free = free.map_or(0, |connection| Number::first_of(place as u32, connection.attempt));
    }

    /// The same of a path that receives with these numbers come by.
    #[cold]
    #[inline(never)]
    fn look_for(&mut self, place: usize, common: u64) -> bool {
        if self.free == 0 {
            self.look(place);
        }
        self.free == common
    }

    /// The connection of a peer whose path is free.
    #[inline(always)]
    fn connection(&mut self) -> Option<&mut Connection> {
        if self.free == 0 { None } else { self.peer.as_deref_mut()?.connection.as_mut() }
    }
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
        self.0.push(Place { peer: Some(Box::new(peer)), free: 0 });
    }

    /// The one at a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&Peer> {
        self.0.get(place)?.peer.as_deref()
    }

    /// The same, to do with it what may bar its short path.
    #[inline]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Peer> {
        let Place { peer, free } = self.0.get_mut(place)?;
        *free = 0;
        peer.as_deref_mut()
    }

    /// The connection of the one at a place, if nothing is in the way of short messages to it and from it. What is done with it
    /// does not bar that path.
    #[inline(always)]
    pub(super) fn free(&mut self, at: usize) -> Option<&mut Connection> {
        let place = self.0.get_mut(at)?;
        if place.free == 0 {
            place.look(at);
        }
        place.connection()
    }

    /// The same of the peer that a receive of this number is of, if it is one of the first queue of that connection.
    #[inline(always)]
    pub(super) fn free_for(&mut self, number: u64) -> Option<&mut Connection> {
        let (at, common) = (Number::place(number), Number::common(number));
        let place = self.0.get_mut(at)?;
        if place.free != common && !place.look_for(at, common) {
            return None;
        }
        place.connection()
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

    /// The places of those for whom something waits to be sent by a queue, and for nothing but a buffer.
    pub(super) fn waiting(&self, queue: usize) -> impl Iterator<Item = u32> {
        let all = self.0.iter().enumerate().filter_map(|(at, place)| Some((at, place.peer.as_deref()?)));
        all.filter(move |(_, peer)| peer.waits_for_buffer(queue)).map(|(at, _)| at as u32)
    }

    /// All with their places, to do with them what does not bar their short paths.
    pub(super) fn connections(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        let all = self.0.iter_mut().enumerate();
        all.filter_map(|(at, place)| Some((at, place.peer.as_deref_mut()?.connected()?)))
    }
}
