//! The fast path of the notes: a tiny fragment leaves in the call that asks for it.
//!
//! It skips the queues, so it must not overtake anything: whatever waits, it waits behind it. The
//! book-keeping of a datagram that has just been handed up waits in turn: the answer to a message,
//! sent from within its delivery, acknowledges it in passing.

use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{EndpointId, Fragment, Memory, Piece, Transmit};
use super::operation::{Job, Operation};
use super::packet::Launch;
use super::time::Instant;
use crate::error::Result;
use crate::wire::usnic::HEADER_LEN;

impl<M: Memory> Engine<M> {
    /// Sends a fragment as [`Self::send`] does, and gives its datagram if that leaves at once; else
    /// [`Self::poll_transmit`] will.
    pub fn send_at_once(
        &mut self,
        to: EndpointId,
        fragment: Fragment<M>,
        now: Instant,
    ) -> Result<Option<Transmit<M>>> {
        self.tick(now);
        let Some((charge, credit)) = self.may_leave(to, &fragment) else {
            return self.send(to, fragment, now).map(|()| None);
        };
        self.counters.pml_module_sends.add(1);
        self.counters.num_fast_sends.add(1);
        let Fragment { tag, pieces, cookie, awaited, .. } = fragment;
        let len = |piece: &Option<M>| piece.as_ref().map_or(0, Memory::len);
        let (split, total) = (len(&pieces[0]) as u64, (len(&pieces[0]) + len(&pieces[1])) as u64);
        let whole = |memory: &Option<M>| {
            let memory = memory.as_ref().filter(|memory| memory.len() > 0)?.clone();
            let len = memory.len();
            Some(Piece { memory, offset: 0, len })
        };
        let datagram = [whole(&pieces[0]), whole(&pieces[1])];
        let job = Job::Send { tag, pieces, split, fragment: 0, awaited };
        let mut operation = Operation::new(to.0.index, Some(cookie), job, total);
        (operation.cut, operation.whole, operation.queued, operation.open) = (total, true, false, 1);
        let key = self.operations.insert_with(|key| Operation { raw: key.raw(), ..operation });
        self.answer_deferred(to.0.index);
        let launch = Launch { place: key.index, tag, len: total as u32, charge, credit, pieces: datagram };
        Ok(self.launch(to.0, launch))
    }

    /// Charge and credit of a fragment's datagram, if it may leave now and overtakes nothing.
    #[inline(always)]
    fn may_leave(&mut self, to: EndpointId, fragment: &Fragment<M>) -> Option<(u32, u64)> {
        if !(self.ready.is_empty() && self.resending.is_empty() && self.notices.is_empty()) {
            return None;
        }
        let (now, known) = (self.now, self.endpoints.len());
        let endpoint = self.endpoints.get_mut(to.0)?;
        let bytes: usize = fragment.pieces.iter().flatten().map(Memory::len).sum();
        let datagram = bytes.checked_add(HEADER_LEN)?;
        let charge = endpoint.send.charge(datagram);
        let may_go = endpoint.phase == Phase::Open
            && datagram <= self.limits.max_at_once.min(endpoint.peer.max_datagram)
            && !endpoint.send.has_queued()
            && (endpoint.send.window.len() as u64) < self.limits.window
            && endpoint.send.may_send(charge, now).is_ok();
        let credit = endpoint.settled_grant(&self.budget, known);
        Some((charge, credit.filter(|_| may_go)?))
    }

    /// What leaves now answers the datagram whose book-keeping was put off, if it is of that peer.
    #[inline(always)]
    fn answer_deferred(&mut self, index: u32) {
        let Some(deferred) = self.deferred.as_mut().filter(|deferred| deferred.is_of(index)) else { return };
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.receive.ack.answer(deferred);
    }

    /// Whether the book-keeping of a datagram that was handed up has been put off. Whatever else is
    /// asked of the engine does it first.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        self.deferred.is_some()
    }
}
