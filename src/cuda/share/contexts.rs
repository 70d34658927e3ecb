//! This process's devices, and which context is used for each.

use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{Refused, Uuid};
use crate::cuda::{Context, Device, Driver, Error, Primary, Result};

/// The devices that the program sees, and the contexts for them.
pub struct Contexts {
    driver: &'static Driver,
    /// By their numbers here; what the driver does not name has none.
    names: OnceLock<Vec<Option<Uuid>>>,
    /// Held as long as this lives, where memory has no context of its own.
    primaries: Mutex<Vec<(i32, Primary)>>,
}

impl Contexts {
    /// None held yet.
    pub fn new(driver: &'static Driver) -> Self {
        Self { driver, names: OnceLock::new(), primaries: Mutex::new(Vec::new()) }
    }

    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// The context for memory: its own; for memory that has none, that in use if it is of the same device, or else
    /// the device's primary one.
    pub fn of(&self, device: Device) -> Result<Context> {
        match device.context {
            Some(context) => Ok(context),
            None => self.on(device.ordinal),
        }
    }

    /// A context for a device: that in use if it is of this device, or else its primary one.
    pub fn on(&self, device: i32) -> Result<Context> {
        if let Some((_, context)) = self.current().filter(|(of, _)| *of == device) {
            return Ok(context);
        }
        let mut primaries = self.primaries.lock();
        primaries.retain(|(_, primary)| primary.is_there());
        if let Some((_, primary)) = primaries.iter().find(|(of, _)| *of == device) {
            return Ok(primary.context());
        }
        let primary = self.driver.primary(device)?;
        let context = primary.context();
        primaries.push((device, primary));
        Ok(context)
    }

    /// The context in use on this thread, and its device.
    pub(super) fn current(&self) -> Option<(i32, Context)> {
        let context = self.driver.current().ok()??;
        Some((self.driver.current_device().ok()?, context))
    }

    /// The devices for which the program has a context: that in use first.
    pub(super) fn in_use(&self) -> std::result::Result<Vec<i32>, Refused> {
        let mut found: Vec<i32> = self.current().map(|(device, _)| device).into_iter().collect();
        let count = match self.driver.devices() {
            Ok(0) | Err(Error::NoDevice) => return Err(Refused::NoDevice),
            Ok(count) => count,
            Err(_) => return Err(Refused::NotReady),
        };
        found.extend((0..count).filter(|device| self.driver.is_active(*device)));
        let mut seen = Vec::new();
        found.retain(|device| !seen.contains(device) && (seen.push(*device), true).1);
        Ok(found)
    }

    /// What a device is called in every process.
    pub(super) fn name(&self, device: i32) -> Option<Uuid> {
        *self.names().get(usize::try_from(device).ok()?)?
    }

    /// The number here of a device.
    pub(super) fn number(&self, name: Uuid) -> Option<i32> {
        self.names().iter().position(|of| *of == Some(name)).map(|index| index as i32)
    }

    /// They do not change once the driver is initialised; before, there is nothing to name.
    fn names(&self) -> &[Option<Uuid>] {
        if let Some(names) = self.names.get() {
            return names;
        }
        let Ok(count) = self.driver.devices() else { return &[] };
        self.names.get_or_init(|| (0..count).map(|device| self.driver.uuid(device).ok()).collect())
    }
}
