//! All peers, and what is to be done next. Nothing here calls the host.
//!
//! Rings of up to [`POLLED`] peers that have sent something are looked at in every pass; the others ring the
//! bell. A peer that has been told that its ring is looked at never rings again, so a ring stays in the
//! list as long as its peer is open.

use std::collections::{HashMap, VecDeque};

use super::counters::Counters;
use super::device::Facts;
use super::loss::Loss;
use super::peer::{Peer, Taken};
use super::strangers::Strangers;
use super::wire::TAG;
use crate::btl::{Cookie, EndpointId, Fragment, Lent, Sending};
use crate::error::{Error, Result};
use crate::link::Clock;
use crate::shm::{Arrival, CrossMemory, LONGEST, Life, Segment, Watch};

/// Rings that are looked at in every pass.
const POLLED: usize = 32;

/// In every so many passes the clock is looked at.
const CLOCK_TURNS: u32 = 256;

/// For so many nanoseconds no ring is looked at after all have been found empty: less than it takes a peer to
/// answer.
const REST: u64 = 100;

/// For how many nanoseconds closing waits for peers to make room for what is queued, and the end of a life for them to
/// find what was written to them: they close at the same time, behind the host's fence.
pub(super) const PATIENCE: u64 = 250_000_000;

/// So much later it may wait again: a host that closes its peers one by one waits once for all.
const PATIENT_AGAIN: u64 = 10 * PATIENCE;

/// Fragments that wait for a peer until the host has to keep what it sends itself.
const MOST_QUEUED: usize = 256;

/// What is to be done outside.
pub(super) enum Step {
    /// Something has arrived; [`State::next`] must hear of it when it has been delivered.
    Deliver(EndpointId, Arrival),
    /// An operation has ended.
    Done(Cookie, Result<()>),
    /// A peer is lost; these operations have ended with it.
    Lost(EndpointId, u64, Loss, Vec<Cookie>),
    /// Somebody whom nobody has made known sends to us: its place in the inbox.
    Stranger(usize),
    /// A peer has begun a life.
    Appeared(EndpointId, Life),
    /// The life of a peer that was known is over.
    TurnedOver(EndpointId),
}

/// What the host knows a peer by, and whether what was shared with its life before is over.
pub(super) struct Met {
    pub(super) id: EndpointId,
    pub(super) is_anew: bool,
}

/// No place of the list of rings: there is nothing to do.
pub(super) const NOTHING: usize = usize::MAX;
/// No place either: a whole pass is to be done.
pub(super) const DUE: usize = usize::MAX - 1;

/// Fragments of one ring that are delivered before the next is looked at.
const MOST_AT_ONCE: u32 = 32;

/// Which ring's turn it is: its place in the list, and how many fragments of it may still be delivered.
pub(super) struct Turn {
    place: usize,
    left: u32,
}

impl Turn {
    pub(super) fn of(place: usize) -> Self {
        Self { place, left: MOST_AT_ONCE }
    }
}

/// What is to be done when a ring has something.
pub(super) enum Look {
    /// No more.
    Nothing,
    /// A whole pass.
    Due,
    /// This has arrived; [`State::go_on`] must hear when it has been delivered.
    Arrived(EndpointId, Arrival),
}

pub(super) struct State {
    pub(super) segment: Segment,
    pub(super) own: u64,
    /// What a closed peer goes on to send is for its next endpoint.
    pub(super) meets_again: bool,
    /// By the index of their endpoints.
    pub(super) peers: Vec<Peer>,
    /// Of these, places that nobody has any more.
    pub(super) free: Vec<usize>,
    /// Those that the host has closed, and that may read what was written to them.
    pub(super) closed: Vec<usize>,
    /// Those without a life that is known, or whose life is over.
    pub(super) absent: Vec<usize>,
    /// Claims of ours so far.
    pub(super) claims: u64,
    pub(super) by_name: HashMap<u64, usize>,
    /// Those whose rings are looked at.
    pub(super) polled: Vec<usize>,
    /// The last look at their rings has found nothing.
    was_quiet: bool,
    /// What has been found since had nothing behind it, as far as is known: see [`State::look`].
    is_single: bool,
    /// Until when they are left alone, by the clock; 0: they are not.
    rest: u64,
    /// The place in that list that is looked at first.
    pub(super) turn: usize,
    /// Those that have rung, and whose rings are not found empty yet.
    pub(super) rung: Vec<usize>,
    /// The last pass has ended before all had their turn.
    was_stopped: bool,
    /// In this pass, those that have rung come first, and what was sent last.
    is_rung_first: bool,
    /// Those with something queued.
    pub(super) waiting: Vec<usize>,
    /// Processes that have ended, until their rings are empty.
    pub(super) exited: Vec<usize>,
    /// Places of the inbox whose owners nobody has made known yet.
    pub(super) strangers: Vec<usize>,
    /// When they are asked for.
    pub(super) unmet: Strangers,
    /// What is to be told.
    pub(super) news: VecDeque<Step>,
    pub(super) watch: Watch,
    pub(super) turns: u32,
    pub(super) clock: Clock,
    pub(super) looked: u64,
    pub(super) looks: u32,
    /// Until when closing may wait.
    patient: u64,
}

