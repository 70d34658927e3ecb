//! One peer: everything that is known of it. The verbs are the engine's.

use super::assembler::Assembler;
use super::congestion::Congestion;
use super::interface::Peer;
use super::life::Evidence;
use super::limits::Limits;
use super::operation::Withdrawn;
use super::packet::{Notice, PendingAck};
use super::path::Path;
use super::reordering::Reordering;
use super::rtt::Rtt;
use super::slab::Roster;
use super::time::{Instant, MILLI};
use super::window::{Order, ReceiveWindow, SendWindow};
use std::collections::VecDeque;

/// Segments that a peer has room for when nothing else is known.
pub(super) const LEAST_CREDIT: u64 = 2;
/// A sender that has been silent for so long has lost its credit. The receiver waits three times
/// as long before it gives the room to others, since packets may be late.
pub(super) const IDLE: u64 = 10 * MILLI;
/// What a datagram takes up in a receive buffer besides its bytes, roughly.
const BOOKKEEPING: usize = 768;
/// How often a peer that we only wait for is asked whether it lives.
pub(super) const KEEPALIVE: u64 = 500 * MILLI;

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

/// A grant that changed nothing, so that the next one will not either while nothing else does.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Bytes granted in all.
    pub(super) total: u64,
    pub(super) sharers: usize,
    pub(super) endpoints: usize,
    /// Bytes granted to the endpoint.
    pub(super) granted: u64,
    pub(super) segments: u64,
}

impl Settled {
    /// The segments granted, if nothing has changed since.
    #[inline(always)]
    pub(super) fn credit(&self, of: &Endpoint, total: u64, sharers: usize, endpoints: usize) -> Option<u64> {
        let same = of.granted == [self.granted; 2]
            && (self.total, self.sharers, self.endpoints) == (total, sharers, endpoints)
            && of.sharing;
        same.then_some(self.segments)
    }
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
    pub(super) past: u16,

    // Sending.
    pub(super) queues: [VecDeque<u32>; 2],
    /// Tiny ones sent since the last of the data queue.
    pub(super) run: u32,
    pub(super) window: SendWindow,
    pub(super) order: [Order; 2],
    pub(super) lost: VecDeque<u64>,
    /// Data to be sent anew, before anything that was not sent yet.
    pub(super) withdrawn: VecDeque<Withdrawn>,
    /// Probes that have not left yet, and when they were asked for.
    pub(super) probes: u32,
    pub(super) probed: Instant,
    pub(super) in_flight: u64,
    pub(super) in_flight_bytes: u64,
    pub(super) credit: u64,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) path: Path,
    /// Later arrivals of the channel that make a segment lost.
    pub(super) reordering: Reordering,
    /// When the latest of those that have arrived was sent.
    pub(super) newest_arrival: Instant,
    pub(super) next_fragment: u32,
    pub(super) pass: u64,
    pub(super) handed: usize,
    pub(super) ready: bool,
    pub(super) resending: bool,
    pub(super) gets: u32,
    /// The operations of these.
    pub(super) getting: Roster,
    pub(super) serving: u32,

    // Time.
    /// On the clock that does not run while we sleep.
    pub(super) heard: Instant,
    /// What others say about it.
    pub(super) evidence: Evidence,
    pub(super) asked: u32,
    /// When its silence was last told, on the same clock.
    pub(super) told: Instant,
    /// It has acknowledged a datagram of the greatest length.
    pub(super) took_longest: bool,
    pub(super) backoff: u32,
    /// When something was last sent, or acknowledged.
    pub(super) active: Instant,
    pub(super) last_sent: Instant,
    pub(super) loss_at: Option<Instant>,
    pub(super) paced_until: Option<Instant>,
    pub(super) close_at: Option<Instant>,
    pub(super) closes: u32,
    /// Packets without a sequence number to be sent.
    pub(super) notices: Vec<Notice>,
    pub(super) armed: Option<Instant>,

    // Receiving.
    pub(super) received: ReceiveWindow,
    pub(super) gapped: bool,
    pub(super) assembler: Assembler,
    pub(super) owed: PendingAck,
    /// Newest stamp of the peer's, and when it came.
    pub(super) stamp: Option<(u32, Instant)>,
    /// Bytes of room promised to the peer: last, and the most that still counts.
    pub(super) granted: [u64; 2],
    pub(super) promised_until: Instant,
    pub(super) settled: Settled,
    pub(super) sharing: bool,
    /// It stands in the line of those whose share is reviewed.
    pub(super) listed: bool,
    pub(super) last_data: Instant,
}

