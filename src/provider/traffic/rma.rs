//! Operations on the memory of peers, on this side: what is put, got, and done with values there.
//!
//! Each goes to its target as an entry of the mailbox, which carries it out and answers; the answer is what ends it. What
//! is too long for an entry lies with this side, where the target reads or writes it, or goes in parts.

use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::cntr::Counter;
use super::super::cq::{Completion, Entry, Failure, Place as Promise};
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::super::sys;
use super::buffer::Buffer;
use super::context::{Context, Ends, Item};
use super::ending::{Instead, counted, is_quiet};
use super::send::{MOST, PIECE, lend};
use super::{EAGER, Lost, Traffic};
use crate::engine::slab::Key;
use crate::link::Lent;
use crate::wire::gni::amo::{Amo, Form};
use crate::wire::gni::mailbox::Lies;
use crate::wire::gni::remote::{HEAD, Places, Remote};

/// What is done to the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is written; and its owner is told this.
    Put(Option<u64>),
    /// It is read.
    Get,
    /// Values there are combined with others.
    Atomic(Amo),
}

impl Act {
    /// What an endpoint must be opened for to do it.
    pub fn right(self) -> u64 {
        self.flags()
    }

    /// What a completion says of it.
    fn flags(self) -> u64 {
        match self {
            Self::Put(_) => sys::FI_RMA | sys::FI_WRITE,
            Self::Get => sys::FI_RMA | sys::FI_READ,
            Self::Atomic(amo) if amo.form() == Form::Base => sys::FI_ATOMIC | sys::FI_WRITE,
            Self::Atomic(_) => sys::FI_ATOMIC | sys::FI_READ,
        }
    }
}

impl Ends {
    /// What counts operations on the memory of peers.
    pub(super) fn counter_of(&self, act: Act) -> Option<&Arc<Counter>> {
        if act.flags() & sys::FI_READ != 0 { self.reads.as_ref() } else { self.writes.as_ref() }
    }
}

/// What somebody wants done to the memory of a peer.
#[derive(Clone)]
pub struct Reach {
    /// Handed back when it has ended.
    pub context: Foreign,
    /// Whose memory.
    pub destination: u64,
    /// What.
    pub act: Act,
    /// Where there.
    pub places: Places,
    /// What is put, where to what is got, or the operands.
    pub buffer: Buffer,
    /// Where to the values that were there before.
    pub result: Buffer,
    /// What the values are compared with.
    pub compared: Buffer,
    /// It has an entry when it ends well.
    pub wants: bool,
    /// Memory that is only read is free again at once.
    pub is_injected: bool,
    /// It has an entry only when it fails.
    pub is_silent: bool,
    /// All before it that concerns the peer has ended when it begins.
    pub is_fenced: bool,
    /// What counts it instead of its endpoint.
    pub instead: Option<Box<Instead>>,
}

/// Such an operation, under way.
pub(super) struct Operation {
    context: Foreign,
    pub(super) promise: Option<Promise>,
    wants: bool,
    act: Act,
    places: Places,
    buffer: Buffer,
    result: Buffer,
    compared: Buffer,
    pub(super) peer: u32,
    pub(super) step: Step,
    /// Bytes that have come.
    come: usize,
    instead: Option<Box<Instead>>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits for its turn.
    Queued,
    /// The target knows of it, and is to answer.
    Told,
    /// The target wants it in parts, of which so many bytes are on their way.
    Parts(usize),
}

/// What waits for room in a mailbox, of such operations.
pub(super) enum Waiting {
    /// One begins.
    Operation(Key),
    /// Parts of what is put.
    Parts(Key),
    /// Parts of what the peer gets of this side.
    Work,
    /// An answer: its kind and its bytes.
    Answer(u8, Box<[u8]>),
}

impl Traffic {
    /// Does something to the memory of a peer.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again. Others: it cannot be done.
    #[inline]
    pub fn reach(&mut self, slot: u32, reach: Reach) -> Outcome<()> {
        let context = self.context(slot)?;
        let peer = context.peer_of(reach.destination)?;
        match context.begin(peer, reach)? {
            Begun::Told => {}
            Begun::Waits if context.peers[peer as usize].is_connected => self.pump(slot, peer),
            Begun::Waits => self.connect(slot, peer),
            // Its end says so.
            Begun::Lost => self.lose(slot, peer, libc::ECONNRESET),
        }
        self.rouse_deferred();
        Ok(())
    }
}

