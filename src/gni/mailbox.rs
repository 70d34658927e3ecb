//! [`Mailbox`]: one side of a connection, whichever way its entries go (SMSG): by rings of shared memory within a node, by
//! a stream between nodes.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use super::stream::{Long, Stream};
use crate::link::{Lent, stream};
use crate::shm::{
    Arrival, Bell, Corrupt, CrossMemory, ENTRIES, LONGEST, Lifeline, NONCE, Next, Receiver, Sender, Shared,
    has_ended,
};
use crate::wire::gni::stream::{GREETING, TOKEN};

/// Longest message that always goes in one entry, by rings. Where it goes by a stream, a question and an answer take longer than
/// to copy [what is longer](super::stream::MESSAGE).
const MESSAGE: usize = 4096;
/// Longest that does while the peer is not behind: to copy it twice takes less than a system call and an answer, also where the
/// two share no cache.
const LONG: usize = 32 << 10;
/// From so many bytes on the place of the next message is prepared when one has gone that follows an answer.
const MANY: usize = 512;
/// Bytes of those that go before anything comes from the peer: it may have to keep them.
const AHEAD: usize = 1 << 20;
const _: () = assert!(LONG + 64 <= LONGEST && AHEAD >= LONG);
/// Bytes of a piece of a long message, where it goes by rings, and by a stream.
const PIECE: usize = 16 << 10;
const FAR_PIECE: usize = 256 << 10;
/// Entries that the kernel holds of a stream that is not read, at most: 16 MiB of the shortest.
const FAR_ENTRIES: usize = 1 << 20;

/// One side of a connection.
pub struct Mailbox {
    pub(super) side: Side,
    sent: u64,
    received: u64,
    /// Bytes of long messages that have gone in one entry since so many entries have come.
    ahead: usize,
    ahead_since: u64,
    /// Entries that had come when the place of the next was last prepared.
    prepared_at: u64,
    /// Entries that had been put into it when it was asked for how long the peer had been silent.
    asked_at: u64,
}

/// Where the other one is.
pub(super) enum Side {
    /// On this node.
    Near(Near),
    /// On another.
    Far(Far),
}

/// A ring to the peer, and, once it is known, the ring from it.
pub(super) struct Near {
    pub(super) ring: usize,
    pub(super) sender: Sender,
    pub(super) peer: Option<Peer>,
}

/// What is known of the other side.
pub(super) struct Peer {
    pub(super) receiver: Receiver,
    pub(super) shared: Shared,
    /// Wakes it.
    pub(super) bell: Bell,
    /// Its program is there.
    pub(super) lifeline: Lifeline,
    /// The place of the peer's inbox that is rung for.
    pub(super) place: usize,
    pub(super) life: [u8; NONCE],
    pub(super) ring: usize,
    pub(super) pid: u32,
}

/// A stream, once there is one.
pub(super) struct Far {
    pub(super) number: u32,
    pub(super) token: [u8; TOKEN],
    /// Where streams to it are taken.
    pub(super) at: SocketAddrV4,
    /// The peer is known.
    pub(super) is_attached: bool,
    /// Where this side connects to, and by what it greets, where it is this side that does.
    pub(super) way: Option<(SocketAddrV4, [u8; GREETING])>,
    pub(super) stream: Option<Box<Stream>>,
    /// There is none because the network had no way there when it was to be opened.
    pub(super) is_unreached: bool,
}

impl Far {
    /// The stream, once both sides are known.
    fn open(&mut self) -> Option<&mut Stream> {
        self.stream.as_deref_mut().filter(|_| self.is_attached)
    }
}

impl Near {
    #[inline(always)]
    fn push(&mut self, kind: u8, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        Ok(self.peer.is_some() && self.sender.push(kind, pieces)? && self.tell())
    }

    #[inline(always)]
    fn push_word(&mut self, kind: u8, word: u64, data: Lent) -> Result<bool, Corrupt> {
        Ok(self.peer.is_some() && self.sender.push_word(kind, word, data)? && self.tell())
    }

    fn push_bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, Corrupt> {
        Ok(self.peer.is_some() && self.sender.push_bytes(kind, bytes)? && self.tell())
    }

    /// Has the peer look, if there is one: an entry has been written.
    #[inline(always)]
    fn tell(&mut self) -> bool {
        let Some(peer) = &self.peer else { return false };
        if !self.sender.is_polled() {
            peer.shared.ring(peer.place);
        }
        peer.bell.after_entry();
        true
    }
}

impl Mailbox {
    pub(super) fn of(side: Side) -> Self {
        Self { side, sent: 0, received: 0, ahead: 0, ahead_since: 0, prepared_at: 0, asked_at: 0 }
    }

