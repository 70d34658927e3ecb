//! Parcels: the descriptors that the host fills and sends, with their memory.
//!
//! A parcel is one allocation that never moves: the host's descriptor first, so that its address is
//! the descriptor's, then our notes, then a block of memory. It has up to two owners at once: the
//! host, from the moment it is handed out until it is freed (or sent, when the host gave ownership
//! away with it), and the engine, from `send` until the last byte is acknowledged. It returns to the
//! pool when both have let go.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

use super::sys::{BtlEndpoint, Descriptor, Segment};
use crate::sync::EngineCell;

/// What the engine's end of a send means for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing: the host was told at once.
    Silent,
    /// The host's callback runs, and the host frees the descriptor.
    Callback,
    /// The host's callback runs, and the descriptor is ours again.
    CallbackAndFree,
}

/// A descriptor of the host with what belongs to it.
#[repr(C, align(64))]
pub(super) struct Parcel {
    pub(super) descriptor: Descriptor,
    pub(super) segments: [Segment; 2],
    /// Where it was sent to.
    pub(super) endpoint: Cell<*mut BtlEndpoint>,
    pub(super) ending: Cell<Ending>,
    /// Memory of the host's that lies outside the block, and its length.
    pub(super) outside: Cell<(*mut u8, usize)>,
    class: u32,
}

/// Bytes of a block, by class.
const CLASSES: [usize; 4] = [1 << 10, 1 << 13, 1 << 16, 1 << 19];

/// Longest block there is.
pub(super) const LONGEST: usize = CLASSES[CLASSES.len() - 1];

/// Free parcels by class.
pub(super) struct Pool {
    free: EngineCell<[Vec<NonNull<Parcel>>; CLASSES.len()]>,
}

// SAFETY: a parcel in the pool belongs to the pool alone.
unsafe impl Send for Pool {}
// SAFETY: the lists are only reached through the cell.
unsafe impl Sync for Pool {}

fn layout(class: usize) -> Layout {
    let (layout, _) = Layout::new::<Parcel>()
        .extend(Layout::array::<u8>(CLASSES[class]).expect("classes are small"))
        .expect("classes are small");
    layout.pad_to_align()
}

impl Parcel {
    /// The block of memory.
    pub(super) fn block(parcel: NonNull<Self>) -> *mut u8 {
        // SAFETY: the block lies behind the parcel, in one allocation (`layout`).
        unsafe { parcel.as_ptr().add(1).cast() }
    }

    /// The parcel around a descriptor.
    ///
    /// # Safety
    /// The descriptor is one that a pool handed out.
    pub(super) unsafe fn around(descriptor: *mut Descriptor) -> NonNull<Self> {
        // SAFETY: the promise above; the descriptor is the parcel's first field.
        unsafe { NonNull::new_unchecked(descriptor.cast()) }
    }
}

impl Pool {
    pub(super) fn new(threaded: bool) -> Self {
        Self { free: EngineCell::new([const { Vec::new() }; CLASSES.len()], threaded) }
    }

    /// A parcel with a block of at least `len` bytes, all of them its only segment; `None` beyond
    /// the longest block.
    #[inline]
    pub(super) fn take(&self, len: usize, flags: u32) -> Option<NonNull<Parcel>> {
        let class = CLASSES.iter().position(|&size| len <= size)?;
        let parcel = self.free.with(|free| free[class].pop()).unwrap_or_else(|| make(class));
        let raw = parcel.as_ptr();
        let block = Segment { start: Parcel::block(parcel), len: len as u64 };
        // SAFETY: nobody else has the parcel.
        let parts = unsafe { &mut *raw };
        parts.segments[0] = block;
        parts.outside.set((std::ptr::null_mut(), 0));
        parts.descriptor.segment_count = 1;
        parts.descriptor.sent = None;
        parts.descriptor.flags = flags;
        parts.descriptor.order = u8::MAX;
        Some(parcel)
    }

    /// Takes a parcel back that nobody uses any more.
    #[inline]
    pub(super) fn give(&self, parcel: NonNull<Parcel>) {
        // SAFETY: the parcel is alive; the class never changes.
        let class = unsafe { (*parcel.as_ptr()).class } as usize;
        self.free.with(|free| free[class].push(parcel));
    }
}

#[cold]
fn make(class: usize) -> NonNull<Parcel> {
    let layout = layout(class);
    // Zeroed: the host's headers have holes that nobody fills, and they travel.
    // SAFETY: the layout is not empty.
    let Some(parcel) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Parcel>()) else {
        handle_alloc_error(layout)
    };
    // SAFETY: plain numbers and pointers; zero is a value of each.
    let descriptor = unsafe { std::mem::zeroed() };
    let empty = Segment { start: std::ptr::null_mut(), len: 0 };
    let fresh = Parcel {
        descriptor,
        segments: [empty; 2],
        endpoint: Cell::new(std::ptr::null_mut()),
        ending: Cell::new(Ending::Silent),
        outside: Cell::new((std::ptr::null_mut(), 0)),
        class: class as u32,
    };
    // SAFETY: fresh memory of the right layout.
    unsafe { parcel.write(fresh) };
    // SAFETY: just written, and nobody else's.
    let parts = unsafe { &mut *parcel.as_ptr() };
    // INVARIANT: a parcel never moves, so the address stays right.
    parts.descriptor.segments = parts.segments.as_mut_ptr();
    parcel
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.free.with(|free| {
            for parcel in free.iter_mut().flat_map(std::mem::take) {
                // SAFETY: alive, and nobody else's.
                let class = unsafe { (*parcel.as_ptr()).class } as usize;
                // SAFETY: allocated by `make` with this layout.
                unsafe { dealloc(parcel.as_ptr().cast(), layout(class)) };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_has_the_room_that_was_asked_for() {
        let pool = Pool::new(false);
        for len in [0, 1, 1024, 1025, 1 << 16, LONGEST] {
            let parcel = pool.take(len, 0).expect("fits a class");
            // SAFETY: a parcel of ours.
            let segment = unsafe { (*parcel.as_ptr()).segments }[0];
            assert_eq!(segment.len, len as u64);
            // SAFETY: the block has room for `len` bytes.
            unsafe { segment.start.write_bytes(7, len) };
            pool.give(parcel);
        }
        assert!(pool.take(LONGEST + 1, 0).is_none());
    }

    #[test]
    fn a_parcel_comes_back() {
        let pool = Pool::new(false);
        let first = pool.take(10, 0);
        pool.give(first.expect("fits a class"));
        assert_eq!(pool.take(20, 0), first);
        pool.give(first.expect("fits a class"));
    }
}
