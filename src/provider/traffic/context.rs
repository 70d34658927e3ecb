//! [`Context`]: what an endpoint has under way, and with whom.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::av::Av;
use super::super::cntr::Counter;
use super::super::cq::{Completion, Entry, Failure, Place};
use super::super::endpoint::Direction;
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::super::sys;
use super::buffer::Buffer;
use crate::engine::connect::{EndpointId, Vc};
use crate::engine::matching::{Matching, MessageId, ReceiveId};
use crate::engine::slab::{Key, Slab};
use crate::gni::Mailbox;
use crate::link::Lent;
use crate::shm::CrossMemory;
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::mailbox::{self, HEAD, Label, Lies};
use crate::wire::gni::name::Name;

/// Receives that may be posted at a time, on each side of tagged and not.
const POSTED: usize = 1 << 20;

/// What an endpoint that is enabled has of the domain's objects.
pub struct Ends {
    /// Its peers.
    pub av: Arc<Av>,
    /// Where what it sends ends.
    pub transmit: Option<Direction>,
    /// Where what it receives ends.
    pub receive: Option<Direction>,
    /// What counts the first.
    pub sends: Option<Arc<Counter>>,
    /// What counts the second.
    pub receives: Option<Arc<Counter>>,
    /// Receives may name their source.
    pub is_directed: bool,
    /// Completions name it.
    pub tells_source: bool,
}

/// A posted receive.
pub(super) struct Receive {
    pub(super) context: Foreign,
    pub(super) buffer: Buffer,
    /// It has an entry when it ends well.
    pub(super) wants: bool,
    pub(super) is_tagged: bool,
    pub(super) share: Share,
}

/// Whose memory a receive has.
pub(super) enum Share {
    /// Its own.
    Own,
    /// Its own, for as many messages as there is room for.
    Many(Many),
    /// A part of that of another receive.
    Of(Key),
}

/// A receive for several messages.
pub(super) struct Many {
    pub(super) id: Option<ReceiveId>,
    /// It is over when there is less room than that.
    pub(super) least: usize,
    /// Bytes that were given to messages.
    pub(super) used: usize,
    /// Messages that have not ended.
    pub(super) pending: usize,
    /// There will be no more.
    pub(super) is_spent: bool,
}

/// A message that nobody has asked for yet.
pub(super) struct Unexpected {
    pub(super) peer: u32,
    pub(super) label: Label,
    pub(super) length: usize,
    pub(super) what: What,
}

/// How much of it is here.
pub(super) enum What {
    /// All; and its number, if its sender wants to hear of it.
    Whole(Vec<u8>, Option<u64>),
    /// Nothing: its number, and where it lies.
    Beginning(u64, Lies),
    /// The place is free.
    Nothing,
}

/// A message that is being sent.
pub(super) struct Outgoing {
    pub(super) context: Foreign,
    pub(super) place: Option<Place>,
    /// It has an entry when it ends well.
    pub(super) wants: bool,
    pub(super) label: Label,
    pub(super) buffer: Buffer,
    pub(super) peer: u32,
    /// It ends when it has been received.
    pub(super) is_answered: bool,
    pub(super) stage: Stage,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    Queued,
    /// The peer knows of it, and is to say when it has it.
    Told,
    /// The peer has asked for it in pieces: for what, how many bytes, how many are on their way.
    Pieces(u64, usize, usize),
}

/// A receive that is filled piece by piece.
pub(super) struct Pull {
    pub(super) receive: Receive,
    pub(super) place: Option<Place>,
    pub(super) peer: u32,
    pub(super) label: Label,
    /// Bytes of the message, those that are wanted, those that have come.
    pub(super) length: usize,
    pub(super) wanted: usize,
    pub(super) come: usize,
}

/// What waits for room in a mailbox.
pub(super) enum Item {
    /// A message.
    Send(Key),
    /// Pieces of one.
    Pieces(Key),
    /// A header without a payload.
    Note(Note),
}

/// That.
pub(super) struct Note {
    pub(super) kind: u8,
    pub(super) length: usize,
    pub(super) bytes: [u8; 24],
}

impl Note {
    pub(super) fn new(entry: &mailbox::Entry) -> Self {
        let mut head = [0; HEAD];
        let (kind, length) = entry.emit(&mut head);
        let mut bytes = [0; 24];
        bytes[..length].copy_from_slice(&head[..length]);
        Self { kind, length, bytes }
    }
}

