//! The wire of Open MPI's own openib, where that is spoken: how its messages are sent and read. What queue pairs, buffers and
//! credits do is the same; nothing is written to the peer's memory but what the host puts there, buffers of shared queues are
//! not lent, and each message asks for its completion.
//!
//! It answers to `btl_openib_component.c` (`btl_openib_handle_incoming`, `btl_openib_control`) and `btl_openib_endpoint.h`.

use std::sync::Arc;

use super::connection::{Broken, Connection, Desk, Stall};
use super::credit::Beyond;
use super::line::Number;
use super::outgoing::{Body, Outgoing};
use super::state::{Delivered, State, Step};
use crate::btl::{Cookie, Lent};
use crate::engine::cm::{Arrival, Attempt};
use crate::verbs::{Slab, Work};
use crate::wire::openib::{Control, HEADER, Header, JOINED, Joined, LONGEST_CONTROL};

impl Connection {
    /// Sends a message of the host's, if it can go.
    pub(super) fn push_openib(
        &mut self,
        queue: usize,
        tag: u8,
        body: Body<'_>,
        waits: Option<Cookie>,
        desk: &mut Desk,
    ) -> Result<Result<(), Stall>, Broken> {
        let side = &self.sides[queue];
        let is_private = side.receives.is_some();
        if is_private && side.credit.left() == 0 {
            return Ok(Err(Stall::Credit));
        }
        let launched = self.launch((queue, queue), Some(tag), body, waits, desk)?;
        if launched.is_ok() {
            if is_private {
                self.sides[queue].credit.take();
            }
            desk.counters.num_sends.add(1);
            desk.counters.send_bytes.add(body.len() as u64);
        }
        Ok(launched)
    }

    /// Sends what says that the receives are posted. It has a buffer of its own at the peer.
    pub(super) fn send_ready(&mut self, desk: &mut Desk) -> Result<(), Broken> {
        let (bytes, len) = Control::Ready.to_bytes();
        let credits = desk.credits;
        let outgoing = self.ready(HEADER + len);
        self.launch_from(outgoing, (credits, credits), (None, Body::Bytes(&bytes[..len])), None, desk)?
            .map_err(|_| Broken::Post)
    }

    /// Sends what tells of buffers that no message tells of; whether there was a place for all of it.
    pub(super) fn send_credits(&mut self, desk: &mut Desk) -> Result<bool, Broken> {
        for queue in 0..self.sides.len() {
            let receives = self.sides[queue].receives.as_ref();
            let is_urgent = receives.is_some_and(|receives| receives.window.urgent_news().is_some());
            if !is_urgent || !self.openib.as_ref().is_some_and(|flow| flow.may_tell(queue)) {
                continue;
            }
            let (bytes, len) = Control::Credits { queue: queue as u8 }.to_bytes();
            let body = Body::Bytes(&bytes[..len]);
            if self.launch((desk.credits, queue), None, body, None, desk)?.is_err() {
                return Ok(false);
            }
            if let Some(flow) = &mut self.openib {
                flow.tell(queue);
            }
            desk.counters.num_controls.add(1);
        }
        Ok(true)
    }

    /// Posts a message by one queue, whose header is about another or the same.
    fn launch(
        &mut self,
        (by, of): (usize, usize),
        tag: Option<u8>,
        body: Body<'_>,
        waits: Option<Cookie>,
        desk: &mut Desk,
    ) -> Result<Result<(), Stall>, Broken> {
        match self.outgoing(by, HEADER + body.len(), desk) {
            Ok(outgoing) => self.launch_from(outgoing, (by, of), (tag, body), waits, desk),
            Err(stall) => Ok(Err(stall)),
        }
    }

