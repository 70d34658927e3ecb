//! The sending half of a connection: what is queued, under way and lost, and whether more may leave.

use super::congestion::Congestion;
use super::copies::Copies;
use super::flow::SendCredit;
use super::loss_detection::LossDetection;
use super::operation::Withdrawn;
use super::path::Path;
use super::probe::Probe;
use super::rtt::Rtt;
use super::send_window::{Landed, SendWindow, State};
use super::time::{Instant, MICRO};
use crate::wire::usnic::{HEADER_LEN, Kind, header_len};
use std::collections::VecDeque;

/// What a datagram takes up in a receive buffer besides its bytes, roughly.
const BOOKKEEPING: usize = 768;
/// A short message that follows another one so soon, in nanoseconds, shares a datagram with it.
const ROW: u64 = 5 * MICRO;
/// Bytes under way within which short messages may leave, whatever window, credit and pacer say, where
/// nothing was lost of late: who sends a row of them and then computes would leave the rest behind until it
/// comes back. A window of few segments and the little credit that is left after silence say what is not
/// known, and to try it with so much costs little: 0.1 ms of 10 Gb/s, and the memory of a hundred datagrams.
const SHORT_ROW: u64 = 128 << 10;

/// Why a segment may not leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// As much is under way as the congestion window allows.
    Congestion,
    /// The peer has no room for it.
    FlowControl,
    /// Not before then.
    Pacing(Instant),
}

/// What is sent to one peer.
#[derive(Debug)]
pub(super) struct SendHalf {
    /// Longest datagram that both ends take.
    longest: usize,
    /// Short messages in a row share datagrams.
    pub(super) coalesces: bool,
    pub(super) queues: [VecDeque<u32>; 2],
    /// Tiny ones sent since the last of the data queue.
    pub(super) tiny_run: u32,
    pub(super) window: SendWindow,
    pub(super) detection: LossDetection,
    pub(super) lost: VecDeque<u64>,
    /// What fragments under way are sent from whose users have been told that they are over.
    pub(super) copies: Copies,
    /// Data to be sent anew, before anything that was not sent yet.
    pub(super) withdrawn: VecDeque<Withdrawn>,
    /// Segments under way, and their [charges](Self::charge).
    pub(super) in_flight: u64,
    bytes_in_flight: u64,
    pub(super) credit: SendCredit,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) path: Path,
    pub(super) probe: Probe,
    pub(super) next_fragment: u32,
    /// The pass in which something was last sent, and how much.
    pub(super) pass: u64,
    pub(super) sent_in_pass: usize,
    last_sent: Instant,
}

impl SendHalf {
    pub(super) fn new(longest: usize, window: u64, initial_timeout: u64, now: Instant) -> Self {
        Self {
            longest,
            coalesces: true,
            queues: [VecDeque::new(), VecDeque::new()],
            tiny_run: 0,
            window: SendWindow::default(),
            detection: LossDetection::new(),
            lost: VecDeque::new(),
            copies: Copies::default(),
            withdrawn: VecDeque::new(),
            in_flight: 0,
            bytes_in_flight: 0,
            credit: SendCredit::new(),
            rtt: Rtt::new(initial_timeout, now),
            congestion: Congestion::new(window, longest, now),
            path: Path::new(longest),
            probe: Probe::new(now),
            next_fragment: 1,
            pass: 0,
            sent_in_pass: 0,
            last_sent: now,
        }
    }

    /// Bytes that a datagram of this length counts in flight, for the window as for the credit: what it takes up in
    /// the peer's receive buffer, where a short one needs far more than its length, and so it does on the way,
    /// where each is work.
    #[inline]
    pub(super) fn charge(&self, datagram: usize) -> u32 {
        (datagram + BOOKKEEPING).min(self.longest) as u32
    }

