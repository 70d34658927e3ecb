//! How the two ends of a connection name it in their packets (RFC 9000, 5.1), and what the tags of these begin with.
//!
//! Each end has a slot for the other, and counts how often it has connected to it. A packet carries the slot that its
//! receiver has chosen and the count of its sender: together they are the connection ID by which the receiver finds
//! the connection.

use super::interface::{Identity, Peer};
use crate::wire::usnic::{Sender, Tagging, connection_id};

/// The names of one connection.
#[derive(Debug)]
pub(super) struct ConnectionIds {
    pub(super) own_slot: u32,
    /// 0: nothing has been heard yet.
    pub(super) peer_slot: u32,
    pub(super) connection: u16,
    /// 0: nothing has been heard yet.
    pub(super) peer_connection: u16,
    /// The peer's connections up to this one are over.
    pub(super) earlier: u16,
    /// The peer has said that those are over: whatever still comes of them is late.
    pub(super) has_parted: bool,
    /// What all packets of the peer carry; [`Self::UNNAMED`] until it is heard.
    pub(super) received: u64,
    /// What the tags of its packets begin with, once it has been heard.
    pub(super) received_tags: Tagging,
    /// The same of ours, with what we know of it.
    pub(super) sent_tags: Tagging,
    /// It has called us by our slot: it knows who we are, and our headers are short. Those of protected packets stay
    /// long.
    pub(super) is_introduced: bool,
}

impl ConnectionIds {
    /// No header says that.
    const UNNAMED: u64 = u64::MAX;

    pub(super) fn new(peer: &Peer) -> Self {
        let nobody = Tagging::new(&peer.key, 0, 0, &Sender { name: 0, incarnation: 0, slot: 0 });
        Self {
            own_slot: 0,
            peer_slot: 0,
            connection: 1,
            peer_connection: 0,
            earlier: 0,
            has_parted: false,
            received: Self::UNNAMED,
            received_tags: nobody,
            sent_tags: nobody,
            is_introduced: false,
        }
    }

    /// The names are others than before: so are the tags of packets.
    pub(super) fn note_names(&mut self, own: &Identity, peer: &Peer) {
        self.sent_tags = Tagging::new(&peer.key, self.peer_slot, self.connection, &self.own_name(own));
        if self.peer_connection != 0 {
            let sender = self.peer_name(peer);
            self.received_tags = Tagging::new(&own.key, self.own_slot, self.peer_connection, &sender);
            self.received = connection_id(self.own_slot, self.peer_connection);
        }
    }

    /// What our long headers say of us.
    pub(super) const fn own_name(&self, own: &Identity) -> Sender {
        Sender { name: own.name, incarnation: own.incarnation, slot: self.own_slot }
    }

    /// What the peer's long headers say of it.
    pub(super) const fn peer_name(&self, peer: &Peer) -> Sender {
        Sender { name: peer.name, incarnation: peer.incarnation, slot: self.peer_slot }
    }
}
