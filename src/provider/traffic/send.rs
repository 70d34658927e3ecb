//! Messages on their way out: at once, or in the queue of their peer.

use super::super::argument::Foreign;
use super::super::cq::{Entry, Place};
use super::super::errno::{Errno, Outcome};
use super::buffer::Buffer;
use super::context::{Context, Item, Outgoing, Stage};
use super::ending::{Instead, is_quiet, sent};
use super::short::Plain;
use super::{Lost, Traffic};
use crate::engine::slab::Key;
use crate::link::Lent;
use crate::wire::gni::mailbox::{self, HEAD, Label};

/// Messages that an endpoint has under way, at most; and operations on memory.
pub(super) const MOST: usize = 4096;
/// Bytes of a piece.
pub(super) const PIECE: usize = 16 << 10;

/// What somebody wants to send.
#[derive(Clone)]
pub struct Order {
    /// Handed back when it has ended.
    pub context: Foreign,
    /// To whom.
    pub destination: u64,
    /// Tag and data.
    pub label: Label,
    /// What.
    pub buffer: Buffer,
    /// It has an entry when it ends well.
    pub wants: bool,
    /// Its memory is free again at once.
    pub is_injected: bool,
    /// It has an entry when it fails.
    pub is_silent: bool,
    /// It ends when it has been received.
    pub is_answered: bool,
    /// All before it that concerns the peer has ended when it begins.
    pub is_fenced: bool,
    /// What counts it instead of its endpoint.
    pub instead: Option<Box<Instead>>,
}

impl Order {
    /// What of it matters where it goes at once.
    #[inline(always)]
    fn plain(&self, bytes: Lent) -> Plain {
        Plain::new(self.context, self.label, bytes, self.wants)
    }
}

