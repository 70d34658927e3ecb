//! Datagrams of this node with who has sent them, and who is at the other end, as the kernel says (`SCM_CREDENTIALS` and
//! `SO_PEERCRED`, `unix(7)`).
//!
//! A process of a PID namespace that this one does not see has number 0 then, which rustix does not know of.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A process that has sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its number here; 0 where it has none.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

/// Words of the control message: its length, level and type; process and user, and the group, which nobody asks for.
const WORDS: usize = 4;
/// Bytes of it that count.
const LENGTH: usize = 16 + size_of::<libc::ucred>();

const _: () = assert!(size_of::<libc::cmsghdr>() == 16 && WORDS * 8 >= LENGTH);

/// The next datagram of a socket that has `SO_PASSCRED`: how long it is, as much of it as there is room for, and whose.
///
/// # Errors
/// Those of `recvmsg(2)`.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<Sender>)> {
    let mut control = [0_u64; WORDS];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut piece,
        msg_iovlen: 1,
        msg_control: control.as_mut_ptr().cast(),
        msg_controllen: size_of_val(&control),
        msg_flags: 0,
    };
    let fd = socket.as_fd().as_raw_fd();
    let length = loop {
        // SAFETY: the message, its one piece and its room for control messages are variables of this function's.
        let length = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    Ok((length, sender(&control).filter(|_| message.msg_controllen >= LENGTH)))
}

/// Who is at the other end of a socket that is connected.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn peer(socket: impl AsFd) -> io::Result<Sender> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&found) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    let value = (&raw mut found).cast();
    // SAFETY: value and length are variables of this function's, and the value is as long as that says.
    let outcome =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length) };
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(Sender { process: found.pid as u32, user: found.uid })
    }
}

/// What the first control message says, if it says that.
fn sender(control: &[u64; WORDS]) -> Option<Sender> {
    let halves = |word: u64| {
        let bytes = word.to_ne_bytes();
        [0, 4].map(|at| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte])))
    };
    let [level, kind] = halves(control[1]);
    let is_it = control[0] == LENGTH as u64
        && (level, kind) == (libc::SOL_SOCKET as u32, libc::SCM_CREDENTIALS as u32);
    let [process, user] = halves(control[2]);
    is_it.then_some(Sender { process, user })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use rustix::net::sockopt::set_socket_passcred;

    use super::*;

    #[test]
    fn a_datagram_says_whose_it_is_where_that_is_asked_for() {
        let (one, two) = UnixDatagram::pair().expect("sockets");
        two.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 5];
        one.send(b"who").expect("sent");
        assert_eq!(receive(&two, &mut bytes).expect("one"), (3, None));
        set_socket_passcred(&two, true).expect("a socket");
        one.send(b"I am").expect("sent");
        let own = Sender { process: std::process::id(), user: rustix::process::geteuid().as_raw() };
        assert_eq!(receive(&two, &mut bytes).expect("one"), (4, Some(own)));
        assert_eq!(&bytes[..4], b"I am");
        assert_eq!(receive(&two, &mut bytes).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn who_is_at_the_other_end_is_said_by_the_kernel() {
        let (one, _two) = UnixDatagram::pair().expect("sockets");
        let own = Sender { process: std::process::id(), user: rustix::process::geteuid().as_raw() };
        assert_eq!(peer(&one).expect("connected"), own);
        let (reads, _writes) = std::io::pipe().expect("a pipe");
        assert!(peer(&reads).is_err());
    }

    #[test]
    fn who_has_no_number_here_is_nobody_in_particular() {
        let word = |low: u32, high: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&low.to_ne_bytes());
            bytes[4..].copy_from_slice(&high.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        let head = word(libc::SOL_SOCKET as u32, libc::SCM_CREDENTIALS as u32);
        let control = [LENGTH as u64, head, word(0, 1000), 0];
        assert_eq!(sender(&control), Some(Sender { process: 0, user: 1000 }));
        assert_eq!(sender(&[LENGTH as u64, word(1, libc::SCM_RIGHTS as u32), word(7, 7), 0]), None);
        assert_eq!(sender(&[LENGTH as u64 - 1, head, word(7, 7), 0]), None);
        assert_eq!(sender(&[0; WORDS]), None);
    }
}
