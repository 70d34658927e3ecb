//! Fragments: the descriptors that the host fills and sends, with their memory.
//!
//! A fragment is one allocation that never moves: the host's descriptor first, so that its address is
//! the descriptor's, then our notes, then a block of memory. It is the host's from the moment it is handed
//! out until the host frees it, which it may not do while it is being sent, or until its send has ended,
//! when the host gave it away with that. Then it is the pool's again, at once; nobody counts owners. When
//! the pool ends, so do all that it ever made.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::sys::{BtlEndpoint, Descriptor, Segment, Sent};
use crate::btl::Lent;
use crate::sync::EngineCell;

/// What the transport's end of a send means for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing: the host was told at once.
    Silent,
    /// The host's callback runs, and the host frees the descriptor.
    Callback,
    /// The host's callback runs, and the descriptor is ours again.
    CallbackAndFree,
}

/// The host's descriptor as cells, since it writes there whenever the descriptor is its own.
#[repr(C)]
struct Cells {
    _head: Cell<[u8; offset_of!(Descriptor, segments)]>,
    segments: Cell<*mut Segment>,
    segment_count: Cell<usize>,
    sent: Cell<Sent>,
    _callback_data: Cell<[*mut c_void; 2]>,
    flags: Cell<u32>,
    order: Cell<u8>,
    _tail: Cell<[u8; 3]>,
}

const _: () = {
    assert!(size_of::<Cells>() == size_of::<Descriptor>());
    assert!(offset_of!(Cells, segments) == offset_of!(Descriptor, segments));
    assert!(offset_of!(Cells, segment_count) == offset_of!(Descriptor, segment_count));
    assert!(offset_of!(Cells, sent) == offset_of!(Descriptor, sent));
    assert!(offset_of!(Cells, flags) == offset_of!(Descriptor, flags));
    assert!(offset_of!(Cells, order) == offset_of!(Descriptor, order));
};

impl Cells {
    /// Nothing filled in.
    fn empty() -> Self {
        Self {
            _head: Cell::new([0; offset_of!(Descriptor, segments)]),
            segments: Cell::new(ptr::null_mut()),
            segment_count: Cell::new(0),
            sent: Cell::new(None),
            _callback_data: Cell::new([ptr::null_mut(); 2]),
            flags: Cell::new(0),
            order: Cell::new(0),
            _tail: Cell::new([0; 3]),
        }
    }
}

/// A descriptor of the host with what belongs to it.
#[repr(C, align(64))]
struct Frag {
    descriptor: Cells,
    segments: Cell<[Segment; 2]>,
    /// Where it was sent to.
    endpoint: Cell<*mut BtlEndpoint>,
    ending: Cell<Ending>,
    class: usize,
}

/// A fragment that a pool has handed out.
///
/// INVARIANT: the fragment is alive: the pool frees none before it ends itself, with its module, whose last
/// call is `finalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragRef(NonNull<Frag>);

/// Bytes of a block, by class.
const CLASSES: [usize; 5] = [1 << 10, 1 << 13, 1 << 15, 1 << 16, 1 << 19];

/// Bytes of blocks in use beyond which the host is not told at once any more that a send is over: a program that sends faster than
/// its peer receives, or the network carries, has to wait for something.
const MUCH: usize = 16 << 20;

/// Longest block there is.
pub(super) const LONGEST: usize = CLASSES[CLASSES.len() - 1];

/// The fragments of a module.
pub(super) struct Pool {
    state: EngineCell<State>,
    /// Bytes of the blocks of those that somebody uses. Written by who has the state.
    used: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Those that nobody uses, by class.
    free: [Vec<FragRef>; CLASSES.len()],
    /// All.
    made: Vec<FragRef>,
}

// SAFETY: an address; who may touch what is behind it is whoever has the fragment: the host, or the pool.
unsafe impl Send for FragRef {}

fn layout(class: usize) -> Layout {
    let (layout, _) = Layout::new::<Frag>()
        .extend(Layout::array::<u8>(CLASSES[class]).expect("classes are small"))
        .expect("classes are small");
    layout.pad_to_align()
}

