//! Registered memory: what peers may read and write, and what is read into and written from here.
//!
//! There is no cache: what is registered is what somebody has asked for and has not given back, so that nothing is ever
//! found that has been unmapped meanwhile. A transfer from or to memory that nobody has registered registers it for
//! itself alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::component::Rail;
use super::counters::Counters;
use crate::btl::{self, Lent, Registration};
use crate::error::Result;
use crate::verbs::{Access, Mr};

/// What is registered now: by its first address and its key.
#[derive(Default)]
pub(super) struct Registrations(Mutex<BTreeMap<(u64, u32), Live>>);

struct Live {
    memory: Arc<Mr>,
    length: u64,
    /// What arrives may be written there.
    is_writable: bool,
}

impl Registrations {
    /// Opens memory to peers.
    pub(super) fn register(&self, memory: Lent, access: btl::Access, rail: &Rail) -> Option<Registration> {
        let mut rights = Access::LOCAL_WRITE;
        if access.allows(btl::Access::READ) {
            rights = rights | Access::REMOTE_READ;
        }
        // Where an RDMA read brings something, iWARP takes it for a write of the peer's.
        if access.allows(btl::Access::WRITE) || rail.port.is_iwarp() {
            rights = rights | Access::REMOTE_WRITE;
        }
        let mr = Mr::register(&rail.port.pd, memory, rights);
        // Memory that cannot be written is read all the same.
        let is_read_only = mr.is_err() && !access.allows(btl::Access::WRITE);
        let mr = if is_read_only {
            Mr::register(&rail.port.pd, memory, Access::REMOTE_READ).ok()?
        } else {
            mr.ok()?
        };
        rail.counters.num_registrations.raise_by_one();
        let address = memory.as_ptr().expose_provenance() as u64;
        let (key, length) = (mr.remote_key(), memory.len() as u64);
        let live = Live { memory: Arc::new(mr), length, is_writable: !is_read_only };
        self.0.lock().insert((address, key), live);
        Some(Registration { id: address as u32, generation: (address >> 32) as u32, length, access, key })
    }

    /// Closes it again. What is under way still uses it.
    pub(super) fn deregister(&self, registration: Registration) {
        let address = u64::from(registration.id) | u64::from(registration.generation) << 32;
        let live = self.0.lock().remove(&(address, registration.key));
        // Outside the lock: it is a call of the system's.
        drop(live);
    }

    /// The registration of memory that is here, or a new one for one transfer.
    ///
    /// # Errors
    /// As [`Mr::register`].
    pub(super) fn of(&self, local: Lent, is_read: bool, rail: &Rail, counters: &Counters) -> Result<Arc<Mr>> {
        let start = local.as_ptr().expose_provenance() as u64;
        let end = start + local.len() as u64;
        let found = {
            let all = self.0.lock();
            let mut before = all.range(..=(start, u32::MAX)).rev().take(LOOKED_AT);
            let covers = |(address, _): &(u64, u32), live: &Live| {
                address + live.length >= end && (live.is_writable || !is_read)
            };
            before.find(|(key, live)| covers(key, live)).map(|(_, live)| Arc::clone(&live.memory))
        };
        match found {
            Some(memory) => Ok(memory),
            None => {
                counters.num_transfer_registrations.raise_by_one();
                let access = match (is_read, rail.port.is_iwarp()) {
                    (false, _) => Access::LOCAL_READ,
                    (true, false) => Access::LOCAL_WRITE,
                    (true, true) => Access::READ_SINK_OF_IWARP,
                };
                Ok(Arc::new(Mr::register(&rail.port.pd, local, access)?))
            }
        }
    }
}

/// Registrations that begin before an address and are looked at, the nearest first.
const LOOKED_AT: usize = 16;
