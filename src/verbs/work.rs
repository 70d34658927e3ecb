//! What is posted: pieces of memory, and what is to be done with them (`ibv_post_send(3)`, `ibv_post_recv(3)`).

use std::fmt;
use std::ops::BitOr;
use std::os::raw::c_int;
use std::ptr;

use super::sys::{ibv_send_flags, ibv_wr_opcode as opcode};
use super::{code_of, sys};
use crate::link::Lent;

/// A part of registered memory, as work takes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Piece(sys::ibv_sge);

impl Piece {
    /// No bytes. A receive of one such piece takes a message without bytes where a receive without pieces is refused.
    pub const EMPTY: Self = Self(sys::ibv_sge { addr: 0, length: 0, lkey: 0 });

    /// Memory that is lent until the work has completed or its queue pair was dropped, and the local key of its
    /// registration. The device refuses what is not inside that. The key is not needed for inline work.
    ///
    /// # Panics
    /// From 4 GiB on: no message is as long.
    #[inline]
    pub fn new(memory: Lent, key: u32) -> Self {
        let length = u32::try_from(memory.len()).expect("less than 4 GiB");
        Self(sys::ibv_sge { addr: memory.as_ptr().addr() as u64, length, lkey: key })
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.length as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.0.length, self.0.addr)
    }
}

/// Memory of a peer, as the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Where it begins there.
    pub address: u64,
    /// The remote key of its registration.
    pub key: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The pieces, to the peer's next receive.
    Send,
    /// The same with a number that its completion shows. Not over iWARP.
    SendWithImmediate(u32),
    /// The pieces, into the peer's memory.
    Write(Remote),
    /// The peer's memory, into the pieces.
    Read(Remote),
    /// Adds to a number of 64 bits in the peer's memory; the piece, of 8 bytes, gets what it was. Not over iWARP.
    FetchAdd {
        /// The number, at a multiple of 8.
        at: Remote,
        /// What to add.
        add: u64,
    },
    /// Exchanges such a number if it is as expected; the piece gets what it was. Not over iWARP.
    CompareSwap {
        /// The number, at a multiple of 8.
        at: Remote,
        /// What is expected.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
}

/// How it is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Its completion is told only if it fails.
    pub const NONE: Self = Self(0);
    /// Its completion is told. So many unsignalled ones as the queue is deep fill it: each completion frees those before.
    pub const SIGNALLED: Self = Self(ibv_send_flags::IBV_SEND_SIGNALED.0);
    /// The bytes are copied when it is posted; not more than the queue pair takes so.
    pub const INLINE: Self = Self(ibv_send_flags::IBV_SEND_INLINE.0);
    /// Begins when the reads and atomics before it have ended.
    pub const FENCED: Self = Self(ibv_send_flags::IBV_SEND_FENCE.0);
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why work was not taken. Nothing of it is done, and its memory is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full: read completions and try again.
    Full,
    /// Refused, with a positive `errno(3)`: the queue pair is in the wrong state, or the device cannot do that.
    Refused(i32),
}

impl From<PostError> for crate::error::Error {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Full => Self::OutOfResource,
            PostError::Refused(code) => super::error_of(code),
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => f.write_str("the queue is full"),
            Self::Refused(code) => write!(f, "{}", std::io::Error::from_raw_os_error(code)),
        }
    }
}

impl std::error::Error for PostError {}

/// The result of a post. Drivers say `ENOMEM` of a full queue, some `EAGAIN`, with either sign.
#[inline]
pub(super) fn posted(code: c_int) -> Result<(), PostError> {
    if code == 0 { Ok(()) } else { Err(refused(code)) }
}

#[cold]
fn refused(code: c_int) -> PostError {
    match code_of(code) {
        libc::ENOMEM | libc::EAGAIN => PostError::Full,
        code => PostError::Refused(code),
    }
}

/// A list of pieces, as C takes it. It is only read.
#[inline]
fn list(pieces: &[Piece]) -> (*mut sys::ibv_sge, c_int) {
    // One piece more than any device takes is refused by the device.
    (pieces.as_ptr().cast_mut().cast(), c_int::try_from(pieces.len()).unwrap_or(c_int::MAX))
}

