//! Completion queues, and what they tell (`ibv_create_cq(3)`, `ibv_poll_cq(3)`).

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::{Context, Hot};
use super::sys::{ibv_wc_opcode as opcode, ibv_wc_status as status};
use super::{last_error, outcome, sys};
use crate::error::{Error, Result};

/// A completion queue.
pub struct Cq {
    raw: NonNull<sys::ibv_cq>,
    hot: Hot,
    context: Arc<Context>,
}

// SAFETY: libibverbs' calls on a queue may be made from any thread and overlap: the driver locks it.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue for at least so many completions that have not been read. More than it holds are lost, and with them the
    /// queue: see to it that no more are under way. `token` is what events about the queue name.
    pub fn new(context: &Arc<Context>, depth: usize, token: usize) -> Result<Arc<Self>> {
        let hot = context.hot()?;
        let depth = c_int::try_from(depth).map_err(|_| Error::BadParameter)?;
        let token = ptr::without_provenance_mut(token);
        // SAFETY: an open context; without a channel; the queue is ours, or null on failure.
        let raw =
            unsafe { (context.library().cq_create)(context.as_ptr(), depth, token, ptr::null_mut(), 0) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        Ok(Arc::new(Self { raw, hot, context: Arc::clone(context) }))
    }

    /// Reads what has completed, in order of completion, as much as there is room for, and says how many. Those of queue
    /// pairs that have been dropped may be among them.
    ///
    /// # Errors
    /// The queue is broken: too many completions were in it, or the device has gone.
    #[inline]
    pub fn poll(&self, completions: &mut [Completion]) -> Result<usize> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: an open queue, by the call of its own device; room for as many completions as it is told, each of which is
        // one C structure.
        let read = unsafe { (self.hot.poll_cq)(self.raw.as_ptr(), room, completions.as_mut_ptr().cast()) };
        usize::try_from(read).map_err(|_| broken(read))
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }
}

/// A failed poll. What the code is, no manual page says.
#[cold]
fn broken(code: c_int) -> Error {
    match code {
        -1 => Error::System(libc::EIO),
        code => Error::System(code.saturating_abs()),
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: ours, ended once; queue pairs hold their queues, so none is left.
        let _ended = outcome(unsafe { (self.context.library().cq_destroy)(self.as_ptr()) });
    }
}

/// How work ended (`ibv_poll_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should. Over iWARP that says nothing about the peer.
    Success,
    /// The message is longer than the receive, or than the device sends.
    Length,
    /// The queue pair cannot do that.
    Operation,
    /// A piece is not in registered memory of the process, or not with the right.
    Protection,
    /// The queue pair was in its error state before the work was done.
    Flushed,
    /// The peer answered with what makes no sense.
    BadResponse,
    /// Memory here refused what the peer wrote.
    Access,
    /// The peer does not take such work, or has no room for it.
    RemoteRequest,
    /// The peer's memory is not there, or without the right.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer does not answer.
    Timeout,
    /// The peer had no receive posted, for longer than it was to be tried.
    NotReady,
    /// The peer ended it.
    Aborted,
    /// The device failed.
    Fatal,
    /// Any other, by C's number.
    Other(u32),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Success => "done",
            Self::Length => "message too long",
            Self::Operation => "operation refused by the queue pair",
            Self::Protection => "local memory not registered for it",
            Self::Flushed => "flushed",
            Self::BadResponse => "bad response",
            Self::Access => "local memory refused it",
            Self::RemoteRequest => "refused by the peer",
            Self::RemoteAccess => "remote memory not registered for it",
            Self::RemoteOperation => "failed at the peer",
            Self::Timeout => "no answer from the peer",
            Self::NotReady => "peer without a receive",
            Self::Aborted => "ended by the peer",
            Self::Fatal => "device failed",
            Self::Other(code) => return write!(f, "work completion status {code}"),
        })
    }
}

/// What work was. Of failed work nothing says so; its number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A receive, of a send.
    Receive,
    /// A receive, of an RDMA write with immediate data.
    ReceiveOfWrite,
    /// Any other, by C's number.
    Other(u32),
}

/// Work that has ended.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Completion(sys::ibv_wc);

