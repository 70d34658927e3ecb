//! The queue pair of an id: a reliable connection's two ends of work (`rdma_create_qp(3)`, `ibv_post_send(3)`).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::completion::Cq;
use super::context::Hot;
use super::id::Handle;
use super::memory::Pd;
use super::shared::Srq;
use super::work::{self, Flags, Piece, PostError, Work};
use super::{outcome, sys};
use crate::error::{Error, Result};

/// What a queue pair is made of. All of the device that its id is bound to.
#[derive(Clone)]
pub struct Queues {
    /// Whose memory it may use.
    pub pd: Arc<Pd>,
    /// Where its sends complete.
    pub send: Arc<Cq>,
    /// Where its receives complete.
    pub receive: Arc<Cq>,
    /// Where its receives come from; `None` for a queue of its own.
    pub shared: Option<Arc<Srq>>,
}

/// How much of it there is at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Sends, reads and writes.
    pub sends: u32,
    /// Receives; nothing with a shared queue.
    pub receives: u32,
    /// Pieces of a send.
    pub send_pieces: u32,
    /// Pieces of a receive.
    pub receive_pieces: u32,
    /// Bytes that are copied when they are posted.
    pub inline: u32,
}

impl Depths {
    pub(super) fn raw(self) -> sys::ibv_qp_cap {
        sys::ibv_qp_cap {
            max_send_wr: self.sends,
            max_recv_wr: self.receives,
            max_send_sge: self.send_pieces,
            max_recv_sge: self.receive_pieces,
            max_inline_data: self.inline,
        }
    }

    pub(super) fn of(raw: &sys::ibv_qp_cap) -> Self {
        Self {
            sends: raw.max_send_wr,
            receives: raw.max_recv_wr,
            send_pieces: raw.max_send_sge,
            receive_pieces: raw.max_recv_sge,
            inline: raw.max_inline_data,
        }
    }
}

/// A queue pair. It ends when it is dropped; its id stays until both are.
///
/// Work that is under way then is neither done nor told, and its memory is free. Completions that were not read may
/// still be read.
pub struct Qp {
    raw: NonNull<sys::ibv_qp>,
    number: u32,
    hot: Hot,
    granted: Depths,
    // In the order in which they may go, after the queue pair.
    id: Arc<Handle>,
    queues: Queues,
}

// SAFETY: libibverbs' calls on a queue pair may be made from any thread and overlap: the driver locks it. What
// librdmacm does with it, it does under the lock of the channel, as its end.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// # Safety
    /// `raw` is the queue pair of the id, made just now of these queues.
    pub(super) unsafe fn own(
        raw: NonNull<sys::ibv_qp>,
        hot: Hot,
        granted: Depths,
        id: Arc<Handle>,
        queues: Queues,
    ) -> Self {
        // SAFETY: just made; the number is written by then, and stays.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        Self { raw, number, hot, granted, id, queues }
    }

    /// Its number, as completions name it.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What there is of it: at least what was asked for, but for the bytes that are copied, of which there may be less.
    pub fn granted(&self) -> Depths {
        self.granted
    }

    /// Whether it is of this id, and its end is the id's.
    pub(super) fn is_of(&self, id: &Arc<Handle>) -> bool {
        Arc::ptr_eq(&self.id, id)
    }

    /// Posts work. Its memory is lent until it has completed, or work after it has, or the queue pair was dropped; that of
    /// inline work until this returns.
    #[inline]
    pub fn post_send(
        &self,
        id: u64,
        work: Work,
        pieces: &[Piece],
        flags: Flags,
    ) -> std::result::Result<(), PostError> {
        let mut request = work::send(id, work, pieces, flags);
        // SAFETY: both live until the call returns; inline bytes are read during the call, and are lent.
        work::posted(unsafe { self.post_raw(&raw mut request) })
    }

    /// Posts a list of work, as C has it; the code of the call.
    ///
    /// # Safety
    /// A list of requests with their pieces, all of which live until this returns; their memory as [`post_send`](Self::post_send)
    /// has it.
    #[inline]
    pub(super) unsafe fn post_raw(&self, request: *mut sys::ibv_send_wr) -> c_int {
        let mut bad = MaybeUninit::uninit();
        // SAFETY: an open queue pair, by the call of its own device, which copies the requests and their lists; a place for the
        // address of the first one that was refused.
        unsafe { (self.hot.post_send)(self.raw.as_ptr(), request, bad.as_mut_ptr()) }
    }

    /// The same of receives; `bad` is the first one that was refused.
    ///
    /// # Safety
    /// As [`post_raw`](Self::post_raw).
    pub(super) unsafe fn post_receives(
        &self,
        first: *mut sys::ibv_recv_wr,
        bad: &mut *mut sys::ibv_recv_wr,
    ) -> c_int {
        if self.queues.shared.is_some() {
            *bad = first;
            return libc::EINVAL;
        }
        // SAFETY: as above.
        unsafe { (self.hot.post_recv)(self.raw.as_ptr(), first, bad) }
    }

    /// Posts a receive. Its memory is lent until it has completed or the queue pair was dropped.
    ///
    /// # Errors
    /// [`PostError::Refused`] with `EINVAL` of a receive without pieces, where the device wants one of no bytes
    /// ([`Piece::EMPTY`]); and of any with a shared queue.
    #[inline]
    pub fn post_receive(&self, id: u64, pieces: &[Piece]) -> std::result::Result<(), PostError> {
        if self.queues.shared.is_some() {
            return Err(PostError::Refused(libc::EINVAL));
        }
        let mut request = work::receive(id, pieces);
        let mut bad = ptr::null_mut();
        // SAFETY: an open queue pair, by the call of its own device, which copies the request and its list.
        work::posted(unsafe { (self.hot.post_recv)(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// How long a peer waits before it sends again what found no receive here: `code` as the InfiniBand specification has
    /// them (table 45; 12 is 0.64 ms, 0 is 655 ms, which librdmacm leaves). To be set once it is connected.
    pub fn set_receiver_not_ready_delay(&self, code: u8) -> Result<()> {
        if code > 31 {
            return Err(Error::BadParameter);
        }
        let mut wanted = sys::ibv_qp_attr { min_rnr_timer: code, ..Default::default() };
        let mask = sys::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0.cast_signed();
        let library = self.queues.pd.context().library();
        // SAFETY: an open queue pair; the structure is read.
        outcome(unsafe { (library.qp_modify)(self.raw.as_ptr(), &raw mut wanted, mask) })
    }

    /// Puts it into its error state: all work that is under way ends as flushed, and is told.
    pub fn flush(&self) -> Result<()> {
        let mut wanted = sys::ibv_qp_attr { qp_state: sys::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        let library = self.queues.pd.context().library();
        // SAFETY: an open queue pair; the structure is read.
        outcome(unsafe { (library.qp_modify)(self.raw.as_ptr(), &raw mut wanted, mask) })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: it is the queue pair of the id, and nobody uses it any more.
        unsafe { self.id.destroy_qp() };
    }
}