/// Work as C takes it. The list of pieces has to live until it is posted.
#[inline]
pub(super) fn send(id: u64, work: Work, pieces: &[Piece], flags: Flags) -> sys::ibv_send_wr {
    let (sg_list, num_sge) = list(pieces);
    let mut request = sys::ibv_send_wr {
        wr_id: id,
        next: ptr::null_mut(),
        sg_list,
        num_sge,
        send_flags: flags.0,
        ..Default::default()
    };
    match work {
        Work::Send => request.opcode = opcode::IBV_WR_SEND,
        Work::SendWithImmediate(number) => {
            request.opcode = opcode::IBV_WR_SEND_WITH_IMM;
            request.__bindgen_anon_1.imm_data = number.to_be();
        }
        Work::Write(to) => {
            request.opcode = opcode::IBV_WR_RDMA_WRITE;
            request.wr.rdma.remote_addr = to.address;
            request.wr.rdma.rkey = to.key;
        }
        Work::Read(from) => {
            request.opcode = opcode::IBV_WR_RDMA_READ;
            request.wr.rdma.remote_addr = from.address;
            request.wr.rdma.rkey = from.key;
        }
        Work::FetchAdd { at, add } => {
            request.opcode = opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            request.wr.atomic.remote_addr = at.address;
            request.wr.atomic.rkey = at.key;
            request.wr.atomic.compare_add = add;
        }
        Work::CompareSwap { at, compare, swap } => {
            request.opcode = opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
            request.wr.atomic.remote_addr = at.address;
            request.wr.atomic.rkey = at.key;
            request.wr.atomic.compare_add = compare;
            request.wr.atomic.swap = swap;
        }
    }
    request
}

/// A receive as C takes it. The list of pieces has to live until it is posted.
#[inline]
pub(super) fn receive(id: u64, pieces: &[Piece]) -> sys::ibv_recv_wr {
    let (sg_list, num_sge) = list(pieces);
    sys::ibv_recv_wr { wr_id: id, next: ptr::null_mut(), sg_list, num_sge }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_told_by_any_sign() {
        assert_eq!(posted(0), Ok(()));
        assert_eq!(posted(libc::ENOMEM), Err(PostError::Full));
        assert_eq!(posted(-libc::ENOMEM), Err(PostError::Full));
        assert_eq!(posted(-libc::EAGAIN), Err(PostError::Full));
    }

    #[test]
    fn a_receive_that_the_device_refuses_is_no_full_queue() {
        // As siw says of a receive without pieces.
        assert_eq!(posted(-22), Err(PostError::Refused(libc::EINVAL)));
        assert_eq!(posted(22), Err(PostError::Refused(libc::EINVAL)));
    }

    #[test]
    fn work_is_written_as_c_reads_it() {
        let bytes = [1_u8, 2, 3];
        // SAFETY: the bytes outlive the piece, and are not written.
        let memory = unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        let pieces = [Piece::new(memory, 9)];
        let to = Remote { address: 0x1234, key: 77 };
        let request = send(5, Work::Write(to), &pieces, Flags::SIGNALLED | Flags::INLINE);
        assert_eq!((request.wr_id, request.num_sge, request.send_flags), (5, 1, 2 | 8));
        assert_eq!(request.opcode, 0);
        // SAFETY: the part of the union that was written.
        let rdma = unsafe { request.wr.rdma };
        assert_eq!((rdma.remote_addr, rdma.rkey), (0x1234, 77));
        // SAFETY: the list is alive.
        let piece = unsafe { request.sg_list.read() };
        assert_eq!((piece.addr, piece.length, piece.lkey), (bytes.as_ptr().addr() as u64, 3, 9));

        let swap = send(6, Work::CompareSwap { at: to, compare: 1, swap: 2 }, &[], Flags::NONE);
        // SAFETY: the part of the union that was written.
        let atomic = unsafe { swap.wr.atomic };
        assert_eq!((atomic.compare_add, atomic.swap, atomic.rkey, swap.opcode), (1, 2, 77, 5));
        let immediate = send(7, Work::SendWithImmediate(0x0102_0304), &[], Flags::NONE);
        // SAFETY: the part of the union that was written.
        let number = unsafe { immediate.__bindgen_anon_1.imm_data };
        assert_eq!(number.to_ne_bytes(), [1, 2, 3, 4]);
    }
}
