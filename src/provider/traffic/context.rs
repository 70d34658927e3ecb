//! [`Context`]: what an endpoint has under way, and with whom.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV4;
use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::av::Av;
use super::super::cntr::Counter;
use super::super::cq::{Entry, Place};
use super::super::endpoint::Direction;
use super::super::errno::{Errno, Outcome};
use super::super::names::{Known, NOBODY};
use super::super::regions::Regions;
use super::buffer::Buffer;
use super::ending::Instead;
use super::forget::KEPT;
use super::rma::{Operation, Waiting};
use super::shared::Queue;
use super::target::Target;
use crate::engine::connect::{EndpointId, Vc};
use crate::engine::matching::{Matching, MessageId, ReceiveId};
use crate::engine::slab::{Key, Slab};
use crate::error::Error;
use crate::gni::{Mailbox, Place as Far};
use crate::shm::CrossMemory;
use crate::sync::EngineCell;
use crate::wire::gni::context;
use crate::wire::gni::datagram::{Key as Secret, NameId};
use crate::wire::gni::mailbox::{self, HEAD, Label, Lies};

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
    /// What counts reading the memory of peers, and writing there.
    pub reads: Option<Arc<Counter>>,
    /// The second.
    pub writes: Option<Arc<Counter>>,
    /// What counts that peers read memory here, and write.
    pub remote_reads: Option<Arc<Counter>>,
    /// The second.
    pub remote_writes: Option<Arc<Counter>>,
    /// Messages may come to it.
    pub takes: bool,
    /// The memory that peers may reach.
    pub regions: Arc<Regions>,
    /// What they may do there by this endpoint (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`).
    pub rights: u64,
    /// Receives may name their source.
    pub is_directed: bool,
    /// Completions name it.
    pub tells_source: bool,
    /// The receives that it shares with others.
    pub queue: Option<Arc<EngineCell<Queue>>>,
}

/// A posted receive.
pub(super) struct Receive {
    pub(super) context: Foreign,
    pub(super) buffer: Buffer,
    /// It has an entry when it ends well.
    pub(super) wants: bool,
    pub(super) is_tagged: bool,
    pub(super) share: Share,
    pub(super) instead: Option<Box<Instead>>,
}

/// Whose memory a receive has.
pub(super) enum Share {
    /// Its own.
    Own,
    /// Its own, for as many messages as there is room for.
    Many(Box<Many>),
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
    pub(super) instead: Option<Box<Instead>>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    Queued,
    /// A part of it is still here, at the head of what goes to the peer. Nothing of this side is needed when it has ended.
    Leaving,
    /// The peer knows of it, and is to say when it has it.
    Told,
    /// The peer has asked for it in pieces: for what, how many bytes, how many are on their way.
    Pieces(u64, usize, usize),
}

/// A receive that is filled piece by piece.
pub(super) struct Pull {
    pub(super) receive: Receive,
    pub(super) peer: u32,
    pub(super) label: Label,
    /// What the sender calls it.
    pub(super) send: u64,
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
    /// What is done to memory.
    Remote(Waiting),
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
        Self::of(kind, &head[..length])
    }

    pub(super) fn of(kind: u8, head: &[u8]) -> Self {
        let mut bytes = [0; 24];
        bytes[..head.len()].copy_from_slice(head);
        Self { kind, length: head.len(), bytes }
    }
}

/// Another endpoint, and the connection with it, if there is one.
pub(super) struct Peer {
    /// The life of it that is connected or wanted.
    pub(super) name: NameId,
    /// The peer that a transmit or receive context is of: whom receives name. Any other is its own.
    pub(super) whole: u32,
    /// The life that its address names; 0: whichever has the name.
    pub(super) asked: u64,
    /// Where it is on another node, and what it is told by.
    pub(super) far: Option<(SocketAddrV4, Secret)>,
    pub(super) vc: Option<Vc>,
    pub(super) mailbox: Option<Mailbox>,
    pub(super) is_connected: bool,
    /// Why the last connection has failed, or was lost, until somebody hears of it or there is another.
    pub(super) failed: Option<i32>,
    /// The life of it that was connected, or wanted, last.
    pub(super) past: u64,
    /// When it went, of all that did; 0: it never has.
    pub(super) gone_at: u64,
    /// Why no message of a life of it comes any more, and which that is; until there is another connection.
    pub(super) over: Option<(u64, i32)>,
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
    /// What is behind a fence, and whether each has one.
    pub(super) held: VecDeque<(Item, bool)>,
    /// What it wants of memory here.
    pub(super) target: Target,
    /// Its number in the address vector, as that was in this version.
    pub(super) number: (u64, u64),
}

impl Peer {
    /// There is a connection, or there is going to be one, or something is to be looked for.
    pub(super) fn is_busy(&self) -> bool {
        let waits = !self.queue.is_empty() || !self.held.is_empty();
        waits || self.vc.is_some() || self.mailbox.is_some() || self.is_ready || self.is_polled
    }

