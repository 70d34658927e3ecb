//! [`Courier`]: the datagrams of an endpoint between nodes, and the addresses of the peers that it has there.
//!
//! They go over UDP. A datagram is signed under a key that both sides have: that in the receiver's name, or that in the
//! sender's, or one that the users of both have given to theirs. What is signed otherwise, or says that it is from another
//! address than it is, is dropped and counted. What this node says there is of the device in its endpoint's name; what is
//! heard is for [`HOME`].

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;
use crate::link::{Heard, Prober};
use crate::sync::fork::Own;
use crate::wire::gni::datagram::{Key, LEN, NameId};
use crate::wire::gni::envelope::{Envelope, HOME};

/// Peers that are known, at most.
const MOST: usize = 1 << 16;

/// Where an endpoint is reached by other nodes, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// An address of this node.
    pub address: Ipv4Addr,
    /// The port there; 0: any.
    pub port: u16,
    /// What is in its name.
    pub key: Key,
    /// What its users have, who may know no more of each other than node and service.
    pub shared: Option<Key>,
    /// For so many seconds what was sent to a peer may be unacknowledged.
    pub silence: u32,
}

/// A peer.
#[derive(Clone, Copy)]
struct Contact {
    at: SocketAddr,
    key: Key,
}

/// Where peers are that are not of this node: those that were told of, and those that have written.
#[derive(Default)]
pub struct Contacts {
    peers: HashMap<(u32, u32), Contact>,
}

impl Contacts {
    /// A peer is there, and has this key.
    pub fn add(&mut self, peer: NameId, at: SocketAddrV4, key: Key) {
        if self.peers.len() < MOST || self.is_known(peer.device, peer.cdm_id) {
            self.peers.insert((peer.device, peer.cdm_id), Contact { at: SocketAddr::V4(at), key });
        }
    }

    /// Whether a peer is of another node.
    pub fn is_known(&self, device: u32, cdm_id: u32) -> bool {
        self.peers.contains_key(&(device, cdm_id))
    }

    /// Who is there.
    fn at(&self, at: SocketAddr) -> impl Iterator<Item = (u32, u32)> {
        self.peers.iter().filter(move |(_, contact)| contact.at == at).map(|(name, _)| *name)
    }
}

/// The socket of an endpoint.
pub struct Courier {
    _own: Own,
    socket: Prober,
    place: Place,
}

/// What has come.
pub enum Come {
    /// A datagram for the endpoint, under the key of this node.
    Datagram(Envelope),
    /// Nobody is there where these were.
    Nobody(Vec<(u32, u32)>),
    /// What is of no use, from whom nobody knows.
    Stranger,
}

impl Courier {
    /// For an endpoint that is to be reached there.
    ///
    /// # Errors
    /// `AddrInUse` where somebody else has the port; what the system does not give.
    pub fn new(place: Place) -> io::Result<Self> {
        let system = |error| match error {
            Error::System(code) => io::Error::from_raw_os_error(code),
            _ => io::Error::from(io::ErrorKind::AddrNotAvailable),
        };
        let socket = Prober::open(IpAddr::V4(place.address), place.port).map_err(system)?;
        if place.port != 0 && socket.port() != place.port {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        Ok(Self { place: Place { port: socket.port(), ..place }, _own: Own::new(&socket), socket })
    }

    /// Where it is reached.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sends a datagram that is under the key of this node to a peer; false where nobody knows how.
    pub fn send(&self, contacts: &Contacts, device: u32, cdm_id: u32, bytes: &[u8]) -> bool {
        let contact = contacts.peers.get(&(device, cdm_id));
        let Some((contact, envelope)) = contact.zip(Envelope::new(bytes)) else { return false };
        self.socket.send(contact.at, envelope.from(self.place.address.to_bits(), &contact.key).bytes());
        true
    }

    /// What has come next; `None`: nothing. What is for this node is under `own` then.
    pub fn receive(&self, contacts: &mut Contacts, own: &Key) -> Option<Come> {
        let mut bytes = [0; LEN + 1];
        Some(match self.socket.receive(&mut bytes)? {
            Heard::Datagram { length, from } if length <= LEN => self
                .open(contacts, &bytes[..length], from)
                .map_or(Come::Stranger, |envelope| Come::Datagram(envelope.to(HOME, own))),
            Heard::Datagram { .. } => Come::Stranger,
            Heard::Refused(at) => Come::Nobody(contacts.at(at).collect()),
            Heard::Noise => Come::Nobody(Vec::new()),
        })
    }

    fn open(&self, contacts: &mut Contacts, bytes: &[u8], from: SocketAddr) -> Option<Envelope> {
        let envelope = Envelope::new(bytes)?;
        let SocketAddr::V4(from) = from else { return None };
        let source = envelope.source();
        let is_honest = source.device == from.ip().to_bits() && source.device != HOME;
        if !is_honest || envelope.target().device != self.place.address.to_bits() {
            return None;
        }
        let contact = contacts.peers.get(&(source.device, source.cdm_id)).copied();
        let known = contact.map(|contact| contact.key);
        let keys = [Some(self.place.key), self.place.shared, known];
        let key = keys.into_iter().flatten().find(|key| envelope.is_genuine(key))?;
        // Another life of it may be elsewhere on its node.
        if contact.is_none_or(|contact| contact.at != SocketAddr::V4(from)) {
            contacts.add(source, from, key);
        }
        Some(envelope)
    }
}

impl AsFd for Courier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::gni::datagram::{Body, Credentials, Datagram};
    use rustix::event::{PollFd, PollFlags, poll};

