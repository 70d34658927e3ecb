//! Operations that begin when a counter has come so far: those of endpoints (`FI_TRIGGER`), and the work that a domain queues
//! (`FI_QUEUE_WORK`), `fi_trigger(3)`.
//!
//! They begin in the order of their thresholds, and those of one threshold in the order in which they were asked for. One that
//! finds no room holds back what comes behind it at its endpoint.

use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::cntr::Counter;
use super::super::cq::{Completion, Entry, Failure};
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::Traffic;
use super::context::Context;
use super::ending::{counted, is_quiet};
use super::receive::Want;
use super::rma::Reach;
use super::send::{MOST, Order};

/// What is to begin.
pub enum Work {
    /// A message is sent.
    Send(Order),
    /// A receive is posted.
    Receive(Want),
    /// Something is done to the memory of a peer.
    Reach(Reach),
    /// A counter is changed.
    Count {
        /// Which.
        counter: Arc<Counter>,
        /// To what, or by what.
        value: u64,
        /// To that.
        is_set: bool,
    },
}

/// When it is to begin.
#[derive(Clone)]
pub struct Trigger {
    /// What counts.
    pub counter: Arc<Counter>,
    /// How far that is to come.
    pub threshold: u64,
    /// What has failed counts as well.
    pub counts_failures: bool,
}

impl Trigger {
    fn has_come(&self) -> bool {
        let (well, failed) = self.counter.values();
        let value = if self.counts_failures { well.wrapping_add(failed) } else { well };
        value >= self.threshold
    }
}

/// Both.
pub(super) struct Deferred {
    /// Of which endpoint; none is one's where a counter is changed.
    slot: Option<u32>,
    trigger: Trigger,
    work: Work,
    /// By what it is cancelled, if the domain has queued it.
    id: Option<Foreign>,
}

impl Work {
    /// It has the memory that is free again at once.
    fn keep(self) -> Self {
        match self {
            Self::Send(order) if order.is_injected => {
                Self::Send(Order { buffer: order.buffer.keep(), ..order })
            }
            Self::Reach(reach) if reach.is_injected => {
                Self::Reach(Reach { buffer: reach.buffer.keep(), compared: reach.compared.keep(), ..reach })
            }
            work => work,
        }
    }

    fn is_receive(&self) -> bool {
        matches!(self, Self::Receive(_))
    }
}

impl Traffic {
    /// Has something begin when its time has come, which may be now. What is queued, by an id, is not read before.
    ///
    /// # Errors
    /// `FI_EAGAIN`: too much waits.
    pub fn defer(
        &mut self,
        slot: Option<u32>,
        trigger: Trigger,
        work: Work,
        id: Option<Foreign>,
    ) -> Outcome<()> {
        if let Some(slot) = slot {
            self.context(slot)?.ends()?;
        }
        if self.deferred.len() >= MOST {
            return Err(Errno::AGAIN);
        }
        let work = if id.is_some() { work } else { work.keep() };
        let is_before = |other: &Deferred| other.trigger.threshold <= trigger.threshold;
        let index = self.deferred.partition_point(is_before);
        self.deferred.insert(index, Deferred { slot, trigger, work, id });
        self.fire();
        Ok(())
    }

    /// Begins what is to begin now. What there is no room for is tried again.
    #[cold]
    #[inline(never)]
    pub(super) fn fire(&mut self) {
        while self.fire_once() {}
    }

    /// Whether anything has begun: counters may have come further by that.
    fn fire_once(&mut self) -> bool {
        let mut stuck: Vec<(u32, bool)> = Vec::new();
        let (mut index, mut has_begun) = (0, false);
        while let Some(deferred) = self.deferred.get(index) {
            let way = deferred.slot.map(|slot| (slot, deferred.work.is_receive()));
            if !deferred.trigger.has_come() || way.is_some_and(|way| stuck.contains(&way)) {
                index += 1;
                continue;
            }
            let deferred = self.deferred.remove(index);
            if self.start(&deferred) {
                has_begun = true;
                self.moved += 1;
            } else {
                stuck.extend(way);
                self.deferred.insert(index, deferred);
                index += 1;
            }
        }
        has_begun
    }

