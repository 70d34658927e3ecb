//! The heap, which grows and shrinks by `sbrk`: whether it is told when it does.
//!
//! The host's hooks are in `brk`, which the C library's `sbrk` calls. Others, as UCX, change `sbrk` itself, and call the kernel from
//! there: then nobody hears when `free` gives the end of the heap back. HOST: Debian 13's Open MPI brings UCX along, which has done
//! that before `MPI_Init`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the heap begins whose end goes untold; past all addresses: it is told.
static UNTOLD_FROM: AtomicUsize = AtomicUsize::new(0);

/// Bytes at the begin of a function that are compared.
const CODE: usize = 16;

/// Finds out whether it is told when the heap shrinks.
pub(super) fn look() {
    let is_own =
        super::watch::function(c"sbrk").is_some_and(|code| is_as_in_its_file(ptr::from_ref(code).addr()));
    let from = if is_own { usize::MAX } else { start().unwrap_or(0) };
    UNTOLD_FROM.store(from, Ordering::Release);
}

/// Whether an address lies in a heap whose end goes untold.
pub(super) fn goes_untold(address: usize) -> bool {
    let from = UNTOLD_FROM.load(Ordering::Acquire);
    // SAFETY: changes nothing, and says where the heap ends.
    address >= from && address < unsafe { libc::sbrk(0) }.addr()
}

/// Where the heap begins (`start_brk` of proc_pid_stat(5)).
fn start() -> Option<usize> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; behind it are the fields from the third on.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(47 - 3)?.parse().ok().filter(|start| *start != 0)
}

/// Whether the code at an address is what the file has that it was mapped from.
fn is_as_in_its_file(address: usize) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    let place = maps.lines().find_map(|line| place_in(line, address));
    let Some((path, offset)) = place else { return false };
    let mut in_file = [0; CODE];
    let is_read = File::open(path).and_then(|file| file.read_exact_at(&mut in_file, offset)).is_ok();
    // SAFETY: code that is mapped, and longer: of no function is less kept than this, aligned as functions are.
    let in_memory = unsafe { ptr::with_exposed_provenance::<[u8; CODE]>(address).read_volatile() };
    is_read && in_memory == in_file
}

/// The file and the offset in it that a line of `/proc/self/maps` has for an address.
fn place_in(line: &str, address: usize) -> Option<(&str, u64)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    let path = fields.nth(2)?.trim_start();
    let is_there = (start..end).contains(&address) && path.starts_with('/');
    is_there.then(|| (path, offset + (address - start) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_in_a_file_an_address_lies() {
        let line = "7f00-8f00 r-xp 00002000 08:01 77                         /lib/a file.so.6";
        assert_eq!(place_in(line, 0x7f00), Some(("/lib/a file.so.6", 0x2000)));
        assert_eq!(place_in(line, 0x8eff), Some(("/lib/a file.so.6", 0x2FFF)));
        assert_eq!((place_in(line, 0x8f00), place_in(line, 0x7eff)), (None, None));
        assert_eq!(place_in("7f00-8f00 rw-p 00000000 00:00 0                  [heap]", 0x7f00), None);
        assert_eq!(place_in("7f00-8f00 rw-p 00000000 00:00 0 ", 0x7f00), None);
        assert_eq!(place_in("", 0), None);
    }

    #[test]
    fn code_that_nobody_has_changed_is_as_in_its_file() {
        let code = crate::sync::unmapped::watch::function(c"sbrk").expect("the C library's");
        assert!(is_as_in_its_file(ptr::from_ref(code).expose_provenance()));
        let copied = Box::new([0_u8; CODE]);
        assert!(!is_as_in_its_file(ptr::from_ref(&*copied).expose_provenance()), "of no file");
    }

    #[test]
    fn the_heap_begins_before_it_ends() {
        // SAFETY: changes nothing.
        let end = unsafe { libc::sbrk(0) }.addr();
        assert!(start().is_some_and(|start| start <= end && !goes_untold(end)));
    }
}
