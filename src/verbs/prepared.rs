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
use crate::link::Lent;

/// A send of bytes that are copied when it is posted.
pub struct InlineSend {
    request: NonNull<Request>,
    memory: Lent,
}

#[derive(Default)]
struct Request {
    whole: sys::ibv_send_wr,
    piece: sys::ibv_sge,
}

// SAFETY: the request is this one's alone.
unsafe impl Send for InlineSend {}

impl InlineSend {
    /// Of bytes that are going to lie in this memory, from its beginning; it is lent as long as this is posted.
    pub fn new(memory: Lent) -> Self {
        let request = NonNull::from(Box::leak(Box::<Request>::default()));
        let raw = request.as_ptr();
        let piece = sys::ibv_sge { addr: memory.as_ptr().addr() as u64, length: 0, lkey: 0 };
        // SAFETY: ours alone, and alive.
        unsafe { (*raw).piece = piece };
        // SAFETY: as above.
        let sg_list = unsafe { &raw mut (*raw).piece };
        let whole = sys::ibv_send_wr {
            sg_list,
            num_sge: 1,
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            ..Default::default()
        };
        // SAFETY: as above.
        unsafe { (*raw).whole = whole };
        Self { request, memory }
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> Lent {
        self.memory
    }
}

impl Drop for InlineSend {
    fn drop(&mut self) {
        // SAFETY: leaked from a box when it was made, and nobody has it: the device has copied it.
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
    /// The list of those at hand: its first, and where the next one is to be noted, the end of the last.
    first: *mut sys::ibv_recv_wr,
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
        let all: Box<[Entry]> = (0..count).map(entry).collect();
        let entries = NonNull::from(Box::leak(all)).cast::<Entry>();
        let mut it =
            Self { slab, memory, stride, entries, count, first: ptr::null_mut(), end: ptr::null_mut() };
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
        Some(self.memory.slice(self.stride * at as usize, len))
    }

    /// A buffer is at hand again: what has come there is not needed any more. Not twice before it is posted: it would be posted twice.
    #[inline]
    pub fn give(&mut self, at: u32) {
        let Some(entry) = self.entry(at) else { return };
        // SAFETY: an entry of ours, and alive.
        let request = unsafe { &raw mut (*entry.as_ptr()).request };
        if self.first.is_null() {
            self.first = request;
        } else {
            // SAFETY: the end of the list, which is in an entry of ours: it is not empty.
            unsafe { *self.end = request };
        }
        // SAFETY: as for the request.
        self.end = unsafe { &raw mut (*request).next };
    }

    /// Posts all that are at hand to a queue pair with receives of its own.
    ///
    /// # Errors
    /// Of `ibv_post_recv(3)`. What was not posted stays at hand.
    pub fn post(&mut self, pair: &Qp) -> Result<(), PostError> {
        if self.first.is_null() {
            return Ok(());
        }
        // SAFETY: the end of the list, which is in an entry of ours: it is not empty.
        unsafe { *self.end = ptr::null_mut() };
        let mut bad = ptr::null_mut();
        // SAFETY: a list of requests that are alive, with one piece each, in a slab that the queue pair's line keeps.
        let code = unsafe { pair.post_receives(self.first, &mut bad) };
        // From the first one on that was refused.
        self.first = if code == 0 { ptr::null_mut() } else { bad };
        posted(code)
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        let all = ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.count as usize);
        // SAFETY: leaked from a box of so many when it was made, and nobody has them: the device copies requests.
        drop(unsafe { Box::from_raw(all) });
    }
}

impl Qp {
    /// Posts the first bytes of its memory, as [`post_send`](Self::post_send) does inline work.
    ///
    /// # Panics
    /// If its memory has not so many.
    #[inline(always)]
    pub fn post_inline(
        &self,
        send: &mut InlineSend,
        id: u64,
        len: usize,
        is_signalled: bool,
    ) -> Result<(), PostError> {
        const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;
        const SIGNALLED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
        let bytes = send.memory.slice(0, len);
        // SAFETY: ours alone, and alive.
        let request = unsafe { send.request.as_mut() };
        request.piece.length = bytes.len() as u32;
        request.whole.wr_id = id;
        request.whole.send_flags = if is_signalled { INLINE | SIGNALLED } else { INLINE };
        let whole = &raw mut request.whole;
        // SAFETY: alive, with its one piece, whose bytes are lent and read during the call.
        posted(unsafe { self.post_raw(whole) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_send_is_written_as_c_reads_it() {
        let mut bytes = [1_u8, 2, 3];
        // SAFETY: outlives the send, and is not touched meanwhile.
        let memory = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        let send = InlineSend::new(memory);
        // SAFETY: alive, and nobody writes there.
        let Request { whole, piece } = unsafe { send.request.as_ref() };
        assert_eq!((whole.opcode, whole.num_sge, whole.next.is_null()), (2, 1, true));
        assert_eq!(whole.sg_list.cast_const(), ptr::from_ref(piece));
        assert_eq!((piece.addr, piece.lkey), (memory.as_ptr().addr() as u64, 0));
    }
}
