//! Requests that are made once and posted again and again: only what differs from one time to the next is written.
//!
//! They lie in memory of their own, by address, because the lists that the device is given hold addresses.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::pair::Qp;
use super::slab::Slab;
use super::sys;
use super::sys::{ibv_send_flags, ibv_wr_opcode};
use super::work::{PostError, posted};
use crate::error::room;
use crate::link::Lent;

const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;
const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;

/// A send of bytes that are copied when it is posted: `HEAD` bytes and two pieces.
pub struct InlineSend<const HEAD: usize> {
    request: NonNull<Request>,
    /// Where they are put together: `HEAD` bytes, and the room for the pieces.
    bytes: NonNull<u8>,
    room: usize,
}

#[derive(Default)]
struct Request {
    whole: sys::ibv_send_wr,
    piece: sys::ibv_sge,
}

// SAFETY: the request and the bytes are this one's alone.
unsafe impl<const HEAD: usize> Send for InlineSend<HEAD> {}

impl<const HEAD: usize> InlineSend<HEAD> {
    /// With room for pieces of so many bytes.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(room: usize) -> crate::error::Result<Self> {
        let mut bytes: Vec<u8> = room::vector(HEAD + room)?;
        bytes.resize(HEAD + room, 0);
        let bytes = NonNull::from(Box::leak(bytes.into_boxed_slice())).cast::<u8>();
        let request = NonNull::from(Box::leak(Box::<Request>::default()));
        let raw = request.as_ptr();
        let piece = sys::ibv_sge { addr: bytes.addr().get() as u64, length: 0, lkey: 0 };
        // SAFETY: ours alone, and alive.
        unsafe { (*raw).piece = piece };
        // SAFETY: as above.
        let sg_list = unsafe { &raw mut (*raw).piece };
        let whole = sys::ibv_send_wr {
            sg_list,
            num_sge: 1,
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            send_flags: INLINE,
            ..Default::default()
        };
        // SAFETY: as above.
        unsafe { (*raw).whole = whole };
        Ok(Self { request, bytes, room })
    }

    /// Puts together what is to be sent, and has it [posted](Qp::post_inline) with a number, and with a completion or without;
    /// false where there is no room for the pieces.
    #[inline(always)]
    pub fn fill(
        &mut self,
        (id, is_signalled): (u64, bool),
        head: [u8; HEAD],
        [first, second]: [Lent; 2],
    ) -> bool {
        let len = first.len().wrapping_add(second.len());
        if len < first.len() || len > self.room {
            return false;
        }
        let (to, behind) = (self.bytes.as_ptr(), HEAD + first.len());
        // SAFETY: ours alone, and alive.
        let request = unsafe { self.request.as_mut() };
        request.piece.length = (HEAD + len) as u32;
        request.whole.wr_id = id;
        request.whole.send_flags = if is_signalled { INLINE | SIGNALLED } else { INLINE };
        // SAFETY: ours alone, and as long at least.
        unsafe { to.cast::<[u8; HEAD]>().write_unaligned(head) };
        // SAFETY: lent memory is readable; there is room behind the head, as just checked, and it is nobody else's.
        unsafe { ptr::copy_nonoverlapping(first.as_ptr(), to.wrapping_add(HEAD), first.len()) };
        // SAFETY: as above, behind the first piece.
        unsafe { ptr::copy_nonoverlapping(second.as_ptr(), to.wrapping_add(behind), second.len()) };
        true
    }
}

impl<const HEAD: usize> Drop for InlineSend<HEAD> {
    fn drop(&mut self) {
        let bytes = ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), HEAD + self.room);
        // SAFETY: leaked from a box of so many when it was made, and nobody has them: the device has copied them.
        drop(unsafe { Box::from_raw(bytes) });
        // SAFETY: leaked from a box, too.
        drop(unsafe { Box::from_raw(self.request.as_ptr()) });
    }
}