/// Another endpoint, and the connection with it, if there is one.
pub(super) struct Peer {
    pub(super) name: NameId,
    pub(super) vc: Option<Vc>,
    pub(super) mailbox: Option<Mailbox>,
    pub(super) is_connected: bool,
    /// The peer knows that; it has been heard.
    pub(super) is_heard: bool,
    /// It is looked at without its bell.
    pub(super) is_polled: bool,
    /// It is in the list of those that are to be looked at.
    pub(super) is_ready: bool,
    /// The peer has ended the connection, into which it has put so many entries.
    pub(super) closing: Option<u64>,
    /// Its private memory, where we are let in.
    pub(super) memory: Option<CrossMemory>,
    pub(super) queue: VecDeque<Item>,
    /// Its number in the address vector, as that was in this version.
    number: (u64, u64),
}

/// A number of the address vector.
#[derive(Clone, Copy)]
struct Address {
    number: u64,
    peer: u32,
}

const NOT_KNOWN: Address = Address { number: NOBODY, peer: 0 };

/// An endpoint.
pub(super) struct Context {
    pub(super) endpoint: EndpointId,
    pub(super) name: NameId,
    pub(super) ends: Option<Ends>,
    pub(super) tagged: Matching<Key, u32>,
    pub(super) untagged: Matching<Key, u32>,
    pub(super) receives: Slab<Receive>,
    messages: Vec<Unexpected>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    pub(super) sends: Slab<Outgoing>,
    pub(super) pulls: Slab<Pull>,
    pub(super) peers: Vec<Peer>,
    by_name: HashMap<(u32, u32), u32>,
    addresses: Vec<Address>,
    version: u64,
    /// Messages that were claimed, by the context of who has.
    pub(super) claimed: HashMap<usize, (bool, MessageId)>,
    /// For the next that is received.
    place: Option<Place>,
    /// Failures for which there was no place.
    owed: VecDeque<Entry>,
    /// For a message of several pieces.
    pub(super) scratch: Vec<u8>,
    /// Peers who are to hear something.
    pub(super) told: Vec<u32>,
}

/// Buffers that are kept for messages to come, at most.
const SPARE: usize = 64;

