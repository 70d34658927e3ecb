//! [`Plate`]: the name by which processes of one user and one node find a file that one of them has open.
//!
//! Two sockets, by which nothing is ever sent, stand in the abstract namespace of `unix(7)`. The first has the name, so
//! that one process has it at a time; the second the name and which file that is, for others to read in
//! `/proc/net/unix`. Nothing is left of either when the process ends, however it ends.
//!
//! Whoever likes can bind such a socket: what is read there is only where to look, and is checked by who looks.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::segment::{Identity, NONCE, input, system};
use crate::error::Result;
use crate::sync::fork::Own;

/// The sockets of this network namespace, which is that of the thread.
const LISTING: &str = "/proc/thread-self/net/unix";

/// A socket with a name. A child of fork(2) does not keep it.
struct Bound {
    _own: Own,
    _socket: OwnedFd,
}

impl Bound {
    /// `None`: somebody has that name.
    fn new(text: &str) -> Result<Option<Self>> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(system)?;
        let address = SocketAddrUnix::new_abstract_name(text.as_bytes()).map_err(system)?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => Ok(Some(Self { _own: Own::new(&socket), _socket: socket })),
            Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
            Err(error) => Err(system(error)),
        }
    }
}

/// How a name is written there. Long ones would not fit: two with the same digest keep each other out, and are told from
/// each other by what is in the file.
fn text(name: &[u8]) -> String {
    // FNV-1a (draft-eastlake-fnv).
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    let digest = name.iter().fold(0xCBF2_9CE4_8422_2325, step);
    format!("hawser table {} {digest:016x}", rustix::process::geteuid().as_raw())
}

/// A name that is this process's, and says nothing yet.
pub(super) struct Reserved {
    text: String,
    bound: Bound,
}

impl Reserved {
    /// `None`: somebody has it.
    ///
    /// # Errors
    /// Of `socket(2)` and `bind(2)`.
    pub(super) fn new(name: &[u8]) -> Result<Option<Self>> {
        let text = text(name);
        Ok(Bound::new(&text)?.map(|bound| Self { text, bound }))
    }

    /// Says from now on which file that is; `None` where somebody says the same already.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn show(self, file: &Identity) -> Result<Option<Plate>> {
        let Identity { pid, descriptor, device, inode, .. } = file;
        let shown = format!("{} {pid:x} {descriptor:x} {device:x} {inode:x}", self.text);
        Ok(Bound::new(&shown)?.map(|file| Plate { _file: file, _name: self.bound }))
    }
}

/// A name, and which file that is.
pub(super) struct Plate {
    /// Goes first, so that never two say it.
    _file: Bound,
    _name: Bound,
}

/// The files that are said to have this name.
///
/// # Errors
/// Where that cannot be read.
pub(super) fn files(name: &[u8]) -> Result<Vec<Identity>> {
    let listing = fs::read(LISTING).map_err(|error| input(&error))?;
    let before = format!(" @{} ", text(name));
    Ok(listing.split(|byte| *byte == b'\n').filter_map(|line| file_of(line, &before)).collect())
}

/// What follows the name in a line.
fn file_of(line: &[u8], before: &str) -> Option<Identity> {
    let (_, rest) = std::str::from_utf8(line).ok()?.split_once(before)?;
    let mut numbers = rest.split(' ').map(|field| u64::from_str_radix(field, 16).ok());
    let mut next = || numbers.next().flatten();
    let (pid, descriptor) = (next()?.try_into().ok()?, next()?.try_into().ok()?);
    let identity = Identity { pid, descriptor, device: next()?, inode: next()?, nonce: [0; NONCE] };
    numbers.next().is_none().then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity =
        Identity { pid: 4321, descriptor: 7, device: 1, inode: u64::MAX, nonce: [0; NONCE] };

    fn name(of: &str) -> Vec<u8> {
        format!("plate {of} {}", std::process::id()).into_bytes()
    }

    #[test]
    fn a_name_is_one_processs_at_a_time_and_says_which_file_that_is() {
        let name = name("one");
        let reserved = Reserved::new(&name).expect("sockets").expect("free");
        assert!(Reserved::new(&name).expect("sockets").is_none());
        assert_eq!(files(&name).expect("a listing"), [], "it says nothing yet");
        let plate = reserved.show(&FILE).expect("sockets").expect("free");
        assert_eq!(files(&name).expect("a listing"), [FILE]);
        assert_eq!(files(&self::name("other")).expect("a listing"), []);
        drop(plate);
        assert_eq!(files(&name).expect("a listing"), []);
        assert!(Reserved::new(&name).expect("sockets").is_some());
    }

    #[test]
    fn lines_that_say_something_else_are_passed_over() {
        let line = |rest: &str| file_of(format!("0000: 2 0 0 2 01 12 @n {rest}").as_bytes(), " @n ");
        assert_eq!(line("10e1 7 1 ffffffffffffffff"), Some(FILE));
        for rest in [
            "",
            "1",
            "1 2 3",
            "1 2 3 4 5",
            "1 2 3 4 ",
            "1 2 3 x",
            "1 2 3 10000000000000000",
            "100000000 2 3 4",
        ] {
            assert_eq!(line(rest), None, "{rest}");
        }
        assert_eq!(file_of(b"\xFF @n 1 2 3 4", " @n "), None);
    }
}
