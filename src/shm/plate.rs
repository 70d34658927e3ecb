//! [`Plate`]: the name by which processes of one user and one node find a file that one of them has open.
//!
//! Two sockets, by which nothing is ever sent, stand in the abstract namespace of `unix(7)`. The first has the name, so
//! that one process has it at a time. The second, which is there before, says which file that is, and is read in
//! `/proc/net/unix`; and which socket has to have the name for that to be so. So there is no moment at which the name
//! is somebody's and leads nowhere, and nobody waits for anybody. Nothing is left of either socket when the process ends,
//! however it ends.
//!
//! Whoever likes can bind such sockets: what is read there is only where to look, and is checked by who looks.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::segment::{Identity, NONCE, input, system};
use crate::error::{Error, Result};
use crate::sync::fork::Own;

/// The sockets of this network namespace, which is that of the thread.
const LISTING: &str = "/proc/thread-self/net/unix";

/// How often the sockets are read: what comes and goes may hide a line from who reads.
const LOOKS: usize = 16;

fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(system)
}

fn address(text: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(text.as_bytes()).map_err(system)
}

/// A socket with a name. A child of fork(2) does not keep it.
struct Bound {
    _own: Own,
    _socket: OwnedFd,
}

impl Bound {
    /// `None`: somebody has that name.
    fn new(socket: OwnedFd, text: &str) -> Result<Option<Self>> {
        let own = Own::new(&socket);
        match rustix::net::bind(&socket, &address(text)?) {
            Ok(()) => Ok(Some(Self { _own: own, _socket: socket })),
            Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
            Err(error) => Err(system(error)),
        }
    }
}

/// How a name is written there. Long ones would not fit: two with the same digest keep each other out, and are told from
/// each other by what is in the file.
pub(super) fn text(name: &[u8]) -> String {
    // FNV-1a (draft-eastlake-fnv).
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    let digest = name.iter().fold(0xCBF2_9CE4_8422_2325, step);
    format!("hawser table {:x} {digest:016x}", rustix::process::geteuid().as_raw())
}

/// A name, and which file that is.
pub(super) struct Plate {
    /// Goes first, so that the name never leads nowhere.
    _name: Bound,
    _file: Bound,
}

impl Plate {
    /// Says from now on that this file has that name; `None` where another has it.
    ///
    /// # Errors
    /// Of `socket(2)` and `bind(2)`.
    pub(super) fn new(name: &[u8], file: &Identity) -> Result<Option<Self>> {
        let (text, socket) = (text(name), socket()?);
        let number = fstat(&socket).map_err(system)?.st_ino;
        let Identity { pid, descriptor, device, inode, .. } = file;
        let shown = format!("{text} {number:x} {pid:x} {descriptor:x} {device:x} {inode:x}");
        let Some(file) = Bound::new(self::socket()?, &shown)? else { return Ok(None) };
        Ok(Bound::new(socket, &text)?.map(|name| Self { _name: name, _file: file }))
    }
}

/// Whether anybody has the name.
fn is_taken(text: &str) -> Result<bool> {
    match rustix::net::connect(socket()?, &address(text)?) {
        Err(rustix::io::Errno::CONNREFUSED) => Ok(false),
        // It may have a peer that it would rather talk to.
        Ok(()) | Err(rustix::io::Errno::PERM) => Ok(true),
        Err(error) => Err(system(error)),
    }
}

/// The files that are said to have this name, by who has it.
///
/// # Errors
/// `NotFound`: nobody has it. `EACCES`: it leads nowhere.
pub(super) fn files(name: &[u8]) -> Result<Vec<Identity>> {
    let text = text(name);
    for _ in 0..LOOKS {
        if !is_taken(&text)? {
            return Err(Error::NotFound);
        }
        let listing = fs::read(LISTING).map_err(|error| input(&error))?;
        let files = files_in(&listing, &text);
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Err(Error::System(libc::EACCES))
}

fn files_in(listing: &[u8], name: &str) -> Vec<Identity> {
    let lines = || listing.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let (holder, said) = (format!(" @{name}"), format!(" @{name} "));
    let number_of = |line: &str| line.strip_suffix(&holder)?.rsplit(' ').next()?.parse::<u64>().ok();
    let Some(number) = lines().find_map(number_of) else { return Vec::new() };
    lines().filter_map(|line| file_of(line.split_once(&said)?.1, number)).collect()
}

/// What is said of a file, by the socket of this number.
fn file_of(said: &str, number: u64) -> Option<Identity> {
    let mut numbers = said.split(' ').map(|field| u64::from_str_radix(field, 16).ok());
    let mut next = || numbers.next().flatten();
    let is_holder = next()? == number;
    let (pid, descriptor) = (next()?.try_into().ok()?, next()?.try_into().ok()?);
    let identity = Identity { pid, descriptor, device: next()?, inode: next()?, nonce: [0; NONCE] };
    (is_holder && numbers.next().is_none()).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity =
        Identity { pid: 4321, descriptor: 7, device: 1, inode: 1 << 40, nonce: [0; NONCE] };

    fn name(of: &str) -> Vec<u8> {
        format!("plate {of} {}", std::process::id()).into_bytes()
    }

    #[test]
    fn a_name_is_one_files_at_a_time_and_leads_to_that() {
        let name = name("one");
        assert_eq!(files(&name), Err(Error::NotFound));
        let plate = Plate::new(&name, &FILE).expect("sockets").expect("free");
        assert_eq!(files(&name), Ok(vec![FILE]));
        let other = Identity { descriptor: 8, ..FILE };
        for file in [FILE, other] {
            assert!(Plate::new(&name, &file).expect("sockets").is_none());
        }
        assert_eq!(files(&name), Ok(vec![FILE]));
        assert_eq!(files(&self::name("other")), Err(Error::NotFound));
        drop(plate);
        assert_eq!(files(&name), Err(Error::NotFound));
        let _plate = Plate::new(&name, &other).expect("sockets").expect("free");
        assert_eq!(files(&name), Ok(vec![other]));
    }

    #[test]
    fn a_name_that_says_nothing_leads_nowhere() {
        let name = name("nothing");
        let squatter = Bound::new(socket().expect("a socket"), &text(&name)).expect("sockets");
        assert!(squatter.is_some() && Plate::new(&name, &FILE).expect("sockets").is_none());
        assert_eq!(files(&name), Err(Error::System(libc::EACCES)));
    }

    #[test]
    fn who_has_not_the_name_is_not_believed_and_lines_of_others_are_passed_over() {
        let listing =
            |rest: &str| format!("Num\n0: 2 0 0 2 01 12 @n\n0: 2 0 0 2 01 99 @n {rest}\n0: 2 0 0 2 01 13\n");
        let files = |rest: &str| files_in(listing(rest).as_bytes(), "n");
        assert_eq!(files("c 10e1 7 1 10000000000"), [FILE]);
        let wrong = [
            "",
            "c",
            "c 1 2 3",
            "c 1 2 3 4 5",
            "c 1 2 3 4 ",
            "c 1 2 3 x",
            "c 1 2 3 10000000000000000",
            "c 100000000 2 3 4",
            "d 10e1 7 1 10000000000",
        ];
        for rest in wrong {
            assert_eq!(files(rest), [], "{rest}");
        }
        let without = listing("c 10e1 7 1 10000000000").replace(" 12 @n", " 12 @m");
        assert_eq!(files_in(without.as_bytes(), "n"), [], "nobody has the name");
        assert_eq!(files_in(b"\xFF @n\n", "n"), []);
    }
}
