//! One peer: a connection with its two halves and what both share. The verbs are the engine's.

use super::closed::ClosedConnection;
use super::connection_ids::ConnectionIds;
use super::flow::ReceiveBudget;
use super::interface::{Identity, Peer};
use super::life::Life;
use super::limits::Limits;
use super::packet::Notice;
use super::protection::Protection;
use super::receive_half::ReceiveHalf;
use super::send_half::{Blocked, SendHalf};
use super::slab::Roster;
use super::time::{Instant, MILLI};
use super::timers::{Timer, Timers};
use crate::wire::usnic::{HEADER_LEN, SHORT_HEADER_LEN, Sender};

/// How often a peer that we only wait for is asked whether it lives.
const KEEPALIVE: u64 = 500 * MILLI;

/// How far in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The peer ends the connection, and hears that it is over when what is under way has arrived. Nothing new begins.
    Parting,
    /// To be closed when all has been sent and acknowledged.
    Draining,
    /// The peer has been told.
    Closing,
    /// Closed; the peer may not have noticed yet.
    Lingering,
    /// It does not answer.
    Dead,
}

/// GETs under way.
#[derive(Debug, Default)]
pub(super) struct Gets {
    /// Ours.
    pub(super) open: u32,
    /// The operations of these.
    pub(super) operations: Roster,
    /// The peer's.
    pub(super) serving: u32,
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

    pub(super) ids: ConnectionIds,
    pub(super) send: SendHalf,
    pub(super) receive: ReceiveHalf,
    /// Where packets are protected.
    pub(super) protection: Option<Box<Protection>>,

    // Lists of the engine on which it stands.
    pub(super) ready: bool,
    pub(super) resending: bool,

    /// What waits for the next connection, in its order, and on which queue.
    pub(super) held: Vec<(usize, u32)>,
    pub(super) gets: Gets,
    pub(super) life: Life,
    /// It has acknowledged a datagram of the greatest length.
    pub(super) took_longest: bool,
    pub(super) closes: u32,

    pub(super) timers: Timers,
    /// Packets without a sequence number to be sent.
    pub(super) notices: Vec<Notice>,
}

impl Endpoint {
    pub(super) fn new(peer: Peer, window: u64, retransmit: u64, now: Instant) -> Self {
        Self {
            send: SendHalf::new(peer.max_datagram, window, retransmit, now),
            receive: ReceiveHalf::new(now),
            protection: None,
            peer,
            phase: Phase::Open,
            remote_closed: false,
            used: false,
            ids: ConnectionIds::new(&peer),
            ready: false,
            resending: false,
            held: Vec::new(),
            gets: Gets::default(),
            life: Life::new(now),
            took_longest: false,
            closes: 0,
            timers: Timers::new(),
            notices: Vec::new(),
        }
    }

    /// The names of the connection are others than before: so are the tags of its packets.
    pub(super) fn note_names(&mut self, own: &Identity) {
        self.ids.note_names(own, &self.peer);
    }

    /// The peer has called us by our slot: from now on our headers are short.
    #[cold]
    pub(super) fn introduce(&mut self) {
        if !std::mem::replace(&mut self.ids.is_introduced, true) {
            self.send.path.note_shorter_headers(self.saved());
        }
    }

    /// Bytes by which our headers are shorter than long ones.
    pub(super) const fn saved(&self) -> usize {
        if self.ids.is_introduced { HEADER_LEN - SHORT_HEADER_LEN } else { 0 }
    }

    /// What our long headers say of us.
    pub(super) const fn own_name(&self, own: &Identity) -> Sender {
        self.ids.own_name(own)
    }

    /// What the peer's long headers say of it.
    pub(super) const fn peer_name(&self) -> Sender {
        self.ids.peer_name(&self.peer)
    }

    /// Whose connection it was, and what is left of it once it is over.
    pub(super) fn closed(&self) -> ((u64, u32), ClosedConnection) {
        // A number that no packet has carried is the next one's.
        let ours = self.ids.connection.wrapping_sub(u16::from(!self.used));
        let (peer, peers) = (&self.peer, self.ids.peer_connection);
        (
            (peer.name, peer.incarnation),
            ClosedConnection { ours, peers, received: self.receive.window.next() },
        )
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
        self.send.is_drained() && self.gets.open == 0
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
        self.timers.arm(at).then_some(at)
    }

    /// Whether we only wait for the peer, with nothing under way that it would acknowledge.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        (self.gets.open > 0 || !self.receive.assembler.is_empty()) && self.send.is_drained()
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
