//! Protection domains and registered memory (`ibv_alloc_pd(3)`, `ibv_reg_mr(3)`).

use std::ffi::c_int;
use std::ops::BitOr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::context::Context;
use super::work::{Piece, Remote};
use super::{last_error, outcome, sys};
use crate::error::{Error, Result};
use crate::link::Lent;

/// A protection domain: what is made of one works together.
pub struct Pd {
    raw: NonNull<sys::ibv_pd>,
    context: Arc<Context>,
    /// Bytes of pages that are registered: of memory of our own, and of others'.
    pinned: [AtomicUsize; 2],
}

// SAFETY: libibverbs' calls on a domain may be made from any thread and overlap.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// A domain of its own.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        // SAFETY: an open context; the domain is ours, or null on failure.
        let raw = unsafe { (context.library().pd_create)(context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context), pinned: Default::default() }))
    }

    /// Bytes of the pages that are registered now: of [slabs](super::Slab), and of [memory that is lent](Mr::register).
    pub fn pinned(&self) -> [usize; 2] {
        self.pinned.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: ours, ended once; what is made of it holds it, so nothing is left.
        let _ended = outcome(unsafe { (self.context.library().pd_destroy)(self.as_ptr()) });
    }
}

/// Who may do what with registered memory. That it may be read from here needs no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// It may be read from here.
    pub const LOCAL_READ: Self = Self(0);
    /// The device may write what arrives into it.
    pub const LOCAL_WRITE: Self = Self(sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
    /// A peer may write into it; the device too.
    pub const REMOTE_WRITE: Self = Self(
        sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 | sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
    );
    /// A peer may read it.
    pub const REMOTE_READ: Self = Self(sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);
    /// A peer's atomics may change it; the device too.
    pub const REMOTE_ATOMIC: Self = Self(
        sys::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0 | sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
    );
    /// What arrives may become visible in any order until its completion is read. Left out where the library or the
    /// device has no such right.
    pub const ANY_ORDER: Self = Self(sys::ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0);

    /// What an RDMA read brings is written by the peer's answer; iWARP's devices want that to be a right of its own
    /// (RFC 5040, section 5.3), InfiniBand's do not.
    pub const READ_SINK_OF_IWARP: Self = Self::REMOTE_WRITE;
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Bytes that this process may lock, as registered memory is; `usize::MAX` where nothing is said.
pub fn lockable() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for what is asked for.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    if !is_known || limit.rlim_cur == libc::RLIM_INFINITY || locks_all() {
        return usize::MAX;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Bytes of memory of this machine.
pub fn installed() -> usize {
    // SAFETY: takes a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).unwrap_or(0).saturating_mul(page())
}

/// Bytes of a page.
fn page() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Whether the process may lock more than its limit says (`CAP_IPC_LOCK`, capabilities(7)).
fn locks_all() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> 14 & 1 == 1)
}

/// Whose registered memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Own,
    Others,
}

/// Bytes of the pages that memory lies on.
pub fn pages(memory: Lent) -> usize {
    let (page, start) = (page(), memory.as_ptr().addr());
    (start + memory.len()).next_multiple_of(page) - start / page * page
}

/// Registered memory: the device may use it until this is dropped.
///
/// It is pinned. Dropping it waits for nothing: whoever drops it knows that no work of his own uses it any more; a peer
/// that still uses its key is refused by the device.
pub struct Mr {
    raw: NonNull<sys::ibv_mr>,
    memory: Lent,
    local: u32,
    remote: u32,
    owner: Owner,
    pd: Arc<Pd>,
}

// SAFETY: libibverbs' calls on a registration may be made from any thread; the memory is only lent.
unsafe impl Send for Mr {}
// SAFETY: as above; a shared one only tells its keys.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers memory that is lent until this is dropped, to peers too where they have rights.
    ///
    /// # Errors
    /// [`Error::OutOfResource`]: too little locked memory (`RLIMIT_MEMLOCK`), or too many registrations.
    /// [`Error::System`]: `EFAULT`, it is not there; `EINVAL`, the device has no such right.
    pub fn register(pd: &Arc<Pd>, memory: Lent, access: Access) -> Result<Self> {
        Self::register_of(Owner::Others, pd, memory, access)
    }

    pub(super) fn register_of(owner: Owner, pd: &Arc<Pd>, memory: Lent, access: Access) -> Result<Self> {
        let library = pd.context.library();
        let address = memory.as_mut_ptr();
        let start = address.cast();
        let raw = match library.mr_create_at {
            // Only this one leaves out what the device does not have.
            Some(create) if access.0 & Access::ANY_ORDER.0 != 0 => {
                // SAFETY: an open domain; the memory is lent until this is dropped, and keeps its own address as its number.
                unsafe { create(pd.as_ptr(), start, memory.len(), address.addr() as u64, access.0) }
            }
            _ => {
                let access = (access.0 & !Access::ANY_ORDER.0) as c_int;
                // SAFETY: an open domain; the memory is lent until this is dropped.
                unsafe { (library.mr_create)(pd.as_ptr(), start, memory.len(), access) }
            }
        };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        // SAFETY: just registered; the field is written by then, and stays.
        let local = unsafe { (*raw.as_ptr()).lkey };
        // SAFETY: as above.
        let remote = unsafe { (*raw.as_ptr()).rkey };
        pd.pinned[owner as usize].fetch_add(pages(memory), Ordering::Relaxed);
        Ok(Self { raw, memory, local, remote, owner, pd: Arc::clone(pd) })
    }

    /// The key for work of this process (`lkey`).
    #[inline]
    pub fn local_key(&self) -> u32 {
        self.local
    }

    /// The key for peers (`rkey`).
    #[inline]
    pub fn remote_key(&self) -> u32 {
        self.remote
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> Lent {
        self.memory
    }

    /// A part of it, for work of this process.
    ///
    /// # Panics
    /// If the part is not inside.
    #[inline]
    pub fn piece(&self, offset: usize, len: usize) -> Piece {
        Piece::new(self.memory.slice(offset, len), self.local)
    }

    /// What a peer needs to use it from an offset on.
    #[inline]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: (self.memory.as_ptr().addr() + offset) as u64, key: self.remote }
    }

    /// Ends it; where that fails, the device may still use the memory.
    pub fn end(self) -> Result<()> {
        let mr = std::mem::ManuallyDrop::new(self);
        // SAFETY: nobody else has it, and it is not dropped.
        let ended = unsafe { mr.end_once() };
        // SAFETY: taken once, out of what is never dropped.
        drop(unsafe { std::ptr::read(&raw const mr.pd) });
        ended
    }

    /// # Safety
    /// It is not used after that.
    unsafe fn end_once(&self) -> Result<()> {
        self.pd.pinned[self.owner as usize].fetch_sub(pages(self.memory), Ordering::Relaxed);
        // SAFETY: ours, ended once.
        outcome(unsafe { (self.pd.context.library().mr_destroy)(self.raw.as_ptr()) })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more.
        let _ended: std::result::Result<(), Error> = unsafe { self.end_once() };
    }
}