impl Endpoint {
    pub(super) fn new(peer: Peer, window: u64, retransmit: u64, now: Instant) -> Self {
        let congestion = Congestion::new(window, peer.max_datagram, now);
        Self {
            path: Path::new(peer.max_datagram),
            peer,
            phase: Phase::Open,
            remote_closed: false,
            used: false,
            own_slot: 0,
            peer_slot: 0,
            connection: 1,
            peer_connection: 0,
            past: 0,
            queues: [VecDeque::new(), VecDeque::new()],
            run: 0,
            window: SendWindow::default(),
            order: [Order::default(), Order::default()],
            lost: VecDeque::new(),
            withdrawn: VecDeque::new(),
            probes: 0,
            probed: Instant::ORIGIN,
            in_flight: 0,
            in_flight_bytes: 0,
            credit: LEAST_CREDIT,
            rtt: Rtt::new(retransmit, now),
            congestion,
            reordering: Reordering::new(),
            newest_arrival: Instant::ORIGIN,
            next_fragment: 1,
            pass: 0,
            handed: 0,
            ready: false,
            resending: false,
            gets: 0,
            getting: Roster::default(),
            serving: 0,
            heard: now,
            evidence: Evidence::default(),
            asked: 0,
            told: now,
            took_longest: false,
            backoff: 0,
            active: now,
            last_sent: now,
            loss_at: None,
            paced_until: None,
            close_at: None,
            closes: 0,
            notices: Vec::new(),
            armed: None,
            received: ReceiveWindow::default(),
            gapped: false,
            assembler: Assembler::default(),
            owed: PendingAck::default(),
            stamp: None,
            granted: [0; 2],
            promised_until: now,
            settled: Settled::default(),
            sharing: false,
            listed: false,
            last_data: now,
        }
    }

    /// Whether the user may still use it.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.phase != Phase::Lingering
    }

    /// What a datagram of this length takes up in the peer's receive buffer.
    #[inline]
    pub(super) fn charge(&self, datagram: usize) -> u32 {
        (datagram + BOOKKEEPING).min(self.peer.max_datagram) as u32
    }

    /// Whether network and peer have room for a segment of such a charge now.
    #[inline(always)]
    pub(super) fn has_room(&mut self, charge: u32, now: Instant) -> bool {
        // Who waited for a round trip was not silent.
        if self.in_flight == 0 && now.since(self.last_sent) > IDLE + self.rtt.least().min(IDLE) {
            self.credit = self.credit.min(LEAST_CREDIT);
        }
        if self.in_flight >= self.congestion.window() {
            self.congestion.note_limited();
            return false;
        }
        let room = self.credit * self.peer.max_datagram as u64;
        if self.in_flight > 0 && self.in_flight_bytes + u64::from(charge) > room {
            return false;
        }
        match self.congestion.wait(now, self.rtt.least()) {
            None => true,
            Some(until) => {
                self.congestion.note_limited();
                self.paced_until = Some(until);
                false
            }
        }
    }

    /// Whether the next segment will have to wait for an acknowledgement.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let room = self.credit * self.peer.max_datagram as u64;
        self.in_flight >= self.congestion.window()
            || self.in_flight_bytes + self.peer.max_datagram as u64 > room
    }

    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !self.queues[0].is_empty() || !self.queues[1].is_empty()
    }

    /// Whether everything asked for has been sent and acknowledged.
    pub(super) fn is_drained(&self) -> bool {
        !self.has_queued() && self.withdrawn.is_empty() && self.window.is_empty() && self.gets == 0
    }

    /// How long to wait for an answer now.
    #[inline]
    pub(super) fn patience(&self, ack_delay: u64, most: u64) -> u64 {
        self.rtt.timeout(ack_delay).saturating_mul(1 << self.backoff.min(20)).min(most)
    }

    /// When it has to be looked at without anything happening.
    #[inline]
    pub(super) fn deadline(&self, ack_delay: u64, most: u64) -> Option<Instant> {
        const NEVER: Instant = Instant::from_nanos(u64::MAX);
        let answer = if self.in_flight > 0 {
            self.active.plus(self.patience(ack_delay, most))
        } else if self.is_waiting() {
            self.active.max(self.last_data).plus(KEEPALIVE)
        } else {
            NEVER
        };
        let at = [self.loss_at, self.paced_until, self.close_at]
            .into_iter()
            .fold(answer, |earliest, at| earliest.min(at.unwrap_or(NEVER)));
        (at != NEVER).then_some(at)
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
        (self.gets > 0 || !self.assembler.is_empty()) && self.window.is_empty() && !self.has_queued()
    }

    /// Gives memory back that a busy time has left.
    pub(super) fn shrink(&mut self) {
        self.window.shrink();
        self.order.iter_mut().for_each(Order::shrink);
        self.lost.shrink_to(0);
        self.withdrawn.shrink_to(0);
        self.queues.iter_mut().for_each(|queue| queue.shrink_to(0));
        self.assembler.shrink();
    }

    /// Bytes of memory that it takes up.
    pub(super) fn footprint(&self) -> usize {
        let words = self.queues.iter().map(|queue| queue.capacity() * 4).sum::<usize>();
        size_of::<Self>()
            + words
            + self.lost.capacity() * 8
            + self.withdrawn.capacity() * size_of::<Withdrawn>()
            + self.window.capacity_bytes()
            + self.order.iter().map(Order::capacity_bytes).sum::<usize>()
            + self.received.capacity_bytes()
            + self.assembler.capacity_bytes()
    }
}
