//! [`Registration`]: a piece of device memory that the provider may reach (`fi_mr(3)`, `FI_MR_HMEM`).
//!
//! A message in device memory is posted with the descriptor of a registration that covers it; the
//! operation keeps the registration until it has ended. Host memory needs none: nothing here offers
//! `FI_MR_LOCAL` to a provider.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

use super::loan::Piece;
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

/// A registered piece of device memory; given up when dropped.
pub struct Registration {
    /// Always there until it is dropped.
    object: Option<Object>,
    domain: Arc<Domain>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let object = self.object.take();
        self.domain.call(|| drop(object));
    }
}

/// `fi_mr_attr`, with room for fields that newer libraries append (112 bytes in 2.1). Not the bindings' own: unions in it
/// have names there that change with the headers.
#[repr(C)]
struct Attributes {
    mr_iov: *const libc::iovec,
    iov_count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    context: *mut c_void,
    auth_key_size: usize,
    auth_key: *mut u8,
    iface: sys::fi_hmem_iface,
    device: Number,
    appended: [u64; 8],
}

/// The union in it.
#[repr(C)]
#[derive(Clone, Copy)]
union Number {
    reserved: u64,
    /// Of all interfaces that are named here.
    of: c_int,
}

const _: () = {
    assert!(offset_of!(Attributes, iface) == offset_of!(sys::fi_mr_attr, iface));
    assert!(offset_of!(Attributes, device) == offset_of!(sys::fi_mr_attr, device));
    assert!(offset_of!(Attributes, requested_key) == offset_of!(sys::fi_mr_attr, requested_key));
    assert!(size_of::<Attributes>() >= size_of::<sys::fi_mr_attr>());
};

impl Registration {
    /// Lets the provider read the bytes of a send.
    pub(super) fn to_send(domain: &Arc<Domain>, bytes: Piece, on: Option<Device>) -> Result<Self> {
        Self::open(domain, bytes, u64::from(sys::FI_SEND), on)
    }

    /// Lets the provider write where a receive goes.
    pub(super) fn to_receive(domain: &Arc<Domain>, to: Piece, on: Option<Device>) -> Result<Self> {
        Self::open(domain, to, u64::from(sys::FI_RECV), on)
    }

    fn open(domain: &Arc<Domain>, memory: Piece, access: u64, on: Option<Device>) -> Result<Self> {
        let on = on.ok_or(Error::Unsupported)?;
        let fid: *mut sys::fid_domain = domain.object().as_ptr();
        let open = table!(fid, mr).regattr.ok_or(Error::Unsupported)?;
        let piece = libc::iovec { iov_base: memory.start.cast(), iov_len: memory.len };
        // One after the other: a provider that does not make keys itself takes none twice.
        let key = domain.next_key();
        let mut device = Number { reserved: 0 };
        device.of = on.number as c_int;
        let attributes = Attributes {
            mr_iov: &raw const piece,
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
            appended: [0; 8],
        };
        let mut raw = ptr::null_mut();
        let given = ptr::from_ref(&attributes).cast();
        // SAFETY: the domain is open; the callee reads the attributes, whatever its version, and
        // writes one owned object.
        done(domain.call(|| unsafe { open(fid.cast(), given, 0, &raw mut raw) }))?;
        // SAFETY: just opened, ours.
        let object = unsafe { Object::own(raw) }?;
        Ok(Self { object: Some(object), domain: Arc::clone(domain) })
    }

    /// What the provider is shown with the memory (`fi_mr_desc(3)`).
    pub(super) fn descriptor(&self) -> *mut c_void {
        let Some(object) = &self.object else { return ptr::null_mut() };
        let fid: *mut sys::fid_mr = object.as_ptr();
        // SAFETY: an open registration, whose descriptor does not change.
        unsafe { (*fid).mem_desc }
    }
}
