//! One queue pair of a peer: what may be sent by it, what is under way, and the buffers that are posted for what comes. With
//! them is the short path of both: a message that is copied when it is posted, and one that comes by a private queue.

use std::sync::Arc;

use super::buffers::{room, stride};
use super::connection::Entry;
use super::credit::{Allowance, Window};
use super::line::{ATTEMPT, Line, Number, Port, Work as Which};
use super::queues::{Kind, Queue};
use super::slots::Slots;
use crate::btl::Lent;
use crate::engine::cm::Attempt;
use crate::error::Result;
use crate::verbs::{self, Access, Flags, InlineSend, Piece, PostError, Work};
use crate::wire::verbs::{HEADER, Header};

/// What was posted last, as far as it says whether all has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trail {
    /// Something was sent, or written, and no read was posted behind it.
    has_sent: bool,
}

impl Trail {
    /// Something was posted.
    #[inline(always)]
    pub(super) const fn post(&mut self, is_read: bool) {
        self.has_sent = !is_read;
    }

    /// Whether all of a queue is over, of which so much is under way, and has arrived as far as is to be known.
    /// `is_told_by_reads`: nothing but the answer to a read says that what was sent before it has arrived.
    pub(super) const fn is_over(self, under_way: u32, is_told_by_reads: bool) -> bool {
        under_way == 0 && !(is_told_by_reads && self.has_sent)
    }
}

/// One queue pair.
pub(super) struct Side {
    pub(super) line: Arc<Line>,
    /// What the numbers of its sends have in common.
    base: u64,
    /// Bytes that are copied when they are posted.
    pub(super) inline: usize,
    pub(super) slots: Slots<Entry>,
    pub(super) trail: Trail,
    pub(super) credit: Allowance,
    /// Most messages that the peer may allow.
    most: u32,
    /// The peer has been told that credit is wanted, since there was last some.
    pub(super) has_asked: bool,
    /// Of a private queue, what is posted for the peer.
    pub(super) receives: Option<Receives>,
}

/// What is posted on a private queue.
pub(super) struct Receives {
    pub(super) window: Window,
    pub(super) buffers: verbs::Receives,
}

/// A short message that has come, in the buffer that it lies in.
pub(super) struct Came {
    pub(super) tag: u8,
    pub(super) bytes: Lent,
    /// The peer may have to be told that there are buffers.
    pub(super) is_owed: bool,
}

impl Side {
    /// One of which nothing is posted yet.
    ///
    /// # Errors
    /// When there is no memory.
    pub(super) fn new(
        port: &Port,
        line: Arc<Line>,
        (place, attempt): (u32, Attempt),
        (index, queue): (usize, &Queue),
    ) -> Result<Self> {
        let attempt = (attempt.0 & ATTEMPT) as u16;
        let number = |work| Number { peer: place, attempt, work, queue: index as u8, at: 0 }.raw();
        let receives = match queue.kind {
            Kind::Private { window, .. } => {
                let (stride, len) = (stride(queue.size), room(queue.size));
                let count = queue.depth + port.kept_back(index);
                let slab = port.slab(stride * count as usize, Access::LOCAL_WRITE)?;
                line.keep(&slab);
                let id = number(Which::Receive);
                Some(Receives {
                    window: Window::new(queue.depth, queue.low, window),
                    buffers: verbs::Receives::new(slab, count, stride, len, id),
                })
            }
            Kind::Shared { .. } => None,
        };
        Ok(Self {
            base: number(Which::Send),
            inline: line.inline,
            slots: Slots::new(port.sends(index))?,
            trail: Trail::default(),
            credit: Allowance::new(if queue.is_private() { queue.depth } else { 0 }),
            most: queue.depth,
            has_asked: false,
            receives,
            line,
        })
    }

    /// Whether short messages may go by it.
    pub(super) const fn is_short(&self) -> bool {
        self.inline >= HEADER && self.receives.is_some()
    }

