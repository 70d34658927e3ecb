//! [`Receiver`]: one channel's way in.
//!
//! It adapts to what arrives. After silence it asks for one datagram by one plain call; once two polls
//! in a row found something it asks for many at a time, until there is silence again.

use super::control::Ancillary;
use super::inbox::{BUFFER, Inbox, Vacant};
use super::landing::Scatter;
use super::send::{Shared, hear};
use super::udp::{Errno, Udp};
use super::{Channel, Counters, Landing};

/// Most messages in one call.
const MOST: usize = 32;

/// Bytes that one call is to bring, so that they are still in the cache when they are read.
const BATCH: usize = 256 * 1024;

/// Errors of sent datagrams that are passed over in one poll.
const TRIES: usize = 4;

/// What arrived was no datagram of ours; others may be behind it, so look again as after this code.
const NONE_OF_OURS: Errno = libc::EINTR;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The last poll found nothing.
    Silence,
    /// The last poll found one datagram.
    Single,
    /// They come in numbers.
    Stream,
}

/// Where the kernel writes: buffers, and messages that lead there. A slot is filled by one call, then
/// gets another buffer; those that a call does not fill stay as they are.
struct Slots {
    buffers: Vec<Vacant>,
    pieces: Vec<libc::iovec>,
    controls: Vec<Ancillary>,
    messages: Vec<libc::mmsghdr>,
    /// Bytes for what the kernel says beside the data, if anything.
    control_room: usize,
}

// SAFETY: the pointers lead to the slots' own vectors, which never grow beyond their first capacity,
// and to the slots' own buffers: both move with it without changing their place.
unsafe impl Send for Slots {}

/// One channel's way in.
pub(super) struct Receiver {
    channel: Channel,
    /// Whether the kernel says more of messages than their bytes: that it has joined them.
    joins: bool,
    pace: Pace,
    /// Messages to ask for when they come in numbers.
    batch: usize,
    slots: Slots,
    scatter: Scatter,
}

impl Receiver {
    /// The kernel `joins` datagrams of one size, and `stamps` them.
    pub(super) fn new(channel: Channel, joins: bool, stamps: bool) -> Self {
        let slots = Slots::new(if joins || stamps { Ancillary::ROOM } else { 0 });
        Self { channel, joins, pace: Pace::Silence, batch: MOST / 4, slots, scatter: Scatter::new() }
    }

    /// Receives at most one batch. A single datagram comes by a shorter call, without a stamp, unless that
    /// is `wanted`.
    #[inline]
    pub(super) fn poll(&mut self, udp: &Udp, shared: &mut Shared, into: &mut Inbox, wanted: bool) -> usize {
        let mut count = 0;
        if self.pace != Pace::Stream {
            let one = if self.joins || wanted { Self::messages } else { Self::plain };
            count = self.listen(udp, shared, into, one, 1);
            self.pace = match (count, self.pace) {
                (0, _) => Pace::Silence,
                (_, Pace::Silence) => Pace::Single,
                _ => Pace::Stream,
            };
        }
        if self.pace == Pace::Stream {
            let more = self.listen(udp, shared, into, Self::messages, self.batch);
            if more == 0 {
                self.pace = Pace::Silence;
            }
            count += more;
        }
        shared.counters.received += count as u64;
        count
    }

    /// Receives one message, data that belongs there straight to where it is guessed to belong. Nothing may wait in
    /// the inbox. `None`: that memory cannot be written to, and what came is lost.
    pub(super) fn poll_landing(
        &mut self,
        udp: &Udp,
        shared: &mut Shared,
        into: &mut Inbox,
        landing: Landing,
    ) -> Option<usize> {
        let Some(mut vacant) = into.take() else { return Some(0) };
        self.pace = Pace::Silence;
        for _ in 0..TRIES {
            let control_room = self.slots.control_room;
            let pieces = self.scatter.aim(&landing, vacant.bytes());
            // SAFETY: the pieces lead to the vacant buffer, and within memory that is lent to a GET which is not over: the
            // caller has just been told of it by the engine, which nobody else can reach before the call returns.
            match unsafe { udp.receive_scattered(pieces, control_room) } {
                Ok((_, true, _)) => shared.counters.truncated += 1,
                Ok((0, ..)) => shared.counters.empty += 1,
                Ok((len, _, said)) => {
                    self.pace = Pace::Stream;
                    let size = said.joined.unwrap_or(len).min(len);
                    let count = if size == landing.step() || size == len && len <= landing.step() {
                        into.land(self.channel, vacant, (size, len), said.stamp, landing)
                    } else {
                        landing.fetch_back(vacant.bytes(), 0, len);
                        into.deliver_all(self.channel, vacant, size, 0..len, said.stamp)
                    };
                    shared.counters.received += count as u64;
                    return Some(count);
                }
                Err(libc::EAGAIN) => break,
                Err(libc::EFAULT) => {
                    shared.counters.receive_errors += 1;
                    into.put_back(vacant);
                    return None;
                }
                Err(errno) => note(errno, udp, shared),
            }
        }
        into.put_back(vacant);
        Some(0)
    }

    /// Calls until there are datagrams or nothing: errors of sent ones come between.
    #[inline]
    fn listen(
        &mut self,
        udp: &Udp,
        shared: &mut Shared,
        into: &mut Inbox,
        call: fn(&mut Self, &Udp, &mut Counters, &mut Inbox, usize) -> Result<usize, Errno>,
        most: usize,
    ) -> usize {
        for _ in 0..TRIES {
            match call(self, udp, &mut shared.counters, into, most) {
                Ok(count) => return count,
                Err(libc::EAGAIN) => return 0,
                Err(errno) => note(errno, udp, shared),
            }
        }
        0
    }

