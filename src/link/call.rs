//! [`Calls`] and [`Call`]: connections between the agents of two nodes, for one question and its answer (`tcp(7)`).
//!
//! A datagram that is not answered says nothing of its receiver. The kernel takes a connection for a process that
//! is stopped, too, and ends it when that is killed: whoever has one, and no answer, knows that somebody is there and does nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sync::descriptor::beyond_standard;
use crate::sync::fork::Own;

/// A host that answers nothing any more is asked after so long a time, so often, and so many times.
const IDLE: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// For so long what is said may stay unacknowledged, milliseconds.
const UNACKNOWLEDGED: u32 = 25_000;

/// Where calls are taken.
pub struct Calls {
    /// A child takes none, and callers would wait for it.
    _own: Own,
    listener: TcpListener,
}

/// A connection.
pub struct Call {
    _own: Own,
    stream: TcpStream,
}

impl Calls {
    /// Takes those to a port of an address.
    ///
    /// # Errors
    /// `AddrInUse` when somebody does already.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        // As many as the system lets wait: each process that has something for one that is stopped calls.
        rustix::net::listen(&listener, i32::MAX)?;
        Self::of(listener)
    }

    /// Those that another process shares with us.
    ///
    /// # Errors
    /// They are not to that port and address.
    pub fn adopt(shared: OwnedFd, at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::from(shared);
        if listener.local_addr()? != at || !sockopt::socket_acceptconn(&listener)? {
            return Err(ErrorKind::InvalidInput.into());
        }
        Self::of(listener)
    }

    fn of(listener: TcpListener) -> io::Result<Self> {
        let listener = TcpListener::from(beyond_standard(listener.into())?);
        listener.set_nonblocking(true)?;
        Ok(Self { _own: Own::new(&listener), listener })
    }

    /// The next one; `None` when there is none now.
    ///
    /// # Errors
    /// When the process can take no more.
    pub fn accept(&self) -> io::Result<Option<Call>> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Call::of(stream.into()).map(Some),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    // What the network has said of one that is over already.
                    Some(
                        libc::ECONNABORTED
                        | libc::EINTR
                        | libc::EPROTO
                        | libc::ENETDOWN
                        | libc::ENETUNREACH
                        | libc::EHOSTDOWN
                        | libc::EHOSTUNREACH,
                    ) => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl Call {
    fn of(socket: OwnedFd) -> io::Result<Self> {
        let socket = beyond_standard(socket)?;
        let (_own, stream) = (Own::new(&socket), TcpStream::from(socket));
        stream.set_nonblocking(true)?;
        Ok(Self { _own, stream })
    }

    /// Begins one, from an address of this host.
    ///
    /// # Errors
    /// What the system says at once.
    pub fn begin(from: IpAddr, to: SocketAddr) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let call = Self::of(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)?;
        sockopt::set_socket_keepalive(&call, true)?;
        sockopt::set_tcp_keepidle(&call, IDLE)?;
        sockopt::set_tcp_keepintvl(&call, BETWEEN)?;
        sockopt::set_tcp_keepcnt(&call, PROBES)?;
        sockopt::set_tcp_user_timeout(&call, UNACKNOWLEDGED)?;
        rustix::net::bind(&call, &SocketAddr::new(from, 0))?;
        match rustix::net::connect(&call, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(call),
            Err(error) => Err(error.into()),
        }
    }

    /// Says something short; false where the call has not been taken yet.
    ///
    /// # Errors
    /// It is over, or was refused.
    pub fn say(&self, bytes: &[u8]) -> io::Result<bool> {
        match (&self.stream).write(bytes) {
            Ok(said) if said == bytes.len() => Ok(true),
            Ok(_) => Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What has been said there and not been heard yet, as much as there is room for; `None` when that is nothing.
    ///
    /// # Errors
    /// It is over, or was refused.
    pub fn hear(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.stream).read(into) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(heard) => Ok(Some(heard)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl AsFd for Call {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn calls() -> (Calls, SocketAddr) {
        let calls = Calls::bind(SocketAddr::new(HOME, 0)).expect("a port");
        let at = calls.listener.local_addr().expect("an address");
        (calls, at)
    }

    /// Children of other tests may have the other end until they call execve(2).
    fn is_over(call: &Call) {
        while call.hear(&mut [0; 4]).is_ok() {}
    }

    /// Over the loopback interface, what is said is there at once.
    fn taken(call: &Call, words: &[u8]) {
        assert!(call.say(words).expect("taken"));
    }

    #[test]
    fn a_question_is_asked_and_answered() {
        let (calls, at) = calls();
        assert!(calls.accept().expect("able").is_none());
        let call = Call::begin(HOME, at).expect("begun");
        taken(&call, b"who is there?");
        let other = calls.accept().expect("able").expect("one");
        let mut heard = [0; 32];
        assert_eq!(other.hear(&mut heard).expect("open"), Some(13));
        assert_eq!(&heard[..13], b"who is there?");
        assert_eq!(other.hear(&mut heard).expect("open"), None);
        assert_eq!(call.hear(&mut heard).expect("open"), None);
        taken(&other, b"I");
        drop(other);
        assert_eq!(call.hear(&mut heard).expect("open"), Some(1));
        is_over(&call);
    }

    #[test]
    fn it_is_taken_where_nobody_accepts_it_and_over_when_that_ends() {
        let (calls, at) = calls();
        let call = Call::begin(HOME, at).expect("begun");
        taken(&call, b"who is there?");
        assert_eq!(call.hear(&mut [0; 4]).expect("open"), None);
        drop(calls);
        is_over(&call);
        let refused = Call::begin(HOME, at).and_then(|call| call.say(b"who is there?"));
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::ConnectionRefused));
    }

    #[test]
    fn what_is_shared_is_looked_at() {
        let (calls, at) = calls();
        let shared = || calls.as_fd().try_clone_to_owned().expect("a duplicate");
        assert!(Calls::adopt(shared(), SocketAddr::new(HOME, at.port() ^ 1)).is_err());
        let adopted = Calls::adopt(shared(), at).expect("the right one");
        drop(calls);
        let _call = Call::begin(HOME, at).expect("begun");
        assert!(adopted.accept().expect("able").is_some());
        let stream = TcpStream::connect(at).expect("taken");
        let at = stream.local_addr().expect("an address");
        assert!(Calls::adopt(stream.into(), at).is_err());
    }
}
