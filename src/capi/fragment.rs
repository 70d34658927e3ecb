//! Fragments: what is going to be sent, with the memory that belongs to it.
//!
//! A fragment is the caller's from `alloc` to `send`, then the transport's until its end. The handle of one that is
//! on its way is stale for the caller, and the cookie by which the transport says that it has ended. Blocks of
//! memory are kept for the next fragments until the module ends.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use super::abi::{self, Completed, Endpoint, HAWSER_AWAITED, HAWSER_PRIORITY};
use super::code::{
    self, HAWSER_DONE, HAWSER_ERR_AGAIN, HAWSER_ERR_ARGUMENT, HAWSER_ERR_MEMORY, HAWSER_ERR_STALE,
    HAWSER_ERR_TOO_LONG, HAWSER_ERR_UNSUPPORTED, HAWSER_SUCCESS, Outcome,
};
use super::component::Listed;
use super::handle::{Key, Kind, Place, Table};
use super::host::Context;
use super::module::Module;
use crate::btl::{self, EndpointId, Lent, Sending};
use crate::error::Error;

/// Bytes of a block, by class.
const CLASSES: [usize; 4] = [1 << 10, 1 << 13, 1 << 16, 1 << 19];

/// Longest fragment there is.
pub(super) const LONGEST: usize = CLASSES[CLASSES.len() - 1];

/// Fragments of `sendi` that are on their way at a time: nobody waits for them, so that nobody would stop.
const MOST_COPIES: usize = 1024;

/// What tells the caller that something has ended.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) endpoint: Endpoint,
    pub(super) callback: Completed,
    pub(super) context: Context,
}

/// Memory of ours.
///
/// INVARIANT: allocated with the layout of its class, nobody else's, and never moved.
struct Block {
    start: NonNull<u8>,
    class: usize,
}

// SAFETY: an address of memory that is nobody else's.
unsafe impl Send for Block {}

fn layout(class: usize) -> Option<Layout> {
    Layout::from_size_align(CLASSES[class], 64).ok()
}