impl Completion {
    /// The number that the work was posted with.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id()
    }

    /// Whether it ended as it should.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.is_valid()
    }

    /// How it ended.
    pub fn status(&self) -> Status {
        match self.0.error() {
            None => Status::Success,
            Some((code, _)) => match code {
                status::IBV_WC_LOC_LEN_ERR => Status::Length,
                status::IBV_WC_LOC_QP_OP_ERR => Status::Operation,
                status::IBV_WC_LOC_PROT_ERR => Status::Protection,
                status::IBV_WC_WR_FLUSH_ERR => Status::Flushed,
                status::IBV_WC_BAD_RESP_ERR => Status::BadResponse,
                status::IBV_WC_LOC_ACCESS_ERR => Status::Access,
                status::IBV_WC_REM_INV_REQ_ERR => Status::RemoteRequest,
                status::IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
                status::IBV_WC_REM_OP_ERR => Status::RemoteOperation,
                status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RESP_TIMEOUT_ERR => Status::Timeout,
                status::IBV_WC_RNR_RETRY_EXC_ERR => Status::NotReady,
                status::IBV_WC_REM_ABORT_ERR => Status::Aborted,
                status::IBV_WC_FATAL_ERR => Status::Fatal,
                code => Status::Other(code),
            },
        }
    }

    /// The driver's own code of a failure.
    pub fn vendor_code(&self) -> u32 {
        self.0.error().map_or(0, |(_, code)| code)
    }

    /// What the work was, if it ended as it should.
    #[inline]
    pub fn operation(&self) -> Operation {
        match self.0.opcode() {
            opcode::IBV_WC_SEND => Operation::Send,
            opcode::IBV_WC_RDMA_WRITE => Operation::Write,
            opcode::IBV_WC_RDMA_READ => Operation::Read,
            opcode::IBV_WC_COMP_SWAP => Operation::CompareSwap,
            opcode::IBV_WC_FETCH_ADD => Operation::FetchAdd,
            opcode::IBV_WC_RECV => Operation::Receive,
            opcode::IBV_WC_RECV_RDMA_WITH_IMM => Operation::ReceiveOfWrite,
            code => Operation::Other(code),
        }
    }

    /// Bytes that arrived, of a receive or an RDMA read that ended as it should.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none arrived.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The immediate data of a receive that ended as it should.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        // Of a send that brought some rxe says so as well, and has none.
        let is_receive = matches!(self.operation(), Operation::Receive | Operation::ReceiveOfWrite);
        self.0.imm_data().filter(|_| is_receive).map(u32::from_be)
    }

    /// The number of the queue pair that the work was posted to, or that a shared receive was of.
    #[inline]
    pub fn qp_number(&self) -> u32 {
        self.0.qp_num
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id())
            .field("status", &self.status())
            .field("operation", &self.operation())
            .field("len", &self.len())
            .field("qp_number", &self.qp_number())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_that_was_never_written_is_no_success() {
        let completion = Completion::default();
        assert!(!completion.is_success());
        assert_eq!(completion.status(), Status::Other(status::IBV_WC_GENERAL_ERR));
        assert_eq!(completion.immediate(), None);
    }

    #[test]
    fn immediate_data_are_a_receives() {
        let completion = |operation: opcode::Type| {
            let mut words = [0; size_of::<sys::ibv_wc>() / 4];
            // Its opcode, its immediate data, and the flag that there are some.
            (words[3], words[6], words[9]) = (operation, 42_u32.to_be(), 2);
            // SAFETY: as many bytes as the C structure has, of which all values mean something.
            Completion(unsafe { std::mem::transmute::<[u32; 12], sys::ibv_wc>(words) })
        };
        assert_eq!(completion(opcode::IBV_WC_RECV).immediate(), Some(42));
        assert_eq!(completion(opcode::IBV_WC_RECV_RDMA_WITH_IMM).immediate(), Some(42));
        assert_eq!(completion(opcode::IBV_WC_SEND).immediate(), None);
        assert_eq!(completion(opcode::IBV_WC_RDMA_WRITE).immediate(), None);
    }

    #[test]
    fn a_failed_poll_is_an_error_by_any_sign() {
        assert_eq!(broken(-1), Error::System(libc::EIO));
        assert_eq!(broken(-libc::EINVAL), Error::System(libc::EINVAL));
        assert_eq!(broken(i32::MIN), Error::System(i32::MAX));
    }
}