/// The buffers of a receive queue, in one slab, one after the other. Each is posted, or *at hand* until it is posted again.
pub struct Receives {
    slab: Arc<Slab>,
    memory: Lent,
    stride: usize,
    entries: NonNull<Entry>,
    count: u32,
    /// Those at hand are a list, which begins in an entry behind all others: where the next one is to be noted.
    end: *mut *mut sys::ibv_recv_wr,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    request: sys::ibv_recv_wr,
    piece: sys::ibv_sge,
}

// SAFETY: the entries are this one's alone; the slab may be used by any thread.
unsafe impl Send for Receives {}

impl Receives {
    /// So many buffers of `len` bytes, `stride` bytes apart, all at hand. Each is posted with its number, which begins with
    /// `id`.
    ///
    /// # Panics
    /// If they are not in the slab, or longer than apart.
    pub fn new(slab: Arc<Slab>, count: u32, stride: usize, len: usize, id: u64) -> Self {
        let memory = slab.lent(0, stride * count as usize);
        assert!(len <= stride && count > 0, "{count} buffers of {len} bytes, {stride} apart");
        let entry = |at: u32| Entry {
            request: sys::ibv_recv_wr {
                wr_id: id | u64::from(at),
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 1,
            },
            piece: sys::ibv_sge {
                addr: (memory.as_ptr().addr() + stride * at as usize) as u64,
                length: len as u32,
                lkey: slab.local_key(),
            },
        };
        let all: Box<[Entry]> = (0..count).map(entry).chain([Entry::default()]).collect();
        let entries = NonNull::from(Box::leak(all)).cast::<Entry>();
        let mut it = Self { slab, memory, stride, entries, count, end: ptr::null_mut() };
        it.end = it.head();
        for at in 0..count {
            let entry = it.entry(at).expect("below the count");
            // SAFETY: an entry of ours, and alive.
            let piece = unsafe { &raw mut (*entry.as_ptr()).piece };
            // SAFETY: as above.
            unsafe { (*entry.as_ptr()).request.sg_list = piece };
            it.give(at);
        }
        it
    }

    #[inline]
    fn entry(&self, at: u32) -> Option<NonNull<Entry>> {
        // SAFETY: inside the entries, for it is below their number.
        (at < self.count).then(|| unsafe { self.entries.add(at as usize) })
    }

    /// What keeps the memory.
    pub fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    /// So many bytes of a buffer; `None` where there are not so many, or there is no such buffer.
    #[inline(always)]
    pub fn bytes(&self, at: u32, len: usize) -> Option<Lent> {
        if at >= self.count || len > self.stride {
            return None;
        }
        let from = self.memory.as_ptr().wrapping_add(self.stride * at as usize).cast_mut();
        // SAFETY: inside the slab, which has `stride` bytes for each of the `count`; lent as all of it is.
        Some(unsafe { Lent::new(from, len) })
    }

    /// A buffer is at hand again: what has come there is not needed any more. Not twice before it is posted: it would be posted twice.
    #[inline]
    pub fn give(&mut self, at: u32) {
        let Some(entry) = self.entry(at) else { return };
        // SAFETY: an entry of ours, and alive.
        let request = unsafe { &raw mut (*entry.as_ptr()).request };
        // SAFETY: the end of the list, in an entry of ours.
        unsafe { *self.end = request };
        // SAFETY: as for the request.
        self.end = unsafe { &raw mut (*request).next };
    }

    /// Where the list of those at hand begins.
    fn head(&self) -> *mut *mut sys::ibv_recv_wr {
        // SAFETY: there is one entry more than the count.
        let last = unsafe { self.entries.add(self.count as usize) };
        // SAFETY: an entry of ours, and alive.
        unsafe { &raw mut (*last.as_ptr()).request.next }
    }

