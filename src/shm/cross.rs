//! Copies between the private memory of two processes, in one step and without either's help
//! (`process_vm_readv(2)`, `process_vm_writev(2)`).
//!
//! The kernel allows it to whom it would allow ptrace: the same user, unless Yama, a sandbox or a user namespace
//! say no. So it is tried with each peer before it is relied on.

use std::ptr;

use crate::error::{Error, Result};
use crate::link::Lent;

/// Where peers can see whether they can read this process: a few bytes at a place of its own.
pub struct Probe(Box<[u8; 16]>);

impl Probe {
    /// With bytes that nobody can guess.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(Box::new(bytes))
    }

    /// For the peers.
    pub fn address(&self) -> u64 {
        ptr::from_ref(&*self.0).addr() as u64
    }
}

/// The private memory of another process.
#[derive(Clone, Copy, Debug)]
pub struct CrossMemory {
    pid: i32,
}

/// Yama's setting (`Documentation/admin-guide/LSM/Yama.rst`): 0, and where there is none, the user decides; 1 asks
/// for leave; more refuse.
fn yama() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Lets the processes of this user read this one's memory, where they have to be let.
pub fn allow_peers() {
    if yama() == 1 {
        let any = libc::PR_SET_PTRACER_ANY;
        // SAFETY: takes numbers only, and changes no memory of the process.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, any, 0, 0, 0) };
    }
}

/// Why nobody can read another's memory here; `None` where it may be tried.
pub fn forbids() -> Option<String> {
    let scope = yama();
    (scope > 1).then(|| format!("/proc/sys/kernel/yama/ptrace_scope is {scope}; up to 1 would do"))
}

impl CrossMemory {
    /// That of a process, which shows these bytes at this address if it is the right one and can be read.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open(pid: u32, probe: u64, expected: &[u8; 16]) -> Result<Self> {
        let memory = Self { pid: pid.try_into().map_err(|_| Error::BadParameter)? };
        let mut seen = [0_u8; 16];
        // SAFETY: `seen` outlives the call, which is all that uses it.
        memory.read(probe, unsafe { Lent::new(seen.as_mut_ptr(), seen.len()) })?;
        if seen == *expected { Ok(memory) } else { Err(Error::NotFound) }
    }

    /// Copies what lies at an address of the process.
    ///
    /// # Errors
    /// What the kernel says, or [`Error::System`] with `EFAULT` when not all of it is there.
    #[inline]
    pub fn read(self, address: u64, to: Lent) -> Result<()> {
        self.all(address, to, |pid, own, other| {
            // SAFETY: one piece of this process's memory, which is lent and may be written, and one of the other's,
            // which the kernel checks.
            unsafe { libc::process_vm_readv(pid, own, 1, other, 1, 0) }
        })
    }

    /// Copies to an address of the process.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(self, address: u64, from: Lent) -> Result<()> {
        self.all(address, from, |pid, own, other| {
            // SAFETY: one piece of this process's memory, which is lent and only read, and one of the other's, which
            // the kernel checks: it belongs to a process that has let us in.
            unsafe { libc::process_vm_writev(pid, own, 1, other, 1, 0) }
        })
    }

    fn all(
        self,
        address: u64,
        own: Lent,
        copy: impl Fn(i32, *const libc::iovec, *const libc::iovec) -> isize,
    ) -> Result<()> {
        let mut done = 0;
        while done < own.len() {
            let rest = own.slice(done, own.len() - done);
            let here = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            let at = address.checked_add(done as u64).ok_or(Error::System(libc::EFAULT))?;
            let there =
                libc::iovec { iov_base: ptr::without_provenance_mut(at as usize), iov_len: rest.len() };
            match copy(self.pid, &raw const here, &raw const there) {
                0 => return Err(Error::System(libc::EFAULT)),
                copied if copied > 0 => done += (copied as usize).min(rest.len()),
                _ => {
                    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                    if errno != libc::EINTR {
                        return Err(Error::System(errno));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lend(bytes: &mut [u8]) -> Lent {
        // SAFETY: outlives the copies of each test, which is all that uses it.
        unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn memory_is_read_and_written_where_the_probe_is_right() {
        let probe = Probe::new([9; 16]);
        let own = std::process::id();
        assert!(CrossMemory::open(own, probe.address(), &[8; 16]).is_err(), "another process's");
        let memory = CrossMemory::open(own, probe.address(), &[9; 16]).expect("one's own memory");
        let (mut from, mut to) = ([1_u8, 2, 3], [0_u8; 3]);
        memory.read(from.as_mut_ptr().addr() as u64, lend(&mut to)).expect("readable");
        assert_eq!(to, [1, 2, 3]);
        to = [4; 3];
        memory.write(from.as_mut_ptr().addr() as u64, lend(&mut to)).expect("writable");
        assert_eq!(from, [4; 3]);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let probe = Probe::new([9; 16]);
        let own = std::process::id();
        assert!(CrossMemory::open(own, 8, &[9; 16]).is_err());
        assert!(CrossMemory::open(1 << 30, probe.address(), &[9; 16]).is_err());
        assert!(CrossMemory::open(u32::MAX, probe.address(), &[9; 16]).is_err());
        let memory = CrossMemory::open(own, probe.address(), &[9; 16]).expect("one's own memory");
        let mut to = [0; 64];
        assert!(memory.read(u64::MAX - 8, lend(&mut to)).is_err());
        assert!(memory.write(16, lend(&mut to)).is_err());
    }
}