    fn near(&self) -> Option<&Peer> {
        match &self.side {
            Side::Near(near) => near.peer.as_ref(),
            Side::Far(_) => None,
        }
    }

    /// The stream, if it is one that is open.
    fn far(&mut self) -> Option<&mut Stream> {
        match &mut self.side {
            Side::Near(_) => None,
            Side::Far(far) => far.open(),
        }
    }

    /// Puts an entry into the mailbox of the peer; false when there is no room yet, or no peer.
    ///
    /// # Errors
    /// When the peer breaks the rules of the ring: it is of no use any more.
    #[inline(always)]
    pub fn push(&mut self, kind: u8, pieces: [Lent; 2]) -> Result<bool, Corrupt> {
        let is_pushed = match &mut self.side {
            Side::Near(near) => near.push(kind, pieces)?,
            Side::Far(far) => push_far(far, kind, pieces),
        };
        self.sent += u64::from(is_pushed);
        if pieces[1].len() >= MANY && is_pushed {
            self.go_ahead(pieces[1].len(), pieces[0].len() + pieces[1].len());
        }
        Ok(is_pushed)
    }

    /// The same of a word, little-endian, and what follows it.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub fn push_word(&mut self, kind: u8, word: u64, data: Lent) -> Result<bool, Corrupt> {
        let is_pushed = match &mut self.side {
            Side::Near(near) => near.push_word(kind, word, data)?,
            Side::Far(far) => push_far(far, kind, [stream::lend(&mut word.to_le_bytes()), data]),
        };
        self.sent += u64::from(is_pushed);
        if data.len() >= MANY && is_pushed {
            self.go_ahead(data.len(), size_of::<u64>() + data.len());
        }
        Ok(is_pushed)
    }

    /// The same of bytes of our own.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, Corrupt> {
        let is_pushed = match &mut self.side {
            Side::Near(near) => near.push_bytes(kind, bytes)?,
            Side::Far(far) => push_far(far, kind, [stream::lend(&mut bytes.to_vec()), Lent::EMPTY]),
        };
        self.sent += u64::from(is_pushed);
        Ok(is_pushed)
    }

    /// Whether something has come, or its end.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub fn has_next(&mut self) -> Result<bool, Corrupt> {
        match &mut self.side {
            Side::Near(near) => Ok(near.peer.as_ref().is_some_and(|peer| peer.receiver.has_next())),
            Side::Far(far) => has_next_far(far),
        }
    }

    /// The same of a peer of this node.
    #[inline(always)]
    pub fn has_come(&self) -> bool {
        self.near().is_some_and(|peer| peer.receiver.has_next())
    }

    /// What is next from a peer of this node, for who has a short way for entries of this kind; from others anything may be.
    #[inline(always)]
    pub fn next(&self, kind: u8) -> Next {
        match &self.side {
            Side::Near(Near { peer: Some(peer), .. }) => peer.receiver.next(kind),
            Side::Near(_) | Side::Far(_) => Next::Other,
        }
    }

    /// That entry, of so many bytes, is done with.
    #[inline(always)]
    pub fn pass(&mut self, length: usize) {
        if let Side::Near(Near { peer: Some(peer), .. }) = &mut self.side {
            self.received += 1;
            if peer.receiver.pass(length) {
                peer.bell.after_room();
            }
        }
    }

    /// The kind of the next entry, if there is one.
    pub fn next_kind(&self) -> Option<u8> {
        match &self.side {
            Side::Near(near) => near.peer.as_ref().and_then(|peer| peer.receiver.next_tag()),
            Side::Far(far) => far.stream.as_ref().and_then(|stream| stream.next_kind()),
        }
    }

    /// The next entry, to be [released](Self::release) before the next is taken.
    ///
    /// # Errors
    /// As [`push`](Self::push); or the peer has ended.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Arrival>, Corrupt> {
        let arrival = match &mut self.side {
            Side::Near(near) => match &mut near.peer {
                Some(peer) => peer.receiver.take()?,
                None => None,
            },
            Side::Far(far) => take_far(far)?,
        };
        self.received += u64::from(arrival.is_some());
        Ok(arrival)
    }

    /// The entry that was taken is done with.
    #[inline(always)]
    pub fn release(&mut self) {
        match &mut self.side {
            Side::Near(near) => {
                if let Some(peer) = &mut near.peer
                    && peer.receiver.release()
                {
                    peer.bell.after_room();
                }
            }
            Side::Far(far) => release_far(far),
        }
    }

    /// Tells the peer that this ring is looked at without its bell.
    pub fn poll_from_now_on(&mut self) {
        if let Side::Near(Near { peer: Some(peer), .. }) = &mut self.side {
            peer.receiver.poll_from_now_on();
        }
    }

    /// Entries that were put into the peer's.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Entries that have come.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Entries that a peer may have written that have not been read, at most.
    pub const fn most_unread(&self) -> usize {
        match &self.side {
            Side::Near(_) => ENTRIES,
            Side::Far(_) => FAR_ENTRIES,
        }
    }

    /// Whether the peer has found what is written to it, so that it can be read after our end. A stream says nothing of
    /// that.
    pub fn is_found(&self) -> bool {
        match &self.side {
            Side::Near(near) => near.peer.is_none() || self.sent == 0 || near.sender.is_found(),
            Side::Far(_) => self.sent == 0 || self.is_over(),
        }
    }

    /// Copies from or to the private memory of a peer of this node, as it has said; `None` where it has said since that it is
    /// gone.
    pub fn copy<R>(&self, copy: impl FnOnce() -> R) -> Option<R> {
        self.near()?.receiver.copy(copy)
    }

    /// This side is gone: a peer of this node begins no copy any more from or to what it was told of.
    pub fn go(&self) {
        if let Side::Near(near) = &self.side {
            near.sender.go();
        }
    }

    /// Whether that peer copies there just now.
    pub fn is_copied(&self) -> bool {
        matches!(&self.side, Side::Near(Near { sender, peer: Some(_), .. }) if sender.is_copied())
    }

    /// Whether the program at the other end, on this node, has ended.
    pub fn has_ended(&self) -> bool {
        self.near().is_some_and(|peer| peer.lifeline.is_broken() || has_ended(peer.pid))
    }

    /// Whether the segment of the peer, on this node, is this one.
    pub fn is_of_life(&self, life: &[u8; NONCE]) -> bool {
        self.near().is_some_and(|peer| peer.life == *life)
    }

    /// Whether the peer writes by this ring of this life.
    pub fn is_of(&self, life: &[u8; NONCE], ring: usize) -> bool {
        self.near().is_some_and(|peer| peer.life == *life && peer.ring == ring)
    }

    /// The private memory of the peer, which has told what it shows where.
    pub fn memory(&self, address: u64, shown: &[u8; 16]) -> Option<CrossMemory> {
        CrossMemory::open(self.near()?.pid, address, shown).ok()
    }

    /// The number by which the network knows it, where it is one between nodes.
    pub fn number(&self) -> Option<u32> {
        match &self.side {
            Side::Near(_) => None,
            Side::Far(far) => Some(far.number),
        }
    }

    /// The peer has connected.
    pub fn adopt(&mut self, socket: OwnedFd) {
        if let Side::Far(far) = &mut self.side {
            far.stream = Some(Box::new(Stream::new(socket, &[])));
        }
    }

    /// Something has happened to the stream.
    pub fn wake(&mut self) {
        if let Some(stream) = self.far() {
            stream.wake();
        }
    }

    /// The stream is woken each time from now on, or only when something has happened.
    pub fn heat(&mut self, is_hot: bool) {
        if let Some(stream) = self.far() {
            stream.heat(is_hot);
        }
    }

    /// Whether there may be something in the stream that was not looked for.
    pub fn may_read(&mut self) -> bool {
        self.far().is_some_and(|stream| stream.may_read())
    }

    /// Sends what the stream has kept; whether nothing is any more.
    pub fn flush(&mut self) -> bool {
        self.far().is_some_and(|stream| stream.flush())
    }

    /// A part of what was put into it is still here: it goes when the kernel has room, in a call of this side.
    #[inline(always)]
    pub fn is_keeping(&self) -> bool {
        match &self.side {
            Side::Near(_) => false,
            Side::Far(far) => is_keeping_far(far),
        }
    }

    /// Nothing comes any more: the peer has ended, or the way to it is lost.
    pub fn is_over(&self) -> bool {
        match &self.side {
            Side::Near(_) => false,
            Side::Far(far) => far.stream.as_ref().is_some_and(|stream| stream.is_over()),
        }
    }

    /// For how long the peer has not answered what was sent to it, nanoseconds; `None` where nothing is on its way by a
    /// stream.
    pub fn silence(&mut self, now: u64) -> Option<u64> {
        self.asked_at = self.sent;
        self.far().and_then(|stream| stream.silence(now))
    }

    /// Whether something may be on its way of which that is not known.
    pub fn is_to_be_asked(&self) -> bool {
        self.asked_at != self.sent
    }

    /// There never was a stream, because the network had no way to the peer.
    pub fn is_unreached(&self) -> bool {
        match &self.side {
            Side::Near(_) => false,
            Side::Far(far) => {
                far.is_unreached || far.stream.as_ref().is_some_and(|stream| stream.is_unreached())
            }
        }
    }

    /// There is a stream, or there was one.
    pub fn has_begun(&self) -> bool {
        match &self.side {
            Side::Near(_) => true,
            Side::Far(far) => far.stream.as_ref().is_some_and(|stream| stream.has_begun()),
        }
    }

    /// Nobody listens here any more: what comes is lost, and what was kept goes.
    pub fn part(&mut self) {
        if let Some(stream) = self.far() {
            stream.part();
        }
    }

    /// Bytes of what is put in one entry, at most.
    #[inline(always)]
    pub fn at_once(&self) -> usize {
        if matches!(self.side, Side::Far(_)) { super::stream::MESSAGE } else { MESSAGE }
    }

    /// Whether a message of so many bytes goes in one entry now.
    #[inline(always)]
    pub fn takes(&self, length: usize) -> bool {
        length <= MESSAGE || self.takes_long(length)
    }

    #[inline(never)]
    fn takes_long(&self, length: usize) -> bool {
        let ahead = if self.ahead_since == self.received { self.ahead } else { 0 };
        match self.side {
            Side::Near(_) => length <= LONG && ahead + length <= AHEAD,
            Side::Far(_) => length <= super::stream::MESSAGE,
        }
    }

    /// A message of many bytes has gone, in an entry of so many.
    #[inline(never)]
    fn go_ahead(&mut self, length: usize, entry: usize) {
        if length > MESSAGE {
            if self.ahead_since != self.received {
                (self.ahead, self.ahead_since) = (0, self.received);
            }
            self.ahead += length;
        }
        // Whose last message was answered has it read, and this one is not the last of a stream.
        let is_answered = std::mem::replace(&mut self.prepared_at, self.received) != self.received;
        if is_answered && let Side::Near(near) = &self.side {
            near.sender.prepare(entry);
        }
    }

    /// Bytes of a piece of a long message.
    pub fn piece(&self) -> usize {
        if matches!(self.side, Side::Far(_)) { FAR_PIECE } else { PIECE }
    }

    /// Puts an entry into the mailbox of the peer that goes as it can: a head, and so many bytes behind it, which
    /// [follow](Self::go_on). `None` where entries go whole; false when there is no room yet.
    pub fn begin(&mut self, kind: u8, head: &[u8], length: usize) -> Option<bool> {
        let Side::Far(far) = &mut self.side else { return None };
        if head.len() + length <= super::stream::WHOLE {
            return None;
        }
        let is_begun = far.open().is_some_and(|stream| stream.begin(kind, head, length));
        self.sent += u64::from(is_begun);
        Some(is_begun)
    }

    /// Bytes that are to follow.
    pub fn owed(&mut self) -> usize {
        self.far().map_or(0, |stream| stream.owed())
    }

    /// Sends what follows; how many bytes of it have gone.
    pub fn go_on(&mut self, piece: Lent) -> usize {
        self.far().map_or(0, |stream| stream.go_on(piece))
    }

    /// The long entry that is next, if one is.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn long(&mut self) -> Result<Option<Long>, Corrupt> {
        self.far().map_or(Ok(None), |stream| stream.long())
    }

    /// Reads more of it to where it belongs: `length` bytes are still to come. Whether all are here.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn land(&mut self, pieces: &[Lent], length: usize) -> Result<bool, Corrupt> {
        let is_here = self.far().map_or(Ok(false), |stream| stream.land(pieces, length))?;
        self.received += u64::from(is_here);
        Ok(is_here)
    }
}

#[cold]
#[inline(never)]
fn push_far(far: &mut Far, kind: u8, pieces: [Lent; 2]) -> bool {
    far.open().is_some_and(|stream| stream.push(kind, pieces))
}

#[cold]
#[inline(never)]
fn is_keeping_far(far: &Far) -> bool {
    far.stream.as_ref().is_some_and(|stream| stream.is_keeping())
}

#[cold]
#[inline(never)]
fn has_next_far(far: &mut Far) -> Result<bool, Corrupt> {
    far.open().map_or(Ok(false), |stream| stream.has_next())
}

#[cold]
#[inline(never)]
fn take_far(far: &mut Far) -> Result<Option<Arrival>, Corrupt> {
    far.open().map_or(Ok(None), |stream| stream.take())
}

#[cold]
#[inline(never)]
fn release_far(far: &mut Far) {
    far.open().into_iter().for_each(|stream| stream.release());
}