    /// Begins this, or says that it cannot; false where there is no room for either.
    fn start(&mut self, deferred: &Deferred) -> bool {
        let slot = match (&deferred.work, deferred.slot) {
            (Work::Count { counter, value, is_set: true }, _) => {
                counter.set(*value);
                return true;
            }
            (Work::Count { counter, value, .. }, _) => {
                counter.add(*value);
                return true;
            }
            (_, None) => return true,
            (_, Some(slot)) => slot,
        };
        let outcome = match &deferred.work {
            Work::Send(order) => self.send(slot, order.clone()),
            Work::Receive(want) => self.receive(slot, want.clone()),
            Work::Reach(reach) => self.reach(slot, reach.clone()),
            Work::Count { .. } => Ok(()),
        };
        match outcome {
            Ok(()) => true,
            Err(Errno::AGAIN) => false,
            // What cannot begin ends so, once there is a place for that.
            Err(Errno(code)) => {
                self.context(slot).map_or(true, |context| context.refuse(&deferred.work, code))
            }
        }
    }

    /// What an endpoint has deferred does not begin any more.
    pub(super) fn forget_deferred(&mut self, slot: u32) {
        self.deferred.retain(|deferred| deferred.slot != Some(slot));
    }

    /// The oldest work with this id does not begin any more.
    ///
    /// # Errors
    /// `FI_ENOENT`: it has begun, or there is none.
    pub fn cancel_work(&mut self, id: Foreign) -> Outcome<()> {
        let index = self.deferred.iter().position(|deferred| deferred.id == Some(id)).ok_or(Errno::NOENT)?;
        self.deferred.remove(index);
        self.go_on();
        Ok(())
    }

    /// What was behind something that is not going to begin may.
    fn go_on(&mut self) {
        self.fire();
        self.rouse_deferred();
    }

    /// No work that was queued begins any more, of that which waits for this counter, or of any.
    pub fn flush_work(&mut self, of: Option<&Arc<Counter>>) {
        let is_of =
            |deferred: &Deferred| of.is_none_or(|counter| Arc::ptr_eq(counter, &deferred.trigger.counter));
        self.deferred.retain(|deferred| deferred.id.is_none() || !is_of(deferred));
        self.go_on();
    }
}

impl Context {
    /// Says that something cannot begin; false where there is no place for that.
    fn refuse(&mut self, work: &Work, code: i32) -> bool {
        let Some(ends) = &self.ends else { return true };
        let (direction, own, instead, context, wants) = match work {
            Work::Send(order) => {
                (&ends.transmit, ends.sends.as_ref(), &order.instead, order.context, order.wants)
            }
            Work::Receive(want) => {
                (&ends.receive, ends.receives.as_ref(), &want.instead, want.context, want.wants)
            }
            Work::Reach(reach) => {
                (&ends.transmit, ends.counter_of(reach.act), &reach.instead, reach.context, reach.wants)
            }
            Work::Count { .. } => return true,
        };
        let instead = instead.as_deref();
        let direction = direction.as_ref().filter(|_| !is_quiet(instead, wants));
        let place = match direction.map(|direction| direction.cq.reserve()) {
            Some(Err(_)) => return false,
            Some(Ok(place)) => Some(place),
            None => None,
        };
        if let Some(counter) = counted(instead, own) {
            counter.add_failed(1);
        }
        let (Some(direction), Some(place)) = (direction, place) else { return true };
        let of = Completion {
            context,
            flags: 0,
            length: 0,
            buffer: Foreign::NULL,
            data: 0,
            tag: 0,
            source: NOBODY,
        };
        let failure = Failure { of, overflow: 0, code, detail: code };
        direction.cq.put(place, Entry::Failed(Box::new(failure)));
        true
    }
}
