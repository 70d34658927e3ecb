//! What this process has opened of another's.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::calls::{Mapped, Pool};
use super::{Contexts, Exported, Kind, Process, Refused};
use crate::cuda::library::{Driver, Error, Result};
use crate::cuda::{Context, Device, Place, sys};

/// How much stays open; 0 is without bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Allocations.
    pub count: usize,
    /// Bytes of them all.
    pub bytes: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Found open.
    pub hits: u64,
    /// Opened.
    pub misses: u64,
    /// Closed to make room.
    pub evictions: u64,
    /// Closed because the owner had freed it, or because it had gone here.
    pub stale: u64,
}

/// So many allocations are closed at most because the driver has something open already.
const NEIGHBOURS: usize = 4;

/// Allocations of one other process's that are open here.
///
/// They stay open, because opening is expensive. What is being used is never closed: it may be more than the bounds
/// say while it is.
pub struct Imports {
    contexts: Arc<Contexts>,
    bounds: Bounds,
    counts: Counts,
    /// Whose they are, as the first has said.
    owner: Option<Process>,
    /// By where they begin in their owner's process.
    open: BTreeMap<u64, Entry>,
    /// Bytes of them all.
    bytes: u64,
    pools: Vec<(u64, Weak<Pool>)>,
    /// How often something was opened or found.
    now: u64,
}

struct Entry {
    mapping: Arc<Mapping>,
    /// When it was last opened or found.
    used: u64,
}

impl Entry {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.mapping) > 1
    }
}

/// An allocation that is open here; closed when this is dropped.
struct Mapping {
    driver: &'static Driver,
    exported: Exported,
    start: usize,
    /// Tells it from what comes to lie there when the program has ended the context; 0 where the driver has no number.
    id: u64,
    device: Device,
    how: How,
}

/// How it was opened.
enum How {
    Handle(Context),
    File(#[expect(dead_code, reason = "dropped with the mapping, which unmaps")] Mapped),
    Pool(Arc<Pool>, Context),
}

impl Mapping {
    fn is_there(&self) -> bool {
        match self.driver.buffer_id(self.start) {
            Ok(id) => id == self.id,
            Err(Error::Gone(_)) => false,
            Err(_) => self.id == 0,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Where the context has gone, this has gone with it, and something else may be there.
        let is_there = match self.driver.buffer_id(self.start) {
            Ok(id) => self.id == 0 || id == self.id,
            Err(Error::Gone(_)) => false,
            Err(_) => true,
        };
        if !is_there {
            return;
        }
        match &self.how {
            How::Handle(context) => {
                if let Ok(_entered) = self.driver.enter(*context) {
                    self.driver.ipc_close(self.start);
                }
            }
            How::Pool(pool, context) => pool.close(*context, self.start),
            How::File(_) => {}
        }
    }
}

/// An allocation of another process's. It stays open as long as this lives.
#[derive(Clone)]
pub struct Opened(Arc<Mapping>);

impl Opened {
    /// Where `len` bytes from an address of its owner's are in this process; `None` where they do not lie in it.
    pub fn at(&self, remote: u64, len: usize) -> Option<usize> {
        let offset = remote.checked_sub(self.0.exported.base)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.0.exported.len).then(|| self.0.start + offset as usize)
    }

    /// What it is for [`Copies`](super::Copies): memory of a device.
    pub fn place(&self) -> Place {
        Place::Device(self.0.device)
    }
}

/// A refusal that says nothing of what else might be tried.
fn refused(error: Error) -> Refused {
    match error {
        Error::NotLoaded | Error::NotInitialized | Error::Deinitialized | Error::OutOfMemory => {
            Refused::NotReady
        }
        Error::NoDevice => Refused::NoDevice,
        Error::Driver(sys::PEER_ACCESS_UNSUPPORTED) => Refused::NoPeerAccess,
        _ => Refused::NotOpened,
    }
}

impl Imports {
    /// None so far.
    pub fn new(contexts: Arc<Contexts>, bounds: Bounds) -> Self {
        Self {
            contexts,
            bounds,
            counts: Counts::default(),
            owner: None,
            open: BTreeMap::new(),
            bytes: 0,
            pools: Vec::new(),
            now: 0,
        }
    }

