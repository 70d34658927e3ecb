//! [`Registration`]: a piece of device memory that the provider may reach (`fi_mr(3)`, `FI_MR_HMEM`).
//!
//! A message in device memory is posted with the [`Descriptor`] of a registration that covers it;
//! whoever posts it keeps the registration until the operation has ended. Host memory needs none:
//! nothing here offers `FI_MR_LOCAL` to a provider.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::context::{Landing, Payload};
use super::objects::{Domain, Object, table};
use super::{done, sys};
use crate::error::{Error, Result};

/// The driver through which a device's memory is reached (`enum fi_hmem_iface`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// NVIDIA's.
    Cuda,
    /// AMD's.
    Rocr,
    /// Intel's (Level Zero).
    Ze,
}

/// A device: its driver, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its driver.
    pub interface: Interface,
    /// Its number.
    pub number: i32,
}

/// What a provider is shown with a piece of device memory (`fi_mr_desc(3)`).
#[derive(Clone, Copy)]
pub struct Descriptor(*mut c_void);

impl Descriptor {
    /// That of memory which the provider reaches without a registration.
    pub const NONE: Self = Self(ptr::null_mut());

    #[inline]
    pub(super) fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// A registered piece of device memory; given up when dropped.
pub struct Registration {
    object: Object,
    // Dropped last.
    _domain: Arc<Domain>,
}

/// The attributes with room for fields that newer libraries append (112 bytes in 2.1).
#[repr(C)]
struct Attributes {
    known: sys::fi_mr_attr,
    appended: [u64; 8],
}

impl Registration {
    /// Lets the provider read the bytes of a send.
    pub fn of_payload(domain: &Arc<Domain>, bytes: Payload, on: Device) -> Result<Self> {
        Self::open(domain, bytes.start(), bytes.len(), u64::from(sys::FI_SEND), on)
    }

    /// Lets the provider write where a receive goes.
    pub fn of_landing(domain: &Arc<Domain>, to: Landing, on: Device) -> Result<Self> {
        Self::open(domain, to.start(), to.len(), u64::from(sys::FI_RECV), on)
    }

    fn open(domain: &Arc<Domain>, start: *const u8, len: usize, access: u64, on: Device) -> Result<Self> {
        let fid: *mut sys::fid_domain = domain.object().as_ptr();
        let open = table!(fid, mr).regattr.ok_or(Error::Unsupported)?;
        let piece = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        // One after the other: a provider that does not make keys itself takes none twice.
        let key = domain.next_key();
        let mut device = sys::fi_mr_attr__bindgen_ty_1 { reserved: 0 };
        device.cuda = on.number as c_int;
        let attributes = Attributes {
            known: sys::fi_mr_attr {
                mr_iov: ptr::from_ref(&piece).cast(),
                iov_count: 1,
                access,
                offset: 0,
                requested_key: key,
                context: ptr::null_mut(),
                auth_key_size: 0,
                auth_key: ptr::null_mut(),
                iface: match on.interface {
                    Interface::Cuda => sys::fi_hmem_iface_FI_HMEM_CUDA,
                    Interface::Rocr => sys::fi_hmem_iface_FI_HMEM_ROCR,
                    Interface::Ze => sys::fi_hmem_iface_FI_HMEM_ZE,
                },
                device,
            },
            appended: [0; 8],
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open; the callee reads the attributes, whatever its version, and
        // writes one owned object.
        done(unsafe { open(fid.cast(), ptr::from_ref(&attributes).cast(), 0, &raw mut raw) })?;
        let _ = attributes.appended;
        // SAFETY: just opened, ours.
        let object = unsafe { Object::own(raw) }?;
        Ok(Self { object, _domain: Arc::clone(domain) })
    }

    /// What goes with the memory into an operation. The operation's state holds the registration.
    pub fn descriptor(&self) -> Descriptor {
        let fid: *mut sys::fid_mr = self.object.as_ptr();
        // SAFETY: an open registration.
        let descriptor = unsafe { &raw const (*fid).mem_desc };
        // SAFETY: as above.
        Descriptor(unsafe { descriptor.read() })
    }
}
