//! Runs of segments: what is cut from one operation leaves together and arrives together.
//!
//! Each segment keeps its own number, tag and place in the window, so that loss and acknowledgement know
//! nothing of runs. But what all of a run have in common is asked once: whether they may leave, what rides
//! on them, whose they are, where their bytes belong, and what their arrival owes the sender.

use super::assembler::Chunk;
use super::core::Engine;
use super::endpoint::Phase;
use super::interface::{Memory, Transmit};
use super::operation::{Job, room};
use super::packet::AckInfo;
use super::send_window::Segment;
use super::slab::Key;
use super::time::Instant;
use crate::wire::run::{Headers, Joined, LONGEST, Lead, is_piece};
use crate::wire::usnic::{Body, Flags, Kind, header_len};

impl<M: Memory> Engine<M> {
    /// The next datagram to send, as [`Self::poll_transmit`] gives it, or a run of at most `room` bytes:
    /// [`Transmit::following`] says how many follow it, [`Self::headers`] what they begin with, and the pieces hold
    /// what they carry, one behind the other.
    #[inline]
    pub fn poll_transmit_run(&mut self, room: usize, now: Instant) -> Option<Transmit<M>> {
        self.pass.run_room = room;
        let transmit = self.poll_transmit(now);
        self.pass.run_room = 0;
        transmit
    }

    /// The headers of the run that has left last, the first one's too.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.pass.headers
    }

    /// Lets follow what may leave with a segment that is leaving for the first time.
    #[inline(never)]
    pub(super) fn extend(&mut self, index: u32, first: u64, transmit: &mut Transmit<M>) {
        let now = self.clock.now();
        let Some((_, endpoint)) = self.endpoints.entry_mut(index) else { return };
        let Some(&segment) = endpoint.send.window.get(first) else { return };
        let (kind, place, len) = (segment.kind, segment.operation, u64::from(segment.len));
        let Some(operation) = self.operations.at_mut(place) else { return };
        let has_more = is_piece(kind) && !operation.whole && !matches!(operation.job, Job::Nothing);
        let queue = &endpoint.send.queues;
        let in_turn = queue[0].is_empty() && queue[1].front() == Some(&place);
        let is_probing = endpoint.send.path.probe_due(now).is_some();
        if !has_more || !in_turn || is_probing || room(kind, endpoint.send.path.width()) != len || len == 0 {
            return;
        }
        let datagram = header_len(kind) + len as usize + self.limits.trailer;
        let most = [
            self.pass.turn.room(datagram),
            (self.pass.run_room / datagram).saturating_sub(1),
            self.limits.send_credits.saturating_sub(endpoint.send.sent_in_pass),
            (self.limits.window as usize).saturating_sub(endpoint.send.window.len()),
            LONGEST - 1,
        ];
        let most = most.into_iter().fold(usize::MAX, usize::min) as u64;
        let rest = operation.total - operation.cut;
        let count = rest.div_ceil(len).min(most).min(endpoint.send.allows(segment.charge, now));
        if count == 0 {
            return;
        }
        let bytes = rest.min(count * len);
        let last = bytes - (count - 1) * len;
        let mut charge = 0;
        for at in 1..=count {
            let len = if at == count { last } else { len };
            let seq = endpoint.send.window.next();
            let next = Segment {
                len: len as u32,
                charge: endpoint.send.charge(header_len(kind) + len as usize),
                offset: segment.offset + at * u64::from(segment.len),
                transmission: endpoint.send.detection.note_sent(segment.channel, seq),
                ..segment
            };
            charge += u64::from(next.charge);
            endpoint.send.window.push(next);
        }
        endpoint.send.note_sent_behind(count, charge, now);
        endpoint.send.sent_in_pass += count as usize;
        operation.cut += bytes;
        operation.open += count as u32;
        operation.whole = operation.cut >= operation.total;
        self.pass.turn.note_sent(count as usize, count as usize * datagram);
        if operation.whole {
            operation.queued = false;
            endpoint.send.queues[1].pop_front();
            if !endpoint.send.has_queued() {
                endpoint.ready = false;
                self.pass.turn.begin();
                self.lists.ready.pop_front();
            }
        }
        self.expected += count;
        self.counters.max_sent_window_size.raise(endpoint.send.window.len() as u64);
        self.counters.num_total_sends.add(count);
        if kind == Kind::Chunk {
            self.counters.num_chunk_sends.add(count);
        }
        let asks = operation.is_awaited() && operation.whole || endpoint.send.is_full();
        let flags = Flags::default().with(Flags::ASKS, asks);
        let (more, last) = (count as usize, last as usize);
        if self.limits.protect {
            self.pass.headers.write_untagged(&transmit.header, more, last, flags);
        } else {
            self.pass.headers.write(&transmit.header, more, last, flags, &endpoint.ids.sent_tags);
        }
        transmit.pieces = operation.pieces(segment.offset, len + bytes);
        transmit.following = count as usize;
    }

    /// Takes in the packets of a run at the front of datagrams that came together: `bytes` has datagrams of
    /// `size`, of which the last may be shorter. How many of them are done with; if none, the first one must be
    /// handed to [`Self::handle_datagram`].
    ///
    /// Only the common run is: in sequence, for a connection that both sides know, of data that has a place.
    pub fn handle_run(&mut self, bytes: &[u8], size: usize, arrived: Option<Instant>, now: Instant) -> usize {
        self.begin_arrival(arrived, now);
        self.take_run(bytes, size).unwrap_or(0)
    }

    fn take_run(&mut self, bytes: &[u8], size: usize) -> Option<usize> {
        // Asked before the others are looked at: while a hole is open, each datagram comes here as the first.
        let lead = Lead::parse(bytes, size)?;
        let (Key { index, .. }, endpoint) = self.expected_from(lead.repr())?;
        let run = lead.run()?.genuine(&endpoint.ids.received_tags)?;
        endpoint.introduce();
        self.take_together(index, &run)?;
        self.counters.num_total_recvs.add(run.count() as u64);
        Some(run.count())
    }

    /// Takes in a run of genuine packets, of an endpoint that expects them. Where that is not possible, each stands
    /// for itself.
    #[inline(always)]
    pub(super) fn take_together(&mut self, index: u32, run: &Joined<'_>) -> Option<()> {
        let (now, arrival) = (self.clock.now(), self.reception.arrival);
        let (repr, payload, count) = (run.first, run.payload(), run.count() as u64);
        let mut info = AckInfo::of(&repr, arrival);
        info.flags = info.flags.with(Flags::ASKS, run.asks);
        if repr.flags.has(Flags::ACKNOWLEDGES) {
            self.handle_ack(index, &info, None, now);
        }
        let endpoint = self.endpoints.at_mut(index)?;
        let is_plain = endpoint.receive.window.is_plain(repr.seq);
        if !is_plain || endpoint.phase != Phase::Open {
            return None;
        }
        let taken = match repr.body {
            Body::Chunk { fragment, size, offset } => {
                let chunk = Chunk { tag: repr.tag, fragment, size, offset, payload, early: false };
                self.place_chunk(index, &chunk).is_ok()
            }
            Body::Put { registration, generation, offset, .. } => {
                self.write_put((registration, generation), offset, payload)
            }
            Body::GetData { operation, offset } => {
                self.handle_get_data(index, operation, offset, payload);
                true
            }
            _ => false,
        };
        if !taken {
            return None;
        }
        let endpoint = self.endpoints.at_mut(index)?;
        endpoint.receive.window.accept_run(count);
        endpoint.receive.ack.note_others(count - 1);
        self.note_data(index, &info, now, true);
        Some(())
    }
}
