//! Whether a peer is still there that the provider cannot reach yet.
//!
//! libfabric's TCP providers put a send off (`-FI_EAGAIN`) until the peer has taken the connection, and that may
//! take as long as the peer computes. To a peer that has ended they put it off for ever: a connection that is
//! refused is only begun anew, and no event says so. What the two have apart is the kernel's answer: it takes
//! connections for a process that listens, whatever that is doing, and refuses them where nobody does. So while
//! a send is put off the peer's address is asked now and then, and a peer that has been refused
//! [`ENOUGH`] times in a row is gone. Silence says nothing.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::fabric::Address;

/// Nanoseconds from one question to the next, while the answer is a refusal.
const PAUSE: u64 = 1_000_000_000;
/// The most, when it is another: each is a connection that the peer finds when it looks.
const LONGEST_PAUSE: u64 = 64 * PAUSE;
/// Refusals in a row: half a minute of them.
const ENOUGH: u32 = 30;
/// How long an answer is waited for. A network that is so slow says nothing.
const WAIT: Duration = Duration::from_millis(50);

/// What is thought of one peer while one send to it is put off.
#[derive(Debug)]
pub(super) struct Doubt {
    next: Option<u64>,
    pause: u64,
    refusals: u32,
}

impl Doubt {
    /// Of a peer that is thought to be there.
    pub(super) const fn new() -> Self {
        Self { next: None, pause: PAUSE, refusals: 0 }
    }

    /// Of a peer that was gone before: it is asked at once, and one more refusal will do.
    pub(super) const fn again() -> Self {
        Self { next: Some(0), pause: PAUSE, refusals: ENOUGH - 1 }
    }

    /// Whether it is time to ask: a pause after the first put-off, or after the last question.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        let due = self.next.is_some_and(|next| now >= next);
        if due || self.next.is_none() {
            self.next = Some(now + self.pause);
        }
        due
    }

    /// Takes note of an answer; true when the peer is gone.
    pub(super) fn note(&mut self, is_refused: bool) -> bool {
        if is_refused {
            (self.refusals, self.pause) = (self.refusals + 1, PAUSE);
        } else {
            (self.refusals, self.pause) = (0, (self.pause * 2).min(LONGEST_PAUSE));
        }
        self.refusals >= ENOUGH
    }
}

/// What is thought of peers to which something is to go later.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    of: Vec<(Address, Doubt)>,
}

impl Doubts {
    /// Something for the peer is put off; true when it is time to ask about it.
    pub(super) fn put_off(&mut self, peer: Address, now: u64) -> bool {
        match self.of.iter_mut().find(|(of, _)| *of == peer) {
            Some((_, doubt)) => doubt.is_due(now),
            None => {
                let mut doubt = Doubt::new();
                let _not_yet = doubt.is_due(now);
                self.of.push((peer, doubt));
                false
            }
        }
    }

    /// Takes note of an answer; true when the peer is gone.
    pub(super) fn note(&mut self, peer: Address, is_refused: bool) -> bool {
        let at = self.of.iter_mut().position(|(of, doubt)| *of == peer && doubt.note(is_refused));
        at.map(|at| self.of.swap_remove(at)).is_some()
    }

    /// The peer has taken something, or is none any more.
    pub(super) fn forget(&mut self, peer: Address) {
        self.of.retain(|(of, _)| *of != peer);
    }
}

/// Whether connections to the process of this name are refused: nobody listens there.
pub(super) fn is_refused(name: &[u8]) -> bool {
    let Some(address) = socket_address(name) else { return false };
    TcpStream::connect_timeout(&address, WAIT)
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// The address in a name that is a `sockaddr_in` or a `sockaddr_in6`, as those of the TCP providers are.
fn socket_address(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*name.first_chunk()?));
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(name.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(name.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn name(port: u16) -> Vec<u8> {
        let family = (libc::AF_INET as u16).to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat()
    }

    #[test]
    fn a_name_is_an_address() {
        assert_eq!(socket_address(&name(7)), Some(([127, 0, 0, 1], 7).into()));
        let long =
            [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &[0, 9], &[0; 4], &[0; 15], &[1], &[0; 4]].concat();
        assert_eq!(socket_address(&long), Some((Ipv6Addr::LOCALHOST, 9).into()));
        for broken in [&name(7)[..7], &long[..23], &[], &[1], &[0; 28]] {
            assert_eq!(socket_address(broken), None);
        }
    }

    #[test]
    fn who_listens_is_there_whatever_it_does() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let name = name(listener.local_addr().expect("bound").port());
        assert!(!is_refused(&name), "it accepts nothing, and is there");
        drop(listener);
        assert!(is_refused(&name));
        assert!(!is_refused(&[]), "nothing is known of it");
    }

    #[test]
    fn only_refusals_in_a_row_say_that_a_peer_is_gone() {
        let mut doubt = Doubt::new();
        assert!((1..ENOUGH).all(|_| !doubt.note(true)));
        assert!(!doubt.note(false));
        assert!((1..ENOUGH).all(|_| !doubt.note(true)));
        assert!(doubt.note(true));
        let mut doubt = Doubt::again();
        assert!(doubt.is_due(0) && doubt.note(true), "it still is gone");
        let mut doubt = Doubt::again();
        assert!(!doubt.note(false) && !doubt.note(true), "it has come back");
    }

    #[test]
    fn it_is_asked_about_once_a_pause_and_less_often_when_it_is_there() {
        let mut doubt = Doubt::new();
        let times = [5, PAUSE, 5 + PAUSE, 6 + PAUSE, 5 + 2 * PAUSE, 90 * PAUSE, 90 * PAUSE + 1];
        assert_eq!(times.map(|now| doubt.is_due(now)), [false, false, true, false, true, true, false]);
        let mut doubt = Doubt::new();
        let mut asked = Vec::new();
        for second in 0..400 {
            if doubt.is_due(second * PAUSE) {
                asked.push(second);
                assert!(!doubt.note(false));
            }
        }
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384]);
    }
}