impl FragRef {
    /// The fragment around a descriptor.
    ///
    /// # Safety
    /// The descriptor is one that a pool handed out, and the pool is alive.
    #[inline]
    pub(super) unsafe fn around(descriptor: *mut Descriptor) -> Self {
        // SAFETY: handed out by a pool, hence not null; the descriptor is the fragment's first field.
        Self(unsafe { NonNull::new_unchecked(descriptor.cast()) })
    }

    /// The fragment behind a cookie of [`cookie`](Self::cookie).
    ///
    /// # Safety
    /// The pool is alive that the fragment is of.
    #[inline]
    pub(super) unsafe fn behind(cookie: u64) -> Self {
        let frag = ptr::with_exposed_provenance_mut::<Frag>(cookie as usize);
        // SAFETY: the address of a fragment, which is not null.
        Self(unsafe { NonNull::new_unchecked(frag) })
    }

    /// A number by which the fragment is found again; its lowest bits are 0.
    #[inline]
    pub(super) fn cookie(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    #[inline]
    fn frag<'a>(self) -> &'a Frag {
        // SAFETY: alive, by the invariant; all that anybody writes while references exist lies in cells.
        unsafe { self.0.as_ref() }
    }

    /// For the host.
    #[inline]
    pub(super) fn descriptor(self) -> *mut Descriptor {
        // The whole fragment's provenance: the host's pointer comes back as the fragment's.
        self.0.as_ptr().cast()
    }

    /// The block of memory.
    #[inline]
    pub(super) fn block(self) -> *mut u8 {
        // SAFETY: the block lies behind the fragment, in one allocation (`layout`).
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    /// What the host wishes: the descriptor's flags.
    #[inline]
    pub(super) fn flags(self) -> u32 {
        self.frag().descriptor.flags.get()
    }

    /// The pieces of memory that it is made of.
    #[inline]
    fn segments(self) -> [Segment; 2] {
        let [first, second] = self.frag().segments.get();
        // The second is only there when the count says so.
        [first, if self.frag().descriptor.segment_count.get() > 1 { second } else { Segment::EMPTY }]
    }

    /// The same, lent to the transport for a send; none for those that are empty.
    #[inline]
    pub(super) fn pieces(self) -> [Option<Lent>; 2] {
        // SAFETY: the block is the fragment's; other memory is the host's, which leaves it alone from the send
        // to its end, as everything that a descriptor names (`btl_send`).
        let lend = |segment: Segment| unsafe { Lent::new(segment.start, segment.len as usize) };
        self.segments().map(|segment| (segment.len != 0).then(|| lend(segment)))
    }

    /// Says which pieces of memory it is made of.
    #[inline]
    pub(super) fn set_segments(self, segments: &[Segment]) {
        let mut all = [Segment::EMPTY; 2];
        all[..segments.len()].copy_from_slice(segments);
        self.frag().segments.set(all);
        self.frag().descriptor.segment_count.set(segments.len());
    }

    /// Notes what the end of a send to this endpoint will mean.
    #[inline]
    pub(super) fn note(self, endpoint: *mut BtlEndpoint, ending: Ending) {
        self.frag().endpoint.set(endpoint);
        self.frag().ending.set(ending);
    }

    /// What was noted.
    #[inline]
    pub(super) fn noted(self) -> (*mut BtlEndpoint, Ending) {
        (self.frag().endpoint.get(), self.frag().ending.get())
    }

    /// The host's callback for the end of a send, which it has set before.
    #[inline]
    pub(super) fn callback(self) -> Sent {
        self.frag().descriptor.sent.get()
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Self { state: EngineCell::new(State::default()), used: AtomicUsize::new(0) }
    }

    /// A fragment with a block of at least `len` bytes, which are its only segment; `None` beyond
    /// the longest block.
    #[inline]
    pub(super) fn take(&self, len: usize, flags: u32) -> Option<FragRef> {
        let class = CLASSES.iter().position(|&size| len <= size)?;
        let free = self.state.with(|state| {
            let free = state.free[class].pop()?;
            self.count(CLASSES[class] as isize);
            Some(free)
        });
        let frag = free.or_else(|| self.make(class))?;
        frag.set_segments(&[Segment { start: frag.block(), len: len as u64 }]);
        let descriptor = &frag.frag().descriptor;
        descriptor.sent.set(None);
        descriptor.flags.set(flags);
        descriptor.order.set(u8::MAX);
        Some(frag)
    }

    /// Takes a fragment back that nobody uses any more.
    #[inline]
    pub(super) fn give(&self, frag: FragRef) {
        let class = frag.frag().class;
        self.state.with(|state| {
            state.free[class].push(frag);
            self.count(-(CLASSES[class] as isize));
        });
    }

    /// Whether so much is in use that whoever sends has to wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > MUCH
    }

    /// So many bytes more or less are in use. Only who has the state calls.
    #[inline(always)]
    fn count(&self, bytes: isize) {
        self.used.store(self.used.load(Ordering::Relaxed).wrapping_add_signed(bytes), Ordering::Relaxed);
    }

    #[cold]
    fn make(&self, class: usize) -> Option<FragRef> {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(class)) }.cast::<Frag>())?;
        let fresh = Frag {
            descriptor: Cells::empty(),
            segments: Cell::new([Segment::EMPTY; 2]),
            endpoint: Cell::new(ptr::null_mut()),
            ending: Cell::new(Ending::Silent),
            class,
        };
        // SAFETY: fresh memory of the right layout.
        unsafe { memory.write(fresh) };
        let frag = FragRef(memory);
        // INVARIANT: a fragment never moves, so the address of its segments stays right.
        frag.frag().descriptor.segments.set(frag.frag().segments.as_ptr().cast());
        self.state.with(|state| {
            state.made.push(frag);
            self.count(CLASSES[class] as isize);
        });
        Some(frag)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for frag in self.state.with(|state| std::mem::take(&mut state.made)) {
            let layout = layout(frag.frag().class);
            // SAFETY: allocated by `make` with this layout, once in the list, and the pool's end is the
            // end of all use.
            unsafe { dealloc(frag.0.as_ptr().cast(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_has_the_room_that_was_asked_for() {
        let pool = Pool::new();
        for len in [0, 1, 1024, 1025, 1 << 16, LONGEST] {
            let frag = pool.take(len, 5).expect("fits a class");
            let [first, second] = frag.segments();
            assert_eq!((frag.flags(), first.len, second.len), (5, len as u64, 0));
            // SAFETY: the block has room for `len` bytes.
            unsafe { first.start.write_bytes(7, len) };
            pool.give(frag);
        }
        assert!(pool.take(LONGEST + 1, 0).is_none());
    }

    #[test]
    fn a_fragment_comes_back() {
        let pool = Pool::new();
        let first = pool.take(10, 0).expect("fits a class");
        pool.give(first);
        assert_eq!(pool.take(20, 0), Some(first));
        pool.give(first);
    }

    #[test]
    fn a_fragment_is_found_by_its_descriptor_and_by_its_cookie() {
        let pool = Pool::new();
        let frag = pool.take(10, 0).expect("fits a class");
        // SAFETY: of this pool.
        assert_eq!(unsafe { FragRef::around(frag.descriptor()) }, frag);
        // SAFETY: of this pool.
        assert_eq!(unsafe { FragRef::behind(frag.cookie()) }, frag);
        assert_eq!(frag.cookie() & 63, 0);
    }

    #[test]
    fn a_pool_is_full_when_much_is_in_use() {
        let pool = Pool::new();
        let taken: Vec<FragRef> =
            (0..=MUCH / LONGEST).map(|_| pool.take(LONGEST, 0).expect("fits")).collect();
        assert!(pool.is_full());
        for frag in taken {
            pool.give(frag);
            assert!(!pool.is_full());
        }
        assert_eq!(pool.used.load(Ordering::Relaxed), 0);
    }

    /// Under a leak checker: what is still sent when a module ends must not leak.
    #[test]
    fn a_pool_frees_what_never_came_back() {
        let pool = Pool::new();
        pool.take(10, 0).expect("fits a class");
        assert_eq!(pool.state.with(|state| state.made.len()), 1);
    }
}