    /// Why no message of it comes any more, if it is known that its life is over: that of an address which names none goes on
    /// with the next.
    #[inline]
    pub(super) fn end(&self) -> Option<i32> {
        let (life, code) = self.over?;
        (self.vc.is_none() && life != 0 && life == self.asked).then_some(code)
    }

    /// Has bytes copied from or to its private memory, as it has said; `None` where we are not let in. It may have closed its
    /// endpoint since: then that memory is not what it was any more.
    pub(super) fn copy(
        &self,
        copy: impl FnOnce(CrossMemory) -> crate::error::Result<()>,
    ) -> Option<Result<(), Errno>> {
        let (memory, mailbox) = (self.memory?, self.mailbox.as_ref()?);
        match mailbox.copy(|| copy(memory)) {
            None | Some(Err(Error::System(libc::ESRCH))) => Some(Err(Errno(libc::ECONNRESET))),
            Some(Ok(())) => Some(Ok(())),
            // It is forbidden after all.
            Some(Err(Error::System(libc::EPERM | libc::ENOSYS))) => None,
            Some(Err(_)) if mailbox.has_ended() => Some(Err(Errno(libc::ECONNRESET))),
            Some(Err(_)) => Some(Err(Errno(libc::EFAULT))),
        }
    }

    /// An address of it names this life, or with 0 any.
    ///
    /// # Errors
    /// `FI_ECONNREFUSED`: that life is over. `FI_EAGAIN`: it is not known to be there yet.
    fn ask_for(&mut self, incarnation: u64) -> Outcome<()> {
        let known = self.name.incarnation;
        if self.vc.is_none() && self.queue.is_empty() && self.held.is_empty() {
            self.asked = incarnation;
            self.name.incarnation = incarnation;
        } else if incarnation != 0 && incarnation != known {
            let is_past = self.is_connected && incarnation < known;
            return Err(if is_past { Errno(libc::ECONNREFUSED) } else { Errno::AGAIN });
        } else if incarnation != 0 {
            self.asked = incarnation;
        }
        Ok(())
    }
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
    /// Where other nodes reach it.
    pub(super) far: Option<Far>,
    pub(super) ends: Option<Ends>,
    /// It has receives that it shares.
    pub(super) is_sharing: bool,
    /// Messages may come to it.
    pub(super) takes: bool,
    pub(super) tagged: Matching<Key, u32>,
    pub(super) untagged: Matching<Key, u32>,
    pub(super) receives: Slab<Receive>,
    pub(super) messages: Vec<Unexpected>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    pub(super) sends: Slab<Outgoing>,
    pub(super) pulls: Slab<Pull>,
    pub(super) operations: Slab<Operation>,
    pub(super) peers: Vec<Peer>,
    pub(super) by_name: HashMap<(u32, u32), u32>,
    /// Places of peers that were forgotten; how many others there are when it is looked for more; and how often one has gone.
    pub(super) forgotten: Vec<u32>,
    pub(super) many: usize,
    pub(super) departures: u64,
    addresses: Vec<Address>,
    version: u64,
    /// Messages that were claimed, by the context of who has.
    pub(super) claimed: HashMap<usize, (bool, MessageId)>,
    /// For the next that is received.
    pub(super) place: Option<Place>,
    /// Entries for which there was no place.
    pub(super) owed: VecDeque<Entry>,
    /// For a message of several pieces.
    pub(super) scratch: Vec<u8>,
    /// Peers who are to hear something.
    pub(super) told: Vec<u32>,
    /// Messages that are read though nobody has asked for many; all of a peer are, after which nothing comes of it.
    pub(super) let_in: usize,
    pub(super) is_last: bool,
    /// One that was kept has been received.
    pub(super) has_received: bool,
}

/// Buffers that are kept for messages to come, at most.
const SPARE: usize = 64;

impl Context {
    pub(super) fn new(endpoint: EndpointId, name: NameId, far: Option<Far>, key: [u8; 16]) -> Self {
        Self {
            endpoint,
            name,
            far,
            ends: None,
            is_sharing: false,
            takes: true,
            tagged: Matching::new(POSTED, key),
            untagged: Matching::new(POSTED, key),
            receives: Slab::new(),
            messages: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            sends: Slab::new(),
            pulls: Slab::new(),
            operations: Slab::new(),
            peers: Vec::new(),
            by_name: HashMap::new(),
            forgotten: Vec::new(),
            many: 2 * KEPT,
            departures: 0,
            addresses: Vec::new(),
            version: 0,
            claimed: HashMap::new(),
            place: None,
            owed: VecDeque::new(),
            scratch: Vec::new(),
            told: Vec::new(),
            let_in: 0,
            is_last: false,
            has_received: false,
        }
    }

    pub(super) fn ends(&self) -> Outcome<&Ends> {
        self.ends.as_ref().ok_or(Errno::OPBADSTATE)
    }

