//! [`Inbox`]: received datagrams in order, in shared buffers from its own pool.
//!
//! A link takes a vacant buffer, lets the kernel fill it, and delivers one or several datagrams in
//! it. Most are looked at where they lie and skipped. A popped [`Datagram`] keeps its buffer alive, so
//! it may outlive further polls; once the last one is dropped the buffer is vacant again by itself:
//! when all of a buffer has been popped or skipped it goes back to the pool, which refills only one that is
//! unique. Until then those who look at it may also change it, if nothing was popped.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Channel, Landing};

/// Bytes of a buffer: the longest datagram, or the longest run of joined ones, fits.
pub(super) const BUFFER: usize = 65536;

/// A buffer that datagrams share.
pub(super) struct Buffer(Box<[u8]>);

impl Buffer {
    /// One of zeros; `None` where there is no memory for it. What is never written to takes none.
    fn new() -> Option<Self> {
        let layout = Layout::array::<u8>(BUFFER).ok()?;
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let bytes = std::ptr::slice_from_raw_parts_mut(start.as_ptr(), BUFFER);
        // SAFETY: as many bytes as that from the allocator of boxes, in the layout that a box of them has; nobody else has
        // them.
        Some(Self(unsafe { Box::from_raw(bytes) }))
    }
}

/// A buffer that nobody else holds.
pub(crate) struct Vacant(Arc<Buffer>);

impl Vacant {
    /// The whole buffer.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // INVARIANT: unique since it was taken out of the pool; the branch is never taken.
        Arc::get_mut(&mut self.0).map_or(&mut [], |buffer| &mut buffer.0)
    }
}

/// A received datagram.
#[derive(Clone)]
pub struct Datagram {
    buffer: Arc<Buffer>,
    start: u32,
    end: u32,
    channel: Channel,
}

impl Datagram {
    /// The channel that it came by.
    #[inline]
    pub fn channel(&self) -> Channel {
        self.channel
    }
}

impl Deref for Datagram {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer.0[self.start as usize..self.end as usize]
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagram({:?}, {} bytes)", self.channel, self.len())
    }
}

/// Datagrams that lie one behind the other in a buffer: `size` bytes each, the last may have fewer.
///
/// They share one count of the buffer. Counted one by one, each would end with an atomic operation,
/// which waits until all that was copied out of it has reached memory.
struct Run {
    buffer: Arc<Buffer>,
    start: u32,
    end: u32,
    size: u32,
    channel: Channel,
    /// When the first of them came, by the time of day; 0: not known.
    stamp: u64,
    /// The pool gets the buffer when none of them is left, and has no reference to it before.
    is_owner: bool,
}

impl Run {
    #[inline]
    fn first(&self) -> (u32, u32) {
        (self.start, self.end.min(self.start.saturating_add(self.size)))
    }

    /// The first `len` bytes of the first.
    #[inline]
    fn part(&self, len: usize) -> (u32, u32) {
        let (start, end) = self.first();
        (start, end.min(start.saturating_add(len as u32)))
    }

    fn len(&self) -> usize {
        (self.end - self.start).div_ceil(self.size).max(1) as usize
    }
}

/// Datagrams of which the data has landed elsewhere.
struct Landed {
    run: Run,
    landing: Landing,
}

/// Received datagrams in order. Allocates only while more buffers are out than ever before.
#[derive(Default)]
pub struct Inbox {
    waiting: VecDeque<Run>,
    /// What stands before all that waits, as long as nobody has looked at it.
    landed: Option<Landed>,
    /// Buffers known to be vacant.
    idle: Vec<Vacant>,
    /// Buffers that datagrams hold or held, the latest last.
    lent: Vec<Arc<Buffer>>,
    buffers: usize,
}

impl Inbox {
    /// An empty one, without buffers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The oldest datagram, and when it came, in nanoseconds of the time of day; 0: not known.
    #[inline]
    pub fn front(&self) -> Option<(&[u8], u64)> {
        let run = self.waiting.front()?;
        let (start, end) = run.first();
        Some((&run.buffer.0[start as usize..end as usize], run.stamp))
    }

    /// The oldest datagrams that came together: their bytes, those of each but the last, and when they came.
    #[inline]
    pub fn joined(&self) -> Option<(&[u8], usize, u64)> {
        let run = self.waiting.front()?;
        Some((&run.buffer.0[run.start as usize..run.end as usize], run.size as usize, run.stamp))
    }

    /// The bytes of [`joined`](Self::joined), to be changed, if nobody else holds the buffer.
    #[inline]
    pub fn joined_mut(&mut self) -> Option<&mut [u8]> {
        let run = self.waiting.front_mut()?;
        let buffer = Arc::get_mut(&mut run.buffer)?;
        Some(&mut buffer.0[run.start as usize..run.end as usize])
    }

