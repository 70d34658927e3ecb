//! What this process lets others open.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::calls::Physical;
use super::{Contexts, Exported, Kind, Process, Refused, Uuid};
use crate::cuda::{Allocation, Device, Driver, Error, Place, Result};

/// Bytes of what others try.
const PROBE: usize = 4096;

/// Allocations that others may open.
///
/// What was found out about an allocation is kept until it has gone, which nobody says: it shows when its place is
/// asked for again, or when another is exported.
pub struct Exports {
    contexts: Arc<Contexts>,
    this: Option<Process>,
    /// By where they begin.
    known: BTreeMap<usize, Known>,
    /// By the driver's handles.
    pools: Vec<(usize, Arc<PoolFile>)>,
    probes: Vec<(i32, Probe)>,
    /// How many were told apart by it.
    generation: u64,
    /// So many are known when all are looked through.
    sweep: usize,
}

/// So many are known without being looked through.
const FEW: usize = 64;

/// So many allocations are shared by files at a time: a process may have only so many files, and a file's number is
/// not used again as long as a peer may ask for it. More cannot be shared until some have gone.
pub const FILES: usize = 256;

/// An allocation.
struct Known {
    exported: Exported,
    id: u64,
    /// What others open it by; it is not given back to the device before.
    _file: Option<OwnedFd>,
    physical: Option<Physical>,
    _pool: Option<Arc<PoolFile>>,
}

/// What others open a pool by, as long as anything of it is known.
struct PoolFile {
    file: OwnedFd,
    generation: u64,
}

/// Memory of our own that others try.
struct Probe {
    driver: &'static Driver,
    /// Until this is dropped.
    allocation: Option<Allocation>,
    address: usize,
    id: u64,
    exported: Exported,
}

impl Probe {
    fn is_there(&self) -> bool {
        self.driver.buffer_id(self.address) == Ok(self.id)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // It goes with its context, and what is there then is not ours.
        let has_gone = match self.driver.buffer_id(self.address) {
            Ok(id) => id != self.id,
            Err(error) => matches!(error, Error::Gone(_)),
        };
        if let Some(allocation) = self.allocation.take()
            && has_gone
        {
            allocation.into_address();
        }
    }
}

impl Known {
    /// Whether it is still there.
    fn is_there(&self, driver: &'static Driver) -> bool {
        let base = self.exported.base as usize;
        let Ok(id) = driver.buffer_id(base) else { return false };
        match &self.physical {
            // The driver numbers not all memory of this kind.
            Some(physical) if id == 0 => driver.physical(base).is_ok_and(|now| now.is(physical)),
            // Nothing tells what has no number from what was there before.
            _ => id != 0 && id == self.id,
        }
    }

    fn holds(&self, address: usize, len: usize) -> bool {
        let Some(offset) = (address as u64).checked_sub(self.exported.base) else { return false };
        offset.checked_add(len as u64).is_some_and(|end| end <= self.exported.len)
    }
}

impl Exports {
    /// None so far.
    pub fn new(contexts: Arc<Contexts>) -> Self {
        Self {
            contexts,
            this: None,
            known: BTreeMap::new(),
            pools: Vec::new(),
            probes: Vec::new(),
            generation: 0,
            sweep: FEW,
        }
    }

    /// The allocation that a range of device memory lies in; `None` where it cannot be shared: managed memory, that
    /// of a pool of the driver's own, that of the host, or a range that is in several allocations.
    ///
    /// # Errors
    /// What the driver says when it is asked what lies there.
    pub fn export(&mut self, address: usize, len: usize) -> Result<Option<Exported>> {
        let driver = self.contexts.driver();
        if let Some((&base, known)) = self.known.range(..=address).next_back()
            && known.holds(address, 1)
        {
            if known.is_there(driver) {
                return Ok(known.holds(address, len).then_some(known.exported));
            }
            self.known.remove(&base);
        }
        let Place::Device(device) = driver.place(address)? else { return Ok(None) };
        if device.is_managed {
            return Ok(None);
        }
        self.forget_what_has_gone();
        // What the driver refuses cannot be shared; why is all the same.
        let Ok(Some(known)) = self.examine(address, device) else { return Ok(None) };
        let exported = known.holds(address, len).then_some(known.exported);
        self.known.insert(known.exported.base as usize, known);
        Ok(exported)
    }

    /// Waits for what the program has begun in the default stream of the context that memory of a device is in: copies of
    /// our own would, and those of others do not.
    ///
    /// # Errors
    /// What the driver says.
    pub fn settle(&self, device: Device) -> Result<()> {
        let _entered = self.contexts.driver().enter(self.contexts.of(device)?)?;
        self.contexts.driver().wait_for_default_stream()
    }

