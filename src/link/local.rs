//! [`Local`]: records between processes of one node, `unix(7)`, sequenced packets.
//!
//! The names are abstract: they need no folder, nothing is left when their owners die, and a network
//! namespace has its own. So who shares such a name shares a network. Only processes of the same user
//! are talked to, from both sides. Nothing here waits but [`Local::connect`], and no send raises a
//! signal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;

/// How long a connection may take to be made, seconds.
const PATIENCE: libc::time_t = 1;

/// A name of this user's, made of what and a number.
pub fn local_name(what: &str, number: u64) -> Vec<u8> {
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    format!("{what}-{user}-{number:x}").into_bytes()
}

/// An abstract name as the kernel takes it.
fn address(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain numbers; zero is a value of each.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A zero byte in front makes it abstract.
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok((address, (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t))
}

fn socket(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::socket(libc::AF_UNIX, KIND | flags, 0) })
}

/// What a call that opens something returns.
fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Who is at the other end.
fn credentials(fd: &OwnedFd) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: an open socket; the callee writes at most `len` bytes.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut found).cast(), &raw mut len)
    })?;
    Ok(found)
}

fn is_own_user(fd: &OwnedFd) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    credentials(fd).is_ok_and(|other| other.uid == user)
}

/// Who has a name, and is connected to by it.
pub struct Listener(OwnedFd);