/// Lends bytes of our own for a call that only reads them.
pub(super) fn lend(bytes: &[u8]) -> Lent {
    // SAFETY: whoever it is passed to reads it before it returns, and keeps nothing.
    unsafe { Lent::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

impl Traffic {
    /// Sends a message.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again. Others: it cannot be sent.
    #[inline]
    pub fn send(&mut self, slot: u32, order: Order) -> Outcome<()> {
        let context = self.context(slot)?;
        let peer = context.peer_of(order.destination)?;
        if let Some(whole) = order.buffer.whole()
            && !(order.is_answered | order.is_fenced | order.instead.is_some())
            && let Some(outcome) = context.send_at_once(peer, order.plain(whole))
        {
            return match outcome {
                Ok(is_sent) if is_sent => {
                    self.rouse_deferred();
                    Ok(())
                }
                Ok(_) if order.is_silent => Err(Errno::AGAIN),
                Ok(_) => self.send_later(slot, peer, order),
                Err(Refused::Busy) => Err(Errno::AGAIN),
                Err(Refused::Lost) => {
                    self.lose(slot, peer, libc::ECONNRESET);
                    Err(Errno(libc::ECONNRESET))
                }
            };
        }
        if order.is_silent {
            return self.inject_later(slot, peer);
        }
        self.send_later(slot, peer, order)
    }

    /// A message of whose end nobody hears is taken only when it can go: what its sender does next may not be a call of
    /// libfabric's, and if it cannot go at all, this is where that can be said.
    #[cold]
    #[inline(never)]
    fn inject_later(&mut self, slot: u32, peer: u32) -> Outcome<()> {
        let there = &mut self.context(slot)?.peers[peer as usize];
        if there.vc.is_none() && there.failed.is_none() {
            self.connect(slot, peer);
        }
        let there = &mut self.context(slot)?.peers[peer as usize];
        Err(there.failed.take().map_or(Errno::AGAIN, Errno))
    }

    #[cold]
    #[inline(never)]
    fn send_later(&mut self, slot: u32, peer: u32, order: Order) -> Outcome<()> {
        let context = self.context(slot)?;
        if context.sends.len() >= MOST {
            return Err(Errno::AGAIN);
        }
        let has_none = order.is_silent || is_quiet(order.instead.as_deref(), order.wants);
        let place = match context.ends()?.transmit.as_ref().filter(|_| !has_none) {
            Some(direction) => Some(direction.cq.reserve()?),
            None => None,
        };
        let buffer = if order.is_injected { order.buffer.keep() } else { order.buffer };
        let key = context.sends.insert(Outgoing {
            context: order.context,
            place,
            wants: order.wants,
            label: order.label,
            buffer,
            peer,
            is_answered: order.is_answered,
            stage: Stage::Queued,
            instead: order.instead,
        });
        context.ask(peer, Item::Send(key), order.is_fenced);
        if context.peers[peer as usize].is_connected {
            self.pump(slot, peer);
        } else {
            self.connect(slot, peer);
        }
        self.rouse_deferred();
        Ok(())
    }

    /// Puts what waits for a peer into its mailbox, as much as there is room for.
    pub(super) fn pump(&mut self, slot: u32, peer: u32) {
        let Ok(context) = self.context(slot) else { return };
        let waiting =
            |context: &Context| context.peers.get(peer as usize).map_or(0, |there| there.queue.len());
        let before = waiting(context);
        let pumped = context.pump(peer);
        if waiting(context) != before {
            self.moved += 1;
        }
        match pumped {
            // What has waited behind it may have been carried out, and be told of.
            Ok(true) => self.settle(slot, peer),
            Ok(false) => self.look_again(slot, peer),
            Err(Lost) => self.lose(slot, peer, libc::ECONNRESET),
        }
    }
}

/// Why a message does not go at once.
pub(super) enum Refused {
    /// The queue has no place.
    Busy,
    /// The peer breaks the rules.
    Lost,
}

impl Context {
    /// Sends a short message if nothing is before it; `None`, or false, where it has to wait.
    #[inline(always)]
    pub(super) fn send_at_once(&mut self, peer: u32, message: Plain) -> Option<Result<bool, Refused>> {
        let Plain { context, tag, data, bytes, wants } = message;
        let there = self.peers.get_mut(peer as usize)?;
        let mailbox = there
            .mailbox
            .as_mut()
            .filter(|_| there.is_connected && there.queue.is_empty() && there.held.is_empty())
            .filter(|mailbox| mailbox.takes(bytes.len()))?;
        let ends = self.ends.as_ref()?;
        let place = match ends.transmit.as_ref().filter(|_| wants).map(|direction| direction.cq.reserve()) {
            Some(Ok(place)) => Some(place),
            Some(Err(_)) => return Some(Err(Refused::Busy)),
            None => None,
        };
        let pushed = match (tag, data) {
            (Some(tag), None) => mailbox.push_word(mailbox::SHORT, tag, bytes),
            (tag, data) => {
                let mut head = [[0; 8]; 2];
                let (kind, length) = mailbox::emit_short(Label { tag, data }, &mut head);
                mailbox.push(kind, [lend(&head.as_flattened()[..length]), bytes])
            }
        };
        if pushed == Ok(true) && mailbox.is_keeping() {
            // Made here: what is passed by its address lies in memory, also on the way of all others.
            let message = Plain { context, tag, data, bytes, wants };
            self.leaves(peer, &message, place);
            return Some(Ok(true));
        }
        if let (Some(direction), Some(place)) = (&ends.transmit, place) {
            match pushed {
                Ok(true) => direction.cq.put(place, Entry::Done(sent(context, Label { tag, data }))),
                _ => direction.cq.release_some(Some(place)),
            }
        }
        if pushed == Ok(true)
            && let Some(counter) = &ends.sends
        {
            counter.add(1);
        }
        Some(pushed.map_err(|_| Refused::Lost))
    }

    /// A message has gone in part: it ends, and others go, when the rest has.
    #[cold]
    #[inline(never)]
    fn leaves(&mut self, peer: u32, message: &Plain, place: Option<Place>) {
        let transmit = self.ends.as_ref().and_then(|ends| ends.transmit.as_ref());
        // It may fail.
        let place = place.or_else(|| transmit?.cq.reserve().ok());
        let key = self.sends.insert(Outgoing {
            context: message.context,
            place,
            wants: message.wants,
            label: Label { tag: message.tag, data: message.data },
            buffer: Buffer::NONE,
            peer,
            is_answered: false,
            stage: Stage::Leaving,
            instead: None,
        });
        if let Some(there) = self.peers.get_mut(peer as usize) {
            there.queue.push_front(Item::Send(key));
        }
    }

    /// Whether all that waits for a peer has gone.
    fn pump(&mut self, peer: u32) -> Result<bool, Lost> {
        loop {
            let Some(there) = self.peers.get_mut(peer as usize) else { return Ok(true) };
            let Some(mailbox) = there.mailbox.as_mut().filter(|_| there.is_connected) else {
                return Ok(true);
            };
            let is_done = match there.queue.front() {
                None => {
                    if there.held.is_empty() || !self.unfence(peer) {
                        return Ok(true);
                    }
                    continue;
                }
                Some(Item::Note(note)) => {
                    mailbox.push_bytes(note.kind, &note.bytes[..note.length]).map_err(|_| Lost)?
                }
                Some(Item::Send(key)) => {
                    let key = *key;
                    self.tell(peer, key)?
                }
                Some(Item::Pieces(key)) => {
                    let key = *key;
                    self.send_pieces(peer, key)?
                }
                Some(Item::Remote(_)) => self.pump_remote(peer)?,
            };
            if !is_done {
                return Ok(false);
            }
            if let Some(there) = self.peers.get_mut(peer as usize) {
                there.queue.pop_front();
            }
        }
    }

    /// Puts a message into the mailbox, or tells of it.
    fn tell(&mut self, peer: u32, key: Key) -> Result<bool, Lost> {
        let Some(outgoing) = self.sends.get_mut(key) else { return Ok(true) };
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(mailbox) = mailbox else { return Ok(false) };
        if outgoing.stage == Stage::Leaving {
            let has_gone = mailbox.flush();
            if has_gone {
                self.sent(key, 0);
            }
            return Ok(has_gone);
        }
        let (label, send) = (outgoing.label, key.raw());
        let length = outgoing.buffer.length();
        let mut head = [0; HEAD];
        let is_whole = mailbox.takes(length);
        let payload = match outgoing.buffer.whole() {
            _ if !is_whole => Lent::EMPTY,
            Some(whole) => whole,
            None => {
                self.scratch.clear();
                outgoing.buffer.gather(0, length, &mut self.scratch);
                lend(&self.scratch)
            }
        };
        let entry = if is_whole {
            mailbox::Entry::Eager { label, send: outgoing.is_answered.then_some(send) }
        } else {
            mailbox::Entry::Start { label, send, length: length as u64, lies: outgoing.buffer.lies() }
        };
        let (kind, head_length) = entry.emit(&mut head);
        if !mailbox.push(kind, [lend(&head[..head_length]), payload]).map_err(|_| Lost)? {
            return Ok(false);
        }
        if is_whole && !outgoing.is_answered {
            if mailbox.is_keeping() {
                outgoing.stage = Stage::Leaving;
                return Ok(false);
            }
            self.sent(key, 0);
        } else {
            outgoing.stage = Stage::Told;
        }
        Ok(true)
    }

    /// Sends pieces of a message; whether they were the last.
    fn send_pieces(&mut self, peer: u32, key: Key) -> Result<bool, Lost> {
        let Some(outgoing) = self.sends.get_mut(key) else { return Ok(true) };
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(mailbox) = mailbox else { return Ok(false) };
        let Stage::Pieces(receive, wanted, mut gone) = outgoing.stage else { return Ok(true) };
        while gone < wanted {
            let owed = mailbox.owed();
            if owed != 0 {
                let part = outgoing.buffer.parts(gone, owed).next().unwrap_or(Lent::EMPTY);
                let sent = mailbox.go_on(part);
                gone += sent;
                if sent == 0 {
                    outgoing.stage = Stage::Pieces(receive, wanted, gone);
                    return Ok(false);
                }
                continue;
            }
            let length = mailbox.piece().min(wanted - gone);
            let mut head = [0; HEAD];
            let entry = mailbox::Entry::Piece { receive, offset: gone as u64 };
            let (kind, head_length) = entry.emit(&mut head);
            match mailbox.begin(kind, &head[..head_length], length) {
                Some(true) => continue,
                Some(false) => {
                    outgoing.stage = Stage::Pieces(receive, wanted, gone);
                    return Ok(false);
                }
                None => {}
            }
            let mut parts = outgoing.buffer.parts(gone, length);
            let payload = match (parts.next(), parts.next()) {
                (Some(part), None) => part,
                _ => {
                    self.scratch.clear();
                    outgoing.buffer.gather(gone, length, &mut self.scratch);
                    lend(&self.scratch)
                }
            };
            if !mailbox.push(kind, [lend(&head[..head_length]), payload]).map_err(|_| Lost)? {
                outgoing.stage = Stage::Pieces(receive, wanted, gone);
                return Ok(false);
            }
            gone += length;
        }
        // It ends when the receiver says that it is there.
        if let Some(outgoing) = self.sends.get_mut(key) {
            outgoing.stage = Stage::Told;
        }
        Ok(true)
    }
}
