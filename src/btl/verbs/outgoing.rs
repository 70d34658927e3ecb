//! A message on its way to the device: the buffer that it is written to, and how it is posted from there.

use super::connection::{Broken, Connection, Desk, Entry, Stall};
use crate::btl::{Cookie, Lent};
use crate::verbs::{Piece, Work};

/// What a message is made of.
#[derive(Clone, Copy)]
pub(super) enum Body<'a> {
    Pieces([Lent; 2]),
    Bytes(&'a [u8]),
}

impl Body<'_> {
    /// Bytes of it.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Pieces([first, second]) => first.len() + second.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A buffer for one message.
pub(super) struct Outgoing {
    bytes: Lent,
    key: u32,
    /// Its place among the send buffers of its queue; none where the message is copied when it is posted.
    place: Option<u32>,
}

impl Outgoing {
    /// Writes a message to it.
    #[inline]
    pub(super) fn write(&self, header: &[u8], body: Body<'_>) {
        self.bytes.write(0, header);
        match body {
            Body::Pieces([first, second]) => {
                self.bytes.copy(header.len(), first);
                self.bytes.copy(header.len() + first.len(), second);
            }
            Body::Bytes(bytes) => self.bytes.write(header.len(), bytes),
        }
    }
}

impl Connection {
    /// A buffer for a message of so many bytes by a queue, which has a place for it. Short ones share one, since they are copied
    /// when they are posted.
    #[inline]
    pub(super) fn outgoing(
        &self,
        queue: usize,
        total: usize,
        desk: &mut Desk,
    ) -> std::result::Result<Outgoing, Stall> {
        let side = &self.sides[queue];
        if !side.slots.has_room() {
            return Err(Stall::Slot);
        }
        if total <= side.inline {
            return Ok(Outgoing { bytes: self.scratch.slice(0, total), key: 0, place: None });
        }
        let pool = &mut desk.pools[queue];
        let at = pool.take(&desk.port).ok_or(Stall::Buffer)?;
        let (bytes, key) = pool.lent(at, total);
        Ok(Outgoing { bytes, key, place: Some(at) })
    }

    /// Posts what has been written there.
    #[inline]
    pub(super) fn post_outgoing(
        &mut self,
        queue: usize,
        work: Work,
        outgoing: &Outgoing,
        (waits, asks): (Option<Cookie>, bool),
        desk: &mut Desk,
    ) -> std::result::Result<std::result::Result<(), Stall>, Broken> {
        let Outgoing { bytes, key, place } = *outgoing;
        let asks = asks || place.is_some() && desk.pools[queue].is_low();
        let posted = self.post(queue, work, &[Piece::new(bytes, key)], (asks, place.is_none()));
        let Ok(Some(asks)) = posted else {
            if let Some(at) = place {
                desk.pools[queue].give(at);
            }
            // The device has no place, whatever we have counted: it is tried again.
            return posted.map(|_| Err(Stall::Buffer));
        };
        let entry = match place {
            Some(at) => Some(Entry::Buffer { at, cookie: waits }),
            None => waits.map(Entry::Copied),
        };
        self.sides[queue].slots.push(entry, asks);
        desk.counters.num_inline_sends.add(u64::from(place.is_none()));
        Ok(Ok(()))
    }
}
