//! What the caller has of a module: peers, requests and messages by their handles, and the caller itself.
//!
//! It is the component's, and stays: handles of one module go on where those of the last one have ended. Nothing is
//! borrowed while a function of the caller's runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::abi::{self, Mtl};
use super::record;
use super::requests::{End, Owed, Requests, Wish};
use crate::capi::abi::Endpoint;
use crate::capi::code::{HAWSER_ERR_ARGUMENT, HAWSER_ERR_BUSY, HAWSER_ERR_CLOSED, HAWSER_ERR_STALE, Outcome};
use crate::capi::guard::Poison;
use crate::capi::handle::{FIRST, Key, Kind, Place, Table};
use crate::capi::host::Caller;
use crate::error::{Error, Result};
use crate::mtl;
use crate::sync::{EngineCell, fork};

/// The rank of a process: the upper half of its name.
pub(super) fn rank_of(name: u64) -> Outcome<i32> {
    i32::try_from(name >> 32).map_err(|_| HAWSER_ERR_ARGUMENT)
}

struct Peer {
    name: u64,
    /// The matcher's.
    note: u64,
    /// Calls that are about it.
    holds: u32,
    /// It is being forgotten.
    is_parting: bool,
}

impl Peer {
    /// One more call is about it.
    #[inline]
    fn hold(&mut self) -> Outcome<()> {
        if self.is_parting {
            return Err(HAWSER_ERR_STALE);
        }
        self.holds += 1;
        Ok(())
    }
}

/// Peers by their handles and ranks.
struct Peers {
    table: Table<Peer>,
    ranks: BTreeMap<i32, Key>,
}

impl Peers {
    fn of_rank(&mut self, rank: i32) -> Option<&mut Peer> {
        let key = *self.ranks.get(&rank)?;
        self.table.get_mut(key).ok()
    }
}

/// A peer that a call is about: it is not forgotten before the call is over, whoever asks for that, in another thread or
/// in a callback of the call's own.
pub(super) struct Held<'a> {
    desk: &'a Desk,
    key: Key,
    rank: i32,
}

impl Held<'_> {
    #[inline]
    pub(super) fn rank(&self) -> i32 {
        self.rank
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint { id: self.desk.place.handle(Kind::Endpoint, self.key) }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // A child that a callback has made counts nothing: what another thread of its parent had locked stays locked.
        if !self.desk.is_here() {
            return;
        }
        self.desk.peers.with(|peers| {
            // All are forgotten when the module has ended.
            if let Ok(peer) = peers.table.get_mut(self.key) {
                peer.holds -= 1;
            }
        });
    }
}

/// What the caller has of a module.
pub(super) struct Desk {
    place: Place,
    /// The module's handle.
    module: AtomicU64,
    /// Rank of this process.
    rank: AtomicI32,
    /// The process that has the module, by the number of [`fork::generation`].
    process: AtomicU32,
    is_poisoned: AtomicBool,
    caller: EngineCell<Option<Arc<Caller>>>,
    /// What this process has published.
    record: EngineCell<Vec<u8>>,
    peers: EngineCell<Peers>,
    requests: EngineCell<Requests>,
    messages: EngineCell<Table<u64>>,
}

impl Desk {
    pub(super) const fn new(place: Place) -> Self {
        Self {
            place,
            module: AtomicU64::new(0),
            rank: AtomicI32::new(0),
            process: AtomicU32::new(0),
            is_poisoned: AtomicBool::new(false),
            caller: EngineCell::new(None),
            record: EngineCell::new(Vec::new()),
            peers: EngineCell::new(Peers { table: Table::new(FIRST), ranks: BTreeMap::new() }),
            requests: EngineCell::new(Requests::new()),
            messages: EngineCell::new(Table::new(FIRST)),
        }
    }

    /// A caller wants a module. Before there is one, its transport may have something to tell.
    pub(super) fn serve(&self, caller: &Arc<Caller>, rank: i32) {
        let before = self.caller.with(|known| known.replace(Arc::clone(caller)));
        drop(before);
        self.rank.store(rank, Ordering::Relaxed);
        self.process.store(fork::generation(), Ordering::Relaxed);
    }

    /// A module begins, whose operations have so many words.
    pub(super) fn start(&self, module: Mtl, record: Vec<u8>, words: usize) {
        self.module.store(module.id, Ordering::Relaxed);
        self.is_poisoned.store(false, Ordering::Relaxed);
        self.record.with(|own| *own = record);
        self.requests.with(|requests| requests.start(words));
    }

    /// The module.
    #[inline]
    pub(super) fn module(&self) -> Mtl {
        Mtl { id: self.module.load(Ordering::Relaxed) }
    }

    /// Rank of this process.
    #[inline]
    pub(super) fn rank(&self) -> i32 {
        self.rank.load(Ordering::Relaxed)
    }