    /// Datagrams that came together, the oldest of all, whose data is not here, but where it was guessed to belong; as
    /// [`joined`](Self::joined) tells. Nothing else is to be had before they are [settled](Self::settle_landed).
    #[inline]
    pub fn landed(&self) -> Option<(&[u8], usize, u64)> {
        let Landed { run, .. } = self.landed.as_ref()?;
        let bytes = &run.buffer.0[run.start as usize..run.end as usize];
        Some((bytes, run.size as usize, run.stamp))
    }

    /// The bytes of [`landed`](Self::landed), to be changed, and those of each datagram but the last.
    #[inline]
    pub fn landed_mut(&mut self) -> Option<(&mut [u8], usize)> {
        let Landed { run, .. } = self.landed.as_mut()?;
        // INVARIANT: nothing of it was popped, so it is unique.
        let buffer = Arc::get_mut(&mut run.buffer)?;
        Some((&mut buffer.0[run.start as usize..run.end as usize], run.size as usize))
    }

    /// So many of them are done with. The others are put together again, and wait like all others.
    pub fn settle_landed(&mut self, count: usize) {
        let Some(Landed { mut run, landing }) = self.landed.take() else { return };
        let done = (run.size as usize).saturating_mul(count).min((run.end - run.start) as usize);
        run.start += done as u32;
        if run.start == run.end {
            self.lent.push(run.buffer);
        } else if let Some(buffer) = Arc::get_mut(&mut run.buffer) {
            // INVARIANT: nothing of it was popped, so it is unique: it is always put together again.
            landing.fetch_back(&mut buffer.0, run.start as usize, run.end as usize);
            self.waiting.push_front(run);
        }
    }

    /// Drops the oldest datagrams, of which none is left.
    #[inline]
    fn retire(&mut self) {
        if let Some(run) = self.waiting.pop_front()
            && run.is_owner
        {
            self.lent.push(run.buffer);
        }
    }

    /// Drops so many of the oldest datagrams, which came together.
    #[inline]
    pub fn skip_joined(&mut self, count: usize) {
        let Some(run) = self.waiting.front_mut() else { return };
        let len = (run.size as usize).saturating_mul(count).min((run.end - run.start) as usize);
        run.start += len as u32;
        if run.start == run.end {
            self.retire();
        }
    }

    /// Drops the first `len` bytes of the oldest datagram: a packet that others may follow.
    #[inline]
    pub fn skip(&mut self, len: usize) {
        let Some(run) = self.waiting.front_mut() else { return };
        run.start = run.part(len).1;
        if run.start == run.end {
            self.retire();
        }
    }

    /// Takes the oldest datagram out.
    #[inline]
    pub fn pop(&mut self) -> Option<Datagram> {
        self.pop_part(BUFFER)
    }

    /// Takes the first `len` bytes of the oldest datagram out.
    #[inline]
    pub fn pop_part(&mut self, len: usize) -> Option<Datagram> {
        let run = self.waiting.front_mut()?;
        let ((start, end), channel) = (run.part(len), run.channel);
        run.start = end;
        let (buffer, is_last) = (Arc::clone(&run.buffer), end == run.end);
        if is_last {
            self.retire();
        }
        Some(Datagram { buffer, start, end, channel })
    }

    /// Datagrams that wait.
    #[inline]
    pub fn len(&self) -> usize {
        let landed = self.landed.as_ref().map_or(0, |landed| landed.run.len());
        landed + self.waiting.iter().map(Run::len).sum::<usize>()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.landed.is_none()
    }

