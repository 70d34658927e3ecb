//! What is left of a connection that is over: how often the two had connected, and how far the peer's segments had
//! come. By it, packets of an earlier connection are known as such, and their sender can be told.

use super::time::{Instant, MILLI};
use std::collections::{HashMap, VecDeque};

/// How many closed connections are remembered.
const REMEMBERED: usize = 16_384;
/// Those who still send are told one at a time, with so long between: whoever gets no answer asks again.
const BETWEEN_RESETS: u64 = MILLI;

/// What is left of the last connection with a process, once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClosedConnection {
    /// How often we had connected.
    pub(super) ours: u16,
    /// How often the peer had; 0: nothing was heard of it.
    pub(super) peers: u16,
    /// Every segment of the peer's below has arrived.
    pub(super) received: u64,
}

/// Connections that are over.
#[derive(Default)]
pub(super) struct ClosedConnections {
    known: HashMap<(u64, u32), ClosedConnection>,
    oldest: VecDeque<(u64, u32)>,
    next_reset: Instant,
}

impl ClosedConnections {
    pub(super) fn get(&self, name: (u64, u32)) -> Option<ClosedConnection> {
        self.known.get(&name).copied()
    }

    /// A connection is over. Where nothing was heard of the peer in it, what is known of an earlier one stays.
    pub(super) fn note(&mut self, name: (u64, u32), closed: ClosedConnection) {
        let known = self.known.get(&name).filter(|_| closed.peers == 0).copied().unwrap_or(closed);
        if self.known.insert(name, ClosedConnection { ours: closed.ours, ..known }).is_none() {
            self.oldest.push_back(name);
            if self.oldest.len() > REMEMBERED
                && let Some(oldest) = self.oldest.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }

    /// Whether a peer's packets with this number are of a connection that is over.
    pub(super) fn is_over(&self, name: (u64, u32), connection: u16) -> bool {
        self.known
            .get(&name)
            .is_some_and(|closed| closed.peers != 0 && connection.wrapping_sub(closed.peers) as i16 <= 0)
    }

    /// How far the segments of a peer's connection had come, if it is the last one.
    pub(super) fn received(&self, name: (u64, u32), connection: u16) -> Option<u64> {
        self.known.get(&name).filter(|closed| closed.peers == connection).map(|closed| closed.received)
    }

    /// Whether somebody may be told now that a connection is over; if so, nobody else before long.
    pub(super) fn may_reset(&mut self, now: Instant) -> bool {
        let may = now >= self.next_reset;
        if may {
            self.next_reset = now.plus(BETWEEN_RESETS);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (u64, u32) = (7, 1);

    #[test]
    fn what_was_known_of_an_earlier_connection_stays_while_nothing_is_heard_of_the_next() {
        let mut closed = ClosedConnections::default();
        closed.note(NAME, ClosedConnection { ours: 1, peers: 4, received: 90 });
        closed.note(NAME, ClosedConnection { ours: 2, peers: 0, received: 0 });
        assert_eq!(closed.get(NAME), Some(ClosedConnection { ours: 2, peers: 4, received: 90 }));
        assert_eq!((closed.received(NAME, 4), closed.received(NAME, 3)), (Some(90), None));
        assert!(closed.is_over(NAME, 3) && closed.is_over(NAME, 4) && !closed.is_over(NAME, 5));
        closed.note(NAME, ClosedConnection { ours: 3, peers: 5, received: 6 });
        assert_eq!((closed.received(NAME, 5), closed.received(NAME, 4)), (Some(6), None));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut closed = ClosedConnections::default();
        for name in 0..=REMEMBERED as u64 {
            closed.note((name, 1), ClosedConnection { ours: 1, peers: 1, received: 0 });
        }
        assert_eq!((closed.known.len(), closed.oldest.len()), (REMEMBERED, REMEMBERED));
        assert!(!closed.is_over((0, 1), 1) && closed.is_over((1, 1), 1));
    }

    #[test]
    fn those_who_still_send_are_told_one_at_a_time() {
        let mut closed = ClosedConnections::default();
        let told = |closed: &mut ClosedConnections, at| closed.may_reset(Instant::from_nanos(at * MILLI / 4));
        let times: Vec<u64> = (0..12).filter(|at| told(&mut closed, *at)).collect();
        assert_eq!(times, [0, 4, 8]);
    }
}
