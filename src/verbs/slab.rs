//! Memory of our own that is registered: buffers, and words that peers write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use super::memory::{Access, Mr, Owner, Pd};
use super::work::{Piece, Remote};
use crate::error::{Error, Result};
use crate::link::Lent;

/// Registered memory that nobody else owns. It is registered until it is dropped, and whoever drops it knows that no work
/// uses it any more.
pub struct Slab {
    // Before its memory.
    mr: Mr,
    memory: MmapMut,
}

impl Slab {
    /// So many bytes, which are zero, on pages of their own.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]: there is too little memory, or too little that may be locked; others as
    /// [`Mr::register`].
    pub fn new(pd: &Arc<Pd>, len: usize, access: Access) -> Result<Self> {
        let mut memory = MmapMut::map_anon(len.max(1)).map_err(|_| Error::OutOfResource)?;
        // SAFETY: mapped until after the registration has ended, readable and writable; nobody makes a reference to it.
        let lent = unsafe { Lent::new(memory.as_mut_ptr(), memory.len()) };
        Ok(Self { mr: Mr::register_of(Owner::Own, pd, lent, access)?, memory })
    }

    /// Bytes there are.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// A part of it. It is there as long as the slab.
    ///
    /// # Panics
    /// If the part is not inside.
    #[inline]
    pub fn lent(&self, offset: usize, len: usize) -> Lent {
        self.mr.memory().slice(offset, len)
    }

    /// The same, for work of this process.
    ///
    /// # Panics
    /// If the part is not inside.
    #[inline]
    pub fn piece(&self, offset: usize, len: usize) -> Piece {
        self.mr.piece(offset, len)
    }

    /// The key for work of this process (`lkey`).
    #[inline]
    pub fn local_key(&self) -> u32 {
        self.mr.local_key()
    }

    /// What a peer needs to use it from an offset on.
    pub fn remote(&self, offset: usize) -> Remote {
        self.mr.remote(offset)
    }

    /// The words of 64 bits that it is made of.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        let at = self.mr.memory().slice(index * 8, 8).as_mut_ptr().cast::<u64>();
        // SAFETY: inside the mapping, which lives as long as `self`; aligned, as pages are; whoever uses it as words uses it
        // so only, and what the device writes there is no access of this program's.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// A word, as it is now, whoever writes it.
    ///
    /// # Panics
    /// If it is not inside.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Writes a word.
    ///
    /// # Panics
    /// If it is not inside.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }
}
