//! Operations that begin when a counter has come so far (`FI_TRIGGER`, `fi_trigger(3)`).

use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::cntr::Counter;
use super::super::cq::{Completion, Entry, Failure};
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::Traffic;
use super::context::Context;
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
}

/// When it is to begin.
pub struct Trigger {
    /// What counts.
    pub counter: Arc<Counter>,
    /// How far that is to come.
    pub threshold: u64,
}

/// Both.
pub(super) struct Deferred {
    slot: u32,
    trigger: Trigger,
    work: Work,
}

impl Work {
    fn context(&self) -> Foreign {
        match self {
            Self::Send(order) => order.context,
            Self::Receive(want) => want.context,
            Self::Reach(reach) => reach.context,
        }
    }

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
}

impl Traffic {
    /// Has something begin when its time has come, which may be now.
    ///
    /// # Errors
    /// `FI_EAGAIN`: too much waits.
    pub fn defer(&mut self, slot: u32, trigger: Trigger, work: Work) -> Outcome<()> {
        self.context(slot)?.ends()?;
        if self.deferred.len() >= MOST {
            return Err(Errno::AGAIN);
        }
        self.deferred.push(Deferred { slot, trigger, work: work.keep() });
        self.fire();
        Ok(())
    }

    /// Begins what is to begin now, in the order in which it was asked for. What there is no room for is tried again.
    #[cold]
    #[inline(never)]
    pub(super) fn fire(&mut self) {
        let mut index = 0;
        while let Some(deferred) = self.deferred.get(index) {
            if deferred.trigger.counter.value() < deferred.trigger.threshold {
                index += 1;
                continue;
            }
            let Deferred { slot, trigger, work } = self.deferred.remove(index);
            self.moved += 1;
            let (outcome, is_transmit) = match &work {
                Work::Send(order) => (self.send(slot, order.clone()), true),
                Work::Receive(want) => (self.receive(slot, want.clone()), false),
                Work::Reach(reach) => (self.reach(slot, reach.clone()), true),
            };
            let waits = match outcome {
                Ok(()) => false,
                Err(Errno::AGAIN) => true,
                // What cannot begin ends so, once there is a place for that.
                Err(Errno(code)) => {
                    self.context(slot).is_ok_and(|context| !context.refuse(work.context(), is_transmit, code))
                }
            };
            if waits {
                self.deferred.insert(index, Deferred { slot, trigger, work });
                index += 1;
            }
        }
    }

    /// What an endpoint has deferred does not begin any more.
    pub(super) fn forget_deferred(&mut self, slot: u32) {
        self.deferred.retain(|deferred| deferred.slot != slot);
    }
}

impl Context {
    /// Says that something cannot begin; false where there is no place for that.
    fn refuse(&mut self, context: Foreign, is_transmit: bool, code: i32) -> bool {
        let Some(ends) = &self.ends else { return true };
        let (direction, counter) =
            if is_transmit { (&ends.transmit, &ends.sends) } else { (&ends.receive, &ends.receives) };
        let place = match direction.as_ref().map(|direction| direction.cq.reserve()) {
            Some(Err(_)) => return false,
            Some(Ok(place)) => Some(place),
            None => None,
        };
        if let Some(counter) = counter {
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
