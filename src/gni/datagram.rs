//! [`Service`]: datagrams between the endpoints of a node, by their names, `unix(7)`.
//!
//! An endpoint listens under its device and its id there, in the abstract namespace: nothing is left of a name when its
//! process has ended. The kernel says whose process has sent a datagram; those of other users are dropped. Datagrams
//! may be lost: where nobody reads for long, there is no room for more. Those of other nodes come and go by a
//! [courier](super::courier) of the endpoint.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::courier::{Come, Contacts, Courier, Place};
use crate::link::sender::{self, Sender};
use crate::sync::fork::Own;
use crate::wire::gni::context::whole;
use crate::wire::gni::datagram::{Key, LEN, NameId};
use crate::wire::gni::envelope::Envelope;

/// What has become of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is with its receiver.
    Done,
    /// It is lost.
    Lost,
    /// Nobody has that name.
    Nobody,
}

/// Where an endpoint of this node is reached.
struct Listener {
    /// The device and the id there.
    name: (u32, u32),
    /// A child of fork(2) does not keep the name when this process ends.
    _own: Own,
    fd: OwnedFd,
    /// Nobody is there any more, but the name is that of a scalable endpoint of which contexts are.
    has_left: bool,
}

/// The sockets of a cm_nic.
pub struct Service {
    outgoing: OwnedFd,
    incoming: Vec<Listener>,
    /// Those of the same that other nodes reach, by id; the contexts of a scalable endpoint have one.
    couriers: Vec<(u32, Courier)>,
    contacts: Contacts,
    /// What datagrams are signed with within a node.
    key: Key,
    strangers: u64,
}

