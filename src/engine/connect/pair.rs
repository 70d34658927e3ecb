//! One endpoint and one peer: what is kept of the connection that they have, and of those that they had.

use crate::engine::time::Instant;
use crate::wire::gni::datagram::{Attributes, Body, Datagram, NameId};

use super::interface::Route;
use super::table::Row;

/// Which pair: the endpoint's id at the device, and the name of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) endpoint: u32,
    pub(super) device: u32,
    pub(super) cdm_id: u32,
}

/// A side of a connection of the peer, and where it takes its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Adopted {
    pub(super) incarnation: u64,
    pub(super) vc: u32,
    pub(super) attributes: Attributes,
}

/// The latest that was heard of a peer. Lives and connections of one name have growing numbers: what is below is of
/// the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mark {
    pub(super) incarnation: u64,
    pub(super) vc: u32,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub(super) row: Row,
    /// Number of the connection; 0: there is none.
    pub(super) vc: u32,
    /// The user wants it.
    pub(super) wanted: bool,
    /// In the address vector, as this life of the peer, or with 0 as any.
    pub(super) mapped: Option<u64>,
    /// Which life of the peer the user has asked for; 0: any.
    pub(super) asked_for: u64,
    /// The mailbox of this side, once it is there.
    pub(super) own: Option<Attributes>,
    /// A request with the present number has been sent: the peer may adopt it at any time.
    pub(super) asked: bool,
    /// The peer's side.
    pub(super) adopted: Option<Adopted>,
    /// The peer knows that this side is connected.
    pub(super) settled: bool,
    /// There is something to be sent: one datagram at a time.
    pub(super) due: bool,
    /// How often it has been said in vain.
    pub(super) attempts: u32,
    /// When it is said again.
    pub(super) timer: Option<Instant>,
    /// Entries put into the peer's mailbox, once that is over.
    pub(super) sent: u64,
    pub(super) mark: Mark,
    /// This life of the peer has ended, and all before it.
    pub(super) dead: u64,
    /// A request that waits for the end of this connection, or until the endpoint is enabled.
    pub(super) held: Option<Adopted>,
    pub(super) route: Option<Route>,
}

impl Pair {
    pub(super) const fn new() -> Self {
        Self {
            row: Row::None,
            vc: 0,
            wanted: false,
            mapped: None,
            asked_for: 0,
            own: None,
            asked: false,
            adopted: None,
            settled: false,
            due: false,
            attempts: 0,
            timer: None,
            sent: 0,
            mark: Mark { incarnation: 0, vc: 0 },
            dead: 0,
            held: None,
            route: None,
        }
    }

    /// Which life of the peer is meant now; 0: any.
    pub(super) fn incarnation(&self) -> u64 {
        self.adopted.map_or(self.asked_for, |adopted| adopted.incarnation)
    }

    /// Whether that is in the address vector.
    pub(super) fn is_mapped(&self) -> bool {
        let known = self.incarnation();
        self.mapped.is_some_and(|life| life == 0 || known == 0 || life == known)
    }

    /// Whether nothing here is of use but what it says of the past.
    pub(super) const fn is_spare(&self) -> bool {
        self.row.is_idle() && self.mapped.is_none() && self.held.is_none() && !self.wanted
    }

    /// What is due: asked about in the same words until it is known that the peer has heard them.
    pub(super) fn says(&self) -> Option<Body> {
        match self.row {
            Row::Asking => self.own.map(Body::Request),
            Row::Connected if self.asked => self.own.map(Body::Request),
            Row::Connected => self.own.map(Body::Response),
            Row::Closing => Some(Body::Disconnect { sent: self.sent }),
            Row::None | Row::Preparing | Row::Draining | Row::Terminated | Row::Error => None,
        }
    }

    /// The connection is over. What is known of the peer stays.
    pub(super) fn reset(&mut self, row: Row) {
        self.row = row;
        self.vc = 0;
        self.own = None;
        self.asked = false;
        self.adopted = None;
        self.settled = false;
        self.due = false;
        self.attempts = 0;
        self.sent = 0;
    }
}

/// Whose life and connection a datagram is of, and what it brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) source: NameId,
    pub(super) vc: u32,
    /// It names the present connection of this side.
    pub(super) knows: bool,
    pub(super) body: Body,
}

impl Said {
    pub(super) const fn of(datagram: &Datagram, own: u32) -> Self {
        let knows = own != 0 && datagram.target_vc == own;
        Self { source: datagram.source, vc: datagram.source_vc, knows, body: datagram.body }
    }

    /// The side of the peer that it shows, if it has attributes.
    pub(super) const fn side(&self) -> Option<Adopted> {
        match self.body {
            Body::Request(attributes) | Body::Response(attributes) => {
                Some(Adopted { incarnation: self.source.incarnation, vc: self.vc, attributes })
            }
            _ => None,
        }
    }
}
