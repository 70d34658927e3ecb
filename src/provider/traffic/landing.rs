//! Long messages that come by streams: what comes is received where it belongs.

use super::Lost;
use super::context::{Context, Pull};
use super::ending::Received;
use crate::engine::matching::Arrival;
use crate::engine::slab::Key;
use crate::gni::Long;
use crate::link::{Lent, stream};
use crate::wire::gni::mailbox::{Entry, Label, PIECES};

/// Bytes of the head of a piece, and of a message.
const HEAD: usize = 16;
/// Bytes that do not fit are read so many at a time.
const REST: usize = 64 << 10;

/// How far a long entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// It is here.
    Whole,
    /// There is none, or more of it is to come.
    Part,
    /// Nothing may be received now.
    NoPlace,
}

/// A message that comes by a stream.
pub(super) enum Streamed {
    /// For a receive.
    Wanted(Key),
    /// Nobody has asked for it: all of it, as much as has come.
    Kept(Vec<u8>),
}

impl Context {
    /// Receives what has come of a long entry.
    #[cold]
    #[inline(never)]
    pub(super) fn land(&mut self, peer: u32) -> Result<Landed, Lost> {
        loop {
            let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
            let Some(mailbox) = mailbox else { return Ok(Landed::Part) };
            let Some(long) = mailbox.long().map_err(|_| Lost)? else { return Ok(Landed::Part) };
            let parsed = Entry::parse(long.kind, HEAD + long.length, |at| long.head[usize::from(at != 0)]);
            let Some((entry, HEAD)) = parsed else { return Err(Lost) };
            let (mut parts, mut count) = ([Lent::EMPTY; PIECES], 0);
            let mut part = |lent| {
                parts[count] = lent;
                count += 1;
            };
            match entry {
                Entry::Piece { receive, offset } => {
                    let pull = self.expected(peer, receive, offset, long.length).ok_or(Lost)?;
                    let at = pull.come + long.landed;
                    pull.receive.buffer.parts(at, long.length - long.landed).for_each(part);
                }
                Entry::Streamed { label } => {
                    if !self.begin_streamed(peer, label, &long)? {
                        return Ok(Landed::NoPlace);
                    }
                    self.room_for_streamed(peer, &long, &mut part).ok_or(Lost)?;
                }
                _ => return Err(Lost),
            }
            let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
            let Some(mailbox) = mailbox else { return Ok(Landed::Part) };
            if mailbox.land(&parts[..count], long.length - long.landed).map_err(|_| Lost)? {
                match entry {
                    Entry::Piece { receive, .. } => self.piece_has_come(peer, receive, long.length),
                    Entry::Streamed { label } => self.streamed_has_come(peer, label, long.length),
                    _ => None,
                }
                .ok_or(Lost)?;
                return Ok(Landed::Whole);
            }
            let has_moved = mailbox.long().map_err(|_| Lost)?.is_some_and(|more| more.landed != long.landed);
            if !has_moved && !mailbox.may_read() {
                return Ok(Landed::Part);
            }
        }
    }

    /// A message begins, unless it has: a receive takes it, or it is kept. False where nothing may be received now.
    fn begin_streamed(&mut self, peer: u32, label: Label, long: &Long) -> Result<bool, Lost> {
        if self.peers.get(peer as usize).is_none_or(|there| there.streamed.is_some()) {
            return Ok(true);
        }
        if !self.takes {
            // Nobody could receive it.
            return Err(Lost);
        }
        if self.place_is_missing() && !self.may_read(peer) {
            return Ok(false);
        }
        let streamed = match self.arrive(peer, label, long.length, true) {
            // It arrives when all of it is here, and may find a receive then.
            Arrival::Unexpected(id) => {
                let _ = self.matching(label.tag.is_some()).discard(id);
                let mut bytes = self.room();
                bytes.resize(long.length, 0);
                Streamed::Kept(bytes)
            }
            taken => {
                let receive = self.taker(taken, long.length).ok_or(Lost)?;
                let wanted = long.length.min(receive.buffer.length());
                let pull = Pull { receive, peer, label, send: None, length: long.length, wanted, come: 0 };
                Streamed::Wanted(self.pulls.insert(pull))
            }
        };
        if let Some(there) = self.peers.get_mut(peer as usize) {
            there.streamed = Some(streamed);
        }
        Ok(true)
    }

    /// Where what comes next of a message belongs.
    fn room_for_streamed(&mut self, peer: u32, long: &Long, part: &mut impl FnMut(Lent)) -> Option<()> {
        let Self { peers, pulls, scratch, .. } = self;
        match peers.get_mut(peer as usize)?.streamed.as_mut()? {
            Streamed::Kept(bytes) => part(stream::lend(bytes.get_mut(long.landed..)?)),
            Streamed::Wanted(key) => {
                let pull = pulls.get(*key)?;
                if long.landed < pull.wanted {
                    pull.receive.buffer.parts(long.landed, pull.wanted - long.landed).for_each(part);
                } else {
                    scratch.resize(REST.min(long.length - long.landed), 0);
                    part(stream::lend(scratch));
                }
            }
        }
        Some(())
    }

    /// All of a message is here.
    fn streamed_has_come(&mut self, peer: u32, label: Label, length: usize) -> Option<()> {
        match self.peers.get_mut(peer as usize)?.streamed.take()? {
            Streamed::Kept(bytes) => self.hear_kept(peer, label, bytes),
            Streamed::Wanted(key) => {
                let Pull { receive, .. } = self.pulls.remove(key.index)?;
                let room = receive.buffer.length();
                self.received(&receive, &Received { peer, label, length, room, code: 0 });
            }
        }
        Some(())
    }
}
