//! Receives that several queue pairs share (`ibv_create_srq(3)`).

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::Hot;
use super::memory::Pd;
use super::work::{self, Piece, PostError};
use super::{last_error, outcome, sys};
use crate::error::{Error, Result};

/// A shared receive queue.
pub struct Srq {
    raw: NonNull<sys::ibv_srq>,
    hot: Hot,
    depth: usize,
    pd: Arc<Pd>,
}

// SAFETY: libibverbs' calls on a queue may be made from any thread and overlap: the driver locks it.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    /// A queue for at least so many receives of at most so many pieces. `token` is what events about it name.
    pub fn new(pd: &Arc<Pd>, depth: usize, pieces: usize, token: usize) -> Result<Arc<Self>> {
        let hot = pd.context().hot()?;
        let number = |count| u32::try_from(count).map_err(|_| Error::BadParameter);
        let attr = sys::ibv_srq_attr { max_wr: number(depth)?, max_sge: number(pieces)?, srq_limit: 0 };
        let mut wanted = sys::ibv_srq_init_attr { srq_context: ptr::without_provenance_mut(token), attr };
        // SAFETY: an open domain; the structure is read, and what was granted written; the queue is ours, or null on failure.
        let raw = unsafe { (pd.context().library().srq_create)(pd.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        // Some write what they granted, others leave what was asked for.
        let depth = depth.max(wanted.attr.max_wr as usize);
        Ok(Arc::new(Self { raw, hot, depth, pd: Arc::clone(pd) }))
    }

    /// Posts a receive. Its memory is lent until it has completed or the queue was dropped.
    #[inline]
    pub fn post_receive(&self, id: u64, pieces: &[Piece]) -> std::result::Result<(), PostError> {
        let mut request = work::receive(id, pieces);
        let mut bad = ptr::null_mut();
        // SAFETY: an open queue, by the call of its own device, which copies the request and its list.
        work::posted(unsafe { (self.hot.post_srq_recv)(self.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// How many receives it holds.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Asks for one event when less than so many receives are left (`ibv_modify_srq(3)`).
    pub fn arm(&self, limit: usize) -> Result<()> {
        let srq_limit = u32::try_from(limit).map_err(|_| Error::BadParameter)?;
        let mut wanted = sys::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit };
        let mask = sys::IBV_SRQ_LIMIT.cast_signed();
        // SAFETY: an open queue; the structure is read.
        outcome(unsafe { (self.pd.context().library().srq_modify)(self.as_ptr(), &raw mut wanted, mask) })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_srq {
        self.raw.as_ptr()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: ours, ended once; queue pairs hold it, so none is left.
        let _ended = outcome(unsafe { (self.pd.context().library().srq_destroy)(self.as_ptr()) });
    }
}
