//! What comes to a module: looks at the channels, and from datagrams to what is to be done outside the engine.

use std::ops::Range;

use super::{BUSY, State};
use crate::btl::Lent;
use crate::btl::usnic::protected;
use crate::engine::{self, AWAY, Channel, EndpointId, Event, Instant, Received};
use crate::link::{Arrivals, COALESCED, Clock, Datagram, Landing};
use crate::wire::coalesced::first_len;

/// In every so many turns the data channel is looked at, and the clock, though nothing is expected.
pub(super) const FULL_TURNS: u32 = 8;

/// For so many turns after something has come on the data channel it is looked at in each of them.
const DATA_TURNS: u32 = 256;

/// Batches that are read besides in one call after a time in which nobody looked.
const CATCH_UP: u8 = 2;

/// So many messages at most are received one by one besides where it can be guessed what comes, until they have so many
/// bytes: as many as come in a batch otherwise.
const LANDINGS: u8 = 31;
const LANDED: usize = 256 << 10;

/// What the first look brings where much may wait: one of each channel. More come in batches already.
const FEW_CAME: usize = 2;

/// A module that nobody uses is looked at in every so many turns. A multiple of [`FULL_TURNS`], so that
/// both channels are.
const QUIET_TURNS: u32 = 16;

/// What `progress` has to do outside the engine.
pub(super) enum Work {
    Deliver { endpoint: EndpointId, tag: u8, datagram: Datagram, payload: Range<usize> },
    Event(Event),
    Stranger { name: u64, incarnation: u32, datagram: Datagram },
    Say(String),
}

impl Work {
    /// What a datagram is to the host.
    #[inline]
    fn of(received: Received, datagram: Datagram) -> Option<Self> {
        match received {
            Received::Nothing => None,
            Received::Deliver { endpoint, tag, payload } => {
                Some(Self::Deliver { endpoint, tag, datagram, payload })
            }
            Received::Unknown { name, incarnation } => Some(Self::Stranger { name, incarnation, datagram }),
        }
    }
}

/// When a datagram came that the kernel stamped so, if it did.
#[inline]
fn arrived_at(arrivals: &mut Arrivals, stamp: u64, now: Instant) -> Option<Instant> {
    let arrived = if stamp == 0 { None } else { arrivals.at(stamp, now.nanos()) };
    arrived.map(Instant::from_nanos)
}

impl State {
    /// The next thing to do outside.
    pub(super) fn next(&mut self, now: Instant) -> Option<Work> {
        loop {
            if self.engine.has_events() {
                return self.engine.poll_event().map(Work::Event);
            }
            if let Some(datagram) = self.again.take() {
                let received = self.engine.handle_datagram(&datagram, None, now);
                if let Some(work) = Work::of(received, datagram) {
                    return Some(work);
                }
                continue;
            }
            let Some((_, _, stamp)) = self.inbox.joined() else {
                if self.landings > 0 && self.land_again(now) {
                    continue;
                }
                if self.catching_up > 0 {
                    self.catch_up();
                    continue;
                }
                // What the last datagram acknowledges, somebody may wait for: not here again, but in
                // another layer, as soon as we return.
                if self.engine.has_deferred() {
                    self.engine.settle(now);
                    continue;
                }
                let is_full_turn = self.turns.is_multiple_of(FULL_TURNS);
                return if is_full_turn { self.line_due(now).map(Work::Say) } else { None };
            };
            let arrived = arrived_at(&mut self.arrivals, stamp, now);
            self.note_arrival(now);
            let Some((joined, size, _)) = self.inbox.joined() else { continue };
            if self.engine.is_protected() {
                let (handled, received) = protected::receive(&mut self.engine, &mut self.inbox, arrived, now);
                self.handled += handled;
                match received {
                    Some((received, datagram)) => return Work::of(received, datagram),
                    None => continue,
                }
            }
            let mut alone = joined.get(..size).unwrap_or(joined);
            if joined.len() > alone.len() {
                let taken = self.engine.handle_run(joined, size, arrived, now);
                if taken > 0 {
                    self.inbox.skip_joined(taken);
                    self.handled += taken as u32;
                    continue;
                }
            } else {
                alone = alone.get(..first_len(alone, COALESCED)).unwrap_or(alone);
            }
            let len = alone.len();
            match self.engine.handle_datagram(alone, arrived, now) {
                Received::Nothing => {
                    let rest = if self.engine.has_refused() { size } else { len };
                    self.inbox.skip(rest);
                }
                received => {
                    let datagram = self.inbox.pop_part(len)?;
                    return Work::of(received, datagram);
                }
            }
        }
    }