    /// Which peer has this number.
    #[inline(always)]
    pub(super) fn peer_of(&mut self, number: u64) -> Outcome<u32> {
        match self.known_peer(number) {
            Some(peer) => Ok(peer),
            None => self.look_up(number),
        }
    }

    /// The same, where it was looked up in this version of the vector.
    #[inline(always)]
    pub(super) fn known_peer(&self, number: u64) -> Option<u32> {
        let version = self.ends.as_ref()?.av.version();
        let address = self.addresses.get(number as u32 as usize)?;
        (self.version == version && address.number == number).then_some(address.peer)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, number: u64) -> Outcome<u32> {
        let version = self.ends()?.av.version();
        if self.version != version {
            self.addresses.clear();
            self.version = version;
        }
        let known = self.ends()?.av.get(number)?;
        let far = if known.is_far { Some(self.way_to(&known)?) } else { None };
        let peer = self.peer_named(known.id);
        let there = &mut self.peers[peer as usize];
        there.far = far;
        there.ask_for(known.id.incarnation)?;
        let index = number as u32 as usize;
        if self.addresses.len() <= index {
            self.addresses.resize(index + 1, NOT_KNOWN);
        }
        self.addresses[index] = Address { number, peer };
        Ok(peer)
    }

    /// Where a peer of another node is, and what it is told by.
    fn way_to(&self, peer: &Known) -> Outcome<(SocketAddrV4, Secret)> {
        let Some(far) = self.far.filter(|_| peer.name.port != 0) else {
            return Err(Errno(libc::EHOSTUNREACH));
        };
        let told = Some(peer.name.key).filter(|key| *key != [0; 16]);
        let key = told.or(far.shared).ok_or(Errno::NOKEY)?;
        Ok((SocketAddrV4::new(peer.name.device, peer.name.port), key))
    }

    /// The peer of this number, whichever life of it that names.
    pub(super) fn peer_at(&mut self, number: u64) -> Outcome<u32> {
        let id = self.ends()?.av.get(number)?.id;
        Ok(self.peer_named(id))
    }

    /// Numbers are looked up again when they are used next.
    pub(super) fn forget_addresses(&mut self) {
        self.addresses.clear();
    }

    /// The peer of this name, from now on if there was none.
    pub(super) fn peer_named(&mut self, name: NameId) -> u32 {
        let endpoint = context::whole(name.cdm_id);
        let whole = (endpoint != name.cdm_id).then(|| self.peer_named(NameId { cdm_id: endpoint, ..name }));
        let known = self.by_name.get(&(name.device, name.cdm_id)).copied();
        let Some(peer) = known else { return self.meet_peer(name, whole) };
        if let Some(known) = self.peers.get_mut(peer as usize)
            && known.vc.is_none()
            && name.incarnation > known.name.incarnation
        {
            known.name = name;
        }
        peer
    }

    /// One that was not known, in a place of its own.
    fn meet_peer(&mut self, name: NameId, whole: Option<u32>) -> u32 {
        let next = self.peers.len() as u32;
        let peer = self.forgotten.pop().unwrap_or(next);
        let there = Peer {
            name,
            whole: whole.unwrap_or(peer),
            asked: 0,
            far: None,
            vc: None,
            mailbox: None,
            is_connected: false,
            failed: None,
            past: 0,
            gone_at: 0,
            over: None,
            is_heard: false,
            is_polled: false,
            is_ready: false,
            closing: None,
            memory: None,
            queue: VecDeque::new(),
            held: VecDeque::new(),
            target: Target::default(),
            number: (u64::MAX, NOBODY),
        };
        match self.peers.get_mut(peer as usize) {
            Some(place) => *place = there,
            None => self.peers.push(there),
        }
        self.by_name.insert((name.device, name.cdm_id), peer);
        peer
    }

    /// What a completion says of who has sent.
    pub(super) fn source(&mut self, peer: u32) -> u64 {
        let Some(ends) = self.ends.as_ref().filter(|ends| ends.tells_source) else { return NOBODY };
        let version = ends.av.version();
        let Some(known) = self.peers.get_mut(peer as usize) else { return NOBODY };
        if known.number.0 != version {
            known.number = (version, ends.av.find(&known.name).unwrap_or(NOBODY));
        }
        known.number.1
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
        self.has_received = true;
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

    /// Nobody waits any more to hear that a message of this peer has been received.
    pub(super) fn end_messages(&mut self, peer: u32) {
        for message in self.messages.iter_mut().filter(|message| message.peer == peer) {
            if let What::Whole(_, send) = &mut message.what {
                *send = None;
            }
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
        }
        if let Some(direction) = &ends.transmit {
            for index in self.sends.indices() {
                direction.cq.release_some(self.sends.remove(index).and_then(|outgoing| outgoing.place));
            }
            for index in self.operations.indices() {
                direction.cq.release_some(self.operations.remove(index).and_then(|known| known.promise));
            }
        }
    }
}