    /// Posts work, for which there is a place.
    #[inline]
    pub(super) fn post(
        &self,
        number: u32,
        work: Work,
        pieces: &[Piece],
        flags: Flags,
    ) -> std::result::Result<(), PostError> {
        self.line.pair.post_send(self.base | u64::from(number), work, pieces, flags)
    }

    /// Sends a short message if that can be done at once. It takes along how much more the peer may send here.
    #[inline(always)]
    pub(super) fn send_short(&mut self, by: &mut InlineSend<HEADER>, tag: u8, pieces: [Lent; 2]) -> bool {
        let Some(receives) = &mut self.receives else { return false };
        // The last credit goes with the word that more is wanted.
        if self.credit.left() <= 1 || !self.slots.has_room() {
            return false;
        }
        let length = pieces[0].len().wrapping_add(pieces[1].len());
        let limit = receives.window.limit() as u16;
        let header = Header { tag: Some(tag), queue: 0, limit, wants: false, length: length as u32 };
        self.credit.spend();
        let (number, must) = self.slots.take();
        let id = self.base | u64::from(number);
        // What does not fit goes another way, and what is refused is found out about once more.
        if !by.fill((id, must), header.to_bytes(), pieces) || self.line.pair.post_inline(by).is_err() {
            self.slots.put_back(must);
            self.credit.put_back();
            return false;
        }
        receives.window.tell();
        self.trail.post(false);
        true
    }

    /// Bytes of the longest message that goes by the short path.
    pub(super) fn longest_short(&self, queue: &Queue) -> usize {
        self.inline.saturating_sub(HEADER).min(queue.size as usize)
    }

    /// What is posted on it, and by what the peer lets more be sent.
    #[inline(always)]
    pub(super) fn receiving(&mut self) -> Option<(&mut Receives, &mut Allowance, u32)> {
        Some((self.receives.as_mut()?, &mut self.credit, self.most))
    }
}

impl Receives {
    /// Takes a short message that has come by the first queue, if nothing about it is of consequence to any other.
    #[inline(always)]
    pub(super) fn take_short(
        &mut self,
        at: u32,
        len: usize,
        credit: &mut Allowance,
        most: u32,
    ) -> Option<Came> {
        let whole = self.buffers.bytes(at, len).filter(|whole| whole.len() >= HEADER)?;
        let mut head = [0; HEADER];
        whole.read(0, &mut head);
        let (tag, limit) = Header::plain(&head, len)?;
        if !self.window.may_arrive() {
            return None;
        }
        credit.raise_short(limit, most).ok()?;
        self.window.arrive().ok()?;
        let is_owed = self.window.urgent_news().is_some();
        Some(Came { tag, bytes: whole.slice(HEADER, whole.len() - HEADER), is_owed })
    }

    /// A buffer is not needed any more. How many are to be posted now.
    #[inline(always)]
    pub(super) fn release(&mut self, at: u32) -> u32 {
        self.buffers.give(at);
        self.window.release()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_only_answers_tell_what_was_sent_has_not_arrived_before_a_read_behind_it_is_answered() {
        let after = |posted: &[bool], under_way| {
            let mut trail = Trail::default();
            posted.iter().for_each(|is_read| trail.post(*is_read));
            [false, true].map(|is_told_by_reads| trail.is_over(under_way, is_told_by_reads))
        };
        assert_eq!(after(&[], 0), [true, true], "nothing was posted");
        assert_eq!(after(&[false], 1), [false, false]);
        assert_eq!(after(&[false], 0), [true, false], "it has gone, and may not have arrived");
        assert_eq!(after(&[false, true], 1), [false, false], "that is asked, and not answered");
        assert_eq!(after(&[false, true], 0), [true, true]);
        assert_eq!(after(&[false, true, false], 0), [true, false], "more was sent behind the read");
        assert_eq!(after(&[true, true], 0), [true, true]);
    }
}
