//! A pipe of a process that its peers open, too, by what its segment says of it.
//!
//! Three words of the segment's first page: one more than the descriptor, and device and inode of the pipe. They are believed when the
//! kernel says the same of what it has opened.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Stat, fstat, stat};

use super::segment::{Shared, beyond_standard, input, system};
use crate::error::{Error, Result};

const DEVICE: usize = 8;
const INODE: usize = 16;

/// The words at an offset of the first page.
#[derive(Clone, Copy)]
pub(super) struct Published(pub(super) usize);

impl Published {
    /// Says which pipe it is.
    ///
    /// # Errors
    /// Of `fstat(2)`.
    pub(super) fn publish(self, shared: &Shared, pipe: impl AsFd) -> Result<()> {
        let stat = fstat(&pipe).map_err(system)?;
        shared.word(self.0 + DEVICE).store(stat.st_dev, Ordering::Relaxed);
        shared.word(self.0 + INODE).store(stat.st_ino, Ordering::Relaxed);
        // SYNC POINT: published (acquired in `Published::path`)
        shared.word(self.0).store(pipe.as_fd().as_raw_fd() as u64 + 1, Ordering::Release);
        Ok(())
    }

    fn path(self, shared: &Shared, pid: u32) -> Result<String> {
        // SYNC POINT: published (released in `Published::publish`)
        let number = shared.word(self.0).load(Ordering::Acquire);
        let number = number.checked_sub(1).and_then(|number| u32::try_from(number).ok());
        Ok(format!("/proc/{pid}/fd/{}", number.ok_or(Error::BadParameter)?))
    }

    fn is_it(self, shared: &Shared, stat: &Stat) -> bool {
        stat.st_dev == shared.word(self.0 + DEVICE).load(Ordering::Relaxed)
            && stat.st_ino == shared.word(self.0 + INODE).load(Ordering::Relaxed)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
    }

    /// Opens that of a process for reading, and for writing as well or not.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the process does not have it, or not any more; why it cannot be opened.
    pub(super) fn open(self, shared: &Shared, pid: u32, writes: bool) -> Result<File> {
        // By now that number may be of what cannot be opened at all.
        let or_gone = |error| if self.is_there(shared, pid) { error } else { Error::NotFound };
        if !self.is_there(shared, pid) {
            return Err(Error::NotFound);
        }
        let pipe = File::options()
            .read(true)
            .write(writes)
            // It may be anything until it is looked at.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(self.path(shared, pid)?)
            .map_err(|error| or_gone(input(&error)))?;
        let pipe = beyond_standard(pipe.into())?;
        let is_it = self.is_it(shared, &fstat(&pipe).map_err(system)?);
        if is_it { Ok(pipe.into()) } else { Err(Error::NotFound) }
    }

    /// Whether the process has it still.
    pub(super) fn is_there(self, shared: &Shared, pid: u32) -> bool {
        let stat = self.path(shared, pid).map(stat);
        stat.is_ok_and(|stat| stat.is_ok_and(|stat| self.is_it(shared, &stat)))
    }
}
