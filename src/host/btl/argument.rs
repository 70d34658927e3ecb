//! What the host passes to an entry of a byte transport (`opal/mca/btl/btl.h`), made into Rust values: one
//! proof for each kind of argument.

use std::ffi::c_void;

use super::convertor::Convertor;
use super::descriptor::FragRef;
use super::module::Shell;
use super::services::{Bitmap, ProcRef};
use super::sys::{BtlConvertor, BtlProc, Descriptor};
use super::{BtlAbi, Listed};
use crate::btl::Lent;
use crate::host::entry::{Arguments, Array};

/// So many processes, which the host keeps until `del_procs` for them has ended.
pub(super) struct Procs(pub(super) Array<*mut BtlProc>);

impl<A: BtlAbi, T: Listed> Arguments<Shell<A, T>> for Procs {
    type Values<'a> = Vec<ProcRef<A>>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: an array of the host's.
        let procs = unsafe { Arguments::<Shell<A, T>>::values(self.0) };
        // SAFETY: one of the processes that the host keeps.
        procs.into_iter().map(|proc| unsafe { ProcRef::new(proc) }).collect()
    }
}

/// A bitmap of the host's with so many bits, nobody else's until the entry returns; or null.
pub(super) struct Reachable(pub(super) *mut c_void, pub(super) usize);

impl<S> Arguments<S> for Reachable {
    type Values<'a> = Bitmap<'a>;

    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: null, or a bitmap with so many bits, for the time of the call.
        unsafe { Bitmap::new(self.0, self.1) }
    }
}

/// A descriptor that this module has handed out and that has not come back. What its segments name is left
/// alone from `btl_send` to the end of the send.
pub(super) struct HandedOut(pub(super) *mut Descriptor);

impl<S> Arguments<S> for HandedOut {
    type Values<'a> = FragRef;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: of the pool of the module, which is alive.
        unsafe { FragRef::around(self.0) }
    }
}

/// Bytes of the host's, which it leaves alone until the entry returns. Null is none.
pub(super) struct Header(pub(super) *mut c_void, pub(super) usize);

impl<S> Arguments<S> for Header {
    type Values<'a> = Lent;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        let len = if self.0.is_null() { 0 } else { self.1 };
        // SAFETY: none, or so many bytes, readable for the time of the call; nobody writes there.
        unsafe { Lent::new(self.0.cast(), len) }
    }
}

/// A convertor that is prepared for a send, nobody else's until the entry returns; or null.
pub(super) struct Prepared(pub(super) *mut BtlConvertor);

impl<S> Arguments<S> for Prepared {
    type Values<'a> = Option<Convertor<'a>>;

    #[inline(always)]
    unsafe fn values<'a>(self) -> Self::Values<'a> {
        // SAFETY: null, or alive and prepared, for the time of the call.
        unsafe { Convertor::new(self.0) }
    }
}