    /// Opens an allocation, or finds it open. `near` is the memory here that it will be copied to or from.
    ///
    /// # Errors
    /// Why it is not opened.
    pub fn open(&mut self, exported: &Exported, near: Place) -> std::result::Result<Opened, Refused> {
        // One process's memory: else it could have us open what a third one lets only us open.
        if self.owner.is_some_and(|owner| owner != exported.owner) || exported.owner.pid == std::process::id()
        {
            return Err(Refused::NotOpened);
        }
        self.now += 1;
        if let Some(entry) = self.open.get_mut(&exported.base)
            && entry.mapping.exported == *exported
            && entry.mapping.is_there()
        {
            entry.used = self.now;
            self.counts.hits += 1;
            return Ok(Opened(Arc::clone(&entry.mapping)));
        }
        self.close_stale(exported);
        self.make_room(exported.len);
        let mapping = Arc::new(self.open_on_any(exported, near)?);
        self.owner = Some(exported.owner);
        self.counts.misses += 1;
        self.bytes += exported.len;
        self.open.insert(exported.base, Entry { mapping: Arc::clone(&mapping), used: self.now });
        Ok(Opened(mapping))
    }

    /// Closes all but what is being used, which is closed when it no longer is.
    pub fn flush(&mut self) {
        self.open.clear();
        self.bytes = 0;
        self.pools.clear();
    }

    /// What was counted since it was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn close(&mut self, base: u64) {
        if let Some(entry) = self.open.remove(&base) {
            self.bytes -= entry.mapping.exported.len;
        }
    }

    /// Closes what cannot be there any more if the other is.
    fn close_stale(&mut self, exported: &Exported) {
        let end = exported.base + exported.len;
        let over: Vec<u64> = self
            .open
            .range(..end)
            .rev()
            // They do not overlap each other.
            .take_while(|(_, entry)| entry.mapping.exported.base + entry.mapping.exported.len > exported.base)
            .map(|(base, _)| *base)
            .collect();
        for base in over {
            self.close(base);
            self.counts.stale += 1;
        }
    }

    /// Closes what was longest not used, until another of this length is within the bounds.
    fn make_room(&mut self, len: u64) {
        let Bounds { count, bytes } = self.bounds;
        while (count != 0 && self.open.len() >= count)
            || (bytes != 0 && self.bytes.saturating_add(len) > bytes)
        {
            if !self.evict(|entry, _| entry.used) {
                return;
            }
        }
    }

    /// Closes that of which this is the least; `false` where there is nothing to be closed.
    fn evict(&mut self, which: impl Fn(&Entry, u64) -> u64) -> bool {
        let idle = self.open.iter().filter(|(_, entry)| !entry.is_used());
        let Some((&base, _)) = idle.min_by_key(|(base, entry)| which(entry, **base)) else { return false };
        self.close(base);
        self.counts.evictions += 1;
        true
    }

