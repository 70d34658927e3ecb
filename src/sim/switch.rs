//! What several ways share: the port of a switch, one queue in front of one wire.

use crate::engine::time::Instant;

/// Which port of [`super::Wires`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortId(pub(super) usize);

/// A queue with a bound in bytes, in front of a wire with a rate. What finds it full is dropped.
#[derive(Clone, Debug)]
pub struct Port {
    rate: u64,
    queue: u64,
    free: Instant,
    /// Datagrams that it has let through.
    pub passed: u64,
    /// Bytes that it has let through.
    pub bytes: u64,
    /// Datagrams that found it full.
    pub overflowed: u64,
    /// Longest time that one had to wait, nanoseconds.
    pub longest_wait: u64,
}

impl Port {
    /// `rate` in bytes a second, above 0; `queue` in bytes.
    pub const fn new(rate: u64, queue: u64) -> Self {
        Self { rate, queue, free: Instant::ORIGIN, passed: 0, bytes: 0, overflowed: 0, longest_wait: 0 }
    }

    /// When a datagram that comes now has left; `None`: there is no room for it. To be called in the
    /// order of time.
    pub fn pass(&mut self, len: usize, now: Instant) -> Option<Instant> {
        let wait = self.free.since(now);
        let Some(left) = leave(&mut self.free, self.rate, self.queue, len, now) else {
            self.overflowed += 1;
            return None;
        };
        self.longest_wait = self.longest_wait.max(wait);
        self.passed += 1;
        self.bytes += len as u64;
        Some(left)
    }
}

/// When a datagram has left that comes to a wire now which is `free` then; `None`: more than `queue`
/// bytes wait already.
pub(super) fn leave(free: &mut Instant, rate: u64, queue: u64, len: usize, now: Instant) -> Option<Instant> {
    if free.since(now).saturating_mul(rate) / 1_000_000_000 > queue {
        return None;
    }
    *free = (*free).max(now).plus(len as u64 * 1_000_000_000 / rate);
    Some(*free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_wire_behind_a_bounded_queue() {
        let mut port = Port::new(1_000_000_000, 2_000);
        let now = Instant::from_nanos(5_000);
        let left: Vec<_> = (0..4).map(|_| port.pass(1_000, now).map(Instant::nanos)).collect();
        assert_eq!(left, [Some(6_000), Some(7_000), Some(8_000), None]);
        assert_eq!((port.passed, port.overflowed, port.longest_wait), (3, 1, 2_000));
        assert_eq!(port.pass(500, Instant::from_nanos(20_000)), Some(Instant::from_nanos(20_500)));
        assert_eq!(port.bytes, 3_500);
    }
}
