//! How two sides talk while they connect: as this BTL does, or as Open MPI's own openib.
//!
//! The machines are the same. What openib does not say is put in by whoever reads it: it has no lives of processes, no
//! attempts, and no queue specification, and a kick looks as a request does, which nobody sends to an initiator. Each side
//! compares the numbers of the other's address as its processor has them. It gives up whoever it does not know, and ends its
//! job when a connection fails: so a request of a process that is not known yet is not rejected, but waits.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;

use super::interface::Role;
use super::link::{Link, Phase};
use crate::wire::openib;
use crate::wire::verbs::private::{Body, LEN, Malformed, Private, Refusal};

/// How two sides talk while they connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// As this BTL does.
    #[default]
    Own,
    /// As openib with rdma_cm does. Peers are told by their names: of each, the life and the listener are 0.
    Openib,
}

/// Private data that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes {
    all: [u8; LEN],
    len: u8,
}

impl Bytes {
    /// As many as there may be.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut all = [0; LEN];
        let len = bytes.len().min(LEN);
        all[..len].copy_from_slice(&bytes[..len]);
        Self { all, len: len as u8 }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all[..usize::from(self.len)]
    }
}

/// An address and a port as openib compares them.
fn as_numbers(at: SocketAddr) -> (u128, u16) {
    let ip = match at.ip() {
        IpAddr::V4(ip) => u128::from(u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(ip) => u128::from_ne_bytes(ip.octets()),
    };
    (ip, at.port().to_be())
}

impl Role {
    /// A pure function of what both sides know of each other from the modex: the greater address, in network order,
    /// initiates, and of equal ones the smaller port. `None` where both are the same: no pair.
    pub fn of(own: SocketAddr, peer: SocketAddr, dialect: Dialect) -> Option<Self> {
        let order = match dialect {
            Dialect::Own => own.ip().cmp(&peer.ip()).then(peer.port().cmp(&own.port())),
            Dialect::Openib => {
                let ((own, its), (peer, theirs)) = (as_numbers(own), as_numbers(peer));
                own.cmp(&peer).then(theirs.cmp(&its))
            }
        };
        match order {
            Ordering::Greater => Some(Self::Initiator),
            Ordering::Less => Some(Self::Acceptor),
            Ordering::Equal => None,
        }
    }
}

impl Dialect {
    /// What is said, by a process that listens at this port.
    pub(super) fn say(self, private: &Private, port: u16) -> Bytes {
        let Self::Openib = self else { return Bytes::of(&private.emit()) };
        let queue = match private.body {
            Body::Rejection(Refusal::WrongDirection) => {
                return Bytes::of(&openib::Refusal::WrongDirection.to_bytes());
            }
            Body::Rejection(_) => return Bytes::of(&openib::Refusal::Other.to_bytes()),
            Body::Request { queue } | Body::Reply { queue } => queue,
            Body::Kick => 0,
        };
        let said = openib::Private { port, index: private.token, queue, process: private.process };
        Bytes::of(&said.to_bytes())
    }

    /// Who asks, of whom nothing else is known.
    pub(super) fn asker(self, private: &[u8]) -> Result<Private, Malformed> {
        if self == Self::Own {
            return Private::parse(private);
        }
        let asked = openib::Private::parse(private).ok_or(Malformed::Length)?;
        Ok(Private {
            body: Body::Request { queue: asked.queue },
            nonce: 0,
            target: 0,
            process: asked.process,
            token: asked.index,
            attempt: 0,
            specification: 0,
            listener: 0,
            queues: 0,
        })
    }

    /// What the peer of a link answers to the request for a queue.
    pub(super) fn reply(self, private: &[u8], link: &Link, (own, queue): (u64, u8)) -> Option<u32> {
        if self == Self::Own {
            let reply = Private::parse(private).ok()?;
            let is_its = reply.body == Body::Reply { queue }
                && (reply.nonce, reply.target) == (link.peer.nonce, own)
                && reply.attempt == link.attempt.0;
            return is_its.then_some(reply.token);
        }
        let reply = openib::Private::parse(private)?;
        (reply.queue == queue && reply.process == link.peer.process).then_some(reply.index)
    }
}

impl Link {
    /// Completes what has been asked in openib's words: the attempt is the present one, as long as this queue is not
    /// connected in it. `None` if it is of another listener than the peer's.
    pub(super) fn complete(
        &self,
        asked: &Private,
        port: u16,
        (own, queues): (u64, (u64, u8)),
    ) -> Option<Private> {
        let Body::Request { queue } = asked.body else { return None };
        let is_open =
            self.phase == Phase::Answering && self.legs.get(usize::from(queue)).is_some_and(Option::is_none);
        let attempt = if is_open { self.attempt.0 } else { self.attempt.0.wrapping_add(1) };
        let (body, attempt) = match self.role {
            Role::Initiator => (Body::Kick, 0),
            Role::Acceptor => (asked.body, attempt),
        };
        let (specification, queues) = queues;
        (port == self.peer.address.port()).then_some(Private {
            body,
            target: own,
            attempt,
            specification,
            queues,
            ..*asked
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: [u8; 4], port: u16) -> SocketAddr {
        SocketAddr::from((ip, port))
    }

    /// openib compares what stands in memory in network order as numbers of the processor.
    #[test]
    #[cfg(target_endian = "little")]
    fn who_connects_is_what_openib_says() {
        let of = |own, peer| Role::of(own, peer, Dialect::Openib);
        let (low, high) = (at([10, 0, 0, 2], 5), at([9, 0, 0, 3], 5));
        assert_eq!((of(low, high), of(high, low)), (Some(Role::Acceptor), Some(Role::Initiator)));
        let (small, great) = (at([10, 0, 0, 1], 0x0200), at([10, 0, 0, 1], 0x0101));
        assert_eq!((of(small, great), of(great, small)), (Some(Role::Initiator), Some(Role::Acceptor)));
        assert_eq!(of(small, small), None);
        assert_eq!(Role::of(low, high, Dialect::Own), Some(Role::Initiator));
    }

    #[test]
    fn a_kick_is_a_request_for_the_first_queue_and_a_rejection_a_number() {
        let private = |body| Private {
            body,
            nonce: 1,
            target: 2,
            process: 3,
            token: 4,
            attempt: 5,
            specification: 6,
            listener: 7,
            queues: 8,
        };
        let said = |body| Dialect::Openib.say(&private(body), 9);
        let request = openib::Private { port: 9, index: 4, queue: 0, process: 3 };
        assert_eq!(said(Body::Kick)[..], request.to_bytes());
        assert_eq!(said(Body::Request { queue: 2 })[..], openib::Private { queue: 2, ..request }.to_bytes());
        assert_eq!(said(Body::Rejection(Refusal::WrongDirection))[..], [0; 4]);
        assert_eq!(said(Body::Rejection(Refusal::Later))[..], [1, 0, 0, 0]);
        assert_eq!(Dialect::Own.say(&private(Body::Kick), 9)[..], private(Body::Kick).emit());
    }
}
