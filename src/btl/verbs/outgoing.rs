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
    place: Place,
}

/// Where it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere: it is copied when it is posted.
    Copied,
    /// Among the send buffers of its queue.
    Buffer(u32),
    /// Where nothing else ever does.
    Own,
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
            return Ok(Outgoing { bytes: self.scratch.slice(0, total), key: 0, place: Place::Copied });
        }
        let pool = &mut desk.pools[queue];
        let at = pool.take(&desk.port).ok_or(Stall::Buffer)?;
        let (bytes, key) = pool.lent(at, total);
        Ok(Outgoing { bytes, key, place: Place::Buffer(at) })
    }

    /// A buffer for what says that the receives are posted, which is there whatever waits: once in an attempt it is needed.
    pub(super) fn ready(&self, len: usize) -> Outgoing {
        Outgoing { bytes: self.ready.slice(0, len), key: self.words.local_key(), place: Place::Own }
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
        let asks = asks || matches!(place, Place::Buffer(_)) && desk.pools[queue].is_low();
        let is_copied = place == Place::Copied;
        let posted = self.post(queue, work, &[Piece::new(bytes, key)], (asks, is_copied));
        let Ok(Some(asks)) = posted else {
            if let Place::Buffer(at) = place {
                desk.pools[queue].give(at);
            }
            // The device has no place, whatever we have counted: it is tried again.
            return posted.map(|_| Err(Stall::Buffer));
        };
        let entry = match place {
            Place::Buffer(at) => Some(Entry::Buffer { at, cookie: waits }),
            Place::Copied | Place::Own => waits.map(Entry::Copied),
        };
        self.sides[queue].slots.push(entry, asks);
        desk.counters.num_inline_sends.add(u64::from(is_copied));
        Ok(Ok(()))
    }
}
