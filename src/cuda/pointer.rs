//! What an address is: memory of the host's, or of a device.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::context::Context;
use super::host_pages;
use super::library::{Driver, Error, Result, checked};
use super::sys::{self, attribute};

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host; pinned or not.
    Host,
    /// On a device.
    Device(Device),
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's number.
    pub ordinal: i32,
    /// The context that it was allocated in; memory of a pool or of the virtual memory calls has none.
    pub context: Option<Context>,
    /// Whether the processor may touch it, too.
    pub is_managed: bool,
}

impl Driver {
    /// Asks the driver about an address.
    ///
    /// # Errors
    /// What the driver says but that the address is not its own: then it is the host's.
    pub fn place(&self, address: usize) -> Result<Place> {
        let mut kind = 0_u32;
        let mut context: sys::Context = ptr::null_mut();
        let mut managed = 0_u32;
        let mut ordinal: c_int = -1;
        let which =
            [attribute::MEMORY_TYPE, attribute::CONTEXT, attribute::IS_MANAGED, attribute::DEVICE_ORDINAL];
        let values: [*mut c_void; 4] = [
            (&raw mut kind).cast(),
            (&raw mut context).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
        ];
        // SAFETY: four attributes and four variables of their types; of these, none is longer than 4 bytes but the
        // context, which is a pointer. The address is only compared.
        let code = unsafe {
            (self.pointer_attributes)(
                which.len() as u32,
                which.as_ptr(),
                values.as_ptr(),
                address as sys::Address,
            )
        };
        match checked(code) {
            Ok(()) if kind == sys::MEMORY_DEVICE => {
                Ok(Place::Device(Device { ordinal, context: Context::of(context), is_managed: managed != 0 }))
            }
            Ok(()) if kind == sys::MEMORY_UNKNOWN => {
                host_pages::not_the_drivers(address);
                Ok(Place::Host)
            }
            // Pinned, or the driver has no memory yet, or no more.
            Ok(()) | Err(Error::Gone(_) | Error::NotInitialized | Error::Deinitialized | Error::NoDevice) => {
                Ok(Place::Host)
            }
            Err(error) => Err(error),
        }
    }

    /// The number of the allocation that an address lies in: no two allocations of a process have the same.
    pub fn buffer_id(&self, address: usize) -> Result<u64> {
        let mut id = 0_u64;
        // SAFETY: the attribute is a number of 8 bytes; the address is only compared.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut id).cast(), attribute::BUFFER_ID, address as sys::Address)
        };
        checked(code).map(|()| id)
    }

    /// Has copies of an allocation be over when their calls return, also those that are none of our streams'.
    pub fn synchronize_copies(&self, address: usize) -> Result<()> {
        let yes = 1_u32;
        // SAFETY: the attribute is a number of 4 bytes; the address is only compared.
        checked(unsafe {
            (self.pointer_set)((&raw const yes).cast(), attribute::SYNC_MEMOPS, address as sys::Address)
        })
    }

    /// Where the allocation that an address lies in begins, and its length. In the context of the allocation.
    pub fn range(&self, address: usize) -> Result<(usize, usize)> {
        let (mut base, mut len) = (0, 0);
        // SAFETY: the callee writes an address and a length; the address is only compared.
        checked(unsafe { (self.memory_range)(&raw mut base, &raw mut len, address as sys::Address) })?;
        Ok((base as usize, len))
    }
}
