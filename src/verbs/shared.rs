//! Receives that several queue pairs share (`ibv_create_srq(3)`).

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::Hot;
use super::memory::Pd;
use super::work::{self, Piece};
use super::{last_error, outcome, sys};
use crate::error::{Error, Result};

/// Receives that are posted with one call, at most.
pub const LIST: usize = 32;

/// How many of a list were taken, given where it and the first refused one lie. One that lies elsewhere is none of them.
fn taken(first: usize, bad: usize, count: usize) -> usize {
    let at = bad.wrapping_sub(first) / size_of::<sys::ibv_recv_wr>();
    if at < count { at } else { 0 }
}

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

    /// Posts receives, up to [`LIST`] with one call, and says how many were taken: all before the first that was refused. Their
    /// memory is lent until they have completed or the queue was dropped.
    pub fn post_receives(&self, receives: impl Iterator<Item = (u64, Piece)>) -> usize {
        let mut pieces = [Piece::EMPTY; LIST];
        let mut list = [sys::ibv_recv_wr::default(); LIST];
        let mut count = 0;
        for ((place, request), (id, piece)) in pieces.iter_mut().zip(&mut list).zip(receives) {
            *place = piece;
            *request = work::receive(id, std::slice::from_ref(place));
            count += 1;
        }
        if count == 0 {
            return 0;
        }
        let first = list.as_mut_ptr();
        for at in 1..count {
            // SAFETY: inside the list, for it is below its count.
            unsafe { (*first.wrapping_add(at - 1)).next = first.wrapping_add(at) };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: an open queue, by the call of its own device, which copies the requests and their pieces, all of which are alive.
        let code = unsafe { (self.hot.post_srq_recv)(self.as_ptr(), first, &raw mut bad) };
        if code == 0 { count } else { taken(first.addr(), bad.addr(), count) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_list_all_before_the_refused_one_are_taken() {
        let list = [sys::ibv_recv_wr::default(); 4];
        let first = list.as_ptr().addr();
        let at = |index: usize| (&raw const list[index]).addr();
        assert_eq!([0, 1, 3].map(|index| taken(first, at(index), 4)), [0, 1, 3]);
        assert_eq!([0, first.wrapping_sub(32), first + 128].map(|bad| taken(first, bad, 4)), [0; 3]);
    }
}
