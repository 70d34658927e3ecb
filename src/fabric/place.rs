//! [`Place`]: memory of the host's, where an operation can be made of what the host lends.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::operation::{Lease, LoanOf, Operation, Slot, Work};

/// Memory of the host's for one operation, and the loan that it is for.
pub struct Place<W: Work> {
    slot: Slot<W>,
    loan: LoanOf<W>,
}

impl<W: Work> Place<W> {
    /// # Safety
    /// `at` is memory of an `Operation<W>`, initialised with whatever bytes, aligned to 8 of them, and stays so
    /// and unmoved until the loan's request is completed, or the loan is dropped without that. Nobody else
    /// uses it, but for [`Standing::at`](super::Standing::at).
    #[inline]
    pub unsafe fn new(at: NonNull<Operation<W>>, loan: LoanOf<W>) -> Self {
        // SAFETY: such memory, for as long as the operation may be in it.
        Self { slot: unsafe { Slot::new(at) }, loan }
    }

    /// What is lent.
    #[inline]
    pub fn loan(&self) -> &LoanOf<W> {
        &self.loan
    }

    /// The loan alone: another operation serves the request. What is asked of the [`Standing`](super::Standing) here is
    /// answered with "not posted".
    pub fn vacate(self) -> LoanOf<W> {
        self.slot.vacate();
        self.loan
    }

    /// The loan alone: no operation is needed.
    #[inline]
    pub fn into_loan(self) -> LoanOf<W> {
        self.loan
    }

    /// Makes the operation, of the memory that the loan describes, and gives it to the provider at the object of
    /// this address, as which it is known there. Nobody takes it back but the provider, or who makes the place
    /// again. Nothing is done where the convertor is not prepared.
    #[inline(always)]
    pub(super) fn install_posted(self, body: W, at: usize) -> Option<NonNull<c_void>> {
        // SAFETY: memory of the host's that nobody else uses, by the promise of `new`, and of which nobody can
        // know before the entry returns that made the place.
        unsafe { self.slot.install_posted(self.loan, body, at) }
    }

    /// Makes the operation, of the memory that the loan describes.
    #[inline(always)]
    pub fn install(self, body: W) -> Lease<W> {
        // SAFETY: memory of the host's that nobody else uses, by the promise of `new`.
        unsafe { self.slot.install(self.loan, body) }
    }
}
