//! One pass: what leaves from a first to a last datagram, between two of the caller's looks at the link.

use crate::wire::run::Headers;

/// Segments of one endpoint that follow each other, so that they can leave in one call.
const TURN: usize = 64;
/// Bytes of one endpoint that follow each other.
const TURN_BYTES: usize = 64 << 10;

/// The turn of the endpoint at the head of those that have something to send.
#[derive(Debug, Default)]
pub(super) struct Turn {
    segments: usize,
    bytes: usize,
}

impl Turn {
    /// Whether it is the next one's.
    #[inline(always)]
    pub(super) const fn is_over(&self) -> bool {
        self.segments >= TURN || self.bytes >= TURN_BYTES
    }

    /// So many segments left, in datagrams of so many bytes in all.
    #[inline(always)]
    pub(super) const fn note_sent(&mut self, segments: usize, bytes: usize) {
        self.segments += segments;
        self.bytes += bytes;
    }

    /// Datagrams of so many bytes that may still leave.
    pub(super) fn room(&self, datagram: usize) -> usize {
        TURN.saturating_sub(self.segments).min(TURN_BYTES.saturating_sub(self.bytes) / datagram)
    }

    /// Another one begins.
    #[inline(always)]
    pub(super) const fn begin(&mut self) {
        (self.segments, self.bytes) = (0, 0);
    }
}

/// A pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) number: u64,
    /// Segments sent again in it.
    pub(super) resent: usize,
    pub(super) turn: Turn,
    /// Bytes of datagrams that may leave as one run.
    pub(super) run_room: usize,
    /// The headers of the run that has left last.
    pub(super) headers: Headers,
}

impl Pass {
    pub(super) fn new() -> Self {
        Self { number: 1, resent: 0, turn: Turn::default(), run_room: 0, headers: Headers::default() }
    }

    /// The next one begins.
    #[inline(always)]
    pub(super) const fn begin(&mut self) {
        self.number += 1;
        self.resent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_after_so_many_segments_or_bytes() {
        let mut turn = Turn::default();
        turn.note_sent(TURN - 1, 100);
        assert_eq!((turn.is_over(), turn.room(100)), (false, 1));
        turn.note_sent(1, 100);
        assert_eq!((turn.is_over(), turn.room(100)), (true, 0));
        turn.begin();
        assert_eq!((turn.is_over(), turn.room(1)), (false, TURN));
        turn.note_sent(2, TURN_BYTES - 100);
        assert_eq!((turn.is_over(), turn.room(100), turn.room(101)), (false, 1, 0));
        turn.note_sent(1, 100);
        assert!(turn.is_over());
    }
}
