//! [`Pool`]: operations of our own: answers, probes, blocking sends.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;

use super::operation::{Id, Lease, Operation, Slot, Work};
use super::standing::Standing;
use crate::sync::EngineCell;

/// Operations of our own: answers, probes, blocking sends.
///
/// Memory grows in blocks. It is given back when the pool ends, unless an operation is out then: its
/// lease keeps what it needs.
pub struct Pool<W: Work> {
    home: Home<W>,
}

/// Where the operations of a pool go back to.
///
/// INVARIANT: the free list stays as long as the pool, and as long as one of its operations is out.
pub(super) struct Home<W: Work>(NonNull<EngineCell<FreeList<W>>>);

impl<W: Work> Clone for Home<W> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<W: Work> Copy for Home<W> {}

struct FreeList<W: Work> {
    free: Vec<Slot<W>>,
    /// By their addresses.
    blocks: BTreeMap<usize, Block<W>>,
}

/// Memory of `BLOCK` operations.
type Block<W> = NonNull<[Operation<W>]>;

// SAFETY: the slots and blocks are memory that the pool owns; each is handed out to one lease at a time.
unsafe impl<W: Work> Send for FreeList<W> {}
// SAFETY: a pool owns its free list, which is reached through a cell.
unsafe impl<W: Work> Send for Pool<W> {}
// SAFETY: the free list is reached through a cell, which lends it to one thread at a time.
unsafe impl<W: Work> Sync for Pool<W> {}

const BLOCK: usize = 64;

impl<W: Work> Home<W> {
    #[inline]
    fn with<R>(self, look: impl FnOnce(&mut FreeList<W>) -> R) -> R {
        // SAFETY: the free list is there, by the invariant: whoever calls has the pool, or an operation that is out.
        unsafe { self.0.as_ref() }.with(look)
    }

    /// Takes a slot back that no lease is of any more.
    #[inline]
    pub(super) fn take_back(self, slot: Slot<W>) {
        self.with(|list| list.free.push(slot));
    }
}

impl<W: Work> Default for Pool<W> {
    /// An empty pool.
    fn default() -> Self {
        let list = EngineCell::new(FreeList { free: Vec::new(), blocks: BTreeMap::new() });
        Self { home: Home(NonNull::from(Box::leak(Box::new(list)))) }
    }
}

impl<W: Work> Pool<W> {
    /// An operation with the given state and an empty message.
    #[inline]
    pub fn take(&self, body: W) -> Lease<W> {
        let slot = self.home.with(|list| {
            if list.free.is_empty() {
                list.grow();
            }
            list.free.pop()
        });
        let slot = slot.expect("a pool that has grown has a free operation");
        // SAFETY: it was free, and is not any more.
        unsafe { slot.fill(self.home, body) }
    }

    /// The operation of this name, if it is in this pool; it may have ended.
    pub fn standing(&self, which: Id) -> Option<Standing<'_, W>> {
        let slot = self.home.with(|list| {
            let (_, block) = list.blocks.range(..=which.at).next_back()?;
            slot_at(*block, which.at)
        });
        slot.map(|slot| Standing::of(slot, which))
    }

    /// The operations that are posted at the object of this address, as the provider knows them.
    pub(super) fn posted_at(&self, at: usize) -> Vec<NonNull<c_void>> {
        let posted = |slot: Slot<W>| slot.posted_as(slot.id(), at).and_then(NonNull::new);
        self.home.with(|list| list.blocks.values().copied().flat_map(slots).filter_map(posted).collect())
    }

    /// Operations that are out.
    pub fn out(&self) -> usize {
        self.home.with(|list| list.out())
    }
}

impl<W: Work> Drop for Pool<W> {
    fn drop(&mut self) {
        // What is out points to the free list and lies in its blocks: both stay then.
        let Some(blocks) = self.home.with(|list| (list.out() == 0).then(|| std::mem::take(&mut list.blocks)))
        else {
            return;
        };
        for block in blocks.into_values() {
            // SAFETY: leaked in `grow`, and nothing in it is in use.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
        // SAFETY: leaked in `default`; no operation is out that could point to it.
        drop(unsafe { Box::from_raw(self.home.0.as_ptr()) });
    }
}

/// The slot of a block that lies at this address.
fn slot_at<W: Work>(block: Block<W>, at: usize) -> Option<Slot<W>> {
    let place = at.checked_sub(block.addr().get())? / size_of::<Operation<W>>();
    slots(block).nth(place).filter(|slot| slot.id().at == at)
}

/// The slots of a block of a free list's.
fn slots<W: Work>(block: Block<W>) -> impl DoubleEndedIterator<Item = Slot<W>> {
    let first = block.cast::<Operation<W>>().as_ptr();
    (0..BLOCK).filter_map(move |place| {
        let at = NonNull::new(first.wrapping_add(place))?;
        // SAFETY: one of the block's operations, which stay as long as the pool or any of its operations.
        Some(unsafe { Slot::new(at) })
    })
}

impl<W: Work> FreeList<W> {
    fn out(&self) -> usize {
        self.blocks.len() * BLOCK - self.free.len()
    }