    /// A little memory of our own on a device, for others to try whether they can open it. Without a device, on that
    /// in use, or on one that the program has a context for.
    ///
    /// # Errors
    /// Why there is none.
    pub fn probe(&mut self, device: Option<Device>) -> std::result::Result<Exported, Refused> {
        let ordinal = match device {
            Some(device) => device.ordinal,
            None => *self.contexts.in_use()?.first().ok_or(Refused::NotReady)?,
        };
        if let Some(index) = self.probes.iter().position(|(of, _)| *of == ordinal) {
            let probe = &self.probes[index].1;
            if probe.is_there() {
                return Ok(probe.exported);
            }
            self.probes.swap_remove(index);
        }
        let made = self.make_probe(ordinal, device);
        let probe = made.map_err(|error| match error {
            Error::NoDevice => Refused::NoDevice,
            Error::NotLoaded
            | Error::NotInitialized
            | Error::Deinitialized
            | Error::Gone(_)
            | Error::OutOfMemory => Refused::NotReady,
            Error::NotOnDevice | Error::Driver(_) => Refused::NotOpened,
        })?;
        let exported = probe.exported;
        self.probes.push((ordinal, probe));
        Ok(exported)
    }

    /// The device that an address lies on; `None` for the host's memory, or where the driver names no devices.
    ///
    /// # Errors
    /// What the driver says when it is asked what lies there.
    pub fn device(&self, address: usize) -> Result<Option<Uuid>> {
        match self.contexts.driver().place(address)? {
            Place::Device(device) => Ok(self.contexts.name(device.ordinal)),
            Place::Host => Ok(None),
        }
    }

    fn make_probe(&mut self, ordinal: i32, device: Option<Device>) -> Result<Probe> {
        let driver = self.contexts.driver();
        let context = match device {
            Some(device) => self.contexts.of(device)?,
            None => self.contexts.on(ordinal)?,
        };
        let allocation = Allocation::new(driver, context, PROBE)?;
        let address = allocation.address() as usize;
        let device = Device { ordinal, context: Some(context), is_managed: false };
        let known = self.examine(address, device)?.ok_or(Error::NotOnDevice)?;
        Ok(Probe { driver, allocation: Some(allocation), address, id: known.id, exported: known.exported })
    }

    /// Finds out how an allocation is shared; `None` where it is not.
    fn examine(&mut self, address: usize, device: Device) -> Result<Option<Known>> {
        let driver = self.contexts.driver();
        let Some(name) = self.contexts.name(device.ordinal) else { return Ok(None) };
        if self.this.is_none() {
            self.this = Process::this();
        }
        let Some(owner) = self.this else { return Ok(None) };
        let _entered = driver.enter(self.contexts.of(device)?)?;
        let (base, len) = driver.range(address)?;
        let id = driver.buffer_id(base)?;
        let ways = driver.ways(base);
        self.generation += 1;
        let mut exported = Exported {
            kind: Kind::Handle,
            device: name,
            owner,
            base: base as u64,
            len: len as u64,
            // The driver numbers not all memory: numbers of our own do not meet its.
            generation: if id != 0 { id } else { self.generation | 1 << 63 },
            file: -1,
            pool: 0,
            handle: [0; 64],
        };
        let (mut file, mut physical, mut pool) = (None, None, None);
        if ways.handle {
            exported.handle = driver.ipc_handle(base)?;
        } else if ways.pool != 0 && ways.file {
            exported.handle = driver.pool_pointer(base)?;
            let found = self.pool(ways.pool)?;
            exported.kind = Kind::Pool;
            exported.file = found.file.as_raw_fd();
            exported.pool = found.generation;
            pool = Some(found);
        } else if ways.pool == 0 && ways.file && self.files() < FILES {
            let held = driver.physical(base)?;
            let made = held.file()?;
            exported.kind = Kind::File;
            exported.file = made.as_raw_fd();
            (file, physical) = (Some(made), Some(held));
        } else {
            return Ok(None);
        }
        if driver.complete_copies(base).is_err() {
            return Ok(None);
        }
        Ok(Some(Known { exported, id, _file: file, physical, _pool: pool }))
    }

    fn pool(&mut self, pool: usize) -> Result<Arc<PoolFile>> {
        if let Some((_, found)) = self.pools.iter().find(|(of, _)| *of == pool) {
            return Ok(Arc::clone(found));
        }
        let file = self.contexts.driver().pool_file(pool)?;
        let found = Arc::new(PoolFile { file, generation: self.generation });
        self.pools.push((pool, Arc::clone(&found)));
        Ok(found)
    }

    fn files(&self) -> usize {
        self.known.values().filter(|known| known.exported.kind == Kind::File).count()
    }

    /// Of memory that has gone, a file would keep the device from using it for something else; and a pool's handle
    /// may come to stand for another. What has only a handle is no burden, and looked at as seldom as that pays.
    fn forget_what_has_gone(&mut self) {
        let driver = self.contexts.driver();
        let all = self.known.len() >= self.sweep;
        self.known.retain(|_, known| (known.exported.kind == Kind::Handle && !all) || known.is_there(driver));
        if all {
            self.sweep = FEW.max(2 * self.known.len());
        }
        self.pools.retain(|(_, pool)| Arc::strong_count(pool) > 1);
    }
}
