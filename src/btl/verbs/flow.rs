//! Openib's credits, beyond those that go with messages: its credit messages take buffers that are kept for them, of which
//! there are few, and each says how many of them are posted again. Counts only; `openib` sends and reads.

use super::credit::Beyond;
use super::queues::{Kind, Queues};

/// What one queue has of it.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Buffers that are kept for credit messages about it, by either side; one of them is never used.
    reserve: u32,
    /// Credit messages of ours, of which the peer has not said that their buffers are posted again.
    sent: u32,
    /// Credit messages of the peer's, whose buffers are not posted again.
    arrived: u32,
    /// Those whose buffers are, of which the peer has not been told.
    posted: u32,
}

/// What a connection has of it.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// What the peer calls this process.
    pub(super) token: u32,
    counts: Vec<Count>,
}

/// Buffers that are kept for credit messages, for all queues together; they are posted on the queue that is for control.
pub(super) fn reserves(queues: &Queues) -> u32 {
    queues.all().iter().map(|queue| reserve(queue.kind)).sum()
}

const fn reserve(kind: Kind) -> u32 {
    match kind {
        Kind::Private { reserve, .. } => reserve,
        Kind::Shared { .. } => 0,
    }
}

impl Flow {
    /// Nothing has been sent, and all buffers are posted.
    pub(super) fn new(token: u32, queues: &Queues) -> Self {
        let count = |kind| Count { reserve: reserve(kind), ..Count::default() };
        Self { token, counts: queues.all().iter().map(|queue| count(queue.kind)).collect() }
    }

    /// Whether a credit message about a queue may be sent.
    pub(super) fn may_tell(&self, queue: usize) -> bool {
        self.counts.get(queue).is_some_and(|count| count.sent + 1 < count.reserve)
    }

    /// One is sent.
    pub(super) fn tell(&mut self, queue: usize) {
        if let Some(count) = self.counts.get_mut(queue) {
            count.sent += 1;
        }
    }

    /// The peer has posted buffers of so many of them again.
    ///
    /// # Errors
    /// When so many had not been sent.
    pub(super) fn seen(&mut self, queue: usize, seen: u8) -> Result<(), Beyond> {
        let count = self.counts.get_mut(queue).ok_or(Beyond)?;
        count.sent = count.sent.checked_sub(u32::from(seen)).ok_or(Beyond)?;
        Ok(())
    }

    /// One has come.
    ///
    /// # Errors
    /// When there was no buffer for it.
    pub(super) fn arrive(&mut self, queue: usize) -> Result<(), Beyond> {
        let count = self.counts.get_mut(queue).ok_or(Beyond)?;
        if count.arrived + count.posted + 1 >= count.reserve {
            return Err(Beyond);
        }
        count.arrived += 1;
        Ok(())
    }

    /// Whether it is time to post the buffers of those that have come; then they count as posted.
    pub(super) fn is_due(&mut self, queue: usize) -> bool {
        let Some(count) = self.counts.get_mut(queue) else { return false };
        let is_due = count.arrived >= (count.reserve / 4).max(1);
        if is_due {
            count.posted += std::mem::take(&mut count.arrived);
        }
        is_due
    }

    /// How many the next message of a queue, or about it, says are posted again.
    pub(super) fn posted(&self, queue: usize) -> u8 {
        self.counts.get(queue).map_or(0, |count| count.posted.min(255) as u8)
    }

    /// It has said so.
    pub(super) fn returned(&mut self, queue: usize, posted: u8) {
        if let Some(count) = self.counts.get_mut(queue) {
            count.posted -= u32::from(posted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Queues {
        Queues::parse("P,128,256,192,128,8:S,2048,16:P,65536,64,32,16,2").expect("queues")
    }

    #[test]
    fn one_buffer_less_than_are_kept_is_used() {
        let mut flow = Flow::new(7, &queues());
        assert_eq!((reserves(&queues()), flow.token), (10, 7));
        let may = |flow: &Flow| [0, 1, 2, 3].map(|queue| flow.may_tell(queue));
        assert_eq!(may(&flow), [true, false, true, false]);
        (0..7).for_each(|_| flow.tell(0));
        flow.tell(2);
        assert_eq!(may(&flow), [false, false, false, false]);
        assert_eq!((flow.seen(0, 2), flow.seen(0, 6), flow.seen(1, 1)), (Ok(()), Err(Beyond), Err(Beyond)));
        assert_eq!((flow.seen(9, 0), may(&flow)), (Err(Beyond), [true, false, false, false]));
    }

    #[test]
    fn buffers_are_posted_in_quarters_and_told_once() {
        let mut flow = Flow::new(0, &queues());
        assert_eq!((flow.arrive(0), flow.is_due(0), flow.posted(0)), (Ok(()), false, 0));
        assert_eq!((flow.arrive(0), flow.is_due(0), flow.posted(0)), (Ok(()), true, 2));
        flow.returned(0, 2);
        assert_eq!((flow.is_due(0), flow.posted(0)), (false, 0));
        assert!((0..7).all(|_| flow.arrive(0).is_ok()));
        assert_eq!((flow.arrive(0), flow.arrive(1), flow.arrive(9)), (Err(Beyond), Err(Beyond), Err(Beyond)));
    }

    /// Two sides that send credit messages as they like, with delays.
    #[test]
    fn nobody_sends_what_there_is_no_buffer_for_and_nobody_stops() {
        let mut sides = [Flow::new(0, &queues()), Flow::new(0, &queues())];
        let mut wires: [Vec<u8>; 2] = Default::default();
        let (mut state, mut sent) = (1_u64, 0);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 40) as usize & 1;
            if state >> 41 & 1 == 0 && sides[at].may_tell(0) {
                let posted = sides[at].posted(0);
                sides[at].returned(0, posted);
                sides[at].tell(0);
                wires[at].push(posted);
                sent += 1;
            } else if !wires[1 - at].is_empty() {
                let seen = wires[1 - at].remove(0);
                sides[at].seen(0, seen).expect("what was sent");
                sides[at].arrive(0).expect("a buffer");
                sides[at].is_due(0);
            }
        }
        assert!(sent > 1000, "{sent}");
    }
}
