//! Bytes of a stream socket that does not wait, out of memory that is lent and into it, without a copy in between.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::Lent;

/// Pieces of memory that one call takes, with what is before or behind them.
pub const PIECES: usize = 9;

/// Lends bytes of the caller's, for as long as it leaves them where they are.
pub fn lend(bytes: &mut [u8]) -> Lent {
    // SAFETY: valid now for both. Whoever calls this hands it on for one call, or to who gives it back.
    unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn piece(lent: Lent) -> libc::iovec {
    libc::iovec { iov_base: lent.as_mut_ptr().cast(), iov_len: lent.len() }
}

const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends a head and two pieces of memory; how many bytes of them have gone.
///
/// # Errors
/// Of `sendmsg(2)`: `WouldBlock` where there is no room.
pub fn send(socket: impl AsFd, head: &[u8], pieces: [Lent; 2]) -> io::Result<usize> {
    let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    let mut parts = [head, piece(pieces[0]), piece(pieces[1])];
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a message of three parts, which are readable: one is borrowed, and the others are lent for this call.
    counted(unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) })
}

/// Receives into pieces of memory that are lent to be written to, and behind these into a buffer; how many bytes have
/// come. No more than [`PIECES`] less one are looked at.
///
/// # Errors
/// Of `recvmsg(2)`: `WouldBlock` where nothing has come.
pub fn receive(socket: impl AsFd, pieces: &[Lent], rest: &mut [u8]) -> io::Result<usize> {
    let mut parts = [NONE; PIECES];
    let count = pieces.len().min(PIECES - 1);
    for (part, lent) in parts.iter_mut().zip(&pieces[..count]) {
        *part = piece(*lent);
    }
    // What follows pieces that are left out does not belong into the buffer.
    if count == pieces.len() {
        parts[count] = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
    }
    // SAFETY: all zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = (count + 1) as _;
    // SAFETY: a message of so many parts, which are writable: one is borrowed, and the others are lent for that.
    counted(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

/// What the kernel knows of how a connection of TCP stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The peer has not answered yet that there is one.
    pub is_opening: bool,
    /// Something was sent, and is not acknowledged.
    pub is_unacknowledged: bool,
    /// How often the peer was asked since it answered last: whether its window is open, or whether it is there.
    pub probes: u8,
    /// How often what is not acknowledged was sent again.
    pub again: u8,
    /// How long ago something was sent, and something came, nanoseconds.
    pub spoken: u64,
    /// The second.
    pub heard: u64,
}

/// How a connection stands by which something is on its way, or waits to be; `None` where nothing does, or it is none of TCP.
pub fn standing(socket: impl AsFd) -> Option<Standing> {
    // SAFETY: numbers, of which all zeros are some.
    let mut known: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let into = (&raw mut known).cast();
    // SAFETY: the kernel writes so many bytes at most, into numbers of ours.
    let result =
        unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length) };
    if result != 0 || (known.tcpi_unacked, known.tcpi_notsent_bytes) == (0, 0) {
        return None;
    }
    let nanos = |millis: u32| u64::from(millis) * 1_000_000;
    Some(Standing {
        is_opening: known.tcpi_state == SYN_SENT,
        is_unacknowledged: known.tcpi_unacked != 0,
        probes: known.tcpi_probes,
        again: known.tcpi_retransmits,
        spoken: nanos(known.tcpi_last_data_sent),
        heard: nanos(known.tcpi_last_ack_recv.min(known.tcpi_last_data_recv)),
    })
}

/// `TCP_SYN_SENT`.
const SYN_SENT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_come_as_they_went_wherever_they_lie() {
        let (one, two) = UnixStream::pair().expect("sockets");
        let (mut first, mut second) = (*b"cde", *b"fghi");
        assert_eq!(send(&one, b"ab", [lend(&mut first), lend(&mut second)]).expect("sent"), 9);
        let (mut here, mut there, mut rest) = ([0; 2], [0; 3], [0; 9]);
        let parts = [lend(&mut here), lend(&mut there)];
        assert_eq!(receive(&two, &parts, &mut rest).expect("received"), 9);
        assert_eq!((&here, &there, &rest[..4]), (b"ab", b"cde", b"fghi".as_slice()));
        let nothing = receive(&two, &[], &mut rest).map_err(|error| error.kind());
        assert_eq!(nothing.ok(), None);
        drop(one);
        assert_eq!(receive(&two, &[], &mut rest).expect("an end"), 0);
    }

    #[test]
    fn more_pieces_than_a_call_takes_leave_the_buffer_alone() {
        let (one, two) = UnixStream::pair().expect("sockets");
        let mut bytes = [7; 12];
        assert_eq!(send(&one, &[], [lend(&mut bytes), Lent::EMPTY]).expect("sent"), 12);
        let mut room = [[0_u8; 1]; 12];
        let parts: Vec<Lent> = room.iter_mut().map(|byte| lend(byte)).collect();
        let mut rest = [0; 4];
        assert_eq!(receive(&two, &parts, &mut rest).expect("received"), PIECES - 1);
        assert_eq!(rest, [0; 4]);
    }
}
