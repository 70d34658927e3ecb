//! Processes of this node: which is which, and files of theirs.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{self, Pid, PidfdFlags, PidfdGetfdFlags};

use super::Process;

impl Process {
    /// This one.
    pub fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, started: started(pid)? })
    }

    /// A file descriptor of its, as one of ours (`pidfd_getfd(2)`); `None` where the kernel refuses, or where the
    /// process has gone.
    pub(super) fn file(self, number: i32) -> Option<OwnedFd> {
        if number < 0 {
            return None;
        }
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let held = process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // What is held now, under this number, is the process that is meant: or another, which began later.
        if started(self.pid) != Some(self.started) {
            return None;
        }
        process::pidfd_getfd(held, number, PidfdGetfdFlags::empty()).ok()
    }
}

/// When a process began.
fn started(pid: u32) -> Option<u64> {
    // The name in parentheses may hold anything.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let this = Process::this().expect("this process");
        assert_eq!(Process::this(), Some(this));
        let mut file = tempfile();
        file.write_all(b"shared").expect("room");
        let got = this.file(file.as_raw_fd()).expect("one of our own");
        let mut got = File::from(got);
        got.seek(SeekFrom::Start(0)).expect("a file");
        let mut text = String::new();
        got.read_to_string(&mut text).expect("a file");
        assert_eq!(text, "shared");
        assert!(this.file(-1).is_none() && this.file(1 << 20).is_none(), "no such file");
        let other = Process { started: this.started + 1, ..this };
        assert!(other.file(file.as_raw_fd()).is_none(), "another process, which had this number");
        assert!(Process { pid: 0, ..this }.file(0).is_none());
        assert!(Process { pid: u32::MAX, ..this }.file(0).is_none());
    }

    fn tempfile() -> File {
        rustix::fs::memfd_create("a test's", rustix::fs::MemfdFlags::CLOEXEC).expect("a file").into()
    }
}
