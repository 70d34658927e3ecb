//! Registered memory: what peers may read and write, and what is read into and written from here.
//!
//! What is registered is looked up before anything else is: a registration that covers the memory, and has the rights, serves
//! once more. Where the host [tells](unmapped) of memory before it is unmapped, one that nobody uses any more is kept, in a
//! [`Cache`], and what is told is read before each look into it: what is found is of the memory that is there now. A
//! transfer that is under way has the registration itself, which lives until that is over, whatever becomes of it here.
//!
//! What is kept has the rights that it was first asked for with, and exactly its bytes: a peer that keeps a key can do afterwards
//! what it could before, and whoever is told the key later no more than that. The memory of libraries is not kept, for the
//! loader unmaps it untold.
//!
//! Where the host does not tell, or the user does not want it, there is no cache: what is registered is what somebody has asked
//! for and has not given back, and a transfer from or to memory that nobody has registered registers it for itself alone.
//!
//! Nothing is deregistered within somebody's `munmap`: that is done by the next call that comes here.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::cache::{Bounds, Cache, Key, Rights, Span};
use super::component::Rail;
use super::counters::Counters;
use crate::btl::{self, Lent, Registration};
use crate::engine::cm::Dialect;
use crate::error::{Error, Result};
use crate::sync::unmapped::{self, News, Reader};
use crate::verbs::{Access, Mr};

/// What is registered now.
pub(super) struct Registrations(Mutex<Table>);

struct Table {
    cache: Cache<Arc<Mr>>,
    /// Which those are that peers have keys of: a device may give none to others.
    remote: HashMap<u32, Key>,
    /// The number of the next one.
    next: Key,
    /// Where what is told was read up to; none where nothing is told, and nothing is kept.
    reader: Option<Reader>,
}

impl Table {
    /// One that serves for this.
    fn find(&mut self, span: Span, rights: Rights) -> Option<(Key, Arc<Mr>)> {
        self.cache.find(span, rights).map(|(key, mr)| (key, Arc::clone(mr)))
    }

    /// Reads what was told since the last time.
    fn refresh(&mut self) {
        let Self { cache, reader, .. } = self;
        let Some(told) = reader else { return };
        if !unmapped::is_told() {
            // Others have changed what tells, and memory may have gone since.
            *reader = None;
            return cache.keep_none();
        }
        told.read(|news| match news {
            News::Range(start, end) => cache.forget((start, end)),
            News::All => cache.forget_all(),
        });
    }
}

/// What memory is registered for, to the device and to the table.
#[derive(Clone, Copy)]
struct Purpose {
    access: Access,
    rights: Rights,
}

impl Purpose {
    /// A peer uses it; so does this side, as a rule.
    fn of_peers(access: btl::Access, is_iwarp: bool) -> Self {
        let mut it = Self { access: Access::LOCAL_WRITE, rights: Rights::FILLED };
        if access.allows(btl::Access::READ) {
            it = it.and(Access::REMOTE_READ, Rights::READ);
        }
        if access.allows(btl::Access::ATOMIC) {
            it = it.and(Access::REMOTE_ATOMIC, Rights::CHANGED);
        }
        // Where an RDMA read brings something, iWARP takes it for a write of the peer's.
        if access.allows(btl::Access::WRITE) || is_iwarp {
            it = it.and(Access::REMOTE_WRITE, Rights::WRITTEN);
        }
        it
    }

    /// This side writes from there, or reads into it.
    const fn of_transfer(is_read: bool, is_iwarp: bool) -> Self {
        match (is_read, is_iwarp) {
            (false, _) => Self { access: Access::LOCAL_READ, rights: Rights::NONE },
            (true, false) => Self { access: Access::LOCAL_WRITE, rights: Rights::FILLED },
            (true, true) => {
                Self { access: Access::READ_SINK_OF_IWARP, rights: Rights::FILLED.and(Rights::WRITTEN) }
            }
        }
    }

    fn and(self, access: Access, rights: Rights) -> Self {
        Self { access: self.access | access, rights: self.rights.and(rights) }
    }
}

/// Whether there is another way than to register memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It can be copied instead: messages have their part of what may be locked.
    Spared,
    /// There is none, for windows: whatever the kernel takes is registered.
    Absolute,
}

impl Need {
    /// Of what a peer may use: windows are for everything, messages go one way. Of openib's memory nothing is known but the key, and
    /// openib itself knows of no memory that has none.
    pub(super) fn of(access: btl::Access, dialect: Dialect) -> Self {
        let is_message = access == btl::Access::READ || access == btl::Access::WRITE;
        if is_message && dialect == Dialect::Own { Self::Spared } else { Self::Absolute }
    }
}

/// Whether no transfer is under way that uses it.
fn is_free(mr: &Arc<Mr>) -> bool {
    Arc::strong_count(mr) == 1
}

/// Peers read what cannot be written.
const READ_ONLY: Purpose = Purpose { access: Access::REMOTE_READ, rights: Rights::READ };

impl Registrations {
    /// `keeps`: the host tells of memory that goes from now on, and so much is kept.
    pub(super) fn new(keeps: Option<Bounds>) -> Self {
        let bounds = keeps.unwrap_or(Bounds { count: 0, bytes: 0 });
        let reader = keeps.map(|_| Reader::new());
        Self(Mutex::new(Table { cache: Cache::new(bounds), remote: HashMap::new(), next: 0, reader }))
    }