    /// Whether this is the process that has the module, and not a child that a callback has made.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.process.load(Ordering::Relaxed) == fork::generation()
    }

    /// Whether a panic has happened in it.
    #[inline]
    pub(super) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }

    /// The caller, while it has the component open.
    pub(super) fn caller(&self) -> Option<Arc<Caller>> {
        self.caller.with(|caller| caller.clone())
    }

    /// The caller has closed the component.
    pub(super) fn dismiss(&self) {
        drop(self.caller.with(Option::take));
    }

    /// Makes peers known, and holds each: none if two of one rank have different names, or one is being forgotten.
    pub(super) fn meet(&self, names: &[u64]) -> Outcome<Vec<Held<'_>>> {
        let ranks = names.iter().map(|name| rank_of(*name)).collect::<Outcome<Vec<i32>>>()?;
        let keys = self.peers.with(|peers| {
            let mut met = BTreeMap::new();
            for (name, rank) in names.iter().zip(&ranks) {
                let known = peers.of_rank(*rank);
                if known.as_ref().is_some_and(|peer| peer.is_parting) {
                    return Err(HAWSER_ERR_BUSY);
                }
                let known = known.map(|peer| peer.name);
                if known.or_else(|| met.insert(*rank, *name)).is_some_and(|other| other != *name) {
                    return Err(HAWSER_ERR_ARGUMENT);
                }
            }
            let mut found = Vec::with_capacity(names.len());
            for (name, rank) in names.iter().zip(&ranks) {
                let key = match peers.ranks.get(rank) {
                    Some(key) => *key,
                    None => peers.table.insert(Peer { name: *name, note: 0, holds: 0, is_parting: false })?,
                };
                peers.ranks.insert(*rank, key);
                found.push(key);
            }
            for key in &found {
                peers.table.get_mut(*key)?.hold()?;
            }
            Ok(found)
        })?;
        Ok(keys.into_iter().zip(ranks).map(|(key, rank)| Held { desk: self, key, rank }).collect())
    }

    /// A peer that was met now is not reached: forgets it, unless another call has reached it or is about to.
    pub(super) fn give_up(&self, held: &Held<'_>) {
        self.peers.with(|peers| {
            if peers.table.get_mut(held.key).is_ok_and(|peer| peer.note == 0 && peer.holds == 1) {
                peers.ranks.remove(&held.rank);
                let _gone = peers.table.remove(held.key);
            }
        });
    }

    /// The peer behind an endpoint, for the length of a call.
    #[inline]
    pub(super) fn hold(&self, endpoint: Endpoint) -> Outcome<Held<'_>> {
        let key = self.place.key(Kind::Endpoint, endpoint.id).ok_or(HAWSER_ERR_STALE)?;
        let name = self.peers.with(|peers| {
            let peer = peers.table.get_mut(key)?;
            peer.hold().map(|()| peer.name)
        })?;
        // The rank was looked at when they met.
        Ok(Held { desk: self, key, rank: (name >> 32) as i32 })
    }

    /// The name behind an endpoint.
    #[inline]
    pub(super) fn name_at(&self, endpoint: Endpoint) -> Outcome<u64> {
        let key = self.place.key(Kind::Endpoint, endpoint.id).ok_or(HAWSER_ERR_STALE)?;
        self.peers.with(|peers| peers.table.get_mut(key).map(|peer| peer.name))
    }

    /// The endpoint of a rank; zeros where there is none.
    fn endpoint_of(&self, rank: i32) -> Endpoint {
        let key = self.peers.with(|peers| peers.ranks.get(&rank).copied());
        Endpoint { id: key.map_or(0, |key| self.place.handle(Kind::Endpoint, key)) }
    }

    /// Begins to forget peers: their ranks. None if one of the handles is stale, and none while a call or a request is
    /// about one of them alone.
    pub(super) fn begin_parting(&self, endpoints: &[Endpoint]) -> Outcome<Vec<i32>> {
        let given = endpoints.iter().filter(|endpoint| endpoint.id != 0);
        let key = |endpoint: &Endpoint| self.place.key(Kind::Endpoint, endpoint.id).ok_or(HAWSER_ERR_STALE);
        let keys = given.map(key).collect::<Outcome<Vec<Key>>>()?;
        self.peers.with(|peers| {
            let mut ranks = Vec::with_capacity(keys.len());
            let mut is_held = false;
            for key in &keys {
                let peer = peers.table.get_mut(*key)?;
                if peer.is_parting {
                    return Err(HAWSER_ERR_STALE);
                }
                is_held |= peer.holds > 0;
                ranks.push((peer.name >> 32) as i32);
            }
            // Whoever begins a request holds its peer until the request is in the table.
            if is_held || self.requests.with(|requests| requests.any_with(&ranks)) {
                return Err(HAWSER_ERR_BUSY);
            }
            for key in &keys {
                peers.table.get_mut(*key)?.is_parting = true;
            }
            Ok(ranks)
        })
    }

    /// Forgets them.
    pub(super) fn part(&self, ranks: &[i32]) {
        self.peers.with(|peers| {
            for rank in ranks {
                let key = peers.ranks.remove(rank);
                let _gone = key.map(|key| peers.table.remove(key));
            }
        });
    }

    /// Whether there is a peer of this rank.
    #[inline]
    pub(super) fn is_known(&self, rank: i32) -> bool {
        self.peers.with(|peers| peers.ranks.contains_key(&rank))
    }

    /// What the matcher has noted about a peer; nothing of one that is not known.
    #[inline]
    pub(super) fn note(&self, rank: i32) -> u64 {
        self.peers.with(|peers| peers.of_rank(rank).map_or(0, |peer| peer.note))
    }

    /// Notes something about a peer.
    pub(super) fn set_note(&self, rank: i32, note: u64) {
        self.peers.with(|peers| {
            if let Some(peer) = peers.of_rank(rank) {
                peer.note = note;
            }
        });
    }

    /// What a peer has published, if it is a name that the matcher can use.
    pub(super) fn published(&self, key: &'static std::ffi::CStr, rank: i32) -> Result<Vec<u8>> {
        let name = self.peers.with(|peers| peers.of_rank(rank).map(|peer| peer.name));
        let (name, caller) = name.zip(self.caller()).ok_or(Error::Unreachable)?;
        let own = self.record.with(|record| record.clone());
        let record = if name == caller.name() { own.clone() } else { caller.published(key, name)? };
        record::name(&own, &record)
    }

    /// The requests.
    #[inline]
    pub(super) fn requests<R>(&self, look: impl FnOnce(&mut Requests) -> R) -> R {
        self.requests.with(look)
    }

    /// The handle of a request.
    #[inline]
    pub(super) fn request(&self, key: Key) -> abi::Request {
        abi::Request { id: self.place.handle(Kind::Request, key) }
    }

    /// Which request a handle names.
    pub(super) fn key_of(&self, request: abi::Request) -> Outcome<Key> {
        self.place.key(Kind::Request, request.id).ok_or(HAWSER_ERR_STALE)
    }

    /// Begins a request.
    #[inline]
    pub(super) fn begin(&self, wish: Wish) -> Outcome<(Key, std::ptr::NonNull<u64>)> {
        self.requests.with(|requests| requests.begin(wish))
    }

    /// The matcher has ended a request.
    #[inline]
    pub(super) fn end(&self, key: Key, end: End) {
        if let Some(owed) = self.requests.with(|requests| requests.end(key, end)) {
            self.call(&owed);
        }
    }

    /// Calls the callbacks that wait for progress. Returns how many.
    #[inline]
    pub(super) fn pay(&self) -> usize {
        let mut count = 0;
        while let Some(owed) = self.requests.with(Requests::next_owed) {
            self.call(&owed);
            count += 1;
            if !self.is_here() {
                break;
            }
        }
        count
    }

    /// The envelope of a message for C.
    pub(super) fn envelope(&self, size: usize, seen: mtl::Envelope) -> abi::Envelope {
        let mtl::Envelope { source: rank, tag, len: length } = seen;
        abi::Envelope { size, length, source: self.endpoint_of(rank), rank, tag }
    }

    fn call(&self, owed: &Owed) {
        let Owed { key, callback, context, end } = owed;
        let Some(callback) = callback else { return };
        let envelope = end.envelope.map(|seen| self.envelope(size_of::<abi::Envelope>(), seen));
        let shown = envelope.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the caller's function, with what it gave for it, and an envelope or none that lives for the call;
        // called once.
        unsafe { callback(context.0, self.module(), self.request(*key), end.status, shown) };
    }

    /// A place for a message that may be claimed.
    pub(super) fn reserve_message(&self) -> Outcome<Key> {
        self.messages.with(|messages| messages.insert(0))
    }

    /// The message that was claimed; none has no handle.
    pub(super) fn claim(&self, key: Key, message: Option<u64>) -> abi::Message {
        self.messages.with(|messages| match (message, messages.get_mut(key)) {
            (Some(message), Ok(kept)) => {
                *kept = message;
                abi::Message { id: self.place.handle(Kind::Message, key) }
            }
            _ => {
                let _nothing = messages.remove(key);
                abi::Message { id: 0 }
            }
        })
    }

    /// A message of the caller's, which has it no longer.
    pub(super) fn take(&self, message: abi::Message) -> Outcome<u64> {
        let key = self.place.key(Kind::Message, message.id).ok_or(HAWSER_ERR_STALE)?;
        self.messages.with(|messages| messages.remove(key))
    }

    /// The module has ended, with its matcher, which may still use the memory of operations or not. All that is still
    /// owed is paid.
    pub(super) fn close(&self, is_unused: bool) {
        let owed = self.requests.with(|requests| requests.close(is_unused, HAWSER_ERR_CLOSED));
        for owed in &owed {
            self.call(owed);
            if !self.is_here() {
                return;
            }
        }
        self.peers.with(|peers| {
            peers.ranks.clear();
            drop(peers.table.drain());
        });
        self.messages.with(|messages| drop(messages.drain()));
        self.record.with(|own| *own = Vec::new());
    }
}

impl Poison for Desk {
    fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Relaxed);
    }
}
