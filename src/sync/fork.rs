//! Whether this is the process that made something, or a child of it.
//!
//! A child of fork(2) has one thread, locks as they were, and none of the memory that is shared with peers: what its
//! parent has made is of no use there.
//!
//! Of descriptors it has copies, and what is behind one ends with the last: whoever waits to hear of the end of the parent
//! by a socket would wait for that of the child. So children close those that are [not theirs](Own).

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Forks that lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Places for descriptors, and more of them.
struct Block {
    places: [AtomicI32; PLACES],
    next: OnceLock<Box<Block>>,
}

const PLACES: usize = 64;
/// No descriptor.
const NONE: i32 = -1;

static DESCRIPTORS: Block = Block::new();

impl Block {
    const fn new() -> Self {
        Self { places: [const { AtomicI32::new(NONE) }; PLACES], next: OnceLock::new() }
    }

    /// All places that there are.
    fn all() -> impl Iterator<Item = &'static AtomicI32> {
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

/// A descriptor that children do not keep, as long as this lives, which is to end before the descriptor does. A child that is
/// made in the moment between the opening of it and this keeps it, and so does one that the C library does not know of.
#[derive(Debug)]
pub struct Own(&'static AtomicI32);

impl Own {
    /// Has children close it from now on.
    pub fn new(descriptor: impl AsFd) -> Self {
        count_children();
        let number = descriptor.as_fd().as_raw_fd();
        let take = |place: &&AtomicI32| {
            place.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        loop {
            if let Some(place) = Block::all().find(take) {
                return Self(place);
            }
            Block::grow();
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.store(NONE, Ordering::Relaxed);
    }
}

/// What a child does first. It may call nothing that takes a lock or makes room.
extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for place in Block::all() {
        let number = place.swap(NONE, Ordering::Relaxed);
        if number != NONE {
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
}