    /// Opens memory to peers.
    pub(super) fn register(&self, memory: Lent, access: btl::Access, rail: &Rail) -> Option<Registration> {
        let span = span(memory);
        let registration = |key| Registration {
            id: span.0 as u32,
            generation: (span.0 as u64 >> 32) as u32,
            length: memory.len() as u64,
            access,
            key,
        };
        let purpose = Purpose::of_peers(access, rail.port.is_iwarp());
        let is_cached = {
            let mut table = self.0.lock();
            table.refresh();
            let is_cached = table.reader.is_some();
            let mut found = table.find(span, purpose.rights).filter(|_| is_cached);
            // What cannot be written was registered to be read alone.
            if found.is_none() && is_cached && access == btl::Access::READ {
                found = table.find(span, READ_ONLY.rights);
            }
            if let Some((key, mr)) = found {
                table.cache.hold(key);
                self.part(table, rail);
                rail.counters.num_cache_hits.raise_by_one();
                return Some(registration(mr.remote_key()));
            }
            self.part(table, rail);
            is_cached
        };
        let need = Need::of(access, rail.port.dialect);
        let made = self.pin(memory, purpose.access, need, rail).map(|mr| (mr, purpose.rights));
        let (mr, rights) = match made {
            Ok(made) => made,
            // Memory that cannot be written is read all the same.
            Err(_) if access == btl::Access::READ => {
                (self.pin(memory, READ_ONLY.access, need, rail).ok()?, READ_ONLY.rights)
            }
            Err(_) => return None,
        };
        rail.counters.num_registrations.raise_by_one();
        let remote = mr.remote_key();
        let (mut table, key) = self.insert(span, rights, Arc::new(mr), is_cached, rail);
        table.remote.insert(remote, key);
        self.part(table, rail);
        Some(registration(remote))
    }

    /// Closes it again. What is under way still uses it.
    pub(super) fn deregister(&self, registration: Registration, rail: &Rail) {
        let mut table = self.0.lock();
        table.refresh();
        if let Some(&key) = table.remote.get(&registration.key) {
            table.cache.release(key);
        }
        self.part(table, rail);
    }

    /// The registration of memory that is here, or a new one.
    ///
    /// # Errors
    /// As [`Mr::register`].
    pub(super) fn of(&self, local: Lent, is_read: bool, need: Need, rail: &Rail) -> Result<Arc<Mr>> {
        let span = span(local);
        let purpose = Purpose::of_transfer(is_read, rail.port.is_iwarp());
        let (found, is_cached) = {
            let mut table = self.0.lock();
            table.refresh();
            let found = table.find(span, purpose.rights).map(|(_, mr)| mr);
            let is_cached = table.reader.is_some();
            self.part(table, rail);
            (found, is_cached)
        };
        if let Some(mr) = found {
            if is_cached {
                rail.counters.num_cache_hits.raise_by_one();
            }
            return Ok(mr);
        }
        rail.counters.num_transfer_registrations.raise_by_one();
        let mr = Arc::new(self.pin(local, purpose.access, need, rail)?);
        if is_cached {
            let (mut table, key) = self.insert(span, purpose.rights, Arc::clone(&mr), true, rail);
            table.cache.release(key);
            self.part(table, rail);
        }
        Ok(mr)
    }

    /// Takes in what was just registered. `is_cached`: it was looked for before. Whoever has done with the table
    /// [parts](Self::part) from it: before, others may not see what is half done.
    fn insert(
        &self,
        span: Span,
        rights: Rights,
        mr: Arc<Mr>,
        is_cached: bool,
        rail: &Rail,
    ) -> (MutexGuard<'_, Table>, Key) {
        if is_cached {
            rail.counters.num_cache_misses.raise_by_one();
        }
        let may_stay = is_cached && !unmapped::goes_untold(span.0) && !unmapped::goes_untold(span.1 - 1);
        let mut table = self.0.lock();
        let key = table.next;
        table.next += 1;
        table.cache.insert(span, rights, key, may_stay, mr);
        (table, key)
    }

    /// Ends what nobody uses, until it was so many bytes; whether there was anything.
    pub(super) fn make_room(&self, bytes: usize, rail: &Rail) -> bool {
        let mut table = self.0.lock();
        let mut given = 0;
        while given < bytes
            && let Some(more) = table.cache.evict(is_free)
        {
            given += more;
        }
        self.part(table, rail);
        given > 0
    }

    /// Registers memory. Where there is no more room, what nobody uses goes.
    fn pin(&self, memory: Lent, access: Access, need: Need, rail: &Rail) -> Result<Mr> {
        let is_bound = need == Need::Spared;
        if is_bound && !rail.port.could_admit(memory, self.0.lock().cache.idle_bytes()) {
            return Err(Error::OutOfResource);
        }
        loop {
            let made = if !is_bound || rail.port.admits(memory) {
                Mr::register(&rail.port.pd, memory, access)
            } else {
                Err(Error::OutOfResource)
            };
            match made {
                Err(Error::OutOfResource) => {
                    let mut table = self.0.lock();
                    let has_given = table.cache.evict(is_free).is_some();
                    self.part(table, rail);
                    if !has_given {
                        return Err(Error::OutOfResource);
                    }
                }
                made => return made,
            }
        }
    }

    /// Lets go of the table, and then ends what has ended in it: that is a call of the system's.
    fn part(&self, mut table: MutexGuard<'_, Table>, rail: &Rail) {
        let ended = table.cache.take_ended();
        for (key, mr) in &ended {
            if table.remote.get(&mr.remote_key()) == Some(key) {
                table.remote.remove(&mr.remote_key());
            }
        }
        count(&table.cache, &rail.counters);
        drop(table);
        drop(ended);
    }
}

fn count(cache: &Cache<Arc<Mr>>, counters: &Counters) {
    let tally = cache.tally();
    counters.num_cache_evictions.set(tally.evictions);
    counters.num_cache_invalidations.set(tally.invalidations);
}

fn span(memory: Lent) -> Span {
    let start = memory.as_ptr().expose_provenance();
    (start, start + memory.len())
}