    /// The same for a short message, which shares its datagram with those that left just before.
    #[inline(always)]
    pub(super) fn charge_short(&self, datagram: usize, now: Instant) -> u32 {
        let is_alone = !self.coalesces || self.in_flight == 0 || now.since(self.last_sent) > ROW;
        if is_alone { self.charge(datagram) } else { datagram as u32 }
    }

    /// Whether a segment of such a charge may leave now, and if not, why. Each is asked in its turn, and nothing
    /// changes.
    #[inline(always)]
    pub(super) fn may_send(&self, charge: u32, now: Instant) -> Result<(), Blocked> {
        if !self.congestion_allows(u64::from(charge)) {
            return Err(Blocked::Congestion);
        }
        if !self.peer_allows(u64::from(charge)) {
            return Err(Blocked::FlowControl);
        }
        match self.congestion.wait(now, self.rtt.min()) {
            None => Ok(()),
            Some(until) => Err(Blocked::Pacing(until)),
        }
    }

    /// The same for a short message.
    #[inline(always)]
    pub(super) fn may_send_short(&self, charge: u32, now: Instant) -> Result<(), Blocked> {
        self.may_send(charge, now)
            .or_else(|blocked| if self.allows_row(charge) { Ok(()) } else { Err(blocked) })
    }

    /// Whether a short message may leave for being one. Where each has a datagram of its own, a row would take far more
    /// of the peer's memory than it has bytes.
    #[inline]
    fn allows_row(&self, charge: u32) -> bool {
        self.coalesces && self.bytes_in_flight + u64::from(charge) <= SHORT_ROW && self.congestion.is_clear()
    }

    /// With nothing under way one may go always: its answer says how much room there is.
    #[inline(always)]
    fn congestion_allows(&self, charge: u64) -> bool {
        self.in_flight == 0 || self.bytes_in_flight + charge <= self.congestion.window()
    }

    #[inline(always)]
    fn peer_allows(&self, charge: u64) -> bool {
        self.in_flight == 0 || self.credit.allows(self.bytes_in_flight + charge, self.longest as u64)
    }

    /// The congestion window in segments, one at least.
    pub(super) fn window_segments(&self) -> usize {
        (self.congestion.window() as usize / self.longest).max(1)
    }