impl State {
    pub(super) fn new(segment: Segment, own: u64) -> Self {
        Self {
            segment,
            own,
            meets_again: false,
            peers: Vec::new(),
            free: Vec::new(),
            closed: Vec::new(),
            absent: Vec::new(),
            claims: 0,
            by_name: HashMap::new(),
            polled: Vec::new(),
            was_quiet: false,
            rest: 0,
            is_single: false,
            turn: 0,
            rung: Vec::new(),
            was_stopped: false,
            is_rung_first: false,
            waiting: Vec::new(),
            exited: Vec::new(),
            strangers: Vec::new(),
            unmet: Strangers::new(),
            news: VecDeque::new(),
            watch: Watch::default(),
            turns: 0,
            clock: Clock::new(),
            looked: 0,
            looks: 0,
            patient: 0,
        }
    }

    /// The peer of an endpoint that the host may use.
    #[inline(always)]
    pub(super) fn at(&mut self, id: EndpointId) -> Result<&mut Peer> {
        match self.peers.get_mut(id.index()) {
            Some(peer) if peer.id == id && peer.is_usable() => Ok(peer),
            _ => Err(Error::Unreachable),
        }
    }

    /// The peer of an endpoint that something is to be written to. If the life that is known of it has ended, that is for
    /// the next one.
    #[inline(always)]
    fn written_to(&mut self, id: EndpointId, counters: &Counters) -> Result<&mut Peer> {
        if self.at(id)?.is_over() {
            self.find_over(id, counters)?;
        }
        Ok(&mut self.peers[id.index()])
    }

    /// A peer's life has ended.
    #[cold]
    #[inline(never)]
    fn find_over(&mut self, id: EndpointId, counters: &Counters) -> Result<()> {
        // What it has done before it has said so is seen from here on.
        if !self.at(id)?.has_ended() {
            return Ok(());
        }
        let turned = self.turn_over(id.index());
        match turned {
            Ok(()) => self.news.push_back(Step::TurnedOver(id)),
            Err(_) => self.lose(id.index(), Loss::Apart, counters),
        }
        turned
    }

    /// Whether something waits for a peer that could still take it, or lies there for a life that it has begun.
    pub(super) fn waits(&self, id: EndpointId) -> bool {
        let peer = self.peers.get(id.index()).filter(|peer| peer.id == id && peer.is_usable());
        peer.filter(|peer| !peer.has_exited).is_some_and(|peer| {
            let is_begun = || peer.door.as_ref().is_some_and(|door| matches!(door.shown(), Ok(Some(_))));
            if peer.is_bound() { peer.has_queue() } else { peer.is_owed() && is_begun() }
        })
    }

    /// Whether closing may wait for a peer, or has waited long enough.
    pub(super) fn has_patience(&mut self) -> bool {
        let now = self.clock.nanos();
        if now >= self.patient + (PATIENT_AGAIN - PATIENCE) || self.patient == 0 {
            self.patient = now + PATIENCE;
        }
        now < self.patient
    }

    /// Whether a peer has yet to find what was written to it. Hears of those that have done the same.
    pub(super) fn is_unheard(&mut self) -> bool {
        if self.segment.is_rung() {
            self.answer();
        }
        self.peers.iter().any(|peer| !peer.is_lost() && peer.is_unheard())
    }

