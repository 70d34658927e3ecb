//! [`Buffer`]: the memory of a message.

use super::super::errno::{Errno, Outcome};
use super::super::sys::iovec;
use crate::link::Lent;
use crate::shm;
use crate::wire::gni::mailbox::{Lies, PIECES};

/// Memory of the program's, or a copy of what was in it.
pub struct Buffer(Memory);

enum Memory {
    One(Lent),
    Many(Box<[Lent]>),
    /// What is lent is in the box.
    Kept(Box<Kept>),
}

struct Kept(Lent, #[expect(dead_code, reason = "keeps what is lent")] Box<[u8]>);

impl Clone for Buffer {
    fn clone(&self) -> Self {
        match &self.0 {
            Memory::One(lent) => Self(Memory::One(*lent)),
            Memory::Many(pieces) => Self(Memory::Many(pieces.clone())),
            // What is kept is kept once more.
            Memory::Kept(_) => self.keep(),
        }
    }
}

impl Buffer {
    /// One piece.
    ///
    /// # Safety
    /// So many bytes are readable, and writable if they are to be received into, until the operation has ended.
    #[inline(always)]
    pub unsafe fn new(start: *const u8, length: usize) -> Self {
        // SAFETY: the contract of this function.
        Self(Memory::One(unsafe { Lent::new(start.cast_mut(), length) }))
    }

    /// Nothing.
    pub const NONE: Self = Self(Memory::One(Lent::EMPTY));

    /// What is lent already.
    #[inline(always)]
    pub fn of(lent: Lent) -> Self {
        Self(Memory::One(lent))
    }

    /// Several pieces.
    ///
    /// # Errors
    /// `FI_EINVAL`: too many.
    ///
    /// # Safety
    /// As [`new`](Self::new), of each.
    pub unsafe fn of_pieces(pieces: &[iovec]) -> Outcome<Self> {
        if pieces.len() > PIECES {
            return Err(Errno::INVAL);
        }
        // SAFETY: the contract of this function.
        let lend = |piece: &iovec| unsafe { Lent::new(piece.iov_base.cast(), piece.iov_len) };
        match pieces {
            [] => Ok(Self(Memory::One(Lent::EMPTY))),
            [piece] => Ok(Self(Memory::One(lend(piece)))),
            pieces => {
                let total = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len));
                total.ok_or(Errno::INVAL)?;
                Ok(Self(Memory::Many(pieces.iter().map(lend).collect())))
            }
        }
    }

    /// A copy, with which the program's memory is free again.
    pub fn keep(&self) -> Self {
        let mut bytes = Vec::with_capacity(self.length());
        self.gather(0, self.length(), &mut bytes);
        let mut bytes = bytes.into_boxed_slice();
        // SAFETY: the bytes are on the heap and stay there as long as the box, which is kept with what is lent.
        let lent = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
        Self(Memory::Kept(Box::new(Kept(lent, bytes))))
    }

    /// The pieces.
    pub fn pieces(&self) -> &[Lent] {
        match &self.0 {
            Memory::One(lent) => std::slice::from_ref(lent),
            Memory::Kept(kept) => std::slice::from_ref(&kept.0),
            Memory::Many(pieces) => pieces,
        }
    }

    /// Bytes of all.
    #[inline(always)]
    pub fn length(&self) -> usize {
        match &self.0 {
            Memory::One(lent) => lent.len(),
            Memory::Kept(kept) => kept.0.len(),
            Memory::Many(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
        }
    }

    /// All of it, where it is in one piece.
    #[inline(always)]
    pub fn whole(&self) -> Option<Lent> {
        match &self.0 {
            Memory::One(lent) => Some(*lent),
            Memory::Kept(kept) => Some(kept.0),
            Memory::Many(_) => None,
        }
    }

    /// The same of the program's memory.
    #[inline(always)]
    pub fn one(&self) -> Option<Lent> {
        match &self.0 {
            Memory::One(lent) => Some(*lent),
            Memory::Kept(_) | Memory::Many(_) => None,
        }
    }

    /// Where it lies, for a peer.
    pub fn lies(&self) -> Lies {
        let mut lies = Lies::NOWHERE;
        for piece in self.pieces() {
            lies.push(piece.as_ptr().addr() as u64, piece.len() as u64);
        }
        lies
    }

    /// The parts in which so many bytes from an offset on lie.
    pub fn parts(&self, offset: usize, length: usize) -> impl Iterator<Item = Lent> {
        let (mut skip, mut left) = (offset, length);
        self.pieces().iter().filter_map(move |piece| {
            let from = skip.min(piece.len());
            skip -= from;
            let here = (piece.len() - from).min(left);
            left -= here;
            (here != 0).then(|| piece.slice(from, here))
        })
    }

    /// Appends so many bytes from an offset on.
    pub fn gather(&self, offset: usize, length: usize, to: &mut Vec<u8>) {
        self.parts(offset, length).for_each(|part| part.append_to(to));
    }

    /// Writes what fits of these bytes, from an offset on.
    #[inline(always)]
    pub fn write(&self, offset: usize, from: Lent) {
        if offset == 0
            && let Memory::One(lent) = &self.0
        {
            return copy(from.slice(0, from.len().min(lent.len())), *lent);
        }
        let mut done = 0;
        for part in self.parts(offset, from.len()) {
            copy(from.slice(done, part.len()), part);
            done += part.len();
        }
    }

    /// The same of bytes of our own.
    pub fn write_bytes(&self, from: &[u8]) {
        let mut done = 0;
        for part in self.parts(0, from.len()) {
            part.write(0, &from[done..done + part.len()]);
            done += part.len();
        }
    }
}

