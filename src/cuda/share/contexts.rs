//! Which context is used for a device.

use parking_lot::Mutex;

use crate::cuda::{Context, Device, Driver, Primary, Result};

/// The contexts of this process's devices.
pub struct Contexts {
    driver: &'static Driver,
    /// Held as long as this lives, where memory has no context of its own.
    primaries: Mutex<Vec<(i32, Primary)>>,
}

impl Contexts {
    /// None held yet.
    pub fn new(driver: &'static Driver) -> Self {
        Self { driver, primaries: Mutex::new(Vec::new()) }
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
        if let Some(current) = self.driver.current()?
            && self.driver.current_device()? == device
        {
            return Ok(current);
        }
        let mut primaries = self.primaries.lock();
        if let Some((_, primary)) = primaries.iter().find(|(of, _)| *of == device) {
            return Ok(primary.context());
        }
        let primary = self.driver.primary(device)?;
        let context = primary.context();
        primaries.push((device, primary));
        Ok(context)
    }
}
