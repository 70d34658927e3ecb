//! [`Local`]: records between processes of one node, `unix(7)`, sequenced packets, with a descriptor
//! beside a record where one is to be shared.
//!
//! A [`Listener`] is a file in a [`Folder`] that only this user can enter, so nobody else can take its
//! name or listen in its place; still, only processes of the same user are talked to, from both sides.
//! Only [`Local::receive_within`] waits, and no send raises a signal.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::clock::Clock;
use super::folder::{DESCRIPTORS, Folder};
use super::sender;
use super::wait::Waiter;
use crate::sync::fork::Own;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The reason why a path of a folder's leads nowhere, where that is not the folder.
fn explain(error: Errno) -> io::Error {
    if error == Errno::NOENT && !std::path::Path::new(DESCRIPTORS).exists() {
        let why = format!("{DESCRIPTORS} is not there: is /proc hidden, or not mounted?");
        return io::Error::new(io::ErrorKind::Unsupported, why);
    }
    error.into()
}

/// Whether the process at the other end is of this user.
fn is_own_user(fd: &OwnedFd) -> bool {
    sender::peer(fd).is_ok_and(|other| other.user == rustix::process::geteuid().as_raw())
}

/// Who is connected to by a name in a folder.
pub struct Listener {
    /// Whoever connects is not to wait for a child of ours, which accepts nobody.
    _own: Own,
    fd: OwnedFd,
}

