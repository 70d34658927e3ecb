//! The host's convertors, as byte transports use them.

use std::marker::PhantomData;

use super::sys::BtlConvertor;
use crate::btl::Lent;
use crate::error::{Error, Result};
use crate::host::copy_hook;
use crate::host::services::Services;

/// A convertor that the host has prepared for a send.
///
/// INVARIANT: alive and prepared for `'a`, and nobody else's.
#[derive(Clone, Copy)]
pub(super) struct Convertor<'a>(*mut BtlConvertor, PhantomData<&'a ()>);

/// Flags of a convertor (`opal/datatype/opal_convertor.h`, `opal_datatype.h`).
mod flag {
    pub(super) const CONTIGUOUS: u32 = 0x10;
    pub(super) const NO_GAPS: u32 = 0x20;
    pub(super) const HOMOGENEOUS: u32 = 0x0008_0000;
    pub(super) const DEVICE: u32 = 0x0040_0000;
}

impl Convertor<'_> {
    /// None for a null pointer.
    ///
    /// # Safety
    /// Null, or alive and prepared for the lifetime, and nobody else's meanwhile.
    #[inline]
    pub(super) unsafe fn new(raw: *mut BtlConvertor) -> Option<Self> {
        (!raw.is_null()).then_some(Self(raw, PhantomData))
    }

    /// Whether the data must be packed (`opal_convertor_need_buffers`).
    #[inline]
    pub(super) fn needs_packing(self) -> bool {
        self.has_gaps() || self.is_hidden()
    }

    /// The same of data that lies on no device of which the host does not know.
    #[inline]
    fn has_gaps(self) -> bool {
        // SAFETY: alive, by the invariant, and the host does not touch it during the call. It is plain numbers.
        let BtlConvertor { flags, count, .. } = unsafe { self.0.read() };
        if flags & (flag::HOMOGENEOUS | flag::DEVICE) != flag::HOMOGENEOUS {
            return true;
        }
        !(flags & flag::NO_GAPS != 0 || count == 1 && flags & flag::CONTIGUOUS != 0)
    }

    /// Where the data begins that lies on a device, as the host says; `None` for the host's.
    pub(super) fn on_device(self) -> Option<*const u8> {
        // SAFETY: alive, by the invariant, and the host does not touch it during the call. It is plain numbers.
        let BtlConvertor { flags, base, .. } = unsafe { self.0.read() };
        (flags & flag::DEVICE != 0).then_some(base.cast_const())
    }

    /// Where the data begins, for those that only look at the address.
    pub(super) fn start(self) -> *const u8 {
        // SAFETY: alive, by the invariant, and the host does not touch it during the call. It is plain numbers.
        let BtlConvertor { datatype, base, .. } = unsafe { self.0.read() };
        // SAFETY: a prepared convertor has a datatype, which is alive as long.
        let offset = unsafe { (*datatype).true_lb };
        base.wrapping_offset(offset).cast_const()
    }

    /// Whether the data lies on a device of which the host does not know. The buffer's address alone does not say so: the
    /// datatype may lead from any, null among them, to anywhere (`MPI_BOTTOM`).
    #[inline]
    fn is_hidden(self) -> bool {
        copy_hook::is_on() && copy_hook::is_hidden_device(self.start().addr())
    }

    /// Where the next `len` bytes lie (`opal_convertor_get_current_pointer`); `None` when they have to be packed, or are fewer.
    #[inline]
    pub(super) fn contiguous(self, len: usize) -> Option<Lent> {
        // SAFETY: alive, by the invariant, and the host does not touch it during the call. It is plain numbers.
        let BtlConvertor { local_size, datatype, base, converted, .. } = unsafe { self.0.read() };
        if self.has_gaps() || local_size.checked_sub(converted)? < len || self.is_hidden() {
            return None;
        }
        // SAFETY: a prepared convertor has a datatype, which is alive as long.
        let offset = unsafe { (*datatype).true_lb };
        let start = base.wrapping_add(converted).wrapping_offset(offset);
        // SAFETY: the host's data, which it leaves alone until the entry returns that was passed the convertor.
        Some(unsafe { Lent::new(start, len) })
    }

    /// Packs up to `len` bytes to `start`, or, with a null `start`, finds where they lie. Returns where
    /// and how many.
    ///
    /// # Safety
    /// Null, or `len` writable bytes.
    pub(super) unsafe fn pack(self, start: *mut u8, len: usize) -> Result<(*mut u8, usize)> {
        let mut vector = libc::iovec { iov_base: start.cast(), iov_len: len };
        let (mut count, mut max) = (1_u32, len);
        // SAFETY: alive and prepared, by the invariant, with one vector of `len` bytes that the caller may
        // write, or of none, and three variables of ours.
        let code =
            unsafe { (Services::host().pack)(self.0.cast(), &raw mut vector, &raw mut count, &raw mut max) };
        if code < 0 { Err(Error::Host(code)) } else { Ok((vector.iov_base.cast(), max)) }
    }
}
