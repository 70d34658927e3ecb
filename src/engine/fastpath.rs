//! The fast path of the notes: a tiny fragment leaves in the call that asks for it.
//!
//! It skips the queues, so it must not overtake anything: whatever waits, it waits behind it. The
//! book-keeping of a datagram that has just been handed up waits in turn: the answer to a message,
//! sent from within its delivery, acknowledges it in passing.

use super::copies::{COPIED, Copied};
use super::core::Engine;
use super::endpoint::{Endpoint, Phase};
use super::flow::ReceiveBudget;
use super::interface::{Channel, EndpointId, Fragment, Memory, Piece, Transmit};
use super::limits::Limits;
use super::operation::{Job, Operation};
use super::packet::WholeFragment;
use super::send_window::{Segment, State};
use super::time::Instant;
use crate::error::Result;
use crate::wire::usnic::{Body, Flags, HEADER_LEN, Header, Kind, Repr};

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
        self.finish_after_silence(to.0.index);
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
        let whole =
            WholeFragment { place: key.index, tag, len: total as u32, charge, credit, pieces: datagram };
        Ok(self.transmit_whole(to.0, whole))
    }

    /// Sends a fragment that nobody awaits, if it is short, overtakes nothing, and may leave now. Its user has it back
    /// then: the engine has a copy, and no event follows. `datagram` is all of its datagram, for
    /// [`Channel::Priority`]. Nothing has changed when not; then there is [`Self::send_at_once`].
    #[inline]
    pub fn send_copy(
        &mut self,
        to: EndpointId,
        fragment: &Fragment<M>,
        now: Instant,
        datagram: &mut Header,
    ) -> bool {
        self.tick(now);
        let len = |piece: &Option<M>| piece.as_ref().map_or(0, Memory::len);
        let (split, rest) = (len(&fragment.pieces[0]), len(&fragment.pieces[1]));
        if fragment.awaited || split > COPIED || rest > COPIED - split || self.has_waiting() {
            return false;
        }
        let (total, known) = (split + rest, self.endpoints.len());
        let Some(endpoint) = self.endpoints.get_mut(to.0) else { return false };
        let mut deferred = self.reception.deferred.as_mut().filter(|deferred| deferred.is_of(to.0.index));
        if deferred.is_some() && !endpoint.receive.share.is_active() {
            // As `finish_after_silence` says: once, since nothing is put off then.
            self.finish();
            return self.send_copy(to, fragment, now, datagram);
        }
        let now = self.clock.now();
        if !endpoint.ids.is_introduced || endpoint.send.is_paced() {
            return false;
        }
        let leave = endpoint.may_leave(total, &self.limits, &self.budget, known, now);
        let Some((charge, credit)) = leave else { return false };
        let mut copied = Copied { tag: fragment.tag, bytes: [0; COPIED] };
        let (first, second) = copied.bytes[..total].split_at_mut(split);
        for (memory, to) in fragment.pieces.iter().zip([first, second]) {
            if let Some(memory) = memory.as_ref().filter(|_| !to.is_empty()) {
                memory.read(0, to);
            }
        }
        if let Some(deferred) = &mut deferred {
            endpoint.receive.ack.answer(deferred);
        }
        let place = endpoint.send.copies.keep(copied);
        if endpoint.send.window.is_empty() {
            endpoint.life.last_heard = self.clock.running();
        }
        let seq = endpoint.send.window.next();
        let transmission = endpoint.send.detection.note_sent(Channel::Priority, seq);
        endpoint.send.window.push(Segment {
            operation: Segment::copied(place),
            kind: Kind::Fragment,
            channel: Channel::Priority,
            state: State::InFlight,
            resends: 0,
            fast: false,
            recut: false,
            len: total as u32,
            charge,
            offset: 0,
            transmission,
            sent: now,
        });
        let counters = &*self.counters;
        counters.max_sent_window_size.raise(endpoint.send.window.len() as u64);
        for count in [
            &counters.pml_module_sends,
            &counters.pml_send_callbacks,
            &counters.num_fast_sends,
            &counters.num_frag_sends,
            &counters.num_total_sends,
        ] {
            count.add(1);
        }
        endpoint.send.note_sent_unpaced(charge, now);
        endpoint.used = true;
        let piggyback = endpoint.piggyback(credit, now, &mut self.acks);
        if let Some(at) = endpoint.arm_departed(now, &self.limits) {
            self.timers.set(at, to.0);
        }
        let repr = Repr {
            flags: piggyback.flags.with(Flags::ASKS, endpoint.send.is_full_for_short()),
            tag: fragment.tag,
            length: total as u16,
            connection: endpoint.ids.connection,
            receiver_slot: endpoint.ids.peer_slot,
            sender: None,
            stamp: now.stamp(),
            echo: piggyback.echo,
            credit: piggyback.credit,
            seq,
            ack: piggyback.ack,
            body: Body::Fragment,
        };
        datagram.put_fragment(&repr, &endpoint.ids.sent_tags, &copied.bytes);
        self.review_next();
        true
    }

    /// The answer to the first message after a silence says how much room there is now, not how much there was for
    /// who is silent: what it asks for will follow. So the book-keeping of the message is not put off any longer.
    #[inline(always)]
    fn finish_after_silence(&mut self, index: u32) {
        if self.reception.deferred.as_ref().is_some_and(|deferred| deferred.is_of(index))
            && self.endpoints.at(index).is_some_and(|endpoint| !endpoint.receive.share.is_active())
        {
            self.finish();
        }
    }

    /// Charge and credit of a fragment's datagram, if it may leave now and overtakes nothing.
    #[inline(always)]
    fn may_leave(&mut self, to: EndpointId, fragment: &Fragment<M>) -> Option<(u32, u64)> {
        let bytes: usize = fragment.pieces.iter().flatten().map(Memory::len).sum();
        let (known, overtakes) = (self.endpoints.len(), self.has_waiting());
        let endpoint = self.endpoints.get_mut(to.0).filter(|_| !overtakes)?;
        endpoint.may_leave(bytes, &self.limits, &self.budget, known, self.clock.now())
    }

    /// Whether anything waits to be sent that is not an acknowledgement.
    #[inline(always)]
    fn has_waiting(&self) -> bool {
        self.lists.has_packets()
    }

    /// What leaves now answers the datagram whose book-keeping was put off, if it is of that peer.
    #[inline(always)]
    fn answer_deferred(&mut self, index: u32) {
        let Some(deferred) = self.reception.deferred.as_mut().filter(|deferred| deferred.is_of(index)) else {
            return;
        };
        let Some(endpoint) = self.endpoints.at_mut(index) else { return };
        endpoint.receive.ack.answer(deferred);
    }

    /// Whether the book-keeping of a datagram that was handed up has been put off. Whatever else is
    /// asked of the engine does it first.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        self.reception.deferred.is_some()
    }
}

impl Endpoint {
    /// Charge and credit of a fragment's datagram, if it is tiny and may leave before anything else.
    #[inline(always)]
    fn may_leave(
        &self,
        bytes: usize,
        limits: &Limits,
        budget: &ReceiveBudget,
        known: usize,
        now: Instant,
    ) -> Option<(u32, u64)> {
        let datagram = bytes.checked_add(HEADER_LEN)?;
        let charge = self.send.charge_short(datagram, now);
        let may_go = self.phase == Phase::Open
            && !(self.remote_closed && limits.meets_again)
            && datagram <= limits.max_at_once.min(self.peer.max_datagram)
            && !self.send.has_queued()
            && (self.send.window.len() as u64) < limits.window
            && self.send.may_send_short(charge, now).is_ok();
        let credit = self.settled_grant(budget, known).filter(|_| may_go)?;
        Some((charge, credit))
    }
}
