//! One peer: a connection with its two halves and what both share. The verbs are the engine's.

use super::closed::Past;
use super::flow::ReceiveBudget;
use super::interface::{Identity, Peer};
use super::life::Evidence;
use super::limits::Limits;
use super::packet::Notice;
use super::protection::Protection;
use super::receive_half::ReceiveHalf;
use super::send_half::{Blocked, SendHalf};
use super::slab::Roster;
use super::time::{Instant, MILLI};
use super::timers::{Timer, Timers};
use crate::wire::usnic::{HEADER_LEN, SHORT_HEADER_LEN, Sender, Tagging, course};

/// How often a peer that we only wait for is asked whether it lives.
const KEEPALIVE: u64 = 500 * MILLI;

/// How far in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// To be closed when all has been sent and acknowledged.
    Draining,
    /// The peer has been told.
    Closing,
    /// Closed; the peer may not have noticed yet.
    Lingering,
    /// It does not answer.
    Dead,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) peer: Peer,
    pub(super) phase: Phase,
    /// The peer has said that it is done.
    pub(super) remote_closed: bool,
    /// Something was sent or received.
    pub(super) used: bool,

    // Names of this connection on the wire.
    pub(super) own_slot: u32,
    pub(super) peer_slot: u32,
    pub(super) connection: u16,
    /// 0: nothing has been heard yet.
    pub(super) peer_connection: u16,
    /// The peer's connections up to this one are over.
    pub(super) earlier: u16,
    /// Our slot and the peer's connection, as all its packets name them; [`Self::UNNAMED`] until it is heard.
    pub(super) course: u64,
    /// What the tags of its packets begin with, once it has been heard.
    pub(super) received_tags: Tagging,
    /// The same of ours, with what we know of it.
    pub(super) sent_tags: Tagging,
    /// It has called us by our slot: it knows who we are, and our headers are short. Those of protected packets stay
    /// long.
    pub(super) is_introduced: bool,

    pub(super) send: SendHalf,
    pub(super) receive: ReceiveHalf,
    /// Where packets are protected.
    pub(super) protection: Option<Box<Protection>>,

    // Lists of the engine on which it stands.
    pub(super) ready: bool,
    pub(super) resending: bool,

    // GETs: ours, the operations of these, and the peer's.
    pub(super) gets: u32,
    pub(super) getting: Roster,
    pub(super) serving: u32,

    // Its life, on the clock that does not run while we sleep.
    pub(super) last_heard: Instant,
    /// What others say about it.
    pub(super) evidence: Evidence,
    /// When its silence was last reported.
    pub(super) silence_reported: Instant,
    /// When it was lost.
    pub(super) lost: Instant,
    /// It has acknowledged a datagram of the greatest length.
    pub(super) took_longest: bool,
    pub(super) closes: u32,

    pub(super) timers: Timers,
    /// When the engine's timer for it comes.
    pub(super) armed: Option<Instant>,
    /// Packets without a sequence number to be sent.
    pub(super) notices: Vec<Notice>,
}

impl Endpoint {
    /// No header says that.
    const UNNAMED: u64 = u64::MAX;

    pub(super) fn new(peer: Peer, window: u64, retransmit: u64, now: Instant) -> Self {
        let nobody = Tagging::new(&peer.key, 0, 0, &Sender { name: 0, incarnation: 0, slot: 0 });
        Self {
            send: SendHalf::new(peer.max_datagram, window, retransmit, now),
            receive: ReceiveHalf::new(now),
            protection: None,
            peer,
            phase: Phase::Open,
            remote_closed: false,
            used: false,
            own_slot: 0,
            peer_slot: 0,
            connection: 1,
            peer_connection: 0,
            earlier: 0,
            course: Self::UNNAMED,
            received_tags: nobody,
            sent_tags: nobody,
            is_introduced: false,
            ready: false,
            resending: false,
            gets: 0,
            getting: Roster::default(),
            serving: 0,
            last_heard: now,
            evidence: Evidence::default(),
            silence_reported: now,
            lost: now,
            took_longest: false,
            closes: 0,
            timers: Timers::new(),
            armed: None,
            notices: Vec::new(),
        }
    }