    /// Posts all that are at hand to a queue pair with receives of its own.
    ///
    /// # Errors
    /// Of `ibv_post_recv(3)`. What was not posted stays at hand.
    pub fn post(&mut self, pair: &Qp) -> Result<(), PostError> {
        let head = self.head();
        if self.end == head {
            return Ok(());
        }
        // SAFETY: the end of the list, in an entry of ours.
        unsafe { *self.end = ptr::null_mut() };
        // SAFETY: an entry of ours.
        let first = unsafe { *head };
        let mut bad = ptr::null_mut();
        // SAFETY: a list of requests that are alive, with one piece each, in a slab that the queue pair's line keeps.
        let code = unsafe { pair.post_receives(first, &mut bad) };
        if code == 0 {
            self.end = head;
        } else {
            // From the first one on that was refused.
            // SAFETY: an entry of ours.
            unsafe { *head = bad };
        }
        posted(code)
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        let all = ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.count as usize + 1);
        // SAFETY: leaked from a box of so many when it was made, and nobody has them: the device copies requests.
        drop(unsafe { Box::from_raw(all) });
    }
}

impl Qp {
    /// Posts what it was [filled](InlineSend::fill) with, as [`post_send`](Self::post_send) does inline work.
    #[inline(always)]
    pub fn post_inline<const HEAD: usize>(&self, send: &mut InlineSend<HEAD>) -> Result<(), PostError> {
        // SAFETY: ours alone, and alive.
        let whole = unsafe { &raw mut (*send.request.as_ptr()).whole };
        // SAFETY: alive, with its one piece, whose bytes are ours and read during the call.
        posted(unsafe { self.post_raw(whole) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(of: &mut [u8], lens: [usize; 2]) -> ([Lent; 2], &[u8]) {
        // SAFETY: outlives the test's use of it, and is only read meanwhile.
        let all = unsafe { Lent::new(of.as_mut_ptr(), of.len()) };
        ([all.slice(0, lens[0]), all.slice(lens[0], lens[1])], &of[..lens[0] + lens[1]])
    }

    #[test]
    fn pieces_are_put_together_where_they_fit_and_nowhere_else() {
        let mut from = *b"abcdefgh";
        for lens in [[3, 3], [6, 0], [0, 6], [0, 0], [1, 2]] {
            let mut send = InlineSend::<2>::new(6).expect("memory");
            let (pieces, all) = pieces(&mut from, lens);
            assert!(send.fill((7, false), *b"12", pieces));
            // SAFETY: alive, and nobody writes there.
            let length = unsafe { send.request.as_ref() }.piece.length as usize;
            // SAFETY: so many were made.
            let bytes = unsafe { std::slice::from_raw_parts(send.bytes.as_ptr(), length) };
            assert_eq!(bytes, [b"12", all].concat());
        }
        let mut send = InlineSend::<2>::new(6).expect("memory");
        for lens in [[4, 3], [7, 0], [0, 7]] {
            assert!(!send.fill((7, false), *b"12", pieces(&mut from, lens).0), "{lens:?}");
        }
        // SAFETY: never touched: it is too long.
        let endless = unsafe { Lent::new(ptr::null_mut(), isize::MAX as usize) };
        for pieces in [[endless, Lent::EMPTY], [Lent::EMPTY, endless], [endless, endless]] {
            assert!(!send.fill((7, false), *b"12", pieces));
        }
    }

    #[test]
    fn an_inline_send_is_written_as_c_reads_it() {
        let mut send = InlineSend::<4>::new(3).expect("memory");
        assert!(send.fill((1 << 40, true), [0; 4], [Lent::EMPTY; 2]));
        // SAFETY: alive, and nobody writes there.
        let Request { whole, piece } = unsafe { send.request.as_ref() };
        assert_eq!((whole.opcode, whole.num_sge, whole.next.is_null()), (2, 1, true));
        assert_eq!((whole.wr_id, whole.send_flags, piece.length), (1 << 40, 2 | 8, 4));
        assert_eq!(whole.sg_list.cast_const(), ptr::from_ref(piece));
        assert_eq!((piece.addr, piece.lkey), (send.bytes.addr().get() as u64, 0));
    }
}