    /// The same from this buffer.
    #[inline]
    fn launch_from(
        &mut self,
        outgoing: Outgoing,
        (by, of): (usize, usize),
        (tag, body): (Option<u8>, Body<'_>),
        waits: Option<Cookie>,
        desk: &mut Desk,
    ) -> Result<Result<(), Stall>, Broken> {
        let Some(flow) = &self.openib else { return Err(Broken::Post) };
        let (token, seen) = (flow.token, flow.posted(of));
        let owed = self.sides[of].receives.as_ref().map_or(0, |receives| receives.window.owed());
        let header = Header { tag, seen, credits: owed as u16 };
        outgoing.write(&header.to_bytes(), body);
        let work = match &self.sides[by].receives {
            Some(_) => Work::Send,
            // It is read as the processor has it, and so it is sent.
            None => Work::SendWithImmediate(u32::from_be_bytes(token.to_ne_bytes())),
        };
        // No probe could ask for the completion of what is before it.
        let posted = self.post_outgoing(by, work, &outgoing, (waits, true), desk)?;
        if posted.is_err() {
            return Ok(posted);
        }
        if let Some(flow) = &mut self.openib {
            flow.returned(of, seen);
        }
        if let Some(receives) = &mut self.sides[of].receives {
            receives.window.tell();
        }
        Ok(Ok(()))
    }

    /// Counts what a message says that has come by a queue, and the message.
    fn account(&mut self, by: usize, message: &Message, desk: &Desk) -> Result<(), Beyond> {
        let Message { header, control } = *message;
        let about = match control {
            Some(Control::Credits { queue }) if by == desk.credits => Some(usize::from(queue)),
            // Of another queue, or for a second time.
            Some(Control::Credits { .. } | Control::Ready) => return Err(Beyond),
            _ => None,
        };
        let of = about.unwrap_or(by);
        let flow = self.openib.as_mut().ok_or(Beyond)?;
        flow.seen(of, header.seen)?;
        let side = self.sides.get_mut(of).ok_or(Beyond)?;
        if header.credits > 0 {
            side.receives.as_ref().ok_or(Beyond)?;
            side.credit.add(u32::from(header.credits), desk.most(of))?;
        }
        match (about, &mut self.sides[by].receives) {
            (Some(about), _) => flow.arrive(about),
            (None, Some(receives)) => receives.window.arrive(),
            (None, None) => Ok(()),
        }
    }

    /// The buffer of a credit message about a queue is not needed any more.
    fn release_reserved(&mut self, about: usize, at: u32, desk: &Desk) -> Result<(), Broken> {
        let is_due = self.openib.as_mut().is_some_and(|flow| flow.is_due(about));
        let side = &mut self.sides[desk.credits];
        let Some(receives) = side.receives.as_mut().filter(|_| !self.is_ending) else { return Ok(()) };
        receives.buffers.give(at);
        if is_due { receives.buffers.post(&side.line.pair).map_err(|_| Broken::Post) } else { Ok(()) }
    }
}

/// What a message says.
#[derive(Clone, Copy)]
struct Message {
    header: Header,
    /// What it is, if it is openib's own.
    control: Option<Control>,
}

impl Message {
    /// Reads its first bytes; `None` when they are none.
    fn read(bytes: Lent) -> Option<Self> {
        let mut head = [0; HEADER];
        let length = bytes.len().checked_sub(HEADER)?;
        bytes.read(0, &mut head);
        let header = Header::parse(head);
        if header.tag.is_some() {
            return Some(Self { header, control: None });
        }
        let mut first = [0; LONGEST_CONTROL];
        bytes.read(HEADER, &mut first[..length.min(LONGEST_CONTROL)]);
        Some(Self { header, control: Some(Control::parse(first, length)?) })
    }
}

/// The host's messages that one message brings; `None` when they are none.
fn parts(mut rest: Lent) -> Option<Vec<(u8, Lent)>> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let mut head = [0; JOINED];
        let left = rest.len().checked_sub(JOINED)?;
        rest.read(0, &mut head);
        let Joined { tag, length, whole } = Joined::parse(head, left)?;
        parts.push((tag, rest.slice(JOINED, length)));
        rest = rest.slice(JOINED + whole, left - whole);
    }
    (!parts.is_empty()).then_some(parts)
}