    /// Whether the next segment will have to wait for an acknowledgement.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let longest = self.longest as u64;
        !self.congestion_allows(longest) || !self.peer_allows(longest)
    }

    /// The same for a short message.
    #[inline(always)]
    pub(super) fn is_full_for_short(&self) -> bool {
        self.is_full() && !self.allows_row(self.longest as u32)
    }

    #[inline]
    pub(super) fn has_queued(&self) -> bool {
        !self.queues[0].is_empty() || !self.queues[1].is_empty()
    }

    /// Whether anything is to be sent again, as it was or otherwise.
    #[inline]
    pub(super) fn has_resends(&self) -> bool {
        self.probe.is_pending() || !self.lost.is_empty() || !self.withdrawn.is_empty()
    }

    /// Whether everything asked for has been sent and acknowledged.
    pub(super) fn is_drained(&self) -> bool {
        !self.has_queued() && self.withdrawn.is_empty() && self.window.is_empty()
    }

    /// Whether something is under way whose sender was told at once that it is over.
    pub(super) fn owes_copies(&self) -> bool {
        self.window.iter().any(|(_, segment)| segment.state != State::Arrived && segment.copy().is_some())
    }

    /// A segment leaves.
    #[inline(always)]
    pub(super) fn note_sent(&mut self, charge: u32, now: Instant) {
        self.note_sent_unpaced(charge, now);
        self.congestion.note_sent(now, self.rtt.min(), u64::from(charge));
    }

    /// The same for one that [was not paced](Self::is_paced).
    #[inline(always)]
    pub(super) fn note_sent_unpaced(&mut self, charge: u32, now: Instant) {
        if self.in_flight == 0 {
            self.credit.note_idle(self.last_sent, now, self.rtt.min());
        }
        self.in_flight += 1;
        self.bytes_in_flight += u64::from(charge);
        self.last_sent = now;
        self.probe.note_sent(now);
    }

    /// Whether segments may have to wait for each other's sake.
    #[inline(always)]
    pub(super) fn is_paced(&self) -> bool {
        self.congestion.is_paced(self.rtt.min())
    }

    /// How many more segments of such a charge may leave after one that is leaving now.
    #[inline]
    pub(super) fn allows(&self, charge: u32, now: Instant) -> u64 {
        let charge = u64::from(charge.max(1));
        let most = self.congestion.window().min(self.credit.segments() * self.longest as u64);
        let room = most.saturating_sub(self.bytes_in_flight) / charge;
        room.min(self.congestion.allows(charge, now, self.rtt.min()))
    }

    /// So many more segments leave after one that has just left, with a charge in all.
    #[inline]
    pub(super) fn note_sent_behind(&mut self, count: u64, charge: u64, now: Instant) {
        self.in_flight += count;
        self.bytes_in_flight += charge;
        self.congestion.note_sent(now, self.rtt.min(), charge);
    }

    /// A segment is not under way any more: it has arrived, or is lost.
    #[inline]
    pub(super) fn note_landed(&mut self, charge: u32) {
        self.in_flight -= 1;
        self.bytes_in_flight -= u64::from(charge);
    }

    /// So many segments, sent together, have arrived.
    #[inline]
    pub(super) fn note_landed_together(&mut self, landed: Landed) {
        self.in_flight -= landed.count;
        self.bytes_in_flight -= landed.bytes;
    }

    /// Withdraws a segment that is about to be sent again, if it is too long, or if its number is needed:
    /// when withdrawn data waits for room in the window, which the receiver may not be able to make
    /// before it has that data. Whether it is withdrawn now and was not before.
    pub(super) fn withdraw(&mut self, seq: u64, most: u64) -> bool {
        let needed = !self.withdrawn.is_empty() && self.window.len() as u64 >= most;
        let charge = self.charge(HEADER_LEN);
        let Some(segment) = self.window.get_mut(seq) else { return false };
        if segment.len == 0 || segment.kind == Kind::Withdraw || segment.copy().is_some() {
            return false;
        }
        let len = header_len(segment.kind) + segment.len as usize;
        if self.path.is_too_long(len, segment.sent, segment.resends, self.probe.is_unheard()) {
            self.path.note_too_long(len);
        } else if !(needed && segment.resends > 0) {
            return false;
        }
        (segment.kind, segment.charge) = (Kind::Withdraw, charge);
        true
    }

    /// Drops all that is queued and under way.
    pub(super) fn clear(&mut self) {
        self.window.clear();
        self.detection.forget();
        self.copies.clear();
        self.lost.clear();
        self.withdrawn.clear();
        self.probe.cancel();
        self.queues.iter_mut().for_each(VecDeque::clear);
        (self.in_flight, self.bytes_in_flight) = (0, 0);
    }

    /// Gives memory back that a busy time has left.
    pub(super) fn shrink(&mut self) {
        self.window.shrink();
        self.detection.shrink();
        if self.window.is_empty() {
            self.copies.clear();
        }
        self.lost.shrink_to(0);
        self.withdrawn.shrink_to(0);
        self.queues.iter_mut().for_each(|queue| queue.shrink_to(0));
    }

    /// Bytes of memory that it takes up besides its own.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.capacity() * 4).sum::<usize>()
            + self.copies.capacity_bytes()
            + self.lost.capacity() * 8
            + self.withdrawn.capacity() * size_of::<Withdrawn>()
            + self.window.capacity_bytes()
            + self.detection.capacity_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::MILLI;
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1 + millis * MILLI)
    }

    #[test]
    fn each_reason_to_wait_is_its_own_and_asking_changes_nothing() {
        let mut half = SendHalf::new(1_472, 4_096, 5 * MILLI, at(0));
        let charge = half.charge(1_472);
        assert_eq!(half.may_send(charge, at(0)), Ok(()));
        half.note_sent(charge, at(0));
        half.note_sent(charge, at(0));
        assert_eq!(half.may_send(charge, at(0)), Err(Blocked::FlowControl), "room for two is the least");
        half.credit.set(4_096, 4_096, None);
        let mut sent = 2;
        while half.may_send(charge, at(0)) != Err(Blocked::Congestion) {
            assert_eq!(half.may_send(charge, at(0)), Ok(()), "no round trip is known to pace by");
            half.note_sent(charge, at(0));
            sent += 1;
        }
        assert!(half.is_full() && half.bytes_in_flight == half.congestion.window());
        (0..sent).for_each(|_| half.note_landed(charge));
        assert_eq!((half.in_flight, half.bytes_in_flight, half.may_send(charge, at(0))), (0, 0, Ok(())));
    }

    #[test]
    fn short_messages_in_a_row_count_by_their_bytes_and_leave_beyond_window_and_credit() {
        let mut half = SendHalf::new(1_472, 4_096, 5 * MILLI, at(0));
        assert_eq!(half.charge_short(70, at(0)), 70 + BOOKKEEPING as u32, "the first is alone");
        half.note_sent(838, at(0));
        assert_eq!(half.charge_short(70, at(0)), 70);
        assert_eq!(half.charge_short(70, at(1)), 70 + BOOKKEEPING as u32, "not in a row");
        let mut sent = 0;
        while half.may_send_short(70, at(0)).is_ok() {
            half.note_sent(70, at(0));
            sent += 1;
        }
        assert_eq!((sent, half.bytes_in_flight), ((SHORT_ROW - 838) / 70, 838 + sent * 70));
        assert!(half.may_send(70, at(0)).is_err() && half.is_full() && half.is_full_for_short());
        half.congestion.note_lost();
        (0..sent).for_each(|_| half.note_landed(70));
        half.congestion.note_arrived(Landed { count: 1, bytes: 70 }, at(2), at(3), MILLI);
        while half.may_send_short(70, at(4)).is_ok() {
            half.note_sent(70, at(4));
        }
        assert!(half.bytes_in_flight <= 2 * 1_472, "where something was lost, what is known counts");
    }

    #[test]
    fn short_messages_with_a_datagram_each_count_as_such_and_wait_for_credit() {
        let mut half = SendHalf::new(1_472, 4_096, 5 * MILLI, at(0));
        half.coalesces = false;
        let mut sent = 0;
        while half.may_send_short(half.charge_short(70, at(0)), at(0)).is_ok() {
            half.note_sent(half.charge_short(70, at(0)), at(0));
            sent += 1;
        }
        assert_eq!((sent, half.bytes_in_flight), (3, 3 * (70 + BOOKKEEPING as u64)), "room for two segments");
        assert!(half.is_full_for_short());
    }

    #[test]
    fn a_long_path_is_paced() {
        let mut half = SendHalf::new(1_472, 4_096, 5 * MILLI, at(0));
        half.credit.set(4_096, 4_096, None);
        half.rtt.sample(20 * MILLI, None, at(0));
        let charge = half.charge(100);
        let until = loop {
            match half.may_send(charge, at(0)) {
                Ok(()) => {
                    half.note_sent(charge, at(0));
                    half.note_landed(charge);
                }
                Err(Blocked::Pacing(until)) => break until,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(until > at(0) && half.may_send(charge, until).is_ok());
    }

    #[test]
    fn credit_is_gone_after_a_pause_with_nothing_under_way() {
        let mut half = SendHalf::new(1_472, 4_096, 5 * MILLI, at(0));
        half.credit.set(40, 4_096, None);
        half.note_sent(100, at(1));
        half.note_sent(100, at(30));
        assert_eq!(half.credit.segments(), 40, "the first was still under way");
        (0..2).for_each(|_| half.note_landed(100));
        half.note_sent(100, at(60));
        assert!(half.credit.segments() < 40);
    }
}