    /// Opens on the device that the memory here is on, or else on that on which the other's is, or else on any that
    /// is in use and reaches it.
    fn open_on_any(&mut self, exported: &Exported, near: Place) -> std::result::Result<Mapping, Refused> {
        let driver = self.contexts.driver();
        let home = self.contexts.number(exported.device);
        let mut devices = self.contexts.in_use()?;
        let preferred = match near {
            Place::Device(device) => Some(device),
            Place::Host => None,
        };
        if let Some(home) = home
            && let Some(index) = devices.iter().position(|device| *device == home)
        {
            devices[..=index].rotate_right(1);
        }
        if let Some(device) = preferred {
            devices.retain(|other| *other != device.ordinal);
            devices.insert(0, device.ordinal);
        }
        if devices.is_empty() {
            return Err(Refused::NotReady);
        }
        let mut why = Refused::NoPeerAccess;
        for device in devices {
            // Where the other's device cannot be seen here, only the attempt tells.
            if home.is_some_and(|home| driver.reaches(device, home) != Ok(true)) {
                continue;
            }
            let context = match preferred {
                Some(preferred) if preferred.ordinal == device => self.contexts.of(preferred),
                _ => self.contexts.on(device),
            };
            let opened =
                context.map_err(refused).and_then(|context| self.open_with_room(exported, device, context));
            match opened {
                Ok(mapping) => return Ok(mapping),
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    /// Opens on a device, and closes others as long as there is no room for it.
    fn open_with_room(
        &mut self,
        exported: &Exported,
        device: i32,
        context: Context,
    ) -> std::result::Result<Mapping, Refused> {
        let mut neighbours = NEIGHBOURS;
        loop {
            let error = match self.open_on(exported, device, context) {
                Ok(mapping) => return Ok(mapping),
                Err(error) => error,
            };
            let closed = match error {
                Error::OutOfMemory | Error::Driver(sys::MAP_FAILED) => self.evict(|entry, _| entry.used),
                // Some drivers open whole blocks, in which several allocations may lie, and each block once. It may
                // be somebody else who has it open: then closing more does not help.
                Error::Driver(sys::ALREADY_MAPPED) if neighbours > 0 => {
                    neighbours -= 1;
                    self.evict(|_, base| base.abs_diff(exported.base))
                }
                _ => false,
            };
            if !closed {
                return Err(refused(error));
            }
        }
    }

    fn open_on(&mut self, exported: &Exported, ordinal: i32, context: Context) -> Result<Mapping> {
        let driver = self.contexts.driver();
        let refused = Error::Driver(sys::NOT_SUPPORTED);
        let (start, how) = match exported.kind {
            Kind::Handle => {
                let _entered = driver.enter(context)?;
                (driver.ipc_open(exported.handle)?, How::Handle(context))
            }
            Kind::File => {
                let file = exported.owner.file(exported.file).ok_or(refused)?;
                let len = usize::try_from(exported.len).map_err(|_| refused)?;
                let mapped = driver.physical_import(&file)?.map(len, &self.devices(ordinal))?;
                (mapped.start(), How::File(mapped))
            }
            Kind::Pool => {
                let pool = self.pool(exported, ordinal)?;
                let _entered = driver.enter(context)?;
                (pool.open(exported.handle)?, How::Pool(pool, context))
            }
        };
        let id = driver.buffer_id(start).unwrap_or(0);
        let context = (exported.kind == Kind::Handle).then_some(context);
        let device = Device { ordinal, context, is_managed: false };
        let mapping = Mapping { driver, exported: *exported, start, id, device, how };
        // A peer's numbers are not believed: what is copied has to be in what was opened.
        let _entered = driver.enter(self.contexts.of(device)?)?;
        let (base, len) = driver.range(start)?;
        let left = start.checked_sub(base).and_then(|offset| len.checked_sub(offset));
        if left.is_some_and(|left| left as u64 >= exported.len) { Ok(mapping) } else { Err(refused) }
    }

    /// The pool of an allocation, which is opened once for all of them.
    fn pool(&mut self, exported: &Exported, ordinal: i32) -> Result<Arc<Pool>> {
        let known = self.pools.iter().find(|(generation, _)| *generation == exported.pool);
        if let Some(pool) = known.and_then(|(_, pool)| pool.upgrade()) {
            return Ok(pool);
        }
        let file = exported.owner.file(exported.file).ok_or(Error::Driver(sys::NOT_SUPPORTED))?;
        let pool = Arc::new(self.contexts.driver().pool_import(&file)?);
        pool.allow(&self.devices(ordinal))?;
        self.pools.retain(|(_, pool)| pool.strong_count() > 0);
        self.pools.push((exported.pool, Arc::downgrade(&pool)));
        Ok(pool)
    }

    /// All devices, and this first.
    fn devices(&self, first: i32) -> Vec<i32> {
        let count = self.contexts.driver().devices().unwrap_or(0);
        std::iter::once(first).chain((0..count).filter(|device| *device != first)).collect()
    }
}
