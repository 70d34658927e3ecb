//! Landings: where in the user's memory the data belongs that comes next.
//!
//! What arrives is copied out of the buffer in which the kernel has left it. While a GET is under way, what comes next is
//! mostly known before: more of the same, in datagrams of the same length. A link that can lead parts of a message to
//! different places lets such data land where it belongs, and only the headers in its buffer; they tell afterwards
//! whether the guess was right. A wrong one costs a copy back into the buffer, and harms nothing: the memory is that of a
//! GET that waits for just these bytes. They write over whatever came there meanwhile, or the GET fails, and what is in its
//! memory means nothing. Protected data lands as it came, and is decrypted there.

use super::interface::Memory;
use super::operation::{Job, Operation};
use super::slab::{Key, Slab};
use crate::wire::usnic::{Kind, header_len, short_header_len};
use std::collections::VecDeque;

/// Datagrams with less data are copied: a list of their pieces costs the kernel what the copy costs.
const LEAST: u32 = 2048;

/// GETs whose order is remembered.
const REMEMBERED: usize = 64;

/// After wrong guesses so many looks at most are without one.
const LONGEST_PAUSE: u8 = 64;

/// Where the next datagrams belong, if they are what they are taken for.
#[derive(Clone, Debug)]
pub struct Landing<M> {
    /// The memory of the GET.
    pub memory: M,
    /// Where in it the data goes on.
    pub offset: usize,
    /// Bytes of the header of each datagram.
    pub header: usize,
    /// Bytes of data behind it.
    pub payload: usize,
    /// Bytes behind the data.
    pub trailer: usize,
    pub(super) operation: u64,
}

impl<M: Memory> Landing<M> {
    /// Where in the memory the data of one of the datagrams is, counted from 0, and how much of it.
    fn place(&self, at: usize) -> (usize, usize) {
        let offset = self.offset.saturating_add(at.saturating_mul(self.payload));
        (offset, self.payload.min(self.memory.len().saturating_sub(offset)))
    }

    /// Whether the data of one of the datagrams, which has `len` bytes, is there to the last byte, and nothing else.
    pub(super) fn fits(&self, at: usize, len: usize) -> bool {
        let (_, here) = self.place(at);
        here > 0 && len == self.header + here + self.trailer
    }

    /// Has the data of one of the datagrams changed.
    pub(super) fn change<R>(&self, at: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let (offset, len) = self.place(at);
        self.memory.change(offset, len, change)
    }
}

/// What the next guess is made of.
#[derive(Debug, Default)]
pub(super) struct Landings {
    /// GETs in the order in which they were asked for, which is that of the data of each peer.
    asked: VecDeque<Key>,
    /// The one whose data has come last, if there is more to come.
    current: Option<Key>,
    /// Bytes that each of its datagrams carried; 0: not known.
    payload: u32,
    /// Looks that are still without a guess, and how many the next wrong one costs.
    pause: u8,
    price: u8,
    /// There are none any more.
    is_over: bool,
    /// The data that is handled is where it belongs.
    pub(super) in_place: bool,
}

impl Landings {
    /// A GET was asked for.
    pub(super) fn note_asked<M>(&mut self, key: Key, operations: &Slab<Operation<M>>) {
        if self.asked.len() == REMEMBERED {
            while self.asked.front().is_some_and(|first| operations.get(*first).is_none()) {
                self.asked.pop_front();
            }
        }
        if self.asked.len() < REMEMBERED {
            self.asked.push_back(key);
        }
    }

    /// Data of a GET has come, `each` bytes in a datagram, and there is more to come.
    #[inline]
    pub(super) fn note_data(&mut self, key: Key, each: usize) {
        self.current = Some(key);
        self.payload = if self.is_over { 0 } else { each as u32 };
    }

    /// The data of a GET has all come.
    #[inline]
    pub(super) fn note_end(&mut self, key: Key) {
        if self.current == Some(key) {
            self.current = None;
        }
    }

    /// Memory of a GET cannot be written to: there are no guesses any more, and the copies meet that.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.payload = 0;
    }

    /// Whether the data that is handled need not be copied; it may be asked once.
    #[inline]
    pub(super) fn take_in_place(&mut self) -> bool {
        std::mem::take(&mut self.in_place)
    }

    /// What became of a guess.
    pub(super) fn note_guess(&mut self, right: bool) {
        if right {
            self.price /= 2;
        } else {
            self.price = (2 * self.price).clamp(1, LONGEST_PAUSE);
            self.pause = self.price;
        }
    }

    /// The GET that the next data is probably of, and how much of it there is.
    fn next<'a, M>(&mut self, operations: &'a Slab<Operation<M>>) -> Option<(Key, &'a M, u64)> {
        let find = |key| match &operations.get(key)?.job {
            Job::Get { local, arrived, .. } => Some((key, local, arrived)),
            _ => None,
        };
        let found = self.current.and_then(find).or_else(|| {
            while let Some(&first) = self.asked.front() {
                match find(first) {
                    Some(found) => return Some(found),
                    None => self.asked.pop_front(),
                };
            }
            None
        });
        // What has come early may not be written over.
        found.and_then(|(key, local, arrived)| Some((key, local, arrived.only_first()?)))
    }

    /// Where the next datagrams belong, if that can be guessed and is worth it.
    /// Behind each there are so many bytes: of protected ones.
    #[inline]
    pub(super) fn guess<M: Memory>(
        &mut self,
        operations: &Slab<Operation<M>>,
        trailer: usize,
    ) -> Option<Landing<M>> {
        if self.payload < LEAST { None } else { self.look(operations, trailer) }
    }

    fn look<M: Memory>(&mut self, operations: &Slab<Operation<M>>, trailer: usize) -> Option<Landing<M>> {
        let (key, memory, first) = self.next(operations)?;
        if let Some(less) = self.pause.checked_sub(1) {
            self.pause = less;
            return None;
        }
        // The sender of a protected packet always says who it is.
        let header = if trailer == 0 { short_header_len(Kind::GetData) } else { header_len(Kind::GetData) };
        let offset = usize::try_from(first).ok().filter(|offset| *offset < memory.len())?;
        let (memory, payload) = (memory.clone(), self.payload as usize);
        Some(Landing { memory, offset, header, payload, trailer, operation: key.raw() })
    }
}