    const OWN: Key = [9; 16];

    fn courier(last: u8, shared: Option<Key>) -> Courier {
        let address = Ipv4Addr::new(127, 0, 0, last);
        Courier::new(Place { address, port: 0, key: [last; 16], shared, silence: 9 }).expect("a socket")
    }

    fn device(courier: &Courier) -> u32 {
        courier.place().address.to_bits()
    }

    fn at(courier: &Courier) -> SocketAddrV4 {
        SocketAddrV4::new(courier.place().address, courier.place().port)
    }

    fn name(device: u32, cdm_id: u32) -> NameId {
        NameId { device, cdm_id, incarnation: 7 }
    }

    /// From an endpoint 11 to one 21.
    fn bytes(from: u32, to: u32) -> Vec<u8> {
        let datagram = Datagram {
            credentials: Credentials::default(),
            target: name(to, 21),
            source: name(from, 11),
            target_vc: 1,
            source_vc: 2,
            body: Body::Disconnect { sent: 3 },
        };
        let mut bytes = [0; LEN];
        let length = datagram.emit(&OWN, &mut bytes);
        bytes[..length].to_vec()
    }

    fn next(courier: &Courier, contacts: &mut Contacts) -> Come {
        loop {
            poll(&mut [PollFd::new(courier, PollFlags::IN)], None).expect("readable");
            if let Some(come) = courier.receive(contacts, &OWN) {
                return come;
            }
        }
    }

    #[test]
    fn a_datagram_comes_from_the_device_of_its_sender_and_can_be_answered() {
        let (one, two) = (courier(2, None), courier(3, None));
        let (mut ones, mut twos) = (Contacts::default(), Contacts::default());
        assert!(!one.send(&ones, device(&two), 21, &bytes(HOME, device(&two))), "nobody knows where that is");
        ones.add(name(device(&two), 21), at(&two), two.place().key);
        assert!(one.send(&ones, device(&two), 21, &bytes(HOME, device(&two))));
        let Come::Datagram(heard) = next(&two, &mut twos) else { panic!("a stranger") };
        assert_eq!(heard.bytes(), bytes(device(&one), HOME));
        assert!(twos.is_known(device(&one), 11));
        // Under the key that was asked with.
        let mut answer = Envelope::new(&bytes(HOME, device(&one))).expect("a datagram").bytes().to_vec();
        answer[36..40].copy_from_slice(&21_u32.to_le_bytes());
        assert!(two.send(&twos, device(&one), 11, &answer));
        assert!(matches!(next(&one, &mut ones), Come::Datagram(_)));
        // Another life of it has another port, and is answered there.
        let again = courier(2, None);
        assert!(again.send(&ones, device(&two), 21, &bytes(HOME, device(&two))));
        assert!(matches!(next(&two, &mut twos), Come::Datagram(_)));
        assert!(two.send(&twos, device(&one), 11, &answer));
        assert!(matches!(next(&again, &mut ones), Come::Datagram(_)));
    }

    #[test]
    fn strangers_and_liars_are_not_heard() {
        let (one, two) = (courier(2, None), courier(3, Some([7; 16])));
        let mut twos = Contacts::default();
        let to = device(&two);
        let sent = |key: &Key, from: u32, to: u32| {
            let envelope = Envelope::new(&bytes(HOME, to)).expect("a datagram").from(from, key);
            one.socket.send(SocketAddr::V4(at(&two)), envelope.bytes());
        };
        let key = two.place().key;
        for (key, from, to) in [
            ([1; 16], device(&one), to),
            (key, device(&one) + 5, to),
            (key, HOME, to),
            (key, device(&one), to + 5),
            ([0; 16], device(&one), to),
        ] {
            sent(&key, from, to);
            assert!(matches!(next(&two, &mut twos), Come::Stranger));
        }
        for bytes in [vec![1], vec![0; LEN], vec![0; LEN + 1], vec![0; 1400]] {
            one.socket.send(SocketAddr::V4(at(&two)), &bytes);
            assert!(matches!(next(&two, &mut twos), Come::Stranger));
        }
        assert!(!twos.is_known(device(&one), 11));
        for key in [key, [7; 16]] {
            sent(&key, device(&one), to);
            assert!(matches!(next(&two, &mut twos), Come::Datagram(_)));
        }
    }

    #[test]
    fn a_place_where_nobody_is_is_told_with_who_was_there() {
        let one = courier(2, None);
        let gone = at(&courier(3, None));
        let mut ones = Contacts::default();
        ones.add(name(gone.ip().to_bits(), 21), gone, OWN);
        assert!(one.send(&ones, gone.ip().to_bits(), 21, &bytes(HOME, gone.ip().to_bits())));
        let told = loop {
            if let Come::Nobody(told) = next(&one, &mut ones)
                && !told.is_empty()
            {
                break told;
            }
        };
        assert_eq!(told, [(gone.ip().to_bits(), 21)]);
    }

    #[test]
    fn a_port_that_is_asked_for_is_that_or_none() {
        let one = courier(2, None);
        let place = *one.place();
        let again = Courier::new(place).map(|_| ());
        assert_eq!(again.map_err(|error| error.kind()), Err(io::ErrorKind::AddrInUse));
    }
}