/// Copies all that is lent to the beginning of other memory that is as long at least; few bytes without a call.
#[inline(always)]
pub(super) fn copy(from: Lent, to: Lent) {
    assert!(from.len() <= to.len());
    // SAFETY: so many bytes on both sides, by the promise of who has lent them, which are of a ring or of the heap on one
    // side and of the program's on the other.
    unsafe { shm::copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &mut [Vec<u8>]) -> Buffer {
        let piece = |part: &mut Vec<u8>| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        let pieces: Vec<iovec> = parts.iter_mut().map(piece).collect();
        // SAFETY: the parts outlive the buffer in each test.
        unsafe { Buffer::of_pieces(&pieces) }.expect("few")
    }

    #[test]
    fn pieces_are_read_and_written_as_one() {
        let mut parts = vec![vec![1, 2, 3], vec![], vec![4], vec![5, 6, 7, 8]];
        let buffer = pieces(&mut parts);
        assert_eq!(buffer.length(), 8);
        assert_eq!(buffer.lies().pieces().len(), 4);
        for offset in 0..=8 {
            for length in 0..=8 - offset {
                let mut read = Vec::new();
                buffer.gather(offset, length, &mut read);
                let expected: Vec<u8> = (offset + 1..=offset + length).map(|byte| byte as u8).collect();
                assert_eq!(read, expected);
            }
        }
        let kept = buffer.keep();
        let mut other = vec![vec![0; 2], vec![0; 6], vec![9; 3]];
        let to = pieces(&mut other);
        to.write(0, kept.whole().expect("one piece"));
        to.write(9, kept.whole().expect("one piece").slice(0, 1));
        assert_eq!(other, [vec![1, 2], vec![3, 4, 5, 6, 7, 8], vec![9, 1, 9]]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut parts = vec![vec![0; 2], vec![0; 1]];
        pieces(&mut parts).write_bytes(&[1, 2, 3, 4, 5]);
        assert_eq!(parts, [vec![1, 2], vec![3]]);
        let (mut long, mut short) = (vec![vec![7; 5]], vec![vec![0; 3]]);
        pieces(&mut short).write(0, pieces(&mut long).whole().expect("one piece"));
        assert_eq!(short, [vec![7; 3]]);
        let many = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES + 1];
        // SAFETY: no bytes.
        assert!(unsafe { Buffer::of_pieces(&many) }.is_err());
    }
}