    /// Buffers that the pool has made so far.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// A buffer to receive into: the one used last if it is vacant, since it is still in the cache. `None` where there is no
    /// memory for another.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Vacant> {
        if let Some(last) = self.lent.last_mut()
            && Arc::get_mut(last).is_some()
            && let Some(last) = self.lent.pop()
        {
            return Some(Vacant(last));
        }
        self.idle.pop().or_else(|| self.find())
    }

    /// Appends the datagram that fills the range of the buffer.
    #[inline]
    pub(crate) fn deliver(&mut self, channel: Channel, filled: Vacant, range: Range<usize>) {
        self.deliver_all(channel, filled, range.len().max(1), range, 0);
    }

    /// Appends the datagrams of `size` bytes that fill the range of the buffer; the last may be
    /// shorter. They came at `stamp`, as [`front`](Self::front) tells. Returns their number.
    #[inline]
    pub(crate) fn deliver_all(
        &mut self,
        channel: Channel,
        filled: Vacant,
        size: usize,
        range: Range<usize>,
        stamp: u64,
    ) -> usize {
        self.append(channel, filled.0, true, size, range, stamp)
    }

    /// Takes in datagrams of `size` bytes that fill `len` bytes from the buffer's beginning on, or would if their data had
    /// not landed elsewhere. There must be [none before](Self::is_empty) them. Returns their number.
    pub(super) fn land(
        &mut self,
        channel: Channel,
        filled: Vacant,
        (size, len): (usize, usize),
        stamp: u64,
        landing: Landing,
    ) -> usize {
        let (size, end) = (size.clamp(1, BUFFER) as u32, len.min(BUFFER) as u32);
        let run = Run { buffer: filled.0, start: 0, end, size, channel, stamp, is_owner: true };
        let count = run.len();
        self.landed = Some(Landed { run, landing });
        count
    }

    /// Takes a buffer back that was not filled.
    pub(super) fn put_back(&mut self, vacant: Vacant) {
        self.idle.push(vacant);
    }

    /// Appends the datagrams that lie in these ranges of the buffer. Returns their number.
    #[inline]
    pub(super) fn deliver_each(
        &mut self,
        channel: Channel,
        filled: Vacant,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> usize {
        let each =
            |range: Range<usize>| self.append(channel, Arc::clone(&filled.0), false, range.len(), range, 0);
        let count = ranges.map(each).sum();
        self.lent.push(filled.0);
        count
    }

    #[inline]
    fn append(
        &mut self,
        channel: Channel,
        buffer: Arc<Buffer>,
        is_owner: bool,
        size: usize,
        range: Range<usize>,
        stamp: u64,
    ) -> usize {
        let (start, end) = (range.start.min(BUFFER) as u32, range.end.min(BUFFER) as u32);
        let size = size.clamp(1, BUFFER) as u32;
        let run = Run { buffer, start, end: end.max(start), size, channel, stamp, is_owner };
        let count = run.len();
        self.waiting.push_back(run);
        count
    }

    #[cold]
    fn find(&mut self) -> Option<Vacant> {
        let mut at = 0;
        while let Some(buffer) = self.lent.get_mut(at) {
            if Arc::get_mut(buffer).is_some() {
                self.idle.push(Vacant(self.lent.swap_remove(at)));
            } else {
                at += 1;
            }
        }
        if let Some(vacant) = self.idle.pop() {
            return Some(vacant);
        }
        let (buffer, buffers) = (Buffer::new()?, self.buffers + 1);
        // Room for all of them in both lists, so that only a new buffer ever allocates.
        self.idle.try_reserve(buffers).ok()?;
        self.lent.try_reserve(buffers - self.lent.len().min(buffers)).ok()?;
        self.buffers = buffers;
        Some(Vacant(Arc::new(buffer)))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} datagrams, {} buffers)", self.len(), self.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(inbox: &mut Inbox, text: &[u8]) {
        let mut vacant = inbox.take().expect("memory");
        vacant.bytes()[..text.len()].copy_from_slice(text);
        inbox.deliver(Channel::Data, vacant, 0..text.len());
    }

    #[test]
    fn a_dropped_datagram_gives_its_buffer_back() {
        let mut inbox = Inbox::new();
        for n in 0..100_u8 {
            receive(&mut inbox, &[n; 4]);
            let datagram = inbox.pop().expect("just delivered");
            assert_eq!(&*datagram, [n; 4]);
            assert_eq!(datagram.channel(), Channel::Data);
        }
        assert_eq!(inbox.buffers(), 1);
    }

    #[test]
    fn a_held_datagram_keeps_its_bytes() {
        let mut inbox = Inbox::new();
        let mut held = Vec::new();
        for n in 0..100_u8 {
            receive(&mut inbox, &[n; 8]);
            held.extend(inbox.pop());
            receive(&mut inbox, b"other");
            drop(inbox.pop());
        }
        for (n, datagram) in held.iter().enumerate() {
            assert_eq!(**datagram, [n as u8; 8]);
        }
        assert_eq!(inbox.buffers(), 101);
        drop(held);
        for _ in 0..3 {
            for n in 0..101 {
                receive(&mut inbox, &[n; 2]);
            }
            while inbox.pop().is_some() {}
        }
        assert_eq!(inbox.buffers(), 101);
    }

    #[test]
    fn datagrams_are_looked_at_where_they_lie() {
        let mut inbox = Inbox::new();
        let mut vacant = inbox.take().expect("memory");
        vacant.bytes()[..7].copy_from_slice(b"aaabbbc");
        assert_eq!((inbox.deliver_all(Channel::Data, vacant, 3, 0..7, 9), inbox.len()), (3, 3));
        assert_eq!(inbox.front(), Some((&b"aaa"[..], 9)));
        inbox.skip(BUFFER);
        let held = inbox.pop();
        assert_eq!((held.as_deref(), inbox.front()), (Some(&b"bbb"[..]), Some((&b"c"[..], 9))));
        assert_eq!(inbox.joined(), Some((&b"c"[..], 3, 9)));
        inbox.skip(BUFFER);
        assert!(inbox.is_empty() && inbox.front().is_none());
        inbox.skip(BUFFER);
        receive(&mut inbox, b"other");
        assert_eq!((held.as_deref(), inbox.buffers()), (Some(&b"bbb"[..]), 2), "held, so not used again");
        drop((held, inbox.pop()));
        receive(&mut inbox, b"again");
        assert_eq!(inbox.buffers(), 2);
    }

    #[test]
    fn a_datagram_may_be_taken_in_parts() {
        let mut inbox = Inbox::new();
        receive(&mut inbox, b"aabbbc");
        receive(&mut inbox, b"other");
        inbox.skip(2);
        let part = inbox.pop_part(3);
        assert_eq!((part.as_deref(), inbox.front()), (Some(&b"bbb"[..]), Some((&b"c"[..], 0))));
        inbox.skip(9);
        assert_eq!(inbox.front(), Some((&b"other"[..], 0)), "never more than one");
        assert_eq!(inbox.pop_part(BUFFER + 1).as_deref(), Some(&b"other"[..]));
        assert!(inbox.is_empty());
    }

    #[test]
    fn what_came_together_may_be_changed_unless_somebody_holds_some_of_it() {
        let mut inbox = Inbox::new();
        let joined = |inbox: &mut Inbox| {
            let mut vacant = inbox.take().expect("memory");
            vacant.bytes()[..6].copy_from_slice(b"aaabbb");
            inbox.deliver_all(Channel::Data, vacant, 3, 0..6, 0);
        };
        joined(&mut inbox);
        inbox.joined_mut().expect("nobody holds it")[3] = b'x';
        inbox.skip(BUFFER);
        assert_eq!(inbox.joined_mut().map(|bytes| &*bytes), Some(&b"xbb"[..]));
        assert_eq!(inbox.pop().as_deref(), Some(&b"xbb"[..]));
        joined(&mut inbox);
        let held = inbox.pop();
        assert_eq!(held.as_deref(), Some(&b"aaa"[..]));
        assert!(inbox.joined_mut().is_none(), "somebody holds the first");
        drop(held);
        assert_eq!(inbox.joined_mut().map(|bytes| &*bytes), Some(&b"bbb"[..]));
        inbox.skip(BUFFER);
        let vacant = inbox.take().expect("memory");
        inbox.deliver_each(Channel::Data, vacant, [0..2, 4..5].into_iter());
        assert_eq!(inbox.len(), 2);
        assert!(inbox.joined_mut().is_none(), "they share a buffer");
        inbox.skip(BUFFER);
        inbox.skip(BUFFER);
        assert!(inbox.joined_mut().is_none());
        for _ in 0..9 {
            joined(&mut inbox);
            inbox.skip_joined(2);
        }
        assert_eq!(inbox.buffers(), 1, "it comes back however it was used");
    }

    #[test]
    fn several_that_came_together_are_dropped_together() {
        let mut inbox = Inbox::new();
        let mut vacant = inbox.take().expect("memory");
        vacant.bytes()[..7].copy_from_slice(b"aaabbbc");
        inbox.deliver_all(Channel::Data, vacant, 3, 0..7, 9);
        receive(&mut inbox, b"other");
        assert_eq!(inbox.joined(), Some((&b"aaabbbc"[..], 3, 9)));
        inbox.skip_joined(1);
        assert_eq!(inbox.joined(), Some((&b"bbbc"[..], 3, 9)));
        inbox.skip_joined(2);
        assert_eq!(inbox.joined(), Some((&b"other"[..], 5, 0)));
        inbox.skip_joined(9);
        assert!(inbox.is_empty() && inbox.joined().is_none(), "never more than came together");
    }

    #[test]
    fn joined_datagrams_share_one_buffer() {
        let mut inbox = Inbox::new();
        let mut vacant = inbox.take().expect("memory");
        vacant.bytes()[..10].copy_from_slice(b"aaabbbcccd");
        assert_eq!(inbox.deliver_all(Channel::Priority, vacant, 3, 0..10, 0), 4);
        let all: Vec<Vec<u8>> = std::iter::from_fn(|| inbox.pop()).map(|d| d.to_vec()).collect();
        assert_eq!(all, [b"aaa".to_vec(), b"bbb".to_vec(), b"ccc".to_vec(), b"d".to_vec()]);
        assert_eq!(inbox.buffers(), 1);
    }
}
