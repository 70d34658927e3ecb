//! [`Udp`]: one kernel socket and its system calls, `udp(7)`, `ip(7)`, `ipv6(7)`, `sendmmsg(2)`.
//!
//! Nothing here waits. Calls give the kernel's `errno`; what it means is decided by the callers.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::net::{SocketType, ipproto, sockopt};

use super::address::SocketAddress;
use super::control::{Ancillary, Said, controls};
use super::report::Report;
use crate::error::{Error, Result};
use crate::sync::fork::Own;

/// The kernel's error code.
pub(super) type Errno = i32;

const IPPROTO: [i32; 2] = [libc::IPPROTO_IP, libc::IPPROTO_IPV6];

/// Bytes of a receive buffer for what the network says of what was sent, and nothing else.
const REPORTS: usize = 16 << 10;

/// A socket that is bound to one address, and does not block.
pub(super) struct Udp {
    /// Of a process that has ended nobody is to listen here: by that peers hear of it.
    _own: Own,
    socket: UdpSocket,
    port: u16,
    v6: bool,
}

fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn system(error: &io::Error) -> Error {
    Error::System(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Turns the result of a call into bytes or messages.
#[inline]
fn counted(result: isize) -> std::result::Result<usize, Errno> {
    usize::try_from(result).map_err(|_| errno())
}

impl Udp {
    /// A socket on the first free port from `base` on; with 0, on one of the kernel's choice.
    pub(super) fn bind(address: IpAddr, scope: u32, base: u16) -> Result<Self> {
        let local = |port| match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope))
            }
            _ => SocketAddr::new(address, port),
        };
        let mut bound = UdpSocket::bind(local(base));
        for port in (base..=u16::MAX).skip(1).take_while(|_| base != 0) {
            match &bound {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    bound = UdpSocket::bind(local(port));
                }
                _ => break,
            }
        }
        let socket = bound.map_err(|error| system(&error))?;
        socket.set_nonblocking(true).map_err(|error| system(&error))?;
        let port = socket.local_addr().map_err(|error| system(&error))?.port();
        let udp = Self { _own: Own::new(&socket), socket, port, v6: address.is_ipv6() };
        udp.fragment(false);
        udp.set(IPPROTO[usize::from(udp.v6)], [libc::IP_RECVERR, libc::IPV6_RECVERR][usize::from(udp.v6)], 1);
        Ok(udp)
    }

    /// A socket that another process has bound and shares with us.
    pub(super) fn adopt(shared: OwnedFd) -> Result<Self> {
        let is_udp = sockopt::socket_type(&shared) == Ok(SocketType::DGRAM)
            && sockopt::socket_protocol(&shared) == Ok(Some(ipproto::UDP));
        let socket = UdpSocket::from(shared);
        let at = socket.local_addr().map_err(|error| system(&error))?;
        if !is_udp || at.port() == 0 {
            return Err(Error::BadParameter);
        }
        socket.set_nonblocking(true).map_err(|error| system(&error))?;
        Ok(Self { _own: Own::new(&socket), socket, port: at.port(), v6: at.is_ipv6() })
    }

    /// The address that it is bound to.
    pub(super) fn address(&self) -> Result<IpAddr> {
        self.socket.local_addr().map(|at| at.ip()).map_err(|error| system(&error))
    }

    /// A socket that only sends, to one peer: the kernel keeps the way there at hand.
    pub(super) fn connect(address: IpAddr, scope: u32, to: &SocketAddress) -> Result<Self> {
        let udp = Self::bind(address, scope, 0)?;
        // What the network says of what was sent is counted against this, with the memory in which it came.
        udp.receive_buffer(REPORTS);
        // SAFETY: an open socket; the address is read during the call.
        if unsafe { libc::connect(udp.socket.as_raw_fd(), to.as_ptr(), to.len()) } != 0 {
            return Err(system(&io::Error::last_os_error()));
        }
        Ok(udp)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn set(&self, level: i32, option: i32, value: i32) -> bool {
        let (start, len) = ((&raw const value).cast(), size_of::<i32>() as libc::socklen_t);
        // SAFETY: an open socket; the value is read during the call.
        unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, start, len) == 0 }
    }

    fn read(&self, level: i32, option: i32) -> i32 {
        let (mut value, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
        let fd = self.socket.as_raw_fd();
        // SAFETY: an open socket; the callee writes at most `len` bytes.
        unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) };
        value
    }

    /// Asks for a receive buffer of this many bytes; returns what the kernel grants, in its own
    /// accounting.
    pub(super) fn receive_buffer(&self, bytes: usize) -> usize {
        self.buffer(bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    }

    /// The same for the send buffer.
    pub(super) fn send_buffer(&self, bytes: usize) -> usize {
        self.buffer(bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    }

    fn buffer(&self, bytes: usize, force: i32, option: i32) -> usize {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
        if !self.set(libc::SOL_SOCKET, force, bytes) {
            // Without the privilege the kernel cuts the wish down to its limit.
            self.set(libc::SOL_SOCKET, option, bytes);
        }
        usize::try_from(self.read(libc::SOL_SOCKET, option)).unwrap_or(0)
    }

    /// Whether the kernel cuts one message into many datagrams.
    pub(super) fn can_segment(&self) -> bool {
        // Tried with a size, then without: a default size would cut every message.
        self.set(libc::SOL_UDP, libc::UDP_SEGMENT, 512) && self.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0)
    }

    /// Asks the kernel to join datagrams of one size from one sender.
    pub(super) fn join(&self) -> bool {
        self.set(libc::SOL_UDP, libc::UDP_GRO, 1)
    }

    /// Asks the kernel to say when messages came.
    pub(super) fn stamp(&self) -> bool {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Lets a look at the socket poll the device's queue for so many microseconds, and lets the device leave its
    /// interrupt off meanwhile (socket(7), `SO_BUSY_POLL` and `SO_PREFER_BUSY_POLL`).
    pub(super) fn busy_poll(&self, micros: i32) -> Result<()> {
        let polls = self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)
            && self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1);
        if polls { Ok(()) } else { Err(system(&io::Error::last_os_error())) }
    }

    /// For how many microseconds a look polls.
    #[cfg(test)]
    pub(super) fn polls_for(&self) -> i32 {
        self.read(libc::SOL_SOCKET, libc::SO_BUSY_POLL)
    }

    /// Lets datagrams go out in IP fragments, or, as after [`bind`](Self::bind), forbids it.
    pub(super) fn fragment(&self, allowed: bool) {
        let (option, value) = match (self.v6, allowed) {
            (false, false) => (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (false, true) => (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            (true, false) => (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            (true, true) => (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        };
        self.set(IPPROTO[usize::from(self.v6)], option, value);
        if self.v6 {
            // No router cuts packets: they are cut here, for what every path carries (RFC 8200, 5). 0: as
            // the route says.
            let least = if allowed { 1280 } else { 0 };
            self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU, least);
        }
    }

    /// Sends one datagram.
    #[inline]
    pub(super) fn send(&self, to: &SocketAddress, bytes: &[u8]) -> std::result::Result<(), Errno> {
        let (start, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: an open socket; bytes and address are read during the call.
        let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), start, len, 0, to.as_ptr(), to.len()) };
        counted(sent).map(|_| ())
    }

    /// Sends one datagram to the peer that the socket is [connected](Self::connect) to.
    #[inline]
    pub(super) fn send_there(&self, bytes: &[u8]) -> std::result::Result<(), Errno> {
        let (start, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: an open socket; the bytes are read during the call.
        counted(unsafe { libc::send(self.socket.as_raw_fd(), start, len, 0) }).map(|_| ())
    }

    /// Sends messages, in order; returns how many the kernel took, at least one.
    ///
    /// # Safety
    /// All that the messages point to is valid for reads until the call returns.
    pub(super) unsafe fn send_messages(
        &self,
        messages: &mut [libc::mmsghdr],
    ) -> std::result::Result<usize, Errno> {
        let fd = self.socket.as_raw_fd();
        if let [one] = messages {
            // SAFETY: an open socket; the rest is the caller's promise.
            return counted(unsafe { libc::sendmsg(fd, &raw const one.msg_hdr, 0) }).map(|_| 1);
        }
        let count = messages.len() as libc::c_uint;
        // SAFETY: an open socket, `count` messages; the rest is the caller's promise.
        counted(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, 0) } as isize)
    }

    /// Receives one datagram and returns its length, which is greater than the buffer's if it did
    /// not fit.
    #[inline]
    pub(super) fn receive(&self, into: &mut [u8]) -> std::result::Result<usize, Errno> {
        let (start, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: an open socket; the callee writes at most `len` bytes.
        counted(unsafe { libc::recv(self.socket.as_raw_fd(), start, len, libc::MSG_TRUNC) })
    }

    /// The same; also says who sent it.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> std::result::Result<(usize, SocketAddress), Errno> {
        let (start, len) = (into.as_mut_ptr().cast(), into.len());
        let (mut from, mut room) = (SocketAddress::EMPTY, SocketAddress::ROOM);
        let fd = self.socket.as_raw_fd();
        // SAFETY: an open socket; the callee writes at most `len` and `room` bytes.
        let result =
            unsafe { libc::recvfrom(fd, start, len, libc::MSG_TRUNC, from.as_mut_ptr(), &raw mut room) };
        counted(result).map(|len| (len, from))
    }

    /// Receives messages; returns how many were filled.
    ///
    /// # Safety
    /// All that the messages point to is valid for writes until the call returns.
    pub(super) unsafe fn receive_messages(
        &self,
        messages: &mut [libc::mmsghdr],
    ) -> std::result::Result<usize, Errno> {
        let fd = self.socket.as_raw_fd();
        if let [one] = messages {
            // SAFETY: an open socket; the rest is the caller's promise.
            let len = counted(unsafe { libc::recvmsg(fd, &raw mut one.msg_hdr, 0) })?;
            one.msg_len = len as u32;
            return Ok(1);
        }
        let count = messages.len() as libc::c_uint;
        // SAFETY: an open socket, `count` messages, no timeout; the rest is the caller's promise.
        let filled = unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), count, 0, ptr::null_mut()) };
        counted(filled as isize)
    }

    /// Receives one message into a list of pieces; what the kernel says of it has so much room. Its length, whether it was
    /// longer than the pieces, and what was said.
    ///
    /// # Safety
    /// All pieces are valid for writes until the call returns.
    pub(super) unsafe fn receive_scattered(
        &self,
        pieces: &mut [libc::iovec],
        room: usize,
    ) -> std::result::Result<(usize, bool, Said), Errno> {
        let mut control = Ancillary::EMPTY;
        let mut message = libc::msghdr {
            msg_name: ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: (&raw mut control).cast(),
            msg_controllen: room.min(Ancillary::ROOM),
            msg_flags: 0,
        };
        let fd = self.socket.as_raw_fd();
        // SAFETY: an open socket; the control has that room; the rest is the caller's promise.
        let len = counted(unsafe { libc::recvmsg(fd, &raw mut message, 0) })?;
        Ok((len, message.msg_flags & libc::MSG_TRUNC != 0, control.said(message.msg_controllen)))
    }

    /// The oldest report of the network; taking it clears the error that it announced.
    #[cold]
    pub(super) fn report(&self) -> Option<Report> {
        #[repr(C, align(8))]
        struct Room([u8; 256]);
        let (mut to, mut control) = (SocketAddress::EMPTY, Room([0; 256]));
        let mut message = libc::msghdr {
            msg_name: to.as_mut_ptr().cast(),
            msg_namelen: SocketAddress::ROOM,
            msg_iov: ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: control.0.as_mut_ptr().cast(),
            msg_controllen: control.0.len(),
            msg_flags: 0,
        };
        // SAFETY: an open socket; name and control have the rooms that the message says.
        let result = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE) };
        if result < 0 {
            return None;
        }
        let written = message.msg_controllen.min(control.0.len());
        // Before it stands when the report came, if the socket's messages are stamped.
        let is_error = |(level, kind, _): &(i32, i32, &[u8])| {
            matches!(
                (*level, *kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            )
        };
        let (_, _, error) = controls(&control.0[..written]).find(is_error)?;
        Report::parse(error, to)
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The source address that the kernel would use towards a port; `None` without a route.
pub(super) fn source_towards(to: &SocketAddress) -> Option<IpAddr> {
    let (address, _) = to.parts()?;
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // SAFETY: an open socket; the address is read during the call. Nothing is sent.
    if unsafe { libc::connect(socket.as_raw_fd(), to.as_ptr(), to.len()) } != 0 {
        return None;
    }
    socket.local_addr().ok().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listens_for_a_process_that_has_ended_because_a_child_of_it_lives() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let udp = Udp::bind(address, 0, 0).expect("a port");
        let port = udp.port;
        let (held, given) = std::io::pipe().expect("a pipe");
        // SAFETY: the child calls nothing but what may be called after fork(2).
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let mut byte = 0_u8;
            // SAFETY: room for a byte.
            let _ = unsafe { libc::read(held.as_raw_fd(), (&raw mut byte).cast(), 1) };
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        drop(udp);
        // It has closed its copy when it has begun to run.
        while UdpSocket::bind((address, port)).is_err() {
            std::thread::yield_now();
        }
        std::io::Write::write_all(&mut &given, b"x").expect("written");
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
    }

    /// A host has hundreds of them. More is refused at once than there is room for reports: some are lost, and the
    /// rest are heard; then the way is free.
    #[test]
    fn a_connected_socket_has_room_for_few_reports_and_hears_those() {
        let address = IpAddr::from([127, 77, 0, 3]);
        let peer = Udp::bind(address, 0, 0).expect("a port");
        let udp = Udp::connect(address, 0, &SocketAddress::new(address, peer.port, 0)).expect("a socket");
        let room = udp.read(libc::SOL_SOCKET, libc::SO_RCVBUF) as usize;
        assert!((REPORTS..=2 * REPORTS).contains(&room), "{room}");
        let port = peer.port;
        drop(peer);
        let refused = || -> Vec<Report> {
            for _ in 0..500 {
                match udp.send_there(&[7; 100]) {
                    Ok(()) | Err(libc::ECONNREFUSED) => {}
                    Err(errno) => panic!("{errno}"),
                }
            }
            std::iter::from_fn(|| udp.report()).collect()
        };
        // A kernel says so only so often (`icmp_msgs_per_sec`), whoever is refused.
        let mut turns = (0..100_000).map(|_| refused());
        let reports = turns.find(|reports| !reports.is_empty()).expect("nothing is ever heard");
        assert!(reports.len() * 100 < room, "{}", reports.len());
        assert!(
            reports.iter().all(|report| report.is_refusal() && report.to.parts() == Some((address, port)))
        );
        let again = Udp::bind(address, 0, port).expect("the port is free");
        assert_eq!(again.port, port);
        let mut bytes = [0; 200];
        // The last refusal may still be told once.
        let sent = (0..2).any(|_| udp.send_there(&[8; 100]) == Ok(()));
        assert!(sent && again.receive(&mut bytes) == Ok(100) && bytes[0] == 8);
    }
}