    #[cold]
    fn grow(&mut self) {
        let memory: Box<[_]> = (0..BLOCK).map(|_| Operation::empty()).collect();
        let block = NonNull::from(Box::leak(memory));
        self.free.reserve(BLOCK * (self.blocks.len() + 1));
        self.free.extend(slots(block).rev());
        self.blocks.insert(block.addr().get(), block);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Buffer, Request};
    use super::super::loan::Memory;
    use super::super::operation::Ended;
    use super::*;

    #[derive(Clone, Copy)]
    struct Count {
        count: u64,
    }

    impl Work for Count {
        type Convertor = Buffer;
        type Request = Request;
    }

    /// What the provider gives back, this once, after `posted`.
    fn back(context: NonNull<std::ffi::c_void>) -> Lease<Count> {
        // SAFETY: tests call this once for what they have posted.
        unsafe { Lease::back(context) }
    }

    #[test]
    fn operations_come_back_and_are_used_again() {
        let pool: Pool<Count> = Pool::default();
        let first = pool.take(Count { count: 7 });
        let which = first.id();
        assert_eq!((first.count, first.room(), pool.out()), (7, 0, 1));
        assert_eq!(first.end().body.count, 7);
        let second = pool.take(Count { count: 8 });
        assert!(second.id().at == which.at && second.count == 8);
        let many: Vec<_> = (0..200).map(|n| pool.take(Count { count: n })).collect();
        assert!(many.iter().enumerate().all(|(n, operation)| operation.count == n as u64));
        assert_eq!(pool.out(), 201);
        drop(many);
        assert_eq!(pool.out(), 1);
    }

    #[test]
    fn an_operation_outlives_its_pool() {
        let pool: Pool<Count> = Pool::default();
        let mut operation = pool.take(Count { count: 7 });
        operation.hold_bytes(vec![1, 2, 3].into());
        drop(pool);
        assert_eq!(operation.count, 7);
        let Ended { body, bytes, .. } = operation.end();
        assert_eq!((body.count, bytes.as_deref()), (7, Some(&[1, 2, 3][..])));
    }

    #[test]
    fn the_memory_of_a_posted_operation_is_its_own() {
        let pool: Pool<Count> = Pool::default();
        let mut operation = pool.take(Count { count: 7 });
        operation.hold_bytes(vec![0; 3].into());
        let (which, Memory { piece, .. }) = (operation.id(), operation.landing());
        let context = operation.posted(5);
        let standing = pool.standing(which).expect("one of the pool's");
        assert_eq!(standing.context(6), None, "posted elsewhere");
        assert_eq!(standing.context(5), Some(context.as_ptr()));
        // SAFETY: as the provider would: the buffer is the operation's, and that is posted.
        unsafe { piece.start.write_bytes(9, piece.len) };
        let operation = back(context);
        assert_eq!((standing.context(5), pool.out()), (None, 1));
        assert_eq!(operation.bytes(), Some(&[9; 3][..]));
    }

    /// A name is of one operation, also when its memory is another's: whoever asks for it late finds that nothing is
    /// posted.
    #[test]
    fn a_name_outlives_its_operation_and_is_not_the_next_ones() {
        let pool: Pool<Count> = Pool::default();
        let first = pool.take(Count { count: 1 });
        let which = first.id();
        let standing = pool.standing(which).expect("one of the pool's");
        drop(first);
        let second = pool.take(Count { count: 2 });
        assert_ne!(second.id(), which, "the memory is the same, the operation is not");
        let later = second.id();
        let context = second.posted(5);
        assert_eq!(standing.context(5), None, "another operation is posted there");
        assert_eq!(pool.standing(which).and_then(|old| old.context(5)), None);
        assert_eq!(pool.standing(later).and_then(|new| new.context(5)), Some(context.as_ptr()));
        drop(back(context));
    }

    /// What is watched may be looked at while the memory goes from one operation to the next.
    #[test]
    fn others_may_look_while_operations_come_and_go() {
        let pool: Pool<Count> = Pool::default();
        let which = pool.take(Count { count: 0 }).id();
        let most = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..most {
                    let standing = pool.standing(which).expect("one of the pool's");
                    assert_eq!(standing.context(5), None, "it has ended");
                    standing.give_up();
                }
            });
            for count in 0..most {
                let operation = pool.take(Count { count });
                assert_eq!(operation.end().body.count, count);
            }
        });
    }
}
