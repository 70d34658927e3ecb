//! [`Operation`]: the memory of one posted operation, and [`Lease`], the right to post it.
//!
//! libfabric keeps a pointer to the first 64 bytes (`fi_context2`) from the posting call until the
//! completion is read, and gives it back then. Behind them lies the transport's own state `T`.
//! Operations live in memory that the host lends ([`Place`]) or in a [`Pool`].

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use super::sys::fi_context2;
use crate::sync::EngineCell;

/// One operation: the provider's scratch, then the transport's state.
#[repr(C)]
pub struct Operation<T> {
    context: UnsafeCell<MaybeUninit<fi_context2>>,
    body: T,
}

/// Memory for one operation, not yet written.
pub struct Place<T>(NonNull<Operation<T>>);

impl<T> Clone for Place<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Place<T> {}

impl<T> Place<T> {
    /// # Safety
    /// `place` is valid for writes of an `Operation<T>`, aligned to 8 bytes, and stays so and
    /// unmoved until the operation's completion has been handled, or, if it is never posted, until
    /// its lease is no longer used.
    #[inline]
    pub unsafe fn new(place: NonNull<Operation<T>>) -> Self {
        const { assert!(align_of::<Operation<T>>() == 8) };
        Self(place)
    }

    /// Writes the operation's state. What was there before is not dropped.
    #[inline]
    pub fn install(self, body: T) -> Lease<T> {
        // SAFETY: in bounds by the promise of `new`; the provider's scratch needs no value.
        let slot = unsafe { &raw mut (*self.0.as_ptr()).body };
        // SAFETY: valid and aligned by the promise of `new`.
        unsafe { slot.write(body) };
        Lease(self.0)
    }
}

/// A pointer to an operation that stays where it is until its completion has been handled.
pub struct Lease<T>(NonNull<Operation<T>>);

impl<T> Clone for Lease<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Lease<T> {}

impl<T> PartialEq for Lease<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Deref for Lease<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the promise of `Place::new`, and only `install` mints leases: alive and initialised.
        unsafe { &(*self.0.as_ptr()).body }
    }
}

impl<T> Lease<T> {
    /// The lease of an operation that lies at `place`.
    ///
    /// # Safety
    /// An operation was [installed](Place::install) at `place` before, under the promise of [`Place::new`].
    #[inline]
    pub unsafe fn at(place: NonNull<Operation<T>>) -> Self {
        Self(place)
    }

    /// Where the operation lies, for a host that has to keep it as a bare pointer.
    pub fn place(self) -> NonNull<Operation<T>> {
        self.0
    }

    /// What libfabric gets as the operation's context.
    #[inline]
    pub(super) fn context(self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast()
    }

    /// The lease whose context libfabric gave back.
    ///
    /// # Safety
    /// `context` came from [`context`](Self::context) of a lease of the same `T` that was posted.
    #[inline]
    pub(super) unsafe fn from_context(context: NonNull<std::ffi::c_void>) -> Self {
        Self(context.cast())
    }
}

/// Operations of our own: acknowledgements, probes, blocking sends.
///
/// Memory grows in blocks and is given back when the pool ends.
pub struct Pool<T> {
    state: EngineCell<Shelves<T>>,
}

struct Shelves<T> {
    free: Vec<NonNull<Operation<T>>>,
    blocks: Vec<Box<[MaybeUninit<Operation<T>>]>>,
}

// SAFETY: the pointers are to memory that the pool owns; they are handed out one at a time.
unsafe impl<T: Send> Send for Shelves<T> {}

const BLOCK: usize = 64;

impl<T> Default for Pool<T> {
    /// An empty pool.
    fn default() -> Self {
        Self { state: EngineCell::new(Shelves { free: Vec::new(), blocks: Vec::new() }) }
    }
}

impl<T> Pool<T> {
    /// An operation with the given state. It must come back through [`put`](Self::put).
    #[inline]
    pub fn take(&self, body: T) -> Lease<T> {
        let place = self.state.with(|shelves| {
            if shelves.free.is_empty() {
                shelves.grow();
            }
            shelves.free.pop()
        });
        let place = place.expect("a pool that has grown has a free operation");
        // SAFETY: memory of a block that lives as long as the pool, not in use: it was on the shelf.
        unsafe { Place::new(place) }.install(body)
    }

    /// Gives an operation back. Its state is not dropped: take out what owns memory before.
    #[inline]
    pub fn put(&self, lease: Lease<T>) {
        self.state.with(|shelves| shelves.free.push(lease.0));
    }

    /// Operations that are out.
    pub fn out(&self) -> usize {
        self.state.with(|shelves| shelves.blocks.len() * BLOCK - shelves.free.len())
    }
}

impl<T> Shelves<T> {
    #[cold]
    fn grow(&mut self) {
        let mut block: Box<[MaybeUninit<Operation<T>>]> = (0..BLOCK).map(|_| MaybeUninit::uninit()).collect();
        self.free.reserve(BLOCK * (self.blocks.len() + 1));
        self.free.extend(block.iter_mut().rev().map(|slot| NonNull::from(slot).cast::<Operation<T>>()));
        self.blocks.push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_and_are_used_again() {
        let pool: Pool<u64> = Pool::default();
        let first = pool.take(7);
        assert_eq!(*first, 7);
        assert_eq!(pool.out(), 1);
        pool.put(first);
        let second = pool.take(8);
        assert!(first == second && *second == 8);
        let many: Vec<_> = (0..200).map(|n| pool.take(n)).collect();
        assert!(many.iter().enumerate().all(|(n, lease)| **lease == n as u64));
        assert_eq!(pool.out(), 201);
    }
}
