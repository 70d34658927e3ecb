//! [`Listener`] and [`Link`]: how connected endpoints (`FI_EP_MSG`) find each other, and hear that the other has ended,
//! `unix(7)`.
//!
//! A listener has its device and its id there for a name in the abstract namespace, apart from those of endpoints. A link
//! keeps the boundaries of messages (`SOCK_SEQPACKET`). Only processes of one user are linked. Nothing here waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::link::sender;
use crate::sync::fork::Own;

/// Links that wait until they are looked at, at most.
const BACKLOG: i32 = 1024;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

fn address(device: u32, cdm_id: u32) -> io::Result<SocketAddrUnix> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("hawser gni cm {user} {device:08x} {cdm_id:08x}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Whether a process of this user is at the other end.
fn is_own(fd: &OwnedFd) -> io::Result<bool> {
    Ok(sender::peer(fd)?.user == rustix::process::geteuid().as_raw())
}

/// What is called by its name.
#[derive(Debug)]
pub struct Listener {
    _own: Own,
    fd: OwnedFd,
}

impl Listener {
    /// One with that name; nobody can call it before [`listen`](Self::listen).
    ///
    /// # Errors
    /// `AddrInUse` where somebody has it; those of `socket(2)`.
    pub fn new(device: u32, cdm_id: u32) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::bind(&fd, &address(device, cdm_id)?)?;
        Ok(Self { _own: Own::new(&fd), fd })
    }

    /// It can be called from now on.
    ///
    /// # Errors
    /// Of `listen(2)`.
    pub fn listen(&self) -> io::Result<()> {
        Ok(rustix::net::listen(&self.fd, BACKLOG)?)
    }

    /// The next of those that have called; strangers are passed over.
    pub fn accept(&self) -> Option<Link> {
        loop {
            match rustix::net::accept_with(&self.fd, FLAGS) {
                Ok(fd) if is_own(&fd).is_ok_and(|is_own| is_own) => {
                    return Some(Link { _own: Own::new(&fd), fd });
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing.
    Nothing,
    /// A message of so many bytes. One that is longer than the room for it is as long as that.
    Message(usize),
    /// There will be no more.
    End,
}

/// Two processes. A child of fork(2) does not keep it when one ends.
#[derive(Debug)]
pub struct Link {
    _own: Own,
    fd: OwnedFd,
}

impl Link {
    /// Calls a listener.
    ///
    /// # Errors
    /// `ConnectionRefused` where there is none, or it is a stranger's; `WouldBlock` where too many have called; those of
    /// `socket(2)`.
    pub fn new(device: u32, cdm_id: u32) -> io::Result<Self> {
        let fd = socket()?;
        let address = address(device, cdm_id)?;
        loop {
            match rustix::net::connect(&fd, &address) {
                Err(Errno::INTR) => {}
                outcome => break outcome?,
            }
        }
        if is_own(&fd)? {
            Ok(Self { _own: Own::new(&fd), fd })
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    /// Says something.
    ///
    /// # Errors
    /// `BrokenPipe` where nobody hears it; `WouldBlock` where too much is unheard.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome.map(|_| ())?),
            }
        }
    }

    /// What the other says.
    pub fn receive(&self, bytes: &mut [u8]) -> Heard {
        loop {
            match rustix::net::recv(&self.fd, &mut *bytes, RecvFlags::empty()) {
                Ok((_, 0)) => return Heard::End,
                Ok((_, length)) => return Heard::Message(length.min(bytes.len())),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Heard::Nothing,
                Err(_) => return Heard::End,
            }
        }
    }

    /// Says no more.
    pub fn end(&self) {
        // Of one that the other has ended there is nothing left to end.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that is of this process alone.
    fn device() -> u32 {
        std::process::id()
    }

    #[test]
    fn messages_keep_their_boundaries_and_an_end_is_heard_after_them() {
        let listener = Listener::new(device(), 1).expect("free");
        assert_eq!(
            Link::new(device(), 1).map_err(|e| e.kind()).err(),
            Some(io::ErrorKind::ConnectionRefused)
        );
        listener.listen().expect("a listener");
        let called = Link::new(device(), 1).expect("a link");
        called.send(b"one").expect("heard");
        called.send(b"two!").expect("heard");
        called.end();
        let caller = listener.accept().expect("who has called");
        assert!(listener.accept().is_none());
        let mut bytes = [0; 8];
        assert_eq!((caller.receive(&mut bytes), &bytes[..3]), (Heard::Message(3), &b"one"[..]));
        assert_eq!((caller.receive(&mut bytes[..2]), &bytes[..2]), (Heard::Message(2), &b"tw"[..]));
        assert_eq!(caller.receive(&mut bytes), Heard::End);
        caller.send(b"back").expect("it still hears");
        assert_eq!(called.receive(&mut bytes), Heard::Message(4));
        assert_eq!(called.receive(&mut bytes), Heard::Nothing);
        drop(caller);
        assert_eq!(called.receive(&mut bytes), Heard::End);
        assert_eq!(called.send(b"late").map_err(|e| e.kind()), Err(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_name_has_one_listener_until_that_ends() {
        let listener = Listener::new(device(), 2).expect("free");
        assert_eq!(Listener::new(device(), 2).map_err(|e| e.kind()).err(), Some(io::ErrorKind::AddrInUse));
        drop(listener);
        assert!(Listener::new(device(), 2).is_ok());
    }
}
