//! Whether this is the process that made something, or a child of it.
//!
//! A child of fork(2) has one thread, locks as they were, and none of the memory that is shared with peers: what its
//! parent has made is of no use there.
//!
//! Of descriptors it has copies, and what is behind one ends with the last: whoever waits to hear of the end of the parent
//! by a socket would wait for that of the child. So children close those that are [not theirs](Own).

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

/// Forks that lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Places for descriptors, and more of them.
struct Block {
    places: [Place; PLACES],
    next: OnceLock<Box<Block>>,
}

/// A descriptor, and which file is behind it: a program may close what is not its own, and have the number for a file of its own.
#[derive(Debug)]
struct Place {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

const PLACES: usize = 64;
/// No descriptor; one that is being written down.
const NONE: i32 = -1;
const TAKEN: i32 = -2;

static DESCRIPTORS: Block = Block::new();

impl Place {
    const fn new() -> Self {
        Self { number: AtomicI32::new(NONE), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }
}

impl Block {
    const fn new() -> Self {
        Self { places: [const { Place::new() }; PLACES], next: OnceLock::new() }
    }

    /// All places that there are.
    fn all() -> impl Iterator<Item = &'static Place> {
        let next = |block: &&'static Block| block.next.get().map(Box::as_ref);
        std::iter::successors(Some(&DESCRIPTORS), next).flat_map(|block| &block.places)
    }

    /// More of them.
    fn grow() {
        let mut block = &DESCRIPTORS;
        while let Some(next) = block.next.get() {
            block = next;
        }
        // Of two that are added at once, one is.
        let _ = block.next.set(Box::new(Self::new()));
    }
}

/// Which file is behind a descriptor.
fn file_of(number: i32) -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: asks about a number, whatever is behind it; may be called after fork(2).
    if unsafe { libc::fstat(number, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in.
    let status = unsafe { status.assume_init() };
    Some((status.st_dev, status.st_ino))
}

/// A descriptor that children do not keep, as long as this lives, which is to end before the descriptor does. A child that is
/// made in the moment between the opening of it and this keeps it, and so does one that the C library does not know of.
#[derive(Debug)]
pub struct Own(&'static Place);

impl Own {
    /// Has children close it from now on.
    pub fn new(descriptor: impl AsFd) -> Self {
        count_children();
        let number = descriptor.as_fd().as_raw_fd();
        let (device, inode) = file_of(number).unwrap_or_default();
        let take = |place: &&Place| {
            place.number.compare_exchange(NONE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        loop {
            if let Some(place) = Block::all().find(take) {
                place.device.store(device, Ordering::Relaxed);
                place.inode.store(inode, Ordering::Relaxed);
                place.number.store(number, Ordering::Release);
                return Self(place);
            }
            Block::grow();
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.number.store(NONE, Ordering::Release);
    }
}

/// What a child does first. It may call nothing that takes a lock or makes room.
extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for place in Block::all() {
        let number = place.number.swap(NONE, Ordering::Acquire);
        let file = (place.device.load(Ordering::Relaxed), place.inode.load(Ordering::Relaxed));
        if number >= 0 && file_of(number) == Some(file) {
            // SAFETY: a descriptor of the parent's, of which this is the child's copy; nobody uses it here: what the parent has
            // made is of no use in a child.
            unsafe { libc::close(number) };
        }
    }
}

/// A number that is another one in each child. Children of before the first call are taken for their parents.
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Has children counted from now on.
pub fn count_children() {
    static ONCE: Once = Once::new();
    // SAFETY: the function counts and closes, which may be done after fork(2), and the library stays loaded (`nodelete`).
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(count)) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_number_than_its_parent() {
        count_children();
        let before = generation();
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(generation() == before)) };
        }
        let mut status = 1;
        // SAFETY: a variable of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, generation()), (0, before));
    }

    #[test]
    fn children_do_not_keep_what_is_its_parents_alone() {
        use std::os::unix::net::UnixStream;
        let pairs: Vec<_> = (0..2 * PLACES).map(|_| UnixStream::pair().expect("sockets")).collect();
        let mut own: Vec<Own> = pairs.iter().map(|(one, _)| Own::new(one)).collect();
        let kept = own.pop();
        drop(kept);
        let is_open = |socket: &UnixStream| {
            // SAFETY: asks about a number, whatever is behind it.
            unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) != -1 }
        };
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let last = pairs.len() - 1;
            let is_right = pairs
                .iter()
                .enumerate()
                .all(|(at, (one, other))| is_open(one) == (at == last) && is_open(other));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 1;
        // SAFETY: a variable of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(pairs.iter().all(|(one, _)| is_open(one)), "the parent has them all");
    }

    #[test]
    fn a_number_that_somebody_else_has_now_is_not_closed_in_children() {
        use std::os::fd::{FromRawFd, OwnedFd};
        use std::os::unix::net::UnixStream;
        let (one, other) = UnixStream::pair().expect("sockets");
        let own = Own::new(&one);
        let number = one.as_raw_fd();
        // SAFETY: both are open; the number is that of another socket afterwards.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: asks about a number, whatever is behind it.
            let is_closed = unsafe { libc::fcntl(number, libc::F_GETFD) } == -1;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(is_closed)) };
        }
        let mut status = 1;
        // SAFETY: a variable of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(own);
        // SAFETY: what `one` has had and was given the number of; it is closed once, by this.
        drop((unsafe { OwnedFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(one)) }, other));
    }
}