    /// One datagram by the shortest call.
    #[inline]
    fn plain(
        &mut self,
        udp: &Udp,
        counters: &mut Counters,
        into: &mut Inbox,
        _: usize,
    ) -> Result<usize, Errno> {
        match udp.receive(self.slots.first(into).ok_or(libc::EAGAIN)?)? {
            0 => counters.empty += 1,
            len if len <= BUFFER => match self.slots.renew(0, into) {
                Some(filled) => {
                    into.deliver(self.channel, filled, 0..len);
                    return Ok(1);
                }
                None => counters.no_buffers += 1,
            },
            _ => counters.truncated += 1,
        }
        Err(NONE_OF_OURS)
    }

    /// Up to `most` messages of one or more datagrams each.
    fn messages(
        &mut self,
        udp: &Udp,
        counters: &mut Counters,
        into: &mut Inbox,
        most: usize,
    ) -> Result<usize, Errno> {
        let most = self.slots.grow(most, into);
        if most == 0 {
            return Err(libc::EAGAIN);
        }
        self.slots.aim_first();
        // SAFETY: each slot's message leads to its own buffer, which is vacant, and its own control.
        let filled = unsafe { udp.receive_messages(&mut self.slots.messages[..most]) }?;
        let (mut count, mut bytes) = (0, 0);
        for at in 0..filled {
            let message = &self.slots.messages[at];
            let (flags, len) = (message.msg_hdr.msg_flags, message.msg_len as usize);
            let said = self.slots.controls[at].said(message.msg_hdr.msg_controllen);
            if flags & libc::MSG_TRUNC != 0 {
                counters.truncated += 1;
                self.slots.reset(at);
            } else if len == 0 {
                counters.empty += 1;
                self.slots.reset(at);
            } else if let Some(filled) = self.slots.renew(at, into) {
                let size = said.joined.unwrap_or(len);
                count += into.deliver_all(self.channel, filled, size, 0..len, said.stamp);
                bytes += len;
            } else {
                counters.no_buffers += 1;
            }
        }
        self.batch = (BATCH * filled / bytes.max(1)).clamp(2, MOST);
        if count == 0 { Err(NONE_OF_OURS) } else { Ok(count) }
    }
}

/// An error on receiving: nearly always what became of an earlier datagram of ours.
#[cold]
fn note(errno: Errno, udp: &Udp, shared: &mut Shared) {
    if errno != libc::EINTR && hear(udp, shared) == 0 {
        shared.note_closed(errno);
        shared.counters.receive_errors += 1;
    }
}

impl Slots {
    fn new(control_room: usize) -> Self {
        Self {
            buffers: Vec::with_capacity(MOST),
            pieces: Vec::with_capacity(MOST),
            controls: Vec::with_capacity(MOST),
            messages: Vec::with_capacity(MOST),
            control_room,
        }
    }

    /// Sees to it that there are so many, at most [`MOST`]; how many of them there are, where there is no memory for more.
    #[inline]
    fn grow(&mut self, count: usize, from: &mut Inbox) -> usize {
        while self.buffers.len() < count.min(MOST) {
            let Some(buffer) = from.take() else { break };
            self.add(buffer);
        }
        count.min(self.buffers.len())
    }

    #[cold]
    fn add(&mut self, mut buffer: Vacant) {
        let bytes = buffer.bytes();
        self.pieces.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        self.buffers.push(buffer);
        self.controls.push(Ancillary::EMPTY);
        let none = std::ptr::null_mut();
        let header = libc::msghdr {
            msg_name: none,
            msg_namelen: 0,
            msg_iov: self.pieces.last_mut().map_or(std::ptr::null_mut(), |piece| &raw mut *piece),
            msg_iovlen: 1,
            msg_control: match self.controls.last_mut() {
                Some(control) if self.control_room > 0 => (&raw mut *control).cast(),
                _ => none,
            },
            msg_controllen: self.control_room,
            msg_flags: 0,
        };
        self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
    }

    /// The first one's buffer, if there is memory for it.
    #[inline]
    fn first(&mut self, from: &mut Inbox) -> Option<&mut [u8]> {
        self.grow(1, from);
        self.buffers.first_mut().map(Vacant::bytes)
    }

    /// The first one's message leads to its buffer again, which was lent in between.
    #[inline]
    fn aim_first(&mut self) {
        if let (Some(piece), Some(buffer)) = (self.pieces.first_mut(), self.buffers.first_mut()) {
            piece.iov_base = buffer.bytes().as_mut_ptr().cast();
        }
    }

    /// Undoes what the kernel has written into a message.
    #[inline]
    fn reset(&mut self, at: usize) {
        self.messages[at].msg_hdr.msg_controllen = self.control_room;
    }

    /// Takes a slot's buffer and gives it another one. Where there is no memory for that, what came is lost: the slot keeps
    /// its buffer.
    #[inline]
    fn renew(&mut self, at: usize, from: &mut Inbox) -> Option<Vacant> {
        self.reset(at);
        let mut vacant = from.take()?;
        self.pieces[at].iov_base = vacant.bytes().as_mut_ptr().cast();
        Some(std::mem::replace(&mut self.buffers[at], vacant))
    }
}
