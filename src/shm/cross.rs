//! Copies between the private memory of two processes, in one step and without either's help
//! (`process_vm_readv(2)`, `process_vm_writev(2)`).
//!
//! The kernel allows it to whom it would allow ptrace: the same user, unless Yama, a sandbox or a user namespace
//! say no. So it is tried with each peer before it is relied on.

use std::ptr;

use crate::error::{Error, Result};
use crate::link::Lent;

/// Where peers can see whether they can read this process, and whether it is the one that it was: a few bytes at a place of its own,
/// as long as this lives.
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

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: its own bytes. Peers look there for as long as they like.
        unsafe { ptr::from_mut(&mut *self.0).write_volatile([0; 16]) };
    }
}

/// The private memory of another process, as long as that goes on as the program that it was: its [`Probe`] lies there.
#[derive(Clone, Copy, Debug)]
pub struct CrossMemory {
    pid: i32,
    probe: u64,
    shown: [u8; 16],
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
        let pid = pid.try_into().map_err(|_| Error::BadParameter)?;
        let memory = Self { pid, probe, shown: *expected };
        if memory.look()? { Ok(memory) } else { Err(Error::NotFound) }
    }

    /// Copies what lies at an address of the process.
    ///
    /// # Errors
    /// What the kernel says; [`Error::System`] with `ESRCH` where the process has ended or goes on as another program, and
    /// anything may have been copied; with `EFAULT` where not all of it is there.
    #[inline]
    pub fn read(self, address: u64, to: Lent) -> Result<()> {
        self.all(address, to, |rest, at| {
            let mut seen = [0_u8; 16];
            let probe = there(self.probe, seen.len());
            // The probe comes last, of the same memory: the kernel looks up once per call which one the process has.
            let (other, own) = ([there(at, rest.len()), probe], [here(rest), here_of(&mut seen)]);
            // SAFETY: two pieces of this process's memory, one that is lent and may be written, and `seen`, and two of the other's,
            // which the kernel checks.
            let copied = unsafe { libc::process_vm_readv(self.pid, own.as_ptr(), 2, other.as_ptr(), 2, 0) };
            let is_right = seen == self.shown && copied == (rest.len() + seen.len()) as isize;
            if copied >= rest.len() as isize && !is_right { Err(GONE) } else { Ok(copied) }
        })
    }

    /// Copies to an address of the process, which may become another program between a look at it and the copy.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(self, address: u64, from: Lent) -> Result<()> {
        self.all(address, from, |rest, at| {
            self.verify()?;
            let (other, own) = (there(at, rest.len()), here(rest));
            // SAFETY: one piece of this process's memory, which is lent and only read, and one of the other's, which
            // the kernel checks.
            Ok(unsafe { libc::process_vm_writev(self.pid, &raw const own, 1, &raw const other, 1, 0) })
        })
    }

    /// Whether the probe lies where it did.
    ///
    /// # Errors
    /// What the kernel says.
    fn look(&self) -> Result<bool> {
        let mut seen = [0_u8; 16];
        let (other, own) = (there(self.probe, seen.len()), here_of(&mut seen));
        // SAFETY: `seen` may be written, and the kernel checks what is of the other process.
        match unsafe { libc::process_vm_readv(self.pid, &raw const own, 1, &raw const other, 1, 0) } {
            ..0 => Err(Error::System(errno())),
            _ => Ok(seen == self.shown),
        }
    }

    /// Fails where it does not, or where nobody can say.
    fn verify(&self) -> Result<()> {
        match self.look() {
            Ok(true) => Ok(()),
            Ok(false) | Err(FAULT) => Err(GONE),
            Err(error) => Err(error),
        }
    }

    /// Copies piece by piece until all is done: `copy` is given what is left of `own`, and where that is in the other process.
    #[inline]
    fn all(self, address: u64, own: Lent, copy: impl Fn(Lent, u64) -> Result<isize>) -> Result<()> {
        let mut done = 0;
        while done < own.len() {
            let rest = own.slice(done, (own.len() - done).min(PIECE));
            let at = address.checked_add(done as u64).ok_or(FAULT)?;
            let copied = copy(rest, at)?;
            if copied > 0 {
                done += (copied as usize).min(rest.len());
                continue;
            }
            match if copied == 0 { FAULT } else { Error::System(errno()) } {
                Error::System(libc::EINTR) => {}
                // Of another program nothing lies there, or anything.
                FAULT => return Err(self.verify().err().unwrap_or(FAULT)),
                error => return Err(error),
            }
        }
        Ok(())
    }
}

/// Bytes that are copied by one call, which takes at most 2 GiB with what it looks at besides (`MAX_RW_COUNT` of Linux); few for tests.
const PIECE: usize = if cfg!(test) { 48 } else { 1 << 30 };

/// The process is not what it was.
const GONE: Error = Error::System(libc::ESRCH);
const FAULT: Error = Error::System(libc::EFAULT);

fn here(own: Lent) -> libc::iovec {
    libc::iovec { iov_base: own.as_ptr().cast_mut().cast(), iov_len: own.len() }
}

fn here_of(own: &mut [u8; 16]) -> libc::iovec {
    libc::iovec { iov_base: own.as_mut_ptr().cast(), iov_len: own.len() }
}

fn there(address: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: ptr::without_provenance_mut(address as usize), iov_len: length }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
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
        let mut at = [0_u8; 64];
        let outcome = memory.read(at.as_mut_ptr().addr() as u64, lend(&mut to));
        assert_eq!(outcome, Ok(()), "after all that");
        assert_eq!(memory.read(8, lend(&mut to)), Err(FAULT), "the process is there, and has nothing there");
    }

    #[test]
    fn of_another_program_nothing_is_read_and_to_it_nothing_goes() {
        let probe = Probe::new([9; 16]);
        let memory =
            CrossMemory::open(std::process::id(), probe.address(), &[9; 16]).expect("one's own memory");
        // Where the one before had its probe the next has anything, or nothing.
        for memory in [CrossMemory { shown: [8; 16], ..memory }, CrossMemory { probe: 8, ..memory }] {
            let (mut there, mut here) = ([1_u8; 64], [0_u8; 64]);
            let at = there.as_mut_ptr().addr() as u64;
            assert_eq!(memory.read(at, lend(&mut here)), Err(GONE));
            here = [2; 64];
            assert_eq!(memory.write(at, lend(&mut here)), Err(GONE));
            assert_eq!(there, [1; 64]);
            assert_eq!(memory.read(8, lend(&mut here)), Err(GONE), "whatever lies there");
        }
        let (mut there, mut here) = ([1_u8; 64], [0_u8; 64]);
        let at = there.as_mut_ptr().addr() as u64;
        assert_eq!(memory.read(at, lend(&mut here)), Ok(()));
        drop(probe);
        assert_eq!(memory.read(at, lend(&mut here)), Err(GONE), "who has shown it does so no more");
    }
}
