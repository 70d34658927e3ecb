//! [`Receiver`]: one channel's way in.
//!
//! It adapts to what arrives. After silence it asks for one datagram by one plain call; once two polls
//! in a row found something it asks for many at a time, until there is silence again.

use super::inbox::{BUFFER, Inbox, Vacant};
use super::send::{Shared, hear};
use super::udp::{Control, Errno, Udp};
use super::{Channel, Counters};

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

/// Where the kernel writes. The pointers in it are good for one call only.
struct Slots {
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are written anew before every call that reads them.
unsafe impl Send for Slots {}

/// One channel's way in.
pub(super) struct Receiver {
    channel: Channel,
    /// Whether the kernel joins datagrams of one size.
    joins: bool,
    pace: Pace,
    /// Messages to ask for when they come in numbers.
    batch: usize,
    spare: Vec<Vacant>,
    slots: Slots,
}

impl Receiver {
    pub(super) fn new(channel: Channel, joins: bool) -> Self {
        let slots = Slots {
            pieces: Vec::with_capacity(MOST),
            controls: Vec::with_capacity(MOST),
            messages: Vec::with_capacity(MOST),
        };
        Self { channel, joins, pace: Pace::Silence, batch: MOST / 4, spare: Vec::with_capacity(MOST), slots }
    }

    /// Receives at most one batch.
    #[inline]
    pub(super) fn poll(&mut self, udp: &Udp, shared: &mut Shared, into: &mut Inbox) -> usize {
        let mut count = 0;
        if self.pace != Pace::Stream {
            count = self.listen(udp, shared, into, if self.joins { Self::messages } else { Self::plain }, 1);
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
        let mut vacant = self.spare.pop().unwrap_or_else(|| into.take());
        let result = udp.receive(vacant.bytes());
        match result {
            Ok(len) if 0 < len && len <= BUFFER => {
                into.deliver(self.channel, vacant, 0..len);
                return Ok(1);
            }
            Ok(0) => counters.empty += 1,
            Ok(_) => counters.truncated += 1,
            Err(_) => {}
        }
        self.spare.push(vacant);
        Err(result.err().unwrap_or(NONE_OF_OURS))
    }

    /// Up to `most` messages of one or more datagrams each.
    fn messages(
        &mut self,
        udp: &Udp,
        counters: &mut Counters,
        into: &mut Inbox,
        most: usize,
    ) -> Result<usize, Errno> {
        while self.spare.len() < most {
            self.spare.push(into.take());
        }
        self.slots.aim(&mut self.spare, most, self.joins);
        // SAFETY: just aimed at buffers that are vacant and stay in `spare` until the call has
        // returned, and at the slots' own controls.
        let filled = unsafe { udp.receive_messages(&mut self.slots.messages) }?;
        let (mut count, mut bytes) = (0, 0);
        for (at, vacant) in self.spare.drain(..filled).enumerate() {
            let message = &self.slots.messages[at];
            let (header, len) = (&message.msg_hdr, message.msg_len as usize);
            if header.msg_flags & libc::MSG_TRUNC != 0 {
                counters.truncated += 1;
                into.put(vacant);
            } else if len == 0 {
                counters.empty += 1;
                into.put(vacant);
            } else {
                let joined =
                    if self.joins { self.slots.controls[at].joined(header.msg_controllen) } else { None };
                count += into.deliver_all(self.channel, vacant, joined.unwrap_or(len), 0..len);
                bytes += len;
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
        shared.counters.receive_errors += 1;
    }
}

impl Slots {
    fn aim(&mut self, buffers: &mut [Vacant], most: usize, controls: bool) {
        self.pieces.clear();
        self.controls.clear();
        self.messages.clear();
        self.controls.resize(most, Control::EMPTY);
        for buffer in buffers.iter_mut().take(most) {
            let bytes = buffer.bytes();
            self.pieces.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        }
        for (piece, control) in self.pieces.iter_mut().zip(&mut self.controls) {
            let control = if controls { (&raw mut *control).cast() } else { std::ptr::null_mut() };
            let header = libc::msghdr {
                msg_name: std::ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: piece,
                msg_iovlen: 1,
                msg_control: control,
                msg_controllen: if controls { Control::ROOM } else { 0 },
                msg_flags: 0,
            };
            self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
    }
}