/// What has become of an operation at first.
enum Begun {
    Told,
    Waits,
    Lost,
}

impl Context {
    #[inline]
    fn begin(&mut self, peer: u32, reach: Reach) -> Outcome<Begun> {
        if self.operations.len() >= MOST {
            return Err(Errno::AGAIN);
        }
        let has_none = reach.is_silent || is_quiet(reach.instead.as_deref(), reach.wants);
        let promise = match self.ends()?.transmit.as_ref().filter(|_| !has_none) {
            Some(direction) => Some(direction.cq.reserve()?),
            None => None,
        };
        let Reach {
            context,
            act,
            places,
            buffer,
            result,
            compared,
            wants,
            is_injected,
            is_fenced,
            instead,
            ..
        } = reach;
        let (step, come) = (Step::Queued, 0);
        let key = self.operations.insert(Operation {
            context,
            promise,
            wants,
            act,
            places,
            buffer,
            result,
            compared,
            peer,
            step,
            come,
            instead,
        });
        let there = &self.peers[peer as usize];
        if there.is_connected && there.queue.is_empty() && there.held.is_empty() && !is_fenced {
            match self.tell_operation(peer, key) {
                Ok(true) => return Ok(Begun::Told),
                Ok(false) => {}
                Err(Lost) => return Ok(Begun::Lost),
            }
        }
        if is_injected && let Some(operation) = self.operations.get_mut(key) {
            if act != Act::Get {
                operation.buffer = operation.buffer.keep();
            }
            operation.compared = operation.compared.keep();
        }
        self.ask(peer, Item::Remote(Waiting::Operation(key)), is_fenced);
        Ok(Begun::Waits)
    }

    /// Puts what waits at the head of the queue into the mailbox; false where there is no room.
    pub(super) fn pump_remote(&mut self, peer: u32) -> Result<bool, Lost> {
        let Some(there) = self.peers.get_mut(peer as usize) else { return Ok(true) };
        let Some(Item::Remote(waiting)) = there.queue.front() else { return Ok(true) };
        match waiting {
            Waiting::Operation(key) => {
                let key = *key;
                self.tell_operation(peer, key)
            }
            Waiting::Parts(key) => {
                let key = *key;
                self.send_parts(peer, key)
            }
            Waiting::Work => self.send_work(peer),
            Waiting::Answer(kind, bytes) => {
                let Some(mailbox) = there.mailbox.as_mut() else { return Ok(false) };
                mailbox.push(*kind, [lend(bytes), Lent::EMPTY]).map_err(|_| Lost)
            }
        }
    }

    /// Tells the target of an operation; false where there is no room.
    fn tell_operation(&mut self, peer: u32, key: Key) -> Result<bool, Lost> {
        let Some(known) = self.operations.get_mut(key) else { return Ok(true) };
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(mailbox) = mailbox else { return Ok(false) };
        let (operation, places) = (key.raw(), known.places);
        let length = known.buffer.length();
        let is_short = length <= mailbox.at_once();
        let lies = if is_short { Lies::NOWHERE } else { known.buffer.lies() };
        let (entry, has_payload) = match known.act {
            Act::Put(data) if is_short => (Remote::Put { operation, data, places }, true),
            Act::Put(data) => (Remote::Bring { operation, data, places, lies }, false),
            Act::Get => (Remote::Get { operation, places, lies }, false),
            Act::Atomic(amo) => (Remote::Atomic { operation, amo, places }, true),
        };
        let payload = match known.buffer.whole() {
            _ if !has_payload => Lent::EMPTY,
            Some(whole) if known.compared.length() == 0 => whole,
            _ => {
                self.scratch.clear();
                known.buffer.gather(0, length, &mut self.scratch);
                known.compared.gather(0, known.compared.length(), &mut self.scratch);
                lend(&self.scratch)
            }
        };
        let mut head = [0; HEAD];
        let (kind, head_length) = entry.emit(&mut head);
        if !mailbox.push(kind, [lend(&head[..head_length]), payload]).map_err(|_| Lost)? {
            return Ok(false);
        }
        known.step = Step::Told;
        Ok(true)
    }