/// What the service hears.
pub enum Heard<'a> {
    /// A datagram; and which process of this node has sent it, as the kernel says, where it is one of this node.
    Datagram(&'a [u8], Option<u32>),
    /// Nobody answers for these devices and ids any more, unless somebody has changed the way there.
    Nobody(&'a [(u32, u32)]),
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

/// The name of an endpoint. That of the user keeps users apart who have chosen the same service.
fn address(device: u32, cdm_id: u32) -> io::Result<SocketAddrUnix> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("hawser gni {user} {device:08x} {cdm_id:08x}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

impl Service {
    /// One for no endpoint yet.
    ///
    /// # Errors
    /// Of `socket(2)`.
    pub fn new(key: Key) -> io::Result<Self> {
        let (incoming, couriers, contacts) = (Vec::new(), Vec::new(), Contacts::default());
        Ok(Self { outgoing: socket()?, incoming, couriers, contacts, key, strangers: 0 })
    }

    /// Other nodes reach an endpoint from now on; at which port.
    ///
    /// # Errors
    /// `AddrInUse` where somebody else has it; what the system does not give.
    pub fn bind_far(&mut self, cdm_id: u32, place: Place) -> io::Result<u16> {
        if let Some(known) = self.courier(cdm_id) {
            return Ok(known.place().port);
        }
        let courier = Courier::new(place)?;
        let port = courier.place().port;
        self.couriers.push((whole(cdm_id), courier));
        Ok(port)
    }

    /// Where other nodes reach an endpoint, if they do.
    pub fn place(&self, cdm_id: u32) -> Option<&Place> {
        self.courier(cdm_id).map(Courier::place)
    }

    fn courier(&self, cdm_id: u32) -> Option<&Courier> {
        self.couriers.iter().find(|(known, _)| *known == whole(cdm_id)).map(|(_, courier)| courier)
    }

    /// How many listen here that have the courier of this one.
    fn sharing(&self, cdm_id: u32) -> usize {
        let is_one = |of: &&Listener| !of.has_left && whole(of.name.1) == whole(cdm_id);
        self.incoming.iter().filter(is_one).count()
    }

    /// A peer is on another node, there.
    pub fn introduce(&mut self, peer: NameId, at: SocketAddrV4, key: Key) {
        self.contacts.add(peer, at, key);
    }

    /// Whether a peer is of another node.
    pub fn is_far(&self, peer: NameId) -> bool {
        self.contacts.is_known(peer.device, peer.cdm_id)
    }

    /// Listens for an endpoint.
    ///
    /// # Errors
    /// `AddrInUse` where somebody does already; those of `socket(2)`.
    pub fn bind(&mut self, device: u32, cdm_id: u32) -> io::Result<()> {
        let fd = socket()?;
        sockopt::set_socket_passcred(&fd, true)?;
        rustix::net::bind(&fd, &address(device, cdm_id)?)?;
        let (name, _own) = ((device, cdm_id), Own::new(&fd));
        self.incoming.push(Listener { name, _own, fd, has_left: false });
        Ok(())
    }

    /// Listens for it no more. The name of a scalable endpoint is nobody else's while one of its contexts is there.
    pub fn release(&mut self, device: u32, cdm_id: u32) {
        let Some(at) = self.incoming.iter().position(|of| of.name == (device, cdm_id) && !of.has_left) else {
            return;
        };
        self.incoming[at].has_left = true;
        if self.sharing(cdm_id) == 0 {
            self.couriers.retain(|(known, _)| *known != whole(cdm_id));
            self.incoming.retain(|of| !of.has_left || whole(of.name.1) != whole(cdm_id));
        } else if cdm_id != whole(cdm_id) {
            self.incoming.remove(at);
        }
    }

    /// What is readable when a datagram has come for an endpoint, and for no other that is still or already here.
    pub fn descriptors_of(&self, device: u32, cdm_id: u32) -> impl Iterator<Item = BorrowedFd<'_>> {
        let near = self.incoming.iter().find(|of| of.name == (device, cdm_id));
        let far = self.courier(cdm_id).filter(|_| self.sharing(cdm_id) == 1);
        near.map(|of| of.fd.as_fd()).into_iter().chain(far.map(Courier::as_fd))
    }

    /// The same of all endpoints.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let near = self.incoming.iter().map(|of| of.fd.as_fd());
        near.chain(self.couriers.iter().map(|(_, courier)| courier.as_fd()))
    }

    /// Sends a datagram to an endpoint.
    pub fn send(&self, device: u32, cdm_id: u32, bytes: &[u8]) -> Sent {
        if self.contacts.is_known(device, cdm_id) {
            return self.send_far(device, cdm_id, bytes);
        }
        let Ok(to) = address(device, cdm_id) else { return Sent::Lost };
        loop {
            match rustix::net::sendto(&self.outgoing, bytes, SendFlags::NOSIGNAL, &to) {
                Ok(_) => return Sent::Done,
                Err(Errno::INTR) => {}
                Err(Errno::CONNREFUSED | Errno::NOENT) => return Sent::Nobody,
                Err(_) => return Sent::Lost,
            }
        }
    }

    fn send_far(&self, device: u32, cdm_id: u32, bytes: &[u8]) -> Sent {
        let from = Envelope::new(bytes).map(|envelope| envelope.source().cdm_id);
        let courier = from.and_then(|from| self.courier(from));
        let is_sent = courier.is_some_and(|courier| courier.send(&self.contacts, device, cdm_id, bytes));
        if is_sent { Sent::Done } else { Sent::Lost }
    }

    /// Hands all that has come to `hear`; at most so much for each endpoint.
    pub fn receive(&mut self, most: usize, mut hear: impl FnMut(Heard<'_>)) {
        for (_, courier) in &self.couriers {
            for _ in 0..most {
                match courier.receive(&mut self.contacts, &self.key) {
                    Some(Come::Datagram(envelope)) => hear(Heard::Datagram(envelope.bytes(), None)),
                    Some(Come::Nobody(who)) => hear(Heard::Nobody(&who)),
                    Some(Come::Stranger) => self.strangers += 1,
                    None => break,
                }
            }
        }
        for of in &self.incoming {
            for _ in 0..most {
                let mut bytes = [0; LEN + 1];
                match receive(&of.fd, &mut bytes) {
                    Some(Ok((length, process))) => hear(Heard::Datagram(&bytes[..length], Some(process))),
                    Some(Err(())) => self.strangers += 1,
                    None => break,
                }
            }
        }
    }

    /// Datagrams of other users, and what has come from other nodes and is of no use.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }
}

/// The next datagram, how long it is, and of which process; an error is a stranger's.
fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> Option<Result<(usize, u32), ()>> {
    let (length, sender) = sender::receive(fd, bytes).ok()?;
    let own = rustix::process::geteuid().as_raw();
    let process = sender.filter(|Sender { user, .. }| *user == own).map(|Sender { process, .. }| process);
    Some(process.map(|process| (length, process)).ok_or(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that is of this process alone.
    fn device() -> u32 {
        std::process::id()
    }

    fn bytes(heard: &Heard<'_>) -> Option<Vec<u8>> {
        match heard {
            Heard::Datagram(bytes, _) => Some(bytes.to_vec()),
            Heard::Nobody(_) => None,
        }
    }

    fn heard(service: &mut Service) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        service.receive(9, |heard| all.extend(bytes(&heard)));
        all
    }

    #[test]
    fn datagrams_reach_who_has_the_name_and_nobody_else() {
        let (mut one, mut two) =
            (Service::new([0; 16]).expect("sockets"), Service::new([0; 16]).expect("sockets"));
        assert_eq!(one.send(device(), 1, b"early"), Sent::Nobody);
        one.bind(device(), 1).expect("free");
        two.bind(device(), 2).expect("free");
        two.bind(device(), 3).expect("free");
        assert_eq!(two.bind(device(), 1).map_err(|error| error.kind()), Err(io::ErrorKind::AddrInUse));
        assert_eq!(one.send(device(), 2, b"to two"), Sent::Done);
        assert_eq!(one.send(device(), 3, b"to three"), Sent::Done);
        assert_eq!(two.send(device(), 1, b"to one"), Sent::Done);
        assert_eq!(one.send(device(), 1, b"to oneself"), Sent::Done);
        assert_eq!(heard(&mut one), [b"to one".to_vec(), b"to oneself".to_vec()]);
        assert_eq!(heard(&mut two), [b"to two".to_vec(), b"to three".to_vec()]);
        assert!(heard(&mut one).is_empty());
        two.release(device() + 1, 2);
        two.release(2, device());
        assert_eq!(one.send(device(), 2, b"still"), Sent::Done, "that was another's name");
        two.release(device(), 2);
        assert_eq!(one.send(device(), 2, b"late"), Sent::Nobody);
        one.bind(device(), 2).expect("free again");
    }

    #[test]
    fn a_datagram_comes_with_its_process() {
        let mut service = Service::new([0; 16]).expect("sockets");
        service.bind(device(), 4).expect("free");
        assert_eq!(service.send(device(), 4, b"mine"), Sent::Done);
        let mut processes = Vec::new();
        service.receive(9, |heard| {
            if let Heard::Datagram(_, process) = heard {
                processes.push(process);
            }
        });
        assert_eq!(processes, [Some(std::process::id())]);
    }

    #[test]
    fn the_contexts_of_an_endpoint_have_one_courier_until_the_last_is_gone() {
        use crate::wire::gni::context::{Part, part, scalable};
        let address = std::net::Ipv4Addr::LOCALHOST;
        let place = Place { address, port: 0, key: [5; 16], shared: None, silence: 9 };
        let first = scalable(std::process::id());
        let second = part(first, Part::Transmit(3)).expect("it has contexts");
        let mut service = Service::new([0; 16]).expect("sockets");
        service.bind(device(), first).expect("free");
        let port = service.bind_far(first, place).expect("a port");
        assert_eq!(service.descriptors_of(device(), first).count(), 2);
        service.bind(device(), second).expect("free");
        assert_eq!(service.bind_far(second, Place { port, ..place }).expect("the same"), port);
        assert_eq!(service.descriptors_of(device(), second).count(), 1, "the other is known");
        service.release(device(), first);
        let mut other = Service::new([0; 16]).expect("sockets");
        let taken = other.bind(device(), first).map_err(|error| error.kind());
        assert_eq!(taken, Err(io::ErrorKind::AddrInUse), "the name is still that endpoint's");
        assert_eq!(service.place(second).map(|place| place.port), Some(port));
        assert_eq!(service.descriptors_of(device(), second).count(), 2, "it goes with this one");
        service.release(device(), second);
        assert!(service.place(first).is_none());
        assert_eq!(service.descriptors().count(), 0);
        other.bind(device(), first).expect("free again");
    }

    #[test]
    fn who_does_not_read_loses_datagrams_and_keeps_the_first() {
        let mut service = Service::new([0; 16]).expect("sockets");
        service.bind(device(), 10).expect("free");
        let sent = (0..10_000_u32).take_while(|n| service.send(device(), 10, &n.to_le_bytes()) == Sent::Done);
        let sent = sent.count();
        assert!((1..10_000).contains(&sent), "{sent}");
        let mut all = Vec::new();
        service.receive(usize::MAX, |heard| all.extend(bytes(&heard)));
        assert_eq!(all.len(), sent);
        assert_eq!(all[0], 0_u32.to_le_bytes());
        assert_eq!(service.strangers(), 0);
    }
}
