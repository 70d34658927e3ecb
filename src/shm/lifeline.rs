//! [`Anchor`] and [`Lifeline`]: how peers see that the program that has made a segment is no longer there.
//!
//! A process that calls `execve(2)` goes on under its number, and its descriptor (`pidfd_open(2)`) says nothing of that, but its
//! memory is another program's. The kernel closes then what is marked so, when the old memory is gone. So the owner has
//! the only writing end of a pipe, by which it never writes anything, and which children of `fork(2)` do not keep; peers have the
//! reading end, which hangs up. A child that the C library does not know of keeps it up: so processes are [watched](super::Watch)
//! besides.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};

use super::published::Published;
use super::segment::{Segment, Shared, beyond_standard, system};
use crate::error::{Error, Result};
use crate::sync::fork::Own;

/// Of the segment's first page; on a line of its own.
const PIPE: Published = Published(256);

/// The owner's end.
pub struct Anchor {
    _own: Own,
    _writes: OwnedFd,
}

impl Anchor {
    /// That of a segment, of which nobody knows yet.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn of(segment: &Segment) -> Result<Self> {
        let (_, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(system)?;
        let writes = beyond_standard(writes)?;
        PIPE.publish(segment.shared(), &writes)?;
        Ok(Self { _own: Own::new(&writes), _writes: writes })
    }
}

/// A peer's end.
#[derive(Clone)]
pub struct Lifeline(Arc<File>);

impl Lifeline {
    /// That of the segment of a process.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, or not any more; why it cannot be opened.
    pub fn of_peer(shared: &Shared, pid: u32) -> Result<Self> {
        let pipe = PIPE.open(shared, pid, false)?;
        // One that was opened when nobody had the other end any more would not hang up.
        if !PIPE.is_there(shared, pid) {
            return Err(Error::NotFound);
        }
        Ok(Self(Arc::new(pipe)))
    }

    /// Whether the owner has ended, or goes on as another program.
    pub fn is_broken(&self) -> bool {
        // Nobody writes there. Where somebody has, the other end is there still.
        rustix::io::read(&*self.0, &mut [0; 1]) == Ok(0)
    }
}

impl AsFd for Lifeline {
    /// What hangs up.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::super::NONCE;
    use super::*;

    fn anchored() -> (Segment, Anchor) {
        let segment = Segment::make([7; NONCE]).expect("memory");
        let anchor = Anchor::of(&segment).expect("a pipe");
        (segment, anchor)
    }

    /// Children of other tests may have the other end until they call execve(2). One that stays is a test that does not end.
    fn breaks(lifeline: &Lifeline) {
        while !lifeline.is_broken() {}
    }

    #[test]
    fn it_breaks_with_its_anchor_though_programs_go_on_that_were_started_meanwhile() {
        let (segment, anchor) = anchored();
        let lifeline = Lifeline::of_peer(segment.shared(), std::process::id()).expect("a pipe");
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        assert!(!lifeline.is_broken() && !lifeline.clone().is_broken());
        drop(anchor);
        breaks(&lifeline);
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }

    #[test]
    fn a_child_does_not_keep_it_up() {
        let (segment, anchor) = anchored();
        let lifeline = Lifeline::of_peer(segment.shared(), std::process::id()).expect("a pipe");
        let (reads, writes) = std::io::pipe().expect("a pipe");
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // It has begun, and stays until it is killed.
            let _ = rustix::io::write(&writes, &[1]);
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        assert_eq!(rustix::io::read(&reads, &mut [0; 1]), Ok(1));
        drop(anchor);
        breaks(&lifeline);
        // SAFETY: takes numbers only; the child has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: nothing is to be told of how it has ended.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }

    #[test]
    fn what_peers_write_there_says_nothing() {
        let (segment, anchor) = anchored();
        let own = std::process::id();
        let lifeline = Lifeline::of_peer(segment.shared(), own).expect("a pipe");
        let liar = PIPE.open(segment.shared(), own, true).expect("a pipe");
        assert_eq!(rustix::io::write(&liar, b"it has ended"), Ok(12));
        assert!(!lifeline.is_broken());
        drop((liar, anchor));
        breaks(&lifeline);
    }

    #[test]
    fn nobody_holds_on_to_what_is_no_longer_anchored() {
        let (segment, anchor) = anchored();
        drop(anchor);
        assert!(Lifeline::of_peer(segment.shared(), std::process::id()).is_err());
    }
}