impl Listener {
    /// Takes a name.
    ///
    /// # Errors
    /// `AddrInUse` when somebody has it.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let fd = socket(libc::SOCK_NONBLOCK)?;
        let (address, len) = address(name)?;
        // SAFETY: an open socket; the address is read during the call.
        checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        // SAFETY: an open socket.
        checked(unsafe { libc::listen(fd.as_raw_fd(), libc::SOMAXCONN) })?;
        Ok(Self(fd))
    }

    /// The next one who has connected; `None` when there is none now. Strangers are turned away.
    ///
    /// # Errors
    /// When the process can take in nobody more.
    pub fn accept(&self) -> io::Result<Option<Local>> {
        loop {
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let (nobody, no_room) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: an open socket; the address is not asked for.
            match owned(unsafe { libc::accept4(self.0.as_raw_fd(), nobody, no_room, flags) }) {
                Ok(fd) if is_own_user(&fd) => return Ok(Some(Local(fd))),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::ECONNABORTED | libc::EINTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One end of a connection.
pub struct Local(OwnedFd);

impl Local {
    /// Connects to whoever has the name.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody has it; `PermissionDenied` when another user has.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        let fd = socket(0)?;
        let patience = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
        let (start, len) = ((&raw const patience).cast(), size_of::<libc::timeval>() as libc::socklen_t);
        // SAFETY: an open socket; the time is read during the call.
        checked(unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, start, len)
        })?;
        let (address, len) = address(name)?;
        // SAFETY: an open socket; the address is read during the call.
        checked(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        if !is_own_user(&fd) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self(fd))
    }

    /// Sends a record, whole or not at all.
    ///
    /// # Errors
    /// `WouldBlock` when the other end has not read for long; else it is gone.
    pub fn send(&self, record: &[u8]) -> io::Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let (start, len) = (record.as_ptr().cast(), record.len());
        // SAFETY: an open socket; the record is read during the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), start, len, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a record: its length, which is greater than the buffer's if it did not fit; `None`
    /// when there is none now.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let (start, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: an open socket; the callee writes at most `len` bytes.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), start, len, flags) };
        if got > 0 {
            return Ok(Some(got as usize));
        }
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }

    /// The life of the process at the other end, where the kernel tells (`pidfd_open(2)`). A child of
    /// its may hold the connection open after its death.
    pub fn life(&self) -> Option<Life> {
        let pid = credentials(&self.0).ok()?.pid;
        if pid <= 0 {
            return None;
        }
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        owned(RawFd::try_from(fd).ok()?).ok().map(Life)
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A process; to be [waited](super::Waiter) for: it is ready when the process has ended.
pub struct Life(OwnedFd);

impl AsFd for Life {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Waiter;
    use super::*;
    use std::time::Duration;

    fn name(number: u64) -> Vec<u8> {
        local_name("hawser-test", u64::from(std::process::id()) << 8 | number)
    }

    #[test]
    fn one_has_the_name_and_the_others_connect() {
        let name = name(1);
        let listener = Listener::bind(&name).expect("the name is free");
        assert!(Listener::bind(&name).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse));
        assert!(listener.accept().expect("able").is_none());
        let client = Local::connect(&name).expect("connected");
        let server = listener.accept().expect("able").expect("somebody");
        let mut room = [0; 8];
        assert_eq!(server.receive(&mut room).expect("connected"), None);
        client.send(&[1, 2, 3]).expect("sent");
        client.send(&[9; 20]).expect("sent");
        assert_eq!(server.receive(&mut room).expect("connected"), Some(3));
        assert_eq!(room[..3], [1, 2, 3]);
        assert_eq!(server.receive(&mut room).expect("connected"), Some(20), "cut, and its length told");
        drop(listener);
        assert!(Local::connect(&name).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused));
        Listener::bind(&name).expect("the name is free again");
    }

    #[test]
    fn an_end_that_is_gone_is_an_error_and_no_signal() {
        let name = name(2);
        let listener = Listener::bind(&name).expect("the name is free");
        let client = Local::connect(&name).expect("connected");
        drop(listener.accept().expect("able").expect("somebody"));
        assert!(client.receive(&mut [0; 8]).is_err());
        assert!(client.send(&[1]).is_err());
    }

    #[test]
    fn who_does_not_read_is_not_waited_for() {
        let name = name(3);
        let listener = Listener::bind(&name).expect("the name is free");
        let client = Local::connect(&name).expect("connected");
        let _server = listener.accept().expect("able").expect("somebody");
        let refused = (0..100_000).find_map(|_| client.send(&[0; 64]).err());
        assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_process_that_lives_is_not_ready() {
        let name = name(4);
        let listener = Listener::bind(&name).expect("the name is free");
        let _client = Local::connect(&name).expect("connected");
        let server = listener.accept().expect("able").expect("somebody");
        let Some(life) = server.life() else { return };
        let mut waiter = Waiter::new();
        let place = waiter.add(&life);
        waiter.wait(Some(Duration::ZERO));
        assert!(!waiter.is_ready(place));
    }

    /// A process that ends, and a child of its that keeps the connection open.
    #[test]
    fn a_life_ends_with_the_process_and_not_with_its_connection() {
        let name = name(5);
        let listener = Listener::bind(&name).expect("the name is free");
        // SAFETY: the child calls nothing but what a child of threads may.
        let process = unsafe { libc::fork() };
        if process == 0 {
            // What other tests have open is not for us to keep open.
            // SAFETY: takes no pointer; the child uses no descriptor that it has inherited.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
            // SAFETY: takes no pointer.
            unsafe { libc::alarm(60) };
            let connection = Local::connect(&name);
            // SAFETY: as above.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: takes no pointer. Alarms are not inherited.
                unsafe { libc::alarm(60) };
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
            let _ = connection.map(|connection| connection.send(&child.to_le_bytes()));
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        let mut waiter = Waiter::new();
        waiter.add(&listener);
        waiter.wait(None);
        let server = listener.accept().expect("able").expect("the process");
        waiter.clear();
        waiter.add(&server);
        waiter.wait(None);
        let mut child = [0; 4];
        assert_eq!(server.receive(&mut child).expect("connected"), Some(4));
        if let Some(life) = server.life() {
            waiter.clear();
            waiter.add(&life);
            waiter.wait(None);
            assert_eq!(server.receive(&mut [0; 4]).expect("the child holds it open"), None);
        }
        // SAFETY: the child, which nobody else knows of.
        unsafe { libc::kill(i32::from_le_bytes(child), libc::SIGKILL) };
        // SAFETY: our own child; its state is not asked for.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
    }

    #[test]
    fn names_that_are_too_long_are_refused() {
        assert!(Listener::bind(&[b'x'; 200]).is_err());
    }
}