impl Listener {
    /// Takes a name.
    ///
    /// # Errors
    /// `AddrInUse` when there is such a file.
    pub fn bind(folder: &Folder, name: &str) -> io::Result<Self> {
        let fd = socket()?;
        let path = SocketAddrUnix::new(folder.path_of(name))?;
        rustix::net::bind(&fd, &path).map_err(explain)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Self { _own: Own::new(&fd), fd })
    }

    /// The next one who has connected; `None` when there is none now. Strangers are turned away.
    ///
    /// # Errors
    /// When the process can take in nobody more.
    pub fn accept(&self) -> io::Result<Option<Local>> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.fd, flags) {
                Ok(fd) if is_own_user(&fd) => return Ok(Some(Local::of(fd))),
                Ok(_) | Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One end of a connection.
pub struct Local {
    /// The other end hears of our end by that of the connection.
    _own: Own,
    fd: OwnedFd,
}

impl Local {
    fn of(fd: OwnedFd) -> Self {
        Self { _own: Own::new(&fd), fd }
    }

    /// Two ends of one connection.
    ///
    /// # Errors
    /// Of `socketpair(2)`.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self::of(one), Self::of(other)))
    }

    /// Connects to whoever listens under the name.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody does any more; `WouldBlock` when it has not accepted for long;
    /// `PermissionDenied` when another user does.
    pub fn connect(folder: &Folder, name: &str) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(folder.path_of(name))?)?;
        if !is_own_user(&fd) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self::of(fd))
    }

    /// Sends a record, whole or not at all, and shares a descriptor with the other end.
    ///
    /// # Errors
    /// `WouldBlock` when the other end has not read for long; else it is gone.
    pub fn send(&self, record: &[u8], share: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let shared: Vec<BorrowedFd<'_>> = share.into_iter().collect();
        if !shared.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&shared)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.fd, &[IoSlice::new(record)], &mut control, flags)?;
        Ok(())
    }

    /// Receives a record: its length, which is greater than the buffer's if it did not fit, and the
    /// descriptor that came with it; `None` when there is none now.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
        let got = match rustix::net::recvmsg(&self.fd, &mut [IoSliceMut::new(into)], &mut control, flags) {
            Ok(got) => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut shared = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // More than one is not asked for, and closed.
                shared = descriptors.last();
            }
        }
        if got == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some((got, shared))) }
    }

    /// The next record, waited for no longer than that, whatever signals come meanwhile.
    ///
    /// # Errors
    /// `TimedOut` when none has come; else the other end is gone, or this one.
    pub fn receive_within(&self, into: &mut [u8], most: Duration) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut waiter = Waiter::new()?;
        waiter.add(self, 0)?;
        let clock = Clock::new();
        loop {
            if let Some(got) = self.receive(into)? {
                return Ok(got);
            }
            let left = most.saturating_sub(Duration::from_nanos(clock.nanos()));
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            waiter.wait(Some(left))?;
        }
    }

    /// Ends the connection for both ends, also where a forked child holds a duplicate of this one.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::scratch;
    use super::*;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_has_the_name_and_the_others_connect() {
        let folder = scratch("names");
        let listener = Listener::bind(&folder, "it").expect("the name is free");
        let again = Listener::bind(&folder, "it").err().map(|error| error.kind());
        assert_eq!(again, Some(io::ErrorKind::AddrInUse));
        assert!(listener.accept().expect("able").is_none());
        let client = Local::connect(&folder, "it").expect("connected");
        let server = listener.accept().expect("able").expect("somebody");
        let mut room = [0; 8];
        assert!(server.receive(&mut room).expect("connected").is_none());
        client.send(&[1, 2, 3], None).expect("sent");
        client.send(&[9; 20], None).expect("sent");
        assert_eq!(server.receive(&mut room).expect("connected").map(|got| got.0), Some(3));
        assert_eq!(room[..3], [1, 2, 3]);
        let cut = server.receive(&mut room).expect("connected").map(|got| got.0);
        assert_eq!(cut, Some(20), "cut, and its length told");
        drop(listener);
        let refused = Local::connect(&folder, "it").err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
    }

    #[test]
    fn an_end_that_is_gone_is_an_error_and_no_signal() {
        let (client, server) = Local::pair().expect("a pair");
        drop(server);
        assert!(client.receive(&mut [0; 8]).is_err());
        assert!(client.send(&[1], None).is_err());
    }

    #[test]
    fn a_connection_that_is_shut_down_ends_though_a_duplicate_of_its_end_is_open() {
        let (client, server) = Local::pair().expect("a pair");
        let _held = client.fd.try_clone().expect("a duplicate");
        client.shut_down();
        drop(client);
        assert!(server.receive(&mut [0; 8]).is_err());
    }

    #[test]
    fn who_does_not_read_is_not_waited_for() {
        let (client, _server) = Local::pair().expect("a pair");
        let refused = (0..100_000).find_map(|_| client.send(&[0; 64], None).err());
        assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_descriptor_goes_along_with_its_record() {
        let (client, server) = Local::pair().expect("a pair");
        let (mut here, there) = UnixStream::pair().expect("a pair");
        client.send(&[1], None).expect("sent");
        client.send(&[2], Some(there.as_fd())).expect("sent");
        drop(there);
        let (len, none) = server.receive(&mut [0; 8]).expect("connected").expect("a record");
        assert!(len == 1 && none.is_none());
        let (_, shared) = server.receive(&mut [0; 8]).expect("connected").expect("a record");
        let mut shared = UnixStream::from(shared.expect("a descriptor"));
        shared.write_all(&[7]).expect("written");
        let mut byte = [0];
        here.read_exact(&mut byte).expect("read");
        assert_eq!(byte, [7]);
        assert!(rustix::io::fcntl_getfd(&shared).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_record_is_something_to_wait_for() {
        let (client, server) = Local::pair().expect("a pair");
        let mut waiter = Waiter::new().expect("a waiter");
        waiter.add(&server, 3).expect("added");
        client.send(&[1], None).expect("sent");
        waiter.wait(None).expect("waited");
        assert_eq!(waiter.ready(), [3]);
    }

    /// Signals taken by `count_signal`.
    static SIGNALS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count_signal(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }

    /// As where the program has a profiler, or children: `epoll_wait(2)` is never begun again by the kernel.
    #[test]
    fn signals_do_not_end_a_wait() {
        let action = SigAction::new(SigHandler::Handler(count_signal), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler only adds to an atomic. Nothing else here uses this signal.
        unsafe { sigaction(Signal::SIGURG, &action) }.expect("a handler");
        let (client, server) = Local::pair().expect("a pair");
        // SAFETY: always valid.
        let waiting = unsafe { libc::pthread_self() };
        let sender = std::thread::spawn(move || {
            while SIGNALS.load(Ordering::Relaxed) < 100 {
                // SAFETY: that thread waits below until this one has sent, so it lives.
                unsafe { libc::pthread_kill(waiting, libc::SIGURG) };
                std::thread::yield_now();
            }
            client.send(&[1], None).expect("sent");
            client
        });
        let mut record = [0; 8];
        let got = server.receive_within(&mut record, Duration::from_secs(100)).map(|(len, _)| len);
        assert!(SIGNALS.load(Ordering::Relaxed) > 0, "it was not interrupted");
        let client = sender.join().expect("it sends");
        assert_eq!(got.expect("a record"), 1);
        let none = server.receive_within(&mut record, Duration::from_millis(1)).err();
        assert_eq!(none.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        drop(client);
        assert!(server.receive_within(&mut record, Duration::from_secs(100)).is_err());
    }
}