impl Context {
    pub(super) fn new(endpoint: EndpointId, name: NameId, key: [u8; 16]) -> Self {
        Self {
            endpoint,
            name,
            ends: None,
            tagged: Matching::new(POSTED, key),
            untagged: Matching::new(POSTED, key),
            receives: Slab::new(),
            messages: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            sends: Slab::new(),
            pulls: Slab::new(),
            peers: Vec::new(),
            by_name: HashMap::new(),
            addresses: Vec::new(),
            version: 0,
            claimed: HashMap::new(),
            place: None,
            owed: VecDeque::new(),
            scratch: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(super) fn ends(&self) -> Outcome<&Ends> {
        self.ends.as_ref().ok_or(Errno::OPBADSTATE)
    }

    /// Which peer has this number.
    #[inline(always)]
    pub(super) fn peer_of(&mut self, number: u64) -> Outcome<u32> {
        let version = self.ends()?.av.version();
        if self.version == version
            && let Some(address) = self.addresses.get(number as u32 as usize)
            && address.number == number
        {
            return Ok(address.peer);
        }
        self.look_up(number, version)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, number: u64, version: u64) -> Outcome<u32> {
        if self.version != version {
            self.addresses.clear();
            self.version = version;
        }
        let name = self.ends()?.av.get(number)?;
        let id = id_of(&name);
        if id.device != self.name.device {
            // There is no way to another node yet.
            return Err(Errno(libc::EHOSTUNREACH));
        }
        let peer = self.peer_named(id);
        let index = number as u32 as usize;
        if self.addresses.len() <= index {
            self.addresses.resize(index + 1, NOT_KNOWN);
        }
        self.addresses[index] = Address { number, peer };
        Ok(peer)
    }

    /// The peer of this name, from now on if there was none.
    pub(super) fn peer_named(&mut self, name: NameId) -> u32 {
        let next = self.peers.len() as u32;
        let peer = *self.by_name.entry((name.device, name.cdm_id)).or_insert(next);
        if peer == next {
            self.peers.push(Peer {
                name,
                vc: None,
                mailbox: None,
                is_connected: false,
                is_heard: false,
                is_polled: false,
                is_ready: false,
                closing: None,
                memory: None,
                queue: VecDeque::new(),
                number: (u64::MAX, NOBODY),
            });
        } else if let Some(known) = self.peers.get_mut(peer as usize)
            && known.vc.is_none()
            && name.incarnation > known.name.incarnation
        {
            known.name = name;
        }
        peer
    }

    /// What a completion says of who has sent.
    pub(super) fn source(&mut self, peer: u32) -> u64 {
        let Some(ends) = self.ends.as_ref().filter(|ends| ends.tells_source) else { return NOBODY };
        let version = ends.av.version();
        let Some(known) = self.peers.get_mut(peer as usize) else { return NOBODY };
        if known.number.0 != version {
            let device = Ipv4Addr::from_bits(known.name.device);
            let name = Name { cdm_id: known.name.cdm_id, ..Name::bound(device, 0) };
            known.number = (version, ends.av.find(&name).unwrap_or(NOBODY));
        }
        known.number.1
    }

    /// Sees to it that there is a place for what is received next; false when there is none.
    #[inline(always)]
    pub(super) fn has_place(&mut self) -> bool {
        self.place.is_some() || self.find_place()
    }

    #[cold]
    #[inline(never)]
    fn find_place(&mut self) -> bool {
        let Some(direction) = self.ends.as_ref().and_then(|ends| ends.receive.as_ref()) else { return true };
        self.place = direction.cq.reserve().ok();
        self.place.is_some()
    }

    /// That place.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// A receive has ended, for which there is this place, or that of whatever is next.
    #[inline(always)]
    pub(super) fn received(&mut self, receive: &Receive, place: Option<Place>, message: &Received) {
        let source = self.source(message.peer);
        let (buffer, many) = self.give_back(receive);
        let Some(ends) = &self.ends else { return };
        let kind = if receive.is_tagged { sys::FI_TAGGED } else { sys::FI_MSG };
        let data = message.label.data.map_or(0, |_| sys::FI_REMOTE_CQ_DATA);
        let completion = Completion {
            context: receive.context,
            flags: sys::FI_RECV | kind | data | many,
            length: message.length.min(message.room),
            buffer,
            data: message.label.data.unwrap_or(0),
            tag: message.label.tag.unwrap_or(0),
            source,
        };
        let overflow = message.length.saturating_sub(message.room);
        let code = match message.code {
            0 if overflow != 0 => TRUNCATED,
            code => code,
        };
        if let Some(counter) = &ends.receives {
            if code == 0 { counter.add(1) } else { counter.add_failed(1) }
        }
        let Some(direction) = &ends.receive else { return };
        let place = place.or_else(|| self.place.take());
        let entry = if code == 0 {
            if !receive.wants && many == 0 {
                return direction.cq.release_some(place);
            }
            Entry::Done(completion)
        } else {
            Entry::Failed(Failure { of: completion, overflow, code })
        };
        if !self.owed.is_empty() {
            // Entries are in the order in which messages have come.
            direction.cq.release_some(place);
            self.owed.push_back(entry);
            return;
        }
        match place {
            Some(place) if self.place.is_none() => self.place = direction.cq.put_again(place, entry),
            Some(place) => direction.cq.put(place, entry),
            None => self.owed.push_back(entry),
        }
    }

    /// What a message has of the memory of a receive for several is its own no more: where it is, and, with the last one,
    /// that all of the memory is free again.
    #[inline(always)]
    fn give_back(&mut self, receive: &Receive) -> (Foreign, u64) {
        let Share::Of(key) = receive.share else { return (Foreign::NULL, 0) };
        let start = receive.buffer.whole().map_or(std::ptr::null(), Lent::as_ptr);
        let buffer = Foreign(start.cast_mut().cast());
        let Some(Receive { share: Share::Many(many), .. }) = self.receives.get_mut(key) else {
            return (buffer, 0);
        };
        many.pending -= 1;
        if many.pending != 0 || !many.is_spent {
            return (buffer, 0);
        }
        self.receives.remove(key.index);
        (buffer, sys::FI_MULTI_RECV)
    }

    /// A part of the memory of a receive for several messages, for one of so many bytes.
    pub(super) fn cut(&mut self, key: Key, length: usize) -> Option<Receive> {
        let Self { receives, untagged, .. } = self;
        let whole = receives.get_mut(key)?;
        let memory = whole.buffer.whole()?;
        let Share::Many(many) = &mut whole.share else { return None };
        let part = memory.slice(many.used, length.min(memory.len() - many.used));
        many.used += part.len();
        many.pending += 1;
        if memory.len() - many.used < many.least.max(1) {
            many.is_spent = true;
            many.id.take().and_then(|id| untagged.withdraw(id));
        }
        let (context, wants) = (whole.context, whole.wants);
        Some(Receive { context, buffer: Buffer::of(part), wants, is_tagged: false, share: Share::Of(key) })
    }

    /// A receive that has met no message ends so.
    pub(super) fn ended(&mut self, receive: &Receive, code: i32) {
        let message = Received { peer: u32::MAX, label: Label::default(), length: 0, room: 0, code };
        self.received(receive, None, &message);
    }

    /// A message has been sent, or not.
    pub(super) fn sent(&mut self, key: Key, code: i32) {
        if self.sends.get(key).is_none() {
            return;
        }
        let (Some(outgoing), Some(ends)) = (self.sends.remove(key.index), &self.ends) else { return };
        if let Some(counter) = &ends.sends {
            if code == 0 { counter.add(1) } else { counter.add_failed(1) }
        }
        let Some(direction) = &ends.transmit else { return };
        let of = sent(outgoing.context, outgoing.label);
        match (code, outgoing.place) {
            (0, Some(place)) if outgoing.wants => direction.cq.put(place, Entry::Done(of)),
            (0, place) => direction.cq.release_some(place),
            (code, Some(place)) => {
                direction.cq.put(place, Entry::Failed(Failure { of, overflow: 0, code }));
            }
            (code, None) => {
                if let Ok(place) = direction.cq.reserve() {
                    direction.cq.put(place, Entry::Failed(Failure { of, overflow: 0, code }));
                }
            }
        }
    }

    /// Puts failures into places that have become free.
    pub(super) fn settle(&mut self) {
        while !self.owed.is_empty() && self.has_place() {
            let direction = self.ends.as_ref().and_then(|ends| ends.receive.as_ref());
            let (Some(entry), Some(direction)) = (self.owed.pop_front(), direction) else { return };
            if let Some(place) = self.place.take() {
                direction.cq.put(place, entry);
            }
        }
    }

    /// Whether there are such failures.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The number that the next unexpected message is going to have.
    pub(super) fn vacant(&mut self) -> u32 {
        if let Some(index) = self.free.last() {
            return *index;
        }
        let index = self.messages.len() as u32;
        self.messages.push(Unexpected { peer: 0, label: Label::default(), length: 0, what: What::Nothing });
        self.free.push(index);
        index
    }

    /// It has it now.
    pub(super) fn fill(&mut self, message: Unexpected) {
        let index = self.vacant();
        self.free.pop();
        self.messages[index as usize] = message;
    }

    /// Takes an unexpected message out.
    pub(super) fn empty(&mut self, index: u32) -> Unexpected {
        let nothing = Unexpected { peer: 0, label: Label::default(), length: 0, what: What::Nothing };
        self.free.push(index);
        std::mem::replace(&mut self.messages[index as usize], nothing)
    }

    /// What is known of it.
    pub(super) fn message(&self, index: u32) -> &Unexpected {
        &self.messages[index as usize]
    }

    /// An empty vector.
    pub(super) fn room(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Which is no longer needed.
    pub(super) fn give_room(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// The matching of tagged messages, or of others.
    pub(super) fn matching(&mut self, is_tagged: bool) -> &mut Matching<Key, u32> {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(ends) = &self.ends else { return };
        if let Some(direction) = &ends.receive {
            direction.cq.release_some(self.place.take());
            for index in self.pulls.indices() {
                direction.cq.release_some(self.pulls.remove(index).and_then(|pull| pull.place));
            }
        }
        if let Some(direction) = &ends.transmit {
            for index in self.sends.indices() {
                direction.cq.release_some(self.sends.remove(index).and_then(|outgoing| outgoing.place));
            }
        }
    }
}

/// What a receive has met.
pub(super) struct Received {
    pub(super) peer: u32,
    pub(super) label: Label,
    pub(super) length: usize,
    /// Bytes that there was room for.
    pub(super) room: usize,
    /// 0, or why it has failed.
    pub(super) code: i32,
}

/// `FI_ETRUNC`.
const TRUNCATED: i32 = 265;

/// What a completion says of a message that was sent.
#[inline(always)]
pub(super) fn sent(context: Foreign, label: Label) -> Completion {
    let kind = if label.tag.is_some() { sys::FI_TAGGED } else { sys::FI_MSG };
    Completion {
        context,
        flags: sys::FI_SEND | kind,
        length: 0,
        buffer: Foreign::NULL,
        data: 0,
        tag: label.tag.unwrap_or(0),
        source: NOBODY,
    }
}

/// The endpoint of a name.
pub(in super::super) fn id_of(name: &Name) -> NameId {
    NameId { device: name.device.to_bits(), cdm_id: name.cdm_id, incarnation: name.incarnation }
}