    /// Sends parts of what is put; whether they were the last.
    fn send_parts(&mut self, peer: u32, key: Key) -> Result<bool, Lost> {
        let Some(known) = self.operations.get_mut(key) else { return Ok(true) };
        let mailbox = self.peers.get_mut(peer as usize).and_then(|there| there.mailbox.as_mut());
        let Some(mailbox) = mailbox else { return Ok(false) };
        let Step::Parts(mut gone) = known.step else { return Ok(true) };
        let whole = known.buffer.length();
        while gone < whole {
            let length = PIECE.min(whole - gone);
            self.scratch.clear();
            known.buffer.gather(gone, length, &mut self.scratch);
            let mut head = [0; HEAD];
            let entry = Remote::Part { operation: key.raw(), offset: gone as u64, is_put: true };
            let (kind, head_length) = entry.emit(&mut head);
            let parts = [lend(&head[..head_length]), lend(&self.scratch)];
            if !mailbox.push(kind, parts).map_err(|_| Lost)? {
                known.step = Step::Parts(gone);
                return Ok(false);
            }
            gone += length;
        }
        known.step = Step::Told;
        Ok(true)
    }

    /// An operation of ours that the peer may speak of now.
    fn told(&mut self, peer: u32, operation: u64) -> Option<(Key, &mut Operation)> {
        let key = Key::from_raw(operation);
        let known = self.operations.get_mut(key)?;
        (known.peer == peer && known.step == Step::Told).then_some((key, known))
    }

    /// The target wants in parts what it is to be put.
    pub(super) fn hear_want(&mut self, peer: u32, operation: u64) -> Option<()> {
        let at_once = self.peers.get(peer as usize)?.mailbox.as_ref()?.at_once();
        let (key, known) = self.told(peer, operation)?;
        if !matches!(known.act, Act::Put(_)) || known.buffer.length() <= at_once {
            return None;
        }
        known.step = Step::Parts(0);
        self.peers.get_mut(peer as usize)?.queue.push_back(Item::Remote(Waiting::Parts(key)));
        Some(())
    }

    /// A part of what is got.
    pub(super) fn hear_got(&mut self, peer: u32, operation: u64, offset: u64, payload: Lent) -> Option<()> {
        let (_, known) = self.told(peer, operation)?;
        let is_next = known.act == Act::Get && known.come as u64 == offset && !payload.is_empty();
        if !is_next || payload.len() > known.buffer.length() - known.come {
            return None;
        }
        known.buffer.write(known.come, payload);
        known.come += payload.len();
        Some(())
    }

    /// The target has carried an operation out, or not.
    pub(super) fn hear_done(&mut self, peer: u32, operation: u64, code: u32, payload: Lent) -> Option<()> {
        let (key, known) = self.told(peer, operation)?;
        let code = i32::try_from(code).ok()?;
        let length = known.buffer.length();
        let is_fit = match known.act {
            _ if code != 0 => payload.is_empty(),
            // It has come in parts; or was written where it belongs.
            Act::Get if known.come != 0 => payload.is_empty() && known.come == length,
            Act::Get if length > EAGER => payload.is_empty(),
            Act::Get => payload.len() == length,
            Act::Atomic(_) => payload.len() == known.result.length(),
            Act::Put(_) => payload.is_empty(),
        };
        if !is_fit {
            return None;
        }
        let to = if known.act == Act::Get { &known.buffer } else { &known.result };
        to.write(0, payload);
        self.reached(key, code);
        Some(())
    }

    /// An operation has ended.
    pub(super) fn reached(&mut self, key: Key, code: i32) {
        if self.operations.get(key).is_none() {
            return;
        }
        let (Some(known), Some(ends)) = (self.operations.remove(key.index), &self.ends) else { return };
        let flags = known.act.flags();
        let instead = known.instead.as_deref();
        if let Some(counter) = counted(instead, ends.counter_of(known.act)) {
            if code == 0 { counter.add(1) } else { counter.add_failed(1) }
        }
        let Some(direction) = &ends.transmit else { return };
        if is_quiet(instead, known.wants) {
            return;
        }
        let of = Completion {
            context: known.context,
            flags,
            length: 0,
            buffer: Foreign::NULL,
            data: 0,
            tag: 0,
            source: NOBODY,
        };
        if code == 0 {
            return match known.promise {
                Some(promise) if known.wants => direction.cq.put(promise, Entry::Done(of)),
                promise => direction.cq.release_some(promise),
            };
        }
        let refused = [Errno::NOKEY, Errno::INVAL].contains(&Errno(code));
        let failure =
            Failure { of, overflow: 0, code: if refused { libc::EACCES } else { code }, detail: code };
        if let Some(promise) = known.promise.or_else(|| direction.cq.reserve().ok()) {
            direction.cq.put(promise, Entry::Failed(Box::new(failure)));
        }
    }
}
