//! [`Prober`]: the socket by which the agents of nodes talk to each other.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::address::SocketAddress;
use super::udp::Udp;
use crate::error::Result;

/// Bytes to ask for as receive buffer: short of memory, the longest pings of many nodes at once would
/// look like a network that loses them.
const RECEIVE_BUFFER: usize = 2 << 20;

/// A UDP socket on one address of an interface. Nothing here waits.
pub struct Prober {
    udp: Udp,
}

/// What a [`Prober`] hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A datagram.
    Datagram {
        /// Its bytes; only as many as there was room for are to be had.
        length: usize,
        /// Who sent it.
        from: SocketAddr,
    },
    /// The host there says that nobody listens.
    Refused(SocketAddr),
    /// Something that does not matter.
    Noise,
}

impl Prober {
    /// A socket on the first free port from `base` on; with 0, on any.
    pub fn open(address: IpAddr, base: u16) -> Result<Self> {
        let udp = Udp::bind(address, 0, base)?;
        udp.receive_buffer(RECEIVE_BUFFER);
        Ok(Self { udp })
    }

    /// A socket that another process shares with us.
    ///
    /// # Errors
    /// When it is no such socket.
    pub fn adopt(shared: OwnedFd) -> Result<Self> {
        Ok(Self { udp: Udp::adopt(shared)? })
    }

    /// The address that it is on.
    ///
    /// # Errors
    /// Of `getsockname(2)`.
    pub fn address(&self) -> Result<IpAddr> {
        self.udp.address()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.udp.port()
    }

    /// Sends a datagram, whole if the path is known to carry it, else in fragments: as a link does.
    /// Whether it gets there is the question anyway.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let to = SocketAddress::new(to.ip(), to.port(), 0);
        // What the network says about an earlier datagram fails the next one; only once.
        for _ in 0..2 {
            match self.udp.send(&to, bytes) {
                Err(libc::EMSGSIZE) => {
                    self.udp.fragment(true);
                    let _ = self.udp.send(&to, bytes);
                    self.udp.fragment(false);
                    return;
                }
                Err(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH) => {}
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// The next thing heard; `None` when there is none now.
    pub fn receive(&self, into: &mut [u8]) -> Option<Heard> {
        let heard = self.udp.receive_from(into);
        if let Ok((length, from)) = heard {
            let heard = from.parts().map(|(address, port)| (SocketAddr::new(address, port), length));
            return Some(heard.map_or(Heard::Noise, |(from, length)| Heard::Datagram { length, from }));
        }
        let report = self.udp.report();
        match (report, heard) {
            (Some(report), _) if report.is_refusal() => {
                let to = report.to.parts()?;
                Some(Heard::Refused(SocketAddr::new(to.0, to.1)))
            }
            (Some(_), _) => Some(Heard::Noise),
            (None, Err(libc::EAGAIN)) => None,
            // An error without a report has been cleared by its being told.
            (None, _) => Some(Heard::Noise),
        }
    }
}

impl AsFd for Prober {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (Prober, SocketAddr) {
        let address = IpAddr::from([127, 0, 0, 1]);
        let prober = Prober::open(address, 0).expect("a socket");
        let at = SocketAddr::new(address, prober.port());
        (prober, at)
    }

    /// Over the loopback interface, what is sent is there at once.
    #[test]
    fn the_true_length_and_the_sender_are_told() {
        let ((one, from), (two, to)) = (open(), open());
        let mut head = [0; 4];
        assert_eq!(two.receive(&mut head), None);
        one.send(to, &[7; 1472]);
        assert_eq!(two.receive(&mut head), Some(Heard::Datagram { length: 1472, from }));
        assert_eq!((head, two.receive(&mut head)), ([7; 4], None));
    }

    #[test]
    fn the_buffer_holds_several_of_the_longest() {
        let ((one, from), (two, to)) = (open(), open());
        for _ in 0..8 {
            one.send(to, &[1; 8972]);
        }
        for _ in 0..8 {
            assert_eq!(two.receive(&mut [0; 32]), Some(Heard::Datagram { length: 8972, from }));
        }
    }

    #[test]
    fn a_closed_port_is_told_and_then_silence() {
        let ((one, _), (two, to)) = (open(), open());
        drop(two);
        one.send(to, &[1]);
        let heard: Vec<_> = std::iter::from_fn(|| one.receive(&mut [0; 32])).collect();
        assert!(heard.contains(&Heard::Refused(to)), "{heard:?}");
    }
}