    pub(super) fn name(&self, id: EndpointId) -> Option<u64> {
        self.peers.get(id.index()).filter(|peer| peer.id == id && peer.is_open).map(|peer| peer.name)
    }

    /// What there is to say about a peer.
    pub(super) fn describe(&self, id: EndpointId) -> Option<String> {
        let peer = self.peers.get(id.index()).filter(|peer| peer.id == id)?;
        let how = match (peer.is_lost(), peer.is_bound(), peer.is_open) {
            (true, _, _) => "lost",
            (_, false, _) => "between two lives, or in none",
            (_, _, true) => "open",
            (_, _, false) => "closed",
        };
        let [reads, copies] =
            [peer.has_receiver(), peer.cross.is_some()].map(|is| if is { "" } else { "not " });
        Some(format!(
            "{}: {how}; {} fragments wait for room; it has {reads}rung yet; its memory is {copies}copied in one step",
            super::component::title(peer.name),
            peer.queued()
        ))
    }

    #[cfg(test)]
    pub(super) fn forge(&mut self, to: EndpointId, word: u64) {
        self.peers[to.index()].forge(word);
    }

    /// Says that this process ends as it should, and that it reads nothing any more.
    pub(super) fn end(&mut self) {
        let own = self.segment.identity().nonce;
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_held()) {
            peer.leave(&own);
        }
        // Last: who sees this uses the rings again of which the claims are given up.
        self.segment.end();
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        to: EndpointId,
        fragment: Fragment<Lent>,
        counters: &Counters,
    ) -> Result<Sending> {
        if fragment.pieces.iter().flatten().map(|piece| piece.len()).sum::<usize>() > LONGEST {
            return Err(Error::MessageTooBig);
        }
        let peer = self.written_to(to, counters)?;
        let (cookie, awaited) = (fragment.cookie, fragment.awaited);
        // What counts as sent once it is taken would go on without end where nobody receives.
        if !awaited && peer.queued() >= MOST_QUEUED {
            self.idle(counters);
            return Err(Error::OutOfResource);
        }
        match peer.send(fragment, counters) {
            Ok(Taken::Copied) if !awaited => Ok(Sending::Over),
            Ok(Taken::Copied) => {
                self.news.push_back(Step::Done(cookie, Ok(())));
                Ok(Sending::UnderWay)
            }
            Ok(Taken::Queued) if peer.has_exited && peer.has_ended() => {
                // Its process has ended as it should, and makes no room.
                let over = peer.drop_queue();
                self.news.extend(over.into_iter().map(|cookie| Step::Done(cookie, Ok(()))));
                Ok(Sending::UnderWay)
            }
            Ok(Taken::Queued) => {
                if !std::mem::replace(&mut peer.is_waiting, true) {
                    self.waiting.push(to.index());
                }
                self.idle(counters);
                Ok(Sending::UnderWay)
            }
            Err(corrupt) => {
                self.lose(to.index(), Loss::Corrupt(corrupt), counters);
                Err(Error::Unreachable)
            }
        }
    }

    /// Sends at once, or not at all.
    #[inline(always)]
    pub(super) fn send_now(
        &mut self,
        to: EndpointId,
        tag: u8,
        pieces: [Lent; 2],
        counters: &Counters,
    ) -> bool {
        let is_short = pieces[0].len().saturating_add(pieces[1].len()) <= LONGEST;
        let Ok(peer) = self.written_to(to, counters) else { return false };
        match is_short.then(|| peer.push(tag, pieces, counters)) {
            Some(Ok(true)) => {
                counters.num_sends_at_once.add(1);
                true
            }
            Some(Ok(false)) => false,
            None => false,
            Some(Err(corrupt)) => {
                self.lose(to.index(), Loss::Corrupt(corrupt), counters);
                false
            }
        }
    }

    /// Sends a message of our own; false when there is no room yet.
    ///
    /// # Errors
    /// When the peer is not reached any more.
    #[cold]
    pub(super) fn say(&mut self, to: EndpointId, bytes: &[u8], counters: &Counters) -> Result<bool> {
        self.written_to(to, counters)?.say(TAG, bytes, counters).map_err(|corrupt| {
            self.lose(to.index(), Loss::Corrupt(corrupt), counters);
            Error::Unreachable
        })
    }

    /// What must be known of a peer to share device memory with it.
    pub(super) fn facts(&mut self, of: EndpointId) -> Option<Facts> {
        let peer = self.at(of).ok()?;
        Some(Facts { name: peer.name, staging: peer.staging()?, cross: peer.cross })
    }

    /// The memory of a peer.
    ///
    /// # Errors
    /// When it cannot be reached, has ended, or does not let us in.
    #[inline]
    pub(super) fn cross(&mut self, of: EndpointId) -> Result<CrossMemory> {
        let peer = self.at(of)?;
        // What was registered is the program's again, and the number of a process another's.
        if peer.is_over() || peer.has_exited {
            return Err(Error::Unreachable);
        }
        peer.cross.ok_or(Error::Unsupported)
    }

    /// The place of the first ring in which something has arrived; [`NOTHING`] and [`DUE`] are no places.
    #[inline(always)]
    pub(super) fn look(&mut self) -> usize {
        let turns = self.turns.wrapping_add(1);
        if self.is_due() || turns.is_multiple_of(CLOCK_TURNS) || self.segment.is_rung() {
            return DUE;
        }
        self.turns = turns;
        if self.rest != 0 {
            if self.clock.nanos() < self.rest {
                return NOTHING;
            }
            self.rest = 0;
        }
        let found = self.polled.iter().position(|index| self.peers[*index].has_arrived()).unwrap_or(NOTHING);
        // Who has waited for a message mostly waited for this one. To look for another behind it takes a line of the
        // cache from the sender, which has just written there; that is left to the next look.
        self.is_single = self.was_quiet;
        if found == NOTHING && !self.was_quiet {
            // Who writes more is left alone for a moment, to get ahead: with a reader at its heels, each line of the cache
            // goes to and fro for each message. Only behind a look of its own: who looks seldom misses nothing.
            self.rest = self.clock.nanos() + REST;
        }
        self.was_quiet = found == NOTHING;
        found
    }

    /// Whether anything waits but what may have arrived in rings.
    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.news.is_empty() || !self.waiting.is_empty() || !self.rung.is_empty()
    }

    /// What was delivered is done with. The next of what has arrived: in the ring at this place, while it has more and
    /// it is still its turn, or in those behind it.
    #[inline(always)]
    pub(super) fn go_on(
        &mut self,
        at: &mut Turn,
        delivered: Option<EndpointId>,
        counters: &Counters,
    ) -> Look {
        let mut delivered = delivered;
        while let Some(&index) = self.polled.get(at.place) {
            let peer = &mut self.peers[index];
            if let Some(id) = delivered.take() {
                if id != peer.id {
                    // The list has changed meanwhile.
                    self.release(Some(id));
                    continue;
                }
                peer.release();
                if self.is_single {
                    break;
                }
            }
            if at.left != 0 {
                match peer.take() {
                    Ok(None) => {}
                    Ok(Some(arrival)) => {
                        at.left -= 1;
                        counters.num_recvs.add(1);
                        return Look::Arrived(peer.id, arrival);
                    }
                    // It stays there, for a whole pass.
                    Err(_) => return Look::Due,
                }
            }
            *at = Turn::of(at.place + 1);
        }
        self.release(delivered);
        if self.is_due() { Look::Due } else { Look::Nothing }
    }

    /// A pass begins.
    #[inline]
    pub(super) fn begin(&mut self, counters: &Counters) {
        if self.polled.len() > 1 {
            self.turn = (self.turn + 1) % self.polled.len();
        }
        // Who writes without end keeps the others waiting for a pass, and no longer.
        self.is_rung_first = std::mem::take(&mut self.was_stopped) && !self.is_rung_first;
        if self.is_rung_first {
            self.flush(counters);
        }
        self.idle(counters);
    }

    /// Nothing moves for now: it may be time to look around. A program that only sends makes no progress.
    #[inline]
    fn idle(&mut self, counters: &Counters) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CLOCK_TURNS) {
            self.look_around(counters);
            if !self.absent.is_empty() || self.unmet.are_due(self.strangers.len(), &self.clock) {
                self.look_for_lives();
            }
        }
    }

    /// What was delivered of a peer's is done with.
    #[inline]
    pub(super) fn release(&mut self, delivered: Option<EndpointId>) {
        // By its place alone, which is nobody else's while something of it is held: it may have another endpoint by now.
        if let Some(peer) = delivered.and_then(|id| self.peers.get_mut(id.index())) {
            peer.release();
        }
    }

    /// A pass ends, with more to do.
    pub(super) fn stop(&mut self, delivered: Option<EndpointId>) {
        self.was_stopped = true;
        self.release(delivered);
    }

    /// What is to be done next; what was delivered last is done with.
    #[inline]
    pub(super) fn next(&mut self, delivered: Option<EndpointId>, counters: &Counters) -> Option<Step> {
        self.release(delivered);
        // Who sends again whenever something was sent has news without end.
        let has_time = self.is_rung_first && matches!(self.news.front(), Some(Step::Done(..)));
        if !has_time && let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        if self.segment.is_rung() {
            self.answer();
        }
        if self.is_rung_first
            && let Some(step) = self.next_rung(counters)
        {
            return Some(step);
        }
        for step in 0..self.polled.len() {
            let mut place = self.turn + step;
            if place >= self.polled.len() {
                place -= self.polled.len();
            }
            let index = self.polled[place];
            match self.peers[index].take() {
                Ok(None) => {}
                Ok(Some(arrival)) => {
                    counters.num_recvs.add(1);
                    return Some(Step::Deliver(self.peers[index].id, arrival));
                }
                Err(corrupt) => {
                    self.lose(index, Loss::Corrupt(corrupt), counters);
                    return self.news.pop_front();
                }
            }
        }
        if !self.rung.is_empty() || !self.waiting.is_empty() {
            if let Some(step) = self.next_rung(counters) {
                return Some(step);
            }
            self.flush(counters);
        }
        self.news.pop_front()
    }

    /// The bell was rung.
    #[cold]
    pub(super) fn answer(&mut self) {
        let mut places = Vec::new();
        self.segment.rung(|place| places.push(place));
        // Somebody who is known may have claimed a place after somebody who was not.
        let is_known = |place: &usize| {
            let claim = self.segment.claimant(*place);
            claim.is_ok_and(|claim| self.known(claim.name, &claim.life).is_some())
        };
        let woken: Vec<usize> =
            places.iter().copied().filter(|place| self.unmet.rests(*place) && is_known(place)).collect();
        self.unmet.sift(&mut places, &self.clock);
        places.extend(woken);
        places.into_iter().for_each(|place| self.hear(place));
    }

    /// The next of what lies in rings that are not looked at otherwise, of each in its turn.
    #[cold]
    fn next_rung(&mut self, counters: &Counters) -> Option<Step> {
        while let Some(&index) = self.rung.first() {
            match self.peers[index].take() {
                Ok(None) => {
                    self.rung.remove(0);
                }
                Ok(Some(arrival)) => {
                    counters.num_recvs.add(1);
                    self.rung.rotate_left(1);
                    return Some(Step::Deliver(self.peers[index].id, arrival));
                }
                Err(corrupt) => self.lose(index, Loss::Corrupt(corrupt), counters),
            }
        }
        None
    }

    /// Sends what waits, as far as there is room.
    #[cold]
    fn flush(&mut self, counters: &Counters) {
        for index in std::mem::take(&mut self.waiting) {
            if self.peers[index].is_over() {
                let _ = self.find_over(self.peers[index].id, counters);
                continue;
            }
            let peer = &mut self.peers[index];
            let news = &mut self.news;
            match peer.flush(counters, |cookie| news.push_back(Step::Done(cookie, Ok(())))) {
                Ok(true) => self.waiting.push(index),
                Ok(false) => peer.is_waiting = false,
                Err(corrupt) => self.lose(index, Loss::Corrupt(corrupt), counters),
            }
        }
    }

    /// Looks at a peer's ring: always, or until it is empty.
    pub(super) fn listen(&mut self, index: usize) {
        if self.polled.contains(&index) || self.rung.contains(&index) {
            return;
        }
        // Who was looked at before the host has closed it, and wanted it again, does not ring.
        if self.polled.len() < POLLED || self.peers[index].is_polled() {
            self.polled.push(index);
            self.peers[index].poll_from_now_on();
        } else {
            self.rung.push(index);
        }
    }
}