    /// The names of the connection are others than before: so are the tags of its packets.
    pub(super) fn note_names(&mut self, own: &Identity) {
        let us = self.own_name(own);
        self.sent_tags = Tagging::new(&self.peer.key, self.peer_slot, self.connection, &us);
        if self.peer_connection != 0 {
            let peer = self.peer_name();
            self.received_tags = Tagging::new(&own.key, self.own_slot, self.peer_connection, &peer);
            self.course = course(self.own_slot, self.peer_connection);
        }
    }

    /// The peer has called us by our slot: from now on our headers are short.
    #[cold]
    pub(super) fn introduce(&mut self) {
        if !std::mem::replace(&mut self.is_introduced, true) {
            self.send.path.note_shorter_headers(self.saved());
        }
    }

    /// Bytes by which our headers are shorter than long ones.
    pub(super) const fn saved(&self) -> usize {
        if self.is_introduced { HEADER_LEN - SHORT_HEADER_LEN } else { 0 }
    }

    /// What our long headers say of us.
    pub(super) const fn own_name(&self, own: &Identity) -> Sender {
        Sender { name: own.name, incarnation: own.incarnation, slot: self.own_slot }
    }

    /// What the peer's long headers say of it.
    pub(super) const fn peer_name(&self) -> Sender {
        Sender { name: self.peer.name, incarnation: self.peer.incarnation, slot: self.peer_slot }
    }

    /// Whose connection it was, and what is left of it once it is over.
    pub(super) const fn past(&self) -> ((u64, u32), Past) {
        let Self { peer, connection: ours, peer_connection: peers, .. } = *self;
        ((peer.name, peer.incarnation), Past { ours, peers, received: self.receive.window.next() })
    }

    /// Whether the user may still use it.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.phase != Phase::Lingering
    }

    /// Segments that the peer may send, if nothing has changed since the last grant; `known` are all peers.
    #[inline(always)]
    pub(super) fn settled_grant(&self, budget: &ReceiveBudget, known: usize) -> Option<u64> {
        budget.settled(&self.receive.share, known)
    }

    /// A segment had to wait.
    #[inline]
    pub(super) fn note_blocked(&mut self, blocked: Blocked) {
        match blocked {
            Blocked::Congestion => self.send.congestion.note_limited(),
            Blocked::FlowControl => {}
            Blocked::Pacing(until) => {
                self.send.congestion.note_limited();
                self.timers.set(Timer::Pacing, until);
            }
        }
    }

    /// Whether everything asked for has been sent and acknowledged.
    pub(super) fn is_drained(&self) -> bool {
        self.send.is_drained() && self.gets == 0
    }

    /// When the peer is to be asked again, if nothing is heard before.
    #[inline]
    pub(super) fn probe_due(&self, ack_delay: u64, most: u64) -> Instant {
        self.send.probe.due(self.send.rtt.probe_timeout(ack_delay), most)
    }

    /// When it has to be looked at without anything happening.
    #[inline]
    pub(super) fn deadline(&self, ack_delay: u64, most: u64) -> Option<Instant> {
        let probe = if self.send.in_flight > 0 {
            Some(self.probe_due(ack_delay, most))
        } else if self.is_waiting() {
            Some(self.send.probe.active().max(self.receive.last_data).plus(KEEPALIVE))
        } else {
            None
        };
        self.timers.earliest(probe)
    }

    /// The time at which a timer must be set for it, when none is that comes in time.
    #[inline]
    pub(super) fn arm(&mut self, limits: &Limits) -> Option<Instant> {
        let at = self.deadline(limits.ack_delay, limits.retransmit_max)?;
        if self.armed.is_some_and(|armed| armed <= at) {
            return None;
        }
        self.armed = Some(at);
        Some(at)
    }

    /// Whether we only wait for the peer, with nothing under way that it would acknowledge.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        (self.gets > 0 || !self.receive.assembler.is_empty()) && self.send.is_drained()
    }

    /// Gives memory back that a busy time has left.
    pub(super) fn shrink(&mut self) {
        self.send.shrink();
        self.receive.assembler.shrink();
    }

    /// Bytes of memory that it takes up.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + self.send.capacity_bytes() + self.receive.capacity_bytes()
    }
}