impl Block {
    fn new(class: usize) -> Outcome<Self> {
        let layout = layout(class).ok_or(HAWSER_ERR_MEMORY)?;
        // SAFETY: no class is empty.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or(HAWSER_ERR_MEMORY)?;
        Ok(Self { start, class })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.class) {
            // SAFETY: allocated with this layout, by the invariant, and this is its end.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

struct Fragment {
    block: Block,
    /// Bytes of the block that are sent.
    head: usize,
    /// What is sent behind them.
    data: Lent,
    /// Where it was sent to; none before.
    sent: Option<Completion>,
    /// One of `sendi`.
    is_copy: bool,
}

/// The fragments of a module.
pub(super) struct Fragments {
    place: Place,
    table: Table<Fragment>,
    /// Blocks that nobody uses, by class.
    free: [Vec<Block>; CLASSES.len()],
    copies: usize,
}

/// What a transport is given of a fragment.
type Pieces = [Option<Lent>; 2];

impl Fragments {
    /// None yet; handles go on where those of the last module in this place have ended.
    pub(super) const fn new(place: Place, generation: u32) -> Self {
        Self { place, table: Table::new(generation), free: [const { Vec::new() }; CLASSES.len()], copies: 0 }
    }

    /// Where the next module in this place goes on.
    pub(super) const fn generation(&self) -> u32 {
        self.table.generation()
    }

    fn key(&self, fragment: abi::Fragment) -> Outcome<Key> {
        self.place.key(Kind::Fragment, fragment.id).ok_or(HAWSER_ERR_STALE)
    }

    /// A fragment that is the caller's, and its memory.
    #[inline]
    fn take(&mut self, head: usize, data: Lent, is_copy: bool) -> Outcome<(abi::Fragment, *mut u8)> {
        let class = CLASSES.iter().position(|&size| head <= size).ok_or(HAWSER_ERR_TOO_LONG)?;
        let block = self.free[class].pop().map_or_else(|| Block::new(class), Ok)?;
        let start = block.start.as_ptr();
        let key = self.table.insert(Fragment { block, head, data, sent: None, is_copy })?;
        self.copies += usize::from(is_copy);
        Ok((abi::Fragment { id: self.place.handle(Kind::Fragment, key) }, start))
    }

    /// One of the caller's.
    #[inline]
    fn own(&mut self, fragment: abi::Fragment) -> Outcome<&mut Fragment> {
        let key = self.key(fragment)?;
        let fragment = self.table.get_mut(key)?;
        if fragment.sent.is_some() { Err(HAWSER_ERR_STALE) } else { Ok(fragment) }
    }

    /// The caller sends one: from here on it is the transport's.
    #[inline]
    fn launch(&mut self, fragment: abi::Fragment, completion: Completion) -> Outcome<Pieces> {
        let fragment = self.own(fragment)?;
        fragment.sent = Some(completion);
        // SAFETY: the block is the fragment's, and this many bytes at least; the caller leaves it alone from `send` on.
        let head = unsafe { Lent::new(fragment.block.start.as_ptr(), fragment.head) };
        Ok([head, fragment.data].map(|piece| (!piece.is_empty()).then_some(piece)))
    }

    /// It could not be sent, and is the caller's again.
    #[cold]
    fn recall(&mut self, fragment: abi::Fragment) {
        if let Ok(fragment) = self.key(fragment).and_then(|key| self.table.get_mut(key)) {
            fragment.sent = None;
        }
    }

    /// It has ended. Who is to be told, if it was sent.
    #[inline]
    fn end(&mut self, fragment: abi::Fragment) -> Outcome<Option<Completion>> {
        let key = self.key(fragment)?;
        let Fragment { block, sent, is_copy, .. } = self.table.remove(key)?;
        self.copies -= usize::from(is_copy);
        self.free[block.class].push(block);
        Ok(sent)
    }

    /// Whether anything is on its way to an endpoint, or to anybody.
    pub(super) fn any(&self, to: Option<Endpoint>) -> bool {
        let mut under_way = self.table.values().filter_map(|fragment| fragment.sent);
        under_way.any(|completion| to.is_none_or(|to| completion.endpoint == to))
    }

    /// All that are on their way, when the module has ended.
    pub(super) fn into_completions(self) -> impl Iterator<Item = Completion> {
        self.table.into_values().filter_map(|fragment| fragment.sent)
    }
}

impl<T: Listed> Module<T> {
    /// Whether so many bytes are a message.
    fn check(&self, head: usize, data: usize) -> Outcome<usize> {
        let whole = head.checked_add(data).filter(|whole| *whole <= self.longest);
        whole.ok_or(HAWSER_ERR_TOO_LONG)
    }

    /// Whether the processor can read data.
    fn is_readable(&self, data: Lent) -> Outcome<()> {
        if T::HAS_DEVICES && !data.is_empty() && self.core.is_on_device(data.as_ptr()) {
            return Err(HAWSER_ERR_UNSUPPORTED);
        }
        Ok(())
    }

    /// A fragment of the caller's.
    pub(super) fn prepare(&self, head: usize, data: Lent) -> Outcome<(abi::Fragment, *mut u8)> {
        self.check(head, data.len())?;
        self.is_readable(data)?;
        self.fragments.with(|fragments| fragments.take(head, data, false))
    }

    /// A fragment that is not going to be sent.
    pub(super) fn free(&self, fragment: abi::Fragment) -> Outcome {
        self.fragments.with(|fragments| {
            fragments.own(fragment)?;
            fragments.end(fragment)
        })?;
        Ok(HAWSER_SUCCESS)
    }

    #[inline]
    pub(super) fn send(
        &self,
        fragment: abi::Fragment,
        tag: u8,
        flags: u32,
        completion: Completion,
    ) -> Outcome {
        let awaited = flags & HAWSER_AWAITED != 0;
        if flags & !(HAWSER_AWAITED | HAWSER_PRIORITY) != 0 || awaited && completion.callback.is_none() {
            return Err(HAWSER_ERR_ARGUMENT);
        }
        super::module::check_tag::<T>(tag)?;
        let to = self.peers.with(|peers| peers.find(completion.endpoint))?;
        self.launch(to, fragment, tag, (awaited, flags & HAWSER_PRIORITY != 0), completion)
    }

    #[inline]
    fn launch(
        &self,
        to: EndpointId,
        fragment: abi::Fragment,
        tag: u8,
        (awaited, priority): (bool, bool),
        completion: Completion,
    ) -> Outcome {
        let pieces = self.fragments.with(|fragments| fragments.launch(fragment, completion))?;
        match self.core.send(to, btl::Fragment { tag, pieces, cookie: fragment.id, priority, awaited }) {
            Ok(Sending::UnderWay) => Ok(HAWSER_SUCCESS),
            Ok(Sending::Over) => {
                self.fragments.with(|fragments| fragments.end(fragment))?;
                Ok(HAWSER_DONE)
            }
            Err(error) => {
                self.fragments.with(|fragments| fragments.recall(fragment));
                Err(code::of(error))
            }
        }
    }

    /// Sends a header and data from where they lie, or a copy.
    #[inline]
    pub(super) fn send_now(&self, endpoint: Endpoint, tag: u8, pieces: [Lent; 2]) -> Outcome {
        let whole = self.check(pieces[0].len(), pieces[1].len())?;
        super::module::check_tag::<T>(tag)?;
        let to = self.peers.with(|peers| peers.find(endpoint))?;
        self.is_readable(pieces[0])?;
        self.is_readable(pieces[1])?;
        if T::HAS_SEND_NOW && self.core.send_now(to, tag, pieces) {
            return Ok(HAWSER_SUCCESS);
        }
        let (copy, start) = self.fragments.with(|fragments| {
            if fragments.copies >= MOST_COPIES {
                return Err(HAWSER_ERR_AGAIN);
            }
            fragments.take(whole, Lent::EMPTY, true)
        })?;
        let mut at = start;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            // SAFETY: the caller's bytes, readable for the time of the call, and room in a block that has the length of
            // both and that nobody else knows.
            unsafe { at.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            at = at.wrapping_add(piece.len());
        }
        let silent = Completion { endpoint, callback: None, context: Context(std::ptr::null_mut()) };
        let sent = self.launch(to, copy, tag, (false, true), silent);
        if sent.is_err() {
            self.fragments.with(|fragments| fragments.end(copy))?;
        }
        sent.map(|_| HAWSER_SUCCESS)
    }

    /// The transport is done with a fragment.
    #[inline]
    pub(super) fn sent(&self, cookie: u64, outcome: Result<(), Error>) {
        let ended = self.fragments.with(|fragments| fragments.end(abi::Fragment { id: cookie }));
        if let Ok(Some(completion)) = ended {
            self.complete(completion, code::status(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { transport: 0, module: 0 };

    fn silent() -> Completion {
        let endpoint = Endpoint { id: 7 };
        Completion { endpoint, callback: None, context: Context(std::ptr::null_mut()) }
    }

    #[test]
    fn a_fragment_has_the_room_that_was_asked_for_and_its_block_comes_back() {
        let mut fragments = Fragments::new(HERE, 1);
        for len in [0, 1, 1024, 1025, 1 << 16, LONGEST] {
            let (fragment, start) = fragments.take(len, Lent::EMPTY, false).expect("fits a class");
            // SAFETY: the block has room for `len` bytes.
            unsafe { start.write_bytes(7, len) };
            assert!(fragments.end(fragment).is_ok_and(|sent| sent.is_none()));
            assert_eq!(fragments.end(fragment).err(), Some(HAWSER_ERR_STALE));
            let (next, again) = fragments.take(len, Lent::EMPTY, false).expect("fits a class");
            assert!(again == start && next != fragment);
            assert!(fragments.end(next).is_ok());
        }
        assert_eq!(fragments.take(LONGEST + 1, Lent::EMPTY, false).err(), Some(HAWSER_ERR_TOO_LONG));
    }

    #[test]
    fn what_is_on_its_way_is_not_the_callers() {
        let mut fragments = Fragments::new(HERE, 1);
        let (fragment, _) = fragments.take(8, Lent::EMPTY, false).expect("fits a class");
        assert!(!fragments.any(None));
        let pieces = fragments.launch(fragment, silent()).expect("the caller's");
        assert_eq!(pieces.map(|piece| piece.map_or(0, Lent::len)), [8, 0]);
        assert!(fragments.own(fragment).is_err() && fragments.launch(fragment, silent()).is_err());
        assert!(fragments.any(Some(Endpoint { id: 7 })) && !fragments.any(Some(Endpoint { id: 8 })));
        fragments.recall(fragment);
        assert!(fragments.own(fragment).is_ok() && !fragments.any(None));
        fragments.launch(fragment, silent()).expect("the caller's again");
        assert_eq!(fragments.into_completions().count(), 1);
    }
}
