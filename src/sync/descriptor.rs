//! Descriptors that nobody takes for standard input or output.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;

/// The same file under a number that nobody reads or writes by itself: a program that was started without standard input or
/// output takes whatever is 0, 1 or 2 for them.
///
/// # Errors
/// There is no room for another descriptor.
pub fn beyond_standard(file: OwnedFd) -> io::Result<OwnedFd> {
    if file.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(file);
    }
    Ok(fcntl_dupfd_cloexec(&file, libc::STDERR_FILENO + 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    #[test]
    fn what_is_under_another_number_stays_there_and_a_standard_one_gets_another() {
        let (reads, _writes) = io::pipe().expect("a pipe");
        let reads = OwnedFd::from(reads);
        let number = reads.as_raw_fd();
        assert_eq!(beyond_standard(reads).expect("room").as_raw_fd(), number);
        // SAFETY: that of the tests, which is not closed: what owns it is forgotten.
        let standard = unsafe { OwnedFd::from_raw_fd(libc::STDERR_FILENO) };
        let another = fcntl_dupfd_cloexec(&standard, 0).expect("room");
        std::mem::forget(standard);
        assert!(another.as_raw_fd() > libc::STDERR_FILENO);
        // SAFETY: a child has a table of its own, and calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: takes a number; nobody else here has it.
            unsafe { libc::close(libc::STDIN_FILENO) };
            let free = rustix::io::dup(&another).map(|free| (free.as_raw_fd(), beyond_standard(free)));
            let is_right = matches!(&free, Ok((libc::STDIN_FILENO, Ok(moved))) if moved.as_raw_fd() > libc::STDERR_FILENO);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child's own number, and a variable of this function's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