impl State {
    /// A message has come by a private queue.
    pub(super) fn received_openib(&mut self, number: Number, len: usize) -> Option<Step> {
        let (place, queue) = (number.peer, usize::from(number.queue));
        let connection = self.present(place, number.attempt)?;
        let attempt = connection.attempt;
        let receives = connection.sides.get_mut(queue)?.receives.as_ref()?;
        let Some(bytes) = receives.buffers.bytes(number.at, len) else {
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        let slab = Arc::clone(receives.buffers.slab());
        let buffer = Delivered::Private {
            place,
            attempt,
            queue: number.queue,
            at: number.at,
            _keep: Arc::clone(&slab),
        };
        self.handle_openib((place, attempt, queue), (number.at, bytes), buffer, Some(slab))
    }

    /// A message has come by a shared queue.
    pub(super) fn received_shared_openib(&mut self, number: Number, line: u32, len: usize) -> Option<Step> {
        let queue = usize::from(number.queue);
        let known = self.lines.get(&line).copied().filter(|(_, _, of)| *of == number.queue);
        let shared = self.desk.shared.get_mut(queue)?.as_mut()?;
        shared.arrive_unlent();
        match (known, shared.lent(number.at, len)) {
            (Some((place, attempt, _)), Some(bytes)) => {
                let buffer = Delivered::Shared { place, queue: number.queue, at: number.at };
                self.handle_openib((place, attempt, queue), (number.at, bytes), buffer, None)
            }
            (known, _) => {
                self.has_due = true;
                shared.release(number.at);
                self.desk.counters.num_dropped.add(1);
                if let Some((place, ..)) = known {
                    self.break_off(place, Broken::Corrupt);
                }
                None
            }
        }
    }

    /// A message of a peer's.
    fn handle_openib(
        &mut self,
        (place, attempt, queue): (u32, Attempt, usize),
        (at, bytes): (u32, Lent),
        buffer: Delivered,
        keep: Option<Arc<Slab>>,
    ) -> Option<Step> {
        let ticked = self.ticked();
        let Self { desk, peers, .. } = self;
        let peer = peers.get_mut(place as usize)?;
        let arrival = peer.machine.handle_arrival(attempt, queue as u8);
        let connection = peer.connection.as_mut()?;
        connection.signs.heard = ticked;
        let message = Message::read(bytes);
        let counted = message.filter(|message| connection.account(queue, message, desk).is_ok());
        let Some(Message { header, control }) = counted else {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        let news = connection.sides[queue].receives.as_ref().and_then(|receives| receives.window.news());
        let (id, is_connected) = (peer.id, connection.is_connected);
        let kept = match control {
            Some(Control::Credits { queue: about }) => {
                connection.release_reserved(usize::from(about), at, desk).map(|()| None)
            }
            _ => Ok(Some(buffer)),
        };
        if news.is_some() || header.seen > 0 || !peer.is_idle() {
            self.touch(place);
        }
        let buffer = match kept {
            Ok(Some(buffer)) => buffer,
            Ok(None) => return None,
            Err(broken) => {
                self.break_off(place, broken);
                return None;
            }
        };
        if arrival == Arrival::Drop {
            self.desk.counters.num_dropped.add(1);
            self.release(buffer);
            return None;
        }
        if !is_connected {
            self.drive(place);
        }
        let all = match (header.tag, control) {
            (Some(tag), _) => Some(vec![(tag, bytes.slice(HEADER, bytes.len() - HEADER))]),
            (None, Some(Control::Joined)) => parts(bytes.slice(HEADER + 1, bytes.len() - HEADER - 1)),
            // Nobody has to write to the ring of a peer's.
            (None, _) => Some(Vec::new()),
        };
        let Some(mut all) = all else {
            self.release(buffer);
            self.break_off(place, Broken::Corrupt);
            return None;
        };
        let Some((tag, bytes)) = all.pop() else {
            self.release(buffer);
            return None;
        };
        self.desk.counters.num_recvs.add(1 + all.len() as u64);
        let whole: usize = all.iter().map(|(_, part)| part.len()).sum();
        self.desk.counters.recv_bytes.add((whole + bytes.len()) as u64);
        let last = Step::Deliver { from: id, tag, bytes, buffer };
        if all.is_empty() && self.news.is_empty() {
            return Some(last);
        }
        for (tag, bytes) in all {
            let buffer = Delivered::Part { _keep: keep.clone() };
            self.news.push_back(Step::Deliver { from: id, tag, bytes, buffer });
        }
        self.news.push_back(last);
        None
    }

    /// Openib does not say that nothing follows: who ends a connection on which nothing is under way is not lost.
    pub(super) fn part_if_quiet(&mut self, place: u32, attempt: Attempt) {
        let has_failed = self.desk.port.has_failed();
        let Some(peer) = self.at(place) else { return };
        // Whether anything has come nobody knows, where a queue has failed; who ends does not ask.
        let is_deaf = has_failed && !peer.says_bye;
        let connection = peer.connection.as_ref().filter(|it| it.is_connected && it.attempt == attempt);
        match connection.map(|connection| connection.openib.is_some()) {
            Some(true) if peer.is_quiet() && !is_deaf && !peer.is_corrupt && !peer.is_starved => {
                peer.has_said_bye = true;
                peer.machine.handle_parted(attempt);
            }
            // It has heard that nothing follows.
            Some(false) if peer.says_bye && !peer.owes_bye => peer.machine.handle_parted(attempt),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::stream::lend;

    fn joined(tag: u8, text: &str, room: u32) -> Vec<u8> {
        let mut bytes = vec![tag, 0, 0, 0];
        bytes.extend((text.len() as u32).to_ne_bytes());
        bytes.extend(room.to_ne_bytes());
        bytes.extend(text.as_bytes());
        bytes.resize(JOINED + room as usize, 0xEE);
        bytes
    }

    fn read(mut bytes: Vec<u8>) -> Option<Vec<(u8, String)>> {
        let text = |(tag, part): (u8, Lent)| {
            let mut copy = Vec::new();
            part.append_to(&mut copy);
            (tag, String::from_utf8_lossy(&copy).into_owned())
        };
        parts(lend(&mut bytes)).map(|all| all.into_iter().map(text).collect())
    }

    #[test]
    fn several_messages_come_apart_or_not_at_all() {
        let bytes = [joined(0x41, "one", 8), joined(0x42, "", 0), joined(0x43, "three", 5)].concat();
        let all = [(0x41, "one"), (0x42, ""), (0x43, "three")].map(|(tag, text)| (tag, text.to_owned()));
        assert_eq!(read(bytes.clone()), Some(all.to_vec()));
        assert_eq!(read(Vec::new()), None);
        let ends = [20, 32, bytes.len()];
        let cut = |length: usize| read(bytes[..length].to_vec());
        assert!((0..bytes.len()).all(|length| cut(length).is_some() == ends.contains(&length)));
    }
}