    /// Something has come, and is looked at now.
    #[inline]
    fn note_arrival(&mut self, now: Instant) {
        self.busy_until = now.plus(BUSY);
        self.handled += 1;
        if now.nanos().saturating_sub(self.looked.nanos()) > AWAY {
            self.engine.note_away(now);
            self.catching_up = if self.came <= FEW_CAME { CATCH_UP } else { 0 };
        }
        self.looked = now;
    }

    /// Looks at the data channel where it is guessed what comes; how much came. What has landed is handled at once: as long
    /// as nobody else has the engine, the memory is the GET's.
    fn land(&mut self, landing: engine::Landing<Lent>, now: impl FnOnce() -> Instant) -> usize {
        let left = landing.memory.slice(landing.offset, landing.memory.len() - landing.offset);
        let engine::Landing { header, payload, trailer, .. } = landing;
        let there = Landing { memory: left, header, payload, trailer };
        let Some(came) = self.link.poll_landing(Channel::Data, &mut self.inbox, there) else {
            self.engine.end_landings();
            return 0;
        };
        self.came += came;
        if let Some((joined, _, stamp)) = self.inbox.landed() {
            self.landed += joined.len();
            let now = now();
            let arrived = arrived_at(&mut self.arrivals, stamp, now);
            self.note_arrival(now);
            let taken = self
                .inbox
                .landed_mut()
                .map_or(0, |(joined, size)| self.engine.handle_landed(joined, size, &landing, arrived, now));
            self.handled += taken as u32;
            self.inbox.settle_landed(taken);
        } else if came > 0 {
            self.engine.note_missed_landing();
        }
        came
    }

    /// Does so once more; whether something came.
    fn land_again(&mut self, now: Instant) -> bool {
        self.landings -= 1;
        let room = self.landed < LANDED;
        let landing = if room { self.engine.landing() } else { None };
        let came = landing.map_or(0, |landing| self.land(landing, || now));
        if came == 0 {
            self.landings = 0;
        }
        came > 0
    }

    /// Reads another batch of what has come while nobody looked. After silence the first call brings a
    /// single datagram, which is all that there mostly is to one who looks all the time.
    #[cold]
    fn catch_up(&mut self) {
        self.catching_up -= 1;
        let came = Channel::BOTH.map(|channel| self.link.poll(channel, &mut self.inbox));
        if came == [0; 2] {
            self.catching_up = 0;
            self.engine.note_drained();
        }
    }

    /// Looks at the channels, a system call each; whether there is anything to do, if only to look at
    /// the clock. A module that nobody uses now is looked at less often, so that it does not slow down
    /// the others.
    pub(super) fn poll(&mut self, clock: &Clock) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if std::mem::take(&mut self.row) > 1 {
            self.link.flush();
        }
        if self.is_quiet && !self.turns.is_multiple_of(QUIET_TURNS) {
            return false;
        }
        let is_full_turn = self.turns.is_multiple_of(FULL_TURNS);
        let is_expecting = self.engine.is_expecting();
        // Acknowledgements of what is long measure the round trip.
        let tiny = if is_expecting {
            self.link.poll_stamped(Channel::Priority, &mut self.inbox)
        } else {
            self.link.poll(Channel::Priority, &mut self.inbox)
        };
        self.came = tiny;
        if is_full_turn || self.data_turns > 0 || is_expecting {
            // What has come on the other channel is handled first: it may end what is under way here.
            let landing = if self.inbox.is_empty() { self.engine.landing() } else { None };
            let came = match landing {
                Some(landing) => {
                    self.landed = 0;
                    let came = self.land(landing, || Instant::from_nanos(clock.nanos()));
                    self.landings = if came > 0 { LANDINGS } else { 0 };
                    came
                }
                None => {
                    let came = self.link.poll(Channel::Data, &mut self.inbox);
                    self.came += came;
                    came
                }
            };
            self.data_turns = if came > 0 { DATA_TURNS } else { self.data_turns.saturating_sub(1) };
            if self.came == 0 {
                self.engine.note_drained();
            }
        }
        is_full_turn
            || self.handled > 0
            || !self.inbox.is_empty()
            || self.again.is_some()
            || self.engine.has_events()
            || self.engine.owes()
    }
}
