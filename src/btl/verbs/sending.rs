//! What the host sends: fragments and transfers, at once where they can go, and else behind what waits.

use super::connection::{Broken, Stall};
use super::outgoing::Body;
use super::peer::{Item, Transfer, What, count};
use super::state::{State, Step};
use crate::btl::{EndpointId, Fragment, Lent, Sending};
use crate::error::{Error, Result};

/// Nothing new is told of memory that nobody has asked to be registered for so long, nanoseconds.
const ASKED: u64 = 1_000_000_000;

/// Memory that could not be registered for a transfer: since then, and when that was last tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    since: u64,
    last: u64,
    /// Bytes of the least that was refused.
    least: usize,
    is_told: bool,
}

/// Fragments that nobody waits for, that may wait for one peer.
const MOST_QUEUED: usize = 1024;

impl State {
    /// Sends a fragment, now or later.
    #[inline]
    pub(super) fn send(&mut self, to: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        let pieces = fragment.pieces.map(|piece| piece.unwrap_or(Lent::EMPTY));
        let length = pieces[0].len() + pieces[1].len();
        let queue = self.desk.port.queues.for_length(length).ok_or(Error::MessageTooBig)?;
        let place = self.reached(to).ok_or(Error::Unreachable)?;
        let Self { desk, peers, .. } = self;
        let peer = peers.get_mut(place as usize).ok_or(Error::Unreachable)?;
        if peer.failure.is_some() {
            if peer.has_said_bye {
                self.news.push_back(Step::Done(fragment.cookie, self.unheard));
                return Ok(Sending::UnderWay);
            }
            if peer.is_lost {
                return Err(Error::Unreachable);
            }
            // It ends with all that waits, when the user has been told why.
            peer.pending[queue].push_back(Item::Fragment(fragment));
            return Ok(Sending::UnderWay);
        }
        let waits = fragment.awaited.then_some(fragment.cookie);
        let pushed = if peer.is_parting() {
            Ok(Err(Stall::Connection))
        } else if peer.pending[queue].is_empty() {
            peer.push(queue, Some(fragment.tag), Body::Pieces(pieces), waits, desk)
        } else {
            Ok(Err(Stall::Turn))
        };
        match pushed {
            Ok(Ok(())) if fragment.awaited => Ok(Sending::UnderWay),
            Ok(Ok(())) => Ok(Sending::Over),
            Ok(Err(_)) if !fragment.awaited && peer.pending[queue].len() >= MOST_QUEUED => {
                self.touch(place);
                Err(Error::OutOfResource)
            }
            Ok(Err(stall)) => {
                count(stall, &desk.counters);
                peer.pending[queue].push_back(Item::Fragment(fragment));
                peer.machine.want();
                self.touch(place);
                self.drive(place);
                Ok(Sending::UnderWay)
            }
            Err(broken) => {
                peer.pending[queue].push_back(Item::Fragment(fragment));
                self.break_off(place, broken);
                Ok(Sending::UnderWay)
            }
        }
    }

    /// Sends at once, or not at all.
    #[inline(always)]
    pub(super) fn send_now(&mut self, to: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        self.send_short(to, tag, pieces) || self.send_at_once(to, tag, pieces)
    }

    /// The same of a message of any length, and whatever else there is to say.
    #[inline(never)]
    fn send_at_once(&mut self, to: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        let length = pieces[0].len().saturating_add(pieces[1].len());
        let Some(queue) = self.desk.port.queues.for_length(length) else { return false };
        let Some(place) = self.reached(to) else { return false };
        let Self { desk, peers, .. } = self;
        let Some(peer) = peers.get_mut(place as usize) else { return false };
        if !peer.pending[queue].is_empty() || peer.failure.is_some() || peer.is_parting() {
            return false;
        }
        match peer.push(queue, Some(tag), Body::Pieces(pieces), None, desk) {
            Ok(Ok(())) => {
                desk.counters.num_sends_at_once.add(1);
                true
            }
            Ok(Err(_)) => false,
            Err(broken) => {
                self.break_off(place, broken);
                false
            }
        }
    }

    /// Begins an RDMA operation. The memory is registered.
    pub(super) fn transfer(&mut self, to: EndpointId, mut transfer: Transfer) -> Result<Sending> {
        let place = self.reached(to).ok_or(Error::Unreachable)?;
        let Self { desk, peers, .. } = self;
        let peer = peers.get_mut(place as usize).ok_or(Error::Unreachable)?;
        if peer.is_lost {
            return Err(Error::Unreachable);
        }
        if peer.refused.is_some_and(|refused| transfer.local.len() >= refused.least) {
            peer.refused = None;
        }
        let (counters, length) = (&desk.counters, transfer.local.len() as u64);
        match transfer.what {
            What::Write => {
                counters.num_puts.add(1);
                counters.put_bytes.add(length);
            }
            What::Read => {
                counters.num_gets.add(1);
                counters.get_bytes.add(length);
            }
            What::Change(_) => counters.num_atomics.add(1),
        }
        if length == 0 && !matches!(transfer.what, What::Change(_)) {
            return Ok(Sending::Over);
        }
        if peer.transfers.is_empty() {
            match peer.transfer(&mut transfer, desk) {
                Ok(true) => return Ok(Sending::UnderWay),
                Ok(false) => {}
                Err(broken) => {
                    peer.transfers.push_back(transfer);
                    self.break_off(place, broken);
                    return Ok(Sending::UnderWay);
                }
            }
        }
        peer.transfers.push_back(transfer);
        peer.machine.want();
        self.touch(place);
        self.drive(place);
        Ok(Sending::UnderWay)
    }

    /// There is no memory for a transfer of so many bytes. The host tries again, without end, and some may be given back; when
    /// that was in vain for as long as a peer has to answer, the user is told, and the peer lost.
    #[cold]
    pub(super) fn refuse(&mut self, to: EndpointId, length: usize) -> Error {
        let (now, patience) = (self.clock.nanos(), self.patience);
        let Some(place) = self.reached(to) else { return Error::Unreachable };
        let Some(peer) = self.at(place).filter(|peer| !peer.is_lost) else { return Error::Unreachable };
        let fresh = Refused { since: now, last: now, least: length, is_told: false };
        let mut refused = peer.refused.filter(|refused| now - refused.last < ASKED).unwrap_or(fresh);
        (refused.last, refused.least) = (now, refused.least.min(length));
        let is_in_vain = patience.is_some_and(|patience| now - refused.since >= patience);
        let was_told = std::mem::replace(&mut refused.is_told, is_in_vain);
        peer.refused = Some(refused);
        if was_told && peer.connected().is_some() {
            peer.is_starved = true;
            self.break_off(place, Broken::Memory);
            return Error::OutOfResource;
        }
        // One that has never been connected could not be lost.
        peer.machine.want();
        if is_in_vain && !was_told {
            self.news.push_back(Step::Short(length, "bytes for RDMA could not be registered"));
        }
        self.drive(place);
        Error::OutOfResource
    }
}
